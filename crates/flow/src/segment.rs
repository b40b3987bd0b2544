//! Packets as the C functions see them, and verdicts on packets.

use holdover_base::Instant;
use holdover_wire::{Flags, Packet, SackBlocks, Segment, TcpOptions};

use crate::layout::{self, Block, UNKNOWN_SHIFT, Verdict};

/// The form in which a segment arrived.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Form {
    /// Bytes of each segment, if the packet stands for several (GSO).
    pub segment_size: Option<u32>,
    /// The packet has no IP options, and its TCP options are two no-operations and timestamps (RFC 7323 appendix A).
    pub has_usual_options: bool,
}

impl Form {
    /// The form of a single segment, as emitted here.
    pub fn of(segment: &Segment) -> Self {
        let TcpOptions { timestamps, .. } = segment.options;
        let has_usual_options =
            timestamps.is_some() && segment.options == TcpOptions { timestamps, ..TcpOptions::default() };
        Self { segment_size: None, has_usual_options }
    }
}

/// The largest shift of windows (RFC 7323 section 2.3).
const MOST_SHIFT: u8 = 14;

/// The fields of a packet that the flow path reads.
pub(crate) fn read(now: Instant, packet: &Packet, segment: &Segment, form: Form) -> layout::Packet {
    let options = &segment.options;
    let stamps = options.timestamps;
    let mut sack = [Block::default(); layout::MOST_BLOCKS];
    for (to, block) in sack.iter_mut().zip(options.sack.iter()) {
        *to = Block { start: block.start.value(), end: block.end.value() };
    }
    let says_more = options.user_timeout.is_some()
        || options.fast_open.is_some()
        || options.accurate_ecn.is_some()
        || options.experimental.is_some()
        || options.unknown > 0;
    let is_plain = form.has_usual_options && segment.flags.difference(Flags::PSH) == Flags::ACK;
    layout::Packet {
        now: now.as_nanos(),
        seq: segment.seq.value(),
        ack: segment.ack.value(),
        val: stamps.map_or(0, |stamps| stamps.val),
        ecr: stamps.map_or(0, |stamps| stamps.ecr),
        len: segment.payload.len() as u32,
        segment_size: form.segment_size.unwrap_or(0),
        window: segment.window,
        // The lowest 8 bits: the programs ignore the others.
        flags: segment.flags.bits() as u8,
        ttl: packet.ttl,
        traffic_class: packet.traffic_class,
        window_scale: options.window_scale.map_or(UNKNOWN_SHIFT as u8, |shift| shift.min(MOST_SHIFT)),
        has_stamps: stamps.is_some().into(),
        sack_len: options.sack.len() as u8,
        says_more: says_more.into(),
        is_plain: is_plain.into(),
        sack,
        ..layout::Packet::default()
    }
}

impl Verdict {
    /// Applies the verdict's changes to a segment that passes.
    pub(crate) fn rewrite(&self, segment: &mut Segment) {
        if let Some(stamps) = segment.options.timestamps.as_mut().filter(|_| self.refresh != 0) {
            stamps.ecr = self.ecr;
        }
        if self.lower != 0 {
            segment.ack = holdover_wire::Seq::new(self.ack);
            // Blocks above a lowered ACK would report the held data as lost.
            segment.options.sack = SackBlocks::EMPTY;
        }
        if self.window_changed != 0 {
            segment.window = self.window;
        }
    }
}
