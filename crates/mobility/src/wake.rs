//! **Wake.** What a mobile host alone can do to have data flow one round trip after its link is back, on connections with
//! unmodified peers and before an unmodified TCP of its own. It is made of three mechanisms, each of which can be used alone:
//!
//! - [`crate::hold_back`] sees to it that after any cut there is something new to acknowledge;
//! - [`crate::ack_stall`] makes that much more if the cut was foreseen;
//! - [`crate::unreachable_poke`] is for the case that nothing is held: a cut soon after another, or amid loss recovery.
//!
//! At link-up, what is held is let go as [`crate::release`] tells. It concerns connections that were transferring data when the
//! link broke, in either direction. If data comes by itself within a moment, because the network has kept it, nothing is done.
//! While the link is down no ACK is let out: if it did not die, it would come as a stale one.
//!
//! It is honest by construction: every ACK that it makes is made in one place, which never goes beyond what the receiver's own
//! TCP has acknowledged, and without SACK blocks; every other is the receiver's, as it is or with a lower number.

use std::collections::{BTreeSet, VecDeque};

use holdover_base::{Duration, Instant};
use holdover_wire::{Flags, Packet, Payload, Segment, Seq};

use crate::ack_stall::{self, AckStallConfig, Stall};
use crate::connections::{Connection, Table, tcp_mut};
use crate::echo_clock::is_older;
use crate::hold_back::{self, HoldBackConfig};
use crate::observations::{AckKind, Observed};
use crate::release::{self, ReleaseConfig};
use crate::unreachable_poke::{self, UnreachablePokeConfig};
use crate::{Deed, Direction, Injected, LinkEvent, SegmentFilter, Verdict};

/// Which of the three mechanisms are on.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct WakeConfig {
    /// Keep something in hand.
    pub hold_back: Option<HoldBackConfig>,
    /// Keep more if the cut is foreseen.
    pub ack_stall: Option<AckStallConfig>,
    /// What to do if there is nothing in hand.
    pub unreachable_poke: Option<UnreachablePokeConfig>,
    /// How what is in hand is let go.
    pub release: ReleaseConfig,
}

impl WakeConfig {
    /// All three.
    pub fn all() -> Self {
        Self {
            hold_back: Some(HoldBackConfig::default()),
            ack_stall: Some(AckStallConfig::default()),
            unreachable_poke: Some(UnreachablePokeConfig::default()),
            release: ReleaseConfig::default(),
        }
    }

    fn holds(&self) -> bool {
        self.hold_back.is_some() || self.ack_stall.is_some()
    }
}

/// A direction of data is under way if some came within this time before the cut.
const UNDER_WAY: Duration = Duration::from_secs(1);

/// The filter. See the module's documentation.
#[derive(Debug)]
pub struct Wake {
    config: WakeConfig,
    connections: Table<State>,
    /// When the link went down, if it is.
    down_at: Option<Instant>,
    up_at: Option<Instant>,
    /// When what is held is released.
    release_at: Option<Instant>,
    stall: Option<Stall>,
    /// Whose doing it is that there is something to release.
    held_by: &'static str,
    /// Connections with a deadline, and one that is not later than it.
    deadlines: BTreeSet<(Instant, Connection)>,
    ready: VecDeque<Injected>,
    deeds: VecDeque<Deed>,
}

/// A connection: one half for each direction of ACKs.
#[derive(Clone, Debug, Default)]
struct State {
    outgoing: Half,
    incoming: Half,
    /// Its entry among the deadlines.
    scheduled: Option<Instant>,
}

/// Data in one direction, and its ACKs in the other.
#[derive(Clone, Debug, Default)]
struct Half {
    observed: Observed,
    flush_at: Option<Instant>,
    /// Nothing is held before so many bytes have been acknowledged.
    hold_from: u64,
    /// It was transferring when the link broke, and was not released yet.
    is_waiting: bool,
    /// It was transferring when the link broke the last time.
    was_waiting: bool,
    /// The newest TSval from before the outage: its echoes are refreshed.
    stale: Option<u32>,
    poke: Option<Poking>,
    /// What the sender had been shown when the link broke: later ACKs died with it.
    shown_at_cut: Seq,
}

#[derive(Clone, Copy, Debug)]
struct Poking {
    next_at: Instant,
    left: u8,
}

/// What was done for a sender at link-up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Outcome {
    Nothing,
    Released,
    Poked,
}

/// What becomes of ACKs at a moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Holding {
    /// None is let through.
    All,
    /// The last segments are held back.
    Last,
    Nothing,
}

impl Wake {
    /// The name in scenario files.
    pub const NAME: &'static str = "wake";

    /// A filter that has seen nothing yet, before a link that is up.
    pub fn new(config: WakeConfig) -> Self {
        Self {
            config,
            connections: Table::default(),
            down_at: None,
            up_at: None,
            release_at: None,
            stall: None,
            held_by: hold_back::NAME,
            deadlines: BTreeSet::new(),
            ready: VecDeque::new(),
            deeds: VecDeque::new(),
        }
    }

    fn holding(&self, now: Instant) -> Holding {
        if !self.config.holds() {
            return Holding::Nothing;
        }
        if self.down_at.is_some() || self.release_at.is_some() || self.stall.is_some_and(|stall| stall.covers(now)) {
            return Holding::All;
        }
        let Some(config) = self.config.hold_back else { return Holding::Nothing };
        let pauses = self.up_at.is_some_and(|up_at| now.saturating_since(up_at) < config.pause);
        if pauses { Holding::Nothing } else { Holding::Last }
    }

    fn cut(&mut self, now: Instant) {
        self.down_at.get_or_insert(now);
        let is_stalled = self.stall.is_some_and(|stall| stall.covers(now)) || self.config.hold_back.is_none();
        self.held_by = if is_stalled { ack_stall::NAME } else { hold_back::NAME };
        (self.release_at, self.stall) = (None, None);
        for (_, state) in self.connections.iter_mut() {
            for half in [&mut state.outgoing, &mut state.incoming] {
                (half.flush_at, half.stale, half.poke) = (None, None, None);
                half.note_cut(now, self.up_at);
            }
        }
    }

    fn end_stall(&mut self, now: Instant) {
        self.stall = None;
        for (connection, state) in self.connections.iter_mut() {
            for direction in BOTH {
                self.ready.extend(state.half(direction).flush(now, connection, direction));
            }
        }
    }

    /// The moment of grace is over.
    fn release(&mut self, now: Instant) {
        self.release_at = None;
        let cut_at = self.down_at.take().unwrap_or(now);
        let mut woken = Vec::new();
        for (connection, state) in self.connections.iter_mut() {
            for direction in BOTH {
                let half = state.half(direction);
                let (packets, outcome) = half.wake(&self.config, connection, direction, (cut_at, now));
                self.ready.extend(packets.into_iter().map(|packet| Injected { direction, packet }));
                let (mechanism, what) = match outcome {
                    Outcome::Nothing => continue,
                    Outcome::Released => (self.held_by, "released"),
                    Outcome::Poked => (unreachable_poke::NAME, "poked"),
                };
                self.deeds.push_back(Deed { at: now, connection, mechanism, what });
                woken.push(connection);
            }
        }
        for connection in woken {
            self.schedule(connection);
        }
    }

    /// The deadline of a connection may have moved: an entry that is too early is put right when its time comes.
    fn schedule(&mut self, connection: Connection) {
        let Some(state) = self.connections.get_mut(connection) else { return };
        let deadline = state.deadline();
        let is_late = deadline.is_some_and(|at| state.scheduled.is_none_or(|scheduled| at < scheduled));
        if is_late {
            if let Some(scheduled) = state.scheduled {
                self.deadlines.remove(&(scheduled, connection));
            }
            state.scheduled = deadline;
            self.deadlines.extend(deadline.map(|at| (at, connection)));
        }
    }

    fn serve(&mut self, now: Instant, connection: Connection) {
        let may_flush = self.holding(now) != Holding::All;
        let Some(state) = self.connections.get_mut(connection) else { return };
        state.scheduled = None;
        for direction in BOTH {
            let half = state.half(direction);
            if half.flush_at.is_some_and(|at| at <= now) {
                half.flush_at = None;
                if may_flush {
                    self.ready.extend(half.flush(now, connection, direction));
                }
            }
            let every = self.config.unreachable_poke.map_or(Duration::ZERO, |config| config.every);
            self.ready.extend(half.poke(now, every, connection, direction));
        }
        self.schedule(connection);
    }

    /// Data in the direction that `half` is about passes.
    fn take_data(&mut self, now: Instant, connection: Connection, direction: Direction, segment: &Segment) {
        let is_down = self.down_at.is_some() && self.release_at.is_none();
        let state = self.connections.note(now, connection, segment);
        let half = state.half(direction);
        half.observed.note_data(now, segment);
        if direction == Direction::Outgoing && !segment.payload.is_empty() {
            half.poke = None;
            if !is_down {
                half.is_waiting = false;
            }
        }
    }

    /// An ACK in the direction that `half` is about passes.
    fn take_ack(&mut self, now: Instant, connection: Connection, direction: Direction, packet: &mut Packet) -> Verdict {
        let holding = self.holding(now);
        let is_up = self.down_at.is_none() || self.release_at.is_some();
        let Some(segment) = packet.tcp() else { return Verdict::Pass };
        let state = self.connections.note(now, connection, segment);
        let half = state.half(direction);
        let kind = half.observed.note_ack(now, packet, segment);
        if direction == Direction::Incoming && kind == AckKind::Advancing && is_up {
            (half.is_waiting, half.poke) = (false, None);
        }
        // Data that comes by itself while the rest waits for the moment of grace to end is acknowledged as it comes.
        let holding = if self.release_at.is_some() && !half.is_waiting { Holding::Nothing } else { holding };
        let limit = match holding {
            Holding::All => half.observed.acked().map(|_| half.observed.shown()),
            Holding::Last => self.config.hold_back.as_ref().and_then(|config| half.limit(config, kind, segment)),
            Holding::Nothing => None,
        };
        let Some(segment) = tcp_mut(packet) else { return Verdict::Pass };
        let refreshes = self.up_at.is_some_and(|up_at| now.saturating_since(up_at) < self.config.release.refresh_for);
        if refreshes {
            half.refresh(now, direction, segment);
        }
        let verdict = half.show(now, kind, limit, segment);
        if holding == Holding::Last && half.observed.is_held() {
            if kind == AckKind::Advancing {
                half.flush_at = self.config.hold_back.map(|config| now + config.flush);
            }
        } else {
            half.flush_at = None;
        }
        self.schedule(connection);
        verdict
    }
}

const BOTH: [Direction; 2] = [Direction::Outgoing, Direction::Incoming];

impl SegmentFilter for Wake {
    fn handle_packet(&mut self, now: Instant, direction: Direction, packet: &mut Packet) -> Verdict {
        let Payload::Tcp(segment) = &packet.payload else { return Verdict::Pass };
        let Some(connection) = Connection::of(direction, packet) else { return Verdict::Pass };
        let acks_go = match direction {
            Direction::Outgoing => Direction::Incoming,
            Direction::Incoming => Direction::Outgoing,
        };
        self.take_data(now, connection, acks_go, segment);
        self.take_ack(now, connection, direction, packet)
    }

    fn handle_link(&mut self, now: Instant, event: LinkEvent) {
        match event {
            LinkEvent::Fading { lead } => {
                if let (Some(config), None) = (&self.config.ack_stall, self.down_at) {
                    self.stall = Some(Stall::before_cut(config, now, lead));
                }
            }
            LinkEvent::Recovered => self.end_stall(now),
            LinkEvent::Down => self.cut(now),
            LinkEvent::Up { .. } => {
                // Who is told of a new way without having been without one was cut off all the same.
                if self.down_at.is_none() {
                    self.cut(now);
                }
                self.up_at = Some(now);
                self.release_at = Some(now + self.config.release.grace);
            }
        }
    }

    fn handle_timeout(&mut self, now: Instant) {
        if self.stall.is_some_and(|stall| stall.until <= now) {
            self.end_stall(now);
        }
        if self.release_at.is_some_and(|at| at <= now) {
            self.release(now);
        }
        while let Some(&(at, connection)) = self.deadlines.first()
            && at <= now
        {
            self.deadlines.pop_first();
            self.serve(now, connection);
        }
    }

    fn poll_transmit(&mut self, _now: Instant) -> Option<Injected> {
        self.ready.pop_front()
    }

    fn poll_deed(&mut self) -> Option<Deed> {
        self.deeds.pop_front()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let connections = self.deadlines.first().map(|&(at, _)| at);
        [connections, self.release_at, self.stall.map(|stall| stall.until)].into_iter().flatten().min()
    }
}

impl State {
    /// The half whose ACKs go in `direction`.
    fn half(&mut self, direction: Direction) -> &mut Half {
        match direction {
            Direction::Outgoing => &mut self.outgoing,
            Direction::Incoming => &mut self.incoming,
        }
    }

    fn deadline(&self) -> Option<Instant> {
        [&self.outgoing, &self.incoming].into_iter().flat_map(Half::deadlines).min()
    }
}

impl Half {
    fn deadlines(&self) -> impl Iterator<Item = Instant> {
        self.flush_at.into_iter().chain(self.poke.map(|poke| poke.next_at))
    }

    /// The link breaks: is something under way, or still waiting since the last time?
    fn note_cut(&mut self, now: Instant, up_at: Option<Instant>) {
        let Some(data_at) = self.observed.last_data_at else { return };
        let is_recent = now.saturating_since(data_at) <= UNDER_WAY;
        let nothing_came = self.was_waiting && up_at.is_some_and(|up_at| data_at < up_at);
        self.is_waiting = is_recent || nothing_came;
        self.was_waiting = self.is_waiting;
        if !nothing_came {
            self.shown_at_cut = self.observed.shown();
        }
    }

    /// How far the sender may be shown this ACK while the link is well.
    fn limit(&self, config: &HoldBackConfig, kind: AckKind, segment: &Segment) -> Option<Seq> {
        let may_hold = self.observed.bytes_acked >= self.hold_from;
        may_hold.then(|| hold_back::limit(config, &self.observed, kind, segment)).flatten()
    }

    /// The sender is shown an ACK up to `limit`, or all of it.
    fn show(&mut self, now: Instant, kind: AckKind, limit: Option<Seq>, segment: &mut Segment) -> Verdict {
        let exempt = kind == AckKind::Other || segment.flags.intersects(Flags::SYN | Flags::FIN | Flags::RST);
        match limit {
            Some(limit) if !exempt => {
                let limit = limit.max(self.observed.shown());
                // An ACK that says nothing more than the last would pass for a duplicate.
                if segment.payload.is_empty() && limit == self.observed.shown() {
                    return Verdict::Drop;
                }
                self.observed.lower_ack(segment, limit);
                self.observed.show(now, segment.ack);
            }
            _ if kind == AckKind::Other => {}
            _ => self.observed.show(now, segment.ack),
        }
        Verdict::Pass
    }

    /// The sender may be waiting for what is held.
    fn flush(&mut self, now: Instant, connection: Connection, direction: Direction) -> Option<Injected> {
        let acked = self.observed.acked().filter(|_| self.observed.is_held())?;
        let packet = self.observed.ack_up_to(acked, connection.of_sender_going(direction))?;
        self.hold_from = hold_back::resume_after_flush(&self.observed, acked - self.observed.shown());
        self.observed.show(now, acked);
        Some(Injected { direction, packet })
    }

    /// An echo from before the outage is taken for a proof that nothing was lost.
    fn refresh(&self, now: Instant, direction: Direction, segment: &mut Segment) {
        let (Some(stale), Some(timestamps)) = (self.stale, &mut segment.options.timestamps) else { return };
        if is_older(stale, timestamps.ecr) {
            return;
        }
        if let Some(echo) = release::fresh_echo(&self.observed, direction, now) {
            timestamps.ecr = echo;
        }
    }

    /// The link is back. Returns ACKs to send, and what was done.
    fn wake(
        &mut self,
        config: &WakeConfig,
        connection: Connection,
        direction: Direction,
        (cut_at, now): (Instant, Instant),
    ) -> (Vec<Packet>, Outcome) {
        let is_held = self.observed.is_held();
        let waits = core::mem::take(&mut self.is_waiting);
        if self.observed.is_reset || !waits {
            return (Vec::new(), Outcome::Nothing);
        }
        let may_be_lost = direction == Direction::Outgoing && config.holds();
        let packets = if is_held || may_be_lost {
            release::acks(&config.release, &self.observed, connection, direction, (cut_at, now))
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
            Some(poke) if may_need_it => {
                self.poke = Some(Poking { next_at: now, left: poke.copies });
                (packets, Outcome::Poked)
            }
            _ => (packets, Outcome::Nothing),
        }
    }

    fn poke(
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
