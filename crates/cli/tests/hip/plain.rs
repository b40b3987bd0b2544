//! Hosts without HIP, behind a router that has the links of [`Network`]'s mobile host.

use std::net::IpAddr;
use std::path::Path;
use std::process::Command;

use holdover_testbed::{Namespace, Netlink, Route};

use crate::daemon::{Host, Place};
use crate::network::{Network, SERVER, WIFI};

/// The interface of the router behind which the hosts are.
pub(crate) const LAN: &str = "lan";
/// Another interface of the router.
const GUESTS: &str = "guests";
const LINK: &str = "eth0";
const ROUTER: [&str; 2] = ["192.168.7.1", "fd00:7::1"];
const ROUTER_FOR_GUESTS: [&str; 2] = ["192.168.8.1", "fd00:8::1"];

/// A host without HIP: its name, and its addresses in both versions.
pub(crate) const PRINTER: (&str, [&str; 2]) = ("printer", ["192.168.7.10", "fd00:7::10"]);
pub(crate) const CAMERA: (&str, [&str; 2]) = ("camera", ["192.168.7.11", "fd00:7::11"]);
/// One without an identity.
const OTHER: [&str; 2] = ["192.168.7.99", "fd00:7::99"];
pub(crate) const GUEST: [&str; 2] = ["192.168.8.2", "fd00:8::2"];

/// A router with its hosts, and a server that is its peer.
pub(crate) struct Site {
    pub(crate) network: Network,
    pub(crate) printer: Namespace,
    pub(crate) camera: Namespace,
    /// At the same interface, without an identity.
    pub(crate) other: Namespace,
    /// At another interface.
    pub(crate) guest: Namespace,
}

impl Site {
    /// The router is at [`WIFI`]. It forwards, and does not check sources by itself.
    pub(crate) fn new(capture: Option<&Path>) -> Self {
        let network = Network::new(capture);
        network.attach(&WIFI);
        let router = &network.mobile;
        router
            .enter(|| {
                for (parameter, value) in [
                    ("ipv4/ip_forward", "1"),
                    ("ipv6/conf/all/forwarding", "1"),
                    ("ipv4/conf/all/rp_filter", "0"),
                    ("ipv4/conf/default/rp_filter", "0"),
                ] {
                    std::fs::write(format!("/proc/sys/net/{parameter}"), value).unwrap();
                }
                let mut netlink = Netlink::open(router).unwrap();
                for (bridge, addresses) in [(LAN, ROUTER), (GUESTS, ROUTER_FOR_GUESTS)] {
                    netlink.add_bridge(bridge).unwrap();
                    add_addresses(&mut netlink, bridge, &addresses);
                    netlink.set_up(bridge).unwrap();
                }
            })
            .unwrap();
        let host = |name: &str, bridge: &str, addresses: [&str; 2], gateways: [&str; 2]| {
            let host = Namespace::new(name).unwrap();
            router
                .enter(|| {
                    let mut netlink = Netlink::open(router).unwrap();
                    netlink.add_veth(name, LINK, &host).unwrap();
                    netlink.add_port(bridge, name).unwrap();
                    netlink.set_up(name).unwrap();
                })
                .unwrap();
            settle(&host, addresses, gateways);
            host
        };
        let [printer, camera] = [PRINTER, CAMERA].map(|(name, addresses)| host(name, LAN, addresses, ROUTER));
        let other = host("other", LAN, OTHER, ROUTER);
        let guest = host("guest", GUESTS, GUEST, ROUTER_FOR_GUESTS);
        Self { network, printer, camera, other, guest }
    }

    /// The daemons of the router and of the server, which are peers; the hosts named have identities with the addresses of these versions,
    /// and the server is their peer, too. The daemons run.
    pub(crate) fn daemons(&self, place: &Place, hosts: &[(&str, &[&str])], words: [&str; 2]) -> [Host; 2] {
        let [mut router, mut server] =
            [Host::new(place, "router", &self.network.mobile), Host::new(place, "server", &self.network.server)];
        let at: String = SERVER.iter().map(|address| format!(" --address {address}")).collect();
        router.ok(&format!("join {}", server.ok(&format!("invite --without-secret --name server{at}")).trim()));
        server.ok(&format!(
            "join {}",
            router.ok(&format!("invite --without-secret --name router --address {}", WIFI.address)).trim()
        ));
        for (name, addresses) in hosts {
            add_host(&router, &server, name, addresses);
        }
        router.up(words[0]);
        server.up(words[1]);
        [router, server]
    }

    /// The link of a host goes down, and the router has to look for its neighbours.
    pub(crate) fn unplug(&self, host: &Namespace) {
        host.enter(|| Netlink::open(host).unwrap().set_down(LINK).unwrap()).unwrap();
        let mut command = Command::new("ip");
        command.args(["neighbour", "flush", "dev", LAN]);
        assert!(self.network.mobile.enter(|| command.status().unwrap().success()).unwrap());
    }
}

/// Gives a host an identity, and makes it known to the server.
pub(crate) fn add_host(router: &Host, server: &Host, name: &str, addresses: &[&str]) {
    router.ok(&format!("proxy add {name} {} --interface {LAN}", addresses.join(" ")));
    let invitation = router.ok(&format!("invite --for {name} --address {}", WIFI.address));
    server.ok(&format!("join {}", invitation.trim()));
}

fn add_addresses(netlink: &mut Netlink, link: &str, addresses: &[&str]) {
    for address in addresses {
        let address: IpAddr = address.parse().unwrap();
        netlink.add_address(link, address, if address.is_ipv4() { 24 } else { 64 }).unwrap();
    }
}

fn settle(host: &Namespace, addresses: [&str; 2], gateways: [&str; 2]) {
    host.enter(|| {
        let mut netlink = Netlink::open(host).unwrap();
        add_addresses(&mut netlink, LINK, &addresses);
        netlink.set_up(LINK).unwrap();
        netlink.set_up("lo").unwrap();
        for gateway in gateways {
            let gateway: IpAddr = gateway.parse().unwrap();
            let any: IpAddr = if gateway.is_ipv4() { "0.0.0.0".parse().unwrap() } else { "::".parse().unwrap() };
            let route = Route { destination: (any, 0), next_hop: Some(gateway), link: LINK.to_owned(), source: None };
            netlink.replace_route(&route).unwrap();
        }
    })
    .unwrap();
}

/// Runs `body` while a host has a further address, which need not belong to its network.
pub(crate) fn with_address<T>(host: &Namespace, address: IpAddr, body: impl FnOnce() -> T) -> T {
    let len = if address.is_ipv4() { 32 } else { 128 };
    let mut netlink = host.enter(|| Netlink::open(host).unwrap()).unwrap();
    netlink.add_address(LINK, address, len).unwrap();
    let result = body();
    netlink.remove_address(LINK, address, len).unwrap();
    result
}
