//! Exports read back: qlog by its draft and RFC 7464, xplot graphs against tcptrace's from the capture of the same run, and the flow
//! monitor's XML against the run's own metrics.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use holdover_report::{CaptureFormat, CaptureLen, CaptureOptions, ExportFormat, Record, RecorderOptions};
use holdover_tcp::Profile;
use serde_json::Value;

use crate::worlds::{empty_dir, record, train};

fn exported(name: &str) -> (PathBuf, Record) {
    let dir = empty_dir(name);
    let captures =
        CaptureOptions { format: CaptureFormat::Pcap, len: CaptureLen::Bytes(128), ..CaptureOptions::default() };
    let options =
        RecorderOptions { captures: Some(captures), exports: ExportFormat::ALL.to_vec(), ..RecorderOptions::default() };
    let record = record(train(Profile::Linux6Cubic, 1), &dir, &options);
    (dir, record)
}

/// The records of a JSON text sequence (RFC 7464 section 2.2): each begins with RS and ends with LF.
fn json_sequence(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap();
    let records = text.strip_prefix('\x1e').expect("begins with a record separator").split('\x1e');
    let whole = records.map(|record| serde_json::from_str(record.strip_suffix('\n').expect("ends with a line feed")));
    whole.collect::<Result<_, _>>().unwrap()
}

// Claim: Exports: qlog holds the packets sent and received at each end, by the rules of RFC 7464 and the draft; xplot's graphs
// equal those that tcptrace draws from the same run's capture, line by line; the flow monitor's counts equal the run's, and
// ns-3's script parses the XML.
// Tests: `exports::xplot_graphs_are_those_that_tcptrace_draws`, `exports::the_flow_monitor_counts_every_packet_once`,
// `run::exports_are_files_of_a_run_like_any_other`
#[test]
fn qlog_files_hold_what_each_end_sent_and_received() {
    let (dir, record) = exported("exports-qlog");
    let flow = &record.flows[0];
    let ends = [("server", "server", flow.sender.as_ref()), ("mobile", "client", flow.receiver.as_ref())];
    for (host, role, metrics) in ends {
        let records = json_sequence(&dir.join(format!("qlog/download-{host}.sqlog")));
        let (header, events) = records.split_first().unwrap();
        assert_eq!(header["file_schema"], "urn:ietf:params:qlog:file:sequential");
        assert_eq!(header["serialization_format"], "application/qlog+json-seq");
        assert_eq!(header["trace"]["vantage_point"]["type"], role);
        assert_eq!(header["trace"]["vantage_point"]["name"], host);
        assert!(!header["trace"]["event_schemas"].as_array().unwrap().is_empty());
        let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
        let mut triggers: BTreeMap<&str, u64> = BTreeMap::new();
        let mut now = 0.0;
        for event in events {
            let time = event["time"].as_f64().unwrap();
            assert!(time >= now, "events are in order of time");
            now = time;
            *counts.entry(event["name"].as_str().unwrap()).or_default() += 1;
            assert!(event["data"].is_object());
            if let Some(trigger) = event["data"]["trigger"].as_str() {
                *triggers.entry(trigger).or_default() += 1;
            }
        }
        let metrics = metrics.unwrap();
        // Both SYNs precede the connection objects that count them; the client's own is counted.
        let uncounted = u64::from(role == "server");
        assert_eq!(counts["tcp:packet_sent"], metrics.segments_sent);
        assert_eq!(counts["tcp:packet_received"], metrics.segments_received + uncounted);
        for (reason, &count) in &metrics.sent_by_reason {
            assert_eq!(triggers[reason.as_str()], count, "{reason}");
        }
        // Samples are the sender's.
        assert_eq!(counts.contains_key("tcp:recovery_metrics_updated"), role == "server");
        if role == "server" {
            let metric =
                |name: &str| events.iter().filter_map(|event| event["data"][name].as_f64()).fold(0.0, f64::max);
            assert!(metric("smoothed_rtt") >= 50.0, "ms");
            assert!(metric("congestion_window") > 14_480.0, "bytes");
            assert!(counts["tcp:congestion_state_updated"] >= 3, "two outages: {counts:?}");
        }
    }
}

/// The vertical lines of an xplot file by colour: time, from, to.
fn vertical_lines(text: &str) -> BTreeMap<String, BTreeSet<[String; 3]>> {
    let mut colour = String::new();
    let mut lines: BTreeMap<String, BTreeSet<[String; 3]>> = BTreeMap::new();
    for line in text.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            [name] if ["white", "red", "orange", "green", "yellow", "purple"].contains(&name) => {
                colour = name.to_owned();
            }
            ["line", t, from, until, to] if t == until && from != to => {
                let line = [t, from, to].map(str::to_owned);
                lines.entry(colour.clone()).or_default().insert(line);
            }
            _ => {}
        }
    }
    lines
}

#[test]
fn xplot_graphs_are_those_that_tcptrace_draws() {
    let (dir, record) = exported("exports-xplot");
    let ours = fs::read_to_string(dir.join("xplot/download.xpl")).unwrap();
    assert!(ours.starts_with("timeval double\ntitle\n10.0.0.1:"), "{}", &ours[..80]);
    assert!(ours.ends_with("\ngo\n"));
    assert!(!dir.join("xplot/download-reverse.xpl").exists(), "no data that way");
    let ours = vertical_lines(&ours);
    let sent_again = record.flows[0].sender.as_ref().unwrap().bytes_retransmitted;
    assert!(sent_again > 0 && !ours["red"].is_empty());
    let capture = dir.join("captures/server-eth0.pcap");
    let ran = Command::new("tcptrace").arg("-S").arg(&capture).current_dir(&dir).output();
    let Ok(output) = ran else {
        eprintln!("skipped: tcptrace is not installed");
        return;
    };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    // The mobile host sends the first packet, so the data goes from b to a.
    let theirs = vertical_lines(&fs::read_to_string(dir.join("b2a_tsg.xpl")).unwrap());
    for colour in ["white", "red", "orange", "green", "yellow", "purple"] {
        let (ours, theirs) = (&ours[colour], &theirs[colour]);
        assert!(ours.len() >= 2, "{colour}");
        assert_eq!(ours.symmetric_difference(theirs).next(), None, "{colour}");
    }
}

/// The value of an attribute of the first element called `element` after `from`.
fn attribute<'a>(text: &'a str, element: &str, name: &str) -> &'a str {
    let element = &text[text.find(&format!("<{element} ")).unwrap()..];
    let value = &element[element.find(&format!(" {name}=\"")).unwrap() + name.len() + 3..];
    &value[..value.find('"').unwrap()]
}

#[test]
fn the_flow_monitor_counts_every_packet_once() {
    let (dir, record) = exported("exports-flowmon");
    let text = fs::read_to_string(dir.join("flowmon/flowmon.xml")).unwrap();
    let open =
        text.matches("<Flow ").count() + text.matches("<FlowStats ").count() + text.matches("<FlowProbe ").count();
    let closed =
        text.matches("</Flow>").count() + text.matches("</FlowStats>").count() + text.matches("</FlowProbe>").count();
    let empty = text.matches("<Flow flowId=\"").count() - text.matches("timeFirstTxPacket").count();
    assert_eq!(open + 1, closed + empty, "the outer FlowStats has no attributes");
    // Flow 1 begins with the mobile host's SYN; flow 2 carries the data.
    let data = &text[text.find("<Flow flowId=\"2\"").unwrap()..];
    let number = |name: &str| attribute(data, "Flow", name).parse::<u64>().unwrap();
    let flow = &record.flows[0];
    let sender = flow.sender.as_ref().unwrap();
    assert_eq!(number("txPackets"), sender.segments_sent);
    let dropped: u64 = record.links.iter().flat_map(|link| link.forward.dropped_packets.values()).sum();
    assert_eq!(number("lostPackets"), dropped);
    assert_eq!(number("txPackets"), number("rxPackets") + number("lostPackets"));
    assert_eq!(number("timesForwarded"), number("rxPackets"), "one router");
    // 25 ms of propagation, the serialization at 100 and 2 Mbit/s, and at most a queue of 30 packets beside outages.
    let nanos = |name: &str| attribute(data, "Flow", name).strip_suffix(".0ns").unwrap().parse::<f64>().unwrap();
    let mean = nanos("delaySum") / number("rxPackets") as f64 / 1e9;
    assert!((0.025..0.3).contains(&mean), "{mean}");
    let queue = record.links[1].forward.dropped_packets["queue-full"];
    assert!(data.contains(&format!("<packetsDropped reasonCode=\"3\" number=\"{queue}\" />")));
    // The two outages are gaps of more than 7 and 2 s.
    let gaps =
        &data[data.find("<flowInterruptionsHistogram").unwrap()..data.find("</flowInterruptionsHistogram").unwrap()];
    assert!(gaps.contains("start=\"7"), "{gaps}");
    assert!(text.contains("protocol=\"6\""));
}
