//! One direction of a connection's data, and what the sender of the data is shown of its ACKs.

use holdover_base::{Duration, Instant};
use holdover_wire::{Flags, Packet, Segment, Seq, TcpOptions};

use super::WakeConfig;
use crate::ack_train::AckTrain;
use crate::connections::Connection;
use crate::echo_clock::is_older;
use crate::hold_back::{self, HoldBackConfig};
use crate::observations::{AckKind, Observed};
use crate::round_trip::RoundTrip;
use crate::{Direction, Injected, Verdict, release, unreachable_poke};

/// A direction of data is under way if some came within this time before the host was told of the cut, which may be long after
/// it (a missed beacon, a modem that asks again).
const UNDER_WAY: Duration = Duration::from_secs(10);

/// Nothing more is on its way if nothing has come for so long, and for as long as three ACKs take.
const LEAST_QUIET: Duration = Duration::from_millis(5);

/// Data in one direction, and its ACKs in the other.
#[derive(Clone, Debug, Default)]
pub(super) struct Half {
    pub(super) observed: Observed,
    pub(super) flush_at: Option<Instant>,
    /// What the sender had been shown before a flush that no data has followed: the link may have been down already.
    flushed_from: Option<Seq>,
    /// Nothing is held before so many bytes have been acknowledged.
    hold_from: u64,
    /// It was transferring when the link broke, and was not released yet.
    pub(super) is_waiting: bool,
    /// It was transferring when the link broke the last time.
    was_waiting: bool,
    /// When the link broke, all that the sender had sent had arrived, and no ACK of a whole window had gone.
    is_drained: bool,
    /// The sender has been shown less of the window than there is.
    pub(super) is_drawn_in: bool,
    /// The ACKs of a stall.
    pub(super) train: AckTrain,
    /// Where the data ends that had arrived when they began to go.
    train_end: Option<Seq>,
    /// The newest TSval from before the outage: its echoes are refreshed.
    pub(super) stale: Option<u32>,
    pub(super) poke: Option<Poking>,
    /// What the sender had been shown when the link broke: later ACKs died with it.
    shown_at_cut: Seq,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Poking {
    next_at: Instant,
    left: u8,
}

/// What was done for a sender at link-up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Outcome {
    Nothing,
    /// The ACKs of a window that has arrived go one by one from now on.
    Clocked,
    Released,
    Poked,
}

impl Half {
    pub(super) fn deadlines(&self) -> impl Iterator<Item = Instant> {
        [self.flush_at, self.poke.map(|poke| poke.next_at), self.train.next_at()].into_iter().flatten()
    }

    /// The link breaks: is something under way, or still waiting since the last time?
    pub(super) fn note_cut(&mut self, now: Instant, up_at: Option<Instant>, direction: Direction, is_stalled: bool) {
        (self.flush_at, self.stale, self.poke) = (None, None, None);
        self.observed.forget_pending();
        let Some(data_at) = self.observed.last_data_at else { return };
        let since_data = now.saturating_since(data_at);
        let is_recent = match direction {
            Direction::Outgoing => since_data <= UNDER_WAY,
            Direction::Incoming => since_data <= UNDER_WAY || self.observed.has_outstanding(),
        };
        let nothing_came = self.was_waiting && up_at.is_some_and(|up_at| data_at < up_at);
        self.is_waiting = is_recent || nothing_came;
        self.was_waiting = self.is_waiting;
        if !nothing_came {
            self.shown_at_cut = self.flushed_from.unwrap_or(self.observed.shown());
        }
        let has_arrived = match direction {
            Direction::Outgoing => since_data >= LEAST_QUIET.max(self.train.spacing() * 3),
            Direction::Incoming => self.observed.is_all_acknowledged(),
        };
        let is_drained = is_stalled && has_arrived && !self.observed.has_hole();
        self.is_drained = self.train.is_waiting() && (is_drained || nothing_came && self.is_drained);
        if !self.is_drained {
            self.train.cancel();
        }
    }

    /// The link did not break, or later than foretold: what was stalled is let go.
    pub(super) fn end_stall(
        &mut self,
        now: Instant,
        round_trip: &RoundTrip,
        connection: Connection,
        direction: Direction,
    ) -> Option<Injected> {
        if self.train.is_waiting() {
            self.depart(now, round_trip);
            return None;
        }
        let flushed = self.flush(now, connection, direction);
        flushed.or_else(|| Some(Injected { direction, packet: self.reopen(connection, direction)? }))
    }

    /// From now on the ACKs of the stall go, within a round trip without queues.
    fn depart(&mut self, now: Instant, round_trip: &RoundTrip) {
        self.train_end = self.observed.acked();
        if let Some(acked) = self.train_end {
            self.train.append(acked);
        }
        self.train.depart(now, round_trip.least());
    }

    /// The next ACK of the stall, if it is due. The one of the last data goes twice: a sender that has sent that data again as a
    /// tail loss probe takes a single ACK for a sign that the probe has repaired a loss (RFC 8985 section 7.4.2).
    pub(super) fn next_of_train(
        &mut self,
        now: Instant,
        connection: Connection,
        direction: Direction,
    ) -> impl Iterator<Item = Injected> + use<> {
        let due = self.train.take_due(now).filter(|ack| ack.gt(self.observed.shown()));
        let packet = due.and_then(|ack| self.observed.ack_up_to(ack, connection.of_sender_going(direction)));
        let mut copies = 0;
        if let (Some(ack), Some(_)) = (due, &packet) {
            self.observed.show(now, ack);
            self.is_drawn_in = false;
            copies = 1 + usize::from(self.train_end.take_if(|end| ack.ge(*end)) == Some(ack));
        }
        core::iter::repeat_n(packet, copies).flatten().map(move |packet| Injected { direction, packet })
    }

    /// Data passes.
    pub(super) fn note_data(&mut self, now: Instant, segment: &Segment) {
        self.observed.note_data(now, segment);
        if !segment.payload.is_empty() {
            self.flushed_from = None;
        }
    }

    /// How far the sender may be shown this ACK while the link is well.
    pub(super) fn limit(&self, config: &HoldBackConfig, kind: AckKind, segment: &Segment) -> Option<Seq> {
        let may_hold = self.observed.bytes_acked >= self.hold_from;
        may_hold.then(|| hold_back::limit(config, &self.observed, kind, segment)).flatten()
    }

    /// The sender is shown an ACK up to `limit`, or all of it.
    pub(super) fn show(
        &mut self,
        now: Instant,
        kind: AckKind,
        limit: Option<Seq>,
        is_up: bool,
        segment: &mut Segment,
    ) -> Verdict {
        let exempt = kind == AckKind::Other || segment.flags.intersects(Flags::SYN | Flags::FIN | Flags::RST);
        match limit {
            Some(limit) if !exempt => {
                let limit = limit.max(self.observed.shown());
                // An ACK that says nothing more than the last would pass for a duplicate.
                if segment.payload.is_empty() && limit == self.observed.shown() && !has_more_to_say(&segment.options) {
                    return Verdict::Drop;
                }
                self.observed.lower_ack(segment, limit);
                self.observed.show(now, segment.ack);
            }
            _ if kind == AckKind::Other => {}
            // It goes into a dead link.
            _ if !is_up => {}
            _ => {
                self.train.cancel();
                self.is_drawn_in = false;
                self.observed.show(now, segment.ack);
            }
        }
        Verdict::Pass
    }

    /// Whether an ACK that advances may be the last before a stall.
    pub(super) fn may_be_drawn_in(&self) -> bool {
        !self.is_drawn_in && !self.observed.has_hole() && self.observed.knows_window_scale()
    }

    /// The last ACK before a stall: the window that it offers ends soon after, so that a tail loss probe (RFC 8985) repeats what
    /// has arrived, and does not lose a new segment in the outage.
    pub(super) fn draw_in(&mut self, segment: &mut Segment) {
        self.is_drawn_in = true;
        self.observed.draw_in(segment);
    }

    /// What the receiver says now, if the sender has been shown less of the window than there is.
    fn reopen(&mut self, connection: Connection, direction: Direction) -> Option<Packet> {
        let acked = self.observed.acked().filter(|_| core::mem::take(&mut self.is_drawn_in))?;
        self.observed.ack_up_to(acked.min(self.observed.shown()), connection.of_sender_going(direction))
    }

    /// The sender may be waiting for what is held.
    pub(super) fn flush(&mut self, now: Instant, connection: Connection, direction: Direction) -> Option<Injected> {
        let acked = self.observed.acked().filter(|_| self.observed.is_held())?;
        let packet = self.observed.ack_up_to(acked, connection.of_sender_going(direction))?;
        self.flushed_from = Some(self.observed.shown());
        self.hold_from = hold_back::resume_after_flush(&self.observed, acked - self.observed.shown());
        self.observed.show(now, acked);
        self.is_drawn_in = false;
        Some(Injected { direction, packet })
    }

    /// An echo from before the outage is taken for a proof that nothing was lost.
    pub(super) fn refresh(&self, now: Instant, direction: Direction, segment: &mut Segment) {
        let (Some(stale), Some(timestamps)) = (self.stale, &mut segment.options.timestamps) else { return };
        if is_older(stale, timestamps.ecr) {
            return;
        }
        if let Some(echo) = release::fresh_echo(&self.observed, direction, now) {
            timestamps.ecr = echo;
        }
    }

    /// The link is back. Returns ACKs to send, and what was done.
    pub(super) fn wake(
        &mut self,
        config: &WakeConfig,
        round_trip: &RoundTrip,
        (connection, direction): (Connection, Direction),
        (cut_at, now): (Instant, Instant),
    ) -> (Vec<Packet>, Outcome) {
        let is_held = self.observed.is_held();
        let waits = core::mem::take(&mut self.is_waiting);
        if !waits {
            self.train.cancel();
            return (self.reopen(connection, direction).into_iter().collect(), Outcome::Nothing);
        }
        if self.is_drained && self.train.is_waiting() {
            // Their echoes are as they were: they prove what is true, that the sender's timeout was spurious.
            self.depart(now, round_trip);
            return (Vec::new(), Outcome::Clocked);
        }
        let may_be_lost = direction == Direction::Outgoing && config.holds();
        let packets = if is_held || may_be_lost || self.is_drawn_in {
            self.is_drawn_in = false;
            // What was flushed after the last data may have gone into a link that was down already.
            let last_heard = self.observed.last_data_at.map_or(cut_at, |data_at| data_at.min(cut_at));
            let lost_after = last_heard - config.release.ladder.max(round_trip.least().unwrap_or_default() / 2);
            release::acks(&config.release, &self.observed, connection, direction, (lost_after, now))
        } else {
            Vec::new()
        };
        if config.release.refresh_timestamps && config.holds() {
            self.stale = self.observed.clock.newest();
        }
        if let Some(acked) = self.observed.acked() {
            self.observed.show(now, acked);
        }
        if is_held {
            return (packets, Outcome::Released);
        }
        // Whether the far sender has anything outstanding cannot be seen from here.
        let may_need_it = direction == Direction::Outgoing || self.observed.has_outstanding();
        match &config.unreachable_poke {
            Some(poke) if may_need_it && poke.copies > 0 => {
                self.poke = Some(Poking { next_at: now, left: poke.copies });
                (packets, Outcome::Poked)
            }
            _ => (packets, Outcome::Nothing),
        }
    }

    /// The next message to a sender that has backed off, if it is due.
    pub(super) fn poke(
        &mut self,
        now: Instant,
        every: Duration,
        connection: Connection,
        direction: Direction,
    ) -> Option<Injected> {
        let poking = self.poke.as_mut().filter(|poking| poking.next_at <= now && poking.left > 0)?;
        poking.left -= 1;
        poking.next_at = now + every;
        if poking.left == 0 {
            self.poke = None;
        }
        let packet = unreachable_poke::message(connection, direction, self.shown_at_cut)?;
        Some(Injected { direction, packet })
    }
}

/// Whether there is an option that no later ACK repeats.
fn has_more_to_say(options: &TcpOptions) -> bool {
    options.user_timeout.is_some() || options.experimental.is_some() || options.unknown > 0
}
