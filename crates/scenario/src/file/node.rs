//! `[[host]]` and `[[router]]`.

use holdover_sim::Addresses;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::file::{Length, Mechanisms, Route, RouterMechanisms, Stack};
use crate::quantity::{Bytes, Time};
use crate::word::{Short, Word, vocabulary};

/// A host: it has an address, a TCP stack and applications, and forwards nothing.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Host {
    /// Its name: letters, digits, "-", "_" and ".".
    pub(crate) name: String,
    /// Its TCP: a profile, or a table of changes to one. The default is the scenario's.
    pub(crate) stack: Option<Short<Stack>>,
    /// What it does for its connections when its links come and go. The default is nothing.
    pub(crate) mechanisms: Option<Mechanisms>,
    /// How long before an outage of the link that it uses it is warned of it. The default is that it is not. (How a mobile
    /// host foresees that it leaves its cell is its "prediction".)
    pub(crate) foresight: Option<Time>,
    /// What it has addresses for: "one" for all its links, so that packets find it wherever it is, or one "per-link", so that
    /// a connection is bound to a link. The default is "one".
    pub(crate) addresses: Option<Word<Addresses>>,
    /// Its identity, to which connections with other hosts that have one are bound, instead of to an address (HIP). The
    /// default is none.
    pub(crate) identity: Option<IdentityTable>,
}

vocabulary!(Addresses as "Addresses" { Self::One => "one", Self::PerLink => "per-link" });

/// Host identity (RFC 7401) with readdressing (RFC 8046): when a host gets another address, it tells its peers, and data goes
/// there once it has answered from there.
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Identity")]
pub(crate) struct IdentityTable {
    /// From a new attachment to the first UPDATE: a time, or a distribution. The default is no time.
    pub(crate) delay: Option<Length>,
    /// What each packet of data gets on the wire, for what protects it. The default is 44 bytes: ESP in BEET mode.
    pub(crate) overhead: Option<Bytes>,
    /// How long an UPDATE waits for an answer before it is sent again; doubled each time. The default is 1 s.
    pub(crate) retransmit_after: Option<Time>,
    /// How often it is sent again. The default is 5.
    pub(crate) retries: Option<u32>,
}

/// A router, which forwards packets: a gateway or a base station, maybe.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Router {
    /// Its name: letters, digits, "-", "_" and ".".
    pub(crate) name: String,
    /// What it does for the connections of mobile hosts. The default is nothing.
    pub(crate) mechanisms: Option<RouterMechanisms>,
    /// Its routes, which go before the way with the fewest hops. The default is none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) routes: Vec<Route>,
    /// The time that its processor takes for packets. The default is none.
    pub(crate) cpu: Option<Cpu>,
}

/// The processor of a router: it takes one packet after the other.
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Cpu {
    /// What each packet takes. The default is 0 s.
    pub(crate) per_packet: Option<Time>,
    /// What each byte of it takes besides. The default is 0 s.
    pub(crate) per_byte: Option<Time>,
    /// What each packet takes besides that the router's mechanisms handle. The default is 0 s.
    pub(crate) per_operation: Option<Time>,
    /// What each byte of such a packet takes besides. The default is 0 s.
    pub(crate) per_operation_byte: Option<Time>,
    /// What each byte of data takes that the router's mechanisms compress. The default is 0 s.
    pub(crate) per_compressed_byte: Option<Time>,
    /// How many packets wait or are served at most; others are dropped. The default is 1000.
    pub(crate) backlog: Option<u32>,
}
