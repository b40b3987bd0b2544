//! The timers of a connection: one enum, one table.
//!
//! Any number may be armed at once (a persist timer, a user timeout and a keep-alive coexist), and any may be held: a
//! held timer does not run, and keeps its remaining time until it is released.

use holdover_base::{Duration, Instant};

use crate::on_demand::{Absent, OnDemand};

/// Purpose of a deadline.
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
    /// When the next burst of data may leave (pacing).
    Pacing,
}

impl Timer {
    /// How many timers there are.
    pub const COUNT: usize = 11;

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
        Self::Pacing,
    ];

    const fn bit(self) -> u16 {
        1 << self as u8
    }

    /// Where the deadline is kept: those of a connection that sends and receives in place, the others apart.
    const fn place(self) -> Place {
        match self {
            Self::Retransmit => Place::Common(0),
            Self::LossProbe => Place::Common(1),
            Self::Reorder => Place::Common(2),
            Self::DelayedAck => Place::Common(3),
            Self::Pacing => Place::Common(4),
            Self::Persist => Place::Rare(0),
            Self::SillyWindow => Place::Rare(1),
            Self::KeepAlive => Place::Rare(2),
            Self::UserTimeout => Place::Rare(3),
            Self::FinWait2 => Place::Rare(4),
            Self::TimeWait => Place::Rare(5),
        }
    }
}

enum Place {
    Common(usize),
    Rare(usize),
}

/// The deadlines of all timers of one connection.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Timers {
    /// Sets of timers, by [`Timer::bit`]: few are armed at a time, so that the others need not be checked.
    armed: u16,
    held: u16,
    /// Nanoseconds: the deadline of a timer that is armed, or, if it is held too, what remained of it; else [`NEVER`].
    common: [u64; 5],
    rare: OnDemand<RareDeadlines>,
}

impl Default for Timers {
    fn default() -> Self {
        Self { armed: 0, held: 0, common: [NEVER; 5], rare: OnDemand::absent() }
    }
}

#[derive(Clone, PartialEq, Debug)]
struct RareDeadlines([u64; 6]);

impl Absent for RareDeadlines {
    const ABSENT: &'static Self = &Self([0; 6]);
}

const NEVER: u64 = u64::MAX;

/// The timers whose deadlines are in [`RareDeadlines`].
const RARE: u16 = Timer::Persist.bit()
    | Timer::SillyWindow.bit()
    | Timer::KeepAlive.bit()
    | Timer::UserTimeout.bit()
    | Timer::FinWait2.bit()
    | Timer::TimeWait.bit();

impl Timers {
    fn is_held(&self, timer: Timer) -> bool {
        self.held & timer.bit() != 0
    }

    fn slot(&self, timer: Timer) -> u64 {
        match timer.place() {
            Place::Common(index) => self.common[index],
            Place::Rare(index) => self.rare.0[index],
        }
    }

    /// A deadline that saturates at the end of time is not armed.
    fn set_slot(&mut self, timer: Timer, nanos: u64) {
        if nanos == NEVER {
            return self.disarm(timer);
        }
        self.armed |= timer.bit();
        match timer.place() {
            Place::Common(index) => self.common[index] = nanos,
            Place::Rare(index) => self.rare.to_mut().0[index] = nanos,
        }
    }

    pub(crate) fn arm(&mut self, now: Instant, timer: Timer, delay: Duration) {
        let nanos = if self.is_held(timer) { delay.as_nanos().min(NEVER - 1) } else { (now + delay).as_nanos() };
        self.set_slot(timer, nanos);
    }

    #[inline]
    pub(crate) fn disarm(&mut self, timer: Timer) {
        match timer.place() {
            Place::Common(index) => {
                self.armed &= !timer.bit();
                self.common[index] = NEVER;
            }
            Place::Rare(_) if self.is_armed(timer) => self.disarm_rare(timer),
            Place::Rare(_) => {}
        }
    }

    #[inline(never)]
    fn disarm_rare(&mut self, timer: Timer) {
        self.armed &= !timer.bit();
        if self.armed & RARE == 0 {
            self.rare.clear();
        }
    }

    pub(crate) fn disarm_all(&mut self) {
        self.armed = 0;
        self.common = [NEVER; 5];
        self.rare.clear();
    }

    pub(crate) fn is_armed(&self, timer: Timer) -> bool {
        self.armed & timer.bit() != 0
    }

    /// When `timer` runs out; `None` if it is not armed or is held.
    pub(crate) fn deadline(&self, timer: Timer) -> Option<Instant> {
        (self.is_armed(timer) && !self.is_held(timer)).then(|| Instant::from_nanos(self.slot(timer)))
    }

    /// The time of [`Self::next`], or [`Instant::FAR_FUTURE`].
    #[inline]
    pub(crate) fn earliest(&self) -> Instant {
        if self.held | self.armed & RARE != 0 {
            return self.next().map_or(Instant::FAR_FUTURE, |(at, _)| at);
        }
        Instant::from_nanos(self.common.into_iter().fold(NEVER, u64::min))
    }

    /// The earliest deadline; of equal ones, the first in the order of [`Timer::ALL`].
    pub(crate) fn next(&self) -> Option<(Instant, Timer)> {
        let mut running = self.armed & !self.held;
        let mut best: Option<(u64, Timer)> = None;
        while running != 0 {
            let timer = Timer::ALL[running.trailing_zeros() as usize];
            running &= running - 1;
            let slot = self.slot(timer);
            if best.is_none_or(|(least, _)| slot < least) {
                best = Some((slot, timer));
            }
        }
        best.map(|(nanos, timer)| (Instant::from_nanos(nanos), timer))
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
        if self.is_armed(timer) {
            self.set_slot(timer, self.slot(timer).saturating_sub(now.as_nanos()));
        }
    }

    /// Lets `timer` run again with the time that remained when it was held.
    pub(crate) fn release(&mut self, now: Instant, timer: Timer) {
        if !self.is_held(timer) {
            return;
        }
        self.held &= !timer.bit();
        if self.is_armed(timer) {
            self.set_slot(timer, self.slot(timer).saturating_add(now.as_nanos()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn the_earliest_deadline_comes_first_and_ties_follow_the_written_order() {
        let mut timers = Timers::default();
        assert_eq!(timers.next(), None);
        timers.arm(Instant::ZERO, Timer::KeepAlive, SECOND);
        timers.arm(Instant::ZERO, Timer::DelayedAck, SECOND);
        assert_eq!(timers.next(), Some((Instant::from_secs(1), Timer::DelayedAck)));
        assert_eq!(timers.expire(Instant::from_millis(999)), None);
        assert_eq!(timers.expire(Instant::from_secs(1)), Some(Timer::DelayedAck));
        assert_eq!(timers.expire(Instant::from_secs(1)), Some(Timer::KeepAlive));
        assert_eq!(timers.expire(Instant::from_secs(9)), None);
        assert_eq!(timers.earliest(), Instant::FAR_FUTURE);
    }

    #[test]
    fn a_rare_timer_takes_room_only_while_it_is_armed() {
        let mut timers = Timers::default();
        timers.arm(Instant::ZERO, Timer::Retransmit, SECOND);
        assert!(timers.rare.is_absent());
        timers.arm(Instant::ZERO, Timer::Persist, SECOND);
        timers.arm(Instant::ZERO, Timer::UserTimeout, SECOND * 2);
        timers.disarm(Timer::Persist);
        assert_eq!(timers.deadline(Timer::UserTimeout), Some(Instant::from_secs(2)));
        timers.disarm(Timer::UserTimeout);
        assert!(timers.rare.is_absent() && timers.is_armed(Timer::Retransmit));
    }

    #[test]
    fn a_held_timer_keeps_what_remained() {
        let mut timers = Timers::default();
        timers.arm(Instant::ZERO, Timer::Retransmit, SECOND * 3);
        timers.hold(Instant::from_secs(1), Timer::Retransmit);
        assert_eq!(timers.next(), None);
        assert!(timers.is_armed(Timer::Retransmit));
        assert_eq!(timers.earliest(), Instant::FAR_FUTURE);
        timers.release(Instant::from_secs(10), Timer::Retransmit);
        assert_eq!(timers.earliest(), Instant::from_secs(12));
        assert_eq!(timers.next(), Some((Instant::from_secs(12), Timer::Retransmit)));
    }

    #[test]
    fn arming_a_held_timer_counts_from_its_release() {
        let mut timers = Timers::default();
        timers.hold(Instant::ZERO, Timer::Persist);
        timers.arm(Instant::from_secs(5), Timer::Persist, SECOND);
        assert_eq!(timers.next(), None);
        timers.release(Instant::from_secs(7), Timer::Persist);
        assert_eq!(timers.deadline(Timer::Persist), Some(Instant::from_secs(8)));
    }
}
