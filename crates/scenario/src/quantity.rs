//! Quantities in scenario files: texts with a number and a unit.

use core::fmt;
use core::marker::PhantomData;
use core::str::FromStr;
use std::borrow::Cow;

use holdover_base::{BitRate, ByteCount, Duration};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, Deserialize, Deserializer, Unexpected, Visitor};
use serde::{Serialize, Serializer};

/// A quantity written as a text.
pub(crate) trait Quantity: Sized {
    /// The name in the schema.
    const NAME: &'static str;
    /// The accepted form, as the continuation of "expected".
    const EXPECTED: &'static str;
    /// The pattern of the text, for the schema.
    const PATTERN: &'static str;

    fn read(text: &str) -> Option<Self>;
    fn write(&self) -> String;
}

/// The pattern of a number with an optional space.
const NUMBER: &str = "[0-9][0-9_]*(\\.[0-9]+)? ?";

macro_rules! quantity {
    ($($name:ident),*) => {$(
        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                deserializer.deserialize_str(QuantityVisitor(PhantomData))
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(&self.write())
            }
        }

        impl JsonSchema for $name {
            fn schema_name() -> Cow<'static, str> {
                <Self as Quantity>::NAME.into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                let pattern = <Self as Quantity>::PATTERN.replace('#', NUMBER);
                json_schema!({ "description": capital(<Self as Quantity>::EXPECTED), "type": "string", "pattern": pattern })
            }
        }
    )*};
}

quantity!(Time, DataRate, Bytes, Percent, QueueSize, Volume, Segments, Window, Retries, Distance, Speed);

struct QuantityVisitor<T>(PhantomData<T>);

impl<T: Quantity> Visitor<'_> for QuantityVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(T::EXPECTED)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
        T::read(text).ok_or_else(|| E::invalid_value(Unexpected::Str(text), &self))
    }
}

/// The text with a capital letter and a full stop, for a schema's description.
pub(crate) fn capital(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().map(|c| c.to_uppercase().to_string()).unwrap_or_default();
    format!("{first}{}.", letters.as_str())
}

/// A span of time.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Time(pub(crate) Duration);

impl Quantity for Time {
    const NAME: &'static str = "Time";
    const EXPECTED: &'static str = "a time with its unit, such as \"25 ms\" (ns, us, ms, s, min, h)";
    const PATTERN: &'static str = "^(#(ns|nsec|us|usec|µs|ms|msec|s|sec|min|h)|0)$";

    fn read(text: &str) -> Option<Self> {
        text.parse().ok().filter(|&time| time < LONGEST).map(Self)
    }

    fn write(&self) -> String {
        write_time(self.0)
    }
}

/// A century: sums of a few such times stay far below the range of an instant.
const LONGEST: Duration = Duration::from_secs(100 * 366 * 86_400);

fn write_time(time: Duration) -> String {
    let text = time.to_string();
    let unit = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    format!("{} {}", &text[..unit], &text[unit..])
}

/// A bit rate above zero.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct DataRate(pub(crate) BitRate);

impl Quantity for DataRate {
    const NAME: &'static str = "Rate";
    const EXPECTED: &'static str =
        "a rate above 0 with its unit, such as \"10 Mbit/s\" (bit/s, kbit/s, Mbit/s, Gbit/s)";
    const PATTERN: &'static str = "^#(bit/s|bit|bps|kbit/s|kbit|kbps|Mbit/s|Mbit|mbit|Mbps|Gbit/s|Gbit|gbit|Gbps)$";

    fn read(text: &str) -> Option<Self> {
        text.parse().ok().filter(|rate: &BitRate| rate.0 > 0).map(Self)
    }

    fn write(&self) -> String {
        self.0.to_string()
    }
}

/// An amount of data.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Bytes(pub(crate) ByteCount);

impl Quantity for Bytes {
    const NAME: &'static str = "Bytes";
    const EXPECTED: &'static str =
        "an amount of data with its unit, such as \"1448 bytes\" (bytes, kB, MB, GB, KiB, MiB, GiB)";
    const PATTERN: &'static str = "^#(B|byte|bytes|kB|KB|MB|GB|KiB|MiB|GiB)$";

    fn read(text: &str) -> Option<Self> {
        text.parse().ok().map(Self)
    }

    fn write(&self) -> String {
        self.0.to_string()
    }
}

/// A share in percent. It is kept as it was written, so that it can be written again.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Percent(f64);

impl Percent {
    /// From 0 to 1.
    pub(crate) fn share(self) -> f64 {
        self.0 / 100.0
    }
}

impl Quantity for Percent {
    const NAME: &'static str = "Percent";
    const EXPECTED: &'static str = "a percentage from \"0 %\" to \"100 %\", such as \"2.5 %\"";
    const PATTERN: &'static str = "^#%$";

    fn read(text: &str) -> Option<Self> {
        let number = unsigned(text.trim().strip_suffix('%')?)?;
        (number <= 100.0).then_some(Self(number))
    }

    fn write(&self) -> String {
        format!("{} %", self.0)
    }
}

/// The limit of a queue.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum QueueSize {
    Unlimited,
    Packets(u32),
    Bytes(ByteCount),
}

impl Quantity for QueueSize {
    const NAME: &'static str = "QueueLimit";
    const EXPECTED: &'static str = "a limit such as \"75 packets\" or \"64 KiB\", or \"unlimited\"";
    const PATTERN: &'static str = "^(unlimited|#(packet|packets|B|byte|bytes|kB|KB|MB|GB|KiB|MiB|GiB))$";

    fn read(text: &str) -> Option<Self> {
        if text == "unlimited" {
            return Some(Self::Unlimited);
        }
        match count_of(text, &["packets", "packet"]) {
            Some(packets) => Some(Self::Packets(packets)),
            None => text.parse().ok().map(Self::Bytes),
        }
    }

    fn write(&self) -> String {
        match self {
            Self::Unlimited => "unlimited".to_owned(),
            Self::Packets(packets) => format!("{packets} packets"),
            Self::Bytes(bytes) => bytes.to_string(),
        }
    }
}

/// The amount of a bulk transfer: bytes, or the data sent within a time.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Volume {
    Bytes(ByteCount),
    For(Duration),
}

impl Quantity for Volume {
    const NAME: &'static str = "Volume";
    const EXPECTED: &'static str = "an amount of data such as \"10 MB\", or a time such as \"30 s\", above 0";
    const PATTERN: &'static str = "^#(B|byte|bytes|kB|KB|MB|GB|KiB|MiB|GiB|ns|nsec|us|usec|µs|ms|msec|s|sec|min|h)$";

    fn read(text: &str) -> Option<Self> {
        if let Some(Bytes(bytes)) = Bytes::read(text) {
            return (bytes.0 > 0).then_some(Self::Bytes(bytes));
        }
        Time::read(text).filter(|time| !time.0.is_zero()).map(|time| Self::For(time.0))
    }

    fn write(&self) -> String {
        match self {
            Self::Bytes(bytes) => bytes.to_string(),
            Self::For(time) => write_time(*time),
        }
    }
}

/// A number of segments.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Segments(pub(crate) u32);

impl Quantity for Segments {
    const NAME: &'static str = "Segments";
    const EXPECTED: &'static str = "a number of segments of at least 1, such as \"20 segments\", or \"unlimited\"";
    const PATTERN: &'static str = "^(unlimited|#(segment|segments))$";

    fn read(text: &str) -> Option<Self> {
        if text == "unlimited" {
            return Some(Self(u32::MAX));
        }
        count_of(text, &["segments", "segment"]).filter(|&segments| segments > 0).map(Self)
    }

    fn write(&self) -> String {
        match self.0 {
            u32::MAX => "unlimited".to_owned(),
            segments => format!("{segments} segments"),
        }
    }
}

/// A congestion window at the start.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Window {
    Segments(u32),
    Rfc3390,
    Rfc6928,
}

impl Quantity for Window {
    const NAME: &'static str = "InitialWindow";
    const EXPECTED: &'static str =
        "a number of segments of at least 1, such as \"10 segments\", or \"rfc3390\" or \"rfc6928\"";
    const PATTERN: &'static str = "^(rfc3390|rfc6928|#(segment|segments))$";

    fn read(text: &str) -> Option<Self> {
        match text {
            "rfc3390" => Some(Self::Rfc3390),
            "rfc6928" => Some(Self::Rfc6928),
            // More than 65535 segments of 48 bytes exceed every window that the header can express.
            _ => count_of(text, &["segments", "segment"])
                .filter(|count| (1..=65_535).contains(count))
                .map(Self::Segments),
        }
    }

    fn write(&self) -> String {
        match self {
            Self::Rfc3390 => "rfc3390".to_owned(),
            Self::Rfc6928 => "rfc6928".to_owned(),
            Self::Segments(segments) => format!("{segments} segments"),
        }
    }
}

/// When to give up retransmitting.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Retries {
    Count(u32),
    LinuxTime(u32),
    Never,
}

impl Quantity for Retries {
    const NAME: &'static str = "Retries";
    const EXPECTED: &'static str = "\"15 retries\", \"time of 15 retries\" (the time that so many take from an RTO of 200 ms on, as Linux counts), or \"never\"";
    const PATTERN: &'static str = "^(never|(time of )?#(retry|retries))$";

    fn read(text: &str) -> Option<Self> {
        if text == "never" {
            return Some(Self::Never);
        }
        match text.strip_prefix("time of ") {
            Some(text) => count_of(text, &["retries", "retry"]).filter(|&count| count <= 255).map(Self::LinuxTime),
            None => count_of(text, &["retries", "retry"]).filter(|&count| count <= 255).map(Self::Count),
        }
    }

    fn write(&self) -> String {
        match self {
            Self::Never => "never".to_owned(),
            Self::Count(count) => format!("{count} retries"),
            Self::LinuxTime(count) => format!("time of {count} retries"),
        }
    }
}

/// A distance in metres, or a place on an axis.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Distance(pub(crate) f64);

/// Positions lose centimetres beyond this.
const FARTHEST_M: f64 = 1e9;

impl Quantity for Distance {
    const NAME: &'static str = "Distance";
    const EXPECTED: &'static str = "a distance with its unit, such as \"50 m\" (m, km)";
    const PATTERN: &'static str = "^-?#(m|km)$";

    fn read(text: &str) -> Option<Self> {
        let (sign, text) = text.trim().strip_prefix('-').map_or((1.0, text), |rest| (-1.0, rest));
        let (number, unit) = split_unit(text)?;
        let metres = match unit {
            "m" => number,
            "km" => number * 1e3,
            _ => return None,
        };
        (metres < FARTHEST_M).then_some(Self(sign * metres))
    }

    fn write(&self) -> String {
        format!("{} m", self.0)
    }
}

/// A speed in metres a second, above zero.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Speed(pub(crate) f64);

impl Quantity for Speed {
    const NAME: &'static str = "Speed";
    const EXPECTED: &'static str = "a speed above 0 with its unit, such as \"1.4 m/s\" (m/s, km/h)";
    const PATTERN: &'static str = "^#(m/s|km/h)$";

    fn read(text: &str) -> Option<Self> {
        let (number, unit) = split_unit(text)?;
        let metres_per_second = match unit {
            "m/s" => number,
            "km/h" => number / 3.6,
            _ => return None,
        };
        (1e-6..FARTHEST_M).contains(&metres_per_second).then_some(Self(metres_per_second))
    }

    fn write(&self) -> String {
        format!("{} m/s", self.0)
    }
}

/// Parses a count: `"75 packets"` as 75.
fn count_of(text: &str, units: &[&str]) -> Option<u32> {
    let number = units.iter().find_map(|unit| text.trim().strip_suffix(unit))?;
    number.trim().replace('_', "").parse().ok()
}

/// Parses a nonnegative number without exponent or sign.
fn unsigned(text: &str) -> Option<f64> {
    let text = text.trim();
    let plain =
        text.starts_with(|c: char| c.is_ascii_digit()) && text.chars().all(|c| c.is_ascii_digit() || "._".contains(c));
    if plain { f64::from_str(&text.replace('_', "")).ok() } else { None }
}

/// The size of a quantity of any kind in its base unit (seconds, bit/s, bytes, metres, packets, a share from 0 to 1).
pub(crate) fn magnitude(text: &str) -> Option<f64> {
    if let Some(time) = Time::read(text) {
        return Some(time.0.as_secs_f64());
    }
    if let Some(rate) = DataRate::read(text) {
        return Some(rate.0.0 as f64);
    }
    if let Some(bytes) = Bytes::read(text) {
        return Some(bytes.0.0 as f64);
    }
    if let Some(percent) = Percent::read(text) {
        return Some(percent.share());
    }
    if let Some(distance) = Distance::read(text) {
        return Some(distance.0);
    }
    if let Some(speed) = Speed::read(text) {
        return Some(speed.0);
    }
    count_of(text, &["packets", "packet", "segments", "segment", "retries", "retry"]).map(f64::from)
}

/// `"25 ms"` as 25 and `"ms"`.
pub(crate) fn split_unit(text: &str) -> Option<(f64, &str)> {
    let text = text.trim();
    let end = text.find(|c: char| !(c.is_ascii_digit() || c == '.' || c == '_')).unwrap_or(text.len());
    Some((unsigned(&text[..end])?, text[end..].trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round_trip<T: Quantity + PartialEq + fmt::Debug>(texts: &[&str]) {
        for text in texts {
            let value = T::read(text).unwrap_or_else(|| panic!("{text}"));
            assert_eq!(value.write(), *text);
        }
    }

    fn refuse<T: Quantity>(texts: &[&str]) {
        for text in texts {
            assert!(T::read(text).is_none(), "{text}");
        }
    }

    #[test]
    fn written_quantities_are_read_back() {
        round_trip::<Time>(&["25 ms", "1.5 s", "0 s", "300 ns"]);
        round_trip::<DataRate>(&["10 Mbit/s", "38400 bit/s", "2 Gbit/s"]);
        round_trip::<Bytes>(&["1448 bytes", "64 KiB", "0 bytes"]);
        round_trip::<Percent>(&["2 %", "0.1 %", "100 %", "0 %"]);
        round_trip::<QueueSize>(&["75 packets", "64 KiB", "unlimited", "0 packets"]);
        round_trip::<Volume>(&["10 MiB", "30 s"]);
        round_trip::<Segments>(&["20 segments", "unlimited"]);
        round_trip::<Window>(&["10 segments", "rfc3390", "rfc6928"]);
        round_trip::<Distance>(&["50 m", "-1.5 m", "0 m"]);
        round_trip::<Speed>(&["1.4 m/s"]);
        assert_eq!(Speed::read("36 km/h"), Some(Speed(10.0)));
        assert_eq!(Distance::read("1.5 km"), Some(Distance(1500.0)));
        round_trip::<Retries>(&["15 retries", "time of 15 retries", "never"]);
    }

    #[test]
    fn invalid_quantities_are_refused() {
        refuse::<Time>(&["25", "-1 s", "25 packets", "", "101 years", "999999999999 h"]);
        refuse::<DataRate>(&["10", "0 Mbit/s", "-5 Mbit/s", "5 Mb", "10 MB"]);
        refuse::<Bytes>(&["10", "10 Mbit", "-1 B"]);
        refuse::<Percent>(&["2", "101 %", "-1 %", "NaN %", "inf %", "1e1 %", "%", ". %"]);
        refuse::<QueueSize>(&["75", "-1 packets", "1.5 packets", "many", "5000000000 packets"]);
        refuse::<Volume>(&["0 bytes", "0 s", "10", "10 packets"]);
        refuse::<Segments>(&["0 segments", "20"]);
        refuse::<Window>(&["0 segments", "rfc1", "65536 segments"]);
        refuse::<Distance>(&["50", "50 miles", "--1 m", "m", "1e3 m", "9999999 km"]);
        refuse::<Speed>(&["1", "0 m/s", "-1 m/s", "1 mph"]);
        refuse::<Retries>(&["15", "time of never", "256 retries"]);
    }

    #[test]
    fn the_magnitude_is_in_the_base_unit() {
        for (text, magnitude) in [
            ("25 ms", Some(0.025)),
            ("2 Mbit/s", Some(2e6)),
            ("64 KiB", Some(65_536.0)),
            ("2 %", Some(0.02)),
            ("75 packets", Some(75.0)),
            ("cubic", None),
        ] {
            assert_eq!(super::magnitude(text), magnitude, "{text}");
        }
    }
}
