//! The first data of a connection, written by the host during an outage.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread::sleep;
use std::time::{Duration, Instant};

use holdover_testbed::Namespace;

use crate::Test;
use crate::iproute::ip;
use crate::lan::{Agent, INTERFACE, Lan, NO_BUS};

pub(crate) const TESTS: &[Test] = &[
    ("the_first_key_arrives_after_a_loss_of_carrier", the_first_key_arrives_after_a_loss_of_carrier),
    ("the_first_key_arrives_after_the_address_was_lost", the_first_key_arrives_after_the_address_was_lost),
    ("the_first_key_arrives_after_the_interface_was_down", the_first_key_arrives_after_the_interface_was_down),
    ("the_first_key_arrives_after_a_silence", the_first_key_arrives_after_a_silence),
];

/// The key is typed 1 s after the cut. Its timer expires 3 s later, and again 3.2 s after that, some 2.2 s after the return.
const CUT: Duration = Duration::from_secs(5);

const TYPED_AFTER: Duration = Duration::from_secs(1);

/// The host's own timer is due later.
const ARRIVES_WITHIN: Duration = Duration::from_millis(500);

// Claim: The first data of a connection that had carried none, written 4 s before the return, arrive within 500 ms of it: after a loss of
// carrier, after the interface was set down and after its address was removed, which leave the data unsent in the kernel, and after an
// outage without any sign.
// Tests: `first_data::the_first_key_arrives_after_the_address_was_lost`, `first_data::the_first_key_arrives_after_the_interface_was_down`,
// `first_data::the_first_key_arrives_after_a_silence`
fn the_first_key_arrives_after_a_loss_of_carrier(near: &Namespace) {
    first_key(near, |lan| lan.plug(false), |lan| lan.plug(true));
}

fn the_first_key_arrives_after_the_address_was_lost(near: &Namespace) {
    let change = |verb: &str| ip(&format!("address {verb} 192.0.2.7/24 dev {INTERFACE}"));
    first_key(
        near,
        |_| change("del"),
        |_| {
            change("add");
            regain_route();
        },
    );
}

fn the_first_key_arrives_after_the_interface_was_down(near: &Namespace) {
    let set = |state: &str| ip(&format!("link set {INTERFACE} {state}"));
    first_key(
        near,
        |_| set("down"),
        |_| {
            set("up");
            regain_route();
        },
    );
}

fn the_first_key_arrives_after_a_silence(near: &Namespace) {
    first_key(near, |lan| lan.join(false), |lan| lan.join(true));
}

/// The default route goes with the address, and with the interface.
fn regain_route() {
    ip(&format!("route add default via 192.0.2.1 dev {INTERFACE}"));
}

fn first_key(near: &Namespace, cut: impl FnOnce(&Lan), end_cut: impl FnOnce(&Lan)) {
    let lan = Lan::new(near, "192.0.2.", 24);
    let _agent = Agent::start_with(near, "first-data", NO_BUS, &[INTERFACE], "");
    let listener = lan.gateway.enter(|| TcpListener::bind(SocketAddr::new(lan.address, 0)).unwrap()).unwrap();
    let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    near.set_nodelay(true).unwrap();
    let (mut far, _) = listener.accept().unwrap();
    sleep(Duration::from_secs(1));
    cut(&lan);
    sleep(TYPED_AFTER);
    near.write_all(b"k").unwrap();
    sleep(CUT - TYPED_AFTER);
    end_cut(&lan);
    let back_at = Instant::now();
    far.read_exact(&mut [0]).unwrap();
    let took = back_at.elapsed();
    eprintln!("the key {took:?} after the return");
    assert!(took < ARRIVES_WITHIN, "{took:?}");
}
