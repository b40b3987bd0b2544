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
        let Some(kind) = unreachable_of(icmp, flow.local.is_ipv6()) else {
            return Err(Stop::Unsupported(format!("ICMP {} {}", icmp.kind, icmp.code.as_deref().unwrap_or_default())));
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

/// The ICMP error for packetdrill's name.
fn unreachable_of(icmp: &IcmpSpec, is_ipv6: bool) -> Option<Unreachable> {
    let code = icmp.code.as_deref().unwrap_or("");
    Some(match (icmp.kind.as_str(), code) {
        ("unreachable", "frag_needed") => Unreachable::PacketTooBig { mtu: icmp.mtu.unwrap_or(0) },
        ("packet_too_big", _) if is_ipv6 => Unreachable::PacketTooBig { mtu: icmp.mtu.unwrap_or(0) },
        ("unreachable", "net_unreachable" | "no_route" | "") => Unreachable::Network,
        ("unreachable", "host_unreachable" | "address_unreachable") => Unreachable::Host,
        ("unreachable", "protocol_unreachable") => Unreachable::Protocol,
        ("unreachable", "port_unreachable") => Unreachable::Port,
        ("unreachable", "packet_filtered" | "admin_prohibited") => Unreachable::AdministrativelyProhibited,
        ("unreachable", "source_route_failed") => Unreachable::Other { code: 5 },
        ("unreachable", "net_unknown") => Unreachable::Other { code: 6 },
        ("unreachable", "host_unknown") => Unreachable::Other { code: 7 },
        ("unreachable", "source_host_isolated") => Unreachable::Other { code: 8 },
        ("unreachable", "net_prohibited") => Unreachable::Other { code: 9 },
        ("unreachable", "host_prohibited") => Unreachable::Other { code: 10 },
        ("unreachable", "net_unreachable_for_tos") => Unreachable::Other { code: 11 },
        ("unreachable", "host_unreachable_for_tos") => Unreachable::Other { code: 12 },
        ("unreachable", "precedence_violation") => Unreachable::Other { code: 14 },
        ("unreachable", "precedence_cutoff") => Unreachable::Other { code: 15 },
        ("time_exceeded", "exceeded_frag_time") => Unreachable::TimeExceeded { code: 1 },
        ("time_exceeded", _) => Unreachable::TimeExceeded { code: 0 },
        ("parameter_problem", _) => Unreachable::ParameterProblem { code: 0, pointer: 0 },
        _ => return None,
    })
}
