use holdover_gateway::Mechanisms;
use holdover_gateway::blocking_buffer::BlockingBufferConfig;
use holdover_gateway::buffer_freeze::BufferFreezeConfig;
use holdover_gateway::m_tcp::MTcpConfig;
use holdover_gateway::split::SplitConfig;
use holdover_gateway::supervisor::{Choke, SupervisorConfig};
use holdover_tcp::Profile;

use crate::support::*;

#[test]
fn table() {
    let bf = BufferFreezeConfig::default();
    let sv = SupervisorConfig::default();
    let profile_config = Profile::Linux6Cubic.config();
    let none = Mechanisms::default();
    let cases = [
        ("plain", None),
        ("buffer-freeze", Some(Mechanisms { buffer_freeze: Some(bf), ..none.clone() })),
        (
            "buffer",
            Some(Mechanisms { buffer_freeze: Some(BufferFreezeConfig { freezes: false, ..bf }), ..none.clone() }),
        ),
        (
            "freeze",
            Some(Mechanisms { buffer_freeze: Some(BufferFreezeConfig { buffers: false, ..bf }), ..none.clone() }),
        ),
        ("supervisor", Some(Mechanisms { supervisor: Some(sv), ..none.clone() })),
        (
            "sup when-away",
            Some(Mechanisms { supervisor: Some(SupervisorConfig { choke: Choke::WhenAway, ..sv }), ..none.clone() }),
        ),
        (
            "sup wintimer",
            Some(Mechanisms { supervisor: Some(SupervisorConfig { choke: Choke::Wintimer, ..sv }), ..none.clone() }),
        ),
        ("split", Some(Mechanisms { split: Some(SplitConfig::with(profile_config.clone())), ..none.clone() })),
        (
            "m-tcp",
            Some(Mechanisms {
                m_tcp: Some(MTcpConfig::with(SplitConfig::with(profile_config.clone()))),
                ..none.clone()
            }),
        ),
        (
            "m-tcp pulls",
            Some(Mechanisms {
                m_tcp: Some(MTcpConfig {
                    pulls_back: true,
                    ..MTcpConfig::with(SplitConfig::with(profile_config.clone()))
                }),
                ..none.clone()
            }),
        ),
        ("blocking", Some(Mechanisms { blocking_buffer: Some(BlockingBufferConfig::default()), ..none.clone() })),
    ];
    for profile in [Profile::RenoBsd, Profile::TahoeBsd, Profile::Linux6Cubic, Profile::Linux6Reno] {
        for gap in [300u64, 1_000, 3_000, 10_000] {
            for (name, mechanisms) in &cases {
                let mut config = world(profile, 3_000_000, &[(4_000, 4_000 + gap)]);
                if let Some(m) = mechanisms {
                    config = with(config, m.clone());
                }
                let report = run(config);
                let s = report.sender.as_ref().unwrap();
                println!(
                    "{profile:14} {gap:6} {name:14} idle {:?} total {:.2} retx {} timeouts {} status {:?}",
                    report.reconnections.last().and_then(|r| r.idle).map(|i| i.as_micros() / 1000),
                    report.duration().as_secs_f64(),
                    s.bytes_retransmitted.0,
                    s.timeouts,
                    report.status,
                );
            }
        }
    }
}

struct Trace(u64, u64);
impl holdover_sim::Observer for Trace {
    fn packet(&mut self, at: holdover_base::Instant, place: holdover_sim::Place, frame: &holdover_sim::Frame) {
        let t = at.as_nanos() / 1_000_000;
        if place.node == TOWER && t >= self.0 && t < self.1 {
            println!("{:.4} {:?} {:?} {}", at.as_secs_f64(), place.medium, place.direction, frame.packet);
        }
    }
    fn event(&mut self, at: holdover_base::Instant, event: &holdover_sim::WorldEvent) {
        println!("{:.4} EVENT {:?}", at.as_secs_f64(), event);
    }
}

#[test]
fn trace() {
    let mut config = world(Profile::RenoBsd, 3_000_000, &[(4_000, 4_300)]);
    let m = MTcpConfig { pulls_back: true, ..MTcpConfig::with(SplitConfig::with(Profile::Linux6Cubic.config())) };
    config = with(config, Mechanisms { m_tcp: Some(m), ..Mechanisms::default() });
    let mut world = holdover_sim::World::new(config).unwrap();
    world.run_to(at_ms(40_000), &mut Trace(3_900, 9_000));
}
