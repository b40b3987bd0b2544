//! The header fields of the host's last segment on a connection, to repeat its ACK.

use bytes::Bytes;
use holdover_wire::{Flags, Packet, SackBlocks, Segment, Seq, TcpOptions, Timestamps};

use crate::Connection;

/// The newest outgoing segment's header fields, as the host's TCP sent them.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LastSent(pub Option<SentNumbers>);

/// The header fields of a segment that are needed to repeat its ACK.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SentNumbers {
    /// SND.NXT, as far as seen.
    pub nxt: Seq,
    /// The ACK number.
    pub ack: Seq,
    /// The window field.
    pub window: u16,
    /// The timestamps, if present.
    pub timestamps: Option<Timestamps>,
    /// The hop limit of its packet.
    pub ttl: u8,
    /// The traffic class of its packet, without the ECN bits.
    pub traffic_class: u8,
}

impl LastSent {
    /// Notes `packet`, sent by the host's TCP, and its segment.
    pub fn note(&mut self, packet: &Packet, segment: &Segment) {
        if !segment.flags.contains(Flags::ACK) || segment.flags.contains(Flags::RST) {
            return;
        }
        let end = segment.seq + segment.seq_len();
        let nxt = self.0.as_ref().map_or(end, |last| last.nxt.max(end));
        // The window of a SYN-ACK is not scaled, but that of the ACK that repeats it is (RFC 7323 section 2.2).
        let shift = segment.options.window_scale.filter(|_| segment.flags.contains(Flags::SYN)).unwrap_or(0).min(14);
        // A retransmission carries the newest ACK too, so the last segment sent is enough.
        self.0 = Some(SentNumbers {
            nxt,
            ack: segment.ack,
            window: segment.window >> shift,
            timestamps: segment.options.timestamps,
            ttl: packet.ttl,
            // A repetition does not carry congestion marks (RFC 3168).
            traffic_class: packet.traffic_class & 0xfc,
        });
    }

    /// The newest segment.
    pub fn last(&self) -> Option<&SentNumbers> {
        self.0.as_ref()
    }

    /// The newest ACK number.
    pub fn ack(&self) -> Option<Seq> {
        self.0.as_ref().map(|last| last.ack)
    }

    /// The window field.
    pub fn window(&self) -> Option<u16> {
        self.0.as_ref().map(|last| last.window)
    }

    /// A pure ACK with the same fields, without SACK blocks; `None` before the first segment.
    pub fn repeat(&self, connection: Connection) -> Option<Packet> {
        let last = self.0.as_ref()?;
        let segment = Segment {
            src_port: connection.local.port(),
            dst_port: connection.remote.port(),
            seq: last.nxt,
            ack: last.ack,
            flags: Flags::ACK,
            window: last.window,
            urgent: 0,
            options: TcpOptions { timestamps: last.timestamps, sack: SackBlocks::EMPTY, ..TcpOptions::default() },
            payload: Bytes::new(),
        };
        let mut packet = Packet::new(connection.local.ip(), connection.remote.ip(), segment);
        (packet.ttl, packet.traffic_class) = (last.ttl, last.traffic_class);
        Some(packet)
    }
}
