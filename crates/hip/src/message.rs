//! UPDATE packets (RFC 7401 section 5.3.5, RFC 8046 section 4): bytes to values and back.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use bytes::{BufMut, BytesMut};
use holdover_wire::{Packet, Payload, transport_checksum};

/// The IP protocol number of HIP (RFC 7401 section 5.1).
pub const PROTOCOL: u8 = 139;

const HEADER_LEN: usize = 40;
const UPDATE: u8 = 16;
/// Version 2 in the upper four bits, and the bit that is always set in the lower four.
const VERSION: u8 = 0x21;
/// "No next header" (RFC 8200 section 4.7).
const NO_NEXT_HEADER: u8 = 59;

const ESP_INFO: u16 = 65;
const LOCATOR_SET: u16 = 193;
const SEQ: u16 = 385;
const ACK: u16 = 449;
const ECHO_REQUEST_SIGNED: u16 = 897;
const ECHO_RESPONSE_SIGNED: u16 = 961;
const HIP_MAC: u16 = 61_505;
const HIP_SIGNATURE: u16 = 61_697;

/// HMAC-SHA-256.
const MAC_LEN: usize = 32;
/// Two bytes of algorithm, and ECDSA with P-256.
const SIGNATURE_LEN: usize = 66;
/// The first index of a security association that is not reserved (RFC 4303 section 2.1).
const SPI: u32 = 256;

/// The identifiers of a host.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Identity {
    /// The Host Identity Tag, which IPv6 applications use as an address (RFC 7401 section 3.1).
    pub hit: Ipv6Addr,
    /// The Local Scope Identifier, which IPv4 applications use (RFC 5338 section 3.2).
    pub lsi: Ipv4Addr,
}

impl Identity {
    /// The address that applications of a family use.
    pub fn address(self, ipv6: bool) -> IpAddr {
        if ipv6 { IpAddr::V6(self.hit) } else { IpAddr::V4(self.lsi) }
    }
}

/// The addresses of a host at its current attachment.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct LocatorSet {
    /// The IPv4 address.
    pub v4: Ipv4Addr,
    /// The IPv6 address.
    pub v6: Ipv6Addr,
}

impl LocatorSet {
    /// The address of a family.
    pub fn address(self, ipv6: bool) -> IpAddr {
        if ipv6 { IpAddr::V6(self.v6) } else { IpAddr::V4(self.v4) }
    }
}

/// An UPDATE packet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Update {
    /// The sender's identity.
    pub sender: Ipv6Addr,
    /// The receiver's identity.
    pub receiver: Ipv6Addr,
    /// The Update ID, if the packet requires an acknowledgement.
    pub seq: Option<u32>,
    /// The acknowledged Update ID.
    pub ack: Option<u32>,
    /// The sender's new locators.
    pub locators: Option<LocatorSet>,
    /// The nonce that the receiver is to echo from the address at which it receives this.
    pub echo_request: Option<u64>,
    /// The echoed nonce.
    pub echo_response: Option<u64>,
}

/// Why bytes are no UPDATE packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum MessageError {
    /// The packet carries another protocol.
    #[error("not a HIP packet")]
    NotHip,
    /// The packet ends within its header or a parameter.
    #[error("truncated after {len} bytes")]
    Truncated {
        /// Bytes present.
        len: usize,
    },
    /// Another HIP packet than UPDATE, or another version.
    #[error("HIP packet type {kind}, version byte {version:#04x}, expected UPDATE of version 2")]
    NotAnUpdate {
        /// The packet type.
        kind: u8,
        /// The byte with the version.
        version: u8,
    },
    /// The checksum is wrong.
    #[error("wrong checksum")]
    Checksum,
    /// A parameter has an invalid length.
    #[error("parameter {kind} of {len} bytes")]
    Parameter {
        /// Its type.
        kind: u16,
        /// Bytes of its contents.
        len: usize,
    },
}

impl Update {
    /// A packet without contents.
    pub const fn new(sender: Ipv6Addr, receiver: Ipv6Addr) -> Self {
        Self { sender, receiver, seq: None, ack: None, locators: None, echo_request: None, echo_response: None }
    }

    /// The UPDATE as an IP packet from one locator to another.
    pub fn packet(&self, src: IpAddr, dst: IpAddr) -> Packet {
        let mut out = BytesMut::with_capacity(256);
        out.put_slice(&[NO_NEXT_HEADER, 0, UPDATE, VERSION, 0, 0, 0, 0]);
        out.put_slice(&self.sender.octets());
        out.put_slice(&self.receiver.octets());
        self.put_parameters(&mut out);
        // In units of 8 bytes, without the first.
        out[1] = (out.len() / 8 - 1) as u8;
        let sum = transport_checksum(src, dst, PROTOCOL, &out);
        out[4..6].copy_from_slice(&sum.to_be_bytes());
        Packet::new(src, dst, Payload::Other { protocol: PROTOCOL, payload: out.freeze() })
    }

    /// Parameters in the order of their types, as RFC 7401 section 5.2.1 requires.
    fn put_parameters(&self, out: &mut BytesMut) {
        if let Some(locators) = self.locators {
            let mut info = [0; 12];
            info[4..8].copy_from_slice(&SPI.to_be_bytes());
            info[8..].copy_from_slice(&SPI.to_be_bytes());
            put_parameter(out, ESP_INFO, &info);
            let mut contents = BytesMut::with_capacity(56);
            for (address, preferred) in [(locators.v4.to_ipv6_mapped(), 1), (locators.v6, 0)] {
                // For signalling and data, type 1 (SPI and address) with a length of five words, and the lifetime in
                // seconds.
                contents.put_slice(&[0, 1, 5, preferred]);
                contents.put_u32(u32::MAX);
                contents.put_u32(SPI);
                contents.put_slice(&address.octets());
            }
            put_parameter(out, LOCATOR_SET, &contents);
        }
        for (kind, id) in [(SEQ, self.seq), (ACK, self.ack)] {
            if let Some(id) = id {
                put_parameter(out, kind, &id.to_be_bytes());
            }
        }
        for (kind, nonce) in [(ECHO_REQUEST_SIGNED, self.echo_request), (ECHO_RESPONSE_SIGNED, self.echo_response)] {
            if let Some(nonce) = nonce {
                put_parameter(out, kind, &nonce.to_be_bytes());
            }
        }
        put_parameter(out, HIP_MAC, &[0; MAC_LEN]);
        put_parameter(out, HIP_SIGNATURE, &[0; SIGNATURE_LEN]);
    }

    /// Parses the UPDATE in a packet. Unknown parameters are skipped.
    pub fn parse(packet: &Packet) -> Result<Self, MessageError> {
        let Payload::Other { protocol: PROTOCOL, payload } = &packet.payload else { return Err(MessageError::NotHip) };
        let truncated = MessageError::Truncated { len: payload.len() };
        let header = payload.get(..HEADER_LEN).ok_or(truncated)?;
        let (kind, version) = (header[2] & 0x7f, header[3]);
        if (kind, version & 0xf1) != (UPDATE, VERSION) {
            return Err(MessageError::NotAnUpdate { kind, version });
        }
        let end = (usize::from(header[1]) + 1) * 8;
        let mut rest = payload.get(HEADER_LEN..end).ok_or(truncated)?;
        if transport_checksum(packet.src, packet.dst, PROTOCOL, &payload[..end]) != 0 {
            return Err(MessageError::Checksum);
        }
        let mut update = Self::new(address(&header[8..24]), address(&header[24..]));
        while !rest.is_empty() {
            let head = rest.get(..4).ok_or(truncated)?;
            let kind = u16::from_be_bytes([head[0], head[1]]);
            let len = usize::from(u16::from_be_bytes([head[2], head[3]]));
            let contents = rest.get(4..4 + len).ok_or(truncated)?;
            update.read_parameter(kind, contents)?;
            rest = rest.get((4 + len).next_multiple_of(8)..).ok_or(truncated)?;
        }
        Ok(update)
    }

    fn read_parameter(&mut self, kind: u16, contents: &[u8]) -> Result<(), MessageError> {
        let error = MessageError::Parameter { kind, len: contents.len() };
        let id = || contents.try_into().map(u32::from_be_bytes).map_err(|_| error);
        let nonce = || contents.try_into().map(u64::from_be_bytes).map_err(|_| error);
        match kind {
            SEQ => self.seq = Some(id()?),
            ACK => self.ack = Some(id()?),
            ECHO_REQUEST_SIGNED => self.echo_request = Some(nonce()?),
            ECHO_RESPONSE_SIGNED => self.echo_response = Some(nonce()?),
            LOCATOR_SET => self.locators = Some(read_locators(contents).ok_or(error)?),
            _ => {}
        }
        Ok(())
    }
}

/// The first IPv4 and the first IPv6 address among the locators.
fn read_locators(mut contents: &[u8]) -> Option<LocatorSet> {
    let (mut v4, mut v6) = (None, None);
    while !contents.is_empty() {
        let head = contents.get(..8)?;
        let end = 8 + usize::from(head[2]) * 4;
        let locator = contents.get(8..end)?;
        let bytes = match (head[1], locator.len()) {
            (0, 16) => Some(locator),
            (1, 20) => Some(&locator[4..]),
            _ => None,
        };
        if let Some(address) = bytes.map(address) {
            match address.to_ipv4_mapped() {
                Some(address) => v4 = v4.or(Some(address)),
                None => v6 = v6.or(Some(address)),
            }
        }
        contents = &contents[end..];
    }
    Some(LocatorSet { v4: v4?, v6: v6? })
}

/// An address of 16 bytes; missing bytes are zero.
fn address(bytes: &[u8]) -> Ipv6Addr {
    let mut octets = [0; 16];
    octets[..bytes.len()].copy_from_slice(bytes);
    Ipv6Addr::from(octets)
}

/// Type, length of the contents, contents, and padding to a multiple of 8 bytes (RFC 7401 section 5.2.1).
fn put_parameter(out: &mut BytesMut, kind: u16, contents: &[u8]) {
    out.put_u16(kind);
    out.put_u16(contents.len() as u16);
    out.put_slice(contents);
    out.put_bytes(0, (4 + contents.len()).next_multiple_of(8) - 4 - contents.len());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole() -> Update {
        Update {
            seq: Some(7),
            ack: Some(u32::MAX),
            locators: Some(LocatorSet { v4: Ipv4Addr::new(172, 16, 0, 1), v6: "fd00:0:0:1::1".parse().unwrap() }),
            echo_request: Some(1),
            echo_response: Some(u64::MAX),
            ..Update::new("fd00::1".parse().unwrap(), "fd00::2".parse().unwrap())
        }
    }

    fn packet(update: &Update) -> Packet {
        update.packet("172.16.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap())
    }

    #[test]
    fn an_update_survives_the_wire() {
        let empty = Update::new("fd00::1".parse().unwrap(), "fd00::2".parse().unwrap());
        for update in [whole(), empty] {
            let read = Packet::parse(packet(&update).emit().unwrap()).unwrap();
            assert_eq!(Update::parse(&read), Ok(update));
        }
    }

    /// Computed by hand from the formats of RFC 7401 section 5.2 and RFC 8046 section 4.1.
    #[test]
    fn the_three_messages_have_the_lengths_of_the_formats() {
        let sealed = 40 + 40 + 72;
        let (esp_info, locator_set, id, echo) = (16, 64, 8, 16);
        let none = Update { seq: None, ack: None, locators: None, echo_request: None, echo_response: None, ..whole() };
        let first = Update { seq: Some(1), locators: whole().locators, ..none.clone() };
        let second = Update { seq: Some(1), ack: Some(1), echo_request: Some(1), ..none.clone() };
        let third = Update { ack: Some(1), echo_response: Some(1), ..none };
        let lengths = [first, second, third].map(|update| packet(&update).wire_len() - 20);
        assert_eq!(lengths, [sealed + esp_info + locator_set + id, sealed + 2 * id + echo, sealed + id + echo]);
    }

    #[test]
    fn damage_is_noticed() {
        let good = packet(&whole());
        let Payload::Other { payload, .. } = &good.payload else { panic!("not HIP") };
        let with = |bytes: &[u8]| {
            let payload = Payload::Other { protocol: PROTOCOL, payload: bytes.to_vec().into() };
            Update::parse(&Packet { payload, ..good.clone() })
        };
        for len in 0..payload.len() {
            assert_eq!(with(&payload[..len]), Err(MessageError::Truncated { len }));
        }
        for at in 0..payload.len() {
            let mut bytes = payload.to_vec();
            bytes[at] ^= 0x40;
            assert!(with(&bytes).is_err(), "byte {at}");
        }
        assert_eq!(
            Update::parse(&Packet { payload: Payload::Esp(payload.clone()), ..good }),
            Err(MessageError::NotHip)
        );
    }
}
