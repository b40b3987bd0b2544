//! Records of connections that are not split: the state of one for another base station, and copies of its packets.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use holdover_base::Duration;
use holdover_filter::{Connection, Direction};
use holdover_flow::FlowRecord;
use holdover_wire::{Checksums, Packet, Payload};

use super::record::RecordError;

/// One record of an answer. The checksum of its message covers it.
///
/// On the wire, in network byte order: version, kind (1 byte each), epoch (4). Then in a copy the IP packet; in a state flags and the
/// number of copies (2 each), the smoothed round trip to the mobile host and its deviation in microseconds (4 each), and the record of the
/// flow ([`FlowRecord`]).
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Unsplit {
    /// The state of a connection.
    State(StateRecord),
    /// A packet that the mobile host has not acknowledged.
    Copy(CopyRecord),
}

/// The state of a connection at a base station.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StateRecord {
    /// How many times the connection was handed on, this time included.
    pub epoch: u32,
    /// The state of the flow path.
    pub flow: FlowRecord,
    /// The fixed host was sent a window of zero.
    pub is_frozen: bool,
    /// The fixed host was not sent the mobile host's last ACK yet.
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

const STATE: u8 = 2;
const COPY: u8 = 3;

const FROZEN: u16 = 1;
const WITHHELD: u16 = 1 << 1;
const MEASURED: u16 = 1 << 2;

/// Version, kind and epoch.
const HEAD_BYTES: usize = 6;

/// Flags, number of copies and round trip of a state.
const STATE_BYTES: usize = 12;

impl Unsplit {
    /// The version that this code writes and reads. Version 1 had another layout of states.
    pub const VERSION: u8 = 2;

    /// The longest state.
    pub const MAX_STATE_BYTES: usize = HEAD_BYTES + STATE_BYTES + FlowRecord::MAX_BYTES;

    /// Emits the record; `None` for a packet that cannot be written as bytes.
    pub fn emit(&self) -> Option<Bytes> {
        let (kind, epoch) = match self {
            Self::State(state) => (STATE, state.epoch),
            Self::Copy(copy) => (COPY, copy.epoch),
        };
        let mut out = BytesMut::with_capacity(128);
        out.put_slice(&[Self::VERSION, kind]);
        out.put_u32(epoch);
        match self {
            Self::State(state) => state.emit(&mut out),
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
            (Self::VERSION, STATE) => StateRecord::parse(epoch, body).map(Self::State),
            (Self::VERSION, COPY) => CopyRecord::parse(epoch, bytes.slice(HEAD_BYTES..)).map(Self::Copy),
            (Self::VERSION, kind) => Err(RecordError::Kind { kind }),
            (version, _) => Err(RecordError::Version { version, expected: Self::VERSION }),
        }
    }
}

impl CopyRecord {
    fn parse(epoch: u32, bytes: Bytes) -> Result<Self, RecordError> {
        let wrong = RecordError::Field { field: "packet" };
        let packet = Packet::parse_to_forward(bytes, Checksums::Verify).map_err(|_| wrong)?;
        let connection = Connection::of(Direction::Outgoing, &packet).ok_or(wrong)?;
        let has_data = matches!(&packet.payload, Payload::Tcp(segment) if segment.seq_len() > 0);
        if has_data { Ok(Self { epoch, connection, packet }) } else { Err(wrong) }
    }
}

impl StateRecord {
    fn emit(&self, out: &mut BytesMut) {
        let flags = [(self.is_frozen, FROZEN), (self.is_withheld, WITHHELD), (self.round_trip.is_some(), MEASURED)];
        out.put_u16(flags.into_iter().filter(|(is_set, _)| *is_set).fold(0, |flags, (_, flag)| flags | flag));
        out.put_u16(self.copies);
        let (smoothed, deviation) = self.round_trip.unwrap_or((Duration::ZERO, Duration::ZERO));
        for time in [smoothed, deviation] {
            out.put_u32(u32::try_from(time.as_micros()).unwrap_or(u32::MAX));
        }
        out.put_slice(&self.flow.to_bytes());
    }

    fn parse(epoch: u32, mut body: &[u8]) -> Result<Self, RecordError> {
        if body.len() < STATE_BYTES {
            return Err(RecordError::Length { len: HEAD_BYTES + body.len(), expected: HEAD_BYTES + STATE_BYTES });
        }
        let (flags, copies) = (body.get_u16(), body.get_u16());
        let [smoothed, deviation] = [body.get_u32(), body.get_u32()].map(u64::from).map(Duration::from_micros);
        let wrong = |field| RecordError::Field { field };
        if flags > FROZEN | WITHHELD | MEASURED {
            return Err(wrong("flags"));
        }
        let (is_frozen, is_withheld) = (flags & FROZEN != 0, flags & WITHHELD != 0);
        if is_frozen && is_withheld {
            return Err(wrong("withheld ACK"));
        }
        let round_trip = (flags & MEASURED != 0).then_some((smoothed, deviation));
        if round_trip.is_none() && (smoothed, deviation) != (Duration::ZERO, Duration::ZERO) {
            return Err(wrong("round-trip time"));
        }
        let flow = FlowRecord::from_bytes(body).ok_or(wrong("flow"))?;
        Ok(Self { epoch, flow, is_frozen, is_withheld, round_trip, copies })
    }
}

#[cfg(test)]
mod tests {
    use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

    use holdover_base::Instant;
    use holdover_flow::{Environment, Flow, Form, Key, Link, LinkState, Rules};
    use holdover_wire::{Flags, Segment, Seq, TcpOptions, Timestamps};
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

    /// A segment of the fixed host or of the mobile host.
    fn packet(connection: Connection, direction: Direction, segment: Segment) -> Packet {
        let sender = connection.of_sender_going(direction);
        let (src_port, dst_port) = (sender.local.port(), sender.remote.port());
        let segment = Segment { src_port, dst_port, flags: Flags::ACK, ..segment };
        Packet::new(sender.local.ip(), sender.remote.ip(), segment)
    }

    /// The state of a flow after data that is partly acknowledged.
    fn state() -> impl Strategy<Value = Unsplit> {
        let numbers = (any::<u32>(), any::<u32>(), 0_usize..1_460, 0_u32..1_460);
        let round_trip = prop::option::of(any::<(u32, u32)>());
        let rest = (any::<u16>(), timestamps(), 0_u8..3, round_trip, any::<u16>());
        (any::<u32>(), connection(), numbers, rest).prop_map(
            |(epoch, connection, (seq, ack, len, acked), (window, timestamps, mode, round_trip, copies))| {
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
                Unsplit::State(StateRecord { epoch, flow, is_frozen, is_withheld, round_trip, copies })
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
        fn a_record_comes_out_as_it_went_in(record in prop_oneof![state(), copy()], more in 1_usize..9) {
            let bytes = record.emit().expect("a packet that can be written");
            let parsed = Unsplit::parse(&bytes);
            match (&record, &parsed) {
                (Unsplit::State(_), _) => {
                    prop_assert_eq!(parsed.as_ref(), Ok(&record));
                    prop_assert!(bytes.len() <= Unsplit::MAX_STATE_BYTES);
                    let longer = Bytes::from([&bytes[..], &vec![0; more]].concat());
                    prop_assert!(Unsplit::parse(&longer).is_err());
                }
                (Unsplit::Copy(copy), Ok(Unsplit::Copy(parsed))) => {
                    let plain = |packet: &Packet| Packet { received: None, ..packet.clone() };
                    prop_assert_eq!((parsed.epoch, parsed.connection), (copy.epoch, copy.connection));
                    prop_assert_eq!(plain(&parsed.packet), plain(&copy.packet));
                    prop_assert_eq!(parsed.packet.emit(), copy.packet.emit());
                }
                (_, other) => prop_assert!(false, "{:?}", other),
            }
            let former = Bytes::from([&[1], &bytes[1..]].concat());
            prop_assert_eq!(Unsplit::parse(&former), Err(RecordError::Version { version: 1, expected: 2 }));
            let shorter = bytes.slice(..bytes.len().saturating_sub(more));
            prop_assert!(Unsplit::parse(&shorter).is_err());
        }

        /// Any bytes: no panic, and an accepted state is emitted unchanged.
        #[test]
        fn random_bytes_are_refused_or_are_a_state(
            state in state(), changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4), kind in 1_u8..4
        ) {
            let mut bytes = state.emit().expect("a state").to_vec();
            for (at, byte) in changes {
                let at = at.index(bytes.len());
                bytes[at] = byte;
            }
            (bytes[0], bytes[1]) = (Unsplit::VERSION, kind);
            let bytes = Bytes::from(bytes);
            if let Ok(record @ Unsplit::State(_)) = Unsplit::parse(&bytes) {
                prop_assert_eq!(record.emit(), Some(bytes));
            }
        }
    }
}
