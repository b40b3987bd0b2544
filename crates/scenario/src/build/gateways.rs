//! Router mechanisms for the connections of mobile hosts.

use std::net::IpAddr;
use std::sync::Arc;

use holdover_base::Duration;
use holdover_gateway::blocking_buffer::BlockingBufferConfig;
use holdover_gateway::buffer_freeze::BufferFreezeConfig;
use holdover_gateway::copy_and_forward::CopyAndForwardConfig;
use holdover_gateway::daemon::{DaemonConfig, ThesisConfig};
use holdover_gateway::divert::DiverterConfig;
use holdover_gateway::ebsn::EbsnConfig;
use holdover_gateway::handoff::HandoffConfig;
use holdover_gateway::m_tcp::MTcpConfig;
use holdover_gateway::snoop::SnoopConfig;
use holdover_gateway::split::SplitConfig;
use holdover_gateway::supervisor::SupervisorConfig;
use holdover_gateway::tawcf::TawcfConfig;
use holdover_gateway::{ConfigError, Mechanisms};
use holdover_link::Outages;
use holdover_sim::{GatewayMechanisms, LinkBetween, MobileHost, NodeId, Role};
use holdover_srp::SrpConfig;
use holdover_tcp::Config;

use super::nodes::Nodes;
use super::{above_zero, compression, stack};
use crate::error::ErrorKind;
use crate::file::{self, ScenarioFile};
use crate::problem::{Problem, Under};
use crate::quantity::{Bytes, Time};
use crate::word::{OrNone, Short};

/// The mechanisms of all routers that have any. A problem lies below the root of the file.
pub(crate) fn all(
    file: &ScenarioFile,
    nodes: &Nodes,
    default_stack: &Config,
    links: &[LinkBetween],
    mobiles: &[MobileHost],
) -> Result<Vec<GatewayMechanisms>, Problem> {
    let mut all = Vec::new();
    for (index, router) in file.routers.iter().enumerate() {
        let Some(table) = &router.mechanisms else { continue };
        let node = NodeId((file.hosts.len() + index) as u32);
        let built = of_router(table, node, nodes, default_stack, links, mobiles);
        let built = built.and_then(|built| check_peers(file, index).map(|()| built));
        all.push(built.under("mechanisms").under_index(index).under("router")?);
    }
    check_common_hosts(&all, file.hosts.len())?;
    Ok(all)
}

fn of_router(
    table: &file::RouterMechanisms,
    node: NodeId,
    nodes: &Nodes,
    default_stack: &Config,
    links: &[LinkBetween],
    mobiles: &[MobileHost],
) -> Result<GatewayMechanisms, Problem> {
    let mechanisms = Mechanisms {
        daemon: table.gateway.as_ref().map(daemon).transpose().under("gateway")?,
        supervisor: table.supervisor.as_ref().map(supervisor).transpose().under("supervisor")?,
        buffer_freeze: table
            .buffer_freeze
            .as_ref()
            .map(|table| buffer_freeze(table, nodes))
            .transpose()
            .under("buffer_freeze")?,
        blocking_buffer: table.blocking_buffer.as_ref().map(blocking_buffer).transpose().under("blocking_buffer")?,
        copy_and_forward: table
            .copy_and_forward
            .as_ref()
            .map(copy_and_forward)
            .transpose()
            .under("copy_and_forward")?,
        split: table.split.as_ref().map(|table| split(table, nodes, default_stack)).transpose().under("split")?,
        m_tcp: table.m_tcp.as_ref().map(|table| m_tcp(table, nodes, default_stack)).transpose().under("m_tcp")?,
        snoop: table.snoop.as_ref().map(|table| snoop(table, nodes)).transpose().under("snoop")?,
        tawcf: table.tawcf.as_ref().map(tawcf).transpose().under("tawcf")?,
        ebsn: table.ebsn.as_ref().map(ebsn),
        srp: table.srp.as_ref().map(|table| srp(table, default_stack)).transpose().under("srp")?,
    };
    mechanisms.check().map_err(|error| {
        let problem = Problem::conflict(error.to_string());
        match error {
            ConfigError::Nothing { mechanism, .. }
            | ConfigError::Together { one: mechanism, .. }
            | ConfigError::Twice { one: mechanism, .. }
            | ConfigError::Terminated { mechanism, .. } => problem.under(mechanism),
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

/// Checks that routers between which connections move name each other, and that one can continue what the other began.
fn check_peers(file: &ScenarioFile, index: usize) -> Result<(), Problem> {
    let split = |router: &file::Router| router.mechanisms.as_ref()?.split.as_ref()?.peers.clone();
    let snoop = |router: &file::Router| router.mechanisms.as_ref()?.snoop.as_ref()?.peers.clone();
    let m_tcp = |router: &file::Router| router.mechanisms.as_ref()?.m_tcp.as_ref()?.peers.clone();
    let buffer_freeze = |router: &file::Router| router.mechanisms.as_ref()?.buffer_freeze.as_ref()?.peers.clone();
    check_peers_of(file, index, "split", split)?;
    check_all_are_peers(file, index, split).under("peers").under("split")?;
    check_peers_of(file, index, "snoop", snoop)?;
    check_peers_of(file, index, "m_tcp", m_tcp)?;
    check_all_are_peers(file, index, m_tcp).under("peers").under("m_tcp")?;
    check_peers_of(file, index, "buffer_freeze", buffer_freeze)?;
    check_all_are_peers(file, index, buffer_freeze).under("peers").under("buffer_freeze")?;
    check_variants(file, index).under("peers").under("buffer_freeze")
}

/// Checks the `peers` of one mechanism.
fn check_peers_of(
    file: &ScenarioFile,
    index: usize,
    mechanism: &'static str,
    peers: impl Fn(&file::Router) -> Option<Vec<String>>,
) -> Result<(), Problem> {
    let own = &file.routers[index];
    for (place, name) in peers(own).unwrap_or_default().iter().enumerate() {
        let is_mutual = |router: &file::Router| peers(router).is_some_and(|peers| peers.contains(&own.name));
        let message = if *name == own.name {
            format!("\"{name}\" is this router itself")
        } else if !file.routers.iter().any(|router| router.name == *name && is_mutual(router)) {
            format!("\"{name}\" would not answer: its {mechanism} has to have \"{}\" among its \"peers\"", own.name)
        } else {
            continue;
        };
        return Err(Problem::conflict(message).under_index(place).under("peers").under(mechanism));
    }
    Ok(())
}

/// Checks that the peers of a router are peers of each other: a node of `split`, `m_tcp` or `buffer_freeze` owns a mobile host when all of its peers have
/// answered, so that none may have its connections that was not asked.
fn check_all_are_peers(
    file: &ScenarioFile,
    index: usize,
    peers: impl Fn(&file::Router) -> Option<Vec<String>>,
) -> Result<(), Problem> {
    let own = &file.routers[index];
    let names = peers(own).unwrap_or_default();
    for router in file.routers.iter().filter(|router| names.contains(&router.name)) {
        let theirs = peers(router).unwrap_or_default();
        let mut missing = names.iter().filter(|name| **name != router.name && !theirs.contains(name));
        if let Some(name) = missing.next() {
            let router = &router.name;
            return Err(Problem::conflict(format!(
                "\"{router}\" does not have \"{name}\" among its \"peers\": all routers between which connections move have to be peers of each other"
            )));
        }
    }
    Ok(())
}

/// Checks that the `buffer_freeze` of each peer keeps copies and freezes senders if this router's does: otherwise it would discard the
/// copies, or never freeze a sender again.
fn check_variants(file: &ScenarioFile, index: usize) -> Result<(), Problem> {
    let table = |router: &file::Router| router.mechanisms.as_ref()?.buffer_freeze.clone();
    let variant = |table: &file::BufferFreeze| {
        let default = BufferFreezeConfig::default();
        let buffers = or_none(table.buffer.as_ref(), default.buffer_bytes) > 0;
        (buffers, table.freeze.unwrap_or(default.freezes))
    };
    let Some(own) = table(&file.routers[index]) else { return Ok(()) };
    for (place, name) in own.peers.iter().flatten().enumerate() {
        let peer = file.routers.iter().find(|router| router.name == *name).and_then(table);
        if peer.is_some_and(|peer| variant(&peer) != variant(&own)) {
            let message =
                format!("\"{name}\" has another \"buffer\" or \"freeze\": it cannot continue what this router began");
            return Err(Problem::conflict(message).under_index(place));
        }
    }
    Ok(())
}

/// Checks that routers between which connections move act for at least one mobile host in common.
fn check_common_hosts(all: &[GatewayMechanisms], hosts: usize) -> Result<(), Problem> {
    for own in all {
        let among = |handoff: Option<&HandoffConfig>| handoff.map_or(Vec::new(), |handoff| handoff.peers.clone());
        let split = among(own.mechanisms.split.as_ref().and_then(|config| config.handoff.as_ref()));
        let snoop = own.mechanisms.snoop.as_ref().map_or(Vec::new(), |config| config.peers.clone());
        let m_tcp = among(own.mechanisms.m_tcp.as_ref().and_then(|config| config.split.handoff.as_ref()));
        let buffer_freeze = among(own.mechanisms.buffer_freeze.as_ref().and_then(|config| config.handoff.as_ref()));
        for (mechanism, peers) in
            [("split", split), ("snoop", snoop), ("m_tcp", m_tcp), ("buffer_freeze", buffer_freeze)]
        {
            for (place, address) in peers.into_iter().enumerate() {
                let peer = all.iter().find(|other| other.node.address(false) == address);
                if peer.is_some_and(|peer| !peer.mobiles.iter().any(|mobile| own.mobiles.contains(mobile))) {
                    let message = "no connection can move there: the two routers have no mobile host in common";
                    let problem = Problem::conflict(message).under_index(place).under("peers").under(mechanism);
                    return Err(problem.under("mechanisms").under_index(own.node.0 as usize - hosts).under("router"));
                }
            }
        }
    }
    Ok(())
}

/// Hosts that move between cells, and hosts with a link that has outages.
fn that_come_and_go(nodes: &Nodes, links: &[LinkBetween], mobiles: &[MobileHost]) -> Vec<NodeId> {
    let with_outages = links.iter().filter(|link| link.forward.outages != Outages::Never);
    let ends = with_outages.flat_map(|link| [link.a, link.b]).filter(|&node| nodes.role(node) == Role::Host);
    let mut all: Vec<NodeId> = mobiles.iter().map(|mobile| mobile.node).chain(ends).collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// The largest packet of the daemon's TUN device, which its buffer must hold.
const LEAST_BUFFER: u64 = 65_536;

fn daemon(table: &file::GatewayDaemon) -> Result<DaemonConfig, Problem> {
    let file::GatewayDaemon { mode, hold_back, mobile_bytes, total_bytes, longest, rate, burst_bytes, .. } = table;
    let (default, buffer) = (DaemonConfig::default(), DiverterConfig::default());
    let thesis = ThesisConfig {
        sign: table.sign.map_or(default.thesis.sign, |word| word.0),
        burst_packets: table.burst.unwrap_or(default.thesis.burst_packets),
    };
    let bytes = |given: Option<Bytes>, default| given.map_or(default, |bytes| bytes.0.0);
    let config = DaemonConfig {
        mode: mode.map_or(default.mode, |word| word.0),
        holds_back: hold_back.unwrap_or(default.holds_back),
        drops_duplicates: table.drop_duplicates.unwrap_or(default.drops_duplicates),
        buffer: DiverterConfig {
            mobile_bytes: bytes(*mobile_bytes, buffer.mobile_bytes),
            total_bytes: bytes(*total_bytes, buffer.total_bytes),
            longest: time_or(*longest, "longest", buffer.longest)?,
            rate: rate.as_ref().map_or(buffer.rate, |OrNone(rate)| rate.map(|rate| rate.0)),
            burst_bytes: bytes(*burst_bytes, buffer.burst_bytes),
            longest_warning: time_or(table.longest_warning, "longest_warning", buffer.longest_warning)?,
            ..buffer
        },
        thesis,
        ..default
    };
    if config.buffer.mobile_bytes < LEAST_BUFFER {
        let message = format!("at least {LEAST_BUFFER} bytes are needed, for one packet of a kernel's");
        return Err(Problem::new(ErrorKind::BadValue, message).under("mobile_bytes"));
    }
    Ok(config)
}

fn supervisor(table: &file::Supervisor) -> Result<SupervisorConfig, Problem> {
    let default = SupervisorConfig::default();
    Ok(SupervisorConfig {
        held_bytes: table.held.map_or(default.held_bytes, |held| u32::try_from(held.0.0).unwrap_or(u32::MAX)),
        held_after_bytes: table.held_after.map_or(default.held_after_bytes, |after| after.0.0),
        buffer_bytes: or_none(table.buffer.as_ref(), default.buffer_bytes),
        choke: table.choke.map_or(default.choke, |word| word.0),
        flush: time_or(table.flush, "flush", default.flush)?,
        least_timeout: time_or(table.least_timeout, "least_timeout", default.least_timeout)?,
        burst_packets: table.burst.unwrap_or(default.burst_packets),
    })
}

fn buffer_freeze(table: &file::BufferFreeze, nodes: &Nodes) -> Result<BufferFreezeConfig, Problem> {
    let default = BufferFreezeConfig::default();
    let buffer_bytes = or_none(table.buffer.as_ref(), default.buffer_bytes);
    Ok(BufferFreezeConfig {
        buffers: buffer_bytes > 0,
        freezes: table.freeze.unwrap_or(default.freezes),
        least_timeout: time_or(table.least_timeout, "least_timeout", default.least_timeout)?,
        buffer_bytes,
        handoff: handoff(table.peers.as_ref(), nodes)?,
    })
}

fn split(table: &file::Split, nodes: &Nodes, default_stack: &Config) -> Result<SplitConfig, Problem> {
    let file::Split { fixed_stack, mobile_stack, lock_step, most, peers } = table;
    let halves = halves(default_stack, fixed_stack.as_ref(), mobile_stack.as_ref(), *lock_step, *most)?;
    Ok(SplitConfig { handoff: handoff(peers.as_ref(), nodes)?, ..halves })
}

fn halves(
    default_stack: &Config,
    fixed: Option<&Short<file::Stack>>,
    mobile: Option<&Short<file::Stack>>,
    lock_step: Option<bool>,
    most: Option<u32>,
) -> Result<SplitConfig, Problem> {
    let default = SplitConfig::with(default_stack.clone());
    Ok(SplitConfig {
        fixed: Arc::new(stack::changed(default_stack, fixed).under("fixed_stack")?),
        mobile: Arc::new(stack::changed(default_stack, mobile).under("mobile_stack")?),
        lock_step: lock_step.unwrap_or(default.lock_step),
        most: most.map_or(default.most, |most| most as usize),
        handoff: None,
    })
}

fn m_tcp(table: &file::MTcp, nodes: &Nodes, default_stack: &Config) -> Result<MTcpConfig, Problem> {
    let file::MTcp { fixed_stack, mobile_stack, lock_step, most, .. } = table;
    let split = halves(default_stack, fixed_stack.as_ref(), mobile_stack.as_ref(), *lock_step, *most)?;
    let default = MTcpConfig::with(split);
    Ok(MTcpConfig {
        pulls_back: table.pulls_back.unwrap_or(default.pulls_back),
        held_after_bytes: table
            .held_after
            .map_or(default.held_after_bytes, |after| u32::try_from(after.0.0).unwrap_or(u32::MAX)),
        flush: time_or(table.flush, "flush", default.flush)?,
        least_timeout: time_or(table.least_timeout, "least_timeout", default.least_timeout)?,
        persist_least: time_or(table.persist_least, "persist_least", default.persist_least)?,
        persist_most: time_or(table.persist_most, "persist_most", default.persist_most)?,
        bandwidth: table.bandwidth.map(|rate| rate.0),
        compression: table.compression.as_ref().map(compression::of_tcp).transpose().under("compression")?,
        split: SplitConfig { handoff: handoff(table.peers.as_ref(), nodes)?, ..default.split },
    })
}

/// The handoff among a router and its `peers`, if it has any.
fn handoff(names: Option<&Vec<String>>, nodes: &Nodes) -> Result<Option<HandoffConfig>, Problem> {
    Ok(peers(names, nodes)?.map(HandoffConfig::among))
}

/// The addresses of a router's `peers`, if it has any.
fn peers(peers: Option<&Vec<String>>, nodes: &Nodes) -> Result<Option<Vec<IpAddr>>, Problem> {
    if peers.is_some_and(Vec::is_empty) {
        return Err(Problem::conflict("the list is empty: name routers, or leave out \"peers\"").under("peers"));
    }
    let address = |(index, name): (usize, &String)| {
        nodes.router(name).map(|peer| peer.address(false)).under_index(index).under("peers")
    };
    peers.map(|names| names.iter().enumerate().map(address).collect()).transpose()
}

fn snoop(table: &file::Snoop, nodes: &Nodes) -> Result<SnoopConfig, Problem> {
    let default = SnoopConfig::default();
    Ok(SnoopConfig {
        buffer_bytes: table.buffer.map_or(default.buffer_bytes, as_size),
        least_timeout: time_or(table.least_timeout, "least_timeout", default.least_timeout)?,
        persist: time_or(table.persist, "persist", default.persist)?,
        most_resent: table.most_resent.unwrap_or(default.most_resent),
        peers: peers(table.peers.as_ref(), nodes)?.unwrap_or_default(),
    })
}

fn tawcf(table: &file::Tawcf) -> Result<TawcfConfig, Problem> {
    let default = TawcfConfig::default();
    Ok(TawcfConfig {
        buffer_bytes: table.buffer.map_or(default.buffer_bytes, as_size),
        longest: time_or(table.longest, "longest", default.longest)?,
        low_for: table.low_for.as_ref().map_or(default.low_for, |OrNone(low)| low.map(|low| low.0)),
        fresh: table.fresh.map_or(default.fresh, |fresh| fresh.0),
        hold: time_or(table.hold, "hold", default.hold)?,
    })
}

/// MTCP/SRP at a router or a host.
pub(super) fn srp(table: &file::Srp, default_stack: &Config) -> Result<SrpConfig, Problem> {
    let default = SrpConfig::with(stack::changed(default_stack, table.near_stack.as_ref()).under("near_stack")?);
    let config = SrpConfig {
        packet_bytes: table.packet.map_or(default.packet_bytes, as_size),
        window_packets: table.window.unwrap_or(default.window_packets),
        least_timeout: time_or(table.least_timeout, "least_timeout", default.least_timeout)?,
        most_timeout: time_or(table.most_timeout, "most_timeout", default.most_timeout)?,
        most: table.most.map_or(default.most, |most| most as usize),
        near: default.near,
    };
    config.check().map_err(|error| Problem::conflict(error.to_string()))?;
    Ok(config)
}

/// Unlike other times, `every` may be zero: every failed attempt then causes a notification, as in the paper.
fn ebsn(table: &file::Ebsn) -> EbsnConfig {
    EbsnConfig { every: table.every.map_or(EbsnConfig::default().every, |every| every.0) }
}

/// A time above zero, or the default.
fn time_or(given: Option<Time>, key: &str, default: Duration) -> Result<Duration, Problem> {
    given.map_or(Ok(default), |given| above_zero(given, key))
}

fn blocking_buffer(table: &file::BlockingBuffer) -> Result<BlockingBufferConfig, Problem> {
    let default = BlockingBufferConfig::default();
    Ok(BlockingBufferConfig {
        sign: table.sign.map_or(default.sign, |word| word.0),
        burst_packets: table.burst.as_ref().map_or(default.burst_packets, |OrNone(burst)| *burst),
        buffer_bytes: table.buffer.map_or(default.buffer_bytes, as_size),
        longest: time_or(table.longest, "longest", default.longest)?,
    })
}

fn copy_and_forward(table: &file::CopyAndForward) -> Result<CopyAndForwardConfig, Problem> {
    let default = CopyAndForwardConfig::default();
    Ok(CopyAndForwardConfig {
        sign: table.sign.map_or(default.sign, |word| word.0),
        buffer_bytes: table.buffer.map_or(default.buffer_bytes, as_size),
        longest: time_or(table.longest, "longest", default.longest)?,
    })
}

/// A byte limit, 0 for "none".
fn or_none(given: Option<&OrNone<Bytes>>, default: usize) -> usize {
    given.map_or(default, |OrNone(bytes)| bytes.map_or(0, as_size))
}

fn as_size(bytes: Bytes) -> usize {
    usize::try_from(bytes.0.0).unwrap_or(usize::MAX)
}
