//! The record of a connection that is not split, with copies of packets to the mobile host, for another base station (BUFFER-FREEZE).

use bytes::{Buf, BufMut, Bytes, BytesMut};
use holdover_base::{Duration, Instant};
use holdover_filter::{Connection, Direction};
use holdover_flow::FlowRecord;
use holdover_wire::{Checksums, Packet, Payload};

use super::checksum::{checked, crc32};
use super::record::{RecordAge, RecordError};

/// The state of a connection at a base station, and the packets that the mobile host has not acknowledged.
///
/// On the wire, in network byte order: version, kind (1 byte each), flags (2), its age: number (8) and epoch (4), the smoothed round trip to
/// the mobile host and its deviation in microseconds (4 each), the length of the flow's record (2) and that record ([`FlowRecord`]); for
/// each copy its length (4) and the IP packet; and the CRC-32 of all preceding bytes (4).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UnsplitRecord {
    /// Which one of several records of the same addresses and ports is the newest.
    pub age: RecordAge,
    /// The state of the flow path.
    pub flow: FlowRecord,
    /// The fixed host was sent a window of zero.
    pub is_frozen: bool,
    /// The fixed host was not sent the mobile host's last ACK yet.
    pub is_withheld: bool,
    /// The smoothed round trip to the mobile host, and its deviation.
    pub round_trip: Option<(Duration, Duration)>,
    /// Packets to the mobile host that it has not acknowledged, in the order of their sequence numbers.
    pub copies: Vec<Packet>,
}

const FROZEN: u16 = 1;
const WITHHELD: u16 = 1 << 1;
const MEASURED: u16 = 1 << 2;

/// Version, kind, flags, age, round trip, and length of the flow's record.
const HEAD_BYTES: usize = 26;
const CHECKSUM_BYTES: usize = 4;

impl UnsplitRecord {
    /// The version that this code writes and reads. In versions 1 and 2 copies were records of their own.
    pub const VERSION: u8 = 3;
    /// The longest record without its copies.
    pub const MAX_STATE_BYTES: usize = HEAD_BYTES + FlowRecord::MAX_BYTES + CHECKSUM_BYTES;
    /// The bytes of a copy in addition to its packet.
    pub const COPY_BYTES: usize = 4;
    pub(super) const KIND: u8 = 2;

    /// Emits the record, without copies that cannot be written as bytes.
    pub fn emit(&self) -> Bytes {
        let packets: Vec<Bytes> = self.copies.iter().filter_map(|packet| packet.emit().ok()).collect();
        let copies: usize = packets.iter().map(|packet| packet.len() + Self::COPY_BYTES).sum();
        let mut out = BytesMut::with_capacity(Self::MAX_STATE_BYTES + copies);
        let flags = [(self.is_frozen, FROZEN), (self.is_withheld, WITHHELD), (self.round_trip.is_some(), MEASURED)];
        let flow = self.flow.to_bytes();
        out.put_slice(&[Self::VERSION, Self::KIND]);
        out.put_u16(flags.into_iter().filter(|(is_set, _)| *is_set).fold(0, |flags, (_, flag)| flags | flag));
        out.put_u64(self.age.opened);
        out.put_u32(self.age.epoch);
        let (smoothed, deviation) = self.round_trip.unwrap_or((Duration::ZERO, Duration::ZERO));
        for time in [smoothed, deviation] {
            out.put_u32(u32::try_from(time.as_micros()).unwrap_or(u32::MAX));
        }
        out.put_u16(flow.len() as u16);
        out.put_slice(&flow);
        for packet in packets {
            out.put_u32(packet.len() as u32);
            out.put_slice(&packet);
        }
        out.put_u32(crc32(&out));
        out.freeze()
    }

    /// Parses a record from exactly these bytes.
    ///
    /// # Errors
    /// See [`RecordError`].
    pub fn parse(bytes: &Bytes) -> Result<Self, RecordError> {
        let mut body = checked(bytes).ok_or(RecordError::Checksum { len: bytes.len() })?;
        let expect = |body: &[u8], expected: usize| match body.len() >= expected {
            true => Ok(()),
            false => Err(RecordError::Length {
                len: bytes.len(),
                expected: (bytes.len() - body.len()).saturating_add(expected),
            }),
        };
        expect(body, HEAD_BYTES)?;
        let (version, kind, flags) = (body.get_u8(), body.get_u8(), body.get_u16());
        if version != Self::VERSION {
            return Err(RecordError::Version { version, expected: Self::VERSION });
        }
        if kind != Self::KIND {
            return Err(RecordError::Kind { kind });
        }
        let wrong = |field| RecordError::Field { field };
        if flags > FROZEN | WITHHELD | MEASURED {
            return Err(wrong("flags"));
        }
        let (is_frozen, is_withheld) = (flags & FROZEN != 0, flags & WITHHELD != 0);
        if is_frozen && is_withheld {
            return Err(wrong("withheld ACK"));
        }
        let age = RecordAge { opened: body.get_u64(), epoch: body.get_u32() };
        let [smoothed, deviation] = [body.get_u32(), body.get_u32()].map(u64::from).map(Duration::from_micros);
        let round_trip = (flags & MEASURED != 0).then_some((smoothed, deviation));
        if round_trip.is_none() && (smoothed, deviation) != (Duration::ZERO, Duration::ZERO) {
            return Err(wrong("round-trip time"));
        }
        let len = usize::from(body.get_u16());
        expect(body, len)?;
        let flow = FlowRecord::from_bytes(&body[..len]).ok_or(wrong("flow"))?;
        if flow.revive(Instant::ZERO).half(Direction::Incoming).acked().is_none() {
            return Err(wrong("acknowledgment"));
        }
        body.advance(len);
        let mut copies = Vec::new();
        while !body.is_empty() {
            expect(body, Self::COPY_BYTES)?;
            let len = body.get_u32() as usize;
            expect(body, len)?;
            let packet = parse_copy(bytes.slice_ref(&body[..len]), flow.connection());
            copies.push(packet.ok_or(wrong("packet"))?);
            body.advance(len);
        }
        Ok(Self { age, flow, is_frozen, is_withheld, round_trip, copies })
    }
}

/// A packet with data for the mobile host of this connection.
fn parse_copy(bytes: Bytes, connection: Connection) -> Option<Packet> {
    let packet = Packet::parse_to_forward(bytes, Checksums::Verify).ok()?;
    let has_data = matches!(&packet.payload, Payload::Tcp(segment) if segment.seq_len() > 0);
    (has_data && Connection::of(Direction::Outgoing, &packet) == Some(connection)).then_some(packet)
}

#[cfg(test)]
mod tests {
    use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

    use holdover_flow::{Environment, Flow, Form, Key, Link, LinkState, Rules};
    use holdover_wire::{Flags, Segment, Seq, TcpOptions, Timestamps};
    use proptest::prelude::*;
    use proptest::strategy::ValueTree;

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

    /// A segment of the fixed host or of the mobile host.
    fn packet(connection: Connection, direction: Direction, segment: Segment) -> Packet {
        let sender = connection.of_sender_going(direction);
        let (src_port, dst_port) = (sender.local.port(), sender.remote.port());
        let segment = Segment { src_port, dst_port, flags: Flags::ACK, ..segment };
        Packet::new(sender.local.ip(), sender.remote.ip(), segment)
    }

    /// A segment with data for the mobile host.
    fn copy(connection: Connection) -> impl Strategy<Value = Packet> {
        let payload = prop::collection::vec(any::<u8>(), 1..1_500);
        (any::<u32>(), timestamps(), payload).prop_map(move |(seq, timestamps, payload)| {
            let options = TcpOptions { timestamps, ..TcpOptions::default() };
            let segment = Segment { seq: Seq::new(seq), options, payload: payload.into(), ..Segment::default() };
            packet(connection, Direction::Outgoing, segment)
        })
    }

    /// The state of a flow after data that is partly acknowledged, and copies.
    fn record() -> impl Strategy<Value = UnsplitRecord> {
        let numbers = (any::<u32>(), any::<u32>(), 0_usize..1_460, 0_u32..1_460);
        let round_trip = prop::option::of(any::<(u32, u32)>());
        let rest = (any::<u16>(), timestamps(), 0_u8..3, round_trip);
        let with_copies =
            connection().prop_flat_map(|connection| (Just(connection), prop::collection::vec(copy(connection), 0..5)));
        (any::<(u64, u32)>(), with_copies, numbers, rest).prop_map(
            |(
                (opened, epoch),
                (connection, copies),
                (seq, ack, len, acked),
                (window, timestamps, mode, round_trip),
            )| {
                let (link, rules) = (Link::new(&LinkState::default()), Rules::new(None, true, Duration::ZERO));
                let (seq, ack, payload) = (Seq::new(seq), Seq::new(ack), vec![0; len].into());
                let options = TcpOptions { timestamps, ..TcpOptions::default() };
                let data = Segment { seq, ack, payload, options: options.clone(), ..Segment::default() };
                let reply = Segment { seq: ack, ack: seq + acked, window, options, ..Segment::default() };
                let mut flow = Flow::new();
                for (at, direction, segment) in [(1, Direction::Outgoing, data), (2, Direction::Incoming, reply)] {
                    let environment = Environment { now: Instant::from_secs(at), link: &link, rules: &rules };
                    let form = Form::of(&segment);
                    let mut packet = packet(connection, direction, segment);
                    let _ = flow.pass_between(&Key::new(connection), environment, direction, &mut packet, form);
                }
                let flow = FlowRecord::of(Instant::from_secs(3), connection, &flow, true).expect("an open connection");
                let micros = |micros: u32| Duration::from_micros(u64::from(micros));
                let round_trip = round_trip.map(|(smoothed, deviation)| (micros(smoothed), micros(deviation)));
                let (is_frozen, is_withheld) = (mode == 1, mode == 2);
                UnsplitRecord { age: RecordAge { opened, epoch }, flow, is_frozen, is_withheld, round_trip, copies }
            },
        )
    }

    fn plain(record: UnsplitRecord) -> UnsplitRecord {
        let copies = record.copies.into_iter().map(|packet| Packet { received: None, ..packet }).collect();
        UnsplitRecord { copies, ..record }
    }

    proptest! {
        // Claim: Records of connections that are not split, with copies of packets, come out as they went in; damaged, truncated, extended
        // and random bytes are refused, or are a record that is encoded as the same bytes.
        // Tests: `handoff::unsplit::tests::random_bytes_are_refused_or_are_a_record`
        #[test]
        fn a_record_comes_out_as_it_went_in(
            record in record(), at in any::<prop::sample::Index>(), change in 1_u8..,
            cut in any::<prop::sample::Index>(), more in prop::collection::vec(any::<u8>(), 1..8),
        ) {
            let bytes = record.emit();
            let packets: usize = record.copies.iter().map(|packet| packet.wire_len() + UnsplitRecord::COPY_BYTES).sum();
            prop_assert!(bytes.len() <= UnsplitRecord::MAX_STATE_BYTES + packets);
            let parsed = UnsplitRecord::parse(&bytes).map_err(|error| TestCaseError::fail(error.to_string()))?;
            prop_assert_eq!(&parsed.emit(), &bytes);
            prop_assert_eq!(plain(parsed), record);
            let mut damaged = bytes.to_vec();
            *at.get_mut(&mut damaged) ^= change;
            prop_assert_eq!(UnsplitRecord::parse(&damaged.into()), Err(RecordError::Checksum { len: bytes.len() }));
            prop_assert!(UnsplitRecord::parse(&bytes.slice(..cut.index(bytes.len()))).is_err());
            prop_assert!(UnsplitRecord::parse(&[&bytes[..], &more].concat().into()).is_err());
        }

        /// Any bytes: no panic, and accepted ones are emitted unchanged. All are changes of a record, with a valid checksum.
        #[test]
        fn random_bytes_are_refused_or_are_a_record(
            record in record(), changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        ) {
            let bytes = record.emit();
            let mut bytes = bytes[..bytes.len() - CHECKSUM_BYTES].to_vec();
            for (at, byte) in changes {
                *at.get_mut(&mut bytes) = byte;
            }
            bytes.extend(crc32(&bytes).to_be_bytes());
            let bytes = Bytes::from(bytes);
            if let Ok(record) = UnsplitRecord::parse(&bytes) {
                prop_assert_eq!(record.emit(), bytes);
            }
        }
    }

    #[test]
    fn a_record_of_another_version_or_connection_is_refused() {
        let whole = |record: UnsplitRecord, version: u8| {
            let mut bytes = record.emit().to_vec();
            bytes.truncate(bytes.len() - CHECKSUM_BYTES);
            bytes[0] = version;
            bytes.extend(crc32(&bytes).to_be_bytes());
            UnsplitRecord::parse(&bytes.into())
        };
        let mut runner = proptest::test_runner::TestRunner::deterministic();
        let mut any_record = || record().new_tree(&mut runner).expect("a record").current();
        let record = any_record();
        assert_eq!(whole(record.clone(), 3).map(plain), Ok(record.clone()));
        assert_eq!(whole(record, 2), Err(RecordError::Version { version: 2, expected: 3 }));
        let (foreign, record) = (any_record(), any_record());
        let packet = packet(
            foreign.flow.connection(),
            Direction::Outgoing,
            Segment { payload: Bytes::from_static(b"."), ..Segment::default() },
        );
        let record = UnsplitRecord { copies: vec![packet], ..record };
        assert_eq!(whole(record, 3), Err(RecordError::Field { field: "packet" }));
    }
}
