//! `holdover explain`.

use std::fs;

use serde_json::Value;

use crate::support::{Place, SCENARIO, exchanges};

/// How long was lost to `cause`.
fn seconds(explained: &Value, cause: &str) -> f64 {
    let shares = explained["lost"].as_array().unwrap();
    shares.iter().find(|share| share["cause"] == cause).unwrap()["seconds"].as_f64().unwrap()
}

/// The parts of a connection's time, and the whole.
fn adds_up(explained: &Value) {
    let parts: f64 = explained["lost"].as_array().unwrap().iter().map(|share| share["seconds"].as_f64().unwrap()).sum();
    assert!((parts - explained["seconds"].as_f64().unwrap()).abs() < 1e-6, "{explained}");
}

#[test]
fn a_run_and_a_capture_are_explained() {
    let place = Place::with_scenario("explain", SCENARIO);
    place.run("run short.toml --out out --no-plots --quiet --set output.snap_length=96bytes").well();
    let text = place.run("explain out").well().out;
    assert!(text.contains("outage") && text.contains("RTO wait"), "{text}");
    let of_run = place.run("explain out --json").well().json();
    let of_run = of_run.as_array().unwrap();
    assert_eq!(of_run.len(), 2, "one connection in each of two variants");
    for explained in of_run {
        adds_up(explained);
        assert!((seconds(explained, "outage") - 1.5).abs() < 0.2, "{explained}");
        assert!(seconds(explained, "rto-wait") > 0.05, "{explained}");
        assert!(
            explained["capture"].as_str().unwrap().ends_with("server-eth0.pcapng"),
            "the sender's own: {explained}"
        );
        assert_eq!(explained["bytes"], 400_000);
    }
    // A capture alone says nothing of the link; whoever knows can tell.
    let capture = "out/variants/bsd/captures/server-eth0.pcapng";
    let alone = place.run(&format!("explain {capture} --json")).well().json();
    assert_eq!(seconds(&alone[0], "outage"), 0.0);
    let told = place.run(&format!("explain {capture} --json --outage 0.5-2")).well().json();
    assert!((seconds(&told[0], "outage") - 1.5).abs() < 0.2, "{told}");
    adds_up(&told[0]);
}

#[test]
fn both_directions_of_questions_and_answers_are_explained_once() {
    let place = Place::with_scenario("explain-exchange", &exchanges());
    place.run("run short.toml --out out --no-plots --quiet --set time_limit=8s").well();
    let explained = place.run("explain out/variants/cubic --json").well().json();
    let explained = explained.as_array().unwrap();
    let captures: Vec<&str> = explained.iter().map(|one| one["capture"].as_str().unwrap()).collect();
    assert_eq!(captures.len(), 2, "{captures:?}");
    assert!(captures[0].ends_with("phone-eth0.pcapng") && captures[1].ends_with("server-eth0.pcapng"), "{captures:?}");
    // The phone had asked when the link went; the server had nothing to say.
    assert!(seconds(&explained[0], "outage") > 1.0, "{}", explained[0]);
}

#[test]
fn a_moving_hosts_outages_are_those_of_its_connections() {
    let place = Place::new("explain-mobile");
    place
        .run("run office-move --out out --no-plots --quiet --set flow.download.bulk=6MB --set output.captures=[\"server\"]")
        .well();
    let explained = place.run("explain out/variants/linux-6-cubic --json").well().json();
    assert!(seconds(&explained[0], "outage") > 1.0, "{explained}");
}

#[test]
fn what_cannot_be_explained_is_one_error() {
    let place = Place::with_scenario("explain-errors", SCENARIO);
    fs::create_dir(place.path("empty")).unwrap();
    for (command, says) in [
        ("explain nowhere", "nowhere"),
        ("explain short.toml", "neither a pcapng nor a pcap file"),
        ("explain empty", "neither a capture nor the directory of a run"),
        ("explain short.toml --outage 5-3", "FROM-TO"),
    ] {
        let error = place.run(command).refused();
        assert!(error.contains(says), "{command}: {error}");
    }
}
