//! Stalling ACKs before a predicted cut, packet by packet.

use bytes::Bytes;
use holdover_mobility::ack_stall::AckStallConfig;
use holdover_mobility::{Direction, Injected, LinkEvent, Mechanisms};
use holdover_wire::{Flags, SackBlocks, Segment, Seq, SeqRange};

use crate::support::ms;
use crate::wake_script::{Script, UP, relative, reverse, seq};

fn ack_stall(lead_ms: u64) -> Mechanisms {
    let config = AckStallConfig { lead: Some(ms(lead_ms)), ..AckStallConfig::default() };
    Mechanisms { ack_stall: Some(config), ..Mechanisms::default() }
}

#[test]
fn a_stall_lets_nothing_through_in_the_last_moments() {
    let mut t = Script::of(&ack_stall(100), 200);
    t.link(LinkEvent::Fading { lead: Some(ms(150)) });
    for _ in 0..49 {
        assert_eq!(t.exchange(), Some(t.data_end), "too early");
    }
    assert_eq!(t.exchange(), Some(250_001), "the last one draws the window in");
    for _ in 0..100 {
        assert_eq!(t.exchange(), None);
    }
    assert_eq!(t.ack(), None, "no duplicate either");
    t.link(LinkEvent::Down);
    t.wait(ms(3_000));
    t.link(UP);
    let acks = t.wait_for_acks(ms(1));
    assert_eq!(acks, [250_001 + 1, 350_001], "data came to the last: the rest of the window is lost");
}

/// A tail loss probe (RFC 8985) would send a new segment into the outage, if the window allowed it.
#[test]
fn the_last_ack_before_a_stall_offers_two_segments() {
    let mut t = Script::of(&ack_stall(100), 200);
    t.link(LinkEvent::Fading { lead: Some(ms(100)) });
    t.data();
    let segment = t.ack_segment();
    assert_eq!(t.pass(Direction::Outgoing, segment).map(|segment| segment.window), Some(2_000));
    t.wait(ms(50));
    t.link(LinkEvent::Recovered);
    let made: Vec<Injected> = core::iter::from_fn(|| t.chain.poll_transmit()).collect();
    let [Injected { packet, .. }] = &made[..] else { panic!("{made:?}") };
    assert_eq!(packet.tcp().map(|segment| (relative(segment.ack), segment.window)), Some((201_001, 60_000)));
}

/// A host that has sent beyond the window that it sees sends its ACKs with that window's end as their sequence number, and an end that has
/// received more ignores them. With both ends in that state, nothing would ever be accepted again.
// Claim: Only one end of a connection at a time is offered a small window before a cut: with both, neither would take the other's
// ACKs any more.
#[test]
fn only_one_end_at_a_time_is_offered_two_segments() {
    let mut t = Script::of(&ack_stall(100), 200);
    t.link(LinkEvent::Fading { lead: Some(ms(100)) });
    t.data();
    let segment = t.ack_segment();
    assert_eq!(t.pass(Direction::Outgoing, segment).map(|segment| segment.window), Some(2_000));
    let sent = Segment { seq: Seq::new(1), payload: Bytes::from_static(&[0; 1000]), ..t.ack_segment() };
    assert!(t.pass(Direction::Outgoing, sent).is_some());
    let acked =
        Segment { seq: seq(t.data_end), ack: Seq::new(1_001), flags: Flags::ACK, window: 60_000, ..Segment::default() };
    assert_eq!(t.pass(Direction::Incoming, acked), None, "it is kept instead");
}

/// Nothing has arrived for some time before the cut: the window has arrived, and the sender lacks only its ACK clock. The last ACK is sent
/// twice, for tail loss probes; the echoes are unchanged.
#[test]
fn acks_of_a_complete_window_are_released_one_by_one() {
    for way in [Direction::Incoming, Direction::Outgoing] {
        let mut t = Script::going(way, &ack_stall(100), 200);
        t.link(LinkEvent::Fading { lead: Some(ms(100)) });
        for _ in 0..61 {
            t.exchange();
        }
        let echo = t.peer_clock() - 1;
        t.wait(ms(30));
        t.link(LinkEvent::Down);
        t.wait(ms(3_000));
        t.link(UP);
        // The round trip of a sender whose data leaves 1 ms before its ACK.
        let made = t.wait(ms(if way == Direction::Incoming { 100 } else { 15 }));
        assert!(made.iter().all(|made| made.direction == reverse(way)));
        let segments: Vec<&Segment> = made.iter().filter_map(|made| made.packet.tcp()).collect();
        let acks: Vec<u32> = segments.iter().map(|segment| relative(segment.ack)).collect();
        let expected: Vec<u32> = (202..=261).chain([261]).map(|n| n * 1000 + 1).collect();
        assert_eq!(acks, expected, "{way:?}");
        for segment in segments {
            // The right edge of the window stays, as far as 16 bits can express it.
            let window = (60_000 + 261_001 - relative(segment.ack)).min(65_535);
            assert_eq!((u32::from(segment.window), segment.options.timestamps.unwrap().ecr), (window, echo), "{way:?}");
        }
    }
}

/// The host closes its side while the link is down: its FIN is lost, and the ACK in it.
#[test]
fn a_fin_into_a_dead_link_has_shown_nothing() {
    let mut t = Script::of(&ack_stall(100), 200);
    t.link(LinkEvent::Fading { lead: Some(ms(100)) });
    for _ in 0..61 {
        t.exchange();
    }
    t.wait(ms(30));
    t.link(LinkEvent::Down);
    let fin = Segment { flags: Flags::ACK | Flags::FIN, ..t.ack_segment() };
    t.pass(Direction::Outgoing, fin);
    t.wait(ms(3_000));
    t.link(UP);
    let acks = t.wait_for_acks(ms(100));
    assert_eq!((acks.first(), acks.last()), (Some(&202_001), Some(&261_001)));
}

/// ACKs are released with their original spacing, but within a round trip without queues.
#[test]
fn a_release_ack_by_ack_takes_its_time() {
    let mut t = Script::of(&ack_stall(100), 200);
    t.link(LinkEvent::Fading { lead: Some(ms(100)) });
    for _ in 0..61 {
        t.exchange();
    }
    t.wait(ms(30));
    t.link(LinkEvent::Down);
    t.wait(ms(3_000));
    t.link(UP);
    let first = t.wait(ms(30)).len();
    assert!((25..=35).contains(&first), "{first} in the first half");
    // A later ACK does not overtake the rest.
    assert_eq!(t.exchange(), None);
    let rest = t.wait_for_acks(ms(100));
    assert!(rest.is_sorted() && rest.last() == Some(&262_001), "{rest:?}");
    assert_eq!(t.exchange(), Some(263_001), "then all is as ever");
}

/// Beacons are missed one by one: repeated warnings do not stall ACKs for ever.
#[test]
fn repeated_warnings_are_one_warning() {
    let mut t = Script::of(&ack_stall(100), 200);
    let mut passed = 0;
    for _ in 0..100 {
        t.link(LinkEvent::Fading { lead: Some(ms(100)) });
        for _ in 0..100 {
            passed += usize::from(t.exchange().is_some());
        }
    }
    assert!(passed >= 7_500, "{passed} of 10,000 ACKs passed");
}

#[test]
fn a_better_warning_is_believed() {
    let mut t = Script::of(&ack_stall(100), 200);
    t.link(LinkEvent::Fading { lead: Some(ms(5_000)) });
    assert_eq!(t.exchange(), Some(201_001));
    t.link(LinkEvent::Fading { lead: Some(ms(100)) });
    assert_eq!(t.exchange(), Some(202_001));
    assert_eq!(t.exchange(), None);
    t.link(LinkEvent::Fading { lead: Some(ms(2_000)) });
    assert_eq!(t.exchange(), None, "a later cut does not lengthen a stall that has begun");
    t.wait(ms(200));
    assert_eq!(t.exchange(), Some(205_001));
}

#[test]
fn a_stall_ends_if_the_cut_does_not_come() {
    let stall = Mechanisms { ack_stall: Some(AckStallConfig::default()), ..Mechanisms::default() };
    for recovered in [false, true] {
        let mut t = Script::of(&stall, 200);
        t.link(LinkEvent::Fading { lead: None });
        assert_eq!(t.exchange(), Some(201_001), "the last one");
        let acks = if recovered {
            t.link(LinkEvent::Recovered);
            core::iter::from_fn(|| t.chain.poll_transmit())
                .filter_map(|made| Some(relative(made.packet.tcp()?.ack)))
                .collect()
        } else {
            assert_eq!(t.wait(ms(248)), []);
            t.wait_for_acks(ms(1))
        };
        assert_eq!(acks, [201_001], "recovered: {recovered}");
        assert_eq!(t.exchange(), Some(202_001));
    }
}

/// Loss recovery depends on duplicates, which a stall withholds: after a false warning the missing ones are sent.
// Claim: A stall in vain makes up for the duplicates that it has kept; a stop in the middle of a stall says everything at once.
// Tests: `tests::ending_in_a_stall_releases_everything`
#[test]
fn after_a_stall_in_vain_a_hole_is_said_again() {
    let mut t = Script::of(&ack_stall(100), 200);
    t.link(LinkEvent::Fading { lead: Some(ms(100)) });
    let blocks = SackBlocks::from_iter([SeqRange::new(seq(201_001), seq(202_001))]);
    t.data_end += 1_000;
    t.data();
    t.data_end = 200_001;
    for _ in 0..3 {
        let mut segment = t.ack_segment();
        segment.options.sack = blocks;
        assert_eq!(t.pass(Direction::Outgoing, segment), None, "it is stalled");
    }
    t.link(LinkEvent::Recovered);
    let made = t.wait(ms(1));
    let said =
        |made: &Injected| made.packet.tcp().is_some_and(|it| it.ack == seq(200_001) && it.options.sack == blocks);
    assert!(made.len() >= 3 && made.iter().all(said), "{made:?}");
}

#[test]
fn a_lowered_ack_has_no_sack_blocks() {
    let mut t = Script::of(&ack_stall(100), 200);
    t.link(LinkEvent::Fading { lead: Some(ms(100)) });
    t.exchange();
    t.exchange();
    let mut segment = t.ack_segment();
    segment.payload = Bytes::from_static(b"data");
    segment.options.sack = SackBlocks::from_iter([SeqRange::new(seq(300_001), seq(301_001))]);
    let passed = t.pass(Direction::Outgoing, segment).expect("data is never held");
    assert_eq!((relative(passed.ack), passed.options.sack.is_empty()), (201_001, true));
}
