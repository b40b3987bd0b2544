//! The probes of a peer in a silence, when the detector ([`crate::silence`]) asks for one. A peer for which ACKs are held is probed with their
//! release, at intervals of half a round trip at least: the first one that gets through wakes the sender. Otherwise, and with every fourth
//! release, which a peer without more data does not answer, a probe follows that every peer answers ([`OwnSegments::peer_probe`]).

use holdover_base::{Duration, Instant};
use holdover_filter::Connection;
use holdover_flow::Flow;

use super::WakeControl;
use super::own_segments::OwnSegments;
use crate::Injected;

/// So often a release that serves as a probe is accompanied by a probe that every peer answers.
const EMPTY_PROBE_EVERY: u32 = 4;

/// When the peer of a connection was last probed with a release, and how often.
#[derive(Clone, Copy, Default, Debug)]
pub struct PeerProbes {
    last: Option<(Connection, Instant)>,
    count: u32,
}

/// A probe of a peer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReleaseProbe {
    /// The packets of the release, to be sent first.
    pub packets: Vec<Injected>,
    /// Whether [`OwnSegments::peer_probe`] follows.
    pub is_followed: bool,
}

impl PeerProbes {
    /// The first part of a probe that is due.
    pub fn release(
        &mut self,
        now: Instant,
        connection: Connection,
        flow: &Flow,
        control: &WakeControl,
        own: &OwnSegments,
    ) -> ReleaseProbe {
        let number = self.next(now, connection, flow.least_round_trip().unwrap_or_default());
        let packets = number.map_or_else(Vec::new, |_| control.release_as_probe(now, connection, flow));
        let suffices = number.is_some_and(|number| number % EMPTY_PROBE_EVERY != 0);
        let is_followed = packets.is_empty() || own.has_short(connection) || !suffices;
        ReleaseProbe { packets, is_followed }
    }

    /// The number of the release that is due now, from 0; `None` if the last one was less than half a round trip ago.
    fn next(&mut self, now: Instant, connection: Connection, round_trip: Duration) -> Option<u32> {
        match self.last {
            Some((same, at)) if same == connection => {
                if now.saturating_since(at) < round_trip / 2 {
                    return None;
                }
                self.count = self.count.wrapping_add(1);
            }
            _ => self.count = 0,
        }
        self.last = Some((connection, now));
        Some(self.count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_of_a_connection_are_half_a_round_trip_apart() {
        let connection =
            |port| Connection { local: ([192, 0, 2, 1], port).into(), remote: ([198, 51, 100, 1], 443).into() };
        let mut probes = PeerProbes::default();
        let mut next =
            |millis, port| probes.next(Instant::from_millis(millis), connection(port), Duration::from_millis(200));
        assert_eq!([next(1_000, 1), next(1_099, 1), next(1_100, 1), next(1_150, 1)], [Some(0), None, Some(1), None]);
        assert_eq!([next(1_150, 2), next(1_150, 1)], [Some(0), Some(0)], "another connection is asked at once");
    }
}
