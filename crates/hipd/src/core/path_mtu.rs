//! The MTU of the paths to peers (RFC 1191, RFC 8201).
//!
//! A packet of a program that does not fit is answered by an ICMP error with the length that does, but not with less than 1,280 bytes,
//! which programs may send over any path: TCP segments are cut into shorter ones before the encryption, as a network card would
//! ([`Core::cut_to`]) if the path leaves them enough payload, and other packets leave in fragments, which are cut after it (RFC 4303
//! section 3.3.4).
//! HIP's own packets are never dropped as too long (RFC 7401 section 5.1.3): routers may fragment them over IPv4, and over IPv6 they leave
//! in fragments that every path carries.

use std::collections::BTreeMap;

use core::net::IpAddr;

use holdover_base::{Duration, Instant};
use holdover_hip::esp::EspSuite;
use holdover_hip::identity::Hit;
use holdover_wire::{IcmpError, Packet, Payload, Quoted, Unreachable};

use super::peer::PeerState;
use super::{Core, Outgoing, PORT, encapsulation};

/// How long a path is believed to be narrow: RFC 1191 section 6.3 and RFC 8201 section 5.3 recommend 10 minutes.
const LEARNED_FOR: Duration = Duration::from_secs(600);
/// The most paths that are remembered: more are known as wide.
const MOST_PATHS: usize = 4096;
/// Every IPv6 path carries packets of this length (RFC 8200 section 5), and programs send such packets for any reported MTU.
const LEAST_INNER: usize = 1280;
/// The shortest MTU that routers are believed to have: over IPv4 that of paths in practice (`net.ipv4.route.min_pmtu` of Linux), over IPv6
/// that of RFC 8200 section 5.
const LEAST_V4: u32 = 552;
const LEAST_V6: u32 = 1280;
/// Fragments of this length are as long as packets can be: routers cut them where they have to.
const UNBOUNDED: usize = u16::MAX as usize;
/// Bytes of headers.
const IPV4: usize = 20;
const IPV6: usize = 40;
const UDP: usize = 8;
/// IP protocol numbers.
const ESP_PROTOCOL: u8 = 50;
const UDP_PROTOCOL: u8 = 17;

/// The MTUs of paths that were reported as narrow, by the address of the peer.
#[derive(Default, Debug)]
pub(super) struct PathMtus {
    paths: BTreeMap<IpAddr, Learned>,
    /// The last one expires then.
    until: Instant,
}

#[derive(Clone, Copy, Debug)]
struct Learned {
    mtu: u32,
    until: Instant,
}

impl PathMtus {
    /// Forgets everything: the paths have changed.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Whether no path is known to be narrow.
    fn is_empty(&self, now: Instant) -> bool {
        self.until <= now
    }

    /// Notes a path's MTU. Returns whether it is less than the one known before.
    fn note(&mut self, now: Instant, address: IpAddr, mtu: u32) -> bool {
        let before = self.get(now, address).map_or(u32::MAX, |known| known as u32);
        if self.paths.len() >= MOST_PATHS && !self.paths.contains_key(&address) {
            self.paths.retain(|_, it| it.until > now);
            if self.paths.len() >= MOST_PATHS {
                return false;
            }
        }
        let mtu = before.min(mtu);
        self.until = now + LEARNED_FOR;
        self.paths.insert(address, Learned { mtu, until: self.until });
        mtu < before
    }

    fn get(&self, now: Instant, address: IpAddr) -> Option<usize> {
        self.paths.get(&address).filter(|it| it.until > now).map(|it| it.mtu as usize)
    }
}

/// How a packet of a program is sent on its path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fit {
    /// It fits, as far as is known.
    Whole,
    /// In fragments of at most this many bytes.
    InFragments(usize),
    /// Not at all: its program got an ICMP error.
    TooLong,
}

impl Core {
    /// The path to an address carries packets up to this length. Does nothing if no peer is there.
    pub fn set_path_mtu(&mut self, now: Instant, address: IpAddr, mtu: u32) {
        let is_peers = || self.peers.keys().any(|&peer| self.is_at(peer, address));
        if self.peer_addresses().contains(&address) || is_peers() {
            self.note_path_mtu(now, address, mtu);
        }
    }

    /// Whether data to a peer may go to this address.
    fn is_at(&self, peer: Hit, address: IpAddr) -> bool {
        self.host.is_expected_at(peer, address) || self.host.has_locator(peer, address)
    }

    /// A router has dropped a packet that exceeds an MTU; 0 if it does not report it. Believed if it quotes ESP that this host sends to an
    /// address of a peer, or forwards, by its SPI, which a host off the path does not know. Returns the MTU that is believed then.
    pub fn handle_too_big(&mut self, now: Instant, quoted: &Quoted, mtu: u32) -> Option<u32> {
        let spi = quoted_spi(quoted)?;
        let mtu = believed(quoted.dst, mtu)?;
        let is_of =
            |peer: Hit| self.host.security_associations(peer).is_some_and(|(outbound, _)| outbound.spi() == spi);
        let is_at = |peer: Hit, state: &PeerState| {
            self.is_at(peer, quoted.dst) || state.addresses.contains(&quoted.dst) || state.servers.contains(&quoted.dst)
        };
        let is_to_peer = || self.peers.iter().any(|(&peer, state)| is_of(peer) && is_at(peer, state));
        let is_own = self.locators.contains(&quoted.src);
        if !is_own || !(is_to_peer() || self.host.relays_to(now, spi, quoted.dst)) {
            return None;
        }
        self.note_path_mtu(now, quoted.dst, mtu);
        Some(mtu)
    }

    fn note_path_mtu(&mut self, now: Instant, address: IpAddr, mtu: u32) {
        if self.path_mtus.note(now, address, mtu) {
            tracing::debug!(%address, mtu, "path MTU");
        }
    }

    /// How a packet for a peer fits its path; if it does not, its program gets an ICMP error with the length that does.
    pub(super) fn fit(&mut self, now: Instant, peer: Hit, packet: &Packet) -> Fit {
        let len = packet.wire_len();
        let Some((mtu, most)) = self.narrow_path(now, peer, len).filter(|(_, most)| len > *most) else {
            return Fit::Whole;
        };
        if len <= LEAST_INNER {
            return Fit::InFragments(mtu);
        }
        self.counters.too_big += 1;
        if matches!(packet.payload, Payload::IcmpError(_)) {
            return Fit::TooLong;
        }
        let mtu = most.max(LEAST_INNER) as u32;
        if let Ok(error) = IcmpError::quoting_packet(Unreachable::PacketTooBig { mtu }, packet) {
            // In IPv4 the kernel drops packets of other interfaces that come from an address of this host.
            self.deliver(Packet::new(packet.dst, IpAddr::V6(self.hit().0), error));
        }
        Fit::TooLong
    }

    /// The MTU of the path of a packet of `len` bytes to a peer, and the longest packet that fits it, if it is known to be narrow.
    fn narrow_path(&mut self, now: Instant, peer: Hit, len: usize) -> Option<(usize, usize)> {
        if self.path_mtus.is_empty(now) {
            return None;
        }
        // Without a path, the reason follows when the packet is to be sent.
        let (dst, suite) = self.host.data_path(now, peer, len)?;
        let mtu = self.path_mtus.get(now, dst)?;
        let in_udp = self.peers.get(&peer).is_some_and(|state| state.port(dst).is_some());
        Some((mtu, longest_inner(mtu, dst.is_ipv6(), in_udp, suite)))
    }

    /// The most bytes behind the IP header that fit the path to a peer, at this address of it for programs, if a packet with `len` such bytes
    /// would leave in fragments.
    pub fn cut_to(&mut self, now: Instant, dst: IpAddr, len: usize) -> Option<usize> {
        let peer = match dst {
            IpAddr::V6(hit) => Hit(hit),
            IpAddr::V4(lsi) => self.translation.as_ref()?.peer_at(lsi)?,
        };
        let len = IPV6 + len;
        let (_, most) = self.narrow_path(now, peer, len)?;
        (most < len && len <= LEAST_INNER).then(|| most.saturating_sub(IPV6))
    }

    /// Sends a packet that is complete: HIP, or ESP of others.
    pub(super) fn push_packet(&mut self, now: Instant, packet: Packet) {
        let len = packet.wire_len();
        let learned = self.path_mtus.get(now, packet.dst);
        let is_long = |least: u32| encapsulation::carries_hip(&packet) && len > least as usize;
        let mtu = match packet.dst {
            IpAddr::V4(_) if is_long(LEAST_V4) => Some(learned.unwrap_or(UNBOUNDED)),
            IpAddr::V6(_) if is_long(LEAST_V6) => Some(LEAST_V6 as usize),
            _ => learned.filter(|&mtu| len > mtu),
        };
        self.network.push_back(match mtu {
            Some(mtu) => Outgoing::Fragmentable(packet, mtu),
            None => Outgoing::Packet(packet),
        });
    }
}

/// The MTU of a path that is believed if a router reports this one.
fn believed(address: IpAddr, mtu: u32) -> Option<u32> {
    match (address, mtu) {
        // RFC 1191 section 5: a smaller length is guessed. Programs never get a report of less than this.
        (IpAddr::V4(_), 0) => Some(LEAST_INNER as u32),
        (IpAddr::V4(_), _) => Some(mtu.max(LEAST_V4)),
        // RFC 8201 section 4: less is not believed.
        (IpAddr::V6(_), _) => (mtu >= LEAST_V6).then_some(mtu),
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
    use bytes::Bytes;
    use holdover_hip::codec::PROTOCOL;
    use holdover_hip::identity::{Algorithm, KeyPair};
    use holdover_wire::Udp;

    use super::*;
    use crate::core::CoreConfig;
    use crate::random::SystemRandom;

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

    /// HIP, or ESP of others, in UDP or not, with this many bytes on the wire: how it is sent.
    fn fragment_len(core: &mut Core, dst: IpAddr, is_hip: bool, in_udp: bool, len: usize) -> Option<usize> {
        let src: IpAddr = if dst.is_ipv4() { [192, 0, 2, 9].into() } else { "2001:db8::9".parse().unwrap() };
        let len = len - if dst.is_ipv4() { IPV4 } else { IPV6 };
        // HIP in UDP begins with zeros, as ESP does not.
        let payload = |len| Bytes::from(vec![u8::from(!is_hip); len]);
        let payload = match (in_udp, is_hip) {
            (true, _) => Payload::Udp(Udp { src_port: PORT, dst_port: 7, payload: payload(len - UDP) }),
            (false, true) => Payload::Other { protocol: PROTOCOL, payload: payload(len) },
            (false, false) => Payload::Esp(payload(len)),
        };
        core.push_packet(Instant::ZERO, Packet::new(src, dst, payload));
        match core.poll_outgoing().unwrap() {
            Outgoing::Packet(_) => None,
            Outgoing::Fragmentable(_, mtu) => Some(mtu),
            Outgoing::Data(_) => panic!("it is complete"),
        }
    }

    // Claim: Long HIP packets are never lost on a narrow path: routers may fragment them over IPv4, and over IPv6 they leave in fragments of
    // 1,280 bytes; both in UDP, too. What a relay forwards leaves in fragments where its path is known to be narrow.
    // Tests: `narrow::long_hip_packets_pass_narrow_links`
    #[test]
    fn long_hip_packets_may_be_fragmented() {
        let keys = KeyPair::generate(Algorithm::Ed25519, &mut SystemRandom);
        let mut core = Core::new(keys, CoreConfig::default(), Box::new(SystemRandom));
        let (v4, v6) = (IpAddr::from([192, 0, 2, 1]), "2001:db8::1".parse().unwrap());
        for in_udp in [false, true] {
            core.path_mtus.clear();
            let mut of = |dst, is_hip, len| fragment_len(&mut core, dst, is_hip, in_udp, len);
            assert_eq!([552, 553, 2000].map(|len| of(v4, true, len)), [None, Some(UNBOUNDED), Some(UNBOUNDED)]);
            assert_eq!([1280, 1281, 2000].map(|len| of(v6, true, len)), [None, Some(1280), Some(1280)]);
            assert_eq!([v4, v6].map(|dst| of(dst, false, 2000)), [None, None]);
            for address in [v4, v6] {
                core.path_mtus.note(Instant::ZERO, address, 1400);
            }
            let mut of = |dst, is_hip, len| fragment_len(&mut core, dst, is_hip, in_udp, len);
            assert_eq!([553, 2000].map(|len| of(v4, true, len)), [Some(1400), Some(1400)]);
            assert_eq!([1280, 1281].map(|len| of(v6, true, len)), [None, Some(1280)]);
            assert_eq!([1400, 1401].map(|len| of(v4, false, len)), [None, Some(1400)]);
            assert_eq!([1400, 1401].map(|len| of(v6, false, len)), [None, Some(1400)]);
        }
    }

    #[test]
    fn what_no_path_carries_is_not_believed() {
        let (v4, v6) = (IpAddr::from([192, 0, 2, 1]), "2001:db8::1".parse().unwrap());
        let of = |address| [0, 60, 552, 1279, 1280].map(|mtu| believed(address, mtu));
        assert_eq!(of(v4), [Some(1280), Some(552), Some(552), Some(1279), Some(1280)]);
        assert_eq!(of(v6), [None, None, None, None, Some(1280)]);
    }

    #[test]
    fn learned_mtus_are_forgotten() {
        let (mut mtus, now) = (PathMtus::default(), Instant::from_secs(1));
        let address = IpAddr::from([192, 0, 2, 1]);
        mtus.note(now, address, 1400);
        mtus.note(now, address, 1450);
        assert_eq!(mtus.get(now, address), Some(1400), "a narrower path is believed first");
        assert_eq!(mtus.get(now + LEARNED_FOR, address), None);
        mtus.note(now + LEARNED_FOR, address, 1450);
        assert_eq!(mtus.get(now + LEARNED_FOR, address), Some(1450));
        assert!(!mtus.is_empty(now + LEARNED_FOR) && mtus.is_empty(now + LEARNED_FOR * 2));
    }

    #[test]
    fn errors_about_many_addresses_take_bounded_memory() {
        let (mut mtus, now) = (PathMtus::default(), Instant::from_secs(1));
        let address = |number: u32| IpAddr::from(number.to_be_bytes());
        for number in 0..3 * MOST_PATHS as u32 {
            mtus.note(now, address(number), 1300);
        }
        assert_eq!(mtus.paths.len(), MOST_PATHS);
        assert!(mtus.note(now, address(7), 1200), "a known path may become narrower");
        assert!(mtus.note(now + LEARNED_FOR, address(u32::MAX), 1300), "former ones make room");
        assert_eq!(mtus.paths.len(), 1);
    }
}
