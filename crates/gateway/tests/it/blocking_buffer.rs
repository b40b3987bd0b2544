//! The thesis' gateway, rule by rule.

use holdover_base::Duration;
use holdover_filter::Presence;
use holdover_gateway::blocking_buffer::BlockingBufferConfig;
use holdover_gateway::{Mechanisms, WarningSign};
use holdover_wire::{Packet, Udp};

use crate::script::*;

fn script(config: BlockingBufferConfig) -> Script {
    Script::new(&Mechanisms { blocking_buffer: Some(config), ..Mechanisms::default() })
}

/// The mobile host has announced its departure, and five segments wait for it.
fn blocked(config: BlockingBufferConfig) -> Script {
    let mut script = script(config);
    assert_eq!(script.pass(data(100, 100)), ["to phone 100:200"]);
    assert_eq!(script.pass(ack(200, 0)), ["to fixed ack 200 win 0"]);
    for at in 2..7 {
        assert_eq!(script.pass(data(at * 100, 100)), [] as [&str; 0]);
    }
    script
}

#[test]
fn a_registration_releases_a_burst_and_acks_the_rest_in_order() {
    let mut script = blocked(BlockingBufferConfig::default());
    assert_eq!(script.phone_is(Presence::Present), ["to phone 200:300", "to phone 300:400"]);
    assert_eq!(script.phone_is(Presence::Present), [] as [&str; 0], "only one that unblocks");
    // One packet is appended, and the head is forwarded.
    assert_eq!(script.pass(data(700, 100)), ["to phone 400:500"]);
    let answer = ["to fixed ack 400 win 500", "to phone 500:600", "to phone 600:700"];
    assert_eq!(script.pass(ack(400, 500)), answer);
    assert_eq!(script.pass(ack(500, 500)), ["to fixed ack 500 win 500", "to phone 700:800"]);
    assert_eq!(script.pass(data(800, 100)), ["to phone 800:900"], "nothing is before it");
}

#[test]
fn an_ack_with_an_open_window_unblocks_too() {
    let mut script = blocked(BlockingBufferConfig { burst_packets: None, ..BlockingBufferConfig::default() });
    let all = ["to phone 200:300", "to phone 300:400", "to phone 400:500", "to phone 500:600", "to phone 600:700"];
    assert_eq!(script.pass(ack(200, 500))[1..], all);
}

#[test]
fn zero_window_probes_wait_and_what_is_no_tcp_does_not() {
    let mut script = blocked(BlockingBufferConfig::default());
    assert_eq!(script.pass(data(199, 0)), [] as [&str; 0]);
    let udp = Udp { src_port: 1, dst_port: 2, payload: vec![0; 10].into() };
    assert_eq!(script.pass(Packet::new(FIXED, PHONE, udp)), ["to phone no TCP"]);
}

#[test]
fn packets_without_room_and_old_packets_are_dropped() {
    let config = BlockingBufferConfig {
        buffer_bytes: 5 * 140,
        longest: Duration::from_secs(2),
        ..BlockingBufferConfig::default()
    };
    let mut script = blocked(config);
    assert_eq!(script.pass(data(700, 100)), [] as [&str; 0]);
    script.at(1_999);
    assert_eq!(script.dropped(), 0);
    script.at(2_000);
    assert_eq!(script.dropped(), 5, "the sixth had no room");
    assert_eq!(script.phone_is(Presence::Present), [] as [&str; 0]);
}

/// With the flag in the IP header (section 4.6.2), the gateway needs no TCP header of the mobile host's: it clears the flag towards the
/// fixed host, and sets it on packets from the buffer.
#[test]
fn the_flag_blocks_and_goes_with_what_is_released() {
    let mut script = script(BlockingBufferConfig { sign: WarningSign::IpFlag, ..BlockingBufferConfig::default() });
    assert_eq!(script.pass(ack(200, 0)), ["to fixed ack 200 win 0"], "a zero window is not a warning here");
    assert_eq!(script.pass(flagged(data(200, 100))), ["to phone 200:300"], "the wired side's flag is not passed on");
    assert_eq!(script.pass(flagged(ack(300, 500))), ["to fixed ack 300 win 500"]);
    for at in 3..7 {
        assert_eq!(script.pass(data(at * 100, 100)), [] as [&str; 0]);
    }
    assert_eq!(script.phone_is(Presence::Rebound), ["to phone flagged 300:400", "to phone flagged 400:500"]);
    // One in, one out: forwarded, not released (figure 4.6.3-3).
    assert_eq!(script.pass(data(700, 100)), ["to phone 500:600"]);
    assert_eq!(script.pass(ack(600, 500))[1..], ["to phone flagged 600:700", "to phone flagged 700:800"]);
}

#[test]
fn any_packet_without_the_flag_unblocks() {
    let mut script = script(BlockingBufferConfig { sign: WarningSign::IpFlag, ..BlockingBufferConfig::default() });
    script.pass(flagged(ack(200, 0)));
    assert_eq!(script.pass(data(200, 100)), [] as [&str; 0]);
    let udp = Udp { src_port: 1, dst_port: 2, payload: vec![0; 10].into() };
    assert_eq!(script.pass(Packet::new(PHONE, FIXED, udp)), ["to fixed no TCP", "to phone flagged 200:300"]);
}
