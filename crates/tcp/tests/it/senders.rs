//! Senders of the papers: where Solaris 2.6, FreeBSD 2.2 and the agents of ns differ from 4.3BSD. (AIX 4.2 and NetBSD 1.1 do not.)

use holdover_base::Duration;
use holdover_tcp::{Config, ConnectionError, Profile, Reason, State, Timer};

use crate::script::*;

/// A profile without timestamps, so that a segment has 1000 bytes.
fn plain_of(profile: Profile) -> Config {
    Config { mss: 1000, timestamps: None, ..profile.config() }
}

/// Four segments outstanding, and four more to send.
fn out(profile: Profile) -> Script {
    let mut t = Script::established(plain_of(profile));
    t.steer(|connection, _| connection.set_cwnd(4));
    t.write(8000);
    t.expect_segments(1, 4001, Reason::NewData);
    t
}

/// Half a second at first, twice as long each time up to a minute, for three minutes.
#[test]
fn solaris_syn_timeouts() {
    let mut t = Script::connect(plain_of(Profile::Solaris2_6));
    t.expect(our_syn());
    for at in [500, 1_500, 3_500, 7_500, 15_500, 31_500, 63_500, 123_500] {
        t.at(at).expect(our_syn().reason(Reason::Syn));
    }
    t.expect_nothing_until(183_500);
    t.expect_state(State::Closed);
    assert_eq!(t.connection.error(), Some(ConnectionError::TimedOut));
}

/// At least 200 ms, on ticks of 10 ms, and at most 60 s.
#[test]
fn solaris_timeouts() {
    let mut t = Script::established(plain_of(Profile::Solaris2_6));
    assert_eq!(t.connection.rto(), Duration::from_millis(200));
    t.at(5).write(100);
    t.expect(data(1, 101));
    t.expect_timer(Timer::Retransmit, 200);
    let (mut at, mut rto) = (200, 400);
    for _ in 0..11 {
        t.at(at).expect(data(1, 101).reason(Reason::Timeout));
        t.expect_timer(Timer::Retransmit, at + rto);
        at += rto;
        rto = (rto * 2).min(60_000);
    }
}

/// The window closes over outstanding data: the retransmission timer stands still, and probes of one byte begin after 200 ms.
#[test]
fn solaris_freezes_at_a_closed_window() {
    let mut t = out(Profile::Solaris2_6);
    t.at(100).inject(seg().ack(1).win(0));
    t.expect_no_timer(Timer::Retransmit);
    for at in [300, 700, 1500] {
        t.at(at).expect(data(1, 2).reason(Reason::WindowProbe));
    }
    t.at(1600).inject(seg().ack(1).win(20_000));
    t.expect_nothing();
    t.expect_cwnd(4, None);
    t.expect_timer(Timer::Retransmit, 1700);
    t.inject(seg().ack(4001));
    t.forget_sent();
    assert_eq!(t.connection.counters().timeouts, 0);
}

/// RFC 1323's options, and no SACK.
#[test]
fn freebsd_offers_a_window_scale_and_timestamps() {
    let mut t = Script::connect(Profile::FreeBsd2_2.config());
    let options = t.take_sent().options;
    assert_eq!((options.window_scale, options.sack_permitted), (Some(0), false));
    assert!(options.timestamps.is_some());
}

/// Each RTT comes from the echo of a clock of 500 ms.
#[test]
fn freebsd_samples_the_echo() {
    let mut t = Script::connect(Config { mss: 1000, ..Profile::FreeBsd2_2.config() });
    let sent = t.take_sent().options.timestamps.expect("the SYN has timestamps");
    t.inject(syn_ack().wscale(0).ts(PEER_CLOCK, sent.val));
    t.forget_sent();
    assert_eq!(t.connection.rto(), Duration::from_millis(1500), "an RTT within a tick counts as one");
    t.at(1000).write(988);
    t.expect(data(1, 989));
    t.inject(seg().ack(989).ts(PEER_CLOCK + 1, sent.val));
    assert_eq!(t.connection.rto(), Duration::from_millis(2000), "the echo is two ticks old");
}

/// Outstanding data is taken back, so that nothing is sent beyond a closed window, and probes carry no data.
#[test]
fn freebsd_probes_a_closed_window_with_nothing() {
    let mut t = out(Profile::FreeBsd2_2);
    t.at(100).inject(seg().ack(2001).win(0));
    t.expect_no_timer(Timer::Retransmit);
    for at in [5100, 15_100] {
        t.at(at).expect(ack(1).seq(2000).reason(Reason::WindowProbe));
    }
    t.at(16_000).inject(seg().ack(2001).win(10_000));
    t.expect(data(2001, 3001).reason(Reason::LossRecovery));
    t.expect(data(3001, 4001).reason(Reason::LossRecovery));
    t.forget_sent();
    assert_eq!((t.connection.counters().timeouts, t.connection.ssthresh()), (0, None));
}

/// The timer of 4.3BSD's clock stands still while the window is closed, and nothing is taken back.
#[test]
fn the_agents_of_ns_freeze_at_a_closed_window() {
    for profile in [Profile::TahoeNs1, Profile::RenoNs1] {
        let mut t = out(profile);
        t.at(100).inject(seg().ack(1).win(0));
        t.expect_no_timer(Timer::Retransmit);
        for at in [5100, 15_100] {
            t.at(at).expect(data(1, 2).reason(Reason::WindowProbe));
        }
        t.at(16_000).inject(seg().ack(1).win(20_000));
        t.expect_nothing();
        t.expect_cwnd(4, None);
        t.expect_timer(Timer::Retransmit, 17_400);
    }
}

/// After three duplicates Tahoe starts over with one segment, Reno goes on with half the window.
#[test]
fn the_agents_of_ns_differ_in_recovery() {
    for (profile, cwnd) in [(Profile::TahoeNs1, 1), (Profile::RenoNs1, 2)] {
        let mut t = out(profile);
        (0..3).for_each(|_| t.inject(seg()));
        t.expect(data(1, 1001).reason(Reason::FastRetransmit));
        t.forget_sent();
        t.expect_cwnd(cwnd, Some(2));
    }
}
