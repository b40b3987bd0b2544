//! A server, a tower with mechanisms, and a mobile host behind a link that comes and goes.

use std::sync::Arc;

use holdover_base::{BitRate, ByteCount, Duration, Instant};
use holdover_gateway::Mechanisms;
use holdover_link::{InFlightFate, LinkConfig, Outage, OutagePolicy, Outages, QueueLimit, QueuedFate, Rate};
use holdover_sim::{
    Amount, Bulk, FlowConfig, FlowReport, GatewayMechanisms, LinkBetween, NoObserver, NodeConfig, NodeId, Opener, Role,
    Traffic, World, WorldConfig,
};
use holdover_tcp::Profile;

pub(crate) const MOBILE: NodeId = NodeId(0);
pub(crate) const TOWER: NodeId = NodeId(1);
pub(crate) const SERVER: NodeId = NodeId(2);

pub(crate) fn at_ms(millis: u64) -> Instant {
    Instant::from_millis(millis)
}

pub(crate) fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// A download of `bytes` over 20 ms of wire and a radio of 2 Mbit/s. The radio is down at `outages`, in ms, and loses the packets that it
/// carries then.
pub(crate) fn world(profile: Profile, bytes: u64, outages: &[(u64, u64)]) -> WorldConfig {
    let node = |name: &str, role| NodeConfig { name: name.into(), role };
    let list = outages.iter().map(|&(down, up)| Outage { down: at_ms(down), up: at_ms(up) }).collect();
    let radio = LinkConfig {
        rate: Rate::Fixed(BitRate::from_kbps(2_000)),
        delay: ms(5),
        queue_limit: QueueLimit::Packets(50),
        outages: Outages::List(list),
        outage_policy: OutagePolicy { queued: QueuedFate::Lost, in_flight: InFlightFate::Dropped },
        ..LinkConfig::default()
    };
    let wire = LinkConfig {
        rate: Rate::Fixed(BitRate::from_kbps(100_000)),
        delay: ms(20),
        queue_limit: QueueLimit::Packets(500),
        ..LinkConfig::default()
    };
    let config = Arc::new(profile.config());
    WorldConfig {
        seed: 1,
        nodes: vec![node("mobile", Role::Host), node("tower", Role::Router), node("server", Role::Host)],
        links: vec![LinkBetween::wire("radio", TOWER, MOBILE, radio), LinkBetween::wire("wire", TOWER, SERVER, wire)],
        flows: vec![FlowConfig {
            name: "bulk".into(),
            from: SERVER,
            to: MOBILE,
            start: Instant::ZERO,
            sender: Arc::clone(&config),
            receiver: config,
            traffic: Traffic::Bulk(Bulk { amount: Amount::Bytes(ByteCount(bytes)), opener: Opener::Receiver }),
            ipv6: false,
        }],
        time_limit: Instant::from_secs(900),
        ..WorldConfig::default()
    }
}

/// The same with mechanisms at the tower.
pub(crate) fn with(mut world: WorldConfig, mechanisms: Mechanisms) -> WorldConfig {
    world.gateways = vec![GatewayMechanisms { node: TOWER, mechanisms, mobiles: vec![MOBILE], hears_links: true }];
    world
}

/// Runs a world; returns the flow's result.
pub(crate) fn run(world: WorldConfig) -> FlowReport {
    let mut world = World::new(world).expect("a world");
    world.run(&mut NoObserver);
    world.report().remove(0)
}
