//! The controller's state of a connection.

use holdover_base::{Duration, Instant};
use holdover_flow::Flow;

use super::attempt::Attempt;
use super::half::Half;
use super::rest::Rest;
use crate::Direction;

/// More data is in flight if some arrived within this time before the cut, provided that the cut was reported in time.
const ON_ITS_WAY: Duration = Duration::from_secs(1);

/// A connection: one half for each direction of ACKs.
#[derive(Clone, Debug, Default)]
pub(super) struct State {
    pub(super) outgoing: Half,
    pub(super) incoming: Half,
    /// The attempt to wake it, if there is one.
    pub(super) attempt: Option<Attempt>,
    /// What the host's own TCP had outstanding when the connection resumed.
    pub(super) rest: Option<Rest>,
    pub(super) activity: Activity,
    /// Since when its peer is woken, if that is later than the link's return ([`super::flapping`]).
    pub(super) reachable_at: Option<Instant>,
    /// Its entry among the deadlines.
    pub(super) scheduled: Option<Instant>,
}

impl State {
    /// The half whose ACKs go in `direction`.
    pub(super) fn half(&mut self, direction: Direction) -> &mut Half {
        match direction {
            Direction::Outgoing => &mut self.outgoing,
            Direction::Incoming => &mut self.incoming,
        }
    }

    /// Whether the connection may have nothing to send, so that an unanswered attempt proves nothing about the path.
    pub(super) fn may_be_done(&self) -> bool {
        self.activity != Activity::UnderWay
    }

    /// Whether ACKs of a stall are being released.
    pub(super) fn has_train_under_way(&self) -> bool {
        self.outgoing.train.is_under_way() || self.incoming.train.is_under_way()
    }

    pub(super) fn is_idle(&self) -> bool {
        self.outgoing.is_idle() && self.incoming.is_idle() && self.attempt.is_none() && self.rest.is_none()
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        let next_try = self.attempt.and_then(|attempt| attempt.next_at());
        let next_look = self.rest.map(|rest| rest.next_at());
        [&self.outgoing, &self.incoming].into_iter().flat_map(Half::deadlines).chain(next_try).chain(next_look).min()
    }
}

/// The activity of a connection when the link broke. Connections are woken in this order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(super) enum Activity {
    /// Data was in flight, or was sent while the link was down.
    UnderWay,
    /// Data was transferred a while before.
    #[default]
    Recent,
    /// No data for longer.
    AtRest,
}

impl Activity {
    /// The activity before a link-down at `now`.
    pub(super) fn of(now: Instant, flow: &Flow) -> Self {
        let is_under_way = Self::is_coming(now, flow) || flow.half(Direction::Incoming).has_outstanding();
        if is_under_way { Self::UnderWay } else { Self::Recent }
    }

    /// Whether data of the peer was in flight when the link broke.
    pub(super) fn is_coming(cut_at: Instant, flow: &Flow) -> bool {
        flow.half(Direction::Outgoing).last_data_at().is_some_and(|at| cut_at.saturating_since(at) <= ON_ITS_WAY)
    }
}
