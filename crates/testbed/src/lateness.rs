//! Scheduling latency of the machine: the only allowance for tests with bounds of milliseconds.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{JoinHandle, sleep};
use std::time::Instant;

use holdover_base::Duration;

/// Measures from its creation on how late a thread wakes that sleeps for short times.
///
/// A measurement of milliseconds on a kernel may fail because the machine is busy with other work. A test may be tried again for that
/// reason only if this shows it: [`Self::is_excuse`]. Without such a delay the first failure counts.
#[derive(Debug)]
pub struct Lateness {
    is_over: Arc<AtomicBool>,
    worst_nanos: Arc<AtomicU64>,
    sleeper: Option<JoinHandle<()>>,
}

/// The sleeper's naps.
const NAP: std::time::Duration = std::time::Duration::from_millis(2);

impl Lateness {
    /// A delay from which on a failed measurement may be repeated: twenty times what an idle machine needs to wake a thread, and shorter
    /// than what the tests allow for.
    pub const EXCUSE: Duration = Duration::from_millis(5);

    /// Begins to measure.
    pub fn watch() -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let worst_nanos = Arc::new(AtomicU64::new(0));
        let sleeper = std::thread::spawn({
            let (is_over, worst_nanos) = (Arc::clone(&is_over), Arc::clone(&worst_nanos));
            move || {
                while !is_over.load(Ordering::Relaxed) {
                    let before = Instant::now();
                    sleep(NAP);
                    let late = before.elapsed().saturating_sub(NAP);
                    worst_nanos.fetch_max(late.as_nanos().try_into().unwrap_or(u64::MAX), Ordering::Relaxed);
                }
            }
        });
        Self { is_over, worst_nanos, sleeper: Some(sleeper) }
    }

    /// The longest delay so far.
    pub fn worst(&self) -> Duration {
        Duration::from_nanos(self.worst_nanos.load(Ordering::Relaxed))
    }

    /// Whether the machine was so late that a failed measurement is inconclusive.
    pub fn is_excuse(&self) -> bool {
        self.worst() >= Self::EXCUSE
    }
}

impl Drop for Lateness {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        if let Some(sleeper) = self.sleeper.take() {
            // It cannot panic.
            let _ = sleeper.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_delay_is_kept() {
        let lateness = Lateness::watch();
        lateness.worst_nanos.fetch_max(Lateness::EXCUSE.as_nanos(), Ordering::Relaxed);
        sleep(4 * NAP);
        assert!(lateness.is_excuse() && lateness.worst() >= Lateness::EXCUSE);
    }
}
