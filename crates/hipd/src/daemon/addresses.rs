//! This host's locators: the addresses that the system's routes choose for packets to its peers, while their links have
//! a carrier, then those of standby links. Kernel notifications trigger the look-up.

use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::{AsFd, BorrowedFd};

use holdover_host::{Group, Monitor, Requests};

use super::links::{Interfaces, KernelRoutes, Links, find, links_of};
use crate::files::check_address;

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
    /// The addresses to announce, given those that the routes choose now and those of standbys: former ones that are still usable come last. An
    /// IP version without a route has none.
    fn announced(&mut self, chosen: &[IpAddr], standby: &[IpAddr], is_usable: impl Fn(IpAddr) -> bool) -> Vec<IpAddr> {
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
        let is_new = |it: &IpAddr| !chosen.contains(it) && !standby.contains(it);
        let stays = |it: &IpAddr| has_route(it) && is_new(it) && is_usable(*it);
        let former = self.former.iter().copied().filter(stays);
        chosen.iter().chain(standby).copied().chain(former).take(MOST).collect()
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

    /// The source addresses for packets to these peers, in their order, and to the default route; then those of standby links, unless they
    /// are not wanted; then those from before the last change that still exist. Also their links.
    ///
    /// # Errors
    /// The query fails.
    pub(super) fn look(
        &mut self,
        peers: &[IpAddr],
        lsi: Option<Ipv4Addr>,
        has_standbys: bool,
    ) -> io::Result<(Vec<IpAddr>, Links)> {
        let interfaces = Interfaces::read(&mut self.requests)?;
        let mut routes = KernelRoutes(&mut self.requests);
        let mut found = find(&mut routes, &interfaces, peers, has_standbys, |it| is_locator(it, lsi));
        found.chosen.truncate(MOST);
        let announced = self.routed.announced(&found.chosen, &found.standby, |it| interfaces.is_up(it));
        let links = links_of(&mut routes, &interfaces, &announced, &found.standby, peers);
        Ok((announced, links))
    }
}

/// Whether the source address of packets to a peer is a locator: not a HIT, not this host's LSI, and not an address that is useless
/// elsewhere. A host with an IPv6 default route and no other IPv6 address sends from its link-local one, whose packets no router forwards
/// (RFC 4291 section 2.5.6).
fn is_locator(source: IpAddr, lsi: Option<Ipv4Addr>) -> bool {
    check_address(source).is_ok() && lsi.is_none_or(|lsi| source != lsi)
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
        assert_eq!(routed.announced(&[wifi], &[], |_| true), [wifi]);
        assert_eq!(routed.announced(&[lte], &[], |_| true), [lte, wifi]);
        assert_eq!(routed.announced(&[lte], &[], |_| true), [lte, wifi], "a notification without a change of routes");
        assert_eq!(routed.announced(&[lte], &[], |it| it != wifi), [lte], "it is gone");
        assert_eq!(routed.announced(&[wifi, v6], &[], |_| true), [wifi, v6, lte]);
        assert_eq!(routed.announced(&[v6], &[], |_| true), [v6], "IPv4 has no route");
        assert!(routed.announced(&[], &[], |_| true).is_empty());
        assert_eq!(routed.announced(&[lte], &[], |_| true), [lte]);
    }

    // Claim: Addresses of standby links are announced behind those in use, and before former ones.
    #[test]
    fn standbys_come_before_former_addresses() {
        let [wifi, lte, wired, v6] =
            ["10.1.0.2", "10.2.0.2", "10.3.0.2", "2001:db8::2"].map(|it| it.parse::<IpAddr>().unwrap());
        let mut routed = Routed::default();
        assert_eq!(routed.announced(&[wifi, v6], &[lte], |_| true), [wifi, v6, lte]);
        assert_eq!(routed.announced(&[wired, v6], &[lte], |_| true), [wired, v6, lte, wifi]);
        assert_eq!(routed.announced(&[wired, v6], &[wifi, lte], |_| true), [wired, v6, wifi, lte]);
        assert_eq!(routed.announced(&[wifi], &[lte], |it| it != wired), [wifi, lte], "a standby that takes over");
    }

    #[test]
    fn ip_versions_that_move_one_after_the_other_keep_both_former_addresses() {
        let [wifi4, lte4, wifi6, lte6] =
            ["10.1.0.2", "10.2.0.2", "2001:db8:1::2", "2001:db8:2::2"].map(|it| it.parse::<IpAddr>().unwrap());
        let mut routed = Routed::default();
        assert_eq!(routed.announced(&[lte4, lte6], &[], |_| true), [lte4, lte6]);
        assert_eq!(routed.announced(&[wifi4, lte6], &[], |_| true), [wifi4, lte6, lte4]);
        assert_eq!(routed.announced(&[wifi4, wifi6], &[], |_| true), [wifi4, wifi6, lte4, lte6]);
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
