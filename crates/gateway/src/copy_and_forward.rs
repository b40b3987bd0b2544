//! **Copy and forward** (the thesis on Freeze-TCP, sections 4.6.3 to 4.6.5): the other design of the thesis' gateway. When a mobile host
//! predicts its disconnection, the gateway continues to forward its data, and keeps copies. When the host registers from another cell, the
//! gateway sends the copies there, so that the fixed host has nothing to retransmit. If the host does not leave after all, nothing was
//! delayed; in [`crate::blocking_buffer`] an early warning costs the time until the next registration.
//!
//! The price: data that is probably lost uses the old cell's radio, and the gateway parses TCP headers and has state for each connection:
//! ACKs show which copies have arrived.
//!
//! # Where the thesis is silent
//!
//! - **A fade without a handoff**: an ACK without the sign ends the copying. Copies stay until they are acknowledged.
//! - **The buffer** is bounded: beyond [`CopyAndForwardConfig::buffer_bytes`] data is forwarded without a copy, and after
//!   [`CopyAndForwardConfig::longest`] a copy is dropped.
//! - **The burst limit** belongs to the blocking buffer; all copies are sent at once.

use core::net::IpAddr;
use std::collections::VecDeque;

use holdover_base::{Duration, Instant};
use holdover_filter::{
    Action, Agenda, Connection, Direction, Injected, LinkEvent, Presence, SegmentFilter, Stored, Table, Verdict,
};
use holdover_wire::{Flags, Packet, Seq};

use crate::cache::Cache;
use crate::warning_sign::{Shown, WarningSign};

/// The parameters of the gateway. See the [module](self).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CopyAndForwardConfig {
    /// The sign of a predicted disconnection.
    pub sign: WarningSign,
    /// The most bytes of copies for each connection, with their headers.
    pub buffer_bytes: usize,
    /// The longest time that a copy is kept.
    pub longest: Duration,
}

impl Default for CopyAndForwardConfig {
    /// By the window; 256 kB for each connection, more than the largest window without scaling; 120 s, the longest that TCP waits
    /// between two tries.
    fn default() -> Self {
        Self { sign: WarningSign::default(), buffer_bytes: 256_000, longest: Duration::from_secs(120) }
    }
}

impl CopyAndForwardConfig {
    /// Why the mechanism would do nothing, if so.
    pub(crate) fn why_idle(&self) -> Option<&'static str> {
        (self.buffer_bytes == 0 || self.longest == Duration::ZERO).then_some("it keeps nothing")
    }
}

/// The filter of a gateway. See the [module](self).
#[derive(Debug)]
pub struct CopyAndForward {
    config: CopyAndForwardConfig,
    connections: Table<State>,
    agenda: Agenda,
    ready: VecDeque<Injected>,
    actions: VecDeque<Action>,
}

/// The state of a connection over which the fixed host sends.
#[derive(Clone, Default, Debug)]
struct State {
    /// Whether the mobile host predicts its disconnection.
    warned: bool,
    /// The highest ACK of the mobile host.
    acked: Option<Seq>,
    cache: Cache,
    due: Option<Instant>,
}

impl CopyAndForward {
    /// The name in scenario files.
    pub const NAME: &'static str = "copy_and_forward";

    /// A gateway without state.
    pub fn new(config: CopyAndForwardConfig) -> Self {
        Self {
            config,
            connections: Table::default(),
            agenda: Agenda::default(),
            ready: VecDeque::new(),
            actions: VecDeque::new(),
        }
    }

    fn handle_from_fixed(&mut self, now: Instant, connection: Connection, packet: &mut Packet) {
        let Self { config, connections, agenda, .. } = self;
        config.sign.mark(packet, false);
        let Some(segment) = packet.tcp() else { return };
        let noted = connections.observe(now, Direction::Outgoing, connection, segment);
        let (state, is_over) = (noted.value, noted.is_over);
        if is_over || segment.flags.intersects(Flags::SYN | Flags::RST) {
            return state.forget(agenda, connection);
        }
        let is_new = state.acked.is_none_or(|acked| (segment.seq + segment.seq_len()).gt(acked));
        let fits = state.cache.bytes() + packet.wire_len() <= config.buffer_bytes;
        if state.warned && segment.seq_len() > 0 && is_new && fits {
            state.cache.insert(now, packet);
            state.reschedule(agenda, connection, config.longest);
        }
    }

    fn handle_from_mobile(&mut self, now: Instant, connection: Connection, packet: &mut Packet) {
        let Self { config, connections, agenda, actions, .. } = self;
        let shown = config.sign.take(packet);
        let Some(segment) = packet.tcp() else { return };
        let noted = connections.observe(now, Direction::Incoming, connection, segment);
        let (state, is_over) = (noted.value, noted.is_over);
        if is_over || segment.flags.intersects(Flags::SYN | Flags::RST) || !segment.flags.contains(Flags::ACK) {
            return state.forget(agenda, connection);
        }
        state.acked = Some(state.acked.map_or(segment.ack, |acked| acked.max(segment.ack)));
        state.cache.handle_ack(segment);
        state.reschedule(agenda, connection, config.longest);
        let warned = match shown {
            Some(shown) => shown == Shown::Warning,
            None => state.warned,
        };
        if core::mem::replace(&mut state.warned, warned) != warned {
            let what = if warned { "keeps copies" } else { "keeps no more copies" };
            actions.push_back(Action { at: now, connection, mechanism: Self::NAME, what });
        }
    }

    /// The mobile host is in another cell: resends the packets of the old one.
    fn handle_rebound(&mut self, now: Instant, mobile: IpAddr) {
        let Self { config, connections, ready, actions, .. } = self;
        for (connection, state) in connections.live_mut().filter(|(connection, _)| connection.mobile().ip() == mobile) {
            if !core::mem::take(&mut state.warned) {
                continue;
            }
            for cached in state.cache.iter_mut() {
                let mut packet = cached.packet.clone();
                config.sign.mark(&mut packet, true);
                ready.push_back(Injected { direction: Direction::Outgoing, packet });
            }
            if !state.cache.is_empty() {
                actions.push_back(Action { at: now, connection, mechanism: Self::NAME, what: "sent copies" });
            }
        }
    }
}

impl State {
    /// When the oldest copy expires.
    fn reschedule(&mut self, agenda: &mut Agenda, connection: Connection, longest: Duration) {
        let oldest = self.cache.iter_mut().map(|cached| cached.sent_at).min();
        agenda.set(connection, &mut self.due, oldest.map(|at| at + longest));
    }

    fn forget(&mut self, agenda: &mut Agenda, connection: Connection) {
        agenda.set(connection, &mut self.due, None);
        (self.warned, self.acked) = (false, None);
        self.cache.clear();
    }
}

impl SegmentFilter for CopyAndForward {
    fn handle_packet(&mut self, now: Instant, direction: Direction, packet: &mut Packet) -> Verdict {
        match (Connection::of(direction, packet), direction) {
            (Some(connection), Direction::Outgoing) => self.handle_from_fixed(now, connection, packet),
            (Some(connection), Direction::Incoming) => self.handle_from_mobile(now, connection, packet),
            // Packets other than TCP show no sign and get none.
            (None, Direction::Outgoing) => self.config.sign.mark(packet, false),
            (None, Direction::Incoming) => drop(self.config.sign.take(packet)),
        }
        Verdict::Pass
    }

    fn handle_link(&mut self, _now: Instant, _event: LinkEvent) {}

    fn handle_mobile(&mut self, now: Instant, mobile: IpAddr, presence: Presence) {
        if presence == Presence::Rebound {
            self.handle_rebound(now, mobile);
        }
    }

    /// Removes old copies. The warning stands: the host may still be absent.
    fn handle_timeout(&mut self, now: Instant) {
        let Self { config, connections, agenda, .. } = self;
        while let Some(connection) = agenda.take_due(now) {
            let Some(state) = connections.get_mut(connection) else { continue };
            if state.due.take_if(|due| *due <= now).is_none() {
                continue;
            }
            state.cache.forget_sent_until(now - config.longest);
            state.reschedule(agenda, connection, config.longest);
        }
    }

    fn poll_transmit(&mut self, _now: Instant) -> Option<Injected> {
        self.ready.pop_front()
    }

    fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    fn stored(&self) -> Stored {
        Stored::of_connections(self.connections.live().map(|(_, state)| state.cache.bytes()))
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.agenda.next()
    }
}
