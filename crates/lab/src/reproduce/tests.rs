//! The built-in papers.

use super::catalogue::Catalogue;
use super::script::Scripts;
use crate::sweep::{Plan, PlanError};

#[test]
fn every_paper_can_be_read_and_every_scenario_of_it_can_be_swept() {
    let all = Catalogue::all(None).unwrap();
    assert!(!all.is_empty());
    for catalogue in &all {
        // Includes scenarios used only by a check, or not at all yet.
        let directory = format!("{}/../../experiments/{}", env!("CARGO_MANIFEST_DIR"), catalogue.name);
        let files = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
        let scenarios: Vec<String> = files
            .filter(|path| path.extension().is_some_and(|ending| ending == "toml"))
            .filter_map(|path| Some(path.file_stem()?.to_str()?.to_owned()))
            .filter(|name| !["paper", "fitted", "open"].contains(&name.as_str()))
            .collect();
        let named: Vec<&str> =
            catalogue.experiments.iter().filter_map(|experiment| experiment.scenario.as_deref()).collect();
        for scenario in named.iter().flat_map(|name| catalogue.scenarios_of(name)) {
            let is_derived = catalogue.derived(&scenario).is_some();
            assert!(scenarios.contains(&scenario) || is_derived, "{}: {scenario}", catalogue.name);
        }
        for derived in &catalogue.derived {
            let read = catalogue.scenario(&derived.name).unwrap_or_else(|error| panic!("{}: {error}", derived.name));
            drop(Plan::new(read, 1).unwrap_or_else(|error| panic!("{}: {error}", derived.name)));
        }
        for scenario in &scenarios {
            let read = catalogue.scenario(scenario).unwrap_or_else(|error| panic!("{scenario}: {error}"));
            match Plan::new(read, 1) {
                // A scenario for `holdover run`, for the plots of a page.
                Err(PlanError::NothingToSweep { .. }) if !named.contains(&scenario.as_str()) => {}
                plan => drop(plan.unwrap_or_else(|error| panic!("{scenario}: {error}"))),
            }
        }
    }
}

// Claim: Every mechanism that docs/mechanisms lists has a row in the comparison.
#[test]
fn every_mechanism_has_a_row_in_the_comparison() {
    let root = format!("{}/../..", env!("CARGO_MANIFEST_DIR"));
    let read = |file: &str| std::fs::read_to_string(format!("{root}/{file}")).unwrap();
    let page = read("docs/mechanisms/README.md");
    // | [`hold_back`](hold_back.md), [`ack_stall`](ack_stall.md) | an ACK of new data ... |
    let rows = page.lines().filter_map(|line| line.strip_prefix("| [`"));
    let names: Vec<&str> = rows
        .filter_map(|row| row.split(" |").next())
        .flat_map(|cell| cell.split("[`"))
        .filter_map(|name| name.split('`').next())
        .collect();
    assert!(names.len() > 25 && names.contains(&"fast_retransmit"), "{names:?}");
    let scenarios = ["outages", "loss", "moves", "registrations"];
    let all: String = scenarios.iter().map(|name| read(&format!("experiments/comparison/{name}.toml"))).collect();
    for name in names {
        let is_on = all.contains(&format!(".{name}\" = {{")) || all.contains(&format!("{{ {name} = {{"));
        assert!(is_on, "no variant of the comparison has {name}");
    }
}

#[test]
fn every_script_can_be_compiled() {
    let scripts = Scripts::new(&std::collections::BTreeMap::new());
    for catalogue in Catalogue::all(None).unwrap() {
        let checks = catalogue.claims.iter().filter_map(|claim| claim.check.as_deref());
        let numbers = catalogue.experiments.iter().flat_map(|experiment| experiment.scripts());
        for script in checks.chain(numbers) {
            scripts.compiles(script).unwrap_or_else(|error| panic!("{}: {script}: {error}", catalogue.name));
        }
    }
}

/// The number of claims of each paper.
const CLAIMS: [(&str, usize); 5] =
    [("freeze-gateway", 59), ("freeze-tcp", 37), ("hip-uto-rt", 32), ("m-tcp", 30), ("probe-buffer-freeze", 19)];

/// The papers' claims, each with its numbers that bound a verdict and the checks that compare: `PAPER CLAIM (NUMBER | CHECK)...`. A percentage
/// may be a ratio: 1.451 for 45.1 %.
const BOUNDS: &str = include_str!("bounds.txt");

// Claim: All 177 claims of the five papers have a check, or a reason for having none; checks have the numbers of their claims
// (130 numbers and 43 comparisons of 108 of the 157 that have one).
// Tests: `reproduce::tests::checks_have_the_numbers_of_their_claims`
#[test]
fn every_claim_of_the_papers_has_a_check_or_a_reason_for_none() {
    let all = Catalogue::all(None).unwrap();
    for (paper, claims) in CLAIMS {
        let catalogue = all.iter().find(|catalogue| catalogue.name == paper).unwrap_or_else(|| panic!("{paper}"));
        assert_eq!(catalogue.claims.len(), claims, "{paper}");
        for claim in &catalogue.claims {
            let reason = claim.not_checkable.as_deref().unwrap_or_default();
            assert!(claim.check.is_some() || reason.len() > 10, "{paper}: {}: {reason}", claim.id);
        }
    }
    assert_eq!(CLAIMS.iter().map(|(_, claims)| claims).sum::<usize>(), 177);
}

/// A check that no longer has a number of its claim was loosened.
#[test]
fn checks_have_the_numbers_of_their_claims() {
    let all = Catalogue::all(None).unwrap();
    let (mut numbers, mut checks) = (0, 0);
    for line in BOUNDS.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let [paper, id, expected @ ..] = words.as_slice() else { panic!("{line}") };
        let catalogue = all.iter().find(|catalogue| catalogue.name == *paper).unwrap_or_else(|| panic!("{line}"));
        let claim = catalogue.claims.iter().find(|claim| claim.id == *id).unwrap_or_else(|| panic!("{line}"));
        let check = claim.check.as_deref().unwrap_or_else(|| panic!("{line}"));
        let found: Vec<f64> =
            check.split(|c: char| !c.is_ascii_digit() && c != '.').filter_map(|number| number.parse().ok()).collect();
        for number in expected {
            let Ok(expected) = number.parse::<f64>() else {
                assert!(check.contains(&format!("{number}(")), "{paper}: {id}: no {number} in: {check}");
                checks += 1;
                continue;
            };
            assert!(
                found.iter().any(|found| (found - expected).abs() < 1e-6),
                "{paper}: {id}: no {number} in: {check}"
            );
            numbers += 1;
        }
    }
    assert!(numbers > 120 && checks > 30, "{numbers} numbers, {checks} checks");
}
