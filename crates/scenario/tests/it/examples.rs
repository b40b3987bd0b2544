//! Every example scenario is valid, has something to compare, and runs.

use holdover_base::Instant;
use holdover_scenario::{Builtin, Scenario};
use holdover_sim::{FlowStatus, NoObserver, World};

fn scenario(builtin: &Builtin) -> Scenario {
    builtin.scenario().unwrap_or_else(|error| panic!("{}", error.report(Default::default())))
}

#[test]
fn every_example_runs_and_its_variants_differ() {
    for builtin in Builtin::ALL {
        let scenario = scenario(builtin);
        let mut results = Vec::new();
        for variant in scenario.variants() {
            let config = variant.world(scenario.seed()).unwrap();
            assert!(config.time_limit <= Instant::from_secs(120), "{}", builtin.name);
            let mut world = World::new(config).unwrap();
            world.run(&mut NoObserver);
            let reports = world.report();
            assert!(reports.iter().all(|report| report.bytes_received > 0), "{} {}", builtin.name, variant.name());
            assert!(!reports.iter().any(|report| matches!(report.status, FlowStatus::Failed(_))), "{}", builtin.name);
            results.push(reports[0].goodput_bps().to_bits());
        }
        assert!(results.len() >= 3, "{}", builtin.name);
        results.sort_unstable();
        results.dedup();
        assert!(results.len() >= 2, "{}: all variants are the same", builtin.name);
    }
}

/// The gateway's scenario: with packets kept at the gateway, the phone is served at once on its return. The whole download is shorter only
/// with `buffer`: a closed window over outstanding data does not spare the server its timeouts.
#[test]
fn the_gateways_modes_that_keep_packets_serve_the_phone_at_once() {
    let scenario = scenario(Builtin::find("gateway").unwrap());
    let measured = scenario.variants().iter().map(|variant| {
        let mut world = World::new(variant.world(scenario.seed()).unwrap()).unwrap();
        world.run(&mut NoObserver);
        let report = world.report().remove(0);
        let idle_ms = |reconnection: &holdover_sim::Reconnection| {
            reconnection.idle.map(|idle| idle.as_micros() / 1000).expect("data flowed again")
        };
        let longest_ms = report.reconnections.iter().map(idle_ms).max().expect("the phone was away");
        (variant.name().to_owned(), (longest_ms, report.duration()))
    });
    let measured: std::collections::BTreeMap<_, _> = measured.collect();
    let (plain_ms, plain) = measured["plain"];
    assert!(plain_ms > 1_000, "{measured:?}");
    for mode in ["buffer", "buffer-freeze", "m-tcp"] {
        let (longest_ms, duration) = measured[mode];
        assert!(longest_ms <= 100 && duration < plain + plain / 100, "{mode}: {measured:?}");
    }
    assert!(measured["buffer"].1 < plain, "{measured:?}");
    assert!(measured["freeze"].0 > 1_000, "nothing is kept: {measured:?}");
}

#[test]
fn every_example_has_a_title_a_description_and_a_sweep() {
    for builtin in Builtin::ALL {
        let scenario = scenario(builtin);
        assert_ne!(scenario.title(), scenario.name());
        assert!(scenario.description().is_some_and(|text| text.len() > 100), "{}", builtin.name);
        let sweep = scenario.sweep().unwrap_or_else(|| panic!("{} has a sweep", builtin.name));
        for point in sweep.points() {
            assert!(scenario.at(&point).is_ok(), "{} {:?}", builtin.name, point.labels);
        }
    }
}

#[test]
fn an_example_is_found_by_its_name() {
    assert_eq!(Builtin::find("elevator").map(|builtin| builtin.name), Some("elevator"));
    assert_eq!(Builtin::find("elevator.toml").map(|builtin| builtin.name), Some("elevator"));
    assert_eq!(Builtin::find("lift"), None);
    assert_eq!(Scenario::open("satellite-pass").unwrap().files().count(), 1);
}
