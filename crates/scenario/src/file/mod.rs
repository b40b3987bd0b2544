//! The format of a scenario file. The doc comments here are the descriptions in the published schema.

mod bit_errors;
mod compression;
mod flow;
mod gateway;
mod link;
mod mechanisms;
mod mobility;
mod node;
mod output;
mod routing;
mod stack;
mod sweep;
mod variant;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::quantity::Time;
use crate::word::Short;

pub(crate) use bit_errors::{BitErrorBursts, BitErrors};
pub(crate) use compression::Compression;
pub(crate) use flow::{Flow, OnOff, RequestResponse};
pub(crate) use gateway::{
    BlockingBuffer, BufferFreeze, CopyAndForward, Ebsn, GatewayDaemon, MTcp, RouterMechanisms, Snoop, Split, Srp,
    Supervisor, Tawcf,
};
pub(crate) use link::{
    Arq, CoDel, DirectionRef, Distribution, Jitter, Length, LengthTable, Link, LinkAddresses, Loss, OneWay, Outage,
    Outages, Reorder, Trace, TraceFormat,
};
pub(crate) use mechanisms::{
    AckStall, DelayedDupacks, EbsnSender, FastRetransmit, Freeze, HoldBack, Mechanisms, NewCellWindow, PeerTriggerKind,
    Probe, ReconnectAcks, Release, RetransmissionTrigger, Silence, TimestampEcho, UnreachablePoke, UserTimeoutPolicy,
    WarningKind,
};
pub(crate) use mobility::{Cell, Medium, Mobile, Path, Registration, Stop, Visit, Visits};
pub(crate) use node::{Cpu, Host, IdentityTable, Latency, Router};
pub(crate) use output::{AllOrNone, Captured, Output};
pub(crate) use routing::{Route, Routing};
pub(crate) use stack::{Ack, AckKind, FastOpen, Stack};
pub(crate) use sweep::{Axis, Compare, Measure, Range, Replicate, Scale, Sweep};
pub(crate) use variant::Variant;

/// A scenario of Holdover: hosts, links, the traffic of applications, the comparison and the output.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "Holdover scenario")]
pub(crate) struct ScenarioFile {
    /// One line that names the subject.
    pub(crate) title: Option<String>,
    /// The events of the run, and the results to look for.
    pub(crate) description: Option<String>,
    /// The seed of all random numbers. The default is 1.
    #[schemars(range(max = 9_223_372_036_854_775_807_u64))]
    pub(crate) seed: Option<u64>,
    /// The latest end of a run, in virtual time. The default is 10 min.
    pub(crate) time_limit: Option<Time>,
    /// The TCP of every host without a stack of its own: a profile, or a table of changes to one. The default is
    /// "linux-6-cubic".
    pub(crate) stack: Option<Short<Stack>>,
    /// Hosts, on which applications run.
    #[serde(default, rename = "host", skip_serializing_if = "Vec::is_empty")]
    pub(crate) hosts: Vec<Host>,
    /// Routers, which forward packets.
    #[serde(default, rename = "router", skip_serializing_if = "Vec::is_empty")]
    pub(crate) routers: Vec<Router>,
    /// Whether routers follow the state of links. The default is that they do not, unless one has routes.
    pub(crate) routing: Option<Routing>,
    /// Links between hosts and routers.
    #[serde(default, rename = "link", skip_serializing_if = "Vec::is_empty")]
    pub(crate) links: Vec<Link>,
    /// Radio cells.
    #[serde(default, rename = "cell", skip_serializing_if = "Vec::is_empty")]
    pub(crate) cells: Vec<Cell>,
    /// The hosts that move between cells, and their movements.
    #[serde(default, rename = "mobile", skip_serializing_if = "Vec::is_empty")]
    pub(crate) mobiles: Vec<Mobile>,
    /// The traffic of the applications.
    #[serde(default, rename = "flow", skip_serializing_if = "Vec::is_empty")]
    pub(crate) flows: Vec<Flow>,
    /// The variants that are compared.
    #[serde(default, rename = "variant", skip_serializing_if = "Vec::is_empty")]
    pub(crate) variants: Vec<Variant>,
    /// The variation of a scenario: the axes, the number of runs of each point, and the comparison.
    pub(crate) sweep: Option<Sweep>,
    /// The recorded data and the plots.
    pub(crate) output: Option<Output>,
}

impl ScenarioFile {
    /// The sections that are lists of named elements.
    pub(crate) const LISTS: [&'static str; 7] = ["host", "router", "link", "cell", "mobile", "flow", "variant"];
}
