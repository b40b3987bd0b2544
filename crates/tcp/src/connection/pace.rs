//! The pacing rate of a connection, and when its pacer lets data go.

use holdover_base::Instant;

use super::Connection;
use crate::pacing::{Pacer, burst_segments};
use crate::timers::Timer;

/// Linux sends at least two segments in a burst (`tcp_min_tso_segs`).
const LEAST_BURST: u32 = 2;

impl Connection {
    /// The pacing rate in bytes per second; `None` if the connection is not paced or no rate is known yet.
    pub fn pacing_rate(&self) -> Option<u64> {
        self.pacer.as_ref().map(|_| self.current_pacing_rate()).filter(|&rate| rate > 0)
    }

    /// Begins to pace, if configured.
    pub(super) fn start_pacing(&mut self, now: Instant) {
        let congestion = &self.config.congestion;
        if congestion.pacing.is_some() || congestion.algorithm.is_paced() {
            self.pacer = Some(Box::new(Pacer::new(now)));
        }
    }

    /// Whether the pacer permits sending.
    #[inline]
    pub(super) fn pacer_is_open(&self, now: Instant) -> bool {
        self.pacer.as_ref().is_none_or(|pacer| pacer.is_open(now))
    }

    #[inline]
    pub(super) fn charge_pacer(&mut self, now: Instant, len: usize) {
        if self.pacer.is_some() {
            let rate = self.current_pacing_rate();
            let burst = self.pacing_burst(rate);
            if let Some(pacer) = &mut self.pacer {
                pacer.on_sent(now, len as u32, rate, burst);
            }
        }
    }

    /// Sending stops: the burst is over; if the pacer ended it, arms its timer.
    pub(super) fn settle_pacing(&mut self, now: Instant, is_blocked_by_pacer: bool) {
        let Some(pacer) = &mut self.pacer else { return };
        pacer.end_burst();
        let wait = pacer.next_at().saturating_since(now);
        if is_blocked_by_pacer {
            self.timers.arm(now, Timer::Pacing, wait);
        } else {
            self.timers.disarm(Timer::Pacing);
        }
    }

    fn pacing_burst(&self, rate: u64) -> u32 {
        let (mss, min_rtt) = (self.snd.mss, self.rtt.min_rtt());
        match &self.model {
            Some(model) => model.path.burst(mss, min_rtt),
            None => burst_segments(rate, mss, min_rtt, LEAST_BURST),
        }
    }

    /// In bytes per second; 0 while no round trip was measured.
    fn current_pacing_rate(&self) -> u64 {
        if let Some(model) = &self.model {
            return model.path.pacing_rate();
        }
        let congestion = &self.config.congestion;
        let (Some(pacing), Some(srtt)) = (&congestion.pacing, self.rtt.srtt()) else { return 0 };
        // Linux `tcp_update_pacing_rate`: leaves room for slow start to double, until half of ssthresh.
        let percent = if self.congestion.cwnd() < self.congestion.ssthresh() / 2 {
            pacing.slow_start_percent
        } else {
            pacing.avoidance_percent
        };
        let window = u64::from(self.congestion.cwnd().max(self.queue.packets_out()));
        let bytes = u128::from(window * u64::from(self.snd.mss)) * u128::from(percent) / 100;
        let rate = bytes * 1_000_000_000 / u128::from(srtt.as_nanos().max(1));
        u64::try_from(rate).unwrap_or(u64::MAX).max(1)
    }
}
