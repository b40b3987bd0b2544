//! The actions that the detector requests from its shell.

use holdover_base::Instant;
use holdover_filter::Connection;

/// An action for the shell.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Act {
    /// Survey the connections and report to [`SilenceWatch::handle_survey`](super::SilenceWatch::handle_survey).
    Survey,
    /// Report the first incoming packet: none has arrived since `since`.
    Listen {
        /// The time of the last incoming packet.
        since: Instant,
    },
    /// Probe every next hop of the interface.
    AskNextHops {
        /// By broadcast, in case its Ethernet address has changed.
        is_broadcast: bool,
    },
    /// Probe a peer.
    AskPeer(Connection),
    /// The link is down: nothing has arrived since `since`.
    TellDown {
        /// The time of the last incoming packet.
        since: Instant,
    },
    /// Packets arrive again: wake waiting connections. The link is up if it was reported down.
    End,
}
