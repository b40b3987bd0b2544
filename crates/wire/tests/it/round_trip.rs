//! Round trips between bytes and values, for generated packets ([`support`]).

use bytes::{Bytes, BytesMut};
use holdover_wire::{Packet, Payload, fuzz};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;

proptest! {
    // Claim: Every encoded packet is decoded unchanged: IPv4 and IPv6; TCP with each option (MSS, window scale, SACK permitted,
    // SACK, timestamps, user timeout, experimental ones by their ExID); UDP; ICMP and ICMPv6 errors with the quoted segment; ESP
    // as opaque bytes.
    #[test]
    fn a_packet_that_is_written_is_read_back(packet in crate::support::packet()) {
        let bytes = packet.emit().unwrap();
        prop_assert_eq!(bytes.len(), packet.wire_len());
        prop_assert_eq!(Packet::parse(bytes), Ok(packet));
    }

    #[test]
    fn padding_of_the_link_is_cut_off(packet in crate::support::packet(), padding in vec(any::<u8>(), 0..50)) {
        let mut bytes = BytesMut::from(packet.emit().unwrap());
        bytes.extend_from_slice(&padding);
        prop_assert_eq!(Packet::parse(bytes.freeze()), Ok(packet));
    }

    // Claim: Truncated, damaged and arbitrary bytes give a typed error or a packet, never a panic; a flipped bit is detected.
    // Tests: `a_flipped_bit_is_noticed`, `damage_never_panics`, `arbitrary_bytes_never_panic`
    #[test]
    fn a_packet_that_is_cut_off_is_an_error(packet in crate::support::packet(), at in any::<Index>()) {
        let bytes = packet.emit().unwrap();
        let at = at.index(bytes.len());
        prop_assert!(Packet::parse(bytes.slice(..at)).is_err());
    }

    #[test]
    fn a_prefix_is_the_beginning_of_the_whole(packet in crate::support::packet(), max in 0..200_usize) {
        let bytes = packet.emit().unwrap();
        let mut buf = BytesMut::from(&b"before"[..]);
        prop_assert_eq!(packet.emit_prefix_into(&mut buf, max), Ok(bytes.len()));
        prop_assert_eq!(&buf[..6], b"before");
        prop_assert_eq!(&buf[6..], &bytes[..max.min(bytes.len())]);
    }

    #[test]
    fn a_flipped_bit_is_noticed(packet in crate::support::packet(), bit in any::<Index>()) {
        let mut bytes = BytesMut::from(packet.emit().unwrap());
        let bit = bit.index(8 * bytes.len());
        bytes[bit / 8] ^= 1 << (bit % 8);
        let bytes = bytes.freeze();
        if !is_unnoticeable(&packet, &bytes, bit / 8, bit % 8) {
            prop_assert_ne!(Packet::parse(bytes), Ok(packet));
        }
    }

    #[test]
    fn damage_never_panics(packet in crate::support::packet(), damage in vec((any::<Index>(), any::<u8>()), 1..8)) {
        let mut bytes = BytesMut::from(packet.emit().unwrap());
        for (at, byte) in damage {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        fuzz::parse_any(&bytes);
    }

    #[test]
    fn damage_within_the_headers_never_panics(packet in crate::support::packet(), damage in vec((0..64_usize, any::<u8>()), 1..8)) {
        let mut bytes = BytesMut::from(packet.emit().unwrap());
        for (at, byte) in damage {
            if let Some(slot) = bytes.get_mut(at) {
                *slot = byte;
            }
        }
        fuzz::parse_any(&bytes);
    }

    #[test]
    fn arbitrary_bytes_never_panic(data in vec(any::<u8>(), 0..200)) {
        fuzz::parse_any(&data);
    }

    #[test]
    fn arbitrary_bytes_after_an_ip_header_never_panic(
        v6 in any::<bool>(),
        protocol in prop_oneof![Just(0_u8), Just(1), Just(6), Just(17), Just(43), Just(44), Just(50), Just(58), Just(60)],
        data in vec(any::<u8>(), 0..200),
    ) {
        let (src, dst) = if v6 { crate::support::V6 } else { crate::support::V4 };
        let packet = Packet::new(src, dst, Payload::Other { protocol, payload: data.into() });
        fuzz::parse_any(&packet.emit().unwrap());
    }

    #[test]
    fn arbitrary_options_never_panic(options in vec(any::<u8>(), 40)) {
        let (src, dst) = crate::support::V4;
        let mut tcp = vec![0, 1, 0, 2, 0, 0, 0, 3, 0, 0, 0, 4, 0xf0, 0x10, 1, 0, 0, 0, 0, 0];
        tcp.extend_from_slice(&options);
        let packet = Packet::new(src, dst, Payload::Other { protocol: 6, payload: tcp.into() });
        fuzz::parse_any(&packet.emit().unwrap());
    }
}

/// Bits that no value holds and no checksum covers, and the one flip that turns a checksum into "none".
fn is_unnoticeable(packet: &Packet, flipped: &[u8], byte: usize, bit: usize) -> bool {
    let v6 = packet.dst.is_ipv6();
    let flow_label = v6 && matches!((byte, bit), (1, 0..4) | (2 | 3, _));
    match &packet.payload {
        Payload::Fragment(_) if v6 => flow_label || byte == 41 || (byte == 43 && matches!(bit, 1 | 2)),
        Payload::Udp(_) if !v6 => matches!(byte, 26 | 27) && flipped[26..28] == [0, 0],
        _ => flow_label,
    }
}

// Claim: Payload is a slice of the input, not a copy.
#[test]
fn payload_is_a_slice_of_the_input() {
    let (src, dst) = crate::support::V4;
    let bytes = Packet::new(src, dst, crate::support::full_segment()).emit().unwrap();
    let range = bytes.as_ptr_range();
    let segment = Packet::parse(bytes.clone()).unwrap().tcp().unwrap().clone();
    assert_eq!(segment.payload, Bytes::from_static(b"data"));
    assert!(range.contains(&segment.payload.as_ptr()));
}

#[test]
fn a_buffer_is_used_again_without_growing() {
    let (src, dst) = crate::support::V6;
    let packet = Packet::new(src, dst, crate::support::full_segment());
    let mut buf = BytesMut::with_capacity(packet.wire_len());
    let place = buf.as_ptr();
    for _ in 0..3 {
        buf.clear();
        packet.emit_into(&mut buf).unwrap();
        assert_eq!((buf.as_ptr(), &buf[..]), (place, &packet.emit().unwrap()[..]));
    }
}
