//! Incoming packets.

use bytes::Bytes;
use core::net::SocketAddr;
use holdover_wire::{
    FastOpen, Flags, IcmpError, Packet, SackBlocks, Segment, Seq, SeqRange, TcpOptions, Timestamps, Unreachable,
};

use super::flow::Flow;
use super::{Runner, Step, Stop};
use crate::ast::{Body, IcmpSpec, PacketSpec, TcpOption, TcpSpec, Tos};

/// The longest payload that a script's length can express.
static PAYLOAD: [u8; 65_536] = [0; 65_536];

impl Runner {
    pub(super) fn inject(&mut self, line: u32, spec: &PacketSpec) -> Step {
        match &spec.body {
            Body::Tcp(tcp) => self.inject_tcp(line, spec, tcp),
            Body::Icmp(icmp) => self.inject_icmp(line, icmp),
            Body::Udp => Err(Stop::Unsupported("UDP".to_owned())),
        }
    }

    fn inject_tcp(&mut self, line: u32, spec: &PacketSpec, tcp: &TcpSpec) -> Step {
        if self.under_test.takes_any_packet() {
            let addresses = self.kernel.addresses();
            let remote = SocketAddr::new(addresses.remote.ip(), self.next_port());
            let mut flow = Flow::new(addresses.local, remote);
            flow.remote_isn = Some(tcp.seq);
            self.under_test = super::UnderTest::Flow;
            self.flow = Some(flow);
        }
        let Some(flow) = &mut self.flow else {
            self.differ(line, "a connection for this packet".to_owned(), "none".to_owned());
            return Err(Stop::Difference);
        };
        if tcp.flags.contains(Flags::SYN) && flow.remote_isn.is_none() {
            flow.remote_isn = Some(tcp.seq);
        }
        let segment = match live_segment(flow, tcp, self.timestamp_echo_scaled) {
            Ok(segment) => segment,
            Err(ecr) => {
                self.differ(
                    line,
                    format!("a timestamp {ecr} to have been sent"),
                    "none that the script calls so".to_owned(),
                );
                return Err(Stop::Difference);
            }
        };
        let mut packet = Packet::new(flow.remote.ip(), flow.local.ip(), segment);
        packet.traffic_class = match spec.ip.tos {
            Some(Tos::Ecn(bits) | Tos::Byte(bits)) => bits,
            _ => 0,
        };
        packet.ttl = spec.ip.ttl.unwrap_or(255);
        self.kernel.receive(&packet);
        self.poll_blocked();
        Ok(())
    }

    fn inject_icmp(&mut self, line: u32, icmp: &IcmpSpec) -> Step {
        let Some(flow) = &self.flow else {
            self.differ(line, "a connection for this packet".to_owned(), "none".to_owned());
            return Err(Stop::Difference);
        };
        let kind = match message_of(icmp, flow.local.is_ipv6()) {
            Some(Icmp::Error(kind)) => kind,
            Some(Icmp::NotForTcp) => return Ok(()),
            None => {
                let code = icmp.code.as_deref().unwrap_or_default();
                return Err(Stop::Unsupported(format!("ICMP {} {code}", icmp.kind)));
            }
        };
        let Some((seq, len)) = icmp.quoted else {
            return Err(Stop::Unsupported("an ICMP error about another protocol".to_owned()));
        };
        let quoted = Segment {
            src_port: flow.local.port(),
            dst_port: flow.remote.port(),
            seq: Seq::new(seq.wrapping_add(flow.local_offset(false))),
            flags: Flags::ACK,
            payload: Bytes::from_static(&PAYLOAD[..usize::from(len)]),
            ..Segment::default()
        };
        let (local, remote) = (flow.local, flow.remote);
        let quoted = Packet::new(local.ip(), remote.ip(), quoted);
        let Ok(error) = IcmpError::quoting_packet(kind, &quoted) else {
            return Err(Stop::Unsupported("an ICMP error about a packet this long".to_owned()));
        };
        let packet = Packet::new(remote.ip(), local.ip(), error.clone());
        self.kernel.receive_icmp(&packet, &error, local, remote);
        self.poll_blocked();
        Ok(())
    }
}

/// The segment on the wire; fails with the echoed timestamp if that was never sent.
fn live_segment(flow: &Flow, tcp: &TcpSpec, echo_scaled: bool) -> Result<Segment, u32> {
    let is_syn = tcp.flags.contains(Flags::SYN);
    let acks = tcp.flags.contains(Flags::ACK);
    let ack_offset = flow.local_offset(is_syn);
    let (src_port, dst_port) = tcp.ports.unwrap_or((0, 0));
    let or = |port: u16, default: u16| if port == 0 { default } else { port };
    let mut segment = Segment {
        src_port: or(src_port, flow.remote.port()),
        dst_port: or(dst_port, flow.local.port()),
        seq: Seq::new(tcp.seq.wrapping_add(flow.remote_offset(is_syn))),
        ack: Seq::new(if acks { tcp.ack.wrapping_add(ack_offset) } else { tcp.ack }),
        flags: tcp.flags,
        window: tcp.window.unwrap_or(0),
        urgent: tcp.urgent,
        options: TcpOptions::default(),
        payload: Bytes::from_static(&PAYLOAD[..usize::from(tcp.len)]),
    };
    for option in tcp.options.iter().flatten() {
        match option {
            TcpOption::Mss(mss) => segment.options.mss = Some(*mss),
            TcpOption::WindowScale(shift) => segment.options.window_scale = Some(*shift),
            TcpOption::SackPermitted => segment.options.sack_permitted = true,
            TcpOption::Sack(blocks) => {
                let live = |edge: u32| Seq::new(edge.wrapping_add(ack_offset));
                let ranges = blocks.iter().map(|&(left, right)| SeqRange::new(live(left), live(right)));
                segment.options.sack = ranges.take(SackBlocks::MAX).collect();
            }
            TcpOption::Timestamps { val, ecr } => {
                let ecr = if acks { flow.live_timestamp(*ecr, echo_scaled).ok_or(*ecr)? } else { *ecr };
                segment.options.timestamps = Some(Timestamps { val: *val, ecr });
            }
            TcpOption::FastOpen(cookie) => take_fast_open(&mut segment.options, cookie, false),
            TcpOption::FastOpenExperimental(cookie) => take_fast_open(&mut segment.options, cookie, true),
            TcpOption::AccurateEcn(option) => segment.options.accurate_ecn = Some(*option),
            TcpOption::Md5(_) => {
                segment.options.unknown += 1;
                segment.options.is_signed = true;
            }
            TcpOption::Nop | TcpOption::End => {}
        }
    }
    Ok(segment)
}

/// A cookie of invalid length is an unknown option.
fn take_fast_open(options: &mut TcpOptions, cookie: &[u8], is_experiment: bool) {
    match FastOpen::new(cookie) {
        Some(option) => options.fast_open = Some(Box::new(option.as_experiment(is_experiment))),
        None => options.unknown += 1,
    }
}

/// The meaning of an ICMP message to TCP.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Icmp {
    Error(Unreachable),
    /// TCP never sees it: a query, an answer, advice to the router, or a code beyond the known ones.
    NotForTcp,
}

/// The ICMP message of packetdrill's names; `None` if there is no such name. Names may be numbers: `type_3`, `code_1`.
fn message_of(icmp: &IcmpSpec, is_ipv6: bool) -> Option<Icmp> {
    let kind = icmp.kind.as_str();
    let numbered = |text: &str, prefix: &str| text.strip_prefix(prefix).and_then(|number| number.parse::<u8>().ok());
    let code = icmp.code.as_deref().unwrap_or("code_0");
    let code = numbered(code, "code_").or_else(|| code_of(kind, code, is_ipv6))?;
    let mtu = icmp.mtu.unwrap_or(0);
    let named = |types: &[(&str, u8)]| types.iter().find(|(name, _)| *name == kind).map(|&(_, number)| number);
    let number = numbered(kind, "type_").or_else(|| named(if is_ipv6 { ICMPV6_TYPES } else { ICMPV4_TYPES }))?;
    Some(if is_ipv6 { icmpv6(number, code, mtu) } else { icmpv4(number, code, mtu) })
}

const ICMPV4_TYPES: &[(&str, u8)] = &[
    ("echo_reply", 0),
    ("unreachable", 3),
    ("source_quench", 4),
    ("redirect", 5),
    ("echo_request", 8),
    ("time_exceeded", 11),
    ("parameter_problem", 12),
    ("timestamp_request", 13),
    ("timestamp_reply", 14),
    ("information_request", 15),
    ("information_reply", 16),
    ("address_mask_request", 17),
    ("address_mask_reply", 18),
];

const ICMPV6_TYPES: &[(&str, u8)] = &[
    ("unreachable", 1),
    ("packet_too_big", 2),
    ("time_exceeded", 3),
    ("parameter_problem", 4),
    ("echo_request", 128),
    ("echo_reply", 129),
    ("mld_query", 130),
    ("mld_report", 131),
    ("mld_reduction", 132),
    ("router_solicitation", 133),
    ("router_advertisement", 134),
    ("neighbor_solicitation", 135),
    ("neighbor_advertisement", 136),
    ("redirect", 137),
];

/// The number of a code of this type.
fn code_of(kind: &str, code: &str, is_ipv6: bool) -> Option<u8> {
    let codes: &[&str] = match (kind, is_ipv6) {
        ("unreachable", false) => &[
            "net_unreachable",
            "host_unreachable",
            "protocol_unreachable",
            "port_unreachable",
            "frag_needed",
            "source_route_failed",
            "net_unknown",
            "host_unknown",
            "source_host_isolated",
            "net_prohibited",
            "host_prohibited",
            "net_unreachable_for_tos",
            "host_unreachable_for_tos",
            "packet_filtered",
            "precedence_violation",
            "precedence_cutoff",
        ],
        ("unreachable", true) => {
            &["no_route", "admin_prohibited", "not_neighbour", "address_unreachable", "port_unreachable"]
        }
        ("time_exceeded", false) => &["exceeded_ttl", "exceeded_frag_time"],
        ("time_exceeded", true) => &["exceeded_hop_limit", "exceeded_frag_time"],
        ("parameter_problem", true) => &["header_field", "unk_next_header", "unk_option"],
        _ => &[],
    };
    codes.iter().position(|name| *name == code).map(|number| number as u8)
}

fn icmpv4(number: u8, code: u8, mtu: u32) -> Icmp {
    Icmp::Error(match (number, code) {
        (3, 0) => Unreachable::Network,
        (3, 1) => Unreachable::Host,
        (3, 2) => Unreachable::Protocol,
        (3, 3) => Unreachable::Port,
        (3, 4) => Unreachable::PacketTooBig { mtu },
        (3, 13) => Unreachable::AdministrativelyProhibited,
        // Linux `icmp_unreach` drops the codes beyond.
        (3, 5..=15) => Unreachable::Other { code },
        (11, 0 | 1) => Unreachable::TimeExceeded { code },
        (12, _) => Unreachable::ParameterProblem { code, pointer: 0 },
        _ => return Icmp::NotForTcp,
    })
}

fn icmpv6(number: u8, code: u8, mtu: u32) -> Icmp {
    Icmp::Error(match (number, code) {
        (1, 0) => Unreachable::Network,
        (1, 1) => Unreachable::AdministrativelyProhibited,
        (1, 3) => Unreachable::Host,
        (1, 4) => Unreachable::Port,
        (1, 2 | 5..) => Unreachable::Other { code },
        (2, _) => Unreachable::PacketTooBig { mtu },
        (3, _) => Unreachable::TimeExceeded { code },
        (4, _) => Unreachable::ParameterProblem { code, pointer: 0 },
        _ => return Icmp::NotForTcp,
    })
}
