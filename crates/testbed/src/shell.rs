//! The wall-clock loop: one endpoint without I/O on this side of a TUN device, a Linux kernel on the other.
//!
//! Each round of [`Shell::run`] passes packets of the kernel through the impairment of that direction to the endpoint, handles expired
//! deadlines of the endpoint, calls the application, and passes the endpoint's packets through the other impairment to the kernel. When
//! nothing is left to do, it sleeps until a packet arrives, a deadline expires or a [`Waker`] is used.

use std::io;
use std::ops::ControlFlow;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use holdover_base::{Duration, Instant};
use holdover_wire::{CaptureError, EmitError, Packet};
use rustix::event::Timespec;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::io::Errno;

use crate::capture::{Capture, TunDirection};
use crate::wall_clock::WallClock;
use crate::{Impairment, Tun, TunError};

/// An endpoint without I/O. [`Shell::run`] determines the order of the calls; times never go backwards.
pub trait PacketEndpoint {
    /// A packet arrived.
    fn handle_packet(&mut self, now: Instant, packet: Packet);
    /// The next packet to send; called until `None`.
    fn poll_transmit(&mut self, now: Instant) -> Option<Packet>;
    /// When [`PacketEndpoint::handle_timeout`] is to be called; `None` if nothing is pending.
    fn poll_timeout(&mut self) -> Option<Instant>;
    /// The deadline of `poll_timeout` has passed; `now` may be a little later.
    fn handle_timeout(&mut self, now: Instant);
}

/// The loop's state, kept between runs: the clock continues, packets stay in flight.
#[derive(Debug)]
pub struct Shell<'a> {
    tun: &'a Tun,
    clock: WallClock,
    from_kernel: Impairment,
    to_kernel: Impairment,
    wake: Arc<OwnedFd>,
    scratch: Vec<u8>,
    capture: Option<Capture>,
    counters: ShellCounters,
}

/// The end of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stopped<T> {
    /// The application ended it, with this value.
    ByApplication(T),
    /// The deadline passed first.
    AtDeadline,
}

/// Counters of the device.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ShellCounters {
    /// Packets sent by the kernel.
    pub packets_from_kernel: u64,
    /// Their bytes, IP headers included.
    pub bytes_from_kernel: u64,
    /// Of these, packets that could not be parsed at the endpoint: corrupted, or of an unknown form.
    pub unparsable: u64,
    /// Packets passed to the kernel.
    pub packets_to_kernel: u64,
    /// Their bytes, IP headers included.
    pub bytes_to_kernel: u64,
    /// Of these, packets that the kernel did not accept as IP: corrupted in their first half byte.
    pub not_ip: u64,
    /// Packets that were dropped because the interface was down.
    pub dropped_while_down: u64,
}

/// A run failed.
#[derive(Debug, thiserror::Error)]
pub enum ShellError {
    /// The device failed.
    #[error(transparent)]
    Tun(#[from] TunError),
    /// The capture failed.
    #[error(transparent)]
    Capture(#[from] CaptureError),
    /// A system call of the loop itself failed.
    #[error("{call} failed")]
    Failed {
        /// The call.
        call: &'static str,
        /// The kernel's reason.
        source: io::Error,
    },
    /// The endpoint's packet cannot be emitted.
    #[error("the endpoint's packet cannot be written: {packet:?}")]
    Emit {
        /// The packet.
        packet: Box<Packet>,
        /// The error.
        source: EmitError,
    },
    /// The endpoint's packet exceeds the interface's MTU.
    #[error("the endpoint's packet of {len} bytes is over the MTU of {mtu}")]
    ExceedsMtu {
        /// The packet's length in bytes.
        len: usize,
        /// The interface's MTU in bytes.
        mtu: u32,
    },
    /// The endpoint's deadline does not advance after repeated timeouts.
    #[error("livelock: the endpoint's deadline {deadline} stays in the past, and nothing is sent or received")]
    Livelock {
        /// The deadline.
        deadline: Instant,
    },
}

/// Ends the sleep of a [`Shell`] from another thread, so that the application is called.
#[derive(Clone, Debug)]
pub struct Waker(Arc<OwnedFd>);

/// The most packets that one round takes from the device, so that deadlines and the application are not starved.
const RECEIVE_BATCH: usize = 64;
/// The most packets that one round takes from the endpoint, for the same reason.
const TRANSMIT_BATCH: usize = 256;
/// The limit of consecutive rounds in which the endpoint was called for a deadline and nothing moved: far more than the
/// timers of any endpoint that can expire at one time.
const LIVELOCK_ROUNDS: u32 = 100_000;

impl<'a> Shell<'a> {
    /// A loop over `tun` with an unimpaired link, whose clock starts now.
    pub fn new(tun: &'a Tun) -> Result<Self, ShellError> {
        let wake = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC).map_err(failed("eventfd"))?;
        Ok(Self {
            tun,
            clock: WallClock::start(),
            from_kernel: Impairment::none(),
            to_kernel: Impairment::none(),
            wake: Arc::new(wake),
            scratch: vec![0; tun.mtu() as usize],
            capture: None,
            counters: ShellCounters::default(),
        })
    }

    /// Adds a pcapng capture of the packets on the device: those from the kernel before impairment, and those to the kernel after it. It is
    /// flushed at the end of each run.
    pub fn with_capture(mut self, out: impl io::Write + Send + 'static) -> Result<Self, ShellError> {
        self.capture = Some(Capture::begin(Box::new(out), self.tun.name(), self.clock)?);
        Ok(self)
    }

    /// Adds an impairment in one direction, whose outages count from the start of the clock.
    #[must_use]
    pub fn with_impairment(mut self, direction: TunDirection, impairment: Impairment) -> Self {
        *self.impairment_mut(direction) = impairment;
        self
    }

    /// The impairment of a direction, for its counters.
    pub fn impairment(&self, direction: TunDirection) -> &Impairment {
        match direction {
            TunDirection::FromKernel => &self.from_kernel,
            TunDirection::ToKernel => &self.to_kernel,
        }
    }

    /// The loop's clock, which other threads may read.
    pub fn clock(&self) -> WallClock {
        self.clock
    }

    /// A handle that ends the loop's sleep.
    pub fn waker(&self) -> Waker {
        Waker(Arc::clone(&self.wake))
    }

    /// The counters so far.
    pub fn counters(&self) -> ShellCounters {
        self.counters
    }

    /// Drives `endpoint` until `application` breaks or `limit` has passed.
    ///
    /// The application is called once in every round, after the endpoint has handled all input, to read, to write, and
    /// to check for the end of the test. Packets of the endpoint that are pending at the break are still sent.
    pub fn run<E, T>(
        &mut self,
        endpoint: &mut E,
        limit: Duration,
        mut application: impl FnMut(Instant, &mut E) -> ControlFlow<T>,
    ) -> Result<Stopped<T>, ShellError>
    where
        E: PacketEndpoint + ?Sized,
    {
        let _slack = TimerSlack::least();
        let deadline = self.clock.now() + limit;
        let stopped = self.rounds(endpoint, deadline, &mut application);
        if let Some(capture) = &mut self.capture {
            capture.flush()?;
        }
        stopped
    }

    fn rounds<E, T>(
        &mut self,
        endpoint: &mut E,
        deadline: Instant,
        application: &mut impl FnMut(Instant, &mut E) -> ControlFlow<T>,
    ) -> Result<Stopped<T>, ShellError>
    where
        E: PacketEndpoint + ?Sized,
    {
        let mut idle_rounds = 0;
        loop {
            let now = self.clock.now();
            let received = self.receive(now, endpoint)?;
            let due = endpoint.poll_timeout().filter(|due| *due <= now);
            if due.is_some() {
                endpoint.handle_timeout(now);
            }
            let verdict = application(now, endpoint);
            let transmitted = self.transmit(now, endpoint)?;
            if let ControlFlow::Break(result) = verdict {
                return Ok(Stopped::ByApplication(result));
            }
            if now >= deadline {
                return Ok(Stopped::AtDeadline);
            }
            match due {
                Some(deadline) if received == 0 && transmitted == 0 => {
                    idle_rounds += 1;
                    if idle_rounds == LIVELOCK_ROUNDS {
                        return Err(ShellError::Livelock { deadline });
                    }
                }
                _ => idle_rounds = 0,
            }
            // After a transmission the application is called first, because it may have waited for the transmission.
            if received < RECEIVE_BATCH && transmitted == 0 {
                let wake_at = [endpoint.poll_timeout(), self.from_kernel.poll_timeout(), self.to_kernel.poll_timeout()];
                self.sleep(wake_at.into_iter().flatten().fold(deadline, Instant::min))?;
            }
        }
    }

    /// Drives `endpoint` until `kernel_side` has returned, which runs on a separate thread, in the calling thread's namespace, so that it
    /// can open sockets there. A panic of `kernel_side` continues in the caller.
    ///
    /// The run ends when all packets that the kernel had sent by then have reached the impairment.
    ///
    /// `kernel_side` must end by itself, as the timeouts of [`crate::KernelStream`] ensure: the loop waits for it even when `limit` has
    /// passed.
    pub fn run_beside<E, T>(
        &mut self,
        endpoint: &mut E,
        limit: Duration,
        mut application: impl FnMut(Instant, &mut E),
        kernel_side: impl FnOnce() -> T + Send,
    ) -> Result<Stopped<T>, ShellError>
    where
        E: PacketEndpoint + ?Sized,
        T: Send,
    {
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            let end = SignalEnd { is_over: &is_over, waker: self.waker() };
            let kernel_side = thread::Builder::new()
                .name("kernel-side".to_owned())
                .spawn_scoped(scope, move || {
                    let _end = end;
                    kernel_side()
                })
                .map_err(|source| ShellError::Failed { call: "starting a thread", source })?;
            let tun = self.tun;
            let stopped = self.run(endpoint, limit, |now, endpoint| {
                application(now, endpoint);
                let is_through = is_over.load(Ordering::Acquire) && !tun.is_readable();
                if is_through { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            });
            let result = kernel_side.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            Ok(match stopped? {
                Stopped::ByApplication(()) => Stopped::ByApplication(result),
                Stopped::AtDeadline => Stopped::AtDeadline,
            })
        })
    }

    /// Kernel to endpoint. Returns the number of packets moved.
    fn receive<E: PacketEndpoint + ?Sized>(&mut self, now: Instant, endpoint: &mut E) -> Result<usize, ShellError> {
        let mut moved = 0;
        while moved < RECEIVE_BATCH
            && let Some(bytes) = self.tun.recv(&mut self.scratch)?
        {
            moved += 1;
            self.counters.packets_from_kernel += 1;
            self.counters.bytes_from_kernel += bytes.len() as u64;
            if let Some(capture) = &mut self.capture {
                capture.record(now, TunDirection::FromKernel, &bytes, "")?;
            }
            self.from_kernel.handle_packet(now, bytes);
        }
        while let Some(bytes) = self.from_kernel.poll_packet(now) {
            match Packet::parse(bytes) {
                Ok(packet) => endpoint.handle_packet(now, packet),
                Err(_) => self.counters.unparsable += 1,
            }
        }
        Ok(moved)
    }

    /// Endpoint to kernel. Returns the number of packets that the endpoint sent.
    fn transmit<E: PacketEndpoint + ?Sized>(&mut self, now: Instant, endpoint: &mut E) -> Result<usize, ShellError> {
        let mut moved = 0;
        while moved < TRANSMIT_BATCH
            && let Some(packet) = endpoint.poll_transmit(now)
        {
            moved += 1;
            let bytes = match packet.emit() {
                Ok(bytes) => bytes,
                Err(source) => return Err(ShellError::Emit { packet: Box::new(packet), source }),
            };
            if bytes.len() > self.tun.mtu() as usize {
                return Err(ShellError::ExceedsMtu { len: bytes.len(), mtu: self.tun.mtu() });
            }
            self.to_kernel.handle_packet(now, bytes);
        }
        while let Some(bytes) = self.to_kernel.poll_packet(now) {
            self.counters.packets_to_kernel += 1;
            self.counters.bytes_to_kernel += bytes.len() as u64;
            let comment = match self.tun.send(&bytes) {
                Ok(()) => "",
                Err(TunError::NotIp) => {
                    self.counters.not_ip += 1;
                    "refused by the kernel: not IP"
                }
                Err(TunError::Down { .. }) => {
                    self.counters.dropped_while_down += 1;
                    "refused by the kernel: the interface is down"
                }
                Err(error) => return Err(error.into()),
            };
            if let Some(capture) = &mut self.capture {
                capture.record(now, TunDirection::ToKernel, &bytes, comment)?;
            }
        }
        Ok(moved)
    }

    fn sleep(&self, until: Instant) -> Result<(), ShellError> {
        let span = until.saturating_since(self.clock.now());
        if span.is_zero() {
            return Ok(());
        }
        let mut fds =
            [PollFd::new(self.tun, PollFlags::IN), PollFd::from_borrowed_fd(self.wake.as_fd(), PollFlags::IN)];
        match poll(&mut fds, Some(&timespec(span))) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(failed("ppoll")(errno)),
        }
        if fds[1].revents().contains(PollFlags::IN) {
            match rustix::io::read(&*self.wake, &mut [0; 8]) {
                Ok(_) | Err(Errno::AGAIN | Errno::INTR) => {}
                Err(errno) => return Err(failed("read of eventfd")(errno)),
            }
        }
        Ok(())
    }

    fn impairment_mut(&mut self, direction: TunDirection) -> &mut Impairment {
        match direction {
            TunDirection::FromKernel => &mut self.from_kernel,
            TunDirection::ToKernel => &mut self.to_kernel,
        }
    }
}

impl Waker {
    /// An event descriptor that wakes its poller.
    pub(crate) fn new() -> io::Result<Self> {
        let fd = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        Ok(Self(Arc::new(fd)))
    }

    /// Clears all wakes so far, so that the next poll waits.
    pub(crate) fn rest(&self) {
        // The read fails only if there was no wake.
        let _ = rustix::io::read(&*self.0, &mut [0; 8]);
    }

    /// Ends the current sleep, or the next one if the loop is awake.
    pub fn wake(&self) {
        // The counter can only be full if it is not 0, and then the loop will wake anyway.
        let _ = rustix::io::write(&*self.0, &1_u64.to_ne_bytes());
    }
}

impl AsFd for Waker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Notifies the loop of the other thread's end, also by panic.
struct SignalEnd<'a> {
    is_over: &'a AtomicBool,
    waker: Waker,
}

impl Drop for SignalEnd<'_> {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Release);
        self.waker.wake();
    }
}

/// Lets the calling thread's sleeps end within nanoseconds of their time, instead of the usual 50 us; until it is
/// dropped.
pub(crate) struct TimerSlack {
    before: Option<std::num::NonZeroU64>,
}

impl TimerSlack {
    pub(crate) fn least() -> Self {
        let before = rustix::thread::current_timer_slack().ok().and_then(std::num::NonZeroU64::new);
        // If the kernel refuses, only precision is lost.
        let _ = rustix::thread::set_current_timer_slack(Some(std::num::NonZeroU64::MIN));
        Self { before }
    }
}

impl Drop for TimerSlack {
    fn drop(&mut self) {
        let _ = rustix::thread::set_current_timer_slack(self.before);
    }
}

/// Lets the calling thread run before all ordinary ones as soon as it is woken, if the system permits it (as root); until it is dropped.
pub(crate) struct Precedence {
    is_taken: bool,
}

impl Precedence {
    pub(crate) fn take() -> Self {
        // `chrt` may have given the process a higher priority.
        if is_real_time() {
            return Self { is_taken: false };
        }
        // If the kernel refuses, only precision is lost. Threads started by this one have ordinary scheduling.
        set_scheduler(libc::SCHED_RR | libc::SCHED_RESET_ON_FORK, 1);
        Self { is_taken: true }
    }
}

impl Drop for Precedence {
    fn drop(&mut self) {
        if self.is_taken {
            set_scheduler(libc::SCHED_OTHER, 0);
        }
    }
}

/// Whether the calling thread runs before all ordinary ones.
fn is_real_time() -> bool {
    // SAFETY: the call has no memory of ours; 0 is the calling thread.
    let policy = unsafe { libc::sched_getscheduler(0) };
    matches!(policy & !libc::SCHED_RESET_ON_FORK, libc::SCHED_RR | libc::SCHED_FIFO)
}

fn set_scheduler(policy: libc::c_int, priority: libc::c_int) {
    // SAFETY: all fields of the structure are numbers, so that zero is a valid value.
    let mut parameters: libc::sched_param = unsafe { std::mem::zeroed() };
    parameters.sched_priority = priority;
    // SAFETY: the call reads the structure; 0 is the calling thread.
    unsafe { libc::sched_setscheduler(0, policy, &raw const parameters) };
}

pub(crate) fn timespec(span: Duration) -> Timespec {
    let nanos = span.as_nanos();
    // u64 nanoseconds fit into i64 seconds.
    Timespec { tv_sec: (nanos / 1_000_000_000) as _, tv_nsec: (nanos % 1_000_000_000) as _ }
}

fn failed(call: &'static str) -> impl Fn(Errno) -> ShellError {
    move |errno| ShellError::Failed { call, source: errno.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Policy and priority of the calling thread.
    fn scheduling() -> (libc::c_int, libc::c_int) {
        // SAFETY: all fields of the structure are numbers, so that zero is a valid value.
        let mut parameters: libc::sched_param = unsafe { std::mem::zeroed() };
        // SAFETY: the calls write to the structure alone; 0 is the calling thread.
        let policy = unsafe {
            libc::sched_getparam(0, &raw mut parameters);
            libc::sched_getscheduler(0)
        };
        (policy, parameters.sched_priority)
    }

    /// Without the right to a real-time priority, nothing changes in either case.
    #[test]
    fn precedence_is_taken_once_and_never_lowered() {
        thread::spawn(|| {
            let ordinary = scheduling();
            let taken = Precedence::take();
            let first = scheduling();
            drop(taken);
            assert_eq!(scheduling(), ordinary);
            set_scheduler(libc::SCHED_FIFO, 3);
            let higher = scheduling();
            assert!(first == ordinary || higher == (libc::SCHED_FIFO, 3), "{first:?} {higher:?}");
            let taken = Precedence::take();
            assert_eq!(scheduling(), higher);
            drop(taken);
            assert_eq!(scheduling(), higher);
        })
        .join()
        .expect("the thread");
    }
}
