//! `holdover explain`: where each connection of a capture, of a run or of a live interface lost its time.

mod input;
mod live;
#[cfg(feature = "demo")]
mod run_directory;
mod text;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use holdover_base::{Duration, Instant};
use holdover_explain::{Account, Cause, Certainty, Conversation, FoundOutage, KnownOutages, Outage, Place};
use serde::Serialize;

use crate::command_support::{print, print_error, print_json, terminal_width};

/// Arguments of `holdover explain`.
#[derive(Args, Debug)]
pub(crate) struct ExplainArgs {
    /// A capture (pcapng or pcap, as it is or compressed by gzip or zstd; - for standard input), or the directory of a run.
    #[arg(required_unless_present = "live")]
    path: Option<PathBuf>,
    /// Capture on this interface until Ctrl-C, then explain (needs root or CAP_NET_RAW).
    #[arg(long, value_name = "IF", conflicts_with = "path")]
    live: Option<String>,
    /// With --live: capture for this many seconds.
    #[arg(long, value_name = "SECONDS", requires = "live", value_parser = parse_seconds)]
    r#for: Option<f64>,
    /// A time in which the link was down, in seconds since the capture's first packet, as FROM-TO (repeatable). A run knows
    /// its own, and its seconds count from its start.
    #[arg(long, value_name = "FROM-TO", value_parser = parse_outage)]
    outage: Vec<(f64, f64)>,
    /// Use the given outages only: those of --outage and of a run.
    #[arg(long)]
    only_given: bool,
    /// Show no progress.
    #[arg(long)]
    quiet: bool,
    /// Print JSON instead of text.
    #[arg(long)]
    json: bool,
}

fn parse_outage(text: &str) -> Result<(f64, f64), String> {
    let parsed = text.split_once('-').and_then(|(from, to)| Some((from.trim().parse().ok()?, to.trim().parse().ok()?)));
    match parsed {
        Some((from, to)) if 0.0 <= from && from < to => Ok((from, to)),
        _ => Err(format!("\"{text}\" is not FROM-TO in seconds, such as 10-17.5")),
    }
}

fn parse_seconds(text: &str) -> Result<f64, String> {
    let seconds = text.trim().parse().ok().filter(|seconds: &f64| seconds.is_finite() && *seconds > 0.0);
    seconds.ok_or_else(|| format!("\"{text}\" is not a number of seconds above 0"))
}

/// Errors of the command, with a hint.
#[derive(Debug, thiserror::Error)]
enum ExplainError {
    #[error("{}: {error}", path.display())]
    Io { path: PathBuf, error: std::io::Error },
    #[error("{}: {error}", path.display())]
    Capture { path: PathBuf, error: holdover_explain::CaptureReadError },
    #[error("{}: {line}: not an event of a run", path.display())]
    Event { path: PathBuf, line: usize },
    #[cfg(not(feature = "demo"))]
    #[error("{} is a directory; this program reads captures only; the complete one reads the directories of runs, too", path.display())]
    IsDirectory { path: PathBuf },
    #[error("{} is neither a capture nor the directory of a run: there is no events.jsonl and no .pcapng in it", path.display())]
    NotARun { path: PathBuf },
    #[error("{} has no TCP connection in it{}", path.display(), because(unsupported))]
    NothingThere { path: PathBuf, unsupported: Vec<i32> },
    #[error("no TCP connection has sent data on {interface}")]
    NothingHeard { interface: String },
    #[error("{0}")]
    Live(#[from] live::LiveError),
}

fn because(unsupported: &[i32]) -> String {
    let types: Vec<String> = unsupported.iter().map(i32::to_string).collect();
    match types.as_slice() {
        [] => String::new(),
        types => format!(
            " that can be read: link type {} is not supported; IP, Ethernet, Linux cooked, loopback, PPP and Wi-Fi captures are",
            types.join(", ")
        ),
    }
}

/// One connection, explained.
#[derive(Debug, Serialize)]
struct Explained {
    capture: PathBuf,
    sender: String,
    receiver: String,
    bytes: u64,
    seconds: f64,
    /// Where the capture was taken.
    captured: Place,
    rtt_s: f64,
    rtt_to_sender_s: Option<f64>,
    rtt_to_receiver_s: Option<f64>,
    retransmissions: u64,
    /// The share of bytes that were retransmitted.
    retransmitted_share: f64,
    lost: Vec<Share>,
    outages: Vec<OutageRow>,
    spans: Vec<SpanRow>,
}

#[derive(Debug, Serialize)]
struct Share {
    cause: Cause,
    seconds: f64,
    share: f64,
}

/// An outage of the connection's path. Times beyond the capture's end are `null`.
#[derive(Debug, Serialize)]
struct OutageRow {
    from_s: f64,
    to_s: Option<f64>,
    /// Bounds of its beginning.
    from_between_s: [f64; 2],
    /// Bounds of its end.
    to_between_s: [Option<f64>; 2],
    certainty: Evidence,
}

/// The source of an outage, and its certainty.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Evidence {
    /// By the run, or on the command line.
    Given,
    Sure,
    Likely,
}

#[derive(Debug, Serialize)]
struct SpanRow {
    from_s: f64,
    to_s: f64,
    cause: Cause,
}

/// Explains and prints.
pub(crate) fn run(args: &ExplainArgs) -> ExitCode {
    match explain(args) {
        Ok(all) if args.json => print_json(&all),
        Ok(all) => print(&all.iter().map(|one| text::of(one, terminal_width().unwrap_or(100))).collect::<String>()),
        Err(error) => {
            print_error(&error);
            ExitCode::from(2)
        }
    }
}

fn explain(args: &ExplainArgs) -> Result<Vec<Explained>, ExplainError> {
    if let Some(interface) = &args.live {
        let read = live::listen(interface, args.r#for, !args.quiet)?;
        let all = explained(args, Path::new(interface), &read, read.first, |_| Given::default());
        return if all.is_empty() { Err(ExplainError::NothingHeard { interface: interface.clone() }) } else { Ok(all) };
    }
    let path = args.path.clone().unwrap_or_default();
    if path.is_dir() {
        return explain_run(args, path);
    }
    let read = input::read(&path, !args.quiet)?;
    let all = explained(args, &path, &read, read.first, |_| Given::default());
    let unsupported = read.unsupported.clone();
    if all.is_empty() { Err(ExplainError::NothingThere { path, unsupported }) } else { Ok(all) }
}

/// Explains the captures of a run's directory, whose outages are known.
#[cfg(feature = "demo")]
fn explain_run(args: &ExplainArgs, path: PathBuf) -> Result<Vec<Explained>, ExplainError> {
    let mut all = Vec::new();
    for directory in run_directory::find(&path)? {
        let run = run_directory::Run::read(&directory, !args.quiet)?;
        for (capture, read) in &run.captures {
            // The times of a run are those of its report; other captures begin with their first packet.
            all.extend(explained(args, capture, read, Instant::ZERO, |conversation| Given {
                outages: run.outages(conversation),
                is_everything: true,
            }));
        }
    }
    if all.is_empty() { Err(ExplainError::NothingThere { path, unsupported: Vec::new() }) } else { Ok(all) }
}

#[cfg(not(feature = "demo"))]
fn explain_run(_: &ExplainArgs, path: PathBuf) -> Result<Vec<Explained>, ExplainError> {
    Err(ExplainError::IsDirectory { path })
}

/// Outages that are known beforehand.
#[derive(Default)]
struct Given {
    outages: Vec<Outage>,
    /// There were no others.
    is_everything: bool,
}

/// Explains all conversations of a capture, in seconds since `first`.
fn explained(
    args: &ExplainArgs,
    capture: &Path,
    read: &input::Read,
    first: Instant,
    given: impl Fn(&Conversation) -> Given,
) -> Vec<Explained> {
    let found = holdover_explain::outages_of_paths(&read.conversations);
    let explain_one = |(conversation, found): (&Conversation, Vec<FoundOutage>)| {
        let mut given = given(conversation);
        given.outages.extend(args.outage.iter().map(|&(from, to)| {
            let at = |seconds| first + Duration::from_secs_f64(seconds);
            Outage { down: at(from), up: at(to) }
        }));
        let found = if given.is_everything || args.only_given { Vec::new() } else { found };
        let known = KnownOutages::new(given.outages, found);
        let account = holdover_explain::account(conversation, &known.all());
        row(capture, first, conversation, &account, outage_rows(first, conversation, &known))
    };
    read.conversations.iter().zip(found).map(explain_one).collect()
}

fn row(
    capture: &Path,
    first: Instant,
    conversation: &Conversation,
    account: &Account,
    outages: Vec<OutageRow>,
) -> Explained {
    let whole = account.whole().as_secs_f64();
    let seconds = |at: Instant| at.saturating_since(first).as_secs_f64();
    let share_of = |cause| {
        let spent = account.total(cause).as_secs_f64();
        Share { cause, seconds: spent, share: if whole > 0.0 { spent / whole } else { 0.0 } }
    };
    let sent = conversation.bytes + conversation.retransmitted_bytes;
    Explained {
        capture: capture.to_owned(),
        sender: conversation.sender.to_string(),
        receiver: conversation.receiver.to_string(),
        bytes: conversation.bytes,
        seconds: whole,
        captured: conversation.place,
        rtt_s: conversation.rtt().as_secs_f64(),
        rtt_to_sender_s: conversation.rtt_to_sender.map(Duration::as_secs_f64),
        rtt_to_receiver_s: conversation.rtt_to_receiver.map(Duration::as_secs_f64),
        retransmissions: conversation.retransmissions,
        retransmitted_share: if sent > 0 { conversation.retransmitted_bytes as f64 / sent as f64 } else { 0.0 },
        lost: Cause::ALL.into_iter().map(share_of).collect(),
        outages,
        spans: account
            .spans
            .iter()
            .map(|span| SpanRow { from_s: seconds(span.from), to_s: seconds(span.to), cause: span.cause })
            .collect(),
    }
}

/// The outages within a conversation's time, in order.
fn outage_rows(first: Instant, conversation: &Conversation, known: &KnownOutages) -> Vec<OutageRow> {
    let seconds = |at: Instant| at.saturating_since(first).as_secs_f64();
    let within = |at: Instant| (at != Instant::FAR_FUTURE).then(|| seconds(at));
    let given = known.given.iter().filter(|outage| outage.down < conversation.end && conversation.begin < outage.up);
    let given = given.map(|outage| OutageRow {
        from_s: seconds(outage.down),
        to_s: within(outage.up),
        from_between_s: [seconds(outage.down); 2],
        to_between_s: [within(outage.up); 2],
        certainty: Evidence::Given,
    });
    let found = known.found.iter().map(|outage| OutageRow {
        from_s: seconds(outage.guess.down),
        to_s: within(outage.guess.up),
        from_between_s: [seconds(outage.down.0), seconds(outage.down.1)],
        to_between_s: [within(outage.up.0), within(outage.up.1)],
        certainty: match outage.certainty {
            Certainty::Sure => Evidence::Sure,
            Certainty::Likely => Evidence::Likely,
        },
    });
    let mut rows: Vec<OutageRow> = given.chain(found).collect();
    rows.sort_by(|a, b| a.from_s.total_cmp(&b.from_s));
    rows
}

fn io(path: &Path, error: std::io::Error) -> ExplainError {
    ExplainError::Io { path: path.to_owned(), error }
}
