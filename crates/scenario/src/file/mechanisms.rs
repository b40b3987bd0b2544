//! `[host.mechanisms]`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::quantity::{Bytes, Time};

/// What a host does for its connections when its links come and go. A mechanism is on if its table is there, even if that is
/// empty.
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Mechanisms {
    /// Its last ACK again, several times, when the link is back.
    pub(crate) reconnect_acks: Option<ReconnectAcks>,
    /// The ACK of the last segments is withheld while data flows, to have something new to say after a cut.
    pub(crate) hold_back: Option<HoldBack>,
    /// No ACK is let through in the last moments before a cut that is foreseen.
    pub(crate) ack_stall: Option<AckStall>,
    /// ICMP host unreachable to senders that have backed off, when the link is back (RFC 6069).
    pub(crate) unreachable_poke: Option<UnreachablePoke>,
    /// `hold_back`, `ack_stall` and `unreachable_poke` together; those without a table of their own as by default.
    pub(crate) wake: Option<Wake>,
    /// How `hold_back`, `ack_stall` and `wake` let go of what they hold when the link is back.
    pub(crate) release: Option<Release>,
}

/// The last ACK again, several times, when the link is back (Caceres and Iftode; Freeze-TCP's TR-ACKs).
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReconnectAcks {
    /// How many. The default is 3.
    pub(crate) copies: Option<u8>,
    /// The most that they offer as a window if the attachment is a new one. The default is the real window.
    pub(crate) restart_window: Option<Bytes>,
    /// Connections whose peer was silent for so long before the cut are left alone. The default is 10 min.
    pub(crate) idle: Option<Time>,
}

/// The ACK of the last segments is withheld while data flows, to have something new to say after a cut.
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct HoldBack {
    /// How many whole segments, at most 63. The default is 4.
    pub(crate) segments: Option<u8>,
    /// Nothing is held before so much has been acknowledged. The default is 150 kB.
    pub(crate) after: Option<Bytes>,
    /// Nothing is held for so long after link-up. The default is 1 s.
    pub(crate) pause: Option<Time>,
    /// What is held is let go if no newer ACK comes for so long. The default is 40 ms.
    pub(crate) flush: Option<Time>,
}

/// No ACK is let through in the last moments before a cut that is foreseen.
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct AckStall {
    /// It begins so long before the predicted cut. The default is 100 ms.
    pub(crate) lead: Option<Time>,
    /// It lasts at most so long, if the cut does not come. The default is 250 ms.
    pub(crate) most: Option<Time>,
}

/// ICMP host unreachable to senders that have backed off, when the link is back (RFC 6069).
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct UnreachablePoke {
    /// How many. The default is 12.
    pub(crate) copies: Option<u8>,
    /// The time between two. The default is 1 ms.
    pub(crate) every: Option<Time>,
}

/// `hold_back`, `ack_stall` and `unreachable_poke` together.
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Wake {}

/// How held ACKs are let go when the link is back.
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Release {
    /// So long after link-up; if data comes by itself before, nothing is done. The default is 1 ms.
    pub(crate) grace: Option<Time>,
    /// ACKs sent within so long before the cut are taken to be lost. The default is 60 ms.
    pub(crate) ladder: Option<Time>,
    /// Whether the echoed timestamps are moved forward. The default is true.
    pub(crate) refresh_timestamps: Option<bool>,
    /// The host's own ACKs have theirs moved forward for so long after link-up. The default is 1 s.
    pub(crate) refresh_for: Option<Time>,
    /// Whether one byte is acknowledged before all the rest. The default is true.
    pub(crate) two_steps: Option<bool>,
}
