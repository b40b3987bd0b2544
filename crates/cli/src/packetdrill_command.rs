//! `holdover packetdrill`: packetdrill scripts against Holdover's TCP.

mod table;

use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use holdover_packetdrill::{IpVersion, Report, RunOptions, Script, ScriptError, Verdict, default_defines};
use holdover_tcp::Profile;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;

use crate::command_support::{print, print_error, print_json};

/// Arguments of `holdover packetdrill`.
#[derive(Args, Debug)]
pub(crate) struct PacketdrillArgs {
    /// Scripts, and directories in which every `.pkt` file is one.
    #[arg(required = true, value_name = "FILE|DIRECTORY")]
    paths: Vec<PathBuf>,
    /// The stack. Without it, linux-6-cubic or linux-6-reno, as the script's congestion control says.
    #[arg(long, value_name = "PROFILE", value_parser = profile)]
    profile: Option<Profile>,
    /// The addresses to run with, several separated by commas: ipv4, ipv6, ipv4-mapped-ipv6. A script that names its own runs with those.
    #[arg(long, value_name = "VERSIONS", value_delimiter = ',', default_value = "ipv4", value_parser = ip_version)]
    ip_version: Vec<IpVersion>,
    /// Define a name in scripts, as packetdrill's --define.
    #[arg(short = 'D', long, value_name = "NAME=VALUE", value_parser = define)]
    define: Vec<(String, String)>,
    /// The tolerance of event times, in microseconds, unless the script sets it.
    #[arg(long, value_name = "USECS")]
    tolerance_usecs: Option<u64>,
    /// Also print the settings of scripts that were ignored.
    #[arg(long)]
    notes: bool,
    /// Print JSON: every script with its verdict, differences and reason.
    #[arg(long)]
    json: bool,
}

/// The result of a script under one IP version.
#[derive(Serialize)]
struct Outcome {
    /// The directory, the group in the table.
    directory: String,
    file: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    report: Option<Report>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<FileError>,
}

/// A script that could not be parsed.
#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
enum FileError {
    Read(String),
    Script(ScriptError),
}

pub(crate) fn run(args: &PacketdrillArgs) -> ExitCode {
    let mut files = Vec::new();
    for path in &args.paths {
        if let Err(error) = collect(path, &mut files) {
            print_error(&format_args!("{}: {error}", path.display()));
            return ExitCode::from(2);
        }
    }
    if files.is_empty() {
        print_error(&"no script: a script's name ends with .pkt");
        return ExitCode::from(2);
    }
    let outcomes = run_all(args, &files);
    let printed = if args.json { print_json(&outcomes) } else { print(&table::text(&outcomes, args.notes)) };
    let is_bad = outcomes.iter().any(|outcome| outcome.error.is_some());
    let differs = outcomes.iter().any(|outcome| outcome.verdict() == Some(Verdict::Differs));
    match (is_bad, differs) {
        (true, _) => ExitCode::from(2),
        (false, true) => ExitCode::FAILURE,
        (false, false) => printed,
    }
}

fn profile(name: &str) -> Result<Profile, String> {
    name.parse().map_err(|error: holdover_tcp::UnknownProfile| error.to_string())
}

fn ip_version(name: &str) -> Result<IpVersion, String> {
    IpVersion::from_name(name).ok_or_else(|| {
        let names = IpVersion::ALL.map(IpVersion::name);
        format!("there are {}", names.join(", "))
    })
}

fn define(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("a definition is NAME=VALUE")?;
    Ok((name.to_owned(), value.to_owned()))
}

/// The scripts below a path, in the order of their names.
fn collect(path: &Path, files: &mut Vec<PathBuf>) -> std::io::Result<()> {
    if !path.is_dir() {
        std::fs::metadata(path)?;
        files.push(path.to_owned());
        return Ok(());
    }
    let mut entries = std::fs::read_dir(path)?.map(|entry| Ok(entry?.path())).collect::<std::io::Result<Vec<_>>>()?;
    entries.sort();
    for entry in entries {
        // A link may lead back up.
        let is_linked_directory = entry.is_symlink() && entry.is_dir();
        if entry.extension().is_some_and(|extension| extension == "pkt") || (entry.is_dir() && !is_linked_directory) {
            collect(&entry, files)?;
        }
    }
    Ok(())
}

fn run_all(args: &PacketdrillArgs, files: &[PathBuf]) -> Vec<Outcome> {
    let target =
        if std::io::stderr().is_terminal() { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
    let style =
        ProgressStyle::with_template("{bar:30} {pos}/{len} {msg}").unwrap_or_else(|_| ProgressStyle::default_bar());
    let bar = ProgressBar::with_draw_target(Some(files.len() as u64), target).with_style(style);
    let mut outcomes = Vec::new();
    for file in files {
        bar.set_message(file.display().to_string());
        run_file(args, file, &mut outcomes);
        bar.inc(1);
    }
    bar.finish_and_clear();
    outcomes
}

/// A script under each IP version; once if it names its own, or cannot be parsed.
fn run_file(args: &PacketdrillArgs, file: &Path, outcomes: &mut Vec<Outcome>) {
    let directory = file.parent().map_or_else(PathBuf::new, Path::to_owned);
    let outcome = |report, error| Outcome {
        directory: directory.display().to_string(),
        file: file.display().to_string(),
        report,
        error,
    };
    let text = match std::fs::read(file) {
        Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        Err(error) => return outcomes.push(outcome(None, Some(FileError::Read(error.to_string())))),
    };
    // Scripts are written to be run from their own directory, or from one above.
    let mut read = |name: &str| directory.ancestors().find_map(|above| std::fs::read_to_string(above.join(name)).ok());
    for &version in &args.ip_version {
        let script = match parse(&text, version, &args.define) {
            Ok(script) => script,
            Err(error) => return outcomes.push(outcome(None, Some(FileError::Script(error)))),
        };
        let options = RunOptions { ip_version: version, profile: args.profile, tolerance_usecs: args.tolerance_usecs };
        outcomes.push(outcome(Some(holdover_packetdrill::run(&script, &options, &mut read)), None));
        if script.option("ip_version").is_some() {
            break;
        }
    }
}

/// Parses a script with the definitions of an IP version: its own if it names one.
fn parse(text: &str, version: IpVersion, own: &[(String, String)]) -> Result<Script, ScriptError> {
    let with = |version| {
        let mut defines: BTreeMap<String, String> = default_defines(version);
        defines.extend(own.iter().cloned());
        Script::parse(text, &defines)
    };
    let script = with(version)?;
    match script.option("ip_version").and_then(IpVersion::from_name) {
        Some(named) if named != version => with(named),
        _ => Ok(script),
    }
}

impl Outcome {
    fn verdict(&self) -> Option<Verdict> {
        self.report.as_ref().map(|report| report.verdict)
    }
}
