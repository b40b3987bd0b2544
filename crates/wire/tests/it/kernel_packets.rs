//! Packets that a Linux 6.18 kernel sent into a TUN device, and a comparison with another codec, smoltcp's.

use crate::support::unhex;
use bytes::Bytes;
use holdover_wire::{
    Checksums, Flags, Fragment, IcmpEcho, IcmpError, Packet, Payload, RareOptions, Segment, Seq, TcpOptions,
    Timestamps, Udp, Unreachable,
};
use proptest::prelude::*;
use smoltcp::wire as other;

const SYN_V4: &str = "4500003c4e4d40004006d85a0a0900010a090002 9c4100506d392bb700000000a002faf0df130000
    020405b4 0402 080a277ffce200000000 01 03030a";
const SYN_V6: &str = "60072bb700280640fd090000000000000000000000000001fd090000000000000000000000000002
    9c41005040d9228700000000a002fd20a4810000 020405a0 0402 080a53f4587200000000 01 03030a";
const UDP_V4: &str = "45000024945c4000401192580a0900010a090002 9c4200350010a585 686f6c646f766572";
const UDP_V6: &str = "60043386000b1140fd090000000000000000000000000001fd090000000000000000000000000002
    9c420035000b95e5 6f6464";
const PORT_V4: &str = "45c00038eac0000040017b300a0900010a090002 0303d5b000000000
    4500001c00070000401166b60a0900020a090001 0035270f00080000";
const PORT_V6: &str = "600c446600383a40fd090000000000000000000000000001fd090000000000000000000000000002
    0104934300000000 6000000000081140fd090000000000000000000000000002fd090000000000000000000000000001
    0035270f0008de83";
const ECHO_V4: &str = "45000020eac1000040017c070a0900010a090002 0000212700070001 70696e67";
const ECHO_V6: &str = "600d59c2000c3a40fd090000000000000000000000000001fd090000000000000000000000000002
    8100a5c900070001 70696e67";
/// The second fragment of a UDP datagram of 1600 zeros: 128 more zeros follow.
const FRAGMENT_V4: &str = "4500009494ff00b94011d08c0a0900010a090002";
/// The same over IPv6: 160 more zeros follow.
const FRAGMENT_V6: &str =
    "6004338600a82c40fd090000000000000000000000000001fd090000000000000000000000000002 110005a848d4101f";

fn parse(hex: &str) -> Packet {
    Packet::parse(unhex(hex).into()).unwrap()
}

#[test]
fn packets_of_the_kernel_are_forwarded_unchanged() {
    for hex in [SYN_V4, SYN_V6, UDP_V4, UDP_V6, PORT_V4, PORT_V6, ECHO_V4, ECHO_V6, FRAGMENT_V4, FRAGMENT_V6] {
        let bytes = Bytes::from(unhex(hex));
        // The fragments were cut off after their headers.
        let Ok(packet) = Packet::parse_to_forward(bytes.clone(), Checksums::Verify) else {
            assert!([FRAGMENT_V4, FRAGMENT_V6].contains(&hex), "{hex}");
            continue;
        };
        assert_eq!(packet.emit().unwrap(), bytes, "{packet}");
    }
}

#[test]
fn a_syn_of_the_kernel_is_read() {
    for (hex, mss, window, val, seq) in
        [(SYN_V4, 1460, 64_240, 0x277f_fce2, 0x6d39_2bb7), (SYN_V6, 1440, 64_800, 0x53f4_5872, 0x40d9_2287)]
    {
        let packet = parse(hex);
        let rare =
            RareOptions { mss: Some(mss), window_scale: Some(10), sack_permitted: true, ..RareOptions::default() };
        let options = TcpOptions { timestamps: Some(Timestamps { val, ecr: 0 }), ..rare.into() };
        let syn = Segment {
            src_port: 40_001,
            dst_port: 80,
            seq: Seq::new(seq),
            flags: Flags::SYN,
            window,
            options,
            ..Segment::default()
        };
        assert_eq!(packet.tcp(), Some(&syn));
        // Ours has another order of options, and the same length.
        let written = packet.emit().unwrap();
        assert_eq!(written.len(), unhex(hex).len());
        assert_eq!(Packet::parse(written), Ok(packet));
    }
    assert_eq!(
        parse(SYN_V4).to_string(),
        "10.9.0.1 > 10.9.0.2 TCP 40001 > 80: S 1832463287:1832463288 win 64240 \
         <mss 1460,wscale 10,sackOK,TS val 662699234 ecr 0>"
    );
}

#[test]
fn other_packets_of_the_kernel_are_read_and_written_alike() {
    let udp = |payload: &'static [u8]| {
        Payload::Udp(Udp { src_port: 40_002, dst_port: 53, payload: Bytes::from_static(payload) })
    };
    let echo = Payload::IcmpEcho(IcmpEcho { reply: true, id: 7, seq: 1, payload: Bytes::from_static(b"ping") });
    let port = |hex: &str, at| {
        Payload::IcmpError(IcmpError { kind: Unreachable::Port, quote: unhex(hex).split_off(at).into() })
    };
    for (hex, payload) in [
        (UDP_V4, udp(b"holdover")),
        (UDP_V6, udp(b"odd")),
        (ECHO_V4, echo.clone()),
        (ECHO_V6, echo),
        (PORT_V4, port(PORT_V4, 28)),
        (PORT_V6, port(PORT_V6, 48)),
    ] {
        let packet = parse(hex);
        assert_eq!(packet.payload, payload);
        assert_eq!((packet.ttl, packet.src.is_ipv6()), (64, hex.starts_with('6')));
        // Everything after the IP header, the kernel's checksum included.
        let at = packet.ip_header_len();
        assert_eq!(packet.emit().unwrap()[at..], unhex(hex)[at..], "{packet}");
    }
    assert_eq!(parse(PORT_V4).traffic_class, 0xc0);
}

#[test]
fn fragments_of_the_kernel_stay_opaque() {
    for (hex, id, offset, len) in [(FRAGMENT_V4, 0x94ff, 1480, 128), (FRAGMENT_V6, 0x48d4_101f, 1448, 160)] {
        let mut bytes = unhex(hex);
        bytes.resize(bytes.len() + len, 0);
        let packet = Packet::parse(bytes.clone().into()).unwrap();
        let fragment = Fragment { id, offset, more: false, protocol: 17, payload: vec![0; len].into() };
        assert_eq!(packet.payload, Payload::Fragment(fragment));
        let mut written = packet.emit().unwrap().to_vec();
        if packet.dst.is_ipv6() {
            written[1..4].copy_from_slice(&bytes[1..4]);
        }
        assert_eq!(written, bytes, "a fragment loses the flow label only");
    }
}

/// Checks one of our packets with the other codec.
fn check_with_the_other_codec(packet: &Packet) {
    let bytes = packet.emit().unwrap();
    let (src, dst) = (other::IpAddress::from(packet.src), other::IpAddress::from(packet.dst));
    let upper = if packet.dst.is_ipv4() {
        let ip = other::Ipv4Packet::new_checked(&bytes[..]).unwrap();
        assert!(ip.verify_checksum());
        assert_eq!((ip.hop_limit(), ip.dscp() << 2 | ip.ecn()), (packet.ttl, packet.traffic_class));
        ip.payload().to_vec()
    } else {
        let ip = other::Ipv6Packet::new_checked(&bytes[..]).unwrap();
        assert_eq!((ip.hop_limit(), ip.traffic_class()), (packet.ttl, packet.traffic_class));
        ip.payload().to_vec()
    };
    match &packet.payload {
        Payload::Tcp(segment) => {
            let tcp = other::TcpPacket::new_checked(&upper[..]).unwrap();
            assert!(tcp.verify_checksum(&src, &dst));
            assert_eq!((tcp.src_port(), tcp.dst_port()), (segment.src_port, segment.dst_port));
            assert_eq!(tcp.seq_number().0 as u32, segment.seq.value());
            assert_eq!(tcp.ack_number().0 as u32, segment.ack.value());
            assert_eq!((tcp.window_len(), tcp.urgent_at()), (segment.window, segment.urgent));
            assert_eq!(tcp.fin(), segment.flags.contains(Flags::FIN));
            assert_eq!(tcp.payload(), &segment.payload[..]);
            check_options_with_the_other_codec(tcp.options(), &segment.options);
        }
        Payload::Udp(udp) => {
            let datagram = other::UdpPacket::new_checked(&upper[..]).unwrap();
            assert!(datagram.verify_checksum(&src, &dst));
            assert_eq!(datagram.payload(), &udp.payload[..]);
        }
        // The other codec refuses unknown ICMPv6 types, including those for experiments.
        Payload::IcmpError(error) if error.kind == Unreachable::BadState && packet.dst.is_ipv6() => {}
        Payload::IcmpError(_) | Payload::IcmpEcho(_) => match (packet.src, packet.dst) {
            (core::net::IpAddr::V6(src), core::net::IpAddr::V6(dst)) => {
                assert!(other::Icmpv6Packet::new_checked(&upper[..]).unwrap().verify_checksum(&src, &dst));
            }
            _ => assert!(other::Icmpv4Packet::new_checked(&upper[..]).unwrap().verify_checksum()),
        },
        Payload::Esp(_) | Payload::Encrypted(_) | Payload::Fragment(_) | Payload::Other { .. } => {}
    }
}

fn check_options_with_the_other_codec(mut bytes: &[u8], options: &TcpOptions) {
    let mut seen = TcpOptions::default();
    let mut unknown = 0;
    while !bytes.is_empty() {
        let (rest, option) = other::TcpOption::parse(bytes).unwrap();
        match option {
            other::TcpOption::EndOfList => break,
            other::TcpOption::NoOperation => {}
            other::TcpOption::MaxSegmentSize(mss) => seen.mss = Some(mss),
            other::TcpOption::WindowScale(shift) => seen.window_scale = Some(shift),
            other::TcpOption::SackPermitted => seen.sack_permitted = true,
            other::TcpOption::TimeStamp { tsval, tsecr } => {
                seen.timestamps = Some(Timestamps { val: tsval, ecr: tsecr });
            }
            other::TcpOption::SackRange(blocks) => {
                // It supports three blocks.
                let ours = options.sack.iter().take(3).map(|block| (block.start.value(), block.end.value()));
                assert!(blocks.into_iter().flatten().eq(ours));
                seen.sack = options.sack;
            }
            other::TcpOption::Unknown { .. } => unknown += 1,
        }
        bytes = rest;
    }
    let ours = usize::from(options.user_timeout.is_some())
        + usize::from(options.fast_open.is_some())
        + usize::from(options.accurate_ecn.is_some())
        + options.experimental.iter().flatten().count();
    assert_eq!(unknown, ours);
    let rare = RareOptions { user_timeout: None, fast_open: None, experimental: None, ..(*options.rare).clone() };
    let known = TcpOptions { accurate_ecn: None, rare: rare.into(), ..options.clone() };
    assert_eq!(seen, known);
}

proptest! {
    // Claim: Another codec (smoltcp's) and the kernel encode and decode the same bytes.
    // Tests: `a_syn_of_the_kernel_is_read`, `other_packets_of_the_kernel_are_read_and_written_alike`
    #[test]
    fn the_other_codec_agrees(packet in crate::support::packet()) {
        check_with_the_other_codec(&packet);
    }
}
