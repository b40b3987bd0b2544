//! The world's part for external hosts: see [`crate::external`].

use core::net::IpAddr;

use bytes::Bytes;
use holdover_base::Instant;
use holdover_wire::Packet;

use super::{Ending, World};
use crate::config::{Role, Traffic};
use crate::external::{ShellCommand, SocketEvent};
use crate::flow::{ConnectionReport, End};
use crate::frame::Frame;
use crate::ids::{FlowId, LinkId, NodeId};
use crate::layer2::EthernetHeader;
use crate::observer::{Dropped, Observer, Sample};

impl World {
    /// Makes a host external, before the run begins. Returns whether the host exists.
    pub fn set_external(&mut self, node: NodeId) -> bool {
        let Some(host) = self.host_index(node) else { return false };
        self.hosts[host].external = true;
        self.has_external = true;
        true
    }

    /// Whether a node is an external host.
    pub fn is_external(&self, node: NodeId) -> bool {
        self.has_external && self.host_index(node).is_some_and(|host| self.hosts[host].external)
    }

    /// A packet that an external node has sent enters the network; that of a host passes the host's mechanisms. `on` is the link to which
    /// its interface is attached, with the packet's Ethernet header if it has one, and `None` for an interface for all other links. Packets
    /// of other nodes are ignored.
    pub fn handle_interface<O: Observer>(
        &mut self,
        now: Instant,
        node: NodeId,
        on: Option<(LinkId, Option<EthernetHeader>)>,
        packet: Packet,
        observer: &mut O,
    ) {
        self.now = self.now.max(now);
        let mut frame = self.network.pool.frame(packet, None);
        if let Some((link, header)) = on {
            (frame.link, frame.ethernet) = (Some(link), header);
        }
        match self.host_index(node) {
            Some(host) if self.hosts[host].external => {
                self.send_frame(host, frame, observer);
                self.serve(host, observer);
            }
            None if self.is_external_router(node) => {
                let way = NodeId::of(frame.packet.dst).and_then(|to| self.network.next_hop(node, to, &frame));
                // A packet for an attached link has already left through that link's interface, or has no route to it.
                if on.is_none() && way.is_some_and(|hop| self.network.hops[hop].attached) {
                    return observer.dropped(self.now, Dropped::NoRoute(node), &frame);
                }
                self.network.forward(self.now, node, frame, observer);
            }
            _ => {}
        }
    }

    /// An interface that is attached to a link has sent a frame other than a packet between nodes: it crosses the link to the other
    /// interface only. It is not reported to observers.
    pub fn handle_raw<O: Observer>(
        &mut self,
        now: Instant,
        node: NodeId,
        link: LinkId,
        header: EthernetHeader,
        payload: Bytes,
        observer: &mut O,
    ) {
        self.now = self.now.max(now);
        let Some(hop) = self.network.hop_from(node, link).filter(|&hop| self.network.hops[hop].attached) else {
            return;
        };
        self.network.send_along(self.now, hop, Box::new(Frame::raw(header, payload)), observer);
    }

    /// Makes a router external, before the run begins: packets that arrive at it are passed to its kernel, which forwards them. Returns
    /// whether the router exists.
    pub fn set_external_router(&mut self, node: NodeId) -> bool {
        let is_router = self.config.nodes.get(node.index()).is_some_and(|node| node.role == Role::Router);
        if is_router && !self.is_external_router(node) {
            self.external_routers.push(node);
            self.has_external = true;
        }
        is_router
    }

    pub(super) fn is_external_router(&self, node: NodeId) -> bool {
        self.external_routers.contains(&node)
    }

    /// Makes the ends of a link interfaces of kernels, before the run begins; both nodes must be external. Returns whether the link exists.
    pub fn attach_link(&mut self, link: LinkId) -> bool {
        let hops = self.network.hops.iter_mut().filter(|hop| hop.id == link);
        let found = hops.map(|hop| hop.attached = true).count() > 0;
        if let Some(segment) = self.network.segments.get_mut(link.0 as usize).and_then(Option::as_mut) {
            segment.resolves = false;
        }
        found
    }

    /// Handles an event of an application on an external host.
    pub fn handle_socket_event<O: Observer>(
        &mut self,
        now: Instant,
        flow: FlowId,
        end: End,
        event: SocketEvent,
        observer: &mut O,
    ) {
        self.now = self.now.max(now);
        let Some(entry) = self.flows.get_mut(flow.0 as usize) else { return };
        if let (Traffic::OnOff(_), SocketEvent::Read(bytes)) = (entry.config.traffic, event) {
            entry.read_at_to += bytes;
            entry.note_new_data(self.now);
            return;
        }
        let (node, was_over) = (entry.node(end), entry.is_over());
        let Some(host) = self.host_index(node) else { return };
        let mut turn = self.flow_turn(flow, host);
        match event {
            SocketEvent::Connected => turn.connected(end, observer),
            SocketEvent::Read(bytes) => turn.take_in(end, bytes, observer),
            SocketEvent::PeerClosed => turn.peer_closed(end, observer),
            SocketEvent::Failed(error) => turn.fail(error, observer),
        }
        self.after_turn(flow, was_over);
    }

    /// Handles the state of a flow's sender from a sampled socket, in answer to [`ShellCommand::Sample`]. The bytes read by the other application
    /// are filled in here.
    pub fn handle_sample<O: Observer>(&mut self, now: Instant, flow: FlowId, sample: Sample, observer: &mut O) {
        self.now = self.now.max(now);
        let Some(entry) = self.flows.get(flow.0 as usize) else { return };
        observer.sample(self.now, flow, &Sample { bytes_received: entry.read_at_to, ..sample });
    }

    /// Sets the report about a connection of an external host, for [`World::report`].
    pub fn set_connection_report(&mut self, flow: FlowId, end: End, report: ConnectionReport) {
        if let Some(entry) = self.flows.get_mut(flow.0 as usize) {
            entry.take_report(end, report);
        }
    }

    /// The next command for the shell of external hosts.
    pub fn poll_shell_command(&mut self) -> Option<ShellCommand> {
        self.shell_commands.pop_front()
    }

    /// The time of the next event, without input from outside; `None` if there is none.
    pub fn next_deadline(&self) -> Option<Instant> {
        self.network.schedule.next().map(|(at, _)| at)
    }

    /// The port on which a flow's listener listens, and the listener's end; for UDP the port of both ends.
    pub fn listener(&self, flow: FlowId) -> Option<(End, u16)> {
        self.flows.get(flow.0 as usize).map(|flow| (flow.opener().other(), flow.port))
    }

    /// Returns a frame of [`ShellCommand::Deliver`] for reuse.
    pub fn take_back(&mut self, frame: Box<Frame>) {
        self.network.pool.take_back(frame);
    }

    /// The address that a new connection of a host is bound to: the host's own, or (with addresses for each link and without an identity)
    /// that of the link in use.
    pub fn address_in_use(&self, node: NodeId, ipv6: bool) -> IpAddr {
        if self.has_identity(node) { node.address(ipv6) } else { self.address_at_present(node, ipv6) }
    }

    /// Waits until `until` for input from outside.
    pub(super) fn wait_for_external(&mut self, until: Instant) -> Option<Ending> {
        self.now = self.now.max(until.min(self.config.time_limit));
        (until >= self.config.time_limit).then_some(Ending::TimeLimit)
    }
}
