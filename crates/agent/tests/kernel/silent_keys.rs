//! A key typed while the link is silent, delivered by probes.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread::sleep;
use std::time::{Duration, Instant};

use bytes::Bytes;
use holdover_host::packet_listener::PacketListener;
use holdover_testbed::Namespace;
use holdover_wire::{Checksums, Packet};

use crate::Test;
use crate::lan::{Agent, Beyond, INTERFACE, Lan, connect_bound};

pub(crate) const TESTS: &[Test] = &[
    ("a_probe_of_the_peer_is_the_waiting_key", a_probe_of_the_peer_is_the_waiting_key),
    ("so_is_that_of_a_socket_bound_to_the_interface", so_is_that_of_a_socket_bound_to_the_interface),
];

// Claim: A key that is typed during a silence is what the peer is probed with, each time with the present time of the host's
// timestamp clock, and it arrives once. So is the key of a socket that is bound to the interface.
// Tests: `silent_keys::so_is_that_of_a_socket_bound_to_the_interface`
fn a_probe_of_the_peer_is_the_waiting_key(near: &Namespace) {
    is_probed_with_the_key(near, |listener| {
        [TcpStream::connect(listener.local_addr().unwrap()).unwrap(), listener.accept().unwrap().0]
    });
}

fn so_is_that_of_a_socket_bound_to_the_interface(near: &Namespace) {
    is_probed_with_the_key(near, connect_bound);
}

fn is_probed_with_the_key(near: &Namespace, connect: impl FnOnce(&TcpListener) -> [TcpStream; 2]) {
    let lan = Lan::new(near, "192.0.2.", 24);
    let beyond = Beyond::new(near, &lan, 0);
    let _agent = Agent::start(near);
    let address = SocketAddr::new(beyond.address, 0);
    let listener = beyond.server.enter(|| TcpListener::bind(address).unwrap()).unwrap();
    let [mut client, mut server] = connect(&listener);
    let mut key = [0];
    for typed in 0..20 {
        client.write_all(&[typed]).unwrap();
        server.read_exact(&mut key).unwrap();
        server.write_all(&key).unwrap();
        client.read_exact(&mut key).unwrap();
        sleep(Duration::from_millis(50));
    }
    let listener = PacketListener::open(INTERFACE).unwrap();
    lan.forward(false);
    client.write_all(&[100]).unwrap();
    sleep(Duration::from_secs(6));
    let sent = segments_with_a_key(&listener);
    // TCP itself sends it some five times by then.
    assert!(sent.len() >= 15, "{sent:?}");
    assert!(sent.iter().all(|(_, payload)| payload[..] == [100]), "{sent:?}");
    // Each copy has its own TSval. TCP's own retransmissions are up to 1.7 s apart, and may fall into the millisecond
    // of a probe.
    let spans: Vec<u32> = sent.windows(2).map(|pair| pair[1].0.wrapping_sub(pair[0].0)).collect();
    assert!(spans.iter().all(|span| (0..2_000).contains(span)), "{spans:?}");

    lan.forward(true);
    let began = Instant::now();
    server.read_exact(&mut key).unwrap();
    eprintln!("{} segments; the key after {:?}", sent.len(), began.elapsed());
    assert!(began.elapsed() < Duration::from_millis(500), "{:?}", began.elapsed());
    // The key arrives once, and the connection continues.
    client.write_all(&[101]).unwrap();
    let mut next = [0];
    server.read_exact(&mut next).unwrap();
    assert_eq!((key, next), ([100], [101]));
}

/// TSval and payload of the segments with data that have left.
fn segments_with_a_key(listener: &PacketListener) -> Vec<(u32, Bytes)> {
    let mut buffer = [0; 2048];
    let mut segments = vec![];
    while let Some(heard) = listener.receive(&mut buffer, holdover_base::Duration::ZERO).unwrap() {
        // ARP requests are none.
        let Ok(packet) = Packet::parse_with(Bytes::copy_from_slice(&buffer[..heard.len]), Checksums::Ignore) else {
            continue;
        };
        if let Some(segment) = packet.tcp().filter(|segment| !segment.payload.is_empty()) {
            segments.push((segment.options.timestamps.unwrap().val, segment.payload.clone()));
        }
    }
    segments
}
