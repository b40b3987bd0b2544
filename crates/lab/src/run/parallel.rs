//! Parallel execution with results in order.

// Claim: Results from several threads arrive in order, at most a thousand pieces ahead, and a panic ends the computation.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time;

/// Runs `count` tasks on at most `jobs` threads and returns their results in order. `watch` is called periodically meanwhile.
pub(super) fn in_parallel<T: Send>(
    count: usize,
    jobs: usize,
    work: impl Fn(usize) -> T + Sync,
    mut watch: impl FnMut(),
) -> Vec<T> {
    const EVERY: time::Duration = time::Duration::from_millis(100);
    let next = AtomicUsize::new(0);
    let (sender, receiver) = mpsc::channel();
    let mut done: Vec<Option<T>> = (0..count).map(|_| None).collect();
    std::thread::scope(|scope| {
        for _ in 0..jobs.clamp(1, count.max(1)) {
            let (sender, next, work) = (sender.clone(), &next, &work);
            scope.spawn(move || {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    if index >= count || sender.send((index, work(index))).is_err() {
                        return;
                    }
                }
            });
        }
        drop(sender);
        loop {
            match receiver.recv_timeout(EVERY) {
                Ok((index, result)) => done[index] = Some(result),
                Err(RecvTimeoutError::Timeout) => watch(),
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
    });
    // A panic of a thread ends the scope above, so no result is missing here.
    done.into_iter().flatten().collect()
}

/// As [`in_parallel`], for more tasks than fit into memory: `consume` receives the results in order while later ones are produced. At most
/// a thousand results wait for it. Tasks are not run once it stops consuming.
pub(crate) fn in_order<T: Send, R>(
    count: usize,
    jobs: usize,
    work: impl Fn(usize) -> T + Sync,
    consume: impl FnOnce(&mut dyn Iterator<Item = T>) -> R,
) -> R {
    if jobs <= 1 {
        return consume(&mut (0..count).map(work));
    }
    let queue = Queue { count, state: Mutex::default(), changed: Condvar::new() };
    std::thread::scope(|scope| {
        for _ in 0..jobs.min(count) {
            scope.spawn(|| {
                // Waiting threads are notified of a panic as well.
                let _stop = StopAtEnd(&queue, std::thread::panicking);
                while let Some(index) = queue.take() {
                    queue.put(index, work(index));
                }
            });
        }
        let _stop = StopAtEnd(&queue, || true);
        consume(&mut std::iter::from_fn(|| queue.next()))
    })
}

/// A queue of results from several threads, consumed in order by one.
struct Queue<T> {
    count: usize,
    state: Mutex<QueueState<T>>,
    changed: Condvar,
}

struct QueueState<T> {
    /// The next task to start.
    begin: usize,
    /// The next result to return.
    end: usize,
    made: BTreeMap<usize, T>,
    stopped: bool,
}

impl<T> Default for QueueState<T> {
    fn default() -> Self {
        Self { begin: 0, end: 0, made: BTreeMap::new(), stopped: false }
    }
}

impl<T> Queue<T> {
    /// The maximum lead of producers over the consumer.
    const AHEAD: usize = 1000;

    fn state(&self) -> MutexGuard<'_, QueueState<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the next task, when there is room for its result.
    fn take(&self) -> Option<usize> {
        let full = |state: &mut QueueState<T>| {
            state.begin < self.count && state.begin >= state.end + Self::AHEAD && !state.stopped
        };
        let mut state = self.changed.wait_while(self.state(), full).unwrap_or_else(PoisonError::into_inner);
        let index = state.begin;
        let is_wanted = index < self.count && !state.stopped;
        state.begin += usize::from(is_wanted);
        is_wanted.then_some(index)
    }

    fn put(&self, index: usize, result: T) {
        let mut state = self.state();
        state.made.insert(index, result);
        if index == state.end {
            self.changed.notify_all();
        }
    }

    /// The next result.
    fn next(&self) -> Option<T> {
        let missing = |state: &mut QueueState<T>| {
            state.end < self.count && !state.made.contains_key(&state.end) && !state.stopped
        };
        let mut state = self.changed.wait_while(self.state(), missing).unwrap_or_else(PoisonError::into_inner);
        let end = state.end;
        let result = state.made.remove(&end)?;
        state.end += 1;
        // Producers wait until half of the buffer is free, not for each slot.
        if state.end.is_multiple_of(Self::AHEAD / 2) {
            self.changed.notify_all();
        }
        Some(result)
    }
}

/// Stops a queue on drop, if the condition holds.
struct StopAtEnd<'a, T, F: Fn() -> bool>(&'a Queue<T>, F);

impl<T, F: Fn() -> bool> Drop for StopAtEnd<'_, T, F> {
    fn drop(&mut self) {
        if (self.1)() {
            self.0.state().stopped = true;
            self.0.changed.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_in_order() {
        for jobs in [1, 2, 7] {
            assert_eq!(in_parallel(20, jobs, |index| index * index, || {}), (0..20).map(|n| n * n).collect::<Vec<_>>());
            let all = in_order(5000, jobs, |index| index * 2, |made| made.collect::<Vec<_>>());
            assert!(all.into_iter().eq((0..5000).map(|n| n * 2)));
        }
        assert_eq!(in_parallel(0, 4, |index| index, || {}), Vec::<usize>::new());
        assert_eq!(in_order(0, 4, |index| index, |made| made.next()), None);
    }

    #[test]
    fn unrequested_items_are_not_made() {
        let made = AtomicUsize::new(0);
        let work = |index| {
            made.fetch_add(1, Ordering::Relaxed);
            index
        };
        assert_eq!(in_order(1_000_000, 3, work, |made| made.nth(10)), Some(10));
        assert!(made.load(Ordering::Relaxed) < 2 * Queue::<usize>::AHEAD);
    }

    #[test]
    fn a_panic_ends_everything() {
        let work = |index| if index == 50 { panic!("on purpose") } else { index };
        let ended = std::panic::catch_unwind(|| in_order(5000, 3, work, |made| made.count()));
        assert!(ended.is_err());
    }
}
