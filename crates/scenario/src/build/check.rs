//! Checks that need the simulator: whether routes reach the destinations of packets.

use holdover_base::Instant;
use holdover_sim::{BlackHole, NodeId, World, WorldConfig, WorldError};

use super::flow::start_of;
use crate::error::ErrorKind;
use crate::file::ScenarioFile;
use crate::problem::Problem;

/// Checks that the simulator accepts `config`, built from `file` with one flow of each kind.
pub(crate) fn within_reach(file: &ScenarioFile, mut config: WorldConfig) -> Result<(), Problem> {
    // The last copy of a kind begins last, and otherwise equals the others.
    for (flow, kind) in file.flows.iter().zip(&mut config.flows) {
        kind.start = start_of(flow, flow.count.unwrap_or(1) - 1);
    }
    World::check(&config).map_err(|error| place(file, config.time_limit, &error))
}

/// Warnings about `config`: flows that stop with a link although another path exists.
pub(crate) fn warnings(config: &WorldConfig) -> Vec<String> {
    // The scenario was checked before.
    let black_holes = holdover_sim::black_holes(config).unwrap_or_default();
    let text = |hole: &BlackHole| {
        let node = |id: NodeId| &config.nodes[id.0 as usize].name;
        let (from, to) = (node(hole.from), node(hole.to));
        let link = &config.links[hole.link.0 as usize].name;
        let flow = &config.flows[hole.flow.0 as usize].name;
        let why = match config.routing.detection {
            None => "routers do not follow links; with a table [routing] they do",
            Some(_) => "it begins at another link of a host, which does not know that this one leads nowhere",
        };
        format!(
            "flow \"{flow}\": while link \"{link}\" is down, packets from \"{from}\" to \"{to}\" do not take the other way \
             that there is: {why}"
        )
    };
    black_holes.iter().map(text).collect()
}

/// The scenario's problem for a world's error.
fn place(file: &ScenarioFile, time_limit: Instant, error: &WorldError) -> Problem {
    let at_flow = |name: &str, key: &str, kind, message: String| {
        let index = file.flows.iter().position(|flow| flow.name == name).unwrap_or(0);
        Problem::new(kind, message).under(key).under_index(index).under("flow")
    };
    let at_mobile = |host: &str, key: &str, kind, message: String| {
        let index = file.mobiles.iter().position(|mobile| mobile.host == host).unwrap_or(0);
        Problem::new(kind, message).under(key).under_index(index).under("mobile")
    };
    let at_mtu = |name: &str, kind| {
        let index = file.links.iter().position(|link| link.name == name).unwrap_or(0);
        Problem::new(kind, error.to_string()).under("mtu").under_index(index).under("link")
    };
    match error {
        WorldError::Unreachable { flow, from, to } => {
            let message = format!("no path leads from \"{from}\" to \"{to}\"");
            let forward = file.flows.iter().any(|other| other.name == *flow && other.to == *to);
            at_flow(flow, if forward { "to" } else { "from" }, ErrorKind::Unreachable, message)
        }
        WorldError::StartsTooLate { flow, .. } => {
            let first = file.flows.iter().find(|other| other.name == *flow).map(|flow| start_of(flow, 0));
            let (what, key) = if first >= Some(time_limit) { ("it", "start") } else { ("the last of them", "spacing") };
            let message = format!("{what} starts when the run is over; \"time_limit\" says when that is");
            at_flow(flow, key, ErrorKind::Conflict, message)
        }
        WorldError::NeverCovered { node } => {
            let message = "it never comes within the range of a cell".to_owned();
            at_mobile(node, "path", ErrorKind::Unreachable, message)
        }
        WorldError::NoBeacons { node, cell } => {
            let message = format!("it registers with base stations, and that of \"{cell}\" sends no beacons");
            at_mobile(node, "registration", ErrorKind::Conflict, message)
        }
        WorldError::GatewayUnreachable { node, gateway, base } => {
            let message = format!("no path leads from \"{gateway}\" to \"{base}\" and back");
            at_mobile(node, "registration", ErrorKind::Unreachable, message)
        }
        WorldError::GatewayOffPath { node } => {
            let index = file.routers.iter().position(|router| router.name == *node).unwrap_or(0);
            let message = "these can never act: no flow of a host that they look after comes through this router";
            Problem::new(ErrorKind::Conflict, message).under("mechanisms").under_index(index).under("router")
        }
        WorldError::Mtu { link, .. } => at_mtu(link, ErrorKind::BadValue),
        WorldError::MtuAndIdentity { link, .. } => at_mtu(link, ErrorKind::Conflict),
        other => Problem::new(ErrorKind::BadValue, other.to_string()),
    }
}
