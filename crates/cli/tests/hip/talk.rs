//! Two hosts that stay where they are.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, TcpListener, TcpStream, UdpSocket};
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;
use std::time::Duration;

use holdover_testbed::harness::skip;
use holdover_testbed::{Namespace, Netlink};

use crate::Test;
use crate::daemon::{Host, PATIENCE, Place, pair, tshark};
use crate::network::{LTE, Network, SERVER, WIFI};
use crate::transfer::{Transfer, Way};

pub(crate) const TESTS: &[Test] = &[
    ("two_hosts_talk_after_one_command_each", two_hosts_talk_after_one_command_each),
    ("they_talk_in_udp", they_talk_in_udp),
    ("programs_that_know_ipv4_only_talk", programs_that_know_ipv4_only_talk),
    ("ipv4_programs_get_an_error_for_unassigned_addresses", ipv4_programs_get_an_error_for_unassigned_addresses),
    ("another_identity_is_refused", another_identity_is_refused),
    ("a_peer_is_found_by_its_address_alone", a_peer_is_found_by_its_address_alone),
    ("connections_survive_a_killed_and_restarted_daemon", connections_survive_a_killed_and_restarted_daemon),
    ("keys_are_changed_and_written_for_wireshark", keys_are_changed_and_written_for_wireshark),
    ("tshark_finds_nothing_malformed", tshark_finds_nothing_malformed),
];

// Claim: Two hosts communicate after one command each; `status`, `ping` and `down` report and act accordingly.
fn two_hosts_talk_after_one_command_each() {
    let (place, network) = (Place::new("talk"), Network::new(None));
    let [mut mobile, mut server] = pair(&place, [&network.mobile, &network.server], [&[WIFI.address], &SERVER], "ip");
    mobile.up("");
    assert!(mobile.log().contains("no default route"), "{}", mobile.log());
    network.attach(&WIFI);
    network.server.enter(|| Netlink::open(&network.server).unwrap().set_up("lo").unwrap()).unwrap();
    server.up("--metrics 127.0.0.1:9477");
    let pinged = mobile.ok("ping server --count 3");
    assert!(pinged.contains("3 of 3 answered"), "{pinged}");
    let pinged = server.ok("ping mobile --count 2 --json");
    let lines: Vec<serde_json::Value> = pinged.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let [first, second, totals] = &lines[..] else { panic!("two replies and the totals: {pinged}") };
    for (number, reply) in [first, second].into_iter().enumerate() {
        assert_eq!(reply["number"], number, "{pinged}");
        assert!((0.04..5.0).contains(&reply["round_trip_s"].as_f64().unwrap()), "{pinged}");
    }
    let hit = mobile.hit().to_string();
    assert_eq!(*totals, serde_json::json!({ "peer": "mobile", "hit": hit, "sent": 2, "answered": 2 }));
    interrupted_ping_prints_its_totals(&server);
    let peer = mobile.wait_for("established", |peer| peer["state"] == "ESTABLISHED");
    assert_eq!(peer["name"], "server");
    assert!(peer["packets_in"].as_u64().unwrap() >= 4, "{peer}");
    let text = server.ok("status");
    assert!(text.contains("mobile") && text.contains("ESTABLISHED") && text.contains(WIFI.address), "{text}");
    let scraped = scrape(&network.server);
    assert!(scraped.contains("holdover_hip_established{peer=\"mobile\"} 1\n"), "{scraped}");
    // A daemon that ends notifies its peer.
    mobile.ok("down");
    server.wait_for("closed", |peer| peer["state"] == "CLOSED");
    assert!(!mobile.run("status").status.success());
    assert!(!mobile.socket().exists());
}

fn interrupted_ping_prints_its_totals(server: &Host) {
    let ping = server.spawn("ping mobile --count 1000 --json");
    std::thread::sleep(Duration::from_millis(500));
    let pid = rustix::process::Pid::from_child(&ping);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let output = ping.wait_with_output().unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    let totals: serde_json::Value = serde_json::from_str(printed.lines().last().unwrap()).unwrap();
    assert!(totals["sent"] == 1 && totals["answered"] == 1, "{printed}");
    assert_eq!(output.status.code(), Some(130));
}

/// The daemon's answer to Prometheus there.
fn scrape(namespace: &Namespace) -> String {
    use std::io::{Read as _, Write as _};
    namespace
        .enter(|| {
            let mut stream = std::net::TcpStream::connect("127.0.0.1:9477").unwrap();
            stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).unwrap();
            answer
        })
        .unwrap()
}

fn they_talk_in_udp() {
    let place = Place::new("udp");
    let capture = place.0.join("udp.pcapng");
    let network = Network::new(Some(&capture));
    network.attach(&WIFI);
    let [mut mobile, mut server] = pair(&place, [&network.mobile, &network.server], [&[WIFI.address], &SERVER], "udp");
    mobile.up("");
    server.up("");
    assert!(mobile.ok("ping server --count 2").contains("2 of 2 answered"));
    let transfer = Transfer::start(Way::ToMobile, &network.mobile, &network.server, server.hit());
    transfer.wait_for_more(200_000);
    network.detach(&WIFI);
    network.attach(&LTE);
    transfer.wait_for_more(200_000);
    transfer.end();
    mobile.wait_for("moved", |peer| peer["readdressed"] == 1);
    drop((mobile, server));
    drop(network);
    if let Some(others) = tshark(&capture, &["-Y", "not udp.port == 10500 and not icmpv6"]) {
        assert_eq!(others, "");
        // ESP in UDP has no dissector at this port, and is taken for this and that.
        let bad = "hip and (_ws.malformed or hip.checksum.status == \"Bad\") or udp.checksum.status == \"Bad\"";
        assert_eq!(tshark(&capture, &["-Y", bad]).unwrap(), "");
        assert!(!tshark(&capture, &["-Y", "hip"]).unwrap().is_empty());
    }
}

/// The server at `address` echoes, and listens on `listen`; both directions of a connection and of datagrams.
pub(crate) fn echoes(client: &Namespace, server: &Namespace, listen: IpAddr, address: IpAddr) {
    let (tcp, udp) = server
        .enter(|| (TcpListener::bind((listen, 7007)).unwrap(), UdpSocket::bind((listen, 7007)).unwrap()))
        .unwrap();
    let echo = std::thread::spawn(move || {
        let mut buffer = [0; 2000];
        let (len, from) = udp.recv_from(&mut buffer).unwrap();
        udp.send_to(&buffer[..len], from).unwrap();
        let (mut stream, _) = tcp.accept().unwrap();
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).unwrap();
        stream.write_all(&bytes).unwrap();
    });
    client
        .enter(|| {
            let any: IpAddr =
                if address.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
            let socket = UdpSocket::bind((any, 0)).unwrap();
            socket.set_read_timeout(Some(PATIENCE)).unwrap();
            socket.connect((address, 7007)).unwrap();
            let mut answer = [0; 2000];
            socket.send(&[7; 1200]).unwrap();
            assert_eq!(socket.recv(&mut answer).unwrap(), 1200);
            let mut stream = TcpStream::connect((address, 7007)).unwrap();
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            let sent: Vec<u8> = (0..300_000_u32).map(|at| (at % 251) as u8).collect();
            stream.write_all(&sent).unwrap();
            stream.shutdown(Shutdown::Write).unwrap();
            let mut came = Vec::new();
            stream.read_to_end(&mut came).unwrap();
            assert!(came == sent, "{} bytes", came.len());
        })
        .unwrap();
    echo.join().unwrap();
}

fn programs_that_know_ipv4_only_talk() {
    let (place, network) = (Place::new("lsi"), Network::new(None));
    network.attach(&WIFI);
    let [mut mobile, mut server] = pair(&place, [&network.mobile, &network.server], [&[WIFI.address], &SERVER], "ip");
    mobile.up("");
    server.up("--lsi-prefix 100.96.0.0/16");
    let lsi: IpAddr = mobile.peer()["lsi"].as_str().unwrap().parse().unwrap();
    let hit = IpAddr::from(server.hit());
    let hosts = mobile.ok("peer list --hosts");
    assert!(hosts.contains(&format!("{hit} server\n{lsi} server\n")), "{hosts}");
    assert_eq!(resolved(&network.mobile, &place, &hosts, "server"), [hit, lsi]);
    let own: IpAddr = "100.96.0.1".parse().unwrap();
    let any: [IpAddr; 2] = [Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()];
    // The ends may disagree about the version, and a listener of IPv6 takes both.
    for (listen, address) in [(any[0], lsi), (any[0], hit), (any[1], lsi), (any[1], hit), (own, hit), (hit, lsi)] {
        echoes(&network.mobile, &network.server, listen, address);
    }
    // Where nothing listens, the kernel's refusal comes back in the program's version.
    for address in [lsi, hit] {
        let refused = network.mobile.enter(|| TcpStream::connect_timeout(&(address, 9).into(), PATIENCE)).unwrap();
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::ConnectionRefused);
        let socket =
            network.mobile.enter(|| UdpSocket::bind((if address.is_ipv4() { any[0] } else { any[1] }, 0)).unwrap());
        let socket = socket.unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket.connect((address, 9)).unwrap();
        socket.send(b"?").unwrap();
        assert_eq!(socket.recv(&mut [0; 9]).unwrap_err().kind(), ErrorKind::ConnectionRefused);
    }
    // A connection of IPv4 survives both: a daemon that is killed, which forgets whose version is which, and a new address.
    let listener = network.server.enter(|| TcpListener::bind((any[0], 7008)).unwrap()).unwrap();
    let mut client = network.mobile.enter(|| TcpStream::connect((lsi, 7008)).unwrap()).unwrap();
    let (mut accepted, _) = listener.accept().unwrap();
    accepted.set_read_timeout(Some(PATIENCE)).unwrap();
    server.kill();
    server.up("--lsi-prefix 100.96.0.0/16");
    client.write_all(b"one").unwrap();
    let mut three = [0; 3];
    accepted.read_exact(&mut three).unwrap();
    network.detach(&WIFI);
    network.attach(&LTE);
    client.write_all(b"two").unwrap();
    accepted.read_exact(&mut three).unwrap();
    assert_eq!(&three, b"two");
    // Without LSIs there is no address for it.
    server.ok("down");
    server.up("--no-lsi");
    assert!(server.peer()["lsi"].is_null() && !server.ok("status").contains("in IPv4"));
}

/// The addresses of a name in IPv6 and in IPv4, as the C library reads them from these lines in place of `/etc/hosts`.
fn resolved(namespace: &Namespace, place: &Place, hosts: &str, name: &str) -> Vec<IpAddr> {
    let file = place.0.join("hosts");
    std::fs::write(&file, hosts).unwrap();
    let lookup = format!(
        "mount --bind {} /etc/hosts && getent -s files ahostsv6 {name} && getent -s files ahostsv4 {name}",
        file.display()
    );
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", &lookup]);
    let output = namespace.enter(|| command.output().unwrap()).unwrap();
    let found = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{found}{}", String::from_utf8_lossy(&output.stderr));
    let mut found: Vec<IpAddr> = found.lines().map(|it| it.split(' ').next().unwrap().parse().unwrap()).collect();
    found.dedup();
    found
}

/// The kernel passes the daemon's ICMP error to the program: its source is not an address of this host.
// Claim: The kernel passes the daemon's errors about unreachable LSIs to IPv4 programs.
fn ipv4_programs_get_an_error_for_unassigned_addresses() {
    let (place, network) = (Place::new("nobody"), Network::new(None));
    network.attach(&WIFI);
    let [mut mobile, _server] = pair(&place, [&network.mobile, &network.server], [&[WIFI.address], &SERVER], "ip");
    mobile.up("");
    let nobody = Ipv4Addr::new(198, 18, 0, 77);
    assert_ne!(mobile.lsi_of("server"), nobody);
    let error =
        network.mobile.enter(|| TcpStream::connect_timeout(&(nobody, 9).into(), Duration::from_secs(10)).unwrap_err());
    assert_eq!(error.unwrap().kind(), std::io::ErrorKind::HostUnreachable);
}

fn another_identity_is_refused() {
    let (place, network) = (Place::new("other"), Network::new(None));
    network.attach(&WIFI);
    let [mut mobile, mut server] = pair(&place, [&network.mobile, &network.server], [&[WIFI.address], &SERVER], "ip");
    // At the mobile host's address there is another host, which knows where the server is.
    let mut other = Host::new(&place, "other", &network.mobile);
    let invitation = server.ok(&format!("invite --without-secret --name server --address {}", SERVER[0]));
    other.ok(&format!("join {}", invitation.trim()));
    server.up("");
    other.up("");
    let output = other.run("ping server --count 1 --json");
    assert!(!output.status.success(), "{output:?}");
    let printed = String::from_utf8(output.stdout).unwrap();
    let totals: serde_json::Value = serde_json::from_str(printed.lines().last().unwrap()).unwrap();
    assert_eq!((&totals["sent"], &totals["answered"]), (&1.into(), &0.into()), "{printed}");
    assert_ne!(other.peer()["state"], "ESTABLISHED");
    assert_ne!(server.peer()["state"], "ESTABLISHED");
    other.ok("down");
    mobile.up("");
    mobile.ok("ping server --count 1");
}

/// RFC 7401 section 4.1.8.
// Claim: A host becomes a peer by its address alone, in UDP and without, if both hosts have enabled opportunistic mode; it is off by default at both.
fn a_peer_is_found_by_its_address_alone() {
    const ON: &str = "[opportunistic]\nenabled = true\n";
    for via in ["udp", "ip"] {
        let (place, network) = (Place::new(&format!("opportunistic-{via}")), Network::new(None));
        network.attach(&WIFI);
        let [mut mobile, mut server] =
            [("mobile", &network.mobile), ("server", &network.server)].map(|(name, it)| Host::new(&place, name, it));
        mobile.up("");
        server.up("--accept-unknown");
        let call = format!("peer add server --opportunistic {} --via {via}", SERVER[0]);
        let refused = mobile.run(&call);
        let error = String::from_utf8_lossy(&refused.stderr);
        assert!(!refused.status.success() && error.contains("opportunistic mode is off"), "{error}");
        mobile.write("hip.toml", ON);
        mobile.reload();
        if via == "ip" {
            // The daemon has read its file when it accepts the call.
            let refused = mobile.run(&call);
            let error = String::from_utf8_lossy(&refused.stderr);
            assert!(!refused.status.success() && error.contains("no host has answered"), "{error}");
            assert!(!mobile.ok("peer list").contains("server"));
        }
        server.write("hip.toml", ON);
        server.reload();
        let added = mobile.ok(&call);
        assert!(added.contains(&server.hit().to_string()) && added.contains("Nothing has proved"), "{added}");
        assert!(mobile.ok("ping server --count 2").contains("2 of 2 answered"));
        let again = mobile.run(&format!("peer add another --opportunistic {}", SERVER[0]));
        let error = String::from_utf8_lossy(&again.stderr);
        assert!(!again.status.success() && error.contains("there is server, which is a peer already"), "{error}");
        let written = std::fs::read_to_string(place.0.join("mobile/peers.toml")).unwrap();
        assert!(written.contains(&format!("via = \"{via}\"")) && written.contains(SERVER[0]), "{written}");
    }
}

fn connections_survive_a_killed_and_restarted_daemon() {
    let (place, network) = (Place::new("restart"), Network::new(None));
    network.attach(&WIFI);
    let [mut mobile, mut server] = pair(&place, [&network.mobile, &network.server], [&[WIFI.address], &SERVER], "ip");
    mobile.up("");
    server.up("");
    let transfer = Transfer::start(Way::FromMobile, &network.mobile, &network.server, server.hit());
    transfer.wait_for_more(200_000);
    server.kill();
    std::thread::sleep(Duration::from_millis(500));
    server.up("");
    transfer.wait_for_more(200_000);
    mobile.kill();
    mobile.up("");
    transfer.wait_for_more(200_000);
    transfer.end();
}

// Claim: Keys change under load, and Wireshark decrypts every packet with the written keys; only the owner can read the file.
fn keys_are_changed_and_written_for_wireshark() {
    let place = Place::new("keys");
    let (capture, keys) = (place.0.join("esp.pcapng"), place.0.join("keys"));
    let network = Network::new(Some(&capture));
    network.attach(&WIFI);
    let [mut mobile, mut server] = pair(&place, [&network.mobile, &network.server], [&[WIFI.address], &SERVER], "ip");
    mobile.up(&format!("--rekey-bytes 1000000 --esp-keys {}", keys.display()));
    server.up("");
    assert!(mobile.log().contains("can decrypt the traffic"), "{}", mobile.log());
    let transfer = Transfer::start(Way::ToMobile, &network.mobile, &network.server, server.hit());
    transfer.wait_for_more(4_000_000);
    transfer.end();
    let peer = mobile.wait_for("rekeyed", |peer| peer["rekeyed"].as_u64() >= Some(3));
    assert_eq!(server.peer()["rekeyed"], peer["rekeyed"]);
    drop((mobile, server));
    drop(network);
    assert_eq!(std::fs::metadata(&keys).unwrap().permissions().mode() & 0o7777, 0o600);
    let lines = std::fs::read_to_string(&keys).unwrap();
    let mut arguments = vec!["-o".to_owned(), "esp.enable_encryption_decode:TRUE".to_owned()];
    arguments.extend(lines.lines().flat_map(|line| ["-o".to_owned(), format!("uat:esp_sa:{line}")]));
    let count = |filter: &str| {
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).chain(["-Y", filter]).collect();
        tshark(&capture, &arguments).map(|found| found.lines().count())
    };
    if let Some(all) = count("esp") {
        let read = count("esp and (tcp.port == 5001 or icmpv6 or ipv6.nxt == 59)").unwrap();
        assert!(all > 3000 && read == all, "{read} of {all} were decrypted");
    }
}

// Claim: Wireshark finds no malformed packet of real daemons.
// Tests: `talk::they_talk_in_udp`
fn tshark_finds_nothing_malformed() {
    let place = Place::new("capture");
    let capture = place.0.join("hip.pcapng");
    let network = Network::new(Some(&capture));
    network.attach(&WIFI);
    let [mut mobile, mut server] = pair(&place, [&network.mobile, &network.server], [&[WIFI.address], &SERVER], "ip");
    mobile.up("");
    server.up("");
    mobile.ok("ping server --count 2");
    network.attach(&LTE);
    std::thread::sleep(Duration::from_millis(300));
    network.detach(&WIFI);
    mobile.ok("ping server --count 2");
    mobile.ok("down");
    drop(server);
    drop(network);
    let Some(types) = tshark(&capture, &["-Y", "hip", "-T", "fields", "-e", "hip.packet_type"]) else {
        return skip("tshark is not installed: the capture is not looked at");
    };
    // I1, R1, I2, R2, UPDATE, CLOSE, CLOSE_ACK.
    for kind in [1, 2, 3, 4, 16, 18, 19] {
        assert!(types.lines().any(|line| line.trim() == kind.to_string()), "{kind}: {types}");
    }
    assert!(!tshark(&capture, &["-Y", "esp"]).unwrap().is_empty());
    let bad =
        tshark(&capture, &["-Y", "_ws.malformed or hip.checksum.status == \"Bad\" or ip.checksum.status == \"Bad\""]);
    assert_eq!(bad.unwrap(), "");
}
