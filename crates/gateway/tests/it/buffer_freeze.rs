//! BUFFER-FREEZE, rule by rule.

use holdover_filter::Presence;
use holdover_gateway::Mechanisms;
use holdover_gateway::buffer_freeze::BufferFreezeConfig;

use crate::script::*;

fn script(config: BufferFreezeConfig) -> Script {
    Script::new(&Mechanisms { buffer_freeze: Some(config), ..Mechanisms::default() })
}

/// Two segments were forwarded, the first is acknowledged after 10 ms, and that ACK is withheld.
fn withheld(config: BufferFreezeConfig) -> Script {
    let mut script = script(config);
    script.pass(ack(100, 500));
    assert_eq!(script.pass(data(100, 100)), ["to phone 100:200"]);
    assert_eq!(script.pass(data(200, 100)), ["to phone 200:300"]);
    script.at(10);
    assert_eq!(script.pass(ack(200, 400)), [] as [&str; 0]);
    script
}

fn default() -> BufferFreezeConfig {
    BufferFreezeConfig::default()
}

#[test]
fn the_newest_ack_waits_for_the_next_one() {
    let mut script = withheld(default());
    script.pass(data(300, 100));
    assert_eq!(script.pass(ack(300, 450)), ["to fixed ack 200 win 400"]);
    // Nothing is outstanding any more: no later ACK would release it.
    assert_eq!(script.pass(ack(400, 500)), ["to fixed ack 300 win 450", "to fixed ack 400 win 500"]);
}

#[test]
fn a_duplicate_is_forwarded_at_once_after_the_withheld_acks() {
    let mut script = withheld(default());
    assert_eq!(script.pass(ack(200, 400)), ["to fixed ack 200 win 400", "to fixed ack 200 win 400"]);
    assert_eq!(script.pass(ack(200, 400)), ["to fixed ack 200 win 400"]);
}

#[test]
fn when_acks_stop_the_fixed_host_is_frozen_and_its_probes_are_answered() {
    let mut script = withheld(default());
    assert_eq!(script.at(259), [] as [&str; 0]);
    // The round trip was 10 ms; the floor is 250 ms after the last ACK.
    assert_eq!(script.at(260), ["to fixed ack 200 win 0"]);
    assert_eq!(script.at(5_000), [] as [&str; 0], "once");
    // As Linux probes, and as 4.4BSD does.
    assert_eq!(script.pass(data(199, 0)), ["to phone ack 1 win 500", "to fixed ack 200 win 0"]);
    assert_eq!(script.pass(data(300, 1)), ["to phone 300:301", "to fixed ack 200 win 0"]);
    assert_eq!(script.phone_is(Presence::Away), [] as [&str; 0]);
    let copies = ["to phone 200:300", "to phone 300:301"];
    assert_eq!(script.phone_is(Presence::Present), copies);
    assert_eq!(script.pass(ack(301, 480)), ["to fixed ack 301 win 480"], "it reopens the window itself");
    assert_eq!(script.phone_is(Presence::Present), [] as [&str; 0], "and has all");
}

#[test]
fn a_host_that_answers_a_probe_without_news_gets_the_copies() {
    let mut script = withheld(default());
    script.at(300);
    script.pass(data(199, 0));
    assert_eq!(script.pass(ack(200, 400)), ["to fixed ack 200 win 400", "to phone 200:300"]);
}

#[test]
fn a_false_alarm_ends_with_the_next_ack_and_sends_nothing_again() {
    let mut script = withheld(default());
    script.at(300);
    assert_eq!(script.pass(ack(300, 450)), ["to fixed ack 300 win 450"]);
    assert_eq!(script.at(10_000), [] as [&str; 0]);
}

#[test]
fn a_host_that_has_moved_finds_the_copies_there() {
    let mut script = withheld(default());
    assert_eq!(script.phone_is(Presence::Moved), ["to phone 200:300", "to fixed ack 200 win 400"]);
    assert_eq!(script.at(10_000), [] as [&str; 0], "its ACKs go elsewhere");
}

#[test]
fn freezing_alone_reopens_the_window_when_the_host_is_back() {
    let mut script = withheld(BufferFreezeConfig { buffers: false, ..default() });
    script.phone_is(Presence::Away);
    assert_eq!(script.at(260), ["to fixed ack 200 win 0"]);
    assert_eq!(script.phone_is(Presence::Present), ["to fixed ack 200 win 400"]);
    assert_eq!(script.at(10_000), [] as [&str; 0], "what was sent is lost, and not waited for");
    assert_eq!(script.pass(ack(300, 450)), ["to fixed ack 300 win 450"], "the ACK before it is void");
}

#[test]
fn freezing_alone_reopens_the_window_once_when_the_host_has_moved() {
    let mut script = withheld(BufferFreezeConfig { buffers: false, ..default() });
    assert_eq!(script.at(260), ["to fixed ack 200 win 0"]);
    assert_eq!(script.phone_is(Presence::Moved), ["to fixed ack 200 win 400"]);
}

#[test]
fn buffering_alone_withholds_no_acks_and_freezes_no_sender() {
    let mut script = script(BufferFreezeConfig { freezes: false, ..default() });
    script.pass(ack(100, 500));
    script.pass(data(100, 100));
    script.pass(data(200, 100));
    assert_eq!(script.pass(ack(200, 400)), ["to fixed ack 200 win 400"]);
    script.phone_is(Presence::Away);
    assert_eq!(script.at(10_000), [] as [&str; 0]);
    assert_eq!(script.phone_is(Presence::Present), ["to phone 200:300"]);
}

#[test]
fn packets_without_room_are_forwarded_without_a_copy() {
    let config = BufferFreezeConfig { buffer_bytes: 150, ..default() };
    let mut script = script(config);
    script.pass(ack(100, 500));
    script.pass(data(100, 100));
    assert_eq!(script.pass(data(200, 100)), ["to phone 200:300"]);
    assert_eq!(script.phone_is(Presence::Moved), ["to phone 100:200"]);
}
