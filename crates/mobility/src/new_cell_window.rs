//! **A smaller window in a new cell.** A sender that was frozen, or woken, continues with its former window, in a cell that may have more
//! load than the one before. The mobile host knows that it has moved, and can restrict the sender: it offers a small window at first, and
//! opens it as data arrives, as slow start would open the sender's.
//!
//! An idea of the thesis on Freeze-TCP (section 7.2), which gives neither size nor growth; the Freeze-TCP paper (section V) raises the
//! question and leaves it open. Both are options here. After an outage without a new attachment, the window does not change.
//!
//! **Failure modes.** The right edge of the window moves back, which RFC 9293 discourages: a sender that was not frozen may have packets in
//! flight beyond it. They are accepted, as the host's TCP knows only its own window. With a window below a few segments, a lost segment
//! causes too few duplicate ACKs to be detected.

use std::collections::VecDeque;

use holdover_base::Instant;
use holdover_wire::{Flags, Packet, Seq};

use crate::{Action, Direction, LinkEvent, SegmentFilter, Verdict};
use holdover_filter::WindowScale;
use holdover_filter::{Connection, Table, tcp_mut};

/// How the window opens in a new cell.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NewCellWindowConfig {
    /// The initial window, in bytes.
    pub initial_bytes: u32,
    /// Its growth in percent of newly acknowledged bytes: with 100 it doubles in a round trip, as in slow start.
    pub growth_percent: u32,
}

impl Default for NewCellWindowConfig {
    /// RFC 6928's initial window of ten segments of 1460 bytes, growing as in slow start: the choice of a sender that knows as
    /// little of its path.
    fn default() -> Self {
        Self { initial_bytes: 14_600, growth_percent: 100 }
    }
}

/// The filter. See the module's documentation.
#[derive(Clone, Debug)]
pub struct NewCellWindow {
    config: NewCellWindowConfig,
    connections: Table<State>,
    actions: VecDeque<Action>,
}

#[derive(Clone, Debug, Default)]
struct State {
    scale: WindowScale,
    acked: Option<Seq>,
    /// The limit of the offered window, in bytes.
    limit: Option<u32>,
}

impl NewCellWindow {
    /// The name in scenario files.
    pub const NAME: &'static str = "new_cell_window";

    /// A filter without state.
    pub fn new(config: NewCellWindowConfig) -> Self {
        Self { config, connections: Table::default(), actions: VecDeque::new() }
    }
}

impl SegmentFilter for NewCellWindow {
    fn handle_packet(&mut self, now: Instant, direction: Direction, packet: &mut Packet) -> Verdict {
        let Some(connection) = Connection::of(direction, packet) else { return Verdict::Pass };
        let Some(segment) = packet.tcp() else { return Verdict::Pass };
        let state = self.connections.observe(now, direction, connection, segment).value;
        state.scale.note(direction, segment);
        let applies = direction == Direction::Outgoing
            && segment.flags.contains(Flags::ACK)
            && !segment.flags.intersects(Flags::SYN | Flags::RST);
        if !applies {
            return Verdict::Pass;
        }
        let acked = state.acked.map_or(0, |before| segment.ack.saturating_since(before));
        state.acked = Some(state.acked.map_or(segment.ack, |before| before.max(segment.ack)));
        let Some(limit) = &mut state.limit else { return Verdict::Pass };
        let growth = u64::from(acked) * u64::from(self.config.growth_percent) / 100;
        *limit = limit.saturating_add(u32::try_from(growth).unwrap_or(u32::MAX));
        let field = state.scale.field(*limit);
        if field < segment.window {
            if let Some(segment) = tcp_mut(packet) {
                segment.window = field;
            }
        } else if segment.window > 0 {
            // The host itself offers no more.
            state.limit = None;
            self.actions.push_back(Action { at: now, connection, mechanism: Self::NAME, what: "opened" });
        }
        Verdict::Pass
    }

    fn handle_link(&mut self, now: Instant, event: LinkEvent) {
        if !matches!(event, LinkEvent::Up { moved: true, .. }) {
            return;
        }
        for (connection, state) in self.connections.live_mut() {
            if state.acked.is_some() {
                state.limit = Some(self.config.initial_bytes);
                self.actions.push_back(Action { at: now, connection, mechanism: Self::NAME, what: "narrowed" });
            }
        }
    }

    fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    fn fork(&self) -> Option<Box<dyn SegmentFilter>> {
        Some(Box::new(self.clone()))
    }
}
