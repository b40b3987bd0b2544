//! The pacing rate of a connection, and when its pacer lets data go.

use holdover_base::{Duration, Instant};

use super::Connection;
use super::choice::Blocked;
use crate::config::PacingConfig;
use crate::pacing::{MAX_BURST_BYTES, Pacer, burst_segments};
use crate::recovery::RecoveryState;
use crate::timers::Timer;

/// Linux sends at least two segments in a burst (`tcp_min_tso_segs`).
const LEAST_BURST: u32 = 2;
/// A burst waits for another ACK only right after the last one (Linux `tcp_tso_should_defer`), and if that ACK is due as soon.
const MAX_DEFERRAL: Duration = Duration::from_millis(1);
/// A burst of this share of the window does not wait (Linux `tcp_tso_win_divisor`).
const BURST_WINDOW_SHARE: u32 = 3;

/// A burst waits if it may be longer than what the windows have room for.
struct Deferral {
    /// Room in the windows.
    bytes: u32,
    blocked: Blocked,
}

impl Connection {
    /// The pacing rate in bytes per second; `None` if the connection is not paced or no rate is known yet.
    pub fn pacing_rate(&self) -> Option<u64> {
        self.pacer.as_ref().map(|_| self.current_pacing_rate()).filter(|&rate| rate > 0)
    }

    /// How many segments Linux would pass to its device as one packet now, at least `least` of them (`tcp_tso_autosize`).
    pub fn burst_segments(&self, least: u32) -> u32 {
        burst_segments(self.current_pacing_rate(), self.snd.mss, self.rtt.min_rtt(), least)
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

    #[inline(always)]
    pub(super) fn charge_pacer(&mut self, now: Instant, len: usize) {
        if self.pacer.is_some() {
            self.charge_for(now, len as u32);
        }
    }

    #[inline(never)]
    fn charge_for(&mut self, now: Instant, len: u32) {
        let rate = self.current_pacing_rate();
        let burst = self.pacing_burst(rate);
        if let Some(pacer) = &mut self.pacer {
            pacer.on_sent(now, len, rate, burst);
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

    /// Begins a burst of new data, unless it waits for the next ACK to become larger: then why.
    #[inline]
    pub(super) fn begin_burst(&mut self, now: Instant) -> Result<(), Blocked> {
        if !self.config.send.defer_bursts || self.pacer.is_some() || self.snd.burst_left > 0 {
            return Ok(());
        }
        self.begin_next_burst(now)
    }

    fn begin_next_burst(&mut self, now: Instant) -> Result<(), Blocked> {
        let (mss, cwnd) = (self.snd.mss, self.congestion.cwnd());
        let room = cwnd.saturating_sub(self.queue.in_flight());
        let deferral = self.deferral(now, room);
        // The rate permits the least burst in any case, which is all that the usual ACK makes room for.
        let most =
            if room <= LEAST_BURST && deferral.is_none() { LEAST_BURST } else { self.burst_segments(LEAST_BURST) };
        if let Some(Deferral { bytes, blocked }) = deferral
            && bytes < most.saturating_mul(mss)
        {
            return Err(blocked);
        }
        // Two bursts at least make up a window (Linux `tcp_cwnd_test`).
        let burst = room.min((cwnd / 2).max(1)).min(most);
        self.snd.burst_left = u8::try_from(burst).unwrap_or(u8::MAX);
        Ok(())
    }

    /// Why a burst waits, with room for `room` segments in the window, unless that is all that it may have (Linux `tcp_tso_should_defer`).
    fn deferral(&self, now: Instant, room: u32) -> Option<Deferral> {
        let mss = self.snd.mss;
        let queued = u32::try_from(self.unsent.len()).unwrap_or(u32::MAX);
        let is_recent = now.saturating_since(self.snd.last_data_at) <= MAX_DEFERRAL;
        if queued <= mss || self.recovery.state >= RecoveryState::Recovery || !is_recent {
            return None;
        }
        let by_cwnd = room.saturating_mul(mss);
        let by_peer = self.window_edge().saturating_since(self.snd.nxt);
        let bytes = by_cwnd.min(by_peer);
        let window = self.snd.wnd.min(self.congestion.cwnd().saturating_mul(mss));
        if bytes >= window / BURST_WINDOW_SHARE {
            return None;
        }
        let (head, srtt) = (self.queue.front()?, self.rtt.srtt()?);
        let until_ack = (head.sent_at + srtt).saturating_since(now);
        if until_ack > (srtt / 2).min(MAX_DEFERRAL) {
            return None;
        }
        let skb = queued.min(MAX_BURST_BYTES as u32 / mss * mss);
        let blocked = match by_cwnd < by_peer {
            true if by_cwnd <= skb => Blocked::CongestionWindow,
            false if by_peer <= skb => Blocked::PeerWindow,
            // The last data of the application waits for more, unless it ends the stream.
            _ if self.snd.closing => return None,
            _ => Blocked::Nagle,
        };
        Some(Deferral { bytes, blocked })
    }

    /// In bytes per second; 0 while no round trip was measured.
    fn current_pacing_rate(&self) -> u64 {
        if let Some(model) = &self.model {
            return model.path.pacing_rate();
        }
        let pacing = self.config.congestion.pacing.unwrap_or(PacingConfig::LINUX);
        let Some(srtt) = self.rtt.srtt() else { return 0 };
        // Linux `tcp_update_pacing_rate`: leaves room for slow start to double, until half of ssthresh.
        let percent = if self.congestion.cwnd() < self.congestion.ssthresh() / 2 {
            pacing.slow_start_percent
        } else {
            pacing.avoidance_percent
        };
        let window = u64::from(self.congestion.cwnd().max(self.queue.packets_out()));
        let bytes = (window * u64::from(self.snd.mss)).saturating_mul(percent.into()) / 100;
        let nanos = srtt.as_nanos().max(1);
        // Divisions of 128 bits are slow, and windows of 18 GB rare.
        let rate = bytes.checked_mul(1_000_000_000).map_or_else(
            || u64::try_from(u128::from(bytes) * 1_000_000_000 / u128::from(nanos)).unwrap_or(u64::MAX),
            |scaled| scaled / nanos,
        );
        rate.max(1)
    }
}
