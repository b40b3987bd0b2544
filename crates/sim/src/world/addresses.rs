//! The addresses of hosts, and of their flows.

use core::net::IpAddr;

use super::World;
use crate::config::{Addresses, WorldConfig};
use crate::ids::{LinkId, NodeId};

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
    pub(super) fn has_identity(&self, node: NodeId) -> bool {
        self.host_index(node).is_some_and(|host| self.hosts[host].identity.is_some())
    }

    fn has_locators(&self, node: NodeId) -> bool {
        let per_link = |host: &crate::HostAddressing| host.node == node && host.addresses == Addresses::PerLink;
        self.config.addressing.iter().any(per_link)
    }

    /// A host's address: that of the link in use, or last used, or else of its first one.
    pub(super) fn address_at_present(&self, node: NodeId, ipv6: bool) -> IpAddr {
        let host = self.host_index(node).map(|host| &self.hosts[host]);
        let link = host.and_then(|host| host.link.or(host.last_link));
        self.address_at(node, link, ipv6)
    }

    pub(super) fn address_at(&self, node: NodeId, link: Option<LinkId>, ipv6: bool) -> IpAddr {
        if !self.has_locators(node) {
            return node.address(ipv6);
        }
        let access = link.and_then(|link| self.network.access_of(node, link)).unwrap_or(0);
        node.locator(access, ipv6)
    }

    /// A new flow uses identities if both of its hosts have one, else their current addresses.
    pub(super) fn choose_addresses(&mut self, index: usize) {
        let flow = &self.flows[index];
        if self.config.addressing.is_empty() || flow.begun {
            return;
        }
        let (from, to, ipv6) = (flow.config.from, flow.config.to, flow.config.ipv6);
        if !(self.has_identity(from) && self.has_identity(to)) {
            self.flows[index].addresses = (self.address_at_present(from, ipv6), self.address_at_present(to, ipv6));
        }
    }
}
