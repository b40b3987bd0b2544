//! The directory of a run: which capture shows a connection best, and when its path was down.

mod network;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use holdover_base::{Duration, Instant};
use holdover_explain::{Conversation, Outage};

use super::input::{self, Read};
use super::{ExplainError, io};
use network::Network;

/// A run of one variant, read.
pub(super) struct Run {
    /// The captures that show a connection best, each with these connections only.
    pub(super) captures: Vec<(PathBuf, Read)>,
    network: Option<Network>,
    cuts: Cuts,
    ways: BTreeMap<Ends, Way>,
}

/// The sender and the receiver of a conversation.
type Ends = (SocketAddr, SocketAddr);

/// Where the packets of a conversation were seen.
#[derive(Clone, Debug, Default)]
struct Way {
    /// The host of the sender, and when its first data was seen there.
    sender: Option<(Instant, String)>,
    /// The host of the receiver, and when its first packet was seen there.
    receiver: Option<(Instant, String)>,
    /// The interfaces on which packets were seen.
    interfaces: BTreeSet<String>,
}

/// When links were down and hosts cut off, by their names.
#[derive(Clone, Debug, Default)]
pub(super) struct Cuts {
    links: BTreeMap<String, Vec<Outage>>,
    hosts: BTreeMap<String, Vec<Outage>>,
}

/// The directories of runs in `path`.
pub(super) fn find(path: &Path) -> Result<Vec<PathBuf>, ExplainError> {
    let mut found = Vec::new();
    let mut directories = vec![path.to_owned()];
    while let Some(directory) = directories.pop() {
        let entries = entries(&directory)?;
        if directory.join("events.jsonl").is_file() {
            found.push(directory);
        }
        directories.extend(entries.into_iter().filter(|entry| entry.is_dir()).rev());
    }
    if found.is_empty() { Err(ExplainError::NotARun { path: path.to_owned() }) } else { Ok(found) }
}

impl Run {
    /// Reads all captures and the events of a run.
    pub(super) fn read(directory: &Path, show_progress: bool) -> Result<Self, ExplainError> {
        let cuts = Cuts::of(&directory.join("events.jsonl"))?;
        let network = Network::of_run(directory);
        let mut all: Vec<(PathBuf, Read)> = Vec::new();
        for capture in captures(directory)? {
            let read = input::read(&capture, show_progress)?;
            all.push((capture, read));
        }
        let mut ways: BTreeMap<Ends, Way> = BTreeMap::new();
        for (capture, read) in &all {
            let interface = stem(capture);
            let host = interface.rsplit_once('-').map_or(interface.as_str(), |(host, _)| host);
            for conversation in &read.conversations {
                ways.entry(ends(conversation)).or_default().note(conversation, host, &interface);
            }
        }
        let mut best: BTreeMap<Ends, (Instant, usize)> = BTreeMap::new();
        for (index, (_, read)) in all.iter().enumerate() {
            for conversation in &read.conversations {
                let (Some(first), Some(_)) = (conversation.first_data, conversation.first_heard) else { continue };
                // The capture that has its first data first is the sender's own.
                let best = best.entry(ends(conversation)).or_insert((first, index));
                if first < best.0 {
                    *best = (first, index);
                }
            }
        }
        for (index, (_, read)) in all.iter_mut().enumerate() {
            read.conversations.retain(|conversation| best.get(&ends(conversation)).is_some_and(|best| best.1 == index));
        }
        all.retain(|(_, read)| !read.conversations.is_empty());
        Ok(Self { captures: all, network, cuts, ways })
    }

    /// When the path of a conversation was down: when no way of links that were up led from host to host. Where the hosts are
    /// not known, all outages of the run are taken to concern it.
    pub(super) fn outages(&self, conversation: &Conversation) -> Vec<Outage> {
        let way = self.ways.get(&ends(conversation));
        let hosts = way.and_then(|way| Some((&way.sender.as_ref()?.1, &way.receiver.as_ref()?.1, &way.interfaces)));
        match (&self.network, hosts) {
            (Some(network), Some((a, b, interfaces))) if a != b => network.outages(a, b, interfaces, &self.cuts),
            _ => self.cuts.links.values().chain(self.cuts.hosts.values()).flatten().copied().collect(),
        }
    }
}

impl Way {
    fn note(&mut self, conversation: &Conversation, host: &str, interface: &str) {
        self.interfaces.insert(interface.to_owned());
        let earliest = |known: &mut Option<(Instant, String)>, at: Option<Instant>| {
            if let Some(at) = at
                && known.as_ref().is_none_or(|(earliest, _)| at < *earliest)
            {
                *known = Some((at, host.to_owned()));
            }
        };
        earliest(&mut self.sender, conversation.first_data);
        earliest(&mut self.receiver, conversation.first_heard);
    }
}

impl Cuts {
    /// From the events of a run.
    fn of(events: &Path) -> Result<Self, ExplainError> {
        #[derive(serde::Deserialize)]
        struct Line {
            t_s: f64,
            event: String,
            link: Option<String>,
            node: Option<String>,
        }
        let text = fs::read_to_string(events).map_err(|error| io(events, error))?;
        let mut cuts = Self::default();
        let mut down: BTreeMap<(bool, String), Instant> = BTreeMap::new();
        for (index, line) in text.lines().enumerate() {
            let line: Line = serde_json::from_str(line)
                .map_err(|_| ExplainError::Event { path: events.to_owned(), line: index + 1 })?;
            let at = Instant::ZERO + Duration::from_secs_f64(line.t_s);
            let (is_link, goes) = match line.event.as_str() {
                "link-down" => (true, true),
                "link-up" => (true, false),
                "connectivity-lost" => (false, true),
                "connectivity-back" => (false, false),
                _ => continue,
            };
            let name = if is_link { line.link } else { line.node }.unwrap_or_default();
            if goes {
                down.entry((is_link, name)).or_insert(at);
            } else if let Some(since) = down.remove(&(is_link, name.clone())) {
                cuts.push(is_link, name, Outage { down: since, up: at });
            }
        }
        for ((is_link, name), since) in down {
            cuts.push(is_link, name, Outage { down: since, up: Instant::FAR_FUTURE });
        }
        Ok(cuts)
    }

    fn push(&mut self, is_link: bool, name: String, outage: Outage) {
        let of = if is_link { &mut self.links } else { &mut self.hosts };
        of.entry(name).or_default().push(outage);
    }
}

fn ends(conversation: &Conversation) -> Ends {
    (conversation.sender, conversation.receiver)
}

/// The captures of a run: beside its events or in `captures`, without those of what links dropped.
fn captures(directory: &Path) -> Result<Vec<PathBuf>, ExplainError> {
    let nested = directory.join("captures");
    let mut files = entries(directory)?;
    if nested.is_dir() {
        files.extend(entries(&nested)?);
    }
    let is_capture = |file: &PathBuf| file.extension().is_some_and(|kind| kind == "pcapng" || kind == "pcap");
    files.retain(is_capture);
    Ok(files)
}

fn entries(directory: &Path) -> Result<Vec<PathBuf>, ExplainError> {
    let mut entries = Vec::new();
    for entry in fs::read_dir(directory).map_err(|error| io(directory, error))? {
        entries.push(entry.map_err(|error| io(directory, error))?.path());
    }
    entries.sort();
    Ok(entries)
}

fn stem(path: &Path) -> String {
    path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default()
}
