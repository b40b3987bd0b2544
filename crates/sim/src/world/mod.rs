//! The run: one event after another, in the order defined by the crate's documentation.

mod addresses;
mod cpus;
mod external;
mod flows;
mod fork;
mod gateways;
mod hosts;
#[cfg(feature = "identity")]
mod identity;
mod latencies;
mod media;
#[cfg(not(feature = "identity"))]
mod no_identity;
mod registration;
mod report;
mod roam;

use std::collections::VecDeque;

use holdover_base::{Duration, Instant};
use holdover_mobility::Chain;
use holdover_mobility::mobile_ip::HomeAgent;

pub use report::Holdings;

use crate::check;
use crate::config::{Role, WorldConfig};
use crate::cpu::Cpu;
use crate::error::WorldError;
use crate::external::ShellCommand;
use crate::flow::{End, Flow};
use crate::forewarning::Forewarning;
use crate::gateway::Gateway;
use crate::host::Host;
use crate::ids::{FlowId, NodeId};
use crate::latency::Latency;
use crate::link_mtu::OwnMtus;
use crate::mobility::Mobile;
use crate::network::Network;
use crate::observer::{NoObserver, Observer};

/// How a run ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ending {
    /// Every flow with an end has completed or failed.
    AllDone,
    /// The time limit came first.
    TimeLimit,
    /// No event was left.
    Idle,
}

/// A world in progress. See the [crate](crate).
#[derive(Debug)]
pub struct World {
    now: Instant,
    config: WorldConfig,
    network: Network,
    hosts: Vec<Host>,
    /// The host of each node.
    host_of: Vec<Option<u32>>,
    mobiles: Vec<Mobile>,
    /// Gateways that mobile hosts register with.
    home_agents: Vec<(NodeId, HomeAgent)>,
    /// Routers with mechanisms.
    gateways: Vec<Gateway>,
    /// Routers whose processors take time.
    cpus: Vec<Cpu>,
    /// Hosts that take time to receive packets.
    latencies: Vec<Latency>,
    flows: Vec<Flow>,
    unfinished: usize,
    /// No flow has an end, so only the time limit ends the run.
    endless: bool,
    next_sample: Option<Instant>,
    events: u64,
    /// Orders for the shell of external hosts.
    shell_commands: VecDeque<ShellCommand>,
    has_external: bool,
    /// External routers.
    external_routers: Vec<NodeId>,
}

impl World {
    /// Checks whether `config` describes a world. It takes less time than [`Self::new`]: hosts make no keys and no associations.
    ///
    /// # Errors
    ///
    /// Those of [`Self::new`].
    pub fn check(config: &WorldConfig) -> Result<(), WorldError> {
        check::network_of(config).map(drop)
    }

    /// The world described by `config`.
    pub fn new(config: WorldConfig) -> Result<Self, WorldError> {
        check::describes_a_world(&config)?;
        let mut hosts = Vec::new();
        let mut host_of = vec![None; config.nodes.len()];
        let addresses = addresses::addresses(&config);
        for ((index, node), addresses) in config.nodes.iter().enumerate().zip(&addresses) {
            if node.role == Role::Host {
                host_of[index] = Some(hosts.len() as u32);
                hosts.push(Host::new(NodeId(index as u32), &node.name, addresses.clone(), config.seed));
            }
        }
        let network = Network::new(&config, hosts.len())?;
        for host in &mut hosts {
            host.link = network.first_link_up(host.node);
        }
        let mut mobiles = Vec::with_capacity(config.mobiles.len());
        for mobile in &config.mobiles {
            let name = &config.nodes[mobile.node.index()].name;
            mobiles.push(Mobile::new(mobile, name, config.cells.len(), config.seed));
        }
        check::all_is_within_reach(&config, &network)?;
        let mtus = OwnMtus::of(&config);
        let flows: Vec<Flow> = (0..)
            .zip(&config.flows)
            .map(|(id, flow)| Flow::new(FlowId(id), &mtus.bound_flow(flow), config.seed))
            .collect();
        let gateway = |gateway| Gateway::new(&mtus.bound_gateway(gateway), &config, &addresses);
        let gateways = config.gateways.iter().map(gateway).collect();
        let unfinished = flows.iter().filter(|flow| flow.is_finite()).count();
        let mut world = Self {
            home_agents: registration::home_agents(&config),
            now: Instant::ZERO,
            next_sample: config.sample_every.map(|_| Instant::ZERO),
            network,
            hosts,
            host_of,
            mobiles,
            gateways,
            cpus: config.cpus.iter().map(|cpu| Cpu::new(*cpu)).collect(),
            latencies: latencies::all(&config),
            endless: unfinished == 0,
            flows,
            unfinished,
            events: 0,
            shell_commands: VecDeque::new(),
            has_external: false,
            external_routers: Vec::new(),
            config,
        };
        world.equip_hosts();
        world.give_identities();
        world.place_mobiles();
        world.lay_paths();
        world.schedule_everything();
        Ok(world)
    }

    /// Edits the chain of mechanisms of a host, or of a router that is in [`WorldConfig::gateways`], before the run begins. Returns whether
    /// the node exists.
    #[must_use = "a node that has no chain is left as it is"]
    pub fn edit_chain(&mut self, node: NodeId, edit: impl FnOnce(&mut Chain)) -> bool {
        if let Some(index) = self.gateway_index(node) {
            let chain = &mut self.gateways[index].chain;
            edit(chain);
            self.network.schedule.set(self.network.sources.gateways + index, chain.poll_timeout());
            return true;
        }
        let Some(host) = self.host_index(node) else { return false };
        edit(self.hosts[host].chain.get_or_insert_default());
        self.reschedule_host(host);
        true
    }

    /// Continues the run until its time limit even after the end of all flows, for other users of its links.
    pub fn go_on_without_flows(&mut self) {
        self.endless = true;
    }

    /// The current time of the run.
    pub fn now(&self) -> Instant {
        self.now
    }

    /// The description it was built from.
    pub fn config(&self) -> &WorldConfig {
        &self.config
    }

    /// The number of handled events.
    pub fn events(&self) -> u64 {
        self.events
    }

    /// Flows with an end that have not reached it.
    pub fn unfinished(&self) -> usize {
        self.unfinished
    }

    /// Runs to the end.
    pub fn run<O: Observer>(&mut self, observer: &mut O) -> Ending {
        self.run_to(self.config.time_limit, observer).unwrap_or(Ending::TimeLimit)
    }

    /// [`Self::run_to`] without an observer. It is optimised as this crate is; the others as their caller is.
    pub fn advance_to(&mut self, until: Instant) -> Option<Ending> {
        self.run_to(until, &mut NoObserver)
    }

    /// Runs to `until` or to the end, whichever is first; `None` for `until`. For shells that show progress.
    pub fn run_to<O: Observer>(&mut self, until: Instant, observer: &mut O) -> Option<Ending> {
        while self.unfinished > 0 || self.endless {
            let next = self.network.schedule.next();
            if self.has_external && next.is_none_or(|(at, _)| at > until) {
                return self.wait_for_external(until);
            }
            let Some((at, source)) = next else { return Some(Ending::Idle) };
            if at > self.config.time_limit {
                self.now = self.config.time_limit;
                return Some(Ending::TimeLimit);
            }
            if at > until {
                self.now = until;
                return None;
            }
            self.now = at;
            self.events += 1;
            self.step(source, observer);
        }
        Some(Ending::AllDone)
    }

    /// Nearly all events are arrivals at the end of a link.
    #[inline]
    fn step<O: Observer>(&mut self, source: usize, observer: &mut O) {
        if source < self.network.sources.routing {
            self.step_hop(source, observer);
        } else {
            self.step_other(source, observer);
        }
    }

    #[inline(never)]
    fn step_other<O: Observer>(&mut self, source: usize, observer: &mut O) {
        let sources = self.network.sources;
        if source < sources.mobiles {
            self.step_routing(observer);
        } else if source < sources.home_agents {
            self.step_mobile(source - sources.mobiles, observer);
        } else if source < sources.cells {
            self.step_home_agent(source - sources.home_agents, observer);
        } else if source < sources.beacons {
            self.step_air(source - sources.cells, observer);
        } else if source < sources.hosts {
            self.step_beacon(source - sources.beacons, observer);
        } else if source < sources.gateways {
            self.step_host(source - sources.hosts, observer);
        } else if source < sources.cpus {
            self.step_gateway(source - sources.gateways, observer);
        } else if source < sources.latencies {
            self.step_cpu(source - sources.cpus, observer);
        } else if source < sources.flows {
            self.step_latency(source - sources.latencies, observer);
        } else if source < sources.sampler {
            self.step_flow(source - sources.flows, observer);
        } else {
            self.take_samples(observer);
        }
    }

    fn equip_hosts(&mut self) {
        for equipment in &self.config.mechanisms {
            let Some(host) = self.host_of.get(equipment.node.index()).copied().flatten() else { continue };
            let host = &mut self.hosts[host as usize];
            let chain = equipment.mechanisms.chain();
            host.chain = (!chain.is_empty()).then(|| Box::new(chain));
            host.forewarning = equipment.foresight.map(Forewarning::new);
            if let Some(forewarning) = &mut host.forewarning {
                forewarning.look_at(self.now, host.link, &self.config);
            }
        }
    }

    fn schedule_everything(&mut self) {
        for host in 0..self.hosts.len() {
            self.reschedule_host(host);
        }
        for hop in 0..self.network.hops.len() {
            self.network.reschedule_hop(hop);
        }
        for mobile in 0..self.mobiles.len() {
            self.reschedule_mobile(mobile);
        }
        for agent in 0..self.home_agents.len() {
            self.reschedule_home_agent(agent);
        }
        for cell in 0..self.network.airs.len() {
            self.network.reschedule_air(self.now, cell);
            let beacon = self.network.airs[cell].beacons.as_ref().map(|beacons| beacons.next_at);
            self.network.schedule.set(self.network.sources.beacons + cell, beacon);
        }
        for flow in 0..self.flows.len() {
            let start = self.flows[flow].config.start;
            self.network.schedule.set(self.network.sources.flows + flow, Some(start));
        }
        self.network.schedule.set(self.network.sources.sampler, self.next_sample);
    }

    fn take_samples<O: Observer>(&mut self, observer: &mut O) {
        for (index, flow) in self.flows.iter().enumerate() {
            if self.is_external(flow.config.from) {
                if flow.begun && !flow.is_over() {
                    self.shell_commands.push_back(ShellCommand::Sample { flow: FlowId(index as u32) });
                }
            } else if let Some(connection) = self.connection(flow, End::From) {
                let sample = crate::observer::Sample::of(connection, flow.read_at_to);
                observer.sample(self.now, FlowId(index as u32), &sample);
            }
        }
        let now = self.now;
        self.next_sample = self.config.sample_every.map(|every| now + every.max(Duration::from_nanos(1)));
        self.network.schedule.set(self.network.sources.sampler, self.next_sample);
    }

    fn host_index(&self, node: NodeId) -> Option<usize> {
        self.host_of.get(node.index()).copied().flatten().map(|host| host as usize)
    }

    /// The connection at one end of a flow.
    fn connection(&self, flow: &Flow, end: End) -> Option<&holdover_tcp::Connection> {
        let host = self.host_index(flow.node(end))?;
        self.hosts[host].endpoint.connection(flow.connection(end)?)
    }
}
