//! Copies of segments that were forwarded to a mobile host and are not acknowledged by it yet.

use std::collections::VecDeque;

use holdover_base::Instant;
use holdover_wire::{Packet, Seq};

/// Segments of one connection in the order of their sequence numbers, none within another. The caller bounds its size
/// by [`Self::bytes`].
#[derive(Clone, Default, Debug)]
pub(crate) struct Cache {
    segments: VecDeque<Cached>,
    bytes: usize,
}

/// A copy of a segment.
#[derive(Clone, Debug)]
pub(crate) struct Cached {
    pub(crate) seq: Seq,
    /// The sequence number after it.
    pub(crate) end: Seq,
    pub(crate) packet: Packet,
    /// The time of its last transmission.
    pub(crate) sent_at: Instant,
    /// The number of retransmissions from here.
    pub(crate) resent: u32,
    /// Whether the fixed host has sent it more than once.
    pub(crate) repeated: bool,
    /// Whether it is due for retransmission from here.
    pub(crate) is_due: bool,
}

impl Cache {
    /// Inserts a copy. It replaces one with the same number, which may be shorter, or have older timestamps.
    pub(crate) fn insert(&mut self, now: Instant, packet: &Packet) {
        let Some(segment) = packet.tcp() else { return };
        let (seq, end) = (segment.seq, segment.seq + segment.seq_len());
        let at = self.segments.iter().rposition(|cached| cached.seq.lt(seq)).map_or(0, |before| before + 1);
        let before = at.checked_sub(1).filter(|&before| self.segments[before].end.ge(end));
        let longer = || self.segments.get(at).is_some_and(|next| next.seq == seq && next.end.gt(end)).then_some(at);
        if let Some(around) = before.or_else(longer) {
            // Within another: a part of a cached segment, resent in smaller pieces.
            self.segments[around].repeated = true;
            return;
        }
        let mut repeated = false;
        let mut resent = 0;
        while let Some(covered) = self.segments.get(at).filter(|cached| cached.end.le(end)) {
            (repeated, resent) = (true, resent.max(covered.resent));
            self.bytes -= covered.packet.wire_len();
            self.segments.remove(at);
        }
        self.bytes += packet.wire_len();
        self.segments
            .insert(at, Cached { seq, end, packet: packet.clone(), sent_at: now, resent, repeated, is_due: false });
    }

    /// Removes segments below `ack`. Returns the last one removed, which may give a round-trip sample.
    pub(crate) fn acknowledge(&mut self, ack: Seq) -> Option<Cached> {
        let mut last = None;
        while let Some(first) = self.segments.front().filter(|first| first.end.le(ack)) {
            self.bytes -= first.packet.wire_len();
            last = self.segments.pop_front();
        }
        last
    }

    /// The segment that contains `seq`.
    pub(crate) fn containing(&mut self, seq: Seq) -> Option<&mut Cached> {
        self.segments.iter_mut().find(|cached| cached.seq.le(seq) && cached.end.gt(seq))
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Cached> {
        self.segments.iter_mut()
    }

    pub(crate) fn first(&self) -> Option<&Cached> {
        self.segments.front()
    }

    pub(crate) fn first_mut(&mut self) -> Option<&mut Cached> {
        self.segments.front_mut()
    }

    /// Takes the first segment out.
    pub(crate) fn pop_first(&mut self) -> Option<Cached> {
        let first = self.segments.pop_front()?;
        self.bytes -= first.packet.wire_len();
        Some(first)
    }

    /// Removes segments whose last transmission was at `until` or before.
    pub(crate) fn forget_sent_until(&mut self, until: Instant) {
        self.segments.retain(|cached| cached.sent_at > until);
        self.bytes = self.segments.iter().map(|cached| cached.packet.wire_len()).sum();
    }

    /// How many segments there are.
    pub(crate) fn len(&self) -> usize {
        self.segments.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.segments.is_empty()
    }

    /// How many segments begin at `seq` or after it.
    pub(crate) fn count_from(&self, seq: Seq) -> usize {
        self.segments.len() - self.segments.partition_point(|cached| cached.seq.lt(seq))
    }

    /// Bytes of all copies, with their headers.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn clear(&mut self) {
        self.segments.clear();
        self.bytes = 0;
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use holdover_wire::Segment;
    use proptest::prelude::*;

    use super::*;

    fn packet(seq: u32, len: usize) -> Packet {
        let segment = Segment { seq: Seq::new(seq), payload: Bytes::from(vec![0; len]), ..Segment::default() };
        Packet::new([10, 0, 0, 1].into(), [10, 0, 0, 2].into(), segment)
    }

    fn ranges(cache: &Cache) -> Vec<(u32, u32)> {
        cache.segments.iter().map(|cached| (cached.seq.value(), cached.end.value())).collect()
    }

    #[test]
    fn pieces_of_a_segment_add_nothing_and_a_longer_one_takes_their_place() {
        let mut cache = Cache::default();
        cache.insert(Instant::ZERO, &packet(100, 50));
        for piece in [100, 120, 140] {
            cache.insert(Instant::ZERO, &packet(piece, 10));
            assert_eq!(ranges(&cache), [(100, 150)]);
            assert!(core::mem::take(&mut cache.segments[0].repeated));
        }
        cache.insert(Instant::ZERO, &packet(150, 20));
        cache.insert(Instant::ZERO, &packet(100, 100));
        assert_eq!(ranges(&cache), [(100, 200)]);
        assert_eq!(cache.bytes(), packet(100, 100).wire_len());
        assert_eq!(cache.acknowledge(Seq::new(199)).map(|cached| cached.end), None);
        assert_eq!(cache.acknowledge(Seq::new(200)).map(|cached| cached.end), Some(Seq::new(200)));
        assert!(cache.is_empty());
    }

    #[test]
    fn segments_are_taken_out_in_order() {
        let mut cache = Cache::default();
        for seq in [150, 100, 200] {
            cache.insert(Instant::ZERO, &packet(seq, 50));
        }
        assert_eq!((cache.len(), cache.first_mut().map(|first| first.seq)), (3, Some(Seq::new(100))));
        assert_eq!([100, 101, 200, 201].map(|seq| cache.count_from(Seq::new(seq))), [3, 2, 1, 0]);
        let order: Vec<u32> = core::iter::from_fn(|| cache.pop_first()).map(|taken| taken.seq.value()).collect();
        assert_eq!(order, [100, 150, 200]);
        assert_eq!((cache.len(), cache.bytes()), (0, 0));
    }

    proptest! {
        #[test]
        fn it_stays_in_order_and_knows_its_size(
            segments in prop::collection::vec((0u32..40, 1usize..8), 1..60), ack in 0u32..50, base in any::<u32>()
        ) {
            let mut cache = Cache::default();
            for &(seq, len) in &segments {
                cache.insert(Instant::ZERO, &packet(base.wrapping_add(seq), len));
            }
            let covers = |at: u32| segments.iter().any(|&(seq, len)| (seq..seq + len as u32).contains(&at));
            let holds = |cache: &Cache, at: u32| {
                let at = Seq::new(base.wrapping_add(at));
                cache.segments.iter().any(|cached| cached.seq.le(at) && cached.end.gt(at))
            };
            for at in 0..50 {
                prop_assert_eq!(covers(at), holds(&cache, at));
            }
            cache.acknowledge(Seq::new(base.wrapping_add(ack)));
            let numbers: Vec<Seq> = cache.segments.iter().map(|cached| cached.seq).collect();
            prop_assert!(numbers.windows(2).all(|pair| pair[0].lt(pair[1])));
            prop_assert!(cache.segments.iter().all(|cached| cached.end.gt(Seq::new(base.wrapping_add(ack)))));
            let bytes: usize = cache.segments.iter().map(|cached| cached.packet.wire_len()).sum();
            prop_assert_eq!(cache.bytes(), bytes);
        }
    }
}
