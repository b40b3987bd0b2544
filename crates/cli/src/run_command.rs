//! `holdover run`: runs every variant of a scenario, in the simulator or on real kernels, and writes down what happened.

mod kernel;
mod simulate;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;
use std::time::{Instant, SystemTime};

use clap::Args;
use holdover_lab::run::{Plan, SimulateError, plot_kinds, recorder_options, write_report, write_scenario};
use holdover_report::{
    ExportFormat, Manifest, Record, RecordError, RecorderOptions, ResultsDir, ResultsError, Summary, VariantSummary,
};
use holdover_scenario::{Output, ScenarioError};
use holdover_sim::{WorldConfig, WorldError};

use crate::command_support::{
    INTERRUPTED, open_scenario, print, print_error, print_scenario_error, stop_on_signals, terminal_width, utc,
};

/// Arguments of `holdover run`.
#[derive(Args, Debug)]
pub(crate) struct RunArgs {
    /// A scenario file, or the name of a built-in scenario.
    scenario: String,
    /// Change a field, as link.radio.delay="50 ms" (repeatable).
    #[arg(long, value_name = "PATH=VALUE")]
    set: Vec<String>,
    /// What everything random is drawn from, in place of the scenario's seed.
    #[arg(long, value_parser = clap::value_parser!(u64).range(..=i64::MAX as u64))]
    seed: Option<u64>,
    /// Where results go: a new or empty directory. Without it, a new one below results/.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Replace the results of an earlier run in DIR.
    #[arg(long, requires = "out")]
    force: bool,
    /// Print summary.json in place of a table.
    #[arg(long)]
    json: bool,
    /// Write no captures.
    #[arg(long)]
    no_captures: bool,
    /// Draw no plots.
    #[arg(long)]
    no_plots: bool,
    /// Write formats of other programs as well: qlog, xplot (tcptrace's), flowmon (ns-3's flow monitor).
    #[arg(long, value_name = "FORMAT", value_delimiter = ',')]
    export: Vec<ExportFormat>,
    /// Show no progress, and print nothing but errors (and the JSON, if asked for).
    #[arg(long)]
    quiet: bool,
    /// How many variants are run at the same time; as many as there are cores if not given.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    jobs: Option<u16>,
    #[command(flatten)]
    kernel: kernel::KernelArgs,
}

/// Why there are no results.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RunError {
    /// The scenario cannot be run.
    #[error("{0}")]
    Scenario(#[from] ScenarioError),
    /// A world cannot be built.
    #[error("variant {variant}: {error}")]
    World {
        /// The variant.
        variant: String,
        /// Why.
        error: WorldError,
    },
    /// The directory cannot take results.
    #[error("{0}")]
    Results(#[from] ResultsError),
    /// A file could not be written.
    #[error("{0}")]
    Record(#[from] RecordError),
    /// Ctrl-C cannot be caught.
    #[error("cannot watch for Ctrl-C: {0}")]
    Signals(std::io::Error),
    /// Kernels cannot be used.
    #[error("{0}")]
    Kernel(#[from] kernel::KernelError),
    /// Somebody had enough of it.
    #[error("interrupted; nothing was kept")]
    Interrupted,
}

impl RunError {
    /// 2 for what somebody has to write differently, 1 for what failed.
    fn exit_code(&self) -> ExitCode {
        match self {
            Self::Scenario(_) | Self::World { .. } => ExitCode::from(2),
            Self::Kernel(error) => error.exit_code(),
            Self::Results(
                ResultsError::NotEmpty { .. } | ResultsError::NotADirectory { .. } | ResultsError::NotOfARun { .. },
            ) => ExitCode::from(2),
            Self::Results(_) | Self::Record(_) | Self::Signals(_) => ExitCode::FAILURE,
            Self::Interrupted => ExitCode::from(INTERRUPTED),
        }
    }
}

impl From<SimulateError> for RunError {
    fn from(error: SimulateError) -> Self {
        match error {
            SimulateError::World { variant, error } => Self::World { variant, error },
            SimulateError::Record(error) => Self::Record(error),
            SimulateError::Interrupted => Self::Interrupted,
        }
    }
}

/// Runs and reports.
pub(crate) fn run(args: &RunArgs) -> ExitCode {
    match try_run(args) {
        Ok(text) => print(&text),
        Err(error) => {
            match &error {
                RunError::Scenario(error) => print_scenario_error(error),
                RunError::Interrupted => eprintln!("{error}"),
                error => print_error(&error),
            }
            error.exit_code()
        }
    }
}

fn try_run(args: &RunArgs) -> Result<String, RunError> {
    let started = Instant::now();
    let started_at = utc(SystemTime::now());
    let scenario = open_scenario(&args.scenario, &args.set, args.seed)?;
    let seed = scenario.seed();
    let variants = scenario.variants();
    let worlds: Vec<WorldConfig> =
        variants.iter().map(|variant| variant.world(seed)).collect::<Result<_, ScenarioError>>()?;
    let names: Vec<&str> = variants.iter().map(|variant| variant.name()).collect();
    // Before the first thread is started.
    let kernels = args.kernel.prepare(&names, &worlds)?;
    let name = name_of(&args.scenario);
    let stop = stop_on_signals().map_err(RunError::Signals)?;
    let results = match &args.out {
        Some(dir) => ResultsDir::create(dir, args.force)?,
        None => ResultsDir::create_new(Path::new("results"), &name, &started_at.1)?,
    };
    let jobs = args.jobs.map_or_else(|| std::thread::available_parallelism().map_or(1, usize::from), usize::from);
    let tasks = Tasks { args, names: &names, worlds: &worlds, kernels: &kernels, jobs, stop: &stop };
    let Done { variants: done, worlds, records } = tasks.run(&results, scenario.output()).or_else(|error| {
        results.discard()?;
        Err(error)
    })?;

    let summary = Summary {
        name,
        title: scenario.title().to_owned(),
        description: scenario.description().unwrap_or_default().trim().to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        seed,
        variants: done,
    };
    write_scenario(&results, &scenario)?;
    let kinds = if args.no_plots { Vec::new() } else { plot_kinds(scenario.output()) };
    write_report(&results, &scenario, &summary, &worlds, &records, &kinds, jobs)?;
    results.write_summary(&summary)?;
    results.write_manifest(&Manifest {
        version: summary.version.clone(),
        seed: Some(seed),
        command_line: std::env::args_os().map(|argument| argument.to_string_lossy().into_owned()).collect(),
        started_at: started_at.0,
        took_s: started.elapsed().as_secs_f64(),
    })?;
    Ok(shown(args, &results, &summary))
}

/// What is to be run.
struct Tasks<'a> {
    args: &'a RunArgs,
    names: &'a [&'a str],
    worlds: &'a [WorldConfig],
    kernels: &'a kernel::Kernels,
    jobs: usize,
    stop: &'a AtomicBool,
}

/// What came of it: variants in the order of the scenario, the kernel's after the simulator's.
struct Done {
    variants: Vec<VariantSummary>,
    worlds: Vec<WorldConfig>,
    records: Vec<Record>,
}

impl Tasks<'_> {
    fn run(&self, results: &ResultsDir, output: &Output) -> Result<Done, RunError> {
        let exports = self.args.export.clone();
        let options = RecorderOptions { exports, ..recorder_options(output, !self.args.no_captures) };
        let simulated = if self.kernels.with_simulator { self.names } else { &[] };
        let on_kernels = self.kernels.names(self.names);
        let all = simulated.iter().copied().chain(on_kernels.iter().map(String::as_str));
        let directories = ResultsDir::variant_directories(all);
        let (of_simulator, of_kernels) = directories.split_at(simulated.len());
        let plan = Plan {
            names: simulated,
            worlds: &self.worlds[..simulated.len()],
            directories: of_simulator.iter().map(|directory| results.path().join(directory)).collect(),
            options: options.clone(),
        };
        let show_progress = !self.args.quiet;
        let records = simulate::all(&plan, self.jobs, show_progress, self.stop)?;
        let (summaries, kernel_records) = if self.kernels.variants.is_empty() {
            (Vec::new(), Vec::new())
        } else {
            let plan = kernel::Plan {
                kernels: self.kernels,
                names: self.names,
                worlds: self.worlds,
                directories: of_kernels,
                results: results.path(),
                options,
                jobs: self.jobs,
            };
            kernel::all(&plan, show_progress, self.stop)?
        };
        let mut done = Done { variants: Vec::new(), worlds: Vec::new(), records: Vec::new() };
        let mut simulated = simulated.iter().zip(of_simulator).zip(records);
        let mut real = self.kernels.variants.iter().zip(summaries).zip(kernel_records).peekable();
        for (index, world) in self.worlds.iter().enumerate() {
            if let Some(((name, directory), record)) = simulated.next() {
                done.push(VariantSummary::new(name, directory, &record), world, record);
            }
            if let Some(((_, summary), record)) = real.next_if(|((variant, _), _)| **variant == index) {
                done.push(summary, world, record);
            }
        }
        Ok(done)
    }
}

impl Done {
    fn push(&mut self, summary: VariantSummary, world: &WorldConfig, record: Record) {
        self.variants.push(summary);
        self.worlds.push(world.clone());
        self.records.push(record);
    }
}

/// The file's name without its ending.
fn name_of(scenario: &str) -> String {
    Path::new(scenario).file_stem().map_or_else(|| scenario.to_owned(), |stem| stem.to_string_lossy().into_owned())
}

/// What a person or a program wants to see.
fn shown(args: &RunArgs, results: &ResultsDir, summary: &Summary) -> String {
    let report = results.path().join("report.html");
    if args.json {
        if !args.quiet {
            eprintln!("Report: {}", report.display());
        }
        return summary.to_json();
    }
    if args.quiet {
        return String::new();
    }
    let width = terminal_width().unwrap_or(160);
    let mut text = format!("{} (seed {})\n\n{}", summary.title, summary.seed, summary.to_text(width));
    let differences = summary.differences_to_text();
    if !differences.is_empty() {
        text.push_str(&format!("{differences}\n"));
    }
    for warning in kernel::warnings(summary) {
        text.push_str(&format!("{warning}\n"));
    }
    for variant in summary.variants.iter().filter(|variant| !variant.cut_captures.is_empty()) {
        let cut = variant.cut_captures.join(", ");
        text.push_str(&format!("{}: captures that reached their limit: {cut}\n", variant.variant));
    }
    text.push_str(&format!("Report: {}\n", report.display()));
    text
}
