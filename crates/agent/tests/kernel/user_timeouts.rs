//! User timeouts by policy.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{IpAddr, SocketAddr};
use std::thread::sleep;
use std::time::Duration as StdDuration;

use holdover_agent::policy::{FlowRule, Policy, PolicyOptions};
use holdover_agent::sockets::owner::uid_of;
use holdover_agent::user_timeout::{
    KernelVerdict, UserTimeoutError, UserTimeoutOptions, UserTimeouts, kernel_patience,
};
use holdover_base::{Duration, Instant};
use holdover_mobility::Connection;
use holdover_testbed::{KernelListener, KernelStream, Namespace, SocketOptions, sysctl};
use holdover_wire::Flags;

use crate::Test;
use crate::other_process::OtherProcess;
use crate::wire::{FAR, FAR_V6, LIMIT, NEAR, Wire, make_impatient, options, socket, user_timeout};

pub(crate) const TESTS: &[Test] = &[
    ("new_connections_get_what_the_rules_say", new_connections_get_what_the_rules_say),
    ("user_timeouts_of_applications_stay", user_timeouts_of_applications_stay),
    ("open_connections_of_other_processes_get_it_too", open_connections_of_other_processes_get_it_too),
    ("owners_are_found_out", owners_are_found_out),
    ("a_policy_replaces_another", a_policy_replaces_another),
    ("the_option_goes_over_the_wire", the_option_goes_over_the_wire),
    ("the_peers_option_lengthens_the_timeout", the_peers_option_lengthens_the_timeout),
    ("failing_fast_and_holding_differ_in_an_outage", failing_fast_and_holding_differ_in_an_outage),
    ("a_window_that_is_shut_and_answered_is_no_outage", a_window_that_is_shut_and_answered_is_no_outage),
    ("keep_alive_is_not_cut_short", keep_alive_is_not_cut_short),
    ("nothing_is_left_of_an_agent_that_was_killed", nothing_is_left_of_an_agent_that_was_killed),
    ("everything_can_be_given_back", everything_can_be_given_back),
    ("the_kernel_has_the_policys_table", the_kernel_has_the_policys_table),
    ("the_patience_of_the_kernel_is_read", the_patience_of_the_kernel_is_read),
];

/// The mark in every timeout of the agent.
const MARK: Duration = Duration::from_millis(617);

pub(crate) fn now() -> Instant {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    Instant::from_nanos(now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64)
}

/// The policy of a file with these rules. Holds are as short as written.
pub(crate) fn policy(rules: &str) -> Policy {
    #[derive(serde::Deserialize)]
    struct File {
        #[serde(default)]
        flow: Vec<FlowRule>,
    }
    let file: File = toml::from_str(rules).unwrap();
    let options = PolicyOptions { built_in: false, at_least: Duration::ZERO };
    Policy::new(&file.flow, options, &mut uid_of).unwrap()
}

/// Why the programs may not be loaded. If they are refused for another reason, the tests fail.
pub(crate) fn can_load() -> Result<(), String> {
    let attached = Namespace::run("test", |_| UserTimeouts::attach(now(), policy(""), &UserTimeoutOptions::default()));
    match attached.map_err(|error| error.to_string())? {
        Err(error @ (UserTimeoutError::NotPermitted { .. } | UserTimeoutError::Cgroup(_))) => Err(error.to_string()),
        _ => Ok(()),
    }
}

fn attach(rules: &str) -> UserTimeouts {
    UserTimeouts::attach(now(), policy(rules), &UserTimeoutOptions::default()).unwrap()
}

fn secs(secs: u64) -> Option<Duration> {
    Some(Duration::from_secs(secs) + MARK)
}

/// Serves the timeouts until `is_done`.
fn drive(timeouts: &mut UserTimeouts, mut is_done: impl FnMut(&UserTimeouts) -> bool) {
    let deadline = now() + LIMIT;
    while !is_done(timeouts) {
        assert!(now() < deadline, "{:?}", timeouts.given());
        timeouts.handle_ready(now());
        if timeouts.poll_timeout().is_some_and(|due| due <= now()) {
            timeouts.handle_timeout(now()).unwrap();
        }
        sleep(StdDuration::from_millis(5));
    }
}

// Claim: New connections, of both families and in both directions, get the settings of the first matching rule; connections of
// other namespaces are unchanged.
fn new_connections_get_what_the_rules_say(near: &Namespace) {
    let wire = Wire::new(near);
    let timeouts = attach(
        r#"
        [[flow]]
        port = 1001
        hold = "4h"
        [[flow]]
        remote_port = 1002
        fail_fast = "10 s"
        [[flow]]
        remote_port = 1003
        leave_alone = true
        [[flow]]
        remote = "fd09::/64"
        fail_fast = "20 s"
        [[flow]]
        fail_fast = "30 s"
        remote_port = "1003-1004"
        "#,
    );
    for (port, expected) in [(1001, secs(14_400)), (1002, secs(10)), (1003, None), (1004, secs(30)), (1005, None)] {
        let (ours, theirs) = wire.connect(near, port);
        assert_eq!(user_timeout(&ours), expected, "{port}");
        assert_eq!(user_timeout(&theirs), None, "{port}: another namespace");
    }
    assert_eq!(user_timeout(&wire.accept(near, 1001).0), secs(14_400), "an incoming connection");
    assert_eq!(user_timeout(&wire.accept(near, 1002).0), None);
    let v6 = (FAR_V6.parse::<IpAddr>().unwrap(), 1005).into();
    assert_eq!(user_timeout(&wire.connect_with(near, v6, &options()).0), secs(20));
    let counters = timeouts.counters().unwrap();
    assert_eq!((counters.set, counters.set_open, counters.refused, counters.asked), (5, 0, 0, 0));
}

// Claim: A user timeout set by an application stays, unless the rule overrides it.
fn user_timeouts_of_applications_stay(near: &Namespace) {
    let wire = Wire::new(near);
    let own = SocketOptions { user_timeout: Some(Duration::from_secs(77)), ..options() };
    let to = |port| SocketAddr::new(FAR.parse().unwrap(), port);
    let mut timeouts = attach(
        "[[flow]]\nport = 1001\nfail_fast = \"10 s\"\n[[flow]]\nport = 1002\nfail_fast = \"10 s\"\nreplace = true",
    );
    let (kept, _kept_peer) = wire.connect_with(near, to(1001), &own);
    let (replaced, _replaced_peer) = wire.connect_with(near, to(1002), &own);
    let (later, _later_peer) = wire.connect(near, 1001);
    assert_eq!(user_timeout(&kept), Some(Duration::from_secs(77)));
    assert_eq!(user_timeout(&replaced), secs(10));
    assert_eq!(user_timeout(&later), secs(10));
    later.set_user_timeout(Duration::from_secs(88)).unwrap();
    replaced.set_user_timeout(Duration::from_secs(99)).unwrap();
    timeouts.pass(now()).unwrap();
    assert_eq!(user_timeout(&kept), Some(Duration::from_secs(77)));
    assert_eq!(user_timeout(&later), Some(Duration::from_secs(88)));
    assert_eq!(user_timeout(&replaced), secs(10));
    assert!(timeouts.given()[&socket(&later).cookie].is_applications);
    assert_eq!(timeouts.counters().unwrap().applications_own, 2);
    // Once changed by the application it is not the agent's any more.
    socket2::SockRef::from(&later).set_tcp_user_timeout(None).unwrap();
    timeouts.pass(now()).unwrap();
    assert_eq!(user_timeout(&later), secs(10));
}

// Claim: Open connections of other processes get them, too.
fn open_connections_of_other_processes_get_it_too(near: &Namespace) {
    let wire = Wire::new(near);
    let address = SocketAddr::new(FAR.parse().unwrap(), 1001);
    let listener = wire.far.enter(|| KernelListener::bind(&wire.far, address, &options()).unwrap()).unwrap();
    let mut other = OtherProcess::client(address);
    let (ours, _peer) = wire.connect(near, 1002);
    assert_eq!(other.user_timeout_ms(), 0);
    let timeouts = attach("[[flow]]\nremote_port = 1001\nhold = \"1h\"");
    assert_eq!(other.user_timeout_ms(), 3_600_617);
    assert_eq!(user_timeout(&ours), None);
    let given: Vec<_> = timeouts.given().values().collect();
    assert_eq!(given.len(), 1, "{given:?}");
    assert_eq!((given[0].rule, given[0].timeout), (Some(0), secs(3600)));
    assert_eq!(timeouts.counters().unwrap().set_open, 1);
    drop(listener);
}

/// By process, user and cgroup: for open connections, for new ones, and for one that is not accepted yet.
// Claim: Rules by process, user and cgroup apply to connections that are open, new, or not accepted yet.
fn owners_are_found_out(near: &Namespace) {
    let wire = Wire::new(near);
    let program = std::env::current_exe().unwrap();
    let cgroup = holdover_agent::sockets::Cgroups::look().is_ok();
    let rules = format!(
        r#"
        [[flow]]
        port = 1001
        process = "{}"
        hold = "1h"
        [[flow]]
        port = 1001
        fail_fast = "9 s"
        [[flow]]
        port = 1002
        user = "root"
        process = "no-such-program"
        hold = "2h"
        [[flow]]
        port = 1002
        user = ["root", 4711]
        hold = "3h"
        [[flow]]
        port = 1003
        cgroup = "/*"
        hold = "4h"
        [[flow]]
        port = 1004
        process = "*"
        hold = "5h"
        "#,
        program.display()
    );
    let address = SocketAddr::new(FAR.parse().unwrap(), 1001);
    let listener = wire.far.enter(|| KernelListener::bind(&wire.far, address, &options()).unwrap()).unwrap();
    let mut before = OtherProcess::client(address);
    let mut timeouts = attach(&rules);
    let mut after = OtherProcess::client(address);
    let (by_user, _by_user_peer) = wire.connect(near, 1002);
    let (by_cgroup, _by_cgroup_peer) = wire.connect(near, 1003);
    // Nothing is set before the owner is known.
    assert_eq!((after.user_timeout_ms(), user_timeout(&by_user)), (0, None));
    drive(&mut timeouts, |timeouts| timeouts.given().len() >= 3 + usize::from(cgroup));
    assert_eq!(before.user_timeout_ms(), 3_600_617);
    assert_eq!(after.user_timeout_ms(), 3_600_617);
    assert_eq!(user_timeout(&by_user), secs(3 * 3600));
    let is_in_root = timeouts.given().get(&socket(&by_cgroup).cookie).is_none_or(|given| given.rule.is_none());
    assert!(is_in_root || user_timeout(&by_cgroup) == secs(4 * 3600));

    let at = (NEAR.parse::<IpAddr>().unwrap(), 1004).into();
    let waiting = KernelListener::bind(near, at, &options()).unwrap();
    let _peer = wire.far.enter(|| KernelStream::connect(&wire.far, at, &options(), LIMIT).unwrap()).unwrap();
    let until = now() + Duration::from_millis(200);
    drive(&mut timeouts, |_| now() > until);
    let accepted = waiting.accept(LIMIT).unwrap();
    assert_eq!(user_timeout(&accepted), None);
    drive(&mut timeouts, |_| user_timeout(&accepted).is_some());
    assert_eq!(user_timeout(&accepted), secs(5 * 3600));
    // The answer lasts, pass after pass. (Connections of other processes on the machine are looked up meanwhile.)
    timeouts.pass(now()).unwrap();
    assert_eq!(user_timeout(&accepted), secs(5 * 3600));
    drop(listener);
}

fn a_policy_replaces_another(near: &Namespace) {
    let wire = Wire::new(near);
    let mut timeouts = attach("[[flow]]\nport = [1001, 1002]\nhold = \"1h\"");
    let (first, _first_peer) = wire.connect(near, 1001);
    let (second, _second_peer) = wire.connect(near, 1002);
    assert_eq!((user_timeout(&first), user_timeout(&second)), (secs(3600), secs(3600)));
    timeouts.set_policy(now(), policy("[[flow]]\nport = 1002\nfail_fast = \"7 s\"")).unwrap();
    assert_eq!((user_timeout(&first), user_timeout(&second)), (None, secs(7)));
    let many: String = (1..=129).map(|port| format!("[[flow]]\nlocal_port = {port}\nhold = \"1h\"\n")).collect();
    let error = timeouts.set_policy(now(), policy(&many)).unwrap_err();
    assert!(error.to_string().starts_with("the flow rules name 129 combinations"), "{error}");
    assert_eq!(user_timeout(&wire.connect(near, 1002).0), secs(7), "the former policy is in force");
    timeouts.set_policy(now(), policy("")).unwrap();
    assert_eq!(user_timeout(&second), None);
    assert_eq!(user_timeout(&wire.connect(near, 1002).0), None);
}

/// In the SYN, and in later segments until it has been acknowledged; not for ever.
// Claim: The option of RFC 5482 is on the wire in the SYN, and until data carrying it was acknowledged; the peer's is applied as
// far as it is accepted.
// Tests: `user_timeouts::the_peers_option_lengthens_the_timeout`
fn the_option_goes_over_the_wire(near: &Namespace) {
    let wire = Wire::new(near);
    let timeouts =
        attach("[[flow]]\nport = 1001\nhold = \"16h\"\nadvertise = true\n[[flow]]\nport = 1002\nhold = \"16h\"");
    let (mut ours, mut theirs) = wire.connect(near, 1001);
    for _ in 0..20 {
        ours.write_all(b"ping").unwrap();
        theirs.read_exact(&mut [0; 4]).unwrap();
        theirs.write_all(b"pong").unwrap();
        ours.read_exact(&mut [0; 4]).unwrap();
    }
    let sent = wire.sent(1001);
    let options: Vec<_> = sent.iter().map(|segment| segment.options.user_timeout).collect();
    assert!(sent[0].flags.contains(Flags::SYN));
    let sixteen_hours = Duration::from_secs(16 * 3600);
    assert_eq!(options[0].unwrap().duration(), sixteen_hours);
    let with_data = sent.iter().position(|segment| !segment.payload.is_empty()).unwrap();
    assert_eq!(options[with_data].unwrap().duration(), sixteen_hours);
    assert!(options.iter().flatten().count() <= 9, "{options:?}");
    assert_eq!(options.last().unwrap(), &None);
    assert_eq!(timeouts.counters().unwrap().options_sent, options.iter().flatten().count() as u64);
    let (mut accepted, mut peer) = wire.accept(near, 1001);
    accepted.write_all(b"hello").unwrap();
    peer.read_exact(&mut [0; 5]).unwrap();
    assert!(
        wire.sent(1001)
            .iter()
            .any(|segment| &segment.payload[..] == b"hello" && segment.options.user_timeout.is_some())
    );

    let (mut without, mut peer) = wire.connect(near, 1002);
    without.write_all(b"ping").unwrap();
    peer.read_exact(&mut [0; 4]).unwrap();
    assert!(wire.sent(1002).iter().all(|segment| segment.options.user_timeout.is_none()));
}

/// Both ends have an agent. Each grants what the other requests, up to its own limit.
fn the_peers_option_lengthens_the_timeout(near: &Namespace) {
    let wire = Wire::new(near);
    let here = attach(
        "[[flow]]\nremote_port = 1001\nhold = \"1h\"\nadvertise = true\naccept = \"2h\"\n\
         [[flow]]\nremote_port = 1002\nhold = \"1h\"\nadvertise = true",
    );
    let there = wire.far.enter(|| attach("[[flow]]\nhold = \"8h\"\nadvertise = true")).unwrap();
    for (port, expected) in [(1001, secs(2 * 3600)), (1002, secs(3600))] {
        let (mut ours, mut theirs) = wire.connect(near, port);
        theirs.write_all(b"hello").unwrap();
        ours.read_exact(&mut [0; 5]).unwrap();
        assert_eq!(user_timeout(&ours), expected, "{port}");
        assert_eq!(user_timeout(&theirs), secs(8 * 3600));
    }
    assert!(here.counters().unwrap().options_received >= 2);
    assert!(there.counters().unwrap().options_sent >= 2);
}

/// The kernel by itself gives up after 3 to 7 s.
// Claim: In an outage that aborts connections with kernel defaults, held connections survive, and fail-fast ones were aborted
// before.
fn failing_fast_and_holding_differ_in_an_outage(near: &Namespace) {
    let wire = Wire::new(near);
    make_impatient(near);
    let _timeouts = attach("[[flow]]\nport = 1001\nhold = \"1h\"\n[[flow]]\nport = 1002\nfail_fast = \"1 s\"");
    let mut pairs = [1001, 1002, 1003].map(|port| wire.connect(near, port));
    wire.cut(true);
    let cut_at = now();
    for (ours, _) in &mut pairs {
        ours.write_all(b"into the dark").unwrap();
    }
    let [(held, held_peer), (fast, _fast_peer), (plain, _plain_peer)] = &mut pairs;
    assert_eq!(fast.read(&mut [0]).unwrap_err().kind(), ErrorKind::TimedOut);
    let fast_after = now().saturating_since(cut_at);
    assert_eq!(plain.read(&mut [0]).unwrap_err().kind(), ErrorKind::TimedOut);
    let plain_after = now().saturating_since(cut_at);
    assert!(fast_after >= Duration::from_secs(1) && fast_after < plain_after, "{fast_after} {plain_after}");
    assert!(plain_after >= Duration::from_secs(3), "{plain_after}");
    sleep(StdDuration::from_secs(4));
    wire.cut(false);
    let mut text = [0; 13];
    held_peer.read_exact(&mut text).unwrap();
    assert_eq!(&text, b"into the dark");
    held_peer.write_all(b"x").unwrap();
    held.read_exact(&mut [0]).unwrap();
}

/// The peer's application does not read for longer than the connection is held without a peer.
// Claim: A hold shortens neither the life of a connection with an answered closed window nor keep-alive.
// Tests: `user_timeouts::keep_alive_is_not_cut_short`,
// `tests::a_hold_is_never_below_what_the_kernel_would_do_and_failing_fast_is`
fn a_window_that_is_shut_and_answered_is_no_outage(near: &Namespace) {
    let wire = Wire::new(near);
    let options = UserTimeoutOptions { pass_interval: Duration::from_secs(1), ..UserTimeoutOptions::default() };
    let rules = "[[flow]]\nport = 1001\nhold = \"4 s\"\n[[flow]]\nport = 1002\nfail_fast = \"4 s\"";
    let mut timeouts = UserTimeouts::attach(now(), policy(rules), &options).unwrap();
    let (mut held, mut held_peer) = wire.connect(near, 1001);
    let (mut fast, _fast_peer) = wire.connect(near, 1002);
    let written = [&mut held, &mut fast].map(|stream| {
        stream.set_io_timeout(Duration::from_millis(500)).unwrap();
        std::iter::from_fn(|| stream.write(&[7; 65_536]).ok()).sum::<usize>()
    });
    let until = now() + Duration::from_secs(12);
    drive(&mut timeouts, |_| now() > until);
    for stream in [&held, &fast] {
        stream.set_io_timeout(LIMIT).unwrap();
    }
    assert_eq!(fast.read(&mut [0]).unwrap_err().kind(), ErrorKind::TimedOut);
    // The window opens, and all data arrive.
    let mut received = vec![0; written[0]];
    held_peer.read_exact(&mut received).unwrap();
    assert!(received.iter().all(|byte| *byte == 7) && !received.is_empty());
    // Now the time runs again.
    drive(&mut timeouts, |_| user_timeout(&held) == secs(4));
    held.shutdown_write().unwrap();
}

/// A user timeout also applies to keep-alive, and ends the connection at the first unanswered probe.
fn keep_alive_is_not_cut_short(near: &Namespace) {
    let wire = Wire::new(near);
    let (ours, _peer) = wire.connect(near, 1001);
    let keep_alive = socket2::TcpKeepalive::new()
        .with_time(StdDuration::from_secs(100))
        .with_interval(StdDuration::from_secs(10))
        .with_retries(5);
    socket2::SockRef::from(&ours).set_tcp_keepalive(&keep_alive).unwrap();
    let mut timeouts = attach("[[flow]]\nport = 1001\nhold = \"60 s\"");
    assert_eq!(user_timeout(&ours), secs(150));
    timeouts.set_policy(now(), policy("[[flow]]\nport = 1001\nhold = \"200 s\"")).unwrap();
    assert_eq!(user_timeout(&ours), secs(200));
    timeouts.set_policy(now(), policy("[[flow]]\nport = 1001\nfail_fast = \"60 s\"")).unwrap();
    assert_eq!(user_timeout(&ours), secs(60));
}

/// Programs end with the process, timeouts stay, and the next agent recognizes them.
// Claim: SIGKILL leaves no program behind; the next agent knows the former settings.
fn nothing_is_left_of_an_agent_that_was_killed(near: &Namespace) {
    let wire = Wire::new(near);
    let killed = OtherProcess::agent("[[flow]]\nport = [1001, 1002]\nhold = \"1h\"");
    let (one, _one_peer) = wire.connect(near, 1001);
    let (two, _two_peer) = wire.connect(near, 1002);
    assert_eq!(user_timeout(&one), secs(3600));
    killed.kill();
    // The kernel removes programs asynchronously.
    let deadline = now() + LIMIT;
    while user_timeout(&wire.connect(near, 1001).0).is_some() {
        assert!(now() < deadline, "a program outlived its process");
        sleep(StdDuration::from_millis(10));
    }
    assert_eq!(user_timeout(&one), secs(3600));
    let next = attach("[[flow]]\nport = 1001\nfail_fast = \"5 s\"");
    assert_eq!((user_timeout(&one), user_timeout(&two)), (secs(5), None));
    assert_eq!(next.counters().unwrap().applications_own, 0);
}

// Claim: The settings of all connections can be restored.
fn everything_can_be_given_back(near: &Namespace) {
    let wire = Wire::new(near);
    let own = SocketOptions { user_timeout: Some(Duration::from_secs(77)), ..options() };
    let to = SocketAddr::new(FAR.parse().unwrap(), 1002);
    let (replaced, _replaced_peer) = wire.connect_with(near, to, &own);
    let (changed, _changed_peer) = wire.connect(near, 1001);
    let timeouts = attach("[[flow]]\nport = [1001, 1002]\nhold = \"1h\"\nreplace = true");
    let (new, _new_peer) = wire.connect(near, 1001);
    changed.set_user_timeout(Duration::from_secs(88)).unwrap();
    assert_eq!((user_timeout(&replaced), user_timeout(&new)), (secs(3600), secs(3600)));
    timeouts.restore().unwrap();
    assert_eq!(user_timeout(&replaced), Some(Duration::from_secs(77)));
    assert_eq!(user_timeout(&new), None);
    assert_eq!(user_timeout(&changed), Some(Duration::from_secs(88)), "set by the application meanwhile");
    assert_eq!(user_timeout(&wire.connect(near, 1001).0), None);
}

/// The kernel has room for two tables, and a new one overwrites the one that is not in use.
// Claim: The kernel applies the whole table of the policy in force, rules in order, and nothing of former tables.
fn the_kernel_has_the_policys_table(_near: &Namespace) {
    use KernelVerdict::{DependsOnOwner, NoRule, Rule};

    let full: String = (1..=128).map(|port| format!("[[flow]]\nlocal_port = {port}\nhold = \"1h\"\n")).collect();
    let short = r#"
        [[flow]]
        port = [1, 2]
        remote = "10.0.0.0/8"
        process = "nobody"
        hold = "1h"
        [[flow]]
        remote = "fd00::/8"
        fail_fast = "9 s"
        [[flow]]
        local_port = 128
        remote = "loopback"
        leave_alone = true
        [[flow]]
        remote = ["fd00::2", "127.0.0.1"]
        hold = "2h"
        "#;
    let connections = [
        ("192.0.2.1:1", "10.0.0.1:9"),
        ("192.0.2.1:128", "10.0.0.1:9"),
        ("192.0.2.1:129", "10.0.0.1:2"),
        ("[fd00::1]:200", "[fd00::2]:9"),
        ("127.0.0.1:128", "127.0.0.1:9"),
    ];
    let of_full = [Rule(0), Rule(127), NoRule, NoRule, NoRule];
    let of_short = [DependsOnOwner(0), NoRule, DependsOnOwner(0), Rule(1), Rule(2)];
    let mut timeouts = attach("");
    for (rules, expected) in
        [(&full[..], of_full), (short, of_short), (short, of_short), ("", [NoRule; 5]), (&full[..], of_full)]
    {
        timeouts.set_policy(now(), policy(rules)).unwrap();
        let verdicts = connections.map(|(local, remote)| {
            let connection = Connection { local: local.parse().unwrap(), remote: remote.parse().unwrap() };
            timeouts.decide_for_test(connection).unwrap()
        });
        assert_eq!(verdicts, expected, "{rules}");
    }
}

fn the_patience_of_the_kernel_is_read(near: &Namespace) {
    sysctl::set(near, "net.ipv4.tcp_retries2", "15").unwrap();
    assert_eq!(kernel_patience().unwrap(), Duration::from_secs(16 * 120));
    make_impatient(near);
    assert_eq!(kernel_patience().unwrap(), Duration::from_secs(4 * 120));
}
