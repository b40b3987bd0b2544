//! Connections move between nodes as in I-TCP: the state of both sockets and the data in their buffers move to the node that is now in the
//! path of the mobile host's packets, as a [`SplitRecord`]. Data that a node has acknowledged exists nowhere else, so exactly one node
//! continues a connection ([`crate::handoff`]).
//!
//! # When the connection continues
//!
//! Packets that arrive before wait, in order. Data that was sent to the fixed host counts as in flight. Data that was sent to the mobile host
//! is presumed lost, and sent again in slow start, as soon as the mobile host is noticed: it is reported present, or sends a packet.

use core::net::IpAddr;
use std::collections::VecDeque;

use holdover_base::Instant;
use holdover_filter::{Action, Connection, Direction, Injected, Verdict};
use holdover_tcp::{AfterRetransmit, Fin, Snapshot};
use holdover_wire::{Packet, SeqRange};

use super::{Pair, Side, Split};
use crate::handoff::{Node, Peers, Record, RecordAge, SplitRecord, Stopped, of_mobile};

impl Node for Split {
    const MECHANISM: &'static str = Self::NAME;

    fn peers(&mut self) -> Option<&mut Peers> {
        self.peers.as_mut()
    }

    fn connections_of(&self, mobile: IpAddr) -> Vec<Connection> {
        of_mobile(self.pairs.keys(), mobile).collect()
    }

    fn age_of(&self, connection: Connection) -> Option<RecordAge> {
        self.pairs.get(&connection).map(|pair| pair.age)
    }

    fn stop(&mut self, now: Instant, connection: Connection, has_room: impl Fn(usize) -> bool) -> Stopped {
        self.empty_ended_halves(now, connection);
        let Some(pair) = self.pairs.get(&connection) else { return Stopped::Nothing };
        let age = pair.age.next();
        if pair.syn.is_some() {
            self.withdraw(connection);
            return Stopped::Nothing;
        }
        let stopped = match self.snapshots(now, connection) {
            Some([None, None]) => Stopped::Nothing,
            Some(halves) => {
                let record = SplitRecord { age, connection, halves }.emit();
                if has_room(record.len()) { Stopped::Record(age, record) } else { Stopped::Lost(age) }
            }
            None => Stopped::Lost(age),
        };
        match stopped {
            Stopped::Lost(_) => self.give_up(now, connection),
            Stopped::Record(..) | Stopped::Nothing => self.withdraw(connection),
        }
        stopped
    }

    fn restore(&mut self, now: Instant, record: &Record) -> bool {
        let Record::Whole(record) = record else { return false };
        self.withdraw(record.connection);
        self.restore_halves(now, record)
    }

    fn proceed(&mut self, now: Instant, connection: Connection, waited: VecDeque<(Direction, Packet)>) {
        let is_heard = self.here.contains(&connection.mobile().ip())
            || waited.iter().any(|(direction, _)| *direction == Direction::Incoming);
        for (direction, packet) in waited {
            // It waited here, and has been taken from its path.
            let _ = self.take(now, direction, &packet);
        }
        if is_heard {
            self.note_mobile(now, connection);
        }
        for side in Side::BOTH {
            self.pump(now, connection, side);
        }
        self.advance(now);
    }

    fn handle_here(&mut self, now: Instant, direction: Direction, packet: &mut Packet) -> Verdict {
        self.take(now, direction, packet)
    }

    fn finish(&mut self, now: Instant) {
        self.advance(now);
        self.changed.clear();
    }

    fn send(&mut self, injected: Injected) {
        self.ready.push_back(injected);
    }

    fn note_action(&mut self, action: Action) {
        self.actions.push_back(action);
    }
}

impl Split {
    /// Whether a packet belongs to a connection that is not split here, and may be split elsewhere, or begins one.
    pub(crate) fn is_unknown(&self, connection: Connection) -> bool {
        self.peers.is_some() && !self.has(connection)
    }

    /// Snapshots of both halves, without those that have ended in good order. `None` if one is in its handshake or has failed.
    fn snapshots(&self, now: Instant, connection: Connection) -> Option<[Option<Snapshot>; 2]> {
        let mut halves = [None, None];
        for side in Side::BOTH {
            halves[side as usize] = match self.half(connection, side) {
                Some(half) if !half.is_closed() => Some(half.snapshot(now)?),
                Some(half) if half.error().is_some() => return None,
                _ => None,
            };
        }
        Some(halves)
    }

    /// Passes on the data of a half that has ended in good order, also beyond the size of the other half's buffer.
    fn empty_ended_halves(&mut self, now: Instant, connection: Connection) {
        for side in Side::BOTH {
            let is_over = self.half(connection, side).is_some_and(|half| half.is_closed() && half.error().is_none());
            if !is_over {
                continue;
            }
            while let Some(data) = self.half_mut(connection, side).and_then(|half| half.read(now)) {
                if let Some(other) = self.half_mut(connection, side.other()) {
                    other.write_beyond_buffer(now, data);
                }
            }
            self.pump(now, connection, side);
        }
    }

    /// Creates the two halves from a record. Returns whether there is room for them.
    fn restore_halves(&mut self, now: Instant, record: &SplitRecord) -> bool {
        if self.pairs.len() >= self.config.most {
            return false;
        }
        let mut ids = [None; 2];
        for (side, snapshot) in Side::BOTH.into_iter().zip(&record.halves) {
            let Some(snapshot) = snapshot else { continue };
            let config = self.config_of(side);
            ids[side as usize] = self.endpoint(side).restore(now, config, snapshot).ok();
        }
        let is_whole = ids.iter().zip(&record.halves).all(|(id, half)| id.is_some() == half.is_some());
        for (side, id) in Side::BOTH.into_iter().zip(ids) {
            let Some(id) = id else { continue };
            if is_whole {
                self.halves[side as usize].enter(id, record.connection);
            } else {
                self.endpoint(side).withdraw(id);
            }
        }
        if is_whole {
            let is_shut = |half: &Option<Snapshot>| {
                half.as_ref().is_none_or(|half| half.fin != Fin::None || half.resumption.is_sent_all)
            };
            let is_shut = [is_shut(&record.halves[0]), is_shut(&record.halves[1])];
            let pair = Pair { is_shut, age: record.age, is_unheard: true, ..Pair::new(ids) };
            self.pairs.insert(record.connection, pair);
        }
        is_whole
    }

    /// The mobile host is here. If the connection was taken over, data that the former node has sent is sent again at once.
    pub(super) fn note_mobile(&mut self, now: Instant, connection: Connection) {
        let Some(pair) = self.pairs.get_mut(&connection).filter(|pair| pair.is_unheard) else { return };
        pair.is_unheard = false;
        if let Some(half) = self.half_mut(connection, Side::Mobile) {
            let in_flight = SeqRange::new(half.snd_una(), half.snd_nxt());
            half.presume_lost(now, in_flight, AfterRetransmit::Reset);
        }
        self.pump(now, connection, Side::Fixed);
    }
}
