//! Outages of a link, and the treatment of frames around them.

use holdover_base::{Duration, Instant, Rng};

use crate::error::ConfigError;

/// One time without connectivity: from `down`, to just before `up`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Outage {
    /// When the link goes down.
    pub down: Instant,
    /// When the link is up again; [`Instant::FAR_FUTURE`] if never.
    pub up: Instant,
}

/// The schedule of a link's outages. Random ones depend on the link's seed alone, so that mechanisms under comparison
/// get the same outages.
#[derive(Clone, PartialEq, Default, Debug)]
pub enum Outages {
    /// The link is always up.
    #[default]
    Never,
    /// These outages, in order of time and without overlap.
    List(Vec<Outage>),
    /// Alternating connected and disconnected times.
    Alternating(Alternating),
}

impl Outages {
    /// Outages of length `disconnected`, each after the link was up for `connected`; the first one starts at `connected`.
    pub fn periodic(connected: Duration, disconnected: Duration) -> Self {
        Self::Alternating(Alternating {
            initial_connected: None,
            connected: Length::Constant(connected),
            disconnected: Length::Constant(disconnected),
            count: None,
        })
    }
}

/// Alternating connected and disconnected times, each with a random length. The link starts connected.
#[derive(Clone, PartialEq, Debug)]
pub struct Alternating {
    /// How long the link is up at first, if that is not drawn like the others.
    pub initial_connected: Option<Duration>,
    /// How long it is up between two outages.
    pub connected: Length,
    /// How long an outage lasts.
    pub disconnected: Length,
    /// The number of outages; `None` for unlimited.
    pub count: Option<u64>,
}

/// The distribution of a length of time. Draws are at least one nanosecond.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Length {
    /// Always the same.
    Constant(Duration),
    /// Exponential.
    Exponential {
        /// Mean.
        mean: Duration,
    },
    /// Normal, cut off at zero by drawing again. That lifts the mean: by less than 0.3 % of the deviation while the mean is
    /// at least 2.5 deviations.
    Normal {
        /// Mean before the cut.
        mean: Duration,
        /// Standard deviation before the cut.
        standard_deviation: Duration,
    },
    /// Uniform.
    Uniform {
        /// The shortest.
        min: Duration,
        /// The longest.
        max: Duration,
    },
}

impl Length {
    /// Draws a length of time.
    pub fn draw(self, rng: &mut Rng) -> Duration {
        let nanos = match self {
            Self::Constant(length) => return length.max(Duration::from_nanos(1)),
            Self::Exponential { mean } => rng.exponential(mean.as_nanos() as f64),
            Self::Normal { mean, standard_deviation } => loop {
                let nanos = rng.normal(mean.as_nanos() as f64, standard_deviation.as_nanos() as f64);
                if nanos > 0.0 {
                    break nanos;
                }
            },
            Self::Uniform { min, max } => {
                let width = max.saturating_sub(min).as_nanos();
                return Duration::from_nanos((min.as_nanos() + rng.below(width.saturating_add(1))).max(1));
            }
        };
        Duration::from_nanos((nanos.round() as u64).max(1))
    }

    /// Checks the parameters; `field` names the length in the error.
    pub fn check(self, field: &'static str) -> Result<(), ConfigError> {
        let longest = match self {
            Self::Constant(length) => length,
            // With a mean of at least zero every second draw or more is positive, so that drawing again ends.
            Self::Exponential { mean } | Self::Normal { mean, .. } => mean,
            Self::Uniform { min, max } if min > max => return Err(ConfigError::EmptyRange { field, min, max }),
            Self::Uniform { max, .. } => max,
        };
        if longest.is_zero() { Err(ConfigError::NoLength { field }) } else { Ok(()) }
    }
}

/// The treatment of frames around an outage.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct OutagePolicy {
    /// Frames that are queued at the cut, or arrive during the outage.
    pub queued: QueuedFate,
    /// Frames on the wire at the cut.
    pub in_flight: InFlightFate,
}

/// The treatment of frames that are queued when the link goes down, or that arrive while it is down.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum QueuedFate {
    /// They wait, within the queue's limit, and leave at the line rate when the link is back.
    #[default]
    Held,
    /// The queue is flushed at the cut, and frames that arrive during the outage are dropped: an interface that knows
    /// it has no carrier.
    Dropped,
    /// The transmitter does not notice: it keeps sending at the line rate, and all frames sent during the outage are
    /// lost.
    Lost,
    /// As `Lost`, but the frames arrive, damaged: an outage emulated by wrong checksums.
    Corrupted,
}

/// The treatment of frames that have left the transmitter when the link goes down. It also applies to a half-sent
/// frame, with one exception: where in-flight frames are delivered, a half-sent frame continues at link-up if the queue
/// is held (no capacity is lost), and is dropped with the queue otherwise.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum InFlightFate {
    /// They arrive.
    #[default]
    Delivered,
    /// They are lost.
    Dropped,
    /// They arrive damaged.
    Corrupted,
}

pub(crate) fn check(outages: &Outages) -> Result<(), ConfigError> {
    match outages {
        Outages::Never => Ok(()),
        Outages::List(list) => {
            let mut free_from = Instant::ZERO;
            for (index, outage) in list.iter().enumerate() {
                if outage.down < free_from || outage.up <= outage.down {
                    return Err(ConfigError::OutageOrder { index, down: outage.down, up: outage.up, free_from });
                }
                free_from = outage.up;
            }
            Ok(())
        }
        Outages::Alternating(alternating) => {
            alternating.connected.check("outages: connected")?;
            alternating.disconnected.check("outages: disconnected")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const N: u32 = 100_000;

    fn moments(length: Length) -> (f64, f64) {
        let mut rng = Rng::new(11);
        let draws: Vec<f64> = (0..N).map(|_| length.draw(&mut rng).as_secs_f64()).collect();
        let mean = draws.iter().sum::<f64>() / f64::from(N);
        (mean, (draws.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / f64::from(N)).sqrt())
    }

    #[test]
    fn lengths_have_the_mean_and_the_deviation_of_their_distribution() {
        let secs = Duration::from_secs;
        // At n = 100,000 the standard error of a mean is sigma / 316; that of a deviation sigma / 447 if normal, below that
        // if uniform, and sigma / 158 (kurtosis 9) if exponential.
        for (length, mean, deviation, deviation_error) in [
            (Length::Constant(secs(5)), 5.0, 0.0, 447.0),
            (Length::Exponential { mean: secs(5) }, 5.0, 5.0, 158.0),
            (Length::Uniform { min: secs(2), max: secs(8) }, 5.0, 6.0 / 12.0_f64.sqrt(), 447.0),
            (Length::Normal { mean: secs(5), standard_deviation: secs(1) }, 5.0, 1.0, 447.0),
            // Cut at zero, one deviation below the mean: phi(1) / Phi(1) = 0.28760 more than the mean, and a variance of
            // 1 - 0.2876 - 0.2876^2 of the square of the deviation.
            (Length::Normal { mean: secs(1), standard_deviation: secs(1) }, 1.28760, 0.62969_f64.sqrt(), 447.0),
        ] {
            let (got_mean, got_deviation) = moments(length);
            assert!((got_mean - mean).abs() <= 4.0 * deviation / 316.0 + 1e-9, "{length:?} {got_mean}");
            assert!(
                (got_deviation - deviation).abs() <= 4.0 * deviation / deviation_error + 1e-9,
                "{length:?} {got_deviation}"
            );
        }
    }

    #[test]
    fn invalid_schedules_are_refused() {
        let at = Instant::from_secs;
        for list in [
            vec![Outage { down: at(2), up: at(2) }],
            vec![Outage { down: at(3), up: at(2) }],
            vec![Outage { down: at(1), up: at(4) }, Outage { down: at(3), up: at(5) }],
        ] {
            assert!(matches!(check(&Outages::List(list)), Err(ConfigError::OutageOrder { .. })));
        }
        assert!(
            check(&Outages::List(vec![
                Outage { down: at(0), up: at(4) },
                Outage { down: at(4), up: Instant::FAR_FUTURE }
            ]))
            .is_ok()
        );
        assert!(check(&Outages::periodic(Duration::ZERO, Duration::from_secs(1))).is_err());
        assert!(check(&Outages::periodic(Duration::from_secs(1), Duration::ZERO)).is_err());
        let upside_down = Length::Uniform { min: Duration::from_secs(2), max: Duration::from_secs(1) };
        assert!(upside_down.check("x").is_err());
    }
}
