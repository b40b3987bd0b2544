//! A trace of the link on a captured path, as a table that a simulated link can replay.
//!
//! A [`LinkEstimator`] takes the packets between the two hosts that exchanged most data and estimates for each interval:
//!
//! - **rate**: the data delivered, with its headers, over the time in which the path was up. At the receiver this is the data that arrived,
//!   elsewhere the newly acknowledged data, cumulatively or by SACK. It is the link's *capacity* only while a queue stood in front of it,
//!   which the round trip shows (more than a quarter above the minimum). An interval without a queue takes the rate of the nearest one with
//!   a queue, unless it carried more itself. Without any such interval, all of this is a lower bound;
//! - **round trip**: the minimum within five seconds on either side, of samples without a queue, which the replaying link adds itself. If
//!   all have a queue, it is the minimum of the capture: a path that becomes longer by more than a quarter is mistaken for a queue;
//! - **loss**: retransmissions divided by transmissions, of data first sent while the path was up, and while no queue stood in front of the
//!   link. Losses with a queue are attributed to overflow, which the replaying link reproduces itself;
//! - **outages**: those of [`outages_of_paths`], at their most likely times.

use core::fmt::{self, Write as _};
use core::net::IpAddr;
use std::collections::{BTreeMap, BTreeSet};

use holdover_base::{Duration, Instant};
use holdover_wire::{Flags, TcpHeaders};

use crate::conversation::{Conversation, Place};
use crate::outages::outages_of_paths;
use crate::round_trip::RoundTrip;
use crate::segment::{Positions, Seen};
use crate::stream::Stream;

/// Errors of estimating a trace.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum LinkTraceError {
    /// The capture has no data.
    #[error("the capture has no TCP connection with data")]
    NoData,
    /// The trace would have too many rows.
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
    /// The place of the capture.
    pub place: Place,
    /// The conditions, in order of time, the first at zero. The last row ends the trace.
    pub rows: Vec<LinkRow>,
    /// The share of intervals in which a queue revealed the link's capacity.
    pub full_share: f64,
}

/// The conditions of a link from a time on.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct LinkRow {
    /// The time since the first packet.
    pub at: Duration,
    /// The rate in bit/s, including IP headers.
    pub rate_bps: u64,
    /// The round-trip delay, without queues.
    pub rtt: Duration,
    /// The loss probability.
    pub loss: f64,
    /// Whether packets are delivered.
    pub up: bool,
}

/// Estimates the conditions of a link.
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

/// The measurements of an interval.
#[derive(Clone, Copy, Default, Debug)]
struct Bin {
    /// Bytes delivered, with headers.
    bytes: f64,
    /// Data segments, and those retransmitted without a queue.
    segments: u32,
    lost: u32,
    /// The minimum round trips from the place of the capture to the sender and to the receiver.
    rtt: [Option<Duration>; 2],
    /// A queue stood in front of the link.
    queue: bool,
}

impl LinkEstimator {
    /// The maximum number of rows.
    pub const MOST_INTERVALS: usize = 1 << 20;

    /// Creates an estimator for the hosts of the conversation with most data.
    ///
    /// # Errors
    ///
    /// No conversation, or an interval of zero.
    pub fn new(conversations: &[Conversation], interval: Duration) -> Result<Self, LinkTraceError> {
        let index = (0..conversations.len()).max_by_key(|&index| conversations[index].bytes);
        let index = index.ok_or(LinkTraceError::NoData)?;
        let most = &conversations[index];
        // Packets of all conversations between the two hosts are taken.
        let of_each = conversations.iter().zip(outages_of_paths(conversations));
        let of_path = of_each.filter(|(it, _)| it.path() == most.path()).flat_map(|(_, found)| found);
        let down: BTreeSet<_> = of_path.map(|found| (found.guess.down, found.guess.up)).collect();
        if interval == Duration::ZERO {
            return Err(LinkTraceError::NoInterval);
        }
        Ok(Self {
            sender: most.sender.ip(),
            receiver: most.receiver.ip(),
            place: most.place,
            interval,
            down: down.into_iter().collect(),
            begin: None,
            end: Instant::ZERO,
            flows: BTreeMap::new(),
            bins: Vec::new(),
            too_long: false,
        })
    }

    /// Takes an IP packet captured at `at` with `original_len` bytes, beginning with `ip`. Packets of other hosts are ignored.
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
            // Data sent before the end of the latest outage may have been lost in it.
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

    /// The link's capacity in each interval.
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
                // A small part of an interval is too little evidence.
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

    /// The minimum round trip without a queue within five seconds, or else the overall minimum.
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

/// The round trip above which a queue is assumed, given the minimums from the place of the capture to both ends: a quarter and 2 ms above.
fn queue_begins_at(least: [Duration; 2]) -> Duration {
    let least = least[0] + least[1];
    least + (least / 4).max(Duration::from_millis(2))
}

/// Splits rows at the beginnings and ends of outages, and omits rows without a change.
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
    /// The latest samples to both ends.
    latest: [Option<Duration>; 2],
    positions: Positions,
    /// The end of all data sent, and of the data that the latest outage may have lost.
    highest: u64,
    repaired_below: u64,
    outages_over: usize,
    /// Data lost in the latest outage is being repaired, at least until then.
    repairs: Option<Instant>,
    delivered: Delivered,
    /// The maximum payload of a segment without offload, from the MSS options.
    mss: u32,
    header_len: f64,
    packets: u64,
}

impl Flow {
    /// Packets between two checks of the limit.
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

    /// The minimums to the sender and to the receiver.
    fn least(&self) -> [Option<Duration>; 2] {
        [self.to_sender.least, self.to_receiver.least]
    }

    /// Records that `over` outages had ended when data was sent. Data sent before may have been lost in them; at the receiver this is known
    /// only when the holes have been filled.
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

    /// The bytes on the wire for `data` bytes.
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

    /// Whether the latest round trip shows a queue.
    fn has_queue(&self) -> bool {
        let latest = self.latest.map(|latest| latest.unwrap_or(Duration::ZERO));
        let least = self.least().map(|least| least.unwrap_or(Duration::ZERO));
        latest[0] + latest[1] > queue_begins_at(least)
    }

    fn bound(&mut self) {
        self.packets += 1;
        if self.packets.is_multiple_of(Self::LOOK_EVERY) {
            self.stream.evidence.limit(64);
        }
    }
}

/// The bytes known to have reached the receiver.
#[derive(Debug, Default)]
struct Delivered {
    acked: Option<u64>,
    /// Blocks above `ack`, from their beginnings to their ends.
    blocks: BTreeMap<u64, u64>,
}

impl Delivered {
    /// Marks everything below `ack` as delivered; returns the number of new bytes.
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

    /// Marks a SACK block as delivered; returns the number of new bytes.
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
    /// The trace as a table for a scenario link's `trace`: `t`, `rate`, `rtt`, `loss` and `up`. A comment names `source`.
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
        /// Matches a set of bytes that counts each once.
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
