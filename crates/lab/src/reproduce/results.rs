//! The results of a scenario by cell.

use std::collections::BTreeMap;

use holdover_report::median;
use holdover_scenario::statistics::Mean;
use serde::Serialize;

use crate::sweep::{Finished, FinishedRuns, JournalError, Plan};

/// The results of a scenario.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Results {
    /// The cells, in the order of points and variants.
    pub cells: Vec<Cell>,
}

/// A variant at a point.
#[derive(Clone, Debug, Serialize)]
pub struct Cell {
    /// The variant's name.
    pub variant: String,
    /// Its position on each axis, by the axis' label, in base units; words are omitted.
    pub at: BTreeMap<String, f64>,
    /// The position as written.
    pub words: BTreeMap<String, String>,
    /// Runs made.
    pub runs: usize,
    /// Runs in which every finite flow completed.
    pub completed: usize,
    /// The values of each metric, by its name (`goodput`, `goodput_of_mobile`), one for each completed run.
    pub values: BTreeMap<String, Vec<f64>>,
}

impl Results {
    /// The results of a sweep.
    ///
    /// # Errors
    ///
    /// If its runs cannot be read.
    pub fn new(plan: &Plan, runs: &FinishedRuns) -> Result<Self, JournalError> {
        let cells = (0..plan.cells()).map(|index| {
            let cell = plan.cell(index);
            let labels = plan.point(cell.point).labels;
            let finished = runs.of(plan, index)?;
            let completed: Vec<&Finished> = finished.iter().filter(|run| run.completed).collect();
            let values = plan
                .quantity_names()
                .enumerate()
                .map(|(place, name)| (name, completed.iter().filter_map(|run| run.values[place]).collect()));
            Ok(Cell {
                variant: plan.variants[cell.variant].clone(),
                at: labels.iter().filter_map(|label| Some((label.axis.clone(), label.number?))).collect(),
                words: labels.iter().map(|label| (label.axis.clone(), label.value.clone())).collect(),
                runs: finished.len(),
                completed: completed.len(),
                values: values.collect(),
            })
        });
        Ok(Self { cells: cells.collect::<Result<_, _>>()? })
    }

    /// The combined results of several scenarios, each with its cells' positions on further axes.
    pub fn union<'a>(parts: impl Iterator<Item = (&'a Self, &'a BTreeMap<String, f64>)>) -> Self {
        let mut cells = Vec::new();
        for (results, at) in parts {
            for cell in &results.cells {
                let mut cell = cell.clone();
                cell.at.extend(at.clone());
                cell.words.extend(at.iter().map(|(label, at)| (label.clone(), at.to_string())));
                cells.push(cell);
            }
        }
        Self { cells }
    }

    /// The values on an axis as written, each once, in the order of the cells.
    pub fn written(&self, axis: &str) -> Vec<&str> {
        let mut values = Vec::new();
        for value in self.cells.iter().filter_map(|cell| cell.words.get(axis)) {
            if !values.contains(&value.as_str()) {
                values.push(value);
            }
        }
        values
    }

    /// The cell of `variant` at the position `at` on `axis`, within a thousandth.
    pub fn find(&self, variant: &str, axis: &str, at: f64) -> Option<&Cell> {
        let is_there = |cell: &&Cell| {
            let there = cell.at.get(axis).is_some_and(|place| (place - at).abs() <= at.abs() * 1e-3);
            cell.variant == variant && there
        };
        self.cells.iter().find(is_there)
    }
}

impl Cell {
    /// The median of a metric over the completed runs.
    pub fn median(&self, metric: &str) -> Option<f64> {
        median(self.values.get(metric)?)
    }

    /// The mean of a metric over the completed runs.
    pub fn mean(&self, metric: &str) -> Option<f64> {
        self.statistics(metric).map(|mean| mean.mean())
    }

    /// The mean of a metric over the completed runs, with its confidence interval; `None` without a value.
    pub fn statistics(&self, metric: &str) -> Option<Mean> {
        let mean: Mean = self.values.get(metric)?.iter().copied().collect();
        (mean.count() > 0).then_some(mean)
    }
}
