//! Where segments begin and end in a sequence space, in bounded memory: runs of segments of one size.

use holdover_wire::Seq;

/// The newest runs of segments that passed, oldest first. A bulk transfer is one run.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct SegmentRuns {
    pub(super) runs: [Run; SegmentRuns::MOST],
    pub(super) len: u8,
}

/// Segments one after the other, all of `size` bytes, but for the last, which may be shorter.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Run {
    pub(super) start: Seq,
    pub(super) end: Seq,
    /// Bytes.
    pub(super) size: u32,
}

impl SegmentRuns {
    /// So many runs are remembered.
    pub const MOST: usize = 8;

    /// Bytes from `start` to `end` pass, in segments of `size` bytes. Returns whether their end is beyond all before.
    pub(super) fn note(&mut self, start: Seq, end: Seq, size: u32) -> bool {
        let size = size.max(1);
        let Some(last) = self.last_run() else {
            self.push(Run { start, end, size });
            return true;
        };
        if end.le(last.end) {
            return false;
        }
        let start = start.max(last.end);
        let continues = start == last.end && size == last.size && (last.end - last.start).is_multiple_of(last.size);
        if continues {
            self.runs[usize::from(self.len) - 1].end = end;
        } else {
            self.push(Run { start, end, size });
        }
        true
    }

    /// Where the last byte ended.
    pub(super) fn end(&self) -> Option<Seq> {
        self.last_run().map(|run| run.end)
    }

    /// Whether the last segment, of `size` bytes, ended at `end`.
    pub(super) fn ends_with(&self, end: Seq, size: u32) -> bool {
        self.last_run().is_some_and(|run| run.end == end && run.size == size)
    }

    /// Bytes up to `end` pass, in segments that nobody looks at.
    pub(super) fn go_on(&mut self, end: Seq) {
        if let Some(run) = self.runs[..usize::from(self.len)].last_mut() {
            run.end = run.end.max(end);
        }
    }

    /// Where the last `segments` whole segments before `acked` begin; `None` if that is no longer known. What was lost between
    /// two runs counts as a segment.
    pub(super) fn before_last(&self, acked: Seq, segments: u32) -> Option<Seq> {
        let mut wanted = segments;
        let mut later: Option<Seq> = None;
        for run in self.runs[..usize::from(self.len)].iter().rev() {
            if run.start.ge(acked) {
                continue;
            }
            if later.is_some_and(|start| start != run.end) {
                wanted -= 1;
                if wanted == 0 {
                    return Some(run.end);
                }
            }
            let whole = if acked.ge(run.end) {
                (run.end - run.start).div_ceil(run.size)
            } else {
                (acked - run.start) / run.size
            };
            if whole >= wanted {
                return Some(run.start + (whole - wanted) * run.size);
            }
            wanted -= whole;
            later = Some(run.start);
        }
        None
    }

    fn last_run(&self) -> Option<Run> {
        self.runs[..usize::from(self.len)].last().copied()
    }

    fn push(&mut self, run: Run) {
        if usize::from(self.len) == Self::MOST {
            self.runs.copy_within(1.., 0);
            self.len -= 1;
        }
        self.runs[usize::from(self.len)] = run;
        self.len += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs(segments: &[(u32, u32)]) -> SegmentRuns {
        let mut runs = SegmentRuns::default();
        for &(start, len) in segments {
            runs.note(Seq::new(start), Seq::new(start) + len, len);
        }
        runs
    }

    fn before(runs: &SegmentRuns, acked: u32, segments: u32) -> Option<u32> {
        runs.before_last(Seq::new(acked), segments).map(Seq::value)
    }

    #[test]
    fn a_bulk_transfer_is_one_run() {
        let near_the_end = u32::MAX - 4_999;
        let segments: Vec<(u32, u32)> = (0..10_000).map(|n: u32| (near_the_end.wrapping_add(n * 1000), 1000)).collect();
        let runs = runs(&segments);
        assert_eq!(runs.len, 1);
        let acked = near_the_end.wrapping_add(8_000);
        assert_eq!(before(&runs, acked, 4), Some(near_the_end.wrapping_add(4_000)));
        assert_eq!(before(&runs, acked.wrapping_add(999), 4), Some(near_the_end.wrapping_add(4_000)));
    }

    #[test]
    fn short_segments_count_as_whole_ones() {
        let runs = runs(&[(0, 100), (100, 100), (200, 30), (230, 100), (330, 100)]);
        assert_eq!(before(&runs, 430, 2), Some(230));
        assert_eq!(before(&runs, 430, 3), Some(200));
        assert_eq!(before(&runs, 430, 4), Some(100));
        assert_eq!(before(&runs, 430, 5), Some(0));
        assert_eq!(before(&runs, 430, 6), None);
        assert_eq!(before(&runs, 240, 1), Some(200));
        assert_eq!(before(&runs, 230, 1), Some(200));
    }

    #[test]
    fn what_was_lost_between_is_one_segment() {
        let runs = runs(&[(0, 100), (100, 100), (500, 100), (600, 100)]);
        assert_eq!(before(&runs, 700, 2), Some(500));
        assert_eq!(before(&runs, 700, 3), Some(200));
        assert_eq!(before(&runs, 700, 4), Some(100));
    }

    #[test]
    fn repeated_data_is_no_news_and_overlapping_data_is() {
        let mut runs = runs(&[(0, 100), (100, 100)]);
        assert!(!runs.note(Seq::new(100), Seq::new(200), 100));
        assert!(runs.note(Seq::new(150), Seq::new(250), 100));
        assert_eq!(runs.end(), Some(Seq::new(250)));
        assert_eq!(before(&runs, 250, 1), Some(200));
    }

    #[test]
    fn old_runs_are_forgotten() {
        let segments: Vec<(u32, u32)> = (0..40).map(|n: u32| (n * 200, 200 - n)).collect();
        let runs = runs(&segments);
        assert_eq!(usize::from(runs.len), SegmentRuns::MOST);
        assert!(before(&runs, 40 * 200, 4).is_some());
        assert_eq!(before(&runs, 40 * 200, 30), None);
    }
}
