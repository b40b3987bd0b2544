//! **Delayed duplicate ACKs** (Vaidya, Mehta, Perkins and Montenegro, "Delayed duplicate acknowledgements: a TCP-unaware approach to
//! improve performance of TCP over wireless", 1999). A wireless link that retransmits its own losses delivers the retransmitted packets
//! late, after segments that were sent later. Each of those makes the mobile host's TCP send a duplicate ACK, and the third makes the fixed
//! host retransmit a segment that is already on its way, and halve its window. So the mobile host sends the first two at once, and delays
//! the third and later ones for a time d:
//!
//! - If the hole is filled, and the host's TCP acknowledges more, the duplicates are dropped.
//! - When d has passed, all of them are sent, and further ones at once. The missing segment was lost before the link, or given up by it,
//!   and the sender has to recover.
//!
//! The base station does not parse TCP, so encrypted connections benefit as well. Losses by congestion are recovered d later.
//!
//! # Where the paper is silent
//!
//! - **Definition of a duplicate**: a pure ACK with the number and the window of the one before, sent after data has arrived beyond a hole.
//! - **SACK.** The paper's senders count duplicates. Current senders need one SACK block and a quarter of a round trip (RFC 8985), and get
//!   that with the first duplicate. The delay is no longer for them than in the paper.
//! - **Many.** [`MOST_HELD`] duplicates are kept for each connection; beyond that the oldest is dropped, as a newer one carries more
//!   information.

use std::collections::VecDeque;

use holdover_base::{Duration, Instant};
use holdover_filter::{Agenda, Connection, Table, tcp_mut};
use holdover_wire::{Flags, Packet, Segment, Seq};

use crate::{Action, Direction, Injected, LinkEvent, SegmentFilter, Verdict};

/// How long duplicates are delayed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DelayedDupacksConfig {
    /// d: from the third duplicate to the time at which it and those after it are sent.
    pub delay: Duration,
}

impl Default for DelayedDupacksConfig {
    /// 100 ms: some round trips over a wireless link, with its ARQ. The paper leaves the choice open.
    fn default() -> Self {
        Self { delay: Duration::from_millis(100) }
    }
}

/// The most delayed duplicates of one connection.
pub const MOST_HELD: usize = 256;

/// The number of duplicates sent at once.
const AT_ONCE: u32 = 2;

/// The filter. See the module's documentation.
#[derive(Debug)]
pub struct DelayedDupacks {
    config: DelayedDupacksConfig,
    connections: Table<State>,
    agenda: Agenda,
    ready: VecDeque<Packet>,
    dropped: VecDeque<Packet>,
    actions: VecDeque<Action>,
}

#[derive(Clone, Debug, Default)]
struct State {
    /// The number and the window of the last ACK.
    last: Option<(Seq, u16)>,
    /// Data has arrived beyond it.
    has_hole: bool,
    duplicates: u32,
    held: VecDeque<Packet>,
    /// When the held duplicates are sent.
    due: Option<Instant>,
    /// The hole was not filled in time: nothing is held until it is.
    is_over: bool,
}

impl DelayedDupacks {
    /// The name in scenario files.
    pub const NAME: &'static str = "delayed_dupacks";

    /// A filter without state.
    pub fn new(config: DelayedDupacksConfig) -> Self {
        Self {
            config,
            connections: Table::default(),
            agenda: Agenda::default(),
            ready: VecDeque::new(),
            dropped: VecDeque::new(),
            actions: VecDeque::new(),
        }
    }

    fn handle_ack(&mut self, now: Instant, connection: Connection, packet: &Packet) -> Verdict {
        let Self { config, connections, agenda, dropped, actions, .. } = self;
        let Some(segment) = packet.tcp().filter(|segment| segment.flags.contains(Flags::ACK)) else {
            return Verdict::Pass;
        };
        let state = connections.observe(now, Direction::Outgoing, connection, segment).value;
        if !state.is_duplicate(segment) {
            if state.is_new(segment) {
                if !state.held.is_empty() {
                    actions.push_back(Action {
                        at: now,
                        connection,
                        mechanism: Self::NAME,
                        what: "dropped duplicates",
                    });
                }
                agenda.set(connection, &mut state.due, None);
                dropped.extend(state.held.drain(..));
                (state.duplicates, state.is_over, state.has_hole) = (0, false, false);
            }
            state.last = Some((segment.ack, segment.window));
            return Verdict::Pass;
        }
        state.duplicates = state.duplicates.saturating_add(1);
        if state.duplicates <= AT_ONCE || state.is_over {
            return Verdict::Pass;
        }
        if state.held.len() == MOST_HELD {
            dropped.extend(state.held.pop_front());
        }
        state.held.push_back(packet.clone());
        if state.due.is_none() {
            agenda.set(connection, &mut state.due, Some(now + config.delay));
        }
        Verdict::Keep
    }
}

impl State {
    /// Whether it acknowledges more than the last ACK, or begins or ends the connection.
    fn is_new(&self, segment: &Segment) -> bool {
        let ends = segment.flags.intersects(Flags::SYN | Flags::RST);
        ends || self.last.is_none_or(|(ack, _)| segment.ack.gt(ack))
    }

    fn is_duplicate(&self, segment: &Segment) -> bool {
        let is_pure = segment.payload.is_empty() && !segment.flags.intersects(Flags::SYN | Flags::FIN | Flags::RST);
        is_pure && self.has_hole && self.last == Some((segment.ack, segment.window))
    }
}

impl SegmentFilter for DelayedDupacks {
    fn handle_packet(&mut self, now: Instant, direction: Direction, packet: &mut Packet) -> Verdict {
        let Some(connection) = Connection::of(direction, packet) else { return Verdict::Pass };
        if direction == Direction::Outgoing {
            return self.handle_ack(now, connection, packet);
        }
        let Some(segment) = packet.tcp() else { return Verdict::Pass };
        let state = self.connections.observe(now, direction, connection, segment).value;
        state.has_hole |= segment.seq_len() > 0 && state.last.is_some_and(|(ack, _)| segment.seq.gt(ack));
        Verdict::Pass
    }

    fn handle_link(&mut self, _now: Instant, _event: LinkEvent) {}

    fn handle_timeout(&mut self, now: Instant) {
        while let Some(connection) = self.agenda.take_due(now) {
            let Some(state) = self.connections.get_mut(connection) else { continue };
            if state.due.take_if(|due| *due <= now).is_none() {
                continue;
            }
            state.is_over = true;
            // A window update in the meantime is not reverted.
            let window = state.last.map(|(_, window)| window);
            self.ready.extend(state.held.drain(..).map(|mut packet| {
                if let (Some(segment), Some(window)) = (tcp_mut(&mut packet), window) {
                    segment.window = window;
                }
                packet
            }));
            self.actions.push_back(Action { at: now, connection, mechanism: Self::NAME, what: "released duplicates" });
        }
    }

    fn poll_transmit(&mut self, _now: Instant) -> Option<Injected> {
        self.ready.pop_front().map(|packet| Injected { direction: Direction::Outgoing, packet })
    }

    fn poll_dropped(&mut self) -> Option<Packet> {
        self.dropped.pop_front()
    }

    fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.agenda.next()
    }
}
