//! The control socket: one agent's, for root alone.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, Mode, OFlags, fchmod, flock};
use rustix::io::Errno;
use socket2::{Domain, SockAddr, Socket, Type};

use super::DaemonError;

/// Callers who wait to be let in.
const BACKLOG: i32 = 128;

/// How long another agent that is starting is waited for. It takes some milliseconds.
const PATIENCE: Duration = Duration::from_secs(2);

/// From one try to the next.
const PAUSE: Duration = Duration::from_millis(10);

/// Makes the socket. What a dead agent has left behind is removed, and nothing else.
pub(super) fn listen(path: &Path) -> Result<UnixListener, DaemonError> {
    let failed = |source| DaemonError::Socket { path: path.to_owned(), source };
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory).map_err(failed)?;
    }
    // Between the look at what is there and the new socket nobody else may do the same.
    let _turn = Turn::take(path)?;
    remove_stale(path)?;
    bind(path).map_err(failed)
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

fn remove_stale(path: &Path) -> Result<(), DaemonError> {
    let failed = |source| DaemonError::Socket { path: path.to_owned(), source };
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(failed(error)),
        Ok(found) if !found.file_type().is_socket() => return Err(DaemonError::NotASocket { path: path.to_owned() }),
        Ok(_) => {}
    }
    match UnixStream::connect(path) {
        Ok(_) => Err(DaemonError::AlreadyRunning { path: path.to_owned() }),
        // Nobody listens on it.
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => fs::remove_file(path).map_err(failed),
        Err(error) => Err(failed(error)),
    }
}

/// The right to make the socket: a lock (`flock(2)`) on a file beside it, which is there no longer than the lock is held. Were it
/// the directory that is locked, anyone who may read it could be in the way.
struct Turn {
    path: PathBuf,
    /// Holds the lock until it is closed.
    _file: File,
}

impl Turn {
    fn take(socket: &Path) -> Result<Self, DaemonError> {
        let mut path = OsString::from(socket);
        path.push(".lock");
        let path = PathBuf::from(path);
        let failed = |source| DaemonError::Socket { path: path.clone(), source };
        let until = Instant::now() + PATIENCE;
        loop {
            let mut options = OpenOptions::new();
            options.write(true).create(true).mode(0o600).custom_flags(OFlags::NOFOLLOW.bits().cast_signed());
            let file = options.open(&path).map_err(failed)?;
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                // Who had it before may have removed it meanwhile: then the lock is on nothing.
                Ok(()) if is_at(&file, &path).map_err(failed)? => return Ok(Self { path, _file: file }),
                Ok(()) | Err(Errno::INTR) => {}
                Err(Errno::WOULDBLOCK) if Instant::now() < until => sleep(PAUSE),
                Err(Errno::WOULDBLOCK) => return Err(DaemonError::Starting { path }),
                Err(errno) => return Err(failed(errno.into())),
            }
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        // While it is still locked: what is at this path is this file.
        let _ = fs::remove_file(&self.path);
    }
}

fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    let same = |one: &fs::Metadata, other: &fs::Metadata| (one.dev(), one.ino()) == (other.dev(), other.ino());
    match fs::symlink_metadata(path) {
        Ok(found) => Ok(same(&file.metadata()?, &found)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
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
    fn what_a_killed_agent_leaves_behind_is_in_nobodys_way() {
        let place = Place::new("stale");
        let socket = place.socket();
        drop(listen(&socket).unwrap());
        assert!(socket.exists());
        // Killed in the middle of it.
        fs::write(place.0.join("run/agent.sock.lock"), "").unwrap();
        let listener = listen(&socket).unwrap();
        assert_eq!(place.names(), ["agent.sock"], "no litter");
        assert!(matches!(listen(&socket), Err(DaemonError::AlreadyRunning { .. })));
        drop(listener);
    }

    #[test]
    fn only_a_socket_is_removed() {
        let place = Place::new("file");
        let socket = place.socket();
        drop(listen(&socket).unwrap());
        fs::remove_file(&socket).unwrap();
        fs::write(&socket, "127.0.0.1 localhost").unwrap();
        let refused = listen(&socket);
        assert!(matches!(refused, Err(DaemonError::NotASocket { .. })), "{refused:?}");
        assert_eq!(fs::read_to_string(&socket).unwrap(), "127.0.0.1 localhost");
        assert_eq!(place.names(), ["agent.sock"]);
    }

    #[test]
    fn of_agents_that_start_together_one_gets_the_socket() {
        let place = Place::new("together");
        for _ in 0..20 {
            let socket = place.socket();
            // A dead one's, which each of them wants to remove.
            drop(listen(&socket).unwrap());
            let all: Vec<_> = std::thread::scope(|scope| {
                let starting: Vec<_> = (0..4).map(|_| scope.spawn(|| listen(&socket))).collect();
                starting.into_iter().map(|thread| thread.join().unwrap()).collect()
            });
            let is_running = |result: &&Result<_, _>| matches!(result, Err(DaemonError::AlreadyRunning { .. }));
            assert_eq!(all.iter().filter(|result| result.is_ok()).count(), 1);
            assert_eq!(all.iter().filter(is_running).count(), 3, "{all:?}");
        }
    }
}
