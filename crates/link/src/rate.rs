//! Sending rates.

use std::sync::Arc;

use holdover_base::{BitRate, ByteCount, Duration, Instant};

use crate::timeline::{State, Timeline};
use crate::trace::{ConditionTrace, DeliveryTrace, Opportunity};

/// The sending rate of a link.
#[derive(Clone, PartialEq, Default, Debug)]
pub enum Rate {
    /// Sending takes no time.
    #[default]
    Unlimited,
    /// Always at this rate.
    Fixed(BitRate),
    /// At the opportunities of a packet-delivery trace.
    Deliveries(Arc<DeliveryTrace>),
}

/// A rate and how much of it has been used.
#[derive(Clone, Debug)]
pub(crate) enum Service {
    Unlimited,
    /// `nanos_per_byte` is 0 if it is not an integer.
    Fixed {
        rate: BitRate,
        nanos_per_byte: u64,
    },
    Steps(Arc<ConditionTrace>),
    Deliveries {
        trace: Arc<DeliveryTrace>,
        cursor: Opportunity,
    },
}

/// Start and end of a transmission.
pub(crate) type Slot = (Instant, Instant);

/// A transmission that never starts.
const NEVER: Slot = (Instant::FAR_FUTURE, Instant::FAR_FUTURE);

/// After this many changes of rate or connectivity without a single bit sent, a link counts as one that never sends
/// again. (A table and a schedule that repeat can exclude each other for ever.)
const MAX_FRUITLESS_CHANGES: u32 = 100_000;

impl Service {
    /// The rates of `trace`, if it has any, or else `rate`.
    pub(crate) fn new(rate: &Rate, trace: Option<&Arc<ConditionTrace>>) -> Self {
        if let Some(trace) = trace.filter(|trace| trace.has_rate()) {
            return Self::Steps(Arc::clone(trace));
        }
        match rate {
            Rate::Unlimited => Self::Unlimited,
            Rate::Fixed(rate) => {
                let nanos_per_byte = match BIT_NANOS_PER_BYTE.checked_rem(rate.0) {
                    Some(0) => BIT_NANOS_PER_BYTE / rate.0,
                    _ => 0,
                };
                Self::Fixed { rate: *rate, nanos_per_byte }
            }
            Rate::Deliveries(trace) => Self::Deliveries { trace: Arc::clone(trace), cursor: trace.seek(Instant::ZERO) },
        }
    }

    /// The current position, for `reset`.
    #[inline]
    pub(crate) fn place(&self) -> Opportunity {
        match self {
            Self::Deliveries { cursor, .. } => *cursor,
            _ => Opportunity::default(),
        }
    }

    /// Returns to a position.
    pub(crate) fn reset(&mut self, place: Opportunity) {
        if let Self::Deliveries { cursor, .. } = self {
            *cursor = place;
        }
    }

    /// Forgets use beyond `now`. An opportunity at exactly `now` counts as used.
    pub(crate) fn rewind(&mut self, now: Instant) {
        if let Self::Deliveries { trace, cursor } = self {
            *cursor = trace.seek(now + Duration::from_nanos(1));
        }
    }

    /// Until when a transmission needs the link to be up: for at least an instant, even if it takes no time.
    pub(crate) fn needs_link_until(&self, (start, end): Slot) -> Instant {
        let moment = Duration::from_nanos(1);
        match self {
            Self::Deliveries { .. } => end + moment,
            _ => end.max(start + moment),
        }
    }

    /// Start and end of the transmission of `len` bytes from `from` on, if earlier transmissions have no influence on it but by their end.
    #[inline]
    pub(crate) fn steady_slot(&self, from: Instant, len: u32) -> Option<Slot> {
        match self {
            Self::Fixed { rate, nanos_per_byte } => {
                Some((from, fixed_end(*rate, *nanos_per_byte, from, u64::from(len))))
            }
            Self::Unlimited => Some((from, from)),
            Self::Steps(_) | Self::Deliveries { .. } => None,
        }
    }

    /// Sends `len` bytes, from `from` at the earliest; with a `timeline`, only while the link is up. Calls must come in the
    /// order of `from`.
    #[inline]
    pub(crate) fn serve(&mut self, from: Instant, len: u32, timeline: Option<&mut Timeline>) -> Slot {
        match (self, timeline) {
            (Self::Fixed { rate, nanos_per_byte }, None) => {
                (from, fixed_end(*rate, *nanos_per_byte, from, u64::from(len)))
            }
            (Self::Unlimited, None) => (from, from),
            (Self::Unlimited, Some(timeline)) => match timeline.state(from) {
                State::Up { .. } => (from, from),
                State::Down { until } => (until, until),
            },
            (Self::Fixed { rate, .. }, Some(timeline)) => {
                let rate = *rate;
                serve_steps(|_| (rate, Instant::FAR_FUTURE), from, u64::from(len), Some(timeline))
            }
            (Self::Steps(trace), timeline) => serve_steps(|at| trace.rate_until(at), from, u64::from(len), timeline),
            (Self::Deliveries { trace, cursor }, timeline) => {
                serve_deliveries(trace, cursor, from, u64::from(len), timeline)
            }
        }
    }
}

/// Nanoseconds per byte, times the rate in bit/s.
const BIT_NANOS_PER_BYTE: u64 = 8_000_000_000;

#[inline]
fn fixed_end(rate: BitRate, nanos_per_byte: u64, from: Instant, len: u64) -> Instant {
    let nanos = if nanos_per_byte != 0 {
        len.saturating_mul(nanos_per_byte)
    } else if len < (1 << 31) && rate.0 != 0 {
        (len * BIT_NANOS_PER_BYTE).div_ceil(rate.0)
    } else {
        rate.transmission_time(ByteCount(len)).as_nanos()
    };
    from + Duration::from_nanos(nanos)
}

/// Sends at piecewise constant rates; `rate_until` returns the rate and its end. A transmission is interrupted while
/// the rate is zero or the link is down, and continues afterwards.
pub(crate) fn serve_steps(
    rate_until: impl Fn(Instant) -> (BitRate, Instant),
    from: Instant,
    len: u64,
    mut timeline: Option<&mut Timeline>,
) -> Slot {
    let mut bit_nanos = u128::from(len) * u128::from(BIT_NANOS_PER_BYTE);
    let mut start = None;
    let mut at = from;
    let mut fruitless = 0;
    while at != Instant::FAR_FUTURE && fruitless < MAX_FRUITLESS_CHANGES {
        let state = timeline.as_mut().map_or(State::Up { until: Instant::FAR_FUTURE }, |timeline| timeline.state(at));
        let (rate, rate_ends) = rate_until(at);
        let stretch_ends = match state {
            State::Down { until } => {
                (at, fruitless) = (until, fruitless + 1);
                continue;
            }
            State::Up { until } => until.min(rate_ends),
        };
        if rate.0 == 0 {
            (at, fruitless) = (stretch_ends, fruitless + 1);
            continue;
        }
        let start = *start.get_or_insert(at);
        let possible = u128::from(rate.0) * u128::from(stretch_ends.saturating_since(at).as_nanos());
        if bit_nanos <= possible {
            let nanos = bit_nanos.div_ceil(u128::from(rate.0));
            let end = at + Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
            if let Some(timeline) = timeline {
                timeline.note_known_to(end);
            }
            return (start, end);
        }
        if let Some(timeline) = timeline.as_mut() {
            timeline.note_known_to(stretch_ends);
        }
        bit_nanos -= possible;
        (at, fruitless) = (stretch_ends, 0);
    }
    (start.unwrap_or(Instant::FAR_FUTURE), Instant::FAR_FUTURE)
}

/// Sends at the opportunities of a trace. Those during an outage are wasted.
pub(crate) fn serve_deliveries(
    trace: &DeliveryTrace,
    cursor: &mut Opportunity,
    from: Instant,
    len: u64,
    mut timeline: Option<&mut Timeline>,
) -> Slot {
    if trace.time(*cursor) < from {
        *cursor = trace.seek(from);
    }
    let mut left = len;
    let mut start = None;
    let mut fruitless = 0;
    while fruitless < MAX_FRUITLESS_CHANGES {
        let at = trace.time(*cursor);
        if at == Instant::FAR_FUTURE {
            break;
        }
        if let Some(State::Down { until }) = timeline.as_mut().map(|timeline| timeline.state(at)) {
            if until == Instant::FAR_FUTURE {
                break;
            }
            *cursor = trace.seek(until);
            fruitless += 1;
            continue;
        }
        let start = *start.get_or_insert(at);
        fruitless = 0;
        let used = left.min(u64::from(cursor.left));
        left -= used;
        cursor.left -= used as u32;
        if cursor.left == 0 {
            *cursor = trace.after(*cursor);
        }
        if left == 0 {
            return (start, at);
        }
    }
    match start {
        Some(start) => (start, Instant::FAR_FUTURE),
        None => NEVER,
    }
}
