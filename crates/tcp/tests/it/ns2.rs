//! ns-2's `Sack1`: a window of 20 packets, no delayed ACKs, duplicates that need new SACK blocks, ssthresh reduced at each
//! timeout, and a retransmission timer that freezes at a closed window.

use holdover_base::Duration;
use holdover_tcp::{Config, Profile, Reason, RecoveryState, State, Timer};

use crate::script::*;

fn sack1() -> Config {
    let mut config = Profile::Sack1Ns2.config();
    config.mss = 1000;
    config.timestamps = None;
    config
}

/// `cwnd` segments outstanding.
fn out(cwnd: u32) -> Script {
    let mut t = Script::established(sack1());
    t.inject(seg().win(60_000));
    t.steer(|connection, _| connection.set_cwnd(cwnd));
    t.write(60_000);
    t.expect_segments(1, 1 + i64::from(cwnd) * 1000, Reason::NewData);
    t
}

/// `window_` limits cwnd, and so the outstanding data.
#[test]
fn ns2_the_window_is_20_packets() {
    let mut t = out(20);
    for n in 1..=30 {
        t.inject(seg().ack(1 + n * 1000));
        t.expect(data(20_001 + (n - 1) * 1000, 21_001 + (n - 1) * 1000));
        t.expect_cwnd(20, None);
    }
}

/// One packet initially (`windowInit_`), and one more for each ACK.
#[test]
fn ns2_slow_start() {
    let mut t = Script::established(sack1());
    t.write(10_000);
    t.expect(data(1, 1001));
    t.inject(seg().ack(1001));
    t.expect_segments(1001, 3001, Reason::NewData);
    t.inject(seg().ack(3001));
    t.expect_segments(3001, 6001, Reason::NewData);
}

#[test]
fn ns2_the_sink_acknowledges_every_packet() {
    let mut t = Script::established(sack1());
    for n in 1..6 {
        t.inject(seg().data(1000));
        t.expect(ack(1 + n * 1000).reason(Reason::Ack));
        t.read(1000);
    }
}

/// A duplicate counts only if it SACKs something new.
#[test]
fn ns2_duplicates_need_news() {
    let mut t = out(10);
    (0..5).for_each(|_| t.inject(seg()));
    t.inject(seg().sack(&[(1001, 2001)]));
    (0..5).for_each(|_| t.inject(seg().sack(&[(1001, 2001)])));
    t.inject(seg().sack(&[(1001, 3001)]));
    t.expect_nothing();
    t.inject(seg().sack(&[(1001, 4001)]));
    t.expect(data(1, 1001).reason(Reason::FastRetransmit));
    t.expect_cwnd(5, Some(5));
    assert_eq!(t.connection.recovery_state(), RecoveryState::Recovery);
}

/// The first duplicates send no new data.
#[test]
fn ns2_has_no_limited_transmit() {
    let mut t = out(10);
    t.inject(seg().sack(&[(1001, 2001)]));
    t.inject(seg().sack(&[(1001, 3001)]));
    t.expect_nothing();
}

/// Ticks of 100 ms, at least two; doubled up to 64 s, without a retry limit; ssthresh is reduced each time.
#[test]
fn ns2_timeouts() {
    let mut t = out(10);
    assert_eq!(t.connection.rto(), Duration::from_millis(300), "a tick, and four times half a tick");
    t.at(300).expect(data(1, 1001).reason(Reason::Timeout));
    t.expect_cwnd(1, Some(5));
    t.at(900).expect(data(1, 1001).reason(Reason::Timeout));
    t.expect_cwnd(1, Some(2));
    let (mut at, mut rto) = (900, 1200);
    for _ in 0..20 {
        at += rto;
        t.at(at).expect(data(1, 1001).reason(Reason::Timeout));
        rto = (rto * 2).min(64_000);
    }
    t.expect_state(State::Established);
}

/// "bugFix_": after a timeout no fast retransmit below the data that was outstanding then.
#[test]
fn ns2_bars_fast_retransmit_after_a_timeout() {
    let mut t = out(10);
    t.at(300).expect(data(1, 1001).reason(Reason::Timeout));
    t.inject(seg().sack(&[(1001, 2001)]));
    t.inject(seg().sack(&[(1001, 3001)]));
    t.inject(seg().sack(&[(1001, 4001)]));
    t.inject(seg().sack(&[(1001, 5001)]));
    assert_eq!(t.connection.counters().recoveries, 0);
    t.forget_sent();
}

/// Persist mode with frozen timers: nothing times out while the window is closed, and then the timer continues with its
/// remaining time.
#[test]
fn ns2_freezes_at_a_closed_window() {
    let mut t = out(10);
    t.at(100).inject(seg().ack(1).win(0));
    t.expect_no_timer(Timer::Retransmit);
    for at in [400, 1000, 2200, 4600] {
        t.at(at).expect(ack(1).seq(0).reason(Reason::WindowProbe));
    }
    t.at(5000).inject(seg().ack(1).win(60_000));
    t.expect_nothing();
    t.expect_cwnd(10, None);
    t.expect_timer(Timer::Retransmit, 5200);
    t.inject(seg().ack(10_001));
    t.forget_sent();
    assert_eq!(t.connection.counters().timeouts, 0);
}

/// Lost data stays in the pipe: with 15 of 20 packets lost the pipe never falls below the window, and the timer must expire. The
/// thesis on Freeze-TCP, section 6.3.1, describes such traces.
#[test]
fn ns2_waits_for_its_timer_when_most_of_a_window_is_lost() {
    let mut t = out(20);
    let sack = |end| seg().sack(&[(15_001, end)]);
    t.inject(sack(16_001));
    t.inject(sack(17_001));
    t.inject(sack(18_001));
    t.expect(data(1, 1001).reason(Reason::FastRetransmit));
    t.expect_cwnd(10, Some(10));
    assert_eq!(t.connection.in_flight(), 17);
    t.inject(sack(19_001));
    t.inject(sack(20_001));
    assert_eq!(t.connection.in_flight(), 15);
    t.inject(seg().ack(1001).sack(&[(15_001, 20_001)]));
    assert_eq!(t.connection.in_flight(), 13, "two for an ACK that advances");
    t.expect_nothing();
    // The round trip is one tick of 100 ms, plus four times half of one.
    t.at(299).expect_nothing();
    t.at(300).expect(data(1001, 2001).reason(Reason::Timeout));
}

/// With fewer losses, ACKs open the pipe, and holes are repaired within recovery.
#[test]
fn ns2_repairs_few_losses_without_a_timeout() {
    let mut t = out(20);
    (3..=20).for_each(|n| {
        t.inject(seg().sack(&[(2001, 1 + n * 1000)]));
        if n == 5 {
            t.expect(data(1, 1001).reason(Reason::FastRetransmit));
        }
        if n == 13 {
            t.expect(data(1001, 2001).reason(Reason::LossRecovery));
        }
        t.forget_sent();
    });
    t.inject(seg().ack(20_001));
    t.forget_sent();
    assert_eq!((t.connection.counters().timeouts, t.connection.recovery_state()), (0, RecoveryState::Open));
}

/// Go-back-N: data that was SACKed before a timeout is retransmitted.
#[test]
fn ns2_forgets_sacks_at_a_timeout() {
    let mut t = out(10);
    t.inject(seg().sack(&[(1001, 3001)]));
    t.at(300).expect(data(1, 1001).reason(Reason::Timeout));
    t.inject(seg().ack(1001));
    t.expect_segments(1001, 3001, Reason::LossRecovery);
}

/// The RTT is measured from the echo, even if the segment was sent very recently: an old echo inflates the RTO.
#[test]
fn ns2_samples_the_echo() {
    for samples_echo in [true, false] {
        let mut config = Profile::Sack1Ns2.config();
        config.mss = 1012;
        config.rto.samples_echo = samples_echo;
        let mut t = Script::established(config);
        let before = t.connection.rto();
        t.at(1000).write(1000);
        t.forget_sent();
        t.inject(seg().ack(989).ts(PEER_CLOCK + 1, OUR_CLOCK));
        t.forget_sent();
        assert_eq!(t.connection.rto() > before, samples_echo, "{before:?} {:?}", t.connection.rto());
    }
}
