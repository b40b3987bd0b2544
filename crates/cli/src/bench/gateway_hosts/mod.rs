//! `gateway-hosts`: the gateway with many mobile hosts that leave and return together, and its table of connections under floods of SYNs.
//!
//! The daemon is a process of its own on a router between a fixed host and the mobile hosts, whose TCP is the kernel's; a thread of this
//! process is their link. Times are those of a machine that does all of this.

mod connections;
mod daemon;
mod flood;
mod returns;
mod table;

use std::error::Error;
use std::time::Duration;

use holdover_base::BitRate;
use holdover_host::clock;
use holdover_testbed::gateway::{Crowd, Return};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde::Serialize;

use crate::command_support::exit_on_signals;
use connections::Connections;
use daemon::Daemon;
use flood::{FloodCost, Flooder};
use returns::{Absence, ReturnCost};
pub(super) use table::table;

type Failed = Box<dyn Error + Send + Sync>;

/// The settings of a measurement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Settings {
    /// Mobile hosts.
    pub(super) hosts: u32,
    /// TCP connections of each.
    pub(super) connections: u32,
}

/// The cost of many mobile hosts, and the times from their return to their first data.
#[derive(Debug, Serialize)]
pub(super) struct HostsCost {
    hosts: u32,
    connections: usize,
    /// Rate of the link that all mobile hosts share.
    link_bits_per_second: u64,
    memory: Memory,
    watching: Watching,
    returns: Vec<ReturnCost>,
    floods: Vec<FloodCost>,
}

/// Memory of the daemon's process and of its maps in the kernel, in bytes.
#[derive(Debug, Serialize)]
struct Memory {
    /// Memory before the first mobile host.
    process: u64,
    maps: u64,
    /// Additional memory for each mobile host that has sent a packet.
    process_per_host: f64,
    maps_per_host: f64,
    /// Additional memory for each connection that has carried a message.
    process_per_connection: f64,
    maps_per_connection: f64,
}

/// The load while all mobile hosts are present and carry one message each per second.
#[derive(Debug, Serialize)]
struct Watching {
    /// The daemon's share of one processor.
    daemon_share: f64,
    /// Hosts that the gateway wrongly considered absent.
    taken_for_absent: u64,
}

/// The rate of the link to the mobile hosts.
const LINK: BitRate = BitRate::from_mbps(1000);
/// The duration of the measurement with all hosts present.
const WATCHED: Duration = Duration::from_secs(5);
/// The bound on all waits for the gateway.
const PATIENCE: Duration = Duration::from_secs(120);
/// The room that a router needs in its neighbour table beside mobile hosts.
const OTHER_NEIGHBOURS: u32 = 64;

/// Takes all measurements.
///
/// # Errors
/// The kernel refuses something, or has not enough room for so many hosts.
pub(super) fn measure(settings: Settings) -> Result<HostsCost, Failed> {
    check_neighbour_table(settings.hosts)?;
    let all = settings.hosts as usize * settings.connections as usize;
    raise_open_files(2 * all as u64 + 1000)?;
    exit_on_signals("nothing was measured to its end".to_owned())?;
    let crowd = Crowd::new(settings.hosts, LINK)?;
    let mut daemon = Daemon::start(&crowd)?;
    let empty = daemon.memory()?;
    say(&format_args!("{} mobile hosts announce themselves", settings.hosts));
    crowd.come_back(clock::now(), holdover_base::Duration::from_secs(1), Return::Announced);
    daemon.await_status(PATIENCE, "know all mobile hosts", |status| status.mobiles >= settings.hosts.into())?;
    let with_hosts = daemon.memory()?;
    say(&format_args!("{all} connections are opened"));
    let mut connections = Connections::open(&crowd, settings.connections)?;
    connections.send_to_all(connections::MESSAGE)?;
    connections.receive_all(PATIENCE)?;
    let with_connections = daemon.memory()?;
    let per = |of: fn(daemon::Memory) -> u64, more: daemon::Memory, less: daemon::Memory, count: f64| {
        (of(more) as f64 - of(less) as f64) / count
    };
    let hosts = f64::from(settings.hosts);
    let memory = Memory {
        process: empty.process,
        maps: empty.maps,
        process_per_host: per(|memory| memory.process, with_hosts, empty, hosts),
        maps_per_host: per(|memory| memory.maps, with_hosts, empty, hosts),
        process_per_connection: per(|memory| memory.process, with_connections, with_hosts, all as f64),
        maps_per_connection: per(|memory| memory.maps, with_connections, with_hosts, all as f64),
    };
    say(&"all are watched");
    let watching = watch(&mut daemon, &mut connections)?;
    let mut returns = Vec::new();
    for absence in Absence::ALL {
        say(&format_args!("absence and return: {}", absence.name()));
        returns.push(returns::measure(&crowd, &mut daemon, &mut connections, absence, LINK)?);
    }
    let mut floods = Vec::new();
    for flooder in Flooder::ALL {
        say(&format_args!("a flood of SYNs from {}", flooder.name()));
        floods.push(flood::measure(&crowd, &mut daemon, &mut connections, flooder)?);
    }
    Ok(HostsCost {
        hosts: settings.hosts,
        connections: all,
        link_bits_per_second: LINK.0,
        memory,
        watching,
        returns,
        floods,
    })
}

/// Prints progress.
fn say(what: &dyn std::fmt::Display) {
    super::say("gateway-hosts", what);
}

fn watch(daemon: &mut Daemon, connections: &mut Connections) -> Result<Watching, Failed> {
    let before = (daemon.status()?.buffer.absences, daemon.processor_time()?, std::time::Instant::now());
    while before.2.elapsed() < WATCHED {
        connections.talk(Duration::from_secs(1))?;
    }
    let spent = daemon.processor_time()? - before.1;
    let daemon_share = spent.as_secs_f64() / before.2.elapsed().as_secs_f64();
    Ok(Watching { daemon_share, taken_for_absent: daemon.status()?.buffer.absences - before.0 })
}

/// Checks the size of the kernel's neighbour table. All namespaces share it, and the kernel drops packets to hosts without an entry.
///
/// # Errors
/// It has too little room.
fn check_neighbour_table(hosts: u32) -> Result<(), Failed> {
    const PARAMETER: &str = "/proc/sys/net/ipv4/neigh/default/gc_thresh3";
    // The network namespace of a container does not have this file.
    let Ok(text) = std::fs::read_to_string(PARAMETER) else { return Ok(()) };
    let most: u32 = text.trim().parse()?;
    let needed = hosts + OTHER_NEIGHBOURS;
    if most >= needed {
        return Ok(());
    }
    Err(format!(
        "the kernel's table of neighbours has room for {most}, and {hosts} mobile hosts need {needed}: \
         sysctl -w net.ipv4.neigh.default.gc_thresh3={needed} net.ipv4.neigh.default.gc_thresh2={needed}"
    )
    .into())
}

/// # Errors
/// The kernel refuses: this needs `CAP_SYS_RESOURCE` beyond the hard limit.
fn raise_open_files(needed: u64) -> Result<(), Failed> {
    let limit = getrlimit(Resource::Nofile);
    let is_enough = |limit: Option<u64>| limit.is_none_or(|limit| limit >= needed);
    if is_enough(limit.current) {
        return Ok(());
    }
    let maximum = if is_enough(limit.maximum) { limit.maximum } else { Some(needed) };
    setrlimit(Resource::Nofile, Rlimit { current: Some(needed), maximum })
        .map_err(|error| format!("{needed} open files are needed, and the limit cannot be raised: {error}").into())
}
