//! `[router.mechanisms]`.

use holdover_gateway::WarningSign;
use holdover_gateway::daemon::Mode;
use holdover_gateway::supervisor::Choke;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::file::{Compression, Stack};
use crate::quantity::{Bytes, DataRate, Time};
use crate::word::{OrNone, Short, Vocabulary, Word, vocabulary};

/// The actions of a router for the connections of mobile hosts whose packets it forwards. A mechanism is on if its table is
/// present, even an empty one.
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RouterMechanisms {
    /// The hosts for which the router acts. The default is those that move between cells, and those that have a link with
    /// outages.
    pub(crate) mobiles: Option<Vec<String>>,
    /// Whether the link layer reports which of these hosts are present: to a base station, those in its cell; to a router
    /// with a link to a host, or to the only router in front of it, whether that link is up. The default is true. (The
    /// gateway of a registration always receives registrations.)
    pub(crate) hears_links: Option<bool>,
    /// The functions of the program `holdover gateway` on a router.
    pub(crate) gateway: Option<GatewayDaemon>,
    /// Lowers ACKs by one byte, copies unacknowledged data, and can shut the window (after M-TCP).
    pub(crate) supervisor: Option<Supervisor>,
    /// Copies unacknowledged data, and sends a window of zero when ACKs stop (BUFFER-FREEZE).
    pub(crate) buffer_freeze: Option<BufferFreeze>,
    /// Terminates connections, so that each half has its own TCP (I-TCP).
    pub(crate) split: Option<Split>,
    /// Splits connections, and acknowledges end to end: the supervisor host of M-TCP.
    pub(crate) m_tcp: Option<MTcp>,
    /// Terminates connections, and carries them to the mobile host by selective repeat (MTCP/SRP). The mobile host needs
    /// `srp` too.
    pub(crate) srp: Option<Srp>,
    /// Copies data segments, and retransmits them over the wireless link instead of forwarding duplicate ACKs (Snoop).
    pub(crate) snoop: Option<Snoop>,
    /// Queues packets of each mobile host whose signal fades, and sends a window of zero if the signal stays weak (TAWCF).
    pub(crate) tawcf: Option<Tawcf>,
    /// Notifies the sender of failed transmissions on the wireless link (EBSN). It needs a link with "arq", and senders with
    /// `ebsn`.
    pub(crate) ebsn: Option<Ebsn>,
    /// Keeps a queue for each mobile host, which a window of zero from that host blocks (thesis on Freeze-TCP).
    pub(crate) blocking_buffer: Option<BlockingBuffer>,
    /// Copies what is forwarded while a mobile host advertises a window of zero, and sends the copies to its next cell (the
    /// same thesis).
    pub(crate) copy_and_forward: Option<CopyAndForward>,
}

/// The functions of the program `holdover gateway`. Keys have the names of those in its gateway.toml.
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct GatewayDaemon {
    /// The mode for mobile hosts that are away: "buffer", "observe", "freeze", "buffer-freeze", "m-tcp" or "thesis". The
    /// default is "buffer".
    pub(crate) mode: Option<Word<Mode>>,
    /// With "buffer": whether ACKs are held back, so that senders can be woken after a disconnection. The default is true.
    pub(crate) hold_back: Option<bool>,
    /// With "m-tcp": whether duplicate ACKs of mobile hosts are withheld, for links that repair their losses. The default is false.
    pub(crate) drop_duplicates: Option<bool>,
    /// The buffer limit of each mobile host. The default is 4 MB.
    pub(crate) mobile_bytes: Option<Bytes>,
    /// The buffer limit of all mobile hosts together. The default is 256 MB.
    pub(crate) total_bytes: Option<Bytes>,
    /// The longest time that a packet waits. The default is 120 s.
    pub(crate) longest: Option<Time>,
    /// The rate at which the packets of a mobile host are released, "none" for all at once. The default is 100 Mbit/s.
    pub(crate) rate: Option<OrNone<DataRate>>,
    /// How many bytes of a mobile host are released at once before the rate applies. The default is 30 kB.
    pub(crate) burst_bytes: Option<Bytes>,
    /// With "thesis": the sign of a predicted disconnection, "window" or "ip-flag", as for `blocking_buffer`. The default is
    /// "window".
    pub(crate) sign: Option<Word<WarningSign>>,
    /// With "thesis": how many packets are released at once. The default is 2.
    pub(crate) burst: Option<u32>,
    /// With "thesis": how long a sign blocks the queue of a host that is not reported away. The default is 10 s.
    pub(crate) longest_warning: Option<Time>,
}

impl Vocabulary for Mode {
    const TITLE: &'static str = "GatewayMode";
    // Connections of "split" end at the gateway: that is the mechanism of that name.
    const VALUES: &'static [Self] = &Self::IN_PATH;
    const NAMES: &'static [&'static str] = Self::NAMES.split_at(Self::IN_PATH.len()).0;
}

/// M-TCP's supervisor host in the path of packets: it terminates no connection.
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Supervisor {
    /// By how many bytes ACKs to the fixed host are lowered while data flow. The default is 1 byte.
    pub(crate) held: Option<Bytes>,
    /// Nothing is held until this much has been acknowledged. The default is 150 kB.
    pub(crate) held_after: Option<Bytes>,
    /// The limit of copies of unacknowledged data, for each connection; "none" for none. The default is 256 kB.
    pub(crate) buffer: Option<OrNone<Bytes>>,
    /// When the fixed host's window is shut: "never", "when-away" (by the link events of the router), or when its "wintimer"
    /// expires, as in M-TCP. The default is "never".
    pub(crate) choke: Option<Word<Choke>>,
    /// Held bytes are acknowledged if no newer ACK comes for this long. The default is 40 ms.
    pub(crate) flush: Option<Time>,
    /// The least time without an ACK that counts as a disconnection, for "wintimer". The default is 250 ms.
    pub(crate) least_timeout: Option<Time>,
    /// How many copies are sent at once when the host returns; each ACK then releases two more. The default is 10.
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
    /// The limit of copies of unacknowledged data, for each connection; "none" for none (FREEZE). The default is 256 kB.
    pub(crate) buffer: Option<OrNone<Bytes>>,
    /// Whether the fixed host gets a window of zero when ACKs stop; false for BUFFER. The default is true.
    pub(crate) freeze: Option<bool>,
    /// The least time without an ACK that counts as a disconnection. The default is 250 ms.
    pub(crate) least_timeout: Option<Time>,
    /// Other routers with this mechanism to which state and copies move with their mobile hosts. Each of two names the
    /// other. The default is none: the old router forwards its copies, and the new one begins without state.
    pub(crate) peers: Option<Vec<String>>,
}

/// I-TCP: each half of a connection has its own TCP.
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Split {
    /// The TCP towards fixed hosts. The default is the scenario's.
    pub(crate) fixed_stack: Option<Short<Stack>>,
    /// The TCP towards mobile hosts. The default is the scenario's.
    pub(crate) mobile_stack: Option<Short<Stack>>,
    /// Whether a SYN is answered only after the far end has answered it. The default is true.
    pub(crate) lock_step: Option<bool>,
    /// The limit of simultaneously split connections; further ones are forwarded unsplit. The default is 10000.
    pub(crate) most: Option<u32>,
    /// Other routers with this mechanism to which connections move with their mobile hosts, with the data in their buffers. Each of
    /// two names the other. The default is none: connections stay where they began.
    pub(crate) peers: Option<Vec<String>>,
}

/// The supervisor host of M-TCP.
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct MTcp {
    /// The TCP towards fixed hosts. The default is the scenario's.
    pub(crate) fixed_stack: Option<Short<Stack>>,
    /// The TCP towards mobile hosts. The default is the scenario's.
    pub(crate) mobile_stack: Option<Short<Stack>>,
    /// Whether a SYN is answered only after the far end has answered it. The default is true; in the paper it is false.
    pub(crate) lock_step: Option<bool>,
    /// The limit of simultaneously split connections; further ones are forwarded unsplit. The default is 10000.
    pub(crate) most: Option<u32>,
    /// Whether fixed hosts treat what they have sent as unsent when they leave persist mode (the paper's state RECOVERING).
    /// The default is false.
    pub(crate) pulls_back: Option<bool>,
    /// The last byte is held back once this much has been acknowledged; "0 bytes" as in the paper. The default is 14600
    /// bytes.
    pub(crate) held_after: Option<Bytes>,
    /// The last byte is acknowledged if all data is acknowledged and no more arrives for this long. The default is 40 ms.
    pub(crate) flush: Option<Time>,
    /// The least value of wintimer. The default is 250 ms.
    pub(crate) least_timeout: Option<Time>,
    /// The first interval between two persist packets to a mobile host, which doubles. The default is 5 s.
    pub(crate) persist_least: Option<Time>,
    /// The longest interval. The default is 60 s.
    pub(crate) persist_most: Option<Time>,
    /// The rate limit of packets to one mobile host; its connections take turns. The default is no limit.
    pub(crate) bandwidth: Option<DataRate>,
    /// Compression of the data of each packet to a mobile host, with "tcp" and "header" only. The packet has its compressed
    /// size on all links up to the mobile host, which decompresses it. The default is no compression.
    pub(crate) compression: Option<Compression>,
    /// Other routers with this mechanism to which connections move with their mobile hosts. Each of two names the other. The
    /// default is none: connections stay where they began.
    pub(crate) peers: Option<Vec<String>>,
}

/// Snoop at a base station.
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Snoop {
    /// The limit of copies for each connection. The default is 256 kB.
    pub(crate) buffer: Option<Bytes>,
    /// The least time without a new ACK after which a segment is retransmitted. The default is 40 ms.
    pub(crate) least_timeout: Option<Time>,
    /// The time without a packet from either side after which a segment is retransmitted. The default is 200 ms.
    pub(crate) persist: Option<Time>,
    /// How often a segment is retransmitted at most. The default is 10.
    pub(crate) most_resent: Option<u32>,
    /// Nearby routers with this mechanism, which get copies of packets for mobile hosts and send them after a handoff. Each of two names
    /// the other. The default is none: the new router begins without copies.
    pub(crate) peers: Option<Vec<String>>,
}

/// The scheme of Onoe and others at a base station that receives reports of a fading signal.
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Tawcf {
    /// The limit of the queue of each mobile host. The default is 256 kB.
    pub(crate) buffer: Option<Bytes>,
    /// The longest time that a packet waits. The default is 120 s.
    pub(crate) longest: Option<Time>,
    /// How long the signal is low before the fixed host gets a window of zero, or "none" for never. The default is 100 ms.
    pub(crate) low_for: Option<OrNone<Time>>,
    /// How long after a handoff packets are reordered; 0 s disables reordering. The default is 1 s.
    pub(crate) fresh: Option<Time>,
    /// How long a packet out of order is held while none arrives in order. The default is 20 ms.
    pub(crate) hold: Option<Time>,
}

/// MTCP/SRP, at either end of the wireless hop.
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Srp {
    /// The TCP towards the near side: the fixed hosts at a router, the local applications at a host. The default is the
    /// scenario's.
    pub(crate) near_stack: Option<Short<Stack>>,
    /// The largest amount of data in a packet. The default is 1400 bytes.
    pub(crate) packet: Option<Bytes>,
    /// The most packets in flight, 1 to 64, and no more than the queue of the wireless link takes. The default is 32.
    pub(crate) window: Option<u32>,
    /// The least timeout. The default is 50 ms.
    pub(crate) least_timeout: Option<Time>,
    /// The longest timeout, to which it doubles. The default is 1 s.
    pub(crate) most_timeout: Option<Time>,
    /// The limit of simultaneously split connections; further ones are forwarded unsplit. The default is 10000.
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
    /// The router recognises a predicted disconnection by the host's "window" of zero, or by the "ip-flag" of a host with
    /// `freeze.ip_flag`. The default is "window".
    pub(crate) sign: Option<Word<WarningSign>>,
    /// How many packets are sent at once, "none" for all of them. The default is 2.
    pub(crate) burst: Option<OrNone<u32>>,
    /// The limit of the queue of each mobile host; packets above it are dropped. The default is 1 MB.
    pub(crate) buffer: Option<Bytes>,
    /// The longest time that a packet is kept. The default is 120 s.
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
    /// The router recognises a predicted disconnection by "window" or "ip-flag", as for `blocking_buffer`. The default is
    /// "window".
    pub(crate) sign: Option<Word<WarningSign>>,
    /// The limit of copies for each connection; packets above it are forwarded without a copy. The default is 256 kB.
    pub(crate) buffer: Option<Bytes>,
    /// The longest time that a copy is kept. The default is 120 s.
    pub(crate) longest: Option<Time>,
}
