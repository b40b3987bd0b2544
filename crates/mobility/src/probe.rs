//! **PROBE: explicit handoff recovery.** Losses of a handoff are detected by timeouts that have backed off, or one loss per round trip, and
//! slow start continues up to a threshold that the timeouts have reduced. Here the TCPs of both ends know of handoffs: the mobile receiver
//! reports the end of one, the sender probes the new path with three segments, and the answer reports the missing data and the bandwidth of
//! the path.
//!
//! After Chan, Tsang and Gupta, *Impacts of Handoff on TCP Performance in Mobile Wireless Computing* (1997), section III.A. Both ends need
//! this mechanism and their own TCP. It cannot be combined with mechanisms that restart a sender after a handoff
//! ([`crate::fast_retransmit`], [`crate::retransmission_trigger`], [`crate::reconnect_acks`]), nor with those that withhold ACKs
//! ([`crate::wake`] and its parts).
//!
//! **The exchange.**
//!
//! 1. *Mobile host*, when its link is up at another attachment: three nacks on each connection, pure ACKs with an option. A
//!    distinct kind is needed because a sender that guards against false fast retransmits ignores duplicate ACKs after a
//!    timeout (RFC 6582 section 3.2).
//! 2. *Sender*, at the first nack of a handoff; a mobile sender at the link event: the handoff recovery phase begins. Fast retransmit is
//!    barred below SND.NXT, the timer restarts without backoff, and three consecutive segments from SND.UNA on are sent as probes.
//!    Outstanding data is presumed lost but not retransmitted before the bitmask has arrived.
//! 3. *Receiver*: the spacing of consecutive probes gives the bandwidth (packet pair). After the last probe, or when no other has arrived
//!    for [`ProbeConfig::patience`], one ACK carries the bitmask.
//! 4. *Sender*: ssthresh = bandwidth × round-trip time, cwnd = ssthresh / 2. Data that the receiver holds is marked as received; the rest
//!    is retransmitted within cwnd, oldest first, and cwnd grows with ACKs as usual. The phase ends, and the bar is lifted, when all data
//!    up to recovery_end is acknowledged, the highest byte that the receiver held.
//!
//! **Encoding.** A shared experimental option (RFC 6994) of kind 253 with the identifier [`OPTION_ID`], a byte for the kind of message, and
//! a byte that identifies the handoff:
//!
//! ```text
//!   nack     8 bytes   0, number
//!   probe   10 bytes   1, number, index of the probe, number of probes
//!   bitmask            2, number, bandwidth (32 bits, bytes of data per second, 0 if unknown),
//!                      ms waited for missing probes, bytes from the ACK number to the highest byte held,
//!                      then alternately: bytes missing, bytes held, from the ACK number on
//! ```
//!
//! The highest in-sequence byte is the segment's ACK number. Numbers after the bandwidth have 7 bits a byte, lowest first. With timestamps,
//! three ranges of full-sized segments fit into 40 bytes of options, without them six; SACK blocks are dropped. Data beyond the listed
//! ranges counts as missing. Probes are 12 bytes shorter than full-sized segments, to make room for the option.
//!
//! **Where the paper is silent.**
//!
//! - *The first nack counts.* The others with its number are ignored, however late; a nack must have sequence and ACK numbers that the peer
//!   can send.
//! - *All nacks are lost:* TCP's timer continues unchanged.
//! - *Probes or the bitmask are lost:* without the first or the third the bandwidth is that of the pair that arrived; without a pair cwnd
//!   is one segment and ssthresh stays. If all probes are acknowledged without a bitmask, slow start continues from as many segments, and
//!   the phase ends with the next ACK that advances: this happens with a peer without PROBE. If nothing arrives, the timer expires after
//!   one RTO, and the phase ends with an ordinary timeout. Probes are not repeated.
//! - *The round-trip time* is that of the probes' own exchange, without the transmission time of the second and third probe on the
//!   bottleneck: SRTT belongs to the old cell, and gets no new samples after retransmissions (Karn). [`RoundTrip::Smoothed`] uses SRTT.
//! - *Bounds:* ssthresh at least 2 segments and at most the peer's window, cwnd at least 1.
//! - *Count* is TCP's own estimate of the data in flight: it falls with each acknowledged segment, not with each ACK.
//! - *Data above recovery_end* that was sent before the handoff is not covered by the bitmask. It is retransmitted after the missing data
//!   below, and before new data. TCP's loss state lasts until all of it is acknowledged, as after a timeout.
//! - *A retransmission is lost:* three duplicate ACKs make the sender retransmit the segment after the ACK again, once; with SACK, TCP's
//!   own loss detection and timer handle it. A timeout ends the phase, and retransmits all data that the receiver is not known to hold.
//! - *A closed window, or nothing outstanding:* no phase. The windows of the old cell remain in force.
//! - *The wireless link is assumed to be the bottleneck, without other traffic between the probes.* Other traffic makes the estimate
//!   smaller.

mod option;
mod receiver;
mod sender;

use core::net::IpAddr;
use std::collections::{BTreeMap, VecDeque};

use holdover_base::{Duration, Instant};
use holdover_tcp::{ConnectionId, Endpoint};
use holdover_wire::{Flags, Packet};

use crate::peer_numbers::PeerNumbers;
use crate::{Action, Direction, EndpointMechanism, LinkEvent, SegmentFilter, Verdict};
use holdover_filter::{Agenda, Connection, LIMIT, tcp_mut};
use option::{Bitmask, Message};
use receiver::{Answer, Arrivals};
use sender::{Progress, Recovering};

pub use option::OPTION_ID;

/// The recovery from a handoff.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ProbeConfig {
    /// The number of nacks for each peer; 0 for none.
    pub nacks: u8,
    /// The number of segments in a probe, at least 1; two give a bandwidth.
    pub probes: u8,
    /// Whether the host probes for its own data at link-up.
    pub own_data: bool,
    /// Whether only a change of attachment counts, or every link-up.
    pub only_moved: bool,
    /// How long the receiver waits for the next probe before it answers.
    pub patience: Duration,
    /// The round-trip time for the computation of ssthresh.
    pub round_trip: RoundTrip,
}

impl Default for ProbeConfig {
    /// Three nacks, three probes, both directions, after handoffs; an answer after 200 ms, which is less than a timeout.
    fn default() -> Self {
        Self {
            nacks: 3,
            probes: 3,
            own_data: true,
            only_moved: true,
            patience: Duration::from_millis(200),
            round_trip: RoundTrip::Exchange,
        }
    }
}

/// The round-trip time for the computation of ssthresh.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RoundTrip {
    /// From the probes to the bitmask.
    Exchange,
    /// TCP's SRTT, or that of the exchange without one.
    Smoothed,
}

/// The mechanism. See the module's documentation.
#[derive(Debug)]
pub struct Probe {
    config: ProbeConfig,
    handoffs: VecDeque<Affected>,
    /// The number of the last handoff of this host.
    number: u8,
    /// Nacks and bitmasks to be sent with an ACK.
    outgoing: BTreeMap<Connection, VecDeque<Outgoing>>,
    heard: VecDeque<PeerMessage>,
    recovering: BTreeMap<Connection, Recovering>,
    /// The last number of each peer that started a phase.
    nacked: BTreeMap<ConnectionId, u8>,
    arrivals: BTreeMap<Connection, Arrivals>,
    agenda: Agenda,
    actions: VecDeque<Action>,
}

/// The connections whose path has changed.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Affected {
    All,
    Peer(Vec<IpAddr>),
}

#[derive(Clone, Debug)]
enum Outgoing {
    Nack(u8),
    Bitmask(Answer),
}

/// A message of a peer.
#[derive(Clone, Debug)]
struct PeerMessage {
    connection: Connection,
    numbers: PeerNumbers,
    what: Content,
}

#[derive(Clone, Debug)]
enum Content {
    Nack(u8),
    Bitmask(Bitmask),
}

impl Probe {
    /// The name in scenario files.
    pub const NAME: &'static str = "probe";

    /// A mechanism without state.
    pub fn new(config: ProbeConfig) -> Self {
        Self {
            config,
            handoffs: VecDeque::new(),
            number: 0,
            outgoing: BTreeMap::new(),
            heard: VecDeque::new(),
            recovering: BTreeMap::new(),
            nacked: BTreeMap::new(),
            arrivals: BTreeMap::new(),
            agenda: Agenda::default(),
            actions: VecDeque::new(),
        }
    }

    fn note(&mut self, at: Instant, connection: Connection, what: &'static str) {
        self.actions.push_back(Action { at, connection, mechanism: Self::NAME, what });
    }

    fn hear_of_link(&mut self, who: Affected, event: LinkEvent) {
        if let LinkEvent::Up { moved, .. } = event
            && (moved || !self.config.only_moved)
        {
            self.handoffs.push_back(who);
        }
    }

    fn handle_outgoing(&mut self, now: Instant, connection: Connection, packet: &mut Packet) {
        let Some(segment) = tcp_mut(packet) else { return };
        if let Some(recovering) = self.recovering.get_mut(&connection) {
            recovering.note_sent(now, segment);
        }
        if segment.flags != Flags::ACK || !segment.payload.is_empty() {
            return;
        }
        let Some(waiting) = self.outgoing.get_mut(&connection) else { return };
        if let Some(next) = waiting.pop_front() {
            let message = match next {
                Outgoing::Nack(number) => Message::Nack { number },
                Outgoing::Bitmask(answer) => Message::Bitmask(answer.bitmask(segment.ack)),
            };
            message.put(segment);
        }
        if waiting.is_empty() {
            self.outgoing.remove(&connection);
        }
    }

    fn handle_incoming(&mut self, now: Instant, connection: Connection, packet: &Packet) {
        let Some(segment) = packet.tcp() else { return };
        let len = segment.payload.len() as u32;
        if len == 0
            && let Some(recovering) = self.recovering.get_mut(&connection)
        {
            recovering.note_ack(segment);
        }
        if segment.options.experimental.is_none() {
            return;
        }
        let numbers = PeerNumbers::of(segment);
        let what = match Message::read(segment) {
            Some(Message::Nack { number }) => Content::Nack(number),
            Some(Message::Bitmask(bitmask)) => Content::Bitmask(bitmask),
            Some(Message::Probe { number, index, count }) => {
                if self.arrivals.get(&connection).is_none_or(|arrivals| arrivals.number != number) {
                    self.expect_probes(connection, Arrivals::new(now, number, count));
                }
                if let Some(arrivals) = self.arrivals.get_mut(&connection)
                    && let Some(due) = arrivals.note(now, index, len, self.config.patience)
                {
                    self.agenda.set(connection, &mut arrivals.due, Some(due));
                }
                return;
            }
            None => return,
        };
        self.heard.push_back(PeerMessage { connection, numbers, what });
    }

    fn expect_probes(&mut self, connection: Connection, arrivals: Arrivals) {
        if self.arrivals.len() >= LIMIT
            && let Some((first, mut forgotten)) = self.arrivals.pop_first()
        {
            self.agenda.set(first, &mut forgotten.due, None);
        }
        if let Some(mut before) = self.arrivals.insert(connection, arrivals) {
            self.agenda.set(connection, &mut before.due, None);
        }
    }

    /// The mobile host has arrived: it sends nacks to its peers, and probes for its own data.
    fn hand_off(&mut self, now: Instant, endpoint: &mut Endpoint, who: &Affected) {
        self.number = self.number.wrapping_add(1);
        let is_meant = |tcp: &holdover_tcp::Connection| match who {
            Affected::All => true,
            Affected::Peer(addresses) => addresses.contains(&tcp.remote().ip()),
        };
        let ids = endpoint.connections().filter(|(_, tcp)| tcp.state().is_synchronized() && is_meant(tcp));
        let ids: Vec<ConnectionId> = ids.map(|(id, _)| id).collect();
        for id in ids {
            let Some(tcp) = endpoint.connection_mut(id) else { continue };
            let connection = Connection { local: tcp.local(), remote: tcp.remote() };
            if self.config.nacks > 0 {
                tcp.send_acks(self.config.nacks);
                let nacks = (0..self.config.nacks).map(|_| Outgoing::Nack(self.number));
                make_room(&mut self.outgoing);
                // A nack of the previous handoff that was not sent is obsolete.
                self.outgoing.insert(connection, nacks.collect());
                self.note(now, connection, "sent nacks");
            }
            if self.config.own_data {
                self.begin(now, endpoint, id, self.number);
            }
        }
    }

    /// The handoff recovery phase begins, or restarts.
    fn begin(&mut self, now: Instant, endpoint: &mut Endpoint, id: ConnectionId, number: u8) {
        let Some(tcp) = endpoint.connection_mut(id) else { return };
        let connection = Connection { local: tcp.local(), remote: tcp.remote() };
        if let Some(recovering) = Recovering::begin(now, id, tcp, number, &self.config) {
            make_room(&mut self.recovering);
            self.recovering.insert(connection, recovering);
            self.note(now, connection, "probed");
        }
    }

    fn take_heard(&mut self, now: Instant, endpoint: &mut Endpoint, heard: &PeerMessage) {
        let is_it = |tcp: &holdover_tcp::Connection| {
            tcp.local() == heard.connection.local
                && tcp.remote() == heard.connection.remote
                && heard.numbers.are_plausible(tcp)
        };
        let Some(id) = endpoint.connections().find(|(_, tcp)| is_it(tcp)).map(|(id, _)| id) else { return };
        match &heard.what {
            Content::Nack(number) => {
                if self.nacked.get(&id) != Some(number) {
                    make_room(&mut self.nacked);
                    self.nacked.insert(id, *number);
                    self.begin(now, endpoint, id, *number);
                }
            }
            Content::Bitmask(bitmask) => {
                let Some(tcp) = endpoint.connection_mut(id) else { return };
                let Some(recovering) = self.recovering.get_mut(&heard.connection) else { return };
                if recovering.take_bitmask(now, tcp, heard.numbers.ack, bitmask, &self.config) {
                    self.note(now, heard.connection, "took the bitmask");
                }
            }
        }
    }

    /// The receiver sends due answers.
    fn answer(&mut self, now: Instant, endpoint: &mut Endpoint) {
        while let Some(connection) = self.agenda.take_due(now) {
            let is_it =
                |tcp: &holdover_tcp::Connection| tcp.local() == connection.local && tcp.remote() == connection.remote;
            let id = endpoint.connections().find(|(_, tcp)| is_it(tcp)).map(|(id, _)| id);
            let tcp = id.and_then(|id| endpoint.connection_mut(id)).filter(|tcp| tcp.state().is_synchronized());
            let (Some(tcp), Some(arrivals)) = (tcp, self.arrivals.get_mut(&connection)) else {
                self.arrivals.remove(&connection);
                continue;
            };
            arrivals.due = None;
            let answer = arrivals.answer(now, tcp);
            tcp.send_acks(1);
            make_room(&mut self.outgoing);
            self.outgoing.entry(connection).or_default().push_back(Outgoing::Bitmask(answer));
            self.note(now, connection, "answered");
        }
    }

    /// Advances senders in the phase.
    fn step(&mut self, now: Instant, endpoint: &mut Endpoint) {
        let mut notes = Vec::new();
        self.recovering.retain(|connection, recovering| {
            let Some(tcp) = endpoint.connection_mut(recovering.id).filter(|tcp| !tcp.is_closed()) else { return false };
            let what = match recovering.step(now, tcp) {
                Progress::Lasts => return true,
                Progress::Repeated => "repeated",
                Progress::Recovered => "recovered",
                Progress::Unanswered => "was not answered",
                Progress::TimedOut => "timed out",
            };
            notes.push((*connection, what));
            if what == "repeated" {
                return true;
            }
            Recovering::end(tcp);
            false
        });
        for (connection, what) in notes {
            self.note(now, connection, what);
        }
    }
}

/// Bounds the table of connections; evicted ones are left to TCP's timer.
fn make_room<K: Ord, V>(map: &mut BTreeMap<K, V>) {
    if map.len() >= LIMIT {
        map.pop_first();
    }
}

impl SegmentFilter for Probe {
    fn handle_packet(&mut self, now: Instant, direction: Direction, packet: &mut Packet) -> Verdict {
        let Some(connection) = Connection::of(direction, packet) else { return Verdict::Pass };
        match direction {
            Direction::Outgoing if self.outgoing.is_empty() && self.recovering.is_empty() => {}
            Direction::Outgoing => self.handle_outgoing(now, connection, packet),
            Direction::Incoming => self.handle_incoming(now, connection, packet),
        }
        Verdict::Pass
    }

    fn handle_link(&mut self, _now: Instant, event: LinkEvent) {
        self.hear_of_link(Affected::All, event);
    }

    fn handle_peer(&mut self, _now: Instant, peer: &[IpAddr], event: LinkEvent) {
        self.hear_of_link(Affected::Peer(peer.to_vec()), event);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.agenda.next()
    }

    fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }
}

impl EndpointMechanism for Probe {
    fn steer(&mut self, now: Instant, endpoint: &mut Endpoint) {
        for who in core::mem::take(&mut self.handoffs) {
            self.hand_off(now, endpoint, &who);
        }
        for heard in core::mem::take(&mut self.heard) {
            self.take_heard(now, endpoint, &heard);
        }
        self.answer(now, endpoint);
        self.step(now, endpoint);
    }
}
