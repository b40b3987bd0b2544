//! The host's first unacknowledged segments, as its TCP sends them during an outage, or retransmits them before an outage is
//! noticed. A peer is probed with a copy, and a copy follows the link's return: the first packet that gets through brings the
//! data, instead of requesting it. The host's own timer may be a retransmission timeout away at that moment, even after an ICMP
//! message (RFC 6069 reverts doublings, not the timeout).
//!
//! That concerns short segments. A full one, which is kept while the link is not calm, takes time on the link and would be sent twice if the
//! host's TCP retransmits, so its copy goes out only when messages have had no effect: TCP has retransmitted the segment into the outage, or
//! into a path that was not there yet, what follows it has arrived, and nothing more may be sent. No message makes Linux repeat it then,
//! and its timer may have measured the outage as a round trip (9 s for an upload over OpenVPN that was cut for 3 s).
//!
//! The shell calls [`OwnSegments::note`] for such segments, [`OwnSegments::peer_probe`] to probe a peer, and [`OwnSegments::beside`] and
//! [`OwnSegments::raise_timestamp`] before it sends a packet of the controller.

use std::collections::BTreeMap;
use std::net::IpAddr;

use bytes::Bytes;
use holdover_base::Instant;
use holdover_filter::{Connection, tcp_mut};
use holdover_flow::Flow;
use holdover_wire::{Flags, Packet, Payload, Segment, Seq};

use super::attempt::Attempt;
use crate::echo_clock::{Stamp, is_older};
use crate::{Direction, EchoClock, Injected};

/// The segments, by connection.
#[derive(Clone, Default, Debug)]
pub struct OwnSegments {
    kept: BTreeMap<Connection, Kept>,
    clock: HostClock,
}

/// The timestamp clocks that the host's TCP may have. A copy ahead of it would make the peer discard the host's own segments (PAWS).
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
enum HostClock {
    /// Linux's: 1 kHz or 1 MHz.
    #[default]
    Linux,
    /// Any.
    Any,
}

/// Whether the host still has a socket of a connection. It may have given up without a packet (a user timeout): data that its application
/// believes lost must not be delivered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SocketState {
    /// It has.
    Open,
    /// It has none: the connection is over, or another host's.
    Gone,
    /// Not known now. No copy is sent.
    Unknown,
}

/// A packet with which a peer is probed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PeerProbe {
    /// A copy of the host's segment. One that the link refuses is not repeated.
    Copy(Packet),
    /// [`Flow::keep_alive`].
    KeepAlive(Packet),
}

/// A copy that goes out with a packet of the controller.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Beside {
    /// None.
    Nothing,
    /// A copy before the packet.
    Before(Packet),
    /// A copy in place of the packet.
    Instead(Packet),
}

/// A segment, and its copies.
#[derive(Clone, Debug)]
struct Kept {
    seq: Seq,
    flags: Flags,
    payload: Bytes,
    /// So many of its first bytes have been sent in a short packet. A full segment may begin with them, as TCP joins small ones.
    short_len: usize,
    /// When a message about it was sent first.
    poked_at: Option<Instant>,
    /// Whether the host has sent it more than once.
    is_sent_again: bool,
    /// Bytes of its copies.
    copied: usize,
    copied_at: Option<Instant>,
    /// The highest TSval of a copy: a later packet with a lower one would be discarded (PAWS, RFC 7323 section 5.3).
    val: Option<u32>,
    /// There is no socket: the connection is another host's, or over.
    is_foreign: bool,
}

/// The longest short packet, as in the programs of the agent (`COPY_SHORT`): a keystroke, a command, a small message.
pub(super) const LONGEST_SHORT: usize = 256;

/// The longest packet whose segment is kept, as in the programs of the agent (`COPY_MOST`): a full segment over Ethernet.
pub(super) const LONGEST_KEPT: usize = 1500;

/// The most bytes of copies in a silence, and again after it: probes of 90 bytes for 30 s, which is how long a peer is probed
/// often. A link that holds packets delivers all of them, and the peer answers each (RFC 2883).
const MOST_COPIED: usize = 128 << 10;

/// The limit of connections for which a segment is kept.
const MOST_SEGMENTS: usize = 1024;

/// Flags that a copy keeps: not those of congestion, which concern the first transmission (RFC 3168 section 6.1).
const KEPT_FLAGS: Flags = Flags::ACK.union(Flags::PSH).union(Flags::FIN);

impl OwnSegments {
    /// Those of a host whose TCP may be any.
    pub(super) fn of_any_stack() -> Self {
        Self { kept: BTreeMap::new(), clock: HostClock::Any }
    }

    /// Notes a packet that the host has sent, and whether its data have passed before.
    pub fn note(&mut self, packet: &Packet, is_retransmission: bool) {
        let Some(connection) = Connection::of(Direction::Outgoing, packet) else { return };
        // A copy would lack the options of MPTCP and the like, and the urgent pointer.
        let is_whole = |segment: &&Segment| segment.options.unknown == 0 && !segment.flags.contains(Flags::URG);
        let Some(segment) = packet.tcp().filter(is_whole) else { return };
        let (seq, flags) = (segment.seq, segment.flags & KEPT_FLAGS);
        // The segment may be a slice of a large buffer, which must not stay alive for it.
        let payload = Bytes::copy_from_slice(&segment.payload);
        let short_len = if packet.wire_len() > LONGEST_SHORT { 0 } else { payload.len() };
        if let Some(kept) = self.kept.get_mut(&connection) {
            if kept.seq != seq {
                (kept.copied, kept.is_sent_again, kept.short_len, kept.poked_at) = (0, false, 0, None);
            }
            kept.is_sent_again |= is_retransmission;
            kept.short_len = kept.short_len.max(short_len).min(payload.len());
            (kept.seq, kept.flags, kept.payload) = (seq, flags, payload);
            return;
        }
        if self.kept.len() >= MOST_SEGMENTS {
            if short_len == 0 {
                return;
            }
            self.kept.pop_first();
        }
        let kept = Kept {
            seq,
            flags,
            payload,
            short_len,
            poked_at: None,
            is_sent_again: is_retransmission,
            copied: 0,
            copied_at: None,
            val: None,
            is_foreign: false,
        };
        self.kept.insert(connection, kept);
    }

    /// The host's addresses have changed, or the interface is another one.
    pub fn clear(&mut self) {
        self.kept.clear();
    }

    /// The connection is over, or another one with its addresses and ports begins, whose timestamps may be others.
    pub(super) fn forget(&mut self, connection: Connection) {
        self.kept.remove(&connection);
    }

    /// Forgets the segments that are no longer the first unacknowledged ones, and those of closed connections.
    pub fn forget_acknowledged(&mut self, flow: impl Fn(Connection) -> Option<Flow>) {
        self.kept
            .retain(|&connection, kept| flow(connection).is_some_and(|flow| !flow.is_over() && kept.is_first(&flow)));
    }

    /// Forgets the connection's segment if it is no longer the first unacknowledged one, or the connection is closed.
    pub fn review(&mut self, connection: Connection, flow: &Flow) {
        if self.kept.get(&connection).is_some_and(|kept| flow.is_over() || !kept.is_first(flow)) {
            self.kept.remove(&connection);
        }
    }

    /// Whether the connection's first unacknowledged segment is kept, a short one, and the host has sent it more than once.
    pub fn is_sent_again(&self, connection: Connection, flow: &Flow) -> bool {
        self.kept.get(&connection).is_some_and(|kept| {
            kept.is_sent_again && kept.acknowledged(flow).is_some_and(|count| count < kept.short_len)
        })
    }

    /// The outage is over: the count of copies restarts.
    pub fn begin_return(&mut self) {
        self.kept.values_mut().for_each(Kept::begin_return);
    }

    /// The same for the connections with one peer, which has these addresses.
    pub(super) fn begin_return_of(&mut self, peer: &[IpAddr]) {
        let with_peer = self.kept.iter_mut().filter(|(connection, _)| peer.contains(&connection.remote.ip()));
        with_peer.for_each(|(_, kept)| kept.begin_return());
    }

    /// Whether there may be a copy for a connection.
    pub fn has(&self, connection: Connection) -> bool {
        self.kept.get(&connection).is_some_and(|kept| !kept.is_foreign && kept.copied < MOST_COPIED)
    }

    /// Whether a copy may take the place of a probe.
    pub(super) fn has_short(&self, connection: Connection) -> bool {
        self.has(connection) && self.kept.get(&connection).is_some_and(|kept| kept.short_len > 0)
    }

    /// The packet with which a peer is probed: a copy of the host's first unacknowledged segment if that was kept, else a keep-alive probe.
    pub fn peer_probe(
        &mut self,
        now: Instant,
        connection: Connection,
        flow: &Flow,
        socket: impl FnOnce(Connection) -> SocketState,
    ) -> Option<PeerProbe> {
        let copy = self.copy_if_open(now, connection, flow, Extent::Short, socket);
        copy.map(PeerProbe::Copy).or_else(|| flow.keep_alive(connection).map(PeerProbe::KeepAlive))
    }

    /// The copy that goes out with a packet of the controller: before a message that makes the host's TCP retransmit, and in place of a probe.
    pub fn beside(
        &mut self,
        now: Instant,
        connection: Connection,
        injected: &Injected,
        flow: &Flow,
        socket: impl FnOnce(Connection) -> SocketState,
    ) -> Beside {
        let copy = match Purpose::of(injected, flow) {
            Purpose::Probe => self.copy_if_open(now, connection, flow, Extent::Short, socket).map(Beside::Instead),
            Purpose::Poke => {
                let kept = self.kept.get_mut(&connection);
                let extent = kept.and_then(|kept| kept.goes_with_message(now, flow));
                let copy = extent.and_then(|extent| self.copy_if_open(now, connection, flow, extent, socket));
                copy.map(Beside::Before)
            }
            Purpose::Other => None,
        };
        copy.unwrap_or(Beside::Nothing)
    }

    /// Raises the TSval of a packet of the controller to that of the copies before it.
    pub fn raise_timestamp(&self, connection: Connection, injected: &mut Injected) {
        if injected.direction == Direction::Outgoing
            && let Some(val) = self.kept.get(&connection).and_then(|kept| kept.val)
            && let Some(timestamps) = tcp_mut(&mut injected.packet).and_then(|it| it.options.timestamps.as_mut())
            && (val.wrapping_sub(timestamps.val) as i32) > 0
        {
            timestamps.val = val;
        }
    }

    /// As if as many copies had been sent as may be.
    #[cfg(test)]
    pub(super) fn use_up(&mut self, connection: Connection) {
        self.kept.get_mut(&connection).expect("it is kept").copied = MOST_COPIED;
    }

    fn copy_if_open(
        &mut self,
        now: Instant,
        connection: Connection,
        flow: &Flow,
        extent: Extent,
        socket: impl FnOnce(Connection) -> SocketState,
    ) -> Option<Packet> {
        if !self.has(connection) || extent == Extent::Short && !self.has_short(connection) {
            return None;
        }
        match socket(connection) {
            SocketState::Open => self.copy(now, connection, flow, extent),
            SocketState::Gone => {
                self.leave_alone(connection);
                None
            }
            SocketState::Unknown => None,
        }
    }

    /// There is no socket for a connection.
    fn leave_alone(&mut self, connection: Connection) {
        if let Some(kept) = self.kept.get_mut(&connection) {
            kept.is_foreign = true;
        }
    }

    /// A copy of the host's first unacknowledged segment: what the peer has not acknowledged of its data in a packet with the ACK, window and SACK blocks that the
    /// controller's probes have, and the present time of the host's timestamp clock, so that the answer is a valid measurement of
    /// the round trip. `None` if none was kept.
    fn copy(&mut self, now: Instant, connection: Connection, flow: &Flow, extent: Extent) -> Option<Packet> {
        let half = flow.half(Direction::Incoming);
        let kept = self.kept.get_mut(&connection)?;
        let end = if extent == Extent::Whole { kept.payload.len() } else { kept.short_len };
        let acknowledged = kept.acknowledged(flow).filter(|&count| count < end)?;
        let mut packet = flow.keep_alive(connection)?;
        let segment = tcp_mut(&mut packet)?;
        segment.seq = kept.seq + acknowledged as u32;
        segment.payload = kept.payload.slice(acknowledged..end);
        segment.flags = if end == kept.payload.len() { kept.flags } else { kept.flags - Flags::FIN };
        if let Some(timestamps) = &mut segment.options.timestamps {
            let val = self.clock.at(now, half.stamps()?)?;
            timestamps.val = kept.val.filter(|&copied| is_older(val, copied)).unwrap_or(val);
            kept.val = Some(timestamps.val);
        }
        (kept.copied, kept.copied_at) = (kept.copied + packet.wire_len(), Some(now));
        Some(packet)
    }
}

impl HostClock {
    /// Its time at `now`, given the first and the newest TSval seen. `None` if its rate is unknown.
    fn at(self, now: Instant, [first, newest]: [Stamp; 2]) -> Option<u32> {
        match self {
            Self::Linux => EchoClock::between(first, newest).at(now),
            Self::Any => Some(EchoClock::not_ahead(first, newest, now)),
        }
    }
}

impl Kept {
    /// The outage is over.
    fn begin_return(&mut self) {
        (self.copied, self.poked_at) = (0, None);
    }

    /// Whether a copy was sent within the last round trip, so that its answer may be in flight.
    fn is_under_way(&self, now: Instant, flow: &Flow) -> bool {
        let Some(copied_at) = self.copied_at else { return false };
        flow.least_round_trip().is_none_or(|round_trip| now.saturating_since(copied_at) < round_trip)
    }

    /// What goes out with a message that is sent now: all of a full segment only if TCP has sent nothing for as long as an answer takes, after
    /// an earlier message too.
    fn goes_with_message(&mut self, now: Instant, flow: &Flow) -> Option<Extent> {
        let poked_at = *self.poked_at.get_or_insert(now);
        if self.is_under_way(now, flow) {
            return None;
        }
        let sent_at = flow.half(Direction::Incoming).last_data_at();
        let is_stuck = now >= poked_at.max(sent_at.unwrap_or(poked_at)) + Attempt::stuck_after(flow);
        let has_short = self.acknowledged(flow).is_some_and(|count| count < self.short_len);
        if is_stuck { Some(Extent::Whole) } else { has_short.then_some(Extent::Short) }
    }

    /// How many of its bytes the peer has acknowledged. `None` if the first byte that it has not acknowledged is not one of them.
    fn acknowledged(&self, flow: &Flow) -> Option<usize> {
        let acked = flow.half(Direction::Incoming).acked().filter(|acked| acked.ge(self.seq))?;
        Some(acked.saturating_since(self.seq) as usize).filter(|&count| count < self.payload.len())
    }

    /// Whether it has the first byte that the peer has not acknowledged.
    fn is_first(&self, flow: &Flow) -> bool {
        self.acknowledged(flow).is_some()
    }
}

/// The part of a kept segment that a copy has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Extent {
    /// The first bytes, which were sent in a short packet.
    Short,
    /// All of it.
    Whole,
}

/// The purpose of a packet that the controller sends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Purpose {
    /// The peer is to answer ([`Flow::keep_alive`]).
    Probe,
    /// The host's TCP is to retransmit ([`unreachable_poke`](crate::unreachable_poke)).
    Poke,
    /// Something else.
    Other,
}

impl Purpose {
    fn of(injected: &Injected, flow: &Flow) -> Self {
        match (injected.direction, &injected.packet.payload) {
            (Direction::Incoming, Payload::IcmpError(_)) => Self::Poke,
            (Direction::Outgoing, Payload::Tcp(segment))
                if segment.payload.is_empty()
                    && flow.half(Direction::Incoming).acked().is_some_and(|first| segment.seq == first - 1) =>
            {
                Self::Probe
            }
            _ => Self::Other,
        }
    }
}

#[cfg(test)]
mod tests {
    use holdover_base::Duration;
    use holdover_wire::Timestamps;

    use super::*;

    fn connection(port: u16) -> Connection {
        Connection { local: ([10, 0, 0, 1], port).into(), remote: ([10, 0, 0, 2], 22).into() }
    }

    /// A packet of the host's on a connection.
    fn sent(port: u16, seq: u32, flags: Flags, payload: &'static [u8]) -> Packet {
        let connection = connection(port);
        let segment = Segment {
            src_port: port,
            dst_port: 22,
            seq: Seq::new(seq),
            flags,
            payload: Bytes::from_static(payload),
            ..Segment::default()
        };
        Packet::new(connection.local.ip(), connection.remote.ip(), segment)
    }

    #[test]
    fn segments_and_copies_are_bounded() {
        let mut own = OwnSegments::default();
        for port in 1..=2000 {
            own.note(&sent(port, 1, Flags::ACK, b"k"), false);
        }
        assert_eq!(own.kept.len(), MOST_SEGMENTS);
        let port = 2000;
        own.kept.get_mut(&connection(port)).unwrap().copied = MOST_COPIED;
        assert!(!own.has(connection(port)));
        own.begin_return();
        assert!(own.has(connection(port)), "copies count anew after the outage");
        own.leave_alone(connection(port));
        own.note(&sent(port, 2, Flags::ACK, b"l"), false);
        assert!(!own.has(connection(port)), "there is no socket");
        own.clear();
        assert!(own.kept.is_empty());
    }

    #[test]
    fn segments_of_connections_that_are_gone_are_forgotten() {
        let mut own = OwnSegments::default();
        own.note(&sent(1, 1, Flags::ACK, b"k"), false);
        own.note(&sent(2, 1, Flags::ACK, b"k"), false);
        assert!(!own.kept[&connection(1)].is_first(&Flow::new()), "nothing is acknowledged yet");
        own.forget_acknowledged(|_| None);
        assert!(own.kept.is_empty());
    }

    #[test]
    fn a_kept_segment_keeps_no_buffer_alive() {
        let buffer = Bytes::from(vec![7; 1 << 16]);
        let mut packet = sent(5, 1, Flags::ACK, b"");
        tcp_mut(&mut packet).unwrap().payload = buffer.slice(100..110);
        let mut own = OwnSegments::default();
        own.note(&packet, false);
        drop(packet);
        assert_eq!(own.kept[&connection(5)].payload, [7; 10][..]);
        assert!(buffer.is_unique());
    }

    #[test]
    fn congestion_flags_are_not_repeated() {
        let mut own = OwnSegments::default();
        own.note(&sent(5, 1, Flags::ACK | Flags::PSH | Flags::CWR | Flags::ECE, b"k"), false);
        assert_eq!(own.kept[&connection(5)].flags, Flags::ACK | Flags::PSH);
    }

    #[test]
    fn a_segment_is_sent_again_if_its_data_have_passed_before() {
        let mut own = OwnSegments::default();
        let is_sent_again = |own: &OwnSegments| own.kept[&connection(5)].is_sent_again;
        own.note(&sent(5, 1, Flags::ACK, b"k"), false);
        assert!(!is_sent_again(&own));
        let again = sent(5, 1, Flags::ACK, b"k");
        own.note(&again, true);
        assert!(is_sent_again(&own));
        own.note(&sent(5, 2, Flags::ACK, b"l"), false);
        assert!(!is_sent_again(&own), "the next one");
        own.clear();
        own.note(&again, true);
        assert!(is_sent_again(&own));
    }

    #[test]
    fn urgent_data_are_not_repeated() {
        let mut own = OwnSegments::default();
        own.note(&sent(5, 1, Flags::ACK | Flags::PSH | Flags::URG, b"k"), false);
        assert!(own.kept.is_empty());
    }

    #[test]
    fn no_packet_is_older_than_a_copy_before_it() {
        let mut own = OwnSegments::default();
        own.note(&sent(5, 1, Flags::ACK, b"k"), false);
        own.kept.get_mut(&connection(5)).unwrap().val = Some(100);
        let injected = |val: u32, direction| {
            let mut segment = Segment::default();
            segment.options.timestamps = Some(Timestamps { val, ecr: 7 });
            Injected { direction, packet: Packet::new([10, 0, 0, 1].into(), [10, 0, 0, 2].into(), segment) }
        };
        let raised = |val, direction| {
            let mut injected = injected(val, direction);
            own.raise_timestamp(connection(5), &mut injected);
            injected.packet.tcp().unwrap().options.timestamps.unwrap().val
        };
        assert_eq!(raised(99, Direction::Outgoing), 100);
        assert_eq!(raised(101, Direction::Outgoing), 101);
        assert_eq!(raised(u32::MAX, Direction::Outgoing), 100, "before it, modulo 2^32");
        assert_eq!(raised(99, Direction::Incoming), 99);
        assert!(!own.kept[&connection(5)].is_under_way(Instant::ZERO + Duration::from_secs(1), &Flow::new()));
    }
}
