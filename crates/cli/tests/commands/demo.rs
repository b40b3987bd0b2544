//! `holdover demo`, as a newcomer sees it.

use std::fs;

use serde_json::Value;

use crate::Test;
use crate::kernel::is_possible;
use crate::support::Place;

pub(crate) const TESTS: &[Test] = &[
    ("a_newcomer_sees_what_happens_and_what_it_comes_to", a_newcomer_sees_what_happens_and_what_it_comes_to),
    ("without_a_directory_each_demo_gets_one_of_its_own", without_a_directory_each_demo_gets_one_of_its_own),
    ("the_simulator_has_bbr", the_simulator_has_bbr),
    (
        "on_a_kernel_the_agent_has_data_flow_again_before_the_timer_does",
        on_a_kernel_the_agent_has_data_flow_again_before_the_timer_does,
    ),
];

// Claim: `demo` prints lines where there is no terminal, writes a report that is never overwritten, gives the reason for using
// the simulator, and repeats its result there.
// Tests: `demo::without_a_directory_each_demo_gets_one_of_its_own`, `demo::the_simulator_has_bbr`
fn a_newcomer_sees_what_happens_and_what_it_comes_to() {
    let place = Place::new("demo-text");
    let ended = place.run("demo --simulated --out r").well();
    let before = ended.out.split("    4.0 s").next().unwrap();
    assert!(before.starts_with("Preparing phones, servers and links"), "{before}");
    assert!(before.lines().count() <= 4, "three sentences are enough after the first: {before}");
    for told in [
        "    4.0 s  the links are cut\n",
        "   11.0 s  the links are back\n",
        "download, agent: data again, 0.",
        "█ data arrives   ░ the link is cut   · the link is back, and nothing comes",
        "download, with the agent ",
        "share of the ideal",
        "Report: r/report.html\n",
    ] {
        assert!(ended.out.contains(told), "{told}: {}", ended.out);
    }
    assert!(!ended.out.contains('\x1b'), "no escape codes where nobody reads them");
    let widest = ended.out.lines().map(|line| line.chars().count()).max().unwrap();
    assert!(widest <= 132, "{widest}: {}", ended.out);
    let page = fs::read_to_string(place.path("r/report.html")).unwrap();
    assert!(page.contains("with the agent") && page.contains("the link is cut") && page.contains("<svg"), "{page}");
    assert!(place.path("r/progress.svg").exists() && place.path("r/manifest.json").exists());
    // Links lead to places on the page, and to files.
    let links: Vec<&str> = page.split("href=\"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
    assert!(links.iter().filter(|link| link.ends_with(".pcapng")).count() > 8, "{links:?}");
    for link in links {
        let leads = match link.strip_prefix('#') {
            Some(id) => page.matches(&format!(" id=\"{id}\"")).count() == 1,
            None => place.path("r").join(link).exists(),
        };
        assert!(leads, "{link}");
    }
    // The table of a narrow terminal is a block for each transfer.
    let narrow = place.run_on_terminal("demo --simulated --out narrow").well().out;
    assert!(narrow.contains("\nupload, with the agent\n  lost after the link's return "), "{narrow}");
    let again = place.run("demo --simulated --out r");
    assert_eq!(again.code, Some(2), "what is there stays: {}", again.err);
}

fn without_a_directory_each_demo_gets_one_of_its_own() {
    let place = Place::new("demo-directory");
    let first: Value = serde_json::from_str(&place.run("demo --simulated --json").well().out).unwrap();
    let second: Value = serde_json::from_str(&place.run("demo --simulated --json").well().out).unwrap();
    assert_ne!(first["report"], second["report"]);
    assert!(first["report"].as_str().is_some_and(|report| place.path(report).exists()), "{first}");
    // The simulator gives the same twice.
    assert_eq!(first["flows"], second["flows"]);
    check(&first, "simulator");
}

fn the_simulator_has_bbr() {
    let demo =
        serde_json::from_str(&Place::new("demo-bbr").run("demo --simulated --sender bbr --json").well().out).unwrap();
    check(&demo, "simulator");
}

// Claim: On a kernel, data flow again with the agent before the sender's timer expires.
fn on_a_kernel_the_agent_has_data_flow_again_before_the_timer_does() {
    if is_possible() {
        let demo =
            serde_json::from_str(&Place::new("demo-kernel").run("demo --json --sender reno").well().out).unwrap();
        check(&demo, "kernel");
    }
}

/// All four came to their end, and those with the agent before those without.
fn check(demo: &Value, world: &str) {
    assert_eq!(demo["world"], world);
    // As root eBPF, as anybody else a filter.
    let path = demo["agent_path"].as_str().unwrap();
    assert!(path == "filter" || path == "ebpf" && world == "kernel", "{demo}");
    let flows = demo["flows"].as_array().unwrap();
    let who: Vec<_> = flows.iter().map(|flow| (flow["direction"].as_str().unwrap(), flow["agent"] == true)).collect();
    assert_eq!(who, [("download", false), ("download", true), ("upload", false), ("upload", true)]);
    let value = |flow: usize, name: &str| flows[flow][name].as_f64().unwrap_or_else(|| panic!("{name}: {demo}"));
    for plain in [0, 2] {
        let agent = plain + 1;
        assert!(value(agent, "resume_ms") < value(plain, "resume_ms"), "{demo}");
        assert!(value(agent, "completion_s") < value(plain, "completion_s"), "{demo}");
        assert!(value(agent, "ideal_share") > value(plain, "ideal_share"), "{demo}");
        assert!((17.0..50.0).contains(&value(agent, "completion_s")), "{demo}");
    }
}
