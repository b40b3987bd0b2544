//! Public keys as DNS resource records have them (RFC 8005 section 5.5): with the algorithm numbers of IPSECKEY, and without what HOST_ID
//! has in front of a point.

use bytes::Bytes;

use super::host_identity::{EDDSA_HEAD, encode_ecdsa};
use super::{Algorithm, Hit, HostIdentity, IdentityError};
use crate::codec::{DomainId, HostId};

/// RFC 4025 section 2.4; the key is that of RFC 3110 section 2.
const RSA: u8 = 2;
/// RFC 8005 section 9; the key is that of RFC 6605 section 4: both coordinates of a point.
const ECDSA: u8 = 3;
/// RFC 9373; the key is that of RFC 8080 section 3.
const EDDSA: u8 = 4;
/// SEC 1 section 2.3.3: the first byte of an uncompressed point.
const UNCOMPRESSED: u8 = 4;
/// Bytes of curve and first byte before a point in HOST_ID, as this crate writes it.
const POINT_HEAD_LEN: usize = 3;
/// The curve number of Ed448 in HOST_ID (RFC 9374 section 3.4.1.1), and the length of its keys.
const ED448: u16 = 3;
const ED448_LEN: usize = 57;

/// Why a public key of a resource record is not the identity of a host.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RecordKeyError {
    /// The algorithm is not supported.
    #[error(
        "its public key has algorithm {algorithm} of the IPSECKEY registry; supported are 2 (RSA), 3 (ECDSA) and 4 (EdDSA)"
    )]
    Algorithm {
        /// Its number.
        algorithm: u8,
    },
    /// The key is not usable.
    #[error("its public key is not usable")]
    Key(#[from] IdentityError),
    /// The HIT has another prefix or suite than those of this crate: a HIT of HIPv1 or a DRIP entity tag, say.
    #[error("its HIT {hit} is of no supported suite (2001:21, 2001:22 or 2001:25)")]
    Suite {
        /// The HIT of the record.
        hit: Hit,
    },
    /// The HIT is not the hash of the key.
    #[error("its HIT is {hit}, but its public key has {of_key}")]
    Mismatch {
        /// The HIT of the record.
        hit: Hit,
        /// The HIT of its public key.
        of_key: Hit,
    },
}

impl HostIdentity {
    /// The key of a resource record, whose HIT must be that of the key.
    ///
    /// The record has an ECDSA key without the first byte of a point, and the HIT is a hash of HOST_ID, which some implementations write with
    /// that byte: the identity is the one of both forms that has this HIT.
    ///
    /// # Errors
    ///
    /// [`RecordKeyError`].
    pub fn from_resource_record(algorithm: u8, key: &[u8], hit: Hit) -> Result<Self, RecordKeyError> {
        if hit.suite().is_none() {
            return Err(RecordKeyError::Suite { hit });
        }
        let mut first = None;
        for host_id in host_ids(algorithm, key)? {
            let identity = Self::from_host_id(&host_id)?;
            if identity.hit() == hit {
                return Ok(identity);
            }
            first.get_or_insert(identity.hit());
        }
        Err(RecordKeyError::Mismatch { hit, of_key: first.unwrap_or(Hit::UNSPECIFIED) })
    }

    /// The algorithm number and the public key of a resource record.
    pub fn resource_record(&self) -> (u8, Bytes) {
        let encoded = self.encoded();
        match self.algorithm() {
            Algorithm::Rsa => (RSA, encoded.clone()),
            // With or without its first byte, a point has an even number of bytes behind it.
            Algorithm::EcdsaP256 | Algorithm::EcdsaP384 => {
                let head = POINT_HEAD_LEN - usize::from(encoded.len().is_multiple_of(2));
                (ECDSA, encoded.slice(head..))
            }
            Algorithm::Ed25519 => (EDDSA, encoded.slice(EDDSA_HEAD.len()..)),
        }
    }
}

/// The forms that a key may have in HOST_ID.
fn host_ids(algorithm: u8, key: &[u8]) -> Result<Vec<HostId>, RecordKeyError> {
    let host_id = |kind: Algorithm, identity: Vec<u8>| HostId {
        algorithm: kind.number(),
        identity: Bytes::from(identity),
        domain: DomainId::default(),
    };
    match (algorithm, key.len()) {
        (RSA, _) => Ok(vec![host_id(Algorithm::Rsa, key.to_vec())]),
        (ECDSA, 64 | 96) => {
            let kind = if key.len() == 64 { Algorithm::EcdsaP256 } else { Algorithm::EcdsaP384 };
            let marked = [&[UNCOMPRESSED][..], key].concat();
            Ok(vec![host_id(kind, encode_ecdsa(kind, &marked)), host_id(kind, encode_ecdsa(kind, key))])
        }
        (ECDSA, _) => Err(IdentityError::Key.into()),
        (EDDSA, ED448_LEN) => Err(IdentityError::Curve { curve: ED448 }.into()),
        (EDDSA, _) => Ok(vec![host_id(Algorithm::Ed25519, [&EDDSA_HEAD[..], key].concat())]),
        (algorithm, _) => Err(RecordKeyError::Algorithm { algorithm }),
    }
}
