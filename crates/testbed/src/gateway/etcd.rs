//! A real etcd as a separate process, in a namespace.

use std::fmt;
use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use holdover_host::process::{Output, find};
use holdover_host::{Namespace, Process};

use super::WorldError;

/// A running etcd, and its directory, both removed on drop.
pub struct Store {
    namespace: Namespace,
    address: IpAddr,
    program: PathBuf,
    directory: PathBuf,
    process: Option<Process>,
}

/// The time until it answers.
const STARTS_WITHIN: Duration = Duration::from_secs(30);

/// The time for an answer.
const ANSWERS_WITHIN: Duration = Duration::from_secs(2);

/// The port for clients.
const CLIENTS: u16 = 2379;

/// Finds the program: by `HOLDOVER_ETCD`, which names it or its directory, or in `PATH`.
///
/// # Errors
/// Advice if it is missing.
pub fn find_etcd() -> Result<PathBuf, String> {
    find("HOLDOVER_ETCD", "etcd", "etcd-server")
}

impl Store {
    /// Starts etcd in a namespace, at one of its addresses. `directory` must not exist.
    ///
    /// # Errors
    /// There is none, or it does not start.
    pub fn start(namespace: &Namespace, address: IpAddr, directory: PathBuf) -> Result<Self, WorldError> {
        let program = find_etcd().map_err(WorldError::Store)?;
        let mut store = Self { namespace: namespace.clone(), address, program, directory, process: None };
        store.restart()?;
        Ok(store)
    }

    /// The URL of etcd's clients for an address.
    pub fn endpoint(address: IpAddr) -> String {
        format!("http://{address}:{CLIENTS}")
    }

    /// Starts it again after its end.
    ///
    /// # Errors
    /// See [`Self::start`].
    pub fn restart(&mut self) -> Result<(), WorldError> {
        let (client, peer) = (Self::endpoint(self.address), format!("http://{}:2380", self.address));
        let mut command = Command::new(&self.program);
        command.arg("--data-dir").arg(&self.directory);
        for (option, value) in [
            ("--listen-client-urls", &client),
            ("--advertise-client-urls", &client),
            ("--listen-peer-urls", &peer),
            ("--initial-advertise-peer-urls", &peer),
            ("--initial-cluster", &format!("default={peer}")),
        ] {
            command.arg(option).arg(value);
        }
        let mut process = Process::start(&self.namespace, command, Output::Discarded)?;
        let answers = process.until(STARTS_WITHIN, || self.health().is_ok());
        answers.map_err(|unready| WorldError::Store(unready.to_string()))?;
        self.process = Some(process);
        Ok(())
    }

    /// `kill -9`.
    pub fn kill(&mut self) {
        self.process = None;
    }

    /// The directory of its data.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    fn health(&self) -> Result<(), WorldError> {
        let health = self.ask("health", None)?;
        if health["health"] == "true" { Ok(()) } else { Err(WorldError::Store(health.to_string())) }
    }

    /// Calls a method of the JSON gateway, such as `v3/kv/range`, or gets a page.
    ///
    /// # Errors
    /// It does not answer, or refuses.
    pub fn ask(&self, method: &str, body: Option<&serde_json::Value>) -> Result<serde_json::Value, WorldError> {
        let request = match body.map(ToString::to_string) {
            Some(body) => {
                let kind = format!("Content-Type: application/json\r\nContent-Length: {}", body.len());
                format!("POST /{method} HTTP/1.0\r\n{kind}\r\n\r\n{body}")
            }
            None => format!("GET /{method} HTTP/1.0\r\n\r\n"),
        };
        let exchange = || -> io::Result<String> {
            let mut stream = TcpStream::connect_timeout(&(self.address, CLIENTS).into(), ANSWERS_WITHIN)?;
            stream.set_read_timeout(Some(ANSWERS_WITHIN))?;
            stream.write_all(request.as_bytes())?;
            // In HTTP/1.0 the answer ends with the connection.
            let mut answer = String::new();
            stream.read_to_string(&mut answer)?;
            Ok(answer)
        };
        let failed = |error: &dyn fmt::Display| WorldError::Store(error.to_string());
        let answer = self.namespace.enter(exchange)?.map_err(|error| failed(&error))?;
        match answer.split_once("\r\n\r\n") {
            Some((head, body)) if head.contains(" 200 OK\r\n") => serde_json::from_str(body).map_err(|it| failed(&it)),
            _ => Err(WorldError::Store(answer)),
        }
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        self.kill();
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store").field("directory", &self.directory).finish_non_exhaustive()
    }
}
