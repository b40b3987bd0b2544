//! HyStart as in Linux's CUBIC: two ways to leave slow start before it loses segments.

use holdover_base::{Duration, Instant};
use holdover_wire::Seq;

use super::AckSample;

/// HyStart needs windows of this many segments (Linux `hystart_low_window`).
const LOW_WINDOW: u32 = 16;
/// The delay test takes the least of this many samples (Linux HYSTART_MIN_SAMPLES).
const SAMPLES: u8 = 8;
/// ACKs closer than this belong to one train (Linux `hystart_ack_delta_us`).
const ACK_DELTA: Duration = Duration::from_millis(2);
/// The growth of the delay that counts is an eighth of the least one, within these bounds.
const DELAY_MIN: Duration = Duration::from_millis(4);
const DELAY_MAX: Duration = Duration::from_millis(16);

/// One round of HyStart.
#[derive(Clone, Debug)]
pub(super) struct HyStart {
    end: Seq,
    started: bool,
    start: Instant,
    last_ack: Instant,
    least: Duration,
    samples: u8,
}

impl HyStart {
    pub(super) const fn new() -> Self {
        Self {
            end: Seq::new(0),
            started: false,
            start: Instant::ZERO,
            last_ack: Instant::ZERO,
            least: Duration::MAX,
            samples: 0,
        }
    }

    /// Whether an ACK in slow start shows that the path is full: a train of ACKs as long as half the least RTT (as all of it if the
    /// sender is paced), or a delay that has grown by an eighth.
    pub(super) fn on_ack(&mut self, delay_min: Duration, cwnd: u32, rtt: Duration, sample: &AckSample) -> bool {
        if !self.started || sample.snd_una.gt(self.end) {
            *self = Self { started: true, end: sample.snd_nxt, start: sample.now, last_ack: sample.now, ..Self::new() };
        }
        if cwnd < LOW_WINDOW {
            return false;
        }
        let mut found = false;
        if sample.now.saturating_since(self.last_ack) <= ACK_DELTA {
            self.last_ack = sample.now;
            // Linux adds up to 1 ms for ACK aggregation by the sender's own segmentation offload.
            let train = delay_min + Duration::from_millis(1);
            found = sample.now.saturating_since(self.start) > if sample.is_paced { train } else { train / 2 };
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
