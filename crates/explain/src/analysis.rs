//! From packets to connections, in memory that does not grow with the length of a capture.

use core::net::SocketAddr;
use std::collections::{BTreeMap, VecDeque};

use holdover_base::{Duration, Instant};
use holdover_wire::{Flags, TcpHeaders};

use crate::conversation::Conversation;
use crate::evidence::Halves;
use crate::round_trip::RoundTrip;
use crate::segment::Seen;
use crate::stream::Stream;

/// Reads packets in capture order and analyses each TCP connection.
#[derive(Debug, Default)]
pub struct Analysis {
    open: BTreeMap<Ends, usize>,
    /// The connection of the latest packet.
    latest: Option<(Ends, usize)>,
    connections: Vec<Connection>,
    first: Option<Instant>,
    /// The latest capture time; it never decreases.
    now: Instant,
    counts: Counts,
}

/// The counters of an [`Analysis`].
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Counts {
    /// Packets.
    pub packets: u64,
    /// Packets with malformed headers.
    pub malformed: u64,
    /// Packets captured twice, at two interfaces of the capturing host.
    pub copies: u64,
    /// Connections omitted for lack of room.
    pub left_out: u64,
}

/// Both ends, in the order of their addresses.
type Ends = (SocketAddr, SocketAddr);

impl Analysis {
    /// The connection limit. Beyond it, connections without data are evicted, oldest first; a new connection that still does not fit is
    /// omitted.
    const MOST_CONNECTIONS: usize = 1 << 16;
    /// The memory of all evidence lists, in bytes, beyond which they are coarsened. In between checks, each packet adds one entry of each
    /// list at most.
    const MOST_EVIDENCE: usize = 100 << 20;
    /// Packets between two checks of the limit.
    const LOOK_EVERY: u64 = 1 << 16;

    /// Creates an empty analysis.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes an IP packet captured at `at` with `original_len` bytes, beginning with `ip`.
    pub fn take(&mut self, at: Instant, ip: &[u8], original_len: usize) {
        self.counts.packets += 1;
        let at = at.max(self.now);
        self.now = at;
        self.first.get_or_insert(at);
        match TcpHeaders::parse(ip, original_len) {
            Ok(Some(headers)) => self.segment(&Seen::new(at, &headers)),
            Ok(None) => {}
            Err(_) => self.counts.malformed += 1,
        }
        if self.counts.packets.is_multiple_of(Self::LOOK_EVERY) {
            self.bound_evidence(Self::MOST_EVIDENCE);
        }
    }

    /// The time of the first packet.
    pub fn first(&self) -> Option<Instant> {
        self.first
    }

    /// The counters so far.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// The connections in the order of their first packets, as the directions that carried data, the one with more data first. A new SYN
    /// after the end of a connection begins another connection.
    pub fn finish(self) -> Vec<Conversation> {
        self.connections.into_iter().flat_map(Connection::finish).collect()
    }

    pub(crate) fn segment(&mut self, seen: &Seen) {
        let ends = if seen.src <= seen.dst { (seen.src, seen.dst) } else { (seen.dst, seen.src) };
        let known = match self.latest {
            Some((latest, index)) if latest == ends => Some(index),
            _ => self.open.get(&ends).copied(),
        };
        let begins = seen.flags & (Flags::SYN | Flags::ACK) == Flags::SYN;
        let index = match known {
            Some(index) if !(begins && self.connections[index].is_over) => index,
            _ => {
                if self.connections.len() >= Self::MOST_CONNECTIONS && !self.make_room() {
                    self.counts.left_out += u64::from(begins);
                    return;
                }
                self.connections.push(Connection::new(seen));
                self.open.insert(ends, self.connections.len() - 1);
                self.connections.len() - 1
            }
        };
        self.latest = Some((ends, index));
        self.counts.copies += u64::from(!self.connections[index].take(seen));
    }

    /// Evicts the older half of the connections without data; returns whether there were any.
    fn make_room(&mut self) -> bool {
        let empty = |connection: &Connection| connection.streams.iter().all(|stream| stream.bytes() == 0);
        let mut last_seen: Vec<Instant> =
            self.connections.iter().filter(|connection| empty(connection)).map(|connection| connection.end).collect();
        if last_seen.is_empty() {
            return false;
        }
        last_seen.sort_unstable();
        let until = last_seen[last_seen.len() / 2];
        self.connections.retain(|connection| !(empty(connection) && connection.end <= until));
        self.latest = None;
        self.open = (0..).zip(&self.connections).map(|(index, connection)| (connection.key(), index)).collect();
        true
    }

    /// The memory of all evidence lists, in bytes.
    fn evidence_memory(&self) -> usize {
        self.connections.iter().flat_map(|connection| &connection.streams).map(|stream| stream.evidence.memory()).sum()
    }

    /// Coarsens the evidence until it takes at most `most` bytes, if that is possible. The longest lists give way first: all lists are
    /// limited to the same length, which is halved until it suffices.
    fn bound_evidence(&mut self, most: usize) {
        if self.evidence_memory() <= most {
            return;
        }
        let streams = self.connections.iter().flat_map(|connection| &connection.streams);
        let mut longest = streams.map(|stream| stream.evidence.longest()).max().unwrap_or(0);
        while longest > 1 && self.evidence_memory() > most {
            longest /= 2;
            let streams = self.connections.iter_mut().flat_map(|connection| &mut connection.streams);
            streams.for_each(|stream| stream.evidence.limit(longest));
        }
    }
}

/// A TCP connection: two ends with a stream in each direction.
#[derive(Debug)]
struct Connection {
    /// The source and the destination of the first packet.
    ends: [SocketAddr; 2],
    begin: Instant,
    end: Instant,
    /// The round trips to both ends.
    to: [RoundTrip; 2],
    /// The window shifts offered in SYNs: `Some(None)` is a SYN without the option.
    shifts: [Option<Option<u8>>; 2],
    /// The stream sent by each end.
    streams: [Stream; 2],
    /// The end of the handshake, if captured.
    established: Option<Instant>,
    is_over: bool,
    recent: VecDeque<Seen>,
}

impl Connection {
    /// The number of recent packets searched for duplicates.
    const RECENT: usize = 8;
    /// The maximum delay of a duplicate: both interfaces belong to one host.
    const COPIES_WITHIN: Duration = Duration::from_millis(100);

    fn new(first: &Seen) -> Self {
        Self {
            ends: [first.src, first.dst],
            begin: first.at,
            end: first.at,
            to: [RoundTrip::new(), RoundTrip::new()],
            shifts: [None; 2],
            streams: [Stream::new(first.at), Stream::new(first.at)],
            established: None,
            is_over: false,
            recent: VecDeque::new(),
        }
    }

    fn key(&self) -> Ends {
        let [a, b] = self.ends;
        if a <= b { (a, b) } else { (b, a) }
    }

    /// Takes a segment; returns false for a duplicate of an earlier one.
    fn take(&mut self, seen: &Seen) -> bool {
        if self.is_copy(seen) {
            return false;
        }
        let from = usize::from(seen.src != self.ends[0]);
        let other = 1 - from;
        if seen.is_syn() {
            self.shifts[from] = Some(seen.window_shift.map(|shift| shift.min(14)));
        } else if seen.flags.contains(Flags::ACK) && self.shifts.iter().any(Option::is_some) {
            self.established.get_or_insert(seen.at);
        }
        self.end = seen.at;
        let acked = self.streams[other].position_of_ack(seen);
        let sample = self.to[from].answer(seen, acked);
        let shift = self.window_shift(from);
        self.streams[other].heard(seen, acked, shift);
        let stale_echo = seen.timestamps.is_some_and(|timestamps| self.to[from].is_stale(timestamps.ecr));
        let rtt = self.round_trip();
        let sent = self.streams[from].sent(seen, rtt, stale_echo);
        self.to[other].question(seen, sent.new_end, sent.again);
        if sample.is_some() {
            // Data that echoes an ACK measures its sender, an ACK its receiver.
            let (stream, halves) = match seen.len {
                0 => (other, Halves { to_receiver: sample, to_sender: None }),
                _ => (from, Halves { to_sender: sample, to_receiver: None }),
            };
            self.streams[stream].sample(seen.at, halves);
        }
        self.is_over |= seen.flags.intersects(Flags::FIN | Flags::RST);
        true
    }

    fn is_copy(&mut self, seen: &Seen) -> bool {
        let recent = |earlier: &&Seen| seen.at.saturating_since(earlier.at) <= Self::COPIES_WITHIN;
        if self.recent.iter().rev().take_while(recent).any(|earlier| seen.is_copy_of(earlier)) {
            return true;
        }
        if self.recent.len() == Self::RECENT {
            self.recent.pop_front();
        }
        self.recent.push_back(*seen);
        false
    }

    /// The shift of one end's windows, if known: scaling requires that both ends offered it.
    fn window_shift(&self, end: usize) -> Option<u8> {
        match (self.shifts[end], self.shifts[1 - end]) {
            (Some(own), Some(others)) => Some(own.filter(|_| others.is_some()).unwrap_or(0)),
            (Some(own), None) => Some(own.unwrap_or(0)),
            (None, _) => None,
        }
    }

    fn round_trip(&self) -> Option<Duration> {
        match (self.to[0].least, self.to[1].least) {
            (Some(a), Some(b)) => Some(a + b),
            (a, b) => a.or(b),
        }
    }

    fn finish(self) -> impl Iterator<Item = Conversation> {
        let (begin, end, established) = (self.begin, self.end, self.established);
        let [a, b] = self.ends;
        let [to_a, to_b] = self.to.map(|to| to.least);
        let [of_a, of_b] = self.streams;
        let mut directions = [(of_a, a, b, to_a, to_b), (of_b, b, a, to_b, to_a)];
        directions.sort_by_key(|(stream, ..)| core::cmp::Reverse(stream.bytes()));
        let with_data = directions.into_iter().filter(|(stream, ..)| stream.bytes() > 0);
        with_data.map(move |(stream, sender, receiver, to_sender, to_receiver)| {
            Conversation::new(sender, receiver, (begin, end), established, (to_sender, to_receiver), stream)
        })
    }
}

#[cfg(test)]
mod tests;
