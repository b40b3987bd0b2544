//! Runs the variants, several at a time, and shows how far they are.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time;

use holdover_base::{Duration, Instant};
use holdover_report::{Record, Recorder, RecorderOptions};
use holdover_sim::{Amount, Traffic, World, WorldConfig};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::RunError;

/// What is run, and where it is recorded.
pub(super) struct Plan<'a> {
    pub(super) names: &'a [&'a str],
    pub(super) worlds: &'a [WorldConfig],
    pub(super) directories: Vec<PathBuf>,
    pub(super) options: RecorderOptions,
}

/// How far a variant is, in parts of this.
pub(super) const WHOLE: u32 = 10_000;

/// Runs all variants on `jobs` threads; the first error in their order ends all of them, and so does `stop`, once true.
pub(super) fn all(
    plan: &Plan<'_>,
    jobs: usize,
    show_progress: bool,
    stop: &AtomicBool,
) -> Result<Vec<Record>, RunError> {
    let parts: Vec<AtomicU32> = plan.worlds.iter().map(|_| AtomicU32::new(0)).collect();
    let failed = AtomicBool::new(false);
    let given_up = || failed.load(Ordering::Relaxed) || stop.load(Ordering::Relaxed);
    let mut bar = Bar::new(show_progress, plan.worlds.len());
    let records = in_parallel(
        plan.worlds.len(),
        jobs,
        |index| {
            let record = one(plan, index, &parts[index], &given_up);
            if record.is_err() {
                failed.store(true, Ordering::Relaxed);
            }
            record
        },
        || bar.show(&parts),
    );
    bar.finish();
    let mut whole = Vec::with_capacity(records.len());
    for record in records {
        // Without a record a run was given up because another one failed: that one's error follows or came before.
        whole.extend(record?);
    }
    if stop.load(Ordering::Relaxed) { Err(RunError::Interrupted) } else { Ok(whole) }
}

/// Runs one variant; `None` if all are given up in the meantime.
fn one(
    plan: &Plan<'_>,
    index: usize,
    part: &AtomicU32,
    given_up: &impl Fn() -> bool,
) -> Result<Option<Record>, RunError> {
    let config = &plan.worlds[index];
    let mut world =
        World::new(config.clone()).map_err(|error| RunError::World { variant: plan.names[index].to_owned(), error })?;
    let mut recorder = Recorder::create(&plan.directories[index], config, &plan.options)?;
    let whole = bytes_to_come(config);
    let step = (config.time_limit.saturating_since(Instant::ZERO) / 1000).max(Duration::from_millis(1));
    let step = step.min(Duration::from_secs(1));
    loop {
        let until = world.now() + step;
        let ending =
            if until < config.time_limit { world.run_to(until, &mut recorder) } else { Some(world.run(&mut recorder)) };
        if let Some(ending) = ending {
            part.store(WHOLE, Ordering::Relaxed);
            return Ok(Some(recorder.finish(&world, ending)?));
        }
        if given_up() {
            return Ok(None);
        }
        if recorder.error().is_some() {
            recorder.finish(&world, holdover_sim::Ending::Idle)?;
            return Ok(None);
        }
        part.store(part_done(config, world.now(), whole, recorder.bytes_received()), Ordering::Relaxed);
    }
}

/// How far a run is, in parts of [`WHOLE`]: by its time, or by the bytes that were read if that is further.
pub(super) fn part_done(config: &WorldConfig, now: Instant, whole: Option<u64>, received: u64) -> u32 {
    let by_time = now.as_secs_f64() / config.time_limit.as_secs_f64();
    let by_bytes = whole.map_or(0.0, |whole| received as f64 / whole as f64);
    (by_time.max(by_bytes) * f64::from(WHOLE)) as u32
}

/// How many bytes all flows will have read at the end, if that is known.
pub(super) fn bytes_to_come(config: &WorldConfig) -> Option<u64> {
    let bytes = config.flows.iter().map(|flow| match flow.traffic {
        Traffic::Bulk(bulk) => match bulk.amount {
            Amount::Bytes(bytes) => Some(bytes.0),
            Amount::For(_) => None,
        },
        _ => None,
    });
    bytes.sum::<Option<u64>>().filter(|&bytes| bytes > 0)
}

/// A progress bar with an estimate, for what takes longer than a second, on a terminal.
pub(super) struct Bar {
    bar: Option<ProgressBar>,
    since: time::Instant,
}

impl Bar {
    const PATIENCE: time::Duration = time::Duration::from_secs(1);

    pub(super) fn new(wanted: bool, variants: usize) -> Self {
        let bar = wanted.then(|| {
            let length = u64::from(WHOLE) * variants as u64;
            let bar = ProgressBar::with_draw_target(Some(length), ProgressDrawTarget::hidden());
            let style = ProgressStyle::with_template("  {bar:40} {percent:>3} %  {elapsed} so far, {eta} to go");
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
            bar
        });
        Self { bar, since: time::Instant::now() }
    }

    pub(super) fn show(&mut self, parts: &[AtomicU32]) {
        let Some(bar) = &self.bar else { return };
        bar.set_position(parts.iter().map(|part| u64::from(part.load(Ordering::Relaxed))).sum());
        if bar.is_hidden() && self.since.elapsed() >= Self::PATIENCE {
            bar.set_draw_target(ProgressDrawTarget::stderr());
        }
    }

    pub(super) fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// Does `count` pieces of work on at most `jobs` threads and returns what came of them, in order. `watch` is called now and
/// then in between.
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
    // A thread that panics ends the scope above, so that nothing is missing here.
    done.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_in_order_whoever_is_first() {
        for jobs in [1, 2, 7] {
            assert_eq!(in_parallel(20, jobs, |index| index * index, || {}), (0..20).map(|n| n * n).collect::<Vec<_>>());
        }
        assert_eq!(in_parallel(0, 4, |index| index, || {}), Vec::<usize>::new());
    }
}
