//! Packets on an Ethernet interface: GSO packets, and frames that the engine ignores.

use std::net::{IpAddr, SocketAddr};
use std::thread::sleep;
use std::time::Duration as StdDuration;

use holdover_agent::engine::{Counters, EngineOptions};
use holdover_base::{ByteCount, Duration, Rng};
use holdover_mobility::{Direction, LinkEvent};
use holdover_testbed::{Congestion, FrameSocket, Namespace, Netlink};

use super::process::{EngineThread, UP};
use super::raw::segment;
use super::traffic::{Kind, Traffic};
use crate::wire::{FAR, FAR_V6, NEAR, NEAR_V6};

/// The engine's interface; the other one is `down0`.
const INTERFACE: &str = "up0";

/// Joins `near`, in which the calling thread must be, to another namespace by two Ethernet interfaces.
fn ethernet(near: &Namespace) -> Namespace {
    let far = Namespace::new("far").unwrap();
    Netlink::open(near).unwrap().add_veth(INTERFACE, "down0", &far).unwrap();
    let set_up = |namespace: &Namespace, name: &str, v4: &str, v6: &str| {
        let mut netlink = Netlink::open(namespace).unwrap();
        netlink.set_up(name).unwrap();
        netlink.add_address(name, v4.parse().unwrap(), 24).unwrap();
        netlink.add_address(name, v6.parse().unwrap(), 64).unwrap();
    };
    far.enter(|| set_up(&far, "down0", FAR, FAR_V6)).unwrap();
    set_up(near, INTERFACE, NEAR, NEAR_V6);
    far
}

/// Connections with TCP-MD5 pass as they are, over the same events that make the engine hold, lower and inject ACKs of others. A
/// changed segment, or one without a signature, would be dropped by its receiver, and counted.
pub(crate) fn signed_connections_are_left_alone(near: &Namespace) {
    let far = ethernet(near);
    let kind = |ipv6, way| Kind { ipv6, is_signed: true, ..Kind::bulk(Congestion::Cubic, way) };
    let kinds = [kind(false, Direction::Outgoing), kind(false, Direction::Incoming), kind(true, Direction::Incoming)];
    let engine = EngineThread::attach(near, INTERFACE, EngineOptions::default());
    let traffic = Traffic::start(near, &far, &kinds);
    for _ in 0..10 {
        for event in [LinkEvent::Fading { lead: Some(Duration::from_millis(20)) }, LinkEvent::Down, UP] {
            engine.link(event);
            sleep(StdDuration::from_millis(50));
        }
    }
    traffic.wait_for(1_000_000);
    let (counters, known) = engine.with(|engine| (engine.counters(), engine.connections()));
    traffic.finish();
    eprintln!("{counters:?}");
    assert!(counters.alone_signed > 1000 && known.is_empty(), "{counters:?} {known:?}");
    assert_eq!(counters, Counters { alone_signed: counters.alone_signed, ..Counters::default() });
    for namespace in [near, &far] {
        let refused = namespace.enter(|| holdover_testbed::Counters::read(namespace).unwrap()).unwrap();
        let refused = ["TcpExtTCPMD5Failure", "TcpExtTCPMD5NotFound"].map(|name| refused.get(name));
        assert_eq!(refused, [Some(0); 2]);
    }
}

/// Random events of a link without losses: whatever is withheld, lowered and injected, streams stay exact.
// Claim: Packets of up to 64 kB (GSO and GRO) are rewritten right, with events of the link at random.
pub(crate) fn packets_that_stand_for_many_are_rewritten_right(near: &Namespace) {
    let far = ethernet(near);
    let mut kinds = Kind::various();
    let bulk = |way| Kind { bulk: Some(ByteCount(1 << 20)), ..Kind::bulk(Congestion::Cubic, way) };
    kinds.extend(Direction::BOTH.map(bulk));
    let engine = EngineThread::attach(near, INTERFACE, EngineOptions::default());
    let traffic = Traffic::start(near, &far, &kinds);
    let mut rng = Rng::new(5);
    for _ in 0..60 {
        engine.link(match rng.below(5) {
            0 | 1 => LinkEvent::Fading { lead: Some(Duration::from_millis(rng.below(100))) },
            2 => LinkEvent::Recovered,
            3 => LinkEvent::Down,
            _ => UP,
        });
        sleep(StdDuration::from_millis(1 + rng.below(60)));
    }
    engine.link(UP);
    traffic.wait_for(100_000);
    let (counters, known) = engine.with(|engine| (engine.counters(), engine.connections()));
    traffic.finish();
    let bytes: u64 = known.iter().map(|status| status.bytes_in + status.bytes_out).sum();
    eprintln!("{bytes} bytes in {} packets, ACKs included: {counters:?}", counters.seen);
    assert!(bytes / counters.seen > 1_460, "packets of several segments");
    let actions = [counters.withheld, counters.lowered, counters.injected, counters.shrunk];
    assert!(actions.into_iter().all(|count| count > 0), "{counters:?}");
    assert_eq!(counters.alone_malformed, 0);
}

// Claim: Fragments, VLAN tags, too many extension headers and malformed headers are left alone and counted; extension headers
// that are understood are passed over.
// Claim: TCP-MD5 and TCP-AO are left alone and counted; connections with TCP-MD5 are byte-exact over the events that make the
// engine hold, lower and inject ACKs of others, and no host drops a segment for its signature.
// Tests: `frames::signed_connections_are_left_alone`
pub(crate) fn unsupported_packets_pass_unchanged_and_are_counted(near: &Namespace) {
    let far = ethernet(near);
    let sender = FrameSocket::sender(near, INTERFACE).unwrap();
    let engine = EngineThread::attach(near, INTERFACE, EngineOptions::default());
    let ends = |local: &str, remote: &str| {
        let address = |text: &str| text.parse::<IpAddr>().unwrap();
        (SocketAddr::new(address(local), 999), SocketAddr::new(address(remote), 443))
    };
    let packet = |(local, remote): (SocketAddr, SocketAddr)| segment(local, remote, 1, 1, 100).emit().unwrap().to_vec();
    let (v4, v6) = (packet(ends(NEAR, FAR)), packet(ends(NEAR_V6, FAR_V6)));
    let counters = || engine.with(|engine| engine.counters());
    let send = |ethertype: i32, packet: &[u8]| {
        let mut frame = vec![2, 0, 0, 0, 0, 0x99, 2, 0, 0, 0, 0, 1];
        frame.extend((ethertype as u16).to_be_bytes());
        frame.extend(packet);
        sender.send(ethertype, &frame).unwrap();
    };

    let tagged = [&[0, 5, 8, 0][..], &v4].concat();
    send(libc::ETH_P_8021Q, &tagged);
    send(libc::ETH_P_8021AD, &tagged);
    let mut expected = Counters { alone_vlan: 2, ..Counters::default() };
    assert_eq!(counters(), expected);

    // Its first fragment, and a later one.
    for offset in [[0x20, 0], [0, 9]] {
        let mut fragment = v4.clone();
        fragment[6..8].copy_from_slice(&offset);
        send(libc::ETH_P_IP, &fragment);
    }
    send(libc::ETH_P_IPV6, &after_headers(&v6, &[44]));
    expected.alone_fragment = 3;
    assert_eq!(counters(), expected);

    // More extension headers than anyone uses.
    send(libc::ETH_P_IPV6, &after_headers(&v6, &[60; 7]));
    expected.alone_header = 1;
    assert_eq!(counters(), expected);

    let mut short = v4.clone();
    // A TCP header of 4 bytes.
    short[20 + 12] = 0x10;
    send(libc::ETH_P_IP, &short);
    expected.alone_malformed = 1;
    assert_eq!(counters(), expected);
    assert_eq!(engine.with(|engine| engine.connections().len()), 0);

    // Signatures: TCP-MD5 (RFC 2385), and TCP-AO (RFC 5925) behind timestamps.
    let signature = |kind: u8, len: u8| [vec![1, 1, kind, len], vec![9; usize::from(len) - 2]].concat();
    let stamps = [1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 1];
    for options in [signature(19, 18), [&stamps[..], &signature(29, 16), &[1, 1]].concat()] {
        send(libc::ETH_P_IP, &with_options(&v4, &options));
    }
    expected.alone_signed = 2;
    assert_eq!(counters(), expected);

    // Multipath TCP (RFC 8684): DSS with a DATA_ACK, alone and behind timestamps.
    let dss = [30, 8, 0x20, 1, 0, 0, 0, 9];
    for options in [dss.to_vec(), [&stamps[..], &dss].concat()] {
        send(libc::ETH_P_IP, &with_options(&v4, &options));
    }
    expected.alone_multipath = 2;
    assert_eq!(counters(), expected);

    // Hop-by-hop options, destination options: these it reads.
    send(libc::ETH_P_IPV6, &after_headers(&v6, &[0, 60]));
    send(libc::ETH_P_IP, &v4);
    expected.seen = 2;
    assert_eq!(counters(), expected);
    assert_eq!(engine.with(|engine| engine.connections().len()), 2);
    drop(far);
}

/// The IPv4 packet with TCP options in place of the first bytes of its payload.
fn with_options(packet: &[u8], options: &[u8]) -> Vec<u8> {
    let mut with = packet.to_vec();
    with[20 + 12] = ((20 + options.len() as u8) / 4) << 4;
    with[40..40 + options.len()].copy_from_slice(options);
    with
}

/// The packet with extension headers of these kinds before its TCP header, each of 8 bytes.
fn after_headers(packet: &[u8], kinds: &[u8]) -> Vec<u8> {
    const TCP: u8 = 6;
    let (ip, tcp) = packet.split_at(40);
    let mut with = ip.to_vec();
    with[6] = kinds.first().copied().unwrap_or(TCP);
    for index in 0..kinds.len() {
        // For options, PadN over the rest; for a fragment, the first of one.
        let next = kinds.get(index + 1).copied().unwrap_or(TCP);
        with.extend([next, 0, 1, 4, 0, 0, 0, 0]);
    }
    with.extend(tcp);
    let len = (with.len() - 40) as u16;
    with[4..6].copy_from_slice(&len.to_be_bytes());
    with
}
