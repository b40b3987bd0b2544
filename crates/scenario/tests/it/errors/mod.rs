//! Every kind of problem is one error with its position, the value found and the accepted values.

mod idle;
mod links;
mod mechanisms;

use holdover_scenario::{ErrorKind, NoFiles, Override, Scenario, ScenarioError, Style};

/// A valid scenario; the tests change one line of it.
const GOOD: &str = r#"title = "Two hosts"
time_limit = "30 s"

[[host]]
name = "client"

[[host]]
name = "server"

[[router]]
name = "middle"

[[link]]
name = "radio"
between = ["client", "middle"]
rate = "2 Mbit/s"
delay = "25 ms"
queue_limit = "75 packets"

[[link]]
name = "cable"
between = ["middle", "server"]
delay = "5 ms"

[[flow]]
name = "download"
from = "server"
to = "client"
opener = "client"
bulk = "1 MB"
"#;

fn error_of(text: &str) -> ScenarioError {
    match Scenario::parse("test.toml", text, NoFiles) {
        Err(error) => error,
        Ok(_) => panic!("this was accepted:\n{text}"),
    }
}

/// The error of [`GOOD`] with `from` replaced by `to`.
fn spoilt(from: &str, to: &str) -> ScenarioError {
    assert_eq!(GOOD.matches(from).count(), 1, "{from}");
    error_of(&GOOD.replace(from, to))
}

/// [`GOOD`] with more lines for its client, its server, its router and its radio.
fn changed(client: &str, server: &str, router: &str, radio: &str) -> String {
    GOOD.replace("name = \"client\"\n", &format!("name = \"client\"\n{client}\n"))
        .replace("name = \"server\"\n", &format!("name = \"server\"\n{server}\n"))
        .replace("name = \"middle\"\n", &format!("name = \"middle\"\n{router}\n"))
        .replace("name = \"radio\"\n", &format!("name = \"radio\"\n{radio}\n"))
}

/// The error of [`GOOD`] with more lines at its end.
fn extended(more: &str) -> ScenarioError {
    error_of(&format!("{GOOD}{more}"))
}

/// The kind and position of an error.
fn place(error: &ScenarioError) -> (ErrorKind, usize, usize, &str) {
    assert_eq!(error.location.file, "test.toml", "{error}");
    (error.kind, error.location.line, error.location.column, &error.field)
}

#[test]
fn the_scenario_that_the_tests_spoil_is_whole() {
    let scenario = Scenario::parse("test.toml", GOOD, NoFiles).unwrap();
    assert_eq!(scenario.title(), "Two hosts");
    assert_eq!(scenario.variants().len(), 1);
}

#[test]
fn a_text_that_is_no_toml() {
    let error = spoilt("\"Two hosts\"", "\"Two hosts");
    assert_eq!((error.kind, error.location.line), (ErrorKind::Syntax, 1), "{error}");
    let error = extended("seed = 99999999999999999999\n");
    assert_eq!((error.kind, error.location.line), (ErrorKind::Syntax, 31), "{error}");
    let error = spoilt("time_limit = \"30 s\"", "title = \"again\"");
    assert_eq!((error.kind, error.location.line), (ErrorKind::Syntax, 2), "{error}");
}

#[test]
fn single_and_double_brackets_of_one_name() {
    let first = error_of(&GOOD.replacen("[[host]]", "  [host] # one of two", 1));
    assert_eq!(place(&first), (ErrorKind::Syntax, 4, 4, ""), "{first}");
    assert!(first.message.contains("line 7 has [[host]]"), "{first}");
    let at = GOOD.rfind("[[host]]").unwrap();
    let second = error_of(&format!("{}{}", &GOOD[..at], GOOD[at..].replacen("[[host]]", "[host]", 1)));
    assert_eq!(place(&second), (ErrorKind::Syntax, 7, 2, ""), "{second}");
    assert!(second.message.contains("line 4 has [[host]]"), "{second}");
    // Twice in single brackets is a duplicate like others.
    let both = error_of(&GOOD.replace("[[host]]", "[host]"));
    assert_eq!(place(&both), (ErrorKind::Syntax, 7, 2, ""), "{both}");
    assert!(!both.message.contains("double brackets"), "{both}");
}

#[test]
fn a_field_that_does_not_exist() {
    let error = spoilt("delay = \"25 ms\"", "dealy = \"25 ms\"");
    assert_eq!(place(&error), (ErrorKind::UnknownField, 17, 1, "link.radio.dealy"));
    assert_eq!(error.did_you_mean.as_deref(), Some("delay"));
    assert!(error.accepted.as_ref().is_some_and(|accepted| accepted.contains("\"queue_limit\"")), "{error}");
    let error = spoilt("rate = \"2 Mbit/s\"", "bandwidth = \"2 Mbit/s\"");
    assert_eq!(error.did_you_mean.as_deref(), Some("rate"));
    let error = spoilt("bulk = \"1 MB\"", "bulk = \"1 MB\"\nstack = { rto = { minimum = \"1 s\" } }");
    assert_eq!(place(&error), (ErrorKind::UnknownField, 31, 19, "flow.download.stack.rto.minimum"));
}

#[test]
fn a_field_that_is_missing() {
    let error = spoilt("between = [\"client\", \"middle\"]\n", "");
    assert_eq!(place(&error), (ErrorKind::MissingField, 13, 1, "link.radio"));
    assert!(error.message.contains("\"between\""), "{error}");
    let error = spoilt("bulk = \"1 MB\"\n", "");
    assert_eq!(place(&error), (ErrorKind::Conflict, 29, 10, "flow.download.opener"));
    let error = spoilt("opener = \"client\"\nbulk = \"1 MB\"\n", "");
    assert_eq!((error.kind, error.location.line), (ErrorKind::MissingField, 25), "{error}");
    assert!(error.message.contains("\"request_response\""), "{error}");
    let start = GOOD.find("[[flow]]").unwrap();
    assert_eq!(error_of(&GOOD[..start]).kind, ErrorKind::MissingField);
}

#[test]
fn a_value_of_the_wrong_type_names_the_expected_type() {
    let error = spoilt("delay = \"25 ms\"", "delay = 25");
    assert_eq!(place(&error), (ErrorKind::WrongType, 17, 9, "link.radio.delay"));
    assert_eq!(error.found.as_deref(), Some("the number 25"));
    assert!(error.accepted.as_ref().is_some_and(|accepted| accepted.contains("\"25 ms\"")), "{error}");
    for (from, to, line) in [
        ("[[host]]\nname = \"client\"", "[[host]]\nname = 5", 5),
        ("between = [\"client\", \"middle\"]", "between = \"client\"", 15),
        ("between = [\"client\", \"middle\"]", "between = [\"client\"]", 15),
        ("queue_limit = \"75 packets\"", "queue_limit = 75", 18),
        ("queue_limit = \"75 packets\"", "loss = 0.02", 18),
        ("queue_limit = \"75 packets\"", "outages = \"sometimes\"", 18),
        ("title = \"Two hosts\"", "title = 2026-01-01", 1),
        ("title = \"Two hosts\"", "seed = -1", 1),
        ("title = \"Two hosts\"", "stack = 6", 1),
    ] {
        let error = spoilt(from, to);
        assert_eq!(error.location.line, line, "{error}");
        assert!(matches!(error.kind, ErrorKind::WrongType | ErrorKind::BadValue), "{error:?}");
    }
}

#[test]
fn a_negative_rate_and_other_impossible_values() {
    let error = spoilt("rate = \"2 Mbit/s\"", "rate = \"-2 Mbit/s\"");
    assert_eq!(place(&error), (ErrorKind::BadValue, 16, 8, "link.radio.rate"));
    assert!(error.accepted.as_ref().is_some_and(|accepted| accepted.contains("above 0")), "{error}");
    for (to, field) in [
        ("rate = \"2 Mb\"", "link.radio.rate"),
        ("loss = \"101 %\"", "link.radio.loss"),
        ("jitter = { amplitude = \"1 ms\", distribution = \"pareto\" }", "link.radio.jitter.distribution"),
        ("overhead = \"70000 bytes\"", "link.radio.overhead"),
        ("outages = { connected = \"0 s\", disconnected = \"1 s\" }", "link.radio.outages.connected"),
        ("outages = { list = [{ at = \"2 s\", for = \"0 s\" }] }", "link.radio.outages.list.0.for"),
        ("outages = { list = [{ at = \"2 s\", until = \"2 s\" }] }", "link.radio.outages.list.0.until"),
        ("outages = { list = [{ at = \"2 s\" }, { at = \"3 s\" }] }", "link.radio.outages.list.1.at"),
        ("outages = { list = [{ at = \"2 s\", for = \"2 s\" }, { at = \"3 s\" }] }", "link.radio.outages.list.1.at"),
        (
            "outages = { connected = { distribution = \"uniform\", min = \"2 s\", max = \"1 s\" }, disconnected = \"1 s\" }",
            "link.radio.outages.connected.max",
        ),
    ] {
        let error = spoilt("rate = \"2 Mbit/s\"", to);
        assert_eq!(
            (error.kind, error.location.line, error.field.as_str()),
            (ErrorKind::BadValue, 16, field),
            "{error}"
        );
    }
    for (to, field) in [
        ("bulk = \"0 MB\"", "flow.download.bulk"),
        ("bulk = \"1 MB\"\ncount = 0", "flow.download.count"),
        ("bulk = \"1 MB\"\ncount = 70000", "flow.download.count"),
        ("bulk = \"1 MB\"\nstack = \"linux-7\"", "flow.download.stack"),
        ("bulk = \"1 MB\"\nstack = { mss = \"10 bytes\" }", "flow.download.stack.mss"),
        ("bulk = \"1 MB\"\nstack = { window_scale = 15 }", "flow.download.stack.window_scale"),
        ("bulk = \"1 MB\"\nto_stack = { receive = { buffer = \"2 GiB\" } }", "flow.download.to_stack.receive.buffer"),
        (
            "bulk = \"1 MB\"\nstack = { recovery = { dup_ack_threshold = 0 } }",
            "flow.download.stack.recovery.dup_ack_threshold",
        ),
        ("bulk = \"1 MB\"\nopener = \"middle\"", "flow.download.opener"),
    ] {
        let error = error_of(&GOOD.replace("opener = \"client\"\n", "").replace("bulk = \"1 MB\"", to));
        assert_eq!((error.kind, error.field.as_str()), (ErrorKind::BadValue, field), "{error}");
    }
}

#[test]
fn an_unknown_profile_lists_the_known_ones() {
    let error = spoilt("name = \"server\"", "name = \"server\"\nstack = \"linux-6-cubik\"");
    assert_eq!(place(&error), (ErrorKind::BadValue, 9, 9, "host.server.stack"));
    assert_eq!(error.did_you_mean.as_deref(), Some("linux-6-cubic"));
    for profile in holdover_tcp::Profile::ALL {
        assert!(error.message.contains(profile.name()), "{error}");
    }
}

#[test]
fn names_that_nothing_has() {
    let error = spoilt("between = [\"middle\", \"server\"]", "between = [\"middle\", \"servr\"]");
    assert_eq!(place(&error), (ErrorKind::UnknownName, 22, 22, "link.cable.between.1"));
    assert_eq!(error.did_you_mean.as_deref(), Some("server"));
    let error = spoilt("from = \"server\"", "from = \"sever\"");
    assert_eq!(place(&error), (ErrorKind::UnknownName, 27, 8, "flow.download.from"));
    assert!(!error.message.contains("middle"), "a router is no end of a flow: {error}");
    let error = extended("[output]\ncaptures = [\"client\", \"nobody\"]\n");
    assert_eq!(place(&error), (ErrorKind::UnknownName, 32, 23, "output.captures.1"));
    let error = extended("[sweep]\nreplicate = { of = { metric = \"goodput\", flow = \"upload\" } }\n");
    assert_eq!(place(&error), (ErrorKind::UnknownName, 32, 49, "sweep.replicate.of.flow"));
    let error = extended("[sweep]\ncompare = { baseline = \"a\" }\n");
    assert_eq!(place(&error), (ErrorKind::UnknownName, 32, 24, "sweep.compare.baseline"));
}

#[test]
fn names_that_are_given_twice_or_are_none() {
    let error = spoilt("name = \"server\"", "name = \"client\"");
    assert_eq!(place(&error), (ErrorKind::Duplicate, 8, 8, "host.client.name"));
    let error = spoilt("name = \"middle\"", "name = \"client\"");
    assert_eq!(place(&error), (ErrorKind::Duplicate, 11, 8, "router.client.name"));
    let error = spoilt("name = \"cable\"", "name = \"radio\"");
    assert_eq!(place(&error), (ErrorKind::Duplicate, 21, 8, "link.radio.name"));
    let flow = "[[flow]]\nname = \"download\"\nfrom = \"client\"\nto = \"server\"\nbulk = \"1 s\"\n";
    assert_eq!(place(&extended(flow)), (ErrorKind::Duplicate, 32, 8, "flow.download.name"));
    let flows = flow.replace("download", "x-1") + &flow.replace("download", "x").replace("bulk", "count = 2\nbulk");
    assert_eq!(extended(&flows).kind, ErrorKind::Duplicate, "a flow with a count makes names of its own");
    let error = extended("[[variant]]\nname = \"a\"\n[[variant]]\nname = \"a\"\n");
    assert_eq!(place(&error), (ErrorKind::Duplicate, 34, 8, "variant.a.name"));
    for bad in ["", "a b", "../x", "größe", ".hidden"] {
        let error = spoilt("name = \"cable\"", &format!("name = \"{bad}\""));
        assert_eq!((error.kind, error.location.line), (ErrorKind::BadValue, 21), "{error}");
    }
}

#[test]
fn fields_that_exclude_each_other() {
    for (to, field) in [
        ("outages = { list = [], connected = \"1 s\", disconnected = \"1 s\" }", "link.radio.outages.list"),
        ("outages = { list = [], count = 3 }", "link.radio.outages.count"),
        ("outages = { first_at = \"3 s\" }", "link.radio.outages.first_at"),
        ("outages = { list = [{ at = \"1 s\", for = \"1 s\", until = \"2 s\" }] }", "link.radio.outages.list.0.until"),
        (
            "outages = { connected = { distribution = \"normal\", mean = \"1 s\", deviation = \"1 s\", min = \"1 s\" }, disconnected = \"1 s\" }",
            "link.radio.outages.connected.min",
        ),
    ] {
        let error = spoilt("queue_limit = \"75 packets\"", to);
        assert_eq!(place(&error).0, ErrorKind::Conflict, "{error}");
        assert_eq!((error.location.line, error.field.as_str()), (18, field), "{error}");
    }
    let error = spoilt("bulk = \"1 MB\"", "bulk = \"1 MB\"\nstack = { rto = { min = \"3 min\" } }");
    assert_eq!(place(&error), (ErrorKind::Conflict, 31, 25, "flow.download.stack.rto.min"));
    let error = spoilt(
        "bulk = \"1 MB\"",
        "bulk = \"1 MB\"\nstack = { receive = { ack = { policy = \"immediate\", delay = \"1 s\" } } }",
    );
    assert_eq!(error.kind, ErrorKind::Conflict, "{error}");
    let error =
        spoilt("bulk = \"1 MB\"", "bulk = \"1 MB\"\nrequest_response = { request = \"1 B\", response = \"1 B\" }");
    assert_eq!(error.kind, ErrorKind::Conflict, "{error}");
    let error = spoilt("bulk = \"1 MB\"", "bulk = \"1 MB\"\nstart = \"30 s\"");
    assert_eq!(place(&error), (ErrorKind::Conflict, 31, 9, "flow.download.start"));
    let error = spoilt("bulk = \"1 MB\"", "bulk = \"1 MB\"\ncount = 4\nspacing = \"10 s\"");
    assert_eq!(place(&error), (ErrorKind::Conflict, 32, 11, "flow.download.spacing"));
}

#[test]
fn invalid_identities_are_refused() {
    for (identity, kind, field) in [
        ("{ esp = \"rot13\" }", ErrorKind::BadValue, "host.client.identity.esp"),
        ("{ associate = \"never\" }", ErrorKind::BadValue, "host.client.identity.associate"),
        ("{ retransmit_after = \"0 s\" }", ErrorKind::BadValue, "host.client.identity.retransmit_after"),
        ("{ overhead = \"44 bytes\" }", ErrorKind::UnknownField, "host.client.identity.overhead"),
    ] {
        let error = spoilt("name = \"client\"", &format!("name = \"client\"\nidentity = {identity}"));
        assert_eq!((error.kind, error.field.as_str()), (kind, field), "{error}");
    }
}

#[test]
fn unreachable_hosts_are_refused() {
    let error = spoilt("[[router]]", "[[host]]\nname = \"island\"\n\n[[router]]");
    assert_eq!(place(&error), (ErrorKind::Unreachable, 11, 8, "host.island.name"));
    let error = spoilt("between = [\"middle\", \"server\"]", "between = [\"far\", \"server\"]");
    assert_eq!(error.kind, ErrorKind::UnknownName);
    let split = GOOD
        .replace("[[router]]\nname = \"middle\"", "[[router]]\nname = \"middle\"\n[[router]]\nname = \"far\"")
        .replace("between = [\"middle\", \"server\"]", "between = [\"far\", \"server\"]");
    let error = error_of(&split);
    assert_eq!((error.kind, error.field.as_str()), (ErrorKind::Unreachable, "flow.download.to"), "{error}");
    assert!(error.message.contains("\"server\"") && error.message.contains("\"client\""), "{error}");
    // Hosts do not forward.
    let through_a_host = GOOD.replace("[[router]]", "[[host]]");
    assert_eq!(error_of(&through_a_host).kind, ErrorKind::Unreachable);
}

#[test]
fn a_variant_that_is_wrong_says_so() {
    let error = extended("[[variant]]\nname = \"fast\"\nset = { \"link.radoi.rate\" = \"9 Mbit/s\" }\n");
    assert_eq!((error.kind, error.location.line, error.location.column), (ErrorKind::NoSuchPath, 33, 9), "{error}");
    assert_eq!(error.did_you_mean.as_deref(), Some("radio"));
    assert_eq!(error.context.as_deref(), Some("variant \"fast\""));
    let error = extended("[[variant]]\nname = \"fast\"\nset = { \"link.radio.rat\" = \"9 Mbit/s\" }\n");
    assert_eq!((error.kind, error.location.line, error.location.column), (ErrorKind::UnknownField, 33, 9), "{error}");
    let error = extended("[[variant]]\nname = \"fast\"\nset = { \"link.radio.rate\" = \"fast\" }\n");
    assert_eq!((error.kind, error.location.line, error.location.column), (ErrorKind::BadValue, 33, 29), "{error}");
    assert_eq!(error.context.as_deref(), Some("variant \"fast\""));
    for path in ["cell.x.range", "seed", "link.5.rate", "link.*.rate.x", "title.x", "", "link..rate", "variant.0.name"]
    {
        let error = extended(&format!("[[variant]]\nname = \"a\"\nset = {{ \"{path}\" = 1 }}\n"));
        assert_eq!((error.kind, error.location.line), (ErrorKind::NoSuchPath, 33), "{path}: {error}");
    }
}

#[test]
fn a_sweep_that_names_nothing_or_goes_nowhere() {
    let axis = |axis: &str| extended(&format!("[[sweep.axis]]\n{axis}\n"));
    let error = axis("path = \"link.radio.rat\"\nvalues = [\"1 Mbit/s\"]");
    assert_eq!((error.kind, error.location.line, error.location.column), (ErrorKind::UnknownField, 32, 8), "{error}");
    let error = axis("path = \"flow.upload.bulk\"\nvalues = [\"1 MB\"]");
    assert_eq!(place(&error), (ErrorKind::NoSuchPath, 32, 8, "sweep.axis.0.path"));
    let error = axis("path = \"link.radio.rate\"\nvalues = [\"1 Mbit/s\", \"fast\"]");
    assert_eq!(place(&error), (ErrorKind::BadValue, 33, 23, "link.radio.rate"));
    assert!(error.context.as_ref().is_some_and(|context| context.contains("link.radio.rate")), "{error}");
    let error = axis("path = \"link.radio.rate\"\nrange = { from = \"1 Mbit/s\", to = \"2 Mbit\", points = 3 }");
    assert_eq!(place(&error), (ErrorKind::BadValue, 33, 35, "sweep.axis.0.range.to"));
    let error = axis("path = \"link.radio.rate\"\nvalues = []");
    assert_eq!(place(&error), (ErrorKind::BadValue, 33, 10, "sweep.axis.0.values"));
    let error = axis("path = \"link.radio.rate\"");
    assert_eq!((error.kind, error.location.line), (ErrorKind::MissingField, 31), "{error}");
    let error = extended("[sweep]\nreplicate = { relative_error = \"5 %\", min = 1 }\n");
    assert_eq!(place(&error), (ErrorKind::BadValue, 32, 45, "sweep.replicate.min"));
    let error = extended("[sweep]\nreplicate = { min = 5, max = 4 }\n");
    assert_eq!(place(&error), (ErrorKind::BadValue, 32, 30, "sweep.replicate.max"));
}

#[test]
fn an_override_that_is_wrong_shows_itself() {
    let scenario = Scenario::parse("test.toml", GOOD, NoFiles).unwrap();
    let error_of = |text: &str| scenario.with(&[Override::parse(text).unwrap()]).map(drop).unwrap_err();
    let error = error_of("link.radio.delay=5");
    assert_eq!((error.location.file.as_str(), error.location.line, error.location.column), ("--set", 1, 20));
    assert_eq!((error.kind, error.location.text.as_str()), (ErrorKind::WrongType, "link.radio.delay = 5"));
    let error = error_of("link.radio.dealy=5 ms");
    assert_eq!((error.kind, error.location.column), (ErrorKind::UnknownField, 1), "{error}");
    let error = error_of("link.radoi.delay=5 ms");
    assert_eq!((error.kind, error.did_you_mean.as_deref()), (ErrorKind::NoSuchPath, Some("radio")));
    assert_eq!(error_of("host.client=x").kind, ErrorKind::WrongType);
    assert_eq!(Override::parse("seed").unwrap_err().kind, ErrorKind::Syntax);
}

#[test]
fn an_error_is_shown_with_its_line_and_for_machines() {
    let error = spoilt("delay = \"25 ms\"", "dealy = \"25 ms\"");
    assert_eq!(
        error.to_string(),
        "test.toml:17:1: link.radio.dealy: there is no field \"dealy\" here; did you mean \"delay\"?"
    );
    let report = error.report(Style::Plain);
    let expected = "error: link.radio.dealy: there is no field \"dealy\" here\n  --> test.toml:17:1\n   |\n17 | dealy = \"25 ms\"\n   | ^^^^^\n   = did you mean \"delay\"?\n   = accepted here: \"name\", ";
    assert!(report.starts_with(expected), "{report}");
    assert!(!report.contains('\x1b'));
    assert!(error.report(Style::Colour).contains("\x1b[1;31merror:\x1b[0m"));
    let json = serde_json::to_value(&error).unwrap();
    for (key, value) in [
        ("kind", "unknown-field".into()),
        ("file", "test.toml".into()),
        ("line", 17.into()),
        ("column", 1.into()),
        ("field", "link.radio.dealy".into()),
        ("did_you_mean", "delay".into()),
    ] as [(&str, serde_json::Value); 6]
    {
        assert_eq!(json[key], value, "{key}");
    }
}

#[test]
fn an_unknown_name_suggests_a_built_in_scenario() {
    let error = Scenario::open("train-tunel").unwrap_err();
    assert_eq!((error.kind, error.did_you_mean.as_deref()), (ErrorKind::Unreadable, Some("train-tunnel")));
    let error = Scenario::read(std::path::Path::new("/nonexistent/x.toml")).unwrap_err();
    assert_eq!((error.kind, error.location.line), (ErrorKind::Unreadable, 0));
}

/// A processor without any processing time, or with an empty backlog, is an error.
#[test]
fn processors_of_routers_can_be_as_described() {
    let with = |table: &str| spoilt("name = \"middle\"", &format!("name = \"middle\"\ncpu = {table}"));
    for (table, kind, field) in [
        ("{}", ErrorKind::Conflict, "router.middle.cpu"),
        ("{ per_packet = \"31 us\", backlog = 0 }", ErrorKind::Conflict, "router.middle.cpu.backlog"),
        ("{ per_packet = 31 }", ErrorKind::WrongType, "router.middle.cpu.per_packet"),
        ("{ per_paket = \"31 us\" }", ErrorKind::UnknownField, "router.middle.cpu.per_paket"),
    ] {
        let error = with(table);
        assert_eq!((error.kind, error.field.as_str()), (kind, field), "{table}: {error}");
    }
}

/// A latency has one for busy hosts, and only one after pauses needs a pause. A router has a processor instead.
#[test]
fn latencies_of_hosts_can_be_as_described() {
    let with = |node: &str, table: &str| {
        spoilt(&format!("name = \"{node}\""), &format!("name = \"{node}\"\nlatency = {table}"))
    };
    for (node, table, kind, field) in [
        ("client", "{}", ErrorKind::MissingField, "host.client.latency"),
        ("client", "{ busy = \"0 s\" }", ErrorKind::BadValue, "host.client.latency.busy"),
        ("client", "{ busy = 80 }", ErrorKind::WrongType, "host.client.latency.busy"),
        (
            "client",
            "{ busy = \"80 us\", idle_after = \"5 ms\" }",
            ErrorKind::Conflict,
            "host.client.latency.idle_after",
        ),
        (
            "client",
            "{ busy = \"80 us\", idle = \"90 us\", idle_after = \"0 s\" }",
            ErrorKind::BadValue,
            "host.client.latency.idle_after",
        ),
        ("middle", "{ busy = \"80 us\" }", ErrorKind::UnknownField, "router.middle.latency"),
    ] {
        let error = with(node, table);
        assert_eq!((error.kind, error.field.as_str()), (kind, field), "{node} {table}: {error}");
    }
}
