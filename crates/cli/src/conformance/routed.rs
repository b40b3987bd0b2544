//! A phone, its router and a server behind it, each with a kernel: the world of the grids in which links have a second layer.

use std::sync::Arc;

use holdover_base::{Duration, Instant};
use holdover_link::{LinkConfig, QueueLimit, Rate};
use holdover_sim::{FlowConfig, Layer2, LinkBetween, LinkId, NodeConfig, NodeId, Role, Traffic, WorldConfig};
use holdover_tcp::Profile;

use crate::transfers::{DELAY, QUEUE, RATE};

pub(super) const PHONE: NodeId = NodeId(0);
pub(super) const SERVER: NodeId = NodeId(1);
pub(super) const ROUTER: NodeId = NodeId(2);

/// The link between phone and router.
pub(super) const ACCESS: LinkId = LinkId(0);

/// From the phone to its router.
pub(super) const NEAR_DELAY: Duration = Duration::from_millis(5);

/// The link between phone and router, without outages.
pub(super) fn access() -> LinkConfig {
    LinkConfig {
        rate: Rate::Fixed(RATE),
        delay: NEAR_DELAY,
        queue_limit: QueueLimit::Packets(QUEUE),
        ..LinkConfig::default()
    }
}

/// The world with this link between phone and router.
pub(super) fn world(access: LinkConfig, layer2: Layer2, flows: Vec<FlowConfig>, time_limit: Instant) -> WorldConfig {
    let node = |name: &str, role| NodeConfig { name: name.into(), role };
    let rest = LinkConfig { delay: DELAY.saturating_sub(NEAR_DELAY), ..LinkConfig::default() };
    WorldConfig {
        seed: 1,
        nodes: vec![node("phone", Role::Host), node("server", Role::Host), node("router", Role::Router)],
        links: vec![
            LinkBetween { layer2, ..LinkBetween::wire("access", PHONE, ROUTER, access) },
            LinkBetween::wire("rest", ROUTER, SERVER, rest),
        ],
        flows,
        time_limit,
        ..WorldConfig::default()
    }
}

/// A connection from the beginning on.
pub(super) fn flow(name: &str, [from, to]: [NodeId; 2], traffic: Traffic, ipv6: bool) -> FlowConfig {
    let stack = Arc::new(Profile::Linux6Cubic.config());
    FlowConfig {
        name: name.to_owned(),
        from,
        to,
        start: Instant::ZERO,
        sender: Arc::clone(&stack),
        receiver: stack,
        traffic,
        ipv6,
    }
}
