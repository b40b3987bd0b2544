//! The gateway's daemon as a separate process, in a namespace.

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use holdover_host::process::LogTo;
use holdover_host::{Namespace, Process, control_client};
use rustix::process::Signal;

use super::WorldError;

/// The command to run, given the directory with `gateway.toml`, in which the daemon creates `gateway.sock`.
pub type MakeCommand = fn(&Path) -> Command;

/// A daemon, and the directory that it shares with its predecessors and successors, with their log. Both end with this value.
pub struct GatewayProcess {
    namespace: Namespace,
    directory: PathBuf,
    command: MakeCommand,
    process: Option<Process>,
}

/// The time until it answers: the kernel verifies its programs first, several at a time if several are started.
const STARTS_WITHIN: Duration = Duration::from_secs(30);

/// The time until it ends after a signal.
const ENDS_WITHIN: Duration = Duration::from_secs(5);

impl GatewayProcess {
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
        let mut this = Self { namespace: namespace.clone(), directory, command, process: None };
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
        let log = LogTo::File(self.log_file());
        let mut process = Process::start(&self.namespace, (self.command)(&self.directory), log)?;
        let answers = process.wait_until_ok(STARTS_WITHIN, || control_client::answers(&self.socket()));
        answers.map_err(|error| WorldError::Daemon(error.to_string()))?;
        self.process = Some(process);
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

    /// The output of all daemons so far.
    pub fn log(&self) -> String {
        let log = std::fs::read(self.log_file()).unwrap_or_default();
        String::from_utf8_lossy(&log).into_owned()
    }

    fn log_file(&self) -> PathBuf {
        self.directory.join("gateway.log")
    }

    /// The process, while there is one.
    pub fn process(&mut self) -> Option<&mut Process> {
        self.process.as_mut()
    }

    /// `kill -9`. Does nothing if it has ended.
    pub fn kill(&mut self) {
        self.process = None;
    }
}

impl Drop for GatewayProcess {
    fn drop(&mut self) {
        if let Some(process) = &mut self.process {
            // So that it detaches its programs. It may have ended meanwhile, and is killed if it does not end.
            let _ = process.signal(Signal::TERM);
            let _ = process.wait_timeout(ENDS_WITHIN);
        }
        self.kill();
        if std::thread::panicking() {
            eprintln!("the daemon of a failed test:\n{}", self.log());
        }
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

impl fmt::Debug for GatewayProcess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GatewayProcess").field("directory", &self.directory).finish_non_exhaustive()
    }
}
