//! A real etcd as a separate process, in a namespace.

use std::fmt;
use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use holdover_host::{Namespace, dependents};

use super::WorldError;

/// A running etcd, and its directory, both removed on drop.
pub struct Store {
    namespace: Namespace,
    address: IpAddr,
    program: PathBuf,
    directory: PathBuf,
    child: Option<Child>,
}

/// The path of the program, or of its directory, if it is not in `PATH`.
const PLACE: &str = "HOLDOVER_ETCD";

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
    let named = std::env::var_os(PLACE).map(PathBuf::from);
    let directories = std::env::var_os("PATH").map(|paths| std::env::split_paths(&paths).collect::<Vec<_>>());
    let places = named.iter().flat_map(|place| [place.clone(), place.join("etcd")]);
    let places = places.chain(directories.unwrap_or_default().into_iter().map(|directory| directory.join("etcd")));
    places.into_iter().find(|place| place.is_file()).ok_or_else(|| {
        format!("there is no etcd: install etcd-server (Debian), or name the program in the environment: {PLACE}")
    })
}

impl Store {
    /// Starts etcd in a namespace, at one of its addresses. `directory` must not exist.
    ///
    /// # Errors
    /// There is none, or it does not start.
    pub fn start(namespace: &Namespace, address: IpAddr, directory: PathBuf) -> Result<Self, WorldError> {
        let program = find_etcd().map_err(WorldError::Store)?;
        let mut store = Self { namespace: namespace.clone(), address, program, directory, child: None };
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
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        self.child = Some(dependents::spawn(&self.namespace, command)?);
        let began = Instant::now();
        while self.health().is_err() {
            if let Some(status) = self.child.as_mut().map(Child::try_wait).transpose()?.flatten() {
                return Err(WorldError::Store(format!("etcd ended: {status}")));
            }
            if began.elapsed() > STARTS_WITHIN {
                return Err(WorldError::Store(format!("no answer within {} s", STARTS_WITHIN.as_secs())));
            }
            sleep(Duration::from_millis(50));
        }
        Ok(())
    }

    /// `kill -9`.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            // It may have ended meanwhile.
            let _ = child.kill();
            let _ = child.wait();
        }
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
