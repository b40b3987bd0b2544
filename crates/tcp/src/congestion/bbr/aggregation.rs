//! ACK aggregation: networks that hold ACKs back and deliver them in bunches (Wi-Fi, cable, offload at receivers) leave a sender
//! whose window is the bandwidth-delay product with nothing to send in between. BBR adds the largest burst of ACKs seen.

use holdover_base::{Duration, Instant};

use super::bdp;
use crate::bandwidth::segments_in;

/// The maximum covers the current and the previous period of this many rounds.
const PERIOD_ROUNDS: u32 = 5;
/// The addition is at most the path's delivery in this time.
const MOST: Duration = Duration::from_millis(100);
/// An epoch does not count further than this, in segments.
const EPOCH_CAP: u64 = 1 << 20;

/// How much more than expected ACKs have delivered at once.
#[derive(Clone, PartialEq, Debug, Default)]
pub(in crate::congestion) struct Aggregation {
    /// The most in the current period and in the one before, in segments.
    extra: [u64; 2],
    rounds: u32,
    /// The current epoch: as long as ACKs are ahead of the rate.
    epoch_at: Instant,
    epoch_acked: u64,
}

impl Aggregation {
    pub(in crate::congestion) fn begin_epoch(&mut self, now: Instant) {
        (self.epoch_at, self.epoch_acked) = (now, 0);
    }

    pub(in crate::congestion) fn on_ack(&mut self, now: Instant, bw: u64, acked: u32, cwnd: u32, is_round_start: bool) {
        if is_round_start {
            self.rounds += 1;
            if self.rounds >= PERIOD_ROUNDS {
                self.rounds = 0;
                self.extra = [0, self.extra[0]];
            }
        }
        let mut expected = segments_in(bw, now.saturating_since(self.epoch_at));
        if self.epoch_acked <= expected || self.epoch_acked + u64::from(acked) >= EPOCH_CAP {
            self.begin_epoch(now);
            expected = 0;
        }
        self.epoch_acked += u64::from(acked);
        let extra = self.epoch_acked.saturating_sub(expected).min(u64::from(cwnd));
        self.extra[0] = self.extra[0].max(extra);
    }

    /// The increase of the window, in segments.
    pub(in crate::congestion) fn allowance(&self, bw: u64) -> u64 {
        self.extra[0].max(self.extra[1]).min(bdp(bw, MOST, super::UNIT))
    }
}
