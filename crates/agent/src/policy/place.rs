//! Addresses of a rule.

use core::fmt;
use core::str::FromStr;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use holdover_flow::{MAPPED_PREFIX_LEN, mapped, prefix_mask};
use holdover_host::words::Word;

/// A prefix: `10.0.0.0/8`, `2001:db8::1`. The bits after it are 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Prefix {
    /// IPv4 is `::ffff:0:0/96`.
    bits: u128,
    /// From 0 to 128.
    len: u8,
}

/// A prefix, or a keyword.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Addresses {
    /// One prefix.
    Prefix(Prefix),
    /// All addresses: `any`.
    Any,
    /// The loopback addresses: `loopback`.
    Loopback,
    /// Private addresses (RFC 1918, RFC 4193): `private`.
    Private,
    /// Link-local addresses (RFC 3927, RFC 4291): `link-local`.
    LinkLocal,
}

/// An invalid address.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PlaceError {
    /// Invalid addresses.
    #[error("invalid address \"{0}\": expected {expected}", expected = Addresses::EXPECTED)]
    Addresses(Box<str>),
    /// A prefix with bits after its length.
    #[error("\"{text}\" has bits after its prefix: did you mean {meant}?")]
    BitsAfterPrefix {
        /// The text.
        text: Box<str>,
        /// The prefix with these bits cleared.
        meant: Prefix,
    },
}

impl Prefix {
    /// Every address.
    pub const ALL: Self = Self { bits: 0, len: 0 };

    /// The addresses whose first `len` bits are those of `address`; `None` if it has fewer bits.
    pub fn of(address: IpAddr, len: u8) -> Option<Self> {
        let offset = if address.is_ipv4() { MAPPED_PREFIX_LEN } else { 0 };
        let len = len.checked_add(offset).filter(|len| *len <= 128)?;
        Some(Self { bits: mapped(address).to_bits() & prefix_mask(len), len })
    }

    /// The common bits, and their mask, with IPv4 within IPv6.
    pub(crate) const fn bits_and_mask(self) -> (u128, u128) {
        (self.bits, prefix_mask(self.len))
    }
}

impl Addresses {
    /// The prefixes.
    pub fn prefixes(self) -> Vec<Prefix> {
        let v4 = |a, b, len: u8| Prefix {
            bits: mapped(Ipv4Addr::new(a, b, 0, 0).into()).to_bits(),
            len: MAPPED_PREFIX_LEN + len,
        };
        let v6 = |first, len| Prefix { bits: Ipv6Addr::new(first, 0, 0, 0, 0, 0, 0, 0).to_bits(), len };
        match self {
            Self::Prefix(prefix) => vec![prefix],
            Self::Any => vec![Prefix::ALL],
            Self::Loopback => vec![v4(127, 0, 8), Prefix { bits: 1, len: 128 }],
            Self::Private => vec![v4(10, 0, 8), v4(172, 16, 12), v4(192, 168, 16), v6(0xfc00, 7)],
            Self::LinkLocal => vec![v4(169, 254, 16), v6(0xfe80, 10)],
        }
    }
}

impl Word for Addresses {
    const NAME: &'static str = "Addresses";
    const EXPECTED: &'static str =
        "an address, a prefix such as \"10.0.0.0/8\" or \"2001:db8::/32\", loopback, private, link-local or any";
    const MAY_BE_NUMBER: bool = false;
}

impl FromStr for Addresses {
    type Err = PlaceError;

    fn from_str(text: &str) -> Result<Self, PlaceError> {
        match text {
            "any" => return Ok(Self::Any),
            "loopback" => return Ok(Self::Loopback),
            "private" => return Ok(Self::Private),
            "link-local" => return Ok(Self::LinkLocal),
            _ => {}
        }
        let wrong = || PlaceError::Addresses(text.into());
        let (address, len) = match text.split_once('/') {
            Some((address, len)) => (address, Some(len.parse::<u8>().map_err(|_| wrong())?)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| wrong())?;
        let len = len.unwrap_or(if address.is_ipv4() { 32 } else { 128 });
        let prefix = Prefix::of(address, len).ok_or_else(wrong)?;
        if prefix.bits != mapped(address).to_bits() {
            return Err(PlaceError::BitsAfterPrefix { text: text.into(), meant: prefix });
        }
        Ok(Self::Prefix(prefix))
    }
}

impl fmt::Display for Addresses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Prefix(prefix) => prefix.fmt(f),
            Self::Any => f.write_str("any"),
            Self::Loopback => f.write_str("loopback"),
            Self::Private => f.write_str("private"),
            Self::LinkLocal => f.write_str("link-local"),
        }
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let address = Ipv6Addr::from_bits(self.bits);
        match address.to_ipv4_mapped().filter(|_| self.len >= MAPPED_PREFIX_LEN) {
            Some(address) => write!(f, "{address}/{}", self.len - MAPPED_PREFIX_LEN),
            None => write!(f, "{address}/{}", self.len),
        }
    }
}
