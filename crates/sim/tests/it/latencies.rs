//! Hosts that take time to receive packets.

use holdover_base::{Duration, Instant};
use holdover_link::{ConfigError, Length};
use holdover_sim::{FlowReport, FlowStatus, HostLatency, NoObserver, NodeId, World, WorldConfig, WorldError};
use holdover_tcp::Profile;

use crate::support::*;

const CLIENT: NodeId = NodeId(0);
const SERVER: NodeId = NodeId(1);

fn micros(micros: u64) -> Length {
    Length::Constant(Duration::from_micros(micros))
}

fn between(min: u64, max: u64) -> Length {
    Length::Uniform { min: Duration::from_micros(min), max: Duration::from_micros(max) }
}

/// The same latency at both hosts.
fn with_latency(config: &WorldConfig, busy: Length, idle: Length) -> WorldConfig {
    let latency = |node| HostLatency { node, busy, idle, idle_after: ms(10) };
    WorldConfig { latencies: vec![latency(CLIENT), latency(SERVER)], ..config.clone() }
}

fn run(config: WorldConfig) -> (Log, FlowReport) {
    let mut log = Log::default();
    let mut world = World::new(config).expect("a valid world");
    world.run(&mut log);
    (log, world.report().remove(0))
}

/// 4 MB over 10 Mbit/s and a round trip of 50 ms.
fn upload(queue_packets: u32) -> WorldConfig {
    let up = with_stack(flow("up", 0, 1, bulk_bytes(4_000_000)), Profile::Linux6Reno.config());
    pair(wire(10_000, ms(25), queue_packets), vec![up], secs(60))
}

/// The SYN, the SYN-ACK and the ACK come after a pause. The data follow the ACK by the time that their 152 bytes take, and are received with it:
/// their own latency would have passed before.
// Claim: A host's latency delays each packet that it receives by what was drawn, to the nanosecond, with another distribution after a pause, and
// keeps their order.
// Tests: `latencies::latencies_keep_the_order_of_packets`, `latencies::an_external_host_has_its_own_latency`,
// `latencies::latencies_that_cannot_be`
#[test]
fn a_packet_is_delayed_by_its_latency() {
    let plain = pair(wire(1_000_000, ms(25), 100), vec![flow("up", 0, 1, bulk_bytes(100))], secs(60));
    let (_, without) = run(plain.clone());
    let (_, with) = run(with_latency(&plain, micros(70), micros(130)));
    let later = |at: fn(&FlowReport) -> Option<Instant>| at(&with).unwrap().saturating_since(at(&without).unwrap());
    assert_eq!(later(|report| report.connected_at), Duration::from_micros(2 * 130));
    assert_eq!(later(|report| report.completed_at), Duration::from_micros(3 * 130) - Duration::from_nanos(152 * 8));
}

/// Data arrives every 1.2 ms, and is received up to 30 ms later: what overtook would be out of order, and repaired.
#[test]
fn latencies_keep_the_order_of_packets() {
    let short = WorldConfig { flows: vec![flow("up", 0, 1, bulk_bytes(300_000))], ..upload(500) };
    let random = with_latency(&short, between(1, 30_000), between(1, 30_000));
    let (log, report) = run(random.clone());
    assert_eq!(report.status, FlowStatus::Completed);
    assert_eq!(report.sender.as_ref().unwrap().bytes_retransmitted.0, 0);
    let (again, _) = run(random.clone());
    assert_eq!(again.hash, log.hash, "the same seed gives the same run");
    assert!(random.is_random() && !upload(500).is_random());
    let (other, _) = run(WorldConfig { seed: 2, ..random });
    assert_ne!(other.hash, log.hash);
}

/// ACKs arrive as far apart as the link needs for a packet. Without a latency their data meets a queue from which a packet leaves at that very
/// instant. After a pause the first ACK is received a little later than the others, and so is the first packet; the others then find one
/// packet more. docs/conformance/simulator.md has what Linux sends again.
// Claim: With the latency of real hosts, slow start over a short queue is cut as on the kernel: 30 to 33 kB sent again by Reno with 20 packets,
// and 85 kB if hosts take no time.
#[test]
fn the_latency_after_a_pause_decides_what_a_full_queue_drops() {
    let sent_again = |config| run(config).1.sender.unwrap().bytes_retransmitted.0;
    assert!(sent_again(upload(20)) > 80_000);
    let late = sent_again(with_latency(&upload(20), micros(80), micros(130)));
    assert!((29_000..34_000).contains(&late), "{late}");
}

#[test]
fn an_external_host_has_its_own_latency() {
    let config = with_latency(&upload(75), micros(70), micros(130));
    let mut world = World::new(config).expect("a valid world");
    assert!(world.set_external(SERVER));
    world.run_to(Instant::from_millis(26), &mut NoObserver);
    let Some(holdover_sim::ShellCommand::Deliver { node: SERVER, at, .. }) = world.poll_shell_command() else {
        panic!("no SYN")
    };
    // 60 bytes take 48 us.
    assert_eq!(at, Instant::from_nanos(25_048_000));
}

#[test]
fn latencies_that_cannot_be() {
    let error = |latencies| World::new(WorldConfig { latencies, ..upload(20) }).err();
    let latency = HostLatency { node: CLIENT, busy: micros(70), idle: micros(130), idle_after: ms(10) };
    assert_eq!(error(vec![latency, latency]), Some(WorldError::LatencyTwice { node: "client".into() }));
    let none = HostLatency { busy: micros(0), ..latency };
    let reason = ConfigError::NoLength { field: "latency: busy" };
    assert_eq!(error(vec![none]), Some(WorldError::Latency { node: "client".into(), error: reason }));
    let config = WorldConfig { nodes: vec![host("client"), router("router"), host("server")], ..upload(20) };
    let at_router = HostLatency { node: NodeId(1), ..latency };
    let config = WorldConfig {
        links: vec![link("a", 0, 1, wire(1_000, ms(1), 9)), link("b", 1, 2, wire(1_000, ms(1), 9))],
        flows: vec![flow("up", 0, 2, bulk_bytes(1))],
        latencies: vec![at_router],
        ..config
    };
    assert_eq!(World::new(config).err(), Some(WorldError::LatencyOfRouter { node: "router".into() }));
}
