//! The part of [`crate::wake`] that every packet passes: what it remembers of a connection, and what becomes of an ACK.
//!
//! It is apart from the rest because it exists twice: here, for the simulator and for filters in the path of packets, and as
//! eBPF on an interface of the mobile host. The state is plain, of a bounded size and without pointers ([`raw`]); there is no
//! allocation, no timer and no packet of its own. Whatever needs these is the business of [`crate::wake`], which is told of it
//! by a [`Notice`], looks at the state of a connection, and changes it by an [`Order`]. The two are held equal by a test that
//! feeds both the same packets.

mod bulk;
mod observed;
pub mod raw;
mod runs;
mod stamps;

use holdover_base::{Duration, Instant};
use holdover_wire::{Flags, Packet, Segment, Seq, TcpOptions, Timestamps};

use crate::ack_stall::Stall;
use crate::echo_clock::is_older;
use crate::hold_back::{self, HoldBackConfig};
use crate::round_trip::RoundTrip;
use crate::wake::WakeConfig;
use crate::{Connection, Direction, Verdict};
pub use bulk::Form;
use bulk::{Before, Bulks, Said};
use holdover_filter::tcp_mut;
pub(crate) use observed::AckKind;
pub use observed::Observed;
pub use runs::SegmentRuns;
pub use stamps::Stamps;

/// Where the state of connections is kept, and packets are dealt with.
pub trait FastPath {
    /// What is known of a connection now.
    fn snapshot(&self, connection: Connection) -> Option<FastConnection>;

    /// Looks at each connection that the host takes part in and that is not over.
    fn for_each_live(&self, look: &mut dyn FnMut(Connection, &FastConnection));

    /// Changes what is remembered of the half whose ACKs go in `direction`.
    fn order(&mut self, now: Instant, connection: Connection, direction: Direction, order: Order);

    /// Says what the link does from now on.
    fn set_link(&mut self, link: FastLink);
}

/// What packets must know of the link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FastLink {
    /// When it went down, if it is; until what is held has been released.
    pub down_at: Option<Instant>,
    /// When it came up the last time.
    pub up_at: Option<Instant>,
    /// It is up, but what is held is not released yet.
    pub is_releasing: bool,
    /// Packets that come in are news: they prove that the path carries some.
    pub awaits_packets: bool,
    /// A cut is predicted.
    pub(crate) stall: Option<Stall>,
    /// How often it went down or was released: what was being timed before is no round trip.
    pub epoch: u32,
    /// Nothing has come in for a while, and the first packet that does is to be noticed ([`raw::Told::Incoming`]).
    pub listens: bool,
    /// From then on packets pass as they are, for whoever should have said more is not there.
    pub expires_at: Instant,
}

/// A connection.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FastConnection {
    /// Data that comes in; its ACKs go out.
    pub outgoing: FastHalf,
    /// Data that goes out; its ACKs come in.
    pub incoming: FastHalf,
    pub(crate) round_trip: RoundTrip,
    /// The link's, when the last packet passed.
    pub(crate) epoch: u32,
    bulk: Bulks,
}

/// One direction of a connection's data, and what becomes of its ACKs.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FastHalf {
    pub(crate) observed: Observed,
    /// What is held back is to be flushed then.
    pub(crate) flush_at: Option<Instant>,
    /// Nothing is held before so many bytes have been acknowledged.
    pub(crate) hold_from: u64,
    /// What the sender had been shown before a flush that no data has followed: the link may have been down already.
    pub(crate) flushed_from: Option<Seq>,
    /// The sender has been shown less of the window than there is.
    pub(crate) is_drawn_in: bool,
    /// ACKs of a stall are being kept.
    pub(crate) is_recording: bool,
    /// They are being let go, one by one: what is newer waits.
    pub(crate) is_clocked: bool,
    pub(crate) refresh: Option<Refresh>,
}

/// How echoes of timestamps from before an outage are replaced.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Refresh {
    /// The newest TSval from before the outage.
    pub(crate) stale: u32,
    /// What is echoed at `at` in its place.
    pub(crate) value: u32,
    pub(crate) at: Instant,
    pub(crate) ticks_per_sec: u64,
}

/// Something that [`crate::wake`] has to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Notice {
    /// An ACK was held back where none was before: it is to be flushed if nothing newer comes.
    Held,
    /// An ACK up to here was withheld because a cut is near.
    Stalled(Seq),
    /// An ACK up to here waits behind those that are being let go.
    Queued(Seq),
    /// The sender was shown an ACK as it is: those of a stall are of no use any more.
    Opened,
}

/// A change of a half.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Order {
    /// The sender is shown an ACK up to here, and with it the window as it is.
    Show(Seq),
    /// The same, because what was held back was to be flushed: nothing is held before so many bytes have been acknowledged.
    Flush {
        /// The ACK.
        ack: Seq,
        /// The bytes.
        hold_from: u64,
    },
    /// The sender has been shown the window as it is.
    Reopened,
    /// ACKs of a stall are being kept, or are not.
    Record(bool),
    /// They are being let go, or are not any more.
    Clock(bool),
    /// Echoes of timestamps that are not newer than this one are replaced by `value`, which counts on from now.
    Refresh {
        /// The newest TSval from before the outage.
        stale: u32,
        /// What the sender's clock said a round trip ago.
        value: u32,
        /// How fast it is.
        ticks_per_sec: u64,
    },
    /// The receiver shifts its window by so much: found out elsewhere.
    WindowShift(u8),
}

/// What becomes of ACKs at a moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Holding {
    /// None is let through.
    All,
    /// The last segments are held back.
    Last,
    Nothing,
}

/// What is left out of an estimate of a clock, for a bad crystal: one part in so many.
const DRIFT_PART: u64 = 5_000;

impl Default for FastLink {
    fn default() -> Self {
        Self {
            down_at: None,
            up_at: None,
            is_releasing: false,
            awaits_packets: false,
            stall: None,
            epoch: 0,
            listens: false,
            expires_at: Instant::FAR_FUTURE,
        }
    }
}

impl FastLink {
    /// Whether the host was told that it is, even if what is held is not released yet.
    pub(crate) fn is_up(&self) -> bool {
        self.down_at.is_none() || self.is_releasing
    }

    /// Whether the ACKs of a connection are stalled, because a cut is near.
    pub(crate) fn stalls(&self, now: Instant, round_trip: &RoundTrip) -> bool {
        self.down_at.is_none() && self.stall.is_some_and(|stall| stall.covers(now, round_trip))
    }

    /// Whether echoes from before the outage are replaced still.
    fn refreshes(&self, now: Instant, config: &WakeConfig) -> bool {
        self.awaits_packets || self.up_at.is_some_and(|up_at| now.saturating_since(up_at) < config.release.refresh_for)
    }

    /// What becomes of the ACKs of a connection.
    pub(crate) fn holding(&self, config: &WakeConfig, now: Instant, round_trip: &RoundTrip) -> Holding {
        if !config.holds() || self.expires_at <= now {
            return Holding::Nothing;
        }
        if self.down_at.is_some() || self.stalls(now, round_trip) {
            return Holding::All;
        }
        let Some(config) = config.hold_back else { return Holding::Nothing };
        let pauses = self.up_at.is_some_and(|up_at| now.saturating_since(up_at) < config.pause);
        if pauses || self.awaits_packets { Holding::Nothing } else { Holding::Last }
    }
}

impl FastConnection {
    /// The half whose ACKs go in `direction`.
    pub fn half(&self, direction: Direction) -> &FastHalf {
        match direction {
            Direction::Outgoing => &self.outgoing,
            Direction::Incoming => &self.incoming,
        }
    }

    fn half_mut(&mut self, direction: Direction) -> &mut FastHalf {
        match direction {
            Direction::Outgoing => &mut self.outgoing,
            Direction::Incoming => &mut self.incoming,
        }
    }

    /// The path's round trip, with queues (RFC 6298's SRTT); `None` before the first sample.
    pub fn smoothed_round_trip(&self) -> Option<Duration> {
        self.round_trip.smoothed()
    }

    /// The shortest round trip that was measured; `None` before the first sample.
    pub(crate) fn least_round_trip(&self) -> Option<Duration> {
        self.round_trip.least()
    }

    /// When data went in either direction the last time.
    pub(crate) fn active_at(&self) -> Option<Instant> {
        self.outgoing.observed.last_data_at.max(self.incoming.observed.last_data_at)
    }

    /// When a packet of the peer came in last.
    pub fn heard_at(&self) -> Option<Instant> {
        self.round_trip.heard_at
    }

    /// Whether data, or ACKs of data, have come in after `then`. That the peer was heard says less: it may have answered a probe.
    pub(crate) fn has_gone_on_after(&self, then: Instant) -> bool {
        let went_on = |direction| self.half(direction).progress_at(direction).is_some_and(|at| at > then);
        went_on(Direction::Outgoing) || went_on(Direction::Incoming)
    }

    /// Whether the peer has not acknowledged all data that the host has sent.
    pub fn awaits_ack(&self) -> bool {
        self.incoming.observed.awaits_ack()
    }

    /// A segment that the peer answers at once, whatever state the connection is in, and that changes nothing there: it has no data, and
    /// the number of the last byte that the peer has acknowledged (RFC 9293 section 3.8.4). `None` before the peer has acknowledged
    /// anything.
    pub fn keep_alive(&self, connection: Connection) -> Option<Packet> {
        let acked = self.incoming.observed.acked()?;
        let observed = &self.outgoing.observed;
        let mut packet = observed.ack_up_to(observed.shown(), connection)?;
        tcp_mut(&mut packet)?.seq = acked - 1;
        Some(packet)
    }

    /// A packet of the connection passes, and may be rewritten.
    pub fn handle_packet(
        &mut self,
        now: Instant,
        config: &WakeConfig,
        link: &FastLink,
        direction: Direction,
        packet: &mut Packet,
        form: Form,
    ) -> (Verdict, Option<Notice>) {
        let Some(segment) = packet.tcp() else { return (Verdict::Pass, None) };
        if self.goes_on(link, direction, segment, form) {
            return (Verdict::Pass, None);
        }
        self.catch_up(link);
        let is_syn = segment.flags.contains(Flags::SYN);
        if direction == Direction::Incoming && !is_syn && self.outgoing.observed.is_beyond_window(segment) {
            return (Verdict::Pass, None);
        }
        match direction {
            Direction::Outgoing => self.round_trip.note_outgoing(now, segment, self.may_be_timed(segment)),
            Direction::Incoming => {
                // What ends it went by unseen: when, nobody knows.
                if self.incoming.observed.acked().is_some_and(|acked| self.round_trip.is_ended_by(acked)) {
                    self.round_trip.timed = None;
                }
                self.round_trip.note_incoming(now, segment);
            }
        }
        let data = self.half_mut(direction.opposite());
        data.observed.note_data(now, segment, form);
        if !segment.payload.is_empty() {
            data.flushed_from = None;
        }
        let before = Before { said: Said::of(segment), acked: self.half(direction).observed.acked() };
        let (verdict, notice) = self.take_ack(now, config, link, direction, packet);
        if let Some(segment) = packet.tcp() {
            let is_left = verdict == Verdict::Pass && notice.is_none();
            self.settle_bulk((now, config, link), direction, before, is_left, segment, form);
        }
        (verdict, notice)
    }

    /// The newest TSval that has come from the sender of what goes in the other direction, unseen or not.
    pub(crate) fn newest_stamp(&self, direction: Direction) -> Option<u32> {
        let seen = self.half(direction).observed.newest_stamp()?;
        let said = self.half(direction.opposite()).observed.receiver.last().and_then(|last| last.timestamps);
        Some(said.map_or(seen, |said| Seq::new(said.val).max(Seq::new(seen)).value()))
    }

    /// The end of what is timed has to be looked at. At high rates, what is timed is what is looked at anyway: the first of its
    /// timestamp.
    fn may_be_timed(&self, segment: &Segment) -> bool {
        let said = self.outgoing.observed.receiver.last().and_then(|last| last.timestamps);
        let value = |stamps: Option<Timestamps>| stamps.map(|stamps| stamps.val);
        let is_first = said.is_none() || value(said) != value(segment.options.timestamps);
        is_first || !self.incoming.observed.flight.is_fast
    }

    /// The link was gone, or is back.
    fn catch_up(&mut self, link: &FastLink) {
        if self.epoch == link.epoch {
            return;
        }
        self.epoch = link.epoch;
        self.round_trip.forget_pending();
        if !link.is_up() {
            for half in [&mut self.outgoing, &mut self.incoming] {
                (half.flush_at, half.refresh) = (None, None);
            }
        }
    }

    /// An ACK passes, or does not.
    fn take_ack(
        &mut self,
        now: Instant,
        config: &WakeConfig,
        link: &FastLink,
        direction: Direction,
        packet: &mut Packet,
    ) -> (Verdict, Option<Notice>) {
        let holding = link.holding(config, now, &self.round_trip);
        let stalls = holding == Holding::All && link.stalls(now, &self.round_trip);
        // One end at a time: whoever has sent beyond the window that it sees sends its ACKs from that window's end (Linux's
        // `tcp_acceptable_seq`), and an end that has received more does not look at them. If both ends were in that state,
        // nothing but a packet made here would ever be accepted again, and none is made if the agent ends there.
        let is_other_drawn_in = self.half(direction.opposite()).is_drawn_in;
        let Some(segment) = packet.tcp() else { return (Verdict::Pass, None) };
        let is_past = direction == Direction::Incoming
            && !segment.flags.contains(Flags::SYN)
            && self.outgoing.observed.is_before_window(segment);
        let round_trip = self.round_trip.smoothed();
        let half = self.half_mut(direction);
        let (was_held, opens) = (half.observed.is_held(), half.observed.opens_window(segment));
        let kind = if is_past { AckKind::Other } else { half.observed.note_ack(now, packet, segment) };
        if kind == AckKind::Advancing {
            half.observed.note_flight(now, round_trip);
        }
        let opens = opens && kind == AckKind::Repeated;
        let mut notice = None;
        let is_stalled = stalls && kind == AckKind::Advancing;
        let begins_stall = is_stalled && !is_other_drawn_in && half.may_be_drawn_in();
        if is_stalled && !begins_stall {
            half.is_recording = true;
            notice = Some(Notice::Stalled(segment.ack));
        }
        let holding = match holding {
            // What is newer waits for its turn.
            _ if half.is_clocked && link.expires_at > now => {
                notice = Some(Notice::Queued(half.observed.acked().unwrap_or(segment.ack)));
                Holding::All
            }
            // Data that comes by itself while the rest waits for its release is acknowledged as it comes, and so is what has none
            // to wait for.
            _ if link.is_releasing && (!was_held || half.flows_since(link.up_at, direction)) => Holding::Nothing,
            holding => holding,
        };
        let limit = match holding {
            _ if begins_stall => None,
            Holding::All => half.observed.acked().map(|_| half.observed.shown()),
            Holding::Last => config.hold_back.as_ref().and_then(|config| half.limit(config, kind, segment)),
            Holding::Nothing => None,
        };
        let Some(segment) = tcp_mut(packet) else { return (Verdict::Pass, None) };
        if link.refreshes(now, config) {
            half.refresh_echo(now, segment);
        }
        let was_recording = half.is_recording;
        let arrives = link.is_up() || direction == Direction::Incoming;
        let verdict = half.show(now, (kind, opens), limit, arrives, segment);
        if was_recording && !half.is_recording {
            notice = Some(Notice::Opened);
        }
        if begins_stall {
            half.is_drawn_in = true;
            half.observed.draw_in(segment);
        }
        if holding != Holding::Last || !half.observed.is_held() {
            half.flush_at = None;
        } else if kind == AckKind::Advancing {
            // Or nobody has come for it.
            if half.flush_at.is_none_or(|at| at <= now) {
                notice = Some(Notice::Held);
            }
            half.flush_at = config.hold_back.map(|config| now + config.flush);
        }
        (verdict, notice)
    }

    /// Changes the half whose ACKs go in `direction`.
    pub fn obey(&mut self, now: Instant, direction: Direction, order: Order) {
        self.stop_bulk();
        let half = self.half_mut(direction);
        match order {
            Order::Show(ack) => half.show_all(now, ack),
            Order::Flush { ack, hold_from } => {
                half.flushed_from = Some(half.observed.shown());
                half.show_all(now, ack);
                half.hold_from = hold_from;
                // What has come since is to be flushed as well.
                half.flush_at = half.flush_at.filter(|_| half.observed.is_held());
            }
            Order::Reopened => half.is_drawn_in = false,
            Order::Record(is_recording) => half.is_recording = is_recording,
            Order::Clock(is_clocked) => half.is_clocked = is_clocked,
            Order::Refresh { stale, value, ticks_per_sec } => {
                half.refresh = Some(Refresh { stale, value, at: now, ticks_per_sec });
            }
            Order::WindowShift(shift) => {
                half.observed.window_shift.get_or_insert(shift.min(14));
            }
        }
    }
}

impl FastHalf {
    /// What is seen of it.
    pub fn observed(&self) -> &Observed {
        &self.observed
    }

    /// Bytes that the receiver has acknowledged and the sender has not been shown.
    pub fn held_bytes(&self) -> u32 {
        self.observed.acked().map_or(0, |acked| acked.saturating_since(self.observed.shown()))
    }

    /// Whether an ACK that advances may be the last before a stall.
    fn may_be_drawn_in(&self) -> bool {
        !self.is_drawn_in && !self.observed.has_hole() && self.observed.knows_window_scale()
    }

    /// When data, or for data that goes out their ACKs, came last.
    pub(crate) fn progress_at(&self, direction: Direction) -> Option<Instant> {
        match direction {
            Direction::Outgoing => self.observed.last_data_at,
            Direction::Incoming => self.observed.advanced_at,
        }
    }

    /// Whether data, or for data that goes out their ACKs, have come since then.
    pub(crate) fn flows_since(&self, at: Option<Instant>, direction: Direction) -> bool {
        at.is_some_and(|at| self.progress_at(direction).is_some_and(|last| last >= at))
    }

    /// How far the sender may be shown this ACK while the link is well.
    fn limit(&self, config: &HoldBackConfig, kind: AckKind, segment: &Segment) -> Option<Seq> {
        let may_hold = self.observed.bytes_acked >= self.hold_from;
        may_hold.then(|| hold_back::limit(config, &self.observed, kind, segment)).flatten()
    }

    /// The sender is shown an ACK up to `limit`, or all of it.
    fn show(
        &mut self,
        now: Instant,
        (kind, opens): (AckKind, bool),
        limit: Option<Seq>,
        arrives: bool,
        segment: &mut Segment,
    ) -> Verdict {
        let exempt = kind == AckKind::Other || segment.flags.intersects(Flags::SYN | Flags::FIN | Flags::RST);
        let limit = limit.filter(|_| !exempt).map(|limit| limit.max(self.observed.shown()));
        // An ACK that says nothing more than the last would pass for a duplicate.
        let says_more = opens || has_more_to_say(&segment.options);
        match limit {
            Some(limit) if segment.payload.is_empty() && limit == self.observed.shown() && !says_more => {
                return Verdict::Drop;
            }
            Some(limit) if self.observed.keeps_the_edge(segment, limit) => {
                self.observed.lower_ack(segment, limit);
                self.observed.show(now, segment.ack);
            }
            _ if kind == AckKind::Other => {}
            // It goes into a dead link.
            _ if !arrives => {}
            _ => {
                self.is_recording = false;
                self.is_drawn_in = false;
                self.observed.show(now, segment.ack);
            }
        }
        Verdict::Pass
    }

    fn show_all(&mut self, now: Instant, ack: Seq) {
        self.observed.show(now, ack);
        self.is_drawn_in = false;
    }

    /// An echo from before the outage is taken for a proof that nothing was lost.
    fn refresh_echo(&self, now: Instant, segment: &mut Segment) {
        let (Some(refresh), Some(timestamps)) = (self.refresh, &mut segment.options.timestamps) else { return };
        if !is_older(refresh.stale, timestamps.ecr) {
            timestamps.ecr = refresh.echo(now);
        }
    }
}

impl Refresh {
    fn echo(&self, now: Instant) -> u32 {
        let elapsed = now.saturating_since(self.at).as_nanos();
        let ticks = (elapsed - elapsed / DRIFT_PART) * self.ticks_per_sec / 1_000_000_000;
        self.value.wrapping_add(ticks as u32)
    }
}

/// Whether there is an option that no later ACK repeats.
fn has_more_to_say(options: &TcpOptions) -> bool {
    options.user_timeout.is_some() || options.experimental.is_some() || options.unknown > 0
}
