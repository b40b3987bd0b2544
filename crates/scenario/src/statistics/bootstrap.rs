//! Percentile bootstrap intervals of medians and tail quantiles, drawn from a seed.

use holdover_base::Rng;

use super::CONFIDENCE;

/// The number of resamples per interval. The bounds are the 25th values from either end, known to about a tenth of the interval's width.
pub const RESAMPLES: usize = 1000;

/// A quantile of a sample with its bootstrap interval.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct QuantileEstimate {
    /// The sample's quantile.
    pub value: f64,
    /// The bounds of its 95 % confidence interval. `None` if the sample is too small: the extremes of `n` values contain the quantile `q`
    /// between them with probability `1 - q^n - (1 - q)^n`, which no interval within them can exceed. The median requires 6 values, the
    /// 95th percentile 59.
    pub interval: Option<(f64, f64)>,
}

/// The quantile `q` (from 0 to 1) of `values`, with linear interpolation (Hyndman and Fan's type 7, as in R and NumPy); `None` without
/// values.
pub fn quantile(values: &[f64], q: f64) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    (!sorted.is_empty()).then(|| of_sorted(&sorted, q))
}

impl QuantileEstimate {
    /// The quantile `q` of `values` with its interval. `rng` draws the resamples: the same stream gives the same interval. `None` without
    /// values.
    pub fn new(values: &[f64], q: f64, rng: &mut Rng) -> Option<Self> {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (first, last) = (*sorted.first()?, *sorted.last()?);
        let value = of_sorted(&sorted, q);
        let n = sorted.len() as f64;
        let coverage = 1.0 - q.powf(n) - (1.0 - q).powf(n);
        let interval = if coverage < CONFIDENCE {
            None
        } else if first == last {
            Some((value, value))
        } else {
            let mut drawn: Vec<f64> = (0..RESAMPLES).map(|_| drawn_anew(&sorted, q, rng)).collect();
            drawn.sort_by(f64::total_cmp);
            let tail = (1.0 - CONFIDENCE) / 2.0;
            Some((of_sorted(&drawn, tail), of_sorted(&drawn, 1.0 - tail)))
        };
        Some(Self { value, interval })
    }
}

/// The quantile of a resample of `sorted` with replacement. Counting indices instead of sorting values makes it linear in time.
fn drawn_anew(sorted: &[f64], q: f64, rng: &mut Rng) -> f64 {
    let mut times = vec![0_u32; sorted.len()];
    for _ in 0..sorted.len() {
        times[rng.below(sorted.len() as u64) as usize] += 1;
    }
    let (below, share) = place(sorted.len(), q);
    let mut seen = 0;
    let mut lower = None;
    for (value, times) in sorted.iter().zip(times) {
        seen += times as usize;
        if lower.is_none() && seen > below {
            lower = Some(*value);
        }
        if let Some(lower) = lower
            && (seen > below + 1 || share == 0.0)
        {
            return lower + share * (value - lower);
        }
    }
    lower.unwrap_or(sorted[sorted.len() - 1])
}

fn of_sorted(sorted: &[f64], q: f64) -> f64 {
    let (below, share) = place(sorted.len(), q);
    let above = sorted[(below + 1).min(sorted.len() - 1)];
    sorted[below] + share * (above - sorted[below])
}

/// The position of the quantile among `count` ordered values: the index below it, and the fraction beyond.
fn place(count: usize, q: f64) -> (usize, f64) {
    let at = (count - 1) as f64 * q.clamp(0.0, 1.0);
    (at.floor() as usize, at.fract())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_numpy() {
        let values = [5.0, 1.0, 4.0, 2.0];
        // numpy.quantile([1, 2, 4, 5], [0, 0.25, 0.5, 0.95, 1])
        for (q, expected) in [(0.0, 1.0), (0.25, 1.75), (0.5, 3.0), (0.95, 4.85), (1.0, 5.0)] {
            assert!((quantile(&values, q).unwrap() - expected).abs() < 1e-12, "{q}");
        }
        assert_eq!(quantile(&[], 0.5), None);
        assert_eq!(quantile(&[7.0], 0.95), Some(7.0));
    }

    #[test]
    fn a_sample_drawn_by_counting_is_one_drawn_by_sorting() {
        let sorted = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0];
        for q in [0.0, 0.3, 0.5, 0.95, 1.0] {
            let (mut one, mut other) = (Rng::new(3), Rng::new(3));
            for _ in 0..200 {
                let picked: Vec<f64> = (0..7).map(|_| sorted[one.below(7) as usize]).collect();
                assert_eq!(Some(drawn_anew(&sorted, q, &mut other)), quantile(&picked, q));
            }
        }
    }

    #[test]
    fn an_interval_is_the_same_for_the_same_seed_and_absent_for_too_few_values() {
        let mut rng = Rng::new(1);
        let values: Vec<f64> = (0..60).map(|_| rng.normal(10.0, 2.0)).collect();
        let of = |values: &[f64], q: f64, seed: u64| QuantileEstimate::new(values, q, &mut Rng::new(seed)).unwrap();
        assert_eq!(of(&values, 0.5, 4), of(&values, 0.5, 4));
        assert_ne!(of(&values, 0.5, 4), of(&values, 0.5, 5));
        assert_eq!((of(&values[..5], 0.5, 4).interval, of(&values[..58], 0.95, 4).interval), (None, None));
        assert!(of(&values[..6], 0.5, 4).interval.is_some() && of(&values[..59], 0.95, 4).interval.is_some());
        assert_eq!(of(&[3.0; 8], 0.5, 4).interval, Some((3.0, 3.0)));
        assert_eq!(QuantileEstimate::new(&[], 0.5, &mut rng), None);
    }

    /// The median of an exponential distribution of mean 1 is ln 2: the coverage of the interval is close to nominal.
    #[test]
    fn the_interval_of_the_median_covers_the_truth() {
        let mut rng = Rng::new(9);
        let experiments = 600;
        let covered = (0..experiments)
            .filter(|_| {
                let values: Vec<f64> = (0..40).map(|_| rng.exponential(1.0)).collect();
                let (low, high) = QuantileEstimate::new(&values, 0.5, &mut rng).unwrap().interval.unwrap();
                (low..=high).contains(&core::f64::consts::LN_2)
            })
            .count();
        // Three standard errors are 0.027; the percentile bootstrap is slightly narrow in small samples.
        let share = covered as f64 / f64::from(experiments);
        assert!((0.91..0.985).contains(&share), "{share}");
    }
}
