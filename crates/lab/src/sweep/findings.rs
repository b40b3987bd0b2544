//! Statistics of a complete sweep, by point.
//!
//! At most a block of points is in memory at a time: their runs are read again from the journal. The expensive bootstrap intervals are
//! computed on several threads; each has its own stream of random numbers, so the result does not depend on the threads.

use std::sync::atomic::{AtomicBool, Ordering};

use holdover_scenario::Point;
use holdover_scenario::statistics::{Mean, QuantileEstimate, holm};

use super::columns::QUANTILES;
use super::compare::{Comparison, bootstrap_stream, comparisons};
use super::finished_runs::FinishedRuns;
use super::plan::{Cell, Finished, Plan, mean_of};
use crate::journal::JournalError;
use crate::run::in_order;

/// The [quantiles](QUANTILES) of a quantity over the runs of a cell.
pub(super) type Quantiles = [Option<QuantileEstimate>; QUANTILES.len()];

/// The statistics of a point.
#[derive(Clone, Debug)]
pub struct PointFindings<'a> {
    /// The point.
    pub point: Point,
    /// The variants, in the scenario's order.
    pub cells: Vec<CellFindings>,
    /// The comparisons of the sweep.
    pub comparisons: Vec<Comparison<'a>>,
}

/// The statistics of a variant at a point.
#[derive(Clone, Debug)]
pub struct CellFindings {
    /// Counted runs.
    pub runs: usize,
    /// Counted runs in which every finite flow completed.
    pub completed: usize,
    /// Whether the runs contain randomness.
    pub is_random: bool,
    /// The mean of each of the plan's quantities over the runs that it applies to.
    pub means: Vec<Mean>,
    /// The quantiles of each quantity that is [measured in full](Plan::measured_in_full).
    pub quantiles: Vec<Quantiles>,
}

/// Errors of the statistics.
#[derive(Debug, thiserror::Error)]
pub enum FindingsError {
    /// Runs cannot be read from the journal.
    #[error("{0}")]
    Journal(#[from] JournalError),
    /// The computation was stopped.
    #[error("interrupted while the results were written; all runs are kept")]
    Stopped,
}

/// The statistics of a complete sweep.
#[derive(Debug)]
pub struct Findings<'a> {
    plan: &'a Plan,
    runs: &'a FinishedRuns,
    jobs: usize,
    stop: &'a AtomicBool,
    /// The p-value of each comparison, corrected by Holm's method over all tests of the sweep.
    p_holm: Vec<Option<f64>>,
}

impl<'a> Findings<'a> {
    /// Computes the statistics of `runs` on `jobs` threads until `stop` is true.
    ///
    /// # Errors
    ///
    /// If runs cannot be read from the journal, or it was stopped.
    pub fn new(
        plan: &'a Plan,
        runs: &'a FinishedRuns,
        jobs: usize,
        stop: &'a AtomicBool,
    ) -> Result<Self, FindingsError> {
        let mut p_values: Vec<Option<f64>> = Vec::new();
        if plan.compare().is_some() {
            let of_point = |point: usize| {
                let all = comparisons(plan, &runs_at(plan, runs, point, stop)?);
                Ok::<_, FindingsError>(
                    all.iter().map(|comparison| Some(comparison.found?.test?.p)).collect::<Vec<Option<f64>>>(),
                )
            };
            in_order(plan.points(), jobs, of_point, |points| {
                for of_point in points {
                    p_values.extend(of_point?);
                }
                Ok::<_, FindingsError>(())
            })?;
        }
        Ok(Self { plan, runs, jobs, stop, p_holm: holm(&p_values) })
    }

    /// The number of tests corrected for: those with a p-value.
    pub fn tests_made(&self) -> usize {
        self.p_holm.iter().flatten().count()
    }

    /// The number of counted runs.
    pub const fn runs(&self) -> usize {
        self.runs.len()
    }

    /// Maps the findings of each point on several threads; `consume` receives the results in the order of the points.
    pub(super) fn in_order<T: Send, R>(
        &self,
        make: impl Fn(Result<PointFindings<'a>, FindingsError>) -> T + Sync,
        consume: impl FnOnce(&mut dyn Iterator<Item = T>) -> R,
    ) -> R {
        in_order(self.plan.points(), self.jobs, |point| make(self.at(point)), consume)
    }

    fn at(&self, index: usize) -> Result<PointFindings<'a>, FindingsError> {
        let runs = runs_at(self.plan, self.runs, index, self.stop)?;
        let cells = runs.iter().enumerate().map(|(variant, runs)| {
            let cell = self.plan.index(Cell { point: index, variant });
            CellFindings::new(self.plan, cell, runs)
        });
        let cells: Vec<CellFindings> = cells.collect();
        let mut comparisons = comparisons(self.plan, &runs);
        let first = index * comparisons.len();
        for (at, comparison) in comparisons.iter_mut().enumerate() {
            let is_random = cells.iter().any(|cell| cell.is_random);
            comparison.correct(self.p_holm.get(first + at).copied().flatten(), is_random);
            comparison.estimate_median(self.plan, index, &runs);
        }
        Ok(PointFindings { point: self.plan.point(index), cells, comparisons })
    }
}

impl CellFindings {
    fn new(plan: &Plan, cell: usize, runs: &[Finished]) -> Self {
        let quantiles = plan.measured_in_full().into_iter().map(|quantity| quantiles(plan, cell, runs, quantity));
        Self {
            runs: runs.len(),
            completed: runs.iter().filter(|run| run.completed).count(),
            is_random: plan.is_random(cell),
            quantiles: quantiles.collect(),
            means: (0..plan.quantities.len()).map(|quantity| mean_of(runs, quantity)).collect(),
        }
    }

    /// Whether the bound on the relative error was reached; `None` if there is no bound.
    pub fn precise_enough(&self, plan: &Plan) -> Option<bool> {
        plan.stop.is_precise(&self.deciding(), self.is_random)
    }

    /// The mean of the quantity that determines the number of runs.
    pub fn deciding(&self) -> Mean {
        self.means.first().copied().unwrap_or_default()
    }
}

/// The runs of each variant at a point.
fn runs_at(
    plan: &Plan,
    runs: &FinishedRuns,
    point: usize,
    stop: &AtomicBool,
) -> Result<Vec<Vec<Finished>>, FindingsError> {
    if stop.load(Ordering::Relaxed) {
        return Err(FindingsError::Stopped);
    }
    let of = |variant| runs.of(plan, plan.index(Cell { point, variant }));
    (0..plan.variants.len()).map(|variant| Ok(of(variant)?)).collect()
}

fn quantiles(plan: &Plan, cell: usize, runs: &[Finished], quantity: usize) -> Quantiles {
    let values: Vec<f64> = runs.iter().filter_map(|run| run.values[quantity]).collect();
    let name = plan.quantities[quantity].name();
    let mut rng = bootstrap_stream(plan, &format!("{name} in cell {cell}"));
    QUANTILES.map(|(_, q)| QuantileEstimate::new(&values, q, &mut rng))
}
