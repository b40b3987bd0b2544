//! Host Identity Tags: ORCHIDv2 (RFC 7343 section 2), with the suites of RFC 7401 section 5.2.10 and RFC 9374 section 3.4.2.

use core::fmt;
use core::net::Ipv6Addr;

use cshake::CShake128;
use hmac::digest::{CustomizedInit, ExtendableOutput, Update, XofReader};

use crate::crypto::Rhash;

/// The context ID of HIP (RFC 7401 section 3.2).
const CONTEXT_ID: [u8; 16] = 0xF0EF_F02F_BFF4_3D0F_E793_0C3C_6E61_74EA_u128.to_be_bytes();
/// The context ID of hierarchical HITs (RFC 9374 section 3).
const DRIP_CONTEXT_ID: [u8; 16] = 0x00B5_A69C_795D_F5D5_F008_7F56_843F_2C40_u128.to_be_bytes();
/// 2001:20::/28 (RFC 7343 section 2), in the high 28 bits.
const PREFIX: u128 = 0x2001_0020 << 96;
/// 2001:30::/28 (RFC 9374 section 3.1), in the high 28 bits.
const DRIP_PREFIX: u64 = 0x2001_0030 << 32;
/// Bits of the hash in a HIT.
const HASH_BITS: u32 = 96;

/// A Host Identity Tag: an IPv6 address that names a key.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Hit(pub Ipv6Addr);

impl Hit {
    /// The receiver of an opportunistic I1: no HIT.
    pub const UNSPECIFIED: Self = Self(Ipv6Addr::UNSPECIFIED);

    /// Its suite; `None` for other addresses and unknown suites.
    pub fn suite(self) -> Option<HitSuite> {
        self.has_prefix().then(|| HitSuite::from_id((self.0.to_bits() >> HASH_BITS) as u8 & 0xf)).flatten()
    }

    /// Whether it has the prefix of HITs, of whatever suite.
    pub fn has_prefix(self) -> bool {
        self.0.to_bits() >> 100 == PREFIX >> 100
    }
}

impl fmt::Display for Hit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A HIT suite: the kind of keys, and the hash for the HIT.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum HitSuite {
    /// RSA with SHA-256.
    RsaSha256,
    /// ECDSA with SHA-384.
    EcdsaSha384,
    /// EdDSA with cSHAKE128 (RFC 9374 section 3.4.2).
    EddsaCshake128,
}

impl HitSuite {
    /// All of them, the preferred one first.
    pub const ALL: [Self; 3] = [Self::EddsaCshake128, Self::EcdsaSha384, Self::RsaSha256];

    /// The four-bit suite ID, which is also the ORCHID generation algorithm in the HIT.
    pub const fn id(self) -> u8 {
        match self {
            Self::RsaSha256 => 1,
            Self::EcdsaSha384 => 2,
            Self::EddsaCshake128 => 5,
        }
    }

    /// The ID in HIT_SUITE_LIST, in the four higher bits (RFC 7401 section 5.2.10).
    pub const fn wire_id(self) -> u8 {
        self.id() << 4
    }

    /// The suite with this ID.
    pub fn from_id(id: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|suite| suite.id() == id)
    }

    /// RHASH of exchanges whose responder has this suite.
    pub const fn rhash(self) -> Rhash {
        match self {
            Self::RsaSha256 => Rhash::Sha256,
            Self::EcdsaSha384 => Rhash::Sha384,
            Self::EddsaCshake128 => Rhash::CShake128,
        }
    }

    /// The HIT of a key in the encoding of HOST_ID.
    pub fn hit(self, identity: &[u8]) -> Hit {
        let hash = match self {
            Self::RsaSha256 | Self::EcdsaSha384 => encode_96(&self.rhash().digest(&[&CONTEXT_ID, identity])),
            Self::EddsaCshake128 => cshake(&CONTEXT_ID, &[identity]),
        };
        let hash = u128::from_be_bytes([[0; 4].as_slice(), &hash].concat().try_into().unwrap_or_default());
        Hit(Ipv6Addr::from_bits(PREFIX | u128::from(self.id()) << HASH_BITS | hash))
    }
}

/// The middle 96 bits of a hash (RFC 7343 section 2).
fn encode_96(hash: &[u8]) -> [u8; 12] {
    let start = (hash.len() - 12) / 2;
    let mut middle = [0; 12];
    middle.copy_from_slice(&hash[start..start + 12]);
    middle
}

/// cSHAKE128 returns as many bits as needed, so none are cut out. The context ID is its customization, as in the function call that RFC 9374
/// section 3.5 shows: cSHAKE128(Input, L, "", Context ID). The formula of section 3.5.2.1 has it before the input instead.
fn cshake<const N: usize>(context: &[u8; 16], parts: &[&[u8]]) -> [u8; N] {
    let mut hash = CShake128::new_customized(context);
    for part in parts {
        hash.update(part);
    }
    let mut out = [0; N];
    hash.finalize_xof().read(&mut out);
    out
}

/// The hierarchical HIT of an EdDSA key, a DRIP Entity Tag (RFC 9374 section 3): `raa` and `hda` are the registered assigning
/// authority and the HHIT domain authority, 14 bits each; `None` if they do not fit.
pub fn drip_entity_tag(raa: u16, hda: u16, identity: &[u8]) -> Option<Hit> {
    if raa >= 1 << 14 || hda >= 1 << 14 {
        return None;
    }
    let suite = u64::from(HitSuite::EddsaCshake128.id());
    let upper = DRIP_PREFIX | u64::from(raa) << 22 | u64::from(hda) << 8 | suite;
    let lower: [u8; 8] = cshake(&DRIP_CONTEXT_ID, &[&upper.to_be_bytes(), identity]);
    Some(Hit(Ipv6Addr::from_bits(u128::from(upper) << 64 | u128::from(u64::from_be_bytes(lower)))))
}
