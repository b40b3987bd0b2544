//! The run: one event after the other, in the order that the crate's documentation states.

use std::sync::Arc;

use holdover_base::{ByteCount, Duration, Instant, Rng};
use holdover_link::{Capacity, Link, LinkEvent, PointToPoint};
use holdover_wire::{Packet, Payload};

use crate::app;
use crate::config::{LinkBetween, NodeId, Role, Traffic, WorldConfig, WorldError};
use crate::flow::{End, Flow, FlowId, FlowReport, FlowStatus, Reconnection};
use crate::frame::Frame;
use crate::host::Host;
use crate::observer::{Direction, LinkId, Observer, Place, Sample, WorldEvent};
use crate::routing::Routes;
use crate::schedule::Schedule;

/// How a run ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ending {
    /// Every flow that has an end came to it, or failed.
    AllDone,
    /// The time limit came first.
    TimeLimit,
    /// Nothing was left that could happen.
    Idle,
}

/// One direction of a link.
#[derive(Clone, Debug)]
struct Hop {
    link: PointToPoint<Frame>,
    id: LinkId,
    from: NodeId,
    to: NodeId,
}

/// Everything that carries packets, and whose turn it is.
#[derive(Clone, Debug)]
struct Network {
    hops: Vec<Hop>,
    routes: Routes,
    schedule: Schedule,
}

/// A world under way. See the [crate](crate) for what it is.
#[derive(Clone, Debug)]
pub struct World {
    now: Instant,
    config: WorldConfig,
    network: Network,
    hosts: Vec<Host>,
    /// The host of each node.
    host_of: Vec<Option<u32>>,
    flows: Vec<Flow>,
    unfinished: usize,
    /// No flow has an end, so that only the time limit ends the run.
    endless: bool,
    next_sample: Option<Instant>,
    events: u64,
}

impl World {
    /// The world that `config` describes.
    pub fn new(config: WorldConfig) -> Result<Self, WorldError> {
        check_names(&config)?;
        let routes = Routes::new(&config.nodes, &config.links);
        let mut hops = Vec::with_capacity(config.links.len() * 2);
        for (index, link) in config.links.iter().enumerate() {
            hops.extend(hops_of(LinkId(index as u32), link, config.seed)?);
        }
        let mut hosts = Vec::new();
        let mut host_of = vec![None; config.nodes.len()];
        for (index, node) in config.nodes.iter().enumerate() {
            if node.role == Role::Host {
                host_of[index] = Some(hosts.len() as u32);
                hosts.push(Host::new(NodeId(index as u32), &node.name, config.seed));
            }
        }
        let mut flows = Vec::with_capacity(config.flows.len());
        for (index, flow) in config.flows.iter().enumerate() {
            let id = FlowId(index as u32);
            let mut flow = Flow::new(id, flow.clone(), config.seed);
            flow.path = path(&config, &routes, &hops, &flow, End::From)?;
            flow.return_path = path(&config, &routes, &hops, &flow, End::To)?;
            flows.push(flow);
        }
        let sources = hops.len() + hosts.len() + flows.len() + 1;
        let unfinished = flows.iter().filter(|flow| flow.is_finite()).count();
        let mut world = Self {
            now: Instant::ZERO,
            next_sample: config.sample_every.map(|_| Instant::ZERO),
            network: Network { hops, routes, schedule: Schedule::new(sources) },
            hosts,
            host_of,
            endless: unfinished == 0,
            flows,
            unfinished,
            events: 0,
            config,
        };
        world.schedule_everything();
        Ok(world)
    }

    fn schedule_everything(&mut self) {
        for hop in 0..self.network.hops.len() {
            self.network.reschedule(hop);
        }
        for flow in 0..self.flows.len() {
            let start = self.flows[flow].config.start;
            let source = self.flow_source(flow);
            self.network.schedule.set(source, Some(start));
        }
        let sampler = self.sampler_source();
        self.network.schedule.set(sampler, self.next_sample);
    }

    /// The time that the run has come to.
    pub fn now(&self) -> Instant {
        self.now
    }

    /// The description it was built from.
    pub fn config(&self) -> &WorldConfig {
        &self.config
    }

    /// How many events have been handled.
    pub fn events(&self) -> u64 {
        self.events
    }

    /// Flows that have an end and have not come to it.
    pub fn unfinished(&self) -> usize {
        self.unfinished
    }

    /// Runs to the end.
    pub fn run<O: Observer>(&mut self, observer: &mut O) -> Ending {
        self.run_to(self.config.time_limit, observer).unwrap_or(Ending::TimeLimit)
    }

    /// Runs to `until` or to the end, whichever comes first; `None` if `until` did. For a shell that wants to show progress.
    pub fn run_to<O: Observer>(&mut self, until: Instant, observer: &mut O) -> Option<Ending> {
        while self.unfinished > 0 || self.endless {
            let Some((at, source)) = self.network.schedule.next() else { return Some(Ending::Idle) };
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

    fn step<O: Observer>(&mut self, source: usize, observer: &mut O) {
        let hops = self.network.hops.len();
        let hosts = hops + self.hosts.len();
        let flows = hosts + self.flows.len();
        if source < hops {
            self.step_hop(source, observer);
        } else if source < hosts {
            let host = source - hops;
            self.hosts[host].endpoint.handle_timeout(self.now);
            self.serve(host, observer);
        } else if source < flows {
            self.step_flow(source - hosts, observer);
        } else {
            self.take_samples(observer);
        }
    }

    fn step_hop<O: Observer>(&mut self, index: usize, observer: &mut O) {
        let now = self.now;
        self.network.hops[index].link.handle_timeout(now);
        while let Some(delivery) = self.network.hops[index].link.poll_deliver(now) {
            let hop = &self.network.hops[index];
            let place = Place { node: hop.to, link: hop.id, direction: Direction::In };
            let (id, to) = (hop.id, hop.to);
            observer.packet(now, place, &delivery.frame);
            if delivery.corrupted {
                observer.dropped(now, id, None, &delivery.frame);
            } else {
                self.arrive(to, delivery.frame, observer);
            }
        }
        self.pass_link_events(index, observer);
        self.network.reschedule(index);
    }

    /// What a link reports: losses, and that it went down or came back.
    fn pass_link_events<O: Observer>(&mut self, index: usize, observer: &mut O) {
        while let Some(event) = self.network.hops[index].link.poll_event() {
            let id = self.network.hops[index].id;
            // Both directions go down together; the first one speaks for both.
            let speaks = index.is_multiple_of(2);
            match event {
                LinkEvent::Dropped { at, cause, frame } => observer.dropped(at, id, Some(cause), &frame),
                LinkEvent::Down { at } if speaks => observer.event(at, &WorldEvent::LinkDown(id)),
                LinkEvent::Up { at } if speaks => {
                    observer.event(at, &WorldEvent::LinkUp(id));
                    self.note_reconnection(at, index);
                }
                LinkEvent::Down { .. } | LinkEvent::Up { .. } => {}
            }
        }
    }

    fn note_reconnection(&mut self, at: Instant, hop: usize) {
        for flow in &mut self.flows {
            let crosses = flow.path.contains(&hop) || flow.return_path.contains(&hop);
            if crosses && flow.config.start <= at && !flow.is_over() {
                flow.reconnections.push(Reconnection { up_at: at, idle: None });
            }
        }
    }

    /// A packet has come to a node.
    fn arrive<O: Observer>(&mut self, node: NodeId, mut frame: Frame, observer: &mut O) {
        let Some(host) = self.host_of[node.index()] else {
            // A router: one hop less to live (RFC 1812 section 5.3.1).
            frame.packet.ttl = frame.packet.ttl.saturating_sub(1);
            if frame.packet.ttl > 0 {
                self.network.forward(self.now, node, frame, observer);
            }
            return;
        };
        let host = host as usize;
        if let Payload::Udp(udp) = &frame.packet.payload {
            let flow = usize::from(udp.dst_port.wrapping_sub(1024));
            if let Some(flow) = self.flows.get_mut(flow) {
                flow.read_at_to += udp.payload.len() as u64;
                flow.note_new_data(self.now);
            }
            return;
        }
        self.hosts[host].endpoint.handle_packet(self.now, &frame.packet);
        self.serve(host, observer);
    }

    /// A host has its turn: it sends what there is to send, and its applications hear what happened.
    fn serve<O: Observer>(&mut self, host: usize, observer: &mut O) {
        let now = self.now;
        loop {
            let node = self.hosts[host].node;
            while let Some(out) = self.hosts[host].endpoint.poll_transmit(now) {
                let frame = Frame::new(out.packet, Some(out.reason));
                self.network.forward(now, node, frame, observer);
            }
            let Some((id, event)) = self.hosts[host].endpoint.poll_event() else { break };
            let owner = self.hosts[host].owner(id).or_else(|| self.adopt(host, id));
            if let Some((flow, end)) = owner {
                let mut turn = app::Turn {
                    now,
                    flow_id: flow,
                    flow: &mut self.flows[flow.0 as usize],
                    host: &mut self.hosts[host],
                };
                let was_over = turn.flow.is_over();
                turn.hear(end, id, event, observer);
                self.after_turn(flow, was_over);
            }
        }
        let source = self.network.hops.len() + host;
        let deadline = self.hosts[host].endpoint.poll_timeout();
        self.network.schedule.set(source, deadline);
    }

    /// A connection that a listener accepted belongs to the flow of its port.
    fn adopt(&mut self, host: usize, id: holdover_tcp::ConnectionId) -> Option<(FlowId, End)> {
        let port = self.hosts[host].endpoint.connection(id)?.local().port();
        let flow = FlowId(u32::from(port.checked_sub(1024)?));
        let end = self.flows.get(flow.0 as usize)?.opener().other();
        self.hosts[host].set_owner(id, flow, end);
        self.flows[flow.0 as usize].set_connection(end, id);
        Some((flow, end))
    }

    fn after_turn(&mut self, flow: FlowId, was_over: bool) {
        let index = flow.0 as usize;
        let flow = &self.flows[index];
        if flow.is_over() && !was_over && flow.is_finite() {
            self.unfinished -= 1;
        }
        let deadline = flow.exchange.ask_at.or(flow.bursts.send_at);
        let source = self.flow_source(index);
        self.network.schedule.set(source, deadline);
    }

    /// A flow's own time has come: it begins, asks again, or sends the next datagram.
    fn step_flow<O: Observer>(&mut self, index: usize, observer: &mut O) {
        let now = self.now;
        let id = FlowId(index as u32);
        if let Traffic::OnOff(config) = self.flows[index].config.traffic {
            let flow = &mut self.flows[index];
            if let Some(packet) = app::datagram(flow, now, &config) {
                let from = flow.config.from;
                self.network.forward(now, from, Frame::new(packet, None), observer);
            } else {
                observer.event(now, &WorldEvent::FlowStarted(id));
            }
            return self.after_turn(id, false);
        }
        let flow = &self.flows[index];
        let (opener, listener) = (flow.opener(), flow.opener().other());
        let begins = flow.connection(opener).is_none();
        if begins {
            observer.event(now, &WorldEvent::FlowStarted(id));
            let config = match listener {
                End::From => Arc::clone(&flow.config.sender),
                End::To => Arc::clone(&flow.config.receiver),
            };
            let port = flow.port;
            if let Some(host) = self.host_of[flow.node(listener).index()] {
                // A port belongs to one flow, so nobody listens there yet.
                let _ = self.hosts[host as usize].endpoint.listen(port, config, usize::MAX);
            }
        }
        let Some(host) = self.host_of[self.flows[index].node(opener).index()] else { return };
        let mut turn =
            app::Turn { now, flow_id: id, flow: &mut self.flows[index], host: &mut self.hosts[host as usize] };
        let was_over = turn.flow.is_over();
        if begins {
            turn.open(opener, observer);
        } else {
            turn.ask();
        }
        self.after_turn(id, was_over);
        self.serve(host as usize, observer);
    }

    fn take_samples<O: Observer>(&mut self, observer: &mut O) {
        for (index, flow) in self.flows.iter().enumerate() {
            let host = self.host_of[flow.config.from.index()];
            let connection =
                host.zip(flow.from).and_then(|(host, id)| self.hosts[host as usize].endpoint.connection(id));
            if let Some(connection) = connection {
                observer.sample(self.now, FlowId(index as u32), &Sample::of(connection, flow.read_at_to));
            }
        }
        let now = self.now;
        self.next_sample = self.config.sample_every.map(|every| now + every.max(Duration::from_micros(1)));
        let sampler = self.sampler_source();
        self.network.schedule.set(sampler, self.next_sample);
    }

    fn flow_source(&self, flow: usize) -> usize {
        self.network.hops.len() + self.hosts.len() + flow
    }

    fn sampler_source(&self) -> usize {
        self.flow_source(self.flows.len())
    }

    /// What was measured of each flow.
    pub fn report(&self) -> Vec<FlowReport> {
        self.flows.iter().map(|flow| self.report_of(flow)).collect()
    }

    /// The statistics of a link: from its first named node, and back.
    pub fn link_statistics(&self, link: LinkId) -> Option<[holdover_link::Statistics; 2]> {
        let at = link.0 as usize * 2;
        let of = |hop: &Hop| hop.link.statistics(self.now);
        Some([of(self.network.hops.get(at)?), of(self.network.hops.get(at + 1)?)])
    }

    fn report_of(&self, flow: &Flow) -> FlowReport {
        let connection = |end: End| {
            let host = self.host_of[flow.node(end).index()]?;
            self.hosts[host as usize].endpoint.connection(flow.connection(end)?)
        };
        let counters = |end: End| connection(end).map(|connection| connection.counters().clone());
        let status = match (flow.completed_at, flow.failure) {
            (Some(_), _) => FlowStatus::Completed,
            (None, Some(error)) => FlowStatus::Failed(error),
            (None, None) => FlowStatus::Unfinished,
        };
        let end = flow.completed_at.unwrap_or(self.now);
        let mss = connection(End::From).map_or(u32::from(flow.config.sender.mss), |connection| connection.snd_mss());
        FlowReport {
            status,
            started_at: flow.config.start,
            connected_at: flow.connected_at,
            completed_at: flow.completed_at,
            bytes_received: flow.read_at_to + flow.read_at_from,
            ideal: self.ideal(flow, mss),
            outage: self.outage(flow, flow.config.start, end),
            reconnections: flow.reconnections.clone(),
            exchanges: flow.exchange.times.clone(),
            sender: counters(End::From),
            receiver: counters(End::To),
            ended_at: self.now,
        }
    }

    /// The ideal time for what the flow's receiver has read of a bulk transfer.
    fn ideal(&self, flow: &Flow, mss: u32) -> Option<Duration> {
        let Traffic::Bulk(_) = flow.config.traffic else { return None };
        if flow.read_at_to == 0 {
            return None;
        }
        let ip_header = if flow.config.ipv6 { 40 } else { 20 };
        let options = u64::from(u32::from(flow.config.sender.mss).saturating_sub(mss));
        let segments = flow.read_at_to.div_ceil(u64::from(mss.max(1)));
        let wire = ByteCount(flow.read_at_to + segments * (ip_header + 20 + options));
        let slowest = flow.path.iter().map(|&hop| self.capacity(hop)?.time_for(wire, flow.config.start));
        let slowest = slowest.collect::<Option<Vec<_>>>()?.into_iter().max()?;
        let delay = flow.path.iter().fold(Duration::ZERO, |sum, &hop| sum + self.config_of(hop).delay);
        Some(slowest + delay)
    }

    /// How long links of the flow's path were down between two instants.
    fn outage(&self, flow: &Flow, from: Instant, to: Instant) -> Duration {
        let down = |&hop: &usize| {
            let up = self.capacity(hop).map_or(Duration::MAX, |capacity| capacity.up_time(from, to));
            to.saturating_since(from) - up
        };
        flow.path.iter().map(down).fold(Duration::ZERO, |sum, down| sum + down)
    }

    fn config_of(&self, hop: usize) -> holdover_link::LinkConfig {
        let link = &self.config.links[hop / 2];
        if hop.is_multiple_of(2) { link.forward.clone() } else { backward(link) }
    }

    fn capacity(&self, hop: usize) -> Option<Capacity> {
        let link = &self.config.links[hop / 2];
        Capacity::new(&self.config_of(hop), outage_seed(self.config.seed, link)).ok()
    }
}

impl Network {
    fn forward<O: Observer>(&mut self, now: Instant, node: NodeId, frame: Frame, observer: &mut O) {
        let route = NodeId::of(frame.packet.dst).and_then(|destination| self.routes.next_hop(node, destination));
        // Every flow's path was found before the run, so what has no route was made up.
        let Some(index) = route else { return };
        let hop = &mut self.hops[index];
        observer.packet(now, Place { node, link: hop.id, direction: Direction::Out }, &frame);
        hop.link.handle_packet(now, frame);
        self.reschedule(index);
    }

    fn reschedule(&mut self, hop: usize) {
        let deadline = self.hops[hop].link.poll_timeout().map(|(at, _)| at);
        self.schedule.set(hop, deadline);
    }
}

fn outage_seed(seed: u64, link: &LinkBetween) -> u64 {
    Rng::split(seed, &format!("outages of {}", link.name)).next_u64()
}

fn backward(link: &LinkBetween) -> holdover_link::LinkConfig {
    holdover_link::LinkConfig { outages: link.forward.outages.clone(), ..link.backward.clone() }
}

fn hops_of(id: LinkId, link: &LinkBetween, seed: u64) -> Result<[Hop; 2], WorldError> {
    let outage_seed = outage_seed(seed, link);
    let make = |config: &holdover_link::LinkConfig, direction: &str| {
        let seed = Rng::split(seed, &format!("{direction} {}", link.name)).next_u64();
        PointToPoint::with_outage_seed(config, seed, outage_seed)
            .map_err(|error| WorldError::Link { link: link.name.clone(), error })
    };
    Ok([
        Hop { link: make(&link.forward, "forward")?, id, from: link.a, to: link.b },
        Hop { link: make(&backward(link), "backward")?, id, from: link.b, to: link.a },
    ])
}

/// The directed links from one end of a flow to the other.
fn path(config: &WorldConfig, routes: &Routes, hops: &[Hop], flow: &Flow, from: End) -> Result<Vec<usize>, WorldError> {
    let (start, end) = (flow.node(from), flow.node(from.other()));
    let mut at = start;
    let mut path = Vec::new();
    while at != end {
        let hop = routes.next_hop(at, end).ok_or_else(|| WorldError::Unreachable {
            flow: flow.config.name.clone(),
            from: config.nodes[start.index()].name.clone(),
            to: config.nodes[end.index()].name.clone(),
        })?;
        debug_assert_eq!(hops[hop].from, at);
        path.push(hop);
        at = hops[hop].to;
    }
    Ok(path)
}

fn check_names(config: &WorldConfig) -> Result<(), WorldError> {
    let nodes = config.nodes.len();
    let exists = |what: &str, node: NodeId| {
        if node.index() < nodes {
            Ok(())
        } else {
            Err(WorldError::NoSuchNode { what: what.to_owned(), node: node.0, nodes })
        }
    };
    for link in &config.links {
        exists(&link.name, link.a)?;
        exists(&link.name, link.b)?;
    }
    for flow in &config.flows {
        for node in [flow.from, flow.to] {
            exists(&flow.name, node)?;
            if config.nodes[node.index()].role != Role::Host {
                let node = config.nodes[node.index()].name.clone();
                return Err(WorldError::NotAHost { flow: flow.name.clone(), node });
            }
        }
        if flow.from == flow.to {
            let node = config.nodes[flow.from.index()].name.clone();
            return Err(WorldError::SameHost { flow: flow.name.clone(), node });
        }
        app::check(flow)?;
    }
    Ok(())
}

/// The datagram of a flow, as a packet.
pub(crate) fn udp_packet(flow: &Flow, udp: holdover_wire::Udp) -> Packet {
    let ipv6 = flow.config.ipv6;
    Packet::new(flow.config.from.address(ipv6), flow.config.to.address(ipv6), udp)
}
