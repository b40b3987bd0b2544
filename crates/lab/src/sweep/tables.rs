//! The tables of a sweep: runs, points and tests.

use holdover_scenario::statistics::QuantileEstimate;
use holdover_scenario::{Point, Sweep};

use super::findings::{PointFindings, QUANTILES};
use super::journal::Row;
use super::measure::{Quantity, unit_suffix};
use super::plan::{Plan, relative_error};
use super::table::{Columns, FLOW_COLUMNS, Kind, Value};

/// The columns of the table of runs, with one row per flow and run.
pub fn runs_columns(axes: &AxisColumns) -> Columns {
    let mut columns = axes.columns();
    columns.extend(RUN_COLUMNS.map(|(name, kind)| (name.to_owned(), kind)));
    columns.extend(FLOW_COLUMNS.iter().map(|(name, kind, _)| ((*name).to_owned(), *kind)));
    columns
}

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

/// The label of an axis that collides with the name of another column, if there is one.
pub fn label_in_the_way(sweep: &Sweep, quantities: &[Quantity]) -> Option<String> {
    let axes = AxisColumns::new(sweep).columns();
    let names = axes.iter().map(|(name, _)| name.as_str()).skip(1);
    let fixed = |name: &str| {
        name == POINT
            || RUN_COLUMNS.iter().chain(&POINT_COLUMNS).any(|(column, _)| *column == name)
            || FLOW_COLUMNS.iter().any(|(column, _, _)| *column == name)
            || quantities.iter().any(|quantity| {
                [quantity.column("mean"), quantity.column("half_width"), format!("{}_n", quantity.name())]
                    .contains(&name.to_owned())
                    || test_columns(quantity)
                        .iter()
                        .chain(&quantile_columns(quantity))
                        .any(|(column, _)| column == name)
            })
    };
    let twice = |name: &str| axes.iter().filter(|(column, _)| column == name).count() > 1;
    names.into_iter().find(|name| fixed(name) || twice(name)).map(str::to_owned)
}

const POINT: &str = "point";

const RUN_COLUMNS: [(&str, Kind); 5] = [
    ("variant", Kind::Text),
    ("run", Kind::Integer),
    ("seed", Kind::Integer),
    ("ending", Kind::Text),
    ("ended_at_s", Kind::Real),
];

const POINT_COLUMNS: [(&str, Kind); 4] =
    [("variant", Kind::Text), ("runs", Kind::Integer), ("relative_error", Kind::Real), ("precise_enough", Kind::Flag)];

fn quantile_columns(quantity: &Quantity) -> Vec<(String, Kind)> {
    let ends = |name: &str| ["", "_low", "_high"].map(|end| (quantity.column(&format!("{name}{end}")), Kind::Real));
    QUANTILES.iter().flat_map(|(name, _)| ends(name)).collect()
}

fn test_columns(quantity: &Quantity) -> Vec<(String, Kind)> {
    let of_quantity = |statistic: &str| (quantity.column(statistic), Kind::Real);
    let plain = |name: &str, kind| (name.to_owned(), kind);
    vec![
        plain("baseline", Kind::Text),
        plain("variant", Kind::Text),
        plain("test", Kind::Text),
        plain("baseline_n", Kind::Integer),
        plain("variant_n", Kind::Integer),
        plain("pairs", Kind::Integer),
        of_quantity("baseline_mean"),
        of_quantity("variant_mean"),
        of_quantity("difference"),
        of_quantity("difference_low"),
        of_quantity("difference_high"),
        of_quantity("median_difference"),
        of_quantity("median_difference_low"),
        of_quantity("median_difference_high"),
        plain("effect", Kind::Real),
        plain("share_higher", Kind::Real),
        plain("t", Kind::Real),
        plain("degrees_of_freedom", Kind::Real),
        plain("p", Kind::Real),
        plain("p_holm", Kind::Real),
        plain("verdict", Kind::Text),
    ]
}

/// The axes in tables: each as written and, if its values have a unit, as a number in the base unit.
#[derive(Debug)]
pub struct AxisColumns {
    axes: Vec<(String, Option<String>)>,
}

impl AxisColumns {
    /// The columns of the axes of `sweep`.
    pub fn new(sweep: &Sweep) -> Self {
        let number = |label: &str, values: &[toml::Value]| {
            let units: Option<Vec<_>> = values.iter().map(|value| unit_suffix(value.as_str()?)).collect();
            let unit = units?.into_iter().reduce(|a, b| if a == b { a } else { "" }).filter(|unit| !unit.is_empty())?;
            Some(format!("{label}_{unit}"))
        };
        let axes = sweep.axes().iter().map(|axis| (axis.label.clone(), number(&axis.label, &axis.values)));
        Self { axes: axes.collect() }
    }

    fn columns(&self) -> Vec<(String, Kind)> {
        let mut columns = vec![(POINT.to_owned(), Kind::Integer)];
        for (label, number) in &self.axes {
            columns.push((label.clone(), Kind::Text));
            columns.extend(number.iter().map(|name| (name.clone(), Kind::Real)));
        }
        columns
    }

    /// The cells of a point in these columns.
    pub(super) fn cells(&self, point: &Point) -> Vec<Value> {
        let mut cells = vec![Value::Integer(point.index as u64)];
        for ((_, number), label) in self.axes.iter().zip(&point.labels) {
            cells.push(label.value.as_str().into());
            if number.is_some() {
                cells.push(label.number.into());
            }
        }
        cells
    }
}
