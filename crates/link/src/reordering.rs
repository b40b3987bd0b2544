//! Reordering in netem's sense: some frames skip the propagation delay and overtake earlier ones.

use holdover_base::Rng;

/// The frames that are sent at once, without propagation delay and jitter (netem's `reorder PERCENT gap DISTANCE`).
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Reordering {
    /// Probability that a candidate is sent at once.
    pub probability: f64,
    /// Every `gap`-th frame is a candidate; after it has missed its chance every further one, until one is sent at once. With
    /// 0 or 1 all are.
    pub gap: u32,
}

#[derive(Clone, Debug)]
pub(crate) struct ReorderProcess {
    reordering: Reordering,
    delayed: u32,
    rng: Rng,
}

impl ReorderProcess {
    pub(crate) fn new(reordering: Reordering, rng: Rng) -> Self {
        Self { reordering, delayed: 0, rng }
    }

    /// Whether the next frame is sent at once.
    pub(crate) fn picks(&mut self) -> bool {
        let candidate = self.delayed + 1 >= self.reordering.gap;
        if candidate && self.rng.chance(self.reordering.probability) {
            self.delayed = 0;
            return true;
        }
        self.delayed = self.delayed.saturating_add(1);
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn with_a_gap_every_nth_is_picked() {
        let mut process = ReorderProcess::new(Reordering { probability: 1.0, gap: 5 }, Rng::new(1));
        let picked: Vec<usize> = (1..=20).filter(|_| process.picks()).collect();
        assert_eq!(picked, [5, 10, 15, 20]);
    }

    #[test]
    fn without_a_gap_each_is_picked_with_the_probability() {
        let mut process = ReorderProcess::new(Reordering { probability: 0.25, gap: 0 }, Rng::new(1));
        let picked = (0..100_000).filter(|_| process.picks()).count() as f64;
        // Four standard errors: sqrt(100,000 * 0.25 * 0.75) = 137.
        assert!((picked - 25_000.0).abs() < 4.0 * 137.0, "{picked}");
    }
}
