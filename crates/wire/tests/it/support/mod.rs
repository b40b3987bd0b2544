//! Generated packets that can be emitted and parsed to the same value.

// Each test program uses a part of this module.
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use bytes::Bytes;
use holdover_wire::{
    AccurateEcn, AccurateEcnOrder, Experimental, ExperimentalId, FastOpen, Flags, Fragment, IcmpEcho, IcmpError,
    Packet, Payload, RareOptions, SackBlocks, Segment, Seq, SeqRange, TcpOptions, Timestamps, Udp, Unreachable,
    UserTimeout,
};
use proptest::collection::vec;
use proptest::option::of;
use proptest::prelude::*;

/// A packet of either family and any payload.
pub(crate) fn packet() -> impl Strategy<Value = Packet> {
    let addresses = |v6: bool| {
        if v6 {
            let address = || any::<u128>().prop_map(|bits| IpAddr::from(Ipv6Addr::from_bits(bits)));
            (address(), address()).boxed()
        } else {
            let address = || any::<u32>().prop_map(|bits| IpAddr::from(Ipv4Addr::from_bits(bits)));
            (address(), address()).boxed()
        }
    };
    any::<bool>()
        .prop_flat_map(move |v6| {
            let reserved_flag = any::<bool>().prop_map(move |set| set && !v6);
            (addresses(v6), any::<u8>(), any::<u8>(), reserved_flag, payload(v6))
        })
        .prop_map(|((src, dst), ttl, traffic_class, reserved_flag, payload)| Packet {
            ttl,
            traffic_class,
            reserved_flag,
            ..Packet::new(src, dst, payload)
        })
}

fn payload(v6: bool) -> impl Strategy<Value = Payload> {
    prop_oneof![
        4 => segment().prop_map(Payload::Tcp),
        2 => (any::<u16>(), any::<u16>(), data(100))
            .prop_map(|(src_port, dst_port, payload)| Payload::Udp(Udp { src_port, dst_port, payload })),
        2 => (unreachable(v6), data(600)).prop_map(|(kind, quote)| Payload::IcmpError(IcmpError { kind, quote })),
        1 => (any::<bool>(), any::<u16>(), any::<u16>(), data(100))
            .prop_map(|(reply, id, seq, payload)| Payload::IcmpEcho(IcmpEcho { reply, id, seq, payload })),
        1 => data(100).prop_map(Payload::Esp),
        1 => fragment(v6).prop_map(Payload::Fragment),
        // Protocols without a value type: IPv4 in IP, GRE, HIP, SCTP, UDP-Lite, "no next header", the last.
        1 => (prop_oneof![Just(4), Just(47), Just(139), Just(132), Just(136), Just(59), Just(255)], data(100))
            .prop_map(|(protocol, payload)| Payload::Other { protocol, payload }),
    ]
}

/// Any segment with options that fit.
pub(crate) fn segment() -> impl Strategy<Value = Segment> {
    let header = (any::<u16>(), any::<u16>(), any::<u32>(), any::<u32>(), 0..0x200_u16, any::<u16>(), any::<u16>());
    (header, options(), data(100)).prop_map(
        |((src_port, dst_port, seq, ack, flags, window, urgent), options, payload)| {
            let flags = Flags::from_bits_truncate(flags);
            Segment {
                src_port,
                dst_port,
                seq: Seq::new(seq),
                ack: Seq::new(ack),
                flags,
                window,
                urgent,
                options,
                payload,
            }
        },
    )
}

fn options() -> impl Strategy<Value = TcpOptions> {
    let sack = vec((any::<u32>(), any::<u32>()), 0..=4).prop_map(|blocks| {
        blocks.into_iter().map(|(start, end)| SeqRange::new(Seq::new(start), Seq::new(end))).collect::<SackBlocks>()
    });
    let experimental = vec((any::<bool>(), any::<u16>(), data(12)), 1..3).prop_map(|options| {
        options
            .into_iter()
            // Fast Open is a separate option, whatever its kind.
            .filter(|(_, id, _)| ExperimentalId::Short(*id) != FastOpen::EXPERIMENT)
            .map(|(second_kind, id, data)| Experimental { second_kind, id: ExperimentalId::Short(id), data })
            .collect::<Box<[_]>>()
    });
    let fast_open = (vec(any::<u8>(), 4..=16), any::<bool>()).prop_map(|(cookie, is_experiment)| {
        FastOpen::new(&cookie).unwrap_or(FastOpen::REQUEST).as_experiment(is_experiment)
    });
    let order = prop_oneof![Just(AccurateEcnOrder::Zero), Just(AccurateEcnOrder::One)];
    let accurate_ecn = (order, vec(0..=AccurateEcn::COUNTER_MASK, 0..=AccurateEcn::MAX_COUNTERS))
        .prop_map(|(order, fields)| AccurateEcn::new(order, &fields).expect("three counters of 24 bits"));
    (
        of(any::<u16>()),
        of(any::<u8>()),
        any::<bool>(),
        of((any::<u32>(), any::<u32>()).prop_map(|(val, ecr)| Timestamps { val, ecr })),
        (sack, of(accurate_ecn)),
        of(any::<u16>().prop_map(UserTimeout::from_wire)),
        of(fast_open),
        of(experimental),
    )
        .prop_map(
            |(
                mss,
                window_scale,
                sack_permitted,
                timestamps,
                (sack, accurate_ecn),
                user_timeout,
                fast_open,
                experimental,
            )| {
                let rare = RareOptions {
                    mss,
                    window_scale,
                    sack_permitted,
                    user_timeout,
                    fast_open: fast_open.map(Box::new),
                    experimental: experimental.filter(|list| !list.is_empty()),
                };
                let mut options = TcpOptions {
                    timestamps,
                    sack,
                    accurate_ecn,
                    rare: rare.into(),
                    unknown: 0,
                    is_signed: false,
                    is_multipath: false,
                };
                while options.wire_len() > Segment::MAX_OPTIONS_LEN {
                    if options.experimental.take().is_none()
                        && options.fast_open.take().is_none()
                        && options.accurate_ecn.take().is_none()
                    {
                        options.sack.truncate(options.sack.len() - 1);
                    }
                }
                options
            },
        )
}

/// The kinds that the family has exactly one type and code for.
fn unreachable(v6: bool) -> impl Strategy<Value = Unreachable> {
    let mtu = if v6 { any::<u32>().boxed() } else { (0..=u32::from(u16::MAX)).boxed() };
    let pointer = if v6 { any::<u32>().boxed() } else { (0..=u32::from(u8::MAX)).boxed() };
    let other = if v6 { prop_oneof![Just(2_u8), 5..=255_u8].boxed() } else { (5..13_u8).boxed() };
    let problem = if v6 { prop_oneof![Just(0_u8), 2..=255_u8].boxed() } else { any::<u8>().boxed() };
    prop_oneof![
        Just(Unreachable::Network),
        Just(Unreachable::Host),
        Just(Unreachable::Protocol),
        Just(Unreachable::Port),
        Just(Unreachable::BadState),
        Just(Unreachable::AdministrativelyProhibited),
        mtu.prop_map(|mtu| Unreachable::PacketTooBig { mtu }),
        any::<u8>().prop_map(|code| Unreachable::TimeExceeded { code }),
        other.prop_map(|code| Unreachable::Other { code }),
        (problem, pointer).prop_map(|(code, pointer)| Unreachable::ParameterProblem { code, pointer }),
    ]
}

fn fragment(v6: bool) -> impl Strategy<Value = Fragment> {
    let id = if v6 { any::<u32>().boxed() } else { (0..=u32::from(u16::MAX)).boxed() };
    (id, 0..0x2000_u16, any::<bool>(), any::<u8>(), data(100)).prop_map(|(id, units, more, protocol, payload)| {
        Fragment { id, offset: 8 * units, more: more || units == 0, protocol, payload }
    })
}

fn data(max: usize) -> impl Strategy<Value = Bytes> {
    vec(any::<u8>(), 0..=max).prop_map(Bytes::from)
}

/// The bytes of `hex`; white space is ignored.
pub(crate) fn unhex(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.chars().filter_map(|c| c.to_digit(16)).map(|digit| digit as u8).collect();
    digits.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

/// The addresses 10.0.0.1 and 10.0.0.2.
pub(crate) const V4: (IpAddr, IpAddr) =
    (IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)), IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2)));
/// The addresses fd00::1 and fd00::2.
pub(crate) const V6: (IpAddr, IpAddr) =
    (IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1)), IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 2)));

/// A segment with every field in use and four bytes of data.
pub(crate) fn full_segment() -> Segment {
    Segment {
        src_port: 40_000,
        dst_port: 80,
        seq: Seq::new(0xffff_fffe),
        ack: Seq::new(77),
        flags: Flags::ACK | Flags::PSH,
        window: 512,
        urgent: 0,
        options: TcpOptions { timestamps: Some(Timestamps { val: 1, ecr: 2 }), ..TcpOptions::default() },
        payload: Bytes::from_static(b"data"),
    }
}
