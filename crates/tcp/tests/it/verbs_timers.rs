//! The owner's verbs for timers: the effect of each, and what it leaves unchanged.

use holdover_base::Duration;
use holdover_tcp::{Event, Reason, Timer};

use crate::script::*;
use crate::verbs::ten_out;

/// A held timer is suspended; its remaining time runs after the release.
#[test]
fn hold_and_release_the_retransmission_timer() {
    let mut t = ten_out(plain());
    t.at(400);
    t.steer(|connection, now| connection.hold_timer(now, Timer::Retransmit));
    t.expect_no_timer(Timer::Retransmit);
    t.expect_nothing_until(50_000);
    t.steer(|connection, now| connection.release_timer(now, Timer::Retransmit));
    t.expect_timer(Timer::Retransmit, 50_600);
    t.at(50_600).expect(data(1, 1001).reason(Reason::Timeout));
    assert_eq!(t.connection.retransmits(), 1);
}

/// An ACK in the meantime restarts it, from the release on.
#[test]
fn a_held_timer_that_is_armed_again_runs_from_its_release() {
    let mut t = ten_out(plain());
    t.steer(|connection, now| connection.hold_timer(now, Timer::Retransmit));
    t.at(3000).inject(seg().ack(1001));
    t.forget_sent();
    t.expect_no_timer(Timer::Retransmit);
    let rto = t.connection.rto();
    t.at(9000);
    t.steer(|connection, now| connection.release_timer(now, Timer::Retransmit));
    assert_eq!(t.connection.deadline(Timer::Retransmit), Some(t.now() + rto));
    t.inject(seg().ack(12_001));
    t.forget_sent();
}

#[test]
fn hold_and_release_other_timers() {
    // Delayed ACK.
    let mut t = Script::established(plain());
    t.inject(seg().data(10));
    t.at(50);
    t.steer(|connection, now| connection.hold_timer(now, Timer::DelayedAck));
    t.expect_nothing_until(1000);
    t.steer(|connection, now| connection.release_timer(now, Timer::DelayedAck));
    t.at(1150).expect(ack(11).reason(Reason::DelayedAck));
    // Persist.
    let mut t = Script::established(plain());
    t.inject(seg().win(0));
    t.write(10);
    t.steer(|connection, now| connection.hold_timer(now, Timer::Persist));
    t.expect_nothing_until(100_000);
    t.steer(|connection, now| connection.release_timer(now, Timer::Persist));
    t.at(101_000).expect(data(1, 2).reason(Reason::WindowProbe));
    // User timeout.
    let mut config = plain();
    config.user_timeout.timeout = Some(Duration::from_secs(2));
    let mut t = Script::established(config);
    t.write(10);
    t.forget_sent();
    t.steer(|connection, now| connection.hold_timer(now, Timer::UserTimeout));
    t.at(1000).expect(data(1, 11));
    t.at(3000).expect(data(1, 11));
    t.steer(|connection, now| connection.release_timer(now, Timer::UserTimeout));
    t.expect_nothing_until(5000);
    t.expect_event(Event::Closed);
}

/// The present timeout restarts; backoff and windows stay unchanged.
#[test]
fn restart_retransmit_timer() {
    let mut t = ten_out(plain());
    let (cwnd, rto) = (t.connection.cwnd(), t.connection.rto());
    t.at(700);
    t.steer(|connection, now| assert!(connection.restart_retransmit_timer(now)));
    t.expect_nothing();
    t.expect_timer(Timer::Retransmit, 700 + rto.as_millis());
    t.at(700 + rto.as_millis()).expect(data(1, 1001).reason(Reason::Timeout));
    let (backoff, rto) = (t.connection.backoff(), t.connection.rto());
    assert_eq!(backoff, 1);
    t.at(2500);
    t.steer(|connection, now| assert!(connection.restart_retransmit_timer(now)));
    t.expect_timer(Timer::Retransmit, 2500 + rto.as_millis());
    assert_eq!((t.connection.backoff(), t.connection.rto()), (backoff, rto));
    assert!(t.connection.cwnd() <= cwnd);
    // Without outstanding data the timer is not armed.
    let mut t = Script::established(plain());
    t.steer(|connection, now| assert!(!connection.restart_retransmit_timer(now)));
    assert_eq!(t.connection.deadline(Timer::Retransmit), None);
}
