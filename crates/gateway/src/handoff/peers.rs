//! The handoff of connections between nodes that are peers, alike for I-TCP, M-TCP and BUFFER-FREEZE: a [`Node`] stops connections and
//! continues them from their records, and the rest is here.
//!
//! A node splits a mobile host's connections only while it *owns* the mobile host, which takes an answer of every peer: `ownership.rs` has the
//! rules. A base station of BUFFER-FREEZE splits nothing, so packets may pass it also if it does not own the mobile host
//! ([`crate::buffer_freeze`]).
//!
//! # Packets of connections that are not split here
//!
//! The two halves of a split connection number their bytes differently, so a packet of such a connection must not simply pass:
//!
//! | the mobile host | the packet |
//! | --- | --- |
//! | is owned | A SYN begins a connection. Another packet passes, as the connection was never split; but if it was split here before, it ended elsewhere or is lost, and the sender is reset. |
//! | is being asked for | It waits. |
//! | is unknown | It waits, and all peers are asked. |
//! | is at a peer | It is dropped, as it was in flight. One that comes too late for that shows that the mobile host has returned: it waits, and all peers are asked. But a report that the mobile host has moved counts more than packets. |
//!
//! If not all peers answer, packets that have waited are dropped, and the next one makes the node ask again. While the mobile host is reported
//! here, the node asks again by itself: both ends of the connection may be silent. Such a request has the number of the one that failed or the
//! time of the report, as does one because of a fixed host's packet: these packets may still take the path to the place which the mobile host has left,
//! and no report says so to a node that has missed it. Only the mobile host's own packets count as much as a report.

use core::net::IpAddr;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;
use holdover_base::{Duration, Instant};
use holdover_filter::{Action, Connection, ControlMessage, Direction, Injected, Presence, Verdict};
use holdover_tcp::reset_for;
use holdover_wire::{Flags, Packet};

use super::config::HandoffConfig;
use super::kept::{KeptRecord, KeptRecords};
use super::ownership::{Conclusion, Ownership, OwnershipEvent, Whereabouts, time_of};
use super::record::RecordAge;
use super::record_kinds::{Record, RecordKind};
use super::split_record::Piece;
use crate::stragglers::STRAGGLERS;

/// The other nodes, and connections on their way.
#[derive(Debug)]
pub(crate) struct Peers {
    kind: RecordKind,
    ownership: Ownership,
    kept: KeptRecords,
    /// Mobile hosts that are reported to be elsewhere.
    left: BTreeSet<IpAddr>,
    /// Mobile hosts that are reported to be here.
    here: BTreeMap<IpAddr, AskAgain>,
    /// Packets of connections that are not here, in order.
    waiting: Waiting,
}

/// When the peers are asked again for a mobile host that is here, after a request that failed.
#[derive(Debug)]
struct AskAgain {
    /// When the mobile host was last reported here.
    since: Instant,
    at: Option<Instant>,
    pause: Duration,
}

/// The first pause between two requests, and the longest, by doubling.
const PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));

impl AskAgain {
    const fn new(since: Instant) -> Self {
        Self { since, at: None, pause: PAUSES.0 }
    }

    fn note_failure(&mut self, now: Instant) {
        self.at = Some(now + self.pause);
        self.pause = (self.pause * 2).min(PAUSES.1);
    }
}

/// The packets of each connection, with the times of their arrival.
#[derive(Debug, Default)]
struct Waiting {
    packets: BTreeMap<Connection, VecDeque<(Instant, Direction, Packet)>>,
    bytes: usize,
}

/// How long a packet waits at most: its sender has sent it again by then, and may have ended the connection elsewhere.
const LONGEST_WAIT: Duration = Duration::from_secs(3);
/// The most packets of a connection that wait: more than a window of 64 kB; and the most bytes and connections of all. Others are dropped, and
/// retransmitted by their senders.
const MOST_PACKETS: usize = 256;
const MOST_WAITING_BYTES: usize = 16_000_000;
const MOST_WAITING_CONNECTIONS: usize = 65_535;

/// The most pieces in an answer: their number has 16 bits. That is 91 MB; connections beyond it are reset.
const MOST_PIECES: usize = u16::MAX as usize;

/// How long after a handoff packets that arrive here may have been in flight: the mobile host's own, and those of fixed hosts, until all
/// routes have changed.
const fn stragglers(direction: Direction) -> Duration {
    match direction {
        Direction::Incoming => STRAGGLERS,
        Direction::Outgoing => Duration::from_secs(10),
    }
}

impl Waiting {
    /// Returns whether there is room.
    fn push(&mut self, now: Instant, connection: Connection, direction: Direction, packet: &Packet) -> bool {
        let len = packet.wire_len();
        if let Some(packets) = self.packets.get_mut(&connection) {
            while let Some((_, _, old)) = packets.pop_front_if(|(at, ..)| is_stale(now, *at)) {
                self.bytes -= old.wire_len();
            }
        }
        let has_room = self.bytes + len <= MOST_WAITING_BYTES
            && match self.packets.get(&connection) {
                Some(packets) => packets.len() < MOST_PACKETS,
                None => self.packets.len() < MOST_WAITING_CONNECTIONS,
            };
        if has_room {
            self.bytes += len;
            self.packets.entry(connection).or_default().push_back((now, direction, packet.clone()));
        }
        has_room
    }

    fn take(&mut self, now: Instant, connection: Connection) -> VecDeque<(Direction, Packet)> {
        let packets = self.packets.remove(&connection).unwrap_or_default();
        self.bytes -= packets.iter().map(|(_, _, packet)| packet.wire_len()).sum::<usize>();
        let fresh = packets.into_iter().filter(|(at, ..)| !is_stale(now, *at));
        fresh.map(|(_, direction, packet)| (direction, packet)).collect()
    }

    fn take_of(&mut self, now: Instant, mobile: IpAddr) -> Vec<(Connection, VecDeque<(Direction, Packet)>)> {
        let connections: Vec<Connection> = of_mobile(self.packets.keys(), mobile).collect();
        connections.into_iter().map(|connection| (connection, self.take(now, connection))).collect()
    }
}

fn is_stale(now: Instant, at: Instant) -> bool {
    now.saturating_since(at) > LONGEST_WAIT
}

impl Peers {
    pub(crate) fn new(config: HandoffConfig, kind: RecordKind, salt: u16) -> Self {
        Self {
            kind,
            ownership: Ownership::new(config, kind, salt),
            kept: KeptRecords::default(),
            left: BTreeSet::new(),
            here: BTreeMap::new(),
            waiting: Waiting::default(),
        }
    }

    fn handle_timeout(&mut self, now: Instant) {
        let Self { ownership, kept, here, .. } = self;
        ownership.handle_timeout(now);
        kept.handle_timeout(now, |mobile| ownership.is_giving(mobile));
        for (&mobile, again) in here.iter_mut().filter(|(_, again)| again.at.is_some_and(|at| at <= now)) {
            again.at = None;
            if matches!(ownership.whereabouts(now, mobile), Whereabouts::Unknown | Whereabouts::Elsewhere { .. }) {
                ownership.ask_again(now, mobile, again.since);
            }
        }
    }

    pub(crate) fn poll_message(&mut self) -> Option<ControlMessage> {
        self.ownership.poll_message()
    }

    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        let kept = self.kept.poll_timeout(|mobile| self.ownership.is_giving(mobile));
        let again = self.here.values().filter_map(|again| again.at);
        self.ownership.poll_timeout().into_iter().chain(kept).chain(again).min()
    }

    /// Bytes of records and packets on their way.
    pub(crate) fn stored_bytes(&self) -> usize {
        self.kept.bytes() + self.ownership.stored_bytes() + self.waiting.bytes
    }

    /// A request has failed. It is repeated while the mobile host is here, which a peer's request after the last report refutes.
    fn note_failure(&mut self, now: Instant, mobile: IpAddr, conclusion: Conclusion) {
        match self.here.get_mut(&mobile) {
            None => self.ownership.give_up(mobile),
            Some(again) if matches!(conclusion, Conclusion::Outdated { by } if by > again.since) => {
                self.here.remove(&mobile);
            }
            Some(again) => again.note_failure(now),
        }
    }

    /// A peer's request was answered. If it was made before the mobile host was last reported here, the node asks again; if later, the mobile
    /// host has moved on.
    fn note_wanted(&mut self, now: Instant, mobile: IpAddr, at: Instant) {
        match self.here.get_mut(&mobile) {
            Some(again) if at < again.since => again.note_failure(now),
            _ => self.not_here(mobile),
        }
    }

    /// The mobile host is not here, as far as is known: the node does not ask again by itself.
    fn not_here(&mut self, mobile: IpAddr) {
        self.here.remove(&mobile);
        self.ownership.give_up(mobile);
    }

    /// Asks all peers because of a packet.
    pub(crate) fn ask_for_packet(&mut self, now: Instant, direction: Direction, mobile: IpAddr) {
        match self.here.get(&mobile) {
            Some(again) if direction == Direction::Outgoing => self.ownership.ask_again(now, mobile, again.since),
            _ => self.ownership.ask(now, mobile),
        }
    }

    /// A connection has ended here. If it came from another node, a record of it may be there.
    pub(crate) fn note_ended(&mut self, now: Instant, connection: Connection, age: RecordAge) {
        if age.epoch > 0 {
            self.kept.note_ended(connection, age, now + self.ownership.keep());
        }
    }

    pub(crate) fn whereabouts(&self, now: Instant, mobile: IpAddr) -> Whereabouts {
        self.ownership.whereabouts(now, mobile)
    }

    /// See [`Ownership::progressed_at`].
    pub(crate) fn progressed_at(&self, mobile: IpAddr) -> Option<Instant> {
        self.ownership.progressed_at(mobile)
    }

    /// How long a connection that was handed on is remembered.
    pub(crate) fn keep(&self) -> Duration {
        self.ownership.keep()
    }

    /// A connection is opened through this node, which need not own the mobile host. Returns its age.
    pub(crate) fn note_begun(&mut self, now: Instant, connection: Connection) -> RecordAge {
        self.kept.note_here(connection);
        RecordAge { opened: self.ownership.number_at(now), epoch: 0 }
    }

    /// The number that a connection gets that is opened now ([`RecordAge::opened`]).
    pub(crate) fn owned_by(&self, mobile: IpAddr) -> u64 {
        self.ownership.owned_by(mobile)
    }
}

/// The connections of a mobile host.
pub(crate) fn of_mobile<'a>(
    connections: impl Iterator<Item = &'a Connection> + 'a,
    mobile: IpAddr,
) -> impl Iterator<Item = Connection> + 'a {
    connections.copied().filter(move |connection| connection.mobile().ip() == mobile)
}

/// A connection that was stopped for another node to continue it.
#[derive(Debug)]
pub(crate) enum Stopped {
    Record(RecordAge, Bytes),
    /// Nothing has to be known to continue it. A split connection: no half is left, or the first SYN was not answered, and its sender sends
    /// it again.
    Nothing,
    /// It cannot be handed on in its handshake, or has failed: both ends are reset.
    Lost(RecordAge),
}

/// A node that serves connections, and hands them on.
pub(crate) trait Node {
    /// The name of the mechanism, for actions.
    const MECHANISM: &'static str;

    /// The other nodes; `None` without handoffs.
    fn peers(&mut self) -> Option<&mut Peers>;

    /// The connections of a mobile host that are served here.
    fn connections_of(&self, mobile: IpAddr) -> Vec<Connection>;

    /// The age of a connection that is served here.
    fn age_of(&self, connection: Connection) -> Option<RecordAge>;

    /// All connections of a mobile host are about to be handed on.
    fn prepare_to_hand_on(&mut self, _now: Instant, _mobile: IpAddr) {}

    /// Stops a connection here. Both ends of a split connection are reset if `has_room` says that its record, of so many bytes, is too long.
    fn stop(&mut self, now: Instant, connection: Connection, has_room: impl Fn(usize) -> bool) -> Stopped;

    /// Replaces the state of a connection by that of a record. Returns whether there is room for it.
    fn restore(&mut self, now: Instant, record: &Record) -> bool;

    /// Continues a connection that was restored, with the packets that have waited for it, in order.
    fn proceed(&mut self, now: Instant, connection: Connection, waited: VecDeque<(Direction, Packet)>);

    /// A request about a mobile host has ended: no record of its answers is on its way.
    fn handle_conclusion(&mut self, _now: Instant, _mobile: IpAddr) {}

    /// Handles a packet of a connection that is served here, or begins here, or passes.
    fn handle_here(&mut self, now: Instant, direction: Direction, packet: &mut Packet) -> Verdict;

    /// Sends what a change of connections has made due.
    fn finish(&mut self, now: Instant);

    fn send(&mut self, injected: Injected);

    fn note_action(&mut self, action: Action);

    /// Handles a packet of a connection that is not split here, if the node has peers.
    fn handle_unknown(
        &mut self,
        now: Instant,
        direction: Direction,
        connection: Connection,
        packet: &mut Packet,
    ) -> Verdict {
        let Some(peers) = self.peers() else { return Verdict::Pass };
        let mobile = connection.mobile().ip();
        let has_left = peers.left.contains(&mobile);
        match peers.ownership.whereabouts(now, mobile) {
            Whereabouts::Settled => return self.admit(now, direction, connection, packet),
            Whereabouts::Asking => {}
            Whereabouts::Unknown | Whereabouts::Elsewhere { .. } if has_left => return Verdict::Drop,
            Whereabouts::Elsewhere { since } if since < stragglers(direction) => return Verdict::Drop,
            Whereabouts::Unknown | Whereabouts::Elsewhere { .. } => peers.ask_for_packet(now, direction, mobile),
        }
        let is_kept = peers.waiting.push(now, connection, direction, packet);
        self.handle_peers(now);
        if is_kept { Verdict::Keep } else { Verdict::Drop }
    }

    /// Handles a packet of a mobile host that is owned, and of a connection that is not split here.
    fn admit(&mut self, now: Instant, direction: Direction, connection: Connection, packet: &mut Packet) -> Verdict {
        let Some(peers) = self.peers() else { return Verdict::Pass };
        let is_first = packet.tcp().is_some_and(|segment| segment.flags & (Flags::SYN | Flags::ACK) == Flags::SYN);
        if is_first {
            peers.kept.note_here(connection);
        } else if peers.kept.is_gone(connection) {
            return self.refuse(now, connection, direction, packet);
        }
        self.handle_here(now, direction, packet)
    }

    /// Resets a connection whose state is lost, at the sender of `packet`. The other end is reset when it sends. A packet without ACK gets no
    /// RST, as its sender would not accept it.
    fn refuse(&mut self, now: Instant, connection: Connection, direction: Direction, packet: &Packet) -> Verdict {
        let segment = packet.tcp().filter(|segment| segment.flags.contains(Flags::ACK));
        if let Some(reset) = segment.and_then(reset_for) {
            let packet = Packet::new(packet.dst, packet.src, reset);
            self.send(Injected { direction: direction.opposite(), packet });
            self.act(now, connection, "refused");
        }
        Verdict::Drop
    }

    fn act(&mut self, now: Instant, connection: Connection, what: &'static str) {
        self.note_action(Action { at: now, connection, mechanism: Self::MECHANISM, what });
    }

    /// Handles a report of a mobile host's presence: the connections of one that has arrived may be at another node.
    fn ask_as_reported(&mut self, now: Instant, mobile: IpAddr, presence: Presence) {
        let Some(peers) = self.peers() else { return };
        match presence {
            Presence::Moved => {
                peers.not_here(mobile);
                peers.left.insert(mobile);
            }
            Presence::Present | Presence::Rebound => {
                peers.here.entry(mobile).or_insert(AskAgain::new(now)).since = now;
                let has_returned = peers.left.remove(&mobile);
                match peers.ownership.whereabouts(now, mobile) {
                    Whereabouts::Asking | Whereabouts::Settled if !has_returned => {}
                    // The request has to be later than that of the node where it was, which may not have arrived yet.
                    _ => peers.ownership.ask(now, mobile),
                }
                self.handle_peers(now);
            }
            Presence::Away => peers.not_here(mobile),
            Presence::Fading { .. } => {}
        }
    }

    /// Handles a message of a peer. Returns whether it is valid, and from one of the peers.
    fn handle_peer_message(&mut self, now: Instant, message: &ControlMessage) -> bool {
        let Some(peers) = self.peers() else { return false };
        let is_taken = peers.ownership.handle_message(now, message);
        self.handle_peers(now);
        is_taken
    }

    /// Handles deadlines of requests and records.
    fn handle_peer_timeout(&mut self, now: Instant) {
        if let Some(peers) = self.peers() {
            peers.handle_timeout(now);
            self.handle_peers(now);
        }
    }

    /// Handles the requests and answers of the peers.
    fn handle_peers(&mut self, now: Instant) {
        while let Some(event) = self.peers().and_then(|peers| peers.ownership.poll_event()) {
            match event {
                OwnershipEvent::Wanted { peer, mobile, id } => self.hand_on(now, peer, mobile, id),
                OwnershipEvent::Given { record, bytes, is_doubtful } => {
                    self.take_record(now, &record, bytes, is_doubtful)
                }
                OwnershipEvent::Delivered { mobile } => {
                    if let Some(peers) = self.peers() {
                        peers.kept.take(mobile);
                    }
                }
                OwnershipEvent::Concluded { mobile, conclusion: Conclusion::Complete } => {
                    self.begin_owning(now, mobile);
                    self.handle_conclusion(now, mobile);
                }
                OwnershipEvent::Concluded { mobile, conclusion } => {
                    let Some(peers) = self.peers() else { return };
                    // Doubtful records that have arrived remain in `kept`.
                    peers.waiting.take_of(now, mobile);
                    peers.note_failure(now, mobile, conclusion);
                    self.handle_conclusion(now, mobile);
                }
            }
        }
        self.finish(now);
    }

    /// A peer requests a mobile host's connections: hands them on.
    fn hand_on(&mut self, now: Instant, peer: IpAddr, mobile: IpAddr, id: u64) {
        self.prepare_to_hand_on(now, mobile);
        let connections = self.connections_of(mobile);
        let Some(peers) = self.peers() else { return };
        // Their senders retransmit them to the mobile host's current place.
        peers.waiting.take_of(now, mobile);
        let doubtful = peers.kept.take(mobile);
        let until = now + peers.ownership.keep();
        let mut answer = AnswerPieces::default();
        // Each of these gets a piece at least.
        let mut reserved = connections.len() + doubtful.len() + peers.kept.lost_of(mobile).len();
        for connection in connections {
            reserved -= 1;
            let stopped = self.stop(now, connection, |len| answer.has_room(len, reserved));
            let Some(peers) = self.peers() else { return };
            match stopped {
                Stopped::Nothing => {}
                Stopped::Lost(age) => {
                    peers.kept.note_lost(now, connection, age);
                    reserved += 1;
                    self.act(now, connection, "not handed on");
                }
                Stopped::Record(age, bytes) => {
                    peers.kept.note_gone(now, connection, age);
                    answer.add(&bytes, false);
                    peers.kept.keep(connection, KeptRecord { age, bytes }, until);
                    self.act(now, connection, "handed on");
                }
            }
        }
        let Some(peers) = self.peers() else { return };
        for (connection, record) in doubtful {
            reserved -= 1;
            if answer.has_room(record.bytes.len(), reserved) {
                answer.add(&record.bytes, true);
                peers.kept.keep(connection, record, until);
            } else {
                peers.kept.note_lost(now, connection, record.age);
                reserved += 1;
            }
        }
        for record in peers.kept.lost_of(mobile) {
            answer.add(&record.emit(), false);
        }
        peers.ownership.give(now, peer, mobile, id, answer.pieces);
        peers.note_wanted(now, mobile, time_of(id));
    }

    /// A record has arrived.
    fn take_record(&mut self, now: Instant, record: &Record, bytes: Bytes, is_doubtful: bool) {
        let (connection, age) = (record.connection(), record.age());
        if self.is_outdated(connection, age) {
            return;
        }
        let Some(peers) = self.peers() else { return };
        if record.is_lost() {
            peers.kept.note_told(now, connection, age);
        } else if is_doubtful {
            let until = now + peers.ownership.keep();
            peers.kept.keep(connection, KeptRecord { age, bytes }, until);
        } else {
            self.take_over(now, record);
        }
    }

    /// Whether a newer state of a connection than that of this age is here, or was handed on from here.
    fn is_outdated(&mut self, connection: Connection, age: RecordAge) -> bool {
        self.age_of(connection).is_some_and(|own| own >= age)
            || self.peers().is_some_and(|peers| peers.kept.is_outdated(connection, age))
    }

    /// Continues a connection from its newest record.
    fn take_over(&mut self, now: Instant, record: &Record) {
        let connection = record.connection();
        let Some(peers) = self.peers() else { return };
        let waited = peers.waiting.take(now, connection);
        peers.kept.note_here(connection);
        if self.restore(now, record) {
            self.act(now, connection, "took over");
            return self.proceed(now, connection, waited);
        }
        // There is no room for it here, and it is nowhere else.
        if let Some(peers) = self.peers() {
            peers.kept.note_lost(now, connection, record.age());
        }
        self.act(now, connection, "refused");
        record.resets().into_iter().for_each(|reset| self.send(reset));
    }

    /// All peers have answered: the mobile host is owned from now on. Connections from whose records no peer has continued continue here,
    /// and packets that wait for others are handled.
    fn begin_owning(&mut self, now: Instant, mobile: IpAddr) {
        let Some(peers) = self.peers() else { return };
        let kind = peers.kind;
        for (connection, KeptRecord { age, bytes }) in peers.kept.take(mobile) {
            if self.is_outdated(connection, age) {
                continue;
            }
            match Record::parse(&bytes, kind) {
                Ok(record) => self.take_over(now, &record),
                Err(_) => {
                    if let Some(peers) = self.peers() {
                        peers.kept.note_lost(now, connection, age);
                    }
                }
            }
        }
        let Some(peers) = self.peers() else { return };
        for (connection, packets) in peers.waiting.take_of(now, mobile) {
            for (direction, mut packet) in packets {
                let verdict = if self.age_of(connection).is_some() {
                    self.handle_here(now, direction, &mut packet)
                } else {
                    self.admit(now, direction, connection, &mut packet)
                };
                if verdict == Verdict::Pass {
                    self.send(Injected { direction, packet });
                }
            }
        }
    }
}

/// The pieces of an answer.
#[derive(Debug, Default)]
struct AnswerPieces {
    pieces: Vec<Piece>,
    records: u16,
}

impl AnswerPieces {
    /// Whether a record of `len` bytes fits, with `reserved` pieces more.
    fn has_room(&self, len: usize, reserved: usize) -> bool {
        self.pieces.len() + len.div_ceil(Piece::MAX_BYTES) + reserved <= MOST_PIECES
    }

    fn add(&mut self, record: &Bytes, is_doubtful: bool) {
        if self.has_room(record.len(), 0) {
            self.pieces.extend(Piece::of(record, self.records, is_doubtful));
            self.records = self.records.saturating_add(1);
        }
    }
}
