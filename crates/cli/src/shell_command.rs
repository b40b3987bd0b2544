//! `holdover shell`: a user's program on a host of a scenario, over this machine's kernel.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use clap::Args;
use holdover_base::Instant;
use holdover_host::Process;
use holdover_link::Outages;
use holdover_report::{CaptureOptions, RecordError, Recorder, RecorderOptions, ResultsDir, ResultsError};
use holdover_scenario::ScenarioError;
use holdover_sim::{
    Dropped, Ending, FlowId, Frame, HostMechanisms, NodeId, Observer, Place, Role, Sample, WorldConfig, WorldEvent,
};
use holdover_testbed::world::{RealError, RealOptions, RealOutcome, RealWorld};
use holdover_testbed::{Namespace, Privilege, PrivilegeError};
use holdover_transfers::{AgentPath, Agents, KernelError};

use crate::command_support::{
    INTERRUPTED, open_scenario, print_error, print_note, print_scenario_error, with_causes, within,
};

/// Arguments of `holdover shell`.
#[derive(Args, Debug)]
pub(crate) struct ShellArgs {
    /// A scenario file, or the name of a built-in scenario.
    scenario: String,
    /// The host on which the command runs. Without it: the first one that moves between cells, or whose link has outages.
    #[arg(long, value_name = "NAME")]
    host: Option<String>,
    /// Run a server on another host for as long as the command runs, by sh -c (repeatable).
    #[arg(long, value_name = "HOST=COMMAND", value_parser = parse_server)]
    serve: Vec<Server>,
    /// The variant with the links and mechanisms to use; default: the first one.
    #[arg(long, value_name = "NAME")]
    variant: Option<String>,
    /// Change a field, as link.radio.delay="50 ms" (repeatable).
    #[arg(long, value_name = "PATH=VALUE")]
    set: Vec<String>,
    /// The seed of all random draws, in place of the scenario's.
    #[arg(long, value_name = "N", value_parser = within(0_u64..=i64::MAX.cast_unsigned()))]
    seed: Option<u64>,
    /// Run the agent on the command's host; the scenario reports link changes to it.
    #[arg(long)]
    agent: bool,
    /// Also run the scenario's own flows.
    #[arg(long)]
    flows: bool,
    /// Print on standard error when links go down and come back.
    #[arg(long)]
    events: bool,
    /// Write captures and events to this directory.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// The command and its arguments; default: $SHELL.
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// A command on another host.
#[derive(Clone, Debug)]
struct Server {
    host: String,
    command: String,
}

fn parse_server(text: &str) -> Result<Server, String> {
    match text.split_once('=') {
        Some((host, command)) if !host.is_empty() && !command.trim().is_empty() => {
            Ok(Server { host: host.to_owned(), command: command.to_owned() })
        }
        _ => Err("a server is written as HOST=COMMAND".to_owned()),
    }
}

/// Why there is no shell.
#[derive(Debug, thiserror::Error)]
enum ShellError {
    #[error("{0}")]
    Scenario(#[from] ScenarioError),
    #[error("no {what} {name}; there are {there_are}")]
    Unknown { what: &'static str, name: String, there_are: String },
    #[error("kernels cannot be used: {0}")]
    Privilege(#[from] PrivilegeError),
    #[error("{}", with_causes(.0.as_ref()))]
    World(Box<RealError>),
    #[error("{}", with_causes(.0.as_ref()))]
    Agent(Box<KernelError>),
    #[error("{0}")]
    Record(#[from] RecordError),
    #[error("{0}")]
    Results(#[from] ResultsError),
    #[error("the world of the scenario has ended")]
    WorldEnded,
    #[error("cannot run {command}: {error}")]
    Command { command: String, error: std::io::Error },
    #[error("the exit status of {command} is unknown, as with SIGCHLD ignored: {error}")]
    Status { command: String, error: std::io::Error },
    #[error("cannot watch for signals: {0}")]
    Signals(std::io::Error),
    #[error("interrupted")]
    Interrupted,
}

impl From<RealError> for ShellError {
    fn from(error: RealError) -> Self {
        Self::World(Box::new(error))
    }
}

impl From<KernelError> for ShellError {
    fn from(error: KernelError) -> Self {
        Self::Agent(Box::new(error))
    }
}

/// Longer than any command runs.
const LONG: holdover_base::Duration = holdover_base::Duration::from_secs(100 * 365 * 86_400);

/// Runs the command and returns its exit status.
pub(crate) fn run(args: &ShellArgs) -> ExitCode {
    match try_run(args) {
        Ok(code) => ExitCode::from(code),
        Err(ShellError::Scenario(error)) => {
            print_scenario_error(&error);
            ExitCode::from(2)
        }
        Err(error) => {
            print_error(&error);
            match error {
                ShellError::Unknown { .. } => ExitCode::from(2),
                // As shells have it: not found, and not to be executed.
                ShellError::Command { error, .. } if error.kind() == std::io::ErrorKind::NotFound => {
                    ExitCode::from(127)
                }
                ShellError::Command { .. } => ExitCode::from(126),
                ShellError::Interrupted => ExitCode::from(INTERRUPTED),
                _ => ExitCode::FAILURE,
            }
        }
    }
}

fn try_run(args: &ShellArgs) -> Result<u8, ShellError> {
    let config = world(args)?;
    let host = match &args.host {
        Some(name) => host_named(&config, name)?,
        None => default_host(&config),
    };
    let servers = args.serve.iter().map(|server| Ok((host_named(&config, &server.host)?, server.command.as_str())));
    let servers = servers.collect::<Result<Vec<_>, ShellError>>()?;
    // Before the first thread.
    Privilege::acquire()?;
    let config = if args.agent { with_agent(config, host) } else { config };
    let agent =
        (args.agent && config.mechanisms.iter().all(|with| with.node != host || !with.mechanisms.wake)).then_some(host);
    let stop = watch_signals().map_err(ShellError::Signals)?;
    let recorder = match &args.out {
        Some(dir) => Some(Recorder::create(ResultsDir::create(dir, false, [])?.path(), &config, &recorder_options())?),
        None => None,
    };
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (ready, is_ready) = mpsc::channel();
        let world = scope.spawn(|| {
            live(
                config.clone(),
                agent,
                Watcher { recorder, names: args.events.then(|| config.clone()) },
                ready,
                &is_over,
            )
        });
        let status = match is_ready.recv() {
            Ok(namespaces) => {
                let ends = Ends { stop: &stop, world: &world };
                command(args, &config, &namespaces, host, &servers, &ends)
            }
            // The world's own error has the reason.
            Err(mpsc::RecvError) => Ok(1),
        };
        is_over.store(true, Ordering::Relaxed);
        let outcome = world.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        let p99 = outcome.lateness.quantile(0.99);
        if p99 > holdover_base::Duration::from_millis(1) {
            print_note(&format_args!("holdover: the machine was busy: 1 of 100 packets came more than {p99} late"));
        }
        status
    })
}

/// The world of the variant, with its flows only if asked for, and without a time limit.
fn world(args: &ShellArgs) -> Result<WorldConfig, ShellError> {
    let scenario = open_scenario(&args.scenario, &args.set, args.seed)?;
    let variants = scenario.variants();
    let variant = match &args.variant {
        Some(name) => variants.iter().find(|variant| variant.name() == name).ok_or_else(|| {
            let names: Vec<&str> = variants.iter().map(|variant| variant.name()).collect();
            ShellError::Unknown { what: "variant", name: name.clone(), there_are: names.join(", ") }
        })?,
        None => &variants[0],
    };
    let mut config = variant.world(scenario.seed())?;
    if !args.flows {
        config.flows.clear();
    }
    config.time_limit = Instant::ZERO + LONG;
    Ok(config)
}

/// Describes the agent in the world where it cannot run on the host itself; it replaces the host's mechanisms.
fn with_agent(mut config: WorldConfig, host: NodeId) -> WorldConfig {
    let (path, why_not_better) = AgentPath::best();
    if let Some(why) = why_not_better {
        print_note(&format_args!(
            "holdover: the agent stands in the path of the host's packets, and not on it: {}",
            with_causes(&why)
        ));
    }
    let foresight = config.mechanisms.iter().find(|with| with.node == host).and_then(|with| with.foresight);
    config.mechanisms.retain(|with| with.node != host);
    config.mechanisms.push(HostMechanisms { node: host, mechanisms: path.mechanisms(), foresight });
    config
}

fn host_named(config: &WorldConfig, name: &str) -> Result<NodeId, ShellError> {
    let hosts = || hosts(config).into_iter();
    hosts().find(|&node| name_of(config, node) == name).ok_or_else(|| {
        let names: Vec<&str> = hosts().map(|node| name_of(config, node)).collect();
        ShellError::Unknown { what: "host", name: name.to_owned(), there_are: names.join(", ") }
    })
}

/// The first host that moves, else the first with link outages, else the first described.
fn default_host(config: &WorldConfig) -> NodeId {
    let hosts = hosts(config);
    let comes_and_goes = |node: &&NodeId| {
        let mut links = config.links.iter().filter(|link| link.a == **node || link.b == **node);
        links.any(|link| {
            let traced = |conditions: &Option<_>| conditions.is_some();
            link.forward.outages != Outages::Never
                || traced(&link.forward.conditions)
                || traced(&link.backward.conditions)
        })
    };
    let moving = config.mobiles.first().map(|mobile| mobile.node);
    moving.or_else(|| hosts.iter().find(comes_and_goes).copied()).unwrap_or(hosts[0])
}

fn hosts(config: &WorldConfig) -> Vec<NodeId> {
    let nodes = (0..).zip(&config.nodes);
    nodes.filter(|(_, node)| node.role == Role::Host).map(|(id, _)| NodeId(id)).collect()
}

fn name_of(config: &WorldConfig, node: NodeId) -> &str {
    &config.nodes[node.0 as usize].name
}

fn recorder_options() -> RecorderOptions {
    RecorderOptions { captures: Some(CaptureOptions::default()), ..RecorderOptions::default() }
}

/// Leaves Ctrl-C to the command; SIGTERM ends both.
fn watch_signals() -> std::io::Result<Arc<AtomicBool>> {
    use signal_hook::consts::{SIGINT, SIGQUIT, SIGTERM};
    let stop = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(SIGTERM, Arc::clone(&stop))?;
    for signal in [SIGINT, SIGQUIT] {
        signal_hook::flag::register(signal, Arc::new(AtomicBool::new(false)))?;
    }
    Ok(stop)
}

/// Runs the world until the command ends.
fn live(
    config: WorldConfig,
    agent: Option<NodeId>,
    mut observer: Watcher,
    ready: mpsc::Sender<Vec<(NodeId, Namespace)>>,
    is_over: &AtomicBool,
) -> Result<RealOutcome, ShellError> {
    let external: BTreeSet<NodeId> = hosts(&config).into_iter().collect();
    let options = RealOptions { external: external.clone(), goes_on_without_flows: true, ..RealOptions::default() };
    let mut world = RealWorld::new(config, &options)?;
    let mut agents = Agents::default();
    if let Some(host) = agent {
        agents.start(&mut world, host)?;
    }
    let namespaces = external.into_iter().filter_map(|node| Some((node, world.namespace(node)?.clone())));
    // The starting thread waits for this message.
    let _ = ready.send(namespaces.collect());
    drop(ready);
    let outcome = world.run(&mut observer, |_| !is_over.load(Ordering::Relaxed))?;
    if let Some(recorder) = observer.recorder {
        recorder.finish(world.world(), outcome.ending.unwrap_or(Ending::Idle))?;
    }
    drop(world);
    agents.finish()?;
    Ok(outcome)
}

/// Runs servers and the command; returns the command's exit status.
fn command(
    args: &ShellArgs,
    config: &WorldConfig,
    namespaces: &[(NodeId, Namespace)],
    host: NodeId,
    servers: &[(NodeId, &str)],
    ends: &Ends<'_, '_>,
) -> Result<u8, ShellError> {
    let of = |node: NodeId| namespaces.iter().find(|(other, _)| *other == node).map(|(_, namespace)| namespace);
    let names = names(config);
    let mut running = Vec::new();
    for &(node, text) in servers {
        let Some(namespace) = of(node) else { continue };
        let mut command = Command::new("sh");
        command.args(["-c", text]).stdin(Stdio::null()).stdout(std::io::stderr());
        let failed = |error| ShellError::Command { command: text.to_owned(), error };
        let mut server = Process::from(namespace.confine(&mut command, names.clone()).spawn().map_err(failed)?);
        wait_for_listener(namespace, &mut server);
        running.push(server);
    }
    let program = args.command.first().cloned();
    let program = program.or_else(|| std::env::var_os("SHELL")).unwrap_or_else(|| OsString::from("sh"));
    let mut command = Command::new(&program);
    command.args(args.command.iter().skip(1)).env("HOLDOVER_HOST", name_of(config, host));
    let failed = |error| ShellError::Command { command: program.to_string_lossy().into_owned(), error };
    let Some(namespace) = of(host) else { return Ok(1) };
    let mut main = Process::from(namespace.confine(&mut command, names).spawn().map_err(failed)?);
    let unknown = |error| ShellError::Status { command: program.to_string_lossy().into_owned(), error };
    const PAUSE: Duration = Duration::from_millis(5);
    loop {
        if let Some(status) = main.exit_status().map_err(unknown)? {
            return Ok(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1));
        }
        if ends.stop.load(Ordering::Relaxed) {
            return Err(ShellError::Interrupted);
        }
        // Without its network the command would wait for ever.
        if ends.world.is_finished() {
            return Err(ShellError::WorldEnded);
        }
        std::thread::sleep(PAUSE);
    }
}

/// Ends a command that is still running.
struct Ends<'a, 'scope> {
    stop: &'a AtomicBool,
    world: &'a std::thread::ScopedJoinHandle<'scope, Result<RealOutcome, ShellError>>,
}

/// Waits for a listening socket in the namespace, with a timeout: some servers do not listen.
fn wait_for_listener(namespace: &Namespace, server: &mut Process) {
    const PATIENCE: Duration = Duration::from_secs(3);
    // A server that ends at once has done its work.
    let _ = server.wait_until(PATIENCE, || namespace.enter(is_listened_to).unwrap_or(true));
}

/// Whether a socket of the calling thread's namespace listens, or receives datagrams.
fn is_listened_to() -> bool {
    // The state is the fourth column: 0A is LISTEN, and 07 a UDP socket that is not connected.
    let any = |file: &str, state: &str| {
        let text = std::fs::read_to_string(format!("/proc/thread-self/net/{file}")).unwrap_or_default();
        text.lines().skip(1).any(|line| line.split_whitespace().nth(3) == Some(state))
    };
    any("tcp", "0A") || any("tcp6", "0A") || any("udp", "07") || any("udp6", "07")
}

/// The system's `/etc/hosts` with the scenario's hosts.
fn names(config: &WorldConfig) -> String {
    let mut text = std::fs::read_to_string("/etc/hosts").unwrap_or_default();
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    let per_link = |node: NodeId| {
        let of = config.addressing.iter().find(|host| host.node == node);
        of.is_some_and(|host| host.addresses == holdover_sim::Addresses::PerLink && host.identity.is_none())
    };
    for node in hosts(config) {
        for ipv6 in [false, true] {
            let address = if per_link(node) { node.locator(0, ipv6) } else { node.address(ipv6) };
            let _ = writeln!(text, "{address} {}", name_of(config, node));
        }
    }
    text
}

/// Records events, and prints link changes.
struct Watcher {
    recorder: Option<Recorder>,
    /// The description, if link changes are printed.
    names: Option<WorldConfig>,
}

impl Observer for Watcher {
    fn packet(&mut self, at: Instant, place: Place, frame: &Frame) {
        if let Some(recorder) = &mut self.recorder {
            recorder.packet(at, place, frame);
        }
    }

    fn dropped(&mut self, at: Instant, why: Dropped, frame: &Frame) {
        if let Some(recorder) = &mut self.recorder {
            recorder.dropped(at, why, frame);
        }
    }

    fn event(&mut self, at: Instant, event: &WorldEvent) {
        if let Some(config) = &self.names {
            let node = |node: &NodeId| name_of(config, *node);
            let text = match event {
                WorldEvent::LinkDown(link) => Some(format!("link {} is down", config.links[link.0 as usize].name)),
                WorldEvent::LinkUp(link) => Some(format!("link {} is up", config.links[link.0 as usize].name)),
                WorldEvent::LinkCarries(link) if !config.links[link.0 as usize].carries_after().is_zero() => {
                    Some(format!("link {} carries packets", config.links[link.0 as usize].name))
                }
                WorldEvent::ConnectivityLost(host) => Some(format!("{} is cut off", node(host))),
                WorldEvent::ConnectivityBack { node: host, cell, .. } => {
                    Some(format!("{} is connected in cell {}", node(host), config.cells[cell.0 as usize].name))
                }
                _ => None,
            };
            if let Some(text) = text {
                print_note(&format_args!("holdover: {:.3} s: {text}", at.as_secs_f64()));
            }
        }
        if let Some(recorder) = &mut self.recorder {
            recorder.event(at, event);
        }
    }

    fn sample(&mut self, at: Instant, flow: FlowId, sample: &Sample) {
        if let Some(recorder) = &mut self.recorder {
            recorder.sample(at, flow, sample);
        }
    }
}
