//! The sending end of a link: start and end of each frame's transmission, and interruption by outages.
//!
//! Rates and outages are known in advance, and frames are sent in the order of their arrival. So everything about a
//! frame's transmission is known when it arrives, and the simulator needs no event for it.

use holdover_base::{Duration, Instant, Rng};

use crate::config::LinkConfig;
use crate::link::DropCause;
use crate::outage::{InFlightFate, OutagePolicy, Outages, QueuedFate};
use crate::rate::{Service, Slot};
use crate::timeline::{State, Timeline};
use crate::wire::{Fate, Mark};

#[derive(Clone, Debug)]
pub(crate) struct Transmitter {
    service: Service,
    overhead_bytes: u32,
    /// The end of the last transmission accepted so far.
    busy_until: Instant,
    policy: OutagePolicy,
    forwards_after: Duration,
    timeline: Option<Box<Timeline>>,
}

/// The planned transmission of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Transmission {
    /// When the frame leaves the queue.
    pub(crate) start: Instant,
    /// When its last bit is sent.
    pub(crate) end: Instant,
    pub(crate) outcome: Outcome,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Outcome {
    /// All its bits are sent.
    Sent,
    /// It is dropped from the queue at a cut, unsent.
    Flushed,
    /// A cut interrupts it.
    CutShort,
    /// All its bits are sent, some or all of them while the link is down.
    IntoTheVoid,
}

/// The state to restore if a frame is refused.
#[derive(Clone, Copy)]
pub(crate) struct Undo {
    busy_until: Instant,
    place: crate::trace::Opportunity,
}

impl Transmitter {
    /// The transmitter of a checked link.
    pub(crate) fn new(config: &LinkConfig, rng: Rng) -> Self {
        let conditions = config.conditions.as_ref();
        let has_outages = config.outages != Outages::Never || conditions.is_some_and(|trace| trace.has_up());
        let timeline = || Box::new(Timeline::new(&config.outages, conditions, rng));
        Self {
            service: Service::new(&config.rate, conditions),
            overhead_bytes: config.overhead_bytes,
            busy_until: Instant::ZERO,
            policy: config.outage_policy,
            forwards_after: config.forwards_after,
            timeline: has_outages.then(timeline),
        }
    }

    /// Plans the transmission of a frame that arrives at `now`. `None` if the link is down and refuses it.
    #[inline]
    pub(crate) fn plan(&mut self, now: Instant, len: u32) -> Option<(Transmission, Undo)> {
        let undo = Undo { busy_until: self.busy_until, place: self.service.place() };
        let from = now.max(self.busy_until);
        let len = len.saturating_add(self.overhead_bytes);
        if self.timeline.is_none() {
            let (start, end) = self.service.serve(from, len, None);
            self.busy_until = end;
            return Some((Transmission { start, end, outcome: Outcome::Sent }, undo));
        }
        self.plan_around_outages(now, from, len).map(|transmission| (transmission, undo))
    }

    /// As [`Self::plan`], of a link that is always up and has a fixed rate, without the plan's effect ([`Self::carry_out`]): nothing has to
    /// be cancelled if the frame is refused. `None` for other links.
    #[inline]
    pub(crate) fn plan_steadily(&self, now: Instant, len: u32) -> Option<Slot> {
        if self.timeline.is_some() {
            return None;
        }
        self.service.steady_slot(now.max(self.busy_until), len.saturating_add(self.overhead_bytes))
    }

    /// Takes over a plan of [`Self::plan_steadily`].
    #[inline]
    pub(crate) fn carry_out(&mut self, (_, end): Slot) {
        self.busy_until = end;
    }

    /// Cancels a plan: the frame does not enter the link.
    pub(crate) fn undo(&mut self, undo: Undo) {
        self.busy_until = undo.busy_until;
        self.service.reset(undo.place);
    }

    /// When a frame with propagation time `travel` arrives or is lost, and which of the two.
    #[inline]
    pub(crate) fn arrival(&mut self, sent: Transmission, travel: Duration, mark: Mark) -> (Instant, Fate) {
        let arrival = sent.end + travel;
        let (at, fate) = match &mut self.timeline {
            None => (arrival, Fate::Delivered),
            Some(timeline) => {
                timeline.note_known_to(sent.end);
                let (at, fate) = fate_around_outages(timeline, self.policy, sent, arrival);
                let is_dropped = matches!(fate, Fate::Dropped(_)) || self.forwards_after.is_zero();
                if !is_dropped && timeline.back_at(sent.end).is_some_and(|back| sent.end < back + self.forwards_after) {
                    (sent.end, Fate::Dropped(DropCause::NotForwarding))
                } else {
                    (at, fate)
                }
            }
        };
        match (mark, fate) {
            (Mark::Clean, fate) | (Mark::Lost | Mark::Damaged, fate @ Fate::Dropped(_)) => (at, fate),
            (Mark::Discarded, _) => (at, Fate::Dropped(DropCause::CoDel)),
            (Mark::Lost, _) => (at, Fate::Dropped(DropCause::Loss)),
            (Mark::Damaged, _) => (at, Fate::Corrupted),
        }
    }

    /// Cancels all plans from `now` on. The frame that is being sent, if any, ends at `busy_until`.
    pub(crate) fn rewind(&mut self, now: Instant, busy_until: Instant) {
        self.busy_until = busy_until;
        self.service.rewind(now.max(busy_until));
    }

    pub(crate) fn policy(&self) -> OutagePolicy {
        self.policy
    }

    pub(crate) fn timeline(&mut self) -> Option<&mut Timeline> {
        self.timeline.as_deref_mut()
    }

    /// Whether it has neither outages nor cuts.
    #[inline]
    pub(crate) fn is_always_up(&self) -> bool {
        self.timeline.is_none()
    }

    pub(crate) fn next_change(&self) -> Option<Instant> {
        self.timeline.as_ref().and_then(|timeline| timeline.next_change())
    }

    /// The instant up to which the plans depend on connectivity.
    pub(crate) fn known_to(&self) -> Instant {
        self.timeline.as_ref().map_or(Instant::ZERO, |timeline| timeline.known_to())
    }

    /// Continues at `now` with the outages of `config`, which are the same as so far up to [`Self::known_to`] and `now`. Returns whether that
    /// is possible: not if the link was cut manually, or has a trace of its connectivity.
    pub(crate) fn continue_with(&mut self, now: Instant, config: &LinkConfig, rng: Rng) -> bool {
        let Some(timeline) = &mut self.timeline else { return config.outages == Outages::Never };
        if timeline.was_cut_manually() || config.outages == Outages::Never {
            return false;
        }
        let mut other = Timeline::new(&config.outages, None, rng);
        other.take_place_of(timeline, now);
        **timeline = other;
        true
    }

    /// The timeline; created for a link without outages when it is first cut manually.
    pub(crate) fn timeline_or_new(&mut self) -> &mut Timeline {
        self.timeline.get_or_insert_with(|| Box::new(Timeline::new(&Outages::Never, None, Rng::new(0))))
    }

    fn plan_around_outages(&mut self, now: Instant, from: Instant, len: u32) -> Option<Transmission> {
        let timeline = self.timeline.as_deref_mut()?;
        let place = self.service.place();
        let transmission = match self.policy.queued {
            QueuedFate::Held => {
                let (start, end) = serve_while_up(&mut self.service, timeline, from, len);
                let cut = match self.policy.in_flight {
                    InFlightFate::Delivered => None,
                    InFlightFate::Dropped | InFlightFate::Corrupted => timeline.cut_within(start, end),
                };
                self.busy_until = cut.unwrap_or(end);
                Transmission::cut_at(start, end, cut)
            }
            QueuedFate::Dropped => {
                let State::Up { until: cut } = timeline.state(now) else { return None };
                // Nothing is planned beyond the cut: later frames are dropped from the queue at the cut.
                let (start, end) = if from < cut { self.service.serve(from, len, None) } else { (cut, cut) };
                if start >= cut && cut != Instant::FAR_FUTURE {
                    timeline.note_known_to(cut);
                    self.service.reset(place);
                    return Some(Transmission { start: cut, end: cut, outcome: Outcome::Flushed });
                }
                let needed = self.service.needs_link_until((start, end));
                timeline.note_known_to(needed);
                let cut = (cut < needed).then_some(cut);
                self.busy_until = cut.unwrap_or(end);
                Transmission::cut_at(start, end, cut)
            }
            QueuedFate::Lost | QueuedFate::Corrupted => {
                let (start, end) = self.service.serve(from, len, None);
                self.busy_until = end;
                let void = timeline.cut_within(start, self.service.needs_link_until((start, end))).is_some();
                Transmission { start, end, outcome: if void { Outcome::IntoTheVoid } else { Outcome::Sent } }
            }
        };
        if transmission.outcome == Outcome::CutShort {
            self.service.rewind(transmission.end);
        }
        Some(transmission)
    }
}

impl Transmission {
    fn cut_at(start: Instant, end: Instant, cut: Option<Instant>) -> Self {
        match cut {
            None => Self { start, end, outcome: Outcome::Sent },
            Some(cut) => Self { start, end: cut, outcome: Outcome::CutShort },
        }
    }
}

/// Nearly always the link stays up throughout the transmission; then the cost is that of a link without outages.
fn serve_while_up(service: &mut Service, timeline: &mut Timeline, from: Instant, len: u32) -> (Instant, Instant) {
    if let State::Up { until } = timeline.state(from) {
        let place = service.place();
        let slot = service.serve(from, len, None);
        let needed = service.needs_link_until(slot);
        timeline.note_known_to(needed.min(until));
        if needed <= until {
            return slot;
        }
        service.reset(place);
    }
    service.serve(from, len, Some(timeline))
}

fn fate_around_outages(
    timeline: &mut Timeline,
    policy: OutagePolicy,
    sent: Transmission,
    arrival: Instant,
) -> (Instant, Fate) {
    match sent.outcome {
        Outcome::Flushed => (sent.end, Fate::Dropped(DropCause::LinkDown)),
        Outcome::CutShort if policy.in_flight == InFlightFate::Corrupted => (arrival, Fate::Corrupted),
        Outcome::CutShort => (sent.end, Fate::Dropped(DropCause::CutOff)),
        Outcome::IntoTheVoid if policy.queued == QueuedFate::Corrupted => (arrival, Fate::Corrupted),
        Outcome::IntoTheVoid => (sent.end, Fate::Dropped(DropCause::CutOff)),
        Outcome::Sent if policy.in_flight == InFlightFate::Delivered => (arrival, Fate::Delivered),
        Outcome::Sent => match timeline.cut_within(sent.end, arrival) {
            None => (arrival, Fate::Delivered),
            Some(_) if policy.in_flight == InFlightFate::Corrupted => (arrival, Fate::Corrupted),
            Some(cut) => (cut, Fate::Dropped(DropCause::CutOff)),
        },
    }
}
