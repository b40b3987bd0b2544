//! Outages in which the carrier stays, with the default configuration and without any signal: behind a bridge, and behind a router.

// Claim: The agent notices a silent link with TCP at work, its end, and that a slow server, a peer that is gone and one-way
// traffic are none.
// Tests: `crates/agent/src/link_watch/silence.rs`

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::{JoinHandle, sleep};
use std::time::{Duration, Instant};

use holdover_agent::config::Config;
use holdover_agent::control::{Client, Request, Response};
use holdover_agent::daemon::{Daemon, Orders, Setup};
use holdover_agent::engine::KernelAttach;
use holdover_agent::link_watch::{LinkState, Source};
use holdover_agent::status::Status;
use holdover_host::neighbours::Neighbours;
use holdover_host::poll_loop::SignalInput;
use holdover_mobility::Connection;
use holdover_testbed::{Namespace, NamespaceError, Netlink, Route, harness, sysctl};

use crate::Test;

pub(crate) const TESTS: &[Test] = &[
    ("an_upload_over_a_silent_outage_continues_at_once", an_upload_over_a_silent_outage_continues_at_once),
    ("so_it_does_over_ipv6", so_it_does_over_ipv6),
    ("a_download_over_a_silent_outage_continues_at_once", a_download_over_a_silent_outage_continues_at_once),
    (
        "the_router_need_not_resolve_this_host_after_a_silent_outage",
        the_router_need_not_resolve_this_host_after_a_silent_outage,
    ),
    ("a_cut_behind_a_router_that_answers_is_noticed", a_cut_behind_a_router_that_answers_is_noticed),
    ("the_first_packet_wakes_the_others", the_first_packet_wakes_the_others),
    ("a_server_that_takes_its_time_is_no_silence", a_server_that_takes_its_time_is_no_silence),
    ("unanswered_datagrams_are_no_silence", unanswered_datagrams_are_no_silence),
    ("a_peer_that_is_gone_is_no_silence", a_peer_that_is_gone_is_no_silence),
    ("a_router_that_answers_no_questions_does_no_harm", a_router_that_answers_no_questions_does_no_harm),
    ("questions_leave_the_kernels_table_as_it_is", questions_leave_the_kernels_table_as_it_is),
];

pub(crate) const INTERFACE: &str = "up0";

/// Detection takes some 2 s, and longer on a slow machine.
const NOTICED_WITHIN: Duration = Duration::from_secs(8);

/// A silent next hop is probed every 25 ms, or every 50 ms after 20 s. The rest is for a slow machine: TCP by itself
/// resumes seconds later.
const RESUMES_WITHIN: Duration = Duration::from_millis(500);

/// This host, `near`; a bridge in a namespace of its own; and the gateway, which is also the server.
pub(crate) struct Lan {
    bridge: Namespace,
    pub(crate) gateway: Namespace,
    address: IpAddr,
}

impl Lan {
    pub(crate) fn new(near: &Namespace, prefix: &str, prefix_len: u8) -> Self {
        Self::routed(near, prefix, prefix_len, format!("{prefix}1").parse().unwrap())
    }

    /// With a gateway that is a router: this host's route leads to its link-local address, as with router advertisements (RFC 4861 section
    /// 6.3.4).
    fn behind_a_router(near: &Namespace) -> Self {
        let router: IpAddr = "fe80::1".parse().unwrap();
        let lan = Self::routed(near, "2001:db8::", 64, router);
        let server: IpAddr = "2001:db8:1::1".parse().unwrap();
        let configure = || {
            let mut netlink = Netlink::open(&lan.gateway).unwrap();
            netlink.add_address("gw0", router, 64).unwrap();
            netlink.add_address("gw0", server, 128).unwrap();
            harness::forget_neighbours_soon(&lan.gateway, "gw0");
        };
        lan.gateway.enter(configure).unwrap();
        Self { address: server, ..lan }
    }

    fn routed(near: &Namespace, prefix: &str, prefix_len: u8, router: IpAddr) -> Self {
        let address = |last: u8| format!("{prefix}{last}").parse::<IpAddr>().unwrap();
        let (bridge, gateway) = (Namespace::new("bridge").unwrap(), Namespace::new("gateway").unwrap());
        // The bridge is created first, so that the ends of a veth pair have different indices. Linux handles the
        // carrier of a pair with equal ones once a second (`linkwatch_urgent_event`, for all namespaces together): the
        // port would forward up to 1 s late.
        bridge.enter(|| Netlink::open(&bridge).unwrap().add_bridge("br0").unwrap()).unwrap();
        Netlink::open(near).unwrap().add_veth(INTERFACE, "near0", &bridge).unwrap();
        gateway.enter(|| Netlink::open(&gateway).unwrap().add_veth("gw0", "far0", &bridge).unwrap()).unwrap();
        let join = || {
            // It must not send anything itself.
            sysctl::set(&bridge, "net.ipv6.conf.all.disable_ipv6", "1").unwrap();
            let mut netlink = Netlink::open(&bridge).unwrap();
            for port in ["near0", "far0"] {
                netlink.add_port("br0", port).unwrap();
                netlink.set_up(port).unwrap();
            }
            netlink.set_up("br0").unwrap();
        };
        bridge.enter(join).unwrap();
        let configure = |namespace: &Namespace, interface: &str, last| {
            if prefix_len <= 32 {
                sysctl::set(namespace, "net.ipv6.conf.all.disable_ipv6", "1").unwrap();
            }
            let mut netlink = Netlink::open(namespace).unwrap();
            netlink.set_up(interface).unwrap();
            netlink.add_address(interface, address(last), prefix_len).unwrap();
        };
        gateway.enter(|| configure(&gateway, "gw0", 1)).unwrap();
        configure(near, INTERFACE, 7);
        let nowhere: IpAddr = if prefix_len <= 32 { [0; 4].into() } else { [0; 16].into() };
        let route =
            Route { destination: (nowhere, 0), gateway: Some(router), link: INTERFACE.to_owned(), source: None };
        Netlink::open(near).unwrap().add_route(&route).unwrap();
        Self { bridge, gateway, address: address(1) }
    }

    /// Sets whether this host's interface has a carrier.
    pub(crate) fn plug(&self, is_plugged: bool) {
        let change = || {
            let mut netlink = Netlink::open(&self.bridge).unwrap();
            if is_plugged { netlink.set_up("near0").unwrap() } else { netlink.set_down("near0").unwrap() }
        };
        self.bridge.enter(change).unwrap();
    }

    /// Sets whether the gateway is reachable; this host's carrier stays.
    fn join(&self, is_joined: bool) {
        let change = || {
            let mut netlink = Netlink::open(&self.bridge).unwrap();
            if is_joined { netlink.set_up("far0").unwrap() } else { netlink.set_down("far0").unwrap() }
        };
        self.bridge.enter(change).unwrap();
    }
}

/// A daemon in the namespace of the thread that starts it.
pub(crate) struct Agent {
    thread: Option<JoinHandle<Result<(), NamespaceError>>>,
    stop: UnixStream,
    reload: UnixStream,
    directory: PathBuf,
}

/// The beginning of each configuration.
const COMMON: &str = "[metrics]\nenabled = false\n";

impl Agent {
    pub(crate) fn start(near: &Namespace) -> Self {
        Self::start_on(near, "unix:path=/nowhere")
    }

    /// With a bus for announcements of sleep.
    pub(crate) fn start_on(near: &Namespace, system_bus: &str) -> Self {
        Self::start_with(near, "gateway", system_bus, &[INTERFACE], "[signals.next_hop]\nask = true\n")
    }

    /// With a separate name, on these interfaces, with additional configuration.
    pub(crate) fn start_with(near: &Namespace, name: &str, system_bus: &str, interfaces: &[&str], more: &str) -> Self {
        let directory = std::env::temp_dir().join(format!("holdover-{name}-{:?}-{}", near.id(), std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let (stop, stop_reader) = UnixStream::pair().unwrap();
        let has_rules = more.contains("[user_timeouts]");
        let timeouts = if has_rules { "" } else { "[user_timeouts]\nenabled = false\n" };
        let config = format!("{COMMON}{timeouts}{more}");
        let config_path = directory.join("agent.toml");
        std::fs::write(&config_path, &config).unwrap();
        let setup = Setup {
            system_bus: Some(system_bus.to_owned()),
            config: Config::parse(&directory, &config).unwrap(),
            config_path: Some(config_path),
            interfaces: interfaces.iter().map(ToString::to_string).collect(),
            socket: directory.join("agent.sock"),
            dry_run: false,
        };
        let (reload, reload_reader) = UnixStream::pair().unwrap();
        let (opened, is_open) = mpsc::channel();
        let body = move || {
            let input = |reader| SignalInput::from_stream(reader).unwrap();
            let orders = Orders { stop: input(stop_reader), reload: input(reload_reader) };
            let attach = KernelAttach { control_socket: setup.socket.clone() };
            let daemon = Daemon::open(setup, attach, orders).unwrap();
            opened.send(()).unwrap();
            daemon.run().unwrap();
        };
        let thread = Some(near.spawn_inside(body).unwrap());
        is_open.recv().expect("the agent runs");
        Self { thread, stop, reload, directory }
    }

    /// Reloads another configuration, as at SIGHUP.
    pub(crate) fn reload(&self, config: &str) {
        std::fs::write(self.directory.join("agent.toml"), format!("{COMMON}{config}")).unwrap();
        (&self.reload).write_all(&[0]).unwrap();
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.directory.join("agent.sock")
    }

    pub(crate) fn status(&self) -> Status {
        let answer = Client::ask(&self.socket(), &Request::Status).unwrap().answer().unwrap();
        let Response::Status(status) = answer else { panic!("no status") };
        *status
    }

    pub(crate) fn state(&self) -> (LinkState, Vec<Source>) {
        let link = self.status().links.remove(0);
        assert_eq!(link.problem, None);
        (link.state, link.objections)
    }

    /// Waits until a source reports the link down.
    #[track_caller]
    pub(crate) fn is_down_by(&self, source: Source, within: Duration) {
        let began = Instant::now();
        while self.state() != (LinkState::Down, vec![source]) {
            assert!(began.elapsed() < within, "{:?} after {:?}", self.state(), began.elapsed());
            sleep(Duration::from_millis(10));
        }
    }

    /// How long it takes until the link is reported in this state.
    #[track_caller]
    pub(crate) fn says(&self, expected: LinkState, within: Duration) -> Duration {
        let began = Instant::now();
        loop {
            let (state, objections) = self.state();
            if state == expected {
                // The kernel may notice, too.
                let of_this_test = [Source::Silence, Source::Neighbour, Source::Suspend];
                assert_eq!(state == LinkState::Down, !objections.is_empty(), "{objections:?}");
                assert!(objections.iter().all(|source| of_this_test.contains(source)), "{objections:?}");
                return began.elapsed();
            }
            assert!(began.elapsed() < within, "not {expected:?} after {:?}", began.elapsed());
            sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.stop.write_all(b"x").unwrap();
        let thread = self.thread.take().expect("only taken here");
        assert!(thread.join().is_ok_and(|ended| ended.is_ok()) || std::thread::panicking(), "the agent panicked");
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// A connection with one end that sends at some rate, and one that reads.
pub(crate) struct Stream {
    received: Arc<AtomicU64>,
    is_sending: Arc<AtomicBool>,
    /// Both ends, so that it stays open.
    _ends: [TcpStream; 2],
}

impl Stream {
    pub(crate) fn start(lan: &Lan, is_upload: bool) -> Self {
        Self::start_to(&lan.gateway, lan.address, is_upload)
    }

    pub(crate) fn start_to(server: &Namespace, address: IpAddr, is_upload: bool) -> Self {
        let listener = server.enter(|| TcpListener::bind(SocketAddr::new(address, 0)).unwrap()).unwrap();
        let to = listener.local_addr().unwrap();
        let near = TcpStream::connect(to).unwrap();
        let (far, _) = listener.accept().unwrap();
        let ends = [near.try_clone().unwrap(), far.try_clone().unwrap()];
        let (mut from, mut into) = if is_upload { (near, far) } else { (far, near) };
        let (received, is_sending) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(true)));
        std::thread::spawn({
            let is_sending = Arc::clone(&is_sending);
            move || {
                while is_sending.load(Ordering::SeqCst) && from.write_all(&[7; 8000]).is_ok() {
                    sleep(Duration::from_millis(5));
                }
            }
        });
        std::thread::spawn({
            let received = Arc::clone(&received);
            move || {
                let mut buffer = [0; 65_536];
                while let Ok(read @ 1..) = into.read(&mut buffer) {
                    received.fetch_add(read as u64, Ordering::SeqCst);
                }
            }
        });
        Self { received, is_sending, _ends: ends }
    }

    /// The connection from this host's view.
    pub(crate) fn connection(&self) -> Connection {
        let near = &self._ends[0];
        Connection { local: near.local_addr().unwrap(), remote: near.peer_addr().unwrap() }
    }

    /// Bytes received so far.
    pub(crate) fn received(&self) -> u64 {
        self.received.load(Ordering::SeqCst)
    }

    /// Stops sending.
    pub(crate) fn end(&self) {
        self.is_sending.store(false, Ordering::SeqCst);
    }

    /// Waits for so many more bytes.
    #[track_caller]
    pub(crate) fn await_more(&self, bytes: u64) {
        let (began, before) = (Instant::now(), self.received.load(Ordering::SeqCst));
        while self.received.load(Ordering::SeqCst) < before + bytes {
            assert!(began.elapsed() < Duration::from_secs(30), "nothing comes");
            sleep(Duration::from_millis(5));
        }
    }
}

/// A server behind the gateway, which becomes a router; IPv4 only.
pub(crate) struct Beyond {
    pub(crate) server: Namespace,
    pub(crate) address: IpAddr,
}

impl Beyond {
    pub(crate) fn new(near: &Namespace, lan: &Lan, number: u8) -> Self {
        let server = Namespace::new("server").unwrap();
        let address: IpAddr = [198, 51, 100 + number, 1].into();
        let router: IpAddr = [198, 51, 100 + number, 2].into();
        let (name, nowhere) = (format!("out{number}"), IpAddr::from([0; 4]));
        lan.gateway
            .enter(|| {
                let mut netlink = Netlink::open(&lan.gateway).unwrap();
                netlink.add_veth(&name, "srv0", &server).unwrap();
                netlink.set_up(&name).unwrap();
                netlink.add_address(&name, router, 24).unwrap();
                sysctl::set(&lan.gateway, "net.ipv4.ip_forward", "1").unwrap();
            })
            .unwrap();
        server
            .enter(|| {
                let mut netlink = Netlink::open(&server).unwrap();
                netlink.set_up("srv0").unwrap();
                netlink.add_address("srv0", address, 24).unwrap();
                let gateway = Some(router);
                let route = Route { destination: (nowhere, 0), gateway, link: "srv0".to_owned(), source: None };
                netlink.add_route(&route).unwrap();
            })
            .unwrap();
        let _ = near;
        Self { server, address }
    }
}

impl Lan {
    /// Sets whether the router forwards; it still answers for itself. It sends no ICMP errors for dropped packets.
    pub(crate) fn forward(&self, is_on: bool) {
        let value = if is_on { "1" } else { "0" };
        self.gateway.enter(|| sysctl::set(&self.gateway, "net.ipv4.ip_forward", value).unwrap()).unwrap();
    }
}

/// Data resumes within this time after the end of an outage.
#[track_caller]
pub(crate) fn resumes(stream: &Stream, end_outage: impl FnOnce()) -> Duration {
    let before = stream.received.load(Ordering::SeqCst);
    end_outage();
    let began = Instant::now();
    while stream.received.load(Ordering::SeqCst) <= before {
        assert!(began.elapsed() < Duration::from_secs(60), "nothing comes");
        sleep(Duration::from_millis(1));
    }
    began.elapsed()
}

/// Asserts that the link is never reported down for so long.
#[track_caller]
fn stays_up(agent: &Agent, time: Duration) {
    let began = Instant::now();
    while began.elapsed() < time {
        assert_eq!(agent.state(), (LinkState::Up, vec![]), "after {:?}", began.elapsed());
        sleep(Duration::from_millis(50));
    }
}

fn an_upload_over_a_silent_outage_continues_at_once(near: &Namespace) {
    is_bridged(near, &Lan::new(near, "192.0.2.", 24), true);
}

fn so_it_does_over_ipv6(near: &Namespace) {
    is_bridged(near, &Lan::new(near, "2001:db8::", 64), true);
}

fn a_download_over_a_silent_outage_continues_at_once(near: &Namespace) {
    is_bridged(near, &Lan::new(near, "192.0.2.", 24), false);
}

fn is_bridged(near: &Namespace, lan: &Lan, is_upload: bool) {
    let agent = Agent::start(near);
    let stream = Stream::start(lan, is_upload);
    stream.await_more(2_000_000);
    assert_eq!(agent.state().0, LinkState::Up);
    for outage in [Duration::from_secs(4), Duration::from_secs(20)] {
        let cut_at = Instant::now();
        lan.join(false);
        let noticed = agent.says(LinkState::Down, NOTICED_WITHIN);
        sleep(outage.saturating_sub(cut_at.elapsed()));
        let took = resumes(&stream, || lan.join(true));
        eprintln!("outage {outage:?}: down after {noticed:?}, data {took:?} after its end");
        assert!(took < RESUMES_WITHIN, "{took:?}");
        agent.says(LinkState::Up, RESUMES_WITHIN);
        stream.await_more(1_000_000);
    }
    stream.is_sending.store(false, Ordering::SeqCst);
    // The stream's end is probed, and answered.
    stays_up(&agent, Duration::from_secs(5));
}

/// The sender retransmits some 6 s after the cut, and the router asks for this host's address after 6, 9 and 12 s. When the link is back after
/// 10 s, the router learns the address of the connection from the probe that finds it, although that is a probe of a link-local address.
// Claim: After a silence a router that has given up resolving the host, and has only a link-local address, forwards to it at
// once: it learns the connection's address from the agent's probe.
fn the_router_need_not_resolve_this_host_after_a_silent_outage(near: &Namespace) {
    let lan = Lan::behind_a_router(near);
    let agent = Agent::start(near);
    let stream = Stream::start(&lan, false);
    stream.await_more(2_000_000);
    let own = stream.connection().local.ip();
    let is_resolved = || {
        let inside = || {
            let index = Netlink::open(&lan.gateway).unwrap().link("gw0").unwrap().index;
            Neighbours::open().unwrap().is_resolved(index, own).unwrap()
        };
        lan.gateway.enter(inside).unwrap()
    };
    assert!(is_resolved());
    for _ in 0..2 {
        lan.join(false);
        sleep(Duration::from_secs(10));
        assert!(!is_resolved(), "the router still has this host's address");
        let took = resumes(&stream, || lan.join(true));
        eprintln!("data {took:?} after the outage");
        assert!(took < RESUMES_WITHIN, "{took:?}");
        stream.await_more(1_000_000);
    }
    stream.end();
    drop(agent);
}

fn a_cut_behind_a_router_that_answers_is_noticed(near: &Namespace) {
    let lan = Lan::new(near, "192.0.2.", 24);
    let beyond = Beyond::new(near, &lan, 0);
    let agent = Agent::start(near);
    let stream = Stream::start_to(&beyond.server, beyond.address, true);
    stream.await_more(1_000_000);
    for outage in [Duration::from_secs(5), Duration::from_secs(20)] {
        let cut_at = Instant::now();
        lan.forward(false);
        let noticed = agent.says(LinkState::Down, NOTICED_WITHIN);
        sleep(outage.saturating_sub(cut_at.elapsed()));
        let took = resumes(&stream, || lan.forward(true));
        eprintln!("outage {outage:?} behind the router: down after {noticed:?}, data {took:?} after its end");
        // A peer is probed after a fortieth of the silence at the latest.
        assert!(took < outage / 40 + RESUMES_WITHIN, "{took:?}");
        agent.says(LinkState::Up, RESUMES_WITHIN);
        stream.await_more(500_000);
    }
    stream.is_sending.store(false, Ordering::SeqCst);
}

/// The link is not even reported down: one packet arrives 1.5 s after the last.
fn the_first_packet_wakes_the_others(near: &Namespace) {
    let lan = Lan::new(near, "192.0.2.", 24);
    let beyond = Beyond::new(near, &lan, 0);
    let agent = Agent::start(near);
    let streams: Vec<Stream> =
        (0..6).map(|number| Stream::start_to(&beyond.server, beyond.address, number % 2 == 0)).collect();
    streams.iter().for_each(|stream| stream.await_more(500_000));
    lan.forward(false);
    sleep(Duration::from_millis(2600));
    assert_eq!(agent.state().0, LinkState::Up);
    let before: Vec<u64> = streams.iter().map(|stream| stream.received.load(Ordering::SeqCst)).collect();
    lan.forward(true);
    let (began, mut took) = (Instant::now(), vec![None; streams.len()]);
    while took.contains(&None) {
        for (number, stream) in streams.iter().enumerate() {
            if took[number].is_none() && stream.received.load(Ordering::SeqCst) > before[number] {
                took[number] = Some(began.elapsed());
            }
        }
        assert!(began.elapsed() < Duration::from_secs(30), "{took:?}");
        sleep(Duration::from_millis(1));
    }
    eprintln!("data after {took:?}");
    let times: Vec<Duration> = took.into_iter().flatten().collect();
    let (first, last) = (times.iter().min().unwrap(), times.iter().max().unwrap());
    assert!(*last - *first < RESUMES_WITHIN, "{times:?}");
    streams.iter().for_each(|stream| stream.is_sending.store(false, Ordering::SeqCst));
}

fn a_server_that_takes_its_time_is_no_silence(near: &Namespace) {
    let lan = Lan::new(near, "192.0.2.", 24);
    let agent = Agent::start(near);
    let listener = lan.gateway.enter(|| TcpListener::bind(SocketAddr::new(lan.address, 0)).unwrap()).unwrap();
    let mut near_end = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (mut far_end, _) = listener.accept().unwrap();
    for wait in [3, 10] {
        near_end.write_all(b"what is it?").unwrap();
        far_end.read_exact(&mut [0; 11]).unwrap();
        stays_up(&agent, Duration::from_secs(wait));
        far_end.write_all(b"this is it.").unwrap();
        near_end.read_exact(&mut [0; 11]).unwrap();
    }
}

fn unanswered_datagrams_are_no_silence(near: &Namespace) {
    let lan = Lan::new(near, "192.0.2.", 24);
    let agent = Agent::start(near);
    let stream = Stream::start(&lan, true);
    stream.await_more(500_000);
    stream.is_sending.store(false, Ordering::SeqCst);
    let _server = lan.gateway.enter(|| UdpSocket::bind(SocketAddr::new(lan.address, 9)).unwrap()).unwrap();
    let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(6) {
        socket.send_to(&[0; 1000], SocketAddr::new(lan.address, 9)).unwrap();
        if began.elapsed().as_millis().is_multiple_of(10) {
            assert_eq!(agent.state().0, LinkState::Up);
        }
        sleep(Duration::from_millis(1));
    }
}

fn a_peer_that_is_gone_is_no_silence(near: &Namespace) {
    let lan = Lan::new(near, "192.0.2.", 24);
    let [gone, there] = [0, 1].map(|number| Beyond::new(near, &lan, number));
    let agent = Agent::start(near);
    let streams = [&gone, &there].map(|beyond| Stream::start_to(&beyond.server, beyond.address, true));
    streams.iter().for_each(|stream| stream.await_more(500_000));
    lan.gateway.enter(|| Netlink::open(&lan.gateway).unwrap().set_down("out0").unwrap()).unwrap();
    stays_up(&agent, Duration::from_secs(8));
    streams[1].await_more(500_000);
    streams.iter().for_each(|stream| stream.is_sending.store(false, Ordering::SeqCst));
}

fn a_router_that_answers_no_questions_does_no_harm(near: &Namespace) {
    let lan = Lan::new(near, "192.0.2.", 24);
    // The kernel must trust its entry: otherwise it would probe itself, and have no destination.
    sysctl::set(near, &format!("net.ipv4.neigh.{INTERFACE}.base_reachable_time_ms"), "3600000").unwrap();
    let beyond = Beyond::new(near, &lan, 0);
    let stream = Stream::start_to(&beyond.server, beyond.address, true);
    stream.await_more(100_000);
    // The router and this host know each other; from now on it does not answer this host's requests. It answers the
    // server's, whose entry of the router expires.
    lan.gateway.enter(|| sysctl::set(&lan.gateway, "net.ipv4.conf.gw0.arp_ignore", "8").unwrap()).unwrap();
    let agent = Agent::start(near);
    stream.await_more(1_000_000);
    stream.is_sending.store(false, Ordering::SeqCst);
    stays_up(&agent, Duration::from_secs(6));
}

/// The state of the gateway's entry, as in `ip neighbour`: 2 is reachable, 4 stale (`linux/neighbour.h`).
fn questions_leave_the_kernels_table_as_it_is(near: &Namespace) {
    let lan = Lan::new(near, "192.0.2.", 24);
    let agent = Agent::start(near);
    let stream = Stream::start(&lan, true);
    stream.await_more(1_000_000);
    let flags = || {
        let table = std::fs::read_to_string("/proc/thread-self/net/arp").unwrap();
        let row = table.lines().find(|line| line.contains(INTERFACE)).map(str::to_owned);
        row.map(|row| row.split_whitespace().nth(2).unwrap().to_owned())
    };
    // Complete, and unchanged while the agent probes: the kernel by itself gives up after 5 s and three probes of its
    // own.
    assert_eq!(flags().as_deref(), Some("0x2"));
    lan.join(false);
    let began = Instant::now();
    agent.says(LinkState::Down, NOTICED_WITHIN);
    while began.elapsed() < Duration::from_secs(4) {
        assert_eq!(flags().as_deref(), Some("0x2"));
        sleep(Duration::from_millis(50));
    }
    lan.join(true);
    agent.says(LinkState::Up, RESUMES_WITHIN);
    stream.await_more(100_000);
    stream.is_sending.store(false, Ordering::SeqCst);
}
