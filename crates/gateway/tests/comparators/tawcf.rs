//! Packet scripts for the advertised window control functions.

use holdover_filter::{Presence, tcp_mut};
use holdover_gateway::tawcf::{Tawcf, TawcfConfig};
use holdover_wire::{Flags, Packet, Udp};

use crate::support::{FIXED, MOBILE, Script, ack, assert_out, bytes_at, data, mobile, ms, window};

const FADING: Presence = Presence::Fading { lead: None };

/// Buffers 1 MB, freezes after 100 ms, holds for 50 ms within 1 s of a handoff.
fn config() -> TawcfConfig {
    TawcfConfig {
        buffer_bytes: 1_000_000,
        low_for: Some(ms(100)),
        fresh: ms(1000),
        hold: ms(50),
        ..TawcfConfig::default()
    }
}

/// An established connection: the mobile host has acknowledged segments 0 and 1.
fn under_way(config: TawcfConfig) -> Script<Tawcf> {
    let mut script = Script::new(Tawcf::new(config));
    assert_out!(script.at(1).fixed_sends(data(0)), "data 0");
    assert_out!(script.fixed_sends(data(1)), "data 1");
    assert_out!(script.mobile_sends(ack(2)), "ack 2");
    script
}

/// The mobile host arrives at a base station without state for it.
fn handed_over(config: TawcfConfig) -> Script<Tawcf> {
    let mut script = Script::new(Tawcf::new(config));
    assert_out!(script.presence(Presence::Present));
    script
}

#[test]
fn a_signal_that_recovers_in_time_freezes_no_sender() {
    let mut script = under_way(config());
    assert_out!(script.presence(FADING));
    assert_out!(script.fixed_sends(data(2)));
    assert_out!(script.at(50).fixed_sends(data(3)));
    assert_eq!(script.filter.waiting_bytes(mobile()), 2 * 140);
    assert_eq!(script.wait_until(100), []);
    assert_out!(script.presence(Presence::Present), "data 2", "data 3");
    assert_eq!(script.filter.waiting_bytes(mobile()), 0);
    assert_out!(script.fixed_sends(data(5)), "data 5");
    assert_eq!(script.wait_until(60_000), []);
}

#[test]
fn a_signal_that_stays_low_freezes_the_fixed_host() {
    let mut script = under_way(config());
    assert_out!(script.presence(FADING));
    assert_out!(script.fixed_sends(data(2)));
    assert_out!(script.at(60).presence(Presence::Away));
    assert_eq!(script.wait_until(500), [(101, "ack 2 win 0".to_owned())]);
    // ACKs in flight do not unfreeze it, probes are answered, and data is kept.
    assert_out!(script.mobile_sends(ack(2)));
    assert_out!(script.mobile_sends(window(ack(3), 900)));
    assert_out!(script.fixed_sends(bytes_at(199, 0)), "ack 3 win 0");
    assert_out!(script.fixed_sends(bytes_at(300, 1)), "ack 3 win 0");
    assert_out!(script.fixed_sends(data(3)));
    // The mobile host's ACKs unfreeze it.
    assert_out!(script.presence(Presence::Present), "data 2", "data 3");
    assert_out!(script.mobile_sends(ack(4)), "ack 4");
}

#[test]
fn the_base_station_unfreezes_the_fixed_host_itself() {
    for (presence, signal) in [(Presence::Present, "recovers"), (Presence::Moved, "is another one")] {
        let mut script = under_way(config());
        assert_out!(script.mobile_sends(window(ack(2), 900)), "ack 2 win 900");
        assert_out!(script.presence(FADING));
        assert_eq!(script.wait_until(500), [(101, "ack 2 win 0".to_owned())]);
        assert_eq!(script.presence(presence), ["ack 2 win 900"], "the signal {signal}");
        assert_out!(script.presence(Presence::Present));
    }
}

#[test]
fn without_a_limit_it_buffers_only() {
    let mut script = under_way(TawcfConfig { low_for: None, ..config() });
    assert_out!(script.presence(Presence::Away));
    assert_out!(script.fixed_sends(data(2)));
    assert_eq!(script.wait_until(60_000), []);
    assert_out!(script.presence(Presence::Present), "data 2");
}

#[test]
fn a_connection_without_data_or_ack_is_not_frozen() {
    let mut script = Script::new(Tawcf::new(config()));
    assert_out!(script.fixed_sends(bytes_at(100, 0)), "data 100+0");
    assert_out!(script.mobile_sends(ack(1)), "ack 1");
    assert_out!(script.presence(FADING));
    assert_eq!(script.wait_until(1000), []);
    let mut script = Script::new(Tawcf::new(config()));
    assert_out!(script.fixed_sends(data(1)), "data 1");
    assert_out!(script.presence(FADING));
    assert_eq!(script.wait_until(1000), []);
}

#[test]
fn packets_of_other_protocols_pass() {
    let mut script = under_way(config());
    assert_out!(script.presence(Presence::Away));
    let registration = Packet::new(FIXED.into(), MOBILE.into(), Udp { dst_port: 434, ..Udp::default() });
    assert_eq!(script.fixed_sends(registration).len(), 1);
}

#[test]
fn a_host_that_has_moved_gets_its_packets_forwarded() {
    let mut script = under_way(config());
    assert_out!(script.presence(Presence::Away));
    assert_out!(script.fixed_sends(data(2)));
    assert_out!(script.fixed_sends(data(3)));
    assert_eq!(script.wait_until(200), [(101, "ack 2 win 0".to_owned())]);
    assert_out!(script.presence(Presence::Moved), "data 2", "data 3");
    assert_eq!(script.filter.waiting_bytes(mobile()), 0);
    // A late segment follows.
    assert_out!(script.fixed_sends(data(4)), "data 4");
    assert_eq!(script.wait_until(60_000), []);
}

#[test]
fn the_fifo_is_bounded_in_bytes_and_time() {
    let mut script = under_way(TawcfConfig { buffer_bytes: 300, longest: ms(5000), low_for: None, ..config() });
    assert_out!(script.presence(Presence::Away));
    for n in 2..10 {
        assert_out!(script.at(u64::from(n)).fixed_sends(data(n)));
        assert!(script.filter.waiting_bytes(mobile()) <= 300);
    }
    assert_eq!(script.filter.waiting_bytes(mobile()), 2 * 140);
    script.at(5002);
    assert_eq!(script.filter.waiting_bytes(mobile()), 140);
    assert_out!(script.presence(Presence::Present), "data 3");
}

/// The next number is unknown: the first segments are held, and released in order.
#[test]
fn the_sequencer_sorts_what_comes_first() {
    let mut script = handed_over(config());
    assert_out!(script.at(10).fixed_sends(data(5)));
    assert_out!(script.at(20).fixed_sends(data(3)));
    assert_out!(script.fixed_sends(data(4)));
    assert_eq!(script.filter.held_bytes(), 3 * 140);
    let made = script.wait_until(500);
    assert_eq!(made, [3, 4, 5].map(|n| (60, format!("data {n}"))));
    // From now on the next number is known, and segments wait while a hole is being filled.
    assert_out!(script.fixed_sends(data(7)));
    assert_out!(script.fixed_sends(data(8)));
    assert_out!(script.fixed_sends(data(6)), "data 6", "data 7", "data 8");
    assert_out!(script.fixed_sends(data(9)), "data 9");
    assert_out!(script.fixed_sends(data(4)), "data 4");
    assert_eq!(script.filter.held_bytes(), 0);
}

#[test]
fn an_ack_of_the_mobile_host_tells_what_is_next() {
    let mut script = handed_over(config());
    assert_out!(script.fixed_sends(data(4)));
    assert_out!(script.fixed_sends(data(3)));
    assert_out!(script.mobile_sends(ack(3)), "ack 3", "data 3", "data 4");
    assert_out!(script.fixed_sends(data(5)), "data 5");
    // A hole that is not filled delays segments for 50 ms.
    assert_out!(script.at(100).fixed_sends(data(7)));
    assert_out!(script.at(120).fixed_sends(data(8)));
    assert_eq!(script.wait_until(1000), [7, 8].map(|n| (150, format!("data {n}"))));
}

#[test]
fn the_sequencer_works_after_handoffs_only() {
    let mut script = handed_over(config());
    assert_out!(script.at(1000).fixed_sends(data(5)), "data 5");
    assert_out!(script.fixed_sends(data(3)), "data 3");
    // A signal that recovers is not a handoff.
    assert_out!(script.presence(FADING));
    assert_out!(script.presence(Presence::Present));
    assert_out!(script.fixed_sends(data(8)), "data 8");
    // The host leaves and returns.
    assert_out!(script.presence(Presence::Moved));
    assert_out!(script.presence(Presence::Present));
    assert_out!(script.fixed_sends(data(10)));
    assert_eq!(script.wait_until(2000), [(1050, "data 10".to_owned())]);
}

/// A fading ends the period after a handoff.
#[test]
fn released_packets_are_not_sequenced() {
    let mut script = handed_over(TawcfConfig { low_for: None, ..config() });
    assert_out!(script.presence(FADING));
    assert_out!(script.presence(Presence::Present));
    assert_out!(script.fixed_sends(data(5)), "data 5");
}

#[test]
fn segments_held_by_the_sequencer_are_forwarded_in_order_at_its_end() {
    let mut script = handed_over(config());
    assert_out!(script.mobile_sends(ack(3)), "ack 3");
    assert_out!(script.at(990).fixed_sends(data(4)));
    assert_out!(script.at(1010).fixed_sends(data(5)));
    assert_out!(script.fixed_sends(data(3)), "data 3", "data 4", "data 5");
    assert_out!(script.fixed_sends(data(7)), "data 7");
}

#[test]
fn the_sequencer_is_bounded() {
    let mut script = handed_over(TawcfConfig { buffer_bytes: 300, ..config() });
    assert_out!(script.fixed_sends(data(5)));
    assert_out!(script.fixed_sends(data(4)));
    assert_out!(script.fixed_sends(data(3)), "data 3", "data 4", "data 5");
    assert_eq!(script.filter.held_bytes(), 0);
    assert_eq!(script.wait_until(60_000), []);
}

/// A second fading within a handoff.
#[test]
fn held_segments_wait_with_the_others() {
    let mut script = handed_over(TawcfConfig { low_for: None, ..config() });
    assert_out!(script.fixed_sends(data(5)));
    assert_out!(script.fixed_sends(data(4)));
    assert_out!(script.presence(FADING));
    assert_out!(script.fixed_sends(data(6)));
    assert_eq!((script.filter.held_bytes(), script.filter.waiting_bytes(mobile())), (0, 3 * 140));
    assert_out!(script.presence(Presence::Present), "data 4", "data 5", "data 6");
}

#[test]
fn a_new_connection_is_not_sequenced_by_the_one_before() {
    let mut script = handed_over(config());
    assert_out!(script.mobile_sends(ack(50)), "ack 50");
    let flagged = |seq, flags| {
        let mut packet = bytes_at(seq, 0);
        if let Some(segment) = tcp_mut(&mut packet) {
            segment.flags = flags;
        }
        packet
    };
    // A SYN alone may be anyone's.
    assert_out!(script.fixed_sends(flagged(900, Flags::SYN)), "data 900+0");
    assert_out!(script.fixed_sends(data(10)), "data 10");
    assert_out!(script.fixed_sends(flagged(5000, Flags::RST)), "data 5000+0");
    assert_out!(script.fixed_sends(flagged(900, Flags::SYN)), "data 900+0");
    assert_out!(script.fixed_sends(data(10)));
    assert_out!(script.mobile_sends(ack(9)), "ack 9");
    assert_out!(script.fixed_sends(data(9)), "data 9", "data 10");
}
