//! Wireshark's view of packets in ESP, given their keys.
//!
//! In BEET mode the checksums of inner packets cover the HITs, which are not in the packet (RFC 7402 section 3.2 and appendix B). Wireshark
//! sums over the outer addresses. `holdover hip between-hits` writes a second capture, which has the same packets in ESP with the HITs as outer
//! addresses: ESP does not depend on them.

use std::path::Path;
use std::process::Command;

use holdover_testbed::harness::skip;

use crate::Test;
use crate::daemon::{Place, pair, tshark};
use crate::network::{Network, SERVER, WIFI};
use crate::transfer::{Transfer, Way};

pub(crate) const TESTS: &[Test] = &[("wireshark_agrees_with_every_checksum", wireshark_agrees_with_every_checksum)];

// Claim: Wireshark, given the keys that the daemon has written, decrypts every packet of a connection in both directions, with and without
// UDP, and agrees with every checksum of the packets within.
fn wireshark_agrees_with_every_checksum() {
    for via in ["ip", "udp"] {
        let place = Place::new(&format!("checksums-{via}"));
        let (capture, keys) = (place.0.join("outer.pcapng"), place.0.join("keys"));
        let network = Network::new(Some(&capture));
        network.attach(&WIFI);
        let [mut mobile, mut server] =
            pair(&place, [&network.mobile, &network.server], [&[WIFI.address], &SERVER], via);
        mobile.up(&format!("--esp-keys {}", keys.display()));
        server.up("");
        mobile.ok("ping server --count 2");
        for way in [Way::ToMobile, Way::FromMobile] {
            let transfer = Transfer::start(way, &network.mobile, &network.server, server.hit());
            transfer.wait_for_more(500_000);
            transfer.end();
        }
        drop((mobile, server));
        drop(network);
        if Command::new("tshark").arg("--version").output().is_err() {
            return skip("tshark is not installed: the captures are not looked at");
        }
        let readdressed = place.0.join("hits.pcap");
        let esp = between_hits(&capture, &readdressed);
        check(&capture, &readdressed, &std::fs::read_to_string(&keys).unwrap(), esp, via);
    }
}

/// Compares Wireshark's view of both captures, which have `esp` packets in ESP each.
fn check(capture: &Path, readdressed: &Path, keys: &str, esp: usize, via: &str) {
    let mut arguments = ["-o", "esp.enable_encryption_decode:TRUE"].map(str::to_owned).to_vec();
    arguments.extend(keys.lines().flat_map(|line| ["-o".to_owned(), format!("uat:esp_sa:{line}")]));
    let as_esp = ["-d".to_owned(), "udp.port==10500,udpencap".to_owned()];
    // ICMP errors quote packets whose receiver has just gone.
    let count = |capture: &Path, filter: &str| {
        let filter = &format!("({filter}) and not icmp");
        let all = arguments.iter().chain(&as_esp).map(String::as_str).chain(["-Y", filter]);
        tshark(capture, &all.collect::<Vec<_>>()).map(|found| found.lines().count()).unwrap()
    };
    let read = |capture| count(capture, "esp and (tcp.port == 5001 or icmpv6 or ipv6.nxt == 59 or esp.protocol == 59)");
    assert!(esp > 800, "{esp} packets, {via}");
    assert_eq!([count(capture, "esp"), count(readdressed, "esp")], [esp; 2], "{via}");
    assert_eq!([read(capture), read(readdressed)], [esp; 2], "{via}: all are decrypted");
    let segments = count(readdressed, "esp and tcp");
    assert!(segments > 800, "{segments} segments, {via}");
    assert_eq!(count(readdressed, "tcp.checksum.status == \"Good\""), segments, "{via}");
    let bad = ["tcp", "udp", "icmpv6"].map(|name| format!("{name}.checksum.status == \"Bad\"")).join(" or ");
    assert_eq!(count(readdressed, &format!("{bad} or _ws.malformed")), 0, "{via}");
    assert!(count(readdressed, "icmpv6.checksum.status == \"Good\"") >= 4, "{via}");
    // The filter finds wrong checksums: those over the outer addresses are.
    assert_eq!(count(capture, &bad), count(capture, "tcp or icmpv6 and esp"), "{via}");
}

/// Runs `holdover hip between-hits`, and checks the HITs. Returns the number of packets.
fn between_hits(capture: &Path, out: &Path) -> usize {
    let run = || {
        let words = ["hip", "between-hits", "--json", "--out"];
        Command::new(env!("CARGO_BIN_EXE_holdover")).args(words).args([out, capture]).output().unwrap()
    };
    let output = run();
    assert!(output.status.success(), "{output:?}");
    let counts: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let count = |name: &str| counts[name].as_u64().unwrap();
    assert!(count("hip") >= 4 && (count("unknown"), count("cut")) == (0, 0), "{counts}");
    // It destroys no file.
    let again = run();
    assert_eq!(again.status.code(), Some(1), "{again:?}");
    assert!(String::from_utf8_lossy(&again.stdout).contains("File exists"), "{again:?}");
    count("esp") as usize
}
