//! Tick positions of axes.

/// Multiples of 1, 2 or 5 times a power of ten from `from` to `to`, about `wanted` of them, and the number of decimals needed.
pub(crate) fn linear(from: f64, to: f64, wanted: f64) -> (Vec<f64>, usize) {
    let step = nice_step((to - from) / wanted.max(1.0));
    if !(step > 0.0 && step.is_finite() && to > from) {
        return (vec![from], 0);
    }
    let decimals = (-(step.log10() + 1e-9).floor()).max(0.0) as usize;
    let first = (from / step - 1e-9).ceil() as i64;
    let last = (to / step + 1e-9).floor() as i64;
    ((first..=last).map(|n| n as f64 * step).collect(), decimals)
}

/// The least of 1, 2 and 5 times a power of ten that is not below `step`.
pub(crate) fn nice_step(step: f64) -> f64 {
    let power = 10_f64.powf(step.log10().floor());
    let factor = [1.0, 2.0, 5.0].into_iter().find(|factor| factor * power >= step * (1.0 - 1e-9)).unwrap_or(10.0);
    factor * power
}

/// The greatest of 1, 2 and 5 times a power of ten that is not above `step`.
pub(crate) fn nice_floor(step: f64) -> f64 {
    let power = 10_f64.powf(step.log10().floor());
    let factor = [5.0, 2.0].into_iter().find(|factor| factor * power <= step * (1.0 + 1e-9)).unwrap_or(1.0);
    factor * power
}

/// Powers of ten from `from` to `to` and their multiples by 2 and 5, each with whether it is a power of ten.
pub(crate) fn logarithmic(from: f64, to: f64) -> Vec<(f64, bool)> {
    let mut ticks = Vec::new();
    let mut power = 10_f64.powf(from.log10().floor());
    while power <= to {
        for factor in [1.0, 2.0, 5.0] {
            let tick = factor * power;
            if tick >= from * (1.0 - 1e-9) && tick <= to * (1.0 + 1e-9) {
                ticks.push((tick, factor == 1.0));
            }
        }
        power *= 10.0;
    }
    ticks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_round() {
        let (ticks, decimals) = linear(0.0, 37.0, 8.0);
        assert_eq!((ticks, decimals), (vec![0.0, 5.0, 10.0, 15.0, 20.0, 25.0, 30.0, 35.0], 0));
        let (ticks, decimals) = linear(0.0, 1.0, 5.0);
        assert_eq!((ticks.len(), decimals), (6, 1));
        assert_eq!(linear(0.0, 0.0, 5.0).0, [0.0]);
        assert_eq!((nice_step(0.1), nice_step(0.3)), (0.1, 0.5));
        assert_eq!((nice_floor(0.05), nice_floor(0.049), nice_floor(7.0)), (0.05, 0.02, 5.0));
    }

    #[test]
    fn a_logarithmic_axis_has_powers_of_ten() {
        let ticks = logarithmic(0.02, 5.0);
        let powers: Vec<f64> = ticks.iter().filter(|tick| tick.1).map(|tick| tick.0).collect();
        assert_eq!(powers.len(), 2);
        assert_eq!(ticks.len(), 8);
    }
}
