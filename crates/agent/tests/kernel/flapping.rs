//! The daemon is killed, and stopped, while its link flaps and connections are held.

use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use aya::programs::{SchedClassifier, TcAttachType};
use holdover_agent::control::{self, Client, EventKind, Request, Response, SignalRequest};
use holdover_agent::daemon::{Daemon, Orders};
use holdover_agent::engine::KernelAttach;
use holdover_agent::status::Status;
use holdover_base::Rng;
use holdover_testbed::{Congestion, Namespace};
use rustix::process::Signal;

use crate::Test;
use crate::engine::filters;
use crate::engine::traffic::{Kind, Stream, Traffic};
use crate::lan::{INTERFACE, Lan, NO_BUS, SOCKET, setup};
use crate::other_process::OtherProcess;

pub(crate) const TESTS: &[Test] =
    &[("transfers_are_exact_whatever_becomes_of_the_daemon", transfers_are_exact_whatever_becomes_of_the_daemon)];

/// At least so many rounds, of four kills and two stops.
const ROUNDS: u64 = 6;

/// Rounds go on until each transfer has so many MB, if set in the environment.
const SIZE_VARIABLE: &str = "HOLDOVER_FLAPPING_MB";

/// Of the schedule.
const SEED: u64 = 16;

/// The least that each transfer has to move between two events. Without an agent a sender waits some 6 s after the longest cut.
const PROGRESS: u64 = 50_000;

/// A stop takes this long, and until the flaps under way are over.
const STOPPED: Duration = Duration::from_secs(2);

/// From a second on, packets that come in contradict the command.
const HELD_WITHIN: Duration = Duration::from_millis(800);

/// The most commands until something is held.
const TRIES: u32 = 10;

/// The limit for anything but waiting, on a slow machine.
const LIMIT: Duration = Duration::from_secs(30);

const HOOKS: [(&str, TcAttachType); 2] = [("ingress", TcAttachType::Ingress), ("egress", TcAttachType::Egress)];

/// The transfers, their link, and the daemon's directory.
struct Scene {
    lan: Lan,
    traffic: Traffic,
    directory: PathBuf,
    rng: Rng,
}

/// The daemon's process: runs until SIGTERM.
pub(crate) fn play(directory: &Path) {
    let setup = setup(directory, NO_BUS, &[INTERFACE], "");
    let attach = KernelAttach { control_socket: setup.socket.clone() };
    let daemon = Daemon::open(setup, attach, Orders::from_signals().unwrap()).unwrap();
    println!("attached");
    daemon.run().unwrap();
}

/// A killed daemon is replaced before or after the link's return. A stopped one stays so over several flaps, and until all transfers have gone
/// on without it.
// Claim: 12 transfers over a link whose carrier goes and comes at random, by IPv4 and IPv6, with CUBIC, Reno and BBR, are exact although
// the daemon is killed (SIGKILL) four times without a carrier, twice while ACKs are held, and stopped (SIGSTOP) twice for 2 s or more
// while ACKs are held. Each next daemon starts at once, with one program at each hook, and after the end of the last nothing is left:
// no program, filter, lock or file. `HOLDOVER_FLAPPING_MB=100` in the environment goes on until each has 100 MB.
fn transfers_are_exact_whatever_becomes_of_the_daemon(near: &Namespace) {
    let size = std::env::var(SIZE_VARIABLE).map_or(0, |value| value.parse::<u64>().expect("a number of MB"));
    let began = Instant::now();
    let mut scene = Scene::start(near);
    let mut daemon = scene.next_daemon();
    let mut rounds = 0;
    while rounds < ROUNDS || scene.least_received() < size * 1_000_000 {
        scene.flap();
        scene.traffic.wait_for(PROGRESS);
        match rounds % 3 {
            0 => daemon = scene.kill(daemon, true),
            1 => scene.stop(&mut daemon),
            _ => daemon = scene.kill(daemon, false),
        }
        scene.traffic.wait_for(PROGRESS);
        rounds += 1;
    }
    daemon.kill();
    let daemon = scene.next_daemon();
    scene.traffic.wait_for(PROGRESS);
    let (least, all) = (scene.least_received(), scene.traffic.received());
    let Scene { lan: _lan, traffic, directory, .. } = scene;
    let finished = traffic.finish();
    eprintln!("{rounds} rounds in {:?}: {all} bytes, {least} in each or more, finished in {finished}", began.elapsed());
    assert!(Duration::from(finished) < LIMIT, "{finished}");
    daemon.end();
    assert_eq!(HOOKS.map(programs), [0, 0]);
    let sockets = std::fs::read_to_string("/proc/thread-self/net/unix").unwrap();
    assert!(!sockets.contains("holdover/interface"), "{sockets}");
    let files: Vec<_> = std::fs::read_dir(&directory).unwrap().map(|file| file.unwrap().file_name()).collect();
    assert_eq!(files, ["agent.toml"]);
    std::fs::remove_dir_all(&directory).unwrap();
}

impl Scene {
    fn start(near: &Namespace) -> Self {
        let lan = Lan::dual(near);
        // None is so fast that it leaves the others nothing of the processor. BBR without SACK may send a segment a second for minutes after
        // such losses, also without an agent (docs/notes/linux-6.18.md).
        let fit = |kind: Kind| Kind { bulk: None, sack: kind.sack || kind.congestion == Congestion::Bbr, ..kind };
        let kinds: Vec<Kind> = Kind::various().into_iter().map(fit).collect();
        let sides = [["192.0.2.7", "192.0.2.1"], ["2001:db8::7", "2001:db8::1"]];
        let traffic = Traffic::between(near, &lan.gateway, sides, &kinds);
        let directory = std::env::temp_dir().join(format!("holdover-flapping-{}", std::process::id()));
        Self { lan, traffic, directory, rng: Rng::new(SEED) }
    }

    /// Waits for up to so many milliseconds.
    fn pause(&mut self, most: u64) {
        sleep(Duration::from_millis(self.rng.below(most)));
    }

    /// The carrier goes and comes up to four times.
    fn flap(&mut self) {
        for _ in 0..=self.rng.below(4) {
            self.lan.plug(false);
            self.pause(600);
            self.lan.plug(true);
            self.pause(600);
        }
    }

    /// Kills the daemon while there is no carrier, and starts the next one.
    fn kill(&mut self, daemon: OtherProcess, is_held: bool) -> OtherProcess {
        if is_held {
            self.hold();
        }
        self.lan.plug(false);
        self.pause(500);
        daemon.kill();
        self.pause(1500);
        let is_first_back = self.rng.chance(0.5);
        if is_first_back {
            self.lan.plug(true);
        }
        let next = self.next_daemon();
        self.lan.plug(true);
        next
    }

    /// Stops the daemon while ACKs are held: nothing stays held meanwhile.
    fn stop(&mut self, daemon: &mut OtherProcess) {
        self.hold();
        daemon.signal(Signal::STOP);
        let stopped_at = Instant::now();
        while stopped_at.elapsed() < STOPPED {
            self.flap();
        }
        self.traffic.wait_for(PROGRESS);
        daemon.signal(Signal::CONT);
    }

    /// Commands that the link is down while data come in, until ACKs are held.
    fn hold(&self) {
        for _ in 0..TRIES {
            self.command(EventKind::Down);
            let since = Instant::now();
            while since.elapsed() < HELD_WITHIN {
                if self.status().connections.iter().any(|connection| connection.held_bytes > 0) {
                    return;
                }
                sleep(Duration::from_millis(5));
            }
            self.command(EventKind::Up);
            self.traffic.wait_for(PROGRESS);
        }
        panic!("nothing is held after {TRIES} commands");
    }

    fn command(&self, event: EventKind) {
        let request = Request::Signal(SignalRequest { event, interface: None, lead: None });
        let answer = Client::ask(&self.socket(), &request).and_then(Client::answer).unwrap();
        assert_eq!(answer, Response::Signalled { links: vec![INTERFACE.to_owned()] });
    }

    /// Starts a daemon, which manages the interface without any remains of others.
    fn next_daemon(&self) -> OtherProcess {
        let daemon = OtherProcess::daemon(&self.directory);
        let links: Vec<_> = self.status().links.into_iter().map(|link| (link.interface, link.problem)).collect();
        assert_eq!(links, [(INTERFACE.to_owned(), None)]);
        assert_eq!(HOOKS.map(programs), [1, 1]);
        daemon
    }

    fn status(&self) -> Status {
        control::status(&self.socket()).unwrap()
    }

    fn socket(&self) -> PathBuf {
        self.directory.join(SOCKET)
    }

    fn least_received(&self) -> u64 {
        self.traffic.streams.iter().map(Stream::received).min().expect("there are streams")
    }
}

/// The agents' programs at a hook: by tcx, and as filters.
fn programs((name, hook): (&str, TcAttachType)) -> usize {
    // Kernels before 6.6 have no tcx.
    let by_tcx = SchedClassifier::query_tcx(INTERFACE, hook).map_or(0, |(_revision, programs)| programs.len());
    by_tcx + filters::ours_on(INTERFACE, name).len()
}
