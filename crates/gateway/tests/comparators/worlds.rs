//! Simulated worlds.

use std::sync::Arc;

use holdover_base::{BitRate, ByteCount, Instant};
use holdover_gateway::Mechanisms;
use holdover_gateway::snoop::SnoopConfig;
use holdover_link::{LinkConfig, Loss, QueueLimit, Rate};
use holdover_sim::{
    Amount, Bulk, FlowConfig, FlowReport, GatewayMechanisms, LinkBetween, NoObserver, NodeConfig, NodeId, Opener, Role,
    Traffic, World, WorldConfig,
};
use holdover_tcp::{Counters, Profile};

use crate::support::ms;

const FIXED: NodeId = NodeId(0);
const BASE: NodeId = NodeId(1);
const MOBILE: NodeId = NodeId(2);

const BYTES: u64 = 5_000_000;

fn wireless(loss: f64, seed: u64, profile: Profile, mechanisms: Option<Mechanisms>) -> WorldConfig {
    let node = |name: &str, role| NodeConfig { name: name.into(), role };
    let link = |kbps, delay, loss, queue| LinkConfig {
        rate: Rate::Fixed(BitRate::from_kbps(kbps)),
        delay,
        queue_limit: QueueLimit::Packets(queue),
        loss,
        ..LinkConfig::default()
    };
    let config = Arc::new(profile.config());
    let wired = link(10_000, ms(30), Loss::None, 100);
    let lossy = link(20_000, ms(3), Loss::Independent(loss), 100);
    WorldConfig {
        seed,
        nodes: vec![node("fixed", Role::Host), node("base", Role::Router), node("mobile", Role::Host)],
        links: vec![
            LinkBetween::wire("internet", FIXED, BASE, wired),
            LinkBetween::wire("wireless", BASE, MOBILE, lossy),
        ],
        gateways: mechanisms
            .into_iter()
            .map(|mechanisms| GatewayMechanisms { node: BASE, mechanisms, mobiles: vec![MOBILE], hears_links: true })
            .collect(),
        flows: vec![FlowConfig {
            name: "bulk".into(),
            from: FIXED,
            to: MOBILE,
            start: Instant::ZERO,
            sender: Arc::clone(&config),
            receiver: config,
            traffic: Traffic::Bulk(Bulk { amount: Amount::Bytes(ByteCount(BYTES)), opener: Opener::Receiver }),
            ipv6: false,
        }],
        time_limit: Instant::from_secs(600),
        ..WorldConfig::default()
    }
}

fn run(world: WorldConfig) -> FlowReport {
    let mut world = World::new(world).expect("a world");
    world.run(&mut NoObserver);
    world.report().remove(0)
}

#[test]
fn explore() {
    let snoop = Mechanisms { snoop: Some(SnoopConfig::default()), ..Mechanisms::default() };
    for profile in [Profile::RenoBsd, Profile::Sack1Ns2, Profile::Linux6Reno, Profile::Linux6Cubic] {
        for loss in [0.0, 0.005, 0.02, 0.05] {
            for seed in 1..=2 {
                for (name, mechanisms) in [("plain", None), ("snoop", Some(snoop.clone()))] {
                    let report = run(wireless(loss, seed, profile, mechanisms));
                    let c: Counters = report.sender.clone().unwrap();
                    println!(
                        "{:12} loss {loss:5} seed {seed} {name}: {:6.0} kbit/s resent {:7} timeouts {} recoveries {} dup at mobile {} {:?}",
                        profile.name(), report.goodput_bps() / 1e3, c.bytes_retransmitted.0, c.timeouts, c.recoveries, report.receiver.unwrap().bytes_duplicate.0, report.status
                    );
                }
            }
        }
    }
}
