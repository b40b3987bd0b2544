//! Delivers packets to nodes, and serves hosts.

use core::net::IpAddr;

use holdover_filter::ControlMessage;
use holdover_mobility::mobile_ip::Message;
use holdover_mobility::{Direction, LinkEvent, Verdict};
use holdover_wire::{Payload, Unreachable};

use super::World;
use super::gateways::Onward;
use crate::app;
use crate::control;
use crate::external::ShellCommand;
use crate::flow::{End, FIRST_PORT};
use crate::frame::Frame;
use crate::host::Host;
use crate::ids::{FlowId, NodeId};
use crate::observer::{Dropped, Observer, WorldEvent};

impl World {
    /// Handles a packet that arrived at a node.
    #[inline(always)]
    pub(super) fn arrive<O: Observer>(&mut self, node: NodeId, frame: Box<Frame>, observer: &mut O) {
        let Some(host) = self.host_of[node.index()] else { return self.queue_at_router(node, frame, observer) };
        if self.latencies.is_empty() {
            self.receive(node, host as usize, frame, observer);
        } else {
            self.receive_later(node, host as usize, frame, observer);
        }
    }

    /// Handles a packet that a host has received.
    #[inline(always)]
    pub(super) fn receive<O: Observer>(&mut self, node: NodeId, host: usize, frame: Box<Frame>, observer: &mut O) {
        let entry = &mut self.hosts[host];
        if entry.is_plain() && !entry.external && frame.packet.tcp().is_some() {
            entry.endpoint.handle_packet(self.now, &frame.packet);
            self.network.pool.take_back(frame);
            return self.serve(host, observer);
        }
        self.arrive_at_equipped_host(node, host, frame, observer);
    }

    /// Handles a packet that is not TCP, or that arrived at a host with mechanisms, an identity or a TCP elsewhere.
    fn arrive_at_equipped_host<O: Observer>(&mut self, node: NodeId, host: usize, frame: Box<Frame>, observer: &mut O) {
        let Some(frame) = self.open(host, frame, observer) else { return };
        if let Payload::Udp(udp) = &frame.packet.payload {
            let flow = usize::from(udp.dst_port.wrapping_sub(FIRST_PORT));
            if let Some(message) = Message::of(&frame.packet) {
                self.hear_message(node, message, observer);
                return self.network.pool.take_back(frame);
            }
            if let Some(message) = control::of(&frame.packet).filter(|_| !self.hosts[host].external) {
                return self.take_control_at_host(host, &message, frame, observer);
            }
            // Other datagrams are for the host's mechanisms.
            if !self.hosts[host].external
                && let Some(flow) = self.flows.get_mut(flow)
            {
                flow.read_at_to += udp.payload.len() as u64;
                flow.note_new_data(self.now);
                return self.network.pool.take_back(frame);
            }
        }
        self.take_in(host, frame, observer);
        self.serve(host, observer);
    }

    /// Passes a packet for a host through its mechanisms to its TCP.
    fn take_in<O: Observer>(&mut self, host: usize, mut frame: Box<Frame>, observer: &mut O) {
        let Host { node, endpoint, chain, external, .. } = &mut self.hosts[host];
        let verdict = chain
            .as_mut()
            .map_or(Verdict::Pass, |chain| chain.handle_packet(self.now, Direction::Incoming, &mut frame.packet));
        match verdict {
            Verdict::Pass if *external => {
                return self.shell_commands.push_back(ShellCommand::Deliver { node: *node, at: self.now, frame });
            }
            Verdict::Pass => {
                endpoint.handle_packet(self.now, &frame.packet);
                if let Some(chain) = chain {
                    chain.steer(self.now, endpoint);
                }
            }
            Verdict::Drop => observer.dropped(self.now, Dropped::Filtered(*node), &frame),
            Verdict::Keep => {}
        }
        self.network.pool.take_back(frame);
    }

    /// Handles a control message that arrived at a host.
    fn take_control_at_host<O: Observer>(
        &mut self,
        host: usize,
        message: &ControlMessage,
        frame: Box<Frame>,
        observer: &mut O,
    ) {
        let Host { node, endpoint, chain, .. } = &mut self.hosts[host];
        let is_taken = chain.as_mut().is_some_and(|chain| chain.handle_control(self.now, message));
        if let Some(chain) = chain {
            chain.steer(self.now, endpoint);
        }
        if is_taken {
            self.network.pool.take_back(frame);
        } else {
            observer.dropped(self.now, Dropped::NoListener(*node), &frame);
        }
        self.serve(host, observer);
    }

    pub(super) fn arrive_at_router<O: Observer>(&mut self, node: NodeId, mut frame: Box<Frame>, observer: &mut O) {
        if frame.tunnel == Some(node) {
            frame.leave_tunnel();
            let mobile = NodeId::of(frame.packet.dst);
            return match (self.network.cell_of(node), mobile) {
                (Some(cell), Some(mobile)) => self.pass_gateway(node, Onward::Down { cell, mobile }, frame, observer),
                _ => observer.dropped(self.now, Dropped::NoRoute(node), &frame),
            };
        }
        if NodeId::of(frame.packet.dst) == Some(node) {
            if let Some(message) = Message::of(&frame.packet) {
                self.relay_message(node, message, observer);
            } else if let Some(message) = control::of(&frame.packet).filter(|_| !self.is_external_router(node)) {
                self.take_control(node, &message, frame, observer);
            } else if self.is_external_router(node) {
                self.shell_commands.push_back(ShellCommand::Deliver { node, at: self.now, frame });
            }
            return;
        }
        if self.is_external_router(node) {
            return self.shell_commands.push_back(ShellCommand::Deliver { node, at: self.now, frame });
        }
        // Lowers the hop limit (RFC 1812 section 5.3.1). In a tunnel the outer header has its own limit, which starts again.
        if frame.tunnel.is_none() {
            if frame.packet.ttl <= 1 {
                let exceeded = Unreachable::TimeExceeded { code: 0 };
                return self.network.refuse(self.now, Dropped::HopLimit(node), exceeded, frame, observer);
            }
            frame.packet.ttl -= 1;
        }
        self.pass_gateway(node, Onward::Routes, frame, observer);
    }

    /// Serves a host: sends its pending packets, and reports events to its applications.
    pub(super) fn serve<O: Observer>(&mut self, host: usize, observer: &mut O) {
        let has_chain = self.hosts[host].chain.is_some();
        loop {
            if has_chain {
                self.send_passed_packets(host, observer);
            }
            self.send_pending(host, observer);
            let entry = &mut self.hosts[host];
            if has_chain && entry.chain.as_ref().is_some_and(|chain| chain.has_transmit()) {
                continue;
            }
            let Some((id, event)) = entry.endpoint.poll_event() else { break };
            let owner = entry.owner(id).or_else(|| self.adopt(host, id));
            if let Some((flow, end)) = owner {
                let was_over = self.flows[flow.0 as usize].is_over();
                self.flow_turn(flow, host).hear(end, event, observer);
                self.after_turn(flow, was_over);
            }
        }
        self.reschedule_host(host);
    }

    /// A flow's turn at one of its hosts.
    pub(super) fn flow_turn(&mut self, flow: FlowId, host: usize) -> app::Turn<'_> {
        app::Turn {
            now: self.now,
            flow_id: flow,
            flow: &mut self.flows[flow.0 as usize],
            host: &mut self.hosts[host],
            shell_commands: &mut self.shell_commands,
        }
    }

    #[inline(always)]
    pub(super) fn reschedule_host(&mut self, host: usize) {
        let deadline = self.hosts[host].deadline();
        self.network.schedule.set(self.network.sources.hosts + host, deadline);
    }

    /// Passes the pending packets of a host's TCP through its mechanisms, and sends them.
    #[inline(always)]
    fn send_pending<O: Observer>(&mut self, host: usize, observer: &mut O) {
        loop {
            let entry = &mut self.hosts[host];
            if !entry.endpoint.is_transmission_due() {
                return;
            }
            // The TCP writes each packet to the frame in which it travels.
            let mut frame = self.network.pool.spare();
            let Some((reason, _)) = entry.endpoint.poll_transmit_into(self.now, &mut frame.packet) else {
                return self.network.pool.take_back(frame);
            };
            frame.renew(Some(reason));
            if entry.is_plain() {
                self.network.send(self.now, entry.node, frame, observer);
            } else {
                self.send_frame(host, frame, observer);
            }
        }
    }

    /// Passes a packet of a host's TCP, or of another one's, through the host's mechanisms, and sends it.
    #[inline]
    pub(super) fn send_frame<O: Observer>(&mut self, host: usize, mut frame: Box<Frame>, observer: &mut O) {
        let now = self.now;
        let Host { node, chain, .. } = &mut self.hosts[host];
        let Some(chain) = chain else { return self.depart(host, frame, observer) };
        match chain.handle_packet(now, Direction::Outgoing, &mut frame.packet) {
            Verdict::Pass => {
                frame.measure();
                self.depart(host, frame, observer);
            }
            Verdict::Drop => observer.dropped(now, Dropped::Filtered(*node), &frame),
            Verdict::Keep => self.network.pool.take_back(frame),
        }
        self.send_passed_packets(host, observer);
    }

    /// Passes on packets made by a host's mechanisms, out or in: one at a time, as a host's TCP answers a packet before it accepts the
    /// next.
    fn send_passed_packets<O: Observer>(&mut self, host: usize, observer: &mut O) {
        let now = self.now;
        let Host { node, endpoint, chain: Some(chain), identity, external, .. } = &mut self.hosts[host] else { return };
        while let Some(injected) = chain.poll_transmit() {
            match injected.direction {
                Direction::Outgoing => {
                    let frame = self.network.pool.frame(injected.packet, None);
                    self.network.depart(now, *node, identity.as_deref_mut(), frame, observer);
                }
                Direction::Incoming if *external => {
                    let frame = self.network.pool.frame(injected.packet, None);
                    self.shell_commands.push_back(ShellCommand::Deliver { node: *node, at: now, frame });
                }
                Direction::Incoming => {
                    endpoint.handle_packet(now, &injected.packet);
                    chain.steer(now, endpoint);
                    break;
                }
            }
        }
        while let Some(message) = chain.poll_control() {
            let frame = self.network.pool.frame(control::packet(*node, message), None);
            self.network.depart(now, *node, identity.as_deref_mut(), frame, observer);
        }
        while let Some(action) = chain.poll_action() {
            observer.event(now, &WorldEvent::Mechanism(*node, action));
        }
        // A run's captures show both ends of each connection, so outcomes are not needed.
        while chain.poll_outcome().is_some() {}
    }

    /// Reports a link event to a host's mechanisms, and serves the host.
    pub(super) fn tell<O: Observer>(&mut self, host: usize, what: LinkEvent, observer: &mut O) {
        self.tell_of_peer(host, None, what, observer);
    }

    /// The same, for the path to one peer if given.
    pub(super) fn tell_of_peer<O: Observer>(
        &mut self,
        host: usize,
        peer: Option<&[IpAddr]>,
        what: LinkEvent,
        observer: &mut O,
    ) {
        let entry = &mut self.hosts[host];
        if let Some(forewarning) = &mut entry.forewarning
            && matches!(what, LinkEvent::Down | LinkEvent::Up { .. })
        {
            forewarning.look_at(self.now, entry.link, &self.config);
        }
        let Some(chain) = &mut entry.chain else { return self.reschedule_host(host) };
        match peer {
            None => chain.handle_link(self.now, what),
            Some(peer) => chain.handle_peer(self.now, peer, what),
        }
        chain.steer(self.now, &mut entry.endpoint);
        self.serve(host, observer);
    }

    /// Handles a deadline of a host's TCP, its mechanisms, or its forewarning.
    pub(super) fn step_host<O: Observer>(&mut self, host: usize, observer: &mut O) {
        let entry = &mut self.hosts[host];
        entry.endpoint.handle_timeout(self.now);
        if let Some(chain) = &mut entry.chain {
            chain.handle_timeout(self.now);
            chain.steer(self.now, &mut entry.endpoint);
        }
        if entry.identity.is_some() {
            self.step_identity(host, observer);
        }
        let entry = &mut self.hosts[host];
        let lead = entry.forewarning.as_mut().and_then(|forewarning| forewarning.warn(self.now));
        if let Some(lead) = lead {
            observer.event(self.now, &WorldEvent::LinkFading(entry.node, lead));
            self.tell(host, LinkEvent::Fading { lead: Some(lead) }, observer);
        }
        self.serve(host, observer);
    }

    /// A connection that a listener accepted belongs to the flow of its port.
    fn adopt(&mut self, host: usize, id: holdover_tcp::ConnectionId) -> Option<(FlowId, End)> {
        let port = self.hosts[host].endpoint.connection(id)?.local().port();
        let flow = FlowId(u32::from(port.checked_sub(FIRST_PORT)?));
        let end = self.flows.get(flow.0 as usize)?.opener().other();
        self.hosts[host].set_owner(id, flow, end);
        self.flows[flow.0 as usize].set_connection(end, id);
        Some((flow, end))
    }
}
