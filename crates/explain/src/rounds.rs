//! Finds the limiting factor of a sender during transfer, round trip by round trip.
//!
//! The round trip shows whether the path is full: a queue raises it above the minimum (the idea of TCP Vegas). While the path is not full,
//! another factor limits the sender: slow start after a silence, until the connection reaches the rate of a good round; the congestion
//! window after a loss, until the path is full again; or the receive window, where about as much as it allows is outstanding.

use holdover_base::{Duration, Instant};

use crate::conversation::{Conversation, Place};
use crate::evidence::Halves;
use crate::spans::{Cause, Span, push};

/// Divides the transfer in `spans` by its limiting factor.
pub(crate) fn with_limits(spans: Vec<Span>, conversation: &Conversation) -> Vec<Span> {
    let rounds = Rounds::of(conversation);
    let mut result = Vec::with_capacity(spans.len());
    let mut before = Cause::Handshake;
    let mut limit = Limit::default();
    for span in spans {
        if span.cause == Cause::Transfer {
            if before != Cause::Transfer {
                limit = Limit { opening: true, full: false, ..limit };
            }
            rounds.divide(span, &mut limit, &mut result);
        } else {
            push(&mut result, span);
        }
        before = span.cause;
    }
    result
}

/// The limiting factor's state, carried from round to round.
#[derive(Clone, Copy, Default)]
struct Limit {
    /// The window is opening after a silence.
    opening: bool,
    /// The latest round with losses since the path was last full, if any.
    lost: Option<usize>,
    /// Whether the path was full in the latest round with a sample; not every round has one.
    full: bool,
}

/// One round trip.
#[derive(Clone, Copy, Default)]
struct Round {
    acked: u64,
    again: u32,
    rtt: Halves,
    outstanding: u64,
    window: Option<u32>,
    /// Whether there was a queue on the path; `None` if no sample tells.
    full: Option<bool>,
}

/// All rounds of a conversation.
struct Rounds {
    begin: Instant,
    length: Duration,
    rounds: Vec<Round>,
    /// The ninth decile of bytes acknowledged per round, of rounds with any.
    good: u64,
    /// The median of bytes acknowledged per round, of rounds with a full path; `None` if no sample shows one.
    capacity: Option<u64>,
    least: Halves,
    /// The round-trip excess above which a queue is assumed.
    queue: Duration,
    /// Whether there are samples of the longer half of the path, which must contain the queue.
    has_samples: bool,
    place: Place,
}

impl Rounds {
    /// The maximum number of rounds kept; longer captures have longer rounds.
    const MOST: u64 = 1 << 16;
    /// The approximate payload of a full segment.
    const SEGMENT: u64 = 1448;

    fn of(conversation: &Conversation) -> Self {
        let evidence = &conversation.evidence;
        let whole = conversation.end.saturating_since(conversation.begin);
        let rtt = conversation.rtt();
        let length = rtt.max(evidence.bin_width).max(whole / Self::MOST);
        let count = (whole.as_nanos() / length.as_nanos()) as usize + 1;
        let mut rounds = vec![Round::default(); count];
        for bin in &evidence.bins {
            let at = evidence.bin_width * bin.index;
            let round = &mut rounds[((at.as_nanos() / length.as_nanos()) as usize).min(count - 1)];
            round.acked += bin.acked;
            round.again += bin.again;
            round.rtt.note(bin.rtt);
            round.outstanding = round.outstanding.max(bin.outstanding);
            round.window = bin.window.or(round.window);
        }
        let least = Halves { to_sender: conversation.rtt_to_sender, to_receiver: conversation.rtt_to_receiver };
        let has_samples = rounds.iter().filter(|round| excess(round.rtt, least).is_some()).count() > 1;
        let mut all = Self {
            begin: conversation.begin,
            length,
            rounds,
            good: 0,
            capacity: None,
            least,
            queue: rtt / 8 + Duration::from_millis(1),
            has_samples,
            place: conversation.place,
        };
        let decile = |mut acked: Vec<u64>, tenths: usize| {
            acked.sort_unstable();
            acked.get(acked.len() * tenths / 10).copied()
        };
        let busy = all.rounds.iter().map(|round| round.acked).filter(|&acked| acked > 0);
        all.good = decile(busy.collect(), 9).unwrap_or(0);
        all.find_queues();
        let busy = all.rounds.iter().filter(|round| round.acked > 0);
        let full: Vec<u64> = busy.clone().filter(|round| round.full == Some(true)).map(|round| round.acked).collect();
        let sampled = busy.clone().filter(|round| round.full.is_some()).count();
        let (often, mostly) = (full.len() * 20 >= busy.count(), full.len() * 2 >= sampled);
        // Varying round trips alone do not show a queue: a full path is full most of the time, or has its best rate while full.
        let good = all.good;
        all.capacity = decile(full, 5)
            .filter(|&median| (mostly && median * 10 >= good * 4) || (often && median * 20 >= good * 17));
        if all.capacity.is_none() {
            all.rounds.iter_mut().for_each(|round| round.full = round.full.map(|_| false));
        }
        all
    }

    /// Marks the rounds with a queue on the path, as far as samples show it. Samples around retransmissions are ignored: an ACK waits for
    /// the hole to be filled, which may take as long as a queue. A single round is ignored as well.
    fn find_queues(&mut self) {
        let recovers: Vec<bool> = self.rounds.windows(3).map(|near| near.iter().any(|round| round.again > 0)).collect();
        let is_clean = |index: usize| !recovers.get(index.saturating_sub(1)).copied().unwrap_or(false);
        let (queue, least) = (self.queue, self.least);
        let long = |(index, round): (usize, &Round)| {
            let excess = excess(round.rtt, least).filter(|_| is_clean(index))?;
            Some((index, excess > queue))
        };
        let sampled: Vec<(usize, bool)> = self.rounds.iter().enumerate().filter_map(long).collect();
        for (at, &(index, is_long)) in sampled.iter().enumerate() {
            let beside = [at.checked_sub(1), Some(at + 1)].into_iter().flatten();
            let lasts = beside.filter_map(|beside| sampled.get(beside)).any(|(_, long)| *long);
            self.rounds[index].full = Some(is_long && lasts);
        }
    }

    /// Whether about as much as the receive window was outstanding for the whole round.
    fn fills_window(&self, round: &Round) -> bool {
        let outstanding = if self.place == Place::Receiver { round.acked } else { round.outstanding };
        round.window.is_some_and(|window| {
            let window = u64::from(window);
            outstanding + 2 * Self::SEGMENT > window && round.acked * 10 >= window * 7
        })
    }

    /// Appends a span of transfer, divided by limiting factor.
    fn divide(&self, span: Span, limit: &mut Limit, result: &mut Vec<Span>) {
        let first = self.number(span.from);
        let last = self.number(span.to).min(self.rounds.len() - 1);
        for (number, round) in self.rounds.iter().enumerate().take(last + 1).skip(first) {
            let start = (self.begin + self.length * number as u64).max(span.from);
            let end = (self.begin + self.length * (number as u64 + 1)).min(span.to);
            let to = if number == last { span.to } else { end };
            push(result, Span { from: start, to, cause: self.cause(number, round, limit) });
        }
    }

    fn number(&self, at: Instant) -> usize {
        (at.saturating_since(self.begin).as_nanos() / self.length.as_nanos()) as usize
    }

    fn cause(&self, number: usize, round: &Round, limit: &mut Limit) -> Cause {
        limit.full = round.full.unwrap_or(limit.full);
        if round.acked * 10 >= self.good * 9 {
            limit.opening = false;
        }
        let near_capacity = self.capacity.is_some_and(|capacity| round.acked * 100 >= capacity * 85);
        if limit.full || near_capacity {
            // A full queue drops packets: the path still limits the rate.
            limit.lost = None;
            limit.opening = false;
            return Cause::Transfer;
        }
        if round.again > 0 {
            limit.lost = Some(number);
            limit.opening = false;
        }
        if self.fills_window(round) {
            limit.lost = None;
            return Cause::ReceiveWindow;
        }
        // Without samples of a full path, recovery takes as many rounds as Reno needs to regain its window.
        let recovery = (round.acked / Self::SEGMENT) as usize + 1;
        if limit.lost.is_some_and(|lost| !self.has_samples && number - lost > recovery) {
            limit.lost = None;
        }
        match (limit.lost, limit.opening) {
            (Some(_), _) => Cause::Loss,
            (None, true) => Cause::SlowStart,
            (None, false) => Cause::Transfer,
        }
    }
}

/// The excess of a round trip over the minimum, in the longer half of the path.
fn excess(rtt: Halves, least: Halves) -> Option<Duration> {
    let of = |sample: Option<Duration>, least: Option<Duration>| Some(sample? - least?);
    let (sender, receiver) = (of(rtt.to_sender, least.to_sender), of(rtt.to_receiver, least.to_receiver));
    if least.to_sender > least.to_receiver {
        sender.max(receiver.filter(|_| sender.is_some()))
    } else {
        receiver.max(sender.filter(|_| receiver.is_some()))
    }
}
