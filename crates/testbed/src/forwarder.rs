//! A thread that moves packets between TUN devices: a wire, a router or a radio link of a test.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use holdover_base::{Duration, Instant};
use holdover_host::clock;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::{Tun, TunError};

/// The thread, which ends when this is dropped.
#[derive(Debug)]
pub struct Forwarder {
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<(), TunError>>>,
}

/// No more packets were forwarded.
#[derive(Debug, thiserror::Error)]
pub enum ForwarderError {
    /// A device has failed.
    #[error("a device of the forwarder failed")]
    Device(#[from] TunError),
    /// The thread has panicked.
    #[error("the forwarder panicked")]
    Panicked,
}

/// The longest sleep of the thread, after which it looks whether it is to end.
const LONGEST_SLEEP: Duration = Duration::from_millis(50);

impl Forwarder {
    /// `turn` moves waiting packets and returns when to call it again, in the time of [`clock`]; an error ends the thread. It is called
    /// whenever a device is readable, too.
    ///
    /// # Errors
    /// No thread can be started.
    pub fn start(
        name: &str,
        devices: impl Into<Arc<[Tun]>>,
        mut turn: impl FnMut(&[Tun]) -> Result<Option<Instant>, TunError> + Send + 'static,
    ) -> io::Result<Self> {
        let (devices, is_over) = (devices.into(), Arc::new(AtomicBool::new(false)));
        let over = Arc::clone(&is_over);
        let run = move || {
            let mut readable: Vec<PollFd<'_>> =
                devices.iter().map(|device| PollFd::new(device, PollFlags::IN)).collect();
            while !over.load(Ordering::SeqCst) {
                sleep(&mut readable, turn(&devices)?);
            }
            Ok(())
        };
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(run)?;
        Ok(Self { is_over, thread: Some(thread) })
    }

    /// Ends the thread. Does nothing if that was done before.
    ///
    /// # Errors
    /// The thread had ended by itself.
    pub fn end(&mut self) -> Result<(), ForwarderError> {
        self.is_over.store(true, Ordering::SeqCst);
        let Some(thread) = self.thread.take() else { return Ok(()) };
        Ok(thread.join().map_err(|_| ForwarderError::Panicked)??)
    }
}

/// Reports an error of the thread on standard error, with its name; the message of a panic was printed already.
impl Drop for Forwarder {
    fn drop(&mut self) {
        let name = self.thread.as_ref().and_then(|thread| thread.thread().name()).unwrap_or_default().to_owned();
        if let Err(ForwarderError::Device(error)) = self.end() {
            eprintln!("{name}: no packets were forwarded any more: {error}");
        }
    }
}

/// Waits for packets until `next`.
fn sleep(readable: &mut [PollFd<'_>], next: Option<Instant>) {
    let wait = next.map_or(LONGEST_SLEEP, |at| at.saturating_since(clock::now())).min(LONGEST_SLEEP);
    if wait > Duration::ZERO {
        let timeout = Timespec { tv_sec: 0, tv_nsec: wait.as_nanos() as _ };
        // After an interruption the next turn looks again.
        let _ = poll(readable, Some(&timeout));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    /// A forwarder without devices.
    fn start(turn: impl FnMut() -> Result<Option<Instant>, TunError> + Send + 'static) -> Forwarder {
        let mut turn = turn;
        Forwarder::start("test", Vec::<Tun>::new(), move |_| turn()).unwrap()
    }

    fn wait_for_end(forwarder: &Forwarder) {
        while !forwarder.thread.as_ref().unwrap().is_finished() {
            std::thread::yield_now();
        }
    }

    #[test]
    fn an_error_and_a_panic_of_a_turn_are_returned() {
        let mut failed = start(|| Err(TunError::NotIp));
        wait_for_end(&failed);
        assert!(matches!(failed.end(), Err(ForwarderError::Device(TunError::NotIp))));
        assert!(failed.end().is_ok(), "it was reported");
        let mut panicked = start(|| panic!("a panic of this test"));
        wait_for_end(&panicked);
        assert!(matches!(panicked.end(), Err(ForwarderError::Panicked)));
    }

    #[test]
    fn a_turn_is_called_at_the_time_that_the_last_one_has_returned() {
        const AFTER: Duration = Duration::from_millis(5);
        let (report, turns) = mpsc::channel();
        let mut forwarder = start(move || {
            let now = clock::now();
            let _ = report.send(now);
            Ok(Some(now + AFTER))
        });
        let times: Vec<Instant> = turns.iter().take(4).collect();
        assert!(times.is_sorted_by(|a, b| *a + AFTER <= *b), "{times:?}");
        forwarder.end().unwrap();
        assert!(turns.iter().count() < 1_000, "the thread has ended");
    }
}
