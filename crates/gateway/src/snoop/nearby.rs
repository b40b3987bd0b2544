//! Nearby base stations fill their caches before a handoff (Balakrishnan, Seshan and Katz, "Improving reliable transport and handoff
//! performance in cellular wireless networks", Wireless Networks 1995).
//!
//! In the paper the home agent sends the packets for a mobile host to a multicast group. The base station in charge of the host forwards
//! them. Others that the host hears join the group and keep the latest packets. At the handoff the host names the packets that it has
//! received, and the new base station forwards the others of its cache.
//!
//! Here the base station in charge sends each packet with data to its peers, as a message that may be lost, as a multicast packet may. So the
//! packets cross the wires to the other base stations as with multicast, and the wire of the base station in charge once more for each peer.
//!
//! - **Which packets are in the cache.** Those after the last ACK of which the base station in charge knows: each copy tells it. In the
//!   paper, whose base stations do not see the ACKs of others, the latest ones. Above [`SnoopConfig::buffer_bytes`] the oldest are dropped,
//!   and none is kept for longer than [`KEPT`].
//! - **ACKs of the mobile host** are copied if no copy is left after them; so are the packets that end a connection, of both ends. Nearby
//!   base stations learn of the last ACKs and of ends by them.
//! - **Which copies are sent.** All in the cache, in order, as soon as the mobile host is reported present; without reports, when a packet of
//!   the connection passes. The host does not name what it has received. Its duplicate ACKs for known packets are discarded.
//! - **A copy that arrives after the handoff** is sent at once.
//! - **The former base station** keeps its copies, and is a nearby one from then on.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use core::net::IpAddr;
use holdover_base::{Duration, Instant};
use holdover_filter::{Action, Connection, ControlMessage, Direction, Injected};
use holdover_wire::{Checksums, Flags, Packet, Segment, Seq};

use super::{Out, Snoop, SnoopConfig, State};
use crate::handoff::{checked, crc32};
use crate::stragglers::STRAGGLERS;

/// How long nearby base stations keep copies. The fixed host has retransmitted them itself by then.
const KEPT: Duration = Duration::from_secs(30);

/// A copy of a packet for a mobile host or from it, for a nearby base station.
///
/// On the wire, in network byte order: two bytes that mark it, version and flags (1 each), the mobile host's last ACK (4) and its window (2),
/// the IP packet, and the CRC-32 of all preceding bytes (4). Flags: the ACK is known; the packet is from the mobile host.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct PacketCopy {
    /// The mobile host's last ACK, with its window.
    pub(super) acked: Option<(Seq, u16)>,
    pub(super) direction: Direction,
    pub(super) packet: Packet,
}

const MARK: [u8; 2] = *b"SN";
const VERSION: u8 = 1;
const ACKED: u8 = 1;
const FROM_MOBILE: u8 = 1 << 1;
/// Mark, version, flags, ACK and window.
const HEAD_BYTES: usize = 10;

impl PacketCopy {
    /// The message; `None` for a packet that cannot be written as bytes.
    pub(super) fn emit(&self) -> Option<Bytes> {
        let mut out = BytesMut::with_capacity(HEAD_BYTES + self.packet.wire_len() + 4);
        let (ack, window) = self.acked.unwrap_or_default();
        out.put_slice(&MARK);
        let is_acked = if self.acked.is_some() { ACKED } else { 0 };
        let is_from_mobile = if self.direction == Direction::Incoming { FROM_MOBILE } else { 0 };
        out.put_slice(&[VERSION, is_acked | is_from_mobile]);
        out.put_u32(ack.value());
        out.put_u16(window);
        self.packet.emit_into(&mut out).ok()?;
        out.put_u32(crc32(&out));
        Some(out.freeze())
    }

    /// Parses a message from exactly these bytes; `None` if it is no valid copy of a segment.
    pub(super) fn parse(bytes: &Bytes) -> Option<Self> {
        let body = checked(bytes).filter(|body| body.len() > HEAD_BYTES && body.starts_with(&MARK))?;
        let mut head = &body[MARK.len()..];
        let (version, flags, ack, window) = (head.get_u8(), head.get_u8(), head.get_u32(), head.get_u16());
        if version != VERSION || flags > ACKED | FROM_MOBILE || flags & ACKED == 0 && (ack, window) != (0, 0) {
            return None;
        }
        let packet = Packet::parse_to_forward(bytes.slice(HEAD_BYTES..body.len()), Checksums::Verify).ok()?;
        packet.tcp()?;
        let direction = if flags & FROM_MOBILE == 0 { Direction::Outgoing } else { Direction::Incoming };
        Some(Self { acked: (flags & ACKED != 0).then_some((Seq::new(ack), window)), direction, packet })
    }
}

impl Out {
    /// Sends a copy of a packet for the mobile host to each peer.
    pub(super) fn copy_to(&mut self, peers: &[IpAddr], packet: &Packet, state: &State) {
        let acked = state.acked.map(|acked| (acked, state.window));
        self.send_copy(peers, acked, Direction::Outgoing, packet);
    }

    /// Sends a copy of an ACK after which there are no copies left.
    pub(super) fn copy_ack(&mut self, peers: &[IpAddr], packet: &Packet) {
        self.send_copy(peers, None, Direction::Incoming, packet);
    }

    /// Sends a copy of a packet that ends a connection, or begins one.
    pub(super) fn copy_end(&mut self, peers: &[IpAddr], direction: Direction, packet: &Packet) {
        self.send_copy(peers, None, direction, packet);
    }

    fn send_copy(&mut self, peers: &[IpAddr], acked: Option<(Seq, u16)>, direction: Direction, packet: &Packet) {
        if peers.is_empty() {
            return;
        }
        let Some(payload) = (PacketCopy { acked, direction, packet: packet.clone() }).emit() else { return };
        self.messages.extend(peers.iter().map(|&peer| ControlMessage { peer, payload: payload.clone() }));
    }
}

impl Snoop {
    /// Handles a copy of a peer. Returns whether it is valid, and from one of the peers.
    pub(super) fn handle_copy(&mut self, now: Instant, message: &ControlMessage) -> bool {
        if !self.config.peers.contains(&message.peer) {
            return false;
        }
        let Some(PacketCopy { acked, direction, packet }) = PacketCopy::parse(&message.payload) else { return false };
        let Some(connection) = Connection::of(direction, &packet) else { return false };
        let is_present = self.reported.get(&connection.mobile().ip()).copied();
        let Self { config, connections, agenda, out, .. } = self;
        let Some(segment) = packet.tcp() else { return false };
        let noted = connections.observe(now, direction, connection, segment);
        let (state, is_over) = (noted.value, noted.is_over);
        if is_over || segment.flags.intersects(Flags::SYN | Flags::RST) {
            state.forget(agenda, connection);
            return true;
        }
        // Without reports: the packets of the mobile host take another path now.
        let passes_elsewhere = state.passed_at.is_none_or(|at| now.saturating_since(at) > STRAGGLERS);
        let is_nearby = is_present.map_or(passes_elsewhere, |is_present| !is_present);
        if is_nearby && !state.is_nearby {
            state.leave_charge(now);
        }
        match direction {
            Direction::Incoming => state.note_copied_ack(segment.ack, segment.window),
            Direction::Outgoing => {
                if let Some((ack, window)) = acked {
                    state.note_copied_ack(ack, window);
                }
                let end = segment.seq + segment.seq_len();
                if segment.seq_len() > 0 && state.acked.is_none_or(|acked| end.gt(acked)) {
                    let is_known = state.cache.has(segment.seq, end);
                    state.keep_latest(now, config, &packet, segment);
                    if !state.is_nearby && !is_known {
                        out.ready.push_back(Injected { direction: Direction::Outgoing, packet });
                        state.note_activity(now, config);
                    }
                }
            }
        }
        state.set_due(agenda, connection);
        true
    }
}

impl State {
    /// Keeps a copy of another base station; the oldest ones make room.
    fn keep_latest(&mut self, now: Instant, config: &SnoopConfig, packet: &Packet, segment: &Segment) {
        while self.is_nearby && !self.cache.is_empty() && self.cache.bytes() + packet.wire_len() > config.buffer_bytes {
            self.cache.pop_first();
        }
        self.keep(now, config, packet, segment);
        if self.is_nearby {
            // The time of its ACK says nothing about the link here.
            self.timer.forget_pending();
            self.expires_at = self.expires_at.or(Some(now + KEPT));
        }
    }

    /// An ACK has passed another base station.
    fn note_copied_ack(&mut self, ack: Seq, window: u16) {
        if self.acked.is_none_or(|known| known.lt(ack)) {
            (self.acked, self.window) = (Some(ack), window);
            self.cache.acknowledge(ack);
        }
    }

    /// Forgets copies that a nearby base station has had for too long.
    pub(super) fn forget_old(&mut self, now: Instant) {
        let since = now.saturating_since(Instant::ZERO);
        if since > KEPT {
            self.cache.forget_sent_until(Instant::ZERO + (since - KEPT));
        }
        let first = self.cache.iter_mut().map(|cached| cached.sent_at).min();
        self.expires_at = first.map(|first| first + KEPT);
    }

    /// Another base station is in charge from now on.
    pub(super) fn leave_charge(&mut self, now: Instant) {
        self.is_nearby = true;
        self.forget_old(now);
        (self.timeout_at, self.persist_at) = (None, None);
        (self.expected, self.surplus, self.is_fresh) = (0, 0, false);
        self.timer.forget_pending();
    }

    /// The mobile host acknowledges at a base station that was nearby.
    pub(super) fn acknowledge(&mut self, segment: &Segment) {
        self.cache.handle_ack(segment);
        self.acked = Some(self.acked.map_or(segment.ack, |acked| acked.max(segment.ack)));
        self.window = segment.window;
    }

    /// This base station is in charge from now on: the copies are sent. Returns whether there are any.
    pub(super) fn take_charge(
        &mut self,
        now: Instant,
        config: &SnoopConfig,
        connection: Connection,
        out: &mut Out,
    ) -> bool {
        self.forget_old(now);
        (self.is_nearby, self.expires_at) = (false, None);
        self.passed_at = Some(now);
        self.timer.forget_pending();
        for cached in self.cache.iter_mut() {
            (cached.sent_at, self.resent_to) = (now, Some(cached.end));
            out.ready.push_back(Injected { direction: Direction::Outgoing, packet: cached.packet.clone() });
        }
        self.is_fresh = !self.cache.is_empty();
        if self.is_fresh {
            out.actions.push_back(Action { at: now, connection, mechanism: Snoop::NAME, what: "sent copies" });
            self.start_timer(now, config);
            self.note_activity(now, config);
        }
        self.is_fresh
    }
}

#[cfg(test)]
mod tests {
    use holdover_wire::{TcpOptions, Timestamps};
    use proptest::prelude::*;

    use super::*;

    proptest! {
        // Claim: Copies for nearby base stations come out as they went in; damaged and random bytes are refused.
        #[test]
        fn a_copy_comes_out_as_it_went_in(
            acked in prop::option::of(any::<(u32, u16)>()), seq: u32, times in prop::option::of(any::<(u32, u32)>()),
            data in prop::collection::vec(any::<u8>(), 1..1_500), at in any::<prop::sample::Index>(), change in 1_u8..,
            random in prop::collection::vec(any::<u8>(), 0..90), is_from_mobile: bool,
        ) {
            let timestamps = times.map(|(val, ecr)| Timestamps { val, ecr });
            let options = TcpOptions { timestamps, ..TcpOptions::default() };
            let segment = Segment {
                src_port: 80, dst_port: 1_000, seq: Seq::new(seq), options, payload: data.into(), ..Segment::default()
            };
            let packet = Packet::new([10, 0, 0, 1].into(), [10, 0, 0, 2].into(), segment);
            let direction = if is_from_mobile { Direction::Incoming } else { Direction::Outgoing };
            let copy = PacketCopy { acked: acked.map(|(ack, window)| (Seq::new(ack), window)), direction, packet };
            let bytes = copy.emit().expect("a packet that can be written");
            let parsed = PacketCopy::parse(&bytes).expect("a copy");
            prop_assert_eq!((parsed.acked, parsed.direction), (copy.acked, direction));
            prop_assert_eq!(parsed.packet.emit(), copy.packet.emit());
            let mut damaged = bytes.to_vec();
            *at.get_mut(&mut damaged) ^= change;
            prop_assert_eq!(PacketCopy::parse(&damaged.into()), None);
            let mut random = [&MARK[..], &[VERSION], &random].concat();
            random.extend(crc32(&random).to_be_bytes());
            let random = Bytes::from(random);
            if let Some(copy) = PacketCopy::parse(&random) {
                prop_assert_eq!(copy.emit(), Some(random));
            }
        }
    }
}
