//! One run: a phone, its router and a server behind it.

use std::sync::Arc;

use holdover_base::{ByteCount, Duration, Instant};
use holdover_link::{LinkConfig, Outage, Outages, QueueLimit, Rate};
use holdover_sim::{
    Amount, Bulk, FlowConfig, FlowReport, HostMechanisms, LinkBetween, NodeConfig, NodeId, Opener, RequestResponse,
    Role, Traffic, WorldConfig,
};
use holdover_tcp::Profile;
use holdover_testbed::world::{RealError, RealOptions, RealWorld};

use super::cells::{Place, Use};
use super::daemon::{Agent, DaemonFailed};
use crate::transfers::{CUT_AT, DELAY, Help, LEAD, QUEUE, RATE, Watcher};

/// What a transfer moves.
pub(super) const AMOUNT: ByteCount = ByteCount(10_000_000);
/// From the phone to its router.
pub(super) const NEAR_DELAY: Duration = Duration::from_millis(5);
/// A key and its echo, as ssh sends them.
const KEY: ByteCount = ByteCount(36);
/// The key that matters is struck so long after the echo of the first one, which is a little after the cut.
const THINK: Duration = CUT_AT.saturating_since(Instant::ZERO);

const PHONE: NodeId = NodeId(0);
const SERVER: NodeId = NodeId(1);
const ROUTER: NodeId = NodeId(2);

/// What a run came to.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Run {
    /// From when the path carries packets again to the first data at the receiver's interface that it did not have.
    pub(super) first_data: Option<Duration>,
    /// From the beginning to the last byte, or from the key to its echo.
    pub(super) total: Option<Duration>,
    pub(super) sent_again: u64,
    pub(super) timeouts: u32,
    /// 99 of 100 packets were not later than this.
    pub(super) lateness: Duration,
    /// See [`Watcher::trace`].
    pub(super) trace: Vec<String>,
}

/// A run could not be made.
#[derive(Debug, thiserror::Error)]
pub(super) enum LinksError {
    #[error(transparent)]
    Real(#[from] RealError),
    #[error("the agent")]
    Agent(#[from] DaemonFailed),
    #[error("the machine is too busy: the key was not struck during the outage in any of {} runs", TRIES)]
    TooBusy,
}

/// A key that is struck after the outage, because the machine is busy, is struck again so often.
const TRIES: u32 = 3;

/// Makes the world of `place` real, with the daemon on its phone if it is to be there, and runs it.
pub(super) fn run(place: Place) -> Result<Run, LinksError> {
    for _ in 0..TRIES {
        if let Some(run) = run_once(place)? {
            return Ok(run);
        }
    }
    Err(LinksError::TooBusy)
}

/// `None` if the key was not struck during the outage.
fn run_once(place: Place) -> Result<Option<Run>, LinksError> {
    let config = config(place);
    let mut watcher = Watcher::new(&config.flows[0], config.links[0].carries_at(CUT_AT + place.cut));
    let options = RealOptions { congestion: Some(place.sender.congestion()), ..RealOptions::default() };
    let mut real = RealWorld::new(config, &options)?;
    let agent = if place.help == Help::Plain { None } else { Some(Agent::start(&mut real, PHONE)?) };
    let outcome = real.run(&mut watcher, |_| true)?;
    let report = real.world().report().remove(0);
    drop(real);
    agent.map_or(Ok(()), Agent::finish)?;
    if !is_as_meant(place, &report) {
        return Ok(None);
    }
    let total = match place.usage {
        Use::Keys => report.exchanges.get(1).copied(),
        Use::Download | Use::Upload => report.completed_at.map(|at| at.saturating_since(report.started_at)),
    };
    let sender = report.sender.as_ref();
    Ok(Some(Run {
        first_data: watcher.new_data(),
        total,
        sent_again: sender.map_or(0, |sender| sender.bytes_retransmitted.0),
        timeouts: sender.map_or(0, |sender| sender.timeouts),
        lateness: outcome.lateness.quantile(0.99),
        trace: watcher.trace().to_vec(),
    }))
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
    let node = |name: &str, role| NodeConfig { name: name.into(), role };
    let kind = place.kind();
    let access = LinkConfig {
        rate: Rate::Fixed(RATE),
        delay: NEAR_DELAY,
        queue_limit: QueueLimit::Packets(QUEUE),
        outages: Outages::List(vec![Outage { down: CUT_AT, up: CUT_AT + place.cut }]),
        outage_policy: kind.policy,
        forwards_after: kind.forwards_after,
        ..LinkConfig::default()
    };
    let rest = LinkConfig { delay: DELAY.saturating_sub(NEAR_DELAY), ..LinkConfig::default() };
    let mut world = WorldConfig {
        seed: 1,
        nodes: vec![node("phone", Role::Host), node("server", Role::Host), node("router", Role::Router)],
        links: vec![
            LinkBetween { layer2: kind.layer2, ..LinkBetween::wire("access", PHONE, ROUTER, access) },
            LinkBetween::wire("rest", ROUTER, SERVER, rest),
        ],
        flows: vec![flow(place)],
        // A timer that ends just before the link's return runs twice as long again.
        time_limit: Instant::from_secs(60) + place.cut * 4,
        ..WorldConfig::default()
    };
    if place.help == Help::Warned {
        world.mechanisms.push(HostMechanisms { node: PHONE, mechanisms: Default::default(), foresight: Some(LEAD) });
    }
    world
}

fn flow(place: Place) -> FlowConfig {
    let bulk = |opener| Traffic::Bulk(Bulk { amount: Amount::Bytes(AMOUNT), opener });
    let (from, to, traffic) = match place.usage {
        Use::Download => (SERVER, PHONE, bulk(Opener::Receiver)),
        Use::Upload => (PHONE, SERVER, bulk(Opener::Sender)),
        Use::Keys => {
            let keys = RequestResponse { request: KEY, response: KEY, think: THINK, count: Some(2) };
            (PHONE, SERVER, Traffic::RequestResponse(keys))
        }
    };
    let stack = Arc::new(Profile::Linux6Cubic.config());
    FlowConfig {
        name: place.usage.name().to_owned(),
        from,
        to,
        start: Instant::ZERO,
        sender: Arc::clone(&stack),
        receiver: stack,
        traffic,
        ipv6: place.ipv6,
    }
}
