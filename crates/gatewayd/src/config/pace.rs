//! Rates in configuration files.

use std::borrow::Cow;

use holdover_base::BitRate;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, Deserializer};
use serde::{Deserialize, Serialize, Serializer};

/// A rate in text, such as `"100 Mbit/s"`; `None` is `"unlimited"`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pace(pub Option<BitRate>);

const EXPECTED_PACE: &str = "a rate such as \"100 Mbit/s\", or \"unlimited\"";

impl Serialize for Pace {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Some(rate) => serializer.collect_str(&rate),
            None => serializer.serialize_str("unlimited"),
        }
    }
}

impl<'de> Deserialize<'de> for Pace {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Cow::<'de, str>::deserialize(deserializer)?;
        let rate = text.parse::<BitRate>().ok().filter(|rate| rate.0 > 0);
        match (&*text, rate) {
            ("unlimited", _) => Ok(Self(None)),
            (_, Some(rate)) => Ok(Self(Some(rate))),
            _ => Err(de::Error::custom(format!("\"{text}\" is not {EXPECTED_PACE}"))),
        }
    }
}

impl JsonSchema for Pace {
    fn schema_name() -> Cow<'static, str> {
        "Pace".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "description": EXPECTED_PACE })
    }
}
