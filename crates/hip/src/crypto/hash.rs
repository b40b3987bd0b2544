//! RHASH: the hash function of the responder's HIT suite (RFC 7401 section 2.3), its MAC (RFC 7401 section 5.2.10, RFC 9374 section
//! 3.4.2) and HKDF over it (RFC 7401 section 6.5).

use cshake::CShake128;
use hmac::Hmac;
use hmac::digest::block_api::BlockSizeUser;
use hmac::digest::common::OutputSizeUser;
use hmac::digest::consts::{U32, U168};
use hmac::digest::{
    CtOutput, Digest, ExtendableOutput, FixedOutput, HashMarker, KeyInit, Mac, Output, Update, XofReader,
};
use sha2::{Sha256, Sha384};

/// The hash function of an exchange.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rhash {
    /// SHA-256: HIT suite 1.
    Sha256,
    /// SHA-384: HIT suite 2.
    Sha384,
    /// cSHAKE128 with 256 bits of output and no customization: HIT suite 5. RFC 9374 leaves the length open except for HITs. The MAC is
    /// KMAC128, of the same length and without customization; HKDF is that of RFC 5869, with HMAC over cSHAKE128.
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

    /// The MAC of the HIT suite, with a key of any length: HMAC over RHASH (RFC 2104), or KMAC128.
    pub fn mac(self, key: &[u8], message: &[u8]) -> Vec<u8> {
        match self {
            Self::Sha256 => mac::<Hmac<Sha256>>(key, message).finalize().into_bytes().to_vec(),
            Self::Sha384 => mac::<Hmac<Sha384>>(key, message).finalize().into_bytes().to_vec(),
            Self::CShake128 => kmac128(key, message).to_vec(),
        }
    }

    /// Whether `tag` is the whole MAC; compared in constant time.
    pub fn verify_mac(self, key: &[u8], message: &[u8], tag: &[u8]) -> bool {
        match self {
            Self::Sha256 => mac::<Hmac<Sha256>>(key, message).verify_slice(tag).is_ok(),
            Self::Sha384 => mac::<Hmac<Sha384>>(key, message).verify_slice(tag).is_ok(),
            Self::CShake128 => Output::<CShake128Digest>::try_from(tag).is_ok_and(|tag| {
                let expected = CtOutput::<CShake128Digest>::new(kmac128(key, message));
                expected == CtOutput::new(tag)
            }),
        }
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

/// KMAC128 with 256 bits of output and no customization (NIST SP 800-185 section 4.3).
fn kmac128(key: &[u8], message: &[u8]) -> Output<CShake128Digest> {
    /// Bytes of a block of cSHAKE128, and their left_encode.
    const BLOCK: usize = 168;
    const BLOCK_ENCODED: [u8; 2] = [1, BLOCK as u8];
    /// right_encode of 256.
    const BITS_ENCODED: [u8; 3] = [1, 0, 2];
    let bits = (key.len() as u64 * 8).to_be_bytes();
    // left_encode: at least one byte, after their number.
    let skipped = bits.iter().take_while(|&&byte| byte == 0).count().min(bits.len() - 1);
    let mut head = [&BLOCK_ENCODED[..], &[(bits.len() - skipped) as u8], &bits[skipped..], key].concat();
    head.resize(head.len().next_multiple_of(BLOCK), 0);
    let mut hash = CShake128::new_with_function_name(b"KMAC", b"");
    for part in [&head[..], message, &BITS_ENCODED] {
        hash.update(part);
    }
    let mut out = Output::<CShake128Digest>::default();
    hash.finalize_xof().read(&mut out);
    out
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

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 5869 appendix A.1.
    #[test]
    fn hkdf_of_the_rfc() {
        let salt: Vec<u8> = (0..13).collect();
        let info: Vec<u8> = (0xf0..0xfa).collect();
        let expected = [
            0x3c, 0xb2, 0x5f, 0x25, 0xfa, 0xac, 0xd5, 0x7a, 0x90, 0x43, 0x4f, 0x64, 0xd0, 0x36, 0x2f, 0x2a, 0x2d, 0x2d,
            0x0a, 0x90, 0xcf, 0x1a, 0x5a, 0x4c, 0x5d, 0xb0, 0x2d, 0x56, 0xec, 0xc4, 0xc5, 0xbf, 0x34, 0x00, 0x72, 0x08,
            0xd5, 0xb8, 0x87, 0x18, 0x58, 0x65,
        ];
        assert_eq!(Rhash::Sha256.hkdf(&salt, &[0x0b; 22], &info, 42).as_deref(), Some(&expected[..]));
    }

    /// RFC 2104 and RFC 5869, written out over cSHAKE128 with 256 bits, whose block is 168 bytes.
    #[test]
    fn hkdf_over_cshake_uses_hmac() {
        let rhash = Rhash::CShake128;
        let hmac = |key: &[u8], message: &[u8]| {
            let pad = |byte: u8| (0..168).map(|i| key.get(i).copied().unwrap_or(0) ^ byte).collect::<Vec<u8>>();
            rhash.digest(&[&pad(0x5c), &rhash.digest(&[&pad(0x36), message])])
        };
        let extracted = hmac(b"salt", b"secret");
        let first = hmac(&extracted, b"info\x01");
        let second = hmac(&extracted, &[&first[..], b"info\x02"].concat());
        assert_eq!(rhash.hkdf(b"salt", b"secret", b"info", 64), Some([first, second].concat()));
    }
}
