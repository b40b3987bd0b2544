//! Intervals of scenario values, parametrized from 0 to 1.

use crate::error::ErrorKind;
use crate::problem::Problem;
use crate::quantity::split_unit;

/// A range of values of one kind: numbers, or numbers with the same unit.
#[derive(Clone, PartialEq, Debug)]
pub struct Interval {
    from: Amount,
    to: Amount,
    logarithmic: bool,
}

/// The error of an interval's end.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{key}: {message}")]
pub struct IntervalError {
    /// The invalid end: `from` or `to`.
    pub key: &'static str,
    /// The reason.
    pub message: String,
}

impl Interval {
    /// The values from `from` to `to`, both included; a logarithmic scale spaces equal ratios equally.
    ///
    /// # Errors
    ///
    /// If an end is not a number, the units differ, `to` is not above `from`, or a logarithmic scale begins at zero or below.
    pub fn new(from: &toml::Value, to: &toml::Value, logarithmic: bool) -> Result<Self, IntervalError> {
        let wrong = |key, problem: &Problem| IntervalError { key, message: problem.to_string() };
        let from_amount = Amount::read(from).map_err(|problem| wrong("from", &problem))?;
        let to_amount = Amount::read(to).and_then(|to| to.in_unit_of(&from_amount));
        let to_amount = to_amount.map_err(|problem| wrong("to", &problem))?;
        let interval = Self { from: from_amount, to: to_amount, logarithmic };
        interval.check(from, to).map_err(|(key, problem)| wrong(key, &problem))?;
        Ok(interval)
    }

    fn check(&self, from: &toml::Value, to: &toml::Value) -> Result<(), (&'static str, Problem)> {
        let unexpected =
            |found: &toml::Value, accepted| Problem::unexpected(ErrorKind::BadValue, found.to_string(), accepted);
        if self.to.number <= self.from.number {
            return Err(("to", unexpected(to, "more than \"from\"")));
        }
        if self.logarithmic && self.from.number <= 0.0 {
            return Err(("from", unexpected(from, "more than 0 on a logarithmic scale")));
        }
        Ok(())
    }

    /// The value at `place`, 0 for `from` and 1 for `to`. Between the ends it has three significant digits, and is rounded if its unit is a
    /// whole number of things.
    pub fn at(&self, place: f64) -> toml::Value {
        let (from, to) = (self.from.number, self.to.number);
        if place <= 0.0 || place >= 1.0 {
            return self.from.write(if place <= 0.0 { from } else { to });
        }
        let exact = if self.logarithmic { from * (to / from).powf(place) } else { from + place * (to - from) };
        let rounded: f64 = format!("{exact:.2e}").parse().unwrap_or(exact);
        self.from.write(rounded.clamp(from, to))
    }

    /// The place of `value`, from 0 to 1; `None` if it is of another kind or outside the interval.
    pub fn place_of(&self, value: &toml::Value) -> Option<f64> {
        let number = Amount::read(value).and_then(|amount| amount.in_unit_of(&self.from)).ok()?.number;
        let (from, to) = (self.from.number, self.to.number);
        let place =
            if self.logarithmic { (number / from).ln() / (to / from).ln() } else { (number - from) / (to - from) };
        // The largest displacement of an end by rounding.
        const ROUNDING: f64 = 1e-6;
        (-ROUNDING..=1.0 + ROUNDING).contains(&place).then(|| place.clamp(0.0, 1.0))
    }

    /// Whether the scale is logarithmic.
    pub const fn is_logarithmic(&self) -> bool {
        self.logarithmic
    }
}

/// A number with the kind of its value.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Amount {
    pub(crate) number: f64,
    form: Form,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Form {
    Integer,
    Float,
    Unit(String),
}

/// Units counted in whole numbers.
const WHOLE: [&str; 9] = ["B", "byte", "bytes", "packet", "packets", "segment", "segments", "retry", "retries"];

impl Amount {
    pub(crate) fn read(value: &toml::Value) -> Result<Self, Problem> {
        let bad = || {
            Problem::unexpected(ErrorKind::BadValue, value.to_string(), "a number, or a number with a unit in quotes")
        };
        match value {
            toml::Value::Integer(number) => Ok(Self { number: *number as f64, form: Form::Integer }),
            toml::Value::Float(number) if number.is_finite() => Ok(Self { number: *number, form: Form::Float }),
            toml::Value::String(text) => {
                let (number, unit) = split_unit(text).ok_or_else(bad)?;
                Ok(Self { number, form: Form::Unit(unit.to_owned()) })
            }
            _ => Err(bad()),
        }
    }

    pub(crate) fn in_unit_of(self, other: &Self) -> Result<Self, Problem> {
        let same = match (&self.form, &other.form) {
            (Form::Unit(unit), Form::Unit(expected)) => unit == expected,
            (Form::Unit(_), _) | (_, Form::Unit(_)) => false,
            _ => true,
        };
        if same {
            return Ok(self);
        }
        let unit = |form: &Form| match form {
            Form::Unit(unit) => format!("the unit \"{unit}\""),
            _ => "a plain number".to_owned(),
        };
        let accepted = format!("{}, as in \"from\"", unit(&other.form));
        Err(Problem::unexpected(ErrorKind::BadValue, unit(&self.form), accepted))
    }

    pub(crate) fn write(&self, number: f64) -> toml::Value {
        match &self.form {
            Form::Integer => toml::Value::Integer(number.round() as i64),
            Form::Float => toml::Value::Float(tidy(number)),
            Form::Unit(unit) if WHOLE.contains(&unit.as_str()) => {
                toml::Value::String(format!("{} {unit}", number.round()))
            }
            Form::Unit(unit) => toml::Value::String(format!("{} {unit}", tidy(number))),
        }
    }
}

/// Rounds to ten significant digits, so that 0.1 + 0.2 is 0.3.
fn tidy(number: f64) -> f64 {
    format!("{number:.9e}").parse().unwrap_or(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interval(from: &str, to: &str, logarithmic: bool) -> Result<Interval, String> {
        Interval::new(&from.into(), &to.into(), logarithmic).map_err(|error| error.to_string())
    }

    #[test]
    fn a_place_is_a_value_and_back() {
        let window = interval("10 kB", "1000 kB", true).unwrap();
        assert_eq!(window.at(0.5), "100 kB".into());
        assert_eq!([window.at(0.0), window.at(1.0)], ["10 kB".into(), "1000 kB".into()]);
        assert_eq!(window.at(0.3), "39.8 kB".into(), "three digits are enough for a sample");
        assert!((window.place_of(&"100 kB".into()).unwrap() - 0.5).abs() < 1e-9);
        assert_eq!(window.place_of(&"1001 kB".into()), None);
        assert_eq!(window.place_of(&"100 ms".into()), None);
        let queue = interval("2 packets", "5 packets", false).unwrap();
        assert_eq!(queue.at(0.5), "4 packets".into(), "there are no halves of packets");
        let seed = Interval::new(&1.into(), &9.into(), false).unwrap();
        assert_eq!(seed.at(0.25), 3.into());
    }

    #[test]
    fn invalid_ranges_are_refused() {
        for (from, to, logarithmic, part) in [
            ("5 ms", "5 ms", false, "to: "),
            ("9 ms", "5 ms", false, "more than \"from\""),
            ("0 ms", "5 ms", true, "from: "),
            ("1 s", "5 ms", false, "unit"),
            ("fast", "slow", false, "a number"),
        ] {
            let error = interval(from, to, logarithmic).unwrap_err();
            assert!(error.contains(part), "{from} to {to}: {error}");
        }
    }
}
