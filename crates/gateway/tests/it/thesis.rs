//! Mode `thesis` of the gateway's daemon: the rules of `blocking_buffer`, with the daemon's sources of presence.

use holdover_filter::Presence;
use holdover_gateway::daemon::{DaemonConfig, Mode, ThesisConfig};
use holdover_gateway::{Mechanisms, WarningSign};
use holdover_sim::FlowStatus;
use holdover_tcp::Profile;
use holdover_wire::{Packet, Udp};

use crate::script::*;
use crate::support::*;

fn thesis(thesis: ThesisConfig) -> Mechanisms {
    let daemon = DaemonConfig { mode: Mode::Thesis, thesis, ..DaemonConfig::default() };
    Mechanisms { daemon: Some(daemon), ..Mechanisms::default() }
}

fn by_flag() -> Mechanisms {
    thesis(ThesisConfig { sign: WarningSign::IpFlag, ..ThesisConfig::default() })
}

fn nothing() -> [&'static str; 0] {
    []
}

fn datagram(to_phone: bool) -> Packet {
    let (from, to) = if to_phone { (FIXED, PHONE) } else { (PHONE, FIXED) };
    Packet::new(from, to, Udp { src_port: 1, dst_port: 2, payload: vec![0; 10].into() })
}

/// The mobile host has announced its departure, and five segments wait for it.
fn blocked(mechanisms: &Mechanisms) -> Script {
    let mut script = Script::new(mechanisms);
    assert_eq!(script.pass(data(100, 100)), ["to phone 100:200"]);
    assert_eq!(script.pass(flagged_if(mechanisms, ack(200, 0))), ["to fixed ack 200 win 0"]);
    for at in 2..7 {
        assert_eq!(script.pass(data(at * 100, 100)), nothing());
    }
    script
}

fn flagged_if(mechanisms: &Mechanisms, packet: Packet) -> Packet {
    let is_flag = mechanisms.daemon.as_ref().is_some_and(|daemon| daemon.thesis.sign == WarningSign::IpFlag);
    if is_flag { flagged(packet) } else { packet }
}

/// As `blocking_buffer::a_registration_releases_a_burst_and_acks_the_rest_in_order`.
#[test]
fn a_report_of_presence_releases_a_burst_and_acks_the_rest_in_order() {
    let mut script = blocked(&thesis(ThesisConfig::default()));
    assert_eq!(script.phone_is(Presence::Present), ["to phone 200:300", "to phone 300:400"]);
    assert_eq!(script.phone_is(Presence::Present), nothing(), "only one that unblocks");
    // One packet is appended, and the head is forwarded.
    assert_eq!(script.pass(data(700, 100)), ["to phone 400:500"]);
    let answer = ["to fixed ack 400 win 500", "to phone 500:600", "to phone 600:700"];
    assert_eq!(script.pass(ack(400, 500)), answer);
    assert_eq!(script.pass(ack(500, 500)), ["to fixed ack 500 win 500", "to phone 700:800"]);
    assert_eq!(script.pass(data(800, 100)), ["to phone 800:900"], "nothing is before it");
}

#[test]
fn an_ack_with_an_open_window_unblocks_and_the_burst_limit_applies() {
    for (burst_packets, released) in [(1, 1), (3, 3), (100, 5)] {
        let mut script = blocked(&thesis(ThesisConfig { burst_packets, ..ThesisConfig::default() }));
        assert_eq!(script.pass(ack(200, 500)).len(), 1 + released, "{burst_packets}");
    }
}

#[test]
fn zero_window_probes_wait_and_other_protocols_pass() {
    let mut script = blocked(&thesis(ThesisConfig::default()));
    assert_eq!(script.pass(data(199, 0)), nothing());
    assert_eq!(script.pass(datagram(true)), ["to phone no TCP"]);
    assert_eq!(script.pass(datagram(false)), ["to fixed no TCP"], "it says nothing of the window");
}

/// The thesis has no bound. Here a window that is shut for another reason than an absence does not block the host for ever.
#[test]
fn a_warning_without_an_absence_lapses() {
    let mut script = blocked(&thesis(ThesisConfig::default()));
    assert_eq!(script.at(9_999), nothing());
    assert_eq!(script.at(10_000), ["to phone 200:300", "to phone 300:400"]);
    assert_eq!(script.pass(ack(200, 0)), ["to fixed ack 200 win 0"], "the window is still shut");
    assert_eq!(script.pass(data(700, 100)), ["to phone 400:500"]);
}

/// A warning is followed by the absence itself: after that any packet shows that the host is back.
#[test]
fn after_a_reported_absence_any_packet_unblocks() {
    let mut script = blocked(&thesis(ThesisConfig::default()));
    assert_eq!(script.phone_is(Presence::Away), nothing());
    assert_eq!(script.at(20_000), nothing(), "the warning has lapsed, and the host is away");
    assert_eq!(script.pass(datagram(false)), ["to fixed no TCP", "to phone 200:300", "to phone 300:400"]);
}

#[test]
fn the_flag_blocks_and_goes_with_released_packets() {
    let mut script = blocked(&by_flag());
    assert_eq!(script.phone_is(Presence::Rebound), ["to phone flagged 200:300", "to phone flagged 300:400"]);
    assert_eq!(script.pass(data(700, 100)), ["to phone flagged 400:500"], "all that was kept has it");
    let answer = ["to fixed ack 500 win 500", "to phone flagged 500:600", "to phone flagged 600:700"];
    assert_eq!(script.pass(ack(500, 500)), answer);
    assert_eq!(script.pass(datagram(false)), ["to fixed no TCP", "to phone flagged 700:800"], "any packet without it");
    assert_eq!(script.pass(flagged(data(800, 100))), ["to phone 800:900"], "the wired side's flag is not passed on");
    assert_eq!(script.pass(ack(900, 0)), ["to fixed ack 900 win 0"], "a zero window is not a warning here");
    assert_eq!(script.pass(data(900, 100)), ["to phone 900:1000"]);
}

#[test]
fn a_burst_of_nothing_is_refused() {
    assert!(thesis(ThesisConfig { burst_packets: 0, ..ThesisConfig::default() }).check().is_err());
}

/// With unmodified hosts and reports of its link: a buffer that is released in bursts.
#[test]
fn without_signs_it_is_a_buffer_released_in_bursts() {
    for profile in [Profile::Linux6Reno, Profile::Linux6Cubic] {
        let outages = [(4_000, 14_000)];
        let plain = run(world(profile, 3_000_000, &outages));
        let report = run(with(world(profile, 3_000_000, &outages), thesis(ThesisConfig::default())));
        assert_eq!(report.status, FlowStatus::Completed);
        assert!(report.duration() < plain.duration(), "{profile}: {:?}, {:?}", report.duration(), plain.duration());
    }
}
