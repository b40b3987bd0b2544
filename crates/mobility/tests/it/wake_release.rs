//! Releasing what was held back when the link is up again, packet by packet.

use holdover_base::Duration;
use holdover_mobility::{Direction, LinkEvent};
use holdover_wire::UserTimeout;

use crate::support::ms;
use crate::wake_script::{Script, UP, hold_back, relative};

/// One byte inside the first segment, then everything. Each echoes the current time of the peer's clock.
#[test]
fn the_release_has_two_steps() {
    let mut t = Script::of(&hold_back(), 200);
    t.link(LinkEvent::Down);
    assert_eq!(t.wait(ms(10_000)), [], "no flush into a dead link");
    t.link(UP);
    assert_eq!(t.wait(Duration::from_micros(999)), []);
    let made = t.wait(ms(1));
    let acks: Vec<u32> =
        made.iter().filter_map(|made| made.packet.tcp()).map(|segment| relative(segment.ack)).collect();
    let (last, ladder) = acks.split_last().unwrap();
    assert_eq!(*last, 200_001);
    assert_eq!(ladder, [196_001 + 1], "an ACK came each ms: too many for a ladder");
    let clock = t.peer_clock() - 1;
    for made in &made {
        let segment = made.packet.tcp().unwrap();
        let echo = segment.options.timestamps.unwrap().ecr;
        assert!((clock - 10..=clock + 1).contains(&echo), "{echo}");
        assert!(segment.is_pure_ack() && segment.options.sack.is_empty());
        assert_eq!(made.direction, Direction::Outgoing);
    }
    assert_eq!(t.wait(ms(50)), [], "an answer takes a round trip");
}

#[test]
fn an_echo_from_before_the_outage_is_refreshed_for_a_second() {
    let echo = |after_ms| {
        let mut t = Script::of(&hold_back(), 200);
        let stale = t.ack_segment();
        t.link(LinkEvent::Down);
        t.wait(ms(3_000));
        t.link(UP);
        t.wait(ms(2));
        t.data();
        t.wait(ms(after_ms));
        let passed = t.pass(Direction::Outgoing, stale.clone()).unwrap();
        passed.options.timestamps.unwrap().ecr - stale.options.timestamps.unwrap().ecr
    };
    assert!((3_000..3_060).contains(&echo(50)));
    assert_eq!(echo(1_000), 0);
}

#[test]
fn for_a_second_after_link_up_nothing_is_held() {
    let mut t = Script::of(&hold_back(), 200);
    t.link(LinkEvent::Down);
    t.link(UP);
    t.wait(ms(2));
    assert_eq!(t.exchange(), Some(201_001));
    t.wait(ms(1_000));
    assert_eq!([(); 4].map(|()| t.exchange()), [None; 4]);
    assert_eq!(t.exchange(), Some(206_001 - 4_000));
}

#[test]
fn data_that_comes_by_itself_is_left_alone() {
    let mut t = Script::of(&hold_back(), 200);
    t.link(LinkEvent::Down);
    t.wait(ms(3_000));
    t.link(UP);
    t.data();
    assert_eq!(t.ack(), Some(201_001));
    assert_eq!(t.wait(ms(1_000)), []);
}

/// The option may be sent only once.
#[test]
fn an_ack_with_an_option_of_its_own_is_not_swallowed() {
    let mut t = Script::of(&hold_back(), 200);
    t.link(LinkEvent::Down);
    t.wait(ms(3_000));
    t.link(UP);
    let mut segment = t.ack_segment();
    segment.options.user_timeout = UserTimeout::from_duration(Duration::from_secs(60));
    let passed = t.pass(Direction::Outgoing, segment.clone()).expect("it passes");
    assert_eq!((passed.options.user_timeout, relative(passed.ack)), (segment.options.user_timeout, 196_001));
}
