//! The page: both kinds of cuts beside simulation and print, and the verdicts on the paper's claims.

use std::fmt::Write as _;
use std::ops::Range;

use holdover_base::ByteCount;
use holdover_lab::reproduce::judge::Verdict;
use holdover_transfers::spaced;
use serde::Serialize;

use super::cell::{MOST_TRANSMISSION_TIMES, PERIODIC_S, SINGLE_S, megabytes};
use super::claims::{self, Claim};
use super::{
    Cell, Cuts, DisconnectionsGrid, NetTime, PATH, Repeat, Run, Transferred, Transfers, USER_TIMEOUT, Variant,
    published_amount,
};
use crate::grid::lower_median;
use crate::page::{failures, in_millis, medians, page, section};
use crate::results::{self, Results};
use crate::{GridReport, Head, Outcome};

/// The mean delay of the prototype, and the exchange (see grid.toml).
const SIMULATED_READDRESSING_S: f64 = 2.5;
/// Between them a transfer's net time tells its retransmission timeout, in seconds.
const TIMEOUTS_S: Range<f64> = 0.25..0.5;

/// Why claims fail between kernels, by their names.
const REASONS: [(&str, &str); 16] = [
    ("abort-onset", LATE_ABORT),
    ("net-time-order", LATE_ABORT),
    ("tcp-hip-worst-case", PHASE),
    ("seesaw", PHASE),
    ("longer-can-be-faster", PHASE),
    (
        "uto-same-below-130",
        "Both are the same TCP up to 204.6 s. Its timeout at the cut differs between runs, and the wait with it",
    ),
    ("rt-net-time-flat", QUICK),
    ("rt-throughput", QUICK),
    ("factor-five", QUICK),
    (
        "periodic-tcp-aborts-17",
        "Phase decides, as in the simulator: between disconnections of 37 s one of the retransmissions meets a network",
    ),
    ("periodic-rt-17", QUICK),
    ("periodic-37-37", QUICK),
    ("periodic-67-37", QUICK),
    ("periodic-rt-insensitive-to-disconnect", "Runs of one cell differ as much"),
    ("longer-connected-less-loss", "Of the trigger, by 2 % at most; the cause is not known"),
    (
        "periodic-tcp-sensitive-to-rto-phase",
        "The wait is longer at 67 s, as claimed. The timeout is another one at each cut, and larger than Linux 2.4's",
    ),
];
const LATE_ABORT: &str =
    "This kernel gives up when its timer expires after 204.6 s: after 156 s the ninth retransmission meets a network";
const PHASE: &str =
    "The timeout at the cut decides: with more than 0.36 s the eighth retransmission comes soon after 91 s";
const QUICK: &str = "Readdressing takes 0.15 s here, and took the prototype 2 to 3 s";

/// The figures of a cell.
#[derive(Clone, PartialEq, Debug, Serialize)]
struct Figures {
    #[serde(flatten)]
    cell: Cell,
    /// The median; if most runs were not completed, why.
    net_time: NetTime,
    simulated: Vec<Transferred>,
}

type Row = results::Cell<Cell, Figures, Run>;

/// The results.
#[derive(Debug, Serialize)]
pub struct Report {
    #[serde(flatten)]
    head: Head,
    #[serde(flatten)]
    results: Results<Row>,
    /// With periodic disconnections.
    amount_bytes: u64,
    claims_of_single: Option<Vec<Claim>>,
    claims_of_periodic: Option<Vec<Claim>>,
}

impl Report {
    pub(super) fn new(grid: &DisconnectionsGrid, outcome: Outcome<Cell, Run>, head: Head) -> Self {
        let transferred = |runs: &[Run]| runs.iter().map(|run| run.transferred.clone()).collect();
        let here: Transfers = outcome.runs.iter().map(|(&cell, runs)| (cell, transferred(runs))).collect();
        let transfers = [&here, &grid.simulated, &grid.simulated_in_full];
        let rows = outcome.runs.into_iter().map(|(cell, runs)| {
            let simulated = grid.simulated.get(&cell).cloned().unwrap_or_default();
            Row::of_runs(cell, Figures { cell, net_time: typical(&here[&cell]), simulated }, runs, Vec::new())
        });
        Self {
            head,
            results: Results::new(rows.collect(), outcome.failures),
            amount_bytes: grid.amount.0,
            claims_of_single: claims::judged(&grid.paper, Repeat::Once, transfers),
            claims_of_periodic: claims::judged(&grid.paper, Repeat::Periodic, transfers),
        }
    }

    const fn amount(&self, repeat: Repeat) -> ByteCount {
        match repeat {
            Repeat::Once => published_amount(repeat),
            Repeat::Periodic => ByteCount(self.amount_bytes),
        }
    }

    fn row(&self, cuts: Cuts, variant: Variant) -> Option<&Row> {
        let cell = Cell { cuts, amount: self.amount(cuts.repeat), variant };
        self.results.cells().iter().find(|row| row.place == cell)
    }

    fn rows_of(&self, repeat: Repeat) -> impl Iterator<Item = &Row> {
        self.results.cells().iter().filter(move |row| row.place.cuts.repeat == repeat)
    }

    fn runs(&self) -> impl Iterator<Item = &Run> {
        self.results.cells().iter().flat_map(|row| &row.runs)
    }

    /// The results of these cuts; empty if there are none.
    fn table(&self, first: &str, cuts: &[Cuts]) -> String {
        let groups: String = Variant::ALL.iter().map(|it| format!(" {} | | |", it.name())).collect();
        let columns = " paper | simulated | here |".repeat(Variant::ALL.len());
        let rule = " ---: |".repeat(3 * Variant::ALL.len());
        let head = format!("| |{groups}\n| ---: |{rule}\n| **{first}** |{columns}\n");
        let measured = cuts.iter().filter(|cuts| Variant::ALL.iter().any(|it| self.row(**cuts, *it).is_some()));
        section(&head, measured.map(|&cuts| self.line(cuts)))
    }

    fn line(&self, cuts: Cuts) -> String {
        let mut text = format!("| {cuts} |");
        for variant in Variant::ALL {
            let cell = Cell { cuts, amount: self.amount(cuts.repeat), variant };
            let row = self.row(cuts, variant);
            let of = |column| row.map_or_else(Vec::new, |row| transfers(row, column));
            let [simulated, here] = [Column::Simulated, Column::Here].map(|column| shown(cell, &of(column)));
            let _ = write!(text, " {} | {simulated} | {here} |", cell.published());
        }
        text.push('\n');
        text
    }

    /// A net time of the table, in seconds.
    fn net_s(&self, disconnected_s: u64, variant: Variant, column: Column) -> Option<f64> {
        let row = self.row(Cuts::once(disconnected_s), variant)?;
        match column {
            Column::Simulated => typical(&row.figures.simulated),
            Column::Here => row.figures.net_time,
        }
        .seconds()
    }

    /// The least and the largest retransmission timeout at the cut, by the rows of a column.
    fn timeouts_at_cut(&self, column: Column) -> Option<(f64, f64)> {
        let readdressing_s = match column {
            Column::Simulated => SIMULATED_READDRESSING_S,
            Column::Here => self.exchange_s(Repeat::Once).unwrap_or(0.0),
        };
        let of_row = |disconnected_s| {
            let [plain, triggered] =
                [Variant::UserTimeout, Variant::Trigger].map(|it| self.net_s(disconnected_s, it, column));
            timeout_at_cut(disconnected_s, plain?, triggered?, readdressing_s)
        };
        let timeouts: Vec<f64> = SINGLE_S.into_iter().filter_map(of_row).collect();
        let least = timeouts.iter().copied().reduce(f64::min)?;
        Some((least, timeouts.into_iter().reduce(f64::max)?))
    }

    /// The median duration of readdressing, in seconds.
    fn exchange_s(&self, repeat: Repeat) -> Option<f64> {
        lower_median(self.rows_of(repeat).flat_map(|row| &row.runs).flat_map(|run| run.exchanges_s.iter().copied()))
    }

    fn timer(&self) -> String {
        let shown = |column| match self.timeouts_at_cut(column) {
            Some((least, largest)) => format!("{least:.2} to {largest:.2} s"),
            None => "not known".to_owned(),
        };
        format!(
            "The retransmission timer explains the columns without the trigger: their data go on with the first retransmission after readdressing, and the \
             n-th one leaves R (2^n - 1) after the cut. By the net times of `tcp-uto-hip`, R at the cut was {} simulated and {} here. After 91 s the eighth (255 R) comes too \
             early with R below 0.37 s simulated and 0.36 s here, so that the data wait for the ninth; with a larger R it comes soon after readdressing. After 156 s the \
             ninth (511 R) comes too early with R below 0.31 s, as in the paper, whose standard TCP aborts then.\n\n",
            shown(Column::Simulated),
            shown(Column::Here),
        )
    }

    fn single(&self) -> String {
        let table = self.table("disconnected", &SINGLE_S.map(Cuts::once));
        if table.is_empty() {
            return table;
        }
        let amount = megabytes(self.amount(Repeat::Once));
        let how = format!(
            "## Single disconnections: figures 10 to 12\n\n{amount}, cut once, 10 s after its beginning. Net times in seconds; dashes stand where the paper prints no \
             number. Readdressing took {} in the median.\n\n",
            in_seconds(self.exchange_s(Repeat::Once)),
        );
        [how, table, self.timer(), claims_section(self.claims_of_single.as_deref(), &amount)].concat()
    }

    fn periodic(&self) -> String {
        let cuts = PERIODIC_S.map(|(connected_s, disconnected_s)| Cuts::periodic(connected_s, disconnected_s));
        let table = self.table("connected / disconnected", &cuts);
        if table.is_empty() {
            return table;
        }
        let [amount, full] = [self.amount(Repeat::Periodic), published_amount(Repeat::Periodic)].map(megabytes);
        let mut how = format!(
            "## Periodic disconnections: figure 13\n\n{amount}, while the mobile host alternates between the two networks. Mbit/s of net time; the paper's 25 MB without a cut, \
             22 s over HIP, are 9.09. Its 8.07, 8.14 and 8.60 are those of its 595, 590 and 558 s. Readdressing took {} in the median. A transfer is *unfinished* \
             if it takes {MOST_TRANSMISSION_TIMES} times as long as the link needs for its data, simulated if it takes 3 h.\n\n",
            in_seconds(self.exchange_s(Repeat::Periodic)),
        );
        if amount != full {
            let _ = write!(
                how,
                "The paper transferred {full}. Real time is shortened by the amount: {amount} here and in the simulated columns. The periods are the paper's, as the kernel's timers \
                 cannot be scaled. A shorter transfer ends with another share of its last period, so that a cell has a few cuts more or fewer for each MB; simulations of both amounts tell \
                 what that makes of a claim.\n\n",
            );
        }
        [how, table, self.idle(), claims_section(self.claims_of_periodic.as_deref(), &amount)].concat()
    }

    /// The waits of the sender after periodic disconnections.
    fn idle(&self) -> String {
        let lengths: std::collections::BTreeSet<u64> = PERIODIC_S.into_iter().map(|(_, length)| length).collect();
        let idle = |disconnected_s: u64, variant: Variant, column: Column| {
            let rows = self.rows_of(Repeat::Periodic);
            let rows =
                rows.filter(|row| row.place.variant == variant && row.place.cuts.disconnected_s == disconnected_s);
            let completed = rows.flat_map(|row| transfers(row, column)).filter(|it| it.net_time.seconds().is_some());
            let idle: Vec<f64> = completed.flat_map(|it| it.idle_s).collect();
            let median = lower_median(idle.iter().copied().map(Some));
            median.map_or("–".to_owned(), |it| spread(it, idle.iter().copied(), |seconds| format!("{seconds:.1}")))
        };
        let line = |disconnected_s: u64| {
            let printed = if disconnected_s == 37 { "3 to 8" } else { "15 to 25" };
            let of = |variant, column| idle(disconnected_s, variant, column);
            let [standard, trigger] = [Variant::Standard, Variant::Trigger]
                .map(|it| format!("{} | {}", of(it, Column::Simulated), of(it, Column::Here)));
            format!("| {disconnected_s} s | {printed} | {standard} | {trigger} |\n")
        };
        let head = "From the return of a network to the first new data at the server, in seconds: the median of all returns in transfers that were completed, and \
                    their range. Only returns that new data followed before the next cut count.\n\n\
                    | | tcp-hip | | | tcp-uto-rt-hip | |\n| ---: | ---: | ---: | ---: | ---: | ---: |\n\
                    | **disconnected** | paper | simulated | here | simulated | here |\n";
        section(head, lengths.into_iter().map(line))
    }
}

/// The columns of a variant that were run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Column {
    Simulated,
    Here,
}

/// The transfers of a cell.
fn transfers(row: &Row, column: Column) -> Vec<Transferred> {
    match column {
        Column::Simulated => row.figures.simulated.clone(),
        Column::Here => row.runs.iter().map(|run| run.transferred.clone()).collect(),
    }
}

fn in_seconds(time_s: Option<f64>) -> String {
    time_s.map_or("no measured time".to_owned(), |seconds| format!("{seconds:.2} s"))
}

/// The median; if most runs were not completed, why.
fn typical(runs: &[Transferred]) -> NetTime {
    match lower_median(runs.iter().map(|run| run.net_time.seconds())) {
        Some(seconds) => NetTime::Completed(seconds),
        None if runs.iter().any(|run| run.net_time == NetTime::Aborted) => NetTime::Aborted,
        None => NetTime::Unfinished,
    }
}

/// The median of values, and their range if that is another number as shown.
fn spread(median: f64, values: impl Iterator<Item = f64> + Clone, show: impl Fn(f64) -> String) -> String {
    let [least, most] = [values.clone().fold(median, f64::min), values.fold(median, f64::max)].map(&show);
    let median = show(median);
    if least == most { median } else { format!("{median} ({least} to {most})") }
}

/// The runs of a cell in a table: the median, the range, and the number of those that were not completed.
fn shown(cell: Cell, runs: &[Transferred]) -> String {
    let figure = |net_s: f64| match cell.cuts.repeat {
        Repeat::Once => net_s,
        Repeat::Periodic => cell.amount.bits() as f64 / net_s / 1e6,
    };
    let show = |value: f64| match cell.cuts.repeat {
        Repeat::Once => format!("{value:.1}"),
        Repeat::Periodic => format!("{value:.2}"),
    };
    let completed = runs.iter().filter_map(|run| run.net_time.seconds()).map(figure);
    let (all, missing) = (runs.len(), runs.len() - completed.clone().count());
    match typical(runs) {
        _ if runs.is_empty() => "–".to_owned(),
        NetTime::Completed(net_s) if missing == 0 => spread(figure(net_s), completed, show),
        NetTime::Completed(net_s) => {
            format!("{}; {missing} of {all} {}", spread(figure(net_s), completed, show), failed(runs))
        }
        typical if missing == all => typical.to_string(),
        _ => {
            let completed: Vec<String> = completed.map(show).collect();
            format!("{missing} of {all} {}, else {}", failed(runs), completed.join(", "))
        }
    }
}

/// How runs that were not completed ended.
fn failed(runs: &[Transferred]) -> &'static str {
    if runs.iter().any(|run| run.net_time == NetTime::Aborted) { "abort" } else { "unfinished" }
}

/// The retransmission timeout R, in seconds, with which a transfer without the trigger has this net time: its data go on with the first
/// retransmission after readdressing, and the n-th one leaves R (2^n - 1) after the cut. With the trigger, and its net time, they go on when
/// readdressing ends.
fn timeout_at_cut(disconnected_s: u64, net_s: f64, with_trigger_s: f64, readdressing_s: f64) -> Option<f64> {
    let usable_s = disconnected_s as f64 + readdressing_s;
    let resumed_s = usable_s + net_s - with_trigger_s;
    // From the tenth on, retransmissions are 120 s apart.
    let schedule = |n: i32| (2_f64.powi(n.min(9)) - 1.0, 120.0 * f64::from((n - 9).max(0)));
    let timeout_of = |n| {
        let (periods, more_s) = schedule(n);
        (resumed_s - more_s) / periods
    };
    let first_after = (1..=12).find(|&n| TIMEOUTS_S.contains(&timeout_of(n)))?;
    let (timeout, (periods, more_s)) = (timeout_of(first_after), schedule(first_after - 1));
    Some(timeout).filter(|timeout| timeout * periods + more_s < usable_s)
}

/// The verdicts on claims, with the reason where one fails here.
fn claims_section(claims: Option<&[Claim]>, amount: &str) -> String {
    let Some(claims) = claims else {
        return "The paper's claims are judged when all cells were measured.\n\n".to_owned();
    };
    let has_full = claims.iter().any(|claim| claim.in_full.is_some());
    let full = megabytes(published_amount(Repeat::Periodic));
    let holding = claims.iter().filter(|claim| claim.here.verdict == Verdict::Holds).count();
    let (scaled, columns, rules) = if has_full {
        let scaled = format!(" (net times are those of {full} at the rates of the table)");
        (scaled, format!("simulated, {full} | simulated, {amount}"), "--- | ---")
    } else {
        (String::new(), "simulated".to_owned(), "---")
    };
    let verdict = |verdict: Option<Verdict>| verdict.map_or("–", Verdict::name);
    let mut text = format!(
        "Of {} claims {holding} hold here, by the checks of [the reproduction](hip-uto-rt.md){scaled}.\n\n\
         | claim | {columns} | here | found here |\n| --- | {rules} | --- | --- |\n",
        claims.len(),
    );
    for claim in claims {
        let here = &claim.here;
        let in_full = if has_full { format!("{} | ", verdict(claim.in_full)) } else { String::new() };
        let simulated = verdict(claim.simulated);
        let reason = reason(claim).map_or(String::new(), |reason| format!(". {reason}"));
        let (id, claim, found) = (&here.id, &here.text, &here.found);
        let _ =
            writeln!(text, "| `{id}`: {claim} | {in_full}{simulated} | {} | {found}{reason} |", here.verdict.name());
    }
    text.push('\n');
    text
}

/// Why a claim fails here, if it does and that is known.
fn reason(claim: &Claim) -> Option<&'static str> {
    if claim.here.verdict != Verdict::Fails {
        return None;
    }
    if (claim.in_full, claim.simulated) == (Some(Verdict::Holds), Some(Verdict::Fails)) {
        return Some("The amount decides, by the simulations");
    }
    REASONS.iter().find(|(id, _)| *id == claim.here.id).map(|(_, reason)| *reason)
}

impl GridReport for Report {
    /// The cells are for comparison and have no bounds.
    fn is_sound(&self) -> bool {
        self.results.are_sound()
    }

    fn in_a_line(&self) -> String {
        let cells = self.results.cells().len();
        format!("{cells} cells, {}, in {} s", medians(self.results.repetitions()), self.head.seconds)
    }

    fn markdown(&self) -> String {
        let worst = self.runs().map(|run| run.lateness).max().unwrap_or_default();
        let median = lower_median(self.runs().map(|run| Some(in_millis(run.lateness)))).unwrap_or_default();
        let how = format!(
            "A transfer from the mobile host over links of {} with {} packets of queue, and a round trip of {}, is cut, and goes on over the other link, from another address. \
             Net time is the time of the transfer without that of disconnections. Each cell shows the median of its runs, and their range.\n\n\
             - **paper**: as printed; Linux 2.4.20, a prototype of HIP; medians of ten runs.\n\
             - **simulated**: `experiments/hip-uto-rt/grid.toml` with these cuts, as many runs, at the setting at which the paper's page judges claims. The profile is \
             Linux 2.4's, and readdressing is delayed as the prototype's was, by 1.9 to 2.9 s.\n\
             - **here**: kernels in network namespaces with daemons of `holdover hip`, in real time; each byte was compared with the one sent. \
             Congestion control is Reno, the rest of TCP this kernel's default. \
             A thread of this machine, or one that changes a link, was up to {median:.0} ms late in the median run, and {:.0} ms in the worst.\n\
             - **tcp-hip**: `--no-wake` at both ends, and the daemons hold no connections (`[user_timeout] enabled = false`). `tcp_retries2` = 9 ends a connection when its timer \
             expires 204.6 s or more after the first \
             retransmission: with a retransmission timeout of 0.2 to 0.4 s at the cut at the tenth time, after nine retransmissions, as in the paper.\n\
             - **tcp-uto-hip**: the same, with a user timeout of {} minutes at both ends (`TCP_USER_TIMEOUT`).\n\
             - **tcp-uto-rt-hip**: `holdover hip up` as it is: with the retransmission trigger, and with its hold of connections in place of the user timeout. The \
             paper's figure 13 has the trigger without the user timeout.\n",
            PATH.rate,
            PATH.queue,
            spaced(PATH.round_trip()),
            in_millis(worst),
            USER_TIMEOUT.as_secs() / 60,
        );
        let sections = [self.single(), self.periodic(), failures(self.results.failures())];
        page("Disconnections between kernels", self, &self.head, &how, &sections)
    }

    fn csv(&self) -> String {
        let header =
            "connected_s,disconnected_s,repeat,amount_bytes,variant,run,net_time,cuts,received_bytes,lateness_ms";
        let of_cell = |row: &Row| {
            let Cell { cuts, amount, variant } = row.place;
            let repeat = if cuts.repeat == Repeat::Once { "once" } else { "periodic" };
            format!("{},{},{repeat},{},{}", cuts.connected_s, cuts.disconnected_s, amount.0, variant.name())
        };
        self.results.csv(header, of_cell, |_, run| {
            let (net_time, cuts) = (run.transferred.net_time, run.exchanges_s.len());
            format!("{net_time},{cuts},{},{}", run.received, in_millis(run.lateness))
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration as WallDuration;

    use super::*;
    use crate::About;

    fn transferred(net_time: NetTime) -> Transferred {
        Transferred { net_time, idle_s: Vec::new() }
    }

    #[test]
    fn a_cell_whose_runs_mostly_abort_has_no_net_time() {
        let [short, long] = [20.0, 30.0].map(|seconds| transferred(NetTime::Completed(seconds)));
        let [aborted, unfinished] = [NetTime::Aborted, NetTime::Unfinished].map(transferred);
        assert_eq!(typical(&[long.clone(), aborted.clone(), short]), NetTime::Completed(30.0));
        assert_eq!(typical(&[aborted.clone(), unfinished.clone(), long]), NetTime::Aborted);
        assert_eq!(typical(&[unfinished]), NetTime::Unfinished);
    }

    /// The rows of 2026-11-29: after 91 s the simulated sender waits for its ninth retransmission, the kernel for its eighth.
    #[test]
    fn net_times_tell_the_timeout_at_the_cut() {
        let simulated =
            [(13, 31.2), (26, 40.5), (39, 27.5), (52, 59.0), (91, 108.9), (130, 69.9), (156, 43.9), (208, 111.9)];
        for (disconnected_s, net_s) in simulated {
            let timeout = timeout_at_cut(disconnected_s, net_s, 25.3, SIMULATED_READDRESSING_S).unwrap();
            assert!((0.335..0.35).contains(&timeout), "{disconnected_s} s: {timeout}");
        }
        let here = [(39, 30.3, 25.0), (78, 38.0, 24.4), (91, 26.0, 24.4), (156, 52.2, 24.4), (208, 121.0, 24.4)];
        for (disconnected_s, net_s, with_trigger_s) in here {
            let timeout = timeout_at_cut(disconnected_s, net_s, with_trigger_s, 0.15).unwrap();
            assert!((0.34..0.365).contains(&timeout), "{disconnected_s} s: {timeout}");
        }
    }

    #[test]
    fn a_cell_shows_its_median_its_range_and_what_was_not_completed() {
        let cell = |cuts| Cell { cuts, amount: ByteCount(100_000_000), variant: Variant::Standard };
        let text = |cuts, runs: &[NetTime]| {
            let runs: Vec<Transferred> = runs.iter().copied().map(transferred).collect();
            shown(cell(cuts), &runs)
        };
        let [fast, slow] = [80.0, 100.0].map(NetTime::Completed);
        assert_eq!(text(Cuts::once(52), &[fast, slow, slow]), "100.0 (80.0 to 100.0)");
        assert_eq!(text(Cuts::once(52), &[fast, NetTime::Completed(80.01)]), "80.0");
        assert_eq!(text(Cuts::periodic(37, 67), &[slow]), "8.00");
        assert_eq!(text(Cuts::periodic(37, 67), &[fast, slow, slow]), "8.00 (8.00 to 10.00)");
        assert_eq!(text(Cuts::once(52), &[fast, slow, NetTime::Aborted]), "100.0 (80.0 to 100.0); 1 of 3 abort");
        assert_eq!(text(Cuts::once(52), &[fast, NetTime::Aborted, NetTime::Aborted]), "2 of 3 abort, else 80.0");
        assert_eq!(text(Cuts::once(52), &[NetTime::Aborted, NetTime::Aborted]), "aborts");
        assert_eq!(text(Cuts::once(52), &[NetTime::Unfinished]), "unfinished");
        assert_eq!(text(Cuts::once(52), &[]), "–");
    }

    fn report(rows: Vec<Row>) -> Report {
        let head = Head::new(About { command: String::new(), date: String::new() }, WallDuration::ZERO, PATH);
        let results = Results::new(rows, Vec::new());
        Report { head, results, amount_bytes: 100_000_000, claims_of_single: None, claims_of_periodic: None }
    }

    fn row(cuts: Cuts, variant: Variant, here: NetTime, simulated: Option<f64>) -> Row {
        let amount = if cuts.repeat == Repeat::Once { 25_000_000 } else { 100_000_000 };
        let cell = Cell { cuts, amount: ByteCount(amount), variant };
        let simulated = simulated.map(|net_s| transferred(NetTime::Completed(net_s))).into_iter().collect();
        let run = Run {
            transferred: Transferred { net_time: here, idle_s: vec![5.0] },
            exchanges_s: vec![Some(0.15)],
            received: amount,
            lateness: holdover_base::Duration::from_millis(7),
        };
        Row::of_runs(cell, Figures { cell, net_time: here, simulated }, vec![run], Vec::new())
    }

    #[test]
    fn the_tables_have_the_printed_simulated_and_measured_values_of_each_cell() {
        let page = report(vec![
            row(Cuts::once(156), Variant::Standard, NetTime::Aborted, Some(29.0)),
            row(Cuts::once(156), Variant::Trigger, NetTime::Completed(31.44), None),
            row(Cuts::periodic(67, 37), Variant::Standard, NetTime::Completed(100.0), Some(80.0)),
        ])
        .markdown();
        for line in [
            "| 156 s | aborts | 29.0 | aborts | 105 to 140 | – | – | 24 to 27 | – | 31.4 |",
            "| 67 s / 37 s | 8.07 | 10.00 | 8.00 | – | – | – | 8.60 | – | – |",
            "| 37 s | 3 to 8 | – | 5.0 | – | – |",
        ] {
            assert!(page.lines().any(|it| it == line), "{line}\n{page}");
        }
        assert!(page.contains("Real time is shortened by the amount: 100 MB here"), "{page}");
        assert!(page.contains("up to 7 ms late in the median run, and 7 ms in the worst"), "{page}");
        let periodic = row(Cuts::periodic(67, 37), Variant::Standard, NetTime::Completed(100.0), None);
        assert!(!report(vec![periodic]).markdown().contains("## Single disconnections"));
    }
}
