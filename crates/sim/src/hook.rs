//! What a host learns about its connectivity, for mechanisms that act on it.

use core::fmt;

use holdover_base::{Duration, Instant};
use holdover_tcp::Endpoint;

/// What a host's interfaces say.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Connectivity {
    /// A disconnection is foreseen, this long from now if known.
    Fading {
        /// How long from now.
        lead: Option<Duration>,
    },
    /// It does not come after all.
    Recovered,
    /// The host is cut off: none of its links is up, or no cell that packets to it are sent to covers it.
    Down,
    /// The host is connected again, or differently.
    Up {
        /// Whether by another link or cell than before.
        moved: bool,
    },
}

/// Hears what a host's interfaces say, at the very moment, and may act on the host's TCP. Afterwards the host sends what there
/// is to send.
pub trait HostHook: fmt::Debug {
    /// Something happened to the host's connectivity.
    fn handle_connectivity(&mut self, now: Instant, what: Connectivity, endpoint: &mut Endpoint);
}
