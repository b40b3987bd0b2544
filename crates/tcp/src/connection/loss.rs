//! Loss detection and recovery: states and transitions (RFC 5681, RFC 6582, RFC 6675, RFC 5682), for every algorithm in
//! [`LossDetection`]. The order of the checks is that of Linux's `tcp_fastretrans_alert`; the other algorithms are
//! special cases of it.

use holdover_base::Instant;
use holdover_wire::Seq;

use super::Connection;
use super::ack::AckReport;
use super::fields::Pending;
use crate::config::{LossDetection, Reduction};
use crate::counters::Reason;
use crate::recovery::{Episode, Rack, RecoveryState};
use crate::timers::Timer;

impl Connection {
    /// The algorithm in use.
    pub(super) fn loss_detection(&self) -> LossDetection {
        if self.sack { self.config.recovery.with_sack } else { self.config.recovery.without_sack }
    }

    /// Whether SACK shows which segments have left the network; otherwise duplicate ACKs do.
    pub(super) fn is_sack_based(&self) -> bool {
        matches!(self.loss_detection(), LossDetection::Sack | LossDetection::Fack | LossDetection::Rack)
    }

    /// Whether duplicate ACKs count and make room as in 4.3BSD's `tcp_input`, whether or not they are barred after a timeout.
    pub(super) fn counts_as_4_3bsd(&self) -> bool {
        matches!(self.loss_detection(), LossDetection::Tahoe | LossDetection::Reno)
    }

    /// An ACK that is a duplicate, carries new SACK blocks, or arrives outside [`RecoveryState::Open`]. Returns whether
    /// the reordering timer was armed in place of the retransmission timer.
    pub(super) fn alert(&mut self, now: Instant, report: &mut AckReport) -> bool {
        self.count_duplicate(report);
        if self.recovery.state == RecoveryState::Open {
            self.forget_retransmit_stamp();
        } else if self.recovery.state == RecoveryState::Cwr {
            // RFC 3168 section 6.1.2: until something that was sent after the reduction is acknowledged.
            if self.snd.una.gt(self.recovery.high_seq) {
                self.end_reduction(now);
                self.set_recovery_state(RecoveryState::Open);
            }
        } else if self.snd.una.ge(self.recovery.high_seq) && self.recovery.state == RecoveryState::Recovery {
            if !self.is_sack_based() {
                self.queue.reset_dup_acked();
            }
            if self.try_undo_recovery(now, report) {
                return false;
            }
            self.end_reduction(now);
        }
        match self.recovery.state {
            RecoveryState::Recovery => self.alert_in_recovery(now, report),
            RecoveryState::Loss => {
                self.alert_in_loss(now, report);
                let timer_taken = self.identify_losses(now, report);
                if self.recovery.state != RecoveryState::Open && !report.lost_retransmission {
                    return timer_taken;
                }
                // In the loss state `alert_in_loss` counts them.
                if self.recovery.state == RecoveryState::Open {
                    self.count_departed(report);
                }
                self.maybe_enter_recovery(now) || timer_taken
            }
            RecoveryState::Open | RecoveryState::Disorder | RecoveryState::Cwr => {
                self.count_departed(report);
                if self.recovery.state < RecoveryState::Cwr {
                    self.try_undo_by_dsack(now);
                }
                let timer_taken = self.identify_losses(now, report);
                let enters = self.maybe_enter_recovery(now);
                if report.congestion_echoed && !enters {
                    self.enter_cwr();
                }
                timer_taken
            }
        }
    }

    fn count_duplicate(&mut self, report: &mut AckReport) {
        if self.config.recovery.dup_ack_needs_new_sack && self.sack && report.sacked == 0 {
            report.duplicate = false;
        }
        // RFC 6675 section 2: with SACK only an ACK with new SACK blocks counts.
        if report.duplicate && (!self.is_sack_based() || report.sacked > 0) {
            self.recovery.episode.to_mut().dup_acks += 1;
        }
    }

    /// Without SACK: a duplicate ACK means that a segment has left the network, an ACK that advances restarts the
    /// count.
    fn count_departed(&mut self, report: &mut AckReport) {
        if self.is_sack_based() {
            return;
        }
        if report.advanced {
            self.queue.reset_dup_acked();
        }
        self.add_departed(report);
    }

    /// Without SACK: counts one segment that has left the network. More than are outstanding indicate reordering (Linux
    /// `tcp_add_reno_sack`).
    fn add_departed(&mut self, report: &mut AckReport) {
        if self.is_sack_based() || !report.duplicate {
            return;
        }
        if self.queue.add_dup_acked() {
            self.note_reordering_without_sack(self.queue.packets_out());
        } else {
            report.departed = true;
        }
    }

    /// Duplicate ACKs, or original segments that a recovery took for lost, show reordering by up to `segments`: this
    /// many duplicates no longer indicate a loss. A lower value than before, as with a single outstanding segment, does
    /// not predict the next window (Linux accepts it).
    pub(super) fn note_reordering_without_sack(&mut self, segments: u32) {
        if self.config.recovery.undo {
            let segments = segments.min(self.config.recovery.max_reordering);
            self.recovery.reordering = self.recovery.reordering.max(segments);
            self.recovery.reordering_seen = self.recovery.reordering_seen.saturating_add(1);
        }
    }

    fn alert_in_recovery(&mut self, now: Instant, report: &mut AckReport) -> bool {
        if !report.advanced {
            self.add_departed(report);
        } else if self.loss_detection() == LossDetection::Reno {
            self.end_reno_recovery(now);
            return false;
        } else if self.try_undo_partial(now, report) {
            return false;
        }
        if self.try_undo_by_dsack(now) {
            self.try_to_open();
        }
        let timer_taken = self.identify_losses(now, report);
        if self.recovery.state != RecoveryState::Recovery {
            self.maybe_enter_recovery(now);
        }
        timer_taken
    }

    /// 4.3BSD Reno: any ACK of new data ends fast recovery. Data that an earlier timeout took back is retransmitted afterwards, as SND.NXT
    /// returns to its value before the fast retransmit. The rest of a partly acknowledged segment stays outstanding.
    fn end_reno_recovery(&mut self, now: Instant) {
        self.queue.reset_dup_acked();
        self.end_reduction(now);
        let episode = self.recovery.episode.to_mut();
        // Three duplicates have come before any proof that the timeout was spurious (RFC 5682 section 3.1, step 2a).
        episode.frto = false;
        if episode.from_loss && self.queue.lost() > 0 {
            self.set_recovery_state(RecoveryState::Loss);
        } else {
            self.queue.forget_losses();
            self.set_recovery_state(RecoveryState::Open);
        }
    }

    /// In the loss state: was the timeout spurious, is it over (Linux `tcp_process_loss`; F-RTO is RFC 5682 section 3.1)?
    fn alert_in_loss(&mut self, now: Instant, report: &mut AckReport) {
        let recovered = self.snd.una.ge(self.recovery.high_seq);
        if report.advanced && self.try_undo_loss(now, report, false) {
            return;
        }
        if self.recovery.episode.frto {
            // Step 3b: data never retransmitted was acknowledged, so the timeout was spurious.
            if report.original_acked && self.try_undo_loss(now, report, true) {
                return;
            }
            if self.snd.nxt.gt(self.recovery.high_seq) {
                // Step 3a: the new data was delivered, the lost data was not.
                if report.sacked > 0 || report.duplicate {
                    self.recovery.episode.to_mut().frto = false;
                }
            } else if report.advanced && !recovered {
                // Step 2b: try new data before any other retransmission.
                self.recovery.high_seq = self.snd.nxt;
                if self.can_send_new_data() {
                    report.send_new_first = true;
                    return;
                }
                self.recovery.episode.to_mut().frto = false;
            }
        }
        let was_pulled_back = |episode: &mut Episode| core::mem::take(&mut episode.pulled_back);
        if recovered && self.recovery.episode.if_present().is_some_and(was_pulled_back) {
            self.set_recovery_state(RecoveryState::Open);
            return;
        }
        if recovered {
            self.try_undo_recovery(now, report);
            return;
        }
        if self.is_sack_based() {
            return;
        }
        if self.snd.nxt.gt(self.recovery.high_seq) && report.duplicate {
            self.add_departed(report);
        } else if report.advanced {
            self.queue.reset_dup_acked();
        }
    }

    /// Marks the losses that this ACK reveals. Returns whether the reordering timer was armed.
    fn identify_losses(&mut self, now: Instant, report: &mut AckReport) -> bool {
        if self.queue.is_empty() {
            return false;
        }
        let retransmitted = self.queue.retransmitted();
        let timer_taken = match self.loss_detection() {
            LossDetection::Rack => self.rack_mark_lost(now),
            LossDetection::Sack => {
                self.mark_lost_by_sack();
                false
            }
            LossDetection::Fack => {
                self.mark_lost_by_fack();
                false
            }
            LossDetection::Tahoe | LossDetection::Reno | LossDetection::NewReno => {
                self.mark_lost_by_duplicates(report.advanced);
                false
            }
        };
        report.lost_retransmission |= self.queue.retransmitted() < retransmitted;
        timer_taken
    }

    /// RFC 5681 section 3.2 and RFC 6582: the third duplicate, and in recovery each partial ACK, show the first segment lost.
    fn mark_lost_by_duplicates(&mut self, advanced: bool) {
        let threshold = self.recovery.reordering.max(1);
        let bar = self.config.recovery.bar_after_timeout;
        // 4.3BSD counts duplicates in a row, and acts on the third only; Linux counts segments that have left the network.
        let in_a_row = !bar || self.counts_as_4_3bsd();
        let reached =
            if in_a_row { self.recovery.episode.dup_acks == threshold } else { self.queue.dup_acked() >= threshold };
        let state = self.recovery.state;
        let enough = reached && state != RecoveryState::Recovery && !(bar && state == RecoveryState::Loss);
        let partial = state == RecoveryState::Recovery && advanced && self.loss_detection() == LossDetection::NewReno;
        if (enough && !self.is_barred(self.snd.una)) || partial {
            if in_a_row {
                self.queue.mark_lost(0);
            } else {
                self.queue.mark_first_lost();
            }
            self.recovery.episode.to_mut().fresh_loss |= enough;
            if partial && self.config.recovery.reduction == Reduction::Immediate {
                // RFC 6582 section 3.2 step 3: as much as the window allows.
                self.retransmit_head = Some(Reason::LossRecovery);
            }
        }
    }

    /// RFC 6675 section 4, IsLost: DupThresh segments above have been SACKed.
    fn mark_lost_by_sack(&mut self) {
        if self.is_barred(self.snd.una) {
            return;
        }
        let threshold = self.recovery.reordering.max(1) as usize;
        let edge = self.queue.iter().rev().filter(|sent| sent.sacked).nth(threshold - 1).map(|sent| sent.seq);
        // RFC 6675 section 5, (1): three duplicates are enough, even if they SACK less than three segments.
        if edge.is_none()
            && self.recovery.state < RecoveryState::Recovery
            && self.recovery.episode.dup_acks >= threshold as u32
        {
            self.queue.mark_lost(0);
        }
        self.mark_lost_below(edge);
    }

    /// Linux 2.4, FACK: everything more than the threshold below the highest SACK.
    fn mark_lost_by_fack(&mut self) {
        let Some(highest) = self.queue.highest_sacked() else {
            return self.mark_lost_by_sack();
        };
        if self.is_barred(self.snd.una) {
            return;
        }
        let reordering = self.recovery.reordering.max(1) as usize;
        let edge =
            self.queue.iter().rev().skip_while(|sent| sent.end().gt(highest)).nth(reordering - 1).map(|sent| sent.seq);
        self.mark_lost_below(edge);
    }

    /// Marks segments below `edge` that are neither SACKed nor retransmitted, and were not checked before.
    fn mark_lost_below(&mut self, edge: Option<Seq>) {
        let Some(edge) = edge else { return };
        let from = self.recovery.episode.marked_below.unwrap_or(self.snd.una).max(self.snd.una);
        if edge.le(from) {
            return;
        }
        for index in 0..self.queue.packets_out() as usize {
            let sent = self.queue.get(index);
            if sent.seq.ge(edge) {
                break;
            }
            if sent.seq.lt(from) || sent.sacked || sent.lost {
                continue;
            }
            if !sent.is_retransmitted() {
                self.queue.mark_lost(index);
            } else if self.config.recovery.repair_ahead {
                self.queue.mark_original_lost(index);
            }
        }
        self.recovery.episode.to_mut().marked_below = Some(edge);
    }

    /// Begins recovery if a segment is marked lost, unless it was too large a probe of the path MTU; else the state follows the
    /// outstanding data. Returns whether there is something to repair.
    fn maybe_enter_recovery(&mut self, now: Instant) -> bool {
        let fresh = self.recovery.episode.if_present().is_some_and(|episode| core::mem::take(&mut episode.fresh_loss));
        let evident = self.queue.lost() > 0 && !self.is_barred(self.snd.una);
        if self.recovery.state == RecoveryState::Loss && !fresh && !evident {
            return false;
        }
        if !evident {
            self.try_to_open();
            return false;
        }
        if self.steering.mtu_search.is_some() && self.reject_mtu_probe() {
            return true;
        }
        if self.loss_detection() == LossDetection::Tahoe {
            self.enter_loss_without_timeout(now);
        } else {
            self.enter_recovery(now);
        }
        true
    }

    /// Fast retransmit and fast recovery begin (RFC 5681 section 3.2, RFC 6675 section 5).
    pub(super) fn enter_recovery(&mut self, now: Instant) {
        self.counters.recoveries += 1;
        // The clock of undoing starts with this recovery's first retransmission (Linux `tcp_retrans_stamp_cleanup`).
        if !self.any_retransmission_out() {
            self.forget_retransmit_stamp();
        }
        let is_reduced = self.recovery.state == RecoveryState::Cwr;
        let episode = self.recovery.episode.to_mut();
        episode.prior_ssthresh = if is_reduced { 0 } else { self.congestion.ssthresh_for_current(false) };
        episode.begin_undo(self.snd.una, self.queue.retransmitted());
        episode.first_repair = true;
        episode.from_loss = self.recovery.state == RecoveryState::Loss;
        episode.rescued = false;
        episode.pipe = self.queue.packets_out().saturating_sub(self.config.recovery.dup_ack_threshold);
        if is_reduced {
            self.recovery.high_seq = self.snd.nxt;
        } else {
            self.start_reduction();
        }
        self.recovery.state = RecoveryState::Recovery;
        self.snd.timed = None;
        if self.config.recovery.reduction != Reduction::Proportional {
            self.reduce_at_once_if_asked();
            // The first repair is independent of the window (RFC 5681 section 3.2 step 3, RFC 6675 section 5 step 4.3).
            if self.queue.front().is_some_and(|front| front.awaits_retransmission()) {
                self.retransmit_head = Some(Reason::FastRetransmit);
            }
        }
        // Segments that may only be reordered are waited for first (RFC 8985 section 6.3).
        if !self.timers.is_armed(Timer::Reorder) {
            self.arm_retransmit(now, self.rtt.rto());
        }
    }

    pub(super) fn reduce_at_once_if_asked(&mut self) {
        if self.config.recovery.reduction == Reduction::Immediate && self.model.is_none() {
            let ssthresh = self.congestion.ssthresh();
            self.congestion.set_cwnd(&self.config.congestion, ssthresh);
        }
    }

    pub(super) fn start_reduction(&mut self) {
        self.queue_cwr();
        self.recovery.high_seq = self.snd.nxt;
        self.recovery.loss_probe = None;
        self.save_window();
        let episode = self.recovery.episode.to_mut();
        episode.prior_cwnd = self.congestion.cwnd();
        episode.prr.start(self.congestion.cwnd());
        episode.halving_acks = 0;
        self.congestion.clear_credit();
        // Limited transmit sends beyond the window, and does not count (RFC 5681 section 3.2 step 2).
        let flight = self.queue.packets_out().min(self.congestion.cwnd());
        let peer_window = self.peer_window_segments();
        let ssthresh = self.congestion.ssthresh_after_loss(&self.config.congestion, flight, peer_window);
        self.congestion.set_ssthresh(ssthresh);
    }

    /// In recovery the window follows the reduction that was chosen.
    pub(super) fn reduce_window(&mut self, report: &AckReport) {
        let in_flight = self.queue.in_flight();
        let ssthresh = self.congestion.ssthresh();
        let cwnd = match self.config.recovery.reduction {
            Reduction::Immediate => return,
            Reduction::Proportional => {
                let delivered = report.delivered();
                if delivered == 0 {
                    return;
                }
                let progress = report.advanced && self.queue.losses() == report.prior_losses;
                self.recovery.episode.to_mut().prr.window(in_flight, ssthresh, delivered, progress)
            }
            Reduction::RateHalving => {
                let episode = self.recovery.episode.to_mut();
                episode.halving_acks += 1;
                let down = episode.halving_acks.is_multiple_of(2) && self.congestion.cwnd() > ssthresh;
                let cwnd = self.congestion.cwnd() - u32::from(down);
                cwnd.min(in_flight + 1)
            }
        };
        self.congestion.set_cwnd(&self.config.congestion, cwnd);
    }

    /// Ends recovery: the window becomes ssthresh (RFC 5681 section 3.2 step 6).
    pub(super) fn end_reduction(&mut self, now: Instant) {
        self.congestion.set_by_recovery(now);
        let was_marked = self.recovery.state == RecoveryState::Cwr;
        let settles = self.recovery.episode.undo_marker.is_some() || !self.config.recovery.undo || was_marked;
        if settles && self.model.is_none() {
            let ssthresh = self.congestion.ssthresh();
            let cwnd = match self.config.recovery.reduction {
                Reduction::RateHalving => ssthresh.min(self.congestion.cwnd()),
                _ => ssthresh,
            };
            self.congestion.set_cwnd(&self.config.congestion, cwnd);
        }
        if !was_marked {
            self.recovery.rack.recovery_ended();
        }
    }

    /// The state when nothing is presumed lost: open, or disorder while anything is SACKed or retransmitted.
    pub(super) fn try_to_open(&mut self) {
        if !self.any_retransmission_out() {
            self.forget_retransmit_stamp();
        }
        let unsettled = self.queue.sacked() > 0 || self.queue.lost() > 0 || self.any_retransmission_out();
        let state = if unsettled { RecoveryState::Disorder } else { RecoveryState::Open };
        if self.recovery.state != state && self.recovery.state != RecoveryState::Cwr {
            self.recovery.high_seq = self.snd.nxt;
            self.set_recovery_state(state);
        }
    }

    pub(super) fn set_recovery_state(&mut self, state: RecoveryState) {
        self.recovery.state = state;
        if state == RecoveryState::Open
            && let Some(episode) = self.recovery.episode.if_present()
        {
            episode.first_repair = false;
            episode.frto = false;
        }
    }

    /// No retransmission is out any more.
    pub(super) fn forget_retransmit_stamp(&mut self) {
        if let Some(episode) = self.recovery.episode.if_present() {
            episode.retransmit_stamp = None;
        }
    }

    /// Whether the owner bars fast retransmit of `seq`.
    pub(super) fn is_barred(&self, seq: Seq) -> bool {
        self.steering.barred_below.is_some_and(|bar| seq.lt(bar))
    }

    /// Whether a retransmission is outstanding (Linux `tcp_any_retrans_done`).
    pub(super) fn any_retransmission_out(&self) -> bool {
        self.queue.retransmitted() > 0 || self.queue.front().is_some_and(|front| front.was_retransmitted())
    }

    /// The retransmission timer ran out (or is taken to have): everything is lost, the window starts over
    /// (RFC 5681 section 3.1, RFC 6298 section 5; Linux `tcp_enter_loss`).
    pub(super) fn enter_loss(&mut self, now: Instant) {
        let state = self.recovery.state;
        let new_recovery = state < RecoveryState::Recovery;
        self.mark_lost_after_timeout(now);
        // RFC 5681 section 3.1: ssthresh is cut once for a segment, not at each of its retransmissions.
        let first_cut = state <= RecoveryState::Disorder
            || self.snd.una.ge(self.recovery.high_seq)
            || (state == RecoveryState::Loss && self.recovery.retransmits == 0);
        if first_cut || self.config.recovery.cut_on_each_timeout {
            self.save_window();
            let episode = self.recovery.episode.to_mut();
            episode.prior_ssthresh = self.congestion.ssthresh_for_current(state == RecoveryState::Recovery);
            episode.prior_cwnd = self.congestion.cwnd();
            episode.begin_undo(self.snd.una, self.queue.retransmitted());
            let (flight, peer_window) = (self.queue.packets_out(), self.peer_window_segments());
            let ssthresh = self.congestion.ssthresh_after_loss(&self.config.congestion, flight, peer_window);
            self.congestion.set_ssthresh(ssthresh);
        }
        // Duplicates that were put down to reordering, and a timeout after all: too much of it was tolerated (Linux
        // `tcp_enter_loss`).
        let threshold = self.config.recovery.dup_ack_threshold;
        if new_recovery && self.queue.sacked() >= threshold {
            self.recovery.reordering = self.recovery.reordering.min(threshold);
        }
        self.queue_cwr();
        self.congestion.forget_path();
        self.report_timeout_to_model(now);
        self.congestion.set_by_recovery(now);
        self.congestion.clear_credit();
        self.congestion.set_cwnd(&self.config.congestion, self.queue.in_flight() + 1);
        self.recovery.state = RecoveryState::Loss;
        self.recovery.high_seq = self.snd.nxt;
        self.recovery.loss_probe = None;
        self.pending.remove(Pending::NEW_DATA_FIRST);
        self.snd.timed = None;
        let episode = self.recovery.episode.to_mut();
        episode.dup_acks = 0;
        episode.marked_below = None;
        episode.first_repair = false;
        episode.pulled_back = false;
        // RFC 5682 section 3.1 step 1: not when a recovery was under way already.
        episode.frto = self.config.recovery.frto && (new_recovery || self.recovery.retransmits > 0);
    }

    /// The owner declares all outstanding data lost. This lasts until all of it is acknowledged, without F-RTO (RFC
    /// 5682) or undo.
    pub(super) fn enter_presumed_loss(&mut self) {
        if !self.is_sack_based() {
            self.queue.reset_dup_acked();
        }
        self.congestion.clear_credit();
        self.save_window();
        self.recovery.state = RecoveryState::Loss;
        self.recovery.high_seq = self.snd.nxt;
        self.recovery.loss_probe = None;
        self.retransmit_head = None;
        self.pending.remove(Pending::LOSS_PROBE);
        self.pending.remove(Pending::NEW_DATA_FIRST);
        self.snd.timed = None;
        if let Some(episode) = self.recovery.episode.if_present() {
            episode.dup_acks = 0;
            episode.marked_below = None;
            (episode.frto, episode.first_repair, episode.pulled_back) = (false, false, false);
            episode.forget_undo();
        }
    }

    fn mark_lost_after_timeout(&mut self, now: Instant) {
        // RFC 2018 section 8: a SACKed first segment means that the receiver has reneged, and after a timeout it may have.
        if self.config.recovery.timeout_forgets_sacks || self.queue.front().is_some_and(|front| front.sacked) {
            self.queue.forget_sacks();
        }
        if !self.is_sack_based() {
            self.queue.reset_dup_acked();
        }
        let rack = &self.recovery.rack;
        let spare_recent = self.loss_detection() == LossDetection::Rack;
        let recent = |sent_at: Instant| rack.rtt > now.saturating_since(sent_at);
        self.queue.mark_all_lost(|index, sent| spare_recent && index > 0 && recent(sent.sent_at));
    }

    /// Tahoe: duplicate ACKs are taken for a timeout, without its backoff.
    fn enter_loss_without_timeout(&mut self, now: Instant) {
        self.counters.recoveries += 1;
        let dup_acks = self.recovery.episode.dup_acks;
        self.enter_loss(now);
        let episode = self.recovery.episode.to_mut();
        // The count continues: 4.3BSD acts when it is three.
        episode.dup_acks = dup_acks;
        episode.frto = false;
        self.retransmit_head = Some(Reason::FastRetransmit);
        self.arm_retransmit(now, self.rtt.rto());
    }

    /// RFC 5681 section 3.1 and RFC 6298 section 5.7: the SYN had to be sent again.
    pub(super) fn after_lost_syn(&mut self) {
        if self.recovery.retransmits > self.config.congestion.syn_retransmissions_forgiven {
            self.congestion.set_cwnd(&self.config.congestion, 1);
        }
        if self.rtt.srtt().is_none() {
            let initial = self.config.rto.initial.max(holdover_base::Duration::from_secs(3));
            self.rtt.fall_back(initial, &self.config.rto);
        }
    }

    /// Whether `a` was sent before `b` for RACK.
    pub(super) fn sent_before_latest_delivery(&self, index: usize) -> bool {
        let sent = self.queue.get(index);
        let rack = &self.recovery.rack;
        Rack::sent_after(rack.xmit_at, rack.end_seq, sent.sent_at, sent.end())
    }
}
