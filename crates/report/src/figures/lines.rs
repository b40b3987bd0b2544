//! Series over a parameter.

use super::{Words, error_bar, error_bar_entry, finish, leaves_as_svg_and_png, left_out};
use crate::draw::{Axis, Curve, Entry, Figure, Frame, Ink, Kind, Mark, Reach, Scale, Shape, course, draw_curve, head};

/// Several series over a numeric axis other than time, each with published values for comparison.
#[derive(Clone, PartialEq, Debug)]
pub struct Lines {
    /// The title.
    pub title: String,
    /// The parameter.
    pub x: Axis,
    /// The measured quantity. A linear axis starts at zero.
    pub y: Axis,
    /// The series, in the order of the legend.
    pub series: Vec<LineSeries>,
    /// The names of error bars and published values.
    pub words: Words,
}

/// One series.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct LineSeries {
    /// The name in the legend.
    pub name: String,
    /// The points in any order; the line joins them by x. A point with a y of NaN interrupts it.
    pub points: Vec<LinePoint>,
    /// x and y of published values: drawn dashed, with open marks, in the same colour.
    pub published: Vec<(f64, f64)>,
}

/// A point.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct LinePoint {
    /// In the x axis's base unit.
    pub x: f64,
    /// In the y axis's base unit.
    pub y: f64,
    /// Half the length of the error bar, in y's base unit.
    pub half_width: Option<f64>,
}

const HEIGHT: f32 = 320.0;

leaves_as_svg_and_png!(Lines);

impl Lines {
    fn draw(&self) -> Figure {
        let mut shapes = Vec::new();
        let top = head(&self.title, &self.entries(), &mut shapes) + 32.0;
        let places = || self.series.iter().flat_map(places);
        let x = self.x.span(places().map(|place| place.0), Reach::FromData);
        let y = self.y.span(self.series.iter().flat_map(|series| reached(series, self.y.scale)), Reach::FromZero);
        let frame = Frame::new(top, HEIGHT, x, &self.y, y);
        frame.draw_y_axis(&mut shapes);
        frame.draw_x_axis(&self.x, 10.0, &mut shapes);
        frame.draw_base_line(&mut shapes);
        for (index, series) in self.series.iter().enumerate() {
            draw_published(index, series, &frame, &mut shapes);
        }
        for (index, series) in self.series.iter().enumerate() {
            draw_series(index, series, &frame, &mut shapes);
        }
        let unseen = places().filter(|place| !(x.covers(place.0) && y.covers(place.1))).count();
        let why = "not a number, or not within the axes";
        finish(
            &self.title,
            self.description(),
            frame.bottom,
            left_out(unseen, "value", why).into_iter().collect(),
            shapes,
        )
    }

    /// The course of each series, and of its published values.
    fn description(&self) -> impl Iterator<Item = String> {
        let axes = format!("{} over {}", self.y.label, self.x.label);
        let units = (self.x.unit, self.y.unit);
        let by_x = |mut places: Vec<(f64, f64)>| {
            places.sort_by(|a, b| a.0.total_cmp(&b.0));
            places.into_iter()
        };
        let series = self.series.iter().flat_map(move |series| {
            let ours = by_x(series.points.iter().map(|point| (point.x, point.y)).collect());
            let published = format!("{}, {}", series.name, self.words.published);
            [course(&series.name, ours, units), course(&published, by_x(series.published.clone()), units)]
        });
        std::iter::once(axes).chain(series.flatten())
    }

    fn entries(&self) -> Vec<Entry> {
        let series = self.series.iter().enumerate().map(|(index, series)| {
            let ink = Ink::category(index);
            Entry::line(series.name.as_str(), ink, 2.0, false).marked(Mark::category(index), ink, false)
        });
        let mut entries: Vec<Entry> = series.collect();
        if self.series.iter().flat_map(|series| &series.points).any(|point| half_width(point).is_some()) {
            entries.push(error_bar_entry(&self.words.interval));
        }
        if self.series.iter().any(|series| !series.published.is_empty()) {
            let name = self.words.published.as_str();
            entries.push(Entry::line(name, Ink::Muted, 1.5, true).marked(Mark::Circle, Ink::Muted, true));
        }
        entries
    }
}

/// The half width of an error bar, if it can be drawn.
fn half_width(point: &LinePoint) -> Option<f64> {
    point.half_width.filter(|half| half.is_finite() && *half > 0.0)
}

fn places(series: &LineSeries) -> impl Iterator<Item = (f64, f64)> {
    series.points.iter().map(|point| (point.x, point.y)).chain(series.published.iter().copied())
}

/// The values that the vertical axis must cover.
fn reached(series: &LineSeries, scale: Scale) -> impl Iterator<Item = f64> {
    let ends = series.points.iter().flat_map(move |point| {
        let half = half_width(point).unwrap_or(0.0);
        // The lower end of an interval may be near zero, which is decades away on a logarithmic axis.
        let low = if scale == Scale::Linear { point.y - half } else { point.y };
        [point.y, low, point.y + half]
    });
    ends.chain(series.published.iter().map(|place| place.1))
}

/// The curve through `places`, and its marks.
fn curves(index: usize, places: impl Iterator<Item = (f64, f64)>, frame: &Frame, published: bool) -> [Curve; 2] {
    let mut places: Vec<_> = places.filter(|place| frame.x.covers(place.0)).collect();
    places.sort_by(|a, b| a.0.total_cmp(&b.0));
    let ink = Ink::category(index);
    let width = if published { 1.5 } else { 1.8 };
    let line = Curve { width, dashed: published, ..Curve::new("", ink, Kind::Line, places.clone()) };
    let marks = Curve::new("", ink, Kind::Marks(Mark::category(index)), places);
    [line, Curve { hollow: published, ..marks }]
}

fn draw_published(index: usize, series: &LineSeries, frame: &Frame, shapes: &mut Vec<Shape>) {
    for curve in curves(index, series.published.iter().copied(), frame, true) {
        draw_curve(&curve, frame, shapes);
    }
}

fn draw_series(index: usize, series: &LineSeries, frame: &Frame, shapes: &mut Vec<Shape>) {
    let [line, marks] = curves(index, series.points.iter().map(|point| (point.x, point.y)), frame, false);
    draw_curve(&line, frame, shapes);
    for point in &series.points {
        let Some(half) = half_width(point) else { continue };
        if frame.x.covers(point.x) && frame.shows(point.y) {
            let (low, high) = (point.y - half, point.y + half);
            let lower = (frame.y(low).min(frame.bottom), frame.shows(low));
            let upper = (frame.y(high).max(frame.top), frame.shows(high));
            shapes.extend(error_bar(frame.x(point.x), upper, lower, 4.0, Ink::category(index)));
        }
    }
    draw_curve(&marks, frame, shapes);
}
