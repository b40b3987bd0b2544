//! Makes `scenarios/traces/lte-drive.trace`, a packet-delivery trace in mahimahi's format:
//!
//! ```sh
//! cargo run -p holdover-scenario --example lte_trace > scenarios/traces/lte-drive.trace
//! ```
//!
//! The model: the logarithm of the rate is an Ornstein-Uhlenbeck process around 6 Mbit/s, sampled every millisecond, like slow fading; a
//! bridge removes most of the signal for two seconds. No part of it was recorded.

use holdover_base::Rng;

/// The duration of the trace.
const LENGTH_MS: u32 = 30_000;
/// The mean-reversion level of the rate.
const MEDIAN_MBPS: f64 = 6.0;
/// The long-run standard deviation of the rate's logarithm: about two thirds of the time within a factor of 1.8.
const DEVIATION: f64 = 0.6;
/// The time constant of the mean reversion.
const MEMORY_MS: f64 = 1_500.0;
/// The maximum rate of the cell.
const MOST_MBPS: f64 = 20.0;
/// The time under the bridge.
const BRIDGE_MS: core::ops::Range<u32> = 17_000..19_000;
/// The share of the rate left under the bridge.
const BRIDGE_SHARE: f64 = 0.04;
/// The size of a delivery opportunity, one line of the trace.
const OPPORTUNITY_BITS: f64 = 1500.0 * 8.0;

/// The trace, one line per delivery opportunity.
pub fn trace() -> String {
    let mut rng = Rng::new(2026);
    let mut log_rate = MEDIAN_MBPS.ln();
    let mut bits = 0.0;
    let mut text = String::new();
    for at in 1..=LENGTH_MS {
        let pull = (MEDIAN_MBPS.ln() - log_rate) / MEMORY_MS;
        log_rate += pull + DEVIATION * (2.0 / MEMORY_MS).sqrt() * rng.normal(0.0, 1.0);
        let share = if BRIDGE_MS.contains(&at) { BRIDGE_SHARE } else { 1.0 };
        bits += log_rate.exp().min(MOST_MBPS) * share * 1_000.0;
        while bits >= OPPORTUNITY_BITS {
            bits -= OPPORTUNITY_BITS;
            text.push_str(&format!("{at}\n"));
        }
    }
    text
}

fn main() {
    print!("{}", trace());
}
