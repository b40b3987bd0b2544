//! Which way a packet goes.
//!
//! Between routers: fewest hops, and of equals the link that is described first; an outage changes nothing. Hosts do not
//! forward. A host with several links uses the first one, in the order of their description, that is up and leads there;
//! packets to it take the first one that is up and that they can reach; if none is up, the first.

use std::collections::VecDeque;

use crate::config::{LinkBetween, NodeConfig, NodeId, Role};

/// The ways between all nodes. Memory grows with the square of the number of routers, not of hosts.
#[derive(Clone, Debug)]
pub(crate) struct Routes {
    place: Vec<Where>,
    routers: usize,
    /// For every router and destination router, the directed link (twice the link's number, plus one from `b` to `a`).
    next: Vec<u32>,
}

#[derive(Clone, Debug)]
enum Where {
    Router(usize),
    Host(Vec<Access>),
}

/// A link of a host.
#[derive(Clone, Copy, Debug)]
struct Access {
    /// The directed link away from the host.
    away: u32,
    /// The directed link to the host.
    back: u32,
    neighbour: NodeId,
}

const NONE: u32 = u32::MAX;

impl Routes {
    pub(crate) fn new(nodes: &[NodeConfig], links: &[LinkBetween]) -> Self {
        let mut routers = 0;
        let mut place: Vec<Where> = Vec::with_capacity(nodes.len());
        for node in nodes {
            place.push(match node.role {
                Role::Host => Where::Host(Vec::new()),
                Role::Router => Where::Router(routers),
            });
            routers += usize::from(node.role == Role::Router);
        }
        let mut arriving: Vec<Vec<(u32, usize)>> = vec![Vec::new(); routers];
        for (index, link) in links.iter().enumerate() {
            let forth = index as u32 * 2;
            for (from, to, away) in [(link.a, link.b, forth), (link.b, link.a, forth + 1)] {
                let to_router = if let Where::Router(to) = place[to.index()] { Some(to) } else { None };
                match &mut place[from.index()] {
                    Where::Host(access) => access.push(Access { away, back: away ^ 1, neighbour: to }),
                    Where::Router(from) => {
                        if let Some(to) = to_router {
                            arriving[to].push((away, *from));
                        }
                    }
                }
            }
        }
        let mut routes = Self { place, routers, next: vec![NONE; routers * routers] };
        for destination in 0..routers {
            routes.spread_from(destination, &arriving);
        }
        routes
    }

    /// Breadth first from the destination backwards.
    fn spread_from(&mut self, destination: usize, arriving: &[Vec<(u32, usize)>]) {
        let mut reached = VecDeque::from([destination]);
        while let Some(router) = reached.pop_front() {
            for &(link, from) in &arriving[router] {
                let next = &mut self.next[from * self.routers + destination];
                if *next == NONE && from != destination {
                    *next = link;
                    reached.push_back(from);
                }
            }
        }
    }

    /// How many links a host has; 0 for a router.
    pub(crate) fn accesses(&self, node: NodeId) -> usize {
        match &self.place[node.index()] {
            Where::Host(access) => access.len(),
            Where::Router(_) => 0,
        }
    }

    /// The first link of a host that is up.
    pub(crate) fn first_up(&self, node: NodeId, up: &[bool]) -> Option<usize> {
        let Where::Host(access) = &self.place[node.index()] else { return None };
        access.iter().map(|access| access.away as usize / 2).find(|&link| up[link])
    }

    /// The directed link from `node` towards `destination`, given which links are up.
    #[inline]
    pub(crate) fn next_hop(&self, node: NodeId, destination: NodeId, up: &[bool]) -> Option<usize> {
        match self.place.get(node.index())? {
            Where::Router(router) => self.router_hop(node, *router, destination, up),
            // The only way is the way, wherever it leads.
            Where::Host(access) if access.len() == 1 => Some(access[0].away as usize),
            Where::Host(access) => {
                let leads_there = |access: &&Access| {
                    access.neighbour == destination
                        || matches!(self.place[access.neighbour.index()], Where::Router(router)
                            if self.router_hop(access.neighbour, router, destination, up).is_some())
                };
                first_that_is_up(access.iter().filter(leads_there).map(|access| access.away as usize), up)
            }
        }
    }

    /// The directed link from `node` towards `destination`, where the packet's source or destination stands for a link of the
    /// host that it belongs to: `leave_by`, a link of `node`, and `arrive_by`, a link of `destination`.
    pub(crate) fn next_hop_by_link(
        &self,
        node: NodeId,
        destination: NodeId,
        leave_by: Option<u32>,
        arrive_by: Option<u32>,
        up: &[bool],
    ) -> Option<usize> {
        if let (Some(leave_by), Where::Host(access)) = (leave_by, self.place.get(node.index())?) {
            return access.get(leave_by as usize).map(|access| access.away as usize);
        }
        let (Some(arrive_by), Where::Host(access)) = (arrive_by, self.place.get(destination.index())?) else {
            return self.next_hop(node, destination, up);
        };
        let access = access.get(arrive_by as usize)?;
        match (&self.place[node.index()], &self.place[access.neighbour.index()]) {
            _ if access.neighbour == node => Some(access.back as usize),
            (Where::Router(here), Where::Router(there)) => self.between(*here, *there),
            (Where::Host(_), _) => self.next_hop(node, access.neighbour, up),
            (Where::Router(_), Where::Host(_)) => None,
        }
    }

    /// Which link of a host, in the order of their description, a link is.
    pub(crate) fn access_of(&self, node: NodeId, link: usize) -> Option<u32> {
        let Where::Host(access) = &self.place[node.index()] else { return None };
        access.iter().position(|access| access.away as usize / 2 == link).map(|index| index as u32)
    }

    fn router_hop(&self, node: NodeId, router: usize, destination: NodeId, up: &[bool]) -> Option<usize> {
        match self.place.get(destination.index())? {
            Where::Router(there) => self.between(router, *there),
            Where::Host(access) => {
                let hops = access.iter().filter_map(|access| {
                    let last = access.back as usize;
                    let hop = match self.place[access.neighbour.index()] {
                        _ if access.neighbour == node => Some(last),
                        Where::Router(neighbour) => self.between(router, neighbour),
                        Where::Host(_) => None,
                    };
                    hop.map(|hop| (last, hop))
                });
                let mut first = None;
                for (last, hop) in hops {
                    if up[last / 2] {
                        return Some(hop);
                    }
                    first.get_or_insert(hop);
                }
                first
            }
        }
    }

    fn between(&self, router: usize, destination: usize) -> Option<usize> {
        let link = self.next[router * self.routers + destination];
        (link != NONE).then_some(link as usize)
    }
}

fn first_that_is_up(links: impl Iterator<Item = usize>, up: &[bool]) -> Option<usize> {
    let mut first = None;
    for link in links {
        if up[link / 2] {
            return Some(link);
        }
        first.get_or_insert(link);
    }
    first
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nodes(roles: &str) -> Vec<NodeConfig> {
        let role = |kind| if kind == 'h' { Role::Host } else { Role::Router };
        roles.chars().map(|kind| NodeConfig { name: String::new(), role: role(kind) }).collect()
    }

    fn links(ends: &[(u32, u32)]) -> Vec<LinkBetween> {
        let link =
            |&(a, b): &(u32, u32)| LinkBetween::wire("", NodeId(a), NodeId(b), holdover_link::LinkConfig::default());
        ends.iter().map(link).collect()
    }

    /// The nodes on the way.
    fn way(roles: &str, ends: &[(u32, u32)], up: &[bool], from: u32, to: u32) -> Option<Vec<u32>> {
        let routes = Routes::new(&nodes(roles), &links(ends));
        let mut at = from;
        let mut way = vec![at];
        while at != to {
            let hop = routes.next_hop(NodeId(at), NodeId(to), up)?;
            let (a, b) = ends[hop / 2];
            assert_eq!(at, if hop % 2 == 0 { a } else { b });
            at = if hop % 2 == 0 { b } else { a };
            way.push(at);
            if at != to && roles.as_bytes()[at as usize] == b'h' {
                return None;
            }
            assert!(way.len() < 20, "a loop: {way:?}");
        }
        Some(way)
    }

    #[test]
    fn the_way_has_the_fewest_hops_and_does_not_lead_through_hosts() {
        // 0 - 2 - 3 - 4 - 1, with a short cut 2 - 4, and 5 a host between 2 and 1.
        let ends = [(0, 2), (2, 3), (3, 4), (4, 1), (4, 2), (2, 5), (5, 1)];
        let up = [true; 7];
        assert_eq!(way("hhrrrh", &ends, &up, 0, 1), Some(vec![0, 2, 4, 1]));
        assert_eq!(way("hhrrrh", &ends, &up, 1, 0), Some(vec![1, 4, 2, 0]));
        assert_eq!(way("hhrrrh", &ends, &up, 0, 5), Some(vec![0, 2, 5]));
        assert_eq!(way("hhrr", &[(0, 2), (1, 3)], &up, 0, 1), None);
    }

    #[test]
    fn a_host_with_two_links_uses_the_first_that_is_up() {
        // The host 0 reaches 1 through the routers 2 or 3, which meet in 4.
        let ends = [(0, 2), (3, 0), (2, 4), (3, 4), (4, 1)];
        let both = [(true, true, 2), (false, true, 3), (true, false, 2), (false, false, 2)];
        for (first, second, router) in both {
            let up = [first, second, true, true, true];
            assert_eq!(way("hhrrr", &ends, &up, 0, 1), Some(vec![0, router, 4, 1]));
            assert_eq!(way("hhrrr", &ends, &up, 1, 0), Some(vec![1, 4, router, 0]));
        }
    }

    #[test]
    fn a_host_with_two_links_to_different_hosts_takes_the_one_that_leads_there() {
        let ends = [(0, 1), (0, 2)];
        assert_eq!(way("hhh", &ends, &[false, true], 0, 1), Some(vec![0, 1]));
        assert_eq!(way("hhh", &ends, &[true, true], 0, 2), Some(vec![0, 2]));
        assert_eq!(way("hhh", &ends, &[true, true], 2, 1), None, "not through the host between");
    }
}
