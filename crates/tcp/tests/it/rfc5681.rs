//! RFC 5681, congestion control: slow start, congestion avoidance, fast retransmit and fast recovery, idle connections and ACKs.
//! Its basic fast recovery, which the first ACK of new data ends, is [`LossDetection::Reno`]; NewReno is in `rfc6582`.

use holdover_base::Duration;
use holdover_tcp::{AckCounting, Config, InitialWindow, LossDetection, Reason, RecoveryState, Reduction, Timer};

use crate::script::*;

/// RFC 5681 without later extensions.
fn rfc5681() -> Config {
    let mut config = plain();
    config.recovery.without_sack = LossDetection::Reno;
    config.recovery.reduction = Reduction::Immediate;
    config.recovery.limited_transmit = false;
    config.recovery.frto = false;
    config.recovery.undo = false;
    config.recovery.bar_after_timeout = false;
    config
}

/// A connection with 10 segments outstanding since 0 ms and 10 more to send; the window of the peer is `win`.
fn ten_out(mut config: Config, win: u32) -> Script {
    config.congestion.initial_window = InitialWindow::Segments(10);
    let mut t = Script::established(config);
    t.inject(seg().win(win));
    t.write(20_000);
    t.expect_segments(1, 10_001, Reason::NewData);
    t
}

#[test]
fn rfc5681_3_1_the_initial_window_bounds_the_first_flight() {
    for (initial_window, segments) in
        [(InitialWindow::Segments(1), 1), (InitialWindow::Rfc3390, 4), (InitialWindow::Rfc6928, 10)]
    {
        let mut config = rfc5681();
        config.congestion.initial_window = initial_window;
        let mut t = Script::established(config);
        t.expect_cwnd(segments, None);
        t.write(20_000);
        t.expect_segments(1, 1 + i64::from(segments) * 1000, Reason::NewData);
        t.expect_nothing_until(999);
        t.forget_sent();
    }
}

/// "Both the SYN/ACK and the acknowledgment of the SYN/ACK must not increase the size of the congestion window."
#[test]
fn rfc5681_3_1_the_handshake_does_not_open_the_window() {
    let mut t = Script::accept(rfc5681(), syn());
    t.expect(our_syn_ack());
    t.inject(seg().ack(1));
    t.expect_cwnd(10, None);
    Script::established(rfc5681()).expect_cwnd(10, None);
}

/// After a lost SYN or SYN-ACK the window is one segment.
#[test]
fn rfc5681_3_1_after_a_lost_syn_the_window_is_one_segment() {
    let mut t = Script::connect(rfc5681());
    t.expect(our_syn());
    t.expect_at(1000, our_syn());
    t.at(1010).inject(syn_ack());
    t.expect(ack(1));
    t.expect_cwnd(1, None);
    let mut t = Script::accept(rfc5681(), syn());
    t.expect(our_syn_ack());
    t.expect_at(1000, our_syn_ack());
    t.inject(seg().ack(1));
    t.expect_cwnd(1, None);
    t.write(3000);
    t.expect(data(1, 1001));
    t.inject(seg().ack(1001));
    t.expect_segments(1001, 3001, Reason::NewData);
    t.inject(seg().ack(3001));
}

/// Equation 2: by at most one segment for each ACK of new data.
#[test]
fn rfc5681_3_1_slow_start_by_acks() {
    let mut config = rfc5681();
    config.congestion.initial_window = InitialWindow::Segments(2);
    config.congestion.counting = AckCounting::PerAck;
    let mut t = Script::established(config);
    t.write(20_000);
    t.expect_segments(1, 2001, Reason::NewData);
    t.inject(seg().ack(1001));
    t.expect_segments(2001, 4001, Reason::NewData);
    t.expect_cwnd(3, None);
    t.inject(seg().ack(4001));
    t.expect_cwnd(4, None);
    t.expect_segments(4001, 8001, Reason::NewData);
    t.inject(seg().ack(8001));
    t.expect_cwnd(5, None);
    t.expect_segments(8001, 13_001, Reason::NewData);
    t.inject(seg().ack(13_001));
    t.forget_sent();
}

/// Appropriate byte counting (RFC 3465): the window opens by the acknowledged data.
#[test]
fn rfc3465_slow_start_by_what_is_acknowledged() {
    let mut config = rfc5681();
    config.congestion.initial_window = InitialWindow::Segments(2);
    let mut t = Script::established(config);
    t.write(30_000);
    t.expect_segments(1, 2001, Reason::NewData);
    t.inject(seg().ack(2001));
    t.expect_cwnd(4, None);
    t.expect_segments(2001, 6001, Reason::NewData);
    t.inject(seg().ack(6001));
    t.expect_cwnd(8, None);
    t.expect_segments(6001, 14_001, Reason::NewData);
    // An ACK inside a segment does not open the window.
    t.inject(seg().ack(6501));
    t.expect_cwnd(8, None);
    t.expect_nothing();
}

/// Equation 3: by one segment in a round trip.
#[test]
fn rfc5681_3_1_congestion_avoidance() {
    let mut t = Script::established(rfc5681());
    t.steer(|connection, _| {
        connection.set_cwnd(4);
        connection.set_ssthresh(4);
    });
    let (mut acked, mut cwnd) = (1, 4);
    t.write(100_000);
    t.expect_segments(1, 4001, Reason::NewData);
    for _ in 0..5 {
        for n in 1..=cwnd {
            acked += 1000;
            t.inject(seg().ack(acked));
            t.expect_cwnd(cwnd + u32::from(n == cwnd), Some(4));
            t.forget_sent();
        }
        cwnd += 1;
    }
}

/// An unused window gives no information about the path.
#[test]
fn the_congestion_window_does_not_grow_unused() {
    let mut t = Script::established(rfc5681());
    for n in 0..20 {
        t.write(1000);
        t.expect(data(1 + n * 1000, 1001 + n * 1000));
        t.inject(seg().ack(1001 + n * 1000));
        t.expect_cwnd(10, None);
    }
}

/// Equation 4, and the loss window of one segment.
#[test]
fn rfc5681_3_1_a_timeout_cuts_to_one_segment_and_ssthresh_to_half_the_flight() {
    let mut t = ten_out(rfc5681(), 20_000);
    t.expect_at(1000, data(1, 1001).reason(Reason::Timeout));
    t.expect_cwnd(1, Some(5));
    assert_eq!(t.connection.recovery_state(), RecoveryState::Loss);
    assert_eq!(t.connection.counters().timeouts, 1);
}

/// "At least 2*SMSS", and FlightSize rather than cwnd.
#[test]
fn rfc5681_3_1_ssthresh_comes_from_the_flight_and_has_a_floor() {
    for (written, ssthresh) in [(1000, 2), (3000, 2), (6000, 3), (7000, 3), (9000, 4)] {
        let mut t = Script::established(rfc5681());
        t.write(written);
        t.expect_segments(1, 1 + written as i64, Reason::NewData);
        t.expect_at(1000, data(1, 1001).reason(Reason::Timeout));
        t.expect_cwnd(1, Some(ssthresh));
    }
}

/// "When ... the retransmission timer ... has already been retransmitted ... at least once, the value of ssthresh is held
/// constant."
#[test]
fn rfc5681_3_1_ssthresh_is_cut_once_for_a_segment() {
    let mut t = ten_out(rfc5681(), 20_000);
    for (at, cut) in [(1000, 5), (3000, 5), (7000, 5)] {
        t.expect_at(at, data(1, 1001).reason(Reason::Timeout));
        t.expect_cwnd(1, Some(cut));
    }
}

/// After a timeout slow start goes up to ssthresh, then congestion avoidance; the outstanding data is retransmitted.
#[test]
fn rfc5681_3_1_after_a_timeout_slow_start_goes_up_to_ssthresh() {
    let mut t = ten_out(rfc5681(), 20_000);
    t.expect_at(1000, data(1, 1001).reason(Reason::Timeout));
    t.inject(seg().ack(1001));
    t.expect_cwnd(2, Some(5));
    t.expect_segments(1001, 3001, Reason::LossRecovery);
    t.inject(seg().ack(2001));
    t.expect_segments(3001, 5001, Reason::LossRecovery);
    t.inject(seg().ack(3001));
    t.expect_segments(5001, 7001, Reason::LossRecovery);
    t.inject(seg().ack(4001));
    t.expect_cwnd(5, Some(5));
    t.expect_segments(7001, 9001, Reason::LossRecovery);
    t.inject(seg().ack(5001));
    t.expect_cwnd(5, Some(5));
    t.expect_segments(9001, 10_001, Reason::LossRecovery);
    t.inject(seg().ack(10_001));
    t.expect_cwnd(6, Some(5));
    t.expect_segments(10_001, 16_001, Reason::NewData);
    assert_eq!(t.connection.recovery_state(), RecoveryState::Open);
}

/// Section 2 defines a duplicate ACK. None of these is one.
#[test]
fn rfc5681_2_what_is_no_duplicate_ack() {
    // (a) no data is outstanding.
    let mut t = Script::established(rfc5681());
    (0..5).for_each(|_| t.inject(seg()));
    t.expect_cwnd(10, None);
    // (b) it carries data, (c) a FIN.
    let mut t = ten_out(rfc5681(), 20_000);
    for _ in 0..2 {
        t.inject(seg().data(1000));
        t.inject(seg().data(1000));
        let nxt = t.rcv_nxt();
        t.expect(ack(nxt));
    }
    t.inject(fin());
    t.expect(ack(4002));
    t.expect_cwnd(10, None);
    // (d) its ACK number is below SND.UNA.
    let mut t = ten_out(rfc5681(), 20_000);
    t.inject(seg().ack(1001));
    t.forget_sent();
    (0..5).for_each(|_| t.inject(seg().ack(1)));
    t.expect_cwnd(11, None);
    // (e) it changes the window.
    let mut t = ten_out(rfc5681(), 20_000);
    (1..6).for_each(|n| t.inject(seg().win(20_000 - n)));
    t.expect_cwnd(10, None);
}

/// Steps 2 and 3: the third duplicate, not the second, retransmits; ssthresh is half the flight, and the window is ssthresh plus
/// the segments that the duplicates report as delivered.
#[test]
fn rfc5681_3_2_the_third_duplicate_retransmits() {
    let mut t = ten_out(rfc5681(), 20_000);
    t.at(100).inject(seg());
    t.inject(seg());
    t.expect_nothing();
    t.expect_cwnd(10, None);
    t.inject(seg());
    t.expect(data(1, 1001).reason(Reason::FastRetransmit));
    t.expect_cwnd(5, Some(5));
    assert_eq!(t.connection.recovery_state(), RecoveryState::Recovery);
    assert_eq!(t.connection.in_flight(), 7, "ten, less three that arrived; one lost and sent again");
    t.expect_timer(Timer::Retransmit, 1100);
}

/// Three consecutive ones: an ACK of new data restarts the count.
#[test]
fn rfc5681_3_2_duplicates_are_counted_from_the_last_ack_of_new_data() {
    let mut t = Script::established(rfc5681());
    t.write(1000);
    t.expect(data(1, 1001));
    t.inject(seg());
    t.inject(seg().ack(1001));
    t.write(10_000);
    t.expect_segments(1001, 11_001, Reason::NewData);
    t.inject(seg().ack(1001));
    t.inject(seg().ack(1001));
    t.expect_nothing();
    t.inject(seg().ack(1001));
    t.expect(data(1001, 2001).reason(Reason::FastRetransmit));
}

/// Steps 4 and 5: each further duplicate reports a delivered segment; beyond half the flight each sends new data.
#[test]
fn rfc5681_3_2_further_duplicates_clock_out_new_data() {
    let mut t = ten_out(rfc5681(), 20_000);
    (0..3).for_each(|_| t.inject(seg()));
    t.expect(data(1, 1001).reason(Reason::FastRetransmit));
    (0..2).for_each(|_| t.inject(seg()));
    t.expect_nothing();
    for n in 0..4 {
        t.inject(seg());
        t.expect(data(10_001 + n * 1000, 11_001 + n * 1000).reason(Reason::NewData));
    }
}

/// Step 5 respects the peer's window too.
#[test]
fn rfc5681_3_2_new_data_in_recovery_stays_in_the_window() {
    let mut t = ten_out(rfc5681(), 11_000);
    (0..3).for_each(|_| t.inject(seg()));
    t.expect(data(1, 1001));
    (0..3).for_each(|_| t.inject(seg()));
    t.expect(data(10_001, 11_001).reason(Reason::NewData));
    (0..3).for_each(|_| t.inject(seg()));
    t.expect_nothing();
}

/// Step 6: the ACK of new data deflates the window to ssthresh.
#[test]
fn rfc5681_3_2_an_ack_of_new_data_ends_fast_recovery() {
    let mut t = ten_out(rfc5681(), 20_000);
    for _ in 0..9 {
        t.inject(seg());
        t.forget_sent();
    }
    t.inject(seg().ack(10_001));
    assert_eq!(t.connection.recovery_state(), RecoveryState::Open);
    // 4 segments were sent in recovery; the window of 5 leaves room for one.
    t.expect_cwnd(5, Some(5));
    t.expect(data(14_001, 15_001).reason(Reason::NewData));
    assert_eq!(t.connection.counters().recoveries, 1);
}

/// An ACK inside the retransmitted segment is of new data too. The rest of the segment needs three more duplicates, which count although a
/// bar is set after timeouts: there was none.
#[test]
fn rfc5681_3_2_an_ack_inside_a_segment_ends_fast_recovery() {
    for bar_after_timeout in [false, true] {
        let mut config = rfc5681();
        config.recovery.bar_after_timeout = bar_after_timeout;
        let mut t = ten_out(config, 20_000);
        (0..3).for_each(|_| t.inject(seg()));
        t.expect(data(1, 1001).reason(Reason::FastRetransmit));
        t.inject(seg().ack(501));
        assert_eq!(t.connection.recovery_state(), RecoveryState::Open, "bar {bar_after_timeout}");
        assert_eq!(t.connection.in_flight(), 10);
        t.expect_cwnd(5, Some(5));
        (0..2).for_each(|_| t.inject(seg()));
        t.expect_nothing();
        t.inject(seg());
        t.expect(data(501, 1001).reason(Reason::FastRetransmit));
    }
}

/// The flight from which ssthresh is computed excludes the segments of limited transmit.
#[test]
fn rfc5681_3_2_ssthresh_does_not_count_limited_transmit() {
    let mut config = rfc5681();
    config.recovery.limited_transmit = true;
    let mut t = ten_out(config, 20_000);
    t.inject(seg());
    t.expect(data(10_001, 11_001).reason(Reason::LimitedTransmit));
    t.inject(seg());
    t.expect(data(11_001, 12_001).reason(Reason::LimitedTransmit));
    t.expect_cwnd(10, None);
    t.inject(seg());
    t.expect(data(1, 1001).reason(Reason::FastRetransmit));
    t.expect_cwnd(5, Some(5));
}

/// Without new data below the threshold there is no recovery: three outstanding segments cause at most two duplicates.
#[test]
fn rfc5681_3_2_too_few_duplicates_wait_for_the_timer() {
    let mut t = Script::established(rfc5681());
    t.write(3000);
    t.expect_segments(1, 3001, Reason::NewData);
    t.at(50).inject(seg());
    t.inject(seg());
    t.expect_nothing_until(999);
    t.expect_at(1000, data(1, 1001).reason(Reason::Timeout));
}

/// Section 4.1: after more than an RTO without transmissions, the window is the restart window.
#[test]
fn rfc5681_4_1_idle_connections_restart_with_the_restart_window() {
    let busy = |idle: u64| {
        let mut t = ten_out(rfc5681(), 60_000);
        for n in 0..20 {
            t.inject(seg().ack(1001 + n * 1000));
            t.forget_sent();
        }
        let (cwnd, ssthresh) = (t.connection.cwnd(), t.connection.ssthresh());
        assert!(cwnd > 15);
        t.at(idle);
        t.write(30_000);
        assert_eq!(t.connection.ssthresh(), ssthresh);
        (t.connection.unacked(), cwnd, t)
    };
    let (sent, cwnd, mut t) = busy(1000);
    assert_eq!(sent, cwnd, "one RTO is not too long");
    t.forget_sent();
    let (sent, _, mut t) = busy(1001);
    assert_eq!(sent, 10);
    t.forget_sent();
}

/// Section 4.1: the restart window is at most the former window.
#[test]
fn rfc5681_4_1_the_restart_window_is_no_more_than_the_window_was() {
    let mut t = Script::established(rfc5681());
    t.steer(|connection, _| connection.set_cwnd(3));
    t.at(60_000).write(10_000);
    t.expect_segments(1, 3001, Reason::NewData);
}

/// Section 4.2: an ACK for at least every second full-sized segment, within 500 ms.
#[test]
fn rfc5681_4_2_delayed_acks() {
    let mut t = Script::established(rfc5681());
    t.at(10).inject(seg().data(1000));
    t.expect_timer(Timer::DelayedAck, 210);
    t.at(20).inject(seg().data(1000));
    t.expect(ack(2001).reason(Reason::Ack));
    t.expect_no_timer(Timer::DelayedAck);
    t.at(30).inject(seg().data(1000));
    t.expect_at(230, ack(3001).reason(Reason::DelayedAck));
    // Small segments count by bytes: twice a full segment's worth.
    for n in 1..=19 {
        t.inject(seg().data(100));
        assert_eq!(t.connection.deadline(Timer::DelayedAck), Some(t.instant(430)), "{n}");
    }
    t.inject(seg().data(100));
    t.expect(ack(5001).reason(Reason::Ack));
    t.read(5000);
    t.expect_nothing_until(2000);
}

/// The largest segment that has arrived defines a full-sized one, whatever the maximum size.
#[test]
fn rfc5681_4_2_full_sized_is_what_the_peer_sends() {
    let mut t = Script::established(rfc5681());
    t.inject(seg().data(700));
    t.inject(seg().data(700));
    t.expect(ack(1401).reason(Reason::Ack));
}

#[test]
fn rfc5681_4_2_data_carries_the_ack() {
    let mut t = Script::established(rfc5681());
    t.inject(seg().data(500));
    t.write(100);
    t.expect(data(1, 101).ack(501));
    t.expect_no_timer(Timer::DelayedAck);
    t.inject(seg().ack(101));
    t.expect_nothing_until(3000);
}

/// Section 4.2: at once when a segment is out of order, and when it fills all or part of a gap.
#[test]
fn rfc5681_4_2_gaps_are_acknowledged_at_once() {
    let mut t = Script::established(rfc5681());
    for from in [2001, 4001, 6001] {
        t.inject(seg().seq(from).data(1000));
        t.expect(ack(1).reason(Reason::DuplicateAck));
    }
    t.inject(seg().seq(1).data(500));
    t.expect(ack(501).reason(Reason::GapFilled));
    t.inject(seg().data(1500));
    t.expect(ack(3001).reason(Reason::GapFilled));
    t.inject(seg().data(1000));
    t.expect(ack(5001).reason(Reason::GapFilled));
    t.inject(seg().data(1000));
    t.expect(ack(7001).reason(Reason::GapFilled));
    t.inject(seg().data(1000));
    t.expect_timer(Timer::DelayedAck, 200);
    t.read(8000);
    t.expect_at(200, ack(8001));
}

/// Section 4.2: no ACK for an ACK, and at most one for a segment.
#[test]
fn rfc5681_4_2_acks_are_not_acknowledged() {
    let mut t = ten_out(rfc5681(), 20_000);
    t.inject(seg().win(19_000));
    t.inject(seg().win(18_000));
    t.expect_nothing();
    assert_eq!(t.connection.srtt(), Some(Duration::from_micros(1)));
}

/// Section 4.3: a second loss in the window does not halve ssthresh again while recovery lasts.
#[test]
fn rfc5681_4_3_one_reduction_for_a_window() {
    let mut config = rfc5681();
    config.recovery.without_sack = LossDetection::NewReno;
    let mut t = ten_out(config, 10_000);
    (0..3).for_each(|_| t.inject(seg()));
    t.expect(data(1, 1001).reason(Reason::FastRetransmit));
    t.inject(seg().ack(3001).win(7999));
    t.expect(data(3001, 4001).reason(Reason::LossRecovery));
    t.expect_cwnd(5, Some(5));
    assert_eq!(t.connection.counters().recoveries, 1);
}
