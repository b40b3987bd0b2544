//! The owner's verbs for sent data: the effect of each, and what it leaves unchanged.

use holdover_base::Duration;
use holdover_tcp::{AfterRetransmit, Config, LossDetection, Reason, RecoveryState, State, Timer};
use holdover_wire::SeqRange;

use crate::script::*;

/// Ten segments outstanding since 0 ms.
pub(crate) fn ten_out(config: Config) -> Script {
    let mut t = Script::established(config);
    t.write(20_000);
    t.expect_segments(1, 10_001, Reason::NewData);
    t
}

/// Like a timeout, except for the backoff, and without counting towards the retry limit.
#[test]
fn retransmit_now() {
    for (after, rto) in
        [(AfterRetransmit::BackOff, 4000), (AfterRetransmit::Keep, 2000), (AfterRetransmit::Reset, 1000)]
    {
        let mut t = ten_out(plain());
        t.at(1000).expect(data(1, 1001).reason(Reason::Timeout));
        assert_eq!(t.connection.rto(), Duration::from_millis(2000));
        t.at(1500);
        assert!(t.steer(|connection, now| connection.retransmit_now(now, after)));
        t.expect(data(1, 1001).reason(Reason::Requested));
        t.expect_cwnd(1, Some(5));
        t.expect_timer(Timer::Retransmit, 1500 + rto);
        assert_eq!(t.connection.rto(), Duration::from_millis(rto), "{after:?}");
        assert_eq!((t.connection.retransmits(), t.connection.counters().timeouts), (1, 1));
        assert_eq!(t.connection.recovery_state(), RecoveryState::Loss);
        t.inject(seg().ack(10_001));
        t.forget_sent();
    }
}

/// From an open state ssthresh is reduced and the window falls to one segment, as after a timeout.
#[test]
fn retransmit_now_in_the_open_state() {
    let mut t = ten_out(plain());
    t.at(500);
    assert!(t.steer(|connection, now| connection.retransmit_now(now, AfterRetransmit::Keep)));
    t.expect(data(1, 1001).reason(Reason::Requested));
    t.expect_cwnd(1, Some(5));
    t.expect_timer(Timer::Retransmit, 1500);
}

#[test]
fn retransmit_now_without_anything_outstanding() {
    let mut t = Script::established(plain());
    assert!(!t.steer(|connection, now| connection.retransmit_now(now, AfterRetransmit::Reset)));
    t.expect_nothing();
    t.expect_no_timer(Timer::Retransmit);
    t.expect_cwnd(10, None);
}

#[test]
fn retransmit_now_in_the_handshake() {
    let mut t = Script::in_state(State::SynSent, plain());
    t.at(400);
    assert!(t.steer(|connection, now| connection.retransmit_now(now, AfterRetransmit::Keep)));
    t.expect(our_syn().reason(Reason::Syn));
    t.expect_timer(Timer::Retransmit, 1400);
    t.inject(syn_ack());
    t.expect(ack(1));
    // The retransmission is not a sign of congestion: the window stays as it would have been.
    t.expect_cwnd(10, None);
    let mut t = Script::in_state(State::FinWait1, plain());
    assert!(t.steer(|connection, now| connection.retransmit_now(now, AfterRetransmit::Keep)));
    t.expect(our_fin(1).reason(Reason::Requested));
}

/// A range from the first outstanding byte on, like the segments' numbers.
fn sent(t: &Script, start: u32, end: u32) -> SeqRange {
    let first = t.connection.snd_nxt() - 10_000 - 1;
    SeqRange::new(first + start, first + end)
}

/// Retransmissions fill the window, and no more; neither window nor threshold moves.
#[test]
fn presume_lost() {
    let mut t = ten_out(plain());
    t.at(1000).expect(data(1, 1001).reason(Reason::Timeout));
    t.at(1500);
    let all = sent(&t, 1, 10_001);
    t.steer(|connection, now| {
        connection.set_cwnd(3);
        assert!(connection.presume_lost(now, all, AfterRetransmit::Reset));
    });
    t.expect_segments(1, 3001, Reason::LossRecovery);
    t.expect_cwnd(3, Some(5));
    assert_eq!(t.connection.recovery_state(), RecoveryState::Loss);
    t.expect_timer(Timer::Retransmit, 2500);
    // Only segments inside the range are lost; the others stay in flight.
    let mut t = ten_out(plain());
    let some = sent(&t, 2500, 4001);
    t.steer(|connection, now| assert!(connection.presume_lost(now, some, AfterRetransmit::Keep)));
    t.expect_segments(2001, 4001, Reason::LossRecovery);
    t.expect_cwnd(10, None);
    // A retransmission in flight is lost as well.
    t.steer(|connection, now| assert!(connection.presume_lost(now, some, AfterRetransmit::Keep)));
    t.expect_segments(2001, 4001, Reason::LossRecovery);
    // No data is outstanding in the range, or the peer's window is closed.
    let beyond = sent(&t, 10_001, 20_001);
    t.steer(|connection, now| assert!(!connection.presume_lost(now, beyond, AfterRetransmit::Reset)));
    t.inject(seg().win(0));
    t.steer(|connection, now| assert!(!connection.presume_lost(now, some, AfterRetransmit::Reset)));
    t.forget_sent();
}

/// No duplicate and no timestamp restores the former state.
#[test]
fn presume_lost_bars_an_undo() {
    let mut t = ten_out(plain());
    t.at(1000).expect(data(1, 1001).reason(Reason::Timeout));
    let all = sent(&t, 1, 10_001);
    t.steer(|connection, now| {
        connection.set_cwnd(2);
        assert!(connection.presume_lost(now, all, AfterRetransmit::Reset));
    });
    t.forget_sent();
    t.at(1010).inject(seg().ack(10_001));
    t.expect_cwnd(6, Some(5));
    t.forget_sent();
}

/// Treated as SACKed, whether SACK was agreed or not.
#[test]
fn note_held_by_peer() {
    for sack in [false, true] {
        let mut config = plain();
        config.sack = sack;
        let mut t = ten_out(config);
        let (all, held) = (sent(&t, 1, 10_001), [sent(&t, 2001, 5001), sent(&t, 6500, 8500), sent(&t, 15_001, 20_001)]);
        t.steer(|connection, now| {
            assert!(connection.presume_lost(now, all, AfterRetransmit::Reset));
            held.into_iter().for_each(|range| connection.note_held_by_peer(range));
        });
        t.expect_segments(1, 2001, Reason::LossRecovery);
        t.expect_segments(5001, 6001, Reason::LossRecovery);
        // Segments that the second range covers in part are cut.
        t.expect(data(6001, 6500));
        t.expect(data(8500, 9001));
        t.expect(data(9001, 10_001));
        // Data that the peer holds makes room for new data.
        t.expect_segments(10_001, 14_001, Reason::NewData);
        assert_eq!(t.connection.sacked(), 6);
        t.inject(seg().ack(2001));
        t.forget_sent();
        t.inject(seg().ack(10_001));
        t.forget_sent();
        assert_eq!(t.connection.sacked(), 0);
    }
}

/// Retransmissions and new data leave the room; the cut part of a retransmission begins the next one.
#[test]
fn reserve_option_room() {
    let mut t = ten_out(plain());
    let all = sent(&t, 1, 10_001);
    t.steer(|connection, now| {
        connection.set_cwnd(3);
        connection.reserve_option_room(12);
        assert!(connection.presume_lost(now, all, AfterRetransmit::Reset));
    });
    t.expect(data(1, 989));
    t.expect(data(989, 1977));
    t.expect(data(1977, 2965));
    t.steer(|connection, _| connection.reserve_option_room(0));
    t.inject(seg().ack(2965));
    t.expect(data(2965, 3965));
    t.forget_sent();
    // A new segment follows.
    let mut t = Script::established(plain());
    t.steer(|connection, _| connection.reserve_option_room(12));
    t.write(1976);
    t.expect(data(1, 989));
    t.expect(data(989, 1977));
}

#[test]
fn set_cwnd_and_ssthresh() {
    let mut t = Script::established(plain());
    t.steer(|connection, _| {
        connection.set_cwnd(3);
        connection.set_ssthresh(7);
    });
    t.expect_cwnd(3, Some(7));
    t.write(10_000);
    t.expect_segments(1, 3001, Reason::NewData);
    t.steer(|connection, _| connection.set_cwnd(5));
    t.expect_segments(3001, 5001, Reason::NewData);
    t.steer(|connection, _| {
        connection.set_cwnd(0);
        connection.set_ssthresh(0);
    });
    t.expect_cwnd(1, Some(2));
}

/// The window falls to the initial one, and never rises; ssthresh stays.
#[test]
fn force_slow_start() {
    for (before, after) in [(40, 10), (4, 4)] {
        let mut t = Script::established(plain());
        t.steer(|connection, _| {
            connection.set_cwnd(before);
            connection.set_ssthresh(20);
            connection.force_slow_start();
        });
        t.expect_cwnd(after, Some(20));
    }
}

/// ... and an earlier reduction is not undone afterwards.
#[test]
fn force_slow_start_bars_an_undo() {
    let mut t = ten_out(plain());
    t.at(1000).expect(data(1, 1001).reason(Reason::Timeout));
    t.steer(|connection, _| connection.force_slow_start());
    t.inject(seg().ack(1001));
    t.forget_sent();
    t.inject(seg().ack(2001));
    t.forget_sent();
    assert!(t.connection.cwnd() < 10, "{}", t.connection.cwnd());
}

/// No fast retransmit below the bar, whatever arrives; the timer is not barred, and above the bar nothing changes.
#[test]
fn bar_fast_retransmit_below() {
    for (sack, detection) in [
        (false, LossDetection::NewReno),
        (false, LossDetection::Reno),
        (false, LossDetection::Tahoe),
        (true, LossDetection::Sack),
        (true, LossDetection::Fack),
        (true, LossDetection::Rack),
    ] {
        let mut config = plain();
        config.sack = sack;
        config.recovery.with_sack = detection;
        config.recovery.without_sack = detection;
        config.recovery.limited_transmit = false;
        config.recovery.loss_probe = false;
        config.recovery.frto = false;
        let mut t = Script::established(config);
        t.inject(seg().win(10_000));
        t.write(15_000);
        t.expect_segments(1, 10_001, Reason::NewData);
        let bar = t.connection.snd_nxt();
        t.steer(|connection, _| connection.bar_fast_retransmit_below(Some(bar)));
        for n in 2..=9 {
            let dup = if sack { seg().sack(&[(1001, n * 1000 + 1)]) } else { seg() };
            t.at(n as u64 * 10).inject(dup);
        }
        assert_eq!(t.connection.counters().recoveries, 0, "{detection:?}");
        t.expect_cwnd(10, None);
        t.at(1000);
        t.expect(data(1, 1001).reason(Reason::Timeout));
        t.forget_sent();
    }
}

#[test]
fn a_lifted_bar_bars_nothing() {
    let mut config = plain();
    config.recovery.limited_transmit = false;
    let mut t = ten_out(config);
    let bar = t.connection.snd_nxt();
    t.steer(|connection, _| connection.bar_fast_retransmit_below(Some(bar)));
    (0..2).for_each(|_| t.inject(seg()));
    t.steer(|connection, _| connection.bar_fast_retransmit_below(None));
    t.inject(seg());
    t.expect(data(1, 1001).reason(Reason::FastRetransmit));
    t.forget_sent();
    // A bar below SND.UNA has no effect.
    let mut config = plain();
    config.recovery.limited_transmit = false;
    let mut t = ten_out(config);
    let bar = t.connection.snd_una() + 1000;
    t.steer(|connection, _| connection.bar_fast_retransmit_below(Some(bar)));
    t.inject(seg().ack(1001));
    t.forget_sent();
    (0..3).for_each(|_| t.inject(seg()));
    t.expect(data(1001, 2001).reason(Reason::FastRetransmit));
    t.forget_sent();
}
