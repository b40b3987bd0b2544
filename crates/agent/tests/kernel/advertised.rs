//! An address and a route from router advertisements (RFC 4861, RFC 4862): they are lost with the interface, and duplicate address detection takes
//! its time when it is back.

use std::net::{IpAddr, Ipv6Addr, SocketAddrV6};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{JoinHandle, sleep};
use std::time::{Duration, Instant};

use holdover_agent::link_watch::{LinkState, Source};
use holdover_testbed::{Namespace, Netlink, sysctl};
use socket2::{Domain, Protocol, SockAddr, Socket, Type};

use crate::Test;
use crate::iproute::{ip, ip_says};
use crate::lan::{Agent, INTERFACE, Lan, NO_BUS, Stream, all_resume};

pub(crate) const TESTS: &[Test] =
    &[("an_address_is_waited_for_until_it_is_no_duplicate", an_address_is_waited_for_until_it_is_no_duplicate)];

/// Retransmission timers that have expired 12.6 s after the cut expire again 25.4 s after it. By then the address has been usable for some 8 s
/// or more: the router advertises it within [`ADVERTISED_EVERY`], and duplicate address detection takes 1 to 2 s.
const CUT: Duration = Duration::from_secs(13);

const RESUMES_WITHIN: Duration = Duration::from_millis(500);

/// Longer than notices take on a slow machine, and less than the cut.
const NOTICED_WITHIN: Duration = Duration::from_secs(2);

/// The limit for anything but waiting, on a slow machine.
const LIMIT: Duration = Duration::from_secs(30);

const ADVERTISED_EVERY: Duration = Duration::from_millis(300);

const SERVER: &str = "2001:db8:1::1";

// Claim: The interface of a host with an address and a route from router advertisements is down for 13 s: the link is reported down until the
// address is advertised again and duplicate address detection is over, and then an upload and a download resume within 500 ms.
fn an_address_is_waited_for_until_it_is_no_duplicate(near: &Namespace) {
    let lan = Lan::new(near, "2001:db8::", 64);
    lan.gateway.enter(|| ip(&format!("address add {SERVER}/128 dev gw0 nodad"))).unwrap();
    // This host keeps nothing but what the router advertises.
    ip("-6 route del default");
    ip(&format!("address del 2001:db8::7/64 dev {INTERFACE}"));
    let settings =
        [("accept_ra", "1"), ("autoconf", "1"), ("accept_dad", "1"), ("dad_transmits", "1"), ("use_tempaddr", "0")];
    for (name, value) in settings {
        sysctl::set(near, &format!("net.ipv6.conf.{INTERFACE}.{name}"), value).unwrap();
    }
    let router = Router::start(&lan);
    let began = Instant::now();
    while !is_usable() {
        assert!(began.elapsed() < LIMIT, "no address is advertised");
        sleep(Duration::from_millis(50));
    }

    let agent = Agent::start_with(near, "advertised", NO_BUS, &[INTERFACE], "");
    let server: IpAddr = SERVER.parse().unwrap();
    let streams = [false, true].map(|is_upload| Stream::start_to(&lan.gateway, server, is_upload));
    streams.iter().for_each(|stream| stream.await_more(1_000_000));
    let cut_at = Instant::now();
    ip(&format!("link set {INTERFACE} down"));
    while !agent.state().1.contains(&Source::Address) {
        assert!(cut_at.elapsed() < NOTICED_WITHIN, "{:?}", agent.state());
        sleep(Duration::from_millis(10));
    }
    sleep(CUT.saturating_sub(cut_at.elapsed()));
    let up_at = Instant::now();
    let mut usable_after = Duration::ZERO;
    let took = all_resume(&streams, || {
        ip(&format!("link set {INTERFACE} up"));
        usable_after = waits_for_the_address(&agent, up_at);
    });
    eprintln!("the address is usable {usable_after:?} after the interface is set up: data after {took:?} more");
    assert!(took.iter().all(|&took| took < RESUMES_WITHIN), "{took:?}");
    agent.says(LinkState::Up, NOTICED_WITHIN);
    streams.iter().for_each(Stream::end);
    drop(router);
}

/// Waits until the address is usable, and asserts that the link is reported down as long as it is not. Returns the time since `up_at`.
fn waits_for_the_address(agent: &Agent, up_at: Instant) -> Duration {
    loop {
        // In this order: the address may become usable in between.
        let (state, objections) = agent.state();
        if is_usable() {
            return up_at.elapsed();
        }
        assert!(state == LinkState::Down && objections.contains(&Source::Address), "{state:?} {objections:?}");
        assert!(up_at.elapsed() < LIMIT, "no address");
        sleep(Duration::from_millis(5));
    }
}

/// Whether this host has a global address that is not tentative.
fn is_usable() -> bool {
    ip_says(&format!("-6 address show dev {INTERFACE} scope global -tentative")).contains("inet6 2001:db8:")
}

/// Advertises a prefix and itself at the gateway's interface. It ends on drop.
struct Router {
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Router {
    fn start(lan: &Lan) -> Self {
        let began = Instant::now();
        let has_address = || !ip_says("-6 address show dev gw0 scope link -tentative").is_empty();
        while !lan.gateway.enter(has_address).unwrap() {
            assert!(began.elapsed() < LIMIT, "the gateway has no link-local address");
            sleep(Duration::from_millis(50));
        }
        let open = || {
            let index = Netlink::open(&lan.gateway).unwrap().link("gw0").unwrap().index;
            let socket = Socket::new(Domain::IPV6, Type::RAW, Some(Protocol::ICMPV6)).unwrap();
            // Others are ignored (RFC 4861 section 6.1.2).
            socket.set_multicast_hops_v6(255).unwrap();
            socket.set_multicast_if_v6(index).unwrap();
            (socket, index)
        };
        let (socket, index) = lan.gateway.enter(open).unwrap();
        let all_nodes = SockAddr::from(SocketAddrV6::new(Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1), 0, 0, index));
        let is_over = Arc::new(AtomicBool::new(false));
        let thread = std::thread::spawn({
            let is_over = Arc::clone(&is_over);
            move || {
                while !is_over.load(Ordering::SeqCst) {
                    // While the bridge's other port has no carrier it is lost.
                    let _ = socket.send_to(&advertisement(), &all_nodes);
                    sleep(ADVERTISED_EVERY);
                }
            }
        });
        Self { is_over, thread: Some(thread) }
    }
}

impl Drop for Router {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::SeqCst);
        let thread = self.thread.take().expect("only taken here");
        assert!(thread.join().is_ok() || std::thread::panicking(), "the router panicked");
    }
}

/// A router advertisement (RFC 4861 section 4.2) with the prefix 2001:db8::/64 for autonomous configuration (section 4.6.2). The kernel adds the
/// checksum.
fn advertisement() -> Vec<u8> {
    const TYPE: u8 = 134;
    const HOP_LIMIT: u8 = 64;
    const PREFIX_INFORMATION: u8 = 3;
    const ON_LINK_AND_AUTONOMOUS: u8 = 0xc0;
    let lifetime = 1800_u16.to_be_bytes();
    let seconds = 1800_u32.to_be_bytes();
    let unspecified = [0; 4];
    let prefix: Ipv6Addr = "2001:db8::".parse().expect("an address");
    // Type, code, checksum, hop limit, flags, router lifetime, reachable time, retransmission timer.
    let header = [&[TYPE, 0, 0, 0, HOP_LIMIT, 0][..], &lifetime, &unspecified, &unspecified].concat();
    // Type, length in eight bytes, prefix length, flags, valid and preferred lifetime, reserved, prefix.
    let option = [PREFIX_INFORMATION, 4, 64, ON_LINK_AND_AUTONOMOUS];
    [&header[..], &option, &seconds, &seconds, &unspecified, &prefix.octets()].concat()
}
