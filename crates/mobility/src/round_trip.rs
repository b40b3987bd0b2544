//! The round trip of a connection, measured from its packets.
//!
//! A host that only receives has two sources: the handshake, and the timestamps that the peer echoes on its data (RFC
//! 7323). A host that sends also has its own data and their ACKs. `freeze` uses this; flows of `wake` use
//! `crates/flow/c/round_trip.h`, which also supports header prediction.

use holdover_base::{Duration, Instant};
use holdover_wire::{Segment, Seq};

/// The round trip of a connection, queues included.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct RoundTrip {
    smoothed: Option<Duration>,
    /// A timestamp of the host, and when it was first sent.
    stamped: Option<(u32, Instant)>,
    /// The end of data that the host has sent once, and when.
    timed: Option<(Seq, Instant)>,
    /// SND.NXT of the host, as far as seen.
    nxt: Option<Seq>,
    heard_at: Option<Instant>,
}

impl RoundTrip {
    /// The smoothed round trip (RFC 6298's SRTT); `None` before the first sample.
    pub(crate) const fn smoothed(&self) -> Option<Duration> {
        self.smoothed
    }

    /// Drops the pending measurement: the link was down, or the window closed, in between.
    pub(crate) fn forget_pending(&mut self) {
        (self.stamped, self.timed) = (None, None);
    }

    /// Notes an outgoing segment. It is timed unless another one is.
    pub(crate) fn note_outgoing(&mut self, now: Instant, segment: &Segment) {
        if let Some(ts) = segment.options.timestamps {
            self.stamped.get_or_insert((ts.val, now));
        }
        if segment.seq_len() == 0 {
            return;
        }
        let end = segment.seq + segment.seq_len();
        match self.nxt {
            // Karn's rule: a retransmission measures nothing.
            Some(nxt) if segment.seq.lt(nxt) => self.timed = None,
            _ => {
                self.timed.get_or_insert((end, now));
            }
        }
        self.nxt = Some(self.nxt.map_or(end, |nxt| nxt.max(end)));
    }

    /// Whether an ACK ends the measurement.
    fn is_ended_by(&self, ack: Seq) -> bool {
        self.timed.is_some_and(|(end, _)| ack.ge(end))
    }

    /// Notes an incoming segment.
    pub(crate) fn note_incoming(&mut self, now: Instant, segment: &Segment) {
        if let Some((_, sent_at)) = self.timed.filter(|_| self.is_ended_by(segment.ack)) {
            self.timed = None;
            self.sample(now.saturating_since(sent_at));
        }
        if let (Some((stamp, sent_at)), Some(ts)) = (self.stamped, segment.options.timestamps) {
            let ahead = ts.ecr.wrapping_sub(stamp) as i32;
            if ahead >= 0 {
                self.stamped = None;
            }
            // Without a packet in between, the peer may just have had nothing to send.
            let flows = self.heard_at.is_some_and(|at| at >= sent_at);
            if ahead == 0 && flows && !segment.payload.is_empty() {
                self.sample(now.saturating_since(sent_at));
            }
        }
        self.heard_at = Some(now);
    }

    /// RFC 6298 section 2.3, the gain of SRTT.
    fn sample(&mut self, sample: Duration) {
        self.smoothed = Some(self.smoothed.map_or(sample, |smoothed| (smoothed * 7 + sample) / 8));
    }
}
