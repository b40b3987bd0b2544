//! The same transfers over the same outages, with and without the gateway on the router: `holdover gateway demo`.

mod between;
mod case;
mod show;

pub use case::{CASES, CLUSTER_CASES, Case, DemoError, Incident, Outcome, ROUND_TRIP, Way};
pub use show::run;

use holdover_gatewayd::control;
use holdover_gatewayd::status::Status;
use holdover_testbed::gateway::{GatewayProcess, WorldError};

/// A gateway's status.
///
/// # Errors
/// It does not answer.
pub fn status(gateway: &GatewayProcess) -> Result<Status, WorldError> {
    control::status(&gateway.socket()).map_err(|error| WorldError::Daemon(error.to_string()))
}
