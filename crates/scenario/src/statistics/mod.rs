//! Statistics: the number of runs needed, differences between variants, and intervals of medians and tails.

mod bootstrap;
mod compare;

pub use bootstrap::{QuantileEstimate, RESAMPLES, quantile};
pub use compare::{Difference, Method, Verdict, holm};

use statrs::distribution::{ContinuousCDF, StudentsT};

/// The confidence of every interval.
pub const CONFIDENCE: f64 = 0.95;

/// The mean of a growing sample, by Welford's numerically stable recurrence.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Mean {
    count: u64,
    mean: f64,
    squares: f64,
}

impl Mean {
    /// Adds a value.
    pub fn push(&mut self, value: f64) {
        self.count += 1;
        let distance = value - self.mean;
        self.mean += distance / self.count as f64;
        self.squares += distance * (value - self.mean);
    }

    /// The number of values.
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// The mean; 0 without values.
    pub const fn mean(&self) -> f64 {
        self.mean
    }

    /// The sample variance; `None` with fewer than two values.
    pub fn variance(&self) -> Option<f64> {
        (self.count > 1).then(|| (self.squares / (self.count - 1) as f64).max(0.0))
    }

    /// Whether the values are all equal, up to rounding, so that there is nothing to test. `None` with fewer than two values.
    pub fn is_constant(&self) -> Option<bool> {
        // A billionth of a billionth of the squared mean: above the rounding errors of equal values, and far below any real variance.
        const ROUNDING: f64 = 1e-24;
        Some(self.variance()? <= ROUNDING * self.mean.powi(2))
    }

    /// The half-width of the mean's 95 % confidence interval, by Student's t; `None` with fewer than two values.
    pub fn half_width(&self) -> Option<f64> {
        let variance = self.variance()?;
        let t = t_quantile((self.count - 1) as f64)?;
        Some(t * (variance / self.count as f64).sqrt())
    }

    /// The half-width divided by the mean; `None` with fewer than two values, or for a mean of zero with nonzero
    /// variance.
    pub fn relative_error(&self) -> Option<f64> {
        let half_width = self.half_width()?;
        if half_width == 0.0 {
            return Some(0.0);
        }
        (self.mean != 0.0).then(|| half_width / self.mean.abs())
    }
}

impl FromIterator<f64> for Mean {
    fn from_iter<I: IntoIterator<Item = f64>>(values: I) -> Self {
        let mut mean = Self::default();
        values.into_iter().for_each(|value| mean.push(value));
        mean
    }
}

/// The two-sided quantile of Student's t at 95 %.
fn t_quantile(degrees_of_freedom: f64) -> Option<f64> {
    let distribution = StudentsT::new(0.0, 1.0, degrees_of_freedom).ok()?;
    Some(distribution.inverse_cdf(1.0 - (1.0 - CONFIDENCE) / 2.0))
}

#[cfg(test)]
mod tests {
    use holdover_base::Rng;

    use super::*;

    fn close(a: f64, b: f64, within: f64) -> bool {
        (a - b).abs() <= within
    }

    /// By hand: 2, 4, 4, 4, 5, 5, 7, 9 has mean 5 and variance 32/7; t(0.975, 7) = 2.364624.
    #[test]
    fn a_mean_has_the_interval_of_students_t() {
        let mean: Mean = [2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0].into_iter().collect();
        assert_eq!(mean.mean(), 5.0);
        assert!(close(mean.variance().unwrap(), 32.0 / 7.0, 1e-12));
        let half_width = 2.364_624 * (32.0_f64 / 7.0 / 8.0).sqrt();
        assert!(close(mean.half_width().unwrap(), half_width, 1e-5));
        assert!(close(mean.relative_error().unwrap(), half_width / 5.0, 1e-5));
    }

    #[test]
    fn one_value_has_no_error_and_equal_values_have_none_to_speak_of() {
        let mut mean = Mean::default();
        assert_eq!(mean.relative_error(), None);
        mean.push(3.0);
        assert_eq!((mean.half_width(), mean.relative_error()), (None, None));
        mean.push(3.0);
        assert_eq!(mean.relative_error(), Some(0.0));
    }

    /// The interval must contain the true mean in 95 % of all experiments.
    #[test]
    fn the_interval_covers_the_truth_as_often_as_it_says() {
        let mut rng = Rng::new(11);
        let experiments = 4_000;
        let covered = (0..experiments)
            .filter(|_| {
                let mean: Mean = (0..8).map(|_| rng.normal(10.0, 3.0)).collect();
                (mean.mean() - 10.0).abs() <= mean.half_width().unwrap()
            })
            .count();
        // Three standard errors: 3 sqrt(0.95 * 0.05 / 4000) = 0.0103.
        assert!(close(covered as f64 / f64::from(experiments), 0.95, 0.0104), "{covered}");
    }
}
