//! Hosts that take time to receive packets.

use holdover_base::Duration;
use holdover_sim::{HostLatency, NodeId};

use super::link;
use crate::error::ErrorKind;
use crate::file::{Latency, ScenarioFile};
use crate::problem::{Problem, Under};

/// After pauses of more than 3 ms a packet took Linux about twice as long as after shorter ones (docs/conformance/simulator.md).
const IDLE_AFTER: Duration = Duration::from_millis(3);

/// The latencies of all hosts that have one. A problem lies below the root of the file.
pub(crate) fn all(file: &ScenarioFile) -> Result<Vec<HostLatency>, Problem> {
    let mut all = Vec::new();
    for (index, host) in file.hosts.iter().enumerate() {
        let Some(table) = &host.latency else { continue };
        all.push(latency(table, NodeId(index as u32)).under("latency").under_index(index).under("host")?);
    }
    Ok(all)
}

fn latency(table: &Latency, node: NodeId) -> Result<HostLatency, Problem> {
    let busy = link::length(&table.busy).under("busy")?;
    let idle = table.idle.as_ref().map(link::length).transpose().under("idle")?;
    if table.idle_after.is_some() && idle.is_none() {
        let text = "it has no effect without \"idle\", the latency after a pause".to_owned();
        return Err(Problem::conflict(text).under("idle_after"));
    }
    if table.idle_after.is_some_and(|given| given.0.is_zero()) {
        return Err(Problem::unexpected(ErrorKind::BadValue, "0 s", "a time above 0 s").under("idle_after"));
    }
    let idle_after = table.idle_after.map_or(IDLE_AFTER, |given| given.0);
    Ok(HostLatency { node, busy, idle: idle.unwrap_or(busy), idle_after })
}
