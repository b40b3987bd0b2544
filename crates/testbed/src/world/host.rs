//! One external host: a namespace with one interface, and a thread for its applications.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::mpsc::{self, Sender};

use holdover_sim::{
    Addresses, End, Families, FlowId, LinkId, LinkKind, NodeId, OutageKind, Traffic, World, WorldConfig,
};

use super::addresses::{any, host_prefix, link_local};
use super::applications::{Applications, Command, Listening, Outbox, Report};
use super::host_error::HostError;
use super::interface::{Interface, Port};
use super::stack::{self, KernelStack};
use super::{RealError, RealOptions};
use crate::{Counters, Namespace, NamespaceThread, Netlink, Route, SocketOptions, Tun, TunConfig, Waker, sysctl};

/// The name of the interface of an external host whose links are wires; loopback is the only other one.
pub const INTERFACE: &str = "tun0";
/// The name of the interface of an external host on an Ethernet; loopback is the only other one.
pub const ETHERNET_INTERFACE: &str = "eth0";
/// The name of the interface of an external host behind a modem; loopback is the only other one.
pub const MODEM_INTERFACE: &str = "wwan0";

/// The plan of an external host, derived from the world's description before anything is created.
#[derive(Clone, Debug)]
pub(super) struct HostPlan {
    pub(super) node: NodeId,
    pub(super) name: String,
    addresses: Vec<IpAddr>,
    /// Whether the address in use can change.
    pub(super) per_link: bool,
    /// Its side of its link, and the router on the other side, if the link is Ethernet.
    pub(super) port: Option<(Port, NodeId)>,
    /// Whether its kernel makes the IPv6 address from router advertisements, once the first one is lost.
    slaac: bool,
    pub(super) mtu: u32,
    sysctls: BTreeMap<&'static str, String>,
    listening: Vec<Listening>,
    opening: BTreeMap<FlowId, SocketOptions>,
    /// The number of TCP flows' ends on this host.
    pub(super) connections: usize,
}

/// A running external host.
#[derive(Debug)]
pub(super) struct Host {
    pub(super) plan: HostPlan,
    pub(super) namespace: Namespace,
    netlink: Netlink,
    /// The source addresses of the routes, IPv4 and IPv6.
    sources: [Option<IpAddr>; 2],
    /// The number of times that it got other addresses.
    renewals: u32,
    commands: Sender<Command>,
    wake: Waker,
    thread: Option<NamespaceThread<Option<Counters>>>,
}

impl HostPlan {
    /// The plan of `node` for the flows of `world`.
    pub(super) fn new(world: &World, node: NodeId, options: &RealOptions) -> Result<Self, RealError> {
        let config = world.config();
        let name = config.nodes[node.0 as usize].name.clone();
        check_mechanisms(config, node, &name)?;
        let addressing = config.addressing.iter().find(|host| host.node == node);
        let per_link = addressing.is_some_and(|host| host.addresses == Addresses::PerLink && host.identity.is_none());
        let links = config.links.iter().filter(|link| link.a == node || link.b == node).count() as u32;
        let port = port_of(config, node, &name)?;
        let families = [false, true];
        let addresses: Vec<IpAddr> = if per_link {
            (0..links).flat_map(|access| families.map(|ipv6| node.locator(access, ipv6))).collect()
        } else {
            families.map(|ipv6| node.address(ipv6)).to_vec()
        };
        let mut plan = Self {
            node,
            name,
            addresses,
            per_link,
            port,
            slaac: port.is_some_and(|(port, _)| config.links[port.link.0 as usize].layer2.slaac),
            mtu: 1500,
            sysctls: BTreeMap::new(),
            listening: Vec::new(),
            opening: BTreeMap::new(),
            connections: 0,
        };
        for (id, _) in (0..).zip(&config.flows) {
            plan.add_flow(world, FlowId(id), options)?;
        }
        if plan.sysctls.is_empty() {
            // Programs on this host must not run with the machine's own settings.
            plan.sysctls = stack::linux();
        }
        Ok(plan)
    }

    /// The name of its interface.
    pub(super) fn interface(&self) -> &'static str {
        match self.port {
            None => INTERFACE,
            Some((Port { macs: Some(_), .. }, _)) => ETHERNET_INTERFACE,
            Some((Port { macs: None, .. }, _)) => MODEM_INTERFACE,
        }
    }

    /// Whether `link` is its link with a second layer.
    pub(super) fn is_on(&self, link: LinkId) -> bool {
        self.port.is_some_and(|(port, _)| port.link == link)
    }

    /// Whether its kernel makes this address from router advertisements.
    fn configures_itself(&self, address: IpAddr) -> bool {
        self.slaac && address.is_ipv6()
    }

    /// The routes of one family over a link with a second layer: those of DHCP, and those of a router's advertisement.
    fn routes(&self, source: IpAddr) -> Vec<Route> {
        let Some((port, router)) = self.port else { return Vec::new() };
        let route = |destination, gateway| Route {
            destination,
            next_hop: gateway,
            link: self.interface().to_owned(),
            source: Some(source),
        };
        let all = (any(source), 0);
        match (port.macs, source) {
            (None, _) => vec![route(all, None)],
            (Some(macs), IpAddr::V6(_)) => vec![route(all, Some(link_local(macs.peer)))],
            (Some(_), IpAddr::V4(_)) => {
                let gateway = router.address(false);
                vec![route((gateway, host_prefix(gateway)), None), route(all, Some(gateway))]
            }
        }
    }

    fn add_flow(&mut self, world: &World, id: FlowId, options: &RealOptions) -> Result<(), RealError> {
        let flow = &world.config().flows[id.0 as usize];
        for (end, node, config) in [(End::From, flow.from, &flow.sender), (End::To, flow.to, &flow.receiver)] {
            let Some((listener, port)) = world.listener(id).filter(|_| node == self.node) else { continue };
            // The largest packet: segments of this size, with the headers of IP and TCP.
            self.mtu = self.mtu.max(u32::from(config.mss) + if flow.ipv6 { 60 } else { 40 });
            let mut entry = Listening { flow: id, end, port, ipv6: flow.ipv6, options: None };
            if let Traffic::OnOff(bursts) = flow.traffic {
                self.mtu = self.mtu.max(bursts.datagram.0.min(65_000) as u32 + 48);
                if end == End::To {
                    self.listening.push(entry);
                }
                continue;
            }
            let stack_error = |error| RealError::Stack { host: self.name.clone(), flow: flow.name.clone(), error };
            let stack = KernelStack::of(config, options.congestion).map_err(stack_error)?;
            stack::merge(&mut self.sysctls, &stack.sysctls).map_err(stack_error)?;
            self.connections += 1;
            if end == listener {
                entry.options = Some(stack.socket);
                self.listening.push(entry);
            } else {
                self.opening.insert(id, stack.socket);
            }
        }
        Ok(())
    }
}

/// The side of a host's link, and the router on the other side, if the link has a second layer. It must be the only link then.
fn port_of(config: &WorldConfig, node: NodeId, name: &str) -> Result<Option<(Port, NodeId)>, RealError> {
    let mut own = (0..).zip(&config.links).filter(|(_, link)| link.a == node || link.b == node);
    let (count, found) = (own.clone().count(), own.find(|(_, link)| link.layer2.kind != LinkKind::Wire));
    let Some((id, link)) = found else { return Ok(None) };
    let refused = |why| RealError::Layer2 { host: name.to_owned(), link: link.name.clone(), why };
    if count > 1 {
        return Err(refused("its host has other links"));
    }
    if config.addressing.iter().any(|host| host.node == node && host.identity.is_some()) {
        return Err(refused("its host has an identity"));
    }
    let router = if link.a == node { link.b } else { link.a };
    Ok(Some((Port::new(link.layer2.kind, LinkId(id), node, router), router)))
}

/// The addresses that a host has on one of its links.
pub(super) fn addresses_on(config: &WorldConfig, node: NodeId, link: LinkId) -> Vec<IpAddr> {
    let per_link = config
        .addressing
        .iter()
        .any(|host| host.node == node && host.addresses == Addresses::PerLink && host.identity.is_none());
    let own = (0..).zip(&config.links).filter(|(_, link)| link.a == node || link.b == node);
    let access = (0..).zip(own).find(|(_, (id, _))| LinkId(*id) == link).map_or(0, |(access, _)| access);
    let address = |ipv6| if per_link { node.locator(access, ipv6) } else { node.address(ipv6) };
    [false, true].map(address).to_vec()
}

/// A kernel's TCP cannot be steered as an endpoint mechanism requires.
fn check_mechanisms(config: &WorldConfig, node: NodeId, name: &str) -> Result<(), RealError> {
    let Some(host) = config.mechanisms.iter().find(|host| host.node == node) else { return Ok(()) };
    let of = &host.mechanisms;
    let endpoint = [
        ("user_timeout", of.user_timeout.is_some()),
        ("retransmission_trigger", of.retransmission_trigger.is_some()),
        ("fast_retransmit", of.fast_retransmit.is_some()),
        ("probe", of.probe.is_some()),
    ];
    match endpoint.into_iter().find(|(_, on)| *on) {
        Some((mechanism, _)) => Err(RealError::Mechanism { host: name.to_owned(), mechanism }),
        None => Ok(()),
    }
}

impl Host {
    /// Creates the namespace, the interface, the routes and the listening sockets, and starts the thread of its applications. Its reports
    /// go to `sender`, and `waker` is used when there are any.
    pub(super) fn start(
        plan: HostPlan,
        sender: Sender<(NodeId, Report)>,
        waker: Waker,
    ) -> Result<(Self, Interface), HostError> {
        let wake = Waker::new().map_err(|source| HostError::Call { call: "eventfd", source })?;
        let (commands, orders) = mpsc::channel();
        let (ready, is_ready) = mpsc::channel::<Result<_, HostError>>();
        let (inside, own_wake) = (plan.clone(), wake.clone());
        let thread = Namespace::spawn(&format!("host-{}", plan.node.0), move |namespace| {
            let set_up = || {
                let (tun, netlink) = set_up(namespace, &inside)?;
                let out = Outbox { node: inside.node, sender, waker };
                let applications = Applications::open(namespace, inside.listening, inside.opening, out)?;
                Ok((tun, netlink, applications, Counters::read(namespace)?))
            };
            match set_up() {
                Ok((tun, netlink, applications, before)) => {
                    // The starting thread waits for this message.
                    let _ = ready.send(Ok((tun, netlink)));
                    applications.serve(&orders, &own_wake);
                    Counters::read(namespace).ok().map(|after| after.since(&before))
                }
                Err(error) => {
                    let _ = ready.send(Err(error));
                    None
                }
            }
        })?;
        let namespace = thread.namespace().clone();
        let gone = |_| HostError::Call { call: "starting a host", source: io::ErrorKind::BrokenPipe.into() };
        let (tun, netlink) = is_ready.recv().map_err(gone)??;
        let sources = [None, None];
        let interface = Interface::new(plan.node, tun, plan.port.map(|(port, _)| port));
        Ok((Self { plan, namespace, netlink, sources, renewals: 0, commands, wake, thread: Some(thread) }, interface))
    }

    /// Makes `sources` (IPv4 and IPv6) the addresses that new connections of this host are bound to.
    pub(super) fn set_sources(&mut self, sources: [IpAddr; 2]) -> Result<(), HostError> {
        if self.plan.port.is_some() {
            return Ok(());
        }
        for (present, source) in self.sources.iter_mut().zip(sources) {
            if *present != Some(source) {
                self.netlink.replace_route(&default_route(source))?;
                *present = Some(source);
            }
        }
        Ok(())
    }

    /// Applies the start or end of an outage to its own side of the link, apart from the carrier.
    pub(super) fn follow_link(&mut self, outage: OutageKind, up: bool) -> Result<(), HostError> {
        if outage != OutageKind::HostDown {
            return Ok(());
        }
        let interface = self.plan.interface();
        if !up {
            return Ok(self.netlink.set_down(interface)?);
        }
        self.netlink.set_up(interface)?;
        self.regain_addresses(Families::Both, false).map(drop)
    }

    /// Removes the addresses of these families, and its routes.
    pub(super) fn lose_addresses(&mut self, families: Families) -> Result<(), HostError> {
        for &address in self.plan.addresses.iter().filter(|address| families.has(address.is_ipv6())) {
            if self.plan.configures_itself(address) {
                self.set_ipv6(false)?;
                continue;
            }
            for route in self.plan.routes(address).iter().rev() {
                self.netlink.remove_route(route)?;
            }
            self.netlink.remove_address(self.plan.interface(), address, host_prefix(address))?;
        }
        Ok(())
    }

    /// Enables IPv6 on its interface, so that the kernel configures it, or disables it, and with it all addresses and routes.
    fn set_ipv6(&self, is_enabled: bool) -> Result<(), HostError> {
        let parameter = format!("net.ipv6.conf.{}.disable_ipv6", self.plan.interface());
        let set = || sysctl::set(&self.namespace, &parameter, if is_enabled { "0" } else { "1" });
        Ok(self.namespace.enter(set)??)
    }

    /// Restores them, or sets others instead (`other`), or lets the kernel make them. Returns its current addresses.
    pub(super) fn regain_addresses(&mut self, families: Families, other: bool) -> Result<Vec<IpAddr>, HostError> {
        if other {
            self.renewals += 1;
        }
        let (node, renewals, mut regained) = (self.plan.node, self.renewals, Vec::new());
        for address in self.plan.addresses.iter_mut().filter(|address| families.has(address.is_ipv6())) {
            if other {
                *address = node.locator((renewals - 1) % NodeId::MAX_ACCESSES as u32, address.is_ipv6());
            }
            regained.push(*address);
        }
        for &address in &regained {
            if self.plan.configures_itself(address) {
                self.set_ipv6(true)?;
                continue;
            }
            self.netlink.ensure_address(self.plan.interface(), address, host_prefix(address))?;
            self.plan.routes(address).iter().try_for_each(|route| self.netlink.replace_route(route))?;
        }
        Ok(regained)
    }

    /// Its current address in place of the described one.
    pub(super) fn present_address(&self, described: IpAddr) -> IpAddr {
        let own = self.plan.addresses.iter().filter(|_| self.renewals > 0);
        own.copied().find(|address| address.is_ipv6() == described.is_ipv6()).unwrap_or(described)
    }

    /// Sends a command to the applications.
    pub(super) fn command(&self, command: Command) {
        // The thread ends before this does only after a failure that it has reported.
        let _ = self.commands.send(command);
        self.wake.wake();
    }

    /// Waits for the end of the thread, after the request to stop, and returns the kernel's counters of the run.
    pub(super) fn join(&mut self) -> Option<Counters> {
        self.thread.take().and_then(|thread| thread.join().ok().flatten())
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        if self.thread.is_some() {
            self.command(Command::Finish);
            self.join();
        }
    }
}

/// Configures the interface in the calling thread's namespace, its addresses and the kernel's parameters.
fn set_up(namespace: &Namespace, plan: &HostPlan) -> Result<(Tun, Netlink), HostError> {
    for (name, value) in &plan.sysctls {
        sysctl::set(namespace, name, value)?;
    }
    let mut config = TunConfig::new(plan.interface(), plan.mtu);
    config.offload = true;
    config.mac = plan.port.and_then(|(port, _)| port.macs).map(|macs| macs.own);
    for &address in &plan.addresses {
        config = config.address(address, if address.is_ipv4() { 32 } else { 128 });
    }
    let tun = Tun::open(namespace, &config)?;
    let mut netlink = Netlink::open(namespace)?;
    netlink.set_up("lo")?;
    for &source in plan.port.iter().flat_map(|_| &plan.addresses) {
        plan.routes(source).iter().try_for_each(|route| netlink.replace_route(route))?;
    }
    if plan.slaac {
        accept_advertisements(namespace, &mut netlink, plan)?;
    }
    Ok((tun, netlink))
}

/// From now on the kernel makes the IPv6 address, with the same last 64 bits, and the default route from advertisements. The first ones are
/// there already, as after an earlier advertisement.
fn accept_advertisements(namespace: &Namespace, netlink: &mut Netlink, plan: &HostPlan) -> Result<(), HostError> {
    let interface = plan.interface();
    for parameter in ["accept_ra", "autoconf", "accept_dad", "dad_transmits"] {
        sysctl::set(namespace, &format!("net.ipv6.conf.{interface}.{parameter}"), "1")?;
    }
    for &address in &plan.addresses {
        if let IpAddr::V6(address) = address {
            netlink.set_token(interface, address)?;
        }
    }
    Ok(())
}

fn default_route(source: IpAddr) -> Route {
    let any: IpAddr = if source.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    Route { destination: (any, 0), next_hop: None, link: INTERFACE.to_owned(), source: Some(source) }
}
