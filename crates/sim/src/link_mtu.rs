//! The MTUs of a world's links: whether they are possible, and which segments the hosts at a link's end send.

use std::sync::Arc;

use holdover_tcp::Config;

use crate::config::{FlowConfig, WorldConfig};
use crate::error::WorldError;
use crate::ids::NodeId;
use crate::mtu::LinkMtu;

/// Checks the MTUs of a world's links.
pub(crate) fn check(config: &WorldConfig) -> Result<(), WorldError> {
    let has_ipv6 = config.flows.iter().any(|flow| flow.ipv6);
    let least = if has_ipv6 { LinkMtu::LEAST_IPV6 } else { LinkMtu::LEAST_IPV4 };
    for link in &config.links {
        let Some(mtu) = link.mtu else { continue };
        if !(least..=LinkMtu::MOST).contains(&mtu.bytes) {
            return Err(WorldError::Mtu { link: link.name.clone(), bytes: mtu.bytes, least, most: LinkMtu::MOST });
        }
        if let Some(host) = config.addressing.iter().find(|host| host.identity.is_some()) {
            let node = config.nodes[host.node.index()].name.clone();
            return Err(WorldError::MtuAndIdentity { link: link.name.clone(), node });
        }
    }
    Ok(())
}

/// A flow whose ends send and accept segments that fit their own links: of several links, the one with the smallest MTU.
pub(crate) fn bounded(config: &WorldConfig, flow: &FlowConfig) -> FlowConfig {
    let mut flow = flow.clone();
    let headers = if flow.ipv6 { 60 } else { 40 };
    for (node, stack) in [(flow.from, &mut flow.sender), (flow.to, &mut flow.receiver)] {
        if let Some(mtu) = mtu_of(config, node) {
            bound(stack, mtu.saturating_sub(headers));
        }
    }
    flow
}

/// The smallest MTU of a node's links.
fn mtu_of(config: &WorldConfig, node: NodeId) -> Option<u32> {
    let own = config.links.iter().filter(|link| link.a == node || link.b == node);
    own.filter_map(|link| link.mtu).map(|mtu| mtu.bytes).min()
}

fn bound(stack: &mut Arc<Config>, mss: u32) {
    if u32::from(stack.mss) > mss {
        Arc::make_mut(stack).mss = u16::try_from(mss).unwrap_or(u16::MAX);
    }
}
