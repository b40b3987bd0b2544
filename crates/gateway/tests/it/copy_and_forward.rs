//! The thesis' other gateway, rule by rule.

use holdover_base::Duration;
use holdover_filter::Presence;
use holdover_gateway::blocking_buffer::BlockingBufferConfig;
use holdover_gateway::copy_and_forward::CopyAndForwardConfig;
use holdover_gateway::snoop::SnoopConfig;
use holdover_gateway::{ConfigError, Mechanisms, WarningSign};
use holdover_wire::{Flags, Packet, Udp};

use crate::script::*;

const NOTHING: [&str; 0] = [];

fn script(config: CopyAndForwardConfig) -> Script {
    Script::new(&Mechanisms { copy_and_forward: Some(config), ..Mechanisms::default() })
}

/// The mobile host has announced its departure, and three segments were still sent to its old cell.
fn warned(config: CopyAndForwardConfig) -> Script {
    let mut script = script(config);
    assert_eq!(script.pass(data(100, 100)), ["to phone 100:200"]);
    assert_eq!(script.pass(ack(200, 0)), ["to fixed ack 200 win 0"]);
    for at in 2..5 {
        assert_eq!(script.pass(data(at * 100, 100)), [format!("to phone {}:{}", at * 100, at * 100 + 100)]);
    }
    script
}

#[test]
fn copies_go_to_the_new_cell_and_only_there() {
    let mut script = warned(CopyAndForwardConfig::default());
    assert_eq!(script.phone_is(Presence::Present), NOTHING, "the same care-of address");
    assert_eq!(script.phone_is(Presence::Rebound), ["to phone 200:300", "to phone 300:400", "to phone 400:500"]);
    assert_eq!(script.phone_is(Presence::Rebound), NOTHING, "the state is reset");
}

#[test]
fn acknowledged_packets_are_not_sent_again() {
    let mut script = warned(CopyAndForwardConfig::default());
    assert_eq!(script.pass(ack(400, 0)), ["to fixed ack 400 win 0"]);
    assert_eq!(script.phone_is(Presence::Rebound), ["to phone 400:500"]);
}

/// The fade is over: the mobile host stayed.
#[test]
fn an_ack_with_an_open_window_ends_the_warning() {
    let mut script = warned(CopyAndForwardConfig::default());
    assert_eq!(script.pass(ack(300, 500)), ["to fixed ack 300 win 500"]);
    assert_eq!(script.phone_is(Presence::Rebound), NOTHING);
    // Data after that is not copied; data after the next warning is.
    assert_eq!(script.pass(data(500, 100)), ["to phone 500:600"]);
    script.pass(ack(600, 0));
    script.pass(data(600, 100));
    assert_eq!(script.phone_is(Presence::Rebound), ["to phone 600:700"]);
}

/// An ACK removes copies of its own connection only (section 4.6.4).
#[test]
fn connections_are_told_apart() {
    let other = |packet: Packet| {
        change(packet, |segment| {
            let port = if segment.src_port == 80 { &mut segment.dst_port } else { &mut segment.src_port };
            *port = 1001;
        })
    };
    let mut script = warned(CopyAndForwardConfig::default());
    script.pass(other(ack(9_000, 0)));
    script.pass(other(data(9_000, 50)));
    script.pass(other(ack(9_050, 0)));
    assert_eq!(script.phone_is(Presence::Rebound), ["to phone 200:300", "to phone 300:400", "to phone 400:500"]);
}

#[test]
fn probes_of_the_zero_window_and_what_is_no_tcp_pass_without_a_copy() {
    let mut script = script(CopyAndForwardConfig::default());
    script.pass(ack(200, 0));
    assert_eq!(script.pass(data(199, 0)).len(), 1);
    let udp = Udp { src_port: 1, dst_port: 2, payload: vec![0; 10].into() };
    assert_eq!(script.pass(Packet::new(FIXED, PHONE, udp)), ["to phone no TCP"]);
    assert_eq!(script.phone_is(Presence::Rebound), NOTHING);
}

#[test]
fn room_and_time_are_bounded_and_no_data_are_held_up() {
    let config = CopyAndForwardConfig {
        buffer_bytes: 2 * 140,
        longest: Duration::from_secs(2),
        ..CopyAndForwardConfig::default()
    };
    assert_eq!(warned(config).phone_is(Presence::Rebound), ["to phone 200:300", "to phone 300:400"]);
    let mut script = warned(config);
    assert_eq!(script.at(1_999), NOTHING);
    script.at(2_000);
    assert_eq!(script.phone_is(Presence::Rebound), NOTHING);
    assert_eq!(script.dropped(), 0, "copies only");
}

#[test]
fn a_reset_forgets() {
    let mut script = warned(CopyAndForwardConfig::default());
    script.pass(change(data(500, 0), |segment| segment.flags = Flags::RST));
    assert_eq!(script.phone_is(Presence::Rebound), NOTHING);
}

#[test]
fn by_the_flag_copies_carry_it() {
    let mut script = script(CopyAndForwardConfig { sign: WarningSign::IpFlag, ..CopyAndForwardConfig::default() });
    assert_eq!(script.pass(flagged(ack(200, 0))), ["to fixed ack 200 win 0"]);
    assert_eq!(script.pass(data(200, 100)), ["to phone 200:300"]);
    assert_eq!(script.phone_is(Presence::Rebound), ["to phone flagged 200:300"]);
}

#[test]
fn it_stands_alone() {
    let copy_and_forward = Some(CopyAndForwardConfig::default());
    let blocking_buffer = Some(BlockingBufferConfig::default());
    let twice = |one| Err(ConfigError::Twice { one, other: "copy_and_forward" });
    let both = Mechanisms { copy_and_forward, blocking_buffer, ..Mechanisms::default() };
    assert_eq!(both.check(), twice("blocking_buffer"));
    let both = Mechanisms { copy_and_forward, snoop: Some(SnoopConfig::default()), ..Mechanisms::default() };
    assert_eq!(both.check(), twice("snoop"));
    let nothing = CopyAndForwardConfig { buffer_bytes: 0, ..CopyAndForwardConfig::default() };
    let nothing = Mechanisms { copy_and_forward: Some(nothing), ..Mechanisms::default() };
    assert!(matches!(nothing.check(), Err(ConfigError::Nothing { .. })));
}
