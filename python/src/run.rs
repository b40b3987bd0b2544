//! Runs of scenarios.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use holdover_lab::run::{
    Plan, SimulateError, WHOLE, plot_kinds, recorder_options, simulate, write_report, write_scenario,
};
use holdover_report::{Manifest, ResultsDir, Summary, VariantSummary};
use holdover_sim::{Role, World, WorldConfig};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::errors::{failed, scenario_error};
use crate::mechanism::{Failure, PythonFilter};
use crate::scenario::PyScenario;

/// A mechanism for a host: of one variant or of all, and what makes it.
type Equipment = (Option<String>, String, Py<PyAny>);

/// Runs variants of a scenario into the directory `out`. `progress` is called with a share from 0 to 1.
#[pyfunction]
#[allow(clippy::too_many_arguments)]
pub(crate) fn run(
    py: Python<'_>,
    scenario: PyRef<'_, PyScenario>,
    out: PathBuf,
    force: bool,
    variants: Option<Vec<String>>,
    captures: bool,
    report: bool,
    jobs: usize,
    mechanisms: Vec<Equipment>,
    progress: Option<Py<PyAny>>,
    started: (String, Vec<String>),
) -> PyResult<()> {
    let began = std::time::Instant::now();
    let scenario = &scenario.0;
    let seed = scenario.seed();
    let (names, worlds) = chosen(py, scenario, variants)?;
    check(&names, &worlds, &mechanisms)?;
    let results = ResultsDir::create(&out, force).map_err(|error| failed(py, error))?;
    let directories = ResultsDir::variant_directories(names.iter().copied());
    let plan = Plan {
        names: &names,
        worlds: &worlds,
        directories: directories.iter().map(|directory| results.path().join(directory)).collect(),
        options: recorder_options(scenario.output(), captures),
    };
    let failure = Arc::new(Failure::default());
    let equip = |index: usize, world: &mut World| {
        if let Err(error) = Python::attach(|py| give(py, names[index], world, &mechanisms, &failure)) {
            failure.set(error);
        }
    };
    let watch = |parts: &[AtomicU32]| {
        let told = Python::attach(|py| {
            py.check_signals()?;
            let Some(progress) = &progress else { return Ok(()) };
            let done: u64 = parts.iter().map(|part| u64::from(part.load(Ordering::Relaxed))).sum();
            progress.call1(py, (done as f64 / (f64::from(WHOLE) * parts.len() as f64),)).map(|_| ())
        });
        if let Err(error) = told {
            failure.set(error);
        }
    };
    let records = py.detach(|| simulate(&plan, jobs, &equip, failure.stop(), watch));
    let discard = |error: PyErr| results.discard().map_or_else(|other| failed(py, other), |()| error);
    if let Some(error) = failure.take() {
        return Err(discard(error));
    }
    let records = records.map_err(|error: SimulateError| discard(failed(py, error)))?;
    let done = names.iter().zip(&directories).zip(&records);
    let summary = Summary {
        name: scenario.name().to_owned(),
        title: scenario.title().to_owned(),
        description: scenario.description().unwrap_or_default().trim().to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        seed,
        variants: done.map(|((name, directory), record)| VariantSummary::new(name, directory, record)).collect(),
    };
    let manifest = |took_s| Manifest {
        version: summary.version.clone(),
        seed: Some(seed),
        command_line: started.1.clone(),
        started_at: started.0.clone(),
        took_s,
    };
    let written = py.detach(|| {
        write_scenario(&results, scenario)?;
        if report {
            write_report(&results, scenario, &summary, &worlds, &records, &plot_kinds(scenario.output()), jobs)?;
        }
        results.write_summary(&summary)?;
        results.write_manifest(&manifest(began.elapsed().as_secs_f64()))
    });
    if let (Some(progress), Ok(())) = (&progress, &written) {
        progress.call1(py, (1.0,))?;
    }
    written.map_err(|error| failed(py, error))
}

/// The variants that were asked for, with their worlds.
fn chosen<'a>(
    py: Python<'_>,
    scenario: &'a holdover_scenario::Scenario,
    wanted: Option<Vec<String>>,
) -> PyResult<(Vec<&'a str>, Vec<WorldConfig>)> {
    let all = scenario.variants();
    for name in wanted.iter().flatten() {
        if !all.iter().any(|variant| variant.name() == name) {
            let known: Vec<&str> = all.iter().map(|variant| variant.name()).collect();
            let message = format!("there is no variant \"{name}\"; there are {}", known.join(", "));
            return Err(PyValueError::new_err(message));
        }
    }
    let is_wanted = |name: &str| wanted.as_ref().is_none_or(|wanted| wanted.iter().any(|other| other == name));
    let variants: Vec<_> = all.iter().filter(|variant| is_wanted(variant.name())).collect();
    if variants.is_empty() {
        return Err(PyValueError::new_err("the list of variants is empty"));
    }
    let worlds = variants.iter().map(|variant| variant.world(scenario.seed())).collect::<Result<_, _>>();
    let names = variants.iter().map(|variant| variant.name()).collect();
    Ok((names, worlds.map_err(|error| scenario_error(py, &error))?))
}

/// Each mechanism has its host in each of its variants.
fn check(names: &[&str], worlds: &[WorldConfig], mechanisms: &[Equipment]) -> PyResult<()> {
    for (variant, host, _) in mechanisms {
        if let Some(variant) = variant
            && !names.contains(&variant.as_str())
        {
            let message = format!("no variant \"{variant}\" is run; those that are: {}", names.join(", "));
            return Err(PyValueError::new_err(message));
        }
        for world in worlds {
            let hosts: Vec<&str> =
                world.nodes.iter().filter(|node| node.role == Role::Host).map(|node| node.name.as_str()).collect();
            if !hosts.contains(&host.as_str()) {
                let message =
                    format!("there is no host \"{host}\" to have a mechanism; there are {}", hosts.join(", "));
                return Err(PyValueError::new_err(message));
            }
        }
    }
    Ok(())
}

/// Puts the mechanisms of a variant behind those that its hosts have by the scenario, nearer to their links.
fn give(
    py: Python<'_>,
    variant: &str,
    world: &mut World,
    mechanisms: &[Equipment],
    failure: &Arc<Failure>,
) -> PyResult<()> {
    let mut hosts: Vec<&str> = mechanisms.iter().map(|(_, host, _)| host.as_str()).collect();
    hosts.sort_unstable();
    hosts.dedup();
    for host in hosts {
        let Some(index) = world.config().nodes.iter().position(|node| node.name == host) else { continue };
        let node = holdover_sim::NodeId(index as u32);
        let described = world.config().mechanisms.iter().find(|other| other.node == node);
        let mut chain = described.map(|described| described.mechanisms.chain()).unwrap_or_default();
        let own = mechanisms.iter().filter(|(of, at, _)| at == host && of.as_ref().is_none_or(|of| of == variant));
        let mut has_any = false;
        for (_, _, factory) in own {
            chain.push(Box::new(PythonFilter::new(factory.bind(py).call0()?, Arc::clone(failure))?));
            has_any = true;
        }
        if has_any {
            world.set_chain(node, chain);
        }
    }
    Ok(())
}
