//! `bit_errors` of a link or a cell.

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, de};

use crate::quantity::Time;

/// Bit errors.
#[derive(Clone, PartialEq, Debug, Serialize, JsonSchema)]
#[serde(untagged)]
pub(crate) enum BitErrors {
    /// The bit error rate: each bit is damaged with this probability, independently of the others.
    Independent(#[schemars(range(min = 0.0, max = 1.0))] f64),
    /// In bursts.
    Bursts(BitErrorBursts),
}

/// Bit errors in bursts: a Gilbert-Elliott channel, whose two states last for exponentially distributed times or numbers of bits.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct BitErrorBursts {
    /// The bit error rate in the bad state.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub(crate) bad: f64,
    /// The bit error rate in the good state, which is the initial state of the channel. The default is 0.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub(crate) good: Option<f64>,
    /// The mean duration of the good state.
    pub(crate) good_for: Option<Time>,
    /// The mean duration of the bad state.
    pub(crate) bad_for: Option<Time>,
    /// The mean length of the good state in transmitted bits, instead of "good_for".
    pub(crate) good_bits: Option<f64>,
    /// The mean length of the bad state in transmitted bits, instead of "bad_for".
    pub(crate) bad_bits: Option<f64>,
}

struct BitErrorsVisitor;

impl<'de> de::Visitor<'de> for BitErrorsVisitor {
    type Value = BitErrors;

    fn expecting(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("a number from 0 to 1 such as 1e-6, or a table with \"bad\"")
    }

    fn visit_f64<E: de::Error>(self, rate: f64) -> Result<BitErrors, E> {
        Ok(BitErrors::Independent(rate))
    }

    fn visit_i64<E: de::Error>(self, rate: i64) -> Result<BitErrors, E> {
        Ok(BitErrors::Independent(rate as f64))
    }

    fn visit_u64<E: de::Error>(self, rate: u64) -> Result<BitErrors, E> {
        Ok(BitErrors::Independent(rate as f64))
    }

    fn visit_map<A: de::MapAccess<'de>>(self, map: A) -> Result<BitErrors, A::Error> {
        BitErrorBursts::deserialize(de::value::MapAccessDeserializer::new(map)).map(BitErrors::Bursts)
    }
}

impl<'de> Deserialize<'de> for BitErrors {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(BitErrorsVisitor)
    }
}
