//! Undo of a spurious timeout or recovery: Eifel detection by timestamps (RFC 3522), by DSACK (RFC 3708) and by F-RTO
//! (RFC 5682), and the response (RFC 4015), with Linux's conditions.

use holdover_base::Instant;

use super::Connection;
use super::ack::AckReport;
use crate::recovery::RecoveryState;
use crate::state::State;

impl Connection {
    /// Whether an original segment and not our retransmission caused the ACK: it echoes a timestamp from before the
    /// first retransmission.
    fn is_of_original(&self, report: &AckReport) -> bool {
        let Some(stamp) = self.recovery.episode.retransmit_stamp else {
            // Nothing was retransmitted yet: the segments were only late. Without SACK the stamp is cleared at the
            // recovery point, and proves nothing then.
            let forgotten = !self.sack && self.snd.una.ge(self.recovery.high_seq);
            return !forgotten && self.state != State::SynSent;
        };
        report.echoed.is_some_and(|echoed| (echoed.wrapping_sub(self.timestamp_clock(stamp)) as i32) < 0)
    }

    /// Whether a reduction can be undone and was shown to be unnecessary.
    fn may_undo(&self, report: &AckReport) -> bool {
        self.config.recovery.undo
            && self.recovery.episode.undo_marker.is_some()
            && (self.recovery.episode.undo_retransmissions == Some(0) || self.is_of_original(report))
    }

    /// RFC 4015 section 3: restores the window and ssthresh.
    fn undo_reduction(&mut self, now: Instant, unmark_lost: bool) {
        if unmark_lost {
            self.queue.unmark_lost();
        }
        let episode = self.recovery.episode.to_mut();
        if episode.prior_ssthresh > 0 {
            let cwnd = self.congestion.undo_target(&self.config.congestion, episode.prior_cwnd);
            self.congestion.set_cwnd(&self.config.congestion, cwnd);
            if episode.prior_ssthresh > self.congestion.ssthresh() {
                self.congestion.set_ssthresh(episode.prior_ssthresh);
            }
        }
        episode.undo_marker = None;
        episode.marked_below = None;
        self.recovery.rack.advanced = true;
        self.counters.undos += 1;
        self.report_undo_to_model(now);
    }

    /// The recovery point is acknowledged. Returns whether the state has to stay for a while: without SACK, duplicate ACKs of
    /// retransmissions that were not needed could otherwise begin another recovery (RFC 6582 section 6.1).
    pub(super) fn try_undo_recovery(&mut self, now: Instant, report: &AckReport) -> bool {
        if self.may_undo(report) {
            self.undo_reduction(now, false);
        }
        if self.must_not_reopen() {
            return true;
        }
        self.end_loss_window();
        self.set_recovery_state(RecoveryState::Open);
        false
    }

    fn must_not_reopen(&mut self) -> bool {
        if self.is_sack_based() || self.snd.una != self.recovery.high_seq || !self.config.recovery.bar_after_timeout {
            return false;
        }
        if !self.any_retransmission_out() {
            self.forget_retransmit_stamp();
        }
        true
    }

    /// Leaving the loss state undoes nothing and reduces nothing: slow start continues towards ssthresh.
    fn end_loss_window(&mut self) {
        if self.recovery.state == RecoveryState::Loss {
            self.recovery.episode.to_mut().undo_marker = None;
            self.recovery.rack.recovery_ended();
        }
    }

    /// Undoes a spurious timeout (Linux `tcp_try_undo_loss`); `by_frto`: F-RTO has detected it.
    pub(super) fn try_undo_loss(&mut self, now: Instant, report: &AckReport, by_frto: bool) -> bool {
        if !(by_frto && self.config.recovery.undo || self.may_undo(report)) {
            return false;
        }
        self.undo_reduction(now, true);
        self.recovery.retransmits = 0;
        if self.must_not_reopen() {
            return true;
        }
        if by_frto || self.sack {
            self.set_recovery_state(RecoveryState::Open);
        }
        true
    }

    /// A partial ACK in recovery that an original caused: reordering, not loss. Returns whether nothing more should be marked
    /// lost now (Linux `tcp_try_undo_partial`).
    pub(super) fn try_undo_partial(&mut self, now: Instant, report: &AckReport) -> bool {
        let undoable = self.config.recovery.undo && self.recovery.episode.undo_marker.is_some();
        if !undoable || !self.is_of_original(report) {
            return false;
        }
        // Without SACK duplicate ACKs do not show which segments have arrived: it may have been the last (Linux
        // `tcp_highest_sack_seq`).
        let highest = if self.queue.dup_acked() > 0 { Some(self.snd.nxt) } else { self.queue.highest_sacked() };
        if let Some(highest) = highest
            && report.prior_una.lt(highest)
        {
            self.note_reordering(report.prior_una, highest);
        }
        // While retransmissions are outstanding, new data is clocked out, and nothing more is marked or retransmitted.
        if self.queue.retransmitted() > 0 {
            return true;
        }
        self.undo_reduction(now, true);
        self.try_to_open();
        false
    }

    /// DSACKs have shown every retransmission to be unnecessary.
    pub(super) fn try_undo_by_dsack(&mut self, now: Instant) -> bool {
        let proven = self.config.recovery.undo
            && self.recovery.episode.undo_marker.is_some()
            && self.recovery.episode.undo_retransmissions == Some(0);
        if proven {
            self.undo_reduction(now, false);
        }
        proven
    }
}
