//! Simulated worlds.

use std::sync::Arc;

use holdover_base::{BitRate, ByteCount, Duration, Instant};
use holdover_gateway::Mechanisms;
use holdover_gateway::snoop::SnoopConfig;
use holdover_gateway::tawcf::TawcfConfig;
use holdover_link::cell::{CellConfig, Position};
use holdover_link::{Length, LinkConfig, Loss, QueueLimit, Rate};
use holdover_sim::{
    Amount, Attachment, Bulk, CellId, FlowConfig, FlowReport, FlowStatus, GatewayMechanisms, LinkBetween, LinkId,
    MobileHost, Movement, NoObserver, NodeConfig, NodeId, Opener, Prediction, RadioCell, Role, Selection, Traffic,
    Visits, World, WorldConfig,
};
use holdover_tcp::Profile;

use crate::support::ms;

fn node(name: &str, role: Role) -> NodeConfig {
    NodeConfig { name: name.into(), role }
}

fn link(kbps: u64, delay: Duration, queue_packets: u32) -> LinkConfig {
    LinkConfig {
        rate: Rate::Fixed(BitRate::from_kbps(kbps)),
        delay,
        queue_limit: QueueLimit::Packets(queue_packets),
        ..LinkConfig::default()
    }
}

fn download(from: NodeId, to: NodeId, profile: Profile, bytes: u64) -> FlowConfig {
    let config = Arc::new(profile.config());
    FlowConfig {
        name: "bulk".into(),
        from,
        to,
        start: Instant::ZERO,
        sender: Arc::clone(&config),
        receiver: config,
        traffic: Traffic::Bulk(Bulk { amount: Amount::Bytes(ByteCount(bytes)), opener: Opener::Receiver }),
        ipv6: false,
    }
}

/// What became of the flow, and how often the sender repeated a byte. All of it has arrived.
fn run(world: WorldConfig, bytes: u64) -> (FlowReport, u64) {
    let mut world = World::new(world).expect("a world");
    world.run(&mut NoObserver);
    let report = world.report().remove(0);
    assert_eq!((report.status, report.bytes_received), (FlowStatus::Completed, bytes));
    let resent = report.sender.as_ref().expect("a sender").bytes_retransmitted.0;
    (report, resent)
}

const BASE: NodeId = NodeId(1);

/// A fixed host, 10 Mbit/s and 30 ms to a base station whose queues never overflow, and a wireless link of `kbps` and 3 ms with a queue
/// of 100 packets that loses packets of both directions.
fn lossy(profile: Profile, kbps: u64, loss: f64, seed: u64, snoop: Option<SnoopConfig>, bytes: u64) -> WorldConfig {
    let (fixed, mobile) = (NodeId(0), NodeId(2));
    let wireless = LinkConfig { loss: Loss::Independent(loss), ..link(kbps, ms(3), 100) };
    let gateway = |snoop| GatewayMechanisms {
        node: BASE,
        mechanisms: Mechanisms { snoop: Some(snoop), ..Mechanisms::default() },
        mobiles: vec![mobile],
        hears_links: true,
    };
    WorldConfig {
        seed,
        nodes: vec![node("fixed", Role::Host), node("base", Role::Router), node("mobile", Role::Host)],
        links: vec![
            LinkBetween::wire("internet", fixed, BASE, link(10_000, ms(30), 100_000)),
            LinkBetween::wire("wireless", BASE, mobile, wireless),
        ],
        gateways: snoop.map(gateway).into_iter().collect(),
        flows: vec![download(fixed, mobile, profile, bytes)],
        time_limit: Instant::from_secs(600),
        ..WorldConfig::default()
    }
}

#[test]
fn explore() {
    let snoop = Some(SnoopConfig::default());
    for profile in [Profile::RenoBsd, Profile::Linux6Cubic] {
        for kbps in [20_000, 5_000] {
            for loss in [0.0, 0.02] {
                for seed in 1..=3 {
                    for (name, snoop) in [("plain", None), ("snoop", snoop)] {
                        let bytes = 5_000_000;
                        let (report, resent) = run(lossy(profile, kbps, loss, seed, snoop, bytes), bytes);
                        let c = report.sender.clone().unwrap();
                        println!(
                            "{:12} {kbps} loss {loss:5} seed {seed} {name}: {:6.0} kbit/s resent {resent:7} timeouts {} recoveries {} dup at mobile {}",
                            profile.name(),
                            report.goodput_bps() / 1e3,
                            c.timeouts,
                            c.recoveries,
                            report.receiver.unwrap().bytes_duplicate.0,
                        );
                    }
                }
            }
        }
    }
}

const OLD: NodeId = NodeId(2);
const NEW: NodeId = NodeId(3);

/// A fixed host, a router, and two base stations with a cell each, between which a mobile host goes to and fro: 4 s in a cell, 500 ms out
/// of range, and 100 ms until its packets find it. Its base station foresees each loss 50 ms before, if it is told.
fn cellular(
    profile: Profile,
    foresees: bool,
    out_of_range: Duration,
    attach: Duration,
    lan: Duration,
    tawcf: Option<TawcfConfig>,
    bytes: u64,
) -> WorldConfig {
    let (fixed, router, mobile) = (NodeId(0), NodeId(1), NodeId(4));
    let cell = |name: &str, base, x_m| RadioCell {
        name: name.into(),
        base,
        cell: CellConfig { position: Position { x_m, y_m: 0.0 }, ..CellConfig::wavelan(40.0, QueueLimit::Packets(50)) },
        beacons: None,
    };
    let gateway = |tawcf, node| GatewayMechanisms {
        node,
        mechanisms: Mechanisms { tawcf: Some(tawcf), ..Mechanisms::default() },
        mobiles: vec![mobile],
        hears_links: true,
    };
    WorldConfig {
        seed: 1,
        nodes: vec![
            node("fixed", Role::Host),
            node("router", Role::Router),
            node("old", Role::Router),
            node("new", Role::Router),
            node("mobile", Role::Host),
        ],
        links: vec![
            LinkBetween::wire("wan", fixed, router, link(1_500, ms(40), 100)),
            LinkBetween::wire("lan-1", router, OLD, link(10_000, lan, 100)),
            LinkBetween::wire("lan-2", router, NEW, link(10_000, lan, 100)),
        ],
        cells: vec![cell("cell-1", OLD, 0.0), cell("cell-2", NEW, 80.0)],
        mobiles: vec![MobileHost {
            node: mobile,
            movement: Movement::Visits(Visits {
                cells: vec![CellId(0), CellId(1)],
                first_residence: None,
                residence: Length::Constant(ms(4_000)),
                gap: (!out_of_range.is_zero()).then_some(Length::Constant(out_of_range)),
                moves: None,
            }),
            attachment: Attachment::HandoffTime(attach),
            selection: Selection::default(),
            prediction: foresees.then_some(Prediction::Lead(ms(50))),
        }],
        gateways: tawcf.into_iter().flat_map(|tawcf| [gateway(tawcf, OLD), gateway(tawcf, NEW)]).collect(),
        flows: vec![download(fixed, mobile, profile, bytes)],
        time_limit: Instant::from_secs(600),
        ..WorldConfig::default()
    }
}

#[test]
fn explore_cells() {
    let d = TawcfConfig::default();
    for (gap, attach, lan) in [(500, 100, 2), (0, 20, 2), (0, 20, 5), (0, 50, 5), (0, 100, 5)] {
        for profile in [Profile::RenoBsd, Profile::Sack1Ns2, Profile::Linux6Cubic] {
            for (name, foresees, tawcf) in [
                ("plain", true, None),
                ("buffers", true, Some(TawcfConfig { low_for: None, fresh: Duration::ZERO, ..d })),
                ("buffers+seq", true, Some(TawcfConfig { low_for: None, ..d })),
                ("all", true, Some(d)),
            ] {
                let bytes = 5_000_000;
                let (report, resent) =
                    run(cellular(profile, foresees, ms(gap), ms(attach), ms(lan), tawcf, bytes), bytes);
                let c = report.sender.clone().unwrap();
                println!(
                    "{gap} {attach} {lan} {:12} {name:15}: {:6.0} kbit/s resent {resent:7} timeouts {} recoveries {} dup at mobile {} undos {}",
                    profile.name(),
                    report.goodput_bps() / 1e3,
                    c.timeouts,
                    c.recoveries,
                    report.receiver.unwrap().bytes_duplicate.0,
                    c.undos
                );
            }
        }
    }
    let _ = LinkId(0);
}
