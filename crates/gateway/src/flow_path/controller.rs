//! The controller of one mobile host's TCP connections, by mode, over the flow path.

use holdover_base::Instant;
use holdover_filter::{Action, Connection, Direction, Injected, LinkEvent, WakeOutcome};
use holdover_flow::{FlowTable, Holds, LinkState, Notice};
use holdover_mobility::wake::WakeControl;

use super::Treatment;
use crate::divert::Standing;
use crate::freeze::FreezeControl;

/// The controller of one mobile host's connections.
///
/// The order of calls: one of the `handle_*`, [`Self::note_arrival`] or [`Self::end_silence`], then [`Self::poll_transmit`],
/// [`Self::poll_action`] and [`Self::poll_outcome`] until `None`, then [`Self::poll_timeout`].
#[derive(Debug)]
pub enum Controller {
    /// Holds back, and wakes senders when the mobile host returns.
    Wake(Box<WakeControl>),
    /// Shuts windows while the mobile host is absent.
    Freeze(Box<FreezeControl>),
    /// Does nothing.
    Idle,
}

impl Controller {
    /// For a mobile host that is present.
    pub fn new(treatment: Treatment) -> Self {
        match treatment {
            Treatment::Wake(config) => Self::Wake(Box::new(WakeControl::between(config))),
            Treatment::Freeze(config) => Self::Freeze(Box::new(FreezeControl::new(config))),
            Treatment::Nothing => Self::Idle,
        }
    }

    /// The state of the link to a mobile host that is present, for packets.
    pub fn link_state(&self) -> LinkState {
        match self {
            Self::Wake(control) => control.link_state(),
            Self::Freeze(control) => control.link_state(),
            Self::Idle => LinkState { holds: Holds::Nothing, ..LinkState::default() },
        }
    }

    /// Handles a notice of the flow path about the half whose ACKs go in `direction`.
    pub fn handle_notice(
        &mut self,
        now: Instant,
        connection: Connection,
        direction: Direction,
        notice: Notice,
        path: &mut impl FlowTable,
    ) {
        match self {
            Self::Wake(control) => control.handle_notice(now, connection, direction, notice, path),
            Self::Freeze(control) => control.handle_notice(now, connection, direction, notice, path),
            Self::Idle => {}
        }
    }

    /// Handles a packet that arrived while packets are awaited.
    pub fn note_arrival(&mut self, now: Instant, path: &mut impl FlowTable) {
        if let Self::Wake(control) = self {
            control.note_arrival(now, path);
        }
    }

    /// The mobile host has left, or returned.
    pub fn handle_standing(&mut self, now: Instant, standing: Standing, path: &mut impl FlowTable) {
        let is_away = match standing {
            Standing::Away => true,
            Standing::Present | Standing::Moved => false,
            Standing::Fading => return,
        };
        match self {
            Self::Wake(control) if is_away => control.handle_link(now, LinkEvent::Down, path),
            Self::Wake(control) => control.handle_link(now, LinkEvent::Up { symmetric: false, moved: false }, path),
            Self::Freeze(control) if is_away => control.handle_away(now, path),
            Self::Freeze(control) => control.handle_back(now, path),
            Self::Idle => {}
        }
    }

    /// Since when nothing has arrived from the mobile host, if silence was detected.
    pub fn silent_since(&self) -> Option<Instant> {
        if let Self::Wake(control) = self { control.silent_since() } else { None }
    }

    /// The mobile host has not answered a probe.
    pub fn handle_silence(&mut self, since: Instant, path: &mut impl FlowTable) {
        if let Self::Wake(control) = self {
            control.handle_silence(since, path);
        }
    }

    /// It has answered.
    pub fn end_silence(&mut self, now: Instant, path: &mut impl FlowTable) {
        if let Self::Wake(control) = self {
            control.end_silence(now, path);
        }
    }

    /// Probes the absent mobile host for the newest ACK of a connection, beside the owner's own probe.
    pub fn ask_receiver(&mut self, now: Instant, path: &impl FlowTable) {
        if let Self::Wake(control) = self {
            control.ask_receiver(now, path);
        }
    }

    /// Handles a deadline that has passed.
    pub fn handle_timeout(&mut self, now: Instant, path: &mut impl FlowTable) {
        match self {
            Self::Wake(control) => control.handle_timeout(now, path),
            Self::Freeze(control) => control.handle_timeout(now, path),
            Self::Idle => {}
        }
    }

    /// The controller begins for a mobile host that is present, over flows of a former one.
    pub fn take_over(&mut self, now: Instant, path: &mut impl FlowTable) {
        match self {
            Self::Wake(control) => control.handle_end(now, path),
            Self::Freeze(control) => control.take_over(now, path),
            Self::Idle => {}
        }
    }

    /// The controller ends.
    pub fn handle_end(&mut self, now: Instant, path: &mut impl FlowTable) {
        match self {
            Self::Wake(control) => control.handle_end(now, path),
            Self::Freeze(control) => control.handle_end(now, path),
            Self::Idle => {}
        }
    }

    /// The next packet to inject.
    pub fn poll_transmit(&mut self) -> Option<Injected> {
        let made = match self {
            Self::Wake(control) => control.poll_transmit(),
            Self::Freeze(control) => control.poll_transmit(),
            Self::Idle => None,
        };
        made.map(|(_, injected)| injected)
    }

    /// The next action.
    pub fn poll_action(&mut self) -> Option<Action> {
        match self {
            Self::Wake(control) => control.poll_action(),
            Self::Freeze(control) => control.poll_action(),
            Self::Idle => None,
        }
    }

    /// The next outcome of waking a connection.
    pub fn poll_outcome(&mut self) -> Option<WakeOutcome> {
        if let Self::Wake(control) = self { control.poll_outcome() } else { None }
    }

    /// The next deadline.
    pub fn poll_timeout(&self) -> Option<Instant> {
        match self {
            Self::Wake(control) => control.poll_timeout(),
            Self::Freeze(control) => control.poll_timeout(),
            Self::Idle => None,
        }
    }
}
