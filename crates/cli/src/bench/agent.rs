//! `agent`: what the agent costs while nothing happens to the link.

use std::error::Error;
use std::io::{Read as _, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration as WallDuration, Instant as WallInstant};

use holdover_agent::clock;
use holdover_agent::engine::{Cost, Engine, EngineOptions, count_cost};
use serde::Serialize;

use super::real::VethPair;

type Failed = Box<dyn Error + Send + Sync>;

/// Bulk TCP over a veth pair, in slices that are by turns without and with the agent on the sender's interface.
#[derive(Debug, Serialize)]
pub(super) struct AgentCost {
    /// Without the agent: the median of its slices.
    pub(super) bits_per_second_without: f64,
    /// With it.
    pub(super) bits_per_second_with: f64,
    /// The median of the ratios of neighbouring slices, with to without.
    pub(super) ratio: f64,
    /// Of one pass through a program, by the kernel's count, in a run of its own.
    pub(super) nanoseconds_per_packet: f64,
}

/// So many pairs of slices.
const PAIRS: usize = 25;
const SLICE: WallDuration = WallDuration::from_millis(300);
/// After each change, for queues to settle.
const SETTLE: WallDuration = WallDuration::from_millis(50);

pub(super) fn measure() -> Result<AgentCost, Failed> {
    let pair = VethPair::new()?;
    let (mut stream, mut peer) = pair.connect(5001)?;
    let (read, is_over) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let ends = Arc::clone(&is_over);
    let sending = std::thread::spawn(move || -> std::io::Result<()> {
        let zeros = vec![0; 256 << 10];
        while !ends.load(Ordering::Relaxed) {
            stream.write_all(&zeros)?;
        }
        Ok(())
    });
    let count = Arc::clone(&read);
    let receiving = std::thread::spawn(move || -> std::io::Result<()> {
        let mut buffer = vec![0; 256 << 10];
        loop {
            match peer.read(&mut buffer)? {
                0 => return Ok(()),
                len => count.fetch_add(len as u64, Ordering::Relaxed),
            };
        }
    });
    let measured = slices(&pair, &read);
    is_over.store(true, Ordering::Relaxed);
    sending.join().map_err(|_| "the sender panicked")??;
    receiving.join().map_err(|_| "the receiver panicked")??;
    measured
}

fn slices(pair: &VethPair, read: &AtomicU64) -> Result<AgentCost, Failed> {
    let attach = || pair.one.enter(|| Engine::attach(VethPair::INTERFACE, &EngineOptions::default()));
    let (mut without, mut with, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    std::thread::sleep(SLICE);
    for turn in 0..PAIRS {
        let mut of_pair = [0.0; 2];
        // Each comes first as often as the other.
        for is_on in if turn % 2 == 0 { [false, true] } else { [true, false] } {
            let mut engine = if is_on { Some(attach()??) } else { None };
            slice(engine.as_mut(), read, SETTLE);
            of_pair[usize::from(is_on)] = slice(engine.as_mut(), read, SLICE);
        }
        without.push(of_pair[0]);
        with.push(of_pair[1]);
        ratios.push(of_pair[1] / of_pair[0]);
    }
    let cost = cost(&mut attach()??, read)?;
    Ok(AgentCost {
        bits_per_second_without: median(without),
        bits_per_second_with: median(with),
        ratio: median(ratios),
        nanoseconds_per_packet: cost.nanos as f64 / cost.runs.max(1) as f64,
    })
}

/// Bits per second that are read for so long, while the engine is looked after.
fn slice(engine: Option<&mut Engine>, read: &AtomicU64, span: WallDuration) -> f64 {
    let (start, before) = (WallInstant::now(), read.load(Ordering::Relaxed));
    let mut engine = engine;
    while start.elapsed() < span {
        if let Some(engine) = &mut engine {
            engine.handle_ready(clock::now());
            engine.handle_timeout(clock::now());
        }
        std::thread::sleep(WallDuration::from_millis(5).min(span.saturating_sub(start.elapsed())));
    }
    (read.load(Ordering::Relaxed) - before) as f64 * 8.0 / start.elapsed().as_secs_f64()
}

/// Counting costs too: it is not done while speeds are compared.
fn cost(engine: &mut Engine, read: &AtomicU64) -> Result<Cost, Failed> {
    let _counting = count_cost()?;
    slice(Some(engine), read, SLICE * 3);
    Ok(engine.cost())
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
