//! Kernel parameters belong to their namespace, and take effect there.

use std::net::Ipv4Addr;

use holdover_base::Duration;
use holdover_testbed::{
    Congestion, KernelListener, KernelStream, Namespace, Netlink, SocketOptions, SysctlError, sysctl,
};

use crate::Test;

pub(crate) const TESTS: &[Test] = &[
    ("values_are_the_namespaces_own", values_are_the_namespaces_own),
    ("values_take_effect", values_take_effect),
    ("bad_names_and_values_are_refused", bad_names_and_values_are_refused),
];

fn values_are_the_namespaces_own(namespace: &Namespace) {
    let settings = [
        ("net.ipv4.tcp_sack", "0"),
        ("net.ipv4.tcp_timestamps", "0"),
        ("net.ipv4.tcp_window_scaling", "0"),
        ("net.ipv4.tcp_congestion_control", "reno"),
        ("net.ipv4.tcp_rmem", "4096\t65536\t131072"),
        ("net.ipv6.conf.default.accept_dad", "0"),
    ];
    let other = Namespace::new("other").unwrap();
    for (name, value) in settings {
        let before = other.enter(|| sysctl::get(&other, name).unwrap()).unwrap();
        assert_ne!(before, value, "{name}: the test must change something");
        sysctl::set(namespace, name, &value.replace('\t', " ")).unwrap();
        assert_eq!(sysctl::get(namespace, name).unwrap(), value, "{name}");
        assert_eq!(other.enter(|| sysctl::get(&other, name).unwrap()).unwrap(), before, "{name}");
    }
}

/// `tcpi_options` shows the negotiated options: 1 timestamps, 2 SACK, 4 window scale.
fn values_take_effect(namespace: &Namespace) {
    Netlink::open(namespace).unwrap().set_up("lo").unwrap();
    let names = ["net.ipv4.tcp_timestamps", "net.ipv4.tcp_sack", "net.ipv4.tcp_window_scaling"];
    let options = SocketOptions::new(Congestion::Reno);
    for setting in 0..8_u8 {
        for (bit, name) in names.into_iter().enumerate() {
            sysctl::set(namespace, name, if setting & 1 << bit == 0 { "0" } else { "1" }).unwrap();
        }
        let listener = KernelListener::bind(namespace, (Ipv4Addr::LOCALHOST, 0).into(), &options).unwrap();
        let address = listener.local_addr().unwrap();
        let client = KernelStream::connect(namespace, address, &options, Duration::from_secs(10)).unwrap();
        let server = listener.accept(Duration::from_secs(10)).unwrap();
        for side in [client, server] {
            assert_eq!(side.tcp_info().unwrap().tcpi_options & 7, setting);
        }
    }
}

fn bad_names_and_values_are_refused(namespace: &Namespace) {
    let set = |name, value| sysctl::set(namespace, name, value);
    assert!(matches!(set("net.ipv4.tcp_no_such_thing", "1"), Err(SysctlError::Unknown { .. })));
    assert!(matches!(set("net.ipv4.tcp_window_scaling", "many"), Err(SysctlError::Value { .. })));
    assert!(matches!(set("kernel.hostname", "x"), Err(SysctlError::Name { .. })));
    assert!(matches!(set("net.ipv4.tcp_congestion_control", "no-such-algorithm"), Err(SysctlError::Unknown { .. })));
}
