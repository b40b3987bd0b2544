//! `holdover conformance`: the measurements of `holdover_conformance`, their progress and where their results go.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::SystemTime;

use clap::Args;
use holdover_base::{BitRate, Duration, UnitError};
use holdover_conformance::agent::AgentGrid;
use holdover_conformance::agent_links::AgentLinksGrid;
use holdover_conformance::gateway::GatewayGrid;
use holdover_conformance::moves::{Means, MovesGrid, Programs, TOLERANCE};
use holdover_conformance::{About, Grid, GridError, GridOptions, GridReport as _, Progress, kernel, measure};
use holdover_testbed::Privilege;
use holdover_transfers::{NetPath, spaced};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use crate::command_support::{
    exit_on_signals, print, print_error, print_json, print_note, scratch_directory, utc, with_causes, within,
};
use crate::gateway_command::configured_daemon;

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
    /// time), 12 with --agent, 6 with --agent-links or --gateway, where each runs a daemon, 3 with --moves, where each runs two. Those
    /// of --moves that are without an address for a minute or more are not counted, and begin 10 s apart.
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
    /// Measure moves to another address: transfers and keys over every kind of move, with plain TCP, holdover hip, wireguard-go,
    /// the kernel's WireGuard where it has one, and MPTCP.
    /// Fails if a case with holdover hip misses its bound. --long adds 600 s without an address.
    #[arg(long, group = "grid")]
    moves: bool,
    /// The program wireguard-go, for --moves.
    #[arg(long, value_name = "FILE", default_value = "wireguard-go", requires = "moves")]
    wireguard_go: PathBuf,
    /// The means to compare, for --moves; default: all.
    #[arg(long, value_name = "NAME,...", requires = "moves", value_delimiter = ',', value_parser = means)]
    means: Vec<Means>,
    /// What the bounds of --moves allow the machine, up to 1 s: more on a slow one, as an emulated one.
    #[arg(long, value_name = "TIME", default_value_t = TOLERANCE, requires = "moves", value_parser = tolerance)]
    tolerance: Duration,
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

    fn grid_options(&self) -> GridOptions {
        GridOptions {
            only: self.only.clone(),
            with_long: self.long,
            path: self.path(),
            repeat: self.repeat,
            jobs: self.jobs,
            journal: self.journal.clone(),
        }
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

fn tolerance(text: &str) -> Result<Duration, String> {
    let tolerance: Duration = text.parse().map_err(|error: UnitError| error.to_string())?;
    let most = Duration::from_secs(1);
    if tolerance <= most { Ok(tolerance) } else { Err(format!("more than {}", spaced(most))) }
}

fn means(text: &str) -> Result<Means, String> {
    let names = || Means::ALL.map(Means::name).join(", ");
    Means::ALL.into_iter().find(|it| it.name() == text).ok_or_else(|| format!("none of {}", names()))
}

/// Measures and prints or writes the result. Fails on an unknown difference, or if a cell misses its bound.
pub(crate) fn run(args: &ConformanceArgs) -> ExitCode {
    if args.agent {
        return run_grid(args, &AgentGrid { filter: args.filter });
    }
    if args.agent_links {
        return run_grid(args, &AgentLinksGrid);
    }
    if args.gateway {
        return run_grid(args, &GatewayGrid { daemon: configured_daemon, directory: scratch_directory });
    }
    if args.moves {
        let holdover = std::env::current_exe().unwrap_or_else(|_| PathBuf::from("holdover"));
        let programs = Programs { holdover, wireguard_go: args.wireguard_go.clone() };
        let (means, tolerance) = (args.means.clone(), args.tolerance);
        return run_grid(args, &MovesGrid { programs, directory: scratch_directory, means, tolerance });
    }
    let experiments = kernel::selected(args.only.as_deref(), args.long);
    if experiments.is_empty() {
        return nothing_selected(args, "experiment");
    }
    if args.list {
        return print(&kernel::list(&experiments));
    }
    if let Err(code) = prepare(args) {
        return code;
    }
    let bar = Bar::new("cases");
    let report = kernel::measure(&experiments, args.jobs, about(), &|progress| bar.show(progress));
    let written = write(args, &report, || report.markdown(), || report.summary());
    if report.is_sound() { written } else { ExitCode::FAILURE }
}

/// Measures a grid and prints or writes the result. Fails if a cell misses its bound, or if no run succeeded.
fn run_grid<G: Grid>(args: &ConformanceArgs, grid: &G) -> ExitCode {
    let options = args.grid_options();
    let places = grid.places(&options);
    if places.is_empty() {
        return nothing_selected(args, "case of the grid");
    }
    if args.list {
        return print(&places.iter().map(|place| format!("{place}\n")).collect::<String>());
    }
    if let Err(code) = prepare(args) {
        return code;
    }
    let report = match measured(grid, &options, &places) {
        Ok(report) => report,
        Err(code) => return code,
    };
    if let Some(path) = &args.csv
        && let Err(error) = std::fs::write(path, report.csv())
    {
        return cannot_be_written(path, &error);
    }
    let written = write(args, &report, || report.markdown(), || report.in_a_line());
    if report.is_sound() { written } else { ExitCode::FAILURE }
}

/// Measures a grid at these places. Prints the error if that is impossible.
pub(crate) fn measured<G: Grid>(grid: &G, options: &GridOptions, places: &[G::Place]) -> Result<G::Report, ExitCode> {
    let bar = Bar::new("transfers");
    measure(grid, options, places, about(), &|progress| bar.show(progress)).map_err(|error| {
        print_error(&with_causes(&error));
        if matches!(error, GridError::Journal(_)) { ExitCode::from(2) } else { ExitCode::FAILURE }
    })
}

fn nothing_selected(args: &ConformanceArgs, what: &str) -> ExitCode {
    no_name_has(what, args.only.as_deref())
}

/// Prints that nothing was selected.
pub(crate) fn no_name_has(what: &str, only: Option<&str>) -> ExitCode {
    print_error(&format_args!("no {what} has \"{}\" in its name", only.unwrap_or_default()));
    ExitCode::from(2)
}

/// Enters the namespaces that runs need. Before the first thread.
fn prepare(args: &ConformanceArgs) -> Result<(), ExitCode> {
    // This may have to enter a user namespace.
    if let Err(error) = Privilege::acquire() {
        print_error(&format_args!("conformance needs network namespaces: {error}"));
        return Err(ExitCode::FAILURE);
    }
    watch_for_signals(kept(args.journal.as_deref(), &[&args.out, &args.csv]))
}

/// At Ctrl-C, prints what is `kept` and exits. After [`Privilege::acquire`].
pub(crate) fn watch_for_signals(kept: String) -> Result<(), ExitCode> {
    exit_on_signals(kept).map_err(|error| {
        print_error(&format_args!("cannot watch for Ctrl-C: {error}"));
        ExitCode::FAILURE
    })
}

/// The progress of measurements, on a terminal.
struct Bar(ProgressBar);

impl Bar {
    /// Counts `what`, as "transfers".
    fn new(what: &str) -> Self {
        let template = format!("{{bar:40}} {{pos}}/{{len}} {what}, {{elapsed_precise}} {{msg}}");
        let style = ProgressStyle::with_template(&template).expect("a valid template");
        Self(ProgressBar::new(0).with_style(style))
    }

    /// Shows an event.
    fn show(&self, progress: Progress<'_>) {
        match progress {
            Progress::Begun { done, all } => {
                self.0.reset();
                self.0.set_length(all as u64);
                self.0.set_position(done as u64);
            }
            Progress::Started(name) => self.0.set_message(name.to_owned()),
            Progress::Ended => self.0.inc(1),
            Progress::Warning(text) => self.0.suspend(|| print_note(&format_args!("warning: {text}"))),
            Progress::Over => self.0.finish_and_clear(),
        }
    }
}

/// Prints or writes a report as the arguments say.
fn write(
    args: &ConformanceArgs,
    report: &impl Serialize,
    markdown: impl Fn() -> String,
    summary: impl Fn() -> String,
) -> ExitCode {
    let text = match (&args.out, args.json) {
        (None, true) => return print_json(report),
        (None, false) => return print(&markdown()),
        (Some(_), true) => serde_json::to_string_pretty(report).map_err(std::io::Error::from),
        (Some(_), false) => Ok(markdown()),
    };
    let Some(path) = &args.out else { return ExitCode::SUCCESS };
    match text.and_then(|text| std::fs::write(path, text)) {
        Ok(()) => {
            print_note(&summary());
            ExitCode::SUCCESS
        }
        Err(error) => cannot_be_written(path, &error),
    }
}

fn cannot_be_written(path: &Path, error: &std::io::Error) -> ExitCode {
    print_error(&format_args!("{} cannot be written: {error}", path.display()));
    ExitCode::FAILURE
}

/// The note on an interruption: `files`, pages and tables, are written only at the end.
pub(crate) fn kept(journal: Option<&Path>, files: &[&Option<PathBuf>]) -> String {
    if let Some(path) = journal {
        return format!(
            "the runs that have ended are kept in {}: the same command continues from there",
            path.display()
        );
    }
    let files: Vec<String> = files.iter().copied().flatten().map(|path| path.display().to_string()).collect();
    match files.as_slice() {
        [] => "nothing was kept".to_owned(),
        files => format!("nothing was kept: {} would have been written at the end", files.join(" and ")),
    }
}

/// The command line of this process, as pages show it: without the journal, which does not affect the result.
pub(crate) fn about() -> About {
    let command = without_journal(std::env::args().skip(1));
    About { command, date: utc(SystemTime::now()).0[..10].to_owned() }
}

fn without_journal(mut words: impl Iterator<Item = String>) -> String {
    let mut command = "holdover".to_owned();
    while let Some(word) = words.next() {
        if word == "--journal" {
            words.next();
        } else if !word.starts_with("--journal=") {
            command.push(' ');
            command.push_str(&word);
        }
    }
    command
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

    #[test]
    fn means_have_the_names_of_the_tables() {
        assert_eq!(means("wireguard"), Ok(Means::WireGuard));
        assert_eq!(means("hip --no-wake"), Ok(Means::HipWithoutWake));
        assert!(means("wg").unwrap_err().contains("wireguard-go, wireguard, MPTCP"));
    }

    /// `wire-guard` is the name that `wireguard-go` had before the kernel's was compared.
    #[test]
    fn means_keep_their_names_in_json() {
        let names = Means::ALL.map(|means| serde_json::to_string(&means).unwrap());
        let expected = ["plain", "hip-without-wake", "hip", "wire-guard", "kernel-wireguard", "multipath"];
        assert_eq!(names, expected.map(|name| format!("\"{name}\"")));
    }

    #[test]
    fn pages_do_not_name_the_journal() {
        for words in
            ["conformance --journal /tmp/j --jobs 6", "conformance --journal=j --jobs 6", "conformance --jobs 6"]
        {
            let command = without_journal(words.split(' ').map(str::to_owned));
            assert_eq!(command, "holdover conformance --jobs 6");
        }
    }
}
