//! A phone, its router and a server behind it, each with a kernel: the world of the grids in which links have a second layer.

use std::sync::Arc;

use holdover_base::{Duration, Instant};
use holdover_link::{LinkConfig, QueueLimit, Rate};
use holdover_sim::{FlowConfig, Layer2, LinkBetween, LinkId, NodeConfig, NodeId, Role, Traffic, WorldConfig};
use holdover_tcp::Profile;
use holdover_testbed::Lateness;
use holdover_testbed::world::RealWorld;
use holdover_transfers::NetPath;

pub(super) const PHONE: NodeId = NodeId(0);
pub(super) const SERVER: NodeId = NodeId(1);
pub(super) const ROUTER: NodeId = NodeId(2);

/// The link between phone and router.
pub(super) const ACCESS: LinkId = LinkId(0);

/// From the phone to its router, on a path that has this delay or more in all.
const NEAR_DELAY: Duration = Duration::from_millis(5);

/// From the phone to its router.
pub(super) fn near_delay(path: NetPath) -> Duration {
    NEAR_DELAY.min(path.delay)
}

/// The link between phone and router, without outages.
pub(super) fn access(path: NetPath) -> LinkConfig {
    LinkConfig {
        rate: Rate::Fixed(path.rate),
        delay: near_delay(path),
        queue_limit: QueueLimit::Packets(path.queue),
        ..LinkConfig::default()
    }
}

/// The world of this path, with this link between phone and router.
pub(super) fn world(
    path: NetPath,
    access: LinkConfig,
    layer2: Layer2,
    flows: Vec<FlowConfig>,
    time_limit: Instant,
) -> WorldConfig {
    let node = |name: &str, role| NodeConfig { name: name.into(), role };
    let rest = LinkConfig { delay: path.delay.saturating_sub(access.delay), ..LinkConfig::default() };
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

/// How late threads were between `back_at`, when the path carries again, and the first new data, `first_data` later; without such data until
/// now.
pub(super) fn lateness(
    machine: &Lateness,
    world: &RealWorld,
    back_at: Instant,
    first_data: Option<Duration>,
) -> Duration {
    let wall = |at| world.clock().wall(at);
    let until = first_data.map_or_else(std::time::Instant::now, |first| wall(back_at + first));
    machine.worst_between(wall(back_at), until)
}
