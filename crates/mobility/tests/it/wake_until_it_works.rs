//! Waking is repeated until the peer answers, and no longer: the packets, their number, and the reported outcome.

use holdover_base::Duration;
use holdover_mobility::{Direction, Injected, LinkEvent, Mechanisms};
use holdover_wire::{Segment, Seq};

use crate::support::ms;
use crate::wake_script::{Script, UP, hold_back, relative};

fn segments(made: &[Injected]) -> Vec<&Segment> {
    made.iter().filter_map(|made| made.packet.tcp()).collect()
}

/// Link-up is that of a switch port that forwards later: every packet of the first 10 s is lost.
// Claim: Waking is repeated until data comes, with what has arrived and probes only, each try with a timestamp of its own; it
// ends with the data, after a minute, or with the next cut, after which what was in hand is in hand again.
// Tests: `wake_until_it_works::each_attempt_has_a_fresh_timestamp`, `wake_until_it_works::attempts_end_after_a_minute`,
// `wake_until_it_works::another_cut_restarts_waking`
#[test]
fn attempts_are_repeated_until_data_arrives() {
    let mut t = Script::of(&hold_back(), 200);
    t.link(LinkEvent::Down);
    t.wait(ms(3_000));
    t.link(UP);
    let made = t.wait(ms(10_000));
    let sent = segments(&made);
    let (probes, acks): (Vec<&Segment>, Vec<&Segment>) =
        sent.into_iter().partition(|segment| segment.seq == Seq::new(0));
    assert!(acks.iter().all(|segment| [196_002, 200_001].contains(&relative(segment.ack))), "only what has arrived");
    assert!(acks.iter().all(|segment| segment.is_pure_ack() && segment.options.sack.is_empty()));
    let tries = acks.iter().filter(|segment| relative(segment.ack) == 200_001).count();
    // The interval between attempts is half a round trip, and later a sixteenth of the elapsed time.
    assert!((40..=80).contains(&tries), "{tries} tries");
    assert_eq!(probes.len(), tries - 1, "the first try has its own answer");
    assert!(probes.iter().all(|probe| probe.is_pure_ack() && relative(probe.ack) == 200_001));
    t.data();
    assert_eq!(t.wait(ms(1_000)), [], "it has resumed");
}

/// Each echo is current: an old one would be a round trip as long as the outage.
#[test]
fn each_attempt_has_a_fresh_timestamp() {
    let mut t = Script::of(&hold_back(), 200);
    t.link(LinkEvent::Down);
    t.wait(ms(3_000));
    t.link(UP);
    let echo = |made: &[Injected]| {
        segments(made).iter().filter_map(|segment| segment.options.timestamps).map(|stamps| stamps.ecr).max().unwrap()
    };
    let first = echo(&t.wait(ms(2)));
    t.wait(ms(1_998));
    let later = echo(&t.wait(ms(1_000)));
    assert!((2_000..3_010).contains(&(later - first)), "{first}, then {later}");
}

/// A peer that is gone is probed for a limited time, and with few packets.
#[test]
fn attempts_end_after_a_minute() {
    let wake = Mechanisms { wake: true, ..Mechanisms::default() };
    let mut t = Script::of(&wake, 200);
    t.link(LinkEvent::Down);
    t.wait(ms(3_000));
    t.link(UP);
    let made = t.wait(Duration::from_secs(61));
    assert!((100..400).contains(&made.len()), "{} packets", made.len());
    assert_eq!(t.wait(Duration::from_secs(600)), []);
}

/// The next outage ends it; ACKs held before are held again.
#[test]
fn another_cut_restarts_waking() {
    let mut t = Script::of(&hold_back(), 200);
    for _ in 0..5 {
        t.link(LinkEvent::Down);
        assert_eq!(t.wait(ms(500)), [], "nothing goes into a dead link");
        t.link(UP);
        let made = t.wait(ms(2));
        let acks: Vec<u32> = segments(&made).iter().map(|segment| relative(segment.ack)).collect();
        assert_eq!(acks, [196_002, 200_001]);
        assert!(made.iter().all(|made| made.direction == Direction::Outgoing));
        // A link that is lost sooner flaps.
        t.wait(ms(3_500));
    }
}
