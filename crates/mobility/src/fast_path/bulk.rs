//! **Bulk.** At more than 2 Gbit/s nothing is held back (see [`crate::hold_back`]), and nearly all packets of a connection only go on
//! as the one before: data that follows on data, ACKs that acknowledge more. While nothing happens to the link, such packets are
//! not looked at one by one. What they say is noted; all else that is known of the connection, and all times, are those of the
//! last packet that was looked at, whose timestamps are a few ticks older at most: on Linux, that is as many milliseconds. Where
//! segments begin is not noted, nor which ACKs the sender was shown: until newer ones have been looked at, what is held back may
//! begin within a segment, and what may have been lost at a cut is taken for more than can be told one by one.
//!
//! In the kernel this is the difference between a line of the cache and some twenty, which shows at such rates (`holdover bench
//! agent`). Here it is for the twin to do the same.

use holdover_base::Instant;
use holdover_wire::{Flags, Segment, Seq, TcpOptions, Timestamps};

use super::{FastConnection, FastHalf, FastLink};
use crate::Direction;
use crate::wake::WakeConfig;

/// How a segment came.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Form {
    /// Bytes of each segment, if it stands for several.
    pub segment_size: Option<u32>,
    /// There are no IP options, and those of TCP are two no-operations and timestamps (RFC 7323 appendix A).
    pub has_usual_options: bool,
}

impl Form {
    /// That of a segment that is on its own, as it is written here.
    pub fn of(segment: &Segment) -> Self {
        let TcpOptions { timestamps, .. } = segment.options;
        let has_usual_options =
            timestamps.is_some() && segment.options == TcpOptions { timestamps, ..TcpOptions::default() };
        Self { segment_size: None, has_usual_options }
    }

    fn is_plain(&self, segment: &Segment) -> bool {
        self.has_usual_options && only_acknowledges(segment)
    }

    /// Bytes of each segment in it.
    pub(super) fn size(&self, len: u32) -> u32 {
        self.segment_size.filter(|size| (1..len).contains(size)).unwrap_or(len)
    }
}

/// It begins nothing and ends nothing.
fn only_acknowledges(segment: &Segment) -> bool {
    segment.flags.difference(Flags::PSH) == Flags::ACK
}

/// What goes on in either direction.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Bulks {
    outgoing: Option<Bulk>,
    incoming: Option<Bulk>,
}

/// What goes on: segments with timestamps before these.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Bulk {
    until: Timestamps,
    what: What,
}

/// Of timestamps: after so many, a packet that goes on is looked at. So round trips are measured and rates known, and data that came
/// fast is seen to come slowly.
const TICKS: u32 = 4;

impl Bulk {
    /// Whether timestamps go on from the last, and do not reach those that are to be looked at.
    fn covers(&self, last: Timestamps, stamps: Timestamps) -> bool {
        let goes_on = |last: u32, stamp: u32, until: u32| {
            stamp.wrapping_sub(last) < TICKS && until.wrapping_sub(stamp).wrapping_sub(1) < TICKS
        };
        goes_on(last.val, stamps.val, self.until.val) && goes_on(last.ecr, stamps.ecr, self.until.ecr)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum What {
    /// Data in segments of `size` bytes at most, with one ACK and window. What comes in must end within the window: up to `most`.
    Data { size: u32, most: Seq },
    /// ACKs without data, of which each acknowledges more.
    Acks,
}

impl What {
    const fn is_data(self) -> bool {
        matches!(self, Self::Data { .. })
    }
}

/// Of a packet that was looked at: what it was before, and what was known.
#[derive(Clone, Copy, Debug)]
pub(super) struct Before {
    pub(super) said: Said,
    pub(super) acked: Option<Seq>,
}

/// What may be changed in a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Said {
    ack: Seq,
    window: u16,
    timestamps: Option<Timestamps>,
}

impl Said {
    pub(super) fn of(segment: &Segment) -> Self {
        Self { ack: segment.ack, window: segment.window, timestamps: segment.options.timestamps }
    }
}

impl Bulks {
    fn of(&mut self, direction: Direction) -> &mut Option<Bulk> {
        match direction {
            Direction::Outgoing => &mut self.outgoing,
            Direction::Incoming => &mut self.incoming,
        }
    }
}

impl FastLink {
    /// Nothing happens to it, nor is about to.
    pub fn is_calm(&self) -> bool {
        let is_told = self.awaits_packets || self.listens;
        self.down_at.is_none() && !self.is_releasing && !is_told && self.stall.is_none()
    }
}

impl FastHalf {
    /// Nothing is to be done about its next ACK.
    fn is_quiet(&self, now: Instant, config: &WakeConfig, link: &FastLink) -> bool {
        let is_busy = self.is_drawn_in || self.is_recording || self.is_clocked || self.observed.is_reset;
        let refreshes = self.refresh.is_some() && link.refreshes(now, config);
        !is_busy && self.flush_at.is_none() && !self.observed.has_hole() && !self.observed.is_held() && !refreshes
    }
}

impl FastConnection {
    /// All packets are looked at.
    pub fn stop_bulk(&mut self) {
        self.bulk = Bulks::default();
    }

    /// Whether a packet only goes on as those before, which then is noted.
    pub(super) fn goes_on(&mut self, link: &FastLink, direction: Direction, segment: &Segment, form: Form) -> bool {
        let Some(bulk) = *self.bulk.of(direction) else { return false };
        let last = self.half(direction).observed.receiver.last().and_then(|last| last.timestamps);
        let ticks_on = last.zip(segment.options.timestamps).is_some_and(|(last, stamps)| bulk.covers(last, stamps));
        if !link.is_calm() || !form.is_plain(segment) || !ticks_on {
            return false;
        }
        let len = segment.payload.len() as u32;
        match bulk.what {
            What::Data { size, most } => self.data_goes_on(direction, segment, (len, form.size(len)), (size, most)),
            What::Acks => len == 0 && self.acks_go_on(direction, segment),
        }
    }

    fn data_goes_on(
        &mut self,
        direction: Direction,
        segment: &Segment,
        (len, its_size): (u32, u32),
        (size, most): (u32, Seq),
    ) -> bool {
        let end = segment.seq + len;
        let acks = &self.half(direction).observed;
        let says_the_same =
            acks.receiver.last().is_some_and(|last| last.ack == segment.ack && last.window == segment.window);
        let follows = self.half(direction.opposite()).observed.ends.end() == Some(segment.seq);
        let fits = len > 0 && its_size <= size;
        if !says_the_same || !follows || !fits || (direction == Direction::Incoming && end.gt(most)) {
            return false;
        }
        self.half_mut(direction.opposite()).observed.ends.go_on(end);
        self.half_mut(direction).observed.receiver.go_on(end, segment);
        if direction == Direction::Outgoing {
            self.round_trip.go_on(end);
        }
        true
    }

    fn acks_go_on(&mut self, direction: Direction, segment: &Segment) -> bool {
        let ends_a_round_trip = direction == Direction::Incoming && self.round_trip.is_ended_by(segment.ack);
        let observed = &mut self.half_mut(direction).observed;
        let follows = observed.receiver.last().is_some_and(|last| last.nxt == segment.seq);
        let advances = observed.acked.is_some_and(|acked| segment.ack.gt(acked));
        let has_come_by = observed.ends.end().is_some_and(|end| segment.ack.le(end));
        if !follows || !advances || !has_come_by || ends_a_round_trip {
            return false;
        }
        observed.go_on(direction, segment);
        true
    }

    /// A packet was looked at: whether those that follow have to be.
    pub(super) fn settle_bulk(
        &mut self,
        (now, config, link): (Instant, &WakeConfig, &FastLink),
        direction: Direction,
        before: Before,
        is_left: bool,
        segment: &Segment,
        form: Form,
    ) {
        if !only_acknowledges(segment) {
            self.stop_bulk();
            return;
        }
        let begun = (is_left && form.is_plain(segment) && link.is_calm() && before.said == Said::of(segment))
            .then(|| self.begun((now, config, link), direction, before, segment))
            .flatten();
        let most = self.edge_of_the_host();
        *self.bulk.of(direction) = begun;
        // Whether data flows in while an echo is waited for is known only if the next is looked at.
        let begins_to_wait =
            direction == Direction::Outgoing && self.round_trip.stamped.is_some_and(|(_, at)| at == now);
        self.bulk.incoming = self.bulk.incoming.filter(|incoming| !(begins_to_wait && incoming.what.is_data()));
        // What goes on in the other direction has other bounds now. Those of ACKs are looked up when one comes.
        for direction in [Direction::Outgoing, Direction::Incoming] {
            if let Some(Bulk { what: What::Data { most: bound, .. }, .. }) = self.bulk.of(direction) {
                *bound = most;
            }
        }
    }

    /// What has to go on for packets like this one not to be looked at; `None` if all are to be.
    fn begun(
        &self,
        (now, config, link): (Instant, &WakeConfig, &FastLink),
        direction: Direction,
        before: Before,
        segment: &Segment,
    ) -> Option<Bulk> {
        let (acks, data) = (self.half(direction), self.half(direction.opposite()));
        let stamps = segment.options.timestamps?;
        let len = segment.payload.len() as u32;
        let end = segment.seq + len;
        let said = acks.observed.receiver.last()?;
        let is_noted =
            (said.nxt, said.ack, said.window, said.timestamps) == (end, segment.ack, segment.window, Some(stamps));
        let is_ending = acks.observed.is_ending || data.observed.is_ending;
        if !is_noted || acks.observed.acked != Some(segment.ack) || is_ending || !acks.is_quiet(now, config, link) {
            return None;
        }
        let until = self.until(direction, len, stamps);
        if len == 0 {
            let advances = before.acked.is_some_and(|acked| segment.ack.gt(acked));
            let has_data = acks.observed.ends.end().is_some();
            return (advances && has_data && acks.observed.flight.is_fast).then_some(Bulk { until, what: What::Acks });
        }
        let size = data.observed.longest_segment;
        let host = &self.outgoing.observed;
        let knows_the_window = host.acked.is_some() && host.receiver.last().is_some();
        let may_go_on = data.observed.flight.is_fast
            && size <= u16::MAX.into()
            && data.observed.ends.ends_with(end, size)
            && (direction == Direction::Outgoing || knows_the_window);
        may_go_on.then_some(Bulk { until, what: What::Data { size, most: Seq::new(0) } })
    }

    /// The timestamps at which a packet is looked at again: those of a few ticks later, or the echo by which the round trip of data
    /// that comes in is measured.
    fn until(&self, direction: Direction, len: u32, stamps: Timestamps) -> Timestamps {
        let (val, ecr) = (stamps.val.wrapping_add(TICKS), stamps.ecr.wrapping_add(TICKS));
        let waited_for = self.round_trip.stamped.filter(|_| direction == Direction::Incoming && len > 0);
        let comes_before = waited_for.filter(|(stamp, _)| (stamp.wrapping_sub(ecr) as i32) < 0);
        Timestamps { val, ecr: comes_before.map_or(ecr, |(stamp, _)| stamp) }
    }

    /// Where the window ends that the host offers, as far as it is known.
    fn edge_of_the_host(&self) -> Seq {
        let host = &self.outgoing.observed;
        let window = u32::from(host.receiver.window().unwrap_or(0)) << host.window_shift.unwrap_or(14).min(14);
        host.acked.unwrap_or_default() + window
    }
}
