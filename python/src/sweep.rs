//! Sweeps: on this machine, and as a driver and workers for others.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use holdover_lab::sweep::columns::{AxisColumns, runs_columns};
use holdover_lab::sweep::driver::{Driver, Worker};
use holdover_lab::sweep::engine::{self, Outcome};
use holdover_lab::sweep::table::{Columns, Kind};
use holdover_lab::sweep::tables;
use holdover_lab::sweep::{DirectoryError, Findings, FinishedRuns, Ledger, Plan, PlanError, Progress, SweepDir, Unit};
use holdover_report::Manifest;
use holdover_scenario::Scenario;
use pyo3::prelude::*;

use crate::attended::attended;
use crate::errors::{failed, interrupted, scenario_error};
use crate::scenario::PyScenario;
use crate::table::{PyTable, read_csv};

fn plan_error(py: Python<'_>, error: &PlanError) -> PyErr {
    match error {
        PlanError::Scenario(error) => scenario_error(py, error),
        error => failed(py, error),
    }
}

fn open(py: Python<'_>, scenario: &PyScenario, out: &Path, jobs: usize) -> PyResult<(Plan, SweepDir)> {
    let scenario = scenario.0.clone();
    let plan = py.detach(|| Plan::new(scenario, jobs)).map_err(|error| plan_error(py, &error))?;
    let directory = SweepDir::at(out, false).map_err(|error| failed(py, error))?;
    Ok((plan, directory))
}

/// Writes the results, of which the caller then finds the files.
fn finish(
    py: Python<'_>,
    (plan, runs): (&Plan, &FinishedRuns),
    directory: &SweepDir,
    jobs: usize,
    took_s: f64,
    started: (String, Vec<String>),
) -> PyResult<SweepFiles> {
    let manifest = Manifest {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        seed: Some(plan.scenario.seed()),
        command_line: started.1,
        started_at: started.0,
        took_s,
    };
    let written = attended(
        py,
        |_| Ok(()),
        |stop| {
            directory.write_results(plan, &Findings::new(plan, runs, jobs, stop)?, |_| ())?;
            directory.write_manifest(&manifest)
        },
    )?;
    written.map_err(|error: DirectoryError| failed(py, error))?;
    Ok(SweepFiles::new(plan, plan.name().to_owned(), runs.len(), directory.path()))
}

/// The tables of the complete sweep in a directory.
#[pyfunction]
pub(crate) fn open_sweep(py: Python<'_>, directory: PathBuf) -> PyResult<SweepFiles> {
    #[derive(serde::Deserialize)]
    struct Head {
        name: String,
        runs: usize,
    }
    let not_one = |error: &dyn std::fmt::Display| {
        failed(py, format!("{} is not the directory of a complete sweep: {error}", directory.display()))
    };
    let file =
        |name: &str| std::fs::File::open(directory.join(name)).map_err(|error| not_one(&format!("{name}: {error}")));
    // This file is written last.
    file("manifest.json")?;
    let summary = std::io::BufReader::new(file("summary.json")?);
    let head: Head = serde_json::from_reader(summary).map_err(|error| not_one(&format!("summary.json: {error}")))?;
    let text = std::io::read_to_string(file("scenario.toml")?).map_err(|error| not_one(&error))?;
    let scenario = Scenario::parse("scenario.toml", &text, directory.clone());
    let scenario = scenario.map_err(|error| scenario_error(py, &error))?;
    let plan = Plan::of_checked(scenario).map_err(|error| not_one(&error))?;
    Ok(SweepFiles::new(&plan, head.name, head.runs, &directory))
}

/// The tables of a sweep that is complete, which are read from their files on access.
#[pyclass(frozen, module = "holdover._holdover")]
pub(crate) struct SweepFiles {
    /// The name of what was swept.
    #[pyo3(get)]
    name: String,
    /// How many runs count, and at how many points.
    #[pyo3(get)]
    count: (usize, usize),
    directory: PathBuf,
    runs: Columns,
    points: Columns,
    tests: Option<Columns>,
}

#[pymethods]
impl SweepFiles {
    /// One row for each flow of each run.
    fn runs(&self, py: Python<'_>) -> PyResult<PyTable> {
        self.read(py, "runs", &self.runs)
    }

    /// One row for each variant at each point.
    fn points(&self, py: Python<'_>) -> PyResult<PyTable> {
        self.read(py, "points", &self.points)
    }

    /// One row for each comparison; `None` if nothing was compared.
    fn tests(&self, py: Python<'_>) -> PyResult<Option<PyTable>> {
        self.tests.as_ref().map(|columns| self.read(py, "tests", columns)).transpose()
    }
}

impl SweepFiles {
    fn new(plan: &Plan, name: String, runs: usize, directory: &Path) -> Self {
        let axes = AxisColumns::new(&plan.sweep);
        Self {
            name,
            count: (runs, plan.points()),
            directory: directory.to_owned(),
            runs: runs_columns(&axes),
            points: tables::points_columns(plan, &axes),
            tests: tables::tests_columns(plan, &axes),
        }
    }

    fn read(&self, py: Python<'_>, name: &str, columns: &Columns) -> PyResult<PyTable> {
        let kinds: HashMap<&str, Kind> = columns.iter().map(|(name, kind)| (name.as_str(), *kind)).collect();
        let path = self.directory.join(format!("{name}.csv"));
        read_csv(py, &path, |name| kinds.get(name).copied().unwrap_or(Kind::Text))
    }
}

/// Sweeps on `jobs` threads of this process. `progress` is called with the number of runs made and expected.
#[pyfunction]
pub(crate) fn sweep(
    py: Python<'_>,
    scenario: PyRef<'_, PyScenario>,
    out: PathBuf,
    jobs: usize,
    progress: Option<Py<PyAny>>,
    started: (String, Vec<String>),
) -> PyResult<SweepFiles> {
    let began = std::time::Instant::now();
    let (plan, directory) = open(py, &scenario, &out, jobs)?;
    let ledger = py.detach(|| Ledger::open(&plan, &directory)).map_err(|error| failed(py, error))?;
    directory.write_scenario(&plan).map_err(|error| failed(py, error))?;
    let latest = std::sync::Mutex::new(ledger.progress());
    let lock = || latest.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let watch = |progress: Progress| *lock() = progress;
    let tell = |py: Python<'_>| {
        let Progress { done, expected } = *lock();
        progress.as_ref().map_or(Ok(()), |progress| progress.call1(py, (done, expected)).map(|_| ()))
    };
    let outcome = attended(py, tell, |stop| engine::run(&plan, ledger, jobs, stop, &watch))?;
    match outcome.map_err(|error| failed(py, error))? {
        Outcome::Complete(runs) => finish(py, (&plan, &runs), &directory, jobs, began.elapsed().as_secs_f64(), started),
        Outcome::Interrupted(progress) => {
            let message = format!(
                "interrupted; {} of about {} runs are kept in {}; the same call continues with them",
                progress.done,
                progress.expected,
                directory.path().display()
            );
            Err(interrupted(py, &message))
        }
    }
}

/// The side of a distributed sweep that decides and keeps.
#[pyclass(name = "SweepDriver", module = "holdover._holdover")]
pub(crate) struct PyDriver {
    driver: Option<Driver>,
    directory: SweepDir,
    jobs: usize,
    began: std::time::Instant,
}

#[pymethods]
impl PyDriver {
    #[new]
    fn new(py: Python<'_>, scenario: PyRef<'_, PyScenario>, out: PathBuf) -> PyResult<Self> {
        let jobs = std::thread::available_parallelism().map_or(1, usize::from);
        let (plan, directory) = open(py, &scenario, &out, jobs)?;
        let driver = py.detach(|| Driver::open(plan, &directory)).map_err(|error| failed(py, error))?;
        directory.write_scenario(driver.plan()).map_err(|error| failed(py, error))?;
        Ok(Self { driver: Some(driver), directory, jobs, began: std::time::Instant::now() })
    }

    /// At most `most` runs to make, as pairs of cell and run.
    fn next(&mut self, py: Python<'_>, most: usize) -> PyResult<Vec<(usize, u32)>> {
        Ok(self.open(py)?.next(most).into_iter().map(|unit| (unit.cell, unit.run)).collect())
    }

    /// Keeps rows that workers have made.
    fn take(&mut self, py: Python<'_>, rows: Vec<String>) -> PyResult<()> {
        let driver = self.open(py)?;
        py.detach(|| rows.iter().try_for_each(|row| driver.take(row))).map_err(|error| failed(py, error))
    }

    /// Runs made and expected.
    fn progress(&mut self, py: Python<'_>) -> PyResult<(u64, u64)> {
        let Progress { done, expected } = self.open(py)?.progress();
        Ok((done, expected))
    }

    fn is_complete(&mut self, py: Python<'_>) -> PyResult<bool> {
        Ok(self.open(py)?.is_complete())
    }

    /// Writes the results of a complete sweep and gives its tables.
    fn finish(&mut self, py: Python<'_>, started: (String, Vec<String>)) -> PyResult<SweepFiles> {
        if !self.open(py)?.is_complete() {
            return Err(failed(py, "the sweep is not complete"));
        }
        let Some(driver) = self.driver.take() else { return Err(failed(py, OVER)) };
        let runs = attended(py, |_| Ok(()), |stop| driver.into_runs(stop))?;
        let Some((plan, runs)) = runs.map_err(|error| failed(py, error))? else { return Err(failed(py, OVER)) };
        finish(py, (&plan, &runs), &self.directory, self.jobs, self.began.elapsed().as_secs_f64(), started)
    }
}

const OVER: &str = "the sweep has been finished";

impl PyDriver {
    fn open(&mut self, py: Python<'_>) -> PyResult<&mut Driver> {
        self.driver.as_mut().ok_or_else(|| failed(py, OVER))
    }
}

/// The side of a distributed sweep that makes runs.
#[pyclass(name = "SweepWorker", module = "holdover._holdover")]
pub(crate) struct PyWorker(Worker);

#[pymethods]
impl PyWorker {
    #[new]
    fn new(py: Python<'_>, scenario: PyRef<'_, PyScenario>) -> PyResult<Self> {
        Worker::new(scenario.0.clone()).map(Self).map_err(|error| plan_error(py, &error))
    }

    /// Makes the runs, and gives their rows as JSON.
    fn make(&mut self, py: Python<'_>, units: Vec<(usize, u32)>) -> PyResult<Vec<String>> {
        let Self(worker) = self;
        let made = py
            .detach(|| units.into_iter().map(|(cell, run)| worker.make(Unit { cell, run })).collect::<Result<_, _>>());
        made.map_err(|error| failed(py, error))
    }
}
