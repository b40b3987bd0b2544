//! Starting the daemon for commands that need it.

use std::fs::{DirBuilder, OpenOptions};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use holdover_hipd::control::{self, DEFAULT_SOCKET};
use holdover_hipd::files::DEFAULT_DIRECTORY;

use super::Failure;
use crate::command_support::print_note;

const UNIT: &str = "holdover-hip.service";
/// The directory that systemd makes when it runs (`sd_booted(3)`).
const SYSTEMD: &str = "/run/systemd/system";
/// How long the daemon may take to start.
const PATIENCE: Duration = Duration::from_secs(20);
const POLL: Duration = Duration::from_millis(50);

/// Starts the daemon: as the service of the package, or else in the background.
pub(super) fn start(directory: &Path, socket: &Path) -> Result<(), Failure> {
    let is_default = directory == Path::new(DEFAULT_DIRECTORY) && socket == Path::new(DEFAULT_SOCKET);
    if is_default && Path::new(SYSTEMD).is_dir() && systemctl(&["cat", UNIT]) {
        if !systemctl(&["enable", "--now", UNIT]) {
            return Err(failed(&format!("the service does not start: systemctl status {UNIT}")));
        }
        print_note(&format_args!("the service {UNIT} is enabled and runs"));
        return wait(socket, None, &format!("journalctl -u {UNIT}"));
    }
    let log = log_of(socket);
    let daemon = in_background(directory, socket, &log)?;
    wait(socket, Some(daemon), &log.display().to_string())?;
    print_note(&format_args!(
        "the daemon runs in the background, until the host stops (log: {}; end: holdover hip down)",
        log.display()
    ));
    Ok(())
}

fn systemctl(words: &[&str]) -> bool {
    let mut command = Command::new("systemctl");
    command.args(words).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// The log is beside the socket.
fn log_of(socket: &Path) -> PathBuf {
    let mut log = socket.as_os_str().to_owned();
    log.push(".log");
    log.into()
}

fn in_background(directory: &Path, socket: &Path, log: &Path) -> Result<Child, Failure> {
    if let Some(parent) = log.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        DirBuilder::new().recursive(true).mode(0o700).create(parent)?;
    }
    let log = OpenOptions::new().create(true).append(true).mode(0o600).open(log)?;
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["hip", "up", "--dir"]).arg(directory).arg("--socket").arg(socket);
    command.env_remove("NOTIFY_SOCKET").stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
    // A process group of its own: keys of the terminal do not end it.
    Ok(command.process_group(0).spawn()?)
}

fn wait(socket: &Path, mut daemon: Option<Child>, log: &str) -> Result<(), Failure> {
    let until = Instant::now() + PATIENCE;
    while control::status(socket).is_err() {
        let has_ended = daemon.as_mut().is_some_and(|daemon| !matches!(daemon.try_wait(), Ok(None)));
        if has_ended || Instant::now() >= until {
            return Err(failed(&format!("the daemon does not start: {log}")));
        }
        std::thread::sleep(POLL);
    }
    Ok(())
}

fn failed(text: &str) -> Failure {
    Failure { text: text.to_owned(), status: 1 }
}
