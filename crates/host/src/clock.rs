//! The clocks of this machine, as points in time of the state machines.

use holdover_base::{Duration, Instant};
use rustix::time::{ClockId, Timespec, clock_gettime};

/// A point in calendar time: nanoseconds since 1970-01-01T00:00:00Z (`CLOCK_REALTIME`). It may jump.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Utc(pub Instant);

/// Now, on the clock of all state machines of the agent: `CLOCK_MONOTONIC`, which stops while the machine sleeps.
pub fn now() -> Instant {
    read(ClockId::Monotonic)
}

/// Now, in calendar time.
pub fn utc() -> Utc {
    Utc(read(ClockId::Realtime))
}

/// How long the machine has slept since boot: `CLOCK_BOOTTIME` minus `CLOCK_MONOTONIC`.
pub fn slept() -> Duration {
    // In this order a preemption between the two makes the difference smaller, and is never mistaken for sleep.
    let awake_or_not = read(ClockId::Boottime);
    awake_or_not.saturating_since(now())
}

fn read(clock: ClockId) -> Instant {
    let Timespec { tv_sec, tv_nsec } = clock_gettime(clock);
    let seconds = u64::try_from(tv_sec).unwrap_or(0);
    Instant::from_secs(seconds) + Duration::from_nanos(u64::try_from(tv_nsec).unwrap_or(0))
}
