//! Hosts with an identity.

use core::net::IpAddr;
use std::collections::BTreeMap;

use holdover_base::Instant;
use holdover_hip::codec::PROTOCOL;
use holdover_hip::host::PathChange;
use holdover_mobility::LinkEvent;
use holdover_wire::Payload;

use super::World;
use crate::config::{Associate, WorldConfig};
use crate::flow::Flow;
use crate::frame::Frame;
use crate::identity::{Attachment, Effect, Identity, Outgoing};
use crate::ids::NodeId;
use crate::network::Network;
use crate::observer::{Observer, WorldEvent};

impl World {
    /// Creates the identities of hosts, and the associations between hosts that share flows.
    pub(super) fn give_identities(&mut self) {
        let versions = versions(&self.config);
        for index in 0..self.config.addressing.len() {
            let host = &self.config.addressing[index];
            let (Some(config), Some(entry)) = (host.identity, self.host_index(host.node)) else { continue };
            let [v4, v6] = versions.get(&host.node).copied().unwrap_or_default();
            let ip_versions = [(false, v4 || !v6), (true, v6)].into_iter().filter_map(|(it, has)| has.then_some(it));
            let locators = ip_versions.map(|ipv6| self.address_at_present(host.node, ipv6)).collect();
            let name = &self.config.nodes[host.node.index()].name;
            let identity = Identity::new(config, name, self.config.seed, locators);
            self.hosts[entry].identity = Some(Box::new(identity));
        }
        for index in 0..self.flows.len() {
            let flow = &self.flows[index].config;
            let (from, to) = (self.host_index(flow.from), self.host_index(flow.to));
            let ends = from.zip(to).map(|(from, to)| self.hosts.get_disjoint_mut([from, to]));
            let Some(Ok([from, to])) = ends else { continue };
            if let (Some(one), Some(other)) = (&mut from.identity, &mut to.identity) {
                introduce((from.node, one), (to.node, other));
            }
        }
    }

    /// Sends a packet of a host.
    #[inline]
    pub(super) fn depart<O: Observer>(&mut self, host: usize, frame: Box<Frame>, observer: &mut O) {
        let entry = &mut self.hosts[host];
        let deadline = |identity: &Option<Box<Identity>>| identity.as_ref().and_then(|it| it.poll_timeout());
        let before = deadline(&entry.identity);
        self.network.depart(self.now, entry.node, entry.identity.as_deref_mut(), frame, observer);
        if deadline(&self.hosts[host].identity) != before {
            self.reschedule_host(host);
        }
    }

    /// Passes a packet for a host through its identity; `None` if it ends there.
    #[inline]
    pub(super) fn open<O: Observer>(
        &mut self,
        host: usize,
        mut frame: Box<Frame>,
        observer: &mut O,
    ) -> Option<Box<Frame>> {
        let entry = &mut self.hosts[host];
        let Some(identity) = &mut entry.identity else { return Some(frame) };
        if frame.is_encrypted() {
            let Err(why) = identity.open(self.now, &mut frame) else {
                // A check of the peer's address may begin again.
                if self.network.send_control(self.now, entry.node, identity, observer) {
                    self.reschedule_host(host);
                }
                return Some(frame);
            };
            observer.dropped(self.now, why(entry.node), &frame);
        } else if matches!(frame.packet.payload, Payload::Other { protocol: PROTOCOL, .. }) {
            identity.handle_packet(self.now, &frame.packet);
        } else {
            return Some(frame);
        }
        self.network.pool.take_back(frame);
        self.attend_identity(host, observer);
        self.reschedule_host(host);
        None
    }

    /// A host with an identity uses another link than before, or none; or, if it has not `moved`, the last one again.
    pub(super) fn reattach<O: Observer>(&mut self, host: usize, moved: bool, observer: &mut O) {
        let (now, node, link) = (self.now, self.hosts[host].node, self.hosts[host].link);
        let Some(identity) = &self.hosts[host].identity else { return };
        let locators = identity.versions().iter().map(|&ipv6| self.address_at(node, link, ipv6)).collect();
        let Some(identity) = &mut self.hosts[host].identity else { return };
        if link.is_some() {
            let attachment = identity.attach(now, locators, moved);
            self.report_attachment(host, attachment, observer);
        } else if identity.detach(now) {
            self.tell(host, LinkEvent::Down, observer);
        }
        self.attend_identity(host, observer);
        self.reschedule_host(host);
    }

    /// Reports the addresses of a new attachment, once the host has noticed them, to its mechanisms.
    fn report_attachment<O: Observer>(&mut self, host: usize, attachment: Option<Attachment>, observer: &mut O) {
        match attachment {
            None => {}
            Some(Attachment::Known(moved)) => self.tell(host, LinkEvent::Up { symmetric: false, moved }, observer),
            Some(Attachment::Readdressing(known)) => {
                observer.event(self.now, &WorldEvent::ReaddressingStarted(self.hosts[host].node));
                for (peer, change) in known {
                    self.tell_path(host, peer, change, observer);
                }
            }
        }
    }

    /// Handles a deadline of a host's identity.
    pub(super) fn step_identity<O: Observer>(&mut self, host: usize, observer: &mut O) {
        if let Some(identity) = &mut self.hosts[host].identity {
            let attachment = identity.handle_timeout(self.now);
            self.report_attachment(host, attachment, observer);
        }
        self.attend_identity(host, observer);
    }

    /// Sends the HIP packets of a host's identity, and handles its events: packets are sent before their consequences.
    fn attend_identity<O: Observer>(&mut self, host: usize, observer: &mut O) {
        let now = self.now;
        let node = self.hosts[host].node;
        while let Some(identity) = &mut self.hosts[host].identity {
            self.network.send_control(now, node, identity, observer);
            let Some(effects) = identity.poll_effects(now) else { break };
            self.network.send_control(now, node, identity, observer);
            for effect in effects {
                self.handle_effect(host, effect, observer);
            }
        }
    }

    fn handle_effect<O: Observer>(&mut self, host: usize, effect: Effect, observer: &mut O) {
        let (now, node) = (self.now, self.hosts[host].node);
        let event = match effect {
            Effect::Path(peer, change) => return self.tell_path(host, peer, change, observer),
            Effect::Ready(frames) => {
                return frames.into_iter().for_each(|frame| self.depart(host, frame, observer));
            }
            Effect::Undeliverable(frames) => {
                return frames.iter().for_each(|it| observer.dropped(now, crate::Dropped::NoAssociation(node), it));
            }
            Effect::Associated(peer) => WorldEvent::Associated(node, peer),
            Effect::AssociationFailed(peer) => WorldEvent::AssociationFailed(node, peer),
            Effect::AssociationClosed(peer) => WorldEvent::AssociationClosed(node, peer),
            Effect::Readdressed(peer) => WorldEvent::Readdressed(node, peer),
            Effect::PeerReaddressed(peer, address) => {
                self.note_readdressing(peer, node, address);
                WorldEvent::Readdressed(node, peer)
            }
            Effect::GaveUp(peer) => WorldEvent::ReaddressingFailed(node, peer),
        };
        observer.event(now, &event);
    }

    /// Notes in the flows of two hosts how long it took the second one to verify the new address of the first one, unless the first one
    /// has left that address.
    fn note_readdressing(&mut self, moved: NodeId, peer: NodeId, address: IpAddr) {
        let identity = self.host_index(moved).and_then(|host| self.hosts[host].identity.as_ref());
        let Some(attached_at) = identity.and_then(|identity| identity.attached_at(address)) else { return };
        let took = self.now.saturating_since(attached_at);
        let is_between = |flow: &Flow| [(moved, peer), (peer, moved)].contains(&(flow.config.from, flow.config.to));
        for flow in self.flows.iter_mut().filter(|flow| flow.begun && !flow.is_over() && is_between(flow)) {
            flow.readdressings.push(took);
        }
    }

    /// Reports a change of the path to a peer to a host's mechanisms.
    fn tell_path<O: Observer>(&mut self, host: usize, peer: NodeId, change: PathChange, observer: &mut O) {
        let what = match change {
            PathChange::Down => LinkEvent::Down,
            PathChange::Up => LinkEvent::Up { symmetric: false, moved: false },
            PathChange::Moved => LinkEvent::Up { symmetric: true, moved: true },
        };
        self.tell_of_peer(host, Some(&[peer.address(false), peer.address(true)]), what, observer);
    }
}

/// For each host with an identity, whether it has flows with other such hosts in IPv4, and in IPv6.
fn versions(config: &WorldConfig) -> BTreeMap<NodeId, [bool; 2]> {
    let hosts = config.addressing.iter().filter(|host| host.identity.is_some());
    let mut versions: BTreeMap<NodeId, [bool; 2]> = hosts.map(|host| (host.node, [false; 2])).collect();
    for flow in &config.flows {
        if versions.contains_key(&flow.from) && versions.contains_key(&flow.to) {
            for node in [flow.from, flow.to] {
                versions.entry(node).or_default()[usize::from(flow.ipv6)] = true;
            }
        }
    }
    versions
}

/// Makes two hosts peers, and associates them if that is to be done before the run.
fn introduce((node, one): (NodeId, &mut Identity), (peer, other): (NodeId, &mut Identity)) {
    let (hits, addresses) = ((one.hit(), other.hit()), (one.locators().to_vec(), other.locators().to_vec()));
    let is_new = one.add_peer(peer, hits.1, &addresses.1) && other.add_peer(node, hits.0, &addresses.0);
    if is_new && [&*one, &*other].iter().all(|it| it.config().associate == Associate::Before) {
        one.associate(other);
    }
}

impl Network {
    /// Sends a packet of a host, in ESP if it is between identities.
    #[inline]
    pub(super) fn depart<O: Observer>(
        &mut self,
        now: Instant,
        node: NodeId,
        identity: Option<&mut Identity>,
        frame: Box<Frame>,
        observer: &mut O,
    ) {
        let Some(identity) = identity else { return self.forward(now, node, frame, observer) };
        let (frame, why) = match identity.send(now, frame) {
            Outgoing::Sent(frame) => return self.forward(now, node, frame, observer),
            Outgoing::Refused(frame, why) => (Some(frame), why(node)),
            Outgoing::Waits(evicted) => (evicted, crate::Dropped::Backlog(node)),
        };
        if let Some(frame) = frame {
            observer.dropped(now, why, &frame);
            self.pool.take_back(frame);
        }
        self.send_control(now, node, identity, observer);
    }

    /// Sends the HIP packets of a host. Returns whether there were any.
    fn send_control<O: Observer>(
        &mut self,
        now: Instant,
        node: NodeId,
        identity: &mut Identity,
        observer: &mut O,
    ) -> bool {
        let mut any = false;
        while let Some(packet) = identity.poll_transmit() {
            any = true;
            let frame = self.pool.frame(packet, None);
            self.forward(now, node, frame, observer);
        }
        any
    }
}
