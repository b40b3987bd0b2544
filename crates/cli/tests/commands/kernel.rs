//! `holdover run --real` and `--both`, and `holdover shell`: what needs this machine's kernel.
//!
//! Without the right to make network namespaces these tests say so and do nothing; with `HOLDOVER_REQUIRE_NAMESPACES=1` in the
//! environment that is a failure.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::process::Stdio;
use std::time::{Duration, Instant};

use holdover_testbed::Privilege;
use holdover_testbed::harness::skip;
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use serde_json::Value;

use crate::Test;
use crate::support::{Ended, Place, SCENARIO};

pub(crate) const TESTS: &[Test] = &[
    ("both_worlds_stand_in_one_report", both_worlds_stand_in_one_report),
    ("mechanisms_act_between_kernels", mechanisms_act_between_kernels),
    ("an_interrupted_matrix_says_what_was_kept", an_interrupted_matrix_says_what_was_kept),
    ("an_interrupted_conformance_says_what_was_kept", an_interrupted_conformance_says_what_was_kept),
    ("the_agent_is_tested_across_an_outage", the_agent_is_tested_across_an_outage),
    (
        "worlds_without_kernel_support_are_refused_before_anything_is_written",
        worlds_without_kernel_support_are_refused_before_anything_is_written,
    ),
    ("a_command_runs_on_a_host", a_command_runs_on_a_host),
    ("nothing_is_left_after_a_kill", nothing_is_left_after_a_kill),
];

/// Whether there are namespaces to be had.
pub(crate) fn is_possible() -> bool {
    let Privilege::None(reason) = Privilege::detect() else { return true };
    skip(reason);
    false
}

// Claim: `run --both` compares both worlds side by side; `shell` runs a command on a host, with its exit status; neither leaves a
// process or namespace behind when it is killed.
// Tests: `kernel::a_command_runs_on_a_host`, `kernel::nothing_is_left_after_a_kill`
fn both_worlds_stand_in_one_report() {
    if !is_possible() {
        return;
    }
    let place = Place::with_scenario("kernel-both", SCENARIO);
    let ended = place.run("run short.toml --both --repeat 2 --jobs 4 --out r --no-plots").well();
    assert!(
        ended.err.contains("variant bsd is not run on the kernel") && ended.err.contains("linux-6-cubic"),
        "{}",
        ended.err
    );
    assert!(ended.out.contains("cubic, download: simulator and kernel"), "{}", ended.out);
    let summary: Value = serde_json::from_slice(&fs::read(place.path("r/summary.json")).unwrap()).unwrap();
    let names: Vec<&str> =
        summary["variants"].as_array().unwrap().iter().map(|v| v["variant"].as_str().unwrap()).collect();
    assert_eq!(names, ["cubic", "cubic (kernel)", "bsd"]);
    let kernel = &summary["variants"][1]["kernel"];
    assert_eq!((&kernel["simulated"], kernel["repetitions"].as_array().unwrap().len()), (&"cubic".into(), 2));
    assert!(kernel["lateness"]["packets"].as_u64().unwrap() > 100, "{kernel}");
    assert!(kernel["hosts"][1]["counters"]["TcpPassiveOpens"].as_i64() == Some(1), "{kernel}");
    let flow = |index: usize| &summary["variants"][index]["flows"][0];
    assert_eq!((&flow(1)["status"], &flow(1)["bytes_received"]), (&"completed".into(), &400_000.into()));
    assert_eq!(flow(0)["outage_s"], flow(1)["outage_s"]);
    let table = fs::read_to_string(place.path("r/differences.csv")).unwrap();
    assert!(table.lines().any(|line| line.starts_with("cubic,download,completion time,,")), "{table}");
    assert!(fs::read_to_string(place.path("r/report.html")).unwrap().contains("Simulator and kernel"));
    for name in ["cubic-kernel/captures/server-eth0.pcapng", "cubic-kernel/repetition-2/events.jsonl"] {
        let variants = fs::read_dir(place.path("r/variants")).unwrap().map(|entry| entry.unwrap().file_name());
        assert!(place.path(&format!("r/variants/{name}")).exists(), "{name}: {:?}", variants.collect::<Vec<_>>());
    }
}

// Claim: Mechanisms of routers and hosts act between two kernels as in the simulator: every download arrives whole, and those that restart
// the sender do so as soon as the link is back. Results: docs/mechanisms/README.md.
fn mechanisms_act_between_kernels() {
    if !is_possible() {
        return;
    }
    let place =
        Place::with_scenario("kernel-mechanisms", include_str!("../../../../docs/mechanisms/between-kernels.toml"));
    let ended = place.run("run short.toml --real --repeat 2 --jobs 8 --quiet --json --out r").well();
    let summary = ended.json();
    let variants = summary["variants"].as_array().unwrap();
    assert_eq!(variants.len(), 19);
    let restarting = [
        "buffer",
        "gateway-buffer-freeze",
        "gateway-m-tcp",
        "supervisor",
        "buffer_freeze",
        "m_tcp",
        "blocking_buffer",
        "hold_back",
        "ack_stall",
    ];
    let (mut plain, mut restarted) = (0.0, Vec::new());
    for variant in variants {
        let name = variant["variant"].as_str().unwrap().trim_end_matches(" (kernel)");
        let flows: Vec<&Value> =
            variant["kernel"]["repetitions"].as_array().unwrap().iter().map(|run| &run["flows"][0]).collect();
        assert!(
            flows.iter().all(|flow| flow["status"] == "completed" && flow["bytes_received"] == 1_000_000),
            "{name}: {flows:?}"
        );
        let idle: Vec<f64> = flows.iter().filter_map(|flow| flow["reconnections"][0]["idle_s"].as_f64()).collect();
        if name == "plain" {
            plain = idle.into_iter().fold(0.0, f64::max);
        } else if restarting.contains(&name) {
            // The sooner of two: a busy machine may lose the moment of a cut.
            restarted.push((idle.into_iter().fold(f64::INFINITY, f64::min), name));
        }
    }
    assert_eq!(restarted.len(), restarting.len());
    // A kernel's own timer may happen to fire just after the link's return.
    assert!(restarted.iter().all(|&(idle, _)| idle < 0.4 && idle < plain), "{restarted:?}, plain {plain}");
}

fn an_interrupted_matrix_says_what_was_kept() {
    if !is_possible() {
        return;
    }
    let place = Place::new("kernel-matrix-interrupted");
    let matrix = "kernel-matrix --json --captures captures";
    // The first capture shows that transfers are under way.
    let captures = place.path("captures");
    let ended = place.interrupt(matrix, |_| fs::read_dir(&captures).map_or(0, Iterator::count) > 0);
    assert_eq!(ended.code, Some(130), "{ended:?}");
    let error = ended.json()["error"].as_str().unwrap().to_owned();
    assert!(error.starts_with("interrupted; ") && error.contains("captures in captures are kept"), "{error}");
}

// Claim: An interrupted `conformance`, or `reproduce --real`, says what is kept: the journal of a grid, and otherwise nothing, with the file
// that is not written.
fn an_interrupted_conformance_says_what_was_kept() {
    if !is_possible() {
        return;
    }
    let place = Place::new("conformance-interrupted");
    let cases = [
        (
            "conformance --json --out page.json --only wake",
            "nothing was kept: page.json would have been written at the end",
        ),
        (
            "conformance --json --agent --only cubic --journal runs",
            "the runs that have ended are kept in runs: the same command continues from there",
        ),
        (
            "reproduce hip-uto-rt --real --json --only 208 --runs 1 --journal cuts",
            "the runs that have ended are kept in cuts: the same command continues from there",
        ),
    ];
    for (command, kept) in cases {
        // Its cases run: one thread waits for signals, and each case has some.
        let threads = |pid| fs::read_dir(format!("/proc/{pid}/task")).map_or(0, Iterator::count);
        let ended = place.interrupt(command, |pid| threads(pid) >= 4);
        assert_eq!(ended.code, Some(130), "{ended:?}");
        let error = ended.json()["error"].as_str().unwrap().to_owned();
        assert_eq!(error, format!("interrupted; {kept}"));
        assert!(!place.path("page.json").exists());
    }
}

// Claim: `agent test` detects the outage, and reports whether and when the connection continued, with and without the agent. A
// wake counts only if the outage was detected and data arrived.
// Tests: `self_test::a_wake_counts_only_if_the_outage_was_seen_and_data_came`
fn the_agent_is_tested_across_an_outage() {
    if !is_possible() {
        return;
    }
    let place = Place::new("agent-test");
    let ended = place.run("agent test --json --socket nowhere");
    if ended.code == Some(77) {
        return skip(&ended.json()["error"]);
    }
    let findings = ended.json();
    // On a busy machine the wake may be late, and the findings report that; they always report the attempt.
    let woke = ["at_once", "by_itself"].map(Value::from).contains(&findings["outcome"]);
    assert_eq!(findings["works"], woke, "{findings}");
    assert_eq!(ended.code, Some(i32::from(!woke)), "{findings}");
    assert!(findings["outages_seen"].as_u64() >= Some(1) && findings["outcome"] != "nothing", "{findings}");
    assert!(
        findings["resumed_s"].as_f64() > Some(0.0) && findings["resumed_without_s"].as_f64() > Some(0.0),
        "{findings}"
    );
    assert!(
        findings["not_asked"].as_str().unwrap().contains("nowhere") && findings.get("running").is_none(),
        "{findings}"
    );
}

fn worlds_without_kernel_support_are_refused_before_anything_is_written() {
    let place = Place::with_scenario("kernel-refused", SCENARIO);
    let error =
        place.run("run short.toml --real --set stack=tahoe-bsd --set variant.0.set.stack=reno-bsd --out r").refused();
    assert!(error.contains("no variant can be run on a kernel") && error.contains("linux-6-cubic"), "{error}");
    let error = place.run("run short.toml --repeat 3 --out r").refused();
    assert!(error.contains("--repeat") && error.contains("--both"), "{error}");
    let error = place.run("run short.toml --real --simulated nobody --out r").refused();
    assert!(error.contains("nobody"), "{error}");
    assert_eq!(place.entries(), ["short.toml"]);
}

/// A server on the one host, a client on the other, and the link between them.
fn a_command_runs_on_a_host() {
    if !is_possible() {
        return;
    }
    let place = Place::with_scenario("kernel-shell", SCENARIO);
    let shell = |arguments: &[&str]| {
        let mut command = place.command("shell short.toml");
        Ended::new("shell", command.args(arguments).stdin(Stdio::null()).output().unwrap())
    };
    let ended = shell(&["--", "sh", "-c", "echo on $HOLDOVER_HOST; ls /sys/class/net >/dev/null; exit 7"]);
    assert_eq!((ended.code, ended.out.as_str()), (Some(7), "on phone\n"), "{}", ended.err);
    let ended = shell(&["--host", "server", "--", "sh", "-c", "grep -c '^[.0-9]* phone$' /etc/hosts; kill -9 $$"]);
    assert_eq!((ended.code, ended.out.as_str()), (Some(137), "1\n"), "{}", ended.err);
    let ended = shell(&["--", "/no/such/program"]);
    assert_eq!((ended.code, ended.err.matches("error:").count()), (Some(127), 1), "{}", ended.err);
    let ended = shell(&["--host", "nobody", "--", "true"]);
    assert_eq!(ended.code, Some(2));
    assert!(ended.err.contains("phone, server"), "{}", ended.err);
}

/// A run and a shell that are killed leave no process behind, and with their last one go the namespaces.
fn nothing_is_left_after_a_kill() {
    if !is_possible() {
        return;
    }
    let place = Place::with_scenario("kernel-killed", SCENARIO);
    let script = "sleep 1000 & echo $(readlink /proc/self/ns/net) $(readlink /proc/self/ns/pid); wait";
    let mut command = place.command("shell short.toml");
    command
        .args(["--serve", "server=sleep 1001", "--", "sh", "-c", script])
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let namespaces: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
    assert_eq!(namespaces.len(), 2, "{line}");
    assert!(in_namespaces(&namespaces) >= 2, "{line}");
    let pid = Pid::from_child(&child);
    kill_process(pid, Signal::KILL).unwrap();
    child.wait().unwrap();
    assert!(test_kill_process(pid).is_err());
    let start = Instant::now();
    while in_namespaces(&namespaces) > 0 {
        assert!(start.elapsed() < Duration::from_secs(20), "processes are left in {line}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// How many processes are in one of these namespaces.
fn in_namespaces(namespaces: &[String]) -> usize {
    let is_inside = |pid: &std::ffi::OsStr| {
        let link = |kind: &str| fs::read_link(std::path::Path::new("/proc").join(pid).join("ns").join(kind));
        ["net", "pid"]
            .into_iter()
            .filter_map(|kind| link(kind).ok())
            .any(|link| namespaces.iter().any(|namespace| link.as_os_str() == namespace.as_str()))
    };
    fs::read_dir("/proc").unwrap().filter(|entry| is_inside(&entry.as_ref().unwrap().file_name())).count()
}
