//! Round trips between the place of the capture and both ends of a connection.
//!
//! Data and the ACK that covers it, a SYN and its answer, and a timestamp and its echo (RFC 7323 section 4.1) each measure the round trip
//! from the place of the capture to the responding end. The minimum is the path's.

use std::collections::VecDeque;

use holdover_base::{Duration, Instant};

use crate::segment::Seen;

/// The round trip from the place of the capture to one end, and the packets that await its response.
#[derive(Clone, Debug)]
pub(crate) struct RoundTrip {
    /// The minimum; `None` before the first sample.
    pub(crate) least: Option<Duration>,
    /// Data awaiting acknowledgment by this end: its end in the stream, and its capture time.
    data: Option<(u64, Instant)>,
    /// Timestamps awaiting an echo by this end, each with its first capture time; oldest first.
    timestamps: VecDeque<(u32, Instant)>,
    /// The SYN awaiting a response by this end.
    syn: Option<Instant>,
    /// The latest timestamp sent to this end.
    newest: Option<u32>,
}

impl RoundTrip {
    /// The limit of timestamps awaiting an echo.
    const MOST: usize = 32;

    pub(crate) const fn new() -> Self {
        Self { least: None, data: None, timestamps: VecDeque::new(), syn: None, newest: None }
    }

    /// Handles a segment to this end. `data_end` is the stream position of the end of its data, if it has new data.
    pub(crate) fn question(&mut self, seen: &Seen, data_end: Option<u64>, repeated: bool) {
        if seen.is_syn() {
            // Karn's rule: a response to two SYNs is ambiguous.
            self.syn = if self.syn.is_none() && !repeated { Some(seen.at) } else { None };
        }
        if repeated {
            self.data = None;
        } else if let (Some(end), None) = (data_end, self.data) {
            self.data = Some((end, seen.at));
        }
        let Some(timestamps) = seen.timestamps else { return };
        let is_newer = self.newest.is_none_or(|newest| after(timestamps.val, newest));
        if is_newer {
            self.newest = Some(timestamps.val);
            self.remember(timestamps.val, seen.at);
        }
    }

    /// Handles a segment from this end; `acked` is the stream position that it acknowledges. Returns a sample.
    pub(crate) fn answer(&mut self, seen: &Seen, acked: Option<u64>) -> Option<Duration> {
        let mut sample = None;
        let mut note = |since: Instant| {
            let taken = seen.at.saturating_since(since);
            sample = Some(sample.map_or(taken, |least: Duration| least.min(taken)));
        };
        if acked.is_some()
            && let Some(sent) = self.syn.take()
        {
            note(sent);
        }
        if let (Some((end, sent)), Some(acked)) = (self.data, acked)
            && acked >= end
        {
            note(sent);
            self.data = None;
        }
        if let Some(echo) = seen.timestamps.map(|timestamps| timestamps.ecr) {
            while let Some((value, sent)) = self.timestamps.pop_front_if(|(value, _)| !after(*value, echo)) {
                if value == echo {
                    note(sent);
                }
            }
        }
        if let Some(sample) = sample {
            self.least = Some(self.least.map_or(sample, |least| least.min(sample)));
        }
        sample
    }

    fn remember(&mut self, value: u32, at: Instant) {
        // A few samples per round trip suffice.
        let apart = self.least.map_or(Duration::ZERO, |least| least / (Self::MOST as u64 / 2));
        if self.timestamps.back().is_some_and(|(_, last)| at.saturating_since(*last) < apart) {
            return;
        }
        if self.timestamps.len() == Self::MOST {
            self.timestamps.pop_front();
        }
        self.timestamps.push_back((value, at));
    }

    /// Whether `echo` is older than the latest timestamp sent to this end.
    pub(crate) fn is_stale(&self, echo: u32) -> bool {
        self.newest.is_some_and(|newest| after(newest, echo))
    }
}

/// Whether timestamp `a` is later than `b` (RFC 7323 section 5.2).
fn after(a: u32, b: u32) -> bool {
    a != b && a.wrapping_sub(b) < 1 << 31
}
