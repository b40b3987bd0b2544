//! The poll loop of a daemon, in one thread: it waits until a descriptor is ready or a deadline has passed, calls the
//! daemon, and notifies the service manager (`READY=1`, `WATCHDOG=1`, `STOPPING=1`).
//!
//! A daemon implements [`PollLoop`]: before each wait [`PollLoop::interests`] returns the descriptors and the
//! deadlines, and after it [`PollLoop::handle_ready`] gets the tokens of the ready descriptors, in the order of
//! `interests`. [`run`] is the loop.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::io;
use std::ops::ControlFlow;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use holdover_base::{Duration, Instant};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use signal_hook::SigId;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag::register_conditional_default;
use signal_hook::low_level::{pipe, unregister};

use crate::clock;
use crate::notify::Notifier;
use crate::session::{Listener, Sessions};

/// A daemon driven by [`run`].
pub trait PollLoop {
    /// Identifies a descriptor.
    type Token: Clone + PartialEq;
    /// Why the daemon cannot continue.
    type Error: From<WaitError>;

    /// The descriptors to poll, and the deadlines.
    fn interests(&self) -> Interests<'_, Self::Token>;

    /// Handles the ready descriptors, possibly none, and every deadline up to `now`. [`ControlFlow::Break`] ends the
    /// loop.
    ///
    /// # Errors
    /// Something essential has failed.
    fn handle_ready(&mut self, now: Instant, ready: Vec<Self::Token>) -> Result<ControlFlow<()>, Self::Error>;
}

/// `poll(2)` failed.
#[derive(Debug, thiserror::Error)]
#[error("waiting for events")]
pub struct WaitError(#[source] io::Error);

/// Runs a daemon until it ends the loop. Notifies the service manager at both ends, and the watchdog in between.
///
/// # Errors
/// See [`PollLoop::handle_ready`]; or `poll(2)` fails.
pub fn run<D: PollLoop>(daemon: &mut D) -> Result<(), D::Error> {
    let notifier = Notifier::from_environment();
    notifier.notify("READY=1");
    let result = drive(daemon, &notifier);
    notifier.notify("STOPPING=1");
    result
}

fn drive<D: PollLoop>(daemon: &mut D, notifier: &Notifier) -> Result<(), D::Error> {
    let mut watchdog = notifier.watchdog().map(|every| (every, clock::now() + every));
    loop {
        let mut interests = daemon.interests();
        interests.add_deadlines(watchdog.map(|(_, due)| due));
        let ready = interests.wait()?;
        let now = clock::now();
        if daemon.handle_ready(now, ready)?.is_break() {
            return Ok(());
        }
        if let Some((every, due)) = &mut watchdog
            && *due <= now
        {
            notifier.notify("WATCHDOG=1");
            *due = now + *every;
        }
    }
}

/// The descriptors and deadlines of one wait.
#[derive(Debug)]
pub struct Interests<'a, T> {
    tokens: Vec<T>,
    descriptors: Vec<PollFd<'a>>,
    until: Option<Instant>,
}

impl<T> Default for Interests<'_, T> {
    fn default() -> Self {
        Self { tokens: Vec::new(), descriptors: Vec::new(), until: None }
    }
}

impl<'a, T: Clone + PartialEq> Interests<'a, T> {
    /// No descriptors and no deadlines.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a descriptor and its events.
    pub fn add(&mut self, token: T, descriptor: BorrowedFd<'a>, flags: PollFlags) {
        self.tokens.push(token);
        self.descriptors.push(PollFd::from_borrowed_fd(descriptor, flags));
    }

    /// Adds descriptors to poll for input, all under one token.
    pub fn add_readable(&mut self, token: T, descriptors: impl IntoIterator<Item = BorrowedFd<'a>>) {
        for descriptor in descriptors {
            self.add(token.clone(), descriptor, PollFlags::IN);
        }
    }

    /// Adds the listener and the sessions of a server, and the next session timeout.
    pub fn add_sessions<L: Listener>(&mut self, token: T, sessions: &'a Sessions<L>) {
        for (descriptor, flags) in sessions.descriptors() {
            self.add(token.clone(), descriptor, flags);
        }
        self.add_deadlines(sessions.poll_timeout());
    }

    /// Adds deadlines: the wait ends at the earliest one.
    pub fn add_deadlines(&mut self, deadlines: impl IntoIterator<Item = Instant>) {
        self.until = self.until.into_iter().chain(deadlines).min();
    }

    /// Waits. Returns the tokens of the ready descriptors, with equal neighbours merged; empty after a deadline or a
    /// signal.
    fn wait(mut self) -> Result<Vec<T>, WaitError> {
        let timeout = self.until.map(|at| timespec(at.saturating_since(clock::now())));
        match poll(&mut self.descriptors, timeout.as_ref()) {
            Ok(_) => {}
            Err(Errno::INTR) => return Ok(Vec::new()),
            Err(errno) => return Err(WaitError(errno.into())),
        }
        let polled = self.tokens.into_iter().zip(&self.descriptors);
        let mut ready: Vec<T> =
            polled.filter(|(_, descriptor)| !descriptor.revents().is_empty()).map(|(token, _)| token).collect();
        ready.dedup();
        Ok(ready)
    }
}

fn timespec(duration: Duration) -> Timespec {
    let seconds = i64::try_from(duration.as_secs()).unwrap_or(i64::MAX);
    Timespec { tv_sec: seconds, tv_nsec: (duration.as_nanos() % 1_000_000_000) as _ }
}

/// Signals as input of a poll loop: readable once one has arrived.
///
/// On drop, its handlers are removed. A signal without any input left ends the process, independent of its former action.
#[derive(Debug)]
pub struct SignalInput {
    stream: UnixStream,
    registered: Vec<(i32, SigId)>,
}

/// All signals that were ever an input.
static SIGNALS: Mutex<BTreeMap<i32, SignalState>> = Mutex::new(BTreeMap::new());

/// A signal that is or was an input. Removing a handler does not restore the default action, so a handler emulates it.
struct SignalState {
    inputs: usize,
    has_default_action: Arc<AtomicBool>,
}

/// Changes the number of inputs for a signal.
fn count_inputs(signal: i32, change: impl FnOnce(usize) -> usize) -> io::Result<()> {
    let mut signals = SIGNALS.lock().unwrap_or_else(PoisonError::into_inner);
    let state = match signals.entry(signal) {
        Entry::Occupied(known) => known.into_mut(),
        Entry::Vacant(vacant) => {
            let has_default_action = Arc::new(AtomicBool::new(false));
            register_conditional_default(signal, Arc::clone(&has_default_action))?;
            vacant.insert(SignalState { inputs: 0, has_default_action })
        }
    };
    state.inputs = change(state.inputs);
    state.has_default_action.store(state.inputs == 0, Ordering::SeqCst);
    Ok(())
}

impl Drop for SignalInput {
    fn drop(&mut self) {
        for (signal, id) in self.registered.drain(..) {
            unregister(id);
            // Only the registration of the first input can fail.
            let _ = count_inputs(signal, |inputs| inputs.saturating_sub(1));
        }
    }
}

impl SignalInput {
    /// SIGTERM and SIGINT: stop.
    ///
    /// # Errors
    /// The system refuses.
    pub fn stop() -> io::Result<Self> {
        Self::register(&[SIGTERM, SIGINT])
    }

    /// SIGHUP: reload files.
    ///
    /// # Errors
    /// The system refuses.
    pub fn reload() -> io::Result<Self> {
        Self::register(&[SIGHUP])
    }

    fn register(signals: &[i32]) -> io::Result<Self> {
        let (reader, writer) = UnixStream::pair()?;
        let mut input = Self::from_stream(reader)?;
        for &signal in signals {
            let id = pipe::register(signal, writer.try_clone()?)?;
            input.registered.push((signal, id));
            count_inputs(signal, |inputs| inputs + 1)?;
        }
        Ok(input)
    }

    /// Input from elsewhere in this process instead of signals: a byte stands for one. The other end has to stay open:
    /// a closed stream is always readable.
    ///
    /// # Errors
    /// The system refuses.
    pub fn from_stream(stream: UnixStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        Ok(Self { stream, registered: Vec::new() })
    }

    /// Consumes the signals received so far, so that it becomes readable with the next one.
    pub fn clear(&mut self) {
        let mut bytes = [0; 64];
        while matches!(io::Read::read(&mut self.stream, &mut bytes), Ok(1..)) {}
    }

    /// The descriptor.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::os::unix::net::UnixDatagram;

    use super::*;

    /// Two inputs and a deadline; the second input ends the loop.
    struct Two {
        first: SignalInput,
        second: SignalInput,
        due: Option<Instant>,
        /// The tokens of each round.
        rounds: Vec<Vec<u8>>,
    }

    impl PollLoop for Two {
        type Token = u8;
        type Error = WaitError;

        fn interests(&self) -> Interests<'_, u8> {
            let mut interests = Interests::new();
            interests.add_readable(1, [self.first.descriptor(), self.first.descriptor()]);
            interests.add_readable(2, [self.second.descriptor()]);
            interests.add_deadlines(self.due);
            interests
        }

        fn handle_ready(&mut self, now: Instant, ready: Vec<u8>) -> Result<ControlFlow<()>, WaitError> {
            let is_over = ready.contains(&2);
            if ready.contains(&1) {
                self.first.clear();
            }
            if self.due.is_some_and(|due| due <= now) {
                self.due = None;
            }
            self.rounds.push(ready);
            Ok(if is_over { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        }
    }

    fn two() -> (Two, [UnixStream; 2]) {
        let ((first, one), (second, other)) = (UnixStream::pair().unwrap(), UnixStream::pair().unwrap());
        let input = |stream| SignalInput::from_stream(stream).unwrap();
        (Two { first: input(first), second: input(second), due: None, rounds: Vec::new() }, [one, other])
    }

    // Claim: A daemon's poll loop reports ready descriptors in order, wakes for deadlines, and feeds the service manager's
    // watchdog.
    // Tests: `poll_loop::a_deadline_ends_the_wait_and_consumed_input_does_not`,
    // `poll_loop::the_watchdog_is_notified_twice_per_interval`
    #[test]
    fn ready_descriptors_are_reported_in_order_and_once() {
        let (mut daemon, [mut first, mut second]) = two();
        first.write_all(b"xx").unwrap();
        second.write_all(b"x").unwrap();
        drive(&mut daemon, &Notifier::default()).unwrap();
        assert_eq!(daemon.rounds, [[1, 2]]);
    }

    #[test]
    fn a_deadline_ends_the_wait_and_consumed_input_does_not() {
        let (mut daemon, [mut first, mut second]) = two();
        first.write_all(b"x").unwrap();
        daemon.due = Some(clock::now() + Duration::from_millis(30));
        let began = clock::now();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(std::time::Duration::from_millis(90));
                second.write_all(b"x").unwrap();
            });
            drive(&mut daemon, &Notifier::default()).unwrap();
        });
        assert_eq!(daemon.rounds, [vec![1], vec![], vec![2]]);
        assert!(clock::now().saturating_since(began) >= Duration::from_millis(90));
    }

    #[test]
    fn the_watchdog_is_notified_twice_per_interval() {
        let (listener, socket) = UnixDatagram::pair().unwrap();
        listener.set_read_timeout(Some(std::time::Duration::from_secs(10))).unwrap();
        let notifier = Notifier::over(socket, Duration::from_millis(40));
        assert_eq!(notifier.watchdog(), Some(Duration::from_millis(20)));
        let (mut daemon, [_first, mut second]) = two();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut buffer = [0; 64];
                for _ in 0..2 {
                    let heard = listener.recv(&mut buffer).unwrap();
                    assert_eq!(&buffer[..heard], b"WATCHDOG=1");
                }
                second.write_all(b"x").unwrap();
            });
            let began = clock::now();
            drive(&mut daemon, &notifier).unwrap();
            assert!(clock::now().saturating_since(began) >= Duration::from_millis(40));
        });
    }

    #[test]
    fn an_input_without_signals_is_closed() {
        let input = SignalInput::reload().unwrap();
        let (stream, registered) = (input.stream.try_clone().unwrap(), input.registered.len());
        assert_eq!(registered, 1);
        drop(input);
        // The handler's end is closed with it.
        let mut polled = [PollFd::new(&stream, PollFlags::IN)];
        assert_eq!(poll(&mut polled, Some(&timespec(Duration::from_secs(1)))).unwrap(), 1);
        assert_eq!(io::Read::read(&mut &stream, &mut [0; 1]).unwrap(), 0);
    }

    /// The action on SIGTERM in a separate process of [`a_signal_without_inputs_has_its_default_action`].
    const CASE: &str = "HOLDOVER_TEST_SIGNAL_INPUT";

    #[test]
    fn a_signal_without_inputs_has_its_default_action() {
        use std::os::unix::process::ExitStatusExt as _;

        if let Ok(case) = std::env::var(CASE) {
            let (first, second) = (SignalInput::stop().unwrap(), SignalInput::stop().unwrap());
            drop(first);
            let _heard = match case.as_str() {
                "dropped" => {
                    drop(second);
                    None
                }
                "dropped-and-made-anew" => {
                    drop(second);
                    Some(SignalInput::stop().unwrap())
                }
                _ => Some(second),
            };
            signal_hook::low_level::raise(SIGTERM).unwrap();
            return;
        }
        let name = "poll_loop::tests::a_signal_without_inputs_has_its_default_action";
        for (case, ends) in [("dropped", true), ("one-is-left", false), ("dropped-and-made-anew", false)] {
            let mut command = std::process::Command::new(std::env::current_exe().unwrap());
            let status = command.args(["--exact", name]).env(CASE, case).output().unwrap().status;
            assert_eq!(status.signal(), ends.then_some(SIGTERM), "{case}: {status}");
            assert!(ends || status.success(), "{case}: {status}");
        }
    }
}
