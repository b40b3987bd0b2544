//! A world of the simulator on real kernels: the same [`World`], on the wall clock, with some of its hosts' TCP and
//! applications in network namespaces.
//!
//! Links, queues, outages, traces, routers, cells, moving hosts, addresses and mechanisms are the world's own, so that they
//! behave as in the simulator by construction. Each *external* host is a namespace with one TUN interface; its applications
//! are kernel sockets. What happens is told to the same [`Observer`], and the world's report has the same fields.
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

mod agent;
mod applications;
mod host;
mod lateness;
mod observed;
mod stack;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::mpsc::{self, Receiver};

use bytes::BytesMut;
use holdover_base::{Duration, Instant};
use holdover_sim::{End, Ending, FlowId, NodeId, Observer, Order, Role, World, WorldConfig, WorldError};
use holdover_wire::{EmitError, Packet};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

pub use agent::{AgentThread, Heard, LinkEvents};
pub use host::{HostError, INTERFACE};
pub use lateness::Lateness;
pub use stack::{KernelStack, StackError};

use crate::offload::{Joiner, segments};
use crate::shell::{Precedence, TimerSlack, WallClock, timespec};
use crate::{Congestion, Counters, Namespace, TcpInfo, TunError, Waker};
use applications::{Command, Report};
use host::{Host, HostPlan};

/// What of a world is real, and how.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct RealOptions {
    /// Hosts that stay simulated although they have applications: a kernel then talks to the project's own TCP.
    pub simulated: BTreeSet<NodeId>,
    /// Hosts that get a kernel although they have no applications of the scenario.
    pub external: BTreeSet<NodeId>,
    /// Congestion control of the kernels' TCP, in place of the stacks' own.
    pub congestion: Option<Congestion>,
    /// Whether the run goes on until its time limit even if all flows are over: programs of a user's use its links.
    pub goes_on_without_flows: bool,
}

/// A world whose run is real.
#[derive(Debug)]
pub struct RealWorld {
    world: World,
    hosts: Vec<Host>,
    /// The host of each node.
    host_of: Vec<Option<usize>>,
    clock: WallClock,
    waker: Waker,
    reports: Receiver<(NodeId, Report)>,
    joiners: Vec<Joiner>,
    /// When the packet that each joiner began with was due.
    due: Vec<Instant>,
    buffer: BytesMut,
    lateness: Lateness,
    strays: u64,
}

/// What a run ended with.
#[derive(Clone, Debug)]
pub struct RealOutcome {
    /// How it ended; `None` if it was stopped.
    pub ending: Option<Ending>,
    /// From when packets were due at a kernel to when it had them.
    pub lateness: Lateness,
    /// What each kernel counted during the run, by the name of the host.
    pub counters: Vec<(String, Counters)>,
    /// Packets of kernels that were none of the scenario's: not between its hosts, or malformed.
    pub strays: u64,
}

/// A world could not be made real.
#[derive(Debug, thiserror::Error)]
pub enum RealError {
    /// Its description is not one of a world.
    #[error(transparent)]
    World(#[from] WorldError),
    /// None of its hosts would have a kernel.
    #[error("no host of this scenario would have a kernel")]
    NothingReal,
    /// A flow's stack is none of the kernel's.
    #[error("host {host}, flow {flow}: {error}; choose another stack, or leave the host to the simulator")]
    Stack {
        /// The host.
        host: String,
        /// The flow.
        flow: String,
        /// What is wrong with its stack.
        error: StackError,
    },
    /// A mechanism steers the TCP of its host, and a kernel's cannot be steered.
    #[error("host {host} has the mechanism {mechanism}, which needs a TCP of our own: leave the host to the simulator")]
    Mechanism {
        /// The host.
        host: String,
        /// The mechanism.
        mechanism: &'static str,
    },
    /// A host could not be made, or has ceased to work.
    #[error("host {host}")]
    Host {
        /// The host.
        host: String,
        /// Why.
        source: HostError,
    },
    /// A packet of the world cannot be written.
    #[error("a packet for host {host} cannot be written")]
    Emit {
        /// The host.
        host: String,
        /// Why.
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
/// The longest sleep, after which the watcher is asked again.
const LONGEST_SLEEP: Duration = Duration::from_millis(100);

impl RealWorld {
    /// Makes the namespaces. [`crate::Privilege::acquire`] must have succeeded.
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
        for plan in plans {
            world.set_external(plan.node);
            host_of[plan.node.0 as usize] = Some(hosts.len());
            let name = plan.name.clone();
            let host = Host::start(plan, sender.clone(), waker.clone());
            hosts.push(host.map_err(|source| RealError::Host { host: name, source })?);
        }
        let mut real = Self {
            joiners: hosts.iter().map(|_| Joiner::default()).collect(),
            due: vec![Instant::ZERO; hosts.len()],
            world,
            hosts,
            host_of,
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

    /// Whether `config` can be real with these options, without making anything.
    pub fn check(config: &WorldConfig, options: &RealOptions) -> Result<(), RealError> {
        plans(&World::new(config.clone())?, options).map(drop)
    }

    /// The world.
    pub fn world(&self) -> &World {
        &self.world
    }

    /// The namespace of a host that has a kernel.
    pub fn namespace(&self, node: NodeId) -> Option<&Namespace> {
        let host = self.host_of.get(node.0 as usize).copied().flatten()?;
        Some(&self.hosts[host].namespace)
    }

    /// Runs to the end, or until `watch` says `false`, which is asked several times a second.
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
            self.obey()?;
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
        self.obey()?;
        self.finish(ending, observer)
    }

    /// What kernels have sent enters the network. Returns whether there may be more.
    fn receive<O: Observer>(&mut self, now: Instant, observer: &mut O) -> Result<bool, RealError> {
        let mut is_busy = false;
        for host in &self.hosts {
            for turn in 1..=RECEIVE_BATCH {
                let received = match host.tun.recv_offloaded(&mut self.buffer) {
                    Err(TunError::Down { .. }) => Ok(None),
                    received => received,
                };
                let failed = |error: TunError| RealError::Host { host: host.plan.name.clone(), source: error.into() };
                let Some((offload, bytes)) = received.map_err(failed)? else { break };
                is_busy |= turn == RECEIVE_BATCH;
                match segments(offload, bytes) {
                    Ok(packets) => {
                        for packet in packets {
                            if is_of_the_world(&packet) {
                                self.world.handle_external(now, host.plan.node, packet, observer);
                            } else {
                                self.strays += 1;
                            }
                        }
                    }
                    Err(_) => self.strays += 1,
                }
            }
        }
        Ok(is_busy)
    }

    /// What applications have seen.
    fn hear<O: Observer>(&mut self, now: Instant, observer: &mut O) -> Result<(), RealError> {
        while let Ok((node, report)) = self.reports.try_recv() {
            match report {
                Report::Tidings(flow, end, tidings) => self.world.handle_tidings(now, flow, end, tidings, observer),
                Report::Sample(flow, info) => {
                    self.world.handle_sample(now, flow, observed::sample(&info), observer);
                }
                Report::Finished(_) => {}
                Report::Failed(source) => return Err(self.failed(node, source)),
            }
        }
        Ok(())
    }

    /// Does what the world says.
    fn obey(&mut self) -> Result<(), RealError> {
        while let Some(order) = self.world.poll_order() {
            let flow_node = |flow: FlowId, end: End| {
                let flow = &self.world.config().flows[flow.0 as usize];
                if end == End::From { flow.from } else { flow.to }
            };
            let (node, command) = match order {
                Order::Deliver { node, at, mut frame } => {
                    let nothing = Packet::new(frame.packet.src, frame.packet.dst, holdover_wire::Udp::default());
                    let packet = std::mem::replace(&mut frame.packet, nothing);
                    self.world.take_back(frame);
                    self.deliver(node, at, packet)?;
                    continue;
                }
                Order::Connect { flow, end, local, remote } => {
                    (flow_node(flow, end), Command::Connect { flow, end, local, remote })
                }
                Order::Write { flow, end, bytes, until } => (
                    flow_node(flow, end),
                    Command::Write { flow, end, bytes, until: until.map(|at| self.clock.wall(at)) },
                ),
                Order::Shutdown { flow, end } => (flow_node(flow, end), Command::Shutdown { flow, end }),
                Order::Datagram { flow, local, remote, len } => {
                    (flow_node(flow, End::From), Command::Datagram { flow, local, remote, len })
                }
                Order::Sample { flow } => (flow_node(flow, End::From), Command::Sample { flow }),
            };
            if let Some(host) = self.host_of[node.0 as usize] {
                self.hosts[host].command(command);
            }
        }
        for host in 0..self.hosts.len() {
            self.flush(host)?;
            if self.hosts[host].plan.per_link {
                self.follow_address(host)?;
            }
        }
        Ok(())
    }

    /// A packet for a kernel, joined with those before it if it continues them.
    fn deliver(&mut self, node: NodeId, at: Instant, packet: Packet) -> Result<(), RealError> {
        let Some(host) = self.host_of[node.0 as usize] else { return Ok(()) };
        let Some(packet) = self.join(host, at, packet) else { return Ok(()) };
        self.flush(host)?;
        self.join(host, at, packet);
        Ok(())
    }

    fn join(&mut self, host: usize, at: Instant, packet: Packet) -> Option<Packet> {
        if self.joiners[host].is_empty() {
            self.due[host] = at;
        }
        self.joiners[host].push(packet)
    }

    /// Hands a kernel what was joined for it.
    fn flush(&mut self, host: usize) -> Result<(), RealError> {
        let Host { tun, plan, .. } = &self.hosts[host];
        let joiner = &mut self.joiners[host];
        let emitted = joiner.joined();
        let Some(joined) = emitted.map_err(|source| RealError::Emit { host: plan.name.clone(), source })? else {
            return Ok(());
        };
        let sent = tun.send_offloaded(joined.offload, &joined.pieces);
        self.lateness.add(self.clock.now().saturating_since(self.due[host]));
        joiner.clear();
        match sent {
            // Whoever has a shell on the host may set its interface down.
            Ok(()) | Err(TunError::Down { .. }) => Ok(()),
            Err(error) => Err(RealError::Host { host: plan.name.clone(), source: error.into() }),
        }
    }

    /// Makes the address that a host's new connections are bound to the one of the link that it uses.
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
        fds.extend(self.hosts.iter().map(|host| PollFd::new(&host.tun, PollFlags::IN)));
        match poll(&mut fds, Some(&timespec(span))) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(RealError::Call { call: "ppoll", source: errno.into() }),
        }
        if fds[0].revents().contains(PollFlags::IN) {
            self.waker.rest();
        }
        Ok(())
    }

    /// Asks everybody what they have done.
    fn finish<O: Observer>(&mut self, ending: Option<Ending>, observer: &mut O) -> Result<RealOutcome, RealError> {
        for host in &self.hosts {
            host.command(Command::Finish);
        }
        let counted: Vec<Option<Counters>> = self.hosts.iter_mut().map(Host::join).collect();
        let mut told: BTreeMap<(FlowId, End), (NodeId, Box<TcpInfo>)> = BTreeMap::new();
        while let Ok((node, report)) = self.reports.try_recv() {
            match report {
                Report::Finished(infos) => {
                    told.extend(infos.into_iter().map(|(flow, end, info)| ((flow, end), (node, info))));
                }
                Report::Sample(flow, info) => {
                    let now = self.world.now();
                    self.world.handle_sample(now, flow, observed::sample(&info), observer);
                }
                _ => {}
            }
        }
        for ((flow, end), (node, info)) in told {
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
        RealError::Host { host: self.world.config().nodes[node.0 as usize].name.clone(), source }
    }
}

/// The external hosts: the ends of flows, and whatever else is asked for, in the order of their description.
fn plans(world: &World, options: &RealOptions) -> Result<Vec<HostPlan>, RealError> {
    let config = world.config();
    let mut nodes: BTreeSet<NodeId> = config.flows.iter().flat_map(|flow| [flow.from, flow.to]).collect();
    nodes.extend(&options.external);
    let is_host = |node: &NodeId| config.nodes.get(node.0 as usize).is_some_and(|node| node.role == Role::Host);
    nodes.retain(|node| is_host(node) && !options.simulated.contains(node));
    if nodes.is_empty() {
        return Err(RealError::NothingReal);
    }
    nodes.into_iter().map(|node| HostPlan::new(world, node, options)).collect()
}

/// Whether a packet is between nodes of the world: kernels also speak to neighbours and routers of their own.
fn is_of_the_world(packet: &Packet) -> bool {
    NodeId::of(packet.src).is_some() && NodeId::of(packet.dst).is_some()
}
