//! `[router.mechanisms]`.

use holdover_gateway::WarningSign;
use holdover_gateway::daemon::Mode;
use holdover_gateway::supervisor::Choke;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::file::{Compression, Stack};
use crate::quantity::{Bytes, DataRate, Time};
use crate::word::{OrNone, Short, Vocabulary, Word, vocabulary};

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
    /// What the program `holdover gateway` does on a router.
    pub(crate) gateway: Option<GatewayDaemon>,
    /// ACKs that acknowledge one byte less, copies of what is not acknowledged, and a window that it can shut (after M-TCP).
    pub(crate) supervisor: Option<Supervisor>,
    /// Copies of what is not acknowledged, and a window of zero when ACKs stop coming (BUFFER-FREEZE).
    pub(crate) buffer_freeze: Option<BufferFreeze>,
    /// Connections terminated here, so that each half has its own TCP (I-TCP).
    pub(crate) split: Option<Split>,
    /// The same, acknowledged end to end: the supervisor host of M-TCP.
    pub(crate) m_tcp: Option<MTcp>,
    /// Connections terminated here, and carried to the mobile host by selective repeat (MTCP/SRP). The mobile host needs `srp` too.
    pub(crate) srp: Option<Srp>,
    /// Copies, retransmitted over the wireless link instead of letting duplicate ACKs through (Snoop).
    pub(crate) snoop: Option<Snoop>,
    /// A queue for each mobile host whose signal fades, and a window of zero if it stays weak (TAWCF).
    pub(crate) tawcf: Option<Tawcf>,
    /// A notification for the sender of what the wireless link has failed to transmit (EBSN). It needs a link with "arq", and senders
    /// with `ebsn`.
    pub(crate) ebsn: Option<Ebsn>,
    /// A queue for each mobile host, blocked by a window of zero of that host (thesis on Freeze-TCP).
    pub(crate) blocking_buffer: Option<BlockingBuffer>,
    /// Copies of what is forwarded while a mobile host shows a window of zero, sent again to its next cell (the same thesis).
    pub(crate) copy_and_forward: Option<CopyAndForward>,
}

/// What the program `holdover gateway` does. Keys have the names of those in its gateway.toml.
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct GatewayDaemon {
    /// What is done for mobile hosts that are away: "buffer", "observe", "freeze", "buffer-freeze" or "m-tcp". The default is "buffer".
    pub(crate) mode: Option<Word<Mode>>,
    /// With "buffer": whether ACKs are held back, so that senders can be woken. The default is true.
    pub(crate) hold_back: Option<bool>,
    /// The most bytes that wait for one mobile host. The default is 4 MB.
    pub(crate) mobile_bytes: Option<Bytes>,
    /// The most bytes that wait in all. The default is 256 MB.
    pub(crate) total_bytes: Option<Bytes>,
    /// How long a packet waits at most. The default is 120 s.
    pub(crate) longest: Option<Time>,
    /// How fast packets of one mobile host are released, "none" for all at once. The default is 100 Mbit/s.
    pub(crate) rate: Option<OrNone<DataRate>>,
    /// How many bytes of one mobile host are released at once before the rate applies. The default is 30 kB.
    pub(crate) burst_bytes: Option<Bytes>,
}

impl Vocabulary for Mode {
    const TITLE: &'static str = "GatewayMode";
    const VALUES: &'static [Self] = &Self::ALL;
    const NAMES: &'static [&'static str] = &Self::NAMES;
}

/// What M-TCP's supervisor host does, in the path: it terminates no connection.
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Supervisor {
    /// How many bytes the fixed host is never shown as acknowledged while data flow. The default is 1 byte.
    pub(crate) held: Option<Bytes>,
    /// Nothing is held before so much has been acknowledged. The default is 150 kB.
    pub(crate) held_after: Option<Bytes>,
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

/// I-TCP: each half of a connection has its own TCP.
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Split {
    /// The TCP towards fixed hosts. The default is the scenario's.
    pub(crate) fixed_stack: Option<Short<Stack>>,
    /// The TCP towards mobile hosts. The default is the scenario's.
    pub(crate) mobile_stack: Option<Short<Stack>>,
    /// Whether a SYN is answered only when the far end has answered it. The default is true.
    pub(crate) lock_step: Option<bool>,
    /// How many connections are split at once; others pass. The default is 10000.
    pub(crate) most: Option<u32>,
}

/// The supervisor host of M-TCP.
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct MTcp {
    /// The TCP towards fixed hosts. The default is the scenario's.
    pub(crate) fixed_stack: Option<Short<Stack>>,
    /// The TCP towards mobile hosts. The default is the scenario's.
    pub(crate) mobile_stack: Option<Short<Stack>>,
    /// Whether a SYN is answered only when the far end has answered it. The default is true; in the paper it is false.
    pub(crate) lock_step: Option<bool>,
    /// How many connections are split at once; others pass. The default is 10000.
    pub(crate) most: Option<u32>,
    /// Whether fixed hosts take back what they have sent when they leave persist mode (the paper's state RECOVERING). The default is
    /// false.
    pub(crate) pulls_back: Option<bool>,
    /// The last byte is held back once so much is acknowledged; "0 bytes" as in the paper. The default is 14600 bytes.
    pub(crate) held_after: Option<Bytes>,
    /// The last byte is shown if all is acknowledged and nothing more comes for so long. The default is 40 ms.
    pub(crate) flush: Option<Time>,
    /// The least value of wintimer. The default is 250 ms.
    pub(crate) least_timeout: Option<Time>,
    /// The first pause between two persist packets to a mobile host, which doubles. The default is 5 s.
    pub(crate) persist_least: Option<Time>,
    /// The longest. The default is 60 s.
    pub(crate) persist_most: Option<Time>,
    /// What leaves for one mobile host at most; its connections take turns. The default is as much as their windows let.
    pub(crate) bandwidth: Option<DataRate>,
    /// How the data of each packet to a mobile host is compressed, "tcp" and "header" alone. It takes room as compressed on all links up
    /// to the mobile host, which decompresses it. The default is that it is not.
    pub(crate) compression: Option<Compression>,
    /// Routers with this mechanism between which connections move with their mobile hosts. Each of two names the other. The default is
    /// that connections stay where they began.
    pub(crate) peers: Option<Vec<String>>,
}

/// Snoop at a base station.
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Snoop {
    /// Copies for each connection. The default is 256 kB.
    pub(crate) buffer: Option<Bytes>,
    /// The least time without a new ACK after which a segment is retransmitted. The default is 40 ms.
    pub(crate) least_timeout: Option<Time>,
    /// The time without a packet from either side after which a segment is retransmitted. The default is 200 ms.
    pub(crate) persist: Option<Time>,
    /// How often a segment is retransmitted at most. The default is 10.
    pub(crate) most_resent: Option<u32>,
}

/// The scheme of Onoe and others at a base station, which hears that the signal fades.
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Tawcf {
    /// What waits for each mobile host at most. The default is 256 kB.
    pub(crate) buffer: Option<Bytes>,
    /// How long a packet waits at most. The default is 120 s.
    pub(crate) longest: Option<Time>,
    /// How long the signal is low before the fixed host gets a window of zero, or "none" if it never does. The default is 100 ms.
    pub(crate) low_for: Option<OrNone<Time>>,
    /// How long after a handoff packets are put in order; 0 s for not at all. The default is 1 s.
    pub(crate) fresh: Option<Time>,
    /// How long a packet out of order is held while none comes in order. The default is 20 ms.
    pub(crate) hold: Option<Time>,
}

/// MTCP/SRP, at either end of the wireless hop.
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Srp {
    /// The TCP towards the near side: fixed hosts at a router, the applications' own at a host. The default is the scenario's.
    pub(crate) near_stack: Option<Short<Stack>>,
    /// Bytes of data in a packet at most. The default is 1400 bytes.
    pub(crate) packet: Option<Bytes>,
    /// Packets under way at most, 1 to 64, and no more than the queue of the wireless link takes. The default is 32.
    pub(crate) window: Option<u32>,
    /// The least timeout. The default is 50 ms.
    pub(crate) least_timeout: Option<Time>,
    /// The longest, to which it doubles. The default is 1 s.
    pub(crate) most_timeout: Option<Time>,
    /// How many connections are split at once; others pass. The default is 10000.
    pub(crate) most: Option<u32>,
}

/// Explicit bad state notification at a base station.
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Ebsn {
    /// The least time between two notifications of one connection. The default is 10 ms.
    pub(crate) every: Option<Time>,
}

/// The gateway of the thesis on Freeze-TCP.
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct BlockingBuffer {
    /// By what the router knows that a host foresees its disconnection: its "window" of zero, or the "ip-flag" that a host with
    /// `freeze.ip_flag` sets. The default is "window".
    pub(crate) sign: Option<Word<WarningSign>>,
    /// How many packets leave at once, "none" for all of them. The default is 2.
    pub(crate) burst: Option<OrNone<u32>>,
    /// How much is kept for each mobile host; what comes beyond is dropped. The default is 1 MB.
    pub(crate) buffer: Option<Bytes>,
    /// How long a packet is kept at most. The default is 120 s.
    pub(crate) longest: Option<Time>,
}

vocabulary!(WarningSign as "WarningSign" {
    Self::Window => "window",
    Self::IpFlag => "ip-flag",
});

/// The other gateway of the thesis on Freeze-TCP.
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct CopyAndForward {
    /// By what the router knows that a host foresees its disconnection: "window" or "ip-flag", as for `blocking_buffer`. The default
    /// is "window".
    pub(crate) sign: Option<Word<WarningSign>>,
    /// Copies for each connection; what comes beyond is forwarded without one. The default is 256 kB.
    pub(crate) buffer: Option<Bytes>,
    /// How long a copy is kept at most. The default is 120 s.
    pub(crate) longest: Option<Time>,
}
