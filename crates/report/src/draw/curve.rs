//! Curves: values that are joined, or marked.

use super::simplify::{simplify, spread};
use super::{At, Entry, Frame, Ink, Mark, Shape};

/// How a curve is drawn.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Kind {
    /// From point to point.
    Line,
    /// At each value until the next.
    Steps,
    /// As steps, filled down to the axis.
    FilledSteps,
    /// Each point by itself.
    Marks(Mark),
}

/// Some values over others, such as time.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Curve {
    pub(crate) name: String,
    pub(crate) ink: Ink,
    pub(crate) kind: Kind,
    pub(crate) width: f32,
    pub(crate) dashed: bool,
    /// Whether marks are only outlines.
    pub(crate) hollow: bool,
    /// Places on the x axis and values, in the order in which they are joined. A value that is not finite interrupts the curve.
    pub(crate) points: Vec<(f64, f64)>,
    /// Whether the axis has to reach its values; those beyond it are left out.
    pub(crate) fits: bool,
}

impl Curve {
    pub(crate) fn new(name: impl Into<String>, ink: Ink, kind: Kind, points: Vec<(f64, f64)>) -> Self {
        Self { name: name.into(), ink, kind, width: 1.5, dashed: false, hollow: false, points, fits: true }
    }

    /// What a legend says about it.
    pub(crate) fn entry(&self) -> Entry {
        match self.kind {
            Kind::Marks(mark) => Entry::new(self.name.as_str(), Vec::new()).marked(mark, self.ink, self.hollow),
            _ => Entry::line(self.name.as_str(), self.ink, self.width.max(2.0), self.dashed),
        }
    }
}

/// Draws what of `curve` is within `frame`.
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
            shapes.push(Shape::Line { points: path, ink: curve.ink, width: curve.width, dashed: curve.dashed });
        }
    }
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
