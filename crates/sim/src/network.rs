//! Everything that carries packets, and whose turn it is.

use holdover_base::{Instant, Rng};
use holdover_link::cell::Hop as CellHop;
use holdover_link::{Capacity, Link, LinkConfig, LinkEvent, PointToPoint};

use crate::air::{Air, station};
use crate::config::{Addresses, LinkBetween, NodeId, WorldConfig};
use crate::error::WorldError;
use crate::frame::{Frame, FramePool};
use crate::mobility::{Attachment, CellId};
use crate::observer::{Direction, Dropped, LinkId, Medium, Observer, Place};
use crate::routing::Routes;
use crate::schedule::{Schedule, Sources};

/// One direction of a link.
#[derive(Clone, Debug)]
pub(crate) struct Hop {
    pub(crate) link: PointToPoint<Box<Frame>>,
    pub(crate) id: LinkId,
    pub(crate) from: NodeId,
    pub(crate) to: NodeId,
}

/// Where a mobile host's packets go.
#[derive(Clone, Debug)]
pub(crate) struct Roaming {
    pub(crate) node: NodeId,
    /// The cell that it sends in.
    pub(crate) uplink: Option<usize>,
    /// The cell that packets to it are sent to.
    pub(crate) binding: Option<usize>,
    pub(crate) via: Via,
}

/// How packets find a mobile host.
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
    /// The mobile host that a node is; empty if there are none.
    mobile_of: Vec<Option<u32>>,
    routes: Routes,
    /// Whether any host has addresses for each of its links.
    per_link: bool,
    /// Which links are up, as far as has been told.
    link_up: Vec<bool>,
    pub(crate) schedule: Schedule,
    pub(crate) sources: Sources,
    pub(crate) pool: FramePool,
}

/// The way from one host to another as things stand.
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
        let mut airs = Vec::with_capacity(config.cells.len());
        for (index, cell) in config.cells.iter().enumerate() {
            airs.push(Air::new(CellId(index as u32), cell, config.seed)?);
        }
        let sources = Sources {
            mobiles: hops.len(),
            cells: hops.len() + config.mobiles.len(),
            beacons: hops.len() + config.mobiles.len() + airs.len(),
            hosts: hops.len() + config.mobiles.len() + airs.len() * 2,
            flows: hops.len() + config.mobiles.len() + airs.len() * 2 + hosts,
            sampler: hops.len() + config.mobiles.len() + airs.len() * 2 + hosts + config.flows.len(),
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
        Ok(Self {
            roaming: roaming.collect(),
            mobile_of,
            routes: Routes::new(&config.nodes, &config.links),
            per_link: config.addressing.iter().any(|host| host.addresses == Addresses::PerLink),
            link_up: vec![true; config.links.len()],
            schedule: Schedule::new(sources.sampler + 1),
            sources,
            pool: FramePool::default(),
            hops,
            airs,
        })
    }

    /// A node sends a packet of its own, or one that it has received, on its way.
    #[inline]
    pub(crate) fn forward<O: Observer>(&mut self, now: Instant, node: NodeId, frame: Box<Frame>, observer: &mut O) {
        if !self.mobile_of.is_empty() {
            return self.forward_among_mobiles(now, node, frame, observer);
        }
        match NodeId::of(frame.packet.dst) {
            Some(destination) => self.forward_towards(now, node, destination, frame, observer),
            None => observer.dropped(now, Dropped::NoRoute(node), &frame),
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
                None => observer.dropped(now, Dropped::NoRoute(node), &frame),
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
        let Some(cell) = roaming.binding else { return observer.dropped(now, Dropped::NoRoute(node), &frame) };
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
        let Some(index) = self.next_hop(node, destination, &frame) else {
            return observer.dropped(now, Dropped::NoRoute(node), &frame);
        };
        let hop = &mut self.hops[index];
        let medium = Medium::Link(hop.id);
        observer.packet(now, Place { node, medium, direction: Direction::Out }, &frame);
        hop.link.handle_packet(now, frame);
        // Taking a packet makes nothing but drops of it: connectivity changes in the link's own turn.
        while let Some(event) = hop.link.poll_event() {
            if let LinkEvent::Dropped { at, cause, frame } = event {
                observer.dropped(at, Dropped::Lost(medium, cause), &frame);
            }
        }
        self.reschedule_hop(index);
    }

    #[inline]
    fn next_hop(&self, node: NodeId, destination: NodeId, frame: &Frame) -> Option<usize> {
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

    /// Which of a host's links a link is.
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
        observer.packet(now, air.place(air.base, Direction::Out), &frame);
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
        observer.packet(now, air.place(from, Direction::Out), &frame);
        air.cell.handle_packet(now, CellHop::Up { from: station(from), frame });
        self.reschedule_air(now, cell);
    }

    #[inline]
    pub(crate) fn reschedule_hop(&mut self, hop: usize) {
        let deadline = self.hops[hop].link.poll_timeout().map(|(at, _)| at);
        self.schedule.set(hop, deadline);
    }

    pub(crate) fn reschedule_air(&mut self, now: Instant, cell: usize) {
        let deadline = self.airs[cell].deadline(now);
        self.schedule.set(self.sources.cells + cell, deadline);
    }

    /// The mobile host that a node is.
    pub(crate) fn mobile(&self, node: NodeId) -> Option<usize> {
        self.mobile_of.get(node.index()).copied().flatten().map(|mobile| mobile as usize)
    }

    /// The cell of a base station.
    pub(crate) fn cell_of(&self, base: NodeId) -> Option<usize> {
        self.airs.iter().position(|air| air.base == base)
    }

    pub(crate) fn set_link_up(&mut self, link: LinkId, up: bool) {
        self.link_up[link.0 as usize] = up;
    }

    pub(crate) fn is_link_up(&self, link: usize) -> bool {
        self.link_up[link]
    }

    /// How many links a host has.
    pub(crate) fn accesses(&self, node: NodeId) -> usize {
        self.routes.accesses(node)
    }

    /// The first link of a host that is up.
    pub(crate) fn first_link_up(&self, node: NodeId) -> Option<LinkId> {
        self.routes.first_up(node, &self.link_up).map(|link| LinkId(link as u32))
    }

    /// The directed links from one node to another that does not move; `None` if there is no way.
    pub(crate) fn wired_way(&self, from: NodeId, to: NodeId) -> Option<Vec<usize>> {
        let mut hops = Vec::new();
        let mut at = from;
        while at != to {
            if at != from && self.routes.accesses(at) > 0 {
                return None;
            }
            let hop = self.routes.next_hop(at, to, &self.link_up)?;
            hops.push(hop);
            at = self.hops[hop].to;
        }
        Some(hops)
    }

    /// The way from one host to another as things stand; `None` while there is none.
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

/// One direction of a link, as it is described.
pub(crate) fn config_of(config: &WorldConfig, hop: usize) -> LinkConfig {
    let link = &config.links[hop / 2];
    if hop.is_multiple_of(2) { link.forward.clone() } else { backward(link) }
}

/// The capacity of one direction of a link.
pub(crate) fn capacity_of(config: &WorldConfig, hop: usize) -> Option<Capacity> {
    Capacity::new(&config_of(config, hop), outage_seed(config.seed, &config.links[hop / 2])).ok()
}

fn outage_seed(seed: u64, link: &LinkBetween) -> u64 {
    Rng::split(seed, &format!("outages of {}", link.name)).next_u64()
}

fn backward(link: &LinkBetween) -> LinkConfig {
    LinkConfig { outages: link.forward.outages.clone(), ..link.backward.clone() }
}

fn hops_of(id: LinkId, link: &LinkBetween, seed: u64) -> Result<[Hop; 2], WorldError> {
    let outage_seed = outage_seed(seed, link);
    let make = |config: &LinkConfig, direction: &str| {
        let seed = Rng::split(seed, &format!("{direction} {}", link.name)).next_u64();
        PointToPoint::with_outage_seed(config, seed, outage_seed)
            .map_err(|error| WorldError::Link { link: link.name.clone(), error })
    };
    Ok([
        Hop { link: make(&link.forward, "forward")?, id, from: link.a, to: link.b },
        Hop { link: make(&backward(link), "backward")?, id, from: link.b, to: link.a },
    ])
}
