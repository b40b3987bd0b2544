//! Links made of links follow the one below: it loses its carrier, which a tunnel's interface does not show.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::AsFd as _;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{JoinHandle, sleep};
use std::time::{Duration, Instant};

use holdover_agent::link_watch::{LinkCondition, Source};
use holdover_host::Process;
use holdover_host::process::LogTo;
use holdover_testbed::{Namespace, Tun, TunConfig, wireguard};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::Test;
use crate::iproute::{can_ip, ip, ip_says, lacks_kind};
use crate::lan::{Agent, INTERFACE, Lan, NO_BUS, Stream, all_resume};

pub(crate) const TESTS: &[Test] = &[
    ("a_vxlan_tunnel_follows_the_link_that_carries_it", a_vxlan_tunnel_follows_the_link_that_carries_it),
    ("an_ipip_tunnel_follows_the_link_that_carries_it", an_ipip_tunnel_follows_the_link_that_carries_it),
    ("a_gre_tunnel_follows_the_link_that_carries_it", a_gre_tunnel_follows_the_link_that_carries_it),
    ("wireguard_follows_the_link_that_carries_it", wireguard_follows_the_link_that_carries_it),
    (
        "a_vxlan_tunnel_follows_a_remote_address_that_is_set_late",
        a_vxlan_tunnel_follows_a_remote_address_that_is_set_late,
    ),
    ("wireguard_follows_an_endpoint_that_is_set_late", wireguard_follows_an_endpoint_that_is_set_late),
    ("a_programs_tunnel_follows_the_default_route", a_programs_tunnel_follows_the_default_route),
    ("openvpn_with_two_halves_is_found_and_followed", openvpn_with_two_halves_is_found_and_followed),
    ("transfers_over_a_macvlan_resume", transfers_over_a_macvlan_resume),
    ("transfers_over_a_vlan_resume", transfers_over_a_vlan_resume),
    ("transfers_over_a_bridge_resume", transfers_over_a_bridge_resume),
    ("transfers_over_a_bond_resume", transfers_over_a_bond_resume),
];

/// The link under test, at this host and, if it is a tunnel, at the gateway.
const LINK: &str = "stack0";
const NEAR: &str = "10.9.0.7/24";
const FAR: &str = "10.9.0.1/24";
const SERVER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 9, 0, 1));

/// A retransmission timer that has expired 3 s after the cut expires again 3 s later. The kernel, which asked for the next hop at that time,
/// asks again 0.7 s after the cut's end.
const CUT: Duration = Duration::from_millis(3300);

/// Without the agent a download goes on some 3 s after the carrier, and an upload after 0.7 s.
const RESUMES_WITHIN: Duration = Duration::from_millis(500);

/// Less than a cut, and longer than notices take on a slow machine.
const NOTICED_WITHIN: Duration = Duration::from_secs(2);

/// The agent queries WireGuard's endpoints every 5 s.
const QUERIED_WITHIN: Duration = Duration::from_secs(7);

// Claim: A tunnel (VXLAN; IPIP, GRE and WireGuard where the kernel has them; a program's over a TUN device) whose carrying link loses its
// carrier for 3.3 s, and is not looked after: down by `lower`, and an upload and a download in it resume within 500 ms of the carrier.
// Tests: `stacked::an_ipip_tunnel_follows_the_link_that_carries_it`, `stacked::a_gre_tunnel_follows_the_link_that_carries_it`,
// `stacked::wireguard_follows_the_link_that_carries_it`, `stacked::a_programs_tunnel_follows_the_default_route`
fn a_vxlan_tunnel_follows_the_link_that_carries_it(near: &Namespace) {
    of_iproute(near, |_local, remote| format!("vxlan id 3 remote {remote} dstport 4789"));
}

fn an_ipip_tunnel_follows_the_link_that_carries_it(near: &Namespace) {
    of_iproute(near, |local, remote| format!("ipip local {local} remote {remote}"));
}

fn a_gre_tunnel_follows_the_link_that_carries_it(near: &Namespace) {
    of_iproute(near, |local, remote| format!("gre local {local} remote {remote}"));
}

/// `kind`: the kind of the tunnel and its parameters between two addresses.
fn of_iproute(near: &Namespace, kind: fn(&str, &str) -> String) {
    let lan = Lan::new(near, "192.0.2.", 24);
    let [near_address, far_address] = ["192.0.2.7", "192.0.2.1"];
    let add = |local, remote| can_ip(&format!("link add {LINK} type {}", kind(local, remote)));
    if !has(kind("", "").split(' ').next().unwrap_or_default(), add(near_address, far_address)) {
        return;
    }
    lan.gateway.enter(|| add(far_address, near_address)).unwrap().unwrap();
    configure_both(&lan);
    follows_the_link_below(near, &lan);
}

fn wireguard_follows_the_link_that_carries_it(near: &Namespace) {
    let lan = Lan::new(near, "192.0.2.", 24);
    if let Some(set_endpoint) = join_by_wireguard(&lan) {
        set_endpoint();
        follows_the_link_below(near, &lan);
    }
}

// Claim: A tunnel whose remote address is set after the agent's start (VXLAN; WireGuard's endpoint where the kernel has it, by a query every
// 5 s) goes down when the interface below is set down, and up again with it.
// Tests: `stacked::wireguard_follows_an_endpoint_that_is_set_late`
fn a_vxlan_tunnel_follows_a_remote_address_that_is_set_late(near: &Namespace) {
    let lan = Lan::new(near, "192.0.2.", 24);
    ip(&format!("link add {LINK} type vxlan id 3 dstport 4789"));
    lan.gateway.enter(|| ip(&format!("link add {LINK} type vxlan id 3 dstport 4789 remote 192.0.2.7"))).unwrap();
    configure_both(&lan);
    follows_a_late_endpoint(near, &lan, || ip(&format!("link set {LINK} type vxlan id 3 remote 192.0.2.1")));
}

fn wireguard_follows_an_endpoint_that_is_set_late(near: &Namespace) {
    let lan = Lan::new(near, "192.0.2.", 24);
    if let Some(set_endpoint) = join_by_wireguard(&lan) {
        follows_a_late_endpoint(near, &lan, set_endpoint);
    }
}

fn follows_a_late_endpoint(near: &Namespace, lan: &Lan, set_endpoint: impl Fn()) {
    let agent = Agent::start_with(near, "late-endpoint", NO_BUS, &[LINK], "");
    assert_eq!(agent.state(), (LinkCondition::Up, vec![]));
    let set = |state: &str| ip(&format!("link set {INTERFACE} {state}"));
    // Without a remote address nothing below matters.
    set("down");
    sleep(Duration::from_millis(500));
    assert_eq!(agent.state(), (LinkCondition::Up, vec![]));
    set("up");
    // No event of a link or a route comes after it.
    sleep(Duration::from_secs(1));
    set_endpoint();
    let streams = streams(lan);
    sleep(QUERIED_WITHIN);
    // The route to the remote address goes with the interface: it has to be known before.
    set("down");
    is_down_below(&agent);
    set("up");
    agent.says(LinkCondition::Up, NOTICED_WITHIN);
    streams.iter().for_each(|stream| stream.await_more(500_000));
    streams.iter().for_each(Stream::end);
}

/// A tunnel of a program as OpenVPN: the packets of a TUN device at either end are sent to the other one in datagrams.
fn a_programs_tunnel_follows_the_default_route(near: &Namespace) {
    let lan = Lan::new(near, "192.0.2.", 24);
    let address = |last: u8| SocketAddr::from(([192, 0, 2, last], 1194));
    let end = |namespace: &Namespace, (own, other): (u8, u8)| {
        let config = TunConfig::new(LINK, 1400).address(Ipv4Addr::new(10, 9, 0, own), 24);
        let socket = UdpSocket::bind(address(own)).unwrap();
        socket.connect(address(other)).unwrap();
        socket.set_nonblocking(true).unwrap();
        (Tun::open(namespace, &config).unwrap(), socket)
    };
    let ends = [end(near, (7, 1)), lan.gateway.enter(|| end(&lan.gateway, (1, 7))).unwrap()];
    let relays = Relays::start(ends);
    follows_the_link_below(near, &lan);
    drop(relays);
}

// Claim: OpenVPN's client leads all addresses into its tunnel by two halves: the agent finds its device without configuration, the link is down by
// `lower` while the one below has no carrier, and a download and an upload resume within 500 ms of its return.
/// OpenVPN itself. Its client leaves the default route as it is, and leads all addresses into the tunnel by two halves.
fn openvpn_with_two_halves_is_found_and_followed(near: &Namespace) {
    let program = std::env::var_os("HOLDOVER_OPENVPN").map_or(PathBuf::from("/usr/sbin/openvpn"), PathBuf::from);
    if !program.exists() {
        return holdover_testbed::harness::skip("there is no OpenVPN");
    }
    let lan = Lan::new(near, "192.0.2.", 24);
    let key = std::env::temp_dir().join(format!("holdover-openvpn-{}", std::process::id()));
    let made = Command::new(&program).args(["--genkey", "secret"]).arg(&key).status().unwrap();
    assert!(made.success());
    let start = |namespace: &Namespace, words: &str| {
        let mut openvpn = Command::new(&program);
        openvpn
            .args(format!("--verb 1 --dev {LINK} --dev-type tun --cipher AES-256-CBC {words} --secret").split(' '))
            .arg(&key);
        Process::start(namespace, openvpn, LogTo::Stderr).unwrap()
    };
    let _server = start(&lan.gateway, "--remote 192.0.2.7 --ifconfig 10.9.0.1 10.9.0.7");
    let _client = start(near, "--remote 192.0.2.1 --ifconfig 10.9.0.7 10.9.0.1 --redirect-gateway def1 local");
    await_words("route show", &format!("128.0.0.0/1 via 10.9.0.1 dev {LINK}"));
    lan.gateway.enter(|| await_words("address show", "inet 10.9.0.1 peer 10.9.0.7")).unwrap();
    std::fs::remove_file(&key).unwrap();
    let agent = Agent::start_with(near, "openvpn", NO_BUS, &[], "");
    let names: Vec<String> = agent.status().links.into_iter().map(|link| link.interface).collect();
    assert_eq!(names, [LINK, INTERFACE], "both are found without configuration");
    // By one of the halves: the tunnel's other end has a route of its own.
    let beyond = IpAddr::V4(Ipv4Addr::new(198, 51, 100, 1));
    lan.gateway.enter(|| ip(&format!("address add {beyond}/32 dev gw0"))).unwrap();
    let streams = [false, true].map(|is_upload| Stream::start_to(&lan.gateway, beyond, is_upload));
    streams.iter().for_each(|stream| stream.await_more(1_000_000));
    resume_after_cuts(&agent, &streams, |is_plugged| lan.plug(is_plugged));
}

/// Waits until `ip` says it.
#[track_caller]
fn await_words(command: &str, expected: &str) {
    let began = Instant::now();
    loop {
        let words = ip_says(command);
        if words.contains(expected) {
            return;
        }
        assert!(began.elapsed() < Duration::from_secs(20), "not {expected}: {words}");
        sleep(Duration::from_millis(50));
    }
}

// Claim: An upload and a download over a macvlan, a bridge, and a VLAN and a bond where the kernel has them, resume within 500 ms of the
// return of the carrier of the interface below, which is not looked after.
// Tests: `stacked::transfers_over_a_vlan_resume`, `stacked::transfers_over_a_bridge_resume`, `stacked::transfers_over_a_bond_resume`
fn transfers_over_a_macvlan_resume(near: &Namespace) {
    over_a_device(near, &format!("link add link {INTERFACE} name {LINK} type macvlan mode bridge"), &[]);
}

fn transfers_over_a_vlan_resume(near: &Namespace) {
    let lan = Lan::new(near, "192.0.2.", 24);
    let add = |below: &str| can_ip(&format!("link add link {below} name {LINK} type vlan id 5"));
    if has("vlan", add(INTERFACE)) {
        lan.gateway.enter(|| add("gw0")).unwrap().unwrap();
        configure_both(&lan);
        follows_the_link_below(near, &lan);
    }
}

fn transfers_over_a_bridge_resume(near: &Namespace) {
    over_a_device(near, &format!("link add {LINK} type bridge"), &[&format!("link set {INTERFACE} master {LINK}")]);
}

fn transfers_over_a_bond_resume(near: &Namespace) {
    let join = format!("link set {INTERFACE} master {LINK}");
    let set = |state: &str| format!("link set {INTERFACE} {state}");
    let add = format!("link add {LINK} type bond mode active-backup miimon 50");
    over_a_device(near, &add, &[&set("down"), &join, &set("up")]);
}

/// `add` makes the device, and `join` puts this host's interface below it. The gateway has an address of the same network on its own interface.
fn over_a_device(near: &Namespace, add: &str, join: &[&str]) {
    let lan = Lan::new(near, "192.0.2.", 24);
    let kind = add.split(" type ").nth(1).and_then(|kind| kind.split(' ').next()).unwrap_or_default();
    if !has(kind, can_ip(add)) {
        return;
    }
    join.iter().for_each(|words| ip(words));
    configure(NEAR);
    lan.gateway.enter(|| ip(&format!("address add {FAR} dev gw0"))).unwrap();
    follows_the_link_below(near, &lan);
}

/// Whether the kernel has interfaces of this kind, by the attempt to make one; prints it in a line if not.
#[track_caller]
fn has(kind: &str, made: Result<(), String>) -> bool {
    let Err(error) = made else { return true };
    let is_required = std::env::var_os("HOLDOVER_REQUIRE_LINKS").is_some_and(|value| value == "1");
    assert!(!is_required && lacks_kind(&error), "cannot make an interface of kind {kind}: {error}");
    eprintln!("skipped: this kernel has no {kind} (HOLDOVER_REQUIRE_LINKS=1 makes this a failure)");
    false
}

/// Joins this host and the gateway by WireGuard; `None` if the kernel has no WireGuard. The call of what is returned sets the gateway's
/// endpoint at this host.
fn join_by_wireguard(lan: &Lan) -> Option<impl Fn() + use<>> {
    if !has("wireguard", wireguard::add(LINK).map_err(|error| error.to_string())) {
        return None;
    }
    lan.gateway.enter(|| wireguard::add(LINK)).unwrap().unwrap();
    let keys = [1, 2].map(|byte| [byte; 32]);
    let near_public = wireguard::set_up(LINK, keys[0], 51820).unwrap();
    let far_public = lan.gateway.enter(|| wireguard::set_up(LINK, keys[1], 51820)).unwrap().unwrap();
    let all = ([0; 4].into(), 0);
    wireguard::add_peer(LINK, far_public, None, all).unwrap();
    let add_near = || wireguard::add_peer(LINK, near_public, Some(([192, 0, 2, 7], 51820).into()), all);
    lan.gateway.enter(add_near).unwrap().unwrap();
    configure_both(lan);
    Some(move || wireguard::add_peer(LINK, far_public, Some(([192, 0, 2, 1], 51820).into()), all).unwrap())
}

fn configure(address: &str) {
    ip(&format!("address add {address} dev {LINK}"));
    ip(&format!("link set {LINK} up"));
}

fn configure_both(lan: &Lan) {
    configure(NEAR);
    lan.gateway.enter(|| configure(FAR)).unwrap();
}

fn streams(lan: &Lan) -> [Stream; 2] {
    let streams = [false, true].map(|is_upload| Stream::start_to(&lan.gateway, SERVER, is_upload));
    streams.iter().for_each(|stream| stream.await_more(1_000_000));
    streams
}

/// The link below is not managed.
fn follows_the_link_below(near: &Namespace, lan: &Lan) {
    let agent = Agent::start_with(near, "stacked", NO_BUS, &[LINK], "");
    let streams = streams(lan);
    resume_after_cuts(&agent, &streams, |is_plugged| lan.plug(is_plugged));
}

/// A download and an upload resume when the carrier is back.
fn resume_after_cuts(agent: &Agent, streams: &[Stream; 2], plug: impl Fn(bool)) {
    assert_eq!(agent.state(), (LinkCondition::Up, vec![]));
    for _ in 0..2 {
        let cut_at = Instant::now();
        plug(false);
        is_down_below(agent);
        sleep(CUT.saturating_sub(cut_at.elapsed()));
        let [download, upload] = all_resume(streams, || plug(true))[..] else { panic!("two streams") };
        eprintln!("after the carrier below: a download goes on after {download:?}, an upload after {upload:?}");
        assert!(download.max(upload) < RESUMES_WITHIN, "download {download:?}, upload {upload:?}");
        agent.says(LinkCondition::Up, NOTICED_WITHIN);
        streams.iter().for_each(|stream| stream.await_more(500_000));
    }
    streams.iter().for_each(Stream::end);
}

/// Waits until the link is down, also because of what is below it.
#[track_caller]
fn is_down_below(agent: &Agent) {
    let began = Instant::now();
    loop {
        let (state, objections) = agent.state();
        if state == LinkCondition::Down && objections.contains(&Source::Lower) {
            return;
        }
        assert!(began.elapsed() < NOTICED_WITHIN, "{state:?} {objections:?} after {:?}", began.elapsed());
        sleep(Duration::from_millis(10));
    }
}

/// The program at both ends of a tunnel. It ends on drop.
struct Relays {
    is_over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Relays {
    fn start(ends: [(Tun, UdpSocket); 2]) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let start = |(tun, socket): (Tun, UdpSocket)| {
            let is_over = Arc::clone(&is_over);
            std::thread::spawn(move || relay(&tun, &socket, &is_over))
        };
        let threads = ends.into_iter().map(start).collect();
        Self { is_over, threads }
    }
}

impl Drop for Relays {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::SeqCst);
        for thread in self.threads.drain(..) {
            assert!(thread.join().is_ok() || std::thread::panicking(), "a relay panicked");
        }
    }
}

fn relay(tun: &Tun, socket: &UdpSocket, is_over: &AtomicBool) {
    let mut packet = vec![0; 65_536];
    let timeout = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
    while !is_over.load(Ordering::SeqCst) {
        let mut ready = [tun.as_fd(), socket.as_fd()].map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
        rustix::io::retry_on_intr(|| poll(&mut ready, Some(&timeout))).unwrap();
        while let Some(bytes) = tun.recv(&mut packet).unwrap() {
            // Packets that the link below does not accept are lost.
            let _ = socket.send(&bytes);
        }
        // An error is that of an earlier datagram, or that there is none.
        while let Ok(len) = socket.recv(&mut packet) {
            tun.send(&packet[..len]).unwrap();
        }
    }
}
