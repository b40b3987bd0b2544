//! RFC 9293 section 3.8.6: zero-window probing, windows that shrink, silly windows on both sides; and section 3.7.4, Nagle.

use holdover_base::Duration;
use holdover_tcp::{
    Config, ConnectionError, Disposition, LossDetection, ProbePayload, Reason, RecoveryState, State, Timer, ZeroWindow,
};

use crate::script::*;

/// A connection whose peer has closed its window after 1000 bytes, with 3000 more to send.
fn stopped(config: Config) -> Script {
    let mut t = Script::established(config);
    t.inject(seg().win(1000));
    t.write(4000);
    t.expect(data(1, 1001));
    t.inject(seg().ack(1001).win(0));
    t.expect_nothing();
    t
}

fn empty_probes() -> Config {
    let mut config = plain();
    config.persist.payload = ProbePayload::Empty;
    config
}

#[test]
fn rfc9293_3_8_6_1_probes_begin_after_an_rto_and_back_off() {
    let mut t = stopped(plain());
    t.expect_no_timer(Timer::Retransmit);
    let mut at = 0;
    for wait in [1, 2, 4, 8, 16, 32, 60, 60, 60] {
        t.expect_timer(Timer::Persist, at + wait * 1000);
        at += wait * 1000;
        // The probe is one byte beyond the window, the same each time.
        t.at(at).expect(data(1001, 1002).reason(Reason::WindowProbe));
        // The peer keeps the window closed; as long as it answers, the connection stays open (MUST-37).
        t.inject(seg().ack(1001).win(0));
    }
    t.expect_state(State::Established);
    assert_eq!(t.connection.unsent_len(), 3000, "a probe's byte is not sent for good");
}

/// Unanswered probes continue: RFC 9293 gives them no limit of their own.
#[test]
fn rfc9293_3_8_6_1_unanswered_probes_go_on() {
    let mut t = stopped(plain());
    let mut at = 0;
    for wait in [1, 2, 4, 8, 16, 32, 60, 60, 60, 60, 60, 60] {
        at += wait * 1000;
        t.at(at).expect(data(1001, 1002).reason(Reason::WindowProbe));
    }
    t.expect_state(State::Established);
}

#[test]
fn rfc9293_3_8_6_1_a_probe_byte_that_the_peer_takes_is_sent() {
    let mut t = stopped(plain());
    t.at(1000).expect(data(1001, 1002).reason(Reason::WindowProbe));
    t.inject(seg().ack(1002).win(0));
    assert_eq!(t.connection.send_queue_len(), 2999);
    // The next probe is of the next byte, and is not sent earlier.
    t.at(3000).expect(data(1002, 1003).reason(Reason::WindowProbe));
    t.inject(seg().ack(1003).win(20_000));
    t.expect(data(1003, 2003).reason(Reason::NewData));
    t.expect(data(2003, 3003));
    t.inject(seg().ack(3003));
    t.expect(data(3003, 4001));
    t.inject(seg().ack(4001));
    assert_eq!(t.connection.counters().bytes_acked.0, 4000);
}

#[test]
fn rfc9293_3_8_6_1_the_window_opens() {
    let mut t = stopped(plain());
    t.at(300).inject(seg().ack(1001).win(20_000));
    t.expect_segments(1001, 4001, Reason::NewData);
    t.expect_no_timer(Timer::Persist);
    t.expect_timer(Timer::Retransmit, 1300);
    // In the next closed window the backoff starts again.
    t.inject(seg().ack(4001).win(0));
    t.write(10);
    t.expect_timer(Timer::Persist, 1300);
    t.at(1300).expect(data(4001, 4002).reason(Reason::WindowProbe));
}

/// The window opens before the probe arrives, by too little for a segment; then the probe's byte is acknowledged.
#[test]
fn rfc9293_3_8_6_1_a_probe_byte_acknowledged_after_the_window_opened() {
    let mut t = stopped(plain());
    t.at(1000).expect(data(1001, 1002).reason(Reason::WindowProbe));
    t.inject(seg().ack(1001).win(10));
    t.expect_nothing();
    t.inject(seg().ack(1002).win(9));
    t.expect_nothing();
    assert_eq!(t.connection.send_queue_len(), 2999);
    t.at(1500).expect(data(1002, 1011).reason(Reason::SillyWindowOverride));
}

#[test]
fn rfc9293_3_8_6_1_empty_probes_carry_an_old_number() {
    let mut t = stopped(empty_probes());
    t.at(1000).expect(ack(1).seq(1000).reason(Reason::WindowProbe));
    t.at(3000).expect(ack(1).seq(1000).reason(Reason::WindowProbe));
    t.inject(seg().ack(1001).win(3000));
    t.expect_segments(1001, 4001, Reason::NewData);
}

/// Linux aborts after 15 unanswered probes; any answer restarts the count.
#[test]
fn unanswered_probes_end_the_connection_where_a_limit_is_set() {
    let mut config = empty_probes();
    config.persist.give_up_after = Some(2);
    let mut t = stopped(config);
    t.at(1000).expect(ack(1).seq(1000));
    t.inject(seg().ack(1001).win(0));
    t.at(3000).expect(ack(1).seq(1000));
    t.at(7000).expect(ack(1).seq(1000));
    t.expect_nothing_until(15_000);
    t.expect_state(State::Closed);
    assert_eq!(t.connection.error(), Some(ConnectionError::ProbesUnanswered));
}

/// The only thing left to send is a FIN.
#[test]
fn rfc9293_3_8_6_1_a_fin_waits_for_the_window_too() {
    for config in [plain(), empty_probes()] {
        let mut t = Script::established(config);
        t.inject(seg().win(0));
        t.shutdown();
        t.expect_nothing();
        t.expect_state(State::Established);
        t.at(1000).expect(ack(1).seq(0).reason(Reason::WindowProbe));
        t.inject(seg().win(1));
        t.expect(our_fin(1));
        t.expect_state(State::FinWait1);
        t.expect_no_timer(Timer::Persist);
    }
}

/// Data fills the window to its edge, and the FIN after it waits.
#[test]
fn rfc9293_3_8_6_1_a_fin_does_not_go_beyond_the_window() {
    let mut t = Script::established(plain());
    t.inject(seg().win(500));
    t.write(500);
    t.expect(data(1, 501));
    t.shutdown();
    t.expect_nothing();
    t.inject(seg().ack(501).win(0));
    t.at(1000).expect(ack(1).seq(500).reason(Reason::WindowProbe));
    t.inject(seg().ack(501).win(500));
    t.expect(our_fin(501));
}

/// Outstanding data when the window closes: Linux continues with the timer, reduces ssthresh only once for the flight, and does
/// not count it towards the retry limit.
#[test]
fn zero_window_over_outstanding_data_retransmit() {
    let mut t = Script::established(plain());
    t.write(3000);
    t.expect_segments(1, 3001, Reason::NewData);
    t.at(10).inject(seg().ack(1001).win(0));
    t.expect_no_timer(Timer::Persist);
    let mut at = 10;
    for wait in [1, 2, 4, 8, 16, 32, 60, 60, 60, 60, 60, 60] {
        at += wait * 1000;
        t.at(at).expect(data(1001, 2001).reason(Reason::Timeout));
        t.inject(seg().ack(1001).win(0));
    }
    t.expect_state(State::Established);
    t.inject(seg().ack(1001).win(20_000));
    t.at(at + 60_000).expect(data(1001, 2001).reason(Reason::Timeout));
    t.inject(seg().ack(3001).win(20_000));
    assert_eq!(t.connection.unacked(), 0);
}

/// The retransmission timer is frozen, probes are sent, and the timer continues when the window opens.
#[test]
fn zero_window_over_outstanding_data_freeze() {
    let mut config = plain();
    config.recovery.zero_window = ZeroWindow::Freeze;
    let mut t = Script::established(config);
    t.write(3000);
    t.expect_segments(1, 3001, Reason::NewData);
    t.at(400).inject(seg().ack(1).win(0));
    t.expect_no_timer(Timer::Retransmit);
    t.expect_timer(Timer::Persist, 1400);
    t.at(1400).expect(data(1, 2).reason(Reason::WindowProbe));
    t.at(3400).expect(data(1, 2).reason(Reason::WindowProbe));
    t.at(5000).inject(seg().ack(1).win(20_000));
    t.expect_nothing();
    t.expect_no_timer(Timer::Persist);
    t.expect_timer(Timer::Retransmit, 5600);
    t.expect_cwnd(10, None);
    assert_eq!(t.connection.backoff(), 0);
    t.at(5600).expect(data(1, 1001).reason(Reason::Timeout));
}

/// 4.3BSD makes outstanding data unsent and probes; when the window opens, all of it is sent again at once.
#[test]
fn zero_window_over_outstanding_data_pull_back() {
    let mut config = plain();
    config.recovery.zero_window = ZeroWindow::PullBack;
    let mut t = Script::established(config);
    t.write(3000);
    t.expect_segments(1, 3001, Reason::NewData);
    t.at(400).inject(seg().ack(1).win(0));
    t.expect_no_timer(Timer::Retransmit);
    t.at(1400).expect(data(1, 2).reason(Reason::WindowProbe));
    t.inject(seg().ack(2).win(0));
    t.expect_no_timer(Timer::Retransmit);
    t.at(3400).expect(data(2, 3).reason(Reason::WindowProbe));
    t.inject(seg().ack(2).win(20_000));
    t.expect(data(2, 1001).reason(Reason::LossRecovery));
    t.expect(data(1001, 2001).reason(Reason::LossRecovery));
    t.expect(data(2001, 3001).reason(Reason::LossRecovery));
    t.expect_cwnd(10, None);
    t.expect_timer(Timer::Retransmit, 4400);
    t.inject(seg().ack(3001));
    t.expect_no_timer(Timer::Retransmit);
    assert_eq!(t.connection.recovery_state(), RecoveryState::Open);
}

/// A duplicate ACK before that changes nothing: in 4.3BSD Reno, whose fast recovery any new ACK ends, the unsent data is sent
/// when the window opens, and not a timeout later.
#[test]
fn zero_window_after_a_duplicate_pull_back() {
    let mut config = plain();
    config.recovery.zero_window = ZeroWindow::PullBack;
    config.recovery.without_sack = LossDetection::Reno;
    let mut t = Script::established(config);
    t.write(3000);
    t.expect_segments(1, 3001, Reason::NewData);
    t.at(300).inject(seg().ack(1));
    t.at(400).inject(seg().ack(1).win(0));
    t.inject(seg().ack(1).win(0));
    t.expect_no_timer(Timer::Retransmit);
    t.at(1400).expect(data(1, 2).reason(Reason::WindowProbe));
    t.inject(seg().ack(2).win(20_000));
    t.expect(data(2, 1001).reason(Reason::LossRecovery));
    t.expect(data(1001, 2001).reason(Reason::LossRecovery));
    t.expect(data(2001, 3001).reason(Reason::LossRecovery));
}

/// Data with a window of zero is accepted, and so is the window.
#[test]
fn rfc9293_3_8_6_1_data_with_a_zero_window_is_taken() {
    let mut t = Script::established(plain());
    t.write(1000);
    t.expect(data(1, 1001));
    t.inject(seg().ack(1001).win(0).data(600));
    assert_eq!((t.connection.snd_wnd(), t.connection.readable_len()), (0, 600));
    t.inject(seg().ack(1001).win(0).data(600));
    t.expect(ack(1201));
    t.write(10);
    t.expect_nothing();
}

/// Section 3.8.6: a peer shrinks its window. No new data is sent beyond it, and sent data is retransmitted.
#[test]
fn rfc9293_3_8_6_a_window_that_shrinks() {
    let mut t = Script::established(plain());
    t.write(10_000);
    t.expect_segments(1, 10_001, Reason::NewData);
    t.at(100).inject(seg().ack(1001).win(2000));
    t.expect_nothing();
    t.write(1000);
    t.expect_nothing();
    // The peer may have accepted data beyond the new edge before the window shrank.
    t.at(200).inject(seg().ack(5001).win(2000));
    t.expect_nothing();
    // SHLD-15: the timer retransmits what the window covers.
    t.at(1200).expect(data(5001, 6001).reason(Reason::Timeout));
    t.inject(seg().ack(10_001).win(500));
    t.expect_state(State::Established);
    // The window covers less than the queued data, and too little for a segment before the override.
    t.at(1700).expect(data(10_001, 10_501).reason(Reason::SillyWindowOverride));
}

/// Section 3.8.6.2.1: of the four reasons to send, (1) a full segment.
#[test]
fn rfc9293_3_8_6_2_1_a_full_segment_goes() {
    let mut t = Script::established(plain());
    t.write(500);
    t.expect(data(1, 501));
    t.write(999);
    t.expect_nothing();
    t.write(1);
    t.expect(data(501, 1501).reason(Reason::NewData));
}

/// (2): everything queued fits, and nothing is outstanding.
#[test]
fn rfc9293_3_8_6_2_1_everything_queued_goes_when_nothing_is_outstanding() {
    let mut t = Script::established(plain());
    t.write(1);
    t.expect(data(1, 2));
    t.write(1);
    t.expect_nothing();
    t.inject(seg().ack(2));
    t.expect(data(2, 3));
}

/// (3): half of the peer's largest window so far.
#[test]
fn rfc9293_3_8_6_2_1_half_the_largest_window_goes() {
    let mut config = plain();
    config.mss = 5000;
    let mut t = Script::connect(config);
    t.expect(our_syn());
    t.inject(syn_ack().mss(5000).win(1600));
    t.expect(ack(1));
    t.inject(seg().win(799));
    t.write(4000);
    t.expect_nothing();
    t.expect_timer(Timer::SillyWindow, 500);
    t.at(100).inject(seg().win(800));
    t.expect(data(1, 801).reason(Reason::NewData));
    t.expect_no_timer(Timer::SillyWindow);
}

/// (4): the override timeout.
#[test]
fn rfc9293_3_8_6_2_1_the_override_timeout() {
    let mut t = Script::established(plain());
    t.inject(seg().win(300));
    t.write(1000);
    t.expect_nothing();
    t.expect_timer(Timer::SillyWindow, 500);
    // Further small windows do not restart it.
    t.at(200).inject(seg().win(301));
    t.expect_timer(Timer::SillyWindow, 500);
    t.at(500).expect(data(1, 302).reason(Reason::SillyWindowOverride));
    t.expect_nothing();
    t.inject(seg().ack(302).win(300));
    t.at(1000).expect(data(302, 602).reason(Reason::SillyWindowOverride));
}

/// Section 3.8.6.2.2: the receiver's edge moves by a full segment or half the buffer, not by each read.
#[test]
fn rfc9293_3_8_6_2_2_small_reads_open_no_window() {
    let mut t = Script::established(plain());
    for n in 1..=10 {
        t.inject(seg().data(1000));
        if n % 2 == 0 {
            t.expect(ack(1 + n * 1000).win(10_000 - n as u16 * 1000));
        }
    }
    // The data is read in chunks of 1000: a chunk is a full segment's worth of room.
    let chunk = t.steer(|connection, now| connection.read(now));
    assert_eq!(chunk.map(|chunk| chunk.len()), Some(1000));
    t.expect(ack(10_001).win(1000).reason(Reason::WindowUpdate));
    // The window is not zero any more: an increase of less than twice the window is not advertised.
    t.steer(|connection, now| connection.read(now));
    t.expect(ack(10_001).win(2000).reason(Reason::WindowUpdate));
    t.steer(|connection, now| connection.read(now));
    t.steer(|connection, now| connection.read(now));
    t.expect_nothing();
    t.inject_as(Disposition::OutsideWindow, seg().seq(0));
    t.expect(ack(10_001).win(4000));
}

#[test]
fn rfc9293_3_8_6_2_2_less_than_a_segment_of_room_is_no_window() {
    let mut t = Script::established(plain());
    for n in 1..=4 {
        t.inject(seg().data(1000));
        t.inject(seg().data(1000));
        t.expect(ack(1 + n * 2000));
    }
    t.inject(seg().data(1000));
    t.inject(seg().data(1000));
    t.expect(ack(10_001).win(0));
    t.read(10_000);
    t.expect(ack(10_001).win(10_000).reason(Reason::WindowUpdate));
    for n in 0..11 {
        t.inject(seg().data(if n == 10 { 100 } else { 990 }));
        t.forget_sent();
    }
    t.at(200);
    t.forget_sent();
    t.steer(|connection, now| connection.read(now));
    t.expect_nothing();
    t.steer(|connection, _| connection.send_acks(1));
    t.expect(ack(20_001).win(0).reason(Reason::RequestedAck));
    t.steer(|connection, now| connection.read(now));
    t.expect(ack(20_001).win(1980).reason(Reason::WindowUpdate));
}

/// With a small buffer, half of it is enough.
#[test]
fn rfc9293_3_8_6_2_2_half_of_a_small_buffer() {
    let mut config = plain();
    config.receive.buffer_bytes = 600;
    config.receive.max_buffer_bytes = 600;
    let mut t = Script::established(config);
    t.inject(seg().data(300));
    t.at(200).expect(ack(301).win(300));
    t.inject(seg().data(300));
    t.at(400).expect(ack(601).win(0));
    t.steer(|connection, now| connection.read(now));
    t.expect(ack(601).win(300).reason(Reason::WindowUpdate));
}

/// Section 3.7.4: a small segment waits until everything is acknowledged.
#[test]
fn rfc9293_3_7_4_nagle() {
    let mut t = Script::established(plain());
    t.write(100);
    t.expect(data(1, 101));
    t.write(100);
    t.write(100);
    t.expect_nothing_until(500);
    t.inject(seg().ack(101));
    t.expect(data(101, 301));
    // The end of a large write waits too.
    t.inject(seg().ack(301));
    t.write(2500);
    t.expect(data(301, 1301));
    t.expect(data(1301, 2301));
    t.inject(seg().ack(1301));
    t.expect_nothing();
    t.inject(seg().ack(2301));
    t.expect(data(2301, 2801));
}

/// Minshall's variant: the end of a large write does not wait, a second small segment does.
#[test]
fn rfc9293_3_7_4_nagle_as_minshall_has_it() {
    let mut config = plain();
    config.send.minshall = true;
    let mut t = Script::established(config);
    t.write(2500);
    t.expect(data(1, 1001));
    t.expect(data(1001, 2001));
    t.expect(data(2001, 2501));
    t.write(100);
    t.expect_nothing();
    t.inject(seg().ack(2001));
    t.expect_nothing();
    t.inject(seg().ack(2501));
    t.expect(data(2501, 2601));
}

#[test]
fn rfc9293_3_7_4_nagle_can_be_switched_off() {
    let mut config = plain();
    config.send.nagle = false;
    let mut t = Script::established(config);
    t.write(100);
    t.expect(data(1, 101));
    t.write(100);
    t.expect(data(101, 201));
}

/// The end of the stream does not wait.
#[test]
fn rfc9293_3_7_4_nagle_does_not_hold_the_fin() {
    let mut t = Script::established(plain());
    t.write(100);
    t.expect(data(1, 101));
    t.write(50);
    t.shutdown();
    t.expect(data(101, 151).and_fin());
}

/// The initial window of 10 segments follows the size of segments (RFC 6928 section 2).
#[test]
fn rfc6928_2_the_initial_window() {
    for (mss, segments) in [(1000, 10), (1460, 10), (1461, 9), (4000, 3), (9000, 2), (200, 10)] {
        let mut config = plain();
        config.mss = mss;
        let mut t = Script::connect(config);
        t.expect(our_syn());
        t.inject(syn_ack().mss(mss));
        t.expect(ack(1));
        t.expect_cwnd(segments, None);
    }
}

/// Section 3.7.1: without an MSS option, 536; never more than our own.
#[test]
fn rfc9293_3_7_1_the_size_of_segments() {
    for (answer, mss) in
        [(syn_ack().no_mss(), 536), (syn_ack().mss(400), 400), (syn_ack().mss(5000), 1000), (syn_ack().mss(0), 48)]
    {
        let mut t = Script::connect(plain());
        t.expect(our_syn());
        t.inject(answer);
        t.expect(ack(1));
        assert_eq!(t.connection.snd_mss(), mss);
        t.write(mss as usize);
        t.expect(data(1, 1 + i64::from(mss)));
    }
}

/// 4.3BSD: a delayed ACK is sent at the next tick of 200 ms.
#[test]
fn rfc9293_3_8_6_3_delayed_acks_on_a_tick() {
    let mut config = plain();
    let tick = Duration::from_millis(200);
    config.receive.ack = holdover_tcp::AckPolicy::Delayed { delay: tick, tick };
    let mut t = Script::established(config);
    t.at(150).inject(seg().data(100));
    t.at(200).expect(ack(101).reason(Reason::DelayedAck));
    t.inject(seg().data(100));
    t.at(400).expect(ack(201).reason(Reason::DelayedAck));
    t.at(401).inject(seg().data(1000));
    t.inject(seg().data(1000));
    t.expect(ack(2201).reason(Reason::Ack));
}

#[test]
fn rfc9293_3_8_6_3_immediate_acks() {
    let mut config = plain();
    config.receive.ack = holdover_tcp::AckPolicy::Immediate;
    let mut t = Script::established(config);
    for n in 1..5 {
        t.inject(seg().data(10));
        t.expect(ack(1 + n * 10).reason(Reason::Ack));
    }
}
