//! Bytes or values for every error, and the limits of every leniency.

use crate::support::{V4, V6, full_segment, unhex};
use bytes::{Bytes, BytesMut};
use holdover_wire::{
    Checksums, EmitError, Experimental, ExperimentalId, Flags, Fragment, IcmpError, Layer, Packet, ParseError, Payload,
    RareOptions, Segment, TcpOptions, Udp, Unreachable,
};

fn v4(payload: impl Into<Payload>) -> Packet {
    Packet::new(V4.0, V4.1, payload)
}

fn v6(payload: impl Into<Payload>) -> Packet {
    Packet::new(V6.0, V6.1, payload)
}

fn raw(protocol: u8, hex: &str) -> Payload {
    Payload::Other { protocol, payload: unhex(hex).into() }
}

/// Parses `packet` after `change` to its bytes.
fn parse_changed(packet: &Packet, change: impl FnOnce(&mut BytesMut)) -> Result<Packet, ParseError> {
    let mut bytes = BytesMut::from(packet.emit().unwrap());
    change(&mut bytes);
    Packet::parse(bytes.freeze())
}

fn udp() -> Udp {
    Udp { src_port: 1, dst_port: 2, payload: Bytes::from_static(b"abc") }
}

#[test]
fn versions_other_than_4_and_6_are_refused() {
    let empty = ParseError::Truncated { layer: Layer::Ipv4, needed: 20, have: 0 };
    assert_eq!(Packet::parse(Bytes::new()), Err(empty));
    for version in (0..16).filter(|version| ![4, 6].contains(version)) {
        assert_eq!(Packet::parse(vec![version << 4; 60].into()), Err(ParseError::Version { version }));
    }
}

#[test]
fn truncated_packets_name_the_bytes_needed() {
    let truncated = |layer, needed, have| Err(ParseError::Truncated { layer, needed, have });
    assert_eq!(Packet::parse(vec![0x45; 19].into()), truncated(Layer::Ipv4, 20, 19));
    assert_eq!(Packet::parse(vec![0x46; 20].into()), truncated(Layer::Ipv4, 24, 20));
    assert_eq!(Packet::parse(vec![0x60; 39].into()), truncated(Layer::Ipv6, 40, 39));
    assert_eq!(parse_changed(&v4(udp()), |b| b.truncate(30)), truncated(Layer::Ipv4, 31, 30));
    assert_eq!(parse_changed(&v6(udp()), |b| b.truncate(50)), truncated(Layer::Ipv6, 51, 50));
    for (payload, layer, needed, have) in [
        (raw(6, "0001 0002"), Layer::Tcp, 20, 4),
        (raw(6, "0001 0002 00000000 00000000 6000 0000 0000 0000"), Layer::Tcp, 24, 20),
        (raw(17, "0001 0002 0008"), Layer::Udp, 8, 6),
        (raw(17, "0001 0002 0009 0000"), Layer::Udp, 9, 8),
    ] {
        assert_eq!(Packet::parse(v4(payload.clone()).emit().unwrap()), truncated(layer, needed, have));
        assert_eq!(Packet::parse(v6(payload).emit().unwrap()), truncated(layer, needed, have));
    }
    assert_eq!(Packet::parse(v4(raw(1, "0800 f7ff 0000 00")).emit().unwrap()), truncated(Layer::Icmp, 8, 7));
    assert_eq!(Packet::parse(v6(raw(58, "8000")).emit().unwrap()), truncated(Layer::Icmpv6, 8, 2));
    for (protocol, hex, needed, have) in
        [(0, "06 00 0000", 8, 4), (60, "06 01 0104 00000000", 16, 8), (43, "", 8, 0), (44, "06 00 0001 0000", 8, 6)]
    {
        let bytes = v6(raw(protocol, hex)).emit().unwrap();
        assert_eq!(Packet::parse(bytes), truncated(Layer::Ipv6Extension, needed, have), "{protocol}");
    }
}

#[test]
fn lengths_that_contradict_their_header_are_refused() {
    let ihl = parse_changed(&v4(udp()), |b| b[0] = 0x44);
    assert_eq!(ihl, Err(ParseError::HeaderLength { layer: Layer::Ipv4, len: 16 }));
    let data_offset = v4(raw(6, "0001 0002 00000000 00000000 4000 0000 0000 0000")).emit().unwrap();
    assert_eq!(Packet::parse(data_offset), Err(ParseError::HeaderLength { layer: Layer::Tcp, len: 16 }));
    // The header checksum is corrected, so that the length is the only error.
    let total = parse_changed(&v4(udp()), |b| {
        let before = u16::from_be_bytes([b[10], b[11]]);
        b[3] = 19;
        b[10..12].copy_from_slice(&(before + 31 - 19).to_be_bytes());
    });
    assert_eq!(total, Err(ParseError::TotalLength { layer: Layer::Ipv4, len: 19 }));
    let len = v4(raw(17, "0001 0002 0007 0000 00")).emit().unwrap();
    assert_eq!(Packet::parse(len), Err(ParseError::TotalLength { layer: Layer::Udp, len: 7 }));
}

#[test]
fn a_wrong_checksum_says_which() {
    let last = |b: &mut BytesMut| *b.last_mut().unwrap() ^= 1;
    let echo = |family: fn(Payload) -> Packet| {
        family(Payload::IcmpEcho(holdover_wire::IcmpEcho { reply: false, id: 1, seq: 2, payload: udp().payload }))
    };
    assert_eq!(parse_changed(&v4(udp()), |b| b[8] -= 1), Err(ParseError::Checksum(Layer::Ipv4)));
    for (packet, layer) in [
        (v4(full_segment()), Layer::Tcp),
        (v6(full_segment()), Layer::Tcp),
        (v4(udp()), Layer::Udp),
        (v6(udp()), Layer::Udp),
        (echo(v4), Layer::Icmp),
        (echo(v6), Layer::Icmpv6),
    ] {
        assert_eq!(parse_changed(&packet, last), Err(ParseError::Checksum(layer)));
        // Without verification the same bytes are a packet.
        let mut bytes = BytesMut::from(packet.emit().unwrap());
        last(&mut bytes);
        let read = Packet::parse_with(bytes.freeze(), Checksums::Ignore).unwrap();
        assert_ne!(read, packet);
        assert_eq!(read.wire_len(), packet.wire_len());
    }
    // The pseudo header is covered: a segment delivered to the wrong address is refused.
    assert_eq!(parse_changed(&v6(full_segment()), |b| b[39] = 9), Err(ParseError::Checksum(Layer::Tcp)));
}

#[test]
fn udp_without_a_checksum_is_for_ipv4_only() {
    let no_checksum = |at: usize| move |b: &mut BytesMut| b[at..at + 2].fill(0);
    assert_eq!(parse_changed(&v4(udp()), no_checksum(26)), Ok(v4(udp())));
    assert_eq!(parse_changed(&v6(udp()), no_checksum(46)), Err(ParseError::UdpChecksumMissing));
}

#[test]
fn a_udp_checksum_that_comes_out_as_zero_is_written_as_its_other_form() {
    // The last two bytes of data complete the sum to all ones.
    let packet = |tail: u16| v4(Udp { payload: Bytes::copy_from_slice(&tail.to_be_bytes()), ..udp() });
    let checksum = packet(0).emit().unwrap();
    let tail = u16::from_be_bytes([checksum[26], checksum[27]]);
    let bytes = packet(tail).emit().unwrap();
    assert_eq!(bytes[26..28], [0xff, 0xff]);
    assert_eq!(Packet::parse(bytes), Ok(packet(tail)));
}

#[test]
fn udp_shorter_than_its_packet_leaves_the_rest_out() {
    let bytes = v4(raw(17, "0001 0002 0009 0000 61 ffff")).emit().unwrap();
    let Payload::Udp(udp) = Packet::parse(bytes).unwrap().payload else { panic!("a UDP datagram") };
    assert_eq!(udp.payload, Bytes::from_static(b"a"));
}

#[test]
fn ipv4_options_are_skipped() {
    // Record route (kind 7) in 8 bytes; both length fields and the checksum follow.
    let with_options = |b: &mut BytesMut| {
        let rest = b.split_off(20);
        b.extend_from_slice(&[7, 7, 4, 0, 0, 0, 0, 0]);
        b.extend_from_slice(&rest);
        let (sum, total) = (u16::from_be_bytes([b[10], b[11]]), b.len() as u16);
        b[0] = 0x47;
        b[2..4].copy_from_slice(&total.to_be_bytes());
        // Two words of header more (0x0200), 8 bytes more, and the options' words 0x0707 and 0x0400.
        b[10..12].copy_from_slice(&sum.wrapping_sub(0x0200 + 8 + 0x0707 + 0x0400).to_be_bytes());
    };
    assert_eq!(parse_changed(&v4(full_segment()), with_options), Ok(v4(full_segment())));
}

#[test]
fn ipv6_extension_headers_are_skipped() {
    let segment = full_segment();
    let tcp = v6(segment.clone()).emit().unwrap().slice(40..);
    let chain = |protocol, headers: &str| {
        let payload = [unhex(headers), tcp.to_vec()].concat().into();
        Packet::parse(v6(Payload::Other { protocol, payload }).emit().unwrap())
    };
    let whole = Ok(v6(segment));
    let (hop_by_hop, routing, destination) =
        ("2b00 0104 00000000", "3c00 0000 00000000", "0601 010c 00000000 0000000000000000");
    assert_eq!(chain(0, &[hop_by_hop, routing, destination].concat()), whole);
    // A fragment header of a packet that is whole (RFC 6946).
    assert_eq!(chain(44, "0600 0000 12345678"), whole);
    // A routing header with a segment left: the packet is not at its destination.
    let on_its_way = chain(0, "2b00 0104 00000000 0600 0001 00000000").unwrap();
    assert!(matches!(on_its_way.payload, Payload::Other { protocol: 43, .. }), "{on_its_way}");
}

#[test]
fn quotes_without_a_tcp_header_are_refused() {
    let quoting =
        |quote: &[u8]| IcmpError { kind: Unreachable::Host, quote: Bytes::copy_from_slice(quote) }.quoted_tcp();
    let tcp = v4(full_segment()).emit().unwrap();
    assert!(quoting(&tcp[..28]).is_ok());
    assert_eq!(quoting(&tcp[..27]), Err(ParseError::Truncated { layer: Layer::Tcp, needed: 8, have: 7 }));
    assert_eq!(quoting(&tcp[..19]), Err(ParseError::Truncated { layer: Layer::Ipv4, needed: 20, have: 19 }));
    assert_eq!(quoting(&v6(udp()).emit().unwrap()), Err(ParseError::QuoteNotTcp { protocol: 17 }));
    assert_eq!(quoting(&[0x50; 40]), Err(ParseError::Version { version: 5 }));
    for (packet, error) in [
        (v4(fragment(8, false)), Err(ParseError::QuoteIsFragment)),
        (v6(fragment(8, true)), Err(ParseError::QuoteIsFragment)),
        (v4(fragment(0, true)), Ok(0)),
        (v6(fragment(0, true)), Ok(0)),
    ] {
        assert_eq!(quoting(&packet.emit().unwrap()).map(|tcp| tcp.seq.value()), error);
    }
    assert_eq!(
        IcmpError::quoting(Unreachable::Host, &Bytes::from_static(b"P")),
        Err(ParseError::Version { version: 5 })
    );
    let empty = IcmpError::quoting(Unreachable::Host, &Bytes::new());
    assert_eq!(empty, Err(ParseError::Truncated { layer: Layer::Ipv4, needed: 1, have: 0 }));
}

fn fragment(offset: u16, more: bool) -> Payload {
    Payload::Fragment(Fragment { id: 7, offset, more, protocol: 6, payload: Bytes::from_static(&[0; 16]) })
}

#[test]
fn an_error_quotes_as_much_as_its_family_allows() {
    let long = Segment { payload: Bytes::from_static(&[7; 1400]), ..full_segment() };
    for (packet, len) in [(v4(long.clone()), 548), (v6(long), 1232), (v4(full_segment()), 56), (v6(full_segment()), 76)]
    {
        let bytes = packet.emit().unwrap();
        let error = IcmpError::quoting(Unreachable::Host, &bytes).unwrap();
        assert_eq!(error.quote, bytes[..len]);
        assert_eq!(IcmpError::quoting_packet(Unreachable::Host, &packet), Ok(error.clone()));
        let quoted = error.quoted_tcp().unwrap();
        assert_eq!((quoted.src, quoted.dst), (packet.src, packet.dst));
        assert_eq!((quoted.src_port, quoted.dst_port, quoted.seq), (40_000, 80, full_segment().seq));
        let whole = Packet::new(packet.dst, packet.src, error);
        assert!(whole.wire_len() <= if packet.dst.is_ipv4() { 576 } else { 1280 });
        assert_eq!(Packet::parse(whole.emit().unwrap()), Ok(whole));
    }
}

#[test]
fn extensions_of_an_icmp_error_are_not_part_of_the_quote() {
    let quote = Bytes::from_static(&[0x45; 136]);
    for (packet, at, units) in [
        (v4(IcmpError { kind: Unreachable::Host, quote: quote.clone() }), 25, 32),
        (v6(IcmpError { kind: Unreachable::Host, quote }), 44, 16),
    ] {
        // 128 bytes of quote and 8 of extensions; apart from the length only the checksum changes.
        let mut bytes = BytesMut::from(packet.emit().unwrap());
        bytes[at] = units;
        let read = Packet::parse_with(bytes.freeze(), Checksums::Ignore).unwrap();
        let Payload::IcmpError(error) = read.payload else { panic!("an ICMP error") };
        assert_eq!(error.quote.len(), 128);
    }
}

#[test]
fn values_that_have_no_bytes_are_refused_and_leave_the_buffer_alone() {
    let too_many = TcpOptions::from(RareOptions {
        experimental: Some(
            [Experimental { second_kind: false, id: ExperimentalId::Short(1), data: Bytes::from_static(&[0; 37]) }]
                .into(),
        ),
        ..RareOptions::default()
    });
    let long = Bytes::from_static(&[0; 65_536]);
    for (packet, error) in [
        (Packet::new(V4.0, V6.1, udp()), EmitError::MixedFamilies { src: V4.0, dst: V6.1 }),
        (Packet::new(V6.0, V4.1, full_segment()), EmitError::MixedFamilies { src: V6.0, dst: V4.1 }),
        (v4(Segment { options: too_many, ..full_segment() }), EmitError::OptionsTooLong { len: 44 }),
        (v4(Payload::Esp(long.slice(..65_516))), EmitError::TooLong { len: 65_536, max: 65_535 }),
        (v6(Payload::Esp(long.clone())), EmitError::TooLong { len: 65_576, max: 65_575 }),
        (v4(Udp { payload: long, ..udp() }), EmitError::TooLong { len: 65_564, max: 65_535 }),
        (v4(fragment(9, true)), EmitError::FragmentOffset { offset: 9 }),
        (v6(fragment(9, true)), EmitError::FragmentOffset { offset: 9 }),
        (v6(fragment(0, false)), EmitError::FragmentIsWhole),
        (
            v4(Payload::Fragment(Fragment { id: 65_536, offset: 8, more: true, protocol: 6, payload: Bytes::new() })),
            EmitError::FragmentId { id: 65_536 },
        ),
        (
            v4(IcmpError { kind: Unreachable::PacketTooBig { mtu: 65_536 }, quote: Bytes::new() }),
            EmitError::IcmpMtu { mtu: 65_536 },
        ),
        (
            v4(IcmpError { kind: Unreachable::ParameterProblem { code: 0, pointer: 256 }, quote: Bytes::new() }),
            EmitError::IcmpPointer { pointer: 256 },
        ),
    ] {
        let mut buf = BytesMut::from(&b"before"[..]);
        assert_eq!(packet.emit_into(&mut buf), Err(error));
        assert_eq!(&buf[..], b"before");
        assert!(!error.to_string().is_empty());
    }
}

#[test]
fn the_longest_packets_fit() {
    let long = Bytes::from_static(&[0; 65_535]);
    for packet in [v4(Payload::Esp(long.slice(..65_515))), v6(Payload::Esp(long))] {
        assert_eq!(Packet::parse(packet.emit().unwrap()), Ok(packet));
    }
}

#[test]
fn reserved_bits_are_ignored_and_accurate_ecn_is_not() {
    let segment = Segment { flags: Flags::AE | Flags::SYN, ..full_segment() };
    let mut bytes = BytesMut::from(v4(segment.clone()).emit().unwrap());
    bytes[32] |= 0x0e;
    let read = Packet::parse_with(bytes.freeze(), Checksums::Ignore);
    assert_eq!(read, Ok(v4(segment)));
}
