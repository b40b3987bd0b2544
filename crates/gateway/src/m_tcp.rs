//! **M-TCP** (Brown and Singh 1997) at a supervisor host: connections are [split](crate::split), and yet acknowledged end to end. The
//! half towards the fixed host, *SH-TCP*, acknowledges what the mobile host has acknowledged, less one byte (section 4.1). So it
//! always has something new to say, and can shut the fixed host's window whenever the mobile host is cut off: the fixed host goes into
//! persist mode, and its timers and its congestion window stay as they are. The half towards the mobile host does not take silence for
//! congestion: when its retransmission timer expires, it freezes (section 4.2).
//!
//! | the paper | here |
//! | --- | --- |
//! | SH-TCP, states NOSHRINK, SHRUNK, RECOVERING (figure 4) | [`Split`]'s half towards the fixed host, steered by `Flow::choke` and `Flow::reopen` |
//! | M-TCP at the SH, states NOFREEZE, FROZEN (figure 5) | its half towards the mobile host, steered by `Flow::freeze` and `Flow::thaw` |
//! | the mobile host's *specially marked* ACK | `reconnect_acks` with `marked` at the mobile host; or [`Presence::Present`] |
//! | wintimer | the retransmission timeout of the half towards the mobile host, and 250 ms at least, from each segment on that finds it stopped |
//!
//! # Choices
//!
//! - **The first segments** are acknowledged whole ([`MTcpConfig::held_after_bytes`]).
//! - **An ordinary ACK that acknowledges nothing new** ends the freeze too, and what is outstanding is sent again. In the paper nothing is;
//!   but the answer to a persist packet after an outage is such an ACK, and if the marked one was lost, nobody would ever send again.
//! - **The mark** is URG with an urgent pointer of 0 in a segment without data. The paper does not say which flags.
//! - **The congestion window towards the mobile host** grows by slow start and does not shrink at losses, as in the paper; what bounds it
//!   is the mobile host's window. There is no bandwidth module, which in the paper paces what is sent again. So after an outage the
//!   window begins with four segments: the whole window at once would stand in the link's queue behind what is there already, and most
//!   of it would be there twice.
//! - **RECOVERING** is for senders that take back `snd_max` when they leave persist mode, as 4.4BSD does
//!   ([`MTcpConfig::pulls_back`]). Others may have nothing to send then, and would wait for the ACK of what they have sent already.
//! - **From the mobile host to the fixed one**, the mobile host sees acknowledged what the fixed host has acknowledged, whole.
//! - **Handoff to another supervisor host and compression** are not built.

use std::collections::{BTreeMap, VecDeque};

use core::net::IpAddr;
use holdover_base::{Duration, Instant};
use holdover_filter::{
    Agenda, Connection, Deed, Direction, Injected, LinkEvent, Presence, SegmentFilter, Verdict, tcp_mut,
};
use holdover_tcp::{AfterRetransmit, Timer};
use holdover_wire::{Flags, Packet, Segment, Seq};

use crate::split::{Side, Split, SplitConfig};

/// What the supervisor host does. See the [module](self).
#[derive(Clone, PartialEq, Debug)]
pub struct MTcpConfig {
    /// How connections are split.
    pub split: SplitConfig,
    /// Whether fixed hosts take back what they have sent when they leave persist mode.
    pub pulls_back: bool,
    /// The byte is held back once so many bytes are acknowledged. A TCP that counts its window in segments, as Linux does, does not send with
    /// a window of one while a byte of the first segment is unacknowledged; 4.4BSD, which counts bytes, does.
    pub held_after_bytes: u32,
    /// The last byte is shown if the mobile host has everything and nothing more comes for so long. In the paper it is wintimer that shows
    /// it (section 5.3.2, case 2), which is longer than today's senders wait before they retransmit.
    pub flush: Duration,
    /// The least value of wintimer. It has to be longer than the mobile host may put off an ACK.
    pub least_timeout: Duration,
    /// The first pause between two persist packets to a mobile host, which doubles.
    pub persist_least: Duration,
    /// The longest.
    pub persist_most: Duration,
}

impl MTcpConfig {
    /// Persist packets after 5, 10, 20, 40, 60 s (section 4.2), a wintimer of 250 ms at least, the byte held back after ten segments of
    /// 1460 bytes and for 40 ms at most when all is acknowledged, and senders that take nothing back.
    pub fn with(split: SplitConfig) -> Self {
        Self {
            split,
            pulls_back: false,
            held_after_bytes: 14_600,
            flush: Duration::from_millis(40),
            least_timeout: Duration::from_millis(250),
            persist_least: Duration::from_secs(5),
            persist_most: Duration::from_secs(60),
        }
    }
}

/// The filter of a supervisor host. See the [module](self).
#[derive(Debug)]
pub struct MTcp {
    config: MTcpConfig,
    split: Split,
    flows: BTreeMap<Connection, Flow>,
    agenda: Agenda,
    deeds: VecDeque<Deed>,
}

/// The least time between two answers to what was acknowledged already: shorter than any retransmission timeout.
const REMINDER: Duration = Duration::from_millis(100);

/// So many segments leave at once when the mobile host is back; the rest follow as in slow start.
const RESTART_SEGMENTS: u32 = 4;

/// What M-TCP's *mtb* holds: the state of both halves of a connection.
#[derive(Clone, Default, Debug)]
struct Flow {
    /// Where data begin, as each half numbers what it receives.
    received_from: [Option<Seq>; 2],
    /// The same of what it sends.
    sent_from: [Option<Seq>; 2],
    /// How far each half has acknowledged.
    point: [Option<Seq>; 2],
    /// The fixed host's window is shut (SHRUNK).
    shrunk: bool,
    /// The end of what the fixed host has sent since its window was reopened (RECOVERING).
    recovering: Option<Seq>,
    /// Enough is acknowledged for a byte to be held back.
    holds: bool,
    /// The byte that is held back may be shown: no more is expected.
    shows_all: bool,
    wintimer_at: Option<Instant>,
    /// When the byte that is held back is shown, if nothing comes before.
    flush_at: Option<Instant>,
    /// When each was last told again what it had been told already.
    reminded_at: [Option<Instant>; 2],
    /// When the next persist packet goes to the mobile host, and the pause after it (FROZEN).
    persist: Option<(Instant, Duration)>,
    /// Whether the last segment that came on each side was data that is not to be acknowledged yet.
    data_came: [bool; 2],
    /// What each was told last: an ACK number and a window field.
    said: [Option<(Seq, u16)>; 2],
    /// The largest congestion window towards the mobile host so far, in segments.
    cwnd: u32,
    due: Option<Instant>,
}

impl MTcp {
    /// The name in scenario files.
    pub const NAME: &'static str = "m_tcp";

    /// A supervisor host that has seen nothing yet. `secret` is what initial sequence numbers are drawn from.
    pub fn new(config: MTcpConfig, secret: [u8; 16]) -> Self {
        Self {
            split: Split::new(config.split.clone(), secret),
            config,
            flows: BTreeMap::new(),
            agenda: Agenda::default(),
            deeds: VecDeque::new(),
        }
    }

    /// Whether the fixed host's window is shut, and the half towards the mobile host frozen.
    pub fn is_choked(&self, connection: Connection) -> Option<(bool, bool)> {
        self.flows.get(&connection).map(|flow| (flow.shrunk, flow.persist.is_some()))
    }

    /// A segment of the fixed host has come.
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

    /// The mobile host has spoken: `is_new` if it acknowledges something new, `is_marked` if it was cut off.
    fn note_mobile(&mut self, now: Instant, connection: Connection, is_new: bool, is_marked: bool) {
        let Some(flow) = self.flows.get_mut(&connection) else { return };
        if flow.persist.is_some() || is_marked {
            flow.thaw(now, connection, &mut self.split, is_marked || !is_new, &mut self.deeds);
        }
        if is_new || is_marked {
            let half = self.split.half(connection, Side::Mobile);
            let timeout = half.filter(|half| half.snd_una().lt(half.snd_nxt())).map(holdover_tcp::Connection::rto);
            flow.wintimer_at = timeout.map(|timeout| now + timeout.max(self.config.least_timeout));
            // All is acknowledged, and the last byte held back: the fixed host may have nothing more to say.
            flow.flush_at = timeout.is_none().then_some(now + self.config.flush);
            if flow.shrunk {
                flow.reopen(now, connection, &mut self.split, self.config.pulls_back, &mut self.deeds);
            }
        }
    }

    /// Whether a packet is an ACK that says nothing new, because of data which the far end does not have yet (*pass to M-TCP, do not
    /// acknowledge*). Its receiver would take it for a duplicate. Answers to probes are none of these.
    fn is_premature(&mut self, side: Side, packet: &Packet) -> bool {
        let Some(connection) = Connection::of(side.direction(), packet) else { return false };
        let (Some(segment), Some(flow)) = (packet.tcp(), self.flows.get_mut(&connection)) else { return false };
        let said = Some((segment.ack, segment.window));
        let at = side as usize;
        let is_repeated = flow.said[at] == said && segment.is_pure_ack() && flow.data_came[at];
        flow.said[at] = said;
        is_repeated && self.split.half(connection, side).is_some_and(|half| segment.ack.lt(half.rcv_nxt()))
    }

    /// Brings what each half acknowledges up to date with what the other one has got acknowledged.
    fn settle(&mut self, now: Instant, connection: Connection) {
        self.split.go_on(now);
        let Some(flow) = self.flows.get_mut(&connection) else { return };
        if self.split.half(connection, Side::Fixed).is_none() && self.split.half(connection, Side::Mobile).is_none() {
            self.agenda.set(connection, &mut flow.due, None);
            self.flows.remove(&connection);
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
        self.split.go_on(now);
        let due = flow.wintimer_at.into_iter().chain(flow.flush_at).chain(flow.persist.map(|(at, _)| at)).min();
        self.agenda.set(connection, &mut flow.due, due);
    }

    /// Retransmission timers towards mobile hosts that are about to expire freeze their connections instead.
    fn freeze_the_silent(&mut self, now: Instant) {
        let is_silent = |connection: &Connection| {
            self.split
                .half(*connection, Side::Mobile)
                .filter(|half| half.state().is_synchronized())
                .and_then(|half| half.deadline(Timer::Retransmit))
                .is_some_and(|at| at <= now)
        };
        let silent: Vec<Connection> = self.split.all().filter(is_silent).collect();
        for connection in silent {
            let flow = self.flows.entry(connection).or_default();
            flow.freeze(now, connection, &mut self.split, &self.config, &mut self.deeds);
            self.settle(now, connection);
        }
    }

    fn handle_due(&mut self, now: Instant, connection: Connection) {
        let Some(flow) = self.flows.get_mut(&connection) else { return };
        flow.due = None;
        if flow.flush_at.take_if(|at| *at <= now).is_some() {
            flow.shows_all = true;
        }
        if flow.wintimer_at.take_if(|at| *at <= now).is_some() {
            flow.handle_wintimer(now, connection, &mut self.split, &mut self.deeds);
        }
        if let Some((at, pause)) = flow.persist
            && at <= now
        {
            flow.persist = Some((now + pause, (pause * 2).min(self.config.persist_most)));
            // What the mobile host has to answer: it is below what it has acknowledged.
            if let Some(half) = self.split.half_mut(connection, Side::Mobile) {
                half.send_keep_alive();
            }
        }
        self.settle(now, connection);
    }
}

impl Flow {
    /// Where both directions begin, once both halves are open. Until then nothing is acknowledged.
    fn find_beginnings(&mut self, connection: Connection, split: &mut Split) {
        for side in Side::BOTH {
            let at = side as usize;
            let Some(half) = split.half(connection, side) else { continue };
            let has_begun = half.state() != holdover_tcp::State::SynSent && !half.is_closed();
            let (rcv_nxt, snd_una, is_open) = (half.rcv_nxt(), half.snd_una(), half.state().is_synchronized());
            if has_begun && self.received_from[at].is_none() {
                self.received_from[at] = Some(rcv_nxt);
                self.point[at] = Some(rcv_nxt);
                if let Some(half) = split.half_mut(connection, side) {
                    half.hold_ack_point(Some(rcv_nxt));
                }
            }
            if is_open && self.sent_from[at].is_none() {
                self.sent_from[at] = Some(snd_una);
            }
        }
    }

    /// How far the half on `side` may acknowledge: what the other half has got acknowledged, in the numbers of this one.
    fn end_to_end(&self, connection: Connection, split: &Split, side: Side) -> Option<Seq> {
        let other = side.other();
        let half = split.half(connection, other)?;
        // Modulo 2^32, like the numbers themselves: a connection may carry more.
        let delivered = half.snd_una().value().wrapping_sub(self.sent_from[other as usize]?.value());
        Some(self.received_from[side as usize]? + delivered)
    }

    fn acknowledge(&mut self, connection: Connection, split: &mut Split, side: Side, held_after_bytes: u32) {
        let at = side as usize;
        let Some(end) = self.end_to_end(connection, split, side) else { return };
        let (Some(from), Some(before)) = (self.received_from[at], self.point[at]) else { return };
        let mut point = end;
        if side == Side::Fixed {
            let Some(half) = split.half(connection, side) else { return };
            let is_last = !half.state().may_receive() && half.rcv_nxt() == end;
            self.holds |= end.saturating_since(from) > held_after_bytes;
            if self.holds && !self.shows_all && !self.shrunk && !is_last {
                point = end - 1;
            }
            if let Some(seen) = self.recovering {
                point = point.min(seen);
                if seen.ge(half.rcv_nxt()) {
                    self.recovering = None;
                }
            }
        }
        if point.gt(before) {
            self.point[at] = Some(point);
            if let Some(half) = split.half_mut(connection, side) {
                half.hold_ack_point(Some(point));
                half.send_acks(1);
            }
        }
    }

    /// The three cases of the paper (section 5.3.2).
    fn handle_wintimer(&mut self, now: Instant, connection: Connection, split: &mut Split, deeds: &mut VecDeque<Deed>) {
        let Some(end) = self.end_to_end(connection, split, Side::Fixed) else { return };
        let Some(half) = split.half(connection, Side::Fixed) else { return };
        if self.shrunk || self.point[Side::Fixed as usize] == Some(end) {
            // Nothing is held back: a window of zero would be ignored.
        } else if half.rcv_nxt() == end {
            // The fixed host may have nothing more to send: it is not to wait for the last byte.
            self.shows_all = true;
        } else {
            self.choke(now, connection, split, deeds);
        }
    }

    /// Acknowledges all that the mobile host has, with a window of zero.
    fn choke(&mut self, now: Instant, connection: Connection, split: &mut Split, deeds: &mut VecDeque<Deed>) {
        let Some(end) = self.end_to_end(connection, split, Side::Fixed) else { return };
        if self.shrunk || self.point[Side::Fixed as usize] == Some(end) {
            return;
        }
        (self.shrunk, self.recovering, self.wintimer_at) = (true, None, None);
        self.point[Side::Fixed as usize] = Some(end);
        if let Some(half) = split.half_mut(connection, Side::Fixed) {
            half.clamp_window(Some(0));
            half.hold_ack_point(Some(end));
            half.send_acks(1);
            deeds.push_back(Deed { at: now, connection, mechanism: MTcp::NAME, what: "shrank the window" });
        }
    }

    fn reopen(
        &mut self,
        now: Instant,
        connection: Connection,
        split: &mut Split,
        pulls_back: bool,
        deeds: &mut VecDeque<Deed>,
    ) {
        self.shrunk = false;
        self.recovering = self.point[Side::Fixed as usize].filter(|_| pulls_back);
        if let Some(half) = split.half_mut(connection, Side::Fixed) {
            half.clamp_window(None);
            half.send_acks(1);
            deeds.push_back(Deed { at: now, connection, mechanism: MTcp::NAME, what: "reopened the window" });
        }
    }

    fn freeze(
        &mut self,
        now: Instant,
        connection: Connection,
        split: &mut Split,
        config: &MTcpConfig,
        deeds: &mut VecDeque<Deed>,
    ) {
        if let Some(half) = split.half_mut(connection, Side::Mobile) {
            half.hold_timer(now, Timer::Retransmit);
        }
        if self.persist.is_none() {
            let pause = config.persist_least.min(config.persist_most);
            self.persist = Some((now + pause, (pause * 2).min(config.persist_most)));
            deeds.push_back(Deed { at: now, connection, mechanism: MTcp::NAME, what: "froze" });
        }
        self.choke(now, connection, split, deeds);
    }

    fn thaw(
        &mut self,
        now: Instant,
        connection: Connection,
        split: &mut Split,
        resends: bool,
        deeds: &mut VecDeque<Deed>,
    ) {
        let was_frozen = self.persist.take().is_some();
        let cwnd = self.cwnd;
        let Some(half) = split.half_mut(connection, Side::Mobile) else { return };
        if was_frozen {
            half.release_timer(now, Timer::Retransmit);
            deeds.push_back(Deed { at: now, connection, mechanism: MTcp::NAME, what: "thawed" });
        }
        if resends && half.retransmit_now(now, AfterRetransmit::Reset) {
            self.cwnd = cwnd.min(RESTART_SEGMENTS);
            half.set_cwnd(self.cwnd);
            half.set_ssthresh(cwnd.max(2));
        }
    }
}

/// Takes the mark off an ACK. Returns whether it had one.
fn take_mark(packet: &mut Packet) -> bool {
    let Some(segment) = tcp_mut(packet) else { return false };
    let is_marked =
        segment.flags.contains(Flags::URG | Flags::ACK) && segment.urgent == 0 && segment.payload.is_empty();
    if is_marked {
        segment.flags.remove(Flags::URG);
    }
    is_marked
}

impl SegmentFilter for MTcp {
    fn handle_packet(&mut self, now: Instant, direction: Direction, packet: &mut Packet) -> Verdict {
        let Some(connection) = Connection::of(direction, packet) else {
            return self.split.handle_packet(now, direction, packet);
        };
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
            let is_shrunk = flow.shrunk && from == Side::Fixed;
            let point = flow.point[from as usize];
            let is_premature = expected.is_some_and(|expected| match segment.seq {
                // It was acknowledged already: the ACK may be lost. One answer does; three would be taken for duplicates.
                seq if point.is_some_and(|point| seq.lt(point)) => {
                    let at = &mut flow.reminded_at[from as usize];
                    let is_fresh = at.is_some_and(|at| now.saturating_since(at) < REMINDER);
                    if !is_fresh {
                        *at = Some(now);
                    }
                    is_fresh
                }
                seq if seq == expected => !(is_shrunk && segment.payload.len() <= 1),
                // Sent again because its ACK waits for the far end. If the window is shut, its sender does not know that yet.
                seq if seq.lt(expected) => !is_shrunk,
                // Beyond a gap: SACK blocks tell of it, and an ACK of less than what has come does not.
                _ => !has_sack,
            });
            flow.data_came[from as usize] = is_premature && !segment.payload.is_empty();
        }
        match (direction, packet.tcp()) {
            (Direction::Outgoing, Some(segment)) => self.note_fixed(now, connection, segment),
            (Direction::Incoming, _) => {
                self.flows.entry(connection).or_default();
                let after = self.split.half(connection, Side::Mobile).map(holdover_tcp::Connection::snd_una);
                let is_new = before.zip(after).is_some_and(|(before, after)| after.gt(before));
                self.note_mobile(now, connection, is_new, is_marked);
            }
            _ => {}
        }
        self.settle(now, connection);
        verdict
    }

    fn handle_link(&mut self, _now: Instant, _event: LinkEvent) {}

    fn handle_mobile(&mut self, now: Instant, mobile: IpAddr, presence: Presence) {
        let of_mobile: Vec<Connection> =
            self.flows.keys().copied().filter(|connection| connection.remote.ip() == mobile).collect();
        for connection in of_mobile {
            let Some(flow) = self.flows.get_mut(&connection) else { continue };
            match presence {
                Presence::Away => {
                    let is_waiting = self
                        .split
                        .half(connection, Side::Mobile)
                        .is_some_and(|half| half.state().is_synchronized() && half.snd_una().lt(half.snd_nxt()));
                    if is_waiting {
                        flow.freeze(now, connection, &mut self.split, &self.config, &mut self.deeds);
                    }
                }
                Presence::Present | Presence::Rebound if flow.persist.is_some() || flow.shrunk => {
                    self.note_mobile(now, connection, false, true);
                }
                Presence::Present | Presence::Rebound | Presence::Moved | Presence::Fading { .. } => {}
            }
            self.settle(now, connection);
        }
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.freeze_the_silent(now);
        self.split.handle_timeout(now);
        while let Some(connection) = self.agenda.take_due(now) {
            self.handle_due(now, connection);
        }
        let changed: Vec<Connection> = self.flows.keys().copied().collect();
        for connection in changed {
            self.settle(now, connection);
        }
    }

    fn poll_transmit(&mut self, now: Instant) -> Option<Injected> {
        loop {
            let made = self.split.poll_transmit(now)?;
            // What the node sends on one side goes to the other.
            let side = Side::of_sender(made.direction.opposite());
            if !self.is_premature(side, &made.packet) {
                return Some(made);
            }
        }
    }

    fn poll_deed(&mut self) -> Option<Deed> {
        self.deeds.pop_front().or_else(|| self.split.poll_deed())
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.split.poll_timeout().into_iter().chain(self.agenda.next()).min()
    }
}
