//! State and copies move between base stations ([`crate::handoff`]).
//!
//! In the paper the new base station notifies the old one that the handoff is over (section III.B), and either may then reopen the fixed
//! host's window; how copies and state reach the new one is left open. Here the notification is the request for the mobile host's
//! connections. The old base station answers with the state of each connection and its copies, and handles none of their packets from
//! then on: it forwards them. The new one continues:
//!
//! | the fixed host | the new base station |
//! | --- | --- |
//! | is not frozen | sends the copies; withholds the newest ACK, and continues the timer |
//! | is frozen, there are copies | sends the copies, and answers probes until the mobile host's first ACK, which opens the window |
//! | is frozen, there are none (FREEZE) | repeats the last ACK with its window |
//!
//! The state is helpful but not necessary: connections are not split, so a packet without a record passes, and a connection whose record is
//! lost continues end to end.
//!
//! # Choices
//!
//! - **Order**: copies are sent when all have arrived, and packets of the fixed host that arrive in the meantime follow them. They wait for
//!   at most a second from one record to the next (`arriving.rs`), and are sent without the state if that is missing.
//! - **The mobile host's own ACKs** at the new base station are newer than a record: they have opened the window.
//! - **A connection that begins here**, between the same ports, is newer than any record.
//! - **A request that does not come** ([`ASKED_WITHIN`]): the old base station sends the copies after the host, as without peers.
//! - **The presence of a mobile host** decides where it is, if it is reported. If it is not, a packet of the mobile host does.

use core::net::IpAddr;
use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use holdover_base::{Duration, Instant};
use holdover_filter::{Connection, ControlMessage, Direction, Injected, Presence};
use holdover_flow::{Flow, FlowRecord};
use holdover_wire::{Flags, Packet, Segment};

use super::arriving::Arriving;
use super::{BufferFreeze, BufferFreezeConfig, State, mark_lost, watch};
use crate::cache::Cache;
use crate::flow_path::{FlowPath, is_shut};
use crate::freeze::last_ack;
use crate::handoff::{CopyRecord, Event, HandoffConfig, Message, RecordRequests, StateRecord, Unsplit, Whereabouts};
use crate::stragglers::STRAGGLERS;
use crate::timer::LocalTimer;

/// How long the old base station waits for the request for a host that has moved: the request is repeated after 200,
/// 600 and 1,400 ms.
const ASKED_WITHIN: Duration = Duration::from_secs(2);

/// The most connections whose packets wait for copies. The packets of others pass.
const MOST_ARRIVING: usize = 10_000;

/// The other base stations, and packets on their way from them.
#[derive(Debug)]
pub(super) struct Peers {
    requests: RecordRequests,
    arriving: BTreeMap<Connection, Arriving>,
    /// Mobile hosts whose presence is reported, and whether they are here.
    reported: BTreeMap<IpAddr, bool>,
    /// Mobile hosts that have moved, and until when a request for their connections is waited for.
    leaving: BTreeMap<IpAddr, Instant>,
}

impl Peers {
    pub(super) fn new(config: HandoffConfig, salt: u16) -> Self {
        Self {
            requests: RecordRequests::new(config, salt),
            arriving: BTreeMap::new(),
            reported: BTreeMap::new(),
            leaving: BTreeMap::new(),
        }
    }

    pub(super) fn handle_message(&mut self, now: Instant, message: &ControlMessage) -> bool {
        self.requests.handle_message(now, message)
    }

    pub(super) fn poll_message(&mut self) -> Option<ControlMessage> {
        self.requests.poll_message()
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        let arriving = self.arriving.values().map(Arriving::poll_timeout);
        self.requests.poll_timeout().into_iter().chain(arriving).chain(self.leaving.values().copied()).min()
    }

    pub(super) fn stored_bytes(&self) -> usize {
        self.requests.stored_bytes() + self.arriving.values().map(Arriving::bytes).sum::<usize>()
    }

    /// Whether copies of a connection are missing.
    pub(super) fn is_incomplete(&self, connection: Connection) -> bool {
        self.arriving.get(&connection).is_some_and(|arriving| !arriving.is_due())
    }

    /// Whether packets reach a mobile host from here, as far as that is known.
    fn is_here(&self, mobile: IpAddr) -> bool {
        self.reported.get(&mobile).is_none_or(|&is_here| is_here)
    }

    /// The waiting packets of a connection; `None` if too many connections have some.
    fn arriving(&mut self, now: Instant, connection: Connection) -> Option<&mut Arriving> {
        let keep = self.requests.keep();
        if self.arriving.len() >= MOST_ARRIVING && !self.arriving.contains_key(&connection) {
            return None;
        }
        Some(self.arriving.entry(connection).or_insert_with(|| Arriving::new(now, keep)))
    }

    fn arriving_of(&self, mobile: IpAddr) -> Vec<Connection> {
        self.arriving.keys().copied().filter(|connection| connection.mobile().ip() == mobile).collect()
    }
}

/// Packets to and from mobile hosts.
impl BufferFreeze {
    /// Whether a packet belongs to a mobile host at another base station: it passes unseen. Asks for the connections of a host that
    /// a packet shows to have come.
    pub(super) fn is_elsewhere(
        &mut self,
        now: Instant,
        direction: Direction,
        connection: Connection,
        packet: &Packet,
    ) -> bool {
        let Some(peers) = &mut self.peers else { return false };
        if packet.tcp().is_some_and(|segment| segment.flags.intersects(Flags::SYN | Flags::RST)) {
            peers.arriving.remove(&connection);
        }
        let mobile = connection.mobile().ip();
        let is_reported = peers.reported.contains_key(&mobile);
        let asks = match peers.requests.whereabouts(now, mobile) {
            Whereabouts::Elsewhere { since }
                if is_reported || direction == Direction::Outgoing || since < STRAGGLERS =>
            {
                return true;
            }
            Whereabouts::Elsewhere { .. } => true,
            Whereabouts::Unknown => !is_reported && !is_known(&self.path, connection),
            Whereabouts::Asking | Whereabouts::Settled => false,
        };
        if asks {
            peers.requests.ask(now, mobile);
            self.handle_peers(now);
        }
        false
    }

    /// Whether a packet of the fixed host waits for copies of earlier ones. A probe is answered all the same.
    pub(super) fn waits_for_copies(&mut self, now: Instant, connection: Connection, packet: &Packet) -> bool {
        let Self { config, path, peers, .. } = self;
        let (Some(peers), Some(segment)) = (peers, packet.tcp()) else { return false };
        let is_data = segment.seq_len() > 0 && !segment.flags.intersects(Flags::SYN | Flags::RST);
        if !config.buffers || !is_data {
            return false;
        }
        let stored = path.value(connection).map_or(0, |state| state.cache.bytes());
        let may_come = !is_known(path, connection)
            && peers.requests.whereabouts(now, connection.mobile().ip()) == Whereabouts::Asking;
        if may_come {
            // It begins to wait unless too many connections do.
            let _ = peers.arriving(now, connection);
        }
        let arriving = peers.arriving.get_mut(&connection).filter(|arriving| !arriving.is_due());
        if !arriving.is_some_and(|arriving| arriving.keep(now, packet, config.buffer_bytes.saturating_sub(stored))) {
            return false;
        }
        path.add(now, connection);
        if path.is_shut(connection) {
            let _ = path.follow(now, Direction::Outgoing, &mut packet.clone());
        }
        true
    }

    /// Sends the packets of a connection that have waited, if they are due and the mobile host is here.
    fn release(&mut self, now: Instant, connection: Connection) {
        let Self { config, path, peers, ready, .. } = self;
        let Some(peers) = peers else { return };
        let is_here = peers.is_here(connection.mobile().ip());
        let Some(arriving) = peers.arriving.get_mut(&connection).filter(|arriving| arriving.is_due() && is_here) else {
            return;
        };
        let copies = arriving.take();
        if arriving.is_last() {
            peers.arriving.remove(&connection);
        }
        if path.value(connection).is_none() {
            send_unseen(copies, ready);
        } else if forward(now, config, path, connection, copies, ready) {
            path.tell(now, connection, "released");
            watch(now, config, path, connection, false);
        }
    }

    /// Adds the packets that have waited to the copies of their connections.
    fn absorb(&mut self, now: Instant, mobile: IpAddr, with_incomplete: bool) {
        let Self { path, peers: Some(peers), ready, .. } = self else { return };
        for connection in peers.arriving_of(mobile) {
            let arriving = peers.arriving.get_mut(&connection);
            let Some(arriving) = arriving.filter(|arriving| with_incomplete || arriving.is_due()) else { continue };
            let copies = arriving.take();
            if with_incomplete || arriving.is_last() {
                peers.arriving.remove(&connection);
            }
            if path.value(connection).is_some() {
                absorb(now, path, connection, copies);
            } else {
                send_unseen(copies, ready);
            }
        }
    }
}

/// Arrival and departure of mobile hosts.
impl BufferFreeze {
    /// Notes a report of a mobile host's presence, before it is acted upon.
    pub(super) fn note_presence(&mut self, now: Instant, mobile: IpAddr, presence: Presence) {
        let Some(peers) = &mut self.peers else { return };
        match presence {
            Presence::Present | Presence::Rebound => {
                peers.reported.insert(mobile, true);
                peers.leaving.remove(&mobile);
                self.absorb(now, mobile, false);
            }
            Presence::Away => {
                peers.reported.insert(mobile, false);
            }
            Presence::Moved => {
                peers.reported.insert(mobile, false);
                if !matches!(peers.requests.whereabouts(now, mobile), Whereabouts::Elsewhere { .. }) {
                    peers.leaving.insert(mobile, now + ASKED_WITHIN);
                }
            }
            Presence::Fading { .. } => {}
        }
    }

    /// A mobile host has arrived: its connections may be at another base station.
    pub(super) fn ask_if_new(&mut self, now: Instant, mobile: IpAddr) {
        let Some(peers) = &mut self.peers else { return };
        if matches!(peers.requests.whereabouts(now, mobile), Whereabouts::Unknown | Whereabouts::Elsewhere { .. }) {
            peers.requests.ask(now, mobile);
            self.handle_peers(now);
        }
    }

    pub(super) fn handle_peers_timeout(&mut self, now: Instant) {
        let Some(peers) = &mut self.peers else { return };
        peers.requests.handle_timeout(now);
        peers.arriving.retain(|_, arriving| !arriving.is_over(now));
        let late = peers
            .arriving
            .iter_mut()
            .filter_map(|(connection, arriving)| arriving.handle_timeout(now).then_some(*connection));
        let late: Vec<Connection> = late.collect();
        let unasked = peers.leaving.iter().filter(|(_, until)| **until <= now);
        let unasked: Vec<IpAddr> = unasked.map(|(mobile, _)| *mobile).collect();
        peers.leaving.retain(|_, until| *until > now);
        for connection in late {
            self.release(now, connection);
        }
        for mobile in unasked {
            self.absorb(now, mobile, true);
            self.end_handoff(now, mobile, false);
        }
        self.handle_peers(now);
    }

    /// Handles the requests and answers of the peers.
    pub(super) fn handle_peers(&mut self, now: Instant) {
        while let Some(event) = self.peers.as_mut().and_then(|peers| peers.requests.poll_event()) {
            match event {
                Event::Wanted { peer, mobile, id } => self.hand_on(now, peer, mobile, id),
                Event::Given { record } => self.take(now, &record),
                Event::Concluded { mobile, .. } => self.conclude(now, mobile),
            }
        }
    }

    /// A peer requests a mobile host's connections: hands them on.
    fn hand_on(&mut self, now: Instant, peer: IpAddr, mobile: IpAddr, id: u64) {
        if let Some(peers) = self.peers.as_mut().filter(|peers| peers.requests.is_asking_since(mobile, id)) {
            // The mobile host has come here since.
            return peers.requests.give(now, peer, mobile, id, Vec::new());
        }
        let is_known = self.path.live_of(mobile).into_iter().any(|known| self.path.acked(known).is_some());
        if !is_known && self.peers.as_ref().is_some_and(|peers| peers.requests.has_to_wait(mobile, id)) {
            // The requested records may arrive here first. The peer repeats its request.
            return;
        }
        self.absorb(now, mobile, true);
        let Self { path, away, peers: Some(peers), ready, .. } = self else { return };
        let (mut records, mut copies) = (Vec::new(), Vec::new());
        for connection in path.live_of(mobile) {
            let Some((flow, state)) = path.get_both(connection) else { continue };
            match state.record(now, connection, flow) {
                Some((record, copied)) => {
                    records.push(record);
                    copies.extend(copied);
                    path.tell(now, connection, "handed on");
                }
                None => state.send_after(ready),
            }
            path.forget(connection);
        }
        records.append(&mut copies);
        // The arrival of these was not confirmed; if another peer requests them, its own are newer.
        records.extend(peers.requests.take_back(mobile));
        peers.leaving.remove(&mobile);
        away.remove(&mobile);
        peers.requests.give(now, peer, mobile, id, records);
    }

    /// Handles a record. An invalid one was sent as such, not damaged on its way: repeating the request does not help.
    fn take(&mut self, now: Instant, record: &Bytes) {
        match Unsplit::parse(record) {
            Ok(Unsplit::State(record)) => self.take_over(now, &record),
            Ok(Unsplit::Copy(record)) => self.take_copy(now, &record),
            Err(_) => {}
        }
    }

    /// Takes over a connection of another base station, unless a newer state of it is known.
    fn take_over(&mut self, now: Instant, record: &StateRecord) {
        let Self { config, path, peers: Some(peers), ready, .. } = self else { return };
        let connection = record.flow.connection();
        let flow = record.flow.revive(now);
        let Some(acked) = flow.half(Direction::Incoming).acked() else { return };
        path.add(now, connection);
        let Some((known, state)) = path.get_both(connection) else { return };
        if known.is_over() || state.is_begun || state.epoch >= record.epoch {
            return;
        }
        let copies = if config.buffers { record.copies } else { 0 };
        let newest = known.half(Direction::Incoming).acked();
        let (is_newer_here, is_superseded) = (newest.is_some(), record.flow.supersedes(known));
        state.epoch = record.epoch;
        if let Some(estimate) = record.round_trip.filter(|_| state.timer.estimate().is_none()) {
            state.timer = LocalTimer::continuing(estimate);
        }
        let is_inserted = !is_newer_here || is_superseded;
        state.cache.acknowledge(newest.filter(|_| !is_inserted).unwrap_or(acked));
        path.tell(now, connection, "took over");
        if is_inserted {
            path.insert(now, connection, flow);
        }
        if !is_newer_here {
            resume(now, config, record, path, ready);
        }
        let is_here = peers.is_here(connection.mobile().ip());
        if (copies > 0 || peers.arriving.contains_key(&connection))
            && let Some(arriving) = peers.arriving(now, connection)
        {
            arriving.note_state(now, record.epoch, copies);
        }
        if copies > 0 && is_here {
            watch(now, config, path, connection, true);
        } else if is_here && path.is_shut(connection) {
            mark_lost(path, connection);
            path.freeze(connection.mobile().ip(), |control, flows| control.thaw(now, connection, flows));
        }
        self.release(now, connection);
    }

    /// Keeps a copy of another base station until it can be sent.
    fn take_copy(&mut self, now: Instant, record: &CopyRecord) {
        let Self { config, path, peers: Some(peers), .. } = self else { return };
        let (is_begun, stored) =
            path.value(record.connection).map_or((false, 0), |state| (state.is_begun, state.cache.bytes()));
        if is_begun || !config.buffers {
            return;
        }
        let Some(arriving) = peers.arriving(now, record.connection) else { return };
        // Without room the fixed host has to send it again.
        let _ = arriving.keep(now, &record.packet, config.buffer_bytes.saturating_sub(stored));
        arriving.note_copy(now, record.epoch);
        self.release(now, record.connection);
    }

    /// All peers have answered, or will not answer. The other connections have no record.
    fn conclude(&mut self, now: Instant, mobile: IpAddr) {
        let Some(peers) = &mut self.peers else { return };
        for record in peers.requests.take_back(mobile) {
            // Its arrival elsewhere was not confirmed, and no peer had a newer one.
            self.take(now, &record);
        }
        for connection in self.peers.as_ref().map_or(Vec::new(), |peers| peers.arriving_of(mobile)) {
            if let Some(arriving) = self.peers.as_mut().and_then(|peers| peers.arriving.get_mut(&connection)) {
                arriving.conclude();
            }
            self.release(now, connection);
        }
    }
}

/// Sends packets of a connection whose state is unknown: the mobile host drops those that it has.
fn send_unseen(mut packets: Cache, ready: &mut VecDeque<Injected>) {
    while let Some(waited) = packets.pop_first() {
        ready.push_back(Injected { direction: Direction::Outgoing, packet: waited.packet });
    }
}

/// Whether a connection has a state here that a record could have.
fn is_known(path: &FlowPath<State>, connection: Connection) -> bool {
    path.acked(connection).is_some() || path.value(connection).is_some_and(|state| state.is_begun)
}

impl State {
    /// The record of the connection, and its copies; `None` before the mobile host's first ACK.
    fn record(&mut self, now: Instant, connection: Connection, flow: &Flow) -> Option<(Bytes, Vec<Bytes>)> {
        flow.half(Direction::Incoming).acked()?;
        let record = FlowRecord::of(now, connection, flow, true)?;
        let epoch = self.epoch.saturating_add(1);
        let cached = core::iter::from_fn(|| self.cache.pop_first());
        let copies = cached.filter_map(|cached| {
            Unsplit::Copy(CopyRecord { epoch, connection, packet: cached.packet })
                .emit()
                .filter(|record| record.len() <= Message::MAX_RECORD_BYTES)
        });
        let copies: Vec<Bytes> = copies.collect();
        let state = StateRecord {
            epoch,
            flow: record,
            is_frozen: is_shut(flow),
            is_withheld: self.held.take().is_some() && !is_shut(flow),
            round_trip: self.timer.estimate(),
            copies: u16::try_from(copies.len()).unwrap_or(u16::MAX),
        };
        Some((Unsplit::State(state).emit()?, copies))
    }

    /// Sends the copies of a connection without a record after the mobile host.
    fn send_after(&mut self, ready: &mut VecDeque<Injected>) {
        send_unseen(core::mem::take(&mut self.cache), ready);
    }
}

/// Continues a freeze, or an ACK that is withheld.
fn resume(
    now: Instant,
    config: &BufferFreezeConfig,
    record: &StateRecord,
    path: &mut FlowPath<State>,
    ready: &mut VecDeque<Injected>,
) {
    let connection = record.flow.connection();
    if record.is_frozen {
        path.freeze(connection.mobile().ip(), |control, flows| control.resume_frozen(now, connection, flows));
    }
    if !record.is_withheld {
        return;
    }
    let Some((flow, state)) = path.get_both(connection) else { return };
    let withheld = last_ack(flow, connection);
    // Without copies the fixed host has to retransmit the data that the mobile host has missed.
    if config.freezes && config.buffers && record.copies > 0 && flow.awaits_ack() {
        state.held = withheld;
    } else {
        // No later ACK would release it.
        ready.extend(withheld.map(|packet| Injected { direction: Direction::Incoming, packet }));
    }
}

/// Forwards packets that have waited, in order, except those that the mobile host has or was sent here. Returns whether there are any.
fn forward(
    now: Instant,
    config: &BufferFreezeConfig,
    path: &mut FlowPath<State>,
    connection: Connection,
    mut packets: Cache,
    ready: &mut VecDeque<Injected>,
) -> bool {
    prepare(path, connection, &mut packets);
    let before = ready.len();
    while let Some(waited) = packets.pop_first() {
        let packet = waited.packet;
        if let Some((flow, state)) = path.get_both(connection) {
            if state.cache.has(waited.seq, waited.end) {
                continue;
            }
            state.keep(now, config, flow, &packet);
        }
        note_forwarded(now, path, connection, &packet);
        ready.push_back(Injected { direction: Direction::Outgoing, packet });
    }
    ready.len() > before
}

/// Adds packets that have waited to the copies. They are sent when the mobile host is here.
fn absorb(now: Instant, path: &mut FlowPath<State>, connection: Connection, mut packets: Cache) {
    prepare(path, connection, &mut packets);
    while let Some(waited) = packets.pop_first() {
        if let Some(state) = path.value_mut(connection) {
            state.cache.insert(now, &waited.packet);
            state.is_owed = true;
        }
        note_forwarded(now, path, connection, &waited.packet);
    }
}

/// Shows a packet that has waited to the flow path, unless the record knows it.
fn note_forwarded(now: Instant, path: &mut FlowPath<State>, connection: Connection, packet: &Packet) {
    let is_known = |segment: &Segment| path.flow(connection).is_some_and(|flow| flow.was_forwarded(segment.seq));
    if packet.tcp().is_some_and(|segment| !is_known(segment)) {
        let _ = path.follow(now, Direction::Outgoing, &mut packet.clone());
    }
}

/// Removes packets that the mobile host has, and renews the timestamps of the others.
fn prepare(path: &FlowPath<State>, connection: Connection, packets: &mut Cache) {
    let Some(half) = path.flow(connection).map(|flow| flow.half(Direction::Incoming)) else { return };
    if let Some(acked) = half.acked() {
        packets.acknowledge(acked);
    }
    if let Some(echo) = half.last_echo() {
        packets.renew(echo);
    }
}
