//! Two gateways, one behind the other: the mobile hosts of the first one are behind the router of the second.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::ops::Range;
use std::thread::sleep;
use std::time::Duration;

use holdover_testbed::gateway::{Cut, World};
use holdover_testbed::{Namespace, Netlink};

use crate::Test;
use crate::handoff::wait_for;
use crate::hosts::{SOON, connect, join, route, set, transfer};
use crate::process::Gateway;
use crate::watch::Watcher;

pub(crate) const TESTS: &[Test] = &[
    ("transfers_survive_absences_behind_two_gateways", |_| over_absences("buffer", "buffer")),
    ("m_tcp_before_a_gateway_that_buffers", |_| over_absences("m-tcp", "buffer")),
    ("m_tcp_behind_a_gateway_that_buffers", |_| over_absences("buffer", "m-tcp")),
    ("a_host_that_does_not_answer_is_not_away_behind_a_router_that_does", |_| does_not_answer()),
];

/// A server behind the first gateway, which runs in the place of the fixed host.
const SERVER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 9, 0, 2));
const FRONT: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 9, 0, 1));
/// The first gateway's link to the second one's router, and that router's interface.
const FRONT_LINK: &str = "eth0";
const BACK_LINK: &str = "fix0";

struct Series {
    world: World,
    server: Namespace,
}

impl Series {
    fn new(world: World) -> Self {
        let server = Namespace::new("server").unwrap();
        join([(world.fixed(), "srv0", FRONT), (&server, "eth0", SERVER)]);
        set(world.fixed(), "net.ipv4.ip_forward", "1");
        route(&server, ([0; 4].into(), 0), FRONT, "eth0");
        let series = Self { world, server };
        series.route_back();
        series
    }

    /// The second router's way to the server.
    fn route_back(&self) {
        route(self.world.router(), ([10, 9, 0, 0].into(), 24), self.world.fixed_address(), BACK_LINK);
    }

    /// Starts both gateways, with these modes.
    fn start(&self, front: &str, back: &str) -> [Gateway; 2] {
        let sections = format!(
            "[mobiles]\ninterface = \"{FRONT_LINK}\"\nnetworks = [\"10.2.0.0/24\"]\nexclude = [\"10.2.0.1/32\"]\nmode = \"{front}\"\n"
        );
        let front = Gateway::start(self.world.fixed(), &sections);
        [front, Gateway::start(self.world.router(), &format!("[mobiles]\nmode = \"{back}\"\n"))]
    }
}

// Claim: With two gateways on the path, in the modes `buffer` and `buffer`, `m-tcp` and `buffer`, `buffer` and `m-tcp`, downloads
// over absences of 3 s and 1.5 s (carrier) and an upload over one of 1.5 s go on, byte-exact; no ACK that reaches the server
// acknowledges more than the mobile host has by then; and nothing is left at either.
fn over_absences(front: &str, back: &str) {
    let series = Series::new(World::with_round_trip(1, holdover_base::Duration::from_millis(40)).unwrap());
    let Series { world, server } = &series;
    let [first, second] = series.start(front, back);
    let mobile = world.mobile_address(0);
    let one = |is_upload, cuts: &[(Cut, u64)]| {
        let transfer = transfer(connect(world.mobile(0), server, SERVER), is_upload);
        for &(cut, millis) in cuts {
            transfer.await_more(1_000_000).unwrap();
            world.set_cut(cut, true).unwrap();
            second.says(mobile, "away");
            sleep(Duration::from_millis(millis));
            let took = transfer.resumes(|| world.set_cut(cut, false).unwrap()).unwrap();
            eprintln!(
                "{front}, {back}, upload: {is_upload}, {cut:?} cut of {millis} ms: data {took:?} after the return"
            );
            transfer.await_more(1_000_000).unwrap();
        }
        transfer.ends_exact().unwrap();
    };
    let watcher = Watcher::between(world, server);
    one(false, &[(Cut::Silent, 3000), (Cut::Carrier, 1500)]);
    let watched = watcher.ends();
    assert!(watched.acks > 100 && watched.of_mobile > 100, "{watched:?}");
    one(true, &[(Cut::Silent, 1500)]);
    for (name, gateway) in [("first", &first), ("second", &second)] {
        wait_for("nothing that waits", || (gateway.status().waiting == 0).then_some(()));
        let status = gateway.status();
        eprintln!("{front}, {back}: {name}: {:?} {:?}", status.path, status.woken);
        assert!(status.path.lowered + status.path.withheld > 0, "{name}: {status:?}");
    }
    assert!(second.status().buffer.released > 0, "{:?}", second.status());
}

/// Datagrams to a mobile host that never answers. On Ethernet the first gateway resolves the second router in place of the
/// mobile host.
// Claim: A mobile host behind another router on Ethernet that does not answer for 1.5 s is not away: each of 150 datagrams arrives
// at once. While that router does not answer address resolution, or is without carrier, what is sent waits, and arrives in order
// once it is back, although the mobile host sends nothing.
fn does_not_answer() {
    let series = Series::new(World::new(1).unwrap());
    let Series { world, server } = &series;
    let [first, _second] = series.start("buffer", "buffer");
    let mobile = world.mobile_address(0);
    let bind = |address| {
        move || {
            let socket = UdpSocket::bind(SocketAddr::new(address, 0)).unwrap();
            socket.set_read_timeout(Some(SOON)).unwrap();
            socket
        }
    };
    let into = world.mobile(0).enter(bind(mobile)).unwrap();
    let from = server.enter(bind(SERVER)).unwrap();
    let to = into.local_addr().unwrap();
    let arrives = |number: u32| {
        let mut buffer = [0; 16];
        let len = into.recv(&mut buffer).unwrap();
        assert_eq!(buffer[..len], number.to_be_bytes());
    };
    // Both gateways know it from its first packet on.
    into.send_to(b"hello", from.local_addr().unwrap()).unwrap();
    wait_for("the mobile host at the first gateway", || first.mobile(mobile));
    for number in 0..150_u32 {
        from.send_to(&number.to_be_bytes(), to).unwrap();
        arrives(number);
        sleep(Duration::from_millis(10));
    }
    let status = first.status();
    assert_eq!((status.path.diverted, status.buffer.absences), (0, 0), "{status:?}");
    assert_eq!(first.mobile(mobile).unwrap().standing, "present");

    let waits = |source: &str, numbers: Range<u32>| {
        first.says(mobile, "away");
        let line = first.mobile(mobile).unwrap();
        assert!(line.away_by.iter().any(|by| by == source), "{line:?}");
        for number in numbers {
            from.send_to(&number.to_be_bytes(), to).unwrap();
        }
        wait_for("datagrams that wait", || (first.status().waiting >= 50).then_some(()));
    };
    let all_arrive = |numbers: Range<u32>| {
        numbers.for_each(arrives);
        let took = first.says(mobile, "present");
        eprintln!("the first gateway found the mobile host {took:?} after its last datagram arrived");
        assert_eq!(first.status().waiting, 0);
    };
    let router = world.router();
    let silence = format!("net.ipv4.conf.{BACK_LINK}.arp_ignore");
    set(router, &silence, "8");
    waits("silence", 150..200);
    set(router, &silence, "0");
    all_arrive(150..200);
    router.enter(|| Netlink::open(router).unwrap().set_down(BACK_LINK).unwrap()).unwrap();
    waits("carrier", 200..250);
    router.enter(|| Netlink::open(router).unwrap().set_up(BACK_LINK).unwrap()).unwrap();
    series.route_back();
    all_arrive(200..250);
}
