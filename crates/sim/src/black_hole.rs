//! Black holes: a link goes down, and packets are still sent into it although another path exists.

use std::collections::VecDeque;

use crate::check;
use crate::config::{Role, WorldConfig};
use crate::error::WorldError;
use crate::ids::{FlowId, LinkId, NodeId};
use crate::network::Network;
use crate::segment::own_outages;

/// A flow that stops with one link although another path leads to its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BlackHole {
    /// The flow.
    pub flow: FlowId,
    /// The link.
    pub link: LinkId,
    /// The end of the flow that sends the packets lost while the link is down.
    pub from: NodeId,
    /// Their destination.
    pub to: NodeId,
}

/// The flows of a world, in order, that stop with a link's outages although another path exists: routers continue to send into the broken
/// link, or have no route around it. For each flow and direction, the first such link. Flows of hosts in radio cells are left out.
///
/// # Errors
///
/// Those of [`crate::World::new`].
pub fn black_holes(config: &WorldConfig) -> Result<Vec<BlackHole>, WorldError> {
    let network = check::network_of(config)?;
    let goes_down = |link: &usize| own_outages(&config.links[*link]).goes_down();
    let links: Vec<usize> = (0..config.links.len()).filter(goes_down).collect();
    let mut found = Vec::new();
    for (flow, id) in config.flows.iter().zip(0..) {
        if network.mobile(flow.from).is_some() || network.mobile(flow.to).is_some() {
            continue;
        }
        for (from, to) in [(flow.from, flow.to), (flow.to, flow.from)] {
            let ends_in = |link: &&usize| is_black_hole(config, &network, **link, from, to);
            if let Some(&link) = links.iter().find(ends_in) {
                found.push(BlackHole { flow: FlowId(id), link: LinkId(link as u32), from, to });
            }
        }
    }
    Ok(found)
}

fn is_black_hole(config: &WorldConfig, network: &Network, link: usize, from: NodeId, to: NodeId) -> bool {
    let crosses = |way: &[usize]| way.iter().any(|&hop| hop / 2 == link);
    if !network.wired_way(from, to).is_some_and(|way| crosses(&way)) {
        return false;
    }
    let mut without = network.clone();
    without.take_down(LinkId(link as u32));
    let is_dead = without.wired_way(from, to).is_none_or(|way| crosses(&way));
    is_dead && is_joined_without(config, link, from, to)
}

/// Whether any path leads from one host to another over routers and links other than `link`.
fn is_joined_without(config: &WorldConfig, link: usize, from: NodeId, to: NodeId) -> bool {
    let mut reached = vec![false; config.nodes.len()];
    let mut queue = VecDeque::from([from]);
    while let Some(node) = queue.pop_front() {
        if node == to {
            return true;
        }
        if core::mem::replace(&mut reached[node.index()], true) {
            continue;
        }
        if node != from && config.nodes[node.index()].role == Role::Host {
            continue;
        }
        let others = config.links.iter().enumerate().filter(|&(index, _)| index != link);
        queue.extend(others.filter_map(|(_, link)| match (link.a == node, link.b == node) {
            (true, _) => Some(link.b),
            (_, true) => Some(link.a),
            _ => None,
        }));
    }
    false
}
