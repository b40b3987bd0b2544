use serde::Deserialize;

use super::*;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    flow: Vec<FlowRule>,
}

const FLOOR: Duration = Duration::from_secs(1920);

fn read(text: &str) -> Result<Vec<FlowRule>, String> {
    toml::from_str::<File>(text).map(|file| file.flow).map_err(|error| error.message().to_owned())
}

fn build(text: &str, built_in: bool) -> Result<Policy, PolicyError> {
    let options = PolicyOptions { built_in, at_least: FLOOR };
    Policy::new(&read(text).unwrap(), options, &mut |name| match name {
        "anna" => Ok(1000),
        _ => Err(UserError::Unknown { name: name.into() }),
    })
}

fn policy(text: &str) -> Policy {
    build(text, false).unwrap()
}

fn connection(local: &str, remote: &str) -> Connection {
    Connection { local: local.parse().unwrap(), remote: remote.parse().unwrap() }
}

fn owner(uid: u32, cgroup: &str, comm: &str) -> Owner {
    let process = Process { pid: 7, comm: comm.to_owned(), path: Some(format!("/usr/bin/{comm}").into()) };
    Owner { uid: Some(uid), cgroup: Some(cgroup.to_owned()), processes: vec![process] }
}

fn wish(policy: &Policy, connection: Connection) -> Option<TimeoutWish> {
    match policy.decide(connection, &Owner::default()).action {
        Action::LeaveAlone => None,
        Action::UserTimeout(wish) => Some(wish),
    }
}

fn timeout(policy: &Policy, local: &str, remote: &str) -> Option<Duration> {
    wish(policy, connection(local, remote)).map(|wish| wish.timeout)
}

const HERE: &str = "192.0.2.1:40000";

#[test]
fn the_first_rule_that_fits_decides() {
    let policy = policy(
        r#"
        [[flow]]
        remote_port = 5432
        remote = "10.0.0.0/8"
        leave_alone = true
        [[flow]]
        remote_port = ["5000-5999", 80]
        fail_fast = "10 s"
        [[flow]]
        hold = "4h"
        "#,
    );
    let at = |remote| timeout(&policy, HERE, remote);
    assert_eq!(at("10.1.2.3:5432"), None);
    assert_eq!(at("11.1.2.3:5432"), Some(Duration::from_secs(10)));
    assert_eq!(at("11.1.2.3:80"), Some(Duration::from_secs(10)));
    assert_eq!(at("11.1.2.3:81"), Some(Duration::from_secs(4 * 3600)));
    assert_eq!(policy.decide(connection(HERE, "11.1.2.3:80"), &Owner::default()).rule, Some(1));
    assert_eq!(policy.rule_name(1), "flow rule 2");
}

#[test]
fn ports_are_those_of_the_end_that_is_named_or_of_either() {
    let policy = policy(
        r#"
        [[flow]]
        local_port = 22
        fail_fast = "1s"
        [[flow]]
        remote_port = 22
        fail_fast = "2s"
        [[flow]]
        port = 33
        local_port = "1-100"
        fail_fast = "3s"
        "#,
    );
    let secs = |local, remote| timeout(&policy, local, remote).map(Duration::as_secs);
    assert_eq!(secs("192.0.2.1:22", "192.0.2.2:40000"), Some(1));
    assert_eq!(secs("192.0.2.1:40000", "192.0.2.2:22"), Some(2));
    assert_eq!(secs("192.0.2.1:33", "192.0.2.2:40000"), Some(3));
    assert_eq!(secs("192.0.2.1:50", "192.0.2.2:33"), Some(3));
    assert_eq!(secs("192.0.2.1:101", "192.0.2.2:33"), None);
}

#[test]
fn addresses_are_prefixes_and_words_of_either_family() {
    let policy = policy(
        r#"
        [[flow]]
        remote = ["private", "2001:db8::/32"]
        fail_fast = "1s"
        [[flow]]
        remote = "link-local"
        local = "fe80::1"
        fail_fast = "2s"
        [[flow]]
        remote = "any"
        local = "192.0.2.7"
        fail_fast = "3s"
        "#,
    );
    let secs = |local, remote| timeout(&policy, local, remote).map(Duration::as_secs);
    assert_eq!(secs(HERE, "172.31.0.1:1"), Some(1));
    assert_eq!(secs(HERE, "172.32.0.1:1"), None);
    assert_eq!(secs("[2001:db8::1]:1", "[2001:db8:1::2]:1"), Some(1));
    assert_eq!(secs("[fd00::1]:1", "[fd00::2]:1"), Some(1));
    assert_eq!(secs("[fe80::1]:1", "[fe80::2]:1"), Some(2));
    assert_eq!(secs("192.0.2.7:1", "198.51.100.1:1"), Some(3));
    assert_eq!(secs("[::ffff:192.0.2.7]:1", "[::ffff:10.0.0.1]:1"), Some(1), "IPv4-mapped addresses");
}

#[test]
fn connections_within_the_host_are_left_alone_unless_addresses_are_named() {
    let everything = policy("[[flow]]\nhold = \"4h\"");
    for (local, remote) in [
        ("127.0.0.1:1", "127.0.0.1:2"),
        ("[::1]:1", "[::1]:2"),
        ("192.0.2.1:1", "192.0.2.1:2"),
        ("127.0.0.1:1", "127.9.9.9:2"),
    ] {
        assert_eq!(timeout(&everything, local, remote), None, "{local} {remote}");
    }
    assert!(timeout(&everything, "192.0.2.1:1", "192.0.2.2:2").is_some());
    let named = policy("[[flow]]\nremote = \"loopback\"\nfail_fast = \"5 s\"");
    assert_eq!(timeout(&named, "127.0.0.1:1", "127.0.0.1:2"), Some(Duration::from_secs(5)));
    assert_eq!(timeout(&named, "192.0.2.1:1", "192.0.2.1:2"), None);
}

#[test]
fn owners_are_asked_for_only_where_it_matters() {
    let policy = policy(
        r#"
        [[flow]]
        remote_port = 1
        hold = "1h"
        [[flow]]
        remote_port = [1, 2]
        process = ["psql", "/usr/bin/redis*"]
        user = ["anna", 33]
        fail_fast = "5 s"
        [[flow]]
        cgroup = "/system.slice"
        fail_fast = "6 s"
        remote_port = 3
        "#,
    );
    let port = |port: u16| connection(HERE, &format!("198.51.100.1:{port}"));
    assert_eq!(policy.decide_by_place(port(1)).unwrap().rule, Some(0));
    assert_eq!(policy.decide_by_place(port(2)), None);
    assert_eq!(policy.decide_by_place(port(4)).unwrap().rule, None);
    let rule = |at, uid, cgroup, comm| policy.decide(port(at), &owner(uid, cgroup, comm)).rule;
    assert_eq!(rule(2, 1000, "/", "psql"), Some(1));
    assert_eq!(rule(2, 33, "/", "redis-cli"), Some(1));
    assert_eq!(rule(2, 34, "/", "psql"), None);
    assert_eq!(rule(2, 33, "/", "curl"), None);
    assert_eq!(rule(3, 0, "/system.slice/a.service", "a"), Some(2));
    assert_eq!(rule(3, 0, "/user.slice", "a"), None);
    assert_eq!(policy.decide(port(2), &Owner::default()).rule, None, "an unknown owner does not match");
}

#[test]
fn a_hold_is_never_below_what_the_kernel_would_do_and_failing_fast_is() {
    let policy = policy("[[flow]]\nremote_port = 1\nhold = \"10 s\"\n[[flow]]\nfail_fast = \"10 s\"");
    assert_eq!(timeout(&policy, HERE, "198.51.100.1:1"), Some(FLOOR));
    assert_eq!(timeout(&policy, HERE, "198.51.100.1:2"), Some(Duration::from_secs(10)));
    assert_eq!(longest_patience(15, Duration::from_secs(120)), FLOOR);
}

#[test]
fn the_option_says_the_time_that_is_in_force() {
    let policy = policy(
        r#"
        [[flow]]
        remote_port = 1
        hold = "8h"
        advertise = true
        accept = "24h"
        [[flow]]
        remote_port = 2
        hold = "16h"
        advertise = true
        replace = true
        [[flow]]
        hold = "4h"
        "#,
    );
    let at = |port| wish(&policy, connection(HERE, &format!("198.51.100.1:{port}"))).unwrap();
    assert_eq!(at(1).advertise.unwrap().duration(), Duration::from_secs(8 * 3600));
    assert_eq!(at(1).accept, Duration::from_secs(24 * 3600));
    assert_eq!(at(2).advertise.unwrap().to_string(), "960min");
    assert_eq!((at(2).accept, at(2).replace), (Duration::from_secs(16 * 3600), true));
    assert_eq!((at(3).advertise, at(3).replace), (None, false));
}

#[test]
fn without_configuration_ssh_is_held_and_everything_else_is_left_alone() {
    let policy = Policy::new(&[], PolicyOptions { built_in: true, at_least: FLOOR }, &mut |_| unreachable!()).unwrap();
    let eight_hours = Some(Duration::from_secs(8 * 3600));
    assert_eq!(timeout(&policy, HERE, "198.51.100.1:22"), eight_hours);
    assert_eq!(timeout(&policy, "192.0.2.1:22", "198.51.100.1:40000"), eight_hours);
    assert_eq!(timeout(&policy, HERE, "198.51.100.1:443"), None);
    assert_eq!(timeout(&policy, "127.0.0.1:40000", "127.0.0.1:22"), None);
    assert_eq!(policy.rule_name(0), "port 22, hold 28800s (built in)");
    assert_eq!(policy.rule_name(99), "a former rule");
    let own = build("[[flow]]\nport = 22\nleave_alone = true", true).unwrap();
    assert_eq!(timeout(&own, HERE, "198.51.100.1:22"), None, "the user's rules come first");
    assert_eq!(own.rule_name(0), "flow rule 1");
}

#[test]
fn errors_of_a_rule_are_explained() {
    for (text, problem) in [
        ("[[flow]]\nport = 1", "flow rule 1: expected exactly one of hold, fail_fast and leave_alone"),
        (
            "[[flow]]\nhold = \"1h\"\nleave_alone = true",
            "flow rule 1: expected exactly one of hold, fail_fast and leave_alone",
        ),
        (
            "[[flow]]\nhold = \"1h\"\n[[flow]]\nfail_fast = \"100 ms\"",
            "flow rule 2: fail_fast = \"100ms\" is not between 1 s and 24 days (576 h)",
        ),
        ("[[flow]]\nhold = \"1000h\"", "flow rule 1: hold = \"3600000s\" is not between 1 s and 24 days (576 h)"),
        ("[[flow]]\nhold = \"1h\"\naccept = \"2h\"", "flow rule 1: accept has no effect without advertise"),
        (
            "[[flow]]\nleave_alone = true\nreplace = true",
            "flow rule 1: replace has no effect without hold or fail_fast",
        ),
    ] {
        assert_eq!(build(text, true).unwrap_err().to_string(), problem);
    }
}

// Claim: An unknown user disables only the rules about that user.
#[test]
fn an_unknown_user_switches_off_that_user_only() {
    let text = "[[flow]]\nport = 1\nuser = \"berta\"\nhold = \"1h\"\n[[flow]]\nport = 2\nhold = \"2h\"\n\
                [[flow]]\nport = 3\nuser = [\"berta\", \"anna\"]\nhold = \"3h\"\n[[flow]]\nport = 1\nleave_alone = true\n";
    let policy = policy(text);
    assert_eq!(
        policy.problems(),
        ["flow rule 1: there is no user \"berta\"", "flow rule 3: there is no user \"berta\""]
    );
    let to = |port: u16| connection("192.0.2.7:1024", &format!("198.51.100.1:{port}"));
    let rule = |port, uid| policy.decide(to(port), &owner(uid, "/", "x")).rule;
    // The first rule is left without users and matches no connection.
    assert_eq!([rule(1, 0), rule(1, 1000)], [Some(3), Some(3)]);
    assert_eq!([rule(2, 0), rule(3, 1000), rule(3, 0)], [Some(1), Some(2), None]);
    assert_eq!(policy.decide_by_place(to(1)).and_then(|decision| decision.rule), Some(3));
    assert_eq!(policy.rule_name(3), "flow rule 4");
}

#[test]
fn errors_of_a_file_are_explained() {
    for (text, problem) in [
        (
            "[[flow]]\nport = 70000",
            "invalid port \"70000\": expected a port, or two with a hyphen between them, such as 22 or \"5000-5999\"",
        ),
        (
            "[[flow]]\nport = \"9-8\"",
            "invalid port \"9-8\": expected a port, or two with a hyphen between them, such as 22 or \"5000-5999\"",
        ),
        (
            "[[flow]]\nport = -1",
            "invalid port \"-1\": expected a port, or two with a hyphen between them, such as 22 or \"5000-5999\"",
        ),
        (
            "[[flow]]\nport = []",
            "an empty list matches nothing; expected a port, or two with a hyphen between them, such as 22 or \"5000-5999\"",
        ),
        ("[[flow]]\nremote = \"10.0.0.1/8\"", "\"10.0.0.1/8\" has bits after its prefix: did you mean 10.0.0.0/8?"),
        (
            "[[flow]]\nremote = \"here\"",
            "invalid address \"here\": expected an address, a prefix such as \"10.0.0.0/8\" or \"2001:db8::/32\", loopback, private, \
             link-local or any",
        ),
        (
            "[[flow]]\nprocess = \"\"",
            "empty name: expected a name, in which * may stand for anything and ? for one letter",
        ),
    ] {
        assert_eq!(read(text).unwrap_err(), problem);
    }
    for text in ["[[flow]]\nhold = 4", "[[flow]]\nhold = \"4\"", "[[flow]]\nfail-fast = \"1s\"", "[[flow]]\nremote = 7"]
    {
        assert!(read(text).is_err(), "{text}");
    }
    for prefix in ["10.0.0.0/33", "::/129", "10.0.0.0/x", "10.0.0/8", "300.0.0.1"] {
        assert!(read(&format!("[[flow]]\nremote = \"{prefix}\"")).is_err(), "{prefix}");
    }
}

#[test]
fn a_rule_is_written_as_it_is_read() {
    let text = "[[flow]]\nport = \"22\"\nremote = [\"10.0.0.0/8\", \"private\", \"::1/128\", \"any\"]\nuser = \"33\"\nhold = \"7200s\"\n";
    let rules = read(text).unwrap();
    let written = toml::to_string(&std::collections::BTreeMap::from([("flow", &rules)])).unwrap();
    assert_eq!(written, text);
    assert_eq!(read(&written).unwrap(), rules);
}

#[test]
fn the_schema_has_every_field() {
    let schema = serde_json::to_value(schemars::schema_for!(FlowRule)).unwrap();
    let fields = schema["properties"].as_object().unwrap();
    assert_eq!(fields.len(), 14);
    assert!(fields.values().all(|field| field["description"].is_string()), "{fields:#?}");
    assert_eq!(schema["additionalProperties"], false);
}

#[test]
fn the_guide_has_every_field() {
    let guide = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide/flows.md");
    let guide = std::fs::read_to_string(guide).unwrap();
    let schemas = [schemars::schema_for!(FlowRule), schemars::schema_for!(crate::config::UserTimeoutTable)];
    for schema in schemas.map(|schema| serde_json::to_value(schema).unwrap()) {
        for field in schema["properties"].as_object().unwrap().keys() {
            let is_documented =
                guide.lines().any(|line| line.starts_with("| `") && line.contains(&format!("`{field}`")));
            assert!(is_documented, "{field}");
        }
    }
    let example = guide.split("```toml").nth(1).unwrap().split("```").next().unwrap();
    assert_eq!(read(example).unwrap().len(), 4);
}
