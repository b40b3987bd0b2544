//! `[output]`.

use schemars::JsonSchema;
use serde::de::value::SeqAccessDeserializer;
use serde::{Deserialize, Deserializer, Serialize, de};

use crate::output::{CaptureFormat, Plot};
use crate::quantity::{Bytes, Time};
use crate::word::{OrNone, Word};

/// The recorded data and the plots.
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Output {
    /// The captured interfaces: "all", "none", or those of a list of hosts and routers. The default is "all".
    pub(crate) captures: Option<Captured>,
    /// The format of captures. The default is "pcapng".
    pub(crate) capture_format: Option<Word<CaptureFormat>>,
    /// How much of each packet is captured, or "none" for all of it. The default is "none".
    pub(crate) snap_length: Option<OrNone<Bytes>>,
    /// The sampling interval of each connection's state, or "none". The default is 100 ms.
    pub(crate) sample_every: Option<OrNone<Time>>,
    /// Whether events are written as JSON lines. The default is true.
    pub(crate) events: Option<bool>,
    /// The plots. The default is all of them.
    pub(crate) plots: Option<Vec<Word<Plot>>>,
}

/// The captured interfaces.
#[derive(Clone, PartialEq, Debug, Serialize, JsonSchema)]
#[serde(untagged)]
pub(crate) enum Captured {
    /// All or none.
    AllOrNone(Word<AllOrNone>),
    /// The interfaces of these hosts and routers.
    Nodes(Vec<String>),
}

/// All or none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum AllOrNone {
    All,
    None,
}

crate::word::vocabulary!(AllOrNone as "AllOrNone" { Self::All => "all", Self::None => "none" });

struct CapturedVisitor;

impl<'de> de::Visitor<'de> for CapturedVisitor {
    type Value = Captured;

    fn expecting(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("\"all\", \"none\", or a list of hosts and routers")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Captured, E> {
        match Word::read::<E>(text) {
            Ok(word) => Ok(Captured::AllOrNone(word)),
            Err(_) => Err(E::invalid_value(de::Unexpected::Str(text), &self)),
        }
    }

    fn visit_seq<A: de::SeqAccess<'de>>(self, list: A) -> Result<Captured, A::Error> {
        Vec::deserialize(SeqAccessDeserializer::new(list)).map(Captured::Nodes)
    }
}

impl<'de> Deserialize<'de> for Captured {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(CapturedVisitor)
    }
}
