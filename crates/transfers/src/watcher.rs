//! Measurements of a transfer from its packets, which the applications cannot make.

use std::collections::BTreeMap;

use holdover_base::{Duration, Instant};
use holdover_sim::{FlowConfig, Frame, NodeId, Observer, Place, Transit};
use holdover_wire::{Flags, Segment, Seq, SeqRange};

/// Watches transfers of fewer than 4 GiB each, between the same two hosts and in the same direction, across one cut.
#[derive(Debug)]
pub struct Watcher {
    from: NodeId,
    to: NodeId,
    back_at: Instant,
    /// How many connections there are to be.
    expected: usize,
    /// Data of the receiver counts as well.
    counts_answers: bool,
    streams: BTreeMap<Ports, Stream>,
    /// The connection that is traced: the first one.
    traced: Option<Ports>,
    trace: Vec<String>,
}

/// The ports of a connection: of the sender of the data, and of the receiver. Addresses may be translated between them.
type Ports = (u16, u16);

/// The measurements of one connection.
#[derive(Debug, Default)]
struct Stream {
    /// The first sequence numbers of the sender of the data and of the receiver.
    first: [Option<Seq>; 2],
    /// Data that has arrived in each direction.
    received: [Received; 2],
    /// When the last segment of the handshake arrived.
    opened_at: Option<Instant>,
    new_data_at: Option<Instant>,
}

/// Positions in the stream that have arrived, in any order: from each, up to another.
#[derive(Debug, Default)]
struct Received(BTreeMap<u32, u32>);

impl Watcher {
    /// The number of packets in the trace.
    const TRACED: usize = 24;

    /// Of `flows`, whose link is back at `back_at`. There is at least one.
    pub fn new(flows: &[FlowConfig], back_at: Instant) -> Self {
        let (from, to, expected) = (flows[0].from, flows[0].to, flows.len());
        let counts_answers = false;
        Self { from, to, back_at, expected, counts_answers, streams: BTreeMap::new(), traced: None, trace: Vec::new() }
    }

    /// Counts the answers to messages, too. A connection whose message arrived just before the cut, and whose answer was lost, resumes with
    /// that answer; its next message follows a pause later.
    #[must_use]
    pub fn with_answers(self) -> Self {
        Self { counts_answers: true, ..self }
    }

    /// From the link's return to the first data at the receiver's interface that it did not have before, for the last of the
    /// connections. `None` if one has had none.
    pub fn new_data(&self) -> Option<Duration> {
        self.nth_new_data(self.expected.checked_sub(1)?)
    }

    /// The same time for the median connection, the lower one of two.
    pub fn median_new_data(&self) -> Option<Duration> {
        self.nth_new_data(self.expected.checked_sub(1)? / 2)
    }

    /// Whether all handshakes were over by then. A connection whose handshake was not resumes by its host's timer for SYNs, after 1, 2, 4 s
    /// and so on, or was refused: an agent leaves it alone.
    pub fn were_open(&self, by: Instant) -> bool {
        let is_open = |stream: &&Stream| stream.opened_at.is_some_and(|at| at < by);
        self.streams.values().filter(is_open).count() == self.expected
    }

    fn nth_new_data(&self, n: usize) -> Option<Duration> {
        let mut times: Vec<Instant> = self.streams.values().filter_map(|stream| stream.new_data_at).collect();
        times.sort_unstable();
        times.get(n).map(|at| at.saturating_since(self.back_at))
    }

    /// The first packets of the first connection after the link's return at the sender of the data, a line each: milliseconds since then, `>`
    /// for sent and `<` for received ones, and the segment as tcpdump prints it, with relative numbers.
    pub fn trace(&self) -> &[String] {
        &self.trace
    }

    fn record(&mut self, at: Instant, direction: Transit, segment: &Segment, first: [Option<Seq>; 2]) {
        if at < self.back_at || self.trace.len() == Self::TRACED {
            return;
        }
        let [mine, peers] = first.map(|first| first.map_or(0, Seq::value));
        let (arrow, own, other) = if direction == Transit::Out { ('>', mine, peers) } else { ('<', peers, mine) };
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
        let Some(segment) = frame.observed_tcp().filter(|_| place.node == self.from || place.node == self.to) else {
            return;
        };
        let is_of_sender = (place.node == self.from) == (place.transit == Transit::Out);
        let (own, other) = (segment.src_port, segment.dst_port);
        let ports = if is_of_sender { (own, other) } else { (other, own) };
        let stream = self.streams.entry(ports).or_default();
        if segment.flags.contains(Flags::SYN) && place.transit == Transit::Out {
            stream.first[usize::from(place.node != self.from)] = Some(segment.seq + 1);
        }
        if !segment.flags.contains(Flags::SYN) && place.transit == Transit::In {
            stream.opened_at.get_or_insert(at);
        }
        if place.transit == Transit::In && (place.node == self.to || self.counts_answers) {
            stream.note_data(at, self.back_at, usize::from(!is_of_sender), segment);
        }
        if place.node == self.from && *self.traced.get_or_insert(ports) == ports {
            let first = stream.first;
            self.record(at, place.transit, segment, first);
        }
    }
}

impl Stream {
    /// `of`: the host that has sent the data, as in `first`.
    fn note_data(&mut self, at: Instant, back_at: Instant, of: usize, segment: &Segment) {
        let Some(first) = self.first[of].filter(|_| !segment.payload.is_empty()) else { return };
        let start = segment.seq - first;
        let is_new = self.received[of].add(start, start + segment.payload.len() as u32);
        if is_new && at >= back_at && self.new_data_at.is_none() {
            self.new_data_at = Some(at);
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
    use std::sync::Arc;

    use holdover_base::ByteCount;
    use holdover_link::{InFlightFate, LinkConfig, Outage, OutagePolicy, Outages, QueuedFate};
    use holdover_sim::{LinkBetween, NodeConfig, RequestResponse, Role, Traffic, World, WorldConfig};
    use holdover_tcp::Profile;

    use super::*;

    /// A request arrives before the cut, and its answer is lost. The answer comes after the cut, and the next request a pause after that.
    #[test]
    fn an_answer_counts_if_it_is_to() {
        const PAUSE: Duration = Duration::from_secs(3);
        const ONE_WAY: Duration = Duration::from_millis(25);
        // SYN, SYN-ACK and the request are over by the cut; the answer would arrive 20 ms after it.
        let (cut_at, back_at) = (Instant::from_millis(80), Instant::from_millis(1000));
        let messages =
            RequestResponse { request: ByteCount(1000), response: ByteCount(36), think: PAUSE, count: Some(2) };
        let stack = Arc::new(Profile::Linux6Cubic.config());
        let link = LinkConfig {
            delay: ONE_WAY,
            outages: Outages::List(vec![Outage { down: cut_at, up: back_at }]),
            outage_policy: OutagePolicy { queued: QueuedFate::Lost, in_flight: InFlightFate::Dropped },
            ..LinkConfig::default()
        };
        let node = |name: &str| NodeConfig { name: name.into(), role: Role::Host };
        let config = WorldConfig {
            nodes: vec![node("client"), node("server")],
            links: vec![LinkBetween::wire("link", NodeId(0), NodeId(1), link)],
            flows: vec![FlowConfig {
                name: "messages".into(),
                from: NodeId(0),
                to: NodeId(1),
                start: Instant::ZERO,
                sender: Arc::clone(&stack),
                receiver: stack,
                traffic: Traffic::RequestResponse(messages),
                ipv6: false,
            }],
            time_limit: Instant::from_secs(60),
            ..WorldConfig::default()
        };
        let new_data = |mut watcher: Watcher| {
            World::new(config.clone()).unwrap().run(&mut watcher);
            watcher.new_data().expect("both messages arrive")
        };
        let with = new_data(Watcher::new(&config.flows, back_at).with_answers());
        let without = new_data(Watcher::new(&config.flows, back_at));
        let mut watcher = Watcher::new(&config.flows, back_at);
        World::new(config.clone()).unwrap().run(&mut watcher);
        let opened_at = Instant::ZERO + ONE_WAY * 3;
        assert!(!watcher.were_open(opened_at) && watcher.were_open(cut_at));
        // The server sends the answer again until it arrives.
        assert!(with >= ONE_WAY && with < PAUSE, "{with:?}");
        assert_eq!(without, with + PAUSE + ONE_WAY);
    }

    #[test]
    fn bytes_are_new_once_in_any_order() {
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
