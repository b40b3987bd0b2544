//! ACKs of the Linux profiles: adaptive quick and delayed ACKs, compressed SACKs, and the ACKs of FINs.

use bytes::Bytes;
use holdover_base::Duration;
use holdover_tcp::{Disposition, Reason, State, Timer};
use holdover_wire::{Flags, Segment};

use crate::linux_profiles::linux_6;
use crate::script::*;
use crate::world::stream;

/// A receiver that has used up the quick ACKs of the start, at 1700 ms. The round trip is 100 ms; without timestamps the receiver does not
/// measure it.
fn out_of_quick_acks(compresses: bool, timestamps: bool) -> Script {
    let mut config = linux_6();
    config.sack = true;
    config.receive.compress_sacks = compresses;
    config.receive.quick_while_growing = false;
    config.timestamps = timestamps.then(|| Duration::from_millis(1));
    let mut answer = syn_ack().sack_ok();
    if timestamps {
        answer = answer.ts(PEER_CLOCK, OUR_CLOCK);
    }
    let mut t = Script::connect(config);
    t.expect(our_syn());
    t.at(100).inject(answer);
    t.expect(ack(1));
    for n in 0..16 {
        t.at(200 + 100 * n).inject(seg().data(1000));
        t.expect(ack(1001 + 1000 * n as i64));
        t.read(1000);
    }
    t
}

/// Out of order, the first three segments are acknowledged at once. Later ones share an ACK (`tcp_comp_sack_delay_ns`), unless there are
/// more blocks than an ACK that may get lost should report, or the window grows.
#[test]
fn linux_6_compresses_sacks() {
    let scenario = |compresses: bool, timestamps: bool| {
        let mut t = out_of_quick_acks(compresses, timestamps);
        for n in 1..=3 {
            t.inject(seg().seq(16_001 + 1000 * n).data(1000));
            t.expect(ack(16_001).sack(&[(17_001, 17_001 + 1000 * n)]).reason(Reason::DuplicateAck));
        }
        t
    };
    let mut t = scenario(false, true);
    t.inject(seg().seq(20_001).data(1000));
    t.expect(ack(16_001).sack(&[(17_001, 21_001)]));

    // The timer's slack alone.
    let mut t = scenario(true, false);
    t.inject(seg().seq(20_001).data(1000));
    t.at_micros(1_700_099);
    t.at_micros(1_700_100).expect(ack(16_001).sack(&[(17_001, 21_001)]));

    let mut t = scenario(true, true);
    for n in 3..7 {
        t.inject(seg().seq(17_001 + 1000 * n).data(1000));
        t.expect_nothing();
    }
    t.at_micros(1_701_099);
    t.at_micros(1_701_100).expect(ack(16_001).sack(&[(17_001, 24_001)]).reason(Reason::DuplicateAck));
    // Two blocks wait, a third does not.
    t.inject(seg().seq(25_001).data(1000));
    t.expect_nothing();
    t.inject(seg().seq(27_001).data(1000));
    t.expect(ack(16_001).sack(&[(27_001, 28_001), (25_001, 26_001), (17_001, 24_001)]));
    // The segment that closes the gap is acknowledged at once, with those whose ACKs were delayed.
    t.inject(seg().seq(24_001).data(1000));
    t.expect_nothing();
    t.inject(seg().seq(16_001).data(1000));
    t.expect(ack(26_001).sack(&[(27_001, 28_001)]).reason(Reason::GapFilled));
    t.expect_no_timer(Timer::DelayedAck);
    // At the new ACK number the first three are at once again.
    t.inject(seg().seq(28_001).data(1000));
    t.expect(ack(26_001).sack(&[(27_001, 29_001)]));
}

/// No ACK stands for more than 44 others (`tcp_comp_sack_nr`).
#[test]
fn linux_6_holds_back_44_sacks_at_most() {
    let mut t = out_of_quick_acks(true, false);
    let mut sent = Vec::new();
    for n in 1..=48_i64 {
        t.inject(seg().seq(16_001 + 100 * n).data(100));
        if t.forget_sent() > 0 {
            sent.push(n);
        }
    }
    assert_eq!(sent, [1, 2, 3, 48]);
}

/// The first 16 segments are acknowledged at once, then every second one, others after a delay.
#[test]
fn linux_quick_acks_at_the_start() {
    let mut t = Script::established(linux_6());
    for n in 1..=16 {
        t.inject(seg().data(1000));
        t.expect(ack(1 + n * 1000).reason(Reason::Ack));
        t.read(1000);
    }
    t.at(10).inject(seg().data(1000));
    t.expect_timer(Timer::DelayedAck, 50);
    t.at(20).inject(seg().data(1000));
    t.expect(ack(18_001).reason(Reason::Ack));
    t.at(30).inject(seg().data(1000));
    t.at(70).expect(ack(19_001).reason(Reason::DelayedAck));
    t.read(3000);
}

/// `tcp_grow_window`: while the advertised window grows, each segment is acknowledged at once, and the sixteen quick ACKs are not used
/// up. Linux 6.18 acknowledged 22 segments one by one where the window grew with the first six, and 24 in the round trip after its buffer
/// had grown.
#[test]
fn linux_6_acknowledges_each_segment_while_the_window_grows() {
    let mut config = linux_6();
    config.receive.quick_while_growing = true;
    config.receive.initial_window_bytes = 54_000;
    config.receive.buffer_bytes = 66_000;
    config.receive.max_buffer_bytes = 66_000;
    let mut t = Script::established(config);
    // 54,000 and six times 2000 bytes fill the buffer.
    for n in 1..=6 + 16 {
        t.inject(seg().data(1000));
        t.expect(ack(1 + n * 1000));
        t.read(1000);
    }
    t.inject(seg().data(1000));
    t.expect_nothing();
    t.inject(seg().data(1000));
    t.expect(ack(24_001));
    t.read(2000);
}

/// The end of a write of the peer is acknowledged as soon as the reader has emptied the buffer.
#[test]
fn linux_acknowledges_what_was_pushed_once_it_is_read() {
    // The window has no room to grow; growth alone would cause an ACK.
    let mut config = linux_6();
    config.receive.max_buffer_bytes = config.receive.buffer_bytes;
    config.receive.initial_window_bytes = config.receive.buffer_bytes;
    let mut t = Script::established(config);
    for n in 1..=16 {
        t.inject(seg().data(1000));
        t.expect(ack(1 + n * 1000));
    }
    t.read(16_000);
    t.at(100).inject(seg().data(1000));
    t.read(1000);
    t.expect_nothing();
    t.at(140).expect(ack(17_001).reason(Reason::DelayedAck));
    t.at(200).inject(seg().data(1000).and(Flags::PSH));
    t.expect_nothing();
    t.read(1000);
    t.expect(ack(18_001).reason(Reason::Ack));
    // A segment of less than full size ends a write, even without the flag.
    t.at(300).inject(seg().data(10));
    t.expect_nothing();
    t.read(10);
    t.expect(ack(18_011).reason(Reason::Ack));
}

/// Quick ACKs return after a pause longer than the RTO.
#[test]
fn linux_quick_acks_after_a_pause() {
    let mut t = Script::established(linux_6());
    for n in 1..=16 {
        t.inject(seg().data(1000));
        t.expect(ack(1 + n * 1000));
    }
    t.read(16_000);
    t.at(100).inject(seg().data(100));
    t.at(140).expect(ack(16_101).reason(Reason::DelayedAck));
    t.at(1000).inject(seg().data(100));
    t.expect(ack(16_201).reason(Reason::Ack));
}

/// In an alternating exchange, answers carry the ACKs, and quick ACKs end.
#[test]
fn linux_interactive_exchanges_delay_their_acks() {
    let mut t = Script::established(linux_6());
    t.inject(seg().data(100));
    t.expect(ack(101));
    t.at(5).write(50);
    t.expect(data(1, 51));
    t.at(10).inject(seg().ack(51).data(100));
    t.expect_nothing();
    t.at(15).write(50);
    t.expect(data(51, 101).ack(201));
    t.expect_no_timer(Timer::DelayedAck);
    t.inject(seg().ack(101));
}

/// A FIN without data, sent within the delay of an ACK or again, is no answer: quick ACKs go on, and the last data stays the last
/// (`tcp_event_data_sent` is called for segments with data).
#[test]
fn linux_does_not_take_a_fin_for_data() {
    let mut t = Script::established(linux_6());
    t.write(50);
    t.expect(data(1, 51));
    t.inject(seg().ack(51).data(100));
    t.expect(ack(101));
    let before = t.connection.last_data_sent_at();
    t.at(5).shutdown();
    t.expect(our_fin(51).ack(101));
    t.at(10).inject(seg().ack(51).data(100));
    t.expect(ack(201).seq(52).reason(Reason::Ack));
    t.at_micros(205_001).expect(our_fin(51).ack(201).reason(Reason::Timeout));
    t.at(211).inject(seg().ack(51).data(100));
    t.expect(ack(301).seq(52).reason(Reason::Ack));
    assert_eq!(t.connection.last_data_sent_at(), before);
}

/// A connection's challenge ACKs and its answers to unacceptable segments without data are 500 ms apart
/// (`tcp_invalid_ratelimit`); data is always answered.
#[test]
fn linux_6_answers_empty_segments_twice_a_second() {
    let mut t = Script::established(linux_6());
    for (at, is_answered) in [(1_000, true), (1_499, false), (1_500, true), (1_600, false), (2_000, true)] {
        t.at(at).inject_as(Disposition::OutsideWindow, seg().seq(0));
        if is_answered {
            t.expect(ack(1).reason(Reason::ChallengeAck));
        }
    }
    t.at(2_400).inject_as(Disposition::ResetChallenged, rst().seq(10));
    t.at(2_500).inject_as(Disposition::ResetChallenged, rst().seq(10));
    t.expect(ack(1).reason(Reason::ChallengeAck));
    for at in [2_501, 2_502, 2_503] {
        for template in [seg().seq(200_000).data(10), fin().seq(200_000)] {
            t.at(at).inject_as(Disposition::OutsideWindow, template);
            t.expect(ack(1).reason(Reason::ChallengeAck));
        }
        // A SYN carries no data.
        t.inject_as(Disposition::DuplicateData, syn());
    }
}

/// `tcp_fin`: in ESTABLISHED the ACK of a FIN is delayed as that of data, because an answer may carry it, if only our own FIN.
#[test]
fn linux_delays_the_ack_of_a_fin() {
    let after_data = || {
        let mut t = Script::established(linux_6());
        t.inject(seg().data(1000));
        t.expect(ack(1001).reason(Reason::Ack));
        t.read(1000);
        t
    };
    let mut t = after_data();
    t.at(10).inject(fin());
    t.expect_state(State::CloseWait);
    t.at(50).expect(ack(1002).reason(Reason::DelayedAck));
    let mut t = after_data();
    t.at(10).inject(fin());
    t.shutdown();
    t.expect(our_fin(1).ack(1002));
    t.expect_no_timer(Timer::DelayedAck);
}

/// An ACK that is due for data before the FIN is not delayed with the FIN's, if both arrive before it can be sent.
#[test]
fn linux_sends_an_ack_that_is_due_at_a_fin() {
    let mut t = Script::established(linux_6());
    t.inject(seg().data(1000));
    t.expect(ack(1001).reason(Reason::Ack));
    t.read(1000);
    let (now, ack) = (t.now(), t.connection.snd_nxt());
    let arrives = |seq, flags, payload| Segment {
        src_port: 80,
        dst_port: 1000,
        seq,
        ack,
        flags,
        window: 20_000,
        payload,
        ..Segment::default()
    };
    let data = arrives(t.connection.rcv_nxt(), Flags::ACK, stream(1000, 100));
    assert_eq!(t.connection.handle_segment(now, &data), Disposition::Accepted);
    let fin = arrives(t.connection.rcv_nxt(), Flags::ACK | Flags::FIN, Bytes::new());
    assert_eq!(t.connection.handle_segment(now, &fin), Disposition::Accepted);
    assert_eq!(t.connection.poll_transmit(now).map(|transmit| transmit.reason), Some(Reason::FinAck));
}

/// It is sent at once before any data has set the delay, and in the states in which the connection ends.
#[test]
fn linux_acknowledges_a_fin_at_once_where_no_answer_is_expected() {
    let mut t = Script::established(linux_6());
    t.inject(fin());
    t.expect(ack(2).reason(Reason::FinAck));
    let mut t = Script::established(linux_6());
    t.inject(seg().data(1000));
    t.expect(ack(1001));
    t.read(1000);
    t.shutdown();
    t.expect(our_fin(1));
    t.inject(seg().ack(2));
    t.inject(fin());
    t.expect(ack(1002).reason(Reason::FinAck));
    t.expect_state(State::TimeWait);
}
