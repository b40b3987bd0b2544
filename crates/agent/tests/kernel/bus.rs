//! A private D-Bus bus.

use std::io;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use futures_lite::future;
use holdover_host::Process;
use holdover_host::process::LogTo;
use holdover_testbed::Namespace;
use zbus::Connection;
use zbus::connection::Builder;

/// Longer than anything takes on a slow machine.
pub(crate) const LIMIT: Duration = Duration::from_secs(30);

/// A `dbus-daemon`, which ends with this value.
pub(crate) struct Bus {
    daemon: Process,
    directory: PathBuf,
}

impl Bus {
    /// The bus, and a connection to it.
    pub(crate) fn start(namespace: &Namespace) -> (Self, Connection) {
        let name = format!("holdover-bus-{:?}-{}", namespace.id(), std::process::id());
        // Without characters that need escaping in an address.
        let directory = std::env::temp_dir().join(name.replace(['(', ')'], "-"));
        std::fs::create_dir_all(&directory).unwrap();
        let config = directory.join("bus.conf");
        let address = format!("unix:path={}", directory.join("bus").display());
        std::fs::write(&config, configuration(&address)).unwrap();
        let mut command = Command::new("dbus-daemon");
        command.arg(format!("--config-file={}", config.display())).args(["--nofork", "--nopidfile"]);
        let mut daemon =
            Process::start_here(command, LogTo::Stderr).expect("dbus-daemon is needed (Debian: dbus-daemon)");
        let mut bus = None;
        let connected = daemon.wait_until_ok(LIMIT, || {
            let built = future::block_on(Builder::address(address.as_str()).build());
            built.map(|connection| bus = Some(connection)).map_err(io::Error::other)
        });
        connected.unwrap_or_else(|error| panic!("dbus-daemon: {error}"));
        (Self { daemon, directory }, bus.expect("it is connected"))
    }

    pub(crate) fn address(&self) -> String {
        format!("unix:path={}", self.directory.join("bus").display())
    }

    /// `kill -9`.
    pub(crate) fn kill(&mut self) {
        self.daemon.kill();
    }
}

impl Drop for Bus {
    fn drop(&mut self) {
        self.kill();
        _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// Everything is permitted.
fn configuration(address: &str) -> String {
    format!(
        "<busconfig><type>system</type><listen>{address}</listen><auth>EXTERNAL</auth><policy context=\"default\">\
         <allow user=\"*\"/><allow own=\"*\"/><allow send_destination=\"*\"/><allow send_type=\"signal\"/>\
         <allow receive_sender=\"*\"/></policy></busconfig>"
    )
}
