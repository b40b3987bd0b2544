//! HAProxy on the router, to compare with: it ends each connection and opens another one.

use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use holdover_host::Process;
use holdover_host::process::{self, LogTo};
use holdover_testbed::gateway::Line;

use super::Failed;

/// Finds the program: the named one, or that of `HOLDOVER_HAPROXY`, which may name its directory, or the one in `PATH` or `/usr/sbin`. `None` if there
/// is none.
pub(super) fn find(named: Option<&Path>) -> Option<PathBuf> {
    named.map(Path::to_owned).or_else(|| process::find("HOLDOVER_HAPROXY", "haproxy", "haproxy").ok())
}

/// The first line that the program prints of its version.
///
/// # Errors
/// It cannot be run.
pub(super) fn version(program: &Path) -> Result<String, Failed> {
    let output = Command::new(program).arg("-v").output();
    let output = output.map_err(|error| format!("{} cannot be run: {error}", program.display()))?;
    let text = String::from_utf8_lossy(&output.stdout);
    match text.lines().next().filter(|_| output.status.success()) {
        Some(line) => Ok(line.to_owned()),
        None => Err(format!("{} is no HAProxy: {}", program.display(), output.status).into()),
    }
}

/// A running proxy, which ends with this value.
#[derive(Debug)]
pub(super) struct Proxy {
    process: Process,
    config: PathBuf,
}

impl Proxy {
    /// Starts it on a line's router, with one thread. It listens a little later.
    ///
    /// # Errors
    /// It cannot be started.
    pub(super) fn start(line: &Line, program: &Path, config: PathBuf) -> Result<Self, Failed> {
        let router = line.router().ok_or("a proxy needs a router")?;
        let [near, far] = [Line::ROUTER, Line::FIXED].map(IpAddr::from);
        let text = format!(
            "global\n    nbthread 1\n    maxconn 4000\n    maxpipes 4000\n\
             defaults\n    mode tcp\n    option splice-auto\n    timeout connect 10s\n    timeout client 10m\n    timeout server 10m\n\
             listen all\n    bind {near}:{port}\n    server fixed {far}:{port}\n",
            port = super::streams::PORT
        );
        fs::File::create_new(&config)?;
        fs::write(&config, text)?;
        let mut command = Command::new(program);
        command.arg("-db").arg("-q").arg("-f").arg(&config);
        match Process::start(router, command, LogTo::Stderr) {
            Ok(process) => Ok(Self { process, config }),
            Err(error) => {
                let _ = fs::remove_file(config);
                Err(format!("{} cannot be run: {error}", program.display()).into())
            }
        }
    }

    pub(super) fn process(&self) -> u32 {
        self.process.id()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.config);
    }
}
