//! The retransmission queue: one record for each sent segment that is not yet cumulatively acknowledged, in sequence
//! order.
//!
//! The counts follow RFC 6675's pipe in segments: in flight = sent - SACKed - lost + retransmitted.

use std::collections::VecDeque;

use holdover_base::Instant;
use holdover_wire::{Flags, Seq, SeqRange};

use super::sent::Sent;
use crate::departure::{Departure, LostSegment};
use crate::on_demand::{Absent, OnDemand};

/// The retransmission queue and its counts.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct RetransmissionQueue {
    outstanding: OnDemand<Outstanding>,
    marks: OnDemand<Marks>,
    /// Without SACK: segments that have left the network according to duplicate ACKs.
    dup_acked: u32,
}

/// The records, and the counts of their marks: all zero while there are no records.
#[derive(Clone, PartialEq, Debug)]
struct Outstanding {
    records: VecDeque<Sent>,
    sacked: u32,
    lost: u32,
    retransmitted: u32,
    /// No record before this sequence number awaits retransmission.
    hint: Option<Seq>,
    highest_sacked: Option<Seq>,
    /// The SACK block that grew last, up to the last record that it marked; empty if none. While any record is SACKed, all that it covers
    /// are.
    growing: SeqRange,
}

const NOWHERE: SeqRange = SeqRange::new(Seq::new(0), Seq::new(0));

impl Absent for Outstanding {
    const ABSENT: &'static Self = &Self {
        records: VecDeque::new(),
        sacked: 0,
        lost: 0,
        retransmitted: 0,
        hint: None,
        highest_sacked: None,
        growing: NOWHERE,
    };
}

/// Counts of newly marked segments.
#[derive(Clone, PartialEq, Debug)]
struct Marks {
    /// How often a segment or its latest copy was (Linux `tp->lost`).
    losses: u64,
    /// Those not yet taken, where delivery rates are measured.
    newly_lost: Vec<LostSegment>,
}

impl Absent for Marks {
    const ABSENT: &'static Self = &Self { losses: 0, newly_lost: Vec::new() };
}

impl RetransmissionQueue {
    pub(crate) fn is_empty(&self) -> bool {
        self.outstanding.records.is_empty()
    }

    /// Segments sent and not yet acknowledged cumulatively.
    pub(crate) fn packets_out(&self) -> u32 {
        self.outstanding.records.len() as u32
    }

    /// Segments that the peer holds out of order, SACKed or inferred from duplicate ACKs.
    pub(crate) fn sacked(&self) -> u32 {
        self.outstanding.sacked + self.dup_acked
    }

    /// Whether no segment is SACKed, presumed lost or outstanding again: all are in flight, once.
    #[inline]
    pub(crate) fn is_unmarked(&self) -> bool {
        let Outstanding { sacked, lost, retransmitted, .. } = &*self.outstanding;
        sacked | lost | retransmitted | self.dup_acked == 0
    }

    pub(crate) fn lost(&self) -> u32 {
        self.outstanding.lost
    }

    pub(crate) fn retransmitted(&self) -> u32 {
        self.outstanding.retransmitted
    }

    /// Loss marks so far, of originals and of copies.
    pub(crate) fn losses(&self) -> u64 {
        self.marks.losses
    }

    /// RFC 6675's pipe, in segments.
    pub(crate) fn in_flight(&self) -> u32 {
        (self.packets_out() + self.outstanding.retransmitted).saturating_sub(self.sacked() + self.outstanding.lost)
    }

    pub(crate) fn front(&self) -> Option<&Sent> {
        self.outstanding.records.front()
    }

    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = &Sent> {
        self.outstanding.records.iter()
    }

    pub(crate) fn get(&self, index: usize) -> &Sent {
        &self.outstanding.records[index]
    }

    /// The end of the highest SACKed segment.
    pub(crate) fn highest_sacked(&self) -> Option<Seq> {
        self.outstanding.highest_sacked
    }

    #[inline]
    pub(crate) fn push(&mut self, sent: Sent) {
        self.outstanding.to_mut().records.push_back(sent);
    }

    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Removes the first record if `ack` covers all of it.
    #[inline]
    pub(crate) fn pop_acked(&mut self, ack: Seq) -> Option<Sent> {
        let outstanding = self.outstanding.if_present()?;
        let front = outstanding.records.front().filter(|front| front.end().le(ack))?;
        outstanding.sacked -= u32::from(front.sacked);
        outstanding.lost -= u32::from(front.lost);
        outstanding.retransmitted -= u32::from(front.is_retransmitted());
        let sent = outstanding.records.pop_front()?;
        if outstanding.records.is_empty() {
            self.outstanding.clear();
        }
        Some(sent)
    }

    /// Removes the records that `ack` covers from a queue without marks, and calls `each` for every one.
    #[inline(always)]
    pub(crate) fn take_acked_unmarked(&mut self, ack: Seq, mut each: impl FnMut(&Sent)) {
        let Some(outstanding) = self.outstanding.if_present() else { return };
        while let Some(front) = outstanding.records.front().filter(|front| front.end().le(ack)) {
            each(front);
            drop(outstanding.records.pop_front());
        }
        if outstanding.records.is_empty() {
            self.outstanding.clear();
        }
    }

    /// `ack` falls inside the first record: the bytes before it need not be sent again. Returns how many they were.
    pub(crate) fn trim_front(&mut self, ack: Seq) -> u32 {
        let Some(outstanding) = self.outstanding.if_present() else { return 0 };
        let Some(front) = outstanding.records.front_mut() else { return 0 };
        let covered = ack.saturating_since(front.seq);
        if covered == 0 {
            return 0;
        }
        outstanding.growing = NOWHERE;
        let data = (covered - u32::from(front.is_syn())).min(front.payload.len() as u32);
        front.remove_flags(Flags::SYN);
        drop(front.payload.split_to(data as usize));
        front.seq = ack;
        covered
    }

    /// Without SACK: a duplicate ACK means that one more segment has left the network. Returns whether the count
    /// exceeds the outstanding segments: then segments were reordered or duplicated (Linux
    /// `tcp_check_reno_reordering`).
    pub(crate) fn add_dup_acked(&mut self) -> bool {
        self.dup_acked += 1;
        self.limit_dup_acked()
    }

    /// Without SACK: an ACK removed `acked` segments; duplicate ACKs had counted all but the first. Returns whether the
    /// count exceeded the outstanding segments.
    pub(crate) fn remove_dup_acked(&mut self, acked: u32) -> bool {
        self.dup_acked = self.dup_acked.saturating_sub(acked.saturating_sub(1));
        self.limit_dup_acked()
    }

    /// At least the first segment is still missing, and lost ones count once (Linux `tcp_limit_reno_sacked`).
    fn limit_dup_acked(&mut self) -> bool {
        let most = self.packets_out().saturating_sub(self.outstanding.lost.max(1));
        let exceeded = self.dup_acked > most;
        self.dup_acked = self.dup_acked.min(most);
        exceeded
    }

    pub(crate) fn reset_dup_acked(&mut self) {
        self.dup_acked = 0;
    }

    pub(crate) fn dup_acked(&self) -> u32 {
        self.dup_acked
    }

    /// The index of the first record that ends after `seq`.
    fn index_of(&self, seq: Seq) -> usize {
        self.outstanding.records.partition_point(|sent| sent.end().le(seq))
    }

    /// Marks the records that `block` covers as SACKed, and calls `on_new` for each newly marked record with its
    /// previous state.
    pub(crate) fn mark_sacked(&mut self, block: SeqRange, mut on_new: impl FnMut(&Sent)) {
        // A block that grows is looked at from its former end on.
        let Outstanding { growing, sacked, .. } = *self.outstanding;
        let has_grown = sacked > 0 && growing.contains(block.start);
        let mut index = self.index_of(if has_grown { growing.end } else { block.start });
        let Some(outstanding) = self.outstanding.if_present() else { return };
        while let Some(sent) = outstanding.records.get_mut(index) {
            if sent.end().gt(block.end) {
                break;
            }
            if sent.seq.ge(block.start) && !sent.sacked {
                on_new(sent);
                sent.sacked = true;
                outstanding.sacked += 1;
                outstanding.lost -= u32::from(sent.lost);
                outstanding.retransmitted -= u32::from(sent.is_retransmitted());
                sent.lost = false;
                sent.end_flight_of_copy();
                let end = sent.end();
                outstanding.highest_sacked = Some(outstanding.highest_sacked.map_or(end, |highest| highest.max(end)));
                outstanding.growing = SeqRange::new(block.start, end);
            }
            index += 1;
        }
    }

    /// Marks the record at `index` lost: its latest copy is no longer in flight.
    pub(crate) fn mark_lost(&mut self, index: usize) {
        let outstanding = self.outstanding.to_mut();
        let sent = &mut outstanding.records[index];
        if sent.sacked {
            return;
        }
        let is_new_loss = sent.is_retransmitted() || !sent.lost;
        if sent.is_retransmitted() {
            sent.end_flight_of_copy();
            outstanding.retransmitted -= 1;
        }
        if !sent.lost {
            sent.lost = true;
            outstanding.lost += 1;
        }
        if is_new_loss {
            self.count_loss(index);
        }
        self.after_mark(index);
    }

    /// Without SACK: marks the first record lost, unless it is already. An outstanding retransmission stays in flight:
    /// neither a partial ACK nor a duplicate reveals its fate (Linux `tcp_newreno_mark_lost`).
    pub(crate) fn mark_first_lost(&mut self) {
        let Some(outstanding) = self.outstanding.if_present() else { return };
        let Some(first) = outstanding.records.front_mut() else { return };
        if first.lost || first.sacked {
            return;
        }
        first.lost = true;
        outstanding.lost += 1;
        self.count_loss(0);
        self.after_mark(0);
    }

    fn after_mark(&mut self, index: usize) {
        let outstanding = self.outstanding.to_mut();
        let seq = outstanding.records[index].seq;
        outstanding.hint = Some(outstanding.hint.map_or(seq, |hint| hint.min(seq)));
        // Without SACK, lost segments cannot be among those that left the network.
        self.limit_dup_acked();
    }

    /// Marks the record at `index` lost, but for the copy that was sent again before that was known.
    pub(crate) fn mark_original_lost(&mut self, index: usize) {
        let outstanding = self.outstanding.to_mut();
        let sent = &mut outstanding.records[index];
        if !sent.lost && !sent.sacked {
            sent.lost = true;
            outstanding.lost += 1;
            self.count_loss(index);
        }
    }

    fn count_loss(&mut self, index: usize) {
        let marks = self.marks.to_mut();
        marks.losses += 1;
        let sent = &self.outstanding.records[index];
        if let Some(departure) = &sent.departure {
            let departure = (**departure).clone();
            marks.newly_lost.push(LostSegment { seq: sent.seq, end: sent.end(), lost: marks.losses, departure });
        }
    }

    /// Segments marked lost since the last call, if delivery rates are measured.
    pub(crate) fn take_newly_lost(&mut self) -> Vec<LostSegment> {
        self.marks.if_present().map(|marks| core::mem::take(&mut marks.newly_lost)).unwrap_or_default()
    }

    /// Marks every record lost that is not SACKed and that `keep` does not spare.
    pub(crate) fn mark_all_lost(&mut self, mut keep: impl FnMut(usize, &Sent) -> bool) {
        for index in 0..self.outstanding.records.len() {
            if !keep(index, &self.outstanding.records[index]) {
                self.mark_lost(index);
            }
        }
    }

    /// Clears all loss marks (an undo); copies already retransmitted stay in flight.
    pub(crate) fn unmark_lost(&mut self) {
        let Some(outstanding) = self.outstanding.if_present() else { return };
        for sent in &mut outstanding.records {
            sent.lost = false;
        }
        outstanding.lost = 0;
        outstanding.hint = None;
    }

    /// Clears the marks of losses and of their repair: all outstanding data counts as in flight, once.
    pub(crate) fn forget_losses(&mut self) {
        let Some(outstanding) = self.outstanding.if_present() else { return };
        for sent in &mut outstanding.records {
            sent.lost = false;
            sent.end_flight_of_copy();
        }
        (outstanding.lost, outstanding.retransmitted, outstanding.hint) = (0, 0, None);
    }

    /// The peer has reneged: no SACK counts any more (RFC 2018 section 8).
    pub(crate) fn forget_sacks(&mut self) {
        let Some(outstanding) = self.outstanding.if_present() else { return };
        for sent in &mut outstanding.records {
            sent.sacked = false;
        }
        outstanding.sacked = 0;
        outstanding.highest_sacked = None;
        outstanding.growing = NOWHERE;
    }

    /// The index of the first record that awaits retransmission.
    #[inline]
    pub(crate) fn next_lost(&mut self) -> Option<usize> {
        if self.outstanding.lost == 0 { None } else { self.find_next_lost() }
    }

    fn find_next_lost(&mut self) -> Option<usize> {
        let outstanding = self.outstanding.if_present()?;
        let hint = outstanding.hint?;
        let start = outstanding.records.partition_point(|sent| sent.seq.lt(hint));
        let found = outstanding.records.range(start..).position(Sent::awaits_retransmission);
        let found = found.map(|offset| start + offset);
        outstanding.hint = found.map(|index| outstanding.records[index].seq);
        found
    }

    /// The index of the first record, from `index` on, of which a copy is presumed in flight.
    #[inline]
    pub(crate) fn next_in_flight(&self, index: usize) -> Option<usize> {
        let is_in_flight = |sent: &Sent| !sent.sacked && (!sent.lost || sent.is_retransmitted());
        self.outstanding.records.range(index..).position(is_in_flight).map(|offset| index + offset)
    }

    /// The first segment below the highest SACK that is neither SACKed, lost, nor retransmitted (RFC 6675 section 4,
    /// NextSeg rule 3; everything up to HighRxt is one of these).
    pub(crate) fn first_hole(&self) -> Option<usize> {
        let highest = self.outstanding.highest_sacked?;
        let is_hole = |sent: &Sent| !sent.sacked && !sent.lost && !sent.is_retransmitted();
        self.outstanding.records.iter().take_while(|sent| sent.seq.lt(highest)).position(is_hole)
    }

    /// The last segment that was not SACKed, unless it was sent again already (RFC 6675 section 4, NextSeg rule 4).
    pub(crate) fn last_missing(&self) -> Option<usize> {
        let index = self.outstanding.records.iter().rposition(|sent| !sent.sacked)?;
        (!self.outstanding.records[index].is_retransmitted()).then_some(index)
    }

    /// Cuts the record at `index` so that its first part holds at most `most` bytes of data.
    pub(crate) fn split(&mut self, index: usize, most: u32) {
        let outstanding = self.outstanding.to_mut();
        let sent = &mut outstanding.records[index];
        if sent.payload.len() as u32 <= most {
            return;
        }
        let mut rest = sent.clone();
        rest.remove_flags(Flags::SYN);
        rest.seq = sent.seq + most + u32::from(sent.is_syn());
        rest.payload = sent.payload.split_off(most as usize);
        sent.remove_flags(Flags::FIN | Flags::PSH);
        outstanding.sacked += u32::from(rest.sacked);
        outstanding.lost += u32::from(rest.lost);
        outstanding.retransmitted += u32::from(rest.is_retransmitted());
        outstanding.growing = NOWHERE;
        outstanding.records.insert(index + 1, rest);
    }

    /// Cuts the record with `seq` amid its data in two there.
    pub(crate) fn split_at(&mut self, seq: Seq) {
        let index = self.index_of(seq);
        if let Some(sent) = self.outstanding.records.get(index).filter(|sent| sent.seq.lt(seq)) {
            let before = (seq - sent.seq) - u32::from(sent.is_syn());
            self.split(index, before);
        }
    }

    /// Puts the data of the record at `index` before that of the next, if both have the same fate so far.
    pub(crate) fn join_with_next(&mut self, index: usize) {
        let fate = |sent: &Sent| (sent.sacked, sent.lost, sent.is_retransmitted());
        let (Some(first), Some(next)) = (self.outstanding.records.get(index), self.outstanding.records.get(index + 1))
        else {
            return;
        };
        if first.flags().intersects(Flags::SYN | Flags::FIN) || next.is_syn() || fate(first) != fate(next) {
            return;
        }
        let outstanding = self.outstanding.to_mut();
        let Some(first) = outstanding.records.remove(index) else { return };
        let next = &mut outstanding.records[index];
        outstanding.sacked -= u32::from(first.sacked);
        outstanding.lost -= u32::from(first.lost);
        outstanding.retransmitted -= u32::from(first.is_retransmitted());
        next.seq = first.seq;
        next.take_over_copies(&first);
        next.payload = [first.payload, core::mem::take(&mut next.payload)].concat().into();
    }

    /// Marks every record lost that has a byte in `range`, copies included. Returns whether there was one.
    pub(crate) fn mark_lost_in(&mut self, range: SeqRange) -> bool {
        let start = self.index_of(range.start);
        let mut any = false;
        for index in start..self.outstanding.records.len() {
            let sent = &self.outstanding.records[index];
            if sent.seq.ge(range.end) {
                break;
            }
            any |= !sent.sacked;
            self.mark_lost(index);
        }
        any
    }

    /// The record at `index` is retransmitted now. `counted`: whether the copy counts as in flight.
    pub(crate) fn note_retransmission(
        &mut self,
        index: usize,
        now: Instant,
        counted: bool,
        departure: Option<Box<Departure>>,
    ) {
        let outstanding = self.outstanding.to_mut();
        let sent = &mut outstanding.records[index];
        sent.sent_at = now;
        sent.departure = departure;
        let counts = counted && !sent.is_retransmitted() && !sent.sacked;
        sent.note_copy(counts);
        outstanding.retransmitted += u32::from(counts);
    }

    /// Panics unless the counts agree with the records.
    pub(crate) fn assert_consistent(&self) {
        let count = |f: fn(&Sent) -> bool| self.outstanding.records.iter().filter(|sent| f(sent)).count() as u32;
        assert_eq!(self.outstanding.sacked, count(|sent| sent.sacked), "sacked");
        assert_eq!(self.outstanding.lost, count(|sent| sent.lost), "lost");
        assert_eq!(self.outstanding.retransmitted, count(Sent::is_retransmitted), "retransmitted");
        assert!(
            self.outstanding.records.iter().zip(self.outstanding.records.iter().skip(1)).all(|(a, b)| a.end() == b.seq),
            "contiguous"
        );
        let hint_holds =
            |hint: Seq| !self.outstanding.records.iter().any(|s| s.seq.lt(hint) && s.awaits_retransmission());
        assert!(
            self.outstanding.hint.map_or(self.outstanding.lost <= self.outstanding.retransmitted, hint_holds),
            "hint"
        );
        let Outstanding { growing, sacked, .. } = *self.outstanding;
        let is_known = sacked > 0 && !growing.is_empty();
        let is_in_it = |sent: &&Sent| is_known && growing.covers(SeqRange::new(sent.seq, sent.end()));
        assert!(self.iter().filter(is_in_it).all(|sent| sent.sacked), "growing");
    }
}

#[cfg(test)]
mod tests;
