//! HyStart as in Linux's CUBIC: two ways to leave slow start before it loses segments.

use holdover_base::{Duration, Instant};

use super::AckSample;

/// HyStart needs windows of this many segments (Linux `hystart_low_window`).
pub(super) const LOW_WINDOW: u32 = 16;
/// The delay test takes the least of this many samples (Linux HYSTART_MIN_SAMPLES).
const SAMPLES: u8 = 8;
/// ACKs closer than this belong to one train (Linux `hystart_ack_delta_us`).
const ACK_DELTA: Duration = Duration::from_millis(2);
/// The growth of the delay that counts is an eighth of the least one, within these bounds.
const DELAY_MIN: Duration = Duration::from_millis(4);
const DELAY_MAX: Duration = Duration::from_millis(16);

/// The observations of a round of HyStart; none in windows below [`LOW_WINDOW`].
#[derive(Clone, PartialEq, Debug)]
pub(super) struct HyStart {
    last_ack: Instant,
    least: Duration,
    samples: u8,
}

impl HyStart {
    /// In a round that begins at `start`.
    pub(super) const fn new(start: Instant) -> Self {
        Self { last_ack: start, least: Duration::MAX, samples: 0 }
    }

    /// Whether an ACK in slow start shows that the path is full: a train of ACKs as long as half the least RTT (as all of it if the
    /// sender is paced), or a delay that has grown by an eighth.
    pub(super) fn on_ack(&mut self, start: Instant, delay_min: Duration, rtt: Duration, sample: &AckSample) -> bool {
        let mut found = false;
        if sample.now.saturating_since(self.last_ack) <= ACK_DELTA {
            self.last_ack = sample.now;
            // Linux adds up to 1 ms for ACK aggregation by the sender's own segmentation offload.
            let train = delay_min + Duration::from_millis(1);
            found = sample.now.saturating_since(start) > if sample.is_paced { train } else { train / 2 };
        }
        self.least = self.least.min(rtt);
        if self.samples < SAMPLES {
            self.samples += 1;
        } else {
            found |= self.least > delay_min + (delay_min / 8).clamp(DELAY_MIN, DELAY_MAX);
        }
        found
    }
}
