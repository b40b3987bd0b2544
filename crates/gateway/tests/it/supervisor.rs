//! The supervisor in the path, rule by rule.

use holdover_filter::Presence;
use holdover_gateway::Mechanisms;
use holdover_gateway::supervisor::{Choke, SupervisorConfig};
use holdover_wire::{Seq, SeqRange};

use crate::script::*;

fn script(config: SupervisorConfig) -> Script {
    Script::new(&Mechanisms { supervisor: Some(config), ..Mechanisms::default() })
}

/// Three segments were forwarded; the first is acknowledged after 10 ms, less one byte. The window's right edge stays.
fn held(config: SupervisorConfig) -> Script {
    let mut script = script(config);
    script.open();
    script.pass(ack(100, 500));
    for at in 1..4 {
        script.pass(data(at * 100, 100));
    }
    script.at(10);
    assert_eq!(script.pass(ack(200, 400)), ["to fixed ack 199 win 401"]);
    script
}

fn default() -> SupervisorConfig {
    SupervisorConfig { held_after_bytes: 0, ..SupervisorConfig::default() }
}

#[test]
fn one_byte_less_is_shown_until_nothing_more_comes() {
    let mut script = held(default());
    assert_eq!(script.pass(ack(300, 400)), ["to fixed ack 299 win 401"]);
    assert_eq!(script.at(49), [] as [&str; 0]);
    assert_eq!(script.at(50), ["to fixed ack 300 win 400"]);
    assert_eq!(script.at(10_000), [] as [&str; 0]);
}

#[test]
fn duplicates_and_sack_show_all() {
    let mut script = held(default());
    assert_eq!(script.pass(ack(200, 400)), ["to fixed ack 200 win 400"]);
    let sack = change(ack(300, 400), |segment| {
        segment.options.sack.push(SeqRange::new(Seq::new(350), Seq::new(400)));
    });
    assert_eq!(script.pass(sack), ["to fixed ack 300 win 400"]);
}

#[test]
fn packets_for_an_absent_host_wait_for_its_return() {
    let mut script = held(default());
    assert_eq!(script.phone_is(Presence::Away), [] as [&str; 0]);
    assert_eq!(script.pass(data(400, 100)), [] as [&str; 0]);
    assert_eq!(script.at(10_000), [] as [&str; 0], "what is held wakes the fixed host later");
    let back = ["to fixed ack 200 win 400", "to phone 200:300", "to phone 300:400", "to phone 400:500"];
    assert_eq!(script.phone_is(Presence::Present), back);
    assert_eq!(script.pass(data(500, 100)), ["to phone 500:600"]);
}

#[test]
fn after_the_first_burst_each_ack_brings_two_more() {
    let mut script = held(SupervisorConfig { burst_packets: 2, ..default() });
    script.phone_is(Presence::Away);
    for at in 4..8 {
        script.pass(data(at * 100, 100));
    }
    let first = ["to fixed ack 200 win 400", "to phone 200:300", "to phone 300:400"];
    assert_eq!(script.phone_is(Presence::Present), first);
    assert_eq!(script.pass(data(800, 100)), [] as [&str; 0], "it is behind the others");
    assert_eq!(script.pass(ack(300, 400)), ["to fixed ack 299 win 401", "to phone 400:500", "to phone 500:600"]);
    assert_eq!(script.pass(ack(400, 400))[1..], ["to phone 600:700", "to phone 700:800"]);
    assert_eq!(script.pass(ack(500, 400))[1..], ["to phone 800:900"]);
    assert_eq!(script.pass(data(900, 100)), ["to phone 900:1000"]);
}

#[test]
fn choking_takes_the_byte_that_is_held() {
    let mut script = held(SupervisorConfig { choke: Choke::WhenAway, ..default() });
    assert_eq!(script.phone_is(Presence::Away), ["to fixed ack 200 win 0"]);
    assert_eq!(script.pass(data(199, 0)), ["to fixed ack 200 win 0"], "its probes are answered");
    assert_eq!(script.phone_is(Presence::Present)[0], "to fixed ack 200 win 400");
}

#[test]
fn wintimer_chokes_when_acks_stop_and_leaves_the_last_byte_alone() {
    let mut script = held(SupervisorConfig { choke: Choke::Wintimer, ..default() });
    assert_eq!(script.at(259), [] as [&str; 0]);
    assert_eq!(script.at(260), ["to fixed ack 200 win 0"]);
    // The host was present all the time.
    assert_eq!(script.pass(ack(400, 400)), ["to fixed ack 400 win 400"]);
    assert_eq!(script.at(10_000), [] as [&str; 0], "all that was sent is acknowledged");
}

#[test]
fn a_host_that_has_moved_finds_the_copies_there() {
    let mut script = held(default());
    let all = ["to fixed ack 200 win 400", "to phone 200:300", "to phone 300:400"];
    assert_eq!(script.phone_is(Presence::Moved), all);
    assert_eq!(script.phone_is(Presence::Present), [] as [&str; 0]);
}
