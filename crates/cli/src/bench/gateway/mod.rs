//! `gateway`: the processor time of forwarding through a router with the gateway, beside plain forwarding and proxies.
//!
//! Each way of forwarding has hosts and a router of its own. They carry the same load by turns, in a new order each time, so that other
//! load on the machine affects all alike. Slices of one turn are compared.

mod cpu;
mod frames;
mod lane;
mod pepsal;
mod proxy;
mod streams;
mod table;

use std::error::Error;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use holdover_base::Rng;
use holdover_host::open_files;
use serde::Serialize;

use super::quartiles;
use crate::command_support::{exit_on_signals, print_note, scratch_directory};
use cpu::Pinned;
use lane::{Lane, Way};
pub(super) use table::table;

type Failed = Box<dyn Error + Send + Sync>;

/// The costs of all ways under all loads.
#[derive(Debug, Serialize)]
pub(super) struct GatewayCost {
    /// HAProxy's version; `None` without HAProxy.
    haproxy: Option<String>,
    /// The same of PEPsal.
    pepsal: Option<String>,
    loads: Vec<LoadCost>,
}

/// The costs under one load.
#[derive(Debug, Serialize)]
struct LoadCost {
    load: Load,
    /// In each, every way has one slice.
    turns: usize,
    /// Packets on the router's mobile-facing interface in a slice of plain forwarding. A GSO segment, which an interface splits, is one.
    packets: f64,
    /// Bytes of payload in a slice.
    bytes: u64,
    ways: Vec<WayCost>,
}

/// The cost of one way under one load. Ratios are medians over the turns, and their quartiles.
#[derive(Debug, Serialize)]
struct WayCost {
    way: Lane,
    /// Processor time of hosts, router and softirqs: the median of the slices, divided by the packets and bytes of plain forwarding.
    nanoseconds_per_packet: f64,
    nanoseconds_per_byte: f64,
    /// The ratio of the processor time to that of plain forwarding.
    ratio: f64,
    ratio_quartiles: [f64; 2],
    /// The same after subtracting the time of directly joined hosts from both.
    router_ratio: f64,
    router_ratio_quartiles: [f64; 2],
}

/// The traffic between the hosts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
enum Load {
    /// Downloads as fast as they go.
    Bulk { connections: usize },
    /// Messages of 64 bytes, and answers of 64 bytes.
    Messages { connections: usize },
    /// Packets of 64 bytes of payload in both directions, without TCP at the hosts.
    Packets { flows: u64 },
    /// The same to the mobile host only, which a gateway takes for absent meanwhile: it keeps and releases them.
    Kept,
}

const LOADS: [Load; 8] = [
    Load::Bulk { connections: 1 },
    Load::Bulk { connections: 1000 },
    Load::Messages { connections: 1 },
    Load::Messages { connections: 1000 },
    Load::Packets { flows: 1 },
    Load::Packets { flows: 1000 },
    Load::Packets { flows: 100_000 },
    Load::Kept,
];

/// The number of rounds. Each sets everything up again, since the placement in memory affects the time.
const ROUNDS: usize = 3;
/// Turns of each load in a round, and their least number if [`LONGEST`] ends the round early.
const TURNS: usize = 20;
const LEAST_TURNS: usize = 4;
/// The time for a load in a round. All turns take some seconds on a processor of their own, and as many times more as other programs have
/// their share of it.
const LONGEST: Duration = Duration::from_secs(15);
/// The payload of a slice of bulk data.
const BULK_BYTES: u64 = 64_000_000;
/// Exchanges of messages in a slice.
const EXCHANGES: u64 = 3000;
/// The number of slices that check how much time the kernel charges to tasks, and the packets of each direction in one of them.
const CHECKS: usize = 200;
const CHECKED_PACKETS: u64 = 100;
/// Packets of each direction in a slice.
const PACKETS: u64 = 20_000;
/// Packets that are kept in a slice.
const KEPT: u64 = 2000;

/// Takes all measurements.
///
/// # Errors
/// The kernel refuses something, or the load does not get through.
pub(super) fn measure(haproxy: Option<&Path>, pepsal: Option<&Path>) -> Result<GatewayCost, Failed> {
    let proxies = Proxies::find(haproxy, pepsal);
    let haproxy = proxies.haproxy.as_deref().map(proxy::version).transpose()?;
    let pepsal = proxies.pepsal.as_deref().map(pepsal::version).transpose()?;
    exit_on_signals("nothing was measured to its end".to_owned())?;
    // Both ends of 1,000 connections, and namespaces.
    open_files::raise_limit();
    let pinned = Pinned::new()?;
    check_softirqs(&pinned)?;
    let mut slices = LOADS.map(|_| Slices::default());
    let mut random = Rng::new(1);
    for round in 0..ROUNDS {
        let lanes = Lane::ALL.into_iter().filter(|lane| proxies.have(*lane));
        let ways = lanes.map(|lane| Way::new(lane, round, &proxies));
        let mut ways = ways.collect::<Result<Vec<_>, _>>()?;
        for (load, slices) in LOADS.into_iter().zip(&mut slices) {
            super::say("gateway", &format_args!("round {} of {ROUNDS}: {}", round + 1, load.name()));
            run(load, &mut ways, slices, &pinned, &mut random).map_err(|error| format!("{}: {error}", load.name()))?;
        }
    }
    let loads = LOADS.into_iter().zip(&slices).map(|(load, slices)| slices.cost(load));
    Ok(GatewayCost { haproxy, pepsal, loads: loads.collect() })
}

/// Programs of others that forward for the mobile host; `None` where they are absent.
#[derive(Debug, Default)]
struct Proxies {
    haproxy: Option<PathBuf>,
    pepsal: Option<PathBuf>,
}

impl Proxies {
    /// Finds them, and prints which are absent.
    fn find(haproxy: Option<&Path>, pepsal: Option<&Path>) -> Self {
        let haproxy = proxy::find(haproxy);
        if haproxy.is_none() {
            print_note(&format_args!(
                "gateway: not compared with HAProxy, which is not in PATH or /usr/sbin: --haproxy or HOLDOVER_HAPROXY names it"
            ));
        }
        let pepsal = pepsal::find(pepsal);
        let pepsal =
            pepsal.inspect_err(|error| print_note(&format_args!("gateway: not compared with PEPsal, {error}")));
        Self { haproxy, pepsal: pepsal.ok() }
    }

    /// The program of a lane.
    fn of(&self, lane: Lane) -> Option<&Path> {
        match lane {
            Lane::Haproxy => self.haproxy.as_deref(),
            Lane::Pepsal => self.pepsal.as_deref(),
            _ => None,
        }
    }

    /// Whether a lane's program is there, if it is one of these.
    fn have(&self, lane: Lane) -> bool {
        !matches!(lane, Lane::Haproxy | Lane::Pepsal) || self.of(lane).is_some()
    }
}

/// The first quartile, the median and the third quartile.
pub(crate) type Quartiles = [f64; 3];

/// The processor time that a router spends on a packet, in nanoseconds.
#[derive(Debug)]
pub(crate) struct RouterTimes {
    /// Packets of a turn.
    pub(crate) packets: f64,
    pub(crate) forwarding: Quartiles,
    /// With the gateway in mode `m-tcp`.
    pub(crate) m_tcp: Quartiles,
    /// The ratio of the two in the same turn.
    pub(crate) ratio: Quartiles,
}

/// Measures it with small packets of one connection.
///
/// # Errors
/// As [`measure`].
pub(crate) fn router_times() -> Result<RouterTimes, Failed> {
    exit_on_signals("nothing was measured to its end".to_owned())?;
    let pinned = Pinned::new()?;
    check_softirqs(&pinned)?;
    let mut slices = Slices::default();
    let lanes = [Lane::Direct, Lane::Forwarding, Lane::MTcp];
    let mut random = Rng::new(1);
    for round in 0..ROUNDS {
        let ways = lanes.into_iter().map(|lane| Way::new(lane, round, &Proxies::default()));
        let mut ways = ways.collect::<Result<Vec<_>, _>>()?;
        run(Load::Messages { connections: 1 }, &mut ways, &mut slices, &pinned, &mut random)?;
    }
    slices.router_times().ok_or_else(|| "no packet was forwarded".into())
}

/// Half of the time of forwarding packets is spent in softirqs: run times show whether they are charged to tasks.
///
/// # Errors
/// They are not.
fn check_softirqs(pinned: &Pinned) -> Result<(), Failed> {
    let mut way = Way::new(Lane::Forwarding, 0, &Proxies::default())?;
    let load = Load::Packets { flows: 1 };
    way.begin(load)?;
    let mut slices = Vec::new();
    for _ in 0..CHECKS {
        let (began, before) = (Instant::now(), pinned.run_time(&[])?);
        way.send(CHECKED_PACKETS)?;
        let spent = pinned.run_time(&[])? - before;
        slices.push((began.elapsed(), spent));
    }
    if is_nearly_all_charged(&slices) {
        return Ok(());
    }
    Err("the run times of tasks lack the time of softirqs: the kernel was built with CONFIG_IRQ_TIME_ACCOUNTING".into())
}

/// Whether any of some short slices, each with the time that passed and the run time in it, was charged in full: others were interrupted.
fn is_nearly_all_charged(slices: &[(Duration, Duration)]) -> bool {
    slices.iter().any(|(passed, spent)| spent.as_secs_f64() >= 0.85 * passed.as_secs_f64())
}

/// The processor time of each turn, in nanoseconds: that of each lane.
#[derive(Debug, Default)]
struct Slices {
    turns: Vec<Vec<(Lane, f64)>>,
    /// Packets on the mobile-facing interface of plain forwarding, in all turns.
    packets: u64,
}

fn run(load: Load, ways: &mut [Way], slices: &mut Slices, pinned: &Pinned, random: &mut Rng) -> Result<(), Failed> {
    let mut taking_part: Vec<&mut Way> = ways.iter_mut().filter(|way| load.is_for(way.lane())).collect();
    for way in &mut taking_part {
        way.begin(load)?;
    }
    let before = forwarded(&taking_part)?;
    let (began, mut turns) = (Instant::now(), 0);
    while has_another_turn(turns, began.elapsed()) {
        turns += 1;
        let mut turn = Vec::with_capacity(taking_part.len());
        shuffle(&mut taking_part, random);
        for way in &mut taking_part {
            let start = pinned.run_time(way.processes())?;
            way.carry(load)?;
            let spent = pinned.run_time(way.processes())? - start;
            turn.push((way.lane(), spent.as_nanos() as f64));
        }
        slices.turns.push(turn);
    }
    slices.packets += forwarded(&taking_part)? - before;
    taking_part.into_iter().try_for_each(|way| way.end(load))
}

/// Whether another turn follows after this number of turns and this time.
fn has_another_turn(turns: usize, took: Duration) -> bool {
    turns < LEAST_TURNS || turns < TURNS && took < LONGEST
}

/// Packets on the mobile-facing interface of plain forwarding so far.
fn forwarded(ways: &[&mut Way]) -> Result<u64, Failed> {
    let plain = ways.iter().find(|way| way.lane() == Lane::Forwarding);
    plain.map_or(Ok(0), |way| way.forwarded())
}

fn shuffle<T>(items: &mut [T], random: &mut Rng) {
    for last in (1..items.len()).rev() {
        items.swap(last, random.below(last as u64 + 1) as usize);
    }
}

impl Slices {
    /// `None` without packets.
    fn router_times(&self) -> Option<RouterTimes> {
        let packets = self.packets as f64 / self.turns.len() as f64;
        let routers = self.turns.iter().filter_map(|turn| {
            let hosts = of(turn, Lane::Direct)?;
            Some((of(turn, Lane::Forwarding)? - hosts, of(turn, Lane::MTcp)? - hosts))
        });
        let routers: Vec<(f64, f64)> = routers.collect();
        let each = |value: &dyn Fn((f64, f64)) -> f64| quartiles(routers.iter().copied().map(value).collect());
        (packets > 0.0 && !routers.is_empty()).then(|| RouterTimes {
            packets,
            forwarding: each(&|(plain, _)| plain / packets),
            m_tcp: each(&|(_, m_tcp)| m_tcp / packets),
            ratio: each(&|(plain, m_tcp)| m_tcp / plain),
        })
    }

    fn cost(&self, load: Load) -> LoadCost {
        let packets = self.packets as f64 / self.turns.len() as f64;
        let bytes = load.bytes();
        let lanes = Lane::ALL.into_iter().filter(|&lane| self.turns.iter().all(|turn| of(turn, lane).is_some()));
        let ways = lanes.map(|lane| {
            let each = |value: &dyn Fn(f64, f64, f64) -> f64| {
                let values = self.turns.iter().filter_map(|turn| {
                    Some(value(of(turn, lane)?, of(turn, Lane::Forwarding)?, of(turn, Lane::Direct)?))
                });
                quartiles(values.collect())
            };
            let nanos = each(&|own, _, _| own)[1];
            let [low, ratio, high] = each(&|own, plain, _| own / plain);
            let [router_low, router_ratio, router_high] = each(&|own, plain, hosts| (own - hosts) / (plain - hosts));
            WayCost {
                way: lane,
                nanoseconds_per_packet: nanos / packets,
                nanoseconds_per_byte: nanos / bytes as f64,
                ratio,
                ratio_quartiles: [low, high],
                router_ratio,
                router_ratio_quartiles: [router_low, router_high],
            }
        });
        LoadCost { load, turns: self.turns.len(), packets, bytes, ways: ways.collect() }
    }
}

/// The time of a lane in a turn.
fn of(turn: &[(Lane, f64)], lane: Lane) -> Option<f64> {
    turn.iter().find(|(other, _)| *other == lane).map(|&(_, nanos)| nanos)
}

impl Load {
    fn name(self) -> String {
        match self {
            Self::Bulk { connections: 1 } => "bulk, 1 connection".to_owned(),
            Self::Bulk { connections } => format!("bulk, {connections} connections"),
            Self::Messages { connections: 1 } => "64-byte messages, 1 connection".to_owned(),
            Self::Messages { connections } => format!("64-byte messages, {connections} connections"),
            Self::Packets { flows: 1 } => "64-byte packets, 1 flow".to_owned(),
            Self::Packets { flows } => format!("64-byte packets, {flows} flows"),
            Self::Kept => "64-byte packets, kept for an absent mobile host by buffer".to_owned(),
        }
    }

    /// Whether a way can carry it: there are no connections to end without hosts, and PEPsal's `SPLICE_F_MORE` makes the kernel keep
    /// each message for up to 0.2 s.
    fn is_for(self, lane: Lane) -> bool {
        match lane {
            _ if self == Self::Kept => matches!(lane, Lane::Direct | Lane::Forwarding | Lane::Buffer),
            Lane::Pepsal => matches!(self, Self::Bulk { .. }),
            Lane::Split | Lane::Haproxy => !matches!(self, Self::Packets { .. }),
            _ => true,
        }
    }

    /// Bytes of payload in a slice.
    fn bytes(self) -> u64 {
        let message = streams::MESSAGE_BYTES as u64;
        match self {
            Self::Bulk { .. } => BULK_BYTES,
            Self::Messages { .. } => 2 * EXCHANGES * message,
            Self::Packets { .. } => 2 * PACKETS * message,
            Self::Kept => KEPT * message,
        }
    }
}

/// The directory of a way's files.
fn place(lane: Lane, round: usize) -> PathBuf {
    scratch_directory(&format!("{}-{round}", lane.name()))
}

#[cfg(test)]
mod tests {
    use super::*;

    // Claim: `bench gateway` compares slices of the same turn; its run time is that of this thread and of what it names; each of
    // its loads gets through a direct line, a router and a router with programs that do nothing; a program that is no HAProxy or
    // no PEPsal is refused. `reproduce m-tcp --real` shows the router's time without that of hosts.
    // Tests: `bench::gateway::tests::a_router_s_time_is_without_that_of_hosts`,
    // `reproduce_command::real::tests::the_page_has_both_figures_in_microseconds`,
    // `bench::gateway::tests::softirqs_count_only_if_a_whole_slice_is_charged`,
    // `cpu::tests::run_time_counts_this_thread_and_not_others`,
    // `bench::gateway::tests::every_load_gets_through_where_no_daemon_is_needed`,
    // `bench::gateway::tests::a_program_that_is_no_proxy_is_refused`,
    // `bench::gateway::pepsal::tests::a_program_that_is_no_pepsal_is_refused`
    #[test]
    fn ratios_are_those_of_slices_of_one_turn() {
        // The machine is ten times slower in every second turn.
        let turn = |scale: f64| {
            [(Lane::Direct, 50.0), (Lane::Forwarding, 100.0), (Lane::Program, 105.0), (Lane::Buffer, 120.0)]
                .map(|(lane, nanos)| (lane, nanos * scale))
                .to_vec()
        };
        let slices = Slices { turns: [1.0, 10.0, 1.0, 10.0].map(turn).to_vec(), packets: 40 };
        let cost = slices.cost(Load::Messages { connections: 1 });
        let of = |lane| cost.ways.iter().find(|way| way.way == lane);
        assert_eq!(cost.packets, 10.0);
        let ratios = |lane| of(lane).map(|way| [way.ratio, way.router_ratio]);
        assert_eq!(ratios(Lane::Direct), Some([0.5, 0.0]));
        assert_eq!(ratios(Lane::Forwarding), Some([1.0, 1.0]));
        assert_eq!(ratios(Lane::Buffer), Some([1.2, 1.4]));
        assert_eq!(ratios(Lane::Haproxy), None, "it was not there");
        assert_eq!(of(Lane::Buffer).map(|way| way.router_ratio_quartiles), Some([1.4, 1.4]));
    }

    #[test]
    fn a_router_s_time_is_without_that_of_hosts() {
        let turn = [(Lane::Direct, 50_000.0), (Lane::Forwarding, 60_000.0), (Lane::MTcp, 75_000.0)].to_vec();
        let slices = Slices { turns: vec![turn.clone(), turn], packets: 20 };
        let times = slices.router_times().unwrap();
        assert_eq!((times.packets, times.forwarding, times.m_tcp), (10.0, [1000.0; 3], [2500.0; 3]));
        assert_eq!(times.ratio, [2.5; 3]);
        assert!(Slices { packets: 0, ..slices }.router_times().is_none());
        assert!(Slices::default().router_times().is_none());
    }

    #[test]
    fn a_busy_machine_has_fewer_turns_but_not_too_few() {
        let seconds = Duration::from_secs;
        assert!(has_another_turn(0, seconds(0)) && has_another_turn(TURNS - 1, seconds(14)));
        assert!(!has_another_turn(TURNS, seconds(1)), "all turns were taken");
        assert!(has_another_turn(LEAST_TURNS - 1, seconds(500)) && !has_another_turn(LEAST_TURNS, seconds(16)));
    }

    #[test]
    fn softirqs_count_only_if_a_whole_slice_is_charged() {
        let slice = |passed, spent| (Duration::from_micros(passed), Duration::from_micros(spent));
        assert!(is_nearly_all_charged(&[slice(900, 300), slice(310, 290)]), "one was not interrupted");
        assert!(!is_nearly_all_charged(&[slice(300, 160), slice(310, 170)]), "softirqs are missing in all");
    }

    #[test]
    fn every_load_gets_through_where_no_daemon_is_needed() {
        for lane in [Lane::Direct, Lane::Forwarding, Lane::Program] {
            let mut way = match Way::new(lane, 0, &Proxies::default()) {
                Ok(way) => way,
                Err(error) => return holdover_testbed::harness::skip(error),
            };
            let (bulk, messages) = (Load::Bulk { connections: 2 }, Load::Messages { connections: 3 });
            for load in [bulk, messages, Load::Packets { flows: 5 }, Load::Kept] {
                let before = way.forwarded().unwrap();
                way.begin(load).unwrap_or_else(|error| panic!("{}, {load:?}: {error}", lane.name()));
                let forwarded = way.forwarded().unwrap() - before;
                assert_eq!(forwarded > 1000, lane != Lane::Direct, "{}, {load:?}: {forwarded}", lane.name());
                way.end(load).unwrap();
            }
        }
    }

    #[test]
    fn a_program_that_is_no_proxy_is_refused() {
        let error = proxy::version(Path::new("/nowhere/haproxy")).unwrap_err().to_string();
        assert!(error.starts_with("/nowhere/haproxy cannot be run"), "{error}");
        let error = proxy::version(Path::new("/bin/false")).unwrap_err().to_string();
        assert!(error.starts_with("/bin/false is no HAProxy"), "{error}");
        assert_eq!(proxy::find(Some(Path::new("named"))), Some(PathBuf::from("named")));
    }
}
