//! Connections move between nodes as in I-TCP: the state of both sockets and the data in their buffers move to the node that is now in the
//! path of the mobile host's packets, as a [`SplitRecord`] in pieces that the peers exchange ([`crate::handoff`]).
//!
//! Data that a node has acknowledged exists nowhere else. So exactly one node continues a connection:
//!
//! - The old node stops when it sends the record, and keeps it until all of it is confirmed. If another peer asks meanwhile, or the mobile
//!   host returns, the record is *taken back*: the first peer may have continued from it, and then has a newer record.
//! - The new node continues a connection when all of its record has arrived. With a record that was taken back it waits until all peers
//!   have answered; the record with the highest epoch applies.
//!
//! # When the connection continues
//!
//! Packets that arrive before wait, in order. Data that was sent to the fixed host counts as in flight. Data that was sent to the mobile host
//! is presumed lost, and sent again in slow start, as soon as the mobile host is noticed: it is reported present, or sends a packet.
//!
//! # Connections without a record
//!
//! The two halves of a split connection number their bytes differently, so a packet of such a connection must not simply pass:
//!
//! | answers of the peers | the connection |
//! | --- | --- |
//! | one of them has it | continues here |
//! | none has it, and it was not handed on from here | was never split, and passes from now on |
//! | none has it, and it was split here before | is reset at both ends: its state is lost |
//! | not all of them answer | is reset at both ends, unless a peer that was still its owner has sent it |

use core::net::IpAddr;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::{Bytes, BytesMut};
use holdover_base::{Duration, Instant};
use holdover_filter::{Action, Connection, Direction, Injected, Presence, Verdict};
use holdover_tcp::AfterRetransmit;
use holdover_wire::{Flags, Packet, Segment, Seq, SeqRange};

use super::{Pair, Side, Split};
use crate::handoff::{Event, Exchange, HandoffConfig, Piece, SplitRecord, Whereabouts};
use crate::stragglers::STRAGGLERS;

/// The other nodes, and connections on their way.
#[derive(Debug)]
pub(super) struct Peers {
    pub(super) exchange: Exchange,
    /// Connections handed on: the epoch, and until when it is remembered.
    gone: BTreeMap<Connection, (u32, Instant)>,
    /// Records of each mobile host's connections that were sent and are not all confirmed.
    kept: BTreeMap<IpAddr, Kept>,
    /// The last request about each mobile host that was answered with records, and until when it is remembered.
    given: BTreeMap<IpAddr, (u64, Instant)>,
    /// The last request about each mobile host that waits for the answers to this node's own one.
    postponed: BTreeMap<IpAddr, (IpAddr, u64)>,
    /// Records that have not arrived completely.
    arriving: BTreeMap<Arriving, Partial>,
    /// Records that were taken back: they apply if no peer has a newer one.
    doubtful: BTreeMap<Connection, SplitRecord>,
    /// Mobile hosts that are reported to be elsewhere.
    left: BTreeSet<IpAddr>,
    /// Packets of connections whose record has not arrived, in order.
    waiting: BTreeMap<Connection, VecDeque<(Direction, Packet)>>,
}

/// Records that were sent, or that a later request is to get.
#[derive(Debug)]
struct Kept {
    records: Vec<Bytes>,
    /// When they are forgotten, unless they are on their way.
    until: Instant,
}

/// A record of the answer to a request.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Arriving {
    mobile: IpAddr,
    peer: IpAddr,
    id: u64,
    number: u16,
}

#[derive(Debug)]
struct Partial {
    total: usize,
    len: usize,
    pieces: BTreeMap<u32, Bytes>,
}

/// The most connections that wait for their records at once, and the most packets of each: more than a window of 64 kB. Others are dropped,
/// and retransmitted by their senders.
const MOST_WAITING: usize = 1_000;
const MOST_PACKETS: usize = 256;

/// The most pieces in an answer: their number has 16 bits. That is 91 MB; connections beyond it are reset.
const MOST_PIECES: usize = u16::MAX as usize;

/// How long after a handoff packets that arrive here may have been in flight: the mobile host's own, and those of fixed
/// hosts, until all routes have changed. Later ones show that it has returned.
const fn stragglers(direction: Direction) -> Duration {
    match direction {
        Direction::Incoming => STRAGGLERS,
        Direction::Outgoing => Duration::from_secs(1),
    }
}

impl Peers {
    pub(super) fn new(config: HandoffConfig, salt: u16) -> Self {
        Self {
            exchange: Exchange::new(config, salt),
            gone: BTreeMap::new(),
            kept: BTreeMap::new(),
            given: BTreeMap::new(),
            postponed: BTreeMap::new(),
            arriving: BTreeMap::new(),
            doubtful: BTreeMap::new(),
            left: BTreeSet::new(),
            waiting: BTreeMap::new(),
        }
    }

    pub(super) fn handle_timeout(&mut self, now: Instant) {
        self.exchange.handle_timeout(now);
        self.gone.retain(|_, (_, until)| *until > now);
        self.given.retain(|_, (_, until)| *until > now);
        let exchange = &self.exchange;
        self.kept.retain(|mobile, kept| kept.until > now || exchange.is_giving(*mobile));
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.exchange.poll_timeout()
    }

    /// Bytes of records and packets on their way.
    pub(super) fn stored_bytes(&self) -> usize {
        let kept = self.kept.values().flat_map(|kept| &kept.records).map(Bytes::len);
        let arriving = self.arriving.values().map(|partial| partial.len);
        let waiting = self.waiting.values().flatten().map(|(_, packet)| packet.wire_len());
        kept.chain(arriving).chain(waiting).sum()
    }

    fn remember(&mut self, now: Instant, connection: Connection, epoch: u32) {
        self.gone.insert(connection, (epoch, now + self.exchange.keep()));
    }

    fn waiting_of(&mut self, mobile: IpAddr) -> Vec<(Connection, VecDeque<(Direction, Packet)>)> {
        let connections: Vec<Connection> = of_mobile(self.waiting.keys(), mobile).collect();
        connections.into_iter().filter_map(|connection| Some((connection, self.waiting.remove(&connection)?))).collect()
    }

    /// Whether a record about a mobile host has arrived that no connection continues from yet, or a part of one.
    fn is_receiving(&self, mobile: IpAddr) -> bool {
        self.arriving.keys().any(|record| record.mobile == mobile)
            || of_mobile(self.doubtful.keys(), mobile).next().is_some()
    }

    fn forget_arriving(&mut self, mobile: IpAddr) -> Vec<SplitRecord> {
        self.arriving.retain(|record, _| record.mobile != mobile);
        let doubtful: Vec<Connection> = of_mobile(self.doubtful.keys(), mobile).collect();
        doubtful.iter().filter_map(|connection| self.doubtful.remove(connection)).collect()
    }

    /// Adds a piece. Returns the record if it is complete.
    fn join(&mut self, record: Arriving, piece: Piece) -> Option<Bytes> {
        let new = || Partial { total: piece.total as usize, len: 0, pieces: BTreeMap::new() };
        let partial = self.arriving.entry(record).or_insert_with(new);
        if partial.total != piece.total as usize || partial.pieces.contains_key(&piece.offset) {
            return None;
        }
        partial.len += piece.bytes.len();
        partial.pieces.insert(piece.offset, piece.bytes);
        if partial.len < partial.total {
            return None;
        }
        let partial = self.arriving.remove(&record)?;
        let mut whole = BytesMut::with_capacity(partial.total);
        partial.pieces.values().for_each(|bytes| whole.extend_from_slice(bytes));
        Some(whole.freeze())
    }
}

fn of_mobile<'a>(
    connections: impl Iterator<Item = &'a Connection> + 'a,
    mobile: IpAddr,
) -> impl Iterator<Item = Connection> + 'a {
    connections.copied().filter(move |connection| connection.mobile().ip() == mobile)
}

impl Split {
    pub(super) fn connections_of(&self, mobile: IpAddr) -> Vec<Connection> {
        of_mobile(self.pairs.keys(), mobile).collect()
    }

    /// Whether a packet belongs to an established connection that is not split here, and may be split elsewhere.
    pub(super) fn is_unknown(&self, connection: Connection, packet: &Packet) -> bool {
        let is_first = packet.tcp().is_some_and(|segment| segment.flags & (Flags::SYN | Flags::ACK) == Flags::SYN);
        self.peers.is_some() && !is_first && !self.has(connection)
    }

    /// Handles a packet of such a connection.
    pub(super) fn handle_unknown(
        &mut self,
        now: Instant,
        direction: Direction,
        connection: Connection,
        packet: &Packet,
    ) -> Verdict {
        let Some(peers) = &mut self.peers else { return Verdict::Pass };
        let mobile = connection.mobile().ip();
        let is_gone = peers.gone.contains_key(&connection);
        match peers.exchange.whereabouts(now, mobile) {
            Whereabouts::Settled if is_gone => return self.refuse(now, connection, direction, packet),
            Whereabouts::Settled => return Verdict::Pass,
            // They were in flight on the old path.
            Whereabouts::Elsewhere { since } if since < stragglers(direction) => return Verdict::Drop,
            Whereabouts::Unknown | Whereabouts::Elsewhere { .. } => peers.exchange.ask(now, mobile),
            Whereabouts::Asking => {}
        }
        let has_room = peers.waiting.len() < MOST_WAITING || peers.waiting.contains_key(&connection);
        if !has_room {
            return Verdict::Drop;
        }
        let waiting = peers.waiting.entry(connection).or_default();
        if waiting.len() >= MOST_PACKETS {
            return Verdict::Drop;
        }
        waiting.push_back((direction, packet.clone()));
        self.handle_peers(now);
        Verdict::Keep
    }

    /// Asks the peers for the connections of a mobile host that has arrived, as they may be at another node.
    pub(super) fn ask_as_reported(&mut self, now: Instant, mobile: IpAddr, presence: Presence) {
        let Some(peers) = &mut self.peers else { return };
        match (presence, peers.exchange.whereabouts(now, mobile)) {
            (Presence::Moved, _) => {
                peers.left.insert(mobile);
                return;
            }
            // Its connections may have followed it. The request has to be later than that of the node where it was.
            (Presence::Present, _) if peers.left.remove(&mobile) => {
                peers.forget_arriving(mobile);
                peers.postponed.remove(&mobile);
                // They remain in `kept`.
                peers.exchange.take_back(mobile);
                peers.exchange.ask_anew(now, mobile);
            }
            (Presence::Present, Whereabouts::Unknown | Whereabouts::Elsewhere { .. }) => {
                peers.exchange.ask(now, mobile);
            }
            _ => return,
        }
        self.handle_peers(now);
    }

    /// The mobile host is here. If the connection was taken over, data that the former node has sent is sent again at once.
    pub(super) fn note_mobile(&mut self, now: Instant, connection: Connection) {
        let Some(pair) = self.pairs.get_mut(&connection).filter(|pair| pair.is_unheard) else { return };
        pair.is_unheard = false;
        if let Some(half) = self.half_mut(connection, Side::Mobile) {
            let in_flight = SeqRange::new(half.snd_una(), half.snd_nxt());
            half.presume_lost(now, in_flight, AfterRetransmit::Reset);
        }
        self.pump(now, connection, Side::Fixed);
    }

    /// Handles the answers of the peers.
    pub(super) fn handle_peers(&mut self, now: Instant) {
        while let Some(event) = self.peers.as_mut().and_then(|peers| peers.exchange.poll_event()) {
            match event {
                Event::Wanted { peer, mobile, id } => self.hand_on(now, peer, mobile, id),
                Event::Given { peer, mobile, id, record } => {
                    // An invalid piece was sent as such, not damaged on its way: repeating the request does not help.
                    if let Ok(piece) = Piece::parse(&record) {
                        let record = Arriving { mobile, peer, id, number: piece.number };
                        self.take_piece(now, record, piece);
                    }
                }
                Event::Delivered { mobile } => {
                    self.peers.as_mut().and_then(|peers| peers.kept.remove(&mobile));
                }
                Event::Concluded { mobile, is_outdated: true, .. } => self.conclude_outdated(now, mobile),
                Event::Concluded { mobile, is_complete, .. } => self.conclude(now, mobile, is_complete),
            }
        }
        self.advance(now);
        self.changed.clear();
    }

    /// A peer requests a mobile host's connections: hands them on.
    fn hand_on(&mut self, now: Instant, peer: IpAddr, mobile: IpAddr, id: u64) {
        let connections = self.connections_of(mobile);
        let Some(peers) = &mut self.peers else { return };
        if peers.given.get(&mobile).is_some_and(|(given, _)| *given > id) {
            return peers.exchange.give_outdated(peer, mobile, id);
        }
        if peers.exchange.is_asking_since(mobile, id) {
            // The mobile host has come here since.
            return peers.exchange.give(now, peer, mobile, id, Vec::new());
        }
        if peers.exchange.has_to_wait(mobile, id) && (connections.is_empty() || peers.is_receiving(mobile)) {
            // The requested records may arrive here first.
            peers.postponed.insert(mobile, (peer, id));
            return;
        }
        peers.exchange.take_back(mobile);
        let taken_back = peers.kept.remove(&mobile).map_or(Vec::new(), |kept| kept.records);
        let mut records: Vec<(Bytes, bool)> = taken_back.into_iter().map(|record| (record, true)).collect();
        let mut pieces: usize = records.iter().map(|(record, _)| pieces_of(record)).sum();
        for connection in connections {
            let record = self.record(now, connection).map(|record| (record.epoch, record.emit()));
            let record = record.filter(|(_, record)| pieces + pieces_of(record) <= MOST_PIECES);
            let Some((epoch, record)) = record else {
                self.give_up(now, connection);
                continue;
            };
            self.withdraw(connection);
            self.actions.push_back(Action { at: now, connection, mechanism: Self::NAME, what: "handed on" });
            if let Some(peers) = &mut self.peers {
                peers.remember(now, connection, epoch);
            }
            pieces += pieces_of(&record);
            records.push((record, false));
        }
        let Some(peers) = &mut self.peers else { return };
        let numbered = (0..=u16::MAX).zip(&records);
        let messages: Vec<Bytes> = numbered
            .flat_map(|(number, (record, is_taken_back))| Piece::of(record, number, *is_taken_back))
            .map(|piece| piece.emit())
            .collect();
        let is_elsewhere = !messages.is_empty();
        peers.exchange.give(now, peer, mobile, id, messages);
        if is_elsewhere {
            peers.given.insert(mobile, (id, now + peers.exchange.keep()));
            let records = records.into_iter().map(|(record, _)| record).collect();
            peers.kept.insert(mobile, Kept { records, until: now + peers.exchange.keep() });
        }
        if is_elsewhere || matches!(peers.exchange.whereabouts(now, mobile), Whereabouts::Elsewhere { .. }) {
            // Their senders retransmit them to the mobile host's current place.
            peers.waiting_of(mobile);
        }
    }

    /// The record of a connection for another node; `None` if one of its halves is in its handshake, or has failed.
    fn record(&mut self, now: Instant, connection: Connection) -> Option<SplitRecord> {
        self.empty_ended_halves(now, connection);
        let pair = self.pairs.get(&connection).filter(|pair| pair.syn.is_none())?;
        let epoch = pair.epoch.saturating_add(1);
        let mut halves = [None, None];
        for side in Side::BOTH {
            let half = self.half(connection, side);
            halves[side as usize] = match half {
                Some(half) if !half.is_closed() => Some(half.snapshot(now)?),
                Some(half) if half.error().is_some() => return None,
                _ => None,
            };
        }
        let is_open = halves.iter().any(Option::is_some);
        is_open.then_some(SplitRecord { epoch, connection, halves })
    }

    /// Passes on the data of a half that has ended in good order, also beyond the size of the other half's buffer.
    fn empty_ended_halves(&mut self, now: Instant, connection: Connection) {
        for side in Side::BOTH {
            let is_over = self.half(connection, side).is_some_and(|half| half.is_closed() && half.error().is_none());
            if !is_over {
                continue;
            }
            while let Some(data) = self.half_mut(connection, side).and_then(|half| half.read(now)) {
                if let Some(other) = self.half_mut(connection, side.other()) {
                    other.write_beyond_buffer(now, data);
                }
            }
            self.pump(now, connection, side);
        }
    }

    /// Handles a piece of a record.
    fn take_piece(&mut self, now: Instant, record: Arriving, piece: Piece) {
        let is_taken_back = piece.is_taken_back;
        let Some(peers) = &mut self.peers else { return };
        let Some(record) = peers.join(record, piece).and_then(|record| SplitRecord::parse(&record).ok()) else {
            return;
        };
        if !is_taken_back {
            return self.take_over(now, &record);
        }
        let is_newest = peers.doubtful.get(&record.connection).is_none_or(|other| other.epoch < record.epoch);
        if is_newest {
            peers.doubtful.insert(record.connection, record);
        }
    }

    /// Takes over a connection of another node, unless a newer state of it is known.
    fn take_over(&mut self, now: Instant, record: &SplitRecord) {
        let (connection, epoch) = (record.connection, record.epoch);
        let Some(peers) = &mut self.peers else { return };
        // A connection opened here, between the same ports, is newer.
        let is_known = self.pairs.get(&connection).is_some_and(|pair| pair.epoch == 0 || pair.epoch >= epoch);
        if is_known || peers.gone.get(&connection).is_some_and(|(gone, _)| *gone >= epoch) {
            return;
        }
        let waited = peers.waiting.remove(&connection).unwrap_or_default();
        self.withdraw(connection);
        if !self.restore(now, record) {
            // There is no room for it here, and it is nowhere else.
            if let Some(peers) = &mut self.peers {
                peers.remember(now, connection, epoch);
            }
            return self.refuse_all(now, connection, waited);
        }
        if let Some(peers) = &mut self.peers {
            peers.gone.remove(&connection);
        }
        self.actions.push_back(Action { at: now, connection, mechanism: Self::NAME, what: "took over" });
        let is_heard = self.here.contains(&connection.mobile().ip())
            || waited.iter().any(|(direction, _)| *direction == Direction::Incoming);
        for (direction, packet) in waited {
            // It waited here, and has been taken from its path.
            let _ = self.take(now, direction, &packet);
        }
        if is_heard {
            self.note_mobile(now, connection);
        }
        for side in Side::BOTH {
            self.pump(now, connection, side);
        }
        self.advance(now);
    }

    /// Creates the two halves from a record. Returns whether there is room for them.
    fn restore(&mut self, now: Instant, record: &SplitRecord) -> bool {
        if self.pairs.len() >= self.config.most {
            return false;
        }
        let mut ids = [None; 2];
        for (side, snapshot) in Side::BOTH.into_iter().zip(&record.halves) {
            let Some(snapshot) = snapshot else { continue };
            let config = self.config_of(side);
            ids[side as usize] = self.endpoint(side).restore(now, config, snapshot).ok();
        }
        let is_whole = ids.iter().zip(&record.halves).all(|(id, half)| id.is_some() == half.is_some());
        for (side, id) in Side::BOTH.into_iter().zip(ids) {
            let Some(id) = id else { continue };
            if is_whole {
                self.halves[side as usize].enter(id, record.connection);
            } else {
                self.endpoint(side).withdraw(id);
            }
        }
        if is_whole {
            let is_shut = |half: &Option<holdover_tcp::Snapshot>| {
                half.as_ref().is_none_or(|half| half.is_closing || half.resumption.is_sent_all)
            };
            let is_shut = [is_shut(&record.halves[0]), is_shut(&record.halves[1])];
            let pair = Pair { is_shut, epoch: record.epoch, is_unheard: true, ..Pair::new(ids) };
            self.pairs.insert(record.connection, pair);
        }
        is_whole
    }

    /// A peer has given the records to a later request: the mobile host has moved on, and its packets here are dropped.
    fn conclude_outdated(&mut self, now: Instant, mobile: IpAddr) {
        let Some(peers) = &mut self.peers else { return };
        peers.waiting_of(mobile);
        let doubtful = peers.forget_arriving(mobile);
        if !doubtful.is_empty() {
            let kept = peers.kept.entry(mobile).or_insert_with(|| Kept { records: Vec::new(), until: now });
            kept.until = now + peers.exchange.keep();
            kept.records.extend(doubtful.iter().map(SplitRecord::emit));
        }
        peers.exchange.depart(now, mobile);
        if let Some((peer, id)) = peers.postponed.remove(&mobile) {
            self.hand_on(now, peer, mobile, id);
        }
    }

    /// All peers have answered, or will not answer. The remaining connections have no record.
    fn conclude(&mut self, now: Instant, mobile: IpAddr, is_complete: bool) {
        let Some(peers) = &mut self.peers else { return };
        let mut doubtful = peers.forget_arriving(mobile);
        if is_complete {
            // The peer to which these were sent has answered that it does not have them, or has sent newer ones.
            peers.exchange.take_back(mobile);
            let kept = peers.kept.remove(&mobile).map_or(Vec::new(), |kept| kept.records);
            doubtful.extend(kept.iter().filter_map(|record| SplitRecord::parse(record).ok()));
        }
        doubtful.sort_by_key(|record| core::cmp::Reverse(record.epoch));
        for record in doubtful {
            if is_complete {
                // It was handed on from here, and nobody has continued from it.
                let peers = self.peers.as_mut();
                let gone = peers
                    .map(|peers| &mut peers.gone)
                    .filter(|gone| gone.get(&record.connection).is_some_and(|(epoch, _)| *epoch == record.epoch));
                gone.and_then(|gone| gone.remove(&record.connection));
                self.take_over(now, &record);
            } else if let Some(peers) = &mut self.peers {
                peers.remember(now, record.connection, record.epoch);
            }
        }
        let Some(peers) = &mut self.peers else { return };
        if let Some((peer, id)) = peers.postponed.remove(&mobile) {
            // The mobile host has moved on, and so do its connections. Packets that wait here are dropped.
            return self.hand_on(now, peer, mobile, id);
        }
        for (connection, packets) in peers.waiting_of(mobile) {
            let is_gone = self.peers.as_ref().is_some_and(|peers| peers.gone.contains_key(&connection));
            if !is_complete || is_gone {
                self.refuse_all(now, connection, packets);
            } else {
                let packets = packets.into_iter().map(|(direction, packet)| Injected { direction, packet });
                self.ready.extend(packets);
            }
        }
    }

    /// Resets a connection whose state is lost, once at the sender of packets in each direction.
    fn refuse_all(&mut self, now: Instant, connection: Connection, packets: VecDeque<(Direction, Packet)>) {
        for direction in Direction::BOTH {
            if let Some((_, packet)) = packets.iter().rev().find(|(of, _)| *of == direction) {
                let _ = self.refuse(now, connection, direction, packet);
            }
        }
    }

    /// Resets a connection whose state is lost, at the sender of `packet`. The other end is reset when it sends.
    fn refuse(&mut self, now: Instant, connection: Connection, direction: Direction, packet: &Packet) -> Verdict {
        let Some(segment) = packet.tcp().filter(|segment| !segment.flags.contains(Flags::RST)) else {
            return Verdict::Drop;
        };
        if !segment.flags.contains(Flags::ACK) {
            return Verdict::Drop;
        }
        let reset = Segment {
            src_port: segment.dst_port,
            dst_port: segment.src_port,
            seq: segment.ack,
            ack: Seq::default(),
            flags: Flags::RST,
            window: 0,
            ..Segment::default()
        };
        let packet = Packet::new(packet.dst, packet.src, reset);
        self.ready.push_back(Injected { direction: direction.opposite(), packet });
        self.actions.push_back(Action { at: now, connection, mechanism: Self::NAME, what: "refused" });
        Verdict::Drop
    }
}

fn pieces_of(record: &Bytes) -> usize {
    record.len().div_ceil(Piece::MAX_BYTES)
}
