//! **The fixed host's part of EBSN** (Bakshi, Krishna, Vaidya and Pradhan 1997). A base station that retransmits the losses of its wireless
//! link notifies the sender of each failed attempt (`holdover_gateway::ebsn`). The sender restarts its retransmission timer with the
//! current timeout: the backoff, cwnd and ssthresh do not change. When notifications stop, the timer expires as usual.
//!
//! A notification is honoured if it quotes a connection of this host and an outstanding byte (RFC 5927 section 4.1), and for at most
//! [`EbsnConfig::longest`] from the first one on while SND.UNA does not advance: an attacker cannot stop the timer for ever, and the limit on
//! retransmissions (RFC 9293 section 3.8.3, R2) still applies.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;

use holdover_base::{Duration, Instant};
use holdover_filter::Connection;
use holdover_tcp::{ConnectionId, Endpoint};
use holdover_wire::{Packet, Payload, Seq, Unreachable};

use crate::{Action, Direction, EndpointMechanism, LinkEvent, SegmentFilter, Verdict};

/// How long notifications are honoured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EbsnConfig {
    /// How long they may postpone the timer while nothing new is acknowledged.
    pub longest: Duration,
}

impl Default for EbsnConfig {
    /// 100 s, the shortest time before a connection may be given up (RFC 1122 section 4.2.3.5).
    fn default() -> Self {
        Self { longest: Duration::from_secs(100) }
    }
}

/// The mechanism. See the module's documentation.
#[derive(Debug)]
pub struct Ebsn {
    config: EbsnConfig,
    /// Messages that have arrived since the last call of `steer`.
    arrived: VecDeque<(Connection, Seq)>,
    /// Since when notifications postpone the timer of a connection, and SND.UNA since then.
    since: BTreeMap<Connection, (Seq, Instant)>,
    actions: VecDeque<Action>,
}

impl Ebsn {
    /// The name in scenario files.
    pub const NAME: &'static str = "ebsn";

    /// The most messages handled together.
    const MOST_ARRIVED: usize = 64;

    /// A mechanism without state.
    pub const fn new(config: EbsnConfig) -> Self {
        Self { config, arrived: VecDeque::new(), since: BTreeMap::new(), actions: VecDeque::new() }
    }

    /// Applies one message, if it is plausible. Returns whether the timer was restarted.
    fn apply(&mut self, now: Instant, endpoint: &mut Endpoint, name: Connection, quoted: Seq) -> bool {
        let is_it = |connection: &holdover_tcp::Connection| {
            connection.local() == name.local && connection.remote() == name.remote && !connection.is_closed()
        };
        let id: Option<ConnectionId> =
            endpoint.connections().find(|(_, connection)| is_it(connection)).map(|(id, _)| id);
        let Some(connection) = id.and_then(|id| endpoint.connection_mut(id)) else {
            self.since.remove(&name);
            return false;
        };
        let una = connection.snd_una();
        if quoted.lt(una) || quoted.ge(connection.snd_nxt()) {
            return false;
        }
        let (at, since) = self.since.entry(name).or_insert((una, now));
        if *at != una {
            (*at, *since) = (una, now);
        }
        now.saturating_since(*since) <= self.config.longest && connection.restart_retransmit_timer(now)
    }
}

impl SegmentFilter for Ebsn {
    fn handle_packet(&mut self, _now: Instant, direction: Direction, packet: &mut Packet) -> Verdict {
        if direction == Direction::Incoming
            && let Payload::IcmpError(error) = &packet.payload
            && error.kind == Unreachable::BadState
            && let Ok(quoted) = error.quoted_tcp()
            && self.arrived.len() < Self::MOST_ARRIVED
        {
            let local = SocketAddr::new(quoted.src, quoted.src_port);
            let remote = SocketAddr::new(quoted.dst, quoted.dst_port);
            self.arrived.push_back((Connection { local, remote }, quoted.seq));
        }
        Verdict::Pass
    }

    fn handle_link(&mut self, _now: Instant, _event: LinkEvent) {}

    fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }
}

impl EndpointMechanism for Ebsn {
    fn steer(&mut self, now: Instant, endpoint: &mut Endpoint) {
        while let Some((connection, quoted)) = self.arrived.pop_front() {
            if self.apply(now, endpoint, connection, quoted) {
                let what = "restarted the timer";
                self.actions.push_back(Action { at: now, connection, mechanism: Self::NAME, what });
            }
        }
        // Closed connections are removed now and then.
        if self.since.len() > 2 * endpoint.connections().count() + Self::MOST_ARRIVED {
            let names = |(_, connection): (ConnectionId, &holdover_tcp::Connection)| Connection {
                local: connection.local(),
                remote: connection.remote(),
            };
            let live: Vec<Connection> = endpoint.connections().map(names).collect();
            self.since.retain(|name, _| live.contains(name));
        }
    }
}
