//! The controller's state of the link, and its reactions to warnings, link-down and link-up.

use holdover_base::{Duration, Instant};
use holdover_flow::{FlowTable, LATE_ARRIVALS, LinkState, Stall};

use super::at::At;
use super::attempt::Path;
use super::between::Inquiry;
use super::flapping::Flapping;
use super::state::{Activity, State};
use super::waking::Waking;
use super::{LetGo, WakeControl};
use crate::{Connection, Direction, LinkEvent, ack_stall, hold_back};

/// After a stall without a cut, there is none for this long.
pub(super) const STALL_PAUSE: Duration = Duration::from_secs(1);

/// Up to this many connections that were idle when the link broke are woken, however long they had been idle: their peers may have sent
/// something in the meantime.
const LEAST_AT_REST: usize = 32;

/// Up to this many are woken if they had data within [`RECENTLY`].
const MOST_AT_REST: usize = 256;

/// See [`MOST_AT_REST`].
const RECENTLY: Duration = Duration::from_secs(60);

/// The state of the link.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Link {
    /// When it went down; `None` if it is up.
    pub(super) down_at: Option<Instant>,
    pub(super) up_at: Option<Instant>,
    /// When the knowledge of the path last improved since link-up: for a while from then on nothing is held back, and echoes are refreshed.
    pub(super) proven_at: Option<Instant>,
    /// When held ACKs are released.
    pub(super) release_at: Option<Instant>,
    /// It may be lost again soon: until then downloads are not woken.
    pub(super) deferred_until: Option<Instant>,
    pub(super) flapping: Flapping,
    pub(super) stall: Option<Stall>,
    /// The end of the pause after a stall without a cut: until then warnings are ignored.
    pub(super) no_stall_before: Instant,
    /// How often it went down or was released.
    pub(super) epoch: u32,
    /// Packets arrived while the link was reported down: it is inferred to be up, and no source has reported that.
    pub(super) is_inferred: bool,
    /// Since when nothing has arrived although data was sent, if silence is detected.
    pub(super) silent_since: Option<Instant>,
}

impl Link {
    /// Whether the link is reported up, even if the grace period is not over.
    pub(super) fn is_up(&self) -> bool {
        self.down_at.is_none() || self.release_at.is_some()
    }

    /// This link cut now, or still down.
    fn cut(self, now: Instant) -> Self {
        Self {
            down_at: self.down_at.or(Some(now)),
            release_at: None,
            deferred_until: None,
            stall: None,
            epoch: self.epoch.wrapping_add(1),
            is_inferred: false,
            silent_since: None,
            ..self
        }
    }
}

impl WakeControl {
    /// The state of the link for the flow path.
    pub fn link_state(&self) -> LinkState {
        let Link { down_at, release_at, stall, epoch, silent_since, .. } = self.link;
        let up_at = self.link.proven_at.or(self.link.up_at);
        let awaits_packets = self.waking.as_ref().is_some_and(Waking::awaits_packets);
        let (is_releasing, listens) = (release_at.is_some(), silent_since.is_some());
        LinkState { down_at, up_at, is_releasing, awaits_packets, stall, epoch, listens, ..LinkState::default() }
    }

    /// Handles a link event reported by the layers below.
    pub fn handle_link(&mut self, now: Instant, event: LinkEvent, path: &mut impl FlowTable) {
        match event {
            LinkEvent::Fading { lead } => self.warn(now, lead),
            LinkEvent::Recovered => self.end_stall(now, path),
            LinkEvent::Down => self.cut(now, path),
            LinkEvent::Up { moved, .. } => self.connect(now, moved, Path::Reported, path),
        }
        path.set_link(self.link_state());
    }

    /// Link-up is reported, but the next hop is not resolved yet: [`Self::handle_next_hop`] reports that. Until then, only probes
    /// are sent.
    pub fn handle_unresolved_up(&mut self, now: Instant, moved: bool, path: &mut impl FlowTable) {
        self.connect(now, moved, Path::Unresolved, path);
        path.set_link(self.link_state());
    }

    /// A packet has arrived over the link.
    pub fn note_incoming(&mut self, now: Instant, path: &mut impl FlowTable) {
        self.wake_unheard(now, Path::Proven, path);
        // A link that is reported down and delivers packets is up.
        if !self.link.is_up() && self.link.down_at.is_some_and(|at| now.saturating_since(at) >= LATE_ARRIVALS) {
            self.connect(now, false, Path::Proven, path);
            self.link.is_inferred = true;
        }
    }

    /// Whether the link is reported down, but inferred to be up because packets have arrived over it.
    pub fn contradicts_down(&self) -> bool {
        self.link.is_inferred
    }

    fn cut(&mut self, now: Instant, path: &mut impl FlowTable) {
        // Ignore a repeated report, possibly of another layer.
        if self.link.is_up() {
            // If nothing has arrived lately, the link was down already.
            let lost_at = self.link.silent_since.unwrap_or(now);
            self.link.flapping.note_loss(lost_at);
            self.cut_those(lost_at, None, path);
        }
    }

    /// Cuts the connections that have received nothing since `silent_since`, or all of them.
    pub(super) fn cut_those(&mut self, now: Instant, silent_since: Option<Instant>, path: &mut impl FlowTable) {
        self.end_waking(now, path);
        let link = self.link;
        let stalling = holdover_flow::Link::new(&self.link_state());
        self.link = link.cut(now);
        self.held_by = if self.config.hold_back.is_some() { hold_back::NAME } else { ack_stall::NAME };
        // From now on only packets that still arrive change flows.
        path.set_link(self.link_state());
        self.abandon_deferral(now, path);
        self.inquiry = Inquiry::default();
        let inquiry = &mut self.inquiry;
        let mut spoilt = Vec::new();
        let mut at_rest = Vec::new();
        let (pokes, is_between) = (self.config.unreachable_poke.is_some(), self.is_between);
        let connections = &mut self.connections;
        path.for_each_live(&mut |connection, flow| {
            if silent_since.is_some_and(|since| flow.has_gone_on_after(since)) {
                return;
            }
            inquiry.consider(connection, flow);
            let is_stalled = flow.is_stalling(now, &stalling);
            let is_known = connections.contains_key(&connection);
            let mut state = connections.remove(&connection).unwrap_or_default();
            (state.activity, state.rest) = (Activity::of(now, flow), None);
            for direction in Direction::BOTH {
                state.half(direction).note_cut(now, link.up_at, direction, flow.half(direction), is_stalled);
            }
            let (received_at, sent) = (flow.half(Direction::Outgoing).last_data_at(), flow.half(Direction::Incoming));
            if !pokes {
                // Only a poke wakes a sender without outstanding data.
            } else if sent.last_data_at() > received_at && !sent.has_outstanding() {
                // The peer has received its request, and has not answered yet.
                state.outgoing.wait();
            } else if state.is_idle() {
                at_rest.extend(received_at.or(sent.last_data_at()).map(|at| (at, connection, state.clone())));
            }
            let is_window_shrunk = Direction::BOTH.into_iter().any(|direction| flow.half(direction).is_window_shrunk());
            if is_known {
                spoilt.push((connection, *flow));
            }
            // Nothing will be missing there, but ACKs are withheld before the return is known.
            let is_one_way =
                is_between && Direction::BOTH.into_iter().any(|direction| flow.half(direction).passes_elsewhere());
            if is_known || is_window_shrunk || is_one_way || !state.is_idle() {
                connections.insert(connection, state);
            }
        });
        self.wait_for_those_at_rest(now, at_rest);
        for (connection, flow) in spoilt {
            let Some(state) = self.connections.get_mut(&connection) else { continue };
            for direction in Direction::BOTH {
                let at = At { connection, direction };
                state.half(direction).drop_spoilt_train(now, at, flow.half(direction), path);
            }
        }
    }

    /// Wakes the peers of idle connections at the link's return, too: packets from them in the meantime are lost. Each has the time of its
    /// last data.
    fn wait_for_those_at_rest(&mut self, now: Instant, mut at_rest: Vec<(Instant, Connection, State)>) {
        at_rest.sort_unstable_by_key(|&(at, connection, _)| (std::cmp::Reverse(at), connection));
        let is_recent = |at: Instant| now.saturating_since(at) <= RECENTLY;
        let woken = at_rest.into_iter().take(MOST_AT_REST).enumerate();
        let woken = woken.take_while(|&(place, (at, ..))| place < LEAST_AT_REST || is_recent(at));
        for (_, (_, connection, state)) in woken {
            let state = self.connections.entry(connection).or_insert(state);
            state.outgoing.wait();
            state.activity = Activity::AtRest;
        }
    }

    /// Handles a warning.
    fn warn(&mut self, now: Instant, lead: Option<Duration>) {
        let Some(config) = &self.config.ack_stall else { return };
        let warning = ack_stall::before_cut(config, now, lead);
        // A repeated warning does not restart the stall, so that ACKs are not stalled for ever. An earlier predicted
        // cut replaces it.
        let replaces = self.link.stall.is_none_or(|stall| ack_stall::is_replaced(&stall, &warning, now));
        if replaces && self.link.down_at.is_none() && self.link.no_stall_before <= now {
            self.link.stall = Some(warning);
        }
    }

    /// The link is up, or another one is.
    pub(super) fn connect(&mut self, now: Instant, moved: bool, known: Path, path: &mut impl FlowTable) {
        if self.link.down_at.is_none() {
            // A move reported without link-down still interrupted the connections.
            if moved {
                self.cut(now, path);
            } else if self.link.is_inferred {
                self.cut_unheard(now, path);
            } else {
                return;
            }
        }
        self.link.is_inferred = false;
        if self.link.release_at.is_some() {
            self.known_path = self.known_path.max(known);
        } else {
            self.known_path = known;
            (self.link.up_at, self.link.proven_at) = (Some(now), None);
            self.own_addresses.handle_up();
            self.link.release_at = Some(now + self.config.release.grace);
            self.begin_deferral(now, known, path);
        }
        path.set_link(self.link_state());
    }

    /// Link-up is reported after packets had already shown the link up: the down report was early, or covered only part of
    /// the path. Connections that have received nothing lately may have been cut off meanwhile.
    fn cut_unheard(&mut self, now: Instant, path: &mut impl FlowTable) {
        let silent_since = now - LATE_ARRIVALS;
        let mut broke_at = None;
        path.for_each_live(&mut |_, flow| {
            broke_at = broke_at.max(flow.heard_at().filter(|&at| at <= silent_since));
        });
        self.cut_those(broke_at.unwrap_or(now), Some(silent_since), path);
    }

    pub(super) fn end_stall(&mut self, now: Instant, path: &mut impl FlowTable) {
        if self.link.stall.take().is_some() {
            path.set_link(self.link_state());
            self.let_go(now, LetGo { at_once: false, stalled: true }, path);
        }
    }
}
