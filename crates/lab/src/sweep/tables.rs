//! The tables of a sweep: every run, every point, every test.

use holdover_scenario::statistics::{Mean, Welch};
use holdover_scenario::{Point, Sweep};

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

/// One row for each variant at each point: the mean of every quantity, half the width of its confidence interval at 95 %, and
/// of how many runs.
pub fn points(plan: &Plan, runs: &[Vec<Finished>]) -> Table {
    let axes = AxisColumns::new(&plan.sweep);
    let mut columns = axes.columns();
    columns.extend(POINT_COLUMNS.map(|(name, kind)| (name.to_owned(), kind)));
    for quantity in &plan.quantities {
        columns.push((quantity.column("mean"), Kind::Real));
        columns.push((quantity.column("half_width"), Kind::Real));
        columns.push((format!("{}_n", quantity.name()), Kind::Integer));
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
        row
    });
    Table { columns, rows: rows.collect() }
}

/// One row for each comparison of a variant with the baseline at a point, by Welch's t-test.
pub fn tests(plan: &Plan, runs: &[Vec<Finished>]) -> Option<Table> {
    let compare = plan.compare()?;
    let axes = AxisColumns::new(&plan.sweep);
    let quantity = &plan.quantities[plan.quantity(&compare.measure)];
    let mut columns = axes.columns();
    columns.extend(test_columns(quantity));
    let rows = comparisons(plan, runs).into_iter().map(|comparison| {
        let mut row = axes.cells(&plan.points[comparison.point]);
        row.extend([Value::from(comparison.baseline), comparison.variant.into()]);
        row.extend([Value::Integer(comparison.means[0].count()), comparison.means[1].count().into()]);
        row.extend(comparison.means.map(|mean| if mean.count() > 0 { mean.mean().into() } else { Value::Nothing }));
        let test = comparison.welch;
        row.push(test.map(|test| test.difference).into());
        row.push(test.map(|test| test.difference - test.half_width).into());
        row.push(test.map(|test| test.difference + test.half_width).into());
        row.push(test.map(|test| test.t).filter(|t| t.is_finite()).into());
        row.push(test.map(|test| test.degrees_of_freedom).into());
        row.push(test.map(|test| test.p).into());
        row.push(test.map_or(Value::Nothing, |test| Value::Flag(test.is_significant())));
        row
    });
    Some(Table { columns, rows: rows.collect() })
}

/// A variant against the baseline, at a point.
#[derive(Clone, Copy, Debug)]
pub struct Comparison<'a> {
    /// The number of the point.
    pub point: usize,
    /// The baseline's name.
    pub baseline: &'a str,
    /// The variant's name.
    pub variant: &'a str,
    /// The baseline's mean and the variant's.
    pub means: [Mean; 2],
    /// The test; `None` if one of them has fewer than two values.
    pub welch: Option<Welch>,
}

/// All comparisons that the sweep asks for.
pub fn comparisons<'a>(plan: &'a Plan, runs: &[Vec<Finished>]) -> Vec<Comparison<'a>> {
    let Some(compare) = plan.compare() else { return Vec::new() };
    let quantity = plan.quantity(&compare.measure);
    let mut all = Vec::new();
    for point in 0..plan.points.len() {
        let mean_of = |name: &str| {
            let variant = plan.variants.iter().position(|variant| variant == name)?;
            Some(mean_of(&runs[plan.index(super::plan::Cell { point, variant })], quantity))
        };
        let Some(baseline) = mean_of(&compare.baseline) else { continue };
        for variant in &compare.with {
            let Some(mean) = mean_of(variant) else { continue };
            all.push(Comparison {
                point,
                baseline: &compare.baseline,
                variant,
                means: [baseline, mean],
                welch: Welch::compare(&baseline, &mean),
            });
        }
    }
    all
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
                    || test_columns(quantity).iter().any(|(column, _)| column == name)
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

fn test_columns(quantity: &Quantity) -> Vec<(String, Kind)> {
    vec![
        ("baseline".to_owned(), Kind::Text),
        ("variant".to_owned(), Kind::Text),
        ("baseline_n".to_owned(), Kind::Integer),
        ("variant_n".to_owned(), Kind::Integer),
        (quantity.column("baseline_mean"), Kind::Real),
        (quantity.column("variant_mean"), Kind::Real),
        (quantity.column("difference"), Kind::Real),
        (quantity.column("difference_low"), Kind::Real),
        (quantity.column("difference_high"), Kind::Real),
        ("t".to_owned(), Kind::Real),
        ("degrees_of_freedom".to_owned(), Kind::Real),
        ("p".to_owned(), Kind::Real),
        ("significant".to_owned(), Kind::Flag),
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
