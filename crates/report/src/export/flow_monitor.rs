//! The XML of ns-3's flow monitor (`FlowMonitor::SerializeToXmlFile`), with histograms and probes.
//!
//! A flow is one direction between two pairs of address and port, TCP or UDP. Sizes are those of IP packets; a packet is sent when it
//! leaves its source's interface and received when it arrives at its destination's. As in ns-3, `lostPackets` are packets that were dropped
//! or not seen for ten seconds; but the ten seconds are evaluated only at the end of the run, because a link in an outage holds packets
//! longer. `packetsDropped` has the reason codes of ns-3's `Ipv4FlowProbe`; losses without such a code (radio losses, for example) are in
//! `lostPackets` only.

use core::fmt::{self, Write as _};
use core::net::IpAddr;
use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;

use holdover_base::{Duration, Instant};
use holdover_link::DropCause;
use holdover_sim::{Dropped, DroppedBy, Frame, NodeId, Place, Transit, WorldConfig};
use holdover_wire::{Flags, Packet, Payload, Seq, Timestamps};

use crate::error::RecordError;
use crate::part_file::Written;

/// A packet not seen for this long is lost (ns-3's `MaxPerHopDelay`).
const MAX_PER_HOP_DELAY: Duration = Duration::from_secs(10);
/// A longer gap between two arrivals interrupts a flow (ns-3's `FlowInterruptionsMinTime`).
const INTERRUPTION: Duration = Duration::from_millis(500);
/// Widths of the bins of ns-3's histograms, in seconds and bytes.
const DELAY_BIN: f64 = 0.001;
const SIZE_BIN: f64 = 20.0;
const INTERRUPTION_BIN: f64 = 0.25;

/// The counters of ns-3's flow monitor.
#[derive(Debug)]
pub(crate) struct FlowMonitor {
    path: PathBuf,
    written: Written,
    ids: BTreeMap<FiveTuple, u32>,
    flows: Vec<Flow>,
    probes: BTreeMap<NodeId, BTreeMap<u32, Probed>>,
    /// An arrival not yet known to be intact or damaged.
    pending: Option<(Instant, Place, PacketId)>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct FiveTuple {
    source: IpAddr,
    destination: IpAddr,
    protocol: u8,
    source_port: u16,
    destination_port: u16,
}

/// Identifies a packet within a flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct PacketId {
    flow: u32,
    size: u64,
    key: Key,
    marks: Marks,
}

/// The position of its data, which no node on the path changes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Key {
    seq: u32,
    len: u32,
}

/// Further fields of packets with the same key, which a mechanism on the path may rewrite.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Marks {
    ack: Seq,
    flags: Flags,
    window: u16,
    timestamps: Option<Timestamps>,
}

/// A packet in flight.
#[derive(Clone, Copy, Debug)]
struct Tracked {
    marks: Marks,
    sent_at: Instant,
    seen_at: Instant,
    forwarded: u64,
}

#[derive(Debug)]
struct Flow {
    tuple: FiveTuple,
    tracked: BTreeMap<Key, VecDeque<Tracked>>,
    sent: Total,
    received: Total,
    delay_sum: Duration,
    jitter_sum: Duration,
    last_delay: Duration,
    lost: u64,
    forwarded: u64,
    /// Packets and bytes by reason code.
    dropped: [Count; REASONS],
    delays: Histogram,
    jitters: Histogram,
    sizes: Histogram,
    interruptions: Histogram,
}

#[derive(Clone, Copy, Default, Debug)]
struct Count {
    packets: u64,
    bytes: u64,
}

#[derive(Clone, Copy, Default, Debug)]
struct Total {
    count: Count,
    first: Instant,
    last: Instant,
}

/// The counters of a flow at one node's probe.
#[derive(Clone, Copy, Default, Debug)]
struct Probed {
    count: Count,
    delay_sum: Duration,
    dropped: [Count; REASONS],
}

/// The reason codes of `Ipv4FlowProbe` that occur here.
const REASONS: usize = 6;
const NO_ROUTE: usize = 0;
const TTL_EXPIRE: usize = 1;
const BAD_CHECKSUM: usize = 2;
const QUEUE: usize = 3;
const INTERFACE_DOWN: usize = 5;

fn reason_code(why: Dropped) -> Option<usize> {
    match why {
        Dropped::NoRoute(_) | Dropped::Unresolved(_) => Some(NO_ROUTE),
        Dropped::HopLimit(_) => Some(TTL_EXPIRE),
        Dropped::Corrupted(_) => Some(BAD_CHECKSUM),
        Dropped::Lost(_, DropCause::QueueFull) | Dropped::Backlog(_) => Some(QUEUE),
        Dropped::Lost(_, DropCause::LinkDown | DropCause::CutOff | DropCause::NotForwarding) => Some(INTERFACE_DOWN),
        Dropped::Lost(..)
        | Dropped::TooBig(_)
        | Dropped::Filtered(_)
        | Dropped::Unverified(_)
        | Dropped::NoAssociation(_)
        | Dropped::Replayed(_)
        | Dropped::NoListener(_) => None,
    }
}

impl FlowMonitor {
    pub(crate) fn new(path: PathBuf, written: Written) -> Self {
        Self { path, written, ids: BTreeMap::new(), flows: Vec::new(), probes: BTreeMap::new(), pending: None }
    }

    /// Handles a packet at an interface.
    pub(crate) fn packet(&mut self, at: Instant, place: Place, frame: &Frame) {
        self.settle();
        let packet = frame.packet();
        let sends = place.transit == Transit::Out;
        let is_source = NodeId::of(packet.src) == Some(place.node);
        if sends && is_source {
            if let Some(id) = self.identify(packet) {
                self.send(at, place.node, id);
            }
        } else if sends {
            if let Some(id) = self.identify(packet) {
                self.forward(at, place.node, id);
            }
        } else if NodeId::of(packet.dst) == Some(place.node) {
            self.pending = self.identify(packet).map(|id| (at, place, id));
        }
    }

    /// Handles a dropped packet.
    pub(crate) fn dropped(&mut self, why: Dropped, frame: &Frame) {
        match why {
            Dropped::Corrupted(_) => self.pending = None,
            _ => self.settle(),
        }
        // Packets dropped by a host's own mechanism were never sent.
        if matches!(why, Dropped::Filtered(node) if NodeId::of(frame.packet().src) == Some(node)) {
            return;
        }
        let Some(id) = self.identify(frame.packet()) else { return };
        let flow = &mut self.flows[id.flow as usize];
        flow.lost += 1;
        flow.take(id);
        if let Some(code) = reason_code(why) {
            flow.dropped[code].add(id.size);
            let node = match why.by() {
                DroppedBy::Medium(_) => NodeId::of(frame.packet().src),
                DroppedBy::Node(node) => Some(node),
            };
            if let Some(node) = node {
                self.probe(node, id.flow).dropped[code].add(id.size);
            }
        }
    }

    /// Counts the pending arrival as intact.
    fn settle(&mut self) {
        if let Some((at, place, id)) = self.pending.take() {
            self.receive(at, place.node, id);
        }
    }

    fn identify(&mut self, packet: &Packet) -> Option<PacketId> {
        let (protocol, source_port, destination_port, key, marks) = match &packet.payload {
            Payload::Tcp(segment) => {
                let key = Key { seq: segment.seq.value(), len: segment.seq_len() };
                let marks = Marks {
                    ack: segment.ack,
                    flags: segment.flags,
                    window: segment.window,
                    timestamps: segment.options.timestamps,
                };
                (6, segment.src_port, segment.dst_port, key, marks)
            }
            Payload::Udp(udp) => {
                let key = Key { seq: 0, len: u32::try_from(udp.payload.len()).unwrap_or(u32::MAX) };
                let marks = Marks { ack: Seq::new(0), flags: Flags::empty(), window: 0, timestamps: None };
                (17, udp.src_port, udp.dst_port, key, marks)
            }
            _ => return None,
        };
        let tuple = FiveTuple { source: packet.src, destination: packet.dst, protocol, source_port, destination_port };
        let next = u32::try_from(self.flows.len()).ok()?;
        let flow = *self.ids.entry(tuple).or_insert(next);
        if flow == next {
            self.flows.push(Flow::new(tuple));
        }
        Some(PacketId { flow, size: packet.wire_len() as u64, key, marks })
    }

    fn send(&mut self, at: Instant, node: NodeId, id: PacketId) {
        let flow = &mut self.flows[id.flow as usize];
        flow.sent.add(at, id.size);
        let tracked = Tracked { marks: id.marks, sent_at: at, seen_at: at, forwarded: 0 };
        flow.tracked.entry(id.key).or_default().push_back(tracked);
        self.probe(node, id.flow).count.add(id.size);
    }

    fn forward(&mut self, at: Instant, node: NodeId, id: PacketId) {
        let Some(tracked) = self.flows[id.flow as usize].find(id) else { return };
        tracked.forwarded += 1;
        tracked.seen_at = at;
        let delay = at.saturating_since(tracked.sent_at);
        self.note_at_probe(node, id, delay);
    }

    fn receive(&mut self, at: Instant, node: NodeId, id: PacketId) {
        let flow = &mut self.flows[id.flow as usize];
        // Like ns-3, ignores packets not seen sent: copies, and packets made by routers.
        let Some(tracked) = flow.take(id) else { return };
        let delay = at.saturating_since(tracked.sent_at);
        flow.receive(at, id.size, delay);
        flow.forwarded += tracked.forwarded;
        self.note_at_probe(node, id, delay);
    }

    fn note_at_probe(&mut self, node: NodeId, id: PacketId, delay: Duration) {
        let probed = self.probe(node, id.flow);
        probed.count.add(id.size);
        probed.delay_sum += delay;
    }

    fn probe(&mut self, node: NodeId, flow: u32) -> &mut Probed {
        self.probes.entry(node).or_default().entry(flow).or_default()
    }

    /// Writes the file of a run that ended at `at`.
    pub(crate) fn finish(mut self, at: Instant, config: &WorldConfig) -> Result<(), RecordError> {
        self.settle();
        for flow in &mut self.flows {
            flow.count_missing(at);
        }
        let mut text = String::new();
        // Writing to a string does not fail.
        let _ = self.write(&mut text, config);
        self.written.write(&self.path, text.as_bytes()).map_err(|error| RecordError::io(&self.path, error))
    }

    fn write(&self, out: &mut String, config: &WorldConfig) -> fmt::Result {
        out.write_str("<?xml version=\"1.0\" ?>\n<FlowMonitor>\n  <FlowStats>\n")?;
        for (id, flow) in (1..).zip(&self.flows) {
            flow.write(out, id)?;
        }
        out.write_str("  </FlowStats>\n")?;
        for (element, ipv6) in [("Ipv4FlowClassifier", false), ("Ipv6FlowClassifier", true)] {
            writeln!(out, "  <{element}>")?;
            for (id, flow) in (1..).zip(&self.flows).filter(|(_, flow)| flow.tuple.source.is_ipv6() == ipv6) {
                let FiveTuple { source, destination, protocol, source_port, destination_port } = flow.tuple;
                writeln!(
                    out,
                    "    <Flow flowId=\"{id}\" sourceAddress=\"{source}\" destinationAddress=\"{destination}\" \
                     protocol=\"{protocol}\" sourcePort=\"{source_port}\" destinationPort=\"{destination_port}\" />"
                )?;
            }
            writeln!(out, "  </{element}>")?;
        }
        out.write_str("  <FlowProbes>\n")?;
        for (index, _) in (0..).zip(&config.nodes) {
            writeln!(out, "    <FlowProbe index=\"{index}\">")?;
            for (flow, probed) in self.probes.get(&NodeId(index)).into_iter().flatten() {
                let Count { packets, bytes } = probed.count;
                writeln!(
                    out,
                    "      <FlowStats flowId=\"{}\" packets=\"{packets}\" bytes=\"{bytes}\" delayFromFirstProbeSum=\"{}\">",
                    flow + 1,
                    Nanos(probed.delay_sum.as_nanos())
                )?;
                write_dropped(out, "        ", &probed.dropped)?;
                out.write_str("      </FlowStats>\n")?;
            }
            out.write_str("    </FlowProbe>\n")?;
        }
        out.write_str("  </FlowProbes>\n</FlowMonitor>\n")
    }
}

impl Flow {
    fn new(tuple: FiveTuple) -> Self {
        Self {
            tuple,
            tracked: BTreeMap::new(),
            sent: Total::default(),
            received: Total::default(),
            delay_sum: Duration::ZERO,
            jitter_sum: Duration::ZERO,
            last_delay: Duration::ZERO,
            lost: 0,
            forwarded: 0,
            dropped: [Count::default(); REASONS],
            delays: Histogram::new(DELAY_BIN),
            jitters: Histogram::new(DELAY_BIN),
            sizes: Histogram::new(SIZE_BIN),
            interruptions: Histogram::new(INTERRUPTION_BIN),
        }
    }

    fn receive(&mut self, at: Instant, size: u64, delay: Duration) {
        self.delay_sum += delay;
        self.delays.add(delay.as_secs_f64());
        self.sizes.add(size as f64);
        if self.received.count.packets > 0 {
            let jitter = delay.max(self.last_delay) - delay.min(self.last_delay);
            self.jitter_sum += jitter;
            self.jitters.add(jitter.as_secs_f64());
            let gap = at.saturating_since(self.received.last);
            if gap > INTERRUPTION {
                self.interruptions.add(gap.as_secs_f64());
            }
        }
        self.last_delay = delay;
        self.received.add(at, size);
    }

    /// The most likely match among the packets in flight.
    fn find(&mut self, id: PacketId) -> Option<&mut Tracked> {
        let tracked = self.tracked.get_mut(&id.key)?;
        let index = most_likely(tracked, id.marks)?;
        tracked.get_mut(index)
    }

    fn take(&mut self, id: PacketId) -> Option<Tracked> {
        let tracked = self.tracked.get_mut(&id.key)?;
        let found = most_likely(tracked, id.marks).and_then(|index| tracked.remove(index));
        if tracked.is_empty() {
            self.tracked.remove(&id.key);
        }
        found
    }

    fn count_missing(&mut self, end: Instant) {
        let missing = |tracked: &&Tracked| end.saturating_since(tracked.seen_at) >= MAX_PER_HOP_DELAY;
        self.lost += self.tracked.values().flatten().filter(missing).count() as u64;
    }

    fn write(&self, out: &mut String, id: u32) -> fmt::Result {
        let time = |at: Instant| Nanos(at.as_nanos());
        let span = |span: Duration| Nanos(span.as_nanos());
        writeln!(
            out,
            "    <Flow flowId=\"{id}\" timeFirstTxPacket=\"{}\" timeFirstRxPacket=\"{}\" timeLastTxPacket=\"{}\" \
             timeLastRxPacket=\"{}\" delaySum=\"{}\" jitterSum=\"{}\" lastDelay=\"{}\" txBytes=\"{}\" rxBytes=\"{}\" \
             txPackets=\"{}\" rxPackets=\"{}\" lostPackets=\"{}\" timesForwarded=\"{}\">",
            time(self.sent.first),
            time(self.received.first),
            time(self.sent.last),
            time(self.received.last),
            span(self.delay_sum),
            span(self.jitter_sum),
            span(self.last_delay),
            self.sent.count.bytes,
            self.received.count.bytes,
            self.sent.count.packets,
            self.received.count.packets,
            self.lost,
            self.forwarded,
        )?;
        write_dropped(out, "      ", &self.dropped)?;
        self.delays.write(out, "delayHistogram")?;
        self.jitters.write(out, "jitterHistogram")?;
        self.sizes.write(out, "packetSizeHistogram")?;
        self.interruptions.write(out, "flowInterruptionsHistogram")?;
        out.write_str("    </Flow>\n")
    }
}

/// The oldest with the same marks, or else the oldest: a router has rewritten the packet.
fn most_likely(tracked: &VecDeque<Tracked>, marks: Marks) -> Option<usize> {
    let same = tracked.iter().position(|tracked| tracked.marks == marks);
    same.or_else(|| (!tracked.is_empty()).then_some(0))
}

/// Lists end with the last reason that occurred, as in ns-3.
fn write_dropped(out: &mut String, indent: &str, dropped: &[Count; REASONS]) -> fmt::Result {
    let used = dropped.iter().rposition(|count| count.packets > 0).map_or(0, |last| last + 1);
    for (code, count) in dropped[..used].iter().enumerate() {
        writeln!(out, "{indent}<packetsDropped reasonCode=\"{code}\" number=\"{}\" />", count.packets)?;
    }
    for (code, count) in dropped[..used].iter().enumerate() {
        writeln!(out, "{indent}<bytesDropped reasonCode=\"{code}\" bytes=\"{}\" />", count.bytes)?;
    }
    Ok(())
}

impl Count {
    fn add(&mut self, bytes: u64) {
        self.packets += 1;
        self.bytes += bytes;
    }
}

impl Total {
    fn add(&mut self, at: Instant, bytes: u64) {
        if self.count.packets == 0 {
            self.first = at;
        }
        self.count.add(bytes);
        self.last = at;
    }
}

/// A histogram with bins of equal width.
#[derive(Debug)]
struct Histogram {
    width: f64,
    bins: BTreeMap<u32, u64>,
}

impl Histogram {
    fn new(width: f64) -> Self {
        Self { width, bins: BTreeMap::new() }
    }

    fn add(&mut self, value: f64) {
        *self.bins.entry((value / self.width).floor() as u32).or_default() += 1;
    }

    /// Omits empty bins, as ns-3 does; `nBins` counts them.
    fn write(&self, out: &mut String, name: &str) -> fmt::Result {
        let bins = self.bins.last_key_value().map_or(0, |(last, _)| last + 1);
        writeln!(out, "      <{name} nBins=\"{bins}\">")?;
        for (index, count) in &self.bins {
            let start = f64::from(*index) * self.width;
            writeln!(
                out,
                "        <bin index=\"{index}\" start=\"{}\" width=\"{}\" count=\"{count}\" />",
                (start * 1e6).round() / 1e6,
                self.width
            )?;
        }
        writeln!(out, "      </{name}>")
    }
}

/// A time in ns-3's format.
struct Nanos(u64);

impl fmt::Display for Nanos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "+{}.0ns", self.0)
    }
}
