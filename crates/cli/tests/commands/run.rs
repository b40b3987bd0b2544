//! `holdover run`.

use std::fs;

use serde_json::Value;

use crate::Test;
use crate::support::{Ended, Place, SCENARIO, differences, exchanges, files_but};

pub(crate) const TESTS: &[Test] = &[
    (
        "the_same_seed_gives_the_same_bytes_and_another_seed_others",
        the_same_seed_gives_the_same_bytes_and_another_seed_others,
    ),
    ("exports_are_files_of_a_run_like_any_other", exports_are_files_of_a_run_like_any_other),
    ("a_run_can_be_made_again_from_what_it_left_behind", a_run_can_be_made_again_from_what_it_left_behind),
    ("a_run_tells_what_it_measured", a_run_tells_what_it_measured),
    ("questions_and_answers_are_both_counted_as_sent", questions_and_answers_are_both_counted_as_sent),
    (
        "a_bad_scenario_is_one_error_with_its_place_and_leaves_nothing_behind",
        a_bad_scenario_is_one_error_with_its_place_and_leaves_nothing_behind,
    ),
    ("command_line_errors_are_reported_before_anything_runs", command_line_errors_are_reported_before_anything_runs),
    ("results_are_not_mixed_with_what_is_there", results_are_not_mixed_with_what_is_there),
    ("a_trace_or_capture_of_ones_own_is_never_replaced", a_trace_or_capture_of_ones_own_is_never_replaced),
    ("a_full_disk_is_named", a_full_disk_is_named),
    ("a_full_disk_below_the_messages_ends_no_command", a_full_disk_below_the_messages_ends_no_command),
    ("tables_fit_a_narrow_terminal", tables_fit_a_narrow_terminal),
    ("a_flow_without_an_end_is_not_called_unfinished", a_flow_without_an_end_is_not_called_unfinished),
    ("an_interrupted_run_leaves_nothing_behind", an_interrupted_run_leaves_nothing_behind),
    (
        "a_directory_called_like_a_built_in_scenario_does_not_hide_it",
        a_directory_called_like_a_built_in_scenario_does_not_hide_it,
    ),
];

/// The only file with dates and durations.
const OF_THE_DAY: &[&str] = &["manifest.json"];

// Claim: The same scenario and seed write the same bytes into every file except the manifest, with one job and with two; another
// seed writes others.
fn the_same_seed_gives_the_same_bytes_and_another_seed_others() {
    let place = Place::with_scenario("run-same", SCENARIO);
    place.run("run short.toml --out a --jobs 1").well();
    place.run("run short.toml --out b --jobs 2").well();
    place.run("run short.toml --out c --seed 4 --no-plots").well();
    let [a, b, c] = ["a", "b", "c"].map(|name| files_but(&place.path(name), OF_THE_DAY));
    assert_eq!(differences(&a, &b), Vec::<String>::new());
    for name in [
        "report.html",
        "summary.json",
        "flows.csv",
        "scenario.toml",
        "progress.svg",
        "progress.png",
        "variants/cubic/events.jsonl",
        "variants/cubic/samples.csv",
        "variants/cubic/time-sequence.csv",
        "variants/cubic/captures/phone-eth0.pcapng",
        "variants/cubic/captures/server-eth0.pcapng",
        "variants/cubic/captures/radio-dropped.pcapng",
        "variants/bsd/captures/server-eth0.pcapng",
    ] {
        assert!(a.get(name).is_some_and(|bytes| !bytes.is_empty()), "{name}");
    }
    assert!(a.keys().any(|name| name.starts_with("variants/cubic/plots/") && name.ends_with(".svg")), "{:?}", a.keys());
    assert!(!a.keys().any(|name| name.ends_with(".part")), "{:?}", a.keys());
    let differ = differences(&a, &c);
    for name in ["summary.json", "variants/cubic/events.jsonl", "variants/cubic/captures/server-eth0.pcapng"] {
        assert!(differ.iter().any(|other| other == name), "{name} does not depend on the seed");
    }
    assert!(!c.keys().any(|name| name.ends_with(".svg") || name.ends_with(".png")), "{:?}", c.keys());
}

fn exports_are_files_of_a_run_like_any_other() {
    let place = Place::with_scenario("run-export", SCENARIO);
    place.run("run short.toml --out a --no-plots --export qlog,flowmon --export xplot").well();
    place.run("run short.toml --out b --no-plots --export qlog,flowmon,xplot --jobs 1").well();
    let [a, b] = ["a", "b"].map(|name| files_but(&place.path(name), OF_THE_DAY));
    assert_eq!(differences(&a, &b), Vec::<String>::new());
    for name in ["qlog/download-phone.sqlog", "qlog/download-server.sqlog", "xplot/download.xpl", "flowmon/flowmon.xml"]
    {
        assert!(a.get(&format!("variants/bsd/{name}")).is_some_and(|bytes| !bytes.is_empty()), "{name}");
    }
    place.run("run short.toml --out a --force --no-plots").well();
    let again = files_but(&place.path("a"), OF_THE_DAY);
    assert!(!again.keys().any(|name| name.contains("qlog")), "{:?}", again.keys());
    let refused = place.run("run short.toml --out c --export pdf");
    assert_eq!(refused.code, Some(2));
    assert!(refused.err.contains("expected qlog, xplot or flowmon"), "{}", refused.err);
}

// Claim: The results of a run suffice to repeat it.
fn a_run_can_be_made_again_from_what_it_left_behind() {
    let place = Place::with_scenario("run-again", SCENARIO);
    let options = "--no-plots --quiet --set link.radio.delay=30ms --seed 8";
    assert_eq!(place.run(&format!("run short.toml --out a {options}")).well().out, "");
    place.run("run a/scenario.toml --out b --no-plots --quiet").well();
    let [a, b] = ["a/variants", "b/variants"].map(|name| files_but(&place.path(name), OF_THE_DAY));
    assert_eq!(differences(&a, &b), Vec::<String>::new());
    let manifest: Value = serde_json::from_slice(&fs::read(place.path("a/manifest.json")).unwrap()).unwrap();
    assert_eq!((&manifest["seed"], &manifest["version"]), (&8.into(), &env!("CARGO_PKG_VERSION").into()));
    assert!(manifest["command_line"].as_array().unwrap().contains(&"link.radio.delay=30ms".into()), "{manifest}");
}

fn a_run_tells_what_it_measured() {
    let place = Place::with_scenario("run-tells", SCENARIO);
    let ended = place.run("run short.toml --out a --json --seed 5 --no-captures --no-plots").well();
    let printed = ended.json();
    assert_eq!(ended.out.as_bytes(), fs::read(place.path("a/summary.json")).unwrap());
    assert_eq!(printed["seed"], 5);
    assert!(!place.path("a/variants/cubic/captures").exists());
    for variant in printed["variants"].as_array().unwrap() {
        let flow = &variant["flows"][0];
        let number = |name: &str| flow[name].as_f64().unwrap_or_else(|| panic!("{name} in {flow}"));
        assert_eq!(flow["status"], "completed");
        assert!((number("net_duration_s") - (number("duration_s") - 1.5)).abs() < 1e-9, "{flow}");
        assert!(number("throughput_bps") > number("goodput_bps"), "{flow}");
        assert!((number("goodput_bps") - 400e3 * 8.0 / number("duration_s")).abs() < 1.0, "{flow}");
        assert!((number("ideal_share") - number("ideal_s") / number("duration_s")).abs() < 1e-9, "{flow}");
        assert!(flow["sender"]["timeouts"].as_u64() >= Some(1), "{flow}");
        assert!(flow["sender"]["bytes_retransmitted"].as_u64() >= Some(1448), "{flow}");
        assert!(flow["reconnections"][0]["idle_s"].as_f64() > Some(0.0), "{flow}");
    }
    // Every line is one event, and they are in order.
    let events = fs::read_to_string(place.path("a/variants/bsd/events.jsonl")).unwrap();
    let events: Vec<Value> = events.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let times: Vec<f64> = events.iter().map(|event| event["t_s"].as_f64().unwrap()).collect();
    assert!(times.is_sorted());
    for (name, at) in [("link-down", 0.5), ("link-up", 2.0)] {
        let event = events.iter().find(|event| event["event"] == name).unwrap();
        assert_eq!((event["t_s"].as_f64(), &event["link"]), (Some(at), &"radio".into()));
    }
    let names = fs::read_to_string(place.path("a/variants/bsd/samples.csv")).unwrap();
    let names = names.lines().next().unwrap();
    for name in ["snd_cwnd", "snd_ssthresh", "unacked", "sacked", "lost", "rto_us", "rtt_us", "backoff"] {
        assert!(names.split(',').any(|column| column == name), "{name} in {names}");
    }
    let text = place.run("run short.toml --out b --no-captures --no-plots").well().out;
    for word in ["A short outage (seed 3)", "cubic", "bsd", "goodput", "ideal", "Report: b/report.html"] {
        assert!(text.contains(word), "{word} in {text}");
    }
    // A number and its unit are not torn apart at the end of a line.
    let page = fs::read_to_string(place.path("b/report.html")).unwrap().replace('\u{a0}', " ");
    assert!(page.contains("The link radio was down from 0.5 s to 2 s."));
    assert!(!page.contains("src=\"http") && !page.contains("href=\"http"), "the page needs nothing but itself");
}

fn questions_and_answers_are_both_counted_as_sent() {
    let place = Place::with_scenario("run-exchange", &exchanges());
    let printed =
        place.run("run short.toml --json --quiet --no-captures --no-plots --set time_limit=10s").well().json();
    let flow = &printed["variants"][0]["flows"][0];
    assert!(flow["throughput_bps"].as_f64() >= flow["goodput_bps"].as_f64(), "{flow}");
    assert!(flow["exchanges"]["count"].as_u64() > Some(10), "{flow}");
    assert_eq!(place.entries(), ["results", "short.toml"]);
}

/// Scenarios that cannot be run: the replaced text, its replacement, the line of the error, and a part of its message.
const BAD: &[(&str, &str, usize, &str)] = &[
    ("delay = \"15 ms\"", "dealy = \"15 ms\"", 15, "did you mean \"delay\"?"),
    ("rate = \"4 Mbit/s\"", "rate = \"-4 Mbit/s\"", 14, "above 0"),
    ("delay = \"15 ms\"", "delay = 15", 15, "\"25 ms\""),
    ("to = \"phone\"", "to = \"tablet\"", 23, "tablet"),
    ("name = \"server\"\n", "name = \"server\"\n\n[[host]]\nname = \"tablet\"\n", 12, "nothing reaches \"tablet\""),
    ("set = { stack = \"reno-bsd\" }", "set = { stack = \"reno-bds\" }", 33, "did you mean \"reno-bsd\"?"),
    ("rate = \"4 Mbit/s\"", "trace = \"cut.trace\"", 14, "cut.trace:3"),
    ("rate = \"4 Mbit/s\"", "rate = \"4 Mbit/s", 14, ""),
];

// Claim: A bad scenario (unknown field, negative rate, an unreachable host, a truncated trace ...) gives one error with file and
// line, for `run`, `sweep` and `check`, and leaves no files behind.
fn a_bad_scenario_is_one_error_with_its_place_and_leaves_nothing_behind() {
    for (index, &(from, to, line, says)) in BAD.iter().enumerate() {
        assert_eq!(SCENARIO.matches(from).count(), 1, "{from}");
        let text = SCENARIO.replace(from, to);
        let place = Place::with_scenario(&format!("run-bad-{index}"), &text);
        // The third line is cut off in the middle of a number, without an end of line.
        place.write("cut.trace", "1\n20\n3");
        for command in ["run short.toml --out out", "sweep short.toml --out out", "scenario check short.toml"] {
            let error = place.run(command).refused();
            assert!(error.contains(&format!("short.toml:{line}:")), "{command}, {to}: {error}");
            assert!(error.contains(says), "{command}, {to}: {error}");
            assert_eq!(place.entries(), ["cut.trace", "short.toml"], "{command}, {to}");
        }
    }
}

fn command_line_errors_are_reported_before_anything_runs() {
    let place = Place::with_scenario("run-command-line", SCENARIO);
    place.write("file", "");
    for (command, says) in [
        ("run shrot.toml", "no such file"),
        ("run trian-tunnel", "did you mean \"train-tunnel\"?"),
        ("run short.toml --set link.radio.rate", "rate"),
        ("run short.toml --set link.radio.rate=-1Mbit/s", "above 0"),
        ("run short.toml --set link.wire.rate=1Mbit/s", "radio"),
        ("run short.toml --seed=-1", "seed"),
        ("run short.toml --force", "--out"),
        ("run short.toml --out file", "file"),
    ] {
        let error = place.run(command).refused();
        assert!(error.contains(says), "{command}: {error}");
        assert_eq!(place.entries(), ["file", "short.toml"], "{command}");
    }
}

// Claim: Results are not mixed with existing files, and `--force` removes only files that a run has written and that were not
// changed since: a trace, a capture or a page of the user's under a name of the run, and links and pipes, are refused before
// anything changes. Only files that a run has written are in its manifest, or removed when it is given up. A trace called as a
// result is refused. A sweep does not replace an edited copy.
// Tests: `run::a_trace_or_capture_of_ones_own_is_never_replaced`, `files::a_file_that_no_run_wrote_is_never_replaced`,
// `files::results_are_not_written_through_links`, `files::results_do_not_overwrite_what_is_there`,
// `files::pipes_and_links_are_refused_without_being_read`, `files::a_trace_that_is_called_as_a_result_is_refused`,
// `sweep::tests::a_copy_that_was_edited_is_not_replaced`
fn results_are_not_mixed_with_what_is_there() {
    let place = Place::with_scenario("run-not-empty", SCENARIO);
    fs::create_dir(place.path("out")).unwrap();
    place.write("out/notes.txt", "mine");
    let run = "run short.toml --no-captures --no-plots --quiet --out out";
    let error = place.run(run).refused();
    assert!(error.contains("out") && error.contains("--force"), "{error}");
    assert_eq!(fs::read_dir(place.path("out")).unwrap().count(), 1);
    // Files of another run are replaced; other files stay.
    place.run(&format!("{run} --force")).well();
    let cubic = place.path("out/variants/cubic/events.jsonl");
    assert!(cubic.exists());
    place.write("short.toml", &SCENARIO.replace("name = \"cubic\"", "name = \"linux\""));
    place.run(run).refused();
    assert!(cubic.exists());
    place.run(&format!("{run} --force")).well();
    assert!(!cubic.exists() && place.path("out/variants/linux/events.jsonl").exists());
    assert_eq!(fs::read_to_string(place.path("out/notes.txt")).unwrap(), "mine");
    // A user's own scenario, and one that was changed after a run had written it, are not removed.
    fs::create_dir(place.path("own")).unwrap();
    place.write("own/scenario.toml", SCENARIO);
    place.write("out/scenario.toml", SCENARIO);
    for dir in ["own", "out"] {
        let run = format!("run {dir}/scenario.toml --no-captures --no-plots --quiet --force --out {dir}");
        let error = place.run(&run).refused();
        assert!(error.contains("scenario.toml") && error.contains("--force"), "{error}");
        assert_eq!(fs::read_to_string(place.path(dir).join("scenario.toml")).unwrap(), SCENARIO);
    }
}

fn a_trace_or_capture_of_ones_own_is_never_replaced() {
    let trace =
        SCENARIO.replace("rate = \"4 Mbit/s\"\ndelay = \"15 ms\"\n", "delay = \"15 ms\"\ntrace = \"radio.csv\"\n");
    assert_ne!(trace, SCENARIO);
    let place = Place::with_scenario("run-own-files", &trace);
    place.write("radio.csv", "t,rate\n0,4 Mbit/s\n10,2 Mbit/s\n");
    let run = "run short.toml --no-plots --quiet --out out --force";
    fs::create_dir(place.path("out")).unwrap();
    place.write("out/radio.csv", "mine");
    let error = place.run(run).refused();
    assert!(error.contains("radio.csv") && error.contains("--force"), "{error}");
    assert_eq!(fs::read_to_string(place.path("out/radio.csv")).unwrap(), "mine");
    fs::remove_file(place.path("out/radio.csv")).unwrap();
    // The run's own copy is replaced.
    place.run(run).well();
    place.run(run).well();
    assert_eq!(fs::read(place.path("out/radio.csv")).unwrap(), fs::read(place.path("radio.csv")).unwrap());
    let own = place.path("out/variants/cubic/captures/filtered.pcap");
    fs::write(&own, "mine").unwrap();
    let before = files_but(&place.path("out"), &[]);
    let error = place.run(run).refused();
    assert!(error.contains("filtered.pcap"), "{error}");
    assert_eq!(files_but(&place.path("out"), &[]), before);
}

// Claim: A full disk is reported as the cause; a table fits a narrow terminal.
// Tests: `run::tables_fit_a_narrow_terminal`
fn a_full_disk_is_named() {
    if !std::path::Path::new("/dev/full").exists() || !rustix::process::geteuid().is_root() {
        return;
    }
    let place = Place::with_scenario("run-full-disk", SCENARIO);
    let script = "mkdir small && mount -t tmpfs -o size=200k tmpfs small && \
                  exec $HOLDOVER run short.toml --out small/out --quiet --set output.snap_length=1500bytes";
    let mut command = std::process::Command::new("unshare");
    command
        .args(["--mount", "sh", "-c", script])
        .current_dir(place.path(""))
        .env("HOLDOVER", env!("CARGO_BIN_EXE_holdover"));
    let Ok(output) = command.output() else { return };
    let ended = Ended::new("run on a full disk", output);
    assert_eq!(ended.code, Some(1), "{}{}", ended.out, ended.err);
    assert!(ended.err.contains("No space left on device"), "{}", ended.err);
}

// Claim: A command whose output and messages cannot be written ends by its own exit status.
fn a_full_disk_below_the_messages_ends_no_command() {
    let full = || std::fs::OpenOptions::new().write(true).open("/dev/full");
    if full().is_err() {
        return;
    }
    let place = Place::with_scenario("run-messages", SCENARIO);
    let status = |arguments: &str| {
        let mut command = place.command(arguments);
        command.stdout(full().unwrap()).stderr(full().unwrap()).status().unwrap().code()
    };
    assert_eq!(status("run short.toml --no-captures --no-plots --out out"), Some(1));
    assert!(place.path("out/summary.json").exists());
    assert_eq!(status("conformance --only no-such-experiment"), Some(2));
    for arguments in ["scenario list", "bench nothing", "run no-such-scenario", "doctor", "kernel-matrix nothing"] {
        let code = status(arguments);
        assert!(matches!(code, Some(1 | 2)), "{arguments}: {code:?}");
    }
}

fn tables_fit_a_narrow_terminal() {
    let place = Place::with_scenario("run-narrow", SCENARIO);
    let is_narrow = |table: &str| table.lines().all(|line| line.chars().count() <= 50);
    let ended = place.run_on_terminal("run short.toml --no-captures --no-plots --out out").well();
    let table = ended.out.lines().skip(2).take(3).collect::<Vec<_>>();
    assert!(table[0].starts_with("variant") && is_narrow(&table.join("\n")), "{}", ended.out);
    let ended = place.run_on_terminal("scenario list").well();
    assert!(ended.out.starts_with("scenario: train-tunnel\n") && is_narrow(&ended.out), "{}", ended.out);
    let ended = place.run_on_terminal("doctor").well();
    assert!(ended.out.contains("  TUN devices  ") && is_narrow(&ended.out), "{}", ended.out);
    let scripts = "scripts/in-a-directory-with-a-long-name";
    fs::create_dir_all(place.path(scripts)).unwrap();
    place.write(&format!("{scripts}/udp.pkt"), "0 socket(..., SOCK_DGRAM, IPPROTO_UDP) = 3\n");
    let ended = place.run_on_terminal("packetdrill scripts").well();
    let (_, sums) = ended.out.split_once("\n\n").unwrap();
    assert_eq!(sums, format!("directory: {scripts}\n  passed   0\n  differs  0\n  not run  1\n  bad      0\n"));

    // The width of a terminal has no effect on a pipe.
    let mut command = place.command("scenario list");
    let piped = Ended::new("scenario list", command.env("COLUMNS", "50").output().unwrap()).well();
    assert_eq!(piped.out, place.run("scenario list").well().out);
    assert!(piped.out.starts_with("train-tunnel  ") && !is_narrow(&piped.out), "{}", piped.out);
}

// Claim: A flow without an end is not called unfinished. Tables fit a terminal of 50 columns: columns are left out and named, or
// each row becomes a block of wrapped lines; pipes are not affected.
// Tests: `run::tables_fit_a_narrow_terminal`, `sweep::a_sweep_tells_its_means_and_which_differ`,
// `text_table::tests::a_table_that_is_too_wide_loses_columns_and_names_them`,
// `text_table::tests::a_table_that_is_too_wide_without_them_becomes_blocks`,
// `text_table::tests::no_line_is_wider_than_the_terminal`
fn a_flow_without_an_end_is_not_called_unfinished() {
    let place = Place::with_scenario("run-endless", &exchanges());
    let ended = place.run("run short.toml --no-captures --no-plots --out out").well();
    assert!(ended.out.contains("to the end") && !ended.out.contains("unfinished"), "{}", ended.out);
}

// Claim: An interrupted run leaves no files behind.
fn an_interrupted_run_leaves_nothing_behind() {
    let place = Place::with_scenario("run-interrupted", SCENARIO);
    for json in [false, true] {
        // 700,000 segments: longer than it takes to see that the run has begun.
        let run = "run short.toml --out out --no-captures --set flow.download.bulk=1GB --set time_limit=5h";
        let run = format!("{run}{}", if json { " --json" } else { "" });
        let ended = place.interrupt(&run, |_| place.path("out/variants").exists());
        assert_eq!(ended.code, Some(130), "{ended:?}");
        if json {
            assert!(ended.json()["error"].as_str().unwrap().contains("interrupted"), "{ended:?}");
        } else {
            assert!(ended.out.is_empty() && ended.err.contains("interrupted"), "{ended:?}");
        }
        assert_eq!(place.entries(), ["short.toml"]);
    }
}

fn a_directory_called_like_a_built_in_scenario_does_not_hide_it() {
    let place = Place::new("run-shadowed");
    fs::create_dir(place.path("elevator")).unwrap();
    place.run("run elevator --quiet --no-plots --no-captures --set time_limit=10s --out out").well();
    assert!(fs::read_to_string(place.path("out/scenario.toml")).unwrap().contains("An elevator"));
}
