//! Which connection a packet belongs to, and what a mechanism remembers of each.

use core::fmt;
use core::net::SocketAddr;
use std::collections::BTreeMap;

use holdover_base::{Duration, Instant};
use holdover_wire::{Flags, Packet, Payload, Segment};

use crate::Direction;

/// A connection of this host, named by its addresses and ports.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Connection {
    /// This host's end.
    pub local: SocketAddr,
    /// The peer's end.
    pub remote: SocketAddr,
}

impl Connection {
    /// The connection that a packet belongs to; `None` if it carries no TCP segment in the clear.
    pub fn of(direction: Direction, packet: &Packet) -> Option<Self> {
        let segment = packet.tcp()?;
        let src = SocketAddr::new(packet.src, segment.src_port);
        let dst = SocketAddr::new(packet.dst, segment.dst_port);
        Some(match direction {
            Direction::Outgoing => Self { local: src, remote: dst },
            Direction::Incoming => Self { local: dst, remote: src },
        })
    }

    /// The connection as whoever sends packets in `direction` names it: its own end first.
    pub(crate) const fn of_sender_going(self, direction: Direction) -> Self {
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

/// The segment in a packet, to rewrite.
pub(crate) fn tcp_mut(packet: &mut Packet) -> Option<&mut Segment> {
    match &mut packet.payload {
        Payload::Tcp(segment) => Some(segment),
        _ => None,
    }
}

/// What a mechanism remembers of each connection, in the order of their addresses. Its size is bounded: when it is full, the
/// connection that has been idle for longest is forgotten, and is from then on like one that began before the mechanism did.
#[derive(Clone, Debug)]
pub(crate) struct Table<T> {
    entries: BTreeMap<Connection, Entry<T>>,
    limit: usize,
}

#[derive(Clone, Debug)]
struct Entry<T> {
    seen_at: Instant,
    /// A FIN or RST has gone by: the entry goes when nothing more comes.
    ending: bool,
    value: T,
}

/// What ends is remembered for so long, for what is retransmitted.
const LINGER: Duration = Duration::from_secs(60);

/// How many connections are remembered at once.
pub(crate) const LIMIT: usize = 65_536;

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self { entries: BTreeMap::new(), limit: LIMIT }
    }
}

impl<T: Default> Table<T> {
    /// The memory of the connection that `segment` belongs to, made if need be; a SYN makes it anew, for a connection may use
    /// the addresses of one that is over.
    pub(crate) fn note(&mut self, now: Instant, connection: Connection, segment: &Segment) -> &mut T {
        if !self.entries.contains_key(&connection) && self.entries.len() >= self.limit {
            self.make_room(now);
        }
        let is_syn = segment.flags & (Flags::SYN | Flags::ACK) == Flags::SYN;
        let entry = self.entries.entry(connection).or_insert_with(|| Entry::new(now));
        if is_syn && entry.ending {
            *entry = Entry::new(now);
        }
        entry.seen_at = now;
        entry.ending |= segment.flags.intersects(Flags::FIN | Flags::RST);
        &mut entry.value
    }

    /// The memory of a connection that has been noted.
    pub(crate) fn get_mut(&mut self, connection: Connection) -> Option<&mut T> {
        self.entries.get_mut(&connection).map(|entry| &mut entry.value)
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (Connection, &mut T)> {
        self.entries.iter_mut().map(|(connection, entry)| (*connection, &mut entry.value))
    }

    /// Forgets what has ended, and if that is not enough, the oldest.
    fn make_room(&mut self, now: Instant) {
        self.entries.retain(|_, entry| !entry.ending || now.saturating_since(entry.seen_at) < LINGER);
        while self.entries.len() >= self.limit {
            let Some(oldest) = self.entries.iter().min_by_key(|(_, entry)| entry.seen_at) else { return };
            let oldest = *oldest.0;
            self.entries.remove(&oldest);
        }
    }
}

impl<T: Default> Entry<T> {
    fn new(now: Instant) -> Self {
        Self { seen_at: now, ending: false, value: T::default() }
    }
}
