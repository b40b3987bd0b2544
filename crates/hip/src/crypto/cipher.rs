//! The cipher of the ENCRYPTED parameter (RFC 7401 sections 5.2.8 and 5.2.18).

use aes::{Aes128, Aes256};
use cbc::cipher::block_padding::Pkcs7;
use cbc::cipher::{BlockModeDecrypt, BlockModeEncrypt, KeyIvInit};
use cbc::{Decryptor, Encryptor};
use rand_core::CryptoRng;

/// Bytes of an initialization vector of AES-CBC.
const IV_LEN: usize = 16;

/// A cipher for parameters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HipCipher {
    /// No encryption.
    Null,
    /// AES-128 in CBC mode.
    Aes128Cbc,
    /// AES-256 in CBC mode.
    Aes256Cbc,
}

/// Data that cannot be decrypted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("cannot decrypt the data")]
pub struct CipherError;

impl HipCipher {
    /// All of them, the preferred one first.
    pub const ALL: [Self; 3] = [Self::Aes256Cbc, Self::Aes128Cbc, Self::Null];

    /// The cipher ID (RFC 7401 section 5.2.8).
    pub const fn id(self) -> u16 {
        match self {
            Self::Null => 1,
            Self::Aes128Cbc => 2,
            Self::Aes256Cbc => 4,
        }
    }

    /// The cipher with this ID.
    pub fn from_id(id: u16) -> Option<Self> {
        Self::ALL.into_iter().find(|cipher| cipher.id() == id)
    }

    /// Bytes of a key.
    pub const fn key_len(self) -> usize {
        match self {
            Self::Null => 0,
            Self::Aes128Cbc => 16,
            Self::Aes256Cbc => 32,
        }
    }

    /// The contents of ENCRYPTED behind the reserved bytes: a random initialization vector and the encrypted data.
    ///
    /// # Errors
    ///
    /// [`CipherError`] if the key has another length than [`Self::key_len`].
    pub fn encrypt<R: CryptoRng + ?Sized>(
        self,
        key: &[u8],
        plaintext: &[u8],
        rng: &mut R,
    ) -> Result<Vec<u8>, CipherError> {
        if self == Self::Null {
            return Ok(plaintext.to_vec());
        }
        let mut out = vec![0; IV_LEN];
        rng.fill_bytes(&mut out);
        let encrypted = match self {
            Self::Aes128Cbc => Encryptor::<Aes128>::new_from_slices(key, &out)
                .map(|cipher| cipher.encrypt_padded_vec::<Pkcs7>(plaintext)),
            _ => Encryptor::<Aes256>::new_from_slices(key, &out)
                .map(|cipher| cipher.encrypt_padded_vec::<Pkcs7>(plaintext)),
        };
        out.extend(encrypted.map_err(|_| CipherError)?);
        Ok(out)
    }

    /// Decrypts the data of ENCRYPTED. Call it after HIP_MAC has been verified: padding does not authenticate the data.
    ///
    /// # Errors
    ///
    /// [`CipherError`] if lengths or padding are wrong.
    pub fn decrypt(self, key: &[u8], data: &[u8]) -> Result<Vec<u8>, CipherError> {
        if self == Self::Null {
            return Ok(data.to_vec());
        }
        let (iv, data) = data.split_at_checked(IV_LEN).ok_or(CipherError)?;
        match self {
            Self::Aes128Cbc => Decryptor::<Aes128>::new_from_slices(key, iv)
                .map_err(|_| CipherError)?
                .decrypt_padded_vec::<Pkcs7>(data)
                .map_err(|_| CipherError),
            _ => Decryptor::<Aes256>::new_from_slices(key, iv)
                .map_err(|_| CipherError)?
                .decrypt_padded_vec::<Pkcs7>(data)
                .map_err(|_| CipherError),
        }
    }
}
