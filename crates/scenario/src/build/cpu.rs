//! Routers with processing delay.

use holdover_base::Duration;
use holdover_sim::{NodeId, RouterCpu};

use crate::file::{Cpu, ScenarioFile};
use crate::problem::{Problem, Under};
use crate::quantity::Time;

/// The processors of all routers that have one. A problem lies below the root of the file.
pub(crate) fn all(file: &ScenarioFile) -> Result<Vec<RouterCpu>, Problem> {
    let mut all = Vec::new();
    for (index, router) in file.routers.iter().enumerate() {
        let Some(table) = &router.cpu else { continue };
        let node = NodeId((file.hosts.len() + index) as u32);
        all.push(cpu(table, node).under("cpu").under_index(index).under("router")?);
    }
    Ok(all)
}

fn cpu(table: &Cpu, node: NodeId) -> Result<RouterCpu, Problem> {
    let default = RouterCpu::of(node);
    let time = |given: Option<Time>, default: Duration| given.map_or(default, |given| given.0);
    let cpu = RouterCpu {
        node,
        per_packet: time(table.per_packet, default.per_packet),
        per_byte: time(table.per_byte, default.per_byte),
        per_operation: time(table.per_operation, default.per_operation),
        per_operation_byte: time(table.per_operation_byte, default.per_operation_byte),
        per_compressed_byte: time(table.per_compressed_byte, default.per_compressed_byte),
        backlog_packets: table.backlog.unwrap_or(default.backlog_packets),
    };
    if cpu.backlog_packets == 0 {
        return Err(Problem::conflict("a backlog of 0 drops every packet".to_owned()).under("backlog"));
    }
    let costs = [cpu.per_packet, cpu.per_byte, cpu.per_operation, cpu.per_operation_byte, cpu.per_compressed_byte];
    if costs.iter().all(|cost| cost.is_zero()) {
        return Err(Problem::conflict("no packet takes any time; \"per_packet\" says how much".to_owned()));
    }
    Ok(cpu)
}
