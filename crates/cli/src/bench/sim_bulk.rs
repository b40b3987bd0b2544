//! `sim-bulk`: bulk TCP over a bottleneck in the simulator.

use std::sync::Arc;

use holdover_base::{BitRate, ByteCount, Duration, Instant};
use holdover_link::{LinkConfig, QueueLimit, Rate};
use holdover_sim::{
    Amount, Bulk, FlowConfig, FlowStatus, LinkBetween, NodeConfig, NodeId, Opener, Role, Traffic, World, WorldConfig,
};
use holdover_tcp::Profile;

const TIME_LIMIT: Instant = Instant::from_secs(1000);

/// Sends 250 MB over 10 Mbit/s with 25 ms each way and a drop-tail queue of 75 packets, in segments of 1448 bytes with SACK and
/// timestamps, without captures. Returns how many data segments were sent, retransmissions included.
pub(super) fn run() -> u64 {
    let host = |name: &str| NodeConfig { name: name.into(), role: Role::Host };
    let link = LinkConfig {
        rate: Rate::Fixed(BitRate::from_mbps(10)),
        delay: Duration::from_millis(25),
        queue_limit: QueueLimit::Packets(75),
        ..LinkConfig::default()
    };
    let config = Arc::new(Profile::Linux6Cubic.config());
    let world = WorldConfig {
        seed: 1,
        nodes: vec![host("sender"), host("receiver")],
        links: vec![LinkBetween::wire("bottleneck", NodeId(0), NodeId(1), link)],
        flows: vec![FlowConfig {
            name: "bulk".into(),
            from: NodeId(0),
            to: NodeId(1),
            start: Instant::ZERO,
            sender: Arc::clone(&config),
            receiver: config,
            traffic: Traffic::Bulk(Bulk { amount: Amount::Bytes(ByteCount(250_000_000)), opener: Opener::Sender }),
            ipv6: false,
        }],
        time_limit: TIME_LIMIT,
        ..WorldConfig::default()
    };
    let mut world = World::new(world).expect("a valid world");
    world.advance_to(TIME_LIMIT);
    let report = &world.report()[0];
    assert_eq!(report.status, FlowStatus::Completed, "the transfer ends");
    let sent = report.sender.as_ref().map_or(0, |counters| counters.bytes_sent.0 + counters.bytes_retransmitted.0);
    sent.div_ceil(1448)
}
