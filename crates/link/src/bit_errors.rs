//! Bit errors: a frame is damaged if any of its bits is, so long frames suffer more than short ones.
//!
//! Without bursts, a frame of n bits survives with probability (1 - BER)^n. In the Gilbert-Elliott channel (Gilbert, "Capacity of a
//! burst-noise channel", 1960; Elliott, 1963) the bit error rate is that of a good or a bad state, which last for exponentially distributed
//! times or numbers of bits. A frame that meets both states survives with the product of the probabilities of its parts.
//!
//! The states of a channel that changes with time depend only on the seed, not on the traffic; those of one that changes with bits advance
//! only with the bits sent.

use std::collections::VecDeque;

use holdover_base::{Duration, Instant, Rng};

use crate::error::{ConfigError, check_positive, check_probability};

/// The model of bit errors.
#[derive(Clone, Copy, PartialEq, Default, Debug)]
pub enum BitErrors {
    /// None.
    #[default]
    None,
    /// Each bit with this probability (the bit error rate), independently.
    Independent(f64),
    /// In bursts.
    GilbertElliott(BitErrorBursts),
}

/// A channel with a good and a bad state. It begins in the good one.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct BitErrorBursts {
    /// The bit error rate in the good state.
    pub good: f64,
    /// The bit error rate in the bad state.
    pub bad: f64,
    /// The lengths of the states.
    pub dwell: Dwell,
}

/// The means of the exponentially distributed lengths of a channel's states.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Dwell {
    /// In time.
    Time {
        /// Mean of the good state.
        good: Duration,
        /// Mean of the bad state.
        bad: Duration,
    },
    /// In bits sent.
    Bits {
        /// Mean of the good state.
        good: f64,
        /// Mean of the bad state.
        bad: f64,
    },
}

/// Checks the model.
pub(crate) fn check(errors: BitErrors) -> Result<(), ConfigError> {
    match errors {
        BitErrors::None => Ok(()),
        BitErrors::Independent(rate) => check_probability("bit error rate", rate),
        BitErrors::GilbertElliott(bursts) => {
            check_probability("bit error rate: good", bursts.good)?;
            check_probability("bit error rate: bad", bursts.bad)?;
            match bursts.dwell {
                Dwell::Time { good, .. } if good.is_zero() => Err(ConfigError::NoLength { field: "bit errors: good" }),
                Dwell::Time { bad, .. } if bad.is_zero() => Err(ConfigError::NoLength { field: "bit errors: bad" }),
                Dwell::Time { .. } => Ok(()),
                Dwell::Bits { good, bad } => {
                    check_positive("bit errors: bits in the good state", good)?;
                    check_positive("bit errors: bits in the bad state", bad)
                }
            }
        }
    }
}

/// A frame's bits on the wire.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Exposure {
    pub(crate) bits: u64,
    /// Start of the first bit.
    pub(crate) start: Instant,
    /// End of the last bit.
    pub(crate) end: Instant,
}

#[derive(Clone, Debug)]
pub(crate) struct BitErrorProcess {
    channel: Channel,
    strikes: Rng,
}

#[derive(Clone, Debug)]
enum Channel {
    Steady { rate: f64 },
    InTime(States),
    InBits { bursts: BitErrorBursts, mean: [f64; 2], bad: bool, left: f64, rng: Rng },
}

/// The states of a channel over time, drawn as far as needed: retransmitted frames are planned before others.
#[derive(Clone, Debug)]
struct States {
    rates: [f64; 2],
    mean: [Duration; 2],
    /// The end of each state, and whether it is bad; the first one is the earliest that may still be needed.
    ends: VecDeque<(Instant, bool)>,
    rng: Rng,
}

impl BitErrorProcess {
    /// The errors of a checked link; `None` if it has none.
    pub(crate) fn new(errors: BitErrors, seed: u64) -> Option<Self> {
        let mut rng = Rng::split(seed, "bit error states");
        let channel = match errors {
            BitErrors::None => return None,
            BitErrors::Independent(rate) => Channel::Steady { rate },
            BitErrors::GilbertElliott(bursts) => match bursts.dwell {
                Dwell::Time { good, bad } => Channel::InTime(States {
                    rates: [bursts.good, bursts.bad],
                    mean: [good, bad],
                    ends: VecDeque::new(),
                    rng,
                }),
                Dwell::Bits { good, bad } => {
                    let left = rng.exponential(good);
                    Channel::InBits { bursts, mean: [good, bad], bad: false, left, rng }
                }
            },
        };
        Some(Self { channel, strikes: Rng::split(seed, "bit errors") })
    }

    /// Whether any bit of a frame is damaged. No later call is about a frame that begins before `now`.
    pub(crate) fn damages(&mut self, now: Instant, frame: Exposure) -> bool {
        let probability = self.probability(now, frame);
        self.strikes(probability)
    }

    /// The probability that any bit of a frame is damaged, for several receivers of the same frame. See
    /// [`Self::damages`].
    pub(crate) fn probability(&mut self, now: Instant, frame: Exposure) -> f64 {
        // The logarithms of the survival probabilities add up.
        let survival_ln = match &mut self.channel {
            Channel::Steady { rate } => survival_ln(*rate, frame.bits as f64),
            Channel::InTime(states) => states.survival_ln(now, frame),
            Channel::InBits { bursts, mean, bad, left, rng } => {
                let mut bits = frame.bits as f64;
                let mut sum = 0.0;
                loop {
                    let rate = if *bad { bursts.bad } else { bursts.good };
                    let here = bits.min(*left);
                    sum += survival_ln(rate, here);
                    bits -= here;
                    *left -= here;
                    if bits <= 0.0 {
                        break sum;
                    }
                    *bad = !*bad;
                    *left = rng.exponential(mean[usize::from(*bad)]);
                }
            }
        };
        -survival_ln.exp_m1()
    }

    /// Draws an event of this probability.
    pub(crate) fn strikes(&mut self, probability: f64) -> bool {
        self.strikes.chance(probability)
    }
}

/// ln (1 - rate)^bits. Nothing survives a rate of 1 for any number of bits above 0.
fn survival_ln(rate: f64, bits: f64) -> f64 {
    if bits == 0.0 { 0.0 } else { bits * (-rate).ln_1p() }
}

impl States {
    fn survival_ln(&mut self, now: Instant, frame: Exposure) -> f64 {
        let Exposure { bits, start, end } = frame;
        if end == Instant::FAR_FUTURE {
            return 0.0; // It is never sent.
        }
        while self.ends.len() > 1 && self.ends.front().is_some_and(|&(until, _)| until <= now) {
            self.ends.pop_front();
        }
        self.extend_beyond(end);
        let first = self.ends.partition_point(|&(until, _)| until <= start);
        let span = end.saturating_since(start).as_nanos() as f64;
        let mut from = start;
        let mut sum = 0.0;
        for &(until, bad) in self.ends.range(first..) {
            let rate = self.rates[usize::from(bad)];
            // Without a rate, all bits are sent at one moment.
            let share = if span == 0.0 { 1.0 } else { until.min(end).saturating_since(from).as_nanos() as f64 / span };
            sum += survival_ln(rate, bits as f64 * share);
            if until >= end {
                break;
            }
            from = until;
        }
        sum
    }

    fn extend_beyond(&mut self, end: Instant) {
        loop {
            let (from, bad) = match self.ends.back() {
                Some(&(until, _)) if until > end => return,
                Some(&(until, was_bad)) => (until, !was_bad),
                None => (Instant::ZERO, false),
            };
            let mean = self.mean[usize::from(bad)].as_secs_f64();
            let length = Duration::from_secs_f64(self.rng.exponential(mean)).max(Duration::from_nanos(1));
            self.ends.push_back((from + length, bad));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const N: u32 = 100_000;
    const MSEC: Duration = Duration::from_millis(1);

    /// Frames of so many bits, each sent in a millisecond.
    fn damaged(errors: BitErrors, bits: u64, seed: u64) -> Vec<bool> {
        let mut process = BitErrorProcess::new(errors, seed).unwrap();
        let mut start = Instant::ZERO;
        let mut one = || {
            let frame = Exposure { bits, start, end: start + MSEC };
            let damaged = process.damages(start, frame);
            start += MSEC;
            damaged
        };
        (0..N).map(|_| one()).collect()
    }

    fn share(outcomes: &[bool]) -> f64 {
        outcomes.iter().filter(|&&damaged| damaged).count() as f64 / outcomes.len() as f64
    }

    #[test]
    fn a_frame_of_n_bits_survives_with_the_nth_power() {
        for (rate, bits) in [(1e-5_f64, 12_000_u64), (1e-5, 320), (1e-4, 12_000), (1e-9, 12_000)] {
            let expected = 1.0 - (1.0 - rate).powi(bits as i32);
            // Four standard errors of a share.
            let standard_error = (expected * (1.0 - expected) / f64::from(N)).sqrt();
            let found = share(&damaged(BitErrors::Independent(rate), bits, 3));
            assert!((found - expected).abs() < 4.0 * standard_error, "{rate} {bits}: {found} against {expected}");
        }
        assert_eq!(share(&damaged(BitErrors::Independent(0.0), 12_000, 3)), 0.0);
        assert_eq!(share(&damaged(BitErrors::Independent(1.0), 1, 3)), 1.0);
        assert_eq!(share(&damaged(BitErrors::Independent(1.0), 0, 3)), 0.0, "a frame without bits");
    }

    /// The chain of frames in states that last much longer than a frame, so that few frames meet both.
    fn bursts(dwell: Dwell) -> BitErrors {
        BitErrors::GilbertElliott(BitErrorBursts { good: 0.0, bad: 1e-3, dwell })
    }

    #[test]
    fn bursts_have_the_share_and_the_length_of_their_bad_states() {
        let (good, bad) = (400.0, 100.0);
        let in_time = Dwell::Time { good: MSEC * 400, bad: MSEC * 100 };
        let in_bits = Dwell::Bits { good: good * 12_000.0, bad: bad * 12_000.0 };
        for dwell in [in_time, in_bits] {
            let outcomes = damaged(bursts(dwell), 12_000, 7);
            // In the bad state all but e^-12 of the frames are damaged. Some 200 cycles of on average 500 frames, each bad for an
            // exponential time: the standard error of the share of bad time is about 0.2 * 0.8 * sqrt(2 / 200). On average one more frame
            // is damaged in each burst, as it meets both states.
            let cycles = f64::from(N) / (good + bad);
            let standard_error = 0.2 * 0.8 * (2.0 / cycles).sqrt();
            let expected = (bad + 0.9) / (good + bad);
            assert!((share(&outcomes) - expected).abs() < 4.0 * standard_error, "{dwell:?}: {}", share(&outcomes));
            let begun = outcomes.windows(2).filter(|pair| !pair[0] && pair[1]).count() as f64;
            assert!((begun - cycles).abs() < 4.0 * (2.0 * cycles).sqrt(), "{dwell:?}: {begun} bursts");
        }
    }

    #[test]
    fn short_states_average_out_over_a_frame() {
        // States of 10 and 30 us in a frame of 1 ms, whose 12,000 bits meet the mean rate of 0.75e-4 nearly always.
        let dwell = Dwell::Time { good: Duration::from_micros(10), bad: Duration::from_micros(30) };
        let errors = BitErrors::GilbertElliott(BitErrorBursts { good: 0.0, bad: 1e-4, dwell });
        let expected = 1.0 - (-12_000.0 * 0.75e-4_f64).exp();
        let found = share(&damaged(errors, 12_000, 11));
        assert!((found - expected).abs() < 0.01, "{found} against {expected}");
    }

    #[test]
    fn the_states_in_time_do_not_depend_on_traffic() {
        let dwell = Dwell::Time { good: MSEC * 50, bad: MSEC * 20 };
        let errors = BitErrors::GilbertElliott(BitErrorBursts { good: 0.0, bad: 1.0, dwell });
        let all = damaged(errors, 12_000, 5);
        let mut process = BitErrorProcess::new(errors, 5).unwrap();
        for index in (0..1_000).step_by(7) {
            let start = Instant::ZERO + MSEC * index;
            let frame = Exposure { bits: 8, start, end: start + MSEC };
            assert_eq!(process.damages(start, frame), all[index as usize], "{index}");
        }
        // A frame planned before others is examined after them.
        let mut process = BitErrorProcess::new(errors, 5).unwrap();
        for index in (0..200).rev() {
            let start = Instant::ZERO + MSEC * index;
            let frame = Exposure { bits: 8, start, end: start + MSEC };
            assert_eq!(process.damages(Instant::ZERO, frame), all[index as usize], "{index}");
        }
    }

    #[test]
    fn invalid_bit_errors_are_refused() {
        let in_time = |good, bad| Dwell::Time { good, bad };
        for dwell in [
            in_time(Duration::ZERO, MSEC),
            in_time(MSEC, Duration::ZERO),
            Dwell::Bits { good: 0.0, bad: 1.0 },
            Dwell::Bits { good: 1.0, bad: f64::INFINITY },
        ] {
            assert!(check(bursts(dwell)).is_err(), "{dwell:?}");
        }
        assert!(check(bursts(in_time(MSEC, MSEC))).is_ok());
        for rate in [-1e-9, 1.1, f64::NAN] {
            assert!(check(BitErrors::Independent(rate)).is_err(), "{rate}");
        }
    }
}
