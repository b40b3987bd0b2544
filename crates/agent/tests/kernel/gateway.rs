//! A gateway behind a bridge falls silent while the carrier stays, and comes back.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
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
use holdover_agent::link_watch::neighbours::Neighbours;
use holdover_agent::link_watch::{LinkState, Source};
use holdover_testbed::{Namespace, NamespaceError, Netlink, Route, sysctl};

use crate::Test;

pub(crate) const TESTS: &[Test] = &[
    (
        "a_gateway_that_falls_silent_is_noticed_and_its_return_too",
        a_gateway_that_falls_silent_is_noticed_and_its_return_too,
    ),
    ("so_it_is_over_ipv6", so_it_is_over_ipv6),
    ("a_download_that_stops_is_asked_about", a_download_that_stops_is_asked_about),
    ("a_gateway_that_answers_no_questions_is_not_called_down", a_gateway_that_answers_no_questions_is_not_called_down),
    ("a_gateway_that_has_spoken_is_sought_at_once", a_gateway_that_has_spoken_is_sought_at_once),
    ("an_agent_that_stops_leaves_no_question_behind", an_agent_that_stops_leaves_no_question_behind),
];

const INTERFACE: &str = "up0";
const PORT: u16 = 5000;

/// The kernel by itself asks later than all of this takes: it has found the gateway to answer, and believes it for so long.
const BELIEVED_FOR_MS: &str = "3600000";

/// Nor does it find out soon when it is told to ask: it does so once a second.
const QUESTIONS_BY_ITSELF: &str = "30";

/// What takes 2.75 s may take longer on a slow machine.
const NOTICED_WITHIN: Duration = Duration::from_secs(10);

/// The gateway is asked once a second, so that its return is known in 1.25 s; by TCP alone it would be known when something is sent
/// again, after an outage of [`OUTAGE`] some 4 s later at the soonest.
const RETURN_NOTICED_WITHIN: Duration = Duration::from_millis(2500);

const OUTAGE: Duration = Duration::from_secs(8);

/// This host, `near`; a bridge in a namespace of its own; and the gateway, which is also the server.
pub(crate) struct Lan {
    bridge: Namespace,
    gateway: Namespace,
    address: IpAddr,
}

impl Lan {
    pub(crate) fn new(near: &Namespace, prefix: &str, prefix_len: u8) -> Self {
        let address = |last: u8| format!("{prefix}{last}").parse::<IpAddr>().unwrap();
        let (bridge, gateway) = (Namespace::new("bridge").unwrap(), Namespace::new("gateway").unwrap());
        Netlink::open(near).unwrap().add_veth(INTERFACE, "near0", &bridge).unwrap();
        gateway.enter(|| Netlink::open(&gateway).unwrap().add_veth("gw0", "far0", &bridge).unwrap()).unwrap();
        let join = || {
            // It is to say nothing itself.
            sysctl::set(&bridge, "net.ipv6.conf.all.disable_ipv6", "1").unwrap();
            let mut netlink = Netlink::open(&bridge).unwrap();
            netlink.add_bridge("br0").unwrap();
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
        let family = if prefix_len <= 32 { "ipv4" } else { "ipv6" };
        for (name, value) in [("base_reachable_time_ms", BELIEVED_FOR_MS), ("ucast_solicit", QUESTIONS_BY_ITSELF)] {
            sysctl::set(near, &format!("net.{family}.neigh.{INTERFACE}.{name}"), value).unwrap();
        }
        let nowhere: IpAddr = if prefix_len <= 32 { [0; 4].into() } else { [0; 16].into() };
        let route =
            Route { destination: (nowhere, 0), gateway: Some(address(1)), link: INTERFACE.to_owned(), source: None };
        Netlink::open(near).unwrap().add_route(&route).unwrap();
        Self { bridge, gateway, address: address(1) }
    }

    /// Whether the gateway can be reached; this host's carrier stays as it is.
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
    directory: PathBuf,
}

impl Agent {
    pub(crate) fn start(near: &Namespace) -> Self {
        Self::start_on(near, "unix:path=/nowhere")
    }

    /// With a bus on which it may hear of sleep.
    pub(crate) fn start_on(near: &Namespace, system_bus: &str) -> Self {
        let directory = std::env::temp_dir().join(format!("holdover-gateway-{:?}-{}", near.id(), std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let (stop, stop_reader) = UnixStream::pair().unwrap();
        let config = "[metrics]\nenabled = false\n[user_timeouts]\nenabled = false\n[signals.gateway]\nask = true\n";
        let setup = Setup {
            system_bus: Some(system_bus.to_owned()),
            config: Config::parse(&directory, config).unwrap(),
            config_path: None,
            interfaces: vec![INTERFACE.to_owned()],
            socket: directory.join("agent.sock"),
            dry_run: false,
        };
        let (opened, is_open) = mpsc::channel();
        let body = move || {
            let (reload, _reloader) = UnixStream::pair().unwrap();
            reload.set_nonblocking(true).unwrap();
            let daemon = Daemon::open(setup, KernelAttach, Orders { stop: stop_reader, reload }).unwrap();
            opened.send(()).unwrap();
            daemon.run().unwrap();
        };
        let thread = Some(near.spawn_inside(body).unwrap());
        is_open.recv().expect("the agent runs");
        Self { thread, stop, directory }
    }

    pub(crate) fn state(&self) -> (LinkState, Vec<Source>) {
        let answer = Client::ask(&self.directory.join("agent.sock"), &Request::Status).unwrap().answer().unwrap();
        let Response::Status(mut status) = answer else { panic!("no status") };
        let link = status.links.remove(0);
        assert_eq!(link.problem, None);
        (link.state, link.objections)
    }

    /// How long it takes until the link is said to be so.
    #[track_caller]
    pub(crate) fn says(&self, expected: LinkState, within: Duration) -> Duration {
        let began = Instant::now();
        loop {
            let (state, objections) = self.state();
            if state == expected {
                let of_this_test = [[Source::Neighbour], [Source::Suspend]].iter().any(|one| *one == objections[..]);
                assert_eq!(state == LinkState::Down, of_this_test, "{objections:?}");
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
        assert!(thread.join().is_ok_and(|ended| ended.is_ok()) || std::thread::panicking(), "the agent broke");
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// A connection on which one end sends at some speed, and the other one reads.
struct Stream {
    received: Arc<AtomicU64>,
    is_sending: Arc<AtomicBool>,
    /// Both ends, so that it stays open.
    _ends: [TcpStream; 2],
}

impl Stream {
    fn start(lan: &Lan, is_upload: bool) -> Self {
        let to = SocketAddr::new(lan.address, PORT);
        let listener = lan.gateway.enter(|| TcpListener::bind(to).unwrap()).unwrap();
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

    /// Waits until so much more has come.
    #[track_caller]
    fn goes_on(&self, bytes: u64) {
        let (began, before) = (Instant::now(), self.received.load(Ordering::SeqCst));
        while self.received.load(Ordering::SeqCst) < before + bytes {
            assert!(began.elapsed() < Duration::from_secs(30), "nothing comes");
            sleep(Duration::from_millis(5));
        }
    }
}

/// The questions that this host asks, as the bridge hears them.
struct Questions(OwnedFd);

impl Questions {
    fn listen(lan: &Lan) -> Self {
        lan.bridge
            .enter(|| {
                // The bridge takes the packets of its ports before whoever wants but one kind of them.
                let protocol = (libc::ETH_P_ALL as u16).to_be();
                let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
                // SAFETY: no memory of ours is touched.
                let fd = unsafe { libc::socket(libc::AF_PACKET, kind, protocol.into()) };
                assert!(fd >= 0, "{}", std::io::Error::last_os_error());
                // SAFETY: a new descriptor, which nobody else has.
                let socket = unsafe { OwnedFd::from_raw_fd(fd) };
                only_arp(&socket);
                // SAFETY: all zero is a valid `sockaddr_ll`.
                let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
                (address.sll_family, address.sll_protocol) = (libc::AF_PACKET as u16, protocol);
                address.sll_ifindex = Netlink::open(&lan.bridge).unwrap().link("near0").unwrap().index.cast_signed();
                let len = size_of::<libc::sockaddr_ll>() as u32;
                // SAFETY: the address lives during the call, with the length that is given.
                let bound = unsafe { libc::bind(socket.as_raw_fd(), std::ptr::from_ref(&address).cast(), len) };
                assert_eq!(bound, 0, "{}", std::io::Error::last_os_error());
                Self(socket)
            })
            .unwrap()
    }

    /// So many since this was called last.
    fn count(&self) -> usize {
        let mut count = 0;
        loop {
            let mut frame = [0_u8; 64];
            // SAFETY: the buffer lives during the call, with the length that is given.
            let read = unsafe { libc::recv(self.0.as_raw_fd(), frame.as_mut_ptr().cast(), frame.len(), 0) };
            if read < 0 {
                return count;
            }
            // RFC 826: `ar$op` is 1 in a request.
            count += usize::from(frame[20..22] == [0, 1]);
        }
    }
}

/// The socket gets nothing else, which would leave no room.
fn only_arp(socket: &OwnedFd) {
    let instruction = |code: u32, jt, jf, k| libc::sock_filter { code: code as u16, jt, jf, k };
    let mut filter = [
        instruction(libc::BPF_LD | libc::BPF_H | libc::BPF_ABS, 0, 0, 12),
        instruction(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, libc::ETH_P_ARP as u32),
        instruction(libc::BPF_RET | libc::BPF_K, 0, 0, u32::MAX),
        instruction(libc::BPF_RET | libc::BPF_K, 0, 0, 0),
    ];
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: the program and its instructions live during the call, with the length that is given.
    let attached = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_FILTER,
            std::ptr::from_ref(&program).cast(),
            size_of::<libc::sock_fprog>() as u32,
        )
    };
    assert_eq!(attached, 0, "{}", std::io::Error::last_os_error());
}

/// Packets that this host has sent over the interface.
fn sent() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/net/dev").unwrap();
    let line = text.lines().find_map(|line| line.trim().strip_prefix(INTERFACE)?.strip_prefix(':')).unwrap();
    line.split_whitespace().nth(9).unwrap().parse().unwrap()
}

fn a_gateway_that_falls_silent_is_noticed_and_its_return_too(near: &Namespace) {
    let lan = Lan::new(near, "192.0.2.", 24);
    is_noticed(near, &lan);
}

fn so_it_is_over_ipv6(near: &Namespace) {
    let lan = Lan::new(near, "2001:db8::", 64);
    is_noticed(near, &lan);
}

fn is_noticed(near: &Namespace, lan: &Lan) {
    let agent = Agent::start(near);
    let stream = Stream::start(lan, true);
    stream.goes_on(2_000_000);
    assert_eq!(agent.state().0, LinkState::Up);
    let cut_at = Instant::now();
    lan.join(false);
    eprintln!("down after {:?}", agent.says(LinkState::Down, NOTICED_WITHIN));
    sleep(OUTAGE.saturating_sub(cut_at.elapsed()));
    lan.join(true);
    eprintln!("up after {:?}", agent.says(LinkState::Up, RETURN_NOTICED_WITHIN));
    stream.goes_on(1_000_000);
    stream.is_sending.store(false, Ordering::SeqCst);
    if lan.address.is_ipv4() {
        // What was under way arrives, and what is asked about it is answered; then there is nothing to say.
        sleep(Duration::from_secs(8));
        let before = sent();
        sleep(Duration::from_secs(5));
        assert_eq!(sent(), before, "an idle link is not asked");
    }
    assert_eq!(agent.state().0, LinkState::Up);
}

fn a_download_that_stops_is_asked_about(near: &Namespace) {
    let lan = Lan::new(near, "192.0.2.", 24);
    let agent = Agent::start(near);
    let stream = Stream::start(&lan, false);
    stream.goes_on(1_000_000);
    // It comes to its end; asked about that, the gateway answers that it is there.
    stream.is_sending.store(false, Ordering::SeqCst);
    sleep(Duration::from_secs(5));
    assert_eq!(agent.state().0, LinkState::Up);
    drop(stream);
    sleep(Duration::from_secs(3));
    let stream = Stream::start(&lan, false);
    stream.goes_on(1_000_000);
    lan.join(false);
    eprintln!("down after {:?}", agent.says(LinkState::Down, NOTICED_WITHIN));
    lan.join(true);
    eprintln!("up after {:?}", agent.says(LinkState::Up, RETURN_NOTICED_WITHIN));
    stream.goes_on(1_000_000);
    stream.is_sending.store(false, Ordering::SeqCst);
}

fn a_gateway_that_answers_no_questions_is_not_called_down(near: &Namespace) {
    let lan = Lan::new(near, "192.0.2.", 24);
    let stream = Stream::start(&lan, true);
    stream.goes_on(100_000);
    // It knows this host, which knows it; from now on it answers no questions.
    lan.gateway.enter(|| sysctl::set(&lan.gateway, "net.ipv4.conf.all.arp_ignore", "8").unwrap()).unwrap();
    let questions = Questions::listen(&lan);
    let agent = Agent::start(near);
    stream.goes_on(2_000_000);
    // Long enough for three questions, too short for the kernel to find out by itself.
    for is_known_to_be_mute in [false, true] {
        lan.join(false);
        questions.count();
        let cut_at = Instant::now();
        while cut_at.elapsed() < Duration::from_secs(4) {
            assert_eq!(agent.state().0, LinkState::Up);
            sleep(Duration::from_millis(10));
        }
        lan.join(true);
        stream.goes_on(1_000_000);
        assert_eq!(agent.state().0, LinkState::Up);
        let count = questions.count();
        assert_eq!(count < 3, is_known_to_be_mute, "{count} questions");
    }
    stream.is_sending.store(false, Ordering::SeqCst);
}

/// After a silence it is often the gateway that speaks first; the kernel then has its address again, and asks nothing for 5 s.
fn a_gateway_that_has_spoken_is_sought_at_once(near: &Namespace) {
    let lan = Lan::new(near, "192.0.2.", 24);
    let stream = Stream::start(&lan, true);
    stream.goes_on(100_000);
    stream.is_sending.store(false, Ordering::SeqCst);
    sleep(Duration::from_millis(500));
    let index = Netlink::open(near).unwrap().link(INTERFACE).unwrap().index;
    let (mut neighbours, questions) = (Neighbours::open().unwrap(), Questions::listen(&lan));
    let asked_within = |millis| {
        sleep(Duration::from_millis(millis));
        questions.count()
    };
    neighbours.take_back(index, lan.address).unwrap();
    assert_eq!(asked_within(500), 0);
    neighbours.seek(index, lan.address).unwrap();
    assert_eq!(asked_within(500), 1);
    // While it is being asked, it is asked once a second, however often it is looked for.
    lan.join(false);
    for _ in 0..8 {
        neighbours.seek(index, lan.address).unwrap();
        sleep(Duration::from_millis(250));
    }
    let count = questions.count();
    assert!((2..=3).contains(&count), "{count} questions in 2 s");
    // Nor is it asked when nobody looks for it any more.
    neighbours.take_back(index, lan.address).unwrap();
    assert_eq!(asked_within(2500), 0);
    // Each question that is asked on purpose is one.
    for _ in 0..3 {
        neighbours.ask(index, lan.address).unwrap();
        assert_eq!(asked_within(300), 1);
    }
}

fn an_agent_that_stops_leaves_no_question_behind(near: &Namespace) {
    let lan = Lan::new(near, "192.0.2.", 24);
    let agent = Agent::start(near);
    let stream = Stream::start(&lan, true);
    stream.goes_on(2_000_000);
    lan.join(false);
    agent.says(LinkState::Down, NOTICED_WITHIN);
    let questions = Questions::listen(&lan);
    drop(agent);
    sleep(Duration::from_millis(200));
    questions.count();
    sleep(Duration::from_millis(2500));
    assert_eq!(questions.count(), 0, "the kernel still asks");
    lan.join(true);
    stream.goes_on(100_000);
    stream.is_sending.store(false, Ordering::SeqCst);
}
