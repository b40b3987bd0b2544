//! Interfaces, addresses and routes of a namespace over netlink (`rtnetlink(7)`): a request, its answer, no events.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use holdover_wire::MacAddress;
use netlink_packet_core::{NLM_F_ACK, NLM_F_CREATE, NLM_F_DUMP, NLM_F_EXCL, NLM_F_REPLACE};
use netlink_packet_route::address::{AddressAttribute, AddressFlags, AddressHeaderFlags, AddressMessage};
use netlink_packet_route::link::{
    AfSpecInet6, AfSpecUnspec, InfoData, InfoKind, InfoVeth, LinkAttribute, LinkFlags, LinkInfo, LinkMessage,
};
use netlink_packet_route::neighbour::{NeighbourAddress, NeighbourAttribute, NeighbourMessage, NeighbourState};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteHeader, RouteMessage, RouteProtocol, RouteScope, RouteType,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};

use crate::{Namespace, NamespaceError, Requests};

/// A netlink socket of one namespace. It may be used from any thread: it stays in the namespace it was opened in.
#[derive(Debug)]
pub struct Netlink {
    requests: Requests,
}

/// An interface as the kernel describes it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Link {
    /// Its index, which netlink uses in place of the name.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// Its MTU in bytes.
    pub mtu: u32,
    /// Whether it is administratively up.
    pub is_up: bool,
    /// Whether it is up and has carrier.
    pub has_carrier: bool,
}

/// An entry of an interface's neighbour table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Neighbour {
    /// The neighbour's address.
    pub address: IpAddr,
    /// Its Ethernet address; `None` while unknown.
    pub mac: Option<MacAddress>,
}

/// A route to be added.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Route {
    /// The destinations: an address and the length of its prefix; 0 is the default route.
    pub destination: (IpAddr, u8),
    /// The next hop; `None` if the destinations are on the link.
    pub next_hop: Option<IpAddr>,
    /// The interface.
    pub link: String,
    /// The source address of packets whose socket has none of its own; `None` for the kernel's choice.
    pub source: Option<IpAddr>,
}

/// A netlink request failed.
#[derive(Debug, thiserror::Error)]
pub enum NetlinkError {
    /// There is no interface of that name.
    #[error("no interface \"{name}\"")]
    NoSuchLink {
        /// The name.
        name: Box<str>,
    },
    /// The kernel refused the request.
    #[error("{request} was refused")]
    Refused {
        /// The request.
        request: Box<str>,
        /// The kernel's reason.
        source: io::Error,
    },
    /// The socket failed.
    #[error("netlink socket")]
    Socket(#[source] io::Error),
    /// The calling thread is not in the namespace.
    #[error(transparent)]
    Namespace(#[from] NamespaceError),
}

impl Netlink {
    /// Opens a socket in `namespace`, in which the calling thread must be.
    ///
    /// # Errors
    /// The calling thread is in another namespace, or no socket can be opened.
    pub fn open(namespace: &Namespace) -> Result<Self, NetlinkError> {
        namespace.require_current()?;
        Ok(Self { requests: Requests::open().map_err(NetlinkError::Socket)? })
    }

    /// All interfaces, in the order of their indices.
    ///
    /// # Errors
    /// The kernel refuses the request, or the socket fails.
    pub fn links(&mut self) -> Result<Vec<Link>, NetlinkError> {
        let request = RouteNetlinkMessage::GetLink(LinkMessage::default());
        let answers = self.request("list of interfaces", request, NLM_F_DUMP)?;
        let mut links: Vec<_> = answers.into_iter().filter_map(link_of).collect();
        links.sort_by_key(|link| link.index);
        Ok(links)
    }

    /// One interface.
    ///
    /// # Errors
    /// [`NetlinkError::NoSuchLink`], or as for [`Self::links`].
    pub fn link(&mut self, name: &str) -> Result<Link, NetlinkError> {
        let missing = || NetlinkError::NoSuchLink { name: name.into() };
        self.links()?.into_iter().find(|link| link.name == name).ok_or_else(missing)
    }

    /// Sets an interface up; `lo` is down in a new namespace.
    ///
    /// # Errors
    /// The interface does not exist ([`NetlinkError::NoSuchLink`]), or the kernel refuses (`EPERM` without `CAP_NET_ADMIN`).
    pub fn set_up(&mut self, name: &str) -> Result<(), NetlinkError> {
        self.change_link(name, "setting up", |message| {
            message.header.flags = LinkFlags::Up;
            message.header.change_mask = LinkFlags::Up;
        })
    }

    /// Sets an interface down. Its routes go, and its IPv6 addresses.
    ///
    /// # Errors
    /// The interface does not exist ([`NetlinkError::NoSuchLink`]), or the kernel refuses (`EPERM` without `CAP_NET_ADMIN`).
    pub fn set_down(&mut self, name: &str) -> Result<(), NetlinkError> {
        self.change_link(name, "setting down", |message| message.header.change_mask = LinkFlags::Up)
    }

    /// Sets an interface's MTU in bytes.
    ///
    /// # Errors
    /// The interface does not exist, or the kernel refuses: `EINVAL` for an MTU that its driver does not support.
    pub fn set_mtu(&mut self, name: &str, mtu: u32) -> Result<(), NetlinkError> {
        self.change_link(name, &format!("MTU {mtu}"), |message| message.attributes.push(LinkAttribute::Mtu(mtu)))
    }

    /// Sets how many packets an interface queues.
    ///
    /// # Errors
    /// The interface does not exist ([`NetlinkError::NoSuchLink`]), or the kernel refuses (`EPERM` without `CAP_NET_ADMIN`).
    pub fn set_tx_queue_len(&mut self, name: &str, packets: u32) -> Result<(), NetlinkError> {
        self.change_link(name, &format!("txqueuelen {packets}"), |message| {
            message.attributes.push(LinkAttribute::TxQueueLen(packets));
        })
    }

    /// Sets an interface's Ethernet address.
    ///
    /// # Errors
    /// The interface does not exist, or the kernel refuses: `EADDRNOTAVAIL` for a group address.
    pub fn set_mac(&mut self, name: &str, mac: MacAddress) -> Result<(), NetlinkError> {
        self.change_link(name, &format!("address {mac}"), |message| {
            message.attributes.push(LinkAttribute::Address(mac.0.to_vec()));
        })
    }

    /// Sets the last 64 bits of the addresses that an interface makes from advertised prefixes; those of `token` count.
    ///
    /// # Errors
    /// The interface does not exist, or the kernel refuses: `EINVAL` if it accepts no router advertisements.
    pub fn set_token(&mut self, name: &str, token: Ipv6Addr) -> Result<(), NetlinkError> {
        let [.., a, b, c, d] = token.segments();
        let token = Ipv6Addr::new(0, 0, 0, 0, a, b, c, d);
        self.change_link(name, &format!("token {token}"), |message| {
            let options = AfSpecUnspec::Inet6(vec![AfSpecInet6::Token(token)]);
            message.attributes.push(LinkAttribute::AfSpecUnspec(vec![options]));
        })
    }

    /// The neighbours of an interface, resolved or not, with their Ethernet addresses if known.
    ///
    /// # Errors
    /// [`NetlinkError::NoSuchLink`], or as for [`Self::links`].
    pub fn neighbours(&mut self, name: &str) -> Result<Vec<Neighbour>, NetlinkError> {
        let index = self.link(name)?.index;
        let request = RouteNetlinkMessage::GetNeighbour(NeighbourMessage::default());
        let answers = self.request("list of neighbours", request, NLM_F_DUMP)?;
        Ok(answers.into_iter().filter_map(|answer| neighbour_of(answer, index)).collect())
    }

    /// The addresses of an interface.
    ///
    /// # Errors
    /// [`NetlinkError::NoSuchLink`], or as for [`Self::links`].
    pub fn addresses(&mut self, name: &str) -> Result<Vec<IpAddr>, NetlinkError> {
        let index = self.link(name)?.index;
        let request = RouteNetlinkMessage::GetAddress(AddressMessage::default());
        let answers = self.request("list of addresses", request, NLM_F_DUMP)?;
        Ok(answers.into_iter().filter_map(|answer| address_of(answer, index)).collect())
    }

    /// Adds an address to an interface, without duplicate address detection, so that it is usable at once.
    ///
    /// # Errors
    /// The interface does not exist, or the kernel refuses: `EEXIST` if it has the address.
    pub fn add_address(&mut self, name: &str, address: IpAddr, prefix_len: u8) -> Result<(), NetlinkError> {
        self.put_address(name, address, prefix_len, NLM_F_EXCL)
    }

    /// Adds an address to an interface as [`Self::add_address`], unless it has the address already.
    ///
    /// # Errors
    /// The interface does not exist ([`NetlinkError::NoSuchLink`]), or the kernel refuses (`EPERM` without `CAP_NET_ADMIN`).
    pub fn ensure_address(&mut self, name: &str, address: IpAddr, prefix_len: u8) -> Result<(), NetlinkError> {
        self.put_address(name, address, prefix_len, NLM_F_REPLACE)
    }

    fn put_address(&mut self, name: &str, address: IpAddr, prefix_len: u8, how: u16) -> Result<(), NetlinkError> {
        let mut message = AddressMessage::default();
        message.header.family = family(address);
        message.header.prefix_len = prefix_len;
        message.header.index = self.link(name)?.index;
        // For IPv4 the local attribute is the address and the other one the prefix or the peer; IPv6 reads either.
        message.attributes.extend([AddressAttribute::Local(address), AddressAttribute::Address(address)]);
        if address.is_ipv6() {
            message.header.flags = AddressHeaderFlags::Nodad;
            message.attributes.push(AddressAttribute::Flags(AddressFlags::Nodad));
        }
        let request = format!("address {address}/{prefix_len} on {name}");
        self.request(&request, RouteNetlinkMessage::NewAddress(message), NLM_F_ACK | NLM_F_CREATE | how).map(drop)
    }

    /// Removes an address from an interface, and with it the IPv4 routes that have it as source. Does nothing if it is
    /// missing.
    ///
    /// # Errors
    /// The interface does not exist ([`NetlinkError::NoSuchLink`]), or the kernel refuses (`EPERM` without `CAP_NET_ADMIN`).
    pub fn remove_address(&mut self, name: &str, address: IpAddr, prefix_len: u8) -> Result<(), NetlinkError> {
        let mut message = AddressMessage::default();
        message.header.family = family(address);
        message.header.prefix_len = prefix_len;
        message.header.index = self.link(name)?.index;
        message.attributes.push(AddressAttribute::Local(address));
        let request = format!("removal of address {address}/{prefix_len} from {name}");
        unless_gone(self.request(&request, RouteNetlinkMessage::DelAddress(message), NLM_F_ACK))
    }

    /// Removes a route from the main table. Does nothing if it is missing.
    ///
    /// # Errors
    /// The interface does not exist ([`NetlinkError::NoSuchLink`]), or the kernel refuses (`EPERM` without `CAP_NET_ADMIN`).
    pub fn remove_route(&mut self, route: &Route) -> Result<(), NetlinkError> {
        let (destination, prefix_len) = route.destination;
        let message = self.route_message(route)?;
        let request = format!("removal of the route to {destination}/{prefix_len} over {}", route.link);
        unless_gone(self.request(&request, RouteNetlinkMessage::DelRoute(message), NLM_F_ACK))
    }

    /// Adds an unreachable route of the lowest priority: without a better route, packets are refused with ICMP host
    /// unreachable.
    ///
    /// # Errors
    /// The kernel refuses the route.
    pub fn add_unreachable(&mut self, destination: IpAddr, prefix_len: u8) -> Result<(), NetlinkError> {
        let mut message = RouteMessage::default();
        message.header.address_family = family(destination);
        message.header.destination_prefix_length = prefix_len;
        message.header.table = RouteHeader::RT_TABLE_MAIN;
        message.header.protocol = RouteProtocol::Static;
        message.header.kind = RouteType::Unreachable;
        message.attributes.push(RouteAttribute::Destination(route_address(destination)));
        message.attributes.push(RouteAttribute::Priority(LAST_RESORT));
        let request = format!("unreachable route to {destination}/{prefix_len}");
        self.request(&request, RouteNetlinkMessage::NewRoute(message), NLM_F_ACK | NLM_F_CREATE | NLM_F_REPLACE)
            .map(drop)
    }

    /// Adds a route to the main table.
    ///
    /// # Errors
    /// The interface does not exist, or the kernel refuses: `EEXIST` for a route to the same destinations.
    pub fn add_route(&mut self, route: &Route) -> Result<(), NetlinkError> {
        self.put_route(route, NLM_F_EXCL)
    }

    /// Adds a route to the main table, replacing one to the same destinations.
    ///
    /// # Errors
    /// The interface does not exist ([`NetlinkError::NoSuchLink`]), or the kernel refuses (`EPERM` without `CAP_NET_ADMIN`).
    pub fn replace_route(&mut self, route: &Route) -> Result<(), NetlinkError> {
        self.put_route(route, NLM_F_REPLACE)
    }

    fn put_route(&mut self, route: &Route, how: u16) -> Result<(), NetlinkError> {
        let (destination, prefix_len) = route.destination;
        let message = self.route_message(route)?;
        let request = format!("route to {destination}/{prefix_len} over {}", route.link);
        self.request(&request, RouteNetlinkMessage::NewRoute(message), NLM_F_ACK | NLM_F_CREATE | how).map(drop)
    }

    fn route_message(&mut self, route: &Route) -> Result<RouteMessage, NetlinkError> {
        let (destination, prefix_len) = route.destination;
        let mut message = RouteMessage::default();
        message.header.address_family = family(destination);
        message.header.destination_prefix_length = prefix_len;
        message.header.table = RouteHeader::RT_TABLE_MAIN;
        message.header.protocol = RouteProtocol::Static;
        message.header.kind = RouteType::Unicast;
        message.header.scope =
            if route.next_hop.is_none() && destination.is_ipv4() { RouteScope::Link } else { RouteScope::Universe };
        if prefix_len > 0 {
            message.attributes.push(RouteAttribute::Destination(route_address(destination)));
        }
        if let Some(next_hop) = route.next_hop {
            message.attributes.push(RouteAttribute::Gateway(route_address(next_hop)));
        }
        if let Some(source) = route.source {
            message.attributes.push(RouteAttribute::PrefSource(route_address(source)));
        }
        message.attributes.push(RouteAttribute::Oif(self.link(&route.link)?.index));
        Ok(message)
    }

    /// Creates a veth pair, `name` in this namespace and `peer_name` in `peer_namespace`. When one is removed, with its
    /// namespace or otherwise, so is the other.
    ///
    /// # Errors
    /// The kernel refuses: `EEXIST` for a name in use.
    pub fn add_veth(&mut self, name: &str, peer_name: &str, peer_namespace: &Namespace) -> Result<(), NetlinkError> {
        use std::os::fd::AsRawFd as _;
        let mut peer = LinkMessage::default();
        peer.attributes.push(LinkAttribute::IfName(peer_name.to_owned()));
        peer.attributes.push(LinkAttribute::NetNsFd(peer_namespace.link().as_raw_fd()));
        let mut message = LinkMessage::default();
        message.attributes.push(LinkAttribute::IfName(name.to_owned()));
        message.attributes.push(LinkAttribute::LinkInfo(vec![
            LinkInfo::Kind(InfoKind::Veth),
            LinkInfo::Data(InfoData::Veth(InfoVeth::Peer(peer))),
        ]));
        let request = format!("veth {name} to {peer_name}");
        self.request(&request, RouteNetlinkMessage::NewLink(message), NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL).map(drop)
    }

    /// Creates an Ethernet bridge.
    ///
    /// # Errors
    /// The kernel refuses: `EEXIST` for a name in use.
    pub fn add_bridge(&mut self, name: &str) -> Result<(), NetlinkError> {
        let mut message = LinkMessage::default();
        message.attributes.push(LinkAttribute::IfName(name.to_owned()));
        message.attributes.push(LinkAttribute::LinkInfo(vec![LinkInfo::Kind(InfoKind::Bridge)]));
        let request = format!("bridge {name}");
        self.request(&request, RouteNetlinkMessage::NewLink(message), NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL).map(drop)
    }

    /// Removes an interface; one that does not exist (any more) is none to remove. It is gone when this returns, even if a process that
    /// was forked a moment ago still has a copy of a TUN device's descriptor.
    ///
    /// # Errors
    /// The kernel refuses: `EOPNOTSUPP` for `lo` and for hardware, `EPERM` without `CAP_NET_ADMIN`.
    pub fn remove_link(&mut self, name: &str) -> Result<(), NetlinkError> {
        let mut message = LinkMessage::default();
        message.header.index = match self.link(name) {
            Err(NetlinkError::NoSuchLink { .. }) => return Ok(()),
            link => link?.index,
        };
        let request = format!("removal of {name}");
        unless_gone(self.request(&request, RouteNetlinkMessage::DelLink(message), NLM_F_ACK))
    }

    /// Makes an interface a port of a bridge.
    ///
    /// # Errors
    /// One of the interfaces does not exist, or the kernel refuses: `ELOOP` for a port that is a bridge.
    pub fn add_port(&mut self, bridge: &str, port: &str) -> Result<(), NetlinkError> {
        let index = self.link(bridge)?.index;
        self.change_link(port, &format!("port {bridge}"), |message| {
            message.attributes.push(LinkAttribute::Controller(index));
        })
    }

    fn change_link(
        &mut self,
        name: &str,
        what: &str,
        change: impl FnOnce(&mut LinkMessage),
    ) -> Result<(), NetlinkError> {
        let mut message = LinkMessage::default();
        message.header.index = self.link(name)?.index;
        change(&mut message);
        self.request(&format!("{what} of {name}"), RouteNetlinkMessage::SetLink(message), NLM_F_ACK).map(drop)
    }

    /// Sends one request and collects its answers, up to the acknowledgement or the end of the dump.
    fn request(
        &mut self,
        what: &str,
        message: RouteNetlinkMessage,
        flags: u16,
    ) -> Result<Vec<RouteNetlinkMessage>, NetlinkError> {
        let answers = self.requests.request(message, flags);
        answers.map_err(|source| NetlinkError::Refused { request: what.into(), source })
    }
}

/// Ignores the error that the object does not exist.
fn unless_gone<T>(removed: Result<T, NetlinkError>) -> Result<(), NetlinkError> {
    match removed {
        Err(NetlinkError::Refused { source, .. })
            if matches!(source.raw_os_error(), Some(libc::ESRCH | libc::EADDRNOTAVAIL | libc::ENODEV)) =>
        {
            Ok(())
        }
        removed => removed.map(drop),
    }
}

/// A metric worse than those of all other routes.
const LAST_RESORT: u32 = 1_000_000;

fn link_of(message: RouteNetlinkMessage) -> Option<Link> {
    let RouteNetlinkMessage::NewLink(message) = message else { return None };
    let mut link = Link {
        index: message.header.index,
        name: String::new(),
        mtu: 0,
        is_up: message.header.flags.contains(LinkFlags::Up),
        has_carrier: message.header.flags.contains(LinkFlags::LowerUp),
    };
    for attribute in message.attributes {
        match attribute {
            LinkAttribute::IfName(name) => link.name = name,
            LinkAttribute::Mtu(mtu) => link.mtu = mtu,
            _ => {}
        }
    }
    Some(link)
}

fn address_of(message: RouteNetlinkMessage, index: u32) -> Option<IpAddr> {
    let RouteNetlinkMessage::NewAddress(message) = message else { return None };
    let mut addresses = message.attributes.into_iter().filter_map(|attribute| match attribute {
        // IPv6 has no other attribute.
        AddressAttribute::Local(address) | AddressAttribute::Address(address) => Some(address),
        _ => None,
    });
    addresses.next().filter(|_| message.header.index == index)
}

fn neighbour_of(message: RouteNetlinkMessage, index: u32) -> Option<Neighbour> {
    let RouteNetlinkMessage::NewNeighbour(message) = message else { return None };
    // Entries that need no resolution (multicast, loopback) are left out.
    if message.header.ifindex != index || message.header.state == NeighbourState::Noarp {
        return None;
    }
    let mut neighbour = Neighbour { address: IpAddr::V4(Ipv4Addr::UNSPECIFIED), mac: None };
    for attribute in message.attributes {
        match attribute {
            NeighbourAttribute::Destination(NeighbourAddress::Inet(address)) => neighbour.address = address.into(),
            NeighbourAttribute::Destination(NeighbourAddress::Inet6(address)) => neighbour.address = address.into(),
            NeighbourAttribute::LinkLayerAddress(bytes) => neighbour.mac = bytes.try_into().ok().map(MacAddress),
            _ => {}
        }
    }
    Some(neighbour)
}

fn family(address: IpAddr) -> AddressFamily {
    match address {
        IpAddr::V4(_) => AddressFamily::Inet,
        IpAddr::V6(_) => AddressFamily::Inet6,
    }
}

fn route_address(address: IpAddr) -> RouteAddress {
    match address {
        IpAddr::V4(address) => RouteAddress::Inet(address),
        IpAddr::V6(address) => RouteAddress::Inet6(address),
    }
}
