//! The timers of a connection: one enum, one table.
//!
//! Any number may be armed at once (a persist timer, a user timeout and a keep-alive coexist), and any may be held: a held
//! timer does not run, and keeps the time that remained until it is released.

use holdover_base::{Duration, Instant};

/// What a deadline is for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(u8)]
pub enum Timer {
    /// When to retransmit the first unacknowledged segment (RFC 6298), SYN and FIN included.
    Retransmit,
    /// When to send a tail loss probe (RFC 8985 section 7).
    LossProbe,
    /// When segments that may merely be reordered are to be declared lost (RFC 8985 section 6.2).
    Reorder,
    /// When to probe a zero window (RFC 9293 section 3.8.6.1).
    Persist,
    /// When to send less than a full segment into a window that stays small (RFC 9293 section 3.8.6.2.1, rule 4).
    SillyWindow,
    /// When to send a delayed acknowledgment (RFC 9293 section 3.8.6.3).
    DelayedAck,
    /// When to probe an idle peer (RFC 9293 section 3.8.4).
    KeepAlive,
    /// When to give up on data that is not acknowledged (RFC 9293 section 3.9.1, RFC 5482).
    UserTimeout,
    /// When an orphaned connection in FIN-WAIT-2 is forgotten.
    FinWait2,
    /// When 2 MSL are over (RFC 9293 section 3.6.1).
    TimeWait,
}

impl Timer {
    /// How many timers there are.
    pub const COUNT: usize = 10;

    /// All timers, in the order in which simultaneous deadlines are handled.
    pub const ALL: [Self; Self::COUNT] = [
        Self::Retransmit,
        Self::LossProbe,
        Self::Reorder,
        Self::Persist,
        Self::SillyWindow,
        Self::DelayedAck,
        Self::KeepAlive,
        Self::UserTimeout,
        Self::FinWait2,
        Self::TimeWait,
    ];

    const fn bit(self) -> u16 {
        1 << self as u8
    }
}

/// The deadlines of all timers of one connection.
#[derive(Clone, Debug)]
pub(crate) struct Timers {
    /// Nanoseconds: a deadline, or, for a held timer, what remained of it. `NONE` when not armed.
    slots: [u64; Timer::COUNT],
    /// Those that are armed: few at a time, so that the others need not be looked at.
    armed: u16,
    held: u16,
}

const NONE: u64 = u64::MAX;

impl Timers {
    pub(crate) const fn new() -> Self {
        Self { slots: [NONE; Timer::COUNT], armed: 0, held: 0 }
    }

    fn is_held(&self, timer: Timer) -> bool {
        self.held & timer.bit() != 0
    }

    pub(crate) fn arm(&mut self, now: Instant, timer: Timer, delay: Duration) {
        let slot = if self.is_held(timer) { delay.as_nanos().min(NONE - 1) } else { (now + delay).as_nanos() };
        self.slots[timer as usize] = slot;
        self.note(timer, slot);
    }

    pub(crate) fn disarm(&mut self, timer: Timer) {
        self.slots[timer as usize] = NONE;
        self.armed &= !timer.bit();
    }

    pub(crate) fn disarm_all(&mut self) {
        self.slots = [NONE; Timer::COUNT];
        self.armed = 0;
    }

    pub(crate) fn is_armed(&self, timer: Timer) -> bool {
        self.slots[timer as usize] != NONE
    }

    /// When `timer` runs out; `None` if it is not armed or is held.
    pub(crate) fn deadline(&self, timer: Timer) -> Option<Instant> {
        let slot = self.slots[timer as usize];
        (slot != NONE && !self.is_held(timer)).then_some(Instant::from_nanos(slot))
    }

    /// The earliest deadline; of equal ones, the first in the order of [`Timer::ALL`].
    pub(crate) fn next(&self) -> Option<(Instant, Timer)> {
        let mut best = (NONE, Timer::Retransmit);
        let mut running = self.armed & !self.held;
        while running != 0 {
            let timer = Timer::ALL[running.trailing_zeros() as usize];
            running &= running - 1;
            let slot = self.slots[timer as usize];
            if slot < best.0 {
                best = (slot, timer);
            }
        }
        (best.0 != NONE).then_some((Instant::from_nanos(best.0), best.1))
    }

    /// Takes the first timer whose deadline is at or before `now`.
    pub(crate) fn expire(&mut self, now: Instant) -> Option<Timer> {
        let (deadline, timer) = self.next()?;
        (deadline <= now).then(|| {
            self.disarm(timer);
            timer
        })
    }

    /// Stops `timer` where it is. Arming it while it is held sets what will remain.
    pub(crate) fn hold(&mut self, now: Instant, timer: Timer) {
        if self.is_held(timer) {
            return;
        }
        self.held |= timer.bit();
        let slot = &mut self.slots[timer as usize];
        if *slot != NONE {
            *slot = slot.saturating_sub(now.as_nanos());
        }
    }

    /// Lets `timer` run again with the time that remained when it was held.
    pub(crate) fn release(&mut self, now: Instant, timer: Timer) {
        if !self.is_held(timer) {
            return;
        }
        self.held &= !timer.bit();
        let slot = &mut self.slots[timer as usize];
        if *slot != NONE {
            *slot = slot.saturating_add(now.as_nanos());
            let slot = *slot;
            self.note(timer, slot);
        }
    }

    /// A deadline that saturates at the end of time is none.
    fn note(&mut self, timer: Timer, slot: u64) {
        if slot == NONE {
            self.armed &= !timer.bit();
        } else {
            self.armed |= timer.bit();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn the_earliest_deadline_comes_first_and_ties_follow_the_written_order() {
        let mut timers = Timers::new();
        assert_eq!(timers.next(), None);
        timers.arm(Instant::ZERO, Timer::KeepAlive, SECOND);
        timers.arm(Instant::ZERO, Timer::DelayedAck, SECOND);
        assert_eq!(timers.next(), Some((Instant::from_secs(1), Timer::DelayedAck)));
        assert_eq!(timers.expire(Instant::from_millis(999)), None);
        assert_eq!(timers.expire(Instant::from_secs(1)), Some(Timer::DelayedAck));
        assert_eq!(timers.expire(Instant::from_secs(1)), Some(Timer::KeepAlive));
        assert_eq!(timers.expire(Instant::from_secs(9)), None);
    }

    #[test]
    fn a_held_timer_keeps_what_remained() {
        let mut timers = Timers::new();
        timers.arm(Instant::ZERO, Timer::Retransmit, SECOND * 3);
        timers.hold(Instant::from_secs(1), Timer::Retransmit);
        assert_eq!(timers.next(), None);
        assert!(timers.is_armed(Timer::Retransmit));
        timers.release(Instant::from_secs(10), Timer::Retransmit);
        assert_eq!(timers.next(), Some((Instant::from_secs(12), Timer::Retransmit)));
    }

    #[test]
    fn arming_a_held_timer_counts_from_its_release() {
        let mut timers = Timers::new();
        timers.hold(Instant::ZERO, Timer::Persist);
        timers.arm(Instant::from_secs(5), Timer::Persist, SECOND);
        assert_eq!(timers.next(), None);
        timers.release(Instant::from_secs(7), Timer::Persist);
        assert_eq!(timers.deadline(Timer::Persist), Some(Instant::from_secs(8)));
    }
}
