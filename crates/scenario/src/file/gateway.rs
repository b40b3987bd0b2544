//! `[router.mechanisms]`.

use holdover_gateway::supervisor::Choke;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::quantity::{Bytes, Time};
use crate::word::{OrNone, Word, vocabulary};

/// What a router does for the connections of mobile hosts whose packets it forwards. A mechanism is on if its table is there, even
/// if that is empty.
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RouterMechanisms {
    /// For which hosts. The default is those that move between cells, and those that have a link with outages.
    pub(crate) mobiles: Option<Vec<String>>,
    /// Whether its link layer tells it which of them are there: a base station, those in its cell; a router with a link to one, whether
    /// that link is up. The default is true. (The gateway of a registration hears of registrations in any case.)
    pub(crate) hears_links: Option<bool>,
    /// ACKs that acknowledge one byte less, copies of what is not acknowledged, and a window that it can shut (after M-TCP).
    pub(crate) supervisor: Option<Supervisor>,
    /// Copies of what is not acknowledged, and a window of zero when ACKs stop coming (BUFFER-FREEZE).
    pub(crate) buffer_freeze: Option<BufferFreeze>,
    /// A queue for each mobile host, blocked by a window of zero of that host (thesis on Freeze-TCP).
    pub(crate) blocking_buffer: Option<BlockingBuffer>,
}

/// What M-TCP's supervisor host does, in the path: it terminates no connection.
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Supervisor {
    /// How many bytes the fixed host is never shown as acknowledged while data flow. The default is 1 byte.
    pub(crate) held: Option<Bytes>,
    /// Copies of what the mobile host has not acknowledged, for each connection; "none" for none. The default is 256 kB.
    pub(crate) buffer: Option<OrNone<Bytes>>,
    /// When the fixed host's window is shut: "never", "when-away" (as far as the router hears), or when its "wintimer" expires, as in
    /// M-TCP. The default is "never".
    pub(crate) choke: Option<Word<Choke>>,
    /// What is held is shown if nothing newer comes for so long. The default is 40 ms.
    pub(crate) flush: Option<Time>,
    /// The least time without an ACK that counts as a disconnection, for "wintimer". The default is 250 ms.
    pub(crate) least_timeout: Option<Time>,
    /// How many copies leave at once when the host is back; each ACK then brings two more. The default is 10.
    pub(crate) burst: Option<u32>,
}

vocabulary!(Choke as "Choke" {
    Self::Never => "never",
    Self::WhenAway => "when-away",
    Self::Wintimer => "wintimer",
});

/// BUFFER-FREEZE at a base station.
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct BufferFreeze {
    /// Copies of what the mobile host has not acknowledged, for each connection; "none" for none (FREEZE). The default is 256 kB.
    pub(crate) buffer: Option<OrNone<Bytes>>,
    /// Whether the fixed host gets a window of zero when ACKs stop coming; false for BUFFER. The default is true.
    pub(crate) freeze: Option<bool>,
    /// The least time without an ACK that counts as a disconnection. The default is 250 ms.
    pub(crate) least_timeout: Option<Time>,
}

/// The gateway of the thesis on Freeze-TCP.
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct BlockingBuffer {
    /// How many packets leave at once, "none" for all of them. The default is 2.
    pub(crate) burst: Option<OrNone<u32>>,
    /// How much is kept for each mobile host; what comes beyond is dropped. The default is 1 MB.
    pub(crate) buffer: Option<Bytes>,
    /// How long a packet is kept at most. The default is 120 s.
    pub(crate) longest: Option<Time>,
}
