//! An engine's state of one connection, for status and tests.

use holdover_base::{Duration, Instant};
use holdover_flow::Flow;
use holdover_mobility::{Connection, Direction};

/// An engine's state of a connection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConnectionStatus {
    /// Its addresses and ports.
    pub connection: Connection,
    /// When its first packet passed.
    pub since: Instant,
    /// When its last packet passed.
    pub seen_at: Instant,
    /// Bytes of data in, and out, retransmissions included.
    pub bytes_in: u64,
    /// See `bytes_in`.
    pub bytes_out: u64,
    /// The path's smoothed round trip, queues included.
    pub round_trip: Option<Duration>,
    /// Bytes received and acknowledged whose ACK the peer has not been shown.
    pub held: u32,
    /// ACKs lowered, and ACKs withheld.
    pub lowered: u32,
    /// See `lowered`.
    pub withheld: u32,
    /// Whether a rule exempts it.
    pub is_exempt: bool,
}

impl ConnectionStatus {
    /// The state of a connection from its flow.
    pub(super) fn of(connection: Connection, flow: &Flow) -> Self {
        Self {
            connection,
            since: flow.began_at(),
            seen_at: flow.seen_at(),
            bytes_in: flow.bytes_in(),
            bytes_out: flow.bytes_out(),
            round_trip: flow.smoothed_round_trip(),
            held: flow.half(Direction::Outgoing).held_bytes(),
            lowered: flow.lowered(),
            withheld: flow.withheld(),
            is_exempt: flow.is_exempt(),
        }
    }
}
