//! `holdover demo`: a download and an upload cross an outage, plain and with the agent. All four run at the same time, in view.
//!
//! The demo uses this machine's kernel, in namespaces of its own, if it can; else the simulator, and prints the reason. Two more transfers
//! run out of view over links that are not cut, as a reference for the four.

mod page;
mod story;
mod view;

use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;

use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use holdover_base::Duration;
use holdover_report::{Record, RecordError, Recorder, RecorderOptions, ResultsDir, ResultsError};
use holdover_sim::{World, WorldConfig, WorldError};
use holdover_testbed::world::Lateness;
use holdover_testbed::{Privilege, PrivilegeError};
use holdover_transfers::{
    self as transfers, AgentPath, Help, KernelError, KernelRun, NetPath, Sender, Transfer, TransferDirection,
};

use crate::command_support::{
    INTERRUPTED, print, print_error, print_interruption, print_json, stop_on_signals, utc, with_causes,
};
use story::Story;
use view::View;

/// How long the link is cut.
const CUT: Duration = Duration::from_secs(7);
/// A minute in all, with some seconds to draw: a plain transfer whose timer ends soon after the cut takes 20 s.
const TIME_LIMIT: Duration = Duration::from_secs(50);
/// The name of the demo's variant in its results.
const VARIANT: &str = "demo";

/// Arguments of `holdover demo`.
#[derive(Args, Debug)]
pub(crate) struct DemoArgs {
    /// Congestion control of the senders.
    #[arg(long, default_value = Sender::Cubic.congestion().name(), value_parser = sender())]
    sender: Sender,
    /// The directory for the report, new or empty; default: a new one below results/.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Use the simulator even if this machine's kernel can be used.
    #[arg(long)]
    simulated: bool,
    /// Run the agent as a filter in the path even if eBPF can be used.
    #[arg(long)]
    filter: bool,
    /// Print JSON instead of the live view and the table.
    #[arg(long)]
    json: bool,
}

/// A parser for the name of a congestion control.
fn sender() -> impl TypedValueParser<Value = Sender> {
    let named = |sender: Sender| {
        let standard = match sender {
            Sender::Cubic => "RFC 9438",
            Sender::Reno => "RFC 5681 and RFC 6582",
            Sender::Bbr => "Version 1, as in Linux",
        };
        PossibleValue::new(sender.congestion().name()).help(standard)
    };
    let by_name = |name: String| Sender::ALL.into_iter().find(|sender| sender.congestion().name() == name);
    PossibleValuesParser::new(Sender::ALL.map(named)).map(move |name| by_name(name).expect("one of the values"))
}

/// Errors of the demo.
#[derive(Debug, thiserror::Error)]
enum DemoError {
    #[error("{0}")]
    World(#[from] WorldError),
    #[error("{}", with_causes(.0))]
    Kernel(#[from] KernelError),
    #[error("{0}")]
    Results(#[from] ResultsError),
    #[error("{0}")]
    Record(#[from] RecordError),
    #[error("cannot watch for Ctrl-C: {0}")]
    Signals(std::io::Error),
    #[error("interrupted; nothing was kept")]
    Interrupted,
}

/// Where the transfers take place.
#[derive(Debug)]
enum Stage {
    Kernel,
    Simulator(WhySimulator),
}

/// The reason for using the simulator.
#[derive(Debug, thiserror::Error)]
enum WhySimulator {
    #[error("it was asked for")]
    Asked,
    #[error("{0}")]
    Unable(#[from] PrivilegeError),
}

/// The results of the transfers.
struct Played {
    world: WorldConfig,
    record: Record,
    reports: Vec<holdover_sim::FlowReport>,
    /// The delays with which packets reached the kernel.
    lateness: Option<Lateness>,
}

/// Runs the demo.
pub(crate) fn run(args: &DemoArgs) -> ExitCode {
    match try_run(args) {
        Ok(story) if args.json => {
            let printed = print_json(&story.to_json());
            if story.is_whole() { printed } else { ExitCode::FAILURE }
        }
        Ok(story) => {
            print(&story.to_text());
            if story.is_whole() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(error) => {
            match error {
                DemoError::Interrupted => print_interruption(&error),
                _ => print_error(&error),
            }
            match error {
                DemoError::Interrupted => ExitCode::from(INTERRUPTED),
                DemoError::Results(ResultsError::NotEmpty { .. } | ResultsError::NotADirectory { .. }) => {
                    ExitCode::from(2)
                }
                _ => ExitCode::FAILURE,
            }
        }
    }
}

fn try_run(args: &DemoArgs) -> Result<Story, DemoError> {
    let begun = std::time::Instant::now();
    let started_at = utc(SystemTime::now());
    if !args.json {
        print(&story::first_line(args.sender));
    }
    // Before the first thread: this may have to enter a user namespace.
    let stage = if args.simulated {
        Stage::Simulator(WhySimulator::Asked)
    } else {
        Privilege::acquire().map_or_else(|error| Stage::Simulator(error.into()), |_| Stage::Kernel)
    };
    let results = match &args.out {
        Some(dir) => ResultsDir::create(dir, false, [])?,
        None => ResultsDir::create_new(Path::new("results"), "demo", &started_at.1, [])?,
    };
    let stop = stop_on_signals().map_err(DemoError::Signals)?;
    let (agent, why_filter) = match stage {
        Stage::Kernel if !args.filter => AgentPath::best(),
        _ => (AgentPath::Filter, None),
    };
    let transfers = transfers();
    let world = transfers::world(&transfers, NetPath::DEFAULT, args.sender, agent, TIME_LIMIT);
    if !args.json {
        print(&story::introduction(args.sender, &stage));
    }
    let mut view = View::new(&transfers[..SHOWN], view::Medium::of(std::io::stdout().is_terminal(), args.json));
    let played = play(&stage, agent, world, args.sender, &results, &mut view, &stop)?;
    let story = Story::new(args.sender, (agent, why_filter), stage, &transfers, &played, results.path());
    page::write(&story, &played, &results, started_at.0, begun.elapsed()).or_else(|error| {
        results.discard()?;
        Err(DemoError::from(error))
    })?;
    Ok(story)
}

/// The transfers shown, in order, then their references.
fn transfers() -> Vec<Transfer> {
    let cut = |direction| [Help::Plain, Help::Agent].map(|help| Transfer { direction, help, cut: Some(CUT) });
    let uncut = TransferDirection::ALL.map(|direction| Transfer { direction, help: Help::Plain, cut: None });
    TransferDirection::ALL.into_iter().flat_map(cut).chain(uncut).collect()
}

/// The number of transfers that are shown.
const SHOWN: usize = 4;

/// Runs the world with a live view. An incomplete run leaves no results.
fn play(
    stage: &Stage,
    agent: AgentPath,
    config: WorldConfig,
    sender: Sender,
    results: &ResultsDir,
    view: &mut View,
    stop: &AtomicBool,
) -> Result<Played, DemoError> {
    let directory = &ResultsDir::variant_directories([VARIANT])[0];
    let options = RecorderOptions { plotted_flows: config.flows.len(), ..RecorderOptions::default() };
    let recorder = results.recorder(directory, &config, &options).map_err(DemoError::from);
    let played = recorder.and_then(|recorder| match stage {
        Stage::Kernel => play_on_kernel(agent, config, sender, recorder, view, stop),
        Stage::Simulator(_) => play_in_simulator(config, recorder, view, stop),
    });
    if played.is_err() {
        results.discard()?;
    }
    played
}

fn play_on_kernel(
    agent: AgentPath,
    config: WorldConfig,
    sender: Sender,
    mut recorder: Recorder,
    view: &mut View,
    stop: &AtomicBool,
) -> Result<Played, DemoError> {
    let mut kernel = KernelRun::new(config.clone(), sender, agent)?;
    let outcome = kernel.run(&mut recorder, |world| {
        view.show(world.now(), &world.report());
        !stop.load(Ordering::Relaxed)
    })?;
    let ending = outcome.ending.ok_or(DemoError::Interrupted)?;
    let (now, reports) = (kernel.world().now(), kernel.world().report());
    view.finish(now, &reports);
    let record = recorder.finish(kernel.world(), ending)?;
    kernel.finish()?;
    Ok(Played { world: config, record, reports, lateness: Some(outcome.lateness) })
}

fn play_in_simulator(
    config: WorldConfig,
    mut recorder: Recorder,
    view: &mut View,
    stop: &AtomicBool,
) -> Result<Played, DemoError> {
    let mut world = World::new(config.clone())?;
    let ending = loop {
        if stop.load(Ordering::Relaxed) {
            return Err(DemoError::Interrupted);
        }
        let until = world.now() + view::TICK;
        match world.run_to(until, &mut recorder) {
            Some(ending) => break ending,
            None => view.note(world.now(), &world.report()),
        }
    };
    view.finish(world.now(), &world.report());
    let record = recorder.finish(&world, ending)?;
    Ok(Played { world: config, record, reports: world.report(), lateness: None })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interrupted_demo_of_the_simulator_keeps_nothing() {
        let out = std::env::temp_dir().join(format!("holdover-demo-interrupted-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&out);
        let results = ResultsDir::create(&out, false, []).unwrap();
        let (transfers, sender, agent) = (transfers(), Sender::Cubic, AgentPath::Filter);
        let world = transfers::world(&transfers, NetPath::DEFAULT, sender, agent, TIME_LIMIT);
        let mut view = View::new(&transfers[..SHOWN], view::Medium::of(false, true));
        let stage = Stage::Simulator(WhySimulator::Asked);
        let played = play(&stage, agent, world, sender, &results, &mut view, &AtomicBool::new(true));
        assert!(matches!(played.err(), Some(DemoError::Interrupted)));
        assert!(!out.exists());
    }
}
