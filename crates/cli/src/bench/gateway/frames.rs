//! Packets of many TCP connections that have no hosts: made by packet sockets, forwarded by the router, discarded at the other end.

use std::net::IpAddr;

use bytes::Bytes;
use holdover_gatewayd::bench::Baseline;
use holdover_host::packet_socket::PacketSocket;
use holdover_host::{Namespace, Netlink};
use holdover_testbed::gateway::Line;
use holdover_wire::{Flags, MacAddress, Packet, Segment, Seq};

use super::Failed;
use super::streams::MESSAGE_BYTES;

/// Senders at both ends of a line. Every connection carries segments in both directions by turns, each acknowledging the last one.
#[derive(Debug)]
pub(super) struct Frames {
    senders: [Sender; 2],
    flows: u64,
    /// Segments of each direction so far.
    sent: u64,
    _discards: [Baseline; 2],
}

#[derive(Debug)]
struct Sender {
    host: Namespace,
    socket: PacketSocket,
    index: i32,
    frame: Vec<u8>,
}

/// Bytes before the IP header.
const ETHERNET: usize = 14;
/// Bytes before the TCP header.
const TCP: usize = ETHERNET + 20;
/// The first port of the fixed host.
const FIRST_PORT: u16 = 10_000;
/// The mobile host's port of a connection in one direction; those of others are higher.
const ONE_WAY_PORT: u16 = 79;
/// The number of ports of the fixed host that are used with one port of the mobile host.
const PORTS: u64 = 50_000;

impl Frames {
    /// The number of connections.
    pub(super) fn new(line: &Line, flows: u64) -> Result<Self, Failed> {
        let macs = line.macs();
        let down = Sender::new(line.fixed(), macs[0], [Line::FIXED, Line::MOBILE])?;
        let up = Sender::new(line.mobile(), macs[1], [Line::MOBILE, Line::FIXED])?;
        let discards = [line.fixed(), line.mobile()].map(|host| Baseline::discard(host, Line::INTERFACE));
        let [fixed, mobile] = discards;
        Ok(Self { senders: [down, up], flows, sent: 0, _discards: [fixed?, mobile?] })
    }

    /// Sends `segments` in each direction.
    pub(super) fn send(&mut self, segments: u64) -> Result<(), Failed> {
        for _ in 0..segments {
            let (flow, turn) = (self.sent % self.flows, self.sent / self.flows);
            let fixed_port = FIRST_PORT + (flow % PORTS) as u16;
            let mobile_port = 80 + (flow / PORTS) as u16;
            let seq = (turn as u32).wrapping_mul(MESSAGE_BYTES as u32);
            let next = seq.wrapping_add(MESSAGE_BYTES as u32);
            self.senders[0].send([fixed_port, mobile_port], seq, seq)?;
            self.senders[1].send([mobile_port, fixed_port], seq, next)?;
            self.sent += 1;
        }
        Ok(())
    }

    /// Sends `segments` to the mobile host, of a connection on which it acknowledges nothing.
    pub(super) fn send_down(&mut self, segments: u64) -> Result<(), Failed> {
        for _ in 0..segments {
            let seq = (self.sent as u32).wrapping_mul(MESSAGE_BYTES as u32);
            self.senders[0].send([FIRST_PORT, ONE_WAY_PORT], seq, seq)?;
            self.sent += 1;
        }
        Ok(())
    }

    /// Packets that the mobile host has received so far, of any kind.
    pub(super) fn received_by_mobile(&self) -> Result<u64, Failed> {
        packets(&self.senders[1].host, Line::INTERFACE).map(|[received, _]| received)
    }

    /// Packets that both hosts have received so far, of any kind.
    pub(super) fn received(&self) -> Result<u64, Failed> {
        self.senders.iter().map(|sender| packets(&sender.host, Line::INTERFACE).map(|[received, _]| received)).sum()
    }
}

impl Sender {
    fn new(host: &Namespace, [from, to]: [MacAddress; 2], addresses: [[u8; 4]; 2]) -> Result<Self, Failed> {
        let [src, dst] = addresses.map(IpAddr::from);
        let segment = Segment {
            seq: Seq::new(0),
            ack: Seq::new(0),
            flags: Flags::ACK | Flags::PSH,
            window: u16::MAX,
            payload: Bytes::from_static(&[0; MESSAGE_BYTES]),
            ..Segment::default()
        };
        let frame = [&to.0[..], &from.0, &[8, 0], &Packet::new(src, dst, segment).emit()?].concat();
        let (socket, index) = host.enter(|| -> Result<_, Failed> {
            let index = Netlink::open(host)?.link(Line::INTERFACE)?.index;
            Ok((PacketSocket::open(0)?, i32::try_from(index)?))
        })??;
        Ok(Self { host: host.clone(), socket, index, frame })
    }

    /// The TCP checksum is not updated: routers do not check it.
    fn send(&mut self, ports: [u16; 2], seq: u32, ack: u32) -> Result<(), Failed> {
        let tcp = &mut self.frame[TCP..];
        tcp[..2].copy_from_slice(&ports[0].to_be_bytes());
        tcp[2..4].copy_from_slice(&ports[1].to_be_bytes());
        tcp[4..8].copy_from_slice(&seq.to_be_bytes());
        tcp[8..12].copy_from_slice(&ack.to_be_bytes());
        Ok(self.socket.send(self.index, true, &self.frame)?)
    }
}

/// The packets that an interface has received and sent so far.
pub(super) fn packets(host: &Namespace, interface: &str) -> Result<[u64; 2], Failed> {
    let counters = counters(host)?;
    let found = counters.into_iter().find(|(name, _)| name == interface);
    found.map(|(_, packets)| packets).ok_or_else(|| format!("/proc/thread-self/net/dev has no {interface}").into())
}

/// The packets that the gateway's daemon on a router has taken from its device so far.
pub(super) fn diverted(router: &Namespace) -> Result<u64, Failed> {
    Ok(counters(router)?.into_iter().filter(|(name, _)| name.starts_with("hgw")).map(|(_, [_, sent])| sent).sum())
}

/// The packets that each interface has received and sent so far.
fn counters(host: &Namespace) -> Result<Vec<(String, [u64; 2])>, Failed> {
    let text = host.enter(|| std::fs::read_to_string("/proc/thread-self/net/dev"))??;
    let of_line = |line: &str| {
        let (name, values) = line.split_once(':')?;
        // Bytes, packets and six others of those received come before bytes and packets sent.
        let mut values = values.split_whitespace().map(str::parse);
        let (received, sent) = (values.nth(1)?.ok()?, values.nth(7)?.ok()?);
        Some((name.trim().to_owned(), [received, sent]))
    };
    Ok(text.lines().filter_map(of_line).collect())
}
