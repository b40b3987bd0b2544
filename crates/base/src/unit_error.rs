//! Texts that are to be a number with a unit.

/// A text that is not an amount in a known unit.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnitError {
    /// The text does not begin with a number of at least zero.
    #[error("\"{text}\" is not a number of at least zero with a unit; accepted units: {accepted}")]
    Number {
        /// The text.
        text: Box<str>,
        /// The units that would be accepted.
        accepted: &'static str,
    },
    /// The number is followed by no unit, or by an unknown one.
    #[error("\"{text}\" has no known unit; accepted: {accepted}")]
    Unit {
        /// The text.
        text: Box<str>,
        /// The units that would be accepted.
        accepted: &'static str,
    },
    /// The amount does not fit.
    #[error("\"{text}\" is too large")]
    OutOfRange {
        /// The text.
        text: Box<str>,
    },
}

impl UnitError {
    pub(crate) fn unit(text: &str, accepted: &'static str) -> Self {
        Self::Unit { text: text.into(), accepted }
    }
}

/// Splits `"25 ms"` into 25 and `"ms"`.
pub(crate) fn split_number<'a>(text: &'a str, accepted: &'static str) -> Result<(f64, &'a str), UnitError> {
    let text = text.trim();
    let end = text.find(|c: char| !(c.is_ascii_digit() || c == '.' || c == '_')).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    match number.replace('_', "").parse::<f64>() {
        Ok(number) if number.is_finite() => Ok((number, unit.trim())),
        _ => Err(UnitError::Number { text: text.into(), accepted }),
    }
}
