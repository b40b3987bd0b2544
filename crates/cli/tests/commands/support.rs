//! Running the program in a directory of its own.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use holdover_testbed::harness::skip;
use rustix::process::{Pid, Signal, kill_process};

/// Two hosts, a link that is down for a while, and two stacks.
pub(crate) const SCENARIO: &str = r#"title = "A short outage"
seed = 3
time_limit = "30 s"

[[host]]
name = "phone"

[[host]]
name = "server"

[[link]]
name = "radio"
between = ["phone", "server"]
rate = "4 Mbit/s"
delay = "15 ms"
queue_limit = "40 packets"
loss = "0.5 %"
outages = { list = [{ at = "500 ms", for = "1500 ms" }], queued = "dropped", in_flight = "dropped" }

[[flow]]
name = "download"
from = "server"
to = "phone"
opener = "phone"
bulk = "400 kB"

[[variant]]
name = "cubic"
set = { stack = "linux-6-cubic" }

[[variant]]
name = "bsd"
set = { stack = "reno-bsd" }
"#;

/// The same with questions of the phone and answers of the server, in place of the transfer.
pub(crate) fn exchanges() -> String {
    let (before, flow) = SCENARIO.split_once("[[flow]]").unwrap();
    let (_, variants) = flow.split_once("[[variant]]").unwrap();
    let flow = r#"[[flow]]
name = "chat"
from = "phone"
to = "server"
request_response = { request = "300 bytes", response = "4 kB", think = "100 ms" }

"#;
    format!("{before}{flow}[[variant]]{variants}")
}

/// A directory of a test, in which the program is run.
pub(crate) struct Place {
    path: PathBuf,
}

impl Place {
    /// An empty directory.
    pub(crate) fn new(name: &str) -> Self {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("commands").join(name);
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        Self { path }
    }

    /// One with a file `short.toml` that holds `text`.
    pub(crate) fn with_scenario(name: &str, text: &str) -> Self {
        let place = Self::new(name);
        place.write("short.toml", text);
        place
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).unwrap();
    }

    /// The entries of the directory, in order.
    pub(crate) fn entries(&self) -> Vec<String> {
        let mut names: Vec<String> =
            fs::read_dir(&self.path).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    /// The program with these arguments, separated by blanks.
    pub(crate) fn command(&self, arguments: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_holdover"));
        command.current_dir(&self.path).args(arguments.split_whitespace()).env_remove("COLUMNS");
        command
    }

    /// Runs it to its end with a terminal of 50 columns for its output; standard error is not read.
    pub(crate) fn run_on_terminal(&self, arguments: &str) -> Ended {
        let program = env!("CARGO_BIN_EXE_holdover");
        let command = format!("stty cols 50; exec '{program}' {arguments} 2>/dev/null");
        let mut script = Command::new("script");
        script.current_dir(&self.path).args(["--quiet", "--return", "--command", &command, "/dev/null"]);
        let output = script.env_remove("COLUMNS").stdin(Stdio::null()).output().unwrap();
        let mut ended = Ended::new(arguments, output);
        ended.out = ended.out.replace("\r\n", "\n");
        ended
    }

    /// Runs the program with these arguments, and interrupts it as soon as `condition` is true for its process id.
    pub(crate) fn interrupt(&self, arguments: &str, mut condition: impl FnMut(u32) -> bool) -> Ended {
        const LIMIT: Duration = Duration::from_secs(120);
        let (mut child, began) = (Killed(Some(start(self.command(arguments)))), std::time::Instant::now());
        while !condition(child.id()) {
            let has_ended = child.has_ended();
            if has_ended || began.elapsed() > LIMIT {
                let ended = child.kill_with_output(arguments);
                panic!("{}: {ended:?}", if has_ended { "it has ended by itself" } else { "the condition was not met" });
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        send_interrupt(child.take(), arguments)
    }

    /// Runs it to its end.
    pub(crate) fn run(&self, arguments: &str) -> Ended {
        Ended::new(arguments, self.command(arguments).output().unwrap())
    }
}

/// The program with this directory for its temporary files, interrupted as soon as it has made some. `None` if it is refused before it has, for want
/// of the rights for namespaces; with `HOLDOVER_REQUIRE_NAMESPACES=1` in the environment that is a failure.
pub(crate) fn interrupted(place: &Place, arguments: &str) -> Option<Ended> {
    let mut command = place.command(arguments);
    command.env("TMPDIR", &place.path);
    let mut child = start(command);
    while place.entries().is_empty() {
        if child.try_wait().unwrap().is_some() {
            let ended = Ended::new(arguments, child.wait_with_output().unwrap());
            assert!(ended.code != Some(0) && !ended.err.contains("panicked"), "{ended:?}");
            skip(format_args!("{arguments} was refused: {}", ended.err.trim()));
            return None;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    std::thread::sleep(Duration::from_millis(300));
    Some(send_interrupt(child, arguments))
}

/// A program that is killed when this is dropped.
struct Killed(Option<Child>);

impl Killed {
    fn id(&self) -> u32 {
        self.0.as_ref().unwrap().id()
    }

    fn has_ended(&mut self) -> bool {
        self.0.as_mut().unwrap().try_wait().unwrap().is_some()
    }

    fn take(&mut self) -> Child {
        self.0.take().unwrap()
    }

    fn kill_with_output(&mut self, arguments: &str) -> Ended {
        let mut child = self.take();
        // It may have ended.
        let _ = child.kill();
        Ended::new(arguments, child.wait_with_output().unwrap())
    }
}

impl Drop for Killed {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn start(mut command: Command) -> Child {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

fn send_interrupt(child: Child, arguments: &str) -> Ended {
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    Ended::new(arguments, child.wait_with_output().unwrap())
}

/// A program that has ended.
#[derive(Debug)]
pub(crate) struct Ended {
    arguments: String,
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Ended {
    pub(crate) fn new(arguments: &str, output: Output) -> Self {
        Self {
            arguments: arguments.to_owned(),
            code: output.status.code(),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
        }
    }

    /// It must have gone well.
    #[track_caller]
    pub(crate) fn well(self) -> Self {
        assert_eq!(self.code, Some(0), "{}: {}{}", self.arguments, self.out, self.err);
        self
    }

    /// It must have refused with one error and nothing else, on which this returns.
    #[track_caller]
    pub(crate) fn refused(self) -> String {
        assert_eq!(self.code, Some(2), "{}: {}{}", self.arguments, self.out, self.err);
        assert_eq!(self.out, "", "{}", self.arguments);
        assert_eq!(self.err.matches("error:").count(), 1, "{}: {}", self.arguments, self.err);
        assert!(!self.err.contains("panicked"), "{}", self.err);
        self.err
    }

    /// Its output, as JSON.
    #[track_caller]
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{}: {error}\n{}", self.arguments, self.out))
    }
}

/// Every file below `dir` by its relative path, but those called so.
pub(crate) fn files_but(dir: &Path, not: &[&str]) -> BTreeMap<String, Vec<u8>> {
    let mut files = BTreeMap::new();
    let mut directories = vec![dir.to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(&directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                directories.push(path);
            } else if !not.iter().any(|name| path.ends_with(name)) {
                let name = path.strip_prefix(dir).unwrap().display().to_string();
                files.insert(name, fs::read(&path).unwrap());
            }
        }
    }
    files
}

/// The names under which the contents differ, or that only one of them has.
pub(crate) fn differences(a: &BTreeMap<String, Vec<u8>>, b: &BTreeMap<String, Vec<u8>>) -> Vec<String> {
    let names: std::collections::BTreeSet<&String> = a.keys().chain(b.keys()).collect();
    names.into_iter().filter(|name| a.get(*name) != b.get(*name)).cloned().collect()
}
