//! Every example scenario is whole, and runs.

use holdover_scenario::Builtin;
use holdover_sim::{NoObserver, World};

#[test]
fn every_example_runs() {
    for builtin in Builtin::ALL {
        let scenario = builtin.scenario().unwrap_or_else(|error| panic!("{}", error.report(Default::default())));
        for variant in scenario.variants() {
            let mut world = World::new(variant.world(scenario.seed()).unwrap()).unwrap();
            let ending = world.run(&mut NoObserver);
            eprintln!("{} {} {ending:?} at {}", builtin.name, variant.name(), world.now());
            for (flow, report) in world.config().flows.iter().zip(world.report()) {
                eprintln!(
                    "  {} {:?} {:.3} Mbit/s idle {:?} exchanges {} worst {:?} rto {:?}",
                    flow.name,
                    report.status,
                    report.goodput_bps() / 1e6,
                    report.reconnections.iter().map(|r| r.idle).collect::<Vec<_>>(),
                    report.exchanges.len(),
                    report.exchanges.iter().max(),
                    report.sender.as_ref().map(|s| s.timeouts)
                );
            }
        }
    }
}
