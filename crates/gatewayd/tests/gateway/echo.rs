//! Mobile hosts behind an interface without Ethernet, which are probed by ICMP echo.

use std::net::{IpAddr, UdpSocket};
use std::thread::sleep;
use std::time::{Duration, Instant};

use holdover_gatewayd::control::Standing;
use holdover_testbed::gateway::{MOBILE_FACING, Wire};
use holdover_testbed::{Namespace, Netlink, sysctl};

use crate::Test;
use crate::handoff::wait_for;
use crate::process::Gateway;

pub(crate) const TESTS: &[Test] = &[
    ("a_host_that_answers_echo_requests_is_found_silent_and_back", answers),
    ("the_same_over_ipv6", answers_v6),
    ("a_host_that_answers_none_is_never_found_silent", answers_nothing),
];

/// A router that sends by itself, and a mobile host at the other end of a wire.
struct Place {
    _namespaces: [Namespace; 2],
    wire: Wire,
    gateway: Gateway,
    /// The router's socket and the mobile host's.
    sockets: [UdpSocket; 2],
    mobile: IpAddr,
}

/// Each way takes so long that answers come later than a silence on Ethernet would be noticed.
const DELAY: holdover_base::Duration = holdover_base::Duration::from_millis(150);

impl Place {
    fn new(is_v6: bool, answers: bool) -> Self {
        let namespaces = [Namespace::new("router").unwrap(), Namespace::new("mobile").unwrap()];
        let [router, host] = &namespaces;
        let address = |last: u8| -> IpAddr {
            if is_v6 { [0xfd, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last].into() } else { [10, 2, 0, last].into() }
        };
        let mobile = address(7);
        let ends = [(host, "eth0", mobile), (router, MOBILE_FACING, address(1))];
        let wire = Wire::between(ends, if is_v6 { 64 } else { 24 }, DELAY).unwrap();
        for namespace in &namespaces {
            namespace.enter(|| Netlink::open(namespace).unwrap().set_up("lo").unwrap()).unwrap();
        }
        if !answers {
            host.enter(|| sysctl::set(host, "net.ipv4.icmp_echo_ignore_all", "1").unwrap()).unwrap();
        }
        let bind = |address: IpAddr| move || UdpSocket::bind((address, 9000)).unwrap();
        let sockets = [router.enter(bind(address(1))).unwrap(), host.enter(bind(mobile)).unwrap()];
        sockets[0].connect((mobile, 9000)).unwrap();
        sockets[1].connect((address(1), 9000)).unwrap();
        sockets.iter().for_each(|socket| socket.set_nonblocking(true).unwrap());
        let gateway = Gateway::start(router, "");
        Self { _namespaces: namespaces, wire, gateway, sockets, mobile }
    }

    fn send(&self, count: u8) {
        for number in 0..count {
            self.sockets[0].send(&[number]).unwrap();
        }
    }

    fn hear(&self) {
        self.sockets[1].send(b"here").unwrap();
    }

    /// What the mobile host has received.
    fn received(&self) -> Vec<u8> {
        let mut byte = [0];
        std::iter::from_fn(|| self.sockets[1].recv(&mut byte).ok().map(|_| byte[0])).collect()
    }
}

// Claim: On real kernels, over a wire without Ethernet and with a round trip of 300 ms, IPv4 and IPv6: a mobile host that answers
// echo requests is found silent, and back without sending anything by itself; one that answers none is never found silent. Trials
// become rarer; answers are known by a token.
// Tests: `echo::answers_v6`, `echo::answers_nothing`, `echo::a_host_that_never_answers_is_tried_less_and_less_often`,
// `echo::the_longest_answer_counts_and_decays_and_two_of_them_are_waited_for`, `echo::an_answer_is_known_by_its_token`
fn answers(_: &Namespace) {
    is_found(&Place::new(false, true));
}

fn answers_v6(_: &Namespace) {
    is_found(&Place::new(true, true));
}

fn is_found(place: &Place) {
    let Place { gateway, mobile, .. } = place;
    let within = wait_for("an answer to a trial", || {
        place.hear();
        sleep(Duration::from_millis(50));
        gateway.mobile(*mobile).and_then(|line| line.answers_within_s)
    });
    assert!((0.3..3.0).contains(&within), "{within}");
    // A round trip longer than three probes is no silence.
    for _ in 0..40 {
        place.send(1);
        sleep(Duration::from_millis(50));
        assert_eq!(gateway.mobile(*mobile).unwrap().standing, "present");
    }
    place.wire.set_cut(true);
    sleep(Duration::from_millis(400));
    let began = Instant::now();
    gateway.says_after(*mobile, "away", || place.send(1));
    let took = began.elapsed();
    let line = gateway.mobile(*mobile).unwrap();
    assert_eq!(line.away_by, ["silence"]);
    assert!(line.reports.iter().any(|report| report.source == "silence" && report.presence == "away"), "{line:?}");
    place.received();
    place.send(10);
    wait_for("packets that wait", || (gateway.mobile(*mobile).unwrap().waiting >= 10).then_some(()));
    sleep(Duration::from_secs(1));
    // It sends nothing by itself.
    place.wire.set_cut(false);
    let back = gateway.says(*mobile, "present");
    let mut received = Vec::new();
    wait_for("what has waited", || {
        received.extend(place.received());
        received.ends_with(&(0..10).collect::<Vec<u8>>()).then_some(())
    });
    eprintln!("found silent after {took:?}, and back {back:?} after its return");
}

fn answers_nothing(_: &Namespace) {
    let place = Place::new(false, false);
    let Place { gateway, mobile, .. } = &place;
    wait_for("the mobile host", || {
        place.hear();
        gateway.mobile(*mobile)
    });
    for _ in 0..30 {
        place.hear();
        sleep(Duration::from_millis(50));
    }
    place.wire.set_cut(true);
    for _ in 0..40 {
        place.send(1);
        sleep(Duration::from_millis(50));
    }
    let line = gateway.mobile(*mobile).unwrap();
    assert_eq!((line.standing.as_str(), line.answers_within_s), ("present", None), "{line:?}");
    // Another source counts as ever.
    gateway.report(*mobile, Standing::Away).unwrap();
    gateway.says(*mobile, "away");
}
