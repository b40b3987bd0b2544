//! A smaller window in a new cell, rule by rule.

use holdover_mobility::new_cell_window::NewCellWindowConfig;
use holdover_mobility::reconnect_acks::ReconnectAcksConfig;
use holdover_mobility::{LinkEvent, Mechanisms};
use holdover_wire::{Flags, Packet};

use crate::script::*;

const MOVED: LinkEvent = LinkEvent::Up { symmetric: false, moved: true };

fn narrowing(growth_percent: u32) -> Mechanisms {
    let config = NewCellWindowConfig { initial_bytes: 2_000, growth_percent };
    Mechanisms { new_cell_window: Some(config), ..Mechanisms::default() }
}

fn syn(packet: Packet, shift: u8) -> Packet {
    change(packet, |segment| {
        segment.flags |= Flags::SYN;
        segment.options.window_scale = Some(shift);
    })
}

fn moved(mechanisms: Mechanisms) -> Script {
    let mut script = Script::new(mechanisms);
    script.peer(from_peer(1, 1000)).host(from_host(1001, 8_000));
    script.at(100).link(LinkEvent::Down).at(500).link(MOVED);
    script
}

#[test]
fn the_window_is_small_at_first() {
    let mut script = moved(narrowing(100));
    assert_eq!(script.host(from_host(1001, 8_000)).window, 2_000);
    assert_eq!(script.actions(), [(500, "narrowed")]);
}

#[test]
fn it_is_enlarged_as_new_segments_arrive() {
    for (growth, windows) in [(100, [3_000, 5_000]), (200, [4_000, 8_000]), (0, [2_000, 2_000])] {
        let mut script = moved(narrowing(growth));
        assert_eq!(script.host(from_host(2_001, 8_000)).window, windows[0]);
        assert_eq!(script.host(from_host(4_001, 8_000)).window, windows[1]);
    }
}

/// It ends when the host itself offers a smaller window.
#[test]
fn it_ends_when_it_is_as_large_as_the_real_one() {
    let mut script = moved(narrowing(100));
    script.host(from_host(8_001, 8_000));
    assert_eq!(script.actions().last(), Some(&(500, "opened")));
    assert_eq!(script.host(from_host(8_001, 60_000)).window, 60_000);
}

/// A window of zero, from a full buffer or from freezing, does not end it.
#[test]
fn a_window_of_zero_passes_and_does_not_end_it() {
    let mut script = moved(narrowing(100));
    assert_eq!(script.host(from_host(1_001, 0)).window, 0);
    assert_eq!(script.host(from_host(1_001, 8_000)).window, 2_000);
}

#[test]
fn in_the_same_cell_the_window_is_what_it_was() {
    let mut script = Script::new(narrowing(100));
    script.peer(from_peer(1, 1000)).host(from_host(1001, 8_000));
    script.link(LinkEvent::Down).link(LinkEvent::Up { symmetric: false, moved: false });
    assert_eq!(script.host(from_host(1001, 8_000)).window, 8_000);
}

/// Scaled only if both offer it (RFC 7323 section 2.2).
#[test]
fn the_window_is_in_the_units_of_its_scale() {
    for (peer_scales, field) in [(true, 2_000 >> 4), (false, 2_000)] {
        let mut script = Script::new(narrowing(100));
        script.host(syn(from_host(0, 8_000), 4));
        script.peer(if peer_scales { syn(from_peer(0, 0), 2) } else { flags(from_peer(0, 0), Flags::SYN) });
        script.host(from_host(1, 8_000));
        script.link(MOVED);
        assert_eq!(script.host(from_host(1, 8_000)).window, field);
    }
}

#[test]
fn reconnection_acks_carry_the_small_window() {
    let mut script = moved(Mechanisms { reconnect_acks: Some(ReconnectAcksConfig::default()), ..narrowing(100) });
    assert_eq!(script.sent().iter().map(|segment| segment.window).collect::<Vec<_>>(), [2_000; 3]);
}
