//! Link traces estimated from captures: the conditions of a known link are found from either end, and a transfer over the estimated link
//! takes as long as over the original.

use std::fs;
use std::path::{Path, PathBuf};

use holdover_base::Duration;
use holdover_explain::{Analysis, Capture, LinkEstimator, LinkTrace, LinkTraceError};
use holdover_report::{Record, Recorder, RecorderOptions};
use holdover_scenario::{Files, Scenario};
use holdover_sim::World;

/// A download over a link that replays a table.
fn download(loss: &str, queue: &str, bulk: &str) -> String {
    format!(
        r#"
title = "A download over a recorded link"
time_limit = "120 s"
host = [{{ name = "phone" }}, {{ name = "server" }}]
[[link]]
name = "radio"
between = ["server", "phone"]
rate = "50 Mbit/s"
delay = "30 ms"
queue_limit = "{queue}"
loss = "{loss}"
forward = {{ trace = {{ file = "link.csv", at_end = "stop" }} }}
outages = {{ queued = "dropped", in_flight = "dropped" }}
[[flow]]
name = "download"
from = "server"
to = "phone"
opener = "phone"
bulk = "{bulk}"
"#
    )
}

#[derive(Debug)]
struct Table(String);

impl Files for Table {
    fn read(&self, _name: &str) -> Result<String, String> {
        Ok(self.0.clone())
    }
}

fn run(name: &str, scenario: &str, table: &str) -> (PathBuf, Record) {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("link-trace").join(name);
    let _ = fs::remove_dir_all(&directory);
    let scenario = Scenario::parse("download.toml", scenario, Table(table.to_owned())).unwrap();
    let config = scenario.variants()[0].world(7).unwrap();
    let mut world = World::new(config.clone()).unwrap();
    let mut recorder = Recorder::create(&directory, &config, &RecorderOptions::default()).unwrap();
    let ending = world.run(&mut recorder);
    (directory.join("captures"), recorder.finish(&world, ending).unwrap())
}

fn estimate(capture: &Path, interval: Duration) -> Result<LinkTrace, LinkTraceError> {
    let bytes = fs::read(capture).unwrap();
    let mut analysis = Analysis::new();
    let mut packets = Capture::new(&bytes[..]).unwrap();
    while let Some(packet) = packets.next_packet().unwrap() {
        analysis.take(packet.at, packet.ip, packet.original_len);
    }
    let conversations = analysis.finish();
    let mut estimator = LinkEstimator::new(&conversations, interval)?;
    let mut packets = Capture::new(&bytes[..]).unwrap();
    while let Some(packet) = packets.next_packet().unwrap() {
        estimator.take(packet.at, packet.ip, packet.original_len);
    }
    estimator.finish()
}

fn at(trace: &LinkTrace, seconds: f64) -> holdover_explain::LinkRow {
    let at = Duration::from_secs_f64(seconds);
    trace.rows[trace.rows.partition_point(|row| row.at <= at) - 1]
}

const TABLE: &str = "t,rate,up\n0,2e6,1\n8,6e6,1\n16,3e6,1\n20,3e6,0\n23,3e6,1\n30,4e6,1\n60,4e6,1\n";

// Claim: A link is estimated from a capture at either end: rates within a tenth, the round trip, the outage, losses of the link
// and not of a queue; the same transfer over the estimated link takes as long.
// Tests: `link_trace::losses_without_a_queue_are_the_links`, `scenario::a_capture_becomes_a_trace_that_a_scenario_takes`
#[test]
fn rates_round_trips_and_outages_are_found_from_either_end() {
    let (captures, record) = run("known", &download("0 %", "60 packets", "16 MB"), TABLE);
    let duration = record.flows[0].duration_s;
    for host in ["server", "phone"] {
        let trace = estimate(&captures.join(format!("{host}-eth0.pcapng")), Duration::from_millis(500)).unwrap();
        println!("{host}: {trace:?}");
        for (seconds, rate) in [(3.0, 2e6), (6.0, 2e6), (11.0, 6e6), (14.0, 6e6), (18.0, 3e6), (28.0, 3e6), (33.0, 4e6)]
        {
            let found = at(&trace, seconds).rate_bps as f64;
            assert!((found / rate - 1.0).abs() < 0.1, "{host} at {seconds} s: {found} instead of {rate}");
        }
        // 60 ms round trip, and less than 7 ms of serialization.
        for row in &trace.rows {
            assert!((Duration::from_millis(60)..Duration::from_millis(75)).contains(&row.rtt), "{host}: {row:?}");
        }
        let down: Vec<f64> = trace.rows.iter().filter(|row| !row.up).map(|row| row.at.as_secs_f64()).collect();
        assert!(!down.is_empty() && down.iter().all(|at| (19.4..23.0).contains(at)), "{host}: {down:?}");
        assert_eq!(trace.outages(), 1, "{host}");
        let losses: f64 = trace.rows.iter().map(|row| row.loss).sum();
        assert!(losses < 0.1, "{host}: overflows of a queue are not losses of the link: {losses}");
        // The same transfer over the estimated link takes as long.
        let again = download("0 %", "60 packets", "16 MB");
        let (_, replayed) = run(&format!("replayed-{host}"), &again, &trace.to_csv("a capture"));
        let took = replayed.flows[0].duration_s;
        assert!((took / duration - 1.0).abs() < 0.1, "{host}: {took} s instead of {duration} s");
    }
}

#[test]
fn an_outage_that_only_a_smaller_connection_meets_is_in_the_trace() {
    let earlier =
        "[[flow]]\nname = \"page\"\nfrom = \"server\"\nto = \"phone\"\nopener = \"phone\"\nbulk = \"9.7 MB\"\n";
    let later = download("0 %", "60 packets", "12 MB") + "start = \"30 s\"\n" + earlier;
    let (captures, _) = run("earlier", &later, TABLE);
    for host in ["server", "phone"] {
        let trace = estimate(&captures.join(format!("{host}-eth0.pcapng")), Duration::from_millis(500)).unwrap();
        assert_eq!(trace.outages(), 1, "{host}: {trace:?}");
    }
}

#[test]
fn losses_without_a_queue_are_the_links() {
    let table = "t,rate\n0,50e6\n200,50e6\n";
    let (captures, _) = run("losses", &download("1 %", "1000 packets", "12 MB"), table);
    for host in ["server", "phone"] {
        let trace = estimate(&captures.join(format!("{host}-eth0.pcapng")), Duration::from_secs(1)).unwrap();
        let mean = trace.rows.iter().map(|row| row.loss).sum::<f64>() / trace.rows.len() as f64;
        assert!((0.005..0.02).contains(&mean), "{host}: {mean}");
        assert_eq!(trace.outages(), 0, "{host}");
    }
}

#[test]
fn captures_that_give_no_trace_are_refused() {
    let no_conversations = LinkEstimator::new(&[], Duration::from_secs(1)).unwrap_err();
    assert_eq!(no_conversations, LinkTraceError::NoData);
    let (captures, _) = run("refused", &download("0 %", "60 packets", "100 kB"), TABLE);
    let capture = captures.join("server-eth0.pcapng");
    assert_eq!(estimate(&capture, Duration::ZERO).unwrap_err(), LinkTraceError::NoInterval);
    let interval = Duration::from_nanos(100);
    assert_eq!(estimate(&capture, interval).unwrap_err(), LinkTraceError::TooLong { interval });
}
