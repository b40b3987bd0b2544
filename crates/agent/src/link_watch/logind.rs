//! logind's announcements of sleep and wake-up: `PrepareForSleep` of `org.freedesktop.login1.Manager`, on the system
//! bus. An inhibitor lock (`systemd-inhibit(1)`, mode *delay*) delays sleep until connections are prepared.
//!
//! The bus is read by a separate thread and one of zbus's, which sleep in between. Without a bus or logind there are no
//! announcements; the connection is retried once a minute.

use std::cell::Cell;
use std::io::{self, Read as _, Write as _};
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use futures_lite::{StreamExt as _, future};
use zbus::connection::Builder;
use zbus::message::Type;
use zbus::{Connection, MatchRule, Message, MessageStream};

use holdover_host::clock;

/// An announcement of logind.
#[derive(Debug)]
pub enum Announcement {
    /// The machine is about to sleep.
    Soon {
        /// The machine sleeps once this is dropped, or after logind's timeout (5 s); at once without an inhibitor.
        inhibitor: Option<Inhibitor>,
        /// How long it had slept in total at the announcement.
        slept: holdover_base::Duration,
    },
    /// It is awake, or sleep was cancelled.
    Over,
}

/// Delays sleep until dropped.
#[derive(Debug)]
pub struct Inhibitor {
    _descriptor: OwnedFd,
}

/// Options of the connection.
#[derive(Clone, Debug, Default)]
pub struct LogindOptions {
    /// The bus address; `None` for the system bus.
    pub address: Option<String>,
    /// Whether not to take inhibitor locks.
    pub only_listens: bool,
}

/// The connection to logind. Readable when [`Self::poll_announcement`] has something.
#[derive(Debug)]
pub struct Logind {
    announced: mpsc::Receiver<Announcement>,
    /// A byte for each announcement.
    bell: UnixStream,
    has_ended: bool,
}

const SERVICE: &str = "org.freedesktop.login1";
const PATH: &str = "/org/freedesktop/login1";
const INTERFACE: &str = "org.freedesktop.login1.Manager";

/// The interval between attempts.
const RETRY: Duration = Duration::from_secs(60);

/// The timeout for answers of the bus or of logind.
const PATIENCE: Duration = Duration::from_secs(10);

/// The capacity of the announcement queue.
const QUEUE: NonZeroUsize = NonZeroUsize::new(8).unwrap();

impl Logind {
    /// Connects. Call it after privileges have been dropped.
    ///
    /// # Errors
    /// No more descriptors or threads are available.
    pub fn follow(options: LogindOptions) -> io::Result<Self> {
        let (announce, announced) = mpsc::channel();
        let (bell, rope) = UnixStream::pair()?;
        bell.set_nonblocking(true)?;
        let teller = Teller { announce, rope, said_soon: Cell::new(false) };
        thread::Builder::new().name("logind".to_owned()).spawn(move || run(&options, &teller))?;
        Ok(Self { announced, bell, has_ended: false })
    }

    /// The next announcement, in order.
    pub fn poll_announcement(&mut self) -> Option<Announcement> {
        let mut byte = [0];
        match self.bell.read(&mut byte) {
            Ok(1..) => self.announced.try_recv().ok(),
            Ok(0) => {
                self.has_ended = true;
                None
            }
            Err(_) => None,
        }
    }

    /// Whether its thread has ended: no announcements will follow.
    pub const fn has_ended(&self) -> bool {
        self.has_ended
    }
}

impl AsFd for Logind {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}

/// The thread's end of the queue.
struct Teller {
    announce: mpsc::Sender<Announcement>,
    rope: UnixStream,
    /// Its last announcement.
    said_soon: Cell<bool>,
}

/// The receiver is gone.
struct NobodyListens;

impl Teller {
    fn tell(&self, announcement: Announcement) -> Result<(), NobodyListens> {
        self.said_soon.set(matches!(announcement, Announcement::Soon { .. }));
        self.announce.send(announcement).map_err(|_| NobodyListens)?;
        (&self.rope).write_all(&[0]).map_err(|_| NobodyListens)
    }
}

fn run(options: &LogindOptions, teller: &Teller) {
    let mut has_complained = false;
    loop {
        match future::block_on(follow(options, teller)) {
            Ok(NobodyListens) => return,
            Err(error) => {
                if !std::mem::replace(&mut has_complained, true) {
                    tracing::info!(%error, "cannot follow logind: sleep is noticed only afterwards");
                }
            }
        }
        // A lost connection cannot announce the end any more.
        if teller.said_soon.get() && teller.tell(Announcement::Over).is_err() {
            return;
        }
        thread::sleep(RETRY);
    }
}

/// Runs until the bus connection is lost.
async fn follow(options: &LogindOptions, teller: &Teller) -> zbus::Result<NobodyListens> {
    let builder = match &options.address {
        Some(address) => Builder::address(address.as_str()),
        None => Builder::system(),
    };
    let bus = builder.method_timeout(PATIENCE).build().await?;
    let signal = MatchRule::builder().msg_type(Type::Signal).sender(SERVICE).path(PATH);
    let rule = signal.interface(INTERFACE).member("PrepareForSleep").build()?;
    let mut signals = MessageStream::for_match_rule(rule, &bus, Some(QUEUE)).await?;
    let mut inhibitor = inhibit(options, &bus).await;
    while let Some(signal) = signals.next().await {
        let (signal, slept) = (signal?, clock::slept());
        // Any process on the bus may send signals.
        if !is_from(&bus, SERVICE, &signal).await? {
            continue;
        }
        let Ok(is_soon) = signal.body().deserialize::<bool>() else { continue };
        let announcement =
            if is_soon { Announcement::Soon { inhibitor: inhibitor.take(), slept } } else { Announcement::Over };
        if teller.tell(announcement).is_err() {
            return Ok(NobodyListens);
        }
        if !is_soon {
            inhibitor = inhibit(options, &bus).await;
        }
    }
    Err(zbus::Error::InputOutput(io::Error::from(io::ErrorKind::UnexpectedEof).into()))
}

/// Whether the sender of a message owns the name.
async fn is_from(bus: &Connection, name: &str, message: &Message) -> zbus::Result<bool> {
    let service = "org.freedesktop.DBus";
    let answer = bus.call_method(Some(service), "/org/freedesktop/DBus", Some(service), "GetNameOwner", &name).await;
    let owner: String = match answer {
        Ok(answer) => answer.body().deserialize()?,
        // The name has no owner.
        Err(zbus::Error::MethodError(..)) => return Ok(false),
        Err(error) => return Err(error),
    };
    Ok(message.header().sender().is_some_and(|sender| *sender == *owner))
}

/// Takes the inhibitor lock for the next sleep. Announcements are useful without it.
async fn inhibit(options: &LogindOptions, bus: &Connection) -> Option<Inhibitor> {
    if options.only_listens {
        return None;
    }
    let what = ("sleep", "Holdover", "connections are prepared for it", "delay");
    let answer = bus.call_method(Some(SERVICE), PATH, Some(INTERFACE), "Inhibit", &what).await;
    let descriptor = answer.and_then(|answer| answer.body().deserialize::<zbus::OwnedFd>());
    match descriptor {
        Ok(descriptor) => Some(Inhibitor { _descriptor: descriptor.into() }),
        Err(error) => {
            tracing::warn!(%error, "cannot delay sleep");
            None
        }
    }
}
