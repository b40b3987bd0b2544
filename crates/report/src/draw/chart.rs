//! A chart over time: axes, curves, outages as bands, and a legend.

use super::curve::{Curve, Kind, course, draw_curve};
use super::{Axis, Entry, Figure, Frame, Ink, PlotArea, Reach, Shape, Unit, head};

/// Shaded intervals of time.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Band {
    pub(crate) name: String,
    pub(crate) times_s: Vec<(f64, f64)>,
}

/// A chart over time, starting at 0 s.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Chart {
    pub(crate) title: String,
    pub(crate) axis: Axis,
    pub(crate) end_s: f64,
    pub(crate) height: f32,
    pub(crate) curves: Vec<Curve>,
    pub(crate) bands: Vec<Band>,
}

const BOTTOM: f32 = 42.0;

impl Chart {
    /// Draws the chart.
    pub(crate) fn draw(&self) -> Figure {
        let mut shapes = Vec::new();
        let top = head(&self.title, &self.entries(), &mut shapes) + 32.0;
        let end_s = if self.end_s > 0.0 { self.end_s } else { 1.0 };
        let time = Axis::new("time", Unit::Seconds).between(0.0, end_s);
        let fitting = self.curves.iter().filter(|curve| curve.fits);
        let values = fitting.flat_map(|curve| &curve.points).map(|point| point.1);
        let y = self.axis.span(values, Reach::FromZero);
        let frame = Frame::new(top, self.height, time.span(std::iter::empty(), Reach::FromZero), &self.axis, y);
        self.draw_bands(&frame, &mut shapes);
        frame.draw_y_axis(&mut shapes);
        frame.draw_x_axis(&time, 10.0, &mut shapes);
        let mut curves = Vec::new();
        for curve in &self.curves {
            let first = shapes.len();
            draw_curve(curve, &frame, &mut shapes);
            curves.push((curve.name.clone(), first..shapes.len()));
        }
        frame.draw_base_line(&mut shapes);
        let edges = [frame.left, frame.top, frame.right, frame.bottom];
        let plot = PlotArea { edges, time: frame.x, value: frame.y, unit: self.axis.unit, curves };
        let (width, height) = (super::WIDTH, frame.bottom + BOTTOM);
        Figure { width, height, label: self.description(), shapes, plots: vec![plot] }
    }

    /// Alternative text for readers who cannot see the chart.
    fn description(&self) -> String {
        let mut sentences = vec![format!("{}.", self.title.trim_end_matches('.'))];
        let time = |seconds: f64| Unit::Seconds.value(seconds);
        for curve in &self.curves {
            let points: Vec<(f64, f64)> = curve.points.iter().copied().filter(|point| point.1.is_finite()).collect();
            let (Some(first), Some(last)) = (points.first(), points.last()) else { continue };
            let course = match curve.kind {
                Kind::Marks(_) => Some(format!("{}: between {} and {}", curve.name, time(first.0), time(last.0))),
                _ => course(&curve.name, points.iter().copied(), (Unit::Seconds, self.axis.unit)),
            };
            sentences.extend(course.map(|course| course + "."));
        }
        for band in self.bands.iter().filter(|band| !band.times_s.is_empty()) {
            const LISTED: usize = 3;
            let times = band
                .times_s
                .iter()
                .take(LISTED)
                .map(|&(from, to)| format!("{} to {}", time(from), time(to.min(self.end_s))));
            let mut text = format!("Shaded: {}, {}", band.name, times.collect::<Vec<_>>().join(", "));
            if band.times_s.len() > LISTED {
                text.push_str(&format!(", and {} more times", band.times_s.len() - LISTED));
            }
            sentences.push(text + ".");
        }
        sentences.join(" ")
    }

    fn entries(&self) -> Vec<Entry> {
        let curves = self.curves.iter().filter(|curve| !curve.points.is_empty()).map(Curve::entry);
        let bands = self.bands.iter().filter(|band| !band.times_s.is_empty());
        curves.chain(bands.map(|band| Entry::block(band.name.as_str(), Ink::Outage))).collect()
    }

    fn draw_bands(&self, frame: &Frame, shapes: &mut Vec<Shape>) {
        for &(from, to) in self.bands.iter().flat_map(|band| &band.times_s) {
            let (left, right) = (frame.x(from.min(self.end_s)), frame.x(to.min(self.end_s)));
            if from < self.end_s {
                let size = ((right - left).max(1.0), frame.bottom - frame.top);
                shapes.push(Shape::Rect { at: (left, frame.top), size, ink: Ink::Outage });
            }
        }
    }
}
