//! One run: a phone, its router and a server behind it.

use holdover_base::{ByteCount, Duration, Instant};
use holdover_link::{LinkConfig, Outages};
use holdover_sim::{
    Amount, Bulk, FlowConfig, FlowReport, HostMechanisms, Opener, RequestResponse, Traffic, WorldConfig,
};
use holdover_testbed::Lateness;
use holdover_testbed::world::{RealError, RealOptions, RealWorld};
use holdover_transfers::{CUT_AT, Help, LEAD, Watcher};
use serde::{Deserialize, Serialize};

use super::kinds::Use;
use super::place::{MESSAGE, Place};
use crate::grid;
use crate::routed::{self, PHONE, SERVER};
use holdover_transfers::daemon::{Agent, DaemonFailed};

/// The time that the link takes for a transfer's data, without headers and losses.
pub(super) const TRANSFER_TIME: Duration = Duration::from_secs(8);
/// A key and its echo, as ssh sends them.
const KEY: ByteCount = ByteCount(36);
/// Between two messages of a connection: a thousand connections take three tenths of the link.
const BETWEEN: Duration = Duration::from_secs(3);
/// Messages of a connection: they take longer than any outage.
const MESSAGES: u64 = 6;
/// Many connections are opened within this time, so that there are messages at all times: an idle link is not probed.
const OPENING: Duration = BETWEEN;
/// From the first key's echo to the second key, which is the measured one: it is struck a little after the cut.
const THINK: Duration = CUT_AT.saturating_since(Instant::ZERO);

/// The result of a run.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Run {
    /// From when the path carries packets again to the first data at the receiver's interface that it did not have; of many
    /// connections, of the last, and answers count as well.
    #[serde(with = "holdover_transfers::nanos::optional")]
    pub(super) first_data: Option<Duration>,
    /// The same, of the connection in the middle.
    #[serde(with = "holdover_transfers::nanos::optional")]
    pub(super) median_first_data: Option<Duration>,
    /// From the beginning to the last byte, or from the cut to the key's echo.
    #[serde(with = "holdover_transfers::nanos::optional")]
    pub(super) total: Option<Duration>,
    pub(super) sent_again: u64,
    pub(super) timeouts: u32,
    /// The longest that a thread waited for a processor, or for the kernel's lock on links, between the path's return and the first new data;
    /// see [`Lateness`].
    #[serde(with = "holdover_transfers::nanos")]
    pub(super) lateness: Duration,
    /// How often the run was made until it counted.
    pub(super) tries: u32,
    /// See [`Watcher::trace`].
    pub(super) trace: Vec<String>,
}

/// A run could not be made.
#[derive(Debug, thiserror::Error)]
pub enum LinksError {
    #[error(transparent)]
    Real(#[from] RealError),
    #[error("the agent")]
    Agent(#[from] DaemonFailed),
    #[error(
        "the machine is too busy: in none of {} runs was the key struck during the outage, or were all connections open before it",
        grid::TRIES
    )]
    TooBusy,
}

/// Runs the world of `place` on kernels, with the daemon on the phone except for [`Help::Plain`].
///
/// The run is made again if the key was struck after the outage, if one of many connections was not open before it, or if new data
/// came too late and the machine was late meanwhile by [`Lateness::EXCUSE`] or more. The last try counts in any case.
pub(super) fn run(place: Place, machine: &Lateness) -> Result<Run, LinksError> {
    let is_spoiled = |run: &Run| {
        let is_late = run.first_data.is_none_or(|first| first > place.bound());
        place.help != Help::Plain && is_late && run.lateness >= Lateness::EXCUSE
    };
    grid::counted(|tries| run_once(place, machine, tries), is_spoiled)?.ok_or(LinksError::TooBusy)
}

/// `None` if the key was not struck during the outage, or if one of many connections was not open by then.
fn run_once(place: Place, machine: &Lateness, tries: u32) -> Result<Option<Run>, LinksError> {
    let config = config(place);
    let back_at = config.links[0].carries_at(CUT_AT + place.cut);
    let watcher = Watcher::new(&config.flows, back_at);
    let mut watcher = if config.flows.len() > 1 { watcher.with_answers() } else { watcher };
    let options = RealOptions { congestion: Some(place.sender.congestion()), ..RealOptions::default() };
    let mut real = RealWorld::new(config, &options)?;
    let agent = if place.help == Help::Plain { None } else { Some(Agent::start(&mut real, PHONE)?) };
    real.run(&mut watcher, |_| true)?;
    let reports = real.world().report();
    let lateness = routed::lateness(machine, &real, back_at, watcher.new_data());
    drop(real);
    agent.map_or(Ok(()), Agent::finish)?;
    let is_crowd_open = reports.len() == 1 || watcher.were_open(CUT_AT);
    if !is_crowd_open || !is_as_meant(place, &reports[0]) {
        return Ok(None);
    }
    let senders = || reports.iter().filter_map(|report| report.sender.as_ref());
    Ok(Some(Run {
        first_data: watcher.new_data(),
        median_first_data: watcher.median_new_data(),
        total: total(place, &reports),
        sent_again: senders().map(|sender| sender.bytes_retransmitted.0).sum(),
        timeouts: senders().map(|sender| sender.timeouts).sum(),
        lateness,
        tries,
        trace: watcher.trace().to_vec(),
    }))
}

/// From the beginning to the last byte of all, or from the cut to the key's echo; `None` if there was none. The key is struck a while after the
/// cut, which differs between runs.
fn total(place: Place, reports: &[FlowReport]) -> Option<Duration> {
    if place.usage == Use::Keys {
        return reports[0].completed_at.map(|echoed_at| echoed_at.saturating_since(CUT_AT));
    }
    let times = reports.iter().map(|report| Some(report.completed_at?.saturating_since(report.started_at)));
    times.collect::<Option<Vec<_>>>()?.into_iter().max()
}

/// Whether the key, if there is one and it was echoed, was struck during the outage.
fn is_as_meant(place: Place, report: &FlowReport) -> bool {
    let (Use::Keys, Some(at), Some(&echo)) = (place.usage, report.completed_at, report.exchanges.get(1)) else {
        return true;
    };
    let echoed_after = at.saturating_since(Instant::ZERO);
    let struck_after = echoed_after.saturating_sub(echo);
    let cut_at = CUT_AT.saturating_since(Instant::ZERO);
    (cut_at..cut_at + place.cut).contains(&struck_after)
}

fn config(place: Place) -> WorldConfig {
    let kind = place.kind();
    let access = LinkConfig {
        outages: Outages::List(kind.outages(place.cut)),
        outage_policy: kind.policy,
        forwards_after: kind.forwards_after,
        conditions: kind.conditions(place.path.rate, CUT_AT + place.cut),
        ..routed::access(place.path)
    };
    let time_limit = Instant::ZERO + grid::time_limit(place.lasts());
    let mut world = routed::world(place.path, access, kind.layer2, flows(place), time_limit);
    if place.help == Help::Warned {
        world.mechanisms.push(HostMechanisms { node: PHONE, mechanisms: Default::default(), foresight: Some(LEAD) });
    }
    world
}

/// One connection, or many that are opened one after the other.
fn flows(place: Place) -> Vec<FlowConfig> {
    let connections = place.kind().connections;
    let start = |index| Instant::ZERO + OPENING * u64::from(index) / u64::from(connections);
    let name = |index: u32| format!("{}-{index}", place.usage.name());
    (0..connections).map(|index| FlowConfig { name: name(index), start: start(index), ..flow(place) }).collect()
}

fn flow(place: Place) -> FlowConfig {
    let bulk = |opener| Traffic::Bulk(Bulk { amount: Amount::Bytes(place.path.amount(TRANSFER_TIME)), opener });
    let messages = Traffic::RequestResponse(RequestResponse {
        request: MESSAGE,
        response: KEY,
        think: BETWEEN,
        count: Some(MESSAGES),
    });
    let (from, to, traffic) = match place.usage {
        Use::Download if place.kind().connections > 1 => (SERVER, PHONE, messages),
        Use::Upload if place.kind().connections > 1 => (PHONE, SERVER, messages),
        Use::Download => (SERVER, PHONE, bulk(Opener::Receiver)),
        Use::Upload => (PHONE, SERVER, bulk(Opener::Sender)),
        Use::Keys => {
            let keys = RequestResponse { request: KEY, response: KEY, think: THINK, count: Some(2) };
            (PHONE, SERVER, Traffic::RequestResponse(keys))
        }
    };
    routed::flow(place.usage.name(), [from, to], traffic, place.ipv6)
}
