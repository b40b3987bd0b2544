//! `holdover conformance`: experiments that pin how this machine's kernel behaves around outages, and the same on the profiles
//! that copy it.

mod agent;
mod agent_links;
mod gateway;
mod grid;
mod journal;
mod moves;
mod page;
mod routed;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use clap::Args;
use holdover_base::{BitRate, Duration, UnitError};
use holdover_testbed::conformance::{self, Case, CaseResult, Experiment, Length, Verdict};
use holdover_testbed::{Congestion, Namespace, Privilege};
use indicatif::{ProgressBar, ProgressStyle};

use crate::command_support::{exit_on_signals, print, print_error, print_json, spaced, within};
use crate::transfers::NetPath;
use page::Report;

/// Arguments of `holdover conformance`.
#[derive(Args, Debug)]
pub(crate) struct ConformanceArgs {
    /// Run only experiments and cases whose name contains this, as in "wake" or "wake: 3 s: nothing, cubic".
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// Also run the cases that take minutes: freezes of 60 s, the timeout's default ceiling; with --gateway absences of 60 and 600 s;
    /// with --moves 600 s without an address.
    #[arg(long)]
    long: bool,
    /// Print JSON instead of Markdown.
    #[arg(long)]
    json: bool,
    /// Write the result to this file, as docs/conformance/linux-6.18.md, instead of printing it.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// The number of concurrent cases, each in network namespaces of its own; default: 24 (cases are idle most of the
    /// time), 12 with --agent, 6 with --agent-links or --gateway, where each runs a daemon, 3 with --moves, where each runs two.
    #[arg(long, value_name = "N", value_parser = within(1_u16..=256))]
    jobs: Option<u16>,
    /// List the experiments and their cases, and run none.
    #[arg(long)]
    list: bool,
    /// Measure the agent instead: transfers across a grid of outages, without and with it. Fails if one misses its
    /// bound.
    #[arg(long, group = "grid", conflicts_with = "long")]
    agent: bool,
    /// Measure the agent on links with carrier and neighbours: every kind of link and outage, plain, with the agent and warned. Fails
    /// if a case misses its bound.
    #[arg(long, group = "grid", conflicts_with = "long")]
    agent_links: bool,
    /// Measure the gateway: transfers of a mobile host behind a router across a grid of absences, without and with the gateway's
    /// daemon on the router. Fails if a case misses its bound. --long adds absences of 60 and 600 s.
    #[arg(long, group = "grid")]
    gateway: bool,
    /// Measure moves to another address: transfers and keys over every kind of move, with plain TCP, holdover hip, wireguard-go and MPTCP.
    /// Fails if a case with holdover hip misses its bound. --long adds 600 s without an address.
    #[arg(long, group = "grid")]
    moves: bool,
    /// The program wireguard-go, for --moves.
    #[arg(long, value_name = "FILE", default_value = "wireguard-go", requires = "moves")]
    wireguard_go: PathBuf,
    /// Run the agent as a filter in the path, not as eBPF.
    #[arg(long, requires = "agent")]
    filter: bool,
    /// The number of runs of each transfer; tables have the medians.
    #[arg(long, value_name = "N", default_value_t = 3, requires = "grid", value_parser = within(1_u32..=100))]
    repeat: u32,
    /// The rate of the grid's link, 100 kbit/s to 200 Mbit/s. What transfers move grows with it, so that they take as long.
    #[arg(long, value_name = "RATE", default_value_t = NetPath::DEFAULT.rate, requires = "grid", value_parser = grid_rate)]
    rate: BitRate,
    /// The round trip time between the grid's hosts without queues, 2 ms to 1 s.
    #[arg(long, value_name = "TIME", default_value_t = NetPath::DEFAULT.round_trip(), requires = "grid", value_parser = grid_rtt)]
    rtt: Duration,
    /// The number of packets that the grid's link queues in each direction.
    #[arg(long, value_name = "PACKETS", default_value_t = NetPath::DEFAULT.queue, requires = "grid", value_parser = within(1_u32..=100_000))]
    queue: u32,
    /// Write every run of the grid to this file, too.
    #[arg(long, value_name = "FILE", requires = "grid")]
    csv: Option<PathBuf>,
    /// Append each finished run of the grid to this file. An interrupted grid continues from it.
    #[arg(long, value_name = "FILE", requires = "grid")]
    journal: Option<PathBuf>,
}

impl ConformanceArgs {
    /// The path of the grid's connections.
    const fn path(&self) -> NetPath {
        NetPath { rate: self.rate, delay: Duration::from_nanos(self.rtt.as_nanos() / 2), queue: self.queue }
    }
}

fn grid_rate(text: &str) -> Result<BitRate, String> {
    let rate: BitRate = text.parse().map_err(|error: UnitError| error.to_string())?;
    let (least, most) = (BitRate::from_kbps(100), BitRate::from_mbps(200));
    if (least..=most).contains(&rate) { Ok(rate) } else { Err(format!("not between {least} and {most}")) }
}

fn grid_rtt(text: &str) -> Result<Duration, String> {
    let rtt: Duration = text.parse().map_err(|error: UnitError| error.to_string())?;
    let (least, most) = (Duration::from_millis(2), Duration::from_secs(1));
    if (least..=most).contains(&rtt) {
        Ok(rtt)
    } else {
        Err(format!("not between {} and {}", spaced(least), spaced(most)))
    }
}

/// Runs the experiments and prints or writes the result. Fails on an unknown difference.
pub(crate) fn run(args: &ConformanceArgs) -> ExitCode {
    if args.agent {
        return agent::run(args);
    }
    if args.agent_links {
        return agent_links::run(args);
    }
    if args.gateway {
        return gateway::run(args);
    }
    if args.moves {
        return moves::run(args);
    }
    let experiments = selected(args);
    if experiments.is_empty() {
        print_error(&format_args!("no experiment has \"{}\" in its name", args.only.as_deref().unwrap_or_default()));
        return ExitCode::from(2);
    }
    if args.list {
        return print(&page::list(&experiments));
    }
    // Before the first thread: this may have to enter a user namespace.
    if let Err(error) = Privilege::acquire() {
        print_error(&format_args!("conformance needs network namespaces: {error}"));
        return ExitCode::FAILURE;
    }
    if let Err(error) = exit_on_signals(grid::kept(args)) {
        print_error(&format_args!("cannot watch for Ctrl-C: {error}"));
        return ExitCode::FAILURE;
    }
    let started = std::time::Instant::now();
    let results = run_cases(args, &experiments);
    let report = Report::new(&experiments, results, started.elapsed());
    let sound = report.is_sound();
    let printed = match (&args.out, args.json) {
        (None, true) => print_json(&report),
        (None, false) => print(&report.markdown()),
        (Some(path), is_json) => {
            let text = if is_json {
                serde_json::to_string_pretty(&report).map_err(std::io::Error::from)
            } else {
                Ok(report.markdown())
            };
            match text.and_then(|text| std::fs::write(path, text)) {
                Ok(()) => {
                    eprintln!("{}", report.summary());
                    ExitCode::SUCCESS
                }
                Err(error) => {
                    print_error(&format_args!("{} cannot be written: {error}", path.display()));
                    ExitCode::FAILURE
                }
            }
        }
    };
    if sound { printed } else { ExitCode::FAILURE }
}

/// The selected experiments and cases.
fn selected(args: &ConformanceArgs) -> Vec<Experiment> {
    let mut experiments = conformance::experiments();
    for experiment in &mut experiments {
        let name = experiment.name;
        experiment.cases.retain(|case| {
            let is_meant = args.only.as_ref().is_none_or(|text| format!("{name}: {case}").contains(text));
            is_meant && (args.long || case.length < Length::Long)
        });
    }
    experiments.retain(|experiment| !experiment.cases.is_empty());
    experiments
}

/// The result of a case.
type Outcome = Result<CaseResult, String>;

/// Runs all cases concurrently, the longest first; then repeats those that differ, a few at a time. The results are in
/// the order of experiments and cases.
fn run_cases(args: &ConformanceArgs, experiments: &[Experiment]) -> Vec<Vec<Outcome>> {
    let mut queue: Vec<Place> = experiments
        .iter()
        .enumerate()
        .flat_map(|(index, experiment)| (0..experiment.cases.len()).map(move |case| (index, case)))
        .collect();
    queue.sort_by_key(|&(experiment, case)| core::cmp::Reverse(experiments[experiment].cases[case].length));
    let none = |experiment: &Experiment| experiment.cases.iter().map(|_| Err("it was not run".to_owned())).collect();
    let mut results: Vec<Vec<Outcome>> = experiments.iter().map(none).collect();
    let jobs = args.jobs.unwrap_or(JOBS);
    for ((experiment, case), outcome) in run_queue(jobs, experiments, &queue) {
        results[experiment][case] = outcome;
    }
    let again: Vec<Place> =
        queue.into_iter().filter(|&(experiment, case)| differs(&results[experiment][case])).collect();
    for ((experiment, case), outcome) in run_queue(jobs.min(FEW), experiments, &again) {
        if !differs(&outcome) {
            results[experiment][case] = outcome;
        }
    }
    results
}

/// The numbers of an experiment and of its case.
type Place = (usize, usize);

/// Cases wait most of the time.
const JOBS: u16 = 24;
/// With this many concurrent cases a machine with two cores is idle most of the time.
const FEW: u16 = 4;

fn differs(outcome: &Outcome) -> bool {
    outcome.as_ref().is_ok_and(|result| result.verdicts.contains(&Verdict::Differs))
}

fn run_queue(jobs: u16, experiments: &[Experiment], queue: &[Place]) -> Vec<(Place, Outcome)> {
    let bar = ProgressBar::new(queue.len() as u64).with_style(
        ProgressStyle::with_template("{bar:40} {pos}/{len} cases, {elapsed_precise} {msg}").expect("a valid template"),
    );
    let next = AtomicUsize::new(0);
    let results = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(|| {
                while let Some(&(experiment, case)) = queue.get(next.fetch_add(1, Ordering::Relaxed)) {
                    bar.set_message(experiments[experiment].name);
                    let outcome = try_case(&experiments[experiment], &experiments[experiment].cases[case]);
                    bar.inc(1);
                    let mut results = results.lock().expect("no worker panics while it holds the results");
                    results.push(((experiment, case), outcome));
                }
            });
        }
    });
    bar.finish_and_clear();
    results.into_inner().expect("no worker panics while it holds the results")
}

fn try_case(experiment: &Experiment, case: &Case) -> Outcome {
    if !is_available(case.sender) {
        return Err(format!("this kernel does not have {}", case.sender.name()));
    }
    conformance::try_case(experiment, case).map_err(|error| error.to_string())
}

/// The kernel loads modules on first use, also by a namespace's root.
fn is_available(congestion: Congestion) -> bool {
    static AVAILABLE: std::sync::OnceLock<Vec<Congestion>> = std::sync::OnceLock::new();
    let find = || Congestion::ALL.into_iter().filter(|congestion| congestion.is_usable()).collect();
    AVAILABLE.get_or_init(|| Namespace::run("conformance", |_| find()).unwrap_or_default()).contains(&congestion)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_of_a_grid_has_bounds() {
        assert_eq!(grid_rate("40 Mbit/s"), Ok(BitRate::from_mbps(40)));
        assert_eq!(grid_rate("1 Gbit/s").unwrap_err(), "not between 100 kbit/s and 200 Mbit/s");
        assert_eq!(grid_rtt("200ms"), Ok(Duration::from_millis(200)));
        assert_eq!(grid_rtt("1 ms").unwrap_err(), "not between 2 ms and 1 s");
        assert!(grid_rtt("200").unwrap_err().contains("has no known unit"));
    }
}
