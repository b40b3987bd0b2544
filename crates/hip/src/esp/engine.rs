//! The ciphers and MACs of one direction, with their key schedules.

use aes::cipher::KeyInit as _;
use aes::{Aes128, Aes256};
use bytes::{BufMut as _, BytesMut};
use cbc::cipher::block_padding::NoPadding;
use cbc::cipher::{Array, BlockModeDecrypt, BlockModeEncrypt, InnerIvInit};
use cbc::{Decryptor, Encryptor};
use hmac::{Hmac, Mac};
use sha2::Sha256;

use super::gcm::{Gcm, GcmProvider, NONCE_LEN};
use super::suite::{EspKeys, EspSuite, HEADER_LEN, ICV_LEN};

/// Encryption and decryption. Prints no key.
pub(super) enum Engine {
    Gcm(Box<dyn Gcm>, [u8; 4]),
    Hmac(Option<Cbc>, Box<Hmac<Sha256>>),
}

pub(super) enum Cbc {
    Aes128(Box<Aes128>),
    Aes256(Box<Aes256>),
}

impl core::fmt::Debug for Engine {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Engine")
    }
}

impl Engine {
    /// `None` if a key has a wrong length.
    pub(super) fn new(keys: &EspKeys, gcm: GcmProvider) -> Option<Self> {
        let cipher = match keys.suite {
            EspSuite::Aes128Gcm16 => {
                let (key, salt) = keys.encryption.split_at_checked(16)?;
                return Some(Self::Gcm(gcm.start(key.try_into().ok()?)?, salt.try_into().ok()?));
            }
            EspSuite::NullHmacSha256 => None,
            EspSuite::Aes128CbcHmacSha256 => {
                Some(Cbc::Aes128(Box::new(Aes128::new_from_slice(&keys.encryption).ok()?)))
            }
            EspSuite::Aes256CbcHmacSha256 => {
                Some(Cbc::Aes256(Box::new(Aes256::new_from_slice(&keys.encryption).ok()?)))
            }
        };
        let mac = <Hmac<Sha256> as hmac::KeyInit>::new_from_slice(&keys.authentication).ok()?;
        Some(Self::Hmac(cipher, Box::new(mac)))
    }

    /// Encrypts the ESP payload that `out` has from `start` on, behind the first `body` bytes of it, and appends the integrity check
    /// value.
    pub(super) fn encrypt(&self, out: &mut BytesMut, start: usize, body: usize, number: u64) -> Option<()> {
        let esp = out.get_mut(start..)?;
        match self {
            Self::Gcm(key, salt) => {
                let (nonce, associated) = nonce(salt, esp, number)?;
                let (_, plain) = esp.split_at_mut_checked(body)?;
                let tag = key.seal(nonce, &associated, plain)?;
                out.put_slice(&tag);
            }
            Self::Hmac(cipher, mac) => {
                let (head, plain) = esp.split_at_mut_checked(body)?;
                let len = plain.len();
                let iv = head.get(HEADER_LEN..)?;
                match cipher {
                    Some(Cbc::Aes128(aes)) => {
                        let mode = Encryptor::inner_iv_init((**aes).clone(), &Array(iv.try_into().ok()?));
                        mode.encrypt_padded::<NoPadding>(plain, len).ok()?;
                    }
                    Some(Cbc::Aes256(aes)) => {
                        let mode = Encryptor::inner_iv_init((**aes).clone(), &Array(iv.try_into().ok()?));
                        mode.encrypt_padded::<NoPadding>(plain, len).ok()?;
                    }
                    None => {}
                }
                let tag = covering(mac, esp, number).finalize().into_bytes();
                out.put_slice(&tag[..ICV_LEN]);
            }
        }
        Some(())
    }

    /// Verifies a whole ESP payload and decrypts the bytes from `body` on, after `room` bytes of zero; `None` if it is
    /// not authentic.
    pub(super) fn decrypt(&self, esp: &[u8], body: usize, number: u64, room: usize) -> Option<Vec<u8>> {
        let (covered, tag) = esp.split_at_checked(esp.len().checked_sub(ICV_LEN)?)?;
        let encrypted = covered.get(body..)?;
        let mut opened = Vec::with_capacity(room + encrypted.len() + ICV_LEN);
        opened.resize(room, 0);
        opened.extend_from_slice(encrypted);
        match self {
            Self::Gcm(key, salt) => {
                let (nonce, associated) = nonce(salt, esp, number)?;
                opened.extend_from_slice(tag);
                key.open(nonce, &associated, &mut opened[room..])?;
                opened.truncate(room + encrypted.len());
            }
            Self::Hmac(cipher, mac) => {
                let plain = &mut opened[room..];
                covering(mac, covered, number).verify_truncated_left(tag).ok()?;
                let iv = covered.get(HEADER_LEN..body)?;
                match cipher {
                    Some(Cbc::Aes128(aes)) => {
                        let mode = Decryptor::inner_iv_init((**aes).clone(), &Array(iv.try_into().ok()?));
                        mode.decrypt_padded::<NoPadding>(plain).ok()?;
                    }
                    Some(Cbc::Aes256(aes)) => {
                        let mode = Decryptor::inner_iv_init((**aes).clone(), &Array(iv.try_into().ok()?));
                        mode.decrypt_padded::<NoPadding>(plain).ok()?;
                    }
                    None => {}
                }
            }
        }
        Some(opened)
    }
}

/// Nonce (salt and initialization vector, RFC 4106 section 4), and associated data: SPI and the whole sequence number (its
/// section 5).
fn nonce(salt: &[u8; 4], esp: &[u8], number: u64) -> Option<([u8; NONCE_LEN], [u8; 12])> {
    let mut nonce = [0; NONCE_LEN];
    nonce[..4].copy_from_slice(salt);
    nonce[4..].copy_from_slice(esp.get(HEADER_LEN..HEADER_LEN + 8)?);
    let mut associated = [0; 12];
    associated[..4].copy_from_slice(esp.get(..4)?);
    associated[4..].copy_from_slice(&number.to_be_bytes());
    Some((nonce, associated))
}

/// The MAC over SPI, sequence number, initialization vector and data, and the upper half of the sequence number, which is not
/// sent (RFC 4303 section 2.2.1).
fn covering(mac: &Hmac<Sha256>, covered: &[u8], number: u64) -> Hmac<Sha256> {
    let mut mac = mac.clone();
    mac.update(covered);
    mac.update(&((number >> 32) as u32).to_be_bytes());
    mac
}
