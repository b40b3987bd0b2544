//! Encrypted payload without the cost of a cipher.

use core::any::TypeId;
use core::fmt;
use core::net::IpAddr;
use std::sync::Arc;

use bytes::Bytes;

use crate::Payload;

/// A model of encrypted payload: as long as an Encapsulating Security Payload (RFC 4303), with its SPI and sequence number, and a
/// plaintext that only the [`EncryptionKey`] opens. A simulation carries it instead of the real bytes of [`Payload::Esp`], so
/// that no node on the path can act on headers that it could not read in a real network. A node may keep, delay or drop it as a
/// whole.
///
/// On the wire it is ESP with bytes that stand for the ciphertext.
#[derive(Clone, PartialEq, Eq)]
pub struct Encrypted {
    /// SPI and sequence number.
    header: [u8; Self::HEADER_LEN],
    ciphertext: Bytes,
    content: Arc<Content>,
}

#[derive(PartialEq, Eq)]
struct Content {
    inner: Inner,
    key: EncryptionKey,
}

/// The plaintext of an [`Encrypted`] payload: a packet without the fields of its header that the outer header has.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Inner {
    /// The source of the packet.
    pub src: IpAddr,
    /// Its destination.
    pub dst: IpAddr,
    /// Its payload.
    pub payload: Payload,
}

impl Inner {
    /// Bytes behind the packet's IP header.
    pub fn payload_len(&self) -> usize {
        self.payload.wire_len(self.dst)
    }
}

/// The key of an [`Encrypted`] payload, named by a type. Code that cannot name the type cannot make the key: the type is private to
/// the module of the hosts, so that no filter on the path can decrypt. It is not printed.
///
/// ```compile_fail,E0603
/// mod hosts {
///     struct Secret;
/// }
/// let key = holdover_wire::EncryptionKey::of::<hosts::Secret>();
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct EncryptionKey(TypeId);

impl EncryptionKey {
    /// The key of the owner of this type, which should be private.
    pub const fn of<Secret: 'static>() -> Self {
        Self(TypeId::of::<Secret>())
    }
}

impl fmt::Debug for EncryptionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("EncryptionKey")
    }
}

impl Encrypted {
    /// Bytes of SPI and sequence number.
    pub const HEADER_LEN: usize = 8;

    /// `inner`, encrypted. `ciphertext` stands for the bytes behind the sequence number: only its length matters.
    pub fn new(spi: u32, number: u32, inner: Inner, ciphertext: Bytes, key: EncryptionKey) -> Self {
        let mut header = [0; Self::HEADER_LEN];
        header[..4].copy_from_slice(&spi.to_be_bytes());
        header[4..].copy_from_slice(&number.to_be_bytes());
        Self { header, ciphertext, content: Arc::new(Content { inner, key }) }
    }

    /// The bytes of SPI and sequence number.
    pub const fn header(&self) -> &[u8; Self::HEADER_LEN] {
        &self.header
    }

    /// The SPI.
    pub const fn spi(&self) -> u32 {
        let [a, b, c, d, ..] = self.header;
        u32::from_be_bytes([a, b, c, d])
    }

    /// The sequence number: of 64 bits, the lower half.
    pub const fn number(&self) -> u32 {
        let [.., a, b, c, d] = self.header;
        u32::from_be_bytes([a, b, c, d])
    }

    /// The bytes behind the sequence number.
    pub const fn ciphertext(&self) -> &Bytes {
        &self.ciphertext
    }

    /// Bytes behind the IP header.
    pub const fn wire_len(&self) -> usize {
        Self::HEADER_LEN + self.ciphertext.len()
    }

    /// The plaintext, if `key` is the key that encrypted it.
    pub fn plaintext(&self, key: EncryptionKey) -> Option<&Inner> {
        (self.content.key == key).then_some(&self.content.inner)
    }
}

impl fmt::Debug for Encrypted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Encrypted({} bytes)", self.wire_len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Packet, Udp};

    const CIPHERTEXT: Bytes = Bytes::from_static(&[0; 50]);

    struct Secret;

    mod elsewhere {
        pub(super) struct Secret;
    }

    fn inner() -> Inner {
        let payload = Payload::Udp(Udp { payload: Bytes::from_static(b"secret"), ..Udp::default() });
        Inner { src: "fd00::1".parse().unwrap(), dst: "fd00::2".parse().unwrap(), payload }
    }

    // Claim: Encrypted payload of a simulation needs its key, and is opaque on every link of a world.
    // Tests: `identity::data_between_identities_is_opaque_on_the_way`
    #[test]
    fn plaintext_needs_the_key_and_is_not_printed() {
        let inner = inner();
        let encrypted = Encrypted::new(1, 2, inner.clone(), CIPHERTEXT, EncryptionKey::of::<Secret>());
        assert_eq!(encrypted.plaintext(EncryptionKey::of::<Secret>()), Some(&inner));
        // A type of the same name in another module is another key.
        assert_eq!(encrypted.plaintext(EncryptionKey::of::<elsewhere::Secret>()), None);
        assert_eq!(format!("{encrypted:?}"), "Encrypted(58 bytes)");
    }

    #[test]
    fn it_is_emitted_as_esp_without_the_plaintext() {
        let encrypted = Encrypted::new(0xdead_beef, 0x0102_0304, inner(), CIPHERTEXT, EncryptionKey::of::<Secret>());
        assert_eq!((encrypted.spi(), encrypted.number()), (0xdead_beef, 0x0102_0304));
        let bytes: Vec<u8> = [0xde, 0xad, 0xbe, 0xef, 1, 2, 3, 4].into_iter().chain([0; 50]).collect();
        for (src, dst) in [("10.0.0.1", "10.0.0.2"), ("fd00::1", "fd00::2")] {
            let packet = Packet::new(src.parse().unwrap(), dst.parse().unwrap(), Payload::Encrypted(encrypted.clone()));
            assert_eq!(packet.wire_len(), packet.ip_header_len() + 58);
            let read = Packet::parse(packet.emit().unwrap()).unwrap();
            assert_eq!(read.payload, Payload::Esp(bytes.clone().into()));
        }
    }
}
