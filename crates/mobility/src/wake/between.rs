//! Waking at a gateway between both hosts, at the near end of the link. *This host* in other modules is the host on the
//! gateway's side; incoming packets arrive over the link.
//!
//! An agent that flushes an ACK into a broken link can repeat it later, as no one has received it. A gateway cannot:
//! incoming ACKs are flushed to the host on its own side, which receives them. A silent cut is detected later than an
//! ACK is flushed, so nothing would be held at link-up. Therefore such ACKs are kept while the receiver has not
//! acknowledged all data in flight: either it does so soon, or its link is down.

use holdover_base::{Duration, Instant};
use holdover_flow::Half as FlowHalf;

use super::{WakeConfig, WakeControl};

/// How long held ACKs of data in flight are kept after their flush was due: longer than it takes to detect that a
/// mobile host is silent, and bounded, as silence may not be watched.
const KEPT_FOR: Duration = Duration::from_secs(1);

impl WakeControl {
    /// A controller at a gateway, with a link that is up and without connections.
    pub fn between(config: WakeConfig) -> Self {
        Self { is_between: true, ..Self::new(config) }
    }
}

/// Whether the receiver may be cut off, so that held ACKs must not be flushed.
pub(super) fn may_be_cut_off(now: Instant, flow: &FlowHalf) -> bool {
    flow.awaits_ack() && flow.flush_at().is_some_and(|at| now < at + KEPT_FOR)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use holdover_wire::{Flags, Segment, Seq};

    use super::*;
    use crate::wake::Wake;
    use crate::wake::tests::pass;
    use crate::{Direction, SegmentFilter as _};

    /// A transfer over the link, a segment of 1,000 bytes each ms, with 40 ms of round trip.
    struct Transfer {
        wake: Wake,
        now: Instant,
        sent: Seq,
        acked: Seq,
    }

    impl Transfer {
        fn new(is_between: bool) -> Self {
            let mut wake = Wake::new(WakeConfig::all());
            wake.control.is_between = is_between;
            let mut this = Self { wake, now: Instant::from_secs(1), sent: Seq::new(1), acked: Seq::new(1) };
            this.pass(Direction::Outgoing, Segment { flags: Flags::SYN, ..Segment::default() });
            this.now += Duration::from_millis(40);
            let flags = Flags::SYN | Flags::ACK;
            this.pass(Direction::Incoming, Segment { flags, ack: Seq::new(1), ..Segment::default() });
            for sent in 0..400 {
                this.send();
                if sent >= 40 {
                    this.acknowledge();
                }
                this.pass_a_millisecond();
            }
            this
        }

        fn pass_a_millisecond(&mut self) {
            self.now += Duration::from_millis(1);
            self.wake.handle_timeout(self.now);
            assert!(self.wake.control.poll_transmit().is_none(), "a newer ACK arrives before a flush");
        }

        fn pass(&mut self, direction: Direction, segment: Segment) {
            pass(&mut self.wake, self.now, direction, segment);
        }

        fn send(&mut self) {
            let (seq, payload) = (self.sent, Bytes::from_static(&[0; 1000]));
            self.sent = seq + 1000;
            let data = Segment { seq, ack: Seq::new(1), flags: Flags::ACK, payload, ..Segment::default() };
            self.pass(Direction::Outgoing, data);
        }

        /// The receiver acknowledges one more segment.
        fn acknowledge(&mut self) {
            self.acked += 1000;
            let ack =
                Segment { seq: Seq::new(1), ack: self.acked, flags: Flags::ACK, window: 60_000, ..Segment::default() };
            self.pass(Direction::Incoming, ack);
        }

        /// The time at which an ACK is released to the sender within 3 s, and its number.
        fn flushed(&mut self) -> Option<(u64, Seq)> {
            (0..3000).find_map(|ms| {
                self.now += Duration::from_millis(1);
                self.wake.handle_timeout(self.now);
                let (_, made) = self.wake.control.poll_transmit()?;
                assert_eq!(made.direction, Direction::Incoming);
                Some((ms + 2, made.packet.tcp()?.ack))
            })
        }
    }

    #[test]
    fn what_is_in_hand_is_kept_while_data_are_under_way() {
        // The last ACK was a millisecond ago; the flush is due after 40 ms.
        for is_between in [false, true] {
            let mut t = Transfer::new(is_between);
            while t.acked != t.sent {
                t.acknowledge();
                t.pass_a_millisecond();
            }
            let (at, ack) = t.flushed().expect("the sender waits for it");
            assert_eq!(ack, t.acked);
            assert!((40..45).contains(&at), "all is acknowledged: {at} ms");
        }
        for (is_between, expected) in [(false, 40..45), (true, 1000..1100)] {
            let mut t = Transfer::new(is_between);
            let (at, ack) = t.flushed().expect("the wait is bounded");
            assert_eq!(ack, t.acked);
            assert!(expected.contains(&at), "{is_between}: {at} ms");
        }
    }
}
