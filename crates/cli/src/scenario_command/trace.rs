//! `holdover scenario trace`: a capture becomes a link's trace.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use holdover_base::Duration;
use holdover_explain::{Analysis, Capture, CaptureReadError, LinkEstimator, LinkTrace, LinkTraceError};

use crate::command_support::{print, print_error, print_note};

/// Arguments of `holdover scenario trace`.
#[derive(Args, Debug)]
pub(super) struct TraceArgs {
    /// A pcap or pcapng file, possibly compressed by gzip or zstd.
    capture: PathBuf,
    /// The interval that each row of the table covers.
    #[arg(long, value_name = "TIME", default_value = "1 s", value_parser = interval)]
    interval: Duration,
    /// The file for the table; default: standard output.
    #[arg(long, short, value_name = "FILE")]
    out: Option<PathBuf>,
}

#[derive(Debug, thiserror::Error)]
enum TraceError {
    #[error("{}: {error}", path.display())]
    Io { path: PathBuf, error: io::Error },
    #[error("{}: {error}", path.display())]
    Capture { path: PathBuf, error: CaptureReadError },
    #[error("{}: {error}", path.display())]
    Trace { path: PathBuf, error: LinkTraceError },
}

fn interval(text: &str) -> Result<Duration, String> {
    let expected = "a time with its unit, such as \"500 ms\", from 1 ms";
    text.parse().ok().filter(|interval| *interval >= Duration::from_millis(1)).ok_or_else(|| expected.to_owned())
}

/// Reads the capture twice: once for its connections and outages, once for the table.
pub(super) fn run(args: &TraceArgs) -> ExitCode {
    match make(args) {
        Ok(trace) => finish(args, &trace),
        Err(error) => {
            print_error(&error);
            match error {
                TraceError::Io { .. } => ExitCode::FAILURE,
                TraceError::Capture { .. } | TraceError::Trace { .. } => ExitCode::from(2),
            }
        }
    }
}

fn make(args: &TraceArgs) -> Result<LinkTrace, TraceError> {
    let path = &args.capture;
    let failed = |error| TraceError::Trace { path: path.clone(), error };
    let mut analysis = Analysis::new();
    read(path, |packet| analysis.take(packet.at, packet.ip, packet.original_len), true)?;
    let conversations = analysis.finish();
    let mut estimator = LinkEstimator::new(&conversations, args.interval).map_err(failed)?;
    read(path, |packet| estimator.take(packet.at, packet.ip, packet.original_len), false)?;
    estimator.finish().map_err(failed)
}

/// Packets before a damaged place count; a warning reports the damage.
fn read(path: &Path, mut take: impl FnMut(&holdover_explain::Captured<'_>), warns: bool) -> Result<(), TraceError> {
    let file = File::open(path).map_err(|error| TraceError::Io { path: path.to_owned(), error })?;
    let failed = |error| TraceError::Capture { path: path.to_owned(), error };
    let mut capture = Capture::new(file).map_err(failed)?;
    let mut packets: u64 = 0;
    loop {
        match capture.next_packet() {
            Ok(Some(packet)) => take(&packet),
            Ok(None) => return Ok(()),
            Err(error) if packets == 0 => return Err(failed(error)),
            Err(error) => {
                if warns {
                    print_note(&format_args!("{}: {error}; the trace ends there", path.display()));
                }
                return Ok(());
            }
        }
        packets += 1;
    }
}

fn finish(args: &TraceArgs, trace: &LinkTrace) -> ExitCode {
    let name = args.capture.file_name().unwrap_or_default().to_string_lossy();
    let text = trace.to_csv(&name);
    let length = trace.rows.last().map_or(Duration::ZERO, |row| row.at);
    print_note(&format_args!(
        "{} to {}, captured {}: {length}, {:.2} Mbit/s in the mean while up, {} outages. The rate is that of the link in {:.0} % of the \
         intervals, and estimated from these in the others.",
        trace.sender,
        trace.receiver,
        trace.place.name(),
        trace.mean_rate_bps() / 1e6,
        trace.outages(),
        100.0 * trace.full_share
    ));
    match &args.out {
        None => print(&text),
        Some(path) => match std::fs::write(path, text) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                print_error(&TraceError::Io { path: path.clone(), error });
                ExitCode::FAILURE
            }
        },
    }
}
