//! The cells of the grid, and what their runs come to.

use holdover_base::Duration;
use serde::Serialize;

use super::place::{LOSSY_BOUND, Means, Place, Use};
use super::run::Run;
use crate::grid::{Runs, lower_median};
use crate::page::{in_millis, millis_or_never};
use crate::results;

/// A case and its runs.
pub(super) type Cell = results::Cell<Place, Figures, RunRow>;

/// The result of a case: medians of its runs.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(super) struct Figures {
    kind: &'static str,
    usage: Use,
    means: Means,
    /// From the new address to the end of the exchange: both ends have verified the other where it moved.
    pub(super) exchange_ms: Option<f64>,
    /// From the new address to the first data of the new path at the receiver; in a make before break the longest pause.
    pub(super) first_data_ms: Option<f64>,
    /// From the end of the exchange to the first new data.
    pub(super) after_exchange_ms: Option<f64>,
    /// From the beginning to the last byte.
    pub(super) total_s: Option<f64>,
    /// Of many exchanges.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) distribution: Option<Distribution>,
}

/// Of all exchanges of a cell.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(super) struct Distribution {
    pub(super) exchanges: usize,
    pub(super) median_ms: f64,
    pub(super) p99_ms: f64,
    pub(super) longest_ms: f64,
}

/// One run of a case.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(super) struct RunRow {
    pub(super) exchange_ms: Option<f64>,
    pub(super) first_data_ms: Option<f64>,
    pub(super) after_exchange_ms: Option<f64>,
    pub(super) total_s: Option<f64>,
    /// Bytes that arrived, all compared with those sent.
    pub(super) received: u64,
    pub(super) lateness_ms: f64,
    pub(super) tries: u32,
}

impl Cell {
    /// The cells of these runs, in the order of the page.
    pub(super) fn all(runs: &Runs<Place, Run>) -> Vec<Self> {
        runs.iter().map(|(&place, of_place)| Self::new(place, of_place)).collect()
    }

    pub(super) fn new(place: Place, runs: &[Run]) -> Self {
        let rows: Vec<RunRow> = runs.iter().map(RunRow::new).collect();
        let of = |value: fn(&RunRow) -> Option<f64>| lower_median(rows.iter().map(value));
        let figures = Figures {
            kind: place.kind().name,
            usage: place.usage,
            means: place.means,
            exchange_ms: of(|run| run.exchange_ms),
            first_data_ms: of(|run| run.first_data_ms),
            after_exchange_ms: of(|run| run.after_exchange_ms),
            total_s: of(|run| run.total_s),
            distribution: Distribution::of(runs),
        };
        let cell = Self::of_runs(place, figures, rows, Vec::new());
        let misses = cell.misses();
        cell.judged(misses)
    }

    pub(super) fn is_exchange_late(&self) -> bool {
        self.place.means.is_hip()
            && self.place.usage != Use::Exchange
            && self.figures.exchange_ms.is_none_or(|it| it > in_millis(self.place.exchange_bound()))
    }

    /// From the end of the exchange to the first new data; in a make before break the longest pause.
    fn data_after_ms(&self) -> Option<f64> {
        if self.place.kind().gap.is_some() { self.figures.after_exchange_ms } else { self.figures.first_data_ms }
    }

    /// Whether new data come later than [`Place::data_bound`].
    pub(super) fn is_data_late(&self) -> bool {
        let value = self.data_after_ms();
        self.place.means == Means::Hip
            && self.place.usage != Use::Exchange
            && value.is_none_or(|it| it > in_millis(self.place.data_bound()))
    }

    pub(super) fn is_tail_late(&self) -> bool {
        let is_late = |it: &Distribution| it.p99_ms > in_millis(LOSSY_BOUND);
        self.place.usage == Use::Exchange && self.figures.distribution.as_ref().is_none_or(is_late)
    }

    fn misses(&self) -> Vec<String> {
        let mut misses = Vec::new();
        let [bound, data_bound] = [self.place.exchange_bound(), self.place.data_bound()].map(in_millis);
        if self.is_exchange_late() {
            misses.push(format!("exchange {}, bound {bound:.0} ms", millis_or_never(self.figures.exchange_ms)));
        }
        if self.is_data_late() {
            let value = self.data_after_ms();
            misses.push(format!("data after the exchange {}, bound {data_bound:.0} ms", millis_or_never(value)));
        }
        if self.is_tail_late() {
            let p99 = self.figures.distribution.as_ref().map(|it| it.p99_ms);
            misses.push(format!("99th percentile {}, bound {:.0} ms", millis_or_never(p99), in_millis(LOSSY_BOUND)));
        }
        if self.place.means == Means::Hip && self.place.usage != Use::Exchange && self.figures.total_s.is_none() {
            misses.push("not all bytes arrived".to_owned());
        }
        misses
    }
}

impl Distribution {
    /// Exchanges that did not end count as the longest.
    fn of(runs: &[Run]) -> Option<Self> {
        let all = runs.iter().flat_map(|run| &run.exchanges);
        let mut all: Vec<f64> = all.map(|it| it.map_or(f64::INFINITY, |nanos| nanos as f64 / 1e6)).collect();
        all.sort_by(f64::total_cmp);
        let at = |share: f64| all[((all.len() as f64 * share).ceil() as usize).clamp(1, all.len()) - 1];
        let exchanges = all.len();
        (exchanges > 0).then(|| Self { exchanges, median_ms: at(0.5), p99_ms: at(0.99), longest_ms: at(1.0) })
    }
}

impl RunRow {
    fn new(run: &Run) -> Self {
        let after = run.first_data.zip(run.exchange).map(|(first, exchange)| first.saturating_sub(exchange));
        Self {
            exchange_ms: run.exchange.map(in_millis),
            first_data_ms: run.first_data.map(in_millis),
            after_exchange_ms: after.map(in_millis),
            total_s: run.total.map(Duration::as_secs_f64),
            received: run.received,
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

    fn run(exchange: Option<u64>, first_data: Option<u64>) -> Run {
        Run {
            exchange: exchange.map(Duration::from_millis),
            first_data: first_data.map(Duration::from_millis),
            total: first_data.map(|_| Duration::from_secs(5)),
            received: 7,
            exchanges: Vec::new(),
            lateness: Duration::ZERO,
            tries: 1,
        }
    }

    #[test]
    fn a_cell_says_what_it_misses() {
        let place = |name| places(NetPath::DEFAULT, Some(name), false)[0];
        let hip = place("gap-1s, upload, hip");
        let hip = Place { means: Means::Hip, ..hip };
        assert_eq!((hip.exchange_bound(), hip.data_bound()), (Duration::from_millis(90), Duration::from_millis(90)));
        let both = Place { means: Means::Hip, ..place("both, key, hip") };
        assert_eq!(
            (both.exchange_bound(), both.data_bound()),
            (Duration::from_millis(115), Duration::from_millis(140))
        );
        let cell = Cell::new(hip, &[run(Some(76), Some(100)), run(Some(80), Some(300)), run(Some(70), Some(90))]);
        assert_eq!(cell.misses, Vec::<String>::new());
        assert_eq!(cell.figures.after_exchange_ms, Some(24.0));
        let cell = Cell::new(hip, &[run(Some(91), Some(182))]);
        assert_eq!(cell.misses, ["exchange 91 ms, bound 90 ms", "data after the exchange 91 ms, bound 90 ms"]);
        let cell = Cell::new(hip, &[run(None, None)]);
        assert_eq!(cell.misses.len(), 3);
        let cell = Cell::new(place("gap-1s, upload, plain TCP"), &[run(None, None)]);
        assert!(cell.misses.is_empty(), "nothing is asked of the others");
    }

    #[test]
    fn percentiles_count_exchanges_that_did_not_end() {
        let lossy = places(NetPath::DEFAULT, Some("lossy"), false)[0];
        let exchanges = |late: usize| {
            let mut all = vec![Some(75_000_000); 100 - late];
            all.extend(vec![None; late]);
            Run { exchanges: all, ..run(None, None) }
        };
        assert!(Cell::new(lossy, &[exchanges(1)]).misses.is_empty());
        assert_eq!(Cell::new(lossy, &[exchanges(2)]).misses, ["99th percentile never, bound 1000 ms"]);
    }
}
