//! Addresses that are translated on the way: by the gateway's router itself, towards fixed hosts or towards mobile hosts, and
//! by a mobile host for the network behind it. Each translating router drops what fits no connection.

use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::Duration;

use holdover_testbed::Namespace;
use holdover_testbed::gateway::{MOBILE_FACING, World};

use crate::Test;
use crate::conntrack::{be_strict, has_refused_nothing, over_absences};
use crate::hosts::{SOON, connect, join, route, set, transfer};
use crate::process::Gateway;

pub(crate) const TESTS: &[Test] = &[
    ("mobile_hosts_are_translated_for_fixed_hosts", |_| MODES.into_iter().for_each(towards_fixed_hosts)),
    ("fixed_hosts_are_translated_for_mobile_hosts", |_| MODES.into_iter().for_each(towards_mobile_hosts)),
    ("hosts_behind_a_mobile_host_are_translated", |_| MODES.into_iter().for_each(behind_a_mobile_host)),
    ("ports_of_the_router_are_translated_to_mobile_hosts", |_| MODES.into_iter().for_each(forwarded_port)),
];

const MODES: [&str; 3] = ["buffer", "m-tcp", "split"];

const ROUND_TRIP: holdover_base::Duration = holdover_base::Duration::from_millis(40);

const ABSENCE: Duration = Duration::from_millis(1500);

/// The router's addresses towards the fixed host and towards mobile hosts.
const FIXED_FACING: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 1, 0, 1));
const ROUTER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 2, 0, 1));

/// The host behind a mobile host, and the mobile host's address there.
const INNER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 7, 0, 2));
const INNER_ROUTER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 7, 0, 1));

/// Translates the source addresses of connections that leave by an interface, and drops what fits none.
fn translate(router: &Namespace, interface: &str) {
    let chain = format!(
        "chain leaving {{
            type nat hook postrouting priority srcnat
            oifname \"{interface}\" masquerade
        }}"
    );
    be_strict(router, &chain);
}

fn start(world: &World, mode: &str) -> Gateway {
    Gateway::start(world.router(), &format!("[mobiles]\nmode = \"{mode}\"\n"))
}

// Claim: With address translation (masquerading, and `ct state invalid drop`) on the gateway's router towards fixed hosts or
// towards mobile hosts, and on a mobile host for a host behind it, transfers in both directions over absences of 1.5 s go on,
// byte-exact, with `buffer`, `m-tcp` and `split`, and nothing is dropped as invalid; the same for a router's port that is forwarded to a mobile host.
// With `split` connections that are translated to an address of the router towards mobile hosts pass unsplit.
// Needs `nft`.
// Tests: `nat::towards_mobile_hosts`, `nat::behind_a_mobile_host`, `nat::forwarded_port`
fn towards_fixed_hosts(mode: &str) {
    let world = World::with_round_trip(1, ROUND_TRIP).unwrap();
    translate(world.router(), "fix0");
    let gateway = start(&world, mode);
    let transfers = [false, true].map(|is_upload| {
        let (near, far) = connect(world.mobile(0), world.fixed(), world.fixed_address());
        assert_eq!(far.peer_addr().unwrap().ip(), FIXED_FACING);
        transfer((near, far), is_upload)
    });
    over_absences(&world, &gateway, transfers, ABSENCE);
    has_refused_nothing(world.router());
    followed(&gateway, mode);
}

/// To the gateway's programs the router itself is the fixed host.
fn towards_mobile_hosts(mode: &str) {
    let world = World::with_round_trip(1, ROUND_TRIP).unwrap();
    translate(world.router(), MOBILE_FACING);
    let gateway = start(&world, mode);
    let transfers = [true, false].map(|is_download| {
        let (far, near) = connect(world.fixed(), world.mobile(0), world.mobile_address(0));
        assert_eq!(near.peer_addr().unwrap().ip(), ROUTER);
        transfer((near, far), !is_download)
    });
    over_absences(&world, &gateway, transfers, ABSENCE);
    has_refused_nothing(world.router());
    if let Some(split) = gateway.status().split {
        assert_eq!((split.total, split.unanswered), (0, 0), "the router is one of their ends: {split:?}");
        return;
    }
    followed(&gateway, mode);
}

fn behind_a_mobile_host(mode: &str) {
    let world = World::with_round_trip(1, ROUND_TRIP).unwrap();
    let (mobile, inner) = (world.mobile(0), Namespace::new("inner").unwrap());
    join([(mobile, "in0", INNER_ROUTER), (&inner, "eth0", INNER)]);
    set(mobile, "net.ipv4.ip_forward", "1");
    route(&inner, ([0; 4].into(), 0), INNER_ROUTER, "eth0");
    translate(mobile, "eth0");
    let gateway = start(&world, mode);
    let transfers = [false, true].map(|is_upload| {
        let (near, far) = connect(&inner, world.fixed(), world.fixed_address());
        assert_eq!(far.peer_addr().unwrap().ip(), world.mobile_address(0));
        transfer((near, far), is_upload)
    });
    over_absences(&world, &gateway, transfers, ABSENCE);
    has_refused_nothing(mobile);
    followed(&gateway, mode);
}

/// The fixed host connects to an address of the router, which is translated to the mobile host's.
fn forwarded_port(mode: &str) {
    let world = World::with_round_trip(1, ROUND_TRIP).unwrap();
    let mobile = world.mobile_address(0);
    let chain = format!(
        "chain forwarded {{
            type nat hook prerouting priority dstnat
            ip daddr {FIXED_FACING} dnat to {mobile}
        }}"
    );
    be_strict(world.router(), &chain);
    let gateway = start(&world, mode);
    // It is known by its packets.
    world
        .mobile(0)
        .enter(|| UdpSocket::bind((mobile, 0)).unwrap().send_to(b"here", (world.fixed_address(), 9)))
        .unwrap()
        .unwrap();
    gateway.says(mobile, "present");
    let transfers = [true, false].map(|is_download| {
        let listener = world.mobile(0).enter(|| TcpListener::bind((mobile, 0)).unwrap()).unwrap();
        let to = SocketAddr::new(FIXED_FACING, listener.local_addr().unwrap().port());
        let near = world.fixed().enter(|| TcpStream::connect_timeout(&to, SOON).unwrap()).unwrap();
        let (far, client) = listener.accept().unwrap();
        assert_eq!(client.ip(), world.fixed_address());
        transfer((near, far), !is_download)
    });
    over_absences(&world, &gateway, transfers, ABSENCE);
    has_refused_nothing(world.router());
    followed(&gateway, mode);
}

/// The connections were followed, with the same addresses in both directions.
#[track_caller]
fn followed(gateway: &Gateway, mode: &str) {
    let status = gateway.status();
    if let Some(split) = status.split {
        assert_eq!((split.total, split.unanswered, split.reset), (2, 0, 0), "{split:?}");
        return;
    }
    assert!(status.path.lowered + status.path.withheld > 0 && status.buffer.released > 0, "{mode}: {status:?}");
    assert!(mode == "buffer" || status.woken.frozen > 0 && status.woken.reopened > 0, "{mode}: {status:?}");
}
