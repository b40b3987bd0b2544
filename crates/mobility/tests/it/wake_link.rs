//! Reports of the link that are late, repeated, too early or missing, packet by packet.

use holdover_mobility::unreachable_poke::UnreachablePokeConfig;
use holdover_mobility::{Direction, LinkEvent, Mechanisms};

use crate::support::{at_ms, ms};
use crate::wake_script::{Script, UP, hold_back};

/// Link-down is reported long after the cut: flushed ACKs were lost.
#[test]
fn down_may_be_heard_late() {
    for late_ms in [100, 500, 900, 1_500, 5_000] {
        let mut t = Script::of(&hold_back(), 200);
        let flushed = t.wait_for_acks(ms(late_ms));
        assert_eq!(flushed, [200_001]);
        t.link(LinkEvent::Down);
        t.wait(ms(3_000));
        t.link(UP);
        let acks = t.wait_for_acks(ms(1));
        assert_eq!(acks, [200_001], "{late_ms} ms late: nothing is held, but the last ACK may have been lost");
    }
    // Outstanding data counts as in flight, however long ago it was sent.
    let poke = Mechanisms { unreachable_poke: Some(UnreachablePokeConfig::default()), ..Mechanisms::default() };
    for outstanding in [false, true] {
        let mut t = Script::going(Direction::Outgoing, &poke, 200);
        if outstanding {
            t.data();
        }
        t.wait(ms(60_000));
        t.link(LinkEvent::Down);
        t.wait(ms(3_000));
        t.link(UP);
        let mut pokes = t.wait(ms(50));
        pokes.retain(|made| made.packet.tcp().is_none());
        // The host's own TCP is poked if it has data to retransmit; otherwise the peer is, which may have some.
        let way = if outstanding { Direction::Incoming } else { Direction::Outgoing };
        // Its own TCP twice, in case a program was using the socket.
        assert_eq!(pokes.len(), if outstanding { 24 } else { 12 });
        assert!(pokes.iter().all(|poke| poke.direction == way));
    }
}

/// The carrier is lost first, the address later: the same cut is reported twice.
#[test]
fn a_second_down_changes_nothing() {
    let released = |second_ms: Option<u64>| {
        let mut t = Script::of(&hold_back(), 200);
        t.link(LinkEvent::Down);
        t.wait(ms(second_ms.unwrap_or(2_000)));
        if second_ms.is_some() {
            t.link(LinkEvent::Down);
        }
        t.wait(ms(3_000));
        t.link(UP);
        t.wait_for_acks(ms(1))
    };
    assert_eq!(released(None), [196_002, 200_001]);
    for second_ms in [0, 500, 2_000, 20_000] {
        assert_eq!(released(Some(second_ms)), released(None), "after {second_ms} ms");
    }
}

#[test]
fn up_without_down_means_something_only_if_the_host_has_moved() {
    for moved in [false, true] {
        let mut t = Script::of(&hold_back(), 200);
        t.link(LinkEvent::Up { symmetric: false, moved });
        let acks = t.wait_for_acks(ms(2));
        assert_eq!(acks, if moved { vec![196_002, 200_001] } else { vec![] });
    }
}

#[test]
fn recovered_while_down_is_not_up() {
    let mut t = Script::of(&hold_back(), 200);
    t.link(LinkEvent::Down);
    t.link(LinkEvent::Recovered);
    assert_eq!(t.wait_for_acks(ms(2_000)), [0; 0]);
    t.link(UP);
    assert_eq!(t.wait_for_acks(ms(1)), [196_002, 200_001]);
}

/// Packets arrive, although no source has reported link-up.
#[test]
fn packets_that_come_long_after_down_mean_up() {
    let mut t = Script::of(&hold_back(), 200);
    t.link(LinkEvent::Down);
    t.wait(ms(500));
    assert_eq!(t.exchange(), None, "they may have been on their way");
    t.wait(ms(5_000));
    t.data();
    assert_eq!(t.wait_for_acks(ms(1)), [201_001], "what was withheld, and nothing else");
    assert_eq!(t.ack(), Some(202_001));
}

/// A timetable's cut, some seconds early: packets arrive, then none, and then link-up is reported.
// Claim: An outage that was told too early, so that packets contradicted it, is one all the same; who objected is believed again.
// Tests: `tests::packets_overrule_a_source_that_reports_down`
#[test]
fn an_outage_that_was_told_too_early_is_one_all_the_same() {
    let mut t = Script::of(&hold_back(), 200);
    t.link(LinkEvent::Down);
    for _ in 0..3_000 {
        t.exchange();
    }
    assert!(t.ack().is_some_and(|ack| ack > 3_000_000), "it is taken for up");
    t.wait(ms(60_000));
    t.link(UP);
    let acks = t.wait_for_acks(ms(1));
    assert_eq!(acks.last(), Some(&t.data_end));
    // A repeated report changes nothing, and neither does one while packets have been arriving all the time.
    t.link(UP);
    assert!(t.wait(ms(1)).is_empty());
    t.link(LinkEvent::Down);
    for _ in 0..3_000 {
        t.exchange();
    }
    t.link(UP);
    assert!(t.wait(ms(5)).is_empty());
}

#[test]
fn nothing_is_said_before_link_up() {
    let wake = Mechanisms { wake: true, ..Mechanisms::default() };
    let mut t = Script::of(&wake, 200);
    t.link(LinkEvent::Down);
    t.data();
    assert_eq!(t.ack(), None);
    assert_eq!(t.wait(at_ms(60_000).saturating_since(t.now)), []);
}
