//! The owner's verbs for received data: the effect of each, and what it leaves unchanged.

use holdover_base::Duration;
use holdover_tcp::{Disposition, Reason, State, Timer};
use holdover_wire::Seq;

use crate::script::*;
use crate::verbs::ten_out;

fn point(t: &Script, relative: u32) -> Option<Seq> {
    Some(t.connection.rcv_nxt() + relative)
}

/// The clamp alone sends nothing; every later segment has the clamped window.
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
    // Opening the window sends no ACK either.
    t.steer(|connection, _| connection.clamp_window(None));
    t.expect_nothing();
    t.steer(|connection, _| connection.send_acks(1));
    t.expect(ack(501).win(9500));
}

/// Data sent into the wider window is accepted, and acknowledged with a window of zero.
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

/// A probe of a window that the owner has closed is answered, and its byte accepted: it is inside the window that still exists.
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

/// The clamp is rounded down where the window is scaled, and applies to the SYN-ACK too.
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

/// The ACK field stays, data is accepted and delivered, and the right edge of the window is unchanged.
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
    // Retransmitted, because no data was acknowledged.
    t.inject_as(Disposition::DuplicateData, seg().seq(1).data(1000));
    t.expect(ack(1).reason(Reason::DuplicateData));
    t.write(100);
    t.expect(data(1, 101).ack(1));
    t.steer(|connection, _| connection.hold_ack_point(None));
    t.expect_nothing();
    t.steer(|connection, _| connection.send_acks(1));
    t.expect(ack(2001));
}

/// Our FIN is sent without the ACK of the peer's FIN, as if they had crossed. If the later ACK is lost, the connection still
/// exists to repeat it.
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

/// One byte before the arrived data: the most recent byte is held back.
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
    // A point below the acknowledged number has no effect.
    let lower = point(&t, 0).map(|nxt| nxt - 4000);
    t.steer(|connection, _| connection.hold_ack_point(lower));
    t.steer(|connection, _| connection.send_acks(1));
    t.expect(ack(2000));
}

/// Data that was not received is never acknowledged.
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
    // Before the handshake is complete there is no number to acknowledge.
    for state in [State::SynSent, State::SynReceived, State::Closed] {
        let mut t = Script::in_state(state, plain());
        t.steer(|connection, _| connection.send_acks(3));
        t.expect_nothing();
    }
    // While data is outstanding, ACKs carry no data.
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
    // Checks of timestamps use the unshifted ones.
    t.at(30).inject(seg().ack(51).data(10));
    t.steer(|connection, _| connection.shift_timestamp_echo(u32::MAX));
    t.steer(|connection, _| connection.send_acks(1));
    t.expect(ack(111).ts(OUR_CLOCK + 30, PEER_CLOCK + 30 - 1));
    t.steer(|connection, _| connection.shift_timestamp_echo(0));
    t.steer(|connection, _| connection.send_acks(1));
    t.expect(ack(111).ts(OUR_CLOCK + 30, PEER_CLOCK + 30));
    // Without agreed timestamps there is none to shift.
    let mut t = Script::established(plain());
    t.steer(|connection, _| {
        connection.shift_timestamp_echo(9);
        connection.send_acks(1);
    });
    t.expect(ack(1).no_ts());
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
