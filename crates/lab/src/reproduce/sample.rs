//! Space-filling samples: Latin hypercubes (McKay, Beckman, Conover 1979); of several, the one with the greatest minimum distance between
//! points (maximin, Johnson, Moore, Ylvisaker 1990).

use holdover_base::Rng;
use serde::Deserialize;

/// The default sampling of settings of open inputs.
#[derive(Clone, Copy, PartialEq, Eq, Deserialize, Debug)]
#[serde(deny_unknown_fields, default)]
pub struct Sampling {
    /// The number of settings.
    pub samples: u32,
    /// Runs of each variant at each point: fewer than for the verdicts, as there are many settings.
    pub runs: u32,
    /// The seed of the sample.
    pub seed: u64,
}

impl Default for Sampling {
    fn default() -> Self {
        Self { samples: 32, runs: 2, seed: 1 }
    }
}

/// The number of hypercubes drawn per sample.
const CANDIDATES: usize = 64;

/// `samples` points with `dimensions` coordinates from 0 to 1. In each coordinate, every `samples`th part of the range contains exactly one
/// point. The result is a function of the arguments.
pub fn latin_hypercube(dimensions: usize, samples: usize, seed: u64) -> Vec<Vec<f64>> {
    let mut rng = Rng::split(seed, "latin hypercube");
    let drawn = (0..CANDIDATES).map(|_| draw(dimensions, samples, &mut rng));
    let best = drawn.map(|points| (closest(&points), points)).max_by(|a, b| a.0.total_cmp(&b.0));
    best.map(|(_, points)| points).unwrap_or_default()
}

fn draw(dimensions: usize, samples: usize, rng: &mut Rng) -> Vec<Vec<f64>> {
    let mut points = vec![Vec::with_capacity(dimensions); samples];
    for _ in 0..dimensions {
        for (stratum, index) in shuffled(samples, rng).into_iter().enumerate() {
            points[index].push((stratum as f64 + rng.next_f64()) / samples as f64);
        }
    }
    points
}

/// The numbers below `count` in random order.
pub(super) fn shuffled(count: usize, rng: &mut Rng) -> Vec<usize> {
    let mut order: Vec<usize> = (0..count).collect();
    for last in (1..count).rev() {
        let other = rng.below(last as u64 + 1) as usize;
        order.swap(last, other);
    }
    order
}

/// The square of the minimum distance between two points.
fn closest(points: &[Vec<f64>]) -> f64 {
    let distance = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| (a - b).powi(2)).sum::<f64>();
    let pairs = points.iter().enumerate().flat_map(|(index, a)| points[..index].iter().map(move |b| (a, b)));
    pairs.map(|(a, b)| distance(a, b)).fold(f64::INFINITY, f64::min)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{any, prop_assert_eq, proptest};

    use super::*;

    proptest! {
        // Claim: In a sample, every part of every range has one point.
        #[test]
        fn every_part_of_every_range_has_one_point(dimensions in 1_usize..8, samples in 1_usize..40, seed in any::<u64>()) {
            let points = latin_hypercube(dimensions, samples, seed);
            prop_assert_eq!(points.len(), samples);
            for dimension in 0..dimensions {
                let mut strata: Vec<usize> =
                    points.iter().map(|point| (point[dimension] * samples as f64) as usize).collect();
                strata.sort_unstable();
                prop_assert_eq!(strata, (0..samples).collect::<Vec<_>>());
            }
            prop_assert_eq!(points, latin_hypercube(dimensions, samples, seed));
        }
    }

    #[test]
    fn points_keep_their_distance() {
        let apart = |points: &[Vec<f64>]| closest(points).sqrt();
        let chosen = apart(&latin_hypercube(4, 24, 7));
        let mut rng = Rng::new(7);
        let mean = (0..100).map(|_| apart(&draw(4, 24, &mut rng))).sum::<f64>() / 100.0;
        assert!(chosen > 1.3 * mean, "{chosen} against {mean} of a hypercube that was not chosen");
    }
}
