//! Tunnels follow the link below: it loses its carrier, which the tunnel's interface does not show.

use std::net::IpAddr;
use std::thread::sleep;
use std::time::{Duration, Instant};

use holdover_agent::link_watch::{LinkState, Source};
use holdover_testbed::{Namespace, wireguard};

use crate::Test;
use crate::iproute::ip;
use crate::lan::{Agent, INTERFACE, Lan, NO_BUS, Stream, resumes};

pub(crate) const TESTS: &[Test] = &[
    ("a_vxlan_tunnel_follows_the_link_that_carries_it", a_vxlan_tunnel_follows_the_link_that_carries_it),
    ("wireguard_follows_the_link_that_carries_it", wireguard_follows_the_link_that_carries_it),
];

const TUNNEL: &str = "tunnel0";

/// A server's retransmission timer that has expired 3 s after the cut expires again 3 s later.
const CUT: Duration = Duration::from_millis(3300);

/// Without the agent data come some 3 s after the carrier.
const RESUMES_WITHIN: Duration = Duration::from_millis(500);

// Claim: A tunnel (VXLAN; WireGuard where the kernel has it) whose carrying link loses its carrier for 3.3 s, and is not looked
// after: down by `lower`, and the download in it resumes within 500 ms of the carrier.
// Tests: `stacked::wireguard_follows_the_link_that_carries_it`
fn a_vxlan_tunnel_follows_the_link_that_carries_it(near: &Namespace) {
    let lan = Lan::new(near, "192.0.2.", 24);
    let add = |remote: &str| ip(&format!("link add {TUNNEL} type vxlan id 3 remote {remote} dstport 4789"));
    add("192.0.2.1");
    lan.gateway.enter(|| add("192.0.2.7")).unwrap();
    follows_the_link_below(near, &lan);
}

fn wireguard_follows_the_link_that_carries_it(near: &Namespace) {
    let lan = Lan::new(near, "192.0.2.", 24);
    if wireguard::add(TUNNEL).is_err() {
        let is_required = std::env::var_os("HOLDOVER_REQUIRE_WIREGUARD").is_some_and(|value| value == "1");
        assert!(!is_required, "this kernel has no WireGuard");
        eprintln!("skipped: this kernel has no WireGuard (HOLDOVER_REQUIRE_WIREGUARD=1 makes this a failure)");
        return;
    }
    lan.gateway.enter(|| wireguard::add(TUNNEL)).unwrap().unwrap();
    let keys = [1, 2].map(|byte| [byte; 32]);
    let near_public = wireguard::set_up(TUNNEL, keys[0], 51820).unwrap();
    let far_public = lan.gateway.enter(|| wireguard::set_up(TUNNEL, keys[1], 51820)).unwrap().unwrap();
    let all = ([0; 4].into(), 0);
    wireguard::add_peer(TUNNEL, far_public, Some(([192, 0, 2, 1], 51820).into()), all).unwrap();
    let add_near = || wireguard::add_peer(TUNNEL, near_public, Some(([192, 0, 2, 7], 51820).into()), all);
    lan.gateway.enter(add_near).unwrap().unwrap();
    follows_the_link_below(near, &lan);
}

fn follows_the_link_below(near: &Namespace, lan: &Lan) {
    let configure = |last: u8| {
        ip(&format!("address add 10.9.0.{last}/24 dev {TUNNEL}"));
        ip(&format!("link set {TUNNEL} up"));
    };
    configure(7);
    lan.gateway.enter(|| configure(1)).unwrap();
    // The link below is not managed.
    let agent = Agent::start_with(near, "stacked", NO_BUS, &[TUNNEL], "");
    let server: IpAddr = [10, 9, 0, 1].into();
    let download = Stream::start_to(&lan.gateway, server, false);
    download.goes_on(1_000_000);
    assert_eq!(agent.state(), (LinkState::Up, vec![]));
    for _ in 0..2 {
        let cut_at = Instant::now();
        lan.plug(false);
        agent.is_down_by(Source::Lower, Duration::from_secs(2));
        sleep(CUT.saturating_sub(cut_at.elapsed()));
        let took = resumes(&download, || lan.plug(true));
        eprintln!("data {took:?} after the carrier of {INTERFACE}");
        assert!(took < RESUMES_WITHIN, "{took:?}");
        assert_eq!(agent.state(), (LinkState::Up, vec![]));
        download.goes_on(500_000);
    }
    download.end();
}
