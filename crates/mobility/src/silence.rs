//! **Silence.** In an outage without loss of carrier, TCP sends and nothing arrives; nothing else shows it. On mobile
//! networks most outages are of this kind. One detector for each interface finds them, in three steps:
//!
//! 1. *Passive.* TCP has sent data, and no TCP packet has arrived for [`SilenceOptions::after`] and four round trips.
//!    Connections whose peer fell silent while others were answered do not count: there the peer is gone, not the link.
//!    *Earlier*, after `CHECK_AFTER` and two round trips, or when an incoming stream stops for as long, next hops that have answered before
//!    are probed, and no peer, as next hops answer quickly. If they miss `MISSED` probes, silence is suspected. If they answer,
//!    nothing is suspected until another packet has arrived. Without a next hop the peer is probed as early once TCP has retransmitted a short segment in vain.
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
//! [`SilenceWatch::poll_act`] until `None`; it answers [`Act::Survey`] by [`SilenceWatch::handle_survey`] before the next, with what a [`Surveyor`]
//! finds.
//! Answers of next hops ([`SilenceWatch::handle_answer`]) may come at any time.

mod act;
mod looks;
mod observed;
mod probes;
mod survey;
mod suspicion;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::IpAddr;

use holdover_base::{Duration, Instant};
use holdover_filter::Connection;

pub use self::act::Act;
use self::looks::UNANSWERED_LOOK_EVERY;
pub use self::observed::{Survey, Traffic, Unanswered, comes_from_beyond};
pub use self::survey::Surveyor;
use self::suspicion::{MISSED, Suspicion, is_strong};

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

impl Default for SilenceOptions {
    /// Silence is suspected after a second; next hops and peers are probed.
    fn default() -> Self {
        Self { after: Duration::from_secs(1), every: Duration::from_millis(250), asks: true }
    }
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
    /// Nothing is due while TCP is at rest.
    is_at_rest: bool,
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
    /// The earliest next survey.
    survey_at: Instant,
    /// The last check that saw an incoming stream, unless other packets arrived after it.
    stream_at: Option<Instant>,
    phase: Phase,
    /// The last probe of a next hop that only tested whether it answers at all.
    met_at: Option<Instant>,
    /// The last probe of next hops, until the first answer.
    asked_at: Option<Instant>,
    /// How long next hops take to answer: the longest of the last answers.
    answers_in: Option<Duration>,
    /// Next hops have answered a check, and no TCP packet has arrived since.
    is_checked: bool,
    /// Connections whose peer fell silent while others were answered, with the time of its last packet.
    gone: BTreeMap<Connection, Option<Instant>>,
    /// Connections without an answer when a packet of another peer ended a check: no reason for another check, but evidence if
    /// they stay silent.
    checked: BTreeMap<Connection, Option<Instant>>,
    acts: VecDeque<Act>,
}

#[derive(Clone, Debug)]
enum Phase {
    /// No suspicion.
    Calm,
    /// No packet has arrived for a little longer than usual: next hops are probed, or without any the peer.
    Checking(Suspicion),
    /// A stream has stopped: it is over, or the link is silent.
    Asking(Suspicion),
    /// TCP has had no answer. The path reports incoming packets.
    Suspected(Suspicion),
    /// The link is reported down.
    Silent(Suspicion),
}

/// Incoming packets between two readings of the counters that make a stream: fewer may be interactive traffic.
const STREAM_PACKETS: u64 = 4;

/// A stream continues for this long after the last such reading.
const STREAM_ENDS_IN: Duration = Duration::from_millis(500);

/// Next hops are probed when nothing has arrived for this long, and two round trips: later than the acknowledgement of a peer that delays
/// it by 40 ms, as Linux does, and before the host's TCP retransmits for the second time.
const CHECK_AFTER: Duration = Duration::from_millis(100);

/// The longest delay of an ACK (Linux's `TCP_DELACK_MAX`).
const DELAYED_ACK: Duration = Duration::from_millis(200);

/// After this long, silence of TCP alone is link-down: RFC 6298's timer has expired at least twice.
const PEERS_SILENT_AFTER: Duration = Duration::from_secs(3);

/// The longest interval between surveys.
const SURVEY_EVERY: Duration = Duration::from_millis(500);

/// The share of a survey's connections in the interval until the next: a survey takes some 2 us for each, and is to take no more than a 20th of
/// the time.
const SURVEY_EVERY_PER_CONNECTION: Duration = Duration::from_micros(40);

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
            is_at_rest: false,
            active_at: None,
            heard_at: now,
            others_at: None,
            sent_since: None,
            is_to_be_surveyed: false,
            survey_at: now,
            stream_at: None,
            phase: Phase::Calm,
            met_at: None,
            asked_at: None,
            answers_in: None,
            is_checked: false,
            gone: BTreeMap::new(),
            checked: BTreeMap::new(),
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
            Phase::Checking(found) | Phase::Asking(found) | Phase::Suspected(found) | Phase::Silent(found) => {
                found.own_addresses.clone()
            }
            Phase::Calm => BTreeSet::new(),
        }
    }

    /// Sets the next hops that can be probed. Those that are `known` to have answered need no test.
    pub fn handle_next_hops(&mut self, next_hops: &BTreeSet<IpAddr>, known: impl IntoIterator<Item = IpAddr>) {
        if self.next_hops != *next_hops {
            self.next_hops.clone_from(next_hops);
            self.answering.retain(|next_hop| next_hops.contains(next_hop));
            (self.met_at, self.asked_at, self.answers_in) = (None, None, None);
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
            self.is_checked = false;
            // The end of a stream has few packets.
            let was_stream = self.stream_at.filter(|&at| now.saturating_since(at) <= STREAM_ENDS_IN);
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
        self.survey_at = now
            + (SURVEY_EVERY_PER_CONNECTION * u64::from(survey.connections)).clamp(UNANSWERED_LOOK_EVERY, SURVEY_EVERY);
        let (evidence, round_trip) = self.evidence(now, &survey.unanswered);
        let peer = survey.recent.or_else(|| evidence.first().map(|unanswered| unanswered.connection));
        let is_strong = is_strong(&evidence, since);
        let evidence = evidence.iter().map(|unanswered| (unanswered.connection, unanswered.heard_at)).collect();
        match &mut self.phase {
            Phase::Calm => {
                let found = Suspicion {
                    own_addresses: survey.own_addresses.clone(),
                    ..Suspicion::new(
                        now,
                        since,
                        self.sent_since.unwrap_or(now),
                        peer,
                        round_trip.max(survey.round_trip),
                        evidence,
                        is_strong,
                    )
                };
                if !found.evidence.is_empty() {
                    self.stream_at = None;
                    self.suspect(found);
                } else if self.is_due_for_check(now, since, survey) {
                    self.phase = Phase::Checking(self.begin_check(survey, found));
                } else {
                    // Pure ACKs are not answered: the time counts from the next data.
                    let is_too_soon = survey.unanswered.iter().any(|unanswered| !self.is_gone(unanswered));
                    self.is_to_be_surveyed = is_too_soon;
                    self.sent_since = self.sent_since.filter(|_| is_too_soon);
                    if self.has_stream_stopped(now) {
                        self.stream_at = None;
                        self.phase = Phase::Asking(found);
                    }
                }
            }
            // Not surveyed meanwhile.
            Phase::Checking(_) => {}
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
        if let Some(asked_at) = self.asked_at.take() {
            let answered_in = now.saturating_since(asked_at);
            self.answers_in = Some(self.answers_in.map_or(answered_in, |before| answered_in.max(before * 7 / 8)));
        }
        let (Phase::Checking(found) | Phase::Asking(found) | Phase::Suspected(found) | Phase::Silent(found)) =
            &mut self.phase
        else {
            return;
        };
        let was_silent = found.questions > MISSED;
        (found.questions, found.answered_at) = (0, Some(now));
        if let Phase::Checking(found) = &self.phase {
            if was_silent {
                let found = found.clone();
                self.suspect(found);
            } else {
                (self.phase, self.is_checked) = (Phase::Calm, true);
                self.is_to_be_surveyed = self.sent_since.is_some();
                self.schedule(now);
            }
        }
        if was_silent && self.listens() {
            self.end(now, false);
            self.schedule(now);
        }
    }

    /// TCP is active after a rest ([`Self::is_at_rest`]).
    pub fn handle_activity(&mut self, now: Instant) {
        (self.looked_at, self.active_at) = (now, Some(now));
        self.schedule(now);
    }

    /// Another source has reported the state of the link: drops the suspicion.
    pub fn handle_link(&mut self, now: Instant) {
        (self.phase, self.sent_since, self.stream_at) = (Phase::Calm, None, None);
        (self.heard_at, self.acts) = (now, VecDeque::new());
        // What TCP has sent before tells nothing about the time since.
        self.looked_at = now;
        self.checked.clear();
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

    /// Whether nothing is due until TCP is active again. A shell that sees every packet need not read the counters until then, and calls
    /// [`Self::handle_activity`] at the next TCP packet, before it counts it.
    pub const fn is_at_rest(&self) -> bool {
        self.is_at_rest
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

    /// Whether a survey may show that next hops, or without any the peer, are to be probed early.
    fn may_be_due_for_check(&self, now: Instant) -> bool {
        // A retransmission is late enough by itself.
        let is_late = |since| self.is_alone() || now.saturating_since(since) >= CHECK_AFTER;
        let is_unanswered = self.is_to_be_surveyed && self.sent_since.is_some_and(is_late);
        let has_paused =
            !self.is_alone() && self.stream_at.is_some() && now.saturating_since(self.heard_at) >= CHECK_AFTER;
        self.may_check() && (is_unanswered || has_paused)
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
                if is_to_be_surveyed || self.has_stream_stopped(now) || self.may_be_due_for_check(now) {
                    self.survey(now);
                }
            }
            Phase::Checking(found) => {
                if self.is_missed(found) {
                    let found = found.clone();
                    self.suspect(found);
                } else if is_to_be_surveyed || self.has_stream_stopped(now) {
                    (self.phase, self.is_checked) = (Phase::Calm, true);
                    self.survey(now);
                }
            }
            Phase::Asking(found) => {
                let found = found.clone();
                let is_unanswered = found.peer_questions >= 2
                    && now.saturating_since(found.began_at) >= found.round_trip * 4 + DELAYED_ACK;
                if is_unanswered || found.questions > MISSED && self.all_have_answered_before() {
                    self.suspect(found);
                } else if found.is_answered(now, self.is_alone()) {
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
        if self.survey_at <= now {
            (self.survey_at, self.is_to_be_surveyed) = (now + SURVEY_EVERY, false);
            self.acts.push_back(Act::Survey);
        }
    }

    /// Whether there is no next hop to probe.
    fn is_alone(&self) -> bool {
        self.next_hops.is_empty()
    }

    /// Whether next hops would be probed early: they have answered before, and not since the last packet. Without any, the peer
    /// would be.
    fn may_check(&self) -> bool {
        self.options.asks && !self.is_checked && (self.is_alone() || self.all_have_answered_before())
    }

    /// Whether what is probed has missed too many probes.
    fn is_missed(&self, found: &Suspicion) -> bool {
        if self.is_alone() {
            found.peer_questions > MISSED
        } else {
            found.questions > MISSED && self.all_have_answered_before()
        }
    }

    /// Without a next hop: connections on which TCP has retransmitted in vain.
    fn sent_again<'a>(&self, survey: &'a Survey) -> impl Iterator<Item = &'a Unanswered> {
        survey.unanswered.iter().filter(|unanswered| {
            let is_checked = self.checked.get(&unanswered.connection) == Some(&unanswered.heard_at);
            let has_failed = unanswered.is_sent_again && unanswered.round_trip.is_some() && !self.is_gone(unanswered);
            self.is_alone() && has_failed && !is_checked
        })
    }

    /// Whether nothing has arrived for longer than an answer, or the next packet of a stream, usually takes.
    fn is_due_for_check(&self, now: Instant, since: Instant, survey: &Survey) -> bool {
        if !self.may_check() {
            return false;
        }
        if self.is_alone() {
            return self.sent_again(survey).next().is_some();
        }
        let sent_since = self.sent_since.unwrap_or(now);
        let is_unanswered = survey.unanswered.iter().filter(|unanswered| !self.is_gone(unanswered)).any(|unanswered| {
            let from = unanswered.heard_at.map_or(sent_since, |at| at.max(sent_since));
            now.saturating_since(from) >= CHECK_AFTER + unanswered.round_trip.unwrap_or_default() * 2
        });
        let has_paused = self.stream_at.is_some() && now.saturating_since(since) >= CHECK_AFTER + survey.round_trip * 2;
        is_unanswered || has_paused
    }

    /// Without a next hop, a check sends the unanswered data again to the peer whose last packet is the newest: the answers of the
    /// others, which may be farther away, may be on their way.
    fn begin_check(&self, survey: &Survey, found: Suspicion) -> Suspicion {
        let peers: Vec<&Unanswered> = self.sent_again(survey).collect();
        let Some(last_heard) = peers.iter().max_by_key(|peer| peer.heard_at) else { return found };
        Suspicion {
            peer: Some(last_heard.connection),
            round_trip: peers.iter().filter_map(|peer| peer.round_trip).max().unwrap_or_default(),
            evidence: peers.iter().map(|unanswered| (unanswered.connection, unanswered.heard_at)).collect(),
            ..found
        }
    }

    /// Whether a stream has stopped for so long that a peer is probed.
    fn has_stream_stopped(&self, now: Instant) -> bool {
        let is_late = now.saturating_since(self.heard_at) >= self.options.after;
        self.stream_at.is_some() && self.options.asks && is_late
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
            && now.saturating_since(found.answered_at.unwrap_or(found.began_at)) >= self.options.every * 3
            && now.saturating_since(found.since.max(found.unanswered_since))
                >= self.options.after + self.options.every * 3;
        let silence = now.saturating_since(found.since.max(self.sent_since.unwrap_or(found.since)));
        let are_peers_silent =
            found.is_strong && !found.evidence.is_empty() && silence >= PEERS_SILENT_AFTER.max(found.round_trip * 12);
        are_next_hops_silent || are_peers_silent
    }

    fn all_have_answered_before(&self) -> bool {
        !self.next_hops.is_empty() && self.next_hops.is_subset(&self.answering)
    }

    /// A packet has arrived: TCP, or an answer.
    fn end(&mut self, now: Instant, is_tcp: bool) {
        self.sent_since = None;
        if is_tcp
            && let Phase::Checking(found) | Phase::Asking(found) | Phase::Suspected(found) | Phase::Silent(found) =
                &self.phase
            && found.questions > MISSED
        {
            // They forward and do not answer, or the packet was faster than the answer to the next probe.
            (self.answering, self.met_at) = (BTreeSet::new(), None);
        }
        match std::mem::replace(&mut self.phase, Phase::Calm) {
            Phase::Suspected(found) | Phase::Silent(found) => {
                if is_tcp {
                    note_silent(&mut self.gone, found.evidence);
                }
                self.heard_at = now;
                self.acts.push_back(Act::End);
            }
            Phase::Checking(found) if is_tcp => note_silent(&mut self.checked, found.evidence),
            Phase::Calm | Phase::Checking(_) | Phase::Asking(_) => {}
        }
    }
}

/// Adds connections whose peers were silent while the link carried packets, which holds until they are heard.
fn note_silent(silent: &mut BTreeMap<Connection, Option<Instant>>, found: BTreeMap<Connection, Option<Instant>>) {
    if silent.len() + found.len() > MOST_GONE {
        silent.clear();
    }
    silent.extend(found);
}

#[cfg(test)]
mod tests;
