//! Runs of scenarios.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use holdover_filter::Chain;
use holdover_gateway::Mechanisms;
use holdover_gateway::ebsn::EbsnConfig;
use holdover_lab::run::{
    Done, KernelOptions, Kernels, Runs, WHOLE, plot_kinds, recorder_options, results_directory, warnings, write_report,
    write_scenario,
};
use holdover_link::Outages;
use holdover_report::{ExportFormat, Manifest, RecorderOptions, Summary};
use holdover_sim::{GatewayMechanisms, NodeId, Role, World, WorldConfig};
use holdover_testbed::Congestion;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::congestion::PythonCongestion;
use crate::errors::{failed, scenario_error};
use crate::mechanism::{Failure, PythonFilter};
use crate::scenario::PyScenario;

/// A mechanism or congestion control for a node: of one variant or of all, and what makes it.
type Equipment = (Option<String>, String, Py<PyAny>);

/// How kernels are used: beside the simulator or in its place, how often, hosts that are left to the simulator, and a congestion control.
type OnKernels = (bool, u32, Vec<String>, Option<String>);

/// Runs variants of a scenario into the directory `out`. `progress` is called with a share from 0 to 1. Returns what a reader of the figures
/// needs to know.
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
    congestion: Vec<Equipment>,
    exports: Vec<String>,
    kernels: Option<OnKernels>,
    progress: Option<Py<PyAny>>,
    started: (String, Vec<String>),
) -> PyResult<Vec<String>> {
    let began = std::time::Instant::now();
    let scenario = &scenario.0;
    let seed = scenario.seed();
    let (names, mut worlds) = chosen(py, scenario, variants)?;
    check(&names, &worlds, &mechanisms, &[Role::Host, Role::Router])?;
    check(&names, &worlds, &congestion, &[Role::Host])?;
    let pairs = names.iter().zip(&mut worlds);
    let added = pairs.map(|(name, world)| add_gateways(name, world, &mechanisms)).collect::<PyResult<Vec<_>>>()?;
    let exports = exports.iter().map(|format| format.parse::<ExportFormat>());
    let exports = exports.collect::<Result<_, _>>().map_err(|error| PyValueError::new_err(error.to_string()))?;
    let simulate = kernels.as_ref().is_none_or(|(with_simulator, ..)| *with_simulator);
    let kernels = kernels.map(|asked| prepare(py, asked, &names, &worlds)).transpose()?;
    let results = results_directory(&out, force, scenario).map_err(|error| failed(py, error))?;
    let failure = Arc::new(Failure::default());
    let equip = |index: usize, world: &mut World| {
        if let Err(error) =
            Python::attach(|py| give(py, names[index], world, (&mechanisms, &congestion), &added[index], &failure))
        {
            failure.set(error);
        }
    };
    let mut watch = |parts: &[AtomicU32]| {
        let called = Python::attach(|py| {
            py.check_signals()?;
            let Some(progress) = &progress else { return Ok(()) };
            let done: u64 = parts.iter().map(|part| u64::from(part.load(Ordering::Relaxed))).sum();
            progress.call1(py, (done as f64 / (f64::from(WHOLE) * parts.len() as f64),)).map(|_| ())
        });
        if let Err(error) = called {
            failure.set(error);
        }
    };
    let runs = Runs {
        names: &names,
        worlds: &worlds,
        simulate,
        kernels: kernels.as_ref(),
        options: RecorderOptions { exports, ..recorder_options(scenario.output(), captures) },
        jobs,
        equip: &equip,
    };
    let done = py.detach(|| runs.run(&results, failure.stop(), &mut watch));
    let discard = |error: PyErr| results.discard().map_or_else(|other| failed(py, other), |()| error);
    if let Some(error) = failure.take() {
        return Err(discard(error));
    }
    let Done { variants, worlds, records } = done.map_err(|error| discard(failed(py, error)))?;
    let summary = Summary {
        name: scenario.name().to_owned(),
        title: scenario.title().to_owned(),
        description: scenario.description().unwrap_or_default().trim().to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        seed,
        variants,
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
    written.map_err(|error| discard(failed(py, error)))?;
    let refused = kernels.iter().flat_map(Kernels::refused).cloned();
    Ok(refused.chain(warnings(&summary)).collect())
}

/// The requested kernels.
fn prepare(
    py: Python<'_>,
    (_, repeat, simulated, congestion): OnKernels,
    names: &[&str],
    worlds: &[WorldConfig],
) -> PyResult<Kernels> {
    let named = |name: String| {
        Congestion::ALL.into_iter().find(|congestion| congestion.name() == name).ok_or_else(|| {
            let known = Congestion::ALL.map(Congestion::name).join(", ");
            PyValueError::new_err(format!("there is no congestion control \"{name}\" for kernels; there are {known}"))
        })
    };
    let congestion = congestion.map(named).transpose()?;
    Kernels::prepare(KernelOptions { repeat, congestion, simulated }, names, worlds).map_err(|error| failed(py, error))
}

/// The requested variants, with their worlds.
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

/// Each mechanism has its node in each of its variants.
fn check(names: &[&str], worlds: &[WorldConfig], mechanisms: &[Equipment], roles: &[Role]) -> PyResult<()> {
    for (variant, node, _) in mechanisms {
        if let Some(variant) = variant
            && !names.contains(&variant.as_str())
        {
            let message = format!("no variant \"{variant}\" is run; those that are: {}", names.join(", "));
            return Err(PyValueError::new_err(message));
        }
        for world in worlds {
            let nodes = world.nodes.iter().filter(|node| roles.contains(&node.role));
            let nodes: Vec<&str> = nodes.map(|node| node.name.as_str()).collect();
            if !nodes.contains(&node.as_str()) {
                let kind = if roles.contains(&Role::Router) { "host or router" } else { "host" };
                let message = format!("there is no {kind} \"{node}\"; there are {}", nodes.join(", "));
                return Err(PyValueError::new_err(message));
            }
        }
    }
    Ok(())
}

/// Routers that are to have mechanisms, and have none by the scenario, look after the hosts that move between cells and those with a link
/// that has outages. Returns these routers.
fn add_gateways(variant: &str, world: &mut WorldConfig, mechanisms: &[Equipment]) -> PyResult<Vec<NodeId>> {
    let mut added = Vec::new();
    for (_, name, _) in mechanisms.iter().filter(|(of, ..)| of.as_ref().is_none_or(|of| of == variant)) {
        let Some((node, _)) = find(world, name).filter(|(_, role)| *role == Role::Router) else { continue };
        if world.gateways.iter().any(|gateway| gateway.node == node) {
            continue;
        }
        let with_outages = world.links.iter().filter(|link| link.forward.outages != Outages::Never);
        let ends = with_outages.flat_map(|link| [link.a, link.b]);
        let ends = ends.filter(|node| world.nodes[node.0 as usize].role == Role::Host);
        let mut mobiles: Vec<NodeId> = world.mobiles.iter().map(|mobile| mobile.node).chain(ends).collect();
        mobiles.sort_unstable();
        mobiles.dedup();
        if mobiles.is_empty() {
            let message = format!(
                "the router \"{name}\" has no mobile host to look after: none moves between cells or has a link with outages"
            );
            return Err(PyValueError::new_err(message));
        }
        // A gateway needs a mechanism. `give` replaces this one.
        let mechanisms = Mechanisms { ebsn: Some(EbsnConfig::default()), ..Mechanisms::default() };
        world.gateways.push(GatewayMechanisms { node, mechanisms, mobiles, hears_links: true });
        added.push(node);
    }
    Ok(added)
}

fn find(world: &WorldConfig, name: &str) -> Option<(NodeId, Role)> {
    let index = world.nodes.iter().position(|node| node.name == name)?;
    Some((NodeId(u32::try_from(index).ok()?), world.nodes[index].role))
}

/// Puts the mechanisms of a variant behind those that its hosts and routers have by the scenario, nearer to their links.
fn give(
    py: Python<'_>,
    variant: &str,
    world: &mut World,
    (mechanisms, congestion): (&[Equipment], &[Equipment]),
    added: &[NodeId],
    failure: &Arc<Failure>,
) -> PyResult<()> {
    let mut nodes: Vec<&str> = mechanisms.iter().chain(congestion).map(|(_, node, _)| node.as_str()).collect();
    nodes.sort_unstable();
    nodes.dedup();
    let is_own =
        |equipment: &&Equipment, name: &str| equipment.1 == name && equipment.0.as_ref().is_none_or(|of| of == variant);
    for name in nodes {
        let Some((node, _)) = find(world.config(), name) else { continue };
        let congestion = congestion.iter().filter(|equipment| is_own(equipment, name));
        let congestion: Vec<_> =
            congestion.map(|(.., factory)| PythonCongestion::new(factory.clone_ref(py), Arc::clone(failure))).collect();
        let filters = mechanisms.iter().filter(|equipment| is_own(equipment, name));
        let filters = filters.map(|(.., factory)| PythonFilter::new(factory.bind(py).call0()?, Arc::clone(failure)));
        let filters = filters.collect::<PyResult<Vec<_>>>()?;
        if congestion.is_empty() && filters.is_empty() {
            continue;
        }
        let is_known = world.edit_chain(node, |chain| {
            if added.contains(&node) {
                *chain = Chain::new();
            }
            congestion.into_iter().for_each(|congestion| chain.push_endpoint(Box::new(congestion)));
            filters.into_iter().for_each(|filter| chain.push(Box::new(filter)));
        });
        if !is_known {
            return Err(PyValueError::new_err(format!("\"{name}\" cannot have a mechanism")));
        }
    }
    Ok(())
}
