//! What packets tell of a transfer that the applications do not.

use std::collections::BTreeMap;

use holdover_base::{Duration, Instant};
use holdover_sim::{Direction, FlowConfig, Frame, NodeId, Observer, Place};
use holdover_wire::{Flags, Segment, Seq, SeqRange};

/// Watches one transfer of fewer than 4 GiB across one cut.
#[derive(Debug)]
pub(crate) struct Watcher {
    from: NodeId,
    to: NodeId,
    back_at: Instant,
    /// The first sequence numbers of the sender of the data and of the receiver.
    first: [Option<Seq>; 2],
    received: Received,
    new_data_at: Option<Instant>,
    trace: Vec<String>,
}

/// Positions in the stream that have arrived, in any order: from each, up to another.
#[derive(Debug, Default)]
struct Received(BTreeMap<u32, u32>);

impl Watcher {
    /// So many packets are told.
    const TRACED: usize = 24;

    /// Of `flow`, whose link is back at `back_at`.
    pub(crate) fn new(flow: &FlowConfig, back_at: Instant) -> Self {
        Self {
            from: flow.from,
            to: flow.to,
            back_at,
            first: [None, None],
            received: Received::default(),
            new_data_at: None,
            trace: Vec::new(),
        }
    }

    /// From the link's return to the first data at the receiver's interface that it did not have before.
    pub(crate) fn new_data(&self) -> Option<Duration> {
        self.new_data_at.map(|at| at.saturating_since(self.back_at))
    }

    /// The first packets after the link's return as the sender of the data sees them, a line each: milliseconds, `>` for what it
    /// sends and `<` for what it gets, and the segment as tcpdump prints it, with relative numbers.
    pub(crate) fn trace(&self) -> &[String] {
        &self.trace
    }

    fn note_data(&mut self, at: Instant, segment: &Segment) {
        let Some(first) = self.first[0].filter(|_| !segment.payload.is_empty()) else { return };
        let start = segment.seq - first;
        let is_new = self.received.add(start, start + segment.payload.len() as u32);
        if is_new && at >= self.back_at && self.new_data_at.is_none() {
            self.new_data_at = Some(at);
        }
    }

    fn tell(&mut self, at: Instant, direction: Direction, segment: &Segment) {
        if at < self.back_at || self.trace.len() == Self::TRACED {
            return;
        }
        let [mine, peers] = self.first.map(|first| first.map_or(0, Seq::value));
        let (arrow, own, other) = if direction == Direction::Out { ('>', mine, peers) } else { ('<', peers, mine) };
        let mut relative = segment.clone();
        (relative.seq, relative.ack) = (segment.seq - own, segment.ack - other);
        let shifted = segment.options.sack.iter().map(|block| SeqRange::new(block.start - other, block.end - other));
        relative.options.sack = shifted.collect();
        let text = relative.to_string();
        let text = text.split_once(": ").map_or(text.as_str(), |(_ports, rest)| rest);
        let millis = at.saturating_since(self.back_at).as_secs_f64() * 1e3;
        self.trace.push(format!("{millis:9.1} {arrow} {text}"));
    }
}

impl Observer for Watcher {
    fn packet(&mut self, at: Instant, place: Place, frame: &Frame) {
        let Some(segment) = frame.packet.tcp().filter(|_| place.node == self.from || place.node == self.to) else {
            return;
        };
        if segment.flags.contains(Flags::SYN) && place.direction == Direction::Out {
            self.first[usize::from(place.node != self.from)] = Some(segment.seq + 1);
        }
        if place.node == self.to && place.direction == Direction::In {
            self.note_data(at, segment);
        }
        if place.node == self.from {
            self.tell(at, place.direction, segment);
        }
    }
}

impl Received {
    /// Adds what is between two positions. Returns whether any of it is new.
    fn add(&mut self, start: u32, end: u32) -> bool {
        let before = self.0.range(..=start).next_back().map(|(&from, &to)| (from, to));
        if before.is_some_and(|(_, to)| to >= end) {
            return false;
        }
        let (mut from, mut to) = before.filter(|&(_, to)| to >= start).unwrap_or((start, start));
        to = to.max(end);
        while let Some((&next, &next_to)) = self.0.range(from..=to).next() {
            self.0.remove(&next);
            (from, to) = (from.min(next), to.max(next_to));
        }
        self.0.insert(from, to);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_arrived_is_not_new_whatever_the_order() {
        let mut received = Received::default();
        for (start, end, is_new) in [
            (0, 10, true),
            (0, 10, false),
            (20, 30, true),
            (5, 10, false),
            (22, 28, false),
            (8, 12, true),
            (40, 50, true),
            (10, 45, true),
            (0, 50, false),
            (49, 51, true),
        ] {
            assert_eq!(received.add(start, end), is_new, "{start} to {end}: {received:?}");
        }
        assert_eq!(received.0, BTreeMap::from([(0, 51)]));
    }
}
