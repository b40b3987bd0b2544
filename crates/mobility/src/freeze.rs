//! **Freezing.** When the link breaks, a sender takes the silence for congestion: it loses its window of packets, backs off its timer, and
//! recovers slowly. But a sender may be silent for another reason: a receiver that advertises a window of zero is full, and its sender
//! stops, keeps its congestion window, and probes now and then. So a host whose link fades advertises a window of zero, and opens it again
//! when the link is back.
//!
//! After Goff, Moronski, Phatak and Gupta, *Freeze-TCP* (section III), and the thesis that builds on it (sections 4.5 and 5.1). From the
//! warning on, every segment that the host sends carries a window of zero, and at least one such ACK (a ZWA) is sent at once, even if there
//! is nothing new to acknowledge. The host's TCP is not involved: it accepts and acknowledges data that still arrives. At reconnection the
//! real window is advertised again, at once by the copies of [`crate::reconnect_acks`] if that is enabled. Without a warning the mechanism
//! does nothing.
//!
//! **When.** Before the cut, the ZWA must reach the sender, and data that the sender sent until then must arrive: one round trip, not more.
//! Earlier, the sender idles on a link that works; later, packets and ACKs are lost and, worse, the sender may have unacknowledged data
//! behind a closed window: some senders then time out repeatedly, and halve ssthresh each time. See [`WarningPeriod`].
//!
//! **No delay.** A ZWA should not wait for a delayed-ACK timer, but a filter must not acknowledge data that the host's TCP has not
//! acknowledged: a segment that passed the filter may have been dropped after it. So the filter prompts the TCP. Every TCP answers a
//! segment below the window, like a keep-alive of the peer, at once with its current ACK (RFC 9293 section 3.10.7.4), and the answer passes
//! the filter. The prompt has one byte, of data that the TCP has acknowledged, as keep-alives may have (RFC 9293 section 3.8.4):
//! Linux limits its answers to segments without data to two a second, and a lone segment at the end then waits for the delayed-ACK timer,
//! often until after the cut. The answer's DSACK of that byte is taken off.
//!
//! **Failure modes.** The prediction was wrong: [`LinkEvent::Recovered`] thaws, or else a deadline does. Continuous warnings over a link
//! that works freeze a connection once, and not again before they have paused. The ZWA is lost: every following ACK repeats it. The sender
//! ignores the window of an ACK that acknowledges nothing new (some do, according to M-TCP and the thesis, and Linux did until 6.6): then
//! only the ACKs of data that still arrives help. The sender was in loss recovery: it stops there.

use std::collections::VecDeque;

use bytes::Bytes;
use holdover_base::{Duration, Instant};
use holdover_wire::{Flags, Packet, Segment, Seq, SeqRange, TcpOptions, Timestamps};

use crate::round_trip::RoundTrip;
use crate::{Action, Direction, Injected, LinkEvent, SegmentFilter, Verdict};
use holdover_filter::Agenda;
use holdover_filter::LastSent;
use holdover_filter::{Connection, Table, tcp_mut};

/// When and how hosts freeze their peers.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct FreezeConfig {
    /// How long before the cut a connection is frozen.
    pub warning: WarningPeriod,
    /// The number of ZWAs sent when a connection is frozen. With 0, only the ACKs of arriving data inform the peer, as
    /// in the thesis's simulator. Four and more make three duplicates without a change of the window, which a sender
    /// may take for a loss.
    pub at_once: u8,
    /// How long the host's TCP may take to acknowledge data while frozen before it is prompted; `None` leaves its ACKs
    /// delayed. Zero suits a TCP that answers in the same instant; in front of a kernel, a millisecond saves needless
    /// prompts.
    pub ask_after: Option<Duration>,
    /// Connections without data for this long are left alone: an idle receiver gains nothing by freezing.
    pub flowing: Duration,
    /// Whether a window probe that arrives while frozen thaws, if there is room: it shows that the path works. So the
    /// thesis (section 5.1.4); Freeze-TCP holds every ACK at zero until link-up.
    pub thaw_on_probe: bool,
    /// Whether reconnection is announced by one window update. For a host without [`crate::reconnect_acks`], whose peer
    /// would otherwise wait for its next probe ("no TR-ACKs" in the Freeze-TCP paper).
    pub update_at_up: bool,
    /// Whether the reserved flag of the IPv4 header ([`Packet::reserved_flag`]) goes with every zero window, for a
    /// gateway that does not parse TCP headers, and whether data with that flag are answered with the real window (the
    /// thesis, section 4.6.2): the gateway sends them because the link works again. The next data without the flag
    /// freeze again while the warning stands.
    pub ip_flag: bool,
    /// A connection thaws if it is not cut off within this time after the predicted cut, or after the warning if that
    /// named no time. Repeated warnings postpone that, by as much again at most. It is not frozen again until there
    /// have been no warnings for this long.
    pub patience: Duration,
}

impl Default for FreezeConfig {
    /// A warning period of one round trip (Freeze-TCP section IV.A), one ZWA at once, none delayed; data in the last second;
    /// a second of patience.
    fn default() -> Self {
        Self {
            warning: WarningPeriod::RoundTrips(1.0),
            at_once: 1,
            ask_after: Some(Duration::ZERO),
            flowing: Duration::from_secs(1),
            thaw_on_probe: false,
            update_at_up: false,
            ip_flag: false,
            patience: Duration::from_secs(1),
        }
    }
}

/// How long before the cut a connection is frozen; at once if the warning is later than that, or names no lead.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum WarningPeriod {
    /// At the warning, however early.
    WholeLead,
    /// This long (Freeze-TCP's experiments: the round trip, measured beforehand).
    Fixed(Duration),
    /// This many round trips of the connection, measured from its packets, queues included; as [`Self::WholeLead`]
    /// without a measurement.
    RoundTrips(f64),
    /// A time after the warning that is adapted by experience, independent of the lead in the warning: after each cut, a period that
    /// was shorter than the round trip brings the next freeze forward by `step`, and one that was longer postpones it
    /// (the thesis's dynamic threshold, section 7.2, as far as possible after the warning; the thesis does not give the
    /// step).
    Adaptive {
        /// The step.
        step: Duration,
    },
}

/// The filter. See the module's documentation.
#[derive(Clone, Debug)]
pub struct Freeze {
    config: FreezeConfig,
    connections: Table<State>,
    warning: Option<Warning>,
    down: bool,
    out: Out,
}

/// A predicted disconnection.
#[derive(Clone, Copy, Debug)]
struct Warning {
    at: Instant,
    cut_at: Option<Instant>,
    /// From then on it is ignored.
    until: Instant,
    /// A warning before then counts as the same one.
    ceases_at: Instant,
}

/// The output of the filter.
#[derive(Clone, Debug, Default)]
struct Out {
    agenda: Agenda,
    ready: VecDeque<Injected>,
    actions: VecDeque<Action>,
}

#[derive(Clone, Debug, Default)]
struct State {
    last_sent: LastSent,
    heard: Option<PeerNumbers>,
    round_trip: RoundTrip,
    data_at: Option<Instant>,
    phase: Phase,
    /// ZWAs still to be sent, and when the filter makes them if the host's TCP has not.
    owed: u8,
    repeat_at: Option<Instant>,
    /// When the host's TCP is prompted to acknowledge.
    ask_at: Option<Instant>,
    /// The end of the byte of the last prompt, until its answer has left.
    prompted: Option<Seq>,
    /// The beginning of the warning that has frozen it without a cut.
    in_vain: Option<Instant>,
    /// [`WarningPeriod::Adaptive`]: the time after the warning.
    postponement: Duration,
    over: bool,
    due: Option<Instant>,
}

/// The peer's newest numbers, for a prompt on its behalf.
#[derive(Clone, Copy, Debug)]
struct PeerNumbers {
    ack: Seq,
    window: u16,
    timestamps: Option<Timestamps>,
}

#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
enum Phase {
    #[default]
    Open,
    /// Warned; it will freeze.
    Waiting { from: Instant },
    /// Every window is zero.
    Frozen { since: Instant, until: Instant, latest: Instant },
    /// The link is down.
    Cut,
}

impl Freeze {
    /// The name in scenario files.
    pub const NAME: &'static str = "freeze";

    /// A filter without state.
    pub fn new(config: FreezeConfig) -> Self {
        Self { config, connections: Table::default(), warning: None, down: false, out: Out::default() }
    }

    fn on_fading(&mut self, now: Instant, lead: Option<Duration>) {
        if self.down {
            return;
        }
        let cut_at = lead.map(|lead| now + lead);
        let until = cut_at.unwrap_or(now) + self.config.patience;
        let warning = Warning {
            at: self.warning.filter(|warning| now < warning.ceases_at).map_or(now, |warning| warning.at),
            cut_at,
            until,
            ceases_at: until + self.config.patience,
        };
        self.warning = Some(warning);
        for (connection, state) in self.connections.live_mut() {
            state.warn(now, connection, warning, &self.config, &mut self.out);
        }
    }

    fn on_down(&mut self, now: Instant) {
        let warning = self.warning.take();
        self.down = true;
        for (connection, state) in self.connections.iter_mut() {
            if let Some(warning) = warning.filter(|warning| now < warning.until) {
                state.learn(now, warning, &self.config);
            }
            state.round_trip.forget_pending();
            state.phase = match state.phase {
                Phase::Open | Phase::Waiting { .. } => Phase::Open,
                Phase::Frozen { .. } | Phase::Cut => Phase::Cut,
            };
            (state.owed, state.repeat_at, state.ask_at) = (0, None, None);
            state.reschedule(connection, &mut self.out);
        }
    }

    /// The link is up, still or again.
    fn on_connected(&mut self, now: Instant, update: bool) {
        self.warning = None;
        self.down = false;
        for (connection, state) in self.connections.iter_mut() {
            state.round_trip.forget_pending();
            state.thaw(now, connection, update, &mut self.out);
        }
    }
}

impl SegmentFilter for Freeze {
    fn handle_packet(&mut self, now: Instant, direction: Direction, packet: &mut Packet) -> Verdict {
        let Some(connection) = Connection::of(direction, packet) else { return Verdict::Pass };
        let flagged = packet.reserved_flag;
        let Some(segment) = packet.tcp() else { return Verdict::Pass };
        let noted = self.connections.observe(now, direction, connection, segment);
        let state = noted.value;
        state.over = noted.is_over;
        match direction {
            Direction::Outgoing => {
                state.last_sent.note(packet, segment);
                state.round_trip.note_outgoing(now, segment);
                state.strip_dsack(packet);
                if matches!(state.phase, Phase::Frozen { .. } | Phase::Cut) {
                    state.close_window(connection, packet, &mut self.out);
                }
                mark(&self.config, packet);
            }
            Direction::Incoming => {
                state.round_trip.note_incoming(now, segment);
                let was_probe = state.is_probe(segment);
                state.hear(now, segment);
                if self.config.ip_flag && flagged && !segment.payload.is_empty() {
                    if matches!(state.phase, Phase::Frozen { .. } | Phase::Cut) {
                        state.thaw(now, connection, false, &mut self.out);
                    }
                } else if self.config.thaw_on_probe
                    && was_probe
                    && state.last_sent.window().is_some_and(|window| window > 0)
                {
                    state.thaw(now, connection, false, &mut self.out);
                } else if !segment.payload.is_empty() {
                    let warning = self.warning.filter(|warning| now < warning.until);
                    state.on_data(now, connection, warning, &self.config, &mut self.out);
                }
            }
        }
        Verdict::Pass
    }

    fn handle_link(&mut self, now: Instant, event: LinkEvent) {
        match event {
            LinkEvent::Fading { lead } => self.on_fading(now, lead),
            LinkEvent::Down => self.on_down(now),
            LinkEvent::Recovered => self.on_connected(now, true),
            LinkEvent::Up { .. } => self.on_connected(now, self.config.update_at_up),
        }
    }

    fn handle_timeout(&mut self, now: Instant) {
        // Work caused at `now` waits for the next call: the host's TCP is first.
        let due: Vec<Connection> = core::iter::from_fn(|| self.out.agenda.take_due(now)).collect();
        for connection in due {
            let Some(state) = self.connections.get_mut(connection) else { continue };
            state.due = None;
            state.on_deadline(now, connection, self.warning, &self.config, &mut self.out);
        }
    }

    fn poll_transmit(&mut self, _now: Instant) -> Option<Injected> {
        self.out.ready.pop_front()
    }

    fn poll_action(&mut self) -> Option<Action> {
        self.out.actions.pop_front()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.out.agenda.next()
    }

    fn fork(&self) -> Option<Box<dyn SegmentFilter>> {
        Some(Box::new(self.clone()))
    }
}

/// Sets the flag on a segment with a zero window.
fn mark(config: &FreezeConfig, packet: &mut Packet) {
    let shuts = packet.tcp().is_some_and(|segment| {
        let flags = segment.flags;
        segment.window == 0 && flags.contains(Flags::ACK) && !flags.intersects(Flags::SYN | Flags::RST)
    });
    if config.ip_flag && shuts && packet.dst.is_ipv4() {
        packet.reserved_flag = true;
    }
}

/// The state machine of one connection.
impl State {
    /// Handles a warning, new or repeated.
    fn warn(&mut self, now: Instant, connection: Connection, warning: Warning, config: &FreezeConfig, out: &mut Out) {
        match &mut self.phase {
            Phase::Frozen { until, latest, .. } => *until = warning.until.min(*latest),
            Phase::Open | Phase::Waiting { .. } => {
                let from = self.freezes_at(warning, config);
                let worthwhile = self.flows(now, config) && self.in_vain != Some(warning.at) && from < warning.until;
                if worthwhile && from <= now {
                    return self.freeze(now, connection, warning, config, out);
                }
                self.phase = if worthwhile { Phase::Waiting { from } } else { Phase::Open };
            }
            Phase::Cut => {}
        }
        self.reschedule(connection, out);
    }

    fn flows(&self, now: Instant, config: &FreezeConfig) -> bool {
        !self.over && self.data_at.is_some_and(|at| now.saturating_since(at) <= config.flowing)
    }

    fn freezes_at(&self, warning: Warning, config: &FreezeConfig) -> Instant {
        let period = match config.warning {
            WarningPeriod::WholeLead => return warning.at,
            WarningPeriod::Adaptive { .. } => return warning.at + self.postponement,
            WarningPeriod::Fixed(period) => Some(period),
            WarningPeriod::RoundTrips(count) => {
                self.round_trip.smoothed().map(|rtt| Duration::from_secs_f64(rtt.as_secs_f64() * count))
            }
        };
        period.zip(warning.cut_at).map_or(warning.at, |(period, cut_at)| cut_at - period)
    }

    fn freeze(&mut self, now: Instant, connection: Connection, warning: Warning, config: &FreezeConfig, out: &mut Out) {
        self.phase = Phase::Frozen { since: now, until: warning.until, latest: warning.until + config.patience };
        self.owed = config.at_once;
        if self.owed > 0 {
            if config.ask_after.is_some() {
                self.prompt(connection, out);
            }
            self.repeat_at = Some(now + config.ask_after.unwrap_or(Duration::ZERO));
        }
        out.actions.push_back(Action { at: now, connection, mechanism: Freeze::NAME, what: "froze" });
        self.reschedule(connection, out);
    }

    fn thaw(&mut self, now: Instant, connection: Connection, update: bool, out: &mut Out) {
        let was_frozen = matches!(self.phase, Phase::Frozen { .. } | Phase::Cut);
        self.phase = Phase::Open;
        (self.owed, self.repeat_at, self.ask_at) = (0, None, None);
        if was_frozen {
            // Silence behind a closed window is not a round trip.
            self.round_trip.forget_pending();
            out.actions.push_back(Action { at: now, connection, mechanism: Freeze::NAME, what: "thawed" });
            if update && !self.over {
                out.say(self.last_sent.repeat(connection));
            }
        }
        self.reschedule(connection, out);
    }

    /// The answer to a prompt reports its byte by DSACK. The peer has not repeated that.
    fn strip_dsack(&mut self, packet: &mut Packet) {
        let Some(end) = self.prompted else { return };
        let Some(segment) = tcp_mut(packet) else { return };
        let blocks = &mut segment.options.sack;
        if blocks.as_slice().first() == Some(&SeqRange::new(end - 1, end)) {
            *blocks = blocks.iter().skip(1).collect();
            self.prompted = None;
        }
    }

    /// The host's TCP sends while frozen.
    fn close_window(&mut self, connection: Connection, packet: &mut Packet, out: &mut Out) {
        let Some(segment) = tcp_mut(packet) else { return };
        if segment.flags.contains(Flags::SYN) || !segment.flags.contains(Flags::ACK) {
            return;
        }
        segment.window = 0;
        self.ask_at = None;
        self.owed = self.owed.saturating_sub(1);
        if self.owed == 0 {
            self.repeat_at = None;
        }
        self.reschedule(connection, out);
    }

    fn on_data(
        &mut self,
        now: Instant,
        connection: Connection,
        warning: Option<Warning>,
        config: &FreezeConfig,
        out: &mut Out,
    ) {
        self.data_at = Some(now);
        match self.phase {
            // Data has begun to flow only now, or the connection thawed too early.
            Phase::Open => {
                if let Some(warning) = warning {
                    self.warn(now, connection, warning, config, out);
                }
            }
            Phase::Frozen { .. } => {
                self.ask_at = self.ask_at.or(config.ask_after.map(|wait| now + wait));
                self.reschedule(connection, out);
            }
            Phase::Waiting { .. } | Phase::Cut => {}
        }
    }

    fn on_deadline(
        &mut self,
        now: Instant,
        connection: Connection,
        warning: Option<Warning>,
        config: &FreezeConfig,
        out: &mut Out,
    ) {
        match (self.phase, warning) {
            // Recomputed: the round trip may have grown since the warning.
            (Phase::Waiting { from }, Some(warning)) if from <= now => {
                return self.warn(now, connection, warning, config, out);
            }
            (Phase::Frozen { until, .. }, warning) if until <= now => {
                self.in_vain = warning.map(|warning| warning.at);
                return self.thaw(now, connection, true, out);
            }
            _ => {}
        }
        if self.repeat_at.is_some_and(|at| at <= now) {
            self.repeat_at = None;
            for _ in 0..core::mem::take(&mut self.owed) {
                let mut packet = self.last_sent.repeat(connection).filter(|_| !self.over);
                if let Some(packet) = &mut packet {
                    tcp_mut(packet).into_iter().for_each(|segment| segment.window = 0);
                    mark(config, packet);
                }
                out.say(packet);
            }
        }
        if self.ask_at.is_some_and(|at| at <= now) {
            self.ask_at = None;
            self.prompt(connection, out);
        }
        self.reschedule(connection, out);
    }

    /// Prompts the host's TCP to acknowledge its data.
    fn prompt(&mut self, connection: Connection, out: &mut Out) {
        let (Some(acked), Some(heard), false) = (self.last_sent.ack(), self.heard, self.over) else { return };
        let segment = Segment {
            src_port: connection.remote.port(),
            dst_port: connection.local.port(),
            seq: acked - 1,
            ack: heard.ack,
            flags: Flags::ACK,
            window: heard.window,
            urgent: 0,
            options: TcpOptions { timestamps: heard.timestamps, ..TcpOptions::default() },
            payload: Bytes::from_static(&[0]),
        };
        self.prompted = Some(acked);
        let packet = Packet::new(connection.remote.ip(), connection.local.ip(), segment);
        out.ready.push_back(Injected { direction: Direction::Incoming, packet });
    }

    fn hear(&mut self, now: Instant, segment: &Segment) {
        if segment.flags.contains(Flags::ACK) {
            self.heard = Some(PeerNumbers {
                ack: self.heard.map_or(segment.ack, |heard| heard.ack.max(segment.ack)),
                window: segment.window,
                timestamps: segment.options.timestamps,
            });
        }
        if !segment.payload.is_empty() {
            self.data_at = Some(now);
        }
    }

    /// Whether the peer probes the window: a segment without data below it (Linux), or one byte at it (RFC 9293 section
    /// 3.8.6.1).
    fn is_probe(&self, segment: &Segment) -> bool {
        if !matches!(self.phase, Phase::Frozen { .. } | Phase::Cut) || self.owed > 0 {
            return false;
        }
        match segment.payload.len() {
            0 => self.last_sent.ack().is_some_and(|acked| segment.seq + 1 == acked),
            1 => self.last_sent.ack() == Some(segment.seq),
            _ => false,
        }
    }

    /// [`WarningPeriod::Adaptive`]: learns from the cut.
    fn learn(&mut self, now: Instant, warning: Warning, config: &FreezeConfig) {
        let WarningPeriod::Adaptive { step } = config.warning else { return };
        let Some(round_trip) = self.round_trip.smoothed() else { return };
        let period = match self.phase {
            Phase::Frozen { since, .. } => now.saturating_since(since),
            // The freeze was planned so late that the cut came before.
            Phase::Open | Phase::Waiting { .. } if self.in_vain != Some(warning.at) && self.flows(now, config) => {
                Duration::ZERO
            }
            Phase::Open | Phase::Waiting { .. } | Phase::Cut => return,
        };
        if period < round_trip {
            self.postponement -= step;
        } else if period > round_trip {
            self.postponement += step;
        }
        // A wait longer than the time from warning to cut never freezes, and so never learns.
        self.postponement = self.postponement.min(now.saturating_since(warning.at));
    }

    fn reschedule(&mut self, connection: Connection, out: &mut Out) {
        let phase = match self.phase {
            Phase::Open | Phase::Cut => None,
            Phase::Waiting { from } => Some(from),
            Phase::Frozen { until, .. } => Some(until),
        };
        let due = [phase, self.repeat_at, self.ask_at].into_iter().flatten().min();
        out.agenda.set(connection, &mut self.due, due);
    }
}

impl Out {
    fn say(&mut self, packet: Option<Packet>) {
        self.ready.extend(packet.map(|packet| Injected { direction: Direction::Outgoing, packet }));
    }
}
