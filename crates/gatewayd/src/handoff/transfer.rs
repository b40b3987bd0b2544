//! The common parts of packet and record transfers: identification, limits, and retransmission times.

use std::net::{IpAddr, SocketAddr};

use holdover_base::{Duration, Instant};
use holdover_gateway::handoff::Repeat;

/// A mobile host, the other gateway, and the id of the claim.
pub(crate) type Transfer = (IpAddr, SocketAddr, u64);

/// The most packets, and the most datagrams of records, of one mobile host in flight to another gateway.
pub(super) const WINDOW: usize = 16;

/// The time until the first retransmission; it doubles with each.
const REPEAT_AFTER: Duration = Duration::from_millis(100);

/// The most transmissions: 6.3 s in all. Then the other gateway is given up.
const TRIES: u32 = 7;

/// The most transfers at the same time, for each direction. A claim beyond is not answered; it is repeated.
pub(super) const MOST: usize = 4096;

/// The timer of a message sent at `now`.
pub(super) fn repeat(now: Instant) -> Repeat {
    Repeat::begin(now, REPEAT_AFTER, TRIES)
}
