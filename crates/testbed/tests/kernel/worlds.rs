//! Worlds of the simulator with kernels in the place of hosts. All bounds are wide: other programs may be running.

use std::collections::BTreeSet;
use std::sync::Arc;

use holdover_base::{BitRate, ByteCount, Duration, Instant};
use holdover_link::{LinkConfig, Outage, Outages, QueueLimit, Rate};
use holdover_sim::{
    Amount, Bulk, Ending, FlowConfig, FlowReport, FlowStatus, LinkBetween, NoObserver, NodeConfig, NodeId, OnOff,
    Opener, RequestResponse, Role, Traffic, World, WorldConfig,
};
use holdover_tcp::{Config, Profile};
use holdover_testbed::Namespace;
use holdover_testbed::world::{RealError, RealOptions, RealOutcome, RealWorld};

use crate::Test;

pub(crate) const TESTS: &[Test] =
    &[("a_transfer_takes_as_long_as_in_the_simulator", a_transfer_takes_as_long_as_in_the_simulator)];

fn a_transfer_takes_as_long_as_in_the_simulator(_: &Namespace) {
    let config = pair(link(10, 5, 60), vec![flow("bulk", bulk(1_500_000, Opener::Sender))]);
    let (real, outcome) = run(config.clone(), &RealOptions::default());
    let simulated = simulate(config);
    eprintln!("{real:?}\n{simulated:?}\n{:?}", outcome.lateness.quantile(0.99));
    assert_eq!(real.status, FlowStatus::Completed);
}

fn pair(link: LinkConfig, flows: Vec<FlowConfig>) -> WorldConfig {
    let host = |name: &str| NodeConfig { name: name.into(), role: Role::Host };
    WorldConfig {
        seed: 1,
        nodes: vec![host("client"), host("server")],
        links: vec![LinkBetween {
            name: "link".into(),
            a: NodeId(0),
            b: NodeId(1),
            forward: link.clone(),
            backward: link,
        }],
        flows,
        time_limit: Instant::from_secs(20),
        sample_every: Some(Duration::from_millis(50)),
        ..WorldConfig::default()
    }
}

fn link(mbps: u64, delay_ms: u64, queue_packets: u32) -> LinkConfig {
    LinkConfig {
        rate: Rate::Fixed(BitRate::from_mbps(mbps)),
        delay: Duration::from_millis(delay_ms),
        queue_limit: QueueLimit::Packets(queue_packets),
        ..LinkConfig::default()
    }
}

fn flow(name: &str, traffic: Traffic) -> FlowConfig {
    let stack = Arc::new(Profile::Linux6Cubic.config());
    FlowConfig {
        name: name.into(),
        from: NodeId(0),
        to: NodeId(1),
        start: Instant::ZERO,
        sender: Arc::clone(&stack),
        receiver: stack,
        traffic,
        ipv6: false,
    }
}

fn bulk(bytes: u64, opener: Opener) -> Traffic {
    Traffic::Bulk(Bulk { amount: Amount::Bytes(ByteCount(bytes)), opener })
}

/// The first flow's report.
fn run(config: WorldConfig, options: &RealOptions) -> (FlowReport, RealOutcome) {
    let mut world = RealWorld::new(config, options).expect("a world that can be real");
    let outcome = world.run(&mut NoObserver, |_| true).expect("it runs");
    (world.world().report().remove(0), outcome)
}

fn simulate(config: WorldConfig) -> FlowReport {
    let mut world = World::new(config).expect("a world");
    world.run(&mut NoObserver);
    world.report().remove(0)
}
