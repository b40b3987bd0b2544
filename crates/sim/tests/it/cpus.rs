//! Routers whose processors take time.

use holdover_base::{Duration, Instant};
use holdover_gateway::Mechanisms;
use holdover_gateway::m_tcp::MTcpConfig;
use holdover_gateway::split::SplitConfig;
use holdover_sim::{
    CpuStatistics, Dropped, FlowStatus, GatewayMechanisms, NodeId, RouterCpu, World, WorldConfig, WorldError,
};
use holdover_tcp::Profile;
use holdover_wire::Compression;

use crate::support::*;

const ROUTER: NodeId = NodeId(1);
const PHONE: u32 = 2;

/// A server, a router and a phone, on fast links.
fn through_a_router(cpus: Vec<RouterCpu>) -> WorldConfig {
    let fast = wire(1_000_000, micros(100), 5_000);
    WorldConfig {
        seed: 1,
        nodes: vec![host("server"), router("router"), host("phone")],
        links: vec![link("wan", 0, 1, fast.clone()), link("lan", 1, 2, fast)],
        cpus,
        flows: vec![flow("download", 0, PHONE, bulk_bytes(20_000_000))],
        time_limit: Instant::from_secs(60),
        ..WorldConfig::default()
    }
}

fn micros(micros: u64) -> Duration {
    Duration::from_micros(micros)
}

/// The figures of M-TCP's authors (section 6.4): 31 us for a forwarded packet, and up to 81 us more for a packet of 1400 bytes that M-TCP
/// handles, 60 us for the smallest.
fn pentium() -> RouterCpu {
    RouterCpu {
        per_packet: micros(31),
        per_operation: micros(60),
        per_operation_byte: Duration::from_nanos(15),
        ..RouterCpu::of(ROUTER)
    }
}

/// Packets of 1400 bytes, with a window that keeps the backlog shorter than M-TCP's timers.
fn stack() -> holdover_tcp::Config {
    let mut stack = Profile::Linux6Reno.config();
    stack.mss = 1_360;
    stack.send.fix_buffer(65_536);
    stack
}

fn run(config: WorldConfig) -> (Log, f64, Option<CpuStatistics>) {
    let mut log = Log::default();
    let mut world = World::new(config).expect("a valid world");
    world.run(&mut log);
    let report = world.report().remove(0);
    assert_eq!(report.status, FlowStatus::Completed);
    (log, report.goodput_bps(), world.cpu_statistics(ROUTER))
}

/// The first two packets of a handshake, of 60 bytes each with their options, are delayed by their processing time, to the nanosecond.
// Claim: A router's processor delays each packet by its cost, limits the throughput of a gateway, and drops packets beyond its
// backlog. With the figures of M-TCP's authors forwarding is faster than M-TCP.
// Tests: `cpus::a_processor_bounds_the_throughput_of_a_gateway`, `cpus::a_full_backlog_drops`,
// `cpus::descriptions_that_cannot_be`
#[test]
fn a_packet_is_delayed_by_its_processing_time() {
    let connected_at = |cpus| {
        let mut world = World::new(through_a_router(cpus)).expect("a valid world");
        world.run(&mut Log::default());
        world.report().remove(0).connected_at.expect("a connection")
    };
    let cpu = RouterCpu { per_packet: micros(250), per_byte: Duration::from_nanos(100), ..RouterCpu::of(ROUTER) };
    let late = connected_at(vec![cpu]).saturating_since(connected_at(Vec::new()));
    assert_eq!(late, micros(250) * 2 + Duration::from_nanos(100) * 120);
}

/// At 31 us a packet a Pentium forwards 361 Mbit/s of 1400-byte packets, and with M-TCP's 112 us 100 Mbit/s, as the authors derive.
#[test]
fn a_processor_bounds_the_throughput_of_a_gateway() {
    let transfer = |cpus, m_tcp: bool| {
        let mut config = through_a_router(cpus);
        config.flows = vec![with_stack(flow("download", 0, PHONE, bulk_bytes(20_000_000)), stack())];
        if m_tcp {
            let m_tcp = Some(MTcpConfig::with(SplitConfig::with(stack())));
            let mechanisms = Mechanisms { m_tcp, ..Mechanisms::default() };
            config.gateways =
                vec![GatewayMechanisms { node: ROUTER, mechanisms, mobiles: vec![NodeId(PHONE)], hears_links: true }];
        }
        run(config)
    };
    let (_, free, none) = transfer(Vec::new(), true);
    assert_eq!(none, None);
    let (_, forwarded, _) = transfer(vec![pentium()], false);
    let (log, supervised, statistics) = transfer(vec![pentium()], true);
    // ACKs take processing time as well: one for two packets of data.
    let bound = |data_us: f64, ack_us: f64| 1_348.0 * 8.0 / (data_us + ack_us / 2.0) * 1e6;
    assert!(free > forwarded && forwarded > supervised, "{free:.0} > {forwarded:.0} > {supervised:.0} bit/s");
    assert!(forwarded <= bound(31.0, 31.0) && forwarded > bound(31.0, 31.0) * 0.6, "{forwarded:.0} bit/s");
    assert!(supervised <= bound(112.0, 91.0) * 1.02 && supervised > bound(112.0, 91.0) * 0.6, "{supervised:.0} bit/s");
    let statistics = statistics.expect("it takes time");
    assert_eq!(statistics.operations, statistics.packets, "it handles all of them");
    let run_s = 20_000_000.0 * 8.0 / supervised;
    assert!(statistics.busy.as_secs_f64() > 0.85 * run_s, "{} of {run_s} s", statistics.busy);
    let dropped = log.drops.iter().filter(|(_, why)| *why == Dropped::Backlog(ROUTER)).count() as u64;
    assert_eq!(dropped, statistics.dropped);
}

/// Packets beyond the backlog are dropped, counted and reported, and the transfer recovers.
#[test]
fn a_full_backlog_drops() {
    let cpu = RouterCpu { per_packet: micros(200), backlog_packets: 5, ..RouterCpu::of(ROUTER) };
    let mut config = through_a_router(vec![cpu]);
    config.flows = vec![flow("download", 0, PHONE, bulk_bytes(2_000_000))];
    let (log, _, statistics) = run(config);
    let statistics = statistics.expect("it takes time");
    let dropped = log.drops.iter().filter(|(_, why)| *why == Dropped::Backlog(ROUTER)).count() as u64;
    assert!(dropped > 0 && dropped == statistics.dropped);
    assert_eq!((statistics.most_waiting, statistics.operations), (5, 0));
    assert_eq!(statistics.busy, micros(200) * statistics.packets);
    assert!(statistics.sojourn >= statistics.busy && statistics.sojourn <= statistics.busy * 5);
}

#[test]
fn descriptions_that_cannot_be() {
    let error = |cpus| World::new(through_a_router(cpus)).err();
    let server = NodeId(0);
    assert_eq!(error(vec![RouterCpu::of(server)]), Some(WorldError::CpuOfHost { node: "server".into() }));
    assert_eq!(error(vec![pentium(), pentium()]), Some(WorldError::CpuTwice { node: "router".into() }));
    let none = RouterCpu { backlog_packets: 0, ..pentium() };
    assert_eq!(error(vec![none]), Some(WorldError::NoBacklog { node: "router".into() }));
}

/// M-TCP's authors: some 3 ms for a packet of 1400 bytes (section 6.5). The processor's compression rate bounds the transfer.
#[test]
fn compression_takes_the_processors_time_and_not_that_of_links() {
    let transfer = |compression| {
        let cpu = RouterCpu { per_compressed_byte: Duration::from_nanos(2_100), ..pentium() };
        let mut config = through_a_router(vec![cpu]);
        config.flows = vec![with_stack(flow("download", 0, PHONE, bulk_bytes(2_000_000)), stack())];
        let m_tcp = Some(MTcpConfig { compression, ..MTcpConfig::with(SplitConfig::with(stack())) });
        config.gateways = vec![GatewayMechanisms {
            node: ROUTER,
            mechanisms: Mechanisms { m_tcp, ..Mechanisms::default() },
            mobiles: vec![NodeId(PHONE)],
            hears_links: true,
        }];
        let (_, goodput_bps, counted) = run(config);
        (goodput_bps, counted.expect("a processor"))
    };
    let (_, plain) = transfer(None);
    let (goodput_bps, compressed) = transfer(Some(Compression { tcp: 0.4, ..Compression::default() }));
    assert_eq!(plain.compressed_bytes, 0);
    assert!((2_000_000..2_100_000).contains(&compressed.compressed_bytes), "{}", compressed.compressed_bytes);
    assert!(compressed.busy > plain.busy + Duration::from_millis(4_200));
    assert!(goodput_bps <= 1.05 * 1e9 * 8.0 / 2_100.0, "{goodput_bps}");
}
