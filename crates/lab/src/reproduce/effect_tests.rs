//! The papers' open inputs, and the axes of their sweeps, change results.

use holdover_scenario::{Override, Scenario};
use toml::Value;

use super::catalogue::Catalogue;
use super::open::{Domain, Open};
use super::sample::latin_hypercube;
use super::setting::Setting;
use crate::sweep::{Plan, Unit, make_run};

/// A flow's time, goodput or share of retransmissions that differs by this much is another result. A receive buffer that grows from any
/// initial size within the first round trips changes transfers of the papers by less.
const EFFECT: f64 = 0.01;

/// The settings of a sample that are tried if an input has no effect at those of the scenarios and of the page.
const SAMPLES: usize = 4;

/// Inputs without an effect on any result of their experiments, each with the reason: `(paper, input, reason)`.
const INERT: &[(&str, &str, &str)] = &[];

/// The results of a run: of each flow the time, the bytes read by its application and those retransmitted.
type Run = Vec<[f64; 3]>;

fn run(plan: &Plan, cell: usize) -> Run {
    let row = make_run(plan, Unit { cell, run: 0 }, &mut None, || false);
    let row = row.unwrap_or_else(|error| panic!("{}: {error}", plan.name())).expect("it is wanted");
    let of_flow = |flow: &holdover_report::FlowMetrics| {
        let retransmitted = flow.sender.as_ref().map_or(0, |sender| sender.bytes_retransmitted);
        [flow.duration_s, flow.bytes_received as f64, retransmitted as f64]
    };
    row.flows.iter().map(of_flow).collect()
}

fn differ(a: &Run, b: &Run) -> bool {
    let differ = |(a, b): (&f64, &f64)| (a - b).abs() > EFFECT * a.abs().max(b.abs());
    a.len() != b.len() || a.iter().flatten().zip(b.iter().flatten()).any(differ)
}

/// Cells of two plans to compare, those at the ends of the sweep first, as effects are larger there.
fn cells(plan: &Plan) -> Vec<usize> {
    let (all, variants) = (plan.cells(), plan.variants.len());
    let ends = (0..variants).chain(all - variants..all);
    ends.clone().chain((0..all).filter(|cell| !ends.clone().any(|end| end == *cell))).collect()
}

/// Whether the changes `a` and `b` to a scenario give different results at some point of its sweep.
fn change_results(scenario: &Scenario, a: &[Override], b: &[Override]) -> bool {
    let plan = |changes: &[Override]| {
        let changed = scenario.with(changes).unwrap_or_else(|error| panic!("{error}"));
        Plan::of_checked(changed).unwrap_or_else(|error| panic!("{error}"))
    };
    let (a, b) = (plan(a), plan(b));
    cells(&a).into_iter().any(|cell| differ(&run(&a, cell), &run(&b, cell)))
}

/// The settings of the other inputs at which an input's effect is sought: as written, that of the page, and some of a sample.
fn settings(catalogue: &Catalogue) -> Vec<Setting> {
    let sample = latin_hypercube(catalogue.inputs.len(), SAMPLES, 1);
    let fitted = catalogue.fitted.iter().map(|fitted| fitted.setting.clone());
    let sample = sample.iter().map(|places| Setting::at(&catalogue.inputs, places));
    std::iter::once(Setting::default()).chain(fitted).chain(sample).collect()
}

/// Whether an input at `a` and at `b` gives different results in one of its scenarios.
fn has_effect(catalogue: &Catalogue, input: &Open, a: &Value, b: &Value) -> bool {
    let at = |setting: &Setting, value: &Value| {
        let mut setting = setting.clone();
        setting.0.insert(input.name.clone(), value.clone());
        setting
    };
    settings(catalogue).iter().any(|setting| {
        catalogue.all_scenarios().iter().filter(|name| input.applies_to(name)).any(|name| {
            let scenario = catalogue.scenario(name).unwrap_or_else(|error| panic!("{name}: {error}"));
            let changes = |value: &Value| at(setting, value).overrides(&catalogue.inputs, name);
            change_results(&scenario, &changes(a), &changes(b))
        })
    })
}

// Claim: Every open input of every paper changes results: both ends of its range differ, and each alternative from the first.
#[test]
fn every_open_input_of_every_paper_changes_a_result() {
    let mut tried = 0;
    for catalogue in Catalogue::all(None).unwrap_or_else(|error| panic!("{error}")) {
        for input in &catalogue.inputs {
            let inert = INERT.iter().any(|(paper, name, _)| *paper == catalogue.name && *name == input.name);
            let values: Vec<Value> = match &input.domain {
                Domain::Range { interval, .. } => vec![interval.at(0.0), interval.at(1.0)],
                Domain::Alternatives(list) => list.iter().map(|alternative| alternative.name.clone()).collect(),
            };
            for value in &values[1..] {
                let found = has_effect(&catalogue, input, &values[0], value);
                let place = format!("{}: \"{}\" at {} and {value}", catalogue.name, input.name, values[0]);
                assert_eq!(found, !inert, "{place}: an effect is {}found", if found { "" } else { "not " });
                tried += 1;
            }
        }
    }
    assert!(tried >= 20, "{tried}");
}

/// An input that sets the first size of a receive buffer that grows, which decides nothing, is found.
#[test]
fn an_input_without_effect_is_found() {
    let all = Catalogue::all(None).unwrap_or_else(|error| panic!("{error}"));
    let catalogue = all.iter().find(|catalogue| catalogue.name == "freeze-tcp").expect("a paper");
    let scenario = catalogue.scenario("table-2").unwrap_or_else(|error| panic!("{error}"));
    let change = |field: &str, bytes: &str| Override::new(format!("host.mobile.stack.receive.{field}"), bytes);
    let one = |bytes: &str| vec![change("buffer", bytes), Override::new("host.server.stack.send.buffer", "12000 B")];
    let both = |bytes: &str| one(bytes).into_iter().chain([change("max_buffer", bytes)]).collect::<Vec<_>>();
    assert!(!change_results(&scenario, &one("4000 B"), &one("21500 B")), "only the first size");
    assert!(change_results(&scenario, &both("4000 B"), &both("21500 B")), "a buffer of that size");
}

// Claim: Every axis of a sweep of a paper changes results: its first and its last value differ.
#[test]
fn every_axis_of_every_paper_changes_a_result() {
    let mut tried = 0;
    for catalogue in Catalogue::all(None).unwrap_or_else(|error| panic!("{error}")) {
        for name in catalogue.all_scenarios() {
            let scenario = catalogue.scenario(&name).unwrap_or_else(|error| panic!("{name}: {error}"));
            let plan = Plan::of_checked(scenario).unwrap_or_else(|error| panic!("{name}: {error}"));
            let axes: Vec<usize> = plan.sweep.axes().iter().map(|axis| axis.values.len()).collect();
            for (index, count) in axes.iter().enumerate().filter(|(_, count)| **count > 1) {
                // The last axis varies fastest.
                let step: usize = axes[index + 1..].iter().product();
                let last = (count - 1) * step;
                let firsts = (0..plan.points()).filter(|point| (point / step).is_multiple_of(*count));
                let variants = plan.variants.len();
                let found = firsts
                    .flat_map(|point| (0..variants).map(move |variant| point * variants + variant))
                    .any(|cell| differ(&run(&plan, cell), &run(&plan, cell + last * variants)));
                assert!(found, "{}: {name}: axis {}", catalogue.name, plan.sweep.axes()[index].label);
                tried += 1;
            }
        }
    }
    assert!(tried >= 20, "{tried}");
}
