//! `holdover run`: runs every variant of a scenario, in the simulator or on real kernels, and writes down what happened.

mod bar;
mod kernel;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Instant, SystemTime};

use clap::Args;
use holdover_lab::run::{
    AS_DESCRIBED, Done, KernelError, RunError, Runs, new_results_directory, plot_kinds, recorder_options,
    results_directory, warnings, write_report, write_scenario,
};
use holdover_report::{ExportFormat, Manifest, RecordError, RecorderOptions, ResultsDir, ResultsError, Summary};
use holdover_scenario::ScenarioError;
use holdover_sim::WorldConfig;

use self::bar::Bar;
use crate::command_support::{
    INTERRUPTED, open_scenario, print, print_error, print_interruption, print_note, print_scenario_error,
    stop_on_signals, terminal_width, utc, within,
};

/// Arguments of `holdover run`.
#[derive(Args, Debug)]
pub(crate) struct RunArgs {
    /// A scenario file, or the name of a built-in scenario.
    scenario: String,
    /// Change a field, as link.radio.delay="50 ms" (repeatable).
    #[arg(long, value_name = "PATH=VALUE")]
    set: Vec<String>,
    /// The seed of all random draws, in place of the scenario's.
    #[arg(long, value_name = "N", value_parser = within(0_u64..=i64::MAX.cast_unsigned()))]
    seed: Option<u64>,
    /// The directory for the results, new or empty; default: a new one below results/.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Replace the results of an earlier run in DIR.
    #[arg(long, requires = "out")]
    force: bool,
    /// Print summary.json instead of a table.
    #[arg(long)]
    json: bool,
    /// Write no captures.
    #[arg(long)]
    no_captures: bool,
    /// Draw no plots.
    #[arg(long)]
    no_plots: bool,
    /// Also write formats of other programs: qlog, xplot (tcptrace's), flowmon (ns-3's flow monitor).
    #[arg(long, value_name = "FORMAT", value_delimiter = ',')]
    export: Vec<ExportFormat>,
    /// Show no progress, and print nothing but errors (and the JSON, if asked for).
    #[arg(long)]
    quiet: bool,
    /// The number of variants that run concurrently; default: the number of cores.
    #[arg(long, value_name = "N", value_parser = within(1_u16..=1024))]
    jobs: Option<u16>,
    #[command(flatten)]
    kernel: kernel::KernelArgs,
}

/// Why there are no results.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CommandError {
    /// The scenario cannot be run.
    #[error("{0}")]
    Scenario(#[from] ScenarioError),
    /// An argument makes no sense without another one.
    #[error("{0}")]
    NotAsked(#[from] kernel::NotAsked),
    /// The directory cannot take results.
    #[error("{0}")]
    Results(#[from] ResultsError),
    /// A file could not be written.
    #[error("{0}")]
    Record(#[from] RecordError),
    /// Ctrl-C cannot be caught.
    #[error("cannot watch for Ctrl-C: {0}")]
    Signals(std::io::Error),
    /// A variant could not be run.
    #[error("{0}")]
    Run(#[from] RunError),
}

impl CommandError {
    /// 2 for invalid input, 1 for a failure.
    fn exit_code(&self) -> ExitCode {
        match self {
            Self::Scenario(_)
            | Self::NotAsked(_)
            | Self::Run(
                RunError::World { .. } | RunError::Kernel(KernelError::NoSuchHost(_) | KernelError::NoVariant(_)),
            )
            | Self::Results(
                ResultsError::NotEmpty { .. }
                | ResultsError::NotADirectory { .. }
                | ResultsError::NotOfARun { .. }
                | ResultsError::NameOfAResult { .. },
            ) => ExitCode::from(2),
            Self::Run(RunError::Interrupted) => ExitCode::from(INTERRUPTED),
            Self::Results(_) | Self::Record(_) | Self::Signals(_) | Self::Run(_) => ExitCode::FAILURE,
        }
    }
}

/// Runs and reports.
pub(crate) fn run(args: &RunArgs) -> ExitCode {
    match try_run(args) {
        Ok(text) => print(&text),
        Err(error) => {
            match &error {
                CommandError::Scenario(error) => print_scenario_error(error),
                CommandError::Run(RunError::Interrupted) => print_interruption(&error),
                error => print_error(&error),
            }
            error.exit_code()
        }
    }
}

fn try_run(args: &RunArgs) -> Result<String, CommandError> {
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
    let stop = stop_on_signals().map_err(CommandError::Signals)?;
    let results = match &args.out {
        Some(dir) => results_directory(dir, args.force, &scenario)?,
        None => new_results_directory(Path::new("results"), &name, &started_at.1, &scenario)?,
    };
    let jobs = args.jobs.map_or_else(|| std::thread::available_parallelism().map_or(1, usize::from), usize::from);
    let exports = args.export.clone();
    let runs = Runs {
        names: &names,
        worlds: &worlds,
        simulate: args.kernel.simulate(),
        kernels: kernels.as_ref(),
        options: RecorderOptions { exports, ..recorder_options(scenario.output(), !args.no_captures) },
        jobs,
        equip: AS_DESCRIBED,
    };
    let mut bar = Bar::new(!args.quiet);
    let done = runs.run(&results, &stop, &mut |parts| bar.show(parts));
    bar.finish();
    let discard = |error: CommandError| results.discard().map_or_else(CommandError::from, |()| error);
    let Done { variants: done, worlds, records } = done.map_err(|error| discard(error.into()))?;

    let summary = Summary {
        name,
        title: scenario.title().to_owned(),
        description: scenario.description().unwrap_or_default().trim().to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        seed,
        variants: done,
    };
    let kinds = if args.no_plots { Vec::new() } else { plot_kinds(scenario.output()) };
    let write = || {
        write_scenario(&results, &scenario)?;
        write_report(&results, &scenario, &summary, &worlds, &records, &kinds, jobs)?;
        results.write_summary(&summary)?;
        results.write_manifest(&Manifest {
            version: summary.version.clone(),
            seed: Some(seed),
            command_line: std::env::args_os().map(|argument| argument.to_string_lossy().into_owned()).collect(),
            started_at: started_at.0,
            took_s: started.elapsed().as_secs_f64(),
        })
    };
    write().map_err(|error: RecordError| discard(error.into()))?;
    Ok(shown(args, &results, &summary))
}

/// The file's name without its ending.
fn name_of(scenario: &str) -> String {
    Path::new(scenario).file_stem().map_or_else(|| scenario.to_owned(), |stem| stem.to_string_lossy().into_owned())
}

/// Prints the summary, for people or programs.
fn shown(args: &RunArgs, results: &ResultsDir, summary: &Summary) -> String {
    let report = results.path().join("report.html");
    if args.json {
        if !args.quiet {
            print_note(&format_args!("Report: {}", report.display()));
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
    for warning in warnings(summary) {
        text.push_str(&format!("{warning}\n"));
    }
    for variant in summary.variants.iter().filter(|variant| !variant.cut_captures.is_empty()) {
        let cut = variant.cut_captures.join(", ");
        text.push_str(&format!("{}: captures that reached their limit: {cut}\n", variant.variant));
    }
    text.push_str(&format!("Report: {}\n", report.display()));
    text
}
