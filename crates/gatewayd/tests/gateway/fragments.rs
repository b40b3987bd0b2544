//! Fragments of IP packets: they pass, and wait, as they came.

use std::net::{SocketAddr, UdpSocket};
use std::thread::sleep;
use std::time::Duration;

use holdover_testbed::Namespace;
use holdover_testbed::gateway::{Cut, Transfer, World};

use crate::Test;
use crate::handoff::wait_for;
use crate::hosts::{SOON, counted, set};
use crate::process::Gateway;

pub(crate) const TESTS: &[Test] = &[
    ("fragments_of_datagrams_are_kept_in_order", |_| datagrams(&World::new(1).unwrap(), "Ip")),
    ("fragments_of_datagrams_are_kept_in_order_over_ipv6", |_| datagrams(&World::v6().unwrap(), "Ip6")),
    ("transfers_in_fragments_survive_absences", transfers),
];

/// A fragmented datagram at an MTU of 1,500, and one that is not.
const LENGTHS: [usize; 2] = [4000, 100];
/// The fragments of the first.
const PIECES: i64 = 3;

/// The datagrams of a round: these, by turns.
const DATAGRAMS: usize = 50;

/// A datagram of which each byte depends on its number and its place.
fn datagram(number: usize) -> Vec<u8> {
    let mut bytes: Vec<u8> = (0..LENGTHS[number % 2]).map(|place| (place ^ place >> 8 ^ number) as u8).collect();
    bytes[..4].copy_from_slice(&(number as u32).to_be_bytes());
    bytes
}

fn send(from: &UdpSocket, to: SocketAddr, numbers: std::ops::Range<usize>) {
    for number in numbers {
        from.send_to(&datagram(number), to).unwrap();
    }
}

#[track_caller]
fn arrive_in_order(into: &UdpSocket, numbers: std::ops::Range<usize>) {
    let mut buffer = [0; 8000];
    for number in numbers {
        let len = into.recv(&mut buffer).unwrap();
        let found = u32::from_be_bytes(buffer[..4].try_into().unwrap());
        assert_eq!((found as usize, len), (number, LENGTHS[number % 2]));
        assert!(buffer[..len] == datagram(number), "datagram {number} was changed");
    }
}

// Claim: Fragments of datagrams wait and pass as they came, over IPv4 and IPv6: each is delivered once and in order, none is
// joined with another or dropped, and those of a mobile host pass. Downloads whose TCP segments the router fragments survive
// absences of 1.5 s, byte-exact, with `buffer`, `m-tcp` and `freeze`.
// Tests: `fragments::transfers`
fn datagrams(world: &World, family: &str) {
    let gateway = Gateway::start(world.router(), "");
    let mobile = world.mobile_address(0);
    let bind = |address| {
        move || {
            let socket = UdpSocket::bind(SocketAddr::new(address, 0)).unwrap();
            socket.set_read_timeout(Some(SOON)).unwrap();
            // By default the kernel has room for some twenty of the long ones.
            rustix::net::sockopt::set_socket_recv_buffer_size_force(&socket, 64 << 20).unwrap();
            socket
        }
    };
    let near = world.mobile(0).enter(bind(mobile)).unwrap();
    let far = world.fixed().enter(bind(world.fixed_address())).unwrap();
    let (to_near, to_far) = (near.local_addr().unwrap(), far.local_addr().unwrap());
    // The neighbours are resolved by the first one.
    for numbers in [0..1, 1..DATAGRAMS] {
        send(&near, to_far, numbers.clone());
        arrive_in_order(&far, numbers);
    }
    let count = |namespace: &Namespace, name: &str| counted(namespace, &format!("{family}{name}"));
    let [made, came, joined] =
        [count(world.fixed(), "FragCreates"), count(world.mobile(0), "ReasmReqds"), count(world.mobile(0), "ReasmOKs")];

    world.set_cut(Cut::Carrier, true).unwrap();
    gateway.says(mobile, "away");
    send(&far, to_near, 0..DATAGRAMS);
    let packets = DATAGRAMS as u64 / 2 * (PIECES as u64 + 1);
    wait_for("all fragments to wait", || (gateway.status().waiting >= packets).then_some(()));
    world.set_cut(Cut::Carrier, false).unwrap();
    gateway.says(mobile, "present");
    send(&far, to_near, DATAGRAMS..2 * DATAGRAMS);
    arrive_in_order(&near, 0..2 * DATAGRAMS);
    send(&near, to_far, DATAGRAMS..2 * DATAGRAMS);
    arrive_in_order(&far, DATAGRAMS..2 * DATAGRAMS);

    let long = DATAGRAMS as i64;
    assert_eq!(count(world.fixed(), "FragCreates") - made, long * PIECES);
    assert_eq!(count(world.mobile(0), "ReasmReqds") - came, long * PIECES, "as many fragments as were sent");
    assert_eq!(count(world.mobile(0), "ReasmOKs") - joined, long);
    assert_eq!(count(world.mobile(0), "ReasmFails"), 0);
    let status = gateway.status();
    assert!(status.buffer.queued >= packets && status.buffer.released == status.buffer.queued, "{status:?}");
}

/// The fixed host permits fragments, and the router's link to the mobile host has a small MTU. The gateway's programs read no header of
/// TCP in fragments: ACKs are of data that they have not seen.
fn transfers(_: &Namespace) {
    for mode in ["buffer", "m-tcp", "freeze"] {
        let world = World::with_round_trip(1, holdover_base::Duration::from_millis(40)).unwrap();
        set(world.fixed(), "net.ipv4.ip_no_pmtu_disc", "1");
        world.set_mobile_mtu(600).unwrap();
        let gateway = Gateway::start(world.router(), &format!("[mobiles]\nmode = \"{mode}\"\n"));
        let transfer = Transfer::start(&world, 0, false).unwrap();
        for cut in [Cut::Silent, Cut::Carrier] {
            transfer.await_more(1_000_000).unwrap();
            world.set_cut(cut, true).unwrap();
            gateway.says(world.mobile_address(0), "away");
            sleep(Duration::from_millis(1500));
            let took = transfer.resumes(|| world.set_cut(cut, false).unwrap()).unwrap();
            eprintln!("{mode}, {cut:?} cut: data in fragments {took:?} after the return");
            gateway.says(world.mobile_address(0), "present");
            transfer.await_more(1_000_000).unwrap();
        }
        transfer.ends_exact().unwrap();
        let status = gateway.status();
        let joined = counted(world.mobile(0), "IpReasmOKs");
        assert!(joined > 1000, "{mode}: {joined} packets came in fragments");
        assert_eq!(status.buffer.queued > 0, mode != "freeze", "{mode}: {status:?}");
    }
}
