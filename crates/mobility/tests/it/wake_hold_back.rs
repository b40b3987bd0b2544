//! Holding back: the last ACKs of a transfer, packet by packet.

use holdover_mobility::{Direction, LinkEvent};
use holdover_wire::{Flags, SackBlocks, Segment, SeqRange};

use crate::support::ms;
use crate::wake_script::{Script, UP, hold_back, relative, seq};

#[test]
fn the_ack_of_the_last_four_whole_segments_is_withheld() {
    let mut t = Script::of(&hold_back(), 200);
    assert_eq!(t.exchange(), Some(201_001 - 4_000));
    t.data();
    t.data();
    assert_eq!(t.ack(), Some(203_001 - 4_000), "a delayed ACK of two segments is passed on as one of two");
}

#[test]
fn nothing_is_held_in_the_first_150_kb() {
    let mut t = Script::of(&hold_back(), 148);
    assert_eq!(t.exchange(), Some(149_001));
    assert_eq!(t.exchange(), None);
}

#[test]
fn nothing_is_held_of_a_small_window() {
    let mut t = Script::of(&hold_back(), 200);
    t.data();
    let small = Segment { window: 31_999, ..t.ack_segment() };
    assert_eq!(t.pass(Direction::Outgoing, small).map(|segment| relative(segment.ack)), Some(201_001));
}

/// The limit is a fraction of the sender's data in flight, whatever window it is offered.
// Claim: Held ACKs cost a sender at most an eighth of its data in flight.
#[test]
fn nothing_is_held_of_a_small_flight() {
    let mut t = Script::of(&hold_back(), 400);
    assert_eq!(t.exchange(), Some(401_001 - 4_000));
    // Ten segments in a round trip from now on.
    for _ in 0..80 {
        t.exchange();
        t.now += ms(3);
    }
    for _ in 0..40 {
        t.now += ms(3);
        assert_eq!(t.exchange(), Some(t.data_end), "nothing is held");
    }
}

#[test]
fn the_flush_comes_40_ms_after_the_last_ack() {
    let mut t = Script::of(&hold_back(), 200);
    assert_eq!(t.wait_for_acks(ms(39)), [0; 0]);
    assert_eq!(t.wait_for_acks(ms(1)), [200_001]);
    assert_eq!(t.exchange(), Some(201_001), "the sender was waiting: nothing is held for a while");
    let held = (0..60).any(|_| t.exchange() != Some(t.data_end));
    assert!(held, "but not for long");
}

#[test]
fn repeated_and_sack_bearing_acks_and_those_with_flags_pass() {
    let passed = |change: fn(&mut Segment)| {
        let mut t = Script::of(&hold_back(), 200);
        let mut segment = t.ack_segment();
        change(&mut segment);
        t.pass(Direction::Outgoing, segment.clone()) == Some(Segment { src_port: 1000, dst_port: 80, ..segment })
    };
    assert!(passed(|_| {}), "a duplicate");
    assert!(passed(|segment| {
        segment.options.sack = SackBlocks::from_iter([SeqRange::new(seq(300_001), seq(301_001))]);
    }));
    assert!(passed(|segment| segment.flags |= Flags::FIN));
    assert!(passed(|segment| segment.flags = Flags::RST));
}

#[test]
fn after_the_senders_fin_nothing_is_held() {
    let mut t = Script::of(&hold_back(), 200);
    let fin = Segment { seq: seq(t.data_end), flags: Flags::ACK | Flags::FIN, ..Segment::default() };
    t.pass(Direction::Incoming, fin);
    t.data_end += 1;
    assert_eq!(t.ack(), Some(200_002));
}

/// ACKs for the host's own TCP are held and released like those for a far one.
#[test]
fn an_upload_is_held_back_and_released_alike() {
    let mut t = Script::upload(&hold_back(), 200);
    assert_eq!(t.exchange(), Some(201_001 - 4_000));
    let made = t.wait(ms(40));
    assert!(made.iter().all(|made| made.direction == Direction::Incoming));
    assert_eq!(made.len(), 1, "the flush");
    for _ in 0..150 {
        t.exchange();
    }
    t.link(LinkEvent::Down);
    t.wait(ms(3_000));
    t.link(UP);
    assert_eq!(t.wait_for_acks(ms(1)), [347_002, 351_001]);
}

/// An attacker who guesses sequence numbers does not affect a connection.
#[test]
fn forged_resets_and_acks_are_nothing() {
    for forged in [
        Segment { seq: seq(10_000_000), flags: Flags::RST, ..Segment::default() },
        Segment { seq: seq(0x7000_0000), flags: Flags::RST, ..Segment::default() },
    ] {
        let mut t = Script::of(&hold_back(), 200);
        t.pass(Direction::Incoming, forged);
        t.link(LinkEvent::Down);
        t.wait(ms(3_000));
        t.link(UP);
        assert_eq!(t.wait_for_acks(ms(1)), [196_002, 200_001]);
    }
    let mut t = Script::upload(&hold_back(), 200);
    t.pass(Direction::Incoming, Segment { ack: seq(0x4000_0000), flags: Flags::ACK, ..Segment::default() });
    assert_eq!(t.exchange(), Some(201_001 - 4_000), "the next true ACK is held back as ever");
}

/// RFC 5961 section 3.2: a reset that is in the window, but does not have the next number, is answered, and the
/// connection continues.
// Claim: A reset that the host has challenged is nothing (RFC 5961).
#[test]
fn a_reset_that_was_challenged_is_nothing() {
    let reset = |t: &Script| Segment { seq: seq(t.data_end + 1_000), flags: Flags::RST, ..Segment::default() };
    let mut t = Script::of(&hold_back(), 200);
    t.pass(Direction::Incoming, reset(&t));
    assert_eq!(t.ack(), Some(200_001), "the challenge");
    assert_eq!(t.exchange(), None, "held");
    t.link(LinkEvent::Down);
    t.wait(ms(3_000));
    t.link(UP);
    assert_eq!(t.wait_for_acks(ms(1)).last(), Some(&201_001));
    // If the host does not answer it, the connection is reset.
    let mut t = Script::of(&hold_back(), 200);
    t.pass(Direction::Incoming, reset(&t));
    t.link(LinkEvent::Down);
    t.wait(ms(3_000));
    t.link(UP);
    assert!(t.wait_for_acks(ms(1)).is_empty());
}
