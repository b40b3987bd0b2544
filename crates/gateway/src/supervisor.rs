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
//! # Division of work
//!
//! The flow path tracks the ACKs received and shown, the held bytes, the window and its probes. [`FreezeControl`] decides when held bytes
//! are shown and when the window is shut, as in mode `m-tcp` of the gateway's daemon. The supervisor itself has the copies, as the flow
//! path stores no packets.
//!
//! ACKs with SACK blocks and duplicates show everything: loss recovery depends on them. No ACK acknowledges more than the mobile host's
//! last.
//!
//! [`FreezeControl`]: crate::freeze::FreezeControl

use core::net::IpAddr;
use std::collections::{BTreeMap, VecDeque};

use holdover_base::{Duration, Instant};
use holdover_filter::{Action, Connection, Direction, Injected, LinkEvent, Presence, SegmentFilter, Stored, Verdict};
use holdover_flow::{Flow, HoldBack, Holds, Rules};
use holdover_wire::{Flags, Packet};

use crate::cache::Cache;
use crate::divert::Standing;
use crate::flow_path::{FlowPath, Treatment, is_shut};
use crate::freeze::FreezeConfig;
use crate::prefixes::Prefixes;
use crate::stragglers::STRAGGLERS;

/// When the fixed host's window is shut.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Choke {
    /// Never.
    Never,
    /// When the mobile host is known to be absent.
    WhenAway,
    /// The same, and when it has acknowledged nothing for two round trips over the wireless link while a byte is held (M-TCP).
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
    fn freeze(&self) -> FreezeConfig {
        let holds = if self.held_bytes == 0 { Holds::Nothing } else { Holds::Bytes(self.held_bytes) };
        FreezeConfig {
            holds,
            flush: self.flush,
            when_away: self.choke != Choke::Never,
            least_timeout: (self.choke == Choke::Wintimer).then_some(self.least_timeout),
            outlives_retries: false,
            ..FreezeConfig::m_tcp()
        }
    }

    fn rules(&self) -> Rules {
        let hold =
            HoldBack { segments: 0, after_bytes: self.held_after_bytes, pause: Duration::ZERO, flush: self.flush };
        Rules::new(Some(hold), true, Duration::ZERO)
    }

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

/// The filter of a supervisor. See the [module](self).
#[derive(Debug)]
pub struct Supervisor {
    config: SupervisorConfig,
    path: FlowPath<Copies>,
    /// Hosts that are known to be absent, and since when.
    away: BTreeMap<IpAddr, Instant>,
    ready: VecDeque<Injected>,
}

/// The copies of a connection.
#[derive(Clone, Default, Debug)]
struct Copies {
    cache: Cache,
    /// The number of copies that may still be sent.
    resending: Option<u32>,
}

impl Supervisor {
    /// The name in scenario files.
    pub const NAME: &'static str = "supervisor";

    /// A supervisor without state.
    pub fn new(config: SupervisorConfig) -> Self {
        let treatment = Treatment::Freeze(config.freeze());
        Self {
            config,
            path: FlowPath::new(Self::NAME, treatment, config.rules(), Prefixes::default()),
            away: BTreeMap::new(),
            ready: VecDeque::new(),
        }
    }

    /// Bytes of copies on all connections, with their headers.
    pub fn buffered_bytes(&self) -> usize {
        self.path.live().map(|(_, copies)| copies.cache.bytes()).sum()
    }

    fn handle_from_fixed(&mut self, now: Instant, connection: Connection, packet: &mut Packet) -> Verdict {
        let Self { config, path, away, ready } = self;
        let Some(segment) = packet.tcp() else { return Verdict::Pass };
        let (seq, is_reset) = (segment.seq, segment.flags.intersects(Flags::SYN | Flags::RST));
        let (mut is_again, mut is_kept) = (false, false);
        let followed = path.follow_after(now, Direction::Outgoing, packet, |flow, copies, packet| {
            is_again = flow.was_forwarded(seq);
            is_kept = !is_reset && copies.keep(now, config, flow, packet);
        });
        let Some(verdict) = followed else { return Verdict::Pass };
        let Some((flow, copies)) = path.get_both(connection) else { return verdict };
        if flow.is_over() || is_reset {
            *copies = Copies::default();
            return verdict;
        }
        if verdict == Verdict::Drop {
            return verdict;
        }
        // New data follows the copies: now if there is room among those in flight, or after the host's next ACK.
        // Retransmissions of the fixed host are sent at once: the copies may be lost, and then no ACK arrives.
        let is_away = away.contains_key(&connection.mobile().ip());
        if is_kept && (is_away || copies.resending.is_some() && !is_again) {
            if let Some(cached) = copies.cache.containing(seq) {
                cached.is_due = true;
            }
            copies.resend(now, is_away, ready);
            return Verdict::Keep;
        }
        Verdict::Pass
    }

    fn handle_from_mobile(&mut self, now: Instant, connection: Connection, packet: &mut Packet) -> Verdict {
        let mobile = connection.mobile().ip();
        // A host that sends is present in spite of reports, unless the packet was in flight when it left.
        if self.away.get(&mobile).is_some_and(|&at| now.saturating_since(at) >= STRAGGLERS) {
            self.handle_return(now, mobile);
        }
        let Self { config, path, away, ready } = self;
        let Some(segment) = packet.tcp() else { return Verdict::Pass };
        let is_ack = segment.flags.contains(Flags::ACK) && !segment.flags.intersects(Flags::SYN | Flags::RST);
        let mut was_shut = false;
        let followed = path.follow_after(now, Direction::Incoming, packet, |flow, copies, packet| {
            was_shut = is_shut(flow);
            if let Some(segment) = packet.tcp().filter(|_| is_ack) {
                copies.cache.handle_ack(segment);
            }
        });
        let Some(verdict) = followed else { return Verdict::Pass };
        let Some((flow, copies)) = path.get_both(connection) else { return verdict };
        let is_away = away.contains_key(&mobile);
        if flow.is_over() || !is_ack {
            *copies = Copies::default();
        } else if was_shut && !is_shut(flow) {
            send_copies(now, connection, config, path, ready);
        } else if let Some(more) = &mut copies.resending {
            *more += 2;
            copies.resend(now, is_away, ready);
        }
        verdict
    }

    /// The mobile host is back: the fixed hosts are shown everything that it has acknowledged, and it gets the copies.
    fn handle_return(&mut self, now: Instant, mobile: IpAddr) {
        let Self { config, path, away, ready } = self;
        let was_away = away.remove(&mobile).is_some();
        for connection in path.live_of(mobile) {
            if was_away || path.is_shut(connection) {
                send_copies(now, connection, config, path, ready);
            }
            path.freeze(mobile, |control, flows| control.thaw(now, connection, flows));
        }
        path.with(mobile, |controller, flows| controller.handle_standing(now, Standing::Present, flows));
    }

    /// The mobile host is at another router: the rest follows it, and its ACKs will be seen elsewhere.
    fn handle_moved(&mut self, now: Instant, mobile: IpAddr) {
        let Self { config, path, away, ready } = self;
        away.remove(&mobile);
        path.with(mobile, |controller, flows| controller.handle_end(now, flows));
        for connection in path.live_of(mobile) {
            send_copies(now, connection, config, path, ready);
            if let Some(copies) = path.value_mut(connection) {
                copies.resending = Some(u32::MAX);
                copies.resend(now, false, ready);
            }
            path.forget(connection);
        }
    }
}

/// Begins to send all copies of a connection.
fn send_copies(
    now: Instant,
    connection: Connection,
    config: &SupervisorConfig,
    path: &mut FlowPath<Copies>,
    ready: &mut VecDeque<Injected>,
) {
    let copies = path.value_mut(connection).filter(|copies| !copies.cache.is_empty());
    let Some(copies) = copies else { return };
    for cached in copies.cache.iter_mut() {
        cached.is_due = true;
    }
    copies.resending = Some(config.burst_packets);
    copies.resend(now, false, ready);
    path.tell(now, connection, "sends copies");
}

impl Copies {
    /// Copies a segment with data, if the mobile host has not acknowledged it and there is room. Returns whether there is a copy.
    fn keep(&mut self, now: Instant, config: &SupervisorConfig, flow: &Flow, packet: &Packet) -> bool {
        let Some(segment) = packet.tcp().filter(|segment| segment.seq_len() > 0) else { return false };
        let acked = flow.half(Direction::Incoming).acked();
        let is_wanted = acked.is_none_or(|acked| (segment.seq + segment.seq_len()).gt(acked));
        let fits = self.cache.bytes() + packet.wire_len() <= config.buffer_bytes;
        if is_wanted && fits {
            self.cache.insert(now, packet);
        }
        is_wanted && fits
    }

    /// Sends as many due copies as permitted now. Ends when none is left.
    fn resend(&mut self, now: Instant, is_away: bool, ready: &mut VecDeque<Injected>) {
        let Some(more) = self.resending.as_mut().filter(|_| !is_away) else { return };
        let mut due = self.cache.iter_mut().filter(|cached| cached.is_due).peekable();
        while *more > 0
            && let Some(cached) = due.next()
        {
            (cached.sent_at, cached.resent, cached.is_due) = (now, cached.resent + 1, false);
            ready.push_back(Injected { direction: Direction::Outgoing, packet: cached.packet.clone() });
            *more -= 1;
        }
        if due.peek().is_none() {
            self.resending = None;
        }
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
            Presence::Away => {
                self.away.insert(mobile, now);
                self.path.with(mobile, |controller, flows| controller.handle_standing(now, Standing::Away, flows));
            }
            Presence::Present | Presence::Rebound => self.handle_return(now, mobile),
            Presence::Moved => self.handle_moved(now, mobile),
            Presence::Fading { .. } => {}
        }
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.path.handle_timeout(now);
    }

    /// The fixed host is woken before it gets the ACKs of copies.
    fn poll_transmit(&mut self, _now: Instant) -> Option<Injected> {
        self.path.poll_transmit().or_else(|| self.ready.pop_front())
    }

    fn poll_action(&mut self) -> Option<Action> {
        self.path.poll_action()
    }

    fn stored(&self) -> Stored {
        Stored::of_connections(self.path.live().map(|(_, copies)| copies.cache.bytes()))
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.path.poll_timeout()
    }
}
