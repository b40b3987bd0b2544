//! The cells of the grid, and what their runs come to.

use holdover_base::Duration;
use holdover_transfers::{Help, Sender};
use serde::Serialize;

use super::kinds::Use;
use super::place::Place;
use super::world::Run;
use crate::grid::{GridPlace as _, Runs, lower_median};
use crate::page::{in_millis, millis_or_never, seconds_or_never};
use crate::results;

/// By this share a connection with the agent may be slower than plain in all.
pub(super) const SLOWER: f64 = 0.02;
/// And by this much more: kernels' timers and a busy machine make this difference from run to run.
pub(super) const NOISE: Duration = Duration::from_millis(50);

/// A case and its runs.
pub(super) type Cell = results::Cell<Place, Figures, RunRow>;

/// The result of a case: medians of its runs.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(super) struct Figures {
    kind: &'static str,
    cut_s: f64,
    sender: Sender,
    usage: Use,
    family: &'static str,
    help: Help,
    /// From when the path carries packets again to the first data that the receiver did not have; of many connections, of the last.
    pub(super) first_data_ms: Option<f64>,
    /// The same, of the connection in the middle.
    pub(super) median_first_data_ms: Option<f64>,
    /// From the beginning to the last byte, or from the cut to the key's echo.
    pub(super) total_s: Option<f64>,
    pub(super) sent_again_bytes: Option<f64>,
}

/// One run of a case.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(super) struct RunRow {
    pub(super) first_data_ms: Option<f64>,
    pub(super) median_first_data_ms: Option<f64>,
    pub(super) total_s: Option<f64>,
    pub(super) sent_again_bytes: u64,
    pub(super) timeouts: u32,
    /// The longest that a thread waited for a processor between the path's return and the first new data.
    pub(super) lateness_ms: f64,
    /// How often the run was made until it counted: more than once if a busy machine had spoiled it.
    pub(super) tries: u32,
}

impl Cell {
    /// The cells of these runs, in the order of the page.
    pub(super) fn all(runs: &Runs<Place, Run>) -> Vec<Self> {
        let mut cells: Vec<Self> = Vec::new();
        for (&place, of_place) in runs {
            let cell = Self::new(place, of_place);
            let plain = cells.iter().rfind(|other| !other.place.has_bounds() && other.place.is_beside(&place));
            let misses = cell.misses(plain);
            cells.push(cell.judged(misses));
        }
        cells
    }

    fn new(place: Place, runs: &[Run]) -> Self {
        let rows: Vec<RunRow> = runs.iter().map(RunRow::new).collect();
        let of = |value: fn(&RunRow) -> Option<f64>| lower_median(rows.iter().map(value));
        let total_s = of(|run| run.total_s);
        let typical = runs.iter().zip(&rows).find(|(_, row)| row.total_s == total_s);
        let figures = Figures {
            kind: place.kind().name,
            cut_s: place.cut.as_secs_f64(),
            sender: place.sender,
            usage: place.usage,
            family: place.family(),
            help: place.help,
            first_data_ms: of(|run| run.first_data_ms),
            median_first_data_ms: of(|run| run.median_first_data_ms),
            total_s,
            sent_again_bytes: of(|run| Some(run.sent_again_bytes as f64)),
        };
        // The first packets from when the path carries, of the run with the median total.
        let trace = typical.map_or(Vec::new(), |(run, _)| run.trace.clone());
        Self::of_runs(place, figures, rows, trace)
    }

    /// Whether new data comes later than it has to. A key that is echoed between two flaps has no more to come after the last.
    pub(super) fn is_late(&self) -> bool {
        let is_echoed_before = self.place.usage == Use::Keys
            && self.figures.total_s.is_some_and(|total| total < self.place.cut.as_secs_f64());
        if self.place.kind().has_flaps() && is_echoed_before {
            return false;
        }
        self.figures.first_data_ms.is_none_or(|first| first > in_millis(self.place.bound()))
    }

    /// Whether it takes longer than `plain`, by more than is allowed.
    pub(super) fn is_slower(&self, plain: Option<&Self>) -> bool {
        match (self.figures.total_s, plain.and_then(|plain| plain.figures.total_s)) {
            (Some(with), Some(without)) => with > without * (1.0 + SLOWER) + NOISE.as_secs_f64(),
            (None, Some(_)) => true,
            (_, None) => false,
        }
    }

    /// The bounds that the agent misses here.
    fn misses(&self, plain: Option<&Self>) -> Vec<String> {
        let mut misses = Vec::new();
        if !self.place.has_bounds() {
            return misses;
        }
        if self.is_late() {
            let bound_ms = in_millis(self.place.bound());
            misses.push(format!("first data {}, bound {bound_ms:.0} ms", millis_or_never(self.figures.first_data_ms)));
        }
        if self.is_slower(plain) {
            let plain = plain.and_then(|plain| plain.figures.total_s);
            misses.push(format!("total {}, plain {}", seconds_or_never(self.figures.total_s), seconds_or_never(plain)));
        }
        misses
    }
}

impl RunRow {
    fn new(run: &Run) -> Self {
        Self {
            first_data_ms: run.first_data.map(in_millis),
            median_first_data_ms: run.median_first_data.map(in_millis),
            total_s: run.total.map(Duration::as_secs_f64),
            sent_again_bytes: run.sent_again,
            timeouts: run.timeouts,
            lateness_ms: in_millis(run.lateness),
            tries: run.tries,
        }
    }
}

#[cfg(test)]
mod tests {
    use holdover_transfers::NetPath;

    use super::super::place::places;
    use super::*;

    fn all_places(only: Option<&str>) -> Vec<Place> {
        places(NetPath::DEFAULT, only)
    }

    #[test]
    fn a_cell_says_what_it_misses() {
        let place = |help| Place { help, ..all_places(Some("carrier, 3 s, reno, upload, IPv4, plain"))[0] };
        let run = |first_data: u64, total: u64| Run {
            first_data: Some(Duration::from_millis(first_data)),
            median_first_data: None,
            total: Some(Duration::from_millis(total)),
            sent_again: 1500,
            timeouts: 1,
            lateness: Duration::ZERO,
            tries: 1,
            trace: vec!["a packet".to_owned()],
        };
        assert_eq!(place(Help::Agent).bound(), Duration::from_millis(175));
        let runs = Runs::from([
            (place(Help::Plain), vec![run(900, 10_000)]),
            (place(Help::Agent), vec![run(175, 10_240), run(80, 10_100), run(500, 10_900)]),
            (place(Help::Warned), vec![run(176, 10_260)]),
        ]);
        let cells = Cell::all(&runs);
        assert_eq!(cells.iter().map(|cell| cell.place.help).collect::<Vec<_>>(), Help::ALL);
        assert!(cells[0].misses.is_empty() && cells[1].misses.is_empty() && cells[1].trace.is_empty(), "{cells:#?}");
        assert_eq!(cells[2].misses, ["first data 176 ms, bound 175 ms", "total 10.26 s, plain 10.00 s"]);
        assert_eq!(cells[2].trace.len(), 1);
    }

    #[test]
    fn an_endless_transfer_misses_its_bound() {
        let place = |help| Place { help, ..all_places(Some("late-2s, 3 s, cubic, key, IPv6, plain"))[0] };
        let run = |total| Run {
            first_data: None,
            median_first_data: None,
            total,
            sent_again: 0,
            timeouts: 0,
            lateness: Duration::ZERO,
            tries: 1,
            trace: Vec::new(),
        };
        let runs = Runs::from([
            (place(Help::Plain), vec![run(Some(Duration::from_secs(4)))]),
            (place(Help::Agent), vec![run(None)]),
        ]);
        let cells = Cell::all(&runs);
        assert_eq!(cells[1].misses, ["first data never, bound 85 ms", "total never, plain 4.00 s"]);
    }
}
