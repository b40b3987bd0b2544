//! Transfers to a mobile host whose link comes and goes, with each mechanism at the tower.

use holdover_base::BitRate;
use holdover_gateway::Mechanisms;
use holdover_gateway::buffer_freeze::BufferFreezeConfig;
use holdover_gateway::daemon::{DaemonConfig, Mode};
use holdover_gateway::m_tcp::MTcpConfig;
use holdover_gateway::split::SplitConfig;
use holdover_gateway::supervisor::{Choke, SupervisorConfig};
use holdover_sim::{FlowReport, FlowStatus, World, WorldError};
use holdover_tcp::Profile;
use proptest::prelude::*;

use crate::support::*;

const PROFILES: [Profile; 4] = [Profile::RenoBsd, Profile::TahoeBsd, Profile::Linux6Reno, Profile::Linux6Cubic];

fn buffer_freeze(buffers: bool, freezes: bool) -> Mechanisms {
    let config = BufferFreezeConfig { buffers, freezes, ..BufferFreezeConfig::default() };
    Mechanisms { buffer_freeze: Some(config), ..Mechanisms::default() }
}

fn supervisor(choke: Choke) -> Mechanisms {
    let config = SupervisorConfig { choke, ..SupervisorConfig::default() };
    Mechanisms { supervisor: Some(config), ..Mechanisms::default() }
}

fn split() -> SplitConfig {
    SplitConfig::with(Profile::Linux6Reno.config())
}

fn m_tcp(pulls_back: bool) -> Mechanisms {
    Mechanisms { m_tcp: Some(MTcpConfig { pulls_back, ..MTcpConfig::with(split()) }), ..Mechanisms::default() }
}

fn with_bandwidth(mut mechanisms: Mechanisms) -> Mechanisms {
    if let Some(m_tcp) = &mut mechanisms.m_tcp {
        m_tcp.bandwidth = Some(BitRate::from_kbps(1_500));
    }
    mechanisms
}

fn idle_ms(report: &FlowReport) -> u64 {
    let idle = report.reconnections.last().and_then(|last| last.idle).expect("it went on");
    idle.as_micros() / 1_000
}

/// A cut from 4 s on.
fn cut(profile: Profile, gap_ms: u64, mechanisms: &Mechanisms) -> FlowReport {
    run(with(world(profile, 3_000_000, &[(4_000, 4_000 + gap_ms)]), mechanisms.clone()))
}

/// 5 ms to the mobile host, a segment in 6 ms, and the cost of slow start's window; a plain TCP waits for seconds.
// Claim: After cuts of 1, 3 and 10 s with all packets lost, four profiles continue within 30 ms of the link's return (5 ms to the
// mobile host) with copies in the network: BUFFER, BUFFER-FREEZE, the supervisor with and without choking, M-TCP. Without copies
// it takes more than 5 s after 10 s.
#[test]
fn copies_at_the_gateway_resume_a_transfer_within_a_round_trip_of_the_radio() {
    for profile in PROFILES {
        let plain = run(world(profile, 3_000_000, &[(4_000, 14_000)]));
        // The time of the return within the backoff is random: the wait is seldom less than a third of the outage.
        assert!(idle_ms(&plain) > 3_000, "{profile}: {} ms", idle_ms(&plain));
        for (name, mechanisms) in [
            ("buffer", buffer_freeze(true, false)),
            ("buffer-freeze", buffer_freeze(true, true)),
            ("supervisor", supervisor(Choke::Never)),
            ("supervisor, choking", supervisor(Choke::WhenAway)),
            ("M-TCP", m_tcp(false)),
        ] {
            for gap_ms in [1_000, 3_000, 10_000] {
                let report = cut(profile, gap_ms, &mechanisms);
                assert_eq!(report.status, FlowStatus::Completed);
                assert!(idle_ms(&report) <= 30, "{profile}, {name}, {gap_ms} ms: {} ms", idle_ms(&report));
            }
        }
    }
}

/// The default of the supervisor: buffer, hold back, and let the sender detect that nothing was lost.
// Claim: The supervisor that does not choke is at most 2 % slower than no mechanism in cuts of 0.3 to 10 s, and 2.5 % for Tahoe
// in one of 1 s.
#[test]
fn the_supervisor_without_choking_is_at_most_slightly_slower_than_plain_tcp() {
    for profile in PROFILES {
        for gap_ms in [300, 1_000, 3_000, 10_000] {
            let plain = run(world(profile, 3_000_000, &[(4_000, 4_000 + gap_ms)])).duration().as_secs_f64();
            let with_it = cut(profile, gap_ms, &supervisor(Choke::Never)).duration().as_secs_f64();
            // Tahoe takes 14.91 s with it and 14.61 s without.
            let bound = if profile == Profile::TahoeBsd && gap_ms == 1_000 { 1.025 } else { 1.02 };
            assert!(with_it <= plain * bound, "{profile}, {gap_ms} ms: {with_it:.2} s, plain {plain:.2} s");
        }
    }
}

/// 4.3BSD handles the zero window as in the paper: its timer does not expire, and its outstanding data is not lost.
// Claim: 4.3BSD has no timeout with BUFFER-FREEZE.
#[test]
fn a_sender_of_the_papers_time_has_no_timeout_with_buffer_freeze() {
    for profile in [Profile::RenoBsd, Profile::TahoeBsd] {
        for gap_ms in [1_000, 3_000, 10_000] {
            let report = cut(profile, gap_ms, &buffer_freeze(true, true));
            assert_eq!(report.sender.expect("a sender").timeouts, 0, "{profile}, {gap_ms} ms");
        }
    }
}

#[test]
fn a_router_that_no_flow_crosses_is_refused() {
    let mut config = with(world(Profile::RenoBsd, 1_000, &[]), supervisor(Choke::Never));
    config.gateways[0].mobiles = vec![SERVER];
    assert!(World::new(config.clone()).is_ok(), "the server's packets come through it");
    config.nodes.push(holdover_sim::NodeConfig { name: "aside".into(), role: holdover_sim::Role::Router });
    config.gateways[0].node = holdover_sim::NodeId(3);
    assert_eq!(World::new(config.clone()).err(), Some(WorldError::GatewayOffPath { node: "aside".into() }));
    config.gateways[0].node = SERVER;
    assert_eq!(World::new(config.clone()).err(), Some(WorldError::GatewayOfHost { node: "server".into() }));
    config.gateways[0].node = TOWER;
    config.gateways[0].mobiles = vec![TOWER];
    assert!(matches!(World::new(config.clone()).err(), Some(WorldError::MobileIsRouter { .. })));
    config.gateways[0].mechanisms = Mechanisms::default();
    config.gateways[0].mobiles = vec![MOBILE];
    assert!(matches!(World::new(config).err(), Some(WorldError::Gateway { .. })));
}

fn outages() -> impl Strategy<Value = Vec<(u64, u64)>> {
    prop::collection::vec((50_u64..4_000, 20_u64..5_000), 1..8).prop_map(|spans| {
        let mut at = 100;
        let spans = spans.into_iter().map(|(up, down)| {
            let begins = at + up;
            at = begins + down;
            (begins, at)
        });
        spans.collect()
    })
}

fn daemon(mode: Mode) -> Mechanisms {
    Mechanisms { daemon: Some(DaemonConfig { mode, ..DaemonConfig::default() }), ..Mechanisms::default() }
}

fn any_mechanisms() -> impl Strategy<Value = Mechanisms> {
    prop_oneof![
        Just(daemon(Mode::Buffer)),
        Just(daemon(Mode::Freeze)),
        Just(daemon(Mode::BufferFreeze)),
        Just(daemon(Mode::MTcp)),
        Just(daemon(Mode::Thesis)),
        Just(buffer_freeze(true, true)),
        Just(buffer_freeze(true, false)),
        Just(buffer_freeze(false, true)),
        Just(supervisor(Choke::Never)),
        Just(supervisor(Choke::WhenAway)),
        Just(supervisor(Choke::Wintimer)),
        Just(m_tcp(false)),
        Just(with_bandwidth(m_tcp(false))),
        Just(Mechanisms { split: Some(split()), ..Mechanisms::default() }),
        Just(Mechanisms { blocking_buffer: Some(Default::default()), ..Mechanisms::default() }),
        Just(Mechanisms { copy_and_forward: Some(Default::default()), ..Mechanisms::default() }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    /// With any outages, reported to the router or not, and in either direction, all data arrives and no end waits for ever. After the last
    /// outage there is time for the rest at a twentieth of the link's rate, and for the longest interval between two probes, of the fixed
    /// host and of a supervisor host without reports.
    // Claim: Over random outages, with and without reports to the router, in either direction, with four profiles and each
    // mechanism except `snoop` and `tawcf` a transfer of 400 kB completes within 182 s of the last outage. 400 cases.
    #[test]
    fn every_transfer_ends(
        mechanisms in any_mechanisms(),
        profile in prop::sample::select(PROFILES.to_vec()),
        outages in outages(),
        is_told in any::<bool>(),
        is_upload in any::<bool>(),
        seed in any::<u64>(),
    ) {
        // 4.3BSD takes back outstanding data at a closed window, and Linux does not: with the wrong setting, M-TCP
        // waits for their timers.
        let is_bsd = matches!(profile, Profile::RenoBsd | Profile::TahoeBsd);
        let mut mechanisms = mechanisms;
        if let Some(m_tcp) = &mut mechanisms.m_tcp {
            m_tcp.pulls_back = is_bsd;
        }
        let mut config = with(world(profile, 400_000, &outages), mechanisms);
        config.gateways[0].hears_links = is_told;
        config.seed = seed;
        if is_upload {
            (config.flows[0].from, config.flows[0].to) = (MOBILE, SERVER);
        }
        let last = outages.last().map_or(0, |outage| outage.1);
        let report = run(config);
        prop_assert_eq!(report.status, FlowStatus::Completed);
        prop_assert_eq!(report.bytes_received, 400_000);
        let took = report.duration().as_micros() / 1_000;
        prop_assert!(took < last + 32_000 + 150_000, "{} ms after the last outage", took - last);
    }
}
