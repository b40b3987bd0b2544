//! Errors of a configuration.

use holdover_base::{Duration, Instant};

/// An invalid configuration.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ConfigError {
    /// Not a probability or share.
    #[error("{field} is {value}, expected a number from 0 to 1")]
    Probability {
        /// The field.
        field: &'static str,
        /// The value.
        value: f64,
    },
    /// Not a positive number.
    #[error("{field} is {value}, expected a number above 0")]
    NotPositive {
        /// The field.
        field: &'static str,
        /// The value.
        value: f64,
    },
    /// A rate of zero.
    #[error("the rate is 0, so that nothing is ever sent; use an outage for a link that is down")]
    ZeroRate,
    /// A shared channel with mean contention.
    #[error("a channel that cells share needs drawn contention: the mean takes turns within one cell")]
    ChannelInTurns,
    /// A length of time that is always zero.
    #[error("{field} is 0 s, expected more")]
    NoLength {
        /// The field.
        field: &'static str,
    },
    /// An empty range.
    #[error("{field} is the empty range {min}..{max}")]
    EmptyRange {
        /// The field.
        field: &'static str,
        /// The lower end.
        min: Duration,
        /// The upper end.
        max: Duration,
    },
    /// An outage that ends before it starts or overlaps the one before.
    #[error("outage {index} from {down} s to {up} s must end after its start, and start at {free_from} s or later")]
    OutageOrder {
        /// Its index in the list, from 0.
        index: usize,
        /// Its start.
        down: Instant,
        /// Its end.
        up: Instant,
        /// The end of the one before.
        free_from: Instant,
    },
    /// Two descriptions of when the link is down.
    #[error("outages are given both as a schedule and in the \"up\" column of the table; choose one")]
    OutagesTwice,
    /// Two descriptions of the rate.
    #[error("the rate is given both by a packet-delivery trace and in the \"rate\" column of the table; choose one")]
    RateTwice,
}

pub(crate) fn check_probability(field: &'static str, value: f64) -> Result<(), ConfigError> {
    if (0.0..=1.0).contains(&value) { Ok(()) } else { Err(ConfigError::Probability { field, value }) }
}

pub(crate) fn check_positive(field: &'static str, value: f64) -> Result<(), ConfigError> {
    if value > 0.0 && value.is_finite() { Ok(()) } else { Err(ConfigError::NotPositive { field, value }) }
}
