//! `holdover`: the command line of Holdover.
//!
//! A feature of the crate is a group of commands. By default the program has those of a first look: the demo, the agent and `explain`.

// This crate is the outermost floor: it reads clocks, files and arguments.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]
// These panic where the output is closed or full: see `print` and `print_note`.
#![deny(clippy::print_stderr, clippy::print_stdout)]
// Programs with fewer commands use only a part of the shared code.
#![cfg_attr(not(feature = "full"), allow(dead_code, unused_imports))]

mod agent_command;
#[cfg(feature = "full")]
mod bench;
mod command_support;
#[cfg(feature = "full")]
mod conformance;
#[cfg(feature = "demo")]
mod demo_command;
mod doctor_command;
mod examples;
mod explain_command;
#[cfg(feature = "gateway")]
mod gateway_command;
mod generate_command;
#[cfg(feature = "hip")]
mod hip_command;
#[cfg(feature = "full")]
mod kernel_matrix;
#[cfg(feature = "full")]
mod packetdrill_command;
#[cfg(feature = "full")]
mod reproduce_command;
#[cfg(feature = "full")]
mod run_command;
#[cfg(feature = "full")]
mod scenario_command;
#[cfg(feature = "full")]
mod shell_command;
#[cfg(feature = "full")]
mod sweep_command;
mod text_table;
#[cfg(feature = "top")]
mod top;

use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};

/// Keeps TCP alive and fast on hosts with intermittent links.
#[derive(Parser, Debug)]
#[command(version, about, arg_required_else_help = true)]
struct CommandLine {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Show the effect of an outage on TCP, without and with the agent, in under a minute.
    #[cfg(feature = "demo")]
    Demo(demo_command::DemoArgs),
    /// Keep this host's connections fast over intermittent links: the daemon, and commands to it.
    Agent(agent_command::AgentArgs),
    /// Check the requirements on kernel and user, and suggest fixes.
    Doctor(doctor_command::DoctorArgs),
    /// Measure the speed and memory of Holdover's TCP on this machine.
    #[cfg(feature = "full")]
    Bench(bench::BenchArgs),
    /// Measure how this machine's kernel behaves around outages, and compare the profiles that model it.
    #[cfg(feature = "full")]
    Conformance(conformance::ConformanceArgs),
    /// Show where each connection of a capture or of a run lost its time.
    Explain(explain_command::ExplainArgs),
    /// On a router: buffer packets for absent mobile hosts. The daemon, and commands to it.
    #[cfg(feature = "gateway")]
    Gateway(gateway_command::GatewayArgs),
    /// Keep connections across address changes (HIP): identities, peers, and the daemon.
    #[cfg(feature = "hip")]
    Hip(hip_command::HipArgs),
    /// Transfer data between Holdover's TCP and this machine's kernel under many combinations of settings.
    #[cfg(feature = "full")]
    KernelMatrix(kernel_matrix::KernelMatrixArgs),
    /// Run packetdrill scripts against Holdover's TCP in virtual time, and report differences.
    #[cfg(feature = "full")]
    Packetdrill(packetdrill_command::PacketdrillArgs),
    /// Repeat the experiments of papers, compare with the published results, and judge their
    /// claims.
    #[cfg(feature = "full")]
    Reproduce(reproduce_command::ReproduceArgs),
    /// Check scenario files, print their schema, list and copy the built-in ones.
    #[cfg(feature = "full")]
    Scenario(scenario_command::ScenarioArgs),
    /// Run a scenario, all its variants, and write captures, tables, plots and a report.
    #[cfg(feature = "full")]
    Run(run_command::RunArgs),
    /// Run a command on a host of a scenario: its links and their outages are those of the scenario.
    #[cfg(feature = "full")]
    Shell(shell_command::ShellArgs),
    /// Run a scenario over every combination of its axes' values, as often as its confidence intervals require, and
    /// compare its variants.
    #[cfg(feature = "full")]
    Sweep(sweep_command::SweepArgs),
    /// Print a script that completes commands and options in a shell.
    Completions(generate_command::CompletionsArgs),
    /// Write the man pages of all commands into a directory. For packages.
    #[command(hide = true)]
    Man(generate_command::ManArgs),
}

/// The commands that a program can lack, and whether this one has them.
const OPTIONAL_COMMANDS: [(&str, bool); 12] = [
    ("bench", cfg!(feature = "full")),
    ("conformance", cfg!(feature = "full")),
    ("demo", cfg!(feature = "demo")),
    ("gateway", cfg!(feature = "gateway")),
    ("hip", cfg!(feature = "hip")),
    ("kernel-matrix", cfg!(feature = "full")),
    ("packetdrill", cfg!(feature = "full")),
    ("reproduce", cfg!(feature = "full")),
    ("run", cfg!(feature = "full")),
    ("scenario", cfg!(feature = "full")),
    ("shell", cfg!(feature = "full")),
    ("sweep", cfg!(feature = "full")),
];

/// Whether this program lacks a command of the complete one.
fn lacks(command: &str) -> bool {
    OPTIONAL_COMMANDS.contains(&(command, false))
}

/// A command of the complete program that this program lacks, if that is why the arguments were refused.
fn missing_command(error: &clap::Error) -> Option<&'static str> {
    let given = |kind| match error.get(kind) {
        Some(ContextValue::String(given)) => Some(given.as_str()),
        _ => None,
    };
    let named = match error.kind() {
        ErrorKind::InvalidSubcommand => given(ContextKind::InvalidSubcommand)?,
        ErrorKind::InvalidValue if given(ContextKind::InvalidArg)?.starts_with("--for ") => {
            doctor_command::command_of_use(given(ContextKind::InvalidValue)?)
        }
        _ => return None,
    };
    OPTIONAL_COMMANDS.into_iter().find_map(|(name, has)| (!has && name == named).then_some(name))
}

/// Prints where a command is that this program lacks.
fn refuse_missing(command: &str) -> ExitCode {
    command_support::print_error(&format_args!(
        "`holdover {command}` is not in this program; the complete one is built in the sources by `cargo build --release \
         --features full`, and is in the release's archive (holdover-{}-MACHINE-linux.tar.gz)",
        env!("CARGO_PKG_VERSION")
    ));
    ExitCode::from(2)
}

impl CommandLine {
    /// The commands, their options and examples.
    fn described() -> clap::Command {
        examples::with_examples(Self::command())
    }
}

/// Runs the command of the process's arguments.
pub fn main() -> ExitCode {
    // Arguments of a program that is run by a command, after --, are not this program's.
    let mut arguments = std::env::args_os().take_while(|argument| argument != "--");
    if arguments.any(|argument| argument == "--json") {
        command_support::print_errors_as_json();
    }
    let parsed = CommandLine::described().try_get_matches();
    let line = match parsed.and_then(|matches| CommandLine::from_arg_matches(&matches)) {
        Ok(line) => line,
        Err(error) if let Some(name) = missing_command(&error) => {
            return refuse_missing(name);
        }
        Err(error) if error.use_stderr() && command_support::errors_are_json() => {
            let text = error.render().to_string();
            command_support::print_error(&text.strip_prefix("error: ").unwrap_or(&text).trim());
            return ExitCode::from(2);
        }
        Err(error) => error.exit(),
    };
    match line.command {
        Command::Agent(args) => agent_command::run(&args),
        #[cfg(feature = "full")]
        Command::Bench(args) => bench::run(&args),
        Command::Completions(args) => generate_command::completions(&args),
        #[cfg(feature = "full")]
        Command::Conformance(args) => conformance::run(&args),
        #[cfg(feature = "demo")]
        Command::Demo(args) => demo_command::run(&args),
        Command::Doctor(args) => doctor_command::run(&args),
        Command::Explain(args) => explain_command::run(&args),
        #[cfg(feature = "gateway")]
        Command::Gateway(args) => gateway_command::run(&args),
        #[cfg(feature = "hip")]
        Command::Hip(args) => hip_command::run(&args),
        #[cfg(feature = "full")]
        Command::KernelMatrix(args) => kernel_matrix::run(&args),
        Command::Man(args) => generate_command::man(&args),
        #[cfg(feature = "full")]
        Command::Packetdrill(args) => packetdrill_command::run(&args),
        #[cfg(feature = "full")]
        Command::Reproduce(args) => reproduce_command::run(&args),
        #[cfg(feature = "full")]
        Command::Scenario(args) => scenario_command::run(&args),
        #[cfg(feature = "full")]
        Command::Run(args) => run_command::run(&args),
        #[cfg(feature = "full")]
        Command::Shell(args) => shell_command::run(&args),
        #[cfg(feature = "full")]
        Command::Sweep(args) => sweep_command::run(&args),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_command_is_in_every_program_or_an_optional_one() {
        let all: BTreeSet<String> =
            CommandLine::command().get_subcommands().map(|sub| sub.get_name().to_owned()).collect();
        let always = ["agent", "completions", "doctor", "explain", "man"];
        let optional = OPTIONAL_COMMANDS.into_iter().filter_map(|(name, has)| has.then_some(name));
        assert_eq!(all, always.into_iter().chain(optional).map(str::to_owned).collect());
    }

    #[test]
    fn a_use_that_this_program_lacks_names_its_command() {
        let missing = |r#use: &str| {
            let error = CommandLine::command().try_get_matches_from(["holdover", "doctor", "--for", r#use]).err();
            error.map(|error| missing_command(&error))
        };
        for (r#use, command) in [("demo", "demo"), ("gateway", "gateway"), ("hip", "hip"), ("kernel", "run")] {
            assert_eq!(missing(r#use), lacks(command).then_some(Some(command)));
        }
        assert_eq!((missing("agent"), missing("toaster")), (None, Some(None)));
    }
}
