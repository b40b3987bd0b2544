//! LOCATOR_SET (RFC 8046 section 4.1).

use core::net::{IpAddr, Ipv6Addr};

use bytes::{Buf, BufMut, Bytes};

/// One locator of a LOCATOR_SET.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Locator {
    /// The allowed use.
    pub traffic: LocatorTraffic,
    /// Whether the sender prefers it.
    pub preferred: bool,
    /// The remaining lifetime in seconds.
    pub lifetime_s: u32,
    /// The locator itself.
    pub kind: LocatorKind,
}

/// The allowed use of a locator (RFC 8046 section 4.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LocatorTraffic {
    /// HIP packets and data.
    Both,
    /// HIP packets.
    Signalling,
    /// Data.
    Data,
    /// A number that no RFC defines.
    Unknown(u8),
}

/// A locator by its type.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LocatorKind {
    /// Type 0: an address.
    Address(Ipv6Addr),
    /// Type 1: an ESP SPI and an address.
    EspSpi {
        /// The SPI.
        spi: u32,
        /// The address; an IPv4 address is mapped (RFC 4291 section 2.5.5.2).
        address: Ipv6Addr,
    },
    /// A type unknown to this crate; contents in units of 4 bytes.
    Other {
        /// The type.
        number: u8,
        /// The contents.
        contents: Bytes,
    },
}

impl Locator {
    /// An address for signalling and data, with the SPI of data sent there.
    pub fn esp(address: IpAddr, spi: u32, lifetime_s: u32, preferred: bool) -> Self {
        let address = map(address);
        Self { traffic: LocatorTraffic::Both, preferred, lifetime_s, kind: LocatorKind::EspSpi { spi, address } }
    }

    /// The address, if the type is known.
    pub fn address(&self) -> Option<IpAddr> {
        match &self.kind {
            LocatorKind::Address(address) | LocatorKind::EspSpi { address, .. } => Some(unmap(*address)),
            LocatorKind::Other { .. } => None,
        }
    }

    pub(super) fn is_writable(&self) -> bool {
        match &self.kind {
            LocatorKind::Other { number, contents } => {
                *number > 1 && contents.len().is_multiple_of(4) && contents.len() <= 255 * 4
            }
            _ => true,
        }
    }

    pub(super) fn put(&self, out: &mut Vec<u8>) {
        let (number, words) = match &self.kind {
            LocatorKind::Address(_) => (0, 4),
            LocatorKind::EspSpi { .. } => (1, 5),
            LocatorKind::Other { number, contents } => (*number, (contents.len() / 4) as u8),
        };
        out.put_slice(&[self.traffic.number(), number, words, u8::from(self.preferred)]);
        out.put_u32(self.lifetime_s);
        match &self.kind {
            LocatorKind::Address(address) => out.put_slice(&address.octets()),
            LocatorKind::EspSpi { spi, address } => {
                out.put_u32(*spi);
                out.put_slice(&address.octets());
            }
            LocatorKind::Other { contents, .. } => out.put_slice(contents),
        }
    }

    /// Takes the first locator off; `None` if it is malformed.
    fn take(contents: &mut Bytes) -> Option<Self> {
        let head = contents.get(..8)?;
        let (traffic, number, preferred) = (LocatorTraffic::from_number(head[0]), head[1], head[3] & 1 == 1);
        let lifetime_s = u32::from_be_bytes([head[4], head[5], head[6], head[7]]);
        let len = usize::from(head[2]) * 4;
        contents.advance(8);
        let mut body = (contents.len() >= len).then(|| contents.split_to(len))?;
        let kind = match (number, len) {
            (0, 16) => LocatorKind::Address(Ipv6Addr::from(body.get_u128())),
            (1, 20) => LocatorKind::EspSpi { spi: body.get_u32(), address: Ipv6Addr::from(body.get_u128()) },
            (0 | 1, _) => return None,
            _ => LocatorKind::Other { number, contents: body },
        };
        Some(Self { traffic, preferred, lifetime_s, kind })
    }

    pub(super) fn read_all(contents: &Bytes) -> Option<Vec<Self>> {
        let mut rest = contents.clone();
        let mut locators = Vec::new();
        while !rest.is_empty() {
            locators.push(Self::take(&mut rest)?);
        }
        Some(locators)
    }
}

impl LocatorTraffic {
    const fn number(self) -> u8 {
        match self {
            Self::Both => 0,
            Self::Signalling => 1,
            Self::Data => 2,
            Self::Unknown(number) => number,
        }
    }

    const fn from_number(number: u8) -> Self {
        match number {
            0 => Self::Both,
            1 => Self::Signalling,
            2 => Self::Data,
            _ => Self::Unknown(number),
        }
    }
}

/// An address in the format of HIP's parameters: IPv4 as IPv4-mapped IPv6.
pub(crate) fn map(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    }
}

pub(crate) fn unmap(address: Ipv6Addr) -> IpAddr {
    address.to_ipv4_mapped().map_or(IpAddr::V6(address), IpAddr::V4)
}
