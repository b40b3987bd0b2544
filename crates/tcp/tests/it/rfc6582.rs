//! RFC 6582, NewReno: partial and full acknowledgments, and the bar on a second fast retransmit. And RFC 3042, limited transmit.

use holdover_tcp::{Config, LossDetection, Reason, RecoveryState, Reduction, Timer};

use crate::script::*;

fn newreno() -> Config {
    let mut config = plain();
    config.recovery.without_sack = LossDetection::NewReno;
    config.recovery.reduction = Reduction::Immediate;
    config.recovery.limited_transmit = false;
    config.recovery.frto = false;
    config.recovery.undo = false;
    config
}

/// Ten segments outstanding since 0 ms with ten more to send, and the third duplicate at 100 ms.
fn in_recovery(config: Config) -> Script {
    let mut t = Script::established(config);
    t.write(20_000);
    t.expect_segments(1, 10_001, Reason::NewData);
    t.at(100);
    (0..3).for_each(|_| t.inject(seg()));
    t.expect(data(1, 1001).reason(Reason::FastRetransmit));
    t.expect_cwnd(5, Some(5));
    t
}

/// Section 3.2 step 3: each partial ACK retransmits the next hole at once, and recovery continues.
#[test]
fn rfc6582_3_2_partial_acks_repair_one_hole_each() {
    let mut t = in_recovery(newreno());
    for hole in [2001, 5001, 7001] {
        let now = t.millis() + 100;
        t.at(now).inject(seg().ack(hole));
        t.expect(data(hole, hole + 1000).reason(Reason::LossRecovery));
        t.forget_sent();
        assert_eq!(t.connection.recovery_state(), RecoveryState::Recovery);
        t.expect_cwnd(5, Some(5));
        // Progress is slow but steady: every partial ACK restarts the timer.
        t.expect_timer(Timer::Retransmit, now + 1000);
    }
    assert_eq!(t.connection.counters().recoveries, 1);
}

/// An ACK inside the retransmitted segment is a partial one too, and only the missing part is sent.
#[test]
fn rfc6582_3_2_a_partial_ack_inside_a_segment() {
    let mut t = in_recovery(newreno());
    t.inject(seg().ack(401));
    t.expect(data(401, 1001).reason(Reason::LossRecovery));
    t.expect_nothing();
}

/// ... but where the window decreases with delivered data, the copy in flight has to suffice (Linux `tcp_newreno_mark_lost`).
#[test]
fn rfc6582_3_2_a_partial_ack_inside_a_segment_sends_no_second_copy() {
    let mut config = newreno();
    config.recovery.reduction = Reduction::Proportional;
    let mut t = Script::established(config);
    t.write(10_000);
    t.expect_segments(1, 10_001, Reason::NewData);
    t.at(100);
    (0..3).for_each(|_| t.inject(seg()));
    t.expect(data(1, 1001).reason(Reason::FastRetransmit));
    for point in [401, 402, 700] {
        t.inject(seg().ack(point));
        t.expect_nothing();
    }
    // The next hole is retransmitted once less than ssthresh is in flight.
    t.inject(seg().ack(1001));
    t.expect_nothing();
    t.inject(seg().ack(1001));
    t.expect(data(1001, 2001).reason(Reason::LossRecovery));
}

/// Section 3.2 step 3, full acknowledgment: the window is ssthresh and recovery ends.
#[test]
fn rfc6582_3_2_a_full_ack_ends_recovery() {
    let mut t = in_recovery(newreno());
    t.inject(seg().ack(10_001));
    t.expect_cwnd(5, Some(5));
    t.expect_segments(10_001, 15_001, Reason::NewData);
    // Duplicates caused by the retransmissions do not begin another recovery for the same window.
    (0..3).for_each(|_| t.inject(seg()));
    assert_eq!(t.connection.counters().recoveries, 1);
    t.forget_sent();
}

/// Section 3.2 step 1: beyond the recovery point three duplicates are a new loss.
#[test]
fn rfc6582_3_2_duplicates_beyond_recover_begin_a_new_recovery() {
    let mut t = in_recovery(newreno());
    t.inject(seg().ack(10_001));
    t.expect_segments(10_001, 15_001, Reason::NewData);
    t.inject(seg().ack(11_001));
    t.expect(data(15_001, 16_001));
    (0..3).for_each(|_| t.inject(seg()));
    t.expect(data(11_001, 12_001).reason(Reason::FastRetransmit));
    assert_eq!(t.connection.counters().recoveries, 2);
    t.expect_cwnd(2, Some(2));
}

/// Section 3.2 step 4: after a timeout, duplicates of data that was outstanding then do not count.
#[test]
fn rfc6582_3_2_after_a_timeout_old_duplicates_are_barred() {
    let mut t = Script::established(newreno());
    t.write(20_000);
    t.expect_segments(1, 10_001, Reason::NewData);
    t.expect_at(1000, data(1, 1001).reason(Reason::Timeout));
    (0..5).for_each(|_| t.inject(seg()));
    t.expect_nothing();
    assert_eq!((t.connection.counters().recoveries, t.connection.recovery_state()), (0, RecoveryState::Loss));
    t.expect_cwnd(1, Some(5));
}

/// 4.3BSD counts them.
#[test]
fn without_the_bar_old_duplicates_begin_a_recovery_after_a_timeout() {
    let mut config = newreno();
    config.recovery.bar_after_timeout = false;
    config.recovery.without_sack = LossDetection::Reno;
    let mut t = Script::established(config);
    t.write(20_000);
    t.expect_segments(1, 10_001, Reason::NewData);
    t.expect_at(1000, data(1, 1001).reason(Reason::Timeout));
    (0..3).for_each(|_| t.inject(seg()));
    t.expect(data(1, 1001).reason(Reason::FastRetransmit));
    t.forget_sent();
    assert_eq!(t.connection.counters().recoveries, 1);
}

/// The timer expires in recovery.
#[test]
fn rfc6582_3_2_a_timeout_ends_recovery() {
    let mut t = in_recovery(newreno());
    t.inject(seg().ack(3001));
    t.expect(data(3001, 4001));
    t.forget_sent();
    t.expect_at(1100, data(3001, 4001).reason(Reason::Timeout));
    assert_eq!(t.connection.recovery_state(), RecoveryState::Loss);
    t.expect_cwnd(1, t.connection.ssthresh());
    t.inject(seg().ack(4001));
    t.expect(data(4001, 5001).reason(Reason::LossRecovery));
    t.expect(data(5001, 6001).reason(Reason::LossRecovery));
}

/// RFC 3042 section 2: each of the first two duplicates sends one new segment; the window does not change.
#[test]
fn rfc3042_2_the_first_two_duplicates_send_new_data() {
    let mut config = newreno();
    config.recovery.limited_transmit = true;
    let mut t = Script::established(config);
    t.write(20_000);
    t.expect_segments(1, 10_001, Reason::NewData);
    t.inject(seg());
    t.expect(data(10_001, 11_001).reason(Reason::LimitedTransmit));
    t.inject(seg());
    t.expect(data(11_001, 12_001).reason(Reason::LimitedTransmit));
    t.expect_cwnd(10, None);
    // Data that the duplicates reported as arrived does not open the window again (Linux `tcp_remove_reno_sacks`).
    t.inject(seg().ack(12_001));
    t.expect_cwnd(20, None);
    t.forget_sent();
}

/// ... as far as the peer's window permits, and if there is new data.
#[test]
fn rfc3042_2_within_the_window_of_the_peer() {
    let mut config = newreno();
    config.recovery.limited_transmit = true;
    let mut t = Script::established(config);
    t.inject(seg().win(11_000));
    t.write(20_000);
    t.expect_segments(1, 10_001, Reason::NewData);
    t.inject(seg());
    t.expect(data(10_001, 11_001).reason(Reason::LimitedTransmit));
    t.inject(seg());
    t.expect_nothing();
}

/// With SACK, only a duplicate that SACKs new data counts.
#[test]
fn rfc3042_2_with_sack_a_duplicate_has_to_bring_news() {
    let mut config = newreno();
    config.sack = true;
    config.recovery.with_sack = LossDetection::Sack;
    config.recovery.limited_transmit = true;
    let mut t = Script::established(config);
    t.write(20_000);
    t.expect_segments(1, 10_001, Reason::NewData);
    t.inject(seg());
    t.expect_nothing();
    t.inject(seg().sack(&[(1001, 2001)]));
    t.expect(data(10_001, 11_001).reason(Reason::LimitedTransmit));
    t.inject(seg().sack(&[(1001, 2001)]));
    t.expect_nothing();
}
