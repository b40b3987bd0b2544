//! `holdover agent bugreport`: a directory of files for maintainers, which users can read before they send them.

use std::fmt::Write as _;
use std::fs::{self, DirBuilder};
use std::io::{self, Read as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant, SystemTime};

use clap::Args;
use holdover_agent::config::{Config, DEFAULT_PATH};
use holdover_agent::control::{self, Client, Request, Response};
use holdover_testbed::kernel_release;
use serde::Serialize;

use super::SocketArgs;
use super::masking::Masker;
use crate::command_support::{print, print_error, print_json, utc, with_causes};
use crate::doctor_command;

/// Arguments of `holdover agent bugreport`.
#[derive(Args, Debug)]
pub(super) struct BugreportArgs {
    /// The directory to create; default: one in the working directory, named after the time.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Keep addresses of hosts. By default each one is replaced by a name that is the same in all files.
    #[arg(long)]
    with_addresses: bool,
    /// The configuration; /etc/holdover/agent.toml if there is one.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Print JSON instead of text: the directory and its files.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    socket: SocketArgs,
}

/// So many of the agent's last lines in the journal.
const LOG_LINES: u32 = 2000;
/// The longest file: the rest is left out.
const LONGEST_FILE: u64 = 8 << 20;
/// So long a program is waited for.
const PATIENCE: Duration = Duration::from_secs(10);

/// The files written.
#[derive(Debug, Serialize)]
struct Written {
    directory: PathBuf,
    files: Vec<&'static str>,
    /// Whether addresses were replaced by names.
    masked: bool,
}

/// A directory that is filled.
struct Report {
    directory: PathBuf,
    masker: Option<Masker>,
    files: Vec<&'static str>,
}

/// Collects all files. An item that cannot be read has the error in its file; the command does not
/// fail.
pub(super) fn run(args: &BugreportArgs) -> ExitCode {
    let directory = args.out.clone().unwrap_or_else(|| {
        let (_, short) = utc(SystemTime::now());
        format!("holdover-bugreport-{short}").into()
    });
    match collect(args, &directory) {
        Ok(written) if args.json => print_json(&written),
        Ok(written) => print(&written.to_text()),
        Err(error) => {
            let hint = if error.kind() == io::ErrorKind::AlreadyExists { "; name another one: --out" } else { "" };
            print_error(&format_args!("cannot write the report to {}: {error}{hint}", directory.display()));
            ExitCode::FAILURE
        }
    }
}

fn collect(args: &BugreportArgs, directory: &Path) -> io::Result<Written> {
    // For its owner alone: the log and the configuration may be so, too.
    DirBuilder::new().mode(0o700).create(directory)?;
    let masker = (!args.with_addresses).then(Masker::default);
    let mut report = Report { directory: directory.to_owned(), masker, files: Vec::new() };
    report.add("about.txt", &about())?;
    report.add("configuration.toml", &configuration(args.config.as_deref()))?;
    report.add_json("status.json", control::status(&args.socket.socket).map_err(|error| with_causes(&error)))?;
    report.add("actions.jsonl", &actions(&args.socket.socket))?;
    report.add("log.txt", &log())?;
    report.add("links.txt", &links())?;
    report.add("sysctl.txt", &sysctls())?;
    // Last, because this process may become root of a user namespace to probe features.
    report.add_json("doctor.json", Ok(doctor_command::diagnose()))?;
    Ok(Written { directory: directory.to_owned(), files: report.files, masked: report.masker.is_some() })
}

impl Report {
    fn add(&mut self, name: &'static str, text: &str) -> io::Result<()> {
        let text = match &mut self.masker {
            Some(masker) => masker.mask(text),
            None => text.to_owned(),
        };
        fs::write(self.directory.join(name), text)?;
        self.files.push(name);
        Ok(())
    }

    fn add_json<T: Serialize>(&mut self, name: &'static str, value: Result<T, String>) -> io::Result<()> {
        let value = value.map_or_else(|error| Ok(serde_json::json!({ "error": error })), serde_json::to_value);
        let mut value = value.map_err(io::Error::other)?;
        if let Some(masker) = &mut self.masker {
            masker.mask_json(&mut value);
        }
        let text = serde_json::to_string_pretty(&value).map_err(io::Error::other)?;
        fs::write(self.directory.join(name), text + "\n")?;
        self.files.push(name);
        Ok(())
    }
}

impl Written {
    fn to_text(&self) -> String {
        let directory = self.directory.display();
        let mut text = format!("{directory}:\n");
        for file in &self.files {
            let _ = writeln!(text, "  {file}");
        }
        let addresses = if self.masked {
            "Addresses of hosts are replaced by names, MAC addresses in names of interfaces too; names of programs and users are not."
        } else {
            "Addresses of hosts are in it."
        };
        let _ = writeln!(text, "{addresses} Read it before you send it, then: tar -czf report.tar.gz {directory}");
        text
    }
}

/// The program, the system and the time.
fn about() -> String {
    let release = first_of(&["/etc/os-release", "/usr/lib/os-release"]);
    let system = release.lines().find_map(|line| line.strip_prefix("PRETTY_NAME=")).unwrap_or("unknown");
    let version = fs::read_to_string("/proc/version").unwrap_or_default();
    let uptime = fs::read_to_string("/proc/uptime").unwrap_or_default();
    format!(
        "holdover {}\nmachine {}\nsystem {}\nkernel {}\n{}uptime {} s\ntime {}\n",
        env!("CARGO_PKG_VERSION"),
        std::env::consts::ARCH,
        system.trim_matches('"'),
        kernel_release(),
        version,
        uptime.split_whitespace().next().unwrap_or("unknown"),
        utc(SystemTime::now()).0
    )
}

/// The first of these files that can be read.
fn first_of(paths: &[&str]) -> String {
    paths.iter().find_map(|path| fs::read_to_string(path).ok()).unwrap_or_default()
}

/// The file unchanged, and the effective configuration as comments.
fn configuration(named: Option<&Path>) -> String {
    let path = named.unwrap_or(Path::new(DEFAULT_PATH));
    let text = match read_bounded(path) {
        Ok(text) => text,
        Err(error) => format!("# {}: {error}\n", path.display()),
    };
    let in_force = match named.map_or_else(Config::read_default, Config::read) {
        Ok(config) => config.to_toml(),
        Err(error) => format!("nothing: {error}"),
    };
    let commented: String = in_force.lines().map(|line| format!("# {line}\n")).collect();
    format!("{text}\n# In force with it:\n{commented}")
}

fn read_bounded(path: &Path) -> io::Result<String> {
    let mut text = Vec::new();
    fs::File::open(path)?.take(LONGEST_FILE).read_to_end(&mut text)?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// The agent's recent actions, one line of JSON each.
fn actions(socket: &Path) -> String {
    let mut client = match Client::ask(socket, &Request::Actions { follow: false }) {
        Ok(client) => client,
        Err(error) => return format!("{}\n", serde_json::json!({ "error": with_causes(&error) })),
    };
    let mut text = String::new();
    while let Ok(Some(Response::Action(action))) = client.follow() {
        let _ = writeln!(text, "{}", serde_json::to_string(&action).unwrap_or_default());
    }
    text
}

/// The agent's last lines in the journal, or why there are none.
fn log() -> String {
    let lines = format!("--lines={LOG_LINES}");
    let unit = "--unit=holdover-agent.service";
    let mut command = Command::new("journalctl");
    command.args([unit, &lines, "--no-hostname", "--no-pager", "--output=short-iso-precise"]);
    output_of(command).unwrap_or_else(|error| format!("journalctl: {error}\n"))
}

/// The output of a program, for at most [`PATIENCE`] and [`LONGEST_FILE`] bytes.
fn output_of(mut command: Command) -> io::Result<String> {
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
    let stdout = child.stdout.take();
    let reader = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(stdout) = stdout {
            // Lines read before an error are kept.
            let _ = stdout.take(LONGEST_FILE).read_to_end(&mut bytes);
        }
        bytes
    });
    let until = Instant::now() + PATIENCE;
    // The reader ends with the program's output, or at the limit of its length.
    while !reader.is_finished() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(10));
    }
    // An error means that it has ended already.
    let _ = child.kill();
    let status = child.wait()?;
    let bytes = reader.join().unwrap_or_default();
    if bytes.is_empty() && !status.success() {
        return Err(io::Error::other(format!("it failed ({status})")));
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Interfaces and their states, as the kernel's files have them.
fn links() -> String {
    let Ok(entries) = fs::read_dir("/sys/class/net") else { return "no /sys/class/net\n".to_owned() };
    let mut names: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    names.sort();
    let mut text = String::new();
    for path in names {
        let value =
            |file: &str| fs::read_to_string(path.join(file)).map_or("-".to_owned(), |text| text.trim().to_owned());
        let driver = fs::read_link(path.join("device/driver")).ok();
        let driver = driver.as_deref().and_then(Path::file_name).unwrap_or("-".as_ref());
        let kind = fs::read_to_string(path.join("uevent")).unwrap_or_default();
        let kind = kind.lines().find_map(|line| line.strip_prefix("DEVTYPE=")).unwrap_or("-");
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let (state, carrier, mtu) = (value("operstate"), value("carrier"), value("mtu"));
        let driver = driver.to_string_lossy();
        let _ = writeln!(text, "{name}: state {state}, carrier {carrier}, mtu {mtu}, type {kind}, driver {driver}");
    }
    text
}

/// How TCP is set.
fn sysctls() -> String {
    let Ok(entries) = fs::read_dir("/proc/sys/net/ipv4") else { return "no /proc/sys/net/ipv4\n".to_owned() };
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    let mut text = String::new();
    for path in paths {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        // The key of Fast Open is a secret.
        if !name.starts_with("tcp_") || name.contains("key") {
            continue;
        }
        if let Ok(value) = fs::read_to_string(&path) {
            let _ = writeln!(text, "net.ipv4.{name} = {}", value.split_whitespace().collect::<Vec<_>>().join(" "));
        }
    }
    text
}
