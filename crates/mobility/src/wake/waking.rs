//! **Waking until it has worked.** A link that is up need not carry packets yet: a switch port listens first, an access point has to
//! learn, a modem has its bearer set up, a router has to find its neighbour again. What is sent too early is lost, and no timer of a
//! peer brings it back. So waking is repeated until the peer answers:
//!
//! - while the next hop has not answered, only what costs nothing if it is lost is sent: held ACKs for a far sender, which can be
//!   sent again, and probes that a peer answers whatever state it is in ([`path_probe`](super::attempt::path_probe));
//! - what is in hand for the host's own TCP is let go when the path is told or proven to carry packets: its answer would be lost
//!   otherwise, and its next timer would be a long way off;
//! - the first packet that comes in proves the path. Whatever was tried before and may have been lost is tried again at once;
//! - connections are woken a few at a time, and the next when those have resumed, so that they do not fill the queue of the link
//!   together: the number grows with each that resumes at once, and is halved when one does not.
//!
//! It ends when data or ACKs come, when the peer answers and has nothing to send, or after a bounded number of tries and 60 s. What
//! came of it is a [`WakeOutcome`](crate::WakeOutcome).

use std::collections::{BTreeSet, VecDeque};

use holdover_base::{Duration, Instant};

use super::attempt::{Attempt, Path, path_probe};
use super::half::{Outcome, Times};
use super::{At, BOTH, WakeControl};
use crate::fast_path::FastPath;
use crate::{Connection, Deed, Direction, ack_stall, unreachable_poke};

/// What is being woken since the link came back.
#[derive(Debug)]
pub(super) struct Waking {
    up_at: Instant,
    path: Path,
    /// Connections whose turn has not come, the most recently active first.
    queue: VecDeque<Connection>,
    /// Those that were tried and have not resumed, nor failed to answer in time.
    in_flight: BTreeSet<Connection>,
    /// How many may be in flight.
    window: usize,
    shrunk_at: Instant,
}

/// So many connections are woken at first: each sends some four segments at once.
const FIRST_WINDOW: usize = 8;

/// So many are tried while the next hop has not answered.
const SCOUTS: usize = 4;

/// The window never shrinks below this.
const LEAST_WINDOW: usize = 2;

/// The window is halved at most this often: what is lost together is one loss.
const SHRINK_EVERY: Duration = Duration::from_millis(100);

impl Waking {
    fn new(up_at: Instant, path: Path, queue: VecDeque<Connection>) -> Self {
        Self { up_at, path, queue, in_flight: BTreeSet::new(), window: FIRST_WINDOW, shrunk_at: up_at }
    }

    /// Whether packets that come in are news.
    pub(super) fn awaits_packets(&self) -> bool {
        self.path < Path::Proven || !self.in_flight.is_empty() || !self.queue.is_empty()
    }

    fn has_room(&self) -> bool {
        let most = if self.path == Path::Unresolved { SCOUTS } else { self.window };
        self.in_flight.len() < most
    }

    fn shrink(&mut self, now: Instant) {
        if now.saturating_since(self.shrunk_at) >= SHRINK_EVERY {
            (self.window, self.shrunk_at) = ((self.window / 2).max(LEAST_WINDOW), now);
        }
    }
}

impl WakeControl {
    /// The moment of grace is over: what does not flow by itself is woken.
    pub(super) fn begin_waking(&mut self, now: Instant, known: Path, path: &mut impl FastPath) {
        let cut_at = self.link.down_at.unwrap_or(now);
        let up_at = self.link.up_at.unwrap_or(now);
        (self.link.release_at, self.link.down_at) = (None, None);
        self.link.epoch = self.link.epoch.wrapping_add(1);
        let all: Vec<Connection> = self.connections.keys().copied().collect();
        let mut queue = Vec::new();
        for connection in all {
            let Some(fast) = path.snapshot(connection) else {
                self.connections.remove(&connection);
                continue;
            };
            let Some(state) = self.connections.get_mut(&connection) else { continue };
            let waits = BOTH.map(|direction| state.half(direction).is_waiting());
            if waits.contains(&true) {
                state.attempt = Some(Attempt::new(cut_at, up_at, waits));
                queue.push((state.is_at_rest, std::cmp::Reverse(fast.active_at()), connection));
            } else {
                // What was stalled or hidden is let go.
                self.act(now, connection, known, path);
            }
        }
        queue.sort_unstable();
        let queue = queue.into_iter().map(|(_, _, connection)| connection).collect();
        self.waking = Some(Waking::new(up_at, known, queue));
        self.wake_more(now, path);
    }

    /// The link broke again, or the owner ends: whatever has not resumed is left as it is.
    pub(super) fn end_waking(&mut self, now: Instant, path: &impl FastPath) {
        if self.waking.take().is_none() {
            return;
        }
        for (&connection, state) in &mut self.connections {
            if let Some(attempt) = state.attempt.take() {
                self.outcomes.push_back(attempt.outcome(now, connection, path.snapshot(connection).as_ref()));
            }
        }
    }

    /// Connections that have something to be woken for when the link is back, or since it is.
    pub fn waiting(&self) -> impl Iterator<Item = Connection> + '_ {
        let waits = |state: &super::State| state.outgoing.is_waiting() || state.incoming.is_waiting();
        self.connections.iter().filter(move |(_, state)| waits(state)).map(|(&connection, _)| connection)
    }

    /// The next hop has answered: from now on it is worth while to send.
    pub fn handle_next_hop(&mut self, now: Instant, path: &mut impl FastPath) {
        self.learn_of_path(now, Path::Told, path);
    }

    /// A packet has come in, which the fast path has dealt with.
    pub fn note_arrival(&mut self, now: Instant, path: &mut impl FastPath) {
        let Some(waking) = &self.waking else { return };
        if !waking.awaits_packets() {
            return;
        }
        let in_flight: Vec<Connection> = waking.in_flight.iter().copied().collect();
        self.learn_of_path(now, Path::Proven, path);
        for connection in in_flight {
            self.finish_if_over(now, connection, path);
        }
        self.wake_more(now, path);
        path.set_link(self.fast_link());
    }

    /// More is known of the path than before.
    fn learn_of_path(&mut self, now: Instant, known: Path, path: &mut impl FastPath) {
        let Some(waking) = &mut self.waking else {
            self.known_path = self.known_path.max(known);
            return;
        };
        if waking.path >= known {
            return;
        }
        waking.path = known;
        self.link.proven_at = Some(now);
        let is_tried = |state: &super::State| state.attempt.is_some_and(|attempt| attempt.tries() > 0);
        let tried = self.connections.iter().filter(|(_, state)| is_tried(state)).map(|(&connection, _)| connection);
        for connection in tried.collect::<Vec<_>>() {
            let Some(fast) = path.snapshot(connection) else { continue };
            if let Some(state) = self.connections.get_mut(&connection) {
                let is_partial = BOTH.into_iter().any(|direction| state.half(direction).is_waiting());
                if let Some(attempt) = &mut state.attempt {
                    attempt.note_proof(now, is_partial, &fast);
                }
            }
            self.schedule(connection);
        }
        path.set_link(self.fast_link());
        self.wake_more(now, path);
    }

    /// Wakes those whose turn has come.
    fn wake_more(&mut self, now: Instant, path: &mut impl FastPath) {
        while let Some(waking) = &mut self.waking
            && waking.has_room()
            && let Some(connection) = waking.queue.pop_front()
        {
            self.try_connection(now, connection, path);
        }
    }

    /// One more try.
    fn try_connection(&mut self, now: Instant, connection: Connection, path: &mut impl FastPath) {
        if self.finish_if_over(now, connection, path) {
            return;
        }
        let (Some(waking), Some(fast)) = (&mut self.waking, path.snapshot(connection)) else { return };
        // Over a proven path, a connection whose first try was not answered goes on by its own timer, and leaves its place to the next.
        let is_first =
            self.connections.get(&connection).and_then(|state| state.attempt).is_some_and(|it| it.tries() == 0);
        if is_first {
            waking.in_flight.insert(connection);
        }
        let (known, others) = (waking.path, waking.in_flight.len().saturating_sub(1));
        let Some(attempt) = self.connections.get_mut(&connection).and_then(|state| state.attempt.as_mut()) else {
            return;
        };
        attempt.note_try(now, known, others, &fast);
        // A first try has its own answer, if the path is there.
        let is_to_be_asked = known == Path::Unresolved || attempt.tries() > 1;
        self.act(now, connection, known, path);
        if let Some(state) = self.connections.get_mut(&connection)
            && state.has_train_under_way()
            && let Some(attempt) = &mut state.attempt
        {
            attempt.note_train(&fast);
        }
        if is_to_be_asked {
            let at = At { connection, direction: Direction::Outgoing };
            self.ready.extend(path_probe(at, &fast).map(|probe| (connection, probe)));
        }
        self.schedule(connection);
    }

    /// Does for a connection what can be done over such a path.
    fn act(&mut self, now: Instant, connection: Connection, known: Path, path: &mut impl FastPath) {
        let Some(fast) = path.snapshot(connection) else { return };
        let Some(state) = self.connections.get_mut(&connection) else { return };
        let is_reset = BOTH.into_iter().any(|direction| fast.half(direction).observed().is_reset);
        let cut_at = state.attempt.map_or(now, |attempt| attempt.cut_at());
        let up_at = self.waking.as_ref().map_or(self.link.up_at, |waking| Some(waking.up_at));
        let times = Times { cut_at, up_at, now, is_reset };
        for direction in BOTH {
            let at = At { connection, direction };
            let (packets, outcome) = state.half(direction).wake(&self.config, at, &fast, times, known, path);
            self.ready.extend(packets.into_iter().map(|packet| (connection, at.inject(packet))));
            let (mechanism, what) = match outcome {
                Outcome::Nothing => continue,
                Outcome::Clocked => (ack_stall::NAME, "released ACK by ACK"),
                Outcome::Released => (self.held_by, "released"),
                Outcome::Poked => (unreachable_poke::NAME, "poked"),
            };
            self.deeds.push_back(Deed { at: now, connection, mechanism, what });
        }
        self.schedule(connection);
    }

    /// The time for an answer is over.
    pub(super) fn handle_unanswered(&mut self, now: Instant, connection: Connection, path: &mut impl FastPath) {
        if self.finish_if_over(now, connection, path) {
            self.wake_more(now, path);
            path.set_link(self.fast_link());
            return;
        }
        if let Some(waking) = &mut self.waking
            && waking.path == Path::Proven
            && waking.in_flight.remove(&connection)
        {
            waking.shrink(now);
        }
        if let Some(attempt) = self.connections.get_mut(&connection).and_then(|state| state.attempt.as_mut())
            && attempt.is_exhausted()
        {
            attempt.watch(now);
            self.schedule(connection);
            self.wake_more(now, path);
            path.set_link(self.fast_link());
            return;
        }
        self.try_connection(now, connection, path);
        self.wake_more(now, path);
        path.set_link(self.fast_link());
    }

    /// The path does not know a connection any more.
    pub(super) fn forget_in_flight(&mut self, connection: Connection) {
        if let Some(waking) = &mut self.waking {
            waking.in_flight.remove(&connection);
        }
    }

    /// Ends the attempt of a connection that has resumed, or of which nothing more is to be expected.
    fn finish_if_over(&mut self, now: Instant, connection: Connection, path: &impl FastPath) -> bool {
        let fast = path.snapshot(connection);
        let state = self.connections.get_mut(&connection);
        let Some((state, attempt)) = state.and_then(|state| state.attempt.map(|attempt| (state, attempt))) else {
            self.forget_in_flight(connection);
            return true;
        };
        let has_resumed = fast.as_ref().is_some_and(|fast| attempt.resumed_at(fast).is_some());
        let is_over = match &fast {
            None => true,
            Some(fast) => {
                let is_reset = BOTH.into_iter().any(|direction| fast.half(direction).observed().is_reset);
                has_resumed || is_reset || attempt.is_answered_idle(now, fast) || attempt.is_given_up(now)
            }
        };
        if !is_over {
            return false;
        }
        state.attempt = None;
        self.outcomes.push_back(attempt.outcome(now, connection, fast.as_ref()));
        if let Some(waking) = &mut self.waking
            && waking.in_flight.remove(&connection)
            && has_resumed
        {
            waking.window += 1;
        }
        true
    }
}
