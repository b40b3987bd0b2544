//! A sweep in one JSON object: `summary.json`, and what `--json` prints.

use std::collections::BTreeMap;

use holdover_scenario::statistics::{CONFIDENCE, Mean, Welch};
use serde::Serialize;

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

#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
struct MeanSummary {
    unit: &'static str,
    mean: f64,
    /// Half the width of the confidence interval; nothing with fewer than two values.
    half_width: Option<f64>,
    n: u64,
}

/// A comparison of two variants at a point.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct TestSummary {
    baseline: String,
    /// The variant that is compared with the baseline.
    pub variant: String,
    measure: String,
    unit: &'static str,
    /// The variant's mean less the baseline's, and the rest of Welch's t-test; nothing with fewer than two values.
    #[serde(flatten)]
    pub result: Option<TestResult>,
}

/// Welch's t-test.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct TestResult {
    difference: f64,
    difference_low: f64,
    difference_high: f64,
    /// Nothing between two constants that differ.
    t: Option<f64>,
    degrees_of_freedom: f64,
    /// The probability of such a difference by chance.
    pub p: f64,
    /// Whether `p` is below one minus the confidence.
    pub significant: bool,
}

impl Summary {
    /// What the finished runs of `plan` say.
    pub fn new(plan: &Plan, runs: &[Vec<Finished>]) -> Self {
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
                measures: measures(&plan.quantities, finished),
            });
        }
        for comparison in tables::comparisons(plan, runs) {
            let Some(compare) = plan.compare() else { break };
            let quantity = &plan.quantities[plan.quantity(&compare.measure)];
            points[comparison.point].tests.push(TestSummary {
                baseline: comparison.baseline.to_owned(),
                variant: comparison.variant.to_owned(),
                measure: quantity.name(),
                unit: quantity.unit(),
                result: comparison.welch.map(TestResult::new),
            });
        }
        Self {
            name: plan.name().to_owned(),
            title: plan.scenario.title().to_owned(),
            version: env!("CARGO_PKG_VERSION"),
            seed: plan.scenario.seed(),
            confidence: CONFIDENCE,
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

impl TestResult {
    fn new(test: Welch) -> Self {
        Self {
            difference: test.difference,
            difference_low: test.difference - test.half_width,
            difference_high: test.difference + test.half_width,
            t: Some(test.t).filter(|t| t.is_finite()),
            degrees_of_freedom: test.degrees_of_freedom,
            p: test.p,
            significant: test.is_significant(),
        }
    }
}

fn measures(quantities: &[Quantity], finished: &[Finished]) -> BTreeMap<String, MeanSummary> {
    let means = quantities.iter().enumerate().map(|(index, quantity)| (quantity, mean_of(finished, index)));
    means
        .filter(|(_, mean)| mean.count() > 0)
        .map(|(quantity, mean)| (quantity.name(), summary(quantity, &mean)))
        .collect()
}

fn summary(quantity: &Quantity, mean: &Mean) -> MeanSummary {
    MeanSummary { unit: quantity.unit(), mean: mean.mean(), half_width: mean.half_width(), n: mean.count() }
}
