//! Kernel notifications about links.

use std::net::IpAddr;
use std::time::{Duration, Instant as WallInstant};

use holdover_agent::link_watch::kernel::{Change, Interfaces};
use holdover_agent::link_watch::netlink::Monitor;
use holdover_agent::link_watch::{Arbiter, LinkChange, Signal};
use holdover_host::clock;
use holdover_testbed::{Namespace, Netlink, Route};

use crate::Test;
use crate::iproute::{can_ip, ip, lacks_kind};

pub(crate) const TESTS: &[Test] = &[
    ("an_uplink_that_goes_and_comes_is_told_as_such", an_uplink_that_goes_and_comes),
    ("a_default_route_of_another_table_counts", a_default_route_of_another_table_counts),
    ("the_best_route_is_the_links_that_has_it", the_best_route_is_the_links_that_has_it),
    ("a_macvlan_goes_with_the_interface_below", a_macvlan_goes_with_the_interface_below),
    ("a_vlan_goes_with_the_interface_below", a_vlan_goes_with_the_interface_below),
];

/// A monitor, its events, and the resulting state.
struct Watch {
    monitor: Monitor,
    interfaces: Interfaces,
    arbiter: Arbiter,
    signals: Vec<String>,
    reported: Vec<String>,
}

impl Watch {
    fn open() -> Self {
        let mut monitor = Monitor::open().unwrap();
        let mut interfaces = Interfaces::new();
        monitor.take_snapshot(clock::now(), &mut interfaces).unwrap();
        Self { monitor, interfaces, arbiter: Arbiter::new(), signals: Vec::new(), reported: Vec::new() }
    }

    /// Waits for all of these events of `up0`, in any order; returns the events for the mechanisms.
    #[track_caller]
    fn hears(&mut self, expected: &[&str]) -> Vec<String> {
        let patience = WallInstant::now() + Duration::from_secs(30);
        loop {
            let now = clock::now();
            self.monitor.handle_ready(now, &mut self.interfaces).unwrap();
            while let Some(change) = self.interfaces.poll_change() {
                self.note(change);
            }
            let mut signals = self.signals.clone();
            signals.sort();
            if signals == expected {
                self.signals.clear();
                return std::mem::take(&mut self.reported);
            }
            assert!(WallInstant::now() < patience, "{signals:?} instead of {expected:?}");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    fn note(&mut self, change: Change) {
        match change {
            Change::Appeared { interface, is_eligible } if &*interface == "up0" => {
                self.signals.push(if is_eligible { "eligible" } else { "there" }.to_owned());
            }
            Change::Disappeared { interface } if &*interface == "up0" => self.signals.push("gone".to_owned()),
            Change::Signal(signal) if &*signal.interface == "up0" => {
                let Signal { event, families, source, at, .. } = &signal;
                self.signals.push(format!("{source} {}", LinkChange { families: *families, event: *event }));
                self.reported.extend(self.arbiter.handle_signal(*at, &signal).iter().map(ToString::to_string));
            }
            _ => {}
        }
    }
}

fn an_uplink_that_goes_and_comes(namespace: &Namespace) {
    let mut netlink = Netlink::open(namespace).unwrap();
    let far = Namespace::new("far").unwrap();
    let mut watch = Watch::open();
    netlink.add_veth("up0", "far0", &far).unwrap();
    far.enter(|| Netlink::open(&far).unwrap().set_up("far0").unwrap()).unwrap();
    assert_eq!(watch.hears(&["carrier down", "there"]), ["down"]);

    netlink.set_up("up0").unwrap();
    assert_eq!(watch.hears(&["carrier up"]), ["up"]);
    let address: IpAddr = [192, 0, 2, 7].into();
    let route = || Route {
        destination: (IpAddr::from([0, 0, 0, 0]), 0),
        next_hop: Some([192, 0, 2, 1].into()),
        link: "up0".to_owned(),
        source: None,
    };
    netlink.add_address("up0", address, 24).unwrap();
    netlink.add_route(&route()).unwrap();
    assert_eq!(watch.hears(&["eligible"]), [] as [&str; 0]);

    // Set down it loses its route, which the kernel does not report, and keeps its address.
    netlink.set_down("up0").unwrap();
    assert_eq!(watch.hears(&["carrier down", "route down"]), ["down"]);
    netlink.set_up("up0").unwrap();
    assert_eq!(watch.hears(&["carrier up"]), [] as [&str; 0]);
    netlink.add_route(&route()).unwrap();
    assert_eq!(watch.hears(&["route up"]), ["up"]);

    // A later monitor gets the same state.
    let mut later = Watch::open();
    assert_eq!(later.hears(&["eligible"]), [] as [&str; 0]);
    assert_eq!(later.interfaces.addresses("up0").filter(IpAddr::is_ipv4).collect::<Vec<_>>(), [address]);
}

// Claim: Default routes of other tables, rules and metrics as the kernel tells them.
// Tests: `link_watch::the_best_route_is_the_links_that_has_it`
fn a_default_route_of_another_table_counts(namespace: &Namespace) {
    let far = Namespace::new("far").unwrap();
    Netlink::open(namespace).unwrap().add_veth("up0", "far0", &far).unwrap();
    far.enter(|| Netlink::open(&far).unwrap().set_up("far0").unwrap()).unwrap();
    ip("link set up0 up");
    ip("address add 192.0.2.7/24 dev up0");
    let mut watch = Watch::open();
    watch.hears(&["there"]);
    ip("route add default via 192.0.2.1 dev up0 table 4711");
    ip("rule add from 198.51.100.0/24 table 4711");
    assert_eq!(watch.hears(&["eligible"]), [] as [&str; 0]);
    ip("rule del from 198.51.100.0/24 table 4711");
    assert_eq!(watch.hears(&["route down"]), ["down"]);
    ip("rule add fwmark 7 table 4711");
    assert_eq!(watch.hears(&["route up"]), ["up"]);
    // A later monitor gets the same state.
    assert_eq!(Watch::open().hears(&["eligible"]), [] as [&str; 0]);
    // As wg-quick does; the rule by itself leads nowhere.
    ip("rule add table 4712 suppress_prefixlength 0");
    ip("route add default via 192.0.2.1 dev up0 table 4712");
    ip("route del default table 4711");
    assert_eq!(watch.hears(&["route down"]), ["down"]);
}

fn the_best_route_is_the_links_that_has_it(namespace: &Namespace) {
    let far = Namespace::new("far").unwrap();
    let mut watch = Watch::open();
    for (index, name) in ["up0", "up1"].into_iter().enumerate() {
        Netlink::open(namespace).unwrap().add_veth(name, &format!("far{index}"), &far).unwrap();
        far.enter(|| Netlink::open(&far).unwrap().set_up(&format!("far{index}")).unwrap()).unwrap();
        ip(&format!("link set {name} up"));
        ip(&format!("address add 192.0.{index}.7/24 dev {name}"));
    }
    ip("route add default via 192.0.0.1 dev up0 metric 600");
    watch.hears(&["carrier down", "carrier up", "eligible", "there"]);
    ip("route add default via 192.0.1.1 dev up1 metric 100");
    assert_eq!(watch.hears(&["route down"]), ["down"]);
    ip("route del default via 192.0.1.1 dev up1 metric 100");
    assert_eq!(watch.hears(&["route up"]), ["up"]);
}

// Claim: A macvlan, and a VLAN where the kernel has them, goes with the interface below.
// Tests: `link_watch::a_vlan_goes_with_the_interface_below`
fn a_macvlan_goes_with_the_interface_below(namespace: &Namespace) {
    goes_with_the_interface_below(namespace, "macvlan mode bridge");
}

fn a_vlan_goes_with_the_interface_below(namespace: &Namespace) {
    goes_with_the_interface_below(namespace, "vlan id 5");
}

fn goes_with_the_interface_below(namespace: &Namespace, kind: &str) {
    let far = Namespace::new("far").unwrap();
    Netlink::open(namespace).unwrap().add_veth("base0", "far0", &far).unwrap();
    let plug = |state: &str| far.enter(|| ip(&format!("link set far0 {state}"))).unwrap();
    plug("up");
    ip("link set base0 up");
    if let Err(error) = can_ip(&format!("link add link base0 name up0 type {kind}")) {
        assert!(lacks_kind(&error), "{error}");
        eprintln!("skipped: this kernel has no {kind}");
        return;
    }
    ip("link set up0 up");
    let mut watch = Watch::open();
    assert_eq!(watch.hears(&["there"]), [] as [&str; 0]);
    plug("down");
    assert_eq!(watch.hears(&["carrier down", "lower down"]), ["down"]);
    plug("up");
    assert_eq!(watch.hears(&["carrier up", "lower up"]), ["up"]);
}
