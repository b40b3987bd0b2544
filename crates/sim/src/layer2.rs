//! Links below IP.

use holdover_base::Duration;
use holdover_wire::MacAddress;

/// The second layer of a link, and the effect of its outages there.
///
/// The simulator treats all kinds alike, apart from late forwarding ([`holdover_link::LinkConfig::forwards_after`]) and neighbour
/// resolution. On real kernels ([`crate::World::set_external`]) the ends of the link see the kind.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Layer2 {
    /// The kind of link.
    pub kind: LinkKind,
    /// The kind of its outages.
    pub outage: OutageKind,
    /// The packets affected by its outages. If not all, the carrier stays.
    pub families: Families,
    /// The effect of outages on the host's addresses and routes of these families.
    pub addresses: AddressLoss,
    /// Whether the router translates the host's IPv4 addresses to its own, and drops packets of unknown connections. Real kernels only.
    pub nat: bool,
    /// Whether the host makes its IPv6 address and default route from the router's advertisements, with duplicate address detection,
    /// whenever it has lost them. Real kernels and Ethernet only.
    pub slaac: bool,
}

impl Layer2 {
    /// A link of this kind whose outages affect all packets and keep addresses, which are static, without address translation.
    pub const fn new(kind: LinkKind, outage: OutageKind) -> Self {
        Self { kind, outage, families: Families::Both, addresses: AddressLoss::Kept, nat: false, slaac: false }
    }
}

/// The packets affected by the outages of a link.
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

/// The effect of an outage on a host's addresses and default routes, as with a released DHCP lease.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum AddressLoss {
    /// They are kept.
    #[default]
    Kept,
    /// They are lost when the link goes down.
    Lost {
        /// From when the link forwards again until they are back.
        after: Duration,
        /// Whether the host then has other addresses: on real kernels [`crate::NodeId::locator`], the next one after each outage.
        other: bool,
    },
}

/// The kind of a link.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum LinkKind {
    /// A wire that carries IP packets only. Only the world notifies hosts of outages.
    #[default]
    Wire,
    /// Ethernet between a host and a router: interfaces with addresses and carrier, ARP and neighbour discovery.
    Ethernet,
    /// A modem between a host and a router: interfaces with carrier and without link-layer headers.
    RawIp,
}

/// The kind of outage of a link with a second layer.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum OutageKind {
    /// Packets are lost, and no interface shows it: a radio link, a distant switch.
    #[default]
    Silent,
    /// Both ends lose carrier: a cable.
    Carrier,
    /// The host loses carrier, the router does not: a switch between them.
    CarrierNear,
    /// The router's port is set down; the host loses carrier.
    AdminDown,
    /// The host's interface is set down, as in airplane mode: its routes and IPv6 addresses are lost. The router keeps its carrier.
    HostDown,
}

/// The header of an Ethernet frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EthernetHeader {
    /// The destination.
    pub destination: MacAddress,
    /// The source.
    pub source: MacAddress,
    /// The EtherType.
    pub ether_type: u16,
}

impl Families {
    /// Whether packets of this family are included.
    pub const fn has(self, ipv6: bool) -> bool {
        match self {
            Self::Both => true,
            Self::Ipv4 => !ipv6,
            Self::Ipv6 => ipv6,
        }
    }
}

impl AddressLoss {
    /// From when the link forwards again until the addresses are back.
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
    /// The EtherType of IPv4.
    pub const IPV4: u16 = 0x0800;
    /// The EtherType of ARP.
    pub const ARP: u16 = 0x0806;
    /// The EtherType of IPv6.
    pub const IPV6: u16 = 0x86dd;
    /// Bytes on the wire, without the frame's check sequence.
    pub const LEN: usize = 14;

    /// Parses the header at the start of a frame; `None` if the frame is too short.
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

    /// In wire format.
    pub fn to_bytes(self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[..6].copy_from_slice(&self.destination.0);
        bytes[6..12].copy_from_slice(&self.source.0);
        bytes[12..].copy_from_slice(&self.ether_type.to_be_bytes());
        bytes
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
