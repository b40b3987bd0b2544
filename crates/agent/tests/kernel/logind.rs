//! Announcements of sleep by a fake logind on a private bus.

use std::io::Read as _;
use std::os::unix::net::UnixStream;
use std::sync::mpsc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use futures_lite::{StreamExt as _, future};
use holdover_agent::link_watch::LinkCondition;
use holdover_agent::link_watch::suspend::LEAD;
use holdover_testbed::Namespace;
use zbus::connection::Builder;
use zbus::message::Type;
use zbus::{Connection, MessageStream};

use crate::Test;
use crate::bus::{Bus, LIMIT};
use crate::lan::{Agent, Lan};

pub(crate) const TESTS: &[Test] = &[
    ("sleep_waits_until_connections_are_prepared", sleep_waits_until_connections_are_prepared),
    ("signals_of_other_senders_than_logind_are_ignored", signals_of_other_senders_than_logind_are_ignored),
    ("a_bus_that_goes_takes_its_word_back", a_bus_that_goes_takes_its_word_back),
    ("a_logind_that_starts_later_waits_too", a_logind_that_starts_later_waits_too),
];

const SERVICE: &str = "org.freedesktop.login1";
const PATH: &str = "/org/freedesktop/login1";
const INTERFACE: &str = "org.freedesktop.login1.Manager";

/// A `dbus-daemon`, and on it a process that claims logind's name.
struct Logind {
    daemon: Bus,
    bus: Connection,
    /// This end of each inhibitor that was requested, with its description.
    inhibitors: mpsc::Receiver<(UnixStream, [String; 4])>,
}

impl Logind {
    fn start(namespace: &Namespace) -> Self {
        let this = Self::start_without_name(namespace);
        this.request_name();
        this
    }

    /// Starts the bus; the service's name has no owner yet.
    fn start_without_name(namespace: &Namespace) -> Self {
        let (daemon, bus) = Bus::start(namespace);
        let (asked, inhibitors) = mpsc::channel();
        let calls = MessageStream::from(&bus);
        std::thread::spawn({
            let bus = bus.clone();
            move || future::block_on(serve(&bus, calls, &asked))
        });
        Self { daemon, bus, inhibitors }
    }

    fn request_name(&self) {
        future::block_on(self.bus.request_name(SERVICE)).unwrap();
    }

    fn address(&self) -> String {
        self.daemon.address()
    }

    /// The next inhibitor of the agent.
    #[track_caller]
    fn inhibitor(&self) -> UnixStream {
        let (inhibitor, what) = self.inhibitors.recv_timeout(LIMIT).expect("it takes one");
        assert_eq!((&*what[0], &*what[1], &*what[3]), ("sleep", "Holdover", "delay"));
        inhibitor
    }

    /// All connections to the bus, by unique name.
    fn names(&self) -> Vec<String> {
        let service = "org.freedesktop.DBus";
        let answer = self.bus.call_method(Some(service), "/org/freedesktop/DBus", Some(service), "ListNames", &());
        let names: Vec<String> = future::block_on(answer).unwrap().body().deserialize().unwrap();
        names.into_iter().filter(|name| name.starts_with(':')).collect()
    }

    fn announce(&self, is_soon: bool) {
        let signal = self.bus.emit_signal(None::<&str>, PATH, INTERFACE, "PrepareForSleep", &is_soon);
        future::block_on(signal).unwrap();
    }
}

async fn serve(bus: &Connection, mut calls: MessageStream, asked: &mpsc::Sender<(UnixStream, [String; 4])>) {
    while let Some(Ok(message)) = calls.next().await {
        let header = message.header();
        if header.message_type() != Type::MethodCall || header.member().is_none_or(|member| *member != "Inhibit") {
            continue;
        }
        let (what, who, why, mode): (String, String, String, String) = message.body().deserialize().unwrap();
        let (ours, theirs) = UnixStream::pair().unwrap();
        let descriptor = zbus::Fd::from(std::os::fd::OwnedFd::from(theirs));
        if bus.reply(&header, &descriptor).await.is_err() || asked.send((ours, [what, who, why, mode])).is_err() {
            return;
        }
    }
}

/// Waits until the other end is closed.
#[track_caller]
fn is_let_go(inhibitor: &mut UnixStream) {
    inhibitor.set_read_timeout(Some(LIMIT)).unwrap();
    assert_eq!(inhibitor.read(&mut [0]).expect("it is let go"), 0);
}

fn is_held(inhibitor: &mut UnixStream) -> bool {
    inhibitor.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    inhibitor.read(&mut [0]).is_err()
}

// Claim: On a bus of its own with a logind of the test: sleep waits for 0.4 s in which the link is about to be cut, the next one
// again; when the bus goes, its announcement ends; other senders are ignored. Needs `dbus-daemon`.
// Tests: `logind::signals_of_other_senders_than_logind_are_ignored`, `logind::a_bus_that_goes_takes_its_word_back`
fn sleep_waits_until_connections_are_prepared(near: &Namespace) {
    let (_lan, logind) = (Lan::new(near, "192.0.2.", 24), Logind::start(near));
    let agent = Agent::start_on(near, &logind.address());
    let mut inhibitor = logind.inhibitor();
    assert!(is_held(&mut inhibitor));
    let began = Instant::now();
    logind.announce(true);
    agent.says(LinkCondition::Fading, LIMIT);
    is_let_go(&mut inhibitor);
    assert!(began.elapsed() >= LEAD.into(), "sleep was delayed by {:?}", began.elapsed());
    // First the link is down, then the inhibitor is released.
    assert_eq!(agent.state().0, LinkCondition::Down);
    logind.announce(false);
    agent.says(LinkCondition::Up, LIMIT);
    // It delays the next sleep as well.
    let mut inhibitor = logind.inhibitor();
    assert!(is_held(&mut inhibitor));
    // Sleep is cancelled.
    logind.announce(true);
    agent.says(LinkCondition::Fading, LIMIT);
    logind.announce(false);
    let took = agent.says(LinkCondition::Up, LIMIT);
    assert!(took < Duration::from_secs(2), "a warning is forgotten by itself after that: {took:?}");
    is_let_go(&mut inhibitor);
}

fn signals_of_other_senders_than_logind_are_ignored(near: &Namespace) {
    let (_lan, logind) = (Lan::new(near, "192.0.2.", 24), Logind::start(near));
    let agent = Agent::start_on(near, &logind.address());
    let mut inhibitor = logind.inhibitor();
    let somebody = future::block_on(Builder::address(logind.address().as_str()).build()).unwrap();
    for name in logind.names() {
        let reported = somebody.emit_signal(Some(name.as_str()), PATH, INTERFACE, "PrepareForSleep", &true);
        future::block_on(reported).unwrap();
    }
    // An invalid message does not end it either.
    let nonsense = logind.bus.emit_signal(None::<&str>, PATH, INTERFACE, "PrepareForSleep", &"soon");
    future::block_on(nonsense).unwrap();
    sleep(LEAD.into());
    assert_eq!(agent.state().0, LinkCondition::Up);
    assert!(is_held(&mut inhibitor));
    logind.announce(true);
    agent.says(LinkCondition::Down, LIMIT);
}

fn a_bus_that_goes_takes_its_word_back(near: &Namespace) {
    let (_lan, mut logind) = (Lan::new(near, "192.0.2.", 24), Logind::start(near));
    let agent = Agent::start_on(near, &logind.address());
    let _inhibitor = logind.inhibitor();
    logind.announce(true);
    agent.says(LinkCondition::Down, LIMIT);
    logind.daemon.kill();
    agent.says(LinkCondition::Up, LIMIT);
}

// Claim: A logind that starts after the agent, or again, waits for it before sleep.
fn a_logind_that_starts_later_waits_too(near: &Namespace) {
    let (_lan, logind) = (Lan::new(near, "192.0.2.", 24), Logind::start_without_name(near));
    let others = logind.names().len();
    let agent = Agent::start_on(near, &logind.address());
    let began = Instant::now();
    while logind.names().len() == others {
        assert!(began.elapsed() < LIMIT, "the agent does not come to the bus");
        sleep(Duration::from_millis(20));
    }
    // It has asked, without an answer.
    sleep(Duration::from_millis(500));
    logind.request_name();
    let mut first = logind.inhibitor();
    future::block_on(logind.bus.release_name(SERVICE)).unwrap();
    logind.request_name();
    let mut second = logind.inhibitor();
    is_let_go(&mut first);
    assert!(is_held(&mut second));
    logind.announce(true);
    agent.says(LinkCondition::Down, LIMIT);
    is_let_go(&mut second);
}
