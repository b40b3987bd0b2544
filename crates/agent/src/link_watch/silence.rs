//! **Silence.** In an outage without loss of carrier, TCP sends and nothing arrives; nothing else shows it. On mobile
//! networks most outages are of this kind. One detector for each interface finds them, in three steps:
//!
//! 1. *Passive.* TCP has sent data, and no TCP packet has arrived for [`SilenceOptions::after`] and four round trips.
//!    Connections whose peer fell silent while others were answered do not count: there the peer is gone, not the link.
//! 2. *Suspected.* The path reports the next incoming packet ([`Act::Listen`]), and the next hop and one peer are probed
//!    ([`Act::AskNextHops`], [`Act::AskPeer`]). The same happens when an incoming stream stops, but with probes first.
//! 3. *Silent.* The link is down ([`Act::TellDown`]) if no next hop answers that has answered before, or if TCP has had
//!    no answer for `PEERS_SILENT_AFTER` and twelve round trips, from several peers or from one that had answered recently.
//!
//! The first incoming TCP packet ends it, as does the answer of a next hop that had been silent; then every waiting
//! connection is woken. An error costs little: neither step 2 nor step 3 changes the handling of packets, and a connection
//! that flows by itself is not woken.
//!
//! Broadcasts, ICMP, neighbour discovery and DNS answers prove nothing about the path and do not count. Other incoming
//! packets (UDP, tunnels) contradict step 3. Neither an idle link nor one with answered traffic is probed.
//!
//! The shell calls, at the time of [`SilenceWatch::poll_timeout`]: [`SilenceWatch::handle_traffic`], then
//! [`SilenceWatch::poll_act`] until `None`; it answers [`Act::Survey`] by [`SilenceWatch::handle_survey`] before the next.
//! Answers of next hops ([`SilenceWatch::handle_answer`]) may come at any time.

mod observed;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::IpAddr;

use holdover_base::{Duration, Instant};
use holdover_mobility::Connection;

pub use self::observed::{Survey, Traffic, Unanswered};

/// Parameters of silence detection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SilenceOptions {
    /// Silence is suspected after this long without packets, and four round trips.
    pub after: Duration,
    /// A next hop that does not answer for three times this long is silent.
    pub every: Duration,
    /// Whether next hops and peers are probed. Otherwise only TCP's own packets count.
    pub asks: bool,
}

/// An action for the shell.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Act {
    /// Survey the connections and report to [`SilenceWatch::handle_survey`].
    Survey,
    /// Report the first incoming packet: none has arrived since `since`.
    Listen {
        /// The time of the last incoming packet.
        since: Instant,
    },
    /// Probe every next hop of the interface.
    AskNextHops {
        /// By broadcast, in case its Ethernet address has changed.
        is_broadcast: bool,
    },
    /// Probe a peer.
    AskPeer(Connection),
    /// The link is down: nothing has arrived since `since`.
    TellDown {
        /// The time of the last incoming packet.
        since: Instant,
    },
    /// Packets arrive again: wake waiting connections. The link is up if it was reported down.
    End,
}

/// The silence detector of one interface.
#[derive(Clone, Debug)]
pub struct SilenceWatch {
    options: SilenceOptions,
    /// The next hops that can be probed; empty without any.
    next_hops: BTreeSet<IpAddr>,
    /// Those that have ever answered.
    answering: BTreeSet<IpAddr>,
    traffic: Option<Traffic>,
    looked_at: Instant,
    look_at: Instant,
    /// The last time that TCP was active.
    active_at: Option<Instant>,
    /// The check that saw the last incoming TCP packet.
    heard_at: Instant,
    /// The time of the last other incoming packet that counts.
    others_at: Option<Instant>,
    /// Since when TCP has sent without any incoming packet.
    sent_since: Option<Instant>,
    /// TCP has sent something since the last survey.
    is_to_be_surveyed: bool,
    surveyed_at: Option<Instant>,
    /// The last check that saw an incoming stream, unless other packets arrived after it.
    stream_at: Option<Instant>,
    phase: Phase,
    /// The last probe of a next hop that only tested whether it answers at all.
    met_at: Option<Instant>,
    /// Connections whose peer fell silent while others were answered, with the time of its last packet.
    gone: BTreeMap<Connection, Option<Instant>>,
    acts: VecDeque<Act>,
}

#[derive(Clone, Debug)]
enum Phase {
    /// No suspicion.
    Calm,
    /// A stream has stopped, which may be its end.
    Asking(Suspicion),
    /// TCP has had no answer. The path reports incoming packets.
    Suspected(Suspicion),
    /// The link is reported down.
    Silent(Suspicion),
}

/// The state of a silence.
#[derive(Clone, Debug)]
struct Suspicion {
    /// The time of the last incoming packet.
    since: Instant,
    /// When TCP sent the first unanswered packet; without any, the time of the suspicion.
    unanswered_since: Instant,
    /// The time of the first probe.
    began_at: Instant,
    next_hops_at: Instant,
    /// Probes of next hops since the last answer.
    questions: u32,
    broadcast_at: Instant,
    /// The last answer of a next hop.
    answered_at: Option<Instant>,
    peer_at: Instant,
    /// The probed peer.
    peer: Option<Connection>,
    /// Probes of it.
    peer_questions: u32,
    /// The longest smoothed round trip of the waiting connections.
    round_trip: Duration,
    /// Connections with unanswered data.
    evidence: BTreeMap<Connection, Option<Instant>>,
    /// Whether they suffice to exclude that only the peer is gone.
    is_strong: bool,
    /// The host's own addresses of these connections and others.
    own_addresses: BTreeSet<IpAddr>,
}

/// The interval between checks of the counters, while TCP is active.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// The interval between checks of the counters on an idle link.
const IDLE_LOOK_EVERY: Duration = Duration::from_secs(1);

/// How long TCP counts as active after its last packet.
const ACTIVE_FOR: Duration = Duration::from_secs(5);

/// Incoming packets between two checks that make a stream: fewer may be interactive traffic.
const STREAM_PACKETS: u64 = 8;

/// The longest delay of an ACK (Linux's `TCP_DELACK_MAX`).
const DELAYED_ACK: Duration = Duration::from_millis(200);

/// A peer whose last packet is at most this old when silence begins "answered recently".
const RECENTLY: Duration = Duration::from_secs(10);

/// After this long, silence of TCP alone is link-down: RFC 6298's timer has expired at least twice.
const PEERS_SILENT_AFTER: Duration = Duration::from_secs(3);

/// The interval between probes of next hops while silence is suspected: longer than any answer takes on a link (an
/// access point's beacon interval, after which a station in power save gets its queued packets).
const ASK_EVERY: Duration = Duration::from_millis(100);

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
const BROADCAST_EVERY: Duration = Duration::from_secs(1);

/// A next hop that missed this many consecutive probes was silent, so that its answer ends the silence.
const MISSED: u32 = 3;

/// The shortest interval between probes of a peer that has missed none, or behind a next hop.
const ASK_PEER_EVERY: Duration = Duration::from_millis(100);

/// How long a peer is probed: it may be one that does not answer such probes.
const ASK_PEER_FOR: Duration = Duration::from_secs(120);

/// The interval between tests of a next hop that has never answered.
const MEET_AGAIN_AFTER: Duration = Duration::from_secs(60);

/// The shortest interval between surveys.
const SURVEY_EVERY: Duration = Duration::from_millis(500);

/// The most connections with peers that are gone.
const MOST_GONE: usize = 4096;

impl SilenceWatch {
    /// Without any traffic yet.
    pub fn new(now: Instant, options: SilenceOptions) -> Self {
        Self {
            options,
            next_hops: BTreeSet::new(),
            answering: BTreeSet::new(),
            traffic: None,
            looked_at: now,
            look_at: now,
            active_at: None,
            heard_at: now,
            others_at: None,
            sent_since: None,
            is_to_be_surveyed: false,
            surveyed_at: None,
            stream_at: None,
            phase: Phase::Calm,
            met_at: None,
            gone: BTreeMap::new(),
            acts: VecDeque::new(),
        }
    }

    /// Whether the link is reported down.
    pub const fn is_silent(&self) -> bool {
        matches!(self.phase, Phase::Silent(_))
    }

    /// The host's own addresses to probe next hops from, as surveyed ([`Survey::own_addresses`]).
    pub fn own_addresses(&self) -> BTreeSet<IpAddr> {
        match &self.phase {
            Phase::Asking(found) | Phase::Suspected(found) | Phase::Silent(found) => found.own_addresses.clone(),
            Phase::Calm => BTreeSet::new(),
        }
    }

    /// Sets the next hops that can be probed. Those that are `known` to have answered need no test.
    pub fn handle_next_hops(&mut self, next_hops: &BTreeSet<IpAddr>, known: impl IntoIterator<Item = IpAddr>) {
        if self.next_hops != *next_hops {
            self.next_hops.clone_from(next_hops);
            self.answering.retain(|next_hop| next_hops.contains(next_hop));
            self.met_at = None;
        }
        self.answering.extend(known.into_iter().filter(|known| next_hops.contains(known)));
    }

    /// Handles the traffic counters. `is_listening`: nothing has been reported since [`Act::Listen`].
    pub fn handle_traffic(&mut self, now: Instant, traffic: Traffic, is_listening: bool) {
        let before = self.traffic.replace(traffic);
        let looked_at = std::mem::replace(&mut self.looked_at, now);
        let Some(before) = before else {
            self.heard_at = now;
            return self.schedule(now);
        };
        // Programs that were attached again count from 0.
        let grown = |now: u64, before: u64| now.checked_sub(before).unwrap_or(now);
        let received = grown(traffic.tcp_received, before.tcp_received);
        let sent = grown(traffic.tcp_sent, before.tcp_sent);
        if sent + received > 0 {
            self.active_at = Some(now);
        }
        if grown(traffic.others_received, before.others_received) > 0 {
            self.others_at = Some(now);
        }
        if received > 0 {
            self.heard_at = now;
            // The end of a stream has few packets.
            let was_stream = self.stream_at.filter(|&at| now.saturating_since(at) <= LOOK_EVERY * 2);
            self.stream_at = if received >= STREAM_PACKETS { Some(now) } else { was_stream };
            self.end(now, true);
        } else if self.listens() && !is_listening {
            self.end(now, true);
        } else {
            if sent > 0 {
                self.sent_since.get_or_insert(looked_at);
                self.is_to_be_surveyed = true;
            }
            self.proceed(now);
        }
        self.meet(now, received > 0);
        self.schedule(now);
    }

    /// Handles the survey of the connections, for [`Act::Survey`].
    pub fn handle_survey(&mut self, now: Instant, survey: &Survey) {
        let since = survey.heard_at.unwrap_or(self.heard_at).min(now);
        let (evidence, round_trip) = self.evidence(now, &survey.unanswered);
        let peer = survey.recent.or_else(|| evidence.first().map(|unanswered| unanswered.connection));
        let is_strong = is_strong(&evidence, since);
        let evidence = evidence.iter().map(|unanswered| (unanswered.connection, unanswered.heard_at)).collect();
        match &mut self.phase {
            Phase::Calm => {
                let was_stream = self.stream_at.take().is_some();
                let round_trip = round_trip.max(survey.round_trip);
                let unanswered_since = self.sent_since.unwrap_or(now);
                let found = Suspicion {
                    own_addresses: survey.own_addresses.clone(),
                    ..Suspicion::new(now, since, unanswered_since, peer, round_trip, evidence, is_strong)
                };
                let is_too_soon = survey.unanswered.iter().any(|unanswered| !self.is_gone(unanswered));
                if !found.evidence.is_empty() {
                    self.suspect(found);
                } else {
                    // Pure ACKs are not answered: the time counts from the next data.
                    self.is_to_be_surveyed = is_too_soon;
                    self.sent_since = self.sent_since.filter(|_| is_too_soon);
                    if was_stream && self.options.asks {
                        self.phase = Phase::Asking(found);
                    }
                }
            }
            Phase::Asking(found) | Phase::Suspected(found) | Phase::Silent(found) => {
                found.is_strong |= is_strong;
                found.round_trip = found.round_trip.max(round_trip);
                found.evidence = evidence;
                found.peer = found.peer.or(peer);
                found.own_addresses.clone_from(&survey.own_addresses);
                if let Phase::Asking(found) = &self.phase
                    && !found.evidence.is_empty()
                {
                    let found = found.clone();
                    self.suspect(found);
                }
            }
        }
        self.proceed(now);
        self.schedule(now);
    }

    /// Handles the answer of a next hop.
    pub fn handle_answer(&mut self, now: Instant, next_hop: IpAddr) {
        if !self.next_hops.contains(&next_hop) {
            return;
        }
        self.answering.insert(next_hop);
        let (Phase::Asking(found) | Phase::Suspected(found) | Phase::Silent(found)) = &mut self.phase else { return };
        let was_silent = found.questions > MISSED;
        (found.questions, found.answered_at) = (0, Some(now));
        if was_silent && self.listens() {
            self.end(now, false);
            self.schedule(now);
        }
    }

    /// Another source has reported the state of the link: drops the suspicion.
    pub fn handle_link(&mut self, now: Instant) {
        (self.phase, self.sent_since, self.stream_at) = (Phase::Calm, None, None);
        (self.heard_at, self.acts) = (now, VecDeque::new());
        self.schedule(now);
    }

    /// The next action.
    pub fn poll_act(&mut self) -> Option<Act> {
        self.acts.pop_front()
    }

    /// The time of the next check.
    pub const fn poll_timeout(&self) -> Instant {
        self.look_at
    }

    const fn listens(&self) -> bool {
        matches!(self.phase, Phase::Suspected(_) | Phase::Silent(_))
    }

    /// Connections whose silence is evidence: old enough, and with peers that were not gone before.
    fn evidence(&mut self, now: Instant, unanswered: &[Unanswered]) -> (Vec<Unanswered>, Duration) {
        let sent_since = self.sent_since.unwrap_or(now);
        let mut round_trip = Duration::ZERO;
        let mut evidence = Vec::new();
        for found in unanswered {
            if self.is_gone(found) {
                continue;
            }
            let of_path = found.round_trip.unwrap_or_default();
            let from = found.heard_at.map_or(sent_since, |at| at.max(sent_since));
            if now.saturating_since(from) >= self.options.after.max(of_path * 4 + DELAYED_ACK) {
                round_trip = round_trip.max(of_path);
                evidence.push(*found);
            }
        }
        (evidence, round_trip)
    }

    fn is_gone(&self, unanswered: &Unanswered) -> bool {
        self.gone.get(&unanswered.connection) == Some(&unanswered.heard_at)
    }

    /// Handles everything due.
    fn proceed(&mut self, now: Instant) {
        let is_late = self.sent_since.is_some_and(|since| now.saturating_since(since) >= self.options.after);
        let is_to_be_surveyed = is_late && self.is_to_be_surveyed;
        match &self.phase {
            Phase::Calm => {
                let has_stopped = self.stream_at.is_some()
                    && self.options.asks
                    && now.saturating_since(self.heard_at) >= self.options.after;
                if is_to_be_surveyed || has_stopped {
                    self.survey(now);
                }
            }
            Phase::Asking(found) => {
                let found = found.clone();
                let is_unanswered = found.peer_questions >= 2
                    && now.saturating_since(found.began_at) >= found.round_trip * 4 + DELAYED_ACK;
                if is_unanswered || found.questions > MISSED && self.all_have_answered_before() {
                    self.suspect(found);
                } else if found.is_answered(now, self.next_hops.is_empty()) {
                    self.phase = Phase::Calm;
                } else if is_to_be_surveyed {
                    self.survey(now);
                }
            }
            Phase::Suspected(found) => {
                if self.is_certain(now, found) {
                    self.acts.push_back(Act::TellDown { since: found.since });
                    self.phase = Phase::Silent(found.clone());
                } else if is_to_be_surveyed {
                    self.survey(now);
                }
            }
            Phase::Silent(_) => {
                if self.others_at.is_some_and(|at| at == now) {
                    self.end(now, false);
                }
            }
        }
        self.ask(now);
    }

    /// Unanswered data leads to one survey in a while: with tens of thousands of connections it takes 0.1 s.
    fn survey(&mut self, now: Instant) {
        if self.surveyed_at.is_none_or(|at| now.saturating_since(at) >= SURVEY_EVERY) {
            (self.surveyed_at, self.is_to_be_surveyed) = (Some(now), false);
            self.acts.push_back(Act::Survey);
        }
    }

    fn suspect(&mut self, found: Suspicion) {
        self.acts.push_back(Act::Listen { since: found.since });
        self.phase = Phase::Suspected(found);
    }

    fn is_certain(&self, now: Instant, found: &Suspicion) -> bool {
        // Packets of other protocols count only while the path reports them, which it has by now done for a while.
        if self.others_at.is_some_and(|at| at > found.since && now.saturating_since(at) < PEERS_SILENT_AFTER) {
            return false;
        }
        let are_next_hops_silent = found.questions > MISSED
            && self.all_have_answered_before()
            && now.saturating_since(found.answered_at.unwrap_or(found.began_at)) >= self.options.every * 3;
        let silence = now.saturating_since(found.since.max(self.sent_since.unwrap_or(found.since)));
        let are_peers_silent =
            found.is_strong && !found.evidence.is_empty() && silence >= PEERS_SILENT_AFTER.max(found.round_trip * 12);
        are_next_hops_silent || are_peers_silent
    }

    fn all_have_answered_before(&self) -> bool {
        !self.next_hops.is_empty() && self.next_hops.is_subset(&self.answering)
    }

    /// Sends due probes, to next hops or to a peer.
    fn ask(&mut self, now: Instant) {
        if !self.options.asks {
            return;
        }
        let (has_next_hops, is_silent) = (!self.next_hops.is_empty(), self.is_silent());
        let (Phase::Asking(found) | Phase::Suspected(found) | Phase::Silent(found)) = &mut self.phase else { return };
        if has_next_hops && found.next_hops_at <= now {
            let is_broadcast = found.questions >= 2 && found.broadcast_at <= now;
            if is_broadcast {
                found.broadcast_at = now + BROADCAST_EVERY;
            }
            found.questions += 1;
            found.next_hops_at = now + found.seek_every(now);
            self.acts.push_back(Act::AskNextHops { is_broadcast });
        }
        if let Some(peer) = found.peer.filter(|_| found.may_ask_peer(now))
            && found.peer_at <= now
        {
            found.peer_questions += 1;
            found.peer_at = now + found.peer_every(now, !has_next_hops, is_silent);
            self.acts.push_back(Act::AskPeer(peer));
        }
    }

    /// Tests once whether next hops answer at all, while TCP is active.
    fn meet(&mut self, now: Instant, is_answered: bool) {
        let is_known = self.next_hops.is_subset(&self.answering);
        let is_soon = self.met_at.is_some_and(|at| now.saturating_since(at) < MEET_AGAIN_AFTER);
        if is_answered && self.options.asks && !is_known && !is_soon {
            self.met_at = Some(now);
            self.acts.push_back(Act::AskNextHops { is_broadcast: false });
        }
    }

    /// A packet has arrived: TCP, or an answer.
    fn end(&mut self, now: Instant, is_tcp: bool) {
        self.sent_since = None;
        match std::mem::replace(&mut self.phase, Phase::Calm) {
            Phase::Suspected(found) | Phase::Silent(found) => {
                if is_tcp {
                    if self.gone.len() + found.evidence.len() > MOST_GONE {
                        self.gone.clear();
                    }
                    self.gone.extend(found.evidence);
                }
                self.heard_at = now;
                self.acts.push_back(Act::End);
            }
            Phase::Calm | Phase::Asking(_) => {}
        }
    }

    fn schedule(&mut self, now: Instant) {
        let is_active = self.active_at.is_some_and(|at| now.saturating_since(at) < ACTIVE_FOR);
        let look_at = now + if is_active { LOOK_EVERY } else { IDLE_LOOK_EVERY };
        self.look_at = match &self.phase {
            Phase::Calm => self.sent_since.map_or(look_at, |since| {
                let due = since + self.options.after;
                if due > now { look_at.min(due) } else { look_at }
            }),
            Phase::Asking(found) | Phase::Suspected(found) | Phase::Silent(found) => {
                let next_hops_at = if self.next_hops.is_empty() { look_at } else { found.next_hops_at };
                let peer_at = if found.may_ask_peer(now) { found.peer_at } else { look_at };
                look_at.min(next_hops_at.min(peer_at).max(now + Duration::from_millis(1)))
            }
        };
        if !self.options.asks {
            self.look_at = look_at;
        }
    }
}

impl Suspicion {
    fn new(
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

    fn may_ask_peer(&self, now: Instant) -> bool {
        self.peer.is_some() && now.saturating_since(self.began_at) < ASK_PEER_FOR
    }

    /// Whether no probe is left for a stream that has stopped.
    fn is_answered(&self, now: Instant, is_alone: bool) -> bool {
        let has_nobody = self.peer.is_none() && (is_alone || self.answered_at.is_some());
        has_nobody || now.saturating_since(self.began_at) >= RECENTLY
    }

    /// The time until the next probe of next hops: short at first, growing with the age of the silence.
    fn seek_every(&self, now: Instant) -> Duration {
        if self.answered_at.is_some() {
            return (now.saturating_since(self.unanswered_since) / 20).max(SEEK_EVERY_AT_MOST);
        }
        let wait = now.saturating_since(self.unanswered_since);
        if self.questions <= MISSED { ASK_EVERY } else { (wait / SEEK_SHARE).max(SEEK_EVERY).min(SEEK_EVERY_AT_MOST) }
    }

    /// The time until the next probe of a peer: a round trip at first, growing with the age of the silence. Without a next
    /// hop to probe (`is_alone`), a peer that has missed some probes is probed like a next hop: its answer ends the
    /// silence. While the link is not reported down, the peer may be one that does not answer such probes, so that is
    /// limited. The age of the outage counts from TCP's first unanswered packet; how long the connection was idle before
    /// does not matter.
    fn peer_every(&self, now: Instant, is_alone: bool, is_silent: bool) -> Duration {
        let wait = now.saturating_since(self.unanswered_since);
        if is_alone && self.peer_questions > MISSED && (is_silent || wait < SEEK_SILENT_PEER_FOR) {
            return (wait / SEEK_SHARE).max(self.round_trip / 4).max(SEEK_EVERY);
        }
        (wait / 40).max(self.round_trip).max(ASK_PEER_EVERY)
    }
}

/// Whether these connections suffice to conclude that the link is silent and not a peer: several peers, or one with a
/// recent packet.
fn is_strong(evidence: &[Unanswered], since: Instant) -> bool {
    let peers: BTreeSet<IpAddr> = evidence.iter().map(|unanswered| unanswered.connection.remote.ip()).collect();
    let was_heard =
        |unanswered: &Unanswered| unanswered.heard_at.is_some_and(|at| since.saturating_since(at) <= RECENTLY);
    peers.len() > 1 || evidence.iter().any(was_heard)
}

#[cfg(test)]
mod tests;
