//! Diffie-Hellman groups (RFC 7401 section 5.2.7).

use bytes::Bytes;
use crypto_bigint::modular::{BoxedMontyForm, BoxedMontyParams};
use crypto_bigint::{BoxedUint, Odd};
use p256::elliptic_curve::sec1::{FromSec1Point, ModulusSize, Sec1Point, ToSec1Point};
use p256::elliptic_curve::{CurveArithmetic, FieldBytesSize, Generate, Group, PublicKey, SecretKey};
use rand_core::CryptoRng;
use zeroize::Zeroizing;

/// A group of the registry that this crate supports.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DhGroup {
    /// 1536-bit MODP (RFC 3526 section 2).
    Modp1536,
    /// 2048-bit MODP (RFC 3526 section 3).
    Modp2048,
    /// 3072-bit MODP (RFC 3526 section 4).
    Modp3072,
    /// NIST P-256 (RFC 5903 section 3.1).
    P256,
    /// NIST P-384 (RFC 5903 section 3.2).
    P384,
    /// NIST P-521 (RFC 5903 section 3.3).
    P521,
}

/// Why no secret can be derived.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum DhError {
    /// The public value has another length than the group's.
    #[error("public value of {len} bytes, expected {expected}")]
    Length {
        /// Its length in bytes.
        len: usize,
        /// The group's length in bytes.
        expected: usize,
    },
    /// The public value is not an element of the group, or one that reveals the secret.
    #[error("the public value is not a usable element of the group")]
    Element,
}

/// A private key and its public value.
pub struct DhKeyPair {
    group: DhGroup,
    private: Private,
    public: Bytes,
}

enum Private {
    P256(SecretKey<p256::NistP256>),
    P384(SecretKey<p384::NistP384>),
    P521(SecretKey<p521::NistP521>),
    Modp(Zeroizing<[u8; EXPONENT_LEN]>),
}

/// Bytes of a MODP exponent: well over twice the 130 bits of strength that RFC 3526 section 8 gives its 3072-bit group.
const EXPONENT_LEN: usize = 64;

/// Prints no key.
impl core::fmt::Debug for DhKeyPair {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("DhKeyPair").field("group", &self.group).finish_non_exhaustive()
    }
}

/// The shared secret of an exchange: Kij of RFC 7401 section 6.5. Zeroized on drop.
#[derive(Clone)]
pub struct SharedSecret(Zeroizing<Vec<u8>>);

impl SharedSecret {
    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }
}

/// Prints no secret.
impl core::fmt::Debug for SharedSecret {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("SharedSecret")
    }
}

impl DhGroup {
    /// All of them, the preferred one first.
    pub const ALL: [Self; 6] = [Self::P256, Self::P384, Self::P521, Self::Modp3072, Self::Modp2048, Self::Modp1536];

    /// The group ID.
    pub const fn id(self) -> u8 {
        match self {
            Self::Modp1536 => 3,
            Self::Modp3072 => 4,
            Self::P256 => 7,
            Self::P384 => 8,
            Self::P521 => 9,
            Self::Modp2048 => 11,
        }
    }

    /// The group with this ID.
    pub fn from_id(id: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|group| group.id() == id)
    }

    /// Bytes of a public value: both coordinates of a point, or a number as long as the modulus.
    pub const fn public_len(self) -> usize {
        match self {
            Self::Modp1536 => 192,
            Self::Modp2048 => 256,
            Self::Modp3072 => 384,
            Self::P256 => 64,
            Self::P384 => 96,
            Self::P521 => 132,
        }
    }

    const fn modulus(self) -> Option<&'static str> {
        match self {
            Self::Modp1536 => Some(MODP_1536),
            Self::Modp2048 => Some(MODP_2048),
            Self::Modp3072 => Some(MODP_3072),
            Self::P256 | Self::P384 | Self::P521 => None,
        }
    }
}

impl DhKeyPair {
    /// A fresh key pair.
    pub fn generate<R: CryptoRng + ?Sized>(group: DhGroup, rng: &mut R) -> Self {
        let (private, public) = match group {
            DhGroup::P256 => {
                let secret = SecretKey::generate_from_rng(rng);
                let public = coordinates(&secret.public_key());
                (Private::P256(secret), public)
            }
            DhGroup::P384 => {
                let secret = SecretKey::generate_from_rng(rng);
                let public = coordinates(&secret.public_key());
                (Private::P384(secret), public)
            }
            DhGroup::P521 => {
                let secret = SecretKey::generate_from_rng(rng);
                let public = coordinates(&secret.public_key());
                (Private::P521(secret), public)
            }
            DhGroup::Modp1536 | DhGroup::Modp2048 | DhGroup::Modp3072 => {
                let mut exponent = Zeroizing::new([0; EXPONENT_LEN]);
                rng.fill_bytes(&mut *exponent);
                let public = modp_power(group, &[2], &*exponent).unwrap_or_default();
                (Private::Modp(exponent), public)
            }
        };
        Self { group, private, public: Bytes::from(public) }
    }

    /// The group.
    pub const fn group(&self) -> DhGroup {
        self.group
    }

    /// The public value in the format of DIFFIE_HELLMAN.
    pub fn public(&self) -> Bytes {
        self.public.clone()
    }

    /// The secret shared with the owner of a public value. For a point it is the x coordinate (RFC 5903 section 7), else a number as long
    /// as the modulus. A number may come without its leading zeros.
    ///
    /// # Errors
    ///
    /// [`DhError`] if the value is not an element of the group, or is 0, 1 or -1.
    pub fn agree(&self, peer: &[u8]) -> Result<SharedSecret, DhError> {
        let expected = self.group.public_len();
        let is_short_number = self.group.modulus().is_some() && (1..expected).contains(&peer.len());
        if peer.len() != expected && !is_short_number {
            return Err(DhError::Length { len: peer.len(), expected });
        }
        let secret = match &self.private {
            Private::P256(secret) => agree_on_curve(secret, peer),
            Private::P384(secret) => agree_on_curve(secret, peer),
            Private::P521(secret) => agree_on_curve(secret, peer),
            Private::Modp(exponent) => modp_power(self.group, peer, &**exponent),
        };
        secret.map(|secret| SharedSecret(Zeroizing::new(secret))).ok_or(DhError::Element)
    }
}

fn coordinates<C>(public: &PublicKey<C>) -> Vec<u8>
where
    C: CurveArithmetic,
    FieldBytesSize<C>: ModulusSize,
    C::AffinePoint: FromSec1Point<C> + ToSec1Point<C>,
{
    public.to_sec1_point(false).as_bytes()[1..].to_vec()
}

fn agree_on_curve<C>(secret: &SecretKey<C>, peer: &[u8]) -> Option<Vec<u8>>
where
    C: CurveArithmetic,
    FieldBytesSize<C>: ModulusSize,
    C::AffinePoint: FromSec1Point<C> + ToSec1Point<C>,
    C::ProjectivePoint: Group,
{
    let point = Sec1Point::<C>::from_bytes([&[4], peer].concat()).ok()?;
    let public: Option<PublicKey<C>> = PublicKey::from_sec1_point(&point).into();
    Some(secret.diffie_hellman(&public?).raw_secret_bytes().to_vec())
}

/// `base` to the power of `exponent`, as long as the modulus; `None` if the base is not between 1 and the modulus minus 1.
fn modp_power(group: DhGroup, base: &[u8], exponent: &[u8]) -> Option<Vec<u8>> {
    let bits = group.public_len() as u32 * 8;
    let modulus: Option<BoxedUint> = BoxedUint::from_str_radix_vartime(group.modulus()?, 16).ok();
    let modulus = modulus?;
    let base = BoxedUint::from_be_slice(base, bits).ok()?;
    let one = BoxedUint::one_with_precision(bits);
    if base <= one || base >= modulus.wrapping_sub(&one) {
        return None;
    }
    let odd: Option<Odd<BoxedUint>> = Odd::new(modulus).into();
    let params = BoxedMontyParams::new(odd?);
    let exponent = BoxedUint::from_be_slice(exponent, EXPONENT_LEN as u32 * 8).ok()?;
    let power = BoxedMontyForm::new(base, &params).pow(&exponent).retrieve();
    Some(power.to_be_bytes().to_vec())
}

// p = 2^n - 2^(n-64) - 1 + 2^64 * (floor(2^(n-130) * pi) + c), with c = 741804, 124476 and 1690314.
const MODP_1536: &str = concat!(
    "ffffffffffffffffc90fdaa22168c234c4c6628b80dc1cd129024e088a67cc74020bbea63b139b22514a08798e3404dd",
    "ef9519b3cd3a431b302b0a6df25f14374fe1356d6d51c245e485b576625e7ec6f44c42e9a637ed6b0bff5cb6f406b7ed",
    "ee386bfb5a899fa5ae9f24117c4b1fe649286651ece45b3dc2007cb8a163bf0598da48361c55d39a69163fa8fd24cf5f",
    "83655d23dca3ad961c62f356208552bb9ed529077096966d670c354e4abc9804f1746c08ca237327ffffffffffffffff",
);

const MODP_2048: &str = concat!(
    "ffffffffffffffffc90fdaa22168c234c4c6628b80dc1cd129024e088a67cc74020bbea63b139b22514a08798e3404dd",
    "ef9519b3cd3a431b302b0a6df25f14374fe1356d6d51c245e485b576625e7ec6f44c42e9a637ed6b0bff5cb6f406b7ed",
    "ee386bfb5a899fa5ae9f24117c4b1fe649286651ece45b3dc2007cb8a163bf0598da48361c55d39a69163fa8fd24cf5f",
    "83655d23dca3ad961c62f356208552bb9ed529077096966d670c354e4abc9804f1746c08ca18217c32905e462e36ce3b",
    "e39e772c180e86039b2783a2ec07a28fb5c55df06f4c52c9de2bcbf6955817183995497cea956ae515d2261898fa0510",
    "15728e5a8aacaa68ffffffffffffffff",
);

const MODP_3072: &str = concat!(
    "ffffffffffffffffc90fdaa22168c234c4c6628b80dc1cd129024e088a67cc74020bbea63b139b22514a08798e3404dd",
    "ef9519b3cd3a431b302b0a6df25f14374fe1356d6d51c245e485b576625e7ec6f44c42e9a637ed6b0bff5cb6f406b7ed",
    "ee386bfb5a899fa5ae9f24117c4b1fe649286651ece45b3dc2007cb8a163bf0598da48361c55d39a69163fa8fd24cf5f",
    "83655d23dca3ad961c62f356208552bb9ed529077096966d670c354e4abc9804f1746c08ca18217c32905e462e36ce3b",
    "e39e772c180e86039b2783a2ec07a28fb5c55df06f4c52c9de2bcbf6955817183995497cea956ae515d2261898fa0510",
    "15728e5a8aaac42dad33170d04507a33a85521abdf1cba64ecfb850458dbef0a8aea71575d060c7db3970f85a6e1e4c7",
    "abf5ae8cdb0933d71e8c94e04a25619dcee3d2261ad2ee6bf12ffa06d98a0864d87602733ec86a64521f2b18177b200c",
    "bbe117577a615d6c770988c0bad946e208e24fa074e5ab3143db5bfce0fd108e4b82d120a93ad2caffffffffffffffff",
);
