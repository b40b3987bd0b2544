//! `holdover agent test`: whether the agent works on this machine. Its daemon and its eBPF programs run on a phone in a network
//! namespace whose Ethernet loses carrier for half a second during a download; a second phone without the agent does the same beside
//! it. Nothing of the host's own network is touched.

use std::fmt::Write as _;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::Args;
use holdover_agent::control::{self, ClientError};
use holdover_agent::engine::Engine;
use holdover_agent::link_watch::LinkCondition;
use holdover_agent::outcomes::Outcomes;
use holdover_base::{ByteCount, Duration, Instant};
use holdover_link::{InFlightFate, LinkConfig, Outage, OutagePolicy, Outages, QueueLimit, QueuedFate, Rate};
use holdover_sim::{
    Amount, Bulk, FlowConfig, Layer2, LinkBetween, LinkKind, NoObserver, NodeConfig, NodeId, Opener, OutageKind, Role,
    Traffic, WorldConfig,
};
use holdover_tcp::Profile;
use holdover_testbed::world::{RealError, RealOptions, RealWorld};
use holdover_testbed::{Congestion, Privilege, kernel_release};
use holdover_transfers::daemon::{Agent, DaemonFailed};
use holdover_transfers::{Measured, NetPath, spaced};
use serde::Serialize;

use super::{CANNOT_WORK, SocketArgs};
use crate::command_support::{INTERRUPTED, print, print_error, print_json, stop_on_signals, with_causes};

/// Arguments of `holdover agent test`.
#[derive(Args, Debug)]
pub(super) struct TestArgs {
    /// Print JSON instead of text.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    socket: SocketArgs,
}

/// When the link is cut.
const CUT_AT: Instant = Instant::from_millis(1500);
/// The duration of the cut.
const CUT: Duration = Duration::from_millis(500);
/// The size of the download: 2.4 s at the link's rate.
const AMOUNT: ByteCount = ByteCount(3_000_000);
/// A timer that ends just before the link's return runs twice as long again.
const TIME_LIMIT: Instant = Instant::from_secs(20);
/// On a busy machine a packet may come so late that the connection counts as woken late.
const TRIES: u32 = 3;

/// Hosts of the phone without the agent, and of the one with it: phone, server, router.
const PLAIN: u32 = 0;
const WITH_AGENT: u32 = 3;

/// The results.
#[derive(Debug, Serialize)]
struct Findings {
    /// Whether the agent works.
    works: bool,
    kernel: String,
    /// How long the link was cut, in seconds.
    outage_s: f64,
    /// The number of attempts.
    tries: u32,
    /// Outages that the agent learned of from the kernel.
    outages_seen: u64,
    /// The outcome of the connection: `at_once`, `later`, `never`, `by_itself` or `nothing`.
    outcome: &'static str,
    /// From the link's return to the first new data, in seconds.
    resumed_s: Option<f64>,
    /// The same without the agent.
    resumed_without_s: Option<f64>,
    /// The agent that runs on this host; missing if none does.
    #[serde(skip_serializing_if = "Option::is_none")]
    running: Option<Running>,
    /// Why the agent of this host did not answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    not_asked: Option<String>,
}

/// The agent that runs on this host.
#[derive(Debug, Serialize)]
struct Running {
    version: String,
    dry_run: bool,
    links: Vec<RunningLink>,
}

#[derive(Debug, Serialize)]
struct RunningLink {
    interface: String,
    state: LinkCondition,
    /// Why the agent is not in the path of its packets.
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
}

/// The test could not be made.
#[derive(Debug, thiserror::Error)]
enum TestError {
    #[error(transparent)]
    World(#[from] RealError),
    #[error("the agent")]
    Agent(#[from] DaemonFailed),
    #[error("interrupted")]
    Interrupted,
    #[error("signals of the system")]
    Signals(#[from] std::io::Error),
}

/// The result of one outage.
struct Tried {
    outages_seen: u64,
    outcomes: Outcomes,
    resumed: Option<Duration>,
    resumed_without: Option<Duration>,
}

/// Runs the test. The exit status is 0 if the agent works, 1 if it does not, and 77 if this user or kernel does not allow the test.
pub(super) fn run(args: &TestArgs) -> ExitCode {
    // Before this process may become root of a user namespace, which the agent's socket is not for.
    let asked = control::status(&args.socket.socket);
    // Before the first thread.
    if let Err(error) = Privilege::acquire() {
        print_error(&format_args!("the test needs network namespaces: {error}"));
        return ExitCode::from(CANNOT_WORK);
    }
    if let Err(error) = Engine::probe() {
        let why = with_causes(&error);
        print_error(&format_args!(
            "the agent's programs cannot be loaded: {why}\nrun it as root: sudo holdover agent test; holdover doctor says what is missing"
        ));
        return ExitCode::from(CANNOT_WORK);
    }
    if !args.json {
        let cut = spaced(CUT);
        print(&format!("Two downloads across an outage of {cut}, in network namespaces; some seconds ...\n"));
    }
    match test(asked) {
        Ok(findings) => {
            let printed = if args.json { print_json(&findings) } else { print(&findings.to_text()) };
            if findings.works { printed } else { ExitCode::FAILURE }
        }
        Err(error) => {
            print_error(&with_causes(&error));
            match error {
                TestError::Interrupted => ExitCode::from(INTERRUPTED),
                _ => ExitCode::FAILURE,
            }
        }
    }
}

fn test(asked: Result<holdover_agent::status::Status, ClientError>) -> Result<Findings, TestError> {
    // Before the daemon's directory is made, so that an interruption removes it, too.
    let stop = stop_on_signals()?;
    let mut tries = 0;
    let tried = loop {
        tries += 1;
        let tried = try_once(&stop)?;
        if tried.is_awake() || tries == TRIES {
            break tried;
        }
    };
    let (running, not_asked) = match asked {
        Ok(status) => (Some(Running::of(status)), None),
        Err(error) => (None, Some(with_causes(&error))),
    };
    let is_well = running.as_ref().is_none_or(|agent| agent.links.iter().all(|link| link.problem.is_none()));
    Ok(Findings {
        works: tried.is_awake() && is_well,
        kernel: kernel_release(),
        outage_s: CUT.as_secs_f64(),
        tries,
        outages_seen: tried.outages_seen,
        outcome: tried.outcome(),
        resumed_s: tried.resumed.map(Duration::as_secs_f64),
        resumed_without_s: tried.resumed_without.map(Duration::as_secs_f64),
        running,
        not_asked,
    })
}

/// One outage.
fn try_once(stop: &AtomicBool) -> Result<Tried, TestError> {
    let options = RealOptions { congestion: Some(Congestion::Cubic), ..RealOptions::default() };
    let mut real = RealWorld::new(world(), &options)?;
    let agent = Agent::start(&mut real, NodeId(WITH_AGENT))?;
    real.run(&mut NoObserver, |_| !stop.load(Ordering::Relaxed))?;
    let reports = real.world().report();
    let status = agent.status();
    drop(real);
    agent.finish()?;
    if stop.load(Ordering::Relaxed) {
        return Err(TestError::Interrupted);
    }
    let record = status?.links.into_iter().next().map(|link| link.record).unwrap_or_default();
    let resumed = |index: usize| reports.get(index).and_then(|report| Measured::of(report).resume);
    Ok(Tried {
        outages_seen: record.outages,
        outcomes: record.outcomes,
        resumed: resumed(1),
        resumed_without: resumed(0),
    })
}

/// Two phones, each with a router and a server of its own.
fn world() -> WorldConfig {
    let mut world = WorldConfig { seed: 1, time_limit: TIME_LIMIT, ..WorldConfig::default() };
    let stack = Arc::new(Profile::Linux6Cubic.config());
    let NetPath { rate, delay, queue } = NetPath::DEFAULT;
    for (name, first) in [("plain", PLAIN), ("agent", WITH_AGENT)] {
        let [phone, server, router] = [0, 1, 2].map(|index| NodeId(first + index));
        for (host, role) in [("phone", Role::Host), ("server", Role::Host), ("router", Role::Router)] {
            world.nodes.push(NodeConfig { name: format!("{name}-{host}"), role });
        }
        let access = LinkConfig {
            rate: Rate::Fixed(rate),
            queue_limit: QueueLimit::Packets(queue),
            outages: Outages::List(vec![Outage { down: CUT_AT, up: CUT_AT + CUT }]),
            outage_policy: OutagePolicy { queued: QueuedFate::Dropped, in_flight: InFlightFate::Dropped },
            ..LinkConfig::default()
        };
        let layer2 = Layer2::new(LinkKind::Ethernet, OutageKind::Carrier);
        let rest = LinkConfig { delay, ..LinkConfig::default() };
        world.links.push(LinkBetween { layer2, ..LinkBetween::wire(format!("{name}-access"), phone, router, access) });
        world.links.push(LinkBetween::wire(format!("{name}-rest"), router, server, rest));
        world.flows.push(FlowConfig {
            name: name.to_owned(),
            from: server,
            to: phone,
            start: Instant::ZERO,
            sender: Arc::clone(&stack),
            receiver: Arc::clone(&stack),
            traffic: Traffic::Bulk(Bulk { amount: Amount::Bytes(AMOUNT), opener: Opener::Receiver }),
            ipv6: false,
        });
    }
    world
}

impl Tried {
    /// Whether the agent saw the outage and the connection resumed within two round trips.
    fn is_awake(&self) -> bool {
        self.outages_seen > 0 && self.resumed.is_some() && matches!(self.outcome(), "at_once" | "by_itself")
    }

    fn outcome(&self) -> &'static str {
        let Outcomes { at_once, later, never, by_itself, .. } = &self.outcomes;
        let counts =
            [("never", *never), ("later", later.count), ("at_once", at_once.count), ("by_itself", by_itself.count)];
        counts.into_iter().find(|(_, count)| *count > 0).map_or("nothing", |(name, _)| name)
    }
}

impl Running {
    fn of(status: holdover_agent::status::Status) -> Self {
        let links = status.links.into_iter().map(|link| RunningLink {
            interface: link.interface,
            state: link.state,
            problem: link.problem,
        });
        Self { version: status.version, dry_run: status.dry_run, links: links.collect() }
    }
}

impl Findings {
    fn to_text(&self) -> String {
        let mark = |is_fine| if is_fine { "ok" } else { "--" };
        let after = |time: Option<f64>| time.map_or("never".to_owned(), |time| format!("after {:.0} ms", time * 1e3));
        let mut text = format!("ok  programs   loaded and attached on Linux {}\n", self.kernel);
        let seen = self.outages_seen > 0;
        let learned = if seen { "the agent learned of it from the kernel" } else { "the agent did not learn of it" };
        let _ = writeln!(text, "{}  outage     {learned}", mark(seen));
        let woke = matches!(self.outcome, "at_once" | "by_itself");
        let _ = writeln!(
            text,
            "{}  wake       new data came {} from the link's return, without the agent {} (outcome: {})",
            mark(woke),
            after(self.resumed_s),
            after(self.resumed_without_s),
            self.outcome
        );
        if let Some(agent) = &self.running {
            let well = agent.links.iter().all(|link| link.problem.is_none());
            let links: Vec<String> = agent.links.iter().map(RunningLink::in_words).collect();
            let links = if links.is_empty() { "no links yet".to_owned() } else { links.join(", ") };
            let dry = if agent.dry_run { " in a dry run" } else { "" };
            let _ = writeln!(text, "{}  this host  agent {} runs{dry} and manages {links}", mark(well), agent.version);
        } else if let Some(why) = &self.not_asked {
            let _ = writeln!(text, "    this host  {}", why.replace('\n', "; "));
        }
        let verdict =
            if self.works { "The agent works on this machine." } else { "The agent does not work as it should." };
        let _ = writeln!(text, "{verdict}");
        text
    }
}

impl RunningLink {
    fn in_words(&self) -> String {
        let state = match self.state {
            LinkCondition::Up => "up",
            LinkCondition::Fading => "fading",
            LinkCondition::Down => "down",
        };
        match &self.problem {
            Some(problem) => format!("{} ({state}; not attached: {problem})", self.interface),
            None => format!("{} ({state})", self.interface),
        }
    }
}

#[cfg(test)]
mod tests {
    use holdover_agent::outcomes::Resumes;

    use super::*;

    #[test]
    fn a_wake_counts_only_if_the_outage_was_seen_and_data_came() {
        let one = || Resumes { count: 1, ..Resumes::default() };
        let tried = |outages_seen, outcomes| Tried {
            outages_seen,
            outcomes,
            resumed: Some(Duration::from_millis(20)),
            resumed_without: None,
        };
        assert!(tried(1, Outcomes { at_once: one(), ..Outcomes::default() }).is_awake());
        assert!(!tried(0, Outcomes { at_once: one(), ..Outcomes::default() }).is_awake());
        assert!(!tried(1, Outcomes { later: one(), ..Outcomes::default() }).is_awake());
        assert!(!tried(1, Outcomes { at_once: one(), never: 1, ..Outcomes::default() }).is_awake());
        assert!(!tried(1, Outcomes::default()).is_awake());
    }
}
