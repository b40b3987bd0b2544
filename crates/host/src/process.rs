//! Programs that run beside this one: started on a host, waited for, signalled, and ended.

use std::fmt;
use std::fs::File;
use std::io;
use std::path::PathBuf;
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

/// Where a program's output goes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Output {
    /// Nowhere.
    Discarded,
    /// Standard error goes where the command sends it, by default to this process's; the rest is discarded.
    Errors,
    /// To the end of a file.
    Log(PathBuf),
}

/// A program is not as it should be.
#[derive(Debug, thiserror::Error)]
pub struct Unready {
    /// Its exit status, if it has ended.
    pub ended: Option<ExitStatus>,
    /// How long it was waited for.
    pub after: Duration,
    /// Its output, if that is in a file.
    pub log: String,
}

/// How often a program is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Finds a program: by the environment variable `place`, which names it or its directory, or in `PATH` or `/usr/sbin`.
///
/// # Errors
/// Advice if it is missing: to install Debian's `package`.
pub fn find(place: &str, program: &str, package: &str) -> Result<PathBuf, String> {
    let named = std::env::var_os(place).map(PathBuf::from);
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let directories = named.iter().cloned().chain(std::env::split_paths(&paths)).chain([PathBuf::from("/usr/sbin")]);
    let mut places = named.iter().cloned().chain(directories.map(|directory| directory.join(program)));
    places.find(|path| path.is_file()).ok_or_else(|| {
        format!("there is no {program}: install {package} (Debian), or name the program in the environment: {place}")
    })
}

impl Process {
    /// Starts a program in a namespace. It ends with this process, however that ends.
    ///
    /// # Errors
    /// The log cannot be written, or the program cannot be started; see [`dependents::spawn`].
    pub fn start(namespace: &Namespace, mut command: Command, output: Output) -> io::Result<Self> {
        let log = output.of(&mut command)?;
        Ok(Self { child: dependents::spawn(namespace, command)?, log })
    }

    /// Starts a program where the calling thread is. It may outlive this process, if that is killed.
    ///
    /// # Errors
    /// The log cannot be written, or the program cannot be started.
    pub fn start_here(mut command: Command, output: Output) -> io::Result<Self> {
        let log = output.of(&mut command)?;
        Ok(Self { child: command.spawn()?, log })
    }

    /// Starts a program in a namespace, confined: what the program starts ends with it. The calling thread must outlive it (see [`Namespace::confine`]).
    ///
    /// # Errors
    /// The log cannot be written, or the program cannot be started.
    pub fn start_confined(namespace: &Namespace, mut command: Command, output: Output) -> io::Result<Self> {
        let log = output.of(&mut command)?;
        Ok(Self { child: namespace.confine(&mut command, String::new()).spawn()?, log })
    }

    /// Its id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Its output so far, if that is in a file.
    pub fn log(&self) -> String {
        self.log.as_ref().and_then(|log| std::fs::read_to_string(log).ok()).unwrap_or_default()
    }

    /// Waits until something is so, such as that the program answers.
    ///
    /// # Errors
    /// The program has ended, or it is not so within this time.
    pub fn until(&mut self, within: Duration, mut is_so: impl FnMut() -> bool) -> Result<(), Unready> {
        let began = Instant::now();
        while !is_so() {
            let ended = self.ended();
            if ended.is_some() || began.elapsed() > within {
                return Err(Unready { ended, after: within, log: self.log() });
            }
            sleep(LOOK_EVERY);
        }
        Ok(())
    }

    /// Its exit status, if it has ended.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// Waits for its end; returns its exit status if it ends within this time.
    pub fn ends(&mut self, within: Duration) -> Option<ExitStatus> {
        self.until(within, || false).err()?.ended
    }

    /// Sends a signal.
    ///
    /// # Errors
    /// It has ended.
    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        Ok(kill_process(Pid::from_child(&self.child), signal)?)
    }

    /// `kill -9`, and waits for its end. Does nothing if it has ended.
    pub fn kill(&mut self) {
        // It may have ended meanwhile.
        let _ = self.child.kill();
        let _ = self.child.wait();
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

impl Output {
    /// Sends a program's output there; returns the log.
    fn of(self, command: &mut Command) -> io::Result<Option<PathBuf>> {
        command.stdin(Stdio::null()).stdout(Stdio::null()).env_remove("NOTIFY_SOCKET");
        match self {
            Self::Discarded => command.stderr(Stdio::null()),
            Self::Errors => command,
            Self::Log(path) => {
                let file = File::options().create(true).append(true).open(&path)?;
                command.stdout(file.try_clone()?).stderr(file);
                return Ok(Some(path));
            }
        };
        Ok(None)
    }
}

impl fmt::Display for Unready {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.ended {
            Some(status) => write!(f, "it ended: {status}"),
            None => write!(f, "no answer within {} s", self.after.as_secs()),
        }?;
        if self.log.is_empty() { Ok(()) } else { write!(f, "\n{}", self.log) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sh(script: &str) -> Process {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command.spawn().unwrap().into()
    }

    #[test]
    fn an_end_is_noticed_before_the_time_is_over() {
        let mut process = sh("exit 7");
        let unready = process.until(Duration::from_secs(60), || false).unwrap_err();
        assert_eq!(unready.to_string(), "it ended: exit status: 7");
        assert_eq!(process.ends(Duration::ZERO).and_then(|status| status.code()), Some(7));
    }

    #[test]
    fn a_program_ends_with_its_value() {
        let mut process = sh("exec sleep 60");
        assert!(process.ends(Duration::from_millis(20)).is_none());
        assert!(process.until(Duration::ZERO, || true).is_ok());
        let pid = Pid::from_raw(process.id().cast_signed()).unwrap();
        drop(process);
        assert!(rustix::process::test_kill_process(pid).is_err());
    }
}
