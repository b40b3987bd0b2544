//! Actions of the subject's host on its socket.

use std::fmt;

use holdover_base::Duration;

use crate::Congestion;

/// An action of the subject's host on the socket during a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LocalAction {
    /// `TCP_REPAIR` on and off.
    Repair,
    /// `TCP_USER_TIMEOUT`.
    UserTimeout(Duration),
    /// `TCP_RTO_MAX_MS`.
    RtoMax(Duration),
    /// `TCP_NODELAY` off and on.
    NoDelay,
    /// `TCP_CONGESTION`.
    Congestion(Congestion),
}

impl fmt::Display for LocalAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Repair => f.write_str("TCP_REPAIR on and off"),
            Self::UserTimeout(timeout) => write!(f, "TCP_USER_TIMEOUT = {} ms", timeout.as_millis()),
            Self::RtoMax(max) => write!(f, "TCP_RTO_MAX_MS = {}", max.as_millis()),
            Self::NoDelay => f.write_str("TCP_NODELAY off and on"),
            Self::Congestion(congestion) => write!(f, "TCP_CONGESTION = {}", congestion.name()),
        }
    }
}
