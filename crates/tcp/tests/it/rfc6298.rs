//! RFC 6298, the retransmission timer: its computation (section 2), samples (section 3), the clock (section 4) and its
//! management (section 5). The numbers of section 2 are also tested on the estimator alone, in `src/rtt.rs`.

use holdover_base::Duration;
use holdover_tcp::{Config, Event, Reason, Timer};

use crate::script::*;

fn config() -> Config {
    let mut config = plain();
    config.recovery.frto = false;
    config.recovery.undo = false;
    config.send.nagle = false;
    config
}

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// A connection whose SYN was answered after `rtt`: the script continues at that time.
fn after_handshake(config: Config, rtt: u64) -> Script {
    let timestamps = config.timestamps.is_some();
    let mut t = Script::connect(config);
    t.expect(our_syn());
    let answer = if timestamps { syn_ack().ts(PEER_CLOCK, OUR_CLOCK) } else { syn_ack() };
    t.at(rtt).inject(answer);
    t.expect(ack(1));
    t
}

#[test]
fn rfc6298_2_1_one_second_before_the_first_sample() {
    let mut t = Script::connect(config());
    t.expect(our_syn());
    t.expect_timer(Timer::Retransmit, 1000);
    assert_eq!((t.connection.rto(), t.connection.srtt()), (ms(1000), None));
    t.expect_nothing_until(999);
    t.expect_at(1000, our_syn());
    let mut t = Script::accept(config(), syn());
    t.expect(our_syn_ack());
    t.expect_nothing_until(999);
    t.expect_at(1000, our_syn_ack());
}

#[test]
fn rfc6298_2_2_the_first_sample() {
    let mut t = after_handshake(config(), 800);
    assert_eq!((t.connection.srtt(), t.connection.rttvar()), (Some(ms(800)), ms(400)));
    assert_eq!(t.connection.rto(), ms(2400));
    t.at(1000).write(1000);
    t.expect(data(1, 1001));
    t.expect_timer(Timer::Retransmit, 3400);
    t.expect_at(3400, data(1, 1001).reason(Reason::Timeout));
}

#[test]
fn rfc6298_2_3_later_samples() {
    let mut t = after_handshake(config(), 800);
    t.write(1000);
    t.expect(data(1, 1001));
    t.at(800 + 1600).inject(seg().ack(1001));
    // RTTVAR = 3/4 * 400 + 1/4 * |800 - 1600|, then SRTT = 7/8 * 800 + 1/8 * 1600.
    assert_eq!((t.connection.srtt(), t.connection.rttvar()), (Some(ms(900)), ms(500)));
    assert_eq!(t.connection.rto(), ms(2900));
}

#[test]
fn rfc6298_2_4_less_than_a_second_is_a_second() {
    let mut t = after_handshake(config(), 10);
    assert_eq!(t.connection.rto(), ms(1000));
    t.write(10);
    t.expect(data(1, 11));
    t.expect_timer(Timer::Retransmit, 1010);
    t.expect_at(1010, data(1, 11));
}

#[test]
fn rfc6298_2_5_never_more_than_the_ceiling() {
    let mut t = Script::connect(config());
    t.expect(our_syn());
    let mut at = 0;
    for rto in [1, 2, 4, 8, 16, 32, 60] {
        at += rto * 1000;
        t.expect_at(at, our_syn());
    }
    t.expect_timer(Timer::Retransmit, at + 60_000);
}

/// Karn: an ACK of a retransmitted segment is not a sample, nor is an ACK inside of such a segment.
#[test]
fn rfc6298_3_no_sample_from_a_retransmission() {
    let mut t = after_handshake(config(), 100);
    t.write(2000);
    t.expect_segments(1, 2001, Reason::NewData);
    t.expect_at(1100, data(1, 1001).reason(Reason::Timeout));
    t.at(1110).inject(seg().ack(1001));
    t.expect(data(1001, 2001).reason(Reason::LossRecovery));
    t.at(1500).inject(seg().ack(1501));
    t.at(1900).inject(seg().ack(2001));
    assert_eq!(t.connection.srtt(), Some(ms(100)));
    assert_eq!(t.connection.rto(), ms(2000), "the backoff stays until a sample ends it");
}

/// With timestamps every ACK identifies the segment that it answers.
#[test]
fn rfc6298_3_timestamps_make_a_sample_of_a_retransmission() {
    let mut config = config();
    config.timestamps = Some(ms(1));
    let mut t = after_handshake(config, 100);
    t.write(500);
    t.expect(data(1, 501));
    t.expect_at(1100, data(1, 501).reason(Reason::Timeout).ts(OUR_CLOCK + 1100, PEER_CLOCK));
    t.at(1400).inject(seg().ack(501).ts(PEER_CLOCK + 1400, OUR_CLOCK + 1100));
    // 7/8 * 100 + 1/8 * 300
    assert_eq!(t.connection.srtt(), Some(ms(125)));
    assert_eq!(t.connection.backoff(), 0);
    t.expect_no_timer(Timer::Retransmit);
}

/// At least one sample in a round trip; here one for every ACK of new data that was not retransmitted.
#[test]
fn rfc6298_3_one_sample_a_round_trip_at_least() {
    let mut t = after_handshake(config(), 100);
    for n in 0..8 {
        let sent = t.millis();
        t.write(1000);
        t.expect(data(1 + n * 1000, 1001 + n * 1000));
        t.at(sent + 200).inject(seg().ack(1001 + n * 1000));
    }
    let srtt = t.connection.srtt().unwrap();
    assert!(srtt > ms(160) && srtt < ms(170), "{srtt}");
}

/// 4.3BSD times one segment at a time.
#[test]
fn rfc6298_3_one_timed_segment_at_a_time() {
    let mut config = config();
    config.rto.one_sample_per_window = true;
    let mut t = after_handshake(config, 100);
    t.write(1000);
    t.expect(data(1, 1001));
    t.at(200).write(1000);
    t.expect(data(1001, 2001));
    t.at(300).inject(seg().ack(1001));
    assert_eq!(t.connection.srtt(), Some(ms(112) + Duration::from_micros(500)), "(7 * 100 + 200) / 8");
    t.inject(seg().ack(2001));
    assert_eq!(t.connection.srtt(), Some(ms(112) + Duration::from_micros(500)), "the second was not timed");
}

/// Section 4: samples are counted in ticks of the clock, and the variance is never less than one.
#[test]
fn rfc6298_4_the_clock_has_a_grain() {
    let mut config = config();
    config.rto.tick = ms(500);
    let mut t = after_handshake(config, 120);
    assert_eq!(t.connection.srtt(), Some(ms(500)));
    for n in 0..40 {
        let now = t.millis();
        t.write(100);
        t.expect(data(1 + n * 100, 101 + n * 100));
        t.at(now + 120).inject(seg().ack(101 + n * 100));
    }
    // RTTVAR is zero: SRTT + max(G, K * RTTVAR) is SRTT + G.
    assert!(t.connection.rttvar() < ms(1));
    assert_eq!(t.connection.rto(), ms(1000));
}

#[test]
fn rfc6298_5_1_sending_starts_the_timer_and_does_not_restart_it() {
    let mut t = after_handshake(config(), 100);
    t.expect_no_timer(Timer::Retransmit);
    t.at(200).write(1000);
    t.expect(data(1, 1001));
    t.expect_timer(Timer::Retransmit, 1200);
    t.at(500).write(1000);
    t.expect(data(1001, 2001));
    t.expect_timer(Timer::Retransmit, 1200);
    // Sending only an ACK does not start the timer.
    let mut t = after_handshake(config(), 100);
    t.inject(seg().data(1000));
    t.inject(seg().data(1000));
    t.expect(ack(2001));
    t.expect_no_timer(Timer::Retransmit);
}

#[test]
fn rfc6298_5_2_the_timer_is_off_when_everything_is_acknowledged() {
    let mut t = after_handshake(config(), 100);
    t.write(2000);
    t.expect_segments(1, 2001, Reason::NewData);
    t.at(200).inject(seg().ack(2001));
    t.expect_no_timer(Timer::Retransmit);
    t.expect_nothing_until(100_000);
}

#[test]
fn rfc6298_5_3_an_ack_of_new_data_restarts_the_timer() {
    let mut t = after_handshake(config(), 100);
    t.write(3000);
    t.expect_segments(1, 3001, Reason::NewData);
    t.at(400).inject(seg().ack(1001));
    t.expect_timer(Timer::Retransmit, 400 + t.connection.rto().as_millis());
    // An ACK inside a segment restarts the timer too.
    t.at(700).inject(seg().ack(1501));
    t.expect_timer(Timer::Retransmit, 700 + t.connection.rto().as_millis());
    // An ACK of no new data does not.
    let before = t.connection.deadline(Timer::Retransmit);
    t.at(800).inject(seg().ack(1501));
    t.inject(seg().ack(1001));
    t.inject(seg().data(10));
    assert_eq!(t.connection.deadline(Timer::Retransmit), before);
    t.expect_at(1000, ack(11));
}

/// (5.4) the earliest segment is retransmitted, (5.5) the timeout doubles, (5.6) the timer restarts.
#[test]
fn rfc6298_5_4_to_5_6_a_timeout() {
    let mut t = after_handshake(config(), 100);
    t.write(3000);
    t.expect_segments(1, 3001, Reason::NewData);
    let mut at = 100;
    for rto in [1, 2, 4, 8] {
        at += rto * 1000;
        t.expect_nothing_until(at - 1);
        t.expect_at(at, data(1, 1001).reason(Reason::Timeout));
        assert_eq!(t.connection.rto(), ms(2000 * rto));
        t.expect_timer(Timer::Retransmit, at + 2000 * rto);
    }
    assert_eq!((t.connection.backoff(), t.connection.retransmits()), (4, 4));
    assert_eq!(t.connection.counters().timeouts, 4);
    assert_eq!(t.connection.counters().sent(Reason::Timeout), 4);
}

/// "The backoff is retained until a sample": after the retransmission is acknowledged, data sent later still has the longer
/// timeout.
#[test]
fn rfc6298_5_5_the_backoff_ends_with_a_sample() {
    let mut t = after_handshake(config(), 100);
    t.write(1000);
    t.expect(data(1, 1001));
    t.expect_at(1100, data(1, 1001));
    t.at(1200).inject(seg().ack(1001));
    assert_eq!(t.connection.retransmits(), 0);
    t.at(2000).write(1000);
    t.expect(data(1001, 2001));
    t.expect_timer(Timer::Retransmit, 4000);
    t.at(2100).inject(seg().ack(2001));
    assert_eq!((t.connection.rto(), t.connection.backoff()), (ms(1000), 0));
}

/// (5.7): three seconds if the SYN was retransmitted and there is no sample.
#[test]
fn rfc6298_5_7_three_seconds_after_a_lost_syn() {
    let mut t = Script::connect(config());
    t.expect(our_syn());
    t.expect_at(1000, our_syn());
    t.at(1100).inject(syn_ack());
    t.expect(ack(1));
    assert_eq!((t.connection.rto(), t.connection.srtt()), (ms(3000), None));
    t.write(1000);
    t.expect(data(1, 1001));
    t.expect_timer(Timer::Retransmit, 4100);
    t.at(1200).inject(seg().ack(1001));
    assert_eq!(t.connection.rto(), ms(1000));
}

#[test]
fn rfc6298_5_7_three_seconds_after_a_lost_syn_ack() {
    let mut t = Script::accept(config(), syn());
    t.expect(our_syn_ack());
    t.expect_at(1000, our_syn_ack());
    t.at(1100).inject(seg().ack(1));
    assert_eq!(t.connection.rto(), ms(3000));
}

/// A stack that begins with more than three seconds does not reduce its timeout to them.
#[test]
fn rfc6298_5_7_only_from_below() {
    let mut config = config();
    config.rto.initial = ms(6000);
    let mut t = Script::connect(config);
    t.expect(our_syn());
    t.expect_at(6000, our_syn());
    t.at(6100).inject(syn_ack());
    t.expect(ack(1));
    assert_eq!(t.connection.rto(), ms(6000));
}

/// With timestamps the retransmitted SYN gives a sample, and no assumption is needed.
#[test]
fn rfc6298_5_7_not_when_there_is_a_sample() {
    let mut config = config();
    config.timestamps = Some(ms(1));
    let mut t = Script::connect(config);
    t.expect(our_syn());
    t.expect_at(1000, our_syn().ts(OUR_CLOCK + 1000, 0));
    t.at(1100).inject(syn_ack().ts(PEER_CLOCK, OUR_CLOCK + 1000));
    t.expect(ack(1));
    assert_eq!((t.connection.srtt(), t.connection.rto()), (Some(ms(100)), ms(1000)));
}

/// The timer expires on a connection in recovery: retransmission starts again from the first segment.
#[test]
fn rfc6298_5_4_a_timeout_in_recovery() {
    let mut t = after_handshake(config(), 100);
    t.write(10_000);
    t.expect_segments(1, 10_001, Reason::NewData);
    for _ in 0..3 {
        t.at(200).inject(seg());
        t.forget_sent();
    }
    t.expect_timer(Timer::Retransmit, 1200);
    t.expect_at(1200, data(1, 1001).reason(Reason::Timeout));
    t.expect_cwnd(1, Some(5));
    t.expect_no_event(Event::DeliveryTrouble);
}
