//! Processes in network namespaces that end with this one, however it ends.
//!
//! The kernel kills a process when the *thread* that started it ends (`PR_SET_PDEATHSIG`). So all are started by one thread,
//! which lives as long as this process or until [`end`].

use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command};
use std::sync::{Mutex, PoisonError, mpsc};
use std::thread::{self, JoinHandle};

use crate::Namespace;
use crate::confine::{check, die_with_parent};

/// The thread that starts processes.
static STARTER: Mutex<Option<Starter>> = Mutex::new(None);

struct Starter {
    jobs: mpsc::Sender<Job>,
    thread: JoinHandle<()>,
}

struct Job {
    command: Command,
    started: mpsc::Sender<io::Result<Child>>,
}

/// Starts a program in a namespace. It is killed when this process ends, even by SIGKILL.
///
/// # Errors
/// No thread can be started, or the program cannot.
pub fn spawn(namespace: &Namespace, mut command: Command) -> io::Result<Child> {
    let (namespace, starter) = (namespace.clone(), std::process::id());
    // SAFETY: between fork and exec only async-signal-safe calls are allowed; these are system calls.
    unsafe { command.pre_exec(move || enter_as_dependent(&namespace, starter)) };
    let (started, is_started) = mpsc::channel();
    let mut current = STARTER.lock().unwrap_or_else(PoisonError::into_inner);
    if current.is_none() {
        let (jobs, waiting) = mpsc::channel();
        let thread = thread::Builder::new().name("starter".to_owned()).spawn(move || start_all(&waiting))?;
        *current = Some(Starter { jobs, thread });
    }
    let Some(Starter { jobs, .. }) = &*current else { unreachable!("it was set above") };
    let gone = || io::Error::other("the thread that starts processes has ended");
    jobs.send(Job { command, started }).map_err(|_| gone())?;
    drop(current);
    is_started.recv().map_err(|_| gone())?
}

/// Kills all of them. Further ones may be started afterwards.
pub fn end() {
    let starter = STARTER.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some(Starter { jobs, thread }) = starter {
        drop(jobs);
        // It only starts processes.
        let _ = thread.join();
    }
}

fn start_all(jobs: &mpsc::Receiver<Job>) {
    while let Ok(Job { mut command, started }) = jobs.recv() {
        // The caller waits, unless its thread was killed with the process.
        let _ = started.send(command.spawn());
    }
}

fn enter_as_dependent(namespace: &Namespace, starter: u32) -> io::Result<()> {
    die_with_parent()?;
    // SAFETY: a system call without arguments.
    if unsafe { libc::getppid() }.cast_unsigned() != starter {
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
        end();
        assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGKILL));
        let missing = spawn(&Namespace::current().unwrap(), Command::new("/nonexistent/program"));
        assert_eq!(missing.unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
