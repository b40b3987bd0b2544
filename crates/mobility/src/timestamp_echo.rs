//! **Timestamp echo update.** A sender measures its round trip by the timestamps that come back with its ACKs (RFC 7323). If the
//! last ACK before a cut was lost, the first one after it acknowledges new data and brings back a stamp from before: the sample
//! is as long as the outage, the retransmission timeout swells, and a loss that only the timer can repair waits for it. Linux
//! suffers more: a stale stamp proves to it that its timeout was spurious, so that it takes a window of dead packets for packets
//! in flight (Eifel, RFC 3522).
//!
//! So the host adds to the stamp what the outage took. After the thesis (section 4.4, *timestamp echo update*): at reconnection
//! the stamp to echo becomes that of the last segment before the cut, plus the time since the last ACK with a window of zero.
//! From then on no ACK echoes less, which is also the thesis's rule for segments that waited in the network during the outage,
//! and whose stamps are old too. A segment that the peer sent after the reconnection is stamped later than any value made here,
//! and so ends it.
//!
//! The time must be counted in ticks of the peer's clock, whose rate is learnt from its stamps ([`crate::timestamp_echo`] knows
//! the usual ones, and takes the slowest that fits). The made-up stamp is never ahead of the peer's clock: time counts from the
//! arrival of the stamp at the earliest, when the peer's clock had passed it already. The peer has never sent that stamp,
//! though: this is a mechanism to choose, not one to have by default.
//!
//! **What can go wrong.** Nothing was learnt of the clock, or no ACK with a window of zero left ([`Since::ZeroWindow`]): the
//! stamp stays as it is. The zero window was early: the sample comes out smaller than the round trip, which the sender's
//! smoothing and the floor of its timeout absorb.

use std::collections::VecDeque;

use holdover_base::{Duration, Instant};
use holdover_wire::{Flags, Packet, Segment, Seq};

use crate::connections::{Connection, Table, tcp_mut};
use crate::{Deed, Direction, LinkEvent, SegmentFilter, Verdict};

/// How the echoed timestamp is kept up to date.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TimestampEchoConfig {
    /// From when on the outage is counted.
    pub since: Since,
    /// Which stamp is echoed at other times.
    pub echo: Echo,
}

impl Default for TimestampEchoConfig {
    /// As in the thesis: since the last zero window. Otherwise the host's own echo.
    fn default() -> Self {
        Self { since: Since::ZeroWindow, echo: Echo::Own }
    }
}

/// From when on the outage is counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Since {
    /// From the last ACK with a window of zero that left after the warning (thesis, section 4.4). Without one, nothing is done.
    ZeroWindow,
    /// From the last ACK before the cut: for a host that does not freeze, or was not warned.
    LastAck,
}

/// Which stamp the host echoes while nothing is cut off.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Echo {
    /// That which its TCP chooses: of the segment that ACKs wait for (RFC 7323 section 4.3).
    Own,
    /// The newest of a segment that begins at or before what is expected, whether or not an ACK of it was lost or delayed
    /// (thesis, section 5.1.3, after Wright and Stevens).
    Newest,
}

/// The filter. See the module's documentation.
#[derive(Debug)]
pub struct TimestampEcho {
    config: TimestampEchoConfig,
    connections: Table<State>,
    fading: bool,
    down: bool,
    deeds: VecDeque<Deed>,
}

#[derive(Clone, Debug, Default)]
struct State {
    clock: PeerClock,
    /// The newest stamp of a segment that a TCP may echo, and when it came.
    recent: Option<(u32, Instant)>,
    /// What the host's TCP expects next.
    expected: Option<Seq>,
    last_ack_at: Option<Instant>,
    last_zero_at: Option<Instant>,
    /// No ACK echoes less.
    floor: Option<u32>,
}

impl TimestampEcho {
    /// The name in scenario files.
    pub const NAME: &'static str = "timestamp_echo";

    /// A filter that has seen nothing yet.
    pub fn new(config: TimestampEchoConfig) -> Self {
        Self { config, connections: Table::default(), fading: false, down: false, deeds: VecDeque::new() }
    }

    fn on_up(&mut self, now: Instant) {
        (self.fading, self.down) = (false, false);
        for (connection, state) in self.connections.iter_mut() {
            let since = match self.config.since {
                Since::ZeroWindow => state.last_zero_at.take(),
                Since::LastAck => state.last_ack_at,
            };
            let Some((since, (stamp, came_at))) = since.zip(state.recent) else { continue };
            // A stamp that came later than the ACK is younger by that.
            let outage = now.saturating_since(since.max(came_at));
            let Some(ticks) = state.clock.ticks_in(outage).filter(|&ticks| ticks > 0) else { continue };
            state.floor = Some(stamp.wrapping_add(ticks));
            self.deeds.push_back(Deed { at: now, connection, mechanism: Self::NAME, what: "refreshed" });
        }
    }
}

impl SegmentFilter for TimestampEcho {
    fn handle_packet(&mut self, now: Instant, direction: Direction, packet: &mut Packet) -> Verdict {
        let Some(connection) = Connection::of(direction, packet) else { return Verdict::Pass };
        let Some(segment) = packet.tcp() else { return Verdict::Pass };
        let Some(stamps) = segment.options.timestamps else { return Verdict::Pass };
        if segment.flags.contains(Flags::RST) {
            return Verdict::Pass;
        }
        let state = self.connections.note(now, connection, segment);
        if direction == Direction::Incoming {
            state.hear(now, segment, stamps.val);
            return Verdict::Pass;
        }
        if !segment.flags.contains(Flags::ACK) {
            return Verdict::Pass;
        }
        if !self.down {
            state.last_ack_at = Some(now);
            if self.fading && segment.window == 0 {
                state.last_zero_at = Some(now);
            }
        }
        state.expected = Some(state.expected.map_or(segment.ack, |expected| expected.max(segment.ack)));
        if let Some(echo) = state.echo(stamps.ecr, self.config.echo).filter(|&echo| echo != stamps.ecr)
            && let Some(segment) = tcp_mut(packet)
            && let Some(stamps) = &mut segment.options.timestamps
        {
            stamps.ecr = echo;
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

    fn poll_deed(&mut self) -> Option<Deed> {
        self.deeds.pop_front()
    }
}

impl State {
    fn hear(&mut self, now: Instant, segment: &Segment, stamp: u32) {
        self.clock.note(now, stamp);
        let in_order = self.expected.is_none_or(|expected| segment.seq.le(expected));
        if !in_order || self.recent.is_some_and(|(recent, _)| is_before(stamp, recent)) {
            return;
        }
        // The same stamp again is as old as when it first came.
        if self.recent.is_none_or(|(recent, _)| recent != stamp) {
            self.recent = Some((stamp, now));
        }
        let end = segment.seq + segment.seq_len();
        self.expected = Some(self.expected.map_or(end, |expected| expected.max(end)));
    }

    fn echo(&mut self, own: u32, rule: Echo) -> Option<u32> {
        let echo = match rule {
            Echo::Own => own,
            Echo::Newest => self.recent.map_or(own, |(recent, _)| recent),
        };
        match self.floor {
            Some(floor) if is_before(echo, floor) => Some(floor),
            Some(_) => {
                self.floor = None;
                Some(echo)
            }
            None => Some(echo),
        }
    }
}

fn is_before(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) < 0
}

/// The peer's timestamp clock, by its stamps.
#[derive(Clone, Copy, Debug, Default)]
struct PeerClock {
    first: Option<(u32, Instant)>,
    last: Option<(u32, Instant)>,
}

/// Clocks in use, in Hz: 4.3BSD's slow timer and Linux's HZ over time, milliseconds, microseconds (RFC 7323 section 5.4 wants 1
/// to 1000).
const USUAL_HZ: [u64; 7] = [1, 2, 10, 100, 250, 1_000, 1_000_000];

/// Over less than this, a queue that fills distorts the rate too much.
const LEAST_BASELINE: Duration = Duration::from_millis(200);

impl PeerClock {
    fn note(&mut self, now: Instant, stamp: u32) {
        let restarted = self.last.is_some_and(|(last, _)| is_before(stamp, last));
        // Retransmissions and reordering bring old stamps; only what goes on counts.
        if restarted {
            return;
        }
        self.first.get_or_insert((stamp, now));
        if self.last.is_none_or(|(last, _)| last != stamp) {
            self.last = Some((stamp, now));
        }
    }

    /// How many ticks it makes at least in `span`; `None` before its rate is known.
    fn ticks_in(&self, span: Duration) -> Option<u32> {
        let ((first, began), (last, ended)) = self.first.zip(self.last)?;
        let (ticks, baseline) = (u64::from(last.wrapping_sub(first)), ended.saturating_since(began));
        if ticks == 0 || baseline < LEAST_BASELINE {
            return None;
        }
        // The stamps are up to a tick old, and queues stretch or shrink the baseline by an eighth at most.
        let nanos = u128::from(baseline.as_nanos());
        let fits = |hz: u64| {
            let by_rate = u128::from(hz) * nanos / 1_000_000_000;
            by_rate * 9 / 8 + 1 >= u128::from(ticks) && by_rate * 7 / 8 <= u128::from(ticks) + 1
        };
        let span = u128::from(span.as_nanos());
        let ticks = match USUAL_HZ.into_iter().find(|&hz| fits(hz)) {
            Some(hz) => span * u128::from(hz) / 1_000_000_000,
            None => span * u128::from(ticks - 1) * 8 / (nanos * 9),
        };
        u32::try_from(ticks).ok().filter(|&ticks| ticks <= i32::MAX as u32)
    }
}
