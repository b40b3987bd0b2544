//! One direction of a flow's data, and its ACKs. The *receiver* of the data sends ACKs; its *sender* is shown some of
//! them.

use holdover_base::Instant;
use holdover_filter::{Connection, Direction, LastSent, SentNumbers, tcp_mut};
use holdover_wire::{Packet, SackBlocks, Seq, SeqRange, Timestamps};

use crate::ffi;
use crate::flow::{time, whole_time};
use crate::key;
use crate::layout::{
    Block, Flow, HALF_ACKED, HALF_BEHIND, HALF_CLOCKED, HALF_DATA_ERA, HALF_ENDING, HALF_FLUSHED, HALF_FORGOT,
    HALF_LAST, HALF_LAST_STAMPS, HALF_LIMITED, HALF_RECORDING, HALF_RESET, HALF_RESUMED, HALF_SACK, HALF_SHRUNK,
    HALF_STAMP_APART, HALF_STAMP_ERA, HALF_UNTIL_ACKED, HalfAcks, HalfCore, HalfRest, MOST_BLOCKS, MOST_SHOWN, Run,
    Shown, UNKNOWN_SHIFT,
};
use crate::segment::{self, Form};

/// The most ACKs of [`Half::may_be_received`]: some 2 kB in packets.
const MOST_RECEIVED: usize = 32;

/// A half of a flow: a view of its parts (`c/half.h`).
#[derive(Clone, Copy, Debug)]
pub struct Half<'a> {
    flow: &'a Flow,
    direction: Direction,
    pub(crate) core: &'a HalfCore,
    pub(crate) acks: &'a HalfAcks,
    pub(crate) rest: &'a HalfRest,
    /// Of the other half.
    other: &'a HalfCore,
}

impl Flow {
    /// The half whose ACKs go in `direction`.
    pub const fn half(&self, direction: Direction) -> Half<'_> {
        let (core, acks, rest, other) = match direction {
            Direction::Outgoing => (&self.outgoing, &self.outgoing_acks, &self.outgoing_rest, &self.incoming),
            Direction::Incoming => (&self.incoming, &self.incoming_acks, &self.incoming_rest, &self.outgoing),
        };
        Half { flow: self, direction, core, acks, rest, other }
    }

    /// The parts of [`Self::half`].
    pub(crate) const fn half_mut(&mut self, direction: Direction) -> (&mut HalfCore, &mut HalfAcks, &mut HalfRest) {
        match direction {
            Direction::Outgoing => (&mut self.outgoing, &mut self.outgoing_acks, &mut self.outgoing_rest),
            Direction::Incoming => (&mut self.incoming, &mut self.incoming_acks, &mut self.incoming_rest),
        }
    }
}

impl Half<'_> {
    pub(crate) const fn has(&self, flag: u32) -> bool {
        self.core.flags & flag != 0
    }

    const fn shown_ack(&self) -> u32 {
        if self.has(HALF_BEHIND) { self.acks.shown } else { self.core.acked }
    }

    /// The time of the last data in ns; 0 for none.
    pub(crate) const fn last_data_nanos(&self) -> u64 {
        whole_time(self.core.last_data_at, self.has(HALF_DATA_ERA), self.rest.last_data_era, self.flow)
    }

    /// The first segment with the newest TSval, in ns.
    pub(crate) const fn newest_stamp_nanos(&self) -> u64 {
        whole_time(self.core.newest_stamp_at, self.has(HALF_STAMP_ERA), self.rest.newest_stamp_era, self.flow)
    }

    pub(crate) const fn newest_val(&self) -> u32 {
        if self.has(HALF_STAMP_APART) { self.rest.newest_stamp } else { self.other.last_val }
    }

    /// The receiver's SACK blocks.
    pub(crate) fn blocks(&self) -> &[Block] {
        let len = if self.has(HALF_SACK) { self.rest.sack_len as usize } else { 0 };
        &self.rest.sack[..len.min(MOST_BLOCKS)]
    }

    /// Bytes of data that have passed, retransmissions included.
    pub(crate) const fn bytes_passed(&self) -> u64 {
        self.rest.bytes + self.core.end.wrapping_sub(self.rest.counted) as u64
    }

    /// The newest run of segments first.
    pub(crate) fn runs(&self) -> impl Iterator<Item = Run> {
        let newest = Run { start: self.acks.start, end: self.core.end, size: self.core.size.into() };
        let older = self.rest.older_runs.iter().copied();
        std::iter::once(newest).chain(older).take(self.core.runs_len.into())
    }

    /// The highest ACK of the receiver.
    pub fn acked(&self) -> Option<Seq> {
        self.has(HALF_ACKED).then_some(Seq::new(self.core.acked))
    }

    /// The highest ACK shown to the sender.
    pub const fn shown(&self) -> Seq {
        Seq::new(self.shown_ack())
    }

    /// The oldest ACK shown to the sender that is remembered.
    pub(crate) fn oldest_shown(&self) -> Seq {
        self.shown_lately().first().map_or(self.shown(), |shown| Seq::new(shown.ack))
    }

    /// Whether the receiver has acknowledged more than the sender was shown.
    pub fn is_held(&self) -> bool {
        self.acked().is_some_and(|acked| acked.gt(self.shown()))
    }

    /// Bytes that the receiver has acknowledged and the sender has not been shown.
    pub fn held_bytes(&self) -> u32 {
        self.acked().map_or(0, |acked| acked.saturating_since(self.shown()))
    }

    /// The ACKs shown to the sender from `since` on, preceded by the last one before, oldest first; `None` if there
    /// were more than the ring holds.
    pub fn shown_since(&self, since: Instant) -> Option<Vec<Seq>> {
        let shown = self.shown_lately();
        let before = shown.iter().take_while(|shown| Instant::from_nanos(shown.at) < since).count();
        let is_forgotten = before == 0 && (shown.len() == MOST_SHOWN || self.has(HALF_FORGOT));
        (!is_forgotten).then(|| shown[before.saturating_sub(1)..].iter().map(|shown| Seq::new(shown.ack)).collect())
    }

    /// Candidates for the last ACK that the sender has received, oldest first: it is one of them, or less than a segment below one.
    /// ACKs shown from `since` on were lost, except perhaps the first ones. `echo` is the TSval of the newest segment that the sender
    /// has received, if known; a retransmission after a long silence shows the ACK itself.
    pub fn may_be_received(&self, since: Instant, echo: Option<u32>) -> Vec<Seq> {
        if self.has(HALF_RESUMED) {
            return vec![Seq::new(self.rest.resumed_from)];
        }
        let shown = self.shown_lately();
        // ACKs that were shown after the sender's last data share the last place. Without an echo they count as lost.
        let is_tail = |place: usize| place + 1 == shown.len() && shown[place].at >= self.last_data_nanos();
        let echoed = echo.and_then(|echo| echoed(&shown, echo));
        let (from, to) = match echoed {
            Some(places) => places,
            None => {
                let before = shown.iter().take_while(|shown| Instant::from_nanos(shown.at) < since).count();
                (before.saturating_sub(1), shown.len())
            }
        };
        // The last segments of a transfer may be short ones.
        let segment = self.runs().map(|run| run.size).max().unwrap_or(self.acks.longest_segment).max(1);
        let mut acks = Vec::new();
        for place in from..to {
            let ack = Seq::new(shown[place].ack);
            if let Some(before) = place.checked_sub(1).filter(|_| echoed.is_some() || !is_tail(place)) {
                let first = Seq::new(shown[before].ack);
                acks.extend(within(first, ack, segment));
            }
            acks.push(ack);
        }
        acks.dedup();
        let surplus = acks.len().saturating_sub(MOST_RECEIVED);
        acks.split_off(surplus)
    }

    /// The ring of ACKs shown, oldest first.
    fn shown_lately(&self) -> Vec<Shown> {
        let len = usize::from(self.acks.shown_len).min(MOST_SHOWN);
        let first = usize::from(self.acks.shown_next).wrapping_sub(len);
        (0..len).map(|index| self.rest.shown_lately[first.wrapping_add(index) % MOST_SHOWN]).collect()
    }

    /// The newest segments with data.
    pub(crate) fn newest_run(&self) -> Option<Run> {
        self.runs().next()
    }

    /// The end of the data that has passed.
    pub(crate) fn end(&self) -> Option<Seq> {
        self.newest_run().map(|run| Seq::new(run.end))
    }

    /// Whether the data that the receiver acknowledges take another path: none of them have passed here.
    pub fn passes_elsewhere(&self) -> bool {
        // A FIN counts as a byte, and is not part of the runs.
        self.acks.bytes_acked > 1 && self.end().is_none()
    }

    /// Whether data has passed whose ACK the sender was not shown.
    pub fn has_outstanding(&self) -> bool {
        self.end_of_outstanding().is_some()
    }

    /// The end of the data that has passed, if the sender has not been shown an ACK of all of it.
    pub fn end_of_outstanding(&self) -> Option<Seq> {
        self.end().filter(|end| end.gt(self.shown()))
    }

    /// Whether data has passed that the receiver has not acknowledged.
    pub fn awaits_ack(&self) -> bool {
        self.end().zip(self.acked()).is_some_and(|(end, acked)| end.gt(acked))
    }

    /// Whether the receiver has acknowledged all data that has passed, except one segment whose ACK it may delay.
    pub fn is_all_acknowledged(&self) -> bool {
        let (Some(acked), Some(end)) = (self.acked(), self.end()) else { return true };
        end.saturating_since(acked) <= self.acks.longest_segment
    }

    /// Bytes acknowledged since the first ACK seen.
    pub const fn bytes_acked(&self) -> u64 {
        self.acks.bytes_acked
    }

    /// The time of the last data.
    pub fn last_data_at(&self) -> Option<Instant> {
        time(self.last_data_nanos())
    }

    /// The time of the last progress: data, or ACKs of outgoing data.
    pub fn progress_at(&self, direction: Direction) -> Option<Instant> {
        match direction {
            Direction::Outgoing => self.last_data_at(),
            Direction::Incoming => time(self.acks.advanced_at),
        }
    }

    /// Whether there was progress since `at`: data, or ACKs of outgoing data.
    pub fn flows_since(&self, at: Option<Instant>, direction: Direction) -> bool {
        at.is_some_and(|at| self.progress_at(direction).is_some_and(|last| last >= at))
    }

    /// Whether the receiver's last ACK had SACK blocks: there is a hole.
    pub const fn has_hole(&self) -> bool {
        self.has(HALF_SACK)
    }

    /// Whether a FIN of the sender has passed.
    pub const fn is_ending(&self) -> bool {
        self.has(HALF_ENDING)
    }

    /// Whether a RST of the sender has passed, and nothing of the receiver after it.
    pub const fn is_reset(&self) -> bool {
        self.has(HALF_RESET)
    }

    /// Whether the sender was shown a smaller window than the receiver offered.
    pub const fn is_window_shrunk(&self) -> bool {
        self.has(HALF_SHRUNK)
    }

    /// The window limit by order, in bytes; `None` without a limit.
    pub fn window_limit(&self) -> Option<u32> {
        self.has(HALF_LIMITED).then_some(self.rest.most_window)
    }

    /// Whether the sender was shown a window of zero that stays until it is shown an ACK of something new
    /// ([`WindowLimit::UntilAcked`](crate::WindowLimit::UntilAcked)).
    pub fn is_shut_until_acked(&self) -> bool {
        self.window_limit() == Some(0) && self.has(HALF_UNTIL_ACKED)
    }

    /// Whether the ACKs of a stall are recorded.
    pub const fn is_recording(&self) -> bool {
        self.has(HALF_RECORDING)
    }

    /// Whether recorded ACKs are being clocked out: newer ones wait.
    pub const fn is_clocked(&self) -> bool {
        self.has(HALF_CLOCKED)
    }

    /// The time at which held ACKs are to be flushed.
    pub fn flush_at(&self) -> Option<Instant> {
        time(self.acks.flush_at)
    }

    /// The ACK shown before a flush that no data has followed: the link may already have been down.
    pub fn flushed_from(&self) -> Option<Seq> {
        self.has(HALF_FLUSHED).then_some(Seq::new(self.rest.flushed_from))
    }

    /// Whether the receiver's window shift is unknown.
    pub const fn lacks_window_shift(&self) -> bool {
        self.core.window_shift as u32 == UNKNOWN_SHIFT
    }

    /// The first and the newest TSval of the sender, each with its time.
    pub fn stamps(&self) -> Option<[(Instant, u32); 2]> {
        let first = (time(self.rest.first_stamp_at)?, self.rest.first_stamp);
        Some([first, (Instant::from_nanos(self.newest_stamp_nanos()), self.newest_val())])
    }

    /// The newest TSval of the sender among segments that were not predicted.
    pub fn newest_stamp(&self) -> Option<u32> {
        self.stamps().map(|[_, (_, newest)]| newest)
    }

    /// The timestamp that the receiver's last segment echoes.
    pub fn last_echo(&self) -> Option<u32> {
        (self.has(HALF_LAST) && self.has(HALF_LAST_STAMPS)).then_some(self.core.last_ecr)
    }

    /// The receiver's last ACK, repeated, with its SACK blocks. `receiver` is the connection from the receiver's view.
    pub fn last_ack(&self, receiver: Connection) -> Option<Packet> {
        let mut packet = self.last().repeat(receiver)?;
        if let Some(segment) = tcp_mut(&mut packet) {
            segment.options.sack = self.sack();
        }
        Some(packet)
    }

    /// [`Self::ack_up_to`] with the SACK blocks that the receiver has sent last: for an ACK of all but a little, which the sender must not
    /// take for a loss.
    pub fn ack_with_sack(&self, ack: Seq, receiver: Connection) -> Option<Packet> {
        let mut packet = self.ack_up_to(ack, receiver)?;
        if let Some(segment) = tcp_mut(&mut packet) {
            segment.options.sack = self.sack();
        }
        Some(packet)
    }

    /// A pure ACK from the receiver up to `ack`, limited to the data that it has acknowledged itself. It has no SACK
    /// blocks. `receiver` is the connection from the receiver's view.
    pub fn ack_up_to(&self, ack: Seq, receiver: Connection) -> Option<Packet> {
        let ack = ack.min(self.acked()?);
        let mut packet = self.last().repeat(receiver)?;
        let read = packet.tcp().map(|segment| segment::read(Instant::ZERO, &packet, segment, Form::of(segment)))?;
        if let Some(segment) = tcp_mut(&mut packet) {
            ffi::lower(self.flow, key::to_raw(self.direction), &read, ack.value()).rewrite(segment);
        }
        Some(packet)
    }

    /// The receiver's last segment.
    fn last(&self) -> LastSent {
        let stamps = Timestamps { val: self.core.last_val, ecr: self.core.last_ecr };
        LastSent(self.has(HALF_LAST).then_some(SentNumbers {
            nxt: Seq::new(self.core.last_nxt),
            ack: Seq::new(self.core.acked),
            window: self.core.last_window,
            timestamps: self.has(HALF_LAST_STAMPS).then_some(stamps),
            ttl: self.core.last_ttl,
            traffic_class: self.core.last_class,
        }))
    }

    fn sack(&self) -> SackBlocks {
        self.blocks().iter().map(|block| SeqRange::new(Seq::new(block.start), Seq::new(block.end))).collect()
    }
}

/// The places from the first to behind the last of `shown` in which the ACK may be whose TSval a sender echoes; `None` if all are
/// newer. ACKs that share a place are those up to the TSval of the next one.
fn echoed(shown: &[Shown], echo: u32) -> Option<(usize, usize)> {
    let echo = Seq::new(echo);
    let until = shown.iter().take_while(|shown| Seq::new(shown.val).le(echo)).count();
    let earlier = shown[..until].iter().take_while(|shown| Seq::new(shown.val).lt(echo)).count();
    (until > 0).then_some((earlier.saturating_sub(1), until))
}

/// Where segments begin between two ACKs, the last ones.
fn within(first: Seq, last: Seq, segment: u32) -> impl Iterator<Item = Seq> {
    let segments = last.saturating_since(first).saturating_sub(1) / segment;
    (segments.saturating_sub(MOST_RECEIVED as u32) + 1..=segments).map(move |number| first + number * segment)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ffi::testing::{before_last, note_run};
    use crate::layout::OLDER_RUNS;

    /// A flow whose half of the ACKs that go out has these runs.
    fn runs(segments: &[(u32, u32)]) -> Flow {
        let mut flow = Flow::new();
        for &(start, len) in segments {
            note_run(&mut flow, start, start.wrapping_add(len), len);
        }
        flow
    }

    #[test]
    fn a_bulk_transfer_is_one_run() {
        let near_the_end = u32::MAX - 4_999;
        let segments: Vec<(u32, u32)> = (0..10_000).map(|n: u32| (near_the_end.wrapping_add(n * 1000), 1000)).collect();
        let runs = runs(&segments);
        assert_eq!(runs.half(Direction::Outgoing).runs().count(), 1);
        let acked = near_the_end.wrapping_add(8_000);
        assert_eq!(before_last(&runs, acked, 4), Some(near_the_end.wrapping_add(4_000)));
        assert_eq!(before_last(&runs, acked.wrapping_add(999), 4), Some(near_the_end.wrapping_add(4_000)));
    }

    #[test]
    fn short_segments_count_as_whole_ones() {
        let runs = runs(&[(0, 100), (100, 100), (200, 30), (230, 100), (330, 100)]);
        assert_eq!(before_last(&runs, 430, 2), Some(230));
        assert_eq!(before_last(&runs, 430, 3), Some(200));
        assert_eq!(before_last(&runs, 430, 4), Some(100));
        assert_eq!(before_last(&runs, 430, 5), Some(0));
        assert_eq!(before_last(&runs, 430, 6), None);
        assert_eq!(before_last(&runs, 240, 1), Some(200));
        assert_eq!(before_last(&runs, 230, 1), Some(200));
    }

    #[test]
    fn a_gap_counts_as_one_segment() {
        let runs = runs(&[(0, 100), (100, 100), (500, 100), (600, 100)]);
        assert_eq!(before_last(&runs, 700, 2), Some(500));
        assert_eq!(before_last(&runs, 700, 3), Some(200));
        assert_eq!(before_last(&runs, 700, 4), Some(100));
    }

    #[test]
    fn retransmitted_data_changes_nothing_and_overlapping_data_does() {
        let mut runs = runs(&[(0, 100), (100, 100)]);
        let before = runs;
        note_run(&mut runs, 100, 200, 100);
        assert_eq!(runs, before);
        note_run(&mut runs, 150, 250, 100);
        assert_eq!(runs.half(Direction::Outgoing).end(), Some(Seq::new(250)));
        assert_eq!(before_last(&runs, 250, 1), Some(200));
    }

    #[test]
    fn a_fin_without_data_is_no_sign_of_another_path() {
        let mut flow = runs(&[]);
        for (bytes, passes_elsewhere) in [(1, false), (2, true)] {
            flow.outgoing_acks.bytes_acked = bytes;
            assert_eq!(flow.half(Direction::Outgoing).passes_elsewhere(), passes_elsewhere);
        }
    }

    #[test]
    fn old_runs_are_forgotten() {
        let segments: Vec<(u32, u32)> = (0..40).map(|n: u32| (n * 200, 200 - n)).collect();
        let runs = runs(&segments);
        assert_eq!(runs.half(Direction::Outgoing).runs().count(), 1 + OLDER_RUNS);
        assert!(before_last(&runs, 40 * 200, 4).is_some());
        assert_eq!(before_last(&runs, 40 * 200, 30), None);
    }
}
