//! The owner's verbs: what each does, and what it leaves alone.

use holdover_base::Duration;
use holdover_tcp::{AfterRetransmit, Config, Disposition, Event, LossDetection, Reason, RecoveryState, State, Timer};
use holdover_wire::{Seq, SeqRange};

use crate::script::*;

fn point(t: &Script, relative: u32) -> Option<Seq> {
    Some(t.connection.rcv_nxt() + relative)
}

/// Ten segments out at 0 ms.
fn ten_out(config: Config) -> Script {
    let mut t = Script::established(config);
    t.write(20_000);
    t.expect_segments(1, 10_001, Reason::NewData);
    t
}

/// Nothing is sent by the clamp alone; every segment from then on says it.
#[test]
fn clamp_window_to_zero() {
    let mut t = Script::established(plain());
    t.inject(seg().data(500));
    t.steer(|connection, _| connection.clamp_window(Some(0)));
    t.expect_nothing();
    t.steer(|connection, _| connection.send_acks(1));
    t.expect(ack(501).win(0).reason(Reason::RequestedAck));
    t.write(100);
    t.expect(data(1, 101).win(0));
    t.inject(seg().ack(101));
    // Opening says nothing of itself either.
    t.steer(|connection, _| connection.clamp_window(None));
    t.expect_nothing();
    t.steer(|connection, _| connection.send_acks(1));
    t.expect(ack(501).win(9500));
}

/// What was sent into the wider window is taken, and acknowledged with a window of zero.
#[test]
fn clamp_window_to_zero_takes_what_is_in_flight() {
    let mut t = Script::established(plain());
    t.steer(|connection, _| {
        connection.clamp_window(Some(0));
        connection.send_acks(1);
    });
    t.expect(ack(1).win(0));
    for n in 0..4 {
        t.inject(seg().data(1000));
        t.inject(seg().data(1000));
        t.expect(ack(2001 + n * 2000).win(0));
    }
    t.read(8000);
    t.expect_nothing();
    t.inject(seg().data(1000));
    t.inject(fin().data(1000));
    t.expect(ack(10_002).win(0));
    t.expect_state(State::CloseWait);
}

/// A probe of the window that the owner has closed is answered, and its byte taken: it lies in the window that is still there.
#[test]
fn clamp_window_to_zero_answers_probes() {
    let mut t = Script::established(plain());
    t.steer(|connection, _| {
        connection.clamp_window(Some(0));
        connection.send_acks(1);
    });
    t.expect(ack(1).win(0));
    t.inject_as(Disposition::OutsideWindow, seg().seq(0));
    t.expect(ack(1).win(0));
    t.inject(seg().data(1));
    t.at(200).expect(ack(2).win(0));
}

#[test]
fn clamp_window_to_less() {
    let mut t = Script::established(plain());
    t.steer(|connection, _| {
        connection.clamp_window(Some(4000));
        connection.send_acks(1);
    });
    t.expect(ack(1).win(4000));
    t.inject(seg().data(1000));
    t.inject(seg().data(1000));
    t.expect(ack(2001).win(4000));
    t.steer(|connection, _| {
        connection.clamp_window(Some(u32::MAX));
        connection.send_acks(1);
    });
    t.expect(ack(2001).win(8000));
}

/// It rounds down where the window is scaled, and goes for the SYN-ACK too.
#[test]
fn clamp_window_with_scaling_and_in_the_handshake() {
    let mut config = plain();
    config.window_scale = Some(4);
    config.receive.buffer_bytes = 200_000;
    config.receive.max_buffer_bytes = 200_000;
    let mut t = Script::established(config.clone());
    t.steer(|connection, _| {
        connection.clamp_window(Some(1000));
        connection.send_acks(1);
    });
    t.expect(ack(1).win(62));
    let mut t = Script::in_state(State::SynReceived, config);
    t.steer(|connection, _| connection.clamp_window(Some(300)));
    t.at(1000).expect(our_syn_ack().win(300));
}

/// The ACK field stays, data is taken and delivered, and the edge of the window stays where it would be.
#[test]
fn hold_ack_point() {
    let mut t = Script::established(plain());
    let held = point(&t, 0);
    t.steer(|connection, _| connection.hold_ack_point(held));
    t.inject(seg().data(1000));
    t.inject(seg().data(1000));
    t.expect(ack(1).win(10_000).reason(Reason::Ack));
    t.read(2000);
    assert_eq!(t.rcv_nxt(), 2001);
    assert_eq!(Some(t.connection.current_ack_point()), held);
    // Sent again, as nothing was acknowledged.
    t.inject_as(Disposition::DuplicateData, seg().seq(1).data(1000));
    t.expect(ack(1).reason(Reason::DuplicateData));
    t.write(100);
    t.expect(data(1, 101).ack(1));
    t.steer(|connection, _| connection.hold_ack_point(None));
    t.expect_nothing();
    t.steer(|connection, _| connection.send_acks(1));
    t.expect(ack(2001));
}

/// Our FIN goes out without the ACK of the peer's: as if they had crossed. The peer may miss the ACK that is given later, and
/// finds somebody who gives it again.
#[test]
fn hold_ack_point_over_a_fin() {
    let mut t = Script::established(plain());
    let held = point(&t, 0);
    t.steer(|connection, _| connection.hold_ack_point(held));
    t.inject(fin());
    t.forget_sent();
    t.expect_state(State::CloseWait);
    t.close();
    t.expect(our_fin(1).ack(1));
    t.expect_state(State::Closing);
    t.steer(|connection, _| {
        connection.hold_ack_point(None);
        connection.send_acks(1);
    });
    t.expect(ack(2));
    t.inject(seg().seq(2).ack(2));
    t.expect_state(State::TimeWait);
    t.forget_sent();
    t.inject_as(Disposition::DuplicateData, fin().seq(1).ack(2));
    t.expect(ack(2));
}

/// One byte before what has arrived: the most recent byte is held back.
#[test]
fn hold_ack_point_below_what_arrives_later() {
    let mut t = Script::established(plain());
    let held = point(&t, 1999);
    t.steer(|connection, _| connection.hold_ack_point(held));
    t.inject(seg().data(1000));
    t.at(200).expect(ack(1001));
    t.inject(seg().data(1000));
    t.at(400).expect(ack(2000));
    t.inject(seg().data(1000));
    t.inject(seg().data(1000));
    t.expect(ack(2000));
    // A point that was passed already counts as what was acknowledged.
    let lower = point(&t, 0).map(|nxt| nxt - 4000);
    t.steer(|connection, _| connection.hold_ack_point(lower));
    t.steer(|connection, _| connection.send_acks(1));
    t.expect(ack(2000));
}

/// What was not received is never acknowledged.
#[test]
fn hold_ack_point_ahead_of_what_has_arrived() {
    let mut t = Script::established(plain());
    let ahead = point(&t, 100_000);
    t.steer(|connection, _| {
        connection.hold_ack_point(ahead);
        connection.send_acks(1);
    });
    t.expect(ack(1));
    t.inject(seg().data(1000));
    t.inject(seg().data(1000));
    t.expect(ack(2001));
}

#[test]
fn send_acks() {
    let mut t = Script::established(plain());
    t.inject(seg().data(10));
    t.steer(|connection, _| connection.send_acks(3));
    for _ in 0..3 {
        t.expect(ack(11).seq(1).win(9990).reason(Reason::RequestedAck));
    }
    t.expect_no_timer(Timer::DelayedAck);
    assert_eq!(t.connection.counters().sent(Reason::RequestedAck), 3);
    t.steer(|connection, _| connection.send_acks(0));
    t.expect_nothing();
    // There is nothing to acknowledge before the handshake is complete.
    for state in [State::SynSent, State::SynReceived, State::Closed] {
        let mut t = Script::in_state(state, plain());
        t.steer(|connection, _| connection.send_acks(3));
        t.expect_nothing();
    }
    // While data is outstanding, they do not carry any.
    let mut t = ten_out(plain());
    t.steer(|connection, _| connection.send_acks(1));
    t.expect(ack(1).seq(10_001));
}

#[test]
fn shift_timestamp_echo() {
    let mut config = plain();
    config.timestamps = Some(Duration::from_millis(1));
    let mut t = Script::established(config);
    t.steer(|connection, _| {
        connection.shift_timestamp_echo(250);
        connection.send_acks(1);
    });
    t.expect(ack(1).ts(OUR_CLOCK, PEER_CLOCK + 250));
    t.at(10).inject(seg().data(100));
    t.at(20).write(50);
    t.expect(data(1, 51).ts(OUR_CLOCK + 20, PEER_CLOCK + 10 + 250));
    // What is judged by timestamps is judged by the true ones.
    t.at(30).inject(seg().ack(51).data(10));
    t.steer(|connection, _| connection.shift_timestamp_echo(u32::MAX));
    t.steer(|connection, _| connection.send_acks(1));
    t.expect(ack(111).ts(OUR_CLOCK + 30, PEER_CLOCK + 30 - 1));
    t.steer(|connection, _| connection.shift_timestamp_echo(0));
    t.steer(|connection, _| connection.send_acks(1));
    t.expect(ack(111).ts(OUR_CLOCK + 30, PEER_CLOCK + 30));
    // Nothing was agreed: nothing to shift.
    let mut t = Script::established(plain());
    t.steer(|connection, _| {
        connection.shift_timestamp_echo(9);
        connection.send_acks(1);
    });
    t.expect(ack(1).no_ts());
}

/// As a timeout, but for the backoff, and without counting towards giving up.
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

/// From an open state ssthresh is cut and the window falls to one segment, as a timeout would do.
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
    // Not a sign of congestion: the window is what it would have been.
    t.expect_cwnd(10, None);
    let mut t = Script::in_state(State::FinWait1, plain());
    assert!(t.steer(|connection, now| connection.retransmit_now(now, AfterRetransmit::Keep)));
    t.expect(our_fin(1).reason(Reason::Requested));
}

/// From the first outstanding byte on, like the segments' numbers.
fn sent(t: &Script, start: u32, end: u32) -> SeqRange {
    let first = t.connection.snd_nxt() - 10_000 - 1;
    SeqRange::new(first + start, first + end)
}

/// What the window allows is retransmitted, and no more; neither window nor threshold moves.
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
    // Only what lies in the range: the others stay in flight.
    let mut t = ten_out(plain());
    let some = sent(&t, 2500, 4001);
    t.steer(|connection, now| assert!(connection.presume_lost(now, some, AfterRetransmit::Keep)));
    t.expect_segments(2001, 4001, Reason::LossRecovery);
    t.expect_cwnd(10, None);
    // A copy that is under way is lost as well.
    t.steer(|connection, now| assert!(connection.presume_lost(now, some, AfterRetransmit::Keep)));
    t.expect_segments(2001, 4001, Reason::LossRecovery);
    // Nothing is outstanding there, or the peer's window is closed.
    let beyond = sent(&t, 10_001, 20_001);
    t.steer(|connection, now| assert!(!connection.presume_lost(now, beyond, AfterRetransmit::Reset)));
    t.inject(seg().win(0));
    t.steer(|connection, now| assert!(!connection.presume_lost(now, some, AfterRetransmit::Reset)));
    t.forget_sent();
}

/// No duplicate and no timestamp brings back what was before.
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

/// As though it had been SACKed, whether SACK was agreed or not.
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
        // What the second range covers in part is cut.
        t.expect(data(6001, 6500));
        t.expect(data(8500, 9001));
        t.expect(data(9001, 10_001));
        // What the peer holds makes room.
        t.expect_segments(10_001, 14_001, Reason::NewData);
        assert_eq!(t.connection.sacked(), 6);
        t.inject(seg().ack(2001));
        t.forget_sent();
        t.inject(seg().ack(10_001));
        t.forget_sent();
        assert_eq!(t.connection.sacked(), 0);
    }
}

#[test]
fn ranges_out_of_order() {
    let mut t = Script::established(plain());
    let ranges = |t: &Script| -> Vec<(u32, u32)> {
        let nxt = t.connection.rcv_nxt();
        t.connection.ranges_out_of_order().map(|range| (range.start - nxt, range.end - nxt)).collect()
    };
    assert_eq!(ranges(&t), []);
    for seq in [4001, 5001, 2001] {
        t.inject(seg().seq(seq).data(1000));
        t.forget_sent();
    }
    assert_eq!(ranges(&t), [(2000, 3000), (4000, 6000)]);
    t.inject(seg().seq(1).data(2000));
    t.forget_sent();
    assert_eq!(ranges(&t), [(1000, 3000)]);
}

/// Old and new data leave the room; what a retransmission leaves over begins the next one.
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
    // New data.
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

/// The window falls to the initial one, never rises; ssthresh stays.
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

/// ... and what was reduced before is not restored afterwards.
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

/// A held timer stands still; what remains of it runs on after the release.
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

/// An ACK in the meantime starts it anew, from the release on.
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

/// No fast retransmit below the bar, whatever arrives; the timer is not barred, and above it all is as ever.
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
    // A bar that is passed bars nothing either.
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

/// The timeout in force starts anew; backoff and windows stay as they are.
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
    // Nothing is outstanding: nothing is armed.
    let mut t = Script::established(plain());
    t.steer(|connection, now| assert!(!connection.restart_retransmit_timer(now)));
    assert_eq!(t.connection.deadline(Timer::Retransmit), None);
}
