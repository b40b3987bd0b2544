//! Single disconnections as in "Protocol Enhancements for Intermittently Connected Hosts" (figures 10 to 12), between kernels in network
//! namespaces with daemons of `holdover hip`: a transfer from the mobile host is cut and goes on over another access network.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::thread::sleep;
use std::time::{Duration as WallDuration, Instant};

use holdover_base::{BitRate, Duration};
use holdover_host::sysctl;
use holdover_link::Loss;
use holdover_testbed::Lateness;
use holdover_testbed::access::AccessNetwork;
use holdover_transfers::{NetPath, spaced};
use serde::{Deserialize, Serialize};

use super::exchange::Packets;
use super::kinds::{LTE, SERVER, WIFI};
use super::means::{Directory, HipHost};
use super::place::Use;
use super::run::{FIXED, LINKS_OF_SERVER, MOBILE, MovesError, PORT, links, next_seed};
use super::transfer::{SocketOptions, Transfer};
use crate::grid::{lower_median, watch_lateness};
use crate::page::{failures, in_millis, number, page};
use crate::results::{self, Results};
use crate::{Grid, GridOptions, GridPlace, GridReport, Head, Outcome, Unable};

/// The paper's bottleneck, and its round trip of 100 ms.
const PATH: NetPath = NetPath { rate: BitRate::from_mbps(10), delay: Duration::from_millis(50), queue: 75 };
/// The bytes of a transfer.
const AMOUNT: u64 = 25_000_000;
/// From the beginning of a transfer to the cut: one of the paper's connected periods.
pub const CONNECTED: WallDuration = WallDuration::from_secs(10);
/// A sample of the paper's disconnections, in seconds: short and long waits of its standard TCP, and two at which that aborts.
const DISCONNECTED_S: [u64; 9] = [13, 26, 39, 52, 78, 91, 130, 156, 208];
/// The paper's standard TCP always aborts at longer disconnections, in seconds (section 4.1.1).
const ALWAYS_ABORTS_BEYOND_S: u64 = 143;
/// The mean delay of the prototype, and the exchange (see grid.toml).
const SIMULATED_READDRESSING_S: f64 = 2.5;
/// Between them a transfer's net time tells its retransmission timeout, in seconds.
const TIMEOUTS_S: std::ops::Range<f64> = 0.25..0.5;
/// At the end of a disconnection the sender's timer may run for another 120 s, and the rest of the transfer takes 12 s.
const PATIENCE: WallDuration = WallDuration::from_secs(160);
const POLL_EVERY: WallDuration = WallDuration::from_millis(20);
const USER_TIMEOUT: WallDuration = WallDuration::from_secs(15 * 60);
/// As the paper's sender: Reno, and nine retransmissions. See [`Report::markdown`] for what Linux makes of the number.
const STACK: [(&str, &str); 2] = [("net.ipv4.tcp_congestion_control", "reno"), ("net.ipv4.tcp_retries2", "9")];

/// The mechanisms at both ends.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Variant {
    /// `holdover hip up --no-wake`.
    Standard,
    /// The same, and a user timeout of 15 minutes, as in the paper.
    UserTimeout,
    /// The same user timeout, and `holdover hip up` with its retransmission trigger.
    Trigger,
}

impl Variant {
    /// In the order of columns.
    pub const ALL: [Self; 3] = [Self::Standard, Self::UserTimeout, Self::Trigger];

    /// The name in the paper's scenarios.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Standard => "tcp-hip",
            Self::UserTimeout => "tcp-uto-hip",
            Self::Trigger => "tcp-uto-rt-hip",
        }
    }

    /// The net times that the paper prints, in seconds.
    const fn published(self, disconnected_s: u64) -> &'static str {
        match self {
            Self::Standard if disconnected_s > ALWAYS_ABORTS_BEYOND_S => "aborts",
            Self::UserTimeout if disconnected_s > ALWAYS_ABORTS_BEYOND_S => "105 to 140",
            Self::Standard | Self::UserTimeout => "–",
            Self::Trigger => "24 to 27",
        }
    }
}

/// A cell of the grid.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
pub struct Cell {
    /// The length of the disconnection.
    pub disconnected_s: u64,
    /// The mechanisms at both ends.
    pub variant: Variant,
}

/// Prints `52 s, tcp-hip`.
impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} s, {}", self.disconnected_s, self.variant.name())
    }
}

impl GridPlace for Cell {
    /// Most of the time the runs are disconnected.
    const JOBS: u16 = 9;

    fn has_bounds(self) -> bool {
        false
    }
}

/// How a transfer ends.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NetTime {
    /// The time of the transfer without that of the disconnection, in seconds.
    Completed(f64),
    /// The connection failed.
    Aborted,
    /// The measurement ended first.
    Unfinished,
}

/// For a table.
impl fmt::Display for NetTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Completed(seconds) => write!(f, "{seconds:.1}"),
            Self::Aborted => f.write_str("aborts"),
            Self::Unfinished => f.write_str("unfinished"),
        }
    }
}

/// A run of a cell.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Run {
    net_time: NetTime,
    /// From the new address to the end of the exchange.
    #[serde(with = "holdover_transfers::nanos::optional")]
    exchange: Option<Duration>,
    received: u64,
    /// See [`Lateness`].
    #[serde(with = "holdover_transfers::nanos")]
    lateness: Duration,
}

/// The grid.
#[derive(Clone, Debug)]
pub struct DisconnectionsGrid {
    /// `holdover`, for its command `hip`.
    pub holdover: PathBuf,
    /// The directory with this name for the files of a run, which creates and removes it.
    pub directory: fn(&str) -> PathBuf,
    /// The same cells in the simulator.
    pub simulated: BTreeMap<Cell, NetTime>,
}

impl DisconnectionsGrid {
    /// One run of each cell, over the paper's path.
    pub const fn options() -> GridOptions {
        GridOptions { only: None, with_long: false, path: PATH, repeat: 1, jobs: None, journal: None }
    }

    /// All cells, the longest first.
    pub fn cells() -> Vec<Cell> {
        let lengths = DISCONNECTED_S.into_iter().rev();
        lengths.flat_map(|disconnected_s| Variant::ALL.map(|variant| Cell { disconnected_s, variant })).collect()
    }
}

impl Grid for DisconnectionsGrid {
    type Place = Cell;
    type Machine = Lateness;
    type Run = Run;
    type Error = MovesError;
    type Report = Report;

    fn name(&self) -> &'static str {
        "disconnections"
    }

    fn places(&self, options: &GridOptions) -> Vec<Cell> {
        let is_selected = |cell: &Cell| options.only.as_ref().is_none_or(|text| cell.to_string().contains(text));
        Self::cells().into_iter().filter(is_selected).collect()
    }

    fn examine(&self) -> Result<Lateness, Unable> {
        watch_lateness()
    }

    fn run(&self, cell: Cell, machine: &Lateness) -> Result<Run, MovesError> {
        World::new(self, cell.variant)?.run(cell, machine)
    }

    fn report(&self, _: Lateness, outcome: Outcome<Cell, Run>, head: Head) -> Report {
        let rows = outcome.runs.iter().map(|(&cell, runs)| {
            let figures = Figures { cell, net_time: typical(runs), simulated: self.simulated.get(&cell).copied() };
            Row::of_runs(cell, figures, runs.clone(), Vec::new())
        });
        Report { head, results: Results::new(rows.collect(), outcome.failures) }
    }
}

/// The median; if most runs were not completed, why.
fn typical(runs: &[Run]) -> NetTime {
    let seconds = |run: &Run| match run.net_time {
        NetTime::Completed(seconds) => Some(seconds),
        NetTime::Aborted | NetTime::Unfinished => None,
    };
    match lower_median(runs.iter().map(seconds)) {
        Some(seconds) => NetTime::Completed(seconds),
        None if runs.iter().any(|run| run.net_time == NetTime::Aborted) => NetTime::Aborted,
        None => NetTime::Unfinished,
    }
}

/// Two hosts with an association. Fields are dropped in this order: daemons before their network and their files.
struct World {
    _mobile: HipHost,
    server: HipHost,
    network: AccessNetwork,
    _directory: Directory,
    packets: Packets,
}

impl World {
    fn new(grid: &DisconnectionsGrid, variant: Variant) -> Result<Self, MovesError> {
        let (directory, packets) = (Directory::new(grid.directory)?, Packets::default());
        let names = ["mobile", "server", "rendezvous"];
        let network = AccessNetwork::new(&names, &links(PATH, Loss::None), next_seed(), packets.observer())?;
        network.attach(MOBILE, &WIFI)?;
        network.attach(FIXED, &SERVER)?;
        for host in [network.host(MOBILE), network.host(FIXED)] {
            host.enter(|| STACK.into_iter().try_for_each(|(name, value)| sysctl::set(host, name, value)))??;
        }
        let mut mobile = HipHost::new(&grid.holdover, &directory, "mobile", &[WIFI.address], None)?;
        let mut server = HipHost::new(&grid.holdover, &directory, "server", &[SERVER.address], None)?;
        mobile.introduce(&server)?;
        let wake = variant == Variant::Trigger;
        server.up(network.host(FIXED), wake)?;
        mobile.up(network.host(MOBILE), wake)?;
        mobile.wait_for("server", "no association", |peer| peer.state == "ESTABLISHED")?;
        Ok(Self { _mobile: mobile, server, network, _directory: directory, packets })
    }

    /// Cuts a transfer.
    fn run(self, cell: Cell, machine: &Lateness) -> Result<Run, MovesError> {
        let hosts = [self.network.host(MOBILE), self.network.host(FIXED)];
        let user_timeout = (cell.variant != Variant::Standard).then_some(USER_TIMEOUT);
        let options = SocketOptions { user_timeout, ..SocketOptions::default() };
        let transfer = Transfer::start(Use::Upload, AMOUNT, hosts, (self.server.hit()?, PORT).into(), options)?;
        let began_at = transfer.began_at;
        sleep((began_at + CONNECTED).saturating_duration_since(Instant::now()));
        let cut_at = Instant::now();
        self.network.detach(MOBILE, &WIFI)?;
        sleep(WallDuration::from_secs(cell.disconnected_s));
        let moved_at = Instant::now();
        self.network.attach(MOBILE, &LTE)?;
        let give_up_at = moved_at + PATIENCE;
        while !transfer.is_complete() && !transfer.is_broken() && Instant::now() < give_up_at {
            sleep(POLL_EVERY);
        }
        let is_broken = transfer.is_broken();
        let arrivals = transfer.end()?;
        let received = arrivals.last().map_or(0, |(_, bytes)| *bytes);
        let net_time = match arrivals.last().filter(|_| received == AMOUNT) {
            Some((at, _)) => NetTime::Completed((*at - began_at - (moved_at - cut_at)).as_secs_f64()),
            None if is_broken => NetTime::Aborted,
            None => NetTime::Unfinished,
        };
        let verified_at = self.packets.verified(LTE.address, &LINKS_OF_SERVER, moved_at);
        Ok(Run {
            net_time,
            exchange: verified_at.map(|at| (at - moved_at).into()),
            received,
            lateness: machine.worst_between(began_at, Instant::now()),
        })
    }
}

/// The figures of a cell.
#[derive(Clone, PartialEq, Debug, Serialize)]
struct Figures {
    #[serde(flatten)]
    cell: Cell,
    net_time: NetTime,
    simulated: Option<NetTime>,
}

type Row = results::Cell<Cell, Figures, Run>;

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

/// The results.
#[derive(Debug, Serialize)]
pub struct Report {
    #[serde(flatten)]
    head: Head,
    #[serde(flatten)]
    results: Results<Row>,
}

impl Report {
    fn runs(&self) -> impl Iterator<Item = &Run> {
        self.results.cells().iter().flat_map(|row| &row.runs)
    }

    fn table(&self) -> String {
        let groups: String = Variant::ALL.iter().map(|it| format!(" {} | | |", it.name())).collect();
        let columns = " paper | simulated | here |".repeat(Variant::ALL.len());
        let rule = " ---: |".repeat(3 * Variant::ALL.len());
        let mut text = format!("| |{groups}\n| ---: |{rule}\n| **disconnected** |{columns}\n");
        for disconnected_s in DISCONNECTED_S {
            text += &format!("| {disconnected_s} s |");
            for variant in Variant::ALL {
                let row = self.results.cells().iter().find(|row| row.place == Cell { disconnected_s, variant });
                let shown = |time: Option<NetTime>| time.map_or("–".to_owned(), |time| time.to_string());
                let simulated = shown(row.and_then(|row| row.figures.simulated));
                let here = shown(row.map(|row| row.figures.net_time));
                text += &format!(" {} | {simulated} | {here} |", variant.published(disconnected_s));
            }
            text.push('\n');
        }
        text
    }
}

/// The columns of a variant that were run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Column {
    Simulated,
    Here,
}

impl Report {
    /// A net time of the table, in seconds.
    fn net_s(&self, disconnected_s: u64, variant: Variant, column: Column) -> Option<f64> {
        let row = self.results.cells().iter().find(|row| row.place == Cell { disconnected_s, variant })?;
        let time = match column {
            Column::Simulated => row.figures.simulated?,
            Column::Here => row.figures.net_time,
        };
        match time {
            NetTime::Completed(seconds) => Some(seconds),
            NetTime::Aborted | NetTime::Unfinished => None,
        }
    }

    /// The least and the largest retransmission timeout at the cut, by the rows of a column.
    fn timeouts_at_cut(&self, column: Column) -> Option<(f64, f64)> {
        let readdressing_s = match column {
            Column::Simulated => SIMULATED_READDRESSING_S,
            Column::Here => self.exchange_s().unwrap_or(0.0),
        };
        let of_row = |disconnected_s| {
            let [plain, triggered] =
                [Variant::UserTimeout, Variant::Trigger].map(|it| self.net_s(disconnected_s, it, column));
            timeout_at_cut(disconnected_s, plain?, triggered?, readdressing_s)
        };
        let timeouts: Vec<f64> = DISCONNECTED_S.into_iter().filter_map(of_row).collect();
        let least = timeouts.iter().copied().reduce(f64::min)?;
        Some((least, timeouts.into_iter().reduce(f64::max)?))
    }

    /// The duration of readdressing in the median run, in seconds.
    fn exchange_s(&self) -> Option<f64> {
        lower_median(self.runs().map(|run| run.exchange.map(Duration::as_secs_f64)))
    }

    fn timer(&self) -> String {
        let shown = |column| match self.timeouts_at_cut(column) {
            Some((least, largest)) => format!("{least:.2} to {largest:.2} s"),
            None => "not known".to_owned(),
        };
        format!(
            "\nThe retransmission timer explains the columns without the trigger: their data go on with the first retransmission after readdressing, and the \
             n-th one leaves R (2^n - 1) after the cut. By the net times of `tcp-uto-hip`, R at the cut was {} simulated and {} here. After 91 s the eighth (255 R) comes too \
             early with R below 0.37 s simulated and 0.36 s here, so that the data wait for the ninth; with a larger R it comes soon after readdressing. After 156 s the \
             ninth (511 R) comes too early with R below 0.31 s, as in the paper, whose standard TCP aborts then.\n",
            shown(Column::Simulated),
            shown(Column::Here),
        )
    }
}

impl GridReport for Report {
    /// The cells are for comparison and have no bounds.
    fn is_sound(&self) -> bool {
        self.results.are_sound()
    }

    fn in_a_line(&self) -> String {
        format!("{} cells in {} s", self.results.cells().len(), self.head.seconds)
    }

    fn markdown(&self) -> String {
        let lateness = self.runs().map(|run| run.lateness).max().unwrap_or_default();
        let how = format!(
            "A transfer of {} MB from the mobile host over links of {} with {} packets of queue, and a round trip of {}, is cut once, {} s after its beginning. It goes on \
             over the other link, from another address. Net times are in seconds: the time of the transfer without that of the disconnection.\n\n\
             - **paper**: as printed; Linux 2.4.20, a prototype of HIP. Dashes stand where it prints no number.\n\
             - **simulated**: `experiments/hip-uto-rt/grid.toml`, one run of each cell, at the setting at which the paper's page judges claims. The profile is \
             Linux 2.4's, and readdressing is delayed as the prototype's was, by 1.9 to 2.9 s.\n\
             - **here**: kernels in network namespaces with daemons of `holdover hip`, in real time, one run of each cell; each byte was compared with the one sent. \
             Congestion control is Reno, the rest of TCP this kernel's default. Readdressing took {} in the median. \
             A thread of this machine, or one that changes a link, was up to {:.0} ms late.\n\
             - **tcp-hip**: `--no-wake` at both ends. `tcp_retries2` = 9 ends a connection when its timer expires 204.6 s or more after the first \
             retransmission: with a retransmission timeout of 0.2 to 0.4 s at the cut at the tenth time, after nine retransmissions, as in the paper.\n\
             - **tcp-uto-hip**: the same, with a user timeout of {} minutes at both ends (`TCP_USER_TIMEOUT`). **tcp-uto-rt-hip**: with this and the \
             retransmission trigger, `holdover hip up` as it is.\n",
            AMOUNT / 1_000_000,
            PATH.rate,
            PATH.queue,
            spaced(PATH.round_trip()),
            CONNECTED.as_secs(),
            self.exchange_s().map_or("no measured time".to_owned(), |seconds| format!("{seconds:.2} s")),
            in_millis(lateness),
            USER_TIMEOUT.as_secs() / 60,
        );
        let sections = [self.table(), self.timer(), "\n".to_owned(), failures(self.results.failures())];
        page("Single disconnections between kernels", self, &self.head, &how, &sections)
    }

    fn csv(&self) -> String {
        let header = "disconnected_s,variant,run,net_time,exchange_s,received_bytes,lateness_ms";
        let of_cell = |row: &Row| format!("{},{}", row.place.disconnected_s, row.place.variant.name());
        self.results.csv(header, of_cell, |_, run| {
            let exchange = number(run.exchange.map(Duration::as_secs_f64));
            format!("{},{exchange},{},{}", run.net_time, run.received, in_millis(run.lateness))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::About;

    fn run(net_time: NetTime) -> Run {
        Run { net_time, exchange: None, received: 0, lateness: Duration::ZERO }
    }

    #[test]
    fn a_cell_whose_runs_mostly_abort_has_no_net_time() {
        let [short, long] = [20.0, 30.0].map(|seconds| run(NetTime::Completed(seconds)));
        let [aborted, unfinished] = [NetTime::Aborted, NetTime::Unfinished].map(run);
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
    fn the_table_has_the_printed_simulated_and_measured_times_of_each_cell() {
        let [measured, simulated] = [31.44, 29.0].map(NetTime::Completed);
        let row = |disconnected_s, variant, net_time, simulated| {
            let cell = Cell { disconnected_s, variant };
            Row::of_runs(cell, Figures { cell, net_time, simulated }, Vec::new(), Vec::new())
        };
        let rows = vec![
            row(156, Variant::Standard, NetTime::Aborted, Some(simulated)),
            row(156, Variant::Trigger, measured, None),
        ];
        let head = Head::new(About { command: String::new(), date: String::new() }, WallDuration::ZERO, PATH);
        let table = Report { head, results: Results::new(rows, Vec::new()) }.table();
        let line = "| 156 s | aborts | 29.0 | aborts | 105 to 140 | – | – | 24 to 27 | – | 31.4 |";
        assert!(table.lines().any(|it| it == line), "{table}");
        assert_eq!(table.lines().count(), 3 + DISCONNECTED_S.len());
    }
}
