//! **Reconnection ACKs** (*TR-ACKs* in the Freeze-TCP paper). The link is back, but the peer does not know: it waits for its next
//! retransmission or zero-window probe, which it has backed off repeatedly during the outage. So the host, which knows, repeats its last
//! ACK several times. A sender that is frozen by a zero window finds the window open and continues at once. A sender with ordinary fast
//! retransmit takes three duplicates for a loss and retransmits at once.
//!
//! After Caceres and Iftode; Freeze-TCP (section III) and the thesis send three copies, the HIP paper (section 2.3) asks for four, since
//! three are two duplicates if the original was lost. Senders that have had a timeout may ignore them: those that avoid false fast
//! retransmits (RFC 6582 section 3.2), and SACK senders, for which an ACK without new information is not a duplicate.
//!
//! M-TCP's mobile host marks the ACK (section 4.2), so that its supervisor host knows of the cut; see [`ReconnectAcksConfig::marked`].
//!
//! A smaller window than the real one can be offered at first, for a network of unknown capacity (thesis, section 7.2); the host's TCP
//! opens it with the ACKs that follow.

use std::collections::VecDeque;

use holdover_base::{Duration, Instant};
use holdover_wire::{Flags, Packet};

use crate::{Action, Direction, Injected, LinkEvent, SegmentFilter, Verdict};
use holdover_filter::LastSent;
use holdover_filter::WindowScale;
use holdover_filter::{Connection, Table, tcp_mut};

/// How reconnection is announced.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReconnectAcksConfig {
    /// The number of ACKs on each connection.
    pub copies: u8,
    /// The largest window that they offer, in bytes, if the attachment is new; `None` for the real window.
    pub restart_window_bytes: Option<u32>,
    /// Whether they carry the mark of M-TCP's mobile host (URG with an urgent pointer of 0), which the supervisor host
    /// removes. For other peers the flag has no meaning.
    pub marked: bool,
    /// Connections without a packet of the peer for this long before the cut get no ACKs: their peers do not wait.
    pub idle: Duration,
}

impl Default for ReconnectAcksConfig {
    /// Three, with the real window, to peers heard within the last ten minutes of connectivity.
    fn default() -> Self {
        Self { copies: 3, restart_window_bytes: None, marked: false, idle: Duration::from_secs(600) }
    }
}

/// The filter. See the module's documentation.
#[derive(Clone, Debug)]
pub struct ReconnectAcks {
    config: ReconnectAcksConfig,
    connections: Table<State>,
    down_at: Option<Instant>,
    ready: VecDeque<Packet>,
    actions: VecDeque<Action>,
}

#[derive(Clone, Debug, Default)]
struct State {
    last_sent: LastSent,
    heard_at: Option<Instant>,
    scale: WindowScale,
}

impl ReconnectAcks {
    /// The name in scenario files.
    pub const NAME: &'static str = "reconnect_acks";

    /// A filter without state.
    pub fn new(config: ReconnectAcksConfig) -> Self {
        Self { config, connections: Table::default(), down_at: None, ready: VecDeque::new(), actions: VecDeque::new() }
    }

    fn announce(&mut self, now: Instant, moved: bool) {
        let cut_at = self.down_at.take().unwrap_or(now);
        let restart_window = self.config.restart_window_bytes.filter(|_| moved);
        for (connection, state) in self.connections.live_mut() {
            let waits = state.heard_at.is_some_and(|at| cut_at.saturating_since(at) <= self.config.idle);
            let Some(mut packet) = state.last_sent.repeat(connection).filter(|_| waits) else { continue };
            if let (Some(bytes), Some(segment)) = (restart_window, tcp_mut(&mut packet)) {
                segment.window = segment.window.min(state.scale.field(bytes));
            }
            if let Some(segment) = tcp_mut(&mut packet).filter(|_| self.config.marked) {
                segment.flags |= Flags::URG;
            }
            self.ready.extend((0..self.config.copies).map(|_| packet.clone()));
            self.actions.push_back(Action { at: now, connection, mechanism: Self::NAME, what: "sent ACKs" });
        }
    }
}

impl SegmentFilter for ReconnectAcks {
    fn handle_packet(&mut self, now: Instant, direction: Direction, packet: &mut Packet) -> Verdict {
        let Some(connection) = Connection::of(direction, packet) else { return Verdict::Pass };
        let Some(segment) = packet.tcp() else { return Verdict::Pass };
        let state = self.connections.observe(now, direction, connection, segment).value;
        state.scale.note(direction, segment);
        match direction {
            Direction::Outgoing => state.last_sent.note(packet, segment),
            Direction::Incoming => state.heard_at = Some(now),
        }
        Verdict::Pass
    }

    fn handle_link(&mut self, now: Instant, event: LinkEvent) {
        match event {
            LinkEvent::Down => self.down_at = Some(now),
            LinkEvent::Up { moved, .. } => self.announce(now, moved),
            LinkEvent::Fading { .. } | LinkEvent::Recovered => {}
        }
    }

    fn poll_transmit(&mut self, _now: Instant) -> Option<Injected> {
        self.ready.pop_front().map(|packet| Injected { direction: Direction::Outgoing, packet })
    }

    fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    fn fork(&self) -> Option<Box<dyn SegmentFilter>> {
        Some(Box::new(self.clone()))
    }
}
