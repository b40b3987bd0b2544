//! What the engine has seen of packets and connections.

use holdover_base::{Duration, Instant};
use holdover_mobility::Connection;

/// Packets that have passed since the programs were attached.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Traffic {
    /// TCP packets that went out.
    pub tcp_sent: u64,
    /// TCP packets that came in.
    pub tcp_received: u64,
    /// Other packets that came in and prove that the path carries; counted during a silence only.
    pub others_received: u64,
}

/// What the connections say about a silence.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Survey {
    /// When the last TCP packet came in.
    pub heard_at: Option<Instant>,
    /// The connection that was heard last and can be asked.
    pub recent: Option<Connection>,
    /// Its round trip, or zero.
    pub round_trip: Duration,
    /// Connections with data that their peers have not acknowledged.
    pub unanswered: Vec<Unanswered>,
}

/// A connection with data that its peer has not acknowledged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Unanswered {
    /// Its addresses and ports.
    pub connection: Connection,
    /// When its peer was heard last.
    pub heard_at: Option<Instant>,
    /// The round trip, queues included, if it is known.
    pub round_trip: Option<Duration>,
}
