//! Which way a packet goes: fewest hops, and of equals the link that is described first.

use std::collections::VecDeque;

use crate::config::{LinkBetween, NodeConfig, NodeId, Role};

/// For every node and destination, the directed link (twice the link's number, plus one from `b` to `a`) to take.
#[derive(Clone, Debug)]
pub(crate) struct Routes {
    nodes: usize,
    next: Vec<u32>,
}

const NONE: u32 = u32::MAX;

impl Routes {
    pub(crate) fn new(nodes: &[NodeConfig], links: &[LinkBetween]) -> Self {
        let count = nodes.len();
        let mut arriving: Vec<Vec<(u32, NodeId)>> = vec![Vec::new(); count];
        for (index, link) in links.iter().enumerate() {
            let index = index as u32 * 2;
            arriving[link.b.index()].push((index, link.a));
            arriving[link.a.index()].push((index + 1, link.b));
        }
        let mut routes = Self { nodes: count, next: vec![NONE; count * count] };
        for (destination, node) in nodes.iter().enumerate() {
            if node.role == Role::Host {
                routes.spread_from(destination, nodes, &arriving);
            }
        }
        routes
    }

    /// Breadth first from the destination backwards; hosts do not forward.
    fn spread_from(&mut self, destination: usize, nodes: &[NodeConfig], arriving: &[Vec<(u32, NodeId)>]) {
        let mut reached = VecDeque::from([destination]);
        while let Some(node) = reached.pop_front() {
            if node != destination && nodes[node].role == Role::Host {
                continue;
            }
            for &(link, from) in &arriving[node] {
                let next = &mut self.next[from.index() * self.nodes + destination];
                if *next == NONE && from.index() != destination {
                    *next = link;
                    reached.push_back(from.index());
                }
            }
        }
    }

    /// The directed link from `node` towards `destination`.
    pub(crate) fn next_hop(&self, node: NodeId, destination: NodeId) -> Option<usize> {
        let index = node.index() * self.nodes + destination.index();
        if destination.index() >= self.nodes {
            return None;
        }
        self.next.get(index).copied().filter(|&link| link != NONE).map(|link| link as usize)
    }
}
