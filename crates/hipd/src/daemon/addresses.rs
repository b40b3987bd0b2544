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
    routed: Routed,
}

/// The addresses that the routes choose, and those that they chose before: packets on their way still arrive there in a make before break.
#[derive(Default)]
struct Routed {
    present: Vec<IpAddr>,
    former: Vec<IpAddr>,
}

impl Routed {
    /// The addresses to announce, given those that the routes choose now: former ones that are still usable come last. An IP version without
    /// a route has none.
    fn announced(&mut self, chosen: &[IpAddr], is_usable: impl Fn(IpAddr) -> bool) -> Vec<IpAddr> {
        // The IP versions may move one after the other.
        for is_ipv4 in [true, false] {
            let of = |all: &[IpAddr]| all.iter().copied().filter(|it| it.is_ipv4() == is_ipv4).collect::<Vec<_>>();
            let before = of(&self.present);
            if before != of(chosen) {
                self.former.retain(|it| it.is_ipv4() != is_ipv4);
                self.former.extend(before);
            }
        }
        self.present = chosen.to_vec();
        let has_route = |it: &IpAddr| chosen.iter().any(|other| other.is_ipv4() == it.is_ipv4());
        let stays = |it: &IpAddr| has_route(it) && !chosen.contains(it) && is_usable(*it);
        let former = self.former.iter().copied().filter(stays);
        chosen.iter().copied().chain(former).take(MOST).collect()
    }
}

impl Addresses {
    /// Opened in the network namespace of the calling thread.
    pub(super) fn open() -> io::Result<Self> {
        let groups: Vec<Group> = [Group::Link].into_iter().chain(Group::ADDRESSING).collect();
        Ok(Self { monitor: Monitor::open(&groups)?, requests: Requests::open()?, routed: Routed::default() })
    }

    /// Reads the kernel's notifications. Addresses and links are queried again, so lost notifications do not matter.
    pub(super) fn drain_notifications(&mut self) {
        while let Ok(Some(_)) = self.monitor.receive() {}
    }

    /// The source addresses for packets to these peers, in their order, and to the default route; then those from before the last change
    /// that still exist.
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
        Ok(self.routed.announced(&found, |it| links.get(&it).copied().unwrap_or(false)))
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

    // Claim: In a make before break the former address is announced beside the new one, as long as its link is up; without a route it is not.
    #[test]
    fn the_former_address_stays_announced_while_it_is_there() {
        let [wifi, lte, v6] = ["10.1.0.2", "10.2.0.2", "2001:db8::2"].map(|it| it.parse::<IpAddr>().unwrap());
        let mut routed = Routed::default();
        assert_eq!(routed.announced(&[wifi], |_| true), [wifi]);
        assert_eq!(routed.announced(&[lte], |_| true), [lte, wifi]);
        assert_eq!(routed.announced(&[lte], |_| true), [lte, wifi], "a notification without a change of routes");
        assert_eq!(routed.announced(&[lte], |it| it != wifi), [lte], "it is gone");
        assert_eq!(routed.announced(&[wifi, v6], |_| true), [wifi, v6, lte]);
        assert_eq!(routed.announced(&[v6], |_| true), [v6], "IPv4 has no route");
        assert!(routed.announced(&[], |_| true).is_empty());
        assert_eq!(routed.announced(&[lte], |_| true), [lte]);
    }

    #[test]
    fn ip_versions_that_move_one_after_the_other_keep_both_former_addresses() {
        let [wifi4, lte4, wifi6, lte6] =
            ["10.1.0.2", "10.2.0.2", "2001:db8:1::2", "2001:db8:2::2"].map(|it| it.parse::<IpAddr>().unwrap());
        let mut routed = Routed::default();
        assert_eq!(routed.announced(&[lte4, lte6], |_| true), [lte4, lte6]);
        assert_eq!(routed.announced(&[wifi4, lte6], |_| true), [wifi4, lte6, lte4]);
        assert_eq!(routed.announced(&[wifi4, wifi6], |_| true), [wifi4, wifi6, lte4, lte6]);
    }

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
