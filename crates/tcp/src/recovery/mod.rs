//! A sender's loss state: recovery, proportional rate reduction (PRR, RFC 6937), undo information, and the clocks of RACK.
//!
//! `connection::{ack, loss, rack, undo}` contain the rules that act on this state.

mod prr;
pub(crate) mod queue;
mod rack;
pub(crate) mod sent;

use holdover_base::Instant;
use holdover_wire::Seq;

pub(crate) use self::prr::Prr;
pub(crate) use self::rack::Rack;
use crate::config::RecoveryConfig;
use crate::on_demand::{Absent, OnDemand};

/// The state of loss recovery, named as in `ss -ti` and Linux.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub enum RecoveryState {
    /// No sign of loss.
    #[default]
    Open,
    /// Duplicate ACKs or SACKs have arrived, not enough to distinguish a loss from reordering.
    Disorder,
    /// The window is being reduced because the path has marked a segment (RFC 3168).
    Cwr,
    /// Lost segments are being repaired (fast recovery).
    Recovery,
    /// A retransmission timeout has marked all outstanding data lost.
    Loss,
}

/// A sender's loss state.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Recovery {
    pub(crate) state: RecoveryState,
    /// SND.NXT when the current state began: recovery ends when it is acknowledged (RFC 6675 "RecoveryPoint").
    pub(crate) high_seq: Seq,
    /// Reordering in segments that is tolerated before a loss is inferred.
    pub(crate) reordering: u32,
    /// How often reordering was seen, saturating.
    pub(crate) reordering_seen: u16,
    /// Consecutive runs of the retransmission timer without progress.
    pub(crate) retransmits: u32,
    pub(crate) rack: Rack,
    /// A pending tail loss probe.
    pub(crate) loss_probe: Option<LossProbe>,
    pub(crate) episode: OnDemand<Episode>,
}

/// A tail loss probe (RFC 8985 section 7.3).
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct LossProbe {
    /// SND.NXT when it was sent.
    pub(crate) high_seq: Seq,
    /// Whether it was a retransmission; else it carried new data.
    pub(crate) retransmitted: bool,
}

/// State from the first sign of a loss until everything is acknowledged and no undo is possible.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Episode {
    /// Consecutive duplicate ACKs.
    pub(crate) dup_acks: u32,
    /// Duplicate ACKs have just shown the first segment lost, in any previous state.
    pub(crate) fresh_loss: bool,
    /// Whether the next retransmission is the one that begins recovery.
    pub(crate) first_repair: bool,
    /// The lost marks come from data that was taken back when the window closed (4.3BSD), not from evidence.
    pub(crate) pulled_back: bool,
    /// The recovery under way began in the loss state: the loss marks are not its own alone.
    pub(crate) from_loss: bool,
    /// RFC 5682: a timeout that may be spurious is being tested.
    pub(crate) frto: bool,
    /// SND.UNA when what could be undone began; `None` when nothing can (Linux `undo_marker`).
    pub(crate) undo_marker: Option<Seq>,
    /// Retransmissions since then that no DSACK has shown to be unnecessary; `None` before the first one.
    pub(crate) undo_retransmissions: Option<u32>,
    /// ssthresh and cwnd before the reduction.
    pub(crate) prior_ssthresh: u32,
    pub(crate) prior_cwnd: u32,
    /// When the first retransmission was sent.
    pub(crate) retransmit_stamp: Option<Instant>,
    pub(crate) prr: Prr,
    /// Rate halving: ACKs seen since the last decrement.
    pub(crate) halving_acks: u32,
    /// [`crate::config::LossDetection::Sack`] and `Fack` have marked everything they can below this sequence number.
    pub(crate) marked_below: Option<Seq>,
    /// Whether this recovery has resent the end of the outstanding data (RFC 6675 section 4, NextSeg rule 4).
    pub(crate) rescued: bool,
    /// This recovery's estimate of data in flight by ACKs alone ([`RecoveryConfig::pipe_by_acks`]).
    pub(crate) pipe: u32,
}

impl Absent for Episode {
    const ABSENT: &'static Self = &Self {
        dup_acks: 0,
        fresh_loss: false,
        first_repair: false,
        pulled_back: false,
        from_loss: false,
        frto: false,
        undo_marker: None,
        undo_retransmissions: None,
        prior_ssthresh: 0,
        prior_cwnd: 0,
        retransmit_stamp: None,
        prr: Prr { prior_cwnd: 0, delivered: 0, out: 0 },
        halving_acks: 0,
        marked_below: None,
        rescued: false,
        pipe: 0,
    };
}

impl Recovery {
    pub(crate) fn new(config: &RecoveryConfig) -> Self {
        Self {
            state: RecoveryState::Open,
            high_seq: Seq::default(),
            reordering: config.dup_ack_threshold,
            reordering_seen: 0,
            retransmits: 0,
            rack: Rack::default(),
            loss_probe: None,
            episode: OnDemand::absent(),
        }
    }

    /// All data is acknowledged. A late DSACK may still undo an episode; else the episode is over.
    pub(crate) fn all_acknowledged(&mut self) {
        if let Some(episode) = self.episode.if_present() {
            episode.marked_below = None;
            if self.state == RecoveryState::Open && episode.undo_marker.is_none() {
                self.episode.clear();
            }
        }
    }
}

impl Episode {
    /// Saves the state for an undo.
    pub(crate) fn begin_undo(&mut self, snd_una: Seq, retransmitted: u32) {
        self.undo_marker = Some(snd_una);
        // Retransmissions still in flight may cause a DSACK later.
        self.undo_retransmissions = (retransmitted > 0).then_some(retransmitted);
    }

    /// Makes the reduction final.
    pub(crate) fn forget_undo(&mut self) {
        self.undo_marker = None;
        self.undo_retransmissions = None;
        self.prior_ssthresh = 0;
    }

    /// Counts a retransmission that a DSACK could show to be unnecessary.
    pub(crate) fn note_retransmission(&mut self, now: Instant) {
        self.first_repair = false;
        self.undo_retransmissions = Some(self.undo_retransmissions.unwrap_or(0) + 1);
        self.retransmit_stamp.get_or_insert(now);
        self.prr.out += 1;
    }

    /// A DSACK shows that one retransmission was unnecessary.
    pub(crate) fn one_retransmission_was_unnecessary(&mut self) {
        if let Some(count) = &mut self.undo_retransmissions {
            *count = count.saturating_sub(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_episode_lasts_until_nothing_can_be_undone() {
        let mut recovery = Recovery::new(&crate::config::Config::rfc().recovery);
        let episode = recovery.episode.to_mut();
        episode.begin_undo(Seq::new(1), 0);
        episode.marked_below = Some(Seq::new(9));
        recovery.all_acknowledged();
        assert_eq!((recovery.episode.undo_marker, recovery.episode.marked_below), (Some(Seq::new(1)), None));
        recovery.episode.to_mut().forget_undo();
        recovery.all_acknowledged();
        assert!(recovery.episode.is_absent());
    }
}
