//! What the grids of `holdover conformance` share: runs of cells in parallel, medians, and the ways out of a report.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use super::ConformanceArgs;
use crate::command_support::{print, print_json};

/// So many cases at a time leave room on a machine with two cores: each moves 10 Mbit/s of packets.
const JOBS: u16 = 12;

/// What a grid came to.
pub(super) trait GridReport: Serialize {
    /// Whether every cell reaches what it has to.
    fn is_sound(&self) -> bool;
    /// What has come of it.
    fn in_a_line(&self) -> String;
    /// The page.
    fn markdown(&self) -> String;
    /// A row for each run.
    fn csv(&self) -> String;
}

/// The runs of each place.
pub(super) type Runs<P, R> = BTreeMap<P, Vec<R>>;

/// Every run of every place, or the first that could not be made. Repetitions of the whole grid follow one another, so that all
/// cells meet the same load of the machine.
pub(super) fn run_all<P, R, E>(
    places: &[P],
    args: &ConformanceArgs,
    run_one: impl Fn(P) -> Result<R, E> + Sync,
) -> Result<Runs<P, R>, Box<(P, E)>>
where
    P: Copy + Ord + Display + Send + Sync,
    R: Send,
    E: Send,
{
    let queue: Vec<P> = (0..args.repeat).flat_map(|_| places.iter().copied()).collect();
    let bar = ProgressBar::new(queue.len() as u64).with_style(
        ProgressStyle::with_template("{bar:40} {pos}/{len} transfers, {elapsed_precise} {msg}")
            .expect("a valid template"),
    );
    let next = AtomicUsize::new(0);
    let results = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..args.jobs.unwrap_or(JOBS) {
            scope.spawn(|| {
                while let Some(&place) = queue.get(next.fetch_add(1, Ordering::Relaxed)) {
                    bar.set_message(place.to_string());
                    let run = run_one(place);
                    bar.inc(1);
                    if run.is_err() {
                        // No further case is begun.
                        next.store(queue.len(), Ordering::Relaxed);
                    }
                    results.lock().expect("no worker panics while it holds the results").push((place, run));
                }
            });
        }
    });
    bar.finish_and_clear();
    let mut runs = Runs::new();
    for (place, run) in results.into_inner().expect("no worker panics while it holds the results") {
        runs.entry(place).or_default().push(run.map_err(|error| Box::new((place, error)))?);
    }
    Ok(runs)
}

/// Prints or writes the report as the arguments say. Fails if a cell misses what it has to reach.
pub(super) fn conclude(args: &ConformanceArgs, report: &impl GridReport) -> ExitCode {
    let written = write(args, report);
    if report.is_sound() { written } else { ExitCode::FAILURE }
}

fn write(args: &ConformanceArgs, report: &impl GridReport) -> ExitCode {
    if let Some(path) = &args.csv
        && let Err(error) = std::fs::write(path, report.csv())
    {
        eprintln!("error: {} cannot be written: {error}", path.display());
        return ExitCode::FAILURE;
    }
    let text = match (&args.out, args.json) {
        (None, true) => return print_json(report),
        (None, false) => return print(&report.markdown()),
        (Some(_), true) => serde_json::to_string_pretty(report).map_err(std::io::Error::from),
        (Some(_), false) => Ok(report.markdown()),
    };
    let Some(path) = &args.out else { return ExitCode::SUCCESS };
    match text.and_then(|text| std::fs::write(path, text)) {
        Ok(()) => {
            eprintln!("{}", report.in_a_line());
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: {} cannot be written: {error}", path.display());
            ExitCode::FAILURE
        }
    }
}

/// The command line of this process, for pages.
pub(super) fn command() -> String {
    std::env::args().skip(1).fold("holdover".to_owned(), |command, word| format!("{command} {word}"))
}

/// The lower median; what did not happen comes last. `None` if that is it, or there is nothing.
pub(super) fn median(values: impl Iterator<Item = Option<f64>>) -> Option<f64> {
    let mut values: Vec<f64> = values.map(|value| value.unwrap_or(f64::INFINITY)).collect();
    values.sort_by(f64::total_cmp);
    let middle = values.len().checked_sub(1)? / 2;
    Some(values[middle]).filter(|value| value.is_finite())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_do_not_hide_what_never_happened() {
        assert_eq!(median([Some(3.0), Some(1.0), Some(2.0)].into_iter()), Some(2.0));
        assert_eq!(median([None, Some(1.0), Some(2.0)].into_iter()), Some(2.0));
        assert_eq!(median([None, None, Some(2.0)].into_iter()), None);
        assert_eq!(median(std::iter::empty()), None);
    }
}
