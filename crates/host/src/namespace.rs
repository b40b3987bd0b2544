//! Network namespaces, used from threads of this process that live in them.
//!
//! A namespace belongs to a thread, not to a process: `unshare` and `setns` move only the calling thread, and a new
//! thread inherits the namespace of its creator. So code for a namespace runs in a closure on a thread inside it. File
//! descriptors are not bound that way: a socket or a TUN device stays in the namespace it was opened in, wherever it is
//! used.
//!
//! The kernel removes a namespace, with its interfaces, when the last thread in it, the last socket or TUN device
//! opened in it and the last [`Namespace`] of it are gone. All of them are resources of this process, so none outlives
//! it.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};

use rustix::fs::{Mode, OFlags};
use rustix::thread::{LinkNameSpaceType, UnshareFlags};

/// A network namespace. Clones refer to the same namespace, which lives as long as one of them.
#[derive(Clone, Debug)]
pub struct Namespace {
    name: Arc<str>,
    id: NamespaceId,
    link: Arc<OwnedFd>,
}

/// Identifies a namespace while it exists: the number in `net:[4026531840]`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct NamespaceId(u64);

/// A thread inside a namespace, started by [`Namespace::spawn`].
#[derive(Debug)]
pub struct NamespaceThread<T> {
    namespace: Namespace,
    handle: JoinHandle<Option<T>>,
}

/// A namespace could not be created or entered.
#[derive(Debug, thiserror::Error)]
pub enum NamespaceError {
    /// The name is not a valid thread name.
    #[error("invalid namespace name \"{name}\": expected 1 to 15 letters, digits, '-' and '_'")]
    Name {
        /// The name.
        name: Box<str>,
    },
    /// The kernel refused; the test bed's `Privilege::detect` finds out why.
    #[error("{call} failed for namespace \"{name}\"")]
    Refused {
        /// The system call.
        call: &'static str,
        /// The namespace's name.
        name: Arc<str>,
        /// The kernel's reason.
        source: io::Error,
    },
    /// A function that works on a namespace was called from a thread outside of it.
    #[error("this thread is not in namespace \"{name}\": call it from a closure that runs inside")]
    NotInside {
        /// The namespace's name.
        name: Arc<str>,
    },
}

impl Namespace {
    /// Creates a namespace with only a loopback interface, which is down.
    ///
    /// # Errors
    /// The name is invalid (1 to 15 letters, digits, `-` and `_`), or the kernel refuses (`EPERM` without `CAP_SYS_ADMIN`).
    pub fn new(name: &str) -> Result<Self, NamespaceError> {
        Self::run(name, Self::clone)
    }

    /// The namespace of the calling thread: for a daemon, the host's own, or the one it was started in.
    ///
    /// # Errors
    /// `/proc` is not mounted, or not readable.
    pub fn current() -> Result<Self, NamespaceError> {
        let name: Arc<str> = "current".into();
        let opened = open_current().and_then(|link| Ok((NamespaceId::of(&link)?, link)));
        match opened {
            Ok((id, link)) => Ok(Self { name, id, link: Arc::new(link) }),
            Err(errno) => {
                Err(NamespaceError::Refused { call: "open(/proc/thread-self/ns/net)", name, source: errno.into() })
            }
        }
    }

    /// The namespace of a process, such as a container's. While the result exists, so does the namespace.
    ///
    /// # Errors
    /// The process has ended, or may not be inspected (`ptrace(2)`, `PTRACE_MODE_READ_FSCREDS`).
    pub fn of_process(pid: u32) -> Result<Self, NamespaceError> {
        let name: Arc<str> = format!("pid-{pid}").into();
        let opened = rustix::fs::open(format!("/proc/{pid}/ns/net"), OPEN_LINK, Mode::empty());
        match opened.and_then(|link| Ok((NamespaceId::of(&link)?, link))) {
            Ok((id, link)) => Ok(Self { name, id, link: Arc::new(link) }),
            Err(errno) => Err(NamespaceError::Refused { call: "open(/proc/PID/ns/net)", name, source: errno.into() }),
        }
    }

    /// Creates a namespace and runs `body` on a new thread in it; returns when the namespace exists. Threads started by
    /// `body` are in it as well.
    pub fn spawn<T, F>(name: &str, body: F) -> Result<NamespaceThread<T>, NamespaceError>
    where
        T: Send + 'static,
        F: FnOnce(&Self) -> T + Send + 'static,
    {
        let name = checked(name)?;
        let (made, is_made) = mpsc::channel();
        let handle = start_thread(&name.clone(), move || match Self::unshare(name) {
            Ok(namespace) => {
                // The receiver waits below, unless its thread was killed with the process.
                let _ = made.send(Ok(namespace.clone()));
                drop(made);
                Some(body(&namespace))
            }
            Err(error) => {
                let _ = made.send(Err(error));
                None
            }
        })?;
        match is_made.recv() {
            Ok(Ok(namespace)) => Ok(NamespaceThread { namespace, handle }),
            Ok(Err(error)) => Err(error),
            // Nothing between the thread's start and the message can panic.
            Err(mpsc::RecvError) => unreachable!("the thread reports before it runs the body"),
        }
    }

    /// Creates a namespace, runs `body` in it and waits for the result. A panic of `body` continues in the caller.
    pub fn run<T, F>(name: &str, body: F) -> Result<T, NamespaceError>
    where
        T: Send,
        F: FnOnce(&Self) -> T + Send,
    {
        let name = checked(name)?;
        on_scoped_thread(&name.clone(), move || Self::unshare(name).map(|namespace| body(&namespace)))?
    }

    /// Runs `body` on a new thread in this namespace and waits for the result. A panic of `body` continues in the
    /// caller.
    pub fn enter<T, F>(&self, body: F) -> Result<T, NamespaceError>
    where
        T: Send,
        F: FnOnce() -> T + Send,
    {
        on_scoped_thread(&self.name, || self.set().map(|()| body()))?
    }

    /// Starts a thread in this namespace. The result is an error if the thread cannot enter it.
    pub fn spawn_inside<T, F>(&self, body: F) -> Result<JoinHandle<Result<T, NamespaceError>>, NamespaceError>
    where
        T: Send + 'static,
        F: FnOnce() -> T + Send + 'static,
    {
        let namespace = self.clone();
        start_thread(&self.name, move || namespace.set().map(|()| body()))
    }

    /// Its name, which is also that of its first thread.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its identity.
    pub fn id(&self) -> NamespaceId {
        self.id
    }

    /// Fails unless the calling thread is inside. Every function that works on the thread's namespace calls this first,
    /// so that a slip cannot configure the host.
    ///
    /// # Errors
    /// [`NamespaceError::NotInside`], or the thread's namespace cannot be determined.
    pub fn require_current(&self) -> Result<(), NamespaceError> {
        match NamespaceId::current() {
            Ok(id) if id == self.id => Ok(()),
            Ok(_) => Err(NamespaceError::NotInside { name: self.name.clone() }),
            Err(source) => Err(self.refused("stat of /proc/thread-self/ns/net", source)),
        }
    }

    /// The descriptor that identifies it to the kernel.
    pub fn link(&self) -> &OwnedFd {
        &self.link
    }

    /// Moves the calling thread into a new namespace.
    fn unshare(name: Arc<str>) -> Result<Self, NamespaceError> {
        // SAFETY: the file descriptor table stays shared (no `UnshareFlags::FILES`).
        unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET) }
            .and_then(|()| open_current())
            .and_then(|link| Ok((NamespaceId::of(&link)?, link)))
            .map(|(id, link)| Self { name: name.clone(), id, link: Arc::new(link) })
            .map_err(|errno| NamespaceError::Refused { call: "unshare(CLONE_NEWNET)", name, source: errno.into() })
    }

    /// Moves the calling thread into the namespace.
    fn set(&self) -> Result<(), NamespaceError> {
        rustix::thread::move_into_link_name_space(self.link.as_fd(), Some(LinkNameSpaceType::Network))
            .map_err(|errno| self.refused("setns", errno.into()))
    }

    fn refused(&self, call: &'static str, source: io::Error) -> NamespaceError {
        NamespaceError::Refused { call, name: self.name.clone(), source }
    }
}

impl NamespaceId {
    /// The namespace of the calling thread.
    pub fn current() -> io::Result<Self> {
        Ok(Self::of(&open_current()?)?)
    }

    /// The namespace of a process, without opening it.
    ///
    /// # Errors
    /// As [`Namespace::of_process`].
    pub fn of_process(pid: u32) -> io::Result<Self> {
        Ok(rustix::fs::stat(format!("/proc/{pid}/ns/net")).map(|stat| Self(stat.st_ino))?)
    }

    fn of(link: &OwnedFd) -> rustix::io::Result<Self> {
        rustix::fs::fstat(link).map(|stat| Self(stat.st_ino))
    }
}

/// As the kernel writes it: `net:[4026531840]`.
impl core::fmt::Display for NamespaceId {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "net:[{}]", self.0)
    }
}

impl<T> NamespaceThread<T> {
    /// The namespace that the thread created.
    pub fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    /// Waits for the thread.
    ///
    /// # Errors
    /// The panic of the thread.
    pub fn join(self) -> thread::Result<T> {
        // `None` is the result for a namespace that could not be created, which has no `NamespaceThread`.
        self.handle.join().map(|result| result.expect("the body ran"))
    }
}

fn open_current() -> rustix::io::Result<OwnedFd> {
    // Not /proc/self, which is always the process's first thread.
    rustix::fs::open(c"/proc/thread-self/ns/net", OPEN_LINK, Mode::empty())
}

const OPEN_LINK: OFlags = OFlags::RDONLY.union(OFlags::CLOEXEC);

fn checked(name: &str) -> Result<Arc<str>, NamespaceError> {
    // Linux keeps 15 bytes of a thread's name.
    let is_fine = (1..=15).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_');
    if is_fine { Ok(name.into()) } else { Err(NamespaceError::Name { name: name.into() }) }
}

fn start_thread<T, F>(name: &Arc<str>, body: F) -> Result<JoinHandle<T>, NamespaceError>
where
    T: Send + 'static,
    F: FnOnce() -> T + Send + 'static,
{
    thread::Builder::new().name(name.to_string()).spawn(body).map_err(|source| thread_refused(name, source))
}

fn on_scoped_thread<T, F>(name: &Arc<str>, body: F) -> Result<T, NamespaceError>
where
    T: Send,
    F: FnOnce() -> T + Send,
{
    thread::scope(|scope| {
        let handle = thread::Builder::new()
            .name(name.to_string())
            .spawn_scoped(scope, body)
            .map_err(|source| thread_refused(name, source))?;
        handle.join().map_or_else(|panic| std::panic::resume_unwind(panic), Ok)
    })
}

fn thread_refused(name: &Arc<str>, source: io::Error) -> NamespaceError {
    NamespaceError::Refused { call: "starting a thread", name: name.clone(), source }
}
