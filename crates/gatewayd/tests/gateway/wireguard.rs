//! Peers of a WireGuard interface on a kernel that has it.

use std::net::{IpAddr, UdpSocket};
use std::thread::sleep;
use std::time::Duration;

use holdover_testbed::gateway::MOBILE_FACING;
use holdover_testbed::{Namespace, Netlink, wireguard};

use crate::Test;
use crate::handoff::wait_for;
use crate::process::Gateway;

pub(crate) const TESTS: &[Test] = &[("a_peer_that_does_not_answer_is_away_until_its_next_handshake_and_moves", peers)];

const UNDER: &str = "under0";
const PORT: u16 = 51820;

// Claim: On a kernel with WireGuard (`.ci/kernels`), where it is the only source: a peer that is idle for 40 s stays present (not
// run yet), one whose link is gone is away within 20 s, its return is known from the handshake that the router's kernel begins,
// and another endpoint is reported.
fn peers(_: &Namespace) {
    let [router, host] = ["router", "mobile"].map(|name| Namespace::new(name).unwrap());
    if let Err(error) = router.enter(|| wireguard::add(MOBILE_FACING)).unwrap() {
        let is_required = std::env::var_os("HOLDOVER_REQUIRE_WIREGUARD").is_some_and(|value| value == "1");
        assert!(!is_required, "this kernel has no WireGuard: {error}");
        eprintln!("skipped: this kernel has no WireGuard (HOLDOVER_REQUIRE_WIREGUARD=1 makes this a failure): {error}");
        return;
    }
    host.enter(|| wireguard::add("wg0")).unwrap().unwrap();
    let inside = |namespace: &Namespace, body: &(dyn Fn(&mut Netlink) + Sync)| {
        namespace.enter(|| body(&mut Netlink::open(namespace).unwrap())).unwrap();
    };
    inside(&router, &|netlink| {
        netlink.add_veth(UNDER, UNDER, &host).unwrap();
        netlink.set_up(UNDER).unwrap();
        netlink.add_address(UNDER, [192, 0, 2, 1].into(), 24).unwrap();
    });
    inside(&host, &|netlink| {
        netlink.set_up(UNDER).unwrap();
        netlink.add_address(UNDER, [192, 0, 2, 7].into(), 24).unwrap();
    });
    let [near, far]: [IpAddr; 2] = [[10, 2, 0, 1].into(), [10, 2, 0, 7].into()];
    let of_router = router.enter(|| wireguard::set_up(MOBILE_FACING, [1; 32], PORT)).unwrap().unwrap();
    let of_host = host.enter(|| wireguard::set_up("wg0", [2; 32], PORT)).unwrap().unwrap();
    // The router learns the endpoint from the first handshake.
    router.enter(|| wireguard::add_peer(MOBILE_FACING, of_host, None, (far, 32))).unwrap().unwrap();
    let endpoint = Some(([192, 0, 2, 1], PORT).into());
    host.enter(|| wireguard::add_peer("wg0", of_router, endpoint, (near, 32))).unwrap().unwrap();
    for (namespace, interface, address) in [(&router, MOBILE_FACING, near), (&host, "wg0", far)] {
        inside(namespace, &|netlink| {
            netlink.add_address(interface, address, 24).unwrap();
            netlink.set_up(interface).unwrap();
        });
    }
    let bind = |namespace: &Namespace, address: IpAddr, peer: IpAddr| {
        let socket = namespace.enter(move || UdpSocket::bind((address, 9000)).unwrap()).unwrap();
        socket.connect((peer, 9000)).unwrap();
        socket.set_nonblocking(true).unwrap();
        socket
    };
    let (from, into) = (bind(&router, near, far), bind(&host, far, near));
    // Without echo requests.
    let gateway =
        Gateway::start(&router, "[presence]\nsilence = false\nneighbours = false\nwireguard_silence = \"11 s\"\n");
    let reports = |presence: &str| {
        let reports = gateway.mobile(far).into_iter().flat_map(|line| line.reports);
        reports.into_iter().any(|report| report.source == "wireguard" && report.presence == presence)
    };
    wait_for("the mobile host", || {
        into.send(b"here").unwrap();
        sleep(Duration::from_millis(100));
        gateway.mobile(far)
    });
    // An idle peer: the router's kernel sends it a keep-alive after 10 s, which is not answered.
    sleep(Duration::from_secs(40));
    assert!(!reports("away"), "{:?}", gateway.mobile(far));
    assert_eq!(gateway.mobile(far).unwrap().standing, "present");
    inside(&host, &|netlink| netlink.set_down(UNDER).unwrap());
    gateway.says_after(far, "away", || {
        // The link below is down: the packet is lost there.
        let _ = from.send(b"lost");
    });
    assert_eq!(gateway.mobile(far).unwrap().away_by, ["wireguard"]);
    from.send(b"kept").unwrap();
    wait_for("a packet that waits", || (gateway.status().waiting >= 1).then_some(()));
    // The mobile host sends nothing by itself; the router's kernel begins a handshake every 5 s.
    inside(&host, &|netlink| {
        netlink.set_up(UNDER).unwrap();
        netlink.ensure_address(UNDER, [192, 0, 2, 7].into(), 24).unwrap();
    });
    let took = gateway.says(far, "present");
    assert!(reports("present"), "{:?}", gateway.mobile(far));
    let mut buffer = [0; 16];
    wait_for("what has waited", || into.recv(&mut buffer).ok().filter(|&len| &buffer[..len] == b"kept"));
    eprintln!("back {took:?} after its link");
    // It moves to another address below.
    inside(&host, &|netlink| {
        // The kernel removes further addresses of a network with the first one.
        netlink.remove_address(UNDER, [192, 0, 2, 7].into(), 24).unwrap();
        netlink.add_address(UNDER, [192, 0, 2, 8].into(), 24).unwrap();
    });
    wait_for("its other endpoint", || {
        let _ = into.send(b"here");
        sleep(Duration::from_millis(100));
        reports("rebound").then_some(())
    });
    assert!(gateway.status().reports.wireguard >= 3, "{:?}", gateway.status().reports);
}
