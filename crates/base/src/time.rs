//! Points and spans of virtual time in integer nanoseconds.
//!
//! An own pair of types instead of `std::time`, because a simulation starts at a constructible zero and `std`'s `Instant`
//! cannot be made without reading a clock. Both cover 584 years; arithmetic that would leave that range saturates, so that
//! "never" can be added to without wrapping into the past.

use core::fmt;
use core::ops::{Add, AddAssign, Div, Mul, Sub, SubAssign};
use core::str::FromStr;

use crate::unit_error::{UnitError, split_number};

/// A point in time: nanoseconds since the start of the run.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Instant(u64);

/// A span of time in nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Duration(u64);

impl Instant {
    /// The start of every run.
    pub const ZERO: Self = Self(0);
    /// Later than anything that happens.
    pub const FAR_FUTURE: Self = Self(u64::MAX);

    /// The point `nanos` after the start.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// The point `micros` microseconds after the start.
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros.saturating_mul(1_000))
    }

    /// The point `millis` milliseconds after the start.
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis.saturating_mul(1_000_000))
    }

    /// The point `secs` seconds after the start.
    pub const fn from_secs(secs: u64) -> Self {
        Self(secs.saturating_mul(1_000_000_000))
    }

    /// Nanoseconds since the start.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Whole milliseconds since the start.
    pub const fn as_millis(self) -> u64 {
        self.0 / 1_000_000
    }

    /// Seconds since the start, for reports; decisions use the integer forms.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// The time from `earlier` to `self`, or zero if `earlier` is later.
    pub const fn saturating_since(self, earlier: Self) -> Duration {
        Duration(self.0.saturating_sub(earlier.0))
    }

    /// The time from `earlier` to `self`; `None` if `earlier` is later.
    pub const fn checked_since(self, earlier: Self) -> Option<Duration> {
        match self.0.checked_sub(earlier.0) {
            Some(nanos) => Some(Duration(nanos)),
            None => None,
        }
    }
}

impl Duration {
    /// The empty span.
    pub const ZERO: Self = Self(0);
    /// The longest span; stands for "never" where a deadline may be absent.
    pub const MAX: Self = Self(u64::MAX);

    /// A span of nanoseconds.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// A span of microseconds.
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros.saturating_mul(1_000))
    }

    /// A span of milliseconds.
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis.saturating_mul(1_000_000))
    }

    /// A span of seconds.
    pub const fn from_secs(secs: u64) -> Self {
        Self(secs.saturating_mul(1_000_000_000))
    }

    /// A span from a number of seconds; negative and NaN become zero.
    pub fn from_secs_f64(secs: f64) -> Self {
        Self((secs * 1e9).round() as u64)
    }

    /// The span in nanoseconds.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// The span in whole microseconds, rounded down.
    pub const fn as_micros(self) -> u64 {
        self.0 / 1_000
    }

    /// The span in whole milliseconds, rounded down.
    pub const fn as_millis(self) -> u64 {
        self.0 / 1_000_000
    }

    /// The span in whole seconds, rounded down.
    pub const fn as_secs(self) -> u64 {
        self.0 / 1_000_000_000
    }

    /// The span in seconds, for reports.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// Whether the span is empty.
    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }

    /// `self - other`, or zero if `other` is longer.
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }

    /// `self * 2^shift`, saturating: one step of exponential backoff for each bit.
    pub const fn saturating_shl(self, shift: u32) -> Self {
        if shift > self.0.leading_zeros() && self.0 != 0 { Self::MAX } else { Self(self.0.wrapping_shl(shift)) }
    }

    /// The smallest multiple of `tick` that is not shorter than `self`; `self` when `tick` is zero.
    pub const fn round_up_to(self, tick: Self) -> Self {
        if tick.0 == 0 {
            return self;
        }
        match self.0 % tick.0 {
            0 => self,
            rest => Self(self.0.saturating_add(tick.0 - rest)),
        }
    }
}

impl Add<Duration> for Instant {
    type Output = Self;
    fn add(self, span: Duration) -> Self {
        Self(self.0.saturating_add(span.0))
    }
}

impl AddAssign<Duration> for Instant {
    fn add_assign(&mut self, span: Duration) {
        *self = *self + span;
    }
}

impl Sub<Duration> for Instant {
    type Output = Self;
    fn sub(self, span: Duration) -> Self {
        Self(self.0.saturating_sub(span.0))
    }
}

impl Add for Duration {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl AddAssign for Duration {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl Sub for Duration {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        self.saturating_sub(other)
    }
}

impl SubAssign for Duration {
    fn sub_assign(&mut self, other: Self) {
        *self = *self - other;
    }
}

impl Mul<u64> for Duration {
    type Output = Self;
    fn mul(self, factor: u64) -> Self {
        Self(self.0.saturating_mul(factor))
    }
}

impl Div<u64> for Duration {
    type Output = Self;
    fn div(self, divisor: u64) -> Self {
        Self(self.0 / divisor)
    }
}

impl From<core::time::Duration> for Duration {
    fn from(span: core::time::Duration) -> Self {
        Self(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX))
    }
}

impl From<Duration> for core::time::Duration {
    fn from(span: Duration) -> Self {
        Self::from_nanos(span.0)
    }
}

/// Prints the span in the largest unit that keeps it exact to three digits after the point: `1.5s`, `25ms`, `300ns`.
impl fmt::Display for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit_nanos, name) = match self.0 {
            0 => return f.write_str("0s"),
            1..1_000 => (1, "ns"),
            1_000..1_000_000 => (1_000, "us"),
            1_000_000..1_000_000_000 => (1_000_000, "ms"),
            _ => (1_000_000_000, "s"),
        };
        let (whole, rest) = (self.0 / unit_nanos, self.0 % unit_nanos);
        if rest == 0 {
            return write!(f, "{whole}{name}");
        }
        let width = unit_nanos.ilog10() as usize;
        let digits = format!("{rest:0width$}");
        write!(f, "{whole}.{}{name}", digits.trim_end_matches('0'))
    }
}

impl fmt::Debug for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Prints seconds since the start with nine digits after the point, as `tcpdump -ttttt --nano` does.
impl fmt::Display for Instant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:09}", self.0 / 1_000_000_000, self.0 % 1_000_000_000)
    }
}

impl fmt::Debug for Instant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Reads a span with its unit: `25 ms`, `1.5s`, `2 min`. A bare number is refused, zero excepted.
impl FromStr for Duration {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        const ACCEPTED: &str = "ns, us, ms, s, min, h";
        let (number, unit) = split_number(text, ACCEPTED)?;
        let nanos = match unit {
            "ns" | "nsec" => 1.0,
            "us" | "usec" | "µs" => 1e3,
            "ms" | "msec" => 1e6,
            "s" | "sec" => 1e9,
            "min" => 60e9,
            "h" => 3_600e9,
            "" if number == 0.0 => 1.0,
            _ => return Err(UnitError::unit(text, ACCEPTED)),
        };
        let nanos = number * nanos;
        if nanos >= u64::MAX as f64 {
            return Err(UnitError::OutOfRange { text: text.into() });
        }
        Ok(Self(nanos.round() as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shifting_saturates_instead_of_wrapping() {
        assert_eq!(Duration::from_secs(1).saturating_shl(3), Duration::from_secs(8));
        assert_eq!(Duration::from_secs(1).saturating_shl(63), Duration::MAX);
        assert_eq!(Duration::from_nanos(1).saturating_shl(63), Duration::from_nanos(1 << 63));
        assert_eq!(Duration::from_nanos(2).saturating_shl(63), Duration::MAX);
        assert_eq!(Duration::ZERO.saturating_shl(200), Duration::ZERO);
    }

    #[test]
    fn rounding_up_goes_to_the_next_tick_and_no_further() {
        let tick = Duration::from_millis(500);
        assert_eq!(Duration::from_millis(1).round_up_to(tick), tick);
        assert_eq!(tick.round_up_to(tick), tick);
        assert_eq!(Duration::from_millis(501).round_up_to(tick), Duration::from_secs(1));
        assert_eq!(Duration::from_millis(501).round_up_to(Duration::ZERO), Duration::from_millis(501));
    }

    #[test]
    fn durations_are_parsed_as_printed() {
        for (text, nanos) in
            [("25ms", 25_000_000), ("1.5s", 1_500_000_000), ("300ns", 300), ("1.000000001s", 1_000_000_001), ("0s", 0)]
        {
            let span: Duration = text.parse().unwrap();
            assert_eq!(span.as_nanos(), nanos, "{text}");
            assert_eq!(span.to_string(), text);
        }
        assert_eq!("2 min".parse(), Ok(Duration::from_secs(120)));
        assert_eq!("0".parse(), Ok(Duration::ZERO));
    }

    #[test]
    fn a_duration_without_a_unit_or_with_a_bad_one_is_refused() {
        for text in ["25", "25 fortnights", "", "ms", "-1 s", "NaN s", "inf s", "1e400 s", "99999999999 h"] {
            assert!(text.parse::<Duration>().is_err(), "{text}");
        }
    }
}
