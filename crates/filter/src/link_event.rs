//! Link events.

use core::fmt;

use holdover_base::Duration;

/// A change of the link, from any source: the simulator's radio, netlink, signal strength, a completed address change,
/// a test.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LinkEvent {
    /// A disconnection is predicted.
    Fading {
        /// How long from now, if that is known.
        lead: Option<Duration>,
    },
    /// The prediction was wrong: the link is still up.
    Recovered,
    /// The link is down.
    Down,
    /// The link is up again, or the path has changed.
    Up {
        /// Whether the peer learns of it at the same time.
        symmetric: bool,
        /// Whether the host has another attachment than before.
        moved: bool,
    },
}

/// Prints `fading in 50ms`, `recovered`, `down`, `up`, `up, moved`.
impl fmt::Display for LinkEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fading { lead: Some(lead) } => write!(f, "fading in {lead}"),
            Self::Fading { lead: None } => f.write_str("fading"),
            Self::Recovered => f.write_str("recovered"),
            Self::Down => f.write_str("down"),
            Self::Up { moved: true, .. } => f.write_str("up, moved"),
            Self::Up { .. } => f.write_str("up"),
        }
    }
}
