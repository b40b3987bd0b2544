//! Delayed duplicate ACKs, by packet scripts and on random traffic.

use holdover_base::Instant;
use holdover_filter::{Direction, SegmentFilter};
use holdover_mobility::delayed_dupacks::{DelayedDupacks, DelayedDupacksConfig, MOST_HELD};
use holdover_mobility::{Mechanisms, Verdict};
use holdover_wire::{Flags, Seq};
use proptest::prelude::*;

use crate::script::*;
use crate::support::ms;

/// The host has acknowledged 1000, and segments of 100 bytes arrive from 1100 on. d is 50 ms.
fn with_hole() -> Script {
    let config = DelayedDupacksConfig { delay: ms(50) };
    let mut script = Script::new(Mechanisms { delayed_dupacks: Some(config), ..Mechanisms::default() });
    script.peer(from_peer(900, 100));
    assert!(script.passes(from_host(1000, 500)).is_some());
    script.peer(from_peer(1100, 100));
    script
}

fn duplicate(script: &mut Script) -> bool {
    script.passes(from_host(1000, 500)).is_some()
}

#[test]
fn the_third_and_later_duplicates_wait_and_are_dropped_when_the_hole_is_filled() {
    let mut script = with_hole();
    let passed: Vec<bool> = (0..5).map(|_| duplicate(&mut script)).collect();
    assert_eq!(passed, [true, true, false, false, false]);
    script.at(30).peer(from_peer(1000, 100));
    assert!(script.passes(from_host(1600, 500)).is_some());
    assert_eq!(script.actions(), [(30, "dropped duplicates")]);
    script.at(1000);
    assert_eq!((script.sent().len(), script.next_deadline_ms()), (0, None));
    // A second hole restarts the delay.
    script.peer(from_peer(1700, 100));
    let passed: Vec<bool> = (0..3).map(|_| script.passes(from_host(1600, 500)).is_some()).collect();
    assert_eq!(passed, [true, true, false]);
}

#[test]
fn an_unfilled_hole_is_reported_after_the_delay() {
    let mut script = with_hole();
    for _ in 0..4 {
        duplicate(&mut script);
    }
    script.at(20);
    assert!(!duplicate(&mut script));
    script.timeout(50);
    assert_eq!(script.actions(), [(50, "released duplicates")]);
    let acks: Vec<Seq> = script.sent().iter().map(|segment| segment.ack).collect();
    assert_eq!(acks, [Seq::new(1000); 3]);
    assert!(duplicate(&mut script), "further ones pass at once");
}

/// No hole, other numbers, other windows, data, and FIN: none of these is delayed.
#[test]
fn other_acks_pass() {
    let config = DelayedDupacksConfig::default();
    let mut script = Script::new(Mechanisms { delayed_dupacks: Some(config), ..Mechanisms::default() });
    script.peer(from_peer(900, 100));
    assert!((0..5).all(|_| duplicate(&mut script)), "keep-alives are answered");
    let mut script = with_hole();
    assert!((0..2).all(|_| duplicate(&mut script)));
    assert!(script.passes(from_host(1000, 400)).is_some());
    assert!(script.passes(flags(from_host(1000, 400), Flags::FIN)).is_some());
    assert!(script.passes(change(from_host(1000, 400), |segment| segment.payload = vec![0; 10].into())).is_some());
    assert!(script.passes(on_port(from_host(1000, 500), 7)).is_some());
}

/// An ACK sent after the delay has the newest window.
#[test]
fn a_window_is_not_taken_back() {
    let mut script = with_hole();
    for _ in 0..3 {
        duplicate(&mut script);
    }
    assert!(script.passes(from_host(1000, 600)).is_some());
    script.timeout(50);
    assert_eq!(script.sent().iter().map(|segment| segment.window).collect::<Vec<_>>(), [600]);
}

#[test]
fn the_number_of_held_duplicates_is_bounded() {
    let mut script = with_hole();
    for _ in 0..MOST_HELD + 20 {
        duplicate(&mut script);
    }
    script.timeout(50);
    assert_eq!(script.sent().len(), MOST_HELD);
}

proptest! {
    /// Each ACK is sent at once, or within d, or dropped after one with a higher number was sent or more than [`MOST_HELD`] wait; and none
    /// is invented.
    #[test]
    fn no_ack_waits_longer_than_the_delay(
        ops in prop::collection::vec((0_u64..40, 0_u32..8, any::<bool>(), any::<bool>()), 1..300),
        delay in 1_u64..120,
    ) {
        let mut filter = DelayedDupacks::new(DelayedDupacksConfig { delay: ms(delay) });
        let mut now = Instant::ZERO;
        let mut ack = 1000_u32;
        let mut highest: Option<Seq> = None;
        let mut held: Vec<(Instant, Seq)> = Vec::new();
        for (wait, step, arrives, advances) in ops {
            let until = now + ms(wait);
            loop {
                let due = filter.poll_timeout().filter(|due| *due <= until);
                now = due.map_or(until, |due| due.max(now));
                if due.is_some() {
                    filter.handle_timeout(now);
                }
                while let Some(made) = filter.poll_transmit(now) {
                    let number = made.packet.tcp().expect("an ACK").ack;
                    let at = held.iter().position(|(_, ack)| *ack == number).expect("one that waits");
                    prop_assert!(now.saturating_since(held.remove(at).0) <= ms(delay));
                    prop_assert!(highest.is_none_or(|highest| highest == number), "an old ACK after a new one");
                }
                if due.is_none() {
                    break;
                }
            }
            prop_assert!(held.iter().all(|(since, _)| now.saturating_since(*since) <= ms(delay)));
            if arrives {
                let mut data = from_peer(ack + step * 100, 100);
                let _ = filter.handle_packet(now, Direction::Incoming, &mut data);
                continue;
            }
            ack += if advances { step * 100 } else { 0 };
            let mut packet = from_host(ack, 500);
            match filter.handle_packet(now, Direction::Outgoing, &mut packet) {
                Verdict::Pass => highest = Some(Seq::new(ack)),
                _ => held.push((now, Seq::new(ack))),
            }
            while let Some(dropped) = filter.poll_dropped() {
                let number = dropped.tcp().expect("an ACK").ack;
                prop_assert!(highest.is_some_and(|highest| highest.gt(number)));
                let at = held.iter().position(|(_, ack)| *ack == number).expect("one that waits");
                held.remove(at);
            }
        }
    }
}
