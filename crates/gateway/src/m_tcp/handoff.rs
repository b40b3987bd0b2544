//! Connections move between supervisor hosts (M-TCP, section 4.3) as a [`ConnectionRecord`]; data buffered in a supervisor host is dropped. That is
//! safe, as only data that the far end has received was acknowledged: its sender retransmits the rest. Which supervisor host continues a
//! connection, and what happens to packets of connections without a record, is as with I-TCP ([`crate::handoff`]).

use core::net::IpAddr;
use std::collections::VecDeque;

use holdover_base::Instant;
use holdover_filter::{Action, Connection, Direction, Injected, Verdict};
use holdover_wire::{Flags, Packet};

use super::mtb::{Mtb, RESTART_SEGMENTS};
use super::{MTcp, MTcpConfig};
use crate::handoff::{ConnectionRecord, HalfRecord, Node, Peers, Record, RecordAge, Stopped};
use crate::split::Side;

impl Node for MTcp {
    const MECHANISM: &'static str = Self::NAME;

    fn peers(&mut self) -> Option<&mut Peers> {
        self.split.peers()
    }

    fn connections_of(&self, mobile: IpAddr) -> Vec<Connection> {
        self.split.connections_of(mobile)
    }

    fn age_of(&self, connection: Connection) -> Option<RecordAge> {
        self.split.age_of(connection)
    }

    /// Shuts the fixed host's window. What is buffered is discarded.
    fn stop(&mut self, now: Instant, connection: Connection, has_room: impl Fn(usize) -> bool) -> Stopped {
        if let Some(flow) = self.flows.get_mut(&connection) {
            flow.choke(now, connection, &mut self.split, &mut self.actions);
            self.settle(now, connection);
        }
        let Some(age) = self.age_of(connection).map(RecordAge::next) else { return Stopped::Nothing };
        let stopped = match self.record(now, connection) {
            _ if self.split.is_unanswered(connection) => Stopped::Nothing,
            Some(record) if has_room(ConnectionRecord::MAX_BYTES) => {
                Stopped::Record(age, ConnectionRecord { age, ..record }.emit())
            }
            _ => Stopped::Lost(age),
        };
        match stopped {
            Stopped::Lost(_) => self.split.give_up(now, connection),
            Stopped::Record(..) | Stopped::Nothing => self.split.withdraw(connection),
        }
        self.discard_waiting(connection);
        self.forget(connection);
        stopped
    }

    /// The fixed host's window is shut until the mobile host is here.
    fn restore(&mut self, now: Instant, record: &Record) -> bool {
        matches!(record, Record::Bare(record) if self.resume(now, record))
    }

    /// A packet of the mobile host shows that it is here, and opens the window for those of the fixed host.
    fn proceed(&mut self, now: Instant, connection: Connection, waited: VecDeque<(Direction, Packet)>) {
        let (of_mobile, of_fixed): (Vec<_>, Vec<_>) =
            waited.into_iter().partition(|(direction, _)| *direction == Direction::Incoming);
        let is_heard = !of_mobile.is_empty();
        for (direction, mut packet) in of_mobile {
            // It waited here, and has been taken from its path.
            let _ = self.handle_here(now, direction, &mut packet);
        }
        let is_here = self.here.contains(&connection.mobile().ip());
        if is_heard || is_here && self.flows.get(&connection).is_some_and(|flow| flow.shrunk) {
            self.note_mobile(now, connection, false, true);
        }
        for (direction, mut packet) in of_fixed {
            let _ = self.handle_here(now, direction, &mut packet);
        }
        self.settle(now, connection);
    }

    fn handle_here(&mut self, now: Instant, direction: Direction, packet: &mut Packet) -> Verdict {
        let Some(connection) = Connection::of(direction, packet) else { return Verdict::Pass };
        self.catch_up(now, direction, connection, packet);
        self.handle_segment(now, direction, connection, packet)
    }

    fn finish(&mut self, now: Instant) {
        self.settle_changed(now);
    }

    fn send(&mut self, injected: Injected) {
        self.ready.push_back(injected);
    }

    fn note_action(&mut self, action: Action) {
        self.actions.push_back(action);
    }
}

impl MTcp {
    /// The record of a connection, unless a half is in its handshake.
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
            age: self.age_of(connection)?,
            connection,
            fixed,
            mobile,
            holds: flow.holds,
            cwnd_segments: flow.cwnd,
        })
    }

    /// Creates the two halves from a record, frozen and with the fixed host's window shut.
    fn resume(&mut self, now: Instant, record: &ConnectionRecord) -> bool {
        let connection = record.connection;
        self.split.withdraw(connection);
        self.forget(connection);
        let halves = [&record.fixed, &record.mobile];
        if !self.split.resume(now, connection, record.age, halves.map(|half| &half.resumption)) {
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

    /// Handles an ACK of data that another supervisor host has sent, and this one has not: both halves continue from
    /// there.
    fn catch_up(&mut self, now: Instant, direction: Direction, connection: Connection, packet: &Packet) {
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
    fn resumed(now: Instant, record: &ConnectionRecord, config: &MTcpConfig) -> Self {
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
            ahead,
            ..Self::default()
        }
    }
}
