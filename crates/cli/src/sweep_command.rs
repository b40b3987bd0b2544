//! `holdover sweep`: a scenario run over every combination of its axes' values.

mod dask;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant, SystemTime};

use clap::Args;
use holdover_lab::sweep::compare::{Comparison, method_in_words};
use holdover_lab::sweep::engine::{self, Outcome};
use holdover_lab::sweep::{
    CellFindings, DirectoryError, Findings, FindingsError, FinishedRuns, JournalError, Ledger, Plan, PlanError,
    PointFindings, Progress, SweepDir, SweepError,
};
use holdover_report::{Manifest, ResultsError};
use holdover_scenario::ScenarioError;
use holdover_scenario::statistics::Method;
use indicatif::{ProgressBar, ProgressStyle};

use crate::command_support::{
    INTERRUPTED, open_scenario, print, print_error, print_file, print_interruption, print_scenario_error,
    stop_on_signals, utc, within,
};
use crate::text_table::table;

/// Arguments of `holdover sweep`.
#[derive(Args, Debug)]
pub(crate) struct SweepArgs {
    /// A scenario file, or the name of a built-in scenario.
    scenario: String,
    /// The number of concurrent runs; default: the number of cores. The results do not depend on it.
    #[arg(long, value_name = "N", value_parser = within(1_u16..=1024))]
    jobs: Option<u16>,
    /// Change a field of the scenario first: link.radio.delay="50 ms", sweep.replicate.min=10 (repeatable).
    #[arg(long = "set", value_name = "PATH=VALUE")]
    set: Vec<String>,
    /// The seed that the seeds of all runs are derived from, instead of the scenario's.
    #[arg(long, value_name = "N", value_parser = within(0_u64..=i64::MAX.cast_unsigned()))]
    seed: Option<u64>,
    /// The directory for the results; default: a new one below results/. If it has a part of the same sweep, only the
    /// rest is run.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Continue an interrupted sweep: the one in --out, or the latest of this scenario below results/.
    #[arg(long)]
    resume: bool,
    /// Run on the workers of the Dask cluster with this scheduler, by the Python module holdover.
    #[arg(long, value_name = "ADDRESS", conflicts_with = "jobs")]
    dask: Option<String>,
    /// Print JSON instead of a table.
    #[arg(long)]
    json: bool,
}

/// Where directories of results are made.
const RESULTS: &str = "results";

/// The exit code for invalid input, as clap's.
const TO_BE_WRITTEN_DIFFERENTLY: u8 = 2;

#[derive(Debug, thiserror::Error)]
enum CommandError {
    #[error("{0}")]
    Scenario(#[from] ScenarioError),
    #[error("{0}")]
    Plan(PlanError),
    #[error("{0}")]
    Directory(#[from] DirectoryError),
    #[error("{0}")]
    Journal(#[from] JournalError),
    #[error("{0}")]
    Sweep(#[from] SweepError),
    #[error("cannot listen to signals: {0}")]
    Signals(std::io::Error),
    #[error("{0}")]
    Dask(dask::DaskError),
    #[error(
        "interrupted; {} of about {} runs are kept in {}; the same command with --out {} continues with them",
        progress.done, progress.expected, directory.display(), directory.display()
    )]
    Interrupted { progress: Progress, directory: PathBuf },
}

impl From<PlanError> for CommandError {
    fn from(error: PlanError) -> Self {
        match error {
            PlanError::Scenario(error) => Self::Scenario(error),
            error => Self::Plan(error),
        }
    }
}

impl CommandError {
    fn exit_code(&self) -> ExitCode {
        match self {
            Self::Interrupted { .. } => ExitCode::from(INTERRUPTED),
            Self::Scenario(_)
            | Self::Plan(_)
            | Self::Journal(JournalError::Other { .. })
            | Self::Sweep(SweepError::Journal(JournalError::Other { .. }))
            | Self::Directory(
                DirectoryError::NotASweep { .. }
                | DirectoryError::NothingToResume { .. }
                | DirectoryError::Changed { .. }
                | DirectoryError::Results(ResultsError::NotADirectory { .. } | ResultsError::NameOfAResult { .. }),
            ) => ExitCode::from(TO_BE_WRITTEN_DIFFERENTLY),
            Self::Directory(_) | Self::Journal(_) | Self::Sweep(_) | Self::Signals(_) | Self::Dask(_) => {
                ExitCode::FAILURE
            }
        }
    }
}

/// Runs the sweep, writes and prints its results.
pub(crate) fn run(args: &SweepArgs) -> ExitCode {
    match sweep(args) {
        Ok(Printed::Text(text)) => print(&text),
        Ok(Printed::File(path)) => print_file(&path),
        Err(CommandError::Scenario(error)) => {
            print_scenario_error(&error);
            ExitCode::from(TO_BE_WRITTEN_DIFFERENTLY)
        }
        Err(error @ CommandError::Interrupted { .. }) => {
            print_interruption(&error);
            error.exit_code()
        }
        Err(error) => {
            print_error(&error);
            error.exit_code()
        }
    }
}

/// The final output.
enum Printed {
    Text(String),
    /// The content of this file.
    File(PathBuf),
}

fn sweep(args: &SweepArgs) -> Result<Printed, CommandError> {
    let began = (SystemTime::now(), Instant::now());
    let jobs = args.jobs.map_or_else(|| std::thread::available_parallelism().map_or(1, usize::from), usize::from);
    let plan = Plan::new(open_scenario(&args.scenario, &args.set, args.seed)?, jobs)?;
    let directory = directory(args, &plan, began.0)?;
    let mut ledger = Ledger::without_table(&plan, &directory)?;
    directory.write_scenario(&plan)?;
    let stop = stop_on_signals().map_err(CommandError::Signals)?;
    let interrupted = |progress| CommandError::Interrupted { progress, directory: directory.path().to_owned() };
    if let Some(address) = &args.dask {
        // The journal is written by one process at a time.
        drop(ledger);
        let ended = dask::fill(args, address, directory.path(), &stop);
        ledger = Ledger::without_table(&plan, &directory)?;
        match ended {
            Ok(()) => {}
            Err(dask::DaskError::Interrupted) => return Err(interrupted(ledger.progress())),
            Err(error) => return Err(CommandError::Dask(error)),
        }
    }
    ledger.begin_table(&plan, &directory)?;
    let bar = bar(ledger.progress());
    let watch = |progress: Progress| {
        bar.set_length(progress.expected);
        bar.set_position(progress.done);
    };
    let outcome = engine::run(&plan, ledger, jobs, &stop, &watch);
    bar.finish_and_clear();
    let runs = match outcome? {
        Outcome::Complete(runs) => runs,
        Outcome::Interrupted(progress) => return Err(interrupted(progress)),
    };
    let all = Progress { done: runs.len() as u64, expected: runs.len() as u64 };
    let text = table_of_results(&plan, &runs, jobs, &directory, &stop).map_err(|error| match error {
        DirectoryError::Findings(FindingsError::Stopped) => interrupted(all),
        error => error.into(),
    })?;
    directory.write_manifest(&Manifest {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        seed: Some(plan.scenario.seed()),
        command_line: std::env::args_os().map(|argument| argument.to_string_lossy().into_owned()).collect(),
        started_at: utc(began.0).0,
        took_s: began.1.elapsed().as_secs_f64(),
    })?;
    if args.json {
        return Ok(Printed::File(directory.summary()));
    }
    Ok(Printed::Text(format!("{text}\n{} runs; the results are in {}\n", runs.len(), directory.path().display())))
}

/// Writes the results. Returns those of the first points as a table.
fn table_of_results(
    plan: &Plan,
    runs: &FinishedRuns,
    jobs: usize,
    directory: &SweepDir,
    stop: &AtomicBool,
) -> Result<String, DirectoryError> {
    let findings = Findings::new(plan, runs, jobs, stop)?;
    let template = "{bar:40} {pos} of {len} points written, {elapsed_precise}, {eta} left";
    let bar = progress_bar(template, plan.points() as u64);
    let mut table = Table::new(plan);
    directory.write_results(plan, &findings, |found| {
        table.push(found);
        bar.inc(1);
    })?;
    bar.finish_and_clear();
    Ok(table.finish(findings.tests_made()))
}

fn directory(args: &SweepArgs, plan: &Plan, now: SystemTime) -> Result<SweepDir, DirectoryError> {
    match &args.out {
        Some(path) => SweepDir::at(path, args.resume),
        None if args.resume => SweepDir::latest(Path::new(RESULTS), &plan.header()),
        None => SweepDir::create_new(Path::new(RESULTS), plan.name(), &utc(now).1),
    }
}

fn bar(progress: Progress) -> ProgressBar {
    let template = "{bar:40} {pos} of about {len} runs, {elapsed_precise}, {eta} left";
    let bar = progress_bar(template, progress.expected).with_position(progress.done);
    // Runs of an earlier part of the sweep do not count for this one's speed.
    bar.reset_eta();
    bar
}

/// Hidden unless standard error is a terminal.
fn progress_bar(template: &str, len: u64) -> ProgressBar {
    let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    let bar = ProgressBar::new(len).with_style(style);
    bar.enable_steady_tick(Duration::from_millis(500));
    bar
}

/// More rows than a terminal shows.
const MAX_ROWS: usize = 60;

/// The summary for people: the deciding mean of each variant at each point, and its comparison.
struct Table<'a> {
    plan: &'a Plan,
    rows: Vec<Vec<String>>,
    /// Runs in which a flow did not complete, over all cells.
    incomplete: usize,
    runs: usize,
    /// A comparison covers only the runs in pairs.
    has_unpaired: bool,
}

impl<'a> Table<'a> {
    fn new(plan: &'a Plan) -> Self {
        let mut header: Vec<String> = plan.sweep.axes().iter().map(|axis| axis.label.clone()).collect();
        header.extend(["variant".to_owned(), "runs".to_owned(), plan.quantities[0].title()]);
        if let Some(compare) = plan.compare() {
            let compared = plan.quantities[plan.quantity(&compare.measure)].title();
            header.push(format!("{compared} against {}", compare.baseline));
        }
        Self { plan, rows: vec![header], incomplete: 0, runs: 0, has_unpaired: false }
    }

    /// Adds the rows of a point, as far as there is room.
    fn push(&mut self, found: &PointFindings<'_>) {
        self.runs += found.cells.iter().map(|cell| cell.runs).sum::<usize>();
        self.incomplete += found.cells.iter().map(|cell| cell.runs - cell.completed).sum::<usize>();
        self.has_unpaired |= found.comparisons.iter().any(|comparison| {
            let runs = comparison.means.map(|mean| mean.count());
            comparison.method == Method::Paired && runs.iter().any(|&runs| runs > comparison.pairs)
        });
        let room = (MAX_ROWS + 1).saturating_sub(self.rows.len());
        for (cell, variant) in found.cells.iter().zip(&self.plan.variants).take(room) {
            let mut row: Vec<String> = found.point.labels.iter().map(|label| label.value.clone()).collect();
            row.extend(of_cell(self.plan, variant, cell));
            let comparison = found.comparisons.iter().find(|comparison| comparison.variant == variant);
            if let (Some(comparison), Some(compare)) = (comparison, self.plan.compare()) {
                let unit = self.plan.quantities[self.plan.quantity(&compare.measure)].unit();
                row.push(compared(comparison, unit));
            }
            self.rows.push(row);
        }
    }

    /// The table as text, when `tests` tests were made.
    fn finish(self, tests: usize) -> String {
        let mut text = table(&self.rows);
        let more = self.plan.cells().saturating_sub(MAX_ROWS);
        if more > 0 {
            let _ = writeln!(text, "... and {more} rows more in points.csv");
        }
        if self.rows.iter().any(|row| row.iter().any(|cell| cell.ends_with('!'))) {
            let most = self.plan.stop.max;
            let _ = writeln!(
                text,
                "! the mean is not known as well as was asked for after {most} runs (sweep.replicate.max)"
            );
        }
        if self.incomplete > 0 {
            let _ = writeln!(
                text,
                "in {} of {} runs a flow did not come to its end: its duration and rates are those until then (completed in points.csv)",
                self.incomplete, self.runs
            );
        }
        if self.rows.iter().any(|row| row.iter().any(|cell| cell.contains('±'))) {
            let _ = writeln!(text, "± is half the 95 % confidence interval of a mean or a difference");
        }
        if let Some(compare) = self.plan.compare() {
            let _ = writeln!(text, "compared by: {}", method_in_words(compare.method, tests));
        }
        if self.has_unpaired {
            let _ = writeln!(text, "differences are of the runs in pairs alone (pairs in tests.csv)");
        }
        text
    }
}

/// Variant, runs, and mean of a cell.
fn of_cell(plan: &Plan, variant: &str, cell: &CellFindings) -> [String; 3] {
    let unit = plan.quantities[0].unit();
    let mean = cell.deciding();
    let imprecise = cell.precise_enough(plan) == Some(false);
    let known = match (mean.count(), mean.half_width()) {
        (0, _) => "-".to_owned(),
        (_, None) => human(mean.mean(), unit),
        (_, Some(_)) if mean.is_constant() == Some(true) => match cell.is_random {
            true => format!("{} in all {} runs", human(mean.mean(), unit), mean.count()),
            false => format!("{} in every run", human(mean.mean(), unit)),
        },
        (_, Some(half_width)) => format!("{} ± {}", human(mean.mean(), unit), human(half_width, unit)),
    };
    [variant.to_owned(), format!("{}{}", cell.runs, if imprecise { "!" } else { "" }), known]
}

/// A comparison in a line: `+1.2 Mbit/s ± 310 kbit/s (+12.5 %), effect 2.1, p = 0.003, higher`.
fn compared(comparison: &Comparison<'_>, unit: &str) -> String {
    let Some(found) = comparison.found else { return comparison.verdict.name().to_owned() };
    let sign = if found.difference < 0.0 { "-" } else { "+" };
    let base = comparison.base;
    let share = if base == 0.0 { String::new() } else { format!(" ({:+.1} %)", found.difference / base * 100.0) };
    let sure = match (found.test, comparison.p_holm) {
        (Some(test), Some(p)) => {
            let p = if p < 0.001 { "p < 0.001".to_owned() } else { format!("p = {p:.3}") };
            let effect = test.effect.map_or_else(String::new, |effect| format!("effect {effect:.1}, "));
            format!("{effect}{p}, ")
        }
        _ => String::new(),
    };
    let margin = found.test.map_or_else(String::new, |test| format!(" ± {}", human(test.half_width, unit)));
    format!("{sign}{}{margin}{share}, {sure}{}", human(found.difference.abs(), unit), comparison.verdict.name())
}

/// A number with four digits and its unit: `9.411 Mbit/s`, `250 ms`, `12`.
fn human(value: f64, unit: &str) -> String {
    let (factor, prefix) = match (unit, value.abs()) {
        ("bit/s" | "bytes", size) if size >= 1e9 => (1e9, "G"),
        ("bit/s" | "bytes", size) if size >= 1e6 => (1e6, "M"),
        ("bit/s" | "bytes", size) if size >= 1e3 => (1e3, "k"),
        ("s", size) if size > 0.0 && size < 1.0 => (1e-3, "m"),
        _ => (1.0, ""),
    };
    let unit = if unit == "bytes" && !prefix.is_empty() { "B" } else { unit };
    let number = value / factor;
    let digits = if number == 0.0 { 0 } else { (3 - number.abs().log10().floor() as i32).clamp(0, 6) as usize };
    let text = format!("{number:.digits$}");
    let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    format!("{text} {prefix}{unit}").trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short_and_have_their_unit() {
        assert_eq!(human(9_411_234.0, "bit/s"), "9.411 Mbit/s");
        assert_eq!(human(0.025, "s"), "25 ms");
        assert_eq!(human(12.5, "s"), "12.5 s");
        assert_eq!(human(12_345.0, "bytes"), "12.35 kB");
        assert_eq!(human(900.0, "bytes"), "900 bytes");
        assert_eq!(human(0.5, ""), "0.5");
        assert_eq!(human(0.0, "bit/s"), "0 bit/s");
    }
}
