//! `holdover doctor` and `holdover conformance`.

use holdover_testbed::harness::skip;

use crate::Test;
use crate::kernel::is_possible;
use crate::support::{Ended, Place};

pub(crate) const TESTS: &[Test] = &[
    ("lines_and_json_say_the_same", lines_and_json_say_the_same),
    ("conformance_lists_runs_and_refuses", conformance_lists_runs_and_refuses),
    ("the_grid_of_the_agent_is_listed_measured_and_refused", the_grid_of_the_agent_is_listed_measured_and_refused),
    ("the_grid_of_links_is_listed_measured_and_refused", the_grid_of_links_is_listed_measured_and_refused),
    ("the_grid_of_the_gateway_is_listed_measured_and_refused", the_grid_of_the_gateway_is_listed_measured_and_refused),
];

// Claim: `doctor` reports its findings and remedies, as lines and as JSON, with an answer for each use, and its exit status
// follows.
fn lines_and_json_say_the_same() {
    let place = Place::new("doctor");
    let (text, json) = (place.run("doctor"), place.run("doctor --json"));
    assert_eq!(text.code, json.code);
    let json = json.json();
    let real_runs = json["real_runs"].as_bool().unwrap();
    assert_eq!(text.code, Some(0), "{}", text.out);
    let verdict = |name: &str| {
        let uses = json["uses"].as_array().unwrap();
        let answer = uses.iter().find(|answer| answer["use"] == name).unwrap_or_else(|| panic!("{name}: {json}"));
        assert!(text.out.contains(answer["text"].as_str().unwrap()), "{answer}");
        answer["verdict"].as_str().unwrap().to_owned()
    };
    assert_eq!(verdict("demo"), if real_runs { "works" } else { "fallback" });
    assert_eq!(verdict("kernel"), if real_runs { "works" } else { "cannot" });
    let can = |name: &str| json[name].as_bool().unwrap();
    let uses = [("demo", true), ("kernel", real_runs)];
    for (name, can) in uses.into_iter().chain(["agent", "gateway", "hip"].map(|name| (name, can(name)))) {
        assert_eq!(place.run(&format!("doctor --for {name}")).code, Some(i32::from(!can)), "{name}");
        assert_eq!(verdict(name) != "cannot", can, "{name}");
    }
    let checks = json["checks"].as_array().unwrap();
    assert!(checks.len() >= 8, "{json}");
    for check in checks {
        let (name, found) = (check["name"].as_str().unwrap(), check["found"].as_str().unwrap());
        let line = text.out.lines().find(|line| line[4..].starts_with(name)).unwrap_or_else(|| panic!("{name}"));
        assert_eq!(line.starts_with("ok"), check["fine"].as_bool().unwrap(), "{line}");
        assert_eq!(line.contains("; fix: "), check["fix"].is_string(), "{line}");
        assert!(line.contains(found), "{line}");
    }
}

// Claim: `conformance` lists its experiments; one case runs, with its verdict, and an unknown name is an error.
fn conformance_lists_runs_and_refuses() {
    let place = Place::new("conformance");
    let list = place.run("conformance --list").well().out;
    assert!(
        list.contains("wake: What does each kind of packet do") && list.contains("    3 s: nothing, bbr\n"),
        "{list}"
    );
    assert!(!list.contains("60 s, cubic"), "what takes minutes is run on request: {list}");
    let refused = place.run("conformance --only no-such-experiment").refused();
    assert!(refused.contains("\"no-such-experiment\""), "{refused}");

    let case = "dirty_freeze: 1 s, cubic";
    let output = place.command("conformance --json --only").arg(case).output().unwrap();
    let ended = Ended::new(case, output);
    if ended.err.contains("needs network namespaces") {
        assert_eq!(ended.code, Some(1), "{}", ended.err);
        return skip(ended.err);
    }
    let json = ended.json();
    let row = &json["experiments"][0]["cases"][0];
    assert_eq!((row["sender"].as_str(), row["profile"].as_str()), (Some("cubic"), Some("linux-6-cubic")), "{json}");
    assert_eq!(row["kernel"].as_array().unwrap().len(), row["ours"].as_array().unwrap().len());
    assert!(row["error"].is_null(), "{json}");
    // On another kernel, or a very busy machine, it may differ, and says so.
    assert_eq!(ended.code == Some(0), row["verdict"] != "differs", "{json}");
}

// Claim: `conformance --agent` measures cells of its grid, and reports whether they reach their bounds. Results:
// docs/conformance/agent.md.
fn the_grid_of_the_agent_is_listed_measured_and_refused() {
    let place = Place::new("conformance-agent");
    let list = place.run("conformance --agent --list").well().out;
    assert_eq!(list.lines().count(), 3 * 2 * (6 * 3 + 1), "{list}");
    assert!(list.contains("bbr, upload, 40 s, warned\n") && list.contains("reno, download, uncut\n"), "{list}");
    let refused = place.run("conformance --agent --only vegas").refused();
    assert!(refused.contains("\"vegas\""), "{refused}");
    let needs = place.run("conformance --csv grid.csv");
    assert!(needs.code == Some(2) && needs.err.contains("--agent"), "{}", needs.err);

    if !is_possible() {
        return;
    }
    let case = "reno, download, 1 s, warned";
    let arguments = "conformance --agent --filter --repeat 1 --json --csv grid.csv --only";
    let ended = Ended::new(case, place.command(arguments).arg(case).output().unwrap());
    let json = ended.json();
    let cells = json["cells"].as_array().unwrap();
    let of = |name: &str| cells.iter().map(|cell| cell[name].as_str().unwrap()).collect::<Vec<_>>();
    assert_eq!((of("help"), of("direction")), (vec!["plain", "warned"], vec!["download", "download"]), "{json}");
    assert!(cells.iter().all(|cell| cell["completion_s"].as_f64().is_some_and(|taken| taken > 10.0)), "{json}");
    assert!(cells[1]["new_data_ms"].as_f64().is_some_and(|millis| millis >= 25.0), "no sooner than light: {json}");
    assert_eq!(json["agent_path"], "filter");
    // On a busy machine it may miss its bounds, and reports that.
    assert_eq!(ended.code == Some(0), cells.iter().all(|cell| cell["misses"].as_array().unwrap().is_empty()), "{json}");
    let rows = std::fs::read_to_string(place.path("grid.csv")).unwrap();
    assert_eq!(rows.lines().count(), 3, "{rows}");
    assert!(rows.lines().all(|row| row.split(',').count() == 13), "{rows}");
}

// Claim: `conformance --agent-links` lists its grid of links, outages, senders, uses and families, and runs the whole daemon in a
// cell of it, with and without a warning. Results: docs/conformance/agent-links.md.
// Tests: `crates/conformance/src/agent_links/cells.rs`
fn the_grid_of_links_is_listed_measured_and_refused() {
    let place = Place::new("conformance-agent-links");
    let list = place.run("conformance --agent-links --list").well().out;
    for name in ["carrier, 3 s, bbr, upload, IPv6, warned", "ethernet-silent, 20 s, reno, key, IPv4, agent"] {
        assert!(list.lines().any(|line| line == name), "{list}");
    }
    assert!(!list.contains("ethernet-silent, 3 s, cubic, key, IPv4, warned"), "nobody can know of it: {list}");
    let refused = place.run("conformance --agent-links --only vegas").refused();
    assert!(refused.contains("\"vegas\""), "{refused}");
    let both = place.run("conformance --agent --agent-links");
    assert!(both.code == Some(2) && both.err.contains("--agent-links"), "{}", both.err);

    // Attaching an engine takes more than a user namespace.
    let is_root = rustix::process::geteuid().is_root();
    if !is_root || !is_possible() {
        return;
    }
    let arguments = "conformance --agent-links --repeat 1 --json --csv grid.csv --only";
    let case = "carrier, 500 ms, cubic, key, IPv4";
    let ended = Ended::new(case, place.command(arguments).arg(case).output().unwrap());
    let json = ended.json();
    let cells = json["cells"].as_array().unwrap();
    let of = |name: &str| cells.iter().map(|cell| cell[name].as_str().unwrap()).collect::<Vec<_>>();
    assert_eq!((of("help"), of("usage")), (vec!["plain", "agent", "warned"], vec!["keys"; 3]), "{json}");
    assert!(cells.iter().all(|cell| cell["total_s"].as_f64().is_some_and(|taken| taken < 10.0)), "{json}");
    assert!(cells.iter().all(|cell| cell["first_data_ms"].as_f64().is_some_and(|millis| millis >= 25.0)), "{json}");
    // On a busy machine it may miss its bound, and says so.
    assert_eq!(ended.code == Some(0), cells.iter().all(|cell| cell["misses"].as_array().unwrap().is_empty()), "{json}");
    let rows = std::fs::read_to_string(place.path("grid.csv")).unwrap();
    assert!(rows.lines().count() == 4 && rows.lines().all(|row| row.split(',').count() == 14), "{rows}");
}

// Claim: `conformance --gateway` lists its grid of links, senders, directions, absences and modes, and runs the whole daemon on
// the router in a cell of it. A spoiled run is made again, at most twice. Results: docs/conformance/gateway.md.
// Tests: `grid::tests::a_spoiled_run_is_made_again_and_the_last_one_counts`, `crates/conformance/src/gateway/cells.rs`
fn the_grid_of_the_gateway_is_listed_measured_and_refused() {
    let place = Place::new("conformance-gateway");
    let list = place.run("conformance --gateway --list").well().out;
    assert!(list.contains("carrier, bbr, upload, 20 s, m-tcp\n") && list.contains("reno, download, uncut\n"), "{list}");
    assert!(!list.contains("600 s"), "that takes long: {list}");
    assert!(
        place.run("conformance --gateway --long --list").well().out.contains("silent, reno, download, 600 s, plain\n")
    );
    let refused = place.run("conformance --gateway --only vegas").refused();
    assert!(refused.contains("\"vegas\""), "{refused}");
    let both = place.run("conformance --agent --gateway");
    assert!(both.code == Some(2) && both.err.contains("--gateway"), "{}", both.err);

    // The gateway takes more than a user namespace.
    let is_root = rustix::process::geteuid().is_root();
    if !is_root || !is_possible() {
        return;
    }
    let arguments = "conformance --gateway --repeat 1 --json --csv grid.csv --only";
    let case = "carrier, reno, download, 1 s, buffer";
    let ended = Ended::new(case, place.command(arguments).arg(case).output().unwrap());
    let json = ended.json();
    let cells = json["cells"].as_array().unwrap();
    let of = |name: &str| cells.iter().map(|cell| cell[name].as_str().unwrap()).collect::<Vec<_>>();
    assert_eq!((of("mode"), of("link")), (vec!["plain", "buffer"], vec!["carrier"; 2]), "{json}");
    assert!(cells.iter().all(|cell| cell["total_s"].as_f64().is_some_and(|taken| taken > 10.0)), "{json}");
    assert!(cells.iter().all(|cell| cell["ideal_share"].as_f64().is_some_and(|share| share > 0.3)), "{json}");
    assert!(cells[1]["first_data_ms"].as_f64().is_some_and(|millis| millis >= 5.0), "no sooner than light: {json}");
    // On a busy machine it may miss its bounds, and says so.
    assert_eq!(ended.code == Some(0), cells.iter().all(|cell| cell["misses"].as_array().unwrap().is_empty()), "{json}");
    let rows = std::fs::read_to_string(place.path("grid.csv")).unwrap();
    assert!(rows.lines().count() == 3 && rows.lines().all(|row| row.split(',').count() == 12), "{rows}");
}
