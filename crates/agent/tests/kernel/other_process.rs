//! Copies of this program that play other processes of the host.

use std::io::{BufRead as _, BufReader, Write as _, stdin};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitCode, Stdio};

use holdover_agent::user_timeout::{UserTimeoutOptions, UserTimeouts};

use crate::user_timeouts::{now, policy};

/// What the copy plays: `client ADDRESS` or `agent RULES`.
const ROLE: &str = "HOLDOVER_AGENT_TEST_ROLE";
const ARGUMENT: &str = "HOLDOVER_AGENT_TEST_ARGUMENT";

/// A copy of this program in the network namespace of the thread that started it. It is killed when this is dropped.
pub(crate) struct OtherProcess {
    child: Child,
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
        _ => return None,
    }
    Some(ExitCode::SUCCESS)
}

/// Connects, and says for every line of input which user timeout the connection has, in milliseconds.
fn client(address: SocketAddr) {
    let stream = TcpStream::connect(address).unwrap();
    println!("connected");
    for _line in stdin().lines() {
        let timeout = socket2::SockRef::from(&stream).tcp_user_timeout().unwrap();
        println!("{}", timeout.map_or(0, |timeout| timeout.as_millis()));
    }
}

/// Has the policy in force until its input ends.
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

    fn start(role: &str, argument: &str, first_line: &str) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .env(ROLE, role)
            .env(ARGUMENT, argument)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let input = child.stdin.take().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let mut this = Self { child, input, output };
        assert_eq!(this.line(), first_line);
        this
    }

    /// The user timeout of a client's connection in milliseconds; 0 for none.
    pub(crate) fn user_timeout_ms(&mut self) -> u64 {
        self.input.write_all(b"\n").unwrap();
        self.line().parse().unwrap()
    }

    /// SIGKILL: it can do nothing any more.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }
}

impl Drop for OtherProcess {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
