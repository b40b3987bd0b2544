//! The cross-layer vocabulary.

use core::fmt;

use holdover_base::Duration;

/// Everything that mechanisms learn about the link, from any source: the simulator's radio, netlink, signal strength,
/// a readdressing that is complete, a test.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LinkEvent {
    /// A disconnection is predicted.
    Fading {
        /// How long from now, if that is known.
        lead: Option<Duration>,
    },
    /// The prediction was wrong: still connected.
    Recovered,
    /// The host is cut off.
    Down,
    /// Connectivity is back, or is by another way than before.
    Up {
        /// Whether the peer has learnt of it too, at the same time.
        symmetric: bool,
        /// Whether the attachment is another one than before.
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
