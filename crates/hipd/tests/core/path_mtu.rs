//! The MTU of paths: ICMP errors to programs, and packets that leave in fragments.

use std::net::{IpAddr, Ipv4Addr};

use bytes::Bytes;
use holdover_base::Duration;
use holdover_hipd::core::{End, IpVersion, KernelSockets, Outgoing};
use holdover_hipd::files::Via;
use holdover_wire::{IcmpError, Packet, Payload, Udp, Unreachable};

use crate::world::{World, address};
use crate::{SECOND, talking};

/// A program's datagram of this length, with its headers.
fn datagram(world: &World, from: usize, len: usize) -> Packet {
    let (src, dst) = (world.hit(from), world.hit(1 - from));
    let payload = Bytes::from(vec![7; len - 48]);
    Packet::new(src.0.into(), dst.0.into(), Udp { src_port: 1000, dst_port: 2000, payload })
}

/// The MTUs in the ICMP errors for a host's programs.
fn told(world: &World, at: usize) -> Vec<u32> {
    let mtu = |packet: &Packet| match &packet.payload {
        Payload::IcmpError(IcmpError { kind: Unreachable::PacketTooBig { mtu }, .. }) => Some(*mtu),
        _ => None,
    };
    world.got[at].iter().filter_map(mtu).collect()
}

/// RFC 1191 section 5: the router reports 0.
#[test]
fn a_router_that_reports_no_mtu() {
    for via in [Via::Ip, Via::Udp] {
        let mut world = talking(via);
        let (long, short) = (datagram(&world, 0, 1400), datagram(&world, 0, 1280));
        world.send_packet(0, &long);
        let outer = world.sent.last().unwrap().clone();
        assert!(told(&world, 0).is_empty());
        let error = IcmpError::quoting_packet(Unreachable::PacketTooBig { mtu: 0 }, &outer).unwrap();
        let quoted = error.quoted().unwrap();
        assert_eq!(world.hosts[0].handle_too_big(world.now, &quoted, 0), Some(1280));
        for packet in [&long, &short] {
            world.send_packet(0, packet);
        }
        assert_eq!(told(&world, 0), [1280], "for the long one");
        assert_eq!(world.hosts[0].counters().too_big, 1);
    }
}

/// The kernel refuses packets for an address that is being checked.
#[test]
fn the_mtu_of_an_address_that_is_not_verified_yet() {
    let mut world = talking(Via::Ip);
    let place = address("203.0.113.9");
    world.move_to(1, &["203.0.113.9"]);
    let arrival = world.delay + Duration::from_millis(10);
    world.run_for(arrival);
    assert!(!world.hosts[0].peer_addresses().contains(&place), "it is not verified");
    for at in [place, address("203.0.113.99")] {
        world.hosts[0].set_path_mtu(world.now, at, 1300);
    }
    world.run_for(SECOND);
    assert!(world.hosts[0].peer_addresses().contains(&place));
    let packet = datagram(&world, 0, 1400);
    world.send_packet(0, &packet);
    assert_eq!(told(&world, 0).len(), 1);
}

/// How a host sends a program's datagram: the length of the outer packet, its ESP sequence number, and the length of its fragments if it
/// leaves in some.
fn sent(world: &mut World, len: usize) -> Option<(usize, u32, Option<usize>)> {
    let packet = datagram(world, 0, len);
    world.hosts[0].handle_inner(world.now, packet);
    let Outgoing::Data(data) = world.hosts[0].poll_outgoing()? else { panic!("data") };
    let fragment_len = data.fragment_len();
    let outer = data.seal().unwrap();
    let esp = match &outer.payload {
        Payload::Udp(udp) => &udp.payload,
        Payload::Esp(esp) => esp,
        other => panic!("{other}"),
    };
    let number = u32::from_be_bytes(*esp[4..].first_chunk().unwrap());
    assert!(world.hosts[0].poll_outgoing().is_none());
    Some((outer.wire_len(), number, fragment_len))
}

// Claim: Packets of programs of up to 1,280 bytes that exceed the path leave in fragments, and no others; longer ones are refused with 1,280
// bytes, and take no sequence number.
#[test]
fn packets_of_1280_bytes_leave_in_fragments_where_they_have_to() {
    for via in [Via::Ip, Via::Udp] {
        for mtu in [1300, 1280, 900, 552, 400] {
            let mut world = talking(via);
            let (whole, mut last, fragment_len) = sent(&mut world, 1280).unwrap();
            assert_eq!(fragment_len, None, "the path is not known to be narrow");
            world.hosts[0].set_path_mtu(world.now, address("198.51.100.2"), mtu);
            let mtu = mtu as usize;
            for len in (100..=1280).step_by(20).chain(1230..=1280) {
                let (outer, number, fragment_len) = sent(&mut world, len).unwrap();
                assert_eq!(fragment_len, (outer > mtu).then_some(mtu), "{via:?} {mtu} {len}: {outer}");
                last += 1;
                assert_eq!(number, last);
                // With padding, one of 1,281 bytes is as long as one of 1,280.
                if let Some((outer, number, fragment_len)) = sent(&mut world, 1281) {
                    last += 1;
                    assert_eq!((outer, number, fragment_len), (whole, last, None));
                    assert!(whole <= mtu);
                } else {
                    assert!(whole > mtu);
                }
            }
        }
    }
}

// The bound of TCP segments is that of datagrams with as many bytes behind the IP header.
#[test]
fn segments_of_programs_are_cut_where_they_would_leave_in_fragments() {
    for via in [Via::Ip, Via::Udp] {
        let mut world = talking(via);
        let dst = std::net::IpAddr::from(world.hit(1).0);
        let now = world.now;
        assert_eq!(world.hosts[0].cut_to(now, dst, 1240), None, "the path is not known to be narrow");
        for mtu in [1290, 1280, 900] {
            world.hosts[0].set_path_mtu(now, address("198.51.100.2"), mtu);
            let len = world.hosts[0].cut_to(now, dst, 1240).unwrap();
            assert_eq!(world.hosts[0].cut_to(now, dst, len), None);
            assert_eq!(world.hosts[0].cut_to(now, dst, len + 1), Some(len));
            assert_eq!(world.hosts[0].cut_to(now, dst, 1241), None, "programs are told of 1,280 bytes");
            let [fits, exceeds] = [len, len + 1].map(|len| sent(&mut world, 40 + len).unwrap().2);
            assert_eq!((fits, exceeds), (None, Some(mtu as usize)), "{via:?} {mtu}");
        }
    }
}

// At an LSI the bound is the same, since IPv4 is translated to IPv6 before the encryption.
#[test]
fn segments_of_ipv4_programs_are_cut_as_those_of_others() {
    for via in [Via::Ip, Via::Udp] {
        let mut world = World::new(1, via, [true, true]);
        for host in [0, 1] {
            world.use_lsis(host, NoSockets);
        }
        world.send(0, 1);
        world.run_for(SECOND * 3);
        let hit = IpAddr::from(world.hit(1).0);
        let lsi = IpAddr::from(world.hosts[0].peer_status()[0].lsi.unwrap());
        let now = world.now;
        assert_eq!(world.hosts[0].cut_to(now, lsi, 1240), None, "the path is not known to be narrow");
        world.hosts[0].set_path_mtu(now, address("198.51.100.2"), 900);
        let len = world.hosts[0].cut_to(now, lsi, 1240).unwrap();
        assert_eq!(world.hosts[0].cut_to(now, hit, 1240), Some(len));
        assert_eq!(world.hosts[0].cut_to(now, lsi, len), None);
        let unknown = IpAddr::from(Ipv4Addr::new(192, 0, 2, 77));
        assert_eq!(world.hosts[0].cut_to(now, unknown, 1240), None, "it is no peer's");
    }
}

/// This host has no program.
#[derive(Debug)]
struct NoSockets;

impl KernelSockets for NoSockets {
    fn version_of(&mut self, _: u8, _: End, _: End) -> Option<IpVersion> {
        None
    }
}
