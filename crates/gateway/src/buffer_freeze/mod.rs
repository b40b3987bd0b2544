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
//!   sufficient. With [`BufferFreezeConfig::handoff`] it requests the state and the copies, as nodes of I-TCP and M-TCP do: see `handoff.rs`.
//!
//! # Division of work
//!
//! The flow path tracks acknowledged and outstanding data, the shut window and its probes, and
//! [`FreezeControl`](crate::freeze::FreezeControl) freezes and thaws, as in the gateway's daemon. The base station has the copies, and
//! withholds the newest ACK as a whole packet. The daemon lowers ACKs instead, for which it has to know the window scale; a base station
//! does not know it after a handoff, as it has not seen the handshakes.

mod arriving;
mod handoff;

use core::net::IpAddr;
use std::collections::{BTreeSet, VecDeque};

use holdover_base::{Duration, Instant};
use holdover_filter::{
    Action, Connection, ControlMessage, Direction, Injected, Presence, SegmentFilter, Stored, Verdict,
};
use holdover_flow::{Flow, Holds, Rules};
use holdover_wire::{Flags, Packet};

use crate::cache::Cache;
use crate::flow_path::{FlowPath, Treatment, is_shut};
use crate::freeze::FreezeConfig;
use crate::handoff::{HandoffConfig, Node, Peers, RecordAge, RecordKind};
use crate::prefixes::Prefixes;
use crate::timer::LocalTimer;
use handoff::Arrivals;

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
    /// The base station relies on its timer: reports of absence freeze nothing.
    const fn freeze() -> FreezeConfig {
        FreezeConfig {
            holds: Holds::Nothing,
            when_away: false,
            outlives_retries: false,
            ..FreezeConfig::buffer_freeze()
        }
    }

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
    path: FlowPath<State>,
    /// Hosts that are known to be absent.
    away: BTreeSet<IpAddr>,
    /// The other base stations, if state and copies move between them.
    peers: Option<Peers>,
    arrivals: Arrivals,
    ready: VecDeque<Injected>,
}

/// The state of a connection over which the fixed host sends.
#[derive(Clone, Default, Debug)]
struct State {
    cache: Cache,
    timer: LocalTimer,
    /// The newest ACK, withheld. It is void once the fixed host is frozen, which acknowledges as much.
    held: Option<Packet>,
    /// The age of the last record, or of the connection's beginning if it was seen here.
    age: RecordAge,
    /// Copies came from another base station and were not sent yet.
    is_owed: bool,
    /// Forwarded data is lost, and there are no copies: ACKs of it are not awaited.
    is_lost: bool,
}

impl BufferFreeze {
    /// The name in scenario files.
    pub const NAME: &'static str = "buffer_freeze";

    /// A base station without state. `salt` makes its requests to peers distinct from theirs.
    pub fn new(config: BufferFreezeConfig, salt: u16) -> Self {
        let rules = Rules::new(None, true, Duration::ZERO);
        Self {
            path: FlowPath::new(
                Self::NAME,
                Treatment::Freeze(BufferFreezeConfig::freeze()),
                rules,
                Prefixes::default(),
            ),
            peers: config.handoff.clone().map(|config| Peers::new(config, RecordKind::Unsplit, salt)),
            arrivals: Arrivals::default(),
            config,
            away: BTreeSet::new(),
            ready: VecDeque::new(),
        }
    }

    /// Handles data or an ACK of the fixed host.
    fn handle_from_fixed(&mut self, now: Instant, connection: Connection, packet: &mut Packet) -> Verdict {
        let Self { config, path, peers, .. } = self;
        let Some(flags) = packet.tcp().map(|segment| segment.flags) else { return Verdict::Pass };
        let is_reset = flags.intersects(Flags::SYN | Flags::RST);
        let followed = path.follow_after(now, Direction::Outgoing, packet, |flow, state, packet| {
            if !is_reset {
                state.keep(now, config, flow, packet);
            }
        });
        let Some(verdict) = followed else { return Verdict::Pass };
        if let Some((flow, state)) = path.get_both(connection)
            && (flow.is_over() || is_reset)
        {
            state.begin_or_end(now, connection, flags, peers);
        }
        watch(now, config, path, connection, false);
        verdict
    }

    /// Handles data or an ACK of the mobile host.
    fn handle_from_mobile(&mut self, now: Instant, connection: Connection, packet: &mut Packet) -> Verdict {
        let Self { config, path, peers, ready, .. } = self;
        let Some(segment) = packet.tcp() else { return Verdict::Pass };
        let flags = segment.flags;
        let is_ack = flags.contains(Flags::ACK) && !flags.intersects(Flags::SYN | Flags::RST);
        let (mut is_new, mut may_wait, mut was_frozen) = (false, false, false);
        let followed = path.follow_after(now, Direction::Incoming, packet, |flow, state, packet| {
            let Some(segment) = packet.tcp().filter(|_| is_ack) else { return };
            is_new = flow.half(Direction::Incoming).acked().is_none_or(|acked| segment.ack.gt(acked));
            may_wait = is_new && segment.is_pure_ack();
            was_frozen = is_shut(flow);
            state.cache.handle_ack(segment);
            if was_frozen {
                state.timer.forget_pending();
            }
            state.timer.note_acked(now, segment.ack);
        });
        let Some(verdict) = followed else { return Verdict::Pass };
        let Some((flow, state)) = path.get_both(connection) else { return verdict };
        if flow.is_over() || !is_ack {
            state.begin_or_end(now, connection, flags, peers);
            return verdict;
        }
        watch(now, config, path, connection, true);
        if was_frozen {
            if let Some(state) = path.value_mut(connection) {
                state.held = None;
            }
            if !is_new && !path.is_shut(connection) {
                send_copies(now, connection, path, ready);
            }
            return verdict;
        }
        if !config.freezes || verdict != Verdict::Pass {
            return verdict;
        }
        let Some((flow, state)) = path.get_both(connection) else { return verdict };
        let released = state.held.take();
        if may_wait && flow.awaits_ack() {
            state.held = Some(packet.clone());
        }
        match released {
            // In the order of arrival.
            Some(released) => {
                ready.push_back(Injected { direction: Direction::Incoming, packet: released });
                if state.held.is_none() {
                    ready.push_back(Injected { direction: Direction::Incoming, packet: packet.clone() });
                }
                Verdict::Keep
            }
            None if state.held.is_some() => Verdict::Keep,
            None => Verdict::Pass,
        }
    }

    /// The mobile host is reachable again, here or elsewhere.
    fn end_handoff(&mut self, now: Instant, mobile: IpAddr, is_here: bool) {
        let Self { config, path, away, arrivals, ready, .. } = self;
        let was_away = away.remove(&mobile) || !is_here;
        for connection in path.live_of(mobile) {
            let Some((flow, state)) = path.get_both(connection) else { continue };
            let is_owed = core::mem::take(&mut state.is_owed);
            let has_to_wait = is_here && arrivals.is_incomplete(connection);
            let is_frozen = is_shut(flow);
            if is_frozen {
                // The fixed host was frozen with it: it is void also when the window is open again.
                state.held = None;
            }
            if has_to_wait || !was_away && !is_owed && !is_frozen {
                continue;
            }
            let has_copies = send_copies(now, connection, path, ready);
            if is_frozen && !has_copies {
                // The fixed host has to retransmit.
                mark_lost(path, connection);
                path.freeze(mobile, |control, flows| control.thaw(now, connection, flows));
            }
            if !is_here {
                // From now on another base station sees its ACKs.
                let held = take_held(path, connection);
                ready.extend(held.map(|packet| Injected { direction: Direction::Incoming, packet }));
                path.forget(connection);
            } else if has_copies {
                watch(now, config, path, connection, true);
            }
        }
    }
}

impl State {
    /// Begins anew after a packet with these flags that begins or ends the connection.
    fn begin_or_end(&mut self, now: Instant, connection: Connection, flags: Flags, peers: &mut Option<Peers>) {
        let former = core::mem::take(self);
        let Some(peers) = peers else { return };
        peers.note_ended(now, connection, former.age);
        if flags.contains(Flags::SYN) {
            self.age = peers.note_begun(now, connection);
        }
    }

    /// Copies a segment with data that is forwarded, if there is room and the mobile host has not acknowledged it.
    fn keep(&mut self, now: Instant, config: &BufferFreezeConfig, flow: &Flow, packet: &Packet) {
        let Some(segment) = packet.tcp().filter(|segment| segment.seq_len() > 0) else { return };
        let end = segment.seq + segment.seq_len();
        let is_wanted = flow.half(Direction::Incoming).acked().is_none_or(|acked| end.gt(acked));
        if !is_wanted {
            return;
        }
        let is_again = flow.was_forwarded(segment.seq);
        self.timer.note_sent(now, end, is_again);
        self.is_lost &= is_again;
        if config.buffers && self.cache.bytes() + packet.wire_len() <= config.buffer_bytes {
            self.cache.insert(now, packet);
        }
    }
}

/// Freezes the fixed host unless an ACK follows in time. The timer starts with the first data, and again with each packet of the mobile
/// host (`is_heard`).
fn watch(
    now: Instant,
    config: &BufferFreezeConfig,
    path: &mut FlowPath<State>,
    connection: Connection,
    is_heard: bool,
) {
    let Some((flow, state)) = path.get_both(connection) else { return };
    let awaits_ack = flow.awaits_ack() && !state.is_lost && !is_shut(flow);
    let timeout = state.timer.timeout(config.least_timeout).filter(|_| config.freezes && awaits_ack);
    path.freeze(connection.mobile().ip(), |control, _| {
        if is_heard || !control.is_watched(connection) {
            control.watch(connection, timeout.map(|timeout| now + timeout));
        }
    });
}

/// Sends all copies to the mobile host. Returns whether there are any.
fn send_copies(
    now: Instant,
    connection: Connection,
    path: &mut FlowPath<State>,
    ready: &mut VecDeque<Injected>,
) -> bool {
    let Some(state) = path.value_mut(connection) else { return false };
    state.timer.forget_pending();
    for cached in state.cache.iter_mut() {
        (cached.sent_at, cached.resent) = (now, cached.resent + 1);
        ready.push_back(Injected { direction: Direction::Outgoing, packet: cached.packet.clone() });
    }
    let has_copies = !state.cache.is_empty();
    if has_copies {
        path.tell(now, connection, "sent copies");
    }
    has_copies
}

/// The withheld ACK, unless the fixed host was frozen with it.
fn take_held(path: &mut FlowPath<State>, connection: Connection) -> Option<Packet> {
    let (flow, state) = path.get_both(connection)?;
    state.held.take().filter(|_| !is_shut(flow))
}

/// The fixed host has to retransmit the forwarded data.
fn mark_lost(path: &mut FlowPath<State>, connection: Connection) {
    if let Some(state) = path.value_mut(connection) {
        state.is_lost = true;
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
            _ => self.handle_here(now, direction, packet),
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
        self.ask_as_reported(now, mobile, presence);
    }

    fn handle_control(&mut self, now: Instant, message: &ControlMessage) -> bool {
        self.handle_peer_message(now, message)
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.path.handle_timeout(now);
        self.handle_arrivals_timeout(now);
        self.handle_peer_timeout(now);
    }

    fn poll_transmit(&mut self, _now: Instant) -> Option<Injected> {
        self.path.poll_transmit().or_else(|| self.ready.pop_front())
    }

    fn poll_control(&mut self) -> Option<ControlMessage> {
        self.peers.as_mut()?.poll_message()
    }

    fn poll_action(&mut self) -> Option<Action> {
        self.path.poll_action()
    }

    fn stored(&self) -> Stored {
        let held = |state: &State| state.held.as_ref().map_or(0, Packet::wire_len);
        let moving = self.peers.as_ref().map_or(0, Peers::stored_bytes) + self.arrivals.stored_bytes();
        Stored::of_connections(self.path.live().map(|(_, state)| state.cache.bytes() + held(state)))
            + Stored { bytes: moving as u64, connections: 0 }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let peers = self.peers.as_ref().and_then(Peers::poll_timeout);
        [self.path.poll_timeout(), self.arrivals.poll_timeout(), peers].into_iter().flatten().min()
    }
}
