//! Behaviour of the Linux profiles that RFC 9293 and its companions leave open: the floor of the RTO, SYNs, the decay of an unused
//! window (RFC 2861), bursts, and rate halving.

use holdover_base::Duration;
use holdover_tcp::{Config, ConnectionError, Profile, Reason, RecoveryState, State};

use crate::script::*;

/// Linux 6 with Reno, in the round numbers of [`plain`] and without options.
pub(crate) fn linux_6() -> Config {
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

/// A burst right after another waits until a full one may go: here 5 segments, what twice the window in a round trip of 20 ms amounts to in
/// a millisecond.
#[test]
fn linux_6_waits_for_a_larger_burst() {
    let sent = |defers: bool, gap_us: u64| {
        let mut config = linux_6();
        config.send.defer_bursts = defers;
        config.send.fix_buffer(1 << 20);
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

/// RFC 2861 as in Linux: half the window for each RTO of silence, not below the initial one; ssthresh keeps three quarters.
#[test]
fn rfc2861_3_2_an_idle_window_decays() {
    let with_cwnd_40 = || {
        let mut config = linux_6();
        config.send.fix_buffer(1 << 20);
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
        config.send.fix_buffer(1 << 20);
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
        config.send.fix_buffer(buffer);
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

/// Linux `tcp_sndbuf_expand`: segments of 1000 bytes occupy 2304. The buffer has room for two windows of ten at first, and for two of the
/// present one once what it holds does not fill the window.
// Claim: The send buffer of `linux-6-*` grows with the congestion window if it limits the sender; one of a set size does not.
#[test]
fn linux_6_grows_the_send_buffer_with_the_window() {
    for (fixed, expected) in [(None, [46_080, 46_080, 184_320]), (Some(46_080), [46_080; 3])] {
        let mut config = linux_6();
        fixed.into_iter().for_each(|bytes| config.send.fix_buffer(bytes));
        let mut t = Script::established(config);
        t.inject(seg().win(60_000));
        let taken = t.steer(|connection, now| connection.write(now, crate::world::stream(0, 100_000)));
        assert_eq!((taken, t.forget_sent()), (46_080, 10));
        let mut sizes = vec![t.connection.send_buffer_bytes()];
        for (at, acked, cwnd) in [(50, 10_001, 20), (100, 30_001, 40)] {
            t.at(at).inject(seg().ack(acked).win(60_000));
            assert_eq!(t.connection.cwnd(), cwnd);
            t.forget_sent();
            sizes.push(t.connection.send_buffer_bytes());
        }
        assert_eq!(sizes, expected, "{fixed:?}");
        // A size that is set later holds, too.
        t.steer(|connection, now| {
            let mut config = holdover_tcp::Config::clone(connection.config());
            config.send.fix_buffer(20_000);
            connection.reconfigure(now, std::sync::Arc::new(config));
        });
        assert_eq!(t.connection.send_buffer_bytes(), 20_000);
    }
}

/// Linux `tcp_sndbuf_expand`: the larger one of the peer's MSS and ours counts. Of 1460 bytes a segment occupies 4352.
#[test]
fn linux_6_counts_segments_of_the_peers_size_in_the_send_buffer() {
    for (offered, room) in [(500, 20 * 2304), (1000, 20 * 2304), (1460, 20 * 4352)] {
        let mut t = Script::connect(linux_6());
        t.forget_sent();
        t.inject(syn_ack().mss(offered));
        t.forget_sent();
        assert_eq!(t.connection.send_buffer_bytes(), room, "{offered}");
        assert_eq!(t.connection.snd_mss(), u32::from(offered.min(1000)));
    }
}

/// Linux `tcp_event_data_sent`: `lsndtime`, by which the window decays and bursts are deferred, is that of retransmissions, too.
#[test]
fn linux_6_takes_a_retransmission_for_sent_data() {
    let mut t = after_50_ms();
    t.steer(|connection, now| connection.write(now, crate::world::stream(0, 1000)));
    assert_eq!(t.forget_sent(), 1);
    let timer = millis(&t);
    t.at(timer);
    assert_eq!(t.forget_sent(), 1, "at {timer} ms");
    assert_eq!(t.connection.last_data_sent_at(), t.instant(timer));
}

/// How many segments are sent in each round trip after a timeout in which all data that the peer's window permitted is lost,
/// with ssthresh at its minimum. The application has written `written` bytes; 40,000 are outstanding.
fn sent_in_rounds_after_a_timeout(written: usize) -> Vec<usize> {
    let mut config = linux_6();
    config.send.fix_buffer(1 << 20);
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
