//! Hosts with several addresses: the address of a flow, and readdressing of a host with an identity.

use core::net::IpAddr;

use holdover_base::{Duration, Instant, Rng};
use holdover_hip::{Attachment, Event, LocatorSet, PROTOCOL, Shim};
use holdover_mobility::LinkEvent;
use holdover_wire::Payload;

use super::World;
use crate::config::{Addresses, NodeId, WorldConfig};
use crate::frame::Frame;
use crate::host::HostShim;
use crate::network::Network;
use crate::observer::{Dropped, LinkId, Observer, WorldEvent};

/// The addresses at which the TCP of each node listens.
pub(super) fn addresses(config: &WorldConfig) -> Vec<Vec<IpAddr>> {
    let families = |of: &dyn Fn(bool) -> IpAddr| [of(false), of(true)];
    let nodes = (0..config.nodes.len() as u32).map(NodeId);
    let mut all: Vec<Vec<IpAddr>> = nodes.map(|node| families(&|ipv6| node.address(ipv6)).to_vec()).collect();
    for host in &config.addressing {
        let addresses = &mut all[host.node.index()];
        if host.addresses == Addresses::PerLink {
            let links = config.links.iter().filter(|link| link.a == host.node || link.b == host.node).count() as u32;
            if host.identity.is_none() {
                addresses.clear();
            }
            addresses.extend((0..links).flat_map(|access| families(&|ipv6| host.node.locator(access, ipv6))));
        }
    }
    all
}

impl World {
    /// Creates the identities of hosts, and the associations between hosts that share flows.
    pub(super) fn give_identities(&mut self) {
        for index in 0..self.config.addressing.len() {
            let host = &self.config.addressing[index];
            let (Some(config), Some(entry)) = (host.identity, self.host_index(host.node)) else { continue };
            let name = &self.config.nodes[host.node.index()].name;
            let mut rng = Rng::split(self.config.seed, &format!("identity of {name}"));
            let shim = Shim::new(config.shim, identity(host.node), self.locators(host.node), rng.next_u64());
            self.hosts[entry].identity = Some(Box::new(HostShim { shim, config, rng }));
        }
        for index in 0..self.flows.len() {
            let (from, to) = (self.flows[index].config.from, self.flows[index].config.to);
            if !(self.has_identity(from) && self.has_identity(to)) {
                continue;
            }
            for (node, peer) in [(from, to), (to, from)] {
                let locators = self.locators(peer);
                if let Some(host) = self.host_index(node)
                    && let Some(own) = &mut self.hosts[host].identity
                {
                    own.shim.add_peer(identity(peer), locators);
                }
            }
        }
    }

    pub(super) fn has_identity(&self, node: NodeId) -> bool {
        self.host_index(node).is_some_and(|host| self.hosts[host].identity.is_some())
    }

    fn has_locators(&self, node: NodeId) -> bool {
        let per_link = |host: &crate::HostAddressing| host.node == node && host.addresses == Addresses::PerLink;
        self.config.addressing.iter().any(per_link)
    }

    /// A host's locators: those of the link in use, or last used, or else of its first one.
    pub(super) fn locators(&self, node: NodeId) -> LocatorSet {
        let host = self.host_index(node).map(|host| &self.hosts[host]);
        let link = host.and_then(|host| host.link.or(host.last_link));
        self.locators_at(node, link)
    }

    fn locators_at(&self, node: NodeId, link: Option<LinkId>) -> LocatorSet {
        if !self.has_locators(node) {
            return set_of(|ipv6| node.address(ipv6));
        }
        let access = link.and_then(|link| self.network.access_of(node, link)).unwrap_or(0);
        set_of(|ipv6| node.locator(access, ipv6))
    }

    /// A new flow uses identities if both of its hosts have one, else their current addresses.
    pub(super) fn choose_addresses(&mut self, index: usize) {
        let flow = &self.flows[index];
        if self.config.addressing.is_empty() || flow.begun {
            return;
        }
        let (from, to, ipv6) = (flow.config.from, flow.config.to, flow.config.ipv6);
        if !(self.has_identity(from) && self.has_identity(to)) {
            self.flows[index].addresses = (self.locators(from).address(ipv6), self.locators(to).address(ipv6));
        }
    }

    /// Sends a packet of a host.
    #[inline]
    pub(super) fn depart<O: Observer>(&mut self, host: usize, frame: Box<Frame>, observer: &mut O) {
        let entry = &self.hosts[host];
        self.network.depart(self.now, entry.node, entry.identity.as_deref(), frame, observer);
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
        let Some(own) = &mut entry.identity else { return Some(frame) };
        if frame.is_encrypted() {
            if !own.shim.open(&mut frame.packet) {
                observer.dropped(self.now, Dropped::Unverified(entry.node), &frame);
                return None;
            }
            frame.decrypt();
        } else if matches!(frame.packet.payload, Payload::Other { protocol: PROTOCOL, .. }) {
            // A packet that cannot be parsed is ignored, as by any host.
            let _ = own.shim.handle_update(self.now, &frame.packet);
            self.network.pool.take_back(frame);
            self.attend_identity(host, observer);
            self.reschedule_host(host);
            return None;
        }
        Some(frame)
    }

    /// A host with an identity uses another link than before, or none; or, if it has not `moved`, the last one again.
    pub(super) fn reattach<O: Observer>(&mut self, host: usize, moved: bool, observer: &mut O) {
        let (node, link) = (self.hosts[host].node, self.hosts[host].link);
        let locators = link.map(|_| self.locators_at(node, link));
        let Some(own) = &mut self.hosts[host].identity else { return };
        let delay = own.config.delay.filter(|_| link.is_some());
        let delay = delay.map_or(Duration::ZERO, |delay| delay.draw(&mut own.rng));
        let attachment = own.shim.handle_attachment(self.now, locators, delay);
        match (link, attachment) {
            (None, _) => self.tell(host, LinkEvent::Down, observer),
            (Some(_), Attachment::Unchanged) => {
                self.tell(host, LinkEvent::Up { symmetric: false, moved }, observer);
            }
            (Some(_), Attachment::Readdressing) => {
                observer.event(self.now, &WorldEvent::ReaddressingStarted(node));
                self.attend_identity(host, observer);
            }
        }
        self.reschedule_host(host);
    }

    /// Handles a deadline of a host's identity.
    pub(super) fn step_identity<O: Observer>(&mut self, host: usize, observer: &mut O) {
        let now = self.now;
        if let Some(own) = &mut self.hosts[host].identity {
            own.shim.handle_timeout(now);
        }
        self.attend_identity(host, observer);
    }

    /// Sends UPDATEs before completed readdressing is reported.
    fn attend_identity<O: Observer>(&mut self, host: usize, observer: &mut O) {
        let now = self.now;
        let entry = &mut self.hosts[host];
        let node = entry.node;
        let Some(own) = &mut entry.identity else { return };
        while let Some(packet) = own.shim.poll_transmit() {
            let frame = self.network.pool.frame(packet, None);
            self.network.forward(now, node, frame, observer);
        }
        while let Some(own) = &mut self.hosts[host].identity
            && let Some(event) = own.shim.poll_event()
        {
            let (Event::Readdressed { peer, .. } | Event::GaveUp { peer, .. }) = event;
            let Some(other) = NodeId::of(peer.address(false)) else { continue };
            match event {
                Event::Readdressed { .. } => {
                    observer.event(now, &WorldEvent::Readdressed(node, other));
                    let what = LinkEvent::Up { symmetric: true, moved: true };
                    let addresses = [peer.address(false), peer.address(true)];
                    self.tell_of_peer(host, Some(&addresses), what, observer);
                }
                Event::GaveUp { .. } => observer.event(now, &WorldEvent::ReaddressingFailed(node, other)),
            }
        }
    }
}

impl Network {
    /// Sends a packet of a host, between locators if it is between identities.
    #[inline]
    pub(super) fn depart<O: Observer>(
        &mut self,
        now: Instant,
        node: NodeId,
        identity: Option<&HostShim>,
        mut frame: Box<Frame>,
        observer: &mut O,
    ) {
        if let Some(identity) = identity
            && identity.shim.seal(&mut frame.packet)
        {
            frame.encrypt(u32::try_from(identity.config.overhead.0).unwrap_or(u32::MAX));
        }
        self.forward(now, node, frame, observer);
    }
}

fn identity(node: NodeId) -> holdover_hip::Identity {
    let set = set_of(|ipv6| node.address(ipv6));
    holdover_hip::Identity { hit: set.v6, lsi: set.v4 }
}

/// The addresses of both families.
fn set_of(address: impl Fn(bool) -> IpAddr) -> LocatorSet {
    let mut set = LocatorSet { v4: core::net::Ipv4Addr::UNSPECIFIED, v6: core::net::Ipv6Addr::UNSPECIFIED };
    for ipv6 in [false, true] {
        match address(ipv6) {
            IpAddr::V4(v4) => set.v4 = v4,
            IpAddr::V6(v6) => set.v6 = v6,
        }
    }
    set
}
