//! Common to the pages and tables of the grids.

use std::fmt::Display;

use holdover_base::Duration;

use crate::grid::{Failure, GridReport, Head};

/// The page of a report, with these sections after its beginning.
pub(super) fn page(title: &str, report: &impl GridReport, head: &Head, how: &str, sections: &[String]) -> String {
    let mut text = format!("# {title}\n\n{head}\n\n**{}.**\n\n{how}\n{}", report.in_a_line(), sections.concat());
    text.truncate(text.trim_end().len());
    text.push('\n');
    text
}

/// A section of a page: its head, up to its rows, and the rows; empty if there are none.
pub(super) fn section(head: &str, rows: impl Iterator<Item = String>) -> String {
    let rows: String = rows.collect();
    if rows.is_empty() { rows } else { format!("{head}{rows}\n") }
}

/// The section that names the runs that could not be made.
pub(super) fn failures(failures: &[Failure]) -> String {
    let rows = failures.iter().map(|failure| format!("- {}: {}\n", failure.place, failure.error));
    section("## Runs that could not be made\n\n", rows)
}

/// The section that names the places that miss bounds.
pub(super) fn misses<'a, P: Display>(all: impl Iterator<Item = (P, &'a [String])>) -> String {
    let missing = all.filter(|(_, misses)| !misses.is_empty());
    section("## Those that miss\n\n", missing.map(|(place, misses)| format!("- {place}: {}\n", misses.join("; "))))
}

/// `text` in bold if it misses a bound.
pub(super) fn marked(misses: bool, text: &str) -> String {
    if misses { format!("**{text}**") } else { text.to_owned() }
}

/// The texts of cells that differ in one thing, as in `3 s → 2 s`.
pub(super) fn compared<C>(cells: &[&C], text: impl Fn(&C) -> String) -> String {
    cells.iter().map(|cell| text(cell)).collect::<Vec<_>>().join(" → ")
}

/// The value that each cell shows for this number of runs.
pub(super) fn medians(runs: usize) -> String {
    if runs == 1 { "one run".to_owned() } else { format!("the median of {runs} runs") }
}

/// A time in milliseconds.
pub(super) fn in_millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// For people; `never` for what did not happen.
pub(super) fn millis_or_never(value: Option<f64>) -> String {
    value.filter(|millis| millis.is_finite()).map_or("never".to_owned(), |millis| format!("{millis:.0} ms"))
}

/// For people; `never` for what did not happen.
pub(super) fn seconds_or_never(value: Option<f64>) -> String {
    value.map_or("never".to_owned(), |seconds| format!("{seconds:.2} s"))
}

/// A field of a table; empty if there is no value.
pub(super) fn number(value: Option<f64>) -> String {
    value.map_or(String::new(), |value| value.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_without_rows_are_left_out() {
        let failure = Failure { place: "2".to_owned(), error: "no such world".to_owned() };
        assert_eq!(failures(&[failure]), "## Runs that could not be made\n\n- 2: no such world\n\n");
        assert_eq!(failures(&[]), "");
        let bounds = ["too late".to_owned(), "too slow".to_owned()];
        let cells = [(1, &bounds[..]), (2, &[][..])];
        assert_eq!(misses(cells.into_iter()), "## Those that miss\n\n- 1: too late; too slow\n\n");
        assert_eq!(misses(cells[1..].iter().copied()), "");
    }
}
