//! `holdover hip top`.

use std::io::IsTerminal as _;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use holdover_hipd::control::{self, Request, Response};
use holdover_hipd::status::{PeerStatus, Status};

use super::{Failure, SocketArgs, text};
use crate::command_support::print;

/// Arguments of `holdover hip top`.
#[derive(Args, Debug)]
pub(super) struct TopArgs {
    /// The time between two looks, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=3600))]
    every: u64,
    /// End after so many looks.
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    #[command(flatten)]
    socket: SocketArgs,
}

/// Clears the screen, and begins at its top (ECMA-48: ED, CUP).
const CLEAR: &str = "\u{1b}[2J\u{1b}[H";

pub(super) fn top(args: &TopArgs) -> Result<ExitCode, Failure> {
    let is_terminal = std::io::stdout().is_terminal();
    let mut before = ask(&args.socket)?;
    let mut left = args.count;
    while left != Some(0) {
        std::thread::sleep(Duration::from_secs(args.every));
        let now = ask(&args.socket)?;
        let page = text::top(&now, |peer| rates(&before, &now, peer));
        let shown = print(&if is_terminal { format!("{CLEAR}{page}") } else { page });
        if shown != ExitCode::SUCCESS {
            return Ok(shown);
        }
        before = now;
        left = left.map(|left| left - 1);
    }
    Ok(ExitCode::SUCCESS)
}

fn ask(args: &SocketArgs) -> Result<Status, Failure> {
    match control::ask(&args.socket, &Request::Status)? {
        Response::Status(status) => Ok(*status),
        _ => Err(Failure { text: "the daemon answered something else".to_owned(), status: 1 }),
    }
}

/// Bits per second to and from a peer between two looks; zero if the daemon was started anew meanwhile.
fn rates(before: &Status, now: &Status, peer: &PeerStatus) -> [f64; 2] {
    let seconds = now.running_s - before.running_s;
    let known = before.peers.iter().find(|known| known.hit == peer.hit);
    let (Some(known), true) = (known, seconds > 0.0) else { return [0.0; 2] };
    let rate = |now: u64, before: u64| now.saturating_sub(before) as f64 * 8.0 / seconds;
    let (counters, known) = (&peer.counters, &known.counters);
    [rate(counters.bytes_out, known.bytes_out), rate(counters.bytes_in, known.bytes_in)]
}
