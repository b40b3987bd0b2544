//! Explicit congestion notification (RFC 3168): marks and echoes pass as they are, by way of the buffer and in ACKs that are
//! held back.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::thread::sleep;
use std::time::Duration;

use holdover_host::packet_listener::PacketListener;
use holdover_testbed::Namespace;
use holdover_testbed::gateway::{Cut, Transfer, World};
use socket2::SockRef;

use crate::Test;
use crate::handoff::wait_for;
use crate::hold_back::ROUND_TRIP;
use crate::hosts::{counted, set};
use crate::nft;
use crate::process::Gateway;

pub(crate) const TESTS: &[Test] = &[
    ("the_traffic_class_of_what_waits_is_kept", |_| traffic_class(&World::new(1).unwrap())),
    ("the_traffic_class_of_what_waits_is_kept_over_ipv6", |_| traffic_class(&World::v6().unwrap())),
    ("echoes_of_marks_in_held_acks_of_a_download", |_| echoes("buffer", false)),
    ("echoes_of_marks_in_held_acks_of_an_upload", |_| echoes("buffer", true)),
    ("echoes_of_marks_in_acks_lowered_by_a_byte", |_| echoes("m-tcp", false)),
];

/// Marks one of a hundred packets that leave: few enough that more than 32 segments stay in flight.
const MARKS: &str = "
    counter marked { }
    chain leaving {
        type filter hook postrouting priority mangle
        ip ecn { ect0, ect1 } numgen inc mod 100 == 0 ip ecn set ce counter name marked
    }";

/// The traffic class (with ECN) and the payload of a UDP packet of this host.
fn read(from: IpAddr, packet: &[u8]) -> Option<(u8, u8)> {
    let udp = match from {
        IpAddr::V4(from) => {
            (packet.first()? >> 4 == 4 && *packet.get(9)? == 17 && packet.get(12..16)? == from.octets()).then_some(20)
        }
        IpAddr::V6(from) => {
            (packet.first()? >> 4 == 6 && *packet.get(6)? == 17 && packet.get(8..24)? == from.octets()).then_some(40)
        }
    }?;
    let class = if from.is_ipv4() { packet[1] } else { packet[0] << 4 | packet[1] >> 4 };
    Some((class, *packet.get(udp + 8)?))
}

// Claim: Datagrams with each of the 256 traffic classes (DSCP and ECN) arrive with theirs, by way of the buffer and after the
// return, over IPv4 and IPv6. Echoes of marks (ECE) reach the sender in ACKs that are held back, of downloads and uploads with
// `buffer` and of downloads with `m-tcp`, before and after an absence, and transfers are byte-exact. The latter needs `nft`.
// Tests: `ecn::echoes`
fn traffic_class(world: &World) {
    let gateway = Gateway::start(world.router(), "");
    let (fixed, mobile) = (world.fixed_address(), world.mobile_address(0));
    let bind = |address| move || UdpSocket::bind(SocketAddr::new(address, 0)).unwrap();
    let into = world.mobile(0).enter(bind(mobile)).unwrap();
    let from = world.fixed().enter(bind(fixed)).unwrap();
    let heard = world.mobile(0).enter(|| PacketListener::open("eth0").unwrap()).unwrap();
    // The mobile host is known from its first packet on.
    into.send_to(b"hello", from.local_addr().unwrap()).unwrap();
    wait_for("the mobile host", || gateway.mobile(mobile));
    let to = into.local_addr().unwrap();
    let send_all = || {
        for class in 0..=255 {
            let socket = SockRef::from(&from);
            let set = if fixed.is_ipv4() { socket.set_tos_v4(class) } else { socket.set_tclass_v6(class) };
            set.unwrap();
            from.send_to(&[class as u8], to).unwrap();
        }
    };
    world.set_cut(Cut::Carrier, true).unwrap();
    gateway.says(mobile, "away");
    send_all();
    wait_for("packets that wait", || (gateway.status().waiting >= 256).then_some(()));
    world.set_cut(Cut::Carrier, false).unwrap();
    gateway.says(mobile, "present");
    send_all();
    let mut buffer = [0; 2000];
    let mut found = Vec::new();
    while found.len() < 512 {
        let Some(heard) = heard.receive(&mut buffer, holdover_base::Duration::from_secs(2)).unwrap() else { break };
        found.extend(read(fixed, &buffer[..heard.len]));
    }
    // If the kernel moves the daemon to another processor, a veth pair delivers from the queues of both at once.
    found.sort_unstable();
    let expected: Vec<_> = (0..=255).flat_map(|class| [(class, class); 2]).collect();
    assert_eq!(found, expected, "{:?}", gateway.status());
    let status = gateway.status();
    assert!(status.buffer.released >= 256, "{status:?}");
}

fn echoes(mode: &str, is_upload: bool) {
    if let Err(missing) = nft::find() {
        return holdover_testbed::harness::skip(missing);
    }
    let world = World::without_ethernet(ROUND_TRIP).unwrap();
    let (fixed, mobile) = (world.fixed(), world.mobile(0));
    let (sender, receiver) = if is_upload { (mobile, fixed) } else { (fixed, mobile) };
    [fixed, mobile].into_iter().for_each(|host| set(host, "net.ipv4.tcp_ecn", "1"));
    nft::load(sender, MARKS);
    let echoed = |sender: &Namespace| counted(sender, "TcpExtTCPDeliveredCE");
    let gateway = Gateway::start(world.router(), &format!("[mobiles]\nmode = \"{mode}\"\n"));
    let transfer = Transfer::start(&world, 0, is_upload).unwrap();
    transfer.await_more(4_000_000).unwrap();
    let (present, before) = (gateway.status(), echoed(sender));
    assert!(present.path.lowered + present.path.withheld > 20, "{present:?}");
    assert!(before > 0 && counted(receiver, "IpExtInCEPkts") > 0, "{before} echoes");

    // It is found silent only if it has answered before.
    let address = world.mobile_address(0);
    wait_for("an answer to an echo request", || gateway.mobile(address)?.answers_within_s);
    world.set_cut(Cut::Silent, true).unwrap();
    gateway.says(address, "away");
    sleep(Duration::from_millis(1500));
    let took = transfer.resumes(|| world.set_cut(Cut::Silent, false).unwrap()).unwrap();
    transfer.await_more(4_000_000).unwrap();
    let (after, marked) = (echoed(sender), nft::packets(sender, "marked"));
    eprintln!(
        "{mode}, upload: {is_upload}: data {took:?} after the return; {marked} packets marked, {after} segments echoed"
    );
    assert!(after > before, "{after} echoes, {before} before the absence");
    transfer.ends_exact().unwrap();
}
