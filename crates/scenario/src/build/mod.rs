//! Builds a world, the sweep and the outputs from the form of a scenario file, with every check that involves more than one field.

mod acts;
mod addressing;
mod bit_errors;
mod check;
mod compression;
mod cpu;
mod flow;
mod gateways;
mod idle;
mod latency;
mod layer2;
mod link;
mod mechanisms;
mod mobility;
mod nodes;
pub(crate) mod output;
mod routing;
mod stack;
pub(crate) mod sweep;
mod turns;

use holdover_base::{Duration, Instant};
use holdover_sim::WorldConfig;

use crate::error::ErrorKind;
use crate::file::ScenarioFile;
use crate::problem::{Problem, Under};
use crate::quantity::Time;
use crate::traces::Traces;

use nodes::Nodes;

/// The default time limit of a run.
const TIME_LIMIT: Duration = Duration::from_secs(600);

/// Checks that `file` describes a valid world. A problem lies below the root of the file.
pub(crate) fn check(file: &ScenarioFile, traces: &mut Traces) -> Result<(), Problem> {
    check::within_reach(file, with_one_of_each_flow(file, 0, traces)?)
}

/// As [`check`], and checks that each mechanism can act. Not for the points of a sweep: some may lack the event for which a mechanism
/// waits.
pub(crate) fn check_as_written(file: &ScenarioFile, traces: &mut Traces) -> Result<(), Problem> {
    let config = with_one_of_each_flow(file, 0, traces)?;
    acts::check(file, &config)?;
    check::within_reach(file, config)
}

/// Warnings about a checked `file`.
pub(crate) fn warnings(file: &ScenarioFile, traces: &mut Traces) -> Result<Vec<String>, Problem> {
    let config = with_one_of_each_flow(file, 0, traces)?;
    let idle = idle::warnings(file, &config);
    Ok(check::warnings(&config).into_iter().chain(idle).collect())
}

/// The world described by a checked `file`. A problem lies below the root of the file.
pub(crate) fn world(file: &ScenarioFile, seed: u64, traces: &mut Traces) -> Result<WorldConfig, Problem> {
    let mut config = with_one_of_each_flow(file, seed, traces)?;
    config.flows = flow::all(file, config.flows);
    Ok(config)
}

/// The world with one flow of each kind.
fn with_one_of_each_flow(file: &ScenarioFile, seed: u64, traces: &mut Traces) -> Result<WorldConfig, Problem> {
    let time_limit = file.time_limit.map_or(Ok(TIME_LIMIT), |limit| above_zero(limit, "time_limit"))?;
    let default_stack = stack::of_scenario(file)?;
    let nodes = Nodes::new(file, &default_stack)?;
    let links = link::all(file, &nodes, traces)?;
    let cells = mobility::cells(file, &nodes)?;
    let mobiles = mobility::mobiles(file, &nodes)?;
    nodes.check_neighbours(file)?;
    let flows = flow::kinds(file, &nodes)?;
    let gateways = gateways::all(file, &nodes, &default_stack, &links, &mobiles)?;
    let routing = routing::of(file, &nodes, &links)?;
    Ok(WorldConfig {
        seed,
        nodes: nodes.configs,
        links,
        routing,
        cells,
        mobiles,
        mechanisms: mechanisms::all(file, &default_stack)?,
        gateways,
        cpus: cpu::all(file)?,
        latencies: latency::all(file)?,
        addressing: addressing::all(file)?,
        flows,
        time_limit: Instant::ZERO + time_limit,
        sample_every: output::sample_every(file.output.as_ref())?,
    })
}

/// Checks a name used in paths, files and reports.
pub(crate) fn check_name(name: &str) -> Result<(), Problem> {
    let good = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if !name.is_empty() && name.len() <= 64 && name.chars().all(good) && !name.starts_with('.') {
        return Ok(());
    }
    let accepted = "a name of up to 64 letters, digits, \"-\", \"_\" and \".\"";
    Err(Problem::unexpected(ErrorKind::BadValue, format!("\"{name}\""), accepted)).under("name")
}

/// Checks that `name` differs from all earlier ones.
pub(crate) fn check_new<'a>(what: &str, name: &str, before: impl IntoIterator<Item = &'a str>) -> Result<(), Problem> {
    if before.into_iter().any(|other| other == name) {
        let message = format!("the name \"{name}\" is given twice; every {what} needs its own");
        return Err(Problem::new(ErrorKind::Duplicate, message)).under("name");
    }
    Ok(())
}

/// A time that must be positive.
fn above_zero(time: Time, key: &str) -> Result<Duration, Problem> {
    if time.0.is_zero() {
        return Err(Problem::unexpected(ErrorKind::BadValue, "\"0 s\"", "a time above 0")).under(key);
    }
    Ok(time.0)
}
