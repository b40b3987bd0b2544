//! The progress of the variants.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time;

use holdover_lab::run::WHOLE;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// A progress bar with an estimate, on a terminal, for tasks longer than a second.
pub(super) struct Bar {
    bar: Option<ProgressBar>,
    since: time::Instant,
}

impl Bar {
    const PATIENCE: time::Duration = time::Duration::from_secs(1);

    pub(super) fn new(wanted: bool) -> Self {
        let bar = wanted.then(|| {
            let bar = ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::hidden());
            let style = ProgressStyle::with_template("  {bar:40} {percent:>3} %  {elapsed} so far, {eta} to go");
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
            bar
        });
        Self { bar, since: time::Instant::now() }
    }

    pub(super) fn show(&mut self, parts: &[AtomicU32]) {
        let Some(bar) = &self.bar else { return };
        bar.set_length(u64::from(WHOLE) * parts.len() as u64);
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
