//! Behaviour of the Linux profiles that RFC 9293 and its companions leave open: the floor of the RTO, SYNs, adaptive quick and
//! delayed ACKs, the decay of an unused window (RFC 2861), the growth of the advertised window, and rate halving.

use bytes::Bytes;
use holdover_base::Duration;
use holdover_tcp::{BeyondWindow, Config, ConnectionError, Disposition, Profile, Reason, RecoveryState, State, Timer};
use holdover_wire::{Flags, Segment};

use crate::script::*;
use crate::world::stream;

/// Linux 6 with Reno, in the round numbers of [`plain`] and without options.
fn linux_6() -> Config {
    let mut config = Profile::Linux6Reno.config();
    config.mss = 1000;
    config.window_scale = None;
    config.timestamps = None;
    config.sack = false;
    config
}

/// A connection whose handshake took 50 ms: an RTO of 250 ms.
fn after_50_ms() -> Script {
    let mut t = Script::connect(linux_6());
    t.expect(our_syn());
    t.at(50).inject(syn_ack());
    t.expect(ack(1));
    t
}

fn millis(t: &Script) -> u64 {
    t.connection.poll_timeout().map(|(at, _)| at.saturating_since(t.instant(0)).as_millis()).unwrap()
}

/// The floor of 200 ms applies to the variation: a round trip of 50 ms makes an RTO of 250 ms.
#[test]
fn linux_rto_is_srtt_and_at_least_200_ms() {
    let mut t = after_50_ms();
    assert_eq!(t.connection.rto(), Duration::from_millis(250));
    t.write(1000);
    t.expect(data(1, 1001));
    for at in [300, 800, 1800, 3800] {
        t.at(at).expect(data(1, 1001).reason(Reason::Timeout));
    }
}

#[test]
fn linux_rto_is_at_most_120_s() {
    let mut t = after_50_ms();
    t.steer(|connection, now| connection.set_user_timeout(now, Some(Duration::from_secs(100_000)), false));
    t.write(10);
    t.expect(data(1, 11));
    let mut last = 50;
    let mut waits = Vec::new();
    for _ in 0..12 {
        let at = millis(&t);
        t.at(at).expect(data(1, 11).reason(Reason::Timeout));
        waits.push(at - last);
        last = at;
    }
    assert_eq!(waits, [250, 500, 1000, 2000, 4000, 8000, 16_000, 32_000, 64_000, 120_000, 120_000, 120_000]);
}

/// Four of the six retransmissions of the SYN are a second apart (`tcp_syn_linear_timeouts`).
#[test]
fn linux_6_repeats_its_syn() {
    let mut t = Script::connect(linux_6());
    t.expect(our_syn());
    for at in [1, 2, 3, 4, 5, 7, 11, 19, 35, 67] {
        t.expect_nothing_until(at * 1000 - 1);
        t.at(at * 1000).expect(our_syn().reason(Reason::Syn));
    }
    t.expect_nothing_until(131_000);
    t.expect_state(State::Closed);
    assert_eq!(t.connection.error(), Some(ConnectionError::TimedOut));
}

/// Timeouts that do not double add nothing to the time that few SYNs may take: 1 + 2 s for one repetition.
#[test]
fn linux_6_gives_up_connecting_after_the_time_of_doubling_timeouts() {
    let mut config = linux_6();
    config.limits.syn_retries = 1;
    let mut t = Script::connect(config);
    t.expect(our_syn());
    for at in [1, 2] {
        t.at(at * 1000).expect(our_syn().reason(Reason::Syn));
    }
    t.expect_nothing_until(2_999);
    t.expect_state(State::SynSent);
    t.expect_nothing_until(3_000);
    t.expect_state(State::Closed);
    assert_eq!(t.connection.error(), Some(ConnectionError::TimedOut));
}

/// A user timeout replaces that time: a long one leaves the number of SYNs to decide, a short one ends the attempt itself.
#[test]
fn linux_6_connects_for_as_long_as_its_user_timeout() {
    for (timeout, end, error) in
        [(10_000, 7_000, ConnectionError::TimedOut), (4_500, 4_500, ConnectionError::UserTimeout)]
    {
        let mut config = linux_6();
        config.limits.syn_retries = 1;
        config.user_timeout.timeout = Some(Duration::from_millis(timeout));
        let mut t = Script::connect(config);
        t.expect(our_syn());
        for at in (1000..=5000).step_by(1000).filter(|&at| at < end) {
            t.at(at).expect(our_syn().reason(Reason::Syn));
        }
        t.expect_nothing_until(end - 1);
        t.expect_state(State::SynSent);
        t.expect_nothing_until(end);
        t.expect_state(State::Closed);
        assert_eq!(t.connection.error(), Some(error));
    }
}

/// The timeout of a SYN-ACK doubles from the start.
#[test]
fn linux_6_repeats_its_syn_ack() {
    let mut t = Script::accept(linux_6(), syn());
    t.expect(our_syn_ack());
    for at in [1, 3, 7, 15, 31, 63] {
        t.at(at * 1000).expect(our_syn_ack().reason(Reason::SynAck));
    }
    t.expect_nothing_until(127_000);
    t.expect_state(State::Closed);
}

/// The initial window survives one lost SYN, but not a second one.
#[test]
fn linux_forgives_one_lost_syn() {
    for (lost, cwnd) in [(0, 10), (1, 10), (2, 1)] {
        let mut t = Script::connect(linux_6());
        t.expect(our_syn());
        for n in 1..=lost {
            t.at(n * 1000).expect(our_syn());
        }
        t.inject(syn_ack());
        t.expect(ack(1));
        t.expect_cwnd(cwnd, None);
    }
}

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
    // What closes the gap is acknowledged at once, with what was held back.
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

/// A burst right after another waits until a full one may go: here 5 segments, what twice the window in a round trip of 20 ms amounts to in
/// a millisecond.
#[test]
fn linux_6_waits_for_a_larger_burst() {
    let sent = |defers: bool, gap_us: u64| {
        let mut config = linux_6();
        config.send.defer_bursts = defers;
        let mut t = Script::connect(config);
        t.expect(our_syn());
        t.at(20).inject(syn_ack().win(65_535));
        t.expect(ack(1));
        t.steer(|connection, _| connection.set_cwnd(50));
        t.write(200_000);
        let first = t.forget_sent();
        t.at(40);
        (0..8_i64)
            .map(|n| {
                t.at_micros(40_000 + gap_us * n as u64);
                t.inject(seg().ack(1 + 1000 * (n + 1)));
                t.forget_sent()
            })
            .chain([first])
            .collect::<Vec<_>>()
    };
    assert_eq!(sent(false, 240), [2, 2, 2, 2, 2, 2, 2, 2, 50]);
    assert_eq!(sent(true, 240), [2, 0, 0, 5, 0, 5, 0, 0, 50]);
    // Nothing waits for an ACK that comes more than a millisecond later.
    assert_eq!(sent(true, 1_200), [2, 2, 2, 2, 2, 2, 2, 2, 50]);
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

/// RFC 2861 as in Linux: half the window for each RTO of silence, not below the initial one; ssthresh keeps three quarters.
#[test]
fn rfc2861_3_2_an_idle_window_decays() {
    let with_cwnd_40 = || {
        let mut config = linux_6();
        config.send.buffer_bytes = 1 << 20;
        let mut t = Script::established(config);
        t.inject(seg().win(60_000));
        t.steer(|connection, _| {
            connection.set_cwnd(40);
            connection.set_ssthresh(40);
        });
        t.write(40_000);
        t.expect_segments(1, 40_001, Reason::NewData);
        t.inject(seg().ack(40_001));
        t.expect_cwnd(41, Some(40));
        t
    };
    let rto = with_cwnd_40().connection.rto().as_millis();
    assert_eq!(rto, 200);
    for (idle, cwnd) in [(200, 41), (201, 20), (399, 20), (401, 10), (5000, 10)] {
        let mut t = with_cwnd_40();
        t.at(idle).write(60_000);
        assert_eq!(t.forget_sent(), cwnd, "after {idle} ms");
        t.expect_cwnd(cwnd as u32, Some(40));
    }
}

/// A closed window counts as idle time of the connection: when it opens, the congestion window has decayed accordingly.
#[test]
fn linux_a_closed_window_is_an_idle_time() {
    for (open_at, cwnd) in [(100, 41), (300, 20), (1000, 10)] {
        let mut config = linux_6();
        config.send.buffer_bytes = 1 << 20;
        let mut t = Script::established(config);
        t.inject(seg().win(60_000));
        t.steer(|connection, _| {
            connection.set_cwnd(40);
            connection.set_ssthresh(40);
        });
        t.write(100_000);
        t.expect_segments(1, 40_001, Reason::NewData);
        t.inject(seg().ack(40_001).win(0));
        for probe in [200_001, 600_003] {
            if probe < open_at * 1000 {
                t.at_micros(probe).expect(ack(1).seq(40_000).reason(Reason::WindowProbe));
            }
        }
        t.at(open_at);
        t.inject(seg().ack(40_001).win(60_000));
        assert_eq!(t.forget_sent(), cwnd, "after {open_at} ms");
    }
}

/// A window that is unused because the peer's is smaller decays only if the application has not filled the send buffer.
#[test]
fn linux_a_full_send_buffer_keeps_the_window() {
    for (buffer, kept) in [(30_000, true), (1 << 20, false)] {
        let mut config = linux_6();
        config.send.buffer_bytes = buffer;
        let mut t = Script::established(config);
        t.inject(seg().win(20_000));
        t.steer(|connection, _| {
            connection.set_cwnd(40);
            connection.set_ssthresh(30);
        });
        t.write(30_000);
        t.expect_segments(1, 20_001, Reason::NewData);
        for n in 1..=10 {
            t.at(n * 50);
            t.inject(seg().ack(1 + n as i64 * 20_000).win(20_000));
            t.write(20_000);
            assert_eq!(t.forget_sent(), 20);
        }
        assert_eq!(t.connection.cwnd() == 40, kept, "{}", t.connection.cwnd());
    }
}

/// How many segments are sent in each round trip after a timeout in which all data that the peer's window permitted is lost,
/// with ssthresh at its minimum. The application has written `written` bytes; 40,000 are outstanding.
fn sent_in_rounds_after_a_timeout(written: usize) -> Vec<usize> {
    let mut config = linux_6();
    config.send.buffer_bytes = 1 << 20;
    config.recovery.frto = false;
    let mut t = Script::established(config);
    t.inject(seg().win(40_000));
    t.steer(|connection, _| {
        connection.set_cwnd(100);
        connection.set_ssthresh(90);
    });
    t.write(written);
    t.expect_segments(1, 40_001, Reason::NewData);
    t.at_micros(200_001).expect(data(1, 1001).reason(Reason::Timeout));
    t.steer(|connection, _| connection.set_ssthresh(2));
    let mut acked = 1;
    let mut sent = vec![1];
    for round in 1..=7 {
        t.at(200 + round * 50);
        let mut next = 0;
        for _ in 0..sent[sent.len() - 1] {
            acked += 1000;
            t.inject(seg().ack(acked).win(40_000));
            next += t.forget_sent();
        }
        sent.push(next);
    }
    sent
}

/// After a timeout in which all data that the peer's window permitted is lost, retransmissions fill the congestion window. If
/// new data waits for the window, it opens by a segment each round trip; otherwise it stays.
#[test]
fn linux_a_window_that_retransmissions_fill_opens() {
    assert_eq!(sent_in_rounds_after_a_timeout(60_000), [1, 2, 3, 4, 5, 6, 7, 8]);
    assert_eq!(sent_in_rounds_after_a_timeout(40_000), [1, 2, 2, 2, 2, 2, 2, 2]);
}

/// The limit of unanswered window probes is also a limit of their backoff.
#[test]
fn linux_the_backoff_of_probes_ends_with_their_limit() {
    let mut config = linux_6();
    config.persist.give_up_after = Some(2);
    let mut t = Script::connect(config);
    t.expect(our_syn());
    t.at(50).inject(syn_ack());
    t.expect(ack(1));
    t.inject(seg().win(0));
    t.write(10);
    for at in [300, 800, 1800, 2800, 3800] {
        t.at(at).expect(ack(1).seq(0).reason(Reason::WindowProbe));
        t.inject(seg().win(0));
    }
}

/// A window that the application does not fill decreases towards the used part.
#[test]
fn rfc2861_3_2_a_window_that_is_not_used_decays() {
    let mut t = Script::established(linux_6());
    t.steer(|connection, _| {
        connection.set_cwnd(40);
        connection.set_ssthresh(30);
    });
    let mut cwnds = Vec::new();
    for n in 0..60 {
        t.at(n as u64 * 50).write(2000);
        t.expect_segments(1 + n * 2000, 2001 + n * 2000, Reason::NewData);
        t.at(n as u64 * 50 + 20).inject(seg().ack(2001 + n * 2000));
        cwnds.push(t.connection.cwnd());
    }
    assert!(cwnds.windows(2).all(|pair| pair[1] <= pair[0]), "{cwnds:?}");
    assert_eq!((cwnds[0], cwnds[59]), (40, 10), "{cwnds:?}");
    assert_eq!(t.connection.ssthresh(), Some(30));
}

/// A segment without new data or ACK that shrinks the window is ignored; one that closes it is accepted (Linux 6), see
/// `window_update_policies`.
#[test]
fn linux_probes_a_closed_window_with_nothing() {
    let mut t = after_50_ms();
    t.inject(seg().win(0));
    t.write(10);
    for at in [300, 800, 1800, 3800] {
        t.at(at).expect(ack(1).seq(0).reason(Reason::WindowProbe));
        t.inject(seg().win(0));
    }
}

/// The advertised window begins small and grows by two segments for each arriving one.
#[test]
fn linux_the_advertised_window_grows() {
    let mut config = linux_6();
    config.receive.initial_window_bytes = 10_000;
    let mut t = Script::established(config);
    let mut edge = 10_001;
    for n in 1..=10 {
        t.inject(seg().data(1000));
        t.read(1000);
        let sent = t.take_sent();
        let now = 1 + n * 1000 + i64::from(sent.window);
        assert_eq!(now - edge, 3000, "the segment that was read, and two more");
        edge = now;
        t.forget_sent();
    }
}

/// Segments of up to 1460 bytes and a window scale of 10.
fn scaled(sack: bool) -> Script {
    Script::established(Config { mss: 1460, window_scale: Some(10), sack, ..linux_6() })
}

/// The advertised window after `count` segments of `len` bytes, each of which is read at once, in units of 1024 bytes.
fn window_after(t: &mut Script, len: usize, count: usize) -> u16 {
    let mut window = 0;
    for _ in 0..count {
        t.inject(seg().data(len));
        t.read(len);
        window = t.take_sent().window;
        t.forget_sent();
    }
    window
}

/// The buffer counts memory: segments of 1448 bytes fill 160 256ths of it, so that 128 KiB of memory give a window of 81,920
/// bytes minus the segment that has not been read (the kernel's `rcv_ssthresh=80480`). A shorter segment before them has no
/// effect.
#[test]
fn linux_6_the_largest_segment_shows_how_much_data_the_buffer_holds() {
    let mut t = scaled(true);
    assert_eq!(window_after(&mut t, 1448, 8), (80_472_u32 >> 10) as u16);
    let mut t = scaled(true);
    window_after(&mut t, 700, 1);
    assert_eq!(window_after(&mut t, 1448, 8), (80_472_u32 >> 10) as u16);
}

/// Segments with less than 128 bytes of data leave the window unchanged (`tcp_event_data_recv`).
#[test]
fn linux_small_segments_do_not_open_the_window() {
    let mut t = Script::established(Config { mss: 1460, ..linux_6() });
    assert_eq!(window_after(&mut t, 127, 10), 64_240);
    assert_eq!(window_after(&mut t, 128, 1), 64_240 + 2 * 536, "two segments of the size that is assumed at first");
}

/// Data beyond a hole lets the buffer grow, and the window with it.
#[test]
fn linux_6_data_beyond_a_hole_lets_the_buffer_grow() {
    let mut t = scaled(true);
    let mut window = 0;
    for n in 0..4 {
        t.inject(seg().seq(50_001 + n * 1448).data(1448));
        window = t.take_sent().window;
        t.forget_sent();
    }
    assert!(window > 66, "{window} KiB");
}

/// ... but not segments out of order if SACK was not agreed: their ACKs would not count as duplicates.
#[test]
fn linux_without_sack_the_advertised_window_stays_beyond_a_hole() {
    for sack in [false, true] {
        let mut config = linux_6();
        config.sack = sack;
        config.receive.initial_window_bytes = 10_000;
        let mut t = Script::established(config);
        for n in 1..=4 {
            t.inject(seg().seq(1 + n * 1000).data(1000));
            let sent = t.take_sent();
            let grown = if sack { 2000 * n as u16 } else { 0 };
            assert_eq!((sent.ack, sent.window), (t.connection.rcv_nxt(), 10_000 + grown), "SACK {sack}");
        }
    }
}

/// Linux 2.4: in recovery every second ACK reduces the window by one segment.
#[test]
fn linux_2_4_rate_halving() {
    let mut config = Profile::Linux2_4.config();
    config.mss = 1000;
    config.window_scale = None;
    config.timestamps = None;
    let mut t = Script::established(config);
    t.steer(|connection, _| connection.set_cwnd(10));
    t.write(30_000);
    t.expect_segments(1, 10_001, Reason::NewData);
    t.inject(seg().sack(&[(1001, 4001)]));
    t.expect(data(1, 1001).reason(Reason::FastRetransmit));
    assert_eq!(t.connection.recovery_state(), RecoveryState::Recovery);
    let mut sent = t.forget_sent();
    for n in 5..=10 {
        t.inject(seg().sack(&[(1001, n * 1000 + 1)]));
        sent += t.forget_sent();
    }
    // About one segment for two that arrive, and never a burst.
    assert!((2..=4).contains(&sent), "{sent}");
    t.inject(seg().ack(10_001));
    t.forget_sent();
    assert!(t.connection.cwnd() <= 6 && t.connection.ssthresh() == Some(5), "{}", t.connection.cwnd());
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

fn with_a_window_of(bytes: u32) -> Config {
    let mut config = linux_6();
    config.receive.buffer_bytes = bytes;
    config.receive.max_buffer_bytes = bytes;
    config.receive.initial_window_bytes = bytes;
    config
}

/// `tcp_sequence`: a segment that reaches beyond the window is taken whole if nothing waits to be read, and refused otherwise.
#[test]
fn linux_6_takes_a_segment_beyond_the_window_whole() {
    let mut t = Script::established(with_a_window_of(10_000));
    t.inject(seg().data(12_000));
    assert_eq!(t.rcv_nxt(), 12_001);
    t.forget_sent();
    t.read(12_000);
    t.forget_sent();
    t.inject(seg().data(1000));
    t.forget_sent();
    t.inject_as(Disposition::OutsideWindow, seg().data(12_000));
    t.expect(ack(13_001).reason(Reason::ChallengeAck));
    t.inject_as(Disposition::OutsideWindow, seg().seq(14_001).data(12_000));
    t.expect(ack(13_001).reason(Reason::ChallengeAck));
    // Other stacks take what fits.
    let mut config = with_a_window_of(10_000);
    config.receive.beyond_window = BeyondWindow::Cut;
    let mut t = Script::established(config);
    t.inject(seg().data(1000));
    t.forget_sent();
    t.inject(seg().data(12_000));
    assert_eq!(t.rcv_nxt(), 10_001);
    t.forget_sent();
}

/// `tcp_data_queue`: a FIN alone is taken although the window is closed, and acknowledged at once.
#[test]
fn linux_6_takes_a_fin_into_a_closed_window() {
    let mut t = Script::established(with_a_window_of(10_000));
    t.inject(seg().data(12_000));
    t.forget_sent();
    t.inject(fin());
    t.expect(ack(12_002).win(0).reason(Reason::FinAck));
    t.expect_state(State::CloseWait);
    t.read(12_000);
    t.forget_sent();
}
