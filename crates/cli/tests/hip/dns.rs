//! Peers from the DNS: a real server, dnsmasq, has the record that `holdover hip id --dns` prints.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::Command;

use holdover_host::Process;
use holdover_host::process::LogTo;

use crate::Test;
use crate::daemon::{PATIENCE, Place};
use crate::words::{run, well};

pub(crate) const TESTS: &[Test] = &[
    ("a_host_is_found_in_the_dns", a_host_is_found_in_the_dns),
    ("a_host_prints_its_record", a_host_prints_its_record),
];

/// The host, and its rendezvous server.
const HOST: &str = "host.example.org";
const SERVER: &str = "rvs.example.org";

/// dnsmasq on loopback, which ends with the test.
struct Dnsmasq {
    _process: Process,
    address: SocketAddr,
}

impl Dnsmasq {
    /// With these records of type 55, in hexadecimal digits, and addresses of the two names.
    fn start(place: &Place, records: &[(&str, &str)]) -> Self {
        let address = free_address();
        let mut command = Command::new("dnsmasq");
        command.args([
            "--keep-in-foreground",
            "--conf-file=/dev/null",
            "--no-resolv",
            "--no-hosts",
            "--bind-interfaces",
        ]);
        command.args(["--user=root", "--group=root", "--local=/example.org/", "--listen-address=127.0.0.1"]);
        command.arg(format!("--port={}", address.port()));
        command.arg(format!("--pid-file={}", place.0.join("pid").display()));
        command.arg(format!("--host-record={HOST},192.0.2.7,2001:db8::7"));
        command.arg(format!("--host-record={SERVER},203.0.113.9"));
        command.arg("--host-record=bare.example.org,127.0.0.1");
        for (name, record) in records {
            command.arg(format!("--dns-rr={name},55,{record}"));
        }
        let process = Process::start_here(command, LogTo::File(place.0.join("log")));
        let mut process = process.unwrap_or_else(|error| panic!("dnsmasq (Debian: dnsmasq-base) is needed: {error}"));
        let listens = process.wait_until_ok(PATIENCE, || TcpStream::connect(address).map(drop));
        listens.unwrap_or_else(|error| panic!("dnsmasq does not listen at {address}: {error}"));
        Self { _process: process, address }
    }
}

/// A port that is free in UDP and TCP.
fn free_address() -> SocketAddr {
    loop {
        let udp = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = udp.local_addr().unwrap();
        if TcpListener::bind(address).is_ok() {
            return address;
        }
    }
}

fn json(text: &str) -> serde_json::Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

// Claim: The record that a host prints makes it a peer by its name, from dnsmasq: HIT, addresses and rendezvous servers. Wrong, missing and
// unprotected records are refused.
// Tests: `dns::a_host_prints_its_record`
fn a_host_is_found_in_the_dns() {
    let place = Place::new("dns-found");
    for host in ["ours", "other", "own"] {
        well(&place, &format!("keygen --dir {host}"));
    }
    let hit = well(&place, "id --dir ours").trim().to_owned();
    let record = |directory: &str, words: &str| {
        let printed = json(&well(&place, &format!("id --dir {directory} --dns {HOST} --json {words}")));
        let text = printed["dns"]["unknown_type"].as_str().unwrap().to_owned();
        text.split(' ').next_back().unwrap().to_owned()
    };
    let ours = record("ours", &format!("--rendezvous {SERVER}"));
    let other = record("other", "");
    // The HIT of one host before the key of another one.
    let wrong = format!("{}{}", &other[..40], &ours[40..]);
    let server = Dnsmasq::start(&place, &[(HOST, &ours), ("wrong.example.org", &wrong), ("bare.example.org", &other)]);
    let ask = format!("--resolver {} --socket s", server.address);

    let added = well(&place, &format!("peer add {HOST} --dir a {ask}"));
    for line in [
        format!("{HOST} is {hit}"),
        "at 2001:db8::7, 192.0.2.7".to_owned(),
        format!("rendezvous servers {SERVER}: 203.0.113.9"),
    ] {
        assert!(added.lines().any(|it| it == line), "{line} in {added}");
    }
    assert!(added.contains("no DNSSEC"), "{added}");
    let file = fs::read_to_string(place.0.join("a/peers.toml")).unwrap();
    assert!(file.contains("203.0.113.9") && file.contains("via = \"ip\""), "{file}");

    // Through a rendezvous server in UDP a peer cannot be reached, and one without addresses not at all.
    let added = well(&place, &format!("peer add {HOST} --via udp --dir c {ask}"));
    assert!(added.contains("--via ip"), "{added}");
    let added = well(&place, &format!("peer add bare.example.org --dir c {ask}"));
    assert!(added.lines().any(|it| it == "at no address: it has to initiate"), "{added}");
    assert!(added.contains("ignored 127.0.0.1 in the DNS: it is a loopback address"), "{added}");

    let added = json(&well(&place, &format!("peer add bare --dns bare.example.org --json --dir a {ask}")));
    assert_eq!(added["peer"]["name"], "bare");
    assert_eq!(added["peer"]["via"], "udp");
    assert_eq!(added["dns"]["dnssec"], "none");
    assert_eq!(added["dns"]["ignored"], serde_json::json!(["127.0.0.1"]));
    assert_eq!(added["dns"]["name"], "bare.example.org");

    for (words, reason) in [
        (format!("peer add {HOST} --require-dnssec"), "--require-dnssec"),
        ("peer add wrong.example.org".to_owned(), "its public key has"),
        ("peer add nobody.example.org".to_owned(), "does not exist"),
        (format!("peer add {SERVER}"), "no HIP record"),
    ] {
        let (code, _, err) = run(&place, &format!("{words} --dir b {ask}"));
        assert!(code == 1 && err.contains(reason), "{words}: {err}");
    }
    let (code, out, _) = run(&place, &format!("peer add {SERVER} --json --dir b {ask}"));
    assert!(code == 1 && json(&out)["error"].as_str().unwrap().contains("no HIP record"), "{out}");
    let (code, _, err) = run(&place, &format!("peer add {HOST} --dir ours {ask}"));
    assert!(code == 2 && err.contains("this host's own"), "{err}");
    let nobody = free_address();
    let (code, _, err) = run(&place, &format!("peer add {HOST} --dir b --socket s --resolver {nobody}"));
    assert!(code == 1 && err.contains("--resolver ADDRESS"), "{err}");
    assert!(well(&place, "peer list --dir b").contains("no peers"));
}

fn a_host_prints_its_record() {
    let place = Place::new("dns-record");
    well(&place, "keygen --dir d --algorithm ecdsa-p256");
    let hit: std::net::Ipv6Addr = well(&place, "id --dir d").trim().parse().unwrap();
    let digits = format!("{:032X}", hit.to_bits());
    let line = well(&place, &format!("id --dir d --dns {HOST}. --rendezvous {SERVER} --rendezvous rvs2.example.org"));
    let fields: Vec<&str> = line.split_whitespace().collect();
    assert_eq!(fields[..5], ["host.example.org.", "IN", "HIP", "3", digits.as_str()], "{line}");
    assert_eq!(fields[6..], ["rvs.example.org.", "rvs2.example.org."], "{line}");
    assert_eq!(fields[5].len(), 88, "64 bytes in base64");
    assert!(well(&place, "id --dir d --dns").starts_with("@ IN HIP 3 "));
    for (words, reason) in [
        ("id --dir d --dns a..b", "not a domain name"),
        ("id --dir d --dns host.example.org --rendezvous 192.0.2.9", "is an address"),
        ("peer add 192.0.2.7 --dir d", "is an address"),
        ("peer add x 192.0.2.7 --dir d", "NAME HIT ADDRESS"),
        ("id --dir d --rendezvous rvs.example.org", "--dns"),
        ("peer add x 2001:25::1 --dns host.example.org", "cannot be used with"),
        ("peer add x --resolver nobody", "expected an address"),
    ] {
        let (code, _, err) = run(&place, words);
        assert!(code == 2 && err.contains(reason), "{words}: {err}");
    }
}
