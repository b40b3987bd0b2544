//! All carriers of packets, and the schedule.

mod segments;

use holdover_base::{Instant, Rng};
use holdover_link::cell::{Hop as CellHop, contend};
use holdover_link::{Capacity, Link, LinkConfig, PointToPoint, PointToPointEvent};
use holdover_wire::Unreachable;

use crate::cell_beacons::{Air, station};
use crate::config::{Addresses, LinkBetween, WorldConfig};
use crate::error::WorldError;
use crate::following::Following;
use crate::frame::{Frame, FramePool};
use crate::icmp::IcmpErrors;
use crate::ids::{LinkId, NodeId};
use crate::layer2::Families;
use crate::mobility::{Attachment, CellId};
use crate::mtu::LinkMtu;
use crate::observer::{Dropped, Medium, Observer, Place, Transit};
use crate::routing::Routes;
use crate::schedule::{Schedule, Sources};
use crate::segment::{Segment, own_outages};

/// One direction of a link.
#[derive(Clone, Debug)]
pub(crate) struct Hop {
    pub(crate) link: PointToPoint<Box<Frame>>,
    pub(crate) id: LinkId,
    pub(crate) from: NodeId,
    pub(crate) to: NodeId,
    /// Whether its ends are interfaces of kernels.
    pub(crate) attached: bool,
}

/// The routing of a mobile host's packets.
#[derive(Clone, Debug)]
pub(crate) struct Roaming {
    pub(crate) node: NodeId,
    /// The cell in which it sends.
    pub(crate) uplink: Option<usize>,
    /// The cell to which its packets are sent.
    pub(crate) binding: Option<usize>,
    pub(crate) via: Via,
}

/// The routing of packets to a mobile host.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Via {
    /// Through a gateway and a tunnel.
    Gateway { gateway: NodeId, overhead: u32 },
    /// All nodes know where it is.
    Routes,
}

/// Links, cells and routes.
#[derive(Clone, Debug)]
pub(crate) struct Network {
    pub(crate) hops: Vec<Hop>,
    pub(crate) airs: Vec<Air>,
    pub(crate) roaming: Vec<Roaming>,
    /// For each node the index of its mobile host; empty if there are none.
    mobile_of: Vec<Option<u32>>,
    routes: Routes,
    /// For each node the directed link that all packets from it take, if it is a host with a single link; empty if hosts move, or have
    /// addresses for each of their links.
    sole_hops: Vec<Option<u32>>,
    /// Changes that routers have not noticed yet, if they follow links.
    pub(crate) following: Option<Following>,
    icmp: IcmpErrors,
    /// Whether any host has addresses for each of its links.
    per_link: bool,
    /// The links that are up, as of the last report.
    link_up: Vec<bool>,
    /// The links that carry packets of IPv4 and of IPv6, as of the last report: they are up and forward.
    carries: Vec<[bool; 2]>,
    /// The second layer of each link that has one.
    pub(crate) segments: Vec<Option<Box<Segment>>>,
    has_segments: bool,
    /// The MTU of each link that has one.
    mtus: Vec<Option<LinkMtu>>,
    has_mtus: bool,
    pub(crate) schedule: Schedule,
    pub(crate) sources: Sources,
    pub(crate) pool: FramePool,
}

/// The current path from one host to another.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct Way {
    /// The directed links.
    pub(crate) hops: Vec<usize>,
    /// The mobile hosts at its ends.
    pub(crate) mobiles: Vec<usize>,
}

impl Network {
    pub(crate) fn new(config: &WorldConfig, hosts: usize) -> Result<Self, WorldError> {
        let mut hops = Vec::with_capacity(config.links.len() * 2);
        for (index, link) in config.links.iter().enumerate() {
            hops.extend(hops_of(LinkId(index as u32), link, config.seed)?);
        }
        let segments = config.links.iter().map(|link| Segment::of(link, outage_seed(config.seed, link)));
        let segments = segments.collect::<Result<Vec<_>, _>>()?;
        let mut airs = Vec::with_capacity(config.cells.len());
        for (index, cell) in config.cells.iter().enumerate() {
            airs.push(Air::new(CellId(index as u32), cell, config.seed)?);
        }
        let routing = hops.len();
        let mobiles = routing + 1;
        let home_agents = mobiles + config.mobiles.len();
        let cells = home_agents + config.home_agents().len();
        let beacons = cells + airs.len();
        let first_host = beacons + airs.len();
        let gateways = first_host + hosts;
        let cpus = gateways + config.gateways.len();
        let latencies = cpus + config.cpus.len();
        let flows = latencies + config.latencies.len();
        let sampler = flows + config.flows.len();
        let sources = Sources {
            routing,
            mobiles,
            home_agents,
            cells,
            beacons,
            hosts: first_host,
            gateways,
            cpus,
            latencies,
            flows,
            sampler,
        };
        let mut mobile_of = Vec::new();
        if !config.mobiles.is_empty() {
            mobile_of = vec![None; config.nodes.len()];
        }
        for (index, mobile) in config.mobiles.iter().enumerate() {
            mobile_of[mobile.node.index()] = Some(index as u32);
        }
        let roaming = config.mobiles.iter().map(|mobile| Roaming {
            node: mobile.node,
            uplink: None,
            binding: None,
            via: match &mobile.attachment {
                Attachment::Registration(registration) => Via::Gateway {
                    gateway: registration.gateway,
                    overhead: u32::try_from(registration.tunnel_overhead.0).unwrap_or(u32::MAX),
                },
                Attachment::HandoffTime(_) => Via::Routes,
            },
        });
        let routes = Routes::new(&config.nodes, &config.links, &config.routing);
        let per_link = config.addressing.iter().any(|host| host.addresses == Addresses::PerLink);
        let nodes = if per_link || !config.mobiles.is_empty() { 0 } else { config.nodes.len() as u32 };
        Ok(Self {
            roaming: roaming.collect(),
            mobile_of,
            sole_hops: (0..nodes).map(|node| routes.sole_hop(NodeId(node))).collect(),
            routes,
            following: config.routing.detection.map(|detection| Following::new(detection, config.links.len())),
            icmp: IcmpErrors::default(),
            per_link,
            link_up: vec![true; config.links.len()],
            carries: vec![[true; 2]; config.links.len()],
            has_segments: segments.iter().any(Option::is_some),
            segments,
            has_mtus: config.links.iter().any(|link| link.mtu.is_some()),
            mtus: config.links.iter().map(|link| link.mtu).collect(),
            schedule: Schedule::new(sources.sampler + 1),
            sources,
            pool: FramePool::default(),
            hops,
            airs,
        })
    }

    /// Sends a packet of a host itself: straight along the link of one with a single link.
    #[inline(always)]
    pub(crate) fn send<O: Observer>(&mut self, now: Instant, node: NodeId, frame: Box<Frame>, observer: &mut O) {
        match self.sole_hops.get(node.index()) {
            Some(&Some(hop)) if NodeId::of(frame.packet.dst).is_some() => {
                self.send_along(now, hop as usize, frame, observer);
            }
            _ => self.forward(now, node, frame, observer),
        }
    }

    /// Sends a packet of a node itself, or forwards a received one.
    #[inline]
    pub(crate) fn forward<O: Observer>(&mut self, now: Instant, node: NodeId, mut frame: Box<Frame>, observer: &mut O) {
        if let Some(hop) = frame.link.take().and_then(|link| self.hop_from(node, link)) {
            return self.send_along(now, hop, frame, observer);
        }
        if !self.mobile_of.is_empty() {
            return self.forward_among_mobiles(now, node, frame, observer);
        }
        match NodeId::of(frame.packet.dst) {
            Some(destination) => self.forward_towards(now, node, destination, frame, observer),
            None => self.refuse(now, Dropped::NoRoute(node), Unreachable::Network, frame, observer),
        }
    }

    /// Handles a packet that a node cannot forward. A router notifies the packet's sender (RFC 1812 section 4.3.3.1, RFC 4443 section 3.1).
    pub(crate) fn refuse<O: Observer>(
        &mut self,
        now: Instant,
        why: Dropped,
        kind: Unreachable,
        frame: Box<Frame>,
        observer: &mut O,
    ) {
        observer.dropped(now, why, &frame);
        let (Dropped::NoRoute(node) | Dropped::HopLimit(node) | Dropped::TooBig(node) | Dropped::Unresolved(node)) =
            why
        else {
            return;
        };
        if self.routes.is_router(node)
            && let Some(error) = self.icmp.about(now, node, kind, &frame)
        {
            let error = self.pool.frame(error, None);
            self.forward(now, node, error, observer);
        }
    }

    fn forward_among_mobiles<O: Observer>(
        &mut self,
        now: Instant,
        node: NodeId,
        mut frame: Box<Frame>,
        observer: &mut O,
    ) {
        if let Some(mobile) = self.mobile(node) {
            let Some(cell) = self.roaming[mobile].uplink else {
                return observer.dropped(now, Dropped::NoRoute(node), &frame);
            };
            return self.send_up(now, cell, node, frame, observer);
        }
        let destination = NodeId::of(frame.packet.dst);
        let Some(mobile) = destination.and_then(|destination| self.mobile(destination)) else {
            return match destination {
                Some(destination) => self.forward_towards(now, node, destination, frame, observer),
                None => self.refuse(now, Dropped::NoRoute(node), Unreachable::Network, frame, observer),
            };
        };
        if let Some(end) = frame.tunnel {
            return self.forward_towards(now, node, end, frame, observer);
        }
        let roaming = &self.roaming[mobile];
        let tunnel = match roaming.via {
            Via::Gateway { gateway, .. } if gateway != node => {
                return self.forward_towards(now, node, gateway, frame, observer);
            }
            Via::Gateway { overhead, .. } => Some(overhead),
            Via::Routes => None,
        };
        let Some(cell) = roaming.binding else {
            return self.refuse(now, Dropped::NoRoute(node), Unreachable::Host, frame, observer);
        };
        let (base, host) = (self.airs[cell].base, roaming.node);
        if base == node {
            return self.send_down(now, cell, host, frame, observer);
        }
        if let Some(overhead) = tunnel {
            frame.enter_tunnel(base, overhead);
        }
        self.forward_towards(now, node, base, frame, observer);
    }

    #[inline]
    fn forward_towards<O: Observer>(
        &mut self,
        now: Instant,
        node: NodeId,
        destination: NodeId,
        frame: Box<Frame>,
        observer: &mut O,
    ) {
        match self.next_hop(node, destination, &frame) {
            Some(index) => self.send_along(now, index, frame, observer),
            None => self.refuse(now, Dropped::NoRoute(node), Unreachable::Network, frame, observer),
        }
    }

    /// A frame enters one direction of a link.
    #[inline]
    pub(crate) fn send_along<O: Observer>(
        &mut self,
        now: Instant,
        index: usize,
        mut frame: Box<Frame>,
        observer: &mut O,
    ) {
        if self.has_mtus {
            let Some(fits) = self.pass_mtu(now, index, frame, observer) else { return };
            frame = fits;
        }
        if self.has_segments {
            let Some(passes) = self.pass_segment(now, index, frame, observer) else { return };
            frame = passes;
        }
        let hop = &mut self.hops[index];
        let (node, medium) = (hop.from, Medium::Link(hop.id));
        if !frame.raw {
            observer.packet(now, Place { node, medium, transit: Transit::Out }, &frame);
        }
        hop.link.handle_packet(now, frame);
        // The only events of a handled packet are drops; connectivity changes in the link's own turn.
        while let Some(event) = hop.link.poll_event() {
            if let PointToPointEvent::Dropped { at, cause, frame } = event
                && !frame.raw
            {
                observer.dropped(at, Dropped::Lost(medium, cause), &frame);
            }
        }
        if self.has_segments {
            return self.reschedule_hop(index);
        }
        let deadline = hop.link.deadline();
        self.schedule.set_at(index, deadline);
    }

    /// Returns a frame that fits the MTU of the link that it is about to enter. A longer one is dropped, and a router reports that to its
    /// sender, unless the link is a black hole.
    fn pass_mtu<O: Observer>(
        &mut self,
        now: Instant,
        index: usize,
        frame: Box<Frame>,
        observer: &mut O,
    ) -> Option<Box<Frame>> {
        let Some(LinkMtu { bytes, is_reported }) = self.mtus[index / 2] else { return Some(frame) };
        if frame.raw || holdover_link::Frame::wire_len(&frame) <= bytes {
            return Some(frame);
        }
        let why = Dropped::TooBig(self.hops[index].from);
        if is_reported {
            self.refuse(now, why, Unreachable::PacketTooBig { mtu: bytes }, frame, observer);
        } else {
            observer.dropped(now, why, &frame);
        }
        None
    }

    #[inline]
    pub(crate) fn next_hop(&self, node: NodeId, destination: NodeId, frame: &Frame) -> Option<usize> {
        if !self.per_link || frame.tunnel.is_some() {
            return self.routes.next_hop(node, destination, &self.link_up);
        }
        let link_of = |address, host| match NodeId::and_access_of(address) {
            Some((node, access)) if node == host => access,
            _ => None,
        };
        let (leave_by, arrive_by) = (link_of(frame.packet.src, node), link_of(frame.packet.dst, destination));
        self.routes.next_hop_by_link(node, destination, leave_by, arrive_by, &self.link_up)
    }

    /// The index of a link among a host's links.
    pub(crate) fn access_of(&self, node: NodeId, link: LinkId) -> Option<u32> {
        self.routes.access_of(node, link.0 as usize)
    }

    /// A base station sends a packet to a mobile host in its cell.
    pub(crate) fn send_down<O: Observer>(
        &mut self,
        now: Instant,
        cell: usize,
        to: NodeId,
        frame: Box<Frame>,
        observer: &mut O,
    ) {
        let air = &mut self.airs[cell];
        observer.packet(now, air.place(air.base, Transit::Out), &frame);
        air.cell.handle_packet(now, CellHop::Down { to: station(to), frame });
        self.reschedule_air(now, cell);
    }

    /// A mobile host sends a packet in a cell.
    pub(crate) fn send_up<O: Observer>(
        &mut self,
        now: Instant,
        cell: usize,
        from: NodeId,
        frame: Box<Frame>,
        observer: &mut O,
    ) {
        let air = &mut self.airs[cell];
        observer.packet(now, air.place(from, Transit::Out), &frame);
        air.cell.handle_packet(now, CellHop::Up { from: station(from), frame });
        self.reschedule_air(now, cell);
    }

    #[inline(always)]
    pub(crate) fn reschedule_hop(&mut self, hop: usize) {
        let mut deadline = self.hops[hop].link.deadline();
        if self.has_segments
            && let Some(segment) = &self.segments[hop / 2]
        {
            deadline = segment.deadline(hop).map_or(deadline, |own| own.min(deadline));
        }
        self.schedule.set_at(hop, deadline);
    }

    /// A cell has changed: its shared channel may be free, and its deadline has changed.
    pub(crate) fn reschedule_air(&mut self, now: Instant, cell: usize) {
        let Some(channel) = self.airs[cell].cell.config().channel else { return self.schedule_air(now, cell) };
        let on_channel = |air: &Air| air.cell.config().channel == Some(channel);
        let mut cells: Vec<_> = self.airs.iter_mut().filter(|air| on_channel(air)).map(|air| &mut air.cell).collect();
        contend(&mut cells, now);
        for cell in 0..self.airs.len() {
            if on_channel(&self.airs[cell]) {
                self.schedule_air(now, cell);
            }
        }
    }

    fn schedule_air(&mut self, now: Instant, cell: usize) {
        let deadline = self.airs[cell].deadline(now);
        self.schedule.set(self.sources.cells + cell, deadline);
    }

    /// The index of a node's mobile host.
    pub(crate) fn mobile(&self, node: NodeId) -> Option<usize> {
        self.mobile_of.get(node.index()).copied().flatten().map(|mobile| mobile as usize)
    }

    /// The cell of a base station.
    pub(crate) fn cell_of(&self, base: NodeId) -> Option<usize> {
        self.airs.iter().position(|air| air.base == base)
    }

    pub(crate) fn set_link_up(&mut self, now: Instant, link: LinkId, up: bool) {
        let link = link.0 as usize;
        self.link_up[link] = up;
        if let Some(following) = &mut self.following {
            following.note(now, link, up);
            self.schedule.set(self.sources.routing, following.deadline());
        }
    }

    /// The next link whose change routers notice by `now`, and whether it is up. Their routes follow.
    pub(crate) fn notice_link(&mut self, now: Instant) -> Option<(LinkId, bool)> {
        let following = self.following.as_mut()?;
        let noticed = following.poll_change(now);
        self.schedule.set(self.sources.routing, following.deadline());
        let (link, up) = noticed?;
        self.routes.set_known(link, up);
        Some((LinkId(link as u32), up))
    }

    /// Marks a link as down, and known to be down to routers that follow links.
    pub(crate) fn take_down(&mut self, link: LinkId) {
        self.link_up[link.0 as usize] = false;
        self.routes.set_known(link.0 as usize, false);
    }

    pub(crate) fn set_carries(&mut self, link: LinkId, families: Families, carries: bool) {
        for (ipv6, entry) in [false, true].into_iter().zip(&mut self.carries[link.0 as usize]) {
            if families.has(ipv6) {
                *entry = carries;
            }
        }
    }

    /// Whether a link carries packets of a family.
    pub(crate) fn carries(&self, link: usize, ipv6: bool) -> bool {
        self.carries[link][usize::from(ipv6)]
    }

    /// Whether a link has a second layer.
    pub(crate) fn has_segment(&self, link: usize) -> bool {
        self.has_segments && self.segments[link].is_some()
    }

    /// The direction of a link that leads away from `node`; `None` if the link does not end there.
    pub(crate) fn hop_from(&self, node: NodeId, link: LinkId) -> Option<usize> {
        let forth = link.0 as usize * 2;
        (forth..forth + 2).find(|&hop| self.hops.get(hop).is_some_and(|hop| hop.from == node))
    }

    /// Whether a link between two nodes is up, as of the last report.
    pub(crate) fn is_joined(&self, one: NodeId, other: NodeId) -> bool {
        let forth = self.hops.iter().filter(|hop| (hop.from, hop.to) == (one, other));
        forth.into_iter().any(|hop| self.link_up[hop.id.0 as usize])
    }

    /// The number of a host's links.
    pub(crate) fn accesses(&self, node: NodeId) -> usize {
        self.routes.accesses(node)
    }

    /// The first link of a host that is up.
    pub(crate) fn first_link_up(&self, node: NodeId) -> Option<LinkId> {
        self.routes.first_up(node, &self.link_up).map(|link| LinkId(link as u32))
    }

    /// The directed links from one node to another that does not move; `None` if there is no path.
    pub(crate) fn wired_way(&self, from: NodeId, to: NodeId) -> Option<Vec<usize>> {
        let mut hops = Vec::new();
        let mut at = from;
        while at != to {
            // Configured routes can form a loop.
            if at != from && self.routes.accesses(at) > 0 || hops.len() > self.hops.len() {
                return None;
            }
            let hop = self.routes.next_hop(at, to, &self.link_up)?;
            hops.push(hop);
            at = self.hops[hop].to;
        }
        Some(hops)
    }

    /// The current path from one host to another; `None` while there is none.
    pub(crate) fn way(&self, from: NodeId, to: NodeId) -> Option<Way> {
        let mut way = Way::default();
        let mut at = from;
        if let Some(mobile) = self.mobile(from) {
            way.mobiles.push(mobile);
            at = self.airs[self.roaming[mobile].uplink?].base;
        }
        let Some(mobile) = self.mobile(to) else {
            way.hops = self.wired_way(at, to)?;
            return Some(way);
        };
        way.mobiles.push(mobile);
        let roaming = &self.roaming[mobile];
        if let Via::Gateway { gateway, .. } = roaming.via {
            way.hops = self.wired_way(at, gateway)?;
            at = gateway;
        }
        way.hops.extend(self.wired_way(at, self.airs[roaming.binding?].base)?);
        Some(way)
    }
}

/// The configuration of one direction of a link.
pub(crate) fn config_of(config: &WorldConfig, hop: usize) -> LinkConfig {
    let link = &config.links[hop / 2];
    if hop.is_multiple_of(2) { own_outages(link) } else { backward(link) }
}

/// The capacity of one direction of a link, for packets of one family where families differ.
pub(crate) fn capacity_of(config: &WorldConfig, hop: usize, ipv6: Option<bool>) -> Option<Capacity> {
    let link = &config.links[hop / 2];
    let mut of_hop = config_of(config, hop);
    if ipv6.is_none_or(|ipv6| link.layer2.families.has(ipv6)) {
        of_hop.outages.clone_from(&link.forward.outages);
        of_hop.forwards_after = link.carries_after();
    }
    Capacity::new(&of_hop, outage_seed(config.seed, link)).ok()
}

pub(crate) fn outage_seed(seed: u64, link: &LinkBetween) -> u64 {
    Rng::split(seed, &format!("outages of {}", link.name)).next_u64()
}

fn backward(link: &LinkBetween) -> LinkConfig {
    let LinkConfig { outages, forwards_after, .. } = own_outages(link);
    LinkConfig { outages, forwards_after, ..link.backward.clone() }
}

fn hops_of(id: LinkId, link: &LinkBetween, seed: u64) -> Result<[Hop; 2], WorldError> {
    let outage_seed = outage_seed(seed, link);
    let make = |config: &LinkConfig, direction: &str| {
        let seed = Rng::split(seed, &format!("{direction} {}", link.name)).next_u64();
        PointToPoint::with_outage_seed(config, seed, outage_seed)
            .map_err(|error| WorldError::Link { link: link.name.clone(), error })
    };
    Ok([
        Hop { link: make(&own_outages(link), "forward")?, id, from: link.a, to: link.b, attached: false },
        Hop { link: make(&backward(link), "backward")?, id, from: link.b, to: link.a, attached: false },
    ])
}
