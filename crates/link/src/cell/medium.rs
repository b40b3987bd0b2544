//! The cell as a state machine: channel access (`medium/contention.rs`) and reception.

mod contention;

use std::collections::{BTreeMap, VecDeque};

use holdover_base::{Instant, Rng};

use super::config::{CellConfig, JoinError, LeavePolicy};
use super::hop::{CellEvent, Hop, Node, Reception, StationId};
use super::motion::Motion;
use super::radio::Watts;
use super::sender::{Head, Sender};
use super::statistics::{CellStatistics, add_queues};
use crate::bit_errors::BitErrorProcess;
use crate::error::ConfigError;
use crate::frame::Frame;
use crate::link::{DropCause, Link, Timer};

/// A radio cell. Its verbs and the order to call them in are those of [`Link`].
#[derive(Clone, Debug)]
pub struct Cell<F> {
    config: CellConfig,
    /// The latest `now` seen.
    clock: Instant,
    rng: Rng,
    bit_errors: Option<BitErrorProcess>,
    base: Sender<F>,
    stations: BTreeMap<StationId, Station<F>>,
    attempt: Option<Attempt>,
    last_winner: Option<Node>,
    received: VecDeque<Reception<F>>,
    events: VecDeque<CellEvent<F>>,
    counts: CellStatistics,
}

#[derive(Clone, Debug)]
struct Station<F> {
    motion: Motion,
    /// The interval in which it is within range, end excluded.
    covered: (Instant, Instant),
    /// The next end of `covered` that has not been reported.
    next_change: Option<Instant>,
    sender: Sender<F>,
    /// When it drops its frame unless it is back in range by then.
    gives_up: Option<Instant>,
}

/// The exchange on the medium.
#[derive(Clone, Debug)]
struct Attempt {
    senders: Vec<Node>,
    outcome: Outcome,
    /// When the data are received, or the failure is known. `None` afterwards.
    result_at: Option<Instant>,
    /// When the medium is idle again.
    until: Instant,
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Outcome {
    Answered,
    Unanswered,
    Collided,
    /// Received with bit errors: no acknowledgment follows.
    Damaged,
    /// Each receiver gets it damaged with this probability.
    Broadcast {
        damaged: f64,
    },
}

impl<F: Frame> Cell<F> {
    /// An empty cell. Backoffs are drawn from `seed`.
    pub fn new(config: CellConfig, seed: u64) -> Result<Self, ConfigError> {
        config.check()?;
        Ok(Self {
            config,
            clock: Instant::ZERO,
            rng: Rng::split(seed, "contention"),
            bit_errors: BitErrorProcess::new(config.bit_errors, seed),
            base: Sender::new(config.base_buffer),
            stations: BTreeMap::new(),
            attempt: None,
            last_winner: None,
            received: VecDeque::new(),
            events: VecDeque::new(),
            counts: CellStatistics::default(),
        })
    }

    /// The configuration.
    pub fn config(&self) -> &CellConfig {
        &self.config
    }

    /// Registers a station with the cell, in range or not.
    pub fn join(&mut self, now: Instant, station: StationId, motion: Motion) -> Result<(), JoinError> {
        let now = self.catch_up(now);
        if self.stations.contains_key(&station) {
            return Err(JoinError(station));
        }
        let sender = Sender::new(self.config.station_buffer);
        let covered = (Instant::ZERO, Instant::ZERO);
        let mut entry = Station { motion, covered, next_change: None, sender, gives_up: None };
        entry.set_motion(now, motion, &self.config);
        self.stations.insert(station, entry);
        Ok(())
    }

    /// Sets a station's motion from now on. If that moves it into or out of range at once, an event reports it. Ignores
    /// unknown stations.
    pub fn set_motion(&mut self, now: Instant, station: StationId, motion: Motion) {
        let now = self.catch_up(now);
        let Some(entry) = self.stations.get_mut(&station) else { return };
        let was_in_range = entry.in_range(now);
        entry.set_motion(now, motion, &self.config);
        match (was_in_range, entry.in_range(now)) {
            (false, true) => self.events.push_back(CellEvent::InRange { at: now, station }),
            (true, false) => self.events.push_back(CellEvent::OutOfRange { at: now, station }),
            _ => {}
        }
        self.contend_if_idle(now);
    }

    /// Removes a station. Its frames, in either direction, are dropped or handed back by the cell's policy; one on the
    /// air towards it, when its exchange has failed. Returns whether the station existed.
    pub fn leave(&mut self, now: Instant, station: StationId) -> bool {
        let now = self.catch_up(now);
        let Some(mut gone) = self.stations.remove(&station) else { return false };
        let for_station = |hop: &Hop<F>| matches!(hop, Hop::Down { to, .. } if *to == station);
        let on_air = self.attempt.as_ref().is_some_and(|attempt| attempt.is_pending_from(Node::Base));
        if let Some(attempt) = &mut self.attempt {
            attempt.senders.retain(|&node| node != Node::Station(station));
        }
        let mut hops = recall(now, &mut self.base, on_air, for_station);
        hops.extend(recall(now, &mut gone.sender, false, |_| true));
        self.orphan_all(now, hops);
        add_queues(&mut self.counts.up.queue, gone.sender.buffer.statistics(now));
        true
    }

    /// The base station learns that a station has gone elsewhere: its queued frames for it are dropped or handed back
    /// by the cell's policy; a frame on the air towards it, when that attempt fails. The station stays in the cell and
    /// may come back.
    pub fn recall_from_base(&mut self, now: Instant, station: StationId) {
        let now = self.catch_up(now);
        let for_station = |hop: &Hop<F>| matches!(hop, Hop::Down { to, .. } if *to == station);
        let on_air = self.attempt.as_ref().is_some_and(|attempt| attempt.is_pending_from(Node::Base));
        let hops = recall(now, &mut self.base, on_air, for_station);
        self.orphan_all(now, hops);
    }

    /// A station continues elsewhere: its queued frames for this cell are dropped or handed back by the cell's policy;
    /// its frame on the air, when that attempt fails. It stays in the cell and may come back.
    pub fn recall_from_station(&mut self, now: Instant, station: StationId) {
        let now = self.catch_up(now);
        let on_air = self.attempt.as_ref().is_some_and(|attempt| attempt.is_pending_from(Node::Station(station)));
        let Some(entry) = self.stations.get_mut(&station) else { return };
        let hops = recall(now, &mut entry.sender, on_air, |_| true);
        if entry.sender.head.is_none() {
            entry.gives_up = None;
        }
        self.orphan_all(now, hops);
    }

    fn orphan_all(&mut self, now: Instant, hops: Vec<(u32, Hop<F>)>) {
        for (len, hop) in hops {
            self.orphan(now, len, hop);
        }
        self.contend_if_idle(now);
    }

    /// Whether `poll_deliver` or `poll_event` has output: any call may have advanced the cell.
    pub fn has_output(&self) -> bool {
        !self.received.is_empty() || !self.events.is_empty()
    }

    /// Whether a station is within range at a time; false for an unknown one.
    pub fn in_range(&self, station: StationId, at: Instant) -> bool {
        self.stations.get(&station).is_some_and(|entry| entry.in_range(at))
    }

    /// The power with which a station and the base station receive each other.
    pub fn received_power(&self, station: StationId, at: Instant) -> Option<Watts> {
        let position = self.stations.get(&station)?.motion.position(at);
        Some(self.config.radio.received_power(position.distance_m(self.config.position)))
    }

    /// The counters up to `now`.
    pub fn statistics(&self, now: Instant) -> CellStatistics {
        let now = now.max(self.clock);
        let mut counts = self.counts;
        counts.down.under_way = self.base.under_way();
        counts.down.queue = self.base.buffer.statistics(now);
        for station in self.stations.values() {
            counts.up.under_way += station.sender.under_way();
            add_queues(&mut counts.up.queue, station.sender.buffer.statistics(now));
        }
        counts
    }

    /// Handles everything due by `now`, each event at its own time.
    fn catch_up(&mut self, now: Instant) -> Instant {
        while let Some((at, timer)) = self.poll_timeout()
            && at <= now
        {
            match timer {
                Timer::Connectivity => self.tell_range(at),
                Timer::RetryLimit => self.give_up(at),
                Timer::Arrival | Timer::Medium | Timer::Retransmission => self.proceed(at),
            }
        }
        self.clock = self.clock.max(now);
        self.clock
    }

    fn tell_range(&mut self, at: Instant) {
        for (&station, entry) in &mut self.stations {
            if entry.next_change != Some(at) {
                continue;
            }
            let in_range = entry.in_range(at);
            entry.next_change = if in_range { finite(entry.covered.1) } else { None };
            self.events.push_back(if in_range {
                CellEvent::InRange { at, station }
            } else {
                CellEvent::OutOfRange { at, station }
            });
        }
        self.contend_if_idle(at);
    }

    /// Drops the frames of stations that have been unanswered for too long.
    fn give_up(&mut self, at: Instant) {
        let mut dropped = Vec::new();
        for entry in self.stations.values_mut() {
            if entry.gives_up.is_none_or(|deadline| deadline > at) {
                continue;
            }
            entry.gives_up = None;
            if !entry.in_range(at) {
                dropped.extend(entry.sender.head.take());
            }
        }
        for head in dropped {
            self.drop_hop(at, DropCause::OutOfRange, head.len, head.hop);
        }
        self.contend_if_idle(at);
    }

    /// Handles the result of the current exchange, or the end of the medium's busy time.
    fn proceed(&mut self, at: Instant) {
        let Some(mut attempt) = self.attempt.take() else { return };
        if attempt.result_at.take().is_some() {
            let senders = core::mem::take(&mut attempt.senders);
            for node in senders {
                self.settle(at, node, attempt.outcome);
            }
        }
        if attempt.until > at {
            self.attempt = Some(attempt);
        } else {
            self.contend_if_idle(at);
        }
    }

    /// Applies the outcome of an attempt to one participant.
    fn settle(&mut self, at: Instant, node: Node, outcome: Outcome) {
        // A station that left during the exchange has taken its frame with it.
        let Some(head) = self.sender_mut(node).and_then(|sender| sender.head.take()) else { return };
        let station = match head.hop {
            Hop::Broadcast { frame } => {
                let damaged = if let Outcome::Broadcast { damaged } = outcome { damaged } else { 0.0 };
                return self.receive_broadcast(at, head.len, frame, damaged);
            }
            Hop::Down { to, .. } => to,
            Hop::Up { from, .. } => from,
        };
        if !self.stations.contains_key(&station) {
            return self.orphan(at, head.len, head.hop);
        }
        if outcome == Outcome::Answered && self.in_range(station, at) {
            return self.receive(at, station, head);
        }
        if head.recalled {
            return self.orphan(at, head.len, head.hop);
        }
        self.fail(at, node, head, outcome);
    }

    fn receive(&mut self, at: Instant, station: StationId, head: Head<F>) {
        let (counts, from, to, frame) = match head.hop {
            Hop::Up { frame, .. } => (&mut self.counts.up, Node::Station(station), Node::Base, frame),
            Hop::Down { frame, .. } | Hop::Broadcast { frame } => {
                (&mut self.counts.down, Node::Base, Node::Station(station), frame)
            }
        };
        counts.delivered.add(head.len);
        let power = self.received_power(station, at).unwrap_or(self.config.radio.receive_threshold);
        let margin = self.config.radio.margin(power);
        self.received.push_back(Reception { at, from, to, frame, power, margin });
    }

    fn receive_broadcast(&mut self, at: Instant, len: u32, frame: F, damaged: f64) {
        let hearers: Vec<StationId> =
            self.stations.iter().filter(|(_, entry)| entry.in_range(at)).map(|(&station, _)| station).collect();
        if hearers.is_empty() {
            return self.drop_hop(at, DropCause::OutOfRange, len, Hop::Broadcast { frame });
        }
        for (index, station) in hearers.into_iter().enumerate() {
            if index > 0 {
                self.counts.down.duplicated.add(len);
            }
            let hop = Hop::Broadcast { frame: frame.clone() };
            if self.bit_errors.as_mut().is_some_and(|process| process.strikes(damaged)) {
                self.drop_hop(at, DropCause::BitErrors, len, hop);
            } else {
                self.receive(at, station, Head::new(len, hop));
            }
        }
    }

    fn fail(&mut self, at: Instant, node: Node, mut head: Head<F>, outcome: Outcome) {
        head.failures += 1;
        head.backoff_slots = None;
        if head.failures >= self.config.dcf.retry_limit {
            let cause = match outcome {
                Outcome::Collided => DropCause::Collision,
                Outcome::Damaged => DropCause::BitErrors,
                Outcome::Answered | Outcome::Unanswered | Outcome::Broadcast { .. } => DropCause::OutOfRange,
            };
            return self.drop_hop(at, cause, head.len, head.hop);
        }
        if let Some(sender) = self.sender_mut(node) {
            sender.head = Some(head);
        }
    }

    /// The station at one end of a hop between two.
    fn peer_of(&self, hop: &Hop<F>) -> Option<StationId> {
        match hop {
            Hop::Down { to, .. } => Some(*to),
            Hop::Up { from, .. } => Some(*from),
            Hop::Broadcast { .. } => None,
        }
    }

    fn head(&self, node: Node) -> Option<&Head<F>> {
        match node {
            Node::Base => self.base.head.as_ref(),
            Node::Station(station) => self.stations.get(&station)?.sender.head.as_ref(),
        }
    }

    fn sender_mut(&mut self, node: Node) -> Option<&mut Sender<F>> {
        match node {
            Node::Base => Some(&mut self.base),
            Node::Station(station) => self.stations.get_mut(&station).map(|entry| &mut entry.sender),
        }
    }

    /// Drops or hands back a frame whose station left.
    fn orphan(&mut self, at: Instant, len: u32, hop: Hop<F>) {
        match self.config.leave_policy {
            LeavePolicy::Drop => self.drop_hop(at, DropCause::StationLeft, len, hop),
            LeavePolicy::HandBack => {
                self.counts.handed_back += 1;
                self.events.push_back(CellEvent::HandedBack { at, hop });
            }
        }
    }

    fn drop_hop(&mut self, at: Instant, cause: DropCause, len: u32, hop: Hop<F>) {
        let counts = match hop {
            Hop::Up { .. } => &mut self.counts.up,
            Hop::Down { .. } | Hop::Broadcast { .. } => &mut self.counts.down,
        };
        counts.dropped.add(cause, len);
        self.events.push_back(CellEvent::Dropped { at, cause, hop });
    }
}

impl<F: Frame> Link for Cell<F> {
    type In = Hop<F>;
    type Out = Reception<F>;
    type Event = CellEvent<F>;

    fn handle_packet(&mut self, now: Instant, hop: Hop<F>) {
        let now = self.catch_up(now);
        let (len, sender) = match &hop {
            Hop::Down { to, frame } => {
                let known = self.stations.contains_key(to);
                self.counts.down.offered.add(frame.wire_len());
                (frame.wire_len(), known.then_some(Node::Base))
            }
            Hop::Broadcast { frame } => {
                self.counts.down.offered.add(frame.wire_len());
                (frame.wire_len(), Some(Node::Base))
            }
            Hop::Up { from, frame } => {
                self.counts.up.offered.add(frame.wire_len());
                (frame.wire_len(), Some(Node::Station(*from)))
            }
        };
        let Some(sender) = sender.and_then(|node| self.sender_mut(node)) else {
            return self.drop_hop(now, DropCause::StationLeft, len, hop);
        };
        if let Err(hop) = sender.push(now, len, hop) {
            return self.drop_hop(now, DropCause::QueueFull, len, hop);
        }
        self.contend_if_idle(now);
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.catch_up(now);
    }

    fn poll_deliver(&mut self, _now: Instant) -> Option<Reception<F>> {
        self.received.pop_front()
    }

    fn poll_event(&mut self) -> Option<CellEvent<F>> {
        self.events.pop_front()
    }

    fn poll_timeout(&self) -> Option<(Instant, Timer)> {
        let medium = self.attempt.as_ref().map(|attempt| match attempt.result_at {
            Some(at) => (at, Timer::Arrival),
            None => (attempt.until, Timer::Medium),
        });
        let stations = self.stations.values().flat_map(|entry| {
            let change = entry.next_change.map(|at| (at, Timer::Connectivity));
            change.into_iter().chain(entry.gives_up.map(|at| (at, Timer::RetryLimit)))
        });
        medium.into_iter().chain(stations).min()
    }
}

impl<F> Station<F> {
    fn in_range(&self, at: Instant) -> bool {
        self.covered.0 <= at && at < self.covered.1
    }

    fn set_motion(&mut self, now: Instant, motion: Motion, config: &CellConfig) {
        self.motion = motion;
        let never = (Instant::FAR_FUTURE, Instant::FAR_FUTURE);
        self.covered = motion.within(config.position, config.radio.range_m()).unwrap_or(never);
        let ahead = [self.covered.0, self.covered.1].into_iter().find(|&at| at > now);
        self.next_change = ahead.and_then(finite);
    }
}

impl Attempt {
    /// Whether `node` is sending and the outcome is still open.
    fn is_pending_from(&self, node: Node) -> bool {
        self.result_at.is_some() && self.senders.contains(&node)
    }
}

fn finite(at: Instant) -> Option<Instant> {
    (at != Instant::FAR_FUTURE).then_some(at)
}

/// Removes the frames that `takes` accepts, first the one in the MAC unless it is on the air.
fn recall<F>(
    now: Instant,
    sender: &mut Sender<F>,
    on_air: bool,
    takes: impl Fn(&Hop<F>) -> bool,
) -> Vec<(u32, Hop<F>)> {
    let mut hops = Vec::new();
    match &mut sender.head {
        Some(head) if on_air => head.recalled |= takes(&head.hop),
        head => hops.extend(head.take_if(|head| takes(&head.hop)).map(|head| (head.len, head.hop))),
    }
    hops.extend(sender.buffer.take_if(now, takes));
    hops
}
