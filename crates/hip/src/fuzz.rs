//! Fuzz targets as ordinary functions: a fuzzer calls them with what it makes up, the tests with the committed corpus in
//! `fuzz/corpus/`. They panic where an invariant is broken; that is their purpose.

use core::net::{IpAddr, Ipv4Addr};

use bytes::Bytes;
use holdover_wire::{Packet, Payload, transport_checksum};

use crate::codec::{HipPacket, PROTOCOL, Parameter, Received, kind};
use crate::identity::HostIdentity;

const SRC: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
const DST: IpAddr = IpAddr::V4(Ipv4Addr::new(198, 51, 100, 2));

/// Reads `data` as a HIP packet, as it is and with its checksum put right. Nothing panics; what is a packet can be written
/// again, and is then the same packet.
pub fn parse_any(data: &[u8]) {
    for data in [data.to_vec(), with_checksum(data.to_vec())] {
        match HipPacket::parse(&packet(data)) {
            Ok(received) => check_packet(&received),
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    }
}

fn packet(data: Vec<u8>) -> Packet {
    Packet::new(SRC, DST, Payload::Other { protocol: PROTOCOL, payload: Bytes::from(data) })
}

/// Puts the checksum right, if the length in the header allows.
fn with_checksum(mut data: Vec<u8>) -> Vec<u8> {
    let len = data.get(1).map_or(0, |&len| (usize::from(len) + 1) * 8);
    if let Some(bytes) = data.get_mut(..len.max(8)).filter(|bytes| bytes.len() == len) {
        bytes[4..6].fill(0);
        let sum = transport_checksum(SRC, DST, PROTOCOL, bytes);
        bytes[4..6].copy_from_slice(&sum.to_be_bytes());
    }
    data
}

fn check_packet(received: &Received) {
    let written = received.packet.emit(SRC, DST).expect("what was read can be written");
    let again = HipPacket::parse(&written).expect("what was written can be read");
    assert_eq!(again.packet, received.packet);
    for kind in [kind::HIP_MAC, kind::HIP_MAC_2, kind::HIP_SIGNATURE, kind::HIP_SIGNATURE_2] {
        assert!(received.covered_before(kind).is_none_or(|covered| covered.len() < received.bytes().len()));
    }
    let _ = received.covered_by_signature_2();
    for parameter in &received.packet.parameters {
        if let Parameter::HostId(id) = parameter {
            let _ = received.covered_by_mac_2(id);
            if let Ok(identity) = HostIdentity::from_host_id(id) {
                assert_eq!(identity.encoded(), &id.identity);
            }
        }
    }
}
