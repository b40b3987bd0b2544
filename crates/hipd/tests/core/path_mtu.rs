//! The MTU of paths, and what programs are told.

use bytes::Bytes;
use holdover_base::Duration;
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
        assert!(world.hosts[0].handle_too_big(world.now, &quoted, 0));
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
