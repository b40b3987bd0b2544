//! The policy for user timeouts.

use holdover_base::Duration;
use holdover_mobility::user_timeout::UserTimeoutPolicyConfig;
use holdover_mobility::{LinkEvent, Mechanisms};
use holdover_tcp::{Config, ConnectionError, Profile, RetryLimit};
use holdover_wire::UserTimeout;

use crate::ends::{Ends, segments};
use crate::support::*;

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn policy(config: UserTimeoutPolicyConfig) -> Mechanisms {
    Mechanisms { user_timeout: Some(config), ..Mechanisms::default() }
}

/// A user timeout of 30 s, which the peer may change between 10 s and 1 h.
fn config() -> Config {
    let mut config = Profile::Linux6Cubic.config();
    config.user_timeout.timeout = Some(secs(30));
    config.user_timeout.changeable = true;
    config.user_timeout.lower_limit = secs(10);
    config.user_timeout.upper_limit = secs(3_600);
    config
}

fn fading() -> LinkEvent {
    LinkEvent::Fading { lead: None }
}

fn up() -> LinkEvent {
    LinkEvent::Up { symmetric: false, moved: true }
}

fn ends(config: Config, policy_config: UserTimeoutPolicyConfig) -> Ends {
    Ends::new(config, &policy(policy_config), &Mechanisms::default())
}

fn timeouts(ends: &mut Ends) -> (Option<Duration>, Option<Duration>) {
    (ends.client.tcp().user_timeout(), ends.server.tcp().user_timeout())
}

#[test]
fn a_foreseen_disconnection_asks_for_a_long_timeout_at_both_ends() {
    let mut ends = ends(config(), UserTimeoutPolicyConfig::default());
    assert_eq!(timeouts(&mut ends), (Some(secs(30)), Some(secs(30))));
    ends.client.hears(ends.now, fading());
    let sent = ends.client.sends(ends.now);
    assert_eq!(sent.len(), 1, "the option does not wait for data");
    assert_eq!(segments(&sent)[0].options.user_timeout, UserTimeout::from_duration(secs(900)));
    assert_eq!(ends.client.actions(), ["asked for long"]);
    ends.server.takes(ends.now, sent);
    assert_eq!(timeouts(&mut ends), (Some(secs(900)), Some(secs(900))));
}

#[test]
fn a_disconnection_that_was_not_foreseen_makes_it_long_at_this_end() {
    let mut ends = ends(config(), UserTimeoutPolicyConfig::default());
    ends.client.hears(ends.now, LinkEvent::Down);
    ends.cut(secs(5));
    assert_eq!(timeouts(&mut ends), (Some(secs(900)), Some(secs(30))));
}

#[test]
fn the_former_timeout_returns_when_the_link_has_been_back_for_a_while() {
    let policy = UserTimeoutPolicyConfig { afterwards: Some(secs(60)), ..UserTimeoutPolicyConfig::default() };
    let mut ends = ends(config(), policy);
    ends.client.hears(ends.now, fading());
    ends.exchange();
    ends.client.hears(ends.now, LinkEvent::Down);
    ends.cut(secs(40));
    ends.client.hears(ends.now, up());
    assert_eq!(ends.client.chain.poll_timeout(), Some(ends.now + secs(10)));
    ends.cut(secs(9));
    assert_eq!(timeouts(&mut ends), (Some(secs(900)), Some(secs(900))));
    ends.pass(secs(1));
    let sent = ends.client.sends(ends.now);
    ends.server.takes(ends.now, sent);
    // This end has its former timeout; the peer has the one requested afterwards.
    assert_eq!(timeouts(&mut ends), (Some(secs(30)), Some(secs(60))));
    assert_eq!(ends.client.actions(), ["asked for long", "returned"]);
}

#[test]
fn the_former_advertisement_returns() {
    let mut config = config();
    config.user_timeout.advertise = Some(secs(45));
    let mut ends =
        ends(config, UserTimeoutPolicyConfig { linger: Duration::ZERO, ..UserTimeoutPolicyConfig::default() });
    ends.client.hears(ends.now, fading());
    ends.exchange();
    ends.client.hears(ends.now, LinkEvent::Recovered);
    ends.pass(secs(1));
    let option = segments(&ends.client.sends(ends.now))[0].options.user_timeout;
    assert_eq!(option, UserTimeout::from_duration(secs(45)));
}

#[test]
fn another_disconnection_in_the_meantime_keeps_it_long() {
    let mut ends = ends(config(), UserTimeoutPolicyConfig::default());
    ends.client.hears(ends.now, LinkEvent::Down);
    ends.client.hears(ends.now, up());
    ends.pass(secs(5));
    ends.client.hears(ends.now, LinkEvent::Down);
    assert_eq!(ends.client.chain.poll_timeout(), None);
    ends.pass(secs(50));
    ends.client.hears(ends.now, up());
    ends.pass(secs(11));
    assert_eq!(timeouts(&mut ends).0, Some(secs(30)), "and what returns is the first one");
}

/// U_LIMIT and L_LIMIT bound the request of this end, and the timeout that the peer adopts.
#[test]
fn limits_hold_at_both_ends() {
    let mut limited = config();
    limited.user_timeout.upper_limit = secs(120);
    let mut ends = ends(limited, UserTimeoutPolicyConfig::default());
    ends.client.hears(ends.now, fading());
    let sent = ends.client.sends(ends.now);
    assert_eq!(segments(&sent)[0].options.user_timeout, UserTimeout::from_duration(secs(120)));
    ends.server.takes(ends.now, sent);
    assert_eq!(timeouts(&mut ends), (Some(secs(120)), Some(secs(120))));
}

/// A peer whose application has fixed the timeout ignores the request (CHANGEABLE).
#[test]
fn a_peer_may_ignore_it() {
    let mut fixed = config();
    fixed.user_timeout.changeable = false;
    let mut ends = ends(fixed, UserTimeoutPolicyConfig::default());
    ends.client.hears(ends.now, fading());
    ends.exchange();
    assert_eq!(timeouts(&mut ends), (Some(secs(900)), Some(secs(30))));
    assert!(!ends.client.tcp().user_timeout_config().changeable);
}

/// A host with a longer timeout of its own only requests one from its peer.
#[test]
fn a_timeout_that_is_longer_stays() {
    let retries = RetryLimit::Retries;
    for (timeout, r2, after) in [
        (Some(secs(1_800)), retries(8), Some(secs(1_800))),
        (None, RetryLimit::Never, None),
        // 924.6 s.
        (None, RetryLimit::LinuxTime(15), None),
        (None, RetryLimit::LinuxTime(10), Some(secs(900))),
        // From an RTO of 0.2 to 0.4 s on, doubled up to 120 s: more than 1300 s, and less than 420 s.
        (None, retries(20), None),
        (None, retries(9), Some(secs(900))),
    ] {
        let mut config = config();
        (config.user_timeout.timeout, config.limits.r2) = (timeout, r2);
        let mut ends = ends(config, UserTimeoutPolicyConfig::default());
        ends.client.hears(ends.now, fading());
        let sent = segments(&ends.client.sends(ends.now));
        assert_eq!(timeouts(&mut ends).0, after, "{timeout:?} {r2:?}");
        assert_eq!(sent[0].options.user_timeout, UserTimeout::from_duration(secs(900)));
        // The former timeout returns.
        ends.client.hears(ends.now, up());
        ends.pass(secs(11));
        assert_eq!(timeouts(&mut ends).0, timeout);
    }
    let mut asking = config();
    (asking.user_timeout.timeout, asking.user_timeout.advertise) = (Some(secs(1_800)), Some(secs(1_000)));
    let mut ends = ends(asking, UserTimeoutPolicyConfig::default());
    ends.client.sends(ends.now);
    ends.client.hears(ends.now, fading());
    assert!(ends.client.sends(ends.now).is_empty() && ends.client.actions().is_empty(), "it has asked for more");
}

/// The retransmission timer has backed off to minutes: the first retransmission is sent long after link-up.
#[test]
fn the_short_timeout_returns_only_after_progress() {
    for outage in [60, 300, 600] {
        let policy = policy(UserTimeoutPolicyConfig::default());
        let mut ends = Ends::new(config(), &policy, &policy);
        ends.client.writes(ends.now, 8);
        for end in [&mut ends.client, &mut ends.server] {
            end.hears(ends.now, LinkEvent::Down);
        }
        ends.cut(secs(outage));
        let up_at = ends.now;
        for end in [&mut ends.client, &mut ends.server] {
            end.hears(up_at, up());
        }
        assert_eq!(timeouts(&mut ends).0, Some(secs(900)));
        while ends.client.tcp().send_queue_len() > 0 {
            let out = ends.client.sends(ends.now);
            ends.pass(ms(100));
            ends.server.takes(ends.now, out);
            let back = ends.server.sends(ends.now);
            ends.client.takes(ends.now, back);
            assert!(!ends.client.tcp().is_closed(), "{outage} s: {:?}", ends.now.saturating_since(up_at));
            assert!(ends.now < up_at + secs(130), "the timer has 120 s at most");
        }
        ends.pass(secs(11));
        assert_eq!(timeouts(&mut ends).0, Some(secs(30)), "it goes on, and the former one is back");
        assert_eq!(ends.client.actions(), ["asked for long", "returned"]);
    }
}

#[test]
fn several_connections_are_asked_for_together() {
    let mut ends = ends(config(), UserTimeoutPolicyConfig::default());
    let remote = ends.client.tcp().remote();
    ends.client.endpoint.connect(ends.now, std::sync::Arc::new(config()), None, remote).expect("another");
    ends.exchange();
    ends.client.hears(ends.now, fading());
    assert_eq!(ends.client.actions(), ["asked for long"; 2]);
    let asked = segments(&ends.client.sends(ends.now));
    assert_eq!(asked.iter().filter(|segment| segment.options.user_timeout.is_some()).count(), 2);
}

/// An outage of a minute, a timeout of 30 s at both ends: the transfer survives if the long timeout was requested in
/// time.
#[test]
fn a_transfer_survives_a_long_outage() {
    for (way, foresight, survives) in [
        (Way::Upload, None, true),
        (Way::Upload, Some(ms(500)), true),
        (Way::Download, None, false),
        (Way::Download, Some(ms(500)), true),
    ] {
        let plain = tcp(world(way, Profile::Linux6Cubic, 4_000_000, &[(2_000, 62_000)]), |tcp| {
            tcp.user_timeout = config().user_timeout;
        });
        assert_eq!(run(plain.clone()).status, holdover_sim::FlowStatus::Failed(ConnectionError::UserTimeout));
        let status = run(with(plain, policy(UserTimeoutPolicyConfig::default()), foresight)).status;
        assert_eq!(status == holdover_sim::FlowStatus::Completed, survives, "{way:?} {foresight:?}: {status:?}");
    }
}
