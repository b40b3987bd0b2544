//! What is done for the TCP connections of one mobile host, by mode: a controller of `mobility` or `gateway` over the flow path.

use holdover_base::Instant;
use holdover_filter::{Connection, Direction, Injected, LinkEvent};
use holdover_flow::{FlowTable, Holds, LinkState, Notice};
use holdover_gateway::divert::Standing;
use holdover_gateway::freeze::{FreezeConfig, FreezeControl};
use holdover_mobility::wake::{WakeConfig, WakeControl};

use crate::config::Mode;

/// See the [module](self).
#[derive(Debug)]
pub(crate) enum Controller {
    /// Holds back, and wakes senders when the mobile host is back.
    Wake(Box<WakeControl>),
    /// Shuts windows while the mobile host is away.
    Freeze(Box<FreezeControl>),
    /// Nothing: connections are followed.
    Idle,
}

/// What a controller has done, for counters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Did {
    Released,
    Poked,
    Froze,
    Reopened,
    Answered,
}

impl Controller {
    /// That of a mode. `wake` says what is held back with [`Mode::Buffer`]; `None` for nothing.
    pub(crate) fn new(mode: Mode, wake: Option<WakeConfig>) -> Self {
        let freeze = |config| Self::Freeze(Box::new(FreezeControl::new(config)));
        match (mode, wake) {
            (Mode::Buffer, Some(config)) => Self::Wake(Box::new(WakeControl::between(config))),
            (Mode::Buffer, None) | (Mode::Observe, _) => Self::Idle,
            (Mode::Freeze | Mode::BufferFreeze, _) => freeze(FreezeConfig::buffer_freeze()),
            (Mode::MTcp, _) => freeze(FreezeConfig::m_tcp()),
        }
    }

    /// What packets have to know of the link to a mobile host that is present.
    pub(crate) fn link_state(&self) -> LinkState {
        match self {
            Self::Wake(control) => control.link_state(),
            Self::Freeze(control) => control.link_state(),
            Self::Idle => LinkState { holds: Holds::Nothing, ..LinkState::default() },
        }
    }

    pub(crate) fn handle_notice(
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

    /// A packet has come in while packets are awaited.
    pub(crate) fn note_arrival(&mut self, now: Instant, path: &mut impl FlowTable) {
        if let Self::Wake(control) = self {
            control.note_arrival(now, path);
        }
    }

    /// The mobile host is away, or back.
    pub(crate) fn handle_standing(&mut self, now: Instant, standing: Standing, path: &mut impl FlowTable) {
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

    /// Since when nothing has come from the mobile host, if that was noticed.
    pub(crate) fn silent_since(&self) -> Option<Instant> {
        if let Self::Wake(control) = self { control.silent_since() } else { None }
    }

    /// The mobile host was asked, and has not answered.
    pub(crate) fn handle_silence(&mut self, since: Instant, path: &mut impl FlowTable) {
        if let Self::Wake(control) = self {
            control.handle_silence(since, path);
        }
    }

    /// It has answered.
    pub(crate) fn end_silence(&mut self, now: Instant, path: &mut impl FlowTable) {
        if let Self::Wake(control) = self {
            control.end_silence(now, path);
        }
    }

    pub(crate) fn handle_timeout(&mut self, now: Instant, path: &mut impl FlowTable) {
        match self {
            Self::Wake(control) => control.handle_timeout(now, path),
            Self::Freeze(control) => control.handle_timeout(now, path),
            Self::Idle => {}
        }
    }

    /// Nobody will be there any more.
    pub(crate) fn handle_end(&mut self, now: Instant, path: &mut impl FlowTable) {
        match self {
            Self::Wake(control) => control.handle_end(now, path),
            Self::Freeze(control) => control.handle_end(now, path),
            Self::Idle => {}
        }
    }

    pub(crate) fn poll_transmit(&mut self) -> Option<Injected> {
        let made = match self {
            Self::Wake(control) => control.poll_transmit(),
            Self::Freeze(control) => control.poll_transmit(),
            Self::Idle => None,
        };
        made.map(|(_, injected)| injected)
    }

    /// The next thing that was done.
    pub(crate) fn poll_did(&mut self) -> Option<Did> {
        match self {
            Self::Wake(control) => {
                while let Some(outcome) = control.poll_outcome() {
                    tracing::debug!(?outcome, "outcome");
                }
                let action = control.poll_action()?;
                tracing::debug!(connection = ?action.connection, what = action.what, "woken");
                Some(if action.what == "poked" { Did::Poked } else { Did::Released })
            }
            Self::Freeze(control) => loop {
                let action = control.poll_action()?;
                tracing::debug!(connection = ?action.connection, what = action.what, "freeze");
                match action.what {
                    "froze" => return Some(Did::Froze),
                    "reopened the window" | "thawed" => return Some(Did::Reopened),
                    "answered a probe" => return Some(Did::Answered),
                    _ => {}
                }
            },
            Self::Idle => None,
        }
    }

    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        match self {
            Self::Wake(control) => control.poll_timeout(),
            Self::Freeze(control) => control.poll_timeout(),
            Self::Idle => None,
        }
    }
}

/// From so many acknowledged bytes on a connection has details: before that nothing is held of it.
pub(crate) const DETAILS_AFTER: u32 = 64_000;
