//! Connections that begin or end while their mobile host is away.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::thread::sleep;
use std::time::{Duration, Instant};

use holdover_testbed::Namespace;
use holdover_testbed::gateway::{Cut, World};
use socket2::{Domain, SockRef, Socket, TcpKeepalive, Type};

use crate::Test;
use crate::hosts::{SOON, connect, transfer};
use crate::process::Gateway;

pub(crate) const TESTS: &[Test] = &[
    ("a_server_that_closes_during_an_absence_is_heard_to_the_end", |_| each_mode(server_closes)),
    ("a_server_that_resets_during_an_absence_is_heard", |_| each_mode(server_resets)),
    ("what_a_mobile_host_sends_last_while_it_is_away_arrives", |_| each_mode(mobile_closes)),
    ("a_mobile_host_that_resets_while_it_is_away_ends_the_connection", |_| each_mode(mobile_resets)),
    ("a_connection_to_an_absent_host_is_established_on_its_return", |_| each_mode(connects_to_absent)),
    ("keep_alives_of_a_server_are_answered_while_its_window_is_shut", |_| each_mode(keep_alives)),
    ("the_ports_of_a_connection_that_was_reset_during_an_absence_are_used_again", |_| each_mode(ports_are_used_again)),
];

const MODES: [&str; 4] = ["buffer", "m-tcp", "freeze", "buffer-freeze"];

/// Between the fixed host and the router.
const ROUND_TRIP: holdover_base::Duration = holdover_base::Duration::from_millis(40);

/// Longer than the bytes after which ACKs are held back.
const BEFORE: usize = 400_000;

/// A port of which nobody takes anything (RFC 863).
const DISCARD: u16 = 9;

const LAST_WORDS: [u8; 8000] = [b'.'; 8000];

/// A mobile host and a connection with data of it, whose link is cut.
struct Absent<'a> {
    mode: &'a str,
    world: World,
    gateway: Gateway,
    near: TcpStream,
    far: TcpStream,
}

fn each_mode(check: fn(Absent<'_>)) {
    for mode in MODES {
        let world = World::with_round_trip(1, ROUND_TRIP).unwrap();
        let gateway = Gateway::start(world.router(), &format!("[mobiles]\nmode = \"{mode}\"\n"));
        let (mut near, mut far) = connect(world.mobile(0), world.fixed(), world.fixed_address());
        near.set_read_timeout(Some(SOON)).unwrap();
        far.set_read_timeout(Some(SOON)).unwrap();
        far.set_write_timeout(Some(SOON)).unwrap();
        pass(&mut far, &mut near);
        pass(&mut near, &mut far);
        let absent = Absent { mode, world, gateway, near, far };
        absent.leave();
        check(absent);
    }
}

/// Sends bytes in one direction.
fn pass(from: &mut TcpStream, into: &mut TcpStream) {
    let mut received = vec![0; BEFORE];
    std::thread::scope(|scope| {
        scope.spawn(|| from.write_all(&vec![b'-'; BEFORE]).unwrap());
        into.read_exact(&mut received).unwrap();
    });
    assert!(received.iter().all(|&byte| byte == b'-'));
}

impl Absent<'_> {
    fn mobile(&self) -> IpAddr {
        self.world.mobile_address(0)
    }

    /// Silence counts while something is sent to the mobile host.
    fn leave(&self) {
        let from = self.world.fixed().enter(|| UdpSocket::bind((self.world.fixed_address(), 0)).unwrap()).unwrap();
        self.world.set_cut(Cut::Silent, true).unwrap();
        let mobile = self.mobile();
        self.gateway.says_after(mobile, "away", || _ = from.send_to(b"?", (mobile, DISCARD)));
    }

    /// The mobile host returns after a second.
    fn comes_back(&self) -> Instant {
        sleep(Duration::from_secs(1));
        self.world.set_cut(Cut::Silent, false).unwrap();
        Instant::now()
    }

    /// Whether packets for absent mobile hosts are kept.
    fn keeps(&self) -> bool {
        self.mode != "freeze"
    }

    fn say(&self, what: &str, since: Instant) {
        eprintln!("{}: {what} {:?} after the return", self.mode, since.elapsed());
    }

    /// Nothing is left of the absence.
    fn ends(self) {
        self.gateway.says(self.mobile(), "present");
        let status = self.gateway.status();
        assert_eq!((status.waiting, status.away), (0, 0), "{}: {status:?}", self.mode);
    }
}

/// A close sends a RST.
fn reset_on_close(stream: &TcpStream) {
    SockRef::from(stream).set_linger(Some(Duration::ZERO)).unwrap();
}

fn is_reset(mut stream: &TcpStream) -> bool {
    let kinds = [ErrorKind::ConnectionReset, ErrorKind::BrokenPipe];
    loop {
        match stream.read(&mut [0; 65_536]) {
            Ok(0) => return false,
            Ok(_) => {}
            Err(error) => return kinds.contains(&error.kind()),
        }
    }
}

// Claim: While a mobile host is away, in `buffer`, `m-tcp`, `freeze` and `buffer-freeze`: what a server sends last and the end of
// the connection arrive after the return, and so does what the mobile host has sent last; a reset of either end ends the connection;
// a connection to the mobile host is established; and the ports of a connection that the mobile host has reset carry another one
// over a further absence, byte-exact.
// Tests: `endings::server_resets`, `endings::mobile_closes`, `endings::mobile_resets`, `endings::connects_to_absent`,
// `endings::ports_are_used_again`
fn server_closes(mut absent: Absent<'_>) {
    absent.far.write_all(&LAST_WORDS).unwrap();
    absent.far.shutdown(std::net::Shutdown::Write).unwrap();
    let back_at = absent.comes_back();
    let mut heard = Vec::new();
    absent.near.read_to_end(&mut heard).unwrap();
    absent.say("the last words and the end", back_at);
    assert!(heard == LAST_WORDS, "{}: {} bytes", absent.mode, heard.len());
    // The mobile host's own end.
    absent.near.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(absent.far.read(&mut [0; 100]).unwrap(), 0);
    absent.ends();
}

fn server_resets(absent: Absent<'_>) {
    reset_on_close(&absent.far);
    let Absent { mode, world, gateway, mut near, far } = absent;
    drop(far);
    sleep(Duration::from_secs(1));
    world.set_cut(Cut::Silent, false).unwrap();
    let back_at = Instant::now();
    gateway.says(world.mobile_address(0), "present");
    // A reset that is lost comes again in answer to the next segment.
    if mode == "freeze" {
        near.write_all(b"?").unwrap();
    }
    assert!(is_reset(&near), "{mode}");
    eprintln!("{mode}: reset {:?} after the return", back_at.elapsed());
    assert!(back_at.elapsed() < Duration::from_secs(5), "{mode}");
}

fn mobile_closes(mut absent: Absent<'_>) {
    absent.near.write_all(&LAST_WORDS).unwrap();
    absent.near.shutdown(std::net::Shutdown::Write).unwrap();
    let back_at = absent.comes_back();
    let mut heard = Vec::new();
    absent.far.read_to_end(&mut heard).unwrap();
    absent.say("what the mobile host has sent last", back_at);
    assert!(heard == LAST_WORDS, "{}: {} bytes", absent.mode, heard.len());
    absent.ends();
}

fn mobile_resets(absent: Absent<'_>) {
    reset_on_close(&absent.near);
    let Absent { mode, world, gateway, near, mut far } = absent;
    drop(near);
    far.write_all(&LAST_WORDS).unwrap();
    sleep(Duration::from_secs(1));
    world.set_cut(Cut::Silent, false).unwrap();
    let back_at = Instant::now();
    assert!(is_reset(&far), "{mode}");
    eprintln!("{mode}: reset {:?} after the return", back_at.elapsed());
    gateway.says(world.mobile_address(0), "present");
    assert_eq!(gateway.status().waiting, 0, "{mode}");
}

fn connects_to_absent(absent: Absent<'_>) {
    let mobile = absent.mobile();
    let listener = absent.world.mobile(0).enter(|| TcpListener::bind((mobile, 0)).unwrap()).unwrap();
    let to = listener.local_addr().unwrap();
    std::thread::scope(|scope| {
        let client =
            scope.spawn(|| absent.world.fixed().enter(|| TcpStream::connect_timeout(&to, SOON).unwrap()).unwrap());
        let back_at = absent.comes_back();
        let far = client.join().unwrap();
        absent.say("connected", back_at);
        // Without a copy the client's next SYN connects.
        let limit = if absent.keeps() { Duration::from_secs(1) } else { SOON };
        assert!(back_at.elapsed() < limit, "{}: {:?}", absent.mode, back_at.elapsed());
        let near = listener.accept().unwrap().0;
        let transfer = transfer((near, far), false);
        transfer.await_more(500_000).unwrap();
        transfer.ends_exact().unwrap();
    });
    absent.ends();
}

// Claim: Keep-alives of a server, one a second of which three may stay unanswered, are answered for a mobile host that is away for 8 s while
// the window is shut, with `m-tcp`, `freeze` and `buffer-freeze`, and the connection goes on. With `buffer` the server ends it, as
// without a gateway.
fn keep_alives(absent: Absent<'_>) {
    let every = Duration::from_secs(1);
    let parameters = TcpKeepalive::new().with_time(every).with_interval(every).with_retries(3);
    SockRef::from(&absent.far).set_tcp_keepalive(&parameters).unwrap();
    sleep(Duration::from_secs(7));
    absent.comes_back();
    let Absent { mode, mut near, mut far, gateway, world } = absent;
    gateway.says(world.mobile_address(0), "present");
    let sent = far.write_all(&LAST_WORDS);
    let heard = sent.and_then(|()| near.read_exact(&mut [0; LAST_WORDS.len()]));
    let answered = gateway.status().woken.answered;
    eprintln!("{mode}: {heard:?}, {answered} answered");
    if mode == "buffer" {
        assert_eq!((heard.map_err(|error| error.kind()), answered), (Err(ErrorKind::TimedOut), 0));
    } else {
        assert!(heard.is_ok() && answered >= 3, "{mode}: {heard:?}, {answered} answered");
    }
}

/// Connects from a port to another, also if a former connection between them was reset.
fn connect_from(client: &Namespace, from: SocketAddr, to: SocketAddr) -> TcpStream {
    let connect = || {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket.set_reuse_address(true).unwrap();
        socket.bind(&from.into()).unwrap();
        socket.connect_timeout(&to.into(), SOON).unwrap();
        TcpStream::from(socket)
    };
    client.enter(connect).unwrap()
}

fn ports_are_used_again(absent: Absent<'_>) {
    let Absent { mode, ref world, ref gateway, .. } = absent;
    let listener = world.fixed().enter(|| TcpListener::bind((world.fixed_address(), 0)).unwrap()).unwrap();
    let back_at = absent.comes_back();
    gateway.says(world.mobile_address(0), "present");
    let to = listener.local_addr().unwrap();
    let first = world.mobile(0).enter(|| TcpStream::connect_timeout(&to, SOON).unwrap()).unwrap();
    let from = first.local_addr().unwrap();
    let (mut near, mut far) = (first, listener.accept().unwrap().0);
    [&near, &far].into_iter().for_each(|end| end.set_read_timeout(Some(SOON)).unwrap());
    pass(&mut far, &mut near);
    absent.leave();
    reset_on_close(&near);
    drop(near);
    absent.comes_back();
    gateway.says(world.mobile_address(0), "present");
    let near = connect_from(world.mobile(0), from, to);
    let (far_again, peer) = listener.accept().unwrap();
    assert_eq!(peer, from, "{mode}");
    // The server has learnt of the reset by its answer to the new SYN (RFC 5961 section 4.2).
    assert!(is_reset(&far), "{mode}: the former connection");
    absent.say("connected again", back_at);
    let again = transfer((near, far_again), false);
    again.await_more(500_000).unwrap();
    absent.leave();
    absent.comes_back();
    again.await_more(500_000).unwrap();
    again.ends_exact().unwrap();
    absent.ends();
}
