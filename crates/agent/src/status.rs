//! The status of the agent: links, connections, and actions. `holdover agent status --json` prints it.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use crate::link_watch::{Family, LinkCondition, Source};
use crate::outcomes::{OutcomeLine, Outcomes};
use crate::path_engine::Counters;

/// The status of the agent.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Status {
    /// The program's version.
    pub version: String,
    /// Its uptime, in seconds.
    pub running_s: f64,
    /// Whether this is a dry run.
    pub dry_run: bool,
    /// The managed links, by name.
    pub links: Vec<LinkStatus>,
    /// The connections over them; only the busiest if there are too many.
    pub connections: Vec<ConnectionStatus>,
    /// The number of connections, these included.
    pub connections_in_all: u64,
    /// Packet counters of all links.
    pub counters: Counters,
    /// The effects of the rules of `[[flow]]`.
    #[serde(default)]
    pub user_timeouts: UserTimeoutStatus,
    /// The network namespaces of containers; missing if they are not served.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub containers: Option<ContainersStatus>,
}

/// The network namespaces of containers.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct ContainersStatus {
    /// How many there are.
    pub namespaces: u64,
    /// Why some of them were not reached.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// The effects of the rules of `[[flow]]`.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct UserTimeoutStatus {
    /// Whether they are in force.
    pub in_force: bool,
    /// Why they are not, or not completely.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// Timeouts set on new connections.
    pub set: u64,
    /// Timeouts set on connections that already existed.
    pub set_open: u64,
    /// Connections whose application has set a timeout, which was kept.
    pub applications_own: u64,
    /// Segments with the option of RFC 5482 sent.
    pub options_sent: u64,
    /// Segments with the option of RFC 5482 received.
    pub options_received: u64,
}

/// A link.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct LinkStatus {
    /// The interface.
    pub interface: String,
    /// Its state.
    pub state: LinkCondition,
    /// The duration of that state, in seconds.
    pub state_s: f64,
    /// The IP versions that are down while the link is not, if the two have failed independently.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub families_down: Vec<Family>,
    /// The sources that report it down.
    pub objections: Vec<Source>,
    /// Why the agent is not attached; missing if it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// The kernel's last refusal while attached; missing if there was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trouble: Option<String>,
    /// When the timetable's next cut is, in seconds from now; missing without a timetable.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_cut_s: Option<f64>,
    /// Its history since the agent manages it.
    pub record: LinkRecord,
    /// Its packet counters.
    pub counters: Counters,
}

/// The history of a link.
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize)]
pub struct LinkRecord {
    /// The number of outages.
    pub outages: u64,
    /// The number of outages of one IP version while the other was up.
    #[serde(default)]
    pub family_outages: u64,
    /// The total time down, in seconds.
    pub down_s: f64,
    /// The length of the last outage, in seconds.
    pub last_outage_s: f64,
    /// The number of predicted cuts.
    pub warnings: u64,
    /// Of these, those without a cut.
    pub false_warnings: u64,
    /// The number of address changes.
    pub moves: u64,
    /// The outcomes of connections that its outages had interrupted.
    #[serde(default)]
    pub outcomes: Outcomes,
}

/// A connection.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct ConnectionStatus {
    /// The interface.
    pub interface: String,
    /// This host's end.
    pub local: SocketAddr,
    /// The peer's end.
    pub remote: SocketAddr,
    /// The program, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub process: Option<String>,
    /// The cgroup of the container whose connection it is, or its network namespace if it has no cgroup of its own;
    /// missing for connections of this host itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container: Option<String>,
    /// Bytes of data sent.
    pub bytes_sent: u64,
    /// Bytes of data received.
    pub bytes_received: u64,
    /// For how long no packet has passed, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle_s: Option<f64>,
    /// The round trip, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub round_trip_ms: Option<f64>,
    /// Bytes whose ACK is held now.
    pub held_bytes: u64,
    /// The kernel's retransmission timeout, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rto_ms: Option<f64>,
    /// The number of times that the kernel has doubled it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backoff: Option<u32>,
    /// Its user timeout, and the rule for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_timeout: Option<GivenUserTimeout>,
    /// Whether it is exempt.
    pub left_alone: bool,
    /// The number of actions on it.
    pub actions: u64,
    /// The last action, or its outcome.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_action: Option<String>,
    /// How much sooner it resumed after outages than by this host's own timer, in seconds; missing if unknown. See
    /// [`crate::outcomes`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub saved_s: Option<f64>,
}

/// The user timeout of a connection.
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct GivenUserTimeout {
    /// Its length, in seconds; missing if the kernel's own limits apply.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_s: Option<f64>,
    /// The rule's name for the user; missing if none matched.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// Whether the application has set one itself, which was kept.
    pub is_applications: bool,
}

/// An action, real or of a dry run; or an outcome.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct ActionLine {
    /// Calendar time: seconds since 1970.
    pub time: f64,
    /// The interface.
    pub interface: String,
    /// This host's end of the connection.
    pub local: SocketAddr,
    /// The peer's end.
    pub remote: SocketAddr,
    /// The mechanism.
    pub mechanism: String,
    /// The action.
    pub what: String,
    /// The outcome; missing for an action.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<OutcomeLine>,
    /// How much sooner the connection resumed than by this host's own timer, in seconds; missing if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub saved_s: Option<f64>,
}
