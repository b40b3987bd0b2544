//! IPv4 and IPv6 of one interface fail independently.

use std::net::IpAddr;
use std::thread::sleep;
use std::time::{Duration, Instant};

use holdover_agent::link_watch::{Family, LinkCondition};
use holdover_agent::status::ActionLine;
use holdover_testbed::Namespace;

use crate::Test;
use crate::iproute::{can_ip, ip};
use crate::lan::{Agent, INTERFACE, Lan, Stream, resumes};

pub(crate) const TESTS: &[Test] = &[
    ("ipv4_goes_and_comes_back_while_ipv6_flows", ipv4_goes_and_comes_back_while_ipv6_flows),
    ("ipv6_goes_and_comes_back_while_ipv4_flows", ipv6_goes_and_comes_back_while_ipv4_flows),
];

/// A server's retransmission timer that has expired 3 s after the cut expires again 3 s later.
const CUT: Duration = Duration::from_millis(3300);

/// Without the agent data come some 3 s after the address.
const RESUMES_WITHIN: Duration = Duration::from_millis(500);

/// The addresses of this host and of the gateway.
const ADDRESSES: [(&str, &str, &str); 2] =
    [("192.0.2.7/24", "192.0.2.1", ""), ("2001:db8::7/64", "2001:db8::1", "-6 ")];

// Claim: The address of one IP version goes for 3.3 s and comes back: its download resumes within 500 ms, and the other version's
// goes on without a pause of 300 ms and without anything done for it.
// Tests: `families::ipv6_goes_and_comes_back_while_ipv4_flows`
fn ipv4_goes_and_comes_back_while_ipv6_flows(near: &Namespace) {
    one_goes(near, Family::Ipv4);
}

fn ipv6_goes_and_comes_back_while_ipv4_flows(near: &Namespace) {
    one_goes(near, Family::Ipv6);
}

fn one_goes(near: &Namespace, family: Family) {
    let lan = Lan::dual(near);
    let agent = Agent::start(near);
    let server = |(_, gateway, _): (&str, &str, &str)| gateway.parse::<IpAddr>().unwrap();
    let (cut, other) = (ADDRESSES[family.index()], ADDRESSES[family.other().index()]);
    let downloads = [cut, other].map(|addresses| Stream::start_to(&lan.gateway, server(addresses), false));
    downloads.iter().for_each(|download| download.await_more(2_000_000));
    let [download, undisturbed] = &downloads;

    let (address, gateway, flag) = cut;
    ip(&format!("address del {address} dev {INTERFACE}"));
    let longest = longest_pause(undisturbed, CUT);
    let link = agent.status().links.remove(0);
    assert_eq!((link.state, &link.families_down[..]), (LinkCondition::Up, &[family][..]), "{link:?}");
    assert_eq!((link.record.outages, link.record.family_outages), (0, 1));
    let took = resumes(download, || {
        ip(&format!("address add {address} dev {INTERFACE}{}", if family == Family::Ipv6 { " nodad" } else { "" }));
        // The IPv6 default route stays while the link has an address.
        let _ = can_ip(&format!("{flag}route add default via {gateway} dev {INTERFACE}"));
    });
    let after = longest_pause(undisturbed, Duration::from_secs(1));
    eprintln!(
        "{family}: data {took:?} after the address; the other version's longest pause {longest:?}, then {after:?}"
    );
    assert!(took < RESUMES_WITHIN, "{took:?}");
    assert!(longest.max(after) < Duration::from_millis(300), "{longest:?}, {after:?}");
    let link = agent.status().links.remove(0);
    assert_eq!((link.state, link.families_down), (LinkCondition::Up, vec![]));
    let touched: Vec<ActionLine> =
        agent.actions().into_iter().filter(|action| action.local == undisturbed.connection().local).collect();
    assert!(touched.is_empty(), "{touched:?}");
    assert!(agent.actions().iter().any(|action| action.local == download.connection().local));
    downloads.iter().for_each(Stream::end);
}

/// The longest time without data during `time`.
fn longest_pause(stream: &Stream, time: Duration) -> Duration {
    let (began, mut longest) = (Instant::now(), Duration::ZERO);
    let (mut seen, mut seen_at) = (stream.received(), began);
    while began.elapsed() < time {
        sleep(Duration::from_millis(1));
        let received = stream.received();
        if received > seen {
            (seen, seen_at) = (received, Instant::now());
        }
        longest = longest.max(seen_at.elapsed());
    }
    longest
}
