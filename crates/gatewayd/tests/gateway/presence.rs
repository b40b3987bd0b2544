//! Sources of reports from outside: a bridge, leases of a real DHCP server, mobile hosts themselves, and HTTP.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpStream, UdpSocket};
use std::path::PathBuf;
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

use holdover_filter::Presence;
use holdover_gatewayd::control::Standing;
use holdover_host::process::LogTo;
use holdover_host::{Process, clock};
use holdover_mobility::registration::{Key, Registrant};
use holdover_testbed::Namespace;
use holdover_testbed::gateway::{Cut, MOBILE_FACING, Transfer, World};
use rustix::process::Signal;

use crate::Test;
use crate::handoff::wait_for;
use crate::process::Gateway;

pub(crate) const TESTS: &[Test] = &[
    ("a_port_of_the_bridge_that_goes_down_takes_its_hosts_away", a_port_of_the_bridge_that_goes_down),
    ("a_lease_of_dnsmasq_that_is_released_takes_its_host_away", leases_of_dnsmasq),
    ("packets_for_the_former_owner_of_an_address_are_dropped", another_host_gets_the_address),
    ("a_mobile_host_that_says_when_it_goes_loses_nothing", a_mobile_host_says_when_it_goes),
    ("forged_and_recorded_reports_change_nothing", forged_and_recorded_reports),
    ("reports_for_which_there_is_no_room_do_not_end_the_daemon", no_room),
    ("the_webhook_requires_the_token", webhook),
    ("a_host_that_was_only_reported_is_forgotten", only_reported),
];

/// A directory that is removed at the end of the test.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("holdover-presence-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.join(name);
        fs::write(&path, text).unwrap();
        path
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

// Claim: A port of the bridge that goes down takes its hosts away at once; a lease of a real dnsmasq that is made and released by
// a real client is followed, and a packet outweighs it; what waits for the former owner of an address is dropped.
// Tests: `presence::leases_of_dnsmasq`, `presence::another_host_gets_the_address`
fn a_port_of_the_bridge_that_goes_down(_: &Namespace) {
    let world = World::bridged(2).unwrap();
    // Without silence detection: the bridge reports presence.
    let gateway = Gateway::start(world.router(), "[presence]\nsilence = false\nneighbours = false\n");
    let transfers = [0, 1].map(|mobile| Transfer::start(&world, mobile, false).unwrap());
    transfers.iter().for_each(|transfer| transfer.await_more(500_000).unwrap());
    world.set_cut(Cut::Silent, true).unwrap();
    gateway.says(world.mobile_address(0), "away");
    let away = gateway.mobile(world.mobile_address(0)).unwrap();
    assert_eq!(away.away_by, ["bridge"], "{away:?}");
    assert_eq!(gateway.mobile(world.mobile_address(1)).unwrap().standing, "present");
    sleep(Duration::from_millis(500));
    let took = transfers[0].resumes(|| world.set_cut(Cut::Silent, false).unwrap()).unwrap();
    eprintln!("a port was down for 0.5 s: data {took:?} after its return");
    gateway.says(world.mobile_address(0), "present");
    for transfer in transfers {
        transfer.await_more(500_000).unwrap();
        transfer.ends_exact().unwrap();
    }
    assert!(gateway.status().reports.bridge >= 2);
}

fn start(namespace: &Namespace, command: Command, needed: &str) -> Process {
    let started = Process::start(namespace, command, LogTo::Nothing);
    started.unwrap_or_else(|error| panic!("{needed} is needed: {error}"))
}

fn leases_of_dnsmasq(_: &Namespace) {
    let world = World::new(1).unwrap();
    let place = Place::new("dnsmasq");
    let leases = place.0.join("leases");
    let mobile = world.mobile_address(0);
    let mut server = Command::new("dnsmasq");
    server.args(["--keep-in-foreground", "--conf-file=/dev/null", "--port=0", "--bind-interfaces", "--no-ping"]);
    server.args(["--user=root", "--group=root"]);
    server.arg(format!("--interface={MOBILE_FACING}")).arg(format!("--dhcp-range={mobile},{mobile},120s"));
    server.arg(format!("--dhcp-leasefile={}", leases.display()));
    server.arg(format!("--pid-file={}", place.0.join("pid").display()));
    let _server = start(world.router(), server, "dnsmasq (Debian: dnsmasq-base)");
    wait_for("the file of leases", || leases.exists().then_some(()));
    // At its start the gateway reads only a file that has not changed for 50 ms; the lease below comes after that.
    sleep(Duration::from_millis(100));
    let sections = format!("[presence]\nsilence = false\nneighbours = false\n[leases]\nfile = {leases:?}\n");
    let gateway = Gateway::start(world.router(), &sections);
    // The host keeps its address, whatever the server assigns: the test is about the lease.
    let mut client = Command::new("busybox");
    client.args(["udhcpc", "-f", "-R", "-i", "eth0", "-s", "/bin/true", "-t", "20", "-T", "1"]);
    let mut client = start(world.mobile(0), client, "busybox (Debian: busybox-static)");
    wait_for("a lease", || (gateway.status().reports.leases > 0).then_some(()));
    assert_eq!(gateway.says(mobile, "present").as_secs(), 0);
    // On SIGTERM the client releases the lease.
    client.signal(Signal::TERM).unwrap();
    client.wait_timeout(crate::hosts::SOON).unwrap().expect("it ends");
    gateway.says(mobile, "away");
    assert_eq!(gateway.mobile(mobile).unwrap().away_by, ["lease"]);
    // Any packet from it shows that it is present.
    let fixed = SocketAddr::new(world.fixed_address(), 9);
    wait_for("a packet of the mobile host's", || {
        let send = move || UdpSocket::bind("0.0.0.0:0").unwrap().send_to(b"hello", fixed);
        let _ = world.mobile(0).enter(send).unwrap();
        (gateway.mobile(mobile).unwrap().standing == "present").then_some(())
    });
}

fn another_host_gets_the_address(_: &Namespace) {
    let world = World::new(1).unwrap();
    let place = Place::new("owner");
    let mobile = world.mobile_address(0);
    let file = place.write("leases", &format!("0 02:00:00:00:00:01 {mobile} * *\n"));
    let gateway = Gateway::start(world.router(), &format!("[leases]\nfile = {file:?}\n"));
    let transfer = Transfer::start(&world, 0, false).unwrap();
    transfer.await_more(500_000).unwrap();
    world.set_cut(Cut::Silent, true).unwrap();
    gateway.says(mobile, "away");
    wait_for("packets that wait", || (gateway.status().waiting > 0).then_some(()));
    place.write("leases", &format!("0 02:00:00:00:00:02 {mobile} * * \n"));
    wait_for("a new owner", || (gateway.status().reports.leases > 0).then_some(()));
    assert!(gateway.status().buffer.forgotten > 0);
    world.set_cut(Cut::Silent, false).unwrap();
    // TCP retransmits the dropped packets: the host is in fact the same.
    transfer.await_more(100_000).unwrap();
    transfer.ends_exact().unwrap();
}

/// The mobile host's side of the protocol, over real sockets.
struct Reporter {
    registrant: Registrant,
    socket: UdpSocket,
    sent: Vec<Vec<u8>>,
}

const KEY: &str = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";

fn registration(world: &World, place: &Place) -> (Gateway, SocketAddr) {
    let key = place.write("key", KEY);
    // The router's address that the mobile host knows.
    let IpAddr::V4(mobile) = world.mobile_address(0) else { panic!("IPv4") };
    let [a, b, c, _] = mobile.octets();
    let listen = SocketAddr::new([a, b, c, 1].into(), 4786);
    let sections = format!(
        "[registration]\nlisten = \"{listen}\"\n[[registration.hosts]]\nkey_file = {key:?}\naddresses = [\"{mobile}\"]\n"
    );
    (Gateway::start(world.router(), &sections), listen)
}

impl Reporter {
    fn new(world: &World, to: SocketAddr, first_counter: u64) -> Self {
        let open = move || {
            let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
            socket.connect(to).unwrap();
            socket.set_read_timeout(Some(Duration::from_millis(10))).unwrap();
            socket
        };
        let socket = world.mobile(0).enter(open).unwrap();
        Self { registrant: Registrant::new(Key::from_text(KEY).unwrap(), first_counter), socket, sent: Vec::new() }
    }

    /// Reports until the gateway has noted it.
    fn report(&mut self, address: IpAddr, presence: Presence) {
        let noted = self.registrant.counters().noted;
        self.registrant.report(clock::now(), address, presence);
        wait_for("an answer to a report", || {
            while let Some(datagram) = self.registrant.poll_transmit(clock::now()) {
                self.socket.send(&datagram).unwrap();
                self.sent.push(datagram.to_vec());
            }
            let mut buffer = [0; 100];
            if let Ok(len) = self.socket.recv(&mut buffer) {
                self.registrant.handle_datagram(clock::now(), &buffer[..len]);
            }
            (self.registrant.counters().noted > noted).then_some(())
        });
    }
}

// Claim: On real kernels: of 100 datagrams after an announced moment none is lost, and they come in order; 2,000 recorded,
// damaged and cut reports change nothing, are answered with no more bytes than they have, and the host is heard after them.
// Tests: `presence::forged_and_recorded_reports`
fn a_mobile_host_says_when_it_goes(_: &Namespace) {
    let world = World::new(1).unwrap();
    let place = Place::new("fading");
    let (mut gateway, listen) = registration(&world, &place);
    let mobile = world.mobile_address(0);
    let mut reporter = Reporter::new(&world, listen, 1 << 40);
    reporter.report(mobile, Presence::Present);
    let bind = |address| move || UdpSocket::bind(SocketAddr::new(address, 0)).unwrap();
    let into = world.mobile(0).enter(bind(mobile)).unwrap();
    let from = world.fixed().enter(bind(world.fixed_address())).unwrap();
    into.set_nonblocking(true).unwrap();
    for round in 0..2u64 {
        // Long enough for a report that is repeated, as a packet that comes after it would mean presence, and for the command on a busy machine.
        let lead = holdover_base::Duration::from_secs(2);
        reporter.report(mobile, Presence::Fading { lead: Some(lead) });
        assert_eq!(gateway.mobile(mobile).unwrap().standing, "fading");
        gateway.says(mobile, "away");
        assert_eq!(gateway.mobile(mobile).unwrap().away_by, ["registration"]);
        world.set_cut(Cut::Silent, true).unwrap();
        // All packets from the announced time on are buffered, in an outage that silence detection would notice only
        // later.
        for number in 0..100u64 {
            from.send_to(&(1000 * round + number).to_be_bytes(), into.local_addr().unwrap()).unwrap();
        }
        wait_for("packets that wait", || (gateway.status().waiting >= 100).then_some(()));
        world.set_cut(Cut::Silent, false).unwrap();
        reporter.report(mobile, Presence::Present);
        let mut received = Vec::new();
        wait_for("what has waited", || {
            let mut buffer = [0; 16];
            while let Ok(8) = into.recv(&mut buffer) {
                received.push(u64::from_be_bytes(buffer[..8].try_into().unwrap()));
            }
            (received.len() >= 100).then_some(())
        });
        assert_eq!(received, (0..100).map(|number| 1000 * round + number).collect::<Vec<_>>());
        // The gateway's next process accepts its reports, too.
        gateway.kill();
        gateway.restart();
        reporter.report(mobile, Presence::Present);
    }
    let reports = gateway.status().reports;
    assert_eq!((reports.registered, reports.challenged, reports.forged), (1, 1, 0), "{reports:?}");
}

fn forged_and_recorded_reports(_: &Namespace) {
    let world = World::new(2).unwrap();
    let place = Place::new("forged");
    let (gateway, listen) = registration(&world, &place);
    let mobile = world.mobile_address(0);
    let mut reporter = Reporter::new(&world, listen, 1 << 40);
    // A report to be replayed: it was absent once.
    reporter.report(mobile, Presence::Away);
    reporter.report(mobile, Presence::Present);
    gateway.says(mobile, "present");
    let recorded = reporter.sent.clone();
    let stranger = world.mobile(1).enter(|| UdpSocket::bind("0.0.0.0:0").unwrap()).unwrap();
    stranger.set_nonblocking(true).unwrap();
    let before = gateway.status().reports;
    let transfer = Transfer::start(&world, 0, false).unwrap();
    // In parts, as a busy daemon reads late, and until enough was read: its socket may drop what it has no room for.
    let mut sent = 0;
    let after = wait_for("the flood to be counted", || {
        for round in sent..sent + 50 {
            let mut datagram = recorded[round % recorded.len()].clone();
            match round % 4 {
                0 => {}
                1 => datagram[round % 76] ^= 1 << (round % 8),
                2 => datagram.truncate(round % 76),
                _ => datagram = vec![round as u8; round % 1400],
            }
            stranger.send_to(&datagram, listen).unwrap();
        }
        sent += 50;
        let reports = gateway.status().reports;
        let is_enough = sent >= 2000 && reports.forged - before.forged > 1000 && reports.replayed > before.replayed;
        is_enough.then_some(reports)
    });
    transfer.await_more(500_000).unwrap();
    transfer.ends_exact().unwrap();
    assert_eq!(after.registered, before.registered, "{after:?}");
    let line = gateway.mobile(mobile).unwrap();
    assert_eq!((line.standing.as_str(), line.buffer.absences), ("present", 1), "{line:?}");
    // A stranger receives no more bytes than it sends, and only in answer to authentic datagrams.
    let mut answers = 0;
    let mut buffer = [0; 200];
    while let Ok((len, _)) = stranger.recv_from(&mut buffer) {
        assert_eq!(len, 76);
        answers += 1;
    }
    assert!(answers <= sent / 4, "{answers} to {sent}");
    // The mobile host's own reports are accepted at once, for its own address only.
    reporter.report(mobile, Presence::Away);
    gateway.says(mobile, "away");
    let other = world.mobile_address(1);
    reporter.registrant.report(clock::now(), other, Presence::Away);
    let datagram = reporter.registrant.poll_transmit(clock::now()).unwrap();
    reporter.socket.send(&datagram).unwrap();
    wait_for("a refusal", || (gateway.status().reports.refused > after.refused).then_some(()));
    assert!(gateway.mobile(other).is_none_or(|line| line.standing == "present"));
}

// Claim: Reports for which there is no room for another mobile host do not end the daemon.
fn no_room(_: &Namespace) {
    let world = World::new(2).unwrap();
    let place = Place::new("room");
    let [mobile, other] = [0, 1].map(|number| world.mobile_address(number));
    let lease = |until: u64| format!("{until} 02:00:00:00:00:02 {other} * *\n");
    let file = place.write("leases", &lease(4_000_000_000));
    let sections = format!("[buffer]\nmost_mobiles = 1\n[leases]\nfile = {file:?}\n");
    let gateway = Gateway::start(world.router(), &sections);
    let transfer = Transfer::start(&world, 0, false).unwrap();
    transfer.await_more(200_000).unwrap();
    assert!(gateway.mobile(mobile).is_some(), "the only place is taken");
    place.write("leases", &lease(4_000_000_100));
    wait_for("the renewed lease", || (gateway.status().reports.leases > 0).then_some(()));
    assert!(gateway.report(other, holdover_gatewayd::control::Standing::Away).is_err());
    transfer.await_more(200_000).unwrap();
    transfer.ends_exact().unwrap();
    assert_eq!(gateway.mobile(other), None);
}

// Claim: Requests over HTTP count with the token only.
// Tests: `webhook::only_requests_with_the_token_and_the_right_form_count`
fn webhook(_: &Namespace) {
    let world = World::new(1).unwrap();
    let place = Place::new("webhook");
    world.router().enter(|| holdover_testbed::Netlink::open(world.router()).unwrap().set_up("lo").unwrap()).unwrap();
    let token = place.write("token", "correct horse battery staple\n");
    let sections =
        format!("[webhook]\nlisten = \"127.0.0.1:4788\"\ntoken_file = {token:?}\n[presence]\nsilence = false\n");
    let gateway = Gateway::start(world.router(), &sections);
    let mobile = world.mobile_address(0);
    let ask = |path: &str, token: &str| {
        let request = format!("POST {path} HTTP/1.1\r\nHost: gateway\r\nAuthorization: Bearer {token}\r\n\r\n");
        let call = move || {
            let mut stream = TcpStream::connect("127.0.0.1:4788").unwrap();
            stream.write_all(request.as_bytes()).unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).unwrap();
            answer
        };
        world.router().enter(call).unwrap()
    };
    let away = format!("/mobiles/{mobile}/away");
    assert!(ask(&away, "wrong").starts_with("HTTP/1.1 401 "));
    assert_eq!(gateway.mobile(mobile), None);
    assert!(ask(&away, "correct horse battery staple").starts_with("HTTP/1.1 200 "));
    gateway.says(mobile, "away");
    let stranger = ask("/mobiles/192.0.2.1/away", "correct horse battery staple");
    assert!(stranger.starts_with("HTTP/1.1 409 ") && stranger.contains("is no mobile host behind"), "{stranger}");
    assert!(ask(&format!("/mobiles/{mobile}/present"), "correct horse battery staple").starts_with("HTTP/1.1 200 "));
    gateway.says(mobile, "present");
    let reports = gateway.status().reports;
    assert_eq!((reports.requested, reports.refused), (2, 1), "{reports:?}");
}

// Claim: A mobile host that was reported present, and has never sent a packet, is forgotten after `forget_after`.
fn only_reported(_: &Namespace) {
    let world = World::new(1).unwrap();
    let gateway = Gateway::start(world.router(), "[presence]\nforget_after = \"1 s\"\n[buffer]\nlongest = \"1 s\"\n");
    let address = world.mobile_address(9);
    gateway.report(address, Standing::Present).unwrap();
    assert!(gateway.mobile(address).is_some());
    wait_for("its end", || gateway.mobile(address).is_none().then_some(()));
}
