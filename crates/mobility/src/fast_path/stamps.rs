//! The timestamps of one end of a connection, as far as its clock can be told from them.

use holdover_base::Instant;

use crate::echo_clock::{EchoClock, is_older};

/// The first TSval that was seen and the newest, each with the time at which it was first seen; all zero before the first.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Stamps {
    pub(super) first_at: Instant,
    pub(super) newest_at: Instant,
    pub(super) first: u32,
    pub(super) newest: u32,
}

impl Stamps {
    /// A segment with this TSval passes.
    pub(super) fn note(&mut self, now: Instant, val: u32) {
        if self.first_at == Instant::ZERO {
            *self = Self { first_at: now, newest_at: now, first: val, newest: val };
        } else if is_older(self.newest, val) {
            (self.newest_at, self.newest) = (now, val);
        }
    }

    pub(super) fn newest(&self) -> Option<u32> {
        (self.first_at > Instant::ZERO).then_some(self.newest)
    }

    pub(super) fn clock(&self) -> EchoClock {
        match self.newest() {
            None => EchoClock::default(),
            Some(newest) => EchoClock::between((self.first_at, self.first), (self.newest_at, newest)),
        }
    }
}
