//! Records of connections that are not split: the state of one for another base station, and copies of its packets.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use holdover_base::Duration;
use holdover_filter::{Connection, Direction, SentNumbers};
use holdover_wire::{Packet, Payload, Seq, Timestamps};

use super::record::{Record, RecordError, parse_ends, put_ends};

/// One record of an answer. The checksum of its message covers it.
///
/// On the wire, in network byte order: version, kind (1 byte each), epoch (4). Then in a copy the IP packet; in a state flags and the
/// number of copies (2 each), the ports of the fixed host and of the mobile host (2 each), their addresses (4 or 16 each), the highest
/// ACK of the mobile host and the end of the data that was forwarded to it (4 each); of the mobile host's last segment the sequence
/// number after it, its ACK (4 each), window (2), hop limit, traffic class (1 each) and timestamps (4 each); and the smoothed round trip
/// to the mobile host and its deviation in microseconds (4 each). A state has 58 bytes with IPv4 and 82 with IPv6.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Unsplit {
    /// The state of a connection.
    Flow(FlowRecord),
    /// A packet that the mobile host has not acknowledged.
    Copy(CopyRecord),
}

/// The state of a connection at a base station.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FlowRecord {
    /// How many times the connection was handed on, this time included.
    pub epoch: u32,
    /// The fixed host and the mobile host.
    pub connection: Connection,
    /// The highest ACK of the mobile host.
    pub acked: Seq,
    /// The end of the data that was forwarded to it.
    pub sent: Seq,
    /// Its last segment: the ACK and the window to repeat.
    pub last: SentNumbers,
    /// The fixed host was sent a window of zero.
    pub is_frozen: bool,
    /// The last segment is an ACK that the fixed host was not sent yet.
    pub is_withheld: bool,
    /// The smoothed round trip to the mobile host, and its deviation.
    pub round_trip: Option<(Duration, Duration)>,
    /// The number of copies that belong to it.
    pub copies: u16,
}

/// A copy of a packet to the mobile host.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CopyRecord {
    /// The epoch of its connection's state.
    pub epoch: u32,
    /// The connection.
    pub connection: Connection,
    /// The packet.
    pub packet: Packet,
}

const FLOW: u8 = 2;
const COPY: u8 = 3;

const IPV6: u16 = 1;
const FROZEN: u16 = 1 << 1;
const WITHHELD: u16 = 1 << 2;
const TIMESTAMPS: u16 = 1 << 3;
const MEASURED: u16 = 1 << 4;

/// Version, kind and epoch.
const HEAD_BYTES: usize = 6;

impl Unsplit {
    /// The version that this code writes and reads.
    pub const VERSION: u8 = Record::VERSION;

    /// Emits the record; `None` for a packet that cannot be written as bytes.
    pub fn emit(&self) -> Option<Bytes> {
        let (kind, epoch) = match self {
            Self::Flow(flow) => (FLOW, flow.epoch),
            Self::Copy(copy) => (COPY, copy.epoch),
        };
        let mut out = BytesMut::with_capacity(128);
        out.put_slice(&[Self::VERSION, kind]);
        out.put_u32(epoch);
        match self {
            Self::Flow(flow) => flow.emit(&mut out),
            Self::Copy(copy) => copy.packet.emit_into(&mut out).ok()?,
        }
        Some(out.freeze())
    }

    /// Parses a record from exactly these bytes.
    pub fn parse(bytes: &Bytes) -> Result<Self, RecordError> {
        let mut body = &bytes[..];
        if body.len() < HEAD_BYTES {
            return Err(RecordError::Length { len: bytes.len(), expected: HEAD_BYTES });
        }
        let (version, kind, epoch) = (body.get_u8(), body.get_u8(), body.get_u32());
        match (version, kind) {
            (Self::VERSION, FLOW) => FlowRecord::parse(epoch, body).map(Self::Flow),
            (Self::VERSION, COPY) => CopyRecord::parse(epoch, bytes.slice(HEAD_BYTES..)).map(Self::Copy),
            (Self::VERSION, kind) => Err(RecordError::Kind { kind }),
            (version, _) => Err(RecordError::Version { version }),
        }
    }
}

impl CopyRecord {
    fn parse(epoch: u32, bytes: Bytes) -> Result<Self, RecordError> {
        let wrong = RecordError::Field { field: "packet" };
        let packet = Packet::parse(bytes).map_err(|_| wrong)?;
        let connection = Connection::of(Direction::Outgoing, &packet).ok_or(wrong)?;
        let has_data = matches!(&packet.payload, Payload::Tcp(segment) if segment.seq_len() > 0);
        if has_data { Ok(Self { epoch, connection, packet }) } else { Err(wrong) }
    }
}

impl FlowRecord {
    const fn wire_len(is_ipv6: bool) -> usize {
        HEAD_BYTES + 4 + 4 + if is_ipv6 { 32 } else { 8 } + 8 + 12 + 8 + 8
    }

    fn emit(&self, out: &mut BytesMut) {
        let flags = [
            (self.connection.fixed().is_ipv6(), IPV6),
            (self.is_frozen, FROZEN),
            (self.is_withheld, WITHHELD),
            (self.last.timestamps.is_some(), TIMESTAMPS),
            (self.round_trip.is_some(), MEASURED),
        ];
        out.put_u16(flags.into_iter().filter(|(is_set, _)| *is_set).fold(0, |flags, (_, flag)| flags | flag));
        out.put_u16(self.copies);
        put_ends(out, self.connection);
        for seq in [self.acked, self.sent, self.last.nxt, self.last.ack] {
            out.put_u32(seq.value());
        }
        out.put_u16(self.last.window);
        out.put_slice(&[self.last.ttl, self.last.traffic_class]);
        let Timestamps { val, ecr } = self.last.timestamps.unwrap_or_default();
        out.put_u32(val);
        out.put_u32(ecr);
        let (smoothed, deviation) = self.round_trip.unwrap_or((Duration::ZERO, Duration::ZERO));
        for time in [smoothed, deviation] {
            out.put_u32(u32::try_from(time.as_micros()).unwrap_or(u32::MAX));
        }
    }

    fn parse(epoch: u32, mut body: &[u8]) -> Result<Self, RecordError> {
        let len = HEAD_BYTES + body.len();
        let flags = body.first_chunk::<2>().map_or(0, |flags| u16::from_be_bytes(*flags));
        let is = |flag: u16| flags & flag != 0;
        let expected = Self::wire_len(is(IPV6));
        if len != expected {
            return Err(RecordError::Length { len, expected });
        }
        body.advance(2);
        let copies = body.get_u16();
        let connection = parse_ends(&mut body, is(IPV6))?;
        let mut seq = || Seq::new(body.get_u32());
        let (acked, sent, nxt, ack) = (seq(), seq(), seq(), seq());
        let (window, ttl, traffic_class) = (body.get_u16(), body.get_u8(), body.get_u8());
        let timestamps = Timestamps { val: body.get_u32(), ecr: body.get_u32() };
        let [smoothed, deviation] = [body.get_u32(), body.get_u32()].map(u64::from).map(Duration::from_micros);
        let fields = [
            (flags >= MEASURED << 1, "flags"),
            (sent.lt(acked), "end of what was sent"),
            (ack.gt(acked), "ACK"),
            (is(FROZEN) && is(WITHHELD), "withheld ACK"),
            (!is(TIMESTAMPS) && timestamps != Timestamps::default(), "timestamp"),
            (!is(MEASURED) && (smoothed, deviation) != (Duration::ZERO, Duration::ZERO), "round-trip time"),
        ];
        if let Some((_, field)) = fields.into_iter().find(|(is_wrong, _)| *is_wrong) {
            return Err(RecordError::Field { field });
        }
        let timestamps = is(TIMESTAMPS).then_some(timestamps);
        Ok(Self {
            epoch,
            connection,
            acked,
            sent,
            last: SentNumbers { nxt, ack, window, timestamps, ttl, traffic_class },
            is_frozen: is(FROZEN),
            is_withheld: is(WITHHELD),
            round_trip: is(MEASURED).then_some((smoothed, deviation)),
            copies,
        })
    }
}

#[cfg(test)]
mod tests {
    use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

    use holdover_wire::{Flags, Segment, TcpOptions};
    use proptest::prelude::*;

    use super::*;

    fn connection() -> impl Strategy<Value = Connection> {
        (any::<bool>(), any::<u32>(), any::<u32>(), 1_u16.., 1_u16..).prop_map(|(is_ipv6, fixed, mobile, from, to)| {
            let address = |number: u32| -> IpAddr {
                if is_ipv6 {
                    Ipv6Addr::from(0x2001_0db8_u128 << 96 | u128::from(number)).into()
                } else {
                    Ipv4Addr::from(0x0a00_0000 | number & 0x00ff_ffff).into()
                }
            };
            Connection::between(SocketAddr::new(address(fixed), from), SocketAddr::new(address(mobile), to))
        })
    }

    fn timestamps() -> impl Strategy<Value = Option<Timestamps>> {
        prop::option::of(any::<(u32, u32)>().prop_map(|(val, ecr)| Timestamps { val, ecr }))
    }

    fn flow() -> impl Strategy<Value = Unsplit> {
        let numbers = (any::<u32>(), 0_u32..1 << 30, 0_u32..1 << 30, any::<u32>());
        let fields = (any::<u16>(), any::<u8>(), any::<u8>(), timestamps(), 0_u8..3);
        let round_trip = prop::option::of(any::<(u32, u32)>());
        (any::<u32>(), connection(), numbers, fields, round_trip, any::<u16>()).prop_map(
            |(epoch, connection, (acked, ahead, behind, nxt), fields, round_trip, copies)| {
                let acked = Seq::new(acked);
                let (window, ttl, traffic_class, timestamps, mode) = fields;
                let ack = Seq::new(acked.value().wrapping_sub(behind));
                let micros = |micros: u32| Duration::from_micros(u64::from(micros));
                Unsplit::Flow(FlowRecord {
                    epoch,
                    connection,
                    acked,
                    sent: acked + ahead,
                    last: SentNumbers { nxt: Seq::new(nxt), ack, window, timestamps, ttl, traffic_class },
                    is_frozen: mode == 1,
                    is_withheld: mode == 2,
                    round_trip: round_trip.map(|(smoothed, deviation)| (micros(smoothed), micros(deviation))),
                    copies,
                })
            },
        )
    }

    fn copy() -> impl Strategy<Value = Unsplit> {
        let payload = prop::collection::vec(any::<u8>(), 1..1_500);
        (any::<u32>(), connection(), any::<u32>(), timestamps(), payload).prop_map(
            |(epoch, connection, seq, timestamps, payload)| {
                let segment = Segment {
                    src_port: connection.fixed().port(),
                    dst_port: connection.mobile().port(),
                    seq: Seq::new(seq),
                    flags: Flags::ACK,
                    options: TcpOptions { timestamps, ..TcpOptions::default() },
                    payload: payload.into(),
                    ..Segment::default()
                };
                let packet = Packet::new(connection.fixed().ip(), connection.mobile().ip(), segment);
                Unsplit::Copy(CopyRecord { epoch, connection, packet })
            },
        )
    }

    proptest! {
        // Claim: Records of connections that are not split, and copies of their packets, come out as they went in; random bytes are
        // refused or are a record.
        // Tests: `handoff::unsplit::tests::random_bytes_are_refused_or_are_a_state`
        #[test]
        fn a_record_comes_out_as_it_went_in(record in prop_oneof![flow(), copy()], more in 1_usize..9) {
            let bytes = record.emit().expect("a packet that can be written");
            prop_assert_eq!(Unsplit::parse(&bytes), Ok(record.clone()));
            if let Unsplit::Flow(flow) = &record {
                prop_assert_eq!(bytes.len(), if flow.connection.fixed().is_ipv6() { 82 } else { 58 });
                let longer = Bytes::from([&bytes[..], &vec![0; more]].concat());
                prop_assert!(Unsplit::parse(&longer).is_err());
            }
            let shorter = bytes.slice(..bytes.len().saturating_sub(more));
            prop_assert!(Unsplit::parse(&shorter).is_err());
        }

        /// Any bytes: no panic, and an accepted state is emitted unchanged.
        #[test]
        fn random_bytes_are_refused_or_are_a_state(mut bytes in prop::collection::vec(any::<u8>(), 0..120), kind in 1_u8..4) {
            if bytes.len() >= 58 {
                (bytes[0], bytes[1]) = (Unsplit::VERSION, kind);
                (bytes[6], bytes[7]) = (0, bytes[7] & 0x1f);
                bytes.truncate(if bytes[7] & 1 == 1 { 82 } else { 58 });
            }
            let bytes = Bytes::from(bytes);
            if let Ok(record @ Unsplit::Flow(_)) = Unsplit::parse(&bytes) {
                prop_assert_eq!(record.emit(), Some(bytes));
            }
        }
    }
}
