//! Writing and reading again gives the same scenario, and no input causes a panic.

use holdover_scenario::{Builtin, NoFiles, Override, Scenario};
use holdover_sim::World;
use proptest::prelude::*;

/// Every field of a link, a flow and a stack.
const FULL: &str = r#"
title = "Everything"
description = "All fields"
seed = 42
time_limit = "1 min"
stack = { profile = "linux-6-cubic", mss = "1400 bytes", window_scale = 7, sack = true, dsack = false, paws = "linux-duplicates", ecn = "request", fast_open = "cookie", timestamps = "1 ms", user_timeout = "30 s" }

[[host]]
name = "a"
stack = "reno-bsd"
identity = { delay = "2 s", esp = "aes-128-cbc", associate = "first-packet", retransmit_after = "300 ms", retries = 7 }

[[host]]
name = "b"
identity = {}

[[host]]
name = "m"

[host.stack.send]
buffer = "1 MiB"
max_buffer = "2 MiB"
nagle = false
minshall = true
window_update = "larger-or-zero"
silly_window_override = "200 ms"
defer_bursts = false

[host.stack.receive]
buffer = "64 KiB"
max_buffer = "1 MiB"
growth = "linux-2.6"
initial_window = "none"
ack = { policy = "adaptive", quick_acks = 4, min = "40 ms", max = "200 ms" }
beyond_window = "whole-if-read"
quick_while_growing = true
compress_sacks = false

[host.stack.mtu_probing]
when = "after-black-hole"
base_mss = "1000 bytes"
floor_mss = "100 bytes"
min_mss = "64 bytes"
interval = "1 min"
threshold = "16 bytes"

[host.stack.accurate_ecn]
option = "minimum"
beacons = 4
fallback = false
rules = "rfc9768"

[host.stack.recovery]
with_sack = "rack"
without_sack = "newreno"
dup_ack_threshold = 3
reduction = "proportional"
limited_transmit = true
repair_ahead = false
loss_probe = true
frto = true
undo = true
bar_after_timeout = true
cut_on_each_timeout = false
dup_ack_needs_new_sack = false
max_reordering = 100
zero_window = "freeze"

[host.stack.congestion]
algorithm = "reno"
initial_window = "rfc3390"
counting = "per-ack"
increase = "every-ack"
syn_retransmissions_forgiven = 1
ssthresh_basis = "flight-size"
validate_after_idle = true
restart_after_idle = false
hystart = false
hystart_variant = "rfc9406"
pacing = { slow_start_percent = 150, avoidance_percent = 110 }
max_window = "20 segments"

[host.stack.rto]
initial = "1 s"
min = "200 ms"
max = "60 s"
tick = "10 ms"
estimator = "rfc6298"
one_sample_per_window = false

[host.stack.persist]
min = "200 ms"
max = "60 s"
payload = "one-byte"
give_up_after = 15

[host.stack.limits]
syn_retries = 6
r1 = 3
r2 = "time of 15 retries"
keep_alive = { idle = "10 s", interval = "1 s", probes = 3 }
time_wait = "60 s"
fin_wait_2 = "60 s"
challenge_acks_per_second = 100
invalid_ack_interval = "500 ms"

[host.stack.user_timeout]
timeout = "none"
advertise = "30 s"
changeable = true
lower_limit = "1 s"
upper_limit = "1 h"
covers_zero_window = true

[[router]]
name = "r"

[router.mechanisms]
mobiles = ["m"]
hears_links = true
gateway = { mode = "buffer-freeze", hold_back = false, mobile_bytes = "1 MB", total_bytes = "8 MB", longest = "30 s", rate = "50 Mbit/s", burst_bytes = "15 kB", sign = "ip-flag", burst = 3, longest_warning = "5 s" }

[[router]]
name = "t"

[[link]]
name = "ar"
between = ["a", "r"]
rate = "10 Mbit/s"
overhead = "18 bytes"
delay = "25 ms"
jitter = { amplitude = "2 ms", distribution = "normal", reorder = true }
queue_limit = "75 packets"
loss = { good_to_bad = "0.1 %", bad_to_good = "25 %", loss_in_bad = "90 %", loss_in_good = "0.01 %" }
duplicate = "0.1 %"
corrupt = "0.1 %"
reorder = { probability = "1 %", gap = 5 }
codel = { target = "5 ms", interval = "100 ms", ecn = true }
ce_threshold = "20 ms"
compression = { tcp = "40 %", udp = "50 %", other = "90 %", header = "4 bytes" }
forward = { rate = "5 Mbit/s", loss = "0.5 %", jitter = "1 ms" }
backward = { queue_limit = "64 KiB", reorder = "1 %" }

[link.outages]
connected = { distribution = "normal", mean = "10 s", deviation = "1 s" }
disconnected = { distribution = "exponential", mean = "500 ms" }
first_at = "3 s"
count = 5
queued = "lost"
in_flight = "corrupted"

[[link]]
name = "rb"
between = ["r", "b"]
outages = { list = [{ at = "5 s", for = "1 s" }, { at = "7 s", until = "8 s" }] }

[[link]]
name = "rt"
between = ["r", "t"]
outages = { connected = "20 s", disconnected = { distribution = "uniform", min = "10 ms", max = "20 ms" } }

[[cell]]
name = "c"
base = "t"
range = "100 m"
x = "-5 m"
y = "0.5 km"
queue_limit = "20 packets"
host_queue_limit = "64 KiB"
on_leave = "hand-back"
beacons = { first = "100 ms", interval = "500 ms" }

[cell.medium]
data_rate = "11 Mbit/s"
basic_rate = "1 Mbit/s"
slot = "20 us"
sifs = "10 us"
plcp = "96 us"
cw_min = 31
cw_max = 1023
header = "36 bytes"
rts_threshold = "2347 bytes"
retry_limit = 7
contention = "drawn"

[[mobile]]
host = "m"
selection = "strongest"
prediction = { margin = "5 %" }
path = { stops = [{ x = "0 m", y = "500 m", pause = "2 s" }, { x = "50 m", y = "500 m" }], speed = "5 km/h", depart_at = "1 s", repeat = "back-and-forth" }

[mobile.registration]
gateway = "r"
tunnel_overhead = "20 bytes"
retransmit_after = "500 ms"
retransmit_at_most = "8 s"
on = "every-beacon"
tell_old_base = true

[[flow]]
name = "bulk"
from = "b"
to = "m"
opener = "m"
bulk = "300 kB"
start = "1 s"
count = 3
spacing = "100 ms"
ipv6 = true
stack = "linux-2.4"
from_stack = { congestion = "reno" }
to_stack = { receive = { ack = "immediate" } }

[[flow]]
name = "ask"
from = "a"
to = "b"
request_response = { request = "100 bytes", response = "1 kB", think = "100 ms", count = 10 }

[[flow]]
name = "noise"
from = "b"
to = "a"
on_off = { rate = "100 kbit/s", datagram = "200 bytes", mean_on = "500 ms", mean_off = "500 ms", shape = 1.7 }

[[variant]]
name = "one"
description = "First"

[[variant]]
name = "two.2"
set = { "link.*.delay" = "3 ms", "flow.bulk.stack.rto.min" = "1 s", "cell.c.range" = "90 m" }

[sweep]
axis = [
    { path = "link.ar.rate", label = "rate", values = ["1 Mbit/s", "2 Mbit/s"] },
    { path = "flow.bulk.count", range = { from = 1, to = 9, step = 4 } },
]
replicate = { relative_error = "5 %", of = { metric = "net_duration", flow = "bulk" }, min = 3, max = 10 }
compare = { baseline = "one", with = ["two.2"], of = { metric = "goodput" } }

[output]
captures = ["a", "m"]
capture_format = "pcap"
snap_length = "128 bytes"
sample_every = "50 ms"
events = false
plots = ["cwnd", "rtt"]
"#;

fn read(text: &str) -> Scenario {
    Scenario::parse("test.toml", text, NoFiles).unwrap_or_else(|error| panic!("{}", error.report(Default::default())))
}

fn assert_same(one: &Scenario, other: &Scenario) {
    assert_eq!(one.variants().len(), other.variants().len());
    for (one, other) in one.variants().iter().zip(other.variants()) {
        assert_eq!(one.name(), other.name());
        assert_eq!(one.world(7), other.world(7));
    }
    assert_eq!((one.title(), one.seed(), one.output()), (other.title(), other.seed(), other.output()));
    assert_eq!((one.description(), one.sweep()), (other.description(), other.sweep()));
}

#[test]
fn the_normal_form_is_the_same_scenario() {
    let scenario = read(FULL);
    let text = scenario.to_toml();
    let again = read(&text);
    assert_same(&scenario, &again);
    assert_eq!(again.to_toml(), text, "the normal form of the normal form is itself");
}

#[test]
fn the_normal_form_of_every_example_is_the_same_scenario() {
    for builtin in Builtin::ALL {
        let scenario = builtin.scenario().unwrap();
        let again = Scenario::parse("again.toml", &scenario.to_toml(), *builtin).unwrap();
        assert_same(&scenario, &again);
    }
}

#[test]
fn changes_are_part_of_the_normal_form() {
    let changes =
        ["seed=9", "link.ar.forward.rate=1 Mbit/s", "flow.ask.request_response.think=\"1 s\"", "stack.sack=false"];
    let changes: Vec<Override> = changes.iter().map(|change| Override::parse(change).unwrap()).collect();
    let scenario = read(FULL).with(&changes).unwrap();
    assert_eq!(scenario.seed(), 9);
    assert_same(&scenario, &read(&scenario.to_toml()));
    let world = scenario.variants()[0].world(1).unwrap();
    assert_eq!(world.links[0].forward.rate, holdover_link::Rate::Fixed(holdover_base::BitRate::from_mbps(1)));
    assert!(!world.flows.iter().any(|flow| flow.name == "ask" && flow.receiver.sack));
}

#[test]
fn a_point_of_a_sweep_is_the_scenario_with_its_values() {
    let scenario = read(FULL);
    let sweep = scenario.sweep().unwrap();
    let points: Vec<_> = sweep.points().collect();
    assert_eq!((points.len(), sweep.len()), (6, 6));
    let labels: Vec<Vec<&str>> =
        points.iter().map(|point| point.labels.iter().map(|label| label.value.as_str()).collect()).collect();
    assert_eq!(labels[..4], [["1 Mbit/s", "1"], ["1 Mbit/s", "5"], ["1 Mbit/s", "9"], ["2 Mbit/s", "1"]]);
    assert_eq!((points[3].labels[0].axis.as_str(), points[3].labels[0].number), ("rate", Some(2e6)));
    for point in &points {
        let at = scenario.at(point).unwrap();
        assert!(at.sweep().is_none());
        let with = scenario.with(&point.overrides).unwrap();
        assert_eq!(at.variants()[1].world(3), with.variants()[1].world(3));
        let world = at.variants()[0].world(3).unwrap();
        let count = point.labels[1].number.unwrap() as usize;
        assert_eq!(world.flows.len(), count + 2);
    }
}

#[test]
fn seeds_of_runs_differ_and_begin_with_the_scenarios_own() {
    let scenario = read(FULL);
    assert_eq!(scenario.replication_seed(0), 42);
    let seeds: std::collections::BTreeSet<u64> = (0..100).map(|run| scenario.replication_seed(run)).collect();
    assert_eq!(seeds.len(), 100);
}

/// A change at some position of a text.
#[derive(Clone, Debug)]
enum Mutation {
    Delete(usize, usize),
    Insert(usize, String),
    SwapLines(usize, usize),
    DropLine(usize),
    CopyLine(usize, usize),
}

fn mutation() -> impl Strategy<Value = Mutation> {
    let pieces = proptest::sample::select(vec![
        "\"",
        "[",
        "]",
        "{",
        "}",
        "=",
        ".",
        "*",
        "0",
        "-1",
        "9999999999",
        "1e308",
        "nan",
        "%",
        " ms",
        "packets",
        "true",
        "\n",
        "[[flow]]",
        "name",
        "none",
        "\"0 s\"",
        "é",
        "\u{0}",
        "#",
        "stack",
        "unlimited",
        "link.*.rate",
    ]);
    prop_oneof![
        (any::<usize>(), 1..30_usize).prop_map(|(at, len)| Mutation::Delete(at, len)),
        (any::<usize>(), pieces).prop_map(|(at, piece)| Mutation::Insert(at, piece.to_owned())),
        (any::<usize>(), any::<usize>()).prop_map(|(a, b)| Mutation::SwapLines(a, b)),
        any::<usize>().prop_map(Mutation::DropLine),
        (any::<usize>(), any::<usize>()).prop_map(|(from, to)| Mutation::CopyLine(from, to)),
    ]
}

fn mutate(text: &str, mutation: &Mutation) -> String {
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let count = lines.len().max(1);
    let boundary = |at: usize| {
        let mut at = at % (text.len() + 1);
        while !text.is_char_boundary(at) {
            at -= 1;
        }
        at
    };
    match mutation {
        Mutation::Delete(at, len) => {
            let start = boundary(*at);
            let end = boundary((start + len).min(text.len()));
            return format!("{}{}", &text[..start], &text[end.max(start)..]);
        }
        Mutation::Insert(at, piece) => {
            let at = boundary(*at);
            return format!("{}{piece}{}", &text[..at], &text[at..]);
        }
        _ if lines.is_empty() => {}
        Mutation::SwapLines(a, b) => lines.swap(a % count, b % count),
        Mutation::DropLine(at) => drop(lines.remove(at % count)),
        Mutation::CopyLine(from, to) => lines.insert(to % count, lines[from % count].clone()),
    }
    lines.join("\n") + "\n"
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    /// A mutated file is rejected with a position, or is valid: then the simulator accepts it.
    #[test]
    fn a_spoilt_file_never_panics(start in 0..=Builtin::ALL.len(), mutations in proptest::collection::vec(mutation(), 1..5)) {
        let original = Builtin::ALL.get(start).map_or(FULL, |builtin| builtin.text);
        let text = mutations.iter().fold(original.to_owned(), |text, change| mutate(&text, change));
        let files = Builtin::ALL.get(start).copied().unwrap_or(Builtin::ALL[0]);
        match Scenario::parse("test.toml", &text, files) {
            Ok(scenario) => {
                for variant in scenario.variants() {
                    let world = variant.world(scenario.seed()).unwrap();
                    prop_assert!(World::new(world).is_ok(), "{text}");
                }
                let again = Scenario::parse("again.toml", &scenario.to_toml(), files).unwrap();
                prop_assert_eq!(again.to_toml(), scenario.to_toml());
            }
            Err(error) => {
                prop_assert!(!error.message.is_empty());
                prop_assert!(!error.report(Default::default()).is_empty());
                prop_assert!(error.location.line <= text.lines().count() + 1 || error.named_at.is_some());
            }
        }
    }

    /// Any text for `--set`.
    #[test]
    fn an_override_never_panics(path in "[a-z_.*0-9\"]{0,20}|link\\.(radio|\\*|0)\\.[a-z_]{0,8}(\\.[a-z]{0,5})?", value in "[ -~]{0,12}") {
        let scenario = read(FULL);
        if let Ok(change) = Override::parse(&format!("{path}={value}"))
            && let Ok(changed) = scenario.with(&[change])
        {
            prop_assert!(Scenario::parse("again.toml", &changed.to_toml(), NoFiles).is_ok());
        }
    }
}
