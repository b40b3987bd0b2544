//! Namespaces are isolated from each other and from the host, and objects of one namespace are refused in another.

use std::process::Command;

use holdover_testbed::{
    Counters, CountersError, Namespace, NamespaceError, NamespaceId, Netlink, NetlinkError, Route, SysctlError, Tun,
    TunConfig, TunError, run_in_user_namespace, sysctl,
};

use crate::{NESTED, Test, spawn};

pub(crate) const TESTS: &[Test] = &[
    ("is_isolated", is_isolated),
    ("threads_inherit_it", threads_inherit_it),
    ("outlives_its_thread_in_a_handle", outlives_its_thread_in_a_handle),
    ("a_thread_outside_is_refused", a_thread_outside_is_refused),
    ("bad_names_are_refused", bad_names_are_refused),
    ("netlink_errors_name_the_request", netlink_errors_name_the_request),
    ("routes_and_links_follow_requests", routes_and_links_follow_requests),
    ("in_a_user_namespace", in_a_user_namespace),
];

fn is_isolated(namespace: &Namespace) {
    let links = Netlink::open(namespace).unwrap().links().unwrap();
    let names: Vec<_> = links.iter().map(|link| (link.name.as_str(), link.is_up)).collect();
    assert_eq!(names, [("lo", false)]);
    let other = spawn("other", |other| other.id());
    assert_ne!(namespace.id(), other.join().unwrap());
    // The test's own thread, which started this one, stayed in its namespace.
    let process = std::fs::read_link("/proc/self/ns/net").unwrap();
    assert_ne!(std::fs::read_link("/proc/thread-self/ns/net").unwrap(), process);
}

fn threads_inherit_it(namespace: &Namespace) {
    let child = std::thread::spawn(|| NamespaceId::current().unwrap()).join().unwrap();
    assert_eq!(child, namespace.id());
}

fn outlives_its_thread_in_a_handle(_: &Namespace) {
    let made = Namespace::new("kept").unwrap();
    let set_up = made.clone();
    made.enter(|| Netlink::open(&set_up).unwrap().set_up("lo").unwrap()).unwrap();
    let again = made.clone();
    let is_up = made.spawn_inside(move || Netlink::open(&again).unwrap().link("lo").unwrap().is_up).unwrap();
    assert!(is_up.join().unwrap().unwrap(), "the second thread sees what the first one did");
}

fn a_thread_outside_is_refused(namespace: &Namespace) {
    let other = Namespace::new("other").unwrap();
    assert!(matches!(other.require_current(), Err(NamespaceError::NotInside { .. })));
    assert!(matches!(Netlink::open(&other), Err(NetlinkError::Namespace(_))));
    assert!(matches!(Counters::read(&other), Err(CountersError::Namespace(_))));
    assert!(matches!(Tun::open(&other, &TunConfig::new("tun0", 1500)), Err(TunError::Namespace(_))));
    assert!(matches!(sysctl::set(&other, "net.ipv4.tcp_sack", "0"), Err(SysctlError::Namespace(_))));
    namespace.require_current().unwrap();
    let is_refused = other.enter(|| namespace.require_current().is_err()).unwrap();
    assert!(is_refused, "a thread that moved elsewhere is outside");
}

fn bad_names_are_refused(namespace: &Namespace) {
    for name in ["", "a name", "sixteen-letters-", "a/b", "nul\0"] {
        assert!(matches!(Namespace::new(name), Err(NamespaceError::Name { .. })), "{name}");
        assert!(matches!(Tun::open(namespace, &TunConfig::new(name, 1500)), Err(TunError::Name { .. })), "{name}");
    }
}

fn netlink_errors_name_the_request(namespace: &Namespace) {
    let mut netlink = Netlink::open(namespace).unwrap();
    assert!(matches!(netlink.set_up("eth7"), Err(NetlinkError::NoSuchLink { .. })));
    let error = netlink.set_mtu("lo", 1).and_then(|()| netlink.add_address("lo", "127.0.0.1".parse().unwrap(), 99));
    assert!(
        matches!(&error, Err(NetlinkError::Refused { request, .. }) if request.contains("127.0.0.1/99")),
        "{error:?}"
    );
    // The socket is still synchronized after a refusal.
    assert_eq!(netlink.link("lo").unwrap().mtu, 1);
}

fn routes_and_links_follow_requests(namespace: &Namespace) {
    let other = Namespace::new("other").unwrap();
    let mut netlink = Netlink::open(namespace).unwrap();
    netlink.add_veth("left", "right", &other).unwrap();
    netlink.add_address("left", "10.0.0.1".parse().unwrap(), 24).unwrap();
    netlink.add_address("left", "fd00::1".parse().unwrap(), 64).unwrap();
    netlink.set_up("left").unwrap();
    assert!(netlink.link("left").unwrap().is_up);
    for (destination, gateway) in [("192.0.2.0", "10.0.0.2"), ("2001:db8::", "fd00::2")] {
        let destination = (destination.parse().unwrap(), if gateway.contains(':') { 32 } else { 24 });
        let route =
            Route { destination, next_hop: Some(gateway.parse().unwrap()), link: "left".to_owned(), source: None };
        netlink.add_route(&route).unwrap();
        let again = netlink.add_route(&route);
        assert!(matches!(again, Err(NetlinkError::Refused { .. })), "the route is there: {again:?}");
    }
    let default =
        Route { destination: ("0.0.0.0".parse().unwrap(), 0), next_hop: None, link: "left".to_owned(), source: None };
    netlink.add_route(&default).unwrap();
    netlink.set_down("left").unwrap();
    assert!(!netlink.link("left").unwrap().is_up);
    let far = other.enter(|| Netlink::open(&other).unwrap().link("right").unwrap()).unwrap();
    assert_eq!((far.mtu, far.is_up), (1500, false));
}

/// The tests also pass without root's privileges in the initial user namespace: a copy of this program runs them in its own user namespace.
fn in_a_user_namespace(_: &Namespace) {
    if std::env::var_os(NESTED).is_some() {
        let uid_map = std::fs::read_to_string("/proc/self/uid_map").unwrap();
        assert_eq!(uid_map.split_whitespace().next_back(), Some("1"), "one user is mapped: {uid_map}");
        return;
    }
    let mut command = Command::new("/proc/self/exe");
    command.env(NESTED, "1").env("HOLDOVER_REQUIRE_NAMESPACES", "1");
    let output = run_in_user_namespace(&mut command).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains("test result: ok.") && !text.contains("... ignored"), "{text}");
}
