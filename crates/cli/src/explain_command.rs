//! `holdover explain`: where each connection of a capture or of a run lost its time.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use holdover_base::Instant;
use holdover_explain::{Account, Captured, Cause, Contents, Conversation, Outage};
use serde::Serialize;

/// Arguments of `holdover explain`.
#[derive(Args, Debug)]
pub(crate) struct ExplainArgs {
    /// A capture (pcapng or pcap), or the directory of a run.
    path: PathBuf,
    /// A time in which the link was down, in seconds since the capture's first packet, as FROM-TO (repeatable). A run knows
    /// its own.
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
        Ok(all) if args.json => {
            println!("{}", serde_json::to_string_pretty(&all).expect("plain values"));
            ExitCode::SUCCESS
        }
        Ok(all) => {
            all.iter().for_each(print);
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("holdover explain: {error}");
            ExitCode::from(2)
        }
    }
}

fn explain(args: &ExplainArgs) -> Result<Vec<Explained>, ExplainError> {
    let mut all = Vec::new();
    for source in sources(&args.path)? {
        let contents = read(&source.capture)?;
        let first = contents.packets.first().map_or(Instant::ZERO, |packet| packet.at);
        let mut outages = source.outages;
        outages.extend(args.outage.iter().map(|&(from, to)| {
            let at = |seconds| first + holdover_base::Duration::from_secs_f64(seconds);
            Outage { down: at(from), up: at(to) }
        }));
        outages.sort_by_key(|outage| outage.down);
        for conversation in holdover_explain::conversations(&contents.packets) {
            if conversation.bytes > 0 {
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

fn print(explained: &Explained) {
    println!(
        "{} > {}: {} bytes in {:.3} s, round trip {:.1} ms, {} segments sent again",
        explained.sender,
        explained.receiver,
        explained.bytes,
        explained.seconds,
        explained.rtt_s * 1e3,
        explained.retransmissions
    );
    println!("  seen in {}", explained.capture.display());
    for share in explained.lost.iter().filter(|share| share.seconds > 0.0) {
        let bar = "#".repeat((share.share * 40.0).round() as usize);
        println!("  {:12} {:>9.3} s {:>5.1} %  {bar}", share.cause.name(), share.seconds, share.share * 100.0);
    }
    let waits = explained.spans.iter().filter(|span| !matches!(span.cause, Cause::Transfer | Cause::Handshake));
    for span in waits.filter(|span| span.to_s - span.from_s >= 0.2) {
        let (from, to, cause) = (span.from_s, span.to_s, span.cause.name());
        println!("    {from:>9.3} s to {to:>9.3} s  {cause} for {:.3} s", to - from);
    }
    println!();
}

/// A capture, and the outages that are known of it.
struct Source {
    capture: PathBuf,
    outages: Vec<Outage>,
}

fn sources(path: &Path) -> Result<Vec<Source>, ExplainError> {
    if !path.is_dir() {
        return Ok(vec![Source { capture: path.to_owned(), outages: Vec::new() }]);
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
            sources.extend(best_captures(&entries)?.map(|capture| Source { capture, outages: outages.clone() }));
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
fn best_captures(entries: &[PathBuf]) -> Result<impl Iterator<Item = PathBuf> + use<>, ExplainError> {
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
        captures.extend(files.into_iter().filter(|file| file.extension().is_some_and(|kind| kind == "pcapng")));
    }
    let mut best: std::collections::BTreeMap<(String, String), (Instant, PathBuf)> = std::collections::BTreeMap::new();
    for capture in captures {
        let contents = read(&capture)?;
        for conversation in holdover_explain::conversations(&contents.packets) {
            let first = conversation.sightings.iter().find(|sighting| sighting.from_sender && sighting.len > 0);
            let answered = conversation.sightings.iter().any(|sighting| !sighting.from_sender);
            let Some(first) = first.filter(|_| answered) else { continue };
            let key = (conversation.sender.to_string(), conversation.receiver.to_string());
            let is_earlier = best.get(&key).is_none_or(|(at, _)| first.at < *at);
            if is_earlier {
                best.insert(key, (first.at, capture.clone()));
            }
        }
    }
    let chosen: std::collections::BTreeSet<PathBuf> = best.into_values().map(|(_, capture)| capture).collect();
    Ok(chosen.into_iter())
}

/// The outages of a run, from its events.
fn outages_of(events: &Path) -> Result<Vec<Outage>, ExplainError> {
    #[derive(serde::Deserialize)]
    struct Line {
        t_s: f64,
        event: String,
    }
    let text = fs::read_to_string(events).map_err(|error| io(events, error))?;
    let mut outages: Vec<Outage> = Vec::new();
    let mut down = None;
    for (index, line) in text.lines().enumerate() {
        let line: Line =
            serde_json::from_str(line).map_err(|_| ExplainError::Event { path: events.to_owned(), line: index + 1 })?;
        let at = Instant::ZERO + holdover_base::Duration::from_secs_f64(line.t_s);
        match line.event.as_str() {
            "link-down" => down = down.or(Some(at)),
            "link-up" => outages.extend(down.take().map(|down| Outage { down, up: at })),
            _ => {}
        }
    }
    outages.extend(down.map(|down| Outage { down, up: Instant::FAR_FUTURE }));
    Ok(outages)
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
