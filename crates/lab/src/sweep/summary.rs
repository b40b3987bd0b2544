//! A sweep in one JSON object: `summary.json`, and what `--json` prints.

use std::collections::BTreeMap;

use holdover_scenario::statistics::{CONFIDENCE, QuantileEstimate};
use serde::Serialize;

use super::compare::{Comparison, tests_made};
use super::estimates::Estimates;
use super::measure::Quantity;
use super::plan::{Finished, Plan};
use super::tables::{self, mean_of};

/// All that a sweep has found. The same scenario, seed and version give the same.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Summary {
    /// The scenario's name.
    pub name: String,
    /// Its title.
    pub title: String,
    /// The version of Holdover.
    pub version: &'static str,
    /// What the seeds of all runs were drawn from.
    pub seed: u64,
    /// The confidence of every interval, and that of the tests.
    pub confidence: f64,
    /// How variants were compared; nothing where none were.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tests: Option<TestsSummary>,
    /// What was varied.
    pub axes: Vec<AxisSummary>,
    /// How often each point was run.
    pub replicate: ReplicateSummary,
    /// All runs that count.
    pub runs: usize,
    /// The points, in order.
    pub points: Vec<PointSummary>,
}

/// An axis of the sweep.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct AxisSummary {
    label: String,
    path: String,
    values: Vec<String>,
}

/// How often each point was run.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct ReplicateSummary {
    /// What was averaged.
    measure: String,
    unit: &'static str,
    relative_error: Option<f64>,
    min: u32,
    max: u32,
}

/// A point of the sweep.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct PointSummary {
    point: usize,
    /// The value on each axis, as it was written.
    at: BTreeMap<String, String>,
    /// The variants, in the scenario's order.
    pub variants: Vec<VariantSummary>,
    /// The comparisons that the sweep asks for.
    pub tests: Vec<TestSummary>,
}

/// A variant at a point.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct VariantSummary {
    /// The variant's name.
    pub variant: String,
    /// Runs that count.
    pub runs: usize,
    /// Whether the bound on the relative error was reached.
    #[serde(skip_serializing_if = "Option::is_none")]
    precise_enough: Option<bool>,
    /// Every quantity that applies, by name.
    measures: BTreeMap<String, MeanSummary>,
}

#[derive(Clone, PartialEq, Debug, Serialize)]
struct MeanSummary {
    unit: &'static str,
    mean: f64,
    /// Half the width of the confidence interval; nothing with fewer than two values.
    half_width: Option<f64>,
    n: u64,
    /// The median and the 95th percentile, of what the sweep is about.
    #[serde(flatten)]
    quantiles: BTreeMap<&'static str, QuantileSummary>,
}

/// A comparison of two variants at a point.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct TestSummary {
    baseline: String,
    /// The variant that is compared with the baseline.
    pub variant: String,
    measure: String,
    unit: &'static str,
    /// `paired` or `welch`.
    test: &'static str,
    /// Pairs of runs with the same seed.
    pairs: u64,
    /// What the comparison comes to: `higher`, `lower`, `inconclusive`, `nothing random varies` or `too few runs`.
    pub verdict: &'static str,
    /// The variant's mean less the baseline's; nothing with too few runs.
    difference: Option<f64>,
    /// The median of the differences within pairs.
    median_difference: Option<QuantileSummary>,
    /// The share of pairs in which the variant's value is the larger one.
    share_higher: Option<f64>,
    /// The t-test; nothing where nothing random varies.
    #[serde(flatten)]
    pub result: Option<TestResult>,
}

/// A t-test.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct TestResult {
    difference_low: f64,
    difference_high: f64,
    /// The difference in standard deviations.
    effect: f64,
    t: f64,
    degrees_of_freedom: f64,
    /// The probability of such a difference by chance.
    pub p: f64,
    /// The same by Holm's correction over all tests of the sweep.
    pub p_holm: Option<f64>,
}

/// A quantile with its bootstrap interval.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct QuantileSummary {
    value: f64,
    low: Option<f64>,
    high: Option<f64>,
}

/// How all comparisons were made.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct TestsSummary {
    /// `paired` or `welch`.
    test: &'static str,
    /// `holm`.
    correction: &'static str,
    /// How many tests the correction is for.
    tests: usize,
}

impl Summary {
    /// What the finished runs of `plan` say.
    pub fn new(plan: &Plan, runs: &[Vec<Finished>], estimates: &Estimates<'_>) -> Self {
        let axes = plan.sweep.axes().iter().map(|axis| AxisSummary {
            label: axis.label.clone(),
            path: axis.path.clone(),
            values: axis.values.iter().map(|value| value.as_str().map_or(value.to_string(), str::to_owned)).collect(),
        });
        let deciding = &plan.quantities[0];
        let mut points: Vec<PointSummary> = plan
            .points
            .iter()
            .map(|point| PointSummary {
                point: point.index,
                at: point.labels.iter().map(|label| (label.axis.clone(), label.value.clone())).collect(),
                variants: Vec::new(),
                tests: Vec::new(),
            })
            .collect();
        for (index, finished) in runs.iter().enumerate() {
            let cell = plan.cell(index);
            points[cell.point].variants.push(VariantSummary {
                variant: plan.variants[cell.variant].clone(),
                runs: finished.len(),
                precise_enough: tables::precise_enough(plan, &mean_of(finished, 0)),
                measures: measures(plan, index, finished, estimates),
            });
        }
        let comparisons = &estimates.comparisons;
        let tests = plan.compare().map(|compare| TestsSummary {
            test: compare.method.name(),
            correction: "holm",
            tests: tests_made(comparisons),
        });
        for comparison in comparisons {
            let Some(compare) = plan.compare() else { break };
            let quantity = &plan.quantities[plan.quantity(&compare.measure)];
            points[comparison.point].tests.push(TestSummary::new(comparison, quantity));
        }
        Self {
            name: plan.name().to_owned(),
            title: plan.scenario.title().to_owned(),
            version: env!("CARGO_PKG_VERSION"),
            seed: plan.scenario.seed(),
            confidence: CONFIDENCE,
            tests,
            axes: axes.collect(),
            replicate: ReplicateSummary {
                measure: deciding.name(),
                unit: deciding.unit(),
                relative_error: plan.stop.relative_error,
                min: plan.stop.min,
                max: plan.stop.max,
            },
            runs: runs.iter().map(Vec::len).sum(),
            points,
        }
    }

    /// The summary as JSON, indented, with a newline at the end.
    pub fn to_json(&self) -> Result<String, serde_json::Error> {
        serde_json::to_string_pretty(self).map(|json| json + "\n")
    }
}

impl TestSummary {
    fn new(comparison: &Comparison<'_>, quantity: &Quantity) -> Self {
        let difference = comparison.found.map(|found| found.difference);
        let test = comparison.found.and_then(|found| found.test);
        Self {
            baseline: comparison.baseline.to_owned(),
            variant: comparison.variant.to_owned(),
            measure: quantity.name(),
            unit: quantity.unit(),
            test: comparison.method.name(),
            pairs: comparison.pairs,
            verdict: comparison.verdict.name(),
            difference,
            median_difference: comparison.median.map(QuantileSummary::new),
            share_higher: comparison.share_higher,
            result: difference.zip(test).map(|(difference, test)| TestResult {
                difference_low: difference - test.half_width,
                difference_high: difference + test.half_width,
                effect: test.effect,
                t: test.t,
                degrees_of_freedom: test.degrees_of_freedom,
                p: test.p,
                p_holm: comparison.p_holm,
            }),
        }
    }
}

impl QuantileSummary {
    fn new(estimate: QuantileEstimate) -> Self {
        let (low, high) = estimate.interval.unzip();
        Self { value: estimate.value, low, high }
    }
}

fn measures(
    plan: &Plan,
    cell: usize,
    finished: &[Finished],
    estimates: &Estimates<'_>,
) -> BTreeMap<String, MeanSummary> {
    let in_full = plan.measured_in_full();
    let mut measures = BTreeMap::new();
    for (index, quantity) in plan.quantities.iter().enumerate() {
        let mean = mean_of(finished, index);
        if mean.count() == 0 {
            continue;
        }
        let mut quantiles = BTreeMap::new();
        if in_full.contains(&index) {
            let estimates = estimates.quantiles(plan, cell, index);
            quantiles.extend(estimates.filter_map(|(name, estimate)| Some((name, QuantileSummary::new(estimate?)))));
        }
        measures.insert(
            quantity.name(),
            MeanSummary {
                unit: quantity.unit(),
                mean: mean.mean(),
                half_width: mean.half_width(),
                n: mean.count(),
                quantiles,
            },
        );
    }
    measures
}
