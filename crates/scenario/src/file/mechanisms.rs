//! `[host.mechanisms]`.

use holdover_mobility::probe::RoundTrip;
use holdover_mobility::timestamp_echo::{Echo, Since};
use holdover_tcp::AfterRetransmit;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::file::Srp;
use crate::quantity::{Bytes, Time};
use crate::word::{OrNone, Word, vocabulary};

/// The actions of a host for its connections when its links go down and come up. A mechanism is on if its table is present,
/// even an empty one.
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Mechanisms {
    /// The last ACK is sent again, several times, when the link comes up.
    pub(crate) reconnect_acks: Option<ReconnectAcks>,
    /// The host advertises a window of zero from shortly before its link goes down until it is up again.
    pub(crate) freeze: Option<Freeze>,
    /// Echoed timestamps from before an outage are advanced by the length of the outage.
    pub(crate) timestamp_echo: Option<TimestampEcho>,
    /// The host retransmits at once when the peer may be reachable again.
    pub(crate) retransmission_trigger: Option<RetransmissionTrigger>,
    /// The host sets a long user timeout around a disconnection.
    pub(crate) user_timeout: Option<UserTimeoutPolicy>,
    /// The host advertises a smaller window in a new cell, which grows with the data that arrive.
    pub(crate) new_cell_window: Option<NewCellWindow>,
    /// After a handoff, the host retransmits its own data at once, and sends three identical ACKs to its peers (FR-TCP).
    pub(crate) fast_retransmit: Option<FastRetransmit>,
    /// After a handoff the host notifies the peer, which probes the new path and repairs losses (PROBE). Both ends need it.
    pub(crate) probe: Option<Probe>,
    /// A notification of a failed attempt from a base station restarts the host's retransmission timer (EBSN). A router needs
    /// `ebsn` too.
    pub(crate) ebsn: Option<EbsnSender>,
    /// The third and later duplicate ACKs wait until the hole is filled, or for a time (Vaidya and others).
    pub(crate) delayed_dupacks: Option<DelayedDupacks>,
    /// The host splits connections and carries them over its link by selective repeat (MTCP/SRP). The router at the other end
    /// needs `srp` too.
    pub(crate) srp: Option<Srp>,
    /// The host withholds the ACK of the last segments while data flows, so that it can acknowledge new data after a cut.
    pub(crate) hold_back: Option<HoldBack>,
    /// The host sends no ACK in the last moments before a predicted cut.
    pub(crate) ack_stall: Option<AckStall>,
    /// The host sends ICMP host unreachable to senders that have backed off, when the link comes up (RFC 6069).
    pub(crate) unreachable_poke: Option<UnreachablePoke>,
    /// `hold_back`, `ack_stall` and `unreachable_poke` together; those without a table of their own take their defaults.
    pub(crate) wake: Option<Wake>,
    /// How `hold_back`, `ack_stall` and `wake` release held ACKs when the link comes up.
    pub(crate) release: Option<Release>,
}

/// The fixed host's part of EBSN: notifications restart its retransmission timer.
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct EbsnSender {
    /// How long notifications may restart the timer while no new data is acknowledged. The default is 100 s.
    pub(crate) longest: Option<Time>,
}

/// Duplicate ACKs wait for retransmissions of the wireless link.
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct DelayedDupacks {
    /// The time from the third duplicate until all waiting duplicates are sent. The default is 100 ms.
    pub(crate) delay: Option<Time>,
}

/// A retransmission at once, as though the timer had expired, when the peer may be reachable again (Schuetz and others).
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RetransmissionTrigger {
    /// The timer's backoff after the retransmission. The default is "reset".
    pub(crate) backoff: Option<Word<AfterRetransmit>>,
    /// Whether the retransmission counts towards TCP's retry limit. The default is that it does not.
    pub(crate) counts: Option<bool>,
    /// How the peer is made to retransmit: "none", by an "option", or by "duplicate-acks". The default is "option".
    pub(crate) peer: Option<Word<PeerTriggerKind>>,
    /// With "duplicate-acks": how many segments carry the same ACK number, at least 4. The default is 4.
    pub(crate) copies: Option<u8>,
    /// With "duplicate-acks": whether retransmissions count among them. The default is that they do.
    pub(crate) piggyback: Option<bool>,
    /// Whether congestion state is reset in a new network even if the timer has not expired. The default is that it is.
    pub(crate) forced_slow_start: Option<bool>,
    /// The least time between two triggers on a connection. The default is 500 ms.
    pub(crate) min_interval: Option<Time>,
}

vocabulary!(AfterRetransmit as "AfterRetransmit" {
    Self::BackOff => "back-off",
    Self::Keep => "keep",
    Self::Reset => "reset",
});

/// How the peer is made to retransmit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PeerTriggerKind {
    None,
    Option,
    DuplicateAcks,
}

vocabulary!(PeerTriggerKind as "PeerTrigger" {
    Self::None => "none",
    Self::Option => "option",
    Self::DuplicateAcks => "duplicate-acks",
});

/// A long user timeout around a disconnection, also advertised to the peer (RFC 5482).
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct UserTimeoutPolicy {
    /// The long user timeout. The default is 15 min.
    pub(crate) long: Option<Time>,
    /// The timeout advertised afterwards on a connection that advertised none before. The default is nothing.
    pub(crate) afterwards: Option<Time>,
    /// How long after the disconnection the former timeout is restored. The default is 10 s.
    pub(crate) linger: Option<Time>,
}

/// The last ACK, sent several times when the link comes up (Caceres and Iftode; Freeze-TCP's TR-ACKs).
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReconnectAcks {
    /// How many copies. The default is 3.
    pub(crate) copies: Option<u8>,
    /// The largest window that the copies advertise after a change of attachment. The default is the real window.
    pub(crate) restart_window: Option<Bytes>,
    /// Whether the copies carry the mark by which M-TCP's supervisor host recognises a disconnection. The default is false.
    pub(crate) marked: Option<bool>,
    /// Connections are skipped if their peer sent nothing for this long before the cut. The default is 10 min.
    pub(crate) idle: Option<Time>,
}

/// A window of zero from shortly before the link goes down until it is up again (Freeze-TCP). It needs a warning: the
/// host's foresight, or a mobile host's prediction.
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Freeze {
    /// When freezing begins: "round-trips" (before the cut), "fixed" (before the cut), "whole-lead" (with the warning) or
    /// "adaptive". The default is "round-trips".
    pub(crate) warning: Option<Word<WarningKind>>,
    /// How many measured round trips before the cut, with "round-trips". The default is 1.
    pub(crate) round_trips: Option<f64>,
    /// How long before the cut, with "fixed".
    pub(crate) period: Option<Time>,
    /// The adjustment after each cut, with "adaptive". The default is 10 ms.
    pub(crate) step: Option<Time>,
    /// How many ACKs with a window of zero are sent at once. The default is 1.
    pub(crate) zero_window_acks: Option<u8>,
    /// How long TCP may delay the ACK of data while frozen before the mechanism requests one, or "none" for no limit. The
    /// default is 0 s.
    pub(crate) ask_after: Option<OrNone<Time>>,
    /// Connections are skipped if no data arrived for this long. The default is 1 s.
    pub(crate) flowing: Option<Time>,
    /// Whether a window probe ends the freeze, as in the thesis. The default is false.
    pub(crate) thaw_on_probe: Option<bool>,
    /// Whether the host sends one window update when the link comes up. The default is false.
    pub(crate) update_at_up: Option<bool>,
    /// Whether the host sets the reserved flag of the IPv4 header with every window of zero, and answers data with that flag
    /// with the real window, for a gateway with `sign = "ip-flag"`. The default is false.
    pub(crate) ip_flag: Option<bool>,
    /// The freeze ends if no cut follows for this long after the predicted moment. The default is 1 s.
    pub(crate) patience: Option<Time>,
}

/// When freezing begins.
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

/// Echoed timestamps from before an outage are advanced by the length of the outage, so that the sender does not measure
/// it as a round trip (the timestamp echo update of the thesis on Freeze-TCP).
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct TimestampEcho {
    /// The start of the outage: the last "zero-window" after the warning, or the "last-ack" before the cut. The default is
    /// "zero-window".
    pub(crate) since: Option<Word<Since>>,
    /// The timestamp echoed at other times: TCP's "own" choice, or the "newest" of a segment that is not beyond a gap.
    /// The default is "own".
    pub(crate) echo: Option<Word<Echo>>,
}

vocabulary!(Since as "OutageSince" { Self::ZeroWindow => "zero-window", Self::LastAck => "last-ack" });
vocabulary!(Echo as "TimestampToEcho" { Self::Own => "own", Self::Newest => "newest" });

/// A smaller window in a new cell, which grows with the data that arrive (an idea of the thesis on Freeze-TCP).
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewCellWindow {
    /// The initial window. The default is 14600 bytes.
    pub(crate) initial: Option<Bytes>,
    /// The growth as a percentage of newly acknowledged data. The default is 100, as in slow start.
    pub(crate) growth: Option<u32>,
}

/// After a handoff, the host retransmits its own data at once, and sends identical ACKs to its peers (Caceres and
/// Iftode).
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct FastRetransmit {
    /// How many ACKs each peer receives. The default is 3.
    pub(crate) copies: Option<u8>,
    /// Whether the host retransmits its own data. The default is true.
    pub(crate) own_data: Option<bool>,
    /// True: only a change of attachment triggers it; false: every return of the link. The default is true.
    pub(crate) only_moved: Option<bool>,
}

/// Explicit handoff recovery (PROBE). Both ends need it, and their own TCP.
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Probe {
    /// How many nacks each peer receives after a handoff. The default is 3.
    pub(crate) nacks: Option<u8>,
    /// How many probe segments the sender sends, at least 1; at least two are needed to measure a bandwidth. The default is
    /// 3.
    pub(crate) probes: Option<u8>,
    /// Whether the host probes for its own data after its own handoff. The default is true.
    pub(crate) own_data: Option<bool>,
    /// True: only a change of attachment triggers it; false: every return of the link. The default is true.
    pub(crate) only_moved: Option<bool>,
    /// How long the receiver waits for the next probe before it answers. The default is 200 ms.
    pub(crate) patience: Option<Time>,
    /// The round trip from which the threshold is computed: of the "exchange" of probes and answer, or TCP's "smoothed" one.
    /// The default is "exchange".
    pub(crate) round_trip: Option<Word<RoundTrip>>,
}

vocabulary!(RoundTrip as "ProbeRoundTrip" { Self::Exchange => "exchange", Self::Smoothed => "smoothed" });

/// The host withholds the ACK of the last segments while data flows, so that it can acknowledge new data after a cut.
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct HoldBack {
    /// How many whole segments, at most 63. The default is 4.
    pub(crate) segments: Option<u8>,
    /// Nothing is held until this much has been acknowledged. The default is 150 kB.
    pub(crate) after: Option<Bytes>,
    /// Nothing is held for this long after link-up. The default is 1 s.
    pub(crate) pause: Option<Time>,
    /// Held ACKs are released if no newer ACK comes for this long. The default is 40 ms.
    pub(crate) flush: Option<Time>,
}

/// The host sends no ACK in the last moments before a predicted cut.
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct AckStall {
    /// How long before the predicted cut it begins. The default is a round trip, including queueing.
    pub(crate) lead: Option<Time>,
    /// How long after the predicted moment it ends, if no cut follows. The default is 100 ms.
    pub(crate) overdue: Option<Time>,
}

/// The host sends ICMP host unreachable to senders that have backed off, when the link comes up (RFC 6069).
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct UnreachablePoke {
    /// How many messages. The default is 12.
    pub(crate) copies: Option<u8>,
    /// The time between two messages. The default is 1 ms.
    pub(crate) every: Option<Time>,
}

/// `hold_back`, `ack_stall` and `unreachable_poke` together.
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Wake {
    /// The host detects that its link is silent, which no event of the link reports. The default is that it does not.
    pub(crate) silence: Option<Silence>,
    /// Whether copies of short unacknowledged segments of the host are sent when the link comes up, and to probe a peer. The default is that
    /// they are if `silence` is given.
    pub(crate) own_data: Option<bool>,
}

/// The host detects that TCP sends and nothing arrives, probes a peer, and wakes its connections when something arrives again.
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Silence {
    /// Silence is suspected after data has been unanswered for this long, and for four round trips. The default is 1 s.
    pub(crate) after: Option<Time>,
    /// Whether a peer is probed. Otherwise only TCP's own packets count. The default is true.
    pub(crate) probes: Option<bool>,
}

/// How held ACKs are released when the link comes up.
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Release {
    /// How long after link-up the release begins; it is cancelled if data arrives earlier. The default is 1 ms.
    pub(crate) grace: Option<Time>,
    /// ACKs sent within this time before the cut may have been lost. The default is 30 ms.
    pub(crate) ladder: Option<Time>,
    /// Whether the echoed timestamps are advanced. The default is true.
    pub(crate) refresh_timestamps: Option<bool>,
    /// How long after link-up the echoed timestamps of the host's own ACKs are advanced. The default is 1 s.
    pub(crate) refresh_for: Option<Time>,
    /// Whether one byte is acknowledged before all the rest. The default is true.
    pub(crate) two_steps: Option<bool>,
}
