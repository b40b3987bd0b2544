//! Units of numbers, and their format on an axis.

use crate::quantity;

/// The unit of values, given in base units; axes choose the prefix.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unit {
    /// s; written as µs, ms or s.
    Seconds,
    /// bit/s, in thousands: kbit/s, Mbit/s, Gbit/s.
    BitsPerSecond,
    /// Bytes, in thousands: kB, MB, GB.
    Bytes,
    /// A share, 1 being the whole; written in %.
    Ratio,
    /// A plain number; the label names the thing counted.
    Count,
    /// TCP segments.
    Segments,
    /// Packets.
    Packets,
}

impl Unit {
    /// The divisor and the unit for values up to `most`; the unit is empty for plain numbers.
    pub(crate) fn scaled(self, most: f64) -> (f64, &'static str) {
        let thousands = |names: [&'static str; 4]| {
            let step = [2e3, 2e6, 2e9].into_iter().filter(|limit| most >= *limit).count();
            ([1.0, 1e3, 1e6, 1e9][step], names[step])
        };
        match self {
            Self::Seconds if most < 1e-3 => (1e-6, "µs"),
            Self::Seconds if most < 1.0 => (1e-3, "ms"),
            Self::Seconds => (1.0, "s"),
            Self::Bytes => thousands(["bytes", "kB", "MB", "GB"]),
            Self::BitsPerSecond => thousands(["bit/s", "kbit/s", "Mbit/s", "Gbit/s"]),
            Self::Ratio => (1e-2, "%"),
            Self::Count => (1.0, ""),
            Self::Segments => (1.0, "segments"),
            Self::Packets => (1.0, "packets"),
        }
    }

    /// One value with its unit, three significant digits: `250 ms`, `1.5 Mbit/s`, `71.2 %`.
    pub(crate) fn value(self, value: f64) -> String {
        let size = value.abs();
        let sign = if value < 0.0 { "-" } else { "" };
        let text = match self {
            _ if size != 0.0 && !(1e-8..1e13).contains(&size) => {
                let (_, unit) = self.scaled(1.0);
                match (self, size * 100.0) {
                    (Self::Ratio, percent) if percent.is_finite() => format!("{} {unit}", plain(percent)),
                    // A share whose percentage is not a number.
                    (Self::Ratio, _) => plain(size),
                    _ => format!("{} {unit}", plain(size)),
                }
            }
            // On an axis, 1000 s are not 16 min 40 s.
            Self::Seconds if size >= 1.0 => format!("{} s", plain(size)),
            Self::Seconds => quantity::seconds(size),
            Self::Bytes => quantity::bytes(size),
            Self::BitsPerSecond => quantity::bit_rate(size),
            Self::Ratio => quantity::percent(size),
            Self::Count => plain(size),
            Self::Segments => format!("{} segments", plain(size)),
            Self::Packets => format!("{} packets", plain(size)),
        };
        format!("{sign}{}", text.trim_end())
    }
}

/// A number without a unit: three significant digits, with a power of ten instead of many zeros.
pub(crate) fn plain(value: f64) -> String {
    let size = value.abs();
    if size == 0.0 || (1e-4..1e7).contains(&size) { quantity::significant(value) } else { scientific(value, 2) }
}

/// `value` with `decimals` decimals, or in shorter form if that is unreadably long.
pub(crate) fn fixed(value: f64, decimals: usize) -> String {
    if value.abs() >= 1e7 || decimals > 6 {
        return if value == 0.0 { "0".to_owned() } else { scientific(value, 6) };
    }
    let text = format!("{value:.decimals$}");
    // Rounded-off zeros lose their minus sign.
    text.strip_prefix('-').filter(|rest| rest.bytes().all(|digit| b"0.".contains(&digit))).unwrap_or(&text).to_owned()
}

fn scientific(value: f64, decimals: usize) -> String {
    let text = format!("{value:.decimals$e}");
    match text.split_once('e') {
        Some((digits, power)) if digits.contains('.') => {
            format!("{}e{power}", digits.trim_end_matches('0').trim_end_matches('.'))
        }
        _ => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_have_units_that_fit() {
        for (unit, value, text) in [
            (Unit::Seconds, 0.25, "250 ms"),
            (Unit::Seconds, 1000.0, "1000 s"),
            (Unit::Seconds, -2.0, "-2 s"),
            (Unit::BitsPerSecond, 1.5e6, "1.5 Mbit/s"),
            (Unit::Bytes, 1e6, "1 MB"),
            (Unit::Ratio, 0.712, "71.2 %"),
            (Unit::Count, 12.0, "12"),
            (Unit::Count, 1e99, "1e99"),
            (Unit::Seconds, 1e-30, "1e-30 s"),
            (Unit::Ratio, 1e20, "1e22 %"),
            (Unit::Ratio, 1e308, "1e308"),
        ] {
            assert_eq!(unit.value(value), text);
        }
        assert_eq!(Unit::Bytes.scaled(25e6), (1e6, "MB"));
        assert_eq!(Unit::Seconds.scaled(0.5), (1e-3, "ms"));
        assert_eq!(Unit::Ratio.scaled(1.0), (1e-2, "%"));
    }

    #[test]
    fn numbers_stay_short() {
        assert_eq!((fixed(-0.0, 1), fixed(-0.04, 1), fixed(2.5, 1)), ("0.0".into(), "0.0".into(), "2.5".into()));
        assert_eq!((fixed(2e91, 0), plain(1.5e-9)), ("2e91".into(), "1.5e-9".into()));
    }
}
