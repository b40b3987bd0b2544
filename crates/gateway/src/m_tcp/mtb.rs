//! The state of one connection at a supervisor host, and actions on its two halves.

use std::collections::VecDeque;

use holdover_base::{Duration, Instant};
use holdover_filter::{Action, Connection};
use holdover_tcp::{AfterRetransmit, Timer};
use holdover_wire::{Segment, Seq, SeqRange};

use super::{MTcp, MTcpConfig};
use crate::split::{Side, Split};

/// The segments sent at once when the mobile host is back; the rest follow as in slow start.
pub(super) const RESTART_SEGMENTS: u32 = 4;

/// M-TCP's *mtb*: the state of both halves of a connection. NOSHRINK is the state without the others.
#[derive(Clone, Default, Debug)]
pub(super) struct Mtb {
    /// Where received data begins, in each half's numbers.
    pub(super) received_from: [Option<Seq>; 2],
    /// Where sent data begins.
    pub(super) sent_from: [Option<Seq>; 2],
    /// The ACK point of each half.
    pub(super) point: [Option<Seq>; 2],
    /// The fixed host's window is shut (SHRUNK).
    pub(super) shrunk: bool,
    /// The end of the fixed host's data since its window was reopened (RECOVERING).
    pub(super) recovering: Option<Seq>,
    /// Enough data is acknowledged to hold a byte back.
    pub(super) holds: bool,
    /// The held byte may be shown: no more data is expected.
    pub(super) shows_all: bool,
    pub(super) wintimer_at: Option<Instant>,
    /// When the held byte is shown, if nothing arrives before.
    pub(super) flush_at: Option<Instant>,
    /// When each end was last sent a repeated ACK.
    pub(super) reminded_at: [Option<Instant>; 2],
    /// When the next persist packet is sent to the mobile host, and the interval after it (FROZEN).
    pub(super) persist: Option<(Instant, Duration)>,
    /// The beginning of the gap that each end was last told of by duplicate ACKs.
    pub(super) gap_reported: [Option<Seq>; 2],
    /// Whether the last segment from each side was data that must not be acknowledged yet.
    pub(super) data_came: [bool; 2],
    /// The last ACK number and window field sent to each end.
    pub(super) shown: [Option<(Seq, u16)>; 2],
    /// The largest congestion window towards the mobile host so far, in segments.
    pub(super) cwnd: u32,
    /// The end of the data that other supervisor hosts have sent on each half, and whether it ends with a FIN, until
    /// this one has reached it: ACKs of it may arrive.
    pub(super) ahead: [Option<(Seq, bool)>; 2],
    pub(super) due: Option<Instant>,
}

/// The shortest interval between repeated ACKs: shorter than any retransmission timeout.
const REMINDER: Duration = Duration::from_millis(100);

/// How many duplicate ACKs a sender takes for a loss, and how many segments have to wait beyond a gap (RFC 5681 section 3.2).
const DUPLICATES: u8 = 3;

impl Mtb {
    /// When the half towards the mobile host regards it as gone: at the expiry of its retransmission timer.
    pub(super) fn silent_at(&self, connection: Connection, split: &Split) -> Option<Instant> {
        let half = split.half(connection, Side::Mobile).filter(|half| half.state().is_synchronized())?;
        half.deadline(Timer::Retransmit)
    }

    /// The next deadline, if nothing arrives before.
    pub(super) fn next_deadline(&self, connection: Connection, split: &Split) -> Option<Instant> {
        let persist = self.persist.map(|(at, _)| at);
        [self.wintimer_at, self.flush_at, persist, self.silent_at(connection, split)].into_iter().flatten().min()
    }

    /// Handles a segment that arrives when `expected` is due: returns whether to acknowledge it at once.
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
            // It was already acknowledged: the ACK may be lost. One answer suffices; three would be taken for
            // duplicates.
            seq if point.is_some_and(|point| seq.lt(point)) => {
                let at = &mut self.reminded_at[from as usize];
                let is_fresh = at.is_some_and(|at| now.saturating_since(at) < REMINDER);
                if !is_fresh {
                    *at = Some(now);
                }
                is_fresh
            }
            seq if seq == expected => !(is_shrunk && segment.payload.len() <= 1),
            // A retransmission, because its ACK waits for the far end. If the window is shut, its sender does not know
            // that yet.
            seq if seq.lt(expected) => !is_shrunk,
            // Beyond a gap: SACK blocks report it, and an ACK below the received data does not ([`Self::acknowledge`]).
            _ => !has_sack,
        });
        self.data_came[from as usize] = is_premature && !segment.payload.is_empty();
    }

    /// Sets where both directions begin, once both halves are open. Nothing is acknowledged before that.
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

    /// How far the half on `side` may acknowledge: up to the data that the far end has acknowledged to the other half,
    /// in this one's numbers.
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
        let gap = split.half(connection, side).is_some_and(|half| half.rcv_nxt() == end && is_beyond_a_gap(half));
        if side == Side::Fixed {
            let Some(half) = split.half(connection, side) else { return };
            let is_last = !half.state().may_receive() && half.rcv_nxt() == end;
            self.holds |= end.saturating_since(from) > held_after_bytes;
            if self.holds && !gap && !self.shows_all && !self.shrunk && !is_last {
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
        let is_shut = side == Side::Fixed && self.shrunk;
        if gap && self.gap_reported[at] != Some(end) && self.point[at] == Some(end) && !is_shut {
            self.gap_reported[at] = Some(end);
            if let Some(half) = split.half_mut(connection, side) {
                half.send_acks(DUPLICATES);
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
            // Nothing is held back: the sender would ignore a zero window.
        } else if half.rcv_nxt() == end {
            // The fixed host may have no more data to send: it must not wait for the ACK of the last byte.
            self.shows_all = true;
        } else {
            self.choke(now, connection, split, actions);
        }
    }

    /// Acknowledges everything that the mobile host has, with a zero window.
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

/// Whether so much data waits beyond a gap that a receiver without SACK would have sent [`DUPLICATES`] duplicate ACKs.
fn is_beyond_a_gap(half: &holdover_tcp::Connection) -> bool {
    let waiting: u32 = half.ranges_out_of_order().map(SeqRange::len).sum();
    !half.sack_agreed() && waiting >= u32::from(DUPLICATES) * half.rcv_mss()
}
