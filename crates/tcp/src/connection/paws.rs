//! Timestamps of arriving segments: protection against wrapped sequence numbers (PAWS), and TS.Recent (RFC 7323 sections 4 and 5).

use holdover_base::{Duration, Instant};
use holdover_wire::{Flags, Segment};

use super::Connection;
use super::input::{Step, is_ack_without_data};
use crate::config::Paws;
use crate::counters::Disposition;

/// RFC 7323 section 5.5: a connection idle for longer than this does not trust TS.Recent any more.
const PAWS_IDLE: Duration = Duration::from_secs(24 * 86_400);

impl Connection {
    /// RFC 7323 section 5.3, R1: before anything else, protection against wrapped sequence numbers.
    pub(super) fn check_paws(&mut self, now: Instant, segment: &Segment) -> Step {
        let (Some(state), Some(ts)) = (&self.timestamps, segment.options.timestamps) else { return Ok(()) };
        let age = state.recent.wrapping_sub(ts.val) as i32;
        let is_idle = now.saturating_since(state.recent_at) > PAWS_IDLE;
        if age <= 0 || segment.flags.contains(Flags::RST) || is_idle || self.takes_overtaken(segment, age) {
            return Ok(());
        }
        if self.is_retransmitted_syn(segment) {
            return Err(self.repeat_handshake(segment));
        }
        let is_old_ack = is_ack_without_data(segment) && segment.seq.lt(self.rcv.nxt);
        if !(is_old_ack && self.config.paws == Paws::LinuxOldAcks) {
            self.answer_unacceptable(now, segment);
        }
        Err(Disposition::PawsRejected)
    }

    /// Whether a segment whose timestamp is `age` ticks old was only overtaken in the network, by [`Paws`].
    fn takes_overtaken(&self, segment: &Segment, age: i32) -> bool {
        if self.config.paws == Paws::Rfc7323 {
            return false;
        }
        // Linux TCP_PAWS_WINDOW.
        age <= 1
            || is_ack_without_data(segment)
                && (segment.seq, segment.ack) == (self.rcv.nxt, self.snd.una)
                && !self.would_update_window(segment)
                && i64::from(age) <= self.replay_window_ticks()
    }

    /// How far a timestamp may lie back within a retransmission timeout (Linux `tcp_tsval_replay`): the peer's tick is taken for our own
    /// where ours is below 1 ms, otherwise for no less than 1/1.2 ms, before Linux 6.8 1/1.024 ms.
    fn replay_window_ticks(&self) -> i64 {
        let rto = self.rto();
        match self.config.timestamps {
            Some(tick) if tick < Duration::from_millis(1) => (rto.as_nanos() / tick.as_nanos().max(1)) as i64,
            _ if self.config.paws == Paws::LinuxOldAcks => (rto.as_millis() * 1_200 / 1_000) as i64,
            _ => (rto.as_millis() * 1_024 / 1_000) as i64,
        }
    }

    /// TS.Recent (RFC 7323 section 4.3): only from a segment that begins at or before the last ACK sent.
    /// Returns whether the timestamp is newer than any before.
    #[inline]
    pub(super) fn note_timestamp(&mut self, now: Instant, segment: &Segment) -> bool {
        let Some(ts) = segment.options.timestamps else { return false };
        // A segment with an impossible ACK is forged, and its timestamp may be as well (Linux `tcp_ack`).
        if !segment.flags.contains(Flags::ACK) || segment.ack.gt(self.snd_max()) {
            return false;
        }
        let last_ack_sent = self.rcv.last_ack_sent;
        if let Some(state) = &mut self.timestamps
            && segment.seq.le(last_ack_sent)
            && (ts.val.wrapping_sub(state.recent) as i32 >= 0 || now.saturating_since(state.recent_at) > PAWS_IDLE)
        {
            let is_newer = state.recent != ts.val;
            state.recent = ts.val;
            state.recent_at = now;
            return is_newer;
        }
        false
    }
}
