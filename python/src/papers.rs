//! Papers and their claims.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Mutex;

use holdover_lab::reproduce::catalogue::Catalogue;
use holdover_lab::reproduce::judge;
use holdover_lab::reproduce::script::Scripts;
use holdover_lab::reproduce::work::{Running, Work, WorkError};
use holdover_lab::sweep::Progress;
use pyo3::exceptions::PyKeyError;
use pyo3::prelude::*;

use crate::attended::attended;
use crate::errors::{failed, interrupted};
use crate::scenario::PyScenario;

/// Of a paper: its name, title, authors, its experiments (name and scenarios) and claims (name, experiment and text).
type Described = (String, String, String, Vec<(String, Vec<String>)>, Vec<(String, String, String)>);

/// A claim: its name, experiment, text, verdict, and what was found.
type Claim = (String, String, String, String, String);

fn catalogue(py: Python<'_>, name: &str) -> PyResult<Catalogue> {
    let all = Catalogue::all(None).map_err(|error| failed(py, error))?;
    let known: Vec<String> = all.iter().map(|catalogue| catalogue.name.clone()).collect();
    all.into_iter()
        .find(|catalogue| catalogue.name == name)
        .ok_or_else(|| PyKeyError::new_err(format!("there is no paper \"{name}\"; there are {}", known.join(", "))))
}

/// All papers.
#[pyfunction]
pub(crate) fn papers(py: Python<'_>) -> PyResult<Vec<Described>> {
    let all = Catalogue::all(None).map_err(|error| failed(py, error))?;
    let describe = |catalogue: Catalogue| {
        let scenarios = |name: &Option<String>| name.iter().flat_map(|name| catalogue.scenarios_of(name)).collect();
        let experiments = catalogue.experiments.iter().map(|one| (one.id.clone(), scenarios(&one.scenario)));
        let claims = catalogue.claims.iter().map(|one| (one.id.clone(), one.experiment.clone(), one.text.clone()));
        (
            catalogue.name.clone(),
            catalogue.paper.title.clone(),
            catalogue.paper.authors.clone(),
            experiments.collect(),
            claims.collect(),
        )
    };
    Ok(all.into_iter().map(describe).collect())
}

/// A scenario of a paper.
#[pyfunction]
pub(crate) fn paper_scenario(py: Python<'_>, paper: &str, scenario: &str) -> PyResult<PyScenario> {
    let catalogue = catalogue(py, paper)?;
    let known = catalogue.all_scenarios();
    if !known.iter().any(|name| name == scenario) {
        let message = format!("{paper} has no scenario \"{scenario}\"; it has {}", known.join(", "));
        return Err(PyKeyError::new_err(message));
    }
    catalogue.scenario(scenario).map(PyScenario).map_err(|error| failed(py, error))
}

/// Runs experiments of a paper into the directory `out`, or what of them is not there yet, and judges its claims.
#[pyfunction]
pub(crate) fn reproduce(
    py: Python<'_>,
    paper: &str,
    experiments: Option<Vec<String>>,
    out: PathBuf,
    jobs: usize,
    progress: Option<Py<PyAny>>,
) -> PyResult<Vec<Claim>> {
    let catalogue = catalogue(py, paper)?;
    let place = |id: &String| {
        catalogue.experiments.iter().position(|one| one.id == *id).ok_or_else(|| {
            let known: Vec<&str> = catalogue.experiments.iter().map(|one| one.id.as_str()).collect();
            PyKeyError::new_err(format!("{paper} has no experiment \"{id}\"; it has {}", known.join(", ")))
        })
    };
    let chosen = match &experiments {
        Some(ids) => ids.iter().map(place).collect::<PyResult<Vec<_>>>()?,
        None => (0..catalogue.experiments.len()).collect(),
    };
    let work = py.detach(|| Work::new(catalogue, chosen)).map_err(|error| failed(py, error))?;
    let ran = watched(py, jobs, progress, |running| work.run(&out, running))?;
    let Some(results) = ran else { return Err(interrupted(py, "interrupted; what was finished is kept")) };
    Ok(judged(&work, &results))
}

/// Looks for the setting of what a paper leaves open that fits its printed numbers best, as JSON.
#[pyfunction]
#[allow(clippy::too_many_arguments)]
pub(crate) fn fit(
    py: Python<'_>,
    paper: &str,
    settings: Option<u32>,
    runs: Option<u32>,
    out: PathBuf,
    jobs: usize,
    progress: Option<Py<PyAny>>,
) -> PyResult<String> {
    let catalogue = catalogue(py, paper)?;
    let mut sampling = catalogue.sampling;
    sampling.samples = settings.unwrap_or(sampling.samples);
    sampling.runs = runs.unwrap_or(sampling.runs);
    let command = format!("holdover.paper({paper:?}).fit(settings={}, runs={})", sampling.samples, sampling.runs);
    let all = (0..catalogue.experiments.len()).collect();
    let work = py.detach(|| Work::new(catalogue, all)).map_err(|error| failed(py, error))?;
    let fitted = watched(py, jobs, progress, |running| {
        holdover_lab::reproduce::fit::fit(&work, out.clone(), sampling, running, command.clone())
    })?;
    let Some(fitted) = fitted else { return Err(interrupted(py, "interrupted; what was finished is kept")) };
    serde_json::to_string(&fitted).map_err(|error| failed(py, error))
}

/// Runs a paper's sweeps, and meanwhile calls `progress`.
fn watched<T: Send>(
    py: Python<'_>,
    jobs: usize,
    progress: Option<Py<PyAny>>,
    work: impl Fn(&Running<'_>) -> Result<Option<T>, WorkError> + Send + Sync,
) -> PyResult<Option<T>> {
    let latest = Mutex::new((String::new(), Progress::default()));
    let lock = || latest.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let watch = |name: &str, progress: Option<Progress>| *lock() = (name.to_owned(), progress.unwrap_or_default());
    let tell = |py: Python<'_>| {
        let (name, Progress { done, expected }) = lock().clone();
        progress.as_ref().map_or(Ok(()), |progress| progress.call1(py, (name, done, expected)).map(|_| ()))
    };
    let ran = attended(py, tell, |stop| work(&Running { jobs, stop, watch: &watch }))?;
    ran.map_err(|error| failed(py, error))
}

fn judged(work: &Work, results: &BTreeMap<String, holdover_lab::reproduce::results::Results>) -> Vec<Claim> {
    let scripts = Scripts::new(results);
    let judged = judge::claims(&work.catalogue, &work.ids(), &scripts).into_iter();
    judged.map(|one| (one.id, one.experiment, one.text, one.verdict.name().to_owned(), one.found)).collect()
}
