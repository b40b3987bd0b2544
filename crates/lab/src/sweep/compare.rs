//! The comparisons of a sweep: each variant with the baseline at each point.

use holdover_base::Rng;
use holdover_scenario::statistics::{Difference, Mean, Method, QuantileEstimate, Verdict, holm};

use super::plan::{Cell, Finished, Plan};
use super::tables::mean_of;
use crate::run::in_parallel;

/// A variant against the baseline, at a point.
#[derive(Clone, Copy, Debug)]
pub struct Comparison<'a> {
    /// The number of the point.
    pub point: usize,
    /// The baseline's name.
    pub baseline: &'a str,
    /// The variant's name.
    pub variant: &'a str,
    /// The test that the sweep asks for.
    pub method: Method,
    /// The baseline's mean and the variant's.
    pub means: [Mean; 2],
    /// How many pairs of runs with the same seed there are.
    pub pairs: u64,
    /// The difference and its test; `None` with too few runs.
    pub found: Option<Difference>,
    /// The test's p-value by Holm's correction over all tests of the sweep.
    pub p_holm: Option<f64>,
    /// What it comes to.
    pub verdict: Verdict,
    /// The share of pairs in which the variant's value is the larger one; equal ones count half.
    pub share_higher: Option<f64>,
    /// The median of the differences within pairs, with its bootstrap interval.
    pub median: Option<QuantileEstimate>,
}

/// All comparisons that the sweep asks for, corrected for their number. The intervals are made on `jobs` threads.
pub(super) fn comparisons<'a>(plan: &'a Plan, runs: &[Vec<Finished>], jobs: usize) -> Vec<Comparison<'a>> {
    let Some(compare) = plan.compare() else { return Vec::new() };
    let quantity = plan.quantity(&compare.measure);
    let cells = (0..plan.points.len()).flat_map(|point| compare.with.iter().map(move |variant| (point, variant)));
    let cells: Vec<(usize, &String)> = cells.collect();
    let one = |index: usize| {
        let (point, variant) = cells[index];
        let runs_of = |name: &str| {
            let variant = plan.variants.iter().position(|variant| variant == name)?;
            Some(&runs[plan.index(Cell { point, variant })])
        };
        let (baseline_runs, variant_runs) = (runs_of(&compare.baseline)?, runs_of(variant)?);
        let means = [mean_of(baseline_runs, quantity), mean_of(variant_runs, quantity)];
        let pairs = baseline_runs.iter().zip(variant_runs);
        let differences: Vec<f64> =
            pairs.filter_map(|(a, b)| Some(b.values[quantity]? - a.values[quantity]?)).collect();
        let found = match compare.method {
            Method::Paired => Difference::paired(differences.iter().copied()),
            Method::Welch => Difference::welch(&means[0], &means[1]),
        };
        let mut rng = bootstrap_stream(plan, &format!("{variant} against {} at {point}", compare.baseline));
        Some(Comparison {
            point,
            baseline: &compare.baseline,
            variant: variant.as_str(),
            method: compare.method,
            means,
            pairs: differences.len() as u64,
            found,
            p_holm: None,
            verdict: Verdict::TooFewRuns,
            share_higher: share_higher(&differences),
            median: QuantileEstimate::new(&differences, 0.5, &mut rng),
        })
    };
    let made = in_parallel(cells.len(), jobs, one, || {});
    let mut all: Vec<Comparison<'_>> = made.into_iter().flatten().collect();
    let p_values: Vec<Option<f64>> = all.iter().map(|comparison| Some(comparison.found?.test?.p)).collect();
    for (comparison, p) in all.iter_mut().zip(holm(&p_values)) {
        comparison.p_holm = p;
        comparison.verdict = Verdict::of(comparison.found.as_ref(), p);
    }
    all
}

/// How many tests the correction is for: those with a p-value.
pub fn tests_made(comparisons: &[Comparison<'_>]) -> usize {
    comparisons.iter().filter(|comparison| comparison.p_holm.is_some()).count()
}

/// How the comparisons were tested, in words: `paired t-test by seed; p by Holm's correction over 4 tests`.
pub fn method_in_words(method: Method, tests: usize) -> String {
    match tests {
        0 => format!("{}; none was made", method.title()),
        1 => format!("{}; one test, which needs no correction", method.title()),
        tests => format!("{}; p by Holm's correction over {tests} tests", method.title()),
    }
}

/// The random numbers of one bootstrap interval: a function of the scenario's seed and of what the interval is for.
pub(super) fn bootstrap_stream(plan: &Plan, what: &str) -> Rng {
    Rng::split(plan.scenario.seed(), &format!("bootstrap of {what}"))
}

fn share_higher(differences: &[f64]) -> Option<f64> {
    let points = |&difference: &f64| if difference == 0.0 { 0.5 } else { f64::from(u8::from(difference > 0.0)) };
    let higher: f64 = differences.iter().map(points).sum();
    (!differences.is_empty()).then(|| higher / differences.len() as f64)
}
