//! Packet captures: one per interface, and one of drops per link.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use holdover_base::{BitRate, Instant};
use holdover_link::{InFlightFate, LinkConfig, QueuedFate, Rate};
use holdover_sim::{Dropped, Frame, LinkBetween, Medium, NodeId, Place, Transit, WorldConfig};
use holdover_wire::pcapng::{self, Interface, InterfaceId};
use holdover_wire::{CaptureError, Packet, pcap};

use crate::error::RecordError;
use crate::part_file::{PartFile, Written};
use crate::quantity::FileNames;

/// How much of each packet a capture keeps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CaptureLen {
    /// The first bytes of each packet.
    Bytes(u32),
    /// Whole packets, which a reader needs to verify TCP checksums.
    Whole,
}

/// The format of captures.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum CaptureFormat {
    /// pcapng, with interface names, directions, and the reason for each segment as its comment.
    #[default]
    Pcapng,
    /// Times and packets only, for programs that do not read pcapng.
    Pcap,
}

/// Capture settings.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CaptureOptions {
    /// The file format.
    pub format: CaptureFormat,
    /// The hosts and routers whose interfaces are captured; `None` for all. Drops of links and cells are always captured.
    pub nodes: Option<Vec<String>>,
    /// How much of each packet is kept.
    pub len: CaptureLen,
    /// The approximate size limit of each file. Packets beyond it are omitted and reported by [`crate::Record::cut_captures`].
    pub max_file_bytes: u64,
}

impl Default for CaptureOptions {
    /// 128 bytes of each packet, which is all headers and some data, and 256 MiB in each file.
    fn default() -> Self {
        Self { format: CaptureFormat::Pcapng, nodes: None, len: CaptureLen::Bytes(128), max_file_bytes: 256 << 20 }
    }
}

/// With more interfaces than this, a single file is used for all: the number of open files is limited.
const MAX_FILES: usize = 128;

/// The captures of a run.
#[derive(Debug)]
pub(crate) struct Captures {
    options: CaptureOptions,
    dir: PathBuf,
    record: Written,
    names: FileNames,
    files: Vec<CaptureFile>,
    /// Capture ports by interface. A mobile host has one interface for all cells.
    ports: BTreeMap<(NodeId, Option<Medium>), Port>,
    /// Capture ports for packets between identities, by host.
    identities: BTreeMap<NodeId, Port>,
    /// Capture ports for drops, by the link, cell or node that dropped the packet; created with the first drop.
    drops: BTreeMap<String, Port>,
    /// For each link, whether its packets may arrive damaged.
    may_damage: Vec<bool>,
    /// An arrival not yet known to be intact or damaged.
    pending: Option<(Instant, Place, Frame)>,
}

/// An interface in a file.
#[derive(Clone, Copy, Debug)]
struct Port {
    file: usize,
    /// `None` in a format without interfaces.
    interface: Option<InterfaceId>,
}

#[derive(Debug)]
struct CaptureFile {
    path: PathBuf,
    writer: FileWriter,
    /// Approximate bytes written.
    written: u64,
    cut: bool,
}

#[derive(Debug)]
enum FileWriter {
    Pcapng(pcapng::Writer<PartFile>),
    Pcap(pcap::Writer<PartFile>),
}

/// An interface to create.
struct NewPort<'a> {
    node: NodeId,
    medium: Option<Medium>,
    /// The prefix of its name after the node's: `eth`, `wlan`, or `hip` for packets between identities.
    kind: &'static str,
    /// The name of its link or cell.
    attached_to: &'a str,
    description: String,
    speed: Option<BitRate>,
}

impl Captures {
    /// Begins the captures of the world described by `config`, in `dir`.
    pub(crate) fn create(
        dir: &Path,
        config: &WorldConfig,
        options: CaptureOptions,
        record: Written,
    ) -> Result<Self, RecordError> {
        let mut captures = Self {
            options,
            dir: dir.to_owned(),
            record,
            names: FileNames::default(),
            files: Vec::new(),
            ports: BTreeMap::new(),
            identities: BTreeMap::new(),
            drops: BTreeMap::new(),
            may_damage: config.links.iter().map(may_damage).collect(),
            pending: None,
        };
        let mut ports = ports_of(config);
        if let Some(nodes) = &captures.options.nodes {
            ports.retain(|port| nodes.contains(&config.nodes[port.node.0 as usize].name));
        }
        let shared = ports.len() > MAX_FILES;
        if shared {
            captures.add_file("all-interfaces")?;
        }
        let mut numbers = BTreeMap::new();
        for port in ports {
            let number = numbers.entry((port.node, port.kind)).or_insert(0);
            let name = format!("{}-{}{number}", config.nodes[port.node.0 as usize].name, port.kind);
            *number += 1;
            if !shared {
                captures.add_file(&name)?;
            }
            let name = format!("{name} ({})", port.attached_to);
            let interface = Interface { description: &port.description, speed: port.speed, ..Interface::new(&name) };
            let at = captures.add_interface(&interface)?;
            if port.kind == IDENTITY {
                captures.identities.insert(port.node, at);
            } else {
                captures.ports.insert((port.node, port.medium), at);
            }
        }
        Ok(captures)
    }

    fn add_file(&mut self, name: &str) -> Result<(), RecordError> {
        let ending = match self.options.format {
            CaptureFormat::Pcapng => "pcapng",
            CaptureFormat::Pcap => "pcap",
        };
        let path = self.dir.join(format!("{}.{ending}", self.names.unique(name)));
        self.files.push(CaptureFile::create(path, &self.options, &self.record)?);
        Ok(())
    }

    /// Adds an interface to the file begun last.
    fn add_interface(&mut self, interface: &Interface<'_>) -> Result<Port, RecordError> {
        let snap_len = match self.options.len {
            CaptureLen::Bytes(len) => Some(len),
            CaptureLen::Whole => None,
        };
        let file = self.files.len() - 1;
        let last = &mut self.files[file];
        let interface = match &mut last.writer {
            FileWriter::Pcap(_) => None,
            FileWriter::Pcapng(writer) => match writer.add_interface(&Interface { snap_len, ..*interface }) {
                Ok(id) => Some(id),
                Err(error) => return Err(last.failed(error)),
            },
        };
        Ok(Port { file, interface })
    }

    /// Handles a packet at an interface.
    pub(crate) fn packet(&mut self, at: Instant, place: Place, frame: &Frame) -> Result<(), RecordError> {
        self.settle()?;
        if let (Transit::In, Medium::Link(link)) = (place.transit, place.medium)
            && self.may_damage[link.0 as usize]
        {
            self.pending = Some((at, place, frame.clone()));
            return Ok(());
        }
        self.write_passing(at, place, frame)
    }

    /// Handles a packet dropped by the link, cell or node called `by`. Hardware drops a frame with a bad check sequence before it can be
    /// captured, so a damaged packet is not in the capture of the receiving interface.
    pub(crate) fn dropped(&mut self, at: Instant, by: &str, why: Dropped, frame: &Frame) -> Result<(), RecordError> {
        match why {
            Dropped::Corrupted(_) => self.pending = None,
            _ => self.settle()?,
        }
        let port = match self.drops.get(by) {
            Some(port) => *port,
            None => self.begin_drops(by)?,
        };
        let comment = match frame.reason {
            Some(reason) => format!("dropped: {}; sent as {reason}", why.name()),
            None => format!("dropped: {}", why.name()),
        };
        self.write(port, at, None, &comment, frame.packet())
    }

    fn begin_drops(&mut self, by: &str) -> Result<Port, RecordError> {
        let name = format!("{by}-dropped");
        self.add_file(&name)?;
        let port = self.add_interface(&Interface::new(&name))?;
        self.drops.insert(by.to_owned(), port);
        Ok(port)
    }

    /// Writes the pending arrival as intact.
    fn settle(&mut self) -> Result<(), RecordError> {
        match self.pending.take() {
            Some((at, place, frame)) => self.write_passing(at, place, &frame),
            None => Ok(()),
        }
    }

    fn write_passing(&mut self, at: Instant, place: Place, frame: &Frame) -> Result<(), RecordError> {
        let direction = match place.transit {
            Transit::Out => pcapng::CaptureDirection::Outbound,
            Transit::In => pcapng::CaptureDirection::Inbound,
        };
        let reason = frame.reason.map_or("", |reason| reason.name());
        let tunnelled =
            frame.tunnel.map(|_| format!("{reason}{}in a tunnel", if reason.is_empty() { "" } else { ", " }));
        let comment = tunnelled.as_deref().unwrap_or(reason);
        // As on real hosts: a packet between identities passes the interface of the daemon, and in ESP that of the link.
        if let Some(&port) = self.identities.get(&place.node)
            && let Some(packet) = frame.between_identities()
        {
            self.write(port, at, Some(direction), comment, &packet)?;
        }
        let port = self.ports.get(&(place.node, Some(place.medium))).or_else(|| self.ports.get(&(place.node, None)));
        let Some(&port) = port else { return Ok(()) };
        self.write(port, at, Some(direction), comment, frame.packet())
    }

    fn write(
        &mut self,
        port: Port,
        at: Instant,
        direction: Option<pcapng::CaptureDirection>,
        comment: &str,
        packet: &Packet,
    ) -> Result<(), RecordError> {
        let kept = match self.options.len {
            CaptureLen::Bytes(len) => packet.wire_len().min(len as usize),
            CaptureLen::Whole => packet.wire_len(),
        };
        let file = &mut self.files[port.file];
        if file.written >= self.options.max_file_bytes {
            file.cut = true;
            return Ok(());
        }
        file.written += (BLOCK_OVERHEAD + kept + comment.len()) as u64;
        let written = match (&mut file.writer, port.interface) {
            (FileWriter::Pcapng(writer), Some(interface)) => {
                writer.write(&pcapng::Record { at, interface, direction, comment }, packet)
            }
            (FileWriter::Pcap(writer), _) => writer.write(at, packet),
            (FileWriter::Pcapng(_), None) => Err(CaptureError::NoSuchInterface { index: 0 }),
        };
        written.map_err(|error| file.failed(error))
    }

    /// Ends the captures; returns the names of the incomplete ones.
    pub(crate) fn finish(mut self) -> Result<Vec<String>, RecordError> {
        self.settle()?;
        let mut cut = Vec::new();
        for file in self.files {
            if file.cut {
                cut.push(file.path.file_name().unwrap_or_default().to_string_lossy().into_owned());
            }
            let out = match file.writer {
                FileWriter::Pcapng(writer) => writer.into_inner(),
                FileWriter::Pcap(writer) => writer.into_inner(),
            };
            out.commit().map_err(|error| RecordError::io(&file.path, error))?;
        }
        cut.sort_unstable();
        Ok(cut)
    }
}

/// Header, options and trailer of a packet's block.
const BLOCK_OVERHEAD: usize = 48;

impl CaptureFile {
    fn create(path: PathBuf, options: &CaptureOptions, record: &Written) -> Result<Self, RecordError> {
        /// tcpdump's default snap length.
        const NO_LIMIT: u32 = 262_144;
        let out = record.create(&path).map_err(|error| RecordError::io(&path, error))?;
        let writer = match (options.format, options.len) {
            (CaptureFormat::Pcapng, _) => {
                let application = concat!("holdover ", env!("CARGO_PKG_VERSION"));
                pcapng::Writer::new(out, application).map(FileWriter::Pcapng)
            }
            (CaptureFormat::Pcap, CaptureLen::Whole) => pcap::Writer::new(out, NO_LIMIT).map(FileWriter::Pcap),
            (CaptureFormat::Pcap, CaptureLen::Bytes(len)) => pcap::Writer::new(out, len).map(FileWriter::Pcap),
        };
        match writer {
            Ok(writer) => Ok(Self { path, writer, written: 0, cut: false }),
            Err(error) => Err(RecordError::Capture { path, error }),
        }
    }

    fn failed(&self, error: CaptureError) -> RecordError {
        RecordError::Capture { path: self.path.clone(), error }
    }
}

/// The prefix of the interface with packets between identities.
const IDENTITY: &str = "hip";

/// The interfaces of a world, in the order of its links, cells, mobile hosts and identities.
fn ports_of(config: &WorldConfig) -> Vec<NewPort<'_>> {
    let node_name = |node: NodeId| &config.nodes[node.0 as usize].name;
    let mut ports = Vec::new();
    for (id, link) in (0..).zip(&config.links) {
        for (node, sends, peer) in [(link.a, &link.forward, link.b), (link.b, &link.backward, link.a)] {
            ports.push(NewPort {
                node,
                medium: Some(Medium::Link(holdover_sim::LinkId(id))),
                kind: "eth",
                attached_to: &link.name,
                description: format!("link {} to {}", link.name, node_name(peer)),
                speed: if let Rate::Fixed(rate) = sends.rate { Some(rate) } else { None },
            });
        }
    }
    for (id, cell) in (0..).zip(&config.cells) {
        ports.push(NewPort {
            node: cell.base,
            medium: Some(Medium::Cell(holdover_sim::CellId(id))),
            kind: "wlan",
            attached_to: &cell.name,
            description: format!("base station of cell {}", cell.name),
            speed: None,
        });
    }
    for mobile in &config.mobiles {
        ports.push(NewPort {
            node: mobile.node,
            medium: None,
            kind: "wlan",
            attached_to: "all cells",
            description: format!("radio of {}", node_name(mobile.node)),
            speed: None,
        });
    }
    for host in config.addressing.iter().filter(|host| host.identity.is_some()) {
        ports.push(NewPort {
            node: host.node,
            medium: None,
            kind: IDENTITY,
            attached_to: "identity",
            description: format!("packets between identities at {}", node_name(host.node)),
            speed: None,
        });
    }
    ports
}

/// Whether packets of a link may arrive damaged.
fn may_damage(link: &LinkBetween) -> bool {
    let damages = |config: &LinkConfig| {
        config.corrupt > 0.0
            || config.outage_policy.queued == QueuedFate::Corrupted
            || config.outage_policy.in_flight == InFlightFate::Corrupted
    };
    damages(&link.forward) || damages(&link.backward)
}
