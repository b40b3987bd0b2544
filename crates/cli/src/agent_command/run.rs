//! `holdover agent run`.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use holdover_agent::config::Config;
use holdover_agent::control::DEFAULT_SOCKET;
use holdover_agent::daemon::{Daemon, DaemonError, DryRun, Orders, Setup, give_up_privileges};
use holdover_agent::engine::KernelAttach;
use holdover_agent::path_engine::Attach;
use holdover_host::log::{self, LogFormat, LogLevel};

use super::{CANNOT_WORK, WRONG, read_config};
use crate::command_support::{print_error, with_causes};

/// Arguments of `holdover agent run`.
#[derive(Args, Debug)]
pub(super) struct RunArgs {
    /// Log readable lines, one for each action, regardless of [log].
    #[arg(long)]
    foreground: bool,
    /// Change nothing in the path of packets; print the actions for each connection instead.
    #[arg(long)]
    dry_run: bool,
    /// The configuration; /etc/holdover/agent.toml if there is one.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Manage this interface, regardless of the configuration (repeatable).
    #[arg(long, value_name = "IF")]
    interface: Vec<String>,
    /// The path of the control socket.
    #[arg(long, value_name = "PATH", default_value = DEFAULT_SOCKET)]
    socket: PathBuf,
}

pub(super) fn run(args: &RunArgs) -> ExitCode {
    let mut config = match read_config(args.config.as_ref()) {
        Ok(config) => config,
        Err(error) => {
            print_error(&error);
            return ExitCode::from(WRONG);
        }
    };
    if args.foreground {
        make_readable(&mut config);
    }
    let setup = Setup {
        system_bus: None,
        config,
        config_path: args.config.clone(),
        interfaces: args.interface.clone(),
        socket: args.socket.clone(),
        dry_run: args.dry_run,
    };
    let attach = KernelAttach { control_socket: args.socket.clone() };
    let result = if args.dry_run { start(setup, DryRun) } else { start(setup, attach) };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            print_error(&with_causes(&error));
            match error {
                DaemonError::CannotWork { .. } => ExitCode::from(CANNOT_WORK),
                _ => ExitCode::FAILURE,
            }
        }
    }
}

fn start<A: Attach>(setup: Setup, attach: A) -> Result<(), DaemonError> {
    // Nothing else in this program writes a log.
    let _ = log::start(&setup.config.log);
    give_up_privileges(&setup.config)?;
    let orders = Orders::from_signals()?;
    Daemon::open(setup, attach, orders)?.run()
}

fn make_readable(config: &mut Config) {
    config.log.format = LogFormat::Text;
    if matches!(config.log.level, LogLevel::Error | LogLevel::Warn | LogLevel::Info) {
        config.log.level = LogLevel::Debug;
    }
}
