//! **Explicit bad state notification** (Bakshi, Krishna, Vaidya and Pradhan, "Improving performance of TCP over wireless networks", ICDCS
//! 1997): the base station retransmits the losses of its wireless link. In a bad state that takes so long that the fixed host's
//! retransmission timer would expire meanwhile. So the base station notifies the fixed host of each failed attempt, and the fixed host
//! restarts its timer, with the same timeout and the same windows. The data arrives late but once, and the bad state is not taken for
//! congestion.
//!
//! Three parts cooperate:
//!
//! - the **link** retransmits its losses (`arq` of a link in a scenario, `holdover_link::Arq`), and reports each failed attempt
//!   ([`SegmentFilter::handle_failed_attempt`]);
//! - the **base station** ([`Ebsn`]) sends an ICMP message about the segment to its sender ([`Unreachable::BadState`]);
//! - the **fixed host** (`holdover_mobility::ebsn`) checks the message and restarts its timer. A host without this mechanism ignores the
//!   message.
//!
//! # Where the paper is silent, and differences
//!
//! - **The message.** The authors derive it from source quench and give no number. Here it is an ICMP error of a type for experiments. Its
//!   source address is the mobile host's: a filter has no address of its own.
//! - **Rate.** The paper notifies of each failed attempt. Here one connection gets at most one notification in [`EbsnConfig::every`], and
//!   all together [`Budget::PER_SECOND`] a second after a burst of [`Budget::AT_ONCE`], as RFC 1812 section 4.3.2.8 requires of routers.
//!   The fixed host's timer runs for much longer than `every`.
//! - **Scope.** Notifications are sent for segments with data (or SYN or FIN) that the mobile host has not acknowledged, of connections
//!   whose packets have passed in both directions.

use std::collections::VecDeque;

use holdover_base::{Duration, Instant};
use holdover_filter::{Action, Connection, Direction, Injected, LinkEvent, SegmentFilter, Stored, Table, Verdict};
use holdover_wire::{Flags, IcmpError, Packet, Payload, Seq, Unreachable};

/// The parameters of the base station. See the [module](self).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EbsnConfig {
    /// The least time between two notifications of one connection.
    pub every: Duration,
}

impl Default for EbsnConfig {
    /// 10 ms: RTOs are 200 ms and more.
    fn default() -> Self {
        Self { every: Duration::from_millis(10) }
    }
}

/// The filter of a base station. See the [module](self).
#[derive(Debug)]
pub struct Ebsn {
    config: EbsnConfig,
    connections: Table<State>,
    budget: Budget,
    ready: VecDeque<Packet>,
    actions: VecDeque<Action>,
}

/// A connection over which a fixed host sends.
#[derive(Clone, Default, Debug)]
struct State {
    /// The mobile host's last ACK.
    acked: Option<Seq>,
    notified_at: Option<Instant>,
}

impl Ebsn {
    /// The name in scenario files.
    pub const NAME: &'static str = "ebsn";

    /// A base station without state.
    pub fn new(config: EbsnConfig) -> Self {
        Self {
            config,
            connections: Table::default(),
            budget: Budget::default(),
            ready: VecDeque::new(),
            actions: VecDeque::new(),
        }
    }
}

impl SegmentFilter for Ebsn {
    fn handle_packet(&mut self, now: Instant, direction: Direction, packet: &mut Packet) -> Verdict {
        let Some(connection) = Connection::of(direction, packet) else { return Verdict::Pass };
        let Some(segment) = packet.tcp() else { return Verdict::Pass };
        let state = self.connections.observe(now, direction, connection, segment).value;
        if direction == Direction::Incoming && segment.flags.contains(Flags::ACK) {
            state.acked = Some(state.acked.map_or(segment.ack, |acked| acked.max(segment.ack)));
        }
        Verdict::Pass
    }

    fn handle_link(&mut self, _now: Instant, _event: LinkEvent) {}

    fn handle_failed_attempt(&mut self, now: Instant, packet: &Packet) {
        let Some(connection) = Connection::of(Direction::Outgoing, packet) else { return };
        let Some(segment) = packet.tcp().filter(|segment| segment.seq_len() > 0) else { return };
        let Some(state) = self.connections.get_mut(connection) else { return };
        let end = segment.seq + segment.seq_len();
        let is_outstanding = state.acked.is_some_and(|acked| acked.lt(end));
        let is_due = state.notified_at.is_none_or(|at| now.saturating_since(at) >= self.config.every);
        if !is_outstanding || !is_due || !self.budget.take(now) {
            return;
        }
        let Ok(error) = IcmpError::quoting_packet(Unreachable::BadState, packet) else { return };
        state.notified_at = Some(now);
        self.ready.push_back(Packet::new(packet.dst, packet.src, Payload::IcmpError(error)));
        self.actions.push_back(Action { at: now, connection, mechanism: Self::NAME, what: "notified" });
    }

    fn poll_transmit(&mut self, _now: Instant) -> Option<Injected> {
        self.ready.pop_front().map(|packet| Injected { direction: Direction::Incoming, packet })
    }

    fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    fn stored(&self) -> Stored {
        Stored::of_connections(self.connections.live().map(|_| 0))
    }
}

/// The limit of a base station's notifications: a token bucket.
#[derive(Clone, Copy, Default, Debug)]
pub struct Budget {
    /// When the bucket is full again.
    full_at: Instant,
}

impl Budget {
    /// Notifications in a burst.
    pub const AT_ONCE: u32 = 100;
    /// Notifications per second after the burst: of 100 bytes and less than 600 each, which is less than 4.8 Mbit/s.
    pub const PER_SECOND: u32 = 1_000;

    fn take(&mut self, now: Instant) -> bool {
        let each = Duration::from_secs(1) / u64::from(Self::PER_SECOND);
        let full_at = self.full_at.max(now) + each;
        let has_room = full_at.saturating_since(now) <= each * u64::from(Self::AT_ONCE);
        if has_room {
            self.full_at = full_at;
        }
        has_room
    }
}
