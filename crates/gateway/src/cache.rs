//! Copies of segments that were forwarded to a mobile host and are not acknowledged by it yet.

use std::collections::VecDeque;
use std::ops::Range;

use holdover_base::Instant;
use holdover_filter::tcp_mut;
use holdover_wire::{Packet, Segment, Seq};

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
    /// Inserts a copy, unless the cached segments cover it.
    ///
    /// Existing copies stay: they are resent in the order of their numbers, and a mobile host that has received a retransmission drops what
    /// follows with older timestamps (PAWS, RFC 7323 section 5).
    pub(crate) fn insert(&mut self, now: Instant, packet: &Packet) {
        let Some(segment) = packet.tcp() else { return };
        let (seq, end) = (segment.seq, segment.seq + segment.seq_len());
        let touching = self.touching(seq, end);
        if self.covers(touching.clone(), seq, end) {
            for cached in self.segments.range_mut(touching) {
                cached.repeated = true;
                if seq.le(cached.seq) && cached.end.le(end) {
                    (cached.sent_at, cached.is_due) = (now, false);
                }
            }
            return;
        }
        let mut repeated = false;
        let mut resent = 0;
        let at = self.segments.partition_point(|cached| cached.seq.lt(seq));
        while let Some(covered) = self.segments.get(at).filter(|cached| cached.end.le(end)) {
            (repeated, resent) = (true, resent.max(covered.resent));
            self.bytes -= covered.packet.wire_len();
            self.segments.remove(at);
        }
        self.bytes += packet.wire_len();
        self.segments
            .insert(at, Cached { seq, end, packet: packet.clone(), sent_at: now, resent, repeated, is_due: false });
    }

    /// Whether the cached segments have every number from `seq` to `end`.
    pub(crate) fn has(&self, seq: Seq, end: Seq) -> bool {
        self.covers(self.touching(seq, end), seq, end)
    }

    /// The segments with a number from `seq` to `end`.
    fn touching(&self, seq: Seq, end: Seq) -> Range<usize> {
        let from = self.segments.partition_point(|cached| cached.end.le(seq));
        let until = self.segments.partition_point(|cached| cached.seq.lt(end)).max(from);
        from..until
    }

    /// Whether the segments in `range` cover every number from `seq` to `end`.
    fn covers(&self, range: Range<usize>, seq: Seq, end: Seq) -> bool {
        let mut next = seq;
        for cached in self.segments.range(range) {
            if cached.seq.gt(next) {
                return false;
            }
            next = if cached.end.gt(next) { cached.end } else { next };
        }
        next.ge(end)
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

    /// Handles an ACK of the mobile host: removes acknowledged segments, and renews the timestamps of the others.
    pub(crate) fn handle_ack(&mut self, segment: &Segment) {
        self.acknowledge(segment.ack);
        if let Some(timestamps) = segment.options.timestamps {
            self.renew(timestamps.ecr);
        }
    }

    /// The timestamp that the mobile host echoes is its TS.Recent (RFC 7323 section 4.3), and older segments are not accepted: copies
    /// with an older timestamp get that one.
    pub(crate) fn renew(&mut self, recent: u32) {
        for cached in &mut self.segments {
            if let Some(segment) = tcp_mut(&mut cached.packet)
                && let Some(timestamps) = &mut segment.options.timestamps
                && Seq::new(timestamps.val).lt(Seq::new(recent))
            {
                timestamps.val = recent;
            }
        }
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

    /// The number of segments.
    pub(crate) fn len(&self) -> usize {
        self.segments.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.segments.is_empty()
    }

    /// The number of segments that begin at `seq` or after it.
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
    use holdover_wire::{TcpOptions, Timestamps};
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
    fn a_copy_is_kept_when_its_data_are_sent_again() {
        let stamped = |seq, len, val| {
            let mut packet = packet(seq, len);
            tcp_mut(&mut packet).unwrap().options.timestamps = Some(Timestamps { val, ecr: 0 });
            packet
        };
        let mut cache = Cache::default();
        cache.insert(Instant::ZERO, &stamped(100, 50, 1));
        cache.insert(Instant::ZERO, &stamped(150, 50, 2));
        // As a single segment, too.
        for (seq, len) in [(100, 50), (100, 100)] {
            cache.insert(Instant::from_secs(1), &stamped(seq, len, 9));
            let first = cache.first_mut().unwrap();
            assert_eq!((first.end, first.sent_at), (Seq::new(150), Instant::from_secs(1)));
            assert!(core::mem::take(&mut first.repeated));
            assert_eq!(first.packet.tcp().unwrap().options.timestamps.unwrap().val, 1);
        }
        assert_eq!(ranges(&cache), [(100, 150), (150, 200)]);
        // The mobile host has received a retransmission from elsewhere: it would drop older timestamps.
        let timestamps = Some(Timestamps { val: 0, ecr: 5 });
        let options = TcpOptions { timestamps, ..TcpOptions::default() };
        cache.handle_ack(&Segment { ack: Seq::new(100), options, ..Segment::default() });
        cache.insert(Instant::ZERO, &stamped(200, 50, 7));
        let stamps: Vec<u32> =
            cache.iter_mut().map(|cached| cached.packet.tcp().unwrap().options.timestamps.unwrap().val).collect();
        assert_eq!(stamps, [5, 5, 7]);
        cache.segments.pop_back();
        // A segment that covers more than the cached ones replaces them.
        cache.insert(Instant::ZERO, &stamped(150, 51, 9));
        assert_eq!(ranges(&cache), [(100, 150), (150, 201)]);
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
