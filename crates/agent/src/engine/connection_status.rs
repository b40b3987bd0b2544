//! What an engine knows of one connection, for status and tests.

use holdover_base::{Duration, Instant};
use holdover_mobility::Connection;
use holdover_mobility::fast_path::raw::RawConnection;

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
    pub is_left_alone: bool,
}

impl ConnectionStatus {
    /// The connection as the programs remember it.
    pub(super) fn of(connection: Connection, raw: &RawConnection) -> Self {
        let fast = raw.fast();
        Self {
            connection,
            since: Instant::from_nanos(raw.began_at),
            seen_at: Instant::from_nanos(raw.seen_at),
            bytes_in: raw.bytes_in,
            bytes_out: raw.bytes_out,
            round_trip: fast.smoothed_round_trip(),
            held: fast.outgoing.held_bytes(),
            lowered: raw.lowered,
            withheld: raw.withheld,
            is_left_alone: raw.is_left_alone(),
        }
    }
}
