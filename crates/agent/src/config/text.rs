//! Times, levels of signals and names of interfaces as configuration files write them.

use core::fmt;
use core::str::FromStr;
use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, Deserialize, Deserializer, Unexpected};
use serde::{Serialize, Serializer};

use crate::policy::pattern;

/// An interface's name, or a pattern with `*` (any letters) and `?` (one letter).
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct NamePattern(String);

const EXPECTED_PATTERN: &str = "the name of an interface, in which * and ? may stand for letters, such as \"wlan*\"";

/// `IFNAMSIZ` without its terminating zero; a pattern may be a little longer than what it matches.
const LONGEST_PATTERN: usize = 32;

impl NamePattern {
    /// Whether an interface of that name is meant.
    pub fn matches(&self, name: &str) -> bool {
        pattern::fits(&self.0, name)
    }
}

impl FromStr for NamePattern {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let is_name = |letter: char| !letter.is_whitespace() && !letter.is_control() && letter != '/';
        let is_fine = !text.is_empty() && text.len() <= LONGEST_PATTERN && text.chars().all(is_name);
        is_fine.then(|| Self(text.to_owned())).ok_or(EXPECTED_PATTERN)
    }
}

impl fmt::Display for NamePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The strength of a received signal in dBm, from -120 to 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Dbm(pub i8);

const EXPECTED_DBM: &str = "a signal strength from \"-120 dBm\" to \"0 dBm\", such as \"-78 dBm\"";

impl FromStr for Dbm {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let number = text.trim().strip_suffix("dBm").and_then(|number| number.trim().parse().ok());
        number.filter(|dbm| (-120..=0).contains(dbm)).map(Self).ok_or(EXPECTED_DBM)
    }
}

impl fmt::Display for Dbm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} dBm", self.0)
    }
}

macro_rules! written_as_text {
    ($($name:ident: $expected:ident, $pattern:literal;)*) => {$(
        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = Cow::<'de, str>::deserialize(deserializer)?;
                text.parse().map_err(|_| de::Error::invalid_value(Unexpected::Str(&text), &$expected))
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl JsonSchema for $name {
            fn schema_name() -> Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!({ "description": $expected, "type": "string", "pattern": $pattern })
            }
        }
    )*};
}

written_as_text! {
    NamePattern: EXPECTED_PATTERN, "^[^\\s/]{1,32}$";
    Dbm: EXPECTED_DBM, "^(0|-[0-9]{1,3}) ?dBm$";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_printed_is_read_again() {
        let level: Dbm = "-78 dBm".parse().unwrap();
        assert_eq!((level, level.to_string().as_str()), (Dbm(-78), "-78 dBm"));
        for text in ["-78", "5 dBm", "-121 dBm", "dBm"] {
            assert!(text.parse::<Dbm>().is_err(), "{text}");
        }
    }

    #[test]
    fn patterns_match_names() {
        for (pattern, name, is_meant) in [
            ("wlan0", "wlan0", true),
            ("wlan0", "wlan01", false),
            ("wlan*", "wlan0", true),
            ("wlan*", "wlan", true),
            ("w*n?", "wwan0", true),
            ("*", "anything", true),
            ("?", "ab", false),
            ("*0*1", "eth0v1", true),
            ("*a*b*c*d*", "xaxbxcx", false),
        ] {
            assert_eq!(pattern.parse::<NamePattern>().unwrap().matches(name), is_meant, "{pattern} {name}");
        }
        for text in ["", "two words", "a/b", "a-name-that-is-longer-than-a-name-can-be"] {
            assert!(text.parse::<NamePattern>().is_err(), "{text}");
        }
    }
}
