//! The page, the table and the JSON of `holdover conformance --moves`.

use std::fmt::Write as _;

use holdover_testbed::Lateness;
use holdover_transfers::spaced;
use serde::Serialize;

use super::cells::{Cell, in_millis, ms_or_never};
use super::kinds::{KINDS, Kind};
use super::means::KEEP_ALIVE_S;
use super::place::{KEY, KEY_EVERY, KEYS, LOSSY_BOUND, Means, NOISE, Use};
use super::run::{MOVES_AFTER, TRANSFER_TIME};
use crate::grid::{Failure, GridReport, Head};
use crate::page::{failures, marked, misses, number, page};

/// Everything that is reported.
#[derive(Debug, Serialize)]
pub struct Report {
    #[serde(flatten)]
    head: Head,
    /// Of `wireguard-go`, if it could be had.
    wireguard_go: Option<String>,
    /// Runs that were made again.
    repeated: usize,
    cells: Vec<Cell>,
    failures: Vec<Failure>,
}

impl Report {
    pub(super) fn new(cells: Vec<Cell>, wireguard_go: Option<String>, failures: Vec<Failure>, head: Head) -> Self {
        let repeated = cells.iter().flat_map(|cell| &cell.runs).filter(|run| run.tries > 1).count();
        Self { head, wireguard_go, repeated, cells, failures }
    }

    fn with_bounds(&self) -> impl Iterator<Item = &Cell> {
        self.cells.iter().filter(|cell| cell.place.means.is_hip())
    }

    fn how_it_is_measured(&self) -> String {
        let runs = self.cells.iter().map(|cell| cell.runs.len()).max().unwrap_or(0);
        let path = self.head.path;
        format!(
            "A mobile host and a server, each a Linux kernel in a network namespace, and a router between them. Each of the mobile host's two links \
             carries {} and queues {} packets in each direction; the round trip is {}. The host moves {} after the connection was opened. Each cell \
             is the median of {runs} runs; each byte that arrived was compared with the one sent.\n\n\
             - **download**, **upload**: {:.1} MB. **key**: a held key, {KEYS} times {KEY} bytes, every {}, and its echoes.\n\
             - **plain TCP**: its connection is bound to the address that is gone. **hip**, **hip --no-wake**: `holdover hip` at both ends, with \
             and without the retransmission trigger. **wireguard-go**: {} at both ends; the mobile host knows the server's address and \
             sends keep-alives every {KEEP_ALIVE_S} s. **MPTCP**: the kernel's at both ends; endpoints are added and removed with the mobile host's addresses, as \
             NetworkManager does, and the server announces its own. These two are not compared where the mobile host's IP version or the server's \
             address changes: here they know one address of the server.\n\
             - wireguard-go keeps the source address and the interface of a peer's packets. Of version 0.0.20220316 the log says after a gap that the \
             network is unreachable, for each packet, until nothing was heard for 15 s and it begins a handshake. The kernel's WireGuard was not measured.\n\
             - **exchange**: from the new address to the arrival of the answer by which the other host verifies it, the third packet; where both \
             hosts move, of the later one. Bound: 1.5 round trips ({}) and {} for the machine.\n\
             - **first data**: from the new address to the first data that a packet from it or to it brings to a program; in a make before break the longest pause \
             from then on. \
             Bound with hip: 1.5 round trips after the exchange (for the pause: in all), {} for the machine, and {} for a key.\n\
             - **total**: from the beginning to the last byte. *Never* is: not within 10 s of the new address with plain TCP, and not within 30 s and twice \
             the gap with the others.\n\n\
             What misses its bound is in bold. Runs of hip that missed it while the machine was {} late or more were made again, at most twice: {} runs.\n",
            path.rate,
            path.queue,
            spaced(path.round_trip()),
            spaced(MOVES_AFTER.into()),
            path.amount(TRANSFER_TIME).0 as f64 / 1e6,
            spaced(KEY_EVERY.into()),
            self.wireguard_go.as_deref().unwrap_or("no program"),
            spaced(path.delay * 3),
            spaced(NOISE),
            spaced(NOISE),
            spaced(KEY_EVERY.into()),
            spaced(Lateness::EXCUSE),
            self.repeated,
        )
    }

    fn table(&self, text: &mut String, kind: &'static Kind) {
        let mut cells = self.cells.iter().filter(|cell| std::ptr::eq(cell.place.kind(), kind)).peekable();
        let Some(first) = cells.peek() else { return };
        let _ = writeln!(text, "## {}\n", kind.headline);
        if first.place.usage == Use::Exchange {
            let bound = in_millis(LOSSY_BOUND);
            let _ = writeln!(
                text,
                "Moves there and back, `holdover hip` at both ends. Bound of the 99th percentile: {bound:.0} ms.\n\n\
                 | moves | median | 99th percentile | longest |\n| ---: | ---: | ---: | ---: |"
            );
            for (cell, it) in cells.filter_map(|cell| Some((cell, cell.distribution.as_ref()?))) {
                let p99 = marked(cell.is_tail_late(), &ms_or_never(Some(it.p99_ms)));
                let [median, longest] = [it.median_ms, it.longest_ms].map(|it| ms_or_never(Some(it)));
                let _ = writeln!(text, "| {} | {median} | {p99} | {longest} |", it.exchanges);
            }
        } else {
            text.push_str("| use | means | exchange | first data | total |\n| --- | --- | ---: | ---: | ---: |\n");
            cells.for_each(|cell| text.push_str(&row(cell)));
        }
        text.push('\n');
    }
}

fn row(cell: &Cell) -> String {
    let exchange = if cell.place.means.is_hip() {
        marked(cell.is_exchange_late(), &ms_or_never(cell.exchange_ms))
    } else {
        "–".to_owned()
    };
    let first = marked(cell.is_data_late(), &ms_or_never(cell.first_data_ms));
    let died = if cell.place.means == Means::Plain { "never: the connection dies" } else { "never" };
    let total = cell.total_s.map_or_else(|| died.to_owned(), |seconds| format!("{seconds:.2} s"));
    format!("| {} | {} | {exchange} | {first} | {total} |\n", cell.place.usage.name(), cell.place.means.name())
}

impl GridReport for Report {
    fn is_sound(&self) -> bool {
        self.failures.is_empty() && self.cells.iter().all(|cell| cell.misses.is_empty())
    }

    fn in_a_line(&self) -> String {
        let (all, reached) =
            (self.with_bounds().count(), self.with_bounds().filter(|cell| cell.misses.is_empty()).count());
        format!("{reached} of {all} cells with holdover hip reach their bounds, in {} s", self.head.seconds)
    }

    /// As `docs/conformance/moves.md`.
    fn markdown(&self) -> String {
        let mut tables = String::new();
        KINDS.iter().for_each(|kind| self.table(&mut tables, kind));
        let missed = misses(self.with_bounds().map(|cell| (cell.place, &cell.misses[..])));
        let sections = [failures(&self.failures), missed, tables];
        page("Connections over moves to another address", self, &self.head, &self.how_it_is_measured(), &sections)
    }

    fn csv(&self) -> String {
        let mut text =
            "kind,use,means,run,exchange_ms,first_data_ms,total_s,received_bytes,lateness_ms,tries\n".to_owned();
        for cell in &self.cells {
            let place = cell.place;
            for (index, run) in (1..).zip(&cell.runs) {
                let _ = writeln!(
                    text,
                    "{},{},{},{index},{},{},{},{},{},{}",
                    place.kind().name,
                    place.usage.name(),
                    place.means.name(),
                    number(run.exchange_ms),
                    number(run.first_data_ms),
                    number(run.total_s),
                    run.received,
                    run.lateness_ms,
                    run.tries
                );
            }
        }
        text
    }
}
