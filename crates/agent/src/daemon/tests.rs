use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::mpsc;
use std::thread::JoinHandle;

use holdover_mobility::wake::WakeConfig;
use holdover_mobility::{Action, Connection};

use super::*;
use crate::control::{Client, ClientError, EventKind, Refusal, SignalRequest};
use crate::link_watch::LinkChange;
use crate::path_engine::{Counters, PathConnection, PathEngine};
use crate::status::ActionLine;

/// An engine that notes its calls, and acts on each.
struct Fake {
    reported: mpsc::Sender<String>,
    action: Option<Action>,
}

struct Fakes(mpsc::Sender<String>);

impl Attach for Fakes {
    type Engine = Fake;
    type Error = std::convert::Infallible;

    fn attach(&mut self, _: &str, config: &WakeConfig) -> Result<Fake, Self::Error> {
        let how = if config.hold_back.is_some() { "attached" } else { "attached without holding back" };
        self.0.send(how.to_owned()).unwrap();
        Ok(Fake { reported: self.0.clone(), action: None })
    }
}

fn connection() -> Connection {
    Connection { local: "192.0.2.7:1024".parse().unwrap(), remote: "198.51.100.1:443".parse().unwrap() }
}

impl PathEngine for Fake {
    fn descriptor(&self) -> Option<std::os::fd::BorrowedFd<'_>> {
        None
    }

    fn handle_link(&mut self, now: Instant, change: LinkChange) {
        self.reported.send(change.to_string()).unwrap();
        self.action = Some(Action { at: now, connection: connection(), mechanism: "hold_back", what: "released" });
    }

    fn handle_ready(&mut self, _: Instant) {}

    fn handle_timeout(&mut self, _: Instant) {}

    fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    fn poll_action(&mut self) -> Option<Action> {
        self.action.take()
    }

    fn connections(&mut self, _: Instant) -> Vec<PathConnection> {
        Vec::new()
    }

    fn counters(&self) -> Counters {
        Counters::default()
    }

    fn leave_alone(&mut self, _: Connection, _: bool) {}
}

/// A daemon that manages `lo` of this network namespace, in a thread.
struct Running {
    thread: Option<JoinHandle<Result<(), DaemonError>>>,
    stop: UnixStream,
    reload: UnixStream,
    reported: mpsc::Receiver<String>,
    directory: PathBuf,
}

fn free_port() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

impl Running {
    fn start(name: &str, config: &str) -> Self {
        let directory = std::env::temp_dir().join(format!("holdover-agent-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&directory);
        std::fs::create_dir_all(&directory).unwrap();
        let config_path = directory.join("agent.toml");
        std::fs::write(&config_path, config).unwrap();
        let (stop, stop_reader) = UnixStream::pair().unwrap();
        let (reload, reload_reader) = UnixStream::pair().unwrap();
        let input = |reader| SignalInput::from_stream(reader).unwrap();
        let orders = Orders { stop: input(stop_reader), reload: input(reload_reader) };
        let (sender, reported) = mpsc::channel();
        let setup = Setup {
            system_bus: Some("unix:path=/nowhere".to_owned()),
            config: Config::read(&config_path).unwrap(),
            config_path: Some(config_path),
            interfaces: vec!["lo".to_owned()],
            socket: directory.join("agent.sock"),
            dry_run: false,
        };
        let daemon = Daemon::open(setup, Fakes(sender.clone()), orders).unwrap_or_else(|error| panic!("{error}"));
        // The fakes' state may move between threads; the daemon as a whole moves once.
        let thread = Some(std::thread::spawn(move || daemon.run()));
        Self { thread, stop, reload, reported, directory }
    }

    fn socket(&self) -> PathBuf {
        self.directory.join("agent.sock")
    }

    fn ask(&self, request: &Request) -> Result<Response, ClientError> {
        Client::ask(&self.socket(), request)?.answer()
    }

    fn signal(&self, event: EventKind, interface: Option<&str>) -> Result<Response, ClientError> {
        self.ask(&Request::Signal(SignalRequest { event, interface: interface.map(str::to_owned), lead: None }))
    }

    fn hears(&self) -> String {
        self.reported.recv_timeout(std::time::Duration::from_secs(30)).unwrap()
    }

    fn stop(mut self) {
        self.stop.write_all(b"x").unwrap();
        self.thread.take().unwrap().join().unwrap().unwrap();
        assert!(!self.socket().exists());
        std::fs::remove_dir_all(&self.directory).unwrap();
    }
}

/// Changes nothing on this machine.
const NO_METRICS: &str = "[metrics]\nenabled = false\n[user_timeouts]\nenabled = false\n";

#[test]
fn signals_reach_the_engine_and_actions_reach_followers() {
    let agent = Running::start("signal", NO_METRICS);
    assert_eq!(agent.hears(), "attached");
    let mut follower = Client::ask(&agent.socket(), &Request::Actions { follow: true }).unwrap();
    let lo = || Response::Signalled { links: vec!["lo".to_owned()] };
    assert_eq!(agent.signal(EventKind::Down, Some("lo")).unwrap(), lo());
    assert_eq!(agent.hears(), "down");
    assert_eq!(agent.signal(EventKind::Up, None).unwrap(), lo());
    assert_eq!(agent.hears(), "up");
    let Some(Response::Action(ActionLine { what, remote, .. })) = follower.follow().unwrap() else {
        panic!("no action")
    };
    assert_eq!((what.as_str(), remote), ("released", connection().remote));
    let Response::Status(status) = agent.ask(&Request::Status).unwrap() else { panic!("no status") };
    assert_eq!((status.links.len(), status.links[0].record.outages), (1, 1));
    let refused = agent.signal(EventKind::Up, Some("nowhere"));
    assert!(matches!(refused, Err(ClientError::Refused(Refusal::NoSuchLink { .. }))), "{refused:?}");
    agent.stop();
}

#[test]
fn the_socket_is_for_one_agent_and_one_user() {
    use std::os::unix::fs::PermissionsExt as _;
    let agent = Running::start("socket", NO_METRICS);
    let mode = std::fs::metadata(agent.socket()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let refused = listen(&agent.socket()).map(drop);
    assert!(
        matches!(refused, Err(ControlSocketError::AlreadyRunning { pid: Some(pid), .. }) if pid == std::process::id())
    );
    let socket = agent.socket();
    agent.stop();
    let gone = Client::ask(&socket, &Request::Status);
    assert!(matches!(gone, Err(ClientError::NotRunning { .. })), "{gone:?}");
}

#[test]
fn a_configuration_is_read_again_and_a_bad_one_changes_nothing() {
    let mut agent = Running::start("reload", NO_METRICS);
    assert_eq!(agent.hears(), "attached");
    let path = agent.directory.join("agent.toml");
    std::fs::write(&path, "nonsense = 1").unwrap();
    agent.reload.write_all(b"x").unwrap();
    std::fs::write(agent.directory.join("s.csv"), "tomorrow,down").unwrap();
    std::fs::write(&path, format!("{NO_METRICS}[wake]\nhold_back = 0\n")).unwrap();
    agent.reload.write_all(b"x").unwrap();
    assert_eq!(agent.hears(), "attached without holding back");
    agent.stop();
}

#[test]
fn prometheus_is_answered() {
    let address = free_port();
    let agent =
        Running::start("metrics", &format!("[user_timeouts]\nenabled = false\n[metrics]\nlisten = \"{address}\"\n"));
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    assert!(text.starts_with("HTTP/1.1 200 OK") && text.contains("holdover_link_up{interface=\"lo\"} 1"), "{text}");
    agent.stop();
}

#[test]
fn invalid_requests_are_answered_or_disconnected() {
    let agent = Running::start("nonsense", NO_METRICS);
    for nonsense in [&b"\xff\xfe\n"[..], b"{}\n", &[b'x'; 10_000]] {
        let mut stream = UnixStream::connect(agent.socket()).unwrap();
        // The daemon may disconnect before all is written.
        let _ = stream.write_all(nonsense);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        let answer = String::from_utf8(answer).unwrap();
        assert!(answer.is_empty() || answer.contains("not-understood"), "{answer}");
    }
    assert!(matches!(agent.ask(&Request::Status), Ok(Response::Status(_))));
    agent.stop();
}
