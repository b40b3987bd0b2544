//! Random loss on the wire.
//!
//! A lost frame has used its place in the queue and its time on the line, as on a real wire; netem loses a packet before it uses either.

use holdover_base::Rng;

use crate::error::{ConfigError, check_probability};

/// The model of random loss.
#[derive(Clone, Copy, PartialEq, Default, Debug)]
pub enum Loss {
    /// None.
    #[default]
    None,
    /// Each frame with this probability, independently (netem's `loss random`).
    Independent(f64),
    /// In bursts (netem's `loss gemodel`).
    GilbertElliott(GilbertElliott),
}

/// The Gilbert-Elliott channel: a good and a bad state, and a step of the chain after every frame. The letters are netem's
/// (`loss gemodel p r 1-h 1-k`), after Elliott, "Estimates of error rates for codes on burst-noise channels", 1963.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct GilbertElliott {
    /// `p`: probability of going from good to bad.
    pub good_to_bad: f64,
    /// `r`: probability of going from bad to good. The mean bad period lasts `1 / r` frames.
    pub bad_to_good: f64,
    /// `1-h`: probability that a frame is lost in the bad state; 1 in netem's version of Gilbert's simpler model.
    pub loss_in_bad: f64,
    /// `1-k`: probability that a frame is lost in the good state; usually 0.
    pub loss_in_good: f64,
}

impl GilbertElliott {
    /// The share of frames lost in the long run.
    pub fn mean_loss(&self) -> f64 {
        let sum = self.good_to_bad + self.bad_to_good;
        if sum == 0.0 {
            return self.loss_in_good; // The chain never leaves its first state.
        }
        (self.bad_to_good * self.loss_in_good + self.good_to_bad * self.loss_in_bad) / sum
    }
}

#[derive(Clone, Debug)]
pub(crate) struct LossProcess {
    model: Loss,
    bad: bool,
    rng: Rng,
}

impl LossProcess {
    pub(crate) fn new(model: Loss, rng: Rng) -> Self {
        Self { model, bad: false, rng }
    }

    /// Whether the next frame is lost. `at_the_time` is the probability that a trace adds at this time.
    pub(crate) fn loses(&mut self, at_the_time: f64) -> bool {
        let by_trace = at_the_time > 0.0 && self.rng.chance(at_the_time);
        let by_model = match self.model {
            Loss::None => false,
            Loss::Independent(p) => self.rng.chance(p),
            Loss::GilbertElliott(chain) => self.step(chain),
        };
        by_trace || by_model
    }

    fn step(&mut self, chain: GilbertElliott) -> bool {
        let (loss, leave) =
            if self.bad { (chain.loss_in_bad, chain.bad_to_good) } else { (chain.loss_in_good, chain.good_to_bad) };
        let lost = self.rng.chance(loss);
        self.bad ^= self.rng.chance(leave);
        lost
    }
}

pub(crate) fn check(model: Loss) -> Result<(), ConfigError> {
    match model {
        Loss::None => Ok(()),
        Loss::Independent(p) => check_probability("loss", p),
        Loss::GilbertElliott(chain) => {
            check_probability("loss: good to bad (p)", chain.good_to_bad)?;
            check_probability("loss: bad to good (r)", chain.bad_to_good)?;
            check_probability("loss: loss in bad (1-h)", chain.loss_in_bad)?;
            check_probability("loss: loss in good (1-k)", chain.loss_in_good)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const N: u32 = 200_000;

    fn outcomes(model: Loss) -> Vec<bool> {
        let mut process = LossProcess::new(model, Rng::new(3));
        (0..N).map(|_| process.loses(0.0)).collect()
    }

    fn share(outcomes: &[bool]) -> f64 {
        outcomes.iter().filter(|&&lost| lost).count() as f64 / outcomes.len() as f64
    }

    #[test]
    fn independent_loss_has_its_probability() {
        // Four standard errors of a share of 0.02 at n = 200,000.
        let standard_error = (0.02_f64 * 0.98 / f64::from(N)).sqrt();
        assert!((share(&outcomes(Loss::Independent(0.02))) - 0.02).abs() < 4.0 * standard_error);
        assert_eq!(share(&outcomes(Loss::Independent(0.0))), 0.0);
        assert_eq!(share(&outcomes(Loss::Independent(1.0))), 1.0);
    }

    #[test]
    fn gilbert_elliott_has_the_mean_loss_and_the_burst_length_of_its_chain() {
        let chain = GilbertElliott { good_to_bad: 0.01, bad_to_good: 0.25, loss_in_bad: 1.0, loss_in_good: 0.0 };
        let outcomes = outcomes(Loss::GilbertElliott(chain));
        let bursts = outcomes.windows(2).filter(|pair| !pair[0] && pair[1]).count() as f64;
        let lost = outcomes.iter().filter(|&&lost| lost).count() as f64;
        // About 7,700 bursts whose lengths are geometric with mean 4 and standard deviation sqrt(0.75) / 0.25 = 3.46.
        let standard_error = 3.46 / bursts.sqrt();
        assert!((lost / bursts - 4.0).abs() < 4.0 * standard_error, "{}", lost / bursts);
        // The number of bursts is nearly Poisson; loss varies with it and with the lengths: sqrt(4^2 + 3.46^2) a burst.
        let standard_error = bursts.sqrt() * 5.3 / f64::from(N);
        assert!((share(&outcomes) - chain.mean_loss()).abs() < 4.0 * standard_error);
        assert!((chain.mean_loss() - 0.01 / 0.26).abs() < 1e-12);
    }

    #[test]
    fn invalid_probabilities_are_refused() {
        for p in [-0.1, 1.1, f64::NAN] {
            assert!(check(Loss::Independent(p)).is_err(), "{p}");
        }
    }
}
