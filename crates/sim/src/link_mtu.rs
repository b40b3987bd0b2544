//! The MTU of links: which packets it stops, and which segments the hosts at a link's end send.

use std::sync::Arc;

use holdover_tcp::Config;

use crate::config::{FlowConfig, WorldConfig};
use crate::error::WorldError;
use crate::ids::NodeId;

/// The MTU of a link, in both directions.
///
/// A node does not send a longer packet into the link, and does not fragment it: it drops it. TCPs choose their segments by the MTU of
/// their host's own links, and learn that of others by ICMP errors of routers, or by probes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LinkMtu {
    /// The longest packet, IP header included.
    pub bytes: u32,
    /// Whether a router that drops a longer packet reports the MTU to the sender: "fragmentation needed" (RFC 1191) or "packet too big"
    /// (RFC 4443 section 3.2). Otherwise the link is a black hole for long packets (RFC 2923 section 2.1), as behind a firewall that drops
    /// these errors.
    pub is_reported: bool,
}

impl LinkMtu {
    /// Every IPv4 host accepts packets of this length (RFC 791 section 3.1), and TCPs believe in no much smaller path MTU.
    pub const LEAST_IPV4: u32 = 576;
    /// The least MTU of IPv6 (RFC 8200 section 5).
    pub const LEAST_IPV6: u32 = 1280;
    /// The longest packet of IP.
    pub const MOST: u32 = 65_535;

    /// An MTU that routers report.
    pub const fn new(bytes: u32) -> Self {
        Self { bytes, is_reported: true }
    }
}

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
