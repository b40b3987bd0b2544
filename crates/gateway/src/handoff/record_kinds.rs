//! The kinds of records.

use bytes::Bytes;
use holdover_filter::{Connection, Direction, Injected};
use holdover_tcp::Fin;
use holdover_wire::{Flags, Packet, Segment};

use super::record::{ConnectionRecord, HalfRecord, RecordAge, RecordError};
use super::split_record::SplitRecord;
use super::unsplit::UnsplitRecord;

/// A record of a connection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Record {
    /// Split, with the data in its buffers (I-TCP); or, without halves, the message that its state is lost.
    Whole(Box<SplitRecord>),
    /// Split, without its buffers (M-TCP).
    Bare(Box<ConnectionRecord>),
    /// Not split, with copies of packets (BUFFER-FREEZE).
    Unsplit(Box<UnsplitRecord>),
}

/// The kind of the records that a node sends and takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RecordKind {
    /// See [`Record::Whole`].
    Whole,
    /// See [`Record::Bare`].
    Bare,
    /// See [`Record::Unsplit`].
    Unsplit,
}

impl Record {
    /// A record that says that the connection's state is lost.
    pub fn lost(connection: Connection, age: RecordAge) -> Self {
        Self::Whole(Box::new(SplitRecord { age, connection, halves: [None, None] }))
    }

    /// Whether it says that.
    pub fn is_lost(&self) -> bool {
        matches!(self, Self::Whole(record) if record.halves == [None, None])
    }

    /// The fixed host and the mobile host.
    pub fn connection(&self) -> Connection {
        match self {
            Self::Whole(record) => record.connection,
            Self::Bare(record) => record.connection,
            Self::Unsplit(record) => record.flow.connection(),
        }
    }

    /// Which one of several records of the same addresses and ports is the newest.
    pub fn age(&self) -> RecordAge {
        match self {
            Self::Whole(record) => record.age,
            Self::Bare(record) => record.age,
            Self::Unsplit(record) => record.age,
        }
    }

    /// Emits the record.
    pub fn emit(&self) -> Bytes {
        match self {
            Self::Whole(record) => record.emit(),
            Self::Bare(record) => record.emit(),
            Self::Unsplit(record) => record.emit(),
        }
    }

    /// Parses a record of this kind, or one of a lost connection, from exactly these bytes.
    ///
    /// # Errors
    /// See [`RecordError`].
    pub fn parse(bytes: &Bytes, expected: RecordKind) -> Result<Self, RecordError> {
        match bytes.get(1) {
            Some(&ConnectionRecord::KIND) if expected == RecordKind::Bare => {
                ConnectionRecord::parse(bytes).map(|record| Self::Bare(Box::new(record)))
            }
            Some(&UnsplitRecord::KIND) if expected == RecordKind::Unsplit => {
                UnsplitRecord::parse(bytes).map(|record| Self::Unsplit(Box::new(record)))
            }
            _ => {
                let record = Self::Whole(Box::new(SplitRecord::parse(bytes)?));
                if expected == RecordKind::Whole || record.is_lost() {
                    Ok(record)
                } else {
                    Err(RecordError::Kind { kind: SplitRecord::KIND })
                }
            }
        }
    }

    /// Resets of both ends of a split connection.
    pub(crate) fn resets(&self) -> Vec<Injected> {
        let half = |half: &HalfRecord| (half.resumption, half.snd_max);
        let halves = match self {
            Self::Whole(record) => record.halves.each_ref().map(|half| {
                half.as_ref().map(|half| {
                    let fin = u32::from(matches!(half.fin, Fin::Sent { .. }));
                    (half.resumption, half.sent_until + fin)
                })
            }),
            Self::Bare(record) => [Some(half(&record.fixed)), Some(half(&record.mobile))],
            Self::Unsplit(_) => [None, None],
        };
        let halves = [Direction::Incoming, Direction::Outgoing].into_iter().zip(halves);
        let resets = halves.filter_map(|(direction, half)| {
            let (half, seq) = half?;
            let reset = Segment {
                src_port: half.local.port(),
                dst_port: half.remote.port(),
                seq,
                ack: half.rcv_nxt,
                flags: Flags::RST | Flags::ACK,
                ..Segment::default()
            };
            Some(Injected { direction, packet: Packet::new(half.local.ip(), half.remote.ip(), reset) })
        });
        resets.collect()
    }
}
