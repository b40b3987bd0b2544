//! Runs the variants concurrently, and reports progress.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use holdover_base::{Duration, Instant};
use holdover_report::{Record, RecorderOptions, ResultsDir};
use holdover_sim::{Amount, Ending, Traffic, World, WorldConfig};

use super::error::RunError;
use super::parallel::in_parallel;

/// The runs, and the directory of their records.
#[derive(Clone, Debug)]
pub(super) struct Plan<'a> {
    /// The names of the variants, for messages.
    pub names: &'a [&'a str],
    /// Their worlds.
    pub worlds: &'a [WorldConfig],
    /// Their directories.
    pub directories: &'a [String],
    /// The directory of the results.
    pub results: &'a ResultsDir,
    /// The recorder's options.
    pub options: RecorderOptions,
}

/// The unit of a variant's progress.
pub const WHOLE: u32 = 10_000;

/// Leaves the worlds unchanged.
pub const AS_DESCRIBED: &Equip<'static> = &|_, _| {};

/// Adds components to a variant's world (by its index in the plan) that its description cannot express, such as a chain, before it runs.
pub type Equip<'a> = dyn Fn(usize, &mut World) + Sync + 'a;

/// Runs all variants on `jobs` threads; the first error in their order, or `stop` when true, ends all of them. `parts` holds the progress
/// of each; `watch` is called ten times a second, by the calling thread.
///
/// # Errors
///
/// If a world cannot be built, a file cannot be written, or `stop` was set.
pub(super) fn simulate(
    plan: &Plan<'_>,
    jobs: usize,
    equip: &Equip<'_>,
    stop: &AtomicBool,
    parts: &[AtomicU32],
    watch: impl FnMut(),
) -> Result<Vec<Record>, RunError> {
    let failed = AtomicBool::new(false);
    let given_up = || failed.load(Ordering::Relaxed) || stop.load(Ordering::Relaxed);
    let records = in_parallel(
        plan.worlds.len(),
        jobs,
        |index| {
            let record = one(plan, index, equip, &parts[index], &given_up);
            if record.is_err() {
                failed.store(true, Ordering::Relaxed);
            }
            record
        },
        watch,
    );
    let mut whole = Vec::with_capacity(records.len());
    for record in records {
        // A run without a record was abandoned because another run failed, whose error is reported before or after.
        whole.extend(record?);
    }
    if stop.load(Ordering::Relaxed) { Err(RunError::Interrupted) } else { Ok(whole) }
}

/// Runs a variant; `None` if all runs are abandoned meanwhile.
fn one(
    plan: &Plan<'_>,
    index: usize,
    equip: &Equip<'_>,
    part: &AtomicU32,
    given_up: &impl Fn() -> bool,
) -> Result<Option<Record>, RunError> {
    let config = &plan.worlds[index];
    let mut world =
        World::new(config.clone()).map_err(|error| RunError::World { variant: plan.names[index].to_owned(), error })?;
    equip(index, &mut world);
    let mut recorder = plan.results.recorder(&plan.directories[index], config, &plan.options)?;
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
            recorder.finish(&world, Ending::Idle)?;
            return Ok(None);
        }
        part.store(part_done(config, world.now(), whole, recorder.bytes_received()), Ordering::Relaxed);
    }
}

/// The progress of a run, in parts of [`WHOLE`]: by time or by bytes read, whichever is greater.
pub(super) fn part_done(config: &WorldConfig, now: Instant, whole: Option<u64>, received: u64) -> u32 {
    let by_time = now.as_secs_f64() / config.time_limit.as_secs_f64();
    let by_bytes = whole.map_or(0.0, |whole| received as f64 / whole as f64);
    (by_time.max(by_bytes) * f64::from(WHOLE)) as u32
}

/// The total number of bytes to be read by all flows, if known.
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
