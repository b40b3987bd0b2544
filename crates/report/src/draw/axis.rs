//! Axes: their ranges and ticks.

use super::ticks;
use super::unit::{Unit, fixed};

/// The scale of an axis.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scale {
    /// Linear.
    Linear,
    /// Logarithmic, to base ten. Only positive values can be shown.
    Logarithmic,
}

/// An axis, in base units.
#[derive(Clone, PartialEq, Debug)]
pub struct Axis {
    /// The label, without the unit, which is appended.
    pub label: String,
    /// The unit.
    pub unit: Unit,
    /// The scale.
    pub scale: Scale,
    /// The range, in base units; if it is `None` or invalid, the axis covers all values. Values beyond it are not
    /// shown, and the figure states their number.
    pub range: Option<(f64, f64)>,
}

impl Axis {
    /// A linear axis that covers all values.
    pub fn new(label: impl Into<String>, unit: Unit) -> Self {
        Self { label: label.into(), unit, scale: Scale::Linear, range: None }
    }

    /// The same axis with a logarithmic scale.
    pub fn logarithmic(self) -> Self {
        Self { scale: Scale::Logarithmic, ..self }
    }

    /// The same axis, covering `from` to `to`.
    pub fn between(self, from: f64, to: f64) -> Self {
        Self { range: Some((from, to)), ..self }
    }

    /// The span of the axis for `values`.
    pub(crate) fn span(&self, values: impl Iterator<Item = f64>, reach: Reach) -> Span {
        let given = self.range.filter(|&(from, to)| self.can_show(from) && self.can_show(to) && apart(from, to));
        let (from, to) = given.unwrap_or_else(|| {
            let shown = values.filter(|value| self.can_show(*value));
            let ends = shown.fold(None, |ends: Option<(f64, f64)>, value| {
                Some(ends.map_or((value, value), |(least, most)| (least.min(value), most.max(value))))
            });
            match self.scale {
                Scale::Linear => linear_ends(ends, reach),
                Scale::Logarithmic => ends.map_or((0.1, 1.0), |(least, most)| {
                    (ticks::nice_floor(least * 0.95), ticks::nice_step(most * 1.05))
                }),
            }
        });
        Span { from, to, scale: self.scale }
    }

    /// Whether the scale can represent `value`. Values of absurd size are refused because they overflow.
    pub(crate) fn can_show(&self, value: f64) -> bool {
        match self.scale {
            Scale::Linear => value.abs() <= FARTHEST,
            Scale::Logarithmic => (1.0 / FARTHEST..=FARTHEST).contains(&value),
        }
    }

    /// The ticks of `span`, about `wanted` of them.
    pub(crate) fn ticks(&self, span: Span, wanted: f64) -> Ticks {
        if span.scale == Scale::Logarithmic {
            let all = ticks::logarithmic(span.from, span.to);
            if all.len() >= 2 {
                return self.logarithmic_ticks(&all, wanted);
            }
        }
        let (divisor, unit) = self.unit.scaled(span.from.abs().max(span.to.abs()));
        let (values, decimals) = ticks::linear(span.from / divisor, span.to / divisor, wanted);
        let marks = values.into_iter().map(|value| (value * divisor, Some(fixed(value, decimals)))).collect();
        Ticks { marks, caption: self.caption(unit) }
    }

    /// Labels for powers of ten, each with its own unit, as they may be far apart.
    fn logarithmic_ticks(&self, all: &[(f64, bool)], wanted: f64) -> Ticks {
        let powers = all.iter().filter(|(_, is_power)| *is_power).count();
        if powers < 2 {
            let marks = all.iter().map(|&(value, _)| (value, Some(self.unit.value(value)))).collect();
            return Ticks { marks, caption: self.label.clone() };
        }
        let every = (powers as f64 / wanted.max(2.0)).ceil() as i32;
        let marks = all.iter().filter_map(|&(value, is_power)| {
            let labelled = is_power && (value.log10().round() as i32).rem_euclid(every) == 0;
            let shown = labelled || (every == 1);
            shown.then(|| (value, labelled.then(|| self.unit.value(value))))
        });
        Ticks { marks: marks.collect(), caption: self.label.clone() }
    }

    /// The label with `unit`.
    pub(crate) fn caption(&self, unit: &str) -> String {
        match (self.label.as_str(), unit) {
            (label, "") => label.to_owned(),
            ("", unit) => unit.to_owned(),
            (label, unit) => format!("{label} ({unit})"),
        }
    }
}

const FARTHEST: f64 = 1e100;

/// Whether an axis from `from` to `to` has room for numbers between them.
fn apart(from: f64, to: f64) -> bool {
    to - from > from.abs().max(to.abs()) * 1e-9
}

/// Whether an axis has to begin at zero.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Reach {
    /// Bars: lengths are compared, so the axis must start at zero.
    FromZero,
    /// Points: positions are compared, so zero is included only if it is near.
    FromData,
}

fn linear_ends(ends: Option<(f64, f64)>, reach: Reach) -> (f64, f64) {
    let Some((least, most)) = ends else { return (0.0, 1.0) };
    let near_zero = (least >= 0.0 && least <= 0.35 * most) || (most <= 0.0 && most >= 0.35 * least);
    if reach == Reach::FromZero || near_zero {
        let (least, most) = (least.min(0.0), most.max(0.0));
        return if least == 0.0 && most == 0.0 { (0.0, 1.0) } else { (least * 1.04, most * 1.04) };
    }
    if !apart(least, most) {
        let half = least.abs().max(most.abs()) * 0.5;
        return (least - half, most + half);
    }
    let room = (most - least) * 0.04;
    (least - room, most + room)
}

/// The interval covered by an axis.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Span {
    pub(crate) from: f64,
    pub(crate) to: f64,
    pub(crate) scale: Scale,
}

impl Span {
    /// The position of `value`, from 0 at the beginning to 1 at the end; values not covered lie slightly outside this
    /// range.
    pub(crate) fn share(&self, value: f64) -> f32 {
        let share = match self.scale {
            Scale::Linear => (value - self.from) / (self.to - self.from),
            Scale::Logarithmic => (value / self.from).log10() / (self.to / self.from).log10(),
        };
        if share.is_nan() { 0.0 } else { share.clamp(-0.5, 1.5) as f32 }
    }

    /// The value at position `share`.
    pub(crate) fn at(&self, share: f64) -> f64 {
        match self.scale {
            Scale::Linear => self.from + share * (self.to - self.from),
            Scale::Logarithmic => self.from * (self.to / self.from).powf(share),
        }
    }

    pub(crate) fn covers(&self, value: f64) -> bool {
        value >= self.from && value <= self.to
    }
}

/// The ticks of an axis and their labels. A tick without a label is a thin line.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Ticks {
    pub(crate) marks: Vec<(f64, Option<String>)>,
    /// The axis's label, including the unit unless the ticks have it.
    pub(crate) caption: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(axis: &Axis, values: &[f64], reach: Reach) -> (Vec<String>, String) {
        let ticks = axis.ticks(axis.span(values.iter().copied(), reach), 5.0);
        (ticks.marks.into_iter().filter_map(|(_, label)| label).collect(), ticks.caption)
    }

    #[test]
    fn an_axis_chooses_its_prefix() {
        let axis = Axis::new("goodput", Unit::BitsPerSecond);
        let (labels, caption) = labels(&axis, &[1e6, 8e6], Reach::FromZero);
        assert_eq!(
            (labels, caption),
            (vec!["0".into(), "2".into(), "4".into(), "6".into(), "8".into()], "goodput (Mbit/s)".into())
        );
    }

    #[test]
    fn a_logarithmic_axis_has_units_at_its_ticks() {
        let axis = Axis::new("disconnection", Unit::Seconds).logarithmic();
        let (many, caption) = labels(&axis, &[0.01, 100.0], Reach::FromData);
        assert_eq!(many, ["10 ms", "100 ms", "1 s", "10 s", "100 s"]);
        assert_eq!(caption, "disconnection");
        let (few, _) = labels(&axis, &[0.3, 0.4], Reach::FromData);
        assert_eq!(few, ["200 ms", "500 ms"]);
        let (thinned, _) = labels(&axis, &[1e-60, 1e60], Reach::FromData);
        assert!((3..=6).contains(&thinned.len()), "{thinned:?}");
    }

    #[test]
    fn zero_is_shown_where_it_is_near_and_values_that_are_equal_have_room() {
        let axis = Axis::new("", Unit::Count);
        let span = |values: &[f64], reach| {
            let span = axis.span(values.iter().copied(), reach);
            (span.from, span.to)
        };
        assert_eq!(span(&[5.0, 100.0], Reach::FromData).0, 0.0);
        assert!(span(&[90.0, 100.0], Reach::FromData).0 > 80.0);
        assert_eq!(span(&[90.0, 100.0], Reach::FromZero).0, 0.0);
        assert!(span(&[-10.0, 20.0], Reach::FromZero).0 < -10.0);
        assert_eq!(span(&[7.0, 7.0], Reach::FromData), (3.5, 10.5));
        assert_eq!(span(&[0.0], Reach::FromData), (0.0, 1.0));
        assert_eq!(span(&[], Reach::FromData), (0.0, 1.0));
        assert_eq!(span(&[f64::NAN, f64::INFINITY, 2.0], Reach::FromZero), (0.0, 2.08));
    }

    #[test]
    fn a_range_that_makes_no_sense_is_not_used() {
        let axis =
            |from, to| Axis::new("", Unit::Count).between(from, to).span([1.0, 2.0].into_iter(), Reach::FromZero).to;
        assert_eq!(axis(0.0, 10.0), 10.0);
        for (from, to) in [(10.0, 0.0), (3.0, 3.0), (f64::NAN, 1.0), (0.0, f64::INFINITY)] {
            assert_eq!(axis(from, to), 2.08);
        }
    }
}
