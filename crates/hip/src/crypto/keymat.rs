//! KEYMAT: the keying material of an association (RFC 7401 section 6.5).

use bytes::Bytes;

use super::{HipCipher, Rhash, SharedSecret};
use crate::identity::Hit;

/// The keying material is used up: a new Diffie-Hellman exchange is due.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{needed} bytes of keying material needed, {available} can be drawn")]
pub struct KeymatError {
    /// The end of the requested bytes.
    pub needed: usize,
    /// The bytes available in total.
    pub available: usize,
}

/// Keying material from one Diffie-Hellman exchange. Bytes are addressed from the start, so that both hosts can refer to a position by its
/// index (RFC 7402 section 5.1.1).
#[derive(Clone)]
pub struct Keymat {
    rhash: Rhash,
    secret: SharedSecret,
    salt: Bytes,
    info: [u8; 32],
}

/// Prints no key.
impl core::fmt::Debug for Keymat {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Keymat").field("rhash", &self.rhash).finish_non_exhaustive()
    }
}

/// The keys of HIP packets of one direction.
#[derive(Clone, PartialEq, Eq)]
pub struct HipKeys {
    /// The key of ENCRYPTED.
    pub encryption: Vec<u8>,
    /// The key of HIP_MAC and HIP_MAC_2.
    pub integrity: Vec<u8>,
}

/// Prints no key.
impl core::fmt::Debug for HipKeys {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("HipKeys")
    }
}

impl Keymat {
    /// The material of an exchange between two hosts: HKDF with #I | #J as salt and both HITs, the smaller one first, as info.
    pub fn new(rhash: Rhash, secret: SharedSecret, one: Hit, other: Hit, i: &[u8], j: &[u8]) -> Self {
        let mut info = [0; 32];
        info[..16].copy_from_slice(&one.min(other).0.octets());
        info[16..].copy_from_slice(&one.max(other).0.octets());
        Self { rhash, secret, salt: Bytes::from([i, j].concat()), info }
    }

    /// The material of the same puzzle from another Diffie-Hellman exchange: hosts keep #I and #J for that (RFC 7401 section 6.5).
    #[must_use]
    pub fn rekeyed(&self, secret: SharedSecret) -> Self {
        Self { secret, ..self.clone() }
    }

    /// The number of bytes that can be drawn: 255 hashes (RFC 5869 section 2.3).
    pub fn capacity(&self) -> usize {
        255 * self.rhash.output_len()
    }

    /// `len` bytes from byte `start` on.
    ///
    /// # Errors
    ///
    /// [`KeymatError`] if there are fewer bytes.
    pub fn draw(&self, start: usize, len: usize) -> Result<Vec<u8>, KeymatError> {
        let (needed, available) = (start + len, self.capacity());
        if needed > available {
            return Err(KeymatError { needed, available });
        }
        let bytes = self.rhash.hkdf(&self.salt, self.secret.bytes(), &self.info, needed);
        let mut bytes = bytes.ok_or(KeymatError { needed, available })?;
        Ok(bytes.split_off(start))
    }

    /// The keys of HIP packets from `local` to `peer` and from `peer` to `local`, and the index after them, at which the keys of ESP begin.
    /// The host with the greater HIT draws its keys first.
    ///
    /// # Errors
    ///
    /// None for the suites of this crate; [`KeymatError`] in principle.
    pub fn hip_keys(&self, cipher: HipCipher, local: Hit, peer: Hit) -> Result<(HipKeys, HipKeys, usize), KeymatError> {
        let (encryption_len, integrity_len) = (cipher.key_len(), self.rhash.output_len());
        let each = encryption_len + integrity_len;
        let mut first = self.draw(0, 2 * each)?;
        let second = first.split_off(each);
        let [first, second] = [first, second].map(|mut encryption| {
            let integrity = encryption.split_off(encryption_len);
            HipKeys { encryption, integrity }
        });
        let (outbound, inbound) = if local > peer { (first, second) } else { (second, first) };
        Ok((outbound, inbound, 2 * each))
    }
}
