//! The cells of the grid, and what their runs come to.

use holdover_base::Duration;
use holdover_transfers::{Help, Sender, Transfer, TransferDirection};
use serde::Serialize;

use super::place::{Place, soon};
use super::run::Run;
use crate::grid::{GridPlace as _, Runs, lower_median};
use crate::page::in_millis;
use crate::results;

/// The least share of the ideal for a transfer with the agent.
pub(super) const SHARE: f64 = 0.97;
/// The tolerance in comparison with plain transfers: the variation of kernels from run to run.
pub(super) const TOLERANCE: f64 = 0.005;

/// Known behaviour of BBR (version 1) around cuts.
const BBR_PROBES: &str = "BBR looks for the shortest round trip anew when the one it knows is 10 s old, with a window of 4 packets for \
    200 ms (PROBE_RTT): the transfer without a cut ends just before that, and every one with a cut meets it. And what the cut has \
    swallowed it repairs from a few packets on, doubling them each round trip.";

/// A case and its runs.
pub(super) type Cell = results::Cell<Place, Figures, RunRow>;

/// The result of a case: medians of its runs. Times after the link's return are in milliseconds.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(super) struct Figures {
    pub(super) sender: Sender,
    pub(super) direction: TransferDirection,
    pub(super) cut_s: f64,
    pub(super) help: Help,
    /// To the first data at the receiver's interface that it did not have.
    pub(super) new_data_ms: Option<f64>,
    /// To the first new data at the application.
    pub(super) in_order_ms: Option<f64>,
    pub(super) completion_s: Option<f64>,
    /// The duration of the same transfer without a cut.
    pub(super) uncut_s: Option<f64>,
    /// That plus the length of the cut, over the duration.
    pub(super) ideal_share: Option<f64>,
    /// The duration for a sender that fills the link whenever it is up, over the duration.
    pub(super) path_share: Option<f64>,
    /// Why it misses a bound, where that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) why: Option<&'static str>,
}

/// One run of a case.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(super) struct RunRow {
    pub(super) new_data_ms: Option<f64>,
    pub(super) in_order_ms: Option<f64>,
    pub(super) completion_s: Option<f64>,
    pub(super) path_share: Option<f64>,
    pub(super) timeouts: u32,
    pub(super) sent_again_bytes: u64,
    pub(super) lateness_p99_ms: f64,
}

impl Cell {
    /// The cells of these runs, in the order of the page.
    pub(super) fn all(runs: &Runs<Place, Run>) -> Vec<Self> {
        let mut cells: Vec<Self> = Vec::new();
        for (&place, of_place) in runs.iter().filter(|(place, _)| place.transfer.cut.is_some()) {
            let uncut = Place { transfer: Transfer { help: Help::Plain, cut: None, ..place.transfer }, ..place };
            let uncut = runs.get(&uncut).map_or(&[][..], Vec::as_slice);
            let cell = Self::new(place, of_place, uncut);
            let plain = cells.iter().rfind(|other| !other.place.has_bounds() && other.is_beside(&cell));
            let misses = cell.misses(plain);
            let mut cell = cell.judged(misses);
            if !cell.misses.is_empty() {
                cell.figures.why = cell.reason();
            }
            cells.push(cell);
        }
        cells
    }

    fn new(place: Place, runs: &[Run], uncut: &[Run]) -> Self {
        let rows: Vec<RunRow> = runs.iter().map(RunRow::new).collect();
        let of = |value: fn(&RunRow) -> Option<f64>| lower_median(rows.iter().map(value));
        let completion_s = of(|run| run.completion_s);
        let uncut_s = lower_median(uncut.iter().map(|run| run.measured.completion.map(Duration::as_secs_f64)));
        let cut_s = place.transfer.cut.unwrap_or(Duration::ZERO).as_secs_f64();
        let typical = runs.iter().zip(&rows).find(|(_, row)| row.completion_s == completion_s);
        let figures = Figures {
            sender: place.sender,
            direction: place.transfer.direction,
            cut_s,
            help: place.transfer.help,
            new_data_ms: of(|run| run.new_data_ms),
            in_order_ms: of(|run| run.in_order_ms),
            completion_s,
            uncut_s,
            ideal_share: uncut_s.zip(completion_s).map(|(uncut, taken)| (uncut + cut_s) / taken),
            path_share: of(|run| run.path_share),
            why: None,
        };
        // The first packets after the link's return, of the run with the median completion.
        let trace = typical.map_or(Vec::new(), |(run, _)| run.trace.clone());
        Self::of_runs(place, figures, rows, trace)
    }

    fn is_beside(&self, other: &Self) -> bool {
        let of = |cell: &Self| (cell.place.sender, cell.place.transfer.direction, cell.place.transfer.cut);
        of(self) == of(other)
    }

    /// Whether new data come later than they have to.
    fn is_late(&self) -> bool {
        self.figures.new_data_ms.is_none_or(|new_data| new_data > in_millis(soon(self.place.path)))
    }

    /// Why it misses something, if that is known.
    fn reason(&self) -> Option<&'static str> {
        let is_only_slow = self.place.sender == Sender::Bbr && !self.is_late();
        is_only_slow.then_some(BBR_PROBES)
    }

    /// The bounds that the agent misses here.
    fn misses(&self, plain: Option<&Self>) -> Vec<String> {
        if !self.place.has_bounds() {
            return Vec::new();
        }
        let mut misses = Vec::new();
        let soonest_ms = in_millis(soon(self.place.path));
        if self.is_late() {
            misses.push(format!("new data later than {soonest_ms:.0} ms after the link's return"));
        }
        if self.figures.ideal_share.is_none_or(|share| share < SHARE) {
            misses.push(format!("less than {:.0} % of the ideal", SHARE * 100.0));
        }
        let is_worse = match (self.figures.completion_s, plain.and_then(|plain| plain.figures.completion_s)) {
            (Some(with), Some(without)) => with > without * (1.0 + TOLERANCE),
            (None, Some(_)) => true,
            (_, None) => false,
        };
        if is_worse {
            misses.push("later than plain".to_owned());
        }
        misses
    }
}

impl RunRow {
    fn new(run: &Run) -> Self {
        Self {
            new_data_ms: run.new_data.map(in_millis),
            in_order_ms: run.measured.resume.map(in_millis),
            completion_s: run.measured.completion.map(Duration::as_secs_f64),
            path_share: run.path_share,
            timeouts: run.timeouts,
            sent_again_bytes: run.sent_again,
            lateness_p99_ms: in_millis(run.lateness),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdover_transfers::{Measured, NetPath};

    #[test]
    fn a_cell_says_what_it_misses() {
        let place = |help, cut| Place {
            path: NetPath::DEFAULT,
            sender: Sender::Reno,
            transfer: Transfer { direction: TransferDirection::Upload, help, cut },
        };
        let cut = Some(Duration::from_secs(7));
        let run = |new_data: u64, completion: u64| Run {
            new_data: Some(Duration::from_millis(new_data)),
            measured: Measured { resume: None, completion: Some(Duration::from_millis(completion)) },
            path_share: None,
            timeouts: 0,
            sent_again: 0,
            lateness: Duration::ZERO,
            trace: vec!["a packet".to_owned()],
        };
        let runs = Runs::from([
            (place(Help::Plain, None), vec![run(0, 10_000)]),
            (place(Help::Plain, cut), vec![run(3_000, 20_000)]),
            (place(Help::Agent, cut), vec![run(80, 17_100)]),
            (place(Help::Warned, cut), vec![run(200, 20_200)]),
        ]);
        let cells = Cell::all(&runs);
        assert_eq!(cells.iter().map(|cell| cell.place.transfer.help).collect::<Vec<_>>(), Help::ALL);
        assert_eq!(soon(NetPath::DEFAULT), Duration::from_millis(140));
        assert!(cells[0].misses.is_empty() && cells[1].misses.is_empty() && cells[1].trace.is_empty(), "{cells:#?}");
        assert_eq!(cells[1].figures.ideal_share, Some(17.0 / 17.1));
        let expected =
            ["new data later than 140 ms after the link's return", "less than 97 % of the ideal", "later than plain"];
        assert_eq!((&cells[2].misses[..], cells[2].trace.len()), (&expected.map(str::to_owned)[..], 1));
    }
}
