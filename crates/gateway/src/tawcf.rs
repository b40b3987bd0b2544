//! **TCP advertised window control functions** (Onoe et al. 2001, as the thesis on Freeze-TCP describes them in sections 3.3, 4.6 and
//! 6.2): a base station measures the signal of a mobile host and stops sending to it in time.
//!
//! - **Buffering.** When the signal falls below the threshold, TCP packets for the host stay in a FIFO. If the signal recovers, they are
//!   released.
//! - **Freezing.** If the signal stays low for [`TawcfConfig::low_for`], the base station sends the fixed host an ACK with a window of
//!   zero, so that it goes into persist mode and keeps its congestion window. It is thawed when the host is present again.
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
//! - **Frozen connections** are those on which the fixed host has sent data through this base station lately, or awaits an ACK. The ACK is
//!   the mobile host's last, with a window of zero. Before the first one, the connection is not frozen.
//! - **Zero-window probes** are answered with the same ACK and not kept, so that the fixed host does not count them as unanswered.
//! - **ACKs of the mobile host** that still arrive while the fixed host is frozen are withheld: the fixed host is not thawed too early
//!   (section 6.2.2).
//! - **Thawing** is left to the mobile host's ACKs of the data released (section 6.2.2). If no data of the connection were kept, or all expired, the
//!   base station repeats the last ACK with its own window; after a handoff the old one does, as the new one does not know that the fixed
//!   host is frozen. An ACK of nothing new would make BSD senders go back to it, and retransmit the data that was just released.
//! - **The FIFO is released** all at once, as in the description of the binding update (section 4.6.6).
//! - **The sequencer** works for [`TawcfConfig::fresh`] after a mobile host has arrived from another base station. The mobile host's ACKs
//!   and the forwarded segments show the next sequence number. Before it is known, segments are held for [`TawcfConfig::hold`]; then the
//!   first of them is the next. After a hole, segments are held until it is filled, or nothing has filled any of it for that long, or the
//!   held segments exceed the buffer.
//! - **A handoff without an announcement** starts the sequencer only if the host has left this base station before, or has never been
//!   there.
//!
//! [`FreezeControl`](crate::freeze::FreezeControl) freezes and thaws the connections over the flow path, as in the gateway's daemon.

use core::net::IpAddr;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use holdover_base::{Duration, Instant};
use holdover_filter::{
    Action, Agenda, Connection, Direction, Injected, LinkEvent, Presence, SegmentFilter, Stored, Verdict,
};
use holdover_flow::{Holds, Rules};
use holdover_wire::{Flags, Packet, Segment, Seq};

use crate::cache::Cache;
use crate::fifo::Fifo;
use crate::flow_path::{FlowPath, Treatment};
use crate::freeze::FreezeConfig;
use crate::prefixes::Prefixes;

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
    path: FlowPath<State>,
    agenda: Agenda,
    mobiles: BTreeMap<IpAddr, Mobile>,
    out: Out,
}

#[derive(Default, Debug)]
struct Out {
    ready: VecDeque<Injected>,
    dropped: VecDeque<Packet>,
}

/// The state of a mobile host that is or was here.
#[derive(Clone, Default, Debug)]
struct Mobile {
    signal: Signal,
    fifo: Fifo<Packet>,
    /// When the fixed hosts are frozen.
    freeze_at: Option<Instant>,
    /// Until when the sequencer works.
    fresh_until: Option<Instant>,
}

#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
enum Signal {
    /// No report yet.
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
        let freeze = FreezeConfig { holds: Holds::Nothing, outlives_retries: false, ..FreezeConfig::buffer_freeze() };
        let rules = Rules::new(None, true, Duration::ZERO);
        Self {
            config,
            path: FlowPath::new(Self::NAME, Treatment::Freeze(freeze), rules, Prefixes::default()),
            agenda: Agenda::default(),
            mobiles: BTreeMap::new(),
            out: Out::default(),
        }
    }

    /// Buffered bytes for `mobile`, with headers.
    pub fn waiting_bytes(&self, mobile: IpAddr) -> usize {
        self.mobiles.get(&mobile).map_or(0, |mobile| mobile.fifo.bytes() as usize)
    }

    /// Bytes that the sequencer holds of all connections, with headers.
    pub fn held_bytes(&self) -> usize {
        self.path.live().map(|(_, state)| state.held.bytes()).sum()
    }

    fn handle_from_fixed(&mut self, now: Instant, connection: Connection, packet: &mut Packet) -> Verdict {
        let Self { config, path, agenda, mobiles, out } = self;
        let followed = path.follow_after(now, Direction::Outgoing, packet, |_, _, _| {});
        let verdict = followed.unwrap_or(Verdict::Pass);
        let Some(segment) = packet.tcp() else { return verdict };
        let mut own = path.get_both(connection).filter(|_| followed.is_some());
        if let Some((flow, state)) = &mut own
            && (flow.is_over() || segment.flags.intersects(Flags::SYN | Flags::RST))
        {
            state.release(agenda, connection, &mut out.ready);
            **state = State::default();
        }
        let Some(mobile) = mobiles.get_mut(&packet.dst).filter(|_| verdict == Verdict::Pass) else { return verdict };
        if mobile.signal == Signal::Low {
            let verdict = mobile.keep(now, config, packet);
            if let Some((_, state)) = own {
                state.waits |= verdict == Verdict::Keep && segment.seq_len() > 0;
            }
            return verdict;
        }
        if segment.seq_len() == 0 || segment.flags.contains(Flags::SYN) {
            return Verdict::Pass;
        }
        match own {
            Some((_, state)) if mobile.is_fresh(now) || !state.held.is_empty() => {
                state.sequence(now, config, agenda, connection, packet, segment, &mut out.ready)
            }
            _ => Verdict::Pass,
        }
    }

    fn handle_from_mobile(&mut self, now: Instant, connection: Connection, packet: &mut Packet) -> Verdict {
        let Self { config, path, agenda, out, .. } = self;
        let Some(segment) = packet.tcp() else { return Verdict::Pass };
        let is_ack = segment.flags.contains(Flags::ACK) && !segment.flags.intersects(Flags::SYN | Flags::RST);
        let ack = segment.ack;
        let followed = path.follow_after(now, Direction::Incoming, packet, |_, state, _| {
            let next = state.next.map_or(ack, |next| next.max(ack));
            if is_ack && state.next.replace(next) != Some(next) {
                state.release_in_order(now, config, agenda, connection, &mut out.ready);
            }
        });
        let Some(verdict) = followed else { return Verdict::Pass };
        if let Some((flow, state)) = path.get_both(connection)
            && (flow.is_over() || !is_ack)
        {
            state.release(agenda, connection, &mut out.ready);
            *state = State::default();
        }
        verdict
    }

    fn handle_low_signal(&mut self, now: Instant, address: IpAddr) {
        let Self { config, path, agenda, mobiles, out } = self;
        let mobile = mobiles.entry(address).or_default();
        if mobile.signal == Signal::Low {
            return;
        }
        mobile.signal = Signal::Low;
        mobile.freeze_at = config.low_for.map(|low_for| now + low_for);
        mobile.fresh_until = None;
        // Segments in the sequencer precede later ones.
        for (connection, state) in path.live_of_mut(address) {
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
        let Self { config, path, mobiles, out, .. } = self;
        let mobile = mobiles.entry(address).or_default();
        if core::mem::replace(&mut mobile.signal, Signal::High) == Signal::Unknown {
            mobile.fresh_until = Some(now + config.fresh);
        }
        mobile.freeze_at = None;
        mobile.release(&mut out.ready);
        thaw(now, address, path);
    }

    fn handle_moved(&mut self, now: Instant, address: IpAddr) {
        let Self { path, agenda, mobiles, out, .. } = self;
        if let Some(mut mobile) = mobiles.remove(&address) {
            mobile.release(&mut out.ready);
        }
        thaw(now, address, path);
        for connection in path.live_of(address) {
            if let Some(state) = path.value_mut(connection) {
                state.release(agenda, connection, &mut out.ready);
            }
            path.forget(connection);
        }
    }
}

/// The mobile host is present, or elsewhere. A connection whose data have waited is opened by its ACKs of them.
fn thaw(now: Instant, mobile: IpAddr, path: &mut FlowPath<State>) {
    for connection in path.live_of(mobile) {
        let waits = path.value_mut(connection).is_some_and(|state| core::mem::take(&mut state.waits));
        if !waits {
            path.freeze(mobile, |control, flows| control.thaw(now, connection, flows));
        }
    }
    path.freeze(mobile, |control, flows| control.end_absence(now, flows));
}

impl Mobile {
    fn keep(&mut self, now: Instant, config: &TawcfConfig, packet: &Packet) -> Verdict {
        let len = packet.wire_len();
        if self.fifo.bytes() as usize + len > config.buffer_bytes {
            return Verdict::Drop;
        }
        self.fifo.push(now, len as u32, packet.clone());
        Verdict::Keep
    }

    fn release(&mut self, ready: &mut VecDeque<Injected>) {
        let packets = core::iter::from_fn(|| self.fifo.pop());
        ready.extend(packets.map(|waited| Injected { direction: Direction::Outgoing, packet: waited.item }));
    }

    fn is_fresh(&self, now: Instant) -> bool {
        self.fresh_until.is_some_and(|until| now < until)
    }

    /// Drops packets that have waited for too long. Returns whether there were any.
    fn expire(&mut self, now: Instant, config: &TawcfConfig, dropped: &mut VecDeque<Packet>) -> bool {
        let before = self.fifo.len();
        while self.expires_at(config).is_some_and(|at| at <= now) {
            dropped.extend(self.fifo.pop().map(|waited| waited.item));
        }
        self.fifo.len() < before
    }

    /// The connections with data in the FIFO.
    fn waiting(&self) -> BTreeSet<Connection> {
        let has_data = |packet: &&Packet| packet.tcp().is_some_and(|segment| segment.seq_len() > 0);
        self.fifo.iter().filter(has_data).filter_map(|packet| Connection::of(Direction::Outgoing, packet)).collect()
    }

    /// When the first packet expires.
    fn expires_at(&self, config: &TawcfConfig) -> Option<Instant> {
        self.fifo.front().map(|head| head.came_at + config.longest)
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
        let Self { config, path, agenda, mobiles, out } = self;
        while let Some(connection) = agenda.take_due(now) {
            let Some(state) = path.value_mut(connection) else { continue };
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
            if mobile.expire(now, config, &mut out.dropped) {
                let waiting = mobile.waiting();
                for (connection, state) in path.live_of_mut(address) {
                    state.waits &= waiting.contains(&connection);
                }
            }
            if mobile.freeze_at.take_if(|at| *at <= now).is_some() {
                path.freeze(address, |control, flows| control.handle_away(now, flows));
            }
        }
        path.handle_timeout(now);
    }

    fn poll_transmit(&mut self, _now: Instant) -> Option<Injected> {
        self.out.ready.pop_front().or_else(|| self.path.poll_transmit())
    }

    fn poll_dropped(&mut self) -> Option<Packet> {
        self.out.dropped.pop_front()
    }

    fn poll_action(&mut self) -> Option<Action> {
        self.path.poll_action()
    }

    fn stored(&self) -> Stored {
        let waiting: u64 = self.mobiles.values().map(|mobile| mobile.fifo.bytes()).sum();
        Stored::of_connections(self.path.live().map(|(_, state)| state.held.bytes()))
            + Stored { bytes: waiting, connections: 0 }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let of_mobile =
            |mobile: &Mobile| [mobile.freeze_at, mobile.expires_at(&self.config)].into_iter().flatten().min();
        self.mobiles.values().filter_map(of_mobile).chain(self.agenda.next()).chain(self.path.poll_timeout()).min()
    }
}
