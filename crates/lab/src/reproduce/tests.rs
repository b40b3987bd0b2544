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
            assert!(scenarios.contains(&scenario), "{}: {scenario}", catalogue.name);
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
