//! **BUFFER-FREEZE** ("PROBE and BUFFER-FREEZE", section III.B): a base station keeps copies of the packets that it forwards to a mobile
//! host, and withholds the newest ACK. When ACKs stop arriving it sends that ACK with a window of zero, so that the fixed host goes into
//! persist mode and keeps its congestion window and its timers. Then it answers the zero-window probes for the mobile host (*persist
//! reply*), and sends the copies when the handoff is over. Neither end takes part.
//!
//! Each half can be used alone: *buffer* (copies only), which leaves the fixed host to its timeouts, and *freeze* (no copies), which leaves
//! the detection of losses to it.
//!
//! # Where the paper is silent
//!
//! - **No ACK is withheld when the timer expires** (nothing was outstanding when the last one arrived, or it was a duplicate): the last ACK
//!   is repeated with a window of zero. RFC 9293 section 3.10.7.4 accepts it (`SND.WL2 =< SEG.ACK`); M-TCP's authors saw senders that do
//!   not.
//! - **The window is reopened** by the mobile host's ACKs of the resent copies. Without copies, the base station repeats the last ACK with
//!   its window.
//! - **A zero-window probe** is answered, and forwarded as well: the mobile host's own answer ends the freeze even without a report that
//!   the handoff is over. If it acknowledges nothing new, the forwarded data is lost, and the copies are sent.
//! - **Data that arrives while frozen** was in flight; it is copied and forwarded, as the paper requires for all data: an answer to it
//!   shows a false alarm.
//! - **ACKs are withheld** only for a later freeze, so *buffer* alone withholds none.
//! - **The timer** has a floor ([`BufferFreezeConfig::least_timeout`]) and does not back off: it expires once for each freeze.
//! - **The new base station** gets no state from the old one, which forwards its copies to it ([`Presence::Moved`]): data and ACKs are
//!   sufficient. With [`BufferFreezeConfig::handoff`] it requests the state and the copies, see `handoff.rs`.

mod arriving;
mod handoff;

use core::net::IpAddr;
use std::collections::{BTreeSet, VecDeque};

use holdover_base::{Duration, Instant};
use holdover_filter::{
    Action, Agenda, Connection, ControlMessage, Direction, Injected, LastSent, Presence, SegmentFilter, Stored, Table,
    Verdict, tcp_mut,
};
use holdover_wire::{Flags, Packet, Segment, Seq};

use crate::cache::Cache;
use crate::handoff::HandoffConfig;
use crate::supervisor::is_probe;
use crate::timer::LocalTimer;
use handoff::Peers;

/// The parameters of the base station. See the [module](self).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BufferFreezeConfig {
    /// Whether it keeps copies.
    pub buffers: bool,
    /// Whether it freezes the fixed host.
    pub freezes: bool,
    /// The shortest time without an ACK that counts as a disconnection, even if the round trip over the wireless link
    /// is shorter.
    pub least_timeout: Duration,
    /// The most bytes of copies for each connection, with headers. The rest is forwarded without a copy.
    pub buffer_bytes: usize,
    /// How state and copies move between base stations; `None` if they do not.
    pub handoff: Option<HandoffConfig>,
}

impl Default for BufferFreezeConfig {
    /// Both, after 250 ms at least, with 256 kB for each connection. An ACK may be 200 ms late by itself (RFC 1122 section 4.2.3.2 allows
    /// 500 ms; 4.4BSD's fast timer takes 200 ms), and the fixed host's own timer is 1 s or more in stacks of the paper's time. No handoff.
    fn default() -> Self {
        Self {
            buffers: true,
            freezes: true,
            least_timeout: Duration::from_millis(250),
            buffer_bytes: 256_000,
            handoff: None,
        }
    }
}

impl BufferFreezeConfig {
    /// Why the mechanism would do nothing, if so.
    pub(crate) fn why_idle(&self) -> Option<&'static str> {
        if !self.buffers && !self.freezes {
            return Some("it neither buffers nor freezes");
        }
        if self.handoff.as_ref().is_some_and(|handoff| handoff.peers.is_empty()) {
            return Some("it names no peers");
        }
        (self.buffers && self.buffer_bytes == 0).then_some("its buffer has 0 bytes")
    }
}

/// The filter of a base station. See the [module](self).
#[derive(Debug)]
pub struct BufferFreeze {
    config: BufferFreezeConfig,
    connections: Table<State>,
    agenda: Agenda,
    /// Hosts that are known to be absent.
    away: BTreeSet<IpAddr>,
    /// The handoff between base stations, if enabled.
    peers: Option<Peers>,
    ready: VecDeque<Injected>,
    actions: VecDeque<Action>,
}

/// The state of a connection over which the fixed host sends.
#[derive(Clone, Default, Debug)]
struct State {
    /// The highest ACK of the mobile host (*mss_hack*).
    acked: Option<Seq>,
    /// The end of the highest segment that was forwarded to it (*mss_hseqno*).
    sent: Option<Seq>,
    cache: Cache,
    /// The newest ACK, withheld.
    held: Option<Packet>,
    /// The mobile host's last segment.
    last_sent: LastSent,
    timer: LocalTimer,
    due: Option<Instant>,
    mode: Mode,
    /// How many times the connection was handed on.
    epoch: u32,
    /// The connection began here, and was not handed on since.
    is_begun: bool,
    /// Copies came from another base station and were not sent yet.
    is_owed: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
enum Mode {
    #[default]
    Normal,
    PersistReply,
}

impl BufferFreeze {
    /// The name in scenario files.
    pub const NAME: &'static str = "buffer_freeze";

    /// A base station without state. `salt` makes its requests to peers distinct from theirs.
    pub fn new(config: BufferFreezeConfig, salt: u16) -> Self {
        Self {
            peers: config.handoff.clone().map(|config| Peers::new(config, salt)),
            config,
            connections: Table::default(),
            agenda: Agenda::default(),
            away: BTreeSet::new(),
            ready: VecDeque::new(),
            actions: VecDeque::new(),
        }
    }

    /// Handles data or an ACK of the fixed host.
    fn handle_from_fixed(&mut self, now: Instant, connection: Connection, packet: &Packet) -> Verdict {
        let Self { config, connections, agenda, ready, .. } = self;
        let Some(segment) = packet.tcp() else { return Verdict::Pass };
        let noted = connections.observe(now, Direction::Outgoing, connection, segment);
        let (state, is_over) = (noted.value, noted.is_over);
        if is_over || segment.flags.intersects(Flags::SYN | Flags::RST) {
            state.forget(agenda, connection);
            state.is_begun = segment.flags.contains(Flags::SYN);
            return Verdict::Pass;
        }
        // Before the segment counts as sent.
        let is_probe = state.is_probe(segment);
        if segment.seq_len() > 0 {
            state.keep(now, config, packet, segment);
        }
        if is_probe {
            state.answer_probe(connection, ready);
        }
        if state.mode == Mode::Normal && state.due.is_none() {
            let due = state.freezes_at(now, config);
            agenda.set(connection, &mut state.due, due);
        }
        Verdict::Pass
    }

    /// Handles data or an ACK of the mobile host.
    fn handle_from_mobile(&mut self, now: Instant, connection: Connection, packet: &Packet) -> Verdict {
        let Self { config, connections, agenda, ready, actions, .. } = self;
        let Some(segment) = packet.tcp() else { return Verdict::Pass };
        let noted = connections.observe(now, Direction::Incoming, connection, segment);
        let (state, is_over) = (noted.value, noted.is_over);
        if is_over || segment.flags.intersects(Flags::SYN | Flags::RST) || !segment.flags.contains(Flags::ACK) {
            state.forget(agenda, connection);
            state.is_begun = segment.flags.contains(Flags::SYN);
            return Verdict::Pass;
        }
        let is_new = state.acked.is_none_or(|acked| segment.ack.gt(acked));
        state.last_sent.note(packet, segment);
        state.acked = Some(state.acked.map_or(segment.ack, |acked| acked.max(segment.ack)));
        state.sent = Some(state.sent.map_or(segment.ack, |sent| sent.max(segment.ack)));
        state.cache.handle_ack(segment);
        state.timer.note_acked(now, segment.ack);
        let was_frozen = core::mem::take(&mut state.mode) == Mode::PersistReply;
        if was_frozen {
            actions.push_back(Action { at: now, connection, mechanism: Self::NAME, what: "thawed" });
            if !is_new && !state.send_copies(now, connection, ready, actions) {
                state.sent = state.acked;
            }
        }
        if !config.freezes {
            return Verdict::Pass;
        }
        let due = state.freezes_at(now, config);
        agenda.set(connection, &mut state.due, due);
        let released = state.held.take();
        let is_withheld = is_new && state.is_outstanding() && segment.is_pure_ack() && !was_frozen;
        if is_withheld {
            state.held = Some(packet.clone());
        }
        match released {
            // In the order of arrival.
            Some(released) => {
                ready.push_back(Injected { direction: Direction::Incoming, packet: released });
                if !is_withheld {
                    ready.push_back(Injected { direction: Direction::Incoming, packet: packet.clone() });
                }
                Verdict::Keep
            }
            None if is_withheld => Verdict::Keep,
            None => Verdict::Pass,
        }
    }

    /// The mobile host is reachable again, here or elsewhere.
    fn end_handoff(&mut self, now: Instant, mobile: IpAddr, is_here: bool) {
        let Self { config, connections, agenda, away, peers, ready, actions } = self;
        let was_away = away.remove(&mobile) || !is_here;
        for (connection, state) in connections.live_mut().filter(|(connection, _)| connection.mobile().ip() == mobile) {
            let is_owed = core::mem::take(&mut state.is_owed);
            let has_to_wait = is_here && peers.as_ref().is_some_and(|peers| peers.is_incomplete(connection));
            if has_to_wait || !was_away && !is_owed && state.mode == Mode::Normal {
                continue;
            }
            let has_copies = state.send_copies(now, connection, ready, actions);
            if state.mode == Mode::PersistReply && !has_copies {
                state.reopen(now, connection, ready, actions);
            }
            if is_here {
                let due = state.freezes_at(now, config);
                agenda.set(connection, &mut state.due, due);
            } else {
                // From now on another base station sees its ACKs.
                let held = state.held.take();
                ready.extend(held.map(|packet| Injected { direction: Direction::Incoming, packet }));
                state.forget(agenda, connection);
            }
        }
    }
}

impl State {
    /// Copies a segment with data that is forwarded.
    fn keep(&mut self, now: Instant, config: &BufferFreezeConfig, packet: &Packet, segment: &Segment) {
        let end = segment.seq + segment.seq_len();
        if self.acked.is_some_and(|acked| end.le(acked)) {
            return;
        }
        let again = self.sent.is_some_and(|sent| segment.seq.lt(sent));
        if config.buffers && self.cache.bytes() + packet.wire_len() <= config.buffer_bytes {
            self.cache.insert(now, packet);
        }
        self.timer.note_sent(now, end, again);
        self.sent = Some(self.sent.map_or(end, |sent| sent.max(end)));
    }

    /// Sends all copies to the mobile host. Returns whether there are any.
    fn send_copies(
        &mut self,
        now: Instant,
        connection: Connection,
        ready: &mut VecDeque<Injected>,
        actions: &mut VecDeque<Action>,
    ) -> bool {
        self.timer.forget_pending();
        for cached in self.cache.iter_mut() {
            (cached.sent_at, cached.resent) = (now, cached.resent + 1);
            ready.push_back(Injected { direction: Direction::Outgoing, packet: cached.packet.clone() });
        }
        let has_copies = !self.cache.is_empty();
        if has_copies {
            actions.push_back(Action { at: now, connection, mechanism: BufferFreeze::NAME, what: "sent copies" });
        }
        has_copies
    }

    /// Repeats the mobile host's last ACK with its window, which ends the freeze.
    fn reopen(
        &mut self,
        now: Instant,
        connection: Connection,
        ready: &mut VecDeque<Injected>,
        actions: &mut VecDeque<Action>,
    ) {
        let again = self.last_sent.repeat(connection.of_sender_going(Direction::Incoming));
        ready.extend(again.map(|packet| Injected { direction: Direction::Incoming, packet }));
        self.mode = Mode::Normal;
        // The forwarded data is lost, and the fixed host has to retransmit it.
        self.sent = self.acked;
        actions.push_back(Action { at: now, connection, mechanism: BufferFreeze::NAME, what: "reopened the window" });
    }

    /// Whether a segment is a probe that is answered for the mobile host.
    fn is_probe(&self, segment: &Segment) -> bool {
        self.mode == Mode::PersistReply && is_probe(self.acked, segment)
    }

    fn answer_probe(&mut self, connection: Connection, ready: &mut VecDeque<Injected>) {
        let answer = self.shut(connection);
        ready.extend(answer.map(|packet| Injected { direction: Direction::Incoming, packet }));
    }

    /// When the fixed host is frozen unless an ACK arrives before.
    fn freezes_at(&self, now: Instant, config: &BufferFreezeConfig) -> Option<Instant> {
        let timeout = self.timer.timeout(config.least_timeout).filter(|_| config.freezes && self.is_outstanding());
        timeout.map(|timeout| now + timeout)
    }

    fn is_outstanding(&self) -> bool {
        self.acked.zip(self.sent).is_some_and(|(acked, sent)| acked.lt(sent))
    }

    /// The withheld ACK, or the last one again, with a zero window.
    fn shut(&mut self, connection: Connection) -> Option<Packet> {
        let again = || self.last_sent.repeat(connection.of_sender_going(Direction::Incoming));
        let mut packet = self.held.take().or_else(again)?;
        tcp_mut(&mut packet)?.window = 0;
        Some(packet)
    }

    fn forget(&mut self, agenda: &mut Agenda, connection: Connection) {
        agenda.set(connection, &mut self.due, None);
        (self.held, self.mode, self.acked, self.sent) = (None, Mode::Normal, None, None);
        (self.epoch, self.is_begun, self.is_owed) = (0, false, false);
        self.cache.clear();
    }
}

impl SegmentFilter for BufferFreeze {
    fn handle_packet(&mut self, now: Instant, direction: Direction, packet: &mut Packet) -> Verdict {
        let Some(connection) = Connection::of(direction, packet) else { return Verdict::Pass };
        if self.peers.is_some() && self.is_elsewhere(now, direction, connection, packet) {
            return Verdict::Pass;
        }
        match direction {
            Direction::Outgoing if self.waits_for_copies(now, connection, packet) => Verdict::Keep,
            Direction::Outgoing => self.handle_from_fixed(now, connection, packet),
            Direction::Incoming => self.handle_from_mobile(now, connection, packet),
        }
    }

    fn handle_link(&mut self, _now: Instant, _event: holdover_filter::LinkEvent) {}

    fn handle_mobile(&mut self, now: Instant, mobile: IpAddr, presence: Presence) {
        self.note_presence(now, mobile, presence);
        match presence {
            Presence::Present | Presence::Rebound => self.end_handoff(now, mobile, true),
            // The new base station requests its connections.
            Presence::Moved if self.peers.is_some() => {
                self.away.insert(mobile);
            }
            Presence::Moved => self.end_handoff(now, mobile, false),
            Presence::Away => {
                self.away.insert(mobile);
            }
            Presence::Fading { .. } => {}
        }
        if presence == Presence::Present {
            self.ask_if_new(now, mobile);
        }
    }

    fn handle_control(&mut self, now: Instant, message: &ControlMessage) -> bool {
        let is_taken = self.peers.as_mut().is_some_and(|peers| peers.handle_message(now, message));
        self.handle_peers(now);
        is_taken
    }

    /// No ACK has arrived for longer than a round trip over the wireless link.
    fn handle_timeout(&mut self, now: Instant) {
        let Self { connections, agenda, ready, actions, .. } = self;
        while let Some(connection) = agenda.take_due(now) {
            let Some(state) = connections.get_mut(connection) else { continue };
            if state.due.take_if(|due| *due <= now).is_none() {
                continue;
            }
            state.timer.forget_pending();
            let Some(packet) = state.shut(connection) else { continue };
            state.mode = Mode::PersistReply;
            ready.push_back(Injected { direction: Direction::Incoming, packet });
            actions.push_back(Action { at: now, connection, mechanism: Self::NAME, what: "froze" });
        }
        self.handle_peers_timeout(now);
    }

    fn poll_transmit(&mut self, _now: Instant) -> Option<Injected> {
        self.ready.pop_front()
    }

    fn poll_control(&mut self) -> Option<ControlMessage> {
        self.peers.as_mut()?.poll_message()
    }

    fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    fn stored(&self) -> Stored {
        let held = |state: &State| state.held.as_ref().map_or(0, Packet::wire_len);
        let arriving = self.peers.as_ref().map_or(0, Peers::stored_bytes);
        Stored::of_connections(self.connections.live().map(|(_, state)| state.cache.bytes() + held(state)))
            + Stored { bytes: arriving as u64, connections: 0 }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let peers = self.peers.as_ref().and_then(Peers::poll_timeout);
        [self.agenda.next(), peers].into_iter().flatten().min()
    }
}
