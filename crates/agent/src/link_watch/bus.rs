//! Shared by the clients of services on the system bus: a thread that reads the bus, the queue of its reports, and reconnection after the
//! bus was lost.
//!
//! The thread, and one of zbus's, sleep in between. Services are never started for this.

use std::convert::Infallible;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, mpsc};
use std::task::{Poll, Waker};
use std::thread;
use std::time::Duration;

use futures_lite::future;
use zbus::connection::Builder;
use zbus::message::Type;
use zbus::{Connection, MatchRule, Message};

/// The interval between attempts.
const RETRY: Duration = Duration::from_secs(60);
/// The timeout for answers of the bus or of a service.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The name of the bus, and of its interface.
pub(super) const BUS: &str = "org.freedesktop.DBus";

/// Why following ends.
#[derive(Debug)]
pub(super) enum Ended {
    /// The receiver of the reports is gone.
    ReceiverGone,
    Bus(zbus::Error),
}

impl From<zbus::Error> for Ended {
    fn from(error: zbus::Error) -> Self {
        Self::Bus(error)
    }
}

impl Ended {
    /// The connection to the bus was closed.
    pub(super) fn closed() -> Self {
        Self::Bus(zbus::Error::InputOutput(io::Error::from(io::ErrorKind::UnexpectedEof).into()))
    }
}

/// A follower of a service.
pub(super) trait Follow: Send + 'static {
    /// The name of its thread.
    const NAME: &'static str;

    /// Connects to the bus, and reports until the bus is lost.
    fn follow(&mut self) -> impl Future<Output = Result<Infallible, Ended>>;

    /// Withdraws all reports: the bus is lost.
    fn withdraw(&mut self) -> Result<(), Ended>;

    /// Logs, once, that the bus or the service cannot be followed.
    fn log(error: &zbus::Error);
}

/// The reports of a follower. Readable when [`Self::poll`] has a report. Its thread ends when this is dropped.
#[derive(Debug)]
pub(super) struct Reports<T> {
    reports: mpsc::Receiver<T>,
    /// A byte for each report.
    wakeups: UnixStream,
    stop: Arc<Stop>,
    has_ended: bool,
}

/// The follower's end of the queue.
pub(super) struct Reporter<T> {
    reports: mpsc::Sender<T>,
    wakeup: UnixStream,
}

impl<T> Reports<T> {
    /// Starts a thread for the follower that is made from the queue's sending end.
    ///
    /// # Errors
    /// No more descriptors or threads are available.
    pub(super) fn follow<F: Follow>(follower: impl FnOnce(Reporter<T>) -> F) -> io::Result<Self> {
        let (sender, reports) = mpsc::channel();
        let (wakeups, wakeup) = UnixStream::pair()?;
        wakeups.set_nonblocking(true)?;
        let stop = Arc::new(Stop::default());
        let (mut follower, stopped) = (follower(Reporter { reports: sender, wakeup }), Arc::clone(&stop));
        thread::Builder::new().name(F::NAME.to_owned()).spawn(move || run(&mut follower, &stopped))?;
        Ok(Self { reports, wakeups, stop, has_ended: false })
    }

    /// The next report, in order.
    pub(super) fn poll(&mut self) -> Option<T> {
        let mut byte = [0];
        match self.wakeups.read(&mut byte) {
            Ok(1..) => self.reports.try_recv().ok(),
            Ok(0) => {
                self.has_ended = true;
                None
            }
            Err(_) => None,
        }
    }

    /// Whether its thread has ended: no reports will follow.
    pub(super) const fn has_ended(&self) -> bool {
        self.has_ended
    }
}

impl<T> AsFd for Reports<T> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.wakeups.as_fd()
    }
}

impl<T> Drop for Reports<T> {
    fn drop(&mut self) {
        self.stop.request();
    }
}

impl<T> Reporter<T> {
    pub(super) fn report(&self, report: T) -> Result<(), Ended> {
        self.reports.send(report).map_err(|_| Ended::ReceiverGone)?;
        (&self.wakeup).write_all(&[0]).map_err(|_| Ended::ReceiverGone)
    }
}

fn run<F: Follow>(follower: &mut F, stop: &Stop) {
    let mut is_logged = false;
    while let Ended::Bus(error) = until_stopped(follower, stop) {
        if !std::mem::replace(&mut is_logged, true) {
            F::log(&error);
        }
        if follower.withdraw().is_err() || stop.sleep(RETRY) {
            return;
        }
    }
}

fn until_stopped(follower: &mut impl Follow, stop: &Stop) -> Ended {
    let stopped = async {
        stop.requested().await;
        Err(Ended::ReceiverGone)
    };
    let Err(ended) = future::block_on(future::or(stopped, follower.follow()));
    ended
}

/// A connection to the bus at this address, or to the system bus.
pub(super) async fn connect(address: Option<&str>) -> zbus::Result<Connection> {
    let builder = address.map_or_else(Builder::system, Builder::address);
    builder.method_timeout(TIMEOUT).build().await
}

/// Matches the signal that a service has started or ended.
pub(super) fn owner_changes(service: &str) -> zbus::Result<MatchRule<'_>> {
    let rule = MatchRule::builder().msg_type(Type::Signal).sender(BUS).interface(BUS);
    rule.member("NameOwnerChanged").arg(0, service).build()
}

/// The unique name of the owner of a name; `None` if the service does not run.
pub(super) async fn owner_of(bus: &Connection, name: &str) -> zbus::Result<Option<String>> {
    let answer = bus.call_method(Some(BUS), "/org/freedesktop/DBus", Some(BUS), "GetNameOwner", &name).await;
    match answer {
        Ok(answer) => Ok(Some(answer.body().deserialize()?)),
        Err(error) if is_answer(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Whether an error is the answer to a call, so that the connection stays usable. Errors that D-Bus defines, such as `NameHasNoOwner`, are of a kind of
/// their own.
pub(super) const fn is_answer(error: &zbus::Error) -> bool {
    matches!(error, zbus::Error::MethodError(..) | zbus::Error::FDO(_))
}

/// The unique name of a message's sender, or the name of the bus.
pub(super) fn sender_of(message: &Message) -> String {
    message.header().sender().map(ToString::to_string).unwrap_or_default()
}

/// The name of a signal or method.
pub(super) fn member_of(message: &Message) -> String {
    message.header().member().map(ToString::to_string).unwrap_or_default()
}

/// Ends the thread when the receiver of its reports is dropped, also while it waits for the bus.
#[derive(Debug, Default)]
struct Stop {
    state: Mutex<StopState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct StopState {
    is_requested: bool,
    /// The thread's side, while it waits for the bus.
    waker: Option<Waker>,
}

impl Stop {
    fn state(&self) -> MutexGuard<'_, StopState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn request(&self) {
        let mut state = self.state();
        state.is_requested = true;
        state.waker.take().into_iter().for_each(Waker::wake);
        self.changed.notify_all();
    }

    /// Ends when the stop is requested.
    async fn requested(&self) {
        std::future::poll_fn(|context| {
            let mut state = self.state();
            state.waker = Some(context.waker().clone());
            if state.is_requested { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }

    /// Sleeps, but no longer than until the stop is requested; returns whether it is.
    fn sleep(&self, time: Duration) -> bool {
        let waited = self.changed.wait_timeout_while(self.state(), time, |state| !state.is_requested);
        waited.unwrap_or_else(PoisonError::into_inner).0.is_requested
    }
}
