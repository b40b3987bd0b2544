//! The series of a run for plots, thinned while recording.

mod outages;
mod thin;

use std::collections::BTreeMap;

use holdover_base::{Duration, Instant};
use holdover_link::{DropCause, LinkConfig};
use holdover_sim::{FlowId, Frame, LinkId, NodeId, Place, Sample, Traffic, Transit, WorldConfig};
use holdover_tcp::Reason;
use holdover_wire::{Flags, Segment};

pub(crate) use outages::OutageLog;
pub(crate) use thin::{Bins, Strided};
pub use thin::{Cells, Point};

use crate::traffic::{Owner, Unwrap};

/// The points kept per kind in a time-sequence plot.
const CELLS: usize = 6000;
/// The samples kept per connection.
const SAMPLES: usize = 6000;
/// The bins kept per amount.
const BINS: usize = 4000;
/// The finest bin of data counts; coarser bins are this times a power of ten.
const RATE_BIN: Duration = Duration::from_millis(100);
/// The finest bin of queue lengths.
const QUEUE_BIN: Duration = Duration::from_millis(1);

/// The data kept for the plots of a run.
#[derive(Clone, Debug)]
pub struct Series {
    flows: BTreeMap<FlowId, FlowSeries>,
    queues: Vec<[Option<QueueSeries>; 2]>,
    pub(crate) outages: BTreeMap<Cut, OutageLog>,
}

/// A link or host that can be cut off.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Cut {
    /// A link is down.
    Link(LinkId),
    /// Packets cannot pass between a mobile host and the network.
    Host(NodeId),
}

/// One connection over time, at the data sender.
#[derive(Clone, Debug)]
pub struct FlowSeries {
    /// New data: the number of its first byte.
    pub new_data: Cells,
    /// Retransmissions, by reason.
    pub retransmissions: BTreeMap<Reason, Cells>,
    /// ACKs received: the number of the next byte expected.
    pub acks: Cells,
    from: NodeId,
    samples: Strided<(Instant, Sample)>,
    received: Bins,
    last_received: u64,
    sent_position: Unwrap,
    ack_position: Unwrap,
}

/// The number of packets in one direction of a link.
#[derive(Clone, Debug)]
pub struct QueueSeries {
    /// The link.
    pub link: LinkId,
    /// Whether it is the direction from the link's `a` to its `b`.
    pub forward: bool,
    /// The propagation delay, if constant: packets on the wire are then known and not counted.
    pub delay: Option<Duration>,
    changes: Bins,
}

impl Series {
    /// Keeps the first `max_flows` TCP flows, and all queues if there are not many more.
    pub(crate) fn new(config: &WorldConfig, max_flows: usize) -> Self {
        let is_tcp = |traffic: &Traffic| !matches!(traffic, Traffic::OnOff(_));
        let flows = (0..).zip(&config.flows).filter(|(_, flow)| is_tcp(&flow.traffic)).take(max_flows);
        let queues = (0..).zip(&config.links).map(|(index, link)| {
            let kept = config.links.len() <= 4 * max_flows;
            [(&link.forward, true), (&link.backward, false)]
                .map(|(config, forward)| kept.then(|| QueueSeries::new(LinkId(index), forward, config)).flatten())
        });
        let links = (0..config.links.len() as u32).map(|id| Cut::Link(LinkId(id)));
        let mobiles = config.mobiles.iter().map(|mobile| Cut::Host(mobile.node));
        Self {
            flows: flows.map(|(index, flow)| (FlowId(index), FlowSeries::new(flow.from))).collect(),
            queues: queues.collect(),
            outages: links.chain(mobiles).map(|cut| (cut, OutageLog::default())).collect(),
        }
    }

    /// The flows with series.
    pub fn flows(&self) -> impl Iterator<Item = (FlowId, &FlowSeries)> {
        self.flows.iter().map(|(&id, flow)| (id, flow))
    }

    /// The queues with series.
    pub fn queues(&self) -> impl Iterator<Item = &QueueSeries> {
        self.queues.iter().flatten().flatten()
    }

    /// Outages in order. Where there are too many to draw, neighbours are merged.
    pub fn outages(&self) -> impl Iterator<Item = (Cut, impl Iterator<Item = (Instant, Instant)> + '_)> {
        self.outages.iter().map(|(&cut, log)| (cut, log.intervals()))
    }

    /// The number of values kept, bounded for runs of any length.
    pub fn values_kept(&self) -> usize {
        let flows = self.flows.values().map(|flow| {
            let again: usize = flow.retransmissions.values().map(|cells| cells.points().count()).sum();
            let sequence = flow.new_data.points().count() + flow.acks.points().count() + again;
            sequence + flow.samples().len() + flow.received.amounts().len()
        });
        let queues = self.queues().map(|queue| queue.changes.amounts().len());
        let outages = self.outages.values().map(|log| log.intervals().count());
        flows.sum::<usize>() + queues.sum::<usize>() + outages.sum::<usize>()
    }

    /// Whether the outages equal those of `other` up to the end of the shorter run.
    pub(crate) fn meets_outages_of(&self, other: &Self) -> bool {
        self.outages.iter().zip(&other.outages).all(|((a, mine), (b, theirs))| {
            // The end of the run may have truncated the last one.
            a == b && mine.intervals().zip(theirs.intervals()).all(|(mine, theirs)| mine.0 == theirs.0)
        })
    }

    /// Handles a packet of `owner` at an interface.
    pub(crate) fn packet(&mut self, at: Instant, place: Place, owner: Option<Owner>, frame: &Frame) {
        let Some(owner) = owner else { return };
        let Some(flow) = self.flows.get_mut(&owner.flow) else { return };
        if let Some(segment) = frame.observed_tcp()
            && place.node == flow.from
        {
            match place.transit {
                Transit::Out if owner.forward => flow.sent(at, segment, frame.reason),
                Transit::In if !owner.forward => flow.acked(at, segment),
                _ => {}
            }
        }
    }

    /// Handles a packet that enters or leaves a link.
    pub(crate) fn link_packet(&mut self, at: Instant, link: LinkId, forward: bool, direction: Transit) {
        if let Some(queue) = &mut self.queues[link.0 as usize][usize::from(!forward)] {
            match direction {
                Transit::Out => queue.changes.add(at, 1),
                Transit::In => queue.changes.add(at - queue.delay.unwrap_or(Duration::ZERO), -1),
            }
        }
    }

    /// Handles a packet dropped by a link.
    pub(crate) fn link_dropped(&mut self, at: Instant, link: LinkId, forward: bool, cause: DropCause) {
        if let Some(queue) = &mut self.queues[link.0 as usize][usize::from(!forward)] {
            // A loss takes effect when the packet would have arrived; other drops at once.
            let delay = if cause == DropCause::Loss { queue.delay } else { None };
            queue.changes.add(at - delay.unwrap_or(Duration::ZERO), -1);
        }
    }

    /// Handles a sample of a flow's sender.
    pub(crate) fn sample(&mut self, at: Instant, flow: FlowId, sample: &Sample) {
        if let Some(flow) = self.flows.get_mut(&flow) {
            flow.samples.add((at, *sample));
            flow.note_received(at, sample.bytes_received);
        }
    }

    /// Handles the end of the run; the application of a bulk transfer had read `received` by `at`.
    pub(crate) fn finish_bulk(&mut self, flow: FlowId, at: Instant, received: u64) {
        if let Some(flow) = self.flows.get_mut(&flow) {
            flow.note_received(at, received);
        }
    }
}

impl FlowSeries {
    fn new(from: NodeId) -> Self {
        Self {
            from,
            new_data: Cells::new(CELLS),
            retransmissions: BTreeMap::new(),
            acks: Cells::new(CELLS),
            samples: Strided::new(SAMPLES),
            received: Bins::new(BINS, RATE_BIN),
            last_received: 0,
            sent_position: Unwrap::default(),
            ack_position: Unwrap::default(),
        }
    }

    /// The states of the connection, by time.
    pub fn samples(&self) -> &[(Instant, Sample)] {
        self.samples.items()
    }

    /// The bin width of [`FlowSeries::received`].
    pub fn received_width(&self) -> Duration {
        self.received.width()
    }

    /// The bytes read by the receiving application in each bin.
    pub fn received(&self) -> impl Iterator<Item = u64> + '_ {
        self.received.amounts().iter().map(|&amount| amount.max(0) as u64)
    }

    fn sent(&mut self, at: Instant, segment: &Segment, reason: Option<Reason>) {
        if segment.flags.contains(Flags::SYN) {
            self.sent_position.begin(segment.seq);
            self.ack_position.begin(segment.seq);
        }
        if segment.payload.is_empty() {
            return;
        }
        let Some(position) = self.sent_position.position(segment.seq) else { return };
        match reason {
            Some(reason) if is_repetition(reason) => {
                self.retransmissions.entry(reason).or_insert_with(|| Cells::new(CELLS)).add(at, position);
            }
            _ => self.new_data.add(at, position),
        }
    }

    fn acked(&mut self, at: Instant, segment: &Segment) {
        if segment.flags.contains(Flags::ACK)
            && let Some(position) = self.ack_position.position(segment.ack)
        {
            self.acks.add(at, position);
        }
    }

    fn note_received(&mut self, at: Instant, received: u64) {
        let new = received.saturating_sub(self.last_received);
        self.last_received += new;
        // Data read up to a moment belongs to the bin that ends there.
        self.received.add(at - Duration::from_nanos(1), new as i64);
    }
}

/// Whether segments sent for this reason are retransmissions (or probes shown as such).
pub(crate) fn is_repetition(reason: Reason) -> bool {
    matches!(
        reason,
        Reason::Timeout
            | Reason::FastRetransmit
            | Reason::LossRecovery
            | Reason::LossProbe
            | Reason::Requested
            | Reason::WindowProbe
            | Reason::KeepAlive
    )
}

impl QueueSeries {
    /// `None` for links that duplicate packets.
    fn new(link: LinkId, forward: bool, config: &LinkConfig) -> Option<Self> {
        let fixed = config.jitter.is_none() && config.reorder.is_none() && config.conditions.is_none();
        let delay = fixed.then_some(config.delay);
        let changes = Bins::new(BINS, QUEUE_BIN);
        (config.duplicate == 0.0).then_some(Self { link, forward, delay, changes })
    }

    /// The number of packets at the end of each bin, with the bin's end.
    pub fn packets(&self) -> impl Iterator<Item = (Instant, u64)> + '_ {
        let mut packets = 0;
        let width = self.changes.width();
        (1_u64..).zip(self.changes.amounts()).map(move |(end, change)| {
            packets += change;
            (Instant::ZERO + width * end, packets.max(0) as u64)
        })
    }
}
