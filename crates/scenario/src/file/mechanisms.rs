//! `[host.mechanisms]`.

use holdover_mobility::probe::RoundTrip;
use holdover_mobility::timestamp_echo::{Echo, Since};
use holdover_tcp::AfterRetransmit;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::file::Srp;
use crate::quantity::{Bytes, Time};
use crate::word::{OrNone, Word, vocabulary};

/// What a host does for its connections when its links come and go. A mechanism is on if its table is there, even if that is
/// empty.
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Mechanisms {
    /// Its last ACK again, several times, when the link is back.
    pub(crate) reconnect_acks: Option<ReconnectAcks>,
    /// A window of zero in all that it sends, from shortly before its link goes until it is back.
    pub(crate) freeze: Option<Freeze>,
    /// Echoed timestamps from before an outage are advanced by its length.
    pub(crate) timestamp_echo: Option<TimestampEcho>,
    /// A retransmission at once when the peer may be within reach again.
    pub(crate) retransmission_trigger: Option<RetransmissionTrigger>,
    /// A long user timeout while a disconnection is near.
    pub(crate) user_timeout: Option<UserTimeoutPolicy>,
    /// A smaller window in a new cell, which opens with the data that arrive.
    pub(crate) new_cell_window: Option<NewCellWindow>,
    /// After a handoff, its own retransmission at once, and three identical ACKs to its peers (FR-TCP).
    pub(crate) fast_retransmit: Option<FastRetransmit>,
    /// Handoffs told to the peer, which probes the new path and repairs what was lost (PROBE). Both ends need it.
    pub(crate) probe: Option<Probe>,
    /// Its retransmission timer starts anew when a base station notifies it of a failed attempt (EBSN). A router needs `ebsn` too.
    pub(crate) ebsn: Option<EbsnSender>,
    /// The third and later duplicate ACKs are held up until the hole is filled, or for a time (Vaidya and others).
    pub(crate) delayed_dupacks: Option<DelayedDupacks>,
    /// Its connections are carried over its link by selective repeat (MTCP/SRP). The router at the other end needs `srp` too.
    pub(crate) srp: Option<Srp>,
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

/// The fixed host's part of EBSN: notifications start its retransmission timer anew.
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct EbsnSender {
    /// How long notifications may put off the timer while nothing new is acknowledged. The default is 100 s.
    pub(crate) longest: Option<Time>,
}

/// Duplicate ACKs wait for what the wireless link repeats.
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct DelayedDupacks {
    /// From the third duplicate to the moment at which all that wait are sent. The default is 100 ms.
    pub(crate) delay: Option<Time>,
}

/// A retransmission at once, as though the timer had run out, when the peer may be within reach again (Schuetz and others).
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RetransmissionTrigger {
    /// What becomes of the timer's backoff. The default is "reset".
    pub(crate) backoff: Option<Word<AfterRetransmit>>,
    /// Whether it counts towards the limit at which TCP gives up. The default is that it does not.
    pub(crate) counts: Option<bool>,
    /// How a peer that cannot know is made to retransmit: "none", by an "option", or by "duplicate-acks". The default is
    /// "option".
    pub(crate) relay: Option<Word<RelayKind>>,
    /// For "duplicate-acks": how many segments bear the same ACK number, at least 4. The default is 4.
    pub(crate) copies: Option<u8>,
    /// For "duplicate-acks": whether retransmissions count among them. The default is that they do.
    pub(crate) piggyback: Option<bool>,
    /// Whether congestion state is forgotten in a new network even if the timer has not run out. The default is that it is.
    pub(crate) forced_slow_start: Option<bool>,
    /// At most one trigger on each connection in this time. The default is 500 ms.
    pub(crate) min_interval: Option<Time>,
}

vocabulary!(AfterRetransmit as "AfterRetransmit" {
    Self::BackOff => "back-off",
    Self::Keep => "keep",
    Self::Reset => "reset",
});

/// How a peer that cannot know is made to retransmit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RelayKind {
    None,
    Option,
    DuplicateAcks,
}

vocabulary!(RelayKind as "Relay" {
    Self::None => "none",
    Self::Option => "option",
    Self::DuplicateAcks => "duplicate-acks",
});

/// A long user timeout, also asked of the peer (RFC 5482), while a disconnection is near.
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct UserTimeoutPolicy {
    /// The long one. The default is 15 min.
    pub(crate) long: Option<Time>,
    /// What is advertised afterwards where nothing was before. The default is nothing.
    pub(crate) afterwards: Option<Time>,
    /// How long after the disconnection the former one returns. The default is 10 s.
    pub(crate) linger: Option<Time>,
}

/// The last ACK again, several times, when the link is back (Caceres and Iftode; Freeze-TCP's TR-ACKs).
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReconnectAcks {
    /// How many. The default is 3.
    pub(crate) copies: Option<u8>,
    /// The most that they offer as a window if the attachment is a new one. The default is the real window.
    pub(crate) restart_window: Option<Bytes>,
    /// Whether they carry the mark that M-TCP's supervisor host looks for. The default is false.
    pub(crate) marked: Option<bool>,
    /// Connections whose peer was silent for so long before the cut are left alone. The default is 10 min.
    pub(crate) idle: Option<Time>,
}

/// A window of zero from shortly before the link goes until it is back (Freeze-TCP). It needs a warning: the host's foresight, or
/// a mobile host's prediction.
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Freeze {
    /// How long before the cut it begins: "round-trips", "fixed", "whole-lead" (with the warning) or "adaptive". The default is
    /// "round-trips".
    pub(crate) warning: Option<Word<WarningKind>>,
    /// How many measured round trips before the cut, with "round-trips". The default is 1.
    pub(crate) round_trips: Option<f64>,
    /// How long before the cut, with "fixed".
    pub(crate) period: Option<Time>,
    /// By how much "adaptive" moves after each cut. The default is 10 ms.
    pub(crate) step: Option<Time>,
    /// How many ACKs with a window of zero leave at once. The default is 1.
    pub(crate) zero_window_acks: Option<u8>,
    /// How long TCP may take to acknowledge data while frozen before it is asked to, or "none" for as long as it likes. The
    /// default is 0 s.
    pub(crate) ask_after: Option<OrNone<Time>>,
    /// Connections on which no data came for so long are left alone. The default is 1 s.
    pub(crate) flowing: Option<Time>,
    /// Whether a window probe ends it, as in the thesis. The default is false.
    pub(crate) thaw_on_probe: Option<bool>,
    /// Whether one window update leaves when the link is back. The default is false.
    pub(crate) update_at_up: Option<bool>,
    /// Whether the reserved flag of the IPv4 header goes with every window of zero, and whether data with that flag are answered
    /// with the real window, for a gateway with `sign = "ip-flag"`. The default is false.
    pub(crate) ip_flag: Option<bool>,
    /// It ends by itself if no cut comes for so long after the foreseen moment. The default is 1 s.
    pub(crate) patience: Option<Time>,
}

/// How long before the cut freezing begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum WarningKind {
    RoundTrips,
    Fixed,
    WholeLead,
    Adaptive,
}

vocabulary!(WarningKind as "FreezeWarning" {
    Self::RoundTrips => "round-trips",
    Self::Fixed => "fixed",
    Self::WholeLead => "whole-lead",
    Self::Adaptive => "adaptive",
});

/// Echoed timestamps from before an outage are advanced by its length, so that the sender does not take it for a round trip (the
/// timestamp echo update of the thesis on Freeze-TCP).
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct TimestampEcho {
    /// From when on the outage counts: the last "zero-window" after the warning, or the "last-ack" before the cut. The default
    /// is "zero-window".
    pub(crate) since: Option<Word<Since>>,
    /// Which stamp is echoed at other times: TCP's "own" choice, or the "newest" of a segment that is not beyond a gap. The
    /// default is "own".
    pub(crate) echo: Option<Word<Echo>>,
}

vocabulary!(Since as "OutageSince" { Self::ZeroWindow => "zero-window", Self::LastAck => "last-ack" });
vocabulary!(Echo as "TimestampToEcho" { Self::Own => "own", Self::Newest => "newest" });

/// A smaller window in a new cell, which opens with the data that arrive (an idea of the thesis on Freeze-TCP).
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewCellWindow {
    /// The window at first. The default is 14600 bytes.
    pub(crate) initial: Option<Bytes>,
    /// By how much of what is newly acknowledged it grows, in percent. The default is 100, as in slow start.
    pub(crate) growth: Option<u32>,
}

/// After a handoff, its own retransmission at once, and identical ACKs to its peers (Caceres and Iftode).
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct FastRetransmit {
    /// How many ACKs each peer gets. The default is 3.
    pub(crate) copies: Option<u8>,
    /// Whether the host retransmits its own data. The default is true.
    pub(crate) own_data: Option<bool>,
    /// Whether only another attachment counts, or every return of the link. The default is true.
    pub(crate) only_moved: Option<bool>,
}

/// Explicit handoff recovery (PROBE). Both ends need it, and their own TCP.
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Probe {
    /// How many nacks each peer gets after a handoff. The default is 3.
    pub(crate) nacks: Option<u8>,
    /// How many segments the sender probes with, at least 1; two give a bandwidth. The default is 3.
    pub(crate) probes: Option<u8>,
    /// Whether the host probes for its own data after a handoff of its own. The default is true.
    pub(crate) own_data: Option<bool>,
    /// Whether only another attachment counts, or every return of the link. The default is true.
    pub(crate) only_moved: Option<bool>,
    /// How long the receiver waits for the next probe before it answers. The default is 200 ms.
    pub(crate) patience: Option<Time>,
    /// The round trip that the threshold is computed with: of the "exchange" of probes and answer, or TCP's "smoothed" one. The default is
    /// "exchange".
    pub(crate) round_trip: Option<Word<RoundTrip>>,
}

vocabulary!(RoundTrip as "ProbeRoundTrip" { Self::Exchange => "exchange", Self::Smoothed => "smoothed" });

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
    /// It begins so long before the predicted cut. The default is a round trip with its queues.
    pub(crate) lead: Option<Time>,
    /// It ends so long after the cut was to come, if it does not. The default is 100 ms.
    pub(crate) overdue: Option<Time>,
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
    /// ACKs sent within so long before the cut are taken to be lost. The default is 30 ms.
    pub(crate) ladder: Option<Time>,
    /// Whether the echoed timestamps are moved forward. The default is true.
    pub(crate) refresh_timestamps: Option<bool>,
    /// The host's own ACKs have theirs moved forward for so long after link-up. The default is 1 s.
    pub(crate) refresh_for: Option<Time>,
    /// Whether one byte is acknowledged before all the rest. The default is true.
    pub(crate) two_steps: Option<bool>,
}
