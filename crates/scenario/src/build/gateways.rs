//! What routers do for the connections of mobile hosts.

use holdover_gateway::blocking_buffer::BlockingBufferConfig;
use holdover_gateway::buffer_freeze::BufferFreezeConfig;
use holdover_gateway::supervisor::SupervisorConfig;
use holdover_gateway::{ConfigError, Mechanisms};
use holdover_link::Outages;
use holdover_sim::{GatewayMechanisms, LinkBetween, MobileHost, NodeId, Role};

use super::above_zero;
use super::nodes::Nodes;
use crate::file::{self, ScenarioFile};
use crate::problem::{Problem, Under};
use crate::quantity::Bytes;
use crate::word::OrNone;

/// The mechanisms of all routers that have any. A problem lies below the root of the file.
pub(crate) fn all(
    file: &ScenarioFile,
    nodes: &Nodes,
    links: &[LinkBetween],
    mobiles: &[MobileHost],
) -> Result<Vec<GatewayMechanisms>, Problem> {
    let mut all = Vec::new();
    for (index, router) in file.routers.iter().enumerate() {
        let Some(table) = &router.mechanisms else { continue };
        let node = NodeId((file.hosts.len() + index) as u32);
        let built = of_router(table, node, nodes, links, mobiles);
        all.push(built.under("mechanisms").under_index(index).under("router")?);
    }
    Ok(all)
}

fn of_router(
    table: &file::RouterMechanisms,
    node: NodeId,
    nodes: &Nodes,
    links: &[LinkBetween],
    mobiles: &[MobileHost],
) -> Result<GatewayMechanisms, Problem> {
    let mechanisms = Mechanisms {
        supervisor: table.supervisor.as_ref().map(supervisor).transpose().under("supervisor")?,
        buffer_freeze: table.buffer_freeze.as_ref().map(buffer_freeze).transpose().under("buffer_freeze")?,
        blocking_buffer: table.blocking_buffer.as_ref().map(blocking_buffer).transpose().under("blocking_buffer")?,
        ..Mechanisms::default()
    };
    mechanisms.check().map_err(|error| {
        let problem = Problem::conflict(error.to_string());
        match error {
            ConfigError::Nothing { mechanism, .. } | ConfigError::Together { one: mechanism, .. } => {
                problem.under(mechanism)
            }
            ConfigError::None => problem,
        }
    })?;
    let mobiles = match &table.mobiles {
        Some(names) => {
            let of_name = |(index, name): (usize, &String)| nodes.host(name).under_index(index).under("mobiles");
            names.iter().enumerate().map(of_name).collect::<Result<Vec<NodeId>, Problem>>()?
        }
        None => that_come_and_go(nodes, links, mobiles),
    };
    if mobiles.is_empty() {
        let message = "there is no mobile host to look after: none moves between cells or has a link with outages; \
                       \"mobiles\" may name some";
        return Err(Problem::conflict(message));
    }
    Ok(GatewayMechanisms { node, mechanisms, mobiles, hears_links: table.hears_links.unwrap_or(true) })
}

/// Hosts that move between cells, and those with a link that has outages.
fn that_come_and_go(nodes: &Nodes, links: &[LinkBetween], mobiles: &[MobileHost]) -> Vec<NodeId> {
    let with_outages = links.iter().filter(|link| link.forward.outages != Outages::Never);
    let ends = with_outages.flat_map(|link| [link.a, link.b]).filter(|&node| nodes.role(node) == Role::Host);
    let mut all: Vec<NodeId> = mobiles.iter().map(|mobile| mobile.node).chain(ends).collect();
    all.sort_unstable();
    all.dedup();
    all
}

fn supervisor(table: &file::Supervisor) -> Result<SupervisorConfig, Problem> {
    let default = SupervisorConfig::default();
    Ok(SupervisorConfig {
        held_bytes: table.held.map_or(default.held_bytes, |held| u32::try_from(held.0.0).unwrap_or(u32::MAX)),
        buffer_bytes: or_none(table.buffer.as_ref(), default.buffer_bytes),
        choke: table.choke.map_or(default.choke, |word| word.0),
        flush: table.flush.map_or(Ok(default.flush), |flush| above_zero(flush, "flush"))?,
        least_timeout: {
            let least = table.least_timeout.map(|least| above_zero(least, "least_timeout"));
            least.transpose()?.unwrap_or(default.least_timeout)
        },
        burst_packets: table.burst.unwrap_or(default.burst_packets),
    })
}

fn buffer_freeze(table: &file::BufferFreeze) -> Result<BufferFreezeConfig, Problem> {
    let default = BufferFreezeConfig::default();
    let buffer_bytes = or_none(table.buffer.as_ref(), default.buffer_bytes);
    let least = table.least_timeout.map(|least| above_zero(least, "least_timeout")).transpose()?;
    Ok(BufferFreezeConfig {
        buffers: buffer_bytes > 0,
        freezes: table.freeze.unwrap_or(default.freezes),
        least_timeout: least.unwrap_or(default.least_timeout),
        buffer_bytes,
    })
}

fn blocking_buffer(table: &file::BlockingBuffer) -> Result<BlockingBufferConfig, Problem> {
    let default = BlockingBufferConfig::default();
    Ok(BlockingBufferConfig {
        burst_packets: table.burst.as_ref().map_or(default.burst_packets, |OrNone(burst)| *burst),
        buffer_bytes: table.buffer.map_or(default.buffer_bytes, as_size),
        longest: table.longest.map_or(Ok(default.longest), |longest| above_zero(longest, "longest"))?,
    })
}

/// So many bytes, or none of them.
fn or_none(given: Option<&OrNone<Bytes>>, default: usize) -> usize {
    given.map_or(default, |OrNone(bytes)| bytes.map_or(0, as_size))
}

fn as_size(bytes: Bytes) -> usize {
    usize::try_from(bytes.0.0).unwrap_or(usize::MAX)
}
