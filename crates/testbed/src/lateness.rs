//! How late the machine is with what tests wait for: the only allowance for tests with bounds of milliseconds.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{JoinHandle, sleep};
use std::time::Instant;

use holdover_base::Duration;
use holdover_host::{Namespace, NamespaceError, Netlink};

/// Measures, from its creation on, how late a thread wakes from short sleeps, and how long links wait for the kernel
/// ([`Self::watch_links`]).
///
/// A measurement of milliseconds on a kernel may fail because the machine is busy with other work. A test may be repeated for that reason
/// only if this has measured such a delay: [`Self::repeat`]. Otherwise the first failure counts.
#[derive(Debug)]
pub struct Lateness {
    is_over: Arc<AtomicBool>,
    delays: Arc<Mutex<Vec<Delay>>>,
    watchers: Vec<JoinHandle<()>>,
}

/// The result of a measurement, and why it was repeated.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Repeated<T> {
    /// The result of the last run, which counts.
    pub value: T,
    /// The longest delay during the last run.
    pub lateness: Duration,
    /// The longest delay during each earlier run. Each is at least [`Lateness::EXCUSE`].
    pub excuses: Vec<Duration>,
}

/// A thread that measures.
struct Watcher {
    is_over: Arc<AtomicBool>,
    delays: Arc<Mutex<Vec<Delay>>>,
}

/// A delay of the machine.
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
    /// From this delay on, a failed measurement may be repeated: it is ten times the wake-up time of an idle machine, and shorter than the
    /// tests' margins and the 4 ms of additional delay at which Linux's HyStart ends slow start.
    pub const EXCUSE: Duration = Duration::from_millis(3);
    /// The most runs of a measurement, whatever the delays.
    pub const RUNS: usize = 6;

    /// Begins to measure.
    pub fn watch() -> Self {
        let mut lateness = Self { is_over: Arc::default(), delays: Arc::default(), watchers: Vec::new() };
        let watcher = lateness.watcher();
        lateness.watchers.push(std::thread::spawn(move || {
            watcher.run(|| {
                let due_at = Instant::now() + NAP;
                sleep(NAP);
                Delay { due_at, woken_at: Instant::now() }
            });
        }));
        lateness
    }

    /// Also measures how long a change of a link waits for the kernel's lock on them (RTNL), which all network namespaces share: those that
    /// are made and removed meanwhile hold it for milliseconds, and carriers, addresses and routes of all others wait.
    ///
    /// # Errors
    /// There is no network namespace to be had for the links of this measurement.
    pub fn watch_links() -> Result<Self, NamespaceError> {
        let mut lateness = Self::watch();
        let (watcher, namespace) = (lateness.watcher(), Namespace::new("lateness")?);
        let inside = {
            let namespace = namespace.clone();
            move || {
                let Ok(mut netlink) = Netlink::open(&namespace) else { return };
                watcher.run(|| {
                    sleep(NAP);
                    let due_at = Instant::now();
                    // It is up already, after the first time: only the lock takes time.
                    let _ = netlink.set_up("lo");
                    Delay { due_at, woken_at: Instant::now() }
                });
            }
        };
        lateness.watchers.push(std::thread::spawn(move || drop(namespace.enter(inside))));
        Ok(lateness)
    }

    /// Measures, and repeats a measurement that fails only if the machine was late meanwhile by [`Self::EXCUSE`] or more, up to [`Self::RUNS`]
    /// runs in all.
    pub fn repeat<T>(mut measure: impl FnMut() -> T, succeeds: impl Fn(&T) -> bool) -> Repeated<T> {
        let watched = || {
            let lateness = Self::watch();
            let value = measure();
            (value, lateness.worst())
        };
        Self::repeat_watched(watched, succeeds)
    }

    /// As [`Self::repeat`], with a measurement that also returns the longest delay meanwhile.
    fn repeat_watched<T>(mut measure: impl FnMut() -> (T, Duration), succeeds: impl Fn(&T) -> bool) -> Repeated<T> {
        let mut excuses = Vec::new();
        loop {
            let (value, lateness) = measure();
            if succeeds(&value) || lateness < Self::EXCUSE || excuses.len() + 1 == Self::RUNS {
                return Repeated { value, lateness, excuses };
            }
            excuses.push(lateness);
        }
    }

    /// Measures until a value is below `bound`, as [`Self::repeat`] does. Returns all values: the last one counts.
    pub fn repeat_until_below(bound: Duration, mut measure: impl FnMut() -> Duration) -> Vec<Duration> {
        let mut values = Vec::new();
        let measure_and_keep = || {
            let value = measure();
            values.push(value);
            value
        };
        Self::repeat(measure_and_keep, |&value| value < bound);
        values
    }

    fn watcher(&self) -> Watcher {
        Watcher { is_over: Arc::clone(&self.is_over), delays: Arc::clone(&self.delays) }
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
}

impl Watcher {
    /// Measures again and again.
    fn run(&self, mut measure: impl FnMut() -> Delay) {
        while !self.is_over.load(Ordering::Relaxed) {
            let delay = measure();
            if delay.length() >= KEPT {
                self.delays.lock().unwrap_or_else(PoisonError::into_inner).push(delay);
            }
        }
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
        for watcher in self.watchers.drain(..) {
            // They do not panic.
            let _ = watcher.join();
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
        assert!(lateness.worst() >= Lateness::EXCUSE);
    }

    #[test]
    fn a_failed_measurement_is_repeated_after_a_delay_only() {
        let (late, early) = (Lateness::EXCUSE, Duration::from_millis(2));
        // Each run returns its number and its delay. The run with the number `succeeding` succeeds.
        let repeat = |delays: &[Duration], succeeding: usize| {
            let mut runs = (1..).zip(delays.iter().copied());
            Lateness::repeat_watched(|| runs.next().unwrap(), |&run| run == succeeding)
        };
        assert_eq!(repeat(&[late], 1), Repeated { value: 1, lateness: late, excuses: Vec::new() });
        assert_eq!(repeat(&[early], 9), Repeated { value: 1, lateness: early, excuses: Vec::new() });
        assert_eq!(repeat(&[late, early], 2), Repeated { value: 2, lateness: early, excuses: vec![late] });
        assert_eq!(repeat(&[late, early], 9), Repeated { value: 2, lateness: early, excuses: vec![late] });
        assert_eq!(repeat(&[late; Lateness::RUNS], 9).excuses.len() + 1, Lateness::RUNS);
    }

    #[test]
    fn delays_count_for_the_time_that_they_overlap() {
        let lateness = Lateness::watch();
        // The times are later than those that the thread adds itself during the test.
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
