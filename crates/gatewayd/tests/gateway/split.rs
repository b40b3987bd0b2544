//! Mode `split`: connections that end at the gateway.

mod lifetime;

use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::thread::{sleep, spawn};
use std::time::{Duration, Instant};

use holdover_gatewayd::SplitStatus;
use holdover_host::{Netlink, Route};
use holdover_testbed::Namespace;
use holdover_testbed::gateway::{Cut, Transfer, World};
use holdover_wire::{Flags, Packet, Segment, transport_checksum};
use rustix::process::Signal;
use socket2::{Domain, Protocol, Socket, Type};

use crate::Test;
use crate::hosts::raw;
use crate::process::Gateway;
use crate::signed::connect_signed;

pub(crate) const TESTS: &[Test] = &[
    ("both_ends_see_each_others_addresses", |_| addresses_are_kept(&World::new(1).unwrap())),
    ("both_ends_see_each_others_addresses_over_ipv6", |_| addresses_are_kept(&World::v6().unwrap())),
    ("each_network_is_split_or_not", each_network),
    ("a_refused_connection_is_refused_to_the_client", a_refused_connection_is_refused_to_the_client),
    ("an_unreachable_server_is_unreachable_for_the_client", an_unreachable_server_is_reported_to_the_client),
    ("silence_is_silence_for_the_client", silence),
    ("one_half_may_close_first", half_close),
    ("a_reset_is_passed_on", reset),
    ("a_thousand_connections", a_thousand),
    ("transfers_resume_after_absences", absences),
    ("uploads_resume_after_the_carrier_was_lost", |_| after_carrier(&World::new(1).unwrap())),
    ("uploads_over_ipv6_resume_after_the_carrier_was_lost", |_| after_carrier(&World::v6().unwrap())),
    ("a_receiver_may_pause_for_longer_than_the_user_timeout", pause),
    ("an_end_that_does_not_answer_is_given_up", gone),
    ("connections_closed_by_both_ends_are_delivered_before_a_stop", closing),
    ("listeners_of_the_router_keep_their_packets", listeners_of_the_router),
    ("a_receiver_that_does_not_read_stops_the_sender", back_pressure),
    ("a_killed_daemon_blocks_nothing", lifetime::killed),
    ("a_daemon_that_hangs_splits_nothing_more", lifetime::hangs),
    ("told_to_stop_it_waits_for_connections", lifetime::told_to_stop),
    ("connections_older_than_the_daemon_go_on", lifetime::older),
    ("above_the_limit_connections_pass", above_the_limit),
    ("connections_that_cannot_be_split_pass", cannot_be_split),
    ("garbage_does_no_harm", garbage),
];

const SPLIT: &str = "[mobiles]\nmode = \"split\"\n";

/// Generous, for a slow machine.
const SOON: Duration = Duration::from_secs(20);

fn split(gateway: &Gateway) -> SplitStatus {
    gateway.status().split.unwrap()
}

/// Waits until the counters are as expected.
#[track_caller]
fn becomes(gateway: &Gateway, what: &str, is: impl Fn(&SplitStatus) -> bool) -> SplitStatus {
    let began = Instant::now();
    loop {
        let status = split(gateway);
        if is(&status) {
            return status;
        }
        assert!(began.elapsed() < SOON, "{what}: {status:?}");
        sleep(Duration::from_millis(10));
    }
}

fn listen(host: &Namespace, address: IpAddr) -> (TcpListener, SocketAddr) {
    let listener = host.enter(|| TcpListener::bind((address, 0)).unwrap()).unwrap();
    let at = listener.local_addr().unwrap();
    (listener, at)
}

fn connect(host: &Namespace, to: SocketAddr) -> io::Result<TcpStream> {
    let stream = host.enter(|| TcpStream::connect_timeout(&to, SOON)).unwrap()?;
    stream.set_read_timeout(Some(SOON))?;
    stream.set_write_timeout(Some(SOON))?;
    Ok(stream)
}

/// A connection from the mobile host: its end, and the fixed host's.
fn connected(world: &World) -> (TcpStream, TcpStream) {
    let (listener, at) = listen(world.fixed(), world.fixed_address());
    let near = connect(world.mobile(0), at).unwrap();
    let (far, _) = listener.accept().unwrap();
    far.set_read_timeout(Some(SOON)).unwrap();
    (near, far)
}

#[track_caller]
fn talks(near: &mut TcpStream, far: &mut TcpStream) {
    let mut got = [0; 4];
    near.write_all(b"ping").unwrap();
    far.read_exact(&mut got).unwrap();
    assert_eq!(&got, b"ping");
    far.write_all(b"pong").unwrap();
    near.read_exact(&mut got).unwrap();
    assert_eq!(&got, b"pong");
}

#[track_caller]
fn is_reset(stream: &mut TcpStream) {
    let error = stream.read(&mut [0]).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ConnectionReset, "{error}");
}

/// The mobile host must be known before a connection to it can be split.
fn meet(world: &World) {
    let (_near, _far) = connected(world);
}

// Claim: Mode `split`: both ends see each other's addresses and ports, over IPv4 and IPv6, whichever opens the connection; a mode
// of one network applies to it alone.
// Tests: `split::each_network`
fn addresses_are_kept(world: &World) {
    let gateway = Gateway::start(world.router(), SPLIT);
    for (client, client_at, server, server_at) in [
        (world.mobile(0), world.mobile_address(0), world.fixed(), world.fixed_address()),
        (world.fixed(), world.fixed_address(), world.mobile(0), world.mobile_address(0)),
    ] {
        let (listener, at) = listen(server, server_at);
        let mut near = connect(client, at).unwrap();
        let (mut far, seen) = listener.accept().unwrap();
        assert_eq!((near.peer_addr().unwrap(), far.local_addr().unwrap()), (at, at));
        assert_eq!((seen.ip(), seen), (client_at, near.local_addr().unwrap()));
        talks(&mut near, &mut far);
    }
    let is_done = |status: &SplitStatus| status.total == 2 && status.open == 0 && status.pending == 0;
    let bytes = |status: &SplitStatus| (status.to_mobile_bytes, status.from_mobile_bytes);
    let status = becomes(&gateway, "two", |status| is_done(status) && bytes(status) == (8, 8));
    assert_eq!(status.unsplit, Default::default());
}

fn each_network(_: &Namespace) {
    let world = World::new(2).unwrap();
    let sections = format!("[mobiles.modes]\n\"{}\" = \"split\"\n", world.mobile_address(1));
    let gateway = Gateway::start(world.router(), &sections);
    let (listener, at) = listen(world.fixed(), world.fixed_address());
    for (mobile, total) in [(0, 0), (1, 1)] {
        let mut near = connect(world.mobile(mobile), at).unwrap();
        talks(&mut near, &mut listener.accept().unwrap().0);
        assert_eq!(split(&gateway).total, total);
    }
}

// Claim: A client is refused, unreachable or left without an answer as it would be without the gateway, and is not accepted
// before the far end has answered.
// Tests: `split::an_unreachable_server_is_reported_to_the_client`, `split::silence`
fn a_refused_connection_is_refused_to_the_client(_: &Namespace) {
    let world = World::new(1).unwrap();
    let gateway = Gateway::start(world.router(), SPLIT);
    meet(&world);
    let ends = [(world.mobile(0), world.fixed_address()), (world.fixed(), world.mobile_address(0))];
    for (host, to) in ends {
        let began = Instant::now();
        let error = connect(host, SocketAddr::new(to, 9)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused, "{error}");
        assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
    }
    // The counters are published once a round, after the client has heard of it.
    becomes(&gateway, "two refused", |status| (status.refused, status.pending) == (2, 0));
}

fn an_unreachable_server_is_reported_to_the_client(_: &Namespace) {
    let world = World::new(1).unwrap();
    let gateway = Gateway::start(world.router(), SPLIT);
    // Nobody has this address.
    let error = connect(world.mobile(0), "10.1.0.99:80".parse().unwrap()).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EHOSTUNREACH), "{error}");
    // A router after this one refuses.
    let route = Route {
        destination: ([10, 9, 0, 0].into(), 24),
        next_hop: Some(world.fixed_address()),
        link: "fix0".to_owned(),
        source: None,
    };
    let router = world.router();
    router.enter(|| Netlink::open(router).unwrap().add_route(&route).unwrap()).unwrap();
    let fixed = world.fixed();
    fixed
        .enter(|| {
            holdover_host::sysctl::set(fixed, "net.ipv4.ip_forward", "1").unwrap();
            Netlink::open(fixed).unwrap().add_unreachable([10, 9, 0, 0].into(), 24).unwrap();
        })
        .unwrap();
    let began = Instant::now();
    let error = connect(world.mobile(0), "10.9.0.1:80".parse().unwrap()).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EHOSTUNREACH), "{error}");
    assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
    let status = split(&gateway);
    assert_eq!((status.unreachable, status.total), (2, 0), "{status:?}");
}

/// A client must not be told that it is connected before the server has answered.
fn silence(_: &Namespace) {
    let world = World::new(1).unwrap();
    let gateway = Gateway::start(world.router(), SPLIT);
    // The fixed host does not forward: it drops them.
    let route = Route {
        destination: ([10, 9, 0, 0].into(), 24),
        next_hop: Some(world.fixed_address()),
        link: "fix0".to_owned(),
        source: None,
    };
    let router = world.router();
    router.enter(|| Netlink::open(router).unwrap().add_route(&route).unwrap()).unwrap();
    let to = "10.9.0.1:80".parse().unwrap();
    let connect = || TcpStream::connect_timeout(&to, Duration::from_millis(2500));
    let error = world.mobile(0).enter(connect).unwrap().unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::TimedOut, "{error}");
    let status = split(&gateway);
    assert_eq!((status.total, status.pending), (0, 1), "{status:?}");
}

// Claim: Either half may close first; a reset is passed on; urgent data stay urgent and in their place; a receiver that does not
// read stops the sender.
// Tests: `split::reset`, `relay::tests::an_urgent_byte_stays_urgent_and_in_its_place`, `split::back_pressure`,
// `relay::tests::bytes_and_both_ends_pass`, `relay::tests::a_reset_is_an_error_and_resets_the_other_end`,
// `relay::tests::a_receiver_that_does_not_read_stops_the_sender`
fn half_close(_: &Namespace) {
    let world = World::new(1).unwrap();
    let gateway = Gateway::start(world.router(), SPLIT);
    for first_is_mobile in [true, false] {
        let (near, far) = connected(&world);
        let (mut first, mut second) = if first_is_mobile { (near, far) } else { (far, near) };
        first.write_all(b"request").unwrap();
        first.shutdown(Shutdown::Write).unwrap();
        let mut request = Vec::new();
        second.read_to_end(&mut request).unwrap();
        assert_eq!(request, b"request");
        let answer: Vec<u8> = (0..400_000_u32).map(|at| (at ^ at >> 8) as u8).collect();
        let writer = spawn({
            let answer = answer.clone();
            move || second.write_all(&answer).unwrap()
        });
        let mut received = Vec::new();
        first.read_to_end(&mut received).unwrap();
        assert!(received == answer);
        writer.join().unwrap();
    }
    let status = becomes(&gateway, "none open", |status| status.open == 0);
    assert_eq!((status.total, status.reset), (2, 0), "{status:?}");
}

fn reset(_: &Namespace) {
    let world = World::new(1).unwrap();
    let gateway = Gateway::start(world.router(), SPLIT);
    for by_mobile in [true, false] {
        let (mut near, mut far) = connected(&world);
        talks(&mut near, &mut far);
        let (one, mut other) = if by_mobile { (near, far) } else { (far, near) };
        let one = Socket::from(one);
        one.set_linger(Some(Duration::ZERO)).unwrap();
        drop(one);
        is_reset(&mut other);
    }
    becomes(&gateway, "two resets", |status| status.reset == 2 && status.open == 0);
}

// Claim: 1,000 split connections at a time, each with its own bytes; above the limit connections pass, and stay so.
// Tests: `split::above_the_limit`
fn a_thousand(_: &Namespace) {
    let world = World::new(1).unwrap();
    let gateway = Gateway::start(world.router(), SPLIT);
    holdover_host::open_files::raise_limit();
    let (listener, at) = listen(world.fixed(), world.fixed_address());
    let accepting = spawn(move || -> Vec<TcpStream> { (0..1000).map(|_| listener.accept().unwrap().0).collect() });
    let began = Instant::now();
    let mut near: Vec<TcpStream> = (0..1000).map(|_| connect(world.mobile(0), at).unwrap()).collect();
    let mut far = accepting.join().unwrap();
    eprintln!("1,000 connections are split within {:?}", began.elapsed());
    // They are accepted in the order of their last packets of the handshake, which may differ.
    let number = |stream: &TcpStream| stream.peer_addr().unwrap().port();
    far.sort_by_key(number);
    near.sort_by_key(|stream| stream.local_addr().unwrap().port());
    for _ in 0..2 {
        for (near, far) in near.iter_mut().zip(&mut far) {
            talks(near, far);
        }
    }
    becomes(&gateway, "all open", |status| (status.open, status.total, status.pending) == (1000, 1000, 0));
    drop(near);
    drop(far);
    becomes(&gateway, "none open", |status| status.open == 0);
}

// Claim: A split download and a split upload go on within 1.5 s of the return from absences of 0.7 and 3 s, byte-exact.
fn absences(_: &Namespace) {
    let world = World::new(1).unwrap();
    let gateway = Gateway::start(world.router(), SPLIT);
    let mobile = world.mobile_address(0);
    for is_upload in [false, true] {
        let transfer = Transfer::start(&world, 0, is_upload).unwrap();
        for length in [700, 3000] {
            transfer.await_more(1_000_000).unwrap();
            world.set_cut(Cut::Silent, true).unwrap();
            gateway.says(mobile, "away");
            sleep(Duration::from_millis(length));
            let took = transfer.resumes(|| world.set_cut(Cut::Silent, false).unwrap()).unwrap();
            eprintln!("upload: {is_upload}, cut of {length} ms: data {took:?} after the return");
            // Without the gateway the sender would wait for its timer: for up to as long as the cut, or longer.
            assert!(took < Duration::from_millis(1500), "{took:?}");
        }
        transfer.await_more(1_000_000).unwrap();
        transfer.ends_exact().unwrap();
    }
    let status = gateway.status();
    let split = status.split.as_ref().unwrap();
    assert_eq!((split.total, split.reset), (2, 0), "{status:?}");
    assert!(status.buffer.released > 0, "{status:?}");
}

// Claim: A split upload goes on within 1.5 s of the carrier's return after 3 s, over IPv4 and IPv6, byte-exact.
fn after_carrier(world: &World) {
    let gateway = Gateway::start(world.router(), SPLIT);
    for _ in 0..2 {
        let transfer = Transfer::start(world, 0, true).unwrap();
        transfer.await_more(1_000_000).unwrap();
        world.set_cut(Cut::Carrier, true).unwrap();
        gateway.says(world.mobile_address(0), "away");
        sleep(Duration::from_secs(3));
        let took = transfer.resumes(|| world.set_cut(Cut::Carrier, false).unwrap()).unwrap();
        eprintln!("data {took:?} after the return");
        // Linux reports a carrier that is back up to a second late.
        assert!(took < Duration::from_millis(1500), "{took:?}");
        transfer.await_more(1_000_000).unwrap();
        transfer.ends_exact().unwrap();
    }
}

fn back_pressure(_: &Namespace) {
    let world = World::new(1).unwrap();
    let gateway = Gateway::start(world.router(), &format!("{SPLIT}[split]\nbuffer_bytes = 65536\n"));
    let (mut near, far) = connected(&world);
    far.set_nonblocking(true).unwrap();
    let (mut sent, mut blocked) = (0, Instant::now());
    while blocked.elapsed() < Duration::from_secs(1) {
        match (&far).write(&[7; 65_536]) {
            Ok(len) => (sent, blocked) = (sent + len, Instant::now()),
            Err(_) => sleep(Duration::from_millis(5)),
        }
    }
    let status = split(&gateway);
    // The send buffer of the gateway's socket and the receive buffer of the mobile host (6 MB by default).
    assert!(status.to_mobile_bytes < 8_000_000, "{sent} {status:?}");
    drop(far);
    let mut received = Vec::new();
    near.read_to_end(&mut received).unwrap();
    assert_eq!(received.len(), sent);
}

const SHORT: &str = "[split]\nbuffer_bytes = 65536\nuser_timeout = \"2 s\"\n";

// Claim: A receiver that does not read for longer than `user_timeout` keeps its connection; an end that does not answer is given
// up, and the other is reset. Bytes of a connection that both ends have closed are delivered to a mobile host that returns while
// the gateway waits to stop.
// Tests: `split::gone`, `split::closing`
fn pause(_: &Namespace) {
    let world = World::new(1).unwrap();
    let gateway = Gateway::start(world.router(), &format!("{SPLIT}{SHORT}"));
    let (mut near, mut far) = connected(&world);
    let sender = spawn(move || far.write_all(&vec![7; 12_000_000]).map(|()| far));
    // The sender's probes of the window that is shut are answered meanwhile.
    sleep(Duration::from_secs(8));
    assert_eq!((split(&gateway).open, sender.is_finished()), (1, false));
    let mut received = 0;
    let mut part = vec![0; 65_536];
    while received < 12_000_000 {
        let len = near.read(&mut part).unwrap();
        assert!(len > 0, "{received}");
        received += len;
    }
    sender.join().unwrap().unwrap();
    assert_eq!(split(&gateway).reset, 0);
}

fn gone(_: &Namespace) {
    let world = World::new(1).unwrap();
    let gateway = Gateway::start(world.router(), &format!("{SPLIT}{SHORT}"));
    let (mut near, mut far) = connected(&world);
    talks(&mut near, &mut far);
    world.set_cut(Cut::Silent, true).unwrap();
    far.write_all(b"ping").unwrap();
    is_reset(&mut far);
    becomes(&gateway, "given up", |status| (status.open, status.reset) == (0, 1));
}

fn closing(_: &Namespace) {
    let world = World::new(1).unwrap();
    let mut gateway = Gateway::start(world.router(), &format!("{SPLIT}[split]\ndrain = \"30 s\"\n"));
    let (mut near, mut far) = connected(&world);
    talks(&mut near, &mut far);
    near.shutdown(Shutdown::Write).unwrap();
    assert_eq!(far.read(&mut [0]).unwrap(), 0);
    world.set_cut(Cut::Silent, true).unwrap();
    gateway.says(world.mobile_address(0), "away");
    far.write_all(b"last").unwrap();
    drop(far);
    becomes(&gateway, "taken", |status| status.to_mobile_bytes == 8);
    gateway.signal(Signal::TERM);
    sleep(Duration::from_secs(2));
    assert_eq!(split(&gateway).open, 1);
    world.set_cut(Cut::Silent, false).unwrap();
    let mut last = Vec::new();
    near.read_to_end(&mut last).unwrap();
    assert_eq!(last, b"last");
    assert!(gateway.ends(SOON));
}

/// Both of the server's port and of the client's; the former is transparent, as a proxy's.
// Claim: Listening sockets of the router on the ports of the server and of the client stay, and get no packets of mobile hosts; a
// transparent one, as a proxy's, included.
// Tests: `inet_diag::tests::a_listening_socket_is_not_taken_for_a_connection`, `sockets::tests::short_answers_are_refused`
fn listeners_of_the_router(_: &Namespace) {
    let world = World::new(2).unwrap();
    let sections = format!("[mobiles.modes]\n\"{}\" = \"split\"\n", world.mobile_address(1));
    let gateway = Gateway::start(world.router(), &sections);
    let (listener, at) = listen(world.fixed(), world.fixed_address());
    let of_router = |port, transparent: bool| -> TcpListener {
        let open = || -> io::Result<TcpListener> {
            let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
            socket.set_reuse_address(true)?;
            socket.set_ip_transparent_v4(transparent)?;
            socket.bind(&SocketAddr::from((Ipv4Addr::UNSPECIFIED, port)).into())?;
            socket.listen(8)?;
            Ok(socket.into())
        };
        world.router().enter(open).unwrap().unwrap()
    };
    let ours = of_router(at.port(), true);
    let client_port = of_router(0, false);
    let from = client_port.local_addr().unwrap().port();
    for (mobile, own_port, expected) in [(0, 0, (0, 0)), (1, 0, (1, 0)), (1, from, (1, 1))] {
        let open = || -> io::Result<TcpStream> {
            let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
            socket.bind(&SocketAddr::from((Ipv4Addr::UNSPECIFIED, own_port)).into())?;
            socket.connect_timeout(&at.into(), SOON)?;
            Ok(socket.into())
        };
        let mut near = world.mobile(mobile).enter(open).unwrap().unwrap();
        talks(&mut near, &mut listener.accept().unwrap().0);
        let status = split(&gateway);
        assert_eq!((status.total, status.unsplit.address_in_use), expected, "{status:?}");
    }
    // They still listen.
    for listener in [ours, client_port] {
        let to = SocketAddr::from(([10, 1, 0, 1], listener.local_addr().unwrap().port()));
        connect(world.fixed(), to).unwrap();
    }
}

fn above_the_limit(_: &Namespace) {
    let world = World::new(1).unwrap();
    let gateway = Gateway::start(world.router(), &format!("{SPLIT}[split]\nmost_connections = 2\n"));
    let mut all: Vec<_> = (0..4).map(|_| connected(&world)).collect();
    all.iter_mut().for_each(|(near, far)| talks(near, far));
    becomes(&gateway, "two open", |status| (status.open, status.unsplit.full, status.most) == (2, 2, 2));
    // The passed ones stay so when there is room, also if their SYN comes again.
    all.drain(..2);
    becomes(&gateway, "none open", |status| status.open == 0);
    let (near, far) = (all[0].0.local_addr().unwrap(), all[0].1.local_addr().unwrap());
    let (IpAddr::V4(from), IpAddr::V4(to)) = (near.ip(), far.ip()) else { panic!("IPv4") };
    let again = Segment { src_port: near.port(), dst_port: far.port(), flags: Flags::SYN, ..Segment::default() };
    let again = Packet::new(from.into(), to.into(), again).emit().unwrap();
    let sender = raw(world.mobile(0), libc::IPPROTO_RAW);
    sender.send_to(&again, &SocketAddr::new(to.into(), 0).into()).unwrap();
    sleep(Duration::from_millis(500));
    let status = split(&gateway);
    assert_eq!((status.total, status.pending, status.open), (2, 0, 0), "{status:?}");
    all.iter_mut().for_each(|(near, far)| talks(near, far));
    let (mut near, mut far) = connected(&world);
    talks(&mut near, &mut far);
    becomes(&gateway, "one open", |status| status.open == 1);
}

// Claim: TCP-MD5 and multipath TCP pass and work; 3,000 SYNs with random options, flags and checksums leave nothing behind. Any
// bytes are parsed.
// Tests: `split::garbage`, `syn::tests::any_bytes_are_parsed_without_a_panic`,
// `syn::tests::options_decide_whether_a_connection_is_split`, `syn::tests::a_refusal_answers_the_syn`
fn cannot_be_split(_: &Namespace) {
    let world = World::new(1).unwrap();
    let gateway = Gateway::start(world.router(), SPLIT);
    let (listener, at) = listen(world.fixed(), world.fixed_address());
    // Multipath TCP: the fixed host answers without it.
    let multipath = || -> io::Result<Socket> {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::from(262)))?;
        socket.connect(&at.into())?;
        Ok(socket)
    };
    match world.mobile(0).enter(multipath).unwrap() {
        Ok(socket) => {
            let mut near = TcpStream::from(socket);
            talks(&mut near, &mut listener.accept().unwrap().0);
            assert_eq!(split(&gateway).unsplit.multipath, 1);
        }
        Err(error) => eprintln!("no multipath TCP here: {error}"),
    }
    // TCP-MD5.
    let (mut near, mut far) = connect_signed(&world, 0).unwrap();
    talks(&mut near, &mut far);
    let status = split(&gateway);
    assert_eq!((status.unsplit.authenticated, status.total), (1, 0), "{status:?}");
}

/// SYNs with anything in their headers.
fn garbage(_: &Namespace) {
    let world = World::new(1).unwrap();
    let gateway = Gateway::start(world.router(), SPLIT);
    let (IpAddr::V4(mobile), IpAddr::V4(fixed)) = (world.mobile_address(0), world.fixed_address()) else { panic!() };
    let sender = raw(world.mobile(0), libc::IPPROTO_RAW);
    let mut random = holdover_base::Rng::new(20);
    for number in 0..3000_u32 {
        let packet = garbage_syn(mobile, fixed, number, &mut random);
        // The kernel refuses some of them.
        let _ = sender.send_to(&packet, &SocketAddr::new(fixed.into(), 0).into());
    }
    let (mut near, mut far) = connected(&world);
    talks(&mut near, &mut far);
    let status = becomes(&gateway, "no attempts", |status| status.pending == 0);
    eprintln!("{status:?}");
    assert!(status.unsplit.malformed > 100 && status.refused > 100, "{status:?}");
    assert_eq!((status.open, status.stopped), (1, false), "{status:?}");
}

fn garbage_syn(from: Ipv4Addr, to: Ipv4Addr, number: u32, random: &mut holdover_base::Rng) -> Vec<u8> {
    let options = 4 * random.below(11) as usize;
    let len = 40 + options;
    let mut packet = vec![0; len];
    packet[0] = 0x45;
    packet[2..4].copy_from_slice(&(len as u16).to_be_bytes());
    (packet[8], packet[9]) = (64, 6);
    packet[12..16].copy_from_slice(&from.octets());
    packet[16..20].copy_from_slice(&to.octets());
    packet[20..22].copy_from_slice(&(1024 + (number % 60_000) as u16).to_be_bytes());
    packet[22..24].copy_from_slice(&9_u16.to_be_bytes());
    packet[32] = ((5 + options / 4) << 4) as u8;
    packet[33] = 2;
    packet[34] = 0xff;
    if random.below(4) == 0 {
        let option = 40..len;
        packet[option].iter_mut().for_each(|byte| *byte = random.below(256) as u8);
    } else {
        packet[40..].fill(1);
    }
    if random.below(4) == 0 {
        // A wrong checksum, or flags that no SYN has.
        (packet[33], packet[36]) = ([2, 3, 6, 0x2a][random.below(4) as usize], random.below(256) as u8);
        return packet;
    }
    let sum = transport_checksum(from.into(), to.into(), 6, &packet[20..]);
    packet[36..38].copy_from_slice(&sum.to_be_bytes());
    packet
}
