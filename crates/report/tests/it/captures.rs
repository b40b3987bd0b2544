//! Captures read back by independent programs: the `pcap-parser` crate, and tshark and tcptrace where installed.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use holdover_base::{Duration, Instant};
use holdover_link::{InFlightFate, Outage, OutagePolicy, Outages, QueuedFate};
use holdover_report::{CaptureFormat, CaptureLen, CaptureOptions, Record, RecorderOptions};
use holdover_sim::{Addresses, Associate, HostAddressing, HostIdentity, LinkBetween, NodeId};
use holdover_tcp::Profile;
use pcap_parser::traits::{PcapNGPacketBlock, PcapReaderIterator};
use pcap_parser::{Block, OptionCode, PcapBlockOwned, PcapError, PcapNGReader};

use crate::worlds::{empty_dir, record, train};

/// A packet of a capture.
struct Seen {
    interface: u32,
    comment: String,
    captured: usize,
    original: u32,
}

/// The names of the interfaces, and the packets.
fn read(path: &Path) -> (Vec<String>, Vec<Seen>) {
    let (mut names, mut packets) = (Vec::new(), Vec::new());
    let mut reader = PcapNGReader::new(1 << 16, fs::File::open(path).unwrap()).unwrap();
    loop {
        match reader.next() {
            Ok((offset, block)) => {
                let PcapBlockOwned::NG(block) = block else { panic!("not pcapng") };
                match block {
                    Block::InterfaceDescription(interface) => {
                        names.push(interface.if_name().unwrap().unwrap().to_owned());
                    }
                    Block::EnhancedPacket(packet) => {
                        let comment = packet.options.iter().find(|option| option.code == OptionCode::Comment);
                        let comment = comment.map_or(String::new(), |comment| {
                            String::from_utf8(comment.value()[..usize::from(comment.len)].to_vec()).unwrap()
                        });
                        packets.push(Seen {
                            interface: packet.if_id,
                            comment,
                            captured: packet.packet_data().len(),
                            original: packet.origlen,
                        });
                    }
                    _ => {}
                }
                reader.consume(offset);
            }
            Err(PcapError::Eof) => return (names, packets),
            Err(PcapError::Incomplete(_)) => reader.refill().unwrap(),
            Err(error) => panic!("{}: {error}", path.display()),
        }
    }
}

fn options(format: CaptureFormat, len: CaptureLen) -> RecorderOptions {
    let captures = CaptureOptions { format, len, ..CaptureOptions::default() };
    RecorderOptions { captures: Some(captures), ..RecorderOptions::default() }
}

fn whole(name: &str) -> (PathBuf, Record) {
    let dir = empty_dir(name);
    let record = record(train(Profile::Linux6Cubic, 1), &dir, &options(CaptureFormat::Pcapng, CaptureLen::Whole));
    (dir.join("captures"), record)
}

#[test]
fn every_interface_has_a_capture_with_the_reasons_of_the_sender() {
    let (dir, record) = whole("captures-reasons");
    let (names, packets) = read(&dir.join("server-eth0.pcapng"));
    assert_eq!(names, ["server-eth0 (ethernet)"]);
    let mut comments: BTreeMap<&str, u64> = BTreeMap::new();
    for packet in &packets {
        *comments.entry(&packet.comment).or_default() += 1;
    }
    // Segments sent by the server, by reason, and segments sent by the mobile host and received by the server.
    let flow = &record.flows[0];
    for (reason, &count) in &flow.sender.as_ref().unwrap().sent_by_reason {
        assert_eq!(comments.remove(reason.as_str()), Some(count), "{reason}");
    }
    // The SYN precedes the connection that would count it.
    let arrived = comments.values().sum::<u64>();
    assert_eq!(arrived, flow.sender.as_ref().unwrap().segments_received + 1);
    assert_eq!(read(&dir.join("mobile-eth0.pcapng")).0, ["mobile-eth0 (wifi)"]);
    assert_eq!(read(&dir.join("gateway-eth1.pcapng")).0, ["gateway-eth1 (wifi)"]);
    assert!(packets.iter().all(|packet| packet.captured == packet.original as usize && packet.interface == 0));
}

#[test]
fn dropped_packets_are_in_a_capture_of_their_own_with_the_cause() {
    let (dir, record) = whole("captures-drops");
    let (_, packets) = read(&dir.join("wifi-dropped.pcapng"));
    let wifi = record.links.iter().find(|link| link.link == "wifi").unwrap();
    for (cause, &count) in &wifi.forward.dropped_packets {
        let with_cause =
            packets.iter().filter(|packet| packet.comment.starts_with(&format!("dropped: {cause}; sent as ")));
        let backward = wifi.backward.dropped_packets.get(cause).copied().unwrap_or(0);
        assert_eq!(with_cause.count() as u64, count + backward, "{cause}");
    }
    assert!(wifi.forward.dropped_packets.contains_key("queue-full"));
    assert!(!dir.join("ethernet-dropped.pcapng").exists(), "nothing was dropped there");
}

#[test]
fn a_damaged_packet_does_not_show_where_it_arrived() {
    let mut world = train(Profile::Linux6Cubic, 1);
    let wifi = &mut world.links[1];
    for direction in [&mut wifi.forward, &mut wifi.backward] {
        direction.outages = Outages::List(vec![Outage { down: Instant::from_secs(5), up: Instant::from_secs(7) }]);
        direction.outage_policy = OutagePolicy { queued: QueuedFate::Corrupted, in_flight: InFlightFate::Corrupted };
    }
    let dir = empty_dir("captures-damaged");
    let record = record(world, &dir, &options(CaptureFormat::Pcapng, CaptureLen::Bytes(128)));
    let wifi = &record.links[1];
    let damaged = wifi.forward.damaged_packets + wifi.backward.damaged_packets;
    assert!(damaged > 10, "{wifi:?}");
    let (_, dropped) = read(&dir.join("captures/wifi-dropped.pcapng"));
    let marked = dropped.iter().filter(|packet| packet.comment.starts_with("dropped: corrupted"));
    assert_eq!(marked.count() as u64, damaged);
    let (_, mobile) = read(&dir.join("captures/mobile-eth0.pcapng"));
    let whole = wifi.forward.delivered_packets - wifi.forward.damaged_packets;
    assert_eq!(mobile.len() as u64, whole + wifi.backward.packets);
}

#[test]
fn a_snap_length_and_a_limit_cut_and_the_record_says_so() {
    let dir = empty_dir("captures-limits");
    let captures = CaptureOptions {
        len: CaptureLen::Bytes(64),
        max_file_bytes: 10_000,
        nodes: Some(vec!["server".into()]),
        ..CaptureOptions::default()
    };
    let options = RecorderOptions { captures: Some(captures), ..RecorderOptions::default() };
    let record = record(train(Profile::Linux6Cubic, 1), &dir, &options);
    assert_eq!(record.cut_captures, ["server-eth0.pcapng"]);
    let path = dir.join("captures/server-eth0.pcapng");
    assert!(fs::metadata(&path).unwrap().len() < 12_000);
    let (_, packets) = read(&path);
    assert!(packets.iter().all(|packet| packet.captured <= 64));
    assert!(packets.iter().any(|packet| packet.original == 1500));
    assert!(!dir.join("captures/mobile-eth0.pcapng").exists());
}

#[test]
fn more_interfaces_than_a_process_may_have_files_open_share_one() {
    let mut world = train(Profile::Linux6Cubic, 1);
    world.time_limit = Instant::ZERO + Duration::from_secs(2);
    for n in 0..100_u32 {
        let mut link = world.links[0].clone();
        link.name = format!("spare-{n}");
        world.links.push(link);
    }
    let dir = empty_dir("captures-shared");
    record(world, &dir, &options(CaptureFormat::Pcapng, CaptureLen::Bytes(64)));
    let (names, packets) = read(&dir.join("captures/all-interfaces.pcapng"));
    assert_eq!(names.len(), 204);
    assert_eq!(names[0], "server-eth0 (ethernet)");
    assert!(packets.iter().any(|packet| names[packet.interface as usize] == "mobile-eth0 (wifi)"));
}

/// Reports a missing program; CI has both.
#[allow(clippy::explicit_write, reason = "the test runner swallows what eprintln! prints")]
fn skipped(test: &str, program: &str) {
    let mut stderr = std::io::stderr();
    writeln!(stderr, "{test}: skipped, {program} is not installed").unwrap();
}

#[test]
fn tshark_finds_no_malformed_packet_and_no_bad_checksum() {
    let (dir, record) = whole("captures-tshark");
    for (file, packets) in [("server-eth0.pcapng", true), ("mobile-eth0.pcapng", true), ("wifi-dropped.pcapng", false)]
    {
        let mut tshark = Command::new("tshark");
        tshark.arg("-r").arg(dir.join(file)).args(["-T", "fields", "-E", "separator=|"]);
        for protocol in ["ip", "tcp"] {
            tshark.args(["-o", &format!("{protocol}.check_checksum:TRUE")]);
        }
        for field in ["ip.checksum.status", "tcp.checksum.status", "_ws.malformed", "frame.interface_name"] {
            tshark.args(["-e", field]);
        }
        let Ok(output) = tshark.output() else {
            return skipped("tshark_finds_no_malformed_packet_and_no_bad_checksum", "tshark");
        };
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8(output.stdout).unwrap();
        // 1 is "good".
        let bad: Vec<&str> = text.lines().filter(|line| !line.starts_with("1|1||")).collect();
        assert!(bad.is_empty(), "{file}: {:?}", &bad[..bad.len().min(5)]);
        if packets && file.starts_with("server") {
            let sender = record.flows[0].sender.as_ref().unwrap();
            assert_eq!(text.lines().count() as u64, sender.segments_sent + sender.segments_received + 1);
        }
    }
}

/// The transfer of [`train`] between identities: the first packet opens an association, and at 10 s the mobile host moves to another link
/// and address.
fn between_identities(name: &str) -> PathBuf {
    let mut world = train(Profile::Linux6Cubic, 1);
    let mut second = LinkBetween { name: "lte".into(), ..world.links[1].clone() };
    let outage = |down, up| Outages::List(vec![Outage { down: Instant::from_secs(down), up: Instant::from_secs(up) }]);
    (world.links[1].forward.outages, second.forward.outages) = (outage(10, 100), outage(0, 11));
    world.links.push(second);
    let identity = Some(HostIdentity { associate: Associate::FirstPacket, ..HostIdentity::default() });
    world.addressing = vec![
        HostAddressing { node: NodeId(0), addresses: Addresses::One, identity },
        HostAddressing { node: NodeId(2), addresses: Addresses::PerLink, identity },
    ];
    let dir = empty_dir(name);
    record(world, &dir, &options(CaptureFormat::Pcapng, CaptureLen::Whole));
    dir.join("captures")
}

#[test]
fn packets_between_identities_are_in_esp_on_links() {
    let dir = between_identities("captures-identities");
    let fields = [
        "_ws.malformed",
        "ip.proto",
        "hip.packet_type",
        "hip.checksum.status",
        "esp.spi",
        "esp.sequence",
        "tcp.srcport",
    ];
    let dissect = |file: &str| -> Option<Vec<Vec<String>>> {
        let mut tshark = Command::new("tshark");
        tshark.arg("-r").arg(dir.join(file)).args(["-T", "fields", "-E", "separator=|", "-E", "occurrence=f"]);
        fields.iter().for_each(|field| _ = tshark.args(["-e", field]));
        let output = tshark.output().ok()?;
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8(output.stdout).unwrap();
        Some(text.lines().map(|line| line.split('|').map(str::to_owned).collect()).collect())
    };
    let Some(server) = dissect("server-eth0.pcapng") else {
        return skipped("packets_between_identities_are_in_esp_on_links", "tshark");
    };
    let column = |packets: &[Vec<String>], index: usize| -> Vec<String> {
        packets.iter().map(|packet| packet[index].clone()).filter(|value| !value.is_empty()).collect()
    };
    assert_eq!(column(&server, 0), Vec::<String>::new(), "malformed");
    assert!(server.iter().all(|packet| ["139", "50"].contains(&packet[1].as_str())), "HIP and ESP");
    // I1, R1, I2, R2, and three UPDATEs.
    assert_eq!(column(&server, 2), ["1", "2", "3", "4", "16", "16", "16"]);
    assert!(column(&server, 3).iter().all(|status| status == "1"), "checksums are good");
    let mut spis = column(&server, 4);
    let count = spis.len();
    spis.sort_unstable();
    spis.dedup();
    assert_eq!(spis.len(), 2, "one for each direction");
    // The view of programs: TCP between identities, the same before and after the move.
    let inner = dissect("server-hip0.pcapng").unwrap();
    assert_eq!((column(&inner, 0).len(), inner.len(), column(&inner, 6).len()), (0, count, count));
    assert_eq!(read(&dir.join("mobile-hip0.pcapng")).0, ["mobile-hip0 (identity)"]);
    let [wifi, lte] = ["mobile-eth0.pcapng", "mobile-eth1.pcapng"].map(|file| dissect(file).unwrap());
    assert!(wifi.len() > 100 && lte.len() > 100, "{} {}", wifi.len(), lte.len());
    assert_eq!(column(&lte, 2), ["16", "16", "16"]);
}

#[test]
fn tcptrace_counts_what_we_count() {
    let dir = empty_dir("captures-tcptrace");
    let record = record(train(Profile::Linux6Cubic, 1), &dir, &options(CaptureFormat::Pcap, CaptureLen::Whole));
    let output = Command::new("tcptrace").args(["-l", "-n"]).arg(dir.join("captures/server-eth0.pcap")).output();
    let Ok(output) = output else { return skipped("tcptrace_counts_what_we_count", "tcptrace") };
    let text = String::from_utf8(output.stdout).unwrap();
    // Two columns: the mobile host, which opened the connection, and the server.
    let counts = |name: &str| -> [u64; 2] {
        let line = text.lines().find(|line| line.matches(name).count() == 2).unwrap_or_else(|| panic!("{text}"));
        let numbers: Vec<u64> = line.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        numbers.try_into().unwrap_or_else(|numbers| panic!("{line}: {numbers:?}"))
    };
    let sender = record.flows[0].sender.as_ref().unwrap();
    // The SYN precedes the connection that would count it.
    assert_eq!(counts("total packets:"), [sender.segments_received + 1, sender.segments_sent]);
    assert_eq!(counts("unique bytes sent:"), [0, sender.bytes_sent]);
    assert_eq!(counts("rexmt data bytes:"), [0, sender.bytes_retransmitted]);
    // All of them are full segments here.
    assert_eq!(counts("rexmt data pkts:"), [0, sender.bytes_retransmitted / 1448]);
    // Tail loss probes may be new data.
    let again = ["timeout", "fast-retransmit", "loss-recovery"];
    let again = again.iter().filter_map(|reason| sender.sent_by_reason.get(*reason)).sum::<u64>();
    let probes = sender.sent_by_reason.get("loss-probe").copied().unwrap_or(0);
    assert!((again..=again + probes).contains(&(sender.bytes_retransmitted / 1448)));
}
