//! RFC 8985: losses detected by time (RACK, section 6) and tail loss probes (section 7). With proportional rate reduction
//! (RFC 6937), as in [`Config::rfc`].

use holdover_base::Duration;
use holdover_tcp::{Config, Profile, Reason, RecoveryState, Timer};

use crate::script::*;

fn rack() -> Config {
    let mut config = plain();
    config.sack = true;
    config.recovery.limited_transmit = false;
    config
}

fn no_probe() -> Config {
    let mut config = rack();
    config.recovery.loss_probe = false;
    config
}

/// A connection at 100 ms whose round trip is 100 ms.
fn at_100_ms(config: Config) -> Script {
    let mut t = Script::connect(config);
    t.expect(our_syn());
    t.at(100).inject(syn_ack().sack_ok());
    t.expect(ack(1));
    t
}

/// An overtaken ACK acknowledges no new data, but its SACK blocks count (Linux `tcp_ack`): recovery begins with it, not with the
/// timer.
#[test]
fn rfc8985_6_2_sack_blocks_on_an_ack_below_snd_una_count() {
    let mut t = at_100_ms(no_probe());
    t.write(10_000);
    t.expect_segments(1, 10_001, Reason::NewData);
    t.at(200).inject(seg().ack(2001));
    t.inject(seg().ack(1001));
    t.expect_nothing();
    t.inject(seg().ack(1001).sack(&[(3001, 6001)]));
    t.expect(data(2001, 3001).reason(Reason::FastRetransmit));
    t.expect_nothing();
    assert_eq!((t.connection.sacked(), t.connection.recovery_state()), (3, RecoveryState::Recovery));
    t.inject(seg().ack(10_001));
    assert_eq!((t.connection.unacked(), t.connection.counters().timeouts), (0, 0));
}

/// Section 6.2 step 5, before any reordering was observed: three segments SACKed above are enough, as in RFC 6675.
#[test]
fn rfc8985_6_2_three_sacked_segments_are_enough_without_reordering() {
    let mut t = at_100_ms(no_probe());
    t.write(10_000);
    t.expect_segments(1, 10_001, Reason::NewData);
    t.at(200).inject(seg().sack(&[(1001, 2001)]));
    // A quarter of the round trip, and two milliseconds for the clock's granularity.
    t.expect_timer(Timer::Reorder, 200 + 25 + 2);
    t.expect_no_timer(Timer::Retransmit);
    t.at(201).inject(seg().sack(&[(1001, 3001)]));
    t.at(202).inject(seg().sack(&[(1001, 4001)]));
    t.expect(data(1, 1001).reason(Reason::FastRetransmit));
    t.expect_cwnd(t.connection.cwnd(), Some(5));
    assert_eq!(t.connection.recovery_state(), RecoveryState::Recovery);
}

/// Section 6.3: one segment SACKed above, and the reordering window passes.
#[test]
fn rfc8985_6_3_the_reordering_timer_declares_the_loss() {
    let mut t = at_100_ms(no_probe());
    t.write(3000);
    t.expect_segments(1, 3001, Reason::NewData);
    t.at(200).inject(seg().sack(&[(2001, 3001)]));
    t.expect_timer(Timer::Reorder, 227);
    t.at(227).expect(data(1, 1001).reason(Reason::FastRetransmit));
    t.expect_nothing();
    assert_eq!((t.connection.lost(), t.connection.counters().recoveries), (2, 1));
    t.at(327).inject(seg().ack(1001).sack(&[(2001, 3001)]));
    t.expect(data(1001, 2001).reason(Reason::LossRecovery));
    t.inject(seg().ack(3001));
    t.expect_no_timer(Timer::Reorder);
    t.expect_no_timer(Timer::Retransmit);
}

/// Segments sent later than the delivered segment are not lost.
#[test]
fn rfc8985_6_2_only_what_was_sent_before_is_lost() {
    let mut t = at_100_ms(no_probe());
    t.write(4000);
    t.expect_segments(1, 4001, Reason::NewData);
    t.at(150).write(4000);
    t.expect_segments(4001, 8001, Reason::NewData);
    t.at(200).inject(seg().sack(&[(1001, 4001)]));
    t.expect(data(1, 1001).reason(Reason::FastRetransmit));
    assert_eq!(t.connection.lost(), 1);
    t.forget_sent();
}

/// The delivery of a segment that was sent after a retransmission shows that the retransmission is lost.
#[test]
fn rfc8985_6_2_a_lost_retransmission_is_found() {
    let mut t = at_100_ms(no_probe());
    t.write(12_000);
    t.expect_segments(1, 10_001, Reason::NewData);
    t.at(200).inject(seg().sack(&[(1001, 4001)]));
    t.expect(data(1, 1001).reason(Reason::FastRetransmit));
    t.expect(data(10_001, 11_001).reason(Reason::NewData));
    // The last segment is sent 20 ms later, when delivered data makes room.
    t.at(220).inject(seg().sack(&[(1001, 10_001)]));
    t.expect(data(11_001, 12_001).reason(Reason::NewData));
    // They are delivered before the retransmission of 20 ms earlier: in recovery there is no reordering window.
    t.at(320).inject(seg().sack(&[(1001, 12_001)]));
    t.expect(data(1, 1001).reason(Reason::LossRecovery));
    t.inject(seg().ack(12_001));
    assert_eq!(t.connection.counters().timeouts, 0);
}

/// Section 6.2 step 3: after observed reordering three segments are not enough, and only time decides.
#[test]
fn rfc8985_6_2_reordering_that_was_seen_makes_time_decide() {
    let mut t = at_100_ms(no_probe());
    t.write(8000);
    t.expect_segments(1, 8001, Reason::NewData);
    t.at(200).inject(seg().sack(&[(1001, 2001)]));
    t.at(205).inject(seg().ack(2001));
    assert_eq!(t.connection.recovery_state(), RecoveryState::Open);
    t.at(206).inject(seg().ack(3001));
    t.at(210).inject(seg().ack(3001).sack(&[(4001, 7001)]));
    t.expect_nothing();
    t.expect_no_timer(Timer::Retransmit);
    assert_eq!(t.connection.recovery_state(), RecoveryState::Disorder);
    let at = t.connection.deadline(Timer::Reorder).unwrap();
    let wait = at.saturating_since(t.now());
    assert!(wait > Duration::from_millis(10) && wait < Duration::from_millis(40), "{wait}");
    t.inject(seg().ack(7001));
    assert_eq!(t.connection.counters().recoveries, 0);
}

/// A segment retransmitted at the instant of an ACK may be reordered, like any other.
#[test]
fn rfc8985_6_2_a_retransmission_of_this_instant_is_waited_for() {
    let mut t = at_100_ms(no_probe());
    t.write(14_000);
    t.expect_segments(1, 10_001, Reason::NewData);
    // Reordering is seen, so that only time decides.
    t.at(200).inject(seg().sack(&[(1001, 2001)]));
    t.forget_sent();
    t.at(205).inject(seg().ack(2001));
    t.forget_sent();
    t.at(210).inject(seg().sack(&[(3001, 6001)]));
    t.forget_sent();
    let at = t.connection.deadline(Timer::Reorder).unwrap().saturating_since(t.instant(0)).as_millis();
    t.at(at).expect(data(2001, 3001).reason(Reason::FastRetransmit));
    t.inject(seg().sack(&[(6001, 8001), (3001, 6001)]));
    t.expect(data(13_001, 14_001).reason(Reason::NewData));
    // A segment that was just sent is delivered already: its round trip of zero leaves only the reordering window.
    t.inject(seg().sack(&[(8001, 9001), (13_001, 14_001), (3001, 8001)]));
    t.expect_segments(9001, 12_001, Reason::LossRecovery);
    t.expect_nothing();
    t.expect_timer(Timer::Reorder, at + 25 + 2);
    t.expect_no_timer(Timer::Retransmit);
}

/// A SACK of a retransmission that arrives sooner than any round trip is of the original (section 6.2 step 2).
#[test]
fn rfc8985_6_2_a_retransmission_acknowledged_too_soon_does_not_count() {
    let mut t = at_100_ms(no_probe());
    t.write(10_000);
    t.expect_segments(1, 10_001, Reason::NewData);
    t.at(200).inject(seg().sack(&[(1001, 4001)]));
    t.expect(data(1, 1001));
    t.at(201).inject(seg().ack(4001));
    t.forget_sent();
    assert_eq!(t.connection.lost(), 0, "the retransmission of 1 ms ago makes nothing else late");
}

/// Section 7.2: two round trips after the last segment, if several are outstanding.
#[test]
fn rfc8985_7_2_the_probe_timeout() {
    let mut t = at_100_ms(rack());
    t.write(3000);
    t.expect_segments(1, 3001, Reason::NewData);
    t.expect_timer(Timer::LossProbe, 100 + 2 * 100 + 2);
    t.expect_no_timer(Timer::Retransmit);
}

/// ... plus the peer's ACK delay for a single one. Never later than the RTO.
#[test]
fn rfc8985_7_2_the_probe_timeout_for_one_segment() {
    let mut t = at_100_ms(rack());
    t.write(1000);
    t.expect(data(1, 1001));
    t.expect_timer(Timer::LossProbe, 100 + 2 * 100 + 200);
    let mut config = rack();
    config.rto.min = Duration::from_millis(200);
    let mut t = at_100_ms(config);
    t.write(1000);
    t.expect(data(1, 1001));
    // The timeout is SRTT + 4 RTTVAR = 300 ms.
    t.expect_timer(Timer::LossProbe, 100 + 300);
}

/// Section 7.3: the last segment again if there is no new data; a full RTO follows, as on Linux 6.18.
#[test]
fn rfc8985_7_3_the_probe_repeats_the_last_segment() {
    let mut t = at_100_ms(rack());
    t.write(3000);
    t.expect_segments(1, 3001, Reason::NewData);
    t.at(302).expect(data(2001, 3001).reason(Reason::LossProbe));
    t.expect_timer(Timer::Retransmit, 1302);
    t.expect_no_timer(Timer::LossProbe);
    t.expect_cwnd(10, None);
    t.at(1302).expect(data(1, 1001).reason(Reason::Timeout));
}

/// ... or new data if there is.
#[test]
fn rfc8985_7_3_the_probe_is_new_data_if_there_is_any() {
    let mut t = at_100_ms(rack());
    t.write(12_000);
    t.expect_segments(1, 10_001, Reason::NewData);
    t.at(302).expect(data(10_001, 11_001).reason(Reason::LossProbe));
    t.expect_nothing();
    t.expect_cwnd(10, None);
}

/// Section 7.3: a probe of new data has a full timeout for its answer, like a repeated segment; no second probe is due before it
/// expires.
#[test]
fn rfc8985_7_3_a_probe_of_new_data_has_a_whole_timeout() {
    let mut t = at_100_ms(rack());
    t.write(20_000);
    t.expect_segments(1, 10_001, Reason::NewData);
    t.at(302).expect(data(10_001, 11_001).reason(Reason::LossProbe));
    t.expect_nothing();
    t.expect_no_timer(Timer::LossProbe);
    let rto = t.connection.rto().as_millis();
    t.expect_timer(Timer::Retransmit, 302 + rto);
}

/// A tail is probed once.
#[test]
fn rfc8985_7_3_one_probe_only() {
    let mut t = at_100_ms(rack());
    t.write(2000);
    t.expect_segments(1, 2001, Reason::NewData);
    t.at(302).expect(data(1001, 2001).reason(Reason::LossProbe));
    t.expect_nothing_until(1301);
    t.at(1302).expect(data(1, 1001).reason(Reason::Timeout));
}

/// Section 7.3: the SACK of the probe starts the recovery of the data lost before it.
#[test]
fn rfc8985_7_the_probe_turns_a_tail_loss_into_fast_recovery() {
    let mut t = at_100_ms(rack());
    t.write(4000);
    t.expect_segments(1, 4001, Reason::NewData);
    t.at(200).inject(seg().ack(1001));
    let at = t.connection.deadline(Timer::LossProbe).unwrap().saturating_since(t.instant(0)).as_millis();
    t.at(at).expect(data(3001, 4001).reason(Reason::LossProbe));
    t.at(at + 100).inject(seg().ack(1001).sack(&[(3001, 4001)]));
    t.expect(data(1001, 2001).reason(Reason::FastRetransmit));
    assert_eq!(t.connection.lost(), 2);
    t.forget_sent();
    assert_eq!(t.connection.counters().timeouts, 0);
}

/// Section 7.4.2: the probe repaired the loss of the last segment, which causes one reduction.
#[test]
fn rfc8985_7_4_a_probe_that_repaired_a_loss_reduces_the_window_once() {
    let mut t = at_100_ms(rack());
    t.write(10_000);
    t.expect_segments(1, 10_001, Reason::NewData);
    t.at(200).inject(seg().ack(9001));
    let at = t.connection.deadline(Timer::LossProbe).unwrap().saturating_since(t.instant(0)).as_millis();
    t.at(at).expect(data(9001, 10_001).reason(Reason::LossProbe));
    t.at(at + 100).inject(seg().ack(10_001));
    t.write(5000);
    t.forget_sent();
    t.at(at + 200).inject(seg().ack(11_001));
    assert!(t.connection.ssthresh().is_some(), "a loss that nothing else would have shown");
    t.forget_sent();
}

/// ... and a needless probe is recognised by a DSACK, or by a duplicate ACK.
#[test]
fn rfc8985_7_4_a_probe_that_was_not_needed_reduces_nothing() {
    for dsack in [true, false] {
        let mut t = at_100_ms(rack());
        t.write(2000);
        t.expect_segments(1, 2001, Reason::NewData);
        t.at(302).expect(data(1001, 2001).reason(Reason::LossProbe));
        t.at(310).inject(seg().ack(2001));
        let second = seg().ack(2001);
        t.at(402).inject(if dsack { second.sack(&[(1001, 2001)]) } else { second });
        t.write(5000);
        t.forget_sent();
        t.at(500).inject(seg().ack(7001));
        t.expect_cwnd(t.connection.cwnd(), if dsack { None } else { t.connection.ssthresh() });
        if dsack {
            assert_eq!(t.connection.ssthresh(), None);
        }
    }
}

/// RFC 6937: in recovery the transmitted data stays in proportion to the delivered data, at one half of it.
#[test]
fn rfc6937_3_proportional_rate_reduction() {
    let mut t = at_100_ms(no_probe());
    t.write(30_000 - 10_000);
    t.expect_segments(1, 10_001, Reason::NewData);
    t.at(200).inject(seg().sack(&[(1001, 4001)]));
    t.expect(data(1, 1001).reason(Reason::FastRetransmit));
    let mut sent = t.forget_sent();
    for n in 5..=10 {
        t.inject(seg().sack(&[(1001, n * 1000 + 1)]));
        sent += t.forget_sent();
    }
    // Nine deliveries of a flight of ten with ssthresh 5 allow five segments, including the retransmission.
    assert_eq!(sent + 1, 5);
    t.at(300).inject(seg().ack(10_001));
    t.forget_sent();
    t.expect_cwnd(5, Some(5));
}

/// If the window has shrunk below the outstanding data, there is no probe: the timeout follows, counted from the first segment.
#[test]
fn rfc8985_7_3_no_probe_beyond_a_window_that_has_shrunk() {
    let mut config = Profile::Linux6Reno.config();
    config.mss = 1000;
    config.window_scale = None;
    config.timestamps = None;
    let mut t = at_100_ms(config);
    t.write(5000);
    t.expect_segments(1, 5001, Reason::NewData);
    t.at(150).inject(seg().ack(1001).win(0));
    assert!(t.connection.deadline(Timer::LossProbe).is_some_and(|at| at < t.instant(345)));
    t.expect_nothing_until(345);
    assert_eq!(t.connection.deadline(Timer::Retransmit), Some(t.instant(100) + t.connection.rto()));
    t.at_micros(393_750).expect(data(1001, 2001).reason(Reason::Timeout));
}

/// Section 7.2, as in Linux: while a probe is unanswered, the timer is armed as for another probe, but its expiry is a timeout:
/// counted from the first segment, not from the ACK in between.
#[test]
fn rfc8985_7_2_an_ack_before_the_probes_does_not_put_off_the_timeout() {
    let mut t = at_100_ms(rack());
    t.write(5000);
    t.expect_segments(1, 5001, Reason::NewData);
    t.expect_at(302, data(4001, 5001).reason(Reason::LossProbe));
    t.at(400).write(1000);
    t.expect(data(5001, 6001).reason(Reason::NewData));
    t.at(500).inject(seg().ack(1001));
    t.expect_timer(Timer::LossProbe, 500 + 275 + 2);
    t.forget_sent();
}
