//! ESP transforms (RFC 7402 section 5.1.2) and their keys.

use zeroize::Zeroizing;

use crate::crypto::{Keymat, KeymatError};
use crate::identity::Hit;

/// Bytes of SPI and sequence number.
pub(super) const HEADER_LEN: usize = 8;
/// Bytes of the integrity check value of every suite here: HMAC-SHA-256-128 and GCM with 16.
pub(super) const ICV_LEN: usize = 16;

/// An ESP transform.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EspSuite {
    /// NULL encryption with HMAC-SHA-256-128 (RFC 4868).
    NullHmacSha256,
    /// AES-128 in CBC mode with HMAC-SHA-256-128.
    Aes128CbcHmacSha256,
    /// AES-256 in CBC mode with HMAC-SHA-256-128.
    Aes256CbcHmacSha256,
    /// AES-128 in GCM with an integrity check value of 16 bytes (RFC 4106).
    Aes128Gcm16,
}

impl EspSuite {
    /// All of them, the preferred one first.
    pub const ALL: [Self; 4] =
        [Self::Aes128Gcm16, Self::Aes256CbcHmacSha256, Self::Aes128CbcHmacSha256, Self::NullHmacSha256];

    /// Those that encrypt: the default offer of a host.
    pub const ENCRYPTING: [Self; 3] = [Self::Aes128Gcm16, Self::Aes256CbcHmacSha256, Self::Aes128CbcHmacSha256];

    /// The suite ID.
    pub const fn id(self) -> u16 {
        match self {
            Self::NullHmacSha256 => 7,
            Self::Aes128CbcHmacSha256 => 8,
            Self::Aes256CbcHmacSha256 => 9,
            Self::Aes128Gcm16 => 13,
        }
    }

    /// The suite with this ID.
    pub fn from_id(id: u16) -> Option<Self> {
        Self::ALL.into_iter().find(|suite| suite.id() == id)
    }

    /// Bytes of an encryption key; with GCM the last four are the salt (RFC 4106 section 8.1).
    pub const fn encryption_len(self) -> usize {
        match self {
            Self::NullHmacSha256 => 0,
            Self::Aes128CbcHmacSha256 => 16,
            Self::Aes256CbcHmacSha256 => 32,
            Self::Aes128Gcm16 => 20,
        }
    }

    /// Bytes of an authentication key.
    pub const fn authentication_len(self) -> usize {
        match self {
            Self::NullHmacSha256 | Self::Aes128CbcHmacSha256 | Self::Aes256CbcHmacSha256 => 32,
            Self::Aes128Gcm16 => 0,
        }
    }

    /// Bytes of keys for both directions, drawn from the keying material.
    pub const fn keymat_len(self) -> usize {
        2 * (self.encryption_len() + self.authentication_len())
    }

    /// Bytes of ESP for `len` bytes of payload: header, initialization vector, payload, padding, trailer and integrity check value.
    pub const fn sealed_len(self, len: usize) -> usize {
        HEADER_LEN + self.iv_len() + (len + 2).next_multiple_of(self.alignment()) + ICV_LEN
    }

    /// The most bytes of payload in `len` bytes of ESP.
    pub const fn payload_within(self, len: usize) -> usize {
        let encrypted = len.saturating_sub(HEADER_LEN + self.iv_len() + ICV_LEN);
        (encrypted / self.alignment() * self.alignment()).saturating_sub(2)
    }

    /// Bytes of an initialization vector in each packet.
    pub(super) const fn iv_len(self) -> usize {
        match self {
            Self::NullHmacSha256 => 0,
            Self::Aes128CbcHmacSha256 | Self::Aes256CbcHmacSha256 => 16,
            Self::Aes128Gcm16 => 8,
        }
    }

    /// The alignment of the encrypted part's length: the cipher's block, or 4 (RFC 4303 section 2.4).
    pub(super) const fn alignment(self) -> usize {
        match self {
            Self::NullHmacSha256 | Self::Aes128Gcm16 => 4,
            Self::Aes128CbcHmacSha256 | Self::Aes256CbcHmacSha256 => 16,
        }
    }
}

/// The keys of one direction.
#[derive(Clone)]
pub struct EspKeys {
    /// Their suite.
    pub suite: EspSuite,
    /// The encryption key, with GCM's salt.
    pub encryption: Zeroizing<Vec<u8>>,
    /// The authentication key.
    pub authentication: Zeroizing<Vec<u8>>,
}

/// Prints no key.
impl core::fmt::Debug for EspKeys {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("EspKeys").field("suite", &self.suite).finish_non_exhaustive()
    }
}

impl EspKeys {
    /// The keys from `local` to `peer` and from `peer` to `local`, from byte `index` of the keying material on. Those of the host
    /// with the greater HIT come first (RFC 7402 section 7).
    ///
    /// # Errors
    ///
    /// [`KeymatError`] if the material is used up.
    pub fn draw(
        suite: EspSuite,
        keymat: &Keymat,
        index: usize,
        local: Hit,
        peer: Hit,
    ) -> Result<(Self, Self), KeymatError> {
        let each = suite.keymat_len() / 2;
        // Drawn at once, as all bytes before them are computed with them.
        let mut first = keymat.draw(index, 2 * each)?;
        let second = first.split_off(each);
        let [first, second] = [first, second].map(|mut encryption| {
            let authentication = Zeroizing::new(encryption.split_off(suite.encryption_len()));
            Self { suite, encryption: Zeroizing::new(encryption), authentication }
        });
        Ok(if local > peer { (first, second) } else { (second, first) })
    }
}
