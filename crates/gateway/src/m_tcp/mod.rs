//! **M-TCP** (Brown and Singh 1997) at a supervisor host: connections are [split](crate::split), but acknowledged end to end. The half
//! towards the fixed host, *SH-TCP*, acknowledges one byte less than the mobile host (the paper's w'-1, section 4.1). So it always has new
//! data to acknowledge, and can shut the fixed host's window whenever the mobile host is cut off: the fixed host goes into persist mode,
//! and keeps its timers and its congestion window. The half towards the mobile host does not take silence for congestion: when its
//! retransmission timer expires, it freezes (section 4.2).
//!
//! | the paper | here |
//! | --- | --- |
//! | SH-TCP, states NOSHRINK, SHRUNK, RECOVERING (figure 4) | [`Split`]'s half towards the fixed host, steered by `Mtb::choke` and `Mtb::reopen` |
//! | M-TCP at the SH, states NOFREEZE, FROZEN (figure 5) | its half towards the mobile host, steered by `Mtb::freeze` and `Mtb::thaw` |
//! | the mobile host's *specially marked* ACK | `reconnect_acks` with `marked` at the mobile host; or [`Presence::Present`] |
//! | wintimer | the retransmission timeout of the half towards the mobile host, and 250 ms at least, started by a segment if it is not running |
//!
//! # Choices
//!
//! - **The first segments** are acknowledged whole ([`MTcpConfig::held_after_bytes`]).
//! - **An ordinary ACK that acknowledges nothing new** ends the freeze, too, and outstanding data is retransmitted. The paper does not
//!   retransmit; but the answer to a persist packet after an outage is such an ACK, and if the marked one was lost, neither side would ever
//!   send again.
//! - **The mark** is URG with an urgent pointer of 0 in a segment without data. The paper does not name the flags.
//! - **The congestion window towards the mobile host** grows by slow start and does not shrink at losses, as in the paper; it is bounded by
//!   the mobile host's window, and by the bandwidth module ([`MTcpConfig::bandwidth`], `bandwidth.rs`) if enabled. After an outage the
//!   window begins with four segments: the whole window at once would queue at the link behind earlier copies of most of it.
//! - **RECOVERING** is for senders that take back `snd_max` when they leave persist mode, as 4.4BSD does ([`MTcpConfig::pulls_back`]).
//!   Others may have nothing to send then, and would wait for the ACK of data that they have already sent.
//! - **From the mobile host to the fixed one**, the mobile host gets exactly the fixed host's acknowledgments.
//! - **Handoff to another supervisor host** ([`SplitConfig::handoff`], section 4.3): the new one requests the connections
//!   ([`crate::handoff`]), and buffered data stays at the old one.
//! - **Compression** ([`MTcpConfig::compression`], sections 4.2.1 and 6.3) is a model: packets to a mobile host count as shorter by the
//!   bytes saved, here in the bandwidth module, and on the links to the mobile host in a simulation.

mod bandwidth;
mod handoff;
mod mtb;

use core::net::IpAddr;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use holdover_base::{BitRate, Duration, Instant};
use holdover_filter::{
    Action, Agenda, Connection, ControlMessage, Direction, Injected, LinkEvent, Presence, SegmentFilter, Stored,
    Verdict, tcp_mut,
};
use holdover_wire::{Compression, Flags, Packet, Segment};

use crate::handoff::{Node, RecordKind};
use crate::split::{Side, Split, SplitConfig};
use bandwidth::Bandwidth;
use mtb::Mtb;

/// The parameters of the supervisor host. See the [module](self).
#[derive(Clone, PartialEq, Debug)]
pub struct MTcpConfig {
    /// How connections are split, and how they move between supervisor hosts: their buffers stay behind.
    pub split: SplitConfig,
    /// Whether fixed hosts pull back `snd_max` when they leave persist mode.
    pub pulls_back: bool,
    /// A byte is held back once this many bytes are acknowledged. A TCP that counts its window in segments, as Linux
    /// does, does not send with a window of one while a byte of the first segment is unacknowledged; 4.4BSD, which
    /// counts bytes, does.
    pub held_after_bytes: u32,
    /// The last byte is shown if the mobile host has everything and nothing more arrives for this long. In the paper
    /// wintimer shows it (section 5.3.2, case 2), which takes longer than current senders wait before they retransmit.
    pub flush: Duration,
    /// The least value of wintimer: longer than the mobile host may delay an ACK.
    pub least_timeout: Duration,
    /// The first interval between two persist packets to a mobile host, which doubles.
    pub persist_least: Duration,
    /// The longest interval.
    pub persist_most: Duration,
    /// The rate for one mobile host, shared among its connections (the bandwidth module); `None` without a limit.
    pub bandwidth: Option<BitRate>,
    /// Compression of each packet to a mobile host (section 4.2.1), which decompresses it; `None` without.
    pub compression: Option<Compression>,
}

impl MTcpConfig {
    /// Persist packets after 5, 10, 20, 40, 60 s (section 4.2), a wintimer of 250 ms at least, a byte held back after
    /// ten segments of 1460 bytes and for 40 ms at most when all is acknowledged, senders that do not pull back
    /// `snd_max`, no bandwidth module, no compression, and no handoff.
    pub fn with(split: SplitConfig) -> Self {
        Self {
            split,
            pulls_back: false,
            held_after_bytes: 14_600,
            flush: Duration::from_millis(40),
            least_timeout: Duration::from_millis(250),
            persist_least: Duration::from_secs(5),
            persist_most: Duration::from_secs(60),
            bandwidth: None,
            compression: None,
        }
    }

    /// Why the mechanism would do nothing, if so.
    pub(crate) fn why_idle(&self) -> Option<&'static str> {
        self.split.why_idle()
    }
}

/// The filter of a supervisor host. See the [module](self).
#[derive(Debug)]
pub struct MTcp {
    config: MTcpConfig,
    split: Split,
    flows: BTreeMap<Connection, Mtb>,
    agenda: Agenda,
    /// The bandwidth module, if enabled.
    bandwidth: Option<Bandwidth>,
    /// Mobile hosts that are present, as reported by the layers below.
    here: BTreeSet<IpAddr>,
    /// Packets that pass unchanged after a wait, and resets.
    ready: VecDeque<Injected>,
    actions: VecDeque<Action>,
}

impl MTcp {
    /// The name in scenario files.
    pub const NAME: &'static str = "m_tcp";

    /// A supervisor host without state. Initial sequence numbers are derived from `secret`.
    pub fn new(config: MTcpConfig, secret: [u8; 16]) -> Self {
        Self {
            split: Split::exchanging(RecordKind::Bare, config.split.clone(), secret),
            bandwidth: config.bandwidth.map(|rate| Bandwidth::new(rate, config.compression)),
            config,
            flows: BTreeMap::new(),
            agenda: Agenda::default(),
            here: BTreeSet::new(),
            ready: VecDeque::new(),
            actions: VecDeque::new(),
        }
    }

    /// Whether the fixed host's window is shut, and the half towards the mobile host frozen.
    pub fn is_choked(&self, connection: Connection) -> Option<(bool, bool)> {
        self.flows.get(&connection).map(|flow| (flow.shrunk, flow.persist.is_some()))
    }

    /// Handles a segment of the fixed host.
    fn note_fixed(&mut self, now: Instant, connection: Connection, segment: &Segment) {
        let timeout = self.split.half(connection, Side::Mobile).map(holdover_tcp::Connection::rto);
        let flow = self.flows.entry(connection).or_default();
        if segment.seq_len() == 0 || segment.flags.contains(Flags::SYN) {
            return;
        }
        let end = segment.seq + segment.seq_len();
        flow.recovering = flow.recovering.map(|seen| seen.max(end));
        if flow.wintimer_at.is_none() && !flow.shrunk {
            flow.wintimer_at = timeout.map(|timeout| now + timeout.max(self.config.least_timeout));
        }
        (flow.shows_all, flow.flush_at) = (false, None);
    }

    /// Handles a segment of the mobile host: `is_new` if it acknowledges new data, `is_marked` if it was cut off.
    fn note_mobile(&mut self, now: Instant, connection: Connection, is_new: bool, is_marked: bool) {
        let Some(flow) = self.flows.get_mut(&connection) else { return };
        let was_frozen = flow.persist.is_some();
        if was_frozen || is_marked {
            flow.thaw(now, connection, &mut self.split, is_marked || !is_new, &mut self.actions);
        }
        let half = self.split.half(connection, Side::Mobile);
        let timeout = half.filter(|half| half.snd_una().lt(half.snd_nxt())).map(holdover_tcp::Connection::rto);
        // With nothing outstanding, as after a handoff, there is nothing new to acknowledge.
        if is_new || is_marked || was_frozen && timeout.is_none() {
            flow.wintimer_at = timeout.map(|timeout| now + timeout.max(self.config.least_timeout));
            // All data is acknowledged, and the last byte held back: the fixed host may have no more to send.
            flow.flush_at = timeout.is_none().then_some(now + self.config.flush);
            if flow.shrunk {
                flow.reopen(now, connection, &mut self.split, self.config.pulls_back, &mut self.actions);
            }
        }
    }

    /// Whether a packet is an ACK of nothing new, caused by data that the far end does not have yet (*pass to M-TCP, do
    /// not acknowledge*). Its receiver would take it for a duplicate. Answers to probes do not count.
    fn is_premature(&mut self, side: Side, packet: &Packet) -> bool {
        let Some(connection) = Connection::of(side.direction(), packet) else { return false };
        let (Some(segment), Some(flow)) = (packet.tcp(), self.flows.get_mut(&connection)) else { return false };
        let shown = Some((segment.ack, segment.window));
        let at = side as usize;
        let is_repeated = flow.shown[at] == shown && segment.is_pure_ack() && flow.data_came[at];
        flow.shown[at] = shown;
        is_repeated && self.split.half(connection, side).is_some_and(|half| segment.ack.lt(half.rcv_nxt()))
    }

    /// Updates each half's ACK to what the far end has acknowledged to the other half.
    fn settle(&mut self, now: Instant, connection: Connection) {
        self.split.advance(now);
        let Some(flow) = self.flows.get_mut(&connection) else { return };
        if self.split.half(connection, Side::Fixed).is_none() && self.split.half(connection, Side::Mobile).is_none() {
            self.forget(connection);
            return;
        }
        flow.find_beginnings(connection, &mut self.split);
        for side in Side::BOTH {
            flow.acknowledge(connection, &mut self.split, side, self.config.held_after_bytes);
        }
        if let Some(half) = self.split.half(connection, Side::Mobile) {
            let cwnd = half.cwnd();
            flow.cwnd = flow.cwnd.max(cwnd);
            if cwnd < flow.cwnd
                && let Some(half) = self.split.half_mut(connection, Side::Mobile)
            {
                half.set_cwnd(flow.cwnd);
            }
        }
        self.split.advance(now);
        let due = flow.next_deadline(connection, &self.split);
        self.agenda.set(connection, &mut flow.due, due);
    }

    /// The same for every connection with changes.
    fn settle_changed(&mut self, now: Instant) {
        for connection in self.split.take_changed() {
            self.settle(now, connection);
        }
        // Packets just sent are settled.
        self.split.take_changed();
    }

    fn forget(&mut self, connection: Connection) {
        if let Some(mut flow) = self.flows.remove(&connection) {
            self.agenda.set(connection, &mut flow.due, None);
        }
    }

    fn handle_due(&mut self, now: Instant, connection: Connection) {
        let Some(flow) = self.flows.get_mut(&connection) else { return };
        flow.due = None;
        if flow.silent_at(connection, &self.split).is_some_and(|at| at <= now) {
            flow.freeze(now, connection, &mut self.split, &self.config, &mut self.actions);
            self.discard_waiting(connection);
        }
        let Some(flow) = self.flows.get_mut(&connection) else { return };
        if flow.flush_at.take_if(|at| *at <= now).is_some() {
            flow.shows_all = true;
        }
        if flow.wintimer_at.take_if(|at| *at <= now).is_some() {
            flow.handle_wintimer(now, connection, &mut self.split, &mut self.actions);
        }
        if let Some((at, pause)) = flow.persist
            && at <= now
        {
            flow.persist = Some((now + pause, (pause * 2).min(self.config.persist_most)));
            // A segment that the mobile host has to answer: it is below RCV.NXT.
            if let Some(half) = self.split.half_mut(connection, Side::Mobile) {
                half.send_keep_alive();
            }
        }
        self.settle(now, connection);
    }
}

/// Removes the mark of an ACK. Returns whether it had one.
fn take_mark(packet: &mut Packet) -> bool {
    let Some(segment) = tcp_mut(packet) else { return false };
    let is_marked =
        segment.flags.contains(Flags::URG | Flags::ACK) && segment.urgent == 0 && segment.payload.is_empty();
    if is_marked {
        segment.flags.remove(Flags::URG);
    }
    is_marked
}

impl MTcp {
    /// Handles a packet of a connection that is split here, or that begins.
    fn handle_segment(
        &mut self,
        now: Instant,
        direction: Direction,
        connection: Connection,
        packet: &mut Packet,
    ) -> Verdict {
        let is_marked = direction == Direction::Incoming && take_mark(packet);
        let before = self.split.half(connection, Side::Mobile).map(holdover_tcp::Connection::snd_una);
        let from = Side::of_sender(direction);
        let expected = self.split.half(connection, from).map(holdover_tcp::Connection::rcv_nxt);
        let verdict = self.split.take(now, direction, packet);
        if verdict == Verdict::Pass {
            return verdict;
        }
        if let Some(segment) = packet.tcp() {
            let has_sack = self.split.half(connection, from).is_some_and(holdover_tcp::Connection::sack_agreed);
            let flow = self.flows.entry(connection).or_default();
            flow.note_arrival(now, from, segment, expected, has_sack);
        }
        match (direction, packet.tcp()) {
            (Direction::Outgoing, Some(segment)) => self.note_fixed(now, connection, segment),
            (Direction::Incoming, _) => {
                let after = self.split.half(connection, Side::Mobile).map(holdover_tcp::Connection::snd_una);
                let is_new = before.zip(after).is_some_and(|(before, after)| after.gt(before));
                self.note_mobile(now, connection, is_new, is_marked);
            }
            _ => {}
        }
        self.settle(now, connection);
        verdict
    }

    fn handle_away(&mut self, now: Instant, connection: Connection) {
        let Some(flow) = self.flows.get_mut(&connection) else { return };
        let is_waiting = self
            .split
            .half(connection, Side::Mobile)
            .is_some_and(|half| half.state().is_synchronized() && half.snd_una().lt(half.snd_nxt()));
        if is_waiting {
            flow.freeze(now, connection, &mut self.split, &self.config, &mut self.actions);
            self.discard_waiting(connection);
        }
    }

    /// Discards packets in the bandwidth module: the mobile host is absent.
    fn discard_waiting(&mut self, connection: Connection) {
        if let Some(bandwidth) = &mut self.bandwidth {
            bandwidth.discard(connection);
        }
    }

    fn flows_of(&self, mobile: IpAddr) -> Vec<Connection> {
        self.flows.keys().copied().filter(|connection| connection.mobile().ip() == mobile).collect()
    }
}

impl SegmentFilter for MTcp {
    fn handle_packet(&mut self, now: Instant, direction: Direction, packet: &mut Packet) -> Verdict {
        let verdict = match Connection::of(direction, packet) {
            None => {
                let verdict = self.split.take(now, direction, packet);
                self.split.advance(now);
                verdict
            }
            Some(connection) if self.split.is_unknown(connection) => {
                self.handle_unknown(now, direction, connection, packet)
            }
            Some(_) => self.handle_here(now, direction, packet),
        };
        self.settle_changed(now);
        verdict
    }

    fn handle_link(&mut self, _now: Instant, _event: LinkEvent) {}

    fn handle_mobile(&mut self, now: Instant, mobile: IpAddr, presence: Presence) {
        match presence {
            Presence::Present | Presence::Rebound => self.here.insert(mobile),
            Presence::Away | Presence::Moved => self.here.remove(&mobile),
            Presence::Fading { .. } => false,
        };
        for connection in self.flows_of(mobile) {
            let is_waiting = self.is_choked(connection).is_some_and(|(shrunk, frozen)| shrunk || frozen);
            match presence {
                Presence::Away => self.handle_away(now, connection),
                Presence::Moved if self.split.has_peers() => self.handle_away(now, connection),
                Presence::Present | Presence::Rebound if is_waiting => self.note_mobile(now, connection, false, true),
                Presence::Present | Presence::Rebound | Presence::Moved | Presence::Fading { .. } => {}
            }
            self.settle(now, connection);
        }
        self.ask_as_reported(now, mobile, presence);
        self.settle_changed(now);
    }

    fn handle_control(&mut self, now: Instant, message: &ControlMessage) -> bool {
        self.handle_peer_message(now, message)
    }

    fn handle_timeout(&mut self, now: Instant) {
        // Before the halves handle their timers: those that expire freeze their connections instead.
        while let Some(connection) = self.agenda.take_due(now) {
            self.handle_due(now, connection);
        }
        self.split.handle_timers(now);
        self.settle_changed(now);
        self.handle_peer_timeout(now);
    }

    fn poll_transmit(&mut self, now: Instant) -> Option<Injected> {
        if let Some(waited) = self.ready.pop_front() {
            return Some(waited);
        }
        while let Some(Injected { direction, packet }) = self.split.poll_transmit(now) {
            // Packets of the node on one side are passed to the other.
            if self.is_premature(Side::of_sender(direction.opposite()), &packet) {
                continue;
            }
            match (&mut self.bandwidth, Connection::of(direction, &packet)) {
                (Some(bandwidth), Some(connection)) if direction == Direction::Outgoing => {
                    bandwidth.push(now, connection, packet);
                }
                _ => return Some(Injected { direction, packet }),
            }
        }
        let packet = self.bandwidth.as_mut()?.pop(now)?;
        Some(Injected { direction: Direction::Outgoing, packet })
    }

    fn poll_control(&mut self) -> Option<ControlMessage> {
        self.split.poll_control()
    }

    fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front().or_else(|| self.split.poll_action())
    }

    fn stored(&self) -> Stored {
        self.split.stored()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let bandwidth = self.bandwidth.as_ref().and_then(Bandwidth::poll_timeout);
        [self.split.poll_timeout(), self.agenda.next(), bandwidth].into_iter().flatten().min()
    }
}
