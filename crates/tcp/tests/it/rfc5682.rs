//! Spurious timeouts and recoveries: F-RTO (RFC 5682), Eifel detection by timestamps (RFC 3522), by DSACK (RFC 3708), and the
//! response (RFC 4015).

use holdover_base::Duration;
use holdover_tcp::{Config, LossDetection, Reason, RecoveryState, Reduction, Timer};

use crate::script::*;

fn frto(sack: bool) -> Config {
    let mut config = plain();
    config.sack = sack;
    config.recovery.with_sack = LossDetection::Sack;
    config.recovery.reduction = Reduction::Immediate;
    config.recovery.limited_transmit = false;
    config
}

/// Ten segments outstanding, ten more to send, and a timeout at 1000 ms.
fn timed_out(config: Config) -> Script {
    let mut t = Script::established(config);
    t.write(20_000);
    t.expect_segments(1, 10_001, Reason::NewData);
    t.expect_at(1000, data(1, 1001).reason(Reason::Timeout));
    t.expect_cwnd(1, Some(5));
    t
}

/// Steps 2b and 3b: the first ACK sends two new segments, the second shows that the originals arrive. There are no further
/// retransmissions, and the window is restored.
#[test]
fn rfc5682_2_1_a_spurious_timeout_is_seen_by_the_second_ack() {
    for sack in [false, true] {
        let mut t = timed_out(frto(sack));
        t.at(1100).inject(seg().ack(1001));
        t.expect_segments(10_001, 12_001, Reason::NewData);
        t.inject(seg().ack(2001));
        assert_eq!(t.connection.recovery_state(), RecoveryState::Open, "SACK {sack}");
        assert_eq!(t.connection.counters().undos, 1);
        assert!(t.connection.cwnd() >= 10);
        assert_eq!(t.connection.lost(), 0);
        t.forget_sent();
        t.inject(seg().ack(12_001));
        t.forget_sent();
        assert_eq!(t.connection.counters().bytes_retransmitted.0, 1000);
    }
}

/// Step 2a: the first ACK is a duplicate, so the timeout was genuine.
#[test]
fn rfc5682_2_1_a_duplicate_first_means_a_true_timeout() {
    let mut t = timed_out(frto(false));
    t.inject(seg());
    t.expect_nothing();
    t.inject(seg().ack(1001));
    t.forget_sent();
    assert_eq!(t.connection.counters().undos, 0);
}

/// Step 2a, where three duplicates begin a fast retransmit after a timeout: it ends F-RTO, and what the timeout took back goes before new
/// data.
#[test]
fn rfc5682_2_1_a_fast_retransmit_means_a_true_timeout() {
    let mut config = frto(false);
    config.recovery.without_sack = LossDetection::Reno;
    config.recovery.bar_after_timeout = false;
    let mut t = timed_out(config);
    (0..3).for_each(|_| t.inject(seg()));
    t.expect(data(1, 1001).reason(Reason::FastRetransmit));
    t.expect(data(1001, 2001).reason(Reason::LossRecovery));
    t.inject(seg().ack(1001));
    t.expect(data(2001, 3001).reason(Reason::LossRecovery));
    t.inject(seg().ack(2001));
    t.expect(data(3001, 4001).reason(Reason::LossRecovery));
    t.forget_sent();
    assert_eq!(t.connection.counters().undos, 0);
}

/// Step 3a: the second ACK is a duplicate, so retransmission continues in slow start.
#[test]
fn rfc5682_2_1_a_duplicate_second_means_a_true_timeout() {
    let mut t = timed_out(frto(false));
    t.inject(seg().ack(1001));
    t.expect_segments(10_001, 12_001, Reason::NewData);
    t.inject(seg().ack(1001));
    t.expect(data(1001, 2001).reason(Reason::LossRecovery));
    t.forget_sent();
    assert_eq!(t.connection.counters().undos, 0);
    assert_eq!(t.connection.ssthresh(), Some(5));
}

/// With SACK, the duplicate may report a segment that was never retransmitted: spurious (step 3b of the SACK-enhanced version).
#[test]
fn rfc5682_3_1_a_sack_of_an_original_means_a_spurious_timeout() {
    let mut t = timed_out(frto(true));
    t.inject(seg().ack(1001));
    t.expect_segments(10_001, 12_001, Reason::NewData);
    t.inject(seg().ack(1001).sack(&[(4001, 5001)]));
    assert_eq!(t.connection.counters().undos, 1);
    t.forget_sent();
}

/// ... while a SACK of the new data alone means that the data before it is lost.
#[test]
fn rfc5682_3_1_a_sack_of_new_data_means_a_true_timeout() {
    let mut t = timed_out(frto(true));
    t.inject(seg().ack(1001));
    t.expect_segments(10_001, 12_001, Reason::NewData);
    t.inject(seg().ack(1001).sack(&[(10_001, 11_001)]));
    t.expect(data(1001, 2001).reason(Reason::LossRecovery));
    t.forget_sent();
    assert_eq!(t.connection.counters().undos, 0);
}

/// Step 2b: where the peer's window has room for less new data than the congestion window, nothing is retransmitted instead: the
/// answer to the new data decides first.
#[test]
fn rfc5682_3_1_nothing_is_sent_again_before_the_new_data_is_answered() {
    let mut t = Script::established(frto(true));
    t.inject(seg().win(10_000));
    t.write(20_000);
    t.expect_segments(1, 10_001, Reason::NewData);
    t.expect_at(1000, data(1, 1001).reason(Reason::Timeout));
    t.inject(seg().ack(1001).win(10_000));
    t.expect(data(10_001, 11_001).reason(Reason::NewData));
    t.expect_nothing();
    t.inject(seg().ack(1001).win(10_000).sack(&[(10_001, 11_001)]));
    t.expect_segments(1001, 3001, Reason::LossRecovery);
    t.expect_cwnd(2, Some(5));
}

/// Step 2: without new data, or without a window for it, recovery is conventional.
#[test]
fn rfc5682_2_1_without_new_data_recovery_is_conventional() {
    let mut t = Script::established(frto(false));
    t.write(5000);
    t.expect_segments(1, 5001, Reason::NewData);
    t.expect_at(1000, data(1, 1001).reason(Reason::Timeout));
    t.inject(seg().ack(1001));
    t.expect_segments(1001, 3001, Reason::LossRecovery);
    let mut t = Script::established(frto(false));
    t.inject(seg().win(10_000));
    t.write(20_000);
    t.expect_segments(1, 10_001, Reason::NewData);
    t.expect_at(1000, data(1, 1001).reason(Reason::Timeout));
    t.inject(seg().ack(1001).win(9000));
    t.expect_segments(1001, 3001, Reason::LossRecovery);
}

/// The ACK that covers everything does not show which copy arrived.
#[test]
fn rfc5682_2_1_an_ack_of_everything_ends_the_loss_state() {
    let mut t = timed_out(frto(true));
    t.inject(seg().ack(10_001));
    t.expect(data(10_001, 11_001).reason(Reason::NewData));
    t.forget_sent();
    assert_eq!(t.connection.recovery_state(), RecoveryState::Open);
}

/// Linux `tcp_xmit_recovery`: an ACK that makes no room for new data leaves the question undecided, and F-RTO ends. (An ACK
/// inside the retransmitted segment is of that kind; an ACK of originals after it proves nothing.)
#[test]
fn an_ack_without_room_for_new_data_ends_frto() {
    let mut t = timed_out(frto(true));
    t.inject(seg().ack(2));
    t.expect_nothing();
    t.inject(seg().ack(5001));
    t.expect_segments(5001, 10_001, Reason::LossRecovery);
    assert_eq!(t.connection.counters().undos, 0);
    // Without the byte before it, the same ACK would be a sign of a spurious timeout.
    let mut t = timed_out(frto(true));
    t.inject(seg().ack(5001));
    t.expect(data(10_001, 11_001).reason(Reason::NewData));
    t.forget_sent();
    assert_eq!(t.connection.counters().undos, 1);
}

/// Without F-RTO outstanding data is retransmitted.
#[test]
fn without_frto_everything_is_sent_again() {
    let mut config = frto(false);
    config.recovery.frto = false;
    config.recovery.undo = false;
    let mut t = timed_out(config);
    t.inject(seg().ack(1001));
    t.expect_segments(1001, 3001, Reason::LossRecovery);
}

fn stamped() -> Config {
    let mut config = frto(true);
    config.timestamps = Some(Duration::from_millis(1));
    config.recovery.frto = false;
    config
}

/// RFC 3522 section 3.2: the first ACK after the retransmission echoes a timestamp from before it.
#[test]
fn rfc3522_3_2_an_echo_from_before_the_retransmission() {
    let mut t = Script::established(stamped());
    t.write(9880);
    (0..10).for_each(|n| t.expect(data(1 + n * 988, 989 + n * 988)));
    t.at(1000).expect(data(1, 989).reason(Reason::Timeout));
    t.expect_cwnd(1, Some(5));
    t.at(1200).inject(seg().ack(989).ts(PEER_CLOCK + 100, OUR_CLOCK));
    assert_eq!(t.connection.counters().undos, 1);
    // The window is restored, and the ACK opens it as usual.
    t.expect_cwnd(11, None);
    t.expect_nothing();
    // RFC 6298 (5.7): the sample ends the backoff, and the long round trip enters the RTO.
    assert_eq!(t.connection.backoff(), 0);
    assert!(t.connection.rto() > Duration::from_millis(1200));
    assert_eq!(t.connection.deadline(Timer::Retransmit), Some(t.now() + t.connection.rto()));
}

/// ... and gives RACK no information about segments sent between the two copies (Linux `tcp_skb_spurious_retrans`).
#[test]
fn rfc3522_3_2_an_echo_from_before_the_retransmission_does_not_advance_rack() {
    let mut config = stamped();
    config.recovery.with_sack = LossDetection::Rack;
    config.recovery.loss_probe = false;
    let mut t = Script::established(config);
    t.write(9880);
    (0..10).for_each(|n| t.expect(data(1 + n * 988, 989 + n * 988)));
    t.at(1000).expect(data(1, 989).reason(Reason::Timeout));
    t.at(1200).inject(seg().ack(989).ts(PEER_CLOCK + 100, OUR_CLOCK));
    t.expect_nothing();
    assert_eq!((t.connection.counters().undos, t.connection.lost()), (1, 0));
    assert_eq!(t.connection.recovery_state(), RecoveryState::Open);
}

/// ... or of the retransmission itself: then nothing is undone.
#[test]
fn rfc3522_3_2_an_echo_of_the_retransmission() {
    let mut t = Script::established(stamped());
    t.write(9880);
    (0..10).for_each(|n| t.expect(data(1 + n * 988, 989 + n * 988)));
    t.at(1000).expect(data(1, 989).reason(Reason::Timeout));
    t.at(1200).inject(seg().ack(989).ts(PEER_CLOCK + 100, OUR_CLOCK + 1000));
    assert_eq!(t.connection.counters().undos, 0);
    t.expect(data(989, 1977).reason(Reason::LossRecovery));
    t.expect(data(1977, 2965).reason(Reason::LossRecovery));
}

/// A recovery caused by reordering is undone as well.
#[test]
fn rfc3522_3_2_a_spurious_fast_retransmit() {
    let mut t = Script::established(stamped());
    t.write(9880);
    (0..10).for_each(|n| t.expect(data(1 + n * 988, 989 + n * 988)));
    t.at(50).inject(seg().sack(&[(989, 3953)]).ts(PEER_CLOCK + 20, OUR_CLOCK));
    t.expect(data(1, 989).reason(Reason::FastRetransmit));
    t.expect_cwnd(5, Some(5));
    t.at(60).inject(seg().ack(3953).ts(PEER_CLOCK + 30, OUR_CLOCK));
    assert_eq!(t.connection.counters().undos, 1);
    t.expect_cwnd(10, None);
    assert_ne!(t.connection.recovery_state(), RecoveryState::Recovery);
}

fn without_sack() -> Config {
    let mut config = stamped();
    config.sack = false;
    config.recovery.reduction = Reduction::Proportional;
    config
}

/// ... without SACK, too. The duplicates that began it, and later ones, begin no other: as much as was outstanding may be
/// reordered (Linux `tcp_try_undo_partial`).
#[test]
fn rfc3522_3_2_without_sack_a_spurious_fast_retransmit_is_not_repeated() {
    let mut t = Script::established(without_sack());
    t.inject(seg().win(60_000));
    t.write(40_000);
    (0..10).for_each(|n| t.expect(data(1 + n * 988, 989 + n * 988)));
    let late = || seg().ts(PEER_CLOCK + 20, OUR_CLOCK);
    t.at(50);
    (0..2).for_each(|_| t.inject(late()));
    t.inject(late());
    t.expect(data(1, 989).reason(Reason::FastRetransmit));
    (0..4).for_each(|_| {
        t.inject(late());
        t.forget_sent();
    });
    t.at(60).inject(late().ack(989));
    assert_eq!((t.connection.counters().undos, t.connection.recovery_state()), (1, RecoveryState::Disorder));
    assert!(t.connection.sacked() > 3);
    t.forget_sent();
    (0..2).for_each(|_| {
        t.inject(late());
        assert!(t.take_reasons().iter().all(|reason| *reason != Reason::FastRetransmit));
    });
    t.inject(late().ack(9881));
    t.forget_sent();
    assert_eq!((t.connection.counters().recoveries, t.connection.counters().bytes_retransmitted.0), (1, 988));
}

/// Without SACK, more duplicates than outstanding segments show duplication or reordering (Linux `tcp_check_reno_reordering`):
/// from then on, as many duplicates as there are outstanding segments are not a sign of loss.
#[test]
fn more_duplicates_than_segments_raise_what_is_tolerated() {
    for undo in [false, true] {
        let mut config = without_sack();
        config.recovery.undo = undo;
        let mut t = Script::established(config);
        t.write(4 * 988);
        (0..4).for_each(|n| t.expect(data(1 + n * 988, 989 + n * 988)));
        t.at(50);
        (0..2).for_each(|_| t.inject(seg()));
        t.inject(seg());
        t.expect(data(1, 989).reason(Reason::FastRetransmit));
        t.inject(seg());
        t.at(100).inject(seg().ack(4 * 988 + 1));
        t.steer(|connection, _| connection.set_cwnd(8));
        t.write(8 * 988);
        (4..12).for_each(|n| t.expect(data(1 + n * 988, 989 + n * 988)));
        // An ACK above the recovery point ends the wait of RFC 6582 section 6.1.
        t.at(150).inject(seg().ack(5 * 988 + 1));
        (0..3).for_each(|_| t.inject(seg()));
        assert_eq!(t.forget_sent(), usize::from(!undo), "undo {undo}");
        t.inject(seg());
        t.forget_sent();
        assert_eq!(t.connection.counters().recoveries, 2, "undo {undo}");
    }
}

/// ... and a single duplicate, of a single segment, does not reduce the threshold to one.
#[test]
fn a_duplicate_of_a_single_segment_lowers_nothing() {
    let mut t = Script::established(without_sack());
    t.write(100);
    t.expect(data(1, 101));
    t.at(50).inject(seg());
    t.inject(seg().ack(101));
    t.write(6 * 988);
    (0..6).for_each(|n| t.expect(data(101 + n * 988, 1089 + n * 988)));
    (0..2).for_each(|_| t.inject(seg()));
    t.expect_nothing();
    t.inject(seg());
    t.expect(data(101, 1089).reason(Reason::FastRetransmit));
}

/// RFC 3708: DSACKs for every retransmission show that none was needed.
#[test]
fn rfc3708_dsacks_for_all_retransmissions() {
    let mut t = Script::established(frto(true));
    t.write(10_000);
    t.expect_segments(1, 10_001, Reason::NewData);
    t.inject(seg().sack(&[(1001, 4001)]));
    t.expect(data(1, 1001).reason(Reason::FastRetransmit));
    t.inject(seg().ack(4001));
    t.expect_cwnd(5, Some(5));
    assert_eq!(t.connection.counters().undos, 0);
    t.inject(seg().ack(4001).sack(&[(1, 1001)]));
    assert_eq!(t.connection.counters().undos, 1);
    t.expect_cwnd(10, None);
}

/// ... on any ACK.
#[test]
fn rfc3708_a_dsack_on_an_ack_below_snd_una() {
    let mut t = Script::established(frto(true));
    t.write(10_000);
    t.expect_segments(1, 10_001, Reason::NewData);
    t.inject(seg().sack(&[(1001, 4001)]));
    t.expect(data(1, 1001).reason(Reason::FastRetransmit));
    t.inject(seg().ack(4001));
    t.expect_cwnd(5, Some(5));
    t.inject(seg().ack(3001).sack(&[(1, 1001)]));
    assert_eq!(t.connection.counters().undos, 1);
    t.expect_cwnd(10, None);
}

/// RFC 4015 section 3: with undo off, nothing is restored.
#[test]
fn without_undo_nothing_is_taken_back() {
    let mut config = frto(true);
    config.recovery.undo = false;
    let mut t = Script::established(config);
    t.write(10_000);
    t.expect_segments(1, 10_001, Reason::NewData);
    t.inject(seg().sack(&[(1001, 4001)]));
    t.expect(data(1, 1001));
    t.inject(seg().ack(4001));
    t.inject(seg().ack(4001).sack(&[(1, 1001)]));
    assert_eq!(t.connection.counters().undos, 0);
    t.expect_cwnd(5, Some(5));
}
