//! Random impairments of a frame: loss, damage, bit errors, duplication, jitter and reordering, each drawn from its own
//! stream.

use std::sync::Arc;

use holdover_base::{Duration, Instant, Rng};

use crate::bit_errors::{BitErrorProcess, Exposure};
use crate::config::LinkConfig;
use crate::jitter::JitterProcess;
use crate::loss::{Loss, LossProcess};
use crate::reordering::ReorderProcess;
use crate::trace::ConditionTrace;
use crate::wire::Mark;

#[derive(Clone, Debug)]
pub(crate) struct Impairments {
    loss: Option<LossProcess>,
    corruption: Option<Chance>,
    bit_errors: Option<BitErrorProcess>,
    /// Bytes that the link adds to each frame.
    overhead_bytes: u32,
    duplication: Option<Chance>,
    jitter: Option<JitterProcess>,
    reorder: Option<ReorderProcess>,
    /// A table with delays or losses.
    conditions: Option<Arc<ConditionTrace>>,
    /// Whether frames keep their order on the wire, except for those that `reorder` picks.
    keep_order: bool,
    /// The latest arrival of a frame that keeps its order.
    last_arrival: Instant,
}

#[derive(Clone, Debug)]
struct Chance {
    probability: f64,
    rng: Rng,
}

impl Impairments {
    /// The impairments of a checked link; `None` if it has none.
    pub(crate) fn new(config: &LinkConfig, seed: u64) -> Option<Self> {
        let stream = |label| Rng::split(seed, label);
        let chance = |probability, label| (probability > 0.0).then(|| Chance { probability, rng: stream(label) });
        let conditions = config.conditions.clone().filter(|trace| trace.has_delay() || trace.has_loss());
        let trace_loses = conditions.as_ref().is_some_and(|trace| trace.has_loss());
        let jitter = config.jitter.map(|jitter| JitterProcess::new(jitter, stream("jitter")));
        let impairments = Self {
            loss: (config.loss != Loss::None || trace_loses).then(|| LossProcess::new(config.loss, stream("loss"))),
            corruption: chance(config.corrupt, "corrupt"),
            bit_errors: BitErrorProcess::new(config.bit_errors, seed),
            overhead_bytes: config.overhead_bytes,
            duplication: chance(config.duplicate, "duplicate"),
            keep_order: jitter.as_ref().is_none_or(JitterProcess::keeps_order),
            jitter,
            reorder: config.reorder.map(|reordering| ReorderProcess::new(reordering, stream("reorder"))),
            conditions,
            last_arrival: Instant::ZERO,
        };
        let none = impairments.loss.is_none()
            && impairments.corruption.is_none()
            && impairments.bit_errors.is_none()
            && impairments.duplication.is_none()
            && impairments.jitter.is_none()
            && impairments.reorder.is_none()
            && impairments.conditions.is_none();
        (!none).then_some(impairments)
    }

    /// Whether the next frame is duplicated.
    pub(crate) fn duplicates(&mut self) -> bool {
        self.duplication.as_mut().is_some_and(Chance::strikes)
    }

    /// The impairments of a frame of `len` bytes, sent from `start` to `end`.
    pub(crate) fn mark(&mut self, now: Instant, len: u32, start: Instant, end: Instant) -> Mark {
        let trace_loss = self.conditions.as_ref().and_then(|trace| trace.loss(end)).unwrap_or(0.0);
        let bits = 8 * (u64::from(len) + u64::from(self.overhead_bytes));
        // Drawn for every frame, so that losses do not change which others are damaged.
        let has_bit_errors =
            self.bit_errors.as_mut().is_some_and(|process| process.damages(now, Exposure { bits, start, end }));
        if self.loss.as_mut().is_some_and(|process| process.loses(trace_loss)) {
            return Mark::Lost;
        }
        if self.corruption.as_mut().is_some_and(Chance::strikes) || has_bit_errors {
            Mark::Damaged
        } else {
            Mark::Clean
        }
    }

    /// The time on the wire of a frame whose last bit is sent at `sent`.
    pub(crate) fn travel(&mut self, delay: Duration, sent: Instant) -> Duration {
        if self.reorder.as_mut().is_some_and(ReorderProcess::picks) {
            return Duration::ZERO;
        }
        let mut travel = self.conditions.as_ref().and_then(|trace| trace.delay(sent)).unwrap_or(delay);
        if let Some(jitter) = &mut self.jitter {
            travel = jitter.vary(travel);
        }
        if !self.keep_order {
            return travel;
        }
        self.last_arrival = self.last_arrival.max(sent + travel);
        self.last_arrival.saturating_since(sent)
    }

    /// Forgets arrivals later than `last_arrival`, which have been cancelled.
    pub(crate) fn forget_order(&mut self, last_arrival: Option<Instant>) {
        self.last_arrival = self.last_arrival.min(last_arrival.unwrap_or(Instant::ZERO));
    }
}

impl Chance {
    fn strikes(&mut self) -> bool {
        self.rng.chance(self.probability)
    }
}
