//! logind's announcements of sleep and wake-up: `PrepareForSleep` of `org.freedesktop.login1.Manager`, on the system
//! bus. An inhibitor lock (`systemd-inhibit(1)`, mode *delay*) delays sleep until connections are prepared.
//!
//! Without a bus there are no announcements; the connection is retried once a minute. The lock is requested from a
//! logind that starts later.

use std::convert::Infallible;
use std::io;
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use futures_lite::{StreamExt as _, stream};
use zbus::message::Type;
use zbus::{Connection, MatchRule, MessageStream};

use super::bus::{self, BUS, Ended, Follow, Reporter, Reports, member_of, owner_changes, owner_of, sender_of};
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
pub struct Logind(Reports<Announcement>);

const SERVICE: &str = "org.freedesktop.login1";
const PATH: &str = "/org/freedesktop/login1";
const INTERFACE: &str = "org.freedesktop.login1.Manager";

/// The capacity of the announcement queue.
const QUEUE: NonZeroUsize = NonZeroUsize::new(8).unwrap();

impl Logind {
    /// Connects. Call it after privileges have been dropped.
    ///
    /// # Errors
    /// No more descriptors or threads are available.
    pub fn follow(options: LogindOptions) -> io::Result<Self> {
        Reports::follow(|announcements| Follower { announcements, options, is_announced: false }).map(Self)
    }

    /// The next announcement, in order.
    pub fn poll_announcement(&mut self) -> Option<Announcement> {
        self.0.poll()
    }

    /// Whether its thread has ended: no announcements will follow.
    pub const fn has_ended(&self) -> bool {
        self.0.has_ended()
    }
}

impl AsFd for Logind {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// The thread's side.
struct Follower {
    announcements: Reporter<Announcement>,
    options: LogindOptions,
    /// Its last announcement was [`Announcement::Soon`].
    is_announced: bool,
}

impl Follow for Follower {
    const NAME: &'static str = "logind";

    async fn follow(&mut self) -> Result<Infallible, Ended> {
        let bus = bus::connect(self.options.address.as_deref()).await?;
        let signal = MatchRule::builder().msg_type(Type::Signal).sender(SERVICE).path(PATH);
        let rule = signal.interface(INTERFACE).member("PrepareForSleep").build()?;
        let signals = MessageStream::for_match_rule(rule, &bus, Some(QUEUE)).await?;
        let names = MessageStream::for_match_rule(owner_changes(SERVICE)?, &bus, Some(QUEUE)).await?;
        let mut both = stream::or(names, signals);
        let mut inhibitor = inhibit(&self.options, &bus).await;
        while let Some(signal) = both.next().await {
            let (signal, slept) = (signal?, clock::slept());
            let (sender, owner) = (sender_of(&signal), owner_of(&bus, SERVICE).await?);
            if sender == BUS && member_of(&signal) == "NameOwnerChanged" {
                // Another logind has not been asked. One that is replaced meanwhile has a signal of its own.
                let Ok((.., new)) = signal.body().deserialize::<(String, String, String)>() else { continue };
                if owner.as_ref() == Some(&new) {
                    inhibitor = inhibit(&self.options, &bus).await;
                }
                continue;
            }
            // Any process on the bus may send signals.
            let is_logind = owner.is_some_and(|owner| owner == sender);
            let Ok(is_soon) = signal.body().deserialize::<bool>() else { continue };
            if !is_logind {
                continue;
            }
            let announcement =
                if is_soon { Announcement::Soon { inhibitor: inhibitor.take(), slept } } else { Announcement::Over };
            self.announce(announcement)?;
            if !is_soon {
                inhibitor = inhibit(&self.options, &bus).await;
            }
        }
        Err(Ended::closed())
    }

    /// A lost connection cannot announce the end any more.
    fn withdraw(&mut self) -> Result<(), Ended> {
        if self.is_announced { self.announce(Announcement::Over) } else { Ok(()) }
    }

    fn log(error: &zbus::Error) {
        tracing::info!(%error, "cannot follow logind: sleep is noticed only afterwards");
    }
}

impl Follower {
    fn announce(&mut self, announcement: Announcement) -> Result<(), Ended> {
        self.is_announced = matches!(announcement, Announcement::Soon { .. });
        self.announcements.report(announcement)
    }
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
