//! The sockets of probes of next hops.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::os::fd::AsRawFd as _;
use std::time::{Duration, Instant};

use holdover_agent::link_watch::neighbour_probe::{NeighbourProbe, Reply};
use holdover_testbed::{Namespace, Netlink};

use crate::Test;
use crate::iproute::{ip, ip_says};

pub(crate) const TESTS: &[Test] =
    &[("a_probe_that_is_not_sent_closes_no_socket", a_probe_that_is_not_sent_closes_no_socket)];

// Claim: A probe of a next hop that cannot be sent closes no socket; the same socket serves when the interface is up again, and is closed
// when the interface is gone.
fn a_probe_that_is_not_sent_closes_no_socket(namespace: &Namespace) {
    let far = Namespace::new("far").unwrap();
    Netlink::open(namespace).unwrap().add_veth("up0", "far0", &far).unwrap();
    far.enter(|| {
        ip("link set far0 up");
        ip("address add 192.0.2.1/24 dev far0");
    })
    .unwrap();
    ip("link set up0 up");
    ip("address add 192.0.2.7/24 dev up0");
    let index: u32 = ip_says("-oneline link show up0").split(':').next().unwrap().parse().unwrap();
    let next_hop: IpAddr = [192, 0, 2, 1].into();
    let mut probe = NeighbourProbe::open().unwrap();
    let ask = |probe: &mut NeighbourProbe| probe.ask(index, next_hop, &BTreeSet::new(), true);
    let sockets = |probe: &NeighbourProbe| probe.descriptors().map(|socket| socket.as_raw_fd()).collect::<Vec<_>>();
    let answers = |probe: &mut NeighbourProbe| {
        let patience = Instant::now() + Duration::from_secs(30);
        while probe.poll_reply() != Some(Reply { index, address: next_hop }) {
            assert!(Instant::now() < patience, "no answer");
            // The first one after the interface is up again fails with the socket's pending error.
            let _ = ask(probe);
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    answers(&mut probe);
    let first = sockets(&probe);
    assert_eq!(first.len(), 2);
    ip("link set up0 down");
    for _ in 0..3 {
        ask(&mut probe).unwrap_err();
    }
    assert_eq!(sockets(&probe), first);
    ip("link set up0 up");
    while probe.poll_reply().is_some() {}
    answers(&mut probe);
    assert_eq!(sockets(&probe), first);
    ip("link del up0");
    ask(&mut probe).unwrap_err();
    assert_eq!(sockets(&probe), [] as [i32; 0]);
}
