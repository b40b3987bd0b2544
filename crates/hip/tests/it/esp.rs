//! ESP in BEET mode: sealing, opening, the replay window, and 64-bit sequence numbers.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use bytes::Bytes;
use holdover_base::Instant;
use holdover_hip::crypto::{DhGroup, DhKeyPair, Keymat, Rhash};
use holdover_hip::esp::{
    EspKeys, EspSuite, GcmProvider, Inbound, OpenError, Outbound, ReplayWindow, SealError, esp_sa,
};
use holdover_hip::identity::Hit;
use holdover_wire::{Checksums, Flags, Packet, Payload, Segment, Seq, Udp, pcap, transport_checksum};
use proptest::collection::vec;
use proptest::prelude::*;

use crate::support::{hit, seeded, unhex, value_of};

const SPI: u32 = 0x1234_5678;

fn hits() -> (Hit, Hit) {
    (hit("2001:25::1"), hit("2001:25::2"))
}

fn keymat() -> Keymat {
    let mut rng = seeded(1);
    let pair = DhKeyPair::generate(DhGroup::P256, &mut rng);
    let secret = pair.agree(&pair.public()).unwrap();
    Keymat::new(Rhash::Sha256, secret, hits().0, hits().1, &[1], &[2])
}

/// Both ends of packets from the first host to the second.
fn pair(suite: EspSuite) -> (Outbound, Inbound) {
    let ((one, other), gcm) = (hits(), GcmProvider::default());
    let (outbound, _) = EspKeys::draw(suite, &keymat(), 100, one, other).unwrap();
    let (_, inbound) = EspKeys::draw(suite, &keymat(), 100, other, one).unwrap();
    (Outbound::new(SPI, outbound, gcm, one, other), Inbound::new(SPI, inbound, gcm, other, one))
}

fn packet(payload: impl Into<Payload>) -> Packet {
    let (one, other) = hits();
    Packet { ttl: 61, traffic_class: 0x2e << 2, ..Packet::new(one.0.into(), other.0.into(), payload) }
}

#[test]
fn packets_come_out_as_they_went_in() {
    for suite in EspSuite::ALL {
        let (mut outbound, mut inbound) = pair(suite);
        let mut rng = seeded(2);
        let segment = Segment {
            src_port: 40_000,
            dst_port: 22,
            seq: Seq::new(7),
            flags: Flags::ACK,
            payload: Bytes::from_static(b"ls\n"),
            ..Segment::default()
        };
        let udp = |len| Udp { src_port: 1, dst_port: 2, payload: Bytes::from(vec![9; len]) };
        let mut packets = vec![packet(segment)];
        packets.extend((0..40).map(|len| packet(udp(len))));
        packets.push(packet(udp(60_000)));
        packets.push(packet(Payload::Other { protocol: 253, payload: Bytes::new() }));
        for inner in packets {
            let esp = outbound.seal(&inner, &mut rng).unwrap();
            assert_eq!(esp[..4], SPI.to_be_bytes());
            assert_eq!(esp.len() % 4, 0, "RFC 4303 section 2.4");
            let came = inbound.open(&esp, 61, 0x2e << 2).unwrap();
            assert_eq!((came.emit(), value_of(came)), (inner.emit(), inner), "{suite:?}");
        }
        assert_eq!(outbound.packets(), 43);
    }
}

/// Only NULL does not encrypt the payload.
#[test]
fn payload_is_hidden() {
    for suite in EspSuite::ALL {
        let (mut outbound, _) = pair(suite);
        let esp = outbound.seal_payload(253, &[0xaa; 64], &mut seeded(3)).unwrap();
        let shows = esp.windows(16).any(|window| window == [0xaa; 16]);
        assert_eq!(shows, suite == EspSuite::NullHmacSha256);
        let again = outbound.seal_payload(253, &[0xaa; 64], &mut seeded(3)).unwrap();
        assert_ne!(esp[8..], again[8..], "{suite:?}: never the same twice");
    }
}

#[test]
fn packets_of_others_are_not_sealed() {
    let (mut outbound, mut inbound) = pair(EspSuite::Aes128Gcm16);
    let (one, other) = hits();
    let back = Packet::new(other.0.into(), one.0.into(), Payload::Other { protocol: 253, payload: Bytes::new() });
    assert_eq!(outbound.seal(&back, &mut seeded(4)), Err(SealError::Addresses));
    let mut used_up = outbound.clone().resumed_at(u64::MAX);
    assert_eq!(used_up.seal_payload(6, b"", &mut seeded(4)), Err(SealError::Exhausted));
    for len in [0, 7, 8, 33] {
        assert_eq!(inbound.open_payload(&vec![0; len]), Err(OpenError::Length { len }));
    }
    let mut esp = outbound.seal_payload(6, b"", &mut seeded(4)).unwrap().to_vec();
    esp[0] ^= 1;
    assert!(matches!(inbound.open_payload(&esp), Err(OpenError::Spi { .. })));
}

/// The lower half wraps; the upper half is authenticated although it is not sent.
#[test]
fn sequence_numbers_of_64_bits() {
    for suite in EspSuite::ALL {
        let (outbound, mut inbound) = pair(suite);
        let mut outbound = outbound.resumed_at((1 << 32) - 3);
        let mut rng = seeded(5);
        let mut sealed: Vec<Bytes> =
            (0..6_u8).map(|byte| outbound.seal_payload(6, &[byte], &mut rng).unwrap()).collect();
        assert_eq!(sealed[2][4..8], [0; 4], "2^32");
        sealed.swap(1, 4);
        for esp in &sealed {
            let (_, payload) = inbound.open_payload(esp).unwrap();
            assert_eq!(payload.len(), 1);
        }
        for esp in &sealed {
            assert!(matches!(inbound.open_payload(esp), Err(OpenError::Replay { .. })), "{suite:?}");
        }
        // 2^32 packets later the same lower half is another packet; with its former upper half it is not authentic.
        let mut older = pair(suite).0.resumed_at(4);
        assert_eq!(inbound.open_payload(&older.seal_payload(6, b"x", &mut rng).unwrap()), Err(OpenError::Integrity));
    }
}

/// The bytes of each suite, computed in Python with the crate `cryptography` from RFC 4303, RFC 4106 and RFC 4868: keys, and the
/// packet with sequence number 0x500000007, whose upper half is authenticated and not sent.
// Claim: ESP returns the original packets; damage, truncation, repetition and strangers' packets are errors; the sequence number
// passes 2^32, and its upper half is authenticated; the bytes equal those of an independent computation.
// Tests: `esp::packets_come_out_as_they_went_in`, `esp::bytes_come_out_as_they_went_in`, `esp::damage_is_noticed`,
// `esp::any_bytes_are_an_error`, `esp::sequence_numbers_of_64_bits`, `esp::the_window_is_a_set`
#[test]
fn bytes_of_every_suite() {
    let authentication = "ad094ab0384e136b7a3189871e999821111e666a064857faa1c1224d7290bae1";
    for (suite, encryption, authentication, expected) in [
        (
            EspSuite::Aes128Gcm16,
            "eabd552d0339ca4309c4a48bfc6844e23b68ba21",
            "",
            "12345678 00000007 0000000500000007 83f869dbcdb53c94c8d8eb85 4acd91331e7b4e88fb6836eb359bdef9",
        ),
        (
            EspSuite::Aes256CbcHmacSha256,
            authentication,
            "9981ffdc647f19db4ac9a5052f245566e060bd2e3b918236e90863bb599d2f53",
            "12345678 00000007 42c9e0a773bc56363225d821d9558e42 31621974974c5a3a7e677a9710c05b1d
             f795552adb7476e89b86a9a8e23b4f8d",
        ),
        (
            EspSuite::Aes128CbcHmacSha256,
            "1d04245aa5eab6e8440556f0de9a6d5a",
            authentication,
            "12345678 00000007 42c9e0a773bc56363225d821d9558e42 520fecab2c059473128d5eabd6656ba9
             ed2009cdb0ea0f4b2dcf7a6664f816d0",
        ),
        (
            EspSuite::NullHmacSha256,
            "",
            "fc6844e23b68ba2193e05194c816c7d21d04245aa5eab6e8440556f0de9a6d5a",
            "12345678 00000007 686f6c646f766572 0102 02fd f3c31577ff71e6a88777d3b53b126820",
        ),
    ] {
        let (encryption, authentication) = (unhex(encryption).into(), unhex(authentication).into());
        let keys = EspKeys { suite, encryption, authentication };
        let mut outbound =
            Outbound::new(SPI, keys, GcmProvider::default(), hits().0, hits().1).resumed_at(0x5_0000_0006);
        // The Python computation used the initialization vector that this seed generates.
        let esp = outbound.seal_payload(253, b"holdover", &mut seeded(9)).unwrap();
        assert_eq!(esp[..], unhex(expected), "{suite:?}");
    }
}

/// Wireshark decrypts every suite with the keys of the association and finds the UDP datagram. The integrity check value is not
/// compared: versions up to 4.0 do not know 64-bit sequence numbers.
#[test]
fn tshark_decrypts() {
    if Command::new("tshark").arg("--version").output().is_err() {
        println!("tshark is not installed: skipped");
        return;
    }
    for suite in EspSuite::ALL {
        let (mut outbound, _) = pair(suite);
        let datagram = Udp { src_port: 4000, dst_port: 4242, payload: Bytes::from_static(b"holdover") };
        let (src_port, dst_port, flags) = (4001, 4242, Flags::ACK);
        let segment = Segment { src_port, dst_port, flags, payload: Bytes::from_static(b"odd"), ..Segment::default() };
        let (one, other) = hits();
        let mut capture = pcap::Writer::new(Vec::new(), 65_535).unwrap();
        // Wireshark sums over the outer addresses, and a sender in BEET mode over the HITs: here both are the same.
        let mut write =
            |esp| capture.write(Instant::ZERO, &Packet::new(one.0.into(), other.0.into(), Payload::Esp(esp)));
        for inner in [packet(datagram.clone()), packet(segment.clone()), packet(segment.clone())] {
            write(outbound.seal(&inner, &mut seeded(8)).unwrap()).unwrap();
        }
        // The checksum does not cover the last byte.
        let mut damaged = packet(segment).emit().unwrap()[40..].to_vec();
        *damaged.last_mut().unwrap() ^= 1;
        write(outbound.seal_payload(6, &damaged, &mut seeded(8)).unwrap()).unwrap();
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("esp-{}.pcap", suite.id()));
        std::fs::write(&path, capture.into_inner()).unwrap();
        let lines = esp_sa(SPI, outbound.keys());
        let association = format!("uat:esp_sa:{}", lines.lines().find(|line| line.starts_with("\"IPv6")).unwrap());
        let output = Command::new("tshark")
            .arg("-r")
            .arg(&path)
            .args(["-o", "esp.enable_encryption_decode:TRUE", "-o", &association])
            .args(["-o", "tcp.check_checksum:TRUE", "-o", "udp.check_checksum:TRUE"])
            .args([
                "-T",
                "fields",
                "-E",
                "separator=,",
                "-e",
                "udp.dstport",
                "-e",
                "udp.length",
                "-e",
                "udp.checksum.status",
            ])
            .args(["-e", "tcp.dstport", "-e", "tcp.len", "-e", "tcp.checksum.status"])
            .output()
            .unwrap();
        let (found, error) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        // Status 1 is good, 0 is bad.
        let expected = ["4242,16,1,,,", ",,,4242,3,1", ",,,4242,3,1", ",,,4242,3,0"];
        assert_eq!(found.lines().collect::<Vec<_>>(), expected, "{suite:?}: {error}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    /// Bytes without a field in the parsed value (unknown options, reserved bits, extension headers) come out as they went in.
    #[test]
    fn bytes_come_out_as_they_went_in(
        index in 0..4_usize, option in vec(any::<u8>(), 0..16), reserved in 0..8_u8, has_extension: bool, data in vec(any::<u8>(), 0..100),
    ) {
        let (one, other) = hits();
        // An option of MPTCP.
        let mut options = [&[30, 2 + option.len() as u8][..], &option].concat();
        options.resize(options.len().next_multiple_of(4), 1);
        let offset = (((20 + options.len()) / 4) << 4) as u8 | reserved << 1;
        let header = [0x9c, 0x40, 0, 22, 0, 0, 0, 7, 0, 0, 0, 0, offset, 0x10, 1, 0, 0, 0, 0, 0];
        let mut tcp = [&header[..], &options, &data].concat();
        let sum = transport_checksum(one.0.into(), other.0.into(), 6, &tcp);
        tcp[16..18].copy_from_slice(&sum.to_be_bytes());
        // A destination options header with one padding option.
        let extension: &[u8] = if has_extension { &[6, 0, 1, 4, 0, 0, 0, 0] } else { &[] };
        let len = (extension.len() + tcp.len()) as u16;
        let mut bytes = vec![0x60, 0, 0, 0];
        bytes.extend(len.to_be_bytes());
        bytes.extend([if has_extension { 60 } else { 6 }, 61]);
        bytes.extend([one, other].map(|hit| hit.0.octets()).concat());
        bytes.extend([extension, &tcp].concat());
        let inner = Packet::parse_to_forward(bytes.clone().into(), Checksums::Verify).unwrap();
        let (mut outbound, mut inbound) = pair(EspSuite::ALL[index]);
        let esp = outbound.seal(&inner, &mut seeded(7)).unwrap();
        prop_assert_eq!(&inbound.open(&esp, 61, 0).unwrap().emit().unwrap()[..], &bytes[..]);
    }

    /// Any damage to any packet is an error.
    #[test]
    fn damage_is_noticed(index in 0..4_usize, payload in vec(any::<u8>(), 0..100), at in any::<usize>(), bit in 0..8_u8) {
        let (mut outbound, mut inbound) = pair(EspSuite::ALL[index]);
        let mut rng = seeded(7);
        let good = outbound.seal_payload(6, &payload, &mut rng).unwrap();
        let mut bad = good.to_vec();
        let at = at % bad.len();
        bad[at] ^= 1 << bit;
        prop_assert!(inbound.open_payload(&bad).is_err());
        prop_assert!(inbound.open_payload(&bad[..at]).is_err());
        prop_assert_eq!(inbound.open_payload(&good), Ok((6, payload)), "damage has not moved the window");
    }

    #[test]
    fn any_bytes_are_an_error(index in 0..4_usize, mut bytes in vec(any::<u8>(), 0..200)) {
        let (_, mut inbound) = pair(EspSuite::ALL[index]);
        if let Some(head) = bytes.get_mut(..4) {
            head.copy_from_slice(&SPI.to_be_bytes());
        }
        prop_assert!(inbound.open_payload(&bytes).is_err());
    }

    /// Compares the window with a set of all accepted numbers: no number twice, none too old, everything else once.
    #[test]
    fn the_window_is_a_set(
        start in prop_oneof![Just(0_u64), 0..1_u64 << 40],
        steps in vec((0..3000_u64, any::<bool>()), 1..300),
    ) {
        let mut window = ReplayWindow::default();
        let mut accepted = BTreeSet::new();
        let mut top = start + 1;
        for (distance, forward) in steps {
            let number = if forward { top + distance } else { top.saturating_sub(distance) };
            let greatest = accepted.last().copied().unwrap_or(0);
            let expected = number != 0 && !accepted.contains(&number) && (number > greatest || greatest - number < 1024);
            prop_assert_eq!(window.may_accept(number), expected, "{} after {}", number, greatest);
            if expected {
                window.accept(number);
                accepted.insert(number);
            }
            top = top.max(number);
            prop_assert_eq!(window.greatest(), accepted.last().copied().unwrap_or(0));
            // The upper half of a number within the window, or not too far beyond it, is guessed.
            if window.greatest() > 0 {
                prop_assert_eq!(window.extend(window.greatest() as u32), window.greatest());
                prop_assert_eq!(window.extend((window.greatest() + 5000) as u32), window.greatest() + 5000);
                let back = window.greatest().saturating_sub(1023);
                prop_assert_eq!(window.extend(back as u32), back);
            }
        }
    }
}
