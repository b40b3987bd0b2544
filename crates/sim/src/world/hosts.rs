//! Packets arrive at nodes, and hosts have their turn.

use holdover_wire::Payload;

use super::World;
use crate::app;
use crate::config::NodeId;
use crate::flow::{End, FIRST_PORT, FlowId};
use crate::frame::Frame;
use crate::hook::Connectivity;
use crate::mobility::messages::Message;
use crate::observer::{Dropped, Observer};

impl World {
    /// A packet has come to a node.
    pub(super) fn arrive<O: Observer>(&mut self, node: NodeId, frame: Box<Frame>, observer: &mut O) {
        let Some(host) = self.host_of[node.index()] else { return self.arrive_at_router(node, frame, observer) };
        let host = host as usize;
        if let Payload::Udp(udp) = &frame.packet.payload {
            let flow = usize::from(udp.dst_port.wrapping_sub(FIRST_PORT));
            if let Some(message) = Message::of(&frame.packet) {
                self.hear_message(node, message, observer);
            } else if let Some(flow) = self.flows.get_mut(flow) {
                flow.read_at_to += udp.payload.len() as u64;
                flow.note_new_data(self.now);
            }
            return self.network.pool.take_back(frame);
        }
        self.hosts[host].endpoint.handle_packet(self.now, &frame.packet);
        self.network.pool.take_back(frame);
        self.serve(host, observer);
    }

    fn arrive_at_router<O: Observer>(&mut self, node: NodeId, mut frame: Box<Frame>, observer: &mut O) {
        if frame.tunnel == Some(node) {
            frame.leave_tunnel();
            let mobile = NodeId::of(frame.packet.dst);
            return match (self.network.cell_of(node), mobile) {
                (Some(cell), Some(mobile)) => self.network.send_down(self.now, cell, mobile, frame, observer),
                _ => observer.dropped(self.now, Dropped::NoRoute(node), &frame),
            };
        }
        if NodeId::of(frame.packet.dst) == Some(node) {
            if let Some(message) = Message::of(&frame.packet) {
                self.relay_message(node, message, observer);
            }
            return;
        }
        // One hop less to live (RFC 1812 section 5.3.1). In a tunnel it is the outer header that counts, which starts anew.
        if frame.tunnel.is_none() {
            frame.packet.ttl = frame.packet.ttl.saturating_sub(1);
        }
        if frame.packet.ttl == 0 {
            return observer.dropped(self.now, Dropped::HopLimit(node), &frame);
        }
        self.network.forward(self.now, node, frame, observer);
    }

    /// A host has its turn: it sends what there is to send, and its applications hear what happened.
    pub(super) fn serve<O: Observer>(&mut self, host: usize, observer: &mut O) {
        let now = self.now;
        loop {
            let node = self.hosts[host].node;
            while let Some(out) = self.hosts[host].endpoint.poll_transmit(now) {
                let frame = self.network.pool.frame(out.packet, Some(out.reason));
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
        let source = self.network.sources.hosts + host;
        let deadline = self.hosts[host].endpoint.poll_timeout();
        self.network.schedule.set(source, deadline);
    }

    /// A host's hook hears of its connectivity, and the host has its turn.
    pub(super) fn tell<O: Observer>(&mut self, host: usize, what: Connectivity, observer: &mut O) {
        let entry = &mut self.hosts[host];
        let Some(hook) = &mut entry.hook else { return };
        hook.handle_connectivity(self.now, what, &mut entry.endpoint);
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
