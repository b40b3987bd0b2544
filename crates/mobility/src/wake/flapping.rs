//! **A link that is lost several times in quick succession.** A sender that is woken at a return, and loses the link again soon, loses more than
//! one that gets nothing through:
//!
//! - Linux reduces the slow start threshold once for all retransmission timeouts without an ACK of new data in between (`tcp_enter_loss`). After
//!   such an ACK the next timeout reduces it again, to 0.7 (CUBIC) or half (Reno) of the few segments that the window has by then: 2 after the third loss.
//! - BBR's estimate of the bandwidth is the maximum of its last ten round trips; few segments between two losses make a low sample of each. And
//!   after two such periods with the same rate it takes the path for policed, and keeps to that rate for 48 round trips
//!   (`bbr_lt_bw_sampling` of Linux).
//!
//! So for downloads, losses in quick succession are one outage: after a return their ACKs stay withheld, and they are not woken,
//! until the link has been up for longer than before its last loss. The host's own
//! data are sent at once: its kernel has the whole window at hand, and sends with the first ACK.

use holdover_base::{Duration, Instant};
use holdover_flow::{FlowTable, Order};

use super::WakeControl;
use super::attempt::Path;
use super::waking::MUCH;
use crate::{Connection, Direction};

/// Losses of a link in quick succession: an *episode*.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Flapping {
    /// The first of them.
    since: Option<Instant>,
    /// The last of them, until the link is back.
    lost_at: Option<Instant>,
    /// How long the link has been down since the first.
    down_for: Duration,
    /// How long the link was up before the last of them; zero before the first.
    up_for: Duration,
    /// Its last reported return.
    back_at: Option<Instant>,
    /// Downloads have waited after one of these losses.
    has_waited: bool,
}

/// A loss after a longer time does not belong to those before.
const LONGEST_UP: Duration = Duration::from_secs(3);

/// A sender that has more round trips between two losses uses them well: with 16 of 50 ms, downloads that wait take 8 % (BBR) and 14 % (CUBIC) longer
/// than others, with ten CUBIC 5 % less, and with five BBR 28 % and CUBIC 10 % less.
const MOST_ROUND_TRIPS: u64 = 11;

/// After this time of an episode downloads wait no more: a link that flaps for ever would starve them.
const LONGEST_EPISODE: Duration = Duration::from_secs(30);

/// A sender recovers from a briefer loss without a timeout; and reports without an outage, as of a roam or a resume, have no length at all.
const BRIEFEST_LOSS: Duration = Duration::from_millis(50);

/// Data that came at most this long before the first loss may be under way.
const UNDER_WAY: Duration = Duration::from_secs(1);

/// Downloads begin to wait if the link was down for three fifths of the time since the first loss. With shorter losses senders recover without a timeout.
const DOWN_SHARE: (u64, u64) = (3, 5);

/// Reports of losses are late by some ms, more on a busy machine.
const MARGIN: Duration = Duration::from_millis(10);

impl Flapping {
    /// The link is lost.
    pub(super) fn note_loss(&mut self, now: Instant) {
        let up_for = self.back_at.map(|back_at| now.saturating_since(back_at)).filter(|&up_for| up_for <= LONGEST_UP);
        *self = match self.since.zip(up_for) {
            Some((_, up_for)) => Self { lost_at: Some(now), up_for, ..*self },
            None => Self { since: Some(now), lost_at: Some(now), ..Self::default() },
        };
    }

    /// The link is back. Returns for how long it may be lost again soon; `None` if it was not lost, or not several times, or too
    /// briefly, or if it has flapped for too long.
    fn note_return(&mut self, now: Instant) -> Option<Duration> {
        let (since, lost_at) = (self.since?, self.lost_at.take()?);
        self.back_at = Some(now);
        let (episode, lost_for) = (now.saturating_since(since), now.saturating_since(lost_at));
        self.down_for += lost_for;
        let (part, whole) = DOWN_SHARE;
        let is_mostly_down = self.down_for * whole >= episode * part;
        let is_outage = lost_for >= BRIEFEST_LOSS && lost_for * 2 >= self.up_for;
        let is_again = self.up_for > Duration::ZERO && is_outage && episode <= LONGEST_EPISODE;
        (is_again && (is_mostly_down || self.has_waited)).then(|| self.up_for + self.up_for / 8 + MARGIN)
    }
}

impl WakeControl {
    /// The link is up: downloads wait if it may be lost again soon. If packets have shown it, it has been up for a while.
    pub(super) fn begin_deferral(&mut self, now: Instant, known: Path, path: &mut impl FlowTable) {
        let may_wait = known < Path::Proven && !self.is_between && self.config.holds();
        let Some(wait) = self.link.flapping.note_return(now).filter(|_| may_wait) else { return };
        let Flapping { up_for, since, .. } = self.link.flapping;
        for (&connection, state) in &mut self.connections {
            let Some(flow) = path.snapshot(connection).filter(|_| state.outgoing.is_waiting()) else { continue };
            let download = flow.half(Direction::Outgoing);
            // The answer to a request in between must not wait.
            let is_under_way = download.last_data_at().zip(since).is_some_and(|(at, since)| at + UNDER_WAY >= since);
            let sends_much = is_under_way && download.bytes_acked() > MUCH;
            let is_short = flow.least_round_trip().is_some_and(|trip| up_for <= trip * MOST_ROUND_TRIPS);
            if sends_much && is_short {
                self.link.flapping.has_waited = true;
                state.outgoing.is_deferred = true;
                self.link.deferred_until = Some(now + wait);
                path.order(now, connection, Direction::Outgoing, Order::Clock(true));
            }
        }
    }

    /// The link has been up for long enough: wakes the downloads that have waited.
    pub(super) fn end_deferral(&mut self, now: Instant, path: &mut impl FlowTable) {
        let deferred = self.abandon_deferral(now, path);
        // Nothing is held back, and echoes are refreshed, for a while from now on.
        self.link.proven_at = Some(now);
        for connection in &deferred {
            let Some(state) = self.connections.get_mut(connection) else { continue };
            // Data that came meanwhile were retransmissions of a sender that still waits.
            state.reachable_at = Some(now);
            if let Some(attempt) = &mut state.attempt {
                attempt.await_download();
            }
        }
        self.wake_late(now, deferred.into_iter().filter(|&connection| !self.is_absent(connection)).collect(), path);
    }

    /// ACKs pass as the link has it. Returns the connections that have waited.
    pub(super) fn abandon_deferral(&mut self, now: Instant, path: &mut impl FlowTable) -> Vec<Connection> {
        self.link.deferred_until = None;
        let waiting = self.connections.iter_mut().filter(|(_, state)| state.outgoing.is_deferred);
        let waiting = waiting.map(|(&connection, state)| {
            state.outgoing.is_deferred = false;
            connection
        });
        let waiting: Vec<Connection> = waiting.collect();
        for &connection in &waiting {
            path.order(now, connection, Direction::Outgoing, Order::Clock(false));
        }
        waiting
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Losses of a link as (up before it, down), in ms. Returns the waits at the returns, in ms; each loss after a wait sets `has_waited`.
    fn waits(losses: impl IntoIterator<Item = (u64, u64)>) -> Vec<Option<u64>> {
        let (mut flapping, mut now) = (Flapping::default(), Instant::from_secs(100));
        let wait = |(up, down): (u64, u64)| {
            now += Duration::from_millis(up);
            flapping.note_loss(now);
            now += Duration::from_millis(down);
            let wait = flapping.note_return(now);
            flapping.has_waited |= wait.is_some();
            wait.map(|wait| wait.as_millis())
        };
        losses.into_iter().map(wait).collect()
    }

    #[test]
    fn the_second_loss_in_quick_succession_makes_downloads_wait() {
        assert_eq!(waits([(9000, 250), (250, 250), (250, 250)]), [None, Some(291), Some(291)]);
        assert_eq!(waits([(9000, 250), (3001, 250), (250, 250)]), [None, None, Some(291)], "the first is over");
    }

    // Claim: Downloads over a link that flaps for ever wait for 30 s at most: then they are woken at each return.
    #[test]
    fn downloads_over_a_link_that_flaps_for_ever_do_not_starve() {
        let waits = waits((0..200).map(|_| (250, 250)));
        assert_eq!(waits.iter().flatten().count(), 59);
        assert!(waits[60..].iter().all(Option::is_none));
    }

    #[test]
    fn brief_losses_and_moves_without_an_outage_make_nothing_wait() {
        let mostly_up = core::iter::once((9000, 5000)).chain((0..50).map(|_| (500, 10)));
        assert!(waits(mostly_up).iter().all(Option::is_none), "a long loss, and then brief ones");
        assert_eq!(waits([(9000, 5000), (500, 0)]), [None, None], "a roam");
        assert_eq!(waits([(9000, 5000), (500, 100)]), [None, None], "less than half of the time before it");
    }

    #[test]
    fn the_end_of_a_silence_is_no_return_of_a_lost_link() {
        let mut flapping = Flapping::default();
        let at = |seconds: u64| Instant::from_secs(100 + seconds);
        flapping.note_loss(at(0));
        assert_eq!(flapping.note_return(at(1)), None);
        assert_eq!(flapping.note_return(at(3600)), None, "a silence has ended");
        flapping.note_loss(at(3602));
        assert_eq!(flapping.note_return(at(3603)), None, "the first loss of another episode");
    }
}
