//! What the host's TCP sends during an outage. A peer is probed with a copy of it, and the copy follows the link's return: the
//! first packet that gets through brings the data, instead of asking for it. The host's own timer may be a
//! retransmission timeout away at that moment, whatever it is told (RFC 6069 takes back doublings, not the timeout).

use std::collections::BTreeMap;

use bytes::Bytes;
use holdover_base::{Duration, Instant};
use holdover_filter::tcp_mut;
use holdover_flow::Flow;
use holdover_mobility::{Connection, Direction, EchoClock, Injected};
use holdover_wire::{Checksums, Packet, Payload, Seq};

/// The first unacknowledged segments of connections, as the host's TCP has sent them last.
#[derive(Debug, Default)]
pub(super) struct Retransmitted {
    segments: BTreeMap<Connection, Segment>,
    copies: u32,
}

#[derive(Debug)]
struct Segment {
    packet: Packet,
    copied_at: Option<Instant>,
}

/// The most copies in an outage: of one connection 20 s at the usual rate, 128 kB. A link that holds packets delivers all
/// of them, and the peer answers each (RFC 2883).
const MOST_COPIES: u32 = 500;

/// The most connections of which a segment is kept.
const MOST_SEGMENTS: usize = 1024;

/// The round trip without a measurement.
const UNKNOWN_ROUND_TRIP: Duration = Duration::from_millis(200);

impl Retransmitted {
    /// Notes what the host has sent: an IP packet, without a checksum if the device computes it. `flow` looks up
    /// connections. Only the first unacknowledged segment of a connection is kept.
    pub(super) fn note(&mut self, packet: Bytes, flow: impl FnOnce(Connection) -> Option<Flow>) {
        let Ok(packet) = Packet::parse_with(packet, Checksums::Ignore) else { return };
        let Some(connection) = Connection::of(Direction::Outgoing, &packet) else { return };
        let is_known = self.segments.contains_key(&connection);
        let is_first = packet.tcp().is_some_and(|segment| first_unacknowledged(flow(connection)) == Some(segment.seq));
        if is_first && (is_known || self.segments.len() < MOST_SEGMENTS) {
            let copied_at = self.segments.get(&connection).and_then(|segment| segment.copied_at);
            self.segments.insert(connection, Segment { packet, copied_at });
        }
    }

    /// The outage is over.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// A copy of the host's first unacknowledged segment, with the present time of its timestamp clock, so that the
    /// answer is a valid measurement of the round trip. `None` if the host has sent none since the outage began, or one
    /// that is long, or with options that a copy would lack (MPTCP).
    pub(super) fn copy(&mut self, now: Instant, connection: Connection, flow: &Flow) -> Option<Packet> {
        let kept = self.segments.get_mut(&connection)?;
        let mut packet = kept.packet.clone();
        let segment = tcp_mut(&mut packet)?;
        let half = flow.half(Direction::Incoming);
        if half.acked() != Some(segment.seq) || segment.options.unknown > 0 || self.copies >= MOST_COPIES {
            return None;
        }
        if let Some(timestamps) = &mut segment.options.timestamps {
            let [first, newest] = half.stamps()?;
            timestamps.val = EchoClock::between(first, newest).at(now)?;
        }
        kept.copied_at = Some(now);
        self.copies += 1;
        Some(packet)
    }

    /// Whether a copy was made within the last round trip: its answer may be on its way.
    pub(super) fn is_under_way(&self, now: Instant, connection: Connection, flow: &Flow) -> bool {
        let round_trip = flow.least_round_trip().unwrap_or(UNKNOWN_ROUND_TRIP);
        let copied_at = self.segments.get(&connection).and_then(|segment| segment.copied_at);
        copied_at.is_some_and(|at| now.saturating_since(at) < round_trip)
    }
}

fn first_unacknowledged(flow: Option<Flow>) -> Option<Seq> {
    flow?.half(Direction::Incoming).acked()
}

/// What a packet of the agent is for, as far as a copy of the host's segment can do the same.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Purpose {
    /// The peer is to answer ([`Flow::keep_alive`]).
    Probe,
    /// The host's TCP is to retransmit ([`unreachable_poke`](holdover_mobility::unreachable_poke)).
    Poke,
    /// Something else.
    Other,
}

impl Purpose {
    pub(super) fn of(injected: &Injected, flow: &Flow) -> Self {
        match (injected.direction, &injected.packet.payload) {
            (Direction::Incoming, Payload::IcmpError(_)) => Self::Poke,
            (Direction::Outgoing, Payload::Tcp(segment))
                if segment.payload.is_empty()
                    && flow.half(Direction::Incoming).acked().is_some_and(|first| segment.seq == first - 1) =>
            {
                Self::Probe
            }
            _ => Self::Other,
        }
    }
}
