//! `holdover explain`: where each connection of a capture or of a run lost its time.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use holdover_base::Instant;
use holdover_explain::{Account, Captured, Cause, Contents, Conversation, Outage};
use serde::Serialize;

use crate::command_support::{print, print_json};

/// Arguments of `holdover explain`.
#[derive(Args, Debug)]
pub(crate) struct ExplainArgs {
    /// A capture (pcapng or pcap), or the directory of a run.
    path: PathBuf,
    /// A time in which the link was down, in seconds since the capture's first packet, as FROM-TO (repeatable). A run knows
    /// its own, and its seconds count from its start.
    #[arg(long, value_name = "FROM-TO", value_parser = parse_outage)]
    outage: Vec<(f64, f64)>,
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

/// What went wrong, in a sentence that says what to do.
#[derive(Debug, thiserror::Error)]
enum ExplainError {
    #[error("{path}: {error}")]
    Io { path: PathBuf, error: std::io::Error },
    #[error("{path}: {error}")]
    Capture { path: PathBuf, error: holdover_explain::CaptureReadError },
    #[error("{path}: {line}: not an event of a run")]
    Event { path: PathBuf, line: usize },
    #[error("{path} is neither a capture nor the directory of a run: there is no events.jsonl and no .pcapng in it")]
    NotARun { path: PathBuf },
    #[error("{path} has no TCP connection in it")]
    NothingThere { path: PathBuf },
}

/// One connection, explained.
#[derive(Debug, Serialize)]
struct Explained {
    capture: PathBuf,
    sender: String,
    receiver: String,
    bytes: u64,
    seconds: f64,
    rtt_s: f64,
    retransmissions: u64,
    lost: Vec<Share>,
    spans: Vec<SpanRow>,
}

#[derive(Debug, Serialize)]
struct Share {
    cause: Cause,
    seconds: f64,
    share: f64,
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
        Ok(all) => print(&all.iter().map(to_text).collect::<String>()),
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
    }
}

fn explain(args: &ExplainArgs) -> Result<Vec<Explained>, ExplainError> {
    let mut all = Vec::new();
    for source in sources(&args.path)? {
        let contents = read(&source.capture)?;
        // The times of a run are those of its report; other captures begin with their first packet.
        let first = match (&source.only, contents.packets.first()) {
            (None, Some(packet)) => packet.at,
            _ => Instant::ZERO,
        };
        let mut outages = source.outages;
        outages.0.extend(args.outage.iter().map(|&(from, to)| {
            let at = |seconds| first + holdover_base::Duration::from_secs_f64(seconds);
            Outage { down: at(from), up: at(to) }
        }));
        let outages = outages.merged();
        for conversation in holdover_explain::conversations(&contents.packets) {
            let ends = (conversation.sender, conversation.receiver);
            if conversation.bytes > 0 && source.only.as_ref().is_none_or(|only| only.contains(&ends)) {
                let account = holdover_explain::account(&conversation, &outages);
                all.push(explained(&source.capture, first, &conversation, &account));
            }
        }
    }
    if all.is_empty() {
        return Err(ExplainError::NothingThere { path: args.path.clone() });
    }
    Ok(all)
}

fn explained(capture: &Path, first: Instant, conversation: &Conversation, account: &Account) -> Explained {
    let whole = account.whole().as_secs_f64();
    let seconds = |at: Instant| at.saturating_since(first).as_secs_f64();
    Explained {
        capture: capture.to_owned(),
        sender: conversation.sender.to_string(),
        receiver: conversation.receiver.to_string(),
        bytes: conversation.bytes,
        seconds: whole,
        rtt_s: account.rtt.as_secs_f64(),
        retransmissions: account.retransmissions,
        lost: Cause::ALL
            .into_iter()
            .map(|cause| {
                let spent = account.total(cause).as_secs_f64();
                Share { cause, seconds: spent, share: if whole > 0.0 { spent / whole } else { 0.0 } }
            })
            .collect(),
        spans: account
            .spans
            .iter()
            .map(|span| SpanRow { from_s: seconds(span.from), to_s: seconds(span.to), cause: span.cause })
            .collect(),
    }
}

fn to_text(explained: &Explained) -> String {
    let mut text = format!(
        "{} > {}: {} bytes in {:.3} s, round trip {:.1} ms, {} segments sent again\n  seen in {}\n",
        explained.sender,
        explained.receiver,
        explained.bytes,
        explained.seconds,
        explained.rtt_s * 1e3,
        explained.retransmissions,
        explained.capture.display()
    );
    for share in explained.lost.iter().filter(|share| share.seconds > 0.0) {
        let bar = "#".repeat((share.share * 40.0).round() as usize);
        let row = format!("  {:12} {:>9.3} s {:>5.1} %  {bar}", share.cause.name(), share.seconds, share.share * 100.0);
        let _ = writeln!(text, "{}", row.trim_end());
    }
    let waits = explained.spans.iter().filter(|span| !matches!(span.cause, Cause::Transfer | Cause::Handshake));
    let waits: Vec<&SpanRow> = waits.filter(|span| span.to_s - span.from_s >= 0.2).collect();
    for span in waits.iter().take(MAX_WAITS) {
        let (from, to, cause) = (span.from_s, span.to_s, span.cause.name());
        let _ = writeln!(text, "    {from:>9.3} s to {to:>9.3} s  {cause} for {:.3} s", to - from);
    }
    if waits.len() > MAX_WAITS {
        let _ = writeln!(text, "    ... and {} more; --json has them all", waits.len() - MAX_WAITS);
    }
    text.push('\n');
    text
}

/// More waits than a person reads.
const MAX_WAITS: usize = 40;

/// A capture, what is known of outages, and which of its conversations are of interest.
struct Source {
    capture: PathBuf,
    outages: Outages,
    only: Option<BTreeSet<Ends>>,
}

/// The sender and the receiver of a conversation.
type Ends = (SocketAddr, SocketAddr);

/// The times in which something was cut off.
#[derive(Clone, Debug, Default)]
struct Outages(Vec<Outage>);

fn sources(path: &Path) -> Result<Vec<Source>, ExplainError> {
    if !path.is_dir() {
        return Ok(vec![Source { capture: path.to_owned(), outages: Outages::default(), only: None }]);
    }
    let mut sources = Vec::new();
    let mut directories = vec![path.to_owned()];
    while let Some(directory) = directories.pop() {
        let mut entries = Vec::new();
        for entry in fs::read_dir(&directory).map_err(|error| io(&directory, error))? {
            entries.push(entry.map_err(|error| io(&directory, error))?.path());
        }
        entries.sort();
        let events = directory.join("events.jsonl");
        if events.is_file() {
            let outages = outages_of(&events)?;
            sources.extend(best_captures(&entries)?.into_iter().map(|(capture, ends)| Source {
                capture,
                outages: outages.clone(),
                only: Some(ends),
            }));
        }
        directories.extend(entries.into_iter().filter(|entry| entry.is_dir()).rev());
    }
    if sources.is_empty() {
        return Err(ExplainError::NotARun { path: path.to_owned() });
    }
    Ok(sources)
}

/// A run has a capture for each interface, and each connection is in several of them: the one in which its sender's packets are
/// seen first is the sender's own.
fn best_captures(entries: &[PathBuf]) -> Result<BTreeMap<PathBuf, BTreeSet<Ends>>, ExplainError> {
    let mut captures = Vec::new();
    for entry in entries {
        let nested = entry.is_dir() && entry.file_name().is_some_and(|name| name == "captures");
        let files = if nested {
            let mut files = Vec::new();
            for file in fs::read_dir(entry).map_err(|error| io(entry, error))? {
                files.push(file.map_err(|error| io(entry, error))?.path());
            }
            files.sort();
            files
        } else {
            vec![entry.clone()]
        };
        let is_capture = |file: &PathBuf| file.extension().is_some_and(|kind| kind == "pcapng" || kind == "pcap");
        captures.extend(files.into_iter().filter(is_capture));
    }
    let mut best: BTreeMap<Ends, (Instant, PathBuf)> = BTreeMap::new();
    for capture in captures {
        let contents = read(&capture)?;
        for conversation in holdover_explain::conversations(&contents.packets) {
            let first = conversation.sightings.iter().find(|sighting| sighting.from_sender && sighting.len > 0);
            let answered = conversation.sightings.iter().any(|sighting| !sighting.from_sender);
            let Some(first) = first.filter(|_| answered) else { continue };
            let key = (conversation.sender, conversation.receiver);
            let is_earlier = best.get(&key).is_none_or(|(at, _)| first.at < *at);
            if is_earlier {
                best.insert(key, (first.at, capture.clone()));
            }
        }
    }
    let mut chosen: BTreeMap<PathBuf, BTreeSet<Ends>> = BTreeMap::new();
    for (ends, (_, capture)) in best {
        chosen.entry(capture).or_default().insert(ends);
    }
    Ok(chosen)
}

/// The outages of a run, from its events: of its links, and of its mobile hosts. Which of them a connection crosses is not in a
/// capture; they are taken to concern all.
fn outages_of(events: &Path) -> Result<Outages, ExplainError> {
    #[derive(serde::Deserialize)]
    struct Line {
        t_s: f64,
        event: String,
        link: Option<String>,
        node: Option<String>,
    }
    let text = fs::read_to_string(events).map_err(|error| io(events, error))?;
    let mut outages: Vec<Outage> = Vec::new();
    let mut down: BTreeMap<String, Instant> = BTreeMap::new();
    for (index, line) in text.lines().enumerate() {
        let line: Line =
            serde_json::from_str(line).map_err(|_| ExplainError::Event { path: events.to_owned(), line: index + 1 })?;
        let at = Instant::ZERO + holdover_base::Duration::from_secs_f64(line.t_s);
        let who = line.link.or(line.node).unwrap_or_default();
        match line.event.as_str() {
            "link-down" | "connectivity-lost" => {
                down.entry(who).or_insert(at);
            }
            "link-up" | "connectivity-back" => {
                outages.extend(down.remove(&who).map(|down| Outage { down, up: at }));
            }
            _ => {}
        }
    }
    outages.extend(down.into_values().map(|down| Outage { down, up: Instant::FAR_FUTURE }));
    Ok(Outages(outages))
}

impl Outages {
    /// In order, and without overlaps.
    fn merged(mut self) -> Vec<Outage> {
        self.0.sort_by_key(|outage| outage.down);
        let mut merged: Vec<Outage> = Vec::with_capacity(self.0.len());
        for outage in self.0 {
            match merged.last_mut() {
                Some(last) if outage.down <= last.up => last.up = last.up.max(outage.up),
                _ => merged.push(outage),
            }
        }
        merged
    }
}

fn read(path: &Path) -> Result<Contents, ExplainError> {
    let data = fs::read(path).map_err(|error| io(path, error))?;
    let mut contents = holdover_explain::read_capture(&data)
        .map_err(|error| ExplainError::Capture { path: path.to_owned(), error })?;
    contents.packets.sort_by_key(|packet: &Captured| packet.at);
    if contents.cut_short {
        eprintln!("{}: ends in the middle of a packet; what comes before it is explained", path.display());
    }
    Ok(contents)
}

fn io(path: &Path, error: std::io::Error) -> ExplainError {
    ExplainError::Io { path: path.to_owned(), error }
}
