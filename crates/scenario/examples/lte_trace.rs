//! Makes `scenarios/traces/lte-drive.trace`, a packet-delivery trace in mahimahi's format:
//!
//! ```sh
//! cargo run -p holdover-scenario --example lte_trace > scenarios/traces/lte-drive.trace
//! ```
//!
//! The model: the logarithm of the rate is pulled towards that of 6 Mbit/s and pushed about by noise (an Ornstein-Uhlenbeck
//! process, sampled every millisecond), as slow fading is; a bridge takes most of the signal away for two seconds. Nothing in
//! it was recorded anywhere.

use holdover_base::Rng;

/// How long the trace lasts.
const LENGTH_MS: u32 = 30_000;
/// What the rate is pulled towards.
const MEDIAN_MBPS: f64 = 6.0;
/// Standard deviation of the rate's logarithm in the long run: about two thirds of the time within a factor of 1.8.
const DEVIATION: f64 = 0.6;
/// How long the rate remembers where it was.
const MEMORY_MS: f64 = 1_500.0;
/// No cell gives more.
const MOST_MBPS: f64 = 20.0;
/// Under the bridge.
const BRIDGE_MS: core::ops::Range<u32> = 17_000..19_000;
/// What the bridge leaves of the rate.
const BRIDGE_SHARE: f64 = 0.04;
/// What one line of the trace delivers.
const OPPORTUNITY_BITS: f64 = 1500.0 * 8.0;

/// The trace, one line for each opportunity.
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
