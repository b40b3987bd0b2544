//! Contention: selects the next sender, and the outcome.

use holdover_base::{Duration, Instant};

use super::{Attempt, Cell, Outcome};
use crate::bit_errors::Exposure;
use crate::cell::channel;
use crate::cell::dcf::Contention;
use crate::cell::hop::{Hop, Node};
use crate::cell::sender::Head;
use crate::frame::Frame;

impl<F: Frame> Cell<F> {
    /// Gives the medium to the next node in turn, unless it is busy, or shared with other cells.
    pub(super) fn contend_if_idle(&mut self, now: Instant) {
        if self.config.channel.is_some() {
            return;
        }
        match self.config.dcf.contention {
            Contention::Mean if self.attempt.is_none() => self.take_turns(now),
            Contention::Mean => {}
            Contention::Drawn => channel::contend(&mut [self], now),
        }
    }

    /// Whether an exchange, or the time after a failed one, is in progress.
    pub(in crate::cell) fn is_busy(&self) -> bool {
        self.attempt.is_some()
    }

    fn take_turns(&mut self, now: Instant) {
        let contenders = self.contenders(now);
        // Wraps around after the last node.
        let next = contenders.iter().copied().find(|&node| Some(node) > self.last_winner);
        let Some(winner) = next.or(contenders.first().copied()) else { return };
        self.last_winner = Some(winner);
        let failures = self.head(winner).map_or(0, |head| head.failures);
        let start = now + self.config.dcf.difs() + self.config.dcf.mean_backoff(failures);
        self.start(start, vec![winner], true);
    }

    /// The nodes with a frame to send, and their remaining backoff slots.
    pub(in crate::cell) fn drawn_slots(&mut self, now: Instant) -> Vec<(Node, u32)> {
        let contenders = self.contenders(now);
        contenders.into_iter().map(|node| (node, self.slots_of(node))).collect()
    }

    fn slots_of(&mut self, node: Node) -> u32 {
        let failures = self.head(node).map_or(0, |head| head.failures);
        let drawn = self.rng.below(u64::from(self.config.dcf.contention_window(failures)) + 1) as u32;
        let head = self.sender_mut(node).and_then(|sender| sender.head.as_mut());
        head.map_or(drawn, |head| *head.backoff_slots.get_or_insert(drawn))
    }

    /// Counts down `least` idle slots: returns the nodes that reach zero. The others keep the rest.
    pub(in crate::cell) fn count_down(&mut self, slots: &[(Node, u32)], least: u32) -> Vec<Node> {
        for &(node, slots) in slots {
            if let Some(head) = self.sender_mut(node).and_then(|sender| sender.head.as_mut()) {
                head.backoff_slots = (slots > least).then(|| slots - least);
            }
        }
        slots.iter().filter(|&&(_, slots)| slots == least).map(|&(node, _)| node).collect()
    }

    /// The nodes with a backoff of `slots` begin to send; `alone` unless a node of another cell does so at the same
    /// time.
    pub(in crate::cell) fn begin(&mut self, now: Instant, slots: u32, senders: Vec<Node>, alone: bool) {
        let start = now + self.config.dcf.difs() + self.config.dcf.slot * u64::from(slots);
        self.start(start, senders, alone);
    }

    fn start(&mut self, start: Instant, senders: Vec<Node>, alone: bool) {
        let mut attempt = self.attempt_of(start, senders, alone);
        self.expose(start, &mut attempt);
        match attempt.outcome {
            Outcome::Unanswered => self.counts.unanswered += 1,
            Outcome::Collided => self.counts.collisions += 1,
            Outcome::Damaged => self.counts.damaged += 1,
            Outcome::Answered | Outcome::Broadcast { .. } => {}
        }
        self.counts.airtime += attempt.until.saturating_since(start);
        self.attempt = Some(attempt);
    }

    /// The nodes that have a frame to send and are within range. For the others the retry limit starts to run.
    fn contenders(&mut self, now: Instant) -> Vec<Node> {
        let mut contenders = Vec::new();
        if self.base.load(now).is_some() {
            contenders.push(Node::Base);
        }
        for (&station, entry) in &mut self.stations {
            let in_range = entry.in_range(now);
            let Some(head) = entry.sender.load(now) else { continue };
            if in_range {
                entry.gives_up = None;
                contenders.push(Node::Station(station));
            } else if entry.gives_up.is_none() {
                entry.gives_up = Some(now + self.config.dcf.gives_up_after(head.len));
            }
        }
        contenders
    }

    fn attempt_of(&self, start: Instant, senders: Vec<Node>, alone: bool) -> Attempt {
        let dcf = &self.config.dcf;
        let heads = || senders.iter().filter_map(|&node| self.head(node));
        let one = |result_at, until, outcome| (Some(result_at), until, outcome);
        let (result_at, until, outcome) = match heads().next() {
            Some(head) if alone && senders.len() == 1 => match self.peer_of(&head.hop) {
                None => {
                    let end = start + dcf.broadcast(head.len);
                    one(end, end, Outcome::Broadcast { damaged: 0.0 })
                }
                Some(station) if self.in_range(station, start) => {
                    one(start + dcf.until_data_received(head.len), start + dcf.exchange(head.len), Outcome::Answered)
                }
                Some(_) => {
                    let end = start + dcf.unanswered(head.len);
                    one(end, end, Outcome::Unanswered)
                }
            },
            _ => {
                let longest = heads().map(|head| self.first_frame_and_timeout(head)).max().unwrap_or(Duration::ZERO);
                one(start + longest, start + longest, Outcome::Collided)
            }
        };
        Attempt { senders, outcome, result_at, until }
    }

    /// Applies bit errors to a data frame.
    fn expose(&mut self, start: Instant, attempt: &mut Attempt) {
        let Some(len) = attempt.senders.first().and_then(|&node| self.head(node)).map(|head| head.len) else { return };
        let (Some(process), Some(end)) = (&mut self.bit_errors, attempt.result_at) else { return };
        let dcf = &self.config.dcf;
        let bits = 8 * (u64::from(len) + u64::from(dcf.header_bytes));
        let sends = if attempt.outcome == Outcome::Answered { dcf.data(len) } else { dcf.broadcast(len) };
        // A frame announced by RTS is sent after the CTS.
        let frame = Exposure { bits, start: start.max(end - sends), end };
        match &mut attempt.outcome {
            Outcome::Answered => {
                // No acknowledgment follows.
                if process.damages(start, frame) {
                    let until = end + dcf.answer_timeout();
                    (attempt.outcome, attempt.result_at, attempt.until) = (Outcome::Damaged, Some(until), until);
                }
            }
            Outcome::Broadcast { damaged } => *damaged = process.probability(start, frame),
            Outcome::Unanswered | Outcome::Collided | Outcome::Damaged => {}
        }
    }

    fn first_frame_and_timeout(&self, head: &Head<F>) -> Duration {
        match head.hop {
            Hop::Broadcast { .. } => self.config.dcf.broadcast(head.len),
            Hop::Down { .. } | Hop::Up { .. } => self.config.dcf.unanswered(head.len),
        }
    }
}
