//! `holdover gateway`: the daemon of a router with mobile hosts behind it, and commands to it.

mod demo;
mod text;
mod top;

use std::net::IpAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand, ValueEnum};
use holdover_gatewayd::config::{Config, DEFAULT_PATH, Mode};
use holdover_gatewayd::control::{self, ClientError, DEFAULT_SOCKET, Request, Response, Standing, ask};
use holdover_gatewayd::daemon::{Daemon, DaemonError, Setup, give_up_privileges, mount_pins, stop_signal};
use holdover_gatewayd::features;
use holdover_host::config_error::ConfigError;
use holdover_host::feature::{self, Feature};
use holdover_host::log::{self, LogFormat};
use holdover_host::time_text::Time;
use serde::Serialize;

use crate::command_support::{print, print_error, print_json, with_causes};
pub(crate) use demo::{configured_daemon, daemon};

/// Arguments of `holdover gateway`.
#[derive(Args, Debug)]
pub(crate) struct GatewayArgs {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Demonstrate the gateway without hardware: the same downloads and uploads over the same outages with and without
    /// it, in network namespaces, including a `kill -9` of the gateway and a handoff to another one. Needs root; takes
    /// less than a minute, and leaves nothing behind but an empty directory in the BPF file system.
    Demo(demo::DemoArgs),
    /// Buffer packets for absent mobile hosts behind an interface, until stopped.
    Run(RunArgs),
    /// Print the effective configuration, or its first error with the position, and whether the gateway would work if
    /// this user started it. Exits with 2 on an invalid configuration.
    Check(CheckArgs),
    /// Print the JSON schema of the configuration, for editors.
    Schema,
    /// Show the gateway's state and counters.
    Status(AskArgs),
    /// Watch the gateway and its mobile hosts in the terminal, absent hosts first.
    Top(SocketArgs),
    /// Show the mobile hosts: which are away, since when, and packets waiting.
    Mobiles(AskArgs),
    /// Report the presence of a mobile host, for scripts and access points.
    Mobile(MobileArgs),
    /// Ask the other gateways for packets waiting for a mobile host that has come here. Automatic when the host is
    /// first heard.
    Handoff(HandoffArgs),
    /// Stop diverting, and end the gateway when all queues are empty.
    Drain(DrainArgs),
}

#[derive(Args, Debug)]
struct RunArgs {
    /// The mobile-facing interface; default: [mobiles] interface of the configuration.
    #[arg(long, value_name = "IF")]
    interface: Option<String>,
    /// The configuration; /etc/holdover/gateway.toml if there is one.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Divert nothing, regardless of the configuration; count and report absences.
    #[arg(long)]
    dry_run: bool,
    /// Log readable lines, regardless of [log].
    #[arg(long)]
    foreground: bool,
    /// The path of the control socket.
    #[arg(long, value_name = "PATH", default_value = DEFAULT_SOCKET)]
    socket: PathBuf,
}

#[derive(Args, Debug)]
struct CheckArgs {
    /// The configuration; /etc/holdover/gateway.toml if there is one.
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
    /// Whether the gateway could work.
    can_work: bool,
    features: &'a [Feature],
}

#[derive(Args, Debug)]
struct SocketArgs {
    /// The gateway's control socket.
    #[arg(long, value_name = "PATH", default_value = DEFAULT_SOCKET)]
    socket: PathBuf,
}

#[derive(Args, Debug)]
struct AskArgs {
    /// Print JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    socket: SocketArgs,
}

#[derive(Args, Debug)]
struct MobileArgs {
    /// Its address.
    address: IpAddr,
    /// The host's presence. A packet from it always means that it is present.
    presence: PresenceArg,
    #[command(flatten)]
    socket: SocketArgs,
}

/// The presence of a mobile host.
#[derive(Clone, Copy, ValueEnum, Debug)]
enum PresenceArg {
    /// It is attached here.
    Present,
    /// It is about to leave.
    Fading,
    /// It is absent: packets for it are kept.
    Away,
    /// It is attached elsewhere; forwarded packets reach it there.
    Moved,
}

#[derive(Args, Debug)]
struct HandoffArgs {
    /// Its address.
    address: IpAddr,
    #[command(flatten)]
    socket: SocketArgs,
}

#[derive(Args, Debug)]
struct DrainArgs {
    /// End after this time in any case. Packets still waiting stay for the next start.
    #[arg(long, value_name = "TIME", default_value = "60 s")]
    within: Time,
    #[command(flatten)]
    socket: SocketArgs,
}

/// The exit status for invalid input.
const WRONG: u8 = 2;
/// `EX_NOPERM` of `sysexits.h`: a restart does not help, so service managers need not retry
/// (`RestartPreventExitStatus=`).
const CANNOT_WORK: u8 = 77;

pub(crate) fn run(args: &GatewayArgs) -> ExitCode {
    match &args.command {
        Command::Demo(args) => demo::run(args),
        Command::Run(args) => start(args),
        Command::Check(args) => check(args),
        Command::Schema => print(Config::schema()),
        Command::Status(args) => status(args),
        Command::Top(args) => top::run(&args.socket),
        Command::Handoff(args) => match ask(&args.socket.socket, &Request::Handoff { address: args.address }) {
            Ok(Response::Noted) => print("asked\n"),
            Ok(_) => unexpected(),
            Err(error) => failed(&error),
        },
        Command::Mobiles(args) => mobiles(args),
        Command::Mobile(args) => {
            let request = Request::Mobile { address: args.address, presence: args.presence.into() };
            match ask(&args.socket.socket, &request) {
                Ok(_) => print(&format!("noted: {} is {}\n", args.address, Standing::from(args.presence))),
                Err(error) => failed(&error),
            }
        }
        Command::Drain(args) => match ask(&args.socket.socket, &Request::Drain { within: args.within }) {
            Ok(Response::Draining { waiting }) => {
                print(&format!("draining: {waiting} packets wait; the gateway ends within {}\n", args.within))
            }
            Ok(_) => unexpected(),
            Err(error) => failed(&error),
        },
    }
}

fn start(args: &RunArgs) -> ExitCode {
    let mut config = match read_config(args.config.as_ref()) {
        Ok(config) => config,
        Err(error) => {
            print_error(&error);
            return ExitCode::from(WRONG);
        }
    };
    if args.dry_run {
        config.mobiles.mode = Mode::Observe;
        config.mobiles.modes.clear();
        config.flow.clear();
        // It takes nothing from other gateways, and owns nothing.
        (config.handoff, config.cluster) = Default::default();
    }
    if args.foreground {
        config.log.format = LogFormat::Text;
    }
    let Some(interface) = args.interface.clone().or_else(|| config.mobiles.interface.clone()) else {
        print_error(
            &"behind which interface are the mobile hosts? --interface IF, or [mobiles] interface in the configuration",
        );
        return ExitCode::from(WRONG);
    };
    let setup = Setup { config: config.clone(), interface, socket: args.socket.clone() };
    match serve(setup) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            print_error(&with_causes(&error));
            let can_work = feature::can_work(&features::examine(&config));
            if can_work { ExitCode::FAILURE } else { ExitCode::from(CANNOT_WORK) }
        }
    }
}

fn serve(setup: Setup) -> Result<(), DaemonError> {
    // Nothing else in this program writes a log.
    let _ = log::start(&setup.config.log);
    mount_pins(&setup.config);
    give_up_privileges()?;
    Daemon::open(setup, stop_signal()?)?.run()
}

fn check(args: &CheckArgs) -> ExitCode {
    let config = match read_config(args.file.as_ref()) {
        Ok(config) => config,
        Err(error) => {
            print_error(&error);
            return ExitCode::from(WRONG);
        }
    };
    let interface = config.mobiles.interface.as_deref().map(features::examine_interface);
    let features: Vec<Feature> = interface.into_iter().chain(features::examine(&config)).collect();
    if args.json {
        let can_work = feature::can_work(&features);
        return print_json(&Checked { config: config.to_toml(), can_work, features: &features });
    }
    let is_default = args.file.is_none() && !std::path::Path::new(DEFAULT_PATH).exists();
    let origin = format!("# There is no {DEFAULT_PATH}: this is built in, and holds.\n");
    let origin = if is_default { origin } else { String::new() };
    print(&[origin, config.to_toml(), feature::comments("gateway", &features)].concat())
}

fn status(args: &AskArgs) -> ExitCode {
    match control::status(&args.socket.socket) {
        Ok(status) if args.json => print_json(&status),
        Ok(status) => print(&text::status(&status)),
        Err(error) => failed(&error),
    }
}

fn mobiles(args: &AskArgs) -> ExitCode {
    match ask(&args.socket.socket, &Request::Mobiles) {
        Ok(Response::Mobiles { mobiles }) if args.json => print_json(&mobiles),
        Ok(Response::Mobiles { mobiles }) => print(&text::mobiles(&mobiles)),
        Ok(_) => unexpected(),
        Err(error) => failed(&error),
    }
}

fn read_config(file: Option<&PathBuf>) -> Result<Config, ConfigError> {
    file.map_or_else(Config::read_default, |file| Config::read(file))
}

/// The exit status of an invalid request differs from that of a gateway that does not run.
fn failed(error: &ClientError) -> ExitCode {
    print_error(&with_causes(error));
    if matches!(error, ClientError::Refused(_)) { ExitCode::from(WRONG) } else { ExitCode::FAILURE }
}

fn unexpected() -> ExitCode {
    failed(&ClientError::unexpected::<Response>())
}

impl From<PresenceArg> for Standing {
    fn from(presence: PresenceArg) -> Self {
        match presence {
            PresenceArg::Present => Self::Present,
            PresenceArg::Fading => Self::Fading,
            PresenceArg::Away => Self::Away,
            PresenceArg::Moved => Self::Moved,
        }
    }
}
