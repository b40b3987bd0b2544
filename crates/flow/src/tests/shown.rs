//! Which of the ACKs that a gateway has shown a mobile sender it may have received when the link broke.

use holdover_base::{Duration, Instant};
use holdover_filter::Direction;
use holdover_wire::{Flags, Seq};
use proptest::prelude::*;

use super::{connection, packet, stamped};
use crate::layout::{TRIP_BEYOND, TRIP_SAMPLED};
use crate::{Environment, Flow, Form, HoldBack, Key, Link, LinkState, Rules};

const SEGMENT: u32 = 1000;

/// An upload that breaks: its data and their ACKs at the gateway.
#[derive(Clone, Copy, Debug)]
struct Upload {
    /// The interval between two segments.
    every_us: u64,
    segments_per_ack: u32,
    /// From the gateway to the mobile host and back.
    near_us: u64,
    /// The time from the last ACK that the mobile host has received to the gateway's last data.
    lost_us: u64,
    /// From the gateway to the server and back.
    far_us: u64,
}

fn upload() -> impl Strategy<Value = Upload> {
    (100_u64..5_000, 1_u32..5, 1_000_u64..600_000, 0.0..1.0, 1_000_u64..300_000).prop_filter_map(
        "a round trip to the mobile host of 200 segments",
        |(every_us, segments_per_ack, near_us, lost, far_us)| {
            let lost_us = (near_us as f64 / 2.0 * lost) as u64;
            (near_us / every_us <= 200).then_some(Upload { every_us, segments_per_ack, near_us, lost_us, far_us })
        },
    )
}

/// The flow after the last ACK, when its last data came, and the last ACK that the mobile host has received with its TSval.
struct Broken {
    flow: Flow,
    last_data_at: Instant,
    received: (Seq, u32),
}

impl Upload {
    fn run(self) -> Broken {
        let hold = HoldBack { segments: 4, after_bytes: 0, pause: Duration::ZERO, flush: Duration::from_millis(40) };
        let (link, rules) = (Link::new(&LinkState::default()), Rules::new(Some(hold), true, Duration::ZERO));
        let mut flow = Flow::new();
        let ticks = |at: u64| (at / 1000) as u32;
        let segments = 1000 + (self.near_us + self.far_us) / self.every_us;
        let mut events: Vec<(u64, u32, bool)> = Vec::new();
        for number in 1..=segments {
            let (at, end) = (1_000_000 + number * self.every_us, number as u32 * SEGMENT);
            events.push((at, end, true));
            if number % u64::from(self.segments_per_ack) == 0 {
                events.push((at + self.far_us, end, false));
            }
        }
        events.sort_unstable();
        let broke_at = 1_000_000 + segments * self.every_us;
        let mut received = None;
        for (at, end, is_data) in events {
            let now = Instant::from_nanos(at * 1000);
            let environment = Environment { now, link: &link, rules: &rules };
            let (direction, sent) = if is_data {
                let sent = packet(false, Flags::ACK, (end - SEGMENT, 500), 1000, SEGMENT as usize);
                (Direction::Incoming, stamped(sent, ticks(at), 1))
            } else {
                (Direction::Outgoing, stamped(packet(true, Flags::ACK, (500, end), 60_000, 0), ticks(at), 1))
            };
            let mut passed = sent.clone();
            let form = Form::of(sent.tcp().unwrap());
            flow.flags |= (TRIP_SAMPLED | TRIP_BEYOND) as u16;
            flow.set_smoothed(self.near_us * 1000);
            flow.least = self.near_us * 1000;
            let _ = flow.pass_between(&Key::new(connection()), environment, direction, &mut passed, form);
            if !is_data && at + self.lost_us <= broke_at {
                received = Some((flow.half(Direction::Outgoing).shown(), ticks(at)));
            }
        }
        let received = received.expect("an ACK long before");
        Broken { flow, last_data_at: Instant::from_nanos(broke_at * 1000), received }
    }
}

/// Whether an ACK of one byte more than each of `acks`, in order, first acknowledges something within the segment at `una`.
fn is_ladder(acks: &[Seq], una: Seq) -> bool {
    let first = acks.iter().map(|&ack| ack + 1).find(|ack| ack.gt(una));
    first.is_some_and(|ack| ack.saturating_since(una) <= SEGMENT) && acks.is_sorted_by(|one, next| one.lt(*next))
}

proptest! {
    // Claim: Of an upload that breaks, at up to 200 segments in a round trip to the mobile host, the gateway knows the last ACK that the
    // mobile host has received to within a segment: one of at most 32, by the TSval that the mobile host echoes, wherever in half that
    // round trip before the break it was sent, and however many ACKs of data in flight came after the break.
    #[test]
    fn the_last_ack_received_is_known_by_its_echo(upload in upload()) {
        let Broken { flow, last_data_at, received: (received, echo) } = upload.run();
        let acks = flow.half(Direction::Outgoing).may_be_received(last_data_at, Some(echo));
        prop_assert!(acks.len() <= 32, "{}", acks.len());
        prop_assert!(is_ladder(&acks, received), "{:?}: {:?}", received, acks);
    }
}

#[test]
fn without_an_echo_it_is_one_of_those_shown_shortly_before_the_last_data() {
    for segments_per_ack in [1, 2] {
        let upload = Upload { every_us: 1_200, segments_per_ack, near_us: 40_000, lost_us: 6_000, far_us: 40_000 };
        let Broken { flow, last_data_at, received: (received, _) } = upload.run();
        let half = flow.half(Direction::Outgoing);
        let acks = half.may_be_received(last_data_at - Duration::from_millis(30), None);
        assert!(is_ladder(&acks, received), "{received}: {acks:?}");
        // A round trip of ACKs came after the last data, without a step between them.
        let after: Vec<&Seq> = acks.iter().filter(|ack| ack.gt(received + 10 * SEGMENT)).collect();
        assert_eq!(after, [&half.shown()]);
    }
}

#[test]
fn an_echo_from_before_all_that_is_remembered_says_nothing() {
    let upload = Upload { every_us: 1_200, segments_per_ack: 2, near_us: 40_000, lost_us: 6_000, far_us: 40_000 };
    let Broken { flow, last_data_at, .. } = upload.run();
    let half = flow.half(Direction::Outgoing);
    let since = last_data_at - Duration::from_millis(30);
    assert_eq!(half.may_be_received(since, Some(0)), half.may_be_received(since, None));
}
