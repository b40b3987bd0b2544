//! Several uplinks: the default route moves from one to the other while data flows.

use std::io::Read as _;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread::sleep;
use std::time::{Duration, Instant};

use holdover_agent::link_watch::{LinkCondition, Source};
use holdover_testbed::{Namespace, Netlink, sysctl};

use crate::Test;
use crate::iproute::ip;
use crate::lan::{Agent, Beyond, INTERFACE, Lan, NO_BUS, Stream, connect_bound};

pub(crate) const TESTS: &[Test] = &[
    ("transfers_continue_when_the_default_route_moves", transfers_continue_when_the_default_route_moves),
    ("transfers_continue_by_the_table_of_their_address", transfers_continue_by_the_table_of_their_address),
    ("connections_end_with_the_address_of_their_uplink", connections_end_with_the_address_of_their_uplink),
];

/// The other uplink, to the same router.
const OTHER: &str = "up1";

/// A default route over the other uplink that is better than that of the first.
const BETTER: &str = "default via 203.0.113.1 dev up1 metric 50";

/// The longest pause of a transfer whose address stays, on a busy machine. A sender's timeout is 200 ms at least.
const LONGEST_PAUSE: Duration = Duration::from_millis(900);

const NOTICED_WITHIN: Duration = Duration::from_secs(2);

/// Two uplinks to a router, and a server behind it. The default route is over the first uplink.
fn joined(near: &Namespace) -> (Lan, Beyond) {
    let lan = Lan::new(near, "192.0.2.", 24);
    let beyond = Beyond::new(near, &lan, 0);
    Netlink::open(near).unwrap().add_veth(OTHER, "gw1", &lan.gateway).unwrap();
    let configure = |namespace: &Namespace, interface: &str, last: u8| {
        // A packet may leave by one uplink, and its answer arrive by the other.
        for name in ["all", "default"] {
            sysctl::set(namespace, &format!("net.ipv4.conf.{name}.rp_filter"), "0").unwrap();
        }
        ip(&format!("address add 203.0.113.{last}/24 dev {interface}"));
        ip(&format!("link set {interface} up"));
    };
    lan.gateway.enter(|| configure(&lan.gateway, "gw1", 1)).unwrap();
    configure(near, OTHER, 7);
    ip(&format!("route del default via 192.0.2.1 dev {INTERFACE}"));
    ip(&format!("route add default via 192.0.2.1 dev {INTERFACE} metric 100"));
    (lan, beyond)
}

fn condition(agent: &Agent, interface: &str) -> (LinkCondition, Vec<Source>) {
    let links = agent.status().links;
    let link = links.into_iter().find(|link| link.interface == interface).expect("a managed link");
    assert_eq!(link.problem, None);
    (link.state, link.objections)
}

#[track_caller]
fn await_condition(agent: &Agent, interface: &str, expected: (LinkCondition, Vec<Source>)) {
    let began = Instant::now();
    while condition(agent, interface) != expected {
        assert!(began.elapsed() < NOTICED_WITHIN, "{interface} is {:?}", condition(agent, interface));
        sleep(Duration::from_millis(10));
    }
}

/// The longest pause of each stream in the three seconds after an event.
fn pauses(streams: &[Stream], event: impl FnOnce()) -> Vec<Duration> {
    event();
    let began = Instant::now();
    let mut last: Vec<(u64, Instant)> = streams.iter().map(|stream| (stream.received(), began)).collect();
    let mut longest = vec![Duration::ZERO; streams.len()];
    while began.elapsed() < Duration::from_secs(3) {
        sleep(Duration::from_millis(2));
        for ((stream, last), longest) in streams.iter().zip(&mut last).zip(&mut longest) {
            *longest = (*longest).max(last.1.elapsed());
            if stream.received() > last.0 {
                *last = (stream.received(), Instant::now());
            }
        }
    }
    longest
}

fn both_ways(beyond: &Beyond) -> [Stream; 2] {
    let streams = [false, true].map(|is_upload| Stream::start_to(&beyond.server, beyond.address, is_upload));
    streams.iter().for_each(|stream| stream.await_more(500_000));
    streams
}

#[track_caller]
fn continue_after(streams: &[Stream], what: &str, event: impl FnOnce()) {
    let pauses = pauses(streams, event);
    eprintln!("{what}: the longest pauses are {pauses:?}");
    assert!(pauses.iter().all(|pause| *pause < LONGEST_PAUSE), "{what}: {pauses:?}");
}

// Claim: When the default route moves to another uplink and back, transfers whose address stays continue, with a pause of less than
// 0.9 s: packets of one direction then use one uplink, and those of the other the other one. The former uplink has lost its route (`route`),
// and counts as up while it delivers packets. With a table and a rule for each address both uplinks stay up. Connections whose address is gone end by
// `address_gone`, also those that are bound to its interface; those on the other uplink continue.
// Tests: `uplinks::transfers_continue_by_the_table_of_their_address`, `uplinks::connections_end_with_the_address_of_their_uplink`
fn transfers_continue_when_the_default_route_moves(near: &Namespace) {
    let (_lan, beyond) = joined(near);
    let agent = Agent::start_with(near, "uplinks", NO_BUS, &[INTERFACE, OTHER], "");
    let mut streams = Vec::from(both_ways(&beyond));
    for round in 0..2 {
        continue_after(&streams, "to the other uplink", || ip(&format!("route add {BETTER}")));
        // It still delivers packets.
        await_condition(&agent, INTERFACE, (LinkCondition::Up, vec![Source::Route]));
        await_condition(&agent, OTHER, (LinkCondition::Up, vec![]));
        if round == 0 {
            streams.extend(both_ways(&beyond));
        }
        continue_after(&streams, "back", || ip(&format!("route del {BETTER}")));
        await_condition(&agent, INTERFACE, (LinkCondition::Up, vec![]));
    }
    let addresses: Vec<String> = streams.iter().map(|it| it.connection().local.ip().to_string()).collect();
    assert_eq!(addresses, ["192.0.2.7", "192.0.2.7", "203.0.113.7", "203.0.113.7"]);
    streams.iter().for_each(Stream::end);
}

fn transfers_continue_by_the_table_of_their_address(near: &Namespace) {
    let (_lan, beyond) = joined(near);
    for (network, interface, table) in [("192.0.2", INTERFACE, 100), ("203.0.113", OTHER, 101)] {
        ip(&format!("rule add from {network}.7 table {table}"));
        ip(&format!("route add default via {network}.1 dev {interface} table {table}"));
    }
    let agent = Agent::start_with(near, "tables", NO_BUS, &[INTERFACE, OTHER], "");
    let streams = both_ways(&beyond);
    let are_up = || {
        [INTERFACE, OTHER].iter().for_each(|it| assert_eq!(condition(&agent, it), (LinkCondition::Up, vec![]), "{it}"));
    };
    continue_after(&streams, "to the other uplink", || ip(&format!("route add {BETTER}")));
    are_up();
    continue_after(&streams, "back", || ip(&format!("route del {BETTER}")));
    are_up();
    streams.iter().for_each(Stream::end);
}

fn connections_end_with_the_address_of_their_uplink(near: &Namespace) {
    let (_lan, beyond) = joined(near);
    let more = "[connections]\naddress_gone = \"end\"\naddress_grace = \"1s\"\n";
    let _agent = Agent::start_with(near, "uplink-gone", NO_BUS, &[INTERFACE, OTHER], more);
    let listener = beyond.server.enter(|| TcpListener::bind(SocketAddr::new(beyond.address, 0)).unwrap()).unwrap();
    let mut old = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let _far = listener.accept().unwrap();
    let [mut bound, _bound_far] = connect_bound(&listener);
    ip(&format!("route add {BETTER}"));
    let streams = both_ways(&beyond);
    old.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
    assert_eq!(old.read(&mut [0]).unwrap_err().raw_os_error(), Some(libc::EAGAIN), "its address stays");
    let gone_at = Instant::now();
    continue_after(&streams, "without the first uplink", || ip(&format!("address del 192.0.2.7/24 dev {INTERFACE}")));
    for ended in [&mut old, &mut bound] {
        ended.set_read_timeout(Some(Duration::from_secs(4))).unwrap();
        assert_eq!(
            ended.read(&mut [0]).unwrap_err().raw_os_error(),
            Some(libc::ECONNABORTED),
            "{:?}",
            gone_at.elapsed()
        );
    }
    streams.iter().for_each(Stream::end);
}
