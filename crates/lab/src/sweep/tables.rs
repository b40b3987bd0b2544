//! The tables of a sweep: runs, points and tests.

use holdover_scenario::statistics::QuantileEstimate;

use super::columns::{AxisColumns, POINT_COLUMNS, RUN_COLUMNS, quantile_columns, test_columns};
use super::findings::PointFindings;
use super::journal::Row;
use super::plan::{Plan, relative_error};
use super::table::{Columns, FLOW_COLUMNS, Kind, Value};

/// The rows of a run; `start` has the cells of its point.
pub(super) fn rows_of_run<'a>(start: &'a [Value], run: &'a Row) -> impl Iterator<Item = Vec<Value>> + 'a {
    run.flows.iter().map(move |flow| {
        let mut row = Vec::with_capacity(start.len() + RUN_COLUMNS.len() + FLOW_COLUMNS.len());
        row.extend_from_slice(start);
        row.extend([run.variant.as_str().into(), Value::Integer(run.run.into()), run.seed.into()]);
        row.extend([Value::from(run.ending.as_str()), run.ended_at_s.into()]);
        row.extend(FLOW_COLUMNS.iter().map(|(_, _, cell)| cell(flow)));
        row
    })
}

/// The columns of the table of points, with one row per variant and point: for every quantity its mean, the half-width of the 95 %
/// confidence interval and the number of runs; for the main quantities also the quantiles with their bootstrap intervals.
pub fn points_columns(plan: &Plan, axes: &AxisColumns) -> Columns {
    let mut columns = axes.columns();
    columns.extend(POINT_COLUMNS.map(|(name, kind)| (name.to_owned(), kind)));
    for quantity in &plan.quantities {
        columns.push((quantity.column("mean"), Kind::Real));
        columns.push((quantity.column("half_width"), Kind::Real));
        columns.push((format!("{}_n", quantity.name()), Kind::Integer));
    }
    for quantity in plan.measured_in_full() {
        columns.extend(quantile_columns(&plan.quantities[quantity]));
    }
    columns
}

/// The rows of a point; `start` has its cells.
pub(super) fn rows_of_point<'a>(
    plan: &'a Plan,
    start: &'a [Value],
    found: &'a PointFindings<'_>,
) -> impl Iterator<Item = Vec<Value>> + 'a {
    found.cells.iter().zip(&plan.variants).map(move |(cell, variant)| {
        let mut row = start.to_vec();
        let deciding = cell.deciding();
        row.push(variant.as_str().into());
        row.extend([Value::Integer(cell.runs as u64), relative_error(&deciding, cell.is_random).into()]);
        row.push(cell.precise_enough(plan).map_or(Value::Nothing, Value::Flag));
        for mean in &cell.means {
            row.push(if mean.count() > 0 { mean.mean().into() } else { Value::Nothing });
            row.extend([mean.half_width().into(), Value::Integer(mean.count())]);
        }
        row.extend(cell.quantiles.iter().flatten().flat_map(|&estimate| quantile_cells(estimate)));
        row
    })
}

/// The columns of the table of tests, with one row per comparison of a variant with the baseline at a point; `None` without comparisons.
pub fn tests_columns(plan: &Plan, axes: &AxisColumns) -> Option<Columns> {
    let compare = plan.compare()?;
    let mut columns = axes.columns();
    columns.extend(test_columns(&plan.quantities[plan.quantity(&compare.measure)]));
    Some(columns)
}

/// The rows of a point's comparisons; `start` has its cells.
pub(super) fn rows_of_tests<'a>(
    start: &'a [Value],
    found: &'a PointFindings<'_>,
) -> impl Iterator<Item = Vec<Value>> + 'a {
    found.comparisons.iter().map(move |comparison| {
        let mut row = start.to_vec();
        row.extend([Value::from(comparison.baseline), comparison.variant.into(), comparison.method.name().into()]);
        row.extend(comparison.means.map(|mean| Value::Integer(mean.count())));
        row.push(comparison.pairs.into());
        row.extend(comparison.means.map(|mean| if mean.count() > 0 { mean.mean().into() } else { Value::Nothing }));
        let difference = comparison.found.map(|found| found.difference);
        let test = comparison.found.and_then(|found| found.test);
        let end = |sign: f64| Some(difference? + sign * test?.half_width);
        row.extend([difference, end(-1.0), end(1.0)].map(Value::from));
        row.extend(quantile_cells(comparison.median));
        row.extend([test.and_then(|test| test.effect), comparison.share_higher].map(Value::from));
        row.extend([test.map(|test| test.t), test.map(|test| test.degrees_of_freedom)].map(Value::from));
        row.extend([test.map(|test| test.p), comparison.p_holm].map(Value::from));
        row.push(comparison.verdict.name().into());
        row
    })
}

/// A quantile and the bounds of its interval.
fn quantile_cells(estimate: Option<QuantileEstimate>) -> [Value; 3] {
    let interval = estimate.and_then(|estimate| estimate.interval);
    let value = estimate.map(|estimate| estimate.value);
    [value, interval.map(|(low, _)| low), interval.map(|(_, high)| high)].map(Value::from)
}
