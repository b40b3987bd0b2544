//! Variation of the propagation delay (netem's `delay TIME JITTER`).

use holdover_base::{Duration, Rng};

/// Random variation of the propagation delay, frame by frame. A delay never falls below zero.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Jitter {
    /// Half of the width if uniform, the standard deviation if normal.
    pub amplitude: Duration,
    /// The distribution.
    pub distribution: JitterDistribution,
    /// Whether a frame may overtake those before it, as in netem. Otherwise it arrives no earlier than its predecessor,
    /// as behind a first-in first-out queue of varying length.
    pub reorder: bool,
}

/// The distribution of a jitter, with mean zero.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum JitterDistribution {
    /// Uniform between minus and plus the amplitude.
    Uniform,
    /// Normal.
    Normal,
}

#[derive(Clone, Debug)]
pub(crate) struct JitterProcess {
    jitter: Jitter,
    rng: Rng,
}

impl JitterProcess {
    pub(crate) fn new(jitter: Jitter, rng: Rng) -> Self {
        Self { jitter, rng }
    }

    pub(crate) fn keeps_order(&self) -> bool {
        !self.jitter.reorder
    }

    /// `delay` with its variation.
    pub(crate) fn vary(&mut self, delay: Duration) -> Duration {
        let amplitude = self.jitter.amplitude.as_nanos() as f64;
        let offset = match self.jitter.distribution {
            JitterDistribution::Uniform => amplitude * (2.0 * self.rng.next_f64() - 1.0),
            JitterDistribution::Normal => self.rng.normal(0.0, amplitude),
        };
        let span = Duration::from_nanos(offset.abs().round() as u64);
        if offset < 0.0 { delay - span } else { delay + span }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moments(distribution: JitterDistribution) -> (f64, f64) {
        let jitter = Jitter { amplitude: Duration::from_millis(3), distribution, reorder: true };
        let mut process = JitterProcess::new(jitter, Rng::new(5));
        let n = 100_000;
        let draws: Vec<f64> = (0..n).map(|_| process.vary(Duration::from_millis(20)).as_secs_f64() * 1e3).collect();
        let mean = draws.iter().sum::<f64>() / f64::from(n);
        (mean, (draws.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / f64::from(n)).sqrt())
    }

    #[test]
    fn jitter_has_the_mean_and_the_deviation_of_its_distribution() {
        // Standard errors at n = 100,000: of the mean sigma / 316, of the deviation at most sigma / 447.
        for (distribution, sigma) in
            [(JitterDistribution::Uniform, 3.0 / 3.0_f64.sqrt()), (JitterDistribution::Normal, 3.0)]
        {
            let (mean, deviation) = moments(distribution);
            assert!((mean - 20.0).abs() < 4.0 * sigma / 316.0, "{distribution:?} {mean}");
            assert!((deviation - sigma).abs() < 4.0 * sigma / 447.0, "{distribution:?} {deviation}");
        }
    }

    #[test]
    fn a_delay_never_falls_below_zero() {
        let jitter =
            Jitter { amplitude: Duration::from_secs(1), distribution: JitterDistribution::Uniform, reorder: true };
        let mut process = JitterProcess::new(jitter, Rng::new(5));
        let draws: Vec<_> = (0..1000).map(|_| process.vary(Duration::from_millis(1))).collect();
        assert!(draws.contains(&Duration::ZERO));
        assert!(draws.iter().all(|&delay| delay <= Duration::from_millis(1001)));
    }
}
