//! Runs that are simulated together up to where their outages differ.

use std::fs;
use std::path::Path;

use holdover_scenario::{NoFiles, Scenario};

use super::family::Scenarios;
use super::plan::Cell;
use super::schedule::Unit;
use super::tests::{new_dir, plan, sweep};
use super::*;

/// A transfer with a cut, over its time and length. The second axis of the first link is not one of outages.
const CUTS: &str = r#"
    seed = 11
    time_limit = "3 min"
    [[host]]
    name = "mobile"
    addresses = "per-link"
    identity = { esp = "aes-128-cbc", delay = { distribution = "uniform", min = "100 ms", max = "900 ms" } }
    [[host]]
    name = "peer"
    identity = { esp = "aes-128-cbc" }
    [[router]]
    name = "x"
    [[link]]
    name = "first"
    between = ["mobile", "x"]
    rate = "4 Mbit/s"
    delay = "20 ms"
    queue_limit = "30 packets"
    outages = { connected = "1 s", disconnected = "2 s", count = 1, queued = "lost", in_flight = "dropped" }
    [[link]]
    name = "second"
    between = ["mobile", "x"]
    rate = "4 Mbit/s"
    delay = "20 ms"
    queue_limit = "30 packets"
    outages = { take_turns_with = "first", queued = "lost", in_flight = "dropped" }
    [[link]]
    name = "core"
    between = ["x", "peer"]
    delay = "10 ms"
    jitter = "200 us"
    [[flow]]
    name = "data"
    from = "mobile"
    to = "peer"
    bulk = "2 MB"
    [[variant]]
    name = "plain"
    [[variant]]
    name = "trigger"
    set = { "host.*.mechanisms.retransmission_trigger" = { forced_slow_start = false } }
    [[variant]]
    name = "held"
    set = { "link.first.outages.queued" = "held", "link.second.outages.queued" = "held" }
    [sweep]
    replicate = { min = 2, max = 2 }
    [[sweep.axis]]
    path = "link.first.outages.connected"
    label = "connected"
    values = ["10 ms", "0.5 s", "2 s", "90 s"]
    [[sweep.axis]]
    path = "link.first.delay"
    label = "delay"
    values = ["10 ms", "20 ms"]
    [[sweep.axis]]
    path = "link.first.outages.disconnected"
    label = "disconnected"
    values = ["0 s", "1 s", "7 s", "100 s"]
"#;

/// A download whose receiver is warned of the cut.
const WARNED: &str = r#"
    seed = 3
    time_limit = "1 min"
    [[host]]
    name = "mobile"
    [[host]]
    name = "server"
    [[link]]
    name = "radio"
    between = ["mobile", "server"]
    rate = "5 Mbit/s"
    delay = "15 ms"
    queue_limit = "40 packets"
    loss = "0.2 %"
    outages = { connected = "1 s", disconnected = "1 s", count = 3 }
    [[flow]]
    name = "data"
    from = "server"
    to = "mobile"
    opener = "mobile"
    bulk = "3 MB"
    [[variant]]
    name = "plain"
    [[variant]]
    name = "wake"
    set = { "host.mobile.mechanisms.wake" = {}, "host.mobile.foresight" = "300 ms" }
    [[variant]]
    name = "freeze"
    set = { "host.mobile.mechanisms.freeze" = {}, "host.mobile.foresight" = "300 ms" }
    [sweep]
    replicate = { min = 1, max = 1 }
    [[sweep.axis]]
    path = "link.radio.outages.connected"
    label = "connected"
    values = ["0.4 s", "1 s", "1.5 s"]
    [[sweep.axis]]
    path = "link.radio.outages.disconnected"
    label = "disconnected"
    values = ["0.2 s", "1 s", "3 s"]
"#;

/// Random worlds and outages are those of `fork` in the simulator's tests; these are the mechanisms of a sweep around them.
// Claim: Runs that differ in later outages only, and are simulated together up to there, are those that are made alone: with cuts
// at four times and of four lengths, packets lost or held, a change of address between identities, warnings, random losses and
// jitter. The HIP paper's grid is made this way: each run but the first of a family begins as a copy.
// Tests: `sweep::family_tests::a_family_of_the_grid_parts_by_copies_only`
#[test]
fn runs_of_a_family_are_those_made_alone() {
    for (name, text) in [("cuts", CUTS), ("warned", WARNED)] {
        let plan = plan(&[text]);
        assert!(plan.has_families());
        let dir = new_dir(&format!("family-{name}"));
        assert!(sweep(&plan, &dir, 2, usize::MAX).1);
        let journal = fs::read_to_string(SweepDir::at(&dir, false).expect("that sweep").journal()).expect("a journal");
        let rows = journal.lines().skip(1).map(|line| serde_json::from_str::<journal::Row>(line).expect("a row"));
        let mut rows: Vec<journal::Row> = rows.collect();
        rows.sort_by_key(|row| (row.point, plan.variants.iter().position(|name| *name == row.variant), row.run));
        let mut alone = Vec::new();
        for cell in 0..plan.cells() {
            alone.extend((0..plan.stop.min).map(|run| made_alone(&plan, Unit { cell, run })));
        }
        assert_eq!(rows, alone);
        let _ = fs::remove_dir_all(&dir);
        assert!(copies_of_families(&plan) > 0, "{name}: every run was made from its beginning");
    }
}

/// How often a world is copied if the first run of each variant is made at all points together.
fn copies_of_families(plan: &Plan) -> usize {
    let mut copies = 0;
    for variant in 0..plan.variants.len() {
        let units: Vec<Unit> =
            (0..plan.points()).map(|point| Unit { cell: plan.index(Cell { point, variant }), run: 0 }).collect();
        let made = family::make(plan, &units, &mut Scenarios::default(), &|| false, &mut |_, _| Ok(()));
        copies += made.expect("worlds that were checked").expect("wanted runs");
    }
    copies
}

/// As the journal has it.
fn made_alone(plan: &Plan, unit: Unit) -> journal::Row {
    let row = single::make(plan, unit, &mut None, || false).expect("a world that was checked");
    let line = serde_json::to_string(&row).expect("plain values");
    serde_json::from_str(&line).expect("a row")
}

/// The HIP paper's grid: one run of each variant where the first link goes down after 18 or 20 s.
#[test]
fn a_family_of_the_grid_parts_by_copies_only() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments/hip-uto-rt/grid.toml");
    let text = fs::read_to_string(file).expect("the experiment");
    let plan = Plan::new(Scenario::parse("grid.toml", &text, NoFiles).expect("a scenario"), 2).expect("a plan");
    assert!(plan.has_families());
    let is_chosen = |point: &usize| matches!(&*plan.point(*point).labels[0].value, "18 s" | "20 s");
    let points: Vec<usize> = family::points_like(&plan, 0, 221).into_iter().filter(is_chosen).collect();
    assert_eq!(points.len(), 2 * 17);
    for variant in 0..plan.variants.len() {
        let unit_at = |&point: &usize| Unit { cell: plan.index(Cell { point, variant }), run: 0 };
        let units: Vec<Unit> = points.iter().map(unit_at).collect();
        let mut rows = Vec::new();
        let mut keep = |unit, row: &journal::Row| {
            rows.push((unit, serde_json::to_string(row).expect("plain values")));
            Ok(())
        };
        let copies = family::make(&plan, &units, &mut Scenarios::default(), &|| false, &mut keep);
        // Each run but the first begins as a copy.
        assert_eq!(copies.expect("worlds that were checked"), Some(units.len() - 1));
        assert_eq!(rows.len(), units.len());
        for (unit, row) in rows.iter().step_by(5) {
            let row: journal::Row = serde_json::from_str(row).expect("a row");
            assert_eq!(row, made_alone(&plan, *unit));
        }
    }
}

#[test]
fn points_of_a_family_differ_on_axes_of_outages_only() {
    let plan = plan(&[CUTS]);
    // Four times, two delays, four lengths.
    let all = [0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27];
    assert_eq!(family::points_like(&plan, 9, 256), all);
    assert_eq!(family::points_like(&plan, 13, 256), all.map(|point| point + 4));
    assert_eq!(family::points_like(&plan, 9, 5), [9, 10, 11, 16, 17]);
    assert_eq!(family::points_like(&plan, 27, 5), [27]);
}

#[test]
fn runs_that_may_be_superfluous_make_no_family() {
    let adaptive = CUTS.replace("min = 2, max = 2", "min = 2, max = 9, relative_error = \"5 %\"");
    assert_ne!(adaptive, CUTS);
    assert!(!plan(&[&adaptive]).has_families());
}
