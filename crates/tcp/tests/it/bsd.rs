//! 4.3BSD Tahoe and Reno: clocks of 200 and 500 ms, the reaction to three duplicates, timeouts and persist mode.

use holdover_base::Duration;
use holdover_tcp::{Config, ConnectionError, Profile, Reason, RecoveryState, State, Timer};

use crate::script::*;

fn tahoe() -> Config {
    Config { mss: 1000, ..Profile::TahoeBsd.config() }
}

fn reno() -> Config {
    Config { mss: 1000, ..Profile::RenoBsd.config() }
}

/// A connection with a window of `cwnd` segments outstanding, and further data to send.
fn out(config: Config, cwnd: u32) -> Script {
    let mut t = Script::established(config);
    t.steer(|connection, _| connection.set_cwnd(cwnd));
    t.write(16_000);
    t.expect_segments(1, 1 + i64::from(cwnd) * 1000, Reason::NewData);
    t
}

/// 6, 12, 24 and 48 seconds, on ticks of half a second.
#[test]
fn bsd_syn_timeouts() {
    let mut t = Script::connect(tahoe());
    t.expect(our_syn());
    for at in [6, 18, 42] {
        t.at(at * 1000).expect(our_syn().reason(Reason::Syn));
    }
    t.expect_nothing_until(90_000);
    t.expect_state(State::Closed);
    assert_eq!(t.connection.error(), Some(ConnectionError::TimedOut));
}

/// A timer of n ticks expires between n - 1 and n ticks from now; none is shorter than a second.
#[test]
fn bsd_timers_end_on_ticks() {
    let mut t = Script::established(tahoe());
    let rto = t.connection.rto();
    assert_eq!(rto, Duration::from_millis(1500), "an RTT within one tick counts as one, its variation as two more");
    t.at(120).write(100);
    t.expect(data(1, 101));
    t.expect_timer(Timer::Retransmit, 1500);
    t.at(1500).expect(data(1, 101).reason(Reason::Timeout));
    t.expect_timer(Timer::Retransmit, 4500);
}

/// Twelve retransmissions, with a timeout of at most 64 s.
#[test]
fn bsd_gives_up_after_twelve() {
    let mut t = Script::established(reno());
    t.write(100);
    t.expect(data(1, 101));
    let mut sent = 0;
    while let Some((at, _)) = t.connection.poll_timeout() {
        t.at(at.saturating_since(t.instant(0)).as_millis());
        sent += t.forget_sent();
    }
    assert_eq!((sent, t.connection.error()), (12, Some(ConnectionError::TimedOut)));
    // The intervals are 1.5, 3, ... 48, then 64 s seven times.
    assert_eq!(t.millis(), 94_500 + 7 * 64_000);
}

/// The window opens with every ACK, even while the peer's window is the limit, up to the largest window that the peer can
/// advertise.
#[test]
fn bsd_every_ack_opens_the_window() {
    let mut t = Script::established(reno());
    t.write(16_000);
    t.expect(data(1, 1001));
    for acked in (1001..9001).step_by(1000) {
        t.inject(seg().ack(acked).win(1000));
        t.expect(data(acked, acked + 1000));
    }
    t.expect_cwnd(9, None);
    t.inject(seg().ack(9001).win(8000));
    t.expect_segments(9001, 16_001, Reason::NewData);
    t.expect_cwnd(10, None);
    t.steer(|connection, _| connection.set_cwnd(64));
    t.inject(seg().ack(11_001).win(8000));
    t.expect_cwnd(65, None);
    t.inject(seg().ack(13_001).win(8000));
    t.expect_cwnd(65, None);
}

/// Slow start from one segment, one more for each ACK, whatever it acknowledges.
#[test]
fn bsd_slow_start_counts_acks() {
    let mut t = Script::established(reno());
    t.write(16_000);
    t.expect(data(1, 1001));
    t.inject(seg().ack(1001));
    t.expect_segments(1001, 3001, Reason::NewData);
    t.inject(seg().ack(3001));
    t.expect_segments(3001, 6001, Reason::NewData);
    t.inject(seg().ack(6001));
    t.expect_cwnd(4, None);
    t.expect_segments(6001, 10_001, Reason::NewData);
}

/// Tahoe: the third duplicate acts as a timeout without its backoff: one segment, ssthresh at half, and all data again in slow
/// start.
#[test]
fn tahoe_three_duplicates_start_over() {
    let mut t = out(tahoe(), 8);
    (0..2).for_each(|_| t.inject(seg()));
    t.expect_nothing();
    t.inject(seg());
    t.expect(data(1, 1001).reason(Reason::FastRetransmit));
    t.expect_cwnd(1, Some(4));
    assert_eq!((t.connection.backoff(), t.connection.counters().timeouts), (0, 0));
    // Further duplicates have no effect.
    (0..4).for_each(|_| t.inject(seg()));
    t.expect_nothing();
    t.inject(seg().ack(4001));
    t.expect_cwnd(2, Some(4));
    t.expect_segments(4001, 6001, Reason::LossRecovery);
    t.inject(seg().ack(8001));
    t.expect_cwnd(3, Some(4));
    t.expect_segments(8001, 11_001, Reason::NewData);
}

/// Reno: half the window plus a segment for each duplicate; the first ACK of new data ends recovery, with or without holes.
#[test]
fn reno_fast_recovery_ends_with_the_first_ack() {
    let mut t = out(reno(), 8);
    (0..3).for_each(|_| t.inject(seg()));
    t.expect(data(1, 1001).reason(Reason::FastRetransmit));
    t.expect_cwnd(4, Some(4));
    t.inject(seg());
    t.expect_nothing();
    for n in 0..3 {
        t.inject(seg());
        t.expect(data(8001 + n * 1000, 9001 + n * 1000).reason(Reason::NewData));
    }
    // There is a second hole at 4001.
    t.inject(seg().ack(4001));
    assert_eq!(t.connection.recovery_state(), RecoveryState::Open);
    t.expect_cwnd(4, Some(4));
    t.expect_nothing();
    // It needs three more duplicates.
    (0..2).for_each(|_| t.inject(seg()));
    t.expect_nothing();
    t.inject(seg());
    t.expect(data(4001, 5001).reason(Reason::FastRetransmit));
    t.expect_cwnd(2, Some(2));
}

/// ssthresh is reduced at each timeout, from the present window: to two after the second.
#[test]
fn bsd_cuts_at_each_timeout() {
    let mut t = out(reno(), 8);
    t.at(1500).expect(data(1, 1001).reason(Reason::Timeout));
    t.expect_cwnd(1, Some(4));
    t.at(4500).expect(data(1, 1001).reason(Reason::Timeout));
    t.expect_cwnd(1, Some(2));
}

/// Three duplicates in a row are enough, even if fewer segments follow the first one; also if fast retransmits are barred after
/// a timeout.
#[test]
fn bsd_counts_duplicates_in_a_row() {
    for bar_after_timeout in [false, true] {
        let mut config = reno();
        config.recovery.bar_after_timeout = bar_after_timeout;
        let mut t = out(config, 2);
        (0..2).for_each(|_| t.inject(seg()));
        t.expect_nothing();
        t.inject(seg());
        t.expect(data(1, 1001).reason(Reason::FastRetransmit));
        t.forget_sent();
    }
}

/// After a timeout duplicates count as usual.
#[test]
fn bsd_has_no_bar_after_a_timeout() {
    let mut t = out(reno(), 8);
    t.at(1500).expect(data(1, 1001).reason(Reason::Timeout));
    (0..3).for_each(|_| t.inject(seg()));
    t.expect(data(1, 1001).reason(Reason::FastRetransmit));
    t.forget_sent();
}

/// A fast retransmit in the slow start after a timeout puts SND.NXT back to where it was: what the timeout took back follows,
/// with ACKs, and without another timeout.
#[test]
fn reno_continues_after_a_timeout_and_a_fast_retransmit() {
    let mut t = out(reno(), 8);
    t.at(1500).expect(data(1, 1001).reason(Reason::Timeout));
    (0..3).for_each(|_| t.inject(seg()));
    t.expect(data(1, 1001).reason(Reason::FastRetransmit));
    t.expect(data(1001, 2001).reason(Reason::LossRecovery));
    t.at(1600).inject(seg().ack(1001));
    assert_eq!(t.connection.recovery_state(), RecoveryState::Loss);
    t.expect_cwnd(2, Some(2));
    t.expect(data(2001, 3001).reason(Reason::LossRecovery));
    t.at(1700).inject(seg().ack(3001));
    t.expect_segments(3001, 5001, Reason::LossRecovery);
    t.at(1800).inject(seg().ack(8001));
    t.expect_segments(8001, 11_001, Reason::NewData);
    assert_eq!(t.connection.counters().timeouts, 1);
    assert_eq!(t.connection.recovery_state(), RecoveryState::Open);
}

/// Eight segments were outstanding at a timeout. One of them is left and was retransmitted, and five new ones follow it.
fn beyond_a_timeout(config: Config) -> Script {
    let mut t = out(config, 8);
    t.at(1500).expect(data(1, 1001).reason(Reason::Timeout));
    t.at(1600).inject(seg().ack(1001));
    t.expect_segments(1001, 3001, Reason::LossRecovery);
    t.at(1700).inject(seg().ack(7001));
    t.expect(data(7001, 8001).reason(Reason::LossRecovery));
    t.steer(|connection, _| connection.set_cwnd(6));
    t.expect_segments(8001, 13_001, Reason::NewData);
    assert_eq!(t.connection.recovery_state(), RecoveryState::Loss);
    t
}

/// After a timeout, too, the first two duplicates send nothing and the third begins a fast retransmit. In fast recovery the
/// window is half the old one and a segment for each duplicate, three of which have come.
#[test]
fn bsd_sends_nothing_on_two_duplicates_after_a_timeout() {
    for config in [tahoe(), reno()] {
        let mut t = beyond_a_timeout(config);
        (0..2).for_each(|_| t.inject(seg()));
        t.expect_nothing();
        t.inject(seg());
        t.expect(data(7001, 8001).reason(Reason::FastRetransmit));
        t.expect_nothing();
    }
    let mut t = beyond_a_timeout(reno());
    (0..3).for_each(|_| t.inject(seg()));
    t.expect(data(7001, 8001).reason(Reason::FastRetransmit));
    t.expect_cwnd(3, Some(3));
    t.inject(seg());
    t.expect(data(13_001, 14_001).reason(Reason::NewData));
    t.expect_nothing();
}

/// If fast retransmits are barred after a timeout, no number of duplicates makes room.
#[test]
fn bsd_barred_after_a_timeout_sends_nothing_on_duplicates() {
    let mut config = reno();
    config.recovery.bar_after_timeout = true;
    let mut t = beyond_a_timeout(config);
    (0..6).for_each(|_| t.inject(seg()));
    t.expect_nothing();
    assert_eq!(t.connection.recovery_state(), RecoveryState::Loss);
    t.inject(seg().ack(9001));
    t.expect_segments(13_001, 15_001, Reason::NewData);
    assert_eq!(t.connection.recovery_state(), RecoveryState::Open);
}

/// After an RTO of silence the window is one segment.
#[test]
fn bsd_restarts_after_idle() {
    let mut t = out(reno(), 8);
    t.inject(seg().ack(8001));
    t.forget_sent();
    t.inject(seg().ack(16_001));
    t.at(10_000).write(8000);
    t.expect(data(16_001, 17_001));
}

/// The persist interval is at least 5 s and at most 60 s, and a probe has one byte.
#[test]
fn bsd_persists_between_5_and_60_seconds() {
    let mut t = Script::established(reno());
    t.inject(seg().win(0));
    t.write(100);
    let mut at = 0;
    for wait in [5, 10, 20, 40, 60, 60] {
        at += wait;
        t.at(at * 1000).expect(data(1, 2).reason(Reason::WindowProbe));
        t.inject(seg().win(0));
    }
}

/// The window closes over outstanding data: all of it becomes unsent, and is sent again when the window opens.
#[test]
fn bsd_pulls_back_at_a_closed_window() {
    let mut t = out(reno(), 4);
    t.at(100).inject(seg().ack(2001).win(0));
    t.expect_no_timer(Timer::Retransmit);
    t.at(5100).expect(data(2001, 2002).reason(Reason::WindowProbe));
    t.at(6000).inject(seg().ack(2001).win(10_000));
    t.expect(data(2001, 3001).reason(Reason::LossRecovery));
    t.expect(data(3001, 4001).reason(Reason::LossRecovery));
    t.forget_sent();
    assert_eq!(t.connection.counters().timeouts, 0);
    assert_eq!(t.connection.ssthresh(), None);
}

/// Delayed ACKs are sent at the fast timeout, every 200 ms.
#[test]
fn bsd_delayed_acks() {
    let mut t = Script::established(reno());
    t.at(130).inject(seg().data(10));
    t.at(200).expect(ack(11).reason(Reason::DelayedAck));
    t.at(210).inject(seg().data(1000));
    t.inject(seg().data(1000));
    t.expect(ack(2011).reason(Reason::Ack));
}

/// The only option is MSS.
#[test]
fn bsd_offers_nothing_but_mss() {
    let only_mss = holdover_wire::RareOptions { mss: Some(1000), ..Default::default() };
    let only_mss = holdover_wire::TcpOptions::from(only_mss);
    let mut t = Script::connect(tahoe());
    t.expect(our_syn().win(16_384).options(only_mss.clone()));
    let mut t = Script::accept(reno(), syn().sack_ok().wscale(7).ts(1, 0));
    t.expect(our_syn_ack().options(only_mss));
}
