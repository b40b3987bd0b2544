//! **Waking until it succeeds.** A link that is up need not carry packets yet: a switch port listens first, an access point has to learn, a
//! modem sets up its bearer, a router has to resolve its neighbour again. Packets sent too early are lost, and no timer of a peer repeats
//! them. So waking is repeated until the peer answers:
//!
//! - While the next hop has not answered, only probes are sent that a peer answers in any state
//!   ([`path_probe`](super::attempt::path_probe)). A next hop that receives may be unable to send: data of a peer that was released would be
//!   lost there, and so would what the peer's next timeout sends, with half a window each time.
//! - ACKs held for the host's own TCP are released when the path is reported or proven to carry packets: otherwise the data that it then
//!   sends would be lost, and its next timeout would be far off.
//! - The first incoming packet proves the path. Earlier attempts that may have been lost are repeated at once.
//! - Connections are woken a few at a time, and the next when those have resumed, so that together they do not fill the queue of the link:
//!   the number grows as they resume, more slowly while they queue, and is halved when one with data in flight does not resume.
//!
//! Waking ends when data or ACKs arrive, when the peer answers and has nothing to send, or after a bounded number of attempts and 60 s. The
//! result is a [`WakeOutcome`](crate::WakeOutcome).

use std::collections::{BTreeSet, VecDeque};

use holdover_base::{Duration, Instant};
use holdover_flow::{Flow, FlowTable};

use super::at::At;
use super::attempt::{Attempt, Path, UNKNOWN_ROUND_TRIP, path_probe};
use super::between;
use super::half::{Crowd, Outcome, Times};
use super::rest::{Rest, Standing};
use super::state::{Activity, State};
use super::{OwnData, WakeControl};
use crate::{Action, Connection, Direction, ack_stall, unreachable_poke};

/// The connections being woken since link-up.
#[derive(Clone, Debug)]
pub(super) struct Waking {
    cut_at: Instant,
    path: Path,
    /// Connections whose turn has not come: by their standing, then the most recently active first.
    queue: VecDeque<Connection>,
    /// Those with an attempt that have neither resumed nor exceeded the time for an answer.
    in_flight: BTreeSet<Connection>,
    /// The limit of those in flight.
    window: usize,
    shrunk_at: Instant,
    /// The number of connections that have resumed.
    resumed: u32,
    /// How long an attempt takes until the connection resumes: the longest recent one, or the time of a full queue.
    answer: Duration,
}

/// The initial window: each connection sends some four segments at once.
const FIRST_WINDOW: usize = 8;

/// The number of attempts while the next hop has not answered.
const SCOUTS: usize = 4;

/// The smallest window.
const LEAST_WINDOW: usize = 2;

/// A peer that has sent more bytes than this may have data outstanding at any time.
pub(super) const MUCH: u64 = 64 * 1024;

/// With more connections than this, the first messages to all peers would fill the link's queue: each peer gets fewer.
const CROWD: usize = 24;

/// The limit of queueing on the link while others wait: packets that waited for the next hop, and those sent to them.
const QUEUED: Duration = Duration::from_millis(100);

/// Queues of links hold some hundred packets: from this window on it grows more slowly, and no queueing makes it smaller.
const MANY: usize = 40;

/// With a longer queue the link has enough to send, and the window does not grow.
const SHORT_QUEUE: Duration = Duration::from_millis(8);

/// With a longer queue the window shrinks.
const LONG_QUEUE: Duration = Duration::from_millis(30);

/// The longest wait for an answer before a connection makes room for the next.
const MOST_PATIENCE: Duration = Duration::from_secs(1);

/// The shortest interval between halvings of the window: losses within it count as one.
const SHRINK_EVERY: Duration = Duration::from_millis(100);

impl Waking {
    fn new((cut_at, up_at): (Instant, Instant), path: Path, queue: VecDeque<Connection>) -> Self {
        Self {
            cut_at,
            path,
            queue,
            in_flight: BTreeSet::new(),
            window: FIRST_WINDOW,
            shrunk_at: up_at,
            resumed: 0,
            answer: QUEUED,
        }
    }

    pub(super) fn cut_at(&self) -> Instant {
        self.cut_at
    }

    pub(super) fn path(&self) -> Path {
        self.path
    }

    /// More connections are to be woken, after the others.
    pub(super) fn append(&mut self, more: VecDeque<Connection>) {
        self.queue.extend(more);
    }

    /// Whether incoming packets are to be reported.
    pub(super) fn awaits_packets(&self) -> bool {
        self.path < Path::Proven || !self.in_flight.is_empty() || !self.queue.is_empty()
    }

    fn has_room(&self) -> bool {
        let most = if self.path == Path::Unresolved { SCOUTS } else { self.window };
        self.in_flight.len() < most
    }

    /// Whether more than so many connections have not resumed.
    fn are_more_than(&self, connections: usize) -> bool {
        self.queue.len() + self.in_flight.len() > connections
    }

    /// Whether packets on the link compete for its queue.
    fn are_many(&self) -> bool {
        self.are_more_than(FIRST_WINDOW)
    }

    /// A connection has resumed this long after its attempt; `round_trip` is its round trip without queues. What exceeds it counts as
    /// queueing on the link.
    fn grow(&mut self, answer: Option<Duration>, round_trip: Duration) {
        self.resumed += 1;
        let queued = answer.map_or(Duration::ZERO, |answer| answer.saturating_sub(round_trip));
        if self.window < MANY {
            // Peers may also take their time to answer: it grows in any case.
            self.window += usize::from(queued <= LONG_QUEUE || self.resumed.is_multiple_of(4));
        } else if queued > LONG_QUEUE {
            self.window = (self.window - 1).max(MANY);
        } else if queued <= SHORT_QUEUE {
            self.window += usize::from(self.resumed.is_multiple_of(4));
        }
        self.answer = (self.answer * 7 / 8).max(answer.unwrap_or_default()).max(QUEUED);
    }

    /// How long a first attempt may go unanswered while others wait: a loss must be distinguished from queueing.
    fn patience(&self) -> Duration {
        (self.answer * 2).min(MOST_PATIENCE)
    }

    fn shrink(&mut self, now: Instant) {
        if now.saturating_since(self.shrunk_at) >= SHRINK_EVERY {
            (self.window, self.shrunk_at) = ((self.window / 2).max(LEAST_WINDOW), now);
        }
    }
}

impl WakeControl {
    /// The grace period is over: wakes connections that do not flow by themselves.
    pub(super) fn begin_waking(&mut self, now: Instant, known: Path, path: &mut impl FlowTable) {
        let cut_at = self.link.down_at.unwrap_or(now);
        let up_at = self.link.up_at.unwrap_or(now);
        (self.link.release_at, self.link.down_at) = (None, None);
        self.link.epoch = self.link.epoch.wrapping_add(1);
        let (absent, all): (Vec<Connection>, Vec<Connection>) =
            self.connections.keys().copied().partition(|&connection| self.is_absent(connection));
        for closed in absent.into_iter().filter(|&connection| path.snapshot(connection).is_none()) {
            self.connections.remove(&closed);
        }
        let queue = self.prepare(now, all, (cut_at, up_at), known, path);
        self.waking = Some(Waking::new((cut_at, up_at), known, queue));
        self.wake_more(now, path);
    }

    /// Begins an attempt for each of these connections that waits, and acts for the others at once. Returns those with an
    /// attempt, in the order in which they are to be woken.
    pub(super) fn prepare(
        &mut self,
        now: Instant,
        all: Vec<Connection>,
        (cut_at, up_at): (Instant, Instant),
        known: Path,
        path: &mut impl FlowTable,
    ) -> VecDeque<Connection> {
        let mut queue = Vec::new();
        for connection in all {
            let Some(flow) = path.snapshot(connection) else {
                self.connections.remove(&connection);
                continue;
            };
            let Some(state) = self.connections.get_mut(&connection) else { continue };
            let waits = Direction::BOTH.map(|direction| {
                let half = state.half(direction);
                half.is_waiting() && !half.is_deferred
            });
            if waits.contains(&true) {
                state.attempt = Some(Attempt::new(cut_at, up_at, waits));
                queue.push((state.activity, std::cmp::Reverse(flow.active_at()), connection));
            } else {
                // Releases stalled ACKs and hidden windows.
                self.act(now, connection, known, path);
            }
        }
        queue.sort_unstable();
        queue.into_iter().map(|(_, _, connection)| connection).collect()
    }

    /// The link broke again, or the owner ends: connections that have not resumed are left alone.
    pub(super) fn end_waking(&mut self, now: Instant, path: &impl FlowTable) {
        if self.waking.take().is_none() {
            return;
        }
        for (&connection, state) in &mut self.connections {
            if let Some(attempt) = state.attempt.take() {
                self.outcomes.push_back(attempt.outcome(now, connection, path.snapshot(connection).as_ref()));
            }
        }
    }

    /// Connections to be woken at link-up, or since, whose own addresses are there.
    pub fn waiting(&self) -> impl Iterator<Item = Connection> + '_ {
        let waits = |state: &State| state.outgoing.is_waiting() || state.incoming.is_waiting();
        let waiting = self.connections.iter().filter(move |(_, state)| waits(state));
        waiting.map(|(&connection, _)| connection).filter(move |&connection| !self.is_absent(connection))
    }

    /// The host's own TCP waits with data on these connections: they are woken although none of their data has passed. Does
    /// nothing while the link is down.
    pub fn wake_outstanding(
        &mut self,
        now: Instant,
        connections: impl IntoIterator<Item = (Connection, OwnData)>,
        path: &mut impl FlowTable,
    ) {
        if !self.link.is_up() {
            return;
        }
        let (mut found, mut tried) = (BTreeSet::new(), Vec::new());
        for (connection, data) in connections {
            let Some(flow) = path.snapshot(connection).filter(|_| !self.is_absent(connection)) else { continue };
            let Some(up_at) = self.reachable_at(connection) else { continue };
            let state = self.connections.entry(connection).or_default();
            let own = flow.half(Direction::Incoming);
            // Packets that waited for the next hop are sent when it answers.
            let has_passed = own.last_data_at().is_some_and(|at| at >= up_at);
            if has_passed || own.flows_since(Some(up_at), Direction::Incoming) {
                if let Some(attempt) = &mut state.attempt {
                    attempt.await_own_data();
                }
                self.schedule(connection);
                continue;
            }
            state.incoming.wait_for_unseen(data);
            state.activity = Activity::UnderWay;
            if let Some(waking) = &self.waking {
                let attempt = state.attempt.get_or_insert(Attempt::new(waking.cut_at, up_at, [false, false]));
                attempt.await_own_data();
                if attempt.tries() == 0 {
                    found.insert(connection);
                } else {
                    tried.push((connection, waking.path));
                }
            }
        }
        if let Some(waking) = &mut self.waking {
            // Before connections that may have nothing to wake for.
            waking.queue.retain(|connection| !found.contains(connection));
            let may_be_done =
                |connection: &Connection| self.connections.get(connection).is_some_and(State::may_be_done);
            if !found.is_empty() {
                waking.in_flight.retain(|connection| !may_be_done(connection));
            }
            let place = waking.queue.iter().position(may_be_done).unwrap_or(waking.queue.len());
            let rest = waking.queue.split_off(place);
            waking.queue.extend(found.into_iter().chain(rest));
        }
        for (connection, known) in tried {
            self.act(now, connection, known, path);
        }
        self.wake_more(now, path);
        path.set_link(self.link_state());
    }

    /// The next hop has answered: sending is useful from now on.
    pub fn handle_next_hop(&mut self, now: Instant, path: &mut impl FlowTable) {
        self.learn_of_path(now, Path::Reported, path);
    }

    /// A packet has arrived, and the flow path has handled it.
    pub fn note_arrival(&mut self, now: Instant, path: &mut impl FlowTable) {
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
        path.set_link(self.link_state());
    }

    /// The path is known to work better than before.
    fn learn_of_path(&mut self, now: Instant, known: Path, path: &mut impl FlowTable) {
        let Some(waking) = &mut self.waking else {
            self.known_path = self.known_path.max(known);
            return;
        };
        if waking.path >= known {
            return;
        }
        waking.path = known;
        self.link.proven_at = Some(now);
        let is_tried = |state: &State| state.attempt.is_some_and(|attempt| attempt.tries() > 0);
        let tried = self.connections.iter().filter(|(_, state)| is_tried(state)).map(|(&connection, _)| connection);
        for connection in tried.collect::<Vec<_>>() {
            let Some(flow) = path.snapshot(connection) else { continue };
            if let Some(state) = self.connections.get_mut(&connection) {
                let is_partial = Direction::BOTH.into_iter().any(|direction| state.half(direction).is_waiting());
                if let Some(attempt) = &mut state.attempt {
                    attempt.note_proof(now, is_partial, &flow);
                }
            }
            self.schedule(connection);
        }
        path.set_link(self.link_state());
        self.wake_more(now, path);
    }

    /// Wakes connections whose turn has come.
    pub(super) fn wake_more(&mut self, now: Instant, path: &mut impl FlowTable) {
        let has_waiting = |waking: &Option<Waking>| waking.as_ref().is_some_and(|waking| !waking.queue.is_empty());
        let had_waiting = has_waiting(&self.waking);
        while let Some(waking) = &mut self.waking
            && waking.has_room()
            && let Some(connection) = waking.queue.pop_front()
        {
            self.try_connection(now, connection, path);
        }
        if had_waiting && !has_waiting(&self.waking) {
            self.hurry(now, path);
        }
    }

    /// The last connection has had its turn: those whose first attempt was not answered need not leave the link to others.
    fn hurry(&mut self, now: Instant, path: &impl FlowTable) {
        let Some(waking) = self.waking.as_ref().filter(|waking| waking.path == Path::Proven) else { return };
        for connection in waking.in_flight.iter().copied().collect::<Vec<_>>() {
            let state = self.connections.get_mut(&connection);
            if let (Some(flow), Some(attempt)) =
                (path.snapshot(connection), state.and_then(|state| state.attempt.as_mut()))
            {
                attempt.wait_no_longer(now, QUEUED, &flow);
            }
            self.schedule(connection);
        }
    }

    /// One more attempt.
    fn try_connection(&mut self, now: Instant, connection: Connection, path: &mut impl FlowTable) {
        if self.finish_if_over(now, connection, path) {
            self.show_what_is_held(now, connection, path);
            return;
        }
        let (Some(waking), Some(flow)) = (&mut self.waking, path.snapshot(connection)) else { return };
        // Over a working path, a connection whose first attempt was not answered resumes by its own timer, and makes
        // room for the next.
        let is_first =
            self.connections.get(&connection).and_then(|state| state.attempt).is_some_and(|it| it.tries() == 0);
        if is_first {
            waking.in_flight.insert(connection);
        }
        let (known, others) = (waking.path, waking.in_flight.len().saturating_sub(1));
        let awaited_at =
            self.awaited_answer_at(now, connection, &flow).filter(|_| is_first && known > Path::Unresolved);
        let Some(state) = self.connections.get_mut(&connection) else { return };
        let has_unsent = state.incoming.has_unsent();
        let Some(attempt) = state.attempt.as_mut() else { return };
        if let Some(awaited_at) = awaited_at {
            attempt.wait_until(awaited_at);
            return self.schedule(connection);
        }
        attempt.note_try(now, known, others, &flow);
        // The first attempt is answered by itself if the path works, unless the host has sent nothing.
        let is_to_be_asked = known == Path::Unresolved
            || attempt.tries() > 1
            || has_unsent
            || self.is_between && between::may_have_more(&flow, attempt.cut_at());
        self.act(now, connection, known, path);
        if let Some(state) = self.connections.get_mut(&connection)
            && state.has_train_under_way()
            && let Some(attempt) = &mut state.attempt
        {
            attempt.note_train(&flow);
        }
        if is_to_be_asked {
            let at = At { connection, direction: Direction::Outgoing };
            self.ready.extend(path_probe(at, &flow).map(|probe| (connection, probe)));
        }
        self.schedule(connection);
    }

    /// If many are woken, and the host's TCP has sent data on this connection since the return, as from the kernel's queue for the next hop:
    /// when the answer has arrived, behind a queue. To send the same again would take the link from the others.
    fn awaited_answer_at(&self, now: Instant, connection: Connection, flow: &Flow) -> Option<Instant> {
        self.waking.as_ref().filter(|waking| waking.are_many())?;
        let (own, reachable_at) = (flow.half(Direction::Incoming), self.reachable_at(connection)?);
        let sent_at = own.last_data_at().filter(|&at| at >= reachable_at && own.has_outstanding())?;
        Some(sent_at + Attempt::answered_within(flow) + QUEUED).filter(|&at| at > now)
    }

    /// A connection has resumed by itself. Packets may arrive before the flow path knows that the link is up: an ACK
    /// withheld then, for example of a retransmission that a router had buffered, may be the last while the sender
    /// waits for it.
    fn show_what_is_held(&mut self, now: Instant, connection: Connection, path: &mut impl FlowTable) {
        let (Some(flow), Some(state)) = (path.snapshot(connection), self.connections.get_mut(&connection)) else {
            return;
        };
        for direction in Direction::BOTH {
            let at = At { connection, direction };
            if state.half(direction).is_deferred {
                continue;
            }
            let shown = state.half(direction).flush(now, at, flow.half(direction), path);
            self.ready.extend(shown.map(|packet| (connection, packet)));
        }
        self.schedule(connection);
    }

    /// Acts for a connection, given the state of the path.
    fn act(&mut self, now: Instant, connection: Connection, known: Path, path: &mut impl FlowTable) {
        let Some(flow) = path.snapshot(connection) else { return };
        let up_at = self.reachable_at(connection);
        let Some(state) = self.connections.get_mut(&connection) else { return };
        let is_reset = Direction::BOTH.into_iter().any(|direction| flow.half(direction).is_reset());
        let cut_at = state.attempt.map_or(now, |attempt| attempt.cut_at());
        // This host's data will be answered, and a peer at rest needs no more. One that may have received them before the cut may wait with
        // its answer.
        let own = flow.half(Direction::Incoming);
        let has_own_data = state.incoming.has_unseen() || own.has_outstanding();
        let may_be_answered = own.has_outstanding() && own.last_data_at().is_some_and(|at| at <= cut_at);
        // A peer that sends much may wait for its own timer, whatever arrives from this host.
        let sends_much = flow.half(Direction::Outgoing).bytes_acked() > MUCH;
        let has_own_data = has_own_data && !may_be_answered && !sends_much && !Activity::is_coming(cut_at, &flow);
        let is_first = state.attempt.is_some_and(|attempt| attempt.tries() <= 1);
        let crowd = match &self.waking {
            Some(waking) if has_own_data && !self.is_between && waking.are_many() => Crowd::WaitsAndOwnData,
            Some(waking) if is_first && waking.are_more_than(CROWD) => Crowd::Waits,
            _ => Crowd::None,
        };
        let times = Times { cut_at, up_at, now, is_reset, crowd };
        for direction in Direction::BOTH {
            let (at, half) = (At { connection, direction }, state.half(direction));
            // An ACK that came before the return was known, of data that were not in flight here: no later event shows it.
            let progress_at = flow.half(direction).progress_at(direction);
            let came_before = progress_at.is_none_or(|last| up_at.is_none_or(|up_at| last <= up_at));
            if self.is_between && !is_reset && came_before && !half.was_waiting() {
                let shown = half.flush(now, at, flow.half(direction), path);
                self.ready.extend(shown.map(|injected| (connection, injected)));
            }
            let (packets, outcome) = half.wake(&self.config, at, &flow, times, known, path);
            self.ready.extend(packets.into_iter().map(|packet| (connection, at.inject(packet))));
            let (mechanism, what) = match outcome {
                Outcome::Nothing => continue,
                Outcome::Clocked => (ack_stall::NAME, "released ACK by ACK"),
                Outcome::Released => (self.held_by, "released"),
                Outcome::Poked => (unreachable_poke::NAME, "poked"),
            };
            self.actions.push_back(Action { at: now, connection, mechanism, what });
        }
        self.schedule(connection);
    }

    /// The time for an answer is over.
    pub(super) fn handle_unanswered(&mut self, now: Instant, connection: Connection, path: &mut impl FlowTable) {
        if self.finish_if_over(now, connection, path) {
            self.wake_more(now, path);
            path.set_link(self.link_state());
            return;
        }
        if self.is_patient(now, connection) {
            return self.schedule(connection);
        }
        if let Some(waking) = &mut self.waking
            && waking.path == Path::Proven
            && waking.in_flight.remove(&connection)
            && !self.connections.get(&connection).is_some_and(State::may_be_done)
        {
            waking.shrink(now);
        }
        if let Some(attempt) = self.connections.get_mut(&connection).and_then(|state| state.attempt.as_mut())
            && attempt.is_exhausted()
        {
            attempt.watch(now);
            self.schedule(connection);
            self.wake_more(now, path);
            path.set_link(self.link_state());
            return;
        }
        self.try_connection(now, connection, path);
        self.wake_more(now, path);
        path.set_link(self.link_state());
    }

    /// Whether the answer to a first attempt may still be queued, because many are woken: then the wait continues.
    fn is_patient(&mut self, now: Instant, connection: Connection) -> bool {
        let Some(waking) = self.waking.as_ref().filter(|waking| waking.path == Path::Proven) else { return false };
        let is_alone = waking.queue.is_empty();
        let state = self.connections.get_mut(&connection).filter(|state| !state.may_be_done());
        let attempt = state.and_then(|state| state.attempt.as_mut());
        attempt.filter(|_| !is_alone).is_some_and(|attempt| attempt.wait_longer(now, waking.patience()))
    }

    /// The path does not know a connection any more.
    pub(super) fn forget_in_flight(&mut self, connection: Connection) {
        if let Some(waking) = &mut self.waking {
            waking.in_flight.remove(&connection);
        }
    }

    /// Ends the attempt of a connection that has resumed, or that has none left.
    fn finish_if_over(&mut self, now: Instant, connection: Connection, path: &impl FlowTable) -> bool {
        let flow = path.snapshot(connection);
        let state = self.connections.get_mut(&connection);
        let Some((state, attempt)) = state.and_then(|state| state.attempt.map(|attempt| (state, attempt))) else {
            self.forget_in_flight(connection);
            return true;
        };
        let resumed_at = flow.as_ref().and_then(|flow| attempt.resumed_at(flow));
        let is_over = match &flow {
            None => true,
            Some(flow) => {
                let is_reset = Direction::BOTH.into_iter().any(|direction| flow.half(direction).is_reset());
                // The answer to a probe that came before the release says nothing of what the release brings.
                let is_unreleased = Direction::BOTH.into_iter().any(|direction| state.half(direction).is_waiting());
                let is_done = attempt.is_answered_idle(now, flow) && !state.incoming.has_unseen() && !is_unreleased;
                resumed_at.is_some() || is_reset || is_done || attempt.is_given_up(now)
            }
        };
        if !is_over {
            return false;
        }
        state.attempt = None;
        if resumed_at.is_some() && !self.is_between {
            state.rest = flow.as_ref().and_then(|flow| Rest::of(now, flow));
        }
        let outcome = attempt.outcome(now, connection, flow.as_ref());
        self.outcomes.push_back(outcome);
        if let Some(waking) = &mut self.waking
            && waking.in_flight.remove(&connection)
            && let Some(resumed_at) = resumed_at
        {
            let round_trip = flow.and_then(|flow| flow.least_round_trip()).unwrap_or(UNKNOWN_ROUND_TRIP);
            waking.grow(attempt.answered_in(resumed_at), round_trip);
        }
        self.schedule(connection);
        true
    }

    /// A connection has resumed: the host's own TCP is woken again if what it had outstanding does not move, unless the link or the path is
    /// gone again. Where many go on, it may still be queued.
    pub(super) fn look_after_rest(&mut self, now: Instant, connection: Connection, flow: &Flow) {
        let is_due = |state: &State| state.rest.is_some_and(|rest| rest.next_at() <= now);
        if !self.connections.get(&connection).is_some_and(is_due) {
            return;
        }
        let are_woken = self.waking.as_ref().is_some_and(Waking::are_many);
        let have_rests = self.connections.values().filter(|state| state.rest.is_some()).nth(FIRST_WINDOW).is_some();
        let is_gone = !self.link.is_up() || self.link.silent_since.is_some() || self.is_absent(connection);
        let Some(state) = self.connections.get_mut(&connection) else { return };
        let Some(rest) = &mut state.rest else { return };
        if are_woken || have_rests || is_gone {
            return rest.put_off(now, flow);
        }
        match rest.look(now, flow) {
            Standing::Over => state.rest = None,
            Standing::Moves => {}
            Standing::Stuck => {
                let times = Times { cut_at: now, up_at: None, now, is_reset: false, crowd: Crowd::None };
                let at = At { connection, direction: Direction::Incoming };
                let is_first = rest.has_begun();
                if state.incoming.begin_poke(&self.config, times, at, flow) == Outcome::Poked && is_first {
                    let (mechanism, what) = (unreachable_poke::NAME, "poked");
                    self.actions.push_back(Action { at: now, connection, mechanism, what });
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
