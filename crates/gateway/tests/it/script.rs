//! Packet scripts: a router's chain between a fixed and a mobile host. The test plays both.

use core::net::{IpAddr, Ipv4Addr};

use bytes::Bytes;
use holdover_base::Instant;
use holdover_filter::{Chain, Direction, Presence, Verdict};
use holdover_gateway::Mechanisms;
use holdover_wire::{Flags, Packet, Payload, Segment, Seq, TcpOptions};

use crate::support::at_ms;

pub(crate) const FIXED: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
pub(crate) const PHONE: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));

/// `len` bytes from the fixed host.
pub(crate) fn data(seq: u32, len: usize) -> Packet {
    Packet::new(FIXED, PHONE, segment((80, 1000), seq, 1, 500, len))
}

/// An ACK of the mobile host.
pub(crate) fn ack(ack: u32, window: u16) -> Packet {
    Packet::new(PHONE, FIXED, segment((1000, 80), 1, ack, window, 0))
}

pub(crate) fn segment((src_port, dst_port): (u16, u16), seq: u32, ack: u32, window: u16, len: usize) -> Segment {
    Segment {
        src_port,
        dst_port,
        seq: Seq::new(seq),
        ack: Seq::new(ack),
        flags: Flags::ACK,
        window,
        urgent: 0,
        options: TcpOptions::default(),
        payload: Bytes::from(vec![0; len]),
    }
}

pub(crate) fn change(mut packet: Packet, change: impl FnOnce(&mut Segment)) -> Packet {
    match &mut packet.payload {
        Payload::Tcp(segment) => change(segment),
        other => panic!("{other}"),
    }
    packet
}

/// The SYN and SYN-ACK of a connection over which data begin at `first`.
pub(crate) fn opening(first: u32) -> [Packet; 2] {
    let syn = Packet::new(PHONE, FIXED, segment((1000, 80), 0, 0, 500, 0));
    let reply = data(first.wrapping_sub(1), 0);
    [change(syn, |syn| syn.flags = Flags::SYN), change(reply, |reply| reply.flags = Flags::SYN | Flags::ACK)]
}

/// The same with the reserved flag of the IP header.
pub(crate) fn flagged(packet: Packet) -> Packet {
    Packet { reserved_flag: true, ..packet }
}

/// The script's state. Output is written as `to phone 100:200` or `to fixed ack 200 win 500`.
pub(crate) struct Script {
    chain: Chain,
    now: Instant,
}

impl Script {
    pub(crate) fn new(mechanisms: &Mechanisms) -> Self {
        mechanisms.check().expect("mechanisms that can be");
        Self { chain: mechanisms.chain([7; 16]), now: Instant::ZERO }
    }

    /// The phone opens a connection over which data begins at 100. Windows are counted in bytes.
    pub(crate) fn open(&mut self) {
        opening(100).into_iter().for_each(|packet| _ = self.pass(packet));
    }

    /// Advances to `millis`; returns the packets sent at deadlines until then.
    pub(crate) fn at(&mut self, millis: u64) -> Vec<String> {
        let to = at_ms(millis);
        let mut out = Vec::new();
        while let Some(due) = self.chain.poll_timeout().filter(|&due| due <= to) {
            self.now = self.now.max(due);
            self.chain.handle_timeout(self.now);
            out.extend(self.made());
        }
        self.now = to;
        out
    }

    /// Passes a packet; returns the forwarded packets, in order.
    pub(crate) fn pass(&mut self, mut packet: Packet) -> Vec<String> {
        let direction = if packet.dst == PHONE { Direction::Outgoing } else { Direction::Incoming };
        let verdict = self.chain.handle_packet(self.now, direction, &mut packet);
        let passed = (verdict == Verdict::Pass).then(|| print(&packet));
        passed.into_iter().chain(self.made()).collect()
    }

    /// The mobile host arrives or leaves; returns the output.
    pub(crate) fn phone_is(&mut self, presence: Presence) -> Vec<String> {
        self.chain.handle_mobile(self.now, PHONE, presence);
        self.made()
    }

    /// The number of kept packets dropped since the last call.
    pub(crate) fn dropped(&mut self) -> usize {
        core::iter::from_fn(|| self.chain.poll_dropped()).count()
    }

    fn made(&mut self) -> Vec<String> {
        core::iter::from_fn(|| self.chain.poll_transmit()).map(|made| print(&made.packet)).collect()
    }
}

pub(crate) fn print(packet: &Packet) -> String {
    let to = if packet.dst == PHONE { "phone" } else { "fixed" };
    let to = if packet.reserved_flag { format!("{to} flagged") } else { to.to_owned() };
    match packet.tcp() {
        Some(segment) if segment.payload.is_empty() => {
            format!("to {to} {}ack {} win {}", flags(segment), segment.ack, segment.window)
        }
        Some(segment) => format!("to {to} {}:{}", segment.seq, segment.seq + segment.seq_len()),
        None => format!("to {to} no TCP"),
    }
}

fn flags(segment: &Segment) -> &'static str {
    match segment.flags {
        flags if flags.contains(Flags::RST) => "RST ",
        flags if flags.contains(Flags::FIN) => "FIN ",
        _ => "",
    }
}
