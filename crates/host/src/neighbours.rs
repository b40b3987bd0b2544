//! The next hop to a peer, and the kernel's knowledge of its link-layer address (`rtnetlink(7)`).

use std::io;
use std::net::{IpAddr, SocketAddr};

use holdover_base::Duration;
use netlink_packet_core::{NLM_F_CREATE, NLM_F_REPLACE};
use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourFlags, NeighbourMessage, NeighbourState,
};
use netlink_packet_route::route::{RouteAddress, RouteAttribute, RouteFlags, RouteMessage, RouteType, RouteVia};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};

use crate::Requests;
use crate::neighbour_frames::Mac;

/// The path to a peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NextHop {
    /// The next hop: a router, or the peer itself.
    pub hop: IpAddr,
    /// The host's own address towards it.
    pub local: IpAddr,
}

/// A TCP socket of this host, as far as rules and routes may depend on it (`ip-rule(8)`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RoutedSocket {
    /// Its own address and port.
    pub local: SocketAddr,
    /// Its peer's.
    pub remote: SocketAddr,
    /// The interface it is bound to (`SO_BINDTODEVICE`), by index.
    pub bound_to: Option<u32>,
    /// The mark of its packets (`SO_MARK`).
    pub mark: u32,
    /// Its user.
    pub uid: u32,
}

/// The unit of times in neighbour entries: USER_HZ is 100.
const TICK: Duration = Duration::from_millis(10);

/// Requests to the kernel about routes and neighbours.
#[derive(Debug)]
pub struct Neighbours(Requests);

impl Neighbours {
    /// In the network namespace of the calling thread.
    ///
    /// # Errors
    /// The socket cannot be opened.
    pub fn open() -> io::Result<Self> {
        Requests::open().map(Self)
    }

    /// Sends one request; returns the first message of its answer.
    fn request(&mut self, message: RouteNetlinkMessage, flags: u16) -> io::Result<Option<RouteNetlinkMessage>> {
        Ok(self.0.request(message, flags)?.into_iter().next())
    }

    /// The path of packets from `local` to `remote` over an interface, in any routing table; `None` without a route.
    /// `local` need not be an own address: the host may forward for others.
    ///
    /// # Errors
    /// The query fails.
    pub fn route(&mut self, index: u32, local: IpAddr, remote: IpAddr) -> io::Result<Option<NextHop>> {
        let found = match self.look_up(index, Some(local), remote) {
            // Not an own address.
            Err(error) if is_refused(&error) => self.look_up(index, None, remote),
            found => found,
        };
        match found {
            Err(error) if is_refused(&error) => Ok(None),
            found => {
                Ok(found?.map(|(hop, source)| NextHop { hop: hop.unwrap_or(remote), local: source.unwrap_or(local) }))
            }
        }
    }

    /// The path of this host's own packets to `remote` over an interface; `None` without a route.
    ///
    /// # Errors
    /// The query fails.
    pub fn own_way(&mut self, index: u32, remote: IpAddr) -> io::Result<Option<NextHop>> {
        match self.look_up(index, None, remote) {
            Err(error) if is_refused(&error) => Ok(None),
            found => {
                let hop = |(hop, local): (Option<IpAddr>, Option<IpAddr>)| {
                    Some(NextHop { hop: hop.unwrap_or(remote), local: local? })
                };
                Ok(found?.and_then(hop))
            }
        }
    }

    /// The interface, and the gateway if any, for this host's packets with a mark to `remote`; `None` without a route.
    ///
    /// # Errors
    /// The query fails.
    pub fn way_to(&mut self, remote: IpAddr, mark: u32) -> io::Result<Option<(u32, Option<IpAddr>)>> {
        let mut message = RouteMessage::default();
        message.header.address_family = family(remote);
        message.header.destination_prefix_length = if remote.is_ipv4() { 32 } else { 128 };
        message.attributes = vec![RouteAttribute::Destination(remote.into()), RouteAttribute::Mark(mark)];
        let answer = match self.request(RouteNetlinkMessage::GetRoute(message), 0) {
            Err(error) if is_refused(&error) => return Ok(None),
            answer => answer?,
        };
        let Some(RouteNetlinkMessage::NewRoute(route)) = answer else { return Ok(None) };
        let index = route.attributes.iter().find_map(|attribute| match attribute {
            RouteAttribute::Oif(index) => Some(*index),
            _ => None,
        });
        Ok(index.map(|index| (index, gateway_of(&route))))
    }

    /// The interface over which the packets of a socket leave; `None` without a route. An IPv4 address must be this host's own, or there is no
    /// route.
    ///
    /// # Errors
    /// The query fails.
    pub fn interface_of(&mut self, socket: &RoutedSocket) -> io::Result<Option<u32>> {
        let RoutedSocket { local, remote, bound_to, mark, uid } = *socket;
        let bits = if remote.is_ipv4() { 32 } else { 128 };
        let mut message = RouteMessage::default();
        message.header.address_family = family(remote.ip());
        (message.header.source_prefix_length, message.header.destination_prefix_length) = (bits, bits);
        message.attributes = vec![
            RouteAttribute::Source(local.ip().into()),
            RouteAttribute::Destination(remote.ip().into()),
            RouteAttribute::Mark(mark),
            RouteAttribute::Uid(uid),
            RouteAttribute::IpProto(libc::IPPROTO_TCP as u8),
            RouteAttribute::Sport(local.port()),
            RouteAttribute::Dport(remote.port()),
        ];
        message.attributes.extend(bound_to.map(RouteAttribute::Oif));
        if bound_to.is_some() && remote.is_ipv4() {
            // Without a route the kernel takes the peer to be on that link (`ip_route_output_key_hash_rcu`), but not if it is asked for the
            // entry of a table.
            message.header.flags = RouteFlags::FibMatch;
            if self.usable_route(message.clone())?.is_none() {
                return Ok(None);
            }
            message.header.flags = RouteFlags::empty();
        }
        let Some(route) = self.usable_route(message)? else { return Ok(None) };
        Ok(route.attributes.iter().find_map(|attribute| match attribute {
            RouteAttribute::Oif(index) => Some(*index),
            _ => None,
        }))
    }

    /// The route that answers a request, if packets may take it.
    fn usable_route(&mut self, message: RouteMessage) -> io::Result<Option<RouteMessage>> {
        let answer = match self.request(RouteNetlinkMessage::GetRoute(message), 0) {
            Err(error) if is_refused(&error) => return Ok(None),
            answer => answer?,
        };
        Ok(match answer {
            Some(RouteNetlinkMessage::NewRoute(route)) => {
                Some(route).filter(|route| matches!(route.header.kind, RouteType::Unicast | RouteType::Local))
            }
            _ => None,
        })
    }

    /// The gateway, if any, and the source address, if none was given.
    fn look_up(
        &mut self,
        index: u32,
        local: Option<IpAddr>,
        remote: IpAddr,
    ) -> io::Result<Option<(Option<IpAddr>, Option<IpAddr>)>> {
        let mut message = RouteMessage::default();
        let bits = if remote.is_ipv4() { 32 } else { 128 };
        message.header.address_family = family(remote);
        message.header.destination_prefix_length = bits;
        message.attributes = vec![RouteAttribute::Destination(remote.into()), RouteAttribute::Oif(index)];
        if let Some(local) = local {
            message.header.source_prefix_length = bits;
            message.attributes.push(RouteAttribute::Source(local.into()));
        }
        let answer = self.request(RouteNetlinkMessage::GetRoute(message), 0)?;
        let Some(RouteNetlinkMessage::NewRoute(route)) = answer else { return Ok(None) };
        if !route.attributes.contains(&RouteAttribute::Oif(index)) {
            return Ok(None);
        }
        let gateway = gateway_of(&route);
        let source = route.attributes.iter().find_map(|attribute| match attribute {
            RouteAttribute::PrefSource(source) if local.is_none() => address(source),
            _ => None,
        });
        Ok(Some((gateway, source)))
    }

    /// Whether the kernel knows a neighbour's link-layer address.
    ///
    /// # Errors
    /// The query fails.
    pub fn is_resolved(&mut self, index: u32, hop: IpAddr) -> io::Result<bool> {
        let unresolved = [NeighbourState::None, NeighbourState::Incomplete, NeighbourState::Failed];
        Ok(self.entry(index, hop)?.is_some_and(|entry| !unresolved.contains(&entry.header.state)))
    }

    /// Whether the kernel sends a neighbour packets without address resolution, as its entry says (`NUD_NOARP`).
    ///
    /// # Errors
    /// The query fails.
    pub fn is_without_resolution(&mut self, index: u32, hop: IpAddr) -> io::Result<bool> {
        Ok(self.entry(index, hop)?.is_some_and(|entry| entry.header.state == NeighbourState::Noarp))
    }

    /// A neighbour's Ethernet address in the kernel's table, even of a failed entry; `None` without one.
    ///
    /// # Errors
    /// The query fails.
    pub fn mac(&mut self, index: u32, hop: IpAddr) -> io::Result<Option<Mac>> {
        let attributes = self.entry(index, hop)?.map(|entry| entry.attributes).unwrap_or_default();
        Ok(attributes.into_iter().find_map(|attribute| match attribute {
            NeighbourAttribute::LinkLayerAddress(bytes) => bytes.try_into().ok(),
            _ => None,
        }))
    }

    /// How long ago the kernel last knew a neighbour to be reachable, in steps of 10 ms: by an answer to address resolution, or by
    /// another confirmation, such as progress of this host's own TCP through it. A permanent entry ages like that of a neighbour that
    /// does not answer. `None` if the kernel has no entry for it.
    ///
    /// # Errors
    /// The query fails.
    pub fn confirmed_ago(&mut self, index: u32, hop: IpAddr) -> io::Result<Option<Duration>> {
        let attributes = self.entry(index, hop)?.map(|entry| entry.attributes).unwrap_or_default();
        Ok(attributes.into_iter().find_map(|attribute| match attribute {
            NeighbourAttribute::CacheInfo(info) => Some(TICK * u64::from(info.confirmed)),
            _ => None,
        }))
    }

    fn entry(&mut self, index: u32, hop: IpAddr) -> io::Result<Option<NeighbourMessage>> {
        let message = neighbour(index, hop);
        let answer = match self.request(RouteNetlinkMessage::GetNeighbour(message), 0) {
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => return Ok(None),
            answer => answer?,
        };
        Ok(match answer {
            Some(RouteNetlinkMessage::NewNeighbour(entry)) => Some(entry),
            _ => None,
        })
    }

    /// Makes the kernel resolve a neighbour, and keep an entry that accepts answers.
    ///
    /// # Errors
    /// The kernel refuses; it needs `CAP_NET_ADMIN`.
    pub fn resolve(&mut self, index: u32, hop: IpAddr) -> io::Result<()> {
        let mut message = neighbour(index, hop);
        message.header.flags = NeighbourFlags::Use;
        self.request(RouteNetlinkMessage::NewNeighbour(message), NLM_F_CREATE).map(drop)
    }

    /// Whether packets reach a neighbour without a link-layer address, as over modems that look like Ethernet
    /// (`IFF_NOARP`): the kernel reports it when asked to resolve the neighbour.
    ///
    /// # Errors
    /// The query fails; it needs `CAP_NET_ADMIN`.
    pub fn needs_no_address(&mut self, index: u32, hop: IpAddr) -> io::Result<bool> {
        self.resolve(index, hop)?;
        self.is_resolved(index, hop)
    }

    /// Adds a neighbour's link-layer address to the kernel's table, as a stale entry: the kernel verifies it on use.
    ///
    /// # Errors
    /// The kernel refuses; it needs `CAP_NET_ADMIN`.
    pub fn learn(&mut self, index: u32, hop: IpAddr, mac: Mac, is_router: bool) -> io::Result<()> {
        let mut message = neighbour(index, hop);
        message.header.state = NeighbourState::Stale;
        if is_router {
            message.header.flags = NeighbourFlags::Router;
        }
        message.attributes.push(NeighbourAttribute::LinkLayerAddress(mac.to_vec()));
        let flags = NLM_F_CREATE | NLM_F_REPLACE;
        self.request(RouteNetlinkMessage::NewNeighbour(message), flags).map(drop)
    }
}

fn gateway_of(route: &RouteMessage) -> Option<IpAddr> {
    route.attributes.iter().find_map(|attribute| match attribute {
        RouteAttribute::Gateway(gateway) => address(gateway),
        RouteAttribute::Via(RouteVia::Inet(gateway)) => Some((*gateway).into()),
        RouteAttribute::Via(RouteVia::Inet6(gateway)) => Some((*gateway).into()),
        _ => None,
    })
}

fn neighbour(index: u32, hop: IpAddr) -> NeighbourMessage {
    let mut message = NeighbourMessage::default();
    message.header.ifindex = index;
    message.header.family = family(hop);
    let destination = match hop {
        IpAddr::V4(address) => NeighbourAddress::Inet(address),
        IpAddr::V6(address) => NeighbourAddress::Inet6(address),
    };
    message.attributes = vec![NeighbourAttribute::Destination(destination)];
    message
}

fn family(address: IpAddr) -> AddressFamily {
    if address.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 }
}

fn address(address: &RouteAddress) -> Option<IpAddr> {
    match address {
        RouteAddress::Inet(address) => Some((*address).into()),
        RouteAddress::Inet6(address) => Some((*address).into()),
        _ => None,
    }
}

/// The kernel has no such route, or refuses this pair of addresses.
fn is_refused(error: &io::Error) -> bool {
    let refusals = [libc::EINVAL, libc::ENETUNREACH, libc::EHOSTUNREACH, libc::ENODEV, libc::EACCES, libc::ENETDOWN];
    error.raw_os_error().is_some_and(|code| refusals.contains(&code))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_way_to_this_host_is_over_its_loopback_interface() {
        let mut neighbours = Neighbours::open().unwrap();
        let here: IpAddr = "127.0.0.1".parse().unwrap();
        assert_eq!(neighbours.route(1, here, here).unwrap(), Some(NextHop { hop: here, local: here }));
        let elsewhere: IpAddr = "192.0.2.1".parse().unwrap();
        assert_eq!(neighbours.route(u32::MAX >> 1, here, elsewhere).unwrap(), None);
        assert!(!neighbours.is_resolved(1, elsewhere).unwrap());
        assert_eq!(neighbours.confirmed_ago(1, elsewhere).unwrap(), None);
        assert_eq!(neighbours.way_to(here, 7).unwrap(), Some((1, None)));
    }
}
