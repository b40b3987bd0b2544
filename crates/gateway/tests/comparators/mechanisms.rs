//! Valid and invalid combinations of a router's mechanisms.

use holdover_base::Duration;
use holdover_gateway::blocking_buffer::BlockingBufferConfig;
use holdover_gateway::buffer_freeze::BufferFreezeConfig;
use holdover_gateway::ebsn::EbsnConfig;
use holdover_gateway::snoop::SnoopConfig;
use holdover_gateway::split::SplitConfig;
use holdover_gateway::supervisor::SupervisorConfig;
use holdover_gateway::tawcf::TawcfConfig;
use holdover_gateway::{ConfigError, Mechanisms};
use holdover_tcp::Profile;

fn snoop(change: impl Fn(&mut SnoopConfig)) -> Mechanisms {
    let mut config = SnoopConfig::default();
    change(&mut config);
    Mechanisms { snoop: Some(config), ..Mechanisms::default() }
}

fn tawcf(change: impl Fn(&mut TawcfConfig)) -> Mechanisms {
    let mut config = TawcfConfig::default();
    change(&mut config);
    Mechanisms { tawcf: Some(config), ..Mechanisms::default() }
}

#[test]
fn each_can_stand_alone_and_beside_a_blocking_buffer() {
    let blocking_buffer = Some(BlockingBufferConfig::default());
    for mechanisms in [snoop(|_| {}), tawcf(|_| {})] {
        assert_eq!(mechanisms.check(), Ok(()));
        assert!(!mechanisms.chain([7; 16]).is_empty());
        assert_eq!(Mechanisms { blocking_buffer, ..mechanisms }.check(), Ok(()));
    }
    assert_eq!(Mechanisms::default().check(), Err(ConfigError::None));
}

#[test]
fn notifications_go_with_all_that_terminate_nothing() {
    let ebsn = Some(EbsnConfig::default());
    for mechanisms in [Mechanisms::default(), snoop(|_| {}), tawcf(|_| {})] {
        assert_eq!(Mechanisms { ebsn, ..mechanisms }.check(), Ok(()));
    }
    let split = Some(SplitConfig::with(Profile::RenoBsd.config()));
    let error = Mechanisms { ebsn, split, ..Mechanisms::default() }.check();
    assert_eq!(error, Err(ConfigError::Terminated { mechanism: "ebsn", terminates: "split" }));
}

#[test]
fn mechanisms_without_effect_are_refused() {
    for mechanisms in [
        snoop(|snoop| snoop.buffer_bytes = 0),
        snoop(|snoop| snoop.most_resent = 0),
        snoop(|snoop| snoop.persist = Duration::ZERO),
        tawcf(|tawcf| tawcf.buffer_bytes = 0),
        tawcf(|tawcf| tawcf.longest = Duration::ZERO),
    ] {
        assert!(matches!(mechanisms.check(), Err(ConfigError::Nothing { .. })), "{mechanisms:?}");
    }
}

// Claim: Two mechanisms at one router that both decide which ACKs pass are refused; so are a Snoop and a TAWCF without effect,
// and a router that no flow of its hosts crosses.
// Tests: `mechanisms::mechanisms_without_effect_are_refused`, `mechanisms::each_can_stand_alone_and_beside_a_blocking_buffer`,
// `worlds::a_router_that_no_flow_crosses_is_refused`
#[test]
fn two_that_answer_for_the_mobile_host_are_refused() {
    let all = Mechanisms {
        supervisor: Some(SupervisorConfig::default()),
        buffer_freeze: Some(BufferFreezeConfig::default()),
        snoop: Some(SnoopConfig::default()),
        tawcf: Some(TawcfConfig::default()),
        ..Mechanisms::default()
    };
    let only = |names: [&str; 2]| Mechanisms {
        supervisor: all.supervisor.filter(|_| names.contains(&"supervisor")),
        buffer_freeze: all.buffer_freeze.clone().filter(|_| names.contains(&"buffer_freeze")),
        snoop: all.snoop.clone().filter(|_| names.contains(&"snoop")),
        tawcf: all.tawcf.filter(|_| names.contains(&"tawcf")),
        ..Mechanisms::default()
    };
    let names = ["supervisor", "buffer_freeze", "snoop", "tawcf"];
    for (index, &one) in names.iter().enumerate() {
        for &other in &names[index + 1..] {
            assert_eq!(only([one, other]).check(), Err(ConfigError::Together { one, other }));
        }
    }
}
