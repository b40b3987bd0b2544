//! The engine's part in silence of its link, which [`crate::link_watch::silence`] detects.

use std::net::IpAddr;

use holdover_base::{Duration, Instant};
use holdover_flow::Flow;
use holdover_mobility::{Connection, Direction, Injected};

use super::Engine;
use super::own_segments::Purpose;
use crate::link_watch::Family;
use crate::link_watch::silence::{Survey, Unanswered};

/// So often a release that serves as a probe is accompanied by a probe that every peer answers.
const EMPTY_PROBE_EVERY: u32 = 4;

/// The most own addresses of connections with unacknowledged data in a survey: probes are sent from each of them.
const MOST_OWN_ADDRESSES: usize = 4;

/// When the peer of a connection was last probed with a release, and how often.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct ReleaseProbes {
    last: Option<(Connection, Instant)>,
    count: u32,
}

impl ReleaseProbes {
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

impl Engine {
    /// The state of the connections, for silence detection.
    pub fn survey(&mut self) -> Survey {
        self.read_copies();
        let mut survey = Survey::default();
        // The connection heard last in each IP version.
        let mut latest: [Option<(Instant, IpAddr)>; 2] = [None; 2];
        self.path.for_each(|connection, flow| {
            survey.connections += 1;
            let is_of_no_use = flow.is_over() || flow.is_unanswered() || flow.is_exempt();
            if is_of_no_use {
                return;
            }
            let own = connection.local.ip();
            let latest = &mut latest[usize::from(own.is_ipv6())];
            *latest = (*latest).max(flow.heard_at().map(|at| (at, own)));
            if flow.heard_at() > survey.heard_at {
                (survey.heard_at, survey.recent) = (flow.heard_at(), Some(connection));
                survey.round_trip = flow.smoothed_round_trip().unwrap_or_default();
            }
            if flow.awaits_ack() {
                let (heard_at, round_trip) = (flow.heard_at(), flow.smoothed_round_trip());
                let is_sent_again = self.stack(connection).own_segments.is_sent_again(connection, flow);
                survey.unanswered.push(Unanswered { connection, heard_at, round_trip, is_sent_again });
                if survey.own_addresses.len() < MOST_OWN_ADDRESSES {
                    survey.own_addresses.insert(own);
                }
            }
        });
        survey.own_addresses.extend(latest.into_iter().flatten().map(|(_, own)| own));
        survey
    }

    /// Nothing has arrived since then, although data was sent: the next packet wakes the waiting connections.
    pub fn handle_silence(&mut self, now: Instant, since: Instant) {
        self.path.set_now(now);
        self.read_notices(now);
        self.release_probes = ReleaseProbes::default();
        for stack in &mut self.stacks {
            stack.control.handle_silence(since, &mut self.path.of(stack.family));
        }
        self.send(now);
    }

    /// A packet has arrived after a silence: wakes the waiting connections.
    pub fn end_silence(&mut self, now: Instant) {
        self.path.set_now(now);
        self.read_notices(now);
        for stack in &mut self.stacks {
            // The timers read at the last link-up are outdated.
            stack.own_timers.clear();
            stack.own_segments.begin_return();
            stack.control.end_silence(now, &mut self.path.of(stack.family));
        }
        self.send(now);
    }

    /// Probes a peer with the release of what is held for it, at intervals of half a round trip at least. Otherwise, and with every fourth
    /// release, which a peer without more data does not answer, probes it with the first unacknowledged segment of the host if that is
    /// short, or with a keep-alive probe.
    pub fn ask_peer(&mut self, now: Instant, connection: Connection) {
        self.read_notices(now);
        let Some(flow) = self.path.flow(connection).filter(|flow| !flow.is_over()) else { return };
        let released = self.release_probes.next(now, connection, flow.least_round_trip().unwrap_or_default());
        if let Some(number) = released {
            let release = self.stack(connection).control.release_as_probe(now, connection, &flow);
            let is_empty = release.is_empty();
            for injected in release {
                self.send_one(now, 0, connection, injected);
            }
            let has_own_data = self.stack(connection).own_segments.has(connection);
            if !is_empty && !has_own_data && number % EMPTY_PROBE_EVERY != 0 {
                return;
            }
        }
        if !self.send_copy(now, connection, &flow)
            && let Some(packet) = flow.keep_alive(connection)
        {
            self.send_one(now, 0, connection, Injected { direction: Direction::Outgoing, packet });
        }
    }

    /// Sends a copy of the host's data with a message that makes the host's TCP retransmit, or instead of a probe, unless the
    /// next hop is unknown. Returns what is left to send.
    pub(super) fn with_own_data(
        &mut self,
        now: Instant,
        connection: Connection,
        injected: Injected,
    ) -> Option<Injected> {
        let stack = self.stack(connection);
        if !stack.own_segments.has(connection) || stack.next_hops.is_unresolved(now) {
            return Some(injected);
        }
        let Some(flow) = self.path.flow(connection) else { return Some(injected) };
        match Purpose::of(&injected, &flow) {
            Purpose::Probe if self.send_copy(now, connection, &flow) => return None,
            Purpose::Poke if !self.stack(connection).own_segments.is_under_way(now, connection, &flow) => {
                self.send_copy(now, connection, &flow);
            }
            _ => {}
        }
        Some(injected)
    }

    /// Sends a copy of the host's first unacknowledged segment, if it is short. Returns whether there was one. A copy that the
    /// link refuses is not repeated.
    fn send_copy(&mut self, now: Instant, connection: Connection, flow: &Flow) -> bool {
        let place = Family::of_connection(connection).index();
        if !self.stacks[place].own_segments.has(connection) {
            return false;
        }
        // The host may have given up without a packet (a user timeout): data that its application believes lost must not be delivered.
        match self.sockets.find(connection) {
            Ok(Some(_)) => {}
            Ok(None) => {
                self.stacks[place].own_segments.leave_alone(connection);
                return false;
            }
            Err(_) => return false,
        }
        let Some(packet) = self.stacks[place].own_segments.copy(now, connection, flow) else { return false };
        let Some(frame) = self.frame(now, connection, Direction::Outgoing) else { return false };
        let injected = Injected { direction: Direction::Outgoing, packet };
        let sent = self.injector.send(&injected, &frame[..self.interface.frame_len as usize]);
        self.failures += u64::from(sent.is_err());
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_of_a_connection_are_half_a_round_trip_apart() {
        let connection =
            |port| Connection { local: ([192, 0, 2, 1], port).into(), remote: ([198, 51, 100, 1], 443).into() };
        let mut probes = ReleaseProbes::default();
        let mut next =
            |millis, port| probes.next(Instant::from_millis(millis), connection(port), Duration::from_millis(200));
        assert_eq!([next(1_000, 1), next(1_099, 1), next(1_100, 1), next(1_150, 1)], [Some(0), None, Some(1), None]);
        assert_eq!([next(1_150, 2), next(1_150, 1)], [Some(0), Some(0)], "another connection is asked at once");
    }
}
