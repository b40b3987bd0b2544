//! **Freezing** at a gateway: fixed hosts that send to a mobile host are shown a window of zero while it is absent, and its window again
//! when it is back. They keep their congestion windows and wait in persist mode (RFC 9293 section 3.8.6.1) for any time, and the gateway
//! answers their probes for the mobile host. Neither end takes part.
//!
//! It is one controller for two papers, which differ in the ACKs that are held back, so that there is something new to acknowledge together
//! with the window:
//!
//! - *BUFFER-FREEZE* (section III.B) withholds the newest ACK while data is outstanding ([`FreezeConfig::buffer_freeze`]);
//! - *M-TCP* (section 4.1) acknowledges one byte less than the mobile host ([`FreezeConfig::m_tcp`]), and shuts the window also when ACKs
//!   stop arriving (*wintimer*).
//!
//! Packets pass the flow path ([`holdover_flow`]), which holds ACKs back, shows shut windows and notices probes. [`FreezeControl`] is the
//! rest, for one mobile host: it is called when the host leaves or returns, handles notices, runs timers and makes packets.
//! [`crate::daemon`] combines both, and [`crate::supervisor`] and [`crate::buffer_freeze`] add copies.
//!
//! Data lost in the cut stays lost: the fixed host notices that soon only if copies were kept somewhere. A zero window over lost data costs
//! current Linux senders more than their timers would (`docs/conformance/linux-6.18.md`, `dirty_freeze`).
//!
//! If data are outstanding and the fixed host has probed for them repeatedly, its window stays shut until it is shown an ACK of something new,
//! also when the mobile host is back: with an open window Linux would end the connection at its next retransmission
//! ([`holdover_mobility::hold_open`]). Such a sender waits for its timer in any case, open window or not; one that sends at once when its
//! window opens (4.4BSD, by reading) waits for its next probe. The flow has this state, so that it outlives the controller.
//!
//! No ACK acknowledges more than the mobile host has: all are made by [`Half::ack_up_to`](holdover_flow::Half::ack_up_to).

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use holdover_base::{Duration, Instant};
use holdover_filter::{Action, Connection, Direction, Injected, tcp_mut};
use holdover_flow::{Flow, FlowTable, Holds, LinkState, Notice, Order, WindowLimit};
use holdover_mobility::hold_open::UNANSWERED;
use holdover_wire::Packet;

/// How much is held back, and when a window is shut.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FreezeConfig {
    /// How much of the mobile host's ACKs is not shown to the fixed host while data flow.
    pub holds: Holds,
    /// Held ACKs are shown after this long without a newer ACK, unless data are outstanding.
    pub flush: Duration,
    /// Whether windows are shut when the mobile host is reported absent.
    pub when_away: bool,
    /// A window is shut when no ACK has arrived for twice a round trip over the wireless link, and at least this long,
    /// while data are outstanding and something is held. `None` for reports only, and timers of the owner ([`FreezeControl::watch`]).
    pub least_timeout: Option<Duration>,
    /// Whether duplicate ACKs of the mobile host are withheld: M-TCP's supervisor host sends none to fixed hosts. Losses then wait
    /// for the fixed host's timer, unless the wireless link repairs them.
    pub drops_duplicates: bool,
    /// Whether the window of a sender that has probed repeatedly for outstanding data stays shut until it is shown an ACK of something new.
    pub outlives_retries: bool,
}

impl FreezeConfig {
    /// BUFFER-FREEZE: the newest ACK. It relies on reports, as the daemon has better sources than a timer.
    pub const fn buffer_freeze() -> Self {
        Self {
            holds: Holds::Newest,
            flush: Duration::from_millis(40),
            when_away: true,
            least_timeout: None,
            drops_duplicates: false,
            outlives_retries: true,
        }
    }

    /// M-TCP: one byte, and a timer of 250 ms at least (a delayed ACK may be 200 ms late).
    pub const fn m_tcp() -> Self {
        Self { holds: Holds::Bytes(1), least_timeout: Some(Duration::from_millis(250)), ..Self::buffer_freeze() }
    }
}

/// The name in actions.
pub const NAME: &str = "freeze";

/// The state of a connection.
#[derive(Clone, Copy, Default, Debug)]
struct State {
    /// The fixed host was shown a zero window.
    is_frozen: bool,
    /// Its probes since then.
    probes: u32,
    /// When held ACKs are checked.
    due: Option<Instant>,
    /// The owner has set `due`, because an ACK is awaited.
    is_watched: bool,
}

/// Freezes the connections of one mobile host. See the [module](self).
///
/// The order of calls: [`Self::handle_notice`], [`Self::handle_away`], [`Self::handle_back`] or [`Self::handle_timeout`], then
/// [`Self::poll_transmit`] and [`Self::poll_action`] until `None`, then [`Self::poll_timeout`].
#[derive(Debug)]
pub struct FreezeControl {
    config: FreezeConfig,
    connections: BTreeMap<Connection, State>,
    deadlines: BTreeSet<(Instant, Connection)>,
    away_since: Option<Instant>,
    back_at: Option<Instant>,
    /// Connections that were not frozen when the mobile host left: ACKs that arrive before the controller learns of its return are
    /// withheld.
    others: Vec<Connection>,
    epoch: u32,
    ready: VecDeque<(Connection, Injected)>,
    actions: VecDeque<Action>,
}

impl FreezeControl {
    /// A controller for a mobile host that is present.
    pub fn new(config: FreezeConfig) -> Self {
        Self {
            config,
            connections: BTreeMap::new(),
            deadlines: BTreeSet::new(),
            away_since: None,
            back_at: None,
            others: Vec::new(),
            epoch: 0,
            ready: VecDeque::new(),
            actions: VecDeque::new(),
        }
    }

    /// The state of the link to the mobile host, for packets.
    pub fn link_state(&self) -> LinkState {
        LinkState {
            down_at: self.away_since,
            up_at: self.back_at,
            epoch: self.epoch,
            holds: self.config.holds,
            drops_duplicates: self.config.drops_duplicates,
            ..LinkState::default()
        }
    }

    /// Connections with a shut window.
    pub fn frozen(&self) -> usize {
        self.connections.values().filter(|state| state.is_frozen).count()
    }

    fn is_frozen(&self, connection: Connection) -> bool {
        self.connections.get(&connection).is_some_and(|state| state.is_frozen)
    }

    /// Handles a notice of the flow path about the half whose ACKs go in `direction`, or, with [`Notice::Probed`],
    /// about the sender of a probe that goes in `direction`.
    pub fn handle_notice(
        &mut self,
        now: Instant,
        connection: Connection,
        direction: Direction,
        notice: Notice,
        path: &mut impl FlowTable,
    ) {
        match (notice, direction) {
            (Notice::Held, Direction::Incoming) => {
                // A notice that is read late concerns the time before the freeze. With an open window it is of another connection: the
                // frozen one has ended without a notice, and its ports are used again.
                if self.is_frozen(connection) {
                    if path.snapshot(connection).is_some_and(|flow| is_shut(&flow)) {
                        return;
                    }
                    self.forget(connection);
                }
                self.schedule(connection, Some(now + self.config.flush));
            }
            (Notice::Probed(_), Direction::Outgoing) => {
                // The window may have been opened since.
                let flow = path.snapshot(connection).filter(is_shut);
                let answer = flow.and_then(|flow| Some((flow, shut_ack(&flow, connection)?)));
                if let Some((flow, packet)) = answer {
                    self.count_probe(now, connection, &flow, path);
                    self.send(connection, packet);
                    self.tell(now, connection, "answered a probe");
                }
            }
            (Notice::Heard(_), Direction::Incoming) => {
                // If the notice is read late, it dates from before the window was shut again.
                if self.is_frozen(connection) && !path.snapshot(connection).is_some_and(|flow| is_shut(&flow)) {
                    self.end_freeze(connection);
                    self.tell(now, connection, "thawed");
                }
                self.forget_idle(connection);
            }
            _ => {}
        }
    }

    /// Counts a probe of a shut window. A sender that has probed repeatedly for data is shown its window only with an ACK of something new.
    fn count_probe(&mut self, now: Instant, connection: Connection, flow: &Flow, path: &mut impl FlowTable) {
        if !self.config.outlives_retries {
            return;
        }
        let state = self.connections.entry(connection).or_default();
        // A former controller may have shut it.
        state.is_frozen = true;
        state.probes = state.probes.saturating_add(1);
        let half = flow.half(Direction::Incoming);
        if state.probes > UNANSWERED && half.awaits_ack() && !half.is_shut_until_acked() {
            path.order(now, connection, Direction::Incoming, Order::LimitWindow(WindowLimit::UntilAcked(0)));
        }
    }

    fn end_freeze(&mut self, connection: Connection) {
        if let Some(state) = self.connections.get_mut(&connection) {
            (state.is_frozen, state.probes) = (false, 0);
        }
    }

    /// Shuts the window at `until` if data are outstanding then, with the mobile host's last ACK; `None` to leave it as it is.
    pub fn watch(&mut self, connection: Connection, until: Option<Instant>) {
        self.schedule(connection, until);
        let state = self.connections.entry(connection).or_default();
        state.is_watched = until.is_some();
        // A connection that begins anew ends a freeze without a notice.
        if until.is_some() {
            (state.is_frozen, state.probes) = (false, 0);
        }
        self.forget_idle(connection);
    }

    /// Whether [`Self::watch`] is in force.
    pub fn is_watched(&self, connection: Connection) -> bool {
        self.connections.get(&connection).is_some_and(|state| state.is_watched && state.due.is_some())
    }

    /// Continues a connection whose fixed host another node has shown a window of zero.
    pub fn resume_frozen(&mut self, now: Instant, connection: Connection, path: &mut impl FlowTable) {
        path.order(now, connection, Direction::Incoming, Order::LimitWindow(WindowLimit::UntilHeard(0)));
        self.connections.entry(connection).or_default().is_frozen = true;
        self.schedule(connection, None);
    }

    /// Another node continues a connection.
    pub fn forget(&mut self, connection: Connection) {
        self.schedule(connection, None);
        self.connections.remove(&connection);
    }

    /// The mobile host is absent.
    pub fn handle_away(&mut self, now: Instant, path: &mut impl FlowTable) {
        if self.away_since.is_some() {
            return;
        }
        self.away_since = Some(now);
        self.epoch += 1;
        path.set_link(self.link_state());
        let (mut waiting, mut others) = (Vec::new(), Vec::new());
        path.for_each_live(&mut |connection, flow| {
            let half = flow.half(Direction::Incoming);
            // Otherwise the frozen connection has ended, and this is another one.
            if self.is_frozen(connection) && half.window_limit() == Some(0) {
                return;
            }
            // Left by a former controller.
            let is_shut = half.window_limit().is_some();
            let is_recent = half.last_data_at().is_some_and(|at| now.saturating_since(at) < RECENTLY);
            if self.config.when_away && (is_shut || is_recent || half.awaits_ack() || half.is_held()) {
                waiting.push(connection);
            } else {
                others.push(connection);
            }
        });
        for &connection in &others {
            self.end_freeze(connection);
            self.forget_idle(connection);
        }
        self.others = others;
        for connection in waiting {
            self.freeze(now, connection, path);
            if !self.is_frozen(connection) {
                self.others.push(connection);
            }
        }
    }

    /// The mobile host is back.
    pub fn handle_back(&mut self, now: Instant, path: &mut impl FlowTable) {
        if self.away_since.is_some() {
            // Until the link is up, the flow path withholds ACKs without a notice: one that came after its flow was read would stay withheld.
            self.raise_link(now, path);
            for connection in self.all_frozen() {
                if !path.snapshot(connection).is_some_and(|flow| stays_shut(&flow)) {
                    self.thaw(now, connection, path);
                }
            }
            self.show_others(now, path);
        }
    }

    /// The mobile host is back. Windows stay shut until it is heard, except those that [`Self::thaw`] opens.
    pub fn end_absence(&mut self, now: Instant, path: &mut impl FlowTable) {
        if self.away_since.is_some() {
            self.raise_link(now, path);
            self.show_others(now, path);
        }
    }

    fn raise_link(&mut self, now: Instant, path: &mut impl FlowTable) {
        (self.away_since, self.back_at) = (None, Some(now));
        self.epoch += 1;
        path.set_link(self.link_state());
    }

    /// Shows the ACKs that were withheld on connections that were not frozen.
    fn show_others(&mut self, now: Instant, path: &mut impl FlowTable) {
        for connection in core::mem::take(&mut self.others) {
            if path.snapshot(connection).is_some_and(|flow| flow.half(Direction::Incoming).is_held()) {
                self.show(now, connection, path);
            }
        }
    }

    /// The controller ends: every fixed host is shown the mobile host's last ACK.
    pub fn handle_end(&mut self, now: Instant, path: &mut impl FlowTable) {
        self.show_all(now, path, |_| false);
    }

    /// The controller begins for a mobile host that is present, over flows of a former one: fixed hosts are shown the mobile host's last ACK,
    /// except those whose windows stay shut.
    pub fn take_over(&mut self, now: Instant, path: &mut impl FlowTable) {
        self.show_all(now, path, stays_shut);
    }

    fn show_all(&mut self, now: Instant, path: &mut impl FlowTable, stays_shut: impl Fn(&Flow) -> bool) {
        // The link's state may outlive this controller.
        self.away_since = None;
        self.others.clear();
        self.epoch += 1;
        path.set_link(self.link_state());
        for connection in self.all_frozen() {
            self.thaw(now, connection, path);
        }
        // Other held ACKs and limits were left by a former controller, or belong to connections that are not frozen.
        let mut held = Vec::new();
        path.for_each_live(&mut |connection, flow| {
            let half = flow.half(Direction::Incoming);
            if !stays_shut(flow) && (half.is_held() || half.window_limit().is_some()) {
                held.push((connection, half.window_limit().is_some()));
            }
        });
        for (connection, is_limited) in held {
            if is_limited {
                path.order(now, connection, Direction::Incoming, Order::LimitWindow(WindowLimit::None));
                self.tell(now, connection, "reopened the window");
            }
            self.show(now, connection, path);
        }
    }

    /// Handles a deadline that has passed.
    pub fn handle_timeout(&mut self, now: Instant, path: &mut impl FlowTable) {
        while let Some(&(at, connection)) = self.deadlines.first()
            && at <= now
        {
            self.schedule(connection, None);
            self.look(now, connection, path);
            self.forget_idle(connection);
        }
    }

    /// The next packet to send: to the fixed host, as if from the mobile host.
    pub fn poll_transmit(&mut self) -> Option<(Connection, Injected)> {
        self.ready.pop_front()
    }

    /// The next action.
    pub fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// The next deadline.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.deadlines.first().map(|&(at, _)| at)
    }

    /// Checks a connection whose ACKs have been held, or have ceased, for a while.
    fn look(&mut self, now: Instant, connection: Connection, path: &mut impl FlowTable) {
        let Some(flow) = path.snapshot(connection) else { return };
        let half = flow.half(Direction::Incoming);
        let state = self.connections.get(&connection).copied().unwrap_or_default();
        if state.is_frozen {
            return;
        }
        if state.is_watched && half.awaits_ack() && !flow.is_over() {
            return self.freeze(now, connection, path);
        }
        if !half.is_held() {
            return;
        }
        let newest = half.progress_at(Direction::Incoming).unwrap_or(now);
        let is_away = self.away_since.is_some();
        if !half.awaits_ack() || !self.shuts() && !is_away {
            // At the end of a transfer, or in a pause, its sender waits only for this ACK.
            if now >= newest + self.config.flush {
                self.show(now, connection, path);
            } else {
                self.schedule(connection, Some(newest + self.config.flush));
            }
            return;
        }
        if is_away && !self.config.when_away {
            // It is shown when the mobile host is back.
            return;
        }
        let timeout = match self.config.least_timeout {
            Some(least) => silence(&flow, least),
            // Check again whether data are outstanding.
            None => LOOK_AGAIN.max(self.config.flush),
        };
        if now < newest + timeout {
            self.schedule(connection, Some(newest + timeout));
        } else if self.config.least_timeout.is_some() {
            self.freeze(now, connection, path);
        } else if now >= newest + KEPT_FOR {
            self.show(now, connection, path);
        } else {
            self.schedule(connection, Some(now + timeout));
        }
    }

    /// Whether windows are ever shut.
    const fn shuts(&self) -> bool {
        self.config.when_away || self.config.least_timeout.is_some()
    }

    /// Shuts the window, with everything that the mobile host has acknowledged.
    fn freeze(&mut self, now: Instant, connection: Connection, path: &mut impl FlowTable) {
        let Some(flow) = path.snapshot(connection) else { return };
        let Some(packet) = shut_ack(&flow, connection) else { return };
        let Some(acked) = flow.half(Direction::Incoming).acked() else { return };
        // Shut by a former controller, it may have to stay so.
        let limit = if stays_shut(&flow) { WindowLimit::UntilAcked(0) } else { WindowLimit::UntilHeard(0) };
        path.order(now, connection, Direction::Incoming, Order::Show(acked));
        path.order(now, connection, Direction::Incoming, Order::LimitWindow(limit));
        self.send(connection, packet);
        self.tell(now, connection, "froze");
        let state = self.connections.entry(connection).or_default();
        (state.is_frozen, state.probes) = (true, 0);
        self.schedule(connection, None);
    }

    fn all_frozen(&self) -> Vec<Connection> {
        let frozen = self.connections.iter().filter(|(_, state)| state.is_frozen);
        frozen.map(|(&connection, _)| connection).collect()
    }

    /// Shows the fixed host the mobile host's window again, if it was shown a window of zero.
    pub fn thaw(&mut self, now: Instant, connection: Connection, path: &mut impl FlowTable) {
        if !self.is_frozen(connection) {
            return;
        }
        self.forget(connection);
        let Some(flow) = path.snapshot(connection) else { return };
        path.order(now, connection, Direction::Incoming, Order::LimitWindow(WindowLimit::None));
        if let Some(packet) = last_ack(&flow, connection) {
            self.send(connection, packet);
            self.tell(now, connection, "reopened the window");
        }
    }

    /// Shows the fixed host everything that the mobile host has acknowledged.
    fn show(&mut self, now: Instant, connection: Connection, path: &mut impl FlowTable) {
        let Some(flow) = path.snapshot(connection) else { return };
        let half = flow.half(Direction::Incoming);
        let (Some(acked), Some(packet)) = (half.acked(), last_ack(&flow, connection)) else { return };
        let hold_from = half.bytes_acked();
        path.order(now, connection, Direction::Incoming, Order::Flush { ack: acked, hold_from });
        self.send(connection, packet);
    }

    fn send(&mut self, connection: Connection, packet: Packet) {
        self.ready.push_back((connection, Injected { direction: Direction::Incoming, packet }));
    }

    fn tell(&mut self, at: Instant, connection: Connection, what: &'static str) {
        self.actions.push_back(Action { at, connection, mechanism: NAME, what });
    }

    fn schedule(&mut self, connection: Connection, due: Option<Instant>) {
        let state = self.connections.entry(connection).or_default();
        if let Some(at) = core::mem::replace(&mut state.due, due) {
            self.deadlines.remove(&(at, connection));
        }
        if let Some(at) = due {
            self.deadlines.insert((at, connection));
        }
    }

    fn forget_idle(&mut self, connection: Connection) {
        if self.connections.get(&connection).is_some_and(|state| !state.is_frozen && state.due.is_none()) {
            self.connections.remove(&connection);
        }
    }
}

/// A sender with data within this time may send more while the mobile host is absent.
const RECENTLY: Duration = Duration::from_secs(10);

/// The interval between checks of a connection without a timer of its own while something is held and data are
/// outstanding.
const LOOK_AGAIN: Duration = Duration::from_millis(200);

/// How long held ACKs are kept while data are outstanding, unless the mobile host is reported absent.
const KEPT_FOR: Duration = Duration::from_secs(1);

/// Whether the fixed host was shown a window of zero, and nothing has opened it since.
fn is_shut(flow: &Flow) -> bool {
    flow.half(Direction::Incoming).window_limit() == Some(0)
}

/// Whether an open window would let the fixed host end the connection: it has retransmitted data that are still outstanding, and nothing
/// was withheld that could be shown with the window.
fn stays_shut(flow: &Flow) -> bool {
    let half = flow.half(Direction::Incoming);
    half.is_shut_until_acked() && half.awaits_ack() && !half.is_held() && !flow.is_over()
}

/// How long ACKs may cease before a window is shut: twice a round trip over the wireless link, and at least `least`.
fn silence(flow: &Flow, least: Duration) -> Duration {
    least.max(flow.latest_round_trip() * 2)
}

/// The mobile host's last ACK again, with its window.
pub(crate) fn last_ack(flow: &Flow, connection: Connection) -> Option<Packet> {
    let half = flow.half(Direction::Incoming);
    half.ack_up_to(half.acked()?, connection.of_sender_going(Direction::Incoming))
}

/// The same with a zero window.
fn shut_ack(flow: &Flow, connection: Connection) -> Option<Packet> {
    let mut packet = last_ack(flow, connection)?;
    tcp_mut(&mut packet)?.window = 0;
    Some(packet)
}
