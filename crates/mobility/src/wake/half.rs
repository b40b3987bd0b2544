//! One direction of a connection's data: actions for its sender before, at and after a cut.

use holdover_base::{Duration, Instant};
use holdover_flow::{Flow, FlowTable, Half as FlowHalf, Order};
use holdover_wire::{Packet, Seq};

use super::at::At;
use super::attempt::Path;
use super::{OwnData, WakeConfig};
use crate::ack_train::AckTrain;
use crate::echo_clock::EchoClock;
use crate::release::{Beyond, Extent, Lost};
use crate::unreachable_poke::{self, Pacing};
use crate::{Direction, Injected, hold_back, release};

/// Data counts as in flight if some arrived within this time before the host learnt of the cut, which may be long after
/// it (a missed beacon, a modem that retries).
pub(super) const UNDER_WAY: Duration = Duration::from_secs(10);

/// The duplicates that indicate a loss to a sender; the first of them may acknowledge something.
const DUPLICATES: usize = 4;

/// The number of messages to a backed-off sender while many wait. Its last retransmission was at a random time between
/// half of its timeout ago and all of it, or longer: with each doubling taken back, half of those that were not due yet
/// become due.
const CROWD_COPIES: u8 = 4;

/// When the messages to the host's own TCP are repeated.
const OWN_TCP_AGAIN: Duration = Duration::from_millis(5);

/// No more data is in flight if none has arrived for this long, and for the time of three ACKs.
const LEAST_QUIET: Duration = Duration::from_millis(5);

/// The controller's state of data in one direction and its ACKs in the other. [`FlowHalf`] is the flow path's.
#[derive(Clone, Debug, Default)]
pub(super) struct Half {
    /// When held ACKs are checked for a flush.
    pub(super) flush_at: Option<Instant>,
    /// The sender was shown one byte of an ACK, and the rest is due.
    pub(super) is_cut_in_two: bool,
    /// It was transferring when the link broke, and was not released yet.
    is_waiting: bool,
    /// It was transferring when the link broke the last time.
    was_waiting: bool,
    /// When the link broke, all data sent had arrived, and no ACK of a whole window had been shown.
    is_drained: bool,
    /// The link is back, and the sender is not woken yet ([`super::flapping`]).
    pub(super) is_deferred: bool,
    /// The ACKs of a stall.
    pub(super) train: AckTrain,
    /// The end of the data that had arrived when their release began.
    train_end: Option<Seq>,
    poke: Option<Poking>,
    /// ACKs that follow the messages.
    owed: Option<Owed>,
    /// The host's own TCP has data outstanding that did not pass: it was sent while the link was down.
    has_unseen: bool,
    /// It could not even send it: it waits for an ACK, or for its timer of window probes.
    has_unsent: bool,
    /// The ACK shown to the sender when the link broke: later ACKs died with it.
    shown_at_cut: Seq,
    /// The same without flushed ACKs: the first step of a release is a byte beyond it.
    step_from: Seq,
}

#[derive(Clone, Copy, Debug)]
struct Poking {
    since: Instant,
    next_at: Instant,
    left: u8,
    /// Whether a message was sent.
    has_begun: bool,
    /// Whether the next message quotes the newest byte acknowledged, and not the one shown when the link broke.
    is_of_newest: bool,
    /// Whether the link is reserved for it then.
    is_booked: bool,
}

/// ACKs for a sender with a hole, which follow the messages to it ([`Half::wake`]).
#[derive(Clone, Copy, Debug)]
struct Owed {
    times: Times,
    /// They follow at the end of the messages, or at this time, if a message was sent before.
    latest: Instant,
}

/// How long ACKs wait for the end of the messages, which those to others delay.
const OWED_FOR: Duration = Duration::from_millis(20);

/// The action for a sender at link-up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Outcome {
    Nothing,
    /// The ACKs of a window that has arrived are released one by one from now on.
    Clocked,
    Released,
    Poked,
}

/// The sender that is told that the path was down.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Sender {
    /// This host's own TCP.
    OwnTcp,
    /// A host across the network; at a gateway both are.
    Far,
}

impl Half {
    pub(super) fn deadlines(&self) -> impl Iterator<Item = Instant> {
        let owed_at = self.owed.map(|owed| owed.latest);
        [self.flush_at, self.poke.map(|poke| poke.next_at), owed_at, self.train.next_at()].into_iter().flatten()
    }

    /// Whether there is no state to keep.
    pub(super) fn is_idle(&self) -> bool {
        let waits = self.is_waiting || self.was_waiting || self.flush_at.is_some();
        !waits && self.poke.is_none() && self.owed.is_none() && !self.train.is_waiting() && !self.train.is_under_way()
    }

    /// The link breaks: notes whether data is in flight, or still waiting since the last time.
    pub(super) fn note_cut(
        &mut self,
        now: Instant,
        up_at: Option<Instant>,
        direction: Direction,
        flow: FlowHalf<'_>,
        is_stalled: bool,
    ) {
        (self.flush_at, self.poke, self.owed, self.is_cut_in_two) = (None, None, None, false);
        (self.has_unseen, self.has_unsent) = (false, false);
        let Some(data_at) = flow.last_data_at() else {
            (self.shown_at_cut, self.step_from) = (flow.shown(), flow.shown());
            return;
        };
        let since_data = now.saturating_since(data_at);
        let is_recent = match direction {
            Direction::Outgoing => since_data <= UNDER_WAY,
            Direction::Incoming => since_data <= UNDER_WAY || flow.has_outstanding(),
        };
        let nothing_came = self.was_waiting && up_at.is_some_and(|up_at| data_at < up_at);
        self.is_waiting = is_recent || nothing_came;
        self.was_waiting = self.is_waiting;
        if !nothing_came {
            // ACKs flushed long ago have arrived.
            self.shown_at_cut = flow.flushed_from().filter(|_| is_recent).unwrap_or(flow.shown());
            self.step_from = flow.shown();
        }
        let has_arrived = match direction {
            Direction::Outgoing => since_data >= LEAST_QUIET.max(self.train.spacing() * 3),
            Direction::Incoming => flow.is_all_acknowledged(),
        };
        let is_drained = is_stalled && has_arrived && !flow.has_hole();
        self.is_drained = self.train.is_waiting() && (is_drained || nothing_came && self.is_drained);
    }

    /// Whether its sender may have data, and its held ACKs were not released yet.
    pub(super) fn is_waiting(&self) -> bool {
        self.is_waiting
    }

    /// Whether it was waiting for that when the link came up.
    pub(super) fn was_waiting(&self) -> bool {
        self.was_waiting
    }

    /// Its sender may have data for the receiver by link-up.
    pub(super) fn wait(&mut self) {
        (self.is_waiting, self.was_waiting) = (true, true);
    }

    /// The host's own TCP has data that did not pass while the link was down, and waits for its timer.
    pub(super) fn wait_for_unseen(&mut self, data: OwnData) {
        self.wait();
        (self.has_unseen, self.has_unsent) = (true, data == OwnData::Unsent);
    }

    /// Whether the host's own TCP could not send data while the link was down.
    pub(super) fn has_unsent(&self) -> bool {
        self.has_unsent
    }

    /// Whether the host's own TCP has sent data while the link was down.
    pub(super) fn has_unseen(&self) -> bool {
        self.has_unseen
    }

    /// Drops stalled ACKs, unless the whole window had arrived.
    pub(super) fn drop_spoilt_train(&mut self, now: Instant, at: At, flow: FlowHalf<'_>, path: &mut impl FlowTable) {
        if !self.is_drained {
            self.cancel_train(now, at, flow, path);
        }
    }

    pub(super) fn cancel_train(&mut self, now: Instant, at: At, flow: FlowHalf<'_>, path: &mut impl FlowTable) {
        self.train.cancel();
        if flow.is_clocked() {
            path.order(now, at.connection, at.direction, Order::Clock(false));
        }
        if flow.is_recording() {
            path.order(now, at.connection, at.direction, Order::Record(false));
        }
    }

    /// The link did not break, or later than predicted: releases stalled ACKs.
    pub(super) fn end_stall(
        &mut self,
        now: Instant,
        least_round_trip: Option<Duration>,
        at: At,
        flow: FlowHalf<'_>,
        path: &mut impl FlowTable,
    ) -> Vec<Injected> {
        // Its ACKs wait for another reason than the stall.
        if self.is_deferred {
            return Vec::new();
        }
        if flow.has_hole() {
            self.cancel_train(now, at, flow, path);
            return self.say_the_hole(now, at, flow, path);
        }
        if self.train.is_waiting() {
            self.depart(now, least_round_trip, at, flow, path);
            return Vec::new();
        }
        let flushed = self.flush(now, at, flow, path);
        flushed.or_else(|| Some(at.inject(reopen(now, at, flow, path)?))).into_iter().collect()
    }

    /// The stall withheld duplicates that loss recovery needs (RFC 5681 section 3.2).
    fn say_the_hole(&self, now: Instant, at: At, flow: FlowHalf<'_>, path: &mut impl FlowTable) -> Vec<Injected> {
        if let Some(acked) = flow.acked() {
            path.order(now, at.connection, at.direction, Order::Show(acked));
        }
        let packet = flow.last_ack(at.receiver());
        core::iter::repeat_n(packet, DUPLICATES).flatten().map(|packet| at.inject(packet)).collect()
    }

    /// Starts to release the ACKs of the stall, within a round trip without queues.
    fn depart(
        &mut self,
        now: Instant,
        least_round_trip: Option<Duration>,
        at: At,
        flow: FlowHalf<'_>,
        path: &mut impl FlowTable,
    ) {
        path.order(now, at.connection, at.direction, Order::Clock(true));
        path.order(now, at.connection, at.direction, Order::Record(false));
        self.train_end = flow.acked();
        if let Some(acked) = self.train_end {
            self.train.append(acked);
        }
        self.train.depart(now, least_round_trip);
    }

    /// The next ACK of the stall, if due. The one of the last data is sent twice: a sender that has retransmitted that
    /// data as a tail loss probe takes a single ACK as a sign that the probe has repaired a loss (RFC 8985 section
    /// 7.4.2).
    pub(super) fn next_of_train<P: FlowTable>(
        &mut self,
        now: Instant,
        at: At,
        flow: FlowHalf<'_>,
        path: &mut P,
    ) -> impl Iterator<Item = Injected> + use<P> {
        let was_under_way = self.train.is_under_way();
        let due = self.train.take_due(now).filter(|ack| ack.gt(flow.shown()));
        let packet = due.and_then(|ack| flow.ack_up_to(ack, at.receiver()));
        let mut copies = 0;
        if let (Some(ack), Some(_)) = (due, &packet) {
            path.order(now, at.connection, at.direction, Order::Show(ack));
            copies = 1 + usize::from(self.train_end.take_if(|end| ack.ge(*end)) == Some(ack));
        }
        if was_under_way && !self.train.is_under_way() {
            path.order(now, at.connection, at.direction, Order::Clock(false));
        }
        core::iter::repeat_n(packet, copies).flatten().map(move |packet| at.inject(packet))
    }

    /// The sender may be waiting for held ACKs.
    pub(super) fn flush(
        &self,
        now: Instant,
        at: At,
        flow: FlowHalf<'_>,
        path: &mut impl FlowTable,
    ) -> Option<Injected> {
        let acked = flow.acked().filter(|_| flow.is_held())?;
        let packet = flow.ack_up_to(acked, at.receiver())?;
        let hold_from = hold_back::resume_after_flush(flow, acked - flow.shown());
        path.order(now, at.connection, at.direction, Order::Flush { ack: acked, hold_from });
        Some(at.inject(packet))
    }

    /// Handles link-up. Returns ACKs to send, and the action. May be called again without progress, and must be when
    /// more is known of the path.
    pub(super) fn wake(
        &mut self,
        config: &WakeConfig,
        at: At,
        connection: &Flow,
        times: Times,
        known: Path,
        path: &mut impl FlowTable,
    ) -> (Vec<Packet>, Outcome) {
        let Times { up_at, now, is_reset, .. } = times;
        if self.is_deferred {
            return (Vec::new(), Outcome::Nothing);
        }
        let (least_round_trip, flow) = (connection.least_round_trip(), connection.half(at.direction));
        let is_held = flow.is_held();
        let comes_by_itself = flow.flows_since(up_at, at.direction);
        if !self.was_waiting || comes_by_itself || is_reset {
            self.is_waiting = false;
            self.cancel_train(now, at, flow, path);
            return (reopen(now, at, flow, path).into_iter().collect(), Outcome::Nothing);
        }
        // The senders' next packets may be lost, and their next timeout reduces their windows again: a router that receives may be
        // unable to send yet (RFC 4862 section 5.4: its address is tentative).
        if known == Path::Unresolved || self.train.is_under_way() {
            return (Vec::new(), Outcome::Nothing);
        }
        let is_first = core::mem::take(&mut self.is_waiting);
        if !is_first {
            return self.wake_again(config, at, connection, times, known, path);
        }
        if self.is_drained && self.train.is_waiting() {
            // Their echoes are unchanged: they prove correctly that the sender's timeout was spurious.
            self.depart(now, least_round_trip, at, flow, path);
            return (Vec::new(), Outcome::Clocked);
        }
        if flow.is_clocked() {
            path.order(now, at.connection, at.direction, Order::Clock(false));
        }
        let is_shown_by_data = times.crowd == Crowd::WaitsAndOwnData && at.direction == Direction::Outgoing;
        if is_shown_by_data && known == Path::Proven && !is_held && !flow.is_window_shrunk() {
            return (Vec::new(), Outcome::Nothing);
        }
        if is_held {
            return (self.missed_acks(config, at, connection, times, path), Outcome::Released);
        }
        self.poke_and_repeat(config, at, connection, times, path)
    }

    /// Messages to a far sender, and the ACKs that it may have missed. If the receiver has a hole, the sender has probably received
    /// all ACKs up to it, and retransmitted it in vain: new SACK blocks alone would then make Linux undo its timeout (F-RTO), count
    /// that retransmission as in flight, and repeat it only after its timer, doubled as it is. So the messages go first, which make it
    /// repeat it, and the ACKs follow if it does not.
    fn poke_and_repeat(
        &mut self,
        config: &WakeConfig,
        at: At,
        connection: &Flow,
        times: Times,
        path: &mut impl FlowTable,
    ) -> (Vec<Packet>, Outcome) {
        let outcome = self.begin_poke(config, times, at, connection);
        let has_hole = at.direction == Direction::Outgoing && connection.half(at.direction).has_hole();
        if outcome == Outcome::Poked && has_hole {
            self.owed = Some(Owed { times, latest: times.now + OWED_FOR });
            return (Vec::new(), outcome);
        }
        (self.missed_acks(config, at, connection, times, path), outcome)
    }

    /// The ACKs that were to follow the messages, once they do. None are due if the sender goes on by then.
    pub(super) fn pay(
        &mut self,
        now: Instant,
        config: &WakeConfig,
        at: At,
        connection: &Flow,
        path: &mut impl FlowTable,
    ) -> Vec<Packet> {
        let Some(owed) = &mut self.owed else { return Vec::new() };
        if self.poke.is_some_and(|poke| !poke.has_begun || now < owed.latest) {
            // Looked at again with the next message.
            owed.latest = owed.latest.max(self.poke.map_or(now, |poke| poke.next_at));
            return Vec::new();
        }
        let times = Times { now, ..owed.times };
        self.owed = None;
        if connection.half(at.direction).flows_since(times.up_at, at.direction) {
            return Vec::new();
        }
        self.missed_acks(config, at, connection, times, path)
    }

    /// The earlier action has had no answer. The host's own TCP has received its held ACKs; a far sender may not have.
    fn wake_again(
        &mut self,
        config: &WakeConfig,
        at: At,
        connection: &Flow,
        times: Times,
        known: Path,
        path: &mut impl FlowTable,
    ) -> (Vec<Packet>, Outcome) {
        match (at.direction, known) {
            (Direction::Outgoing, Path::Proven) => self.poke_and_repeat(config, at, connection, times, path),
            (Direction::Incoming, Path::Proven) => (Vec::new(), self.begin_poke(config, times, at, connection)),
            // Another lost retransmission doubles the sender's timeout again.
            (Direction::Outgoing, _) => (self.missed_acks(config, at, connection, times, path), Outcome::Nothing),
            (Direction::Incoming, _) => (Vec::new(), Outcome::Nothing),
        }
    }

    /// Every ACK that the sender may have missed, so that it gets new information.
    fn missed_acks(
        &mut self,
        config: &WakeConfig,
        at: At,
        connection: &Flow,
        times: Times,
        path: &mut impl FlowTable,
    ) -> Vec<Packet> {
        let Times { cut_at, now, .. } = times;
        let flow = connection.half(at.direction);
        let clock = clock_of(flow);
        let echo = fresh_echo(config, at.direction, connection, &clock, now);
        let may_be_lost = at.direction == Direction::Outgoing && config.holds();
        let packets = if flow.is_held() || may_be_lost || flow.is_window_shrunk() {
            path.order(now, at.connection, at.direction, Order::Reopened);
            self.release(config, at, connection, (cut_at, now), Extent::All)
        } else {
            Vec::new()
        };
        if config.holds()
            && let (Some(stale), Some(value), Some(ticks_per_sec)) =
                (connection.newest_stamp(at.direction), echo, clock.ticks_per_sec())
        {
            path.order(now, at.connection, at.direction, Order::Refresh { stale, value, ticks_per_sec });
        }
        if let Some(acked) = flow.acked() {
            path.order(now, at.connection, at.direction, Order::Show(acked));
        }
        packets
    }

    /// The ACKs of a release. Those that the sender may have missed because of a cut at `cut_at` are repeated.
    fn release(
        &self,
        config: &WakeConfig,
        at: At,
        connection: &Flow,
        (cut_at, now): (Instant, Instant),
        extent: Extent,
    ) -> Vec<Packet> {
        let flow = connection.half(at.direction);
        // ACKs flushed after the last data may have gone into a broken link.
        let last_heard = flow.last_data_at().map_or(cut_at, |data_at| data_at.min(cut_at));
        let beyond = connection.round_trip_beyond().map(|_| Beyond { echo: answered_echo(connection, at, cut_at) });
        // A gateway's steps below the sender's SND.UNA cost nothing, and ACKs may be queued at the link.
        let round_trip =
            if beyond.is_some() { connection.smoothed_round_trip() } else { connection.least_round_trip() };
        let on_their_way = round_trip.unwrap_or_default() / 2 + release::LADDER_MARGIN;
        let lost_after = last_heard - config.release.ladder.max(on_their_way);
        let echo = fresh_echo(config, at.direction, connection, &clock_of(flow), now)
            .or(config.release.refresh_timestamps.then_some(release::NO_ECHO));
        let lost = Lost { after: lost_after, last: self.step_from, beyond };
        release::acks(&config.release, flow, at.connection, at.direction, lost, extent, echo)
    }

    /// The release to a far sender that has been silent since `silent_since`, as a probe of a path that may be down: it changes no
    /// state, and leaves one byte to acknowledge later. Empty if the sender has had everything, or was not transferring.
    pub(super) fn release_as_probe(
        mut self,
        config: &WakeConfig,
        at: At,
        connection: &Flow,
        up_at: Option<Instant>,
        (silent_since, now): (Instant, Instant),
    ) -> Vec<Packet> {
        let flow = connection.half(at.direction);
        self.note_cut(silent_since, up_at, at.direction, flow, false);
        // The flush after the last data went into the silence.
        self.step_from = self.shown_at_cut;
        let unshown = flow.acked().map_or(0, |acked| acked.saturating_since(self.shown_at_cut));
        if !self.is_waiting || flow.is_reset() || unshown <= 1 {
            return Vec::new();
        }
        self.release(config, at, connection, (silent_since, now), Extent::AllButOneByte)
    }

    /// Reports to a sender that may have backed off that the path was down.
    pub(super) fn begin_poke(&mut self, config: &WakeConfig, times: Times, at: At, connection: &Flow) -> Outcome {
        let Times { now, crowd, .. } = times;
        let flow = connection.half(at.direction);
        // Linux ends a connection in SYN-SENT by it (`tcp_v4_err`). An end that is past that has acknowledged something; and the
        // byte to quote is known by an ACK of its data.
        let is_open = Direction::BOTH.into_iter().all(|direction| connection.half(direction).acked().is_some());
        // The far sender's outstanding data cannot be seen from here.
        let may_need_it = at.direction == Direction::Outgoing || flow.has_outstanding() || self.has_unseen;
        match &config.unreachable_poke {
            Some(poke) if is_open && may_need_it && poke.copies > 0 => {
                // Messages to the host itself do not use the link.
                let left = match crowd {
                    _ if at.direction == Direction::Incoming => poke.copies,
                    Crowd::None => poke.copies,
                    Crowd::Waits => poke.copies.min(CROWD_COPIES),
                    Crowd::WaitsAndOwnData => return Outcome::Nothing,
                };
                self.poke = Some(Poking {
                    since: now,
                    next_at: now,
                    left,
                    has_begun: false,
                    is_of_newest: false,
                    is_booked: false,
                });
                Outcome::Poked
            }
            _ => Outcome::Nothing,
        }
    }

    /// The messages to a sender that has backed off which are due, if data does not flow.
    pub(super) fn poke(
        &mut self,
        now: Instant,
        every: Duration,
        pacing: &mut Pacing,
        at: At,
        sender: Sender,
        flow: FlowHalf<'_>,
    ) -> impl Iterator<Item = Injected> + use<> {
        self.poke = self.poke.filter(|poke| !flow.flows_since(Some(poke.since), at.direction));
        let (packet, count) = match sender {
            Sender::OwnTcp => self.poke_own_tcp(now, at, flow),
            Sender::Far => (self.poke_far_sender(now, every, pacing, at, flow), 1),
        };
        core::iter::repeat_n(packet, count.into()).flatten().map(move |packet| at.inject(packet))
    }

    /// The messages to the host's own TCP, and their number. They do not use the link, and all of them come before any answer of the peer: an
    /// ACK of a part of the oldest segment makes Linux ignore further ones (`tcp_ack` sets `icsk_retransmits` to 0) and repeats nothing.
    /// Linux ignores them also while a program uses the socket, so they are repeated once.
    fn poke_own_tcp(&mut self, now: Instant, at: At, flow: FlowHalf<'_>) -> (Option<Packet>, u8) {
        let Some(poking) = self.poke.as_mut().filter(|poking| poking.next_at <= now) else { return (None, 0) };
        let count = poking.left;
        if core::mem::replace(&mut poking.has_begun, true) {
            self.poke = None;
        } else {
            poking.next_at = now + OWN_TCP_AGAIN;
        }
        (unreachable_poke::message(at.connection, at.direction, flow.shown()), count)
    }

    /// The next message to a far sender.
    fn poke_far_sender(
        &mut self,
        now: Instant,
        every: Duration,
        pacing: &mut Pacing,
        at: At,
        flow: FlowHalf<'_>,
    ) -> Option<Packet> {
        let poking = self.poke.as_mut().filter(|poking| poking.next_at <= now && poking.left > 0)?;
        if at.direction == Direction::Outgoing && !poking.is_booked {
            poking.next_at = pacing.book(now);
            poking.is_booked = true;
            if poking.next_at > now {
                return None;
            }
        }
        (poking.is_booked, poking.has_begun) = (false, true);
        // A sender ignores a message about another byte than its oldest outstanding one. Whether it has received the last ACKs before the cut
        // is not known until data arrive: two messages do what one would.
        let are_two = at.direction == Direction::Outgoing && self.shown_at_cut != flow.shown();
        let is_of_newest = poking.is_of_newest;
        poking.is_of_newest = are_two && !is_of_newest;
        poking.next_at = now + if are_two { every / 2 } else { every };
        poking.left -= u8::from(!poking.is_of_newest);
        if poking.left == 0 {
            self.poke = None;
        }
        let oldest = match at.direction {
            Direction::Outgoing if !is_of_newest => self.shown_at_cut,
            Direction::Outgoing | Direction::Incoming => flow.shown(),
        };
        unreachable_poke::message(at.connection, at.direction, oldest)
    }
}

/// The clock of the timestamps that arrive with the data of a half.
fn clock_of(flow: FlowHalf<'_>) -> EchoClock {
    flow.stamps().map_or_else(EchoClock::default, |[first, newest]| EchoClock::between(first, newest))
}

/// The timestamp that a release echoes, if it is known and refreshed.
fn fresh_echo(
    config: &WakeConfig,
    direction: Direction,
    connection: &Flow,
    clock: &EchoClock,
    now: Instant,
) -> Option<u32> {
    let (latest, beyond) = (connection.latest_round_trip(), connection.round_trip_beyond());
    config.release.refresh_timestamps.then(|| release::fresh_echo(clock, direction, latest, beyond, now)).flatten()
}

/// The timestamp that the sender beyond the link has echoed in answers to probes since `cut_at`. Its data show by themselves what it has
/// received.
fn answered_echo(connection: &Flow, at: At, cut_at: Instant) -> Option<u32> {
    let data_at = connection.half(at.direction).last_data_at();
    let is_answer = |heard_at: &Instant| *heard_at > cut_at && data_at.is_none_or(|data_at| *heard_at > data_at);
    connection.heard_at().filter(is_answer).and_then(|_| connection.half(at.direction.opposite()).last_echo())
}

/// The times of link-down and link-up, for one connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Times {
    pub(super) cut_at: Instant,
    pub(super) up_at: Option<Instant>,
    pub(super) now: Instant,
    /// The connection was reset in the meantime.
    pub(super) is_reset: bool,
    pub(super) crowd: Crowd,
}

/// Whether many others wait, so that a connection takes no more of the link than necessary.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Crowd {
    /// They do not.
    None,
    /// They do.
    Waits,
    /// They do, and this host has data outstanding on the connection: its peer sends when that arrives, with the host's ACK.
    WaitsAndOwnData,
}

/// The receiver's current ACK, if the sender has been shown a smaller window.
fn reopen(now: Instant, at: At, flow: FlowHalf<'_>, path: &mut impl FlowTable) -> Option<Packet> {
    if !flow.is_window_shrunk() {
        return None;
    }
    path.order(now, at.connection, at.direction, Order::Reopened);
    let acked = flow.acked()?;
    flow.ack_up_to(acked.min(flow.shown()), at.receiver())
}
