//! The world's side of external hosts: see [`crate::external`].

use core::net::IpAddr;

use holdover_base::Instant;
use holdover_wire::Packet;

use super::{Ending, World};
use crate::config::{NodeId, Traffic};
use crate::external::{Order, Tidings};
use crate::flow::{ConnectionReport, End, FlowId};
use crate::frame::Frame;
use crate::observer::{Observer, Sample};

impl World {
    /// Makes a host external, before the run begins. Returns whether there is such a host.
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

    /// A packet that an external host has sent enters the network through the host's mechanisms. Packets of other nodes are
    /// ignored.
    pub fn handle_external<O: Observer>(&mut self, now: Instant, node: NodeId, packet: Packet, observer: &mut O) {
        self.now = self.now.max(now);
        let Some(host) = self.host_index(node).filter(|&host| self.hosts[host].external) else { return };
        let frame = self.network.pool.frame(packet, None);
        self.send_frame(host, frame, observer);
        self.serve(host, observer);
    }

    /// An application on an external host has seen something.
    pub fn handle_tidings<O: Observer>(
        &mut self,
        now: Instant,
        flow: FlowId,
        end: End,
        tidings: Tidings,
        observer: &mut O,
    ) {
        self.now = self.now.max(now);
        let Some(entry) = self.flows.get_mut(flow.0 as usize) else { return };
        if let (Traffic::OnOff(_), Tidings::Read(bytes)) = (entry.config.traffic, tidings) {
            entry.read_at_to += bytes;
            entry.note_new_data(self.now);
            return;
        }
        let (node, was_over) = (entry.node(end), entry.is_over());
        let Some(host) = self.host_index(node) else { return };
        let mut turn = self.flow_turn(flow, host);
        match tidings {
            Tidings::Connected => turn.connected(end, observer),
            Tidings::Read(bytes) => turn.take_in(end, bytes, observer),
            Tidings::PeerClosed => turn.peer_closed(end, observer),
            Tidings::Failed(error) => turn.fail(error, observer),
        }
        self.after_turn(flow, was_over);
    }

    /// What a sampled socket has said of a flow's sender, in answer to [`Order::Sample`]. How much the other application has
    /// read is filled in here.
    pub fn handle_sample<O: Observer>(&mut self, now: Instant, flow: FlowId, sample: Sample, observer: &mut O) {
        self.now = self.now.max(now);
        let Some(entry) = self.flows.get(flow.0 as usize) else { return };
        observer.sample(self.now, flow, &Sample { bytes_received: entry.read_at_to, ..sample });
    }

    /// What a connection of an external host has done, for [`World::report`].
    pub fn set_connection_report(&mut self, flow: FlowId, end: End, report: ConnectionReport) {
        if let Some(entry) = self.flows.get_mut(flow.0 as usize) {
            entry.told[end as usize] = Some(report);
        }
    }

    /// The next order to the shell of external hosts.
    pub fn poll_order(&mut self) -> Option<Order> {
        self.orders.pop_front()
    }

    /// When something happens next, if nothing comes from outside; `None` if nothing does.
    pub fn next_deadline(&self) -> Option<Instant> {
        self.network.schedule.next().map(|(at, _)| at)
    }

    /// The port that a flow's listener listens at, and which end that is; for UDP the port of both ends.
    pub fn listener(&self, flow: FlowId) -> Option<(End, u16)> {
        self.flows.get(flow.0 as usize).map(|flow| (flow.opener().other(), flow.port))
    }

    /// Gives a frame of [`Order::Deliver`] back, to be used again.
    pub fn take_back(&mut self, frame: Box<Frame>) {
        self.network.pool.take_back(frame);
    }

    /// The address that a new connection of a host is bound to: the host's own, or (with addresses for each link and without an
    /// identity) that of the link that it uses.
    pub fn address_in_use(&self, node: NodeId, ipv6: bool) -> IpAddr {
        if self.has_identity(node) { node.address(ipv6) } else { self.locators(node).address(ipv6) }
    }

    /// Nothing happens by itself up to `until`: what comes from outside does.
    pub(super) fn wait_for_external(&mut self, until: Instant) -> Option<Ending> {
        self.now = self.now.max(until.min(self.config.time_limit));
        (until >= self.config.time_limit).then_some(Ending::TimeLimit)
    }
}
