//! Waking at a gateway between both hosts, at the near end of the link. *This host* in other modules is the host on the
//! gateway's side; incoming packets arrive over the link.
//!
//! An agent that flushes an ACK into a broken link can repeat it later, as no one has received it. A gateway cannot:
//! incoming ACKs are flushed to the host on its own side, which receives them. A silent cut is detected later than an
//! ACK is flushed, so nothing would be held at link-up. Therefore such ACKs are kept while the receiver has not
//! acknowledged all data in flight: either it does so soon, or its link is down.
//!
//! The ACKs on the link when it breaks are lost: the receiver has more than the gateway knows, and a sender that is shown
//! the rest of what the gateway knows retransmits data that has arrived. So the receiver is asked for its newest ACK by an
//! empty segment: while it is absent, on one connection, so that the answer arrives with the first sign of its return;
//! and with the first attempt to wake each connection on which nothing has arrived by then.
//!
//! An absent sender is asked in the same way: the answer's TSecr shows which ACKs it has received ([`crate::release`]).

use holdover_base::{Duration, Instant};
use holdover_filter::Connection;
use holdover_flow::{Flow, FlowTable, Half as FlowHalf};

use super::at::At;
use super::half::UNDER_WAY;
use super::{WakeConfig, WakeControl};
use crate::Direction;

/// How long held ACKs of data in flight are kept after their flush was due: longer than it takes to detect that a
/// mobile host is silent, and bounded, as silence may not be watched.
const KEPT_FOR: Duration = Duration::from_secs(1);

impl WakeControl {
    /// A controller at a gateway, with a link that is up and without connections.
    pub fn between(config: WakeConfig) -> Self {
        Self { is_between: true, ..Self::new(config) }
    }

    /// Asks an absent receiver for its newest ACK. To be called with every other probe of the mobile host; does nothing if
    /// the link is up, or if that would be too often.
    pub fn ask_receiver(&mut self, now: Instant, path: &impl FlowTable) {
        let Some(down_at) = self.link.down_at.filter(|_| !self.link.is_up()) else { return };
        let Some(connection) = self.inquiry.due(now, down_at) else { return };
        let Some(flow) = path.snapshot(connection).filter(|flow| may_tell_more(flow, down_at)) else { return };
        let at = At { connection, direction: Direction::Outgoing };
        self.ready.extend(flow.inquiry(at.receiver()).map(|inquiry| (connection, at.inject(inquiry))));
    }
}

/// See [`WakeControl::ask_receiver`].
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Inquiry {
    /// The connection with the most recent data among those with data in flight to the receiver, or from it; and the time of these.
    connection: Option<(Instant, Connection)>,
    asked_at: Option<Instant>,
}

/// The interval between these segments is this fraction of the absence.
const ASKED_PART: u64 = 1000;

impl Inquiry {
    /// The link breaks: a connection over it.
    pub(super) fn consider(&mut self, connection: Connection, flow: &Flow) {
        let sent = flow.half(Direction::Incoming);
        let sent_at = sent.last_data_at().filter(|_| sent.awaits_ack());
        let found = sent_at.max(flow.half(Direction::Outgoing).last_data_at()).map(|at| (at, connection));
        self.connection = self.connection.max(found);
    }

    /// The connection, if it is its time.
    fn due(&mut self, now: Instant, down_at: Instant) -> Option<Connection> {
        let pause = Duration::from_nanos(now.saturating_since(down_at).as_nanos() / ASKED_PART);
        let (_, connection) = self.connection.filter(|_| self.asked_at.is_none_or(|at| now >= at + pause))?;
        self.asked_at = Some(now);
        Some(connection)
    }
}

/// Whether an answer may show more than is known: what the receiver has acknowledged, or which ACKs it has received as a sender.
fn may_tell_more(flow: &Flow, cut_at: Instant) -> bool {
    let sent_at = flow.half(Direction::Outgoing).last_data_at();
    let is_sender = sent_at.is_some_and(|at| cut_at.saturating_since(at) <= UNDER_WAY);
    is_unheard(flow, cut_at) && (flow.awaits_ack() || is_sender)
}

/// Whether the receiver may have acknowledged more than is known: data is in flight, and nothing has arrived since the cut.
pub(super) fn may_have_more(flow: &Flow, cut_at: Instant) -> bool {
    flow.awaits_ack() && is_unheard(flow, cut_at)
}

fn is_unheard(flow: &Flow, cut_at: Instant) -> bool {
    flow.heard_at().is_none_or(|at| at < cut_at)
}

/// Whether the receiver may be cut off, so that held ACKs must not be flushed.
pub(super) fn may_be_cut_off(now: Instant, flow: FlowHalf<'_>) -> bool {
    flow.awaits_ack() && flow.flush_at().is_some_and(|at| now < at + KEPT_FOR)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use holdover_wire::{Flags, Segment, Seq, SeqRange, TcpOptions, Timestamps};

    use super::*;
    use crate::wake::Wake;
    use crate::wake::tests::pass;
    use crate::{LinkEvent, SegmentFilter as _};

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

        /// Both ends' clocks count milliseconds.
        fn stamps(&self, ecr: Instant) -> TcpOptions {
            let ticks = |at: Instant| (at.as_nanos() / 1_000_000) as u32;
            let timestamps = Timestamps { val: ticks(self.now), ecr: ticks(ecr) };
            TcpOptions { timestamps: Some(timestamps), ..TcpOptions::default() }
        }

        fn send(&mut self) {
            let seq = self.sent;
            self.sent = seq + 1000;
            self.send_from(seq);
        }

        fn send_from(&mut self, seq: Seq) {
            let (options, payload) = (self.stamps(self.now), Bytes::from_static(&[0; 1000]));
            let data = Segment { seq, ack: Seq::new(1), flags: Flags::ACK, options, payload, ..Segment::default() };
            self.pass(Direction::Outgoing, data);
        }

        /// The receiver acknowledges one more segment.
        fn acknowledge(&mut self) {
            self.acknowledge_up_to(self.acked + 1000, self.now);
        }

        /// The same up to `acked`, with the echo of a segment sent at `echo`.
        fn acknowledge_up_to(&mut self, acked: Seq, echo: Instant) {
            self.acked = acked;
            let (seq, flags, options) = (Seq::new(1), Flags::ACK, self.stamps(echo));
            let ack = Segment { seq, ack: self.acked, flags, window: 60_000, options, ..Segment::default() };
            self.pass(Direction::Incoming, ack);
        }

        /// The link breaks, and what is found out about it.
        fn breaks(&mut self) {
            self.now += Duration::from_millis(270);
            self.wake.handle_link(self.now, LinkEvent::Down);
        }

        /// The segments made for the receiver, without data, within this time.
        fn asked(&mut self, millis: u64, mut each: impl FnMut(&mut Self)) -> Vec<Segment> {
            let mut asked = Vec::new();
            for _ in 0..millis {
                self.now += Duration::from_millis(1);
                self.wake.handle_timeout(self.now);
                each(self);
                let made = std::iter::from_fn(|| self.wake.control.poll_transmit()).map(|(_, made)| made);
                let outgoing = made.filter(|made| made.direction == Direction::Outgoing);
                asked.extend(outgoing.filter_map(|made| made.packet.tcp().cloned()));
            }
            assert!(asked.iter().all(|segment| segment.payload.is_empty()));
            asked
        }

        fn ask(&mut self) {
            let Wake { control, path, .. } = &mut self.wake;
            control.ask_receiver(self.now, path);
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

    // Claim: At a gateway, ACKs are held back a second longer than at a host while data is in flight, and released once all data
    // is acknowledged.
    #[test]
    fn held_acks_are_kept_while_data_are_in_flight() {
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

    // Claim: At a gateway, the second step of the first ACK after a long silence follows within 7 ms, although other ACKs are
    // kept. An absent mobile host is asked for its newest ACK on one connection, at growing intervals and until it answers; the
    // release shows that ACK. One that has not answered is asked with the first attempt to wake its sender.
    // Tests: `between::an_absent_receiver_is_asked_for_its_newest_ack`, `between::an_absent_sender_is_asked_as_well`,
    // `between::a_receiver_that_stays_away_is_asked_less_and_less_often`,
    // `between::one_that_has_not_answered_is_asked_when_its_sender_is_woken`
    #[test]
    fn the_second_step_after_a_long_silence_is_not_kept() {
        for is_between in [false, true] {
            let mut t = Transfer::new(is_between);
            let (echo, acked) = (t.now - Duration::from_millis(40), t.acked);
            t.flushed().expect("what is held is shown within a second");
            t.now += Duration::from_millis(1000);
            t.send_from(acked);
            // The window field has room for it.
            t.acknowledge_up_to(acked + 5000, echo);
            let (at, ack) = t.flushed().expect("the sender waits for the rest");
            assert_eq!(ack, acked + 5000);
            assert!(at <= 7, "{is_between}: {at} ms");
        }
    }

    #[test]
    fn an_absent_receiver_is_asked_for_its_newest_ack() {
        let mut t = Transfer::new(true);
        let (acked, echo) = (t.acked, t.now);
        t.ask();
        assert!(t.wake.control.poll_transmit().is_none(), "the link is up");
        t.breaks();
        let asked = t.asked(20, |t| {
            t.ask();
            t.ask();
        });
        assert_eq!(asked.len(), 20, "once in a thousandth of the absence");
        assert!(asked.iter().all(|segment| segment.seq == acked - 1));

        // Its answer is withheld, and the release shows all of it.
        t.acknowledge_up_to(acked + 5000, echo);
        assert!(t.asked(10, Transfer::ask).is_empty(), "it has answered");
        t.wake.handle_link(t.now, LinkEvent::Up { symmetric: false, moved: false });
        t.now += Duration::from_millis(1);
        t.wake.handle_timeout(t.now);
        let made: Vec<_> = std::iter::from_fn(|| t.wake.control.poll_transmit()).map(|(_, made)| made).collect();
        let acks: Vec<Seq> = made.iter().filter_map(|made| Some(made.packet.tcp()?.ack)).collect();
        assert!(made.iter().all(|made| made.direction == Direction::Incoming), "it is not asked again: {made:?}");
        assert_eq!(acks, [acked - 4000 + 1, acked + 5000]);
    }

    /// Asking shows nothing that it may not have received.
    #[test]
    fn an_absent_sender_is_asked_as_well() {
        let mut t = Transfer::new(true);
        while t.acked != t.sent {
            t.acknowledge();
            t.pass_a_millisecond();
        }
        let stamps = t.stamps(t.now);
        let data = |seq: u32| Segment {
            seq: Seq::new(seq),
            flags: Flags::ACK,
            window: 60_000,
            options: stamps.clone(),
            payload: Bytes::from_static(&[1; 1000]),
            ..Segment::default()
        };
        for number in 0..40 {
            let (seq, ack) = (t.sent, Seq::new(1 + number * 1000));
            t.pass(Direction::Incoming, Segment { ack: seq, ..data(1 + number * 1000) });
            t.pass(Direction::Outgoing, Segment { seq, ack, payload: Bytes::new(), ..data(0) });
            t.now += Duration::from_millis(1);
        }
        t.breaks();
        let asked = t.asked(20, Transfer::ask);
        assert_eq!(asked.len(), 20);
        assert!(asked.iter().all(|segment| segment.seq == t.acked - 1));
        let latest = asked.iter().map(|segment| segment.ack).fold(Seq::new(0), Seq::max);
        assert!(latest.lt(Seq::new(1 + 30 * 1000)), "{latest}");
    }

    // Claim: Where the fixed host has a hole, an absent sender is told first that it was unreachable, so that it repeats the missing
    // segment; ACKs with SACK blocks follow only if it does not: alone they would make Linux undo its timeout and wait for another.
    #[test]
    fn the_acks_of_a_hole_follow_the_messages() {
        for retransmits in [false, true] {
            let mut t = Transfer::new(true);
            while t.acked != t.sent {
                t.acknowledge();
                t.pass_a_millisecond();
            }
            let data = |t: &Transfer, number: u32| Segment {
                seq: Seq::new(1 + number * 1000),
                ack: t.sent,
                flags: Flags::ACK,
                window: 60_000,
                options: t.stamps(t.now),
                payload: Bytes::from_static(&[1; 1000]),
                ..Segment::default()
            };
            // The 21st segment is lost beyond the gateway.
            for number in 0..40 {
                t.pass(Direction::Incoming, data(&t, number));
                let mut ack = Segment {
                    seq: t.sent,
                    ack: Seq::new(1 + number.min(20) * 1000),
                    payload: Bytes::new(),
                    ..data(&t, 0)
                };
                if number > 20 {
                    ack.options.sack.push(SeqRange::new(Seq::new(21_001), Seq::new(1 + number * 1000)));
                }
                t.pass(Direction::Outgoing, ack);
                t.now += Duration::from_millis(1);
            }
            t.breaks();
            t.now += Duration::from_secs(3);
            t.wake.handle_link(t.now, LinkEvent::Up { symmetric: false, moved: false });
            let mut made = Vec::new();
            for ms in 0..40 {
                t.now += Duration::from_millis(1);
                if retransmits && ms == 8 {
                    t.pass(Direction::Incoming, data(&t, 20));
                }
                t.wake.handle_timeout(t.now);
                made.extend(std::iter::from_fn(|| t.wake.control.poll_transmit()).map(|(_, made)| made));
            }
            let outgoing = made.iter().filter(|made| made.direction == Direction::Outgoing);
            let is_message: Vec<bool> = outgoing.map(|made| made.packet.tcp().is_none()).collect();
            let messages = is_message.iter().take_while(|&&is_message| is_message).count();
            if retransmits {
                assert!((4..12).contains(&messages) && messages == is_message.len(), "{made:#?}");
            } else {
                assert!(messages == 12 && is_message.len() > 12, "{made:#?}");
            }
        }
    }

    #[test]
    fn a_receiver_that_stays_away_is_asked_less_and_less_often() {
        let mut t = Transfer::new(true);
        t.breaks();
        t.now += Duration::from_secs(20);
        let asked = t.asked(1000, Transfer::ask).len();
        assert!((40..=60).contains(&asked), "{asked}");
    }

    #[test]
    fn one_that_has_not_answered_is_asked_when_its_sender_is_woken() {
        for (is_between, expected) in [(false, 0), (true, 1)] {
            let mut t = Transfer::new(is_between);
            t.breaks();
            t.wake.handle_link(t.now, LinkEvent::Up { symmetric: false, moved: false });
            let asked = t.asked(3, |_| {});
            // To the agent, all ACKs are of its own host.
            assert_eq!(asked.iter().filter(|segment| segment.seq == t.acked - 1).count(), expected, "{is_between}");
        }
    }
}
