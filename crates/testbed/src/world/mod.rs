//! A world of the simulator on real kernels: the same [`World`], on the wall clock, with some of its hosts' TCP and
//! applications in network namespaces.
//!
//! Links, queues, outages, traces, routers, cells, moving hosts, addresses and mechanisms are those of the simulator, and behave the same
//! by construction. Each *external* host is a namespace with one interface; its applications are kernel sockets. The interface is a TUN
//! device, which does not show the state of the host's links, or, on an Ethernet link, a TAP device with carrier; then the router at the
//! other end is a namespace as well, and its kernel forwards. Events are reported to the same [`Observer`], and the world's report has the
//! same fields.
//!
//! ```no_run
//! use holdover_sim::{NoObserver, WorldConfig};
//! use holdover_testbed::Privilege;
//! use holdover_testbed::world::{RealOptions, RealWorld};
//!
//! fn run(config: WorldConfig) -> Result<(), Box<dyn std::error::Error>> {
//!     Privilege::acquire()?;
//!     let mut world = RealWorld::new(config, &RealOptions::default())?;
//!     let outcome = world.run(&mut NoObserver, |_world| true)?;
//!     println!("{:?}, 99 % of packets not later than {}", outcome.ending, outcome.lateness.quantile(0.99));
//!     Ok(())
//! }
//! ```

mod addresses;
mod agent;
mod applications;
mod host;
mod host_error;
mod interface;
mod lateness;
mod observed;
mod router;
mod stack;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::mpsc::{self, Receiver};

use bytes::BytesMut;
use holdover_base::{Duration, Instant};
use holdover_sim::{
    AddressLoss, End, Ending, FlowId, Frame, Layer2, LinkId, NodeId, Observer, OutageKind, Role, ShellCommand, World,
    WorldConfig, WorldError,
};
use holdover_wire::EmitError;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

pub use agent::{AgentThread, Heard, LinkEvents};
pub use host::{ETHERNET_INTERFACE, INTERFACE, MODEM_INTERFACE};
pub use host_error::HostError;
pub use lateness::Lateness;
pub use stack::{KernelStack, StackError};

use crate::shell::{Precedence, TimerSlack, timespec};
use crate::{Congestion, Counters, Namespace, TcpInfo, Waker, WallClock};
use agent::AgentPort;
use applications::{Command, Report};
use host::{Host, HostPlan};
use interface::{Interface, Received, Refused};
use router::{Router, RouterPlan};

/// The parts of a world that are real.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct RealOptions {
    /// Hosts that stay simulated although they have applications: a kernel then communicates with the project's own
    /// TCP.
    pub simulated: BTreeSet<NodeId>,
    /// Hosts with a kernel although they have no applications in the scenario.
    pub external: BTreeSet<NodeId>,
    /// Congestion control of the kernels' TCP, instead of the stacks' own.
    pub congestion: Option<Congestion>,
    /// Whether the run continues until its time limit even after the end of all flows, for other programs that use its
    /// links.
    pub goes_on_without_flows: bool,
}

/// A world with real kernels.
#[derive(Debug)]
pub struct RealWorld {
    world: World,
    hosts: Vec<Host>,
    /// The host of each node.
    host_of: Vec<Option<usize>>,
    routers: Vec<Router>,
    interfaces: Vec<Interface>,
    /// The interfaces of each node.
    interfaces_of: Vec<Vec<usize>>,
    agents: Vec<AgentPort>,
    clock: WallClock,
    waker: Waker,
    reports: Receiver<(NodeId, Report)>,
    buffer: BytesMut,
    lateness: Lateness,
    strays: u64,
}

/// The result of a run.
#[derive(Clone, Debug)]
pub struct RealOutcome {
    /// How it ended; `None` if it was stopped.
    pub ending: Option<Ending>,
    /// The times from when packets were due at a kernel until it had them.
    pub lateness: Lateness,
    /// Each kernel's counters of the run, by the name of the host.
    pub counters: Vec<(String, Counters)>,
    /// Packets of kernels that do not belong to the scenario: not between its hosts, or malformed.
    pub strays: u64,
}

/// A world cannot be run on real kernels.
#[derive(Debug, thiserror::Error)]
pub enum RealError {
    /// Its description is invalid.
    #[error(transparent)]
    World(#[from] WorldError),
    /// None of its hosts would have a kernel.
    #[error("no host of this scenario would have a kernel")]
    NothingReal,
    /// No kernel has a flow's stack.
    #[error("host {host}, flow {flow}: {error}; choose another stack, or leave the host to the simulator")]
    Stack {
        /// The host.
        host: String,
        /// The flow.
        flow: String,
        /// The reason.
        error: StackError,
    },
    /// A mechanism steers the TCP of its host, which is impossible with a kernel.
    #[error("host {host} has the mechanism {mechanism}, which needs a TCP of our own: leave the host to the simulator")]
    Mechanism {
        /// The host.
        host: String,
        /// The mechanism.
        mechanism: &'static str,
    },
    /// A router with a kernel has mechanisms.
    #[error(
        "router {router} has mechanisms and would have a kernel, which has none: leave the host at its Ethernet or modem to the simulator"
    )]
    RouterMechanisms {
        /// The router.
        router: String,
    },
    /// A link with a second layer that kernels cannot have as described.
    #[error("link {link} of host {host} cannot be of Ethernet on a real kernel: {why}")]
    Layer2 {
        /// The host.
        host: String,
        /// The link.
        link: String,
        /// The reason.
        why: &'static str,
    },
    /// A link has an MTU, which the interfaces of kernels do not get.
    #[error("link {link} has an MTU, which only the simulator has")]
    Mtu {
        /// The link.
        link: String,
    },
    /// A host or router could not be created, or has failed.
    #[error("host {host}")]
    Host {
        /// The host.
        host: String,
        /// The reason.
        source: HostError,
    },
    /// A packet of the world cannot be emitted.
    #[error("a packet for host {host} cannot be written")]
    Emit {
        /// The host.
        host: String,
        /// The reason.
        source: EmitError,
    },
    /// A system call of the loop itself failed.
    #[error("{call} failed")]
    Call {
        /// The call.
        call: &'static str,
        /// The kernel's reason.
        source: std::io::Error,
    },
}

/// Packets taken from one interface in a round, so that deadlines are not starved.
const RECEIVE_BATCH: usize = 32;
/// The longest sleep, after which the watcher is called again.
const LONGEST_SLEEP: Duration = Duration::from_millis(100);

impl RealWorld {
    /// Creates the namespaces. [`crate::Privilege::acquire`] must have succeeded.
    pub fn new(config: WorldConfig, options: &RealOptions) -> Result<Self, RealError> {
        let mut world = World::new(config)?;
        if options.goes_on_without_flows {
            world.go_on_without_flows();
        }
        let plans = plans(&world, options)?;
        let failed = |source| RealError::Call { call: "eventfd", source };
        let waker = Waker::new().map_err(failed)?;
        let (sender, reports) = mpsc::channel();
        let mut host_of = vec![None; world.config().nodes.len()];
        let mut hosts = Vec::with_capacity(plans.len());
        let (mut routers, mut interfaces) = (Vec::new(), Vec::new());
        for plan in router_plans(world.config(), &plans)? {
            world.set_external_router(plan.node);
            let name = plan.name.clone();
            let (router, ports) = Router::start(plan).map_err(|source| RealError::Host { host: name, source })?;
            routers.push(router);
            interfaces.extend(ports);
        }
        for plan in plans {
            world.set_external(plan.node);
            if let Some((port, _)) = plan.port {
                world.attach_link(port.link);
            }
            host_of[plan.node.0 as usize] = Some(hosts.len());
            let name = plan.name.clone();
            let host = Host::start(plan, sender.clone(), waker.clone());
            let (host, interface) = host.map_err(|source| RealError::Host { host: name, source })?;
            hosts.push(host);
            interfaces.push(interface);
        }
        let mut interfaces_of = vec![Vec::new(); world.config().nodes.len()];
        for (index, interface) in interfaces.iter().enumerate() {
            interfaces_of[interface.node.0 as usize].push(index);
        }
        let mut real = Self {
            world,
            hosts,
            host_of,
            routers,
            interfaces,
            interfaces_of,
            agents: Vec::new(),
            clock: WallClock::start(),
            waker,
            reports,
            buffer: BytesMut::new(),
            lateness: Lateness::default(),
            strays: 0,
        };
        (0..real.hosts.len()).try_for_each(|host| real.follow_address(host))?;
        Ok(real)
    }

    /// Checks whether `config` can be run on kernels with these options; creates nothing.
    pub fn check(config: &WorldConfig, options: &RealOptions) -> Result<(), RealError> {
        let world = World::new(config.clone())?;
        router_plans(world.config(), &plans(&world, options)?).map(drop)
    }

    /// The world.
    pub fn world(&self) -> &World {
        &self.world
    }

    /// The namespace of a host or router with a kernel.
    pub fn namespace(&self, node: NodeId) -> Option<&Namespace> {
        match self.host_of.get(node.0 as usize).copied().flatten() {
            Some(host) => Some(&self.hosts[host].namespace),
            None => self.routers.iter().find(|router| router.plan.node == node).map(|router| &router.namespace),
        }
    }

    /// The name of the interface of a host with a kernel: [`ETHERNET_INTERFACE`], [`MODEM_INTERFACE`] or [`INTERFACE`].
    pub fn interface(&self, node: NodeId) -> Option<&'static str> {
        let host = self.host_of.get(node.0 as usize).copied().flatten()?;
        Some(self.hosts[host].plan.interface())
    }

    /// The name of the interface of a router that has a kernel, at a link of Ethernet or of a modem.
    pub fn router_interface(&self, node: NodeId, link: LinkId) -> Option<&str> {
        self.routers.iter().find(|router| router.plan.node == node)?.plan.interface(link)
    }

    /// The clock of the run, restarted with it; observers' instants are on it.
    pub fn clock(&self) -> WallClock {
        self.clock
    }

    /// Runs to the end, or until `watch` returns `false`; it is called several times a second.
    pub fn run<O: Observer>(
        &mut self,
        observer: &mut O,
        mut watch: impl FnMut(&World) -> bool,
    ) -> Result<RealOutcome, RealError> {
        let (_slack, _precedence) = (TimerSlack::least(), Precedence::take());
        self.clock = WallClock::start();
        let mut asked_at = Instant::ZERO;
        let ending = loop {
            let now = self.clock.now();
            if let Some(ending) = self.world.run_to(now, observer) {
                break Some(ending);
            }
            let is_busy = self.receive(now, observer)?;
            self.hear(now, observer)?;
            self.apply()?;
            if now.saturating_since(asked_at) >= LONGEST_SLEEP {
                asked_at = now;
                if !watch(&self.world) {
                    break None;
                }
            }
            if !is_busy {
                self.sleep()?;
            }
        };
        self.apply()?;
        self.finish(ending, observer)
    }

    /// Passes packets of kernels into the network. Returns whether there may be more.
    fn receive<O: Observer>(&mut self, now: Instant, observer: &mut O) -> Result<bool, RealError> {
        let mut is_busy = false;
        for interface in &self.interfaces {
            let node = interface.node;
            for turn in 1..=RECEIVE_BATCH {
                let received = interface.receive(&mut self.buffer);
                let Some(received) = received.map_err(|error| failed(&self.world, node, error.into()))? else { break };
                is_busy |= turn == RECEIVE_BATCH;
                match (received, interface.port) {
                    (Received::Packets(header, packets), port) => {
                        let on = port.map(|port| (port.link, header));
                        for packet in packets {
                            self.world.handle_interface(now, node, on, packet, observer);
                        }
                    }
                    (Received::Raw(header, payload), Some(port)) => {
                        self.world.handle_raw(now, node, port.link, header, payload, observer);
                    }
                    (Received::Raw(..) | Received::Stray, _) => self.strays += 1,
                }
            }
        }
        Ok(is_busy)
    }

    /// Handles the reports of applications.
    fn hear<O: Observer>(&mut self, now: Instant, observer: &mut O) -> Result<(), RealError> {
        while let Ok((node, report)) = self.reports.try_recv() {
            match report {
                Report::SocketEvent(flow, end, event) => {
                    self.world.handle_socket_event(now, flow, end, event, observer)
                }
                Report::Sample(flow, info) => {
                    self.world.handle_sample(now, flow, observed::sample(&info), observer);
                }
                Report::Finished(_) => {}
                Report::Failed(source) => return Err(self.failed(node, source)),
            }
        }
        Ok(())
    }

    /// Executes the world's commands.
    fn apply(&mut self) -> Result<(), RealError> {
        while let Some(command) = self.world.poll_shell_command() {
            let flow_node = |flow: FlowId, end: End| {
                let flow = &self.world.config().flows[flow.0 as usize];
                if end == End::From { flow.from } else { flow.to }
            };
            let (node, command) = match command {
                ShellCommand::Deliver { node, at, mut frame } => {
                    self.deliver(node, at, &mut frame)?;
                    self.world.take_back(frame);
                    continue;
                }
                ShellCommand::Link { link, up } => {
                    self.follow_link(link, up)?;
                    continue;
                }
                ShellCommand::Addresses { link, present } => {
                    self.follow_addresses(link, present)?;
                    continue;
                }
                ShellCommand::Connect { flow, end, local, mut remote } => {
                    let (local, to) = (self.present_address(local), self.present_address(remote.ip()));
                    remote.set_ip(to);
                    (flow_node(flow, end), Command::Connect { flow, end, local, remote })
                }
                ShellCommand::Write { flow, end, bytes, until } => (
                    flow_node(flow, end),
                    Command::Write { flow, end, bytes, until: until.map(|at| self.clock.wall(at)) },
                ),
                ShellCommand::Shutdown { flow, end } => (flow_node(flow, end), Command::Shutdown { flow, end }),
                ShellCommand::Datagram { flow, local, remote, len } => {
                    (flow_node(flow, End::From), Command::Datagram { flow, local, remote, len })
                }
                ShellCommand::Sample { flow } => (flow_node(flow, End::From), Command::Sample { flow }),
            };
            if let Some(host) = self.host_of[node.0 as usize] {
                self.hosts[host].command(command);
            }
        }
        (0..self.interfaces.len()).try_for_each(|interface| self.flush(interface))?;
        for host in 0..self.hosts.len() {
            if self.hosts[host].plan.per_link {
                self.follow_address(host)?;
            }
        }
        self.agents.iter().for_each(AgentPort::tell);
        Ok(())
    }

    /// Passes a packet or another frame to a kernel.
    fn deliver(&mut self, node: NodeId, at: Instant, frame: &mut Frame) -> Result<(), RealError> {
        let link = frame.link;
        let of_node = &self.interfaces_of[node.0 as usize];
        let is_it = |&index: &usize| self.interfaces[index].port.map(|port| port.link) == link;
        let Some(index) = of_node.iter().copied().find(is_it) else { return Ok(()) };
        let delivered = self.interfaces[index].deliver(at, frame);
        delivered.map_err(|error| self.refused(node, error))
    }

    /// Passes merged packets to a kernel.
    fn flush(&mut self, interface: usize) -> Result<(), RealError> {
        let flushed = self.interfaces[interface].flush(Some(&self.clock));
        let late = flushed.map_err(|error| self.refused(self.interfaces[interface].node, error))?;
        late.into_iter().for_each(|late| self.lateness.add(late));
        Ok(())
    }

    /// The host of a link loses its addresses there, or gets them back.
    fn follow_addresses(&mut self, link: LinkId, present: bool) -> Result<(), RealError> {
        let Layer2 { families, addresses, .. } = self.world.config().links[link.0 as usize].layer2;
        let Some(host) = self.hosts.iter_mut().find(|host| host.plan.is_on(link)) else { return Ok(()) };
        let node = host.plan.node;
        let regained = if present {
            let other = matches!(addresses, AddressLoss::Lost { other: true, .. });
            host.regain_addresses(families, other)
        } else {
            host.lose_addresses(families).map(|()| Vec::new())
        };
        for address in regained.map_err(|source| failed(&self.world, node, source))? {
            for router in &mut self.routers {
                router.reach(link, address).map_err(|source| failed(&self.world, router.plan.node, source))?;
            }
        }
        Ok(())
    }

    /// A host's current address in place of the described one.
    fn present_address(&self, described: IpAddr) -> IpAddr {
        let host = NodeId::of(described).and_then(|node| self.host_of.get(node.0 as usize).copied().flatten());
        host.map_or(described, |host| self.hosts[host].present_address(described))
    }

    /// An Ethernet link went down or came back: its interfaces show it as in the link's description.
    fn follow_link(&mut self, link: LinkId, up: bool) -> Result<(), RealError> {
        let outage = self.world.config().links[link.0 as usize].layer2.outage;
        for host in self.hosts.iter_mut().filter(|host| host.plan.is_on(link)) {
            let node = host.plan.node;
            host.follow_link(outage, up).map_err(|source| failed(&self.world, node, source))?;
        }
        for router in &mut self.routers {
            let node = router.plan.node;
            router.follow_link(link, outage, up).map_err(|source| failed(&self.world, node, source))?;
        }
        for index in 0..self.interfaces.len() {
            let node = self.interfaces[index].node;
            if self.interfaces[index].port.is_none_or(|port| port.link != link) {
                continue;
            }
            self.flush(index)?;
            let is_host = self.host_of[node.0 as usize].is_some();
            if is_host && outage == OutageKind::HostDown {
                self.interfaces[index].set_present(up);
            } else if if is_host { outage.is_seen_by_host() } else { outage.is_seen_by_router() } {
                let changed = self.interfaces[index].set_carrier(up);
                changed.map_err(|error| failed(&self.world, node, error.into()))?;
            }
        }
        Ok(())
    }

    /// Binds a host's new connections to the address of the link in use.
    fn follow_address(&mut self, host: usize) -> Result<(), RealError> {
        let node = self.hosts[host].plan.node;
        let sources: [IpAddr; 2] = [false, true].map(|ipv6| self.world.address_in_use(node, ipv6));
        self.hosts[host].set_sources(sources).map_err(|source| self.failed(node, source))
    }

    fn sleep(&self) -> Result<(), RealError> {
        let now = self.clock.now();
        let longest = now + LONGEST_SLEEP;
        let until = self.world.next_deadline().map_or(longest, |at| at.min(longest));
        let span = until.saturating_since(now);
        if span.is_zero() {
            return Ok(());
        }
        let mut fds = vec![PollFd::new(&self.waker, PollFlags::IN)];
        fds.extend(self.interfaces.iter().map(|interface| PollFd::new(&interface.tun, PollFlags::IN)));
        match poll(&mut fds, Some(&timespec(span))) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(RealError::Call { call: "ppoll", source: errno.into() }),
        }
        if fds[0].revents().contains(PollFlags::IN) {
            self.waker.rest();
        }
        Ok(())
    }

    /// Collects the final reports of all hosts.
    fn finish<O: Observer>(&mut self, ending: Option<Ending>, observer: &mut O) -> Result<RealOutcome, RealError> {
        for host in &self.hosts {
            host.command(Command::Finish);
        }
        let counted: Vec<Option<Counters>> = self.hosts.iter_mut().map(Host::join).collect();
        let mut sampled: BTreeMap<(FlowId, End), (NodeId, Box<TcpInfo>)> = BTreeMap::new();
        while let Ok((node, report)) = self.reports.try_recv() {
            match report {
                Report::Finished(infos) => {
                    sampled.extend(infos.into_iter().map(|(flow, end, info)| ((flow, end), (node, info))));
                }
                Report::Sample(flow, info) => {
                    let now = self.world.now();
                    self.world.handle_sample(now, flow, observed::sample(&info), observer);
                }
                _ => {}
            }
        }
        for ((flow, end), (node, info)) in sampled {
            let host = self.host_of[node.0 as usize];
            let only = host.filter(|&host| self.hosts[host].plan.connections == 1);
            let report = observed::report(&info, only.and_then(|host| counted[host].as_ref()));
            self.world.set_connection_report(flow, end, report);
        }
        let names = self.hosts.iter().map(|host| host.plan.name.clone());
        Ok(RealOutcome {
            ending,
            lateness: std::mem::take(&mut self.lateness),
            counters: names.zip(counted).filter_map(|(name, counted)| Some((name, counted?))).collect(),
            strays: self.strays,
        })
    }

    fn failed(&self, node: NodeId, source: HostError) -> RealError {
        failed(&self.world, node, source)
    }

    fn refused(&self, node: NodeId, refused: Refused) -> RealError {
        match refused {
            Refused::Tun(error) => self.failed(node, error.into()),
            Refused::Emit(source) => RealError::Emit { host: name_of(&self.world, node), source },
        }
    }
}

fn failed(world: &World, node: NodeId, source: HostError) -> RealError {
    RealError::Host { host: name_of(world, node), source }
}

fn name_of(world: &World, node: NodeId) -> String {
    world.config().nodes[node.0 as usize].name.clone()
}

/// The external hosts: the ends of flows, and other requested ones, in the order of their description.
fn plans(world: &World, options: &RealOptions) -> Result<Vec<HostPlan>, RealError> {
    let config = world.config();
    let mut nodes: BTreeSet<NodeId> = config.flows.iter().flat_map(|flow| [flow.from, flow.to]).collect();
    nodes.extend(&options.external);
    let is_host = |node: &NodeId| config.nodes.get(node.0 as usize).is_some_and(|node| node.role == Role::Host);
    nodes.retain(|node| is_host(node) && !options.simulated.contains(node));
    if nodes.is_empty() {
        return Err(RealError::NothingReal);
    }
    if let Some(link) = config.links.iter().find(|link| link.mtu.is_some()) {
        return Err(RealError::Mtu { link: link.name.clone() });
    }
    nodes.into_iter().map(|node| HostPlan::new(world, node, options)).collect()
}

/// The external routers: those with an Ethernet link to an external host.
fn router_plans(config: &WorldConfig, hosts: &[HostPlan]) -> Result<Vec<RouterPlan>, RealError> {
    let mut links: BTreeMap<NodeId, Vec<(LinkId, NodeId)>> = BTreeMap::new();
    for host in hosts {
        if let Some((port, router)) = host.port {
            links.entry(router).or_default().push((port.link, host.node));
        }
    }
    if let Some(gateway) = config.gateways.iter().find(|gateway| links.contains_key(&gateway.node)) {
        let router = config.nodes[gateway.node.0 as usize].name.clone();
        return Err(RealError::RouterMechanisms { router });
    }
    let mtu = hosts.iter().map(|host| host.mtu).max().unwrap_or(0);
    Ok(links.into_iter().map(|(router, links)| RouterPlan::new(config, router, &links, mtu)).collect())
}
