//! The messages of Mobile IP as packets.

use core::net::{IpAddr, Ipv4Addr};

use bytes::{BufMut, Bytes, BytesMut};
use holdover_base::Duration;
use holdover_wire::{Packet, Payload, Udp, internet_checksum};

/// The port of Mobile IP (RFC 5944 section 3).
pub const PORT: u16 = 434;

const ICMP: u8 = 1;
const ALL_SYSTEMS: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 1);
const REQUEST: u8 = 1;
const REPLY: u8 = 3;
const REVOCATION: u8 = 7;
/// The types of a router advertisement (RFC 1256) and of the extension that makes it an agent advertisement.
const ROUTER_ADVERTISEMENT: u8 = 9;
const AGENT_EXTENSION: u8 = 16;
/// A foreign agent that requires registration: R and F.
const AGENT_FLAGS: u8 = 0x90;
/// Types of the authentication extensions (RFC 5944 section 3.5), without which a message is not accepted.
const MOBILE_HOME: u8 = 32;
const FOREIGN_HOME: u8 = 34;

/// The lifetime of a registration, in seconds (RFC 5944 section 3.3).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Lifetime(pub u16);

impl Lifetime {
    /// Without end.
    pub const INFINITE: Self = Self(u16::MAX);
    /// In a request: deregistration.
    pub const ZERO: Self = Self(0);

    /// The lifetime of this length, rounded up to seconds and bounded by the longest finite one.
    pub fn of(length: Duration) -> Self {
        let seconds = length.as_nanos().div_ceil(1_000_000_000);
        Self(u16::try_from(seconds).unwrap_or(u16::MAX).min(u16::MAX - 1))
    }

    /// Its length; `None` if it is infinite.
    pub fn length(self) -> Option<Duration> {
        (self != Self::INFINITE).then(|| Duration::from_secs(u64::from(self.0)))
    }
}

/// The code of a reply (RFC 5944 section 3.4).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Code(pub u8);

impl Code {
    /// The registration is accepted.
    pub const ACCEPTED: Self = Self(0);
    /// The home agent denies it for an unspecified reason.
    pub const DENIED: Self = Self(128);
    /// The home agent serves no such node ("administratively prohibited").
    pub const PROHIBITED: Self = Self(129);

    /// Whether the registration is accepted.
    pub fn is_accepted(self) -> bool {
        self == Self::ACCEPTED || self == Self(1)
    }
}

/// A message between a mobile node, a foreign agent and a home agent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Message {
    /// A mobile node requests a binding to a care-of address (RFC 5944 section 3.3).
    Request {
        /// The mobile node's home address.
        home: Ipv4Addr,
        /// Its home agent.
        home_agent: Ipv4Addr,
        /// The care-of address.
        care_of: Ipv4Addr,
        /// The lifetime.
        lifetime: Lifetime,
        /// Matches requests and replies.
        id: u64,
    },
    /// The home agent's answer (section 3.4).
    Reply {
        /// The code.
        code: Code,
        /// The mobile node's home address.
        home: Ipv4Addr,
        /// The home agent.
        home_agent: Ipv4Addr,
        /// For how long the registration is granted.
        lifetime: Lifetime,
        /// As in the request.
        id: u64,
    },
    /// Notifies a foreign agent that a mobile node has left it (RFC 3543 section 3.3).
    Revocation {
        /// The mobile node's home address.
        home: Ipv4Addr,
        /// The home agent.
        home_agent: Ipv4Addr,
        /// The foreign agent's care-of address.
        care_of: Ipv4Addr,
    },
}

impl Message {
    /// The message as a packet from one node to another.
    pub fn packet(self, from: Ipv4Addr, to: Ipv4Addr) -> Packet {
        let udp = Udp { src_port: PORT, dst_port: PORT, payload: self.emit() };
        Packet::new(IpAddr::V4(from), IpAddr::V4(to), udp)
    }

    /// The message in a packet, if there is one.
    pub fn of(packet: &Packet) -> Option<Self> {
        let Payload::Udp(udp) = &packet.payload else { return None };
        if udp.dst_port != PORT {
            return None;
        }
        let bytes = &udp.payload[..];
        let address = |at: usize| bytes.get(at..at + 4)?.try_into().ok().map(|bytes: [u8; 4]| Ipv4Addr::from(bytes));
        let id = |at: usize| bytes.get(at..at + 8)?.try_into().ok().map(u64::from_be_bytes);
        let lifetime = || Some(Lifetime(u16::from_be_bytes(bytes.get(2..4)?.try_into().ok()?)));
        Some(match *bytes.first()? {
            REQUEST => Self::Request {
                home: address(4)?,
                home_agent: address(8)?,
                care_of: address(12)?,
                lifetime: lifetime()?,
                id: id(16)?,
            },
            REPLY => Self::Reply {
                code: Code(*bytes.get(1)?),
                home: address(4)?,
                home_agent: address(8)?,
                lifetime: lifetime()?,
                id: id(12)?,
            },
            REVOCATION => Self::Revocation { home: address(4)?, home_agent: address(8)?, care_of: address(12)? },
            _ => return None,
        })
    }

    fn emit(self) -> Bytes {
        let mut out = BytesMut::with_capacity(64);
        match self {
            Self::Request { home, home_agent, care_of, lifetime, id } => {
                out.put_slice(&[REQUEST, 0]);
                out.put_u16(lifetime.0);
                put_addresses(&mut out, &[home, home_agent, care_of]);
                out.put_u64(id);
                put_authentication(&mut out, MOBILE_HOME);
            }
            Self::Reply { code, home, home_agent, lifetime, id } => {
                out.put_slice(&[REPLY, code.0]);
                out.put_u16(lifetime.0);
                put_addresses(&mut out, &[home, home_agent]);
                out.put_u64(id);
                put_authentication(&mut out, MOBILE_HOME);
            }
            Self::Revocation { home, home_agent, care_of } => {
                out.put_slice(&[REVOCATION, 0, 0, 0]);
                put_addresses(&mut out, &[home, home_agent, care_of]);
                out.put_u32(0);
                put_authentication(&mut out, FOREIGN_HOME);
            }
        }
        out.freeze()
    }
}

/// The content of an agent advertisement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Advertisement {
    /// The agent, and its care-of address.
    pub agent: Ipv4Addr,
    /// The sequence number.
    pub sequence: u16,
    /// The longest lifetime accepted.
    pub lifetime: Lifetime,
}

/// An agent advertisement (RFC 5944 section 2.1) to all systems on the link: a router advertisement (RFC 1256) with an extension.
pub fn advertisement(Advertisement { agent, sequence, lifetime }: Advertisement) -> Packet {
    let mut out = BytesMut::with_capacity(28);
    // One address of two words.
    out.put_slice(&[ROUTER_ADVERTISEMENT, 0, 0, 0, 1, 2]);
    out.put_u16(u16::MAX);
    put_addresses(&mut out, &[agent]);
    out.put_u32(0);
    out.put_slice(&[AGENT_EXTENSION, 10]);
    out.put_u16(sequence);
    out.put_u16(lifetime.0);
    out.put_slice(&[AGENT_FLAGS, 0]);
    put_addresses(&mut out, &[agent]);
    let sum = internet_checksum(&out);
    out[2..4].copy_from_slice(&sum.to_be_bytes());
    let payload = Payload::Other { protocol: ICMP, payload: out.freeze() };
    Packet { ttl: 1, ..Packet::new(IpAddr::V4(agent), IpAddr::V4(ALL_SYSTEMS), payload) }
}

impl Advertisement {
    /// Parses the advertisement of a packet; `None` without one, or with a wrong checksum.
    pub fn of(packet: &Packet) -> Option<Self> {
        let Payload::Other { protocol: ICMP, payload } = &packet.payload else { return None };
        let extension = payload.get(16..28)?;
        if payload[0] != ROUTER_ADVERTISEMENT || extension[0] != AGENT_EXTENSION || internet_checksum(payload) != 0 {
            return None;
        }
        let number = |at: usize| u16::from_be_bytes([extension[at], extension[at + 1]]);
        let agent: [u8; 4] = extension[8..12].try_into().ok()?;
        Some(Self { agent: agent.into(), sequence: number(2), lifetime: Lifetime(number(4)) })
    }
}

fn put_authentication(out: &mut BytesMut, kind: u8) {
    out.put_slice(&[kind, 20]);
    // The first unreserved index of a security association; the authenticator is empty, as no node here forges
    // messages.
    out.put_u32(256);
    out.put_bytes(0, 16);
}

fn put_addresses(out: &mut BytesMut, addresses: &[Ipv4Addr]) {
    for address in addresses {
        out.put_slice(&address.octets());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOME: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 4);
    const HOME_AGENT: Ipv4Addr = Ipv4Addr::new(10, 0, 1, 45);
    const CARE_OF: Ipv4Addr = Ipv4Addr::new(10, 1, 17, 113);

    #[test]
    fn messages_survive_the_wire() {
        let (home, home_agent, care_of) = (HOME, HOME_AGENT, CARE_OF);
        for message in [
            Message::Request { home, home_agent, care_of, lifetime: Lifetime::INFINITE, id: 7 },
            Message::Reply { code: Code::DENIED, home, home_agent, lifetime: Lifetime(30), id: u64::MAX },
            Message::Revocation { home, home_agent, care_of },
        ] {
            let packet = message.packet(HOME, CARE_OF);
            let read = Packet::parse(packet.emit().unwrap()).unwrap();
            assert_eq!(read, packet);
            assert_eq!(Message::of(&read), Some(message));
        }
    }

    #[test]
    fn a_truncated_or_foreign_message_is_none() {
        let (home, home_agent) = (HOME, HOME_AGENT);
        let reply = Message::Reply { code: Code::ACCEPTED, home, home_agent, lifetime: Lifetime::INFINITE, id: 3 };
        let whole = reply.emit();
        for len in 0..20 {
            let udp = Udp { src_port: PORT, dst_port: PORT, payload: whole.slice(..len) };
            assert_eq!(Message::of(&Packet::new(IpAddr::V4(HOME_AGENT), IpAddr::V4(HOME), udp)), None);
        }
        let beacon = advertisement(Advertisement { agent: CARE_OF, sequence: 0, lifetime: Lifetime::INFINITE });
        assert_eq!(Message::of(&beacon), None);
    }

    #[test]
    fn an_advertisement_has_a_valid_checksum_and_length() {
        let advertised = Advertisement { agent: CARE_OF, sequence: 0xabcd, lifetime: Lifetime(300) };
        let packet = advertisement(advertised);
        let Payload::Other { payload, .. } = &packet.payload else { panic!("not ICMP") };
        assert_eq!(internet_checksum(payload), 0, "the sum over a message with its checksum is zero");
        assert_eq!(payload.len(), 28);
        assert_eq!(packet.emit().unwrap().len(), 48);
        assert_eq!(Advertisement::of(&packet), Some(advertised));
        let mut damaged = payload.to_vec();
        damaged[20] ^= 1;
        let payload = Payload::Other { protocol: ICMP, payload: damaged.into() };
        assert_eq!(Advertisement::of(&Packet { payload, ..packet }), None);
    }

    #[test]
    fn lifetimes_are_whole_seconds_and_the_longest_is_infinite() {
        assert_eq!(Lifetime::of(Duration::from_millis(1_001)), Lifetime(2));
        assert_eq!(Lifetime::of(Duration::from_secs(1_000_000)), Lifetime(65_534));
        assert_eq!(Lifetime(2).length(), Some(Duration::from_secs(2)));
        assert_eq!(Lifetime::INFINITE.length(), None);
    }
}
