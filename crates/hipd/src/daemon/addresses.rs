//! This host's locators: the addresses that the system's routes choose for packets to its peers, while their links have
//! a carrier. Kernel notifications trigger the look-up.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};

use holdover_host::{Group, Monitor, Requests};
use netlink_packet_core::NLM_F_DUMP;
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::address::{AddressAttribute, AddressMessage};
use netlink_packet_route::link::{LinkFlags, LinkMessage};

use crate::files::check_address;

/// Documentation addresses outside of every network (RFC 5737, RFC 3849): their route is the default route.
pub(crate) const ELSEWHERE: [IpAddr; 2] =
    [IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1))];
/// A port for sockets that send nothing: "discard".
const NO_PORT: u16 = 9;
/// The most locators announced to peers.
const MOST: usize = 8;

/// Kernel notifications, and a socket for queries.
pub(super) struct Addresses {
    monitor: Monitor,
    requests: Requests,
}

impl Addresses {
    /// Opened in the network namespace of the calling thread.
    pub(super) fn open() -> io::Result<Self> {
        let groups: Vec<Group> = [Group::Link].into_iter().chain(Group::ADDRESSING).collect();
        Ok(Self { monitor: Monitor::open(&groups)?, requests: Requests::open()? })
    }

    /// Reads the kernel's notifications. Addresses and links are queried again, so lost notifications do not matter.
    pub(super) fn drain_notifications(&mut self) {
        while let Ok(Some(_)) = self.monitor.receive() {}
    }

    /// The source addresses for packets to these peers, the first one first, and to the default route.
    ///
    /// # Errors
    /// The query fails.
    pub(super) fn look(&mut self, peers: &[IpAddr], lsi: Option<Ipv4Addr>) -> io::Result<Vec<IpAddr>> {
        let links = self.usable()?;
        let mut found: Vec<IpAddr> = Vec::new();
        for &peer in peers.iter().chain(&ELSEWHERE) {
            let Some(source) = source_for(peer) else { continue };
            let has_carrier = links.get(&source).copied().unwrap_or(false);
            if has_carrier && is_locator(source, lsi) && !found.contains(&source) && found.len() < MOST {
                found.push(source);
            }
        }
        Ok(found)
    }

    /// The host's addresses, and whether their link is up with a carrier.
    fn usable(&mut self) -> io::Result<BTreeMap<IpAddr, bool>> {
        let answers = self.requests.request(RouteNetlinkMessage::GetLink(LinkMessage::default()), NLM_F_DUMP)?;
        let up = LinkFlags::Up | LinkFlags::LowerUp;
        let links: BTreeMap<u32, bool> = answers
            .into_iter()
            .filter_map(|answer| match answer {
                RouteNetlinkMessage::NewLink(link) => Some((link.header.index, link.header.flags.contains(up))),
                _ => None,
            })
            .collect();
        let answers = self.requests.request(RouteNetlinkMessage::GetAddress(AddressMessage::default()), NLM_F_DUMP)?;
        let mut addresses = BTreeMap::new();
        for answer in answers {
            let RouteNetlinkMessage::NewAddress(message) = answer else { continue };
            let is_up = links.get(&message.header.index).copied().unwrap_or(false);
            for attribute in message.attributes {
                if let AddressAttribute::Local(address) | AddressAttribute::Address(address) = attribute {
                    *addresses.entry(address).or_default() |= is_up;
                }
            }
        }
        Ok(addresses)
    }
}

/// Whether the source address of packets to a peer is a locator: not a HIT, not this host's LSI, and not an address that is useless
/// elsewhere. A host with an IPv6 default route and no other IPv6 address sends from its link-local one, whose packets no router forwards
/// (RFC 4291 section 2.5.6).
fn is_locator(source: IpAddr, lsi: Option<Ipv4Addr>) -> bool {
    check_address(source).is_ok() && lsi.is_none_or(|lsi| source != lsi)
}

/// The source address that the system would choose; sends nothing.
pub(crate) fn source_for(peer: IpAddr) -> Option<IpAddr> {
    let any: SocketAddr = match peer {
        IpAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        IpAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    let socket = UdpSocket::bind(any).ok()?;
    socket.connect((peer, NO_PORT)).ok()?;
    socket.local_addr().ok().map(|address| address.ip())
}

impl AsFd for Addresses {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.monitor.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Claim: HITs, the own LSI, loopback and link-local addresses are not announced to peers.
    #[test]
    fn addresses_that_peers_cannot_use_are_no_locators() {
        let lsi = Some("198.18.0.1".parse().unwrap());
        let is_locator = |source: &str| is_locator(source.parse().unwrap(), lsi);
        for source in ["192.0.2.7", "10.0.0.7", "2001:db8::7", "fd00::7"] {
            assert!(is_locator(source), "{source}");
        }
        for source in ["198.18.0.1", "2001:25::7", "fe80::7", "127.0.0.1", "::1"] {
            assert!(!is_locator(source), "{source}");
        }
    }
}
