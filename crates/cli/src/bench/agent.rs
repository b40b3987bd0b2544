//! `agent`: the cost of the agent while the link is up.

use std::error::Error;
use std::io::{Read as _, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration as WallDuration, Instant as WallInstant};

use holdover_agent::engine::{Cost, Engine, EngineOptions, count_cost};
use holdover_host::clock;
use holdover_testbed::KernelStream;
use serde::Serialize;

use super::quartiles;
use super::real::VethPair;

type Failed = Box<dyn Error + Send + Sync>;

/// Bulk TCP over two veth pairs by turns; one has the agent on the sender's interface.
#[derive(Debug, Serialize)]
pub(super) struct AgentCost {
    /// Without the agent: the median of its slices.
    pub(super) bits_per_second_without: f64,
    /// The same with the agent.
    pub(super) bits_per_second_with: f64,
    /// The median of the ratios of neighbouring slices, with to without.
    pub(super) ratio: f64,
    /// The first and the third quartile of these ratios.
    pub(super) ratio_quartiles: [f64; 2],
    /// The time of one run of an eBPF program, from the kernel's statistics, in a separate measurement.
    pub(super) nanoseconds_per_packet: f64,
}

/// The number of pairs of slices with the agent on either veth pair.
const PAIRS: usize = 250;
const SLICE: WallDuration = WallDuration::from_millis(40);
/// The time for queues to settle after each change.
const SETTLE: WallDuration = WallDuration::from_millis(5);

pub(super) fn measure() -> Result<AgentCost, Failed> {
    let pairs = [VethPair::new()?, VethPair::new()?];
    let bulk = Bulk::start(&pairs)?;
    let (mut without, mut with, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    let mut cost = Cost::default();
    for (watched, pair) in pairs.iter().enumerate() {
        let mut engine = pair.one.enter(|| Engine::attach(VethPair::INTERFACE, &EngineOptions::default()))??;
        for turn in 0..PAIRS {
            let mut rates = [0.0; 2];
            // Each of the two comes first in every second pair.
            for is_watched in if turn % 2 == 0 { [false, true] } else { [true, false] } {
                bulk.flow(if is_watched { watched } else { 1 - watched });
                bulk.rate(&mut engine, SETTLE);
                rates[usize::from(is_watched)] = bulk.rate(&mut engine, SLICE);
            }
            without.push(rates[0]);
            with.push(rates[1]);
            ratios.push(rates[1] / rates[0]);
        }
        // The kernel's statistics cost time, so they are off while speeds are compared.
        let counting = count_cost()?;
        bulk.flow(watched);
        bulk.rate(&mut engine, SLICE * 25);
        drop(counting);
        let counted = engine.cost();
        cost = Cost { runs: cost.runs + counted.runs, nanos: cost.nanos + counted.nanos };
    }
    bulk.finish()?;
    let [low, ratio, high] = quartiles(ratios);
    Ok(AgentCost {
        bits_per_second_without: quartiles(without)[1],
        bits_per_second_with: quartiles(with)[1],
        ratio,
        ratio_quartiles: [low, high],
        nanoseconds_per_packet: cost.nanos as f64 / cost.runs.max(1) as f64,
    })
}

/// Two connections; one at a time sends as fast as it can.
struct Bulk {
    flows: Arc<AtomicUsize>,
    is_over: Arc<AtomicBool>,
    written: Arc<AtomicU64>,
    threads: Vec<std::thread::JoinHandle<std::io::Result<()>>>,
}

impl Bulk {
    fn start(pairs: &[VethPair; 2]) -> Result<Self, Failed> {
        let mut bulk =
            Self { flows: Arc::default(), is_over: Arc::default(), written: Arc::default(), threads: Vec::new() };
        let mut senders = Vec::new();
        for pair in pairs {
            let (sender, receiver) = pair.connect(5001)?;
            senders.push(sender);
            bulk.threads.push(std::thread::spawn(move || receive(receiver)));
        }
        let (flows, is_over, written) = (Arc::clone(&bulk.flows), Arc::clone(&bulk.is_over), Arc::clone(&bulk.written));
        bulk.threads.push(std::thread::spawn(move || {
            let zeros = vec![0; 256 << 10];
            while !is_over.load(Ordering::Relaxed) {
                let len = senders[flows.load(Ordering::Relaxed)].write(&zeros)?;
                written.fetch_add(len as u64, Ordering::Relaxed);
            }
            Ok(())
        }));
        Ok(bulk)
    }

    /// Makes this connection the one that sends.
    fn flow(&self, number: usize) {
        self.flows.store(number, Ordering::Relaxed);
    }

    /// Runs the engine for this time, and returns the bits per second that are sent meanwhile.
    fn rate(&self, engine: &mut Engine, span: WallDuration) -> f64 {
        let (start, before) = (WallInstant::now(), self.written.load(Ordering::Relaxed));
        while start.elapsed() < span {
            engine.handle_ready(clock::now());
            engine.handle_timeout(clock::now());
            std::thread::sleep(WallDuration::from_millis(5).min(span.saturating_sub(start.elapsed())));
        }
        (self.written.load(Ordering::Relaxed) - before) as f64 * 8.0 / start.elapsed().as_secs_f64()
    }

    fn finish(self) -> Result<(), Failed> {
        self.is_over.store(true, Ordering::Relaxed);
        // The sender first: with it go the connections that the others wait for.
        for thread in self.threads.into_iter().rev() {
            thread.join().map_err(|_| "a thread of the measurement panicked")??;
        }
        Ok(())
    }
}

fn receive(mut stream: KernelStream) -> std::io::Result<()> {
    let mut buffer = vec![0; 256 << 10];
    while stream.read(&mut buffer)? > 0 {}
    Ok(())
}
