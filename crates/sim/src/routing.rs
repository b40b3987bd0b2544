//! Routing of packets.
//!
//! Between routers: a configured route, or else the path with the fewest hops, and of equals the one over the link that is described first.
//! Outages have no effect on that, unless routers follow links: then links known to be down are excluded. Hosts do not forward. A host with
//! several links uses the first one, in the order of their description, that is up and leads to the destination; packets to it take the
//! first reachable one that is up; if none is up, the first.

use std::collections::{BTreeMap, VecDeque};

use crate::config::{LinkBetween, NodeConfig, Role, Routing};
use crate::ids::NodeId;

/// The paths between all nodes. Memory grows with the square of the number of routers, not of hosts.
#[derive(Clone, Debug)]
pub(crate) struct Routes {
    place: Vec<Where>,
    routers: usize,
    /// The links from other routers to each router: directed links, and the router at the other end.
    arriving: Vec<Vec<(u32, usize)>>,
    /// For every router and destination router, the directed link (twice the link's number, plus one from `b` to `a`).
    next: Vec<u32>,
    /// The same with all links up, if routers follow links.
    next_at_first: Vec<u32>,
    /// The links that routers know to be up; empty if they do not follow links.
    known_up: Vec<bool>,
    /// Configured routes, by router and destination (`None` for the default route): directed links, the best first.
    by_hand: BTreeMap<(NodeId, Option<NodeId>), Vec<u32>>,
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
    pub(crate) fn new(nodes: &[NodeConfig], links: &[LinkBetween], routing: &Routing) -> Self {
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
        let mut routes = Self {
            place,
            routers,
            arriving,
            next: Vec::new(),
            next_at_first: Vec::new(),
            known_up: Vec::new(),
            by_hand: by_hand(links, routing),
        };
        routes.spread();
        if routing.detection.is_some() {
            routes.next_at_first.clone_from(&routes.next);
            routes.known_up = vec![true; links.len()];
        }
        routes
    }

    /// Sets whether routers know a link to be up. Does nothing unless they follow links.
    pub(crate) fn set_known(&mut self, link: usize, up: bool) {
        if let Some(known) = self.known_up.get_mut(link)
            && core::mem::replace(known, up) != up
        {
            self.spread();
        }
    }

    /// Finds the paths between routers.
    fn spread(&mut self) {
        self.next.clear();
        self.next.resize(self.routers * self.routers, NONE);
        for destination in 0..self.routers {
            self.spread_from(destination);
        }
    }

    /// Breadth-first search backwards from the destination.
    fn spread_from(&mut self, destination: usize) {
        let mut reached = VecDeque::from([destination]);
        while let Some(router) = reached.pop_front() {
            for &(link, from) in &self.arriving[router] {
                let next = &mut self.next[from * self.routers + destination];
                if *next == NONE && from != destination && is_up(&self.known_up, link as usize) {
                    *next = link;
                    reached.push_back(from);
                }
            }
        }
    }

    pub(crate) fn is_router(&self, node: NodeId) -> bool {
        matches!(self.place.get(node.index()), Some(Where::Router(_)))
    }

    /// The number of a host's links; 0 for a router.
    pub(crate) fn accesses(&self, node: NodeId) -> usize {
        match &self.place[node.index()] {
            Where::Host(access) => access.len(),
            Where::Router(_) => 0,
        }
    }

    /// The directed link away from a host that has no other link.
    pub(crate) fn sole_hop(&self, node: NodeId) -> Option<u32> {
        match self.place.get(node.index())? {
            Where::Host(access) if access.len() == 1 => Some(access[0].away),
            _ => None,
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
            // A host with a single link uses it for every destination.
            Where::Host(access) if access.len() == 1 => Some(access[0].away as usize),
            Where::Host(access) => {
                let leads_there = |access: &&Access| {
                    access.neighbour == destination
                        || matches!(self.place[access.neighbour.index()], Where::Router(router)
                            if self.automatic_hop(&self.at_first(), access.neighbour, router, destination).is_some())
                };
                first_that_is_up(access.iter().filter(leads_there).map(|access| access.away as usize), up)
            }
        }
    }

    /// The directed link from `node` towards `destination`, where the packet's source or destination is an address for one link of its
    /// host: `leave_by`, a link of `node`, and `arrive_by`, a link of `destination`.
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
            (Where::Router(here), Where::Router(there)) => {
                self.hop_by_hand(node, destination).or_else(|| self.between(&self.next, *here, *there))
            }
            (Where::Host(_), _) => self.next_hop(node, access.neighbour, up),
            (Where::Router(_), Where::Host(_)) => None,
        }
    }

    /// The index of a link among a host's links, in the order of their description.
    pub(crate) fn access_of(&self, node: NodeId, link: usize) -> Option<u32> {
        let Where::Host(access) = &self.place[node.index()] else { return None };
        access.iter().position(|access| access.away as usize / 2 == link).map(|index| index as u32)
    }

    /// The current routing table, given which links are `up`.
    fn now<'a>(&'a self, up: &'a [bool]) -> Table<'a> {
        Table { next: &self.next, up: if self.known_up.is_empty() { up } else { &self.known_up } }
    }

    /// The routing table with all links up, which is a host's knowledge of where a link leads.
    fn at_first(&self) -> Table<'_> {
        let next = if self.next_at_first.is_empty() { &self.next } else { &self.next_at_first };
        Table { next, up: &[] }
    }

    fn router_hop(&self, node: NodeId, router: usize, destination: NodeId, up: &[bool]) -> Option<usize> {
        self.hop_by_hand(node, destination).or_else(|| self.automatic_hop(&self.now(up), node, router, destination))
    }

    /// By the best of a router's configured routes whose link is not known to be down: those to the destination, then the default routes.
    fn hop_by_hand(&self, router: NodeId, destination: NodeId) -> Option<usize> {
        if self.by_hand.is_empty() || router == destination {
            return None;
        }
        let best = |to| {
            let hops = self.by_hand.get(&(router, to))?;
            hops.iter().map(|&hop| hop as usize).find(|&hop| is_up(&self.known_up, hop))
        };
        best(Some(destination)).or_else(|| if self.is_joined(router, destination) { None } else { best(None) })
    }

    /// Whether a link connects a router and another node: then the default route does not apply to that node.
    fn is_joined(&self, router: NodeId, node: NodeId) -> bool {
        match (&self.place[router.index()], self.place.get(node.index())) {
            (_, Some(Where::Host(access))) => access.iter().any(|access| access.neighbour == router),
            (Where::Router(here), Some(Where::Router(there))) => {
                self.arriving[*there].iter().any(|&(_, from)| from == *here)
            }
            _ => false,
        }
    }

    fn automatic_hop(&self, table: &Table<'_>, node: NodeId, router: usize, destination: NodeId) -> Option<usize> {
        match self.place.get(destination.index())? {
            Where::Router(there) => self.between(table.next, router, *there),
            Where::Host(access) => {
                let hops = access.iter().filter_map(|access| {
                    let last = access.back as usize;
                    let hop = match self.place[access.neighbour.index()] {
                        _ if access.neighbour == node => Some(last),
                        Where::Router(neighbour) => self.between(table.next, router, neighbour),
                        Where::Host(_) => None,
                    };
                    hop.map(|hop| (last, hop))
                });
                let mut first = None;
                for (last, hop) in hops {
                    if is_up(table.up, last) {
                        return Some(hop);
                    }
                    first.get_or_insert(hop);
                }
                first
            }
        }
    }

    fn between(&self, next: &[u32], router: usize, destination: usize) -> Option<usize> {
        let link = next[router * self.routers + destination];
        (link != NONE).then_some(link as usize)
    }
}

/// A routing table.
struct Table<'a> {
    /// As [`Routes::next`].
    next: &'a [u32],
    /// The links that are up; without entries, all are.
    up: &'a [bool],
}

/// Whether a directed link is up; links without an entry are.
fn is_up(up: &[bool], hop: usize) -> bool {
    up.get(hop / 2).copied().unwrap_or(true)
}

/// Configured routes by router and destination, the lowest metric first, and of equals the one that is described first.
fn by_hand(links: &[LinkBetween], routing: &Routing) -> BTreeMap<(NodeId, Option<NodeId>), Vec<u32>> {
    let mut sorted: Vec<_> = routing.routes.iter().collect();
    sorted.sort_by_key(|route| route.metric);
    let mut by_hand: BTreeMap<_, Vec<u32>> = BTreeMap::new();
    for route in sorted {
        let backward = links[route.link.0 as usize].a != route.router;
        by_hand.entry((route.router, route.to)).or_default().push(route.link.0 * 2 + u32::from(backward));
    }
    by_hand
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
    use crate::config::{LinkDetection, Route};
    use crate::ids::LinkId;

    fn nodes(roles: &str) -> Vec<NodeConfig> {
        let role = |kind| if kind == 'h' { Role::Host } else { Role::Router };
        roles.chars().map(|kind| NodeConfig { name: String::new(), role: role(kind) }).collect()
    }

    fn links(ends: &[(u32, u32)]) -> Vec<LinkBetween> {
        let link =
            |&(a, b): &(u32, u32)| LinkBetween::wire("", NodeId(a), NodeId(b), holdover_link::LinkConfig::default());
        ends.iter().map(link).collect()
    }

    /// The nodes on the path.
    fn way(roles: &str, ends: &[(u32, u32)], up: &[bool], from: u32, to: u32) -> Option<Vec<u32>> {
        let routes = Routes::new(&nodes(roles), &links(ends), &Routing::default());
        way_by(&routes, roles, ends, up, from, to)
    }

    fn way_by(routes: &Routes, roles: &str, ends: &[(u32, u32)], up: &[bool], from: u32, to: u32) -> Option<Vec<u32>> {
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
        // 0 - 2 - 3 - 4 - 1, with a shortcut 2 - 4, and host 5 between 2 and 1.
        let ends = [(0, 2), (2, 3), (3, 4), (4, 1), (4, 2), (2, 5), (5, 1)];
        let up = [true; 7];
        assert_eq!(way("hhrrrh", &ends, &up, 0, 1), Some(vec![0, 2, 4, 1]));
        assert_eq!(way("hhrrrh", &ends, &up, 1, 0), Some(vec![1, 4, 2, 0]));
        assert_eq!(way("hhrrrh", &ends, &up, 0, 5), Some(vec![0, 2, 5]));
        assert_eq!(way("hhrr", &[(0, 2), (1, 3)], &up, 0, 1), None);
    }

    #[test]
    fn a_host_with_two_links_uses_the_first_that_is_up() {
        // Host 0 reaches 1 through router 2 or 3, which are both connected to 4.
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

    /// Host 0 at router 2, and host 1 at router 3. The routers are connected directly (link 1), and through router 4 (links 2 and 3).
    const RING: [(u32, u32); 5] = [(0, 2), (2, 3), (2, 4), (4, 3), (3, 1)];

    fn ring(detection: bool, routes: &[(u32, Option<u32>, u32, u32)]) -> Routes {
        let route = |&(router, to, link, metric): &(u32, Option<u32>, u32, u32)| Route {
            router: NodeId(router),
            to: to.map(NodeId),
            link: LinkId(link),
            metric,
        };
        let routes = routes.iter().map(route).collect();
        let routing = Routing { detection: detection.then(LinkDetection::default), routes };
        Routes::new(&nodes("hhrrr"), &links(&RING), &routing)
    }

    fn ring_way(routes: &Routes, up: &[bool], from: u32, to: u32) -> Option<Vec<u32>> {
        way_by(routes, "hhrrr", &RING, up, from, to)
    }

    #[test]
    fn routers_that_follow_links_leave_out_those_known_to_be_down() {
        let mut routes = ring(true, &[]);
        let cut = [true, false, true, true, true];
        let (direct, around) = (Some(vec![0, 2, 3, 1]), Some(vec![0, 2, 4, 3, 1]));
        assert_eq!(ring_way(&routes, &cut, 0, 1), direct, "not noticed yet");
        routes.set_known(1, false);
        assert_eq!(ring_way(&routes, &cut, 0, 1), around);
        assert_eq!(ring_way(&routes, &cut, 1, 0), Some(vec![1, 3, 4, 2, 0]));
        routes.set_known(3, false);
        assert_eq!(ring_way(&routes, &[true, false, true, false, true], 0, 1), None, "cut in two");
        assert_eq!(routes.next_hop(NodeId(0), NodeId(1), &cut), Some(0), "the host does not know");
        routes.set_known(1, true);
        assert_eq!(ring_way(&routes, &cut, 0, 1), direct);
        let mut routes = ring(false, &[]);
        routes.set_known(1, false);
        assert_eq!(ring_way(&routes, &cut, 0, 1), direct, "they do not follow links");
    }

    #[test]
    fn of_routes_set_by_hand_the_lowest_metric_over_a_link_that_is_up_goes_first() {
        let up = [true; 5];
        // Router 2 prefers the path through router 4; router 3 has the default only, through router 4 as a backup.
        let by_hand = [(2, Some(1), 1, 20), (2, Some(1), 2, 10), (3, None, 3, 5), (3, None, 1, 1)];
        let mut routes = ring(true, &by_hand);
        assert_eq!(ring_way(&routes, &up, 0, 1), Some(vec![0, 2, 4, 3, 1]));
        assert_eq!(ring_way(&routes, &up, 1, 0), Some(vec![1, 3, 2, 0]));
        routes.set_known(2, false);
        assert_eq!(ring_way(&routes, &up, 0, 1), Some(vec![0, 2, 3, 1]));
        routes.set_known(2, true);
        routes.set_known(1, false);
        assert_eq!(ring_way(&routes, &up, 1, 0), Some(vec![1, 3, 4, 2, 0]));
    }

    #[test]
    fn where_all_routes_by_hand_are_down_the_automatic_way_is_taken() {
        let mut routes = ring(true, &[(2, Some(1), 1, 0)]);
        routes.set_known(1, false);
        assert_eq!(ring_way(&routes, &[true; 5], 0, 1), Some(vec![0, 2, 4, 3, 1]));
    }
}
