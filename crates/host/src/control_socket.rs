//! The control socket of a daemon, for root only. A request and its answer are a line of JSON each.
//!
//! A lock makes sure that one daemon owns it: `flock(2)` on a file beside the socket, held as long as the daemon runs.
//! The kernel releases it with the last descriptor of the process, however that ends; a socket without the lock is left
//! over from a dead daemon. A process that is being killed still answers `connect(2)` and holds its lock for some
//! milliseconds: both are waited for, up to 1 s.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileTypeExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags, fchmod, fstat};
use socket2::{Domain, SockAddr, Socket, Type};

use crate::control_line::LONGEST_REQUEST;
use crate::lock_file::{LockError, LockFile};
use crate::session::{Bounds, Sessions};

/// Callers in the listen queue.
const BACKLOG: i32 = 128;

/// How long to wait for the daemon that owns the socket to end. A killed process takes some 10 ms, more on a busy
/// machine.
const TIMEOUT: Duration = Duration::from_secs(1);

/// Between attempts.
const PAUSE: Duration = Duration::from_millis(5);

/// Sessions of callers.
pub type Requesters = Sessions<UnixListener>;

/// The mode of directories created for it, less the umask.
const DIRECTORY_MODE: u32 = 0o777;

/// The control socket is not available.
#[derive(Debug, thiserror::Error)]
pub enum ControlSocketError {
    /// Another process owns it.
    #[error("{} is in use by a running process{}", path.display(), process(*pid))]
    AlreadyRunning {
        /// The socket.
        path: PathBuf,
        /// The pid of the process; `None` if unknown.
        pid: Option<u32>,
    },
    /// Something else is in its place.
    #[error("{} exists and is not a socket; choose another path for the control socket (--socket)", path.display())]
    NotASocket {
        /// The path.
        path: PathBuf,
    },
    /// It cannot be created.
    #[error("cannot create the control socket {}; run as root, or choose another path (--socket)", path.display())]
    Refused {
        /// The socket, or its lock file.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
}

/// ` (pid 4711)`, if known.
fn process(pid: Option<u32>) -> String {
    pid.map(|pid| format!(" (pid {pid})")).unwrap_or_default()
}

/// Ownership of the control socket. On drop, removes the socket and the lock file, and the directories created for them
/// if they are empty.
#[derive(Debug)]
pub struct Ownership {
    socket: PathBuf,
    /// The socket file that this daemon has created; its inode number is not reused while this is open.
    made: Option<OwnedFd>,
    _lock: LockFile,
}

/// The sessions of a daemon on its control socket. Lines of up to twice [`LONGEST_REQUEST`] are returned, so that longer requests are
/// refused with a reason.
pub fn requesters(listener: UnixListener) -> Requesters {
    let bounds = Bounds {
        delimiter: b"\n",
        request_bytes: 2 * LONGEST_REQUEST,
        callers: 16,
        time: holdover_base::Duration::from_secs(5),
        backlog_bytes: 1 << 20,
    };
    Sessions::new(listener, bounds)
}

/// Creates the socket. Removes nothing but a stale socket of a dead daemon.
///
/// # Errors
/// Another process owns it, something else is in its place, or the kernel refuses.
pub fn listen(path: &Path) -> Result<(UnixListener, Ownership), ControlSocketError> {
    listen_within(path, TIMEOUT)
}

fn listen_within(path: &Path, patience: Duration) -> Result<(UnixListener, Ownership), ControlSocketError> {
    let failed = |source| ControlSocketError::Refused { path: path.to_owned(), source };
    let until = Instant::now() + patience;
    let mut ownership = Ownership::take(path, until)?;
    while !remove_stale(path)? {
        // It answers without the lock: an older version, or about to end.
        if Instant::now() >= until {
            return Err(ControlSocketError::AlreadyRunning { path: path.to_owned(), pid: None });
        }
        sleep(PAUSE);
    }
    let listener = bind(path).map_err(failed)?;
    ownership.made = Some(open_itself(path).map_err(failed)?);
    Ok((listener, ownership))
}

fn bind(path: &Path) -> io::Result<UnixListener> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    // No one may connect before the mode is set: Linux creates the file with the socket's mode (less the umask).
    fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
    socket.bind(&SockAddr::unix(path)?)?;
    socket.listen(BACKLOG)?;
    socket.set_nonblocking(true)?;
    Ok(OwnedFd::from(socket).into())
}

/// Opens a file itself, without following a symbolic link.
fn open_itself(path: &Path) -> io::Result<OwnedFd> {
    Ok(rustix::fs::open(path, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?)
}

fn is_same_file(one: &OwnedFd, other: &OwnedFd) -> io::Result<bool> {
    let (one, other) = (fstat(one)?, fstat(other)?);
    Ok((one.st_dev, one.st_ino) == (other.st_dev, other.st_ino))
}

/// Whether the path is free now; false if a process listens there.
fn remove_stale(path: &Path) -> Result<bool, ControlSocketError> {
    let failed = |source| ControlSocketError::Refused { path: path.to_owned(), source };
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(true),
        Err(error) => return Err(failed(error)),
        Ok(found) if !found.file_type().is_socket() => {
            return Err(ControlSocketError::NotASocket { path: path.to_owned() });
        }
        Ok(_) => {}
    }
    match UnixStream::connect(path) {
        Ok(_) => Ok(false),
        // No process listens on it.
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            fs::remove_file(path).map_err(failed).map(|()| true)
        }
        // A daemon that ends removes it.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(true),
        Err(error) => Err(failed(error)),
    }
}

impl Ownership {
    /// Locks a file beside the socket. A lock on the directory could be blocked by any process that may read it.
    fn take(socket: &Path, until: Instant) -> Result<Self, ControlSocketError> {
        let mut lock = OsString::from(socket);
        lock.push(".lock");
        let lock = LockFile::take(Path::new(&lock), DIRECTORY_MODE, until).map_err(|error| match error {
            LockError::Held { pid, .. } => ControlSocketError::AlreadyRunning { path: socket.to_owned(), pid },
            LockError::Refused { path, source } => ControlSocketError::Refused { path, source },
        })?;
        Ok(Self { socket: socket.to_owned(), made: None, _lock: lock })
    }
}

impl Drop for Ownership {
    fn drop(&mut self) {
        // Another process may have put its own socket there.
        let is_own = |made: &OwnedFd| is_same_file(made, &open_itself(&self.socket)?);
        if self.made.as_ref().is_some_and(|made| is_own(made).unwrap_or(false)) {
            let _ = fs::remove_file(&self.socket);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A directory that is removed after the test.
    struct Place(PathBuf);

    impl Place {
        fn new(name: &str) -> Self {
            let directory = std::env::temp_dir().join(format!("holdover-socket-{name}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&directory);
            Self(directory)
        }

        fn socket(&self) -> PathBuf {
            self.0.join("run/agent.sock")
        }

        /// The remains of a killed agent: a socket without a listener, and a file without a lock.
        fn leave_stale(&self) {
            let socket = self.socket();
            let _ = fs::remove_file(&socket);
            fs::create_dir_all(self.0.join("run")).unwrap();
            drop(UnixListener::bind(&socket).unwrap());
            fs::write(self.0.join("run/agent.sock.lock"), "1\n").unwrap();
            assert!(socket.exists());
        }

        fn names(&self) -> Vec<OsString> {
            fs::read_dir(self.0.join("run")).unwrap().map(|entry| entry.unwrap().file_name()).collect()
        }
    }

    impl Drop for Place {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_stale_socket_is_replaced() {
        let place = Place::new("stale");
        let socket = place.socket();
        place.leave_stale();
        let running = listen(&socket).unwrap();
        let refused = listen_within(&socket, Duration::from_millis(20));
        let pid = Some(std::process::id());
        assert!(
            matches!(&refused, Err(ControlSocketError::AlreadyRunning { pid: found, .. }) if *found == pid),
            "{refused:?}"
        );
        drop(running);
        assert_eq!(place.names(), [""; 0], "no litter");
    }

    #[test]
    fn a_directory_created_for_the_socket_is_removed_with_it() {
        let place = Place::new("directory");
        let running = listen(&place.socket()).unwrap();
        assert!(place.socket().exists());
        drop(running);
        assert!(!place.0.exists(), "both directories were made for it");
        fs::create_dir_all(&place.0).unwrap();
        drop(listen(&place.socket()).unwrap());
        assert_eq!(fs::read_dir(&place.0).unwrap().count(), 0, "the directory that existed stays");
        let running = listen(&place.socket()).unwrap();
        fs::write(place.0.join("run/other"), "").unwrap();
        drop(running);
        assert_eq!(place.names(), ["other"]);
    }

    #[test]
    fn a_socket_of_another_process_in_its_place_stays() {
        let place = Place::new("replaced");
        let socket = place.socket();
        let running = listen(&socket).unwrap();
        fs::remove_file(&socket).unwrap();
        let _other = UnixListener::bind(&socket).unwrap();
        drop(running);
        assert_eq!(place.names(), ["agent.sock"]);
        assert!(UnixStream::connect(&socket).is_ok(), "the other one listens on it");
    }

    #[test]
    fn an_agent_that_is_ending_is_waited_for() {
        let place = Place::new("ending");
        let socket = place.socket();
        let running = listen(&socket).unwrap();
        let started = Instant::now();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                sleep(Duration::from_millis(100));
                drop(running);
            });
            assert!(listen(&socket).is_ok());
        });
        assert!(started.elapsed() >= Duration::from_millis(100));
        // A daemon without a lock that answers is alive.
        place.leave_stale();
        fs::remove_file(&socket).unwrap();
        let _old = UnixListener::bind(&socket).unwrap();
        let refused = listen_within(&socket, Duration::from_millis(20));
        assert!(matches!(refused, Err(ControlSocketError::AlreadyRunning { pid: None, .. })), "{refused:?}");
    }

    // Claim: The control socket replaces a dead socket only; of agents started at the same time one gets it; a new agent waits
    // for one that is ending (50 restarts, 0 to 49 ms after a kill).
    // Tests: `control_socket::one_of_several_starting_agents_gets_the_socket`,
    // `control_socket::an_agent_that_is_ending_is_waited_for`, `agent::a_killed_agent_is_in_no_successors_way`
    #[test]
    fn only_a_socket_is_removed() {
        let place = Place::new("file");
        let socket = place.socket();
        drop(listen(&socket).unwrap());
        fs::create_dir_all(place.0.join("run")).unwrap();
        fs::write(&socket, "127.0.0.1 localhost").unwrap();
        let refused = listen(&socket);
        assert!(matches!(refused, Err(ControlSocketError::NotASocket { .. })), "{refused:?}");
        assert_eq!(fs::read_to_string(&socket).unwrap(), "127.0.0.1 localhost");
        assert_eq!(place.names(), ["agent.sock"]);
    }

    #[test]
    fn one_of_several_starting_agents_gets_the_socket() {
        let place = Place::new("together");
        for _ in 0..20 {
            let socket = place.socket();
            // Left by a dead process; each thread tries to remove it.
            place.leave_stale();
            let patience = Duration::from_millis(20);
            let all: Vec<_> = std::thread::scope(|scope| {
                let starting: Vec<_> = (0..4).map(|_| scope.spawn(|| listen_within(&socket, patience))).collect();
                starting.into_iter().map(|thread| thread.join().unwrap()).collect()
            });
            let is_running = |result: &&Result<_, _>| matches!(result, Err(ControlSocketError::AlreadyRunning { .. }));
            assert_eq!(all.iter().filter(|result| result.is_ok()).count(), 1);
            assert_eq!(all.iter().filter(is_running).count(), 3, "{all:?}");
        }
    }
}
