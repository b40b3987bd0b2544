//! Programs without IPv6, at one end or at both.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};

use bytes::Bytes;
use holdover_hip::identity::Hit;
use holdover_hipd::core::{End, IpVersion, KernelSockets, LsiPrefix};
use holdover_hipd::files::Via;
use holdover_wire::{Flags, Fragment, IcmpEcho, IcmpError, Packet, Payload, Segment, Seq, Udp, Unreachable};
use proptest::prelude::*;

use crate::SECOND;
use crate::world::{World, address, has_unknown_option, with_unknown_option};

/// Ports with sockets of IPv4, and of IPv6.
#[derive(Debug, Default)]
struct Listens {
    v4: Vec<(u8, u16)>,
    v6: Vec<(u8, u16)>,
}

impl KernelSockets for Listens {
    fn version_of(&mut self, protocol: u8, own: End, _: End) -> Option<IpVersion> {
        let listens = |ports: &[(u8, u16)]| ports.contains(&(protocol, own.port));
        match (listens(&self.v6), listens(&self.v4)) {
            (true, _) => Some(IpVersion::V6),
            (_, true) => Some(IpVersion::V4),
            _ => None,
        }
    }
}

/// Host 0 opens connections; on host 1 ports 80 and 53 have IPv4 sockets, 81 an IPv6 socket, and 82 both.
fn world() -> World {
    let mut world = World::new(1, Via::Ip, [true, true]);
    world.use_lsis(0, Listens::default());
    world.use_lsis(1, Listens { v4: vec![(6, 80), (17, 53), (6, 82)], v6: vec![(6, 81), (6, 82)] });
    world
}

/// The LSIs of a host itself and of its peer, on that host.
fn lsis(world: &World, index: usize) -> [IpAddr; 2] {
    [world.hosts[index].lsi().unwrap().into(), world.hosts[index].peer_status()[0].lsi.unwrap().into()]
}

fn hits(world: &World, index: usize) -> [IpAddr; 2] {
    [world.hit(index).0.into(), world.hit(1 - index).0.into()]
}

fn segment(src_port: u16, dst_port: u16, flags: Flags) -> Segment {
    let payload = if flags.contains(Flags::SYN) { Bytes::new() } else { Bytes::from_static(b"data") };
    Segment { src_port, dst_port, seq: Seq::new(7), flags, payload, ..Segment::default() }
}

fn last(world: &mut World, at: usize) -> Packet {
    world.run_for(SECOND);
    world.got[at].pop().expect("a packet")
}

// Claim: Programs that support IPv4 only communicate with peers by LSIs, whatever the version of the program at the other end:
// TCP, UDP, echoes, and errors; also after a daemon was killed and after a move.
// Tests: `lsi::datagrams_and_echoes_come_back_in_the_version_in_which_they_went`, `lsi::errors_quote_what_the_program_has_sent`,
// `lsi::arbitrary_packets_do_no_harm`, `lsi::unknown_options_survive_translation`, `proxy::unknown_options_of_hosts_survive`,
// `programs_that_know_ipv4_only_talk`, `multipath_connections_do_not_fall_back_to_tcp`
#[test]
fn each_end_has_the_version_of_its_program() {
    for (port, is_v4_there) in [(80, true), (81, false), (82, false), (99, false)] {
        for is_v4_here in [true, false] {
            let mut world = world();
            let [own, peer] = if is_v4_here { lsis(&world, 0) } else { hits(&world, 0) };
            let [far, back] = if is_v4_there { lsis(&world, 1) } else { hits(&world, 1) };
            for flags in [Flags::SYN, Flags::ACK] {
                let mut sent = segment(4000, port, flags);
                sent.options.mss = flags.contains(Flags::SYN).then_some(1360);
                world.send_packet(0, &Packet::new(own, peer, sent));
                let came = last(&mut world, 1);
                assert_eq!((came.src, came.dst), (back, far), "port {port}");
                assert_eq!(came.tcp().unwrap().payload, segment(4000, port, flags).payload);
                let mss = if is_v4_here { 1340 } else { 1360 };
                assert_eq!(came.tcp().unwrap().options.mss, flags.contains(Flags::SYN).then_some(mss));
                assert_eq!(Packet::parse(came.emit().unwrap()).unwrap().payload, came.payload, "with right checksums");
            }
            world.send_packet(1, &Packet::new(far, back, segment(port, 4000, Flags::ACK)));
            let answer = last(&mut world, 0);
            assert_eq!((answer.src, answer.dst), (peer, own));
        }
    }
}

/// TCP options that Holdover does not know reach the other program, whatever the IP versions at both ends.
#[test]
fn unknown_options_survive_translation() {
    for port in [80, 81] {
        for is_v4_here in [true, false] {
            let mut world = world();
            let [own, peer] = if is_v4_here { lsis(&world, 0) } else { hits(&world, 0) };
            let syn = Segment { window: 500, ..segment(4000, port, Flags::SYN) };
            world.send_packet(0, &with_unknown_option(&Packet::new(own, peer, syn)));
            let came = last(&mut world, 1);
            assert_eq!(came.dst.is_ipv4(), port == 80);
            assert!(has_unknown_option(&came), "port {port}, IPv4 here: {is_v4_here}");
            let answer = segment(port, 4000, Flags::SYN | Flags::ACK);
            world.send_packet(1, &with_unknown_option(&Packet::new(came.dst, came.src, answer)));
            let back = last(&mut world, 0);
            assert_eq!((back.src, back.dst), (peer, own));
            assert!(has_unknown_option(&back), "port {port}, IPv4 here: {is_v4_here}");
        }
    }
}

#[test]
fn datagrams_and_echoes_come_back_in_the_version_in_which_they_went() {
    let mut world = world();
    let ([own, peer], [far, back]) = (lsis(&world, 0), lsis(&world, 1));
    let udp = |src_port, dst_port| Udp { src_port, dst_port, payload: Bytes::from_static(b"?") };
    world.send_packet(0, &Packet::new(own, peer, udp(4000, 53)));
    assert_eq!(last(&mut world, 1).dst, far);
    world.send_packet(1, &Packet::new(far, back, udp(53, 4000)));
    assert_eq!(last(&mut world, 0).dst, own);
    // The same ports in the other version: the last sender is answered.
    let [own_hit, peer_hit] = hits(&world, 0);
    world.send_packet(0, &Packet::new(own_hit, peer_hit, udp(4000, 53)));
    last(&mut world, 1);
    world.send_packet(1, &Packet::new(far, back, udp(53, 4000)));
    assert_eq!(last(&mut world, 0).dst, own_hit);
    let echo = |reply| IcmpEcho { reply, id: 77, seq: 1, payload: Bytes::from_static(b"ping") };
    world.send_packet(0, &Packet::new(own, peer, echo(false)));
    // Host 1's kernel answers in IPv6.
    let asked = last(&mut world, 1);
    world.send_packet(1, &Packet::new(asked.dst, asked.src, echo(true)));
    let answer = last(&mut world, 0);
    assert_eq!((answer.src, answer.payload), (peer, echo(true).into()));
}

#[test]
fn errors_quote_what_the_program_has_sent() {
    let mut world = world();
    let ([own, peer], [far, back]) = (lsis(&world, 0), lsis(&world, 1));
    world.send_packet(0, &Packet::new(own, peer, segment(4000, 80, Flags::SYN)));
    let came = last(&mut world, 1);
    for (kind, expected) in [
        (Unreachable::Port, Unreachable::Port),
        (Unreachable::PacketTooBig { mtu: 1300 }, Unreachable::PacketTooBig { mtu: 1300 }),
        // The path MTU does not fall below the least MTU of IPv6.
        (Unreachable::PacketTooBig { mtu: 0 }, Unreachable::PacketTooBig { mtu: 1260 }),
        (Unreachable::Other { code: 10 }, Unreachable::Host),
    ] {
        let error = IcmpError::quoting_packet(kind, &came).unwrap();
        world.send_packet(1, &Packet::new(far, back, error));
        let answer = last(&mut world, 0);
        let Payload::IcmpError(error) = &answer.payload else { panic!("{answer}") };
        let quoted = error.quoted_tcp().unwrap();
        assert_eq!((error.kind, answer.src, answer.dst), (expected, peer, own));
        assert_eq!((quoted.src, quoted.dst, quoted.src_port, quoted.dst_port), (own, peer, 4000, 80));
    }
    // The port now belongs to another program, which uses IPv6.
    let own_hit = hits(&world, 1)[0];
    world.send_packet(0, &Packet::new(own, peer, Udp { src_port: 5, dst_port: 53, payload: Bytes::new() }));
    let came = last(&mut world, 1);
    assert_eq!(came.dst, far);
    world.hosts[1].use_lsis(LsiPrefix::default(), Box::new(Listens { v6: vec![(17, 53)], ..Listens::default() }));
    let peers = world.peers(1);
    world.hosts[1].set_peers(world.now, &peers);
    world.send_packet(0, &Packet::new(own, peer, Udp { src_port: 5, dst_port: 53, payload: Bytes::new() }));
    assert_eq!(last(&mut world, 1).dst, own_hit);
    // This host reports that a peer is unreachable, in the peer's name.
    let mut world = World::new(1, Via::Ip, [true, false]);
    world.use_lsis(0, Listens::default());
    let [own, peer] = lsis(&world, 0);
    world.send_packet(0, &Packet::new(own, peer, segment(4000, 80, Flags::SYN)));
    world.run_for(SECOND * 200);
    let error = world.got[0].iter().find(|packet| matches!(packet.payload, Payload::IcmpError(_))).unwrap();
    assert_eq!((error.src, error.dst), (peer, own));
}

#[test]
fn untranslatable_packets_are_not_sent() {
    let mut world = world();
    let [own, peer] = lsis(&world, 0);
    let fragment = Fragment { id: 1, offset: 8, more: false, protocol: 17, payload: Bytes::from_static(b"12345678") };
    let udp = || Udp { src_port: 1, dst_port: 2, payload: Bytes::new() };
    let other = |protocol| Payload::Other { protocol, payload: Bytes::from_static(&[1, 2, 3, 4, 5, 6, 7, 8]) };
    world.send_packet(0, &Packet::new(own, address("198.19.255.9"), udp()));
    world.send_packet(0, &Packet::new(address("192.0.2.1"), peer, udp()));
    world.hosts[0].handle_inner(world.now, Packet::new(own, peer, Payload::Fragment(fragment)));
    world.hosts[0].handle_inner(world.now, Packet::new(own, peer, other(1)));
    world.run_for(SECOND);
    assert_eq!(world.hosts[0].counters().not_for_hits, 4);
    assert!(world.got[1].is_empty());
    // A program that addresses an LSI of no peer gets an ICMP error.
    let Payload::IcmpError(error) = &world.got[0][0].payload else { panic!("{:?}", world.got[0]) };
    assert_eq!((world.got[0].len(), error.kind, world.got[0][0].dst), (1, Unreachable::Host, own));
    assert_eq!(world.got[0][0].src, address("198.19.255.9"));
}

/// Peers may be added, removed and reordered.
#[test]
fn no_peer_gets_the_lsi_of_another_one() {
    let hit = |low: u128| Hit((0x2001_0025_u128 << 96 | low).to_be_bytes().into());
    let prefix: LsiPrefix = "10.200.1.77/16".parse().unwrap();
    assert_eq!((prefix.to_string(), prefix.own()), ("10.200.0.0/16".to_owned(), Ipv4Addr::new(10, 200, 0, 1)));
    let all = prefix.assign((0..70_000).map(hit));
    assert_eq!(all.values().collect::<BTreeSet<_>>().len(), all.len());
    let broadcast = Ipv4Addr::new(10, 200, 255, 255);
    assert!(all.values().all(|lsi| prefix.contains(*lsi) && *lsi > prefix.own() && *lsi < broadcast));
    let before = prefix.assign([hit(1), hit(2), hit(3)]);
    let after = prefix.assign([hit(3), hit(9), hit(1)]);
    assert_eq!((before[&hit(1)], before[&hit(3)]), (after[&hit(1)], after[&hit(3)]));
    // Another identity with the same bits: neither gets the LSI.
    let (server, other) = (hit(7), hit(1 << 40 | 7));
    assert_eq!(prefix.assign([server]), [(server, prefix.assign([other])[&other])].into());
    assert_eq!(prefix.assign([server, other, hit(8)]).keys().copied().collect::<Vec<_>>(), [hit(8)]);
}

#[test]
fn prefixes_that_make_no_sense_are_refused() {
    for (text, word) in [
        ("10.0.0.0", "is not an IPv4 prefix"),
        ("10.0.0.0/x", "is not an IPv4 prefix"),
        ("fd00::/8", "is not an IPv4 prefix"),
        ("10.0.0.0/17", "8 to 16 bits"),
        ("10.0.0.0/7", "8 to 16 bits"),
        ("127.0.0.0/8", "no host can have"),
        ("224.0.0.0/16", "no host can have"),
        ("0.1.0.0/16", "no host can have"),
    ] {
        let error = text.parse::<LsiPrefix>().unwrap_err().to_string();
        assert!(error.contains(word), "{text}: {error}");
    }
}

proptest! {
    /// With any packets from the TUN device, nothing panics, and packets that arrive at the peer are between its
    /// addresses.
    #[test]
    fn arbitrary_packets_do_no_harm(packets in prop::collection::vec((any::<bool>(), any::<u8>(), prop::collection::vec(any::<u8>(), 0..80)), 1..20)) {
        let mut world = world();
        for (is_v4, protocol, bytes) in packets {
            let [own, peer] = if is_v4 { lsis(&world, 0) } else { hits(&world, 0) };
            let payload = Payload::Other { protocol, payload: bytes.into() };
            let Ok(bytes) = Packet::new(own, peer, payload).emit() else { continue };
            if let Ok(packet) = Packet::parse_with(bytes, holdover_wire::Checksums::Ignore) {
                world.hosts[0].handle_inner(world.now, packet);
            }
        }
        world.run_for(SECOND);
        let ends = [lsis(&world, 1), hits(&world, 1)];
        for packet in &world.got[1] {
            prop_assert!(ends.contains(&[packet.dst, packet.src]), "{}", packet);
        }
    }
}
