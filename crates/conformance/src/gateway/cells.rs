//! The cells of the grid, and what their runs come to.

use holdover_base::Duration;
use holdover_transfers::{Sender, TransferDirection, spaced};
use serde::Serialize;

use super::place::{Link, Mode, Place, bound};
use super::world::Run;
use crate::grid::{GridPlace as _, Runs, lower_median};
use crate::page::in_millis;
use crate::results;

/// The least share of the ideal with the gateway.
pub(super) const SHARE: f64 = 0.98;

/// A case and its runs.
pub(super) type Cell = results::Cell<Place, Figures, RunRow>;

/// The result of a case: medians of its runs.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(super) struct Figures {
    link: Link,
    sender: Sender,
    direction: TransferDirection,
    cut_s: f64,
    mode: Mode,
    /// From the mobile host's return to the first data at the receiver's interface that it did not have.
    pub(super) first_data_ms: Option<f64>,
    /// From the beginning to the last byte.
    pub(super) total_s: Option<f64>,
    /// The same transfer without a cut and without the gateway, and the length of the cut, over the total.
    pub(super) ideal_share: Option<f64>,
}

/// One run of a case.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(super) struct RunRow {
    pub(super) first_data_ms: Option<f64>,
    pub(super) total_s: Option<f64>,
    pub(super) timeouts: u32,
    pub(super) sent_again_bytes: u64,
    pub(super) lateness_ms: f64,
    pub(super) tries: u32,
}

impl Cell {
    /// The cells of these runs, in the order of the page.
    pub(super) fn all(runs: &Runs<Place, Run>) -> Vec<Self> {
        let uncut = |place: Place| runs.get(&place.reference()).map_or(&[][..], Vec::as_slice);
        let cells = runs.iter().filter(|(place, _)| place.cut.is_some());
        cells.map(|(&place, of_place)| Self::new(place, of_place, uncut(place))).collect()
    }

    fn new(place: Place, runs: &[Run], uncut: &[Run]) -> Self {
        let seconds = |run: &Run| run.total.map(Duration::as_secs_f64);
        let rows: Vec<RunRow> = runs.iter().map(RunRow::new).collect();
        let total_s = lower_median(rows.iter().map(|row| row.total_s));
        let cut_s = place.cut.unwrap_or(Duration::ZERO).as_secs_f64();
        let typical = runs.iter().zip(&rows).find(|(_, row)| row.total_s == total_s);
        let figures = Figures {
            link: place.link,
            sender: place.sender,
            direction: place.direction,
            cut_s,
            mode: place.mode,
            first_data_ms: lower_median(rows.iter().map(|row| row.first_data_ms)),
            total_s,
            ideal_share: lower_median(uncut.iter().map(seconds))
                .zip(total_s)
                .map(|(uncut, taken)| (uncut + cut_s) / taken),
        };
        // The first packets after the return, of the run with the median total.
        let trace = typical.map_or(Vec::new(), |(run, _)| run.trace.clone());
        let cell = Self::of_runs(place, figures, rows, trace);
        let misses = cell.misses();
        cell.judged(misses)
    }

    /// Whether it misses the bound of the first data.
    pub(super) fn is_late(&self) -> bool {
        let bound_ms = in_millis(bound(self.place.path));
        self.place.has_bounds() && self.figures.first_data_ms.is_none_or(|first| first > bound_ms)
    }

    /// Whether it misses the bound of the total.
    pub(super) fn is_slow(&self) -> bool {
        self.place.has_bounds() && self.figures.ideal_share.is_none_or(|share| share < SHARE)
    }

    fn misses(&self) -> Vec<String> {
        let first = self
            .is_late()
            .then(|| format!("first data later than {} after the return", spaced(bound(self.place.path))));
        let share = self.is_slow().then(|| format!("less than {:.0} % of the ideal", SHARE * 100.0));
        first.into_iter().chain(share).collect()
    }
}

impl RunRow {
    fn new(run: &Run) -> Self {
        Self {
            first_data_ms: run.first_data.map(in_millis),
            total_s: run.total.map(Duration::as_secs_f64),
            timeouts: run.timeouts,
            sent_again_bytes: run.sent_again,
            lateness_ms: in_millis(run.lateness),
            tries: run.tries,
        }
    }
}

#[cfg(test)]
mod tests {
    use holdover_transfers::NetPath;

    use super::*;

    #[test]
    fn a_cell_says_what_it_misses() {
        let place = |mode, cut_s: u64| Place {
            path: NetPath::DEFAULT,
            link: Link::Carrier,
            sender: Sender::Reno,
            direction: TransferDirection::Upload,
            cut: Some(cut_s).filter(|&cut| cut > 0).map(Duration::from_secs),
            mode,
        };
        let run = |first_data: u64, total: u64| Run {
            first_data: Some(Duration::from_millis(first_data)),
            total: Some(Duration::from_millis(total)),
            timeouts: 1,
            sent_again: 1500,
            lateness: Duration::ZERO,
            tries: 1,
            trace: vec!["a packet".to_owned()],
        };
        let runs = Runs::from([
            (place(Mode::Plain, 0).reference(), vec![run(0, 10_000)]),
            (place(Mode::Plain, 7), vec![run(3_000, 20_000)]),
            (place(Mode::Buffer, 7), vec![run(75, 17_300), run(40, 17_200), run(500, 18_000)]),
            (place(Mode::Buffer, 3), vec![run(76, 13_300)]),
            (place(Mode::MTcp, 7), vec![run(900, 19_000)]),
        ]);
        let cells = Cell::all(&runs);
        let of = |mode, cut| cells.iter().find(|cell| cell.place == place(mode, cut)).unwrap();
        assert_eq!(cells.len(), 4);
        assert!(of(Mode::Plain, 7).misses.is_empty() && of(Mode::MTcp, 7).misses.is_empty());
        let good = of(Mode::Buffer, 7);
        assert_eq!((good.figures.first_data_ms, good.figures.ideal_share), (Some(75.0), Some(17.0 / 17.3)));
        assert!(good.misses.is_empty() && good.trace.is_empty(), "{good:?}");
        let bad = of(Mode::Buffer, 3);
        assert_eq!(bad.misses, ["first data later than 75 ms after the return", "less than 98 % of the ideal"]);
        assert_eq!(bad.trace.len(), 1);
    }
}
