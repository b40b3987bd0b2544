//! Addresses that this host makes from a router's advertisements (RFC 4862): they are tentative for a second or two before
//! they are valid, each by itself, and may be others at the link's return.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::{JoinHandle, sleep};
use std::time::{Duration, Instant};

use holdover_agent::link_watch::{LinkCondition, Source};
use holdover_host::Process;
use holdover_host::process::LogTo;
use holdover_testbed::advertiser::{Advertisement, Advertiser, Prefix};
use holdover_testbed::{Namespace, Netlink, harness, sysctl};

use crate::Test;
use crate::iproute::{ip, ip_says};
use crate::lan::{Agent, INTERFACE, Lan, NO_BUS, Stream, all_resume, resumes};

pub(crate) const TESTS: &[Test] = &[
    ("data_resume_when_the_address_is_valid", data_resume_when_the_address_is_valid),
    ("radvds_advertisements_are_as_good", radvds_advertisements_are_as_good),
    ("an_address_that_is_kept_is_used_at_once", an_address_that_is_kept_is_used_at_once),
    ("a_connection_waits_for_its_own_address", a_connection_waits_for_its_own_address),
    ("other_addresses_after_the_return_end_connections", other_addresses_after_the_return_end_connections),
];

/// A sender's timer has expired 6.2 s after the cut, and expires again after 12.6 s. The address is valid 2 to 4.2 s after the
/// return: its own detection and that of the link-local address take 1 s each and begin up to 1 s late.
const CUT: Duration = Duration::from_secs(7);

/// From when the address is valid; the rest is for a slow machine.
const RESUMES_WITHIN: Duration = Duration::from_millis(500);

/// For the kernel's configuration.
const PATIENCE: Duration = Duration::from_secs(20);

/// The server's address, in no advertised prefix.
const SERVER: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0xffff, 0, 0, 0, 0, 1);

/// Flags of addresses (`linux/if_addr.h`).
const DAD_FAILED: u8 = 0x08;
const TENTATIVE: u8 = 0x40;

/// This host, which configures itself, and a router that advertises itself, which is also the server.
struct Network<R> {
    lan: Lan,
    router: R,
}

/// A running radvd.
struct Radvd {
    process: Process,
    directory: PathBuf,
}

/// The prefix of this number, from which hosts make addresses. Packets between them pass the router.
const fn prefix(number: u16) -> Prefix {
    Prefix { on_link: false, ..Prefix::new(Ipv6Addr::new(0x2001, 0xdb8, 0, number, 0, 0, 0, 0)) }
}

/// The router's address in a prefix.
fn router_in(number: u16) -> Ipv6Addr {
    let [a, b, c, d, ..] = prefix(number).prefix.segments();
    Ipv6Addr::new(a, b, c, d, 0, 0, 0, 1)
}

impl Network<Advertiser> {
    fn new(near: &Namespace, numbers: &[u16]) -> Self {
        Self::with(near, numbers, |lan| Advertiser::start(&lan.gateway, "gw0", advertisement(numbers)).unwrap())
    }
}

impl<R> Network<R> {
    fn with(near: &Namespace, numbers: &[u16], advertise: impl FnOnce(&Lan) -> R) -> Self {
        let lan = Lan::unconfigured(near, SERVER.into());
        let configure = || {
            // Hosts drop the route to a neighbour that says that it is not a router (RFC 4861 section 7.2.5).
            sysctl::set(&lan.gateway, "net.ipv6.conf.all.forwarding", "1").unwrap();
            let mut netlink = Netlink::open(&lan.gateway).unwrap();
            netlink.add_address("gw0", SERVER.into(), 128).unwrap();
            for &number in numbers {
                netlink.add_address("gw0", router_in(number).into(), 64).unwrap();
            }
            // Longer outages are the same with the usual times.
            harness::forget_neighbours_soon(&lan.gateway, "gw0");
        };
        lan.gateway.enter(configure).unwrap();
        for (name, value) in [("accept_ra", "1"), ("autoconf", "1"), ("accept_dad", "1"), ("dad_transmits", "1")] {
            sysctl::set(near, &format!("net.ipv6.conf.{INTERFACE}.{name}"), value).unwrap();
        }
        let router = advertise(&lan);
        Netlink::open(near).unwrap().set_up(INTERFACE).unwrap();
        for &number in numbers {
            await_valid(number);
        }
        Self { lan, router }
    }

    /// A connection to `server`, and its other end.
    fn connect(&self, server: Ipv6Addr) -> (TcpStream, TcpStream) {
        let at = SocketAddr::new(server.into(), 0);
        let listener = self.lan.gateway.enter(|| TcpListener::bind(at).unwrap()).unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (near, listener.accept().unwrap().0)
    }
}

impl Radvd {
    fn start(program: &Path, lan: &Lan, number: u16) -> Self {
        let directory = std::env::temp_dir().join(format!("holdover-radvd-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let prefix = prefix(number).prefix;
        let config = format!(
            "interface gw0 {{ AdvSendAdvert on; prefix {prefix}/64 {{ AdvOnLink off; AdvAutonomous on; }}; }};"
        );
        let (at, pid) = (directory.join("radvd.conf"), directory.join("radvd.pid"));
        std::fs::write(&at, config).unwrap();
        let mut radvd = Command::new(program);
        radvd.args(["--nodaemon", "--logmethod", "stderr", "--config"]).arg(at).arg("--pidfile").arg(pid);
        Self { process: Process::start(&lan.gateway, radvd, LogTo::Stderr).unwrap(), directory }
    }
}

impl Drop for Radvd {
    fn drop(&mut self) {
        // Its helper ends with it.
        self.process.kill();
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

fn advertisement(numbers: &[u16]) -> Advertisement {
    Advertisement::new(numbers.iter().map(|&number| prefix(number)))
}

/// The flags of this host's address in a prefix.
fn flags(number: u16) -> Option<u8> {
    let wanted: String = prefix(number).prefix.octets()[..8].iter().map(|byte| format!("{byte:02x}")).collect();
    let table = std::fs::read_to_string("/proc/thread-self/net/if_inet6").unwrap();
    let mut lines = table.lines().filter(|line| line.starts_with(&wanted) && line.ends_with(INTERFACE));
    let flags = lines.next()?.split_whitespace().nth(4)?.to_owned();
    Some(u8::from_str_radix(&flags, 16).unwrap())
}

/// Waits until the flags of this host's address in a prefix are as expected; returns when they were seen so.
#[track_caller]
fn await_flags(number: u16, are_as_expected: impl Fn(u8) -> bool) -> Instant {
    let began = Instant::now();
    while !flags(number).is_some_and(&are_as_expected) {
        assert!(began.elapsed() < PATIENCE, "{:?}", flags(number));
        sleep(Duration::from_millis(1));
    }
    Instant::now()
}

#[track_caller]
fn await_valid(number: u16) -> Instant {
    await_flags(number, |flags| flags & (TENTATIVE | DAD_FAILED) == 0)
}

#[track_caller]
fn await_tentative(number: u16) -> Instant {
    await_flags(number, |flags| flags & TENTATIVE != 0)
}

/// Types a key during the outage; returns a thread that returns when the server has it.
fn type_key((mut near, mut far): (TcpStream, TcpStream)) -> JoinHandle<(Instant, [TcpStream; 2])> {
    near.write_all(b"k").unwrap();
    std::thread::spawn(move || {
        far.read_exact(&mut [0]).unwrap();
        (Instant::now(), [near, far])
    })
}

// Claim: An interface is set down for 7 s and up again; its address is tentative until duplicate address detection ends. The agent
// regards the link as down until then, although it has carrier and a route; a download, an upload, and a key that was typed
// during the outage and is the first data of its connection, resume within 500 ms of when the address is valid.
// Tests: `dad::radvds_advertisements_are_as_good`
fn data_resume_when_the_address_is_valid(near: &Namespace) {
    data_resume_behind(near, &Network::new(near, &[1]));
}

/// The same with Debian's radvd as the router.
fn radvds_advertisements_are_as_good(near: &Namespace) {
    let program = std::env::var_os("HOLDOVER_RADVD").map_or(PathBuf::from("/usr/sbin/radvd"), PathBuf::from);
    if !program.exists() {
        return holdover_testbed::harness::skip("there is no radvd");
    }
    data_resume_behind(near, &Network::with(near, &[1], |lan| Radvd::start(&program, lan, 1)));
}

fn data_resume_behind<R>(near: &Namespace, network: &Network<R>) {
    let agent = Agent::start_with(near, "dad", NO_BUS, &[INTERFACE], "");
    let typing = network.connect(SERVER);
    let streams = [false, true].map(|is_upload| Stream::start(&network.lan, is_upload));
    streams.iter().for_each(|stream| stream.await_more(1_000_000));

    ip(&format!("link set {INTERFACE} down"));
    sleep(CUT / 7);
    let key = type_key(typing);
    sleep(CUT * 6 / 7);
    let up_at = Instant::now();
    ip(&format!("link set {INTERFACE} up"));
    let tentative_at = await_tentative(1);
    agent.is_down_by(Source::Address, Duration::from_millis(700));
    assert!(ip_says("-6 route show default").contains("proto ra"), "the route is there before the address");
    let mut valid_at = Instant::now();
    let took = all_resume(&streams, || valid_at = await_valid(1));
    let key_took = key.join().unwrap().0.saturating_duration_since(valid_at);
    eprintln!(
        "tentative {:?} after the return, valid {:?}: data {took:?} after that, a key {key_took:?}",
        tentative_at - up_at,
        valid_at - up_at
    );
    assert!(valid_at - tentative_at >= Duration::from_millis(900), "there was no detection");
    assert!(took.iter().chain([&key_took]).all(|&took| took < RESUMES_WITHIN), "{took:?}, {key_took:?}");
    agent.says(LinkCondition::Up, RESUMES_WITHIN);
    streams.iter().for_each(Stream::end);
}

// Claim: After a loss of carrier of 3.3 s the kernel keeps an advertised address and route; a download and an upload resume within
// 500 ms of the carrier's return.
fn an_address_that_is_kept_is_used_at_once(near: &Namespace) {
    let network = Network::new(near, &[1]);
    let _agent = Agent::start_with(near, "dad-kept", NO_BUS, &[INTERFACE], "");
    let streams = [false, true].map(|is_upload| Stream::start(&network.lan, is_upload));
    streams.iter().for_each(|stream| stream.await_more(1_000_000));
    network.lan.plug(false);
    sleep(Duration::from_millis(3_300));
    let took = all_resume(&streams, || network.lan.plug(true));
    eprintln!("data {took:?} after the carrier");
    assert_eq!(flags(1).map(|flags| flags & (TENTATIVE | DAD_FAILED)), Some(0));
    assert!(took.iter().all(|&took| took < RESUMES_WITHIN), "{took:?}");
    streams.iter().for_each(Stream::end);
}

// Claim: Of two advertised addresses one is valid a second and more before the other: a download on each resumes within 500 ms of
// its own address, and the agent does nothing for the second before.
fn a_connection_waits_for_its_own_address(near: &Namespace) {
    let network = Network::new(near, &[1, 2]);
    let agent = Agent::start_with(near, "dad-two", NO_BUS, &[INTERFACE], "");
    let streams = [1, 2].map(|number| Stream::start_to(&network.lan.gateway, router_in(number).into(), false));
    for (number, stream) in [1, 2].into_iter().zip(&streams) {
        let IpAddr::V6(own) = stream.connection().local.ip() else { panic!("IPv6") };
        assert_eq!(own.segments()[..4], prefix(number).prefix.segments()[..4], "its address is in the server's prefix");
        stream.await_more(1_000_000);
    }
    let [first, second] = &streams;
    let for_second = || {
        let own = second.connection().local;
        agent.actions().into_iter().filter(|action| action.local == own).count()
    };

    let before = for_second();
    ip(&format!("link set {INTERFACE} down"));
    network.router.advertise(advertisement(&[1]));
    sleep(CUT);
    ip(&format!("link set {INTERFACE} up"));
    let first_took = resumes(first, || _ = await_valid(1));
    network.router.advertise(advertisement(&[1, 2]));
    await_tentative(2);
    assert_eq!(for_second(), before, "{:?}", agent.actions());
    let second_took = resumes(second, || _ = await_valid(2));
    eprintln!("data {first_took:?} after the first address, {second_took:?} after the second");
    assert!(first_took.max(second_took) < RESUMES_WITHIN, "{first_took:?}, {second_took:?}");
    assert!(for_second() > before, "it was woken");
    streams.iter().for_each(Stream::end);
}

// Claim: The router announces another prefix when the link is back: a connection from the old address gets ECONNABORTED after
// `address_grace` and nothing is done to wake it; new ones work as soon as the new address is valid.
fn other_addresses_after_the_return_end_connections(near: &Namespace) {
    let network = Network::new(near, &[1]);
    let more = "[connections]\naddress_gone = \"end\"\naddress_grace = \"10s\"\n";
    let agent = Agent::start_with(near, "dad-other", NO_BUS, &[INTERFACE], more);
    let (mut old, mut far) = network.connect(SERVER);
    let own = old.local_addr().unwrap();
    std::thread::spawn(move || while far.write_all(&[7; 8000]).is_ok() {});
    let (received, first) = std::sync::mpsc::channel();
    let reads = std::thread::spawn(move || {
        let mut buffer = [0; 65_536];
        loop {
            match old.read(&mut buffer) {
                Ok(read) => _ = received.send(read),
                Err(error) => return (error.raw_os_error(), Instant::now()),
            }
        }
    });
    assert!(first.recv_timeout(PATIENCE).unwrap() > 0);

    ip(&format!("link set {INTERFACE} down"));
    let gone_at = Instant::now();
    network.router.advertise(advertisement(&[2]));
    let renumber = || {
        ip(&format!("address del {}/64 dev gw0", router_in(1)));
        ip(&format!("address add {}/64 dev gw0 nodad", router_in(2)));
    };
    network.lan.gateway.enter(renumber).unwrap();
    sleep(Duration::from_secs(3));
    ip(&format!("link set {INTERFACE} up"));
    await_valid(2);
    let (mut new, mut far) = network.connect(SERVER);
    let IpAddr::V6(address) = new.local_addr().unwrap().ip() else { panic!("IPv6") };
    assert_eq!(address.segments()[..4], prefix(2).prefix.segments()[..4]);
    far.write_all(b"n").unwrap();
    new.read_exact(&mut [0]).unwrap();
    let (error, ended_at) = reads.join().unwrap();
    let what: Vec<String> =
        agent.actions().into_iter().filter(|action| action.local == own).map(|action| action.what).collect();
    eprintln!("ended {:?} after its address: {what:?}", ended_at - gone_at);
    assert_eq!(error, Some(libc::ECONNABORTED));
    assert!(ended_at - gone_at >= Duration::from_millis(9_900), "{:?}", ended_at - gone_at);
    assert_eq!(what, ["ended: its address is gone"]);
}
