//! **Wake.** Makes data flow one round trip after link-up, by actions of the mobile host alone: with unmodified peers, and in front of an
//! unmodified TCP of its own. It consists of three mechanisms, each of which can be used alone:
//!
//! - [`crate::hold_back`] ensures that after any cut there is new data to acknowledge;
//! - [`crate::ack_stall`] holds much more before a predicted cut;
//! - [`crate::unreachable_poke`] is used when nothing is held: after a cut soon after another, or during loss recovery.
//!
//! At link-up, held ACKs are released as described in [`crate::release`]. This concerns connections that were transferring data when the
//! link broke, in either direction. If data arrives by itself within a moment, because the network has buffered it, nothing is done. While
//! the link is down no ACK is sent: it would be lost, or arrive late and stale.
//!
//! All ACKs that it makes are made in one place, which never acknowledges more than the receiver's own TCP has, and adds no SACK blocks but
//! that TCP's; every other ACK is the receiver's, unchanged or with a lower number.
//!
//! It has two parts. Every packet passes the flow path ([`holdover_flow`]); the controller over it, with its timers and its packets, is
//! [`WakeControl`], which works with any [`FlowTable`]. [`Wake`] combines both into one filter.
//!
//! Beside the controller are [`PeerProbes`], which probe peers while the link is silent ([`crate::silence`]), and [`OwnSegments`], copies of the
//! host's own data. The agent uses them unless its configuration disables the detection; [`Wake`] does on request.

mod absent;
mod at;
mod attempt;
mod between;
mod filter;
mod flapping;
mod half;
mod link;
mod own_segments;
mod peer_probes;
mod rest;
mod silence;
mod state;
mod waking;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use holdover_base::{Duration, Instant};
use holdover_flow::{Environment, FlowTable, Notice, Order, Rules};

use self::absent::OwnAddresses;
use self::at::At;
use self::attempt::Path;
use self::between::Inquiry;
use self::half::Sender;
use self::link::{Link, STALL_PAUSE};
use self::state::State;
use self::waking::Waking;
use crate::ack_stall::AckStallConfig;
use crate::hold_back::{self, HoldBackConfig};
use crate::release::ReleaseConfig;
use crate::unreachable_poke::{Pacing, UnreachablePokeConfig};
use crate::{Action, Direction, Injected, WakeOutcome};
pub use filter::Wake;
use holdover_filter::Connection;
pub use own_segments::{Beside, OwnSegments, PeerProbe, SocketState};
pub use peer_probes::{PeerProbes, ReleaseProbe};

/// The enabled mechanisms.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct WakeConfig {
    /// ACKs held back while data flows.
    pub hold_back: Option<HoldBackConfig>,
    /// ACKs held before a predicted cut.
    pub ack_stall: Option<AckStallConfig>,
    /// ICMP messages for connections without held ACKs.
    pub unreachable_poke: Option<UnreachablePokeConfig>,
    /// How held ACKs are released.
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

    /// The parameters for the flow path.
    pub fn rules(&self) -> Rules {
        Rules::new(self.hold_back.map(Into::into), self.holds(), self.release.refresh_for)
    }

    pub(crate) fn holds(&self) -> bool {
        self.hold_back.is_some() || self.ack_stall.is_some()
    }
}

/// The controller: all of [`Wake`] except the flow path.
///
/// The order of calls: [`Self::handle_notice`], [`Self::note_incoming`], [`Self::note_arrival`], [`Self::handle_link`],
/// [`Self::handle_next_hop`], [`Self::wake_outstanding`], [`Self::wake_returned`], [`Self::handle_silence`] or [`Self::handle_timeout`], then
/// [`Self::poll_transmit`], [`Self::poll_action`] and [`Self::poll_outcome`] until `None`, then [`Self::poll_timeout`].
#[derive(Clone, Debug)]
pub struct WakeControl {
    config: WakeConfig,
    /// The controller is between both hosts, not at one of them.
    is_between: bool,
    /// Connections with state.
    connections: BTreeMap<Connection, State>,
    own_addresses: OwnAddresses,
    link: Link,
    /// The mechanism that holds the ACKs to be released.
    held_by: &'static str,
    /// Connections with a deadline, each with a time that is not later than it.
    deadlines: BTreeSet<(Instant, Connection)>,
    ready: VecDeque<(Connection, Injected)>,
    actions: VecDeque<Action>,
    outcomes: VecDeque<WakeOutcome>,
    /// The connections being woken since link-up.
    waking: Option<Waking>,
    /// The known state of the path during the grace period.
    known_path: Path,
    /// Limits the share of the link that all pokes take.
    pokes: Pacing,
    /// On a router: the connection whose absent receiver is probed for its newest ACK.
    inquiry: Inquiry,
}

/// Data of the host's own TCP that its peer has not acknowledged, as the kernel's sockets show.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OwnData {
    /// Sent, and again without an answer.
    Sent,
    /// Not sent: the host had no route or address when it was written. An ACK makes its TCP send it.
    Unsent,
}

/// How held ACKs are released while the link is up.
#[derive(Clone, Copy, Debug)]
struct LetGo {
    /// Release at once: no later timer will run.
    at_once: bool,
    /// ACKs were stalled: their duplicates are missing.
    stalled: bool,
}

impl WakeControl {
    /// A controller of a link that is up, without connections.
    pub fn new(config: WakeConfig) -> Self {
        Self {
            config,
            is_between: false,
            connections: BTreeMap::new(),
            own_addresses: OwnAddresses::default(),
            link: Link::default(),
            held_by: hold_back::NAME,
            deadlines: BTreeSet::new(),
            ready: VecDeque::new(),
            actions: VecDeque::new(),
            outcomes: VecDeque::new(),
            waking: None,
            known_path: Path::Reported,
            pokes: Pacing::default(),
            inquiry: Inquiry::default(),
        }
    }

    /// Its configuration.
    pub fn config(&self) -> &WakeConfig {
        &self.config
    }

    /// Handles a notice of the flow path about the half whose ACKs go in `direction`; `now` is the time of its packet.
    pub fn handle_notice(
        &mut self,
        now: Instant,
        connection: Connection,
        direction: Direction,
        notice: Notice,
        path: &mut impl FlowTable,
    ) {
        let is_up = self.link.is_up();
        let half = self.connections.entry(connection).or_default().half(direction);
        match notice {
            Notice::Held => {
                let flush = self.config.hold_back.map(|config| now + config.flush);
                half.flush_at = half.flush_at.or(flush);
            }
            Notice::Cut => {
                let flush = now + holdover_flow::CUT_FLUSH;
                half.flush_at = Some(half.flush_at.map_or(flush, |at| at.min(flush)));
                half.is_cut_in_two = true;
            }
            Notice::Stalled(ack) => half.train.record(now, ack),
            Notice::Queued(ack) if half.train.is_under_way() => half.train.append(ack),
            // They are released with the others.
            Notice::Queued(_) if half.is_deferred || !is_up => {}
            Notice::Queued(_) => {
                // The train's last ACK was released while this notice was in flight.
                let at = At { connection, direction };
                if let Some(flow) = path.snapshot(connection) {
                    if flow.half(direction).is_clocked() {
                        path.order(now, connection, direction, Order::Clock(false));
                    }
                    let flushed = half.flush(now, at, flow.half(direction), path);
                    self.ready.extend(flushed.map(|injected| (connection, injected)));
                }
            }
            // The notice precedes the release, which repeats no ACK that the sender has received.
            Notice::Opened if half.train.is_under_way() => {}
            Notice::Opened => half.train.cancel(),
            // Only other controllers shut windows.
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
        if self.link.deferred_until.is_some_and(|at| at <= now) {
            self.end_deferral(now, path);
            path.set_link(self.link_state());
        }
        while let Some(&(at, connection)) = self.deadlines.first()
            && at <= now
        {
            self.deadlines.pop_first();
            self.serve(now, connection, path);
        }
    }

    /// The next packet to send, or to hand to the host, and its connection.
    pub fn poll_transmit(&mut self) -> Option<(Connection, Injected)> {
        self.ready.pop_front()
    }

    /// The next action.
    pub fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// The next outcome of waking a connection.
    pub fn poll_outcome(&mut self) -> Option<WakeOutcome> {
        self.outcomes.pop_front()
    }

    /// The next deadline.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let connections = self.deadlines.first().map(|&(at, _)| at);
        let of_link = [self.link.release_at, self.link.deferred_until, self.link.stall.map(|stall| stall.until)];
        of_link.into_iter().chain([connections]).flatten().min()
    }

    /// The controller ends: releases every held ACK, and holds none from now on.
    pub fn handle_end(&mut self, now: Instant, path: &mut impl FlowTable) {
        let how = LetGo { at_once: true, stalled: self.link.stall.is_some() };
        self.end_waking(now, path);
        self.link = Link { epoch: self.link.epoch, ..Link::default() };
        path.set_link(self.link_state());
        self.abandon_deferral(now, path);
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
            if Direction::BOTH.into_iter().any(is_touched) {
                touched.push(connection);
            }
        });
        for connection in touched {
            let Some(flow) = path.snapshot(connection) else { continue };
            let state = self.connections.entry(connection).or_default();
            for direction in Direction::BOTH {
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

    /// The deadline of a connection may have changed. An entry that is too early is corrected when it is due.
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
        let Some(flow) = path.snapshot(connection) else {
            self.connections.remove(&connection);
            self.forget_in_flight(connection);
            self.wake_more(now, path);
            return;
        };
        // Orders for one direction change nothing in the other.
        for direction in Direction::BOTH {
            let (at, half) = (At { connection, direction }, state.half(direction));
            let flow_half = flow.half(direction);
            let mut send = |injected| self.ready.push_back((connection, injected));
            if half.flush_at.is_some_and(|at| at <= now) {
                // A newer ACK has arrived since, or nothing is held any more.
                half.flush_at = flow_half.flush_at().filter(|&at| at > now);
                let is_due = flow_half.flush_at().is_some_and(|at| at <= now);
                // The second step is never kept: the sender would take the first one for all that has arrived.
                let is_second_step = is_due && std::mem::take(&mut half.is_cut_in_two);
                let may_be_kept = self.is_between && direction == Direction::Incoming && !is_second_step;
                let is_kept = may_be_kept && between::may_be_cut_off(now, flow_half);
                if is_due && is_kept {
                    half.flush_at = self.config.hold_back.map(|config| now + config.flush);
                } else if is_due && !flow.withholds_all(environment) {
                    // ACKs held before the order is applied are covered as well.
                    half.flush_at = self.config.hold_back.map(|config| now + config.flush);
                    half.flush(now, at, flow_half, path).into_iter().for_each(&mut send);
                }
            }
            half.next_of_train(now, at, flow_half, path).for_each(&mut send);
            let every = self.config.unreachable_poke.map_or(Duration::ZERO, |config| config.every);
            let is_own = direction == Direction::Incoming && !self.is_between;
            let sender = if is_own { Sender::OwnTcp } else { Sender::Far };
            half.poke(now, every, &mut self.pokes, at, sender, flow_half).for_each(&mut send);
            let owed = half.pay(now, &self.config, at, &flow, path);
            owed.into_iter().for_each(|packet| send(at.inject(packet)));
        }
        let is_unanswered = state.attempt.and_then(|attempt| attempt.next_at()).is_some_and(|at| at <= now);
        if is_unanswered {
            self.handle_unanswered(now, connection, path);
        }
        self.look_after_rest(now, connection, &flow);
        self.schedule(connection);
    }
}

#[cfg(test)]
mod tests;
