//! `sim-many`: ten thousand connections at once in the simulator.

use std::sync::Arc;

use holdover_base::{BitRate, ByteCount, Duration, Instant};
use holdover_link::{LinkConfig, QueueLimit, Rate};
use holdover_sim::{
    Amount, Bulk, FlowConfig, FlowStatus, LinkBetween, NodeConfig, NodeId, Opener, Role, Traffic, World, WorldConfig,
};
use holdover_tcp::Profile;

use super::heap;

const CONNECTIONS: u32 = 10_000;

/// Runs 10,000 connections of 100 kB each, all at once, over 1 Gbit/s with 20 ms each way and a queue of 5,000 packets. Returns
/// how many data segments were sent, retransmissions included, and the most memory that a connection took: both its ends,
/// and its share of the network.
pub(super) fn run() -> (u64, u64) {
    let before = heap::in_use();
    let host = |name: &str| NodeConfig { name: name.into(), role: Role::Host };
    let link = LinkConfig {
        rate: Rate::Fixed(BitRate::from_mbps(1_000)),
        delay: Duration::from_millis(20),
        queue_limit: QueueLimit::Packets(5_000),
        ..LinkConfig::default()
    };
    let config = Arc::new(Profile::Linux6Cubic.config());
    let flow = |n: u32| FlowConfig {
        name: format!("flow {n}"),
        from: NodeId(0),
        to: NodeId(1),
        start: Instant::from_micros(u64::from(n) * 10),
        sender: Arc::clone(&config),
        receiver: Arc::clone(&config),
        traffic: Traffic::Bulk(Bulk { amount: Amount::Bytes(ByteCount(100_000)), opener: Opener::Sender }),
        ipv6: false,
    };
    let world = WorldConfig {
        seed: 1,
        nodes: vec![host("sender"), host("receiver")],
        links: vec![LinkBetween::wire("bottleneck", NodeId(0), NodeId(1), link)],
        flows: (0..CONNECTIONS).map(flow).collect(),
        time_limit: Instant::from_secs(1000),
        ..WorldConfig::default()
    };
    let mut world = World::new(world).expect("a valid world");
    let mut most = 0;
    let mut until = Instant::ZERO;
    while world.advance_to(until).is_none() {
        most = most.max(heap::in_use().saturating_sub(before));
        until += Duration::from_millis(100);
    }
    let reports = world.report();
    assert!(reports.iter().all(|report| report.status == FlowStatus::Completed), "every transfer ends");
    let sent = |counters: &holdover_tcp::Counters| counters.bytes_sent.0 + counters.bytes_retransmitted.0;
    let sent = reports.iter().filter_map(|report| report.sender.as_ref()).map(sent).sum::<u64>();
    (sent.div_ceil(1448), most / u64::from(CONNECTIONS))
}
