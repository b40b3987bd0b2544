//! Data of the host's own TCP that is outstanding when its connection resumes. An ACK of a part of it ends the attempt to wake the connection,
//! but TCP need not go on: its next retransmission may be lost, too, or it has joined small segments to one, of which the peer had received
//! the first before the cut. Linux then ignores messages until its timer has expired once more, and the timer may have measured the outage as
//! a round trip. So the rest is looked after until it is acknowledged: while nothing moves, a message is sent again, with a copy of the
//! segment ([`OwnSegments`](super::OwnSegments)).

use holdover_base::{Duration, Instant};
use holdover_flow::Flow;
use holdover_wire::Seq;

use super::attempt::Attempt;
use crate::Direction;

/// A message is sent after so many times [`Attempt::stuck_after`], doubled with each.
const PATIENCE: u64 = 3;

/// And not earlier: ACKs may be delayed, and Linux ignores messages until its timer has expired, after 200 ms at the earliest.
const LEAST_PATIENCE: Duration = Duration::from_millis(250);

/// The most messages.
const MOST_TRIES: u32 = 6;

/// What was outstanding when the connection resumed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Rest {
    end: Seq,
    next_at: Instant,
    tries: u32,
}

/// How it stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Standing {
    /// It is acknowledged, or the tries are used up.
    Over,
    /// Data or ACKs have passed lately.
    Moves,
    /// They have not.
    Stuck,
}

impl Rest {
    /// `None` if nothing is outstanding.
    pub(super) fn of(now: Instant, flow: &Flow) -> Option<Self> {
        let end = flow.half(Direction::Incoming).end_of_outstanding()?;
        Some(Self { end, next_at: now + patience(flow), tries: 0 })
    }

    pub(super) fn next_at(&self) -> Instant {
        self.next_at
    }

    /// How it stands at `now`, which is [`next_at`](Self::next_at) or later.
    pub(super) fn look(&mut self, now: Instant, flow: &Flow) -> Standing {
        let own = flow.half(Direction::Incoming);
        let is_acknowledged = own.acked().is_none_or(|acked| acked.ge(self.end));
        if is_acknowledged || flow.is_over() || self.tries >= MOST_TRIES {
            return Standing::Over;
        }
        let patience = patience(flow) * (1 << self.tries);
        let moved_at = own.progress_at(Direction::Incoming).max(own.last_data_at());
        let stuck_at = moved_at.map_or(now, |at| at + patience);
        if stuck_at > now {
            self.next_at = stuck_at;
            return Standing::Moves;
        }
        self.tries += 1;
        self.next_at = now + patience;
        Standing::Stuck
    }

    /// Looks again later, without a message.
    pub(super) fn put_off(&mut self, now: Instant, flow: &Flow) {
        self.next_at = now + patience(flow);
    }

    /// Whether the last message was the first one.
    pub(super) const fn has_begun(&self) -> bool {
        self.tries == 1
    }
}

fn patience(flow: &Flow) -> Duration {
    (Attempt::stuck_after(flow) * PATIENCE).max(LEAST_PATIENCE)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use holdover_wire::{Flags, Payload, Segment, Timestamps};

    use super::*;
    use crate::wake::tests::pass;
    use crate::wake::{Wake, WakeConfig};
    use crate::{Injected, LinkEvent, SegmentFilter as _};

    const ROUND_TRIP: Duration = Duration::from_millis(40);

    /// A host that types, and its link.
    struct Typist {
        wake: Wake,
        now: Instant,
    }

    impl Typist {
        /// A connection whose first key was answered.
        fn new() -> Self {
            let mut this = Self { wake: Wake::new(WakeConfig::all()).copying_own_data(), now: Instant::from_secs(100) };
            this.outgoing(0, Flags::SYN, b"");
            this.now += ROUND_TRIP;
            this.incoming(Flags::SYN | Flags::ACK, 1);
            this.outgoing(1, Flags::ACK, b"a");
            this.now += ROUND_TRIP;
            this.incoming(Flags::ACK, 2);
            this
        }

        fn stamps(&self) -> Option<Timestamps> {
            Some(Timestamps { val: self.now.as_millis() as u32, ecr: self.now.as_millis() as u32 })
        }

        fn outgoing(&mut self, seq: u32, flags: Flags, payload: &'static [u8]) {
            let payload = Bytes::from_static(payload);
            let mut segment = Segment { seq: Seq::new(seq), ack: Seq::new(1), flags, payload, ..Segment::default() };
            segment.options.timestamps = self.stamps();
            pass(&mut self.wake, self.now, Direction::Outgoing, segment);
        }

        fn incoming(&mut self, flags: Flags, ack: u32) {
            let (seq, ack) = (u32::from(ack > 1), Seq::new(ack));
            let mut segment = Segment { seq: Seq::new(seq), ack, flags, window: 60_000, ..Segment::default() };
            segment.options.timestamps = self.stamps();
            pass(&mut self.wake, self.now, Direction::Incoming, segment);
        }

        /// A link that was down for seven seconds, in which the host has joined its second and third key to one segment.
        fn type_while_down(&mut self) {
            self.wake.handle_link(self.now, LinkEvent::Down);
            self.now += Duration::from_secs(1);
            self.outgoing(2, Flags::ACK, b"b");
            self.now += Duration::from_secs(3);
            self.outgoing(2, Flags::ACK, b"bc");
            self.now += Duration::from_secs(3);
            self.wake.handle_link(self.now, LinkEvent::Up { symmetric: false, moved: false });
        }

        /// What is sent until then, with its time from now on.
        fn sent_within(&mut self, time: Duration) -> Vec<(Duration, Injected)> {
            let (began, end) = (self.now, self.now + time);
            let mut sent = Vec::new();
            while let Some(at) = self.wake.poll_timeout().filter(|&at| at <= end) {
                self.now = self.now.max(at);
                self.wake.handle_timeout(self.now);
                while let Some(injected) = self.wake.poll_transmit(self.now) {
                    sent.push((self.now.saturating_since(began), injected));
                }
            }
            self.now = end;
            sent
        }
    }

    fn is_poke((_, injected): &(Duration, Injected)) -> bool {
        injected.direction == Direction::Incoming && matches!(injected.packet.payload, Payload::IcmpError(_))
    }

    /// The data of copies.
    fn copies(sent: &[(Duration, Injected)]) -> Vec<(Duration, u32, Bytes)> {
        let data = |(at, injected): &(Duration, Injected)| {
            let segment = injected.packet.tcp().filter(|segment| !segment.payload.is_empty())?;
            Some((*at, segment.seq.value(), segment.payload.clone()))
        };
        sent.iter().filter_map(data).collect()
    }

    // Claim: When a part of the host's data is acknowledged after an outage, and then nothing moves, its TCP is told again, with a copy of the
    // rest, after three times an answer takes; six times at most, at doubled intervals.
    #[test]
    fn what_stays_outstanding_is_looked_after() {
        let mut typist = Typist::new();
        typist.type_while_down();
        let at_once = typist.sent_within(ROUND_TRIP);
        assert!(at_once.iter().any(is_poke) && copies(&at_once)[0].1 == 2, "{at_once:?}");
        // The peer had received the second key before the cut, and says so; the copy is lost.
        typist.incoming(Flags::ACK, 3);
        let sent = typist.sent_within(Duration::from_secs(60));
        let copies = copies(&sent);
        let patience = LEAST_PATIENCE;
        let (first_at, seq, payload) = copies[0].clone();
        assert_eq!((first_at, seq, &payload[..]), (patience, 3, &b"c"[..]), "{sent:?}");
        assert_eq!(copies.len(), MOST_TRIES as usize, "{copies:?}");
        let waits: Vec<Duration> = copies.windows(2).map(|pair| pair[1].0 - pair[0].0).collect();
        assert!(waits.windows(2).all(|pair| pair[1] == pair[0] * 2), "{waits:?}");
        assert!(sent.iter().any(is_poke));
    }

    const FULL: &[u8] = &[7; 1400];

    /// A host that has retransmitted a full segment into an outage, after the link's return and the first messages. Its peer has sent something.
    fn after_first_messages() -> Typist {
        let mut typist = Typist::new();
        typist.wake.handle_link(typist.now, LinkEvent::Down);
        for _ in 0..3 {
            typist.now += Duration::from_secs(1);
            typist.outgoing(2, Flags::ACK, FULL);
        }
        typist.wake.handle_link(typist.now, LinkEvent::Up { symmetric: false, moved: false });
        let at_once = typist.sent_within(ROUND_TRIP);
        assert!(at_once.iter().any(is_poke) && copies(&at_once).is_empty(), "{at_once:?}");
        typist.outgoing(2, Flags::ACK, FULL);
        typist.incoming(Flags::ACK, 2);
        typist
    }

    // Claim: A full segment that was retransmitted into an outage is repeated when TCP sends nothing for as long as an answer takes, although a
    // message has told it to; not with the first message, not while TCP sends, and not in place of a probe.
    // Tests: `wake::rest::tests::a_full_segment_is_not_repeated_while_tcp_sends`
    #[test]
    fn a_full_segment_is_repeated_when_messages_have_no_effect() {
        let mut typist = after_first_messages();
        let sent = typist.sent_within(Duration::from_secs(2));
        let copies = copies(&sent);
        let (first_at, seq, payload) = copies[0].clone();
        assert_eq!((seq, &payload[..]), (2, FULL));
        assert!(first_at >= ROUND_TRIP * 5 / 4 && first_at < ROUND_TRIP * 5, "{first_at}");
        assert!(copies.len() <= MOST_TRIES as usize, "{copies:?}");
    }

    #[test]
    fn a_full_segment_is_not_repeated_while_tcp_sends() {
        let mut typist = after_first_messages();
        for _ in 0..50 {
            let sent = typist.sent_within(ROUND_TRIP);
            assert!(copies(&sent).is_empty(), "{sent:?}");
            typist.outgoing(2, Flags::ACK, FULL);
        }
    }

    /// TCP joins small segments when it retransmits them.
    #[test]
    fn a_key_is_still_sent_at_once_when_tcp_has_joined_it_to_a_full_segment() {
        let mut typist = Typist::new();
        typist.wake.handle_link(typist.now, LinkEvent::Down);
        typist.now += Duration::from_secs(1);
        typist.outgoing(2, Flags::ACK, &FULL[..1]);
        typist.now += Duration::from_secs(3);
        typist.outgoing(2, Flags::ACK, FULL);
        typist.wake.handle_link(typist.now, LinkEvent::Up { symmetric: false, moved: false });
        let copies = copies(&typist.sent_within(ROUND_TRIP));
        assert_eq!(copies.iter().map(|(_, seq, payload)| (*seq, payload.len())).collect::<Vec<_>>(), [(2, 1)]);
    }

    #[test]
    fn what_moves_is_left_alone() {
        let mut typist = Typist::new();
        typist.type_while_down();
        typist.sent_within(ROUND_TRIP);
        typist.incoming(Flags::ACK, 3);
        for _ in 0..10 {
            // The host sends by itself.
            let sent = typist.sent_within(ROUND_TRIP * 2);
            assert!(!sent.iter().any(is_poke) && copies(&sent).is_empty(), "{sent:?}");
            typist.outgoing(3, Flags::ACK, b"c");
        }
        typist.incoming(Flags::ACK, 4);
        let sent = typist.sent_within(Duration::from_secs(60));
        assert!(sent.is_empty(), "{sent:?}");
    }

    #[test]
    fn another_outage_ends_it() {
        let mut typist = Typist::new();
        typist.type_while_down();
        typist.sent_within(ROUND_TRIP);
        typist.incoming(Flags::ACK, 3);
        typist.wake.handle_link(typist.now, LinkEvent::Down);
        let sent = typist.sent_within(Duration::from_secs(60));
        assert!(sent.is_empty(), "{sent:?}");
    }
}
