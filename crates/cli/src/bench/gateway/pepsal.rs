//! PEPsal on the router, to compare with: it accepts each connection in the fixed host's place, and opens another one.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use holdover_host::process::{self, LogTo};
use holdover_host::{Namespace, Process};
use holdover_testbed::gateway::{Line, MOBILE_FACING};

use super::Failed;

/// The port on which it accepts.
const PORT: u16 = 5000;
/// The routing table of packets for it, and their mark.
const TABLE: &str = "100";
const MARK: &str = "1";
/// The bound on its start, and on its taking of connections.
const START_WITHIN: Duration = Duration::from_secs(10);

/// Finds the program: the named one, or that of `HOLDOVER_PEPSAL`, which may name its directory, or the one in `PATH` or `/usr/sbin`.
///
/// # Errors
/// There is none, or a program that redirects connections to it is missing.
pub(super) fn find(named: Option<&Path>) -> Result<PathBuf, String> {
    // It is no package of Debian's, so the advice of `process::find` does not apply.
    let found = named.map(Path::to_owned).or_else(|| process::find("HOLDOVER_PEPSAL", "pepsal", "pepsal").ok());
    let program = found.ok_or("which is not in PATH or /usr/sbin: --pepsal or HOLDOVER_PEPSAL names it")?;
    for (tool, version, package) in [("nft", "--version", "nftables"), ("ip", "-V", "iproute2")] {
        let runs = Command::new(tool).arg(version).output().is_ok_and(|output| output.status.success());
        if !runs {
            return Err(format!("which needs {tool}: install {package} (Debian)"));
        }
    }
    Ok(program)
}

/// The line that the program prints of its version.
///
/// # Errors
/// It cannot be run.
pub(super) fn version(program: &Path) -> Result<String, Failed> {
    let output = Command::new(program).arg("-V").output();
    let output = output.map_err(|error| format!("{} cannot be run: {error}", program.display()))?;
    let text = String::from_utf8_lossy(&output.stdout);
    match text.lines().next().filter(|line| output.status.success() && line.starts_with("PEPSal")) {
        Some(line) => Ok(line.to_owned()),
        None => Err(format!("{} is no PEPsal: {}", program.display(), output.status).into()),
    }
}

/// A running PEPsal, which ends with this value.
#[derive(Debug)]
pub(super) struct Pepsal {
    process: Process,
    /// Its sockets before the first connection.
    sockets: usize,
}

impl Pepsal {
    /// Starts it on a line's router with one worker thread, and redirects the mobile host's connections to it as its manual says: without
    /// the connection tracking of its script, which would cost it more.
    ///
    /// # Errors
    /// It cannot be started, does not listen, or connections cannot be redirected.
    pub(super) fn start(line: &Line, program: &Path) -> Result<Self, Failed> {
        let router = line.router().ok_or("PEPsal needs a router")?;
        run(router, "ip", &["link", "set", "lo", "up"], "")?;
        run(router, "ip", &["rule", "add", "fwmark", MARK, "lookup", TABLE], "")?;
        run(router, "ip", &["route", "add", "local", "default", "dev", "lo", "table", TABLE], "")?;
        let mut command = Command::new(program);
        command.args(["-p", &PORT.to_string(), "-T", "1"]);
        let process = Process::start(router, command, LogTo::Stderr)
            .map_err(|error| format!("{} cannot be run: {error}", program.display()))?;
        // A connection to which nobody listens would pass by.
        await_listener(router)?;
        let sockets = sockets(process.id())?;
        let pepsal = Self { process, sockets };
        let rule =
            format!("iifname \"{MOBILE_FACING}\" meta l4proto tcp tproxy to :{PORT} meta mark set {MARK} accept");
        let chain = format!("chain prerouting {{\ntype filter hook prerouting priority mangle\n{rule}\n}}");
        run(router, "nft", &["-f", "-"], &format!("table ip pepsal {{\n{chain}\n}}\n"))?;
        Ok(pepsal)
    }

    pub(super) fn process(&self) -> u32 {
        self.process.id()
    }

    /// Waits until it has two sockets for each of so many connections.
    ///
    /// # Errors
    /// It has fewer after [`START_WITHIN`].
    pub(super) fn has_taken(&self, connections: usize) -> Result<(), Failed> {
        let began = Instant::now();
        loop {
            let open = sockets(self.process())?.saturating_sub(self.sockets);
            if open >= 2 * connections {
                return Ok(());
            }
            if began.elapsed() > START_WITHIN {
                let why = format!("PEPsal has opened {open} sockets: it has not taken {connections} connections");
                return Err(why.into());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// The open sockets of a process, without its pipes and files.
fn sockets(process: u32) -> std::io::Result<usize> {
    let files = fs::read_dir(format!("/proc/{process}/fd"))?;
    // A file may be closed meanwhile.
    let targets = files.filter_map(|file| fs::read_link(file.ok()?.path()).ok());
    Ok(targets.filter(|target| target.to_string_lossy().starts_with("socket:")).count())
}

/// Runs a program in a namespace to its end, with this input.
fn run(namespace: &Namespace, program: &str, arguments: &[&str], input: &str) -> Result<(), Failed> {
    let run = || {
        let mut child = Command::new(program).args(arguments).stdin(Stdio::piped()).spawn()?;
        if let Some(mut to) = child.stdin.take() {
            to.write_all(input.as_bytes())?;
        }
        child.wait()
    };
    let failed = |why: &dyn std::fmt::Display| format!("{program} {}: {why}", arguments.join(" "));
    match namespace.enter(run)? {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(failed(&status).into()),
        Err(error) => Err(failed(&error).into()),
    }
}

fn await_listener(router: &Namespace) -> Result<(), Failed> {
    let began = Instant::now();
    loop {
        let sockets = router.enter(|| fs::read_to_string("/proc/thread-self/net/tcp6"))??;
        if sockets.lines().any(listens) {
            return Ok(());
        }
        if began.elapsed() > START_WITHIN {
            return Err(format!("PEPsal does not listen after {} s", START_WITHIN.as_secs()).into());
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Whether a line of `/proc/net/tcp6` is a socket that listens on [`PORT`].
fn listens(line: &str) -> bool {
    /// `TCP_LISTEN` of `net/tcp_states.h`.
    const LISTEN: &str = "0A";
    let mut fields = line.split_whitespace().skip(1);
    let (local, state) = (fields.next(), fields.nth(1));
    local.is_some_and(|local| local.ends_with(&format!(":{PORT:04X}"))) && state == Some(LISTEN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_is_no_pepsal_is_refused() {
        let error = version(Path::new("/nowhere/pepsal")).unwrap_err().to_string();
        assert!(error.starts_with("/nowhere/pepsal cannot be run"), "{error}");
        let error = version(Path::new("/bin/true")).unwrap_err().to_string();
        assert!(error.starts_with("/bin/true is no PEPsal"), "{error}");
    }

    #[test]
    fn sockets_are_counted_without_other_files() {
        let mut command = Command::new("sleep");
        command.arg("60").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        assert_eq!(sockets(child.id()).unwrap(), 0);
        child.kill().unwrap();
        child.wait().unwrap();
        let (_one, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        assert!(sockets(std::process::id()).unwrap() >= 2);
    }

    #[test]
    fn a_listener_is_found_among_the_kernel_s_sockets() {
        let nobody = "00000000000000000000000000000000";
        let line = |port, state| format!("   0: {nobody}:{port} {nobody}:0000 {state} 00000000:00000000 00:00000000");
        assert!(listens(&line("1388", "0A")));
        assert!(!listens(&line("1389", "0A")) && !listens(&line("1388", "01")));
        assert!(!listens("  sl  local_address  remote_address  st"));
    }
}
