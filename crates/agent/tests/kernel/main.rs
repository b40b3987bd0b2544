//! Tests of the agent with the kernel, in separate network namespaces.
//!
//! They need the privileges to create network namespaces and to load eBPF programs, as root has. Without them each test
//! prints why it did not run; with `HOLDOVER_REQUIRE_NAMESPACES=1` in the environment that is a failure.

#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "these tests are about sockets and threads")]

mod address_gone;
mod agents;
mod bus;
mod containers;
mod dad;
mod dry_run;
mod engine;
mod families;
mod first_data;
mod flapping;
mod gateway;
mod iproute;
mod lan;
mod late;
mod link_watch;
mod logind;
mod modem;
mod neighbour_probe;
mod other_process;
mod returns;
mod silent_keys;
mod stacked;
mod uplinks;
mod user_timeouts;
mod wire;

use std::process::ExitCode;

use holdover_testbed::harness::{Harness, Test};

/// Tests at a time, unless the command line says otherwise. They wait for timers most of the time.
const TESTS_AT_A_TIME: usize = 12;

fn main() -> ExitCode {
    if let Some(code) = other_process::role() {
        return code;
    }
    let harness = Harness::start(TESTS_AT_A_TIME).needs(user_timeouts::can_load);
    // Those with the longest tests first.
    let groups = [
        ("flapping", flapping::TESTS),
        ("late", late::TESTS),
        ("gateway", gateway::TESTS),
        ("engine", engine::TESTS),
        ("address_gone", address_gone::TESTS),
        ("agents", agents::TESTS),
        ("containers", containers::TESTS),
        ("dad", dad::TESTS),
        ("dry_run", dry_run::TESTS),
        ("families", families::TESTS),
        ("returns", returns::TESTS),
        ("first_data", first_data::TESTS),
        ("link_watch", link_watch::TESTS),
        ("neighbour_probe", neighbour_probe::TESTS),
        ("logind", logind::TESTS),
        ("modem", modem::TESTS),
        ("silent_keys", silent_keys::TESTS),
        ("stacked", stacked::TESTS),
        ("uplinks", uplinks::TESTS),
        ("user_timeouts", user_timeouts::TESTS),
    ];
    harness.run(groups.into_iter().flat_map(|(group, tests)| harness.group(group, tests)).collect())
}
