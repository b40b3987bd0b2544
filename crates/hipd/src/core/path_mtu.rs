//! The MTU of the paths to peers (RFC 1191, RFC 8201): outer packets are not fragmented. A packet of a program that does not fit is answered
//! by an ICMP error with the length that does.

use std::collections::BTreeMap;

use core::net::IpAddr;

use holdover_base::{Duration, Instant};
use holdover_hip::esp::EspSuite;
use holdover_hip::host::Encapsulation;
use holdover_hip::identity::Hit;
use holdover_wire::{IcmpError, Packet, Payload, Quoted, Unreachable};

use super::{Core, PORT};

/// How long a path is believed to be narrow: RFC 1191 section 6.3 and RFC 8201 section 5.3 recommend 10 minutes.
const LEARNED_FOR: Duration = Duration::from_secs(600);
/// Every IPv6 path carries packets of this length (RFC 8200 section 5), and programs send such packets for any reported MTU.
const LEAST_INNER: usize = 1280;
/// The shortest MTU that is believed: that of IPv4 paths in practice (`net.ipv4.route.min_pmtu` of Linux).
const LEAST_OUTER: u32 = 552;
/// Bytes of headers.
const IPV4: usize = 20;
const IPV6: usize = 40;
const UDP: usize = 8;
/// IP protocol numbers.
const ESP_PROTOCOL: u8 = 50;
const UDP_PROTOCOL: u8 = 17;

/// The MTUs of paths that were reported as narrow, by the address of the peer.
#[derive(Default, Debug)]
pub(super) struct PathMtus(BTreeMap<IpAddr, Learned>);

#[derive(Clone, Copy, Debug)]
struct Learned {
    mtu: u32,
    until: Instant,
}

impl PathMtus {
    /// Forgets everything: the paths have changed.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// Notes a path's MTU. Returns whether it is less than the one known before.
    fn note(&mut self, now: Instant, address: IpAddr, mtu: u32) -> bool {
        self.0.retain(|_, it| it.until > now);
        let before = self.0.get(&address).map_or(u32::MAX, |known| known.mtu);
        let mtu = before.min(mtu.max(LEAST_OUTER));
        self.0.insert(address, Learned { mtu, until: now + LEARNED_FOR });
        mtu < before
    }

    fn get(&self, now: Instant, address: IpAddr) -> Option<usize> {
        self.0.get(&address).filter(|it| it.until > now).map(|it| it.mtu as usize)
    }
}

impl Core {
    /// The path to an address carries packets up to this length; 0 if a router does not report it. Does nothing if no peer is there.
    pub fn set_path_mtu(&mut self, now: Instant, address: IpAddr, mtu: u32) {
        // RFC 1191 section 5: a smaller length is guessed. Programs never get a report of less than this.
        let mtu = if mtu == 0 { LEAST_INNER as u32 } else { mtu };
        let is_peers = || self.peers.keys().any(|&peer| self.host.is_expected_at(peer, address));
        if (self.peer_addresses().contains(&address) || is_peers()) && self.path_mtus.note(now, address, mtu) {
            tracing::debug!(%address, mtu, "path MTU");
        }
    }

    /// A router has dropped a packet that exceeds an MTU. Believed if it quotes ESP of this host by its SPI, which a host off the path does
    /// not know. Returns whether it is.
    pub fn handle_too_big(&mut self, now: Instant, quoted: &Quoted, mtu: u32) -> bool {
        let Some(spi) = quoted_spi(quoted) else { return false };
        let is_of =
            |peer: Hit| self.host.security_associations(peer).is_some_and(|(outbound, _)| outbound.spi() == spi);
        let is_own = self.locators.contains(&quoted.src) && self.peers.keys().any(|&peer| is_of(peer));
        if is_own {
            self.set_path_mtu(now, quoted.dst, mtu);
        }
        is_own
    }

    /// Whether a packet for a peer fits the path; if not, its program gets an ICMP error with the length that does.
    pub(super) fn fits(&mut self, now: Instant, peer: Hit, packet: &Packet, outer: &Encapsulation) -> bool {
        let Some(mtu) = self.path_mtus.get(now, outer.dst) else { return true };
        let in_udp = self.peers.get(&peer).is_some_and(|state| state.port(outer.dst).is_some());
        let most = longest_inner(mtu, outer.dst.is_ipv6(), in_udp, outer.sealing.suite());
        let len = packet.wire_len();
        // Programs may send packets of 1,280 bytes over any path: these are sent, also if they are lost.
        if len <= most.max(LEAST_INNER) {
            return true;
        }
        self.counters.too_big += 1;
        if matches!(packet.payload, Payload::IcmpError(_)) {
            return false;
        }
        let mtu = most.max(LEAST_INNER) as u32;
        if let Ok(error) = IcmpError::quoting_packet(Unreachable::PacketTooBig { mtu }, packet) {
            // In IPv4 the kernel drops packets of other interfaces that come from an address of this host.
            self.deliver(Packet::new(packet.dst, IpAddr::V6(self.hit().0), error));
        }
        false
    }
}

/// The longest packet between HITs whose outer packet has at most `mtu` bytes. Its IPv6 header is not sent (BEET mode).
const fn longest_inner(mtu: usize, is_ipv6: bool, in_udp: bool, suite: EspSuite) -> usize {
    let headers = if is_ipv6 { IPV6 } else { IPV4 } + if in_udp { UDP } else { 0 };
    IPV6 + suite.payload_within(mtu.saturating_sub(headers))
}

/// The SPI of a quoted ESP packet, in UDP or not.
fn quoted_spi(quoted: &Quoted) -> Option<u32> {
    let esp = match quoted.protocol {
        ESP_PROTOCOL => &quoted.payload[..],
        UDP_PROTOCOL if quoted.ports().is_some_and(|[src, _]| src == PORT) => quoted.payload.get(UDP..)?,
        _ => return None,
    };
    esp.first_chunk().map(|spi| u32::from_be_bytes(*spi)).filter(|spi| *spi != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_inner_packet_fits_and_the_next_one_does_not() {
        let suites = [EspSuite::NullHmacSha256, EspSuite::Aes128CbcHmacSha256, EspSuite::Aes128Gcm16];
        for suite in suites {
            for (is_ipv6, in_udp) in [(false, false), (false, true), (true, false), (true, true)] {
                for mtu in 1300..1500 {
                    let outer = |inner: usize| {
                        let headers = if is_ipv6 { 40 } else { 20 } + if in_udp { 8 } else { 0 };
                        headers + suite.sealed_len(inner - 40)
                    };
                    let most = longest_inner(mtu, is_ipv6, in_udp, suite);
                    assert!(outer(most) <= mtu && outer(most + 1) > mtu, "{suite:?} {is_ipv6} {in_udp} {mtu}: {most}");
                }
            }
        }
        assert_eq!(longest_inner(20, true, true, EspSuite::Aes128Gcm16), 40);
    }

    #[test]
    fn learned_mtus_are_forgotten() {
        let (mut mtus, now) = (PathMtus::default(), Instant::from_secs(1));
        let address = IpAddr::from([192, 0, 2, 1]);
        mtus.note(now, address, 1400);
        mtus.note(now, address, 1450);
        assert_eq!(mtus.get(now, address), Some(1400), "a narrower path is believed first");
        mtus.note(now, address, 60);
        assert_eq!(mtus.get(now, address), Some(552));
        assert_eq!(mtus.get(now + LEARNED_FOR, address), None);
        mtus.note(now + LEARNED_FOR, address, 1450);
        assert_eq!(mtus.get(now + LEARNED_FOR, address), Some(1450));
    }
}
