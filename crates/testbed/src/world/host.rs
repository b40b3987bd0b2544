//! One external host: a namespace with a TUN interface, and a thread for its applications.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::mpsc::{self, Sender};

use holdover_sim::{Addresses, End, FlowId, NodeId, Traffic, World, WorldConfig};

use super::applications::{Applications, Command, Listening, Outbox, Report};
use super::stack::{self, KernelStack};
use super::{RealError, RealOptions};
use crate::{
    Counters, CountersError, Namespace, NamespaceError, NamespaceThread, Netlink, NetlinkError, Route, SocketError,
    SocketOptions, SysctlError, Tun, TunConfig, TunError, Waker, sysctl,
};

/// The name of the one interface of an external host, beside the loopback.
pub const INTERFACE: &str = "tun0";

/// A host could not be made, or has ceased to work.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// Its namespace.
    #[error(transparent)]
    Namespace(#[from] NamespaceError),
    /// Its interface.
    #[error(transparent)]
    Tun(#[from] TunError),
    /// Its addresses and routes.
    #[error(transparent)]
    Netlink(#[from] NetlinkError),
    /// A parameter of its kernel.
    #[error(transparent)]
    Sysctl(#[from] SysctlError),
    /// What its kernel counts.
    #[error(transparent)]
    Counters(#[from] CountersError),
    /// A socket of its applications.
    #[error(transparent)]
    Socket(#[from] SocketError),
    /// A system call failed.
    #[error("{call} failed")]
    Call {
        /// The call.
        call: &'static str,
        /// The kernel's reason.
        source: io::Error,
    },
}

/// How an external host is to be, found out from the world's description before anything is made.
#[derive(Clone, Debug)]
pub(super) struct HostPlan {
    pub(super) node: NodeId,
    pub(super) name: String,
    addresses: Vec<IpAddr>,
    /// Whether the address that it uses can change.
    pub(super) per_link: bool,
    mtu: u32,
    sysctls: BTreeMap<&'static str, String>,
    listening: Vec<Listening>,
    opening: BTreeMap<FlowId, SocketOptions>,
    /// Ends of flows of TCP on this host.
    pub(super) connections: usize,
}

/// An external host at work.
#[derive(Debug)]
pub(super) struct Host {
    pub(super) plan: HostPlan,
    pub(super) namespace: Namespace,
    pub(super) tun: Tun,
    netlink: Netlink,
    /// The source addresses that the routes name, IPv4 and IPv6.
    sources: [Option<IpAddr>; 2],
    commands: Sender<Command>,
    wake: Waker,
    thread: Option<NamespaceThread<Option<Counters>>>,
}

impl HostPlan {
    /// What `node` needs for the flows of `world`.
    pub(super) fn new(world: &World, node: NodeId, options: &RealOptions) -> Result<Self, RealError> {
        let config = world.config();
        let name = config.nodes[node.0 as usize].name.clone();
        check_mechanisms(config, node, &name)?;
        let addressing = config.addressing.iter().find(|host| host.node == node);
        let per_link = addressing.is_some_and(|host| host.addresses == Addresses::PerLink && host.identity.is_none());
        let links = config.links.iter().filter(|link| link.a == node || link.b == node).count() as u32;
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
            // Whatever is run on this host: not with the machine's own settings.
            plan.sysctls = stack::linux();
        }
        Ok(plan)
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

/// A kernel's TCP cannot be steered from outside as an endpoint mechanism does it.
fn check_mechanisms(config: &WorldConfig, node: NodeId, name: &str) -> Result<(), RealError> {
    let Some(host) = config.mechanisms.iter().find(|host| host.node == node) else { return Ok(()) };
    let of = &host.mechanisms;
    let endpoint = [
        ("user_timeout", of.user_timeout.is_some()),
        ("retransmission_trigger", of.retransmission_trigger.is_some()),
        ("fast_retransmit", of.fast_retransmit.is_some()),
    ];
    match endpoint.into_iter().find(|(_, on)| *on) {
        Some((mechanism, _)) => Err(RealError::Mechanism { host: name.to_owned(), mechanism }),
        None => Ok(()),
    }
}

impl Host {
    /// Makes the namespace, the interface, the routes and the listening sockets, and starts the thread of its applications.
    /// Reports of them go to `sender`, and `waker` is used when there are any.
    pub(super) fn start(plan: HostPlan, sender: Sender<(NodeId, Report)>, waker: Waker) -> Result<Self, HostError> {
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
                    // Whoever has started this thread waits for it.
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
        Ok(Self { plan, namespace, tun, netlink, sources, commands, wake, thread: Some(thread) })
    }

    /// Makes `sources` (IPv4 and IPv6) the addresses that new connections of this host are bound to.
    pub(super) fn set_sources(&mut self, sources: [IpAddr; 2]) -> Result<(), HostError> {
        for (present, source) in self.sources.iter_mut().zip(sources) {
            if *present != Some(source) {
                self.netlink.replace_route(&default_route(source))?;
                *present = Some(source);
            }
        }
        Ok(())
    }

    /// Has the applications do something.
    pub(super) fn command(&self, command: Command) {
        // The thread ends before this does only after a failure that it has reported.
        let _ = self.commands.send(command);
        self.wake.wake();
    }

    /// Waits for the end of the thread, which has been told of it, and returns what its kernel has counted in the meantime.
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

/// The interface of the calling thread's namespace, with addresses and the kernel's parameters.
fn set_up(namespace: &Namespace, plan: &HostPlan) -> Result<(Tun, Netlink), HostError> {
    for (name, value) in &plan.sysctls {
        sysctl::set(namespace, name, value)?;
    }
    let mut config = TunConfig::new(INTERFACE, plan.mtu);
    config.offload = true;
    for &address in &plan.addresses {
        config = config.address(address, if address.is_ipv4() { 32 } else { 128 });
    }
    let tun = Tun::open(namespace, &config)?;
    let mut netlink = Netlink::open(namespace)?;
    netlink.set_up("lo")?;
    Ok((tun, netlink))
}

fn default_route(source: IpAddr) -> Route {
    let any: IpAddr = if source.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    Route { destination: (any, 0), gateway: None, link: INTERFACE.to_owned(), source: Some(source) }
}
