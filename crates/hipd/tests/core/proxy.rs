//! Hosts without HIP, and the router that holds their identities.

use std::net::IpAddr;

use bytes::Bytes;
use holdover_base::{Duration, Instant};
use holdover_hip::host::State;
use holdover_hip::identity::{Algorithm, Hit, KeyPair};
use holdover_hipd::core::{CoreConfig, End, Identities, IpVersion, KernelSockets, LsiPrefix, PlainHost, Side};
use holdover_hipd::files::{MAX_HOSTS, Peer, Peers, Via};
use holdover_hipd::random::SystemRandom;
use holdover_wire::{Checksums, Flags, Fragment, IcmpEcho, IcmpError, Packet, Payload, Segment, Seq, Udp, Unreachable};

use crate::world::{address, has_unknown_option, with_unknown_option};

const ROUTER: &str = "192.0.2.1";
const PEER: &str = "198.51.100.2";
/// The addresses of the router's hosts.
const HOSTS: [&[&str]; 3] = [&["192.168.7.10", "fd00:7::10"], &["192.168.7.11"], &["fd00:7::12"]];

/// The peer's programs have sockets of IPv6.
#[derive(Debug)]
struct InV6;

impl KernelSockets for InV6 {
    fn version_of(&mut self, _: u8, _: End, _: End) -> Option<IpVersion> {
        Some(IpVersion::V6)
    }
}

fn keys() -> KeyPair {
    KeyPair::generate(Algorithm::Ed25519, &mut SystemRandom)
}

fn host(name: &str, addresses: &[&str], keys: KeyPair) -> PlainHost {
    PlainHost { name: name.into(), addresses: addresses.iter().map(|it| address(it)).collect(), keys }
}

/// A router or a peer, without peers and hosts.
fn identities(accept_unknown: bool) -> Identities {
    let mut config = CoreConfig { wake: None, hold: None, ..CoreConfig::default() };
    config.host.accept_unknown_peers = accept_unknown;
    let mut identities = Identities::new(keys(), config, Some(LsiPrefix::default()), Box::new(SystemRandom));
    identities.own_mut().use_lsis(LsiPrefix::default(), Box::new(InV6));
    identities
}

fn peers_of_router(peer: Hit, via: Via) -> Peers {
    let mut peers = Peers::default();
    peers.add(Peer::new("peer", peer, vec![address(PEER)], via).unwrap()).unwrap();
    peers
}

/// A router with its hosts, and a peer, over a network that takes no time.
struct Site {
    now: Instant,
    router: Identities,
    peer: Identities,
    hits: Vec<Hit>,
    via: Via,
    /// Packets received at the router, by hosts and by programs, and by the peer's programs.
    got: [Vec<(Side, Packet)>; 2],
    /// Packets between both.
    sent: Vec<Packet>,
}

impl Site {
    fn new(via: Via) -> Self {
        let (mut router, peer) = (identities(false), identities(false));
        let pairs: Vec<KeyPair> = HOSTS.iter().map(|_| keys()).collect();
        let hits: Vec<Hit> = pairs.iter().map(KeyPair::hit).collect();
        let now = Instant::from_secs(1000);
        let hosts = HOSTS.iter().zip(pairs).enumerate();
        let hosts = hosts.map(|(index, (addresses, keys))| host(&format!("h{index}"), addresses, keys)).collect();
        let of_router = peers_of_router(peer.own().hit(), via);
        router.set_hosts(now, hosts, || Box::new(SystemRandom));
        router.set_peers(now, &of_router);
        router.set_locators(now, &[address(ROUTER)]);
        let mut site = Self { now, router, peer, hits, via, got: Default::default(), sent: Vec::new() };
        let of_peer = site.peers_of_peer();
        site.peer.set_peers(now, &of_peer);
        site.peer.set_locators(now, &[address(PEER)]);
        site.run_for(5);
        site
    }

    fn peers_of_peer(&self) -> Peers {
        let mut peers = Peers::default();
        let hits = self.hits.iter().copied().chain([self.router.own().hit()]);
        for (index, hit) in hits.enumerate() {
            peers.add(Peer::new(&format!("p{index}"), hit, vec![address(ROUTER)], self.via).unwrap()).unwrap();
        }
        peers
    }

    fn collect(&mut self) {
        for _ in 0..1000 {
            let mut is_done = true;
            for (index, other) in [(0, 1), (1, 0)] {
                let hosts = [&mut self.router, &mut self.peer];
                let mut packets = Vec::new();
                while let Some(packet) = hosts[index].poll_outgoing() {
                    packets.push(packet.seal().unwrap());
                }
                is_done &= packets.is_empty();
                for packet in packets {
                    self.sent.push(packet.clone());
                    // As bytes, which cross a network.
                    let packet = Packet::parse(packet.emit().unwrap()).unwrap();
                    let hosts = [&mut self.router, &mut self.peer];
                    hosts[other].handle_network(self.now, packet);
                }
                let hosts = [&mut self.router, &mut self.peer];
                self.got[index].extend(core::iter::from_fn(|| hosts[index].poll_inner()));
                while hosts[index].poll_note().is_some() {}
            }
            if is_done {
                return;
            }
        }
        panic!("packets without end");
    }

    fn run_for(&mut self, seconds: u64) {
        let end = self.now + Duration::from_secs(seconds);
        self.collect();
        loop {
            let next = [&self.router, &self.peer].into_iter().filter_map(|it| it.poll_timeout()).min();
            match next.filter(|at| *at <= end) {
                Some(at) => self.now = self.now.max(at),
                None => break self.now = end,
            }
            self.router.handle_timeout(self.now);
            self.peer.handle_timeout(self.now);
            self.collect();
        }
    }

    /// Sends a packet at the router; returns the packets that the peer's programs receive.
    fn sent_to_peer(&mut self, side: Side, packet: &Packet) -> Vec<Packet> {
        let packet = Packet::parse_to_forward(packet.emit().unwrap(), Checksums::Verify).unwrap();
        self.router.handle_inner(self.now, side, packet);
        self.collect();
        self.got[1].drain(..).map(|(_, packet)| packet).collect()
    }

    /// Sends a packet of the peer's programs; returns the packets that the router passes to hosts.
    fn sent_to_hosts(&mut self, packet: &Packet) -> Vec<Packet> {
        let packet = Packet::parse_to_forward(packet.emit().unwrap(), Checksums::Verify).unwrap();
        self.peer.handle_inner(self.now, Side::Programs, packet);
        self.collect();
        let is_valid = |packet: &Packet| Packet::parse(packet.emit().unwrap()).unwrap().payload == packet.payload;
        let got: Vec<(Side, Packet)> = self.got[0].drain(..).collect();
        assert!(got.iter().all(|(side, packet)| *side == Side::Hosts && is_valid(packet)), "{got:?}");
        got.into_iter().map(|(_, packet)| packet).collect()
    }

    /// The peer's LSI at the router, and its HIT.
    fn peer_addresses(&self) -> [IpAddr; 2] {
        let lsi = self.router.own().peer_status()[0].lsi.unwrap();
        [lsi.into(), self.peer.own().hit().0.into()]
    }

    fn hit(&self, index: usize) -> IpAddr {
        self.hits[index].0.into()
    }
}

fn segment(src_port: u16, dst_port: u16, flags: Flags) -> Segment {
    Segment { src_port, dst_port, seq: Seq::new(7), flags, payload: Bytes::from_static(b"data"), ..Segment::default() }
}

fn datagram(src_port: u16, dst_port: u16) -> Udp {
    Udp { src_port, dst_port, payload: Bytes::from_static(b"?") }
}

/// Every host reaches the peer from its own addresses, and gets answers there; the peer sees each one's HIT, and the same ports.
// Claim: Hosts without HIP have an identity each at their proxy: they and peers communicate in both directions, IPv4 and IPv6,
// with the same ports; errors quote what their receiver has sent. Up to 255 hosts; they are added and removed while others go on;
// after a restart each association is opened again.
// Tests: `proxy::the_peer_reaches_hosts_at_their_first_address`, `proxy::errors_quote_what_their_receiver_has_sent`,
// `proxy::unreachable_peers_are_reported_to_hosts`, `proxy::many_hosts`, `proxy::hosts_come_and_go`,
// `proxy::a_router_that_is_started_anew_is_found_again`, `proxy::plain_hosts_and_a_peer_talk_in_both_versions`,
// `proxy::hosts_come_and_go_while_the_proxy_runs`
#[test]
fn each_host_has_its_identity() {
    for via in [Via::Ip, Via::Udp] {
        let mut site = Site::new(via);
        let [lsi, hit] = site.peer_addresses();
        for (index, addresses) in HOSTS.into_iter().enumerate() {
            for own in addresses.iter().map(|it| address(it)) {
                let peer = if own.is_ipv4() { lsi } else { hit };
                // One port for each version: they are one flow otherwise.
                let port = if own.is_ipv4() { 4000 } else { 6000 };
                for payload in [Payload::from(segment(port, 80, Flags::ACK)), datagram(port, 53).into()] {
                    let came = site.sent_to_peer(Side::Hosts, &Packet::new(own, peer, payload.clone()));
                    assert_eq!(came.len(), 1, "{own}");
                    assert_eq!((came[0].src, came[0].dst, &came[0].payload), (site.hit(index), hit, &payload));
                }
                let answer = segment(80, port, Flags::ACK);
                let came = site.sent_to_hosts(&Packet::new(hit, site.hit(index), answer.clone()));
                assert_eq!(came.len(), 1, "{own}");
                assert_eq!((came[0].src, came[0].dst, &came[0].payload), (peer, own, &answer.into()));
            }
        }
        let established = |site: &Site| site.hits.iter().all(|it| site.peer.own().state(*it) == State::Established);
        assert!(established(&site));
        // The router's own programs have its own identity.
        let own = IpAddr::from(site.router.own().hit().0);
        let came = site.sent_to_peer(Side::Programs, &Packet::new(own, hit, datagram(1, 2)));
        assert_eq!(came[0].src, own);
        let counters = site.router.counters();
        assert_eq!((counters.not_authentic, counters.unknown_spi, counters.not_for_hits), (0, 0, 0));
        let in_udp = |packet: &Packet| matches!(packet.payload, Payload::Udp(_));
        assert!(site.sent.iter().all(|packet| in_udp(packet) == (via == Via::Udp)));
    }
}

/// To a peer's LSI and its HIT, and as those of the router's own programs.
#[test]
fn segments_of_hosts_are_cut_to_fit_a_narrow_path() {
    for via in [Via::Ip, Via::Udp] {
        let mut site = Site::new(via);
        let [lsi, hit] = site.peer_addresses();
        let own = IpAddr::from(site.router.own().hit().0);
        let hosts = HOSTS.into_iter().flatten().map(|it| address(it));
        let hosts = hosts.map(|src| (Side::Hosts, src, if src.is_ipv4() { lsi } else { hit }));
        let ends: Vec<_> = [(Side::Programs, own, hit)].into_iter().chain(hosts).collect();
        for &(side, src, dst) in &ends {
            let port = if src.is_ipv4() { 4000 } else { 6000 };
            assert_eq!(site.sent_to_peer(side, &Packet::new(src, dst, datagram(port, 53))).len(), 1, "{src}");
            assert_eq!(site.router.cut_to(site.now, side, (src, dst), 1240), None, "it is not known to be narrow");
        }
        site.router.set_path_mtu(site.now, address(PEER), 900);
        let len = site.router.cut_to(site.now, Side::Programs, (own, hit), 1240).unwrap();
        for &(side, src, dst) in &ends {
            assert_eq!(site.router.cut_to(site.now, side, (src, dst), 1240), Some(len), "{src}");
            assert_eq!(site.router.cut_to(site.now, side, (src, dst), len), None, "{src}");
        }
        let stranger = (address("192.168.7.99"), lsi);
        assert_eq!(site.router.cut_to(site.now, Side::Hosts, stranger, 1240), None);
    }
}

/// TCP options that Holdover does not know pass the proxy in both directions.
#[test]
fn unknown_options_of_hosts_survive() {
    let mut site = Site::new(Via::Ip);
    let [lsi, hit] = site.peer_addresses();
    for (index, addresses) in HOSTS.into_iter().enumerate() {
        for own in addresses.iter().map(|it| address(it)) {
            let (peer, port) = if own.is_ipv4() { (lsi, 4000) } else { (hit, 6000) };
            let sent = with_unknown_option(&Packet::new(own, peer, segment(port, 80, Flags::ACK)));
            assert!(has_unknown_option(&site.sent_to_peer(Side::Hosts, &sent)[0]), "from {own}");
            let sent = with_unknown_option(&Packet::new(hit, site.hit(index), segment(80, port, Flags::ACK)));
            let came = site.sent_to_hosts(&sent);
            assert_eq!((came[0].src, came[0].dst), (peer, own));
            assert!(has_unknown_option(&came[0]), "to {own}");
        }
    }
}

/// Connections of the peer go to a host's first address, or to its only one; echoes too.
#[test]
fn the_peer_reaches_hosts_at_their_first_address() {
    let mut site = Site::new(Via::Ip);
    let [lsi, hit] = site.peer_addresses();
    for (index, addresses) in HOSTS.into_iter().enumerate() {
        let first = address(addresses[0]);
        let as_peer = if first.is_ipv4() { lsi } else { hit };
        let echo = IcmpEcho { reply: false, id: 7, seq: 1, payload: Bytes::from_static(b"ping") };
        for payload in [segment(4000, 80, Flags::SYN).into(), datagram(4000, 53).into(), Payload::from(echo.clone())] {
            let came = site.sent_to_hosts(&Packet::new(hit, site.hit(index), payload));
            assert_eq!((came[0].src, came[0].dst), (as_peer, first));
        }
        let reply = IcmpEcho { reply: true, ..echo };
        let came = site.sent_to_peer(Side::Hosts, &Packet::new(first, as_peer, reply.clone()));
        assert_eq!((came[0].src, &came[0].payload), (site.hit(index), &reply.into()));
        let came = site.sent_to_peer(Side::Hosts, &Packet::new(first, as_peer, segment(80, 4000, Flags::ACK)));
        assert_eq!((came[0].src, came[0].dst), (site.hit(index), hit));
    }
}

/// Errors quote what their receiver has sent, whether the host, a router at its link or this router reports them.
#[test]
fn errors_quote_what_their_receiver_has_sent() {
    let mut site = Site::new(Via::Ip);
    let [lsi, hit] = site.peer_addresses();
    let of_router = (IpAddr::from(site.router.own().lsi().unwrap()), IpAddr::from(site.router.own().hit().0));
    for (index, own) in [(0, "192.168.7.10"), (0, "fd00:7::10"), (1, "192.168.7.11"), (2, "fd00:7::12")] {
        let own = address(own);
        let peer = if own.is_ipv4() { lsi } else { hit };
        // An error of the peer about a packet of the host.
        let sent = Packet::new(own, peer, datagram(4000, 9));
        let came = site.sent_to_peer(Side::Hosts, &sent).remove(0);
        let error = IcmpError::quoting_packet(Unreachable::Port, &came).unwrap();
        let reported = site.sent_to_hosts(&Packet::new(hit, site.hit(index), error)).remove(0);
        assert_eq!((reported.src, reported.dst), (peer, own));
        let Payload::IcmpError(error) = &reported.payload else { panic!("{reported}") };
        let quoted = error.quoted().unwrap();
        assert_eq!((error.kind, quoted.src, quoted.dst), (Unreachable::Port, own, peer));
        assert_eq!(quoted.ports(), Some([4000, 9]));
        // An error of the host, or of a router, about a packet of the peer, on the flow that the host has used.
        let came = site.sent_to_hosts(&Packet::new(hit, site.hit(index), datagram(9, 4000))).remove(0);
        assert_eq!((came.src, came.dst), (peer, own));
        for (side, reporter) in [
            (Side::Hosts, own),
            (Side::Hosts, address(if own.is_ipv4() { "192.168.7.1" } else { "fd00:7::1" })),
            (Side::Programs, if own.is_ipv4() { of_router.0 } else { of_router.1 }),
        ] {
            for kind in [Unreachable::Host, Unreachable::PacketTooBig { mtu: 1300 }, Unreachable::Port] {
                let error = IcmpError::quoting_packet(kind, &came).unwrap();
                let reported = site.sent_to_peer(side, &Packet::new(reporter, peer, error)).remove(0);
                assert_eq!((reported.src, reported.dst), (site.hit(index), hit));
                let Payload::IcmpError(error) = &reported.payload else { panic!("{reported}") };
                let quoted = error.quoted().unwrap();
                assert_eq!((quoted.src, quoted.dst, quoted.ports()), (hit, site.hit(index), Some([9, 4000])));
                let expected = match kind {
                    Unreachable::PacketTooBig { mtu } if own.is_ipv4() => Unreachable::PacketTooBig { mtu: mtu + 20 },
                    kind => kind,
                };
                assert_eq!(error.kind, expected);
            }
        }
        // An error of a guest, whose packets the router forwards, and one of any host about a packet of another peer.
        let error = IcmpError::quoting_packet(Unreachable::Port, &came).unwrap();
        let guest = address(if own.is_ipv4() { "192.168.8.2" } else { "fd00:8::2" });
        assert!(site.sent_to_peer(Side::Programs, &Packet::new(guest, peer, error)).is_empty());
        let other = address(if own.is_ipv4() { "198.18.0.77" } else { "2001:25::77" });
        let error = IcmpError::quoting_packet(Unreachable::Port, &Packet { src: other, ..came }).unwrap();
        let stranger = address(if own.is_ipv4() { "192.168.7.99" } else { "fd00:7::99" });
        assert!(site.sent_to_peer(Side::Hosts, &Packet::new(stranger, peer, error)).is_empty());
    }
}

/// A router that accepts unknown peers does so for itself; its hosts have the peers of the file alone.
#[test]
fn unknown_peers_do_not_reach_hosts() {
    let mut site = Site::new(Via::Ip);
    (site.router, site.peer) = (identities(true), identities(false));
    let pair = keys();
    site.hits = vec![pair.hit()];
    site.router.set_hosts(site.now, vec![host("a", &["192.168.7.1"], pair)], || Box::new(SystemRandom));
    site.router.set_locators(site.now, &[address(ROUTER)]);
    let peers = site.peers_of_peer();
    site.peer.set_peers(site.now, &peers);
    site.peer.set_locators(site.now, &[address(PEER)]);
    site.run_for(30);
    assert_eq!(site.peer.own().state(site.router.own().hit()), State::Established);
    assert_ne!(site.peer.own().state(site.hits[0]), State::Established);
    let hit = site.peer.own().hit().0.into();
    assert!(site.sent_to_hosts(&Packet::new(hit, site.hit(0), datagram(1, 2))).is_empty());
}

/// A host gets an ICMP error for an unreachable peer, and for an LSI that no peer has, from the address to which it has sent.
#[test]
fn unreachable_peers_are_reported_to_hosts() {
    let mut site = Site::new(Via::Ip);
    let stranger = IpAddr::from(keys().hit().0);
    for (own, dst) in [("192.168.7.10", address("198.18.0.77")), ("fd00:7::12", stranger)] {
        let own = address(own);
        assert!(site.sent_to_peer(Side::Hosts, &Packet::new(own, dst, datagram(4000, 9))).is_empty());
        let (side, reported) = site.got[0].pop().expect("an error");
        assert_eq!((side, reported.src, reported.dst), (Side::Hosts, dst, own));
        let Payload::IcmpError(error) = &reported.payload else { panic!("{reported}") };
        assert_eq!((error.kind, error.quoted().unwrap().dst), (Unreachable::Host, dst));
    }
    // Other packets that are not for peers are dropped.
    let before = site.router.counters().not_for_hits;
    for dst in ["203.0.113.9", "2001:db8::1"] {
        let own = address(if dst.contains(':') { "fd00:7::12" } else { "192.168.7.10" });
        assert!(site.sent_to_peer(Side::Hosts, &Packet::new(own, address(dst), datagram(1, 2))).is_empty());
    }
    assert_eq!(site.router.counters().not_for_hits, before + 2);
    assert!(site.got[0].is_empty());
}

/// Packets of others, and packets that cannot be translated, have no effect.
#[test]
fn packets_of_no_host_are_counted_and_dropped() {
    let mut site = Site::new(Via::Ip);
    let [lsi, hit] = site.peer_addresses();
    let of_host = site.hit(0);
    let own = IpAddr::from(site.router.own().hit().0);
    for (src, dst) in
        [(address("192.168.7.99"), lsi), (address("fd00:7::99"), hit), (of_host, hit), (own, hit), (hit, of_host)]
    {
        assert!(site.sent_to_peer(Side::Hosts, &Packet::new(src, dst, datagram(1, 2))).is_empty(), "{src}");
    }
    assert_eq!(site.router.unknown_hosts(), 5);
    // Programs of the router have no other identity than its own.
    for src in [address("192.168.7.10"), address("fd00:7::10"), of_host] {
        let dst = if src.is_ipv4() { lsi } else { hit };
        assert!(site.sent_to_peer(Side::Programs, &Packet::new(src, dst, datagram(1, 2))).is_empty(), "{src}");
    }
    // A fragment's checksum is about addresses that change.
    let fragment = Fragment { id: 7, offset: 0, more: true, protocol: 17, payload: Bytes::from_static(&[0; 64]) };
    for (src, dst) in [(address("192.168.7.10"), lsi), (address("fd00:7::10"), hit)] {
        assert!(site.sent_to_peer(Side::Hosts, &Packet::new(src, dst, Payload::Fragment(fragment.clone()))).is_empty());
    }
}

/// Hosts are added, get other addresses, and are removed: the others' associations stay, and those of a removed host are closed.
#[test]
fn hosts_come_and_go() {
    let mut site = Site::new(Via::Ip);
    let [lsi, hit] = site.peer_addresses();
    let pairs: Vec<KeyPair> = (0..2).map(|_| keys()).collect();
    let [first, second] = [pairs[0].hit(), pairs[1].hit()];
    let again = |site: &mut Site, hosts| {
        let now = site.now;
        site.router.set_hosts(now, hosts, || Box::new(SystemRandom));
        site.run_for(2);
    };
    site.hits = vec![first, second];
    let peers = site.peers_of_peer();
    site.peer.set_peers(site.now, &peers);
    let copies = |pair: &KeyPair| KeyPair::from_secret(Algorithm::Ed25519, &pair.secret()).unwrap();
    again(
        &mut site,
        vec![host("a", &["192.168.7.1"], copies(&pairs[0])), host("b", &["192.168.7.2"], copies(&pairs[1]))],
    );
    let sends =
        |site: &mut Site, own: &str| site.sent_to_peer(Side::Hosts, &Packet::new(address(own), lsi, datagram(1, 2)));
    assert_eq!(sends(&mut site, "192.168.7.1")[0].src, IpAddr::from(first.0));
    assert_eq!(sends(&mut site, "192.168.7.2")[0].src, IpAddr::from(second.0));
    assert!(sends(&mut site, "192.168.7.10").is_empty(), "a former one");
    let names = |site: &Site| site.router.host_status().into_iter().map(|it| it.name).collect::<Vec<_>>();
    assert_eq!(names(&site), ["a", "b"]);
    assert_eq!(site.router.name(first), Some("a"));
    let exchanges = site.router.counters().hip_out;
    // Another address and another name: the association stays.
    again(
        &mut site,
        vec![host("a", &["192.168.7.1"], copies(&pairs[0])), host("c", &["192.168.7.3"], copies(&pairs[1]))],
    );
    assert_eq!(sends(&mut site, "192.168.7.3")[0].src, IpAddr::from(second.0));
    assert!(sends(&mut site, "192.168.7.2").is_empty());
    let came = site.sent_to_hosts(&Packet::new(hit, second.0.into(), datagram(2, 1)));
    assert_eq!(came[0].dst, address("192.168.7.3"));
    assert_eq!((names(&site), site.router.counters().hip_out), (vec!["a".into(), "c".into()], exchanges));
    again(&mut site, vec![host("a", &["192.168.7.1"], copies(&pairs[0]))]);
    assert!(matches!(site.peer.own().state(second), State::Closed | State::Unassociated));
    assert_eq!(site.peer.own().state(first), State::Established);
    assert!(site.router.counters().sealed >= 3, "the counters of the removed one stay");
}

/// As many hosts as there are low bytes of SPIs, each with an association.
#[test]
fn many_hosts() {
    let mut site = Site::new(Via::Udp);
    let [lsi, _] = site.peer_addresses();
    let pairs: Vec<KeyPair> = (0..MAX_HOSTS).map(|_| keys()).collect();
    site.hits = pairs.iter().map(KeyPair::hit).collect();
    let peers = site.peers_of_peer();
    site.peer.set_peers(site.now, &peers);
    let own = |index: usize| format!("192.168.7.{}", index + 1);
    let hosts = pairs.into_iter().enumerate().map(|(index, keys)| host(&format!("h{index}"), &[&own(index)], keys));
    site.router.set_hosts(site.now, hosts.collect(), || Box::new(SystemRandom));
    site.run_for(5);
    for index in 0..MAX_HOSTS {
        let came = site.sent_to_peer(Side::Hosts, &Packet::new(address(&own(index)), lsi, datagram(1, 2)));
        assert_eq!(came.iter().map(|it| it.src).collect::<Vec<_>>(), [site.hit(index)]);
        let hit = site.peer.own().hit().0.into();
        let came = site.sent_to_hosts(&Packet::new(hit, site.hit(index), datagram(2, 1)));
        assert_eq!(came.iter().map(|it| it.dst).collect::<Vec<_>>(), [address(&own(index))]);
    }
    assert_eq!(site.router.counters().unknown_spi, 0);
}

/// A router that is started anew has lost all keys: packets of the peer make each identity open its association again.
#[test]
fn a_router_that_is_started_anew_is_found_again() {
    let mut site = Site::new(Via::Ip);
    let [lsi, hit] = site.peer_addresses();
    let pair = keys();
    let secret = pair.secret();
    let again = || host("a", &["192.168.7.1"], KeyPair::from_secret(Algorithm::Ed25519, &secret).unwrap());
    site.hits = vec![pair.hit()];
    let peers = site.peers_of_peer();
    site.peer.set_peers(site.now, &peers);
    let now = site.now;
    site.router.set_hosts(now, vec![again()], || Box::new(SystemRandom));
    site.run_for(5);
    assert_eq!(site.sent_to_peer(Side::Hosts, &Packet::new(address("192.168.7.1"), lsi, datagram(1, 2))).len(), 1);
    // The process ends without CLOSE.
    site.router = identities(false);
    site.router.set_hosts(now, vec![again()], || Box::new(SystemRandom));
    site.router.set_peers(now, &peers_of_router(site.peer.own().hit(), Via::Ip));
    site.router.set_locators(now, &[address(ROUTER)]);
    // Nothing that it sends by itself arrives.
    let end = now + Duration::from_secs(100);
    while let Some(at) = site.router.poll_timeout().filter(|at| *at <= end) {
        site.now = site.now.max(at);
        site.router.handle_timeout(at);
        while site.router.poll_outgoing().is_some() || site.router.poll_note().is_some() {}
    }
    let to_host = Packet::new(hit, site.hit(0), segment(80, 4000, Flags::ACK));
    assert!(site.sent_to_hosts(&to_host).is_empty());
    assert_eq!(site.router.counters().unknown_spi, 1);
    site.run_for(5);
    assert_eq!(site.sent_to_hosts(&to_host)[0].dst, address("192.168.7.1"));
}
