//! The windowed maximum of the delivery rate (BtlBw filter): the largest value of the last rounds.

/// A maximum over a window of rounds: values that a later one exceeds cannot become the maximum any more, and are dropped.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct MaxFilter {
    /// Round and value, with falling values.
    values: Vec<(u64, u64)>,
    rounds: u64,
}

impl MaxFilter {
    pub(super) const fn new(rounds: u64) -> Self {
        Self { values: Vec::new(), rounds }
    }

    pub(super) fn max(&self) -> u64 {
        self.values.first().map_or(0, |&(_, value)| value)
    }

    pub(super) fn update(&mut self, round: u64, value: u64) {
        self.values.retain(|&(_, kept)| kept > value);
        self.values.push((round, value));
        self.values.retain(|&(at, _)| round - at <= self.rounds);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_maximum_lasts_as_long_as_the_window() {
        let mut filter = MaxFilter::new(10);
        filter.update(1, 100);
        for round in 2..=11 {
            filter.update(round, 50 - round);
            assert_eq!(filter.max(), 100);
        }
        filter.update(12, 1);
        assert_eq!(filter.max(), 48, "that of round 2");
        filter.update(13, 200);
        assert_eq!((filter.max(), filter.values.len()), (200, 1));
    }
}
