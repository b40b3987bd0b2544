//! Limits and unusual events.

use std::net::{SocketAddr, UdpSocket};
use std::thread::sleep;
use std::time::Duration;

use holdover_gatewayd::control::Standing;
use holdover_testbed::Namespace;

use crate::Test;
use crate::process::Gateway;
use holdover_testbed::gateway::{Cut, Transfer, World};

pub(crate) const TESTS: &[Test] = &[
    ("a_full_buffer_drops_and_counts_new_packets", a_full_buffer_drops_new_packets),
    ("packets_that_have_waited_too_long_are_dropped", packets_that_have_waited_too_long),
    ("a_smaller_mtu_on_return_is_told_to_the_sender", a_smaller_mtu_on_return),
    ("commands_are_believed_until_the_host_is_heard", commands_are_believed),
];

fn flood(world: &World, packets: usize) {
    let bind = || UdpSocket::bind(SocketAddr::new(world.fixed_address(), 0)).unwrap();
    let from = world.fixed().enter(bind).unwrap();
    for number in 0..packets {
        from.send_to(&[0; 1000], SocketAddr::new(world.mobile_address(0), 9)).unwrap();
        if number % 50 == 49 {
            sleep(Duration::from_millis(1));
        }
    }
}

/// A known mobile host that is absent.
fn away(sections: &str) -> (World, Gateway) {
    let world = World::new(1).unwrap();
    let gateway = Gateway::start(world.router(), sections);
    let transfer = Transfer::start(&world, 0, false).unwrap();
    transfer.await_more(100_000).unwrap();
    transfer.ends_exact().unwrap();
    world.set_cut(Cut::Carrier, true).unwrap();
    gateway.says(world.mobile_address(0), "away");
    (world, gateway)
}

// Claim: A full buffer drops what comes and counts it; ages; a smaller MTU on the return is told to the sender, and the transfer
// goes on; commands.
// Tests: `limits::packets_that_have_waited_too_long`, `limits::a_smaller_mtu_on_return`, `limits::commands_are_believed`
fn a_full_buffer_drops_new_packets(_: &Namespace) {
    let (world, gateway) = away("[buffer]\nmobile_bytes = 100000\ntotal_bytes = 150000\n");
    flood(&world, 1000);
    sleep(Duration::from_millis(300));
    let status = gateway.status();
    assert!((95_000..=100_000).contains(&status.waiting_bytes), "{status:?}");
    assert!(status.buffer.mobile_full > 800, "{status:?}");
    world.set_cut(Cut::Carrier, false).unwrap();
    gateway.says(world.mobile_address(0), "present");
    sleep(Duration::from_millis(300));
    let after = gateway.status();
    assert_eq!((after.waiting, after.buffer.released, gateway.files()), (0, status.waiting, 0), "{after:?}");
}

fn packets_that_have_waited_too_long(_: &Namespace) {
    let (world, gateway) = away("[buffer]\nlongest = \"1500 ms\"\n");
    flood(&world, 50);
    let has_all = || {
        sleep(Duration::from_millis(100));
        gateway.status().waiting >= 50
    };
    assert!((0..12).any(|_| has_all()), "{:?}", gateway.status());
    sleep(Duration::from_secs(4));
    let status = gateway.status();
    assert!(status.waiting == 0 && status.buffer.aged >= 50 && gateway.files() == 0, "{status:?}");
    world.set_cut(Cut::Carrier, false).unwrap();
    gateway.says(world.mobile_address(0), "present");
}

fn a_smaller_mtu_on_return(_: &Namespace) {
    let world = World::new(1).unwrap();
    let gateway = Gateway::start(world.router(), "");
    let transfer = Transfer::start(&world, 0, false).unwrap();
    transfer.await_more(500_000).unwrap();
    world.set_cut(Cut::Carrier, true).unwrap();
    gateway.says(world.mobile_address(0), "away");
    sleep(Duration::from_secs(1));
    world.set_mobile_mtu(1300).unwrap();
    let took = transfer.resumes(|| world.set_cut(Cut::Carrier, false).unwrap()).unwrap();
    eprintln!("MTU of 1300 on the return: data after {took:?}");
    assert!(took < Duration::from_secs(2), "{took:?}");
    transfer.await_more(500_000).unwrap();
    transfer.ends_exact().unwrap();
    let status = gateway.status();
    assert!(status.unsendable.too_big > 0, "{status:?}");
}

fn commands_are_believed(_: &Namespace) {
    let world = World::new(1).unwrap();
    // Without probes, the report holds until a packet arrives.
    let gateway = Gateway::start(world.router(), "[presence]\nsilence = false\n");
    let mobile = world.mobile_address(0);
    gateway.report(mobile, Standing::Away).unwrap();
    flood(&world, 20);
    sleep(Duration::from_millis(500));
    let line = gateway.mobile(mobile).unwrap();
    assert_eq!((line.standing.as_str(), line.away_by.join(", ").as_str()), ("away", "command"), "{line:?}");
    let bind = || UdpSocket::bind(SocketAddr::new(mobile, 0)).unwrap();
    let socket = world.mobile(0).enter(bind).unwrap();
    socket.send_to(b"here", SocketAddr::new(world.fixed_address(), 9)).unwrap();
    gateway.says(mobile, "present");
    for (address, wanted) in
        [("10.9.9.9", "10.9.9.9 is no mobile host behind mob0"), ("fd00::1", "fd00::1 is no mobile host")]
    {
        let refused = gateway.report(address.parse().unwrap(), Standing::Away).unwrap_err();
        assert!(refused.contains(wanted), "{refused}");
    }
    gateway.report(mobile, Standing::Fading).unwrap();
    gateway.says(mobile, "fading");
    gateway.report(mobile, Standing::Moved).unwrap();
    gateway.says(mobile, "moved");
}
