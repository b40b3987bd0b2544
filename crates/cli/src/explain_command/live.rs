//! Captures on an interface until Ctrl-C or a time limit.

use std::io::ErrorKind;
use std::sync::atomic::Ordering;
use std::time;

use holdover_base::{Duration, Instant};
use holdover_explain::Analysis;
use holdover_host::packet_listener::PacketListener;
use holdover_wire::TcpHeaders;

use super::input::{Bar, Read};
use crate::command_support::{print_note, stop_on_signals};

/// Why nothing was captured.
#[derive(Debug, thiserror::Error)]
pub(super) enum LiveError {
    #[error("cannot capture on {interface}: {error}{}", hint(error))]
    Open { interface: String, error: std::io::Error },
    #[error("capturing on {interface} ended: {error}")]
    Ended { interface: String, error: std::io::Error },
    #[error("cannot watch for Ctrl-C: {0}")]
    Signals(std::io::Error),
}

fn hint(error: &std::io::Error) -> &'static str {
    match error.kind() {
        ErrorKind::PermissionDenied => "; it needs root or CAP_NET_RAW (setcap cap_net_raw+ep)",
        _ => "",
    }
}

/// Captures until Ctrl-C, or for the given number of seconds.
pub(super) fn listen(interface: &str, seconds: Option<f64>, show_progress: bool) -> Result<Read, LiveError> {
    let stop = stop_on_signals().map_err(LiveError::Signals)?;
    let listener =
        PacketListener::open(interface).map_err(|error| LiveError::Open { interface: interface.to_owned(), error })?;
    if show_progress {
        print_note(&format_args!("Capturing on {interface}; Ctrl-C ends it and explains what was seen."));
    }
    let end = seconds.map(|seconds| time::Instant::now() + time::Duration::from_secs_f64(seconds.min(1e9)));
    let mut analysis = Analysis::new();
    let mut bar = Bar::new(show_progress, 0);
    let mut buffer = [0; TcpHeaders::ENOUGH];
    let mut packets: u64 = 0;
    let mut shown = time::Instant::now();
    while !stop.load(Ordering::Relaxed) && end.is_none_or(|end| time::Instant::now() < end) {
        match listener.receive(&mut buffer, Duration::from_millis(100)) {
            Ok(Some(heard)) => {
                packets += 1;
                analysis.take(heard.at, &buffer[..heard.len], heard.original_len);
            }
            Ok(None) => {}
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            // The interface went down: it may come back.
            Err(error) if error.kind() == ErrorKind::NetworkDown => {}
            Err(error) => return Err(LiveError::Ended { interface: interface.to_owned(), error }),
        }
        if shown.elapsed() >= time::Duration::from_millis(200) {
            bar.show(0, packets);
            shown = time::Instant::now();
        }
    }
    bar.finish();
    let missed = listener.missed().unwrap_or(0);
    if missed > 0 {
        print_note(&format_args!("{missed} packets were missed: this machine was too busy to read them"));
    }
    let first = analysis.first().unwrap_or(Instant::ZERO);
    Ok(Read { conversations: analysis.finish(), first, unsupported: Vec::new() })
}
