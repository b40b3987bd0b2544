//! A mobile host, a server, and a link that comes and goes.

use std::sync::Arc;

use holdover_base::{BitRate, ByteCount, Duration, Instant};
use holdover_link::{InFlightFate, LinkConfig, Outage, OutagePolicy, Outages, QueueLimit, QueuedFate, Rate};
use holdover_mobility::Mechanisms;
use holdover_sim::{
    Amount, Bulk, FlowConfig, FlowReport, HostMechanisms, LinkBetween, NoObserver, NodeConfig, NodeId, Opener, Role,
    Traffic, World, WorldConfig,
};
use holdover_tcp::{Config, Profile};
use proptest::strategy::Strategy;

pub(crate) const MOBILE: NodeId = NodeId(0);
pub(crate) const SERVER: NodeId = NodeId(2);

pub(crate) fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

pub(crate) fn at_ms(millis: u64) -> Instant {
    Instant::from_millis(millis)
}

/// Outages of up to 3 s, with 1 ms to `longest_pause_ms` between them: their beginnings and ends in ms.
pub(crate) fn outages(longest_pause_ms: u64) -> impl Strategy<Value = Vec<(u64, u64)>> {
    proptest::collection::vec((1..longest_pause_ms, 1_u64..3_000), 0..6).prop_map(|lengths| {
        let mut at = 0;
        let outage = |(up, down)| {
            let from = at + up;
            at = from + down;
            (from, at)
        };
        lengths.into_iter().map(outage).collect()
    })
}

/// The direction of the data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Way {
    Download,
    Upload,
}

/// The path of the notes on real kernels: 10 Mbit/s, 25 ms each way, 75 packets of queue, and one flow of `bytes`; the link is down at the
/// times of `outages`, in ms. Packets sent then are lost, and so are those due to arrive at the mobile host then; its last ACKs arrive.
pub(crate) fn world(way: Way, profile: Profile, bytes: u64, outages: &[(u64, u64)]) -> WorldConfig {
    let node = |name: &str, role| NodeConfig { name: name.into(), role };
    let list = outages.iter().map(|&(down, up)| Outage { down: at_ms(down), up: at_ms(up) }).collect();
    let radio = LinkConfig {
        rate: Rate::Fixed(BitRate::from_kbps(10_000)),
        delay: ms(25),
        queue_limit: QueueLimit::Packets(75),
        outages: Outages::List(list),
        outage_policy: OutagePolicy { queued: QueuedFate::Lost, in_flight: InFlightFate::Dropped },
        ..LinkConfig::default()
    };
    let link = |name: &str, a, b, config: LinkConfig| LinkBetween::wire(name, a, b, config);
    let mut radio = link("radio", MOBILE, NodeId(1), radio);
    radio.forward.outage_policy.in_flight = InFlightFate::Delivered;
    let config = Arc::new(profile.config());
    let (from, to, opener) = match way {
        Way::Download => (SERVER, MOBILE, Opener::Receiver),
        Way::Upload => (MOBILE, SERVER, Opener::Sender),
    };
    WorldConfig {
        seed: 1,
        nodes: vec![node("mobile", Role::Host), node("tower", Role::Router), node("server", Role::Host)],
        links: vec![radio, link("internet", NodeId(1), SERVER, LinkConfig::default())],
        flows: vec![FlowConfig {
            name: "bulk".into(),
            from,
            to,
            start: Instant::ZERO,
            sender: Arc::clone(&config),
            receiver: config,
            traffic: Traffic::Bulk(Bulk { amount: Amount::Bytes(ByteCount(bytes)), opener }),
            ipv6: false,
        }],
        time_limit: Instant::from_secs(600),
        ..WorldConfig::default()
    }
}

/// The same with mechanisms on the mobile host, warned `foresight` before each outage if given.
pub(crate) fn with(mut world: WorldConfig, mechanisms: Mechanisms, foresight: Option<Duration>) -> WorldConfig {
    world.mechanisms = vec![HostMechanisms { node: MOBILE, mechanisms, foresight }];
    world
}

/// A change of both ends' TCP.
pub(crate) fn tcp(mut world: WorldConfig, change: impl Fn(&mut Config)) -> WorldConfig {
    for flow in &mut world.flows {
        change(Arc::make_mut(&mut flow.sender));
        change(Arc::make_mut(&mut flow.receiver));
    }
    world
}

/// Runs a world; returns the flow's result.
pub(crate) fn run(world: WorldConfig) -> FlowReport {
    let mut world = World::new(world).expect("a world");
    world.run(&mut NoObserver);
    world.report().remove(0)
}

/// From the end of the last outage to the first new data.
pub(crate) fn idle_ms(report: &FlowReport) -> u64 {
    let idle = report.reconnections.last().and_then(|last| last.idle).expect("it was resumed");
    idle.as_micros().div_ceil(1000)
}
