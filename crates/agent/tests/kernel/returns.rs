//! What comes back in parts: an interface made anew, whose carrier precedes its address and route; a route that was lost alone.

use std::thread::sleep;
use std::time::Duration;

use holdover_agent::link_watch::{LinkCondition, Source};
use holdover_testbed::{Namespace, Netlink};

use crate::Test;
use crate::iproute::ip;
use crate::lan::{Agent, INTERFACE, Lan, Stream, resumes};

pub(crate) const TESTS: &[Test] = &[
    ("an_interface_made_anew_carries_its_connections", an_interface_made_anew_carries_its_connections),
    ("a_lost_route_is_down_until_it_returns", a_lost_route_is_down_until_it_returns),
];

/// A server's retransmission timer that has expired 3 s after the cut expires again 3 s later.
const CUT: Duration = Duration::from_millis(3300);

/// Without the agent data come some 3 s after the route.
const RESUMES_WITHIN: Duration = Duration::from_millis(700);

/// An address of the gateway to which only the default route leads.
const SERVER: &str = "198.51.100.1";

// Claim: An interface is removed and made anew with another Ethernet address: its download resumes within 700 ms of its route.
fn an_interface_made_anew_carries_its_connections(near: &Namespace) {
    let lan = far_server(near);
    let agent = Agent::start(near);
    let download = Stream::start_to(&lan.gateway, SERVER.parse().unwrap(), false);
    download.await_more(2_000_000);
    ip(&format!("link del {INTERFACE}"));
    sleep(CUT);
    Netlink::open(near).unwrap().add_veth(INTERFACE, "near0", &lan.bridge).unwrap();
    ip(&format!("link set {INTERFACE} up"));
    let join = || {
        let mut netlink = Netlink::open(&lan.bridge).unwrap();
        netlink.add_port("br0", "near0").unwrap();
        netlink.set_up("near0").unwrap();
    };
    lan.bridge.enter(join).unwrap();
    // As a DHCP client takes its time.
    sleep(Duration::from_millis(400));
    ip(&format!("address add 192.0.2.7/24 dev {INTERFACE}"));
    let took = resumes(&download, || ip(&format!("route add default via 192.0.2.1 dev {INTERFACE}")));
    eprintln!("data {took:?} after the route");
    assert!(took < RESUMES_WITHIN, "{took:?}");
    agent.says(LinkCondition::Up, RESUMES_WITHIN);
    // The interface is named on the agent's command line: it was not up before it had its route.
    assert_eq!(agent.status().links[0].record.outages, 1);
    download.end();
}

// Claim: The default route goes for 3.3 s and comes back: the link is down meanwhile, although the peer's packets arrive, and a download
// resumes within 700 ms of the route.
fn a_lost_route_is_down_until_it_returns(near: &Namespace) {
    let lan = far_server(near);
    let agent = Agent::start(near);
    let download = Stream::start_to(&lan.gateway, SERVER.parse().unwrap(), false);
    download.await_more(2_000_000);
    ip("route del default");
    sleep(CUT);
    let link = agent.status().links.remove(0);
    assert_eq!((link.state, &link.objections[..]), (LinkCondition::Down, &[Source::Route][..]), "{link:?}");
    let took = resumes(&download, || ip(&format!("route add default via 192.0.2.1 dev {INTERFACE}")));
    eprintln!("data {took:?} after the route");
    assert!(took < RESUMES_WITHIN, "{took:?}");
    agent.says(LinkCondition::Up, RESUMES_WITHIN);
    download.end();
}

fn far_server(near: &Namespace) -> Lan {
    let lan = Lan::new(near, "192.0.2.", 24);
    lan.gateway.enter(|| ip(&format!("address add {SERVER}/32 dev gw0"))).unwrap();
    lan
}
