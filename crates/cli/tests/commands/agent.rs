//! `holdover agent`, without anything in the path of packets.

use std::process::Command;
use std::time::{Duration, Instant};

use holdover_host::Process;
use holdover_host::control_client::answers;
use holdover_host::process::LogTo;
use rustix::process::Signal;

use crate::Test;
use crate::support::{Place, interrupted};

pub(crate) const TESTS: &[Test] = &[
    ("a_signal_is_received_and_shown", a_signal_is_received_and_shown),
    ("hooks_forward_events_to_the_agent", hooks_forward_events_to_the_agent),
    ("a_bug_report_has_what_is_needed_and_no_addresses", a_bug_report_has_what_is_needed_and_no_addresses),
    ("a_killed_agent_is_in_no_successors_way", a_killed_agent_is_in_no_successors_way),
    ("without_privileges_it_says_what_is_missing_and_ends", without_privileges_it_says_what_is_missing_and_ends),
    ("an_unknown_user_is_reported_and_the_other_rules_apply", an_unknown_user_is_reported_and_the_other_rules_apply),
    ("check_says_what_is_in_force_or_what_is_wrong", check_says_what_is_in_force_or_what_is_wrong),
    ("a_failed_dry_run_leaves_no_directory", a_failed_dry_run_leaves_no_directory),
    ("an_interrupted_test_leaves_no_directory", an_interrupted_test_leaves_no_directory),
];

/// Longer than anything here takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A dry run on the loopback interface, which needs no privileges and changes nothing.
struct DryRun(Process);

impl DryRun {
    fn start(place: &Place) -> Self {
        place.write("agent.toml", "[metrics]\nenabled = false\n");
        let mut process = Process::start_here(Self::command(place), LogTo::File(place.path("log"))).unwrap();
        process.wait_until_ok(PATIENCE, || answers(&place.path("s"))).unwrap_or_else(|error| panic!("{error}"));
        Self(process)
    }

    fn command(place: &Place) -> Command {
        place.command("agent run --dry-run --foreground --interface lo --config agent.toml --socket s")
    }

    /// Ends it as a service manager does; returns its output.
    fn stop(mut self) -> String {
        self.0.signal(Signal::TERM).unwrap();
        let ended = self.0.wait_timeout(PATIENCE).unwrap().expect("it ends");
        assert!(ended.success(), "{}", self.0.log());
        self.0.log()
    }
}

fn a_signal_is_received_and_shown() {
    let place = Place::new("agent-signal");
    let agent = DryRun::start(&place);
    assert_eq!(place.run("agent signal down --interface lo --socket s").well().out, "reported to lo\n");
    let status = place.run("agent status --json --socket s").well().json();
    assert_eq!(status["dry_run"], true, "{status}");
    assert_eq!((&status["links"][0]["interface"], &status["links"][0]["state"]), (&"lo".into(), &"down".into()));
    assert_eq!(status["links"][0]["objections"][0], "command");
    place.run("agent signal up --socket s").well();
    let text = place.run("agent status --socket s").well().out;
    assert!(text.contains("dry run: nothing is changed") && text.contains("lo    up"), "{text}");
    place.run("agent actions --socket s").well();
    let refused = place.run("agent signal up --interface nowhere --socket s").refused();
    assert!(refused.contains("it manages: lo"), "{refused}");
    let refused = place.run("agent signal down --lead 300ms --socket s").refused();
    assert!(refused.contains("fading"), "{refused}");
    let second = place.run("agent run --dry-run --interface lo --config agent.toml --socket s");
    let pid = format!("an agent is running already (pid {})", agent.0.id());
    assert!(second.code == Some(1) && second.err.contains(&pid), "{second:?}");
    let log = agent.stop();
    assert!(log.contains("the agent is running") && log.contains("event=down"), "{log}");
    assert!(!place.path("s").exists());
    let gone = place.run("agent status --socket s");
    assert!(gone.code == Some(1) && gone.err.contains("at s: there is no such socket\nstart it:"), "{gone:?}");
    assert!(place.run("agent top --socket s").code == Some(1));
}

/// The scripts in `dist/hooks`, called as NetworkManager, `wpa_cli` and networkd-dispatcher call them.
// Claim: The hooks pass their events to the agent, and print nothing where there is no agent.
fn hooks_forward_events_to_the_agent() {
    let place = Place::new("agent-hooks");
    let agent = DryRun::start(&place);
    let state = || place.run("agent status --json --socket s").well().json()["links"][0]["state"].clone();
    let hooks = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../dist/hooks");
    for (hook, arguments, operational, expected) in [
        ("networkmanager", "lo pre-down", "", "fading"),
        ("networkmanager", "lo pre-up", "", "fading"),
        ("wpa_supplicant", "lo DISCONNECTED", "", "down"),
        ("wpa_supplicant", "lo P2P-EVENT", "", "down"),
        ("wpa_supplicant", "lo CONNECTED", "", "up"),
        ("networkd-dispatcher", "", "no-carrier", "down"),
        ("networkd-dispatcher", "", "configuring", "down"),
        ("networkd-dispatcher", "", "routable", "up"),
        ("networkd-dispatcher", "elsewhere", "off", "up"),
    ] {
        let interface = if arguments == "elsewhere" { arguments } else { "lo" };
        for socket in ["s", "nowhere"] {
            let status = Command::new(hooks.join(hook))
                .args(arguments.split_whitespace())
                .envs([("HOLDOVER", env!("CARGO_BIN_EXE_holdover")), ("HOLDOVER_SOCKET", socket)])
                .envs([("IFACE", interface), ("OperationalState", operational)])
                .current_dir(place.path(""))
                .status();
            assert!(status.unwrap().success(), "{hook} {arguments} {operational}");
        }
        assert_eq!(state(), expected, "{hook} {arguments} {operational}");
    }
    agent.stop();
}

// Claim: A bug report has every file, and addresses only on request.
// Tests: `masking::addresses_have_names_and_everything_else_stays`,
// `masking::an_interface_named_by_its_mac_address_has_the_name_of_the_address`
fn a_bug_report_has_what_is_needed_and_no_addresses() {
    let place = Place::new("agent-bugreport");
    place.write("rules.toml", "[[flow]]\nremote = \"192.0.2.0/24\"\nhold = \"4h\"\n");
    let agent = DryRun::start(&place);
    let arguments = "agent bugreport --socket s --config rules.toml --json --out";
    let written = place.run(&format!("{arguments} report")).well().json();
    assert_eq!(written["masked"], true, "{written}");
    let read = |name: &str| std::fs::read_to_string(place.path("report").join(name)).unwrap();
    for file in written["files"].as_array().unwrap() {
        assert!(!read(file.as_str().unwrap()).is_empty() || file == "actions.jsonl", "{file}");
    }
    let status: serde_json::Value = serde_json::from_str(&read("status.json")).unwrap();
    assert_eq!(status["links"][0]["interface"], "lo");
    let doctor: serde_json::Value = serde_json::from_str(&read("doctor.json")).unwrap();
    assert!(doctor["checks"].as_array().is_some_and(|checks| checks.len() > 10), "{doctor}");
    let configuration = read("configuration.toml");
    assert!(
        configuration.contains("remote = \"<ipv4-1>/24\"") && !configuration.contains("192.0.2"),
        "{configuration}"
    );
    assert!(read("about.txt").contains("\nkernel ") && read("sysctl.txt").contains("net.ipv4.tcp_retries2 = "));
    assert!(read("links.txt").contains("lo: state "));
    let again = place.run(&format!("{arguments} report"));
    assert!(again.code == Some(1) && again.json()["error"].as_str().unwrap().contains("--out"), "{again:?}");
    place.run(&format!("{arguments} open --with-addresses")).well();
    let configuration = std::fs::read_to_string(place.path("open/configuration.toml")).unwrap();
    assert!(configuration.contains("192.0.2.0/24"), "{configuration}");
    agent.stop();
}

fn a_killed_agent_is_in_no_successors_way() {
    let place = Place::new("agent-killed");
    let mut agent = DryRun::start(&place);
    for cycle in 0..50 {
        agent.0.signal(Signal::KILL).unwrap();
        std::thread::sleep(Duration::from_millis(cycle));
        // The killed one is not waited for: it may be there still.
        let mut next = Process::start_here(DryRun::command(&place), LogTo::File(place.path("log"))).unwrap();
        let answers = next.wait_until(PATIENCE, || place.run("agent status --json --socket s").code == Some(0));
        answers.unwrap_or_else(|error| panic!("cycle {cycle}: {error}"));
        agent = DryRun(next);
    }
    agent.stop();
}

// Claim: Without its privileges the agent exits with a message that names them.
fn without_privileges_it_says_what_is_missing_and_ends() {
    use rustix::thread::{CapabilitySet, capabilities, remove_capability_from_bounding_set};
    let place = Place::new("agent-privileges");
    place.write("agent.toml", "[metrics]\nenabled = false\n");
    let began = Instant::now();
    // Programs that root starts get the capabilities in the bounding set of the thread that starts them.
    let ended = std::thread::scope(|scope| {
        let run = || {
            if capabilities(None).unwrap().effective.contains(CapabilitySet::SETPCAP) {
                for capability in [CapabilitySet::BPF, CapabilitySet::NET_RAW] {
                    remove_capability_from_bounding_set(capability).unwrap();
                }
            }
            place.run("agent run --interface lo --config agent.toml --socket s")
        };
        scope.spawn(run).join().unwrap()
    });
    assert_eq!(ended.code, Some(77), "{ended:?}");
    for says in ["CAP_BPF", "CAP_NET_RAW", "the agent cannot run here"] {
        assert!(ended.err.contains(says), "{says} is not in {ended:?}");
    }
    assert!(ended.err.contains("sudo setcap") || ended.err.contains("user namespace"), "{ended:?}");
    assert!(began.elapsed() < Duration::from_secs(20) && !place.path("s").exists());
}

fn an_unknown_user_is_reported_and_the_other_rules_apply() {
    let place = Place::new("agent-unknown-user");
    place.write(
        "rules.toml",
        "[[flow]]\nuser = \"no such user here\"\nhold = \"4h\"\n[[flow]]\nport = 80\nhold = \"4h\"\n",
    );
    let checked = place.run("agent check rules.toml");
    assert!(checked.code == Some(2) && checked.out.contains("port = \"80\""), "{checked:?}");
    let says = "flow rule 1: there is no user \"no such user here\"";
    assert!(checked.err.contains(says), "{checked:?}");
    let checked = place.run("agent check rules.toml --json");
    assert_eq!((checked.code, checked.err.as_str()), (Some(2), ""), "{checked:?}");
    assert!(checked.json()["problems"][0].as_str().unwrap().starts_with(says), "{checked:?}");
}

fn check_says_what_is_in_force_or_what_is_wrong() {
    let place = Place::new("agent-check");
    place.write("good.toml", "[wake]\nhold_back = 8\n[signals]\nschedule = \"line.csv\"\n");
    place.write("line.csv", "2026-11-22T06:00:00Z,down\n2026-11-22T06:00:10Z,up\n");
    let good = place.run("agent check good.toml").well().out;
    assert!(
        good.contains("hold_back = 8")
            && good.contains("carrier = true")
            && good.contains("# Cuts in the timetable: 1"),
        "{good}"
    );
    place.write("again.toml", &good);
    assert_eq!(place.run("agent check again.toml").well().out, good, "what is in force reads as the same");
    place.write("rules.toml", "[[flow]]\nport = 80\nhold = \"10 s\"\n");
    let rules = place.run("agent check rules.toml").well().out;
    assert!(rules.contains("# flow rule 1 holds for ") && rules.contains("never less than the kernel"), "{rules}");
    assert!(rules.contains("# After these holds, built in: port 22, hold 28800s"), "{rules}");
    place.write("bad.toml", "[wake]\nhold_bakc = 8\n");
    assert!(place.run("agent check bad.toml").refused().contains("bad.toml:2:1"));
    // Machines on which tests run have no configuration of their own, or one that is found.
    if !std::path::Path::new("/etc/holdover/agent.toml").exists() {
        let none = place.run("agent check").well().out;
        assert!(none.starts_with("# There is no /etc/holdover/agent.toml"), "{none}");
    }
    assert!(place.run("agent run --dry-run --config bad.toml").refused().contains("bad.toml:2:1"));
    place.write("line.csv", "2026-11-22T06:00:00Z,sideways\n");
    assert!(place.run("agent check good.toml").refused().contains("line.csv:1:22"));
    assert!(place.run("agent check nowhere.toml").refused().contains("nowhere.toml"));
    let published = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/schema/agent.schema.json");
    assert_eq!(place.run("agent schema").well().out, std::fs::read_to_string(published).unwrap());
}

// Claim: Neither a failed dry run nor an interrupted demo or test leaves a directory behind.
// Tests: `gateway::a_failed_dry_run_leaves_no_directory`,
// `control_socket::a_directory_created_for_the_socket_is_removed_with_it`, `agent::an_interrupted_test_leaves_no_directory`,
// `gateway::an_interrupted_demo_leaves_no_directory`
fn a_failed_dry_run_leaves_no_directory() {
    let place = Place::new("agent-dry-run");
    place.write("agent.toml", "[metrics]\nenabled = false\n");
    // The name of a socket has 108 bytes at most.
    let socket = format!("run/holdover/{}", "s".repeat(150));
    let failed = place.run(&format!("agent run --dry-run --interface lo --config agent.toml --socket {socket}"));
    assert!(failed.code == Some(1) && failed.err.contains("the control socket run/holdover/sss"), "{failed:?}");
    assert_eq!(place.entries(), ["agent.toml"]);
}

fn an_interrupted_test_leaves_no_directory() {
    let place = Place::new("agent-interrupted");
    // Without the rights for it there is no test, and so no directory either.
    if let Some(ended) = interrupted(&place, "agent test --socket s") {
        assert!(ended.code == Some(130) && ended.err.contains("interrupted"), "{ended:?}");
    }
    assert_eq!(place.entries(), [""; 0]);
}
