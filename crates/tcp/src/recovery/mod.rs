//! A sender's loss state: recovery, proportional rate reduction (PRR, RFC 6937), undo information, and the clocks of RACK.
//!
//! `connection::{ack, loss, rack, undo}` contain the rules that act on this state.

pub(crate) mod queue;
pub(crate) mod sent;

use holdover_base::{Duration, Instant};
use holdover_wire::Seq;

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

/// Proportional rate reduction (RFC 6937).
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Prr {
    pub(crate) prior_cwnd: u32,
    pub(crate) delivered: u32,
    pub(crate) out: u32,
}

impl Prr {
    pub(crate) fn start(&mut self, cwnd: u32) {
        *self = Self { prior_cwnd: cwnd, delivered: 0, out: 0 };
    }

    /// The window after an ACK that delivered `delivered` segments (RFC 6937 section 3, with Linux's choice between its two
    /// bounds: slow start as long as retransmissions get through).
    pub(crate) fn window(&mut self, in_flight: u32, ssthresh: u32, delivered: u32, progress: bool) -> u32 {
        self.delivered += delivered;
        let room = i64::from(ssthresh) - i64::from(in_flight);
        let quota = if room < 0 {
            let target = u64::from(ssthresh) * u64::from(self.delivered);
            target.div_ceil(u64::from(self.prior_cwnd.max(1))) as i64 - i64::from(self.out)
        } else {
            let conserve = i64::from(self.delivered) - i64::from(self.out);
            let quota = conserve.max(i64::from(delivered)) + i64::from(progress);
            quota.min(room)
        };
        // The retransmission that begins recovery is always sent.
        let quota = quota.max(i64::from(self.out == 0));
        in_flight + quota.max(0) as u32
    }
}

/// RACK's state (RFC 8985 section 5.2).
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Rack {
    /// When the most recently sent segment among the delivered ones was sent, its end, and its round-trip time.
    pub(crate) xmit_at: Instant,
    pub(crate) end_seq: Seq,
    pub(crate) rtt: Duration,
    /// Whether a delivery has moved it since losses were last detected.
    pub(crate) advanced: bool,
    /// The reordering window in quarters of the least RTT, and for how many recoveries it persists.
    pub(crate) steps: u8,
    pub(crate) persist: u8,
    /// A DSACK arrived: the window grows, once a round.
    pub(crate) dsack_seen: bool,
    pub(crate) dsack_round_end: Option<Seq>,
}

impl Default for Rack {
    fn default() -> Self {
        Self {
            xmit_at: Instant::ZERO,
            end_seq: Seq::default(),
            rtt: Duration::ZERO,
            advanced: false,
            steps: 1,
            persist: 0,
            dsack_seen: false,
            dsack_round_end: None,
        }
    }
}

impl Rack {
    /// Recoveries without a DSACK after which the reordering window is back at its least (RFC 8985 section 7.2.2: 16).
    const PERSIST_RECOVERIES: u8 = 16;

    /// Whether a segment sent at `a`, ending at `a_end`, was sent after the other.
    pub(crate) fn sent_after(a: Instant, a_end: Seq, b: Instant, b_end: Seq) -> bool {
        a > b || (a == b && a_end.gt(b_end))
    }

    /// RFC 8985 section 6.2 step 2: takes note of a delivered segment.
    pub(crate) fn on_delivered(
        &mut self,
        now: Instant,
        sent_at: Instant,
        end: Seq,
        retransmitted: bool,
        min_rtt: Option<Duration>,
    ) {
        let rtt = now.saturating_since(sent_at);
        // A retransmission acknowledged sooner than any round trip: it was the original that arrived.
        if retransmitted && min_rtt.is_some_and(|min| rtt < min) {
            return;
        }
        self.advanced = true;
        self.rtt = rtt;
        if Self::sent_after(sent_at, end, self.xmit_at, self.end_seq) {
            self.xmit_at = sent_at;
            self.end_seq = end;
        }
    }

    /// RFC 8985 section 6.2 step 4: the reordering window grows on a DSACK, once a round.
    pub(crate) fn adapt(&mut self, snd_una: Seq, snd_nxt: Seq) {
        if self.dsack_round_end.is_some_and(|end| snd_una.gt(end)) {
            self.dsack_round_end = None;
        }
        if core::mem::take(&mut self.dsack_seen) && self.dsack_round_end.is_none() {
            self.steps = self.steps.saturating_add(1);
            self.persist = Self::PERSIST_RECOVERIES;
            self.dsack_round_end = Some(snd_nxt);
        } else if self.persist == 0 {
            self.steps = 1;
        }
    }

    /// A recovery has ended.
    pub(crate) fn recovery_ended(&mut self) {
        self.persist = self.persist.saturating_sub(1);
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

    /// RFC 6937 section 3: while more is in flight than ssthresh, sending goes at ssthresh / prior cwnd of the deliveries.
    #[test]
    fn rfc6937_3_sends_in_proportion_to_what_arrives() {
        let mut prr = Prr::default();
        prr.start(20);
        let (mut in_flight, mut sent) = (19, 0);
        for _ in 0..9 {
            in_flight -= 1;
            let quota = prr.window(in_flight, 10, 1, false) - in_flight;
            prr.out += quota;
            in_flight += quota;
            sent += quota;
        }
        assert_eq!(sent, 5);
    }

    /// RFC 6937 section 3: below ssthresh it grows back, not beyond.
    #[test]
    fn rfc6937_3_slow_start_part_stops_at_ssthresh() {
        let mut prr = Prr::default();
        prr.start(20);
        prr.delivered = 12;
        prr.out = 6;
        assert_eq!(prr.window(2, 10, 1, true), 10);
        prr.out = 13;
        assert_eq!(prr.window(2, 10, 1, true), 4);
        assert_eq!(prr.window(2, 10, 1, false), 4, "what was delivered may be sent again");
    }

    /// RFC 8985 section 6.2: later transmissions win; a suspiciously quick retransmission does not count.
    #[test]
    fn rfc8985_6_2_the_latest_delivery_counts() {
        let mut rack = Rack::default();
        let at = Instant::from_millis;
        rack.on_delivered(at(100), at(50), Seq::new(10), false, None);
        rack.on_delivered(at(101), at(40), Seq::new(20), false, None);
        assert_eq!((rack.xmit_at, rack.end_seq), (at(50), Seq::new(10)));
        rack.on_delivered(at(102), at(101), Seq::new(5), true, Some(Duration::from_millis(50)));
        assert_eq!(rack.xmit_at, at(50));
        rack.on_delivered(at(152), at(101), Seq::new(5), true, Some(Duration::from_millis(50)));
        assert_eq!(rack.xmit_at, at(101));
    }

    #[test]
    fn the_reordering_window_grows_once_a_round_and_shrinks_after_sixteen_recoveries() {
        let mut rack = Rack::default();
        for _ in 0..2 {
            rack.dsack_seen = true;
            rack.adapt(Seq::new(1), Seq::new(100));
        }
        assert_eq!(rack.steps, 2);
        rack.dsack_seen = true;
        rack.adapt(Seq::new(101), Seq::new(200));
        assert_eq!(rack.steps, 3);
        (0..16).for_each(|_| rack.recovery_ended());
        rack.adapt(Seq::new(201), Seq::new(300));
        assert_eq!(rack.steps, 1);
    }
}
