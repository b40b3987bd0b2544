//! Wireshark's view of packets in ESP, given their keys.
//!
//! In BEET mode the checksums of inner packets cover the HITs, which are not in the packet (RFC 7402 section 3.2 and appendix B). Wireshark
//! sums over the outer addresses. A second capture therefore has the same packets in ESP with the HITs as outer addresses: ESP does not
//! depend on them.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::Path;
use std::process::Command;

use holdover_base::Instant;
use holdover_testbed::harness::skip;
use holdover_wire::{Checksums, Packet, Payload, pcap};

use crate::Test;
use crate::daemon::{Place, pair, tshark};
use crate::network::{Network, SERVER, WIFI};
use crate::transfer::{Transfer, Way};

pub(crate) const TESTS: &[Test] = &[("wireshark_agrees_with_every_checksum", wireshark_agrees_with_every_checksum)];

/// The ports of ESP in UDP.
const UDP_PORT: u16 = 10_500;

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
        let hits = BTreeMap::from([(WIFI.address, mobile.hit()), (SERVER[0], server.hit())]);
        let hits: BTreeMap<IpAddr, IpAddr> =
            hits.into_iter().map(|(at, hit)| (at.parse().unwrap(), hit.into())).collect();
        drop((mobile, server));
        drop(network);
        if Command::new("tshark").arg("--version").output().is_err() {
            return skip("tshark is not installed: the captures are not looked at");
        }
        let readdressed = place.0.join("hits.pcap");
        let esp = between_hits(&capture, &readdressed, &hits);
        check(&capture, &readdressed, &std::fs::read_to_string(&keys).unwrap(), esp, via);
    }
}

/// Compares Wireshark's view of both captures, which have `esp` packets in ESP each.
fn check(capture: &Path, readdressed: &Path, keys: &str, esp: usize, via: &str) {
    let mut arguments = ["-o", "esp.enable_encryption_decode:TRUE"].map(str::to_owned).to_vec();
    arguments.extend(keys.lines().flat_map(|line| ["-o".to_owned(), format!("uat:esp_sa:{line}")]));
    let as_esp = ["-d".to_owned(), format!("udp.port=={UDP_PORT},udpencap")];
    let count = |capture: &Path, filter: &str| {
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

/// Writes the packets in ESP of a capture with the HITs of hosts in place of their addresses. Returns their number.
fn between_hits(capture: &Path, out: &Path, hits: &BTreeMap<IpAddr, IpAddr>) -> usize {
    let simple = out.with_extension("raw");
    let status = Command::new("tshark").arg("-r").arg(capture).args(["-F", "pcap", "-w"]).arg(&simple).status();
    assert!(status.unwrap().success());
    let mut writer = pcap::Writer::new(Vec::new(), 65_535).unwrap();
    let mut count = 0;
    for packet in raw_packets(&std::fs::read(&simple).unwrap()) {
        let esp = match packet.payload {
            Payload::Esp(esp) => esp,
            // RFC 9028 section 4.1: HIP begins with four zero bytes.
            Payload::Udp(udp) if udp.dst_port == UDP_PORT && !udp.payload.starts_with(&[0; 4]) => udp.payload,
            _ => continue,
        };
        count += 1;
        writer.write(Instant::ZERO, &Packet::new(hits[&packet.src], hits[&packet.dst], Payload::Esp(esp))).unwrap();
    }
    std::fs::write(out, writer.into_inner()).unwrap();
    count
}

/// The IP packets of a capture in pcap's first format, in this host's byte order.
fn raw_packets(mut bytes: &[u8]) -> Vec<Packet> {
    const FILE_HEADER: usize = 24;
    const RECORD_HEADER: usize = 16;
    let mut packets = Vec::new();
    bytes = &bytes[FILE_HEADER..];
    while let Some((header, rest)) = bytes.split_at_checked(RECORD_HEADER) {
        let len = u32::from_ne_bytes(header[8..12].try_into().unwrap()) as usize;
        let (packet, rest) = rest.split_at(len);
        packets.extend(Packet::parse_to_forward(packet.to_vec().into(), Checksums::Verify));
        bytes = rest;
    }
    packets
}
