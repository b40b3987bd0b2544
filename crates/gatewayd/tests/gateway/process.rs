//! The daemon as a separate process: this program again, in another role.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use holdover_gatewayd::config::Config;
use holdover_gatewayd::control::{self, Request, Response, Standing, ask};
use holdover_gatewayd::daemon::{Daemon, Setup, mount_pins, stop_signal};
use holdover_gatewayd::status::{MobileLine, Status};
use holdover_host::Process;
use holdover_host::log::{Log, LogLevel, with_causes};
use holdover_host::time_text::Time;
use holdover_testbed::Namespace;
use holdover_testbed::gateway::{GatewayProcess, LIMIT, MOBILE_FACING};
use rustix::process::Signal;

/// The environment variable with the daemon's directory.
const DIRECTORY: &str = "HOLDOVER_TEST_GATEWAY_DIRECTORY";

/// The environment variable with which a daemon logs more, and its log is printed at its end.
const LOG: &str = "HOLDOVER_TEST_LOG";

/// Runs the daemon if this process was started for that role.
pub(crate) fn role() -> Option<ExitCode> {
    let directory = PathBuf::from(std::env::var_os(DIRECTORY)?);
    let level = if std::env::var_os(LOG).is_some() { LogLevel::Debug } else { LogLevel::Error };
    holdover_host::log::start(&Log { level, ..Log::default() }).expect("the first log");
    let config = Config::read(&directory.join("gateway.toml")).expect("written by the test");
    mount_pins(&config);
    let interface = config.mobiles.interface.clone().unwrap_or_else(|| MOBILE_FACING.to_owned());
    let setup = Setup { config, interface, socket: socket(&directory) };
    let daemon = Daemon::open(setup, stop_signal().expect("signals"));
    Some(match daemon.and_then(Daemon::run) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("gateway: {}", with_causes(&error));
            ExitCode::FAILURE
        }
    })
}

fn socket(directory: &Path) -> PathBuf {
    directory.join("gateway.sock")
}

/// A daemon under test.
pub(crate) struct Gateway(GatewayProcess);

impl Gateway {
    /// Starts the daemon in a namespace, with additional sections in its configuration. It serves [`MOBILE_FACING`], or the
    /// interface that is named there.
    pub(crate) fn start(namespace: &Namespace, sections: &str) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let directory = std::env::temp_dir().join(format!("holdover-gateway-{}-{number}", std::process::id()));
        let command = |directory: &Path| {
            let mut command = Command::new(std::env::current_exe().unwrap());
            command.env(DIRECTORY, directory);
            command
        };
        Self(GatewayProcess::start(namespace, directory, sections, command).unwrap())
    }

    /// Starts another daemon after the end of the last one.
    pub(crate) fn restart(&mut self) {
        self.0.restart().unwrap();
    }

    /// The same; returns whether it starts.
    pub(crate) fn try_restart(&mut self) -> bool {
        self.0.restart().is_ok()
    }

    /// Adds sections to the configuration of the next daemon.
    pub(crate) fn configure(&self, sections: &str) {
        let file = self.0.directory().join("gateway.toml");
        let text = std::fs::read_to_string(&file).unwrap();
        std::fs::write(file, format!("{text}\n{sections}")).unwrap();
    }

    /// Replaces text in the configuration of the next daemon.
    pub(crate) fn replace(&self, text: &str, by: &str) {
        let file = self.0.directory().join("gateway.toml");
        let before = std::fs::read_to_string(&file).unwrap();
        let after = before.replace(text, by);
        assert_ne!(before, after);
        std::fs::write(file, after).unwrap();
    }

    pub(crate) fn status(&self) -> Status {
        control::status(&self.0.socket()).unwrap()
    }

    pub(crate) fn mobile(&self, address: IpAddr) -> Option<MobileLine> {
        match ask(&self.0.socket(), &Request::Mobiles) {
            Ok(Response::Mobiles { mobiles }) => mobiles.into_iter().find(|mobile| mobile.address == address),
            other => panic!("{other:?}"),
        }
    }

    /// Reports by command.
    pub(crate) fn report(&self, address: IpAddr, presence: Standing) -> Result<(), String> {
        match ask(&self.0.socket(), &Request::Mobile { address, presence }) {
            Ok(Response::Noted) => Ok(()),
            Err(error) => Err(error.to_string()),
            other => panic!("{other:?}"),
        }
    }

    /// Waits until a mobile host has the given state.
    #[track_caller]
    pub(crate) fn says(&self, address: IpAddr, standing: &str) -> Duration {
        let began = Instant::now();
        loop {
            let line = self.mobile(address);
            if line.as_ref().is_some_and(|line| line.standing == standing) {
                return began.elapsed();
            }
            assert!(began.elapsed() < LIMIT, "not {standing}: {line:?}");
            sleep(Duration::from_millis(5));
        }
    }

    /// The same, with an action repeated until then.
    #[track_caller]
    pub(crate) fn says_after(&self, address: IpAddr, standing: &str, mut again: impl FnMut()) {
        let began = Instant::now();
        while self.mobile(address).is_none_or(|line| line.standing != standing) {
            again();
            assert!(began.elapsed() < LIMIT, "not {standing}");
            sleep(Duration::from_millis(20));
        }
    }

    pub(crate) fn drain(&self, within: Duration) -> u64 {
        let within = Time(holdover_base::Duration::from_millis(within.as_millis() as u64));
        match ask(&self.0.socket(), &Request::Drain { within }) {
            Ok(Response::Draining { waiting }) => waiting,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn signal(&mut self, signal: Signal) {
        self.running().signal(signal).unwrap();
    }

    /// Stops the daemon for a while (SIGSTOP), and waits until each of its threads has stopped: until then one may still
    /// handle a packet.
    #[track_caller]
    pub(crate) fn hang(&mut self) {
        self.signal(Signal::STOP);
        let pid = self.running().id();
        let began = Instant::now();
        while !is_stopped(pid) {
            assert!(began.elapsed() < LIMIT, "the daemon does not stop");
            sleep(Duration::from_millis(1));
        }
    }

    /// `kill -9`.
    pub(crate) fn kill(&mut self) {
        self.0.kill();
    }

    /// Waits for the end of the daemon; returns whether it succeeded.
    pub(crate) fn ends(&mut self, within: Duration) -> bool {
        let ended = self.running().wait_timeout(within).unwrap().expect("the daemon is still running");
        self.0.kill();
        ended.success()
    }

    fn running(&mut self) -> &mut Process {
        self.0.process().unwrap()
    }

    /// Files of mobile hosts for which packets wait.
    pub(crate) fn files(&self) -> usize {
        let entries = std::fs::read_dir(self.0.directory().join("packets").join(MOBILE_FACING)).into_iter().flatten();
        entries.filter(|entry| entry.as_ref().unwrap().file_name() != "lock").count()
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        if std::env::var_os(LOG).is_some() {
            eprintln!("{}", self.0.log());
        }
    }
}

/// Whether each thread of a process is stopped (`T` in proc_pid_stat(5), behind the name in parentheses).
fn is_stopped(pid: u32) -> bool {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let state = |thread: std::fs::DirEntry| {
        let stat = std::fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next())
    };
    threads.into_iter().all(|thread| state(thread.unwrap()) == Some('T'))
}
