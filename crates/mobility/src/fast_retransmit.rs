//! **Fast retransmit after a handoff.** Losses of a handoff are detected by timeouts that have backed off. The mobile host knows when the
//! handoff is over, and need not wait: it retransmits its own oldest segment at once, and makes its peers do the same with three identical
//! ACKs.
//!
//! After Caceres and Iftode, *Improving the Performance of Reliable Transport Protocols in Mobile Computing Environments*; the PROBE paper
//! compares itself with it as FR-TCP. As in that paper, the host's own retransmission reduces the window and begins slow start, because the
//! new cell is unknown. The mechanism needs the host's own TCP; in front of a kernel, [`crate::reconnect_acks`] does the half that concerns
//! the peers.
//!
//! **Failure modes.** After a timeout, senders that avoid false fast retransmits ignore the duplicates (RFC 6582 section 3.2), and so do
//! SACK senders; the small window remains. If the last ACK was lost, three copies are two duplicates.

use std::collections::VecDeque;

use holdover_base::Instant;
use holdover_tcp::{AfterRetransmit, ConnectionId, Endpoint};
use holdover_wire::Packet;

use crate::{Action, Direction, EndpointMechanism, LinkEvent, SegmentFilter, Verdict};
use holdover_filter::Connection;

/// The reaction to a handoff.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FastRetransmitConfig {
    /// The number of identical ACKs for each peer; 0 for none.
    pub copies: u8,
    /// Whether the host retransmits its outstanding data.
    pub own_data: bool,
    /// Whether only a change of attachment counts, or every link-up.
    pub only_moved: bool,
}

impl Default for FastRetransmitConfig {
    /// Three, both directions, after handoffs.
    fn default() -> Self {
        Self { copies: 3, own_data: true, only_moved: true }
    }
}

/// The mechanism. See the module's documentation.
#[derive(Clone, Debug)]
pub struct FastRetransmit {
    config: FastRetransmitConfig,
    due: bool,
    actions: VecDeque<Action>,
}

impl FastRetransmit {
    /// The name in scenario files.
    pub const NAME: &'static str = "fast_retransmit";

    /// A mechanism without state.
    pub const fn new(config: FastRetransmitConfig) -> Self {
        Self { config, due: false, actions: VecDeque::new() }
    }
}

impl SegmentFilter for FastRetransmit {
    fn handle_packet(&mut self, _now: Instant, _direction: Direction, _packet: &mut Packet) -> Verdict {
        Verdict::Pass
    }

    fn handle_link(&mut self, _now: Instant, event: LinkEvent) {
        if let LinkEvent::Up { moved, .. } = event {
            self.due |= moved || !self.config.only_moved;
        }
    }

    fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }
}

impl EndpointMechanism for FastRetransmit {
    fn steer(&mut self, now: Instant, endpoint: &mut Endpoint) {
        if !core::mem::take(&mut self.due) {
            return;
        }
        let ids: Vec<ConnectionId> = endpoint.connections().map(|(id, _)| id).collect();
        for id in ids {
            let Some(connection) = endpoint.connection_mut(id).filter(|connection| !connection.is_closed()) else {
                continue;
            };
            let name = Connection { local: connection.local(), remote: connection.remote() };
            connection.send_acks(self.config.copies);
            let retransmitted = self.config.own_data && connection.retransmit_now(now, AfterRetransmit::Reset);
            let what = if retransmitted { "retransmitted" } else { "sent ACKs" };
            if retransmitted || self.config.copies > 0 {
                self.actions.push_back(Action { at: now, connection: name, mechanism: Self::NAME, what });
            }
        }
    }

    fn fork_endpoint(&self) -> Option<Box<dyn EndpointMechanism>> {
        Some(Box::new(self.clone()))
    }
}
