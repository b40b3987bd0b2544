//! Distributions of samples.

use super::{finish, leaves_as_svg_and_png, left_out};
use crate::draw::{Axis, Curve, Figure, Frame, Kind, Reach, Span, Unit, draw_curve, head};
use crate::median::median;

/// The distribution of samples of several series, without smoothing.
#[derive(Clone, PartialEq, Debug)]
pub struct Density {
    /// The title.
    pub title: String,
    /// The sampled quantity.
    pub x: Axis,
    /// The form of display.
    pub form: Form,
    /// The series, in the order of the legend.
    pub series: Vec<Samples>,
}

/// The form in which a distribution is displayed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    /// The share of samples per bin. Bins have equal widths on the axis and are the same for all series. With zero bins a number is chosen:
    /// the square root of the number of samples in the largest series, between 10 and 60.
    Histogram {
        /// The number of bins.
        bins: usize,
    },
    /// The empirical cumulative distribution: the share of samples not greater than each value.
    Cumulative,
}

/// The samples of one series.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Samples {
    /// The name in the legend, which adds the number of samples.
    pub name: String,
    /// The samples in any order, in the axis's base unit.
    pub values: Vec<f64>,
}

const HEIGHT: f32 = 300.0;
const MOST_BINS: usize = 1000;

leaves_as_svg_and_png!(Density);

impl Density {
    fn draw(&self) -> Figure {
        let samples: Vec<Vec<f64>> = self.series.iter().map(|series| self.usable(&series.values)).collect();
        let x = self.x.span(samples.iter().flatten().copied(), Reach::FromData);
        let share = |label: &str| Axis::new(label, Unit::Ratio);
        let (y_axis, kind, points): (_, _, Vec<Vec<(f64, f64)>>) = match self.form {
            Form::Histogram { bins } => {
                let bins = bin_count(bins, samples.iter().map(Vec::len).max().unwrap_or(0));
                let points = samples.iter().map(|samples| histogram(samples, x, bins)).collect();
                (share("share of the samples in each bin"), Kind::FilledSteps, points)
            }
            Form::Cumulative => {
                let points = samples.iter().map(|samples| cumulative(samples, x)).collect();
                (share("share of the samples that are not greater").between(0.0, 1.0), Kind::Steps, points)
            }
        };
        let mut curves = Vec::new();
        for (index, (series, points)) in self.series.iter().zip(points).enumerate() {
            let name = format!("{} (n = {})", series.name, crate::quantity::count(samples[index].len() as u64));
            curves.push(Curve { width: 1.8, ..Curve::distinct(index, name, kind, points) });
        }
        let mut shapes = Vec::new();
        let entries: Vec<_> = curves.iter().map(Curve::entry).collect();
        let top = head(&self.title, &entries, &mut shapes) + 32.0;
        let values = curves.iter().flat_map(|curve| &curve.points).map(|point| point.1);
        let frame = Frame::new(top, HEIGHT, x, &y_axis, y_axis.span(values, Reach::FromZero));
        frame.draw_y_axis(&mut shapes);
        frame.draw_x_axis(&self.x, 10.0, &mut shapes);
        for curve in &curves {
            draw_curve(curve, &frame, &mut shapes);
        }
        frame.draw_base_line(&mut shapes);
        let unusable = self.series.iter().map(|series| series.values.len()).sum::<usize>()
            - samples.iter().map(Vec::len).sum::<usize>();
        let beyond = samples.iter().flatten().filter(|value| !x.covers(**value)).count();
        let notes = [
            left_out(unusable, "sample", "not a number, or without a place on the axis"),
            left_out(beyond, "sample", "beyond the axis, but counted in the shares"),
        ];
        let description = curves.iter().zip(&samples).filter_map(|(curve, samples)| {
            let value = |value: &f64| self.x.unit.value(*value);
            let (least, median, most) = (value(samples.first()?), value(&median(samples)?), value(samples.last()?));
            Some(format!("{}: {} from {least} to {most}, median {median}", curve.name, self.x.label))
        });
        finish(&self.title, description, frame.bottom, notes.into_iter().flatten().collect(), shapes)
    }

    /// The `values` that the axis can show, sorted.
    fn usable(&self, values: &[f64]) -> Vec<f64> {
        let mut usable: Vec<f64> = values.iter().copied().filter(|value| self.x.can_show(*value)).collect();
        usable.sort_by(f64::total_cmp);
        usable
    }
}

/// The number of bins for `most` samples if `wanted` are requested.
pub(super) fn bin_count(wanted: usize, most: usize) -> usize {
    match wanted {
        0 => ((most as f64).sqrt().round() as usize).clamp(10, 60),
        wanted => wanted.min(MOST_BINS),
    }
}

/// The bin of `value`, if it is within `span`. The last bin includes its end.
pub(super) fn bin(span: Span, value: f64, bins: usize) -> Option<usize> {
    let share = f64::from(span.share(value));
    span.covers(value).then(|| ((share * bins as f64) as usize).min(bins - 1))
}

/// The outline of a histogram, from the axis and back to it.
fn histogram(samples: &[f64], span: Span, bins: usize) -> Vec<(f64, f64)> {
    let mut counts = vec![0_usize; bins];
    for bin in samples.iter().filter_map(|value| bin(span, *value, bins)) {
        counts[bin] += 1;
    }
    let Some(first) = counts.iter().position(|count| *count > 0) else { return Vec::new() };
    let end = counts.iter().rposition(|count| *count > 0).map_or(first, |last| last + 1);
    let edge = |bin: usize| span.at(bin as f64 / bins as f64);
    let mut points = vec![(edge(first), 0.0)];
    for (bin, count) in counts.iter().enumerate().take(end).skip(first) {
        points.push((edge(bin), *count as f64 / samples.len() as f64));
    }
    points.push((edge(end), 0.0));
    points
}

/// The steps of the empirical distribution of sorted `samples`, from one end of the axis to the other.
fn cumulative(samples: &[f64], span: Span) -> Vec<(f64, f64)> {
    if samples.is_empty() {
        return Vec::new();
    }
    let share = |count: usize| count as f64 / samples.len() as f64;
    let first = samples.partition_point(|value| *value < span.from);
    let end = samples.partition_point(|value| *value <= span.to);
    let mut points = vec![(span.from, share(first))];
    for index in first..end {
        // Of equal samples, the last one takes the whole step.
        if index + 1 == end || samples[index] < samples[index + 1] {
            points.push((samples[index], share(index + 1)));
        }
    }
    points.push((span.to, share(end)));
    points
}
