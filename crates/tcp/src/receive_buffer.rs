//! Received data: in-order data waiting for the reader, and out-of-order blocks waiting for a gap to close.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};
use holdover_wire::{SackBlocks, Seq, SeqRange};

use crate::on_demand::{Absent, OnDemand};

/// Pieces smaller than this are copied together, so that a peer that sends single bytes cannot make the bookkeeping
/// outgrow the data.
const COALESCE_BELOW: usize = 256;
/// ... up to this size.
const COALESCED_SIZE: usize = 2048;
/// The most blocks out of order: each costs a record, of any size. Linux bounds them by memory; a window of 4 MiB with
/// every second segment missing has some 1,500.
const MAX_BLOCKS: usize = 4096;

/// The receive side's data.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct ReceiveBuffer {
    /// The next chunk for the reader, and those behind it: a reader that keeps up never needs more than the one.
    next: Option<Bytes>,
    behind: OnDemand<VecDeque<Bytes>>,
    readable_len: usize,
    out_of_order: OnDemand<OutOfOrder>,
}

/// Data, or a FIN, that waits for a gap to close.
#[derive(Clone, PartialEq, Debug)]
struct OutOfOrder {
    blocks: VecDeque<Block>,
    len: usize,
    fin: Option<Fin>,
    /// The stamp of the latest arrival.
    stamp: u64,
}

impl Absent for OutOfOrder {
    const ABSENT: &'static Self = &Self { blocks: VecDeque::new(), len: 0, fin: None, stamp: 0 };
}

/// A FIN out of order: it takes up a sequence number (RFC 9293 section 3.4), which is reported as data is.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Fin {
    seq: Seq,
    stamp: u64,
}

/// A contiguous block out of order.
#[derive(Clone, PartialEq, Debug)]
struct Block {
    range: SeqRange,
    /// Grows with every arrival: the block with the highest has the most recent segment.
    stamp: u64,
    pieces: VecDeque<Bytes>,
}

/// Result of an insertion.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Inserted {
    /// Bytes that had arrived before.
    pub(crate) duplicate: u32,
    /// The first range that had arrived before, for DSACK (RFC 2883 section 4).
    pub(crate) duplicate_range: Option<SeqRange>,
    /// No room was left to keep it.
    pub(crate) refused: bool,
}

impl ReceiveBuffer {
    pub(crate) fn readable_len(&self) -> usize {
        self.readable_len
    }

    /// Bytes held, in order or not.
    pub(crate) fn held(&self) -> usize {
        self.readable_len + self.out_of_order.len
    }

    pub(crate) fn has_gap(&self) -> bool {
        self.out_of_order.get().is_some_and(|waiting| !waiting.blocks.is_empty() || waiting.fin.is_some())
    }

    /// The end of the last block out of order.
    pub(crate) fn highest(&self) -> Option<Seq> {
        self.out_of_order.blocks.back().map(|block| block.range.end)
    }

    /// Takes the next chunk for the reader.
    #[inline]
    pub(crate) fn read(&mut self) -> Option<Bytes> {
        let chunk = self.next.take()?;
        self.readable_len -= chunk.len();
        if let Some(behind) = self.behind.if_present() {
            self.next = behind.pop_front();
            if behind.is_empty() {
                self.behind.clear();
            }
        }
        Some(chunk)
    }

    /// Takes at most `len` bytes of the next chunk for the reader.
    pub(crate) fn read_at_most(&mut self, len: usize) -> Option<Bytes> {
        let next = self.next.as_mut()?;
        if next.len() <= len {
            return self.read();
        }
        self.readable_len -= len;
        Some(next.split_to(len))
    }

    /// Data in order that was not read, in chunks.
    pub(crate) fn unread(&self) -> impl Iterator<Item = &Bytes> {
        self.next.iter().chain(self.behind.iter())
    }

    /// Data out of order, from the lowest on: pieces with their sequence numbers.
    pub(crate) fn out_of_order(&self) -> impl Iterator<Item = (Seq, Bytes)> + '_ {
        self.out_of_order.blocks.iter().flat_map(|block| {
            block.pieces.iter().scan(block.range.start, |seq, piece| {
                let at = *seq;
                *seq += piece.len() as u32;
                Some((at, piece.clone()))
            })
        })
    }

    /// The sequence number of a FIN out of order.
    pub(crate) fn fin_out_of_order(&self) -> Option<Seq> {
        self.out_of_order.fin.map(|fin| fin.seq)
    }

    pub(crate) fn discard_all(&mut self) {
        *self = Self::default();
    }

    /// Appends data that is next in order.
    #[inline(always)]
    pub(crate) fn push_in_order(&mut self, chunk: Bytes) {
        if chunk.is_empty() {
            return;
        }
        self.readable_len += chunk.len();
        let Some(next) = &mut self.next else {
            self.next = Some(chunk);
            return;
        };
        let last = self.behind.if_present().and_then(VecDeque::back_mut).unwrap_or(next);
        if let Some(chunk) = coalesce(last, chunk) {
            self.behind.to_mut().push_back(chunk);
        }
    }

    /// Keeps data that is out of order.
    pub(crate) fn insert(&mut self, seq: Seq, data: Bytes) -> Inserted {
        let result = self.out_of_order.to_mut().insert(seq, data);
        self.release_when_in_order();
        result
    }

    /// Notes a FIN at `seq`, beyond the in-order data. Its block becomes the most recent one, also for a repeated FIN.
    pub(crate) fn insert_fin(&mut self, seq: Seq) {
        let waiting = self.out_of_order.to_mut();
        waiting.stamp += 1;
        waiting.fin = Some(Fin { seq, stamp: waiting.stamp });
    }

    /// Everything before the FIN has arrived.
    pub(crate) fn take_fin(&mut self) {
        if let Some(waiting) = self.out_of_order.if_present() {
            waiting.fin = None;
        }
        self.release_when_in_order();
    }

    /// Everything before `rcv_nxt` has arrived: moves blocks that are now in order to the reader, and returns the new
    /// `rcv_nxt`.
    pub(crate) fn advance(&mut self, mut rcv_nxt: Seq) -> Seq {
        while let Some(block) = self.out_of_order.if_present().and_then(|waiting| waiting.pop_reached(rcv_nxt)) {
            let mut seq = block.range.start;
            for mut piece in block.pieces {
                let len = piece.len() as u32;
                let known = rcv_nxt.saturating_since(seq).min(len);
                seq += len;
                drop(piece.split_to(known as usize));
                self.push_in_order(piece);
            }
            rcv_nxt = rcv_nxt.max(block.range.end);
        }
        self.release_when_in_order();
        rcv_nxt
    }

    fn release_when_in_order(&mut self) {
        if !self.has_gap() {
            self.out_of_order.clear();
        }
    }

    /// The blocks out of order, from the lowest on.
    pub(crate) fn blocks(&self) -> impl Iterator<Item = SeqRange> + '_ {
        self.out_of_order.blocks.iter().map(|block| block.range)
    }

    /// Blocks out of order below `end`, from the lowest on; the last may be cut.
    pub(crate) fn blocks_below(&self, end: Seq) -> Vec<SeqRange> {
        let below = self.out_of_order.blocks.iter().map(|block| block.range).take_while(|range| range.start.lt(end));
        below.map(|range| SeqRange::new(range.start, range.end.min(end))).collect()
    }

    /// The block out of order that holds `range`, for the second block of a DSACK (RFC 2883 section 4.1.3).
    pub(crate) fn block_with(&self, range: SeqRange) -> Option<SeqRange> {
        self.out_of_order.reports().map(|(_, block)| block).find(|block| block.covers(range))
    }

    /// The SACK blocks to report: a duplicate first (RFC 2883), then the block that grew last, then the others by how
    /// recently they grew (RFC 2018 section 4).
    pub(crate) fn sack_blocks(&self, duplicate: Option<SeqRange>, most: usize) -> SackBlocks {
        let mut sack: SackBlocks = duplicate.into_iter().collect();
        let mut last = u64::MAX;
        while sack.len() < most {
            // A block's stamp can equal another's only if one arrival touched both, which joins them.
            let next = self.out_of_order.reports().filter(|(stamp, _)| *stamp < last).max_by_key(|(stamp, _)| *stamp);
            let Some((stamp, range)) = next else { break };
            last = stamp;
            sack.push(range);
        }
        sack.truncate(most);
        sack
    }
}

impl OutOfOrder {
    /// The ranges to report, each with its stamp: the blocks, and a FIN as the end of the last, or by itself.
    fn reports(&self) -> impl Iterator<Item = (u64, SeqRange)> + '_ {
        let ends = |fin: &Fin| self.blocks.back().is_some_and(|block| block.range.end == fin.seq);
        let (ending, alone) = match self.fin {
            Some(fin) if ends(&fin) => (Some(fin), None),
            fin => (None, fin),
        };
        let blocks = self.blocks.iter().map(move |block| match ending {
            Some(fin) if block.range.end == fin.seq => {
                (block.stamp.max(fin.stamp), SeqRange::new(block.range.start, fin.seq + 1))
            }
            _ => (block.stamp, block.range),
        });
        blocks.chain(alone.map(|fin| (fin.stamp, SeqRange::new(fin.seq, fin.seq + 1))))
    }

    fn insert(&mut self, mut seq: Seq, mut data: Bytes) -> Inserted {
        self.stamp += 1;
        let mut result = Inserted { duplicate: 0, duplicate_range: None, refused: false };
        let mut index = self.blocks.partition_point(|block| block.range.end.lt(seq));
        while !data.is_empty() {
            let end = seq + data.len() as u32;
            // The gap before the block at `index`, as far as the data reaches into it.
            let gap_end = self.blocks.get(index).map_or(end, |block| block.range.start.min(end));
            let before = gap_end.saturating_since(seq);
            if before > 0 {
                let piece = data.split_to(before as usize);
                if !self.fill(&mut index, seq, piece) {
                    result.refused = true;
                    return result;
                }
                seq = gap_end;
                continue;
            }
            // The part that the block at `index` has already.
            let Some(block) = self.blocks.get_mut(index) else { break };
            block.stamp = self.stamp;
            let covered = block.range.end.min(end).saturating_since(seq);
            if covered > 0 {
                result.duplicate += covered;
                result.duplicate_range.get_or_insert(SeqRange::new(seq, seq + covered));
                drop(data.split_to(covered as usize));
                seq += covered;
            }
            if !data.is_empty() && block.range.end.le(seq) {
                // The rest follows behind this block: `fill` will append it there.
                let next = self.blocks.get(index + 1).map_or(end, |next| next.range.start.min(end));
                let more = next.saturating_since(seq);
                let piece = data.split_to(more as usize);
                self.append(index, piece);
                seq = next;
                self.join_with_next(index);
            }
        }
        result
    }

    /// Puts a piece that touches nothing inside a block into the gap before the block at `index`.
    fn fill(&mut self, index: &mut usize, seq: Seq, piece: Bytes) -> bool {
        let range = SeqRange::new(seq, seq + piece.len() as u32);
        if *index > 0 && self.blocks[*index - 1].range.end == seq {
            *index -= 1;
            self.append(*index, piece);
        } else if let Some(block) = self.blocks.get_mut(*index)
            && block.range.end == seq
        {
            self.append(*index, piece);
        } else {
            if self.blocks.len() >= MAX_BLOCKS {
                return false;
            }
            self.len += piece.len();
            let block = Block { range, stamp: self.stamp, pieces: VecDeque::from([piece]) };
            self.blocks.insert(*index, block);
        }
        self.join_with_next(*index);
        true
    }

    fn append(&mut self, index: usize, piece: Bytes) {
        let block = &mut self.blocks[index];
        block.stamp = self.stamp;
        block.range.end += piece.len() as u32;
        self.len += piece.len();
        push_coalescing(&mut block.pieces, piece);
    }

    fn join_with_next(&mut self, index: usize) {
        let touches = self.blocks.get(index + 1).is_some_and(|next| next.range.start == self.blocks[index].range.end);
        if touches && let Some(next) = self.blocks.remove(index + 1) {
            let block = &mut self.blocks[index];
            block.range.end = next.range.end;
            block.stamp = block.stamp.max(next.stamp);
            // Only where the two meet can there be small pieces beside each other.
            let mut pieces = next.pieces.into_iter();
            if let Some(first) = pieces.next() {
                push_coalescing(&mut block.pieces, first);
            }
            block.pieces.extend(pieces);
        }
    }

    /// Takes the first block if it begins at or before `rcv_nxt`.
    fn pop_reached(&mut self, rcv_nxt: Seq) -> Option<Block> {
        let front = self.blocks.front().filter(|block| block.range.start.le(rcv_nxt))?;
        self.len -= front.pieces.iter().map(Bytes::len).sum::<usize>();
        self.blocks.pop_front()
    }
}

/// Appends `piece`; a small one is copied to the end of the one before it.
pub(crate) fn push_coalescing(pieces: &mut VecDeque<Bytes>, piece: Bytes) {
    let rest = match pieces.back_mut() {
        Some(last) => coalesce(last, piece),
        None => Some(piece),
    };
    pieces.extend(rest);
}

/// Joins `piece` to `last` if it is small; returns it if not.
fn coalesce(last: &mut Bytes, piece: Bytes) -> Option<Bytes> {
    if piece.len() >= COALESCE_BELOW || last.len() + piece.len() > COALESCED_SIZE {
        return Some(piece);
    }
    let mut joined = match core::mem::take(last).try_into_mut() {
        Ok(owned) => owned,
        Err(shared) => {
            let mut copy = BytesMut::with_capacity(COALESCED_SIZE);
            copy.extend_from_slice(&shared);
            copy
        }
    };
    joined.extend_from_slice(&piece);
    *last = joined.freeze();
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn bytes(seq: u32, len: u32) -> Bytes {
        (seq..seq + len).map(|n| n as u8).collect::<Vec<_>>().into()
    }

    fn range(start: u32, end: u32) -> SeqRange {
        SeqRange::new(Seq::new(start), Seq::new(end))
    }

    fn insert(buffer: &mut ReceiveBuffer, start: u32, end: u32) -> Inserted {
        buffer.insert(Seq::new(start), bytes(start, end - start))
    }

    /// RFC 2018 section 4: the first block holds the segment that triggered the ACK, the others follow by recency.
    #[test]
    fn rfc2018_4_the_most_recent_block_is_first() {
        let mut buffer = ReceiveBuffer::default();
        insert(&mut buffer, 100, 200);
        insert(&mut buffer, 300, 400);
        insert(&mut buffer, 500, 600);
        assert_eq!(buffer.sack_blocks(None, 4).as_slice(), [range(500, 600), range(300, 400), range(100, 200)]);
        insert(&mut buffer, 200, 250);
        assert_eq!(buffer.sack_blocks(None, 3).as_slice(), [range(100, 250), range(500, 600), range(300, 400)]);
        insert(&mut buffer, 400, 500);
        assert_eq!(buffer.sack_blocks(None, 3).as_slice(), [range(300, 600), range(100, 250)]);
    }

    /// RFC 2883 section 4: the duplicate is the first block, whatever else is reported.
    #[test]
    fn rfc2883_4_the_duplicate_is_first() {
        let mut buffer = ReceiveBuffer::default();
        insert(&mut buffer, 100, 200);
        let inserted = insert(&mut buffer, 150, 250);
        assert_eq!((inserted.duplicate, inserted.duplicate_range), (50, Some(range(150, 200))));
        assert_eq!(buffer.block_with(range(150, 200)), Some(range(100, 250)));
        let sack = buffer.sack_blocks(inserted.duplicate_range, 3);
        assert_eq!(sack.as_slice(), [range(150, 200), range(100, 250)]);
    }

    #[test]
    fn single_bytes_do_not_multiply_the_bookkeeping() {
        let mut buffer = ReceiveBuffer::default();
        for n in 0..10_000 {
            buffer.push_in_order(bytes(n, 1));
        }
        assert_eq!(buffer.readable_len(), 10_000);
        assert!(buffer.behind.len() < 5, "{}", buffer.behind.len());
    }

    #[test]
    fn single_bytes_that_close_gaps_do_not_multiply_the_bookkeeping() {
        let mut buffer = ReceiveBuffer::default();
        for start in (0..40_000).step_by(2000) {
            for n in (start + 1..start + 2000).step_by(2).chain((start + 2..=start + 2000).step_by(2)) {
                insert(&mut buffer, n, n + 1);
            }
        }
        assert_eq!((buffer.held(), buffer.out_of_order.blocks.len()), (40_000, 1));
        // Twice as many as coalescing leaves at least.
        assert!(buffer.out_of_order.blocks[0].pieces.len() <= 2 * 40_000 / (COALESCED_SIZE - COALESCE_BELOW));
    }

    #[test]
    fn read_data_take_no_room() {
        let mut buffer = ReceiveBuffer::default();
        buffer.push_in_order(bytes(0, 1000));
        buffer.push_in_order(bytes(1000, 1000));
        insert(&mut buffer, 3000, 4000);
        buffer.push_in_order(bytes(2000, 1000));
        assert_eq!(buffer.advance(Seq::new(3000)), Seq::new(4000));
        let read: Vec<u8> = core::iter::from_fn(|| buffer.read()).flatten().collect();
        assert_eq!(read, bytes(0, 4000));
        assert!(buffer.behind.is_absent() && buffer.out_of_order.is_absent());
    }

    #[test]
    fn blocks_are_bounded() {
        let mut buffer = ReceiveBuffer::default();
        for n in 0..MAX_BLOCKS as u32 {
            assert!(!insert(&mut buffer, n * 2 + 1, n * 2 + 2).refused);
        }
        let beyond = MAX_BLOCKS as u32 * 2 + 1;
        assert!(insert(&mut buffer, beyond, beyond + 1).refused);
        assert!(!insert(&mut buffer, 2, 3).refused, "what closes a gap is always welcome");
    }

    proptest! {
        /// Whatever the order of arrival, the reader gets the stream, and the bookkeeping agrees with a bitmap.
        #[test]
        fn reassembly_agrees_with_a_bitmap(pieces in proptest::collection::vec((0_u32..400, 1_u32..60), 1..80)) {
            let base = u32::MAX - 150;
            let mut buffer = ReceiveBuffer::default();
            let mut present = [false; 460];
            let mut rcv_nxt = Seq::new(base);
            let mut read = Vec::new();
            for (start, len) in pieces {
                let end = start + len;
                let known = (rcv_nxt - Seq::new(base)).min(end).max(start);
                let data = bytes(known, end - known);
                let expected_duplicate = (known..end).filter(|&n| present[n as usize]).count();
                (known..end).for_each(|n| present[n as usize] = true);
                if known == rcv_nxt - Seq::new(base) && !data.is_empty() {
                    rcv_nxt += data.len() as u32;
                    buffer.push_in_order(data);
                    rcv_nxt = buffer.advance(rcv_nxt);
                } else if !data.is_empty() {
                    let inserted = buffer.insert(Seq::new(base) + known, data);
                    prop_assert_eq!(inserted.duplicate as usize, expected_duplicate);
                }
                let in_order = present.iter().take_while(|&&p| p).count() as u32;
                prop_assert_eq!(rcv_nxt - Seq::new(base), in_order);
                prop_assert_eq!(buffer.held() + read.len(), present.iter().filter(|&&p| p).count());
                for block in buffer.sack_blocks(None, 4).iter() {
                    let (from, to) = (block.start - Seq::new(base), block.end - Seq::new(base));
                    prop_assert!((from..to).all(|n| present[n as usize]));
                    prop_assert!(!present[from as usize - 1] && !present[to as usize]);
                }
                while let Some(chunk) = buffer.read() { read.extend_from_slice(&chunk); }
            }
            prop_assert!(read.iter().enumerate().all(|(n, &byte)| byte == n as u8));
        }
    }
}
