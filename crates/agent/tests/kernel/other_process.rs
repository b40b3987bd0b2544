//! Copies of this program as other processes of the host.

use std::io::{BufRead as _, BufReader, Read as _, Write as _, stdin};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{ChildStdin, ChildStdout, Command, ExitCode, ExitStatus, Stdio};
use std::time::Duration;

use holdover_agent::engine::AttachMode;
use holdover_agent::user_timeout::{UserTimeoutOptions, UserTimeouts};
use holdover_host::Process;

use crate::engine::process::{Tally, play};
use crate::user_timeouts::{now, policy};

/// The copy's role: `client ADDRESS`, `agent RULES`, `containers CASE`, `contained CGROUP`, `daemon DIRECTORY`, or `engine SEED`, without a
/// seed for commands; `filters` is such an engine, attached as on kernels without tcx.
pub(crate) const ROLE: &str = "HOLDOVER_AGENT_TEST_ROLE";
pub(crate) const ARGUMENT: &str = "HOLDOVER_AGENT_TEST_ARGUMENT";

/// A copy of this program in the network namespace of the thread that started it. Killed on drop.
pub(crate) struct OtherProcess {
    process: Process,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

/// Plays a role, if this is a copy that has one.
pub(crate) fn role() -> Option<ExitCode> {
    let role = std::env::var(ROLE).ok()?;
    let argument = std::env::var(ARGUMENT).ok()?;
    match role.as_str() {
        "client" => client(argument.parse().ok()?),
        "agent" => agent(&argument),
        "engine" => play(argument.parse().ok(), AttachMode::Best),
        "containers" => crate::containers::play(&argument),
        "contained" => crate::containers::contained(&argument),
        "daemon" => crate::flapping::play(Path::new(&argument)),
        "filters" => play(None, AttachMode::Clsact),
        _ => return None,
    }
    Some(ExitCode::SUCCESS)
}

/// Connects, and prints the connection's user timeout in milliseconds for every line of input.
fn client(address: SocketAddr) {
    let stream = TcpStream::connect(address).unwrap();
    println!("connected");
    for _line in stdin().lines() {
        let timeout = socket2::SockRef::from(&stream).tcp_user_timeout().unwrap();
        println!("{}", timeout.map_or(0, |timeout| timeout.as_millis()));
    }
}

/// Keeps the policy in force until its input ends.
fn agent(rules: &str) {
    let attached = UserTimeouts::attach(now(), policy(rules), &UserTimeoutOptions::default()).unwrap();
    println!("attached");
    assert_eq!(stdin().lines().count(), 0);
    drop(attached);
}

impl OtherProcess {
    /// A process that has a connection to `address`.
    pub(crate) fn client(address: SocketAddr) -> Self {
        Self::start("client", &address.to_string(), "connected")
    }

    /// A process with these rules in force.
    pub(crate) fn agent(rules: &str) -> Self {
        Self::start("agent", rules, "attached")
    }

    /// An engine on the wire. With a seed it handles random events of the link; without, those of [`Self::tell`].
    pub(crate) fn engine(seed: Option<u64>) -> Self {
        Self::start("engine", &seed.map_or(String::new(), |seed| seed.to_string()), "attached")
    }

    /// An engine on the wire, attached as on kernels without tcx, for commands.
    pub(crate) fn engine_as_filters() -> Self {
        Self::start("filters", "", "attached")
    }

    /// The whole daemon on the interface of a [`crate::lan::Lan`], with its files in a directory.
    pub(crate) fn daemon(directory: &Path) -> Self {
        Self::start("daemon", directory.to_str().unwrap(), "attached")
    }

    fn start(role: &str, argument: &str, first_line: &str) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.env(ROLE, role).env(ARGUMENT, argument);
        Self::run(command, first_line)
    }

    /// A program that prints this line first, and then a line for each line that it is told.
    pub(crate) fn run(mut command: Command, first_line: &str) -> Self {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let input = child.stdin.take().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let mut this = Self { process: child.into(), input, output };
        assert_eq!(this.line(), first_line);
        this
    }

    /// Its answer to a line.
    pub(crate) fn ask(&mut self, line: &str) -> String {
        writeln!(self.input, "{line}").unwrap();
        self.line()
    }

    /// The user timeout of a client's connection in milliseconds; 0 for none.
    pub(crate) fn user_timeout_ms(&mut self) -> u64 {
        self.ask("").parse().unwrap()
    }

    /// Kills it with SIGKILL.
    pub(crate) fn kill(self) {}

    /// The same for an engine: returns its last output.
    pub(crate) fn kill_engine(mut self) -> Tally {
        assert_eq!(self.process.exit_status().unwrap(), None, "the engine's process has ended by itself");
        self.process.kill();
        let mut reported = String::new();
        self.output.read_to_string(&mut reported).unwrap();
        // The last line may be incomplete.
        let whole = reported.rfind('\n').map_or("", |end| &reported[..end]);
        whole.lines().next_back().map_or(Tally::default(), Tally::parse)
    }

    /// Passes a link event to an engine: returns its counters until then.
    pub(crate) fn tell(&mut self, event: &str) -> Tally {
        Tally::parse(&self.ask(event))
    }

    /// Sends a signal.
    pub(crate) fn signal(&mut self, signal: rustix::process::Signal) {
        self.process.signal(signal).unwrap();
    }

    /// Ends a daemon with SIGTERM, and waits for its end.
    pub(crate) fn end(mut self) {
        self.signal(rustix::process::Signal::TERM);
        assert!(self.ends().is_some_and(|status| status.success()));
    }

    /// Waits for its end.
    pub(crate) fn ends(&mut self) -> Option<ExitStatus> {
        self.process.wait_timeout(Duration::from_secs(60)).unwrap()
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }
}
