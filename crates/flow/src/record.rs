//! Records of flows for another gateway: the part of a [`Flow`] that is meaningful there, in at most [`FlowRecord::MAX_BYTES`].
//!
//! A record has the state that both ends have agreed on or shown: windows, sequence numbers, timestamps. Times are ages,
//! relative to the moment at which the record was made, as the clocks of two machines have nothing in common; the time on
//! its way makes them too recent, and so the estimate of a timestamp clock too old, which is the safe side. Not in it are
//! orders of a controller, except that a window stays shut, measurements in progress, and the rate of the flow.
//!
//! ```text
//! bytes    content, in network byte order
//!  1       version: 1
//!  1       flags: IPv4, round trips known, SND.NXT known, detailed, window of the fixed host shut until something new is acknowledged
//!  8 / 32  addresses of the fixed host and of the mobile host
//!  4       their ports
//! 13       stage, initial sequence number, ends of both FINs
//! 12       round trips in us: smoothed, shortest, shortest beyond the gateway
//!  8       SND.NXT of the fixed host; age of the last packet of the mobile host, in us
//! 42 + n   data towards the fixed host, and its ACKs
//! 42 + n   data towards the mobile host, and its ACKs
//! ```
//!
//! [`HalfRecord`] has the parts of the last two.

use holdover_base::Instant;
use holdover_filter::{Connection, Direction};
use holdover_wire::Seq;

use crate::layout::{
    Block, Flow, HALF_ACKED, HALF_ENDING, HALF_FLUSHED, HALF_LAST, HALF_LAST_STAMPS, HALF_LIMITED, HALF_RESET,
    HALF_STAMPED, HALF_UNTIL_ACKED, HALF_UNTIL_HEARD, Half, Key, MOST_BLOCKS, MOST_SHOWN, Run, STAGE_HOST_FIN,
    STAGE_HOST_FIN_ACKED, STAGE_ISN, STAGE_PEER_FIN, STAGE_PEER_FIN_ACKED, STAGE_RESET, Shown, TRIP_BEYOND, TRIP_NXT,
    TRIP_SAMPLED, UNKNOWN_SHIFT,
};

/// A flow as another gateway needs it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FlowRecord {
    key: Key,
    flags: u8,
    stage: u8,
    host_isn: u32,
    host_fin: u32,
    peer_fin: u32,
    smoothed: u32,
    least: u32,
    beyond: u32,
    nxt: u32,
    heard: u32,
    outgoing: HalfRecord,
    incoming: HalfRecord,
}

/// Data in one direction, and its ACKs: flags, window shift, TTL and traffic class of the receiver's last segment (1 byte
/// each), its window and the longest segment of data (2 each); ACK, ACK shown to the sender, SND.NXT, TSval and TSecr of
/// the receiver's last segment, bytes acknowledged (4 each); ages of the last data and of the last ACK of something new
/// (4 each); then, if the flags say so, the last run of segments (start and end, 4 each, and their size, 2), the ACK
/// before a flush (4), the newest TSval, its age, the first TSval and the time between both (4 each); and SACK blocks
/// and ACKs shown last with their ages (1 byte for their number, and 8 for each).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct HalfRecord {
    flags: u8,
    window_shift: u8,
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
    sack: Vec<Block>,
    /// The newest first: an ACK and its age.
    shown_lately: Vec<(u32, u32)>,
    /// Whether there were more of them.
    is_cut: bool,
}

const IPV4: u8 = 0x1;
const SAMPLED: u8 = 0x2;
const HAS_NXT: u8 = 0x4;
const DETAILED: u8 = 0x8;
const SHUT: u8 = 0x10;

/// Flags of a half in the flow path that a record keeps as they are; they fit five bits.
const KEPT: u32 = HALF_ACKED | HALF_LAST | HALF_LAST_STAMPS | HALF_ENDING | HALF_RESET;
const ACKED: u8 = HALF_ACKED as u8;
const HAS_RUN: u8 = 0x20;
const FLUSHED: u8 = 0x40;
const HAS_STAMPS: u8 = 0x80;
const _: () = assert!(KEPT == 0x1f);

const STAGES: u32 =
    STAGE_ISN | STAGE_HOST_FIN | STAGE_PEER_FIN | STAGE_HOST_FIN_ACKED | STAGE_PEER_FIN_ACKED | STAGE_RESET;
const HAS_ISN: u8 = STAGE_ISN as u8;

/// With the number of ACKs shown: there were more.
const CUT: u8 = 0x80;

/// The age of an event that has not happened.
const NEVER: u32 = u32::MAX;

/// The unit of the time between two TSvals: 5 days fit.
const SPAN_UNIT_NS: u64 = 100_000;

/// Bytes of a SACK block, or of an ACK with its age.
const PAIR_BYTES: usize = 8;

/// The prefix of IPv4-mapped addresses (RFC 4291 section 2.5.5.2).
const MAPPED: [u8; 12] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff];

/// The longest run in a record, in bytes: more than any window that is held back.
const LONGEST_RUN: u32 = 1 << 24;

/// Sequence numbers of one connection are nearer to each other than this: windows have at most a gigabyte.
const SAME_SPACE: u32 = 1 << 30;

impl FlowRecord {
    /// The version that this code writes and reads.
    pub const VERSION: u8 = 1;

    /// The longest record (the paper on M-TCP has 500 bytes).
    pub const MAX_BYTES: usize = 256;

    /// The record of a flow at `now`; `None` for a connection that is closed, that has not been answered, or that a
    /// policy exempts. `is_detailed` says whether the flow table has more than its entry.
    pub fn of(now: Instant, connection: Connection, flow: &Flow, is_detailed: bool) -> Option<Self> {
        if flow.is_over() || flow.is_unanswered() || flow.is_exempt() {
            return None;
        }
        let key = Key::new(connection);
        let flag = |is_set: bool, flag: u8| if is_set { flag } else { 0 };
        let mut record = Self {
            key,
            flags: flag(is_ipv4(&key.local), IPV4)
                | flag(flow.flags & TRIP_SAMPLED != 0, SAMPLED)
                | flag(flow.flags & TRIP_NXT != 0, HAS_NXT)
                | flag(is_detailed, DETAILED)
                | flag(flow.incoming.is_shut_until_acked() && !flow.incoming.is_held(), SHUT),
            stage: (u32::from(flow.stage) & STAGES) as u8,
            host_isn: flow.host_isn,
            host_fin: flow.host_fin,
            peer_fin: flow.peer_fin,
            smoothed: micros(flow.smoothed),
            least: micros(flow.least),
            beyond: micros(flow.beyond),
            nxt: flow.nxt,
            heard: age(now, flow.heard_at),
            outgoing: HalfRecord::of(now, &flow.outgoing),
            incoming: HalfRecord::of(now, &flow.incoming),
        };
        // A host receives every ACK that the gateway beside it shows to it.
        record.incoming.shown_lately.clear();
        record.incoming.is_cut = false;
        record.shorten();
        Some(record)
    }

    /// Its connection; the remote end is the mobile host's.
    pub fn connection(&self) -> Connection {
        self.key.connection()
    }

    /// Whether the former flow table had more than the flow's entry.
    pub const fn is_detailed(&self) -> bool {
        self.flags & DETAILED != 0
    }

    /// Whether the fixed host's window stays shut until it is shown an ACK of something new.
    pub const fn is_shut(&self) -> bool {
        self.flags & SHUT != 0
    }

    /// The same record with an open window.
    pub fn opened(mut self) -> Self {
        self.flags &= !SHUT;
        self
    }

    /// The flow, with its times on the clock of `now`.
    pub fn revive(&self, now: Instant) -> Flow {
        let (outgoing, mut incoming) = (self.outgoing.revive(now), self.incoming.revive(now));
        if self.is_shut() {
            incoming.flags |= HALF_LIMITED | HALF_UNTIL_HEARD | HALF_UNTIL_ACKED;
            incoming.most_window = 0;
        }
        let heard_at = moment(now, self.heard).max(1);
        let nanos = |micros: u32| u64::from(micros) * 1000;
        let flag = |flag: u8, is: u32| if self.flags & flag != 0 { is } else { 0 };
        Flow {
            smoothed: nanos(self.smoothed),
            latest: nanos(self.smoothed),
            least: nanos(self.least),
            heard_at,
            nxt: self.nxt,
            flags: flag(SAMPLED, TRIP_SAMPLED)
                | flag(HAS_NXT, TRIP_NXT)
                | if self.beyond > 0 { TRIP_BEYOND } else { 0 },
            beyond: nanos(self.beyond),
            seen_at: heard_at.max(outgoing.last_data_at).max(incoming.last_data_at),
            began_at: heard_at,
            bytes_in: outgoing.bytes_acked,
            bytes_out: incoming.bytes_acked,
            host_isn: self.host_isn,
            host_fin: self.host_fin,
            peer_fin: self.peer_fin,
            stage: self.stage.into(),
            outgoing,
            incoming,
            ..Flow::new()
        }
    }

    /// Whether the record takes the place of a flow that packets have shown here: it is of the same connection, all that
    /// the flow knows is in it, its end included, and it knows more.
    pub fn supersedes(&self, known: &Flow) -> bool {
        let halves = [(&self.outgoing, &known.outgoing), (&self.incoming, &known.incoming)];
        self.may_be(known)
            && known.stage & !u16::from(self.stage) == 0
            && halves.iter().all(|(record, half)| record.covers(half))
            && halves.iter().any(|(record, half)| record.exceeds(half))
    }

    /// The window shifts that a flow which packets have shown here lacks, by the direction of the ACKs.
    pub fn missing_shifts(&self, known: &Flow) -> impl Iterator<Item = (Direction, u8)> {
        let halves = [
            (Direction::Outgoing, &self.outgoing, &known.outgoing),
            (Direction::Incoming, &self.incoming, &known.incoming),
        ];
        let is_same = self.may_be(known) && halves.iter().all(|(_, record, half)| record.is_near(half));
        let missing = halves.map(|(direction, record, half)| {
            let is_new = is_same && half.lacks_window_shift() && u32::from(record.window_shift) != UNKNOWN_SHIFT;
            is_new.then_some((direction, record.window_shift))
        });
        missing.into_iter().flatten()
    }

    /// Whether a flow can be of the same connection. One whose SYN was seen here, and that of the record not, is another one.
    fn may_be(&self, known: &Flow) -> bool {
        let has_isn = self.stage & HAS_ISN != 0;
        u32::from(known.stage) & STAGE_ISN == 0 || has_isn && self.host_isn == known.host_isn
    }

    /// The record as bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(Self::MAX_BYTES);
        // Writing does not fail.
        let _ = self.clone().pass_fields(&mut bytes);
        bytes
    }

    /// Parses a record; `None` for another version, and for values that no flow has.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let mut record = Self::default();
        let mut input = Input(bytes);
        if bytes.len() > Self::MAX_BYTES {
            return None;
        }
        record.pass_fields(&mut input)?;
        (input.0.is_empty() && record.is_valid()).then_some(record)
    }

    fn pass_fields(&mut self, fields: &mut impl Fields) -> Option<()> {
        let mut version = Self::VERSION;
        fields.u8(&mut version)?;
        if version != Self::VERSION {
            return None;
        }
        fields.u8(&mut self.flags)?;
        let Key { local, remote, local_port, remote_port } = &mut self.key;
        for address in [local, remote] {
            let mut from = 0;
            if self.flags & IPV4 != 0 {
                address[..MAPPED.len()].copy_from_slice(&MAPPED);
                from = MAPPED.len();
            }
            fields.bytes(&mut address[from..])?;
        }
        for port in [local_port, remote_port] {
            let mut host_order = u16::from_be(*port);
            fields.u16(&mut host_order)?;
            *port = host_order.to_be();
        }
        fields.u8(&mut self.stage)?;
        let Self { host_isn, host_fin, peer_fin, smoothed, least, beyond, nxt, heard, .. } = self;
        for number in [host_isn, host_fin, peer_fin, smoothed, least, beyond, nxt, heard] {
            fields.u32(number)?;
        }
        self.outgoing.pass_fields(fields)?;
        self.incoming.pass_fields(fields)
    }

    fn is_valid(&self) -> bool {
        let is_ipv4 = [&self.key.local, &self.key.remote].map(is_ipv4);
        self.flags & !(IPV4 | SAMPLED | HAS_NXT | DETAILED | SHUT) == 0
            && is_ipv4 == [self.flags & IPV4 != 0; 2]
            && u32::from(self.stage) & !STAGES == 0
            && self.heard != NEVER
            && self.outgoing.is_valid()
            && self.incoming.is_valid()
    }

    /// Drops SACK blocks and ACKs shown for which there is no room: the oldest ones.
    fn shorten(&mut self) {
        let Self { outgoing, incoming, .. } = self;
        let pairs = outgoing.sack.len() + incoming.sack.len() + outgoing.shown_lately.len();
        let mut room = (Self::MAX_BYTES + pairs * PAIR_BYTES).saturating_sub(self.to_bytes().len()) / PAIR_BYTES;
        let Self { outgoing, incoming, .. } = self;
        for sack in [&mut outgoing.sack, &mut incoming.sack] {
            sack.truncate(room);
            room -= sack.len();
        }
        outgoing.is_cut |= outgoing.shown_lately.len() > room;
        outgoing.shown_lately.truncate(room);
    }
}

impl HalfRecord {
    fn of(now: Instant, half: &Half) -> Self {
        let flag = |is_set: bool, flag: u8| if is_set { flag } else { 0 };
        let run = half.newest_run().map(newest_part);
        let size = run.map_or(0, |run| run.size.clamp(1, 0xffff) as u16);
        let (has_flush, span) = (half.flags & HALF_FLUSHED != 0, stamp_span(half));
        let Run { start, end, .. } = run.unwrap_or_default();
        let blocks = &half.sack[..usize::from(half.sack_len).min(MOST_BLOCKS)];
        let shown_lately = newest_shown(half).map(|shown| (shown.ack, age(now, shown.at))).collect();
        Self {
            flags: (half.flags & KEPT) as u8
                | flag(run.is_some(), HAS_RUN)
                | flag(has_flush, FLUSHED)
                | flag(span.is_some(), HAS_STAMPS),
            window_shift: half.window_shift,
            last_ttl: half.last_ttl,
            last_class: half.last_class,
            last_window: half.last_window,
            longest_segment: half.longest_segment.min(0xffff) as u16,
            acked: half.acked,
            shown: half.shown,
            last_nxt: half.last_nxt,
            last_val: half.last_val,
            last_ecr: half.last_ecr,
            bytes_acked: half.bytes_acked.min(u32::MAX.into()) as u32,
            data: age(now, half.last_data_at),
            advanced: age(now, half.advanced_at),
            run_start: start,
            run_end: end,
            run_size: size,
            flushed_from: if has_flush { half.flushed_from } else { 0 },
            newest_stamp: span.map_or(0, |_| half.newest_stamp),
            newest_stamp_age: span.map_or(0, |_| age(now, half.newest_stamp_at)),
            first_stamp: span.map_or(0, |_| half.first_stamp),
            stamp_span: span.unwrap_or(0),
            sack: blocks.iter().copied().filter(|block| reaches(block.end, block.start)).collect(),
            shown_lately,
            is_cut: false,
        }
    }

    fn revive(&self, now: Instant) -> Half {
        let mut half = Half {
            last_data_at: moment(now, self.data),
            advanced_at: moment(now, self.advanced),
            bytes_acked: self.bytes_acked.into(),
            acked: self.acked,
            shown: self.shown,
            longest_segment: self.longest_segment.into(),
            last_nxt: self.last_nxt,
            last_val: self.last_val,
            last_ecr: self.last_ecr,
            flags: u32::from(self.flags) & KEPT,
            last_window: self.last_window,
            last_ttl: self.last_ttl,
            last_class: self.last_class,
            window_shift: self.window_shift,
            ..Half::default()
        };
        if self.flags & HAS_RUN != 0 {
            half.runs[0] = Run { start: self.run_start, end: self.run_end, size: self.run_size.into() };
            half.runs_len = 1;
            half.longest_segment = half.longest_segment.max(half.runs[0].size);
        }
        if self.flags & FLUSHED != 0 {
            half.flags |= HALF_FLUSHED;
            half.flushed_from = self.flushed_from;
        }
        if self.flags & HAS_STAMPS != 0 {
            half.flags |= HALF_STAMPED;
            half.newest_stamp_at = moment(now, self.newest_stamp_age).max(1);
            half.first_stamp_at = half.newest_stamp_at.saturating_sub(u64::from(self.stamp_span) * SPAN_UNIT_NS).max(1);
            (half.newest_stamp, half.first_stamp) = (self.newest_stamp, self.first_stamp);
        }
        for (place, block) in half.sack.iter_mut().zip(&self.sack) {
            *place = *block;
            half.sack_len += 1;
        }
        self.revive_shown(now, &mut half);
        half
    }

    /// Fills the ring of ACKs shown. If it was cut, the oldest one stands for all before, so that the ring is full: more
    /// than it remembers were shown.
    fn revive_shown(&self, now: Instant, half: &mut Half) {
        let oldest = self.shown_lately.last().copied().unwrap_or((self.shown, 0));
        let len = if self.is_cut { MOST_SHOWN } else { self.shown_lately.len().min(MOST_SHOWN) };
        for (place, slot) in half.shown_lately[..len].iter_mut().enumerate() {
            let (ack, age) = self.shown_lately.get(len - 1 - place).copied().unwrap_or(oldest);
            *slot = Shown { at: moment(now, age).max(1), ack, val: self.last_val.wrapping_add(1) };
        }
        half.shown_len = len as u8;
        half.shown_next = (len % MOST_SHOWN) as u16;
    }

    /// Whether the record has everything that a half has.
    fn covers(&self, half: &Half) -> bool {
        let has_acks = self.flags & ACKED != 0;
        let acks = half.flags & HALF_ACKED == 0
            || has_acks && reaches(self.acked, half.acked) && reaches(self.shown, half.shown);
        let end = end_of(half).is_none_or(|end| self.flags & HAS_RUN != 0 && reaches(self.run_end, end));
        let closes = half.flags & (HALF_ENDING | HALF_RESET) & !u32::from(self.flags) == 0;
        acks && end && closes && (half.lacks_window_shift() || self.window_shift == half.window_shift)
    }

    /// Whether the record has something that is missing in a half that it covers.
    fn exceeds(&self, half: &Half) -> bool {
        let has_acks = self.flags & ACKED != 0;
        let acks = has_acks && (half.flags & HALF_ACKED == 0 || self.acked != half.acked);
        let end = self.flags & HAS_RUN != 0 && end_of(half) != Some(self.run_end);
        let shift = half.lacks_window_shift() && u32::from(self.window_shift) != UNKNOWN_SHIFT;
        acks || end || shift
    }

    /// Whether the sequence numbers of a half can belong to the same data.
    fn is_near(&self, half: &Half) -> bool {
        let both = self.flags & ACKED != 0 && half.flags & HALF_ACKED != 0;
        !both || reaches(self.acked, half.acked) || reaches(half.acked, self.acked)
    }

    fn is_valid(&self) -> bool {
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

    fn pass_fields(&mut self, fields: &mut impl Fields) -> Option<()> {
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

/// One pass over the fields of a record, which writes or reads each of them; `None` if bytes are missing.
trait Fields {
    fn bytes(&mut self, bytes: &mut [u8]) -> Option<()>;

    fn u8(&mut self, number: &mut u8) -> Option<()> {
        let mut bytes = [*number];
        self.bytes(&mut bytes)?;
        [*number] = bytes;
        Some(())
    }

    fn u16(&mut self, number: &mut u16) -> Option<()> {
        let mut bytes = number.to_be_bytes();
        self.bytes(&mut bytes)?;
        *number = u16::from_be_bytes(bytes);
        Some(())
    }

    fn u32(&mut self, number: &mut u32) -> Option<()> {
        let mut bytes = number.to_be_bytes();
        self.bytes(&mut bytes)?;
        *number = u32::from_be_bytes(bytes);
        Some(())
    }
}

impl Fields for Vec<u8> {
    fn bytes(&mut self, bytes: &mut [u8]) -> Option<()> {
        self.extend_from_slice(bytes);
        Some(())
    }
}

/// Bytes that are read.
struct Input<'a>(&'a [u8]);

impl Fields for Input<'_> {
    fn bytes(&mut self, bytes: &mut [u8]) -> Option<()> {
        let (read, rest) = self.0.split_at_checked(bytes.len())?;
        bytes.copy_from_slice(read);
        self.0 = rest;
        Some(())
    }
}

fn is_ipv4(address: &[u8; 16]) -> bool {
    address.starts_with(&MAPPED)
}

/// Whether `number` is at least `other`, in one sequence space.
fn reaches(number: u32, other: u32) -> bool {
    Seq::new(number).ge(Seq::new(other)) && number.wrapping_sub(other) < SAME_SPACE
}

fn end_of(half: &Half) -> Option<u32> {
    half.newest_run().map(|run| run.end)
}

/// The newest whole segments of a run: a bulk transfer is one run, which may be longer than sequence numbers can be compared.
fn newest_part(run: &Run) -> Run {
    let size = run.size.max(1);
    let excess = run.end.wrapping_sub(run.start).saturating_sub(LONGEST_RUN);
    Run { start: run.start.wrapping_add(excess / size * size), ..*run }
}

/// The ACKs that were shown last, the newest first.
fn newest_shown(half: &Half) -> impl Iterator<Item = Shown> + '_ {
    let len = usize::from(half.shown_len).min(MOST_SHOWN);
    let next = usize::from(half.shown_next);
    (1..=len).map(move |back| half.shown_lately[next.wrapping_sub(back) % MOST_SHOWN])
}

/// The time between the first and the newest TSval; `None` without any, and if it is too long.
fn stamp_span(half: &Half) -> Option<u32> {
    let span = half.newest_stamp_at.saturating_sub(half.first_stamp_at) / SPAN_UNIT_NS;
    u32::try_from(span).ok().filter(|_| half.first_stamp_at != 0)
}

/// Microseconds from a time of the flow path until `now`.
fn age(now: Instant, at: u64) -> u32 {
    if at == 0 { NEVER } else { micros(now.as_nanos().saturating_sub(at)).min(NEVER - 1) }
}

/// The time of the flow path of this age.
fn moment(now: Instant, age: u32) -> u64 {
    if age == NEVER { 0 } else { now.as_nanos().saturating_sub(u64::from(age) * 1000).max(1) }
}

fn micros(nanos: u64) -> u32 {
    (nanos / 1000).min(u32::MAX.into()) as u32
}
