//! Outages without a move: longer than a kernel's TCP waits, and of the direct path alone.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use holdover_testbed::Namespace;
use socket2::SockRef;

use crate::Test;
use crate::daemon::{Host, PATIENCE, Place, pair};
use crate::network::{LTE, Network, SERVER, WIFI};
use crate::plain::{CAMERA, Site};

pub(crate) const TESTS: &[Test] = &[
    ("connections_outlive_the_limits_of_the_kernel", connections_outlive_the_limits_of_the_kernel),
    ("connections_of_plain_hosts_outlive_their_limits", connections_of_plain_hosts_outlive_their_limits),
    ("without_the_hold_connections_end", without_the_hold_connections_end),
];

/// With this many retransmissions (`tcp_retries2`) Linux gives up data after some 16 s.
const RETRIES: &str = "5";
const LONGER: Duration = Duration::from_secs(25);

fn limit_retries(namespaces: &[&Namespace]) {
    for namespace in namespaces {
        namespace.enter(|| std::fs::write("/proc/sys/net/ipv4/tcp_retries2", RETRIES).unwrap()).unwrap();
    }
}

/// A mobile host and a server whose daemons run, and whose kernels give up soon.
pub(crate) fn talking(place: &Place, network: &Network, via: &str) -> [Host; 2] {
    network.attach(&WIFI);
    limit_retries(&[&network.mobile, &network.server]);
    let mut hosts = pair(place, [&network.mobile, &network.server], [&[WIFI.address], &SERVER], via);
    hosts.iter_mut().for_each(|host| host.up(""));
    hosts
}

/// A connection, whose server's end is the second one.
pub(crate) fn connected(client: &Namespace, known_as: IpAddr, server: &Namespace) -> [TcpStream; 2] {
    connected_to(client, known_as, server, 0)
}

/// The same at a port.
pub(crate) fn connected_to(client: &Namespace, known_as: IpAddr, server: &Namespace, port: u16) -> [TcpStream; 2] {
    let any: IpAddr = "::".parse().unwrap();
    let listener = server.enter(|| TcpListener::bind((any, port)).unwrap()).unwrap();
    let port = listener.local_addr().unwrap().port();
    let connecting = client.spawn_inside(move || TcpStream::connect((known_as, port))).unwrap();
    let (accepted, _) = listener.accept().unwrap();
    let streams = [connecting.join().unwrap().unwrap().unwrap(), accepted];
    streams.iter().for_each(|stream| stream.set_read_timeout(Some(PATIENCE)).unwrap());
    let [mut client, mut server] = streams;
    // In both directions, so that each end has heard the other.
    swap(&mut client, &mut server);
    [client, server]
}

/// Both ends send, and their data arrives once.
#[track_caller]
pub(crate) fn swap(client: &mut TcpStream, server: &mut TcpStream) {
    client.write_all(b"hello from the client").unwrap();
    server.write_all(b"hello from the server").unwrap();
    expect(server, b"hello from the client");
    expect(client, b"hello from the server");
}

#[track_caller]
pub(crate) fn expect(stream: &mut TcpStream, sent: &[u8]) {
    let mut came = vec![0; sent.len()];
    stream.read_exact(&mut came).unwrap();
    assert_eq!(came, sent);
}

/// Longer than a kernel sends without an answer: what each end does about data that it writes meanwhile.
fn write_in_the_dark([client, server]: &mut [TcpStream; 2]) {
    client.write_all(b"written in the dark by the client").unwrap();
    server.write_all(b"written in the dark by the server").unwrap();
}

#[track_caller]
fn read_by_daylight([client, server]: &mut [TcpStream; 2]) {
    expect(server, b"written in the dark by the client");
    expect(client, b"written in the dark by the server");
    swap(client, server);
}

/// The number of TCP connections of a host's first peer that are held open.
fn held(host: &Host) -> Option<u64> {
    host.peer()["held_connections"].as_u64()
}

// Claim: With `holdover hip` at both ends, connections of unmodified programs outlive a cut that is longer than their kernels retransmit,
// in IPv6 and IPv4, without a move and with one, and resume; a timeout that a program has set itself still ends its connection. A
// host without the hold gives its connections up. Both ends announce their user timeout (RFC 5482).
// Tests: `outage::without_the_hold_connections_end`, `outage::connections_of_plain_hosts_outlive_their_limits`,
// `hold_open::repetitions_are_answered_with_a_window_of_zero_until_the_timeout`, `hold_open::the_option_is_negotiated`
fn connections_outlive_the_limits_of_the_kernel() {
    let (place, network) = (Place::new("outage"), Network::new(None));
    let [mobile, server] = talking(&place, &network, "ip");
    assert!(mobile.ok("status").contains("TCP connections are held open for 12 h without an answer"));
    let (hit, lsi) = (IpAddr::from(server.hit()), IpAddr::from(mobile.lsi_of("server")));
    let mut connections = [hit, lsi].map(|address| connected(&network.mobile, address, &network.server));
    let [impatient, _peer_of_it] = connected(&network.mobile, hit, &network.server);
    SockRef::from(&impatient).set_tcp_user_timeout(Some(Duration::from_secs(6))).unwrap();
    // Each end has told the other.
    for host in [&mobile, &server] {
        let peer = host.peer();
        assert!(peer["user_timeouts_sent"].as_u64() >= Some(3), "{peer}");
        assert!(peer["user_timeouts_received"].as_u64() >= Some(3), "{peer}");
    }
    network.cut(true);
    connections.iter_mut().for_each(write_in_the_dark);
    (&impatient).write_all(b"?").unwrap();
    std::thread::sleep(LONGER);
    assert!(held(&mobile) >= Some(2) && held(&server) >= Some(2), "{:?} {:?}", held(&mobile), held(&server));
    let status = mobile.ok("status");
    assert!(status.contains("ESTABLISHED, silent") && status.contains("TCP connections are held open\n"), "{status}");
    let back_at = Instant::now();
    network.cut(false);
    connections.iter_mut().for_each(read_by_daylight);
    eprintln!("data {:?} after the path was back", back_at.elapsed());
    // The next test of the path is ten seconds away at most; TCP's next retransmission may be 25.
    assert!(back_at.elapsed() < Duration::from_secs(14), "{:?}", back_at.elapsed());
    assert_eq!((held(&mobile), mobile.peer()["is_silent"].as_bool()), (Some(0), Some(false)));
    let ended = impatient.take_error().unwrap().map(|error| error.kind());
    assert_eq!(ended, Some(std::io::ErrorKind::TimedOut), "its own limit");
    // The same without an address, and with another one afterwards.
    connections.iter_mut().for_each(|[client, server]| swap(client, server));
    network.detach(&WIFI);
    connections.iter_mut().for_each(write_in_the_dark);
    std::thread::sleep(LONGER);
    let back_at = Instant::now();
    network.attach(&LTE);
    connections.iter_mut().for_each(read_by_daylight);
    assert!(back_at.elapsed() < Duration::from_secs(5), "{:?}", back_at.elapsed());
}

/// The control experiment, with the setting in the file, which is read again while the daemon runs.
fn without_the_hold_connections_end() {
    let (place, network) = (Place::new("outage-without"), Network::new(None));
    let [mut mobile, server] = talking(&place, &network, "udp");
    let hit = IpAddr::from(server.hit());
    let mut connection = connected(&network.mobile, hit, &network.server);
    mobile.write("hip.toml", "[user_timeout]\nenabled = false\n");
    mobile.reload();
    let patience = Instant::now() + PATIENCE;
    while !mobile.ok("status").contains("TCP connections end by their own limits") {
        assert!(Instant::now() < patience, "{}", mobile.ok("status"));
        std::thread::sleep(Duration::from_millis(20));
    }
    network.cut(true);
    write_in_the_dark(&mut connection);
    // The client's last timer runs for 13 s if its round trip was slow.
    let [client, server] = [(&connection[0], 2 * LONGER), (&connection[1], LONGER)].map(|(stream, patience)| {
        let stream = stream.try_clone().unwrap();
        stream.set_read_timeout(Some(patience)).unwrap();
        std::thread::spawn(move || (&stream).read(&mut [0; 9]).map_err(|error| error.raw_os_error()))
    });
    let [client, server] = [client, server].map(|end| end.join().unwrap());
    let timed_out = rustix::io::Errno::TIMEDOUT.raw_os_error();
    assert_eq!(client, Err(Some(timed_out)), "the kernel has given up");
    let waited = rustix::io::Errno::AGAIN.raw_os_error();
    assert_eq!(server, Err(Some(waited)), "the other end is held");
    // An invalid file changes nothing, and says why.
    mobile.write("hip.toml", "[user_timeout]\nhold = \"1 ms\"\n");
    mobile.hang_up();
    let patience = Instant::now() + PATIENCE;
    while !mobile.log().contains("is not between 1 s and 24 days") {
        assert!(Instant::now() < patience, "{}", mobile.log());
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(mobile.ok("status").contains("TCP connections end by their own limits"));
}

/// A camera cannot be configured; the router holds its connections open as a host does for its own programs.
fn connections_of_plain_hosts_outlive_their_limits() {
    let (place, site) = (Place::new("outage-proxy"), Site::new(None));
    limit_retries(&[&site.camera, &site.network.server]);
    let [router, server] = site.daemons(&place, &[(CAMERA.0, &CAMERA.1)], ["", ""]);
    let addresses = [IpAddr::from(router.lsi_of("server")), server.hit().into()];
    let mut connections = addresses.map(|address| connected(&site.camera, address, &site.network.server));
    site.network.cut(true);
    connections.iter_mut().for_each(write_in_the_dark);
    std::thread::sleep(LONGER);
    let text = router.ok("status");
    assert!(text.contains("for camera, server has not answered for"), "{text}");
    let back_at = Instant::now();
    site.network.cut(false);
    connections.iter_mut().for_each(read_by_daylight);
    assert!(back_at.elapsed() < Duration::from_secs(14), "{:?}", back_at.elapsed());
}
