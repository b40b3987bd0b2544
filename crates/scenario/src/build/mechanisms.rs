//! What hosts do when their links come and go.

use holdover_mobility::Mechanisms;
use holdover_mobility::reconnect_acks::ReconnectAcksConfig;
use holdover_sim::{HostMechanisms, NodeId};

use super::above_zero;
use crate::error::ErrorKind;
use crate::file::{self, ScenarioFile};
use crate::problem::{Problem, Under};

/// The mechanisms of all hosts that have any. A problem lies below the root of the file.
pub(crate) fn all(file: &ScenarioFile) -> Result<Vec<HostMechanisms>, Problem> {
    let mut all = Vec::new();
    for (index, host) in file.hosts.iter().enumerate() {
        let mechanisms = host.mechanisms.as_ref().map_or_else(|| Ok(Mechanisms::default()), of_host);
        let mechanisms = mechanisms.under("mechanisms").under_index(index).under("host")?;
        let foresight = host.foresight.map(|lead| above_zero(lead, "foresight"));
        let foresight = foresight.transpose().under_index(index).under("host")?;
        if host.mechanisms.is_some() || foresight.is_some() {
            all.push(HostMechanisms { node: NodeId(index as u32), mechanisms, foresight });
        }
    }
    Ok(all)
}

fn of_host(file: &file::Mechanisms) -> Result<Mechanisms, Problem> {
    Ok(Mechanisms {
        reconnect_acks: file.reconnect_acks.as_ref().map(reconnect_acks).transpose().under("reconnect_acks")?,
    })
}

fn reconnect_acks(table: &file::ReconnectAcks) -> Result<ReconnectAcksConfig, Problem> {
    let default = ReconnectAcksConfig::default();
    let copies = table.copies.unwrap_or(default.copies);
    if copies == 0 {
        return Err(Problem::unexpected(ErrorKind::BadValue, "the number 0", "1 to 255")).under("copies");
    }
    Ok(ReconnectAcksConfig {
        copies,
        restart_window_bytes: table.restart_window.map(|window| u32::try_from(window.0.0).unwrap_or(u32::MAX)),
        idle: table.idle.map_or(default.idle, |idle| idle.0),
    })
}
