//! `holdover scenario`: check scenario files, print their schema, list and copy the built-in ones.

mod trace;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Subcommand};
use holdover_scenario::{Builtin, Scenario, ScenarioError};
use holdover_sim::Role;
use serde::Serialize;

use crate::command_support::{
    open_scenario, print, print_error, print_json, print_note, print_scenario_error, terminal_width,
};
use crate::text_table::columns;

/// Arguments of `holdover scenario`.
#[derive(Args, Debug)]
pub(crate) struct ScenarioArgs {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Check and summarize a scenario, or print its first error with its position.
    ///
    /// The whole file is checked, including its variants, the values of its sweep and its traces; nothing is run.
    /// Warnings name flows that stop with a link although another path exists. The exit code is 0 if it can be run, and
    /// 2 if not.
    Check(CheckArgs),
    /// Print the JSON schema of scenario files, for editors and other programs.
    ///
    /// An editor that knows TOML schemas completes and checks scenario files with it: write it to a file, and name that file
    /// in the first line of the scenario: #:schema ./scenario.schema.json
    Schema,
    /// List the built-in scenarios. They run by name: holdover run train-tunnel
    List(ListArgs),
    /// Print a built-in scenario.
    Show(ShowArgs),
    /// Copy a built-in scenario and its traces, as a template.
    Copy(CopyArgs),
    /// Make a link's trace from a capture: rate, round trip, losses and outages of its largest transfer.
    ///
    /// The table has one row for each interval and for each end of an outage; a link replays it with trace = "FILE".
    /// The rate is the path's capacity only where the path had a queue, and a lower bound elsewhere.
    Trace(trace::TraceArgs),
}

#[derive(Args, Debug)]
struct CheckArgs {
    /// A scenario file, or the name of a built-in scenario.
    #[arg(value_name = "FILE")]
    scenario: String,
    /// Change a field first, as for `holdover run`: link.radio.delay="50 ms"
    #[arg(long, value_name = "PATH=VALUE")]
    set: Vec<String>,
    /// Print JSON: the summary, or the error with file, line, column and field.
    #[arg(long)]
    json: bool,
}

#[derive(Args, Debug)]
struct ListArgs {
    /// Print JSON instead of a table.
    #[arg(long)]
    json: bool,
}

#[derive(Args, Debug)]
struct ShowArgs {
    /// The name of a built-in scenario.
    #[arg(value_name = "NAME", value_parser = builtin)]
    builtin: &'static Builtin,
}

#[derive(Args, Debug)]
struct CopyArgs {
    /// The name of a built-in scenario.
    #[arg(value_name = "NAME", value_parser = builtin)]
    builtin: &'static Builtin,
    /// The directory. Existing files are not overwritten.
    #[arg(value_name = "DIR", default_value = ".")]
    directory: PathBuf,
}

/// The output of `check --json`.
#[derive(Serialize)]
struct Checked {
    ok: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    scenario: Option<Contents>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<ScenarioError>,
}

/// A summary of a scenario.
#[derive(Serialize)]
struct Contents {
    file: String,
    title: String,
    seed: u64,
    time_limit_s: f64,
    hosts: Vec<String>,
    routers: Vec<String>,
    links: Vec<String>,
    cells: Vec<String>,
    flows: usize,
    variants: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sweep: Option<SweepContents>,
    traces: Vec<String>,
    warnings: Vec<String>,
}

#[derive(Serialize)]
struct SweepContents {
    axes: Vec<String>,
    points: usize,
}

/// A built-in scenario, as `list --json` prints it.
#[derive(Serialize)]
struct Listed {
    name: &'static str,
    title: String,
    variants: Vec<String>,
}

pub(crate) fn run(args: &ScenarioArgs) -> ExitCode {
    match &args.command {
        Command::Check(args) => check(args),
        Command::Schema => print(&holdover_scenario::schema()),
        Command::List(args) => list(args),
        Command::Show(args) => print(args.builtin.text),
        Command::Copy(args) => copy(args),
        Command::Trace(args) => trace::run(args),
    }
}

fn builtin(name: &str) -> Result<&'static Builtin, String> {
    Builtin::find(name).ok_or_else(|| {
        let names: Vec<&str> = Builtin::ALL.iter().map(|builtin| builtin.name).collect();
        format!("there are {}", names.join(", "))
    })
}

fn check(args: &CheckArgs) -> ExitCode {
    let contents = open_scenario(&args.scenario, &args.set, None).and_then(|scenario| Contents::new(&scenario));
    let code = if contents.is_ok() { ExitCode::SUCCESS } else { ExitCode::from(2) };
    if args.json {
        let (scenario, error) = match contents {
            Ok(contents) => (Some(contents), None),
            Err(error) => (None, Some(error)),
        };
        let printed = print_json(&Checked { ok: error.is_none(), scenario, error });
        return if printed == ExitCode::SUCCESS { code } else { printed };
    }
    match contents {
        Ok(contents) => {
            contents.warnings.iter().for_each(|warning| print_note(&format_args!("warning: {warning}")));
            print(&contents.text())
        }
        Err(error) => {
            print_scenario_error(&error);
            code
        }
    }
}

impl Contents {
    fn new(scenario: &Scenario) -> Result<Self, ScenarioError> {
        let variants = scenario.variants();
        // A scenario has at least one variant, and all have the same nodes and links.
        let world = variants[0].world(scenario.seed())?;
        let nodes = |role| world.nodes.iter().filter(move |node| node.role == role).map(|node| node.name.clone());
        Ok(Self {
            file: scenario.name().to_owned(),
            title: scenario.title().to_owned(),
            seed: scenario.seed(),
            time_limit_s: world.time_limit.as_secs_f64(),
            hosts: nodes(Role::Host).collect(),
            routers: nodes(Role::Router).collect(),
            links: world.links.iter().map(|link| link.name.clone()).collect(),
            cells: world.cells.iter().map(|cell| cell.name.clone()).collect(),
            flows: world.flows.len(),
            variants: variants.iter().map(|variant| variant.name().to_owned()).collect(),
            sweep: scenario.sweep().map(|sweep| SweepContents {
                axes: sweep.axes().iter().map(|axis| axis.label.clone()).collect(),
                points: sweep.len(),
            }),
            traces: scenario.files().map(|(name, _)| name.to_owned()).collect(),
            warnings: scenario.warnings()?,
        })
    }

    fn text(&self) -> String {
        let mut text = format!("{}: {}\n", self.file, self.title);
        let mut row = |what: &str, names: &[String]| {
            if !names.is_empty() {
                text.push_str(&format!("  {what:<9} {}\n", names.join(", ")));
            }
        };
        row("hosts", &self.hosts);
        row("routers", &self.routers);
        row("links", &self.links);
        row("cells", &self.cells);
        row("flows", &[self.flows.to_string()]);
        row("variants", &self.variants);
        if let Some(sweep) = &self.sweep {
            row("sweep", &[format!("{} points over {}", sweep.points, sweep.axes.join(", "))]);
        }
        row("traces", &self.traces);
        row("at most", &[format!("{} s, seed {}", self.time_limit_s, self.seed)]);
        text
    }
}

fn list(args: &ListArgs) -> ExitCode {
    let mut scenarios = Vec::with_capacity(Builtin::ALL.len());
    for builtin in Builtin::ALL {
        match builtin.scenario() {
            Ok(scenario) => scenarios.push(Listed {
                name: builtin.name,
                title: scenario.title().to_owned(),
                variants: scenario.variants().iter().map(|variant| variant.name().to_owned()).collect(),
            }),
            Err(error) => {
                print_scenario_error(&error);
                return ExitCode::FAILURE;
            }
        }
    }
    if args.json {
        return print_json(&scenarios);
    }
    let rows =
        scenarios.iter().map(|listed| [listed.name.to_owned(), listed.title.clone(), listed.variants.join(", ")]);
    let text = columns(["scenario", "title", "variants"], rows);
    // Programs that read it expect a scenario in each line.
    let lines =
        if terminal_width().is_some() { text.as_str() } else { text.split_once('\n').map_or("", |(_, rows)| rows) };
    print(lines)
}

fn copy(args: &CopyArgs) -> ExitCode {
    let scenario = (format!("{}.toml", args.builtin.name), args.builtin.text);
    let traces = args.builtin.files.iter().map(|(name, text)| ((*name).to_owned(), *text));
    let mut written = String::new();
    for (name, text) in core::iter::once(scenario).chain(traces) {
        let path = args.directory.join(name);
        if let Err(error) = write_new(&path, text) {
            print_error(&format_args!("{} cannot be written: {error}", path.display()));
            return ExitCode::FAILURE;
        }
        written.push_str(&format!("{}\n", path.display()));
    }
    print(&written)
}

fn write_new(path: &Path, text: &str) -> std::io::Result<()> {
    if let Some(directory) = path.parent() {
        std::fs::create_dir_all(directory)?;
    }
    std::fs::File::create_new(path)?.write_all(text.as_bytes())
}
