//! RFC 5482, the user timeout option.

use holdover_base::Duration;
use holdover_tcp::{Config, ConnectionError, Event, Profile, Reason, RetryLimit, State, Timer, UserTimeoutConfig};
use holdover_wire::{RareOptions, TcpOptions, UserTimeout};

use crate::script::*;

fn secs(seconds: u64) -> UserTimeout {
    UserTimeout::from_duration(Duration::from_secs(seconds)).unwrap()
}

fn advertising(seconds: u64) -> Config {
    let mut config = plain();
    config.user_timeout.advertise = Some(Duration::from_secs(seconds));
    config
}

/// Section 3.1: in the SYN, and in the first segment after it, because a SYN's options may get lost.
#[test]
fn rfc5482_3_1_the_option_is_in_the_syn_and_in_the_first_segment_after_it() {
    let uto = |mss| TcpOptions::from(RareOptions { mss, user_timeout: Some(secs(300)), ..RareOptions::default() });
    let mut t = Script::connect(advertising(300));
    t.expect(our_syn().options(uto(Some(1000))));
    t.inject(syn_ack());
    t.expect(ack(1).options(uto(None)));
    t.write(10);
    t.expect(data(1, 11).options(TcpOptions::default()));
    let mut t = Script::accept(advertising(300), syn());
    t.expect(our_syn_ack().options(uto(Some(1000))));
    t.inject(seg().ack(1));
    t.expect(ack(1).options(uto(None)));
}

/// It may be sent at any later time: on data if there is room, otherwise on a separate ACK.
#[test]
fn rfc5482_3_1_the_option_later() {
    let mut t = Script::established(plain());
    t.steer(|connection, _| connection.advertise_user_timeout(Some(Duration::from_secs(40_000))));
    // The seconds do not fit into 15 bits, so the option uses minutes.
    let user_timeout = Some(UserTimeout::from_wire(0x8000 | 667));
    t.expect(ack(1).options(RareOptions { user_timeout, ..RareOptions::default() }.into()));
    t.steer(|connection, _| connection.advertise_user_timeout(None));
    t.expect_nothing();
}

/// Section 3.1: USER_TIMEOUT = min(U_LIMIT, max(ADV_UTO, REMOTE_UTO, L_LIMIT)).
#[test]
fn rfc5482_3_1_the_timeout_that_is_adopted() {
    for (advertise, remote, adopted) in
        [(None, 300, 300), (None, 20, 100), (Some(400), 300, 400), (Some(200), 300, 300), (None, 2_000_000, 604_800)]
    {
        let mut config = plain();
        config.user_timeout.advertise = advertise.map(Duration::from_secs);
        let mut t = Script::established(config);
        t.inject(seg().user_timeout(secs(remote)));
        assert_eq!(t.connection.user_timeout(), Some(Duration::from_secs(adopted)), "{advertise:?} {remote}");
        t.expect_event(Event::UserTimeoutChanged);
        // A repetition changes nothing.
        t.inject(seg().user_timeout(secs(remote)));
        t.expect_no_event(Event::UserTimeoutChanged);
    }
}

/// The option of the SYN and of the SYN-ACK counts.
#[test]
fn rfc5482_3_1_the_option_in_the_peers_syn() {
    let mut t = Script::accept(plain(), syn().user_timeout(secs(500)));
    t.expect(our_syn_ack());
    assert_eq!(t.connection.user_timeout(), Some(Duration::from_secs(500)));
    t.expect_timer(Timer::UserTimeout, 500_000);
    let mut t = Script::connect(plain());
    t.expect(our_syn());
    t.inject(syn_ack().user_timeout(secs(600)));
    t.expect(ack(1));
    assert_eq!(t.connection.user_timeout(), Some(Duration::from_secs(600)));
    t.expect_no_timer(Timer::UserTimeout);
}

/// Section 2: zero is reserved; section 3: CHANGEABLE off, and after the application has set it.
#[test]
fn rfc5482_3_what_does_not_change_the_timeout() {
    let mut t = Script::established(plain());
    t.inject(seg().user_timeout(UserTimeout::from_wire(0)));
    t.inject(seg().user_timeout(UserTimeout::from_wire(0x8000)));
    assert_eq!(t.connection.user_timeout(), None);
    let mut config = plain();
    config.user_timeout.changeable = false;
    let mut t = Script::established(config);
    t.inject(seg().user_timeout(secs(300)));
    assert_eq!(t.connection.user_timeout(), None);
    let mut t = Script::established(plain());
    t.steer(|connection, now| connection.set_user_timeout(now, Some(Duration::from_secs(7)), false));
    t.inject(seg().user_timeout(secs(300)));
    assert_eq!(t.connection.user_timeout(), Some(Duration::from_secs(7)));
    t.expect_no_event(Event::UserTimeoutChanged);
}

/// A timeout longer than R2 keeps the connection open beyond R2, which is its purpose (RFC 9293 MUST-22).
#[test]
fn rfc5482_1_a_longer_timeout_outlasts_r2() {
    let mut config = plain();
    config.limits.r2 = RetryLimit::Retries(2);
    let mut t = Script::established(config);
    t.steer(|connection, now| connection.set_user_timeout(now, Some(Duration::from_secs(100)), false));
    t.write(10);
    t.expect(data(1, 11));
    for at in [1, 3, 7, 15, 31, 63] {
        t.at(at * 1000).expect(data(1, 11).reason(Reason::Timeout));
    }
    t.expect_nothing_until(100_000);
    t.expect_state(State::Closed);
    assert_eq!(t.connection.error(), Some(ConnectionError::UserTimeout));
}

/// Without it, R2 decides again.
#[test]
fn the_user_timeout_can_be_lifted() {
    let mut config = plain();
    config.limits.r2 = RetryLimit::Retries(2);
    config.user_timeout.timeout = Some(Duration::from_secs(2));
    let mut t = Script::established(config);
    t.write(10);
    t.expect(data(1, 11));
    t.steer(|connection, now| connection.set_user_timeout(now, None, true));
    t.expect_no_timer(Timer::UserTimeout);
    t.at(1000).expect(data(1, 11));
    t.at(3000).expect(data(1, 11));
    t.expect_nothing_until(7000);
    assert_eq!(t.connection.error(), Some(ConnectionError::TimedOut));
}

/// A closed window whose probes are answered outlives the timeout, except under Linux's rule.
#[test]
fn the_user_timeout_and_a_closed_window() {
    for covers_zero_window in [false, true] {
        let mut config = plain();
        config.user_timeout.timeout = Some(Duration::from_secs(5));
        config.user_timeout.covers_zero_window = covers_zero_window;
        let mut t = Script::established(config);
        t.inject(seg().win(0));
        t.write(10);
        t.at(1000).expect(data(1, 2).reason(Reason::WindowProbe));
        t.inject(seg().win(0));
        t.at(3000).expect(data(1, 2).reason(Reason::WindowProbe));
        t.inject(seg().win(0));
        t.expect_nothing_until(5000);
        if covers_zero_window {
            t.expect_state(State::Closed);
            assert_eq!(t.connection.error(), Some(ConnectionError::UserTimeout));
            continue;
        }
        t.at(7000).expect(data(1, 2));
        t.expect_state(State::Established);
        // The peer does not answer from now on.
        t.expect_nothing_until(14_999);
        while t.connection.error().is_none() {
            let next = t.connection.poll_timeout().unwrap().0.saturating_since(t.instant(0)).as_millis();
            t.at(next);
            t.forget_sent();
        }
        assert_eq!(t.connection.error(), Some(ConnectionError::UserTimeout));
        assert!(t.millis() <= 20_000, "{}", t.millis());
    }
}

/// The data is sent at 0, 1 and 3 s; a window that closes at 0 is probed at 1, 3 and 7 s.
// Claim: Under the profiles of Linux 6 a user timeout counts from the first retransmission of the loss episode, once its timer has run out, or
// from the first zero-window probe, as by Linux 6.18; under the others from when the data was sent or the window closed.
#[test]
fn the_user_timeout_of_linux_runs_from_the_first_retransmission() {
    for (profile, last_s) in [(Profile::Linux2_4, 5), (Profile::Linux6Cubic, 6)] {
        let user_timeout = UserTimeoutConfig { timeout: Some(Duration::from_secs(5)), ..profile.config().user_timeout };
        let config = Config { user_timeout, ..plain() };
        let mut t = Script::established(config.clone());
        t.write(10);
        t.expect(data(1, 11));
        t.at(1000).expect(data(1, 11).reason(Reason::Timeout));
        t.at(3000).expect(data(1, 11).reason(Reason::Timeout));
        t.expect_nothing_until(last_s * 1000 - 1);
        t.expect_state(State::Established);
        t.expect_nothing_until(last_s * 1000);
        assert_eq!(t.connection.error(), Some(ConnectionError::UserTimeout), "{profile}");

        let mut t = Script::established(config);
        t.inject(seg().win(0));
        t.write(10);
        t.at(1000).expect(data(1, 2).reason(Reason::WindowProbe));
        t.at(3000).expect(data(1, 2).reason(Reason::WindowProbe));
        t.expect_nothing_until(last_s * 1000 - 1);
        t.expect_state(State::Established);
        t.expect_nothing_until(last_s * 1000);
        assert_eq!(t.connection.error(), Some(ConnectionError::UserTimeout), "{profile}");
    }
}

/// An ACK of a part of the data suspends the timeout. At the next retransmission by the timer it counts from the first retransmission again.
#[test]
fn the_user_timeout_of_linux_counts_from_the_start_of_the_episode() {
    let linux = Profile::Linux6Cubic.config().user_timeout;
    let user_timeout = UserTimeoutConfig { timeout: Some(Duration::from_secs(5)), ..linux };
    let mut t = Script::established(Config { user_timeout, ..plain() });
    t.write(2000);
    t.expect_segments(1, 2001, Reason::NewData);
    t.expect_no_timer(Timer::UserTimeout);
    t.at(1000).expect(data(1, 1001).reason(Reason::Timeout));
    t.expect_timer(Timer::UserTimeout, 6_000);
    t.at(2000).inject(seg().ack(1001));
    t.expect_no_timer(Timer::UserTimeout);
    t.expect(data(1001, 2001).reason(Reason::LossRecovery));
    let deadline = t.connection.deadline(Timer::Retransmit).expect("data is outstanding");
    let again = deadline.saturating_since(t.instant(0)).as_millis();
    t.at(again).expect(data(1001, 2001).reason(Reason::Timeout));
    t.expect_timer(Timer::UserTimeout, 6_000);
}

/// The first retransmission may be a fast retransmit; a new setting of the same timeout changes nothing.
#[test]
fn the_user_timeout_of_linux_counts_from_a_fast_retransmit() {
    let timeout = Some(Duration::from_secs(5));
    let linux = Profile::Linux6Cubic.config().user_timeout;
    let mut t = Script::established(Config { user_timeout: UserTimeoutConfig { timeout, ..linux }, ..plain() });
    t.write(5000);
    t.expect_segments(1, 5001, Reason::NewData);
    t.at(100);
    (0..3).for_each(|_| t.inject(seg()));
    t.expect(data(1, 1001));
    t.forget_sent();
    t.expect_no_timer(Timer::UserTimeout);
    let deadline = t.connection.deadline(Timer::Retransmit).expect("data is outstanding");
    t.at(deadline.saturating_since(t.instant(0)).as_millis()).expect(data(1, 1001).reason(Reason::Timeout));
    t.expect_timer(Timer::UserTimeout, 5_100);
    t.steer(|connection, now| connection.set_user_timeout(now, timeout, false));
    t.expect_timer(Timer::UserTimeout, 5_100);
}
