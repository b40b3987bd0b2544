//! Packets to bytes and back.

use std::process::Command;

use bytes::Bytes;
use holdover_base::Instant;
use holdover_hip::codec::{
    BuildError, Builder, CandidateKind, DecodeError, DomainId, HEADER_LEN, HipPacket, HostId, Locator, LocatorKind,
    LocatorTraffic, NatTraversalMode, NotifyType, PROTOCOL, PacketType, Parameter, PeerPermission, R1Counter,
    RelayAddress, TransportAddress, kind,
};
use holdover_hip::fuzz;
use holdover_hip::identity::Hit;
use holdover_wire::{Packet, Payload, pcap, transport_checksum};
use proptest::collection::vec;
use proptest::prelude::*;

use crate::support::{address, every_parameter, hit, unhex};

fn pair() -> (Hit, Hit) {
    (hit("2001:21::1"), hit("2001:22::2"))
}

fn emit(packet: &HipPacket) -> Packet {
    packet.emit(address("192.0.2.1"), address("198.51.100.2")).unwrap()
}

fn payload(packet: &Packet) -> Vec<u8> {
    let Payload::Other { protocol: PROTOCOL, payload } = &packet.payload else { panic!("no HIP packet") };
    payload.to_vec()
}

/// The packet with other bytes, and a valid checksum if `sum`.
fn with_payload(packet: &Packet, mut bytes: Vec<u8>, sum: bool) -> Packet {
    if sum && bytes.len() >= HEADER_LEN {
        bytes[4..6].fill(0);
        let len = ((usize::from(bytes[1]) + 1) * 8).min(bytes.len());
        let sum = transport_checksum(packet.src, packet.dst, PROTOCOL, &bytes[..len]);
        bytes[4..6].copy_from_slice(&sum.to_be_bytes());
    }
    Packet { payload: Payload::Other { protocol: PROTOCOL, payload: bytes.into() }, ..packet.clone() }
}

fn with_parameters(kind: PacketType, parameters: Vec<Parameter>) -> HipPacket {
    HipPacket { parameters, ..HipPacket::new(kind, pair().0, pair().1) }
}

fn counter(counter: u64) -> Parameter {
    Parameter::R1Counter(R1Counter::new(counter))
}

/// The parameters of `hex`, after the header of an UPDATE.
fn parse_hex(hex: &str) -> Result<Vec<Parameter>, DecodeError> {
    let empty = emit(&HipPacket::new(PacketType::Update, pair().0, pair().1));
    let mut bytes = payload(&empty);
    bytes.extend(unhex(hex));
    bytes[1] = (bytes.len() / 8 - 1) as u8;
    HipPacket::parse(&with_payload(&empty, bytes, true)).map(|received| received.packet.parameters)
}

// Claim: Every packet type and parameter survives encoding and decoding, with fixed and random values; headers, lengths, order
// and repetition are checked; an unknown parameter is skipped or refused according to its critical bit.
// Tests: `codec::the_bytes_of_a_packet`, `codec::packets_survive_the_wire`, `codec::headers_that_are_refused`,
// `codec::parameters_that_are_refused`, `codec::unknown_parameters_by_the_critical_bit`, `codec::from_may_be_repeated`,
// `codec::a_name_has_a_type`
#[test]
fn every_parameter_survives_the_wire() {
    let all = every_parameter();
    for (index, packet_type) in PacketType::ALL.into_iter().enumerate() {
        let packet = with_parameters(packet_type, all[..all.len() - index].to_vec());
        assert_eq!(HipPacket::parse(&emit(&packet)).unwrap().packet, packet);
    }
    let v6 = with_parameters(PacketType::R1, all).emit(address("2001:db8::1"), address("2001:db8::2")).unwrap();
    assert!(HipPacket::parse(&Packet::parse(v6.emit().unwrap()).unwrap()).is_ok(), "through bytes of IPv6");
}

/// Computed by hand from the formats of RFC 7401 section 5.1, 5.2.3 and 5.2.6.
#[test]
fn the_bytes_of_a_packet() {
    let packet = with_parameters(PacketType::I1, vec![counter(258), Parameter::DhGroupList(vec![7, 4])]);
    let bytes = payload(&emit(&packet));
    let expected = "3b 07 01 21 xxxx 0000
        20010021000000000000000000000001 20010022000000000000000000000002
        0081 000c 00000000 0000000000000102
        01ff 0002 0704 0000";
    let sum = format!("{:02x}{:02x}", bytes[4], bytes[5]);
    assert_eq!(bytes, unhex(&expected.replace("xxxx", &sum)));
}

/// RFC 7401 appendices C.1 and C.2.
// Claim: The checksums of RFC 7401 appendix C, and the figures of RFC 9028 section 5.
// Tests: `codec::the_checksum_of_tcp_between_hits`, `codec::the_layouts_of_relaying`
#[test]
fn the_checksums_of_the_rfc() {
    let mut i1 = HipPacket::new(PacketType::I1, hit("2001:20::1"), hit("2001:20::2"));
    i1.parameters = vec![Parameter::DhGroupList(vec![3, 4, 8])];
    for (src, dst, sum) in [("2001:db8::1", "2001:db8::2", 0x1a5e_u16), ("192.0.2.1", "192.0.2.2", 0xf1ce)] {
        let bytes = payload(&i1.emit(address(src), address(dst)).unwrap());
        let expected = format!(
            "3b 05 01 21 {sum:04x} 0000
            20010020000000000000000000000001 20010020000000000000000000000002
            01ff 0003 030408 00"
        );
        assert_eq!(bytes, unhex(&expected));
    }
}

/// RFC 7401 appendix C.3: TCP's checksum has a pseudo-header with HITs.
#[test]
fn the_checksum_of_tcp_between_hits() {
    let segment = unhex("ffdc 0016 00000001 00000000 50 02 ffff 0000 0000");
    assert_eq!(transport_checksum(address("2001:20::1"), address("2001:20::2"), 6, &segment), 0x6faa);
}

/// By hand from the figures of RFC 9028 section 5, with lengths of section 8.
#[test]
fn the_layouts_of_relaying() {
    let at = RelayAddress { port: 0x2904, protocol: 17, address: "::ffff:192.0.2.7".parse().unwrap() };
    let transport = "2904 11 00 00000000000000000000ffffc0000207";
    let permission = PeerPermission {
        relayed_port: 0x2904,
        relayed: at.address,
        peer_port: 0x9c40,
        peer: "2001:db8::1".parse().unwrap(),
        protocol: 17,
        outbound_spi: 0x0102_0304,
        inbound_spi: 0x0506_0708,
    };
    let candidate = TransportAddress {
        port: 0x2904,
        protocol: 17,
        kind: CandidateKind::Relayed,
        priority: 0x0001_0203,
        spi: 0x0a0b_0c0d,
        address: at.address,
    };
    let kind = LocatorKind::Transport(candidate);
    let locator = Locator { traffic: LocatorTraffic::Both, preferred: true, lifetime_s: 60, kind };
    let modes = [NatTraversalMode::UdpEncapsulation, NatTraversalMode::IceStunUdp, NatTraversalMode::IceHipUdp];
    for (hex, parameter) in [
        (
            "0260 0008 0000 0001 0002 0003 00000000".to_owned(),
            Parameter::NatTraversalMode(modes.map(|it| it.id()).to_vec()),
        ),
        ("0262 0004 00000032".to_owned(), Parameter::TransactionPacing(50)),
        (format!("03b6 0014 {transport}"), Parameter::RegFrom(at)),
        (format!("122a 0014 {transport}"), Parameter::RelayedAddress(at)),
        (format!("1234 0014 {transport}"), Parameter::MappedAddress(at)),
        (
            "1248 0030 2904 9c40 11 000000 00000000000000000000ffffc0000207 20010db8000000000000000000000001
             01020304 05060708 00000000"
                .to_owned(),
            Parameter::PeerPermission(permission),
        ),
        ("125c 0004 00010203".to_owned(), Parameter::CandidatePriority(0x0001_0203)),
        ("1266 0004 00000000".to_owned(), Parameter::Nominate),
        (format!("f9fe 0014 {transport}"), Parameter::RelayFrom(at)),
        (format!("fa02 0014 {transport}"), Parameter::RelayTo(at)),
        (
            "00c1 0024 00 02 07 01 0000003c 2904 11 03 00010203 0a0b0c0d 00000000000000000000ffffc0000207".to_owned(),
            Parameter::LocatorSet(vec![locator]),
        ),
    ] {
        assert_eq!(parse_hex(&hex), Ok(vec![parameter.clone()]));
        let mut written = Vec::new();
        parameter.put(&mut written).unwrap();
        assert_eq!(written, unhex(&hex), "{parameter:?}");
    }
    for (kind, hex) in [
        (kind::RELAYED_ADDRESS, "122a 0013 2904 11 00 00000000000000000000ffffc00002 00"),
        (kind::CANDIDATE_PRIORITY, "125c 0002 0001 0000"),
        (kind::NOMINATE, "1266 0000 00000000"),
        (kind::PEER_PERMISSION, "1248 0004 29049c40"),
        (kind::LOCATOR_SET, "00c1 000c 00 02 01 01 0000003c 2904 11 03"),
    ] {
        assert!(matches!(parse_hex(hex), Err(DecodeError::Parameter { kind: it, .. }) if it == kind), "{hex}");
    }
    assert_eq!(NotifyType::NO_VALID_NAT_TRAVERSAL_MODE_PARAMETER.to_string(), "NO_VALID_NAT_TRAVERSAL_MODE_PARAMETER");
    assert_eq!(
        (NotifyType(60), NotifyType(9).to_string()),
        (NotifyType::NO_VALID_NAT_TRAVERSAL_MODE_PARAMETER, "NOTIFY type 9".to_owned())
    );
}

/// RFC 8004 section 4.2.2: each server on the way adds its FROM.
#[test]
fn from_may_be_repeated() {
    let from = "ffda 0010 00000000000000000000ffffc0000207 00000000";
    assert_eq!(parse_hex(&format!("{from} {from}")).map(|parameters| parameters.len()), Ok(2));
}

/// RFC 7401 section 5.2.9: without a type, a domain identifier has no length. Such a packet is not sent, and is accepted.
#[test]
fn a_name_has_a_type() {
    let host_id = |kind, id: &'static [u8]| {
        let domain = DomainId { kind, id: Bytes::from_static(id) };
        let identity = Bytes::from_static(&[0; 4]);
        Parameter::HostId(HostId { algorithm: 13, identity, domain }).put(&mut Vec::new())
    };
    assert_eq!((host_id(0, b""), host_id(1, b"\0")), (Ok(()), Ok(())));
    assert_eq!(host_id(0, b"a"), Err(BuildError::Field { kind: kind::HOST_ID }));
    let named = "02c1 0009 0002 0001 000d 0102 61 000000";
    assert!(parse_hex(&named.replace("0001 000d", "1001 000d")).is_ok());
    let parameters = parse_hex(named).unwrap();
    let [Parameter::HostId(untyped)] = &parameters[..] else { panic!("{parameters:?}") };
    assert_eq!(untyped.domain, DomainId { kind: 0, id: Bytes::from_static(b"a") });
    let mac = Parameter::HipMac2(Bytes::from_static(&[1; 32]));
    let r2 = HipPacket::parse(&emit(&with_parameters(PacketType::R2, vec![mac]))).unwrap();
    let covered = r2.covered_by_mac_2(untyped).unwrap();
    assert_eq!(covered[HEADER_LEN..], unhex(named), "its MAC covers it as it came");
}

#[test]
fn headers_that_are_refused() {
    let whole = emit(&with_parameters(PacketType::I1, vec![Parameter::DhGroupList(vec![7])]));
    let parse = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = payload(&whole);
        change(&mut bytes);
        HipPacket::parse(&with_payload(&whole, bytes, true)).map(|_| ())
    };
    assert_eq!(parse(&|_| ()), Ok(()));
    assert_eq!(parse(&|bytes| bytes.extend([1, 2, 3])), Ok(()), "bytes behind the packet are ignored");
    assert_eq!(parse(&|bytes| bytes[0] = 6), Ok(()), "so is the next header");
    assert_eq!(parse(&|bytes| bytes[3] |= 0x0e), Ok(()), "and the reserved bits");
    assert_eq!(parse(&|bytes| bytes.truncate(39)), Err(DecodeError::Truncated { needed: HEADER_LEN, have: 39 }));
    assert_eq!(parse(&|bytes| bytes.truncate(40)), Err(DecodeError::Truncated { needed: 48, have: 40 }));
    assert_eq!(parse(&|bytes| bytes[1] = 3), Err(DecodeError::HeaderLength { len: 32 }));
    assert_eq!(parse(&|bytes| bytes[3] = 0x11), Err(DecodeError::Version { version: 1 }));
    assert_eq!(parse(&|bytes| bytes[3] = 0x20), Ok(()), "RFC 7401 section 5.1: fixed bits are ignored");
    assert_eq!(parse(&|bytes| bytes[2] |= 0x80), Ok(()), "both of them");
    assert_eq!(parse(&|bytes| bytes[2] = 5), Err(DecodeError::PacketType { kind: 5 }));
    let mut bytes = payload(&whole);
    bytes[10] ^= 1;
    assert_eq!(HipPacket::parse(&with_payload(&whole, bytes, false)), Err(DecodeError::Checksum));
    let udp = Packet { payload: Payload::Other { protocol: 17, payload: Bytes::new() }, ..whole };
    assert_eq!(HipPacket::parse(&udp), Err(DecodeError::NotHip));
}

#[test]
fn parameters_that_are_refused() {
    let malformed = |kind, len| Err(DecodeError::Parameter { kind, len });
    // SEQ of 4 bytes, then ACK; in reverse order; twice; and two unsigned echo requests, which may be repeated.
    assert_eq!(
        parse_hex("0181 0004 00000001 01c1 0004 00000002"),
        Ok(vec![Parameter::Seq(1), Parameter::Ack(vec![2])])
    );
    assert_eq!(
        parse_hex("01c1 0004 00000002 0181 0004 00000001"),
        Err(DecodeError::Order { kind: kind::SEQ, after: kind::ACK })
    );
    assert_eq!(parse_hex("0181 0004 00000001 0181 0004 00000001"), Err(DecodeError::Repeated { kind: kind::SEQ }));
    assert_eq!(parse_hex("f8ad 0001 01000000 f8ad 0001 02000000").map(|parameters| parameters.len()), Ok(2));
    assert_eq!(parse_hex("0181 0003 00000100"), malformed(kind::SEQ, 3));
    assert_eq!(parse_hex("01c1 0000 00000000"), malformed(kind::ACK, 0));
    assert_eq!(parse_hex("01c1 0006 0000000100020000 00000000"), malformed(kind::ACK, 6));
    assert_eq!(parse_hex("0181 0005 00000001"), Err(DecodeError::Truncated { needed: 16, have: 8 }));
    // A locator that announces more words than there are, and one of type 1 without its SPI.
    assert_eq!(parse_hex("00c1 0008 00010500 00000001 00000000"), malformed(kind::LOCATOR_SET, 8));
    let no_spi = format!("00c1 0018 00010400 00000001 {} 00000000", "00".repeat(16));
    assert_eq!(parse_hex(&no_spi), malformed(kind::LOCATOR_SET, 24));
    // SOLUTION whose #I and #J differ in length, HOST_ID that is longer than its fields indicate, DIFFIE_HELLMAN that is shorter.
    assert_eq!(parse_hex("0141 0007 0a000102 010203 0000000000"), malformed(kind::SOLUTION, 7));
    assert_eq!(parse_hex("02c1 0008 0001 0000 000d 0102 00000000"), malformed(kind::HOST_ID, 8));
    assert_eq!(parse_hex("0201 0004 070002 01"), malformed(kind::DIFFIE_HELLMAN, 4));
    assert_eq!(parse_hex("0ff f0003 000000 00".replace(' ', "").as_str()), malformed(kind::ESP_TRANSFORM, 3));
}

/// RFC 7401 section 5.2.1: the lowest bit of a type marks it as critical.
#[test]
fn unknown_parameters_by_the_critical_bit() {
    assert_eq!(parse_hex("03e9 0001 aa000000"), Err(DecodeError::Critical { kind: 1001 }));
    let skipped = Parameter::Unknown { kind: 1000, contents: Bytes::from_static(&[0xaa]) };
    assert_eq!(parse_hex("03e8 0001 aa000000"), Ok(vec![skipped]));
}

#[test]
fn a_builder_keeps_the_order_and_the_length() {
    let mut builder = Builder::new(PacketType::Update, pair().0, pair().1);
    builder.push(&Parameter::Ack(vec![1])).unwrap();
    let order = BuildError::Order { kind: kind::SEQ, after: kind::ACK };
    assert_eq!(builder.push(&Parameter::Seq(1)), Err(order));
    let too_long = Parameter::EchoRequestSigned(vec![0; 2000].into());
    assert_eq!(builder.push(&too_long), Err(BuildError::TooLong { len: 48 + 2008 }));
    builder.push(&Parameter::EchoRequestSigned(vec![0; 1988].into())).unwrap();
    assert_eq!(builder.covered().len(), 2040);
    let (src, dst) = (address("192.0.2.1"), address("192.0.2.2"));
    let received = HipPacket::parse(&builder.finish(src, dst)).unwrap();
    assert_eq!(received.packet.parameters.len(), 2);
}

/// A MAC covers the same bytes on both sides.
#[test]
fn both_sides_compute_the_mac_over_the_same_bytes() {
    let mut builder = Builder::new(PacketType::Update, pair().0, pair().1);
    builder.push(&Parameter::Seq(1)).unwrap();
    let covered = builder.covered().to_vec();
    builder.push(&Parameter::HipMac(Bytes::from_static(&[7; 32]))).unwrap();
    let signed = builder.covered().to_vec();
    builder.push(&Parameter::EchoRequestUnsigned(Bytes::from_static(b"later"))).unwrap();
    let received = HipPacket::parse(&builder.finish(address("192.0.2.1"), address("192.0.2.2"))).unwrap();
    assert_eq!(received.covered_before(kind::HIP_MAC), Some(covered));
    assert_eq!(received.covered_before(kind::ECHO_REQUEST_UNSIGNED), Some(signed));
    assert_eq!(received.covered_before(kind::HIP_SIGNATURE), None);
}

/// An R1 is signed before its receiver and its puzzle are known (RFC 7401 section 5.2.15).
#[test]
fn a_signature_2_leaves_the_receiver_and_the_puzzle_open() {
    let puzzle = every_parameter()
        .into_iter()
        .find_map(|parameter| if let Parameter::Puzzle(puzzle) = parameter { Some(puzzle) } else { None })
        .unwrap();
    let mut open = puzzle.clone();
    (open.opaque, open.random) = ([0; 2], Bytes::from(vec![0; puzzle.random.len()]));
    let mut builder = Builder::new(PacketType::R1, pair().0, Hit::UNSPECIFIED);
    builder.push(&counter(9)).unwrap();
    builder.push(&Parameter::Puzzle(open)).unwrap();
    let covered = builder.covered().to_vec();
    let signature = every_parameter().into_iter().find(|p| p.kind() == kind::HIP_SIGNATURE_2).unwrap();
    builder.push(&signature).unwrap();
    builder.address_to(pair().1, &puzzle);
    let received = HipPacket::parse(&builder.finish(address("192.0.2.1"), address("192.0.2.2"))).unwrap();
    assert_eq!(received.packet.receiver, pair().1);
    assert!(received.packet.parameters.contains(&Parameter::Puzzle(puzzle)));
    assert_eq!(received.covered_by_signature_2(), Some(covered));
}

/// Wireshark's dissector knows HIPv1's registries and reports newer values as unknown; it must not report anything as malformed, and must
/// agree with every checksum.
// Claim: Wireshark finds no malformed packet and no wrong checksum, in single packets and in whole associations, and decrypts ESP
// of every suite.
// Tests: `base_exchange::tshark_finds_no_malformed_packet_in_an_association`, `esp::tshark_decrypts`
#[test]
fn tshark_finds_no_malformed_packet() {
    if Command::new("tshark").arg("--version").output().is_err() {
        println!("tshark is not installed: skipped");
        return;
    }
    let mut capture = pcap::Writer::new(Vec::new(), 65_535).unwrap();
    let mut count = 0;
    for packet_type in PacketType::ALL {
        for (src, dst) in [("192.0.2.1", "198.51.100.2"), ("2001:db8::1", "2001:db8::2")] {
            let packet = with_parameters(packet_type, realistic_parameters());
            capture.write(Instant::ZERO, &packet.emit(address(src), address(dst)).unwrap()).unwrap();
            count += 1;
        }
    }
    let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("hip-codec.pcap");
    std::fs::write(&path, capture.into_inner()).unwrap();
    let filter = |filter: &str| {
        let output = Command::new("tshark").arg("-r").arg(&path).args(["-Y", filter]).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().lines().count()
    };
    assert_eq!(filter("hip && !_ws.malformed"), count);
    assert_eq!(filter("hip.checksum.status == \"Good\" || hip.checksum.status == 1"), count);
    assert_eq!(filter("hip.proto == 59"), count);
}

/// Parameters except those that HIPv1 had in another format.
fn realistic_parameters() -> Vec<Parameter> {
    every_parameter().into_iter().filter(|parameter| !matches!(parameter, Parameter::Unknown { .. })).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]

    /// Any combination of parameters can be emitted and parsed.
    #[test]
    fn packets_survive_the_wire(
        chosen in vec(any::<bool>(), every_parameter().len()),
        index in 0..PacketType::ALL.len(),
        controls in any::<u16>(),
        opaque in vec(any::<u8>(), 0..40),
    ) {
        let mut parameters = every_parameter();
        let mut keep = chosen.into_iter();
        parameters.retain(|_| keep.next().unwrap());
        for parameter in &mut parameters {
            if let Parameter::EchoRequestSigned(data) | Parameter::HipMac(data) = parameter {
                *data = Bytes::from(opaque.clone());
            }
        }
        let packet = HipPacket { controls, ..with_parameters(PacketType::ALL[index], parameters) };
        prop_assert_eq!(HipPacket::parse(&emit(&packet)).unwrap().packet, packet);
    }

    /// Any bytes after a header are parameters or an error.
    // Claim: Any bytes are parsed as a packet or an error.
    // Tests: `damage_to_the_corpus_never_panics`
    #[test]
    fn any_bytes_are_packets_or_errors(bytes in vec(any::<u8>(), 0..300)) {
        fuzz::parse_any(&bytes);
        let mut packet = payload(&emit(&HipPacket::new(PacketType::Update, pair().0, pair().1)));
        packet.extend(&bytes);
        packet.resize(packet.len().next_multiple_of(8), 0);
        packet[1] = (packet.len() / 8 - 1) as u8;
        fuzz::parse_any(&packet);
    }
}
