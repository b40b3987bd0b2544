//! The programs find the protocol and the ports of a packet as `wire` does, behind IPv4 options and IPv6 extension headers.

use std::net::IpAddr;

use aya::programs::{SchedClassifier, TestRun as _, TestRunOptions};
use bytes::Bytes;
use holdover_flow::{ConnectionRule, Course};
use holdover_testbed::harness::skip;
use holdover_wire::{Flags, Packet, Payload, Segment, Udp, internet_checksum};

use super::*;

const ENDS: [(&str, &str); 2] = [("192.0.2.1", "10.0.2.7"), ("2001:db8::1", "fd00:2::7")];
/// Ports with such rules, and one without.
const RULES: &str = "[[flow]]\nfixed_port = 5001\nmode = \"observe\"\n[[flow]]\nfixed_port = 5002\nmode = \"buffer\"\n";
const PORTS: [u16; 3] = [5000, 5001, 5002];
/// Extension headers: options, a routing header without segments left, as many as are followed and one more; a fragment
/// that is the whole packet, and a part.
const EXTENSIONS: [&[u8]; 8] = [&[], &[0, 60], &[43], &[60; 6], &[60; 7], &[WHOLE], &[PART], &[60, PART]];
/// Stand for the fragment header (44).
const WHOLE: u8 = 200;
const PART: u8 = 201;

/// The IPv6 packet with extension headers of these kinds, each of 8 bytes.
fn with_extensions(packet: &[u8], kinds: &[u8]) -> Vec<u8> {
    let number = |kind: u8| if matches!(kind, WHOLE | PART) { 44 } else { kind };
    let (ip, upper) = packet.split_at(40);
    let mut with = ip.to_vec();
    let mut next: Vec<u8> = kinds.iter().copied().map(number).collect();
    next.push(ip[6]);
    with[6] = next[0];
    for (kind, next) in kinds.iter().zip(&next[1..]) {
        // PadN over the rest of options; type and segments left; offset 8 with more fragments, or 0 without.
        let rest = match *kind {
            43 => [0, 7, 0, 0, 0, 0, 0],
            WHOLE => [0, 0, 0, 0, 0, 0, 9],
            PART => [0, 0, 9, 0, 0, 0, 9],
            _ => [0, 1, 4, 0, 0, 0, 0],
        };
        with.push(*next);
        with.extend(rest);
    }
    with.extend(upper);
    let len = (with.len() - 40) as u16;
    with[4..6].copy_from_slice(&len.to_be_bytes());
    with
}

/// The IPv4 packet with options, as a first and as a later fragment.
fn variants_of_ipv4(packet: &[u8]) -> Vec<Vec<u8>> {
    let with = |options: &[u8], fragment: u16| {
        let mut packet = [&packet[..20], options, &packet[20..]].concat();
        let header_len = 20 + options.len();
        let total_len = packet.len() as u16;
        packet[0] = 0x40 | (header_len / 4) as u8;
        packet[2..4].copy_from_slice(&total_len.to_be_bytes());
        packet[6..8].copy_from_slice(&fragment.to_be_bytes());
        packet[10..12].fill(0);
        let sum = internet_checksum(&packet[..header_len]);
        packet[10..12].copy_from_slice(&sum.to_be_bytes());
        packet
    };
    vec![with(&[], 0), with(&[1; 8], 0), with(&[], 0x2000), with(&[1, 1, 1, 1], 0x0002)]
}

/// A packet in all its variants, and as `wire` parses each: `None` behind more extension headers than the programs follow.
fn variants(packet: &Packet) -> Vec<(Vec<u8>, Option<Packet>)> {
    let bytes = packet.emit().unwrap();
    let parsed = |bytes: &[u8]| Packet::parse(Bytes::copy_from_slice(bytes)).unwrap();
    match packet.dst {
        IpAddr::V4(_) => {
            variants_of_ipv4(&bytes).into_iter().map(|bytes| (bytes.clone(), Some(parsed(&bytes)))).collect()
        }
        IpAddr::V6(_) => EXTENSIONS
            .iter()
            .map(|kinds| (with_extensions(&bytes, kinds), kinds))
            .map(|(bytes, kinds)| (bytes.clone(), (kinds.len() <= 6).then(|| parsed(&bytes))))
            .collect(),
    }
}

fn run(kernel: &KernelPath, program: &'static str, packet: &[u8]) {
    let kind: [u8; 2] = if packet[0] >> 4 == 4 { [8, 0] } else { [0x86, 0xdd] };
    let frame = [&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2][..], &kind, packet].concat();
    let mut out = vec![0; frame.len() + 64];
    let options = TestRunOptions { data_in: Some(&frame), data_out: Some(&mut out), ..TestRunOptions::new() };
    kernel.object.program::<SchedClassifier>(program).unwrap().test_run(options).unwrap();
}

fn rule_of(packet: &Packet) -> Option<ConnectionRule> {
    let port = match &packet.payload {
        Payload::Tcp(segment) => segment.src_port,
        Payload::Udp(datagram) => datagram.src_port,
        _ => return None,
    };
    [None, Some(ConnectionRule::Passes), Some(ConnectionRule::Diverts)][usize::from(port - PORTS[0])]
}

fn load(place: &Place<'_>) -> Option<KernelPath> {
    let mut kernel = KernelPath::load(place, &[], None).map_err(skip).ok()?;
    kernel.renew(Instant::FAR_FUTURE).unwrap();
    Some(kernel)
}

// Claim: Courses and rules for single connections apply to packets with IPv4 options and IPv6 extension headers as to those
// without, and to fragments by their protocol, as `wire` reads them.
#[test]
fn courses_and_rules_apply_behind_options_and_extension_headers() {
    let modes = FlowModes::new(&toml::from_str(RULES).unwrap());
    let flows = FlowPlace { links: vec![LinkState::default(); 3], modes };
    let place = Place { divert_to: 1, flows: Some(&flows), most_mobiles: 4, ..Place::nowhere() };
    let Some(mut kernel) = load(&place) else { return };
    let mut seen = 0;
    for (fixed, mobile) in ENDS {
        let (fixed, mobile) = (fixed.parse().unwrap(), mobile.parse().unwrap());
        let segment = |src_port| Segment { src_port, dst_port: 4000, flags: Flags::ACK, ..Segment::default() };
        let datagram = |src_port| Udp { src_port, dst_port: 4000, payload: Bytes::from_static(&[7; 24]) };
        let other = Payload::Other { protocol: 132, payload: Bytes::from_static(&[7; 24]) };
        let payloads = PORTS.into_iter().flat_map(|port| [Payload::Tcp(segment(port)), Payload::Udp(datagram(port))]);
        for payload in payloads.chain([other]) {
            for (bytes, parsed) in variants(&Packet::new(fixed, mobile, payload)) {
                for course in Course::ALL {
                    kernel.forget(mobile);
                    kernel.know(mobile).unwrap();
                    kernel.divert(mobile, course).unwrap();
                    run(&kernel, "egress", &bytes);
                    let rule = parsed.as_ref().and_then(rule_of);
                    let is_tcp = parsed.as_ref().is_some_and(Packet::carries_tcp);
                    let is_diverted = kernel.seen(mobile).unwrap().diverted == 1;
                    assert_eq!(is_diverted, course.diverts(rule, is_tcp), "{course:?}, {rule:?}: {bytes:02x?}");
                    seen += 1;
                }
            }
        }
    }
    assert_eq!(seen, 7 * (4 + 8) * 4);
}

// Claim: With `sign = "window"` an ACK with a window of zero is a warning behind IPv4 options and IPv6 extension headers, too.
#[test]
fn signs_are_seen_behind_options_and_extension_headers() {
    let networks = ENDS.map(|(_, mobile)| (mobile.parse().unwrap(), true)).to_vec();
    let thesis = ThesisPlace { sign: WarningSign::Window, networks };
    let place = Place { thesis: Some(&thesis), most_mobiles: 4, ..Place::nowhere() };
    let Some(mut kernel) = load(&place) else { return };
    for (fixed, mobile) in ENDS {
        let (fixed, mobile) = (fixed.parse().unwrap(), mobile.parse().unwrap());
        let ack = Segment { src_port: 4000, dst_port: 80, flags: Flags::ACK, window: 0, ..Segment::default() };
        for (bytes, parsed) in variants(&Packet::new(mobile, fixed, ack)) {
            kernel.forget(mobile);
            kernel.know(mobile).unwrap();
            run(&kernel, "ingress", &bytes);
            let is_segment = parsed.is_some_and(|parsed| parsed.tcp().is_some());
            assert_eq!(kernel.next_notice(), is_segment.then_some((mobile, Some(Sign::Warning))), "{bytes:02x?}");
        }
    }
}
