//! `[[host]]` and `[[router]]`.

use holdover_sim::{Addresses, Associate, EspSuite};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::file::{Length, Mechanisms, Route, RouterMechanisms, Stack};
use crate::quantity::{Bytes, Time};
use crate::word::{Short, Word, vocabulary};

/// A host: it has an address, a TCP stack and applications, and does not forward packets.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Host {
    /// Its name: letters, digits, "-", "_" and ".".
    pub(crate) name: String,
    /// The host's TCP: a profile, or a table of changes to one. The default is the scenario's.
    pub(crate) stack: Option<Short<Stack>>,
    /// The host's actions for its connections when its links go down and come up. The default is nothing.
    pub(crate) mechanisms: Option<Mechanisms>,
    /// How long before an outage of the link in use the host is warned. The default is no warning. (For a mobile host that
    /// leaves its cell, its "prediction" gives the warning.)
    pub(crate) foresight: Option<Time>,
    /// Addresses: "one" for all its links, so that packets reach it over any of them, or one "per-link", so that a connection
    /// is bound to a link. The default is "one".
    pub(crate) addresses: Option<Word<Addresses>>,
    /// The identity to which connections with other hosts with an identity are bound, instead of to an address (HIP). The
    /// default is none.
    pub(crate) identity: Option<IdentityTable>,
    /// The time from a packet's arrival until the host's TCP handles it. The default is none. Kernels have their own.
    pub(crate) latency: Option<Latency>,
}

/// The latency of a host: interrupts, scheduling and cold caches. Packets keep their order.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Latency {
    /// The latency of each packet: a time, or a distribution.
    pub(crate) busy: Length,
    /// The latency of the first packet, and of one after a pause. The default is that of "busy".
    pub(crate) idle: Option<Length>,
    /// The time without a packet after which "idle" applies. The default is 3 ms.
    pub(crate) idle_after: Option<Time>,
}

vocabulary!(Addresses as "Addresses" { Self::One => "one", Self::PerLink => "per-link" });

/// Host identity: HIP (RFC 7401) with readdressing (RFC 8046), and ESP in BEET mode (RFC 7402). A host with a new address
/// notifies its peers, which verify it.
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Identity")]
pub(crate) struct IdentityTable {
    /// The time from a new attachment until the host notices its new address and sends its first UPDATE: a time, or a distribution. The
    /// default is no time.
    pub(crate) delay: Option<Length>,
    /// The transform of data packets. If the two hosts differ, that of the host that is called applies. The default is
    /// "aes-128-gcm".
    pub(crate) esp: Option<Word<EspSuite>>,
    /// When associations are established: "before" the run begins, or with the "first-packet" of either host to the other, which waits for
    /// the base exchange. If the two hosts differ, with the first packet. The default is "before".
    pub(crate) associate: Option<Word<Associate>>,
    /// How long the host waits for an answer before it retransmits a HIP packet; doubled each time. The default is 1 s.
    pub(crate) retransmit_after: Option<Time>,
    /// How often a HIP packet is retransmitted. The default is 5.
    pub(crate) retries: Option<u32>,
    /// Removed: "esp" decides.
    #[serde(default, skip_serializing)]
    #[schemars(skip)]
    pub(crate) overhead: Option<Bytes>,
}

vocabulary!(EspSuite as "EspSuite" {
    Self::Aes128Gcm16 => "aes-128-gcm",
    Self::Aes256CbcHmacSha256 => "aes-256-cbc",
    Self::Aes128CbcHmacSha256 => "aes-128-cbc",
    Self::NullHmacSha256 => "null",
});

vocabulary!(Associate as "Associate" { Self::Before => "before", Self::FirstPacket => "first-packet" });

/// A router, which forwards packets. It may be a gateway or a base station.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Router {
    /// Its name: letters, digits, "-", "_" and ".".
    pub(crate) name: String,
    /// The router's actions for the connections of mobile hosts. The default is nothing.
    pub(crate) mechanisms: Option<RouterMechanisms>,
    /// The router's routes, which take precedence over the path with the fewest hops. The default is none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) routes: Vec<Route>,
    /// The processing time of packets. The default is none.
    pub(crate) cpu: Option<Cpu>,
}

/// The processor of a router: it handles one packet at a time.
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Cpu {
    /// The time for each packet. The default is 0 s.
    pub(crate) per_packet: Option<Time>,
    /// Additional time for each byte of the packet. The default is 0 s.
    pub(crate) per_byte: Option<Time>,
    /// Additional time for each packet that the router's mechanisms handle. The default is 0 s.
    pub(crate) per_operation: Option<Time>,
    /// Additional time for each byte of such a packet. The default is 0 s.
    pub(crate) per_operation_byte: Option<Time>,
    /// The time for each byte of data that the router's mechanisms compress. The default is 0 s.
    pub(crate) per_compressed_byte: Option<Time>,
    /// How many packets are queued or processed at most; further ones are dropped. The default is 1000.
    pub(crate) backlog: Option<u32>,
}
