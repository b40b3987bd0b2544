//! The shell's observations of packets and connections.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};

use holdover_base::{Duration, Instant};
use holdover_filter::Connection;
use holdover_wire::{Fragment, Packet, Payload};

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

/// The protocol numbers of ICMP and ICMPv6.
const ICMP: [u8; 2] = [1, 58];

/// The protocol number of UDP.
const UDP: u8 = 17;

/// Whether an incoming packet comes from beyond the next hop, and so proves that the path works, as the agent's programs decide it for packets that
/// they leave alone (`note_other` in `crates/agent/bpf/path/notices.h`). Broadcasts, ICMP and DNS answers may be the router's own, and so may a
/// fragment of UDP: the port may be in another one.
pub fn comes_from_beyond(packet: &Packet) -> bool {
    let is_beyond = match &packet.payload {
        Payload::Udp(udp) => udp.src_port != PORT_DNS,
        Payload::Tcp(_) | Payload::Esp(_) | Payload::Encrypted(_) => true,
        Payload::Other { protocol, .. } => !ICMP.contains(protocol),
        Payload::Fragment(Fragment { protocol, .. }) => *protocol != UDP && !ICMP.contains(protocol),
        Payload::IcmpError(_) | Payload::IcmpEcho(_) => false,
    };
    is_beyond && !packet.dst.is_multicast() && packet.dst != IpAddr::V4(Ipv4Addr::BROADCAST)
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

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use holdover_wire::{Segment, Udp};

    use super::*;

    const HOST: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));

    fn counts(dst: IpAddr, payload: Payload) -> bool {
        let mut packet = Packet::new(Ipv4Addr::new(192, 0, 2, 1).into(), dst, Segment::default());
        packet.payload = payload;
        comes_from_beyond(&packet)
    }

    fn udp(src_port: u16) -> Payload {
        Payload::Udp(Udp { src_port, dst_port: 5_000, payload: Bytes::new() })
    }

    fn fragment(protocol: u8, offset: u16) -> Payload {
        Payload::Fragment(Fragment { id: 1, offset, more: offset == 0, protocol, payload: Bytes::from_static(&[0; 8]) })
    }

    /// The cases of `note_other` in `crates/agent/bpf/path/notices.h`.
    #[test]
    fn packets_that_may_be_the_routers_own_do_not_count() {
        let (esp, tcp, sctp) = (50, 6, 132);
        for offset in [0, 8] {
            let counted =
                [esp, tcp, sctp, UDP, ICMP[0], ICMP[1]].map(|protocol| counts(HOST, fragment(protocol, offset)));
            assert_eq!(counted, [true, true, true, false, false, false]);
        }
        assert!(counts(HOST, udp(443)) && !counts(HOST, udp(PORT_DNS)));
        assert!(counts(HOST, Payload::Tcp(Segment::default())));
        let other = |protocol| Payload::Other { protocol, payload: Bytes::new() };
        assert_eq!([esp, sctp, ICMP[0], ICMP[1]].map(|it| counts(HOST, other(it))), [true, true, false, false]);
        for to_all in
            [IpAddr::V4(Ipv4Addr::BROADCAST), Ipv4Addr::new(224, 0, 0, 251).into(), "ff02::1".parse().unwrap()]
        {
            assert!(!counts(to_all, udp(443)), "{to_all}");
        }
    }
}
