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
mod link;
mod silence;
mod state;
mod waking;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use holdover_base::{Duration, Instant};
use holdover_flow::{Environment, FlowTable, Notice, Order, Rules};

use self::attempt::Path;
use self::link::{Link, STALL_PAUSE};
use self::state::{At, BOTH, State};
use self::waking::Waking;
use crate::ack_stall::AckStallConfig;
use crate::hold_back::{self, HoldBackConfig};
use crate::release::ReleaseConfig;
use crate::unreachable_poke::{Pacing, UnreachablePokeConfig};
use crate::{Action, Direction, Injected, WakeOutcome};
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

/// How what is held is let go while the link is there.
#[derive(Clone, Copy, Debug)]
struct LetGo {
    /// Release at once: no later timer will run.
    at_once: bool,
    /// ACKs were stalled: the duplicates among them are missing.
    stalled: bool,
}

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
            Notice::Cut => {
                let flush = now + holdover_flow::CUT_FLUSH;
                half.flush_at = Some(half.flush_at.map_or(flush, |at| at.min(flush)));
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

    /// The controller ends: releases every held ACK, and holds none from now on.
    pub fn handle_end(&mut self, now: Instant, path: &mut impl FlowTable) {
        let how = LetGo { at_once: true, stalled: self.link.stall.is_some() };
        self.end_waking(now, path);
        self.link = Link { epoch: self.link.epoch, ..Link::default() };
        path.set_link(self.link_state());
        self.let_go(now, how, path);
    }

    /// Releases stalled ACKs, one by one or at once, then held ACKs and shrunk windows.
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

#[cfg(test)]
mod tests;
