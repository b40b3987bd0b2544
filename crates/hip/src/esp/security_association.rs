//! Sealing and opening packets.
//!
//! Sequence numbers and the anti-replay window are in order; encryption need not be. [`Outbound::begin`] assigns a sequence number and
//! returns a [`Sealing`], which any thread may complete. [`Inbound::begin`] returns an [`Opening`], which any thread may decrypt, and
//! [`Inbound::finish`] takes the result into the window.

use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};
use holdover_wire::{Checksums, Packet, ParseError};
use rand_core::CryptoRng;

use super::engine::Engine;
use super::suite::{EspKeys, EspSuite, HEADER_LEN, ICV_LEN};
use super::{GcmProvider, ReplayWindow};
use crate::identity::Hit;

/// Bytes of an IPv6 header.
const IPV6_LEN: usize = 40;
/// The offset of the next header field in an IPv6 header.
const NEXT_HEADER: usize = 6;
/// The most bytes of padding, its length, next header and integrity check value.
const TRAILER_LEN: usize = 18 + ICV_LEN;
/// Bytes of the longest initialization vector.
const MAX_IV_LEN: usize = 16;
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
    engine: Option<Arc<Engine>>,
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
    engine: Option<Arc<Engine>>,
    local: Hit,
    peer: Hit,
    window: ReplayWindow,
    /// Bytes decrypted, without padding.
    bytes: u64,
}

impl Outbound {
    /// An association to the peer that receives at `spi`.
    pub fn new(spi: u32, keys: EspKeys, gcm: GcmProvider, local: Hit, peer: Hit) -> Self {
        Self { spi, engine: Engine::new(&keys, gcm).map(Arc::new), keys, local, peer, number: 0, bytes: 0 }
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
        let sealing = self.begin(inner, rng)?;
        let mut out = BytesMut::with_capacity(inner.wire_len() + TRAILER_LEN);
        sealing.append(inner, &mut out)?;
        Ok(out.freeze())
    }

    /// Assigns a sequence number to a packet between the HITs of both hosts, which [`Sealing::append`] encrypts.
    ///
    /// # Errors
    ///
    /// [`SealError`]; the packet is not to be sent then.
    pub fn begin<R: CryptoRng + ?Sized>(&mut self, inner: &Packet, rng: &mut R) -> Result<Sealing, SealError> {
        if inner.src != self.local.0 || inner.dst != self.peer.0 {
            return Err(SealError::Addresses);
        }
        self.begin_bytes(inner.wire_len().saturating_sub(IPV6_LEN), rng)
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
        let sealing = self.begin_bytes(payload.len(), rng)?;
        let mut out = BytesMut::with_capacity(sealing.body() + payload.len() + TRAILER_LEN);
        out.put_bytes(0, sealing.body());
        out.put_slice(payload);
        sealing.encrypt(next_header, 0, &mut out)?;
        Ok(out.freeze())
    }

    /// The sequence number of a packet with `len` bytes of payload, for another data plane.
    ///
    /// # Errors
    ///
    /// [`SealError::Exhausted`].
    pub fn assign(&mut self, len: usize) -> Result<u64, SealError> {
        self.number = self.number.checked_add(1).ok_or(SealError::Exhausted)?;
        self.bytes += len as u64;
        Ok(self.number)
    }

    fn begin_bytes<R: CryptoRng + ?Sized>(&mut self, len: usize, rng: &mut R) -> Result<Sealing, SealError> {
        let engine = Arc::clone(self.engine.as_ref().ok_or(SealError::Exhausted)?);
        let number = self.assign(len)?;
        let (suite, spi) = (self.keys.suite, self.spi);
        let mut iv = [0; MAX_IV_LEN];
        match suite {
            EspSuite::NullHmacSha256 => {}
            EspSuite::Aes128Gcm16 => iv[..suite.iv_len()].copy_from_slice(&number.to_be_bytes()),
            EspSuite::Aes128CbcHmacSha256 | EspSuite::Aes256CbcHmacSha256 => {
                rng.fill_bytes(&mut iv[..suite.iv_len()]);
            }
        }
        Ok(Sealing { engine, suite, spi, number, iv })
    }
}

/// The encryption of one packet. Its sequence number is assigned, so that packets may be encrypted in any order, on any thread.
pub struct Sealing {
    engine: Arc<Engine>,
    suite: EspSuite,
    spi: u32,
    number: u64,
    iv: [u8; MAX_IV_LEN],
}

/// Prints no key.
impl core::fmt::Debug for Sealing {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Sealing").field("spi", &self.spi).field("number", &self.number).finish_non_exhaustive()
    }
}

impl Sealing {
    /// The transform.
    pub const fn suite(&self) -> EspSuite {
        self.suite
    }

    /// Appends the ESP payload for the packet for which this was begun. On an error `out` is as before. Consumes itself,
    /// because its nonce may be used once.
    ///
    /// # Errors
    ///
    /// [`SealError`]; the packet is not to be sent then.
    pub fn append(self, inner: &Packet, out: &mut BytesMut) -> Result<(), SealError> {
        let start = out.len();
        let result = self.append_or_fail(inner, start, out);
        if result.is_err() {
            out.truncate(start);
        }
        result
    }

    fn append_or_fail(&self, inner: &Packet, start: usize, out: &mut BytesMut) -> Result<(), SealError> {
        let payload = inner.emit_pieces(out).map_err(|_| SealError::Packet)?;
        // The IPv6 header is not sent (BEET mode). It is contiguous with the bytes after it, or in the payload of a packet that is
        // forwarded unchanged.
        let body = start + self.body();
        let head_end = out.len();
        let next_header = if head_end == start {
            out.put_bytes(0, self.body());
            out.put_slice(payload.get(IPV6_LEN..).ok_or(SealError::Packet)?);
            payload[NEXT_HEADER]
        } else {
            let next_header = out[start + NEXT_HEADER];
            // It is longer than ESP's header and initialization vector.
            out.copy_within(start + IPV6_LEN..head_end, body);
            out.truncate(head_end - IPV6_LEN + self.body());
            out.put_slice(&payload);
            next_header
        };
        self.encrypt(next_header, start, out)
    }

    /// Bytes of SPI, sequence number and initialization vector.
    const fn body(&self) -> usize {
        HEADER_LEN + self.suite.iv_len()
    }

    /// Encrypts the payload that `out` has from `start` on, behind room for SPI, sequence number and initialization vector.
    fn encrypt(&self, next_header: u8, start: usize, out: &mut BytesMut) -> Result<(), SealError> {
        let body = self.body();
        let len = out.len() - start - body;
        let head = &mut out[start..start + body];
        head[..4].copy_from_slice(&self.spi.to_be_bytes());
        head[4..HEADER_LEN].copy_from_slice(&(self.number as u32).to_be_bytes());
        head[HEADER_LEN..].copy_from_slice(&self.iv[..self.suite.iv_len()]);
        let padding = (len + 2).next_multiple_of(self.suite.alignment()) - len - 2;
        (1..=padding).for_each(|byte| out.put_u8(byte as u8));
        out.put_slice(&[padding as u8, next_header]);
        self.engine.encrypt(out, start, body, self.number).ok_or(SealError::Exhausted)
    }
}

impl Inbound {
    /// An association from `peer` at this host's `spi`.
    pub fn new(spi: u32, keys: EspKeys, gcm: GcmProvider, local: Hit, peer: Hit) -> Self {
        Self {
            spi,
            engine: Engine::new(&keys, gcm).map(Arc::new),
            keys,
            local,
            peer,
            window: ReplayWindow::default(),
            bytes: 0,
        }
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
        let opened = self.begin(esp)?.decrypt(esp, ttl, traffic_class)?;
        self.finish(opened)
    }

    /// Next header and payload in an ESP payload.
    ///
    /// # Errors
    ///
    /// [`OpenError`], as [`Self::open`].
    pub fn open_payload(&mut self, esp: &[u8]) -> Result<(u8, Vec<u8>), OpenError> {
        let decrypted = self.begin(esp)?.decrypt_behind(esp, 0)?;
        self.finish(decrypted)
    }

    /// Looks at an ESP payload before its decryption: its length, SPI and sequence number.
    ///
    /// # Errors
    ///
    /// [`OpenError`]; the packet is to be dropped then.
    pub fn begin(&self, esp: &[u8]) -> Result<Opening, OpenError> {
        let suite = self.keys.suite;
        let length = OpenError::Length { len: esp.len() };
        let encrypted = esp.len().checked_sub(HEADER_LEN + suite.iv_len() + ICV_LEN).ok_or(length)?;
        if encrypted < 2 || !encrypted.is_multiple_of(suite.alignment()) || encrypted > usize::from(u16::MAX) {
            return Err(length);
        }
        let spi = u32::from_be_bytes([esp[0], esp[1], esp[2], esp[3]]);
        if spi != self.spi {
            return Err(OpenError::Spi { spi });
        }
        // While packets before this one are being decrypted, the window lags behind by no more than these. Its guess of the upper half
        // is the same, because they are far fewer than 2^32.
        let number = self.window.extend(u32::from_be_bytes([esp[4], esp[5], esp[6], esp[7]]));
        if !self.window.may_accept(number) {
            return Err(OpenError::Replay { number });
        }
        let engine = Arc::clone(self.engine.as_ref().ok_or(OpenError::Integrity)?);
        Ok(Opening { engine, suite, number, local: self.local, peer: self.peer })
    }

    /// Takes a packet that another data plane has verified into the anti-replay window: with the lower half of its sequence number, and
    /// `len` bytes of payload.
    ///
    /// # Errors
    ///
    /// [`OpenError::Replay`].
    pub fn accept(&mut self, low: u32, len: usize) -> Result<(), OpenError> {
        let number = self.window.extend(low);
        self.finish(Decrypted { number, len, content: Ok(()) })
    }

    /// Takes an authentic packet into the anti-replay window, and returns its content.
    ///
    /// # Errors
    ///
    /// [`OpenError::Replay`] if the same one came before; or the content is unusable, and the packet counts as received.
    pub fn finish<T>(&mut self, decrypted: Decrypted<T>) -> Result<T, OpenError> {
        let Decrypted { number, len, content } = decrypted;
        if !self.window.may_accept(number) {
            return Err(OpenError::Replay { number });
        }
        self.window.accept(number);
        self.bytes += len as u64;
        content
    }
}

/// The decryption of one packet, which any thread may do.
pub struct Opening {
    engine: Arc<Engine>,
    suite: EspSuite,
    number: u64,
    local: Hit,
    peer: Hit,
}

/// Prints no key.
impl core::fmt::Debug for Opening {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Opening").field("number", &self.number).field("peer", &self.peer).finish_non_exhaustive()
    }
}

/// An authentic packet that the anti-replay window has not seen yet. Its content is usable in [`Inbound::finish`] only.
#[derive(Debug)]
pub struct Decrypted<T> {
    number: u64,
    /// Bytes of payload.
    len: usize,
    content: Result<T, OpenError>,
}

impl<T> Decrypted<T> {
    /// The sequence number.
    pub const fn number(&self) -> u64 {
        self.number
    }
}

impl Opening {
    /// Verifies and decrypts the ESP payload for which this was begun. `ttl` and `traffic_class` are the outer header's.
    ///
    /// # Errors
    ///
    /// [`OpenError::Integrity`]; the packet is to be dropped then.
    pub fn decrypt(&self, esp: &[u8], ttl: u8, traffic_class: u8) -> Result<Decrypted<Packet>, OpenError> {
        let Decrypted { number, len, content } = self.decrypt_behind(esp, IPV6_LEN)?;
        let content = content.and_then(|(next_header, bytes)| self.inner(next_header, bytes, ttl, traffic_class));
        Ok(Decrypted { number, len, content })
    }

    /// The packet of a payload behind room for its IPv6 header.
    fn inner(&self, next_header: u8, mut bytes: Vec<u8>, ttl: u8, traffic_class: u8) -> Result<Packet, OpenError> {
        if next_header == NO_NEXT_HEADER {
            return Err(OpenError::Dummy);
        }
        let len = (bytes.len() - IPV6_LEN) as u16;
        bytes[..4].copy_from_slice(&(6 << 28 | u32::from(traffic_class) << 20).to_be_bytes());
        bytes[4..6].copy_from_slice(&len.to_be_bytes());
        (bytes[NEXT_HEADER], bytes[NEXT_HEADER + 1]) = (next_header, ttl);
        bytes[8..24].copy_from_slice(&self.peer.0.octets());
        bytes[24..IPV6_LEN].copy_from_slice(&self.local.0.octets());
        // As it came: endpoints may use options and extension headers that a value does not hold.
        Packet::parse_to_forward(Bytes::from(bytes), Checksums::Verify).map_err(OpenError::Inner)
    }

    /// Next header, and the payload behind `room` bytes of zero.
    fn decrypt_behind(&self, esp: &[u8], room: usize) -> Result<Decrypted<(u8, Vec<u8>)>, OpenError> {
        let body = HEADER_LEN + self.suite.iv_len();
        let plain = self.engine.decrypt(esp, body, self.number, room).ok_or(OpenError::Integrity)?;
        let content = without_padding(plain, room);
        let len = content.as_ref().map_or(0, |(_, plain)| plain.len() - room);
        Ok(Decrypted { number: self.number, len, content })
    }
}

/// Splits the trailer (RFC 4303 section 2.4) off a decrypted payload behind `room` other bytes: next header, and the rest.
fn without_padding(mut plain: Vec<u8>, room: usize) -> Result<(u8, Vec<u8>), OpenError> {
    let next_header = plain.pop().ok_or(OpenError::Padding)?;
    let padding = usize::from(plain.pop().ok_or(OpenError::Padding)?);
    let len = plain.len().checked_sub(padding).filter(|len| *len >= room).ok_or(OpenError::Padding)?;
    if !plain[len..].iter().zip(1_u8..).all(|(&byte, expected)| byte == expected) {
        return Err(OpenError::Padding);
    }
    plain.truncate(len);
    Ok((next_header, plain))
}
