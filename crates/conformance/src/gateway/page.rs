//! The page, the table and the JSON of `holdover conformance --gateway`.

use holdover_base::Instant;
use holdover_testbed::Lateness;
use holdover_transfers::{CUT_AT, TRANSFER_TIME, spaced};
use serde::Serialize;

use super::cells::{Cell, SHARE};
use super::place::{Link, Mode, bound};
use crate::grid::{GridReport, Head};
use crate::page::{compared, failures, marked, medians, number, page, section};
use crate::results::Results;
use crate::routed::near_delay;

/// Everything that is reported.
#[derive(Debug, Serialize)]
pub struct Report {
    #[serde(flatten)]
    head: Head,
    /// The longest that a thread waited for a processor, in the worst run with bounds.
    lateness_ms: f64,
    /// Runs that were made again.
    repeated: usize,
    #[serde(flatten)]
    results: Results<Cell>,
}

impl Report {
    pub(super) fn new(results: Results<Cell>, head: Head) -> Self {
        Self {
            head,
            lateness_ms: results.bounded_runs().map(|run| run.lateness_ms).fold(0.0, f64::max),
            repeated: results.bounded_runs().filter(|run| run.tries > 1).count(),
            results,
        }
    }

    fn how_it_is_measured(&self) -> String {
        let runs = medians(self.results.repetitions());
        let path = self.head.path;
        format!(
            "A mobile host, its router and a server, each with a Linux kernel of its own, and nothing of Holdover on the hosts. The link \
             between mobile host and router is Ethernet of {} with {} of delay and queues {} packets in each direction; the \
             round trip to the server is {}. A transfer moves {:.0} MB; the mobile host is away from {} after the beginning on, and \
             what is queued or on the way then is lost. On the router the gateway's daemon has its default configuration, but for \
             `mode`, `networks`, pinned programs and metrics. Each cell is {runs}.\n\n\
             - **silent**: no interface shows that the mobile host is away. **carrier**: the router and the mobile host lose carrier.\n\
             - **plain → buffer → m-tcp → split**: without the gateway; in its default mode; in the mode that does as the paper on M-TCP, \
             which treats downloads only; and with connections that end at the gateway. The last two are for comparison.\n\
             - **first data**: from the return to the first data at the receiver's interface that it did not have. Bound with \
             `buffer`: 1.5 round trips ({}).\n\
             - **total**: from the beginning to the last byte.\n\
             - **ideal**: what the same transfer takes without an absence and without the gateway, plus the absence, over the total. \
             Bound with `buffer`: {:.0} %. What is on its way when the link falls silent is lost before the gateway can know it, and a \
             sender that has not timed out yet begins anew with a few segments: \
             [what this costs](../notes/gateway.md#short-absences).\n\n\
             What misses its bound is in bold. Between the return and the first new data a thread that sleeps for 2 ms at a time \
             was woken {:.1} ms late in the worst run with `buffer`. Runs that missed the bound of the first data while it was {} late \
             or more were made again, at most twice: {} runs.\n",
            path.rate,
            spaced(near_delay(path)),
            path.queue,
            spaced(path.round_trip()),
            path.amount(TRANSFER_TIME).0 as f64 / 1e6,
            spaced(CUT_AT.saturating_since(Instant::ZERO)),
            spaced(bound(path)),
            SHARE * 100.0,
            self.lateness_ms,
            spaced(Lateness::EXCUSE),
            self.repeated,
        )
    }

    fn table(&self, link: Link) -> String {
        let head = format!(
            "## {}\n\n| sender | use | away | first data, ms: plain → buffer → m-tcp → split | total, s | ideal, % |\n\
             | --- | --- | ---: | ---: | ---: | ---: |\n",
            link.name()
        );
        let of_link = self.results.cells().iter().filter(|cell| cell.place.link == link);
        section(&head, of_link.filter(|cell| cell.place.mode == Mode::Plain).map(|plain| self.row(plain)))
    }

    /// The row of a place in all modes.
    fn row(&self, plain: &Cell) -> String {
        let place = plain.place;
        let beside: Vec<&Cell> = self.results.cells().iter().filter(|cell| cell.place.is_beside(place)).collect();
        let number = |value: Option<f64>, digits| value.map_or("never".to_owned(), |value| format!("{value:.digits$}"));
        let first = compared(&beside, |cell| marked(cell.is_late(), &number(cell.figures.first_data_ms, 0)));
        let total = compared(&beside, |cell| number(cell.figures.total_s, 2));
        let percent = |cell: &Cell| number(cell.figures.ideal_share.map(|share| share * 100.0), 1);
        let share = compared(&beside, |cell| marked(cell.is_slow(), &percent(cell)));
        let (sender, direction) = (place.sender.name(), place.direction.name());
        let away = spaced(place.cut.unwrap_or(holdover_base::Duration::ZERO));
        format!("| {sender} | {direction} | {away} | {first} | {total} | {share} |\n")
    }
}

impl GridReport for Report {
    fn is_sound(&self) -> bool {
        self.results.are_sound()
    }

    fn in_a_line(&self) -> String {
        self.results.in_a_line("the gateway", &self.head)
    }

    /// As `docs/conformance/gateway.md`.
    fn markdown(&self) -> String {
        let tables: String = Link::ALL.into_iter().map(|link| self.table(link)).collect();
        let sections = [failures(self.results.failures()), tables, self.results.misses()];
        page("The gateway across absences", self, &self.head, &self.how_it_is_measured(), &sections)
    }

    fn csv(&self) -> String {
        let header =
            "link,sender,direction,away_s,mode,run,first_data_ms,total_s,timeouts,sent_again_bytes,lateness_ms,tries";
        let of_cell = |cell: &Cell| {
            let place = cell.place;
            let (link, sender, direction) =
                (place.link.name(), place.sender.congestion().name(), place.direction.name());
            let away_s = place.cut.map_or(0.0, holdover_base::Duration::as_secs_f64);
            format!("{link},{sender},{direction},{away_s},{}", place.mode.name())
        };
        self.results.csv(header, of_cell, |_, run| {
            format!(
                "{},{},{},{},{},{}",
                number(run.first_data_ms),
                number(run.total_s),
                run.timeouts,
                run.sent_again_bytes,
                run.lateness_ms,
                run.tries
            )
        })
    }
}
