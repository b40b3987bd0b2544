//! The tables of a sweep: every run, every point, every test.

use holdover_scenario::statistics::{Mean, QuantileEstimate};
use holdover_scenario::{Point, Sweep};

use super::estimates::Estimates;
use super::measure::{Quantity, unit_suffix};
use super::plan::{Finished, Plan};
use super::table::{FLOW_COLUMNS, Kind, Table, Value};

/// One row for each flow of each run.
pub fn runs(plan: &Plan, runs: &[Vec<Finished>]) -> Table {
    let axes = AxisColumns::new(&plan.sweep);
    let mut columns = axes.columns();
    columns.extend(RUN_COLUMNS.map(|(name, kind)| (name.to_owned(), kind)));
    columns.extend(FLOW_COLUMNS.iter().map(|(name, kind, _)| ((*name).to_owned(), *kind)));
    let mut rows = Vec::new();
    for (index, finished) in runs.iter().enumerate() {
        let cell = plan.cell(index);
        for (run, finished) in finished.iter().enumerate() {
            let mut start = axes.cells(&plan.points[cell.point]);
            start.push(plan.variants[cell.variant].as_str().into());
            start.extend([Value::Integer(run as u64), finished.seed.into()]);
            start.extend([Value::from(finished.ending.as_str()), finished.ended_at_s.into()]);
            rows.extend(finished.flows.iter().map(|flow| [start.as_slice(), flow].concat()));
        }
    }
    Table { columns, rows }
}

/// The quantiles that stand in the table of points: their names, and where they lie.
pub const QUANTILES: [(&str, f64); 2] = [("median", 0.5), ("p95", 0.95)];

/// One row for each variant at each point: the mean of every quantity, half the width of its confidence interval at 95 %, and
/// of how many runs; of the quantities that decide and that are compared also the [quantiles](QUANTILES) with their bootstrap intervals.
pub fn points(plan: &Plan, runs: &[Vec<Finished>], estimates: &Estimates<'_>) -> Table {
    let axes = AxisColumns::new(&plan.sweep);
    let mut columns = axes.columns();
    columns.extend(POINT_COLUMNS.map(|(name, kind)| (name.to_owned(), kind)));
    for quantity in &plan.quantities {
        columns.push((quantity.column("mean"), Kind::Real));
        columns.push((quantity.column("half_width"), Kind::Real));
        columns.push((format!("{}_n", quantity.name()), Kind::Integer));
    }
    let with_quantiles = plan.measured_in_full();
    for &quantity in &with_quantiles {
        columns.extend(quantile_columns(&plan.quantities[quantity]));
    }
    let rows = runs.iter().enumerate().map(|(index, finished)| {
        let cell = plan.cell(index);
        let mut row = axes.cells(&plan.points[cell.point]);
        row.push(plan.variants[cell.variant].as_str().into());
        let deciding = mean_of(finished, 0);
        row.extend([Value::Integer(finished.len() as u64), deciding.relative_error().into()]);
        row.push(precise_enough(plan, &deciding).map_or(Value::Nothing, Value::Flag));
        for quantity in 0..plan.quantities.len() {
            let mean = mean_of(finished, quantity);
            row.push(if mean.count() > 0 { mean.mean().into() } else { Value::Nothing });
            row.extend([mean.half_width().into(), Value::Integer(mean.count())]);
        }
        for &quantity in &with_quantiles {
            for (_, estimate) in estimates.quantiles(plan, index, quantity) {
                row.extend(quantile_cells(estimate));
            }
        }
        row
    });
    Table { columns, rows: rows.collect() }
}

/// One row for each comparison of a variant with the baseline at a point.
pub fn tests(plan: &Plan, estimates: &Estimates<'_>) -> Option<Table> {
    let compare = plan.compare()?;
    let axes = AxisColumns::new(&plan.sweep);
    let quantity = &plan.quantities[plan.quantity(&compare.measure)];
    let mut columns = axes.columns();
    columns.extend(test_columns(quantity));
    let rows = estimates.comparisons.iter().map(|comparison| {
        let mut row = axes.cells(&plan.points[comparison.point]);
        row.extend([Value::from(comparison.baseline), comparison.variant.into(), comparison.method.name().into()]);
        row.extend(comparison.means.map(|mean| Value::Integer(mean.count())));
        row.push(comparison.pairs.into());
        row.extend(comparison.means.map(|mean| if mean.count() > 0 { mean.mean().into() } else { Value::Nothing }));
        let difference = comparison.found.map(|found| found.difference);
        let test = comparison.found.and_then(|found| found.test);
        let end = |sign: f64| Some(difference? + sign * test?.half_width);
        row.extend([difference, end(-1.0), end(1.0)].map(Value::from));
        row.extend(quantile_cells(comparison.median));
        row.extend([test.map(|test| test.effect), comparison.share_higher].map(Value::from));
        row.extend([test.map(|test| test.t), test.map(|test| test.degrees_of_freedom)].map(Value::from));
        row.extend([test.map(|test| test.p), comparison.p_holm].map(Value::from));
        row.push(comparison.verdict.name().into());
        row
    });
    Some(Table { columns, rows: rows.collect() })
}

/// A quantile and the ends of its interval.
fn quantile_cells(estimate: Option<QuantileEstimate>) -> [Value; 3] {
    let interval = estimate.and_then(|estimate| estimate.interval);
    let value = estimate.map(|estimate| estimate.value);
    [value, interval.map(|(low, _)| low), interval.map(|(_, high)| high)].map(Value::from)
}

/// The mean of a quantity over runs; runs that it does not apply to do not count.
pub fn mean_of(runs: &[Finished], quantity: usize) -> Mean {
    runs.iter().filter_map(|run| run.values[quantity]).collect()
}

/// Whether the bound on the relative error was reached; `None` if there is no bound.
pub fn precise_enough(plan: &Plan, mean: &Mean) -> Option<bool> {
    let bound = plan.stop.relative_error?;
    Some(mean.relative_error().is_some_and(|error| error <= bound))
}

/// The label of an axis that is the name of another column, if there is one.
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

/// How the axes appear in tables: each as it was written, and, where its values have a unit, as a number in the base unit.
struct AxisColumns {
    axes: Vec<(String, Option<String>)>,
}

impl AxisColumns {
    fn new(sweep: &Sweep) -> Self {
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

    fn cells(&self, point: &Point) -> Vec<Value> {
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
