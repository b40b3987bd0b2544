//! Amounts of data and bit rates, in netem's notation.

use core::fmt;
use core::ops::{Add, AddAssign, Sub};
use core::str::FromStr;

use crate::time::Duration;
use crate::unit_error::{UnitError, split_number};

/// An amount of data in bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct ByteCount(pub u64);

impl ByteCount {
    /// No data.
    pub const ZERO: Self = Self(0);

    /// The amount in bits.
    pub const fn bits(self) -> u64 {
        self.0.saturating_mul(8)
    }
}

impl Add for ByteCount {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl AddAssign for ByteCount {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl Sub for ByteCount {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl fmt::Display for ByteCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (unit, name) in [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")] {
            if self.0 >= unit && self.0.is_multiple_of(unit) {
                return write!(f, "{} {name}", self.0 / unit);
            }
        }
        write!(f, "{} bytes", self.0)
    }
}

impl FromStr for ByteCount {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        const ACCEPTED: &str = "bytes (or B), kB, MB, GB, KiB, MiB, GiB";
        let (number, unit) = split_number(text, ACCEPTED)?;
        let factor = match unit {
            "B" | "byte" | "bytes" => 1.0,
            "kB" | "KB" => 1e3,
            "MB" => 1e6,
            "GB" => 1e9,
            "KiB" => 1024.0,
            "MiB" => 1024.0 * 1024.0,
            "GiB" => 1024.0 * 1024.0 * 1024.0,
            _ => return Err(UnitError::unit(text, ACCEPTED)),
        };
        to_u64(number * factor, text).map(Self)
    }
}

/// A bit rate in bits per second.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct BitRate(pub u64);

impl BitRate {
    /// The rate in whole kilobits (1000 bits) per second.
    pub const fn from_kbps(kbps: u64) -> Self {
        Self(kbps.saturating_mul(1_000))
    }

    /// The rate in whole megabits (1,000,000 bits) per second.
    pub const fn from_mbps(mbps: u64) -> Self {
        Self(mbps.saturating_mul(1_000_000))
    }

    /// The serialization time of `amount` at this rate, rounded up to a nanosecond. At a rate of zero:
    /// [`Duration::MAX`].
    pub fn transmission_time(self, amount: ByteCount) -> Duration {
        if self.0 == 0 {
            return Duration::MAX;
        }
        let nanos = (u128::from(amount.0) * 8 * 1_000_000_000).div_ceil(u128::from(self.0));
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// How many whole bytes this rate carries in `span`.
    pub fn bytes_in(self, span: Duration) -> ByteCount {
        let bytes = u128::from(self.0) * u128::from(span.as_nanos()) / 8_000_000_000;
        ByteCount(u64::try_from(bytes).unwrap_or(u64::MAX))
    }
}

impl fmt::Display for BitRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (unit, name) in [(1_000_000_000, "Gbit/s"), (1_000_000, "Mbit/s"), (1_000, "kbit/s")] {
            if self.0 >= unit && self.0.is_multiple_of(unit) {
                return write!(f, "{} {name}", self.0 / unit);
            }
        }
        write!(f, "{} bit/s", self.0)
    }
}

impl FromStr for BitRate {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        const ACCEPTED: &str = "bit/s, kbit/s, Mbit/s, Gbit/s";
        let (number, unit) = split_number(text, ACCEPTED)?;
        let factor = match unit {
            "bit/s" | "bit" | "bps" => 1.0,
            "kbit/s" | "kbit" | "kbps" => 1e3,
            "Mbit/s" | "Mbit" | "mbit" | "Mbps" => 1e6,
            "Gbit/s" | "Gbit" | "gbit" | "Gbps" => 1e9,
            _ => return Err(UnitError::unit(text, ACCEPTED)),
        };
        to_u64(number * factor, text).map(Self)
    }
}

fn to_u64(number: f64, text: &str) -> Result<u64, UnitError> {
    if number >= u64::MAX as f64 { Err(UnitError::OutOfRange { text: text.into() }) } else { Ok(number.round() as u64) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_takes_its_bits_over_the_rate() {
        assert_eq!(BitRate::from_mbps(10).transmission_time(ByteCount(1500)), Duration::from_micros(1200));
        assert_eq!(BitRate(3).transmission_time(ByteCount(1)), Duration::from_nanos(2_666_666_667));
        assert_eq!(BitRate(0).transmission_time(ByteCount(1)), Duration::MAX);
        assert_eq!(BitRate::from_mbps(10).bytes_in(Duration::from_micros(1200)), ByteCount(1500));
    }

    #[test]
    fn units_are_parsed_as_printed() {
        for text in ["10 Mbit/s", "38400 bit/s", "1 Gbit/s", "500 kbit/s"] {
            assert_eq!(text.parse::<BitRate>().unwrap().to_string(), text);
        }
        for text in ["64 KiB", "1500 bytes", "2 MiB"] {
            assert_eq!(text.parse::<ByteCount>().unwrap().to_string(), text);
        }
        assert_eq!("38.4 kbit/s".parse(), Ok(BitRate(38_400)));
        assert_eq!("25 MB".parse(), Ok(ByteCount(25_000_000)));
    }

    #[test]
    fn a_missing_unit_is_refused_with_the_accepted_ones() {
        let error = "10".parse::<BitRate>().unwrap_err().to_string();
        assert!(error.contains("Mbit/s"), "{error}");
        assert!("-5 Mbit/s".parse::<BitRate>().is_err());
        assert!("5 MiBB".parse::<ByteCount>().is_err());
        assert!("99999999999999999999 GB".parse::<ByteCount>().is_err());
    }
}
