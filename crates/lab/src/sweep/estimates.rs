//! What takes time when all runs are finished: bootstrap intervals. They are made once, on several threads; each has a stream of random
//! numbers of its own, so that the threads do not matter.

use holdover_scenario::statistics::QuantileEstimate;

use super::compare::{Comparison, bootstrap_stream, comparisons};
use super::plan::{Finished, Plan};
use super::tables::QUANTILES;
use crate::run::in_parallel;

/// The estimates that both the tables and the summary of a sweep have.
#[derive(Debug)]
pub struct Estimates<'a> {
    /// For each cell, and each quantity that is measured in full, its quantiles.
    quantiles: Vec<Vec<Quantiles>>,
    /// The comparisons that the sweep asks for.
    pub(super) comparisons: Vec<Comparison<'a>>,
}

/// The [quantiles](QUANTILES) of a quantity over the runs of a cell.
type Quantiles = [Option<QuantileEstimate>; QUANTILES.len()];

impl<'a> Estimates<'a> {
    /// Estimates of the finished runs of `plan`.
    pub fn new(plan: &'a Plan, runs: &[Vec<Finished>]) -> Self {
        let in_full = plan.measured_in_full();
        let jobs = std::thread::available_parallelism().map_or(1, usize::from);
        let of_cell = |cell: usize| {
            in_full.iter().map(|&quantity| quantiles(plan, cell, &runs[cell], quantity)).collect::<Vec<Quantiles>>()
        };
        let quantiles = in_parallel(runs.len(), jobs, of_cell, || {});
        Self { quantiles, comparisons: comparisons(plan, runs, jobs) }
    }

    /// The comparisons that the sweep asks for, in the order of points and variants.
    pub fn comparisons(&self) -> &[Comparison<'a>] {
        &self.comparisons
    }

    /// The quantiles of a quantity that is measured in full, with their names.
    pub fn quantiles(
        &self,
        plan: &Plan,
        cell: usize,
        quantity: usize,
    ) -> impl Iterator<Item = (&'static str, Option<QuantileEstimate>)> {
        let place = plan.measured_in_full().iter().position(|&other| other == quantity);
        let found = place.and_then(|place| self.quantiles.get(cell)?.get(place)).copied().unwrap_or_default();
        QUANTILES.into_iter().map(|(name, _)| name).zip(found)
    }
}

fn quantiles(plan: &Plan, cell: usize, runs: &[Finished], quantity: usize) -> Quantiles {
    let values: Vec<f64> = runs.iter().filter_map(|run| run.values[quantity]).collect();
    let name = plan.quantities[quantity].name();
    let mut rng = bootstrap_stream(plan, &format!("{name} in cell {cell}"));
    QUANTILES.map(|(_, q)| QuantileEstimate::new(&values, q, &mut rng))
}
