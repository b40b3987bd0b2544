//! A real etcd as a separate process, in a namespace.

use std::fmt;
use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use holdover_host::process::{LogTo, find};
use holdover_host::{Namespace, Process};

use super::WorldError;

/// A running etcd, and its directory, both removed on drop.
pub struct Etcd {
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

/// Finds the program: by `HOLDOVER_ETCD`, which names it or its directory, or in `PATH` or `/usr/sbin`.
///
/// # Errors
/// Advice if it is missing.
pub fn find_etcd() -> Result<PathBuf, String> {
    find("HOLDOVER_ETCD", "etcd", "etcd-server")
}

impl Etcd {
    /// Starts etcd in a namespace, at one of its addresses. `directory` must not exist.
    ///
    /// # Errors
    /// There is none, or it does not start.
    pub fn start(namespace: &Namespace, address: IpAddr, directory: PathBuf) -> Result<Self, WorldError> {
        let program = find_etcd().map_err(WorldError::Store)?;
        super::make_directory(&directory)?;
        let mut this = Self { namespace: namespace.clone(), address, program, directory, process: None };
        this.restart()?;
        Ok(this)
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
        command.arg("--data-dir").arg(self.directory.join("data"));
        for (option, value) in [
            ("--listen-client-urls", &client),
            ("--advertise-client-urls", &client),
            ("--listen-peer-urls", &peer),
            ("--initial-advertise-peer-urls", &peer),
            ("--initial-cluster", &format!("default={peer}")),
        ] {
            command.arg(option).arg(value);
        }
        let mut process = Process::start(&self.namespace, command, LogTo::File(self.directory.join("log")))?;
        let answers = process.wait_until_ok(STARTS_WITHIN, || self.health().map_err(io::Error::other));
        answers.map_err(|error| WorldError::Store(error.to_string()))?;
        self.process = Some(process);
        Ok(())
    }

    /// `kill -9`.
    pub fn kill(&mut self) {
        self.process = None;
    }

    /// The directory of its data and its log.
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
            stream.write_all(request.as_bytes())?;
            read_to_end(&mut stream, Instant::now() + ANSWERS_WITHIN)
        };
        let failed = |error: &dyn fmt::Display| WorldError::Store(error.to_string());
        let answer = self.namespace.enter(exchange)?.map_err(|error| failed(&error))?;
        let body = body_of(&answer).map_err(WorldError::Store)?;
        serde_json::from_str(body).map_err(|error| failed(&error))
    }
}

/// In HTTP/1.0 the answer ends with the connection.
fn read_to_end(stream: &mut TcpStream, until: Instant) -> io::Result<String> {
    let (mut answer, mut buffer) = (Vec::new(), [0; 4096]);
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut buffer)? {
            0 => return String::from_utf8(answer).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error)),
            len => answer.extend_from_slice(&buffer[..len]),
        }
    }
}

/// The body of an HTTP answer.
///
/// # Errors
/// The status line and the body of an answer other than 2xx.
fn body_of(answer: &str) -> Result<&str, String> {
    let (head, body) = answer.split_once("\r\n\r\n").ok_or("it closed the connection without an answer")?;
    let status = head.lines().next().unwrap_or_default();
    let is_success = status.split(' ').nth(1).is_some_and(|code| code.starts_with('2'));
    if is_success { Ok(body) } else { Err(format!("{status}: {}", body.trim())) }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        self.kill();
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

impl fmt::Debug for Etcd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Etcd").field("directory", &self.directory).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_other_than_a_success_is_reported_by_status_and_body() {
        assert_eq!(body_of("HTTP/1.0 200 OK\r\nA: b\r\n\r\n{}"), Ok("{}"));
        assert_eq!(body_of("HTTP/1.1 201 Created\r\n\r\n{}"), Ok("{}"));
        let refused = body_of("HTTP/1.0 503 Service Unavailable\r\nA: b\r\n\r\n{\"health\":\"false\"}\n").unwrap_err();
        assert_eq!(refused, "HTTP/1.0 503 Service Unavailable: {\"health\":\"false\"}");
        assert!(body_of("").unwrap_err().contains("without an answer"));
    }
}
