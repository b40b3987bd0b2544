//! Runs the variants in the simulator, and shows how far they are.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time;

use holdover_lab::run::{AS_DESCRIBED, Plan, WHOLE, simulate};
use holdover_report::Record;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::RunError;

/// Runs all variants on `jobs` threads; the first error in their order ends all of them, and so does `stop`, once true.
pub(super) fn all(
    plan: &Plan<'_>,
    jobs: usize,
    show_progress: bool,
    stop: &AtomicBool,
) -> Result<Vec<Record>, RunError> {
    let mut bar = Bar::new(show_progress, plan.worlds.len());
    let records = simulate(plan, jobs, AS_DESCRIBED, stop, |parts| bar.show(parts));
    bar.finish();
    Ok(records?)
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
