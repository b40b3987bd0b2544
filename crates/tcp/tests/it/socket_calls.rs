//! Functions of a connection for sockets beyond RFC 9293's calls: corks, writes with more to follow, reads into a buffer,
//! options that are set late, records, ACKs at once, handshakes that end with data; and PSH, which marks the end of a write.

use std::sync::Arc;

use bytes::Bytes;
use holdover_base::Duration;
use holdover_tcp::{Config, Disposition, KeepAlive, Profile, Reason, State, Timer};
use holdover_wire::Flags;

use crate::script::*;

fn linux_6() -> Config {
    let mut config = Profile::Linux6Reno.config();
    config.mss = 1000;
    config.window_scale = None;
    config.timestamps = None;
    config.sack = false;
    config
}

/// Writes with more to follow.
fn write_more(t: &mut Script, len: usize) {
    let taken = t.steer(|connection, now| connection.write_more(now, Bytes::from(vec![0; len])));
    assert_eq!(taken, len);
}

#[test]
fn a_cork_holds_what_does_not_fill_a_segment() {
    let mut t = Script::established(linux_6());
    t.steer(|connection, _| connection.set_cork(true));
    t.write(40);
    t.expect_nothing();
    t.write(980);
    t.expect(data(1, 1001));
    t.inject(seg().ack(1001));
    t.expect_nothing();
    t.steer(|connection, _| connection.set_cork(false));
    let sent = t.take_sent();
    assert_eq!((sent.payload.len(), sent.flags), (20, Flags::ACK | Flags::PSH));
    // The end of the stream is sent in any case.
    t.inject(seg().ack(1021));
    t.steer(|connection, _| connection.set_cork(true));
    t.write(10);
    t.expect_nothing();
    t.close();
    t.expect(data(1021, 1031).and_fin());
}

/// Without outstanding data no ACK would release it: Linux sends it like a window probe.
#[test]
fn held_data_are_sent_after_a_retransmission_timeout() {
    let mut t = Script::established(linux_6());
    let rto = t.connection.rto().as_micros();
    write_more(&mut t, 40);
    t.at_micros(rto - 1).expect_nothing();
    t.at_micros(rto);
    let sent = t.take_sent();
    assert_eq!((sent.payload.len(), sent.flags), (40, Flags::ACK | Flags::PSH));
}

#[test]
fn more_to_follow_holds_until_the_last_write_or_the_next_ack() {
    let mut t = Script::established(linux_6());
    write_more(&mut t, 100);
    write_more(&mut t, 200);
    t.expect_nothing();
    t.write(5);
    let sent = t.take_sent();
    assert_eq!((sent.payload.len(), sent.flags), (305, Flags::ACK | Flags::PSH));
    // The ACK of the outstanding data releases the held data, which does not end a write.
    write_more(&mut t, 10);
    t.expect_nothing();
    t.inject(seg().ack(306));
    let sent = t.take_sent();
    assert_eq!((sent.payload.len(), sent.flags), (10, Flags::ACK));
}

#[test]
fn a_segment_that_is_sent_again_ends_its_write_again() {
    let mut t = Script::established(linux_6());
    t.write(1500);
    assert_eq!(t.take_sent().flags, Flags::ACK);
    assert_eq!(t.take_sent().flags, Flags::ACK | Flags::PSH);
    t.inject(seg().ack(1001));
    let rto = t.connection.rto().as_micros();
    t.at_micros(rto);
    let again = t.take_sent();
    assert_eq!((again.payload.len(), again.flags), (500, Flags::ACK | Flags::PSH));
}

#[test]
fn a_read_takes_what_its_buffer_holds() {
    let mut t = Script::established(linux_6());
    t.inject(seg().data(1000));
    t.forget_sent();
    let read =
        |t: &mut Script, len| t.steer(|connection, now| connection.read_at_most(now, len).map_or(0, |data| data.len()));
    assert_eq!((read(&mut t, 0), read(&mut t, 300), t.connection.readable_len()), (0, 300, 700));
    assert_eq!((read(&mut t, 5000), read(&mut t, 5000)), (700, 0));
}

#[test]
fn options_set_late_take_effect_at_once() {
    let mut t = Script::established(linux_6());
    t.expect_no_timer(Timer::KeepAlive);
    let mut config = linux_6();
    let keep_alive = KeepAlive { idle: Duration::from_secs(5), interval: Duration::from_secs(1), probes: 3 };
    config.limits.keep_alive = Some(keep_alive);
    config.send.nagle = false;
    t.steer(|connection, now| connection.reconfigure(now, Arc::new(config)));
    t.expect_timer(Timer::KeepAlive, 5000);
    t.write(10);
    t.expect(data(1, 11));
    t.write(10);
    t.expect(data(11, 21));
    t.steer(|connection, now| connection.reconfigure(now, Arc::new(linux_6())));
    t.expect_no_timer(Timer::KeepAlive);
}

/// Linux 6.18.44 answers it by an ACK, at most one in half a second, and uses nothing of it.
#[test]
fn linux_6_uses_nothing_of_a_segment_that_acknowledges_what_was_never_sent() {
    let mut config = linux_6();
    config.timestamps = Some(Duration::from_millis(1));
    let mut t = Script::established(config);
    t.inject_as(Disposition::AckOfUnsentData, seg().ack(9999).ts(200_000, 700_000));
    t.expect(ack(1).reason(Reason::ChallengeAck));
    t.inject_as(Disposition::AckOfUnsentData, seg().ack(9999).ts(200_000, 700_000));
    t.expect_nothing();
    t.inject(seg().ack(1).data(1000).ts(5300, 700_000));
    assert_eq!(t.take_sent().options.timestamps.map(|ts| ts.ecr), Some(5300));
}

/// Several segments may arrive as one, merged by the receiving host: none of them exceeded the MSS.
#[test]
fn a_merged_arrival_does_not_count_as_one_large_segment() {
    let mut t = Script::established(linux_6());
    t.inject(seg().data(9000));
    t.forget_sent();
    assert_eq!(t.connection.rcv_mss(), 1000);
    let mut config = linux_6();
    config.receive.merged_segment_bytes = Some(700);
    let mut t = Script::established(config);
    t.inject(seg().data(9000));
    t.forget_sent();
    assert_eq!(t.connection.rcv_mss(), 700);
}

/// Writes a record.
fn write_record(t: &mut Script, len: usize) {
    t.steer(|connection, now| {
        connection.write(now, Bytes::from(vec![0; len]));
        connection.end_record();
    });
}

#[test]
fn a_record_shares_no_segment_with_what_follows() {
    let mut t = Script::established(linux_6());
    let lengths = |t: &mut Script, flags: Flags| {
        let sent = t.take_sent();
        assert_eq!(sent.flags, Flags::ACK | flags);
        sent.payload.len()
    };
    t.write(100);
    assert_eq!(lengths(&mut t, Flags::PSH), 100);
    // It could still grow, as far as Nagle's algorithm knows, until something stands behind it.
    write_record(&mut t, 300);
    t.expect_nothing();
    write_record(&mut t, 1200);
    assert_eq!((lengths(&mut t, Flags::PSH), lengths(&mut t, Flags::empty())), (300, 1000));
    t.expect_nothing();
    t.write(50);
    assert_eq!(lengths(&mut t, Flags::PSH), 200);
    t.expect_nothing();
    t.inject(seg().ack(1601));
    assert_eq!(lengths(&mut t, Flags::PSH), 50);
}

#[test]
fn quick_acks_send_what_waits_once_all_is_read() {
    let mut t = Script::established(linux_6());
    t.steer(|connection, _| connection.set_quick_ack(false));
    t.inject(seg().data(500));
    t.read(500);
    t.expect_nothing();
    t.steer(|connection, _| connection.set_quick_ack(true));
    t.expect(ack(501));
    t.steer(|connection, _| connection.set_quick_ack(false));
    t.inject(seg().seq(501).data(500));
    t.steer(|connection, _| connection.set_quick_ack(true));
    t.expect_nothing();
    t.read(500);
    t.expect(ack(1001));
}

/// Linux `tcp_check_req` and `syn_ack_recalc`.
#[test]
fn a_deferred_handshake_ends_with_data_or_after_its_timeouts() {
    let deferred = || {
        let mut config = linux_6();
        config.limits.deferred_timeouts = 2;
        let mut t = Script::in_state(State::SynReceived, config);
        t.inject_as(Disposition::HandshakeDeferred, seg().ack(1));
        t.expect_nothing();
        t.expect_state(State::SynReceived);
        t
    };
    let mut with_data = deferred();
    with_data.inject(seg().ack(1).data(4));
    with_data.expect(ack(5));
    with_data.expect_state(State::Established);
    let mut without = deferred();
    without.expect_nothing_until(2_999);
    without.at(3_000);
    assert_eq!(without.take_sent().flags, Flags::SYN | Flags::ACK);
    without.inject(seg().ack(1));
    without.expect_state(State::Established);
}
