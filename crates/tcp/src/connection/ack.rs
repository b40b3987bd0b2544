//! The sender's side of an arriving ACK: acknowledged data, and samples of the round trip.

use holdover_base::{Duration, Instant};
use holdover_wire::{Segment, Seq};

use super::fields::{Pending, Timed};
use super::{Connection, Event};
use crate::config::{CwndIncrease, Reduction, WindowUpdate};
use crate::congestion::AckSample;
use crate::counters::Disposition;
use crate::recovery::RecoveryState;
use crate::recovery::sent::Sent;
use crate::timers::Timer;

/// No timestamp that is echoed is believed to be older: 2^31 us, in ms (Linux).
const LONGEST_ECHO: Duration = Duration::from_millis(i32::MAX as u64 / 1000);

/// The information of one ACK, collected by the steps.
#[derive(Debug)]
pub(super) struct AckReport {
    pub(super) prior_una: Seq,
    pub(super) prior_losses: u64,
    pub(super) prior_in_flight: u32,
    /// SND.UNA moved on.
    pub(super) advanced: bool,
    /// A duplicate ACK (RFC 5681 section 2).
    pub(super) duplicate: bool,
    /// Whole segments acknowledged cumulatively, and newly by SACK.
    pub(super) acked: u32,
    pub(super) sacked: u32,
    /// Of the cumulatively acknowledged ones, how many had been SACKed before, or counted by duplicate ACKs.
    pub(super) already_delivered: u32,
    /// Without SACK: this duplicate ACK shows that a segment has left the network.
    pub(super) departed: bool,
    /// Some of them had been retransmitted (Karn).
    pub(super) retransmitted_acked: bool,
    /// A segment below the recovery point that was never retransmitted was (S)ACKed now.
    pub(super) original_acked: bool,
    /// It carries a DSACK.
    pub(super) dsack: bool,
    /// It echoes a mark (RFC 3168), or counts more (RFC 9768).
    pub(super) congestion_echoed: bool,
    /// Bytes that are known to have arrived since the ACK before.
    pub(super) delivered_bytes: u32,
    /// A retransmission is presumed lost.
    pub(super) lost_retransmission: bool,
    /// The lowest never-retransmitted segment that arrived out of order with respect to a higher one.
    pub(super) reordered_at: Option<Seq>,
    pub(super) rtt_of_first: Option<Duration>,
    pub(super) rtt_of_last: Option<Duration>,
    pub(super) rtt_by_sack: Option<Duration>,
    /// Of the last one that a SACK block reports.
    pub(super) rtt_by_latest_sack: Option<Duration>,
    /// It acknowledges one segment that is less than a full one.
    pub(super) is_of_small_segment: bool,
    pub(super) echoed: Option<u32>,
    /// New data may be sent ahead of retransmissions (RFC 5682 step 2b).
    pub(super) send_new_first: bool,
}

impl AckReport {
    /// Segments that are known to have arrived since the ACK before.
    pub(super) fn delivered(&self) -> u32 {
        self.acked - self.already_delivered + self.sacked + u32::from(self.departed)
    }
}

impl Connection {
    /// RFC 9293 section 3.10.7.4, fifth, ESTABLISHED.
    pub(super) fn process_ack(&mut self, now: Instant, segment: &Segment) -> Result<(), Disposition> {
        let ack = segment.ack;
        if ack.gt(self.snd_max()) {
            if self.config.limits.answers_ack_of_unsent {
                self.challenge(now);
            }
            return Err(Disposition::AckOfUnsentData);
        }
        if ack.lt(self.snd.una) {
            // RFC 5961 section 5.2: too old to be a mere straggler.
            if self.snd.una - ack > self.snd.max_wnd {
                self.challenge(now);
                return Err(Disposition::AckTooOld);
            }
            self.take_old_ack(now, segment);
            return Ok(());
        }
        self.snd.more_follows = false;
        self.push_pending = true;
        self.take_probed_byte(ack);
        let had_outstanding = !self.queue.is_empty();
        let prior_window = self.snd.wnd;
        let window_moved = self.update_send_window(segment);
        if window_moved && !self.unsent.is_empty() {
            // A closed window has kept the connection idle.
            self.restart_after_idle(now);
        }
        if let Some(probing) = &mut self.probing {
            probing.sent = 0;
        }
        if self.is_ack_without_news(segment) {
            if self.snd.wnd != prior_window || self.probing.is_some() {
                self.after_window_change(now);
            }
            return Ok(());
        }

        let mut report = self.new_report(segment, window_moved || segment.seq_len() > 0);
        if let Some(model) = &mut self.model {
            model.rate_mut().begin_ack();
        }
        let prior_highest_sacked = self.queue.highest_sacked();
        self.remove_acked(now, ack, &mut report);
        if self.sack && !segment.options.sack.is_empty() {
            self.take_sack_blocks(now, segment, &mut report);
        }
        self.take_accurate_feedback(segment, &mut report);
        if had_outstanding {
            self.after_outstanding_ack(now, prior_highest_sacked, &mut report);
        }
        if report.advanced {
            self.note_progress(now);
        }
        if self.snd.wnd != prior_window || self.probing.is_some() {
            self.after_window_change(now);
        }
        Ok(())
    }

    /// Whether a segment acknowledges nothing while nothing is outstanding, as at the receiver of a transfer.
    #[inline]
    fn is_ack_without_news(&self, segment: &Segment) -> bool {
        segment.ack == self.snd.una
            && self.queue.is_empty()
            && segment.options.sack.is_empty()
            && self.model.is_none()
            && self.accurate_ecn.is_none()
    }

    /// An ACK below SND.UNA that was overtaken by a later one acknowledges nothing, but its SACK blocks may be new, and begin a
    /// recovery or undo one (Linux `tcp_ack`, `old_ack`).
    fn take_old_ack(&mut self, now: Instant, segment: &Segment) {
        if !self.sack || segment.options.sack.is_empty() || self.queue.is_empty() {
            return;
        }
        let mut report = self.new_report(segment, true);
        let prior_highest_sacked = self.queue.highest_sacked();
        self.take_sack_blocks(now, segment, &mut report);
        self.count_delivered_late(now, &report);
        if let (Some(at), Some(highest)) = (report.reordered_at, prior_highest_sacked)
            && at.lt(highest)
        {
            self.note_reordering(at, highest);
        }
        self.alert_and_note_undo(now, &mut report);
    }

    fn new_report(&self, segment: &Segment, has_news: bool) -> AckReport {
        AckReport {
            prior_una: self.snd.una,
            prior_losses: self.queue.losses(),
            prior_in_flight: self.queue.in_flight(),
            advanced: segment.ack.gt(self.snd.una),
            duplicate: !has_news && segment.ack == self.snd.una && !self.queue.is_empty(),
            acked: 0,
            sacked: 0,
            already_delivered: 0,
            departed: false,
            retransmitted_acked: false,
            original_acked: false,
            dsack: false,
            congestion_echoed: self.is_congestion_echoed(segment),
            delivered_bytes: 0,
            lost_retransmission: false,
            reordered_at: None,
            rtt_of_first: None,
            rtt_of_last: None,
            rtt_by_sack: None,
            rtt_by_latest_sack: None,
            is_of_small_segment: false,
            echoed: self.timestamps.as_ref().and(segment.options.timestamps).map(|ts| ts.ecr).filter(|&ecr| ecr != 0),
            send_new_first: false,
        }
    }

    /// A window probe's byte was taken: it counts as sent.
    fn take_probed_byte(&mut self, ack: Seq) {
        if !self.snd.probed_byte || ack.le(self.snd.nxt) {
            return;
        }
        self.snd.probed_byte = false;
        if self.unsent.is_empty() {
            return;
        }
        drop(self.unsent.take(1));
        self.snd.nxt += 1;
        self.counters.bytes_sent.0 += 1;
    }

    /// Whether SND.WND would be taken from `segment`. Where any ACK may set it, one that repeats it does not count.
    pub(super) fn would_update_window(&self, segment: &Segment) -> bool {
        let repeats = self.config.send.window_update == WindowUpdate::Rfc9293
            && segment.seq == self.snd.wl1
            && u32::from(segment.window) << self.snd.scale == self.snd.wnd;
        self.may_update_window(segment) && !repeats
    }

    /// Whether `segment` is newer than the last that updated SND.WND (RFC 9293 section 3.10.7.4, fifth; Linux
    /// `tcp_may_update_window`).
    fn may_update_window(&self, segment: &Segment) -> bool {
        let window = u32::from(segment.window) << self.snd.scale;
        segment.seq.gt(self.snd.wl1)
            || segment.ack.gt(self.snd.una)
            || segment.seq == self.snd.wl1
                && match self.config.send.window_update {
                    WindowUpdate::Rfc9293 => segment.ack.ge(self.snd.wl2),
                    WindowUpdate::LargerOnly => window > self.snd.wnd,
                    WindowUpdate::LargerOrZero => window > self.snd.wnd || window == 0,
                }
    }

    /// Takes SND.WND from `segment` if it may. Returns whether the window changed.
    #[inline]
    pub(super) fn update_send_window(&mut self, segment: &Segment) -> bool {
        if !self.may_update_window(segment) {
            return false;
        }
        let window = u32::from(segment.window) << self.snd.scale;
        self.snd.wl1 = segment.seq;
        self.snd.wl2 = segment.ack;
        let changed = self.snd.wnd != window;
        self.snd.wnd = window;
        self.snd.max_wnd = self.snd.max_wnd.max(window);
        changed
    }

    /// Takes what `ack` covers off the retransmission queue.
    fn remove_acked(&mut self, now: Instant, ack: Seq, report: &mut AckReport) {
        if !report.advanced {
            return;
        }
        self.recovery.retransmits = 0;
        if let Some(episode) = self.recovery.episode.if_present() {
            episode.dup_acks = 0;
        }
        let mut sacked_before = 0;
        let mut first_sent_at = None;
        let mut last_sent_at = None;
        while let Some(sent) = self.queue.pop_acked(ack) {
            report.acked += 1;
            if sent.was_retransmitted() {
                report.retransmitted_acked = true;
            } else {
                first_sent_at = first_sent_at.or(Some(sent.sent_at));
                last_sent_at = Some(sent.sent_at);
                if !sent.sacked {
                    report.reordered_at.get_or_insert(sent.seq);
                    report.original_acked |= sent.end().le(self.recovery.high_seq);
                }
            }
            if sent.sacked {
                report.already_delivered += 1;
                sacked_before += sent.payload.len() as u32;
            } else {
                self.note_delivered(now, &sent, report.echoed);
            }
        }
        self.queue.trim_front(ack);
        report.is_of_small_segment = report.acked == 1 && ack - self.snd.una < self.snd.mss;
        let data =
            (ack - self.snd.una) - u32::from(self.snd.fin.is_some_and(|fin| fin.lt(ack) && fin.ge(self.snd.una)));
        self.counters.bytes_acked.0 += u64::from(data);
        report.delivered_bytes = data.saturating_sub(sacked_before);
        self.snd.una = ack;
        if self.steering.mtu_search.is_some() {
            self.confirm_mtu_probe(now);
        }
        if self.snd.urgent.is_some_and(|end| end.le(ack)) {
            self.snd.urgent = None;
        }
        if !report.retransmitted_acked {
            report.rtt_of_first = first_sent_at.map(|at| now.saturating_since(at));
            report.rtt_of_last = last_sent_at.map(|at| now.saturating_since(at));
        }
        if !self.is_sack_based() {
            self.take_off_duplicates(report);
            // Without SACK an ACK after a retransmission may be of either copy.
            report.original_acked &= !report.retransmitted_acked;
        }
    }

    /// Without SACK: what duplicate ACKs have counted is delivered only once, however it is acknowledged in the end (Linux
    /// `tcp_remove_reno_sacks`).
    fn take_off_duplicates(&mut self, report: &mut AckReport) {
        if report.acked == 0 {
            return;
        }
        report.already_delivered = self.queue.dup_acked().min(report.acked - 1);
        if self.queue.remove_dup_acked(report.acked) {
            self.note_reordering_without_sack(self.queue.packets_out() + report.acked);
        }
    }

    /// A segment was delivered, as an ACK that echoes the timestamp `echoed` shows.
    #[inline(always)]
    pub(super) fn note_delivered(&mut self, now: Instant, sent: &Sent, echoed: Option<u32>) {
        // An echo from before the retransmission is that of the first copy, which proves nothing about segments sent between the two
        // (Linux `tcp_skb_spurious_retrans`).
        let is_of_first = |echoed: u32| (echoed.wrapping_sub(self.timestamp_clock(sent.sent_at)) as i32) < 0;
        if sent.was_retransmitted() && echoed.is_some_and(is_of_first) {
            return;
        }
        if let Some(model) = &mut self.model {
            model.rate_mut().on_delivered(sent);
        }
        let min_rtt = self.rtt.min_rtt();
        self.recovery.rack.on_delivered(now, sent.sent_at, sent.end(), sent.was_retransmitted(), min_rtt);
    }

    /// Everything that follows from an ACK while something was outstanding.
    fn after_outstanding_ack(&mut self, now: Instant, prior_highest_sacked: Option<Seq>, report: &mut AckReport) {
        if let (Some(at), Some(highest)) = (report.reordered_at, prior_highest_sacked)
            && at.lt(highest)
        {
            self.note_reordering(at, highest);
        }
        self.counters.delivered = self.counters.delivered.saturating_add(report.delivered());
        self.take_rtt(now, report);
        self.recovery.rack.adapt(self.snd.una, self.snd.nxt);
        self.judge_loss_probe(report);
        let restart_timer = report.advanced
            || report.rtt_by_sack.is_some_and(|rtt| {
                // A SACK of a later segment proves nothing about the first outstanding one.
                self.queue.front().is_some_and(|front| rtt > now.saturating_since(front.sent_at))
            });
        let dubious = report.duplicate
            || report.sacked > 0
            || report.dsack
            || report.congestion_echoed
            || self.recovery.state != RecoveryState::Open;
        let mut timer_taken = false;
        let was_in_recovery = matches!(self.recovery.state, RecoveryState::Recovery | RecoveryState::Cwr);
        if self.counts_pipe_by_acks() {
            let gone = 1 + u32::from(report.advanced);
            let episode = self.recovery.episode.to_mut();
            episode.pipe = episode.pipe.saturating_sub(gone);
        }
        if dubious {
            timer_taken = self.alert_and_note_undo(now, report);
        }
        if self.queue.is_empty() {
            self.all_acknowledged();
        } else if restart_timer && !timer_taken {
            // RFC 6298 section 5.3.
            self.restart_retransmit(now);
        }
        // RFC 5681 section 3.2 step 6: the ACK that ends recovery only deflates. Under the other reductions the window is
        // where it belongs already, and Linux opens it.
        if self.model.is_some() {
            self.control_by_model(now, report);
        } else if !(was_in_recovery && self.config.recovery.reduction == Reduction::Immediate) {
            self.adjust_window(now, report);
        }
        self.pending.set(Pending::NEW_DATA_FIRST, report.send_new_first);
    }

    /// Nothing is outstanding any more.
    #[inline]
    pub(super) fn all_acknowledged(&mut self) {
        self.timers.disarm(Timer::Retransmit);
        self.timers.disarm(Timer::LossProbe);
        self.timers.disarm(Timer::Reorder);
        self.recovery.all_acknowledged();
    }

    /// As [`Self::alert`]. A window that an undo has set is not one that was long unused.
    fn alert_and_note_undo(&mut self, now: Instant, report: &mut AckReport) -> bool {
        let undos = self.counters.undos;
        let timer_taken = self.alert(now, report);
        if self.counters.undos != undos {
            self.congestion.set_by_recovery(now);
        }
        timer_taken
    }

    /// The congestion window after this ACK.
    fn adjust_window(&mut self, now: Instant, report: &AckReport) {
        if matches!(self.recovery.state, RecoveryState::Recovery | RecoveryState::Cwr) {
            self.reduce_window(report);
            return;
        }
        // RFC 5681 section 3.1: the window opens on ACKs of new data; where much reordering was seen, also on SACKs.
        let progress = report.acked > 0
            || (report.sacked > 0 && self.recovery.reordering > self.config.recovery.dup_ack_threshold);
        if progress {
            self.open_window_by(now, report.delivered().max(1), report.rtt_of_last);
        }
    }

    /// The window opens by `acked` segments; `rtt` is the round-trip time of the last one if it is known.
    #[inline]
    pub(super) fn open_window_by(&mut self, now: Instant, acked: u32, rtt: Option<Duration>) {
        let sample = AckSample {
            now,
            acked,
            rtt,
            snd_una: self.snd.una,
            snd_nxt: self.snd.nxt,
            is_paced: self.pacer.is_some(),
            largest_send_window: match self.config.congestion.increase {
                CwndIncrease::EveryAck => (u32::from(u16::MAX) << self.snd.scale) / self.snd.mss.max(1),
                CwndIncrease::WhileLimiting => u32::MAX,
            },
        };
        self.congestion.on_ack(&self.config.congestion, &sample);
    }

    /// An RTT sample from this ACK, by the best evidence it has (RFC 6298 section 3, RFC 7323 section 4).
    fn take_rtt(&mut self, now: Instant, report: &AckReport) {
        let sample = if self.config.rto.one_sample_per_window && self.timestamps.is_none() {
            self.timed_sample(now, report)
        } else {
            let by_timestamp = || {
                // RTTM: only from an ACK of new data.
                report.echoed.filter(|_| report.acked > 0).and_then(|echoed| self.rtt_by_echo(now, echoed))
            };
            if self.config.rto.samples_echo && self.timestamps.is_some() {
                by_timestamp()
            } else {
                report.rtt_of_first.or(report.rtt_by_sack).or_else(by_timestamp)
            }
        };
        if let Some(rtt) = sample {
            self.rtt.sample(&self.config.rto, rtt, self.snd.una, self.snd.nxt);
        }
    }

    /// 4.3BSD without timestamps: one segment is timed at a time.
    fn timed_sample(&mut self, now: Instant, report: &AckReport) -> Option<Duration> {
        let Timed { sent_at, .. } = *self.snd.timed.take_if(|timed| timed.end.le(self.snd.una))?;
        (!report.retransmitted_acked).then(|| now.saturating_since(sent_at))
    }

    pub(super) fn rtt_by_timestamp(&self, now: Instant, segment: &Segment) -> Option<Duration> {
        let echoed = segment.options.timestamps?.ecr;
        (echoed != 0).then(|| self.rtt_by_echo(now, echoed)).flatten()
    }

    /// How long ago this endpoint sent the timestamp that is echoed. An echo from the future, or one of more than half an hour, was made up
    /// (Linux `tcp_rtt_tsopt_us` has the same bound): a sample of days would leave the timeout at its ceiling for hours.
    pub(super) fn rtt_by_echo(&self, now: Instant, echoed: u32) -> Option<Duration> {
        let tick = self.config.timestamps.unwrap_or(Duration::from_millis(1));
        let ticks = self.timestamp_clock(now).wrapping_sub(echoed);
        let rtt = tick * u64::from(ticks);
        (rtt < LONGEST_ECHO).then(|| rtt.max(Duration::from_micros(1)))
    }

    /// SND.UNA has advanced: the user timeout restarts, and there may be room to write.
    #[inline]
    pub(super) fn note_progress(&mut self, now: Instant) {
        if self.user_timeout().is_some() {
            self.arm_user_timeout(now);
        }
        self.grow_send_buffer_if_needed();
        self.events.insert(Event::Writable);
    }

    /// The peer's window changed, or probes are being sent (RFC 9293 section 3.8.6.1).
    #[inline]
    pub(super) fn after_window_change(&mut self, now: Instant) {
        if self.snd.wnd == 0 {
            // An answered probe: the next one waits for its backed-off time (`output` arms it).
            self.heard_at = now;
            return;
        }
        self.probing = None;
        self.timers.disarm(Timer::Persist);
        if core::mem::take(&mut self.frozen_by_window) {
            self.timers.release(now, Timer::Retransmit);
        }
        // `snd.probed_byte` stays: the probe may still be under way.
        self.pending.remove(Pending::WINDOW_PROBE);
        // Probing has replaced the retransmission timer of the data that was pulled back.
        let timers = [Timer::Retransmit, Timer::LossProbe, Timer::Reorder];
        if !self.queue.is_empty() && !timers.iter().any(|&timer| self.timers.is_armed(timer)) {
            self.arm_retransmit(now, self.rtt.rto());
        }
        let config = self.user_timeout_config();
        if config.timeout.is_some() && (!config.covers_zero_window || config.from_retransmission) {
            self.arm_user_timeout(now);
        }
    }
}
