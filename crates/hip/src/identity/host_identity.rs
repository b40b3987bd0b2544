//! Host identities: public keys in the encodings of HOST_ID (RFC 7401 section 5.2.9, RFC 9374 section 3.4.1).

use bytes::Bytes;
use p256::ecdsa::signature::Verifier;
use p256::ecdsa::signature::hazmat::PrehashVerifier;
use rsa::BoxedUint;
use rsa::traits::PublicKeyParts;
use sha2::Sha256;

use super::{Hit, HitSuite};
use crate::codec::{DomainId, HostId, Signature};

/// The fewest and the most bits of an RSA modulus. RFC 7401 section 5.2.9 requires 112 bits of strength.
const RSA_BITS: core::ops::RangeInclusive<usize> = 2048..=4096;
/// Bytes of curve and reserved field before an EdDSA key (RFC 9374 section 3.4.1.1).
pub(super) const EDDSA_HEAD: [u8; 4] = [0, 1, 0, 0];

/// The kind of key of an identity.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Algorithm {
    /// RSA with RSASSA-PSS and SHA-256.
    Rsa,
    /// ECDSA with NIST P-256 and SHA-384.
    EcdsaP256,
    /// ECDSA with NIST P-384 and SHA-384.
    EcdsaP384,
    /// Ed25519.
    Ed25519,
}

impl Algorithm {
    /// The algorithm number in HOST_ID and in signatures.
    pub const fn number(self) -> u16 {
        match self {
            Self::Rsa => 5,
            Self::EcdsaP256 | Self::EcdsaP384 => 7,
            Self::Ed25519 => 13,
        }
    }

    /// The HIT suite of such keys.
    pub const fn suite(self) -> HitSuite {
        match self {
            Self::Rsa => HitSuite::RsaSha256,
            Self::EcdsaP256 | Self::EcdsaP384 => HitSuite::EcdsaSha384,
            Self::Ed25519 => HitSuite::EddsaCshake128,
        }
    }

    /// The curve number in HOST_ID of an ECDSA key (RFC 7401 section 5.2.9).
    pub(super) const fn curve(self) -> Option<u16> {
        match self {
            Self::EcdsaP256 => Some(1),
            Self::EcdsaP384 => Some(2),
            Self::Rsa | Self::Ed25519 => None,
        }
    }
}

/// Why a HOST_ID is not a usable identity.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum IdentityError {
    /// The algorithm is not supported.
    #[error("host identities of algorithm {algorithm} are not supported")]
    Algorithm {
        /// Its number.
        algorithm: u16,
    },
    /// The curve is not supported.
    #[error("host identities on curve {curve} are not supported")]
    Curve {
        /// Its number.
        curve: u16,
    },
    /// The key is malformed, too short or too long.
    #[error("the host identity is not a usable key")]
    Key,
    /// The secret is invalid for the algorithm.
    #[error("the secret is not a usable private key")]
    Secret,
}

/// A public key that identifies a host.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HostIdentity {
    algorithm: Algorithm,
    /// In the format of HOST_ID.
    encoded: Bytes,
    key: PublicKey,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum PublicKey {
    Rsa(Box<rsa::PublicKey>),
    P256(Box<p256::ecdsa::VerifyingKey>),
    P384(Box<p384::ecdsa::VerifyingKey>),
    Ed25519(Box<ed25519_dalek::VerifyingKey>),
}

impl HostIdentity {
    /// Parses the key in a HOST_ID.
    ///
    /// # Errors
    ///
    /// [`IdentityError`] for keys that are not supported or malformed.
    pub fn from_host_id(host_id: &HostId) -> Result<Self, IdentityError> {
        let encoded = host_id.identity.clone();
        let (algorithm, key) = match host_id.algorithm {
            5 => (Algorithm::Rsa, PublicKey::Rsa(Box::new(read_rsa(&encoded).ok_or(IdentityError::Key)?))),
            7 => read_ecdsa(&encoded)?,
            13 => (Algorithm::Ed25519, read_eddsa(&encoded)?),
            algorithm => return Err(IdentityError::Algorithm { algorithm }),
        };
        Ok(Self { algorithm, encoded, key })
    }

    /// The HOST_ID parameter, with or without a name.
    pub fn host_id(&self, domain: DomainId) -> HostId {
        HostId { algorithm: self.algorithm.number(), identity: self.encoded.clone(), domain }
    }

    /// The kind of key.
    pub const fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// The key in the encoding of HOST_ID.
    pub const fn encoded(&self) -> &Bytes {
        &self.encoded
    }

    /// The tag.
    pub fn hit(&self) -> Hit {
        self.algorithm.suite().hit(&self.encoded)
    }

    /// Whether a signature over `message` was made with the private key.
    pub fn verify(&self, message: &[u8], signature: &Signature) -> bool {
        let bytes = &signature.signature;
        if signature.algorithm != self.algorithm.number() {
            return false;
        }
        // The hash of the HIT suite, also for P-256.
        let hash = || self.algorithm.suite().rhash().digest(&[message]);
        match &self.key {
            PublicKey::Rsa(key) => rsa::pss::Signature::try_from(&bytes[..]).is_ok_and(|signature| {
                let key = rsa::pss::VerifyingKey::<Sha256>::new((**key).clone());
                key.verify(message, &signature).is_ok()
            }),
            PublicKey::P256(key) => p256::ecdsa::Signature::from_slice(bytes)
                .is_ok_and(|signature| key.verify_prehash(&hash(), &signature).is_ok()),
            PublicKey::P384(key) => p384::ecdsa::Signature::from_slice(bytes)
                .is_ok_and(|signature| key.verify_prehash(&hash(), &signature).is_ok()),
            PublicKey::Ed25519(key) => ed25519_dalek::Signature::from_slice(bytes)
                .is_ok_and(|signature| key.verify_strict(message, &signature).is_ok()),
        }
    }
}

/// Exponent length, exponent and modulus (RFC 3110 section 2).
fn read_rsa(encoded: &[u8]) -> Option<rsa::PublicKey> {
    let (len, rest) = match encoded {
        [0, high, low, rest @ ..] => (usize::from(u16::from_be_bytes([*high, *low])), rest),
        [len, rest @ ..] => (usize::from(*len), rest),
        [] => return None,
    };
    let (exponent, modulus) = rest.split_at_checked(len)?;
    // Keys with other exponents are refused: verification would take too long.
    if len == 0 || len > 4 || modulus.first() == Some(&0) || !RSA_BITS.contains(&(modulus.len() * 8)) {
        return None;
    }
    let exponent = BoxedUint::from_be_slice_vartime(exponent);
    rsa::PublicKey::new(BoxedUint::from_be_slice_vartime(modulus), exponent).ok()
}

pub(super) fn encode_rsa(key: &rsa::PublicKey) -> Vec<u8> {
    let (exponent, modulus) = (key.e_bytes(), key.n_bytes());
    // An exponent of 256 bytes and more would need the long form; these have at most 4.
    [&[exponent.len() as u8], &exponent[..], &modulus].concat()
}

/// Curve and point. The octet string of a point is accepted with and without the byte that marks it as uncompressed.
fn read_ecdsa(encoded: &[u8]) -> Result<(Algorithm, PublicKey), IdentityError> {
    let (curve, point) = encoded.split_at_checked(2).ok_or(IdentityError::Key)?;
    let curve = u16::from_be_bytes([curve[0], curve[1]]);
    let point = if point.len() % 2 == 0 { [&[4], point].concat() } else { point.to_vec() };
    if point.first() != Some(&4) {
        return Err(IdentityError::Key);
    }
    match curve {
        1 => {
            let key = p256::ecdsa::VerifyingKey::from_sec1_bytes(&point).map_err(|_| IdentityError::Key)?;
            Ok((Algorithm::EcdsaP256, PublicKey::P256(Box::new(key))))
        }
        2 => {
            let key = p384::ecdsa::VerifyingKey::from_sec1_bytes(&point).map_err(|_| IdentityError::Key)?;
            Ok((Algorithm::EcdsaP384, PublicKey::P384(Box::new(key))))
        }
        _ => Err(IdentityError::Curve { curve }),
    }
}

fn read_eddsa(encoded: &[u8]) -> Result<PublicKey, IdentityError> {
    let (head, key) = encoded.split_at_checked(EDDSA_HEAD.len()).ok_or(IdentityError::Key)?;
    let curve = u16::from_be_bytes([head[0], head[1]]);
    if curve != 1 {
        return Err(IdentityError::Curve { curve });
    }
    let key: [u8; 32] = key.try_into().map_err(|_| IdentityError::Key)?;
    let key = ed25519_dalek::VerifyingKey::from_bytes(&key).map_err(|_| IdentityError::Key)?;
    // Anyone can make signatures that verify under a key of small order.
    if key.is_weak() { Err(IdentityError::Key) } else { Ok(PublicKey::Ed25519(Box::new(key))) }
}

pub(super) fn encode_ecdsa(algorithm: Algorithm, point: &[u8]) -> Vec<u8> {
    [&algorithm.curve().unwrap_or_default().to_be_bytes()[..], point].concat()
}

pub(super) fn encode_eddsa(key: &[u8; 32]) -> Vec<u8> {
    [&EDDSA_HEAD[..], key].concat()
}
