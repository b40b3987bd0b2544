//! Holdover's TCP against this machine's kernel, under combinations of settings (`holdover_testbed::matrix`).

mod page;

use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use holdover_tcp::Profile;
use holdover_testbed::matrix::{self, Combination, RunOptions};

use crate::About;
pub use page::Report;
use page::Row;

/// The transfers of a matrix.
#[derive(Clone, Debug)]
pub struct KernelMatrix {
    /// Every combination of settings, instead of a selection that covers every pair of values.
    pub full: bool,
    /// With `full`: the stack of Holdover's side. Without one, combinations take the stacks in turn.
    pub profile: Option<Profile>,
    /// Only combinations whose name contains this.
    pub only: Option<String>,
    /// The number of concurrent transfers, each in its own network namespace.
    pub jobs: u16,
    /// The directory, which exists, for a capture of each transfer that fails (pcapng).
    pub captures: Option<PathBuf>,
    /// Captures of transfers that pass are kept, too.
    pub all_captures: bool,
}

impl KernelMatrix {
    /// The combinations, in the order of the report.
    pub fn combinations(&self) -> Vec<Combination> {
        let mut combinations = if self.full { matrix::every_combination(self.profile) } else { matrix::every_pair() };
        if let Some(text) = &self.only {
            combinations.retain(|combination| combination.to_string().contains(text));
        }
        combinations
    }

    /// Makes a transfer for each combination, several at a time. Calls `ended` after each, from several threads, with whether it passed.
    pub fn measure(&self, combinations: &[Combination], about: About, ended: &(dyn Fn(bool) + Sync)) -> Report {
        let next = AtomicUsize::new(0);
        let rows = Mutex::new(vec![None; combinations.len()]);
        std::thread::scope(|scope| {
            for _ in 0..self.jobs {
                scope.spawn(|| {
                    while let Some((index, combination)) = take(&next, combinations) {
                        let row = self.transfer(combination);
                        ended(row.passed());
                        rows.lock().expect("no worker panics while it holds the rows")[index] = Some(row);
                    }
                });
            }
        });
        let rows = rows.into_inner().expect("no worker panics while it holds the rows");
        let rows = rows.into_iter().map(|row| row.expect("every combination was run")).collect();
        Report::new(self.full, rows, about)
    }

    fn transfer(&self, combination: &Combination) -> Row {
        let capture = self.captures.as_deref().map(|directory| directory.join(format!("{combination}.pcapng")));
        let options = RunOptions { capture: capture.clone(), ..RunOptions::new(combination) };
        let row = match matrix::run(combination, &options) {
            Ok(outcome) => Row::new(combination, Some(Duration::from(outcome.took)), outcome.findings),
            Err(error) => Row::new(combination, None, vec![error.to_string()]),
        };
        if let Some(path) = capture.filter(|_| row.passed() && !self.all_captures) {
            // A capture that stays behind does no harm.
            let _ = std::fs::remove_file(path);
        }
        row
    }
}

fn take<'a>(next: &AtomicUsize, combinations: &'a [Combination]) -> Option<(usize, &'a Combination)> {
    let index = next.fetch_add(1, Ordering::Relaxed);
    combinations.get(index).map(|combination| (index, combination))
}
