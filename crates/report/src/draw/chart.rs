//! A chart over time: axes, curves, outages as bands, and a legend.

use super::simplify::{simplify, spread};
use super::{Anchor, At, Figure, Ink, Mark, Shape, text, ticks};

/// What an axis counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Unit {
    Seconds,
    Bytes,
    BitsPerSecond,
    Segments,
    Packets,
}

/// How values are spread along an axis.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Scale {
    /// From zero.
    Linear,
    /// In powers of ten.
    Logarithmic,
}

/// The upright axis.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Axis {
    pub(crate) label: &'static str,
    pub(crate) unit: Unit,
    pub(crate) scale: Scale,
}

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

/// Some values over time.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Curve {
    pub(crate) name: String,
    pub(crate) ink: Ink,
    pub(crate) kind: Kind,
    pub(crate) width: f32,
    pub(crate) dashed: bool,
    /// Seconds and values, in order of time. A value that is not finite interrupts the curve.
    pub(crate) points: Vec<(f64, f64)>,
    /// Whether the axis has to reach its values; those beyond it are left out.
    pub(crate) fits: bool,
}

impl Curve {
    pub(crate) fn new(name: impl Into<String>, ink: Ink, kind: Kind, points: Vec<(f64, f64)>) -> Self {
        Self { name: name.into(), ink, kind, width: 1.5, dashed: false, points, fits: true }
    }
}

/// Times that are shaded.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Band {
    pub(crate) name: String,
    pub(crate) times_s: Vec<(f64, f64)>,
}

/// A chart over time, which starts at 0 s.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Chart {
    pub(crate) title: String,
    pub(crate) axis: Axis,
    pub(crate) end_s: f64,
    pub(crate) height: f32,
    pub(crate) curves: Vec<Curve>,
    pub(crate) bands: Vec<Band>,
}

const WIDTH: f32 = 960.0;
const LEFT: f32 = 58.0;
const RIGHT: f32 = 18.0;
const BOTTOM: f32 = 42.0;
const TITLE_BASELINE: f32 = 22.0;
const LEGEND_ROW: f32 = 19.0;
const TITLE_SIZE: f32 = 15.0;
const TEXT_SIZE: f32 = 12.0;
/// Readers' fonts may be this much wider than the one that texts are measured with.
const FONT_SLACK: f32 = 1.2;

/// The inner part of a chart, and how values become places in it.
#[derive(Clone, Copy, Debug)]
struct Plane {
    top: f32,
    bottom: f32,
    end_s: f64,
    from: f64,
    to: f64,
    scale: Scale,
}

impl Plane {
    fn x(&self, time_s: f64) -> f32 {
        LEFT + (time_s / self.end_s) as f32 * (WIDTH - LEFT - RIGHT)
    }

    fn y(&self, value: f64) -> f32 {
        let share = match self.scale {
            Scale::Linear => (value - self.from) / (self.to - self.from),
            Scale::Logarithmic => (value / self.from).log10() / (self.to / self.from).log10(),
        };
        self.bottom - share as f32 * (self.bottom - self.top)
    }

    fn shows(&self, value: f64) -> bool {
        value.is_finite() && value >= self.from && value <= self.to
    }
}

impl Chart {
    /// The chart as a picture.
    pub(crate) fn draw(&self) -> Figure {
        let mut shapes = vec![Shape::Text {
            at: (LEFT, TITLE_BASELINE),
            text: self.title.clone(),
            size: TITLE_SIZE,
            anchor: Anchor::Start,
            ink: Ink::Text,
            bold: true,
        }];
        let legend_bottom = self.draw_legend(&mut shapes);
        let top = legend_bottom + 32.0;
        let (from, to) = self.range();
        let end_s = if self.end_s > 0.0 { self.end_s } else { 1.0 };
        let plane = Plane { top, bottom: top + self.height, end_s, from, to, scale: self.axis.scale };
        self.draw_bands(&plane, &mut shapes);
        self.draw_axes(&plane, &mut shapes);
        for curve in &self.curves {
            draw_curve(curve, &plane, &mut shapes);
        }
        shapes.push(line(vec![(LEFT, plane.bottom), (WIDTH - RIGHT, plane.bottom)], Ink::Axis));
        Figure { width: WIDTH, height: plane.bottom + BOTTOM, label: self.title.clone(), shapes }
    }

    /// What the upright axis covers.
    fn range(&self) -> (f64, f64) {
        let values = self.curves.iter().filter(|curve| curve.fits).flat_map(|curve| &curve.points).map(|point| point.1);
        match self.axis.scale {
            Scale::Linear => {
                let most = values.filter(|value| value.is_finite()).fold(0.0, f64::max);
                (0.0, if most > 0.0 { most * 1.04 } else { 1.0 })
            }
            Scale::Logarithmic => {
                let positive = values.filter(|value| value.is_finite() && *value > 0.0);
                let (least, most) =
                    positive.fold((f64::MAX, 0.0_f64), |(least, most), value| (least.min(value), most.max(value)));
                if most > 0.0 { (ticks::nice_floor(least * 0.95), ticks::nice_step(most * 1.05)) } else { (0.1, 1.0) }
            }
        }
    }

    /// Draws the legend below the title; returns where it ends.
    fn draw_legend(&self, shapes: &mut Vec<Shape>) -> f32 {
        let curves =
            self.curves.iter().filter(|curve| !curve.points.is_empty()).map(|curve| (&curve.name, Some(curve)));
        let bands = self.bands.iter().filter(|band| !band.times_s.is_empty()).map(|band| (&band.name, None));
        let (mut x, mut y) = (LEFT, TITLE_BASELINE + LEGEND_ROW + 2.0);
        for (name, curve) in curves.chain(bands) {
            const SWATCH: f32 = 18.0;
            let width = SWATCH + 6.0 + text::width(name, TEXT_SIZE) * FONT_SLACK + 10.0;
            if x > LEFT && x + width > WIDTH - RIGHT {
                (x, y) = (LEFT, y + LEGEND_ROW);
            }
            let middle = y - 4.0;
            let swatch = vec![(x, middle), (x + SWATCH, middle)];
            match curve {
                None => shapes.push(Shape::Rect { at: (x, y - 10.0), size: (SWATCH, 12.0), ink: Ink::Outage }),
                Some(curve) => match curve.kind {
                    Kind::Marks(mark) => {
                        shapes.push(Shape::Marks { points: vec![(x + SWATCH / 2.0, middle)], mark, ink: curve.ink })
                    }
                    _ => shapes.push(Shape::Line {
                        points: swatch,
                        ink: curve.ink,
                        width: curve.width.max(2.0),
                        dashed: curve.dashed,
                    }),
                },
            }
            shapes.push(label((x + SWATCH + 6.0, y), name.clone(), Anchor::Start, Ink::Text));
            x += width;
        }
        y
    }

    fn draw_bands(&self, plane: &Plane, shapes: &mut Vec<Shape>) {
        for &(from, to) in self.bands.iter().flat_map(|band| &band.times_s) {
            let (left, right) = (plane.x(from.min(self.end_s)), plane.x(to.min(self.end_s)));
            if from < self.end_s {
                let size = ((right - left).max(1.0), plane.bottom - plane.top);
                shapes.push(Shape::Rect { at: (left, plane.top), size, ink: Ink::Outage });
            }
        }
    }

    fn draw_axes(&self, plane: &Plane, shapes: &mut Vec<Shape>) {
        let right = WIDTH - RIGHT;
        let mut caption = self.axis.label.to_owned();
        match self.axis.scale {
            Scale::Linear => {
                let (divisor, unit) = unit_of(self.axis.unit, plane.to);
                if !unit.is_empty() {
                    caption = format!("{caption} ({unit})");
                }
                let wanted = f64::from(self.height) / 44.0;
                let (values, decimals) = ticks::linear(0.0, plane.to / divisor, wanted);
                for value in values {
                    let y = plane.y(value * divisor);
                    shapes.push(line(vec![(LEFT, y), (right, y)], Ink::Grid));
                    shapes.push(label((LEFT - 7.0, y + 4.0), format!("{value:.decimals$}"), Anchor::End, Ink::Muted));
                }
            }
            Scale::Logarithmic => {
                for (value, is_power) in ticks::logarithmic(plane.from, plane.to) {
                    let y = plane.y(value);
                    shapes.push(line(vec![(LEFT, y), (right, y)], Ink::Grid));
                    if is_power {
                        let text = crate::quantity::seconds(value);
                        shapes.push(label((LEFT - 7.0, y + 4.0), text, Anchor::End, Ink::Muted));
                    }
                }
            }
        }
        shapes.push(label((LEFT, plane.top - 8.0), caption, Anchor::Start, Ink::Muted));
        let (values, decimals) = ticks::linear(0.0, plane.end_s, 10.0);
        for value in values {
            let x = plane.x(value);
            shapes.push(line(vec![(x, plane.bottom), (x, plane.bottom + 4.0)], Ink::Axis));
            let text = format!("{value:.decimals$}");
            shapes.push(label((x, plane.bottom + 17.0), text, Anchor::Middle, Ink::Muted));
        }
        shapes.push(label((right, plane.bottom + 34.0), "time (s)".to_owned(), Anchor::End, Ink::Muted));
    }
}

fn draw_curve(curve: &Curve, plane: &Plane, shapes: &mut Vec<Shape>) {
    let visible = |point: &&(f64, f64)| plane.shows(point.1);
    if let Kind::Marks(mark) = curve.kind {
        let points = curve.points.iter().filter(visible).map(|&(time, value)| (plane.x(time), plane.y(value)));
        let points = spread(points, 2.0);
        if !points.is_empty() {
            shapes.push(Shape::Marks { points, mark, ink: curve.ink });
        }
        return;
    }
    for run in curve.points.split(|point| !plane.shows(point.1)) {
        let places: Vec<At> = run.iter().map(|&(time, value)| (plane.x(time), plane.y(value))).collect();
        let path = simplify(&if curve.kind == Kind::Line { places } else { steps(&places) }, 0.3);
        let (Some(first), Some(last)) = (path.first(), path.last()) else { continue };
        if curve.kind == Kind::FilledSteps {
            let mut area = path.clone();
            area.extend([(last.0, plane.bottom), (first.0, plane.bottom)]);
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

fn line(points: Vec<At>, ink: Ink) -> Shape {
    Shape::Line { points, ink, width: 1.0, dashed: false }
}

fn label(at: At, text: String, anchor: Anchor, ink: Ink) -> Shape {
    Shape::Text { at, text, size: TEXT_SIZE, anchor, ink, bold: false }
}

/// By what values are divided, and what they are then.
fn unit_of(unit: Unit, most: f64) -> (f64, &'static str) {
    let scaled = |names: [&'static str; 4]| {
        let step = if most < 2e3 {
            0
        } else if most < 2e6 {
            1
        } else if most < 2e9 {
            2
        } else {
            3
        };
        (1000_f64.powi(step), names[step as usize])
    };
    match unit {
        Unit::Seconds if most < 1.0 => (1e-3, "ms"),
        Unit::Seconds => (1.0, "s"),
        Unit::Bytes => scaled(["bytes", "kB", "MB", "GB"]),
        Unit::BitsPerSecond => scaled(["bit/s", "kbit/s", "Mbit/s", "Gbit/s"]),
        Unit::Segments => (1.0, "segments"),
        Unit::Packets => (1.0, "packets"),
    }
}
