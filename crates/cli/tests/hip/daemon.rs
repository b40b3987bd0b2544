//! A host with its directory and its daemon.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use holdover_host::Process;
use holdover_host::control_client::answers;
use holdover_host::process::LogTo;
use holdover_testbed::Namespace;

/// Longer than anything here takes on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A directory of a test, which goes with it.
pub(crate) struct Place(pub(crate) PathBuf);

impl Place {
    pub(crate) fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("holdover-hip-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("left behind: {}", self.0.display());
        } else {
            let _ = fs::remove_dir_all(&self.0);
        }
    }
}

/// A host: `holdover hip` in its namespace, with a directory of its own.
pub(crate) struct Host {
    namespace: Namespace,
    directory: PathBuf,
    daemon: Option<Process>,
}

impl Host {
    /// With a fresh identity.
    pub(crate) fn new(place: &Place, name: &str, namespace: &Namespace) -> Self {
        let host = Self::without_identity(place, name, namespace);
        host.ok("keygen");
        host
    }

    /// As a host after the installation.
    pub(crate) fn without_identity(place: &Place, name: &str, namespace: &Namespace) -> Self {
        let directory = place.0.join(name);
        fs::create_dir_all(&directory).unwrap();
        Self { namespace: namespace.clone(), directory, daemon: None }
    }

    /// Starts `holdover hip` with these words; its output can be read.
    pub(crate) fn spawn(&self, words: &str) -> Child {
        let mut command = self.command(words);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        self.namespace.enter(|| command.spawn().unwrap()).unwrap()
    }

    /// Runs `holdover hip` with these words, and with its directory and socket.
    pub(crate) fn run(&self, words: &str) -> Output {
        let mut command = self.command(words);
        self.namespace.enter(|| command.output().unwrap()).unwrap()
    }

    /// The same; it has to succeed. Returns its output.
    #[track_caller]
    pub(crate) fn ok(&self, words: &str) -> String {
        let output = self.run(words);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert!(output.status.success(), "hip {words}: {}{}", text(&output.stdout), text(&output.stderr));
        text(&output.stdout)
    }

    fn command(&self, words: &str) -> Command {
        let first = words.split_whitespace().next().unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_holdover"));
        command.arg("hip").args(words.split_whitespace());
        let has_directory = !matches!(first, "down" | "status" | "top");
        if has_directory {
            command.arg("--dir").arg(&self.directory);
        }
        if !matches!(first, "keygen" | "id" | "ping") && !words.starts_with("proxy list") {
            command.arg("--socket").arg(self.socket());
        }
        command.env_remove("NOTIFY_SOCKET");
        command
    }

    /// Writes a file of its directory.
    pub(crate) fn write(&self, name: &str, text: &str) {
        fs::write(self.directory.join(name), text).unwrap();
    }

    /// The daemon reads its files again, as `systemctl reload` has it do, and has read them then.
    pub(crate) fn reload(&mut self) {
        let read = |log: &str| log.matches("peers read").count();
        let (before, patience) = (read(&self.log()), Instant::now() + PATIENCE);
        self.hang_up();
        while read(&self.log()) == before {
            assert!(Instant::now() < patience, "the files are not read: {}", self.log());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// The same for files that it may refuse.
    pub(crate) fn hang_up(&mut self) {
        self.daemon.as_mut().expect("a daemon").signal(rustix::process::Signal::HUP).unwrap();
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.directory.join("s")
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.directory.join("log")).unwrap_or_default()
    }

    /// Starts the daemon, with more words, and waits until it is up.
    pub(crate) fn up(&mut self, words: &str) {
        self.start("up", words);
    }

    /// The same with `rendezvous` or `relay` instead of `up`.
    pub(crate) fn start(&mut self, command: &str, words: &str) {
        let command = self.command(&format!("{command} --verbose {words}"));
        let log = LogTo::File(self.directory.join("log"));
        let mut daemon = Process::start(&self.namespace, command, log).unwrap();
        daemon.wait_until_ok(PATIENCE, || answers(&self.socket())).unwrap_or_else(|error| panic!("not up: {error}"));
        self.daemon = Some(daemon);
    }

    /// Ends the daemon as a power cut does.
    pub(crate) fn kill(&mut self) {
        self.daemon = None;
    }

    pub(crate) fn hit(&self) -> std::net::Ipv6Addr {
        self.ok("id").trim().parse().unwrap()
    }

    /// The HIT of a host whose proxy this is.
    pub(crate) fn hit_of(&self, name: &str) -> std::net::Ipv6Addr {
        let listed: serde_json::Value = serde_json::from_str(&self.ok("proxy list --json")).unwrap();
        let host = listed["hosts"].as_array().unwrap().iter().find(|host| host["name"] == name);
        host.unwrap()["hit"].as_str().unwrap().parse().unwrap()
    }

    /// The address in IPv4 that stands for a peer.
    pub(crate) fn lsi_of(&self, peer: &str) -> std::net::Ipv4Addr {
        let status = self.status();
        let found = status["peers"].as_array().unwrap().iter().find(|it| it["name"] == peer);
        found.unwrap()["lsi"].as_str().unwrap().parse().unwrap()
    }

    pub(crate) fn status(&self) -> serde_json::Value {
        serde_json::from_str(&self.ok("status --json")).unwrap()
    }

    /// The daemon's status of its first peer.
    pub(crate) fn peer(&self) -> serde_json::Value {
        self.status()["peers"][0].clone()
    }

    /// The daemon's status of the peer of this name.
    pub(crate) fn peer_of(&self, name: &str) -> serde_json::Value {
        let status = self.status();
        status["peers"].as_array().unwrap().iter().find(|peer| peer["name"] == name).cloned().unwrap()
    }

    /// Ends the daemon, and waits until it has ended.
    pub(crate) fn down(&mut self) {
        self.ok("down");
        if let Some(mut daemon) = self.daemon.take() {
            assert!(daemon.wait_timeout(PATIENCE).unwrap().is_some(), "{}", self.log());
        }
    }

    #[track_caller]
    pub(crate) fn wait_for_peer(&self, name: &str, what: &str, is_so: impl Fn(&serde_json::Value) -> bool) {
        let patience = Instant::now() + PATIENCE;
        loop {
            let status = self.status();
            let peer = status["peers"].as_array().unwrap().iter().find(|peer| peer["name"] == name).cloned();
            if peer.as_ref().is_some_and(&is_so) {
                return;
            }
            assert!(Instant::now() < patience, "never {what}: {peer:?}\n{}", self.log());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    #[track_caller]
    pub(crate) fn wait_for(&self, what: &str, is_so: impl Fn(&serde_json::Value) -> bool) -> serde_json::Value {
        let patience = Instant::now() + PATIENCE;
        loop {
            let peer = self.peer();
            if is_so(&peer) {
                return peer;
            }
            assert!(Instant::now() < patience, "never {what}: {peer}\n{}", self.log());
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        if self.daemon.is_none() && self.socket().exists() {
            // Started by `invite` or `join`.
            let _ = self.run("down");
        }
        self.kill();
    }
}

/// Two hosts that have each other's invitations; no daemon runs.
pub(crate) fn pair(place: &Place, namespaces: [&Namespace; 2], addresses: [&[&str]; 2], via: &str) -> [Host; 2] {
    introduced([Host::new(place, "mobile", namespaces[0]), Host::new(place, "server", namespaces[1])], addresses, via)
}

/// The same of hosts that have identities.
pub(crate) fn introduced(hosts: [Host; 2], addresses: [&[&str]; 2], via: &str) -> [Host; 2] {
    for (index, name) in ["mobile", "server"].into_iter().enumerate() {
        let addresses: String = addresses[index].iter().map(|address| format!(" --address {address}")).collect();
        let invitation = hosts[index].ok(&format!("invite --without-secret --name {name} --via {via}{addresses}"));
        hosts[1 - index].ok(&format!("join {}", invitation.trim()));
    }
    hosts
}

/// The output of `tshark` for a capture; `None` if it is not installed.
pub(crate) fn tshark(capture: &Path, arguments: &[&str]) -> Option<String> {
    let checked = ["ip", "tcp", "udp"].map(|name| format!("{name}.check_checksum:TRUE"));
    let checked = checked.iter().flat_map(|preference| ["-o", preference]);
    let output = Command::new("tshark").arg("-r").arg(capture).args(checked).args(arguments).output().ok()?;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}
