//! The state of one silence: evidence, and the deadlines of probes to next hops and a peer.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use holdover_base::{Duration, Instant};
use holdover_filter::Connection;

use super::Unanswered;

/// The state of a silence.
#[derive(Clone, Debug)]
pub(super) struct Suspicion {
    /// The time of the last incoming packet.
    pub(super) since: Instant,
    /// When TCP sent the first unanswered packet; without any, the time of the suspicion.
    pub(super) unanswered_since: Instant,
    /// The time of the first probe.
    pub(super) began_at: Instant,
    pub(super) next_hops_at: Instant,
    /// Probes of next hops since the last answer.
    pub(super) questions: u32,
    pub(super) broadcast_at: Instant,
    /// The last answer of a next hop.
    pub(super) answered_at: Option<Instant>,
    pub(super) peer_at: Instant,
    /// The probed peer.
    pub(super) peer: Option<Connection>,
    /// Probes of it.
    pub(super) peer_questions: u32,
    /// The longest smoothed round trip of the waiting connections.
    pub(super) round_trip: Duration,
    /// Connections with unanswered data.
    pub(super) evidence: BTreeMap<Connection, Option<Instant>>,
    /// Whether they suffice to exclude that only the peer is gone.
    pub(super) is_strong: bool,
    /// The host's own addresses of these connections and others.
    pub(super) own_addresses: BTreeSet<IpAddr>,
}

/// A peer whose last packet is at most this old when silence begins "answered recently".
const RECENTLY: Duration = Duration::from_secs(10);

/// The shortest interval between the first probes of next hops. A station in power save gets what is queued for it at its access point's next
/// beacon, some 102 ms apart: several probes in a row are not missed for that alone.
const ASK_EVERY: Duration = Duration::from_millis(30);

/// The longest interval between the first probes of next hops, and the one where no answer has been timed.
const ASK_EVERY_AT_MOST: Duration = Duration::from_millis(100);

/// The interval between probes of silent next hops, which bounds the delay in noticing their return.
const SEEK_EVERY: Duration = Duration::from_millis(25);

/// The share of the silence between two probes: a 500th. The end of an outage of 20 s is noticed at most 40 ms late, so that transfers
/// still resume within one and a half round trips and a full queue. That is 40 probes a second for 12 s, some 1,300 in the first minute
/// of an outage and 350 in the second: 85 kB and 23 kB with IPv4, and more where they are copies of a segment.
const SEEK_SHARE: u64 = 500;

/// How long a peer is probed at this rate while the link is not reported down.
const SEEK_SILENT_PEER_FOR: Duration = Duration::from_secs(30);

/// The longest interval between probes.
const SEEK_EVERY_AT_MOST: Duration = Duration::from_secs(1);

/// The interval between broadcast probes of a link.
pub(super) const BROADCAST_EVERY: Duration = Duration::from_secs(1);

/// A next hop that missed this many consecutive probes was silent, so that its answer ends the silence.
pub(super) const MISSED: u32 = 3;

/// The shortest interval between probes of a peer that has missed none, or behind a next hop.
const ASK_PEER_EVERY: Duration = Duration::from_millis(100);

/// How long a peer is probed: it may be one that does not answer such probes.
const ASK_PEER_FOR: Duration = Duration::from_secs(120);

impl Suspicion {
    pub(super) fn new(
        now: Instant,
        since: Instant,
        unanswered_since: Instant,
        peer: Option<Connection>,
        round_trip: Duration,
        evidence: BTreeMap<Connection, Option<Instant>>,
        is_strong: bool,
    ) -> Self {
        Self {
            since,
            unanswered_since,
            began_at: now,
            next_hops_at: now,
            questions: 0,
            broadcast_at: now,
            answered_at: None,
            peer_at: now,
            peer,
            peer_questions: 0,
            round_trip,
            evidence,
            is_strong,
            own_addresses: BTreeSet::new(),
        }
    }

    pub(super) fn may_ask_peer(&self, now: Instant) -> bool {
        self.peer.is_some() && now.saturating_since(self.began_at) < ASK_PEER_FOR
    }

    /// Whether no probe is left for a stream that has stopped.
    pub(super) fn is_answered(&self, now: Instant, is_alone: bool) -> bool {
        let has_no_peer = self.peer.is_none() && (is_alone || self.answered_at.is_some());
        has_no_peer || now.saturating_since(self.began_at) >= RECENTLY
    }

    /// The time until the next probe of next hops: `ask_every` at first, then short, and growing with the age of the silence.
    pub(super) fn seek_every(&self, now: Instant, ask_every: Duration) -> Duration {
        if self.answered_at.is_some() {
            return (now.saturating_since(self.unanswered_since) / 20).max(SEEK_EVERY_AT_MOST);
        }
        let wait = now.saturating_since(self.unanswered_since);
        if self.questions <= MISSED { ask_every } else { (wait / SEEK_SHARE).max(SEEK_EVERY).min(SEEK_EVERY_AT_MOST) }
    }

    /// The time until the next probe of a peer: a round trip at first, growing with the age of the silence. Without a next
    /// hop to probe (`is_alone`), it is half a round trip at first, and a peer that has missed some probes is probed like a
    /// next hop: its answer ends the silence. While the link is not reported down, the peer may be one that does not answer such probes, so that is
    /// limited. The age of the outage counts from TCP's first unanswered packet; how long the connection was idle before
    /// does not matter.
    pub(super) fn peer_every(&self, now: Instant, is_alone: bool, is_silent: bool) -> Duration {
        let wait = now.saturating_since(self.unanswered_since);
        if is_alone && self.peer_questions > MISSED && (is_silent || wait < SEEK_SILENT_PEER_FOR) {
            return (wait / SEEK_SHARE).max(self.round_trip / 4).max(SEEK_EVERY);
        }
        if is_alone && self.peer_questions <= MISSED {
            return (self.round_trip / 2).max(ASK_EVERY);
        }
        (wait / 40).max(self.round_trip).max(ASK_PEER_EVERY)
    }
}

/// The interval between the first probes of next hops: several times what their answers take.
pub(super) fn ask_every(answers_in: Option<Duration>) -> Duration {
    answers_in.map_or(ASK_EVERY_AT_MOST, |answers_in| (answers_in * 4).clamp(ASK_EVERY, ASK_EVERY_AT_MOST))
}

/// Whether these connections suffice to conclude that the link is silent and not a peer: several peers, or one with a
/// recent packet.
pub(super) fn is_strong(evidence: &[Unanswered], since: Instant) -> bool {
    let peers: BTreeSet<IpAddr> = evidence.iter().map(|unanswered| unanswered.connection.remote.ip()).collect();
    let was_heard =
        |unanswered: &Unanswered| unanswered.heard_at.is_some_and(|at| since.saturating_since(at) <= RECENTLY);
    peers.len() > 1 || evidence.iter().any(was_heard)
}
