//! The gateway's daemon as a separate process, in a namespace.

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use holdover_host::{Namespace, control_client, dependents};
use rustix::process::{Pid, Signal, kill_process};

use super::WorldError;

/// The command to run, given the directory with `gateway.toml`, in which the daemon creates `gateway.sock`.
pub type MakeCommand = fn(&Path) -> Command;

/// A daemon, and the directory that it shares with its predecessors and successors. Both end with this value.
pub struct Process {
    namespace: Namespace,
    directory: PathBuf,
    command: MakeCommand,
    child: Option<Child>,
}

/// The time until it answers: the kernel verifies its programs first, several at a time if several are started.
const STARTS_WITHIN: Duration = Duration::from_secs(30);

/// The time until it ends after a signal.
const ENDS_WITHIN: Duration = Duration::from_secs(5);

impl Process {
    /// Starts the daemon in a namespace, with this configuration except for the packet directory. `directory` must not
    /// exist.
    ///
    /// # Errors
    /// It does not start, or does not answer.
    pub fn start(
        namespace: &Namespace,
        directory: PathBuf,
        sections: &str,
        command: MakeCommand,
    ) -> Result<Self, WorldError> {
        super::make_directory(&directory)?;
        let mut this = Self { namespace: namespace.clone(), directory, command, child: None };
        let buffer = if sections.contains("[buffer]") { "" } else { "[buffer]\n" };
        let place = format!("directory = {:?}\n", this.directory.join("packets"));
        let text = format!("{buffer}{sections}").replacen("[buffer]\n", &format!("[buffer]\n{place}"), 1);
        std::fs::write(this.directory.join("gateway.toml"), text)?;
        this.restart()?;
        Ok(this)
    }

    /// Starts another daemon after the end of the last one.
    ///
    /// # Errors
    /// See [`Self::start`].
    pub fn restart(&mut self) -> Result<(), WorldError> {
        let mut command = (self.command)(&self.directory);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let mut child = dependents::spawn(&self.namespace, command)?;
        let began = Instant::now();
        while !control_client::answers(&self.socket()) {
            if let Some(status) = child.try_wait()? {
                return Err(WorldError::Daemon(format!("it ended: {status}")));
            }
            if began.elapsed() > STARTS_WITHIN {
                let _ = child.kill();
                let _ = child.wait();
                return Err(WorldError::Daemon(format!("no answer within {} s", STARTS_WITHIN.as_secs())));
            }
            sleep(Duration::from_millis(5));
        }
        self.child = Some(child);
        Ok(())
    }

    /// Its control socket.
    pub fn socket(&self) -> PathBuf {
        self.directory.join("gateway.sock")
    }

    /// The directory.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The process, while there is one.
    pub fn child(&mut self) -> &mut Option<Child> {
        &mut self.child
    }

    /// `kill -9`. Does nothing if it has ended.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            // It may have ended meanwhile.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Process {
    /// Stops the daemon, so that it detaches its programs; kills it if it does not end.
    fn end(&mut self) {
        let Some(child) = &mut self.child else { return };
        // It may have ended meanwhile.
        let _ = kill_process(Pid::from_child(child), Signal::TERM);
        let began = Instant::now();
        while matches!(child.try_wait(), Ok(None)) && began.elapsed() < ENDS_WITHIN {
            sleep(Duration::from_millis(5));
        }
        self.kill();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.end();
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

impl fmt::Debug for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Process").field("directory", &self.directory).finish_non_exhaustive()
    }
}
