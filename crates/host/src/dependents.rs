//! Processes in network namespaces that end with this one, however it ends.
//!
//! The kernel kills a process when the *thread* that started it ends (`PR_SET_PDEATHSIG`). So all are started by one thread,
//! which lives as long as this process or until [`end`].
//!
//! The first call of [`spawn`] starts that thread. All programs inherit the mount namespace, the processor affinity and the capability
//! bounding set that its caller had then; the network namespace is chosen for each. A program that changes its credentials, or gains some
//! by `exec`, is not killed (`prctl(2)`).

use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command};
use std::sync::{Mutex, PoisonError, mpsc};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};

use crate::Namespace;
use crate::confine::{check, die_with_parent};

/// The thread that starts processes.
static STARTER: Mutex<Starter> = Mutex::new(Starter::NotNeeded);

enum Starter {
    /// No process was started yet.
    NotNeeded,
    Running {
        jobs: mpsc::Sender<Job>,
        /// Returns the processes that it has started.
        thread: JoinHandle<Vec<Pid>>,
    },
    /// After [`end`].
    Closed,
}

/// How long [`end`] waits for killed processes.
const PATIENCE: Duration = Duration::from_secs(5);

struct Job {
    command: Command,
    started: mpsc::Sender<io::Result<Child>>,
}

/// Starts a program in a namespace. It is killed when this process ends, even by SIGKILL; see the module's documentation for exceptions.
///
/// # Errors
/// No thread can be started, or the program cannot; [`io::ErrorKind::Interrupted`] after [`end`].
pub fn spawn(namespace: &Namespace, mut command: Command) -> io::Result<Child> {
    let (namespace, parent) = (namespace.clone(), std::process::id());
    // SAFETY: between fork and exec only async-signal-safe calls are allowed; these are system calls.
    unsafe { command.pre_exec(move || enter_as_dependent(&namespace, parent)) };
    let (started, is_started) = mpsc::channel();
    let mut current = STARTER.lock().unwrap_or_else(PoisonError::into_inner);
    if matches!(*current, Starter::NotNeeded) {
        let (jobs, waiting) = mpsc::channel();
        let thread = thread::Builder::new().name("starter".to_owned()).spawn(move || start_all(&waiting))?;
        *current = Starter::Running { jobs, thread };
    }
    let gone = || io::Error::new(io::ErrorKind::Interrupted, "this process ends and starts no further ones");
    let Starter::Running { jobs, .. } = &*current else { return Err(gone()) };
    jobs.send(Job { command, started }).map_err(|_| gone())?;
    drop(current);
    is_started.recv().map_err(|_| gone())?
}

/// Kills all of them, and waits for their end, but for no more than five seconds. None can be started afterwards.
pub fn end() {
    let mut current = STARTER.lock().unwrap_or_else(PoisonError::into_inner);
    let last = std::mem::replace(&mut *current, Starter::Closed);
    drop(current);
    let Starter::Running { jobs, thread } = last else { return };
    drop(jobs);
    let until = Instant::now() + PATIENCE;
    for pid in thread.join().unwrap_or_default() {
        while is_running(pid) && Instant::now() < until {
            thread::sleep(Duration::from_millis(5));
        }
    }
}

/// Whether a process started here still runs. It is not reaped, which is up to the owner of its [`Child`].
fn is_running(pid: Pid) -> bool {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    matches!(waitid(WaitId::Pid(pid), options), Ok(None))
}

fn start_all(jobs: &mpsc::Receiver<Job>) -> Vec<Pid> {
    let mut all = Vec::new();
    while let Ok(Job { mut command, started }) = jobs.recv() {
        let child = command.spawn();
        all.retain(|pid| is_running(*pid));
        all.extend(child.as_ref().ok().and_then(|child| Pid::from_raw(child.id().cast_signed())));
        // The caller waits, unless its thread was killed with the process.
        let _ = started.send(child);
    }
    all
}

fn enter_as_dependent(namespace: &Namespace, parent: u32) -> io::Result<()> {
    die_with_parent()?;
    // SAFETY: a system call without arguments.
    if unsafe { libc::getppid() }.cast_unsigned() != parent {
        return Err(io::ErrorKind::BrokenPipe.into());
    }
    // SAFETY: the descriptor is open while the namespace is held.
    check(unsafe { libc::setns(namespace.link().as_raw_fd(), libc::CLONE_NEWNET) })
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt as _;
    use std::process::Stdio;

    use super::*;

    #[test]
    fn a_process_outlives_the_thread_that_asked_for_it_and_not_the_end() {
        let sleeper = thread::spawn(|| {
            let namespace = Namespace::current().unwrap();
            let mut command = Command::new("sleep");
            command.arg("60").stdin(Stdio::null());
            match spawn(&namespace, command) {
                // `setns` needs CAP_SYS_ADMIN, also for the namespace in which the process is.
                Err(error) if error.raw_os_error() == Some(libc::EPERM) => None,
                started => Some(started.unwrap()),
            }
        });
        let Some(mut child) = sleeper.join().unwrap() else {
            eprintln!("skipped: setns is not permitted");
            return;
        };
        thread::sleep(std::time::Duration::from_millis(50));
        assert_eq!(child.try_wait().unwrap(), None, "its thread has ended, it has not");
        let missing = spawn(&Namespace::current().unwrap(), Command::new("/nonexistent/program"));
        assert_eq!(missing.unwrap_err().kind(), io::ErrorKind::NotFound);
        end();
        let ended = child.try_wait().unwrap().expect("its end was waited for");
        assert_eq!(ended.signal(), Some(libc::SIGKILL));
        let late = spawn(&Namespace::current().unwrap(), Command::new("true"));
        assert_eq!(late.unwrap_err().kind(), io::ErrorKind::Interrupted, "no process is started after the end");
    }
}
