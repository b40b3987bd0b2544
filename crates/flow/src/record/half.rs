//! One direction of a flow in a record.

use holdover_base::Instant;
use holdover_filter::Direction;
use holdover_wire::Seq;

use super::age::{age, low_and_high, moment};
use super::fields::Fields;
use crate::half::Half;
use crate::layout::{
    Block, Flow, HALF_ACKED, HALF_BEHIND, HALF_ENDING, HALF_FLUSHED, HALF_LAST, HALF_LAST_STAMPS, HALF_RESET,
    HALF_SACK, HALF_SHORT, HALF_STAMP_APART, HALF_STAMPED, HalfAcks, HalfRest, MOST_BLOCKS, MOST_SHOWN, Run, Shown,
    UNKNOWN_SHIFT,
};

/// Data in one direction, and its ACKs: flags, window shift, TTL and traffic class of the receiver's last segment (1 byte
/// each), its window and the longest segment of data (2 each); ACK, ACK shown to the sender, SND.NXT, TSval and TSecr of
/// the receiver's last segment, bytes acknowledged (4 each); ages of the last data and of the last ACK of something new
/// (4 each); then, if the flags say so, the last run of segments (start and end, 4 each, and their size, 2), the ACK
/// before a flush (4), the newest TSval, its age, the first TSval and the time between both (4 each); and SACK blocks
/// and ACKs shown last with their ages (1 byte for their number, and 8 for each).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct HalfRecord {
    flags: u8,
    pub(super) window_shift: u8,
    last_ttl: u8,
    last_class: u8,
    last_window: u16,
    longest_segment: u16,
    acked: u32,
    shown: u32,
    last_nxt: u32,
    last_val: u32,
    last_ecr: u32,
    bytes_acked: u32,
    data: u32,
    advanced: u32,
    run_start: u32,
    run_end: u32,
    run_size: u16,
    flushed_from: u32,
    newest_stamp: u32,
    newest_stamp_age: u32,
    first_stamp: u32,
    stamp_span: u32,
    pub(super) sack: Vec<Block>,
    /// The newest first: an ACK and its age.
    pub(super) shown_lately: Vec<(u32, u32)>,
    /// Whether there were more of them.
    pub(super) is_cut: bool,
}

/// Flags of a half in the flow path that a record keeps as they are; they fit five bits.
const KEPT: u32 = HALF_ACKED | HALF_LAST | HALF_LAST_STAMPS | HALF_ENDING | HALF_RESET;
const ACKED: u8 = HALF_ACKED as u8;
const HAS_RUN: u8 = 0x20;
const FLUSHED: u8 = 0x40;
const HAS_STAMPS: u8 = 0x80;
const _: () = assert!(KEPT == 0x1f);

/// With the number of ACKs shown: there were more.
const CUT: u8 = 0x80;

/// The unit of the time between two TSvals: 5 days fit.
const SPAN_UNIT_NS: u64 = 100_000;

/// The longest run in a record, in bytes: more than any window that is held back.
const LONGEST_RUN: u32 = 1 << 24;

/// Sequence numbers of one connection are nearer to each other than this: windows have at most a gigabyte.
const SAME_SPACE: u32 = 1 << 30;

impl HalfRecord {
    pub(super) fn of(now: Instant, half: Half<'_>) -> Self {
        let Half { core, acks, rest, .. } = half;
        let flag = |is_set: bool, flag: u8| if is_set { flag } else { 0 };
        let run = half.newest_run().map(newest_part);
        let size = run.map_or(0, |run| run.size.clamp(1, 0xffff) as u16);
        let (flushed_from, span) = (half.flushed_from(), stamp_span(half));
        let Run { start, end, .. } = run.unwrap_or_default();
        let shown_lately = newest_shown(half).map(|shown| (shown.ack, age(now, shown.at))).collect();
        Self {
            flags: (core.flags & KEPT) as u8
                | flag(run.is_some(), HAS_RUN)
                | flag(flushed_from.is_some(), FLUSHED)
                | flag(span.is_some(), HAS_STAMPS),
            window_shift: core.window_shift,
            last_ttl: core.last_ttl,
            last_class: core.last_class,
            last_window: core.last_window,
            longest_segment: acks.longest_segment.min(0xffff) as u16,
            acked: core.acked,
            shown: half.shown().value(),
            last_nxt: core.last_nxt,
            last_val: core.last_val,
            last_ecr: core.last_ecr,
            bytes_acked: acks.bytes_acked.min(u32::MAX.into()) as u32,
            data: age(now, half.last_data_nanos()),
            advanced: age(now, acks.advanced_at),
            run_start: start,
            run_end: end,
            run_size: size,
            flushed_from: flushed_from.map_or(0, Seq::value),
            newest_stamp: span.map_or(0, |_| half.newest_val()),
            newest_stamp_age: span.map_or(0, |_| age(now, half.newest_stamp_nanos())),
            first_stamp: span.map_or(0, |_| rest.first_stamp),
            stamp_span: span.unwrap_or(0),
            sack: half.blocks().iter().copied().filter(|block| reaches(block.end, block.start)).collect(),
            shown_lately,
            is_cut: false,
        }
    }

    /// Sets a half of a new flow.
    pub(super) fn revive(&self, now: Instant, flow: &mut Flow, direction: Direction) {
        let (core, acks, rest) = flow.half_mut(direction);
        core.flags = u32::from(self.flags) & KEPT;
        core.acked = self.acked;
        if self.shown != self.acked {
            core.flags |= HALF_BEHIND;
            acks.shown = self.shown;
        }
        core.last_nxt = self.last_nxt;
        core.last_val = self.last_val;
        core.last_ecr = self.last_ecr;
        core.last_window = self.last_window;
        core.last_ttl = self.last_ttl;
        core.last_class = self.last_class;
        core.window_shift = self.window_shift;
        (core.last_data_at, rest.last_data_era) = low_and_high(moment(now, self.data));
        acks.advanced_at = moment(now, self.advanced);
        acks.bytes_acked = self.bytes_acked.into();
        acks.longest_segment = self.longest_segment.into();
        rest.bytes = self.bytes_acked.into();
        if self.flags & HAS_RUN != 0 {
            (acks.start, core.end, core.size, core.runs_len) = (self.run_start, self.run_end, self.run_size, 1);
            acks.longest_segment = acks.longest_segment.max(self.run_size.into());
            rest.counted = self.run_end;
            let len = self.run_end.wrapping_sub(self.run_start);
            core.flags |= if len.is_multiple_of(self.run_size.into()) { 0 } else { HALF_SHORT };
        }
        if self.flags & FLUSHED != 0 {
            core.flags |= HALF_FLUSHED;
            rest.flushed_from = self.flushed_from;
        }
        if self.flags & HAS_STAMPS != 0 {
            core.flags |= HALF_STAMPED | HALF_STAMP_APART;
            let newest_at = moment(now, self.newest_stamp_age).max(1);
            (core.newest_stamp_at, rest.newest_stamp_era) = low_and_high(newest_at);
            rest.first_stamp_at = newest_at.saturating_sub(u64::from(self.stamp_span) * SPAN_UNIT_NS).max(1);
            (rest.newest_stamp, rest.first_stamp) = (self.newest_stamp, self.first_stamp);
        }
        for (place, block) in rest.sack.iter_mut().zip(&self.sack) {
            *place = *block;
            rest.sack_len += 1;
            core.flags |= HALF_SACK;
        }
        self.revive_shown(now, acks, rest);
    }

    /// Fills the ring of ACKs shown. If it was cut, the oldest one stands for all before, so that the ring is full: more
    /// than it remembers were shown.
    fn revive_shown(&self, now: Instant, acks: &mut HalfAcks, rest: &mut HalfRest) {
        let oldest = self.shown_lately.last().copied().unwrap_or((self.shown, 0));
        let len = if self.is_cut { MOST_SHOWN } else { self.shown_lately.len().min(MOST_SHOWN) };
        for (place, slot) in rest.shown_lately[..len].iter_mut().enumerate() {
            let (ack, age) = self.shown_lately.get(len - 1 - place).copied().unwrap_or(oldest);
            *slot = Shown { at: moment(now, age).max(1), ack, val: self.last_val.wrapping_add(1) };
        }
        acks.shown_len = len as u8;
        acks.shown_next = (len % MOST_SHOWN) as u8;
    }

    /// Whether the record has everything that a half has.
    pub(super) fn covers(&self, half: Half<'_>) -> bool {
        let has_acks = self.flags & ACKED != 0;
        let acks = half.core.flags & HALF_ACKED == 0
            || has_acks && reaches(self.acked, half.core.acked) && reaches(self.shown, half.shown().value());
        let end = end_of(half).is_none_or(|end| self.flags & HAS_RUN != 0 && reaches(self.run_end, end));
        let closes = half.core.flags & (HALF_ENDING | HALF_RESET) & !u32::from(self.flags) == 0;
        acks && end && closes && (half.lacks_window_shift() || self.window_shift == half.core.window_shift)
    }

    /// Whether the record has something that is missing in a half that it covers.
    pub(super) fn exceeds(&self, half: Half<'_>) -> bool {
        let has_acks = self.flags & ACKED != 0;
        let acks = has_acks && (half.core.flags & HALF_ACKED == 0 || self.acked != half.core.acked);
        let end = self.flags & HAS_RUN != 0 && end_of(half) != Some(self.run_end);
        let shift = half.lacks_window_shift() && u32::from(self.window_shift) != UNKNOWN_SHIFT;
        acks || end || shift
    }

    /// Whether the sequence numbers of a half can belong to the same data.
    pub(super) fn is_near(&self, half: Half<'_>) -> bool {
        let both = self.flags & ACKED != 0 && half.core.flags & HALF_ACKED != 0;
        !both || reaches(self.acked, half.core.acked) || reaches(half.core.acked, self.acked)
    }

    pub(super) fn is_valid(&self) -> bool {
        let shift = u32::from(self.window_shift);
        let has_acks = self.flags & ACKED != 0;
        (shift <= 14 || shift == UNKNOWN_SHIFT)
            // No sender was shown more than its receiver has acknowledged.
            && (!has_acks || reaches(self.acked, self.shown))
            && (self.flags & FLUSHED == 0 || has_acks && reaches(self.acked, self.flushed_from))
            && self.shown_lately.iter().all(|&(ack, _)| has_acks && reaches(self.acked, ack))
            && (self.flags & HAS_RUN == 0 || self.run_size > 0 && reaches(self.run_end, self.run_start))
            && self.sack.iter().all(|block| reaches(block.end, block.start))
    }

    pub(super) fn pass_fields(&mut self, fields: &mut impl Fields) -> Option<()> {
        let Self { flags, window_shift, last_ttl, last_class, last_window, longest_segment, .. } = self;
        for number in [flags, window_shift, last_ttl, last_class] {
            fields.u8(number)?;
        }
        for number in [last_window, longest_segment] {
            fields.u16(number)?;
        }
        let Self { acked, shown, last_nxt, last_val, last_ecr, bytes_acked, data, advanced, .. } = self;
        for number in [acked, shown, last_nxt, last_val, last_ecr, bytes_acked, data, advanced] {
            fields.u32(number)?;
        }
        if self.flags & HAS_RUN != 0 {
            fields.u32(&mut self.run_start)?;
            fields.u32(&mut self.run_end)?;
            fields.u16(&mut self.run_size)?;
        }
        if self.flags & FLUSHED != 0 {
            fields.u32(&mut self.flushed_from)?;
        }
        if self.flags & HAS_STAMPS != 0 {
            let Self { newest_stamp, newest_stamp_age, first_stamp, stamp_span, .. } = self;
            for number in [newest_stamp, newest_stamp_age, first_stamp, stamp_span] {
                fields.u32(number)?;
            }
        }
        self.pass_lists(fields)
    }

    fn pass_lists(&mut self, fields: &mut impl Fields) -> Option<()> {
        let mut len = self.sack.len() as u8;
        fields.u8(&mut len)?;
        if usize::from(len) > MOST_BLOCKS {
            return None;
        }
        self.sack.resize(len.into(), Block::default());
        for block in &mut self.sack {
            fields.u32(&mut block.start)?;
            fields.u32(&mut block.end)?;
        }
        let mut len = self.shown_lately.len() as u8 | if self.is_cut { CUT } else { 0 };
        fields.u8(&mut len)?;
        self.is_cut = len & CUT != 0;
        let len = usize::from(len & !CUT);
        if len > MOST_SHOWN {
            return None;
        }
        self.shown_lately.resize(len, (0, 0));
        for (ack, age) in &mut self.shown_lately {
            fields.u32(ack)?;
            fields.u32(age)?;
        }
        Some(())
    }
}

/// Whether `number` is at least `other`, in one sequence space.
fn reaches(number: u32, other: u32) -> bool {
    Seq::new(number).ge(Seq::new(other)) && number.wrapping_sub(other) < SAME_SPACE
}

fn end_of(half: Half<'_>) -> Option<u32> {
    half.newest_run().map(|run| run.end)
}

/// The newest whole segments of a run: a bulk transfer is one run, which may be longer than sequence numbers can be compared.
fn newest_part(run: Run) -> Run {
    let size = run.size.max(1);
    let excess = run.end.wrapping_sub(run.start).saturating_sub(LONGEST_RUN);
    Run { start: run.start.wrapping_add(excess / size * size), ..run }
}

/// The ACKs that were shown last, the newest first.
fn newest_shown(half: Half<'_>) -> impl Iterator<Item = Shown> {
    let len = usize::from(half.acks.shown_len).min(MOST_SHOWN);
    let next = usize::from(half.acks.shown_next);
    (1..=len).map(move |back| half.rest.shown_lately[next.wrapping_sub(back) % MOST_SHOWN])
}

/// The time between the first and the newest TSval; `None` without any, and if it is too long.
fn stamp_span(half: Half<'_>) -> Option<u32> {
    let first_at = half.rest.first_stamp_at;
    let span = half.newest_stamp_nanos().saturating_sub(first_at) / SPAN_UNIT_NS;
    u32::try_from(span).ok().filter(|_| first_at != 0)
}
