//! What a supervisor host knows of one connection, and what it does to the two halves.

use std::collections::VecDeque;

use holdover_base::{Duration, Instant};
use holdover_filter::{Action, Connection};
use holdover_tcp::{AfterRetransmit, Timer};
use holdover_wire::{Segment, Seq};

use super::{MTcp, MTcpConfig};
use crate::split::{Side, Split};

/// So many segments leave at once when the mobile host is back; the rest follow as in slow start.
pub(super) const RESTART_SEGMENTS: u32 = 4;

/// What M-TCP's *mtb* holds: the state of both halves of a connection.
#[derive(Clone, Default, Debug)]
pub(super) struct Flow {
    /// Where data begin, as each half numbers what it receives.
    pub(super) received_from: [Option<Seq>; 2],
    /// The same of what it sends.
    pub(super) sent_from: [Option<Seq>; 2],
    /// How far each half has acknowledged.
    pub(super) point: [Option<Seq>; 2],
    /// The fixed host's window is shut (SHRUNK).
    pub(super) shrunk: bool,
    /// The end of what the fixed host has sent since its window was reopened (RECOVERING).
    pub(super) recovering: Option<Seq>,
    /// Enough is acknowledged for a byte to be held back.
    pub(super) holds: bool,
    /// The byte that is held back may be shown: no more is expected.
    pub(super) shows_all: bool,
    pub(super) wintimer_at: Option<Instant>,
    /// When the byte that is held back is shown, if nothing comes before.
    pub(super) flush_at: Option<Instant>,
    /// When each was last told again what it had been told already.
    pub(super) reminded_at: [Option<Instant>; 2],
    /// When the next persist packet goes to the mobile host, and the pause after it (FROZEN).
    pub(super) persist: Option<(Instant, Duration)>,
    /// Whether the last segment that came on each side was data that is not to be acknowledged yet.
    pub(super) data_came: [bool; 2],
    /// What each was told last: an ACK number and a window field.
    pub(super) said: [Option<(Seq, u16)>; 2],
    /// The largest congestion window towards the mobile host so far, in segments.
    pub(super) cwnd: u32,
    /// How many times the connection was handed on.
    pub(super) epoch: u32,
    /// The end of what other supervisor hosts have sent on each half, and whether that ends with a FIN, while this one has not come
    /// that far: ACKs of it may come.
    pub(super) ahead: [Option<(Seq, bool)>; 2],
    pub(super) due: Option<Instant>,
}

/// The least time between two answers to what was acknowledged already: shorter than any retransmission timeout.
const REMINDER: Duration = Duration::from_millis(100);

impl Flow {
    /// When the half towards the mobile host takes it for gone: when its retransmission timer expires.
    pub(super) fn silent_at(&self, connection: Connection, split: &Split) -> Option<Instant> {
        let half = split.half(connection, Side::Mobile).filter(|half| half.state().is_synchronized())?;
        half.deadline(Timer::Retransmit)
    }

    /// When there is something to do, if nothing comes before.
    pub(super) fn next_deadline(&self, connection: Connection, split: &Split) -> Option<Instant> {
        let persist = self.persist.map(|(at, _)| at);
        [self.wintimer_at, self.flush_at, persist, self.silent_at(connection, split)].into_iter().flatten().min()
    }

    /// A segment has come, where `expected` was due next: whether it is to be acknowledged at once.
    pub(super) fn note_arrival(
        &mut self,
        now: Instant,
        from: Side,
        segment: &Segment,
        expected: Option<Seq>,
        has_sack: bool,
    ) {
        let is_shrunk = self.shrunk && from == Side::Fixed;
        let point = self.point[from as usize];
        let is_premature = expected.is_some_and(|expected| match segment.seq {
            // It was acknowledged already: the ACK may be lost. One answer does; three would be taken for duplicates.
            seq if point.is_some_and(|point| seq.lt(point)) => {
                let at = &mut self.reminded_at[from as usize];
                let is_fresh = at.is_some_and(|at| now.saturating_since(at) < REMINDER);
                if !is_fresh {
                    *at = Some(now);
                }
                is_fresh
            }
            seq if seq == expected => !(is_shrunk && segment.payload.len() <= 1),
            // Sent again because its ACK waits for the far end. If the window is shut, its sender does not know that yet.
            seq if seq.lt(expected) => !is_shrunk,
            // Beyond a gap: SACK blocks tell of it, and an ACK of less than what has come does not.
            _ => !has_sack,
        });
        self.data_came[from as usize] = is_premature && !segment.payload.is_empty();
    }

    /// Where both directions begin, once both halves are open. Until then nothing is acknowledged.
    pub(super) fn find_beginnings(&mut self, connection: Connection, split: &mut Split) {
        for side in Side::BOTH {
            let at = side as usize;
            let Some(half) = split.half(connection, side) else { continue };
            let has_begun = half.state() != holdover_tcp::State::SynSent && !half.is_closed();
            let (rcv_nxt, snd_una, is_open) = (half.rcv_nxt(), half.snd_una(), half.state().is_synchronized());
            if has_begun && self.received_from[at].is_none() {
                self.received_from[at] = Some(rcv_nxt);
                self.point[at] = Some(rcv_nxt);
                if let Some(half) = split.half_mut(connection, side) {
                    half.hold_ack_point(Some(rcv_nxt));
                }
            }
            if is_open && self.sent_from[at].is_none() {
                self.sent_from[at] = Some(snd_una);
            }
        }
    }

    /// How far the half on `side` may acknowledge: what the other half has got acknowledged, in the numbers of this one.
    pub(super) fn end_to_end(&self, connection: Connection, split: &Split, side: Side) -> Option<Seq> {
        let other = side.other();
        let half = split.half(connection, other)?;
        // Modulo 2^32, like the numbers themselves: a connection may carry more.
        let delivered = half.snd_una().value().wrapping_sub(self.sent_from[other as usize]?.value());
        Some(self.received_from[side as usize]? + delivered)
    }

    pub(super) fn acknowledge(&mut self, connection: Connection, split: &mut Split, side: Side, held_after_bytes: u32) {
        let at = side as usize;
        let Some(end) = self.end_to_end(connection, split, side) else { return };
        let (Some(from), Some(before)) = (self.received_from[at], self.point[at]) else { return };
        let mut point = end;
        if side == Side::Fixed {
            let Some(half) = split.half(connection, side) else { return };
            let is_last = !half.state().may_receive() && half.rcv_nxt() == end;
            self.holds |= end.saturating_since(from) > held_after_bytes;
            if self.holds && !self.shows_all && !self.shrunk && !is_last {
                point = end - 1;
            }
            if let Some(seen) = self.recovering {
                point = point.min(seen);
                if seen.ge(half.rcv_nxt()) {
                    self.recovering = None;
                }
            }
        }
        if point.gt(before) {
            self.point[at] = Some(point);
            if let Some(half) = split.half_mut(connection, side) {
                half.hold_ack_point(Some(point));
                half.send_acks(1);
            }
        }
    }

    /// The three cases of the paper (section 5.3.2).
    pub(super) fn handle_wintimer(
        &mut self,
        now: Instant,
        connection: Connection,
        split: &mut Split,
        actions: &mut VecDeque<Action>,
    ) {
        let Some(end) = self.end_to_end(connection, split, Side::Fixed) else { return };
        let Some(half) = split.half(connection, Side::Fixed) else { return };
        if self.shrunk || self.point[Side::Fixed as usize] == Some(end) {
            // Nothing is held back: a window of zero would be ignored.
        } else if half.rcv_nxt() == end {
            // The fixed host may have nothing more to send: it is not to wait for the last byte.
            self.shows_all = true;
        } else {
            self.choke(now, connection, split, actions);
        }
    }

    /// Acknowledges all that the mobile host has, with a window of zero.
    pub(super) fn choke(
        &mut self,
        now: Instant,
        connection: Connection,
        split: &mut Split,
        actions: &mut VecDeque<Action>,
    ) {
        let Some(end) = self.end_to_end(connection, split, Side::Fixed) else { return };
        if self.shrunk || self.point[Side::Fixed as usize] == Some(end) {
            return;
        }
        (self.shrunk, self.recovering, self.wintimer_at) = (true, None, None);
        self.point[Side::Fixed as usize] = Some(end);
        if let Some(half) = split.half_mut(connection, Side::Fixed) {
            half.clamp_window(Some(0));
            half.hold_ack_point(Some(end));
            half.send_acks(1);
            actions.push_back(Action { at: now, connection, mechanism: MTcp::NAME, what: "shrank the window" });
        }
    }

    pub(super) fn reopen(
        &mut self,
        now: Instant,
        connection: Connection,
        split: &mut Split,
        pulls_back: bool,
        actions: &mut VecDeque<Action>,
    ) {
        self.shrunk = false;
        self.recovering = self.point[Side::Fixed as usize].filter(|_| pulls_back);
        if let Some(half) = split.half_mut(connection, Side::Fixed) {
            half.clamp_window(None);
            half.send_acks(1);
            actions.push_back(Action { at: now, connection, mechanism: MTcp::NAME, what: "reopened the window" });
        }
    }

    pub(super) fn freeze(
        &mut self,
        now: Instant,
        connection: Connection,
        split: &mut Split,
        config: &MTcpConfig,
        actions: &mut VecDeque<Action>,
    ) {
        if let Some(half) = split.half_mut(connection, Side::Mobile) {
            half.hold_timer(now, Timer::Retransmit);
        }
        if self.persist.is_none() {
            let pause = config.persist_least.min(config.persist_most);
            self.persist = Some((now + pause, (pause * 2).min(config.persist_most)));
            actions.push_back(Action { at: now, connection, mechanism: MTcp::NAME, what: "froze" });
        }
        self.choke(now, connection, split, actions);
    }

    pub(super) fn thaw(
        &mut self,
        now: Instant,
        connection: Connection,
        split: &mut Split,
        resends: bool,
        actions: &mut VecDeque<Action>,
    ) {
        let was_frozen = self.persist.take().is_some();
        let cwnd = self.cwnd;
        let Some(half) = split.half_mut(connection, Side::Mobile) else { return };
        if was_frozen {
            half.release_timer(now, Timer::Retransmit);
            actions.push_back(Action { at: now, connection, mechanism: MTcp::NAME, what: "thawed" });
        }
        if resends && half.retransmit_now(now, AfterRetransmit::Reset) {
            self.cwnd = cwnd.min(RESTART_SEGMENTS);
            half.set_cwnd(self.cwnd);
            half.set_ssthresh(cwnd.max(2));
        }
    }
}
