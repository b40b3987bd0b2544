//! The results of a grid: its cells, the bounds that they miss, and the runs that could not be made.

use std::fmt::Write as _;

use serde::Serialize;

use crate::grid::Failure;

/// The runs at a place, and what they come to.
pub(super) trait GridCell {
    /// A run, as tables have it.
    type Run;

    /// Its runs.
    fn runs(&self) -> &[Self::Run];

    /// Whether it has bounds. The others are for comparison.
    fn has_bounds(&self) -> bool;

    /// The bounds that it misses.
    fn missed(&self) -> &[String];
}

/// The cells, in the order of the page, and the runs that could not be made.
#[derive(Debug, Serialize)]
pub(super) struct Results<C> {
    cells: Vec<C>,
    failures: Vec<Failure>,
}

impl<C: GridCell> Results<C> {
    pub(super) const fn new(cells: Vec<C>, failures: Vec<Failure>) -> Self {
        Self { cells, failures }
    }

    pub(super) fn cells(&self) -> &[C] {
        &self.cells
    }

    pub(super) fn failures(&self) -> &[Failure] {
        &self.failures
    }

    /// The cells with bounds.
    pub(super) fn bounded(&self) -> impl Iterator<Item = &C> {
        self.cells.iter().filter(|cell| cell.has_bounds())
    }

    /// Their runs.
    pub(super) fn bounded_runs(&self) -> impl Iterator<Item = &C::Run> {
        self.bounded().flat_map(|cell| cell.runs())
    }

    /// The number of runs of a cell, of which some may have failed elsewhere.
    pub(super) fn repetitions(&self) -> usize {
        self.cells.iter().map(|cell| cell.runs().len()).max().unwrap_or(0)
    }

    /// Whether every run was made and every cell meets its bounds.
    pub(super) fn are_sound(&self) -> bool {
        self.failures.is_empty() && self.cells.iter().all(|cell| cell.missed().is_empty())
    }

    /// How many of the cells with bounds meet them, as in `7 of 9`.
    pub(super) fn share_that_meets_bounds(&self) -> String {
        let meeting = self.bounded().filter(|cell| cell.missed().is_empty()).count();
        format!("{meeting} of {}", self.bounded().count())
    }

    /// A table with a line for each run: the fields of its cell, its number from 1 on, and its own fields.
    pub(super) fn csv(
        &self,
        header: &str,
        of_cell: impl Fn(&C) -> String,
        of_run: impl Fn(&C, &C::Run) -> String,
    ) -> String {
        let mut text = format!("{header}\n");
        for cell in &self.cells {
            let fields = of_cell(cell);
            for (number, run) in (1..).zip(cell.runs()) {
                let _ = writeln!(text, "{fields},{number},{}", of_run(cell, run));
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Cell {
        runs: Vec<u32>,
        missed: Vec<String>,
        has_bounds: bool,
    }

    impl GridCell for Cell {
        type Run = u32;

        fn runs(&self) -> &[u32] {
            &self.runs
        }

        fn has_bounds(&self) -> bool {
            self.has_bounds
        }

        fn missed(&self) -> &[String] {
            &self.missed
        }
    }

    fn cell(runs: &[u32], missed: &[&str], has_bounds: bool) -> Cell {
        Cell { runs: runs.to_vec(), missed: missed.iter().map(|&text| text.to_owned()).collect(), has_bounds }
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
            |cell| cell.has_bounds.to_string(),
            |cell, run| format!("{run} of {}", cell.runs.len()),
        );
        assert_eq!(table, "bounds,run,value\nfalse,1,7 of 2\nfalse,2,8 of 2\ntrue,1,9 of 1\n");
    }
}
