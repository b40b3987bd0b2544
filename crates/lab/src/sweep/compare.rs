//! Comparisons in a sweep: each variant with the baseline at each point.

use holdover_base::Rng;
use holdover_scenario::statistics::{Difference, Mean, Method, QuantileEstimate, Verdict};

use super::plan::{Finished, Plan, mean_of};

/// A comparison of a variant with the baseline at a point.
#[derive(Clone, Copy, Debug)]
pub struct Comparison<'a> {
    /// The baseline's name.
    pub baseline: &'a str,
    /// The variant's name.
    pub variant: &'a str,
    /// The test chosen by the sweep.
    pub method: Method,
    /// The means of the baseline and of the variant.
    pub means: [Mean; 2],
    /// The number of pairs of runs with the same seed.
    pub pairs: u64,
    /// The baseline's mean over the compared runs: those in pairs if the test is paired.
    pub base: f64,
    /// The difference and its test; `None` with too few runs.
    pub found: Option<Difference>,
    /// The test's p-value, corrected by Holm's method over all tests of the sweep.
    pub p_holm: Option<f64>,
    /// The verdict.
    pub verdict: Verdict,
    /// The share of pairs in which the variant has the larger value; ties count half.
    pub share_higher: Option<f64>,
    /// The median of the differences within pairs, with its bootstrap interval.
    pub median: Option<QuantileEstimate>,
}

/// The comparisons at a point, from the `runs` of each variant. Results that require all tests or many random numbers are filled in later.
pub(super) fn comparisons<'a>(plan: &'a Plan, runs: &[Vec<Finished>]) -> Vec<Comparison<'a>> {
    let Some(compare) = plan.compare() else { return Vec::new() };
    let quantity = plan.quantity(&compare.measure);
    let one = |variant: &'a String| {
        let [baseline_runs, variant_runs] = both(plan, runs, &compare.baseline, variant)?;
        let means = [mean_of(baseline_runs, quantity), mean_of(variant_runs, quantity)];
        let differences = differences([baseline_runs, variant_runs], quantity);
        let (found, base) = match compare.method {
            Method::Paired => {
                let in_pairs = pairs([baseline_runs, variant_runs], quantity).map(|[baseline, _]| baseline);
                (Difference::paired(differences.iter().copied()), in_pairs.collect())
            }
            Method::Welch => (Difference::welch(&means[0], &means[1]), means[0]),
        };
        Some(Comparison {
            baseline: &compare.baseline,
            variant: variant.as_str(),
            method: compare.method,
            means,
            pairs: differences.len() as u64,
            base: base.mean(),
            found,
            p_holm: None,
            verdict: Verdict::TooFewRuns,
            share_higher: share_higher(&differences),
            median: None,
        })
    };
    compare.with.iter().filter_map(one).collect()
}

impl Comparison<'_> {
    /// Sets the corrected p-value and the verdict based on it.
    pub(super) fn correct(&mut self, p_holm: Option<f64>, is_random: bool) {
        self.p_holm = p_holm;
        self.verdict = Verdict::of(self.found.as_ref(), p_holm, is_random);
    }

    /// Estimates the median of the differences at the point with this number.
    pub(super) fn estimate_median(&mut self, plan: &Plan, point: usize, runs: &[Vec<Finished>]) {
        let both = both(plan, runs, self.baseline, self.variant);
        let (Some(both), Some(compare)) = (both, plan.compare()) else { return };
        let differences = differences(both, plan.quantity(&compare.measure));
        let mut rng = bootstrap_stream(plan, &format!("{} against {} at {point}", self.variant, self.baseline));
        self.median = QuantileEstimate::new(&differences, 0.5, &mut rng);
    }
}

/// The runs of both variants at a point.
fn both<'a>(plan: &Plan, runs: &'a [Vec<Finished>], baseline: &str, variant: &str) -> Option<[&'a [Finished]; 2]> {
    let of = |name: &str| {
        let at = plan.variants.iter().position(|variant| variant == name)?;
        runs.get(at).map(Vec::as_slice)
    };
    Some([of(baseline)?, of(variant)?])
}

/// The values of the baseline and the variant in runs with the same seed.
fn pairs([baseline, variant]: [&[Finished]; 2], quantity: usize) -> impl Iterator<Item = [f64; 2]> {
    baseline.iter().zip(variant).filter_map(move |(a, b)| Some([a.values[quantity]?, b.values[quantity]?]))
}

/// The differences within these pairs.
fn differences(both: [&[Finished]; 2], quantity: usize) -> Vec<f64> {
    pairs(both, quantity).map(|[baseline, variant]| variant - baseline).collect()
}

/// The test method in words: `paired t-test by seed; p by Holm's correction over 4 tests`.
pub fn method_in_words(method: Method, tests: usize) -> String {
    match tests {
        0 => format!("{}; none was made", method.title()),
        1 => format!("{}; one test, which needs no correction", method.title()),
        tests => format!("{}; p by Holm's correction over {tests} tests", method.title()),
    }
}

/// The random numbers of one bootstrap interval: a function of the scenario's seed and the interval's purpose.
pub(super) fn bootstrap_stream(plan: &Plan, what: &str) -> Rng {
    Rng::split(plan.scenario.seed(), &format!("bootstrap of {what}"))
}

fn share_higher(differences: &[f64]) -> Option<f64> {
    let points = |&difference: &f64| if difference == 0.0 { 0.5 } else { f64::from(u8::from(difference > 0.0)) };
    let higher: f64 = differences.iter().map(points).sum();
    (!differences.is_empty()).then(|| higher / differences.len() as f64)
}
