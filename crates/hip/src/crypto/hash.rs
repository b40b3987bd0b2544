//! RHASH: the hash function of the responder's HIT suite (RFC 7401 section 3), and HMAC and HKDF over it.

use cshake::CShake128;
use hmac::digest::block_api::BlockSizeUser;
use hmac::digest::common::OutputSizeUser;
use hmac::digest::consts::{U32, U168};
use hmac::digest::{Digest, ExtendableOutput, FixedOutput, HashMarker, KeyInit, Mac, Output, Update, XofReader};
use hmac::{Hmac, SimpleHmac};
use sha2::{Sha256, Sha384};

/// The hash function of an exchange.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rhash {
    /// SHA-256: HIT suite 1.
    Sha256,
    /// SHA-384: HIT suite 2.
    Sha384,
    /// cSHAKE128 with 256 bits of output and no customization: HIT suite 5. RFC 9374 defines only the suite's HITs; HMAC and HKDF over it
    /// follow RFC 7401, which requires them over RHASH.
    CShake128,
}

impl Rhash {
    /// RHASH_len in bytes.
    pub const fn output_len(self) -> usize {
        match self {
            Self::Sha256 | Self::CShake128 => 32,
            Self::Sha384 => 48,
        }
    }

    /// The hash of the concatenation of `parts`.
    pub fn digest(self, parts: &[&[u8]]) -> Vec<u8> {
        match self {
            Self::Sha256 => digest::<Sha256>(parts),
            Self::Sha384 => digest::<Sha384>(parts),
            Self::CShake128 => digest::<CShake128Digest>(parts),
        }
    }

    /// HMAC over RHASH (RFC 2104), with a key of any length.
    pub fn mac(self, key: &[u8], message: &[u8]) -> Vec<u8> {
        match self {
            Self::Sha256 => mac::<Hmac<Sha256>>(key, message).finalize().into_bytes().to_vec(),
            Self::Sha384 => mac::<Hmac<Sha384>>(key, message).finalize().into_bytes().to_vec(),
            Self::CShake128 => mac::<SimpleHmac<CShake128Digest>>(key, message).finalize().into_bytes().to_vec(),
        }
    }

    /// Whether `tag` is the whole MAC; compared in constant time.
    pub fn verify_mac(self, key: &[u8], message: &[u8], tag: &[u8]) -> bool {
        let verified = match self {
            Self::Sha256 => mac::<Hmac<Sha256>>(key, message).verify_slice(tag),
            Self::Sha384 => mac::<Hmac<Sha384>>(key, message).verify_slice(tag),
            Self::CShake128 => mac::<SimpleHmac<CShake128Digest>>(key, message).verify_slice(tag),
        };
        verified.is_ok()
    }

    /// HKDF over RHASH (RFC 5869): `len` bytes, at most 255 times the hash's length; `None` if more.
    pub(super) fn hkdf(self, salt: &[u8], secret: &[u8], info: &[u8], len: usize) -> Option<Vec<u8>> {
        let mut out = vec![0; len];
        let expanded = match self {
            Self::Sha256 => hkdf::Hkdf::<Sha256>::new(Some(salt), secret).expand(info, &mut out),
            Self::Sha384 => hkdf::Hkdf::<Sha384>::new(Some(salt), secret).expand(info, &mut out),
            Self::CShake128 => hkdf::SimpleHkdf::<CShake128Digest>::new(Some(salt), secret).expand(info, &mut out),
        };
        expanded.ok().map(|()| out)
    }
}

fn digest<D: Digest>(parts: &[&[u8]]) -> Vec<u8> {
    let mut hash = D::new();
    for part in parts {
        Digest::update(&mut hash, part);
    }
    hash.finalize().to_vec()
}

fn mac<M: Mac + KeyInit>(key: &[u8], message: &[u8]) -> M {
    let mut mac = <M as KeyInit>::new_from_slice(key).expect("HMAC takes keys of any length");
    mac.update(message);
    mac
}

/// cSHAKE128 as a hash of 256 bits.
#[derive(Clone, Default)]
struct CShake128Digest(CShake128);

impl HashMarker for CShake128Digest {}

impl OutputSizeUser for CShake128Digest {
    type OutputSize = U32;
}

impl BlockSizeUser for CShake128Digest {
    type BlockSize = U168;
}

impl Update for CShake128Digest {
    fn update(&mut self, data: &[u8]) {
        self.0.update(data);
    }
}

impl FixedOutput for CShake128Digest {
    fn finalize_into(self, out: &mut Output<Self>) {
        self.0.finalize_xof().read(out);
    }
}
