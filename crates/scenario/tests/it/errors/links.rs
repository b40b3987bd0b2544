//! Errors of links, their traces, cells and routes.

use holdover_scenario::{ErrorKind, Files, NoFiles, Scenario, ScenarioError, Style};

use super::{GOOD, error_of, extended, place, spoilt};

/// A directory with one trace.
#[derive(Debug)]
struct OneTrace(&'static str);

impl Files for OneTrace {
    fn read(&self, name: &str) -> Result<String, String> {
        if name.starts_with("there") { Ok(self.0.to_owned()) } else { Err("no such file".to_owned()) }
    }
}

fn trace_error(trace: &'static str, line: &str) -> ScenarioError {
    let text = GOOD.replace("rate = \"2 Mbit/s\"", line);
    Scenario::parse("test.toml", &text, OneTrace(trace)).map(drop).unwrap_err()
}

#[test]
fn traces_that_cannot_be_read_or_are_cut_off() {
    let error = trace_error("", "trace = \"nowhere\"");
    assert_eq!(place(&error), (ErrorKind::Unreadable, 16, 9, "link.radio.trace.file"));
    assert!(error.message.contains("nowhere") && error.message.contains("no such file"), "{error}");

    let error = trace_error("1\n2\n3", "trace = \"there\"");
    assert_eq!((error.kind, error.location.file.as_str(), error.location.line), (ErrorKind::BadTrace, "there", 3));
    assert_eq!(error.named_at.as_ref().map(|at| (at.file.as_str(), at.line)), Some(("test.toml", 16)));
    assert!(error.message.contains("cut off"), "{error}");
    let report = error.report(Style::Plain);
    assert!(report.contains("3 | 3") && report.contains("16 | trace = \"there\""), "{report}");

    let error = trace_error("t,rate\n0,1 Mbit/s\n1,fast\n", "backward = { trace = { file = \"there.csv\" } }");
    assert_eq!((error.kind, error.location.line), (ErrorKind::BadTrace, 3), "{error}");
    assert_eq!(error.field, "link.radio.backward.trace.file");

    let error = trace_error("", "trace = \"there\"");
    assert_eq!((error.kind, error.location.line), (ErrorKind::BadTrace, 0), "{error}");
}

#[test]
fn a_trace_and_a_field_that_say_the_same() {
    let error = trace_error("1\n2\n", "rate = \"1 Mbit/s\"\ntrace = \"there\"");
    assert_eq!(place(&error), (ErrorKind::Conflict, 16, 8, "link.radio.rate"));
    let error = trace_error("t,rate\n0,1\n1,2\n", "rate = \"1 Mbit/s\"\ntrace = \"there.csv\"");
    assert_eq!(place(&error), (ErrorKind::Conflict, 16, 8, "link.radio.rate"));
    let error = trace_error("t,delay\n0,1 ms\n1,2 ms\n", "trace = \"there.csv\"");
    assert_eq!((error.kind, error.field.as_str()), (ErrorKind::Conflict, "link.radio.delay"));
    let error = trace_error("t,up\n0,1\n1,0\n2,1\n", "trace = \"there.csv\"\noutages = { list = [{ at = \"1 s\" }] }");
    assert_eq!(error.kind, ErrorKind::Conflict, "{error}");
}

const MOVING: &str = r#"
[[host]]
name = "phone"
[[host]]
name = "server"
[[router]]
name = "core"
[[router]]
name = "tower"
[[link]]
name = "cable"
between = ["core", "tower"]
[[link]]
name = "internet"
between = ["core", "server"]
[[cell]]
name = "north"
base = "tower"
range = "100 m"
[[mobile]]
host = "phone"
path = { stops = [{ x = "0 m" }, { x = "200 m" }], speed = "10 m/s" }
registration = { gateway = "core" }
[[flow]]
name = "download"
from = "server"
to = "phone"
bulk = "1 MB"
"#;

#[test]
fn cells_and_mobile_hosts_that_make_no_sense() {
    assert!(Scenario::parse("test.toml", MOVING, NoFiles).is_ok());
    for (from, to, kind, line, field) in [
        ("base = \"tower\"", "base = \"phone\"", ErrorKind::BadValue, 18, "cell.north.base"),
        ("base = \"tower\"", "base = \"towr\"", ErrorKind::UnknownName, 18, "cell.north.base"),
        ("range = \"100 m\"", "range = \"0 m\"", ErrorKind::BadValue, 19, "cell.north.range"),
        ("range = \"100 m\"", "range = \"-5 m\"", ErrorKind::BadValue, 19, "cell.north.range"),
        ("range = \"100 m\"", "range = \"100\"", ErrorKind::BadValue, 19, "cell.north.range"),
        ("x = \"0 m\"", "x = \"500 m\"", ErrorKind::Unreachable, 22, "mobile.phone.path"),
        ("host = \"phone\"", "host = \"server\"", ErrorKind::Conflict, 21, "mobile.server.host"),
        ("gateway = \"core\"", "gateway = \"server\"", ErrorKind::BadValue, 23, "mobile.phone.registration.gateway"),
        (
            "range = \"100 m\"",
            "range = \"100 m\"\nbeacons = \"none\"",
            ErrorKind::Conflict,
            24,
            "mobile.phone.registration",
        ),
        ("speed = \"10 m/s\"", "speed = \"0 m/s\"", ErrorKind::BadValue, 22, "mobile.phone.path.speed"),
        (
            "registration = { gateway = \"core\" }",
            "registration = { gateway = \"core\" }\nhandoff_time = \"1 s\"",
            ErrorKind::Conflict,
            24,
            "mobile.phone.handoff_time",
        ),
        ("registration = { gateway = \"core\" }\n", "", ErrorKind::MissingField, 20, "mobile.phone"),
        (
            "path = { stops = [{ x = \"0 m\" }, { x = \"200 m\" }], speed = \"10 m/s\" }",
            "visits = { cells = [\"south\"], residence = \"1 s\" }",
            ErrorKind::UnknownName,
            22,
            "mobile.phone.visits.cells.0",
        ),
        (
            "path = { stops = [{ x = \"0 m\" }, { x = \"200 m\" }], speed = \"10 m/s\" }",
            "script = [{ at = \"1 s\", cell = \"north\" }, { at = \"1 s\", cell = \"none\" }]",
            ErrorKind::BadValue,
            22,
            "mobile.phone.script.1.at",
        ),
        (
            "path = { stops = [{ x = \"0 m\" }, { x = \"200 m\" }], speed = \"10 m/s\" }",
            "script = [{ at = \"1 s\", cell = \"north\" }]\nprediction = { margin = \"5 %\" }",
            ErrorKind::Conflict,
            23,
            "mobile.phone.prediction.margin",
        ),
    ] {
        assert_eq!(MOVING.matches(from).count(), 1, "{from}");
        let error = error_of(&MOVING.replace(from, to));
        assert_eq!((error.kind, error.location.line, error.field.as_str()), (kind, line, field), "{error}");
    }
}

/// Settings of links with a second layer are rejected on other links, and invalid values on all.
#[test]
fn a_second_layer_is_where_it_can_be() {
    let radio = "rate = \"2 Mbit/s\"";
    let with = |more: &str| spoilt(radio, &format!("{radio}\n{more}"));
    for (more, line, field, message) in [
        ("forwards_after = \"1 s\"", 17, "link.radio.forwards_after", "no second layer"),
        ("nat = true", 17, "link.radio.nat", "no second layer"),
        ("slaac = true", 17, "link.radio.slaac", "no second layer"),
        ("kind = \"raw-ip\"\nslaac = true", 18, "link.radio.slaac", "only sent on an \"ethernet\""),
        ("outages = { list = [], layer2 = \"carrier\" }", 17, "link.radio.outages.layer2", "no second layer"),
        ("outages = { list = [], family = \"ipv4\" }", 17, "link.radio.outages.family", "no second layer"),
        ("outages = { list = [], addresses = \"lost\" }", 17, "link.radio.outages.addresses", "no second layer"),
        ("kind = \"ethernet\"\nforwards_after = \"31 s\"", 18, "link.radio.forwards_after", "at most 30s"),
        (
            "kind = \"ethernet\"\noutages = { list = [], layer2 = \"carrier\", family = \"ipv6\" }",
            18,
            "link.radio.outages.family",
            "takes both families",
        ),
        (
            "kind = \"raw-ip\"\noutages = { list = [], addresses_after = \"1 s\" }",
            18,
            "link.radio.outages.addresses_after",
            "\"lost\" or \"renewed\"",
        ),
    ] {
        let error = with(more);
        assert_eq!((error.location.line, error.field.as_str()), (line, field), "{error}");
        assert!(error.to_string().contains(message), "{error}");
    }
    let error = spoilt("between = [\"client\", \"middle\"]", "between = [\"client\", \"server\"]\nkind = \"ethernet\"");
    assert_eq!((error.location.line, error.field.as_str()), (16, "link.radio.kind"), "{error}");
    assert!(error.to_string().contains("between a host and a router"), "{error}");
}

#[test]
fn routes_lead_by_own_links_to_nodes_that_stay() {
    let route = |to: &str, link: &str| {
        let routes = format!("name = \"middle\"\nroutes = [{{ to = \"{to}\", link = \"{link}\" }}]");
        GOOD.replace("name = \"middle\"", &routes)
    };
    assert!(Scenario::parse("test.toml", &route("server", "cable"), NoFiles).is_ok());
    let error = error_of(&route("sever", "cable"));
    assert_eq!((error.kind, &*error.field), (ErrorKind::UnknownName, "router.middle.routes.0.to"));
    assert_eq!(error.did_you_mean.as_deref(), Some("server"));
    let error = error_of(&route("server", "radoi"));
    assert_eq!((error.kind, &*error.field), (ErrorKind::UnknownName, "router.middle.routes.0.link"));
    let error = error_of(&route("default", "cable"));
    assert_eq!((error.kind, &*error.field), (ErrorKind::Conflict, "router.middle.routes.0.link"));
    let error = extended("\n[routing]\ndetection = \"none\"\nrecovery = \"1 s\"\n");
    assert_eq!((error.kind, &*error.field), (ErrorKind::Conflict, "routing.recovery"));
}

#[test]
fn an_mtu_is_long_enough_for_every_host() {
    let radio = "rate = \"2 Mbit/s\"";
    let with = |more: &str| GOOD.replace(radio, &format!("{radio}\n{more}"));
    for good in ["mtu = \"576 bytes\"", "mtu = \"1400 B\"\nmtu_errors = false"] {
        assert!(Scenario::parse("test.toml", &with(good), NoFiles).is_ok(), "{good}");
    }
    for (bad, kind, line, field, message) in [
        ("mtu = 1400", ErrorKind::WrongType, 17, "link.radio.mtu", "unit"),
        ("mtu = \"575 bytes\"", ErrorKind::BadValue, 17, "link.radio.mtu", "576 to 65535 bytes"),
        ("mtu = \"1 MB\"", ErrorKind::BadValue, 17, "link.radio.mtu", "576 to 65535 bytes"),
        ("mtu_errors = false", ErrorKind::Conflict, 17, "link.radio.mtu_errors", "only used with \"mtu\""),
    ] {
        let error = error_of(&with(bad));
        assert_eq!((error.kind, error.location.line, &*error.field), (kind, line, field), "{error}");
        assert!(error.to_string().contains(message), "{error}");
    }
    let ipv6 = with("mtu = \"1279 bytes\"").replace("bulk = \"1 MB\"", "bulk = \"1 MB\"\nipv6 = true");
    let error = error_of(&ipv6);
    assert_eq!((error.kind, &*error.field), (ErrorKind::BadValue, "link.radio.mtu"), "{error}");
    assert!(error.to_string().contains("1280"), "{error}");
    let identity = with("mtu = \"1400 bytes\"").replace("name = \"client\"", "name = \"client\"\nidentity = {}");
    let error = error_of(&identity);
    assert_eq!((error.kind, &*error.field), (ErrorKind::Conflict, "link.radio.mtu"), "{error}");
}

#[test]
fn mtu_probing_has_sizes_of_segments() {
    for (bad, field) in [
        ("\"sometimes\"", "stack.mtu_probing"),
        ("{ base_mss = \"47 bytes\" }", "stack.mtu_probing.base_mss"),
        ("{ floor_mss = \"1 MB\" }", "stack.mtu_probing.floor_mss"),
        ("{ threshold = \"0 bytes\" }", "stack.mtu_probing.threshold"),
    ] {
        let text = GOOD.replace("time_limit", &format!("stack = {{ mtu_probing = {bad} }}\ntime_limit"));
        let error = error_of(&text);
        assert_eq!((error.kind, error.location.line, &*error.field), (ErrorKind::BadValue, 2, field), "{error}");
    }
}

#[test]
fn compression_makes_something_shorter() {
    let with = |table: &str| GOOD.replace("delay = \"25 ms\"", &format!("delay = \"25 ms\"\ncompression = {table}"));
    for good in ["{ tcp = \"40 %\" }", "{ udp = \"0 %\", header = \"10 bytes\" }", "{ other = \"99.5 %\" }"] {
        assert!(Scenario::parse("test.toml", &with(good), NoFiles).is_ok(), "{good}");
    }
    for (bad, kind, field) in [
        ("{}", ErrorKind::Conflict, "link.radio.compression"),
        ("{ tcp = \"100 %\", header = \"4 bytes\" }", ErrorKind::Conflict, "link.radio.compression"),
        ("{ tcp = \"101 %\" }", ErrorKind::BadValue, "link.radio.compression.tcp"),
        ("{ tcp = \"40 %\", header = \"64 KiB\" }", ErrorKind::BadValue, "link.radio.compression.header"),
        ("{ icmp = \"40 %\" }", ErrorKind::UnknownField, "link.radio.compression.icmp"),
    ] {
        let error = error_of(&with(bad));
        assert_eq!((error.kind, &*error.field), (kind, field), "{bad}");
    }
}

#[test]
fn bit_errors_are_a_rate_or_two_states() {
    let with = |errors: &str| GOOD.replace("delay = \"25 ms\"", &format!("delay = \"25 ms\"\nbit_errors = {errors}"));
    for good in [
        "0",
        "1e-6",
        "{ bad = 1e-3, good_for = \"4 s\", bad_for = \"100 ms\" }",
        "{ bad = 1, good_bits = 1e6, bad_bits = 1e4 }",
    ] {
        assert!(Scenario::parse("test.toml", &with(good), NoFiles).is_ok(), "{good}");
    }
    for (bad, kind, field) in [
        ("2", ErrorKind::BadValue, "link.radio.bit_errors"),
        ("\"1 %\"", ErrorKind::WrongType, "link.radio.bit_errors"),
        ("{ bad = -1e-9, good_for = \"4 s\", bad_for = \"1 s\" }", ErrorKind::BadValue, "link.radio.bit_errors.bad"),
        ("{ bad = 1e-3, good_for = \"4 s\" }", ErrorKind::MissingField, "link.radio.bit_errors"),
        ("{ bad = 1e-3 }", ErrorKind::MissingField, "link.radio.bit_errors"),
        (
            "{ bad = 1e-3, good_for = \"0 s\", bad_for = \"1 s\" }",
            ErrorKind::BadValue,
            "link.radio.bit_errors.good_for",
        ),
        ("{ bad = 1e-3, good_bits = 0, bad_bits = 1 }", ErrorKind::BadValue, "link.radio.bit_errors.good_bits"),
        ("{ bad = 1e-3, good_for = \"4 s\", bad_bits = 1 }", ErrorKind::Conflict, "link.radio.bit_errors"),
    ] {
        let error = error_of(&with(bad));
        assert_eq!((error.kind, &*error.field), (kind, field), "{bad}");
    }
}
