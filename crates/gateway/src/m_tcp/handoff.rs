//! Connections move between supervisor hosts (M-TCP, section 4.3) as a [`ConnectionRecord`]; data buffered in a supervisor host is dropped. That is
//! safe, as only data that the far end has received was acknowledged: its sender retransmits the rest.
//!
//! # Connections without a record
//!
//! The two halves of a split connection number their bytes differently, so a packet of such a connection must not simply pass. The newest
//! segment in each direction of an established but unknown connection waits while the peers are asked:
//!
//! | answers of the peers | the connection |
//! | --- | --- |
//! | one of them has it | continues here |
//! | none has it, and it was not handed on from here | was never split, and passes from now on |
//! | none has it, and it was split here before | is reset at both ends: its state is lost |
//! | not all of them answer | is reset at both ends, unless this one has its last known record |

use core::net::IpAddr;
use std::collections::BTreeMap;

use bytes::Bytes;
use holdover_base::{Duration, Instant};
use holdover_filter::{Action, Connection, Direction, Injected, Verdict};
use holdover_wire::{Flags, Packet};

use super::MTcp;
use super::mtb::{Mtb, RESTART_SEGMENTS};
use crate::handoff::{ConnectionRecord, Event, HalfRecord, HandoffConfig, RecordRequests, Whereabouts, refusal_of};
use crate::split::Side;
use crate::stragglers::STRAGGLERS;

/// The other supervisor hosts, and connections handed on.
#[derive(Debug)]
pub(super) struct Peers {
    pub(super) requests: RecordRequests,
    /// Connections handed on: the epoch, and until when it is remembered.
    gone: BTreeMap<Connection, (u32, Instant)>,
    /// The newest packet of each direction of connections whose state is being searched for.
    waiting: BTreeMap<Connection, [Option<Packet>; 2]>,
}

/// The most connections that wait for their records at once. Packets of others are dropped, and retransmitted by their
/// senders.
const MOST_WAITING: usize = 10_000;

/// How long after a handoff packets that arrive here may have been in flight: the mobile host's own, and those of fixed
/// hosts, until all routes have changed. Later ones show that it has returned.
const fn stragglers(direction: Direction) -> Duration {
    match direction {
        Direction::Incoming => STRAGGLERS,
        Direction::Outgoing => Duration::from_secs(1),
    }
}

impl Peers {
    pub(super) fn new(config: HandoffConfig, salt: u16) -> Self {
        Self { requests: RecordRequests::new(config, salt), gone: BTreeMap::new(), waiting: BTreeMap::new() }
    }

    pub(super) fn handle_timeout(&mut self, now: Instant) {
        self.requests.handle_timeout(now);
        self.gone.retain(|_, (_, until)| *until > now);
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.requests.poll_timeout()
    }

    fn waiting_of(&mut self, mobile: IpAddr) -> Vec<(Connection, [Option<Packet>; 2])> {
        let of_mobile = |connection: &Connection| connection.mobile().ip() == mobile;
        let connections: Vec<Connection> = self.waiting.keys().copied().filter(of_mobile).collect();
        connections.into_iter().filter_map(|connection| Some((connection, self.waiting.remove(&connection)?))).collect()
    }
}

impl MTcp {
    /// Whether a packet belongs to an established connection that is not split here, and may be split elsewhere.
    pub(super) fn is_unknown(&self, connection: Connection, packet: &Packet) -> bool {
        let is_first = packet.tcp().is_some_and(|segment| segment.flags & (Flags::SYN | Flags::ACK) == Flags::SYN);
        self.peers.is_some() && !is_first && !self.split.has(connection)
    }

    /// Handles a packet of such a connection.
    pub(super) fn handle_unknown(
        &mut self,
        now: Instant,
        direction: Direction,
        connection: Connection,
        packet: &Packet,
    ) -> Verdict {
        let Some(peers) = &mut self.peers else { return Verdict::Pass };
        let mobile = connection.mobile().ip();
        let is_gone = peers.gone.contains_key(&connection);
        match peers.requests.whereabouts(now, mobile) {
            Whereabouts::Settled if is_gone => return self.refuse(now, connection, direction, packet),
            Whereabouts::Settled => return Verdict::Pass,
            // They were in flight on the old path.
            Whereabouts::Elsewhere { since } if since < stragglers(direction) => return Verdict::Drop,
            Whereabouts::Unknown | Whereabouts::Elsewhere { .. } => peers.requests.ask(now, mobile),
            Whereabouts::Asking => {}
        }
        let has_room = peers.waiting.len() < MOST_WAITING || peers.waiting.contains_key(&connection);
        if has_room {
            let newest = &mut peers.waiting.entry(connection).or_default()[Side::of_sender(direction) as usize];
            *newest = Some(packet.clone());
        }
        self.handle_peers(now);
        if has_room { Verdict::Keep } else { Verdict::Drop }
    }

    /// A mobile host has arrived: its connections may be at another supervisor host.
    pub(super) fn ask_if_new(&mut self, now: Instant, mobile: IpAddr) {
        let Some(peers) = &mut self.peers else { return };
        if matches!(peers.requests.whereabouts(now, mobile), Whereabouts::Unknown | Whereabouts::Elsewhere { .. }) {
            peers.requests.ask(now, mobile);
            self.handle_peers(now);
        }
    }

    /// Handles the answers of the peers.
    pub(super) fn handle_peers(&mut self, now: Instant) {
        while let Some(event) = self.peers.as_mut().and_then(|peers| peers.requests.poll_event()) {
            match event {
                Event::Wanted { peer, mobile, id } => self.hand_on(now, peer, mobile, id),
                Event::Given { record } => {
                    // An invalid record was sent as such, not damaged on its way: repeating the request does not help.
                    if let Ok(record) = ConnectionRecord::parse(&record) {
                        self.take_over(now, &record);
                    }
                }
                Event::Concluded { mobile, is_complete } => self.conclude(now, mobile, is_complete),
            }
        }
        self.settle_changed(now);
    }

    /// A peer requests a mobile host's connections: hands them on.
    fn hand_on(&mut self, now: Instant, peer: IpAddr, mobile: IpAddr, id: u64) {
        let mut records = Vec::new();
        for connection in self.flows_of(mobile) {
            if let Some(flow) = self.flows.get_mut(&connection) {
                flow.choke(now, connection, &mut self.split, &mut self.actions);
                self.settle(now, connection);
            }
            let record = self.record(now, connection);
            // Half-open connections restart at the next supervisor host: their SYNs are retransmitted.
            self.split.withdraw(connection);
            self.discard_waiting(connection);
            self.forget(connection);
            let Some(record) =
                record.map(|record| ConnectionRecord { epoch: record.epoch.saturating_add(1), ..record })
            else {
                continue;
            };
            self.actions.push_back(Action { at: now, connection, mechanism: Self::NAME, what: "handed on" });
            if let Some(peers) = &mut self.peers {
                peers.gone.insert(connection, (record.epoch, now + peers.requests.keep()));
            }
            records.push(record.emit());
        }
        let Some(peers) = &mut self.peers else { return };
        if records.is_empty() && peers.requests.has_to_wait(mobile, id) {
            // The requested record may arrive here first. The peer repeats its request.
            return;
        }
        // The arrival of these was not confirmed; if another peer requests them, its own are newer.
        records.extend(peers.requests.take_back(mobile));
        let is_elsewhere = !records.is_empty();
        peers.requests.give(now, peer, mobile, id, records);
        if is_elsewhere || matches!(peers.requests.whereabouts(now, mobile), Whereabouts::Elsewhere { .. }) {
            // Their senders retransmit them to the mobile host's current place.
            peers.waiting_of(mobile);
        }
    }

    /// The record of a connection, if both halves are open.
    fn record(&self, now: Instant, connection: Connection) -> Option<ConnectionRecord> {
        let flow = self.flows.get(&connection)?;
        let half = |side: Side| {
            let half = self.split.half(connection, side)?;
            let resumption = half.resumption(now, flow.end_to_end(connection, &self.split, side)?)?;
            let own = (half.snd_max(), half.fin_sent().is_some());
            let (snd_max, is_fin_sent) = match flow.ahead[side as usize] {
                Some((ahead, is_fin)) if ahead.gt(own.0) => (ahead, is_fin),
                _ => own,
            };
            Some(HalfRecord { resumption, snd_max, is_fin_sent })
        };
        let (fixed, mobile) = (half(Side::Fixed)?, half(Side::Mobile)?);
        Some(ConnectionRecord {
            epoch: flow.epoch,
            connection,
            fixed,
            mobile,
            holds: flow.holds,
            cwnd_segments: flow.cwnd,
        })
    }

    /// Takes over a connection of another supervisor host, unless a newer state of it is known. The fixed host's window
    /// is shut until the mobile host is here.
    fn take_over(&mut self, now: Instant, record: &ConnectionRecord) {
        let connection = record.connection;
        let gone = self.peers.as_ref().and_then(|peers| peers.gone.get(&connection)).map(|(epoch, _)| *epoch);
        // A connection opened here, between the same ports, is newer.
        let is_begun_here =
            self.split.has(connection) && self.flows.get(&connection).is_some_and(|flow| flow.epoch == 0);
        if is_begun_here || gone.is_some_and(|gone| gone >= record.epoch) {
            return;
        }
        let own = self.record(now, connection);
        let merged = own.map_or(Some(*record), |own| own.merged_with(record));
        match (own, merged) {
            (Some(own), Some(merged)) if merged.says_no_more_than(&own) => {
                // Another peer has sent all of that before.
                if let Some(flow) = self.flows.get_mut(&connection) {
                    flow.epoch = merged.epoch;
                }
                return;
            }
            (Some(own), None) if own.epoch >= record.epoch => return,
            (_, merged) => {
                if !self.resume(now, &merged.unwrap_or(*record)) {
                    return;
                }
            }
        }
        self.actions.push_back(Action { at: now, connection, mechanism: Self::NAME, what: "took over" });
        if let Some(peers) = &mut self.peers {
            peers.gone.remove(&connection);
        }
        self.replay(now, connection);
        if self.here.contains(&connection.mobile().ip()) && self.flows.get(&connection).is_some_and(|flow| flow.shrunk)
        {
            self.note_mobile(now, connection, false, true);
        }
        self.settle(now, connection);
    }

    /// Creates the two halves from a record, frozen and with the fixed host's window shut.
    fn resume(&mut self, now: Instant, record: &ConnectionRecord) -> bool {
        let connection = record.connection;
        self.split.withdraw(connection);
        self.forget(connection);
        let halves = [&record.fixed, &record.mobile];
        if !self.split.resume(now, connection, halves.map(|half| &half.resumption)) {
            return false;
        }
        let mut flow = Mtb::resumed(now, record, &self.config);
        for side in Side::BOTH {
            if let Some(half) = self.split.half_mut(connection, side) {
                half.hold_ack_point(flow.point[side as usize]);
                if side == Side::Fixed {
                    half.clamp_window(Some(0));
                } else {
                    half.set_cwnd(flow.cwnd);
                    half.set_ssthresh(record.cwnd_segments.max(2));
                }
            }
        }
        let due = flow.next_deadline(connection, &self.split);
        self.agenda.set(connection, &mut flow.due, due);
        self.flows.insert(connection, flow);
        true
    }

    /// Handles the packets that have waited for a connection's record. The mobile host's packet shows that it is here.
    fn replay(&mut self, now: Instant, connection: Connection) {
        let waited = self.peers.as_mut().and_then(|peers| peers.waiting.remove(&connection));
        let Some([fixed, mobile]) = waited else { return };
        for (direction, packet) in [(Direction::Incoming, mobile), (Direction::Outgoing, fixed)] {
            let Some(mut packet) = packet else { continue };
            self.catch_up(now, direction, connection, &packet);
            // It was buffered on arrival, and its answer is in flight.
            let _ = self.handle_segment(now, direction, connection, &mut packet);
            if direction == Direction::Incoming {
                self.note_mobile(now, connection, false, true);
            }
        }
    }

    /// All peers have answered, or will not answer. The remaining connections have no record.
    fn conclude(&mut self, now: Instant, mobile: IpAddr, is_complete: bool) {
        let Some(peers) = &mut self.peers else { return };
        let kept: Vec<Bytes> = peers.requests.take_back(mobile);
        for record in kept.iter().filter_map(|record| ConnectionRecord::parse(record).ok()) {
            // It was not handed on from here.
            if let Some(peers) = &mut self.peers
                && peers.gone.get(&record.connection).is_some_and(|(epoch, _)| *epoch == record.epoch)
            {
                peers.gone.remove(&record.connection);
            }
            self.take_over(now, &record);
        }
        let Some(peers) = &mut self.peers else { return };
        for (connection, packets) in peers.waiting_of(mobile) {
            for (direction, packet) in Direction::BOTH.into_iter().zip(packets) {
                let Some(packet) = packet else { continue };
                let is_gone = self.peers.as_ref().is_some_and(|peers| peers.gone.contains_key(&connection));
                if !is_complete || is_gone {
                    let _ = self.refuse(now, connection, direction, &packet);
                } else {
                    self.ready.push_back(Injected { direction, packet });
                }
            }
        }
    }

    /// Resets a connection whose state is lost, at the sender of `packet`. The other end is reset when it sends.
    fn refuse(&mut self, now: Instant, connection: Connection, direction: Direction, packet: &Packet) -> Verdict {
        if let Some(packet) = refusal_of(packet) {
            self.ready.push_back(Injected { direction: direction.opposite(), packet });
            self.actions.push_back(Action { at: now, connection, mechanism: Self::NAME, what: "refused" });
        }
        Verdict::Drop
    }

    /// Handles an ACK of data that another supervisor host has sent, and this one has not: both halves continue from
    /// there.
    pub(super) fn catch_up(&mut self, now: Instant, direction: Direction, connection: Connection, packet: &Packet) {
        let from = Side::of_sender(direction);
        let Some(flow) = self.flows.get(&connection) else { return };
        let Some((ahead, is_fin)) = flow.ahead[from as usize] else { return };
        let Some(segment) = packet.tcp().filter(|segment| segment.flags.contains(Flags::ACK)) else { return };
        let Some(half) = self.split.half(connection, from) else { return };
        let ack = segment.ack;
        if half.snd_max().ge(ahead) {
            // Data acknowledged from now on was sent by this supervisor host.
            if let Some(flow) = self.flows.get_mut(&connection) {
                flow.ahead[from as usize] = None;
            }
            return;
        }
        if segment.flags.contains(Flags::RST) || ack.le(half.snd_max()) || ack.gt(ahead) {
            return;
        }
        let (was_shrunk, persist) = (flow.shrunk, flow.persist);
        let Some(mut record) = self.record(now, connection) else { return };
        let has_fin = is_fin && ack == ahead;
        let (own, other) = match from {
            Side::Fixed => (&mut record.fixed.resumption, &mut record.mobile.resumption),
            Side::Mobile => (&mut record.mobile.resumption, &mut record.fixed.resumption),
        };
        let more = ack - own.snd_una;
        (own.snd_una, own.is_sent_all) = (ack, has_fin);
        (other.rcv_nxt, other.is_received_all) = (other.rcv_nxt + more, has_fin);
        if !self.resume(now, &record) {
            return;
        }
        let was_open = !was_shrunk && persist.is_none();
        if was_open || from == Side::Mobile {
            // The mobile host is here.
            self.note_mobile(now, connection, false, true);
        }
    }
}

impl Mtb {
    /// The state of a connection taken over: frozen, with the fixed host's window shut.
    fn resumed(now: Instant, record: &ConnectionRecord, config: &super::MTcpConfig) -> Self {
        let halves = [&record.fixed, &record.mobile];
        let point = halves.map(|half| Some(half.resumption.rcv_nxt));
        let pause = config.persist_least.min(config.persist_most);
        let ahead =
            halves.map(|half| half.snd_max.gt(half.resumption.snd_una).then_some((half.snd_max, half.is_fin_sent)));
        Self {
            received_from: point,
            sent_from: halves.map(|half| Some(half.resumption.snd_una)),
            point,
            shrunk: true,
            holds: record.holds,
            persist: Some((now + pause, (pause * 2).min(config.persist_most))),
            cwnd: record.cwnd_segments.clamp(1, RESTART_SEGMENTS),
            epoch: record.epoch,
            ahead,
            ..Self::default()
        }
    }
}
