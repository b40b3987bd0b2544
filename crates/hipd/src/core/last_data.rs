//! The last data that this host's TCP has sent on each connection with a peer, to be resent when one of the two hosts has moved.
//!
//! A sender that has not timed out yet regards data that was lost with the link as in flight. The ACKs repeated by its peer restart its
//! timer, and nothing shows it the loss: it would wait for the whole timeout. If its last segment arrives, the peer's TCP reports it by
//! SACK, and the sender knows at once that its earlier data is lost (RFC 8985 section 7 has tail loss probes for the same reason). The
//! resent packet is one of its own, which a network might have duplicated as well.
//!
//! A sender whose timer has just expired has sent its oldest segment into the broken link, and waits for its timer again: that segment is
//! resent. After a longer time, `wake` makes the sender itself retransmit.

use std::collections::BTreeMap;

use holdover_base::{Duration, Instant};
use holdover_mobility::{Connection, Direction};
use holdover_wire::{Packet, Seq};

/// The most connections with a peer that are remembered; those without data for longest are evicted.
const MOST: usize = 64;
/// Older data was not lost by a move.
const LONGEST: Duration = Duration::from_secs(60);
/// The shortest wait of a sender after a retransmission (`TCP_RTO_MIN` of Linux).
const LEAST_TIMEOUT: Duration = Duration::from_millis(200);

/// See the module's documentation.
#[derive(Default, Debug)]
pub(super) struct LastData {
    connections: BTreeMap<Connection, Last>,
}

/// The last unacknowledged data of a connection.
#[derive(Debug)]
struct Last {
    packet: Packet,
    seq: Seq,
    end: Seq,
    sent_at: Instant,
    /// A retransmission of older data, and its time: the sender knows of the loss.
    retransmission: Option<(Packet, Instant)>,
}

impl LastData {
    /// A packet of this host's programs to the peer.
    pub(super) fn note_outgoing(&mut self, now: Instant, packet: &Packet) {
        let Some((connection, segment)) = Connection::of(Direction::Outgoing, packet).zip(packet.tcp()) else { return };
        if segment.payload.is_empty() {
            return;
        }
        let (seq, end) = (segment.seq, segment.seq + segment.payload.len() as u32);
        match self.connections.get_mut(&connection) {
            Some(last) if last.seq == seq => last.sent_at = now,
            Some(last) if seq.lt(last.seq) => last.retransmission = Some((packet.clone(), now)),
            known => {
                let last = Last { packet: packet.clone(), seq, end, sent_at: now, retransmission: None };
                match known {
                    Some(known) => *known = last,
                    None => _ = self.connections.insert(connection, last),
                }
                self.forget_excess();
            }
        }
    }

    /// A packet of the peer to this host's programs.
    pub(super) fn note_incoming(&mut self, packet: &Packet) {
        let Some((connection, segment)) = Connection::of(Direction::Incoming, packet).zip(packet.tcp()) else { return };
        if self.connections.get(&connection).is_some_and(|last| segment.ack.ge(last.end)) {
            self.connections.remove(&connection);
        }
    }

    /// Whether all data is acknowledged.
    pub(super) fn is_empty(&self) -> bool {
        self.connections.is_empty()
    }

    /// The packets to resend after a move. Each is resent once, unless TCP does.
    pub(super) fn take(&mut self, now: Instant) -> Vec<Packet> {
        let mut taken = Vec::new();
        self.connections.retain(|_, last| {
            let ago = |at: Instant| now.saturating_since(at);
            match &last.retransmission {
                Some((packet, at)) if ago(*at) <= LEAST_TIMEOUT => taken.push(packet.clone()),
                None if ago(last.sent_at) <= LONGEST => taken.push(last.packet.clone()),
                _ => {}
            }
            false
        });
        taken
    }

    fn forget_excess(&mut self) {
        if self.connections.len() > MOST {
            let oldest =
                self.connections.iter().min_by_key(|(_, last)| last.sent_at).map(|(&connection, _)| connection);
            oldest.map(|connection| self.connections.remove(&connection));
        }
    }
}

#[cfg(test)]
mod tests {
    use holdover_wire::{Flags, Payload, Segment};

    use super::*;

    fn packet(direction: Direction, seq: u32, len: usize, ack: u32) -> Packet {
        let mut addresses = ["2001:25::1".parse().unwrap(), "2001:25::2".parse().unwrap()];
        let mut ports = [5001, 40_000];
        if direction == Direction::Incoming {
            addresses.reverse();
            ports.reverse();
        }
        let segment = Segment {
            src_port: ports[0],
            dst_port: ports[1],
            seq: Seq::new(seq),
            ack: Seq::new(ack),
            flags: Flags::ACK,
            payload: vec![7; len].into(),
            ..Segment::default()
        };
        Packet::new(addresses[0], addresses[1], segment)
    }

    fn sent(last: &mut LastData, now: u64, seq: u32) -> Packet {
        let packet = packet(Direction::Outgoing, seq, 1000, 1);
        last.note_outgoing(Instant::from_millis(now), &packet);
        packet
    }

    #[test]
    fn the_last_data_is_sent_again_once() {
        let mut last = LastData::default();
        sent(&mut last, 0, 1);
        let second = sent(&mut last, 1, 1001);
        last.note_incoming(&packet(Direction::Incoming, 1, 0, 1001));
        assert_eq!(last.take(Instant::from_millis(500)), [second]);
        assert_eq!(last.take(Instant::from_millis(500)), []);
    }

    #[test]
    fn data_that_have_arrived_are_not_sent_again() {
        let mut last = LastData::default();
        sent(&mut last, 0, u32::MAX - 500);
        last.note_incoming(&packet(Direction::Incoming, 1, 0, 499));
        assert_eq!(last.take(Instant::from_millis(500)), []);
    }

    #[test]
    fn a_sender_that_has_timed_out_is_left_alone() {
        let mut last = LastData::default();
        sent(&mut last, 0, 1);
        sent(&mut last, 1, 1001);
        // A tail loss probe is no timeout.
        let probe = sent(&mut last, 100, 1001);
        assert_eq!(last.take(Instant::from_millis(150)), [probe]);
        sent(&mut last, 200, 2001);
        sent(&mut last, 300, 1001);
        assert_eq!(last.take(Instant::from_millis(501)), []);
        // Long ago.
        sent(&mut last, 600, 3001);
        assert_eq!(last.take(Instant::from_millis(61_000)), []);
    }

    #[test]
    fn a_retransmission_into_the_link_that_was_gone_is_sent_again() {
        let mut last = LastData::default();
        sent(&mut last, 0, 1);
        sent(&mut last, 1, 1001);
        let retransmission = sent(&mut last, 240, 1);
        assert_eq!(last.take(Instant::from_millis(262)), [retransmission]);
        assert_eq!(last.take(Instant::from_millis(263)), []);
    }

    #[test]
    fn remembered_connections_are_bounded() {
        let mut last = LastData::default();
        for port in 0..1000_u16 {
            let Payload::Tcp(segment) = packet(Direction::Outgoing, 1, 10, 1).payload else { panic!("a segment") };
            let segment = Segment { src_port: port, ..segment };
            let packet = Packet::new("2001:25::1".parse().unwrap(), "2001:25::2".parse().unwrap(), segment);
            last.note_outgoing(Instant::from_millis(port.into()), &packet);
        }
        assert_eq!(last.take(Instant::from_secs(2)).len(), MOST);
    }
}
