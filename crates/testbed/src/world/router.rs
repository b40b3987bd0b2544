//! A router with a kernel: a namespace with one interface for each Ethernet link, and one for all its other links.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write as _};
use std::net::{IpAddr, Ipv6Addr};
use std::process::{Command, Stdio};

use holdover_sim::{LinkId, NodeId, OutageKind, WorldConfig};

use super::addresses::{advertised_prefix, any, host_prefix};
use super::host::addresses_on;
use super::host_error::HostError;
use super::interface::{Interface, Port};
use crate::advertiser::{Advertisement, Advertiser, Prefix};
use crate::{Namespace, Netlink, Route, Tun, TunConfig, sysctl};

/// The interface to all links other than Ethernet.
const UPLINK: &str = "up0";

/// The plan of an external router.
#[derive(Clone, Debug)]
pub(super) struct RouterPlan {
    pub(super) node: NodeId,
    pub(super) name: String,
    ports: Vec<RouterPort>,
    mtu: u32,
}

/// One of its interfaces to a host.
#[derive(Clone, Debug)]
struct RouterPort {
    port: Port,
    interface: String,
    /// The host's addresses.
    hosts: Vec<IpAddr>,
    /// Whether its IPv4 addresses are translated.
    nat: bool,
    /// Whether the host makes its IPv6 addresses from the router's advertisements.
    slaac: bool,
}

/// A running external router.
#[derive(Debug)]
pub(super) struct Router {
    pub(super) plan: RouterPlan,
    pub(super) namespace: Namespace,
    netlink: Netlink,
    advertisers: BTreeMap<LinkId, Advertiser>,
}

impl RouterPlan {
    /// The router of the attached links `links`, each with its host.
    pub(super) fn new(config: &WorldConfig, node: NodeId, links: &[(LinkId, NodeId)], mtu: u32) -> Self {
        let port = |(index, &(link, host)): (usize, &(LinkId, NodeId))| {
            let layer2 = config.links[link.0 as usize].layer2;
            RouterPort {
                port: Port::new(layer2.kind, link, node, host),
                interface: format!("lan{index}"),
                hosts: addresses_on(config, host, link),
                nat: layer2.nat,
                slaac: layer2.slaac,
            }
        };
        let ports = links.iter().enumerate().map(port).collect();
        Self { node, name: config.nodes[node.0 as usize].name.clone(), ports, mtu }
    }

    /// The name of the interface at a link.
    pub(super) fn interface(&self, link: LinkId) -> Option<&str> {
        self.ports.iter().find(|port| port.port.link == link).map(|port| port.interface.as_str())
    }
}

impl Router {
    /// The host of a link has another address from now on.
    pub(super) fn reach(&mut self, link: LinkId, host: IpAddr) -> Result<(), HostError> {
        for port in self.plan.ports.iter_mut().filter(|port| port.port.link == link) {
            if !port.hosts.contains(&host) {
                port.hosts.push(host);
                self.netlink.add_unreachable(host, host_prefix(host))?;
            }
            reach(&mut self.netlink, self.plan.node, port, host)?;
            if let Some(advertiser) = self.advertisers.get(&link).filter(|_| host.is_ipv6()) {
                advertiser.advertise(advertisement(self.plan.mtu, &[host]));
            }
        }
        Ok(())
    }

    /// Creates the namespace and its interfaces.
    pub(super) fn start(plan: RouterPlan) -> Result<(Self, Vec<Interface>), HostError> {
        let namespace = Namespace::new(&format!("router-{}", plan.node.0))?;
        let set_up = || -> Result<_, HostError> {
            for parameter in ["net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding"] {
                sysctl::set(&namespace, parameter, "1")?;
            }
            // The return path to a host may differ (no reverse-path filter), and hosts have no better router (no
            // redirects).
            for parameter in ["all.rp_filter", "default.rp_filter", "all.send_redirects", "default.send_redirects"] {
                sysctl::set(&namespace, &format!("net.ipv4.conf.{parameter}"), "0")?;
            }
            let mut netlink = Netlink::open(&namespace)?;
            netlink.set_up("lo")?;
            let mut uplink = TunConfig::new(UPLINK, plan.mtu);
            uplink.offload = true;
            for address in own_addresses(plan.node) {
                uplink = uplink.address(address, host_prefix(address));
            }
            let mut interfaces = vec![Interface::new(plan.node, Tun::open(&namespace, &uplink)?, None)];
            for address in own_addresses(plan.node) {
                netlink.add_route(&Route {
                    destination: (any(address), 0),
                    next_hop: None,
                    link: UPLINK.to_owned(),
                    source: Some(address),
                })?;
            }
            for port in &plan.ports {
                let mut config = TunConfig::new(&port.interface, plan.mtu);
                config.offload = true;
                config.mac = port.port.macs.map(|macs| macs.own);
                interfaces.push(Interface::new(plan.node, Tun::open(&namespace, &config)?, Some(port.port)));
                for &address in &port.hosts {
                    netlink.add_unreachable(address, host_prefix(address))?;
                }
                configure(&mut netlink, plan.node, port)?;
            }
            translate(&plan.ports)?;
            Ok((netlink, interfaces))
        };
        let (netlink, interfaces) = namespace.enter(set_up)??;
        let advertisers = advertise(&namespace, &plan)?;
        Ok((Self { plan, namespace, netlink, advertisers }, interfaces))
    }

    /// Applies the start or end of an outage of `link` to its own side, apart from the carrier.
    pub(super) fn follow_link(&mut self, link: LinkId, outage: OutageKind, up: bool) -> Result<(), HostError> {
        if outage != OutageKind::AdminDown {
            return Ok(());
        }
        for port in self.plan.ports.iter().filter(|port| port.port.link == link) {
            if up {
                self.netlink.set_up(&port.interface)?;
                configure(&mut self.netlink, self.plan.node, port)?;
            } else {
                self.netlink.set_down(&port.interface)?;
            }
        }
        Ok(())
    }
}

/// Advertises the router on the ports whose hosts configure themselves.
fn advertise(namespace: &Namespace, plan: &RouterPlan) -> Result<BTreeMap<LinkId, Advertiser>, HostError> {
    let mut advertisers = BTreeMap::new();
    for port in plan.ports.iter().filter(|port| port.slaac && port.hosts.iter().any(IpAddr::is_ipv6)) {
        let advertiser = Advertiser::start(namespace, &port.interface, advertisement(plan.mtu, &port.hosts))?;
        advertisers.insert(port.port.link, advertiser);
    }
    Ok(advertisers)
}

/// The advertisement to hosts with these addresses. Other hosts with their prefixes are behind the router.
fn advertisement(mtu: u32, hosts: &[IpAddr]) -> Advertisement {
    let prefix = |host: &IpAddr| match host {
        IpAddr::V4(_) => None,
        IpAddr::V6(host) => Some(advertised_prefix(*host)),
    };
    let prefixes: BTreeSet<Ipv6Addr> = hosts.iter().filter_map(prefix).collect();
    let prefixes = prefixes.into_iter().map(|prefix| Prefix { on_link: false, ..Prefix::new(prefix) });
    Advertisement { mtu, ..Advertisement::new(prefixes) }
}

/// Translates the addresses of the hosts of some ports. Packets of unknown connections are dropped, as by a firewall.
fn translate(ports: &[RouterPort]) -> Result<(), HostError> {
    let names: Vec<String> =
        ports.iter().filter(|port| port.nat).map(|port| format!("\"{}\"", port.interface)).collect();
    if names.is_empty() {
        return Ok(());
    }
    let names = names.join(", ");
    let rules = format!(
        "table ip holdover {{
            chain postrouting {{
                type nat hook postrouting priority srcnat
                iifname {{ {names} }} oifname \"{UPLINK}\" masquerade
            }}
            chain forward {{
                type filter hook forward priority filter
                ct state invalid drop
            }}
        }}"
    );
    let failed = |source| HostError::Call { call: "nft", source };
    // The program starts in the network namespace of this thread.
    let mut nft = Command::new("nft").args(["-f", "-"]).stdin(Stdio::piped()).spawn().map_err(failed)?;
    let written = nft.stdin.take().map_or(Ok(()), |mut stdin| stdin.write_all(rules.as_bytes()));
    let status = nft.wait().map_err(failed)?;
    written.map_err(failed)?;
    if status.success() { Ok(()) } else { Err(failed(io::Error::other(format!("it ended with {status}")))) }
}

/// Configures the addresses and routes of a port that is up.
fn configure(netlink: &mut Netlink, node: NodeId, port: &RouterPort) -> Result<(), HostError> {
    for address in own_addresses(node) {
        netlink.ensure_address(&port.interface, address, host_prefix(address))?;
    }
    for &host in &port.hosts {
        reach(netlink, node, port, host)?;
    }
    Ok(())
}

/// Sets the route to an address of a port's host.
fn reach(netlink: &mut Netlink, node: NodeId, port: &RouterPort, host: IpAddr) -> Result<(), HostError> {
    netlink.replace_route(&Route {
        destination: (host, host_prefix(host)),
        next_hop: None,
        link: port.interface.clone(),
        source: Some(node.address(host.is_ipv6())),
    })?;
    Ok(())
}

fn own_addresses(node: NodeId) -> [IpAddr; 2] {
    [false, true].map(|ipv6| node.address(ipv6))
}

#[cfg(test)]
mod tests {
    use super::*;

    // Claim: A router advertises the prefixes of all hosts of a link together.
    #[test]
    fn hosts_of_one_link_share_an_advertisement() {
        let address = |text: &str| text.parse::<IpAddr>().unwrap();
        let hosts = ["10.0.0.1", "2001:db8:0:2::1", "2001:db8:0:1::1", "2001:db8:0:1::2"].map(address);
        let advertised = advertisement(1500, &hosts).prefixes;
        let prefixes: Vec<IpAddr> = advertised.iter().map(|prefix| prefix.prefix.into()).collect();
        assert_eq!(prefixes, ["2001:db8:0:1::", "2001:db8:0:2::"].map(address));
        assert!(advertised.iter().all(|prefix| !prefix.on_link));
    }
}
