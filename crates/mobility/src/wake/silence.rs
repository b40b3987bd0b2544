//! Unreported outages: TCP sends and nothing arrives. The watcher of the link reports silence, and the first incoming
//! packet wakes every connection that has heard nothing since.
//!
//! Silence is not [`LinkEvent::Down`](crate::LinkEvent::Down): packets pass unchanged, so that a false one (a peer that
//! is gone, a slow server) does no harm.

use holdover_base::Instant;
use holdover_filter::Connection;
use holdover_flow::{Flow, FlowTable};

use super::WakeControl;
use super::at::At;
use super::attempt::Path;
use crate::{Direction, Injected};

impl WakeControl {
    /// Nothing has arrived since `since`, although data was sent. Does nothing while the link is down.
    pub fn handle_silence(&mut self, since: Instant, path: &mut impl FlowTable) {
        if self.link.is_up() {
            self.link.silent_since = Some(since);
            path.set_link(self.link_state());
        }
    }

    /// The packets with which the far sender of a connection is probed in a silence: the release of what is held for it, except for the last
    /// byte. The first release that arrives wakes the sender; an empty probe would have to be answered first. Empty if nothing is held for
    /// that sender, or the link is neither silent nor down.
    pub fn release_as_probe(&self, now: Instant, connection: Connection, flow: &Flow) -> Vec<Injected> {
        let silent_since = self.link.silent_since.or(self.link.down_at).filter(|_| self.config.holds());
        let Some(silent_since) = silent_since else { return Vec::new() };
        let half = self.connections.get(&connection).map(|state| state.outgoing.clone()).unwrap_or_default();
        let at = At { connection, direction: Direction::Outgoing };
        let packets = half.release_as_probe(&self.config, at, flow, self.link.up_at, (silent_since, now));
        packets.into_iter().map(|packet| at.inject(packet)).collect()
    }

    /// Something other than a TCP packet has shown that the link is up: wakes the connections that have heard nothing
    /// since the silence began. Does nothing without a silence.
    pub fn end_silence(&mut self, now: Instant, path: &mut impl FlowTable) {
        self.wake_unheard(now, Path::Reported, path);
    }

    /// The same, given the state of the path.
    pub(super) fn wake_unheard(&mut self, now: Instant, known: Path, path: &mut impl FlowTable) {
        let Some(since) = self.link.silent_since.take() else { return };
        self.cut_those(since, Some(since), path);
        self.connect(now, false, known, path);
    }

    /// Since when nothing has arrived, as reported by [`Self::handle_silence`] and not ended since.
    pub fn silent_since(&self) -> Option<Instant> {
        self.link.silent_since
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use holdover_base::Duration;
    use holdover_wire::{Flags, Packet, Segment, Seq};

    use super::*;
    use crate::wake::{Wake, WakeConfig};
    use crate::{Direction, LinkEvent, SegmentFilter as _, Verdict};

    /// Downloads over 40 ms of round trip, one for each port of the host.
    struct Downloads {
        wake: Wake,
        now: Instant,
        data_ends: Vec<Seq>,
    }

    const PORT: u16 = 1000;

    impl Downloads {
        fn new(count: u16) -> Self {
            let (now, data_ends) = (Instant::from_secs(100), vec![Seq::new(1); count.into()]);
            let mut this = Self { wake: Wake::new(WakeConfig::all()), now, data_ends };
            for which in 0..count {
                _ = this.pass(which, Direction::Outgoing, Segment { flags: Flags::SYN, ..Segment::default() });
                this.now += Duration::from_millis(40);
                let flags = Flags::SYN | Flags::ACK;
                _ = this.pass(which, Direction::Incoming, Segment { flags, ack: Seq::new(1), ..Segment::default() });
            }
            (0..300).for_each(|_| (0..count).for_each(|which| _ = this.exchange(which)));
            this
        }

        fn pass(&mut self, which: u16, direction: Direction, segment: Segment) -> Verdict {
            let (host, peer) = (([10, 0, 0, 1], PORT + which), ([10, 0, 0, 2], 80));
            let (from, to) = if direction == Direction::Outgoing { (host, peer) } else { (peer, host) };
            let segment = Segment { src_port: from.1, dst_port: to.1, ..segment };
            let mut packet = Packet::new(from.0.into(), to.0.into(), segment);
            self.wake.handle_packet(self.now, direction, &mut packet)
        }

        /// Data arrives and is acknowledged.
        fn exchange(&mut self, which: u16) -> Verdict {
            let flags = Flags::ACK;
            let seq = self.data_ends[usize::from(which)];
            let payload = Bytes::from_static(&[0; 1000]);
            _ = self.pass(
                which,
                Direction::Incoming,
                Segment { seq, ack: Seq::new(1), flags, payload, ..Segment::default() },
            );
            self.data_ends[usize::from(which)] += 1000;
            let ack = self.data_ends[usize::from(which)];
            let acked = Segment { seq: Seq::new(1), ack, flags, window: 60_000, ..Segment::default() };
            let verdict = self.pass(which, Direction::Outgoing, acked);
            self.now += Duration::from_millis(1);
            verdict
        }

        /// Lets time pass; returns the connections with packets in it, by the port of the host.
        fn wait(&mut self, millis: u64) -> Vec<u16> {
            let mut ports = Vec::new();
            for _ in 0..millis {
                self.now += Duration::from_millis(1);
                self.wake.handle_timeout(self.now);
                let made = std::iter::from_fn(|| self.wake.control.poll_transmit());
                ports.extend(made.map(|(connection, _)| connection.local.port() - PORT));
            }
            ports.sort_unstable();
            ports.dedup();
            ports
        }

        fn fall_silent(&mut self) {
            self.wait(60);
            let since = self.now;
            assert_eq!(self.wait(2000), []);
            let Wake { control, path, .. } = &mut self.wake;
            control.handle_silence(since, path);
        }
    }

    #[test]
    fn the_first_packet_after_a_silence_wakes_all_others() {
        let mut t = Downloads::new(3);
        t.fall_silent();
        assert_eq!(t.wait(5000), [], "nothing is sent into a silence");
        _ = t.exchange(1);
        assert_eq!(t.wait(50), [0, 2], "the one that was heard flows by itself");
        assert_eq!(t.wake.control.silent_since(), None);
    }

    #[test]
    fn one_that_has_only_answered_a_probe_is_woken_too() {
        let mut t = Downloads::new(2);
        t.fall_silent();
        let seq = t.data_ends[1];
        let flags = Flags::ACK;
        _ = t.pass(
            1,
            Direction::Incoming,
            Segment { seq, ack: Seq::new(1), flags, window: 60_000, ..Segment::default() },
        );
        assert_eq!(t.wake.control.silent_since(), None);
        assert_eq!(t.wait(50), [0, 1]);
    }

    #[test]
    fn the_answer_of_a_router_wakes_all() {
        let mut t = Downloads::new(3);
        t.fall_silent();
        let Wake { control, path, .. } = &mut t.wake;
        control.end_silence(t.now, path);
        assert_eq!(t.wake.control.silent_since(), None);
        assert_eq!(t.wait(50), [0, 1, 2]);
    }

    #[test]
    fn packets_pass_as_before_while_a_link_is_silent() {
        let mut t = Downloads::new(2);
        t.fall_silent();
        // A sender is not delayed by a false silence: neither requests nor ACKs are.
        let request = Segment {
            seq: Seq::new(1),
            ack: t.data_ends[0],
            flags: Flags::ACK,
            payload: Bytes::from_static(b"GET"),
            window: 60_000,
            ..Segment::default()
        };
        assert_eq!(t.pass(0, Direction::Outgoing, request), Verdict::Pass);
        for _ in 0..20 {
            assert_eq!(t.exchange(0), Verdict::Pass);
        }
    }

    #[test]
    fn a_link_that_loses_its_carrier_after_a_silence_was_down_since_the_silence() {
        let mut t = Downloads::new(2);
        t.fall_silent();
        // Longer than data counts as in flight.
        t.wait(15_000);
        t.wake.handle_link(t.now, LinkEvent::Down);
        t.wait(100);
        t.wake.handle_link(t.now, LinkEvent::Up { symmetric: false, moved: false });
        assert_eq!(t.wait(50), [0, 1]);
        assert_eq!(t.wake.control.silent_since(), None);
    }

    #[test]
    fn a_silence_of_a_link_that_is_down_is_none() {
        let mut t = Downloads::new(1);
        t.wake.handle_link(t.now, LinkEvent::Down);
        t.fall_silent();
        assert_eq!(t.wake.control.silent_since(), None);
    }
}
