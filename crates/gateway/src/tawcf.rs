//! **TCP advertised window control functions** (Onoe et al. 2001, as the thesis on Freeze-TCP describes them in sections 3.3, 4.6 and
//! 6.2): a base station measures the signal of a mobile host and stops sending to it in time.
//!
//! - **Buffering.** When the signal falls below the threshold, TCP packets for the host stay in a FIFO. If the signal recovers, they are
//!   released.
//! - **Freezing.** If the signal stays low for [`TawcfConfig::low_for`], the base station sends the fixed host an ACK with a window of
//!   zero, so that it goes into persist mode and keeps its congestion window. It is unfrozen when the host is present again.
//! - **Forwarding.** When the host has attached to another base station, the old one forwards the FIFO to it (Mobile IP's binding update
//!   starts this).
//! - **Sequencing.** Forwarded packets and those that arrive directly from the fixed host may overtake each other. For a while after a
//!   handoff the new base station holds segments that arrive out of order.
//!
//! The threshold can be lower than that of Freeze-TCP: a warning has to travel from the mobile host to the base station only, and packets
//! in flight in the fixed network at that time are buffered.
//!
//! # Where the thesis is silent
//!
//! - **The threshold** is applied by the link layer, which reports [`Presence::Fading`], or [`Presence::Away`] without a prediction.
//!   [`Presence::Present`] means a signal above the threshold.
//! - **Other protocols.** Their packets pass: among them are the registrations that end a handoff.
//! - **Limits.** Beyond [`TawcfConfig::buffer_bytes`] for each host, packets are dropped on arrival; after [`TawcfConfig::longest`] the
//!   oldest are dropped.
//! - **Frozen connections** are all those on which the fixed host has sent data through this base station. The ACK is the mobile host's
//!   last, with a window of zero. Before the first one, the connection is not frozen.
//! - **Zero-window probes** are answered with the same ACK and not kept, so that the fixed host does not count them as unanswered.
//! - **ACKs of the mobile host** that still arrive while the fixed host is frozen are forwarded with a window of zero: the fixed host is
//!   not unfrozen too early (section 6.2.2).
//! - **Unfreezing** is left to the mobile host's ACKs of the data released (section 6.2.2). If no data of the connection were kept, the
//!   base station repeats the last ACK with its own window; after a handoff the old one does, as the new one does not know that the fixed
//!   host is frozen. An ACK of nothing new would make BSD senders go back to it, and retransmit the data that was just released.
//! - **The FIFO is released** all at once, as in the description of the binding update (section 4.6.6).
//! - **The sequencer** works for [`TawcfConfig::fresh`] after a mobile host has arrived from another base station. The mobile host's ACKs
//!   and the forwarded segments show the next sequence number. Before it is known, segments are held for [`TawcfConfig::hold`]; then the
//!   first of them is the next. After a hole, segments are held until it is filled, or nothing has filled any of it for that long, or the
//!   held segments exceed the buffer.
//! - **A handoff without an announcement** starts the sequencer only if the host has left this base station before, or has never been
//!   there.

use core::net::IpAddr;
use std::collections::{BTreeMap, VecDeque};

use holdover_base::{Duration, Instant};
use holdover_filter::{
    Action, Agenda, Connection, Direction, Injected, LastSent, LinkEvent, Presence, SegmentFilter, Stored, Table,
    Verdict, tcp_mut,
};
use holdover_wire::{Flags, Packet, Segment, Seq};

use crate::cache::Cache;
use crate::supervisor::is_probe;

/// The parameters of the base station. See the [module](self).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TawcfConfig {
    /// The most bytes buffered for one mobile host, and the most that the sequencer holds of one connection, with
    /// headers.
    pub buffer_bytes: usize,
    /// The longest time that a packet is buffered.
    pub longest: Duration,
    /// How long the signal is low before the fixed host is frozen; `None` to buffer only.
    pub low_for: Option<Duration>,
    /// How long after a handoff the sequencer works; zero to disable it.
    pub fresh: Duration,
    /// How long the sequencer holds segments while none arrives in order; more than the difference between the paths
    /// through the two base stations.
    pub hold: Duration,
}

impl Default for TawcfConfig {
    /// 256 kB for each host, kept for 120 s at most, the longest that TCP waits between two retransmissions. The fixed host is frozen
    /// after 100 ms. The sequencer works for 1 s, and holds segments for 20 ms.
    fn default() -> Self {
        Self {
            buffer_bytes: 256_000,
            longest: Duration::from_secs(120),
            low_for: Some(Duration::from_millis(100)),
            fresh: Duration::from_secs(1),
            hold: Duration::from_millis(20),
        }
    }
}

impl TawcfConfig {
    /// Why the mechanism would do nothing, if so.
    pub(crate) fn why_idle(&self) -> Option<&'static str> {
        (self.buffer_bytes == 0 || self.longest == Duration::ZERO).then_some("it keeps nothing")
    }
}

/// The filter of a base station. See the [module](self).
#[derive(Debug)]
pub struct Tawcf {
    config: TawcfConfig,
    connections: Table<State>,
    agenda: Agenda,
    mobiles: BTreeMap<IpAddr, Mobile>,
    out: Out,
}

#[derive(Default, Debug)]
struct Out {
    ready: VecDeque<Injected>,
    dropped: VecDeque<Packet>,
    actions: VecDeque<Action>,
}

/// The state of a mobile host that is or was here.
#[derive(Clone, Default, Debug)]
struct Mobile {
    signal: Signal,
    /// Buffered packets, with their arrival.
    fifo: VecDeque<(Instant, Packet)>,
    bytes: usize,
    /// When the fixed hosts are frozen.
    freeze_at: Option<Instant>,
    /// Until when the sequencer works.
    fresh_until: Option<Instant>,
}

#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
enum Signal {
    /// Without a report.
    #[default]
    Unknown,
    /// Above the threshold.
    High,
    /// Below the threshold, or absent.
    Low,
}

/// A connection of a mobile host.
#[derive(Clone, Default, Debug)]
struct State {
    /// The mobile host's last ACK.
    last_ack: LastSent,
    /// Whether the fixed host has sent data.
    carries_data: bool,
    /// Whether the fixed host was sent a zero window.
    frozen: bool,
    /// Whether data are in the FIFO.
    waits: bool,
    /// The mobile host's RCV.NXT, for the sequencer.
    next: Option<Seq>,
    /// Segments out of order.
    held: Cache,
    /// The latest time of their release.
    due: Option<Instant>,
}

impl Tawcf {
    /// The name in scenario files.
    pub const NAME: &'static str = "tawcf";

    /// A base station without state.
    pub fn new(config: TawcfConfig) -> Self {
        Self {
            config,
            connections: Table::default(),
            agenda: Agenda::default(),
            mobiles: BTreeMap::new(),
            out: Out::default(),
        }
    }

    /// Buffered bytes for `mobile`, with headers.
    pub fn waiting_bytes(&self, mobile: IpAddr) -> usize {
        self.mobiles.get(&mobile).map_or(0, |mobile| mobile.bytes)
    }

    /// Bytes that the sequencer holds of all connections, with headers.
    pub fn held_bytes(&self) -> usize {
        self.connections.live().map(|(_, state)| state.held.bytes()).sum()
    }

    fn handle_from_fixed(&mut self, now: Instant, connection: Connection, packet: &Packet) -> Verdict {
        let Self { config, connections, agenda, mobiles, out } = self;
        let Some(segment) = packet.tcp() else { return Verdict::Pass };
        let noted = connections.observe(now, Direction::Outgoing, connection, segment);
        let (state, is_over) = (noted.value, noted.is_over);
        let mobile = mobiles.get_mut(&packet.dst);
        if is_over || segment.flags.intersects(Flags::SYN | Flags::RST) {
            state.release(agenda, connection, &mut out.ready);
            *state = State::default();
        } else {
            state.carries_data |= segment.seq_len() > 0;
        }
        let Some(mobile) = mobile else { return Verdict::Pass };
        if mobile.signal == Signal::Low {
            if state.frozen && is_probe(state.last_ack.ack(), segment) {
                let answer = state.ack_to_fixed(connection, Some(0));
                out.ready.extend(answer.map(|packet| Injected { direction: Direction::Incoming, packet }));
                return Verdict::Keep;
            }
            let verdict = mobile.keep(now, config, packet);
            state.waits |= verdict == Verdict::Keep && segment.seq_len() > 0;
            return verdict;
        }
        if segment.seq_len() == 0 || segment.flags.contains(Flags::SYN) {
            return Verdict::Pass;
        }
        if mobile.is_fresh(now) || !state.held.is_empty() {
            return state.sequence(now, config, agenda, connection, packet, segment, &mut out.ready);
        }
        Verdict::Pass
    }

    fn handle_from_mobile(&mut self, now: Instant, connection: Connection, packet: &mut Packet) -> Verdict {
        let Self { config, connections, agenda, out, .. } = self;
        let Some(segment) = packet.tcp() else { return Verdict::Pass };
        let noted = connections.observe(now, Direction::Incoming, connection, segment);
        let (state, is_over) = (noted.value, noted.is_over);
        if is_over || segment.flags.intersects(Flags::SYN | Flags::RST) || !segment.flags.contains(Flags::ACK) {
            state.release(agenda, connection, &mut out.ready);
            *state = State::default();
            return Verdict::Pass;
        }
        if state.last_ack.ack().is_none_or(|last| segment.ack.ge(last)) {
            state.last_ack.note(packet, segment);
        }
        let next = state.next.map_or(segment.ack, |next| next.max(segment.ack));
        if state.next.replace(next) != Some(next) {
            state.release_in_order(now, config, agenda, connection, &mut out.ready);
        }
        if state.frozen
            && let Some(segment) = tcp_mut(packet)
        {
            segment.window = 0;
        }
        Verdict::Pass
    }

    fn handle_low_signal(&mut self, now: Instant, address: IpAddr) {
        let Self { config, connections, agenda, mobiles, out } = self;
        let mobile = mobiles.entry(address).or_default();
        if mobile.signal == Signal::Low {
            return;
        }
        mobile.signal = Signal::Low;
        mobile.freeze_at = config.low_for.map(|low_for| now + low_for);
        mobile.fresh_until = None;
        // Segments in the sequencer precede later ones.
        for (connection, state) in of_mobile(connections, address) {
            agenda.set(connection, &mut state.due, None);
            while let Some(held) = state.held.pop_first() {
                match mobile.keep(now, config, &held.packet) {
                    Verdict::Keep => state.waits = true,
                    _ => out.dropped.push_back(held.packet),
                }
            }
        }
    }

    fn handle_present(&mut self, now: Instant, address: IpAddr) {
        let Self { config, connections, mobiles, out, .. } = self;
        let mobile = mobiles.entry(address).or_default();
        if core::mem::replace(&mut mobile.signal, Signal::High) == Signal::Unknown {
            mobile.fresh_until = Some(now + config.fresh);
        }
        mobile.freeze_at = None;
        mobile.release(&mut out.ready);
        for (connection, state) in of_mobile(connections, address) {
            state.unfreeze(now, connection, out);
        }
    }

    fn handle_moved(&mut self, now: Instant, address: IpAddr) {
        let Self { connections, agenda, mobiles, out, .. } = self;
        if let Some(mut mobile) = mobiles.remove(&address) {
            mobile.release(&mut out.ready);
        }
        for (connection, state) in of_mobile(connections, address) {
            state.release(agenda, connection, &mut out.ready);
            state.unfreeze(now, connection, out);
            *state = State::default();
        }
    }
}

/// The connections of one mobile host.
fn of_mobile(connections: &mut Table<State>, mobile: IpAddr) -> impl Iterator<Item = (Connection, &mut State)> {
    connections.live_mut().filter(move |(connection, _)| connection.mobile().ip() == mobile)
}

impl Mobile {
    fn keep(&mut self, now: Instant, config: &TawcfConfig, packet: &Packet) -> Verdict {
        let len = packet.wire_len();
        if self.bytes + len > config.buffer_bytes {
            return Verdict::Drop;
        }
        self.bytes += len;
        self.fifo.push_back((now, packet.clone()));
        Verdict::Keep
    }

    fn pop(&mut self) -> Option<Packet> {
        let (_, packet) = self.fifo.pop_front()?;
        self.bytes -= packet.wire_len();
        Some(packet)
    }

    fn release(&mut self, ready: &mut VecDeque<Injected>) {
        let packets = core::iter::from_fn(|| self.pop());
        ready.extend(packets.map(|packet| Injected { direction: Direction::Outgoing, packet }));
    }

    fn is_fresh(&self, now: Instant) -> bool {
        self.fresh_until.is_some_and(|until| now < until)
    }

    /// When the first packet expires.
    fn expires_at(&self, config: &TawcfConfig) -> Option<Instant> {
        self.fifo.front().map(|&(came_at, _)| came_at + config.longest)
    }
}

impl State {
    /// Passes a segment through the sequencer.
    #[expect(clippy::too_many_arguments, reason = "the parts of the filter beside the state")]
    fn sequence(
        &mut self,
        now: Instant,
        config: &TawcfConfig,
        agenda: &mut Agenda,
        connection: Connection,
        packet: &Packet,
        segment: &Segment,
        ready: &mut VecDeque<Injected>,
    ) -> Verdict {
        if self.next.is_some_and(|next| segment.seq.le(next)) {
            let end = segment.seq + segment.seq_len();
            self.next = self.next.map(|next| next.max(end));
            if self.held.is_empty() {
                return Verdict::Pass;
            }
            ready.push_back(Injected { direction: Direction::Outgoing, packet: packet.clone() });
            self.release_in_order(now, config, agenda, connection, ready);
            return Verdict::Keep;
        }
        self.held.insert(now, packet);
        if self.held.bytes() > config.buffer_bytes {
            self.release(agenda, connection, ready);
        } else if self.due.is_none() {
            agenda.set(connection, &mut self.due, Some(now + config.hold));
        }
        Verdict::Keep
    }

    /// Releases held segments that are next in order. The others are held for as long again.
    fn release_in_order(
        &mut self,
        now: Instant,
        config: &TawcfConfig,
        agenda: &mut Agenda,
        connection: Connection,
        ready: &mut VecDeque<Injected>,
    ) {
        while let Some((first, next)) = self.held.first().zip(self.next)
            && first.seq.le(next)
        {
            self.next = Some(next.max(first.end));
            self.release_first(ready);
        }
        let due = (!self.held.is_empty()).then(|| now + config.hold);
        agenda.set(connection, &mut self.due, due);
    }

    /// Releases all held segments.
    fn release(&mut self, agenda: &mut Agenda, connection: Connection, ready: &mut VecDeque<Injected>) {
        while let Some(first) = self.held.first() {
            self.next = Some(self.next.map_or(first.end, |next| next.max(first.end)));
            self.release_first(ready);
        }
        agenda.set(connection, &mut self.due, None);
    }

    fn release_first(&mut self, ready: &mut VecDeque<Injected>) {
        let first = self.held.pop_first();
        ready.extend(first.map(|held| Injected { direction: Direction::Outgoing, packet: held.packet }));
    }

    fn freeze(&mut self, now: Instant, connection: Connection, out: &mut Out) {
        if self.frozen || !self.carries_data {
            return;
        }
        if let Some(packet) = self.ack_to_fixed(connection, Some(0)) {
            self.frozen = true;
            out.ready.push_back(Injected { direction: Direction::Incoming, packet });
            out.actions.push_back(Action { at: now, connection, mechanism: Tawcf::NAME, what: "froze" });
        }
    }

    fn unfreeze(&mut self, now: Instant, connection: Connection, out: &mut Out) {
        let waited = core::mem::take(&mut self.waits);
        if !core::mem::take(&mut self.frozen) {
            return;
        }
        let packet = self.ack_to_fixed(connection, None).filter(|_| !waited);
        out.ready.extend(packet.map(|packet| Injected { direction: Direction::Incoming, packet }));
        out.actions.push_back(Action { at: now, connection, mechanism: Tawcf::NAME, what: "unfroze" });
    }

    /// The mobile host's last ACK, optionally with another window.
    fn ack_to_fixed(&self, connection: Connection, window: Option<u16>) -> Option<Packet> {
        let mut packet = self.last_ack.repeat(connection.of_sender_going(Direction::Incoming))?;
        let segment = tcp_mut(&mut packet)?;
        segment.window = window.unwrap_or(segment.window);
        Some(packet)
    }
}

impl SegmentFilter for Tawcf {
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
            Presence::Fading { .. } | Presence::Away => self.handle_low_signal(now, mobile),
            Presence::Present | Presence::Rebound => self.handle_present(now, mobile),
            Presence::Moved => self.handle_moved(now, mobile),
        }
    }

    fn handle_timeout(&mut self, now: Instant) {
        let Self { config, connections, agenda, mobiles, out } = self;
        while let Some(connection) = agenda.take_due(now) {
            let Some(state) = connections.get_mut(connection) else { continue };
            if state.due.take_if(|due| *due <= now).is_none() {
                continue;
            }
            match state.next {
                None => {
                    state.next = state.held.first().map(|first| first.seq);
                    state.release_in_order(now, config, agenda, connection, &mut out.ready);
                }
                Some(_) => state.release(agenda, connection, &mut out.ready),
            }
        }
        for (&address, mobile) in mobiles.iter_mut() {
            while mobile.expires_at(config).is_some_and(|at| at <= now) {
                out.dropped.extend(mobile.pop());
            }
            if mobile.freeze_at.take_if(|at| *at <= now).is_some() {
                for (connection, state) in of_mobile(connections, address) {
                    state.freeze(now, connection, out);
                }
            }
        }
    }

    fn poll_transmit(&mut self, _now: Instant) -> Option<Injected> {
        self.out.ready.pop_front()
    }

    fn poll_dropped(&mut self) -> Option<Packet> {
        self.out.dropped.pop_front()
    }

    fn poll_action(&mut self) -> Option<Action> {
        self.out.actions.pop_front()
    }

    fn stored(&self) -> Stored {
        let waiting: usize = self.mobiles.values().map(|mobile| mobile.bytes).sum();
        Stored::of_connections(self.connections.live().map(|(_, state)| state.held.bytes()))
            + Stored { bytes: waiting as u64, connections: 0 }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let of_mobile =
            |mobile: &Mobile| [mobile.freeze_at, mobile.expires_at(&self.config)].into_iter().flatten().min();
        self.mobiles.values().filter_map(of_mobile).chain(self.agenda.next()).min()
    }
}
