//! The files of a run.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use holdover_base::{ByteCount, Instant};
use holdover_report::plots::{PlotKind, PlottedRun, plots};
use holdover_report::{
    CaptureOptions, Manifest, NotOfARun, Recorder, RecorderOptions, ResultsDir, ResultsError, Summary, VariantSummary,
};
use holdover_sim::{Amount, Bulk, Opener, Traffic, World, WorldConfig};
use holdover_tcp::Profile;

use crate::worlds::{empty_dir, record, train};

/// Every file below `dir`, by its path.
fn all_files(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut files = BTreeMap::new();
    let mut open = vec![dir.to_owned()];
    while let Some(next) = open.pop() {
        for entry in fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path);
            } else {
                let name = path.strip_prefix(dir).unwrap().to_string_lossy().into_owned();
                files.insert(name, fs::read(path).unwrap());
            }
        }
    }
    files
}

#[test]
fn the_same_run_writes_the_same_bytes() {
    let write = |name: &str, seed| {
        let dir = empty_dir(name);
        let config = train(Profile::Linux6Cubic, seed);
        let options = RecorderOptions { packets_in_events: true, ..RecorderOptions::default() };
        let record = record(config.clone(), &dir, &options);
        let run = PlottedRun { variant: "cubic", config: &config, record: &record };
        let results = ResultsDir::open(&dir).unwrap();
        for plot in plots(&run, &PlotKind::ALL, record.ended_at) {
            results.write_plot("plots", &plot).unwrap();
        }
        all_files(&dir)
    };
    let (one, two, other) = (write("same-1", 1), write("same-2", 1), write("same-3", 2));
    let names: Vec<&String> = one.keys().collect();
    assert_eq!(names, two.keys().collect::<Vec<_>>());
    for expected in ["captures/server-eth0.pcapng", "events.jsonl", "samples.csv", "plots/rtt.png", "plots/queues.svg"]
    {
        assert!(one.contains_key(expected), "{names:?}");
    }
    for (name, content) in &one {
        assert!(two[name] == *content, "{name} differs");
    }
    assert_ne!(one["captures/server-eth0.pcapng"], other["captures/server-eth0.pcapng"], "another seed is another run");
}

#[test]
fn a_run_under_way_has_no_file_that_looks_whole() {
    let dir = empty_dir("parts");
    let config = train(Profile::Linux6Cubic, 1);
    let mut recorder = Recorder::create(&dir, &config, &RecorderOptions::default()).unwrap();
    let mut world = World::new(config).unwrap();
    assert_eq!(world.run_to(Instant::from_secs(12), &mut recorder), None);
    let names: Vec<String> = all_files(&dir).into_keys().collect();
    assert!(names.len() >= 6 && names.iter().all(|name| name.ends_with(".part")), "{names:?}");
    let ending = world.run(&mut recorder);
    recorder.finish(&world, ending).unwrap();
    assert!(all_files(&dir).into_keys().all(|name| !name.ends_with(".part")));
}

#[test]
fn a_recorder_that_is_given_up_leaves_nothing() {
    let dir = empty_dir("given-up");
    let config = train(Profile::Linux6Cubic, 1);
    drop(Recorder::create(&dir, &config, &RecorderOptions::default()).unwrap());
    assert!(all_files(&dir).is_empty());
}

#[test]
fn a_directory_that_vanishes_is_an_error_that_names_the_file() {
    let dir = empty_dir("vanishing");
    let config = train(Profile::Linux6Cubic, 1);
    let mut recorder = Recorder::create(&dir, &config, &RecorderOptions::default()).unwrap();
    let mut world = World::new(config).unwrap();
    let ending = world.run(&mut recorder);
    fs::remove_dir_all(&dir).unwrap();
    let error = recorder.finish(&world, ending).unwrap_err();
    assert!(error.to_string().starts_with("cannot write ") && error.to_string().contains(".pcapng"), "{error}");
}

#[test]
fn samples_and_time_sequences_read_back() {
    let dir = empty_dir("tables");
    let record = record(train(Profile::Linux6Cubic, 1), &dir, &RecorderOptions::default());
    let flow = &record.flows[0];
    let mut samples = csv::Reader::from_path(dir.join("samples.csv")).unwrap();
    let columns = samples.headers().unwrap().clone();
    let column = |name: &str| columns.iter().position(|column| column == name).unwrap();
    let rows: Vec<csv::StringRecord> = samples.records().map(Result::unwrap).collect();
    assert!(rows.len() > 3000);
    let last = rows.last().unwrap();
    assert_eq!(last[column("bytes_retrans")].parse(), Ok(flow.sender.as_ref().unwrap().bytes_retransmitted));
    assert!(rows.iter().all(|row| row[column("snd_cwnd")].parse::<u32>().unwrap() > 0));
    assert!(rows.iter().any(|row| row[column("ca_state")] == *"loss"));
    let times: Vec<f64> = rows.iter().map(|row| row[0].parse().unwrap()).collect();
    assert!(times.windows(2).all(|pair| pair[0] < pair[1]));

    let mut points = csv::Reader::from_path(dir.join("time-sequence.csv")).unwrap();
    let points: Vec<csv::StringRecord> = points.records().map(Result::unwrap).collect();
    let timeouts = points.iter().filter(|row| row[2] == *"timeout").count() as u64;
    assert_eq!(timeouts, flow.sender.as_ref().unwrap().sent_by_reason["timeout"]);
    let most = points.iter().filter(|row| row[2] == *"ack").map(|row| row[3].parse::<u64>().unwrap()).max();
    assert!(most.unwrap() >= 5_900_000, "{most:?}");
}

#[test]
fn events_are_json_lines_in_order() {
    let dir = empty_dir("events");
    let record = record(train(Profile::Linux6Cubic, 1), &dir, &RecorderOptions::default());
    let text = fs::read_to_string(dir.join("events.jsonl")).unwrap();
    let events: Vec<serde_json::Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let count = |name: &str| events.iter().filter(|event| event["event"] == name).count() as u64;
    assert_eq!((count("link-down"), count("link-up")), (2, 2));
    assert_eq!((count("flow-started"), count("flow-connected"), count("flow-completed")), (1, 1, 1));
    let resumed: Vec<f64> =
        events.iter().filter(|event| event["event"] == "flow-resumed").map(|e| e["idle_s"].as_f64().unwrap()).collect();
    assert_eq!(resumed, record.flows[0].idle_times_s().collect::<Vec<_>>());
    let sender = record.flows[0].sender.as_ref().unwrap();
    let again = ["timeout", "fast-retransmit", "loss-recovery"];
    let again = again.iter().filter_map(|reason| sender.sent_by_reason.get(*reason)).sum::<u64>();
    assert_eq!((count("retransmission"), count("probe")), (again, sender.sent_by_reason["loss-probe"]));
    let down = events.iter().find(|event| event["event"] == "link-down").unwrap();
    assert_eq!((down["t_s"].as_f64(), down["link"].as_str()), (Some(10.0), Some("wifi")));
}

/// A transfer of `secs` over a link that is down for 1 s of every 5.
fn endless(secs: u64) -> WorldConfig {
    let mut world = train(Profile::Linux6Reno, 1);
    let outages =
        holdover_link::Outages::periodic(holdover_base::Duration::from_secs(4), holdover_base::Duration::from_secs(1));
    let wifi = &mut world.links[1];
    for direction in [&mut wifi.forward, &mut wifi.backward] {
        direction.outages = outages.clone();
    }
    let amount = Amount::Bytes(ByteCount(u64::MAX / 16));
    world.flows[0].traffic = Traffic::Bulk(Bulk { amount, opener: Opener::Sender });
    world.time_limit = Instant::from_secs(secs);
    world
}

#[test]
fn memory_of_a_recorder_does_not_grow_with_time() {
    let options = RecorderOptions {
        captures: Some(CaptureOptions { max_file_bytes: 0, ..CaptureOptions::default() }),
        events: false,
        ..RecorderOptions::default()
    };
    let kept = |secs| record(endless(secs), &empty_dir("memory"), &options).series.values_kept();
    let (short, long) = (kept(200), kept(2000));
    // Six thousand points for each of a handful of kinds, independent of the length.
    assert!(short > 10_000 && long < 60_000, "{short} and {long}");
    assert!(long < 2 * short, "{short} and {long}");
}

#[test]
fn the_summary_and_the_table_of_flows_read_back() {
    let dir = empty_dir("summary");
    let mut variants = Vec::new();
    for profile in [Profile::Linux6Cubic, Profile::RenoBsd] {
        let record = record(train(profile, 1), &dir.join(profile.name()), &RecorderOptions::default());
        variants.push(VariantSummary::new(profile.name(), profile.name(), &record));
    }
    let summary = Summary {
        name: "train".into(),
        title: "A train, \"quoted\"".into(),
        description: String::new(),
        version: "0.1.0".into(),
        seed: 1,
        variants,
    };
    let results = ResultsDir::create(&dir, true, []).unwrap();
    results.write_summary(&summary).unwrap();
    let read: Summary = serde_json::from_slice(&fs::read(dir.join("summary.json")).unwrap()).unwrap();
    assert_eq!(read, summary);
    let mut flows = csv::Reader::from_path(dir.join("flows.csv")).unwrap();
    let columns = flows.headers().unwrap().clone();
    let rows: Vec<csv::StringRecord> = flows.records().map(Result::unwrap).collect();
    assert_eq!(rows.len(), 2);
    for (row, variant) in rows.iter().zip(&summary.variants) {
        let value = |name: &str| &row[columns.iter().position(|column| column == name).unwrap()];
        let flow = &variant.flows[0];
        let sender = flow.sender.as_ref().unwrap();
        assert_eq!(value("variant"), variant.variant);
        assert_eq!(value("status"), "completed");
        assert_eq!(value("goodput_bps").parse(), Ok(flow.goodput_bps));
        assert_eq!(value("ideal_share").parse().ok(), flow.ideal_share);
        assert_eq!(value("timeouts").parse(), Ok(sender.timeouts));
        assert_eq!(value("bytes_retransmitted").parse(), Ok(sender.bytes_retransmitted));
        let idle: Vec<f64> = value("idle_after_reconnection_s").split(';').map(|time| time.parse().unwrap()).collect();
        assert_eq!(idle, flow.idle_times_s().collect::<Vec<_>>());
    }
}

fn manifest() -> Manifest {
    Manifest {
        version: "0.1.0".into(),
        seed: Some(1),
        command_line: vec!["holdover".into(), "run".into()],
        started_at: "2026-01-01T00:00:00Z".into(),
        took_s: 1.5,
    }
}

/// Writes the files of a run: its scenario, a trace that it names, and a capture.
fn complete_run(path: &Path, force: bool) -> Result<ResultsDir, ResultsError> {
    let results = ResultsDir::create(path, force, ["traces/radio.csv", "../outside.csv"])?;
    results.write("scenario.toml", b"title = 1").unwrap();
    results.write_copy("traces/radio.csv", b"at,rate").unwrap();
    results.write_copy("../outside.csv", b"never written").unwrap();
    results.write("variants/a/captures/x.pcapng", b"a capture").unwrap();
    results.write("variants/a/events.jsonl", b"{}").unwrap();
    results.write_manifest(&manifest()).unwrap();
    Ok(results)
}

#[test]
fn results_do_not_overwrite_what_is_there() {
    let dir = empty_dir("results");
    let path = dir.join("run");
    complete_run(&path, false).unwrap();
    fs::write(path.join("notes.txt"), "mine").unwrap();
    fs::write(path.join("variants/a/notes.txt"), "mine").unwrap();
    let refused = ResultsDir::create(&path, false, []).unwrap_err();
    assert!(matches!(refused, ResultsError::NotEmpty { .. }) && refused.to_string().contains("--force"), "{refused}");
    ResultsDir::create(&path, true, []).unwrap();
    let left = all_files(&path).into_keys().collect::<Vec<_>>();
    assert_eq!(left, ["notes.txt", "variants/a/notes.txt"], "only what a run wrote is removed");
    assert!(!path.join("traces").exists() && !dir.join("outside.csv").exists());
    assert!(matches!(ResultsDir::create(&path.join("notes.txt"), true, []), Err(ResultsError::NotADirectory { .. })));

    // A run that is given up leaves the existing files.
    let results = ResultsDir::create(&path, true, ["radio.csv"]).unwrap();
    results.write("variants/a/samples.csv", b"t").unwrap();
    results.write_copy("radio.csv", b"at,rate").unwrap();
    results.discard().unwrap();
    assert_eq!(all_files(&path).into_keys().collect::<Vec<_>>(), left);

    // Of files that others save there meanwhile, whatever they are called, none becomes the run's.
    let results = ResultsDir::create(&path, true, []).unwrap();
    let (config, options) = (train(Profile::Linux6Cubic, 1), RecorderOptions::default());
    drop(results.recorder("variants/b", &config, &options).unwrap());
    fs::create_dir_all(path.join("variants/b/captures")).unwrap();
    fs::write(path.join("variants/b/captures/filtered.pcapng"), "mine").unwrap();
    fs::write(path.join("variants/b/samples.csv.part"), "mine").unwrap();
    fs::write(path.join("flows.csv"), "mine").unwrap();
    results.write("variants/b/events.jsonl", b"{}").unwrap();
    assert_eq!(results.files_below("variants/b"), ["variants/b/events.jsonl"]);
    results.write_manifest(&manifest()).unwrap();
    let listed: serde_json::Value = serde_json::from_slice(&fs::read(path.join("manifest.json")).unwrap()).unwrap();
    let listed: Vec<&String> = listed["files"].as_object().unwrap().keys().collect();
    assert_eq!(listed, ["variants/b/events.jsonl"]);
    results.discard().unwrap();
    for name in ["flows.csv", "variants/b/captures/filtered.pcapng", "variants/b/samples.csv.part"] {
        assert_eq!(fs::read_to_string(path.join(name)).unwrap(), "mine");
        fs::remove_file(path.join(name)).unwrap();
    }
    assert!(!path.join("variants/b/events.jsonl").exists());

    let first = ResultsDir::create_new(&dir, "a train", "20260101-120000", []).unwrap();
    let second = ResultsDir::create_new(&dir, "a train", "20260101-120000", []).unwrap();
    assert_eq!(first.path(), dir.join("a-train-20260101-120000"));
    assert_eq!(second.path(), dir.join("a-train-20260101-120000-2"));
    assert_eq!(ResultsDir::variant_directories(["a b", "a/b", "c"]), ["variants/a-b", "variants/a-b-2", "variants/c"]);
}

#[test]
fn a_file_that_no_run_wrote_is_never_replaced() {
    let dir = empty_dir("foreign");
    // Names of a run's files: the user's own, beside no results, beside results, and in place of results.
    let names = [
        "scenario.toml",
        "traces/radio.csv",
        "traces/radio.csv.part",
        "report.html.part",
        "variants/a/captures/mine.pcap",
        "variants/a/captures/x.pcapng",
        "variants/a/events.jsonl.part",
        "variants/a/qlog/mine.sqlog",
        "variants/plots/samples.csv",
    ];
    for (number, name) in names.into_iter().enumerate() {
        for has_results in [false, true] {
            let path = dir.join(format!("{number}-{has_results}"));
            if has_results {
                complete_run(&path, false).unwrap();
            }
            fs::create_dir_all(path.join(name).parent().unwrap()).unwrap();
            fs::write(path.join(name), "mine").unwrap();
            let before = all_files(&path);
            let refused = complete_run(&path, true).unwrap_err();
            assert!(
                matches!(refused, ResultsError::NotOfARun { .. }) && refused.to_string().contains(name),
                "{refused}"
            );
            assert_eq!(all_files(&path), before, "a refusal changes nothing");
            fs::remove_file(path.join(name)).unwrap();
            complete_run(&path, true).unwrap();
        }
    }
}

#[test]
fn pipes_and_links_are_refused_without_being_read() {
    use std::os::unix::ffi::OsStrExt as _;
    let dir = empty_dir("pipes");
    // Reading a pipe would wait for a writer.
    for (number, name) in ["manifest.json", "summary.json", "variants/a/events.jsonl"].into_iter().enumerate() {
        let path = dir.join(number.to_string());
        fs::create_dir_all(path.join(name).parent().unwrap()).unwrap();
        let mkfifo = std::process::Command::new("mkfifo").arg(path.join(name)).status().unwrap();
        assert!(mkfifo.success());
        let refused = complete_run(&path, true).unwrap_err();
        let reason = NotOfARun::NoRegularFile;
        assert!(matches!(&refused, ResultsError::NotOfARun { reason: found, .. } if *found == reason), "{refused}");
    }
    let path = dir.join("not-utf-8");
    complete_run(&path, false).unwrap();
    std::os::unix::fs::symlink("/dev/null", path.join("variants").join(std::ffi::OsStr::from_bytes(b"\xff"))).unwrap();
    assert!(matches!(complete_run(&path, true), Err(ResultsError::NotOfARun { .. })));
}

#[test]
fn a_trace_that_is_called_as_a_result_is_refused() {
    let dir = empty_dir("reserved");
    let path = dir.join("run");
    for name in ["flows.csv", "flows.csv.part", "flows.csv/x", "manifest.json", "variants/mine.csv"] {
        let refused = ResultsDir::create(&path, false, [name]).unwrap_err();
        assert!(matches!(refused, ResultsError::NameOfAResult { .. }), "{refused}");
        ResultsDir::create_new(&dir, "x", "y", [name]).unwrap_err();
    }
    assert!(all_files(&dir).is_empty() && !path.exists());
    // Those that are not copied, and others.
    ResultsDir::create(&path, false, ["../flows.csv", "/flows.csv", "traces/flows.csv"]).unwrap();
}

#[test]
fn results_are_not_written_through_links() {
    let dir = empty_dir("links");
    let own = dir.join("own");
    fs::create_dir_all(own.join("a/captures")).unwrap();
    fs::write(own.join("a/captures/x.pcapng"), "mine").unwrap();
    fs::write(own.join("radio.csv"), "mine").unwrap();
    let before = all_files(&own);
    for (link, target) in
        [("variants", "own"), ("variants/a", "own/a"), ("variants/a/captures", "own/a/captures"), ("traces", "own")]
    {
        let path = dir.join(link.replace('/', "-"));
        fs::create_dir_all(path.join(link).parent().unwrap()).unwrap();
        std::os::unix::fs::symlink(dir.join(target), path.join(link)).unwrap();
        let refused = complete_run(&path, true).unwrap_err();
        assert!(matches!(refused, ResultsError::NotOfARun { .. }), "{link}: {refused}");
        assert_eq!(all_files(&own), before);
    }
    // A manifest that lists files elsewhere removes none.
    let path = dir.join("forged");
    fs::create_dir_all(&path).unwrap();
    fs::write(path.join("manifest.json"), r#"{"files": {"../own/radio.csv": "0000000000000000"}}"#).unwrap();
    complete_run(&path, true).unwrap();
    assert_eq!(all_files(&own), before);
}
