//! The names and types of the columns of a sweep's tables.

use holdover_scenario::{Point, Sweep};

use super::measure::{Quantity, unit_suffix};
use super::table::{Columns, FLOW_COLUMNS, Kind, Value};

/// The quantiles in the table of points, with their names.
pub(super) const QUANTILES: [(&str, f64); 2] = [("median", 0.5), ("p95", 0.95)];

/// The columns of the table of runs, with one row per flow and run.
pub fn runs_columns(axes: &AxisColumns) -> Columns {
    let mut columns = axes.columns();
    columns.extend(RUN_COLUMNS.map(|(name, kind)| (name.to_owned(), kind)));
    columns.extend(FLOW_COLUMNS.iter().map(|(name, kind, _)| ((*name).to_owned(), *kind)));
    columns
}

/// The label of an axis that collides with the name of another column, if there is one.
pub(super) fn label_in_the_way(sweep: &Sweep, quantities: &[Quantity]) -> Option<String> {
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

/// The column of a point's number.
const POINT: &str = "point";

/// The columns of the table of runs about a run.
pub(super) const RUN_COLUMNS: [(&str, Kind); 5] = [
    ("variant", Kind::Text),
    ("run", Kind::Integer),
    ("seed", Kind::Integer),
    ("ending", Kind::Text),
    ("ended_at_s", Kind::Real),
];

/// The columns of the table of points about a variant.
pub(super) const POINT_COLUMNS: [(&str, Kind); 4] =
    [("variant", Kind::Text), ("runs", Kind::Integer), ("relative_error", Kind::Real), ("precise_enough", Kind::Flag)];

pub(super) fn quantile_columns(quantity: &Quantity) -> Vec<(String, Kind)> {
    let ends = |name: &str| ["", "_low", "_high"].map(|end| (quantity.column(&format!("{name}{end}")), Kind::Real));
    QUANTILES.iter().flat_map(|(name, _)| ends(name)).collect()
}

pub(super) fn test_columns(quantity: &Quantity) -> Vec<(String, Kind)> {
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

    pub(super) fn columns(&self) -> Vec<(String, Kind)> {
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
