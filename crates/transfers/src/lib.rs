//! Bulk transfers over a link that is cut once, with and without the agent on the mobile host or the gateway on the router, for the
//! demos and the grids of outages.
//!
//! Each transfer has a phone, a server and a link of its own, so that any number of them can be in one world and none is in
//! another's way.

// Threads, files and kernels.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]
#![forbid(unsafe_code)]

mod agent;
pub mod daemon;
#[cfg(feature = "gateway")]
pub mod gateway;
mod measured;
pub mod nanos;
mod net_path;
mod watcher;

use std::sync::Arc;

use holdover_base::{Duration, Instant};
use holdover_link::{InFlightFate, LinkConfig, Outage, OutagePolicy, Outages, QueueLimit, QueuedFate, Rate};
use holdover_sim::{
    Amount, Bulk, FlowConfig, HostMechanisms, LinkBetween, NodeConfig, NodeId, Opener, Role, Traffic, WorldConfig,
};
use holdover_tcp::Profile;
use holdover_testbed::Congestion;
use serde::Serialize;

pub use agent::{AgentPath, Agents, KernelError, KernelRun};
pub use measured::Measured;
pub use net_path::NetPath;
pub use watcher::Watcher;

/// When a link is cut.
pub const CUT_AT: Instant = Instant::from_secs(4);
/// The link takes this long for the data of a transfer without headers and losses, and ten seconds with them: BBR enters PROBE_RTT after
/// ten seconds, and is to do so without a cut too.
pub const TRANSFER_TIME: Duration = Duration::from_millis(9_600);
/// How long before the cut a host is warned, if it is.
pub const LEAD: Duration = Duration::from_millis(300);

/// The direction of the data.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum TransferDirection {
    /// From the server to the phone.
    Download,
    /// From the phone to the server.
    Upload,
}

impl TransferDirection {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Download, Self::Upload];

    /// The name in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Download => "download",
            Self::Upload => "upload",
        }
    }

    /// The same at the head of something.
    pub const fn headline(self) -> &'static str {
        match self {
            Self::Download => "Download",
            Self::Upload => "Upload",
        }
    }
}

/// The measures of the phone against the cut.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Help {
    /// Nothing.
    Plain,
    /// The agent runs on the phone, and learns of the cut when it begins.
    Agent,
    /// The agent runs on the phone, and is warned [`LEAD`] before the cut.
    Warned,
}

impl Help {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Plain, Self::Agent, Self::Warned];

    /// The name in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Agent => "agent",
            Self::Warned => "warned",
        }
    }
}

/// The congestion control of the sender.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sender {
    /// RFC 9438.
    Cubic,
    /// RFC 5681 and RFC 6582.
    Reno,
    /// Version 1, as in Linux.
    Bbr,
}

impl Sender {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Cubic, Self::Reno, Self::Bbr];

    /// As people write it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cubic => "CUBIC",
            Self::Reno => "Reno",
            Self::Bbr => "BBR",
        }
    }

    /// The kernel's.
    pub const fn congestion(self) -> Congestion {
        match self {
            Self::Cubic => Congestion::Cubic,
            Self::Reno => Congestion::Reno,
            Self::Bbr => Congestion::Bbr,
        }
    }

    /// The simulator's.
    pub const fn profile(self) -> Profile {
        match self {
            Self::Cubic => Profile::Linux6Cubic,
            Self::Reno => Profile::Linux6Reno,
            Self::Bbr => Profile::Linux6Bbr,
        }
    }
}

/// One transfer.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Transfer {
    /// The direction of its data.
    pub direction: TransferDirection,
    /// How long its link is cut from [`CUT_AT`] on; `None` if it never is.
    pub cut: Option<Duration>,
    /// The phone's help against the cut.
    pub help: Help,
}

impl Transfer {
    /// Its name, and the beginning of those of its hosts.
    pub fn name(&self) -> String {
        let help = if self.cut.is_some() { self.help.name() } else { "uncut" };
        format!("{}-{help}", self.direction.name())
    }
}

/// The phone of transfer number `index` of a world.
pub const fn phone(index: usize) -> NodeId {
    NodeId(index as u32 * 2)
}

/// The world of these transfers, which all begin at once. On a kernel, only the congestion control of `sender`'s profile is
/// used. The world's description includes the agent only if it stands in the path as a filter.
pub fn world(
    transfers: &[Transfer],
    path: NetPath,
    sender: Sender,
    agent: AgentPath,
    time_limit: Duration,
) -> WorldConfig {
    let stack = Arc::new(sender.profile().config());
    let mut world = WorldConfig {
        seed: 1,
        time_limit: Instant::ZERO + time_limit,
        sample_every: Some(Duration::from_millis(50)),
        ..WorldConfig::default()
    };
    for (index, transfer) in transfers.iter().enumerate() {
        let name = transfer.name();
        let (phone, server) = (phone(index), NodeId(phone(index).0 + 1));
        for host in ["phone", "server"] {
            world.nodes.push(NodeConfig { name: format!("{name}-{host}"), role: Role::Host });
        }
        world.links.push(LinkBetween::wire(name.as_str(), phone, server, link(path, transfer.cut)));
        let (from, to, opener) = match transfer.direction {
            TransferDirection::Download => (server, phone, Opener::Receiver),
            TransferDirection::Upload => (phone, server, Opener::Sender),
        };
        world.flows.push(FlowConfig {
            name,
            from,
            to,
            start: Instant::ZERO,
            sender: Arc::clone(&stack),
            receiver: Arc::clone(&stack),
            traffic: Traffic::Bulk(Bulk { amount: Amount::Bytes(path.amount(TRANSFER_TIME)), opener }),
            ipv6: false,
        });
        if transfer.help != Help::Plain {
            let foresight = (transfer.help == Help::Warned).then_some(LEAD);
            world.mechanisms.push(HostMechanisms { node: phone, mechanisms: agent.mechanisms(), foresight });
        }
    }
    world
}

/// Packets on the link or in its queue at the cut are lost.
fn link(path: NetPath, cut: Option<Duration>) -> LinkConfig {
    let outages = cut.map_or(Outages::Never, |cut| Outages::List(vec![Outage { down: CUT_AT, up: CUT_AT + cut }]));
    LinkConfig {
        rate: Rate::Fixed(path.rate),
        delay: path.delay,
        queue_limit: QueueLimit::Packets(path.queue),
        outages,
        outage_policy: OutagePolicy { queued: QueuedFate::Lost, in_flight: InFlightFate::Dropped },
        ..LinkConfig::default()
    }
}

/// A whole number of seconds, or of milliseconds, as tables and pages have it.
pub fn spaced(time: Duration) -> String {
    let millis = time.as_millis();
    if millis.is_multiple_of(1000) { format!("{} s", millis / 1000) } else { format!("{millis} ms") }
}
