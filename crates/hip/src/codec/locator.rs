//! LOCATOR_SET (RFC 8046 section 4, RFC 9028 section 5.7).

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
    /// Type 2: a candidate of a host behind a translator.
    Transport(TransportAddress),
    /// A type unknown to this crate; contents in units of 4 bytes.
    Other {
        /// The type.
        number: u8,
        /// The contents.
        contents: Bytes,
    },
}

/// An address with a port (RFC 9028 section 5.7).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TransportAddress {
    /// The port.
    pub port: u16,
    /// The IP protocol: 17 for UDP.
    pub protocol: u8,
    /// How the host has learned the address.
    pub kind: CandidateKind,
    /// The priority (RFC 8445 section 5.1.2).
    pub priority: u32,
    /// The SPI of data that is sent there.
    pub spi: u32,
    /// The address; an IPv4 address is mapped.
    pub address: Ipv6Addr,
}

/// How a host has learned one of its addresses (RFC 9028 section 5.7).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CandidateKind {
    /// An address of an interface.
    Host,
    /// As a server sees the host.
    ServerReflexive,
    /// As the peer sees the host.
    PeerReflexive,
    /// A relay's.
    Relayed,
    /// A number that no RFC defines.
    Unknown(u8),
}

impl Locator {
    /// An address for signalling and data, with the SPI of data sent there.
    pub fn esp(address: IpAddr, spi: u32, lifetime_s: u32, preferred: bool) -> Self {
        let address = map(address);
        Self { traffic: LocatorTraffic::Both, preferred, lifetime_s, kind: LocatorKind::EspSpi { spi, address } }
    }

    /// The address of a host itself: none for a candidate, whose port and protocol matter (RFC 9028 section 5.7), and for unknown types.
    pub fn address(&self) -> Option<IpAddr> {
        match &self.kind {
            LocatorKind::Address(address) | LocatorKind::EspSpi { address, .. } => Some(unmap(*address)),
            LocatorKind::Transport(_) | LocatorKind::Other { .. } => None,
        }
    }

    pub(super) fn is_writable(&self) -> bool {
        match &self.kind {
            LocatorKind::Other { number, contents } => {
                *number > 2 && contents.len().is_multiple_of(4) && contents.len() <= 255 * 4
            }
            _ => true,
        }
    }

    pub(super) fn put(&self, out: &mut Vec<u8>) {
        let (number, words) = match &self.kind {
            LocatorKind::Address(_) => (0, 4),
            LocatorKind::EspSpi { .. } => (1, 5),
            LocatorKind::Transport(_) => (2, 7),
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
            LocatorKind::Transport(transport) => {
                out.put_u16(transport.port);
                out.put_slice(&[transport.protocol, transport.kind.number()]);
                out.put_u32(transport.priority);
                out.put_u32(transport.spi);
                out.put_slice(&transport.address.octets());
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
            (2, 28) => LocatorKind::Transport(TransportAddress {
                port: body.get_u16(),
                protocol: body.get_u8(),
                kind: CandidateKind::from_number(body.get_u8()),
                priority: body.get_u32(),
                spi: body.get_u32(),
                address: Ipv6Addr::from(body.get_u128()),
            }),
            (0..=2, _) => return None,
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

impl CandidateKind {
    const fn number(self) -> u8 {
        match self {
            Self::Host => 0,
            Self::ServerReflexive => 1,
            Self::PeerReflexive => 2,
            Self::Relayed => 3,
            Self::Unknown(number) => number,
        }
    }

    const fn from_number(number: u8) -> Self {
        match number {
            0 => Self::Host,
            1 => Self::ServerReflexive,
            2 => Self::PeerReflexive,
            3 => Self::Relayed,
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
