//! `holdover conformance --agent`: how soon transfers go on after an outage with the agent, and what share of the ideal they
//! reach, over a grid of outages, senders, directions and warnings, on this machine's kernel.

mod cells;
mod page;

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use holdover_base::Duration;
use holdover_testbed::Privilege;
use indicatif::{ProgressBar, ProgressStyle};

use super::ConformanceArgs;
use crate::command_support::{print, print_json, with_causes};
use crate::transfers::{self, AgentPath, CUT_AT, KernelError, KernelRun, Measured, Watcher};
use cells::{Cell, Place};
use page::Report;

/// So many cases at a time leave room on a machine with two cores: each moves 10 Mbit/s of packets.
const JOBS: u16 = 12;

/// One run of a case.
#[derive(Clone, PartialEq, Debug)]
struct Run {
    /// From the link's return to the first data at the receiver's interface that it did not have.
    new_data: Option<Duration>,
    measured: Measured,
    /// The ideal of the path, which is a sender that fills the link whenever it is there.
    path_share: Option<f64>,
    timeouts: u32,
    sent_again: u64,
    /// 99 of 100 packets were not later than this.
    lateness: Duration,
    /// See [`Watcher::trace`].
    trace: Vec<String>,
}

/// Runs the grid and prints or writes the result. Fails if a case misses what it has to reach.
pub(super) fn run(args: &ConformanceArgs) -> ExitCode {
    let places = cells::places(args.only.as_deref());
    if places.is_empty() {
        eprintln!("error: no case of the grid has \"{}\" in its name", args.only.as_deref().unwrap_or_default());
        return ExitCode::from(2);
    }
    if args.list {
        return print(&places.iter().map(|place| format!("{place}\n")).collect::<String>());
    }
    // Before the first thread: this may have to enter a user namespace.
    if let Err(error) = Privilege::acquire() {
        eprintln!("error: conformance needs network namespaces: {error}");
        return ExitCode::FAILURE;
    }
    let started = std::time::Instant::now();
    let agent = match (args.filter, AgentPath::best()) {
        (true, _) => AgentPath::Filter,
        (false, (agent, None)) => agent,
        (false, (_, Some(why))) => {
            eprintln!(
                "error: the agent cannot stand at an interface; --filter has it stand before one: {}",
                with_causes(&why)
            );
            return ExitCode::FAILURE;
        }
    };
    let report = match run_all(&places, args, agent) {
        Ok(runs) => Report::new(Cell::all(&places, &runs), agent, started.elapsed()),
        Err(failed) => {
            let (place, error) = *failed;
            eprintln!("error: {place}: {}", with_causes(&error));
            return ExitCode::FAILURE;
        }
    };
    let printed = write(args, &report);
    if report.is_sound() { printed } else { ExitCode::FAILURE }
}

fn write(args: &ConformanceArgs, report: &Report) -> ExitCode {
    if let Some(path) = &args.csv
        && let Err(error) = std::fs::write(path, report.csv())
    {
        eprintln!("error: {} cannot be written: {error}", path.display());
        return ExitCode::FAILURE;
    }
    let text = match (&args.out, args.json) {
        (None, true) => return print_json(report),
        (None, false) => return print(&report.markdown()),
        (Some(_), true) => serde_json::to_string_pretty(report).map_err(std::io::Error::from),
        (Some(_), false) => Ok(report.markdown()),
    };
    let Some(path) = &args.out else { return ExitCode::SUCCESS };
    match text.and_then(|text| std::fs::write(path, text)) {
        Ok(()) => {
            eprintln!("{}", report.in_a_line());
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: {} cannot be written: {error}", path.display());
            ExitCode::FAILURE
        }
    }
}

/// The runs of each place.
type Runs = BTreeMap<Place, Vec<Run>>;

/// Every run of every place, or the first that could not be made. One repetition of all after the other, so that all meet the
/// same weather.
fn run_all(places: &[Place], args: &ConformanceArgs, agent: AgentPath) -> Result<Runs, Box<(Place, KernelError)>> {
    let queue: Vec<Place> = (0..args.repeat).flat_map(|_| places.iter().copied()).collect();
    let bar = ProgressBar::new(queue.len() as u64).with_style(
        ProgressStyle::with_template("{bar:40} {pos}/{len} transfers, {elapsed_precise} {msg}")
            .expect("a valid template"),
    );
    let next = AtomicUsize::new(0);
    let results = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..args.jobs.unwrap_or(JOBS) {
            scope.spawn(|| {
                while let Some(&place) = queue.get(next.fetch_add(1, Ordering::Relaxed)) {
                    bar.set_message(place.to_string());
                    let run = run_one(place, agent);
                    bar.inc(1);
                    if run.is_err() {
                        // Nobody begins another one.
                        next.store(queue.len(), Ordering::Relaxed);
                    }
                    results.lock().expect("no worker panics while it holds the results").push((place, run));
                }
            });
        }
    });
    bar.finish_and_clear();
    let mut runs = Runs::new();
    for (place, run) in results.into_inner().expect("no worker panics while it holds the results") {
        runs.entry(place).or_default().push(run.map_err(|error| Box::new((place, error)))?);
    }
    Ok(runs)
}

fn run_one(place: Place, agent: AgentPath) -> Result<Run, KernelError> {
    let cut = place.transfer.cut.unwrap_or(Duration::ZERO);
    // A timer that ends just before the link's return runs twice as long again.
    let time_limit = Duration::from_secs(60) + cut * 4;
    let config = transfers::world(&[place.transfer], place.sender, agent, time_limit);
    let mut watcher = Watcher::new(&config.flows[0], CUT_AT + cut);
    let mut kernel = KernelRun::new(config, place.sender, agent)?;
    let outcome = kernel.run(&mut watcher, |_| true)?;
    let report = &kernel.world().report()[0];
    kernel.finish()?;
    let sender = report.sender.as_ref();
    Ok(Run {
        new_data: watcher.new_data().filter(|_| place.transfer.cut.is_some()),
        measured: Measured::of(report),
        path_share: report.ideal_share(),
        timeouts: sender.map_or(0, |sender| sender.timeouts),
        sent_again: sender.map_or(0, |sender| sender.bytes_retransmitted.0),
        lateness: outcome.lateness.quantile(0.99),
        trace: watcher.trace().to_vec(),
    })
}
