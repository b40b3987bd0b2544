//! One direction of a link between two nodes.
//!
//! The path of a frame: the queue (or dropped: queue full, link down), the transmitter at the link's rate, the wire
//! with its propagation delay, and the far end (or dropped: loss, cut off). All of it is computed when the frame
//! enters, so that a simulator has one event per frame, its arrival, and none for the queue.

use std::collections::VecDeque;

use holdover_base::{Duration, Instant, Rng};
use holdover_wire::Compression;

use crate::arq::ArqState;
use crate::codel::{Manager, Verdict};
use crate::config::LinkConfig;
use crate::error::ConfigError;
use crate::frame::Frame;
use crate::impairments::Impairments;
use crate::link::{Delivery, DropCause, Link, Timer};
use crate::outage::{InFlightFate, QueuedFate};
use crate::queue::Queue;
use crate::statistics::Statistics;
use crate::timeline::Timeline;
use crate::transmitter::{Outcome, Transmission, Transmitter};
use crate::wire::{Fate, Mark, UnderWay, Wire};

/// One direction of a link between two nodes. Its verbs and the order to call them in are those of [`Link`].
#[derive(Clone, Debug)]
pub struct PointToPoint<F> {
    /// The latest `now` seen.
    clock: Instant,
    delay: Duration,
    transmitter: Transmitter,
    impairments: Option<Box<Impairments>>,
    queue: Queue,
    manager: Option<Box<Manager>>,
    wire: Wire<F>,
    arq: Option<Box<ArqState<F>>>,
    compression: Option<Compression>,
    forwards_after: Duration,
    /// When the link forwards after the last link-up, if that is still to come.
    forwards_at: Option<Instant>,
    entered: u64,
    events: VecDeque<PointToPointEvent<F>>,
    counts: Statistics,
}

/// Events of a link.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PointToPointEvent<F> {
    /// The link went down.
    Down {
        /// The time.
        at: Instant,
    },
    /// The link is back.
    Up {
        /// The time.
        at: Instant,
    },
    /// The link forwards again after link-up. Links that forward at once have no such event.
    Forwards {
        /// The time.
        at: Instant,
    },
    /// The sender of a link with ARQ learns that a transmission has failed. The frame is retransmitted, or was dropped.
    AttemptFailed {
        /// The time.
        at: Instant,
        /// A copy of the frame.
        frame: F,
    },
    /// A frame was dropped.
    Dropped {
        /// The time.
        at: Instant,
        /// The cause.
        cause: DropCause,
        /// The frame.
        frame: F,
    },
}

impl<F: Frame> PointToPoint<F> {
    /// The link that `config` describes. Each kind of randomness is drawn from its own stream of `seed`.
    pub fn new(config: &LinkConfig, seed: u64) -> Result<Self, ConfigError> {
        Self::with_outage_seed(config, seed, seed)
    }

    /// The same, with a separate seed for outages: the two directions of a link go down together, and lose packets
    /// independently.
    pub fn with_outage_seed(config: &LinkConfig, seed: u64, outage_seed: u64) -> Result<Self, ConfigError> {
        config.check()?;
        Ok(Self {
            clock: Instant::ZERO,
            delay: config.delay,
            transmitter: Transmitter::new(config, outage_stream(outage_seed)),
            impairments: Impairments::new(config, seed).map(Box::new),
            queue: Queue::new(config.queue_limit),
            manager: Manager::new(config.codel, config.ce_threshold).map(Box::new),
            wire: Wire::new(),
            arq: config.arq.map(|arq| Box::new(ArqState::new(arq))),
            compression: config.compression,
            forwards_after: config.forwards_after,
            forwards_at: None,
            entered: 0,
            events: VecDeque::new(),
            counts: Statistics::default(),
        })
    }

    /// Whether the link is up, as of the last `handle_timeout`.
    pub fn is_up(&mut self) -> bool {
        self.transmitter.timeline().is_none_or(|timeline| timeline.is_up())
    }

    /// Whether it starts forwarding only some time after link-up.
    pub fn forwards_late(&self) -> bool {
        !self.forwards_after.is_zero()
    }

    /// Cuts the link manually (`up` false) or ends such a cut. The schedule continues independently: the link is up
    /// when neither holds it down. Frames are handled as at a scheduled cut, except that a half-sent frame always
    /// counts as in flight.
    pub fn set_up(&mut self, now: Instant, up: bool) {
        let now = self.advance(now);
        self.pass_changes(now);
        let was_up = self.is_up();
        let timeline = self.transmitter.timeline_or_new();
        if up {
            timeline.mend(now);
        } else {
            timeline.cut(now);
        }
        let is_up = timeline.is_up();
        if is_up != was_up {
            self.note_change(now, is_up);
        }
        self.plan_again(now, was_up && !is_up, None);
    }

    /// The instant up to which the fates of the frames so far depend on the link's outages.
    pub fn known_to(&self) -> Instant {
        self.transmitter.known_to()
    }

    /// Continues at `now` with the outages of `config`, which is this link's but for them, and has the same ones up to `now` and
    /// [`Self::known_to`] ([`first_difference`]). Returns whether that is possible: not after a manual cut.
    pub fn continue_with(&mut self, now: Instant, config: &LinkConfig, outage_seed: u64) -> bool {
        config.conditions.is_none() && self.transmitter.continue_with(now, config, outage_stream(outage_seed))
    }

    /// The time of [`Link::poll_timeout`], or [`Instant::FAR_FUTURE`].
    #[inline]
    pub fn deadline(&self) -> Instant {
        if self.transmitter.is_always_up() && self.forwards_at.is_none() && self.arq.is_none() {
            return self.wire.earliest();
        }
        self.deadline_of_any()
    }

    #[inline(never)]
    fn deadline_of_any(&self) -> Instant {
        self.poll_timeout().map_or(Instant::FAR_FUTURE, |(at, _)| at)
    }

    /// The counters up to `now`.
    pub fn statistics(&self, now: Instant) -> Statistics {
        Statistics {
            under_way: self.wire.len() as u64 + self.arq.as_ref().map_or(0, |arq| arq.under_way()),
            queue: self.queue.statistics(now.max(self.clock)),
            ..self.counts
        }
    }

    #[inline]
    fn advance(&mut self, now: Instant) -> Instant {
        self.clock = self.clock.max(now);
        self.clock
    }

    /// Accepts a frame of `len` bytes that may be compressed, and may be admitted twice.
    #[inline(never)]
    fn admit_impaired(&mut self, now: Instant, frame: F, len: u32) {
        let duplicate = self.impairments.as_mut().is_some_and(|impairments| impairments.duplicates());
        let copy = duplicate.then(|| frame.clone());
        let compressed = match &self.compression {
            Some(compression) => len.saturating_sub(frame.saved_by(compression)),
            None => len,
        };
        self.admit(now, frame, compressed);
        if let Some(copy) = copy {
            self.counts.duplicated.add(len);
            self.admit(now, copy, compressed);
        }
    }

    /// Accepts a frame that is `len` bytes long on the link.
    #[inline(always)]
    fn admit(&mut self, now: Instant, frame: F, len: u32) {
        if self.manager.is_none()
            && self.impairments.is_none()
            && let Some(slot) = self.transmitter.plan_steadily(now, len)
        {
            return self.admit_steadily(now, frame, len, slot);
        }
        self.admit_with_chance(now, frame, len);
    }

    /// Accepts a frame on a link without outages, queue management and impairments: it is delivered unless the queue is full.
    #[inline(always)]
    fn admit_steadily(&mut self, now: Instant, frame: F, len: u32, slot: (Instant, Instant)) {
        let (start, end) = slot;
        if start > now {
            if !self.queue.has_room_for(len) {
                return self.drop_frame(now, DropCause::QueueFull, frame);
            }
            self.queue.push(now, start, len);
        }
        self.transmitter.carry_out(slot);
        let at = end + self.delay;
        let order = self.entered;
        self.entered += 1;
        let (mark, fate) = (Mark::Clean, Fate::Delivered);
        self.wire.push(UnderWay { at, order, start, end, mark, fate, attempts: 1, len, frame });
    }

    /// Accepts a frame on any other link.
    #[inline(never)]
    fn admit_with_chance(&mut self, now: Instant, mut frame: F, len: u32) {
        let Some((sent, undo)) = self.transmitter.plan(now, len) else {
            return self.drop_frame(now, DropCause::LinkDown, frame);
        };
        if sent.start > now {
            if !self.queue.has_room_for(len) {
                self.transmitter.undo(undo);
                return self.drop_frame(now, DropCause::QueueFull, frame);
            }
            self.queue.push(now, sent.start, len);
        }
        if sent.outcome != Outcome::Flushed && !self.passes_manager(now, sent.start, &mut frame, len) {
            // It uses no transmitter time.
            self.transmitter.undo(undo);
            return self.discard(sent.start, frame, len);
        }
        let mark = self.mark(now, len, sent);
        let (at, fate) = self.arrival(sent, mark);
        let order = self.entered;
        self.entered += 1;
        self.wire.push(UnderWay { at, order, start: sent.start, end: sent.end, mark, fate, attempts: 1, len, frame });
    }

    /// Applies queue management to a frame that will have waited from `now` until `at`: it may be marked. Returns
    /// whether the frame is sent.
    #[inline]
    fn passes_manager(&mut self, now: Instant, at: Instant, frame: &mut F, len: u32) -> bool {
        let Some(manager) = &mut self.manager else { return true };
        let verdict = manager.judge(now, at);
        let is_marked = matches!(verdict, Verdict::Mark | Verdict::MarkOrDrop) && frame.mark_congestion();
        if is_marked {
            self.counts.marked.add(len);
        }
        is_marked || matches!(verdict, Verdict::Pass | Verdict::Mark)
    }

    /// CoDel drops a frame from the queue at `at`.
    fn discard(&mut self, at: Instant, frame: F, len: u32) {
        let order = self.entered;
        self.entered += 1;
        let fate = Fate::Dropped(DropCause::CoDel);
        let mark = Mark::Discarded;
        self.wire.push(UnderWay { at, order, start: at, end: at, mark, fate, attempts: 1, len, frame });
    }

    /// The random impairments of a frame.
    #[inline]
    fn mark(&mut self, now: Instant, len: u32, sent: Transmission) -> Mark {
        match &mut self.impairments {
            Some(impairments) if sent.outcome != Outcome::Flushed => impairments.mark(now, len, sent.start, sent.end),
            _ => Mark::Clean,
        }
    }

    /// When a frame arrives or is lost, and which of the two.
    #[inline]
    fn arrival(&mut self, sent: Transmission, mark: Mark) -> (Instant, Fate) {
        let travel = match &mut self.impairments {
            Some(impairments) if sent.outcome != Outcome::Flushed => impairments.travel(self.delay, sent.end),
            _ => self.delay,
        };
        self.transmitter.arrival(sent, travel, mark)
    }

    fn drop_frame(&mut self, at: Instant, cause: DropCause, frame: F) {
        self.counts.dropped.add(cause, frame.wire_len());
        self.events.push_back(PointToPointEvent::Dropped { at, cause, frame });
    }

    #[inline(never)]
    fn pass_changes(&mut self, now: Instant) {
        loop {
            let Some(timeline) = self.transmitter.timeline() else { return };
            let was_up = timeline.is_up();
            let Some(at) = timeline.pass(now) else { break };
            let is_up = timeline.is_up();
            self.pass_forwarding(at);
            if is_up != was_up {
                self.note_change(at, is_up);
            }
        }
        self.pass_forwarding(now);
    }

    fn note_change(&mut self, at: Instant, is_up: bool) {
        self.events.push_back(if is_up { PointToPointEvent::Up { at } } else { PointToPointEvent::Down { at } });
        self.forwards_at = (is_up && !self.forwards_after.is_zero()).then_some(at + self.forwards_after);
    }

    fn pass_forwarding(&mut self, now: Instant) {
        if let Some(at) = self.forwards_at.filter(|&at| at <= now) {
            self.forwards_at = None;
            self.events.push_back(PointToPointEvent::Forwards { at });
        }
    }

    /// The next frame delivered by a link with ARQ, after the failures until then.
    fn poll_reliable(&mut self, now: Instant) -> Option<Delivery<F>> {
        loop {
            let arq = self.arq.as_mut()?;
            if let Some(delivery) = arq.take_ready() {
                self.counts.delivered.add(delivery.frame.wire_len());
                return Some(delivery);
            }
            let failure = arq.next_at().unwrap_or(Instant::FAR_FUTURE);
            if self.wire.next_at().is_some_and(|at| at <= failure)
                && let Some(item) = self.wire.pop_due(now)
            {
                self.settle(item);
            } else {
                let item = arq.take_failed(now)?;
                self.repeat(failure.max(self.clock), item);
            }
        }
    }

    /// Handles the end of a transmission on a link with ARQ.
    fn settle(&mut self, item: UnderWay<F>) {
        let Some(arq) = &mut self.arq else { return };
        match item.fate {
            fate if ArqState::<F>::repeats(fate) => arq.note_failure(item),
            Fate::Dropped(cause) => {
                arq.settle(item.at, item.order, None);
                self.drop_frame(item.at, cause, item.frame);
            }
            Fate::Delivered | Fate::Corrupted => {
                let UnderWay { at, order, frame, .. } = item;
                arq.settle(at, order, Some(Delivery { at, frame, corrupted: false }));
            }
        }
    }

    /// Handles a failed transmission: retransmits the frame before those that entered later, or drops it.
    fn repeat(&mut self, now: Instant, item: UnderWay<F>) {
        let Some(arq) = &mut self.arq else { return };
        self.events.push_back(PointToPointEvent::AttemptFailed { at: now, frame: item.frame.clone() });
        if arq.may_repeat(item.attempts) {
            self.counts.retransmitted.add(item.frame.wire_len());
            let attempts = item.attempts.saturating_add(1);
            self.plan_again(now, false, Some(UnderWay { attempts, ..item }));
        } else {
            arq.settle(now, item.order, None);
            self.drop_frame(now, DropCause::AttemptsUsed, item.frame);
        }
    }

    /// Replans all frames in the link: after the link was cut or restored manually, or because `again` is to be
    /// retransmitted.
    fn plan_again(&mut self, now: Instant, cut: bool, again: Option<UnderWay<F>>) {
        // The queue has the frames that wait now, and no others.
        self.queue.release(now);
        let (waiting, on_the_wire, busy_until) = self.take_frames(now, cut);
        self.transmitter.rewind(now, busy_until);
        if let Some(impairments) = &mut self.impairments {
            impairments.forget_order(on_the_wire.iter().map(|item| item.at).max());
        }
        for item in on_the_wire {
            self.wire.push(item);
        }
        self.send_anew(now, waiting, again);
    }

    /// Takes all frames out of the link: those that wait, and those whose transmission has begun, with their fate after the cut if there is one.
    /// Returns also until when the transmitter is busy.
    fn take_frames(&mut self, now: Instant, cut: bool) -> (Vec<UnderWay<F>>, Vec<UnderWay<F>>, Instant) {
        let policy = self.transmitter.policy();
        let mut busy_until = now;
        let mut waiting = Vec::new();
        let mut on_the_wire = Vec::new();
        for mut item in self.wire.drain() {
            if item.start > now {
                waiting.push(item);
                continue;
            }
            let half_sent = item.end > now;
            let unharmed = matches!(item.fate, Fate::Delivered | Fate::Corrupted);
            if cut && item.at > now && unharmed {
                let fate = match (half_sent, policy.queued, policy.in_flight) {
                    (true, QueuedFate::Lost, _) | (_, _, InFlightFate::Dropped) => Fate::Dropped(DropCause::CutOff),
                    (true, QueuedFate::Corrupted, _) | (_, _, InFlightFate::Corrupted) => Fate::Corrupted,
                    (_, _, InFlightFate::Delivered) => item.fate,
                };
                item.fate = fate;
                if matches!(fate, Fate::Dropped(_)) {
                    item.at = now;
                }
            }
            let stops_sending = cut
                && policy.in_flight != InFlightFate::Delivered
                && matches!(policy.queued, QueuedFate::Held | QueuedFate::Dropped);
            if half_sent && !stops_sending {
                busy_until = item.end;
            }
            on_the_wire.push(item);
        }
        (waiting, on_the_wire, busy_until)
    }

    /// Plans the transmission of the frames that wait, and of `again` before those that entered later.
    fn send_anew(&mut self, now: Instant, mut waiting: Vec<UnderWay<F>>, again: Option<UnderWay<F>>) {
        let again = again.map(|item| {
            let index = waiting.partition_point(|waits| waits.order < item.order);
            waiting.insert(index, item);
            index
        });
        let mut starts = Vec::with_capacity(waiting.len());
        for (index, mut item) in waiting.into_iter().enumerate() {
            let flushed = Transmission { start: now, end: now, outcome: Outcome::Flushed };
            if item.mark == Mark::Discarded {
                starts.push(now);
                self.wire.push(UnderWay { at: now, start: now, end: now, ..item });
                continue;
            }
            let sent = self.transmitter.plan(now, item.len).map_or(flushed, |(sent, _)| sent);
            if again == Some(index) {
                if sent.start > now {
                    self.queue.insert(index, now, sent.start, item.len);
                    starts.push(sent.start);
                }
                item.mark = self.mark(now, item.len, sent);
            } else {
                starts.push(sent.start);
            }
            let (at, fate) = self.arrival(sent, item.mark);
            self.wire.push(UnderWay { at, start: sent.start, end: sent.end, fate, ..item });
        }
        self.queue.reschedule(now, |index| starts[index]);
    }
}

impl<F: Frame> Link for PointToPoint<F> {
    type In = F;
    type Out = Delivery<F>;
    type Event = PointToPointEvent<F>;

    #[inline]
    fn handle_packet(&mut self, now: Instant, frame: F) {
        let now = self.advance(now);
        self.queue.release(now);
        let len = frame.wire_len();
        self.counts.offered.add(len);
        if self.impairments.is_none() && self.compression.is_none() {
            self.admit(now, frame, len);
        } else {
            self.admit_impaired(now, frame, len);
        }
    }

    #[inline]
    fn handle_timeout(&mut self, now: Instant) {
        let now = self.advance(now);
        if !self.transmitter.is_always_up() {
            self.pass_changes(now);
        }
    }

    #[inline]
    fn poll_deliver(&mut self, now: Instant) -> Option<Delivery<F>> {
        if self.arq.is_some() {
            return self.poll_reliable(now);
        }
        loop {
            let UnderWay { at, fate, frame, .. } = self.wire.pop_due(now)?;
            let len = frame.wire_len();
            let corrupted = match fate {
                Fate::Delivered => false,
                Fate::Corrupted => {
                    self.counts.corrupted.add(len);
                    true
                }
                Fate::Dropped(cause) => {
                    self.drop_frame(at, cause, frame);
                    continue;
                }
            };
            self.counts.delivered.add(len);
            return Some(Delivery { at, frame, corrupted });
        }
    }

    #[inline]
    fn poll_event(&mut self) -> Option<PointToPointEvent<F>> {
        self.events.pop_front()
    }

    #[inline]
    fn poll_timeout(&self) -> Option<(Instant, Timer)> {
        let arrival = self.wire.next_at().filter(|&at| at != Instant::FAR_FUTURE);
        let change = self.transmitter.next_change().into_iter().chain(self.forwards_at).min();
        let own = match (change, arrival) {
            (Some(change), Some(arrival)) if arrival < change => Some((arrival, Timer::Arrival)),
            (Some(change), _) => Some((change, Timer::Connectivity)),
            (None, arrival) => arrival.map(|at| (at, Timer::Arrival)),
        };
        match self.arq.as_ref().and_then(|arq| arq.next_at()) {
            Some(at) if own.is_none_or(|(own, _)| at < own) => Some((at, Timer::Retransmission)),
            _ => own,
        }
    }
}

/// When the outages of two links with the same seed differ first; [`Instant::FAR_FUTURE`] if never.
pub fn first_difference(one: &LinkConfig, other: &LinkConfig, outage_seed: u64) -> Instant {
    let timeline =
        |config: &LinkConfig| Timeline::new(&config.outages, config.conditions.as_ref(), outage_stream(outage_seed));
    timeline(one).first_difference(timeline(other))
}

/// The stream of a link's outages.
pub(crate) fn outage_stream(seed: u64) -> Rng {
    Rng::split(seed, "outage")
}
