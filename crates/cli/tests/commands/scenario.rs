//! `holdover scenario`.

use std::fs;
use std::path::Path;

use crate::Test;
use crate::support::{Place, SCENARIO};

pub(crate) const TESTS: &[Test] = &[
    ("check_says_what_is_in_a_scenario", check_says_what_is_in_a_scenario),
    ("check_gives_programs_the_error_with_its_place", check_gives_programs_the_error_with_its_place),
    ("a_capture_becomes_a_trace_that_a_scenario_takes", a_capture_becomes_a_trace_that_a_scenario_takes),
    ("the_schema_is_the_published_one", the_schema_is_the_published_one),
    (
        "the_built_in_scenarios_are_listed_shown_copied_and_can_be_run",
        the_built_in_scenarios_are_listed_shown_copied_and_can_be_run,
    ),
    ("single_and_double_brackets_of_one_name_differ", single_and_double_brackets_of_one_name_differ),
    ("a_trace_may_begin_with_a_byte_order_mark", a_trace_may_begin_with_a_byte_order_mark),
    ("check_warns_of_a_black_hole", check_warns_of_a_black_hole),
];

fn check_says_what_is_in_a_scenario() {
    let place = Place::with_scenario("scenario-check", SCENARIO);
    let text = place.run("scenario check short.toml").well().out;
    for word in ["short.toml: A short outage", "phone, server", "radio", "cubic, bsd", "30 s, seed 3"] {
        assert!(text.contains(word), "{word} in {text}");
    }
    let printed = place.run("scenario check short.toml --json --set time_limit=5s").well().json();
    assert_eq!(printed["ok"], true);
    let scenario = &printed["scenario"];
    assert_eq!((&scenario["time_limit_s"], &scenario["flows"]), (&5.0.into(), &1.into()));
    assert_eq!(scenario["variants"], serde_json::json!(["cubic", "bsd"]));
    assert_eq!(place.entries(), ["short.toml"]);
}

fn check_gives_programs_the_error_with_its_place() {
    let place = Place::with_scenario("scenario-error", &SCENARIO.replace("delay =", "dealy ="));
    let ended = place.run("scenario check short.toml --json");
    assert_eq!((ended.code, ended.err.as_str()), (Some(2), ""));
    let printed = ended.json();
    assert_eq!(printed["ok"], false);
    let error = &printed["error"];
    assert_eq!((&error["file"], &error["line"], &error["column"]), (&"short.toml".into(), &15.into(), &1.into()));
    assert_eq!((&error["did_you_mean"], &error["field"]), (&"delay".into(), &"link.radio.dealy".into()), "{error}");
    assert!(error["accepted"].as_str().unwrap().contains("\"queue_limit\""), "{error}");
}

fn a_capture_becomes_a_trace_that_a_scenario_takes() {
    let place = Place::with_scenario("scenario-trace", SCENARIO);
    place.run("run short.toml --out a --no-plots --quiet").well();
    let capture = "a/variants/cubic/captures/phone-eth0.pcapng";
    let made = place.run(&format!("scenario trace {capture} --interval 500ms --out link.csv")).well();
    assert!(made.err.contains("captured at the receiver") && made.err.contains("1 outages"), "{}", made.err);
    let table = fs::read_to_string(place.path("link.csv")).unwrap();
    assert_eq!(table.lines().nth(1), Some("t,rate,rtt,loss,up"));
    assert_eq!(place.run(&format!("scenario trace {capture} --interval 500ms")).well().out, table);
    let traced = SCENARIO
        .replace("loss = \"0.5 %\"", "forward = { trace = \"link.csv\" }")
        .replace("list = [{ at = \"500 ms\", for = \"1500 ms\" }], ", "");
    place.write("traced.toml", &traced.replace("[\"phone\", \"server\"]", "[\"server\", \"phone\"]"));
    place.run("run traced.toml --out b --no-plots --quiet").well();
    for (arguments, code, words) in [
        ("scenario trace short.toml", 2, "neither a pcapng nor a pcap"),
        ("scenario trace none.pcap", 1, "none.pcap"),
        ("scenario trace short.toml --interval 0s", 2, "from 1 ms"),
    ] {
        let refused = place.run(arguments);
        assert_eq!(refused.code, Some(code), "{arguments}: {}", refused.err);
        assert!(refused.err.contains(words), "{arguments}: {}", refused.err);
    }
}

// Claim: `scenario schema` prints the published schema; built-in scenarios can be listed, shown, copied and checked.
// Tests: `scenario::the_built_in_scenarios_are_listed_shown_copied_and_can_be_run`
fn the_schema_is_the_published_one() {
    let place = Place::new("scenario-schema");
    let published = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/schema/scenario.schema.json");
    let printed = place.run("scenario schema").well();
    // As values: in which order objects are written is up to the features that serde_json is built with.
    let published: serde_json::Value = serde_json::from_str(&fs::read_to_string(published).unwrap()).unwrap();
    assert_eq!(printed.json(), published);
    assert!(printed.json()["properties"]["link"].is_object());
}

fn the_built_in_scenarios_are_listed_shown_copied_and_can_be_run() {
    let place = Place::new("scenario-list");
    let printed = place.run("scenario list --json").well().json();
    let names: Vec<&str> = printed.as_array().unwrap().iter().map(|listed| listed["name"].as_str().unwrap()).collect();
    assert_eq!(
        names,
        [
            "train-tunnel",
            "elevator",
            "cell-edge-ping-pong",
            "office-move",
            "satellite-pass",
            "switch-port",
            "access-point",
            "backup-path",
            "base-stations",
            "supervisors",
            "gateway",
            "lte-trace"
        ]
    );
    let text = place.run("scenario list").well().out;
    for name in names {
        assert!(text.contains(name), "{text}");
        place.run(&format!("scenario check {name}")).well();
        place.run(&format!("scenario copy {name} mine")).well();
        // The copy, with its traces, is whole.
        place.run(&format!("scenario check mine/{name}.toml")).well();
        let shown = place.run(&format!("scenario show {name}")).well().out;
        assert_eq!(shown, fs::read_to_string(place.path(&format!("mine/{name}.toml"))).unwrap());
        // A file that is there is never written over.
        let again = place.run(&format!("scenario copy {name} mine"));
        assert!(again.code != Some(0) && again.err.contains("error:"), "{again:?}");
    }
    let error = place.run("scenario show nothing").refused();
    assert!(error.contains("train-tunnel"), "{error}");
}

// Claim: Single and double brackets of one name, and a trace that begins with a byte order mark.
// Tests: `scenario::a_trace_may_begin_with_a_byte_order_mark`
fn single_and_double_brackets_of_one_name_differ() {
    let place = Place::with_scenario("scenario-brackets", &SCENARIO.replacen("[[host]]", "[host]", 1));
    let error = place.run("scenario check short.toml").refused();
    assert!(error.contains("short.toml:5:2"), "{error}");
    assert!(
        error.contains("host stands in single and in double brackets") && error.contains("line 8 has [[host]]"),
        "{error}"
    );
}

fn a_trace_may_begin_with_a_byte_order_mark() {
    let (before, after) = SCENARIO.split_once("rate = ").unwrap();
    let (_, after) = after.split_once("loss = ").unwrap();
    let link = "queue_limit = \"40 packets\"\ntrace = \"radio.csv\"\nloss = ";
    let place = Place::with_scenario("scenario-bom", &format!("{before}{link}{after}"));
    place.write("radio.csv", "\u{feff}t,rate,delay\n0,4 Mbit/s,15 ms\n10,2 Mbit/s,15 ms\n");
    let checked = place.run("scenario check short.toml");
    assert!(!checked.err.contains("unknown column"), "{}", checked.err);
    checked.well();
}

fn check_warns_of_a_black_hole() {
    let place = Place::with_scenario("scenario-black-hole", SCENARIO);
    place.run("scenario copy backup-path .").well();
    let ended = place.run("scenario check backup-path.toml").well();
    // One for each direction of the flow, in the variant whose routers do not follow links.
    let warnings: Vec<&str> = ended.err.lines().filter(|line| line.starts_with("warning: ")).collect();
    assert_eq!(warnings.len(), 2, "{}", ended.err);
    assert!(
        warnings.iter().all(|warning| warning.contains("variant static") && warning.contains("\"fibre\"")),
        "{warnings:?}"
    );
    let printed = place.run("scenario check backup-path.toml --json").well().json();
    assert_eq!(printed["scenario"]["warnings"].as_array().map(Vec::len), Some(2), "{printed}");
    let printed = place.run("scenario check short.toml --json").well().json();
    assert_eq!(printed["scenario"]["warnings"].as_array().map(Vec::len), Some(0), "{printed}");
}
