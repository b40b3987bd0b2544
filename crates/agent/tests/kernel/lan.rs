//! A link for the agent to manage: this host, a bridge, a gateway and servers behind it; the daemon, and streams of data.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::{JoinHandle, sleep};
use std::time::{Duration, Instant};

use holdover_agent::config::Config;
use holdover_agent::control::{Client, Request, Response};
use holdover_agent::daemon::{Daemon, Orders, Setup};
use holdover_agent::engine::KernelAttach;
use holdover_agent::link_watch::{LinkCondition, Source};
use holdover_agent::status::{ActionLine, Status};
use holdover_host::poll_loop::SignalInput;
use holdover_mobility::Connection;
use holdover_testbed::{Namespace, NamespaceError, Netlink, Route, harness, sysctl};
use socket2::{Domain, Socket, Type};

use crate::iproute::ip;

/// This host's interface.
pub(crate) const INTERFACE: &str = "up0";

/// This host, `near`; a bridge in a namespace of its own; and the gateway, which is also the server.
pub(crate) struct Lan {
    pub(crate) bridge: Namespace,
    pub(crate) gateway: Namespace,
    pub(crate) address: IpAddr,
}

impl Lan {
    pub(crate) fn new(near: &Namespace, prefix: &str, prefix_len: u8) -> Self {
        Self::routed(near, prefix, prefix_len, format!("{prefix}1").parse().unwrap())
    }

    /// With addresses, and routes, of both IP versions.
    pub(crate) fn dual(near: &Namespace) -> Self {
        let lan = Self::new(near, "192.0.2.", 24);
        let enable = |namespace: &Namespace| sysctl::set(namespace, "net.ipv6.conf.all.disable_ipv6", "0").unwrap();
        enable(near);
        lan.gateway.enter(|| enable(&lan.gateway)).unwrap();
        lan.gateway.enter(|| ip("address add 2001:db8::1/64 dev gw0 nodad")).unwrap();
        ip(&format!("address add 2001:db8::7/64 dev {INTERFACE} nodad"));
        ip(&format!("-6 route add default via 2001:db8::1 dev {INTERFACE}"));
        lan
    }

    /// With a gateway that is a router: this host's route leads to its link-local address, as with router advertisements (RFC 4861 section
    /// 6.3.4).
    pub(crate) fn behind_a_router(near: &Namespace) -> Self {
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

    /// With nothing configured but the gateway's link-local address, `fe80::1`.
    pub(crate) fn unconfigured(near: &Namespace, address: IpAddr) -> Self {
        let (bridge, gateway) = joined(near);
        gateway
            .enter(|| {
                let mut netlink = Netlink::open(&gateway).unwrap();
                netlink.set_up("gw0").unwrap();
                netlink.add_address("gw0", "fe80::1".parse().unwrap(), 64).unwrap();
            })
            .unwrap();
        Self { bridge, gateway, address }
    }

    fn routed(near: &Namespace, prefix: &str, prefix_len: u8, router: IpAddr) -> Self {
        let address = |last: u8| format!("{prefix}{last}").parse::<IpAddr>().unwrap();
        let (bridge, gateway) = joined(near);
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
            Route { destination: (nowhere, 0), next_hop: Some(router), link: INTERFACE.to_owned(), source: None };
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
    pub(crate) fn join(&self, is_joined: bool) {
        let change = || {
            let mut netlink = Netlink::open(&self.bridge).unwrap();
            if is_joined { netlink.set_up("far0").unwrap() } else { netlink.set_down("far0").unwrap() }
        };
        self.bridge.enter(change).unwrap();
    }
}

/// A bridge and a gateway, each in a namespace of its own, and the wires that join them and `near`.
fn joined(near: &Namespace) -> (Namespace, Namespace) {
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
    (bridge, gateway)
}

/// A daemon in the namespace of the thread that starts it.
pub(crate) struct Agent {
    thread: Option<JoinHandle<Result<(), NamespaceError>>>,
    stop: UnixStream,
    reload: UnixStream,
    directory: PathBuf,
}

/// The control socket's name in the daemon's directory.
pub(crate) const SOCKET: &str = "agent.sock";

/// The address of no bus: no announcements of sleep.
pub(crate) const NO_BUS: &str = "unix:path=/nowhere";

/// The beginning of each configuration.
const COMMON: &str = "[metrics]\nenabled = false\n";

/// The daemon's setup on these interfaces, with its control socket and its configuration in a directory, which is created, and with
/// additional configuration.
pub(crate) fn setup(directory: &Path, system_bus: &str, interfaces: &[&str], more: &str) -> Setup {
    std::fs::create_dir_all(directory).unwrap();
    let has_rules = more.contains("[user_timeouts]");
    let timeouts = if has_rules { "" } else { "[user_timeouts]\nenabled = false\n" };
    let config = format!("{COMMON}{timeouts}{more}");
    let config_path = directory.join("agent.toml");
    std::fs::write(&config_path, &config).unwrap();
    Setup {
        system_bus: Some(system_bus.to_owned()),
        config: Config::parse(directory, &config).unwrap(),
        config_path: Some(config_path),
        interfaces: interfaces.iter().map(ToString::to_string).collect(),
        socket: directory.join(SOCKET),
        dry_run: false,
    }
}

impl Agent {
    pub(crate) fn start(near: &Namespace) -> Self {
        Self::start_on(near, NO_BUS)
    }

    /// With a bus for announcements of sleep.
    pub(crate) fn start_on(near: &Namespace, system_bus: &str) -> Self {
        Self::start_with(near, "gateway", system_bus, &[INTERFACE], "[signals.next_hop]\nask = true\n")
    }

    /// With a separate name, on these interfaces, with additional configuration.
    pub(crate) fn start_with(near: &Namespace, name: &str, system_bus: &str, interfaces: &[&str], more: &str) -> Self {
        let directory = std::env::temp_dir().join(format!("holdover-{name}-{:?}-{}", near.id(), std::process::id()));
        let (stop, stop_reader) = UnixStream::pair().unwrap();
        let setup = setup(&directory, system_bus, interfaces, more);
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
        self.directory.join(SOCKET)
    }

    pub(crate) fn status(&self) -> Status {
        let answer = Client::ask(&self.socket(), &Request::Status).unwrap().answer().unwrap();
        let Response::Status(status) = answer else { panic!("no status") };
        *status
    }

    /// The last actions.
    pub(crate) fn actions(&self) -> Vec<ActionLine> {
        let mut answers = Client::ask(&self.socket(), &Request::Actions { follow: false }).unwrap();
        let mut actions = Vec::new();
        while let Some(Response::Action(action)) = answers.follow().unwrap() {
            actions.push(action);
        }
        actions
    }

    pub(crate) fn state(&self) -> (LinkCondition, Vec<Source>) {
        let link = self.status().links.remove(0);
        assert_eq!(link.problem, None);
        (link.state, link.objections)
    }

    /// Waits until a source reports the link down.
    #[track_caller]
    pub(crate) fn is_down_by(&self, source: Source, within: Duration) {
        let began = Instant::now();
        while self.state() != (LinkCondition::Down, vec![source]) {
            assert!(began.elapsed() < within, "{:?} after {:?}", self.state(), began.elapsed());
            sleep(Duration::from_millis(10));
        }
    }

    /// How long it takes until the link is reported in this state.
    #[track_caller]
    pub(crate) fn says(&self, expected: LinkCondition, within: Duration) -> Duration {
        let began = Instant::now();
        loop {
            let (state, objections) = self.state();
            if state == expected {
                // The kernel may notice, too.
                let of_this_test = [Source::Silence, Source::Neighbour, Source::Suspend];
                assert_eq!(state == LinkCondition::Down, !objections.is_empty(), "{objections:?}");
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

/// A connection from this host whose socket is bound to the interface, and its other end.
pub(crate) fn connect_bound(listener: &TcpListener) -> [TcpStream; 2] {
    let to = listener.local_addr().unwrap();
    let socket = Socket::new(Domain::for_address(to), Type::STREAM, None).unwrap();
    socket.bind_device(Some(INTERFACE.as_bytes())).unwrap();
    socket.connect(&to.into()).unwrap();
    [socket.into(), listener.accept().unwrap().0]
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
                let route =
                    Route { destination: (nowhere, 0), next_hop: gateway, link: "srv0".to_owned(), source: None };
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
    all_resume(std::slice::from_ref(stream), end_outage)[0]
}

/// The same of each of these streams.
#[track_caller]
pub(crate) fn all_resume(streams: &[Stream], end_outage: impl FnOnce()) -> Vec<Duration> {
    let before: Vec<u64> = streams.iter().map(Stream::received).collect();
    end_outage();
    let (began, mut took) = (Instant::now(), vec![None; streams.len()]);
    while took.contains(&None) {
        for (number, stream) in streams.iter().enumerate() {
            if took[number].is_none() && stream.received() > before[number] {
                took[number] = Some(began.elapsed());
            }
        }
        assert!(began.elapsed() < Duration::from_secs(60), "nothing comes: {took:?}");
        sleep(Duration::from_millis(1));
    }
    took.into_iter().flatten().collect()
}
