//! What base stations, gateways and mobile hosts say to each other, in the formats of Mobile IP (RFC 5944), so that a capture
//! can be read with the usual tools.

use core::net::{IpAddr, Ipv4Addr};

use bytes::{BufMut, Bytes, BytesMut};
use holdover_wire::{Packet, Payload, Udp};

use crate::config::NodeId;

/// The port of Mobile IP (RFC 5944 section 3).
pub(crate) const PORT: u16 = 434;

const ICMP: u8 = 1;
const ALL_SYSTEMS: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 1);
const REQUEST: u8 = 1;
const REPLY: u8 = 3;
const REVOCATION: u8 = 7;
/// Seconds; none of the bindings of a run expires.
const LIFETIME: u16 = u16::MAX;

/// A message between a mobile host, a base station and a gateway.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Message {
    /// A mobile host wants its packets sent to a base station (RFC 5944 section 3.3).
    Request { mobile: NodeId, gateway: NodeId, base: NodeId, id: u64 },
    /// The gateway does so (section 3.4).
    Reply { mobile: NodeId, gateway: NodeId, id: u64 },
    /// A base station is told that a mobile host has left it (RFC 3543 section 3.3).
    Revocation { mobile: NodeId, gateway: NodeId, base: NodeId },
}

impl Message {
    /// The message as a packet from one node to another.
    pub(crate) fn packet(self, from: NodeId, to: NodeId) -> Packet {
        let payload = self.emit();
        Packet::new(from.address(false), to.address(false), Udp { src_port: PORT, dst_port: PORT, payload })
    }

    /// The message in a packet, if there is one.
    pub(crate) fn of(packet: &Packet) -> Option<Self> {
        let Payload::Udp(udp) = &packet.payload else { return None };
        if udp.dst_port != PORT {
            return None;
        }
        let bytes = &udp.payload[..];
        let node = |at: usize| {
            let bytes: [u8; 4] = bytes.get(at..at + 4)?.try_into().ok()?;
            NodeId::of(IpAddr::from(bytes))
        };
        let id = |at: usize| bytes.get(at..at + 8)?.try_into().ok().map(u64::from_be_bytes);
        Some(match *bytes.first()? {
            REQUEST => Self::Request { mobile: node(4)?, gateway: node(8)?, base: node(12)?, id: id(16)? },
            REPLY => Self::Reply { mobile: node(4)?, gateway: node(8)?, id: id(12)? },
            REVOCATION => Self::Revocation { mobile: node(4)?, gateway: node(8)?, base: node(12)? },
            _ => return None,
        })
    }

    fn emit(self) -> Bytes {
        let mut out = BytesMut::with_capacity(64);
        match self {
            Self::Request { mobile, gateway, base, id } => {
                out.put_slice(&[REQUEST, 0]);
                out.put_u16(LIFETIME);
                put_addresses(&mut out, &[mobile, gateway, base]);
                out.put_u64(id);
                put_authentication(&mut out, MOBILE_HOME);
            }
            Self::Reply { mobile, gateway, id } => {
                out.put_slice(&[REPLY, 0]);
                out.put_u16(LIFETIME);
                put_addresses(&mut out, &[mobile, gateway]);
                out.put_u64(id);
                put_authentication(&mut out, MOBILE_HOME);
            }
            Self::Revocation { mobile, gateway, base } => {
                out.put_slice(&[REVOCATION, 0, 0, 0]);
                put_addresses(&mut out, &[mobile, gateway, base]);
                out.put_u32(0);
                put_authentication(&mut out, FOREIGN_HOME);
            }
        }
        out.freeze()
    }
}

/// An agent advertisement (RFC 5944 section 2.1): a router advertisement (RFC 1256) with an extension.
pub(crate) fn beacon(base: NodeId, sequence: u16) -> Packet {
    let mut out = BytesMut::with_capacity(28);
    // Router advertisement: one address of two words.
    out.put_slice(&[9, 0, 0, 0, 1, 2]);
    out.put_u16(LIFETIME);
    put_addresses(&mut out, &[base]);
    out.put_u32(0);
    // Mobility agent advertisement: a foreign agent with whom to register (R, F), and its care-of address.
    out.put_slice(&[16, 10]);
    out.put_u16(sequence);
    out.put_u16(LIFETIME);
    out.put_slice(&[0x90, 0]);
    put_addresses(&mut out, &[base]);
    let sum = internet_checksum(&out);
    out[2..4].copy_from_slice(&sum.to_be_bytes());
    let payload = Payload::Other { protocol: ICMP, payload: out.freeze() };
    Packet { ttl: 1, ..Packet::new(base.address(false), IpAddr::V4(ALL_SYSTEMS), payload) }
}

/// Types of the authentication extensions (RFC 5944 section 3.5), without which a message is not accepted.
const MOBILE_HOME: u8 = 32;
const FOREIGN_HOME: u8 = 34;

fn put_authentication(out: &mut BytesMut, kind: u8) {
    out.put_slice(&[kind, 20]);
    // The first index of a security association that is not reserved; nobody here forges messages, so the code is left empty.
    out.put_u32(256);
    out.put_bytes(0, 16);
}

fn put_addresses(out: &mut BytesMut, nodes: &[NodeId]) {
    for node in nodes {
        if let IpAddr::V4(address) = node.address(false) {
            out.put_slice(&address.octets());
        }
    }
}

/// RFC 1071.
fn internet_checksum(bytes: &[u8]) -> u16 {
    let mut sum: u32 =
        bytes.chunks(2).map(|pair| u32::from(pair[0]) << 8 | pair.get(1).map_or(0, |&low| low.into())).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_survive_the_wire() {
        let (mobile, gateway, base) = (NodeId(3), NodeId(300), NodeId(70_000));
        for message in [
            Message::Request { mobile, gateway, base, id: 7 },
            Message::Reply { mobile, gateway, id: u64::MAX },
            Message::Revocation { mobile, gateway, base },
        ] {
            let packet = message.packet(mobile, base);
            let read = Packet::parse(packet.emit().unwrap()).unwrap();
            assert_eq!(read, packet);
            assert_eq!(Message::of(&read), Some(message));
        }
    }

    #[test]
    fn a_truncated_or_foreign_message_is_none() {
        let whole = Message::Reply { mobile: NodeId(1), gateway: NodeId(2), id: 3 }.emit();
        for len in 0..20 {
            let udp = Udp { src_port: PORT, dst_port: PORT, payload: whole.slice(..len) };
            assert_eq!(Message::of(&Packet::new(NodeId(0).address(false), NodeId(1).address(false), udp)), None);
        }
        assert_eq!(Message::of(&beacon(NodeId(1), 0)), None);
    }

    #[test]
    fn a_beacon_has_a_valid_checksum_and_length() {
        let packet = beacon(NodeId(9), 0xabcd);
        let Payload::Other { payload, .. } = &packet.payload else { panic!("not ICMP") };
        assert_eq!(internet_checksum(payload), 0, "the sum over a message with its checksum is zero");
        assert_eq!(payload.len(), 28);
        assert_eq!(packet.emit().unwrap().len(), 48);
    }
}
