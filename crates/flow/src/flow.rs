//! Flows: the state of a connection, and the verdict on its packets.

use holdover_base::{Duration, Instant};
use holdover_filter::{Connection, Direction, Verdict, tcp_mut};
use holdover_wire::{Packet, Segment, Seq};

use crate::layout::{
    FRAME_LEN, Finding, Flow, HALF_LAST, HALF_LAST_STAMPS, HalfCore, Holding, Key, Link, Rules, STAGE_HOST_FIN_ACKED,
    STAGE_LEFT_ALONE, STAGE_PEER_FIN_ACKED, STAGE_RESET, TRIP_HEARD_ERA, TRIP_LONG, TRIP_SAMPLED, UNKNOWN_SHIFT,
};
use crate::notice::Notice;
use crate::order::OrderRecord;
use crate::prediction::Place;
use crate::segment::{self, Form};
use crate::{ffi, key, layout};

/// The link, rules and time for a packet.
#[derive(Clone, Copy, Debug)]
pub struct Environment<'a> {
    /// The time.
    pub now: Instant,
    /// The state of the link.
    pub link: &'a Link,
    /// The fixed parameters.
    pub rules: &'a Rules,
}

impl Flow {
    /// A flow before its first packet.
    pub fn new() -> Self {
        Self { outgoing: HalfCore::default(), incoming: HalfCore::default(), ..ffi::zeroed_flow() }
    }

    /// Handles a packet of the flow, which may be rewritten.
    pub fn handle_packet(
        &mut self,
        place: &mut Place,
        key: &Key,
        environment: Environment<'_>,
        direction: Direction,
        packet: &mut Packet,
        form: Form,
    ) -> (Verdict, Option<Notice>) {
        let Environment { now, link, rules } = environment;
        let Some(segment) = packet.tcp() else { return (Verdict::Pass, None) };
        let read = segment::read(now, packet, segment, form);
        let is_new = self.began_at == 0;
        let verdict = ffi::handle_segment(
            self,
            place.predictions_mut(),
            key,
            (link, rules),
            &read,
            key::to_raw(direction),
            is_new,
        );
        carry_out(verdict, packet)
    }

    /// As [`Self::handle_packet`], on a node between two hosts, without header prediction.
    pub fn pass_between(
        &mut self,
        key: &Key,
        environment: Environment<'_>,
        direction: Direction,
        packet: &mut Packet,
        form: Form,
    ) -> (Verdict, Option<Notice>) {
        let Environment { now, link, rules } = environment;
        let Some(segment) = packet.tcp() else { return (Verdict::Pass, None) };
        let read = segment::read(now, packet, segment, form);
        let verdict = ffi::pass_between(self, key, (link, rules), &read, key::to_raw(direction));
        carry_out(verdict, packet)
    }

    /// Carries out an order.
    pub fn handle_order(&mut self, place: &mut Place, order: &OrderRecord) {
        ffi::handle_order(self, place.predictions_mut(), &order.0);
    }

    /// The effect of a packet on the flow table of a host; `known` is the flow of its key.
    pub fn find_at_host(known: Option<&Self>, direction: Direction, packet: &Packet, segment: &Segment) -> Finding {
        let read = segment::read(Instant::ZERO, packet, segment, Form::of(segment));
        ffi::find_at_host(known, &read, key::to_raw(direction))
    }

    /// As [`Self::find_at_host`], on a node between two hosts.
    pub fn find_between(known: Option<&Self>, packet: &Packet, segment: &Segment) -> Finding {
        ffi::find_between(known, &segment::read(Instant::ZERO, packet, segment, Form::of(segment)))
    }

    /// Whether the handshake is complete and neither end has closed: then a SYN is not of this connection (RFC 5961
    /// section 4).
    pub fn is_under_way(&self) -> bool {
        ffi::is_under_way(self)
    }

    /// The Ethernet header of the last packet in `direction`; all zeros if there was none.
    pub const fn frame(&self, direction: Direction) -> [u8; FRAME_LEN] {
        match direction {
            Direction::Outgoing => self.frame_out,
            Direction::Incoming => self.frame_in,
        }
    }

    pub(crate) const fn has(&self, flag: u32) -> bool {
        self.flags as u32 & flag != 0
    }

    /// The smoothed round trip to the peer in ns.
    pub(crate) const fn smoothed(&self) -> u64 {
        let high = if self.has(TRIP_LONG) { self.smoothed_high } else { 0 };
        (high as u64) << 32 | self.smoothed as u64
    }

    /// Sets [`Self::smoothed`].
    pub(crate) const fn set_smoothed(&mut self, nanos: u64) {
        self.smoothed = nanos as u32;
        self.smoothed_high = (nanos >> 32) as u32;
        let is_long = if self.smoothed_high == 0 { 0 } else { TRIP_LONG as u16 };
        self.flags = self.flags & !(TRIP_LONG as u16) | is_long;
    }

    /// The time of the last packet from the peer in ns; 0 for none.
    pub(crate) const fn heard_nanos(&self) -> u64 {
        whole_time(self.heard_at, self.has(TRIP_HEARD_ERA), self.heard_era, self)
    }

    /// The path's round trip, with queues (RFC 6298's SRTT); `None` before the first sample.
    pub fn smoothed_round_trip(&self) -> Option<Duration> {
        self.has(TRIP_SAMPLED).then_some(Duration::from_nanos(self.smoothed() + self.beyond))
    }

    /// The last round trip from here to the peer; zero before the first sample.
    pub const fn latest_round_trip(&self) -> Duration {
        Duration::from_nanos(self.latest)
    }

    /// The shortest round trip measured; `None` before the first sample.
    pub fn least_round_trip(&self) -> Option<Duration> {
        self.has(TRIP_SAMPLED).then_some(Duration::from_nanos(self.least + self.beyond))
    }

    /// The shortest round trip from here to the host, on a node between both hosts; `None` at the host, or before the
    /// first sample.
    pub fn round_trip_beyond(&self) -> Option<Duration> {
        (self.beyond != 0).then_some(Duration::from_nanos(self.beyond))
    }

    /// The time of the last data in either direction.
    pub fn active_at(&self) -> Option<Instant> {
        self.half(Direction::Outgoing).last_data_at().max(self.half(Direction::Incoming).last_data_at())
    }

    /// The time of the last packet from the peer.
    pub fn heard_at(&self) -> Option<Instant> {
        time(self.heard_nanos())
    }

    /// Whether the peer has sent data that has not arrived: its last packets have higher sequence numbers than this host has acknowledged.
    pub fn lacks_data(&self) -> bool {
        let (peer, acked) = (self.half(Direction::Incoming), self.half(Direction::Outgoing).acked());
        peer.has(HALF_LAST) && acked.is_some_and(|acked| Seq::new(peer.core.last_nxt).gt(acked))
    }

    /// Whether packets of this host have passed here after `then`, or may have reached the peer over another interface: it echoes a later
    /// timestamp than any that has passed here, or there are no timestamps to tell.
    pub fn may_be_answered_after(&self, then: Instant) -> bool {
        let own = self.half(Direction::Incoming);
        let newest = self.newest_stamp(Direction::Incoming);
        let Some((echo, newest)) = own.last_echo().zip(newest) else { return true };
        let has_passed = own.stamps().is_some_and(|[_, (passed_at, _)]| passed_at > then);
        has_passed || Seq::new(echo).gt(Seq::new(newest))
    }

    /// Whether data, or ACKs of data, have arrived after `then`. Any packet of the peer proves less: it may answer a
    /// probe.
    pub fn has_gone_on_after(&self, then: Instant) -> bool {
        let went_on = |direction| self.half(direction).progress_at(direction).is_some_and(|at| at > then);
        went_on(Direction::Outgoing) || went_on(Direction::Incoming)
    }

    /// Whether the host has data outstanding.
    pub fn awaits_ack(&self) -> bool {
        self.half(Direction::Incoming).awaits_ack()
    }

    /// Whether data from `seq` on, or an ACK of it, has passed before: a segment that begins there is a retransmission.
    pub fn was_forwarded(&self, seq: Seq) -> bool {
        let half = self.half(Direction::Incoming);
        [half.end(), half.acked()].into_iter().flatten().any(|end| seq.lt(end))
    }

    /// A segment that the peer answers at once, in any state of the connection, and that changes nothing there: without
    /// data, with the number of the last byte that the peer has acknowledged (RFC 9293 section 3.8.4). `None` before
    /// the peer's first ACK.
    pub fn keep_alive(&self, connection: Connection) -> Option<Packet> {
        self.keep_alive_showing(self.half(Direction::Outgoing).shown(), connection)
    }

    /// As [`Self::keep_alive`], with the oldest ACK that is remembered: the peer learns nothing by it even if it takes ACKs from such
    /// segments, as RFC 9293 allows (section 3.10.7.4) and Linux does not.
    pub fn inquiry(&self, connection: Connection) -> Option<Packet> {
        self.keep_alive_showing(self.half(Direction::Outgoing).oldest_shown(), connection)
    }

    fn keep_alive_showing(&self, ack: Seq, connection: Connection) -> Option<Packet> {
        let acked = self.half(Direction::Incoming).acked()?;
        let mut packet = self.half(Direction::Outgoing).ack_up_to(ack, connection)?;
        tcp_mut(&mut packet)?.seq = acked - 1;
        Some(packet)
    }

    /// The newest TSval from the sender of data in the other direction, predicted segments included.
    pub fn newest_stamp(&self, direction: Direction) -> Option<u32> {
        let seen = self.half(direction).newest_stamp()?;
        let other = self.half(direction.opposite());
        let has_last = other.has(HALF_LAST) && other.has(HALF_LAST_STAMPS);
        let last = has_last.then_some(other.core.last_val);
        Some(last.map_or(seen, |last| Seq::new(last).max(Seq::new(seen)).value()))
    }

    /// Whether the ACKs of the flow are stalled before a foreseen cut.
    pub fn is_stalling(&self, now: Instant, link: &Link) -> bool {
        ffi::is_stalling(link, self, now.as_nanos())
    }

    /// Whether every ACK of the flow is withheld now.
    pub fn withholds_all(&self, Environment { now, link, rules }: Environment<'_>) -> bool {
        ffi::holding(link, rules, self, now.as_nanos()) == Holding::HoldAll
    }

    /// Whether the connection is closed: it was reset, or both FINs were sent and acknowledged.
    pub const fn is_over(&self) -> bool {
        let closed = (STAGE_HOST_FIN_ACKED | STAGE_PEER_FIN_ACKED) as u16;
        self.stage & STAGE_RESET as u16 != 0 || self.stage & closed == closed
    }

    /// Whether the peer has not sent anything yet.
    pub const fn is_unanswered(&self) -> bool {
        self.heard_nanos() == 0
    }

    /// Whether a policy exempts the flow.
    pub const fn is_exempt(&self) -> bool {
        self.stage & STAGE_LEFT_ALONE as u16 != 0
    }

    /// The time of its last packet.
    pub const fn seen_at(&self) -> Instant {
        Instant::from_nanos(self.seen_at)
    }

    /// The time of its first packet.
    pub const fn began_at(&self) -> Instant {
        Instant::from_nanos(self.began_at)
    }

    /// Bytes of data received, retransmissions included.
    pub const fn bytes_in(&self) -> u64 {
        self.half(Direction::Outgoing).bytes_passed()
    }

    /// Bytes of data sent, retransmissions included.
    pub const fn bytes_out(&self) -> u64 {
        self.half(Direction::Incoming).bytes_passed()
    }

    /// The number of ACKs withheld.
    pub const fn withheld(&self) -> u32 {
        self.outgoing_rest.withheld.wrapping_add(self.incoming_rest.withheld)
    }

    /// The number of ACKs lowered.
    pub const fn lowered(&self) -> u32 {
        self.outgoing_acks.lowered.wrapping_add(self.incoming_acks.lowered)
    }
}

/// The fate of a packet by the verdict of the flow path, if there is one.
fn carry_out(verdict: Option<layout::Verdict>, packet: &mut Packet) -> (Verdict, Option<Notice>) {
    let Some(verdict) = verdict else { return (Verdict::Pass, None) };
    let notice = Notice::of(verdict.notice, verdict.notice_ack);
    if verdict.withhold != 0 {
        return (Verdict::Drop, notice);
    }
    if let Some(segment) = tcp_mut(packet) {
        verdict.rewrite(segment);
    }
    (Verdict::Pass, notice)
}

impl Default for Flow {
    fn default() -> Self {
        Self::new()
    }
}

impl Default for HalfCore {
    /// Before the first packet: the window's shift is unknown.
    fn default() -> Self {
        Self { window_shift: UNKNOWN_SHIFT as u8, ..ffi::zeroed_flow().outgoing }
    }
}

/// A time of `flow` from its low half, in ns; the high half is that of the flow's era if it `has_era`.
pub(crate) const fn whole_time(low: u32, has_era: bool, own_era: u32, flow: &Flow) -> u64 {
    let era = if has_era { (flow.seen_at >> 32) as u32 } else { own_era };
    (era as u64) << 32 | low as u64
}

/// 0 means never.
pub(crate) fn time(nanos: u64) -> Option<Instant> {
    (nanos != 0).then_some(Instant::from_nanos(nanos))
}
