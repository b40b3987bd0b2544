//! Connections, and per-connection state of mechanisms.

use core::fmt;
use core::net::SocketAddr;
use std::collections::{BTreeMap, BTreeSet};

use holdover_base::{Duration, Instant};
use holdover_wire::{Flags, Packet, Payload, Segment, Seq};

use crate::Direction;

/// A connection, named by addresses and ports as seen from the node of the filter.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Connection {
    /// The end on the near side of the link: this host's own; in the network, the fixed host's.
    pub local: SocketAddr,
    /// The end beyond the link: the peer's; in the network, the mobile host's.
    pub remote: SocketAddr,
}

impl Connection {
    /// The connection of a packet; `None` if the packet carries no TCP segment in the clear, or one that mechanisms must not
    /// modify: with a signature ([`TcpOptions::is_signed`]), or of Multipath TCP ([`TcpOptions::is_multipath`]).
    ///
    /// [`TcpOptions::is_signed`]: holdover_wire::TcpOptions::is_signed
    /// [`TcpOptions::is_multipath`]: holdover_wire::TcpOptions::is_multipath
    pub fn of(direction: Direction, packet: &Packet) -> Option<Self> {
        let segment = packet.tcp()?;
        if segment.options.is_signed || segment.options.is_multipath {
            return None;
        }
        let src = SocketAddr::new(packet.src, segment.src_port);
        let dst = SocketAddr::new(packet.dst, segment.dst_port);
        Some(match direction {
            Direction::Outgoing => Self { local: src, remote: dst },
            Direction::Incoming => Self { local: dst, remote: src },
        })
    }

    /// The connection between a fixed and a mobile host, as a node in the network names it.
    pub const fn between(fixed: SocketAddr, mobile: SocketAddr) -> Self {
        Self { local: fixed, remote: mobile }
    }

    /// The fixed host's end, as seen from a node in the network: the near side of the link.
    pub const fn fixed(&self) -> SocketAddr {
        self.local
    }

    /// The mobile host's end, as seen from a node in the network: beyond the link.
    pub const fn mobile(&self) -> SocketAddr {
        self.remote
    }

    /// The connection from the view of the sender of packets in `direction`: its own end first.
    pub const fn of_sender_going(self, direction: Direction) -> Self {
        match direction {
            Direction::Outgoing => self,
            Direction::Incoming => Self { local: self.remote, remote: self.local },
        }
    }
}

/// Prints `10.0.0.1:1024 > 10.0.0.2:80`, local before remote.
impl fmt::Display for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} > {}", self.local, self.remote)
    }
}

/// The TCP segment of a packet, mutable.
pub fn tcp_mut(packet: &mut Packet) -> Option<&mut Segment> {
    match &mut packet.payload {
        Payload::Tcp(segment) => Some(segment),
        _ => None,
    }
}

/// Per-connection state of a mechanism, for connections in which the host takes part, ordered by address. Packets of a
/// remote end (a stranger) that the host has never answered make no connection: few strangers are remembered, and not
/// for long.
///
/// The table is bounded: when it is full, the connection that has been idle for longest is evicted, and from then on is
/// handled like one that began before the mechanism did.
#[derive(Clone, Debug)]
pub struct Table<T> {
    entries: BTreeMap<Connection, Entry<T>>,
    /// Open connections by the time of their last packet, to within [`GRAIN`].
    live: BTreeSet<(Instant, Connection)>,
    /// Closed connections and strangers, in the same order.
    passing: BTreeSet<(Instant, Connection)>,
    limit: usize,
}

/// The state of the connection that a segment belongs to.
pub struct Noted<'a, T> {
    /// The mechanism's state.
    pub value: &'a mut T,
    /// The connection was reset, or both FINs were sent and acknowledged.
    pub is_over: bool,
}

#[derive(Clone, Debug)]
struct Entry<T> {
    seen_at: Instant,
    progress: Progress,
    value: T,
    /// A SYN of the peer for a new connection with the same addresses, which the host has not answered yet.
    asked: Option<Box<(Seq, T)>>,
}

/// How far a connection has progressed.
#[derive(Clone, Copy, Default, Debug)]
struct Progress {
    /// The host has sent a segment.
    takes_part: bool,
    /// The host has sent a segment after the handshake.
    is_synchronized: bool,
    host_isn: Option<Seq>,
    peer_isn: Option<Seq>,
    /// The host's last ACK.
    host_ack: Option<Seq>,
    /// The number that acknowledges the FIN of each end, and whether that ACK was sent.
    host_fin: Option<Seq>,
    peer_fin: Option<Seq>,
    host_fin_acked: bool,
    peer_fin_acked: bool,
    is_reset: bool,
}

/// How long closed connections are remembered, for retransmissions; strangers too.
const LINGER: Duration = Duration::from_secs(60);

/// The granularity of the order by age.
const GRAIN: Duration = Duration::from_secs(1);

/// The most connections that are remembered.
pub const LIMIT: usize = 65_536;

/// The most strangers and closed connections that are remembered.
const MOST_PASSING: usize = 4_096;

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self { entries: BTreeMap::new(), live: BTreeSet::new(), passing: BTreeSet::new(), limit: LIMIT }
    }
}

impl<T: Default> Table<T> {
    /// The state of the connection that `segment` belongs to, created if need be. A connection may reuse the addresses
    /// of an earlier one: the host's own SYN resets the state, and so does a SYN of the peer once the host answers it
    /// by a SYN-ACK.
    pub fn observe(
        &mut self,
        now: Instant,
        direction: Direction,
        connection: Connection,
        segment: &Segment,
    ) -> Noted<'_, T> {
        self.expire(now);
        if !self.entries.contains_key(&connection) {
            self.make_room();
            self.passing.insert((now, connection));
        }
        let Self { entries, live, passing, .. } = self;
        let entry = entries.entry(connection).or_insert_with(|| Entry::new(now));
        let was_passing = entry.progress.is_passing();
        let is_asked = entry.handle_syn(direction, segment);
        if !is_asked {
            entry.progress.note(direction, segment);
        }
        let is_passing = entry.progress.is_passing();
        if is_passing != was_passing || now.saturating_since(entry.seen_at) >= GRAIN {
            (if was_passing { &mut *passing } else { &mut *live }).remove(&(entry.seen_at, connection));
            (if is_passing { passing } else { live }).insert((now, connection));
            entry.seen_at = now;
        }
        let is_over = entry.progress.is_over();
        match &mut entry.asked {
            Some(asked) if is_asked => Noted { value: &mut asked.1, is_over: false },
            _ => Noted { value: &mut entry.value, is_over },
        }
    }

    /// The state of a known connection.
    pub fn get_mut(&mut self, connection: Connection) -> Option<&mut T> {
        self.entries.get_mut(&connection).map(|entry| &mut entry.value)
    }

    /// As [`Self::get_mut`], read-only.
    pub fn get(&self, connection: Connection) -> Option<&T> {
        self.entries.get(&connection).map(|entry| &entry.value)
    }

    /// Open connections in which the host takes part, read-only.
    pub fn live(&self) -> impl Iterator<Item = (Connection, &T)> {
        let live = self.entries.iter().filter(|(_, entry)| !entry.progress.is_passing());
        live.map(|(connection, entry)| (*connection, &entry.value))
    }

    /// All connections, open or closed.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (Connection, &mut T)> {
        self.entries.iter_mut().map(|(connection, entry)| (*connection, &mut entry.value))
    }

    /// Open connections in which the host takes part.
    pub fn live_mut(&mut self) -> impl Iterator<Item = (Connection, &mut T)> {
        let live = self.entries.iter_mut().filter(|(_, entry)| !entry.progress.is_passing());
        live.map(|(connection, entry)| (*connection, &mut entry.value))
    }

    fn expire(&mut self, now: Instant) {
        while let Some(&(seen_at, connection)) = self.passing.first()
            && now.saturating_since(seen_at) >= LINGER
        {
            self.passing.pop_first();
            self.entries.remove(&connection);
        }
    }

    /// Makes room for one more: evicts closed connections and strangers first, then the connection idle for longest.
    fn make_room(&mut self) {
        while self.passing.len() >= MOST_PASSING || self.entries.len() >= self.limit {
            let Some((_, connection)) = self.passing.pop_first().or_else(|| self.live.pop_first()) else { return };
            self.entries.remove(&connection);
        }
    }
}

impl<T: Default> Entry<T> {
    fn new(now: Instant) -> Self {
        Self { seen_at: now, progress: Progress::default(), value: T::default(), asked: None }
    }

    /// Handles a SYN, which may begin another connection or ask for one; returns true if it only asks.
    fn handle_syn(&mut self, direction: Direction, segment: &Segment) -> bool {
        if !segment.flags.contains(Flags::SYN) {
            return false;
        }
        let progress = &self.progress;
        let is_ack = segment.flags.contains(Flags::ACK);
        match (direction, is_ack) {
            (Direction::Outgoing, false) => {
                if progress.host_isn != Some(segment.seq) || progress.is_over() {
                    *self = Self::new(self.seen_at);
                }
            }
            (Direction::Outgoing, true) => match self.asked.take() {
                Some(asked) if asked.0 + 1 == segment.ack => {
                    let progress = Progress { peer_isn: Some(asked.0), ..Progress::default() };
                    *self = Self { seen_at: self.seen_at, progress, value: asked.1, asked: None };
                }
                asked => {
                    self.asked = asked;
                    if progress.host_isn.is_some_and(|isn| isn != segment.seq) {
                        *self = Self::new(self.seen_at);
                    }
                }
            },
            (Direction::Incoming, false) => {
                let is_known = progress.peer_isn == Some(segment.seq) && !progress.is_over();
                let is_first = progress.peer_isn.is_none() && !progress.is_synchronized && !progress.is_over();
                if !progress.takes_part {
                    if !is_known {
                        *self = Self::new(self.seen_at);
                    }
                } else if !is_known && !is_first {
                    if self.asked.as_ref().is_none_or(|asked| asked.0 != segment.seq) {
                        self.asked = Some(Box::new((segment.seq, T::default())));
                    }
                    return true;
                }
            }
            (Direction::Incoming, true) => {}
        }
        false
    }
}

impl Progress {
    fn is_over(&self) -> bool {
        self.is_reset || self.host_fin_acked && self.peer_fin_acked
    }

    fn is_passing(&self) -> bool {
        !self.takes_part || self.is_over()
    }

    /// Whether the host may accept a RST with this number: current TCPs require RCV.NXT exactly (RFC 5961 section 3.2),
    /// older ones any number in their window, which was small. A blind guess does not hit it.
    fn may_accept(&self, seq: Seq) -> bool {
        self.host_ack.is_none_or(|ack| seq.ge(ack) && seq.saturating_since(ack) <= u32::from(u16::MAX))
    }

    fn note(&mut self, direction: Direction, segment: &Segment) {
        let is_reset = segment.flags.contains(Flags::RST);
        let is_syn = segment.flags.contains(Flags::SYN);
        let fin = segment.flags.contains(Flags::FIN).then(|| segment.seq + segment.seq_len());
        let ack = segment.flags.contains(Flags::ACK).then_some(segment.ack);
        let has = |fin: Option<Seq>| fin.zip(ack).is_some_and(|(fin, ack)| ack.ge(fin));
        match direction {
            Direction::Outgoing if is_reset => self.is_reset = self.takes_part,
            Direction::Outgoing => {
                // A host that keeps sending has not accepted the reset.
                (self.takes_part, self.is_reset) = (true, false);
                self.is_synchronized |= !is_syn;
                self.host_isn = if is_syn { Some(segment.seq) } else { self.host_isn };
                self.host_ack = ack.or(self.host_ack);
                self.host_fin = fin.or(self.host_fin);
                self.peer_fin_acked |= has(self.peer_fin);
            }
            Direction::Incoming => {
                self.is_reset |= is_reset && self.may_accept(segment.seq);
                if is_syn && !self.is_synchronized {
                    self.peer_isn = Some(segment.seq);
                }
                self.peer_fin = fin.or(self.peer_fin);
                self.host_fin_acked |= has(self.host_fin);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use core::net::{IpAddr, Ipv4Addr};

    use super::*;

    fn connection(number: u32) -> Connection {
        let remote = IpAddr::V4(Ipv4Addr::from_bits(0x0a00_0000 + number));
        Connection { local: SocketAddr::new([192, 0, 2, 1].into(), 80), remote: SocketAddr::new(remote, 1000) }
    }

    fn segment(seq: u32, ack: u32, flags: Flags) -> Segment {
        Segment { src_port: 1, dst_port: 2, seq: Seq::new(seq), ack: Seq::new(ack), flags, ..Segment::default() }
    }

    fn at(secs: u64) -> Instant {
        Instant::from_secs(secs)
    }

    use Direction::{Incoming, Outgoing};

    /// Counts the segments of a connection; returns what the table has counted.
    fn count(table: &mut Table<u32>, secs: u64, direction: Direction, number: u32, segment: &Segment) -> u32 {
        let noted = table.observe(at(secs), direction, connection(number), segment);
        *noted.value += 1;
        *noted.value
    }

    #[test]
    fn strangers_do_not_evict_connections_of_the_host() {
        let mut table = Table::<u32>::default();
        count(&mut table, 1, Outgoing, 0, &segment(1, 1, Flags::ACK));
        for number in 1..200_000 {
            count(&mut table, 2, Incoming, number, &segment(1, 0, Flags::SYN));
        }
        assert_eq!(table.entries.len(), 1 + MOST_PASSING);
        assert_eq!((table.live.len(), table.passing.len()), (1, MOST_PASSING));
        assert_eq!(count(&mut table, 3, Outgoing, 0, &segment(2, 1, Flags::ACK)), 2);
        // The host answers this peer at once: no stranger.
        count(&mut table, 3, Incoming, 7, &segment(1, 0, Flags::SYN));
        assert_eq!(count(&mut table, 3, Outgoing, 7, &segment(9, 2, Flags::SYN | Flags::ACK)), 2);
        assert_eq!(table.live.len(), 2);
    }

    #[test]
    fn the_connection_idle_for_longest_is_evicted() {
        let mut table = Table::<u32> { limit: 3, ..Table::default() };
        for number in 0..3 {
            count(&mut table, u64::from(number), Outgoing, number, &segment(1, 1, Flags::ACK));
        }
        count(&mut table, 10, Incoming, 0, &segment(1, 1, Flags::ACK));
        count(&mut table, 11, Outgoing, 3, &segment(1, 1, Flags::ACK));
        let kept: Vec<Connection> = table.iter_mut().map(|(connection, _)| connection).collect();
        assert_eq!(kept, [connection(0), connection(2), connection(3)]);
    }

    #[test]
    fn closed_connections_are_evicted_after_the_linger_time() {
        let ack = Flags::ACK;
        let mut table = Table::<u32>::default();
        count(&mut table, 1, Outgoing, 0, &segment(1, 1, ack));
        count(&mut table, 2, Incoming, 0, &segment(1, 1, ack | Flags::FIN));
        count(&mut table, 2, Outgoing, 0, &segment(1, 2, ack | Flags::FIN));
        assert_eq!(table.live_mut().count(), 1, "the host's FIN is not acknowledged");
        count(&mut table, 3, Incoming, 0, &segment(2, 2, ack));
        assert_eq!((table.live_mut().count(), table.entries.len()), (0, 1));
        assert_eq!(count(&mut table, 62, Incoming, 0, &segment(1, 1, ack | Flags::FIN)), 5, "a retransmission");
        count(&mut table, 123, Outgoing, 1, &segment(1, 1, ack));
        assert_eq!(table.entries.len(), 1);
    }

    #[test]
    fn a_half_closed_connection_is_kept() {
        let mut table = Table::<u32>::default();
        count(&mut table, 1, Incoming, 0, &segment(1, 1, Flags::ACK | Flags::FIN));
        count(&mut table, 1, Outgoing, 0, &segment(1, 2, Flags::ACK));
        assert_eq!(count(&mut table, 4_000, Outgoing, 0, &segment(1, 2, Flags::ACK)), 3);
    }

    #[test]
    fn a_reset_that_the_host_refuses_ends_nothing() {
        let mut table = Table::<u32>::default();
        count(&mut table, 1, Outgoing, 0, &segment(1, 1, Flags::ACK));
        assert!(
            !table.observe(at(1), Incoming, connection(0), &segment(77_777, 0, Flags::RST)).is_over,
            "not in window"
        );
        assert!(table.observe(at(1), Incoming, connection(0), &segment(7_777, 0, Flags::RST)).is_over);
        assert!(!table.observe(at(1), Outgoing, connection(0), &segment(1, 1, Flags::ACK)).is_over);
    }

    /// The peer has vanished without FIN or RST, and the addresses are used again.
    #[test]
    fn a_new_syn_of_the_host_resets_the_state_and_a_retransmitted_one_does_not() {
        let mut table = Table::<u32>::default();
        count(&mut table, 1, Outgoing, 0, &segment(1, 1, Flags::ACK));
        assert_eq!(count(&mut table, 2, Outgoing, 0, &segment(500, 0, Flags::SYN)), 1);
        assert_eq!(count(&mut table, 3, Outgoing, 0, &segment(500, 0, Flags::SYN)), 2);
    }

    #[test]
    fn a_syn_of_the_peer_resets_the_state_when_the_host_answers_it() {
        let mut table = Table::<u32>::default();
        for _ in 0..5 {
            count(&mut table, 1, Outgoing, 0, &segment(1, 1, Flags::ACK));
        }
        // A forged SYN changes nothing.
        assert_eq!(count(&mut table, 2, Incoming, 0, &segment(66, 0, Flags::SYN)), 1);
        assert_eq!(count(&mut table, 2, Outgoing, 0, &segment(1, 1, Flags::ACK)), 6);
        assert_eq!(count(&mut table, 3, Incoming, 0, &segment(500, 0, Flags::SYN)), 1);
        assert_eq!(count(&mut table, 4, Incoming, 0, &segment(500, 0, Flags::SYN)), 2);
        // The state since the SYN becomes that of the new connection.
        assert_eq!(count(&mut table, 4, Outgoing, 0, &segment(900, 501, Flags::SYN | Flags::ACK)), 3);
        assert_eq!(count(&mut table, 5, Outgoing, 0, &segment(900, 501, Flags::SYN | Flags::ACK)), 4);
        assert_eq!(count(&mut table, 5, Incoming, 0, &segment(500, 0, Flags::SYN)), 5);
    }

    #[test]
    fn a_simultaneous_open_keeps_the_state() {
        let mut table = Table::<u32>::default();
        count(&mut table, 1, Outgoing, 0, &segment(1, 0, Flags::SYN));
        assert_eq!(count(&mut table, 1, Incoming, 0, &segment(500, 0, Flags::SYN)), 2);
        assert_eq!(count(&mut table, 1, Outgoing, 0, &segment(1, 501, Flags::SYN | Flags::ACK)), 3);
        assert_eq!(count(&mut table, 1, Outgoing, 0, &segment(2, 501, Flags::ACK)), 4);
    }
}
