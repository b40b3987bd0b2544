//! **A supervisor in the path**: acts like M-TCP's supervisor host for a fixed host that sends to a mobile host, without terminating the
//! connection. It is at a node that all packets of the mobile host pass, and has three parts:
//!
//! - **Holding back** (M-TCP, section 4.1). The ACK that the fixed host sees acknowledges one byte less than the mobile host's. An ACK of
//!   *new* data makes a sender accept a smaller window, and wakes it: the byte held back is always available for that.
//! - **Buffering.** It keeps copies of data that the mobile host has not acknowledged. While the host is known to be absent, data for it is
//!   kept and not sent. When it is back, the copies are sent to it: some at once, then two for each ACK, as in slow start.
//! - **Choking** (M-TCP, sections 4.1 and 4.2), if enabled: the byte held back is acknowledged with a window of zero, and zero-window
//!   probes are answered, until the mobile host is back.
//!
//! # When to choke
//!
//! M-TCP chokes when ACKs stop arriving (*wintimer*). Current Linux senders suffer from that if data was lost: a zero window over lost data
//! leaves `ssthresh` at 2, and the first data arrives 0.8 to 6 s after the cut is over. If the network *keeps* all data, they undo their
//! timeout instead (`docs/conformance/linux-6.18.md`, `dirty_freeze` and `late_window`). So by default it buffers, holds back, and does not
//! choke. [`Choke::WhenAway`] and [`Choke::Wintimer`] are for connections that have to outlive `tcp_retries2`, and for comparison with the
//! paper.
//!
//! # ACKs that are held, and for how long
//!
//! Only ACKs without data that advance by more than the bytes held are lowered. ACKs with SACK blocks and duplicates show everything: loss
//! recovery depends on them. Held bytes are also shown after [`SupervisorConfig::flush`], unless data is outstanding and the host is absent
//! or wintimer runs: a sender at the end of its data does not have to wait (M-TCP's second case of wintimer).
//!
//! No ACK acknowledges more than the mobile host's last.

use core::net::IpAddr;
use std::collections::{BTreeSet, VecDeque};

use holdover_base::{Duration, Instant};
use holdover_filter::{
    Action, Agenda, Connection, Direction, Injected, LastSent, LinkEvent, Presence, SegmentFilter, Stored, Table,
    Verdict, tcp_mut,
};
use holdover_wire::{Flags, Packet, Segment, Seq};

use crate::cache::Cache;
use crate::timer::LocalTimer;

/// When the fixed host's window is shut.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Choke {
    /// Never.
    Never,
    /// When the mobile host is known to be absent, if a byte is held at that time: none is [`SupervisorConfig::flush`]
    /// after the last ACK.
    WhenAway,
    /// The same, and when it has acknowledged nothing for longer than a round trip over the wireless link (M-TCP).
    Wintimer,
}

/// The parameters of the supervisor. See the [module](self).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SupervisorConfig {
    /// The bytes that are never shown as acknowledged while data flow; 0 for none.
    pub held_bytes: u32,
    /// Nothing is held before this many bytes have been acknowledged: short exchanges and slow start are over by then.
    pub held_after_bytes: u64,
    /// Bytes of copies for each connection, with their headers; 0 for none.
    pub buffer_bytes: usize,
    /// When to choke.
    pub choke: Choke,
    /// Held ACKs are shown if no newer one arrives for this long.
    pub flush: Duration,
    /// The shortest time without an ACK that counts as a disconnection, for [`Choke::Wintimer`].
    pub least_timeout: Duration,
    /// The number of copies sent at once when the host is back.
    pub burst_packets: u32,
}

impl Default for SupervisorConfig {
    /// One byte held after the first 150 kB (as `hold_back` does), for 40 ms at most, 256 kB of copies for each connection, no choking, ten copies at once (RFC 6928's initial window).
    fn default() -> Self {
        Self {
            held_bytes: 1,
            held_after_bytes: 150_000,
            buffer_bytes: 256_000,
            choke: Choke::Never,
            flush: Duration::from_millis(40),
            least_timeout: Duration::from_millis(250),
            burst_packets: 10,
        }
    }
}

impl SupervisorConfig {
    /// Why the mechanism would do nothing, if so.
    pub(crate) fn why_idle(&self) -> Option<&'static str> {
        if self.held_bytes == 0 && self.buffer_bytes == 0 {
            return Some("it neither holds back nor buffers");
        }
        if self.held_bytes == 0 && self.choke != Choke::Never {
            return Some("choking needs a byte that is held back");
        }
        (self.burst_packets == 0).then_some("it sends bursts of 0 copies")
    }
}

/// How long packets of a host may have been in flight after it was reported absent.
const STRAGGLERS: Duration = Duration::from_millis(100);

/// The filter of a supervisor. See the [module](self).
#[derive(Debug)]
pub struct Supervisor {
    config: SupervisorConfig,
    connections: Table<State>,
    agenda: Agenda,
    away: BTreeSet<IpAddr>,
    out: Out,
}

/// Packets and actions.
#[derive(Default, Debug)]
struct Out {
    ready: VecDeque<Injected>,
    actions: VecDeque<Action>,
}

/// A connection over which the fixed host sends.
#[derive(Clone, Default, Debug)]
struct State {
    /// The highest ACK of the mobile host: M-TCP's w'.
    acked: Option<Seq>,
    /// How much of that the fixed host was shown.
    shown: Option<Seq>,
    /// The number of acknowledged bytes, as far as seen.
    acked_bytes: u64,
    /// The end of the fixed host's data.
    sent: Option<Seq>,
    /// The mobile host's last segment.
    last_sent: LastSent,
    cache: Cache,
    timer: LocalTimer,
    /// When the mobile host left, as reported, unless it has returned since.
    gone_at: Option<Instant>,
    /// The choked sender's window is shut: M-TCP's SHRUNK.
    shrunk: bool,
    /// The number of copies that may still be sent.
    resending: Option<u32>,
    /// When held ACKs are shown.
    flush_at: Option<Instant>,
    /// When M-TCP's wintimer expires.
    wintimer_at: Option<Instant>,
    /// The earlier of the two, for the agenda.
    due: Option<Instant>,
}

impl Supervisor {
    /// The name in scenario files.
    pub const NAME: &'static str = "supervisor";

    /// A supervisor without state.
    pub fn new(config: SupervisorConfig) -> Self {
        Self {
            config,
            connections: Table::default(),
            agenda: Agenda::default(),
            away: BTreeSet::new(),
            out: Out::default(),
        }
    }

    /// Bytes of copies on all connections, with their headers.
    pub fn buffered_bytes(&self) -> usize {
        self.connections.live().map(|(_, state)| state.cache.bytes()).sum()
    }

    fn handle_from_fixed(&mut self, now: Instant, connection: Connection, packet: &Packet) -> Verdict {
        let Self { config, connections, agenda, away, out } = self;
        let Some(segment) = packet.tcp() else { return Verdict::Pass };
        let noted = connections.observe(now, Direction::Outgoing, connection, segment);
        let (state, is_over) = (noted.value, noted.is_over);
        if is_over || segment.flags.intersects(Flags::SYN | Flags::RST) {
            *state = State::default();
            return Verdict::Pass;
        }
        let is_away = match state.acked {
            Some(_) => state.gone_at.is_some(),
            None => away.contains(&connection.mobile().ip()),
        };
        let is_again = state.sent.is_some_and(|sent| segment.seq.lt(sent));
        let is_kept = segment.seq_len() > 0 && state.keep(now, config, packet, segment);
        if state.shrunk && is_probe(state.acked, segment) {
            if let Some(answer) = state.say(connection, state.acked, Some(0)) {
                out.send(Direction::Incoming, answer);
            }
            // The host's own answer shows that it is back, even if no source reports it.
            return if is_away { Verdict::Keep } else { Verdict::Pass };
        }
        if config.choke == Choke::Wintimer && !state.shrunk && state.wintimer_at.is_none() && state.is_outstanding() {
            state.wintimer_at = state.timer.timeout(config.least_timeout).map(|timeout| now + timeout);
        }
        state.set_due(agenda, connection);
        // New data follows the copies: now if there is room among those in flight, or after the host's next ACK.
        // Retransmissions of the fixed host are sent at once: the copies may be lost, and then no ACK arrives.
        if is_kept && (is_away || state.resending.is_some() && !is_again) {
            if let Some(cached) = state.cache.containing(segment.seq) {
                cached.is_due = true;
            }
            state.resend(now, is_away, out);
            return Verdict::Keep;
        }
        Verdict::Pass
    }

    fn handle_from_mobile(&mut self, now: Instant, connection: Connection, packet: &mut Packet) -> Verdict {
        let Self { config, connections, agenda, out, .. } = self;
        let Some(segment) = packet.tcp() else { return Verdict::Pass };
        let noted = connections.observe(now, Direction::Incoming, connection, segment);
        let (state, is_over) = (noted.value, noted.is_over);
        if is_over || segment.flags.intersects(Flags::SYN | Flags::RST) || !segment.flags.contains(Flags::ACK) {
            *state = State::default();
            return Verdict::Pass;
        }
        // A host that sends is present in spite of reports, unless the packet was in flight when it left.
        let was_away = state.gone_at.is_some_and(|at| now.saturating_since(at) >= STRAGGLERS);
        let is_newest = state.acked.is_none_or(|acked| segment.ack.ge(acked));
        let before = state.acked;
        state.note_ack(now, packet);
        if was_away || state.shrunk {
            state.come_back(now, config, connection, !is_newest, out);
        } else if let Some(more) = &mut state.resending {
            *more += 2;
            state.resend(now, false, out);
        }
        if config.choke == Choke::Wintimer {
            let timeout = state.timer.timeout(config.least_timeout).filter(|_| state.is_outstanding());
            state.wintimer_at = timeout.map(|timeout| now + timeout);
        }
        let verdict = state.show(now, config, before, packet);
        state.set_due(agenda, connection);
        verdict
    }

    /// All connections of one mobile host.
    fn of_mobile(&mut self, mobile: IpAddr) -> (impl Iterator<Item = (Connection, &mut State)>, &mut Agenda, &mut Out) {
        let Self { connections, agenda, out, .. } = self;
        (connections.live_mut().filter(move |(connection, _)| connection.mobile().ip() == mobile), agenda, out)
    }

    fn handle_away(&mut self, now: Instant, mobile: IpAddr) {
        self.away.insert(mobile);
        let chokes = self.config.choke != Choke::Never;
        let (connections, agenda, out) = self.of_mobile(mobile);
        for (connection, state) in connections {
            state.timer.forget_pending();
            state.wintimer_at = None;
            state.gone_at = Some(now);
            if chokes && state.is_outstanding() {
                state.choke(now, connection, out);
            }
            state.set_due(agenda, connection);
        }
    }

    fn handle_return(&mut self, now: Instant, mobile: IpAddr, is_here: bool) {
        self.away.remove(&mobile);
        let config = self.config;
        let (connections, agenda, out) = self.of_mobile(mobile);
        for (connection, state) in connections.filter(|(_, state)| state.gone_at.is_some() || state.shrunk || !is_here)
        {
            state.come_back(now, &config, connection, true, out);
            if !is_here {
                // The rest follows it, and its ACKs will be seen elsewhere.
                state.resending = Some(u32::MAX);
                state.resend(now, false, out);
                *state = State { due: state.due, ..State::default() };
            }
            state.set_due(agenda, connection);
        }
    }
}

impl State {
    /// Notes a segment with data, and copies it if there is room. Returns whether there is a copy.
    fn keep(&mut self, now: Instant, config: &SupervisorConfig, packet: &Packet, segment: &Segment) -> bool {
        let end = segment.seq + segment.seq_len();
        let again = self.sent.is_some_and(|sent| segment.seq.lt(sent));
        self.timer.note_sent(now, end, again);
        self.sent = Some(self.sent.map_or(end, |sent| sent.max(end)));
        let is_wanted = self.acked.is_none_or(|acked| end.gt(acked));
        let fits = self.cache.bytes() + packet.wire_len() <= config.buffer_bytes;
        if is_wanted && fits {
            self.cache.insert(now, packet);
        }
        is_wanted && fits
    }

    fn note_ack(&mut self, now: Instant, packet: &Packet) {
        let Some(segment) = packet.tcp() else { return };
        self.last_sent.note(packet, segment);
        self.acked_bytes += self.acked.map_or(0, |acked| u64::from(segment.ack.saturating_since(acked)));
        self.acked = Some(self.acked.map_or(segment.ack, |acked| acked.max(segment.ack)));
        self.sent = Some(self.sent.map_or(segment.ack, |sent| sent.max(segment.ack)));
        self.cache.handle_ack(segment);
        self.timer.note_acked(now, segment.ack);
    }

    fn is_outstanding(&self) -> bool {
        self.acked.zip(self.sent).is_some_and(|(acked, sent)| acked.lt(sent))
    }

    /// The part of an ACK that the fixed host sees. `before` is the number acknowledged before it.
    fn show(&mut self, now: Instant, config: &SupervisorConfig, before: Option<Seq>, packet: &mut Packet) -> Verdict {
        let Some(segment) = tcp_mut(packet) else { return Verdict::Pass };
        let whole = segment.ack;
        let advance = before.map_or(0, |before| whole.saturating_since(before));
        let is_held = config.held_bytes > 0
            && self.acked_bytes > config.held_after_bytes
            && segment.is_pure_ack()
            && segment.options.sack.is_empty()
            && advance > config.held_bytes
            && self.shown.is_some_and(|shown| (whole - config.held_bytes).gt(shown));
        if !is_held {
            self.shown = Some(self.shown.map_or(whole, |shown| shown.max(whole)));
            if self.shown == self.acked {
                self.flush_at = None;
            }
            return Verdict::Pass;
        }
        segment.ack = whole - config.held_bytes;
        self.shown = Some(segment.ack);
        self.flush_at = Some(now + config.flush);
        Verdict::Pass
    }

    /// The mobile host's last ACK again, with `ack` as its number and optionally another window.
    fn say(&self, connection: Connection, ack: Option<Seq>, window: Option<u16>) -> Option<Packet> {
        let mut packet = self.last_sent.repeat(connection.of_sender_going(Direction::Incoming))?;
        let segment = tcp_mut(&mut packet)?;
        segment.ack = ack?;
        segment.window = window.unwrap_or(segment.window);
        Some(packet)
    }

    /// Shows everything, with a zero window. Does nothing without a held byte: senders may ignore it (M-TCP, footnote
    /// 2).
    fn choke(&mut self, now: Instant, connection: Connection, out: &mut Out) {
        if self.shrunk || self.shown == self.acked {
            return;
        }
        if let Some(packet) = self.say(connection, self.acked, Some(0)) {
            (self.shown, self.shrunk, self.flush_at) = (self.acked, true, None);
            out.send(Direction::Incoming, packet);
            out.tell(now, connection, "shrank the window");
        }
    }

    /// The mobile host is back: it gets the copies, and the fixed host everything that it has acknowledged, from here
    /// if `speaks`, and otherwise by the host's ACK that passes.
    fn come_back(
        &mut self,
        now: Instant,
        config: &SupervisorConfig,
        connection: Connection,
        speaks: bool,
        out: &mut Out,
    ) {
        let was_shrunk = core::mem::take(&mut self.shrunk);
        self.gone_at = None;
        if was_shrunk || self.shown != self.acked {
            let packet = self.say(connection, self.acked, None).filter(|_| speaks);
            packet.into_iter().for_each(|packet| out.send(Direction::Incoming, packet));
            (self.shown, self.flush_at) = (self.acked, None);
            out.tell(now, connection, if was_shrunk { "reopened the window" } else { "showed what was held" });
        }
        self.timer.forget_pending();
        if self.cache.is_empty() {
            return;
        }
        for cached in self.cache.iter_mut() {
            cached.is_due = true;
        }
        self.resending = Some(config.burst_packets);
        out.tell(now, connection, "sends copies");
        self.resend(now, false, out);
    }

    /// Sends as many due copies as permitted now. Ends when none is left.
    fn resend(&mut self, now: Instant, is_away: bool, out: &mut Out) {
        let Some(more) = self.resending.as_mut().filter(|_| !is_away) else { return };
        let mut due = self.cache.iter_mut().filter(|cached| cached.is_due).peekable();
        while *more > 0
            && let Some(cached) = due.next()
        {
            (cached.sent_at, cached.resent, cached.is_due) = (now, cached.resent + 1, false);
            out.send(Direction::Outgoing, cached.packet.clone());
            *more -= 1;
        }
        if due.peek().is_none() {
            self.resending = None;
        }
    }

    fn set_due(&mut self, agenda: &mut Agenda, connection: Connection) {
        let due = [self.flush_at, self.wintimer_at].into_iter().flatten().min();
        agenda.set(connection, &mut self.due, due);
    }
}

impl Out {
    fn send(&mut self, direction: Direction, packet: Packet) {
        self.ready.push_back(Injected { direction, packet });
    }

    fn tell(&mut self, at: Instant, connection: Connection, what: &'static str) {
        self.actions.push_back(Action { at, connection, mechanism: Supervisor::NAME, what });
    }
}

/// Whether a segment of a sender with a shut window is a probe: no data below what it was shown, as Linux sends it, or
/// a single byte.
pub(crate) fn is_probe(acked: Option<Seq>, segment: &Segment) -> bool {
    match segment.payload.len() {
        0 => segment.is_pure_ack() && acked.is_some_and(|acked| segment.seq.lt(acked)),
        1 => true,
        _ => false,
    }
}

impl SegmentFilter for Supervisor {
    fn handle_packet(&mut self, now: Instant, direction: Direction, packet: &mut Packet) -> Verdict {
        match Connection::of(direction, packet) {
            Some(connection) if direction == Direction::Outgoing => self.handle_from_fixed(now, connection, packet),
            Some(connection) => self.handle_from_mobile(now, connection, packet),
            None => Verdict::Pass,
        }
    }

    fn handle_link(&mut self, _now: Instant, _event: LinkEvent) {}

    fn handle_mobile(&mut self, now: Instant, mobile: IpAddr, presence: Presence) {
        match presence {
            Presence::Away => self.handle_away(now, mobile),
            Presence::Present | Presence::Rebound => self.handle_return(now, mobile, true),
            Presence::Moved => self.handle_return(now, mobile, false),
            Presence::Fading { .. } => {}
        }
    }

    fn handle_timeout(&mut self, now: Instant) {
        let Self { connections, agenda, out, .. } = self;
        while let Some(connection) = agenda.take_due(now) {
            let Some(state) = connections.get_mut(connection) else { continue };
            state.due = None;
            if state.flush_at.take_if(|at| *at <= now).is_some()
                && !(state.is_outstanding() && (state.wintimer_at.is_some() || state.gone_at.is_some()))
                && let Some(packet) = state.say(connection, state.acked, None)
            {
                state.shown = state.acked;
                out.send(Direction::Incoming, packet);
            }
            if state.wintimer_at.take_if(|at| *at <= now).is_some() && state.is_outstanding() {
                state.timer.forget_pending();
                state.choke(now, connection, out);
            }
            state.set_due(agenda, connection);
        }
    }

    fn poll_transmit(&mut self, _now: Instant) -> Option<Injected> {
        self.out.ready.pop_front()
    }

    fn poll_action(&mut self) -> Option<Action> {
        self.out.actions.pop_front()
    }

    fn stored(&self) -> Stored {
        Stored::of_connections(self.connections.live().map(|(_, state)| state.cache.bytes()))
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.agenda.next()
    }
}
