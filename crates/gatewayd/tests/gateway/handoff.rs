//! Two gateways, and a mobile host that moves from one to the other.

use std::net::{SocketAddr, UdpSocket};
use std::thread::sleep;
use std::time::{Duration, Instant};

use holdover_gatewayd::status::Status;
use holdover_testbed::Namespace;
use holdover_testbed::gateway::{Cut, LIMIT, Site, Transfer};

use crate::Test;
use crate::process::Gateway;

pub(crate) const TESTS: &[Test] = &[
    ("waiting_packets_follow_the_mobile_host_to_another_gateway", waiting_packets_follow_the_host),
    ("waiting_packets_are_dropped_by_policy_and_senders_retransmit", waiting_packets_are_dropped),
    ("forged_and_recorded_datagrams_move_no_host", forged_datagrams_move_no_host),
    ("a_gateway_without_its_peer_continues", without_its_peer),
    ("an_upload_is_woken_by_the_gateway_that_its_host_has_moved_to", an_upload_is_woken),
    ("acks_are_held_back_by_the_gateway_that_a_host_has_moved_to", acks_are_held_back),
    ("connections_move_to_and_fro_with_their_host", connections_move_to_and_fro),
    ("windows_are_opened_by_the_gateway_that_a_host_leaves", windows_are_opened),
];

/// Two routers, and a mobile host at the first one.
fn pair(name: &str) -> Site {
    distant_pair(name, holdover_base::Duration::ZERO)
}

/// The same, with a round trip between the fixed host and each router.
fn distant_pair(name: &str, round_trip: holdover_base::Duration) -> Site {
    let key = std::env::temp_dir().join(format!("holdover-handoff-{name}-{}", std::process::id()));
    Site::new(2, 1, round_trip, key).unwrap()
}

pub(crate) fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(began.elapsed() < LIMIT, "not seen: {what}");
        sleep(Duration::from_millis(2));
    }
}

fn handoffs(status: &Status) -> holdover_gatewayd::HandoffCounters {
    status.handoff.unwrap()
}

// Claim: On real kernels, two gateways: of 200 datagrams and a download that wait at the first, every one comes by the second, in
// order, and the first forgets the host. 1,000 recorded, damaged and made-up datagrams move nobody. Without its peer a gateway
// goes on.
// Tests: `handoff::forged_datagrams_move_no_host`, `handoff::without_its_peer`
fn waiting_packets_follow_the_host(_: &Namespace) {
    let site = pair("follows");
    let (world, second) = (site.world(), site.router(1));
    let first = Gateway::start(world.router(), &site.handoff(0, &[1]));
    let mobile = world.mobile_address(0);
    let transfer = Transfer::start(world, 0, false).unwrap();
    transfer.await_more(500_000).unwrap();
    let bind = |address| move || UdpSocket::bind(SocketAddr::new(address, 0)).unwrap();
    let into = world.mobile(0).enter(bind(mobile)).unwrap();
    let from = world.fixed().enter(bind(world.fixed_address())).unwrap();
    into.set_nonblocking(true).unwrap();
    let other = Gateway::start(second, &site.handoff(1, &[0]));
    world.set_cut(Cut::Silent, true).unwrap();
    first.says(mobile, "away");
    for number in 0..200u32 {
        from.send_to(&number.to_be_bytes(), into.local_addr().unwrap()).unwrap();
    }
    wait_for("packets that wait", || (first.status().waiting >= 200).then_some(()));
    site.move_to(0, 1, true).unwrap();
    let began = Instant::now();
    // The mobile host sends a packet at its new place.
    into.send_to(b"here", from.local_addr().unwrap()).unwrap();
    let mut received: Vec<u32> = Vec::new();
    wait_for("what has waited", || {
        let mut buffer = [0; 16];
        while let Ok(4) = into.recv(&mut buffer) {
            received.push(u32::from_be_bytes(buffer[..4].try_into().unwrap()));
        }
        (received.len() >= 200).then_some(())
    });
    eprintln!("what waited at the first gateway came by the second one after {:?}", began.elapsed());
    assert_eq!(received, (0..200).collect::<Vec<_>>());
    transfer.await_more(500_000).unwrap();
    transfer.ends_exact().unwrap();
    let (left, came) = wait_for("the end of the handoff", || {
        let both = (handoffs(&first.status()), handoffs(&other.status()));
        (both.0.left == 1 && both.1.came >= 1).then_some(both)
    });
    assert!(left.packets_left >= 200 && left.packets_left == came.packets_came, "{left:?} {came:?}");
    // The first gateway's own claim may have been sent before the second one had started.
    assert_eq!((came.lost, left.forged, came.forged), (0, 0, 0), "{left:?} {came:?}");
    assert_eq!((first.status().waiting, first.files(), other.status().waiting, other.files()), (0, 0, 0, 0));
    assert_eq!(first.mobile(mobile), None, "the first gateway has nothing to do with it any more");
}

// Claim: With `[handoff] waiting = "drop"`, none of 200 datagrams that wait at the first gateway comes by the second, and later ones do;
// a download whose packets have waited goes on by retransmissions, within a second of the move and byte-exact.
fn waiting_packets_are_dropped(_: &Namespace) {
    let site = distant_pair("drops", ROUND_TRIP);
    let (world, mobile) = (site.world(), site.world().mobile_address(0));
    let drop = |number: usize| site.handoff(number, &[1 - number]) + "waiting = \"drop\"\n";
    let gateways = [0, 1].map(|number| Gateway::start(site.router(number), &drop(number)));
    let transfer = Transfer::start(world, 0, false).unwrap();
    transfer.await_more(BULK).unwrap();
    let bind = |address| move || UdpSocket::bind(SocketAddr::new(address, 0)).unwrap();
    let into = world.mobile(0).enter(bind(mobile)).unwrap();
    let from = world.fixed().enter(bind(world.fixed_address())).unwrap();
    into.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    world.set_cut(Cut::Silent, true).unwrap();
    gateways[0].says(mobile, "away");
    for number in 0..200u32 {
        from.send_to(&number.to_be_bytes(), into.local_addr().unwrap()).unwrap();
    }
    // The download's are among them.
    wait_for("packets that wait", || (gateways[0].status().waiting > 200).then_some(()));
    let took = transfer.resumes(|| site.move_to(0, 1, true).unwrap()).unwrap();
    let left = wait_for("the end of the handoff", || {
        Some(handoffs(&gateways[0].status())).filter(|left| left.left == 1 && left.connections_left == 1)
    });
    eprintln!("download: data {took:?} after the move; {left:?}");
    assert!(left.packets_left == 0 && left.packets_dropped > 200, "{left:?}");
    let buffer = gateways[0].status().buffer;
    assert_eq!((buffer.released, buffer.moved), (0, left.packets_dropped), "{buffer:?}");
    assert!(took < AT_ONCE, "{took:?}");
    from.send_to(&200u32.to_be_bytes(), into.local_addr().unwrap()).unwrap();
    let mut buffer = [0; 16];
    let len = into.recv(&mut buffer).unwrap();
    assert_eq!(buffer[..len], 200u32.to_be_bytes(), "the datagrams before it were dropped");
    transfer.await_more(BULK).unwrap();
    transfer.ends_exact().unwrap();
    let statuses = gateways.each_ref().map(|gateway| (gateway.status().waiting, gateway.files()));
    assert_eq!(statuses, [(0, 0); 2]);
    assert_eq!(handoffs(&gateways[1].status()).packets_came, 0);
}

fn forged_datagrams_move_no_host(_: &Namespace) {
    let site = pair("strangers");
    let (world, second) = (site.world(), site.router(1));
    let gateway = Gateway::start(world.router(), &site.handoff(0, &[1]));
    let mobile = world.mobile_address(0);
    // A datagram from the peer's address, without its key.
    let peer = second.enter(|| UdpSocket::bind(SocketAddr::new(Site::router_address(1), 4787)).unwrap()).unwrap();
    peer.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    let transfer = Transfer::start(world, 0, false).unwrap();
    transfer.await_more(200_000).unwrap();
    // Datagrams of the gateway itself, to be reflected.
    let to = SocketAddr::new(Site::router_address(0), 4787);
    let mut recorded = Vec::new();
    let mut buffer = [0; 2000];
    while let Ok((len, _)) = peer.recv_from(&mut buffer) {
        recorded.push(buffer[..len].to_vec());
    }
    assert!(!recorded.is_empty(), "it claims the mobile host of its peer");
    for round in 0..1000usize {
        let mut datagram = recorded[round % recorded.len()].clone();
        match round % 4 {
            0 => {}
            1 => {
                let at = round % datagram.len();
                datagram[at] ^= 1 << (round % 8);
            }
            2 => datagram.truncate(round % 64),
            _ => datagram = vec![round as u8; round % 1400],
        }
        peer.send_to(&datagram, to).unwrap();
        if round % 50 == 0 {
            sleep(Duration::from_millis(1));
        }
    }
    let counters = wait_for("the flood to be counted", || {
        let counters = handoffs(&gateway.status());
        (counters.forged > 500).then_some(counters)
    });
    assert_eq!((counters.left, counters.packets_left, counters.packets_came), (0, 0, 0), "{counters:?}");
    assert_eq!(gateway.mobile(mobile).unwrap().standing, "present");
    transfer.await_more(200_000).unwrap();
    transfer.ends_exact().unwrap();
}

fn without_its_peer(_: &Namespace) {
    let site = pair("alone");
    let world = site.world();
    let gateway = Gateway::start(world.router(), &site.handoff(0, &[1]));
    let transfer = Transfer::start(world, 0, false).unwrap();
    transfer.await_more(200_000).unwrap();
    world.set_cut(Cut::Silent, true).unwrap();
    gateway.says(world.mobile_address(0), "away");
    sleep(Duration::from_secs(1));
    let took = transfer.resumes(|| world.set_cut(Cut::Silent, false).unwrap()).unwrap();
    assert!(took < Duration::from_secs(2), "{took:?}");
    wait_for("the peer to be given up", || (handoffs(&gateway.status()).lost > 0).then_some(()));
    transfer.await_more(200_000).unwrap();
    transfer.ends_exact().unwrap();
    assert_eq!((gateway.status().waiting, gateway.files()), (0, 0));
}

/// Far beyond the first 150 kB, of which nothing is held.
const BULK: u64 = 2_000_000;

/// A sender without a round trip never has the 32 segments in flight for which ACKs are held back.
const ROUND_TRIP: holdover_base::Duration = holdover_base::Duration::from_millis(40);

/// A silent absence of 5 s: the mobile host has doubled its timer five times, and would wait for some seconds more.
const ABSENCE: Duration = Duration::from_secs(5);

/// Sooner than that timer.
const AT_ONCE: Duration = Duration::from_secs(1);

/// Later than that timer. A BBR sender whose last packets were lost may wait for its loss probe, for 1.5 s, although it was woken at once
/// (docs/limits.md).
const OWN_TIMER: Duration = Duration::from_secs(10);

/// Moves the mobile host to a router after [`ABSENCE`], with the network's routes. Returns how long after that the transfer resumes.
fn moves_after_an_absence(site: &Site, transfer: &Transfer, from: &Gateway, to: usize) -> Duration {
    let world = site.world();
    site.leave(0).unwrap();
    from.says(world.mobile_address(0), "away");
    sleep(ABSENCE);
    transfer.resumes(|| site.move_to(0, to, true).unwrap()).unwrap()
}

// Claim: On real kernels, two gateways: an upload resumes at the second after an absence of 5 s at the first, which hands on a record of
// the connection and keeps none. Where that takes less than 1 s, the second has woken it by the record.
fn an_upload_is_woken(_: &Namespace) {
    let site = distant_pair("upload", ROUND_TRIP);
    let world = site.world();
    let first = Gateway::start(world.router(), &site.handoff(0, &[1]));
    let second = Gateway::start(site.router(1), &site.handoff(1, &[0]));
    let transfer = Transfer::start(world, 0, true).unwrap();
    transfer.await_more(BULK).unwrap();
    world.set_cut(Cut::Silent, true).unwrap();
    first.says(world.mobile_address(0), "away");
    sleep(ABSENCE);
    let took = transfer.resumes(|| site.move_to(0, 1, true).unwrap()).unwrap();
    let (left, came) = (first.status(), second.status());
    eprintln!("upload: data {took:?} after the move; {:?}", came.woken);
    assert!(took < OWN_TIMER, "{took:?}");
    assert_eq!(handoffs(&left).connections_left, 1, "{left:?}");
    if took < AT_ONCE {
        assert_eq!(handoffs(&came).connections_came, 1, "{came:?}");
        assert!(came.woken.released + came.woken.poked > 0, "{came:?}");
    }
    transfer.await_more(BULK).unwrap();
    transfer.ends_exact().unwrap();
    assert_eq!((handoffs(&first.status()).connections_lost, handoffs(&came).forged), (0, 0));
}

// Claim: After a move of a download the second gateway holds ACKs back, for which it has to know the window scale of SYNs that only the
// first one has seen.
fn acks_are_held_back(_: &Namespace) {
    let site = distant_pair("scale", ROUND_TRIP);
    let world = site.world();
    let first = Gateway::start(world.router(), &site.handoff(0, &[1]));
    let second = Gateway::start(site.router(1), &site.handoff(1, &[0]));
    let transfer = Transfer::start(world, 0, false).unwrap();
    transfer.await_more(BULK).unwrap();
    let held = |gateway: &Gateway| {
        let path = gateway.status().path;
        path.lowered + path.withheld
    };
    assert!(held(&first) > 20, "{:?}", first.status());
    world.set_cut(Cut::Silent, true).unwrap();
    first.says(world.mobile_address(0), "away");
    sleep(Duration::from_secs(1));
    let took = transfer.resumes(|| site.move_to(0, 1, true).unwrap()).unwrap();
    eprintln!("download: data {took:?} after the move; {:?}", second.status().woken);
    assert_eq!(handoffs(&first.status()).connections_left, 1);
    // Nothing is held in the first second after a return.
    wait_for("ACKs that are held back", || (held(&second) > 20).then_some(()));
    transfer.await_more(BULK).unwrap();
    transfer.ends_exact().unwrap();
}

// Claim: With mode `freeze`, the gateway that a mobile host leaves opens the windows that it has shut during the absence, and hands the
// connection on; the download goes on at the second one, byte-exact.
fn windows_are_opened(_: &Namespace) {
    let site = distant_pair("windows", ROUND_TRIP);
    let world = site.world();
    let freeze = |sections: String| sections + "[mobiles]\nmode = \"freeze\"\n";
    let first = Gateway::start(world.router(), &freeze(site.handoff(0, &[1])));
    let second = Gateway::start(site.router(1), &freeze(site.handoff(1, &[0])));
    let transfer = Transfer::start(world, 0, false).unwrap();
    transfer.await_more(BULK).unwrap();
    world.set_cut(Cut::Silent, true).unwrap();
    first.says(world.mobile_address(0), "away");
    wait_for("a window that is shut", || (first.status().woken.frozen > 0).then_some(()));
    sleep(Duration::from_secs(1));
    let took = transfer.resumes(|| site.move_to(0, 1, true).unwrap()).unwrap();
    let left = wait_for("the end of the handoff", || {
        Some(first.status()).filter(|status| handoffs(status).left > 0 && handoffs(status).connections_left > 0)
    });
    eprintln!("download: data {took:?} after the move; {:?}", left.woken);
    assert_eq!((left.woken.frozen, left.woken.reopened), (1, 1));
    transfer.await_more(BULK).unwrap();
    transfer.ends_exact().unwrap();
    assert_eq!(handoffs(&second.status()).forged, 0);
}

// Claim: A mobile host that moves between two gateways four times takes its upload along: each move hands the connection on once, the
// transfer resumes within 1 s of at least three of four moves after 5 s, and its bytes are exact.
fn connections_move_to_and_fro(_: &Namespace) {
    let site = distant_pair("fro", ROUND_TRIP);
    let world = site.world();
    let gateways = [0, 1].map(|number| Gateway::start(site.router(number), &site.handoff(number, &[1 - number])));
    let transfer = Transfer::start(world, 0, true).unwrap();
    transfer.await_more(BULK).unwrap();
    let mut at_once = 0;
    for to in [1, 0, 1, 0] {
        let took = moves_after_an_absence(&site, &transfer, &gateways[1 - to], to);
        eprintln!("upload: data {took:?} after the move to {to}");
        assert!(took < OWN_TIMER, "{took:?}");
        at_once += u32::from(took < AT_ONCE);
        transfer.await_more(BULK).unwrap();
    }
    assert!(at_once >= 3, "{at_once} of four moves");
    transfer.ends_exact().unwrap();
    let left = gateways.each_ref().map(|gateway| handoffs(&gateway.status()).connections_left);
    assert_eq!(left, [2, 2]);
}
