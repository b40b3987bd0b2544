//! What an engine knows of one connection, for status and tests.

use holdover_base::{Duration, Instant};
use holdover_flow::Flow;
use holdover_mobility::{Connection, Direction};

/// A connection, as the engine knows it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConnectionStatus {
    /// Its addresses and ports.
    pub connection: Connection,
    /// Since when it has been seen.
    pub since: Instant,
    /// When its last packet passed.
    pub seen_at: Instant,
    /// Bytes of data that came in, and that went out; repeated ones included.
    pub bytes_in: u64,
    /// See `bytes_in`.
    pub bytes_out: u64,
    /// The path's smoothed round trip, queues included.
    pub round_trip: Option<Duration>,
    /// Bytes that are received and acknowledged, and whose ACK the peer has not been shown.
    pub held: u32,
    /// ACKs that were lowered, and that were not let through.
    pub lowered: u32,
    /// See `lowered`.
    pub withheld: u32,
    /// Whether a policy leaves it alone.
    pub is_exempt: bool,
}

impl ConnectionStatus {
    /// The connection as the programs remember it.
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
