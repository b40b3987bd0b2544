//! Sealing and opening packets.

use bytes::{BufMut, Bytes, BytesMut};
use holdover_wire::{Packet, ParseError};
use rand_core::CryptoRng;

use super::engine::{Engine, HEADER_LEN, ICV_LEN};
use super::{EspKeys, EspSuite, ReplayWindow};
use crate::identity::Hit;

/// Bytes of an IPv6 header.
const IPV6_LEN: usize = 40;
/// The offset of the next header field in an IPv6 header.
const NEXT_HEADER: usize = 6;
/// The most bytes of padding, its length, next header and integrity check value.
const TRAILER_LEN: usize = 18 + ICV_LEN;
/// The next header of a dummy packet (RFC 4303 section 2.6).
const NO_NEXT_HEADER: u8 = 59;

/// Why a packet cannot be sealed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SealError {
    /// The packet is not between the two HITs of the association.
    #[error("the packet is not between the HITs of the association")]
    Addresses,
    /// The packet cannot be emitted.
    #[error("the packet cannot be emitted")]
    Packet,
    /// All 2^64 sequence numbers are used up, or the suite's keys do not fit.
    #[error("the security association is exhausted")]
    Exhausted,
}

/// Why an ESP packet is dropped.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum OpenError {
    /// Too short for the suite's fields, or not a multiple of its block.
    #[error("invalid ESP packet of {len} bytes")]
    Length {
        /// The bytes.
        len: usize,
    },
    /// Another SPI.
    #[error("SPI {spi:#010x} is not that of the security association")]
    Spi {
        /// The SPI.
        spi: u32,
    },
    /// A replay, or too old.
    #[error("sequence number {number} is a replay or too old")]
    Replay {
        /// The sequence number, with its upper half guessed.
        number: u64,
    },
    /// The integrity check value is wrong.
    #[error("wrong integrity check value")]
    Integrity,
    /// The padding is not that of RFC 4303 section 2.4.
    #[error("wrong padding")]
    Padding,
    /// The decrypted data is no valid packet.
    #[error("the decrypted data is not a packet: {0}")]
    Inner(ParseError),
    /// A dummy packet (RFC 4303 section 2.6): authentic, without content.
    #[error("a dummy packet")]
    Dummy,
}

/// A security association for packets to a peer.
#[derive(Clone, Debug)]
pub struct Outbound {
    spi: u32,
    keys: EspKeys,
    /// None if the keys do not fit the suite.
    engine: Option<Engine>,
    local: Hit,
    peer: Hit,
    /// The sequence number of the last packet.
    number: u64,
    /// Bytes encrypted, without padding.
    bytes: u64,
}

/// A security association for packets from a peer.
#[derive(Clone, Debug)]
pub struct Inbound {
    spi: u32,
    keys: EspKeys,
    /// None if the keys do not fit the suite.
    engine: Option<Engine>,
    local: Hit,
    peer: Hit,
    window: ReplayWindow,
    /// Bytes decrypted, without padding.
    bytes: u64,
}

impl Outbound {
    /// An association to the peer that receives at `spi`.
    pub fn new(spi: u32, keys: EspKeys, local: Hit, peer: Hit) -> Self {
        Self { spi, engine: Engine::new(&keys), keys, local, peer, number: 0, bytes: 0 }
    }

    /// The SPI.
    pub const fn spi(&self) -> u32 {
        self.spi
    }

    /// The keys, for another data plane or a capture's dissector.
    pub const fn keys(&self) -> &EspKeys {
        &self.keys
    }

    /// The number of sealed packets.
    pub const fn packets(&self) -> u64 {
        self.number
    }

    /// The number of sealed bytes.
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Continues after a sequence number: for an association that another data plane has used, and for tests of the wrap of the lower half.
    #[must_use]
    pub fn resumed_at(mut self, number: u64) -> Self {
        self.number = number;
        self
    }

    /// The ESP payload for a packet between the HITs of both hosts. Randomness is for CBC's initialization vectors; GCM uses a counter.
    ///
    /// # Errors
    ///
    /// [`SealError`]; the packet is not to be sent then.
    pub fn seal<R: CryptoRng + ?Sized>(&mut self, inner: &Packet, rng: &mut R) -> Result<Bytes, SealError> {
        if inner.src != self.local.0 || inner.dst != self.peer.0 {
            return Err(SealError::Addresses);
        }
        // The IPv6 header is not sent (BEET mode); the header before the payload is shorter.
        let mut out = BytesMut::with_capacity(inner.wire_len() + TRAILER_LEN);
        inner.emit_into(&mut out).map_err(|_| SealError::Packet)?;
        let next_header = out[NEXT_HEADER];
        let mut out = out.split_off(IPV6_LEN - HEADER_LEN - self.keys.suite.iv_len());
        self.seal_in_place(next_header, &mut out, rng)?;
        Ok(out.freeze())
    }

    /// The ESP payload of a dummy packet (RFC 4303 section 2.6), which the peer authenticates and discards.
    ///
    /// # Errors
    ///
    /// [`SealError::Exhausted`].
    pub fn seal_dummy<R: CryptoRng + ?Sized>(&mut self, rng: &mut R) -> Result<Bytes, SealError> {
        self.seal_payload(NO_NEXT_HEADER, &[], rng)
    }

    /// The ESP payload for the payload of the inner IPv6 packet, of protocol `next_header`.
    ///
    /// # Errors
    ///
    /// [`SealError::Exhausted`].
    pub fn seal_payload<R: CryptoRng + ?Sized>(
        &mut self,
        next_header: u8,
        payload: &[u8],
        rng: &mut R,
    ) -> Result<Bytes, SealError> {
        let headers = HEADER_LEN + self.keys.suite.iv_len();
        let mut out = BytesMut::with_capacity(headers + payload.len() + TRAILER_LEN);
        out.put_bytes(0, headers);
        out.put_slice(payload);
        self.seal_in_place(next_header, &mut out, rng)?;
        Ok(out.freeze())
    }

    /// Seals a payload that has room for SPI, sequence number and initialization vector before it.
    fn seal_in_place<R: CryptoRng + ?Sized>(
        &mut self,
        next_header: u8,
        out: &mut BytesMut,
        rng: &mut R,
    ) -> Result<(), SealError> {
        let suite = self.keys.suite;
        let number = self.number.checked_add(1).ok_or(SealError::Exhausted)?;
        let body = HEADER_LEN + suite.iv_len();
        let len = out.len() - body;
        out[..4].copy_from_slice(&self.spi.to_be_bytes());
        out[4..HEADER_LEN].copy_from_slice(&(number as u32).to_be_bytes());
        match suite {
            EspSuite::NullHmacSha256 => {}
            EspSuite::Aes128Gcm16 => out[HEADER_LEN..body].copy_from_slice(&number.to_be_bytes()),
            EspSuite::Aes128CbcHmacSha256 | EspSuite::Aes256CbcHmacSha256 => {
                rng.fill_bytes(&mut out[HEADER_LEN..body]);
            }
        }
        let padding = (len + 2).next_multiple_of(suite.alignment()) - len - 2;
        (1..=padding).for_each(|byte| out.put_u8(byte as u8));
        out.put_slice(&[padding as u8, next_header]);
        let engine = self.engine.as_ref().ok_or(SealError::Exhausted)?;
        engine.encrypt(out, body, number).ok_or(SealError::Exhausted)?;
        self.number = number;
        self.bytes += len as u64;
        Ok(())
    }
}

impl Inbound {
    /// An association from `peer` at this host's `spi`.
    pub fn new(spi: u32, keys: EspKeys, local: Hit, peer: Hit) -> Self {
        Self { spi, engine: Engine::new(&keys), keys, local, peer, window: ReplayWindow::default(), bytes: 0 }
    }

    /// The SPI.
    pub const fn spi(&self) -> u32 {
        self.spi
    }

    /// The keys, for another data plane or a capture's dissector.
    pub const fn keys(&self) -> &EspKeys {
        &self.keys
    }

    /// The greatest sequence number received.
    pub const fn greatest(&self) -> u64 {
        self.window.greatest()
    }

    /// The number of opened bytes.
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The packet between HITs in an ESP payload. `ttl` and `traffic_class` are the outer header's.
    ///
    /// # Errors
    ///
    /// [`OpenError`]; then nothing changes, except that an authentic packet with invalid contents counts as received.
    pub fn open(&mut self, esp: &[u8], ttl: u8, traffic_class: u8) -> Result<Packet, OpenError> {
        let (next_header, mut bytes) = self.open_behind(esp, IPV6_LEN)?;
        if next_header == NO_NEXT_HEADER {
            return Err(OpenError::Dummy);
        }
        let len = (bytes.len() - IPV6_LEN) as u16;
        bytes[..4].copy_from_slice(&(6 << 28 | u32::from(traffic_class) << 20).to_be_bytes());
        bytes[4..6].copy_from_slice(&len.to_be_bytes());
        (bytes[NEXT_HEADER], bytes[NEXT_HEADER + 1]) = (next_header, ttl);
        bytes[8..24].copy_from_slice(&self.peer.0.octets());
        bytes[24..IPV6_LEN].copy_from_slice(&self.local.0.octets());
        Packet::parse(Bytes::from(bytes)).map_err(OpenError::Inner)
    }

    /// Next header and payload in an ESP payload.
    ///
    /// # Errors
    ///
    /// [`OpenError`], as [`Self::open`].
    pub fn open_payload(&mut self, esp: &[u8]) -> Result<(u8, Vec<u8>), OpenError> {
        self.open_behind(esp, 0)
    }

    /// The same, with the payload after this many bytes of zero.
    fn open_behind(&mut self, esp: &[u8], room: usize) -> Result<(u8, Vec<u8>), OpenError> {
        let suite = self.keys.suite;
        let length = OpenError::Length { len: esp.len() };
        let body = HEADER_LEN + suite.iv_len();
        let encrypted = esp.len().checked_sub(body + ICV_LEN).ok_or(length)?;
        if encrypted < 2 || !encrypted.is_multiple_of(suite.alignment()) || encrypted > usize::from(u16::MAX) {
            return Err(length);
        }
        let spi = u32::from_be_bytes([esp[0], esp[1], esp[2], esp[3]]);
        if spi != self.spi {
            return Err(OpenError::Spi { spi });
        }
        let number = self.window.extend(u32::from_be_bytes([esp[4], esp[5], esp[6], esp[7]]));
        if !self.window.may_accept(number) {
            return Err(OpenError::Replay { number });
        }
        let engine = self.engine.as_ref().ok_or(OpenError::Integrity)?;
        let mut plain = engine.decrypt(esp, body, number, room).ok_or(OpenError::Integrity)?;
        self.window.accept(number);
        let next_header = plain.pop().ok_or(OpenError::Padding)?;
        let padding = usize::from(plain.pop().ok_or(OpenError::Padding)?);
        let len = plain.len().checked_sub(padding).filter(|len| *len >= room).ok_or(OpenError::Padding)?;
        if !plain[len..].iter().zip(1_u8..).all(|(&byte, expected)| byte == expected) {
            return Err(OpenError::Padding);
        }
        plain.truncate(len);
        self.bytes += (len - room) as u64;
        Ok((next_header, plain))
    }
}
