//! `holdover`: the command line of Holdover.

// This crate is the outermost floor: it reads clocks, files and arguments.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]
// The program for operators uses a part of what the commands share.
#![cfg_attr(not(feature = "lab"), allow(dead_code, unused_imports))]

mod agent_command;
#[cfg(feature = "lab")]
mod bench;
mod command_support;
#[cfg(feature = "lab")]
mod conformance;
#[cfg(feature = "lab")]
mod demo_command;
mod doctor_command;
mod examples;
mod explain_command;
mod gateway_command;
mod generate_command;
mod hip_command;
#[cfg(feature = "lab")]
mod kernel_matrix;
#[cfg(feature = "lab")]
mod packetdrill_command;
#[cfg(feature = "lab")]
mod reproduce_command;
#[cfg(feature = "lab")]
mod run_command;
#[cfg(feature = "lab")]
mod scenario_command;
#[cfg(feature = "lab")]
mod shell_command;
#[cfg(feature = "lab")]
mod sweep_command;
mod text_table;
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
    #[cfg(feature = "lab")]
    Demo(demo_command::DemoArgs),
    /// Keep this host's connections fast over intermittent links: the daemon, and commands to it.
    Agent(agent_command::AgentArgs),
    /// Check the requirements on kernel and user, and suggest fixes.
    Doctor(doctor_command::DoctorArgs),
    /// Measure the speed and memory of Holdover's TCP on this machine.
    #[cfg(feature = "lab")]
    Bench(bench::BenchArgs),
    /// Measure how this machine's kernel behaves around outages, and compare the profiles that model it.
    #[cfg(feature = "lab")]
    Conformance(conformance::ConformanceArgs),
    /// Show where each connection of a capture or of a run lost its time.
    Explain(explain_command::ExplainArgs),
    /// On a router: buffer packets for absent mobile hosts. The daemon, and commands to it.
    Gateway(gateway_command::GatewayArgs),
    /// Keep connections across address changes (HIP): identities, peers, and the daemon.
    Hip(hip_command::HipArgs),
    /// Transfer data between Holdover's TCP and this machine's kernel under many combinations of settings.
    #[cfg(feature = "lab")]
    KernelMatrix(kernel_matrix::KernelMatrixArgs),
    /// Run packetdrill scripts against Holdover's TCP in virtual time, and report differences.
    #[cfg(feature = "lab")]
    Packetdrill(packetdrill_command::PacketdrillArgs),
    /// Repeat the experiments of papers, compare with the published results, and judge their
    /// claims.
    #[cfg(feature = "lab")]
    Reproduce(reproduce_command::ReproduceArgs),
    /// Check scenario files, print their schema, list and copy the built-in ones.
    #[cfg(feature = "lab")]
    Scenario(scenario_command::ScenarioArgs),
    /// Run a scenario, all its variants, and write captures, tables, plots and a report.
    #[cfg(feature = "lab")]
    Run(run_command::RunArgs),
    /// Run a command on a host of a scenario: its links and their outages are those of the scenario.
    #[cfg(feature = "lab")]
    Shell(shell_command::ShellArgs),
    /// Run a scenario over every combination of its axes' values, as often as its confidence intervals require, and
    /// compare its variants.
    #[cfg(feature = "lab")]
    Sweep(sweep_command::SweepArgs),
    /// Print a script that completes commands and options in a shell.
    Completions(generate_command::CompletionsArgs),
    /// Write the man pages of all commands into a directory. For packages.
    #[command(hide = true)]
    Man(generate_command::ManArgs),
}

/// The commands that only the complete program has.
const LAB_COMMANDS: [&str; 10] =
    ["bench", "conformance", "demo", "kernel-matrix", "packetdrill", "reproduce", "run", "scenario", "shell", "sweep"];

/// A command of the complete program that this program lacks, if that is why the arguments were refused.
fn missing_command(error: &clap::Error) -> Option<&'static str> {
    if cfg!(feature = "lab") || error.kind() != ErrorKind::InvalidSubcommand {
        return None;
    }
    let Some(ContextValue::String(given)) = error.get(ContextKind::InvalidSubcommand) else { return None };
    LAB_COMMANDS.into_iter().find(|name| name == given)
}

impl CommandLine {
    /// The commands, their options and examples.
    fn described() -> clap::Command {
        examples::with_examples(Self::command())
    }
}

fn main() -> ExitCode {
    // Arguments of a program that is run by a command, after --, are not this program's.
    let mut arguments = std::env::args_os().take_while(|argument| argument != "--");
    if arguments.any(|argument| argument == "--json") {
        command_support::print_errors_as_json();
    }
    let parsed = CommandLine::described().try_get_matches();
    let line = match parsed.and_then(|matches| CommandLine::from_arg_matches(&matches)) {
        Ok(line) => line,
        Err(error) if let Some(name) = missing_command(&error) => {
            command_support::print_error(&format_args!(
                "`holdover {name}` is not in this program, which has the commands for operators only; the complete program is \
                 in the release's archive (holdover-{}-MACHINE-linux.tar.gz), or is built from the sources by `cargo build \
                 --release`",
                env!("CARGO_PKG_VERSION")
            ));
            return ExitCode::from(2);
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
        #[cfg(feature = "lab")]
        Command::Bench(args) => bench::run(&args),
        Command::Completions(args) => generate_command::completions(&args),
        #[cfg(feature = "lab")]
        Command::Conformance(args) => conformance::run(&args),
        #[cfg(feature = "lab")]
        Command::Demo(args) => demo_command::run(&args),
        Command::Doctor(args) => doctor_command::run(&args),
        Command::Explain(args) => explain_command::run(&args),
        Command::Gateway(args) => gateway_command::run(&args),
        Command::Hip(args) => hip_command::run(&args),
        #[cfg(feature = "lab")]
        Command::KernelMatrix(args) => kernel_matrix::run(&args),
        Command::Man(args) => generate_command::man(&args),
        #[cfg(feature = "lab")]
        Command::Packetdrill(args) => packetdrill_command::run(&args),
        #[cfg(feature = "lab")]
        Command::Reproduce(args) => reproduce_command::run(&args),
        #[cfg(feature = "lab")]
        Command::Scenario(args) => scenario_command::run(&args),
        #[cfg(feature = "lab")]
        Command::Run(args) => run_command::run(&args),
        #[cfg(feature = "lab")]
        Command::Shell(args) => shell_command::run(&args),
        #[cfg(feature = "lab")]
        Command::Sweep(args) => sweep_command::run(&args),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn operators_commands_and_those_for_experiments_are_all_commands() {
        let all: BTreeSet<String> =
            CommandLine::command().get_subcommands().map(|sub| sub.get_name().to_owned()).collect();
        let operators = ["agent", "completions", "doctor", "explain", "gateway", "hip", "man"];
        let lab: &[&str] = if cfg!(feature = "lab") { &LAB_COMMANDS } else { &[] };
        assert_eq!(all, operators.iter().chain(lab).map(|name| (*name).to_owned()).collect());
    }
}
