//! What the runs of a complete sweep say, point by point.
//!
//! No more than a block of points is in memory at a time: their runs are read from the journal again. What takes time beside that, bootstrap
//! intervals, is made on several threads; each interval has a stream of random numbers of its own, so that the threads do not matter.

use holdover_scenario::Point;
use holdover_scenario::statistics::{Mean, QuantileEstimate, holm};

use super::compare::{Comparison, bootstrap_stream, comparisons};
use super::journal::JournalError;
use super::ledger::Runs;
use super::plan::{Cell, Finished, Plan};
use crate::run::in_order;

/// The quantiles that stand in the table of points: their names, and where they lie.
pub(super) const QUANTILES: [(&str, f64); 2] = [("median", 0.5), ("p95", 0.95)];

/// The [quantiles](QUANTILES) of a quantity over the runs of a cell.
pub(super) type Quantiles = [Option<QuantileEstimate>; QUANTILES.len()];

/// What the runs at a point say.
#[derive(Clone, Debug)]
pub struct PointFindings<'a> {
    /// The point.
    pub point: Point,
    /// The variants there, in the scenario's order.
    pub cells: Vec<CellFindings>,
    /// The comparisons that the sweep asks for.
    pub comparisons: Vec<Comparison<'a>>,
}

/// What the runs of a variant at a point say.
#[derive(Clone, Debug)]
pub struct CellFindings {
    /// Runs that count.
    pub runs: usize,
    /// The mean of each of the plan's quantities over runs; those that it does not apply to do not count.
    pub means: Vec<Mean>,
    /// The quantiles of each quantity that is [measured in full](Plan::measured_in_full).
    pub quantiles: Vec<Quantiles>,
}

/// What the runs of a complete sweep say.
#[derive(Debug)]
pub struct Findings<'a> {
    plan: &'a Plan,
    runs: &'a Runs,
    jobs: usize,
    /// Of each comparison, its p-value by Holm's correction over all tests of the sweep.
    p_holm: Vec<Option<f64>>,
}

impl<'a> Findings<'a> {
    /// What `runs` say, found on `jobs` threads.
    ///
    /// # Errors
    ///
    /// If runs cannot be read from the journal.
    pub fn new(plan: &'a Plan, runs: &'a Runs, jobs: usize) -> Result<Self, JournalError> {
        let mut p_values: Vec<Option<f64>> = Vec::new();
        if plan.compare().is_some() {
            let of_point = |point: usize| {
                let all = comparisons(plan, &runs_at(plan, runs, point)?);
                Ok(all.iter().map(|comparison| Some(comparison.found?.test?.p)).collect::<Vec<Option<f64>>>())
            };
            in_order(plan.points(), jobs, of_point, |points| {
                for of_point in points {
                    p_values.extend(of_point?);
                }
                Ok::<_, JournalError>(())
            })?;
        }
        Ok(Self { plan, runs, jobs, p_holm: holm(&p_values) })
    }

    /// How many tests the correction is for: those with a p-value.
    pub fn tests_made(&self) -> usize {
        self.p_holm.iter().flatten().count()
    }

    /// How many runs count.
    pub const fn runs(&self) -> usize {
        self.runs.len()
    }

    /// Makes something of the findings at each point, on several threads; `consume` gets that in the order of the points.
    pub(super) fn in_order<T: Send, R>(
        &self,
        make: impl Fn(Result<PointFindings<'a>, JournalError>) -> T + Sync,
        consume: impl FnOnce(&mut dyn Iterator<Item = T>) -> R,
    ) -> R {
        in_order(self.plan.points(), self.jobs, |point| make(self.at(point)), consume)
    }

    fn at(&self, index: usize) -> Result<PointFindings<'a>, JournalError> {
        let runs = runs_at(self.plan, self.runs, index)?;
        let cells = runs.iter().enumerate().map(|(variant, runs)| {
            let cell = self.plan.index(Cell { point: index, variant });
            CellFindings::new(self.plan, cell, runs)
        });
        let cells = cells.collect();
        let mut comparisons = comparisons(self.plan, &runs);
        let first = index * comparisons.len();
        for (at, comparison) in comparisons.iter_mut().enumerate() {
            comparison.correct(self.p_holm.get(first + at).copied().flatten());
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
            quantiles: quantiles.collect(),
            means: (0..plan.quantities.len()).map(|quantity| mean_of(runs, quantity)).collect(),
        }
    }

    /// The mean of what decides how often each point is run.
    pub fn deciding(&self) -> Mean {
        self.means.first().copied().unwrap_or_default()
    }
}

/// The runs of each variant at a point.
fn runs_at(plan: &Plan, runs: &Runs, point: usize) -> Result<Vec<Vec<Finished>>, JournalError> {
    (0..plan.variants.len()).map(|variant| runs.of(plan, plan.index(Cell { point, variant }))).collect()
}

/// The mean of a quantity over runs; runs that it does not apply to do not count.
pub(super) fn mean_of(runs: &[Finished], quantity: usize) -> Mean {
    runs.iter().filter_map(|run| run.values[quantity]).collect()
}

fn quantiles(plan: &Plan, cell: usize, runs: &[Finished], quantity: usize) -> Quantiles {
    let values: Vec<f64> = runs.iter().filter_map(|run| run.values[quantity]).collect();
    let name = plan.quantities[quantity].name();
    let mut rng = bootstrap_stream(plan, &format!("{name} in cell {cell}"));
    QUANTILES.map(|(_, q)| QuantileEstimate::new(&values, q, &mut rng))
}
