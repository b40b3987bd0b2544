//! **Wake.** What a mobile host alone can do to have data flow one round trip after its link is back, on connections with
//! unmodified peers and before an unmodified TCP of its own. It is made of three mechanisms, each of which can be used alone:
//!
//! - [`crate::hold_back`] sees to it that after any cut there is something new to acknowledge;
//! - [`crate::ack_stall`] makes that much more if the cut was foreseen;
//! - [`crate::unreachable_poke`] is for the case that nothing is held: a cut soon after another, or amid loss recovery.
//!
//! At link-up, what is held is let go as [`crate::release`] tells. It concerns connections that were transferring data when the
//! link broke, in either direction. If data comes by itself within a moment, because the network has kept it, nothing is done.
//! While the link is down no ACK is let out: if it did not die, it would come as a stale one.
//!
//! It is honest by construction: every ACK that it makes is made in one place, which never goes beyond what the receiver's own
//! TCP has acknowledged, and has no SACK blocks but that TCP's; every other is the receiver's, as it is or with a lower number.
//!
//! It is in two parts. Every packet passes the flow path ([`holdover_flow`]); the controller over it, with its timers and its packets,
//! is [`WakeControl`], which works with any [`FlowTable`]. [`Wake`] puts both together into one filter.

mod attempt;
mod between;
mod filter;
mod half;
mod silence;
mod waking;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use holdover_base::{Duration, Instant};
use holdover_flow::{Environment, Flow, FlowTable, LinkState, Notice, Order, Rules, Stall};
use holdover_wire::Packet;

use self::attempt::{Attempt, Path};
use self::half::Half;
use self::waking::Waking;
use crate::ack_stall::{self, AckStallConfig};
use crate::hold_back::{self, HoldBackConfig};
use crate::release::ReleaseConfig;
use crate::unreachable_poke::{Pacing, UnreachablePokeConfig};
use crate::{Action, Direction, Injected, LinkEvent, WakeOutcome};
pub use filter::Wake;
use holdover_filter::Connection;

/// Which of the three mechanisms are on.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct WakeConfig {
    /// Keep something in hand.
    pub hold_back: Option<HoldBackConfig>,
    /// Keep more if the cut is foreseen.
    pub ack_stall: Option<AckStallConfig>,
    /// What to do if there is nothing in hand.
    pub unreachable_poke: Option<UnreachablePokeConfig>,
    /// How what is in hand is let go.
    pub release: ReleaseConfig,
}

impl WakeConfig {
    /// All three.
    pub fn all() -> Self {
        Self {
            hold_back: Some(HoldBackConfig::default()),
            ack_stall: Some(AckStallConfig::default()),
            unreachable_poke: Some(UnreachablePokeConfig::default()),
            release: ReleaseConfig::default(),
        }
    }

    /// What the flow path has to know of it.
    pub fn rules(&self) -> Rules {
        Rules::new(self.hold_back.map(Into::into), self.holds(), self.release.refresh_for)
    }

    pub(crate) fn holds(&self) -> bool {
        self.hold_back.is_some() || self.ack_stall.is_some()
    }
}

/// For so long after the link went down, packets may still come that had been on their way.
const STRAGGLERS: Duration = Duration::from_secs(1);

/// After a stall that was in vain there is none for so long.
const STALL_PAUSE: Duration = Duration::from_secs(1);

/// So many connections that were at rest when the link broke are woken, however long they had been: their peers may have said something
/// in the meantime.
const LEAST_AT_REST: usize = 32;

/// So many are woken if they had data within [`RECENTLY`].
const MOST_AT_REST: usize = 256;

/// More data is on its way if some came within this time before the cut, as far as the host was told of it in time.
const ON_ITS_WAY: Duration = Duration::from_secs(1);

/// See [`MOST_AT_REST`].
const RECENTLY: Duration = Duration::from_secs(60);

/// All of [`Wake`] but what every packet passes.
///
/// The order of calls: [`Self::handle_notice`], [`Self::note_incoming`], [`Self::note_arrival`], [`Self::handle_link`],
/// [`Self::handle_next_hop`], [`Self::wake_outstanding`], [`Self::handle_silence`] or [`Self::handle_timeout`], then [`Self::poll_transmit`], [`Self::poll_action`] and
/// [`Self::poll_outcome`] until `None`, then [`Self::poll_timeout`].
#[derive(Debug)]
pub struct WakeControl {
    config: WakeConfig,
    /// It is not at the host, but between both hosts.
    is_between: bool,
    /// Connections of which there is something to remember.
    connections: BTreeMap<Connection, State>,
    link: Link,
    /// Whose doing it is that there is something to release.
    held_by: &'static str,
    /// Connections with a deadline, and one that is not later than it.
    deadlines: BTreeSet<(Instant, Connection)>,
    ready: VecDeque<(Connection, Injected)>,
    actions: VecDeque<Action>,
    outcomes: VecDeque<WakeOutcome>,
    /// What is being woken since the link came back.
    waking: Option<Waking>,
    /// What is known of the path while the moment of grace lasts.
    known_path: Path,
    /// What pokes of all connections may take of the link.
    pokes: Pacing,
}

/// What is known of the link.
#[derive(Clone, Copy, Default, Debug)]
struct Link {
    /// When it went down, if it is.
    down_at: Option<Instant>,
    up_at: Option<Instant>,
    /// When more became known of the path since then: nothing is held back, and echoes are refreshed, for a while from then on.
    proven_at: Option<Instant>,
    /// When what is held is released.
    release_at: Option<Instant>,
    stall: Option<Stall>,
    /// The last stall was in vain: the next warnings are not believed.
    no_stall_before: Instant,
    /// How often it went down or was released.
    epoch: u32,
    /// Packets came while it was said to be down: it was taken for up, and nobody has said so yet.
    is_inferred: bool,
    /// Since when nothing has come in although something was sent, if that has been noticed.
    silent_since: Option<Instant>,
}

/// A connection: one half for each direction of ACKs.
#[derive(Clone, Debug, Default)]
struct State {
    outgoing: Half,
    incoming: Half,
    /// It is being woken.
    attempt: Option<Attempt>,
    standing: Standing,
    /// Its entry among the deadlines.
    scheduled: Option<Instant>,
}

/// What a connection was doing when the link broke. They are woken in this order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
enum Standing {
    /// Data was on its way, or was sent while the link was down.
    UnderWay,
    /// There had been data a while before.
    #[default]
    Recent,
    /// Nothing, for longer.
    AtRest,
}

/// How what is held is let go while the link is there.
#[derive(Clone, Copy, Debug)]
struct LetGo {
    /// Nobody will be there to let go one ACK after the other.
    at_once: bool,
    /// ACKs were stalled: the duplicates among them are missing.
    stalled: bool,
}

/// One half of a connection: whose ACKs go in `direction`.
#[derive(Clone, Copy, Debug)]
struct At {
    connection: Connection,
    direction: Direction,
}

const BOTH: [Direction; 2] = [Direction::Outgoing, Direction::Incoming];

impl WakeControl {
    /// Before a link that is up, with no connection.
    pub fn new(config: WakeConfig) -> Self {
        Self {
            config,
            is_between: false,
            connections: BTreeMap::new(),
            link: Link::default(),
            held_by: hold_back::NAME,
            deadlines: BTreeSet::new(),
            ready: VecDeque::new(),
            actions: VecDeque::new(),
            outcomes: VecDeque::new(),
            waking: None,
            known_path: Path::Reported,
            pokes: Pacing::default(),
        }
    }

    /// What is on.
    pub fn config(&self) -> &WakeConfig {
        &self.config
    }

    /// What packets have to know of the link.
    pub fn link_state(&self) -> LinkState {
        let Link { down_at, release_at, stall, epoch, silent_since, .. } = self.link;
        let up_at = self.link.proven_at.or(self.link.up_at);
        let awaits_packets = self.waking.as_ref().is_some_and(Waking::awaits_packets);
        let (is_releasing, listens) = (release_at.is_some(), silent_since.is_some());
        LinkState { down_at, up_at, is_releasing, awaits_packets, stall, epoch, listens, ..LinkState::default() }
    }

    /// A packet has come in over the link.
    pub fn note_incoming(&mut self, now: Instant, path: &mut impl FlowTable) {
        self.wake_unheard(now, Path::Proven, path);
        // A link that is said to be down and brings packets is up.
        if !self.link.is_up() && self.link.down_at.is_some_and(|at| now.saturating_since(at) >= STRAGGLERS) {
            self.connect(now, false, Path::Proven, path);
            self.link.is_inferred = true;
        }
    }

    /// Whether the link was told to be down and is taken for up all the same, because packets have come in over it.
    pub fn contradicts_down(&self) -> bool {
        self.link.is_inferred
    }

    /// The flow path has something to do for the half whose ACKs go in `direction`; `now` is when it found out.
    pub fn handle_notice(
        &mut self,
        now: Instant,
        connection: Connection,
        direction: Direction,
        notice: Notice,
        path: &mut impl FlowTable,
    ) {
        let half = self.connections.entry(connection).or_default().half(direction);
        match notice {
            Notice::Held => {
                let flush = self.config.hold_back.map(|config| now + config.flush);
                half.flush_at = half.flush_at.or(flush);
            }
            Notice::Stalled(ack) => half.train.record(now, ack),
            Notice::Queued(ack) if half.train.is_under_way() => half.train.append(ack),
            Notice::Queued(_) => {
                // The last one went while this was on its way.
                let at = At { connection, direction };
                if let Some(flow) = path.snapshot(connection) {
                    if flow.half(direction).is_clocked() {
                        path.order(now, connection, direction, Order::Clock(false));
                    }
                    let flushed = half.flush(now, at, flow.half(direction), path);
                    self.ready.extend(flushed.map(|injected| (connection, injected)));
                }
            }
            // Older than the departure: those that the sender knows are not sent again.
            Notice::Opened if half.train.is_under_way() => {}
            Notice::Opened => half.train.cancel(),
            // Windows are shut by other controllers.
            Notice::Probed(_) | Notice::Heard(_) => {}
        }
        self.schedule(connection);
    }

    /// The layers below say something about the link.
    pub fn handle_link(&mut self, now: Instant, event: LinkEvent, path: &mut impl FlowTable) {
        match event {
            LinkEvent::Fading { lead } => self.warn(now, lead),
            LinkEvent::Recovered => self.end_stall(now, path),
            LinkEvent::Down => self.cut(now, path),
            LinkEvent::Up { moved, .. } => self.connect(now, moved, Path::Reported, path),
        }
        path.set_link(self.link_state());
    }

    /// The link is up, but the next hop is still to be asked whether it is there: [`Self::handle_next_hop`] says so. Until then,
    /// only what may be lost is sent.
    pub fn handle_unresolved_up(&mut self, now: Instant, moved: bool, path: &mut impl FlowTable) {
        self.connect(now, moved, Path::Unresolved, path);
        path.set_link(self.link_state());
    }

    /// A deadline has passed.
    pub fn handle_timeout(&mut self, now: Instant, path: &mut impl FlowTable) {
        if self.link.stall.is_some_and(|stall| stall.until <= now) {
            self.link.no_stall_before = now + STALL_PAUSE;
            self.end_stall(now, path);
            path.set_link(self.link_state());
        }
        if self.link.release_at.is_some_and(|at| at <= now) {
            self.begin_waking(now, self.known_path, path);
            path.set_link(self.link_state());
        }
        while let Some(&(at, connection)) = self.deadlines.first()
            && at <= now
        {
            self.deadlines.pop_first();
            self.serve(now, connection, path);
        }
    }

    /// The next packet to send, or to hand to the host, and the connection that it is for.
    pub fn poll_transmit(&mut self) -> Option<(Connection, Injected)> {
        self.ready.pop_front()
    }

    /// The next thing that was done.
    pub fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// The next outcome of what was done.
    pub fn poll_outcome(&mut self) -> Option<WakeOutcome> {
        self.outcomes.pop_front()
    }

    /// The next deadline.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let connections = self.deadlines.first().map(|&(at, _)| at);
        [connections, self.link.release_at, self.link.stall.map(|stall| stall.until)].into_iter().flatten().min()
    }

    fn cut(&mut self, now: Instant, path: &mut impl FlowTable) {
        // Told once more, by another layer perhaps.
        if self.link.is_up() {
            // If nothing came in before, it was down by then.
            self.cut_those(self.link.silent_since.unwrap_or(now), None, path);
        }
    }

    /// Cuts the connections that have heard nothing since, or all of them.
    fn cut_those(&mut self, now: Instant, silent_since: Option<Instant>, path: &mut impl FlowTable) {
        self.end_waking(now, path);
        let link = self.link;
        let stalling = holdover_flow::Link::new(&self.link_state());
        self.link = Link {
            down_at: link.down_at.or(Some(now)),
            release_at: None,
            stall: None,
            epoch: link.epoch.wrapping_add(1),
            is_inferred: false,
            silent_since: None,
            ..link
        };
        self.held_by = if self.config.hold_back.is_some() { hold_back::NAME } else { ack_stall::NAME };
        // From now on nothing changes but by what still comes in.
        path.set_link(self.link_state());
        let mut spoilt = Vec::new();
        let mut at_rest = Vec::new();
        let pokes = self.config.unreachable_poke.is_some();
        let connections = &mut self.connections;
        path.for_each_live(&mut |connection, flow| {
            if silent_since.is_some_and(|since| flow.has_gone_on_after(since)) {
                return;
            }
            let is_stalled = flow.is_stalling(now, &stalling);
            let is_known = connections.contains_key(&connection);
            let mut state = connections.remove(&connection).unwrap_or_default();
            state.standing = Standing::of(now, flow);
            for direction in BOTH {
                state.half(direction).note_cut(now, link.up_at, direction, flow.half(direction), is_stalled);
            }
            let (received_at, sent) = (flow.half(Direction::Outgoing).last_data_at(), flow.half(Direction::Incoming));
            if !pokes {
                // Nothing but a poke helps them.
            } else if sent.last_data_at() > received_at && !sent.has_outstanding() {
                // It has asked for something that has arrived, and was not answered yet.
                state.outgoing.wait();
            } else if state.is_idle() {
                at_rest.extend(received_at.or(sent.last_data_at()).map(|at| (at, connection, state.clone())));
            }
            let is_window_shrunk = BOTH.into_iter().any(|direction| flow.half(direction).is_window_shrunk());
            if is_known {
                spoilt.push((connection, *flow));
            }
            if is_known || is_window_shrunk || !state.is_idle() {
                connections.insert(connection, state);
            }
        });
        // What comes for them in the meantime is lost too.
        at_rest.sort_unstable_by_key(|&(at, connection, _)| (std::cmp::Reverse(at), connection));
        let is_recent = |at: Instant| now.saturating_since(at) <= RECENTLY;
        let woken = at_rest.into_iter().take(MOST_AT_REST).enumerate();
        let woken = woken.take_while(|&(place, (at, ..))| place < LEAST_AT_REST || is_recent(at));
        for (_, (_, connection, state)) in woken {
            let state = self.connections.entry(connection).or_insert(state);
            state.outgoing.wait();
            state.standing = Standing::AtRest;
        }
        for (connection, flow) in spoilt {
            let Some(state) = self.connections.get_mut(&connection) else { continue };
            for direction in BOTH {
                let at = At { connection, direction };
                state.half(direction).drop_spoilt_train(now, at, flow.half(direction), path);
            }
        }
    }

    /// A cut is near.
    fn warn(&mut self, now: Instant, lead: Option<Duration>) {
        let Some(config) = &self.config.ack_stall else { return };
        let warning = ack_stall::before_cut(config, now, lead);
        // A warning that is repeated is the same warning: ACKs are not stalled for ever. A better one is believed.
        let is_news = self.link.stall.is_none_or(|stall| ack_stall::is_replaced(&stall, &warning, now));
        if is_news && self.link.down_at.is_none() && self.link.no_stall_before <= now {
            self.link.stall = Some(warning);
        }
    }

    /// The link is there, or another one.
    fn connect(&mut self, now: Instant, moved: bool, known: Path, path: &mut impl FlowTable) {
        if self.link.down_at.is_none() {
            // Who is told of a new way without having been without one was cut off all the same.
            if moved {
                self.cut(now, path);
            } else if self.link.is_inferred {
                self.cut_unheard(now, path);
            } else {
                return;
            }
        }
        self.link.is_inferred = false;
        if self.link.release_at.is_some() {
            self.known_path = self.known_path.max(known);
        } else {
            self.known_path = known;
            (self.link.up_at, self.link.proven_at) = (Some(now), None);
            self.link.release_at = Some(now + self.config.release.grace);
        }
        path.set_link(self.link_state());
    }

    /// The link is told to be up, and was taken for it before: what was said of it was too early, or not about all that is
    /// behind it. Connections that have heard nothing of late may have been cut off in the meantime, when the last of them has.
    fn cut_unheard(&mut self, now: Instant, path: &mut impl FlowTable) {
        let silent_since = now - STRAGGLERS;
        let mut broke_at = None;
        path.for_each_live(&mut |_, flow| {
            broke_at = broke_at.max(flow.heard_at().filter(|&at| at <= silent_since));
        });
        self.cut_those(broke_at.unwrap_or(now), Some(silent_since), path);
    }

    fn end_stall(&mut self, now: Instant, path: &mut impl FlowTable) {
        if self.link.stall.take().is_some() {
            path.set_link(self.link_state());
            self.let_go(now, LetGo { at_once: false, stalled: true }, path);
        }
    }

    /// Nothing is to be held from now on, because nobody will be there: every sender is shown what there is.
    pub fn handle_end(&mut self, now: Instant, path: &mut impl FlowTable) {
        let how = LetGo { at_once: true, stalled: self.link.stall.is_some() };
        self.end_waking(now, path);
        self.link = Link { epoch: self.link.epoch, ..Link::default() };
        path.set_link(self.link_state());
        self.let_go(now, how, path);
    }

    /// What was stalled goes, ACK by ACK if there are any, or all at once; what is held or hidden is said.
    fn let_go(&mut self, now: Instant, how: LetGo, path: &mut impl FlowTable) {
        let mut touched = Vec::new();
        path.for_each_live(&mut |connection, flow| {
            let is_touched = |direction| {
                let half = flow.half(direction);
                half.is_window_shrunk() || half.is_recording() || half.is_held() || how.stalled && half.has_hole()
            };
            if BOTH.into_iter().any(is_touched) {
                touched.push(connection);
            }
        });
        for connection in touched {
            let Some(flow) = path.snapshot(connection) else { continue };
            let state = self.connections.entry(connection).or_default();
            for direction in BOTH {
                let at = At { connection, direction };
                let (half, flow_half) = (state.half(direction), flow.half(direction));
                if how.at_once {
                    half.cancel_train(now, at, flow_half, path);
                }
                let packets = half.end_stall(now, flow.least_round_trip(), at, flow_half, path);
                self.ready.extend(packets.into_iter().map(|injected| (connection, injected)));
            }
            self.schedule(connection);
        }
    }

    /// The deadline of a connection may have moved: an entry that is too early is put right when its time comes.
    fn schedule(&mut self, connection: Connection) {
        let Some(state) = self.connections.get_mut(&connection) else { return };
        let deadline = state.deadline();
        let is_late = deadline.is_some_and(|at| state.scheduled.is_none_or(|scheduled| at < scheduled));
        if is_late {
            if let Some(scheduled) = state.scheduled {
                self.deadlines.remove(&(scheduled, connection));
            }
            state.scheduled = deadline;
            self.deadlines.extend(deadline.map(|at| (at, connection)));
        }
        if state.scheduled.is_none() && state.is_idle() {
            self.connections.remove(&connection);
        }
    }

    fn serve(&mut self, now: Instant, connection: Connection, path: &mut impl FlowTable) {
        let (link, rules) = (holdover_flow::Link::new(&self.link_state()), self.config.rules());
        let environment = Environment { now, link: &link, rules: &rules };
        let Some(state) = self.connections.get_mut(&connection) else { return };
        state.scheduled = None;
        for direction in BOTH {
            let Some(flow) = path.snapshot(connection) else {
                self.connections.remove(&connection);
                self.forget_in_flight(connection);
                self.wake_more(now, path);
                return;
            };
            let (at, half) = (At { connection, direction }, state.half(direction));
            let flow_half = flow.half(direction);
            let mut send = |injected| self.ready.push_back((connection, injected));
            if half.flush_at.is_some_and(|at| at <= now) {
                // A newer ACK has come since, or nothing is held any more.
                half.flush_at = flow_half.flush_at().filter(|&at| at > now);
                let is_due = flow_half.flush_at().is_some_and(|at| at <= now);
                let is_kept =
                    self.is_between && direction == Direction::Incoming && between::may_be_cut_off(now, flow_half);
                if is_due && is_kept {
                    half.flush_at = self.config.hold_back.map(|config| now + config.flush);
                } else if is_due && !flow.withholds_all(environment) {
                    // What comes before the order is given is looked after too.
                    half.flush_at = self.config.hold_back.map(|config| now + config.flush);
                    half.flush(now, at, flow_half, path).into_iter().for_each(&mut send);
                }
            }
            half.next_of_train(now, at, flow_half, path).for_each(&mut send);
            let every = self.config.unreachable_poke.map_or(Duration::ZERO, |config| config.every);
            half.poke(now, every, &mut self.pokes, at, flow_half).into_iter().for_each(&mut send);
        }
        let is_unanswered = state.attempt.and_then(|attempt| attempt.next_at()).is_some_and(|at| at <= now);
        if is_unanswered {
            self.handle_unanswered(now, connection, path);
        }
        self.schedule(connection);
    }
}

impl Link {
    /// Whether the host was told that it is, even if the moment of grace is not over.
    fn is_up(&self) -> bool {
        self.down_at.is_none() || self.release_at.is_some()
    }
}

impl Standing {
    /// When the link breaks at `now`.
    fn of(now: Instant, flow: &Flow) -> Self {
        let is_under_way = Self::is_coming(now, flow) || flow.half(Direction::Incoming).has_outstanding();
        if is_under_way { Self::UnderWay } else { Self::Recent }
    }

    /// Whether data of the peer's was on its way when the link broke.
    fn is_coming(cut_at: Instant, flow: &Flow) -> bool {
        flow.half(Direction::Outgoing).last_data_at().is_some_and(|at| cut_at.saturating_since(at) <= ON_ITS_WAY)
    }
}

impl State {
    /// The half whose ACKs go in `direction`.
    fn half(&mut self, direction: Direction) -> &mut Half {
        match direction {
            Direction::Outgoing => &mut self.outgoing,
            Direction::Incoming => &mut self.incoming,
        }
    }

    /// Whether there may be nothing to wake it for, so that a try without an answer says nothing of the path.
    fn may_be_done(&self) -> bool {
        self.standing != Standing::UnderWay
    }

    /// Whether ACKs of a stall are being let go.
    fn has_train_under_way(&self) -> bool {
        self.outgoing.train.is_under_way() || self.incoming.train.is_under_way()
    }

    fn is_idle(&self) -> bool {
        self.outgoing.is_idle() && self.incoming.is_idle() && self.attempt.is_none()
    }

    fn deadline(&self) -> Option<Instant> {
        let next_try = self.attempt.and_then(|attempt| attempt.next_at());
        [&self.outgoing, &self.incoming].into_iter().flat_map(Half::deadlines).chain(next_try).min()
    }
}

impl At {
    /// The connection as the receiver of the data, which makes the ACKs, names it.
    fn receiver(self) -> Connection {
        self.connection.of_sender_going(self.direction)
    }

    /// A packet that goes where the ACKs go.
    fn inject(self, packet: Packet) -> Injected {
        Injected { direction: self.direction, packet }
    }
}

#[cfg(test)]
mod tests;
