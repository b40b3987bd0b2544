//! Packets in fragments, and together again.

use bytes::{Bytes, BytesMut};
use holdover_wire::{EmitError, Fragment, Packet, Payload, Udp};
use proptest::prelude::*;

use crate::support::{V4, V6};

/// Bytes of the IP header.
const fn header_len(packet: &Packet) -> usize {
    if packet.dst.is_ipv6() { 40 } else { 20 }
}

/// A datagram, or a packet in ESP.
fn packet(is_v6: bool, in_udp: bool, len: usize) -> Packet {
    let data: Bytes = (0..len).map(|at| (at % 251) as u8).collect();
    let (src, dst) = if is_v6 { V6 } else { V4 };
    let payload = if in_udp { Udp { src_port: 1, dst_port: 2, payload: data }.into() } else { Payload::Esp(data) };
    Packet { ttl: 7, traffic_class: 0xb9, ..Packet::new(src, dst, payload) }
}

/// A packet's bytes as a network carries them, and what a receiver reads.
fn carried(packet: &Packet) -> (usize, Packet) {
    let bytes = packet.emit().unwrap();
    (bytes.len(), Packet::parse(bytes).unwrap())
}

/// Reassembles fragments as a receiver does, with the first one's header (RFC 791 section 3.2, RFC 8200 section 4.5).
fn reassemble(fragments: &[Packet]) -> Packet {
    let (mut payload, mut is_complete) = (BytesMut::new(), false);
    for packet in fragments {
        let Payload::Fragment(fragment) = &packet.payload else { panic!("a fragment: {packet}") };
        assert!(!is_complete, "nothing follows the last one");
        assert_eq!(usize::from(fragment.offset), payload.len(), "they are in order and without gaps");
        payload.extend_from_slice(&fragment.payload);
        is_complete = !fragment.more;
    }
    assert!(is_complete);
    let first = &fragments[0];
    let Payload::Fragment(Fragment { protocol, .. }) = first.payload else { unreachable!() };
    let whole = Payload::Other { protocol, payload: payload.freeze() };
    Packet::parse(Packet { payload: whole, ..first.clone() }.emit().unwrap()).unwrap()
}

proptest! {
    // Claim: A packet that is cut into fragments for a path is read back unchanged, over IPv4 and IPv6; each fragment fits the path, offsets
    // are multiples of 8, identifications are the packet's, and IPv6 fragments are not made for less than 1,280 bytes. Routers may cut
    // IPv4 fragments further.
    // Tests: `fragments::a_packet_that_fits_stays_whole`, `fragments::what_cannot_be_cut_is_refused`
    #[test]
    fn fragments_fit_the_path_and_make_the_packet(
        is_v6: bool, in_udp: bool, len in 0_usize..9000, mtu in 28_usize..3000, router in 28_usize..3000, id: u32,
    ) {
        let packet = packet(is_v6, in_udp, len);
        let fragments = packet.fragments(mtu, id).unwrap();
        let mtu = if is_v6 { mtu.max(1280) } else { mtu };
        let id = if is_v6 { id } else { id & 0xffff };
        let (whole, _) = carried(&packet);
        if whole <= mtu {
            prop_assert_eq!(fragments.len(), 1);
            prop_assert_eq!(carried(&fragments[0]), (whole, packet));
            return Ok(());
        }
        let mut received = Vec::new();
        for fragment in &fragments {
            let (len, read) = carried(fragment);
            prop_assert!(len <= mtu, "{len} exceed {mtu}");
            prop_assert_eq!(&read, fragment);
            let Payload::Fragment(part) = &read.payload else { panic!("a fragment: {read}") };
            prop_assert_eq!((part.id, part.offset % 8), (id, 0));
            prop_assert_eq!((read.ttl, read.traffic_class), (packet.ttl, packet.traffic_class));
            // All but the last are as long as they can be.
            prop_assert!(!part.more || len + 8 > mtu, "{len} of {mtu}");
            received.push(read);
        }
        prop_assert_eq!(&reassemble(&received), &packet);
        let again: Vec<Packet> = received.iter().flat_map(|it| it.fragments(router, !id).unwrap()).collect();
        prop_assert_eq!(reassemble(&again), packet);
    }
}

#[test]
fn a_packet_that_fits_stays_whole() {
    for (is_v6, len) in [(false, 100), (true, 1240)] {
        let packet = packet(is_v6, false, len);
        let [whole] = &packet.fragments(120, 0x1_2345).unwrap()[..] else { panic!("one") };
        let bytes = whole.emit().unwrap();
        if is_v6 {
            assert_eq!(bytes, packet.emit().unwrap());
        } else {
            // The identification is there, and "don't fragment" is not.
            assert_eq!(bytes[4..8], [0x23, 0x45, 0, 0]);
            assert_eq!(bytes[header_len(&packet)..], packet.emit().unwrap()[20..]);
        }
    }
}

#[test]
fn what_cannot_be_cut_is_refused() {
    let error = packet(false, true, 100).fragments(27, 1).unwrap_err();
    assert_eq!(error, EmitError::NoRoomForFragments { mtu: 27 });
    assert!(packet(false, true, 100).fragments(28, 1).is_ok());
    let error = packet(false, false, 65_516).fragments(1500, 1).unwrap_err();
    assert_eq!(error, EmitError::TooLong { len: 65_536, max: 65_535 });
    let error = packet(true, false, 65_536).fragments(1500, 1).unwrap_err();
    assert_eq!(error, EmitError::TooLong { len: 65_576, max: 65_575 });
    let mixed = Packet { dst: V6.1, ..packet(false, false, 3000) };
    assert_eq!(mixed.fragments(1500, 1).unwrap_err(), EmitError::MixedFamilies { src: V4.0, dst: V6.1 });
}
