//! Times in configuration files.

use core::fmt;
use core::str::FromStr;
use std::borrow::Cow;

use holdover_base::Duration;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, Deserialize, Deserializer, Unexpected};
use serde::{Serialize, Serializer};

/// A time span with its unit: `"300ms"`, `"2 s"`. Less than a century, so that sums of a few do not overflow.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Time(pub Duration);

const EXPECTED_TIME: &str = "a time with its unit, such as \"300 ms\" (ns, us, ms, s, min, h)";

/// See [`Time`].
const LONGEST: Duration = Duration::from_secs(100 * 366 * 86_400);

impl FromStr for Time {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse().ok().filter(|&time: &Duration| time < LONGEST).map(Self).ok_or(EXPECTED_TIME)
    }
}

/// Reads a [`Time`] from `MIN_MS` to `MAX_MS` milliseconds, inclusive: `#[serde(deserialize_with = "between::<..>")]`.
///
/// # Errors
/// It is not a time, or out of these bounds.
pub fn between<'de, const MIN_MS: u64, const MAX_MS: u64, D>(deserializer: D) -> Result<Time, D::Error>
where
    D: Deserializer<'de>,
{
    let text = Cow::<'de, str>::deserialize(deserializer)?;
    let bounds = Bounds { min: Duration::from_millis(MIN_MS), max: Duration::from_millis(MAX_MS) };
    let time = text.parse().ok().filter(|Time(time)| bounds.min <= *time && *time <= bounds.max);
    time.ok_or_else(|| de::Error::invalid_value(Unexpected::Str(&text), &bounds))
}

/// The same for an optional field.
///
/// # Errors
/// As [`between`].
pub fn if_between<'de, const MIN_MS: u64, const MAX_MS: u64, D>(deserializer: D) -> Result<Option<Time>, D::Error>
where
    D: Deserializer<'de>,
{
    between::<MIN_MS, MAX_MS, D>(deserializer).map(Some)
}

/// The bounds of a time.
struct Bounds {
    min: Duration,
    max: Duration,
}

impl de::Expected for Bounds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a time from {} to {}, with its unit (ns, us, ms, s, min, h)", self.min, self.max)
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(|_| de::Error::invalid_value(Unexpected::Str(&text), &EXPECTED_TIME))
    }
}

impl Serialize for Time {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl JsonSchema for Time {
    fn schema_name() -> Cow<'static, str> {
        "Time".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let pattern = "^([0-9][0-9_]*(\\.[0-9]+)? ?(ns|nsec|us|usec|µs|ms|msec|s|sec|min|h)|0)$";
        json_schema!({ "description": EXPECTED_TIME, "type": "string", "pattern": pattern })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn printed_times_are_read_back() {
        let time: Time = "1.5 s".parse().unwrap();
        assert_eq!(time, Time(Duration::from_millis(1500)));
        assert_eq!(time.to_string().parse(), Ok(time));
        for text in ["300", "", "-1 s", "1000000 h"] {
            assert!(text.parse::<Time>().is_err(), "{text}");
        }
    }
}
