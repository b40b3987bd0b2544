//! Connections on an address that this host has lost.

use std::io::{self, Read as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use holdover_testbed::Namespace;

use crate::Test;
use crate::iproute::ip;
use crate::lan::{Agent, INTERFACE, Lan, NO_BUS};

pub(crate) const TESTS: &[Test] = &[
    ("connections_on_a_lost_address_end_if_it_is_wanted", connections_on_a_lost_address_end_if_it_is_wanted),
    ("they_are_kept_by_default", they_are_kept_by_default),
];

/// How long an address has to be gone.
const GRACE: Duration = Duration::from_secs(2);

/// Includes a margin for a slow machine: the kernel by itself tells programs after 15 minutes, or never.
const ENDS_WITHIN: Duration = Duration::from_secs(4);

fn connected(lan: &Lan) -> [TcpStream; 2] {
    let server = SocketAddr::from(([192, 0, 2, 1], 0));
    let listener = lan.gateway.enter(|| TcpListener::bind(server).unwrap()).unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    near.set_read_timeout(Some(ENDS_WITHIN)).unwrap();
    [near, listener.accept().unwrap().0]
}

/// The error of a program that waits for data, and after how long.
fn hears(stream: &mut TcpStream) -> (Option<i32>, Duration) {
    let began = Instant::now();
    let error: io::Error = stream.read(&mut [0]).unwrap_err();
    (error.raw_os_error(), began.elapsed())
}

fn change_address(from: &str, to: &str) {
    ip(&format!("address del {from}/24 dev {INTERFACE}"));
    ip(&format!("address add {to}/24 dev {INTERFACE}"));
    ip(&format!("route replace default via 192.0.2.1 dev {INTERFACE}"));
}

fn start(near: &Namespace, more: &str) -> Agent {
    Agent::start_with(near, "address_gone", NO_BUS, &[INTERFACE], more)
}

// Claim: With `address_gone = "end"` a program whose address is gone for longer than `address_grace` gets ECONNABORTED, and not
// before; one whose address comes back in time, or that is to be kept, does not.
// Tests: `address_gone::they_are_kept_by_default`
fn connections_on_a_lost_address_end_if_it_is_wanted(near: &Namespace) {
    let lan = Lan::new(near, "192.0.2.", 24);
    let _agent = start(near, "[connections]\naddress_gone = \"end\"\naddress_grace = \"2s\"\n");
    let [mut old, _far] = connected(&lan);
    // It returns in time: the connection is kept.
    change_address("192.0.2.7", "192.0.2.8");
    change_address("192.0.2.8", "192.0.2.7");
    assert_eq!(hears(&mut old).0, Some(libc::EAGAIN));
    let changed_at = Instant::now();
    change_address("192.0.2.7", "192.0.2.8");
    let [mut new, _far] = connected(&lan);
    let (error, _) = hears(&mut old);
    let took = changed_at.elapsed();
    eprintln!("ended {took:?} after its address");
    assert_eq!(error, Some(libc::ECONNABORTED));
    assert!(took >= GRACE - Duration::from_millis(100), "{took:?}");
    assert_eq!(hears(&mut new).0, Some(libc::EAGAIN), "its address exists");
}

fn they_are_kept_by_default(near: &Namespace) {
    let lan = Lan::new(near, "192.0.2.", 24);
    let _agent = start(near, "[connections]\naddress_grace = \"0s\"\n");
    let [mut old, _far] = connected(&lan);
    change_address("192.0.2.7", "192.0.2.8");
    assert_eq!(hears(&mut old).0, Some(libc::EAGAIN));
}
