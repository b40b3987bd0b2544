//! The page, the table and the JSON of `holdover conformance --agent-links`.

use std::fmt::Write as _;

use holdover_base::Instant;
use holdover_testbed::Lateness;
use holdover_transfers::{CUT_AT, Help, LEAD, spaced};
use serde::Serialize;

use super::cells::{Cell, NOISE, SLOWER};
use super::kinds::{KINDS, Kind};
use super::world::TRANSFER_TIME;
use crate::grid::{GridPlace as _, GridReport, Head};
use crate::page::{compared, failures, marked, medians, millis_or_never, number, page, seconds_or_never, section};
use crate::results::Results;
use crate::routed::near_delay;

/// Everything that is reported.
#[derive(Debug, Serialize)]
pub struct Report {
    #[serde(flatten)]
    head: Head,
    /// The longest that a thread waited for a processor, in the worst run with the agent.
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
            "A phone, its router and a server, each with a Linux kernel of its own (the router only where the link is not a wire). The link between \
             phone and router carries {} with {} of delay and queues {} packets in each direction; the round trip to the \
             server is {}. It fails {} after the beginning. The agent runs on the phone and nowhere else: the whole daemon, with its \
             default configuration but for user timeouts, metrics and the signals of logind, which are off, and with room for 4,096 connections; it hears of the link from the phone's kernel alone. Each cell is {runs}.\n\n\
             - **download**, **upload**: {:.0} MB. **key**: a key that is struck on the phone during the outage. Where there are many \
             connections, each sends messages of 1 kB, one 3 s after the answer to the last.\n\
             - **plain → agent → warned**: without the agent; with it; with it and `holdover agent signal fading` {} before the \
             outage. There is no warning where nothing on the phone shows the outage.\n\
             - **first data**: from when the path carries packets again (not from carrier) to the first data at the receiver's \
             interface that it did not have. Bound with the agent: 1.5 round trips ({}), for transfers a full queue ({}), and with \
             Ethernet a round trip to the router ({}). Of many connections it is the last one's (in brackets: the middle one's), answers to \
             messages count as well, and the bound is higher by twice the time that the link takes for a message of each. Downloads over a link that is lost \
             several times wait until it has been up for longer than between the losses: their bound is higher by 1.25 times that.\n\
             - **total**: from the beginning to the last byte; for a key, from the cut to its echo. Bound with the agent: plain and \
             {:.0} %, and {} for noise.\n\
             - **sent again**: what the sender of the data retransmitted.\n\n\
             What misses its bound is in bold. Between the path's return and the first new data a thread that sleeps for 2 ms at a time, \
             or one that changes a link in a network namespace of its own, was {:.1} ms late in the worst run with the agent. Runs that missed their bound while it was {} late or more were \
             made again, at most twice: {} runs.\n",
            path.rate,
            spaced(near_delay(path)),
            path.queue,
            spaced(path.round_trip()),
            spaced(CUT_AT.saturating_since(Instant::ZERO)),
            path.amount(TRANSFER_TIME).0 as f64 / 1e6,
            spaced(LEAD),
            spaced(path.delay * 3),
            spaced(path.full_queue()),
            spaced(near_delay(path) * 2),
            SLOWER * 100.0,
            spaced(NOISE),
            self.lateness_ms,
            spaced(Lateness::EXCUSE),
            self.repeated,
        )
    }

    fn table(&self, kind: &'static Kind) -> String {
        let helps = if kind.is_visible() { "plain → agent → warned" } else { "plain → agent" };
        let head = format!(
            "## {}\n\n{}\n\n| outage | sender | use | family | first data, ms: {helps} | total, s | sent again, kB |\n\
             | ---: | --- | --- | --- | ---: | ---: | ---: |\n",
            kind.name, kind.what
        );
        let of_kind = self.results.cells().iter().filter(|cell| std::ptr::eq(cell.place.kind(), kind));
        section(&head, of_kind.filter(|cell| cell.place.help == Help::Plain).map(|plain| self.row(plain)))
    }

    /// The row of a place, plain and with help.
    fn row(&self, plain: &Cell) -> String {
        let place = plain.place;
        let beside: Vec<&Cell> = self.results.cells().iter().filter(|cell| cell.place.is_beside(&place)).collect();
        let first = compared(&beside, |cell| {
            let mut first = without_unit(&millis_or_never(cell.figures.first_data_ms));
            if place.kind().connections > 1 {
                let _ = write!(first, " ({})", without_unit(&millis_or_never(cell.figures.median_first_data_ms)));
            }
            marked(cell.place.has_bounds() && cell.is_late(), &first)
        });
        let total = compared(&beside, |cell| {
            let total = without_unit(&seconds_or_never(cell.figures.total_s));
            marked(cell.place.has_bounds() && cell.is_slower(Some(plain)), &total)
        });
        let kilobytes = |bytes: f64| format!("{:.0}", bytes / 1e3);
        let again = compared(&beside, |cell| cell.figures.sent_again_bytes.map_or("–".to_owned(), kilobytes));
        format!(
            "| {} | {} | {} | {} | {first} | {total} | {again} |\n",
            spaced(place.cut),
            place.sender.name(),
            place.usage.name(),
            place.family()
        )
    }
}

impl GridReport for Report {
    fn is_sound(&self) -> bool {
        self.results.are_sound()
    }

    fn in_a_line(&self) -> String {
        self.results.in_a_line("the agent", &self.head)
    }

    /// As `docs/conformance/agent-links.md`.
    fn markdown(&self) -> String {
        let tables: String = KINDS.iter().map(|kind| self.table(kind)).collect();
        let sections = [failures(self.results.failures()), self.results.misses(), tables];
        page("The agent on links with carrier and neighbours", self, &self.head, &self.how_it_is_measured(), &sections)
    }

    fn csv(&self) -> String {
        let header = "kind,cut_s,sender,use,family,help,run,first_data_ms,median_first_data_ms,total_s,sent_again_bytes,timeouts,\
                      lateness_ms,tries";
        let of_cell = |cell: &Cell| {
            let place = cell.place;
            let (kind, cut_s, sender) = (place.kind().name, place.cut.as_secs_f64(), place.sender.congestion().name());
            format!("{kind},{cut_s},{sender},{},{},{}", place.usage.name(), place.family(), place.help.name())
        };
        self.results.csv(header, of_cell, |_, run| {
            format!(
                "{},{},{},{},{},{},{}",
                number(run.first_data_ms),
                number(run.median_first_data_ms),
                number(run.total_s),
                run.sent_again_bytes,
                run.timeouts,
                run.lateness_ms,
                run.tries
            )
        })
    }
}

/// `never`, or the figure alone.
fn without_unit(text: &str) -> String {
    text.split(' ').next().unwrap_or_default().to_owned()
}
