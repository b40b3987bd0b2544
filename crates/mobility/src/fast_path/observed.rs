//! What can be seen of one direction of a connection's data from a place in the path of its packets: where its segments begin
//! and end, what has been acknowledged, which of these ACKs the data's sender has been shown, and when.

use holdover_base::{Duration, Instant};
use holdover_wire::{Flags, Packet, SackBlocks, Segment, Seq};

use super::bulk::Form;
use super::runs::SegmentRuns;
use super::stamps::Stamps;
use crate::Direction;
use crate::echo_clock::EchoClock;
use holdover_filter::Spoken;
use holdover_filter::{Connection, tcp_mut};

/// One direction of a connection's data, and the ACKs for it. The *receiver* of the data makes ACKs; the *sender* is shown some
/// of them.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Observed {
    /// The receiver's newest segment: what an ACK of ours looks like.
    pub(super) receiver: Spoken,
    pub(super) ends: SegmentRuns,
    /// The highest that the receiver has acknowledged, and that the sender has been shown.
    pub(super) acked: Option<Seq>,
    pub(super) shown: Seq,
    pub(super) shown_lately: ShownLately,
    /// Bytes acknowledged since the first ACK that was seen.
    pub(crate) bytes_acked: u64,
    /// The SACK blocks of the receiver's last ACK.
    pub(super) sack: SackBlocks,
    pub(crate) last_data_at: Option<Instant>,
    /// When the receiver has last acknowledged something new.
    pub(crate) advanced_at: Option<Instant>,
    pub(super) flight: Flight,
    /// The receiver's shift of its window field (RFC 7323 section 2.2), if its SYN was seen.
    pub(super) window_shift: Option<u8>,
    /// Bytes of data in the sender's longest segment.
    pub(super) longest_segment: u32,
    /// The sender's timestamps.
    pub(super) stamps: Stamps,
    /// The sender's FIN has gone by.
    pub(crate) is_ending: bool,
    /// A RST of the sender has, and the receiver has not gone on since.
    pub(crate) is_reset: bool,
}

/// How many bytes are acknowledged in a round trip: as many as the sender has in flight.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Flight {
    /// Of the last round trip; 0 before the first is over, and if [`Self::is_fast`].
    pub(super) bytes: u32,
    /// Data came faster than [`FASTEST`] in it, or has since and is [`STILL_FAST`].
    pub(super) is_fast: bool,
    /// When the round trip began that is not over, and what had been acknowledged by then.
    pub(super) since: Option<Instant>,
    pub(super) from: u64,
}

/// ACKs shown, oldest first, with their times.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct ShownLately {
    pub(super) acks: [(Instant, Seq); ShownLately::MOST],
    pub(super) len: u8,
}

/// The segment of an Ethernet, in bytes.
const USUAL_SEGMENT: u32 = 1460;

impl Observed {
    /// A segment of the data's sender passes, or several in one.
    pub(super) fn note_data(&mut self, now: Instant, segment: &Segment, form: Form) {
        self.is_ending |= segment.flags.contains(Flags::FIN);
        self.is_reset |= segment.flags.contains(Flags::RST) && self.may_be_in_window(segment.seq);
        if let Some(timestamps) = segment.options.timestamps {
            self.stamps.note(now, timestamps.val);
        }
        // RFC 7323 section 2.2: windows are scaled if both sides said so.
        if segment.flags.contains(Flags::SYN) && segment.options.window_scale.is_none() {
            self.window_shift = Some(0);
        }
        if segment.flags.contains(Flags::SYN) || segment.payload.is_empty() {
            return;
        }
        self.last_data_at = Some(now);
        let len = segment.payload.len() as u32;
        let size = form.size(len);
        self.longest_segment = self.longest_segment.max(size);
        self.ends.note(segment.seq, segment.seq + len, size);
    }

    /// Whether the receiver may take a segment at `seq` (RFC 9293 section 3.10.7.4): who only guesses does not hit its window.
    fn may_be_in_window(&self, seq: Seq) -> bool {
        let window = u32::from(self.receiver.window().unwrap_or(u16::MAX)) << self.window_shift.unwrap_or(14).min(14);
        self.acked.is_none_or(|acked| seq.ge(acked) && seq.saturating_since(acked) <= window)
    }

    /// Whether a segment of the data's sender lies beyond the window that the receiver has offered, which then does not take it
    /// (RFC 9293 section 3.10.7.4): neither its data nor its ACK.
    pub(super) fn is_beyond_window(&self, segment: &Segment) -> bool {
        let window = u32::from(self.receiver.window().unwrap_or(u16::MAX)) << self.window_shift.unwrap_or(14).min(14);
        self.acked.is_some_and(|acked| segment.seq.gt(acked) && segment.seq - acked > window)
    }

    /// Whether it lies before it as a whole: the receiver answers it, and takes no ACK from it.
    pub(super) fn is_before_window(&self, segment: &Segment) -> bool {
        self.acked.is_some_and(|acked| (segment.seq + segment.seq_len()).lt(acked))
    }

    /// Whether a segment of the receiver opens a window that has been as good as closed.
    pub(super) fn opens_window(&self, segment: &Segment) -> bool {
        let Some(said) = self.receiver.window() else { return false };
        let bytes = u32::from(said) << self.window_shift.unwrap_or(0).min(14);
        bytes < self.longest_segment.max(1) && segment.window > said
    }

    /// A segment of the data's receiver comes, as it made it. Returns what kind of ACK it is.
    pub(super) fn note_ack(&mut self, now: Instant, packet: &Packet, segment: &Segment) -> AckKind {
        if segment.flags.contains(Flags::SYN) {
            let offered = segment.options.window_scale.unwrap_or(0).min(14);
            self.window_shift = self.window_shift.filter(|&shift| shift == 0).or(Some(offered));
        }
        if !segment.flags.contains(Flags::ACK) || segment.flags.contains(Flags::RST) {
            return AckKind::Other;
        }
        // Whoever goes on has not taken the reset (RFC 5961 section 3.2).
        self.is_reset = false;
        let Some(acked) = self.acked else {
            self.receiver.note(packet, segment);
            (self.acked, self.shown) = (Some(segment.ack), segment.ack);
            return AckKind::Other;
        };
        if segment.ack.lt(acked) {
            return AckKind::Old;
        }
        // Nobody can have received what has not come by here. Its FIN has no length in what was seen.
        if self.ends.end().is_some_and(|end| segment.ack.gt(end + 1)) {
            return AckKind::Other;
        }
        self.receiver.note(packet, segment);
        self.sack = segment.options.sack;
        if segment.ack == acked {
            return AckKind::Repeated;
        }
        self.bytes_acked += u64::from(segment.ack - acked);
        self.acked = Some(segment.ack);
        self.advanced_at = Some(now);
        AckKind::Advancing
    }

    /// A pure ACK of the receiver acknowledges more, and says nothing else that is new.
    pub(super) fn go_on(&mut self, direction: Direction, segment: &Segment) {
        self.bytes_acked += u64::from(segment.ack - self.acked.unwrap_or(segment.ack));
        self.acked = Some(segment.ack);
        self.shown = self.shown.max(segment.ack);
        // Nobody asks which ACKs the host was shown.
        if direction == Direction::Outgoing {
            self.shown_lately.forget(segment.ack);
        }
        self.receiver.go_on(segment.seq, segment);
    }

    /// Something new was acknowledged, on a path of this round trip, queues included.
    pub(super) fn note_flight(&mut self, now: Instant, round_trip: Option<Duration>) {
        let Some(round_trip) = round_trip else { return };
        let Flight { since, from, .. } = self.flight;
        let elapsed = since.map(|since| now.saturating_since(since));
        if elapsed.is_some_and(|elapsed| elapsed < round_trip) {
            return;
        }
        // A pause says nothing.
        let seldom = if self.flight.is_fast { SELDOM } else { Duration::ZERO };
        if let Some(elapsed) = elapsed.filter(|&elapsed| elapsed < (round_trip * PAUSE).max(seldom)) {
            let bytes = (self.bytes_acked - from).min(u32::MAX.into());
            let micros = whole_micros(elapsed);
            let is_fast = bytes > if self.flight.is_fast { STILL_FAST } else { FASTEST } * micros;
            let in_a_round_trip = if is_fast { 0 } else { bytes * whole_micros(round_trip) / micros };
            self.flight.bytes = u32::try_from(in_a_round_trip).unwrap_or(u32::MAX);
            self.flight.is_fast = is_fast;
        }
        (self.flight.since, self.flight.from) = (Some(now), self.bytes_acked);
    }

    /// Bytes that the sender has in flight; 0 if that is not known, or not worth while to know.
    pub(crate) fn flight_bytes(&self) -> u32 {
        self.flight.bytes
    }

    /// The sender is shown an ACK up to `ack`.
    pub(crate) fn show(&mut self, now: Instant, ack: Seq) {
        if ack.gt(self.shown) {
            self.shown = ack;
            self.shown_lately.push(now, ack);
        }
    }

    /// The highest ACK that the sender has been shown.
    pub(crate) fn shown(&self) -> Seq {
        self.shown
    }

    /// The ACKs that the sender was shown since `since`, after the last one before, oldest first; `None` if they are more than
    /// are remembered.
    pub(crate) fn shown_since(&self, since: Instant) -> Option<impl Iterator<Item = Seq> + '_> {
        self.shown_lately.since(since)
    }

    /// The highest that the receiver has acknowledged.
    pub(crate) fn acked(&self) -> Option<Seq> {
        self.acked
    }

    /// Whether the receiver has acknowledged what the sender has not been shown.
    pub(crate) fn is_held(&self) -> bool {
        self.acked.is_some_and(|acked| acked.gt(self.shown))
    }

    /// Whether there is data beyond what was acknowledged, as far as it has come by here.
    pub(crate) fn has_outstanding(&self) -> bool {
        self.ends.end().is_some_and(|end| end.gt(self.shown))
    }

    /// Whether the receiver has not acknowledged all data that has come by here.
    pub(super) fn awaits_ack(&self) -> bool {
        self.ends.end().zip(self.acked).is_some_and(|(end, acked)| end.gt(acked))
    }

    /// Whether the receiver has acknowledged all data that has come by here, but for one segment whose ACK it may delay.
    pub(crate) fn is_all_acknowledged(&self) -> bool {
        let (Some(acked), Some(end)) = (self.acked, self.ends.end()) else { return true };
        end.saturating_since(acked) <= self.longest_segment
    }

    /// Where the last `segments` whole segments begin that the receiver has acknowledged.
    pub(crate) fn before_last(&self, segments: u8) -> Option<Seq> {
        self.ends.before_last(self.acked?, u32::from(segments))
    }

    /// The window in bytes that a segment of the receiver offers.
    pub(crate) fn window_bytes(&self, segment: &Segment) -> u32 {
        u32::from(segment.window) << self.window_shift.unwrap_or(0).min(14)
    }

    /// Whether the ACK of a segment can be lowered to `ack` so that the right edge of the window stays where it is. Whoever has sent
    /// up to an edge that is drawn back sends its ACKs from the new one, where the other end may not look at them any more; if that
    /// happened at both ends, they would be stuck.
    pub(crate) fn keeps_the_edge(&self, segment: &Segment, ack: Seq) -> bool {
        let held = segment.ack.saturating_since(ack);
        let is_told = |shift: u8| (held >> shift.min(14)) + u32::from(segment.window) <= u16::MAX.into();
        held == 0 || self.window_shift.is_some_and(is_told)
    }

    /// Lowers the ACK of a segment of the receiver to `ack`. The right edge of the window stays where it is, as far as it can be
    /// said.
    pub(super) fn lower_ack(&self, segment: &mut Segment, ack: Seq) {
        let held = segment.ack.saturating_since(ack);
        if held == 0 {
            return;
        }
        segment.ack = ack;
        // Blocks above it would say that what is held was lost.
        segment.options.sack = SackBlocks::EMPTY;
        if let Some(shift) = self.window_shift {
            let units = u16::try_from(held >> shift.min(14)).unwrap_or(u16::MAX);
            segment.window = segment.window.saturating_add(units);
        }
    }

    /// Whether windows can be read and written.
    pub(super) fn knows_window_scale(&self) -> bool {
        self.window_shift.is_some()
    }

    /// Makes the window of a segment of the receiver as small as two of the sender's segments, or what is usual if those that
    /// pass are several in one.
    pub(super) fn draw_in(&self, segment: &mut Segment) {
        let Some(shift) = self.window_shift.map(|shift| shift.min(14)) else { return };
        if self.longest_segment == 0 {
            return;
        }
        let units = (2 * self.longest_segment.min(USUAL_SEGMENT)).div_ceil(1 << shift);
        segment.window = segment.window.min(u16::try_from(units).unwrap_or(u16::MAX));
    }

    /// Whether the receiver lacks something, as its last ACK said.
    pub(crate) fn has_hole(&self) -> bool {
        !self.sack.is_empty()
    }

    /// The clock that the sender's timestamps come from.
    pub(crate) fn clock(&self) -> EchoClock {
        self.stamps.clock()
    }

    /// The newest TSval of the sender.
    pub(crate) fn newest_stamp(&self) -> Option<u32> {
        self.stamps.newest()
    }

    /// The receiver's last ACK, once more, with its SACK blocks.
    pub(crate) fn last_ack(&self, receiver: Connection) -> Option<Packet> {
        let mut packet = self.receiver.repeat(receiver)?;
        if let Some(segment) = tcp_mut(&mut packet) {
            segment.options.sack = self.sack;
        }
        Some(packet)
    }

    /// A pure ACK of the receiver up to `ack`, or up to what it has acknowledged if that is less: whatever is asked for, nothing
    /// is acknowledged that did not arrive. It has no SACK blocks. `receiver` is the connection as the receiver names it.
    pub(crate) fn ack_up_to(&self, ack: Seq, receiver: Connection) -> Option<Packet> {
        let ack = ack.min(self.acked?);
        let mut packet = self.receiver.repeat(receiver)?;
        if let Some(segment) = tcp_mut(&mut packet) {
            self.lower_ack(segment, ack);
        }
        Some(packet)
    }
}

/// Bytes per microsecond: 2 Gbit/s. An ACK that is lowered in the midst of what a host sends at once costs that host more than the
/// ACK itself, which shows at such rates; and no link that comes and goes is that fast.
const FASTEST: u64 = 250;

/// The same once it was that fast: hosts pause.
const STILL_FAST: u64 = FASTEST / 8;

/// If nothing is acknowledged for so many round trips, data does not flow.
const PAUSE: u64 = 4;

/// Of a fast connection: no packet may be looked at for some four milliseconds (see [`super::bulk`]), which is no pause.
const SELDOM: Duration = Duration::from_millis(8);

/// At least one, and few enough that bytes times it do not overflow.
fn whole_micros(time: Duration) -> u64 {
    time.as_micros().clamp(1, u32::MAX.into())
}

impl ShownLately {
    pub(super) const MOST: usize = 16;

    fn push(&mut self, at: Instant, ack: Seq) {
        if usize::from(self.len) == Self::MOST {
            self.acks.copy_within(1.., 0);
            self.len -= 1;
        }
        self.acks[usize::from(self.len)] = (at, ack);
        self.len += 1;
    }

    /// Which were shown is not known one by one any more: as many as are remembered, at the time of the last that is.
    fn forget(&mut self, ack: Seq) {
        let at = self.acks[..usize::from(self.len)].last().map_or(Instant::ZERO, |&(at, _)| at);
        (self.acks, self.len) = ([(at, ack); Self::MOST], Self::MOST as u8);
    }

    fn since(&self, since: Instant) -> Option<impl Iterator<Item = Seq> + '_> {
        let acks = &self.acks[..usize::from(self.len)];
        let before = acks.partition_point(|&(at, _)| at < since);
        let is_forgotten = before == 0 && acks.len() == Self::MOST;
        (!is_forgotten).then(|| acks.iter().skip(before.saturating_sub(1)).map(|&(_, ack)| ack))
    }
}

/// What an ACK says that was not known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum AckKind {
    /// It acknowledges more than any before.
    Advancing,
    /// It acknowledges what the last did.
    Repeated,
    /// It acknowledges less: it was overtaken.
    Old,
    /// A segment without an ACK, or the first that was seen.
    Other,
}
