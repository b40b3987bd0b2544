//! Per-connection state of mechanisms.

use holdover_base::Instant;
use holdover_wire::{Flags, Segment, Seq};

use crate::{Bounded, Connection, Direction};

/// Per-connection state of a mechanism, for connections in which the host takes part, ordered by address. Packets of a
/// remote end (a stranger) that the host has never answered make no connection: few strangers are remembered, and not
/// for long. The table is [`Bounded`].
///
/// It is for state that is not a flow of the flow path. For flows, `holdover_flow` has tables with the life cycle of the programs in the
/// kernel. The same packets begin and end a connection here, except a SYN from the near end of an open connection, which nothing here can
/// tell from a new connection of a host that has restarted.
#[derive(Clone, Debug)]
pub struct Table<T> {
    entries: Bounded<Entry<T>>,
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

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self { entries: Bounded::default() }
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
        let mut is_asked = false;
        let entry = self.entries.update(now, connection, Entry::new, |entry| {
            is_asked = entry.handle_syn(direction, segment);
            if !is_asked {
                entry.progress.note(direction, segment);
            }
            entry.progress.is_passing()
        });
        let is_over = entry.progress.is_over();
        match &mut entry.asked {
            Some(asked) if is_asked => Noted { value: &mut asked.1, is_over: false },
            _ => Noted { value: &mut entry.value, is_over },
        }
    }

    /// The state of a known connection.
    pub fn get_mut(&mut self, connection: Connection) -> Option<&mut T> {
        self.entries.get_mut(connection).map(|entry| &mut entry.value)
    }

    /// As [`Self::get_mut`], read-only.
    pub fn get(&self, connection: Connection) -> Option<&T> {
        self.entries.get(connection).map(|entry| &entry.value)
    }

    /// Open connections in which the host takes part, read-only.
    pub fn live(&self) -> impl Iterator<Item = (Connection, &T)> {
        self.entries.live().map(|(connection, entry)| (connection, &entry.value))
    }

    /// All connections, open or closed.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (Connection, &mut T)> {
        self.entries.iter_mut().map(|(connection, entry)| (connection, &mut entry.value))
    }

    /// Open connections in which the host takes part.
    pub fn live_mut(&mut self) -> impl Iterator<Item = (Connection, &mut T)> {
        self.entries.live_mut().map(|(connection, entry)| (connection, &mut entry.value))
    }
}

impl<T: Default> Entry<T> {
    fn new() -> Self {
        Self { progress: Progress::default(), value: T::default(), asked: None }
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
                    *self = Self::new();
                }
            }
            (Direction::Outgoing, true) => match self.asked.take() {
                Some(asked) if asked.0 + 1 == segment.ack => {
                    let progress = Progress { peer_isn: Some(asked.0), ..Progress::default() };
                    *self = Self { progress, value: asked.1, asked: None };
                }
                asked => {
                    self.asked = asked;
                    if progress.host_isn.is_some_and(|isn| isn != segment.seq) {
                        *self = Self::new();
                    }
                }
            },
            (Direction::Incoming, false) => {
                let is_known = progress.peer_isn == Some(segment.seq) && !progress.is_over();
                let is_first = progress.peer_isn.is_none() && !progress.is_synchronized && !progress.is_over();
                if !progress.takes_part {
                    if !is_known {
                        *self = Self::new();
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
    use core::net::{IpAddr, Ipv4Addr, SocketAddr};

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
    fn a_stranger_that_the_host_answers_is_a_connection() {
        let mut table = Table::<u32>::default();
        count(&mut table, 3, Incoming, 7, &segment(1, 0, Flags::SYN));
        assert_eq!(table.live().count(), 0);
        assert_eq!(count(&mut table, 3, Outgoing, 7, &segment(9, 2, Flags::SYN | Flags::ACK)), 2);
        assert_eq!(table.live().count(), 1);
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
        assert_eq!((table.live_mut().count(), table.iter_mut().count()), (0, 1));
        assert_eq!(count(&mut table, 62, Incoming, 0, &segment(1, 1, ack | Flags::FIN)), 5, "a retransmission");
        count(&mut table, 123, Outgoing, 1, &segment(1, 1, ack));
        assert_eq!(table.iter_mut().count(), 1);
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
