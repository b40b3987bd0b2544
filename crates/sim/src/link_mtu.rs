//! The MTUs of a world's links: whether they are possible, and which segments the TCPs at a link's end send: those of hosts, and those of
//! routers that terminate connections.

use std::sync::Arc;

use holdover_tcp::Config;

use crate::config::{FlowConfig, GatewayMechanisms, WorldConfig};
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

/// For each node the smallest MTU of its links, if one of them has an MTU.
#[derive(Debug)]
pub(crate) struct OwnMtus {
    smallest: Vec<Option<u32>>,
    /// Whether a flow is IPv6.
    has_ipv6: bool,
}

impl OwnMtus {
    pub(crate) fn of(config: &WorldConfig) -> Self {
        let mut smallest = vec![None; config.nodes.len()];
        for link in &config.links {
            let Some(mtu) = link.mtu else { continue };
            for node in [link.a, link.b] {
                let own: &mut Option<u32> = &mut smallest[node.index()];
                *own = Some(own.map_or(mtu.bytes, |known| known.min(mtu.bytes)));
            }
        }
        Self { smallest, has_ipv6: config.flows.iter().any(|flow| flow.ipv6) }
    }

    /// A flow whose ends send and accept segments that fit their own links.
    pub(crate) fn bound_flow(&self, flow: &FlowConfig) -> FlowConfig {
        let mut flow = flow.clone();
        self.bound(flow.from, flow.ipv6, &mut flow.sender);
        self.bound(flow.to, flow.ipv6, &mut flow.receiver);
        flow
    }

    /// Mechanisms of a router, whose TCPs send and accept segments that fit its own links.
    pub(crate) fn bound_gateway(&self, gateway: &GatewayMechanisms) -> GatewayMechanisms {
        let mut gateway = gateway.clone();
        for tcp in gateway.mechanisms.tcps_mut() {
            self.bound(gateway.node, self.has_ipv6, tcp);
        }
        gateway
    }

    fn bound(&self, node: NodeId, is_ipv6: bool, stack: &mut Arc<Config>) {
        let headers = if is_ipv6 { 60 } else { 40 };
        let Some(most) = self.smallest[node.index()].map(|mtu| mtu.saturating_sub(headers)) else { return };
        if u32::from(stack.mss) > most {
            Arc::make_mut(stack).mss = u16::try_from(most).unwrap_or(u16::MAX);
        }
    }
}
