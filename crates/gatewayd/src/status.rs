//! The status of the gateway and its mobile hosts.

use std::collections::BTreeMap;
use std::net::IpAddr;

use holdover_base::Instant;
pub use holdover_gateway::divert::Tally;
use holdover_gateway::divert::{Course, MobileStatus, Source, Standing};
use serde::{Deserialize, Serialize};

use crate::cluster::ClusterStatus;
use crate::config::Mode;
use crate::engine::{Engine, Unsendable};
use crate::handoff::HandoffCounters;
use crate::path::{AttachedBy, PathCounters, Seen};
use crate::presence::ReportCounters;
use crate::split::SplitStatus;
use crate::waker::Woken;

/// The status of the gateway.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Status {
    /// The version of the gateway.
    pub version: String,
    /// The mobile-facing interface.
    pub interface: String,
    /// Whether that was removed, and is waited for.
    #[serde(default)]
    pub interface_gone: bool,
    /// Its mode.
    pub mode: Mode,
    /// How its programs are attached.
    pub attached_by: AttachedBy,
    /// Whether its programs and maps outlive a `kill -9`.
    pub pinned: bool,
    /// Whether it has taken over those of an earlier process.
    pub taken_over: bool,
    /// Its uptime.
    pub running_s: f64,
    /// Whether it is draining.
    pub draining: bool,
    /// Mobile hosts that are known.
    pub mobiles: u64,
    /// Those of them that are away.
    pub away: u64,
    /// The number of mobile hosts that each source reports away; sources that report none are left out.
    #[serde(default)]
    pub away_by: BTreeMap<String, u64>,
    /// Buffered packets.
    pub waiting: u64,
    /// Bytes of these.
    pub waiting_bytes: u64,
    /// The programs' counters.
    pub path: PathCounters,
    /// Counters of diverted packets and absences.
    pub buffer: Tally,
    /// Counters of reports from outside.
    pub reports: ReportCounters,
    /// Split connections; `None` if there are none by the configuration.
    pub split: Option<SplitStatus>,
    /// Handoff counters; `None` without other gateways.
    pub handoff: Option<HandoffCounters>,
    /// The cluster; `None` without one.
    pub cluster: Option<ClusterStatus>,
    /// Packets that could not be sent.
    pub unsendable: Unsendable,
    /// Actions on TCP connections of mobile hosts that returned.
    pub woken: Woken,
}

/// A mobile host.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct MobileLine {
    /// Its address, or the first one of its prefix.
    pub address: IpAddr,
    /// The length of its prefix, if it has one.
    #[serde(default)]
    pub prefix: Option<u8>,
    /// `present`, `fading`, `away` or `moved`.
    pub standing: String,
    /// The sources that report it absent.
    pub away_by: Vec<String>,
    /// The last report of each source.
    #[serde(default)]
    pub reports: Vec<ReportLine>,
    /// For how long it has been absent.
    pub away_s: Option<f64>,
    /// Whether packets for it are diverted.
    pub diverts: bool,
    /// For how long nothing has arrived from it.
    pub silent_s: Option<f64>,
    /// The time in which it answers echo requests, by its last answers. Only without Ethernet; `None` if it has answered none.
    #[serde(default)]
    pub answers_within_s: Option<f64>,
    /// Its Ethernet address.
    pub mac: Option<String>,
    /// Buffered packets.
    pub waiting: u64,
    /// Bytes of these.
    pub waiting_bytes: u64,
    /// Counters of its packets.
    pub buffer: Tally,
    /// The gateway that owns it, in a cluster.
    pub owner: Option<String>,
    /// The revision of the store in which it came to own it.
    pub epoch: Option<u64>,
}

/// The last report of a source about a mobile host.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct ReportLine {
    /// The source.
    pub source: String,
    /// `present`, `rebound`, `fading`, `away` or `moved`.
    pub presence: String,
    /// How long ago the source first reported so.
    pub ago_s: f64,
}

impl Status {
    pub(crate) fn of(
        now: Instant,
        engine: &Engine,
        reports: ReportCounters,
        mode: Mode,
        running_s: f64,
        draining: bool,
    ) -> Self {
        let diverter = engine.diverter();
        Self {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            interface: engine.interface().to_owned(),
            interface_gone: engine.is_gone(),
            mode,
            attached_by: engine.attached_by(),
            pinned: engine.pinning().1,
            taken_over: engine.pinning().0,
            running_s,
            draining,
            mobiles: engine.mobiles().len() as u64,
            away: diverter.away().count() as u64,
            away_by: away_by(diverter.statuses().flat_map(|(_, status)| status.objections)),
            waiting: diverter.statuses().map(|(_, status)| status.waiting as u64).sum(),
            waiting_bytes: diverter.waiting_bytes(),
            path: engine.counters(),
            buffer: diverter.tally(),
            reports,
            split: engine.split_status(now),
            handoff: engine.handoffs(),
            cluster: engine.cluster_status(now),
            unsendable: engine.unsendable(),
            woken: engine.woken(),
        }
    }
}

impl MobileLine {
    /// Its address, or its prefix.
    pub fn name(&self) -> String {
        self.prefix.map_or_else(|| self.address.to_string(), |bits| format!("{}/{bits}", self.address))
    }

    pub(crate) fn of(
        now: Instant,
        engine: &Engine,
        address: IpAddr,
        seen: Option<Seen>,
        status: Option<&MobileStatus>,
    ) -> Self {
        let (owner, epoch) = engine.owner(address).unzip();
        let since = |at: Instant| now.saturating_since(at).as_secs_f64();
        Self {
            address,
            prefix: engine.prefix_of(address),
            standing: status.map_or(Standing::Present, |status| status.standing).to_string(),
            away_by: status.iter().flat_map(|status| &status.objections).map(ToString::to_string).collect(),
            reports: engine
                .diverter()
                .reports(address)
                .map(|(source, presence, at)| ReportLine {
                    source: source.to_string(),
                    presence: presence.to_string(),
                    ago_s: since(at),
                })
                .collect(),
            away_s: status.and_then(|status| status.away_since).map(since),
            diverts: seen.is_some_and(|seen| seen.course != Course::Pass),
            silent_s: seen.and_then(|seen| seen.heard_at).map(since),
            answers_within_s: engine.answers_within(address).map(holdover_base::Duration::as_secs_f64),
            mac: seen.and_then(|seen| seen.mac).map(|mac| holdover_wire::MacAddress(mac).to_string()),
            waiting: status.map_or(0, |status| status.waiting as u64),
            waiting_bytes: status.map_or(0, |status| status.waiting_bytes),
            buffer: status.map(|status| status.tally).unwrap_or_default(),
            owner,
            epoch,
        }
    }
}

/// How many objections each source has.
fn away_by(objections: impl Iterator<Item = Source>) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    objections.for_each(|source| *counts.entry(source.to_string()).or_default() += 1);
    counts
}
