//! The endpoints of WireGuard peers, by generic netlink (`linux/wireguard.h`).

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use holdover_host::generic_netlink::{Generic, attribute, attributes, value};
use netlink_packet_core::NLM_F_DUMP;

/// A socket for queries.
pub(super) struct WireGuard(Generic);

/// The endpoints of an interface's peers.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(super) struct Endpoints {
    pub(super) addresses: Vec<IpAddr>,
    /// The mark of the outer packets, by which rules may select another table (`ip-rule(8)`).
    pub(super) mark: u32,
}

/// `WG_CMD_GET_DEVICE`, `WGDEVICE_A_IFINDEX`, `WGDEVICE_A_FWMARK`, `WGDEVICE_A_PEERS` and `WGPEER_A_ENDPOINT`.
const GET_DEVICE: u8 = 0;
const INTERFACE: u16 = 1;
const MARK: u16 = 7;
const PEERS: u16 = 8;
const ENDPOINT: u16 = 4;

/// `AF_INET` and `AF_INET6`.
const IPV4: u16 = 2;
const IPV6: u16 = 10;

impl WireGuard {
    /// In the network namespace of the calling thread. Open it only if there is such an interface: it would load the
    /// module.
    pub(super) fn open() -> io::Result<Self> {
        Generic::open(b"wireguard\0").map(Self)
    }

    /// The known endpoints. Needs `CAP_NET_ADMIN`.
    pub(super) fn endpoints(&mut self, index: u32) -> io::Result<Endpoints> {
        let answers = self.0.ask(GET_DEVICE, NLM_F_DUMP, &attribute(INTERFACE, &index.to_ne_bytes()))?;
        let mut endpoints = Endpoints::default();
        answers.iter().for_each(|answer| endpoints.add(answer));
        Ok(endpoints)
    }
}

impl Endpoints {
    /// Adds the peers of a message of the answer, which has several for many peers.
    fn add(&mut self, message: &[u8]) {
        if let Some(mark) = value(message, MARK).and_then(|mark| mark.try_into().ok()) {
            self.mark = u32::from_ne_bytes(mark);
        }
        let peers = value(message, PEERS).into_iter().flat_map(attributes);
        self.addresses.extend(peers.filter_map(|(_, peer)| address(value(peer, ENDPOINT)?)));
    }
}

/// The address in a `struct sockaddr_in` or `struct sockaddr_in6`.
fn address(endpoint: &[u8]) -> Option<IpAddr> {
    let family = u16::from_ne_bytes(endpoint.get(..2)?.try_into().ok()?);
    match family {
        IPV4 => Some(Ipv4Addr::from(<[u8; 4]>::try_from(endpoint.get(4..8)?).ok()?).into()),
        IPV6 => Some(Ipv6Addr::from(<[u8; 16]>::try_from(endpoint.get(8..24)?).ok()?).into()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device() -> Vec<u8> {
        let ipv4 = [&IPV4.to_ne_bytes()[..], &[0xca, 0x6c, 192, 0, 2, 1], &[0; 8]].concat();
        let ipv6 = [&IPV6.to_ne_bytes()[..], &[0xca, 0x6c], &[0; 4], &Ipv6Addr::LOCALHOST.octets(), &[0; 4]].concat();
        let peer =
            |endpoint: &[u8]| attribute(0x8000, &[attribute(1, &[7; 32]), attribute(ENDPOINT, endpoint)].concat());
        // One peer has not sent anything yet, and has no endpoint.
        let peers = [peer(&ipv4), attribute(0x8000, &attribute(1, &[8; 32])), peer(&ipv6)].concat();
        [
            attribute(INTERFACE, &[9, 0, 0, 0]),
            attribute(MARK, &51820u32.to_ne_bytes()),
            attribute(PEERS | 0x8000, &peers),
        ]
        .concat()
    }

    // Claim: The endpoints of WireGuard peers and of tunnels are parsed from the kernel's messages, complete or truncated.
    // Tests: `wireguard::truncated_messages_have_fewer_entries`, `stacking::a_tunnel_tells_its_endpoint_unless_it_has_many`,
    // `stacking::the_interface_below_is_named_but_for_pairs_and_other_namespaces`
    #[test]
    fn the_endpoints_of_all_peers_are_found() {
        let mut endpoints = Endpoints::default();
        endpoints.add(&device());
        let addresses = vec![[192, 0, 2, 1].into(), Ipv6Addr::LOCALHOST.into()];
        assert_eq!(endpoints, Endpoints { addresses, mark: 51820 });
    }

    #[test]
    fn truncated_messages_have_fewer_entries() {
        let whole = device();
        for cut in 0..whole.len() {
            let mut endpoints = Endpoints::default();
            endpoints.add(&whole[..cut]);
            assert!(endpoints.addresses.len() < 2, "{cut}");
        }
        assert_eq!(address(&[0; 28]), None);
    }
}
