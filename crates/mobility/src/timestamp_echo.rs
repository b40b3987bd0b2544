//! **Timestamp echo update.** A sender measures its round trip from the timestamps echoed by its ACKs (RFC 7323). If the last ACK before a
//! cut was lost, the first one after it acknowledges new data and echoes a timestamp from before: the sample is as long as the outage, the
//! retransmission timeout grows, and a loss that only the timer can repair waits for it. Linux suffers more: a stale echo proves to it that
//! its timeout was spurious, so that it takes a window of lost packets for packets in flight (Eifel, RFC 3522).
//!
//! So the host adds the duration of the outage to the echoed timestamp. After the thesis (section 4.4, *timestamp echo update*): at
//! reconnection the timestamp to echo becomes that of the last segment before the cut, plus the time since the last ACK with a window of
//! zero. From then on no ACK echoes less, which is also the thesis's rule for segments that waited in the network during the outage and
//! carry old timestamps. A segment that the peer sends after the reconnection has a later timestamp than any value made here, and so ends
//! the rule; and so does the longest time that a segment can be in the network.
//!
//! The time must be counted in ticks of the peer's clock, whose rate is estimated from its timestamps (the usual rates are known, and an
//! unusual one is taken for a slower one). The made-up timestamp must not be ahead of the peer's clock: time counts from the arrival of the
//! timestamp at the earliest, when the peer's clock had passed it already, less an allowance for the tolerance of crystals. But the peer
//! has never sent that timestamp: so this mechanism is off by default.
//!
//! **Failure modes.** The clock's rate is unknown, or no ACK with a window of zero was sent ([`Since::ZeroWindow`]): the timestamp is not
//! changed. The zero window was early: the sample is smaller than the round trip, which the sender's smoothing and the minimum of its
//! timeout absorb.

use std::collections::VecDeque;

use holdover_base::{Duration, Instant};
use holdover_wire::{Flags, Packet, Segment, Seq, Timestamps};

use crate::echo_clock::{EchoClock, is_older};
use crate::{Action, Direction, LinkEvent, SegmentFilter, Verdict};
use holdover_filter::{Connection, Table, tcp_mut};

/// How the echoed timestamp is updated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TimestampEchoConfig {
    /// The start of the outage.
    pub since: Since,
    /// The stamp that is echoed at other times.
    pub echo: Echo,
}

impl Default for TimestampEchoConfig {
    /// As in the thesis: since the last zero window. Otherwise the host's own echo.
    fn default() -> Self {
        Self { since: Since::ZeroWindow, echo: Echo::Own }
    }
}

/// The start of the outage.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Since {
    /// From the last ACK with a window of zero that left after the warning (thesis, section 4.4). Without one, nothing is done.
    ZeroWindow,
    /// From the last ACK before the cut: for a host that does not freeze, or had no warning.
    LastAck,
}

/// The stamp that the host echoes while the link is up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Echo {
    /// The choice of its TCP: the timestamp of the segment that ACKs wait for (RFC 7323 section 4.3).
    Own,
    /// The newest one of a segment that begins at or before RCV.NXT, even if its ACK was lost or delayed (thesis,
    /// section 5.1.3, after Wright and Stevens).
    Newest,
}

/// The filter. See the module's documentation.
#[derive(Clone, Debug)]
pub struct TimestampEcho {
    config: TimestampEchoConfig,
    connections: Table<State>,
    fading: bool,
    down: bool,
    actions: VecDeque<Action>,
}

#[derive(Clone, Debug, Default)]
struct State {
    clock: EchoClock,
    /// The newest stamp of a segment that a TCP may echo, and its arrival.
    recent: Option<(u32, Instant)>,
    /// RCV.NXT of the host's TCP.
    expected: Option<Seq>,
    last_ack_at: Option<Instant>,
    last_zero_at: Option<Instant>,
    floor: Option<Floor>,
}

/// No ACK echoes less, until then.
#[derive(Clone, Copy, Debug)]
struct Floor {
    stamp: u32,
    until: Instant,
}

/// The maximum segment lifetime (RFC 9293 section 3.4.2).
const MSL: Duration = Duration::from_secs(120);

impl TimestampEcho {
    /// The name in scenario files.
    pub const NAME: &'static str = "timestamp_echo";

    /// A filter without state.
    pub fn new(config: TimestampEchoConfig) -> Self {
        Self { config, connections: Table::default(), fading: false, down: false, actions: VecDeque::new() }
    }

    fn on_up(&mut self, now: Instant) {
        (self.fading, self.down) = (false, false);
        for (connection, state) in self.connections.live_mut() {
            let since = match self.config.since {
                Since::ZeroWindow => state.last_zero_at.take(),
                Since::LastAck => state.last_ack_at,
            };
            let Some((since, (stamp, came_at))) = since.zip(state.recent) else { continue };
            // A stamp that arrived later than the ACK is younger by that.
            let Some(ticks) = state.ticks(since.max(came_at), now) else { continue };
            state.floor = Some(Floor { stamp: stamp.wrapping_add(ticks), until: now + MSL });
            self.actions.push_back(Action { at: now, connection, mechanism: Self::NAME, what: "refreshed" });
        }
    }
}

impl SegmentFilter for TimestampEcho {
    fn handle_packet(&mut self, now: Instant, direction: Direction, packet: &mut Packet) -> Verdict {
        let Some(connection) = Connection::of(direction, packet) else { return Verdict::Pass };
        let Some(segment) = packet.tcp() else { return Verdict::Pass };
        let state = self.connections.observe(now, direction, connection, segment).value;
        let Some(stamps) = segment.options.timestamps else { return Verdict::Pass };
        if segment.flags.contains(Flags::RST) {
            return Verdict::Pass;
        }
        if direction == Direction::Incoming {
            state.hear(now, segment, stamps.val);
            return Verdict::Pass;
        }
        // A SYN-ACK echoes the stamp of the SYN.
        if !segment.flags.contains(Flags::ACK) || segment.flags.contains(Flags::SYN) {
            return Verdict::Pass;
        }
        if !self.down {
            state.last_ack_at = Some(now);
            if self.fading && segment.window == 0 {
                state.last_zero_at = Some(now);
            }
        }
        state.expected = Some(state.expected.map_or(segment.ack, |expected| expected.max(segment.ack)));
        let echo = state.echo(now, stamps.ecr, self.config.echo);
        if echo != stamps.ecr
            && let Some(segment) = tcp_mut(packet)
        {
            segment.options.timestamps = Some(Timestamps { ecr: echo, ..stamps });
        }
        Verdict::Pass
    }

    fn handle_link(&mut self, now: Instant, event: LinkEvent) {
        match event {
            LinkEvent::Fading { .. } if !self.fading => {
                self.fading = true;
                self.connections.iter_mut().for_each(|(_, state)| state.last_zero_at = None);
            }
            LinkEvent::Fading { .. } => {}
            LinkEvent::Recovered => self.fading = false,
            LinkEvent::Down => self.down = true,
            LinkEvent::Up { .. } => self.on_up(now),
        }
    }

    fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    fn fork(&self) -> Option<Box<dyn SegmentFilter>> {
        Some(Box::new(self.clone()))
    }
}

impl State {
    fn hear(&mut self, now: Instant, segment: &Segment, stamp: u32) {
        self.clock.note(now, stamp);
        let in_order = self.expected.is_none_or(|expected| segment.seq.le(expected));
        if !in_order || self.recent.is_some_and(|(recent, _)| is_older(stamp, recent)) {
            return;
        }
        // A repeated stamp is as old as its first arrival.
        if self.recent.is_none_or(|(recent, _)| recent != stamp) {
            self.recent = Some((stamp, now));
        }
        let end = segment.seq + segment.seq_len();
        self.expected = Some(self.expected.map_or(end, |expected| expected.max(end)));
    }

    /// The least number of ticks of the peer's clock between two times; `None` if unknown, or zero.
    fn ticks(&self, from: Instant, to: Instant) -> Option<u32> {
        let (from, to) = self.clock.at(from).zip(self.clock.at(to))?;
        is_older(from, to).then(|| to.wrapping_sub(from))
    }

    fn echo(&mut self, now: Instant, own: u32, rule: Echo) -> u32 {
        let echo = match rule {
            Echo::Own => own,
            Echo::Newest => self.recent.map_or(own, |(recent, _)| recent),
        };
        self.floor = self.floor.filter(|floor| now < floor.until && is_older(echo, floor.stamp));
        self.floor.map_or(echo, |floor| floor.stamp)
    }
}
