//! Curves: joined values, or marks.

use super::simplify::{simplify, spread};
use super::{At, Entry, Frame, Ink, Mark, Shape, Unit};

/// The style of a curve.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Kind {
    /// Straight lines between points.
    Line,
    /// Each value lasts until the next.
    Steps,
    /// As steps, filled down to the axis.
    FilledSteps,
    /// Separate marks.
    Marks(Mark),
}

/// Values over another quantity, such as time.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Curve {
    pub(crate) name: String,
    pub(crate) ink: Ink,
    pub(crate) kind: Kind,
    pub(crate) width: f32,
    pub(crate) dashed: bool,
    /// A mark repeated along the line to distinguish it without colour.
    pub(crate) mark: Option<Mark>,
    /// Whether marks are outlines only.
    pub(crate) hollow: bool,
    /// Positions on the x axis and values, in drawing order. A value that is not finite interrupts the curve.
    pub(crate) points: Vec<(f64, f64)>,
    /// Whether the axis is extended to cover its values; otherwise values beyond the axis are omitted.
    pub(crate) fits: bool,
}

impl Curve {
    pub(crate) fn new(name: impl Into<String>, ink: Ink, kind: Kind, points: Vec<(f64, f64)>) -> Self {
        Self { name: name.into(), ink, kind, width: 1.5, dashed: false, mark: None, hollow: false, points, fits: true }
    }

    /// Curve number `index` of several in one chart, distinguished by dashes and marks as well as colour.
    pub(crate) fn distinct(index: usize, name: impl Into<String>, kind: Kind, points: Vec<(f64, f64)>) -> Self {
        let mark = (index > 0).then(|| Mark::category(index - 1));
        Self { dashed: index % 2 == 1, mark, ..Self::new(name, Ink::category(index), kind, points) }
    }

    /// The legend entry.
    pub(crate) fn entry(&self) -> Entry {
        match self.kind {
            Kind::Marks(mark) => Entry::new(self.name.as_str(), Vec::new()).marked(mark, self.ink, self.hollow),
            _ => {
                let line = Entry::line(self.name.as_str(), self.ink, self.width.max(2.0), self.dashed);
                match self.mark {
                    Some(mark) => line.marked(mark, self.ink, self.hollow),
                    None => line,
                }
            }
        }
    }
}

/// The course of values in words: `NAME: 0 bytes at 0 s, at most 6 MB, 6 MB at 9 s`. `None` without values.
pub(crate) fn course(name: &str, points: impl Iterator<Item = (f64, f64)>, (x, y): (Unit, Unit)) -> Option<String> {
    let points: Vec<(f64, f64)> = points.filter(|point| point.0.is_finite() && point.1.is_finite()).collect();
    let (first, last) = (points.first()?, points.last()?);
    let most = points.iter().map(|point| point.1).fold(f64::NEG_INFINITY, f64::max);
    let at = |point: &(f64, f64)| format!("{} at {}", y.value(point.1), x.value(point.0));
    Some(if points.len() == 1 {
        format!("{name}: {}", at(first))
    } else {
        format!("{name}: {}, at most {}, {}", at(first), y.value(most), at(last))
    })
}

/// Draws the part of `curve` within `frame`.
pub(crate) fn draw_curve(curve: &Curve, frame: &Frame, shapes: &mut Vec<Shape>) {
    let visible = |point: &&(f64, f64)| frame.shows(point.1);
    if let Kind::Marks(mark) = curve.kind {
        let points = curve.points.iter().filter(visible).map(|&point| frame.at(point));
        let points = spread(points, 2.0);
        if !points.is_empty() {
            shapes.push(Shape::Marks { points, mark, ink: curve.ink, hollow: curve.hollow });
        }
        return;
    }
    for run in curve.points.split(|point| !frame.shows(point.1)) {
        let places: Vec<At> = run.iter().map(|&point| frame.at(point)).collect();
        let path = simplify(&if curve.kind == Kind::Line { places } else { steps(&places) }, 0.3);
        let (Some(first), Some(last)) = (path.first(), path.last()) else { continue };
        if curve.kind == Kind::FilledSteps {
            let mut area = path.clone();
            area.extend([(last.0, frame.bottom), (first.0, frame.bottom)]);
            shapes.push(Shape::Area { points: area, ink: curve.ink, opacity: 0.22 });
        }
        if path.len() > 1 {
            if let Some(mark) = curve.mark {
                let points = milestones(&path);
                shapes.push(Shape::Marks { points, mark, ink: curve.ink, hollow: curve.hollow });
            }
            shapes.push(Shape::Line { points: path, ink: curve.ink, width: curve.width, dashed: curve.dashed });
        }
    }
}

/// Positions of marks on a path, spaced so that the line between them is visible, and its end.
fn milestones(path: &[At]) -> Vec<At> {
    const APART: f32 = 90.0;
    let mut points = Vec::new();
    let mut to_go = APART / 2.0;
    for pair in path.windows(2) {
        let ((x, y), (next_x, next_y)) = (pair[0], pair[1]);
        let length = (next_x - x).hypot(next_y - y);
        let mut at = to_go;
        while at < length {
            let share = at / length;
            points.push((x + (next_x - x) * share, y + (next_y - y) * share));
            at += APART;
        }
        to_go = at - length;
    }
    points.extend(path.last());
    points
}

/// Each value lasts until the next.
fn steps(places: &[At]) -> Vec<At> {
    let mut path: Vec<At> = Vec::with_capacity(places.len() * 2);
    for &(x, y) in places {
        if let Some(&(_, before)) = path.last() {
            path.push((x, before));
        }
        path.push((x, y));
    }
    path
}
