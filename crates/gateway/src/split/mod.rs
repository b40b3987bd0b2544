//! **Split connections**: a node in the network terminates the connections of mobile hosts, so that each half has its own TCP. Neither end
//! knows: towards the fixed host the node uses the mobile host's address, and towards the mobile host the fixed host's (M-TCP, section 4,
//! *transparent addressing*).
//!
//! [`Split`] alone is **I-TCP** (Bakre and Badrinath 1995): data is acknowledged on arrival, so the node acknowledges data that the mobile
//! host may never receive, and its buffers have to move with the host. [`crate::m_tcp`] builds on it, and acknowledges only data that the
//! mobile host has received.
//!
//! # Choices
//!
//! - **A SYN is answered when the far end has answered**, not before ([`SplitConfig::lock_step`]): a client of a mobile host that refuses
//!   gets its RST; if the mobile host is silent, the node does not answer until its own SYNs are used up. M-TCP's authors complete one
//!   handshake first, and accept a connection that may never be established; `lock_step: false` does that.
//! - **Connections older than the node**, or beyond [`SplitConfig::most`], pass unchanged.
//! - **When the mobile host moves to another node**, its connections follow with the data in their buffers, if the two nodes are peers
//!   ([`SplitConfig::handoff`]); see `handoff.rs`. Otherwise the halves stay where they are.

mod half;
mod handoff;

use core::net::{IpAddr, SocketAddr};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use holdover_base::Instant;
use holdover_filter::{
    Action, Connection, ControlMessage, Direction, Injected, LinkEvent, Presence, SegmentFilter, Stored, Verdict,
};
use holdover_tcp::{Config, ConnectionId, Endpoint, Event, Resumption, reset_for};
use holdover_wire::{Flags, IcmpError, Packet, Payload, Segment};

use crate::handoff::{HandoffConfig, Node, Peers, RecordAge, RecordKind, salt_of};
use half::Half;

/// A half of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Side {
    /// Between the fixed host and the node.
    Fixed,
    /// Between the node and the mobile host.
    Mobile,
}

impl Side {
    pub(crate) const BOTH: [Self; 2] = [Self::Fixed, Self::Mobile];

    pub(crate) const fn other(self) -> Self {
        match self {
            Self::Fixed => Self::Mobile,
            Self::Mobile => Self::Fixed,
        }
    }

    /// The side from which a packet in `direction` arrives.
    pub(crate) const fn of_sender(direction: Direction) -> Self {
        match direction {
            Direction::Outgoing => Self::Fixed,
            Direction::Incoming => Self::Mobile,
        }
    }

    /// The direction of packets that the node sends on this side.
    pub(crate) const fn direction(self) -> Direction {
        match self {
            Self::Fixed => Direction::Incoming,
            Self::Mobile => Direction::Outgoing,
        }
    }
}

/// How connections are split.
#[derive(Clone, PartialEq, Debug)]
pub struct SplitConfig {
    /// The TCP towards fixed hosts.
    pub fixed: Arc<Config>,
    /// The TCP towards mobile hosts.
    pub mobile: Arc<Config>,
    /// Whether a SYN is answered only when the far end has answered it.
    pub lock_step: bool,
    /// The most connections that are split at once.
    pub most: usize,
    /// How connections move between nodes, with the data in their buffers; `None` if they do not.
    pub handoff: Option<HandoffConfig>,
}

impl SplitConfig {
    /// The same TCP on both sides, in lock step, for up to 10,000 connections, which do not move.
    pub fn with(tcp: Config) -> Self {
        let tcp = Arc::new(tcp);
        Self { fixed: Arc::clone(&tcp), mobile: tcp, lock_step: true, most: 10_000, handoff: None }
    }

    /// Why the mechanism would do nothing, if so.
    pub(crate) fn why_idle(&self) -> Option<&'static str> {
        (self.most == 0).then_some("it splits at most 0 connections")
    }
}

/// A connection in two halves.
#[derive(Debug)]
pub(crate) struct Pair {
    ids: [Option<ConnectionId>; 2],
    /// The side that has opened it, and its SYN while unanswered.
    syn: Option<(Side, Packet)>,
    /// Whether the end of the other side's data was passed on to this one.
    is_shut: [bool; 2],
    /// Its age, if it may be handed on.
    age: RecordAge,
    /// Taken over from another node, and the mobile host has not been noticed here since.
    is_unheard: bool,
}

impl Pair {
    fn new(ids: [Option<ConnectionId>; 2]) -> Self {
        Self { ids, syn: None, is_shut: [false; 2], age: RecordAge::default(), is_unheard: false }
    }
}

/// The filter of I-TCP, and the two halves of [`crate::m_tcp`]. See the [module](self).
#[derive(Debug)]
pub struct Split {
    config: SplitConfig,
    halves: [Half; 2],
    pairs: BTreeMap<Connection, Pair>,
    /// Connections with changes since [`Self::take_changed`].
    changed: BTreeSet<Connection>,
    ready: VecDeque<Injected>,
    actions: VecDeque<Action>,
    /// The handoff of connections, if enabled.
    peers: Option<Peers>,
    /// Mobile hosts that are present, as reported by the layers below.
    here: BTreeSet<IpAddr>,
}

impl Split {
    /// The name in scenario files.
    pub const NAME: &'static str = "split";

    /// A node without state. Initial sequence numbers are derived from `secret`.
    pub fn new(config: SplitConfig, secret: [u8; 16]) -> Self {
        Self::exchanging(RecordKind::Whole, config, secret)
    }

    /// The same, with records of this kind in handoffs.
    pub(crate) fn exchanging(kind: RecordKind, config: SplitConfig, secret: [u8; 16]) -> Self {
        Self {
            peers: config.handoff.clone().map(|config| Peers::new(config, kind, salt_of(secret))),
            here: BTreeSet::new(),
            config,
            halves: [Half::new(secret), Half::new(secret.map(|byte| !byte))],
            pairs: BTreeMap::new(),
            changed: BTreeSet::new(),
            ready: VecDeque::new(),
            actions: VecDeque::new(),
        }
    }

    /// The number of connections that are split now.
    pub fn connections(&self) -> usize {
        self.pairs.len()
    }

    fn endpoint(&mut self, side: Side) -> &mut Endpoint {
        &mut self.halves[side as usize].endpoint
    }

    /// One half of a connection, if it exists.
    pub(crate) fn half(&self, connection: Connection, side: Side) -> Option<&holdover_tcp::Connection> {
        let id = self.pairs.get(&connection)?.ids[side as usize]?;
        self.halves[side as usize].endpoint.connection(id)
    }

    /// The same, mutable. Call [`Self::advance`] afterwards.
    pub(crate) fn half_mut(&mut self, connection: Connection, side: Side) -> Option<&mut holdover_tcp::Connection> {
        let id = self.pairs.get(&connection)?.ids[side as usize]?;
        self.halves[side as usize].endpoint.connection_mut(id)
    }

    /// Whether a connection is split.
    pub(crate) fn has(&self, connection: Connection) -> bool {
        self.pairs.contains_key(&connection)
    }

    /// Whether connections move between nodes.
    pub(crate) fn has_peers(&self) -> bool {
        self.peers.is_some()
    }

    /// Whether the far end of a connection has not answered its first SYN.
    pub(crate) fn is_unanswered(&self, connection: Connection) -> bool {
        self.pairs.get(&connection).is_some_and(|pair| pair.syn.is_some())
    }

    /// Connections with output or events of a half since the last call.
    pub(crate) fn take_changed(&mut self) -> BTreeSet<Connection> {
        core::mem::take(&mut self.changed)
    }

    /// Takes over a connection that another node has split, with these halves: towards the fixed host and towards the
    /// mobile one. Returns whether there is room for it.
    pub(crate) fn resume(
        &mut self,
        now: Instant,
        connection: Connection,
        age: RecordAge,
        halves: [&Resumption; 2],
    ) -> bool {
        if self.pairs.len() >= self.config.most || self.pairs.contains_key(&connection) {
            return false;
        }
        let mut ids = [None; 2];
        for (side, resumption) in Side::BOTH.into_iter().zip(halves) {
            let config = self.config_of(side);
            ids[side as usize] = self.endpoint(side).resume(now, config, resumption).ok();
        }
        for (side, id) in Side::BOTH.into_iter().zip(ids) {
            let Some(id) = id else { continue };
            if ids.contains(&None) {
                self.endpoint(side).withdraw(id);
            } else {
                self.halves[side as usize].enter(id, connection);
            }
        }
        let is_whole = !ids.contains(&None);
        if is_whole {
            let is_shut = halves.map(|resumption| resumption.is_sent_all);
            self.pairs.insert(connection, Pair { is_shut, age, ..Pair::new(ids) });
        }
        is_whole
    }

    /// Removes a connection without notifying either end.
    pub(crate) fn withdraw(&mut self, connection: Connection) {
        let Some(pair) = self.pairs.remove(&connection) else { return };
        for side in Side::BOTH {
            if let Some(id) = pair.ids[side as usize] {
                self.halves[side as usize].withdraw(id);
            }
        }
    }

    fn config_of(&self, side: Side) -> Arc<Config> {
        Arc::clone(match side {
            Side::Fixed => &self.config.fixed,
            Side::Mobile => &self.config.mobile,
        })
    }

    /// A SYN begins a connection: the other half is opened first, or at once. `opened`: see [`RecordAge`].
    fn open(&mut self, now: Instant, connection: Connection, from: Side, packet: &Packet, opened: u64) -> Verdict {
        if self.pairs.len() >= self.config.most {
            return Verdict::Pass;
        }
        let to = from.other();
        let (own, peer) = match from {
            Side::Fixed => (connection.fixed(), connection.mobile()),
            Side::Mobile => (connection.mobile(), connection.fixed()),
        };
        let config = self.config_of(to);
        let half = &mut self.halves[to as usize];
        let Ok(id) = half.endpoint.connect(now, config, Some(own), peer) else { return Verdict::Pass };
        half.enter(id, connection);
        let mut ids = [None; 2];
        ids[to as usize] = Some(id);
        let age = RecordAge { opened, epoch: 0 };
        self.pairs.insert(connection, Pair { syn: Some((from, packet.clone())), age, ..Pair::new(ids) });
        if !self.config.lock_step {
            self.answer(now, connection);
        }
        Verdict::Keep
    }

    /// The far end has answered: so does the node.
    fn answer(&mut self, now: Instant, connection: Connection) {
        let Some((from, packet)) = self.pairs.get_mut(&connection).and_then(|pair| pair.syn.take()) else { return };
        let config = self.config_of(from);
        let half = &mut self.halves[from as usize];
        let Some(id) = half.endpoint.accept(now, config, &packet) else { return };
        half.enter(id, connection);
        if let Some(pair) = self.pairs.get_mut(&connection) {
            pair.ids[from as usize] = Some(id);
        }
    }

    /// Handles every deadline of a half at or before `now`.
    pub(crate) fn handle_timers(&mut self, now: Instant) {
        for side in Side::BOTH {
            self.endpoint(side).handle_timeout(now);
        }
        self.advance(now);
    }

    /// Moves data between the halves, and sends pending packets.
    pub(crate) fn advance(&mut self, now: Instant) {
        loop {
            let mut events = Vec::new();
            for side in Side::BOTH {
                while let Some(out) = self.endpoint(side).poll_transmit(now) {
                    let owner = out.connection.and_then(|id| self.halves[side as usize].owner(id));
                    self.changed.extend(owner);
                    self.ready.push_back(Injected { direction: side.direction(), packet: out.packet });
                }
                while let Some((id, event)) = self.endpoint(side).poll_event() {
                    events.extend(self.halves[side as usize].owner(id).map(|connection| (side, connection, event)));
                }
            }
            if events.is_empty() {
                return;
            }
            for (side, connection, event) in events {
                self.handle_event(now, side, connection, event);
            }
        }
    }

    fn handle_event(&mut self, now: Instant, side: Side, connection: Connection, event: Event) {
        self.changed.insert(connection);
        match event {
            Event::Connected => self.answer(now, connection),
            Event::Closed => return self.end(now, side, connection),
            _ => {}
        }
        self.pump(now, connection, Side::Fixed);
        self.pump(now, connection, Side::Mobile);
    }

    /// Moves data of one half to the other, as far as there is room.
    pub(crate) fn pump(&mut self, now: Instant, connection: Connection, from: Side) {
        let to = from.other();
        let Some(pair) = self.pairs.get_mut(&connection) else { return };
        let [Some(from_id), Some(to_id)] = [pair.ids[from as usize], pair.ids[to as usize]] else { return };
        loop {
            let room = self.halves[to as usize].endpoint.connection(to_id).map_or(0, |half| half.write_room());
            let readable =
                self.halves[from as usize].endpoint.connection(from_id).map_or(0, |half| half.readable_len());
            if room == 0 || readable == 0 {
                break;
            }
            let half = self.halves[from as usize].endpoint.connection_mut(from_id);
            let Some(data) = half.and_then(|half| half.read_at_most(now, room)) else { break };
            if let Some(half) = self.halves[to as usize].endpoint.connection_mut(to_id) {
                half.write(now, data);
            }
        }
        let has_ended =
            self.halves[from as usize].endpoint.connection(from_id).is_some_and(holdover_tcp::Connection::is_read_out);
        if has_ended && !pair.is_shut[to as usize] {
            pair.is_shut[to as usize] = true;
            if let Some(half) = self.halves[to as usize].endpoint.connection_mut(to_id) {
                half.shutdown_write();
            }
        }
    }

    /// Handles the end of one half. If it failed, the other is aborted.
    fn end(&mut self, now: Instant, side: Side, connection: Connection) {
        let Some(pair) = self.pairs.get(&connection) else { return };
        let id = |side: Side| pair.ids[side as usize];
        let half = |side: Side| id(side).and_then(|id| self.halves[side as usize].endpoint.connection(id));
        let failed = half(side).is_some_and(|half| half.error().is_some());
        let other = side.other();
        let is_other_over = half(other).is_none_or(holdover_tcp::Connection::is_closed);
        if let Some((from, syn)) = &pair.syn
            && let Some(reset) = syn.tcp().and_then(reset_for)
        {
            let packet = Packet::new(syn.dst, syn.src, reset);
            self.ready.push_back(Injected { direction: from.direction(), packet });
            self.actions.push_back(Action { at: now, connection, mechanism: Self::NAME, what: "refused" });
        }
        if failed && !is_other_over {
            if let Some(half) = self.half_mut(connection, other) {
                half.abort();
            }
        } else if is_other_over {
            self.forget(now, connection);
        } else {
            // Closed in good order: its data is passed on, and the other half closes later.
            self.pump(now, connection, side);
        }
    }

    /// Whether a SYN on a known connection reuses its ports: the half at which it arrives is closed, or is in TIME-WAIT and may be reopened
    /// (RFC 9293 section 3.6.1).
    fn is_begun_anew(&self, connection: Connection, from: Side, segment: &Segment) -> bool {
        self.half(connection, from).is_none_or(|half| {
            let is_newer = segment.seq.gt(half.rcv_nxt()) || half.is_newer_by_timestamp(segment);
            half.is_closed() || half.state() == holdover_tcp::State::TimeWait && is_newer
        })
    }

    /// Aborts both halves.
    pub(crate) fn give_up(&mut self, now: Instant, connection: Connection) {
        for side in Side::BOTH {
            if let Some(half) = self.half_mut(connection, side).filter(|half| !half.is_closed()) {
                half.abort();
            }
            while let Some(out) = self.endpoint(side).poll_transmit(now) {
                self.ready.push_back(Injected { direction: side.direction(), packet: out.packet });
            }
        }
        self.forget(now, connection);
    }

    /// Handles an ICMP error about a segment that the node has sent on behalf of an end.
    fn take_error(&mut self, now: Instant, direction: Direction, packet: &Packet, error: &IcmpError) -> Verdict {
        let Ok(quoted) = error.quoted_tcp() else { return Verdict::Pass };
        let (src, dst) = (SocketAddr::new(quoted.src, quoted.src_port), SocketAddr::new(quoted.dst, quoted.dst_port));
        let (side, connection) = match direction {
            Direction::Outgoing => (Side::Fixed, Connection::between(dst, src)),
            Direction::Incoming => (Side::Mobile, Connection::between(src, dst)),
        };
        if !self.pairs.contains_key(&connection) {
            return Verdict::Pass;
        }
        self.endpoint(side).handle_packet(now, packet);
        Verdict::Keep
    }

    fn forget(&mut self, now: Instant, connection: Connection) {
        let Some(pair) = self.pairs.remove(&connection) else { return };
        if let Some(peers) = &mut self.peers {
            peers.note_ended(now, connection, pair.age);
        }
        for side in Side::BOTH {
            if let Some(id) = pair.ids[side as usize] {
                self.halves[side as usize].leave(id);
            }
        }
    }

    /// Handles a packet of a split connection, or of a new one.
    pub(crate) fn take(&mut self, now: Instant, direction: Direction, packet: &Packet) -> Verdict {
        if let Payload::IcmpError(error) = &packet.payload {
            return self.take_error(now, direction, packet, error);
        }
        let Some(connection) = Connection::of(direction, packet) else { return Verdict::Pass };
        let Some(segment) = packet.tcp() else { return Verdict::Pass };
        let from = Side::of_sender(direction);
        let is_first = segment.flags.contains(Flags::SYN) && !segment.flags.contains(Flags::ACK);
        let Some(pair) = self.pairs.get_mut(&connection) else {
            let opened = self.peers.as_ref().map_or(0, |peers| peers.owned_by(connection.mobile().ip()));
            return if is_first { self.open(now, connection, from, packet, opened) } else { Verdict::Pass };
        };
        // Another connection between the same ports is newer than every record of this one.
        let next_opened = pair.age.opened.saturating_add(1);
        // The node has not answered the first SYN yet either.
        if let Some((_, syn)) = pair.syn.as_mut().filter(|(side, _)| *side == from) {
            let asked = syn.tcp().map_or(segment.seq, |syn| syn.seq);
            if is_first {
                // Keep the newest: it may have a later timestamp, or be another attempt with the same ports.
                *syn = packet.clone();
            } else if segment.flags.contains(Flags::RST)
                && (segment.seq == asked || segment.seq == asked + 1)
                && let Some(half) = self.half_mut(connection, from.other())
            {
                half.abort();
            }
        } else if is_first && self.is_begun_anew(connection, from, segment) {
            self.give_up(now, connection);
            return self.open(now, connection, from, packet, next_opened);
        } else {
            self.endpoint(from).handle_packet(now, packet);
        }
        Verdict::Keep
    }
}

impl SegmentFilter for Split {
    fn handle_packet(&mut self, now: Instant, direction: Direction, packet: &mut Packet) -> Verdict {
        let verdict = match Connection::of(direction, packet) {
            Some(connection) if self.is_unknown(connection) => self.handle_unknown(now, direction, connection, packet),
            connection => {
                let verdict = self.take(now, direction, packet);
                if let (Direction::Incoming, Some(connection)) = (direction, connection) {
                    self.note_mobile(now, connection);
                }
                verdict
            }
        };
        if verdict != Verdict::Pass {
            self.advance(now);
            self.changed.clear();
        }
        verdict
    }

    fn handle_link(&mut self, _now: Instant, _event: LinkEvent) {}

    fn handle_mobile(&mut self, now: Instant, mobile: IpAddr, presence: Presence) {
        if self.peers.is_none() {
            return;
        }
        match presence {
            Presence::Present | Presence::Rebound => {
                self.here.insert(mobile);
                for connection in self.connections_of(mobile) {
                    self.note_mobile(now, connection);
                }
            }
            Presence::Away | Presence::Moved => {
                self.here.remove(&mobile);
            }
            Presence::Fading { .. } => {}
        }
        self.ask_as_reported(now, mobile, presence);
        self.advance(now);
        self.changed.clear();
    }

    fn handle_control(&mut self, now: Instant, message: &ControlMessage) -> bool {
        self.handle_peer_message(now, message)
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.handle_timers(now);
        self.handle_peer_timeout(now);
        self.changed.clear();
    }

    fn poll_transmit(&mut self, _now: Instant) -> Option<Injected> {
        self.ready.pop_front()
    }

    fn poll_control(&mut self) -> Option<ControlMessage> {
        self.peers.as_mut()?.poll_message()
    }

    fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    fn stored(&self) -> Stored {
        let buffered = |(side, id): (usize, &Option<ConnectionId>)| {
            let half = id.and_then(|id| self.halves[side].endpoint.connection(id));
            half.map_or(0, |half| half.send_queue_len() + half.receive_buffer_len())
        };
        let halves = self.pairs.values().map(|pair| pair.ids.iter().enumerate().map(buffered).sum());
        let moving = self.peers.as_ref().map(|peers| Stored { bytes: peers.stored_bytes() as u64, connections: 0 });
        Stored::of_connections(halves) + moving.unwrap_or_default()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let halves = self.halves.iter().filter_map(|half| half.endpoint.poll_timeout());
        halves.chain(self.peers.as_ref().and_then(Peers::poll_timeout)).min()
    }
}
