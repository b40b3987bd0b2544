//! The record of a split connection with the data in its buffers, for another base station (I-TCP), and the pieces in which it travels.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use holdover_filter::Connection;
use holdover_tcp::{Fin, Snapshot};
use holdover_wire::Seq;

use super::checksum::{checked, crc32};
use super::record::{HalfRecord, RecordAge, RecordError, parse_ends, put_ends};

/// A split connection with its buffers: the state of both sockets.
///
/// Without halves it says that the connection was split and its state is lost.
///
/// On the wire, in network byte order: version, kind (1 byte each), flags (2), its age: number (8) and epoch (4), ports of the fixed host and of the mobile host (2
/// each), their addresses (4 or 16 each); the half towards the fixed host and the one towards the mobile host, unless it has ended; and the
/// CRC-32 of all preceding bytes (4). A half: flags of its options (2), the 36 bytes of a [`HalfRecord`](super::HalfRecord), flags of its
/// buffers (2), the right edge of its window, the sizes of its send and receive buffers, the most that it advertises, a FIN out of order, the
/// lengths of the data to send and of the unread data, and the number of blocks out of order (4 each); sequence number and length of each
/// block (4 each); the data to send, the unread data and the data of the blocks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SplitRecord {
    /// Which one of several records of the same addresses and ports is the newest.
    pub age: RecordAge,
    /// The fixed host and the mobile host.
    pub connection: Connection,
    /// The half towards the fixed host and the one towards the mobile host; `None` for one that has ended in good order.
    pub halves: [Option<Snapshot>; 2],
}

const IPV6: u16 = 1;
/// Flags of halves that are present.
const HALVES: [u16; 2] = [1 << 1, 1 << 2];

const FIN_DUE: u16 = 1;
const ACK_DUE: u16 = 1 << 1;
const FIN_OUT_OF_ORDER: u16 = 1 << 2;
const FIN_CROSSED: u16 = 1 << 3;

/// Version, kind, flags and age.
const HEAD_BYTES: usize = 16;
const PORT_BYTES: usize = 4;
const ADDRESS_BYTES: [usize; 2] = [8, 32];
const HALF_BYTES: usize = 2 + 36 + 2 + 8 * 4;
const BLOCK_BYTES: usize = 8;

impl SplitRecord {
    /// The version that this code writes and reads.
    pub const VERSION: u8 = 1;
    pub(super) const KIND: u8 = 4;

    /// Emits the record.
    pub fn emit(&self) -> Bytes {
        let is_ipv6 = self.connection.fixed().is_ipv6();
        let present = self.halves.iter().zip(HALVES).filter(|(half, _)| half.is_some());
        let flags = present.fold(if is_ipv6 { IPV6 } else { 0 }, |flags, (_, flag)| flags | flag);
        let data: usize = self.halves.iter().flatten().map(data_bytes).sum();
        let mut out = BytesMut::with_capacity(256 + data);
        out.put_slice(&[Self::VERSION, Self::KIND]);
        out.put_u16(flags);
        out.put_u64(self.age.opened);
        out.put_u32(self.age.epoch);
        put_ends(&mut out, self.connection);
        for half in self.halves.iter().flatten() {
            put_half(&mut out, half);
        }
        out.put_u32(crc32(&out));
        out.freeze()
    }

    /// Parses a record from exactly these bytes.
    ///
    /// # Errors
    /// See [`RecordError`].
    pub fn parse(bytes: &[u8]) -> Result<Self, RecordError> {
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
        let age = RecordAge { opened: body.get_u64(), epoch: body.get_u32() };
        if version != Self::VERSION {
            return Err(RecordError::Version { version, expected: Self::VERSION });
        }
        if kind != Self::KIND {
            return Err(RecordError::Kind { kind });
        }
        if flags > IPV6 | HALVES[0] | HALVES[1] {
            return Err(RecordError::Field { field: "flags" });
        }
        let is_ipv6 = flags & IPV6 != 0;
        expect(body, PORT_BYTES + ADDRESS_BYTES[usize::from(is_ipv6)])?;
        let connection = parse_ends(&mut body, is_ipv6)?;
        let (fixed, mobile) = (connection.fixed(), connection.mobile());
        let mut halves = [None, None];
        for ((half, flag), (local, remote)) in halves.iter_mut().zip(HALVES).zip([(mobile, fixed), (fixed, mobile)]) {
            if flags & flag == 0 {
                continue;
            }
            expect(body, HALF_BYTES)?;
            let options = body.get_u16();
            let state = HalfRecord::parse(&mut body, options, local, remote)?;
            let parsed = parse_half(&mut body, &state, expect)?;
            if state.flags() != options {
                return Err(RecordError::Field { field: "flags" });
            }
            *half = Some(parsed);
        }
        if !body.is_empty() {
            return Err(RecordError::Length { len: bytes.len(), expected: bytes.len() - body.len() });
        }
        Ok(Self { age, connection, halves })
    }
}

fn total(chunks: &[Bytes]) -> usize {
    chunks.iter().map(Bytes::len).sum()
}

/// Bytes of data and blocks of a half.
fn data_bytes(half: &Snapshot) -> usize {
    let blocks: usize = half.out_of_order.iter().map(|(_, data)| data.len() + BLOCK_BYTES).sum();
    total(&half.to_send) + total(&half.unread) + blocks
}

fn put_half(out: &mut BytesMut, half: &Snapshot) {
    let is_fin_sent = half.resumption.is_sent_all || matches!(half.fin, Fin::Sent { .. });
    let state = HalfRecord { resumption: half.resumption, snd_max: half.sent_until, is_fin_sent };
    out.put_u16(state.flags());
    state.emit(out);
    let flags = [
        (half.fin == Fin::Due, FIN_DUE),
        (half.is_ack_due, ACK_DUE),
        (half.fin_out_of_order.is_some(), FIN_OUT_OF_ORDER),
        (half.fin == Fin::Sent { is_crossed: true }, FIN_CROSSED),
    ];
    out.put_u16(flags.into_iter().filter(|(is_set, _)| *is_set).fold(0, |flags, (_, flag)| flags | flag));
    out.put_u32(half.window_edge.value());
    for size in [half.send_buffer, half.receive_buffer, half.receive_limit] {
        out.put_u32(size);
    }
    out.put_u32(half.fin_out_of_order.map_or(0, Seq::value));
    for len in [total(&half.to_send), total(&half.unread), half.out_of_order.len()] {
        out.put_u32(u32::try_from(len).unwrap_or(u32::MAX));
    }
    for (seq, data) in &half.out_of_order {
        out.put_u32(seq.value());
        out.put_u32(data.len() as u32);
    }
    let blocks = half.out_of_order.iter().map(|(_, data)| data);
    for data in half.to_send.iter().chain(&half.unread).chain(blocks) {
        out.put_slice(data);
    }
}

/// Parses the rest of a half, of which the fixed fields are present.
fn parse_half(
    body: &mut &[u8],
    state: &HalfRecord,
    expect: impl Fn(&[u8], usize) -> Result<(), RecordError>,
) -> Result<Snapshot, RecordError> {
    let wrong = |field| RecordError::Field { field };
    let (flags, window_edge) = (body.get_u16(), Seq::new(body.get_u32()));
    let [send_buffer, receive_buffer, receive_limit, fin] = [(); 4].map(|()| body.get_u32());
    let [to_send, unread, count] = [(); 3].map(|()| body.get_u32() as usize);
    let is = |flag: u16| flags & flag != 0;
    // Whether the FIN was sent and is not acknowledged, and then whether the peer's has arrived.
    let fin_sent = (state.is_fin_sent && !state.resumption.is_sent_all).then_some(state.resumption.is_received_all);
    let in_flight = state.snd_max.saturating_since(state.resumption.snd_una) as usize;
    let fields = [
        (flags > FIN_DUE | ACK_DUE | FIN_OUT_OF_ORDER | FIN_CROSSED, "flags"),
        (window_edge.lt(state.resumption.rcv_nxt), "window"),
        (!is(FIN_OUT_OF_ORDER) && fin != 0, "FIN"),
        (is(FIN_DUE) && state.is_fin_sent, "FIN"),
        (is(FIN_CROSSED) && fin_sent != Some(true), "FIN"),
        (in_flight > to_send || state.is_fin_sent && in_flight != to_send, "end of what was sent"),
    ];
    if let Some((_, field)) = fields.into_iter().find(|(is_wrong, _)| *is_wrong) {
        return Err(wrong(field));
    }
    expect(body, count.saturating_mul(BLOCK_BYTES))?;
    let blocks: Vec<(Seq, usize)> = (0..count).map(|_| (Seq::new(body.get_u32()), body.get_u32() as usize)).collect();
    let held = blocks.iter().fold(0usize, |held, (_, len)| held.saturating_add(*len));
    expect(body, to_send.saturating_add(unread).saturating_add(held))?;
    let mut take = |len: usize| {
        let data = Bytes::copy_from_slice(&body[..len]);
        body.advance(len);
        data
    };
    let chunks = |data: Bytes| if data.is_empty() { Vec::new() } else { vec![data] };
    let (to_send, unread) = (chunks(take(to_send)), chunks(take(unread)));
    Ok(Snapshot {
        resumption: state.resumption,
        to_send,
        sent_until: state.snd_max,
        fin: match fin_sent {
            Some(_) => Fin::Sent { is_crossed: is(FIN_CROSSED) },
            None if is(FIN_DUE) => Fin::Due,
            None => Fin::None,
        },
        unread,
        out_of_order: blocks.into_iter().map(|(seq, len)| (seq, take(len))).collect(),
        fin_out_of_order: is(FIN_OUT_OF_ORDER).then_some(Seq::new(fin)),
        is_ack_due: is(ACK_DUE),
        window_edge,
        send_buffer,
        receive_buffer,
        receive_limit,
    })
}

/// A piece of a [`SplitRecord`] that fits a packet.
///
/// On the wire, in network byte order: version, kind (1 byte each), flags (2), number of the record in its answer (2), length of the record,
/// offset of the piece (4 each), and bytes of the record.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Piece {
    /// The record was sent to another base station before, which may have continued from it: it applies only if no peer has a newer one.
    pub is_doubtful: bool,
    /// The number of the record in its answer, from 0.
    pub number: u16,
    /// The length of the record.
    pub total: u32,
    /// Where in it the piece begins.
    pub offset: u32,
    /// The bytes.
    pub bytes: Bytes,
}

const DOUBTFUL: u16 = 1;
const PIECE_HEAD_BYTES: usize = 14;

impl Piece {
    /// The version that this code writes and reads.
    pub const VERSION: u8 = 1;
    /// The most bytes of a record in a piece: with its headers it fits a packet of 1,500 bytes.
    pub const MAX_BYTES: usize = 1_400;
    const KIND: u8 = 5;

    /// The pieces of a record.
    pub fn of(record: &Bytes, number: u16, is_doubtful: bool) -> impl Iterator<Item = Self> + '_ {
        (0..record.len()).step_by(Self::MAX_BYTES).map(move |offset| Self {
            is_doubtful,
            number,
            total: record.len() as u32,
            offset: offset as u32,
            bytes: record.slice(offset..record.len().min(offset + Self::MAX_BYTES)),
        })
    }

    /// Emits the piece.
    pub fn emit(&self) -> Bytes {
        let mut out = BytesMut::with_capacity(PIECE_HEAD_BYTES + self.bytes.len());
        out.put_slice(&[Self::VERSION, Self::KIND]);
        out.put_u16(if self.is_doubtful { DOUBTFUL } else { 0 });
        out.put_u16(self.number);
        out.put_u32(self.total);
        out.put_u32(self.offset);
        out.put_slice(&self.bytes);
        out.freeze()
    }

    /// Parses a piece from exactly these bytes, of whose message the checksum was correct.
    ///
    /// # Errors
    /// See [`RecordError`].
    pub fn parse(bytes: &Bytes) -> Result<Self, RecordError> {
        let mut head = &bytes[..];
        if head.len() < PIECE_HEAD_BYTES {
            return Err(RecordError::Length { len: bytes.len(), expected: PIECE_HEAD_BYTES });
        }
        let (version, kind, flags, number) = (head.get_u8(), head.get_u8(), head.get_u16(), head.get_u16());
        if version != Self::VERSION {
            return Err(RecordError::Version { version, expected: Self::VERSION });
        }
        if kind != Self::KIND {
            return Err(RecordError::Kind { kind });
        }
        let (total, offset) = (head.get_u32(), head.get_u32());
        let end = u64::from(offset) + head.len() as u64;
        if flags > DOUBTFUL {
            return Err(RecordError::Field { field: "flags" });
        }
        if head.is_empty() || head.len() > Self::MAX_BYTES || end > u64::from(total) {
            return Err(RecordError::Field { field: "offset" });
        }
        let bytes = bytes.slice(PIECE_HEAD_BYTES..);
        Ok(Self { is_doubtful: flags == DOUBTFUL, number, total, offset, bytes })
    }
}

#[cfg(test)]
mod tests {
    use core::net::{IpAddr, Ipv6Addr, SocketAddr};

    use holdover_base::Duration;
    use holdover_tcp::Resumption;
    use proptest::prelude::*;

    use super::*;

    fn bytes(most: usize) -> impl Strategy<Value = Bytes> {
        prop::collection::vec(any::<u8>(), 0..most).prop_map(Bytes::from)
    }

    fn half(local: SocketAddr, remote: SocketAddr) -> impl Strategy<Value = Snapshot> {
        let numbers = (any::<u32>(), any::<u32>(), any::<u32>(), 0_u32..1 << 30);
        let data = (
            bytes(4_000),
            any::<prop::sample::Index>(),
            bytes(4_000),
            prop::collection::vec((any::<u32>(), bytes(90)), 0..5),
        );
        let flags = (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>());
        let options =
            (prop::option::of((0_u8..15, 0_u8..15)), prop::option::of(any::<(u32, u32)>()), prop::option::of(1_u32..));
        let sizes = (any::<(u32, u32, u32)>(), prop::option::of(any::<u32>()));
        (numbers, data, flags, options, sizes, 0..4).prop_map(move |(numbers, data, flags, options, sizes, fin)| {
            let (una, rcv_nxt, snd_wnd, window) = numbers;
            let (to_send, sent, unread, blocks) = data;
            let (is_received_all, is_ack_due, sack, is_crossed) = flags;
            let sent = match fin {
                0 | 1 => sent.index(to_send.len() + 1),
                2 => to_send.len(),
                _ => 0,
            };
            let to_send = if fin == 3 { Bytes::new() } else { to_send };
            let resumption = Resumption {
                local,
                remote,
                snd_una: Seq::new(una),
                rcv_nxt: Seq::new(rcv_nxt),
                snd_wnd,
                window_scales: options.0,
                snd_mss: 1_448,
                rcv_mss: 1_460,
                sack,
                timestamps: options.1,
                is_sent_all: fin == 3,
                is_received_all,
                srtt: options.2.map(|micros| Duration::from_micros(u64::from(micros))),
            };
            let chunks = |data: Bytes| if data.is_empty() { Vec::new() } else { vec![data] };
            Snapshot {
                resumption,
                sent_until: Seq::new(una) + sent as u32,
                to_send: chunks(to_send),
                fin: match fin {
                    1 => Fin::Due,
                    2 => Fin::Sent { is_crossed: is_crossed && is_received_all },
                    _ => Fin::None,
                },
                unread: chunks(unread),
                out_of_order: blocks.into_iter().map(|(seq, data)| (Seq::new(seq), data)).collect(),
                fin_out_of_order: sizes.1.map(Seq::new),
                is_ack_due,
                window_edge: Seq::new(rcv_nxt) + window,
                send_buffer: sizes.0.0,
                receive_buffer: sizes.0.1,
                receive_limit: sizes.0.2,
            }
        })
    }

    fn record() -> impl Strategy<Value = SplitRecord> {
        let ends = (any::<bool>(), any::<u32>(), any::<u32>(), 1_u16.., 1_u16..);
        ends.prop_flat_map(|(is_ipv6, fixed, mobile, fixed_port, mobile_port)| {
            let address = |number: u32| -> IpAddr {
                if is_ipv6 {
                    Ipv6Addr::from(0x2001_0db8_u128 << 96 | u128::from(number)).into()
                } else {
                    core::net::Ipv4Addr::from(0x0a00_0000 | number & 0x00ff_ffff).into()
                }
            };
            let (fixed, mobile) =
                (SocketAddr::new(address(fixed), fixed_port), SocketAddr::new(address(mobile), mobile_port));
            (prop::option::of(half(mobile, fixed)), prop::option::of(half(fixed, mobile)), any::<(u64, u32)>())
                .prop_map(move |(of_fixed, of_mobile, (opened, epoch))| SplitRecord {
                    age: RecordAge { opened, epoch },
                    connection: Connection::between(fixed, mobile),
                    halves: [of_fixed, of_mobile],
                })
        })
    }

    proptest! {
        // Claim: Records of split connections with their buffers, and their pieces, come out as they went in; damaged, truncated, extended
        // and random bytes are refused, or are a record that is encoded as the same bytes.
        // Tests: `handoff::split_record::tests::random_bytes_are_refused_or_are_a_record`
        #[test]
        fn a_record_comes_out_as_it_went_in(
            record in record(), number: u16, is_doubtful: bool, at in any::<prop::sample::Index>(), change in 1_u8..,
            cut in any::<prop::sample::Index>(), more in prop::collection::vec(any::<u8>(), 1..8),
        ) {
            let bytes = record.emit();
            prop_assert_eq!(SplitRecord::parse(&bytes), Ok(record));
            let mut joined = Vec::new();
            for piece in Piece::of(&bytes, number, is_doubtful) {
                prop_assert_eq!(piece.offset as usize, joined.len());
                let parsed = Piece::parse(&piece.emit());
                prop_assert_eq!(parsed.as_ref(), Ok(&piece));
                joined.extend_from_slice(&piece.bytes);
            }
            prop_assert_eq!(&joined[..], &bytes[..]);
            let mut damaged = joined;
            *at.get_mut(&mut damaged) ^= change;
            prop_assert_eq!(SplitRecord::parse(&damaged), Err(RecordError::Checksum { len: bytes.len() }));
            prop_assert!(SplitRecord::parse(&bytes[..cut.index(bytes.len())]).is_err());
            prop_assert!(SplitRecord::parse(&[&bytes[..], &more].concat()).is_err());
        }

        /// Any bytes: no panic, and accepted ones are emitted unchanged. Half of the cases are changes of a record, with a valid checksum.
        #[test]
        fn random_bytes_are_refused_or_are_a_record(
            record in record(), changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
            random in bytes(300), is_random: bool,
        ) {
            let mut bytes = record.emit().to_vec();
            bytes.truncate(bytes.len() - 4);
            for (at, byte) in changes {
                *at.get_mut(&mut bytes) = byte;
            }
            if is_random {
                bytes = random.to_vec();
            }
            bytes.extend(crc32(&bytes).to_be_bytes());
            if let Ok(record) = SplitRecord::parse(&bytes) {
                prop_assert_eq!(&record.emit()[..], &bytes[..]);
            }
            let bytes = Bytes::from(bytes);
            if let Ok(piece) = Piece::parse(&bytes) {
                prop_assert_eq!(piece.emit(), bytes);
            }
        }
    }
}
