//! Hosts without HIP talk to a peer of their router, which is their proxy.

use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use bytes::Bytes;
use holdover_testbed::{Namespace, Netlink};
use holdover_wire::{Flags, IcmpError, Packet, Payload, Segment, Udp, Unreachable};
use socket2::{Domain, Protocol, Socket, Type};

use crate::Test;
use crate::daemon::{PATIENCE, Place};
use crate::network::{LTE, LTE_V6, ROUND_TRIP, WIFI};
use crate::plain::{CAMERA, GUEST, LAN, PRINTER, Site, add_host, with_address};
use crate::talk::echoes;
use crate::transfer::{Transfer, Way, first_after};

pub(crate) const TESTS: &[Test] = &[
    ("plain_hosts_and_a_peer_talk_in_both_versions", plain_hosts_and_a_peer_talk_in_both_versions),
    ("connections_of_plain_hosts_survive_moves_of_the_router", connections_of_plain_hosts_survive_moves_of_the_router),
    ("connections_of_plain_hosts_are_woken", connections_of_plain_hosts_are_woken),
    ("strangers_get_nothing", strangers_get_nothing),
    (
        "strangers_do_not_send_with_the_identity_of_the_host_that_forwards",
        strangers_do_not_send_with_the_identity_of_the_host_that_forwards,
    ),
    ("nothing_for_peers_leaves_in_the_clear_after_a_kill", nothing_for_peers_leaves_in_the_clear_after_a_kill),
    ("peers_talk_with_the_rule_of_the_local_table_moved", peers_talk_with_the_rule_of_the_local_table_moved),
    ("damaged_packets_do_not_reach_peers", damaged_packets_do_not_reach_peers),
    ("errors_of_guests_do_not_reach_peers", errors_of_guests_do_not_reach_peers),
    ("packets_for_hosts_without_a_route_are_dropped", packets_for_hosts_without_a_route_are_dropped),
    ("connections_survive_a_killed_and_restarted_proxy", connections_survive_a_killed_and_restarted_proxy),
    ("hosts_come_and_go_while_the_proxy_runs", hosts_come_and_go_while_the_proxy_runs),
];

const ANY: [IpAddr; 2] = [IpAddr::V4(Ipv4Addr::UNSPECIFIED), IpAddr::V6(Ipv6Addr::UNSPECIFIED)];

/// The address of a version.
fn any_for(address: IpAddr) -> IpAddr {
    ANY[usize::from(address.is_ipv6())]
}

fn plain_hosts_and_a_peer_talk_in_both_versions() {
    let place = Place::new("proxy-talk");
    let capture = place.0.join("router.pcapng");
    let site = Site::new(Some(&capture));
    // One has both versions, the other IPv4 alone.
    let hosts: [(&str, &[&str]); 2] = [(PRINTER.0, &PRINTER.1), (CAMERA.0, &CAMERA.1[..1])];
    let [router, server] = site.daemons(&place, &hosts, ["", ""]);
    let (lsi, hit) = (IpAddr::from(router.lsi_of("server")), IpAddr::from(server.hit()));
    let peer = &site.network.server;
    for (client, address) in [(&site.printer, lsi), (&site.printer, hit), (&site.camera, lsi)] {
        for listen in ANY {
            echoes(client, peer, listen, address);
        }
        // The refusal of the peer's kernel comes in the host's version.
        let refused = client.enter(|| TcpStream::connect_timeout(&(address, 9).into(), PATIENCE)).unwrap();
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::ConnectionRefused);
        assert_eq!(error_of_datagram(client, (address, 9).into()), ErrorKind::ConnectionRefused);
    }
    // The peer opens: to the first address of the one, and to the only address of the other.
    for (host, name) in [(&site.printer, PRINTER.0), (&site.camera, CAMERA.0)] {
        for address in [IpAddr::from(router.hit_of(name)), server.lsi_of(name).into()] {
            echoes(peer, host, ANY[0], address);
            assert_eq!(error_of_datagram(peer, (address, 9).into()), ErrorKind::ConnectionRefused, "{name}");
        }
    }
    assert!(server.ok("ping printer --count 2").contains("2 of 2 answered"));
    assert!(server.ok("ping camera --count 2").contains("2 of 2 answered"));
    // The router has an identity of its own.
    assert!(router.ok("ping server --count 1").contains("1 of 1 answered"));
    // The router's kernel does not find a host: the peer's TCP learns that.
    site.unplug(&site.camera);
    for address in [IpAddr::from(router.hit_of(CAMERA.0)), server.lsi_of(CAMERA.0).into()] {
        let refused = peer.enter(|| TcpStream::connect_timeout(&(address, 80).into(), PATIENCE)).unwrap();
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::HostUnreachable, "{address}");
    }
    let text = router.ok("status");
    assert!(text.contains("proxy for hosts behind lan, on hip0-lan") && text.contains("printer"), "{text}");
    let status = router.status();
    assert_eq!(status["proxy"]["unknown_hosts"], 0, "{status}");
    drop((router, server));
    drop(site);
    nothing_left_in_the_clear(&capture);
}

/// The error that a datagram causes.
fn error_of_datagram(from: &Namespace, to: SocketAddr) -> ErrorKind {
    let socket = from.enter(|| UdpSocket::bind((any_for(to.ip()), 0)).unwrap()).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket.connect(to).unwrap();
    socket.send(b"?").unwrap();
    socket.recv(&mut [0; 9]).unwrap_err().kind()
}

/// No packet of a host, or of an identity, passed the network between router and server.
fn nothing_left_in_the_clear(capture: &Path) {
    let (mut rest, mut count) = (&std::fs::read(capture).unwrap()[..], 0);
    let number = |bytes: &[u8], at: usize| u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
    while !rest.is_empty() {
        let (block, next) = rest.split_at(number(rest, 4));
        rest = next;
        // An enhanced packet block: the data behind interface, time and two lengths.
        if number(block, 0) != 6 {
            continue;
        }
        let data = block[28..28 + number(block, 20)].to_vec();
        let Ok(packet) = Packet::parse(data.into()) else { continue };
        count += 1;
        for address in [packet.src, packet.dst].map(|address| address.to_string()) {
            let is_inner = ["192.168.", "fd00:7:", "fd00:8:", "198.18.", "198.19.", "2001:25:"];
            assert!(!is_inner.iter().any(|prefix| address.starts_with(prefix)), "{packet}");
        }
    }
    assert!(count > 20, "{count} packets");
}

/// Both directions and versions at once, from two hosts, while the router goes from network to network.
// Claim: TCP connections of two hosts without HIP continue, byte-exact, in both directions and IP versions, while their router
// moves from network to network, and from IPv4 to IPv6 and back; after 5 s without an address they are woken.
// Tests: `proxy::connections_of_plain_hosts_are_woken`
fn connections_of_plain_hosts_survive_moves_of_the_router() {
    let (place, site) = (Place::new("proxy-moves"), Site::new(None));
    let hosts: [(&str, &[&str]); 2] = [(PRINTER.0, &PRINTER.1), (CAMERA.0, &CAMERA.1)];
    let [router, server] = site.daemons(&place, &hosts, ["", ""]);
    let (lsi, hit) = (IpAddr::from(router.lsi_of("server")), IpAddr::from(server.hit()));
    let flows = [
        (&site.printer, lsi, Way::FromMobile),
        (&site.printer, hit, Way::ToMobile),
        (&site.camera, lsi, Way::ToMobile),
        (&site.camera, hit, Way::FromMobile),
    ];
    let peer = &site.network.server;
    let transfers = flows.map(|(host, address, way)| Transfer::between(way, host, address, peer, (ANY[1], 0)));
    let go_on = || transfers.iter().for_each(|transfer| transfer.wait_for_more(150_000));
    go_on();
    for (from, to) in [(WIFI, LTE), (LTE, WIFI), (WIFI, LTE_V6), (LTE_V6, WIFI)] {
        site.network.detach(&from);
        std::thread::sleep(Duration::from_millis(300));
        site.network.attach(&to);
        go_on();
        let moved = |peer: &serde_json::Value| peer["addresses"][0] == to.address;
        for name in ["router", PRINTER.0, CAMERA.0] {
            server.wait_for_peer(name, "found at the router's new address", moved);
        }
    }
    for transfer in transfers {
        transfer.end();
    }
}

/// After a break of some seconds, TCP at either end would wait for its backed-off timer about as long again.
fn connections_of_plain_hosts_are_woken() {
    for (is_v4, way) in [(true, Way::ToMobile), (false, Way::FromMobile), (true, Way::FromMobile)] {
        let (place, site) = (Place::new(&format!("proxy-wake-{is_v4}-{way:?}")), Site::new(None));
        let [router, server] = site.daemons(&place, &[(PRINTER.0, &PRINTER.1)], ["", ""]);
        let address = if is_v4 { IpAddr::from(router.lsi_of("server")) } else { server.hit().into() };
        let transfer = Transfer::between(way, &site.printer, address, &site.network.server, (ANY[1], 0));
        transfer.wait_for_more(1_000_000);
        site.network.detach(&WIFI);
        std::thread::sleep(Duration::from_secs(5));
        let moved_at = Instant::now();
        site.network.attach(&LTE);
        transfer.wait_for_more(500_000);
        let resumed = first_after(&transfer.end(), moved_at).saturating_duration_since(moved_at);
        eprintln!("IPv4 {is_v4}, {way:?}: data {resumed:?} after the new address");
        // A readdressing and a resumption of 1.5 round trips each, beside other tests.
        assert!(resumed < ROUND_TRIP * 3 + Duration::from_millis(500), "{way:?}: {resumed:?}");
        assert!(router.status()["counters"]["woken"].as_u64() > Some(0));
    }
}

/// How long a datagram that must not arrive is waited for.
const SILENCE: Duration = Duration::from_millis(700);

/// Whether a datagram arrives in time, sent from an address that need not be the sender's own.
fn arrives(from: &Namespace, src: IpAddr, to: &Namespace, dst: IpAddr, within: Duration) -> bool {
    // In IPv6 it takes datagrams of IPv4, too.
    let receiver = to.enter(|| UdpSocket::bind((ANY[1], 0)).unwrap()).unwrap();
    receiver.set_read_timeout(Some(within)).unwrap();
    let port = receiver.local_addr().unwrap().port();
    let sender = from.enter(|| UdpSocket::bind((src, 0)).unwrap()).unwrap();
    // The kernel may have no route.
    let _ = sender.send_to(b"hello", (dst, port));
    receiver.recv(&mut [0; 9]).is_ok()
}

/// A host without an identity; one at another interface that forges the address of a host, of a peer, or of the router's identity.
// Claim: A host without an identity, and a host at another interface with the address of a host, of a peer or of the router's
// identity, reaches neither peer nor host; nor do a guest's ICMP errors about a host's packets. Unknown peers reach no host.
// Tests: `proxy::errors_of_guests_do_not_reach_peers`, `proxy::errors_quote_what_their_receiver_has_sent`,
// `proxy::unknown_peers_do_not_reach_hosts`, `proxy::packets_of_no_host_are_counted_and_dropped`
fn strangers_get_nothing() {
    let (place, site) = (Place::new("proxy-strangers"), Site::new(None));
    let [router, server] = site.daemons(&place, &[(PRINTER.0, &PRINTER.1)], ["", ""]);
    let peers = [IpAddr::from(router.lsi_of("server")), server.hit().into()];
    let of_router = [IpAddr::from([198, 18, 0, 1]), router.hit().into()];
    let printer = PRINTER.1.map(|address| address.parse::<IpAddr>().unwrap());
    let (peer, guest) = (&site.network.server, &site.guest);
    let unknown = || router.status()["proxy"]["unknown_hosts"].as_u64().unwrap();
    for version in [0, 1] {
        let any = ANY[version];
        let to_peer = |from: &Namespace, src, within| arrives(from, src, peer, peers[version], within);
        let to_host = |from: &Namespace, src, within| arrives(from, src, &site.printer, printer[version], within);
        assert!(to_peer(&site.printer, printer[version], PATIENCE), "the host itself, version {version}");
        assert!(to_host(guest, any, PATIENCE), "the router forwards for guests");
        let before = unknown();
        assert!(!to_peer(&site.other, any, SILENCE), "a host without an identity");
        assert!(unknown() > before);
        let before = unknown();
        assert!(!to_peer(guest, any, SILENCE), "a guest");
        let forged = printer[version];
        assert!(!with_address(guest, forged, || to_peer(guest, forged, SILENCE)), "a guest as the host");
        let forged = of_router[version];
        let (peer_heard, host_heard) =
            with_address(guest, forged, || (to_peer(guest, forged, SILENCE), to_host(guest, forged, SILENCE)));
        assert!(!peer_heard && !host_heard, "a guest as the router: {peer_heard} {host_heard}");
        let forged = peers[version];
        assert!(!with_address(guest, forged, || to_host(guest, forged, SILENCE)), "a guest as the peer");
        assert_eq!(unknown(), before, "nothing of the guest has reached the proxy");
    }
    // A guest that has the host's address does not receive the host's packets.
    let hit = IpAddr::from(router.hit_of(PRINTER.0));
    with_address(guest, printer[0], || {
        assert!(arrives(peer, ANY[1], &site.printer, hit, PATIENCE));
        assert!(!arrives(peer, ANY[1], guest, hit, SILENCE));
    });
}

/// Sends a packet of IPv4 with its own header, as it is.
fn send_raw(from: &Namespace, dst: Ipv4Addr, bytes: &[u8]) {
    let raw = Some(Protocol::from(libc::IPPROTO_RAW));
    let socket = from.enter(|| Socket::new(Domain::IPV4, Type::RAW, raw).unwrap()).unwrap();
    socket.send_to(bytes, &SocketAddr::from((dst, 0)).into()).unwrap();
}

/// The proxy computes checksums anew: it verifies them first.
fn damaged_packets_do_not_reach_peers() {
    let (place, site) = (Place::new("proxy-damage"), Site::new(None));
    let [router, server] = site.daemons(&place, &[(PRINTER.0, &PRINTER.1[..1])], ["", ""]);
    let lsi = router.lsi_of("server");
    let peer = site.network.server.enter(|| UdpSocket::bind((ANY[1], 0)).unwrap()).unwrap();
    let listener = site.network.server.enter(|| TcpListener::bind((ANY[1], 0)).unwrap()).unwrap();
    listener.set_nonblocking(true).unwrap();
    let src = PRINTER.1[0].parse().unwrap();
    assert!(arrives(&site.printer, src, &site.network.server, lsi.into(), PATIENCE));
    let not_read = || router.status()["counters"]["not_read"].as_u64().unwrap();
    let datagram =
        Udp { src_port: 4000, dst_port: peer.local_addr().unwrap().port(), payload: Bytes::from_static(b"hello") };
    let dst_port = listener.local_addr().unwrap().port();
    let syn = Segment { src_port: 4000, dst_port, flags: Flags::SYN, ..Segment::default() };
    for payload in [Payload::from(datagram), syn.into()] {
        let is_udp = matches!(payload, Payload::Udp(_));
        let bytes = Packet::new(src, lsi.into(), payload).emit().unwrap();
        let mut damaged = bytes.to_vec();
        // The last byte of the datagram's data; of a SYN, the urgent pointer's.
        *damaged.last_mut().unwrap() ^= 1;
        let before = not_read();
        let received = || server.peer_of(PRINTER.0)["packets_in"].as_u64().unwrap();
        let arrived = received();
        send_raw(&site.printer, lsi, &damaged);
        peer.set_read_timeout(Some(SILENCE)).unwrap();
        assert!(peer.recv(&mut [0; 9]).is_err());
        assert_eq!((not_read(), received()), (before + 1, arrived), "UDP: {is_udp}");
        send_raw(&site.printer, lsi, &bytes);
        if is_udp {
            peer.set_read_timeout(Some(PATIENCE)).unwrap();
            assert_eq!(peer.recv(&mut [0; 9]).unwrap(), 5);
        } else {
            // The printer's kernel resets the connection that it has not opened.
            server.wait_for_peer(PRINTER.0, "reached by the SYN", |peer| peer["packets_in"].as_u64() > Some(arrived));
        }
        assert_eq!(not_read(), before + 1);
    }
}

/// An error about a packet for a host is taken from the host, not from a guest, although the router forwards the packets of both.
fn errors_of_guests_do_not_reach_peers() {
    let (place, site) = (Place::new("proxy-errors"), Site::new(None));
    let [router, _server] = site.daemons(&place, &[(PRINTER.0, &PRINTER.1[..1])], ["", ""]);
    let (lsi, hit) = (router.lsi_of("server"), IpAddr::from(router.hit_of(PRINTER.0)));
    let bind = |namespace: &Namespace| namespace.enter(|| UdpSocket::bind((ANY[1], 0)).unwrap()).unwrap();
    let (peer, printer) = (bind(&site.network.server), bind(&site.printer));
    let dst_port = printer.local_addr().unwrap().port();
    peer.connect((hit, dst_port)).unwrap();
    peer.send(b"hello").unwrap();
    printer.set_read_timeout(Some(PATIENCE)).unwrap();
    printer.recv(&mut [0; 9]).unwrap();
    let src_port = peer.local_addr().unwrap().port();
    let host: IpAddr = PRINTER.1[0].parse().unwrap();
    let sent = Packet::new(lsi.into(), host, Udp { src_port, dst_port, payload: Bytes::from_static(b"hello") });
    let error = IcmpError::quoting_packet(Unreachable::Port, &sent).unwrap();
    let result_of = |from: &Namespace, src: IpAddr, within| {
        send_raw(from, lsi, &Packet::new(src, lsi.into(), error.clone()).emit().unwrap());
        peer.set_read_timeout(Some(within)).unwrap();
        peer.recv(&mut [0; 9]).unwrap_err().kind()
    };
    let guest: IpAddr = GUEST[0].parse().unwrap();
    assert_ne!(result_of(&site.guest, guest, SILENCE), ErrorKind::ConnectionRefused);
    assert_eq!(result_of(&site.printer, host, PATIENCE), ErrorKind::ConnectionRefused);
}

/// A peer's packet for a host that the router has no route to does not follow the default route.
// Claim: A peer's packet for a host without a route does not leave by the default route. Packets of hosts with wrong checksums
// reach no peer.
// Tests: `proxy::damaged_packets_do_not_reach_peers`, `offload::wrong_checksums_of_the_network_are_refused`
fn packets_for_hosts_without_a_route_are_dropped() {
    let place = Place::new("proxy-no-route");
    let capture = place.0.join("router.pcapng");
    let site = Site::new(Some(&capture));
    let [router, server] = site.daemons(&place, &[(PRINTER.0, &PRINTER.1[..1])], ["", ""]);
    let hit = IpAddr::from(router.hit_of(PRINTER.0));
    let peer = &site.network.server;
    assert!(arrives(peer, ANY[1], &site.printer, hit, PATIENCE));
    site.network.mobile.enter(|| Netlink::open(&site.network.mobile).unwrap().set_down(LAN).unwrap()).unwrap();
    for _ in 0..20 {
        assert!(!arrives(peer, ANY[1], &site.printer, hit, Duration::from_millis(20)));
    }
    let delivered = || router.status()["proxy"]["hosts"][0]["peers"][0]["packets_in"].as_u64();
    let patience = Instant::now() + PATIENCE;
    while delivered() < Some(21) {
        assert!(Instant::now() < patience, "{:?} packets have reached the router", delivered());
        std::thread::sleep(Duration::from_millis(20));
    }
    std::thread::sleep(SILENCE);
    drop((router, server));
    drop(site);
    nothing_left_in_the_clear(&capture);
}

/// Rules of the proxy in a namespace.
fn rules(namespace: &Namespace) -> String {
    let list = |family| {
        let output = namespace.enter(|| Command::new("ip").args([family, "rule"]).output().unwrap()).unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let all = [list("-4"), list("-6")].concat();
    // Those of an interface that is gone are detached.
    let own = all.lines().filter(|line| ["7401:", "7402:", "7403:"].iter().any(|it| line.starts_with(it)));
    own.map(|line| line.replace("[detached] ", "") + "\n").collect()
}

/// The rules that keep forwarded packets from the device of this host's programs.
fn rules_about_forwarded(namespace: &Namespace) -> Vec<String> {
    let list = |family| {
        let output = namespace.enter(|| Command::new("ip").args([family, "rule"]).output().unwrap()).unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let all = [list("-4"), list("-6")].concat();
    let own = |line: &&str| ["7400:", "7404:", "7405:", "7406:"].iter().any(|it| line.starts_with(it));
    all.lines().filter(own).map(str::to_owned).collect()
}

/// Changes rules, in both versions.
fn change_rules(namespace: &Namespace, words: &str) {
    for family in ["-4", "-6"] {
        let mut command = Command::new("ip");
        command.args([family, "rule"]).args(words.split(' '));
        assert!(namespace.enter(|| command.status().unwrap().success()).unwrap(), "ip {family} rule {words}");
    }
}

// Claim: A stranger behind a host that forwards, with that host's HIT or IPv4 address as source, reaches no peer; the host itself does. The rules
// for this end with the daemon, and after `kill -9` with the next one.
fn strangers_do_not_send_with_the_identity_of_the_host_that_forwards() {
    let (place, site) = (Place::new("forwarded"), Site::new(None));
    // Else Linux drops IPv4 packets with its own addresses by itself.
    site.network.mobile.enter(|| std::fs::write("/proc/sys/net/ipv4/conf/all/accept_local", "1").unwrap()).unwrap();
    let [mut router, server] = site.daemons(&place, &[], ["", ""]);
    let peer = &site.network.server;
    let own = [IpAddr::from([198, 18, 0, 1]), router.hit().into()];
    let peers = [IpAddr::from(router.lsi_of("server")), server.hit().into()];
    let forwards = |from: &Namespace, version: usize, within| {
        with_address(from, own[version], || arrives(from, own[version], peer, peers[version], within))
    };
    let nothing_is_forwarded = || {
        for version in [0, 1] {
            let dst = peers[version];
            assert!(arrives(&site.network.mobile, any_for(dst), peer, dst, PATIENCE), "the host itself, to {dst}");
            for from in [&site.printer, &site.guest] {
                assert!(!forwards(from, version, SILENCE), "version {version}");
            }
        }
    };
    nothing_is_forwarded();
    let installed = rules_about_forwarded(&site.network.mobile);
    assert_eq!(installed.len(), 8, "{installed:?}");
    router.kill();
    router.up("");
    assert_eq!(rules_about_forwarded(&site.network.mobile), installed, "none twice");
    nothing_is_forwarded();
    // It is the rule that drops them.
    change_rules(&site.network.mobile, "del pref 7406");
    for version in [0, 1] {
        assert!(forwards(&site.printer, version, PATIENCE), "version {version}");
    }
    router.down();
    assert_eq!(rules_about_forwarded(&site.network.mobile), [""; 0]);
}

/// The device and its routes go with the daemon, the rules stay.
// Claim: After `kill -9` of the daemon this host's packets for peers are refused, and do not leave in the clear by a default route, until the next
// daemon runs.
fn nothing_for_peers_leaves_in_the_clear_after_a_kill() {
    let (place, site) = (Place::new("killed"), Site::new(None));
    let [mut router, server] = site.daemons(&place, &[], ["", ""]);
    let host = &site.network.mobile;
    // Default routes in both versions.
    site.network.attach(&LTE_V6);
    let peers = [IpAddr::from(router.lsi_of("server")), server.hit().into()];
    let sends = |dst| {
        let socket = host.enter(|| UdpSocket::bind((any_for(dst), 0)).unwrap()).unwrap();
        socket.send_to(b"hello", (dst, 9)).map_err(|error| error.kind())
    };
    router.kill();
    for dst in peers {
        let refused = sends(dst);
        assert!(
            matches!(refused, Err(ErrorKind::NetworkUnreachable | ErrorKind::HostUnreachable)),
            "{dst}: {refused:?}"
        );
    }
    router.up("");
    for dst in peers {
        assert!(arrives(host, any_for(dst), &site.network.server, dst, PATIENCE), "{dst}");
    }
    // It is the rules that refuse them.
    router.kill();
    change_rules(host, "del pref 7405");
    change_rules(host, "del pref 7406");
    assert_eq!(peers.map(sends), [Ok(5); 2]);
}

/// The kernel's documentation of VRFs moves this rule.
// Claim: Peers reach this host, and hosts behind it, also where the rule of the kernel's local table is behind the daemon's.
fn peers_talk_with_the_rule_of_the_local_table_moved() {
    let (place, site) = (Place::new("local-moved"), Site::new(None));
    let (host, peer) = (&site.network.mobile, &site.network.server);
    change_rules(host, "add pref 32765 table local");
    change_rules(host, "del pref 0");
    let [router, server] = site.daemons(&place, &[(PRINTER.0, &PRINTER.1)], ["", ""]);
    let own = [IpAddr::from(server.lsi_of("router")), router.hit().into()];
    let peers = [IpAddr::from(router.lsi_of("server")), server.hit().into()];
    for version in [0, 1] {
        assert!(arrives(host, ANY[version], peer, peers[version], PATIENCE), "to the peer, version {version}");
        assert!(arrives(peer, ANY[version], host, own[version], PATIENCE), "from the peer, version {version}");
    }
    echoes(&site.printer, peer, ANY[1], peers[1]);
    // It is the rule that lets them in.
    change_rules(host, "del pref 7400");
    assert!(!arrives(peer, ANY[1], host, own[1], SILENCE));
}

// Claim: Connections of a host without HIP continue when its proxy is killed and restarted in another network. Meanwhile, and
// after `down`, hosts are refused, and nothing leaves in the clear; a start without hosts leaves no rule.
fn connections_survive_a_killed_and_restarted_proxy() {
    let place = Place::new("proxy-restart");
    let capture = place.0.join("router.pcapng");
    let site = Site::new(Some(&capture));
    let hosts: [(&str, &[&str]); 2] = [(PRINTER.0, &PRINTER.1[..1]), (CAMERA.0, &CAMERA.1[1..])];
    let [mut router, server] = site.daemons(&place, &hosts, ["", ""]);
    let (lsi, hit) = (IpAddr::from(router.lsi_of("server")), IpAddr::from(server.hit()));
    let mut transfers = Vec::new();
    for (host, address) in [(&site.printer, lsi), (&site.camera, hit)] {
        for way in [Way::ToMobile, Way::FromMobile] {
            transfers.push(Transfer::between(way, host, address, &site.network.server, (ANY[1], 0)));
        }
    }
    let go_on = || transfers.iter().for_each(|transfer| transfer.wait_for_more(150_000));
    go_on();
    let installed = rules(&site.network.mobile);
    assert_eq!(installed.lines().count(), 8, "{installed}");
    router.kill();
    // Hosts are refused meanwhile, and nothing of theirs leaves in the clear.
    let hosts_are_refused = || {
        for (host, address) in [(&site.printer, lsi), (&site.camera, hit)] {
            let refused = host.enter(|| TcpStream::connect_timeout(&(address, 80).into(), PATIENCE)).unwrap();
            let kind = refused.unwrap_err().kind();
            assert!(matches!(kind, ErrorKind::HostUnreachable | ErrorKind::NetworkUnreachable), "{kind:?}");
        }
    };
    assert_eq!(rules(&site.network.mobile), installed);
    hosts_are_refused();
    site.network.detach(&WIFI);
    site.network.attach(&LTE);
    router.up("");
    go_on();
    for transfer in transfers {
        transfer.end();
    }
    assert_eq!(rules(&site.network.mobile), installed, "none twice");
    router.down();
    let left = rules(&site.network.mobile);
    assert!(left.lines().count() == 2 && left.lines().all(|line| line.starts_with("7401:")), "{left}");
    hosts_are_refused();
    // Without hosts, the next start clears the rest.
    for (name, _) in hosts {
        router.ok(&format!("proxy remove {name}"));
    }
    assert_eq!(rules(&site.network.mobile), left);
    router.up("");
    assert_eq!(rules(&site.network.mobile), "");
    drop((router, server));
    drop(site);
    nothing_left_in_the_clear(&capture);
}

fn hosts_come_and_go_while_the_proxy_runs() {
    let (place, site) = (Place::new("proxy-reload"), Site::new(None));
    let [router, server] = site.daemons(&place, &[], ["", ""]);
    assert_eq!(rules(&site.network.mobile), "");
    assert!(router.status()["proxy"].is_null());
    let hit = IpAddr::from(server.hit());
    add_host(&router, &server, PRINTER.0, &PRINTER.1);
    echoes(&site.printer, &site.network.server, ANY[1], hit);
    let transfer = Transfer::between(Way::FromMobile, &site.printer, hit, &site.network.server, (ANY[1], 0));
    add_host(&router, &server, CAMERA.0, &CAMERA.1);
    echoes(&site.camera, &site.network.server, ANY[1], hit);
    transfer.wait_for_more(100_000);
    // An invalid file changes nothing.
    let file = place.0.join("router/proxy.toml");
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, text.replace("fd00:7::11", "fd00:7::10")).unwrap();
    let refused = router.run("peer add nobody 2001:25:1111:2222:3333:4444:5555:6666");
    assert!(String::from_utf8_lossy(&refused.stderr).contains("fd00:7::10 is the address of host printer already"));
    std::fs::write(&file, text).unwrap();
    transfer.wait_for_more(100_000);
    // A host that the daemon refuses is not in the file afterwards.
    let text = std::fs::read_to_string(&file).unwrap();
    let refused = router.run("proxy add itself 192.168.7.1");
    let error = String::from_utf8_lossy(&refused.stderr);
    assert!(
        !refused.status.success() && error.contains("192.168.7.1 of host itself is an address of this host"),
        "{error}"
    );
    assert_eq!(std::fs::read_to_string(&file).unwrap(), text);
    router.ok("proxy remove camera");
    server.wait_for_peer(CAMERA.0, "closed", |peer| peer["state"] == "CLOSED" || peer["state"] == "UNASSOCIATED");
    transfer.wait_for_more(100_000);
    transfer.end();
    assert_eq!(router.status()["proxy"]["hosts"].as_array().unwrap().len(), 1);
    // It comes back as the same.
    let before = server.ok("peer list");
    router.ok(&format!("proxy add camera {}", CAMERA.1.join(" ")));
    assert!(before.contains(&router.hit_of(CAMERA.0).to_string()));
    echoes(&site.camera, &site.network.server, ANY[1], hit);
    for name in ["printer", "camera"] {
        router.ok(&format!("proxy remove {name}"));
    }
    assert_eq!(rules(&site.network.mobile), "");
}
