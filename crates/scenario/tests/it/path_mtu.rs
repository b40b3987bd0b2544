//! The example of the guide about a path with a smaller MTU has the results that the guide describes.

use std::collections::BTreeMap;

use holdover_base::Duration;
use holdover_scenario::{NoFiles, Scenario, Variant};
use holdover_sim::{FlowReport, FlowStatus, NoObserver, World};
use holdover_tcp::Reason;

fn reports() -> BTreeMap<String, FlowReport> {
    let guide = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/guide/scenario-files.md");
    let guide = std::fs::read_to_string(guide).unwrap();
    let mut examples = guide.split("```toml\n").skip(1).filter_map(|block| block.split("```").next());
    let text = examples.find(|block| block.contains("mtu_errors = false")).expect("the guide has this example");
    let scenario = Scenario::parse("guide.toml", text, NoFiles).unwrap();
    let run = |variant: &Variant| {
        let mut world = World::new(variant.world(scenario.seed()).unwrap()).unwrap();
        world.run(&mut NoObserver);
        (variant.name().to_owned(), world.report().remove(0))
    };
    scenario.variants().iter().map(run).collect()
}

// Claim: Behind a tunnel with an MTU of 1400 bytes and a firewall that drops ICMP, a download hangs after its request. With ICMP errors, a
// clamped MSS or `mtu_probing` it completes; after a black hole was detected, some 4 s later.
#[test]
fn the_guides_download_hangs_unless_something_is_done() {
    let reports = reports();
    let hangs = &reports["hangs"];
    assert_eq!((hangs.status, hangs.bytes_received), (FlowStatus::Unfinished, 400));
    for (name, from, to) in [("reported", 400, 2_000), ("clamped", 400, 2_000), ("mtu-probing", 3_500, 6_000)] {
        let report = &reports[name];
        assert_eq!((report.status, report.bytes_received), (FlowStatus::Completed, 1_000_400), "{name}");
        let expected = Duration::from_millis(from)..Duration::from_millis(to);
        assert!(expected.contains(&report.duration()), "{name}: {}", report.duration());
        let probes = report.receiver.as_ref().map_or(0, |server| server.sent(Reason::MtuProbe));
        assert_eq!(probes > 0, name == "mtu-probing", "{name}: {probes} probes");
    }
}
