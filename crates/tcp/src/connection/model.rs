//! Congestion control by a model of the path: its input from the connection, and the use of its output.

use holdover_base::Instant;

use super::Connection;
use super::ack::AckReport;
use crate::congestion::bbr::{BbrAck, Decision, Totals};
use crate::congestion::path_model::{PathModel, Start};
use crate::delivery_rate::DeliveryRate;
use crate::departure::{Departure, Load};

/// The model, and the samples that update it.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Model {
    rate: DeliveryRate,
    pub(super) path: PathModel,
}

impl Connection {
    /// Begins with the handshake's measurement of the path.
    pub(super) fn start_model(&mut self, now: Instant) {
        self.model = self.new_path_model(now).map(|path| Box::new(Model { rate: DeliveryRate::new(now), path }));
    }

    fn new_path_model(&self, now: Instant) -> Option<PathModel> {
        let start = Start {
            now,
            seed: self.snd.iss.value().into(),
            srtt: self.rtt.srtt(),
            cwnd: self.congestion.cwnd(),
            mss: self.snd.mss,
            has_sack: self.is_sack_based(),
        };
        PathModel::new(self.config.congestion.algorithm, &start)
    }

    /// The path is new, and nothing that was learnt of the old one counts.
    pub(super) fn restart_model(&mut self) {
        let path = self.new_path_model(self.snd.last_data_at);
        if let (Some(model), Some(path)) = (&mut self.model, path) {
            model.path = path;
        }
    }

    /// Records the delivery-rate state of a segment that is sent; `is_first`: nothing else is outstanding.
    #[inline]
    pub(super) fn note_departure(&mut self, now: Instant, is_first: bool) -> Option<Box<Departure>> {
        let model = self.model.as_mut()?;
        let load = Load { flight: self.queue.in_flight() + 1, lost: self.queue.losses() };
        Some(Box::new(model.rate.on_sent(now, is_first, load)))
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
        let totals = Totals { delivered: model.rate.delivered(), lost: self.queue.losses() };
        if let Some(cwnd) = model.path.on_restart_from_idle(now, totals, self.congestion.cwnd(), self.snd.mss) {
            self.congestion.set_cwnd(&self.config.congestion, cwnd);
        }
    }

    fn totals(&self, rate: &DeliveryRate) -> Totals {
        Totals { delivered: rate.delivered(), lost: self.queue.losses() }
    }

    /// The window is about to be reduced.
    pub(super) fn save_window(&mut self) {
        if let Some(model) = &mut self.model {
            model.path.save_window(self.congestion.cwnd());
        }
    }

    pub(super) fn report_timeout_to_model(&mut self, now: Instant) {
        if let Some(mut model) = self.model.take() {
            let totals = self.totals(&model.rate);
            model.path.on_losses(now, &self.queue.take_newly_lost(), totals, self.congestion.cwnd());
            model.path.on_timeout(now, totals, self.snd.mss);
            self.model = Some(model);
        }
    }

    pub(super) fn report_undo_to_model(&mut self, now: Instant) {
        if let Some(mut model) = self.model.take() {
            let cwnd = model.path.on_undo(now, self.totals(&model.rate), self.congestion.cwnd());
            self.congestion.set_cwnd(&self.config.congestion, cwnd);
            self.model = Some(model);
        }
    }

    /// An overtaken ACK still reports deliveries.
    pub(super) fn count_delivered_late(&mut self, now: Instant, report: &AckReport) {
        if let Some(model) = &mut self.model {
            model.rate.count(now, report.delivered());
        }
    }

    /// Sets the window from an ACK's samples, in recovery or not.
    pub(super) fn control_by_model(&mut self, now: Instant, report: &AckReport) {
        let Some(mut model) = self.model.take() else { return };
        let acked = report.delivered();
        let mut rate = model.rate.finish_ack(now, acked, self.queue.losses(), self.rtt.min_rtt());
        if let Some(sample) = &mut rate {
            sample.may_be_delayed = report.is_of_small_segment && sample.delivered == 1;
        }
        let totals = self.totals(&model.rate);
        model.path.on_losses(now, &self.queue.take_newly_lost(), totals, self.congestion.cwnd());
        let congestion = &self.config.congestion;
        let ack = BbrAck {
            now,
            departure_at: self.pacer.as_ref().map_or(now, |pacer| pacer.next_at()),
            rate,
            rtt: report.rtt_by_latest_sack.or(report.rtt_of_last),
            srtt: self.rtt.srtt(),
            acked,
            losses: (self.queue.losses() - report.prior_losses) as u32,
            totals,
            prior_in_flight: report.prior_in_flight,
            in_flight: self.queue.in_flight(),
            state: self.recovery.state,
            mss: self.snd.mss,
            cwnd: self.congestion.cwnd(),
            initial_cwnd: congestion.initial_window.segments(self.snd.mss),
            is_cwnd_limited: self.congestion.is_limited(),
        };
        let Decision { cwnd, ssthresh, is_app_limited } = model.path.on_ack(&ack, report.congestion_echoed);
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
