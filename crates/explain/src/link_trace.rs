//! A trace of the link on a capture's path, as a table that a simulated link can replay.
//!
//! A [`LinkEstimator`] takes the packets between the two hosts that exchanged most data and tells for each interval:
//!
//! - **rate**: the data that got through, with its headers, over the time in which the path was up. At the receiver that is the data that
//!   arrived, elsewhere the data that was newly acknowledged, by number or by SACK. It is what the link *could* do only while a
//!   queue stood in front of it, which shows in the round trip (more than a quarter above the least). An interval without a queue takes the
//!   rate of the nearest one with a queue, unless it carried more itself. Without any such interval, all of this is a lower bound;
//! - **round trip**: the least within five seconds on either side, of those without a queue, which the replaying link makes itself. While
//!   all have a queue it is the least of the capture: a path that becomes longer by more than a quarter is taken for a queue;
//! - **loss**: retransmissions over transmissions, of data that was sent first while the path was up, and while no queue stood in front of
//!   the link. Losses with a queue are taken for an overflow, which the replaying link makes itself;
//! - **outages**: those of [`outages_of_paths`], to the moments that are most likely.

use core::fmt::{self, Write as _};
use core::net::IpAddr;
use std::collections::BTreeMap;

use holdover_base::{Duration, Instant};
use holdover_wire::{Flags, TcpHeaders};

use crate::conversation::{Conversation, Place};
use crate::outages::outages_of_paths;
use crate::round_trip::RoundTrip;
use crate::segment::{Positions, Seen};
use crate::stream::Stream;

/// Why there is no trace.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum LinkTraceError {
    /// No data was sent.
    #[error("the capture has no TCP connection with data")]
    NoData,
    /// There would be too many rows.
    #[error("the capture is longer than {} intervals of {interval}", LinkEstimator::MOST_INTERVALS)]
    TooLong {
        /// The interval.
        interval: Duration,
    },
    /// The interval is zero.
    #[error("the interval is zero")]
    NoInterval,
}

/// A link's conditions over time, from a capture.
#[derive(Clone, PartialEq, Debug)]
pub struct LinkTrace {
    /// The host that sent the data.
    pub sender: IpAddr,
    /// The host that received it.
    pub receiver: IpAddr,
    /// Where the capture was taken.
    pub place: Place,
    /// The conditions, in order of time, the first at zero. The last row ends the trace.
    pub rows: Vec<LinkRow>,
    /// Intervals in which a queue showed what the link could do, of all.
    pub full_share: f64,
}

/// What a link does from a time on.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct LinkRow {
    /// Since the first packet.
    pub at: Duration,
    /// In bit/s, with IP headers.
    pub rate_bps: u64,
    /// There and back, without queues.
    pub rtt: Duration,
    /// A probability.
    pub loss: f64,
    /// Whether packets get through.
    pub up: bool,
}

/// Estimates what a link did.
#[derive(Debug)]
pub struct LinkEstimator {
    sender: IpAddr,
    receiver: IpAddr,
    place: Place,
    interval: Duration,
    /// The outages of the path, in order.
    down: Vec<(Instant, Instant)>,
    begin: Option<Instant>,
    end: Instant,
    flows: BTreeMap<(u16, u16), Flow>,
    bins: Vec<Bin>,
    too_long: bool,
}

/// What happened in an interval.
#[derive(Clone, Copy, Default, Debug)]
struct Bin {
    /// Bytes that got through, with headers.
    bytes: f64,
    /// Segments of data, and those sent again without a queue.
    segments: u32,
    lost: u32,
    /// The least round trips from the place of the capture to the sender and to the receiver.
    rtt: [Option<Duration>; 2],
    /// A queue stood in front of the link.
    queue: bool,
}

impl LinkEstimator {
    /// More rows than this are refused.
    pub const MOST_INTERVALS: usize = 1 << 20;

    /// For the hosts of the conversation with most data.
    ///
    /// # Errors
    ///
    /// No conversation, or an interval of zero.
    pub fn new(conversations: &[Conversation], interval: Duration) -> Result<Self, LinkTraceError> {
        let index = (0..conversations.len()).max_by_key(|&index| conversations[index].bytes);
        let index = index.ok_or(LinkTraceError::NoData)?;
        let most = &conversations[index];
        let outages = outages_of_paths(conversations).swap_remove(index);
        if interval == Duration::ZERO {
            return Err(LinkTraceError::NoInterval);
        }
        Ok(Self {
            sender: most.sender.ip(),
            receiver: most.receiver.ip(),
            place: most.place,
            interval,
            down: outages.iter().map(|found| (found.guess.down, found.guess.up)).collect(),
            begin: None,
            end: Instant::ZERO,
            flows: BTreeMap::new(),
            bins: Vec::new(),
            too_long: false,
        })
    }

    /// Takes an IP packet that was captured at `at` and had `original_len` bytes, of which `ip` is the beginning. Packets of other
    /// hosts are left out.
    pub fn take(&mut self, at: Instant, ip: &[u8], original_len: usize) {
        let Ok(Some(headers)) = TcpHeaders::parse(ip, original_len) else { return };
        let from_sender = match (headers.src, headers.dst) {
            ends if ends == (self.sender, self.receiver) => true,
            ends if ends == (self.receiver, self.sender) => false,
            _ => return,
        };
        let begin = *self.begin.get_or_insert(at);
        self.end = self.end.max(at);
        let index = (at.saturating_since(begin).as_nanos() / self.interval.as_nanos()) as usize;
        if index >= Self::MOST_INTERVALS {
            self.too_long = true;
            return;
        }
        if index >= self.bins.len() {
            self.bins.resize(index + 1, Bin::default());
        }
        let seen = Seen::new(self.end, &headers);
        let ports = if from_sender { (seen.src.port(), seen.dst.port()) } else { (seen.dst.port(), seen.src.port()) };
        let at_receiver = self.place == Place::Receiver;
        let flow = self.flows.entry(ports).or_insert_with(|| Flow::new(at));
        let bin = &mut self.bins[index];
        if from_sender {
            // What was sent before the end of the latest outage may have been lost in it.
            let outages_over = self.down.partition_point(|(_, up)| *up <= self.end);
            flow.note_outages(outages_over, self.end, at_receiver);
            flow.data(&seen, &headers, original_len, at_receiver, bin);
        } else {
            flow.answer(&seen, &headers, at_receiver, bin);
        }
    }

    /// The trace.
    ///
    /// # Errors
    ///
    /// Too many intervals, or none of the hosts' packets.
    pub fn finish(self) -> Result<LinkTrace, LinkTraceError> {
        if self.too_long {
            return Err(LinkTraceError::TooLong { interval: self.interval });
        }
        let begin = self.begin.ok_or(LinkTraceError::NoData)?;
        let length = self.end.saturating_since(begin);
        let since = |at: Instant| at.saturating_since(begin).min(length);
        let down = self.down.iter().map(|&(down, up)| (since(down), since(up)));
        let down: Vec<(Duration, Duration)> = down.filter(|(down, up)| down < up).collect();
        let full = self.bins.iter().filter(|bin| bin.queue).count();
        let rates = self.rates(&down, length);
        let mut rows: Vec<LinkRow> = Vec::new();
        for (index, bin) in self.bins.iter().enumerate() {
            let at = self.interval * index as u64;
            let loss = match bin.segments {
                0 => 0.0,
                segments => f64::from(bin.lost.min(segments)) / f64::from(segments),
            };
            let rtt = self.least_around(index);
            rows.push(LinkRow { at, rate_bps: rates[index], rtt, loss, up: true });
        }
        let rows = with_outages(rows, &down, length);
        let full_share = full as f64 / self.bins.len().max(1) as f64;
        Ok(LinkTrace { sender: self.sender, receiver: self.receiver, place: self.place, rows, full_share })
    }

    /// What the link could do in each interval.
    fn rates(&self, down: &[(Duration, Duration)], length: Duration) -> Vec<u64> {
        let carried: Vec<f64> = self
            .bins
            .iter()
            .enumerate()
            .map(|(index, bin)| {
                let at = self.interval * index as u64;
                let until = (at + self.interval).min(length.max(at));
                let whole = until.saturating_sub(at);
                let off: Duration = down
                    .iter()
                    .map(|&(from, to)| to.min(until).saturating_sub(from.max(at)))
                    .fold(Duration::ZERO, |sum, part| sum + part);
                let up = whole.saturating_sub(off);
                // A sliver of an interval says nothing.
                if up * 10 < self.interval { 0.0 } else { bin.bytes * 8.0 / up.as_secs_f64() }
            })
            .collect();
        let is_full = |index: usize| self.bins[index].queue && carried[index] > 0.0;
        let most = carried.iter().copied().fold(0.0, f64::max);
        let mut before: Option<usize> = None;
        let mut next: Option<usize> = (0..self.bins.len()).find(|&index| is_full(index));
        let mut rates = Vec::with_capacity(self.bins.len());
        for index in 0..self.bins.len() {
            if is_full(index) {
                before = Some(index);
                rates.push(carried[index].round() as u64);
                continue;
            }
            if next.is_some_and(|next| next < index) {
                next = (index..self.bins.len()).find(|&index| is_full(index));
            }
            let nearest = match (before, next) {
                (Some(before), Some(next)) if next - index < index - before => carried[next],
                (Some(before), _) => carried[before],
                (None, Some(next)) => carried[next],
                (None, None) => most,
            };
            rates.push(nearest.max(carried[index]).round() as u64);
        }
        rates
    }

    /// The least round trip within five seconds that has no queue in it, or else the least at any time.
    fn least_around(&self, index: usize) -> Duration {
        let reach = (Duration::from_secs(5).as_nanos() / self.interval.as_nanos()) as usize;
        let around = index.saturating_sub(reach)..index.saturating_add(reach + 1).min(self.bins.len());
        let least = [0, 1].map(|half| {
            let of_flows = self.flows.values().filter_map(|flow| flow.least()[half]);
            of_flows.min().unwrap_or(Duration::ZERO)
        });
        let most = queue_begins_at(least);
        let slack = most.saturating_sub(least[0] + least[1]);
        let half = |half: usize| {
            let near = self.bins[around.clone()].iter().filter_map(|bin| bin.rtt[half]).min();
            near.filter(|near| *near <= least[half] + slack).unwrap_or(least[half])
        };
        half(0) + half(1)
    }
}

/// Round trips above this show a queue, given the least from the place of the capture to both ends: a quarter, and 2 ms, above.
fn queue_begins_at(least: [Duration; 2]) -> Duration {
    let least = least[0] + least[1];
    least + (least / 4).max(Duration::from_millis(2))
}

/// Cuts rows at the beginnings and ends of outages, and leaves out what changes nothing.
fn with_outages(rows: Vec<LinkRow>, down: &[(Duration, Duration)], length: Duration) -> Vec<LinkRow> {
    let mut edges: Vec<Duration> = rows.iter().map(|row| row.at).collect();
    edges.extend(down.iter().flat_map(|&(from, to)| [from, to]));
    edges.sort_unstable();
    edges.dedup();
    let mut all: Vec<LinkRow> = Vec::with_capacity(edges.len() + 1);
    for at in edges.into_iter().filter(|at| *at < length) {
        let index = rows.partition_point(|row| row.at <= at).saturating_sub(1);
        let up = !down.iter().any(|&(from, to)| from <= at && at < to);
        let row = LinkRow { at, up, ..rows[index] };
        let same = |last: &LinkRow| LinkRow { at, ..*last } == row;
        if !all.last().is_some_and(same) {
            all.push(row);
        }
    }
    if let Some(last) = all.last().copied() {
        all.push(LinkRow { at: length.max(last.at + Duration::from_millis(1)), ..last });
    }
    all
}

/// One connection between the two hosts.
#[derive(Debug)]
struct Flow {
    stream: Stream,
    to_sender: RoundTrip,
    to_receiver: RoundTrip,
    /// The latest samples of both.
    latest: [Option<Duration>; 2],
    positions: Positions,
    /// The end of all data sent, and of that which the latest outage may have taken.
    highest: u64,
    repaired_below: u64,
    outages_over: usize,
    /// What the latest outage took is being repaired, at least until then.
    repairs: Option<Instant>,
    delivered: Delivered,
    /// The most data of a segment that is sent without offload: from the MSS options.
    mss: u32,
    header_len: f64,
    packets: u64,
}

impl Flow {
    /// Packets between two looks at how much is kept.
    const LOOK_EVERY: u64 = 1 << 16;

    fn new(at: Instant) -> Self {
        Self {
            stream: Stream::new(at),
            to_sender: RoundTrip::new(),
            to_receiver: RoundTrip::new(),
            latest: [None; 2],
            positions: Positions::default(),
            highest: 0,
            repaired_below: 0,
            outages_over: 0,
            repairs: None,
            delivered: Delivered::default(),
            mss: 1448,
            header_len: 52.0,
            packets: 0,
        }
    }

    /// To the sender and to the receiver.
    fn least(&self) -> [Option<Duration>; 2] {
        [self.to_sender.least, self.to_receiver.least]
    }

    /// So many outages are over when data is sent. What was sent before may have been lost in them; at the receiver that shows only when the
    /// holes have been filled.
    fn note_outages(&mut self, over: usize, at: Instant, at_receiver: bool) {
        if over > self.outages_over {
            self.outages_over = over;
            let [to_sender, to_receiver] = self.least().map(|least| least.unwrap_or(Duration::ZERO));
            self.repaired_below = self.highest;
            self.repairs = at_receiver.then_some(at + (to_sender + to_receiver) * 4);
        }
        if let Some(until) = self.repairs {
            self.repaired_below = self.highest;
            if at > until && !self.stream.has_hole() {
                self.repairs = None;
            }
        }
    }

    /// Bytes on the wire of so many bytes of data.
    fn on_wire(&self, data: u64) -> f64 {
        data as f64 * (1.0 + self.header_len / f64::from(self.mss))
    }

    fn data(&mut self, seen: &Seen, headers: &TcpHeaders, original_len: usize, at_receiver: bool, bin: &mut Bin) {
        self.bound();
        if let Some(mss) = headers.segment.options.mss.filter(|_| seen.is_syn()) {
            self.mss = self.mss.min(u32::from(mss)).max(1);
        }
        let sample = self.to_sender.answer(seen, None);
        self.note(0, sample, bin);
        let rtt = self.least().into_iter().flatten().reduce(|a, b| a + b);
        let sent = self.stream.sent(seen, rtt, false);
        self.to_receiver.question(seen, sent.new_end, sent.again);
        if seen.len == 0 {
            return;
        }
        if seen.len <= self.mss {
            self.header_len = original_len.saturating_sub(seen.len as usize) as f64;
        }
        let segments = seen.len.div_ceil(self.mss);
        bin.segments += segments;
        let from = self.positions.of(seen.seq + u32::from(seen.is_syn()));
        self.highest = self.highest.max(from + u64::from(seen.len));
        if sent.again && from >= self.repaired_below && !self.has_queue() {
            bin.lost += segments;
        }
        if at_receiver {
            bin.bytes += self.on_wire(u64::from(seen.len));
        }
    }

    fn answer(&mut self, seen: &Seen, headers: &TcpHeaders, at_receiver: bool, bin: &mut Bin) {
        self.bound();
        let acked = self.stream.position_of_ack(seen);
        let sample = self.to_receiver.answer(seen, acked);
        self.note(1, sample, bin);
        self.stream.heard(seen, acked, None);
        self.to_sender.question(seen, None, seen.flags.contains(Flags::RST));
        if at_receiver || seen.is_syn() {
            return;
        }
        if let Some(ack) = seen.acknowledges() {
            let ack = self.positions.of(ack);
            let mut new = self.delivered.up_to(ack);
            for block in headers.segment.options.sack.iter() {
                let (from, to) = (self.positions.of(block.start), self.positions.of(block.end));
                new += self.delivered.block(from, to);
            }
            bin.bytes += self.on_wire(new);
        }
    }

    fn note(&mut self, half: usize, sample: Option<Duration>, bin: &mut Bin) {
        let Some(sample) = sample else { return };
        self.latest[half] = Some(sample);
        bin.queue |= self.has_queue();
        bin.rtt[half] = Some(bin.rtt[half].map_or(sample, |least| least.min(sample)));
    }

    /// The latest round trip shows a queue.
    fn has_queue(&self) -> bool {
        let latest = self.latest.map(|latest| latest.unwrap_or(Duration::ZERO));
        let least = self.least().map(|least| least.unwrap_or(Duration::ZERO));
        latest[0] + latest[1] > queue_begins_at(least)
    }

    fn bound(&mut self) {
        self.packets += 1;
        if self.packets.is_multiple_of(Self::LOOK_EVERY) {
            self.stream.evidence.coarsen();
        }
    }
}

/// Which bytes the receiver is known to have.
#[derive(Debug, Default)]
struct Delivered {
    acked: Option<u64>,
    /// Blocks above it, from their beginnings to their ends.
    blocks: BTreeMap<u64, u64>,
}

impl Delivered {
    /// Everything below `ack` is delivered; returns how much of that is new.
    fn up_to(&mut self, ack: u64) -> u64 {
        let Some(acked) = self.acked else {
            self.acked = Some(ack);
            return 0;
        };
        if ack <= acked {
            return 0;
        }
        let mut new = ack - acked;
        while let Some((&from, &to)) = self.blocks.first_key_value() {
            if from >= ack {
                break;
            }
            self.blocks.remove(&from);
            new -= to.min(ack) - from;
            if to > ack {
                self.blocks.insert(ack, to);
            }
        }
        self.acked = Some(ack);
        new
    }

    /// A block of SACK; returns how much of it is new.
    fn block(&mut self, from: u64, to: u64) -> u64 {
        let from = from.max(self.acked.unwrap_or(from));
        if from >= to {
            return 0;
        }
        let (mut begin, mut end, mut known) = (from, to, 0);
        let touching: Vec<(u64, u64)> = self
            .blocks
            .range(..=to)
            .rev()
            .take_while(|(_, block_end)| **block_end >= from)
            .map(|(&block, &block_end)| (block, block_end))
            .collect();
        for (block, block_end) in touching {
            self.blocks.remove(&block);
            known += block_end.min(to).saturating_sub(block.max(from));
            (begin, end) = (begin.min(block), end.max(block_end));
        }
        self.blocks.insert(begin, end);
        to - from - known
    }
}

impl LinkTrace {
    /// The table that a scenario's link takes as its `trace`: `t`, `rate`, `rtt`, `loss` and `up`. `source` is named in a comment.
    pub fn to_csv(&self, source: &str) -> String {
        let mut text = String::new();
        // Writing to a string does not fail.
        let _ = self.write_csv(&mut text, source);
        text
    }

    fn write_csv(&self, out: &mut String, source: &str) -> fmt::Result {
        let source: Vec<&str> = source.split_whitespace().collect();
        writeln!(out, "# {}: {} to {}, captured {}", source.join(" "), self.sender, self.receiver, self.place.name())?;
        writeln!(out, "t,rate,rtt,loss,up")?;
        for row in &self.rows {
            let (at, rtt) = (row.at.as_secs_f64(), row.rtt.as_secs_f64());
            writeln!(out, "{at:.6},{},{rtt:.6},{:.6},{}", row.rate_bps, row.loss, u8::from(row.up))?;
        }
        Ok(())
    }

    /// The mean rate while the path was up, in bit/s.
    pub fn mean_rate_bps(&self) -> f64 {
        let spans = self.rows.windows(2).filter(|pair| pair[0].up);
        let (mut bits, mut time) = (0.0, 0.0);
        for pair in spans {
            let span = pair[1].at.saturating_sub(pair[0].at).as_secs_f64();
            bits += pair[0].rate_bps as f64 * span;
            time += span;
        }
        if time > 0.0 { bits / time } else { 0.0 }
    }

    /// The outages.
    pub fn outages(&self) -> usize {
        let begins = |pair: &&[LinkRow]| pair[0].up && !pair[1].up;
        self.rows.windows(2).filter(begins).count() + usize::from(self.rows.first().is_some_and(|row| !row.up))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Counting bytes once, beside a set of bytes.
        #[test]
        fn each_byte_is_delivered_once(reports in prop::collection::vec((any::<bool>(), 0_u64..200, 1_u64..40), 1..60)) {
            let mut delivered = Delivered::default();
            delivered.up_to(0);
            let mut reference = std::collections::BTreeSet::new();
            let mut acked = 0;
            for (is_ack, from, len) in reports {
                let before = reference.len() as u64;
                let new = if is_ack {
                    acked = acked.max(from);
                    reference.extend(0..acked);
                    delivered.up_to(from)
                } else {
                    reference.extend(from.max(acked)..(from + len).max(acked));
                    delivered.block(from, from + len)
                };
                prop_assert_eq!(new, reference.len() as u64 - before);
            }
        }
    }
}
