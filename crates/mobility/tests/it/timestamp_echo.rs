//! The timestamp echo update, rule by rule.

use holdover_mobility::freeze::{FreezeConfig, WarningPeriod};
use holdover_mobility::reconnect_acks::ReconnectAcksConfig;
use holdover_mobility::timestamp_echo::{Echo, Since, TimestampEchoConfig};
use holdover_mobility::{LinkEvent, Mechanisms};
use holdover_wire::{Flags, Segment};

use crate::script::*;

const UP: LinkEvent = LinkEvent::Up { symmetric: false, moved: false };
const FADING: LinkEvent = LinkEvent::Fading { lead: None };

fn updating(since: Since, echo: Echo) -> Mechanisms {
    Mechanisms { timestamp_echo: Some(TimestampEchoConfig { since, echo }), ..Mechanisms::default() }
}

fn echoed(segment: &Segment) -> u32 {
    segment.options.timestamps.expect("timestamps").ecr
}

/// A connection whose peer's clock has `hz`, until 2000 ms: a segment every 10 ms, each acknowledged. Returns the timestamp of the last
/// segment, whose ACK was sent at 2000 ms.
fn flowing(mechanisms: Mechanisms, hz: u32) -> (Script, u32) {
    let mut script = Script::new(mechanisms);
    let mut stamp = 0;
    for number in 0..=200_u32 {
        stamp = (u32::MAX - 300).wrapping_add(number * 10 * hz / 1000);
        script.at(u64::from(number) * 10).peer(stamped(from_peer(number * 100 + 1, 100), stamp, 1));
        script.host(stamped(from_host(number * 100 + 101, 400), 1, stamp));
    }
    (script, stamp)
}

/// Asserts that the echo is `ticks` after `stamp`: not more, and less by no more than a tick and the tolerance of
/// crystals.
fn assert_advanced(segment: &Segment, stamp: u32, ticks: u32) {
    let added = echoed(segment).wrapping_sub(stamp);
    assert!(added <= ticks && added + 1 + ticks / 1_000 >= ticks, "{added} ticks, not {ticks}");
}

/// An ACK of all data, as the host's TCP sends it.
fn ack(stamp: u32) -> holdover_wire::Packet {
    stamped(from_host(20_101, 400), 1, stamp)
}

fn zero(stamp: u32) -> holdover_wire::Packet {
    change(ack(stamp), |segment| segment.window = 0)
}

/// For clocks of every usual rate, and for timestamps that wrap around.
#[test]
fn the_echo_advances_by_the_time_since_the_last_zero_window_in_ticks_of_the_peer() {
    for (hz, ticks) in [(10, 30), (100, 300), (250, 750), (1_000, 3_000)] {
        let (mut script, stamp) = flowing(updating(Since::ZeroWindow, Echo::Own), hz);
        script.link(FADING).at(2_010);
        script.host(zero(stamp));
        script.at(2_020).link(LinkEvent::Down).at(5_010).link(UP);
        assert_advanced(&script.host(ack(stamp)), stamp, ticks);
        assert_eq!(script.actions(), [(5_010, "refreshed")]);
    }
}

/// Whatever the rate, and wherever the outage lies.
#[test]
fn the_echo_is_never_ahead_of_the_peers_clock() {
    for hz in [3, 7, 10, 64, 100, 128, 333, 1_000, 1_024, 5_000] {
        for up in [2_300, 4_000, 20_000] {
            let (mut script, stamp) = flowing(updating(Since::LastAck, Echo::Own), hz);
            script.link(LinkEvent::Down).at(up).link(UP);
            let added = echoed(&script.host(ack(stamp))).wrapping_sub(stamp);
            let passed = (up as u32 - 2_000) * hz / 1_000;
            assert!(added <= passed, "{hz} Hz at {up} ms: {added} ticks, {passed} have passed");
            assert!(
                added >= passed * 3 / 4 || ![10, 100, 1_000, 1_024].contains(&hz),
                "{hz} Hz at {up} ms: {added} ticks, {passed} have passed"
            );
        }
    }
}

#[test]
fn without_a_zero_window_nothing_is_changed() {
    let (mut script, stamp) = flowing(updating(Since::ZeroWindow, Echo::Own), 1_000);
    script.link(FADING).link(LinkEvent::Down).at(5_000).link(UP);
    assert_eq!(echoed(&script.host(ack(stamp))), stamp);
    assert!(script.actions().is_empty());
}

/// A window of zero from a full buffer, long before the warning, does not mark the start of the outage.
#[test]
fn only_a_zero_window_after_the_warning_counts() {
    let (mut script, stamp) = flowing(updating(Since::ZeroWindow, Echo::Own), 1_000);
    script.host(zero(stamp));
    script.at(3_000).link(FADING).link(LinkEvent::Down).at(5_000).link(UP);
    assert_eq!(echoed(&script.host(ack(stamp))), stamp);
}

#[test]
fn it_can_count_from_the_last_ack() {
    let (mut script, stamp) = flowing(updating(Since::LastAck, Echo::Own), 1_000);
    script.at(2_040).link(LinkEvent::Down).at(5_000).link(UP);
    assert_advanced(&script.host(ack(stamp)), stamp, 3_000);
}

/// Data that arrives after the last zero window has a younger timestamp.
#[test]
fn time_counts_from_the_arrival_of_the_stamp_at_the_earliest() {
    let (mut script, stamp) = flowing(updating(Since::ZeroWindow, Echo::Own), 1_000);
    script.link(FADING);
    script.host(zero(stamp));
    let newer = stamp.wrapping_add(500);
    script.at(2_500).peer(stamped(from_peer(20_101, 100), newer, 1)).link(LinkEvent::Down).at(5_000).link(UP);
    assert_advanced(&script.host(ack(newer)), newer, 2_500);
}

/// Segments that waited in the network have timestamps from before the reconnection; those sent after it have not.
#[test]
fn only_stamps_from_before_the_reconnection_are_refreshed() {
    let (mut script, stamp) = flowing(updating(Since::LastAck, Echo::Own), 1_000);
    script.link(LinkEvent::Down).at(5_000).link(UP);
    let refreshed = echoed(&script.host(ack(stamp)));
    assert_advanced(&script.host(ack(stamp)), stamp, 3_000);
    script.at(5_010).peer(stamped(from_peer(20_101, 100), stamp.wrapping_add(100), 1));
    assert_eq!(echoed(&script.host(ack(stamp.wrapping_add(100)))), refreshed);
    let fresh = stamp.wrapping_add(3_025);
    script.at(5_050).peer(stamped(from_peer(20_201, 100), fresh, 1));
    assert_eq!(echoed(&script.host(ack(fresh))), fresh);
}

#[test]
fn without_timestamps_nothing_is_changed() {
    let mut script = Script::new(updating(Since::LastAck, Echo::Own));
    script.peer(from_peer(1, 100));
    script.host(from_host(101, 400));
    script.link(LinkEvent::Down).at(5_000).link(UP);
    assert_eq!(script.host(from_host(101, 400)).options.timestamps, None);
}

/// The thesis's rule: echo the newest timestamp of a segment at or before the next expected one.
#[test]
fn the_newest_stamp_in_order_can_be_echoed() {
    let (mut script, stamp) = flowing(updating(Since::ZeroWindow, Echo::Newest), 1_000);
    // The ACK was lost, and the segment arrives again with a new timestamp: a TCP may echo the old one.
    script.at(3_000).peer(stamped(from_peer(20_001, 100), stamp.wrapping_add(1_000), 1));
    assert_eq!(echoed(&script.host(ack(stamp))), stamp.wrapping_add(1_000));
    // A segment beyond a gap: the timestamp of the segment before it is echoed.
    script.at(3_100).peer(stamped(from_peer(21_001, 100), stamp.wrapping_add(1_100), 1));
    assert_eq!(echoed(&script.host(ack(stamp.wrapping_add(1_000)))), stamp.wrapping_add(1_000));
}

/// The ACKs that announce the reconnection are refreshed, too, and so are those that freeze and thaw.
#[test]
fn reconnection_acks_carry_the_refreshed_stamp() {
    let mechanisms = Mechanisms {
        reconnect_acks: Some(ReconnectAcksConfig::default()),
        freeze: Some(FreezeConfig { warning: WarningPeriod::WholeLead, ..FreezeConfig::default() }),
        ..updating(Since::ZeroWindow, Echo::Own)
    };
    let (mut script, stamp) = flowing(mechanisms, 1_000);
    script.link(FADING).at(2_050).link(LinkEvent::Down);
    script.sent();
    script.at(5_000).link(UP);
    let sent = script.sent();
    assert_eq!(sent.len(), 3);
    sent.iter().for_each(|segment| assert_advanced(segment, stamp, 3_000));
    assert_eq!(sent.iter().map(|segment| segment.window).collect::<Vec<_>>(), [400; 3]);
}

/// The first segment was 300 ms late, as when a radio wakes up; data arrived for 0.6 s, and then none for a minute.
#[test]
fn a_late_first_segment_does_not_make_the_clock_fast() {
    for late in [0, 100, 300, 500] {
        let mut script = Script::new(updating(Since::LastAck, Echo::Own));
        let mut next = 1;
        for at in (0..=600_u32).step_by(10) {
            if at > 0 && at < late {
                continue;
            }
            script.at(u64::from(at.max(late))).peer(stamped(from_peer(next, 100), 1_000_000 + at, 1));
            next += 100;
            script.host(stamped(from_host(next, 400), 1, 1_000_000 + at));
        }
        script.link(LinkEvent::Down).at(60_600).link(UP);
        let added = echoed(&script.host(stamped(from_host(next, 400), 1, 1_000_600))) - 1_000_000;
        assert!(added <= 60_600, "first {late} ms late: {added}");
        assert!(added >= 55_000 || late == 500, "first {late} ms late: {added}");
    }
}

/// The peer resets the connection, or vanishes, and opens it again with another clock.
#[test]
fn a_new_connection_with_the_same_addresses_is_not_refreshed() {
    for reset in [true, false] {
        let (mut script, stamp) = flowing(updating(Since::LastAck, Echo::Own), 1_000);
        script.link(LinkEvent::Down).at(5_000).link(UP);
        if reset {
            script.peer(change(from_peer(20_101, 0), |segment| segment.flags = Flags::RST));
        }
        script.at(60_000);
        let syn = change(from_peer(77, 0), |segment| segment.flags = Flags::SYN);
        script.peer(stamped(syn, stamp.wrapping_sub(1_000_000), 0));
        let syn_ack = change(from_host(78, 400), |segment| segment.flags = Flags::SYN | Flags::ACK);
        assert_eq!(echoed(&script.host(stamped(syn_ack, 1, 9))), 9);
        assert_eq!(echoed(&script.host(stamped(from_host(78, 400), 1, 9))), 9, "reset: {reset}");
    }
}

#[test]
fn a_handshake_is_left_alone() {
    let (mut script, stamp) = flowing(updating(Since::LastAck, Echo::Newest), 1_000);
    script.link(LinkEvent::Down).at(5_000).link(UP);
    assert_eq!(echoed(&script.host(flags(ack(stamp), Flags::SYN))), stamp);
}

#[test]
fn nothing_is_refreshed_longer_than_a_segment_lives() {
    let (mut script, stamp) = flowing(updating(Since::LastAck, Echo::Own), 1_000);
    script.link(LinkEvent::Down).at(5_000).link(UP).at(124_000);
    assert_ne!(echoed(&script.host(ack(stamp))), stamp);
    script.at(125_001);
    assert_eq!(echoed(&script.host(ack(stamp))), stamp);
}

/// Segments overtaken in the network, and early retransmissions, have earlier timestamps.
#[test]
fn an_older_stamp_in_order_does_not_lower_the_echo() {
    let (mut script, stamp) = flowing(updating(Since::ZeroWindow, Echo::Newest), 1_000);
    let newer = stamp.wrapping_add(1_000);
    script.at(3_000).peer(stamped(from_peer(20_001, 100), newer, 1));
    for seq in [20_001, 20_101] {
        script.at(3_010).peer(stamped(from_peer(seq, 100), stamp.wrapping_add(500), 1));
        assert_eq!(echoed(&script.host(ack(stamp))), newer, "{seq}");
    }
}
