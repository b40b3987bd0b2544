//! Evaluates the packets that reach hosts: the end of readdressing, and the path of data.

use std::net::IpAddr;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use holdover_testbed::access::{Arrival, Observer};

/// HIP's protocol number, and its port in UDP (RFC 9028), where four zero bytes stand before it.
const HIP: u8 = 139;
const UDP: u8 = 17;
const PORT: u16 = 10_500;
/// UPDATE, and ECHO_RESPONSE_SIGNED (RFC 7401 sections 5.2.20 and 5.3.5).
const UPDATE: u8 = 16;
const ECHO_RESPONSE: u16 = 961;
const HEADER: usize = 40;

/// A packet that has reached a host.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    pub(super) at: Instant,
    pub(super) link: usize,
    pub(super) from: IpAddr,
    /// It answers an echo request: the requesting host has verified the other's address, from which it came.
    verifies: bool,
}

#[cfg(test)]
impl Seen {
    pub(super) const fn data(at: Instant, link: usize, from: IpAddr) -> Self {
        Self { at, link, from, verifies: false }
    }
}

/// The packets that have reached hosts, in order.
#[derive(Clone, Debug, Default)]
pub(super) struct Packets(Arc<Mutex<Vec<Seen>>>);

impl Packets {
    /// An observer of the network that records its arrivals here.
    pub(super) fn observer(&self) -> Observer {
        let packets = self.clone();
        Box::new(move |Arrival { at, link, packet }| {
            if let Some((from, verifies)) = read(&packet) {
                packets.0.lock().unwrap_or_else(PoisonError::into_inner).push(Seen { at, link, from, verifies });
            }
        })
    }

    /// Those from `start` on.
    pub(super) fn since(&self, start: Instant) -> Vec<Seen> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.iter().filter(|seen| seen.at >= start).copied().collect()
    }

    /// When an address was first verified after `start` by the host of these links.
    pub(super) fn verified(&self, address: IpAddr, links: &Range<usize>, start: Instant) -> Option<Instant> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_it = |it: &&Seen| it.verifies && it.at >= start && it.from == address && links.contains(&it.link);
        all.iter().find(is_it).map(|it| it.at)
    }
}

/// The source of a packet, and whether it answers an echo request.
fn read(packet: &[u8]) -> Option<(IpAddr, bool)> {
    let (from, protocol, content) = match packet.first()? >> 4 {
        4 => {
            let from = IpAddr::from(<[u8; 4]>::try_from(packet.get(12..16)?).ok()?);
            (from, packet[9], packet.get(usize::from(packet[0] & 15) * 4..)?)
        }
        _ => (IpAddr::from(<[u8; 16]>::try_from(packet.get(8..24)?).ok()?), *packet.get(6)?, packet.get(40..)?),
    };
    let hip = match protocol {
        HIP => Some(content),
        // From a host behind a translator, by another port to this one (RFC 9028).
        UDP if content.get(8..12).is_some_and(|marker| marker == [0; 4]) => {
            let is_hip = [content.get(..2), content.get(2..4)].contains(&Some(&PORT.to_be_bytes()[..]));
            content.get(12..).filter(|_| is_hip)
        }
        _ => None,
    };
    Some((from, hip.is_some_and(answers)))
}

/// Whether a HIP packet is an UPDATE with an answer to an echo request.
fn answers(hip: &[u8]) -> bool {
    let is_update = hip.get(2).is_some_and(|kind| kind & 0x7f == UPDATE);
    let mut rest = hip.get(HEADER..).filter(|_| is_update).unwrap_or_default();
    while let Some((header, _)) = rest.split_at_checked(4) {
        let number = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
        if number(0) == ECHO_RESPONSE {
            return true;
        }
        // RFC 7401 section 5.2.1: padded to a multiple of eight bytes.
        rest = rest.get((4 + usize::from(number(2))).next_multiple_of(8)..).unwrap_or_default();
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn update(parameters: &[(u16, usize)]) -> Vec<u8> {
        let mut hip = [&[59, 0, UPDATE][..], &[0; HEADER - 3]].concat();
        for &(kind, len) in parameters {
            hip.extend(kind.to_be_bytes());
            hip.extend((len as u16).to_be_bytes());
            hip.extend(vec![7; (4 + len).next_multiple_of(8) - 4]);
        }
        hip
    }

    fn v4(protocol: u8, content: &[u8]) -> Vec<u8> {
        let header = [0x45, 0, 0, 0, 0, 0, 0, 0, 64, protocol, 0, 0, 10, 2, 0, 2, 10, 9, 0, 2];
        [&header[..], content].concat()
    }

    fn v6(protocol: u8, content: &[u8]) -> Vec<u8> {
        let ends: Vec<u8> =
            [2, 9].iter().flat_map(|&net| [0xfd, 0, 0, net, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2]).collect();
        [&[0x60, 0, 0, 0, 0, 0, protocol, 64][..], &ends, content].concat()
    }

    fn udp(ports: [u16; 2], marker: [u8; 4], content: &[u8]) -> Vec<u8> {
        let [from, to] = ports.map(u16::to_be_bytes);
        [&from[..], &to, &[0; 4], &marker, content].concat()
    }

    #[test]
    fn an_answer_is_recognised_behind_other_parameters() {
        let from = "10.2.0.2".parse().unwrap();
        let answer = update(&[(449, 4), (ECHO_RESPONSE, 16)]);
        assert_eq!(read(&v4(HIP, &answer)), Some((from, true)));
        assert_eq!(read(&v4(HIP, &update(&[(385, 4), (897, 16), (61_505, 20)]))), Some((from, false)), "a request");
        assert_eq!(read(&v4(HIP, &update(&[(449, 4)])[..40])), Some((from, false)));
        assert_eq!(read(&v4(6, &answer)), Some((from, false)), "TCP");
        assert_eq!(read(&[]), None);
        assert_eq!(read(&v4(HIP, &answer)[..14]), None);
    }

    #[test]
    fn an_answer_is_recognised_in_udp_and_in_ipv6() {
        let (from, answer) = ("fd00:2::2".parse().unwrap(), update(&[(ECHO_RESPONSE, 16)]));
        assert_eq!(read(&v6(HIP, &answer)), Some((from, true)));
        let read_udp = |ports, marker, content: &[u8]| read(&v6(UDP, &udp(ports, marker, content)));
        // Also behind a translator that has changed the port.
        for ports in [[PORT, PORT], [1, PORT], [PORT, 1]] {
            assert_eq!(read_udp(ports, [0; 4], &answer), Some((from, true)), "{ports:?}");
        }
        assert_eq!(read_udp([1, 2], [0; 4], &answer), Some((from, false)), "other ports");
        assert_eq!(read_udp([PORT, PORT], [0, 0, 0, 9], &answer), Some((from, false)), "ESP");
        let v4_udp = v4(UDP, &udp([PORT, PORT], [0; 4], &answer));
        assert_eq!(read(&v4_udp), Some(("10.2.0.2".parse().unwrap(), true)));
        assert_eq!(read(&v6(UDP, &udp([PORT, PORT], [0; 4], &[]))), Some((from, false)));
    }
}
