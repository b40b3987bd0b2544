//! Repetitions of a message that is not answered.

use holdover_base::{Duration, Instant};

/// The time and number of a message's repetitions.
#[derive(Clone, Copy, Debug)]
pub struct Repeat {
    /// When the message is sent again; `None` if it was given up.
    pub at: Option<Instant>,
    pause: Duration,
    left: u32,
}

impl Repeat {
    /// For a message that was just sent, and is sent again after `pause`, twice `pause` and so on: `tries` times in all.
    pub fn begin(now: Instant, pause: Duration, tries: u32) -> Self {
        Self { at: Some(now + pause), pause, left: tries.saturating_sub(1) }
    }

    /// The time has come. Returns whether to repeat the message; if not, it is given up.
    pub fn is_due_again(&mut self, now: Instant) -> bool {
        if self.left == 0 {
            self.at = None;
            return false;
        }
        (self.left, self.pause) = (self.left - 1, self.pause * 2);
        self.at = Some(now + self.pause);
        true
    }

    /// Whether the time has come.
    pub fn is_due(&self, now: Instant) -> bool {
        self.at.is_some_and(|at| at <= now)
    }
}
