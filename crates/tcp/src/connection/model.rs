//! Congestion control by a model of the path: what the connection tells BBR, and what it does with the answer.

use holdover_base::Instant;

use super::Connection;
use super::ack::AckReport;
use crate::config::Algorithm;
use crate::congestion::bbr::{Bbr, BbrAck, Decision, Totals};
use crate::delivery_rate::{DeliveryRate, Departure};

/// The model and the samples that it is made of.
#[derive(Clone, Debug)]
pub(super) struct Model {
    rate: DeliveryRate,
    pub(super) bbr: Bbr,
}

impl Connection {
    /// Begins with what the handshake has shown of the path.
    pub(super) fn start_model(&mut self, now: Instant) {
        if self.config.congestion.algorithm == Algorithm::Bbr {
            let bbr = self.new_bbr(now);
            self.model = Some(Box::new(Model { rate: DeliveryRate::new(now), bbr }));
        }
    }

    fn new_bbr(&self, now: Instant) -> Bbr {
        Bbr::new(now, self.snd.iss.value().into(), self.rtt.srtt(), self.congestion.cwnd(), self.snd.mss)
    }

    /// The path is new, and nothing that was learnt of the old one counts.
    pub(super) fn restart_model(&mut self) {
        if self.model.is_some() {
            let bbr = self.new_bbr(self.snd.last_data_at);
            if let Some(model) = &mut self.model {
                model.bbr = bbr;
            }
        }
    }

    /// A segment leaves, as the only one outstanding or not: what it has to remember for a sample of the delivery rate.
    #[inline]
    pub(super) fn note_departure(&mut self, now: Instant, is_first: bool) -> Option<Box<Departure>> {
        self.model.as_mut().map(|model| Box::new(model.rate.on_sent(now, is_first)))
    }

    /// The application has written: has the connection had less to send than the path could take
    /// (draft-cheng-iccrg-delivery-rate-estimation section 3.4)?
    pub(super) fn note_application_limit(&mut self) {
        let Some(model) = &mut self.model else { return };
        let in_flight = self.queue.in_flight();
        let ran_dry = (self.unsent.len() as u32) < self.snd.mss && in_flight < self.congestion.cwnd();
        if ran_dry && self.queue.lost() <= self.queue.retransmitted() {
            model.rate.mark_app_limited(in_flight);
        }
    }

    /// New data leaves with nothing in flight.
    pub(super) fn note_restart(&mut self, now: Instant) {
        let Some(model) = &mut self.model else { return };
        if !model.rate.is_app_limited() || self.queue.in_flight() > 0 {
            return;
        }
        model.bbr.on_restart_from_idle(now, self.snd.mss);
        if let Some(cwnd) = model.bbr.probe_rtt_is_over_after_idle(now, self.congestion.cwnd()) {
            self.congestion.set_cwnd(&self.config.congestion, cwnd);
        }
    }

    fn totals(&self, rate: &DeliveryRate) -> Totals {
        Totals { delivered: rate.delivered(), lost: self.queue.losses() }
    }

    /// The window is about to be reduced.
    pub(super) fn save_window(&mut self) {
        if let Some(model) = &mut self.model {
            model.bbr.save_cwnd(self.congestion.cwnd());
        }
    }

    pub(super) fn tell_model_of_timeout(&mut self, now: Instant) {
        if let Some(mut model) = self.model.take() {
            model.bbr.on_timeout(now, self.totals(&model.rate), self.snd.mss);
            self.model = Some(model);
        }
    }

    pub(super) fn tell_model_of_undo(&mut self, now: Instant) {
        if let Some(mut model) = self.model.take() {
            model.bbr.on_undo(now, self.totals(&model.rate));
            self.model = Some(model);
        }
    }

    /// An ACK that was overtaken has delivered something all the same.
    pub(super) fn count_delivered_late(&mut self, now: Instant, report: &AckReport) {
        if let Some(model) = &mut self.model {
            model.rate.count(now, report.delivered());
        }
    }

    /// What an ACK says of the path, in recovery or not, decides on the window.
    pub(super) fn control_by_model(&mut self, now: Instant, report: &AckReport) {
        let Some(mut model) = self.model.take() else { return };
        let acked = report.delivered();
        let mut rate = model.rate.finish_ack(now, acked, self.rtt.min_rtt());
        if let Some(sample) = &mut rate {
            sample.may_be_delayed = report.is_of_small_segment && sample.delivered == 1;
        }
        let congestion = &self.config.congestion;
        let Decision { cwnd, ssthresh, is_app_limited } = model.bbr.on_ack(&BbrAck {
            now,
            departure_at: self.pacer.as_ref().map_or(now, |pacer| pacer.next_at()),
            rate,
            rtt: report.rtt_by_latest_sack.or(report.rtt_of_last),
            srtt: self.rtt.srtt(),
            acked,
            losses: (self.queue.losses() - report.prior_losses) as u32,
            totals: self.totals(&model.rate),
            prior_in_flight: report.prior_in_flight,
            in_flight: self.queue.in_flight(),
            state: self.recovery.state,
            mss: self.snd.mss,
            cwnd: self.congestion.cwnd(),
            initial_cwnd: congestion.initial_window.segments(self.snd.mss),
        });
        self.congestion.set_cwnd(congestion, cwnd);
        if let Some(ssthresh) = ssthresh {
            self.congestion.set_ssthresh(ssthresh);
        }
        if is_app_limited {
            model.rate.mark_app_limited(self.queue.in_flight());
        }
        self.model = Some(model);
    }
}

impl Model {
    #[inline]
    pub(super) fn rate_mut(&mut self) -> &mut DeliveryRate {
        &mut self.rate
    }
}
