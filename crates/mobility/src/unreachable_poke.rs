//! **The unreachable poke.** A sender that retransmits into an outage doubles its timeout each time, as if the path were congested. RFC
//! 6069 (TCP-LCD) provides a remedy: an ICMP *host unreachable* (over IPv6 *no route to destination*) that quotes the sender's oldest
//! outstanding byte while it backs off shows that the path was broken. Each such message takes back one doubling; if the reduced timeout is
//! over already, the sender retransmits at once. Linux implements this.
//!
//! So a mobile host whose link is back reports to the peer, truthfully if late, that it was unreachable: twelve times, a millisecond apart, as
//! many as there may be doublings, until data arrives. It reports the same about the peer to its own TCP, twelve times at once
//! and once more 5 ms later.
//!
//! Failure modes: many networks filter ICMP about hosts other than its sender's neighbours, or translate addresses on the path; senders
//! other than Linux ignore it (it is a soft error, RFC 1122 section 4.2.3.9, and does not end the connection). Linux ends a connection that
//! is still opening, so it is sent only once both ends have acknowledged something. It must quote exactly the oldest outstanding byte, so it
//! fails if the last ACKs were lost. And the sender starts from one segment. So it is the second choice: for cuts with nothing held back,
//! such as a cut during loss recovery.

use std::net::{IpAddr, SocketAddr};

use holdover_base::{Duration, Instant};
use holdover_wire::{Flags, IcmpError, Packet, Segment, Seq, Unreachable};

use crate::Direction;
use holdover_filter::Connection;

/// The messages to a backed-off sender.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UnreachablePokeConfig {
    /// The number of messages.
    pub copies: u8,
    /// The interval between two of those to the peer.
    pub every: Duration,
}

impl Default for UnreachablePokeConfig {
    /// Twelve, a millisecond apart: Linux's timeout goes from 200 ms to 120 s in ten doublings.
    fn default() -> Self {
        Self { copies: 12, every: Duration::from_millis(1) }
    }
}

/// Spreads the messages of many connections: the capacity of a link that has just come up is needed for data.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Pacing {
    /// The earliest time of the next message.
    next_at: Instant,
}

impl Pacing {
    /// The burst, and then the interval: some 100 bytes each, which is 3.2 Mbit/s. The number of connections woken at a
    /// time depends on how many resume.
    const AT_ONCE: u32 = 16;
    const EVERY: Duration = Duration::from_micros(250);

    /// Reserves the time of the next message, now or later.
    pub(crate) fn book(&mut self, now: Instant) -> Instant {
        let at = self.next_at.max(now - Self::EVERY * u64::from(Self::AT_ONCE - 1));
        self.next_at = at + Self::EVERY;
        at.max(now)
    }
}

/// The name in scenario files.
pub(crate) const NAME: &str = "unreachable_poke";

/// Host unreachable about the byte `oldest` of the sender whose ACKs go in `direction`; `None` if its quote cannot be
/// emitted. Over IPv6 it is *no route*, the only one for which Linux takes back a doubling (`tcp_v6_err`).
pub(crate) fn message(connection: Connection, direction: Direction, oldest: Seq) -> Option<Packet> {
    let Connection { local, remote } = connection;
    let kind = if local.is_ipv4() { Unreachable::Host } else { Unreachable::Network };
    let quote = |from: SocketAddr, to: SocketAddr| {
        let segment = Segment {
            src_port: from.port(),
            dst_port: to.port(),
            seq: oldest,
            flags: Flags::ACK,
            ..Segment::default()
        };
        IcmpError::quoting_packet(kind, &Packet::new(from.ip(), to.ip(), segment)).ok()
    };
    let icmp =
        |from: IpAddr, to: IpAddr, error: IcmpError| Packet::new(from, to, holdover_wire::Payload::IcmpError(error));
    Some(match direction {
        Direction::Outgoing => icmp(local.ip(), remote.ip(), quote(remote, local)?),
        // From the peer's address: packets from an own address that arrive over a link are dropped.
        Direction::Incoming => icmp(remote.ip(), local.ip(), quote(local, remote)?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_many_are_spread() {
        let mut pacing = Pacing::default();
        let now = Instant::from_secs(10);
        let booked: Vec<Duration> = (0..20).map(|_| pacing.book(now).saturating_since(now)).collect();
        assert!(booked[..16].iter().all(|&wait| wait == Duration::ZERO), "{booked:?}");
        assert_eq!(booked[16..19], [250, 500, 750].map(Duration::from_micros));
        // Later there is room again, for the same burst.
        let later = now + Duration::from_secs(1);
        assert_eq!((0..20).filter(|_| pacing.book(later) == later).count(), 16);
    }
}
