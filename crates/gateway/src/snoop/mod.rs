//! **Snoop** (Balakrishnan, Seshan, Amir and Katz, "Improving TCP/IP performance over wireless networks", MobiCom 1995), for data from a
//! fixed host to a mobile host: the base station caches segments that the mobile host has not acknowledged, retransmits those lost on the
//! wireless link, and suppresses the duplicate ACKs caused by the losses, so that the fixed host neither retransmits nor slows down. The
//! connection stays end to end: every ACK that reaches the fixed host is the mobile host's.
//!
//! Data from the fixed host (*snoop_data*):
//!
//! - A segment in sequence is cached and forwarded.
//! - A segment out of sequence is forwarded, and marked as retransmitted by the sender: it was lost before the base station.
//! - A segment that the mobile host has acknowledged is not forwarded. The base station repeats the last ACK, which may have been lost on
//!   the way to the fixed host.
//!
//! ACKs from the mobile host (*snoop_ack*):
//!
//! - A new ACK frees the cache up to it, may end a measurement of the local round trip, and is forwarded.
//! - An ACK older than the last one is discarded.
//! - A duplicate ACK for a segment that is not cached, or is marked as retransmitted by the sender, is forwarded: the fixed host has to
//!   recover, and counts duplicate ACKs to do so.
//! - The first duplicate ACK for any other segment makes the base station retransmit it. As many more are then *expected* as segments were
//!   forwarded after the lost one. All of them are discarded. One more than expected means that the retransmission is lost, too.
//!
//! Two timers retransmit the next segment that the mobile host lacks, if it is cached. The round-trip timer runs for twice the smoothed
//! local round trip (alpha 1/4), and at least for [`SnoopConfig::least_timeout`]. The persist timer runs while segments are unacknowledged
//! and neither side sends, for [`SnoopConfig::persist`]; when it expires, no duplicate ACK is expected any more.
//!
//! # SACK
//!
//! The paper's hosts have no SACK. Today's senders detect losses by SACK blocks rather than by the number of duplicate ACKs (RFC 6675, RFC
//! 8985), so to hide a loss, the blocks have to be hidden as well. While the base station retransmits the first missing segment, an ACK
//! with new SACK blocks only is a duplicate ACK like any other, with any window, and a new ACK is forwarded without its blocks. The
//! base station uses the hidden blocks: such a new ACK makes it retransmit the missing segment as a first duplicate ACK does, and only
//! segments above the highest block are expected to cause more duplicate ACKs.
//!
//! SACK is advisory (RFC 2018 section 8), so hiding it is safe. It has a price: if the base station gives up, only later ACKs show the
//! fixed host which data has arrived, and it may retransmit too much. ACKs of losses that are not hidden keep their blocks. An ACK with a
//! DSACK (RFC 2883) and nothing else new reports no loss: it is discarded if a retransmission from here has caused it, and forwarded if
//! not.
//!
//! # Where the paper is silent, and differences
//!
//! - **Priority.** The paper retransmits ahead of the data in the link layer's queue. A [`SegmentFilter`] is before that queue, so a
//!   retransmission is queued at the end, and more duplicate ACKs arrive before it. All of them are expected.
//! - **The queue behind the cache.** Drops by the queue of the wireless link look like losses of the link: they are repaired, too, and only
//!   the receive window or a full cache limits the fixed host when there is congestion. One segment is repaired in each local round trip,
//!   so repairing a large window that overflows the queue takes long. The windows of 1995 fit into the queue.
//! - **Delayed ACKs** that take longer than the round-trip timer look like losses, and cause needless retransmissions.
//! - **A full cache.** Segments without room are forwarded without a copy. Their duplicate ACKs reach the fixed host.
//! - **Number.** A segment is retransmitted [`SnoopConfig::most_resent`] times; then its duplicate ACKs are forwarded and the timers ignore
//!   it. Timeouts do not back off.
//! - **Duplicates caused by the base station.** A needless retransmission makes the mobile host send a duplicate ACK for a segment that may
//!   be in flight, whose retransmission would be needless, too, and so on. With SACK, the absence of a block shows that. Without SACK, an
//!   ACK that arrives within half a local round trip after a retransmission is taken for an ACK of the original, and one duplicate ACK for
//!   each copy is discarded after it.
//! - **ACKs with a window of zero** and ACKs that only change the window are forwarded. Segments with one byte or none are forwarded even
//!   if acknowledged: they are probes (RFC 9293 sections 3.8.4 and 3.8.6.1), which only the mobile host may answer.
//! - **Handoffs.** The base station in charge sends copies of a mobile host's packets to nearby ones ([`SnoopConfig::peers`]), which fill
//!   their caches in advance; see `nearby.rs`. Without peers a new base station begins without a copy, and the old one drops its own
//!   ([`Presence::Moved`]). An absent mobile host is treated like one whose link loses everything.
//! - **Data from the mobile host** is not covered: the paper's negative acknowledgements are not implemented.

mod nearby;

use core::net::IpAddr;
use std::collections::{BTreeMap, VecDeque};

use holdover_base::{Duration, Instant};
use holdover_filter::{
    Action, Agenda, Connection, ControlMessage, Direction, Injected, LastSent, LinkEvent, Presence, SegmentFilter,
    Stored, Table, Verdict, tcp_mut,
};
use holdover_wire::{Flags, Packet, Segment, Seq};

use crate::cache::{Cache, Cached};
use crate::timer::LocalTimer;

/// The parameters of the base station. See the [module](self).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SnoopConfig {
    /// The most bytes in the cache of a connection, with headers.
    pub buffer_bytes: usize,
    /// The least time without a new ACK after which a segment is retransmitted.
    pub least_timeout: Duration,
    /// The time without a packet from either side after which a segment is retransmitted.
    pub persist: Duration,
    /// The most retransmissions of a segment.
    pub most_resent: u32,
    /// Nearby base stations, which get copies of the packets for a mobile host in charge of which this one is.
    pub peers: Vec<IpAddr>,
}

impl Default for SnoopConfig {
    /// 256 kB for each connection; 40 ms and 200 ms as in the paper; ten retransmissions, as in the authors' module for ns-2; no nearby base
    /// stations.
    fn default() -> Self {
        Self {
            buffer_bytes: 256_000,
            least_timeout: Duration::from_millis(40),
            persist: Duration::from_millis(200),
            most_resent: 10,
            peers: Vec::new(),
        }
    }
}

impl SnoopConfig {
    /// Why the mechanism would do nothing, if so.
    pub(crate) fn why_idle(&self) -> Option<&'static str> {
        if self.buffer_bytes == 0 {
            return Some("its cache has 0 bytes");
        }
        if self.most_resent == 0 {
            return Some("it retransmits a segment 0 times");
        }
        (self.persist == Duration::ZERO).then_some("its persist timer runs for no time")
    }
}

/// The filter of a base station. See the [module](self).
#[derive(Debug)]
pub struct Snoop {
    config: SnoopConfig,
    connections: Table<State>,
    agenda: Agenda,
    /// Mobile hosts whose presence was reported, and whether they are present: reports decide whether this base station is in charge of them.
    reported: BTreeMap<IpAddr, bool>,
    out: Out,
}

#[derive(Default, Debug)]
struct Out {
    ready: VecDeque<Injected>,
    messages: VecDeque<ControlMessage>,
    actions: VecDeque<Action>,
}

/// A connection over which the fixed host sends.
#[derive(Clone, Debug)]
struct State {
    /// The last new ACK.
    acked: Option<Seq>,
    /// The window field of the last ACK.
    window: u16,
    /// The end of the fixed host's data.
    sent: Option<Seq>,
    cache: Cache,
    /// The number of segments above the first in the cache that were forwarded without a copy, and the end of the last
    /// of them.
    uncached: Option<(Seq, u32)>,
    /// How many more duplicate ACKs the first segment in the cache may cause.
    expected: u32,
    /// How many duplicate ACKs the copies of an acknowledged segment may cause.
    surplus: u32,
    /// The end of the last segment retransmitted from here.
    resent_to: Option<Seq>,
    /// Another base station is in charge of the mobile host: the cache is filled by its copies, and nothing is sent.
    is_nearby: bool,
    /// When a packet of the connection last passed here.
    passed_at: Option<Instant>,
    /// Copies were sent at a handoff, and no new ACK has arrived since.
    is_fresh: bool,
    /// The last ACK, to repeat.
    last_ack: LastSent,
    timer: LocalTimer,
    /// When the round-trip timer expires.
    timeout_at: Option<Instant>,
    /// When the persist timer expires.
    persist_at: Option<Instant>,
    /// When copies at a nearby base station are too old.
    expires_at: Option<Instant>,
    /// The earliest of these.
    due: Option<Instant>,
}

impl Default for State {
    fn default() -> Self {
        Self {
            acked: None,
            window: 0,
            sent: None,
            cache: Cache::default(),
            uncached: None,
            expected: 0,
            surplus: 0,
            resent_to: None,
            is_nearby: false,
            passed_at: None,
            is_fresh: false,
            last_ack: LastSent::default(),
            timer: LocalTimer::weighing(4),
            timeout_at: None,
            persist_at: None,
            expires_at: None,
            due: None,
        }
    }
}

impl Snoop {
    /// The name in scenario files.
    pub const NAME: &'static str = "snoop";

    /// A base station without state.
    pub fn new(config: SnoopConfig) -> Self {
        Self {
            config,
            connections: Table::default(),
            agenda: Agenda::default(),
            reported: BTreeMap::new(),
            out: Out::default(),
        }
    }

    fn handle_from_fixed(&mut self, now: Instant, connection: Connection, packet: &Packet) -> Verdict {
        let is_reported = self.reported.contains_key(&connection.mobile().ip());
        let Self { config, connections, agenda, out, .. } = self;
        let Some(segment) = packet.tcp() else { return Verdict::Pass };
        let noted = connections.observe(now, Direction::Outgoing, connection, segment);
        let (state, is_over) = (noted.value, noted.is_over);
        if is_over || segment.flags.intersects(Flags::SYN | Flags::RST) {
            out.copy_end(&config.peers, Direction::Outgoing, packet);
            state.forget(agenda, connection);
            return Verdict::Pass;
        }
        if segment.seq_len() == 0 {
            return Verdict::Pass;
        }
        // The packet follows the copies.
        let takes_charge = !is_reported && state.is_nearby && state.take_charge(now, config, connection, out);
        state.passed_at = Some(now);
        let end = segment.seq + segment.seq_len();
        if state.acked.is_some_and(|acked| end.le(acked)) {
            if segment.seq_len() == 1 {
                return Verdict::Pass;
            }
            let Some(ack) = state.last_ack.repeat(connection.of_sender_going(Direction::Incoming)) else {
                return Verdict::Pass;
            };
            out.ready.push_back(Injected { direction: Direction::Incoming, packet: ack });
            return Verdict::Keep;
        }
        state.keep(now, config, packet, segment);
        out.copy_to(&config.peers, packet, state);
        if state.is_nearby {
            // It was on its way when the mobile host left.
            return Verdict::Pass;
        }
        state.note_activity(now, config);
        if state.timeout_at.is_none() {
            state.start_timer(now, config);
        }
        state.set_due(agenda, connection);
        if takes_charge {
            out.ready.push_back(Injected { direction: Direction::Outgoing, packet: packet.clone() });
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
            out.copy_end(&config.peers, Direction::Incoming, packet);
            state.forget(agenda, connection);
            return Verdict::Pass;
        }
        state.passed_at = Some(now);
        if state.is_nearby {
            state.last_ack.note(packet, segment);
            state.acknowledge(segment);
            state.take_charge(now, config, connection, out);
            state.set_due(agenda, connection);
            return Verdict::Pass;
        }
        let verdict = match state.acked {
            Some(acked) if segment.ack.lt(acked) => {
                if segment.is_pure_ack() {
                    return Verdict::Drop;
                }
                Verdict::Pass
            }
            Some(acked) if segment.ack == acked => {
                let (is_duplicate, dsack) = (state.is_duplicate(segment), state.only_dsack(segment));
                state.last_ack.note(packet, segment);
                state.cache.handle_ack(segment);
                state.window = segment.window;
                match dsack {
                    Some(end) if state.resent_to.is_some_and(|resent_to| end.le(resent_to)) => Verdict::Drop,
                    None if is_duplicate => state.handle_duplicate(now, config, connection, segment, out),
                    _ => Verdict::Pass,
                }
            }
            _ => {
                state.last_ack.note(packet, segment);
                state.window = segment.window;
                let had_copies = !state.cache.is_empty();
                state.handle_new_ack(now, config, connection, packet, out);
                if had_copies && state.cache.is_empty() {
                    out.copy_ack(&config.peers, packet);
                }
                Verdict::Pass
            }
        };
        state.note_activity(now, config);
        state.set_due(agenda, connection);
        verdict
    }
}

impl State {
    /// Copies a segment with data that is forwarded.
    fn keep(&mut self, now: Instant, config: &SnoopConfig, packet: &Packet, segment: &Segment) {
        let end = segment.seq + segment.seq_len();
        let is_repeated = self.sent.is_some_and(|sent| segment.seq.lt(sent));
        self.timer.note_sent(now, end, is_repeated);
        self.sent = Some(self.sent.map_or(end, |sent| sent.max(end)));
        if self.cache.bytes() + packet.wire_len() > config.buffer_bytes {
            let count = self.uncached.map_or(0, |(_, count)| count);
            self.uncached = Some((end, count.saturating_add(1)));
            return;
        }
        self.cache.insert(now, packet);
        if is_repeated && let Some(cached) = self.cache.containing(segment.seq) {
            cached.repeated = true;
        }
    }

    fn handle_new_ack(
        &mut self,
        now: Instant,
        config: &SnoopConfig,
        connection: Connection,
        packet: &mut Packet,
        out: &mut Out,
    ) {
        let Some(segment) = tcp_mut(packet) else { return };
        let ack = segment.ack;
        self.timer.note_acked(now, ack);
        let smoothed = self.timer.smoothed();
        if let Some(first) = self.cache.first().filter(|first| first.end.le(ack) && first.resent > 0)
            && smoothed.is_some_and(|smoothed| now.saturating_since(first.sent_at) < smoothed / 2)
        {
            self.surplus = first.resent;
        }
        if core::mem::take(&mut self.is_fresh) {
            // Each copy that the mobile host had already causes a duplicate, but for the one that caused this ACK.
            let known = self.cache.len() - self.cache.count_from(ack);
            self.surplus = u32::try_from(known).unwrap_or(u32::MAX).saturating_sub(1);
        }
        self.cache.handle_ack(segment);
        self.uncached = self.uncached.filter(|(end, _)| end.gt(ack));
        self.acked = Some(ack);
        self.sent = Some(self.sent.map_or(ack, |sent| sent.max(ack)));
        self.expected = 0;
        self.start_timer(now, config);
        if !self.repairs(config) || segment.options.sack.is_empty() {
            return;
        }
        let is_missing = highest_sacked(segment).is_some_and(|highest| highest.gt(ack));
        if is_missing && self.cache.first().is_some_and(|first| first.resent == 0) {
            self.expected = self.expect(segment);
            self.resend(now, config, connection, "retransmitted", out);
        }
        segment.options.sack.truncate(0);
    }

    /// Whether an ACK with the number of the last one is a duplicate ACK.
    fn is_duplicate(&self, segment: &Segment) -> bool {
        segment.is_pure_ack()
            && segment.window != 0
            && self.is_outstanding()
            && (segment.window == self.window || !segment.options.sack.is_empty())
    }

    /// The end of the DSACK block of a pure ACK that carries nothing else new.
    fn only_dsack(&self, segment: &Segment) -> Option<Seq> {
        let highest = highest_sacked(segment).filter(|highest| highest.le(segment.ack))?;
        (segment.is_pure_ack() && segment.window == self.window).then_some(highest)
    }

    fn handle_duplicate(
        &mut self,
        now: Instant,
        config: &SnoopConfig,
        connection: Connection,
        segment: &Segment,
        out: &mut Out,
    ) -> Verdict {
        if !self.repairs(config) {
            return Verdict::Pass;
        }
        if segment.options.sack.is_empty() && self.surplus > 0 {
            self.surplus -= 1;
            return Verdict::Drop;
        }
        if self.expected > 0 {
            self.expected -= 1;
            return Verdict::Drop;
        }
        self.expected = self.expect(segment);
        self.resend(now, config, connection, "retransmitted", out);
        Verdict::Drop
    }

    /// The most further ACKs like `segment` that forwarded segments may cause.
    fn expect(&self, segment: &Segment) -> u32 {
        let cached = match highest_sacked(segment) {
            Some(highest) => self.cache.count_from(highest),
            // All but the lost segment, and the one that caused this ACK.
            None => self.cache.len().saturating_sub(2),
        };
        let uncached = self.uncached.map_or(0, |(_, count)| count);
        u32::try_from(cached).unwrap_or(u32::MAX).saturating_add(uncached)
    }

    /// Whether the next segment that the mobile host lacks is cached, was lost behind the base station, and may be
    /// retransmitted.
    fn repairs(&self, config: &SnoopConfig) -> bool {
        let Some((first, acked)) = self.cache.first().zip(self.acked) else { return false };
        first.seq.le(acked) && !first.repeated && first.resent < config.most_resent
    }

    /// Retransmits the first segment in the cache, if permitted.
    fn resend(
        &mut self,
        now: Instant,
        config: &SnoopConfig,
        connection: Connection,
        what: &'static str,
        out: &mut Out,
    ) -> bool {
        let acked = self.acked;
        let is_wanted =
            |first: &&mut Cached| first.resent < config.most_resent && acked.is_none_or(|acked| first.seq.le(acked));
        let Some(first) = self.cache.first_mut().filter(is_wanted) else { return false };
        (first.sent_at, first.resent) = (now, first.resent + 1);
        self.resent_to = Some(first.end);
        self.timer.note_sent(now, first.end, true);
        out.ready.push_back(Injected { direction: Direction::Outgoing, packet: first.packet.clone() });
        out.actions.push_back(Action { at: now, connection, mechanism: Snoop::NAME, what });
        self.start_timer(now, config);
        true
    }

    fn is_outstanding(&self) -> bool {
        self.acked.zip(self.sent).is_some_and(|(acked, sent)| acked.lt(sent))
    }

    fn start_timer(&mut self, now: Instant, config: &SnoopConfig) {
        let smoothed = self.timer.smoothed().filter(|_| !self.cache.is_empty());
        self.timeout_at = smoothed.map(|smoothed| now + (smoothed * 2).max(config.least_timeout));
    }

    fn note_activity(&mut self, now: Instant, config: &SnoopConfig) {
        self.persist_at = (!self.cache.is_empty()).then(|| now + config.persist);
    }

    fn handle_timeout(&mut self, now: Instant, config: &SnoopConfig, connection: Connection, out: &mut Out) {
        if self.expires_at.is_some_and(|at| at <= now) {
            self.forget_old(now);
        }
        let persists = self.persist_at.take_if(|at| *at <= now).is_some();
        let times_out = self.timeout_at.take_if(|at| *at <= now).is_some();
        if persists {
            (self.expected, self.surplus) = (0, 0);
        }
        let what = if times_out { "retransmitted by timeout" } else { "retransmitted by persist timeout" };
        let is_sent = (persists || times_out) && self.resend(now, config, connection, what, out);
        // Local retransmissions do not count as activity.
        if persists && is_sent {
            self.persist_at = Some(now + config.persist);
        }
    }

    fn set_due(&mut self, agenda: &mut Agenda, connection: Connection) {
        let due = [self.timeout_at, self.persist_at, self.expires_at].into_iter().flatten().min();
        agenda.set(connection, &mut self.due, due);
    }

    fn forget(&mut self, agenda: &mut Agenda, connection: Connection) {
        agenda.set(connection, &mut self.due, None);
        *self = Self::default();
    }
}

/// The end of the highest SACK block.
fn highest_sacked(segment: &Segment) -> Option<Seq> {
    segment.options.sack.iter().map(|block| block.end).reduce(Seq::max)
}

impl SegmentFilter for Snoop {
    fn handle_packet(&mut self, now: Instant, direction: Direction, packet: &mut Packet) -> Verdict {
        match Connection::of(direction, packet) {
            Some(connection) if direction == Direction::Outgoing => self.handle_from_fixed(now, connection, packet),
            Some(connection) => self.handle_from_mobile(now, connection, packet),
            None => Verdict::Pass,
        }
    }

    fn handle_link(&mut self, _now: Instant, _event: LinkEvent) {}

    fn handle_mobile(&mut self, now: Instant, mobile: IpAddr, presence: Presence) {
        if matches!(presence, Presence::Present | Presence::Moved) && !self.config.peers.is_empty() {
            self.reported.insert(mobile, presence == Presence::Present);
        }
        let Self { config, connections, agenda, out, .. } = self;
        for (connection, state) in connections.iter_mut().filter(|(connection, _)| connection.mobile().ip() == mobile) {
            match presence {
                Presence::Moved if config.peers.is_empty() => state.forget(agenda, connection),
                Presence::Moved => state.leave_charge(now),
                Presence::Present if state.is_nearby => {
                    state.take_charge(now, config, connection, out);
                }
                _ => continue,
            }
            state.set_due(agenda, connection);
        }
    }

    fn handle_control(&mut self, now: Instant, message: &ControlMessage) -> bool {
        self.handle_copy(now, message)
    }

    fn handle_timeout(&mut self, now: Instant) {
        let Self { config, connections, agenda, out, .. } = self;
        while let Some(connection) = agenda.take_due(now) {
            let Some(state) = connections.get_mut(connection) else { continue };
            if state.due.take_if(|due| *due <= now).is_none() {
                continue;
            }
            state.handle_timeout(now, config, connection, out);
            state.set_due(agenda, connection);
        }
    }

    fn poll_transmit(&mut self, _now: Instant) -> Option<Injected> {
        self.out.ready.pop_front()
    }

    fn poll_control(&mut self) -> Option<ControlMessage> {
        self.out.messages.pop_front()
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
