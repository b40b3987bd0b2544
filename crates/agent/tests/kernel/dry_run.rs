//! A dry run changes nothing and reports its intentions.

use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr, TcpListener, TcpStream};

use holdover_agent::daemon::{DryEngine, DryRun};
use holdover_agent::link_watch::LinkChange;
use holdover_agent::path_engine::{Attach as _, PathEngine as _};
use holdover_host::clock;
use holdover_mobility::wake::WakeConfig;
use holdover_mobility::{Connection, LinkEvent};
use holdover_testbed::{Namespace, Netlink};

use crate::Test;

pub(crate) const TESTS: &[Test] = &[(
    "connections_excluded_by_a_rule_are_not_reported_as_woken",
    connections_excluded_by_a_rule_are_not_reported_as_woken,
)];

const ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 1);

fn connections_excluded_by_a_rule_are_not_reported_as_woken(namespace: &Namespace) {
    let mut netlink = Netlink::open(namespace).unwrap();
    netlink.set_up("lo").unwrap();
    netlink.add_address("lo", IpAddr::V4(ADDRESS), 32).unwrap();
    let listener = TcpListener::bind((ADDRESS, 0)).unwrap();
    let mut calls = [(); 2].map(|()| TcpStream::connect(listener.local_addr().unwrap()).unwrap());
    // Unread data: in flight when the link broke.
    calls.iter_mut().for_each(|call| call.write_all(b"unread").unwrap());
    let ends = |call: &TcpStream| Connection { local: call.local_addr().unwrap(), remote: call.peer_addr().unwrap() };
    let [alone, other] = [ends(&calls[0]), ends(&calls[1])];
    let mut engine = DryRun.attach("lo", &WakeConfig::default()).unwrap();
    let have_actions = |engine: &mut DryEngine| {
        engine.handle_link(clock::now(), LinkChange::of_both(LinkEvent::Fading { lead: None }));
        engine.handle_link(clock::now(), LinkChange::of_both(LinkEvent::Down));
        engine.handle_link(clock::now(), LinkChange::of_both(LinkEvent::Up { symmetric: false, moved: false }));
        let actions: Vec<_> = std::iter::from_fn(|| engine.poll_action()).collect();
        [alone, other].map(|connection| actions.iter().any(|action| action.connection == connection))
    };
    assert_eq!(have_actions(&mut engine), [true, true]);
    engine.leave_alone(alone, true);
    assert_eq!(have_actions(&mut engine), [false, true]);
    let known = engine.connections(clock::now());
    let is_alone = |connection| known.iter().find(|known| known.connection == connection).unwrap().is_exempt;
    assert_eq!([alone, other].map(is_alone), [true, false]);
    engine.leave_alone(alone, false);
    assert_eq!(have_actions(&mut engine), [true, true]);
}
