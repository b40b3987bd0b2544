//! Modes of single connections (`[[flow]]`).

use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::thread::sleep;
use std::time::Duration;

use holdover_testbed::Namespace;
use holdover_testbed::gateway::{Cut, Transfer, World};

use crate::Test;
use crate::process::Gateway;
use crate::watch::Watcher;

pub(crate) const TESTS: &[Test] = &[
    ("a_chosen_connection_is_frozen_and_the_others_are_buffered", a_chosen_connection_is_frozen),
    ("a_chosen_connection_of_an_observed_host_is_buffered", a_chosen_connection_is_buffered),
    ("observed_connections_are_not_changed", observed_connections_are_not_changed),
    ("datagrams_to_chosen_ports_pass", datagrams_to_chosen_ports_pass),
    ("chosen_connections_are_split", chosen_connections_are_split),
];

/// The port of the fixed host of which rules speak.
const CHOSEN: u16 = 7001;
const OTHER: u16 = 7002;

/// A download from a port of the fixed host.
fn download(world: &World, port: u16) -> Transfer {
    let bind = || TcpListener::bind(SocketAddr::new(world.fixed_address(), port)).unwrap();
    let listener = world.fixed().enter(bind).unwrap();
    let to = listener.local_addr().unwrap();
    let near = world.mobile(0).enter(|| TcpStream::connect(to).unwrap()).unwrap();
    let (far, _) = listener.accept().unwrap();
    Transfer::between(far, near, Duration::from_millis(2))
}

fn rule(mode: &str) -> String {
    format!("[[flow]]\nfixed_port = {CHOSEN}\nmode = \"{mode}\"\n")
}

/// A silent absence of 2 s.
fn absence(world: &World, gateway: &Gateway) {
    world.set_cut(Cut::Silent, true).unwrap();
    gateway.says(world.mobile_address(0), "away");
    sleep(Duration::from_secs(2));
    world.set_cut(Cut::Silent, false).unwrap();
    gateway.says(world.mobile_address(0), "present");
}

// Claim: A rule `[[flow]]` freezes one connection of a mobile host in mode `buffer`, of which the others are buffered; buffers one of a
// host in mode `observe`; leaves one of a host in mode `m-tcp` unchanged; lets datagrams to a port pass; and splits one. Transfers are
// byte-exact.
// Tests: `flow_modes::a_chosen_connection_is_buffered`, `flow_modes::observed_connections_are_not_changed`,
// `flow_modes::datagrams_to_chosen_ports_pass`, `flow_modes::chosen_connections_are_split`
fn a_chosen_connection_is_frozen(_: &Namespace) {
    let world = World::new(1).unwrap();
    let gateway = Gateway::start(world.router(), &rule("freeze"));
    let transfers = [CHOSEN, OTHER].map(|port| download(&world, port));
    transfers.iter().for_each(|transfer| transfer.await_more(1_000_000).unwrap());
    absence(&world, &gateway);
    for transfer in transfers {
        transfer.await_more(1_000_000).unwrap();
        transfer.ends_exact().unwrap();
    }
    let status = gateway.status();
    assert!(status.woken.frozen == 1 && status.woken.reopened >= 1, "{status:?}");
    assert!(status.buffer.queued > 0 && status.buffer.queued == status.buffer.released, "{status:?}");
}

fn a_chosen_connection_is_buffered(_: &Namespace) {
    let world = World::new(1).unwrap();
    let gateway = Gateway::start(world.router(), &format!("[mobiles]\nmode = \"observe\"\n{}", rule("buffer")));
    for (port, is_kept) in [(OTHER, false), (CHOSEN, true)] {
        let before = gateway.status().buffer;
        let transfer = download(&world, port);
        transfer.await_more(1_000_000).unwrap();
        absence(&world, &gateway);
        transfer.await_more(1_000_000).unwrap();
        transfer.ends_exact().unwrap();
        let status = gateway.status();
        assert_eq!(status.buffer.queued > before.queued, is_kept, "{port}: {status:?}");
        assert!(is_kept || (status.path.lowered, status.path.withheld) == (0, 0), "{port}: {status:?}");
    }
}

fn observed_connections_are_not_changed(_: &Namespace) {
    let world = World::new(1).unwrap();
    let gateway = Gateway::start(world.router(), &format!("[mobiles]\nmode = \"m-tcp\"\n{}", rule("observe")));
    let watcher = Watcher::start(&world);
    let transfer = download(&world, CHOSEN);
    transfer.await_more(1_000_000).unwrap();
    absence(&world, &gateway);
    transfer.await_more(1_000_000).unwrap();
    transfer.ends_exact().unwrap();
    let (status, watched) = (gateway.status(), watcher.ends());
    let path = &status.path;
    assert_eq!(
        (path.diverted, path.lowered, path.withheld, path.injected, path.detailed),
        (0, 0, 0, 0, 0),
        "{status:?}"
    );
    assert!(path.by_rule > 100 && watched.shut == watched.shut_by_mobile, "{status:?} {watched:?}");
}

fn datagrams_to_chosen_ports_pass(_: &Namespace) {
    let world = World::new(1).unwrap();
    let rules = format!("[[flow]]\nmobile_port = \"{CHOSEN}-{CHOSEN}\"\nmode = \"observe\"\n");
    let gateway = Gateway::start(world.router(), &rules);
    let mobile = world.mobile_address(0);
    let bind = |address| move || UdpSocket::bind(address).unwrap();
    let [chosen, other] =
        [CHOSEN, OTHER].map(|port| world.mobile(0).enter(bind(SocketAddr::new(mobile, port))).unwrap());
    let from = world.fixed().enter(bind(SocketAddr::new(world.fixed_address(), 0))).unwrap();
    // The mobile host is known from its first packet on.
    chosen.send_to(b"hello", from.local_addr().unwrap()).unwrap();
    for socket in [&chosen, &other] {
        socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    }
    world.set_cut(Cut::Silent, true).unwrap();
    // It is asked for, and lost.
    from.send_to(b"hello", SocketAddr::new(mobile, OTHER)).unwrap();
    gateway.says(mobile, "away");
    for number in 0..20_u8 {
        for port in [CHOSEN, OTHER] {
            from.send_to(&[number], SocketAddr::new(mobile, port)).unwrap();
        }
    }
    sleep(Duration::from_millis(500));
    let line = gateway.mobile(mobile).unwrap();
    assert!(line.diverts && line.waiting == 20, "{line:?}");
    world.set_cut(Cut::Silent, false).unwrap();
    let mut buffer = [0];
    for number in 0..20_u8 {
        assert_eq!((other.recv(&mut buffer).unwrap(), buffer[0]), (1, number));
    }
    chosen.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    assert!(chosen.recv(&mut buffer).is_err(), "it was kept");
}

fn chosen_connections_are_split(_: &Namespace) {
    let world = World::new(1).unwrap();
    let gateway = Gateway::start(world.router(), &rule("split"));
    let transfers = [CHOSEN, OTHER].map(|port| download(&world, port));
    transfers.iter().for_each(|transfer| transfer.await_more(1_000_000).unwrap());
    let split = gateway.status().split.unwrap();
    assert_eq!((split.open, split.total), (1, 1), "{split:?}");
    absence(&world, &gateway);
    for transfer in transfers {
        transfer.await_more(1_000_000).unwrap();
        transfer.ends_exact().unwrap();
    }
}
