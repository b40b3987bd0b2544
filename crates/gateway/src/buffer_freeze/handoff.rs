//! State and copies move between base stations by the protocol of I-TCP and M-TCP ([`crate::handoff`]), as an [`UnsplitRecord`].
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
//! - **Packets do not wait for the ownership** of a mobile host. A base station whose request is not answered, or that nobody asks, handles
//!   them as its own; only one that was asked by another since passes them unseen.
//! - **Order**: copies are sent when the record has arrived, and packets of the fixed host that arrive in the meantime follow them. They wait
//!   for at most a second from one piece of the answers to the next (`arriving.rs`).
//! - **The mobile host's own ACKs** at the new base station are newer than a record: they have opened the window.
//! - **A connection that begins here**, between the same ports, is newer than any record.
//! - **A request that does not come** ([`ASKED_WITHIN`]): the old base station sends the copies after the host, as without peers.
//! - **The presence of a mobile host** decides where it is, if it is reported. If it is not, a packet of the mobile host does.

use core::net::IpAddr;
use std::collections::{BTreeMap, VecDeque};

use holdover_base::{Duration, Instant};
use holdover_filter::{Action, Connection, Direction, Injected, Presence, Verdict};
use holdover_flow::{Flow, FlowRecord};
use holdover_wire::{Flags, Packet, Segment};

use super::arriving::Arriving;
use super::{BufferFreeze, BufferFreezeConfig, State, mark_lost, send_copies, take_held, watch};
use crate::cache::Cache;
use crate::flow_path::{FlowPath, is_shut};
use crate::freeze::last_ack;
use crate::handoff::{Node, Peers, Record, RecordAge, Stopped, UnsplitRecord, Whereabouts};
use crate::stragglers::STRAGGLERS;
use crate::timer::LocalTimer;

/// How long the old base station waits for the request for a host that has moved: the request is repeated after 200,
/// 600 and 1,400 ms.
const ASKED_WITHIN: Duration = Duration::from_secs(2);

/// The most connections whose packets wait for copies. The packets of others pass.
const MOST_ARRIVING: usize = 10_000;

/// Mobile hosts that come and go, and packets that wait for records of other base stations.
#[derive(Debug, Default)]
pub(super) struct Arrivals {
    arriving: BTreeMap<Connection, Arriving>,
    /// Mobile hosts whose presence is reported, and whether they are here.
    reported: BTreeMap<IpAddr, bool>,
    /// Mobile hosts that have moved, and until when a request for their connections is waited for.
    leaving: BTreeMap<IpAddr, Instant>,
}

impl Arrivals {
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        let arriving = self.arriving.values().map(Arriving::poll_timeout);
        arriving.chain(self.leaving.values().copied()).min()
    }

    pub(super) fn stored_bytes(&self) -> usize {
        self.arriving.values().map(Arriving::bytes).sum()
    }

    /// Whether the record of a connection is missing, for which packets wait.
    pub(super) fn is_incomplete(&self, connection: Connection) -> bool {
        self.arriving.get(&connection).is_some_and(|arriving| !arriving.is_due())
    }

    /// Whether packets reach a mobile host from here, as far as that is known.
    fn is_here(&self, mobile: IpAddr) -> bool {
        self.reported.get(&mobile).is_none_or(|&is_here| is_here)
    }

    /// The waiting packets of a connection; `None` if too many connections have some.
    fn of(&mut self, now: Instant, keep: Duration, connection: Connection) -> Option<&mut Arriving> {
        if self.arriving.len() >= MOST_ARRIVING && !self.arriving.contains_key(&connection) {
            return None;
        }
        Some(self.arriving.entry(connection).or_insert_with(|| Arriving::new(now, keep)))
    }

    fn connections_of(&self, mobile: IpAddr) -> Vec<Connection> {
        self.arriving.keys().copied().filter(|connection| connection.mobile().ip() == mobile).collect()
    }
}

impl Node for BufferFreeze {
    const MECHANISM: &'static str = Self::NAME;

    fn peers(&mut self) -> Option<&mut Peers> {
        self.peers.as_mut()
    }

    fn connections_of(&self, mobile: IpAddr) -> Vec<Connection> {
        self.path.live_of(mobile)
    }

    /// No record is newer than the end of its connection.
    fn age_of(&self, connection: Connection) -> Option<RecordAge> {
        let is_over = self.path.flow(connection)?.is_over();
        let end = RecordAge { opened: u64::MAX, epoch: u32::MAX };
        if is_over { Some(end) } else { self.path.value(connection).map(|state| state.age) }
    }

    fn prepare_to_hand_on(&mut self, now: Instant, mobile: IpAddr) {
        self.absorb(now, mobile, true);
        self.arrivals.leaving.remove(&mobile);
        self.away.remove(&mobile);
    }

    /// Without a record, the copies are sent after the mobile host, and the fixed host gets the withheld ACK.
    fn stop(&mut self, now: Instant, connection: Connection, has_room: impl Fn(usize) -> bool) -> Stopped {
        let Self { path, ready, .. } = self;
        let record = path.get_both(connection).and_then(|(flow, state)| state.record(now, connection, flow));
        let bytes = record.as_ref().map(UnsplitRecord::emit).filter(|bytes| has_room(bytes.len()));
        let stopped = match record.zip(bytes) {
            Some((record, bytes)) => Stopped::Record(record.age, bytes),
            None => {
                send_copies(now, connection, path, ready);
                let held = take_held(path, connection);
                ready.extend(held.map(|packet| Injected { direction: Direction::Incoming, packet }));
                Stopped::Nothing
            }
        };
        path.forget(connection);
        stopped
    }

    /// The mobile host's ACKs here may be newer than the record: then only its copies count.
    fn restore(&mut self, now: Instant, record: &Record) -> bool {
        let Self { config, path, peers: Some(peers), arrivals, ready, .. } = self else { return false };
        let Record::Unsplit(record) = record else { return false };
        let connection = record.flow.connection();
        path.add(now, connection);
        let Some((known, state)) = path.get_both(connection) else { return false };
        let is_newer_here = known.half(Direction::Incoming).acked().is_some();
        let is_inserted = !is_newer_here || record.flow.supersedes(known);
        state.age = record.age;
        if let Some(estimate) = record.round_trip.filter(|_| state.timer.estimate().is_none()) {
            state.timer = LocalTimer::continuing(estimate);
        }
        if is_inserted {
            path.insert(now, connection, record.flow.revive(now));
        }
        let acked = path.acked(connection);
        let Some(state) = path.value_mut(connection) else { return false };
        if let Some(acked) = acked {
            state.cache.acknowledge(acked);
        }
        let stored = state.cache.bytes();
        if !is_newer_here {
            resume(now, config, record, path, ready);
        }
        let has_copies = config.buffers && !record.copies.is_empty();
        if (has_copies || arrivals.arriving.contains_key(&connection))
            && let Some(arriving) = arrivals.of(now, peers.keep(), connection)
        {
            for packet in record.copies.iter().filter(|_| config.buffers) {
                // Without room the fixed host has to send it again.
                let _ = arriving.keep(now, packet, config.buffer_bytes.saturating_sub(stored));
            }
            arriving.note_record(has_copies);
        }
        true
    }

    /// Sends the copies, or reopens the window if there are none.
    fn proceed(&mut self, now: Instant, connection: Connection, _waited: VecDeque<(Direction, Packet)>) {
        let Self { config, path, arrivals, .. } = self;
        let has_copies = arrivals.arriving.get(&connection).is_some_and(Arriving::has_copies);
        if !arrivals.is_here(connection.mobile().ip()) {
            return;
        }
        if has_copies {
            watch(now, config, path, connection, true);
        } else if path.is_shut(connection) {
            mark_lost(path, connection);
            path.freeze(connection.mobile().ip(), |control, flows| control.thaw(now, connection, flows));
        }
        self.release(now, connection);
    }

    /// Nothing more arrives: packets that wait for records are sent.
    fn handle_conclusion(&mut self, now: Instant, mobile: IpAddr) {
        for connection in self.arrivals.connections_of(mobile) {
            if let Some(arriving) = self.arrivals.arriving.get_mut(&connection) {
                arriving.conclude();
            }
            self.release(now, connection);
        }
    }

    fn handle_here(&mut self, now: Instant, direction: Direction, packet: &mut Packet) -> Verdict {
        let Some(connection) = Connection::of(direction, packet) else { return Verdict::Pass };
        match direction {
            Direction::Outgoing => self.handle_from_fixed(now, connection, packet),
            Direction::Incoming => self.handle_from_mobile(now, connection, packet),
        }
    }

    fn finish(&mut self, _now: Instant) {}

    fn send(&mut self, injected: Injected) {
        self.ready.push_back(injected);
    }

    fn note_action(&mut self, action: Action) {
        self.path.tell(action.at, action.connection, action.what);
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
        let Self { path, peers: Some(peers), arrivals, .. } = self else { return false };
        if packet.tcp().is_some_and(|segment| segment.flags.intersects(Flags::SYN | Flags::RST)) {
            arrivals.arriving.remove(&connection);
        }
        let mobile = connection.mobile().ip();
        let is_reported = arrivals.reported.contains_key(&mobile);
        let asks = match peers.whereabouts(now, mobile) {
            Whereabouts::Elsewhere { since }
                if is_reported || direction == Direction::Outgoing || since < STRAGGLERS =>
            {
                return true;
            }
            Whereabouts::Elsewhere { .. } => true,
            // Packets of the fixed host may still take the path to a place that the mobile host has left.
            Whereabouts::Unknown => !is_reported && (direction == Direction::Incoming || !is_known(path, connection)),
            Whereabouts::Asking | Whereabouts::Settled => false,
        };
        if asks {
            peers.ask_for_packet(now, direction, mobile);
            self.handle_peers(now);
        }
        false
    }

    /// Whether a packet of the fixed host waits for copies of earlier ones. A probe is answered all the same.
    pub(super) fn waits_for_copies(&mut self, now: Instant, connection: Connection, packet: &Packet) -> bool {
        let Self { config, path, peers, arrivals, .. } = self;
        let (Some(peers), Some(segment)) = (peers, packet.tcp()) else { return false };
        let is_data = segment.seq_len() > 0 && !segment.flags.intersects(Flags::SYN | Flags::RST);
        if !config.buffers || !is_data {
            return false;
        }
        let stored = path.value(connection).map_or(0, |state| state.cache.bytes());
        let may_come =
            !is_known(path, connection) && peers.whereabouts(now, connection.mobile().ip()) == Whereabouts::Asking;
        if may_come {
            // It begins to wait unless too many connections do.
            let _ = arrivals.of(now, peers.keep(), connection);
        }
        let arriving = arrivals.arriving.get_mut(&connection).filter(|arriving| !arriving.is_due());
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
        let Self { config, path, peers: Some(peers), arrivals, ready, .. } = self else { return };
        let mobile = connection.mobile().ip();
        let is_here = arrivals.is_here(mobile);
        let Some(arriving) = arrivals.arriving.get_mut(&connection).filter(|arriving| arriving.is_due() && is_here)
        else {
            return;
        };
        let packets = arriving.take();
        if arriving.is_last() {
            arrivals.arriving.remove(&connection);
        }
        let is_elsewhere = matches!(peers.whereabouts(now, mobile), Whereabouts::Elsewhere { .. });
        if is_elsewhere || path.value(connection).is_none() {
            send_unseen(packets, ready);
        } else if forward(now, config, path, connection, packets, ready) {
            path.tell(now, connection, "released");
            watch(now, config, path, connection, false);
        }
    }

    /// Adds the packets that have waited to the copies of their connections.
    fn absorb(&mut self, now: Instant, mobile: IpAddr, with_incomplete: bool) {
        let Self { path, arrivals, ready, .. } = self;
        for connection in arrivals.connections_of(mobile) {
            let arriving = arrivals.arriving.get_mut(&connection);
            let Some(arriving) = arriving.filter(|arriving| with_incomplete || arriving.is_due()) else { continue };
            let packets = arriving.take();
            if with_incomplete || arriving.is_last() {
                arrivals.arriving.remove(&connection);
            }
            if path.value(connection).is_some() {
                absorb(now, path, connection, packets);
            } else {
                send_unseen(packets, ready);
            }
        }
    }
}

/// Arrival and departure of mobile hosts.
impl BufferFreeze {
    /// Notes a report of a mobile host's presence, before it is acted upon.
    pub(super) fn note_presence(&mut self, now: Instant, mobile: IpAddr, presence: Presence) {
        let Self { peers: Some(peers), arrivals, .. } = self else { return };
        match presence {
            Presence::Present | Presence::Rebound => {
                arrivals.reported.insert(mobile, true);
                arrivals.leaving.remove(&mobile);
                self.absorb(now, mobile, false);
            }
            Presence::Away => {
                arrivals.reported.insert(mobile, false);
            }
            Presence::Moved => {
                arrivals.reported.insert(mobile, false);
                if !matches!(peers.whereabouts(now, mobile), Whereabouts::Elsewhere { .. }) {
                    arrivals.leaving.insert(mobile, now + ASKED_WITHIN);
                }
            }
            Presence::Fading { .. } => {}
        }
    }

    pub(super) fn handle_arrivals_timeout(&mut self, now: Instant) {
        let Self { peers: Some(peers), arrivals: Arrivals { arriving, leaving, .. }, .. } = self else { return };
        arriving.retain(|_, arriving| !arriving.is_over(now));
        let late = arriving.iter_mut().filter_map(|(connection, arriving)| {
            let progressed_at = peers.progressed_at(connection.mobile().ip());
            arriving.handle_timeout(now, progressed_at).then_some(*connection)
        });
        let late: Vec<Connection> = late.collect();
        let unasked = leaving.iter().filter(|(_, until)| **until <= now);
        let unasked: Vec<IpAddr> = unasked.map(|(mobile, _)| *mobile).collect();
        leaving.retain(|_, until| *until > now);
        for connection in late {
            self.release(now, connection);
        }
        for mobile in unasked {
            self.absorb(now, mobile, true);
            self.end_handoff(now, mobile, false);
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
    path.acked(connection).is_some() || path.value(connection).is_some_and(|state| state.age.opened > 0)
}

impl State {
    /// The record of the connection; `None` before the mobile host's first ACK.
    fn record(&mut self, now: Instant, connection: Connection, flow: &Flow) -> Option<UnsplitRecord> {
        flow.half(Direction::Incoming).acked()?;
        Some(UnsplitRecord {
            age: self.age.next(),
            flow: FlowRecord::of(now, connection, flow, true)?,
            is_frozen: is_shut(flow),
            is_withheld: self.held.is_some() && !is_shut(flow),
            round_trip: self.timer.estimate(),
            copies: self.cache.iter_mut().map(|cached| cached.packet.clone()).collect(),
        })
    }
}

/// Continues a freeze, or an ACK that is withheld.
fn resume(
    now: Instant,
    config: &BufferFreezeConfig,
    record: &UnsplitRecord,
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
    if config.freezes && config.buffers && !record.copies.is_empty() && flow.awaits_ack() {
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
