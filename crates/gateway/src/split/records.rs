//! A split connection as a [`SplitRecord`], and back.

use bytes::Bytes;
use holdover_base::Instant;
use holdover_filter::{Connection, Injected};
use holdover_tcp::{AfterRetransmit, Fin, Snapshot};
use holdover_wire::{Flags, Packet, Segment, SeqRange};

use super::{Pair, Side, Split};
use crate::handoff::{RecordAge, SplitRecord};

/// A connection that was stopped for another node to continue it.
#[derive(Debug)]
pub(super) enum Stopped {
    Record(RecordAge, Bytes),
    /// No half is left, or the first SYN was not answered: its sender sends it again.
    Nothing,
    /// It cannot be handed on in its handshake, or has failed: both ends are reset.
    Lost(RecordAge),
}

impl Split {
    /// Stops a connection here. Both ends are reset if `has_room` says that its record, of so many bytes, is too long.
    pub(super) fn stop(&mut self, now: Instant, connection: Connection, has_room: impl Fn(usize) -> bool) -> Stopped {
        self.empty_ended_halves(now, connection);
        let Some(pair) = self.pairs.get(&connection) else { return Stopped::Nothing };
        let age = RecordAge { epoch: pair.age.epoch.saturating_add(1), ..pair.age };
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
    pub(super) fn restore(&mut self, now: Instant, record: &SplitRecord) -> bool {
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

    /// Resets both ends of a connection that is not continued.
    pub(super) fn reset_ends(&mut self, record: &SplitRecord) {
        for (side, half) in Side::BOTH.into_iter().zip(&record.halves) {
            let Some(half) = half else { continue };
            let (local, remote) = (half.resumption.local, half.resumption.remote);
            let reset = Segment {
                src_port: local.port(),
                dst_port: remote.port(),
                seq: half.sent_until + u32::from(matches!(half.fin, Fin::Sent { .. })),
                ack: half.resumption.rcv_nxt,
                flags: Flags::RST | Flags::ACK,
                ..Segment::default()
            };
            let packet = Packet::new(local.ip(), remote.ip(), reset);
            self.ready.push_back(Injected { direction: side.direction(), packet });
        }
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
