//! Tests of the gateway between real kernels, in separate network namespaces: a fixed host, the gateway with its daemon as a separate
//! process, a link that can be cut, and a mobile host. The hosts run nothing but their kernels.
//!
//! They need the right to make network namespaces and to load eBPF programs, which is root's; those of a cluster need etcd, and some of them bird or keepalived;
//! those with firewalls and address translation need nft. Without that each test says why it did not run; with `HOLDOVER_REQUIRE_NAMESPACES=1` in the environment that is a failure.

#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "these tests are about sockets and threads")]

mod absences;
mod cluster;
mod conntrack;
mod crashes;
mod echo;
mod ecn;
mod endings;
mod fast_open;
mod flow_modes;
mod fragments;
mod full_buffer;
mod handoff;
mod hold_back;
mod hosts;
mod limits;
mod modes;
mod multipath;
mod nat;
mod nft;
mod one_way;
mod options;
mod plain;
mod prefixes;
mod presence;
mod process;
mod removal;
mod routing;
mod series;
mod signed;
mod split;
mod thesis;
mod unmodified;
mod watch;
mod wireguard;

use std::process::ExitCode;

use holdover_gatewayd::config::Config;
use holdover_gatewayd::features;
use holdover_testbed::gateway::find_etcd;
use holdover_testbed::harness::{Harness, Test};

/// Tests at a time, unless the command line says otherwise. They wait for timers most of the time.
const TESTS_AT_A_TIME: usize = 12;

fn main() -> ExitCode {
    if let Some(code) = process::role() {
        return code;
    }
    let harness = Harness::start(TESTS_AT_A_TIME).needs(can_work);
    let with_etcd = harness.clone().needs(|| find_etcd().map(|_| ()));
    let with_bird = with_etcd.clone().needs(|| routing::find_bird().map(drop));
    let with_keepalived = with_etcd.clone().needs(|| routing::find_keepalived().map(drop));
    let with_nft = harness.clone().needs(nft::find);
    // Those with the longest tests first.
    let groups = [
        (&harness, "fast_open", fast_open::TESTS),
        (&harness, "handoff", handoff::TESTS),
        (&harness, "signed", signed::TESTS),
        (&harness, "multipath", multipath::TESTS),
        (&harness, "crashes", crashes::TESTS),
        (&harness, "absences", absences::TESTS),
        (&with_nft, "absences", absences::HOLES),
        (&harness, "fragments", fragments::TESTS),
        (&with_nft, "nat", nat::TESTS),
        (&with_bird, "routing", routing::OSPF),
        (&with_keepalived, "routing", routing::VRRP),
        (&with_etcd, "cluster", cluster::TESTS),
        (&harness, "hold_back", hold_back::TESTS),
        (&harness, "removal", removal::TESTS),
        (&harness, "limits", limits::TESTS),
        (&harness, "presence", presence::TESTS),
        (&harness, "prefixes", prefixes::TESTS),
        (&harness, "echo", echo::TESTS),
        (&harness, "wireguard", wireguard::TESTS),
        (&harness, "modes", modes::TESTS),
        (&harness, "endings", endings::TESTS),
        (&harness, "plain", plain::TESTS),
        (&harness, "split", split::TESTS),
        (&with_nft, "conntrack", conntrack::TESTS),
        (&with_nft, "options", options::TESTS),
        (&harness, "ecn", ecn::TESTS),
        (&harness, "full_buffer", full_buffer::TESTS),
        (&harness, "one_way", one_way::TESTS),
        (&harness, "series", series::TESTS),
        (&harness, "flow_modes", flow_modes::TESTS),
        (&harness, "thesis", thesis::TESTS),
    ];
    harness.run(groups.into_iter().flat_map(|(harness, group, tests)| harness.group(group, tests)).collect())
}

fn can_work() -> Result<(), String> {
    let missing = features::examine(&Config::default()).into_iter().find(|feature| feature.needed && !feature.fine);
    missing.map_or(Ok(()), |feature| Err(format!("{}: {}", feature.name, feature.found)))
}
