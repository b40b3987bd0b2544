//! RFC 6675, loss recovery based on SACK, and section 8 of RFC 2018, reneging: the sender's side. [`LossDetection::Sack`] with
//! segments instead of bytes.

use holdover_tcp::{Config, LossDetection, Reason, RecoveryState, Reduction, Timer};

use crate::script::*;

fn rfc6675() -> Config {
    let mut config = plain();
    config.sack = true;
    config.recovery.with_sack = LossDetection::Sack;
    config.recovery.reduction = Reduction::Immediate;
    config.recovery.limited_transmit = false;
    config.recovery.loss_probe = false;
    config.recovery.frto = false;
    config.recovery.undo = false;
    config
}

/// Ten segments outstanding since 0 ms and ten more to send.
fn ten_out(config: Config) -> Script {
    let mut t = Script::established(config);
    t.write(20_000);
    t.expect_segments(1, 10_001, Reason::NewData);
    t
}

/// Section 5: DupThresh duplicates that SACK new data.
#[test]
fn rfc6675_5_three_segments_sacked_above_begin_recovery() {
    let mut t = ten_out(rfc6675());
    t.at(100).inject(seg().sack(&[(1001, 2001)]));
    t.inject(seg().sack(&[(1001, 3001)]));
    t.expect_nothing();
    assert_eq!(t.connection.recovery_state(), RecoveryState::Disorder);
    t.inject(seg().sack(&[(1001, 4001)]));
    t.expect(data(1, 1001).reason(Reason::FastRetransmit));
    assert_eq!(t.connection.recovery_state(), RecoveryState::Recovery);
    t.expect_cwnd(5, Some(5));
    assert_eq!((t.connection.sacked(), t.connection.lost(), t.connection.in_flight()), (3, 1, 7));
    t.expect_timer(Timer::Retransmit, 1100);
}

/// Section 4, IsLost: one ACK can show the loss, by the segments above.
#[test]
fn rfc6675_4_is_lost_by_one_ack() {
    let mut t = ten_out(rfc6675());
    t.inject(seg().sack(&[(1001, 4001)]));
    t.expect(data(1, 1001).reason(Reason::FastRetransmit));
}

/// SACKed segments need not be adjacent.
#[test]
fn rfc6675_4_is_lost_by_discontiguous_blocks() {
    let mut t = ten_out(rfc6675());
    t.inject(seg().sack(&[(1001, 2001), (3001, 4001)]));
    t.expect_nothing();
    t.inject(seg().sack(&[(5001, 6001), (1001, 2001), (3001, 4001)]));
    t.expect(data(1, 1001).reason(Reason::FastRetransmit));
    assert_eq!(t.connection.lost(), 1, "2001 has only two above it");
}

/// Section 5, (C): holes are repaired as the pipe allows, before anything new (NextSeg 1 and 2).
#[test]
fn rfc6675_5_the_pipe_decides() {
    let mut t = ten_out(rfc6675());
    // 1, 3001 and 5001 are missing; 7001 and up have arrived.
    t.inject(seg().sack(&[(7001, 10_001), (3001 + 1000, 5001), (1001, 3001)]));
    t.expect(data(1, 1001).reason(Reason::FastRetransmit));
    // In flight is the retransmission; 6001 is below three SACKed segments, so all holes are lost.
    t.expect(data(3001, 4001).reason(Reason::LossRecovery));
    t.expect(data(5001, 6001).reason(Reason::LossRecovery));
    t.expect(data(6001, 7001).reason(Reason::LossRecovery));
    t.expect(data(10_001, 11_001).reason(Reason::NewData));
    t.expect_nothing();
    t.expect_cwnd(5, Some(5));
    // Each arrival makes room for one.
    t.inject(seg().sack(&[(10_001, 11_001), (7001, 10_001), (4001, 5001), (1001, 3001)]));
    t.expect(data(11_001, 12_001).reason(Reason::NewData));
    t.inject(seg().ack(3001).sack(&[(7001, 11_001), (4001, 5001)]));
    t.expect(data(12_001, 13_001));
    t.expect_nothing();
}

/// Section 5, (B) and the end: partial ACKs leave the window unchanged, the recovery point ends recovery.
#[test]
fn rfc6675_5_recovery_ends_at_the_recovery_point() {
    let mut t = ten_out(rfc6675());
    t.inject(seg().sack(&[(1001, 4001)]));
    t.expect(data(1, 1001));
    t.inject(seg().ack(4001));
    t.forget_sent();
    assert_eq!(t.connection.recovery_state(), RecoveryState::Recovery);
    t.inject(seg().ack(9001));
    t.forget_sent();
    assert_eq!(t.connection.recovery_state(), RecoveryState::Recovery);
    t.expect_cwnd(5, Some(5));
    t.inject(seg().ack(10_001));
    t.forget_sent();
    assert_eq!(t.connection.recovery_state(), RecoveryState::Open);
    t.expect_cwnd(5, Some(5));
}

/// Section 5.1 and RFC 2018 section 8: a timeout retransmits data that was not SACKed, and only that.
#[test]
fn rfc6675_5_1_a_timeout_keeps_what_was_sacked() {
    let mut t = ten_out(rfc6675());
    t.inject(seg().sack(&[(3001, 5001)]));
    t.expect_at(1000, data(1, 1001).reason(Reason::Timeout));
    assert_eq!(t.connection.lost(), 8);
    t.inject(seg().ack(1001).sack(&[(3001, 5001)]));
    t.expect(data(1001, 2001).reason(Reason::LossRecovery));
    t.expect(data(2001, 3001).reason(Reason::LossRecovery));
    t.inject(seg().ack(5001));
    t.expect_segments(5001, 9001, Reason::LossRecovery);
    t.inject(seg().ack(10_001));
    t.forget_sent();
    assert_eq!(t.connection.counters().bytes_retransmitted.0, 1000 + 2000 + 4000);
}

/// RFC 2018 section 8: the receiver has dropped data that it had SACKed. The timeout finds SND.UNA SACKed, and discards all SACK
/// information.
#[test]
fn rfc2018_8_a_receiver_that_reneges() {
    let mut t = ten_out(rfc6675());
    t.inject(seg().sack(&[(1001, 4001)]));
    t.expect(data(1, 1001));
    // SND.UNA reaches the SACKed block and stops there.
    t.inject(seg().ack(1001));
    t.expect_nothing();
    t.expect_at(1000, data(1001, 2001).reason(Reason::Timeout));
    assert_eq!(t.connection.sacked(), 0);
    t.inject(seg().ack(2001));
    t.expect_segments(2001, 4001, Reason::LossRecovery);
}

/// Invalid blocks have no effect.
#[test]
fn rfc2018_5_senseless_blocks_are_ignored() {
    let mut t = ten_out(rfc6675());
    t.inject(seg().ack(2001));
    t.forget_sent();
    for block in
        [(16_001, 17_001), (5001, 90_001), (2001, 2001), (4001, 3001), (3001, 3002), (-0x7000_0000, 3001), (3500, 4500)]
    {
        t.inject(seg().ack(2001).sack(&[block]));
        assert_eq!(t.connection.sacked(), 0, "{block:?}");
    }
    t.expect_nothing();
    // If a block begins or ends inside a segment, the whole segments count.
    t.inject(seg().ack(2001).sack(&[(2501, 5500)]));
    assert_eq!(t.connection.sacked(), 2);
}

/// Ten segments outstanding and nothing more to send: the first is lost, and three of them SACKed, so that recovery begins.
fn in_recovery_without_new_data(config: Config, sacked: &[(i64, i64)]) -> Script {
    let mut t = Script::established(config);
    t.write(10_000);
    t.expect_segments(1, 10_001, Reason::NewData);
    t.inject(seg().sack(sacked));
    t.expect(data(1, 1001).reason(Reason::FastRetransmit));
    t
}

/// Section 4, NextSeg (3): without lost segments to repair and without new data, holes with too few SACKed segments above are
/// retransmitted as well, as the pipe permits and each of them once.
#[test]
fn rfc6675_4_next_seg_3_repairs_holes_that_are_not_lost_yet() {
    let mut t = in_recovery_without_new_data(rfc6675(), &[(7001, 8001), (5001, 6001), (2001, 3001)]);
    // 1001 has three SACKed segments above it; 3001, 4001 and 6001 have not.
    assert_eq!((t.connection.lost(), t.connection.in_flight()), (2, 6));
    t.expect_nothing();
    t.inject(seg().sack(&[(7001, 9001), (5001, 6001), (2001, 3001)]));
    assert_eq!(t.connection.lost(), 4, "3001 and 4001 have three above them now");
    t.expect(data(1001, 2001).reason(Reason::LossRecovery));
    t.expect(data(3001, 4001).reason(Reason::LossRecovery));
    t.expect_nothing();
    t.inject(seg().sack(&[(7001, 9001), (5001, 6001), (1001, 3001)]));
    t.expect(data(4001, 5001).reason(Reason::LossRecovery));
    t.expect_nothing();
    t.inject(seg().sack(&[(7001, 9001), (5001, 6001), (1001, 4001)]));
    t.expect(data(6001, 7001).reason(Reason::LossRecovery));
    t.expect_nothing();
    assert_eq!(t.connection.lost(), 2, "1 and 4001");
    // This is the third SACKed segment above 6001: its original is lost, its retransmission is in flight.
    t.inject(seg().sack(&[(7001, 10_001), (5001, 6001), (1001, 4001)]));
    assert_eq!((t.connection.lost(), t.connection.in_flight()), (3, 3));
    t.expect_nothing();
}

/// Section 4, NextSeg (4): the end of the outstanding data is retransmitted once, so that its SACK may show losses before it.
#[test]
fn rfc6675_4_next_seg_4_rescues_the_end_once() {
    let mut t = in_recovery_without_new_data(rfc6675(), &[(1001, 7001)]);
    t.expect(data(9001, 10_001).reason(Reason::LossRecovery));
    t.expect_nothing();
    t.inject(seg().ack(7001));
    t.expect_nothing();
    t.inject(seg().ack(7001).sack(&[(9001, 10_001)]));
    t.expect(data(7001, 8001).reason(Reason::LossRecovery));
    t.expect(data(8001, 9001).reason(Reason::LossRecovery));
    t.expect_nothing();
    t.inject(seg().ack(10_001));
    t.expect_nothing();
    assert_eq!(t.connection.recovery_state(), RecoveryState::Open);
}

/// The only missing segment was already retransmitted: another copy would not help.
#[test]
fn rfc6675_4_next_seg_4_does_not_repeat_a_repair() {
    let t = in_recovery_without_new_data(rfc6675(), &[(1001, 10_001)]);
    t.expect_nothing();
    assert_eq!(t.connection.in_flight(), 1);
}

/// NextSeg (3) and (4) stay within the peer's window, and can be disabled.
#[test]
fn rfc6675_4_next_seg_3_and_4_have_limits() {
    let mut config = rfc6675();
    config.recovery.repair_ahead = false;
    let t = in_recovery_without_new_data(config, &[(1001, 7001)]);
    t.expect_nothing();
    let mut t = Script::established(rfc6675());
    t.write(10_000);
    t.expect_segments(1, 10_001, Reason::NewData);
    t.inject(seg().win(9000).sack(&[(1001, 7001)]));
    t.expect(data(1, 1001).reason(Reason::FastRetransmit));
    t.expect_nothing();
}

/// A duplicate ACK without SACK blocks gives no new information.
#[test]
fn rfc6675_2_duplicates_without_sack_do_not_count() {
    let mut t = ten_out(rfc6675());
    (0..5).for_each(|_| t.inject(seg()));
    t.inject(seg().sack(&[(1001, 2001)]));
    (0..5).for_each(|_| t.inject(seg().sack(&[(1001, 2001)])));
    t.expect_nothing();
    assert_eq!(t.connection.counters().recoveries, 0);
}

/// A lost retransmission waits for the timer.
#[test]
fn rfc6675_5_a_lost_retransmission_waits_for_the_timer() {
    let mut t = ten_out(rfc6675());
    t.at(100).inject(seg().sack(&[(1001, 4001)]));
    t.expect(data(1, 1001));
    for n in 5..=10 {
        t.inject(seg().sack(&[(1001, n * 1000 + 1)]));
        t.forget_sent();
    }
    t.expect_at(1100, data(1, 1001).reason(Reason::Timeout));
    t.expect_cwnd(1, Some(5));
}

/// Linux 2.4's forward acknowledgment: segments more than the threshold below the highest SACK are lost, with or without SACKed
/// segments in between.
#[test]
fn fack_counts_from_the_highest_sack() {
    let mut config = rfc6675();
    config.recovery.with_sack = LossDetection::Fack;
    let mut t = ten_out(config);
    t.inject(seg().sack(&[(4001, 5001)]));
    t.expect(data(1, 1001).reason(Reason::FastRetransmit));
    // 1, 1001 and 2001 have three or more SACKed segments above them.
    assert_eq!(t.connection.lost(), 2);
}
