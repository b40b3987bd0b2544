//! AES-GCM of this crate, and the interface for an owner with a faster one.

use aes_gcm::aead::AeadInOut as _;
use aes_gcm::{Aes128Gcm, KeyInit as _, Nonce, Tag};

/// Bytes of a nonce: salt and initialization vector.
pub(super) const NONCE_LEN: usize = 12;
/// Bytes of SPI and sequence number, which are authenticated.
const ASSOCIATED_LEN: usize = 12;
/// Bytes of a tag.
const TAG_LEN: usize = 16;

/// AES-128 in Galois/Counter Mode with one key, whose nonces the caller never repeats.
pub trait Gcm: Send + Sync {
    /// Encrypts `data` in place, and returns the tag; `None` if it is too long.
    fn seal(&self, nonce: [u8; 12], associated: &[u8; 12], data: &mut [u8]) -> Option<[u8; 16]>;

    /// Decrypts `data` in place; its last 16 bytes are the tag. `None` if it is not authentic, and must not be used.
    fn open(&self, nonce: [u8; 12], associated: &[u8; 12], data: &mut [u8]) -> Option<()>;
}

/// An implementation of AES-GCM. This crate's is portable; that of the owner may use the machine better.
#[derive(Clone, Copy)]
pub struct GcmProvider(fn(&[u8; 16]) -> Option<Box<dyn Gcm>>);

impl GcmProvider {
    /// One that makes a key ready.
    pub const fn new(start: fn(&[u8; 16]) -> Option<Box<dyn Gcm>>) -> Self {
        Self(start)
    }

    /// Makes a key ready; `None` if the implementation refuses it.
    pub fn start(self, key: &[u8; 16]) -> Option<Box<dyn Gcm>> {
        (self.0)(key)
    }
}

impl Default for GcmProvider {
    /// This crate's.
    fn default() -> Self {
        Self(|key| Some(Box::new(Portable(Aes128Gcm::new(key.into())))))
    }
}

impl PartialEq for GcmProvider {
    fn eq(&self, other: &Self) -> bool {
        core::ptr::fn_addr_eq(self.0, other.0)
    }
}

impl Eq for GcmProvider {}

impl core::fmt::Debug for GcmProvider {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("GcmProvider")
    }
}

/// RustCrypto's.
struct Portable(Aes128Gcm);

impl Gcm for Portable {
    fn seal(
        &self,
        nonce: [u8; NONCE_LEN],
        associated: &[u8; ASSOCIATED_LEN],
        data: &mut [u8],
    ) -> Option<[u8; TAG_LEN]> {
        self.0.encrypt_inout_detached(&Nonce::from(nonce), associated, data.into()).ok().map(Into::into)
    }

    fn open(&self, nonce: [u8; NONCE_LEN], associated: &[u8; ASSOCIATED_LEN], data: &mut [u8]) -> Option<()> {
        let (data, tag) = data.split_last_chunk_mut::<TAG_LEN>()?;
        self.0.decrypt_inout_detached(&Nonce::from(nonce), associated, data.into(), &Tag::from(*tag)).ok()
    }
}
