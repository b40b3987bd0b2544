//! The control socket of a daemon, for root alone: whose it is, and who asks by it. A question and its answer are a line of JSON each.
//!
//! A lock decides whose it is: `flock(2)` on a file beside it, held for as long as the daemon runs. The kernel gives it back with the
//! last descriptor of the process, however that ends; a socket that is there without it is a dead daemon's. A process that is being
//! killed still answers `connect(2)` for some milliseconds, and so does its lock: both are waited for, up to 1 s.

use std::ffi::OsString;
use std::fs;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileTypeExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags, fchmod, fstat};
use serde::Serialize;
use serde::de::DeserializeOwned;
use socket2::{Domain, SockAddr, Socket, Type};

use crate::control_line::{self, LONGEST_REQUEST};
use crate::lock_file::{LockError, LockFile};
use crate::session::{Bounds, Sessions};

/// Callers who wait to be let in.
const BACKLOG: i32 = 128;

/// How long a daemon that has the socket is given to end. A process that was killed takes some 10 ms, more on a busy machine.
const PATIENCE: Duration = Duration::from_secs(1);

/// From one try to the next.
const PAUSE: Duration = Duration::from_millis(5);

/// Conversations with those who ask.
pub type Requesters = Sessions<UnixListener>;

/// The mode of directories that are made for it, less the umask.
const DIRECTORY_MODE: u32 = 0o777;

/// No answer is longer.
const LONGEST_ANSWER: u64 = 64 << 20;

/// So long an answer is waited for.
const ANSWER_PATIENCE: Duration = Duration::from_secs(10);

/// The control socket cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum ControlSocketError {
    /// Another process has it.
    #[error("{} belongs to a process that is running already{}", path.display(), process(*pid))]
    AlreadyRunning {
        /// The socket.
        path: PathBuf,
        /// The process, as it calls itself; `None` if it is not known.
        pid: Option<u32>,
    },
    /// It would take the place of something else.
    #[error("{} is there and is not a socket; it is left as it is, and the control socket needs another place (--socket)", path.display())]
    NotASocket {
        /// What is there.
        path: PathBuf,
    },
    /// It cannot be made.
    #[error("the control socket {} cannot be made; it needs root, or another place (--socket)", path.display())]
    Refused {
        /// The socket, or the file of its lock.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// ` (pid 4711)`, where it is known.
fn process(pid: Option<u32>) -> String {
    pid.map(|pid| format!(" (pid {pid})")).unwrap_or_default()
}

/// A connection to a daemon, for one request.
#[derive(Debug)]
pub struct Client {
    reader: BufReader<UnixStream>,
}

/// A daemon's answer cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum AnswerError {
    /// It did not come.
    #[error("no answer: {0}")]
    Broken(#[from] io::Error),
    /// It was not understood.
    #[error("the answer was not understood ({0}): is it of another version?")]
    NotUnderstood(#[from] serde_json::Error),
}

impl Client {
    /// Sends a request, which is written as a line of JSON.
    ///
    /// # Errors
    /// Nobody is there, or the socket is for others.
    pub fn ask(path: &Path, request: &impl Serialize) -> io::Result<Self> {
        let stream = UnixStream::connect(path)?;
        stream.set_read_timeout(Some(ANSWER_PATIENCE))?;
        stream.set_write_timeout(Some(ANSWER_PATIENCE))?;
        (&stream).write_all(&control_line::write(request))?;
        Ok(Self { reader: BufReader::new(stream) })
    }

    /// The next answer, for which it waits 10 s, or as long as it takes if it is told to be `patient`; `None` when the daemon hangs up.
    ///
    /// # Errors
    /// It does not come in time, or is not understood.
    pub fn next_answer<A: DeserializeOwned>(&mut self, patient: bool) -> Result<Option<A>, AnswerError> {
        self.reader.get_ref().set_read_timeout((!patient).then_some(ANSWER_PATIENCE))?;
        let mut line = Vec::new();
        self.reader.by_ref().take(LONGEST_ANSWER).read_until(b'\n', &mut line)?;
        if line.is_empty() { Ok(None) } else { Ok(Some(serde_json::from_slice(&line)?)) }
    }
}

/// The right to the control socket. When it is dropped, the socket and the file of the lock are removed, and directories that were made for
/// them, if nothing else is in them.
#[derive(Debug)]
pub struct Ownership {
    socket: PathBuf,
    /// The file that this daemon has made there, which keeps its inode's number while this is open.
    made: Option<OwnedFd>,
    _lock: LockFile,
}

/// The conversations of a daemon by its control socket. Lines of up to twice [`LONGEST_REQUEST`] are handed out, so that those that are too
/// long are refused with a reason.
pub fn requesters(listener: UnixListener) -> Requesters {
    let bounds = Bounds {
        mark: b"\n",
        question_bytes: 2 * LONGEST_REQUEST,
        callers: 16,
        time: holdover_base::Duration::from_secs(5),
        backlog_bytes: 1 << 20,
    };
    Sessions::new(listener, bounds)
}

/// Makes the socket. What a dead daemon has left behind is removed, and nothing else.
///
/// # Errors
/// Another process has it, something else is in its place, or the kernel refuses.
pub fn listen(path: &Path) -> Result<(UnixListener, Ownership), ControlSocketError> {
    listen_within(path, PATIENCE)
}

fn listen_within(path: &Path, patience: Duration) -> Result<(UnixListener, Ownership), ControlSocketError> {
    let failed = |source| ControlSocketError::Refused { path: path.to_owned(), source };
    let until = Instant::now() + patience;
    let mut ownership = Ownership::take(path, until)?;
    while !remove_stale(path)? {
        // It answers without the lock: it is of an older version, or on the point of ending.
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
    // Nobody may connect before the mode is set: Linux makes the file with the mode that the socket has (less the umask).
    fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
    socket.bind(&SockAddr::unix(path)?)?;
    socket.listen(BACKLOG)?;
    socket.set_nonblocking(true)?;
    Ok(OwnedFd::from(socket).into())
}

/// A file itself, whatever it is, and not what it stands for.
fn open_itself(path: &Path) -> io::Result<OwnedFd> {
    Ok(rustix::fs::open(path, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?)
}

fn is_same_file(one: &OwnedFd, other: &OwnedFd) -> io::Result<bool> {
    let (one, other) = (fstat(one)?, fstat(other)?);
    Ok((one.st_dev, one.st_ino) == (other.st_dev, other.st_ino))
}

/// Whether the path is free now; not if somebody listens there.
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
        // Nobody listens on it.
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            fs::remove_file(path).map_err(failed).map(|()| true)
        }
        // A daemon that ends removes it.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(true),
        Err(error) => Err(failed(error)),
    }
}

impl Ownership {
    /// Locks a file beside the socket. Were it the directory that is locked, anyone who may read it could be in the way.
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
        // Somebody may have put another socket in its place.
        let is_own = |made: &OwnedFd| is_same_file(made, &open_itself(&self.socket)?);
        if self.made.as_ref().is_some_and(|made| is_own(made).unwrap_or(false)) {
            let _ = fs::remove_file(&self.socket);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A directory that is gone with the test.
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

        /// What an agent that was killed leaves: a socket on which nobody listens, and a file that nobody has locked.
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
    fn a_directory_that_was_made_goes_with_the_socket() {
        let place = Place::new("directory");
        let running = listen(&place.socket()).unwrap();
        assert!(place.socket().exists());
        drop(running);
        assert!(!place.0.exists(), "both directories were made for it");
        fs::create_dir_all(&place.0).unwrap();
        drop(listen(&place.socket()).unwrap());
        assert_eq!(fs::read_dir(&place.0).unwrap().count(), 0, "the one that was there stays");
        let running = listen(&place.socket()).unwrap();
        fs::write(place.0.join("run/other"), "").unwrap();
        drop(running);
        assert_eq!(place.names(), ["other"]);
    }

    #[test]
    fn a_socket_that_others_have_put_in_its_place_stays() {
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
        // One that has no lock: it answers, and so it is there.
        place.leave_stale();
        fs::remove_file(&socket).unwrap();
        let _old = UnixListener::bind(&socket).unwrap();
        let refused = listen_within(&socket, Duration::from_millis(20));
        assert!(matches!(refused, Err(ControlSocketError::AlreadyRunning { pid: None, .. })), "{refused:?}");
    }

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
    fn of_agents_that_start_together_one_gets_the_socket() {
        let place = Place::new("together");
        for _ in 0..20 {
            let socket = place.socket();
            // A dead one's, which each of them wants to remove.
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
