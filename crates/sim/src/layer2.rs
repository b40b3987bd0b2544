//! Links below IP.

use holdover_base::{Duration, Instant};
use holdover_wire::MacAddress;

/// What a link is made of below IP, and how its outages look from there.
///
/// The simulator carries packets over all kinds alike, apart from late forwarding ([`holdover_link::LinkConfig::forwards_after`])
/// and the resolution of neighbours. On real kernels ([`crate::World::set_external`]) the kind is what the ends of the link see.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Layer2 {
    /// What it is made of.
    pub kind: LinkKind,
    /// What an outage is.
    pub outage: OutageKind,
    /// Which packets its outages concern. If not all, the carrier stays.
    pub families: Families,
    /// What becomes of the host's addresses and routes of these families.
    pub addresses: AddressLoss,
    /// Whether the router translates the host's IPv4 addresses to its own, and drops what belongs to no connection. Real kernels
    /// only.
    pub nat: bool,
}

impl Layer2 {
    /// A link of this kind whose outages concern all packets and leave addresses as they are, without address translation.
    pub const fn new(kind: LinkKind, outage: OutageKind) -> Self {
        Self { kind, outage, families: Families::Both, addresses: AddressLoss::Kept, nat: false }
    }
}

/// Which packets the outages of a link concern.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Families {
    /// All.
    #[default]
    Both,
    /// IPv4 and ARP.
    Ipv4,
    /// IPv6 and its neighbour discovery.
    Ipv6,
}

/// What becomes of a host's addresses, and of its default routes, in an outage: as with a DHCP lease that is given up.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum AddressLoss {
    /// They stay.
    #[default]
    Kept,
    /// They go when the link goes down.
    Lost {
        /// From when the link forwards again to when they are back.
        after: Duration,
        /// Whether the host has other addresses then: on real kernels [`crate::NodeId::locator`], the next one after each outage.
        other: bool,
    },
}

/// What a link is made of.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum LinkKind {
    /// A wire that carries IP packets only. Hosts learn of outages from the world alone.
    #[default]
    Wire,
    /// Ethernet between a host and a router: interfaces with addresses and carrier, ARP and neighbour discovery.
    Ethernet,
    /// A modem between a host and a router: interfaces with carrier, which carry IP packets and nothing before them.
    RawIp,
}

/// What an outage of a link with a second layer is.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum OutageKind {
    /// Nothing gets through, and no interface shows it: a radio link, a switch farther away.
    #[default]
    Silent,
    /// Both ends lose carrier: a cable.
    Carrier,
    /// The host loses carrier, the router does not: a switch between them.
    CarrierNear,
    /// The router's port is set down; the host loses carrier.
    AdminDown,
    /// The host's interface is set down, as in airplane mode: its routes go, and its IPv6 addresses. The router keeps its carrier.
    HostDown,
}

/// The header of an Ethernet frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EthernetHeader {
    /// Who it is for.
    pub destination: MacAddress,
    /// Who has sent it.
    pub source: MacAddress,
    /// What it carries.
    pub ether_type: u16,
}

impl Families {
    /// Whether packets of this family are among them.
    pub const fn has(self, ipv6: bool) -> bool {
        match self {
            Self::Both => true,
            Self::Ipv4 => !ipv6,
            Self::Ipv6 => ipv6,
        }
    }
}

impl AddressLoss {
    /// From when the link forwards again to when the addresses are back.
    pub const fn after(self) -> Duration {
        match self {
            Self::Kept => Duration::ZERO,
            Self::Lost { after, .. } => after,
        }
    }
}

impl OutageKind {
    /// Whether the host's interface loses its carrier.
    pub const fn is_seen_by_host(self) -> bool {
        !matches!(self, Self::Silent)
    }

    /// Whether the router's interface loses its carrier.
    pub const fn is_seen_by_router(self) -> bool {
        matches!(self, Self::Carrier | Self::AdminDown)
    }
}

impl EthernetHeader {
    /// The type of a frame that carries IPv4.
    pub const IPV4: u16 = 0x0800;
    /// The type of a frame that carries ARP.
    pub const ARP: u16 = 0x0806;
    /// The type of a frame that carries IPv6.
    pub const IPV6: u16 = 0x86dd;
    /// Bytes on the wire, without the frame's check sequence.
    pub const LEN: usize = 14;

    /// Reads the header at the beginning of a frame; `None` if the frame is too short.
    pub fn from_bytes(frame: &[u8]) -> Option<Self> {
        let (destination, rest) = frame.split_first_chunk()?;
        let (source, rest) = rest.split_first_chunk()?;
        let (ether_type, _) = rest.split_first_chunk()?;
        Some(Self {
            destination: MacAddress(*destination),
            source: MacAddress(*source),
            ether_type: u16::from_be_bytes(*ether_type),
        })
    }

    /// As it stands on the wire.
    pub fn to_bytes(self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[..6].copy_from_slice(&self.destination.0);
        bytes[6..12].copy_from_slice(&self.source.0);
        bytes[12..].copy_from_slice(&self.ether_type.to_be_bytes());
        bytes
    }
}

impl crate::LinkBetween {
    /// When both directions carry packets of all families again after a return of the link at `up`: it is up and forwards, and the
    /// host has its addresses and routes.
    pub fn carries_at(&self, up: Instant) -> Instant {
        up + self.carries_after()
    }

    /// From the link's return to when it carries packets.
    pub fn carries_after(&self) -> Duration {
        self.forward.forwards_after + self.layer2.addresses.after()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_read_as_it_was_written() {
        let header = EthernetHeader {
            destination: MacAddress([0xff; 6]),
            source: MacAddress([2, 0, 0, 1, 2, 3]),
            ether_type: 0x0806,
        };
        assert_eq!(EthernetHeader::from_bytes(&header.to_bytes()), Some(header));
        assert_eq!(EthernetHeader::from_bytes(&header.to_bytes()[..13]), None);
        assert_eq!(header.source.to_string(), "02:00:00:01:02:03");
    }
}
