//! `holdover bench`: the speed measures of this project, on the user's machine.
//!
//! Speeds are per second of one core's time, so that other programs on the machine do not count; on an idle machine that is
//! the second of a clock on the wall.

mod agent;
mod gateway;
mod gateway_hosts;
mod heap;
mod idle;
mod real;
mod sim;
mod tcp_pair;

use std::error::Error;
use std::io::IsTerminal as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use holdover_testbed::Privilege;
use serde::Serialize;

use crate::command_support::{print, print_error, print_json, print_note, with_causes, within};
use crate::text_table::{Layout, laid_out, paragraph};
pub(crate) use gateway::{Quartiles, RouterTimes, router_times};

/// Arguments of `holdover bench`.
#[derive(Args, Debug)]
pub(crate) struct BenchArgs {
    /// Which measure; all if none is named.
    name: Option<Name>,
    /// Print JSON instead of a table.
    #[arg(long)]
    json: bool,
    /// The HAProxy that `gateway` is compared with; default: that of HOLDOVER_HAPROXY, or haproxy in PATH.
    #[arg(long, value_name = "PROGRAM")]
    haproxy: Option<PathBuf>,
    /// The PEPsal that `gateway` is compared with; default: that of HOLDOVER_PEPSAL, or pepsal in PATH.
    #[arg(long, value_name = "PROGRAM")]
    pepsal: Option<PathBuf>,
    /// Mobile hosts of `gateway-hosts`, 1 to 60,000.
    #[arg(long, value_name = "N", default_value = "500", value_parser = within(1..=60_000_u32))]
    hosts: u32,
    /// TCP connections of `gateway-hosts` in all, as many for each mobile host; default: one for each.
    #[arg(long, value_name = "N", value_parser = within(1..=200_000_u32))]
    flows: Option<u32>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Name {
    /// Two TCP endpoints joined in memory, bulk data one way, 1448-byte segments.
    TcpPair,
    /// Bulk TCP over 10 Mbit/s, 25 ms and 75 packets in the simulator, 250 MB.
    SimBulk,
    /// 1,000 connections over 1 Gbit/s, 25 ms and 1 % of loss in the simulator, 250 kB each.
    SimLossy,
    /// 10,000 connections at once over one link in the simulator, 100 kB each.
    SimMany,
    /// 100,000 idle established connections.
    TcpIdle,
    /// Bulk TCP between two kernels of this machine over a fast link of ours, and over a veth pair, 2 GB each.
    RealBulk,
    /// The errors in rate and delay of a link of 10 Mbit/s and 20 ms between two kernels of this machine.
    RealLink,
    /// The cost of the agent's eBPF programs for bulk TCP over a veth pair while the link is up.
    Agent,
    /// The processor time of forwarding with the gateway, beside plain forwarding, a program that does nothing, HAProxy and PEPsal.
    Gateway,
    /// The gateway with many mobile hosts: memory, processor time, the time to first data when all return within a second, floods of SYNs.
    GatewayHosts,
}

impl Name {
    /// Whether the measure needs kernels in namespaces.
    const fn is_real(self) -> bool {
        matches!(self, Self::RealBulk | Self::RealLink | Self::Agent | Self::Gateway | Self::GatewayHosts)
    }

    const fn text(self) -> &'static str {
        match self {
            Self::TcpPair => "tcp-pair",
            Self::SimBulk => "sim-bulk",
            Self::SimLossy => "sim-lossy",
            Self::SimMany => "sim-many",
            Self::TcpIdle => "tcp-idle",
            Self::RealBulk => "real-bulk",
            Self::RealLink => "real-link",
            Self::Agent => "agent",
            Self::Gateway => "gateway",
            Self::GatewayHosts => "gateway-hosts",
        }
    }
}

/// One result.
#[derive(Debug, Serialize)]
struct Measure {
    name: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    segments_per_second: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes_per_connection: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bits_per_second: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    veth_bits_per_second: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    link: Option<real::RealLink>,
    #[serde(skip_serializing_if = "Option::is_none")]
    agent: Option<agent::AgentCost>,
    #[serde(skip_serializing_if = "Option::is_none")]
    gateway: Option<gateway::GatewayCost>,
    #[serde(skip_serializing_if = "Option::is_none")]
    hosts: Option<gateway_hosts::HostsCost>,
    /// Elapsed time.
    seconds: f64,
    /// Processor time.
    cpu_seconds: f64,
    runs: usize,
}

/// Runs the measures and prints them.
pub(crate) fn run(args: &BenchArgs) -> ExitCode {
    let names = args.name.map_or_else(|| Name::value_variants().to_vec(), |name| vec![name]);
    if names.iter().any(|name| name.is_real())
        && let Err(error) = Privilege::acquire()
    {
        print_error(&format_args!("kernels cannot be used: {error}"));
        return ExitCode::FAILURE;
    }
    let mut measures = Vec::with_capacity(names.len());
    for name in names {
        match measure(name, args) {
            Ok(measure) => measures.push(measure),
            Err(error) => {
                print_error(&format_args!("{}: {}", name.text(), with_causes(error.as_ref())));
                return ExitCode::FAILURE;
            }
        }
    }
    if args.json { print_json(&measures) } else { print(&table(&measures)) }
}

/// The measurements, a line or more for each.
fn table(measures: &[Measure]) -> String {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let head = format!("{cores} cores; each figure is the best of its runs on one of them, per second of its time");
    let layout = Layout { right: &[1], has_sentences: true, headless: true, ..Layout::default() };
    let figures = laid_out(["measure", "figure", ""], layout, measures.iter().flat_map(figures));
    let costs = measures.iter().map(|measure| {
        let gateway = measure.gateway.as_ref().map(gateway::table);
        let hosts = measure.hosts.as_ref().map(gateway_hosts::table);
        [gateway, hosts].into_iter().flatten().collect::<String>()
    });
    [paragraph(&head), figures, costs.collect()].concat()
}

/// The figures of a measure, each with its name, its value and its meaning.
fn figures(measure: &Measure) -> Vec<[String; 3]> {
    let mut rows = Vec::new();
    let mut row = |figure: String, meaning: String| rows.push([measure.name.to_owned(), figure, meaning]);
    if let Some(rate) = measure.segments_per_second {
        row(format!("{rate:.0}"), format!("data segments per second ({} runs)", measure.runs));
    }
    if let Some(bytes) = measure.bytes_per_connection {
        row(bytes.to_string(), "bytes per connection, heap included".to_owned());
    }
    if let Some((ours, veth)) = measure.bits_per_second.zip(measure.veth_bits_per_second) {
        let share = ours / veth * 100.0;
        row(format!("{:.2}", ours / 1e9), format!("Gbit/s, {share:.0} % of a veth pair's {:.2} Gbit/s", veth / 1e9));
    }
    if let Some(link) = &measure.link {
        let micros = [link.delay_error_median_s, link.delay_error_p99_s, link.delay_error_max_s].map(|s| s * 1e6);
        let [median, p99, max] = micros;
        row(
            format!("{median:.0}"),
            format!("us of one-way delay too much (median), {p99:.0} us (99 of 100), {max:.0} us (max)"),
        );
        let error = (link.bits_per_second / link.configured_bits_per_second - 1.0) * 100.0;
        row(format!("{:.3}", link.bits_per_second / 1e6), format!("Mbit/s of 10 Mbit/s ({error:+.2} %)"));
    }
    if let Some(agent) = &measure.agent {
        let share = agent.ratio * 100.0;
        let [with, without] = [agent.bits_per_second_with, agent.bits_per_second_without].map(|rate| rate / 1e9);
        let [low, high] = agent.ratio_quartiles.map(|ratio| ratio * 100.0);
        row(format!("{share:.2}"), format!("% of the throughput without it ({with:.2} and {without:.2} Gbit/s)"));
        row(format!("{low:.2}"), format!("to {high:.2} % in half of the pairs of slices"));
        row(format!("{:.0}", agent.nanoseconds_per_packet), "ns per packet, segmentation offload included".to_owned());
    }
    rows
}

fn measure(name: Name, args: &BenchArgs) -> Result<Measure, Box<dyn Error + Send + Sync>> {
    Ok(match name {
        Name::TcpPair => rate(name, 5, || tcp_pair::run(1_000_000)),
        Name::SimBulk => rate(name, 5, sim::bulk),
        Name::SimLossy => rate(name, 5, sim::lossy),
        Name::SimMany => {
            let (took, (segments, bytes)) = timed(sim::many);
            let measure = Measure::new(name, &took, 1);
            Measure { bytes_per_connection: Some(bytes), ..measure.with_segments(segments) }
        }
        Name::TcpIdle => {
            let (took, bytes) = timed(idle::bytes_per_connection);
            Measure { bytes_per_connection: Some(bytes), ..Measure::new(name, &took, 1) }
        }
        Name::RealBulk => {
            let (took, result) = timed(real::bulk);
            let (ours, veth) = result?;
            let measure = Measure::new(name, &took, 1);
            Measure { bits_per_second: Some(ours), veth_bits_per_second: Some(veth), ..measure }
        }
        Name::RealLink => {
            let (took, link) = timed(real::link);
            Measure { link: Some(link?), ..Measure::new(name, &took, 1) }
        }
        Name::Agent => {
            let (took, cost) = timed(agent::measure);
            Measure { agent: Some(cost?), ..Measure::new(name, &took, 1) }
        }
        Name::Gateway => {
            let (took, cost) = timed(|| gateway::measure(args.haproxy.as_deref(), args.pepsal.as_deref()));
            Measure { gateway: Some(cost?), ..Measure::new(name, &took, 1) }
        }
        Name::GatewayHosts => {
            let connections = args.flows.map_or(1, |flows| flows.div_ceil(args.hosts));
            let settings = gateway_hosts::Settings { hosts: args.hosts, connections };
            let (took, cost) = timed(|| gateway_hosts::measure(settings));
            Measure { hosts: Some(cost?), ..Measure::new(name, &took, 1) }
        }
    })
}

/// Shows the progress of a long measurement, if the output is a terminal.
fn say(name: &str, what: &dyn std::fmt::Display) {
    if std::io::stderr().is_terminal() {
        print_note(&format_args!("{name}: {what}"));
    }
}

/// The best of `runs` runs of `work`, which returns how many segments it sent.
fn rate(name: Name, runs: usize, work: impl Fn() -> u64) -> Measure {
    let best = (0..runs).map(|_| timed(&work)).min_by_key(|(took, _)| took.cpu);
    let (took, segments) = best.expect("at least one run");
    Measure::new(name, &took, runs).with_segments(segments)
}

impl Measure {
    fn new(name: Name, took: &Took, runs: usize) -> Self {
        Self {
            name: name.text(),
            segments_per_second: None,
            bytes_per_connection: None,
            bits_per_second: None,
            veth_bits_per_second: None,
            link: None,
            agent: None,
            gateway: None,
            hosts: None,
            seconds: took.wall.as_secs_f64(),
            cpu_seconds: took.cpu.as_secs_f64(),
            runs,
        }
    }

    fn with_segments(self, segments: u64) -> Self {
        Self { segments_per_second: Some(segments as f64 / self.cpu_seconds), ..self }
    }
}

/// The duration of a run.
struct Took {
    wall: Duration,
    cpu: Duration,
}

fn timed<T>(work: impl FnOnce() -> T) -> (Took, T) {
    let (start, start_cpu) = (Instant::now(), cpu_time());
    let result = work();
    let wall = start.elapsed();
    let cpu = cpu_time().zip(start_cpu).map_or(wall, |(end, start)| end - start);
    (Took { wall, cpu }, result)
}

/// The time that this thread has spent on a core so far, where the system tells.
fn cpu_time() -> Option<Duration> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    text.split_whitespace().next()?.parse().ok().map(Duration::from_nanos)
}

/// The first quartile, the median and the third quartile.
fn quartiles(mut values: Vec<f64>) -> [f64; 3] {
    values.sort_by(f64::total_cmp);
    [1, 2, 3].map(|quarter| values[values.len() * quarter / 4])
}
