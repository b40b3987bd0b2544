//! RFC 9293 section 3.10.2 to 3.10.5, the user's calls; sections 3.6 and 3.6.1, closing, half-closed and with unread data;
//! section 3.8.3, R1 and R2; section 3.8.4, keep-alives; section 3.8.5, urgent data; section 3.10.8, timeouts.

use holdover_base::Duration;
use holdover_tcp::{Config, ConnectionError, Disposition, Event, KeepAlive, Reason, RetryLimit, State, Timer};

use crate::rfc9293_arrives::open;
use crate::script::*;

fn write_now(t: &mut Script) -> usize {
    t.steer(|connection, now| connection.write(now, "text".into()))
}

#[test]
fn rfc9293_3_10_2_send_in_each_state() {
    for (state, taken) in [
        (State::SynSent, 4),
        (State::SynReceived, 4),
        (State::Established, 4),
        (State::CloseWait, 4),
        (State::FinWait1, 0),
        (State::FinWait2, 0),
        (State::Closing, 0),
        (State::LastAck, 0),
        (State::TimeWait, 0),
        (State::Closed, 0),
    ] {
        let mut t = Script::in_state(state, plain());
        assert_eq!(write_now(&mut t), taken, "{state}");
        let sent = t.forget_sent();
        assert_eq!(sent, usize::from(matches!(state, State::Established | State::CloseWait)), "{state}");
    }
}

/// The send buffer is bounded, and reports when there is room again.
#[test]
fn rfc9293_3_10_2_the_send_buffer_is_bounded() {
    let mut config = plain();
    config.send.fix_buffer(2500);
    let mut t = Script::established(config);
    let taken = t.steer(|connection, now| connection.write(now, crate::world::stream(0, 4000)));
    assert_eq!((taken, t.connection.write_room()), (2500, 0));
    t.expect_segments(1, 2001, Reason::NewData);
    t.inject(seg().ack(2001));
    t.expect(data(2001, 2501));
    t.expect_event(Event::Writable);
    assert_eq!(t.connection.write_room(), 2000);
}

#[test]
fn rfc9293_3_10_4_close_in_each_state_that_sends() {
    for (state, next) in [(State::Established, State::FinWait1), (State::CloseWait, State::LastAck)] {
        let (mut t, nxt) = open(state);
        t.shutdown();
        t.expect(our_fin(1).ack(nxt));
        t.expect_state(next);
        assert_eq!(write_now(&mut t), 0);
        // A second close changes nothing.
        t.shutdown();
        t.close();
        t.expect_nothing();
        t.expect_state(next);
    }
}

/// Queued data is sent first, and the FIN with the last of it.
#[test]
fn rfc9293_3_10_4_close_sends_what_is_queued_first() {
    let mut t = Script::established(plain());
    t.write(12_500);
    t.expect_segments(1, 10_001, Reason::NewData);
    t.shutdown();
    assert_eq!(write_now(&mut t), 0);
    t.inject(seg().ack(1001));
    t.expect(data(10_001, 11_001));
    t.expect(data(11_001, 12_001));
    t.expect_state(State::Established);
    t.inject(seg().ack(2001));
    t.expect(data(12_001, 12_501).and_fin());
    t.expect_state(State::FinWait1);
    t.inject(seg().ack(12_502));
    t.expect_state(State::FinWait2);
}

/// Section 3.6, half-closed: the peer has closed, and we continue to send; then in the other direction.
#[test]
fn rfc9293_3_6_half_closed() {
    let (mut t, _) = open(State::CloseWait);
    t.at(5000).write(3000);
    t.expect_segments(1, 3001, Reason::NewData);
    t.inject(seg().ack(3001));
    t.shutdown();
    t.expect(our_fin(3001).ack(2));
    t.inject(seg().ack(3002));
    t.expect_state(State::Closed);
    assert_eq!(t.connection.error(), None);

    let (mut t, _) = open(State::FinWait2);
    for n in 1..=5 {
        t.at(n * 100_000).inject(seg().data(1000));
        t.inject(seg().data(1000));
        t.expect(ack(1 + n as i64 * 2000));
        t.read(2000);
    }
    t.inject(fin());
    t.expect(ack(10_002));
    t.expect_state(State::TimeWait);
}

/// Section 3.6, figure 13: both FINs cross, with data.
#[test]
fn rfc9293_3_6_simultaneous_close_with_data() {
    let mut t = Script::established(plain());
    t.write(300);
    t.expect(data(1, 301));
    t.shutdown();
    t.expect(our_fin(301).ack(1));
    // The peer's FIN was sent before ours arrived.
    t.inject(fin().ack(1).data(200));
    t.expect(ack(202).reason(Reason::FinAck));
    t.expect_state(State::Closing);
    t.inject_as(Disposition::DuplicateData, fin().seq(1).data(200).ack(1));
    t.expect(ack(202));
    t.inject(seg().ack(301));
    t.expect_state(State::Closing);
    t.inject(seg().ack(302));
    t.expect_state(State::TimeWait);
    t.read(200);
    t.expect_nothing_until(240_000);
    t.expect_state(State::Closed);
}

/// Both FINs are lost initially.
#[test]
fn rfc9293_3_6_simultaneous_close_with_loss() {
    let mut t = Script::established(plain());
    t.shutdown();
    t.expect(our_fin(1));
    t.at(1000).expect(our_fin(1).reason(Reason::Timeout));
    t.at(1100).inject(fin().ack(1));
    t.expect(ack(2).seq(2));
    t.expect_state(State::Closing);
    t.at(3000).expect(our_fin(1).ack(2).reason(Reason::Timeout));
    t.inject(seg().ack(2));
    t.expect_state(State::TimeWait);
}

/// Section 3.6.1: CLOSE with unread data sends a reset.
#[test]
fn rfc9293_3_6_1_close_with_unread_data_resets() {
    let mut t = Script::established(plain());
    t.inject(seg().data(100));
    t.close();
    t.expect(our_rst_ack(1).ack(101).reason(Reason::Reset));
    t.expect_state(State::Closed);
    assert_eq!(t.connection.error(), Some(ConnectionError::Aborted));
    t.expect_nothing_until(100_000);
}

/// Section 3.6.1: data that arrives after CLOSE causes a reset too; an ACK or a FIN does not.
#[test]
fn rfc9293_3_6_1_data_after_close_resets() {
    let mut t = Script::established(plain());
    t.close();
    t.expect(our_fin(1));
    t.inject(seg().ack(2));
    t.expect_state(State::FinWait2);
    t.inject_as(Disposition::ReceiverGone, seg().data(10));
    t.expect(our_rst(2).reason(Reason::Reset));
    t.expect_state(State::Closed);

    // The reset has the number of one for a closed connection (section 3.10.7.1): SEG.ACK, whatever was sent beyond it.
    let mut t = Script::established(plain());
    t.write(3000);
    t.expect_segments(1, 3001, Reason::NewData);
    t.close();
    t.expect(our_fin(3001));
    t.inject_as(Disposition::ReceiverGone, seg().ack(1001).data(10));
    t.expect(our_rst(1001).reason(Reason::Reset));
    t.expect_state(State::Closed);

    let mut t = Script::established(plain());
    t.close();
    t.expect(our_fin(1));
    t.inject(fin().ack(2));
    t.expect(ack(2));
    t.expect_state(State::TimeWait);
}

/// A connection without a reader does not wait without end for a peer that does not close: its FIN-WAIT-2 ends.
#[test]
fn fin_wait_2_ends_without_a_reader() {
    let mut t = Script::established(plain());
    t.close();
    t.expect(our_fin(1));
    t.at(500).inject(seg().ack(2));
    t.expect_timer(Timer::FinWait2, 60_500);
    t.expect_nothing_until(60_500);
    t.expect_state(State::Closed);
    let (mut t, _) = open(State::FinWait2);
    t.close();
    t.expect_timer(Timer::FinWait2, 60_000);
}

/// Section 3.10.5: ABORT.
#[test]
fn rfc9293_3_10_5_abort_in_each_state() {
    for (state, resets) in [
        (State::SynReceived, true),
        (State::Established, true),
        (State::FinWait1, true),
        (State::FinWait2, true),
        (State::CloseWait, true),
        (State::Closing, false),
        (State::LastAck, false),
        (State::TimeWait, false),
    ] {
        let (mut t, nxt) = open(state);
        let snd_nxt = t.snd_nxt();
        t.abort();
        if resets {
            t.expect(our_rst_ack(snd_nxt).ack(nxt).reason(Reason::Reset));
        }
        t.expect_nothing_until(1_000_000);
        t.expect_state(State::Closed);
        assert_eq!(t.connection.error(), Some(ConnectionError::Aborted), "{state}");
        t.expect_event(Event::Closed);
    }
}

/// Queued data is discarded, and unread data is lost.
#[test]
fn rfc9293_3_10_5_abort_with_data_outstanding() {
    let mut t = Script::established(plain());
    t.write(20_000);
    t.forget_sent();
    t.abort();
    t.expect(our_rst_ack(10_001));
    assert_eq!((t.connection.unacked(), t.connection.unsent_len()), (0, 0));
}

/// Section 3.8.5: every segment has the urgent pointer until it is passed.
#[test]
fn rfc9293_3_8_5_urgent_data_is_announced() {
    let mut t = Script::established(plain());
    t.write(1500);
    t.expect(data(1, 1001));
    t.steer(|connection, _| connection.mark_urgent());
    // Nagle does not hold urgent data back. The pointer is the number after the urgent byte.
    t.expect(data(1001, 1501).urgent(500));
    t.write(1000);
    t.expect(data(1501, 2501));
    t.at(1000).expect(data(1, 1001).urgent(1500).reason(Reason::Timeout));
    t.inject(seg().ack(1501));
    t.expect(data(1501, 2501).reason(Reason::LossRecovery));
}

/// Section 3.8.3: R1 notifies the application, R2 aborts the connection.
#[test]
fn rfc9293_3_8_3_r1_and_r2() {
    let mut config = plain();
    config.limits.r1 = 2;
    config.limits.r2 = RetryLimit::Retries(4);
    let mut t = Script::established(config);
    t.write(10);
    t.expect(data(1, 11));
    t.at(1000).expect(data(1, 11));
    t.expect_no_event(Event::DeliveryTrouble);
    t.at(3000).expect(data(1, 11));
    t.expect_event(Event::DeliveryTrouble);
    t.at(7000).expect(data(1, 11));
    t.at(15_000).expect(data(1, 11));
    t.expect_no_event(Event::DeliveryTrouble);
    t.expect_nothing_until(31_000);
    t.expect_state(State::Closed);
    assert_eq!(t.connection.error(), Some(ConnectionError::TimedOut));
    t.expect_event(Event::Closed);
}

/// R2 is at least 100 seconds by default, and 3 minutes for a SYN.
#[test]
fn rfc9293_3_8_3_r2_of_the_default() {
    let end = |t: &mut Script| {
        while let Some((at, _)) = t.connection.poll_timeout() {
            let millis = at.saturating_since(t.instant(0)).as_millis();
            t.at(millis);
            t.forget_sent();
        }
        t.millis()
    };
    let mut t = Script::established(plain());
    t.write(10);
    t.forget_sent();
    assert!(end(&mut t) > 100_000);
    assert_eq!(t.connection.error(), Some(ConnectionError::TimedOut));
    let mut t = Script::in_state(State::SynSent, plain());
    assert!(end(&mut t) > 180_000);
    assert_eq!(t.connection.error(), Some(ConnectionError::TimedOut));
}

/// Linux counts time: 924.6 s, which 15 retransmissions from an RTO of 200 ms take.
#[test]
fn r2_by_time_as_linux_counts_it() {
    let mut config = plain();
    config.limits.r2 = RetryLimit::LinuxTime(15);
    config.rto.max = Duration::from_secs(120);
    let mut t = Script::established(config);
    t.write(10);
    t.forget_sent();
    let mut retransmissions = 0;
    while let Some((at, _)) = t.connection.poll_timeout() {
        let millis = at.saturating_since(t.instant(0)).as_millis();
        t.at(millis);
        retransmissions += t.forget_sent();
    }
    // From the first retransmission, at 1 s: 2, 4, ... 64, then 120 s each; the first timeout beyond 924.6 s aborts.
    assert_eq!(retransmissions, 13);
    assert_eq!(t.millis(), 1000 + 126_000 + 7 * 120_000);
    assert_eq!(t.connection.error(), Some(ConnectionError::TimedOut));
}

/// An ACK of new data restarts the count.
#[test]
fn rfc9293_3_8_3_progress_starts_the_count_again() {
    let mut config = plain();
    config.limits.r2 = RetryLimit::Retries(2);
    config.recovery.frto = false;
    let mut t = Script::established(config);
    t.write(2000);
    t.expect_segments(1, 2001, Reason::NewData);
    t.at(1000).expect(data(1, 1001));
    t.at(3000).expect(data(1, 1001));
    t.inject(seg().ack(1001));
    t.expect(data(1001, 2001).reason(Reason::LossRecovery));
    t.at(7000).expect(data(1001, 2001));
    t.at(15_000).expect(data(1001, 2001));
    t.expect_nothing_until(31_000);
    t.expect_state(State::Closed);
}

fn keep_alive() -> Config {
    let mut config = plain();
    config.limits.keep_alive =
        Some(KeepAlive { idle: Duration::from_secs(100), interval: Duration::from_secs(10), probes: 3 });
    config
}

/// Section 3.8.4: off by default.
#[test]
fn rfc9293_3_8_4_no_keep_alives_unless_asked() {
    let mut t = Script::established(plain());
    t.expect_no_timer(Timer::KeepAlive);
    t.expect_nothing_until(100_000_000);
}

#[test]
fn rfc9293_3_8_4_keep_alives() {
    let mut t = Script::established(keep_alive());
    t.at(50_000).inject(seg().data(10));
    t.at(50_200).expect(ack(11));
    t.expect_nothing_until(149_999);
    t.at(150_000).expect(ack(11).seq(0).reason(Reason::KeepAlive));
    t.at(150_050).inject(seg());
    // The probe is answered, and the idle time starts again.
    t.expect_nothing_until(250_049);
    t.at(250_050).expect(ack(11).seq(0).reason(Reason::KeepAlive));
    t.at(260_050).expect(ack(11).seq(0));
    t.at(270_050).expect(ack(11).seq(0));
    t.at(280_050).expect(our_rst_ack(1).reason(Reason::Reset));
    t.expect_state(State::Closed);
    assert_eq!(t.connection.error(), Some(ConnectionError::ProbesUnanswered));
}

/// Outstanding data has its own timer.
#[test]
fn rfc9293_3_8_4_no_keep_alive_while_data_is_outstanding() {
    let mut t = Script::established(keep_alive());
    t.at(99_000).write(10);
    t.expect(data(1, 11));
    t.at(100_000).expect(data(1, 11).reason(Reason::Timeout));
    t.at(102_000).expect(data(1, 11).reason(Reason::Timeout));
    t.at(102_100).inject(seg().ack(11));
    t.expect_nothing_until(202_099);
    t.at(202_100).expect(ack(1).seq(10).reason(Reason::KeepAlive));
}

/// The peer's keep-alive is answered, with and without its byte of garbage.
#[test]
fn rfc9293_3_8_4_the_peers_keep_alive_is_answered() {
    let mut t = Script::established(plain());
    t.inject(seg().data(100));
    t.at(200).expect(ack(101));
    t.at(500_000).inject_as(Disposition::OutsideWindow, seg().seq(100));
    t.expect(ack(101));
    t.inject_as(Disposition::DuplicateData, seg().seq(100).data(1));
    t.expect(ack(101));
}

/// Section 3.10.8: the user timeout ends the connection, and discards all queued data.
#[test]
fn rfc9293_3_10_8_user_timeout() {
    let mut config = plain();
    config.user_timeout.timeout = Some(Duration::from_secs(5));
    let mut t = Script::established(config.clone());
    t.expect_no_timer(Timer::UserTimeout);
    t.at(1000).write(10);
    t.expect(data(1, 11));
    t.expect_timer(Timer::UserTimeout, 6000);
    t.at(2000).expect(data(1, 11));
    t.at(4000).expect(data(1, 11));
    t.expect_nothing_until(6000);
    t.expect_state(State::Closed);
    assert_eq!(t.connection.error(), Some(ConnectionError::UserTimeout));
    t.expect_event(Event::Closed);
    // The handshake has the limit too.
    let mut t = Script::in_state(State::SynSent, config);
    t.at(1000).expect(our_syn());
    t.at(3000).expect(our_syn());
    t.expect_nothing_until(5000);
    assert_eq!(t.connection.error(), Some(ConnectionError::UserTimeout));
}

/// Progress restarts it, and an ACK of all data ends it.
#[test]
fn rfc9293_3_10_8_user_timeout_runs_while_nothing_is_acknowledged() {
    let mut config = plain();
    config.user_timeout.timeout = Some(Duration::from_secs(5));
    let mut t = Script::established(config);
    t.write(2000);
    t.expect_segments(1, 2001, Reason::NewData);
    t.at(900).inject(seg().ack(1001));
    t.expect_timer(Timer::UserTimeout, 5900);
    t.at(950).inject(seg().ack(2001));
    t.expect_no_timer(Timer::UserTimeout);
}

/// Section 3.10.8: 2 MSL have passed. The numbers are in `rfc9293_endpoint` and `rfc9293_arrives_ack`.
#[test]
fn rfc9293_3_10_8_time_wait_holds_no_other_timer() {
    let mut t = Script::established(keep_alive());
    t.write(10);
    t.expect(data(1, 11));
    t.shutdown();
    t.expect(our_fin(11));
    t.inject(fin().ack(12));
    t.expect(ack(2));
    for timer in Timer::ALL {
        assert_eq!(t.connection.deadline(timer).is_some(), timer == Timer::TimeWait, "{timer:?}");
    }
}

/// Section 3.8.5: urgent data at the very end, announced by a FIN.
#[test]
fn rfc9293_3_8_5_urgent_data_beyond_the_fin_is_not_awaited() {
    let mut t = Script::established(plain());
    t.inject(fin().data(10).urgent(60_000));
    t.expect(ack(12));
    t.expect_event(Event::Urgent);
    t.expect_event(Event::PeerClosed);
    t.read(10);
    t.expect_state(State::CloseWait);
}
