//! The ideal capacity of a link, as a reference for transports.

use std::sync::Arc;

use holdover_base::{ByteCount, Duration, Instant};

use crate::config::LinkConfig;
use crate::error::ConfigError;
use crate::point_to_point::outage_stream;
use crate::rate::{Rate, serve_deliveries, serve_steps};
use crate::timeline::{State, Timeline};
use crate::trace::{ConditionTrace, DeliveryTrace};

/// The capacity of a link over time, with the same outages that [`PointToPoint`](crate::PointToPoint) has for the same
/// configuration and seed. A link carries only while it is up and forwards; a transmission interrupted by an outage
/// continues afterwards. Bytes are those on the wire, the link's own overhead included.
#[derive(Clone, Debug)]
pub struct Capacity {
    profile: Profile,
    /// At its beginning. Each method works on a copy.
    timeline: Timeline,
}

#[derive(Clone, Debug)]
enum Profile {
    Rate(Rate),
    Steps(Arc<ConditionTrace>),
}

impl Capacity {
    /// The capacity of the link that `config` describes. Only outages are drawn from `seed`: pass the outage seed of a
    /// link that has one.
    pub fn new(config: &LinkConfig, seed: u64) -> Result<Self, ConfigError> {
        config.check()?;
        let conditions = config.conditions.as_ref();
        let profile = match conditions.filter(|trace| trace.has_rate()) {
            Some(trace) => Profile::Steps(Arc::clone(trace)),
            None => Profile::Rate(config.rate.clone()),
        };
        let timeline = Timeline::new(&config.outages, conditions, outage_stream(seed));
        Ok(Self { profile, timeline: timeline.longer_by(config.forwards_after) })
    }

    /// Whole bytes that the link can carry in `[from, to)`. A link of unlimited rate carries [`u64::MAX`] if it is up at all.
    pub fn integral(&self, from: Instant, to: Instant) -> ByteCount {
        let bytes = match &self.profile {
            Profile::Rate(Rate::Unlimited) => self.sum_of_up_times(from, to, |_, _| u128::MAX),
            Profile::Rate(Rate::Fixed(rate)) => self.sum_of_up_times(from, to, |from, to| {
                u128::from(rate.0) * u128::from(to.saturating_since(from).as_nanos())
            }),
            Profile::Rate(Rate::Deliveries(trace)) => self.sum_of_up_times(from, to, |from, to| {
                let bytes = trace.opportunities_between(from, to) * u128::from(DeliveryTrace::OPPORTUNITY_BYTES);
                bytes * BIT_NANOS_PER_BYTE
            }),
            Profile::Steps(trace) => self.sum_of_up_times(from, to, |from, to| sum_of_steps(trace, from, to)),
        } / BIT_NANOS_PER_BYTE;
        ByteCount(u64::try_from(bytes).unwrap_or(u64::MAX))
    }

    /// How long the link is up in `[from, to)`.
    pub fn up_time(&self, from: Instant, to: Instant) -> Duration {
        let nanos = self.sum_of_up_times(from, to, |from, to| u128::from(to.saturating_since(from).as_nanos()));
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// The ideal time to send `amount` bytes that are all available at `from`: until the last bit is sent, without
    /// propagation. `None` if the link never finishes.
    pub fn time_for(&self, amount: ByteCount, from: Instant) -> Option<Duration> {
        let mut timeline = self.timeline.clone();
        let end = match &self.profile {
            Profile::Rate(Rate::Unlimited) => match timeline.state(from) {
                State::Up { .. } => from,
                State::Down { until } => until,
            },
            Profile::Rate(Rate::Fixed(rate)) => {
                serve_steps(|_| (*rate, Instant::FAR_FUTURE), from, amount.0, Some(&mut timeline)).1
            }
            Profile::Rate(Rate::Deliveries(trace)) => {
                serve_deliveries(trace, &mut trace.seek(from), from, amount.0, Some(&mut timeline)).1
            }
            Profile::Steps(trace) => serve_steps(|at| trace.rate_until(at), from, amount.0, Some(&mut timeline)).1,
        };
        (end != Instant::FAR_FUTURE).then(|| end.saturating_since(from))
    }

    /// When the link goes down next, after `from`; `None` if it never does.
    pub fn next_down(&self, from: Instant) -> Option<Instant> {
        let mut timeline = self.timeline.clone();
        let mut at = from;
        loop {
            match timeline.state(at) {
                State::Up { until } => return (until != Instant::FAR_FUTURE).then_some(until),
                State::Down { until } if until == Instant::FAR_FUTURE => return None,
                State::Down { until } => at = until,
            }
        }
    }

    /// Adds up `part` over the stretches of `[from, to)` in which the link is up.
    fn sum_of_up_times(&self, from: Instant, to: Instant, part: impl Fn(Instant, Instant) -> u128) -> u128 {
        let mut timeline = self.timeline.clone();
        let mut sum: u128 = 0;
        let mut at = from;
        while at < to {
            at = match timeline.state(at) {
                State::Down { until } => until,
                State::Up { until } => {
                    sum = sum.saturating_add(part(at, until.min(to)));
                    until
                }
            };
        }
        sum
    }
}

const BIT_NANOS_PER_BYTE: u128 = 8_000_000_000;

fn sum_of_steps(trace: &ConditionTrace, from: Instant, to: Instant) -> u128 {
    let mut sum: u128 = 0;
    let mut at = from;
    while at < to {
        let (rate, until) = trace.rate_until(at);
        let nanos = until.min(to).saturating_since(at).as_nanos();
        sum = sum.saturating_add(u128::from(rate.0) * u128::from(nanos));
        at = until;
    }
    sum
}
