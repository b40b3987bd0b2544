//! `sim-bulk`, `sim-lossy`, `sim-many`: transfers over one link in the simulator, without captures.

use std::sync::Arc;

use holdover_base::{BitRate, ByteCount, Duration, Instant};
use holdover_link::{LinkConfig, Loss, QueueLimit, Rate};
use holdover_sim::{
    Amount, Bulk, FlowConfig, FlowStatus, LinkBetween, NodeConfig, NodeId, Opener, Role, Traffic, World, WorldConfig,
};
use holdover_tcp::Profile;

use super::heap;

/// A link with a queue of `packets` packets of 1500 bytes; the delay is each way.
fn link(mbps: u64, delay_ms: u64, packets: u32) -> LinkConfig {
    LinkConfig {
        rate: Rate::Fixed(BitRate::from_mbps(mbps)),
        delay: Duration::from_millis(delay_ms),
        queue_limit: QueueLimit::Packets(packets),
        ..LinkConfig::default()
    }
}

/// Transfers from one host to another, each begun `apart` after the one before it.
#[derive(Clone, Copy)]
struct Transfers {
    count: u32,
    bytes: u64,
    apart: Duration,
}

impl Transfers {
    /// CUBIC as in Linux, in segments of 1448 bytes with SACK and timestamps. Acknowledgments are not lost.
    fn over(self, link: LinkConfig) -> World {
        let host = |name: &str| NodeConfig { name: name.into(), role: Role::Host };
        let config = Arc::new(Profile::Linux6Cubic.config());
        let flow = |n: u32| FlowConfig {
            name: format!("flow {n}"),
            from: NodeId(0),
            to: NodeId(1),
            start: Instant::ZERO + self.apart * u64::from(n),
            sender: Arc::clone(&config),
            receiver: Arc::clone(&config),
            traffic: Traffic::Bulk(Bulk { amount: Amount::Bytes(ByteCount(self.bytes)), opener: Opener::Sender }),
            ipv6: false,
        };
        let mut between = LinkBetween::wire("bottleneck", NodeId(0), NodeId(1), link);
        between.backward.loss = Loss::None;
        let world = WorldConfig {
            seed: 1,
            nodes: vec![host("sender"), host("receiver")],
            links: vec![between],
            flows: (0..self.count).map(flow).collect(),
            time_limit: Instant::from_secs(1000),
            ..WorldConfig::default()
        };
        World::new(world).expect("a valid world")
    }
}

/// How many data segments were sent, retransmissions included.
///
/// # Panics
///
/// If a transfer has not ended.
fn data_segments(world: &World) -> u64 {
    let reports = world.report();
    assert!(reports.iter().all(|report| report.status == FlowStatus::Completed), "every transfer ends");
    let sent = |counters: &holdover_tcp::Counters| counters.bytes_sent.0 + counters.bytes_retransmitted.0;
    reports.iter().filter_map(|report| report.sender.as_ref()).map(sent).sum::<u64>().div_ceil(1448)
}

/// Sends 250 MB over 10 Mbit/s with 25 ms each way and a drop-tail queue of 75 packets. Returns how many data segments were
/// sent.
pub(super) fn bulk() -> u64 {
    let transfers = Transfers { count: 1, bytes: 250_000_000, apart: Duration::ZERO };
    let mut world = transfers.over(link(10, 25, 75));
    world.advance_to(Instant::from_secs(1000));
    data_segments(&world)
}

/// Sends 250 kB over each of 1,000 connections, begun one a millisecond, over 1 Gbit/s with 25 ms each way and a drop-tail
/// queue of 5,000 packets, which loses every hundredth packet towards the receiver at random. Returns how many data segments
/// were sent.
pub(super) fn lossy() -> u64 {
    let transfers = Transfers { count: 1000, bytes: 250_000, apart: Duration::from_millis(1) };
    let mut world = transfers.over(LinkConfig { loss: Loss::Independent(0.01), ..link(1000, 25, 5000) });
    world.advance_to(Instant::from_secs(1000));
    data_segments(&world)
}

/// Sends 100 kB over each of 10,000 connections, all at once, over 1 Gbit/s with 20 ms each way and a queue of 5,000 packets.
/// Returns how many data segments were sent, and the most memory that a connection took: both its ends, and its share of the
/// network.
pub(super) fn many() -> (u64, u64) {
    let before = heap::in_use();
    let transfers = Transfers { count: 10_000, bytes: 100_000, apart: Duration::from_micros(10) };
    let mut world = transfers.over(link(1000, 20, 5000));
    let mut most = 0;
    let mut until = Instant::ZERO;
    while world.advance_to(until).is_none() {
        most = most.max(heap::in_use().saturating_sub(before));
        until += Duration::from_millis(100);
    }
    (data_segments(&world), most / u64::from(transfers.count))
}
