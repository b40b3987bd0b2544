//! HIP and ESP in UDP (RFC 9028 section 5.1, RFC 3948 section 2).
//!
//! A HIP packet is preceded by four bytes of zero, in the place of ESP's SPI, which is never zero. Its own checksum is zero in UDP, because
//! it would cover addresses that a translator may change; [`open`] fills in the checksum that the packet would have outside of UDP.

use core::net::IpAddr;

use bytes::{BufMut, Bytes, BytesMut};
use holdover_hip::codec::{HEADER_LEN, PROTOCOL, PacketType};
use holdover_hip::identity::Hit;
use holdover_wire::{Packet, Payload, Udp, transport_checksum};

/// The port of HIP (RFC 9028 section 5.1), as source and as destination.
pub const PORT: u16 = 10_500;
/// The marker of HIP packets, as opposed to ESP.
const MARKER: [u8; 4] = [0; 4];
/// The packet that keeps a translator's binding alive (RFC 3948 section 2.3).
const KEEP_ALIVE: &[u8] = &[0xff];
/// The positions of the length, in units of 8 bytes without the first, of the type, and of the checksum in a HIP packet.
const LENGTH: usize = 1;
const KIND: usize = 2;
const CHECKSUM: core::ops::Range<usize> = 4..6;

/// The positions of the HITs in a HIP packet.
const SENDER: usize = 8;
const RECEIVER: usize = 24;

/// The content of a UDP datagram.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Carried {
    Hip(Packet),
    Esp(Packet),
    KeepAlive,
    Nothing,
}

/// Decapsulates a packet from UDP.
pub(super) fn open(packet: &Packet, udp: &Udp) -> Carried {
    let outer = |payload| Packet {
        ttl: packet.ttl,
        traffic_class: packet.traffic_class,
        ..Packet::new(packet.src, packet.dst, payload)
    };
    if udp.payload[..] == *KEEP_ALIVE {
        return Carried::KeepAlive;
    }
    match udp.payload.split_first_chunk::<4>() {
        Some((&MARKER, hip)) if hip.len() >= HEADER_LEN && hip[CHECKSUM] == [0, 0] => {
            // Bytes behind the packet are ignored (RFC 7401 section 5.1).
            let len = (usize::from(hip[LENGTH]) + 1) * 8;
            let mut bytes = BytesMut::from(&hip[..len.min(hip.len())]);
            let sum = transport_checksum(packet.src, packet.dst, PROTOCOL, &bytes);
            bytes[CHECKSUM].copy_from_slice(&sum.to_be_bytes());
            Carried::Hip(outer(Payload::Other { protocol: PROTOCOL, payload: bytes.freeze() }))
        }
        Some((&MARKER, _)) | None => Carried::Nothing,
        Some(_) => Carried::Esp(outer(Payload::Esp(udp.payload.clone()))),
    }
}

/// Whether a datagram has the marker of HIP packets.
pub(super) fn is_hip(udp: &Udp) -> bool {
    udp.payload.starts_with(&MARKER)
}

/// Whether a packet is HIP, in UDP or not.
pub(super) fn carries_hip(packet: &Packet) -> bool {
    match &packet.payload {
        Payload::Other { protocol: PROTOCOL, .. } => true,
        Payload::Udp(udp) => is_hip(udp),
        _ => false,
    }
}

/// Encapsulates a packet in UDP.
pub(super) fn close(packet: Packet, port: u16) -> Packet {
    let payload: Bytes = match &packet.payload {
        Payload::Esp(esp) => esp.clone(),
        Payload::Other { protocol: PROTOCOL, payload } if payload.len() >= HEADER_LEN => {
            let mut bytes = BytesMut::with_capacity(MARKER.len() + payload.len());
            bytes.put_slice(&MARKER);
            bytes.put_slice(payload);
            bytes[MARKER.len()..][CHECKSUM].fill(0);
            bytes.freeze()
        }
        _ => return packet,
    };
    Packet { payload: Payload::Udp(Udp { src_port: PORT, dst_port: port, payload }), ..packet }
}

/// The field of a packet of the network that determines its identity.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Receiver {
    /// The receiver of a HIP packet.
    Hit(Hit),
    /// The SPI of ESP.
    Spi(u32),
}

/// The receiver of a packet, in UDP or not.
pub(super) fn any_receiver_of(packet: &Packet) -> Option<Receiver> {
    let spi = |esp: &Bytes| esp.first_chunk().map(|spi| Receiver::Spi(u32::from_be_bytes(*spi)));
    match &packet.payload {
        Payload::Esp(esp) => spi(esp),
        Payload::Udp(udp) if udp.dst_port == PORT && is_hip(udp) => {
            hit_in(&udp.payload[MARKER.len()..], RECEIVER).map(Receiver::Hit)
        }
        Payload::Udp(udp) if udp.dst_port == PORT => spi(&udp.payload),
        _ => receiver_of(packet).map(Receiver::Hit),
    }
}

/// The receiver of a HIP packet.
pub(super) fn receiver_of(packet: &Packet) -> Option<Hit> {
    hit_at(packet, RECEIVER)
}

/// Whether a HIP packet, by its type, presupposes an association and does not end it.
pub(super) fn is_of_association(packet: &Packet) -> bool {
    let Payload::Other { protocol: PROTOCOL, payload } = &packet.payload else { return false };
    let kind = payload.get(KIND).and_then(|kind| PacketType::from_number(kind & 0x7f));
    matches!(kind, Some(PacketType::Update | PacketType::Notify))
}

/// The claimed sender of a HIP packet.
pub(super) fn sender_of(packet: &Packet) -> Option<Hit> {
    hit_at(packet, SENDER)
}

fn hit_at(packet: &Packet, start: usize) -> Option<Hit> {
    let Payload::Other { protocol: PROTOCOL, payload } = &packet.payload else { return None };
    hit_in(payload, start)
}

fn hit_in(hip: &[u8], start: usize) -> Option<Hit> {
    let bytes: [u8; 16] = hip.get(start..start + 16)?.try_into().ok()?;
    match IpAddr::from(bytes) {
        IpAddr::V6(address) => Some(Hit(address)),
        IpAddr::V4(_) => None,
    }
}
