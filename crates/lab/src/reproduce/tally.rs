//! The treatment of incomplete runs by a check.

use core::fmt;
use std::collections::BTreeMap;

use holdover_scenario::Metric;

/// The treatment of a cell's incomplete runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Treatment {
    /// They are omitted.
    LeftOut,
    /// They count as the worst possible value.
    Worst,
}

/// The cells used by a check.
#[derive(Default, Debug)]
pub(crate) struct Tally(BTreeMap<i64, (i64, i64, Treatment)>);

impl Tally {
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    /// Records that a check uses the cell with this number, with `aborted` of its `runs` incomplete.
    pub(crate) fn note(&mut self, cell: i64, (runs, aborted): (i64, i64), treatment: Treatment) {
        self.0.insert(cell, (runs, aborted, treatment));
    }
}

/// Prints `; 2 of 9 runs were not completed and are left out`, or nothing.
impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let runs: i64 = self.0.values().map(|(runs, ..)| runs).sum();
        for (treatment, words) in [(Treatment::Worst, "count as infinitely slow"), (Treatment::LeftOut, "are left out")]
        {
            let of_it = self.0.values().filter(|(.., as_it_is)| *as_it_is == treatment);
            let aborted: i64 = of_it.map(|(_, aborted, _)| aborted).sum();
            if aborted > 0 {
                write!(f, "; {aborted} of {runs} runs were not completed and {words}")?;
            }
        }
        Ok(())
    }
}

/// The value of a transfer that never completes; `None` for metrics other than times and rates.
pub(crate) fn worst(metric: &str) -> Option<f64> {
    // The metric of one flow is named `goodput_of_download`.
    let named = Metric::ALL.iter().filter(|known| metric.starts_with(known.name()));
    match named.max_by_key(|known| known.name().len())? {
        Metric::Goodput | Metric::NetGoodput | Metric::Throughput | Metric::IdealShare => Some(0.0),
        Metric::Duration
        | Metric::NetDuration
        | Metric::IdleAfterReconnection
        | Metric::ReaddressingTime
        | Metric::ExchangeTime => Some(f64::INFINITY),
        _ => None,
    }
}
