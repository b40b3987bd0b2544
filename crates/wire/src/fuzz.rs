//! Fuzz targets as ordinary functions: a fuzzer calls them with what it makes up, the tests with the committed corpus in
//! `fuzz/corpus/`. They panic where an invariant is broken; that is their purpose.

use bytes::Bytes;

use crate::{Checksums, IcmpError, Packet, ParseError, Payload};

/// Reads `data` as a packet, with and without a look at checksums. Nothing panics; what is a packet can be written, has then
/// the length it says, and is the same packet when it is read again.
pub fn parse_any(data: &[u8]) {
    let data = Bytes::copy_from_slice(data);
    let verified = Packet::parse(data.clone());
    let unverified = Packet::parse_with(data.clone(), Checksums::Ignore);
    match (&verified, &unverified) {
        (Ok(_), _) => assert_eq!(verified, unverified, "checksums change nothing but whether a packet is accepted"),
        (Err(ParseError::Checksum(_) | ParseError::UdpChecksumMissing), _) => {}
        (Err(_), _) => assert_eq!(verified, unverified, "an error that checksums have nothing to do with"),
    }
    check_forwarding(&data);
    match unverified {
        Ok(packet) => check_packet(packet),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

/// A packet that is forwarded leaves as it came, without padding of the link; with other checksums it is the same value at least.
fn check_forwarding(data: &Bytes) {
    if let Ok(packet) = Packet::parse_to_forward(data.clone(), Checksums::Verify) {
        let bytes = packet.emit().expect("what was read can be forwarded");
        assert_eq!(bytes.len(), packet.wire_len(), "{packet}");
        assert_eq!(bytes[..], data[..bytes.len()], "{packet}");
    }
    if let Ok(mut packet) = Packet::parse_to_forward(data.clone(), Checksums::Ignore) {
        let bytes = packet.emit().expect("what was read can be forwarded");
        assert_eq!(bytes.len(), packet.wire_len(), "{packet}");
        packet.received = None;
        assert_eq!(Packet::parse_with(bytes, Checksums::Ignore), Ok(packet));
    }
}

fn check_packet(mut packet: Packet) {
    assert!(!packet.to_string().is_empty());
    if let Payload::IcmpError(error) = &packet.payload {
        check_quote(error);
    }
    let bytes = packet.emit().expect("what was read can be written");
    assert_eq!(bytes.len(), packet.wire_len(), "{packet}");
    for kind in [crate::Unreachable::Host, crate::Unreachable::PacketTooBig { mtu: 1280 }] {
        let quoted = IcmpError::quoting(kind, &bytes).expect("a packet can be quoted");
        assert_eq!(Ok(&quoted), IcmpError::quoting_packet(kind, &packet).as_ref());
        check_quote(&quoted);
    }
    // Protocols without a value of their own keep the checksum that they came with.
    let checksums = if matches!(packet.payload, Payload::Other { .. }) { Checksums::Ignore } else { Checksums::Verify };
    if let Payload::Tcp(segment) = &mut packet.payload {
        segment.options.unknown = 0;
    }
    assert_eq!(Packet::parse_with(bytes, checksums), Ok(packet));
}

fn check_quote(error: &IcmpError) {
    match error.quoted_tcp() {
        Ok(quoted) => assert_eq!(quoted.src.is_ipv4(), quoted.dst.is_ipv4()),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}
