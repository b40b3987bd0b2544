//! Routers with mechanisms: forwarded packets pass their chains, and they get reports of presence.

use holdover_base::Instant;
use holdover_filter::{ControlMessage, Direction, Presence, Verdict};

use super::World;
use crate::control;
use crate::frame::Frame;
use crate::gateway::Gateway;
use crate::ids::NodeId;
use crate::network::Network;
use crate::observer::{Dropped, Observer, WorldEvent};

/// How a packet continues from a router.
#[derive(Clone, Copy, Debug)]
pub(super) enum Onward {
    /// Along the router's routes; with registration, those to a mobile host lead to its mobility agent first.
    Routes,
    /// To the mobile host in this base station's cell.
    Down { cell: usize, mobile: NodeId },
}

impl Onward {
    /// The destination of a packet made by a router's mechanisms: a host that is bound to the router's cell receives it
    /// there.
    fn of(network: &Network, node: NodeId, frame: &Frame) -> Self {
        let mobile = NodeId::of(frame.packet.dst);
        let bound = mobile.and_then(|mobile| network.roaming[network.mobile(mobile)?].binding);
        match (network.cell_of(node), mobile) {
            (Some(cell), Some(mobile)) if bound == Some(cell) => Self::Down { cell, mobile },
            _ => Self::Routes,
        }
    }

    #[inline]
    fn send<O: Observer>(self, now: Instant, network: &mut Network, node: NodeId, frame: Box<Frame>, observer: &mut O) {
        match self {
            Self::Routes => network.forward(now, node, frame, observer),
            Self::Down { cell, mobile } => network.send_down(now, cell, mobile, frame, observer),
        }
    }
}

impl World {
    /// Passes a packet that `node` forwards through its mechanisms, if it has any and the packet is to or from one of their mobile hosts;
    /// then it continues.
    #[inline]
    pub(super) fn pass_gateway<O: Observer>(
        &mut self,
        node: NodeId,
        onward: Onward,
        frame: Box<Frame>,
        observer: &mut O,
    ) {
        match self.gateway_index(node) {
            Some(index) if frame.tunnel.is_none() => self.pass_chain(index, onward, frame, observer),
            _ => onward.send(self.now, &mut self.network, node, frame, observer),
        }
    }

    fn pass_chain<O: Observer>(&mut self, index: usize, onward: Onward, mut frame: Box<Frame>, observer: &mut O) {
        let now = self.now;
        let gateway = &mut self.gateways[index];
        let node = gateway.node;
        let (from, to) = gateway.mobile_ends(&frame);
        let mut verdict = Verdict::Pass;
        // A packet between two mobile hosts is first handled as one from its sender.
        for (_, direction) in [(from, Direction::Incoming), (to, Direction::Outgoing)].iter().filter(|(is, _)| *is) {
            if verdict == Verdict::Pass {
                verdict = gateway.chain.handle_packet(now, *direction, &mut frame.packet);
            }
        }
        match verdict {
            Verdict::Pass => {
                frame.measure();
                onward.send(now, &mut self.network, node, frame, observer);
            }
            Verdict::Drop => observer.dropped(now, Dropped::Filtered(node), &frame),
            Verdict::Keep => self.network.pool.take_back(frame),
        }
        self.send_made_packets(index, usize::from(verdict == Verdict::Keep), observer);
    }

    /// Whether the mechanisms of a router handle a packet that arrived at it.
    pub(super) fn is_operation(&self, node: NodeId, frame: &Frame) -> bool {
        let Some(index) = self.gateway_index(node) else { return false };
        let is_open = frame.tunnel.is_none_or(|end| end == node);
        let is_control = NodeId::of(frame.packet.dst) == Some(node) && control::of(&frame.packet).is_some();
        let (from, to) = self.gateways[index].mobile_ends(frame);
        is_open && (from || to || is_control)
    }

    /// Sends packets made by a router's mechanisms. The first `kept` packets replace arrived ones.
    fn send_made_packets<O: Observer>(&mut self, index: usize, kept: usize, observer: &mut O) {
        let now = self.now;
        let mut made = Vec::new();
        let mut compressed_bytes = 0;
        let Self { gateways, network, cpus, .. } = self;
        let gateway = &mut gateways[index];
        while let Some(injected) = gateway.chain.poll_transmit() {
            let mut frame = network.pool.frame(injected.packet, None);
            if injected.direction == Direction::Outgoing
                && let Some(compression) = &gateway.compression
            {
                frame.compress(compression);
                compressed_bytes += frame.compressed_bytes();
            }
            if !cpus.is_empty() {
                made.push(holdover_link::Frame::wire_len(&frame));
            }
            let onward = Onward::of(network, gateway.node, &frame);
            onward.send(now, network, gateway.node, frame, observer);
        }
        while let Some(message) = gateway.chain.poll_control() {
            let frame = network.pool.frame(control::packet(gateway.node, message), None);
            if !cpus.is_empty() {
                made.push(holdover_link::Frame::wire_len(&frame));
            }
            network.forward(now, gateway.node, frame, observer);
        }
        while let Some(action) = gateway.chain.poll_action() {
            observer.event(now, &WorldEvent::Mechanism(gateway.node, action));
        }
        while let Some(lost) = gateway.chain.poll_dropped() {
            observer.dropped(now, Dropped::Filtered(gateway.node), &Frame::new(lost, None));
        }
        while gateway.chain.poll_outcome().is_some() {}
        gateway.most_stored = gateway.most_stored.max(gateway.chain.stored());
        network.schedule.set(network.sources.gateways + index, gateway.chain.poll_timeout());
        let node = gateway.node;
        if made.len() > kept {
            self.charge_made(node, &made[kept..]);
        }
        if compressed_bytes > 0 {
            self.charge_compression(node, compressed_bytes);
        }
    }

    /// Handles a control message that arrived at a router.
    pub(super) fn take_control<O: Observer>(
        &mut self,
        node: NodeId,
        message: &ControlMessage,
        frame: Box<Frame>,
        observer: &mut O,
    ) {
        let index = self.gateway_index(node);
        if index.is_some_and(|index| self.gateways[index].chain.handle_control(self.now, message)) {
            self.network.pool.take_back(frame);
        } else {
            observer.dropped(self.now, Dropped::NoListener(node), &frame);
        }
        if let Some(index) = index {
            self.send_made_packets(index, 0, observer);
        }
    }

    /// A router's link layer reports the presence of a host, or of a router, whose hosts are present or absent with it. Ignored by routers
    /// without mechanisms for these hosts.
    pub(super) fn tell_gateway<O: Observer>(
        &mut self,
        node: NodeId,
        neighbour: NodeId,
        presence: Presence,
        observer: &mut O,
    ) {
        let Some(index) = self.gateway_index(node).filter(|&index| self.gateways[index].hears_links) else { return };
        self.tell_chain(index, neighbour, presence, observer);
        for mobile in self.gateways[index].behind.get(&neighbour).cloned().unwrap_or_default() {
            self.tell_chain(index, mobile, presence, observer);
        }
    }

    /// A link with ARQ failed to transmit a frame: reports it to the mechanisms of the router at its near end, if they may see the packet
    /// and serve its destination.
    pub(super) fn attempt_failed<O: Observer>(&mut self, hop: usize, frame: Box<Frame>, observer: &mut O) {
        let is_readable = !frame.raw && !frame.is_encrypted() && frame.tunnel.is_none();
        let to = NodeId::of(frame.packet.dst).filter(|_| is_readable);
        let hears = |gateway: &Gateway| gateway.hears_links && to.is_some_and(|to| gateway.mobiles.contains_key(&to));
        let index = self.gateway_index(self.network.hops[hop].from).filter(|&index| hears(&self.gateways[index]));
        if let Some(index) = index {
            self.gateways[index].chain.handle_failed_attempt(self.now, &frame.packet);
            self.send_made_packets(index, 0, observer);
        }
        self.network.pool.take_back(frame);
    }

    /// Reports a registration to a mobility agent's mechanisms.
    pub(super) fn tell_of_registration<O: Observer>(
        &mut self,
        agent: NodeId,
        mobile: NodeId,
        presence: Presence,
        observer: &mut O,
    ) {
        if let Some(index) = self.gateway_index(agent) {
            self.tell_chain(index, mobile, presence, observer);
        }
    }

    fn tell_chain<O: Observer>(&mut self, index: usize, mobile: NodeId, presence: Presence, observer: &mut O) {
        let Gateway { chain, mobiles, .. } = &mut self.gateways[index];
        let Some(addresses) = mobiles.get(&mobile) else { return };
        for &address in addresses {
            chain.handle_mobile(self.now, address, presence);
        }
        self.send_made_packets(index, 0, observer);
    }

    /// Handles a deadline of a router's mechanisms.
    pub(super) fn step_gateway<O: Observer>(&mut self, index: usize, observer: &mut O) {
        self.gateways[index].chain.handle_timeout(self.now);
        self.send_made_packets(index, 0, observer);
    }

    #[inline]
    pub(super) fn gateway_index(&self, node: NodeId) -> Option<usize> {
        self.gateways.iter().position(|gateway| gateway.node == node)
    }
}
