//! Private keys of hosts.

use bytes::Bytes;
use p256::ecdsa::signature::hazmat::RandomizedPrehashSigner;
use p256::ecdsa::signature::{RandomizedSigner, SignatureEncoding, Signer};
use rand_core::CryptoRng;
use rsa::BoxedUint;
use rsa::traits::PrivateKeyParts;
use sha2::Sha256;
use zeroize::Zeroizing;

use super::host_identity::{encode_ecdsa, encode_eddsa, encode_rsa};
use super::{Algorithm, Hit, HostIdentity, IdentityError};
use crate::codec::{DomainId, HostId, Signature};

/// Bits of the RSA keys made by [`KeyPair::generate`].
const RSA_BITS: usize = 2048;
/// The exponent of the RSA keys of this crate.
const RSA_EXPONENT: u64 = 65_537;

/// A private key and its identity.
pub struct KeyPair {
    key: PrivateKey,
    identity: HostIdentity,
}

enum PrivateKey {
    Rsa(Box<rsa::PrivateKey>),
    P256(p256::ecdsa::SigningKey),
    P384(p384::ecdsa::SigningKey),
    Ed25519(ed25519_dalek::SigningKey),
}

/// Prints no private key.
impl core::fmt::Debug for KeyPair {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("KeyPair").field("identity", &self.identity).finish_non_exhaustive()
    }
}

impl KeyPair {
    /// A fresh key pair. RSA keys have 2,048 bits, and take a second or so.
    pub fn generate<R: CryptoRng + ?Sized>(algorithm: Algorithm, rng: &mut R) -> Self {
        loop {
            let secret = match algorithm {
                Algorithm::Rsa => match rsa::PrivateKey::new(rng, RSA_BITS) {
                    Ok(key) => Zeroizing::new(rsa_secret(&key)),
                    Err(_) => continue,
                },
                Algorithm::EcdsaP384 => random_bytes(48, rng),
                Algorithm::EcdsaP256 | Algorithm::Ed25519 => random_bytes(32, rng),
            };
            // A random number may exceed an elliptic curve's order, with a probability below 2^-32.
            if let Ok(pair) = Self::from_secret(algorithm, &secret) {
                return pair;
            }
        }
    }

    /// The key pair of a secret in the format of [`Self::secret`].
    ///
    /// # Errors
    ///
    /// [`IdentityError::Secret`] if it is not a private key of that algorithm.
    pub fn from_secret(algorithm: Algorithm, secret: &[u8]) -> Result<Self, IdentityError> {
        let error = IdentityError::Secret;
        let (key, encoded) = match algorithm {
            Algorithm::Rsa => {
                let key = read_rsa_secret(secret).ok_or(error)?;
                let encoded = encode_rsa(key.as_public_key());
                (PrivateKey::Rsa(Box::new(key)), encoded)
            }
            Algorithm::EcdsaP256 => {
                let key = p256::ecdsa::SigningKey::from_slice(secret).map_err(|_| error)?;
                let encoded = encode_ecdsa(algorithm, key.verifying_key().to_sec1_point(false).as_bytes());
                (PrivateKey::P256(key), encoded)
            }
            Algorithm::EcdsaP384 => {
                let key = p384::ecdsa::SigningKey::from_slice(secret).map_err(|_| error)?;
                let encoded = encode_ecdsa(algorithm, key.verifying_key().to_sec1_point(false).as_bytes());
                (PrivateKey::P384(key), encoded)
            }
            Algorithm::Ed25519 => {
                let secret: &[u8; 32] = secret.try_into().map_err(|_| error)?;
                let key = ed25519_dalek::SigningKey::from_bytes(secret);
                let encoded = encode_eddsa(key.verifying_key().as_bytes());
                (PrivateKey::Ed25519(key), encoded)
            }
        };
        let host_id =
            HostId { algorithm: algorithm.number(), identity: Bytes::from(encoded), domain: DomainId::default() };
        Ok(Self { key, identity: HostIdentity::from_host_id(&host_id)? })
    }

    /// The private key: an Ed25519 seed (RFC 8032 section 5.1.5), an ECDSA scalar, or the two primes of an RSA key whose
    /// exponent is 65,537, in this order and of equal length; big-endian.
    pub fn secret(&self) -> Zeroizing<Vec<u8>> {
        Zeroizing::new(match &self.key {
            PrivateKey::Rsa(key) => rsa_secret(key),
            PrivateKey::P256(key) => key.to_bytes().to_vec(),
            PrivateKey::P384(key) => key.to_bytes().to_vec(),
            PrivateKey::Ed25519(key) => key.to_bytes().to_vec(),
        })
    }

    /// The public half.
    pub const fn identity(&self) -> &HostIdentity {
        &self.identity
    }

    /// The tag.
    pub fn hit(&self) -> Hit {
        self.identity.hit()
    }

    /// A signature over `message`. Randomness salts RSA and ECDSA, so that faults and timing reveal less about the key.
    pub fn sign<R: CryptoRng + ?Sized>(&self, message: &[u8], rng: &mut R) -> Signature {
        let algorithm = self.identity.algorithm();
        // The hash of the HIT suite, also for P-256.
        let hash = || algorithm.suite().rhash().digest(&[message]);
        let signature = match &self.key {
            PrivateKey::Rsa(key) => {
                let key = rsa::pss::SigningKey::<Sha256>::new((**key).clone());
                key.sign_with_rng(rng, message).to_vec()
            }
            PrivateKey::P256(key) => {
                let signature: p256::ecdsa::Signature =
                    key.sign_prehash_with_rng(rng, &hash()).expect("a hash is long enough to be signed");
                signature.to_vec()
            }
            PrivateKey::P384(key) => {
                let signature: p384::ecdsa::Signature =
                    key.sign_prehash_with_rng(rng, &hash()).expect("a hash is long enough to be signed");
                signature.to_vec()
            }
            PrivateKey::Ed25519(key) => key.sign(message).to_vec(),
        };
        Signature { algorithm: algorithm.number(), signature: Bytes::from(signature) }
    }
}

fn random_bytes<R: CryptoRng + ?Sized>(len: usize, rng: &mut R) -> Zeroizing<Vec<u8>> {
    let mut bytes = Zeroizing::new(vec![0; len]);
    rng.fill_bytes(&mut bytes);
    bytes
}

fn rsa_secret(key: &rsa::PrivateKey) -> Vec<u8> {
    key.primes().iter().flat_map(|prime| prime.to_be_bytes().to_vec()).collect()
}

fn read_rsa_secret(secret: &[u8]) -> Option<rsa::PrivateKey> {
    let (p, q) = secret.split_at_checked(secret.len() / 2).filter(|(p, q)| !p.is_empty() && p.len() == q.len())?;
    let key = rsa::PrivateKey::from_p_q(
        BoxedUint::from_be_slice_vartime(p),
        BoxedUint::from_be_slice_vartime(q),
        BoxedUint::from(RSA_EXPONENT),
    );
    key.ok().filter(|key| key.validate().is_ok())
}
