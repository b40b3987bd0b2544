//! The page, the table and the JSON of `holdover conformance --moves`.

use holdover_base::Duration;
use holdover_testbed::Lateness;
use holdover_transfers::spaced;
use serde::Serialize;

use super::cells::Cell;
use super::kinds::{KINDS, Kind};
use super::means::KEEP_ALIVE_S;
use super::place::{KEY, KEY_EVERY, KEYS, LOSSY_BOUND, Means, Use};
use super::run::{MOVES_AFTER, TRANSFER_TIME};
use crate::grid::{GridReport, Head, lower_median};
use crate::page::{failures, in_millis, marked, medians, millis_or_never, number, page, seconds_or_never, section};
use crate::results::Results;

/// Everything that is reported.
#[derive(Debug, Serialize)]
pub struct Report {
    #[serde(flatten)]
    head: Head,
    /// Of `wireguard-go`, if it could be had.
    wireguard_go: Option<String>,
    /// Why the kernel has no WireGuard, if it was to be compared and there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    lacks_wireguard: Option<String>,
    /// What the bounds allow the machine.
    #[serde(with = "holdover_transfers::nanos")]
    tolerance: Duration,
    /// Runs that were made again.
    repeated: usize,
    #[serde(flatten)]
    results: Results<Cell>,
}

impl Report {
    pub(super) fn new(
        results: Results<Cell>,
        wireguard_go: Option<String>,
        lacks_wireguard: Option<String>,
        tolerance: Duration,
        head: Head,
    ) -> Self {
        let repeated = results.bounded_runs().filter(|run| run.tries > 1).count();
        Self { head, wireguard_go, lacks_wireguard, tolerance, repeated, results }
    }

    /// How late the machine was, as the page says it.
    fn lateness(&self) -> String {
        let is_move = |cell: &&Cell| cell.place.usage != Use::Exchange;
        let of_runs =
            || self.results.cells().iter().filter(is_move).flat_map(|cell| &cell.runs).map(|run| run.lateness_ms);
        let worst = of_runs().fold(0.0, f64::max);
        let median = lower_median(of_runs().map(Some)).unwrap_or_default();
        format!(
            "From the new address to the first data, threads of this machine woke, or its links changed, up to {median:.0} ms late in the median \
             run, and {worst:.0} ms in the worst"
        )
    }

    /// Whether a cell has this means.
    fn has(&self, means: Means) -> bool {
        self.results.cells().iter().any(|cell| cell.place.means == means)
    }

    /// The sentences on the means that were measured.
    fn means(&self) -> String {
        let [plain, without_wake, hip, program, kernels, multipath] = Means::ALL.map(|means| self.has(means));
        let mut sentences = Vec::new();
        if plain {
            sentences.push("**plain TCP**: its connection is bound to the address that is gone.".to_owned());
        }
        let of_hip = match (hip, without_wake) {
            (true, true) => {
                "**hip**: `holdover hip` at both ends. **hip --no-wake**: the same without the retransmission trigger, and without the hold of connections (`[user_timeout] enabled = false`)."
            }
            (true, false) => "**hip**: `holdover hip` at both ends.",
            (false, true) => {
                "**hip --no-wake**: `holdover hip` at both ends, without the retransmission trigger and the hold of connections (`[user_timeout] enabled = false`)."
            }
            (false, false) => "",
        };
        sentences.push(of_hip.to_owned());
        let set_up = format!("the mobile host knows the server's address and sends keep-alives every {KEEP_ALIVE_S} s");
        if program {
            let version = self.wireguard_go.as_deref().unwrap_or("no program");
            sentences.push(format!("**wireguard-go**: {version} at both ends; {set_up}."));
        }
        match &self.lacks_wireguard {
            Some(why) => {
                sentences.push(format!("**wireguard**, the kernel's, was not measured: this kernel has none ({why})."))
            }
            None if kernels && program => {
                sentences.push("**wireguard**: the kernel's at both ends, set up likewise.".to_owned());
            }
            None if kernels => sentences.push(format!("**wireguard**: the kernel's at both ends; {set_up}.")),
            None => {}
        }
        if multipath {
            sentences.push(
                "**MPTCP**: the kernel's at both ends; endpoints are added and removed with the mobile host's addresses, as NetworkManager \
                 does, and the server announces its own."
                    .to_owned(),
            );
        }
        let (names, they_know) = match (program || kernels, multipath) {
            (true, true) => ("WireGuard and MPTCP are", "they know"),
            (true, false) => ("WireGuard is", "it knows"),
            (false, true) => ("MPTCP is", "it knows"),
            (false, false) => ("", ""),
        };
        if !names.is_empty() {
            sentences.push(format!(
                "{names} not compared where the mobile host's IP version or the server's address changes: here {they_know} one address of the \
                 server."
            ));
        }
        sentences.retain(|sentence| !sentence.is_empty());
        let note = "wireguard-go keeps the source address and the interface of a peer's packets. Of version 0.0.20220316 the log says after a gap \
                    that the network is unreachable, for each packet, until nothing was heard for 15 s and it begins a handshake.";
        format!("- {}\n{}", sentences.join(" "), if program { format!("- {note}\n") } else { String::new() })
    }

    /// When a connection counts as dead.
    fn never(&self) -> &'static str {
        if self.has(Means::Plain) {
            "not within 10 s of the new address with plain TCP, and not within 30 s and twice the gap with the others"
        } else {
            "not within 30 s of the new address and twice the gap"
        }
    }

    fn how_it_is_measured(&self) -> String {
        let runs = medians(self.results.repetitions());
        let path = self.head.path;
        format!(
            "A mobile host and a server, each a Linux kernel in a network namespace, and a router between them. Each of the mobile host's two links \
             carries {} and queues {} packets in each direction; the round trip is {}. The host moves {} after the connection was opened. Each cell \
             is {runs}; each byte that arrived was compared with the one sent.\n\n\
             - **download**, **upload**: {:.1} MB. **key**: a held key, {KEYS} times {KEY} bytes, every {}, and its echoes.\n\
             {}\
             - **exchange**: from the new address to the arrival of the answer by which the other host verifies it, the third packet; where both \
             hosts move, of the later one. Bound: 1.5 round trips ({}; where both hosts move 2, {}) and {} for the machine.\n\
             - **first data**: from the new address to the first data that a packet from it or to it brings to a program; in a make before break the longest pause \
             from then on. \
             Bound with hip: 1.5 round trips after the exchange (for the pause: in all), {} for the machine, and {} for a key.\n\
             - **total**: from the beginning to the last byte. *Never* is: {}.\n\n\
             What misses its bound is in bold. Runs of hip that missed it while the machine was {} late or more were made again, at most twice: {} runs. {}.\n",
            path.rate,
            path.queue,
            spaced(path.round_trip()),
            spaced(MOVES_AFTER.into()),
            path.amount(TRANSFER_TIME).0 as f64 / 1e6,
            spaced(KEY_EVERY.into()),
            self.means(),
            spaced(path.delay * 3),
            spaced(path.delay * 4),
            spaced(self.tolerance),
            spaced(self.tolerance),
            spaced(KEY_EVERY.into()),
            self.never(),
            spaced(Lateness::EXCUSE),
            self.repeated,
            self.lateness(),
        )
    }

    fn table(&self, kind: &'static Kind) -> String {
        let of_kind = || self.results.cells().iter().filter(|cell| std::ptr::eq(cell.place.kind(), kind));
        let headline = kind.headline;
        if of_kind().any(|cell| cell.place.usage == Use::Exchange) {
            let head = format!(
                "## {headline}\n\nMoves there and back, `holdover hip` at both ends. Bound of the 99th percentile: {:.0} ms.\n\n\
                 | moves | median | 99th percentile | longest |\n| ---: | ---: | ---: | ---: |\n",
                in_millis(LOSSY_BOUND)
            );
            return section(&head, of_kind().filter_map(row_of_exchanges));
        }
        let columns = "| use | means | exchange | first data | total |\n| --- | --- | ---: | ---: | ---: |";
        section(&format!("## {headline}\n\n{columns}\n"), of_kind().map(row))
    }
}

/// The row of many exchanges.
fn row_of_exchanges(cell: &Cell) -> Option<String> {
    let all = cell.figures.distribution.as_ref()?;
    let p99 = marked(cell.is_tail_late(), &millis_or_never(Some(all.p99_ms)));
    let [median, longest] = [all.median_ms, all.longest_ms].map(|millis| millis_or_never(Some(millis)));
    Some(format!("| {} | {median} | {p99} | {longest} |\n", all.exchanges))
}

/// The row of a connection over a move.
fn row(cell: &Cell) -> String {
    let exchange = if cell.place.means.is_hip() {
        marked(cell.is_exchange_late(), &millis_or_never(cell.figures.exchange_ms))
    } else {
        "–".to_owned()
    };
    let first = marked(cell.is_data_late(), &millis_or_never(cell.figures.first_data_ms));
    let total = match cell.figures.total_s {
        None if cell.place.means == Means::Plain => "never: the connection dies".to_owned(),
        total => seconds_or_never(total),
    };
    format!("| {} | {} | {exchange} | {first} | {total} |\n", cell.place.usage.name(), cell.place.means.name())
}

impl GridReport for Report {
    fn is_sound(&self) -> bool {
        self.results.are_sound()
    }

    fn in_a_line(&self) -> String {
        self.results.in_a_line("holdover hip", &self.head)
    }

    /// As `docs/conformance/moves.md`.
    fn markdown(&self) -> String {
        let tables: String = KINDS.iter().map(|kind| self.table(kind)).collect();
        let sections = [failures(self.results.failures()), self.results.misses(), tables];
        page("Connections over moves to another address", self, &self.head, &self.how_it_is_measured(), &sections)
    }

    fn csv(&self) -> String {
        let header = "kind,use,means,run,exchange_ms,first_data_ms,total_s,received_bytes,lateness_ms,tries";
        let of_cell = |cell: &Cell| {
            let place = cell.place;
            format!("{},{},{}", place.kind().name, place.usage.name(), place.means.name())
        };
        self.results.csv(header, of_cell, |_, run| {
            format!(
                "{},{},{},{},{},{}",
                number(run.exchange_ms),
                number(run.first_data_ms),
                number(run.total_s),
                run.received,
                run.lateness_ms,
                run.tries
            )
        })
    }
}
