//! What only the simulator can say of a world: whether ways lead to where packets have to go.

use holdover_sim::{World, WorldConfig, WorldError};

use crate::error::ErrorKind;
use crate::file::ScenarioFile;
use crate::problem::Problem;

/// Checks that the simulator takes `config`, which was built from `file`.
pub(crate) fn within_reach(file: &ScenarioFile, config: &WorldConfig) -> Result<(), Problem> {
    // Of many flows of a kind, one says it all, and a world of few flows is made quickly.
    let mut first = 0;
    let mut flows = Vec::with_capacity(file.flows.len());
    for flow in &file.flows {
        flows.extend(
            config
                .flows
                .get(first)
                .cloned()
                .map(|config| holdover_sim::FlowConfig { name: flow.name.clone(), ..config }),
        );
        first += flow.count.unwrap_or(1) as usize;
    }
    let sample = WorldConfig { flows, ..config.clone() };
    World::new(sample).map(drop).map_err(|error| place(file, &error))
}

/// The problem that a world's error is in the scenario.
fn place(file: &ScenarioFile, error: &WorldError) -> Problem {
    let at_flow = |name: &str, key: &str, kind, message: String| {
        let index = file.flows.iter().position(|flow| flow.name == name).unwrap_or(0);
        Problem::new(kind, message).under(key).under_index(index).under("flow")
    };
    let at_mobile = |host: &str, key: &str, kind, message: String| {
        let index = file.mobiles.iter().position(|mobile| mobile.host == host).unwrap_or(0);
        Problem::new(kind, message).under(key).under_index(index).under("mobile")
    };
    match error {
        WorldError::Unreachable { flow, from, to } => {
            let message = format!("no path leads from \"{from}\" to \"{to}\"");
            at_flow(
                flow,
                if file.flows.iter().any(|f| f.name == *flow && f.to == *to) { "to" } else { "from" },
                ErrorKind::Unreachable,
                message,
            )
        }
        WorldError::StartsTooLate { flow, .. } => {
            let message = "it starts when the run is over; \"time_limit\" says when that is".to_owned();
            at_flow(flow, "start", ErrorKind::Conflict, message)
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
        other => Problem::new(ErrorKind::BadValue, other.to_string()),
    }
}
