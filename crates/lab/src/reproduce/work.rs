//! The runs required for a paper, and their execution.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use holdover_scenario::{Diagnostic, ErrorKind, Location, Override, Scenario, ScenarioError, Subject};

use super::catalogue::{Catalogue, CatalogueError, Experiment, PAPER};
use super::figures::{self, Drawn};
use super::numbers;
use super::results::Results;
use super::setting::Setting;
use crate::sweep::engine::{self, Outcome};
use crate::sweep::{
    DirectoryError, Findings, FindingsError, JournalError, Ledger, Plan, PlanError, Progress, SweepDir, SweepError,
};

/// Errors of running a paper.
#[derive(Debug, thiserror::Error)]
pub enum WorkError {
    /// A scenario cannot be read.
    #[error("{0}")]
    Catalogue(#[from] CatalogueError),
    /// A scenario cannot be swept.
    #[error("{0}")]
    Plan(#[from] PlanError),
    /// The results directory cannot be used.
    #[error("{0}")]
    Directory(#[from] DirectoryError),
    /// The journal of an earlier part cannot be used.
    #[error("{0}")]
    Journal(#[from] JournalError),
    /// A sweep ended early.
    #[error("{0}")]
    Sweep(#[from] SweepError),
    /// A directory could not be created.
    #[error("cannot write {}: {error}", path.display())]
    Write {
        /// The directory.
        path: PathBuf,
        /// The cause.
        error: std::io::Error,
    },
}

/// The execution of a paper's sweeps.
pub struct Running<'a> {
    /// Concurrent runs.
    pub jobs: usize,
    /// Stops the current sweep early when true.
    pub stop: &'a AtomicBool,
    /// Called with the current sweep, `PAPER/SCENARIO`, and its progress; `None` when it has ended.
    pub watch: &'a (dyn Fn(&str, Option<Progress>) + Sync),
}

/// A paper, the requested experiments, and the scenarios that these need.
pub struct Work {
    /// The paper.
    pub catalogue: Catalogue,
    /// The indices of the experiments in the catalogue.
    chosen: Vec<usize>,
    plans: BTreeMap<String, Plan>,
}

impl Work {
    /// Determines the scenarios needed by the experiments with the indices `chosen`, and checks them all before any
    /// run.
    ///
    /// # Errors
    ///
    /// The first error in one of the scenarios.
    pub fn new(catalogue: Catalogue, chosen: Vec<usize>) -> Result<Self, WorkError> {
        let mut work = Self { catalogue, chosen, plans: BTreeMap::new() };
        let names: Vec<String> = work.scenarios().into_iter().collect();
        let all = work.catalogue.all_scenarios();
        for input in &work.catalogue.inputs {
            input
                .check(&all, |name| match work.catalogue.scenario(name) {
                    Ok(scenario) => Ok(scenario),
                    Err(CatalogueError::Scenario(error)) => Err(error),
                    Err(other) => Err(unreadable(name, &other)),
                })
                .map_err(CatalogueError::Scenario)?;
        }
        let setting = work.catalogue.fitted.as_ref().map(|fitted| fitted.setting.clone()).unwrap_or_default();
        for name in names {
            let plan = work.plan_at(&name, &setting, None)?;
            work.plans.insert(name, plan);
        }
        work.check_figures()?;
        work.check_matrices()?;
        Ok(work)
    }

    /// Checks that figures are drawn for each value of an axis that their scenario has.
    fn check_figures(&self) -> Result<(), CatalogueError> {
        for experiment in self.experiments() {
            let plan = experiment.scenario.as_ref().and_then(|scenario| self.plans.get(scenario));
            for each in experiment.figures.iter().filter_map(|figure| figure.each.as_ref()) {
                // A union of scenarios has no plan of its own.
                let Some(plan) = plan else { continue };
                let axes: Vec<String> = plan.point(0).labels.into_iter().map(|label| label.axis).collect();
                if !axes.contains(each) {
                    return Err(CatalogueError::Wrong {
                        file: format!("{}/{PAPER}", self.catalogue.name),
                        message: format!(
                            "a figure of experiment \"{}\" is drawn for each \"{each}\", which is no axis of its scenario; there are: {}",
                            experiment.id,
                            axes.join(", ")
                        ),
                    });
                }
            }
        }
        Ok(())
    }

    /// Checks that tables are at places that their scenario has.
    fn check_matrices(&self) -> Result<(), CatalogueError> {
        for experiment in self.experiments() {
            let plan = experiment.scenario.as_ref().and_then(|scenario| self.plans.get(scenario));
            let Some(plan) = plan else { continue };
            for matrix in &experiment.matrices {
                matrix.check(plan).map_err(|message| CatalogueError::Wrong {
                    file: format!("{}/{PAPER}", self.catalogue.name),
                    message,
                })?;
            }
        }
        Ok(())
    }

    /// The plan of a scenario at a setting; `runs`, if given, replaces the scenario's number of runs per variant and
    /// point.
    pub(super) fn plan_at(&self, name: &str, setting: &Setting, runs: Option<u32>) -> Result<Plan, WorkError> {
        changed(self, name, setting.overrides(&self.catalogue.inputs, name), runs)
    }

    /// The scenarios needed by the experiments and their claims.
    pub fn scenario_names(&self) -> Vec<String> {
        self.plans.keys().cloned().collect()
    }

    /// Whether the paper prints numbers to compare with.
    pub fn prints_numbers(&self) -> bool {
        self.experiments().into_iter().any(numbers::any)
    }

    /// The scenarios with printed numbers to compare.
    pub(super) fn scenarios_with_numbers(&self) -> Vec<String> {
        let printing = || self.experiments().into_iter().filter(|experiment| numbers::any(experiment));
        let known: Vec<&str> = self.catalogue.names_of_results().collect();
        let mut names: BTreeSet<String> = printing().filter_map(|experiment| experiment.scenario.clone()).collect();
        names.extend(printing().flat_map(Experiment::scripts).flat_map(|script| named_results(script, &known)));
        let names: BTreeSet<String> = names.iter().flat_map(|name| self.catalogue.scenarios_of(name)).collect();
        names.into_iter().collect()
    }

    /// The requested experiments.
    pub fn experiments(&self) -> Vec<&Experiment> {
        self.chosen.iter().map(|&index| &self.catalogue.experiments[index]).collect()
    }

    /// Their names.
    pub fn ids(&self) -> Vec<&str> {
        self.experiments().into_iter().map(|experiment| experiment.id.as_str()).collect()
    }

    /// The scenarios of the experiments, and those used by claims and numbers.
    fn scenarios(&self) -> BTreeSet<String> {
        let ids = self.ids();
        let experiments = self.experiments();
        let mut names: BTreeSet<String> =
            experiments.iter().filter_map(|experiment| experiment.scenario.clone()).collect();
        let checks = self.catalogue.claims.iter().filter(|claim| ids.contains(&claim.experiment.as_str()));
        let checks = checks.filter_map(|claim| claim.check.as_deref());
        let scripts = experiments.iter().flat_map(|experiment| experiment.scripts());
        let known: Vec<&str> = self.catalogue.names_of_results().collect();
        names.extend(checks.chain(scripts).flat_map(|script| named_results(script, &known)));
        names.iter().flat_map(|name| self.catalogue.scenarios_of(name)).collect()
    }

    /// Makes the runs missing in `directory`, which has a subdirectory for each scenario; `None` if interrupted.
    ///
    /// # Errors
    ///
    /// If results cannot be written, or an earlier part belongs to another sweep.
    pub fn run(&self, directory: &Path, running: &Running<'_>) -> Result<Option<BTreeMap<String, Results>>, WorkError> {
        let mut results = BTreeMap::new();
        for (name, plan) in &self.plans {
            let title = format!("{}/{name}", self.catalogue.name);
            match sweep(plan, &directory.join(name), &title, running)? {
                Some(swept) => results.insert(name.clone(), swept),
                None => return Ok(None),
            };
        }
        self.unite(&mut results);
        Ok(Some(results))
    }

    /// Adds the results of the paper's unions.
    pub(super) fn unite(&self, results: &mut BTreeMap<String, Results>) {
        for union in &self.catalogue.unions {
            let parts = union.of.iter().filter_map(|part| Some((results.get(&part.scenario)?, &part.at)));
            let united = Results::union(parts);
            if !united.cells.is_empty() {
                results.insert(union.name.clone(), united);
            }
        }
    }

    /// Draws the figures of the experiments.
    pub fn draw(&self, results: &BTreeMap<String, Results>) -> Vec<Drawn> {
        let of = |experiment: &&Experiment| {
            let results = experiment.scenario.as_ref().and_then(|scenario| results.get(scenario));
            results.map(|results| figures::of(experiment, results)).unwrap_or_default()
        };
        self.experiments().iter().flat_map(of).collect()
    }
}

/// The error for a scenario that cannot be read while inputs are checked.
fn unreadable(name: &str, error: &CatalogueError) -> ScenarioError {
    let location = Location { file: format!("{name}.toml"), ..Location::default() };
    ScenarioError::from(Diagnostic::new(ErrorKind::Unreadable, error.to_string(), location))
}

/// The plan of a scenario with fields changed; `runs`, if given, replaces the scenario's number of runs per variant and point.
fn changed(work: &Work, name: &str, mut overrides: Vec<Override>, runs: Option<u32>) -> Result<Plan, WorkError> {
    let scenario = work.catalogue.scenario(name)?;
    if let (Some(runs), Some(sweep)) = (runs, scenario.sweep()) {
        // A bound on the error of a mean requires two runs.
        let runs = if sweep.replicate().relative_error.is_some() { runs.max(2) } else { runs };
        overrides.extend(["min", "max"].map(|end| Override::new(format!("sweep.replicate.{end}"), i64::from(runs))));
    }
    let scenario =
        if overrides.is_empty() { scenario } else { scenario.with(&overrides).map_err(CatalogueError::Scenario)? };
    plan(scenario)
}

/// The plan of a scenario, with the metrics of each flow and link if there are only a few.
pub(super) fn plan(scenario: Scenario) -> Result<Plan, WorkError> {
    /// Scenarios with more flows are judged by sums and means.
    const FEW: usize = 8;
    let mut each: [(Subject, Vec<String>); 2] = [(Subject::Flows, Vec::new()), (Subject::Links, Vec::new())];
    if let Some(variant) = scenario.variants().first() {
        let world = variant.world(scenario.seed()).map_err(CatalogueError::Scenario)?;
        each[0].1.extend(world.flows.into_iter().map(|flow| flow.name));
        each[1].1.extend(world.links.into_iter().map(|link| link.name));
    }
    let mut plan = Plan::new(scenario, 1)?;
    for (subject, names) in each.iter().filter(|(_, names)| names.len() > 1 && names.len() <= FEW) {
        plan.measure_each(*subject, &names.iter().map(String::as_str).collect::<Vec<_>>());
    }
    Ok(plan)
}

/// The names in `results("name")`, and the quoted ones among `known`.
pub(super) fn named_results(script: &str, known: &[&str]) -> Vec<String> {
    let asked = script.split("results(\"").skip(1).filter_map(|rest| rest.split('"').next());
    let quoted = known.iter().copied().filter(|name| script.contains(&format!("\"{name}\"")));
    asked.chain(quoted).map(str::to_owned).collect()
}

/// Completes the sweep of a scenario; `None` if interrupted.
fn sweep(plan: &Plan, path: &Path, title: &str, running: &Running<'_>) -> Result<Option<Results>, WorkError> {
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent).map_err(|error| WorkError::Write { path: parent.to_owned(), error })?;
    }
    let directory = SweepDir::at(path, false)?;
    let ledger = Ledger::open(plan, &directory)?;
    directory.write_scenario(plan)?;
    (running.watch)(title, Some(ledger.progress()));
    let watch = |progress: Progress| (running.watch)(title, Some(progress));
    let outcome = engine::run(plan, ledger, running.jobs, running.stop, &watch);
    (running.watch)(title, None);
    match outcome? {
        Outcome::Complete(runs) => {
            let findings = Findings::new(plan, &runs, running.jobs, running.stop).map_err(DirectoryError::from);
            match findings.and_then(|findings| directory.write_results(plan, &findings, |_| ())) {
                Ok(()) => Ok(Some(Results::new(plan, &runs)?)),
                Err(DirectoryError::Findings(FindingsError::Stopped)) => Ok(None),
                Err(error) => Err(error.into()),
            }
        }
        Outcome::Interrupted(_) => Ok(None),
    }
}
