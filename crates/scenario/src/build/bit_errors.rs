//! Bit errors of links and cells.

use holdover_base::Duration;
use holdover_link::{BitErrorBursts, BitErrors, Dwell};

use super::above_zero;
use crate::error::ErrorKind;
use crate::file;
use crate::problem::{Problem, Under};
use crate::quantity::Time;

/// The bit errors of a table. A problem lies below its field.
pub(crate) fn of(given: Option<&file::BitErrors>) -> Result<BitErrors, Problem> {
    match given {
        None => Ok(BitErrors::None),
        Some(file::BitErrors::Independent(given)) => {
            let rate = rate(*given)?;
            Ok(if rate == 0.0 { BitErrors::None } else { BitErrors::Independent(rate) })
        }
        Some(file::BitErrors::Bursts(table)) => Ok(BitErrors::GilbertElliott(BitErrorBursts {
            good: rate(table.good.unwrap_or(0.0)).under("good")?,
            bad: rate(table.bad).under("bad")?,
            dwell: dwell(table)?,
        })),
    }
}

fn rate(rate: f64) -> Result<f64, Problem> {
    if (0.0..=1.0).contains(&rate) {
        return Ok(rate);
    }
    Err(Problem::unexpected(ErrorKind::BadValue, format!("the number {rate}"), "a number from 0 to 1"))
}

fn dwell(table: &file::BitErrorBursts) -> Result<Dwell, Problem> {
    let file::BitErrorBursts { good_for, bad_for, good_bits, bad_bits, .. } = table;
    let missing = |key: &str| Problem::new(ErrorKind::MissingField, format!("the field \"{key}\" is missing"));
    let time = |time: &Option<Time>, key: &str| -> Result<Duration, Problem> {
        above_zero(time.ok_or_else(|| missing(key))?, key)
    };
    let bits = |bits: &Option<f64>, key: &str| match bits.ok_or_else(|| missing(key))? {
        bits if bits > 0.0 && bits.is_finite() => Ok(bits),
        bits => {
            Err(Problem::unexpected(ErrorKind::BadValue, format!("the number {bits}"), "a number above 0")).under(key)
        }
    };
    match (good_for.is_some() || bad_for.is_some(), good_bits.is_some() || bad_bits.is_some()) {
        (true, true) => {
            let message = "the states last for times (\"good_for\" and \"bad_for\") or for bits (\"good_bits\" and \"bad_bits\"); \
                           choose one";
            Err(Problem::conflict(message))
        }
        (false, true) => Ok(Dwell::Bits { good: bits(good_bits, "good_bits")?, bad: bits(bad_bits, "bad_bits")? }),
        (_, false) => Ok(Dwell::Time { good: time(good_for, "good_for")?, bad: time(bad_for, "bad_for")? }),
    }
}
