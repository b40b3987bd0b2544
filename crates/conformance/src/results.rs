//! The results of a grid: its cells, the bounds that they miss, and the runs that could not be made.

use std::fmt::Write as _;

use serde::Serialize;

use crate::grid::{Failure, GridPlace, Head};
use crate::page;

/// The runs at a place, as tables have them, and their figures: medians and values derived from them.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(super) struct Cell<P, F, R> {
    #[serde(skip)]
    pub(super) place: P,
    #[serde(flatten)]
    pub(super) figures: F,
    pub(super) runs: Vec<R>,
    /// The bounds that it misses; places for comparison have none.
    pub(super) misses: Vec<String>,
    /// If it misses a bound: the first packets of a typical run after the link's return.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) trace: Vec<String>,
}

impl<P, F, R> Cell<P, F, R> {
    /// Without a verdict.
    pub(super) const fn of_runs(place: P, figures: F, runs: Vec<R>, trace: Vec<String>) -> Self {
        Self { place, figures, runs, misses: Vec::new(), trace }
    }

    /// This cell with the bounds that it misses. One that misses none needs no trace.
    pub(super) fn judged(mut self, misses: Vec<String>) -> Self {
        if misses.is_empty() {
            self.trace.clear();
        }
        Self { misses, ..self }
    }
}

/// The cells, in the order of the page, and the runs that could not be made.
#[derive(Debug, Serialize)]
pub(super) struct Results<C> {
    cells: Vec<C>,
    failures: Vec<Failure>,
}

impl<P: GridPlace, F, R> Results<Cell<P, F, R>> {
    pub(super) const fn new(cells: Vec<Cell<P, F, R>>, failures: Vec<Failure>) -> Self {
        Self { cells, failures }
    }

    pub(super) fn cells(&self) -> &[Cell<P, F, R>] {
        &self.cells
    }

    pub(super) fn failures(&self) -> &[Failure] {
        &self.failures
    }

    /// The cells with bounds.
    pub(super) fn bounded(&self) -> impl Iterator<Item = &Cell<P, F, R>> {
        self.cells.iter().filter(|cell| cell.place.has_bounds())
    }

    /// Their runs.
    pub(super) fn bounded_runs(&self) -> impl Iterator<Item = &R> {
        self.bounded().flat_map(|cell| &cell.runs)
    }

    /// The number of runs of each cell: the most of any cell, as some runs may have failed.
    pub(super) fn repetitions(&self) -> usize {
        self.cells.iter().map(|cell| cell.runs.len()).max().unwrap_or(0)
    }

    /// Whether every run was made and every cell meets its bounds.
    pub(super) fn are_sound(&self) -> bool {
        self.failures.is_empty() && self.cells.iter().all(|cell| cell.misses.is_empty())
    }

    /// How many of the cells with bounds meet them, as in `7 of 9`.
    pub(super) fn share_that_meets_bounds(&self) -> String {
        let meeting = self.bounded().filter(|cell| cell.misses.is_empty()).count();
        format!("{meeting} of {}", self.bounded().count())
    }

    /// The summary line of a grid whose cells with bounds are those with `help`.
    pub(super) fn in_a_line(&self, help: &str, head: &Head) -> String {
        format!("{} cells with {help} reach their bounds, in {} s", self.share_that_meets_bounds(), head.seconds)
    }

    /// The section that names the places that miss bounds.
    pub(super) fn misses(&self) -> String {
        page::misses(self.bounded().map(|cell| (cell.place, &cell.misses[..])))
    }

    /// A table with a line for each run: the fields of its cell, its number from 1 on, and its own fields.
    pub(super) fn csv(
        &self,
        header: &str,
        of_cell: impl Fn(&Cell<P, F, R>) -> String,
        of_run: impl Fn(&Cell<P, F, R>, &R) -> String,
    ) -> String {
        let mut text = format!("{header}\n");
        for cell in &self.cells {
            let fields = of_cell(cell);
            for (number, run) in (1..).zip(&cell.runs) {
                let _ = writeln!(text, "{fields},{number},{}", of_run(cell, run));
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use std::fmt;

    use super::*;

    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
    struct Place {
        has_bounds: bool,
    }

    impl GridPlace for Place {
        fn has_bounds(self) -> bool {
            self.has_bounds
        }
    }

    impl fmt::Display for Place {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "{}", self.has_bounds)
        }
    }

    fn cell(runs: &[u32], misses: &[&str], has_bounds: bool) -> Cell<Place, (), u32> {
        let misses = misses.iter().map(|&text| text.to_owned()).collect();
        Cell::of_runs(Place { has_bounds }, (), runs.to_vec(), vec!["a packet".to_owned()]).judged(misses)
    }

    #[test]
    fn only_cells_with_bounds_count() {
        let cells = vec![cell(&[1, 2], &[], false), cell(&[3], &[], true), cell(&[4, 5, 6], &["too late"], true)];
        let results = Results::new(cells, Vec::new());
        assert_eq!(results.share_that_meets_bounds(), "1 of 2");
        assert_eq!(results.bounded_runs().copied().collect::<Vec<_>>(), [3, 4, 5, 6]);
        assert_eq!(results.repetitions(), 3);
        assert!(!results.are_sound());
    }

    #[test]
    fn a_cell_that_misses_a_bound_keeps_its_trace() {
        assert!(cell(&[1], &[], true).trace.is_empty());
        assert_eq!(cell(&[1], &["too late"], true).trace.len(), 1);
    }

    #[test]
    fn results_are_sound_if_all_was_measured_and_nothing_is_missed() {
        let failure = Failure { place: "2".to_owned(), error: "no such world".to_owned() };
        assert!(Results::new(vec![cell(&[1], &[], true)], Vec::new()).are_sound());
        assert!(!Results::new(vec![cell(&[1], &[], true)], vec![failure]).are_sound());
    }

    #[test]
    fn each_run_is_a_line_of_the_table() {
        let results = Results::new(vec![cell(&[7, 8], &[], false), cell(&[9], &[], true)], Vec::new());
        let table = results.csv(
            "bounds,run,value",
            |cell| cell.place.to_string(),
            |cell, run| format!("{run} of {}", cell.runs.len()),
        );
        assert_eq!(table, "bounds,run,value\nfalse,1,7 of 2\nfalse,2,8 of 2\ntrue,1,9 of 1\n");
    }
}
