//! **Attempts that were lost, among many.** The link to the next hop keeps the order of packets: once an attempt is answered, earlier ones
//! without an answer are lost. Their connections make room for others at once, and their turn comes again next. Otherwise they would keep their
//! places until their timers expire, and the link would be idle meanwhile.
//!
//! The host's TCP sends by itself, too: the kernel's queue for the next hop leaves at once when that answers, and timers of several seconds expire
//! together (Linux rounds them up to a quarter of a second). These packets are in flight as well, and fill the link's queue.

use holdover_base::{Duration, Instant};
use holdover_flow::FlowTable;

use super::super::WakeControl;
use super::super::attempt::{ALLOWANCE, Path, UNKNOWN_ROUND_TRIP};

use super::Waking;
use crate::Connection;

/// The newest answered attempt.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Overtaking {
    /// When it was sent.
    sent_at: Option<Instant>,
    /// How long it was queued.
    queued: Duration,
    checked_at: Instant,
}

/// Attempts less than this apart may arrive in another order: several messages make the host retransmit.
const ORDERED: Duration = Duration::from_millis(15);

/// The least interval between checks of all connections in flight.
const CHECK_EVERY: Duration = Duration::from_millis(5);

impl Overtaking {
    /// An attempt of `sent_at` was answered after so long. Without a known time nothing follows.
    pub(super) fn note_answer(&mut self, sent_at: Option<Instant>, answer: Option<Duration>, round_trip: Duration) {
        if let Some((sent_at, answer)) = sent_at.zip(answer)
            && self.sent_at.is_none_or(|newest| newest < sent_at)
        {
            (self.sent_at, self.queued) = (Some(sent_at), answer.saturating_sub(round_trip));
        }
    }

    /// Whether a packet sent then is lost: its answer takes `round_trip` without a queue.
    fn is_lost(&self, now: Instant, sent_at: Instant, round_trip: Duration) -> bool {
        let is_overtaken = self.sent_at.is_some_and(|newest| sent_at + ORDERED <= newest);
        is_overtaken && sent_at + round_trip + self.queued + ALLOWANCE <= now
    }
}

impl WakeControl {
    /// Puts the connections whose attempts were overtaken back.
    pub(super) fn put_back_overtaken(&mut self, now: Instant, path: &impl FlowTable) {
        let Some(waking) = &mut self.waking else { return };
        let is_to_be_checked = waking.path == Path::Proven && !waking.queue.is_empty();
        if !is_to_be_checked || now < waking.overtaking.checked_at + CHECK_EVERY {
            return;
        }
        waking.overtaking.checked_at = now;
        let overtaking = waking.overtaking;
        let mut lost = Vec::new();
        for &connection in &waking.in_flight {
            let state = self.connections.get(&connection).filter(|state| !state.may_be_done());
            let Some(attempt) = state.and_then(|state| state.attempt) else { continue };
            let Some(flow) = path.snapshot(connection) else { continue };
            let round_trip = flow.least_round_trip().unwrap_or(UNKNOWN_ROUND_TRIP);
            let sent_at = attempt.last_sent_at(&flow);
            lost.extend(sent_at.filter(|&at| overtaking.is_lost(now, at, round_trip)).map(|_| connection));
        }
        for connection in lost {
            let is_tried = self.is_tried(connection);
            if self.put_back(now, connection)
                && let Some(waking) = &mut self.waking
            {
                waking.in_flight.remove(&connection);
                if is_tried {
                    waking.shrink(now);
                }
            }
        }
    }

    /// Whether there was an attempt: what the host's TCP sends by itself says nothing about their number.
    pub(super) fn is_tried(&self, connection: Connection) -> bool {
        let attempt = self.connections.get(&connection).and_then(|state| state.attempt);
        attempt.is_some_and(|attempt| attempt.tries() > 0)
    }

    /// What was sent on a connection is lost. Returns whether its turn comes again, next: not if no other connection waits, or after several
    /// attempts.
    pub(super) fn put_back(&mut self, now: Instant, connection: Connection) -> bool {
        let Some(waking) = self.waking.as_mut().filter(|waking| !waking.queue.is_empty()) else { return false };
        let attempt = self.connections.get_mut(&connection).and_then(|state| state.attempt.as_mut());
        let Some(attempt) = attempt.filter(|attempt| attempt.may_be_repeated()) else { return false };
        attempt.put_back(now);
        waking.queue.push_front(connection);
        self.schedule(connection);
        true
    }

    /// The host's TCP has sent its data on these connections since the link's return: of many, they are in flight.
    pub(super) fn await_what_was_sent(&mut self, now: Instant, sent: &[Connection], path: &impl FlowTable) {
        if !self.waking.as_ref().is_some_and(Waking::are_many) {
            return;
        }
        for &connection in sent {
            let Some(flow) = path.snapshot(connection) else { continue };
            let awaited_at = self.awaited_answer_at(now, connection, &flow);
            let attempt = self.connections.get_mut(&connection).and_then(|state| state.attempt.as_mut());
            let Some((waking, (attempt, awaited_at))) = self.waking.as_mut().zip(attempt.zip(awaited_at)) else {
                continue;
            };
            attempt.wait_until(awaited_at);
            waking.queue.retain(|&other| other != connection);
            waking.in_flight.insert(connection);
            self.schedule(connection);
        }
    }
}
