//! How late a wall-clock run is: from the time at which a packet was due at a host to the time at which its kernel had it.

use holdover_base::Duration;

/// A histogram with a resolution of a microsecond, up to a tenth of a second.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Lateness {
    /// The number of packets by their lateness in microseconds.
    counts: Vec<u64>,
    total: u64,
    max: Duration,
}

impl Lateness {
    /// Greater delays count as this one, except for the maximum.
    const MOST_MICROS: usize = 100_000;

    pub(crate) fn add(&mut self, late: Duration) {
        let micros = usize::try_from(late.as_nanos() / 1000).unwrap_or(usize::MAX).min(Self::MOST_MICROS);
        if self.counts.len() <= micros {
            self.counts.resize(micros + 1, 0);
        }
        self.counts[micros] += 1;
        self.total += 1;
        self.max = self.max.max(late);
    }

    /// The number of delivered packets.
    pub fn packets(&self) -> u64 {
        self.total
    }

    /// The greatest lateness.
    pub fn max(&self) -> Duration {
        self.max
    }

    /// The lateness not exceeded by this share of all packets, 0 to 1, to the microsecond; zero without packets.
    pub fn quantile(&self, share: f64) -> Duration {
        let rank = (share.clamp(0.0, 1.0) * self.total as f64).ceil() as u64;
        let mut seen = 0;
        for (micros, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= rank.max(1) {
                return Duration::from_micros(micros as u64);
            }
        }
        Duration::ZERO
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_the_samples() {
        let mut lateness = Lateness::default();
        assert_eq!(lateness.quantile(0.5), Duration::ZERO);
        for micros in 1..=100 {
            lateness.add(Duration::from_micros(micros));
        }
        lateness.add(Duration::from_secs(2));
        assert_eq!(lateness.packets(), 101);
        assert_eq!(lateness.quantile(0.5), Duration::from_micros(51));
        assert_eq!(lateness.quantile(0.99), Duration::from_micros(100));
        assert_eq!(lateness.quantile(1.0), Duration::from_millis(100));
        assert_eq!(lateness.max(), Duration::from_secs(2));
    }
}
