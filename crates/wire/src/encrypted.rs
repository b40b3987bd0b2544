//! Encrypted payload without the cost of a cipher.

use core::fmt;
use std::sync::Arc;

use bytes::Bytes;

use crate::Payload;

/// A model of encrypted payload: as long as an Encapsulating Security Payload (RFC 4303), with a plaintext that only
/// the [`EncryptionKey`] opens. A simulation carries it instead of the real bytes of [`Payload::Esp`], so that no node
/// on the path can act on headers that it could not read in a real network. A node may keep, delay or drop it as a
/// whole.
///
/// On the wire it is ESP with bytes that stand for the ciphertext.
#[derive(Clone, PartialEq, Eq)]
pub struct Encrypted {
    ciphertext: Bytes,
    content: Arc<Content>,
}

#[derive(PartialEq, Eq)]
struct Content {
    plaintext: Payload,
    key: EncryptionKey,
}

/// The key of an [`Encrypted`] payload: a name, not a secret. It is not printed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct EncryptionKey(u64);

impl EncryptionKey {
    /// The key with this name.
    pub const fn new(name: u64) -> Self {
        Self(name)
    }
}

impl fmt::Debug for EncryptionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("EncryptionKey")
    }
}

impl Encrypted {
    /// `plaintext`, encrypted. `ciphertext` stands for the bytes behind the IP header: only its length matters.
    pub fn new(plaintext: Payload, ciphertext: Bytes, key: EncryptionKey) -> Self {
        Self { ciphertext, content: Arc::new(Content { plaintext, key }) }
    }

    /// The bytes behind the IP header.
    pub fn ciphertext(&self) -> &Bytes {
        &self.ciphertext
    }

    /// The plaintext, if `key` is the key that encrypted it.
    pub fn plaintext(&self, key: EncryptionKey) -> Option<&Payload> {
        (self.content.key == key).then_some(&self.content.plaintext)
    }
}

impl fmt::Debug for Encrypted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Encrypted({} bytes)", self.ciphertext.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Packet, Udp};

    const CIPHERTEXT: Bytes = Bytes::from_static(&[0; 58]);

    fn plaintext() -> Payload {
        Payload::Udp(Udp { payload: Bytes::from_static(b"secret"), ..Udp::default() })
    }

    #[test]
    fn plaintext_needs_the_key_and_is_not_printed() {
        let plaintext = plaintext();
        let encrypted = Encrypted::new(plaintext.clone(), CIPHERTEXT, EncryptionKey::new(1));
        assert_eq!(encrypted.plaintext(EncryptionKey::new(1)), Some(&plaintext));
        assert_eq!(encrypted.plaintext(EncryptionKey::new(2)), None);
        assert_eq!(format!("{encrypted:?}"), "Encrypted(58 bytes)");
    }

    #[test]
    fn it_is_emitted_as_esp_without_the_plaintext() {
        let encrypted = Payload::Encrypted(Encrypted::new(plaintext(), CIPHERTEXT, EncryptionKey::new(1)));
        for (src, dst) in [("10.0.0.1", "10.0.0.2"), ("fd00::1", "fd00::2")] {
            let packet = Packet::new(src.parse().unwrap(), dst.parse().unwrap(), encrypted.clone());
            assert_eq!(packet.wire_len(), packet.ip_header_len() + 58);
            let read = Packet::parse(packet.emit().unwrap()).unwrap();
            assert_eq!(read.payload, Payload::Esp(CIPHERTEXT));
        }
    }
}
