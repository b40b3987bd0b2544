//! Hosts behind a router: a vehicle's, or any other whose link they share.

use std::collections::BTreeSet;

use crate::config::{LinkBetween, Role, WorldConfig};
use crate::ids::NodeId;

/// The neighbour of a node that every way to a host begins with: the host itself, or a router that it is behind. `None` if there are several
/// ways, or none by links.
pub fn neighbour_towards(config: &WorldConfig, node: NodeId, host: NodeId) -> Option<NodeId> {
    let neighbours = |of: NodeId| {
        let other =
            move |link: &LinkBetween| if link.a == of { Some(link.b) } else { (link.b == of).then_some(link.a) };
        config.links.iter().filter_map(other)
    };
    let (mut seen, mut waiting) = (BTreeSet::from([host]), vec![host]);
    while let Some(at) = waiting.pop() {
        // Other hosts forward nothing.
        if at == host || config.nodes[at.index()].role == Role::Router {
            waiting.extend(neighbours(at).filter(|&next| next != node && seen.insert(next)));
        }
    }
    let mut first = neighbours(node).filter(|next| seen.contains(next)).collect::<BTreeSet<_>>().into_iter();
    first.next().filter(|_| first.next().is_none())
}
