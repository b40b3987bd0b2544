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
//! TCP has acknowledged, and has no SACK blocks but that TCP's; every other is the receiver's, as it is or with a lower number.

mod half;

use std::collections::{BTreeSet, VecDeque};

use holdover_base::{Duration, Instant};
use holdover_wire::{Packet, Payload, Segment};

use self::half::{Half, Outcome};
use crate::ack_stall::{self, AckStallConfig, Stall};
use crate::connections::{Connection, Table, tcp_mut};
use crate::hold_back::{self, HoldBackConfig};
use crate::observations::AckKind;
use crate::release::ReleaseConfig;
use crate::round_trip::RoundTrip;
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

/// The filter. See the module's documentation.
#[derive(Debug)]
pub struct Wake {
    config: WakeConfig,
    connections: Table<State>,
    link: Link,
    /// Whose doing it is that there is something to release.
    held_by: &'static str,
    /// Connections with a deadline, and one that is not later than it.
    deadlines: BTreeSet<(Instant, Connection)>,
    ready: VecDeque<Injected>,
    deeds: VecDeque<Deed>,
}

/// What is known of the link.
#[derive(Clone, Copy, Default, Debug)]
struct Link {
    /// When it went down, if it is.
    down_at: Option<Instant>,
    up_at: Option<Instant>,
    /// When what is held is released.
    release_at: Option<Instant>,
    stall: Option<Stall>,
    /// The last stall was in vain: the next warnings are not believed.
    no_stall_before: Instant,
}

/// For so long after the link went down, packets may still come that had been on their way.
const STRAGGLERS: Duration = Duration::from_secs(1);

/// After a stall that was in vain there is none for so long.
const STALL_PAUSE: Duration = Duration::from_secs(1);

/// A connection: one half for each direction of ACKs.
#[derive(Clone, Debug, Default)]
struct State {
    outgoing: Half,
    incoming: Half,
    round_trip: RoundTrip,
    /// Its entry among the deadlines.
    scheduled: Option<Instant>,
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
            link: Link::default(),
            held_by: hold_back::NAME,
            deadlines: BTreeSet::new(),
            ready: VecDeque::new(),
            deeds: VecDeque::new(),
        }
    }

    fn cut(&mut self, now: Instant) {
        let link = self.link;
        // Told once more, by another layer perhaps.
        if !link.is_up() {
            return;
        }
        self.link = Link { down_at: link.down_at.or(Some(now)), release_at: None, stall: None, ..link };
        self.held_by = if self.config.hold_back.is_some() { hold_back::NAME } else { ack_stall::NAME };
        for (_, state) in self.connections.iter_mut() {
            let is_stalled = link.stalls(now, &state.round_trip);
            state.round_trip.forget_pending();
            for direction in BOTH {
                state.half(direction).note_cut(now, link.up_at, direction, is_stalled);
            }
        }
    }

    /// A cut is near.
    fn warn(&mut self, now: Instant, lead: Option<Duration>) {
        let Some(config) = &self.config.ack_stall else { return };
        let warning = Stall::before_cut(config, now, lead);
        // A warning that is repeated is the same warning: ACKs are not stalled for ever. A better one is believed.
        let is_news = self.link.stall.is_none_or(|stall| stall.is_replaced_by(&warning, now));
        if is_news && self.link.down_at.is_none() && self.link.no_stall_before <= now {
            self.link.stall = Some(warning);
        }
    }

    /// The link is there, or another one.
    fn connect(&mut self, now: Instant, moved: bool) {
        if self.link.down_at.is_none() {
            // Who is told of a new way without having been without one was cut off all the same.
            if !moved {
                return;
            }
            self.cut(now);
        }
        if self.link.release_at.is_none() {
            self.link.up_at = Some(now);
            self.link.release_at = Some(now + self.config.release.grace);
        }
    }

    /// Packets come in over a link that is said to be down.
    fn is_evidently_up(&self, now: Instant) -> bool {
        !self.link.is_up() && self.link.down_at.is_some_and(|at| now.saturating_since(at) >= STRAGGLERS)
    }

    fn end_stall(&mut self, now: Instant) {
        if self.link.stall.take().is_none() {
            return;
        }
        let mut released = Vec::new();
        for (connection, state) in self.connections.iter_mut() {
            let State { outgoing, incoming, round_trip, .. } = state;
            for (half, direction) in [(outgoing, Direction::Outgoing), (incoming, Direction::Incoming)] {
                self.ready.extend(half.end_stall(now, round_trip, connection, direction));
            }
            released.push(connection);
        }
        for connection in released {
            self.schedule(connection);
        }
    }

    /// The moment of grace is over.
    fn release(&mut self, now: Instant) {
        self.link.release_at = None;
        let cut_at = self.link.down_at.take().unwrap_or(now);
        let mut woken = Vec::new();
        for (connection, state) in self.connections.live_mut() {
            let State { outgoing, incoming, round_trip, .. } = state;
            round_trip.forget_pending();
            let is_reset = outgoing.observed.is_reset || incoming.observed.is_reset;
            for (half, direction) in [(outgoing, Direction::Outgoing), (incoming, Direction::Incoming)] {
                half.is_waiting &= !is_reset;
                let (packets, outcome) = half.wake(&self.config, round_trip, (connection, direction), (cut_at, now));
                self.ready.extend(packets.into_iter().map(|packet| Injected { direction, packet }));
                let (mechanism, what) = match outcome {
                    Outcome::Nothing => continue,
                    Outcome::Clocked => (ack_stall::NAME, "released ACK by ACK"),
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
        let link = self.link;
        let Some(state) = self.connections.get_mut(connection) else { return };
        let may_flush = link.holding(&self.config, now, &state.round_trip) != Holding::All;
        state.scheduled = None;
        for direction in BOTH {
            let half = state.half(direction);
            if half.flush_at.is_some_and(|at| at <= now) {
                half.flush_at = None;
                if may_flush {
                    self.ready.extend(half.flush(now, connection, direction));
                }
            }
            self.ready.extend(half.next_of_train(now, connection, direction));
            let every = self.config.unreachable_poke.map_or(Duration::ZERO, |config| config.every);
            self.ready.extend(half.poke(now, every, connection, direction));
        }
        self.schedule(connection);
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
        if direction == Direction::Incoming && self.is_evidently_up(now) {
            self.connect(now, false);
        }
        let state = self.connections.observe(now, direction, connection, segment).value;
        match direction {
            Direction::Outgoing => state.round_trip.note_outgoing(now, segment),
            Direction::Incoming => state.round_trip.note_incoming(now, segment),
        }
        state.take_data(now, &self.link, acks_go, segment);
        let verdict = state.take_ack(now, &self.config, &self.link, direction, packet);
        self.schedule(connection);
        verdict
    }

    fn handle_link(&mut self, now: Instant, event: LinkEvent) {
        match event {
            LinkEvent::Fading { lead } => self.warn(now, lead),
            LinkEvent::Recovered => self.end_stall(now),
            LinkEvent::Down => self.cut(now),
            LinkEvent::Up { moved, .. } => self.connect(now, moved),
        }
    }

    fn handle_timeout(&mut self, now: Instant) {
        if self.link.stall.is_some_and(|stall| stall.until <= now) {
            self.link.no_stall_before = now + STALL_PAUSE;
            self.end_stall(now);
        }
        if self.link.release_at.is_some_and(|at| at <= now) {
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
        [connections, self.link.release_at, self.link.stall.map(|stall| stall.until)].into_iter().flatten().min()
    }
}

impl Link {
    /// Whether the host was told that it is, even if the moment of grace is not over.
    fn is_up(&self) -> bool {
        self.down_at.is_none() || self.release_at.is_some()
    }

    /// Whether the ACKs of a connection are stalled, because a cut is near.
    fn stalls(&self, now: Instant, round_trip: &RoundTrip) -> bool {
        self.down_at.is_none() && self.stall.is_some_and(|stall| stall.covers(now, round_trip))
    }

    /// What becomes of the ACKs of a connection.
    fn holding(&self, config: &WakeConfig, now: Instant, round_trip: &RoundTrip) -> Holding {
        if !config.holds() {
            return Holding::Nothing;
        }
        if self.down_at.is_some() || self.stalls(now, round_trip) {
            return Holding::All;
        }
        let Some(config) = config.hold_back else { return Holding::Nothing };
        let pauses = self.up_at.is_some_and(|up_at| now.saturating_since(up_at) < config.pause);
        if pauses { Holding::Nothing } else { Holding::Last }
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

    /// Data whose ACKs go in `acks_go` passes.
    fn take_data(&mut self, now: Instant, link: &Link, acks_go: Direction, segment: &Segment) {
        let half = self.half(acks_go);
        half.note_data(now, segment);
        if acks_go == Direction::Outgoing && !segment.payload.is_empty() {
            half.poke = None;
            half.is_waiting &= !link.is_up();
        }
    }

    /// An ACK passes, or does not.
    fn take_ack(
        &mut self,
        now: Instant,
        config: &WakeConfig,
        link: &Link,
        direction: Direction,
        packet: &mut Packet,
    ) -> Verdict {
        let holding = link.holding(config, now, &self.round_trip);
        let stalls = link.stalls(now, &self.round_trip);
        let half = self.half(direction);
        let Some(segment) = packet.tcp() else { return Verdict::Pass };
        let kind = half.observed.note_ack(now, packet, segment);
        if direction == Direction::Incoming && kind == AckKind::Advancing && link.is_up() {
            (half.is_waiting, half.poke) = (false, None);
        }
        let is_stalled = stalls && kind == AckKind::Advancing;
        let begins_stall = is_stalled && half.may_be_drawn_in();
        if is_stalled && !begins_stall {
            half.train.record(now, segment.ack);
        }
        let holding = match holding {
            // What is newer waits for its turn.
            _ if half.train.is_under_way() => {
                half.train.append(half.observed.acked().unwrap_or(segment.ack));
                Holding::All
            }
            // Data that comes by itself while the rest waits for the moment of grace to end is acknowledged as it comes.
            _ if link.release_at.is_some() && !half.is_waiting => Holding::Nothing,
            holding => holding,
        };
        let limit = match holding {
            _ if begins_stall => None,
            Holding::All => half.observed.acked().map(|_| half.observed.shown()),
            Holding::Last => config.hold_back.as_ref().and_then(|config| half.limit(config, kind, segment)),
            Holding::Nothing => None,
        };
        let Some(segment) = tcp_mut(packet) else { return Verdict::Pass };
        if link.up_at.is_some_and(|up_at| now.saturating_since(up_at) < config.release.refresh_for) {
            half.refresh(now, direction, segment);
        }
        let verdict = half.show(now, kind, limit, link.is_up(), segment);
        if begins_stall {
            half.draw_in(segment);
        }
        if holding != Holding::Last || !half.observed.is_held() {
            half.flush_at = None;
        } else if kind == AckKind::Advancing {
            half.flush_at = config.hold_back.map(|config| now + config.flush);
        }
        verdict
    }

    fn deadline(&self) -> Option<Instant> {
        [&self.outgoing, &self.incoming].into_iter().flat_map(Half::deadlines).min()
    }
}
