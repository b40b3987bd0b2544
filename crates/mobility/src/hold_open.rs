//! **Hold open.** The user timeout of RFC 5482 for a TCP that cannot be configured: that of programs which set none, or of a host behind a
//! proxy. It is in the path between that TCP and a peer that comes and goes.
//!
//! A TCP ends a connection after a number of retransmissions without an answer; Linux after some 15 minutes. Until the user timeout has
//! passed, this filter answers those retransmissions with the peer's last ACK and a window of zero. Behind a zero window, retransmissions
//! do not count (RFC 9293 section 3.8.6.1: a connection stays open as long as its probes are answered), so that the TCP keeps the
//! connection. It keeps retransmitting at the same times.
//!
//! When the peer is back, the window stays shut until it acknowledges something: its segments before that arrive with a window of zero. With
//! an open window the TCP would end the connection at its next retransmission, timer or not, as it counts the time since the first one
//! (Linux: `retransmits_timed_out`; seen with the ICMP errors of [`wake`](crate::wake) just after the window was opened).
//!
//! - Only a third repetition is answered, after a second of silence. Linux reduces `ssthresh` at each timeout behind a zero window,
//!   unless it has retransmitted before; then the zero window changes nothing but the end of the connection.
//! - Keep-alives and probes of a zero window are answered with the peer's last window.
//! - A timeout that the program has set itself (`TCP_USER_TIMEOUT`) stays: Linux applies it to a zero window as well.
//! - SYNs are not answered: an unanswered attempt to connect ends as without the filter.
//! - When the user timeout has passed, nothing is answered any more, and the TCP's own limits begin. Behind a zero window, Linux gives up
//!   four minutes after the last answer (by reading `tcp_rtx_probe0_timed_out` of Linux 6.18).
//!
//! The filter also implements the option for that TCP: it adds the option to the SYN and to a few segments after it, and the peer's option
//! lengthens the timeout up to a limit, by RFC 5482 section 3.1. A segment that already has the option, from a TCP that knows it, stays.
//!
//! No answer acknowledges more than the peer has. A connection that has not been seen with a segment of its peer is not held.
//!
//! After Schuetz, Eggert, Schmid and Brunner, section 3.2; they leave proxies for unmodified hosts to later work. M-TCP and BUFFER-FREEZE
//! hold connections at a router by a zero window.

use std::collections::VecDeque;

use bytes::Bytes;
use holdover_base::{Duration, Instant};
use holdover_filter::{Connection, Table, tcp_mut};
use holdover_wire::{Flags, Packet, Segment, Seq, TcpOptions, Timestamps, UserTimeout};

use crate::{Action, Direction, Injected, LinkEvent, SegmentFilter, Verdict};

/// How long connections are held.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HoldOpenConfig {
    /// How long the peer may be silent: USER_TIMEOUT, and ADV_UTO (RFC 5482 section 3.1).
    pub timeout: Duration,
    /// How far the peer's option may lengthen that: U_LIMIT. A shorter one than `timeout` has no effect.
    pub accept: Duration,
    /// Whether the peer is asked for the same with the option of RFC 5482.
    pub advertise: bool,
}

impl Default for HoldOpenConfig {
    /// Half a day, a whole one if the peer asks for it, and the option.
    fn default() -> Self {
        Self { timeout: Duration::from_secs(12 * 3600), accept: Duration::from_secs(24 * 3600), advertise: true }
    }
}

/// Counters since the start.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct HoldOpenCounters {
    /// Segments answered for the peer.
    pub answers: u64,
    /// Segments to which the option was added.
    pub options_sent: u64,
    /// Segments of the peer with the option.
    pub options_received: u64,
}

/// The filter. See the [module](self).
#[derive(Clone, Debug)]
pub struct HoldOpen {
    config: HoldOpenConfig,
    connections: Table<State>,
    counters: HoldOpenCounters,
    injected: VecDeque<Injected>,
    actions: VecDeque<Action>,
}

/// Repetitions that are not answered: the sender's timer has expired more than once by then.
pub const UNANSWERED: u32 = 2;
/// The least silence before an answer.
const LEAST_SILENCE: Duration = Duration::from_secs(1);
/// The least time between two answers on a connection. A TCP retransmits more slowly by then; one that answers an answer is not
/// to do so endlessly.
const LEAST_INTERVAL: Duration = Duration::from_millis(200);
/// The segments after the SYN that carry the option: it is not acknowledged, and may be lost (RFC 5482 section 3.3).
const SEGMENTS_WITH_OPTION: u8 = 3;
/// Bytes of the option.
const OPTION_LEN: usize = 4;
/// The option is added to packets that fit through every IPv6 network with it.
const MOST_BYTES: usize = 1280;

/// A connection.
#[derive(Clone, Default, Debug)]
struct State {
    /// The peer's last ACK number, and its window field then.
    peer: Option<(Seq, u16)>,
    /// The last echo of a timestamp by the peer.
    echo: u32,
    /// The number after the last byte sent.
    sent_to: Option<Seq>,
    silence: Option<Silence>,
    /// The acknowledgement number of an answer that has shut the window, which is shut until the peer acknowledges more.
    shut_at: Option<Seq>,
    /// The peer's option.
    asked: Option<Duration>,
    /// This host's TCP sends the option itself.
    speaks_itself: bool,
    with_option: u8,
}

/// Since the first segment that the peer has not answered.
#[derive(Clone, Copy, Debug)]
struct Silence {
    since: Instant,
    repetitions: u32,
    answered_at: Option<Instant>,
    is_over: bool,
}

impl Silence {
    const fn new(now: Instant) -> Self {
        Self { since: now, repetitions: 0, answered_at: None, is_over: false }
    }

    /// The peer was heard while the window is shut. If it is silent again, the next repetition is answered: the one after it may come four
    /// minutes later.
    const fn after_return(now: Instant) -> Self {
        Self { repetitions: UNANSWERED, ..Self::new(now) }
    }
}

impl HoldOpen {
    /// The name in logs.
    pub const NAME: &'static str = "hold_open";

    /// A filter without connections.
    pub fn new(config: HoldOpenConfig) -> Self {
        let (connections, counters) = (Table::default(), HoldOpenCounters::default());
        Self { config, connections, counters, injected: VecDeque::new(), actions: VecDeque::new() }
    }

    /// Changes the timeouts of all connections. A timeout that was advertised stays with the peer.
    pub fn configure(&mut self, config: HoldOpenConfig) {
        self.config = config;
    }

    /// Counters since the start.
    pub const fn counters(&self) -> HoldOpenCounters {
        self.counters
    }

    /// Connections that are held at present: their number, and the longest silence of their peer, as of the last answers.
    pub fn held(&self) -> (usize, Duration) {
        let silences =
            self.connections.live().filter_map(|(_, state)| state.silence).filter(|silence| !silence.is_over);
        let held = silences.filter_map(|silence| Some(silence.answered_at?.saturating_since(silence.since)));
        held.fold((0, Duration::ZERO), |(count, longest), silence| (count + 1, longest.max(silence)))
    }

    /// The user timeout of a connection; `None` if it is not known.
    pub fn user_timeout(&self, connection: Connection) -> Option<Duration> {
        self.connections.get(connection).map(|state| state.user_timeout(&self.config))
    }

    fn handle_incoming(&mut self, now: Instant, connection: Connection, packet: &mut Packet) {
        let Some(segment) = packet.tcp() else { return };
        let state = self.connections.observe(now, Direction::Incoming, connection, segment).value;
        if segment.flags.contains(Flags::ACK) && state.peer.is_none_or(|(ack, _)| segment.ack.ge(ack)) {
            // The window of a SYN-ACK is not scaled, but that of an ACK is (RFC 7323 section 2.2).
            let is_syn = segment.flags.contains(Flags::SYN);
            let shift = segment.options.window_scale.filter(|_| is_syn).unwrap_or(0).min(14);
            state.peer = Some((segment.ack, segment.window >> shift));
            state.echo = segment.options.timestamps.map_or(state.echo, |it| it.ecr);
        }
        // RFC 5482 section 2: zero is reserved.
        if let Some(asked) = segment.options.user_timeout.map(UserTimeout::duration).filter(|it| !it.is_zero()) {
            self.counters.options_received += 1;
            state.asked = Some(asked);
        }
        let is_open = !segment.flags.contains(Flags::ACK) || segment.flags.intersects(Flags::SYN | Flags::RST);
        state.shut_at = state.shut_at.filter(|at| !is_open && segment.ack.le(*at));
        state.silence = state.shut_at.map(|_| Silence::after_return(now));
        if state.shut_at.is_some() && segment.window > 0 {
            tcp_mut(packet).into_iter().for_each(|segment| segment.window = 0);
        }
    }

    fn handle_outgoing(&mut self, now: Instant, connection: Connection, packet: &mut Packet) {
        let len = packet.wire_len();
        let Some(segment) = tcp_mut(packet) else { return };
        let noted = self.connections.observe(now, Direction::Outgoing, connection, segment);
        let (state, is_over) = (noted.value, noted.is_over);
        if is_over || segment.flags.contains(Flags::RST) {
            state.silence = None;
            return;
        }
        let end = segment.seq + segment.seq_len();
        let is_syn = segment.flags.contains(Flags::SYN);
        let is_repetition = state.is_repetition(segment, end);
        state.speaks_itself |= segment.options.user_timeout.is_some();
        let has_room = segment.options.unknown == 0
            && segment.options.wire_len() + OPTION_LEN <= Segment::MAX_OPTIONS_LEN
            && len + OPTION_LEN <= MOST_BYTES;
        // A repeated SYN goes without it: something on the path may have dropped the first one for it.
        if self.config.advertise && has_room && !is_repetition && state.owes_option(is_syn) {
            segment.options.user_timeout = UserTimeout::from_duration(self.config.timeout);
            state.with_option += u8::from(!is_syn);
            self.counters.options_sent += 1;
        }
        state.sent_to = Some(state.sent_to.map_or(end, |sent_to| sent_to.max(end)));
        if is_syn {
            return;
        }
        let what = match state.step(now, &self.config, segment, is_repetition) {
            Step::None => return,
            Step::GiveUp => "user timeout",
            Step::Answer => {
                let Some(packet) = state.peers_segment(connection, segment) else { return };
                self.counters.answers += 1;
                self.injected.push_back(Injected { direction: Direction::Incoming, packet });
                "held"
            }
        };
        self.actions.push_back(Action { at: now, connection, mechanism: Self::NAME, what });
    }
}

/// The reaction to a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    None,
    /// It is answered in the peer's place.
    Answer,
    /// The user timeout has passed.
    GiveUp,
}

impl State {
    /// USER_TIMEOUT by RFC 5482 section 3.1.
    fn user_timeout(&self, config: &HoldOpenConfig) -> Duration {
        self.asked.map_or(config.timeout, |asked| asked.min(config.accept).max(config.timeout))
    }

    /// Whether a segment repeats earlier data, or is a keep-alive or a probe of a zero window: a segment without data below the peer's ACK
    /// number.
    fn is_repetition(&self, segment: &Segment, end: Seq) -> bool {
        match segment.seq_len() {
            0 => self.peer.is_some_and(|(ack, _)| segment.seq + 1 == ack),
            _ => self.sent_to.is_some_and(|sent_to| end.le(sent_to)),
        }
    }

    fn owes_option(&self, is_syn: bool) -> bool {
        !self.speaks_itself && (is_syn || self.peer.is_some() && self.with_option < SEGMENTS_WITH_OPTION)
    }

    /// A segment is sent.
    fn step(&mut self, now: Instant, config: &HoldOpenConfig, segment: &Segment, is_repetition: bool) -> Step {
        if self.peer.is_none() || segment.seq_len() == 0 && !is_repetition {
            return Step::None;
        }
        let timeout = self.user_timeout(config);
        let silence = self.silence.get_or_insert(Silence::new(now));
        if !is_repetition || silence.is_over {
            return Step::None;
        }
        silence.repetitions = silence.repetitions.saturating_add(1);
        let passed = now.saturating_since(silence.since);
        let is_early = silence.answered_at.is_some_and(|at| now.saturating_since(at) < LEAST_INTERVAL);
        if silence.repetitions <= UNANSWERED || passed < LEAST_SILENCE || is_early {
            return Step::None;
        }
        if passed >= timeout {
            silence.is_over = true;
            return Step::GiveUp;
        }
        silence.answered_at = Some(now);
        self.shut_at = self.peer.map(|(ack, _)| ack).filter(|ack| self.sent_to.is_some_and(|sent_to| ack.lt(sent_to)));
        Step::Answer
    }

    /// The answer to a segment: the peer's last ACK, with a window of zero if it has not acknowledged everything.
    fn peers_segment(&self, connection: Connection, segment: &Segment) -> Option<Packet> {
        let (ack, window) = self.peer?;
        let is_outstanding = self.sent_to.is_none_or(|sent_to| ack.lt(sent_to));
        // The peer's last timestamp is that which this host echoes.
        let timestamps = segment.options.timestamps.map(|own| Timestamps { val: own.ecr, ecr: self.echo });
        let answer = Segment {
            src_port: connection.remote.port(),
            dst_port: connection.local.port(),
            seq: segment.ack,
            ack,
            flags: Flags::ACK,
            window: if is_outstanding { 0 } else { window },
            options: TcpOptions { timestamps, ..TcpOptions::default() },
            payload: Bytes::new(),
            ..Segment::default()
        };
        Some(Packet::new(connection.remote.ip(), connection.local.ip(), answer))
    }
}

impl SegmentFilter for HoldOpen {
    fn handle_packet(&mut self, now: Instant, direction: Direction, packet: &mut Packet) -> Verdict {
        let Some(connection) = Connection::of(direction, packet) else { return Verdict::Pass };
        match direction {
            Direction::Outgoing => self.handle_outgoing(now, connection, packet),
            Direction::Incoming => self.handle_incoming(now, connection, packet),
        }
        Verdict::Pass
    }

    /// Silence counts, whatever its cause.
    fn handle_link(&mut self, _now: Instant, _event: LinkEvent) {}

    fn poll_transmit(&mut self, _now: Instant) -> Option<Injected> {
        self.injected.pop_front()
    }

    fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    fn fork(&self) -> Option<Box<dyn SegmentFilter>> {
        Some(Box::new(self.clone()))
    }
}
