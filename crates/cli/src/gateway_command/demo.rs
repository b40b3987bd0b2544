//! `holdover gateway demo`.

#[cfg(feature = "demo")]
mod page;

use std::io::{IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::atomic::AtomicBool;

use clap::Args;
use holdover_gatewayd::config::Config;
use holdover_gatewayd::features;
use holdover_testbed::Privilege;
use holdover_testbed::gateway::{MOBILE_FACING, find_etcd, make_directory};
use holdover_transfers::gateway::{self, CASES, CLUSTER_CASES, Case, DemoError, Outcome, ROUND_TRIP};
use serde::Serialize;

use super::CANNOT_WORK;
use crate::command_support::{INTERRUPTED, print, print_error, print_json, stop_on_signals, with_causes, within};
use crate::text_table::{Layout, laid_out, paragraph};

/// Arguments of `holdover gateway demo`.
#[derive(Args, Debug)]
pub(super) struct DemoArgs {
    /// Print JSON instead of a table, and no progress.
    #[arg(long)]
    json: bool,
    /// Show a cluster of this many gateways that agree in etcd, instead of one gateway: a handoff, an outage of etcd,
    /// and a gateway that is killed for good. Needs etcd (Debian: etcd-server), in PATH or /usr/sbin, or named by HOLDOVER_ETCD.
    #[arg(long, value_name = "GATEWAYS", value_parser = within(2_u8..=8))]
    cluster: Option<u8>,
    /// Write the result to this file, too, as an HTML page.
    #[cfg(feature = "demo")]
    #[arg(long, value_name = "FILE")]
    page: Option<PathBuf>,
}

/// The output of `--json`.
#[derive(Debug, Serialize)]
struct Shown {
    /// Between the fixed host and the gateway.
    round_trip_s: f64,
    outcomes: Vec<Outcome>,
}

pub(super) fn run(args: &DemoArgs) -> ExitCode {
    // Before the first thread.
    if let Err(error) = Privilege::acquire() {
        print_error(&format_args!("the demo needs network namespaces: {error}"));
        return ExitCode::from(CANNOT_WORK);
    }
    let missing = features::examine(&Config::default()).into_iter().find(|feature| feature.needed && !feature.fine);
    if let Some(missing) = missing {
        print_error(&format_args!("the demo needs what the gateway needs; {}: {}", missing.name, missing.found));
        return ExitCode::from(CANNOT_WORK);
    }
    if let (Some(_), Err(missing)) = (args.cluster, find_etcd()) {
        print_error(&missing);
        return ExitCode::from(CANNOT_WORK);
    }
    #[cfg(feature = "demo")]
    if let Some(path) = &args.page
        && let Err(error) = page::check(path)
    {
        return cannot_write(path, &error);
    }
    let stop = match stop_on_signals() {
        Ok(stop) => stop,
        Err(error) => {
            print_error(&error);
            return ExitCode::FAILURE;
        }
    };
    match show(args, &stop) {
        Ok(outcomes) => {
            #[cfg(not(feature = "demo"))]
            let written: Option<(&Path, std::io::Result<()>)> = None;
            #[cfg(feature = "demo")]
            let written = args.page.as_deref().map(|path| (path, page::write(path, args.cluster, &outcomes)));
            let printed = match args.json {
                true => print_json(&Shown { round_trip_s: ROUND_TRIP.as_secs_f64(), outcomes }),
                false => print(&table(args.cluster, &outcomes)),
            };
            match written {
                Some((path, Err(error))) => cannot_write(path, &error),
                _ => printed,
            }
        }
        Err(error) => {
            print_error(&with_causes(&error));
            match error {
                DemoError::Interrupted => ExitCode::from(INTERRUPTED),
                _ => ExitCode::FAILURE,
            }
        }
    }
}

fn cannot_write(path: &Path, error: &std::io::Error) -> ExitCode {
    print_error(&format_args!("cannot write {}: {error}", path.display()));
    ExitCode::FAILURE
}

fn cases(cluster: Option<u8>) -> &'static [Case] {
    if cluster.is_some() { &CLUSTER_CASES } else { &CASES }
}

fn show(args: &DemoArgs, stop: &AtomicBool) -> Result<Vec<Outcome>, DemoError> {
    let is_quiet = args.json || !std::io::stderr().is_terminal();
    let cases = cases(args.cluster);
    let directory = std::env::temp_dir().join(format!("holdover-gateway-demo-{}", std::process::id()));
    make_directory(&directory)?;
    let mut outcomes = Vec::new();
    let result = cases.iter().enumerate().try_for_each(|(number, &case)| {
        if !is_quiet {
            let _ = write!(std::io::stderr(), "\r\x1b[K{} of {}: {} ...", number + 1, cases.len(), case.name);
        }
        outcomes.extend(gateway::run(case, args.cluster, &directory, daemon, stop)?);
        Ok(())
    });
    if !is_quiet {
        let _ = write!(std::io::stderr(), "\r\x1b[K");
    }
    // Each daemon has removed its own.
    let _ = std::fs::remove_dir(&directory);
    result.map(|()| outcomes)
}

/// This program again, as the daemon of a [`GatewayProcess`](holdover_testbed::gateway::GatewayProcess) at [`MOBILE_FACING`].
pub(crate) fn daemon(directory: &Path) -> Command {
    let mut command = configured_daemon(directory);
    command.args(["--interface", MOBILE_FACING]);
    command
}

/// The same at the interface that the configuration names.
pub(crate) fn configured_daemon(directory: &Path) -> Command {
    let program = std::env::current_exe().unwrap_or_else(|_| PathBuf::from("holdover"));
    let mut command = Command::new(program);
    command.args(["gateway", "run", "--config"]).arg(directory.join("gateway.toml"));
    command.arg("--socket").arg(directory.join("gateway.sock"));
    command
}

fn table(cluster: Option<u8>, outcomes: &[Outcome]) -> String {
    let gateways = cluster.map_or_else(String::new, |count| format!(" {count} gateways that agree in etcd."));
    let transfers = format!(
        "Transfers of 8 MB at 4 MB/s, {} ms of round trip, CUBIC or what the kernel has; unmodified hosts.{gateways}",
        ROUND_TRIP.as_millis()
    );
    let layout = Layout { right: &[2, 3], ..Layout::default() };
    let rows = pairs(cluster, outcomes).map(|pair| row(&pair));
    let rows = laid_out(["outage", "transfer", "first data", "total"], layout, rows);
    let note = "Each time plain, and with the gateway. First data: from the return of the link to the first new data at the receiver. A \
                mobile host that comes to another gateway sends a datagram there at once, as hosts do when they attach (DHCP, DNS).";
    format!("{}\n{rows}\n{}", paragraph(&transfers), paragraph(note))
}

/// The same transfer over the same outage, without and with the gateway.
struct Pair<'a> {
    case: Case,
    is_upload: bool,
    plain: &'a Outcome,
    gateway: &'a Outcome,
}

impl Pair<'_> {
    const fn direction(&self) -> &'static str {
        if self.is_upload { "upload" } else { "download" }
    }
}

/// All pairs, in the order of the outages, each download before its upload.
fn pairs(cluster: Option<u8>, outcomes: &[Outcome]) -> impl Iterator<Item = Pair<'_>> {
    let transfers = cases(cluster).iter().flat_map(|&case| [(case, false), (case, true)]);
    transfers.filter_map(move |(case, is_upload)| {
        let find = |has_gateway| {
            outcomes.iter().find(|outcome| {
                outcome.case == case && outcome.way.is_upload == is_upload && outcome.way.has_gateway == has_gateway
            })
        };
        Some(Pair { case, is_upload, plain: find(false)?, gateway: find(true)? })
    })
}

fn row(pair: &Pair<'_>) -> [String; 4] {
    let Pair { case, plain, gateway, .. } = pair;
    let first_data = [plain, gateway].map(|outcome| outcome.first_data_s * 1000.0);
    let first_data = format!("{:.0} \u{2192} {:.0} ms", first_data[0], first_data[1]);
    let total = format!("{:.2} \u{2192} {:.2} s", plain.total_s, gateway.total_s);
    [case.name.to_owned(), pair.direction().to_owned(), first_data, total]
}
