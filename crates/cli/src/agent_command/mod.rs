//! `holdover agent`: the daemon of the mobile host, and commands to it.

mod ask;
mod bugreport;
mod masking;
mod run;
mod self_test;
mod text;
#[cfg(feature = "top")]
mod top;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::builder::PossibleValue;
use clap::{Args, Subcommand, ValueEnum};
use holdover_agent::config::{Config, ConfigError, DEFAULT_PATH, Time};
use holdover_agent::control::{DEFAULT_SOCKET, EventKind};
use holdover_agent::features;
use holdover_agent::link_watch::schedule::Schedule;
use holdover_agent::policy::Policy;
use holdover_agent::user_timeout::kernel_patience;
use holdover_base::Duration;
use holdover_host::feature::{self, Feature};
use serde::Serialize;

use crate::command_support::{print, print_error, print_json, print_note};

/// Arguments of `holdover agent`.
#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct AgentArgs {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    run: run::RunArgs,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Run the agent for this host's connections until it is stopped; the default of `holdover agent`.
    Run(run::RunArgs),
    /// Print the effective configuration, or its first error with the position, and the kernel features and privileges
    /// that the agent would have if this user started it. Exits with 2 on an invalid configuration.
    Check(CheckArgs),
    /// Print the JSON schema of the configuration, for editors.
    Schema,
    /// Report a link's state to the agent, for scripts, modem managers and other programs.
    Signal(SignalArgs),
    /// Show the links, their connections, and the agent's actions.
    Status(StatusArgs),
    /// The same, live. Keys: s sorts, r reverses, q quits.
    #[cfg_attr(not(feature = "top"), command(hide = true))]
    Top(SocketArgs),
    /// Show recent actions, by connection.
    Actions(ActionsArgs),
    /// Check that the agent works on this machine: its programs and its daemon across an outage of half a second, in
    /// network namespaces of their own, and show the state of this host's agent. Exits with 0 if it works, 1 if it does
    /// not, and 77 if this user
    /// or kernel does not allow the test.
    Test(self_test::TestArgs),
    /// Collect the files of a bug report in a directory: versions, kernel, configuration, status and log, without the
    /// addresses of hosts.
    Bugreport(bugreport::BugreportArgs),
}

#[derive(Args, Debug)]
struct CheckArgs {
    /// The configuration; /etc/holdover/agent.toml if there is one.
    file: Option<PathBuf>,
    /// Print JSON instead of TOML with comments: the configuration, and the features.
    #[arg(long)]
    json: bool,
}

/// The output of `check --json`.
#[derive(Debug, Serialize)]
struct Checked<'a> {
    /// The effective configuration, as TOML.
    config: String,
    /// Whether the agent could work.
    can_work: bool,
    /// Rules that do not hold for a user, and why.
    problems: Vec<String>,
    features: &'a [Feature],
}

#[derive(Args, Debug)]
struct SocketArgs {
    /// The agent's control socket.
    #[arg(long, value_name = "PATH", default_value = DEFAULT_SOCKET)]
    socket: PathBuf,
}

#[derive(Args, Debug)]
struct SignalArgs {
    /// The event.
    event: EventArg,
    /// The link; default: all links of the agent.
    #[arg(long, value_name = "IF")]
    interface: Option<String>,
    /// With fading: the time until the cut, such as 300ms.
    #[arg(long, value_name = "TIME")]
    lead: Option<Time>,
    #[command(flatten)]
    socket: SocketArgs,
}

/// A link event.
#[derive(Clone, Copy, Debug)]
struct EventArg(EventKind);

#[derive(Args, Debug)]
struct StatusArgs {
    /// Print JSON instead of tables.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    socket: SocketArgs,
}

#[derive(Args, Debug)]
struct ActionsArgs {
    /// Follow new actions until Ctrl-C.
    #[arg(long, short)]
    follow: bool,
    /// Print one JSON object per line.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    socket: SocketArgs,
}

/// The exit status for invalid input.
const WRONG: u8 = 2;

/// `EX_NOPERM` of `sysexits.h`: a restart does not help, so service managers need not retry
/// (`RestartPreventExitStatus=`).
const CANNOT_WORK: u8 = 77;

pub(crate) fn run(args: &AgentArgs) -> ExitCode {
    match &args.command {
        None => run::run(&args.run),
        Some(Command::Run(args)) => run::run(args),
        Some(Command::Check(args)) => check(args),
        Some(Command::Schema) => print(Config::schema()),
        Some(Command::Signal(args)) => ask::signal(args),
        Some(Command::Status(args)) => ask::status(args),
        #[cfg(feature = "top")]
        Some(Command::Top(args)) => top::run(&args.socket),
        #[cfg(not(feature = "top"))]
        Some(Command::Top(_)) => crate::refuse_missing("agent top"),
        Some(Command::Actions(args)) => ask::actions(args),
        Some(Command::Test(args)) => self_test::run(args),
        Some(Command::Bugreport(args)) => bugreport::run(args),
    }
}

fn check(args: &CheckArgs) -> ExitCode {
    let checked = read_config(args.file.as_ref()).and_then(|config| {
        let schedule = config.signals.schedule.as_deref().map(Schedule::read).transpose()?;
        Ok((config, schedule))
    });
    match checked {
        Ok((config, schedule)) => {
            let policy = match config.policy(Duration::ZERO) {
                Ok(policy) => policy,
                Err(error) => {
                    print_error(&error);
                    return ExitCode::from(WRONG);
                }
            };
            // Users are looked up when the rules are put in force: better now.
            let in_words =
                |problem: &String| format!("{problem}: the rule does not hold for that user; the others hold");
            let problems: Vec<String> = policy.problems().iter().map(in_words).collect();
            if !args.json {
                problems.iter().for_each(|problem| print_note(&format_args!("error: {problem}")));
            }
            let cuts = schedule.map(|schedule| format!("# Cuts in the timetable: {}\n", schedule.cuts()));
            let is_default = args.file.is_none() && !Path::new(DEFAULT_PATH).exists();
            let origin = format!("# There is no {DEFAULT_PATH}: this is built in, and holds.\n");
            let origin = if is_default { origin } else { String::new() };
            let features = features::examine();
            let printed = if args.json {
                let can_work = feature::can_work(&features);
                print_json(&Checked { config: config.to_toml(), can_work, problems, features: &features })
            } else {
                let rules = rules_in_words(&config, &policy);
                let features = feature::comments("agent", &features);
                print(&[origin, config.to_toml(), rules, cuts.unwrap_or_default(), features].concat())
            };
            if policy.problems().is_empty() { printed } else { ExitCode::from(WRONG) }
        }
        Err(error) => {
            print_error(&error);
            ExitCode::from(WRONG)
        }
    }
}

/// Effects of rules that their text does not show, as comments.
fn rules_in_words(config: &Config, policy: &Policy) -> String {
    let mut text = String::new();
    if !config.user_timeouts.enabled {
        return text;
    }
    let patience = kernel_patience().unwrap_or(Duration::ZERO);
    for (number, rule) in config.flow.iter().enumerate() {
        if let Some(Time(hold)) = rule.hold
            && hold < patience
        {
            let seconds = patience.as_secs();
            let name = policy.rule_name(number);
            let _ = writeln!(text, "# {name} holds for {seconds} s: never less than the kernel does (tcp_retries2)");
        }
    }
    let built_in: Vec<String> = policy.built_in_rules().collect();
    if !built_in.is_empty() {
        let _ = writeln!(text, "# After these holds, built in: {}", built_in.join("; "));
    }
    text
}

fn read_config(file: Option<&PathBuf>) -> Result<Config, ConfigError> {
    file.map_or_else(Config::read_default, |file| Config::read(file))
}

impl ValueEnum for EventArg {
    fn value_variants<'a>() -> &'a [Self] {
        &[Self(EventKind::Fading), Self(EventKind::Recovered), Self(EventKind::Down), Self(EventKind::Up)]
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        let help = match self.0 {
            EventKind::Fading => "It is about to be cut",
            EventKind::Recovered => "The predicted cut does not come",
            EventKind::Down => "It is cut",
            EventKind::Up => "It is back",
        };
        Some(PossibleValue::new(self.0.name()).help(help))
    }
}
