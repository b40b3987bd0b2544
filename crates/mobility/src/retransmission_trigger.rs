//! **Retransmission trigger.** A sender that was cut off has backed off its retransmission timer; when the path works again, it still
//! waits, for up to a minute by RFC 6298 and two in Linux. The trigger lets TCP retransmit as soon as the layer below it reports that the
//! peer may be reachable again, as though the retransmission timer had expired at that time: the first outstanding segment is sent, and
//! slow start follows. Windows and thresholds change as at a timeout.
//!
//! After Schuetz, Eggert, Schmid and Brunner, section 2.3. An indicator is *symmetric* if both ends get it at the same time, as at the end
//! of a readdressing handshake: each retransmits its own data. An *asymmetric* one is seen at one end alone, which then has to make the
//! other one retransmit as well. There are two ways: the [Immediate Retransmission option](OPTION_ID), which the other end must support,
//! and which it treats like an indicator of its own; or duplicate ACKs, for any peer with fast retransmit. The prototype carried congestion
//! state over to a new network unchanged when the cut was shorter than the timeout; *forced slow start*, which the paper asks for and did
//! not build, resets it.
//!
//! Failure modes: an indicator before the path works in both directions costs a segment, and TCP continues at its next timeout. Repeated
//! indicators would make a sender restart repeatedly, so there is at most one per interval on each connection; an earlier one is postponed
//! to the end of the interval, as the first may have come too early. A peer that follows RFC 5681 does not count duplicate ACKs that carry
//! data, and a SACK sender whose timer has expired counts none.

use core::net::IpAddr;
use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use holdover_base::{Duration, Instant};
use holdover_tcp::{AfterRetransmit, ConnectionId, Endpoint};
use holdover_wire::{Experimental, ExperimentalId, Flags, Packet, RareOptions, Segment, Seq, TcpOptions};

use crate::peer_numbers::PeerNumbers;
use crate::{Action, Direction, EndpointMechanism, Injected, LinkEvent, SegmentFilter, Verdict};
use holdover_filter::{Connection, LIMIT, tcp_mut};

/// The Immediate Retransmission option is a shared experimental option (RFC 6994) of kind 253 with this identifier, "HOIR", which is not
/// registered, and a 16-bit number that identifies the request: 8 bytes in all.
pub const OPTION_ID: u32 = 0x484f_4952;

const OPTION_LEN: usize = 8;

/// How TCP is made to retransmit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RetransmissionTriggerConfig {
    /// The treatment of the timer's backoff. The paper leaves it open.
    pub after: AfterRetransmit,
    /// Whether it counts towards the limit at which TCP gives up, like a retransmission by the timer. The paper leaves
    /// it open.
    pub counts: bool,
    /// How the other end is made to retransmit, if it does not know by itself.
    pub peer: PeerTrigger,
    /// Whether congestion state is reset when the attachment is new and the timer has not expired since the cut.
    pub forced_slow_start: bool,
    /// The shortest time between triggers on each connection, from any source. Another is postponed until then.
    pub min_interval: Duration,
}

impl Default for RetransmissionTriggerConfig {
    /// The timer restarts without backoff and without counting, the option informs the other end, a new network is
    /// entered by slow start, and there is at most one trigger in half a second.
    fn default() -> Self {
        Self {
            after: AfterRetransmit::Reset,
            counts: false,
            peer: PeerTrigger::Option,
            forced_slow_start: true,
            min_interval: Duration::from_millis(500),
        }
    }
}

/// How the other end is made to retransmit after an asymmetric indicator.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PeerTrigger {
    /// It is not.
    None,
    /// By the Immediate Retransmission option, on the next segment if it has room, otherwise on a separate ACK; on
    /// three segments if the peer sends nothing new meanwhile.
    Option,
    /// By this many segments with the same ACK number, at least four: three duplicates and the original that may be
    /// lost.
    DuplicateAcks {
        /// Their number.
        segments: u8,
        /// Whether retransmissions count among them, as in the paper; only the rest is then sent as pure ACKs. A peer
        /// that follows RFC 5681 section 2 does not count those.
        piggyback: bool,
    },
}

/// The mechanism. See the module's documentation.
#[derive(Clone, Debug)]
pub struct RetransmissionTrigger {
    config: RetransmissionTriggerConfig,
    indicators: Vec<Indicator>,
    fired: BTreeMap<Connection, Instant>,
    /// Indicators within the interval.
    postponed: BTreeMap<Connection, Postponed>,
    /// The number of the last granted request of each peer.
    answered: BTreeMap<ConnectionId, u16>,
    asking: BTreeMap<Connection, Request>,
    requests: u16,
    ready: VecDeque<Packet>,
    actions: VecDeque<Action>,
}

/// A peer may be reachable again.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Indicator {
    who: Affected,
    symmetric: bool,
    moved: bool,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Affected {
    All,
    Peer(Vec<IpAddr>),
    /// One connection, later.
    One(Connection),
    /// The peer of this connection has requested it.
    Requested(Connection, PeerRequest),
}

/// A segment with a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct PeerRequest {
    number: u16,
    numbers: PeerNumbers,
}

/// A postponed indicator.
#[derive(Clone, Copy, Debug)]
struct Postponed {
    until: Instant,
    symmetric: bool,
    moved: bool,
}

/// The number of segments with a request.
const MOST_REQUESTS: u8 = 3;

/// An option to be sent.
#[derive(Clone, Copy, Debug)]
struct Request {
    number: u16,
    /// The number of segments left.
    left: u8,
    /// SND.UNA when it was made.
    snd_una: Seq,
    /// Bytes of data and options that a segment may have, timestamps aside.
    room: usize,
    snd_nxt: Seq,
}

impl RetransmissionTrigger {
    /// The name in scenario files.
    pub const NAME: &'static str = "retransmission_trigger";

    /// A trigger before its first use.
    pub fn new(config: RetransmissionTriggerConfig) -> Self {
        Self {
            config,
            indicators: Vec::new(),
            fired: BTreeMap::new(),
            postponed: BTreeMap::new(),
            answered: BTreeMap::new(),
            asking: BTreeMap::new(),
            requests: 0,
            ready: VecDeque::new(),
            actions: VecDeque::new(),
        }
    }

    fn indicate(&mut self, who: Affected, event: LinkEvent) {
        if let LinkEvent::Up { symmetric, moved } = event {
            self.indicators.push(Indicator { who, symmetric, moved });
        }
    }

    fn note(&mut self, at: Instant, connection: Connection, what: &'static str) {
        self.actions.push_back(Action { at, connection, mechanism: Self::NAME, what });
    }

    /// Whether a connection may be triggered now, and if so, notes it; otherwise postpones it.
    fn may_fire(&mut self, now: Instant, connection: Connection, indicator: &Indicator) -> bool {
        let interval = self.config.min_interval;
        if let Some(&at) = self.fired.get(&connection).filter(|&&at| now.saturating_since(at) < interval) {
            let Indicator { symmetric, moved, .. } = *indicator;
            let before = self.postponed.get(&connection).copied();
            let before = before.unwrap_or(Postponed { until: at + interval, symmetric, moved });
            let both = (before.symmetric && symmetric, before.moved || moved);
            self.postponed.insert(connection, Postponed { symmetric: both.0, moved: both.1, ..before });
            return false;
        }
        self.postponed.remove(&connection);
        if self.fired.len() >= LIMIT {
            self.fired.retain(|_, at| now.saturating_since(*at) < interval);
        }
        self.fired.insert(connection, now);
        true
    }

    fn fire(&mut self, now: Instant, endpoint: &mut Endpoint, id: ConnectionId, indicator: &Indicator) {
        let Some(tcp) = endpoint.connection_mut(id) else { return };
        let connection = Connection { local: tcp.local(), remote: tcp.remote() };
        let (outstanding, ran_out) = (tcp.unacked(), tcp.backoff() > 0);
        let slow_start = self.config.forced_slow_start && indicator.moved && !ran_out && tcp.state().is_synchronized();
        let peer =
            if indicator.symmetric || !tcp.state().is_synchronized() { PeerTrigger::None } else { self.config.peer };
        if outstanding == 0 && !slow_start && peer == PeerTrigger::None {
            return;
        }
        if !self.may_fire(now, connection, indicator) {
            return self.note(now, connection, "held back");
        }
        if tcp.retransmit_now(now, self.config.after) {
            if self.config.counts {
                tcp.count_retransmission();
            }
            self.note(now, connection, "retransmitted");
        }
        if slow_start {
            tcp.force_slow_start();
            self.note(now, connection, "slow start");
        }
        match peer {
            PeerTrigger::None => {}
            PeerTrigger::Option => {
                self.requests = self.requests.wrapping_add(1);
                let request = Request {
                    number: self.requests,
                    left: MOST_REQUESTS,
                    snd_una: tcp.snd_una(),
                    room: tcp.snd_mss() as usize,
                    snd_nxt: tcp.snd_nxt(),
                };
                if self.asking.len() >= LIMIT {
                    self.asking.clear();
                }
                self.asking.insert(connection, request);
                if outstanding == 0 {
                    tcp.send_acks(1);
                }
                self.note(now, connection, "asked");
            }
            PeerTrigger::DuplicateAcks { segments, piggyback } => {
                let ride = if piggyback { u8::try_from(outstanding).unwrap_or(u8::MAX) } else { 0 };
                tcp.send_acks(segments.max(4).saturating_sub(ride));
                self.note(now, connection, "sent ACKs");
            }
        }
    }

    /// An outgoing segment of a connection whose peer is to be informed.
    fn ask(&mut self, connection: Connection, packet: &mut Packet) {
        let Some(segment) = packet.tcp() else { return };
        let Some(request) = self.asking.get_mut(&connection) else { return };
        let is_last = request.left == 1;
        request.left -= 1;
        request.snd_nxt = request.snd_nxt.max(segment.seq + segment.seq_len());
        let request = *request;
        if is_last || segment.flags.contains(Flags::RST) {
            self.asking.remove(&connection);
        }
        if segment.flags.contains(Flags::RST) {
            return;
        }
        let options = segment.options.wire_len();
        let timestamps = if segment.options.timestamps.is_some() { 12 } else { 0 };
        let fits = segment.payload.len() + options + OPTION_LEN <= request.room + timestamps
            && options + OPTION_LEN <= Segment::MAX_OPTIONS_LEN;
        if fits {
            if let Some(segment) = tcp_mut(packet) {
                let others = segment.options.experimental.take().unwrap_or_default().into_vec();
                segment.options.experimental = Some(others.into_iter().chain([request.option()]).collect());
            }
            return;
        }
        let ack = Segment {
            seq: request.snd_nxt,
            flags: Flags::ACK,
            options: TcpOptions {
                timestamps: segment.options.timestamps,
                ..RareOptions { experimental: Some([request.option()].into()), ..RareOptions::default() }.into()
            },
            payload: Bytes::new(),
            urgent: 0,
            ..segment.clone()
        };
        let (ttl, traffic_class) = (packet.ttl, packet.traffic_class);
        self.ready.push_back(Packet { ttl, traffic_class, ..Packet::new(packet.src, packet.dst, ack) });
    }
}

impl Request {
    fn option(self) -> Experimental {
        let data = Bytes::copy_from_slice(&self.number.to_be_bytes());
        Experimental { second_kind: false, id: ExperimentalId::Long(OPTION_ID), data }
    }
}

/// The number of the request in a segment, if there is one.
fn request_in(segment: &Segment) -> Option<u16> {
    segment.options.experimental.iter().flatten().find_map(|option| {
        let option = option.with_long_id().filter(|option| !option.second_kind)?;
        let data: [u8; 2] = option.data.as_ref().try_into().ok()?;
        (option.id == ExperimentalId::Long(OPTION_ID)).then(|| u16::from_be_bytes(data))
    })
}

impl SegmentFilter for RetransmissionTrigger {
    fn handle_packet(&mut self, _now: Instant, direction: Direction, packet: &mut Packet) -> Verdict {
        match direction {
            Direction::Outgoing if !self.asking.is_empty() => {
                if let Some(connection) = Connection::of(direction, packet) {
                    self.ask(connection, packet);
                }
            }
            Direction::Outgoing => {}
            Direction::Incoming => {
                let (Some(segment), Some(connection)) = (packet.tcp(), Connection::of(direction, packet)) else {
                    return Verdict::Pass;
                };
                let is_heard = |request: &Request| segment.ack.gt(request.snd_una) || !segment.payload.is_empty();
                if self.asking.get(&connection).is_some_and(is_heard) {
                    self.asking.remove(&connection);
                }
                if let Some(number) = request_in(segment) {
                    let who =
                        Affected::Requested(connection, PeerRequest { number, numbers: PeerNumbers::of(segment) });
                    self.indicators.push(Indicator { who, symmetric: true, moved: false });
                }
            }
        }
        Verdict::Pass
    }

    fn handle_link(&mut self, _now: Instant, event: LinkEvent) {
        self.indicate(Affected::All, event);
    }

    fn handle_peer(&mut self, _now: Instant, peer: &[IpAddr], event: LinkEvent) {
        self.indicate(Affected::Peer(peer.to_vec()), event);
    }

    fn handle_timeout(&mut self, now: Instant) {
        for (connection, it) in self.postponed.extract_if(.., |_, postponed| postponed.until <= now) {
            let who = Affected::One(connection);
            self.indicators.push(Indicator { who, symmetric: it.symmetric, moved: it.moved });
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.postponed.values().map(|postponed| postponed.until).min()
    }

    fn poll_transmit(&mut self, _now: Instant) -> Option<Injected> {
        self.ready.pop_front().map(|packet| Injected { direction: Direction::Outgoing, packet })
    }

    fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }
}

impl EndpointMechanism for RetransmissionTrigger {
    fn steer(&mut self, now: Instant, endpoint: &mut Endpoint) {
        for indicator in core::mem::take(&mut self.indicators) {
            let is_it = |tcp: &holdover_tcp::Connection, connection: &Connection| {
                tcp.local() == connection.local && tcp.remote() == connection.remote
            };
            let is_meant = |id: ConnectionId, tcp: &holdover_tcp::Connection| match &indicator.who {
                Affected::All => true,
                Affected::Peer(addresses) => addresses.contains(&tcp.remote().ip()),
                Affected::One(connection) => is_it(tcp, connection),
                Affected::Requested(connection, asked) => {
                    is_it(tcp, connection)
                        && asked.numbers.are_plausible(tcp)
                        && self.answered.get(&id) != Some(&asked.number)
                }
            };
            let ids = endpoint.connections().filter(|(id, tcp)| !tcp.is_closed() && is_meant(*id, tcp));
            let ids: Vec<ConnectionId> = ids.map(|(id, _)| id).collect();
            for id in ids {
                if let Affected::Requested(_, asked) = &indicator.who {
                    if self.answered.len() >= LIMIT {
                        self.answered.retain(|id, _| endpoint.connection(*id).is_some());
                    }
                    self.answered.insert(id, asked.number);
                }
                self.fire(now, endpoint, id, &indicator);
            }
        }
    }

    fn fork_endpoint(&self) -> Option<Box<dyn EndpointMechanism>> {
        Some(Box::new(self.clone()))
    }
}
