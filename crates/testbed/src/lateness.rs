//! Scheduling latency of the machine: the only allowance for tests with bounds of milliseconds.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{JoinHandle, sleep};
use std::time::Instant;

use holdover_base::Duration;

/// Measures, from its creation on, how late a thread wakes from short sleeps.
///
/// A measurement of milliseconds on a kernel may fail because the machine is busy with other work. A test may be repeated for that reason
/// only if this has measured such a delay: [`Self::is_excuse`]. Otherwise the first failure counts.
#[derive(Debug)]
pub struct Lateness {
    is_over: Arc<AtomicBool>,
    delays: Arc<Mutex<Vec<Delay>>>,
    sleeper: Option<JoinHandle<()>>,
}

/// A sleep that lasted too long.
#[derive(Clone, Copy, Debug)]
struct Delay {
    due_at: Instant,
    woken_at: Instant,
}

/// The length of the sleeps.
const NAP: std::time::Duration = std::time::Duration::from_millis(2);
/// Shorter delays are not kept: an idle machine wakes a thread within a quarter of this.
const KEPT: std::time::Duration = std::time::Duration::from_millis(1);

impl Lateness {
    /// From this delay on, a failed measurement may be repeated: it is twenty times the wake-up time of an idle machine, and shorter than
    /// the tests' margins.
    pub const EXCUSE: Duration = Duration::from_millis(5);

    /// Begins to measure.
    pub fn watch() -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let delays = Arc::new(Mutex::new(Vec::new()));
        let sleeper = std::thread::spawn({
            let (is_over, delays) = (Arc::clone(&is_over), Arc::clone(&delays));
            move || {
                while !is_over.load(Ordering::Relaxed) {
                    let due_at = Instant::now() + NAP;
                    sleep(NAP);
                    let woken_at = Instant::now();
                    let delay = Delay { due_at, woken_at };
                    if delay.length() >= KEPT {
                        delays.lock().unwrap_or_else(PoisonError::into_inner).push(delay);
                    }
                }
            }
        });
        Self { is_over, delays, sleeper: Some(sleeper) }
    }

    /// The longest delay of at least 1 ms that overlaps the time from `start` to `end`; zero if there is none.
    pub fn worst_between(&self, start: Instant, end: Instant) -> Duration {
        let delays = self.delays.lock().unwrap_or_else(PoisonError::into_inner);
        let overlapping = delays.iter().rev().take_while(|delay| delay.woken_at >= start);
        longest(overlapping.filter(|delay| delay.due_at <= end))
    }

    /// The longest delay of at least 1 ms so far; zero if there is none.
    pub fn worst(&self) -> Duration {
        longest(self.delays.lock().unwrap_or_else(PoisonError::into_inner).iter())
    }

    /// Whether the machine was so late that a failed measurement is inconclusive.
    pub fn is_excuse(&self) -> bool {
        self.worst() >= Self::EXCUSE
    }
}

impl Delay {
    fn length(&self) -> std::time::Duration {
        self.woken_at.saturating_duration_since(self.due_at)
    }
}

fn longest<'a>(delays: impl Iterator<Item = &'a Delay>) -> Duration {
    let longest = delays.map(Delay::length).max().unwrap_or_default();
    Duration::from_nanos(longest.as_nanos().try_into().unwrap_or(u64::MAX))
}

impl Drop for Lateness {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        if let Some(sleeper) = self.sleeper.take() {
            // This cannot panic.
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
        let due_at = Instant::now();
        let woken_at = due_at + std::time::Duration::from(Lateness::EXCUSE);
        lateness.delays.lock().unwrap().push(Delay { due_at, woken_at });
        sleep(4 * NAP);
        assert!(lateness.is_excuse() && lateness.worst() >= Lateness::EXCUSE);
    }

    #[test]
    fn delays_count_for_the_time_that_they_overlap() {
        let lateness = Lateness::watch();
        // The times are later than those that the sleeper adds itself during the test.
        let start = Instant::now() + std::time::Duration::from_secs(3600);
        let after = |millis| start + std::time::Duration::from_millis(millis);
        let delay = |due, woken| Delay { due_at: after(due), woken_at: after(woken) };
        lateness.is_over.store(true, Ordering::Relaxed);
        sleep(4 * NAP);
        lateness.delays.lock().unwrap().extend([delay(10, 12), delay(20, 29), delay(40, 43)]);
        let worst = |from, to| lateness.worst_between(after(from), after(to));
        assert_eq!(worst(0, 9), Duration::ZERO);
        assert_eq!(worst(0, 15), Duration::from_millis(2));
        assert_eq!(worst(25, 26), Duration::from_millis(9));
        assert_eq!(worst(0, 100), Duration::from_millis(9));
        assert_eq!(worst(30, 100), Duration::from_millis(3));
        assert_eq!(worst(44, 100), Duration::ZERO);
    }
}
