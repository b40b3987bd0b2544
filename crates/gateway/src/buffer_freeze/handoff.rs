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
//! The state is a help and not a need: connections are not split, so that a packet without a record passes, and a record that is lost
//! leaves the connection to its ends.
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
use holdover_filter::{Action, Connection, ControlMessage, Direction, Injected, LastSent, Presence};
use holdover_wire::{Flags, Packet, Segment};

use super::arriving::Arriving;
use super::{BufferFreeze, BufferFreezeConfig, Mode, State};
use crate::cache::Cache;
use crate::handoff::{CopyRecord, Event, Exchange, FlowRecord, HandoffConfig, Message, STRAGGLERS, Standing, Unsplit};
use crate::timer::LocalTimer;

/// How long the old base station waits for the request for a host that has moved: the request is repeated after 200,
/// 600 and 1,400 ms.
const ASKED_WITHIN: Duration = Duration::from_secs(2);

/// The most connections whose packets wait for copies. The packets of others pass.
const MOST_ARRIVING: usize = 10_000;

/// The other base stations, and packets on their way from them.
#[derive(Debug)]
pub(super) struct Peers {
    exchange: Exchange,
    arriving: BTreeMap<Connection, Arriving>,
    /// Mobile hosts whose presence is reported, and whether they are here.
    reported: BTreeMap<IpAddr, bool>,
    /// Mobile hosts that have moved, and until when a request for their connections is waited for.
    leaving: BTreeMap<IpAddr, Instant>,
}

impl Peers {
    pub(super) fn new(config: HandoffConfig, salt: u16) -> Self {
        Self {
            exchange: Exchange::new(config, salt),
            arriving: BTreeMap::new(),
            reported: BTreeMap::new(),
            leaving: BTreeMap::new(),
        }
    }

    pub(super) fn handle_message(&mut self, now: Instant, message: &ControlMessage) -> bool {
        self.exchange.handle_message(now, message)
    }

    pub(super) fn poll_message(&mut self) -> Option<ControlMessage> {
        self.exchange.poll_message()
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        let arriving = self.arriving.values().map(Arriving::poll_timeout);
        self.exchange.poll_timeout().into_iter().chain(arriving).chain(self.leaving.values().copied()).min()
    }

    pub(super) fn stored_bytes(&self) -> usize {
        self.exchange.stored_bytes() + self.arriving.values().map(Arriving::bytes).sum::<usize>()
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
        let keep = self.exchange.keep();
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
        let asks = match peers.exchange.standing(now, mobile) {
            Standing::Elsewhere { since } if is_reported || direction == Direction::Outgoing || since < STRAGGLERS => {
                return true;
            }
            Standing::Elsewhere { .. } => true,
            Standing::Unknown => !is_reported && !self.connections.get(connection).is_some_and(State::is_known),
            Standing::Asking | Standing::Settled => false,
        };
        if asks {
            peers.exchange.ask(now, mobile);
            self.handle_peers(now);
        }
        false
    }

    /// Whether a packet of the fixed host waits for copies of earlier ones. A probe is answered all the same.
    pub(super) fn waits_for_copies(&mut self, now: Instant, connection: Connection, packet: &Packet) -> bool {
        let Self { config, connections, peers, ready, .. } = self;
        let (Some(peers), Some(segment)) = (peers, packet.tcp()) else { return false };
        let is_data = segment.seq_len() > 0 && !segment.flags.intersects(Flags::SYN | Flags::RST);
        if !config.buffers || !is_data {
            return false;
        }
        let (is_known, stored) =
            connections.get(connection).map_or((false, 0), |state| (state.is_known(), state.cache.bytes()));
        let may_come = !is_known && peers.exchange.standing(now, connection.mobile().ip()) == Standing::Asking;
        if may_come {
            // It begins to wait unless too many connections do.
            let _ = peers.arriving(now, connection);
        }
        let arriving = peers.arriving.get_mut(&connection).filter(|arriving| !arriving.is_due());
        if !arriving.is_some_and(|arriving| arriving.keep(now, packet, config.buffer_bytes.saturating_sub(stored))) {
            return false;
        }
        let state = connections.observe(now, Direction::Outgoing, connection, segment).value;
        if state.is_probe(segment) {
            state.answer_probe(connection, ready);
        }
        true
    }

    /// Sends the packets of a connection that have waited, if they are due and the mobile host is here.
    fn release(&mut self, now: Instant, connection: Connection) {
        let Self { config, connections, agenda, peers, ready, actions, .. } = self;
        let Some(peers) = peers else { return };
        let is_here = peers.is_here(connection.mobile().ip());
        let Some(arriving) = peers.arriving.get_mut(&connection).filter(|arriving| arriving.is_due() && is_here) else {
            return;
        };
        let copies = arriving.take();
        if arriving.is_last() {
            peers.arriving.remove(&connection);
        }
        let Some(state) = connections.get_mut(connection) else {
            return send_unseen(copies, ready);
        };
        if state.forward(now, config, copies, ready) {
            actions.push_back(Action { at: now, connection, mechanism: Self::NAME, what: "released" });
            if state.due.is_none() {
                let due = state.freezes_at(now, config);
                agenda.set(connection, &mut state.due, due);
            }
        }
    }

    /// Adds the packets that have waited to the copies of their connections.
    fn absorb(&mut self, now: Instant, mobile: IpAddr, with_incomplete: bool) {
        let Self { connections, peers: Some(peers), ready, .. } = self else { return };
        for connection in peers.arriving_of(mobile) {
            let arriving = peers.arriving.get_mut(&connection);
            let Some(arriving) = arriving.filter(|arriving| with_incomplete || arriving.is_due()) else { continue };
            let copies = arriving.take();
            if with_incomplete || arriving.is_last() {
                peers.arriving.remove(&connection);
            }
            match connections.get_mut(connection) {
                Some(state) => state.absorb(now, copies),
                None => send_unseen(copies, ready),
            }
        }
    }
}

/// Mobile hosts that come and go.
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
                if !matches!(peers.exchange.standing(now, mobile), Standing::Elsewhere { .. }) {
                    peers.leaving.insert(mobile, now + ASKED_WITHIN);
                }
            }
            Presence::Fading { .. } => {}
        }
    }

    /// A mobile host has arrived: its connections may be at another base station.
    pub(super) fn ask_if_new(&mut self, now: Instant, mobile: IpAddr) {
        let Some(peers) = &mut self.peers else { return };
        if matches!(peers.exchange.standing(now, mobile), Standing::Unknown | Standing::Elsewhere { .. }) {
            peers.exchange.ask(now, mobile);
            self.handle_peers(now);
        }
    }

    pub(super) fn handle_peers_timeout(&mut self, now: Instant) {
        let Some(peers) = &mut self.peers else { return };
        peers.exchange.handle_timeout(now);
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
        while let Some(event) = self.peers.as_mut().and_then(|peers| peers.exchange.poll_event()) {
            match event {
                Event::Wanted { peer, mobile, id } => self.hand_on(now, peer, mobile, id),
                Event::Given { record } => self.take(now, &record),
                Event::Concluded { mobile, .. } => self.conclude(now, mobile),
            }
        }
    }

    /// A peer requests a mobile host's connections: hands them on.
    fn hand_on(&mut self, now: Instant, peer: IpAddr, mobile: IpAddr, id: u64) {
        if let Some(peers) = self.peers.as_mut().filter(|peers| peers.exchange.is_asking_since(mobile, id)) {
            // The mobile host has come here since.
            return peers.exchange.give(now, peer, mobile, id, Vec::new());
        }
        let of_mobile = |connection: &Connection| connection.mobile().ip() == mobile;
        let is_known =
            self.connections.live().any(|(connection, state)| of_mobile(&connection) && state.acked.is_some());
        if !is_known && self.peers.as_ref().is_some_and(|peers| peers.exchange.has_to_wait(mobile, id)) {
            // The requested records may arrive here first. The peer repeats its request.
            return;
        }
        self.absorb(now, mobile, true);
        let Self { connections, agenda, away, peers: Some(peers), ready, actions, .. } = self else { return };
        let (mut records, mut copies) = (Vec::new(), Vec::new());
        for (connection, state) in connections.live_mut().filter(|(connection, _)| of_mobile(connection)) {
            match state.record(connection) {
                Some((record, copied)) => {
                    records.push(record);
                    copies.extend(copied);
                    actions.push_back(Action { at: now, connection, mechanism: Self::NAME, what: "handed on" });
                }
                None => state.send_after(ready),
            }
            state.forget(agenda, connection);
        }
        records.append(&mut copies);
        // The arrival of these was not confirmed; if another peer requests them, its own are newer.
        records.extend(peers.exchange.take_back(mobile));
        peers.leaving.remove(&mobile);
        away.remove(&mobile);
        peers.exchange.give(now, peer, mobile, id, records);
    }

    /// Handles a record. An invalid one was sent as such, not damaged on its way: repeating the request does not help.
    fn take(&mut self, now: Instant, record: &Bytes) {
        match Unsplit::parse(record) {
            Ok(Unsplit::Flow(record)) => self.take_over(now, &record),
            Ok(Unsplit::Copy(record)) => self.take_copy(now, &record),
            Err(_) => {}
        }
    }

    /// Takes over a connection of another base station, unless a newer state of it is known.
    fn take_over(&mut self, now: Instant, record: &FlowRecord) {
        let Self { config, connections, agenda, peers: Some(peers), ready, actions, .. } = self else { return };
        let connection = record.connection;
        let noted = connections.observe(now, Direction::Outgoing, connection, &record.shown());
        let (state, is_over) = (noted.value, noted.is_over);
        if is_over || state.is_begun || state.epoch >= record.epoch {
            return;
        }
        actions.push_back(Action { at: now, connection, mechanism: Self::NAME, what: "took over" });
        state.resume(config, record, ready);
        let is_here = peers.is_here(connection.mobile().ip());
        let copies = if config.buffers { record.copies } else { 0 };
        if (copies > 0 || peers.arriving.contains_key(&connection))
            && let Some(arriving) = peers.arriving(now, connection)
        {
            arriving.note_state(now, record.epoch, copies);
        }
        if is_here && copies == 0 && state.mode == Mode::PersistReply {
            state.reopen(now, connection, ready, actions);
        }
        let due = state.freezes_at(now, config).filter(|_| is_here || state.mode == Mode::Normal);
        agenda.set(connection, &mut state.due, due);
        self.release(now, connection);
    }

    /// Keeps a copy of another base station until it can be sent.
    fn take_copy(&mut self, now: Instant, record: &CopyRecord) {
        let Self { config, connections, peers: Some(peers), .. } = self else { return };
        let (is_begun, stored) =
            connections.get(record.connection).map_or((false, 0), |state| (state.is_begun, state.cache.bytes()));
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
        for record in peers.exchange.take_back(mobile) {
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

impl State {
    /// Whether the connection has a state here that a record could have.
    fn is_known(&self) -> bool {
        self.acked.is_some() || self.is_begun
    }

    /// The record of the connection, and its copies; `None` before the mobile host's first ACK.
    fn record(&mut self, connection: Connection) -> Option<(Bytes, Vec<Bytes>)> {
        let (acked, sent, last) = (self.acked?, self.sent?, self.last_sent.last()?.clone());
        let epoch = self.epoch.saturating_add(1);
        let cached = core::iter::from_fn(|| self.cache.pop_first());
        let copies = cached.filter_map(|cached| {
            Unsplit::Copy(CopyRecord { epoch, connection, packet: cached.packet })
                .emit()
                .filter(|record| record.len() <= Message::MAX_RECORD_BYTES)
        });
        let copies: Vec<Bytes> = copies.collect();
        let flow = FlowRecord {
            epoch,
            connection,
            acked,
            sent,
            last,
            is_frozen: self.mode == Mode::PersistReply,
            is_withheld: self.held.is_some(),
            round_trip: self.timer.estimate(),
            copies: u16::try_from(copies.len()).unwrap_or(u16::MAX),
        };
        Some((Unsplit::Flow(flow).emit()?, copies))
    }

    /// Sends the copies of a connection without a record after the mobile host.
    fn send_after(&mut self, ready: &mut VecDeque<Injected>) {
        send_unseen(core::mem::take(&mut self.cache), ready);
    }

    /// Continues from a record. What the mobile host has sent here is newer.
    fn resume(&mut self, config: &BufferFreezeConfig, record: &FlowRecord, ready: &mut VecDeque<Injected>) {
        let is_newer_here = self.acked.is_some();
        let acked = self.acked.map_or(record.acked, |acked| acked.max(record.acked));
        // Without copies the fixed host has to retransmit what the mobile host has missed.
        let sent = if config.buffers && record.copies > 0 { record.sent } else { record.acked };
        self.sent = Some(self.sent.map_or(sent, |own| own.max(sent)).max(acked));
        (self.acked, self.epoch) = (Some(acked), record.epoch);
        self.cache.acknowledge(acked);
        if self.timer.estimate().is_none()
            && let Some(estimate) = record.round_trip
        {
            self.timer = LocalTimer::continuing(estimate);
        }
        if is_newer_here {
            return;
        }
        self.last_sent = LastSent(Some(record.last.clone()));
        self.mode = if record.is_frozen { Mode::PersistReply } else { Mode::Normal };
        if record.is_withheld {
            let withheld = self.last_sent.repeat(record.connection.of_sender_going(Direction::Incoming));
            if config.freezes && self.is_outstanding() {
                self.held = withheld;
            } else {
                // No later ACK would release it.
                ready.extend(withheld.map(|packet| Injected { direction: Direction::Incoming, packet }));
            }
        }
    }

    /// Forwards packets that have waited, in order, except those that the mobile host has or was sent here. Returns whether there are
    /// any.
    fn forward(
        &mut self,
        now: Instant,
        config: &BufferFreezeConfig,
        mut packets: Cache,
        ready: &mut VecDeque<Injected>,
    ) -> bool {
        self.prepare(&mut packets);
        let before = ready.len();
        while let Some(waited) = packets.pop_first() {
            if self.cache.has(waited.seq, waited.end) {
                continue;
            }
            if let Some(segment) = waited.packet.tcp() {
                self.keep(now, config, &waited.packet, segment);
            }
            ready.push_back(Injected { direction: Direction::Outgoing, packet: waited.packet });
        }
        ready.len() > before
    }

    /// Adds packets that have waited to the copies. They are sent when the mobile host is here.
    fn absorb(&mut self, now: Instant, mut packets: Cache) {
        self.prepare(&mut packets);
        while let Some(waited) = packets.pop_first() {
            self.cache.insert(now, &waited.packet);
            self.sent = Some(self.sent.map_or(waited.end, |sent| sent.max(waited.end)));
            self.is_owed = true;
        }
    }

    /// Removes packets that the mobile host has, and renews the timestamps of the others.
    fn prepare(&self, packets: &mut Cache) {
        if let Some(acked) = self.acked {
            packets.acknowledge(acked);
        }
        if let Some(timestamps) = self.last_sent.last().and_then(|last| last.timestamps) {
            packets.renew(timestamps.ecr);
        }
    }
}

impl FlowRecord {
    /// An ACK of the fixed host that shows the connection to the table.
    fn shown(&self) -> Segment {
        Segment {
            src_port: self.connection.fixed().port(),
            dst_port: self.connection.mobile().port(),
            seq: self.acked,
            ack: self.last.nxt,
            flags: Flags::ACK,
            ..Segment::default()
        }
    }
}
