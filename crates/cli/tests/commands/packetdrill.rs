//! `holdover packetdrill`.

use crate::Test;
use crate::support::Place;

pub(crate) const TESTS: &[Test] = &[
    ("a_directory_is_run_and_summed_up", a_directory_is_run_and_summed_up),
    ("a_script_has_the_definitions_of_its_own_ip_version", a_script_has_the_definitions_of_its_own_ip_version),
    ("differences_and_invalid_scripts_are_reported", differences_and_invalid_scripts_are_reported),
];

const PASSES: &str = "`../set.sh`
0 socket(..., SOCK_STREAM, IPPROTO_TCP) = 3
+0 fcntl(3, F_SETFL, O_RDWR|O_NONBLOCK) = 0
+0 connect(3, ..., ...) = -1 EINPROGRESS (Operation now in progress)
+0 > S 0:0(0) <mss 1460,nop,wscale 10>
+0.1 < R. 0:0(0) ack 1 win 0
+0 getsockopt(3, SOL_SOCKET, SO_ERROR, [ERROR], [4]) = 0
";

fn place(name: &str) -> Place {
    let place = Place::new(name);
    for directory in ["scripts", "scripts/a", "scripts/b"] {
        std::fs::create_dir(place.path(directory)).unwrap();
    }
    place.write("scripts/set.sh", "sysctl -q net.ipv4.tcp_sack=0 net.ipv4.tcp_timestamps=0 net.ipv4.tcp_nothing=1\n");
    place.write("scripts/a/refused.pkt", PASSES);
    place.write("scripts/a/notes.txt", "not a script");
    place.write("scripts/b/udp.pkt", "0 socket(..., SOCK_DGRAM, IPPROTO_UDP) = 3\n");
    place
}

// Claim: `packetdrill` prints verdicts, differences and totals for directories, as text and as JSON, and its exit status follows.
// Tests: `packetdrill::differences_and_invalid_scripts_are_reported`
fn a_directory_is_run_and_summed_up() {
    let place = place("packetdrill-directory");
    let text = place.run("packetdrill scripts -D ERROR=111 --notes").well().out;
    for line in [
        "passed   scripts/a/refused.pkt",
        "         setting not understood: net.ipv4.tcp_nothing=1",
        "not run  scripts/b/udp.pkt: a socket that is not TCP's",
        "scripts/a       1        0        0    0",
        "in all          1        0        1    0",
    ] {
        assert!(text.lines().any(|found| found == line), "{line:?} in\n{text}");
    }
    let versions = "packetdrill scripts/a/refused.pkt -D ERROR=111 --json --ip-version ipv4,ipv6";
    let printed = place.run(versions).well().json();
    let reports: Vec<&serde_json::Value> =
        printed.as_array().unwrap().iter().map(|outcome| &outcome["report"]).collect();
    assert_eq!((&reports[0]["ip_version"], &reports[1]["ip_version"]), (&"ipv4".into(), &"ipv6".into()));
    assert!(reports.iter().all(|report| report["verdict"] == "passed"), "{printed}");
    assert_eq!(reports[0]["notes"][0], "setting not understood: net.ipv4.tcp_nothing=1");
}

// Claim: A script that names an IP version of its own has the definitions of that version.
fn a_script_has_the_definitions_of_its_own_ip_version() {
    let place = place("packetdrill-own-version");
    let script = "--ip_version=ipv4\n0 socket(..., SOCK_STREAM, IPPROTO_TCP) = 3\n+0 getsockopt(3, CMSG_LEVEL_IP, IP_MTU, [1500], [4]) = 0\n";
    place.write("scripts/a/own.pkt", script);
    let text = place.run("packetdrill scripts/a/own.pkt --ip-version ipv6").well().out;
    assert!(text.contains("passed   scripts/a/own.pkt"), "{text}");
}

fn differences_and_invalid_scripts_are_reported() {
    let place = place("packetdrill-differs");
    let ended = place.run("packetdrill scripts/a -D ERROR=104");
    assert_eq!(ended.code, Some(1), "{ended:?}");
    let expected = "         scripts/a/refused.pkt:7 at 0.100000 s\n           expected getsockopt() = 0\n           got      0 with the value 111\n";
    assert!(ended.out.contains(expected), "{}", ended.out);
    place.write("scripts/b/bad.pkt", "0 socket(...) = 3\n+0 > Q 1:1(0)\n");
    let ended = place.run("packetdrill scripts/b");
    assert_eq!(ended.code, Some(2), "{ended:?}");
    assert!(ended.out.contains("bad      scripts/b/bad.pkt:2:6: expected flags of"), "{}", ended.out);
    let printed = place.run("packetdrill scripts/b/bad.pkt --json").json();
    let error = &printed[0]["error"]["script"];
    assert_eq!((&error["line"], &error["column"], &error["found"]), (&2.into(), &6.into(), &"'Q'".into()));
    // Errors of the command line.
    assert!(place.run("packetdrill nowhere").refused().contains("nowhere"));
    assert!(place.run("packetdrill scripts --profile vegas").refused().contains("vegas"));
    assert!(place.run("packetdrill scripts --ip-version ipv5").refused().contains("ipv4-mapped-ipv6"));
    std::fs::create_dir(place.path("empty")).unwrap();
    assert!(place.run("packetdrill empty").refused().contains("no script"));
}
