//! The time that one processor spends on a measurement.
//!
//! Linux charges softirqs to the task that they interrupt, unless it is built with `IRQ_TIME_ACCOUNTING`. Everything of a measurement runs
//! on one processor: the hosts' sockets in this thread, the processes on the router, and softirqs within either or in `ksoftirqd`. The
//! sum of their run times is the time for hosts, router and softirqs, without other load of the machine.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};

/// Keeps the calling thread, and threads and processes that it starts, on one processor.
#[derive(Debug)]
pub(super) struct Pinned {
    /// The processors that the thread was allowed before.
    before: CpuSet,
    ksoftirqd: PathBuf,
}

impl Pinned {
    /// On the last of the processors that the thread may use.
    ///
    /// # Errors
    /// The kernel refuses, or shows no `ksoftirqd`.
    pub(super) fn new() -> io::Result<Self> {
        let before = sched_getaffinity(None)?;
        let last = (0..CpuSet::MAX_CPU).rev().find(|&cpu| before.is_set(cpu));
        let last = last.ok_or_else(|| io::Error::other("there is no processor to run on"))?;
        let ksoftirqd = task_named(&format!("ksoftirqd/{last}"))?;
        let mut one = CpuSet::new();
        one.set(last);
        sched_setaffinity(None, &one)?;
        Ok(Self { before, ksoftirqd })
    }

    /// The run time so far of this thread, of `ksoftirqd` and of all threads of the processes.
    ///
    /// # Errors
    /// A process has ended.
    pub(super) fn run_time(&self, processes: &[u32]) -> io::Result<Duration> {
        let own = clock_gettime(ClockId::ThreadCPUTime);
        let mut nanos = own.tv_sec as u64 * 1_000_000_000 + own.tv_nsec as u64;
        nanos += run_nanos(&self.ksoftirqd)?;
        for process in processes {
            for task in fs::read_dir(format!("/proc/{process}/task"))? {
                nanos += run_nanos(&task?.path())?;
            }
        }
        Ok(Duration::from_nanos(nanos))
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // It ran there before.
        let _ = sched_setaffinity(None, &self.before);
    }
}

/// The run time of a task that does not run at this moment.
fn run_nanos(task: &Path) -> io::Result<u64> {
    let text = fs::read_to_string(task.join("schedstat"))?;
    let first = text.split_whitespace().next().and_then(|value| value.parse().ok());
    first.ok_or_else(|| io::Error::other(format!("{}/schedstat has no run time", task.display())))
}

fn task_named(name: &str) -> io::Result<PathBuf> {
    for entry in fs::read_dir("/proc")? {
        let path = entry?.path();
        // A process may end meanwhile.
        if fs::read_to_string(path.join("comm")).is_ok_and(|text| text.trim_end() == name) {
            return Ok(path);
        }
    }
    Err(io::Error::new(
        io::ErrorKind::NotFound,
        format!("/proc shows no {name}: the time of softirqs cannot be measured"),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn run_time_counts_this_thread_and_not_others() {
        let Ok(pinned) = Pinned::new() else { return holdover_testbed::harness::skip("no ksoftirqd is visible") };
        let before = pinned.run_time(&[]).unwrap();
        std::thread::sleep(Duration::from_millis(30));
        let asleep = pinned.run_time(&[]).unwrap() - before;
        assert!(asleep < Duration::from_millis(20), "{asleep:?}");
        let began = clock_gettime(ClockId::ThreadCPUTime);
        let busy_nanos = || {
            let now = clock_gettime(ClockId::ThreadCPUTime);
            (now.tv_sec - began.tv_sec) * 1_000_000_000 + now.tv_nsec - began.tv_nsec
        };
        while busy_nanos() < 20_000_000 {}
        assert!(pinned.run_time(&[]).unwrap() - before >= Duration::from_millis(20));
        assert!(pinned.run_time(&[u32::MAX]).is_err(), "a process that is not there has no run time");
    }
}
