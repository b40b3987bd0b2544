//! Times as ages, in us: the clocks of two gateways have nothing in common.

use holdover_base::Instant;

/// The age of an event that has not happened.
pub(super) const NEVER: u32 = u32::MAX;

/// Microseconds from a time of the flow path until `now`.
pub(super) fn age(now: Instant, at: u64) -> u32 {
    if at == 0 { NEVER } else { micros(now.as_nanos().saturating_sub(at)).min(NEVER - 1) }
}

/// The time of the flow path of this age.
pub(super) fn moment(now: Instant, age: u32) -> u64 {
    if age == NEVER { 0 } else { now.as_nanos().saturating_sub(u64::from(age) * 1000).max(1) }
}

/// The halves of a time, as a flow keeps it.
pub(super) const fn low_and_high(at: u64) -> (u32, u32) {
    (at as u32, (at >> 32) as u32)
}

pub(super) fn micros(nanos: u64) -> u32 {
    (nanos / 1000).min(u32::MAX.into()) as u32
}
