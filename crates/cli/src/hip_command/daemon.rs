//! The daemon, and requests to it.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use holdover_base::Duration;
use holdover_hip::host::RekeyLimits;
use holdover_hipd::control::{self, Request};
use holdover_hipd::core::LsiPrefix;
use holdover_hipd::daemon::{Daemon, DaemonError, Setup};
use holdover_hipd::files::Serves;
use holdover_host::log::{self, Log, LogLevel};

use super::{DirectoryArgs, Failure, SocketArgs, StatusArgs, text};
use crate::command_support::{print, print_json, with_causes, within};

/// Arguments of `holdover hip up`.
#[derive(Args, Debug)]
pub(super) struct UpArgs {
    #[command(flatten)]
    directory: DirectoryArgs,
    #[command(flatten)]
    socket: SocketArgs,
    /// The name of the TUN device.
    #[arg(long, value_name = "IF", default_value = "hip0")]
    interface: String,
    /// Its MTU in bytes, so that packets in ESP fit through the network.
    #[arg(long, value_name = "BYTES", default_value_t = 1400, value_parser = within(1280_u32..=9000))]
    mtu: u32,
    /// The prefix of the IPv4 addresses that represent peers on this host (LSIs), for programs that support IPv4 only.
    /// Choose one that this host's networks do not use.
    #[arg(long, value_name = "PREFIX", default_value_t)]
    lsi_prefix: LsiPrefix,
    /// Assign no LSIs to peers.
    #[arg(long, conflicts_with = "lsi_prefix")]
    no_lsi: bool,
    /// Do not wake TCP after a move of this host or of a peer, for example where an agent does.
    #[arg(long)]
    no_wake: bool,
    /// Accept associations from unknown hosts. Their identity is not checked.
    #[arg(long)]
    accept_unknown: bool,
    /// The time of use, in seconds, after which an association's keys are changed.
    #[arg(long, value_name = "SECONDS", default_value_t = 3600, value_parser = within(10_u64..=86_400))]
    rekey_after: u64,
    /// The bytes in one direction after which they are changed at the latest.
    #[arg(long, value_name = "BYTES", default_value_t = 1 << 36, value_parser = within(1_000_000..=u64::MAX))]
    rekey_bytes: u64,
    /// Write the keys of ESP into a file from which Wireshark decrypts captures (its table esp_sa). For debugging: the
    /// file decrypts the traffic.
    #[arg(long, value_name = "FILE")]
    esp_keys: Option<PathBuf>,
    /// Serve metrics for Prometheus at this address and port, as 127.0.0.1:9477.
    #[arg(long, value_name = "ADDRESS:PORT")]
    metrics: Option<std::net::SocketAddr>,
    /// Log more.
    #[arg(long, short)]
    verbose: bool,
}

/// `EX_NOPERM` of `sysexits.h`: a restart does not help, so service managers need not retry.
const CANNOT_WORK: u8 = 77;

pub(super) fn up(args: &UpArgs, serves: Option<Serves>) -> Result<ExitCode, Failure> {
    let level = if args.verbose { LogLevel::Debug } else { LogLevel::Info };
    // Nothing else in this program writes a log.
    let _ = log::start(&Log { level, ..Log::default() });
    let setup = Setup {
        directory: args.directory.dir.clone(),
        socket: args.socket.socket.clone(),
        interface: args.interface.clone(),
        mtu: args.mtu,
        lsis: (!args.no_lsi).then_some(args.lsi_prefix),
        wake: !args.no_wake,
        accept_unknown: args.accept_unknown,
        serves,
        rekey: RekeyLimits {
            age: Duration::from_secs(args.rekey_after),
            bytes: args.rekey_bytes,
            ..RekeyLimits::default()
        },
        esp_keys: args.esp_keys.clone(),
        metrics: args.metrics,
    };
    match Daemon::open(setup).and_then(Daemon::run) {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(error) => {
            let status = match error {
                DaemonError::NotPermitted { .. } | DaemonError::NoTun => CANNOT_WORK,
                _ => 1,
            };
            Err(Failure { text: with_causes(&error), status })
        }
    }
}

pub(super) fn down(args: &SocketArgs) -> Result<ExitCode, Failure> {
    control::ask(&args.socket, &Request::Down)?;
    // It is down when its socket is gone.
    let patience = std::time::Instant::now() + std::time::Duration::from_secs(10);
    while args.socket.exists() && std::time::Instant::now() < patience {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    Ok(if args.socket.exists() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

pub(super) fn status(args: &StatusArgs) -> Result<ExitCode, Failure> {
    let status = control::status(&args.socket.socket)?;
    Ok(if args.json { print_json(&status) } else { print(&text::status(&status)) })
}
