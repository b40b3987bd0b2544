//! HAProxy on the router, to compare with: it ends each connection and opens another one.

use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use holdover_testbed::gateway::Line;
use holdover_host::dependents;

use super::Failed;

/// The program, or the directory that has it, if it is not in `PATH`.
const PLACE: &str = "HOLDOVER_HAPROXY";

/// Finds the program: the named one, or that of `HOLDOVER_HAPROXY`, which may name its directory, or the one in `PATH`. `None` if there
/// is none.
pub(super) fn find(named: Option<&Path>) -> Option<PathBuf> {
    if let Some(named) = named {
        return Some(named.to_owned());
    }
    let of_environment = std::env::var_os(PLACE).map(PathBuf::from);
    let directories = std::env::var_os("PATH").map(|paths| std::env::split_paths(&paths).collect::<Vec<_>>());
    let places = of_environment.iter().flat_map(|place| [place.clone(), place.join("haproxy")]);
    let of_path = directories.unwrap_or_default().into_iter().map(|directory| directory.join("haproxy"));
    places.chain(of_path).find(|place| place.is_file())
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
    child: Child,
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
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        match dependents::spawn(router, command) {
            Ok(child) => Ok(Self { child, config }),
            Err(error) => {
                let _ = fs::remove_file(config);
                Err(format!("{} cannot be run: {error}", program.display()).into())
            }
        }
    }

    pub(super) fn process(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_file(&self.config);
    }
}
