//! Addresses at which other hosts reach a host.

use core::net::IpAddr;

use crate::identity::Hit;

/// Why an address cannot be a locator.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum AddressProblem {
    /// All zeros, or of 0.0.0.0/8 (RFC 6890).
    #[error("it is the unspecified address, or one of 0.0.0.0/8")]
    Unspecified,
    /// Loopback.
    #[error("it is a loopback address, valid on one host only")]
    Loopback,
    /// Multicast.
    #[error("it is a multicast address")]
    Multicast,
    /// IPv4's limited broadcast address.
    #[error("it is the broadcast address")]
    Broadcast,
    /// Of a link that is not named.
    #[error("it is link-local, and no link is named")]
    LinkLocal,
    /// A HIT, which is an identifier, or another address of its prefix, which is not routed.
    #[error("it is a HIT")]
    Hit,
    /// An IPv4 address in an IPv6 one.
    #[error("expected an IPv4 address")]
    Mapped,
}

impl AddressProblem {
    /// The problem of an address, wherever it comes from: a file, the DNS, or a packet.
    pub fn of(address: IpAddr) -> Option<Self> {
        Some(match address {
            _ if address.is_unspecified() => Self::Unspecified,
            _ if address.is_loopback() => Self::Loopback,
            _ if address.is_multicast() => Self::Multicast,
            IpAddr::V4(address) if address.octets()[0] == 0 => Self::Unspecified,
            IpAddr::V4(address) if address.is_broadcast() => Self::Broadcast,
            IpAddr::V4(address) if address.is_link_local() => Self::LinkLocal,
            IpAddr::V6(address) if address.is_unicast_link_local() => Self::LinkLocal,
            IpAddr::V6(address) if Hit(address).has_prefix() => Self::Hit,
            IpAddr::V6(address) if address.to_ipv4_mapped().is_some() => Self::Mapped,
            _ => return None,
        })
    }

    /// The same for hosts that may share a link: IPv4 link-local addresses are left to the routes of the system, which have one link for
    /// them.
    pub fn on_a_link(address: IpAddr) -> Option<Self> {
        Self::of(address).filter(|problem| *problem != Self::LinkLocal || address.is_ipv6())
    }
}

/// Whether a host with these locators may send to an address that a packet names. Refuses locators that would make this host an amplifier,
/// or send to itself. IPv4 link-local addresses are reached from the same link only.
pub(super) fn is_reachable(own: &[IpAddr], address: IpAddr) -> bool {
    let is_on_a_link = |it: &IpAddr| it.is_ipv4() && AddressProblem::of(*it) == Some(AddressProblem::LinkLocal);
    match AddressProblem::of(address) {
        None => !own.contains(&address),
        Some(AddressProblem::LinkLocal) => address.is_ipv4() && own.iter().any(is_on_a_link),
        Some(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn addresses_that_are_not_routable_to_another_host_are_refused() {
        let own = [address("192.0.2.1"), address("2001:db8::1")];
        for usable in ["192.0.2.7", "10.0.0.7", "100.64.0.1", "2001:db8::7", "fd00::7"] {
            assert!(AddressProblem::of(address(usable)).is_none() && is_reachable(&own, address(usable)), "{usable}");
        }
        for refused in [
            "0.0.0.0",
            "0.1.2.3",
            "127.0.0.1",
            "127.9.9.9",
            "224.0.0.1",
            "255.255.255.255",
            "169.254.169.254",
            "::",
            "::1",
            "ff02::1",
            "fe80::7",
            "2001:25::7",
            "2001:20::7",
            "2001:2f:ffff::7",
            "::ffff:192.0.2.7",
        ] {
            assert!(!is_reachable(&own, address(refused)), "{refused}");
        }
        assert!(own.iter().all(|own_address| !is_reachable(&own, *own_address)));
    }

    #[test]
    fn hosts_on_one_link_reach_each_other_by_its_ipv4_addresses() {
        let own = [address("169.254.3.4")];
        assert!(is_reachable(&own, address("169.254.1.2")));
        assert!(!is_reachable(&[address("fe80::1")], address("fe80::2")), "no link is named");
        assert_eq!(AddressProblem::on_a_link(address("169.254.1.2")), None);
        assert_eq!(AddressProblem::on_a_link(address("fe80::2")), Some(AddressProblem::LinkLocal));
    }
}
