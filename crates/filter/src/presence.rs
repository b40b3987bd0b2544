//! Presence of a mobile host, as known in the network.

use core::fmt;

use holdover_base::Duration;

/// Where a mobile host is, as seen from one node of the network: reported by its link layer, by a registration, or by
/// another node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Presence {
    /// Packets to it get through from here: it is attached, or has registered.
    Present,
    /// As [`Self::Present`], and it has registered another care-of address than before: packets to it now take another
    /// path. Reported by registrations only.
    Rebound,
    /// It is predicted to leave.
    Fading {
        /// How long from now, if that is known.
        lead: Option<Duration>,
    },
    /// Packets to it are lost: it is out of range, or its link is down.
    Away,
    /// It is attached elsewhere. Packets to it from this node find it there.
    Moved,
}

/// Prints `present`, `rebound`, `fading in 50ms`, `away`, `moved`.
impl fmt::Display for Presence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Present => f.write_str("present"),
            Self::Rebound => f.write_str("rebound"),
            Self::Fading { lead: Some(lead) } => write!(f, "fading in {lead}"),
            Self::Fading { lead: None } => f.write_str("fading"),
            Self::Away => f.write_str("away"),
            Self::Moved => f.write_str("moved"),
        }
    }
}
