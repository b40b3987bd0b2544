//! The shell's observations of packets and connections.

use std::collections::BTreeSet;
use std::net::IpAddr;

use holdover_base::{Duration, Instant};
use holdover_filter::Connection;
use holdover_wire::{Packet, Payload};

/// Packet counters since the programs were attached.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Traffic {
    /// TCP packets out.
    pub tcp_sent: u64,
    /// TCP packets in.
    pub tcp_received: u64,
    /// Other incoming packets that prove that the path works; counted only during a silence.
    pub others_received: u64,
}

/// DNS (RFC 1035 section 4.2.1).
const PORT_DNS: u16 = 53;

/// The protocol numbers of ICMP and ICMPv6, of types that are not parsed.
const ICMP: [u8; 2] = [1, 58];

/// Whether an incoming packet other than TCP comes from beyond the next hop, and so proves that the path works. Broadcasts, ICMP and DNS answers
/// may be the router's own; a fragment may be one of these.
pub fn comes_from_beyond(packet: &Packet) -> bool {
    let is_beyond = match &packet.payload {
        Payload::Udp(udp) => udp.src_port != PORT_DNS,
        Payload::Tcp(_) | Payload::Esp(_) | Payload::Encrypted(_) => true,
        Payload::Other { protocol, .. } => !ICMP.contains(protocol),
        Payload::IcmpError(_) | Payload::IcmpEcho(_) | Payload::Fragment(_) => false,
    };
    is_beyond && !packet.dst.is_multicast()
}

/// The state of the connections during a silence.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Survey {
    /// The time of the last incoming TCP packet.
    pub heard_at: Option<Instant>,
    /// The connection with the latest packet that can be probed.
    pub recent: Option<Connection>,
    /// Its round trip, or zero.
    pub round_trip: Duration,
    /// How many connections there are.
    pub connections: u32,
    /// Connections with unacknowledged data.
    pub unanswered: Vec<Unanswered>,
    /// The host's own addresses of the connection with the latest packet in each IP version, and of those with unacknowledged data, a few at
    /// most. A router that has given up resolving them learns them from probes that come from them, and from no others (RFC 4861 section
    /// 7.2.3, RFC 826).
    pub own_addresses: BTreeSet<IpAddr>,
}

/// A connection with unacknowledged data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Unanswered {
    /// Its addresses and ports.
    pub connection: Connection,
    /// The time of its peer's last packet.
    pub heard_at: Option<Instant>,
    /// The round trip, queues included, if known.
    pub round_trip: Option<Duration>,
    /// This host has sent its first unacknowledged data again, and they are short.
    pub is_sent_again: bool,
}
