//! Buffers that are full while mobile hosts are away: the limits hold, and the hosts' transfers are exact afterwards. And a queue of the
//! interface that is full for one of them.

use std::net::{SocketAddr, UdpSocket};
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use holdover_gatewayd::control::Standing;
use holdover_testbed::Namespace;
use holdover_testbed::gateway::{Cut, MOBILE_FACING, Transfer, World};

use crate::Test;
use crate::handoff::wait_for;
use crate::process::Gateway;

pub(crate) const TESTS: &[Test] = &[
    ("transfers_are_exact_after_full_buffers", |_| transfers("buffer")),
    ("transfers_are_exact_after_full_buffers_with_m_tcp", |_| transfers("m-tcp")),
    ("transfers_are_exact_after_full_buffers_with_buffer_freeze", |_| transfers("buffer-freeze")),
    ("a_full_queue_of_one_host_stops_no_other", a_full_queue_of_one_host),
];

/// The limits for one mobile host, and for both.
const MOBILE_BYTES: u64 = 100_000;
const TOTAL_BYTES: u64 = 150_000;

/// Datagrams for a mobile host, which alone are more than its limit.
fn flood(world: &World, mobile: usize) {
    let bind = || UdpSocket::bind(SocketAddr::new(world.fixed_address(), 0)).unwrap();
    let from = world.fixed().enter(bind).unwrap();
    for number in 0..200 {
        from.send_to(&[0; 1000], SocketAddr::new(world.mobile_address(mobile), 9)).unwrap();
        if number % 50 == 49 {
            sleep(Duration::from_millis(1));
        }
    }
}

// Claim: Buffers that are full during an absence of 2 s, by downloads and floods of datagrams to two mobile hosts: the bytes that
// wait never exceed the limits, what is dropped is counted, and downloads and an upload go on afterwards, byte-exact, with
// `buffer`, `m-tcp` and `buffer-freeze`; nothing is left behind.
fn transfers(mode: &str) {
    let world = World::with_round_trip(2, holdover_base::Duration::from_millis(40)).unwrap();
    let sections =
        format!("[mobiles]\nmode = \"{mode}\"\n[buffer]\nmobile_bytes = {MOBILE_BYTES}\ntotal_bytes = {TOTAL_BYTES}\n");
    let gateway = Gateway::start(world.router(), &sections);
    let mobiles = [0, 1].map(|number| world.mobile_address(number));
    let transfers = [(0, false), (1, false), (0, true)]
        .map(|(mobile, is_upload)| Transfer::start(&world, mobile, is_upload).unwrap());
    transfers.iter().for_each(|transfer| transfer.await_more(1_000_000).unwrap());
    world.set_cut(Cut::Carrier, true).unwrap();
    mobiles.into_iter().for_each(|mobile| _ = gateway.says(mobile, "away"));
    [0, 1].into_iter().for_each(|mobile| flood(&world, mobile));
    let away_at = Instant::now();
    let mut most = 0;
    while away_at.elapsed() < Duration::from_secs(2) {
        most = most.max(gateway.status().waiting_bytes);
        assert!(most <= TOTAL_BYTES, "{mode}: {most} bytes wait");
        for mobile in mobiles {
            let waiting = gateway.mobile(mobile).unwrap().waiting_bytes;
            assert!(waiting <= MOBILE_BYTES, "{mode}: {waiting} bytes wait for {mobile}");
        }
        sleep(Duration::from_millis(20));
    }
    let full = gateway.status().buffer;
    assert!(most > TOTAL_BYTES * 3 / 4, "{mode}: {most} bytes were the most");
    assert!(full.mobile_full + full.total_full + full.evicted >= 200, "{mode}: {full:?}");
    world.set_cut(Cut::Carrier, false).unwrap();
    mobiles.into_iter().for_each(|mobile| _ = gateway.says(mobile, "present"));
    let back_at = Instant::now();
    transfers.iter().for_each(|transfer| transfer.await_more(1_000_000).unwrap());
    eprintln!("{mode}: all go on within {:?}; {full:?}", back_at.elapsed());
    transfers.into_iter().for_each(|transfer| _ = transfer.ends_exact().unwrap());
    wait_for("empty buffers", || (gateway.status().waiting == 0).then_some(()));
    let status = gateway.status();
    let buffer = status.buffer;
    assert_eq!(buffer.queued, buffer.released + buffer.evicted + buffer.aged + buffer.forgotten, "{mode}: {status:?}");
    assert_eq!(gateway.files(), 0, "{mode}");
}

/// `tc` of iproute2, in the router.
fn tc(world: &World, arguments: &str) {
    let run = || Command::new("tc").args(arguments.split(' ')).output().expect("tc, of the package iproute2");
    let output = world.router().enter(run).unwrap();
    assert!(output.status.success(), "tc {arguments}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Datagrams for each mobile host.
const DATAGRAMS: u64 = 20;

// Claim: A mobile host whose class of the interface's queueing discipline is full (HTB with 8 kbit/s) does not stop the release to another.
fn a_full_queue_of_one_host(_: &Namespace) {
    let world = World::new(2).unwrap();
    let mobiles = [0, 1].map(|number| world.mobile_address(number));
    tc(&world, &format!("qdisc add dev {MOBILE_FACING} root handle 1: htb default 1"));
    tc(&world, &format!("class add dev {MOBILE_FACING} parent 1: classid 1:1 htb rate 1gbit"));
    tc(&world, &format!("class add dev {MOBILE_FACING} parent 1: classid 1:2 htb rate 8kbit burst 1600 cburst 1600"));
    tc(&world, &format!("qdisc add dev {MOBILE_FACING} parent 1:2 pfifo limit 1"));
    let slow = mobiles[0];
    tc(&world, &format!("filter add dev {MOBILE_FACING} parent 1: protocol ip u32 match ip dst {slow}/32 flowid 1:2"));
    // Nothing is heard of the mobile hosts, as nothing asks them.
    let gateway = Gateway::start(world.router(), "[presence]\nsilence = false\n");
    let into = [0, 1].map(|number: usize| {
        let bind = || UdpSocket::bind(SocketAddr::new(mobiles[number], 9)).unwrap();
        let socket = world.mobile(number).enter(bind).unwrap();
        socket.set_nonblocking(true).unwrap();
        socket
    });
    let from = world.fixed().enter(|| UdpSocket::bind(SocketAddr::new(world.fixed_address(), 0)).unwrap()).unwrap();
    for socket in &into {
        // The gateway learns the mobile host's Ethernet address.
        socket.send_to(b"here", from.local_addr().unwrap()).unwrap();
    }
    mobiles.into_iter().for_each(|mobile| wait_for("a mobile host", || gateway.mobile(mobile).map(drop)));
    sleep(Duration::from_millis(200));
    for mobile in mobiles {
        gateway.report(mobile, Standing::Away).unwrap();
        gateway.says(mobile, "away");
        (0..DATAGRAMS).for_each(|_| _ = from.send_to(&[0; 900], SocketAddr::new(mobile, 9)).unwrap());
    }
    let waiting = |mobile| gateway.mobile(mobile).unwrap().waiting;
    mobiles
        .into_iter()
        .for_each(|mobile| wait_for("datagrams that wait", || (waiting(mobile) == DATAGRAMS).then_some(())));
    gateway.report(slow, Standing::Present).unwrap();
    wait_for("a full queue", || (waiting(slow) < DATAGRAMS).then_some(()));
    gateway.report(mobiles[1], Standing::Present).unwrap();
    let began = Instant::now();
    let mut received = 0;
    wait_for("all datagrams of the other mobile host", || {
        received += std::iter::from_fn(|| into[1].recv(&mut [0; 1000]).ok()).count();
        (received as u64 == DATAGRAMS).then_some(())
    });
    let (took, left) = (began.elapsed(), waiting(slow));
    eprintln!("{DATAGRAMS} datagrams came within {took:?}, {left} still wait for the slow host");
    assert!(left > DATAGRAMS / 2, "{left} wait, after {took:?}");
}
