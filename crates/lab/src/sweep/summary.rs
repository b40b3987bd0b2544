//! A sweep as one JSON object: `summary.json` and the output of `--json`.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::{self, Write};

use holdover_scenario::statistics::{CONFIDENCE, QuantileEstimate};
use serde::{Serialize, Serializer};
use serde_json::value::RawValue;

use super::columns::QUANTILES;
use super::compare::Comparison;
use super::findings::{CellFindings, Findings, PointFindings};
use super::measure::Quantity;
use super::plan::Plan;

/// The results of a sweep, a function of scenario, seed and version.
///
/// `P` is the list of its points, which may be produced while they are written.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Summary<P> {
    /// The scenario's name.
    pub name: String,
    /// Its title.
    pub title: String,
    /// The version of Holdover.
    pub version: &'static str,
    /// The seed from which those of all runs are derived.
    pub seed: u64,
    /// The confidence of every interval, and of the tests.
    pub confidence: f64,
    /// The comparison method; absent without comparisons.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tests: Option<TestsSummary>,
    /// The axes.
    pub axes: Vec<AxisSummary>,
    /// The replication.
    pub replicate: ReplicateSummary,
    /// The number of counted runs.
    pub runs: usize,
    /// The points, in order.
    pub points: P,
}

/// An axis of the sweep.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct AxisSummary {
    label: String,
    path: String,
    values: Vec<String>,
}

/// The replication of each point.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct ReplicateSummary {
    /// The deciding quantity.
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
    /// The value on each axis, as written.
    at: BTreeMap<String, String>,
    /// The variants, in the scenario's order.
    pub variants: Vec<VariantSummary>,
    /// The comparisons of the sweep.
    pub tests: Vec<TestSummary>,
}

/// A variant at a point.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct VariantSummary {
    /// The variant's name.
    pub variant: String,
    /// The number of counted runs.
    pub runs: usize,
    /// The number of runs in which every finite flow completed.
    pub completed: usize,
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
    /// Half the width of the confidence interval; absent with fewer than two values.
    half_width: Option<f64>,
    n: u64,
    /// The median and the 95th percentile, for the main quantities.
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
    /// The number of pairs of runs with the same seed.
    pairs: u64,
    /// The verdict: `higher`, `lower`, `inconclusive`, `nothing random varies` or `too few runs`.
    pub verdict: &'static str,
    /// The variant's mean minus the baseline's; absent with too few runs.
    difference: Option<f64>,
    /// The median of the differences within pairs.
    median_difference: Option<QuantileSummary>,
    /// The share of pairs in which the variant has the larger value.
    share_higher: Option<f64>,
    /// The t-test; absent without randomness.
    #[serde(flatten)]
    pub result: Option<TestResult>,
}

/// A t-test.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct TestResult {
    difference_low: f64,
    difference_high: f64,
    /// The difference in standard deviations.
    effect: Option<f64>,
    t: f64,
    degrees_of_freedom: f64,
    /// The probability of such a difference by chance.
    pub p: f64,
    /// The p-value corrected by Holm's method over all tests of the sweep.
    pub p_holm: Option<f64>,
}

/// A quantile with its bootstrap interval.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct QuantileSummary {
    value: f64,
    low: Option<f64>,
    high: Option<f64>,
}

/// The method of all comparisons.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct TestsSummary {
    /// `paired` or `welch`.
    test: &'static str,
    /// `holm`.
    correction: &'static str,
    /// The number of tests corrected for.
    tests: usize,
}

impl<P> Summary<P> {
    /// The summary of a sweep, with these points.
    pub fn new(plan: &Plan, findings: &Findings<'_>, points: P) -> Self {
        let axes = plan.sweep.axes().iter().map(|axis| AxisSummary {
            label: axis.label.clone(),
            path: axis.path.clone(),
            values: axis.values.iter().map(|value| value.as_str().map_or(value.to_string(), str::to_owned)).collect(),
        });
        let deciding = &plan.quantities[0];
        let tests = plan.compare().map(|compare| TestsSummary {
            test: compare.method.name(),
            correction: "holm",
            tests: findings.tests_made(),
        });
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
            runs: findings.runs(),
            points,
        }
    }
}

impl<P: Serialize> Summary<P> {
    /// Writes the summary as indented JSON with a final newline.
    ///
    /// # Errors
    ///
    /// If `out` cannot be written.
    pub fn write_json(&self, mut out: impl Write) -> io::Result<()> {
        serde_json::to_writer_pretty(&mut out, self)?;
        out.write_all(b"\n")
    }
}

/// A list produced while it is serialized.
pub(super) struct Lazily<I>(RefCell<I>);

impl<I> Lazily<I> {
    /// The list of `items`. It can be serialized once.
    pub(super) const fn new(items: I) -> Self {
        Self(RefCell::new(items))
    }
}

impl<I: Iterator<Item: Serialize>> Serialize for Lazily<I> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(&mut *self.0.borrow_mut())
    }
}

impl PointSummary {
    /// The point as JSON, indented as an element of [`Summary::points`].
    pub(super) fn to_json(&self) -> serde_json::Result<Box<RawValue>> {
        // JSON strings contain no line ends, so leading blanks are indentation.
        RawValue::from_string(serde_json::to_string_pretty(self)?.replace('\n', "\n    "))
    }

    /// The summary of a point.
    pub fn new(plan: &Plan, found: &PointFindings<'_>) -> Self {
        let variants = found.cells.iter().zip(&plan.variants).map(|(cell, variant)| VariantSummary {
            variant: variant.clone(),
            runs: cell.runs,
            precise_enough: cell.precise_enough(plan),
            completed: cell.completed,
            measures: measures(plan, cell),
        });
        let compared = plan.compare().map(|compare| &plan.quantities[plan.quantity(&compare.measure)]);
        let tests = |quantity| found.comparisons.iter().map(move |comparison| TestSummary::new(comparison, quantity));
        Self {
            point: found.point.index,
            at: found.point.labels.iter().map(|label| (label.axis.clone(), label.value.clone())).collect(),
            variants: variants.collect(),
            tests: compared.into_iter().flat_map(tests).collect(),
        }
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

fn measures(plan: &Plan, cell: &CellFindings) -> BTreeMap<String, MeanSummary> {
    let in_full = plan.measured_in_full();
    let mut measures = BTreeMap::new();
    for (index, (quantity, mean)) in plan.quantities.iter().zip(&cell.means).enumerate() {
        if mean.count() == 0 {
            continue;
        }
        let place = in_full.iter().position(|&other| other == index);
        let estimates = place.and_then(|place| cell.quantiles.get(place)).into_iter().flatten();
        let named = QUANTILES.iter().zip(estimates);
        let quantiles = named.filter_map(|((name, _), estimate)| Some((*name, QuantileSummary::new((*estimate)?))));
        measures.insert(
            quantity.name(),
            MeanSummary {
                unit: quantity.unit(),
                mean: mean.mean(),
                half_width: mean.half_width(),
                n: mean.count(),
                quantiles: quantiles.collect(),
            },
        );
    }
    measures
}
