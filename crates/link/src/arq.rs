//! Link-layer ARQ (automatic repeat request): a link that retransmits lost frames, as Wi-Fi and LTE do.
//!
//! The sender transmits each frame, and retransmits it whenever its acknowledgement is missing [`Arq::timeout`] after the end of a
//! transmission, [`Arq::attempts`] times in all; then it drops the frame. It repeats selectively: other frames continue meanwhile, and a
//! retransmission is sent before frames that entered later. The receiver passes frames on as they arrive, or in order ([`Arq::in_order`]).
//!
//! Acknowledgements are not modelled: they take no time on the link beyond `timeout` and are never lost, so no frame arrives twice. A
//! damaged frame counts as lost, as its check sequence fails. Frames dropped by the queue, or refused by a link that is down, were never
//! transmitted and are not retransmitted. A frame that waits for its next attempt does not count against the queue's limit.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use holdover_base::{Duration, Instant};

use crate::error::ConfigError;
use crate::link::{Delivery, DropCause};
use crate::wire::{Fate, UnderWay};

/// The link's retransmissions. See [`LinkConfig::arq`](crate::LinkConfig::arq).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Arq {
    /// The most transmissions of a frame, the first one included; `None` without a limit.
    pub attempts: Option<u32>,
    /// From the end of a transmission until its missing acknowledgement counts as a loss.
    pub timeout: Duration,
    /// Whether the receiver passes frames on in the order in which they entered: a frame then waits for those before it.
    pub in_order: bool,
}

impl Default for Arq {
    /// 13 attempts, as the authors of EBSN assume after CDPD; 20 ms; in order.
    fn default() -> Self {
        Self { attempts: Some(13), timeout: Duration::from_millis(20), in_order: true }
    }
}

/// Whether the description is valid.
pub(crate) fn check(arq: Arq) -> Result<(), ConfigError> {
    if arq.attempts == Some(0) {
        return Err(ConfigError::NotPositive { field: "arq: attempts", value: 0.0 });
    }
    // Frames of length 0 on a link without a rate would be retransmitted without end at one instant.
    if arq.timeout.is_zero() {
        return Err(ConfigError::NoLength { field: "arq: timeout" });
    }
    Ok(())
}

/// The state of both ends of a link with ARQ. Frames are numbered by [`UnderWay::order`].
#[derive(Clone, Debug)]
pub(crate) struct ArqState<F> {
    config: Arq,
    /// Frames whose last transmission has failed, by the time at which the sender notices.
    failed: BTreeSet<(Instant, u64)>,
    waiting: BTreeMap<u64, UnderWay<F>>,
    /// The next frame to pass on in order.
    expected: u64,
    /// Frames beyond it: those that have arrived, and `None` for those that never will.
    beyond: BTreeMap<u64, Option<Delivery<F>>>,
    /// The number of them that have arrived.
    held: u64,
    ready: VecDeque<Delivery<F>>,
}

impl<F> ArqState<F> {
    pub(crate) fn new(config: Arq) -> Self {
        Self {
            config,
            failed: BTreeSet::new(),
            waiting: BTreeMap::new(),
            expected: 0,
            beyond: BTreeMap::new(),
            held: 0,
            ready: VecDeque::new(),
        }
    }

    /// Whether a fate causes a retransmission, or the end of the attempts.
    pub(crate) fn repeats(fate: Fate) -> bool {
        matches!(fate, Fate::Corrupted | Fate::Dropped(DropCause::Loss | DropCause::CutOff | DropCause::NotForwarding))
    }

    /// Notes a failed transmission, which the sender learns when its acknowledgement is overdue.
    pub(crate) fn note_failure(&mut self, item: UnderWay<F>) {
        let known_at = item.at.max(item.end + self.config.timeout);
        self.failed.insert((known_at, item.order));
        self.waiting.insert(item.order, item);
    }

    /// When the sender notices the next failure.
    pub(crate) fn next_at(&self) -> Option<Instant> {
        self.failed.first().map(|(at, _)| *at)
    }

    /// Takes the first frame whose failure the sender has noticed by `now`.
    pub(crate) fn take_failed(&mut self, now: Instant) -> Option<UnderWay<F>> {
        self.failed.first().filter(|(at, _)| *at <= now)?;
        let (_, order) = self.failed.pop_first()?;
        self.waiting.remove(&order)
    }

    /// Whether a frame may be transmitted again after this many attempts.
    pub(crate) fn may_repeat(&self, attempts: u32) -> bool {
        self.config.attempts.is_none_or(|most| attempts < most)
    }

    /// Notes that the frame with this number has arrived, or never will.
    pub(crate) fn settle(&mut self, at: Instant, order: u64, delivery: Option<Delivery<F>>) {
        if !self.config.in_order {
            return self.ready.extend(delivery);
        }
        self.held += u64::from(delivery.is_some());
        self.beyond.insert(order, delivery);
        while let Some(settled) = self.beyond.remove(&self.expected) {
            self.expected += 1;
            if let Some(delivery) = settled {
                self.held -= 1;
                self.ready.push_back(Delivery { at, ..delivery });
            }
        }
    }

    /// The next frame to pass on.
    pub(crate) fn take_ready(&mut self) -> Option<Delivery<F>> {
        self.ready.pop_front()
    }

    /// Frames that wait for another transmission, or for those before them.
    pub(crate) fn under_way(&self) -> u64 {
        self.waiting.len() as u64 + self.held + self.ready.len() as u64
    }
}
