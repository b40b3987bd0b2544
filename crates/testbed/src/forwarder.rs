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
    thread: Option<JoinHandle<()>>,
}

/// The longest sleep of the thread, after which it looks whether it is to end.
const LONGEST_SLEEP: Duration = Duration::from_millis(50);

impl Forwarder {
    /// Calls `turn` whenever a device is readable, and at the time of [`clock`] that it has returned. It moves all packets that are there,
    /// and ends the thread by an error.
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
            while !over.load(Ordering::SeqCst) {
                match turn(&devices) {
                    Ok(next) => sleep(&devices, next),
                    Err(error) => return tracing::warn!(%error, "no more packets are forwarded"),
                }
            }
        };
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(run)?;
        Ok(Self { is_over, thread: Some(thread) })
    }

    /// Ends the thread; returns whether it did not panic.
    pub fn end(&mut self) -> bool {
        self.is_over.store(true, Ordering::SeqCst);
        self.thread.take().is_none_or(|thread| thread.join().is_ok())
    }
}

impl Drop for Forwarder {
    fn drop(&mut self) {
        // The message of a panic was printed already.
        self.end();
    }
}

/// Waits for packets until `next`.
fn sleep(devices: &[Tun], next: Option<Instant>) {
    let wait = next.map_or(LONGEST_SLEEP, |at| at.saturating_since(clock::now())).min(LONGEST_SLEEP);
    let patience = Timespec { tv_sec: 0, tv_nsec: wait.as_nanos() as _ };
    let mut readable: Vec<PollFd<'_>> = devices.iter().map(|device| PollFd::new(device, PollFlags::IN)).collect();
    // After an interruption the next turn looks again.
    let _ = poll(&mut readable, Some(&patience));
}
