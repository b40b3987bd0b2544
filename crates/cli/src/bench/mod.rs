//! `holdover bench`: the speed measures of this project, on the user's machine.

mod idle;
mod sim_bulk;
mod tcp_pair;

pub(crate) use idle::Counting;

use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use serde::Serialize;

/// Arguments of `holdover bench`.
#[derive(Args, Debug)]
pub(crate) struct BenchArgs {
    /// Which measure; all if none is named.
    name: Option<Name>,
    /// Print JSON instead of a table.
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Name {
    /// Two TCP endpoints joined in memory, bulk data one way, 1448-byte segments.
    TcpPair,
    /// Bulk TCP over 10 Mbit/s, 25 ms and 75 packets in the simulator, 250 MB.
    SimBulk,
    /// 100,000 established connections that do nothing.
    TcpIdle,
}

impl Name {
    const fn text(self) -> &'static str {
        match self {
            Self::TcpPair => "tcp-pair",
            Self::SimBulk => "sim-bulk",
            Self::TcpIdle => "tcp-idle",
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
    seconds: f64,
    runs: usize,
}

/// Runs the measures and prints them.
pub(crate) fn run(args: &BenchArgs) {
    let names = args.name.map_or_else(|| Name::value_variants().to_vec(), |name| vec![name]);
    let measures: Vec<Measure> = names.into_iter().map(measure).collect();
    if args.json {
        println!("{}", serde_json::to_string_pretty(&measures).expect("plain values"));
        return;
    }
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    println!("{cores} cores; each figure is the best of its runs on one of them");
    for measure in measures {
        if let Some(rate) = measure.segments_per_second {
            println!("{:10} {:>12.0} data segments per second ({} runs)", measure.name, rate, measure.runs);
        }
        if let Some(bytes) = measure.bytes_per_connection {
            println!("{:10} {:>12} bytes per connection, heap included", measure.name, bytes);
        }
    }
}

fn measure(name: Name) -> Measure {
    match name {
        Name::TcpPair => rate(name, 5, || tcp_pair::run(1_000_000)),
        Name::SimBulk => rate(name, 5, sim_bulk::run),
        Name::TcpIdle => {
            let (took, bytes) = timed(idle::bytes_per_connection);
            Measure {
                name: name.text(),
                segments_per_second: None,
                bytes_per_connection: Some(bytes),
                seconds: took.as_secs_f64(),
                runs: 1,
            }
        }
    }
}

/// The best of `runs` runs of `work`, which returns how many segments it sent.
fn rate(name: Name, runs: usize, work: impl Fn() -> u64) -> Measure {
    let best = (0..runs).map(|_| timed(&work)).min_by_key(|(took, _)| *took);
    let (took, segments) = best.expect("at least one run");
    let seconds = took.as_secs_f64();
    Measure {
        name: name.text(),
        segments_per_second: Some(segments as f64 / seconds),
        bytes_per_connection: None,
        seconds,
        runs,
    }
}

fn timed<T>(work: impl FnOnce() -> T) -> (Duration, T) {
    let start = Instant::now();
    let result = work();
    (start.elapsed(), result)
}
