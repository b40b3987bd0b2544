//! Tables of a page without published counterpart: the variants of a scenario at one place, and properties in words.

use std::collections::BTreeMap;

use holdover_scenario::Metric;
use serde::Deserialize;

use super::results::{Cell, Results};
use super::script::short;
use crate::sweep::Plan;

/// A table of metrics with a row for each variant, at one place of the sweep or along one axis.
#[derive(Clone, Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub struct Matrix {
    /// The title.
    pub title: String,
    /// The value on each axis, as written in the scenario.
    pub at: BTreeMap<String, String>,
    /// An axis without a value in `at`: each metric has a column for each of its values.
    pub across: Option<String>,
    /// The metrics.
    pub metrics: Vec<String>,
}

/// A table of properties in words.
#[derive(Clone, Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub struct Facts {
    /// The title.
    pub title: String,
    /// The source of the properties.
    pub source: String,
    /// The headings of the columns.
    pub heading: Vec<String>,
    /// The rows, each with a cell for each heading.
    pub rows: Vec<Vec<String>>,
}

impl Facts {
    /// Refuses rows of another length than the heading.
    pub(super) fn check(&self) -> Result<(), String> {
        match self.rows.iter().find(|row| row.len() != self.heading.len()) {
            Some(row) => Err(format!(
                "a row of the facts \"{}\" has {} cells for {} headings: {}",
                self.title,
                row.len(),
                self.heading.len(),
                row.join(", ")
            )),
            None => Ok(()),
        }
    }
}

impl Matrix {
    /// Refuses places and metrics that the scenario does not have.
    pub(super) fn check(&self, plan: &Plan) -> Result<(), String> {
        let labels = plan.point(0).labels;
        let axes: Vec<&str> = labels.iter().map(|label| label.axis.as_str()).collect();
        if let Some(across) = self.across.as_ref().filter(|across| !axes.contains(&across.as_str())) {
            let known = axes.join(", ");
            return Err(format!(
                "the table \"{}\" is across \"{across}\", which is no axis; there are: {known}",
                self.title
            ));
        }
        let is_placed = |axis: &str| self.at.contains_key(axis) != (self.across.as_deref() == Some(axis));
        if let Some(axis) = axes.iter().find(|axis| !is_placed(axis)) {
            return Err(format!(
                "the table \"{}\" needs a value for the axis \"{axis}\", or to go across it",
                self.title
            ));
        }
        for (axis, value) in &self.at {
            if !axes.contains(&axis.as_str()) {
                let known = axes.join(", ");
                return Err(format!(
                    "the table \"{}\" is at \"{axis}\", which is no axis; there are: {known}",
                    self.title
                ));
            }
            let points = (0..plan.points()).map(|point| plan.point(point));
            let mut values = points.flat_map(|point| point.labels).filter(|label| label.axis == *axis);
            if !values.any(|label| label.value == *value) {
                return Err(format!(
                    "the table \"{}\" is at {axis} = \"{value}\", which is no value of it",
                    self.title
                ));
            }
        }
        let known: Vec<String> = plan.quantity_names().collect();
        match self.metrics.iter().find(|metric| !known.contains(metric)) {
            Some(metric) => {
                Err(format!("the table \"{}\" has a metric \"{metric}\"; there are: {}", self.title, known.join(", ")))
            }
            None => Ok(()),
        }
    }

    /// The headings: the variant, the completed runs, and each metric with its unit; across an axis, the variant, and each metric at each
    /// value.
    pub(super) fn heading(&self, results: &Results) -> Vec<String> {
        let metrics = self.metrics.iter().map(|metric| {
            // The metric of one flow is named `goodput_of_download`.
            let known = Metric::ALL.iter().filter(|known| metric.starts_with(known.name()));
            let unit = known.max_by_key(|known| known.name().len()).map_or("", |known| known.unit());
            let name = metric.replace('_', " ");
            // `bytes retransmitted` has its unit in its name.
            if unit.is_empty() || name.split(' ').any(|word| word == unit) { name } else { format!("{name}, {unit}") }
        });
        let Some(across) = &self.across else {
            return ["variant".to_owned(), "completed".to_owned()].into_iter().chain(metrics).collect();
        };
        let mut heading = vec!["variant".to_owned()];
        for metric in metrics {
            heading.extend(results.written(across).iter().map(|value| format!("{metric}: {value}")));
        }
        heading
    }

    /// A row for each variant: the means over its completed runs.
    pub(super) fn rows(&self, results: &Results) -> Vec<Vec<String>> {
        let is_here = |cell: &&Cell| self.at.iter().all(|(axis, value)| cell.words.get(axis) == Some(value));
        let here: Vec<&Cell> = results.cells.iter().filter(is_here).collect();
        let in_words = |cell: &Cell, metric: &String| cell.mean(metric).map_or_else(|| "–".to_owned(), short);
        let Some(across) = &self.across else {
            let row = |cell: &&Cell| {
                let metrics = self.metrics.iter().map(|metric| in_words(cell, metric));
                let completed = format!("{} of {}", cell.completed, cell.runs);
                [cell.variant.clone(), completed].into_iter().chain(metrics).collect()
            };
            return here.iter().map(row).collect();
        };
        let mut rows: Vec<Vec<String>> = Vec::new();
        for cell in &here {
            if rows.iter().any(|row| row[0] == cell.variant) {
                continue;
            }
            let mut row = vec![cell.variant.clone()];
            for metric in &self.metrics {
                row.extend(results.written(across).iter().map(|value| {
                    let is_there = |other: &&&Cell| other.words.get(across).is_some_and(|at| at == value);
                    let mut of_variant = here.iter().filter(|other| other.variant == cell.variant);
                    match of_variant.find(is_there) {
                        Some(there) if there.completed < there.runs => {
                            format!("{} of {} completed", there.completed, there.runs)
                        }
                        Some(there) => in_words(there, metric),
                        None => "–".to_owned(),
                    }
                }));
            }
            rows.push(row);
        }
        rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(variant: &str, delay: &str, durations: &[f64], runs: usize) -> Cell {
        Cell {
            variant: variant.to_owned(),
            at: BTreeMap::new(),
            words: [("delay".to_owned(), delay.to_owned())].into(),
            runs,
            completed: durations.len(),
            values: [("longest_pause".to_owned(), durations.to_vec()), ("timeouts".to_owned(), vec![2.0])].into(),
        }
    }

    // Claim: A table of a page has the means of each variant at its place.
    #[test]
    fn a_table_has_the_means_of_each_variant_at_its_place() {
        let matrix = Matrix {
            title: "At 5 s".to_owned(),
            at: [("delay".to_owned(), "5 s".to_owned())].into(),
            across: None,
            metrics: ["longest_pause", "bytes_retransmitted", "timeouts_of_data"].map(str::to_owned).to_vec(),
        };
        let results = Results {
            cells: vec![
                cell("plain", "5 s", &[1.0, 2.0], 3),
                cell("wake", "5 s", &[], 3),
                cell("plain", "9 s", &[7.0], 1),
            ],
        };
        assert_eq!(
            matrix.heading(&results),
            ["variant", "completed", "longest pause, s", "bytes retransmitted", "timeouts of data"]
        );
        assert_eq!(matrix.rows(&results), [["plain", "2 of 3", "1.5", "–", "–"], ["wake", "0 of 3", "–", "–", "–"]]);
    }

    #[test]
    fn a_table_across_an_axis_has_a_column_for_each_value() {
        let matrix = Matrix {
            title: "Over the delay".to_owned(),
            at: BTreeMap::new(),
            across: Some("delay".to_owned()),
            metrics: ["longest_pause", "link_bytes_of_radio"].map(str::to_owned).to_vec(),
        };
        let results = Results {
            cells: vec![
                cell("plain", "5 s", &[1.0, 2.0], 2),
                cell("wake", "5 s", &[4.0], 1),
                cell("plain", "9 s", &[], 3),
                cell("wake", "9 s", &[8.0], 1),
            ],
        };
        assert_eq!(
            matrix.heading(&results),
            [
                "variant",
                "longest pause, s: 5 s",
                "longest pause, s: 9 s",
                "link bytes of radio: 5 s",
                "link bytes of radio: 9 s"
            ]
        );
        assert_eq!(
            matrix.rows(&results),
            [["plain", "1.5", "0 of 3 completed", "–", "0 of 3 completed"], ["wake", "4", "8", "–", "–"]]
        );
    }

    #[test]
    fn a_row_of_facts_has_a_cell_for_each_heading() {
        let facts = |row: &[&str]| Facts {
            title: "What is kept".to_owned(),
            source: "the pages".to_owned(),
            heading: vec!["scheme".to_owned(), "state".to_owned()],
            rows: vec![row.iter().map(|&cell| cell.to_owned()).collect()],
        };
        assert_eq!(facts(&["wake", "none"]).check(), Ok(()));
        assert_eq!(
            facts(&["wake"]).check(),
            Err("a row of the facts \"What is kept\" has 1 cells for 2 headings: wake".to_owned())
        );
    }
}
