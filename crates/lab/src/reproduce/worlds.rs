//! The checks of the papers' claims on made results: those of a world in which the claim is true, and of worlds in which a part of it is
//! false.
//!
//! `worlds/PAPER.toml` has a script for each claim that has a check. It is written from the claim's text and the paper's numbers, not from
//! the check, and gives the value of a metric in one run:
//!
//! | | |
//! | --- | --- |
//! | `scenario`, `variant`, `metric` | their names |
//! | `at.LABEL` | the position on an axis: a number in base units, or a word |
//! | `run`, `noise` | the number of the run, from 0 to 3, and a factor that differs between runs, with a mean of 1 |
//! | `wrong` | 0 in the world in which the claim is true, 1 to `refuted` in the others |
//!
//! A run without a value was not completed. Values are close to the bounds of the claim, on both sides, so that a looser check is noticed.

use std::collections::{BTreeMap, BTreeSet};

use rhai::{AST, Dynamic, Engine, Map, Scope};
use serde::Deserialize;

use super::catalogue::{Catalogue, Claim, Part};
use super::results::{Cell, Results};
use super::script::Scripts;
use super::work;
use crate::sweep::Plan;

const PAPERS: [(&str, &str); 5] = [
    ("freeze-gateway", include_str!("worlds/freeze-gateway.toml")),
    ("freeze-tcp", include_str!("worlds/freeze-tcp.toml")),
    ("hip-uto-rt", include_str!("worlds/hip-uto-rt.toml")),
    ("m-tcp", include_str!("worlds/m-tcp.toml")),
    ("probe-buffer-freeze", include_str!("worlds/probe-buffer-freeze.toml")),
];

/// A factor for each run.
const NOISE: [f64; 4] = [0.97, 0.99, 1.01, 1.03];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Worlds {
    claim: Vec<World>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct World {
    id: String,
    /// The number of worlds in which the claim is false, each in another of its parts.
    refuted: i64,
    /// The script.
    world: String,
}

/// Makes the results of a paper's scenarios.
struct Maker<'a> {
    catalogue: &'a Catalogue,
    plans: BTreeMap<String, Plan>,
    engine: Engine,
}

/// A world of a claim, and the check that reads its results.
struct Asked<'a> {
    script: &'a AST,
    wrong: i64,
    check: &'a str,
}

impl<'a> Maker<'a> {
    fn new(catalogue: &'a Catalogue) -> Self {
        let plan = |name: &String| {
            let scenario = catalogue.scenario(name).unwrap_or_else(|error| panic!("{name}: {error}"));
            work::plan(scenario).unwrap_or_else(|error| panic!("{name}: {error}"))
        };
        let plans = catalogue.all_scenarios().into_iter().map(|name| (name.clone(), plan(&name))).collect();
        let mut engine = Engine::new();
        engine.set_max_expr_depths(128, 128);
        Self { catalogue, plans, engine }
    }

    /// The results of the scenarios and unions that a claim's check reads.
    fn results(&self, claim: &Claim, asked: &Asked<'_>) -> BTreeMap<String, Results> {
        let known: Vec<&str> = self.catalogue.names_of_results().collect();
        let mut names: BTreeSet<String> = work::named_results(asked.check, &known).into_iter().collect();
        names.extend(self.own(claim).map(str::to_owned));
        let of_name = |name: String| {
            let union = self.catalogue.unions.iter().find(|union| union.name == name);
            let results = match union {
                Some(union) => {
                    let part = |part: &Part| self.made(&part.scenario, &part.at, asked);
                    let parts: Vec<Results> = union.of.iter().map(part).collect();
                    Results::union(parts.iter().zip(union.of.iter().map(|part| &part.at)))
                }
                None => self.made(&name, &BTreeMap::new(), asked),
            };
            (name, results)
        };
        names.into_iter().map(of_name).collect()
    }

    /// The results of a claim's own experiment.
    fn own(&self, claim: &Claim) -> Option<&str> {
        self.catalogue.experiment(&claim.experiment)?.scenario.as_deref()
    }

    /// The made results of a scenario, whose cells are at `further` places, too.
    fn made(&self, scenario: &str, further: &BTreeMap<String, f64>, asked: &Asked<'_>) -> Results {
        let plan = &self.plans[scenario];
        let mut metrics: BTreeSet<String> =
            plan.quantity_names().filter(|name| asked.check.contains(name.as_str())).collect();
        // A check of numbers of runs alone.
        if metrics.is_empty() {
            metrics.insert("duration".to_owned());
        }
        let of_cell = |index: usize| {
            let cell = plan.cell(index);
            let labels = plan.point(cell.point).labels;
            let mut at = Map::new();
            for label in &labels {
                let place = label.number.map_or_else(|| Dynamic::from(label.value.clone()), Dynamic::from);
                at.insert(label.axis.as_str().into(), place);
            }
            for (label, place) in further {
                at.insert(label.as_str().into(), Dynamic::from(*place));
            }
            let variant = &plan.variants[cell.variant];
            let mut values: BTreeMap<String, Vec<f64>> =
                metrics.iter().map(|metric| (metric.clone(), Vec::new())).collect();
            let mut completed = 0;
            for (run, noise) in NOISE.into_iter().enumerate() {
                let value = |metric: &String| {
                    let mut scope = Scope::new();
                    for (name, text) in
                        [("scenario", scenario), ("variant", variant.as_str()), ("metric", metric.as_str())]
                    {
                        scope.push_constant_dynamic(name, text.into());
                    }
                    scope.push_constant_dynamic("at", Dynamic::from_map(at.clone()));
                    scope.push_constant("run", run as i64);
                    scope.push_constant("noise", noise);
                    scope.push_constant("wrong", asked.wrong);
                    self.value(asked.script, &mut scope)
                };
                let of_run: Option<Vec<f64>> = metrics.iter().map(value).collect();
                let Some(of_run) = of_run else { continue };
                completed += 1;
                for (values, value) in values.values_mut().zip(of_run) {
                    values.push(value);
                }
            }
            Cell {
                variant: variant.clone(),
                at: labels.iter().filter_map(|label| Some((label.axis.clone(), label.number?))).collect(),
                words: labels.iter().map(|label| (label.axis.clone(), label.value.clone())).collect(),
                runs: NOISE.len(),
                completed,
                values,
            }
        };
        Results { cells: (0..plan.cells()).map(of_cell).collect() }
    }

    /// The result of the script: a number, or nothing.
    fn value(&self, script: &AST, scope: &mut Scope<'_>) -> Option<f64> {
        let given = self.engine.eval_ast_with_scope::<Dynamic>(scope, script);
        let given = given.unwrap_or_else(|error| panic!("{error}"));
        let number = given.as_float().or_else(|_| given.as_int().map(|whole| whole as f64));
        (!given.is_unit()).then(|| number.unwrap_or_else(|kind| panic!("a world gives a {kind}")))
    }
}

// Claim: The check of each of the 157 claims of the five papers that have one holds for results of a world in which the claim is true,
// and fails for each of 342 in which a part of the claim is false.
#[test]
fn checks_tell_true_claims_from_false_ones() {
    let all = Catalogue::all(None).unwrap();
    let (mut claims, mut refuted) = (0, 0);
    let mut wrong = Vec::new();
    for (paper, text) in PAPERS {
        let catalogue = all.iter().find(|catalogue| catalogue.name == paper).unwrap();
        let worlds: Worlds = toml::from_str(text).unwrap_or_else(|error| panic!("{paper}: {error}"));
        let checked: Vec<&Claim> = catalogue.claims.iter().filter(|claim| claim.check.is_some()).collect();
        assert_eq!(worlds.claim.len(), checked.len(), "{paper}");
        let maker = Maker::new(catalogue);
        for claim in checked {
            let name = format!("{paper}: {}", claim.id);
            let world = worlds.claim.iter().find(|world| world.id == claim.id).unwrap_or_else(|| panic!("{name}"));
            let script = maker.engine.compile(&world.world).unwrap_or_else(|error| panic!("{name}: {error}"));
            assert!(world.refuted > 0, "{name}: no world in which it is false");
            for part in 0..=world.refuted {
                let check = claim.check.as_deref().unwrap_or_default();
                let results = maker.results(claim, &Asked { script: &script, wrong: part, check });
                match Scripts::new(&results).check(check, maker.own(claim)) {
                    Ok(finding) if finding.holds == (part == 0) => {}
                    Ok(finding) => wrong.push(format!("{name}, world {part}: {}", finding.found)),
                    Err(error) => wrong.push(format!("{name}, world {part}: {error}")),
                }
            }
            (claims, refuted) = (claims + 1, refuted + world.refuted);
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!((claims, refuted), (157, 342));
}
