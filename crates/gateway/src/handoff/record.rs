//! The record of a connection for another supervisor host: its addresses and ports, its epoch, and for each of its two halves the sequence
//! numbers, the windows, the segment sizes, the timestamp state and SRTT, but no data.

use core::net::{IpAddr, SocketAddr};

use bytes::{Buf, BufMut, Bytes, BytesMut};
use holdover_base::Duration;
use holdover_filter::Connection;
use holdover_tcp::Resumption;
use holdover_wire::Seq;

use super::checksum::{checked, crc32};

/// The state of a split connection, without its buffers. In M-TCP's terms: two *tcpcb*, two *inpcb*, one *mtb*.
///
/// On the wire, in network byte order: version (1 byte), kind (1), flags (2), age: number (8) and epoch (4), congestion window towards the
/// mobile host (4), ports of the fixed host and of the mobile host (2 each), their addresses (4 or 16 each); for the half towards the fixed host and then
/// for the one towards the mobile host: SND.UNA, the end of the sent data, RCV.NXT, SND.WND (4 each), the two segment sizes (2 each), the
/// two window shifts (1 each), two bytes of zero, TS.Recent, the next value of the timestamp clock, SRTT in microseconds (4 each); and the
/// CRC-32 of all preceding bytes (4). That is 108 bytes with IPv4 and 132 with IPv6.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ConnectionRecord {
    /// Which one of several records of the same addresses and ports is the newest.
    pub age: RecordAge,
    /// The fixed host and the mobile host.
    pub connection: Connection,
    /// The half towards the fixed host.
    pub fixed: HalfRecord,
    /// The half towards the mobile host.
    pub mobile: HalfRecord,
    /// Whether enough data was acknowledged to hold a byte back.
    pub holds: bool,
    /// The congestion window towards the mobile host, in segments.
    pub cwnd_segments: u32,
}

/// The age of a record: the greater one is the newer one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub struct RecordAge {
    /// The number of the request by which the node where the connection was opened served its mobile host. A later connection between the
    /// same addresses and ports has a greater one.
    pub opened: u64,
    /// How many times the connection was handed on, this time included.
    pub epoch: u32,
}

impl RecordAge {
    /// The age of the same connection after one more handoff.
    pub(crate) const fn next(self) -> Self {
        Self { epoch: self.epoch.saturating_add(1), ..self }
    }
}

/// One half of a split connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HalfRecord {
    /// The state in which it resumes.
    pub resumption: Resumption,
    /// The end of the data that any supervisor host has sent on it. The peer may have received it, and its ACK may
    /// arrive at the next supervisor host.
    pub snd_max: Seq,
    /// Whether that ends with a FIN.
    pub is_fin_sent: bool,
}

/// The reason why bytes are not a valid record.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RecordError {
    /// The checksum is wrong, or missing.
    #[error("wrong checksum of a record of {len} bytes")]
    Checksum {
        /// The number of bytes.
        len: usize,
    },
    /// Another version.
    #[error("record of version {version}, expected {expected}")]
    Version {
        /// Its version.
        version: u8,
        /// The version of this kind that is read.
        expected: u8,
    },
    /// Another kind than the expected one.
    #[error("record of unknown kind {kind}")]
    Kind {
        /// Its kind.
        kind: u8,
    },
    /// Its length does not match its flags.
    #[error("record of {len} bytes, expected {expected}")]
    Length {
        /// Its length.
        len: usize,
        /// The expected length.
        expected: usize,
    },
    /// A field has an invalid value.
    #[error("invalid {field} in a record")]
    Field {
        /// The field.
        field: &'static str,
    },
}

/// Flags of the whole record.
const IPV6: u16 = 1;
const HOLDS: u16 = 1 << 1;

/// Flags of a half; those of the mobile host's half are shifted by [`HALF_FLAGS`].
const SCALED: u16 = 1 << 2;
const SACK: u16 = 1 << 3;
const TIMESTAMPS: u16 = 1 << 4;
const SENT_ALL: u16 = 1 << 5;
const RECEIVED_ALL: u16 = 1 << 6;
const MEASURED: u16 = 1 << 7;
const FIN_SENT: u16 = 1 << 8;
const HALF_FLAGS: u32 = 7;

/// Version, kind, flags, age, congestion window and ports.
const HEAD_BYTES: usize = 24;
const HALF_BYTES: usize = 36;
const CHECKSUM_BYTES: usize = 4;

impl ConnectionRecord {
    /// The version that this code writes and reads. Version 1 had no number in its age.
    pub const VERSION: u8 = 2;
    /// The longest record.
    pub const MAX_BYTES: usize = 256;
    pub(super) const KIND: u8 = 1;

    const fn wire_len(is_ipv6: bool) -> usize {
        HEAD_BYTES + if is_ipv6 { 32 } else { 8 } + 2 * HALF_BYTES + CHECKSUM_BYTES
    }

    /// Emits the record.
    pub fn emit(&self) -> Bytes {
        let is_ipv6 = self.connection.fixed().is_ipv6();
        let mut flags = if is_ipv6 { IPV6 } else { 0 } | if self.holds { HOLDS } else { 0 };
        flags |= self.fixed.flags() | self.mobile.flags() << HALF_FLAGS;
        let mut out = BytesMut::with_capacity(Self::wire_len(is_ipv6));
        out.put_slice(&[Self::VERSION, Self::KIND]);
        out.put_u16(flags);
        out.put_u64(self.age.opened);
        out.put_u32(self.age.epoch);
        out.put_u32(self.cwnd_segments);
        put_ends(&mut out, self.connection);
        self.fixed.emit(&mut out);
        self.mobile.emit(&mut out);
        out.put_u32(crc32(&out));
        out.freeze()
    }

    /// Parses a record from exactly these bytes.
    ///
    /// # Errors
    /// See [`RecordError`].
    pub fn parse(bytes: &[u8]) -> Result<Self, RecordError> {
        let mut body = checked(bytes).ok_or(RecordError::Checksum { len: bytes.len() })?;
        if body.len() < HEAD_BYTES {
            return Err(RecordError::Length { len: bytes.len(), expected: Self::wire_len(false) });
        }
        let (version, kind, flags) = (body.get_u8(), body.get_u8(), body.get_u16());
        if version != Self::VERSION {
            return Err(RecordError::Version { version, expected: Self::VERSION });
        }
        if kind != Self::KIND {
            return Err(RecordError::Kind { kind });
        }
        let is_ipv6 = flags & IPV6 != 0;
        let expected = Self::wire_len(is_ipv6);
        if bytes.len() != expected {
            return Err(RecordError::Length { len: bytes.len(), expected });
        }
        let age = RecordAge { opened: body.get_u64(), epoch: body.get_u32() };
        let cwnd_segments = body.get_u32();
        let connection = parse_ends(&mut body, is_ipv6)?;
        let (fixed, mobile) = (connection.fixed(), connection.mobile());
        let fixed_half = HalfRecord::parse(&mut body, flags, mobile, fixed)?;
        let mobile_half = HalfRecord::parse(&mut body, flags >> HALF_FLAGS, fixed, mobile)?;
        Ok(Self { age, connection, fixed: fixed_half, mobile: mobile_half, holds: flags & HOLDS != 0, cwnd_segments })
    }
}

/// Emits the ports and then the addresses of the fixed host and the mobile host.
pub(super) fn put_ends(out: &mut BytesMut, connection: Connection) {
    let (fixed, mobile) = (connection.fixed(), connection.mobile());
    out.put_u16(fixed.port());
    out.put_u16(mobile.port());
    for address in [fixed.ip(), mobile.ip()] {
        match address {
            IpAddr::V4(address) => out.put_slice(&address.octets()),
            IpAddr::V6(address) => out.put_slice(&address.octets()),
        }
    }
}

/// Parses what [`put_ends`] emits. The caller has checked its presence.
pub(super) fn parse_ends(body: &mut &[u8], is_ipv6: bool) -> Result<Connection, RecordError> {
    let (fixed_port, mobile_port) = (body.get_u16(), body.get_u16());
    let mut address = || {
        if is_ipv6 { IpAddr::from(body.get_u128().to_be_bytes()) } else { IpAddr::from(body.get_u32().to_be_bytes()) }
    };
    let (fixed_ip, mobile_ip) = (address(), address());
    if fixed_port == 0 || mobile_port == 0 {
        return Err(RecordError::Field { field: "port" });
    }
    if fixed_ip.is_unspecified() || mobile_ip.is_unspecified() || fixed_ip.is_multicast() || mobile_ip.is_multicast() {
        return Err(RecordError::Field { field: "address" });
    }
    Ok(Connection::between(SocketAddr::new(fixed_ip, fixed_port), SocketAddr::new(mobile_ip, mobile_port)))
}

impl HalfRecord {
    pub(super) fn flags(&self) -> u16 {
        let resumption = &self.resumption;
        [
            (resumption.window_scales.is_some(), SCALED),
            (resumption.sack, SACK),
            (resumption.timestamps.is_some(), TIMESTAMPS),
            (resumption.is_sent_all, SENT_ALL),
            (resumption.is_received_all, RECEIVED_ALL),
            (resumption.srtt.is_some(), MEASURED),
            (self.is_fin_sent, FIN_SENT),
        ]
        .into_iter()
        .filter(|(is_set, _)| *is_set)
        .fold(0, |flags, (_, flag)| flags | flag)
    }

    pub(super) fn emit(&self, out: &mut BytesMut) {
        let resumption = &self.resumption;
        for seq in [resumption.snd_una, self.snd_max, resumption.rcv_nxt] {
            out.put_u32(seq.value());
        }
        out.put_u32(resumption.snd_wnd);
        out.put_u16(resumption.snd_mss);
        out.put_u16(resumption.rcv_mss);
        let (snd_scale, rcv_scale) = resumption.window_scales.unwrap_or_default();
        out.put_slice(&[snd_scale, rcv_scale, 0, 0]);
        let (recent, next) = resumption.timestamps.unwrap_or_default();
        out.put_u32(recent);
        out.put_u32(next);
        let micros = resumption.srtt.map_or(0, |srtt| srtt.as_micros().max(1));
        out.put_u32(u32::try_from(micros).unwrap_or(u32::MAX));
    }

    /// Parses a half, whose presence the caller has checked.
    pub(super) fn parse(
        body: &mut &[u8],
        flags: u16,
        local: SocketAddr,
        remote: SocketAddr,
    ) -> Result<Self, RecordError> {
        let (snd_una, snd_max, rcv_nxt) =
            (Seq::new(body.get_u32()), Seq::new(body.get_u32()), Seq::new(body.get_u32()));
        let (snd_wnd, snd_mss, rcv_mss) = (body.get_u32(), body.get_u16(), body.get_u16());
        let scales = (body.get_u8(), body.get_u8());
        let reserved = body.get_u16();
        let timestamps = (body.get_u32(), body.get_u32());
        let micros = body.get_u32();
        let is = |flag: u16| flags & flag != 0;
        let fields = [
            (snd_max.lt(snd_una), "end of what was sent"),
            (snd_mss == 0 || rcv_mss == 0, "segment size"),
            (scales.0 > 14 || scales.1 > 14 || !is(SCALED) && scales != (0, 0), "window shift"),
            (reserved != 0, "reserved field"),
            (!is(TIMESTAMPS) && timestamps != (0, 0), "timestamp"),
            (is(MEASURED) != (micros != 0), "round-trip time"),
            (is(SENT_ALL) && !is(FIN_SENT), "FIN"),
        ];
        if let Some((_, field)) = fields.into_iter().find(|(is_wrong, _)| *is_wrong) {
            return Err(RecordError::Field { field });
        }
        let resumption = Resumption {
            local,
            remote,
            snd_una,
            rcv_nxt,
            snd_wnd,
            window_scales: is(SCALED).then_some(scales),
            snd_mss,
            rcv_mss,
            sack: is(SACK),
            timestamps: is(TIMESTAMPS).then_some(timestamps),
            is_sent_all: is(SENT_ALL),
            is_received_all: is(RECEIVED_ALL),
            srtt: is(MEASURED).then(|| Duration::from_micros(u64::from(micros))),
        };
        Ok(Self { resumption, snd_max, is_fin_sent: is(FIN_SENT) })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn half(local: SocketAddr, remote: SocketAddr) -> impl Strategy<Value = HalfRecord> {
        let numbers = (any::<u32>(), 0_u32..1 << 31, any::<u32>(), any::<u32>());
        let sizes = (1_u16.., 1_u16.., prop::option::of((0_u8..15, 0_u8..15)));
        let flags = (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>());
        let times = (prop::option::of(any::<(u32, u32)>()), prop::option::of(1_u32..));
        (numbers, sizes, flags, times).prop_map(move |(numbers, sizes, flags, times)| {
            let (una, ahead, rcv_nxt, snd_wnd) = numbers;
            let (sack, is_sent_all, is_received_all, is_fin_sent) = flags;
            let resumption = Resumption {
                local,
                remote,
                snd_una: Seq::new(una),
                rcv_nxt: Seq::new(rcv_nxt),
                snd_wnd,
                window_scales: sizes.2,
                snd_mss: sizes.0,
                rcv_mss: sizes.1,
                sack,
                timestamps: times.0,
                is_sent_all,
                is_received_all,
                srtt: times.1.map(|micros| Duration::from_micros(u64::from(micros))),
            };
            HalfRecord { resumption, snd_max: Seq::new(una) + ahead, is_fin_sent: is_fin_sent || is_sent_all }
        })
    }

    fn record() -> impl Strategy<Value = ConnectionRecord> {
        let ends = (any::<bool>(), any::<u64>(), any::<u64>(), 1_u16.., 1_u16..);
        ends.prop_flat_map(|(is_ipv6, fixed, mobile, fixed_port, mobile_port)| {
            let address = |number: u64| -> IpAddr {
                if is_ipv6 {
                    core::net::Ipv6Addr::from(0x2001_0db8_u128 << 96 | u128::from(number)).into()
                } else {
                    core::net::Ipv4Addr::from(0x0a00_0000 | number as u32 & 0x00ff_ffff).into()
                }
            };
            let (local, remote) =
                (SocketAddr::new(address(fixed), fixed_port), SocketAddr::new(address(mobile), mobile_port));
            (half(remote, local), half(local, remote), any::<(u64, u32)>(), any::<u32>(), any::<bool>()).prop_map(
                move |(fixed, mobile, (opened, epoch), cwnd_segments, holds)| ConnectionRecord {
                    age: RecordAge { opened, epoch },
                    connection: Connection::between(local, remote),
                    fixed,
                    mobile,
                    holds,
                    cwnd_segments,
                },
            )
        })
    }

    proptest! {
        #[test]
        fn a_record_comes_out_as_it_went_in(record in record()) {
            let bytes = record.emit();
            prop_assert_eq!(bytes.len(), if record.connection.fixed().is_ipv6() { 132 } else { 108 });
            prop_assert!(bytes.len() <= ConnectionRecord::MAX_BYTES);
            prop_assert_eq!(ConnectionRecord::parse(&bytes), Ok(record));
        }

        /// Damages up to four adjacent bytes, or two that are not adjacent; truncates, or extends.
        #[test]
        fn a_damaged_record_is_not_taken(
            record in record(), at in any::<prop::sample::Index>(), change in prop::array::uniform4(any::<u8>()),
            cut in any::<prop::sample::Index>(), more in prop::collection::vec(any::<u8>(), 1..8),
        ) {
            let bytes = record.emit();
            let at = at.index(bytes.len());
            let mut damaged = bytes.to_vec();
            for (byte, change) in damaged[at..].iter_mut().zip(change) {
                *byte ^= change;
            }
            if damaged != bytes {
                prop_assert_eq!(ConnectionRecord::parse(&damaged), Err(RecordError::Checksum { len: bytes.len() }));
            }
            prop_assert!(ConnectionRecord::parse(&bytes[..cut.index(bytes.len())]).is_err());
            let longer = [&bytes[..], &more].concat();
            prop_assert!(ConnectionRecord::parse(&longer).is_err());
        }

        /// Any bytes: no panic, and accepted ones are emitted unchanged. Half of the cases have a valid checksum.
        #[test]
        fn random_bytes_are_refused_or_are_a_record(
            mut bytes in prop::collection::vec(any::<u8>(), 0..200), is_sealed in any::<bool>(), is_plausible in any::<bool>(),
        ) {
            if is_plausible && bytes.len() > 3 {
                (bytes[0], bytes[1]) = (ConnectionRecord::VERSION, ConnectionRecord::KIND);
                bytes.resize(if bytes[3] & 1 == 1 { 128 } else { 104 }, 0);
            }
            if is_sealed {
                bytes.extend(crc32(&bytes).to_be_bytes());
            }
            let parsed = ConnectionRecord::parse(&bytes);
            if let Ok(record) = parsed {
                prop_assert_eq!(&record.emit()[..], &bytes[..]);
            }
        }
    }

    /// One invalid value of each field, in an otherwise valid record.
    #[test]
    fn impossible_values_are_named() {
        let resumption = Resumption {
            local: "10.0.0.2:1000".parse().unwrap(),
            remote: "10.0.0.1:80".parse().unwrap(),
            snd_una: Seq::new(10),
            rcv_nxt: Seq::new(20),
            snd_wnd: 1000,
            window_scales: None,
            snd_mss: 1460,
            rcv_mss: 1460,
            sack: true,
            timestamps: None,
            is_sent_all: false,
            is_received_all: false,
            srtt: None,
        };
        let half = HalfRecord { resumption, snd_max: Seq::new(10), is_fin_sent: false };
        let connection = Connection::between(resumption.remote, resumption.local);
        let age = RecordAge { opened: 1, epoch: 1 };
        let record = ConnectionRecord { age, connection, fixed: half, mobile: half, holds: false, cwnd_segments: 4 };
        let error = |at: usize, value: u8| {
            let mut bytes = record.emit().to_vec();
            bytes[at] = value;
            let end = bytes.len() - CHECKSUM_BYTES;
            let sum = crc32(&bytes[..end]);
            bytes[end..].copy_from_slice(&sum.to_be_bytes());
            ConnectionRecord::parse(&bytes).expect_err("it cannot be")
        };
        let field = |field| RecordError::Field { field };
        assert_eq!(error(0, 1), RecordError::Version { version: 1, expected: ConnectionRecord::VERSION });
        assert_eq!(error(1, 9), RecordError::Kind { kind: 9 });
        assert_eq!(error(3, 1), RecordError::Length { len: 108, expected: 132 });
        assert_eq!(error(24, 224), field("address"));
        // The half towards the fixed host begins at 32.
        assert_eq!(error(36, 0x80), field("end of what was sent"));
        assert_eq!(error(52, 3), field("window shift"));
        assert_eq!(error(54, 1), field("reserved field"));
        assert_eq!(error(56, 1), field("timestamp"));
        assert_eq!(error(67, 1), field("round-trip time"));
        assert_eq!(error(3, SENT_ALL as u8 | SACK as u8), field("FIN"));
    }
}
