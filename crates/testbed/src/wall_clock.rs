//! The system's clock, as the state machines without I/O have time.

use holdover_base::{Duration, Instant};

/// Time since a start as an [`Instant`].
#[derive(Clone, Copy, Debug)]
pub struct WallClock {
    start: std::time::Instant,
}

impl WallClock {
    /// A clock that starts now.
    pub fn start() -> Self {
        Self { start: std::time::Instant::now() }
    }

    /// The time of the system's clock at `at`.
    pub fn wall(&self, at: Instant) -> std::time::Instant {
        self.start + std::time::Duration::from(at.saturating_since(Instant::ZERO))
    }

    /// The time since its start.
    pub fn now(&self) -> Instant {
        Instant::ZERO + Duration::from(self.start.elapsed())
    }
}
