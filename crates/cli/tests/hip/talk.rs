//! Two hosts that stay where they are.

use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use holdover_testbed::{Namespace, Netlink};

use crate::Test;
use crate::daemon::{Host, Place, pair, tshark};
use crate::network::{LTE, Network, SERVER, WIFI};
use crate::transfer::{Transfer, Way};

pub(crate) const TESTS: &[Test] = &[
    ("two_hosts_talk_after_one_command_each", two_hosts_talk_after_one_command_each),
    ("they_talk_in_udp", they_talk_in_udp),
    ("another_identity_is_refused", another_identity_is_refused),
    ("a_daemon_that_is_killed_and_started_again_goes_on", a_daemon_that_is_killed_and_started_again_goes_on),
    ("keys_are_changed_and_written_for_wireshark", keys_are_changed_and_written_for_wireshark),
    ("tshark_finds_nothing_malformed", tshark_finds_nothing_malformed),
];

fn two_hosts_talk_after_one_command_each() {
    let (place, network) = (Place::new("talk"), Network::new(None));
    network.attach(&WIFI);
    let [mut mobile, mut server] = pair(&place, [&network.mobile, &network.server], [&[WIFI.address], &SERVER], "ip");
    mobile.up("");
    network.server.enter(|| Netlink::open(&network.server).unwrap().set_up("lo").unwrap()).unwrap();
    server.up("--metrics 127.0.0.1:9477");
    let pinged = mobile.ok("ping server --count 3");
    assert!(pinged.contains("3 of 3 answered"), "{pinged}");
    server.ok("ping mobile --count 1");
    let peer = mobile.wait_for("established", |peer| peer["state"] == "ESTABLISHED");
    assert_eq!(peer["name"], "server");
    assert!(peer["packets_in"].as_u64().unwrap() >= 4, "{peer}");
    let text = server.ok("status");
    assert!(text.contains("mobile") && text.contains("ESTABLISHED") && text.contains(WIFI.address), "{text}");
    let shown = mobile.ok("top --count 2");
    assert!(shown.contains("out Mbit/s") && shown.matches("ESTABLISHED").count() == 2, "{shown}");
    let scraped = scrape(&network.server);
    assert!(scraped.contains("holdover_hip_established{peer=\"mobile\"} 1\n"), "{scraped}");
    // A peer that goes is told.
    mobile.ok("down");
    server.wait_for("closed", |peer| peer["state"] == "CLOSED");
    assert!(!mobile.run("status").status.success());
    assert!(!mobile.socket().exists());
}

/// What the daemon there tells Prometheus.
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

fn another_identity_is_refused() {
    let (place, network) = (Place::new("other"), Network::new(None));
    network.attach(&WIFI);
    let [mut mobile, mut server] = pair(&place, [&network.mobile, &network.server], [&[WIFI.address], &SERVER], "ip");
    // At the mobile host's address there is another host, which knows where the server is.
    let mut other = Host::new(&place, "other", &network.mobile);
    let invitation = server.ok(&format!("invite --name server --address {}", SERVER[0]));
    other.ok(&format!("join {}", invitation.trim()));
    server.up("");
    other.up("");
    let output = other.run("ping server --count 1");
    assert!(!output.status.success(), "{output:?}");
    assert_ne!(other.peer()["state"], "ESTABLISHED");
    assert_ne!(server.peer()["state"], "ESTABLISHED");
    other.ok("down");
    mobile.up("");
    mobile.ok("ping server --count 1");
}

fn a_daemon_that_is_killed_and_started_again_goes_on() {
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

fn keys_are_changed_and_written_for_wireshark() {
    let place = Place::new("keys");
    let (capture, keys) = (place.0.join("esp.pcapng"), place.0.join("keys"));
    let network = Network::new(Some(&capture));
    network.attach(&WIFI);
    let [mut mobile, mut server] = pair(&place, [&network.mobile, &network.server], [&[WIFI.address], &SERVER], "ip");
    mobile.up(&format!("--rekey-bytes 1000000 --esp-keys {}", keys.display()));
    server.up("");
    assert!(mobile.log().contains("can read the traffic"), "{}", mobile.log());
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
        let is_required = std::env::var_os("HOLDOVER_REQUIRE_NAMESPACES").is_some_and(|value| value == "1");
        assert!(!is_required, "tshark is not installed");
        eprintln!("tshark is not installed: the capture is not looked at");
        return;
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
