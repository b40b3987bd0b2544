//! Mode `thesis`: signs of the mobile host's kernel (a window of zero) and in its packets (the reserved flag of IPv4).

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{JoinHandle, sleep};
use std::time::{Duration, Instant};

use holdover_gatewayd::control::Standing;
use holdover_testbed::Namespace;
use holdover_testbed::gateway::{Cut, World};
use holdover_wire::{Packet, Udp};
use socket2::{Domain, Socket, Type};

use crate::Test;
use crate::handoff::wait_for;
use crate::hosts::raw;
use crate::modes::download_over_silent_cuts;
use crate::process::Gateway;

pub(crate) const TESTS: &[Test] = &[
    ("a_window_of_zero_blocks_and_an_open_one_releases", a_window_of_zero_blocks),
    ("a_window_that_stays_shut_blocks_for_a_while_only", a_warning_lapses),
    ("the_flag_blocks_and_goes_with_released_packets", the_flag_blocks),
    ("absences_without_a_sign_are_survived", absences_without_a_sign),
    ("a_host_that_warns_is_found_silent_beside_thousands_of_absent_ones", a_host_that_warns_is_found_silent),
];

/// Far more than the receive buffer of [`Unread`].
const BYTES: usize = 4_000_000;

/// A download whose receiver does not read: its kernel shuts the window.
struct Unread {
    near: TcpStream,
    sent: Arc<AtomicU64>,
    sender: JoinHandle<()>,
}

impl Unread {
    fn start(world: &World) -> Self {
        let bind = || TcpListener::bind(SocketAddr::new(world.fixed_address(), 0)).unwrap();
        let listener = world.fixed().enter(bind).unwrap();
        let to = listener.local_addr().unwrap();
        let near = world.mobile(0).enter(|| TcpStream::connect(to).unwrap()).unwrap();
        rustix::net::sockopt::set_socket_recv_buffer_size(&near, 65_536).unwrap();
        let (mut far, _) = listener.accept().unwrap();
        let sent = Arc::new(AtomicU64::new(0));
        let counter = Arc::clone(&sent);
        let sender = std::thread::spawn(move || {
            for block in vec![7; BYTES].chunks(10_000) {
                far.write_all(block).unwrap();
                counter.fetch_add(block.len() as u64, Ordering::SeqCst);
            }
        });
        Self { near, sent, sender }
    }

    /// Reads everything.
    fn ends(mut self) {
        let mut all = Vec::new();
        self.near.read_to_end(&mut all).unwrap();
        self.sender.join().unwrap();
        assert_eq!((all.len(), all.iter().all(|&byte| byte == 7)), (BYTES, true));
        assert_eq!(self.sent.load(Ordering::SeqCst), BYTES as u64);
    }
}

/// A socket of each host.
fn datagrams(world: &World) -> [UdpSocket; 2] {
    let bind = |address: IpAddr| move || UdpSocket::bind(SocketAddr::new(address, 0)).unwrap();
    let near = world.mobile(0).enter(bind(world.mobile_address(0))).unwrap();
    let far = world.fixed().enter(bind(world.fixed_address())).unwrap();
    for socket in [&near, &far] {
        socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    }
    [near, far]
}

fn passes(from: &UdpSocket, to: &UdpSocket) {
    from.send_to(b"hello", to.local_addr().unwrap()).unwrap();
    assert_eq!(to.recv(&mut [0; 16]).unwrap(), 5);
}

// Claim: Mode `thesis` on real kernels: a window of zero of the mobile host makes it away by `warning`, TCP for it is kept,
// datagrams pass in both directions and change nothing, and an open window releases what was kept, in bursts, byte-exact.
// Without another sign of absence a warning lapses. No ACK is changed.
// Tests: `thesis::a_warning_lapses`
fn a_window_of_zero_blocks(_: &Namespace) {
    let world = World::new(1).unwrap();
    let gateway = Gateway::start(world.router(), "[mobiles]\nmode = \"thesis\"\n");
    let mobile = world.mobile_address(0);
    let [near, far] = datagrams(&world);
    passes(&near, &far);
    let unread = Unread::start(&world);
    gateway.says(mobile, "away");
    // A probe of the fixed host.
    wait_for("a packet that waits", || (gateway.status().waiting > 0).then_some(()));
    passes(&far, &near);
    passes(&near, &far);
    sleep(Duration::from_secs(1));
    let line = gateway.mobile(mobile).unwrap();
    assert_eq!((line.standing.as_str(), line.away_by.as_slice()), ("away", &["warning".to_owned()][..]), "{line:?}");
    assert!(line.diverts && line.waiting > 0, "{line:?}");
    unread.ends();
    gateway.says(mobile, "present");
    let status = wait_for("the end of the queue", || Some(gateway.status()).filter(|status| status.waiting == 0));
    let buffer = &status.buffer;
    assert!(buffer.warnings >= 1 && buffer.queued > 0 && buffer.queued == buffer.released, "{status:?}");
    let path = &status.path;
    assert_eq!((path.lowered, path.withheld, path.injected), (0, 0, 0), "{status:?}");
}

fn a_warning_lapses(_: &Namespace) {
    let world = World::new(1).unwrap();
    let sections = "[mobiles]\nmode = \"thesis\"\n[thesis]\nlongest_warning = \"1 s\"\n";
    let gateway = Gateway::start(world.router(), sections);
    let mobile = world.mobile_address(0);
    let unread = Unread::start(&world);
    gateway.says(mobile, "away");
    gateway.says(mobile, "present");
    // The window is still shut, and the mobile host answers probes with it.
    sleep(Duration::from_secs(2));
    let status = gateway.status();
    assert_eq!((status.away, status.buffer.warnings), (0, 1), "{status:?}");
    unread.ends();
}

/// Each of so many absent hosts is probed every 2 s.
const ABSENT: u16 = 4000;

// Claim: A mobile host that has warned, and then leaves, is found silent within 3 s, although 4,000 others are away, each of which is probed
// every 2 s.
fn a_host_that_warns_is_found_silent(_: &Namespace) {
    let world = World::new(1).unwrap();
    let sections = "[mobiles]\nmode = \"thesis\"\nnetworks = [\"10.2.0.0/16\"]\n[thesis]\nlongest_warning = \"60 s\"\n";
    let gateway = Gateway::start(world.router(), sections);
    let mobile = world.mobile_address(0);
    for number in 0..ABSENT {
        let [high, low] = number.to_be_bytes();
        gateway.report([10, 2, 100 + high, low].into(), Standing::Away).unwrap();
    }
    let unread = Unread::start(&world);
    gateway.says(mobile, "away");
    sleep(Duration::from_secs(1));
    assert_eq!(gateway.mobile(mobile).unwrap().away_by, ["warning"]);
    world.set_cut(Cut::Silent, true).unwrap();
    let began = Instant::now();
    wait_for("its silence", || gateway.mobile(mobile).unwrap().away_by.contains(&"silence".to_owned()).then_some(()));
    let took = began.elapsed();
    eprintln!("found silent after {took:?}");
    world.set_cut(Cut::Silent, false).unwrap();
    assert!(took < Duration::from_secs(3), "{took:?}");
    unread.ends();
}

/// A socket that receives IPv4 packets of a protocol.
fn receiver(namespace: &Namespace, protocol: i32) -> Socket {
    let socket = raw(namespace, protocol);
    socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    socket
}

/// Whether the next packet to a port has the reserved flag. The ports of TCP and UDP are at the same place.
fn is_flagged(socket: &mut Socket, port: u16) -> bool {
    let mut buffer = [0; 2000];
    loop {
        let len = socket.read(&mut buffer).unwrap();
        let header = usize::from(buffer[0] & 0xf) * 4;
        if len >= header + 4 && buffer[header + 2..header + 4] == port.to_be_bytes() {
            return buffer[6] & 0x80 != 0;
        }
    }
}

// Claim: With `sign = "ip-flag"` the reserved flag of a mobile host's IPv4 packet makes it away by `warning`, and does not reach the
// fixed host; a packet without it releases what was kept, with the flag.
fn the_flag_blocks(_: &Namespace) {
    let world = World::new(1).unwrap();
    let gateway = Gateway::start(world.router(), "[mobiles]\nmode = \"thesis\"\n[thesis]\nsign = \"ip-flag\"\n");
    let mobile = world.mobile_address(0);
    let [near, far] = datagrams(&world);
    passes(&near, &far);
    let mut at_fixed = receiver(world.fixed(), libc::IPPROTO_UDP);
    let mut at_mobile = receiver(world.mobile(0), libc::IPPROTO_TCP);
    let sender = raw(world.mobile(0), libc::IPPROTO_RAW);
    let port = far.local_addr().unwrap().port();
    let udp = Udp { src_port: near.local_addr().unwrap().port(), dst_port: port, payload: vec![0; 8].into() };
    let packet = Packet { reserved_flag: true, ..Packet::new(mobile, world.fixed_address(), udp) };
    sender.send_to(&packet.emit().unwrap(), &SocketAddr::new(world.fixed_address(), 0).into()).unwrap();
    gateway.says(mobile, "away");
    assert_eq!(far.recv(&mut [0; 16]).unwrap(), 8);
    assert!(!is_flagged(&mut at_fixed, port), "the flag was passed on");

    // A SYN of the fixed host waits, and a datagram passes.
    let bind = || TcpListener::bind(SocketAddr::new(mobile, 0)).unwrap();
    let listener = world.mobile(0).enter(bind).unwrap();
    let to = listener.local_addr().unwrap();
    let connect = || {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket.set_nonblocking(true).unwrap();
        // It is in progress.
        let _ = socket.connect(&to.into());
        socket
    };
    let connecting = world.fixed().enter(connect).unwrap();
    wait_for("a SYN that waits", || (gateway.status().waiting > 0).then_some(()));
    passes(&far, &near);
    // Any packet without the flag shows that the link works.
    passes(&near, &far);
    gateway.says(mobile, "present");
    wait_for("a connection", || connecting.peer_addr().ok());
    assert!(is_flagged(&mut at_mobile, to.port()), "released without the flag");
}

// Claim: In mode `thesis`, downloads over silent cuts of 0.7 and 3 s without a sign of the mobile host go on byte-exact, and
// what was kept is released in order.
fn absences_without_a_sign(_: &Namespace) {
    let world = World::new(1).unwrap();
    let gateway = Gateway::start(world.router(), "[mobiles]\nmode = \"thesis\"\n");
    download_over_silent_cuts(&world, &gateway);
    let status = wait_for("the end of the queue", || Some(gateway.status()).filter(|status| status.waiting == 0));
    let (path, buffer) = (&status.path, &status.buffer);
    assert!(buffer.queued > 0 && buffer.queued == buffer.released, "{status:?}");
    assert_eq!((path.tcp, path.lowered, path.withheld, path.injected), (0, 0, 0, 0), "{status:?}");
}
