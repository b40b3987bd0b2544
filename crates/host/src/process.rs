//! Programs that run beside this one: started on a host, waited for, signalled, and ended.

use std::ffi::OsStr;
use std::fmt;
use std::fs::File;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::{Namespace, dependents};

/// A running program, which is killed when this is dropped.
#[derive(Debug)]
pub struct Process {
    child: Child,
    log: Option<PathBuf>,
}

/// Where a program's output goes. The program's standard input is `/dev/null`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LogTo {
    /// Nowhere.
    Nothing,
    /// Standard error goes where the command sends it, by default to this process's; standard output is discarded.
    Stderr,
    /// Standard output and standard error are appended to a file.
    File(PathBuf),
}

/// The program ended, or the condition was not met in time.
#[derive(Debug, thiserror::Error)]
pub struct WaitError {
    /// The program's exit status, if it has ended.
    pub status: Option<ExitStatus>,
    /// The limit of the wait.
    pub limit: Duration,
    /// Why the condition was not met at last, or why the program's status is unknown.
    pub reason: Option<io::Error>,
    /// The end of the program's output, if that is in a file.
    pub log: String,
}

/// Polling interval: the first one, and the longest. Each is twice the one before.
const POLL_EVERY: [Duration; 2] = [Duration::from_millis(1), Duration::from_millis(50)];

/// Bytes of a program's output in [`WaitError`].
const TAIL: usize = 4096;

/// Finds a program: the environment variable `place` names it or its directory; without that variable it is in `PATH` or `/usr/sbin`.
///
/// # Errors
/// Advice if it is missing: to install Debian's `package`.
pub fn find(place: &str, program: &str, package: &str) -> Result<PathBuf, String> {
    let named = std::env::var_os(place).filter(|named| !named.is_empty()).map(PathBuf::from);
    let paths = std::env::var_os("PATH").unwrap_or_default();
    find_in(named.as_deref(), &paths, program).ok_or_else(|| match named {
        Some(named) => format!("{place} is {}, which is no program and has no {program}", named.display()),
        None => format!(
            "there is no {program}: install {package} (Debian), or name the program in the environment: {place}"
        ),
    })
}

fn find_in(named: Option<&Path>, paths: &OsStr, program: &str) -> Option<PathBuf> {
    let is_program = |path: &PathBuf| {
        std::fs::metadata(path).is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
    };
    if let Some(named) = named {
        return [named.to_owned(), named.join(program)].into_iter().find(is_program);
    }
    // An empty component is the working directory.
    let directories = std::env::split_paths(paths).filter(|directory| !directory.as_os_str().is_empty());
    directories.chain([PathBuf::from("/usr/sbin")]).map(|directory| directory.join(program)).find(is_program)
}

impl Process {
    /// Starts a program in a namespace, without `NOTIFY_SOCKET` in its environment. It ends with this process, however that ends, unless it
    /// changes its credentials (`PR_SET_PDEATHSIG`).
    ///
    /// # Errors
    /// The log cannot be written, or the program cannot be started; see [`dependents::spawn`].
    pub fn start(namespace: &Namespace, mut command: Command, log: LogTo) -> io::Result<Self> {
        let log = log.apply(&mut command)?;
        Ok(Self { child: dependents::spawn(namespace, command)?, log })
    }

    /// Starts a program where the calling thread is, without `NOTIFY_SOCKET` in its environment. It may outlive this process, if that is killed.
    ///
    /// # Errors
    /// The log cannot be written, or the program cannot be started.
    pub fn start_here(mut command: Command, log: LogTo) -> io::Result<Self> {
        let log = log.apply(&mut command)?;
        Ok(Self { child: command.spawn()?, log })
    }

    /// Starts a program in a namespace, confined, without `NOTIFY_SOCKET` in its environment: what the program starts ends with it. The
    /// calling thread must outlive it (see [`Namespace::confine`]).
    ///
    /// # Errors
    /// The log cannot be written, or the program cannot be started.
    pub fn start_confined(namespace: &Namespace, mut command: Command, log: LogTo) -> io::Result<Self> {
        let log = log.apply(&mut command)?;
        Ok(Self { child: namespace.confine(&mut command, String::new()).spawn()?, log })
    }

    /// Its id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Its output so far, if that is in a file.
    pub fn log(&self) -> String {
        let log = self.log.as_ref().and_then(|log| std::fs::read(log).ok()).unwrap_or_default();
        String::from_utf8_lossy(&log).into_owned()
    }

    /// Waits until `condition` is true. A call of `condition` may exceed the limit.
    ///
    /// # Errors
    /// The program has ended, its status is unknown, or the condition is not met within this time.
    pub fn wait_until(&mut self, limit: Duration, mut condition: impl FnMut() -> bool) -> Result<(), WaitError> {
        self.poll(limit, || if condition() { Ok(()) } else { Err(None) })
    }

    /// Waits until `attempt` succeeds. A call of `attempt` may exceed the limit.
    ///
    /// # Errors
    /// See [`Self::wait_until`]; with the error of the last attempt.
    pub fn wait_until_ok(
        &mut self,
        limit: Duration,
        mut attempt: impl FnMut() -> io::Result<()>,
    ) -> Result<(), WaitError> {
        self.poll(limit, || attempt().map_err(Some))
    }

    fn poll(
        &mut self,
        limit: Duration,
        mut attempt: impl FnMut() -> Result<(), Option<io::Error>>,
    ) -> Result<(), WaitError> {
        let (began, [mut interval, longest]) = (Instant::now(), POLL_EVERY);
        loop {
            let Err(reason) = attempt() else { return Ok(()) };
            let (status, reason) = match self.exit_status() {
                Ok(status) => (status, reason),
                Err(error) => return Err(self.wait_error(None, limit, Some(error))),
            };
            let left = limit.saturating_sub(began.elapsed());
            if status.is_some() || left.is_zero() {
                return Err(self.wait_error(status, limit, reason));
            }
            sleep(interval.min(left));
            interval = (interval * 2).min(longest);
        }
    }

    fn wait_error(&self, status: Option<ExitStatus>, limit: Duration, reason: Option<io::Error>) -> WaitError {
        let log = self.log.as_ref().and_then(|log| std::fs::read(log).ok()).unwrap_or_default();
        let log = String::from_utf8_lossy(&log[log.len().saturating_sub(TAIL)..]).into_owned();
        WaitError { status, limit, reason, log }
    }

    /// Its exit status, if it has ended.
    ///
    /// # Errors
    /// The kernel does not keep the status: this process ignores SIGCHLD (`ECHILD`).
    pub fn exit_status(&mut self) -> io::Result<Option<ExitStatus>> {
        self.child.try_wait()
    }

    /// Waits for its end; returns its exit status if it ends within this time.
    ///
    /// # Errors
    /// See [`Self::exit_status`].
    pub fn wait_timeout(&mut self, limit: Duration) -> io::Result<Option<ExitStatus>> {
        match self.poll(limit, || Err(None)) {
            Err(WaitError { reason: Some(error), .. }) => Err(error),
            Err(WaitError { status, .. }) => Ok(status),
            Ok(()) => Ok(None),
        }
    }

    /// Sends a signal.
    ///
    /// # Errors
    /// It has ended (`ESRCH`), or see [`Self::exit_status`]: its id may belong to another process now.
    pub fn signal(&mut self, signal: Signal) -> io::Result<()> {
        match self.exit_status()? {
            Some(_) => Err(io::Error::from_raw_os_error(libc::ESRCH)),
            None => Ok(kill_process(Pid::from_child(&self.child), signal)?),
        }
    }

    /// `kill -9`, and waits for its end. Does nothing if it has ended.
    pub fn kill(&mut self) {
        if let Ok(None) = self.exit_status() {
            // It may have ended meanwhile.
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// A program that was started in another way.
impl From<Child> for Process {
    fn from(child: Child) -> Self {
        Self { child, log: None }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

impl LogTo {
    /// Sends a command's output there; returns the log file.
    fn apply(self, command: &mut Command) -> io::Result<Option<PathBuf>> {
        command.stdin(Stdio::null()).stdout(Stdio::null()).env_remove("NOTIFY_SOCKET");
        match self {
            Self::Nothing => command.stderr(Stdio::null()),
            Self::Stderr => command,
            Self::File(path) => {
                let failed = |error: io::Error| {
                    io::Error::new(error.kind(), format!("cannot write {}: {error}", path.display()))
                };
                let file = File::options().create(true).append(true).open(&path).map_err(failed)?;
                command.stdout(file.try_clone()?).stderr(file);
                return Ok(Some(path));
            }
        };
        Ok(None)
    }
}

impl fmt::Display for WaitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.status {
            Some(status) => write!(f, "it ended: {status}"),
            None => write!(f, "not within {} s", self.limit.as_secs()),
        }?;
        if let Some(reason) = &self.reason {
            write!(f, " ({reason})")?;
        }
        if self.log.is_empty() { Ok(()) } else { write!(f, "\n{}", self.log) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(60);

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    fn sh(script: &str) -> Process {
        shell(script).spawn().unwrap().into()
    }

    fn scratch(name: &str) -> PathBuf {
        let directory = std::env::temp_dir().join(format!("holdover-process-{name}-{}", std::process::id()));
        std::fs::create_dir(&directory).unwrap();
        directory
    }

    #[test]
    fn an_end_is_noticed_before_the_time_is_over() {
        let mut process = sh("exit 7");
        let error = process.wait_until(LIMIT, || false).unwrap_err();
        assert_eq!(error.to_string(), "it ended: exit status: 7");
        assert_eq!(process.wait_timeout(Duration::ZERO).unwrap().and_then(|status| status.code()), Some(7));
        let late = process.signal(Signal::TERM).unwrap_err();
        assert_eq!(late.raw_os_error(), Some(libc::ESRCH));
    }

    #[test]
    fn a_program_ends_with_its_value() {
        let mut process = sh("exec sleep 60");
        assert!(process.wait_timeout(Duration::from_millis(20)).unwrap().is_none());
        assert!(process.wait_until(Duration::ZERO, || true).is_ok());
        let pid = Pid::from_raw(process.id().cast_signed()).unwrap();
        drop(process);
        assert!(rustix::process::test_kill_process(pid).is_err());
    }

    #[test]
    fn the_reason_of_the_last_attempt_is_reported() {
        let mut process = sh("exec sleep 60");
        let refused = || Err(io::ErrorKind::PermissionDenied.into());
        let error = process.wait_until_ok(Duration::from_millis(20), refused).unwrap_err();
        assert_eq!(error.to_string(), "not within 0 s (permission denied)");
    }

    // A process that ignores SIGCHLD loses the exit statuses of its children: this test runs itself in a process of its own.
    #[test]
    fn an_ignored_sigchld_ends_the_wait() {
        const ROLE: &str = "HOLDOVER_TEST_IGNORES_SIGCHLD";
        if std::env::var_os(ROLE).is_none() {
            let mut itself = Command::new(std::env::current_exe().unwrap());
            itself.args(["--exact", "process::tests::an_ignored_sigchld_ends_the_wait"]).env(ROLE, "1");
            let output = itself.output().unwrap();
            assert!(
                output.status.success() && String::from_utf8_lossy(&output.stdout).contains("1 passed"),
                "{output:?}"
            );
            return;
        }
        // SAFETY: no handler is installed.
        unsafe { libc::signal(libc::SIGCHLD, libc::SIG_IGN) };
        let began = Instant::now();
        let mut process = sh("exit 7");
        let error = process.wait_until(LIMIT, || false).unwrap_err();
        assert_eq!(error.reason.and_then(|reason| reason.raw_os_error()), Some(libc::ECHILD));
        assert!(process.wait_timeout(LIMIT).is_err() && process.signal(Signal::TERM).is_err());
        drop(process);
        assert!(began.elapsed() < LIMIT / 2);
    }

    #[test]
    fn the_end_of_the_log_is_reported_and_the_notify_socket_is_removed() {
        let directory = scratch("log");
        let log = directory.join("log");
        let mut command = shell("read line; echo \"first [$NOTIFY_SOCKET]\"; seq 2000; echo last >&2; exit 1");
        command.env("NOTIFY_SOCKET", "/nowhere");
        let mut process = Process::start_here(command, LogTo::File(log)).unwrap();
        let error = process.wait_until(LIMIT, || false).unwrap_err();
        assert!(error.log.len() == TAIL && error.log.ends_with("\n2000\nlast\n"), "{error}");
        assert!(process.log().starts_with("first []\n1\n"));
        let refused = Process::start_here(shell("exit 0"), LogTo::File(directory.join("none/log"))).unwrap_err();
        assert!(refused.to_string().starts_with("cannot write "), "{refused}");
        std::fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn a_program_is_found_where_it_is_named_or_in_the_path() {
        let directory = scratch("find");
        let program = directory.join("program");
        std::fs::write(&program, "").unwrap();
        let path = std::env::join_paths([Path::new("/nowhere"), &directory]).unwrap();
        let find = |named: Option<&Path>| find_in(named, &path, "program");
        assert_eq!(find(None), None, "it is not executable");
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        for named in [None, Some(program.as_path()), Some(directory.as_path())] {
            assert_eq!(find(named).as_ref(), Some(&program), "{named:?}");
        }
        assert_eq!(find(Some(Path::new("/nowhere"))), None, "the named place has none");
        std::fs::remove_dir_all(directory).unwrap();
    }
}
