//! A running engine: in a separate process, which can be killed and stopped, or on a thread.

use std::io::{PipeReader, PipeWriter, Read as _, Write as _};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::JoinHandle;

use holdover_agent::engine::{AttachMode, Counters, Engine, EngineOptions};
use holdover_base::{Duration, Instant, Rng};
use holdover_host::clock;
use holdover_mobility::LinkEvent;
use holdover_testbed::{Namespace, NamespaceError};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::wire::INTERFACE;

pub(crate) const UP: LinkEvent = LinkEvent::Up { symmetric: false, moved: false };

/// An engine's packet counters.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Tally {
    pub(crate) withheld: u64,
    pub(crate) lowered: u64,
    pub(crate) injected: u64,
}

/// An engine on a thread in a namespace. It ends on drop.
pub(crate) struct EngineThread {
    errands: Sender<Errand>,
    /// A byte for each task. Its end is the engine's end.
    bell: Option<PipeWriter>,
    handle: Option<JoinHandle<Result<(), NamespaceError>>>,
}

type Errand = Box<dyn FnOnce(&mut Engine) + Send>;

impl Tally {
    pub(crate) fn parse(line: &str) -> Self {
        let mut numbers = line.split(' ').map(|number| number.parse().unwrap());
        let mut next = || numbers.next().unwrap();
        Self { withheld: next(), lowered: next(), injected: next() }
    }

    pub(crate) fn plus(self, other: Self) -> Self {
        Self {
            withheld: self.withheld + other.withheld,
            lowered: self.lowered + other.lowered,
            injected: self.injected + other.injected,
        }
    }

    fn of(counters: &Counters) -> Self {
        Self { withheld: counters.withheld, lowered: counters.lowered, injected: counters.injected }
    }

    fn say(self) {
        println!("{} {} {}", self.withheld, self.lowered, self.injected);
        std::io::stdout().flush().unwrap();
    }
}

/// The engine's process: plays random events of its link for ever, or those that it reads.
pub(crate) fn play(seed: Option<u64>, attach: AttachMode) {
    let mut engine = Engine::attach(INTERFACE, &EngineOptions { attach, ..EngineOptions::default() }).unwrap();
    println!("attached");
    match seed {
        Some(seed) => play_at_random(&mut engine, seed),
        None => play_what_is_told(&mut engine),
    }
}

fn play_at_random(engine: &mut Engine, seed: u64) {
    let mut rng = Rng::new(seed);
    loop {
        let until = clock::now() + Duration::from_millis(1 + rng.below(80));
        while clock::now() < until {
            turn(engine, until, None);
        }
        let event = match rng.below(8) {
            0 => LinkEvent::Fading { lead: None },
            1 | 2 => LinkEvent::Fading { lead: Some(Duration::from_millis(rng.below(400))) },
            3 => LinkEvent::Recovered,
            4 | 5 => LinkEvent::Down,
            _ => LinkEvent::Up { symmetric: false, moved: rng.chance(0.2) },
        };
        engine.handle_link(clock::now(), event);
        Tally::of(&engine.counters()).say();
    }
}

/// Each line is answered before the next one is read.
fn play_what_is_told(engine: &mut Engine) {
    let mut line = String::new();
    loop {
        if !turn(engine, clock::now() + Duration::from_secs(1), Some(std::io::stdin().as_fd())) {
            continue;
        }
        line.clear();
        if std::io::stdin().read_line(&mut line).unwrap() == 0 {
            return;
        }
        let event = match line.trim().split_once(' ') {
            None if line.trim() == "down" => LinkEvent::Down,
            None if line.trim() == "up" => UP,
            Some(("fading", millis)) => {
                LinkEvent::Fading { lead: Some(Duration::from_millis(millis.parse().unwrap())) }
            }
            _ => panic!("{line}"),
        };
        // The counters after the previous event.
        let tally = Tally::of(&engine.counters());
        engine.handle_link(clock::now(), event);
        tally.say();
    }
}

/// Waits for work or for `other`, and serves the engine once. Returns whether `other` is readable.
fn turn(engine: &mut Engine, until: Instant, other: Option<BorrowedFd<'_>>) -> bool {
    let until = engine.poll_timeout().map_or(until, |at| at.min(until));
    let nanos = until.saturating_since(clock::now()).as_nanos();
    let timeout = Timespec { tv_sec: (nanos / 1_000_000_000) as i64, tv_nsec: (nanos % 1_000_000_000) as _ };
    let is_ready = {
        let mut fds = vec![PollFd::from_borrowed_fd(engine.as_fd(), PollFlags::IN)];
        fds.extend(other.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
        rustix::io::retry_on_intr(|| poll(&mut fds, Some(&timeout))).unwrap();
        fds.get(1).is_some_and(|fd| !fd.revents().is_empty())
    };
    engine.handle_ready(clock::now());
    let now = clock::now();
    if engine.poll_timeout().is_some_and(|at| at <= now) {
        engine.handle_timeout(now);
    }
    while engine.poll_action().is_some() {}
    if let Some(error) = engine.poll_error() {
        panic!("the kernel has refused: {error:?}");
    }
    is_ready
}

impl EngineThread {
    /// On an interface of a namespace.
    pub(crate) fn attach(namespace: &Namespace, interface: &'static str, options: EngineOptions) -> Self {
        let (errands, waiting) = mpsc::channel();
        let (rung, bell) = std::io::pipe().unwrap();
        let (attached, is_attached) = mpsc::channel();
        let body = move || {
            let mut engine = Engine::attach(interface, &options).unwrap();
            attached.send(()).unwrap();
            serve(&mut engine, &waiting, rung);
        };
        let handle = namespace.spawn_inside(body).unwrap();
        is_attached.recv().expect("the engine is attached");
        Self { errands, bell: Some(bell), handle: Some(handle) }
    }

    /// Runs a closure with the engine, and waits for its end.
    pub(crate) fn with<T: Send + 'static>(&self, what: impl FnOnce(&mut Engine) -> T + Send + 'static) -> T {
        let (sender, result) = mpsc::channel();
        self.errands.send(Box::new(move |engine| sender.send(what(engine)).unwrap())).unwrap();
        self.bell.as_ref().expect("only taken at the end").write_all(&[0]).unwrap();
        result.recv().expect("the engine is at work")
    }

    /// Passes an event of the link to the engine.
    pub(crate) fn link(&self, event: LinkEvent) {
        self.with(move |engine| engine.handle_link(clock::now(), event));
    }
}

impl Drop for EngineThread {
    fn drop(&mut self) {
        self.bell = None;
        let handle = self.handle.take().expect("only taken here");
        assert!(handle.join().is_ok() || std::thread::panicking(), "the engine panicked");
    }
}

fn serve(engine: &mut Engine, errands: &Receiver<Errand>, mut rung: PipeReader) {
    loop {
        if turn(engine, clock::now() + Duration::from_secs(1), Some(rung.as_fd())) {
            if rung.read(&mut [0]).unwrap() == 0 {
                return;
            }
            errands.recv().unwrap()(engine);
        }
    }
}
