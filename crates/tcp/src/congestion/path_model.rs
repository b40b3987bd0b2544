//! Congestion control by a model of the path: the versions of BBR behind one interface.

use holdover_base::{Duration, Instant};

use super::bbr::{Bbr, BbrAck, Decision, Totals, least_burst};
use super::bbr3::{Bbr3, LEAST_BURST};
use crate::config::Algorithm;
use crate::departure::LostSegment;
use crate::pacing::burst_segments;

/// A model.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum PathModel {
    Bbr(Box<Bbr>),
    Bbr3(Box<Bbr3>),
}

/// Path state before the first transmission.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Start {
    pub(crate) now: Instant,
    /// Chooses when bandwidth is probed for.
    pub(crate) seed: u64,
    /// Of the handshake.
    pub(crate) srtt: Option<Duration>,
    pub(crate) cwnd: u32,
    pub(crate) mss: u32,
    pub(crate) has_sack: bool,
}

impl PathModel {
    /// The model of `algorithm`; `None` if that has none.
    pub(crate) fn new(algorithm: Algorithm, start: &Start) -> Option<Self> {
        let &Start { now, seed, srtt, cwnd, mss, has_sack } = start;
        match algorithm {
            Algorithm::Reno | Algorithm::Cubic => None,
            Algorithm::Bbr => Some(Self::Bbr(Box::new(Bbr::new(now, seed, srtt, cwnd, mss)))),
            Algorithm::Bbr3 => Some(Self::Bbr3(Box::new(Bbr3::new(now, seed, srtt, cwnd, mss, has_sack)))),
        }
    }

    /// In bytes per second.
    pub(crate) fn pacing_rate(&self) -> u64 {
        match self {
            Self::Bbr(bbr) => bbr.pacing_rate(),
            Self::Bbr3(bbr) => bbr.pacing_rate(),
        }
    }

    /// Segments of `mss` bytes that leave at once: Linux gives short paths larger bursts, version 3's send quantum (section 5.6.3 of the
    /// draft) follows from the rate alone.
    pub(crate) fn burst(&self, mss: u32, min_rtt: Option<Duration>) -> u32 {
        let rate = self.pacing_rate();
        match self {
            Self::Bbr(_) => burst_segments(rate, mss, min_rtt, least_burst(rate)),
            Self::Bbr3(_) => burst_segments(rate, mss, None, LEAST_BURST),
        }
    }

    /// The window of `cwnd` segments is about to be reduced.
    pub(crate) fn save_window(&mut self, cwnd: u32) {
        match self {
            Self::Bbr(bbr) => bbr.save_cwnd(cwnd),
            Self::Bbr3(bbr) => bbr.save_state(cwnd),
        }
    }

    /// Segments were marked lost, while the window was `cwnd`.
    pub(crate) fn on_losses(&mut self, now: Instant, lost: &[LostSegment], totals: Totals, cwnd: u32) {
        match self {
            Self::Bbr(_) => {}
            Self::Bbr3(bbr) => bbr.on_losses(now, lost, totals.delivered, cwnd),
        }
    }

    pub(crate) fn on_timeout(&mut self, now: Instant, totals: Totals, mss: u32) {
        match self {
            Self::Bbr(bbr) => bbr.on_timeout(now, totals, mss),
            Self::Bbr3(bbr) => bbr.on_timeout(),
        }
    }

    /// Presumed losses were spurious. Returns the window.
    pub(crate) fn on_undo(&mut self, now: Instant, totals: Totals, cwnd: u32) -> u32 {
        match self {
            Self::Bbr(bbr) => {
                bbr.on_undo(now, totals);
                cwnd
            }
            Self::Bbr3(bbr) => bbr.on_undo(totals.delivered, cwnd),
        }
    }

    /// Sending begins again with nothing in flight, after the application had nothing to send. Returns the window if it changes.
    pub(crate) fn on_restart_from_idle(&mut self, now: Instant, totals: Totals, cwnd: u32, mss: u32) -> Option<u32> {
        match self {
            Self::Bbr(bbr) => {
                bbr.on_restart_from_idle(now, mss);
                bbr.probe_rtt_is_over_after_idle(now, cwnd)
            }
            Self::Bbr3(bbr) => bbr.on_restart_from_idle(now, totals.delivered, cwnd, mss),
        }
    }

    /// An ACK while data was outstanding; `echoes_mark`: it echoes a congestion mark.
    pub(crate) fn on_ack(&mut self, ack: &BbrAck, echoes_mark: bool) -> Decision {
        match self {
            Self::Bbr(bbr) => bbr.on_ack(ack),
            Self::Bbr3(bbr) => {
                if echoes_mark {
                    bbr.on_congestion_echo(ack);
                }
                bbr.on_ack(ack)
            }
        }
    }
}
