//! What the agent says of itself: links, connections, and what was done for them. This is what `holdover agent status --json` prints.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use crate::link_watch::{Family, LinkState, Source};
use crate::outcomes::{OutcomeLine, Outcomes};
use crate::path_engine::Counters;

/// The agent, at a moment.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Status {
    /// The program's version.
    pub version: String,
    /// For how long it has run, in seconds.
    pub running_s: f64,
    /// Whether it only says what it would do.
    pub dry_run: bool,
    /// The links that it looks after, by name.
    pub links: Vec<LinkStatus>,
    /// The connections that cross them; the busiest, if there are too many.
    pub connections: Vec<ConnectionStatus>,
    /// How many connections there are, these included.
    pub connections_in_all: u64,
    /// What has become of packets, on all links.
    pub counters: Counters,
    /// What the rules of `[[flow]]` have done.
    #[serde(default)]
    pub user_timeouts: UserTimeoutStatus,
}

/// What the rules of `[[flow]]` have done.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct UserTimeoutStatus {
    /// Whether they are in force.
    pub in_force: bool,
    /// Why they are not, or not wholly.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// Timeouts set on new connections.
    pub set: u64,
    /// Timeouts set on connections that were open already.
    pub set_open: u64,
    /// Connections left as they are because their application has set a timeout.
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
    /// How it is.
    pub state: LinkState,
    /// For how long, in seconds.
    pub state_s: f64,
    /// The IP versions that are cut off while the link is not, if the two have failed apart.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub families_down: Vec<Family>,
    /// Who says that it is down.
    pub objections: Vec<Source>,
    /// Why the agent is not in the path of its packets; missing if it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// What the kernel has refused to the agent last, while it was in the path; missing if it never did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trouble: Option<String>,
    /// When the timetable's next cut is, in seconds from now; missing without a timetable.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_cut_s: Option<f64>,
    /// What has happened to it since the agent looks after it.
    pub record: LinkRecord,
    /// What has become of its packets.
    pub counters: Counters,
}

/// What has happened to a link.
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize)]
pub struct LinkRecord {
    /// How often it was down.
    pub outages: u64,
    /// How often one IP version was cut off while the other was not.
    #[serde(default)]
    pub family_outages: u64,
    /// For how long it was down in all, in seconds.
    pub down_s: f64,
    /// How long the last outage was, in seconds.
    pub last_outage_s: f64,
    /// How often a cut was foretold.
    pub warnings: u64,
    /// Of these, how often it did not come.
    pub false_warnings: u64,
    /// How often the address changed.
    pub moves: u64,
    /// What became of the connections that its outages had interrupted.
    #[serde(default)]
    pub outcomes: Outcomes,
}

/// A connection.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct ConnectionStatus {
    /// The interface that it crosses.
    pub interface: String,
    /// This host's end.
    pub local: SocketAddr,
    /// The peer's end.
    pub remote: SocketAddr,
    /// The program whose it is, where that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub process: Option<String>,
    /// Bytes of data that went out.
    pub bytes_sent: u64,
    /// Bytes of data that came in.
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
    /// How often the kernel has doubled it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backoff: Option<u32>,
    /// The user timeout that it was given, and by which rule.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_timeout: Option<GivenUserTimeout>,
    /// Whether it is let alone.
    pub left_alone: bool,
    /// How many things were done for it.
    pub actions: u64,
    /// The last of them, or what came of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_action: Option<String>,
    /// How much sooner it went on after outages than by this host's own timer, in seconds; missing where that is not known. See
    /// [`crate::outcomes`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub saved_s: Option<f64>,
}

/// The user timeout of a connection.
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct GivenUserTimeout {
    /// How long it is, in seconds; missing where the kernel's own patience holds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_s: Option<f64>,
    /// The rule that has decided, as its user calls it; missing where none did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// Whether the application has set one itself, which was left as it is.
    pub is_applications: bool,
}

/// Something that was done, or would have been; or what became of a connection.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct ActionLine {
    /// When, by the calendar: seconds since 1970.
    pub time: f64,
    /// The interface.
    pub interface: String,
    /// This host's end of the connection.
    pub local: SocketAddr,
    /// The peer's end.
    pub remote: SocketAddr,
    /// Which mechanism.
    pub mechanism: String,
    /// What it did.
    pub what: String,
    /// What became of the connection; missing where something was done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<OutcomeLine>,
    /// How much sooner the connection went on than by this host's own timer, in seconds; missing where that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub saved_s: Option<f64>,
}
