//! Shared by several commands.

use std::fmt::Display;
use std::io::{IsTerminal, Write};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use holdover_host::dependents;
pub(crate) use holdover_host::log::with_causes;
#[cfg(feature = "full")]
use holdover_scenario::{Override, Scenario, ScenarioError, Style};
use serde::Serialize;

/// The exit status after an interruption, as in shells: 128 + SIGINT.
pub(crate) const INTERRUPTED: u8 = 130;

/// Becomes true at the first Ctrl-C or SIGTERM; the second one ends the process.
pub(crate) fn stop_on_signals() -> std::io::Result<Arc<AtomicBool>> {
    use signal_hook::consts::{SIGINT, SIGTERM};
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register_conditional_shutdown(signal, INTERRUPTED.into(), Arc::clone(&stop))?;
        signal_hook::flag::register(signal, Arc::clone(&stop))?;
    }
    Ok(stop)
}

/// The scenario in a file, or the built-in one of that name, with everything that the command line changes.
#[cfg(feature = "full")]
pub(crate) fn open_scenario(name: &str, set: &[String], seed: Option<u64>) -> Result<Scenario, ScenarioError> {
    let mut changes = set.iter().map(|text| Override::parse(text)).collect::<Result<Vec<_>, _>>()?;
    changes.extend(seed.map(|seed| Override::new("seed", i64::try_from(seed).unwrap_or(i64::MAX))));
    let scenario = Scenario::open(name)?;
    if changes.is_empty() { Ok(scenario) } else { scenario.with(&changes) }
}

/// The command line has `--json`.
static ERRORS_AS_JSON: AtomicBool = AtomicBool::new(false);

/// From now on, errors are printed as JSON: the command line has `--json`.
pub(crate) fn print_errors_as_json() {
    ERRORS_AS_JSON.store(true, Ordering::Relaxed);
}

/// Whether errors are printed as JSON.
pub(crate) fn errors_are_json() -> bool {
    ERRORS_AS_JSON.load(Ordering::Relaxed)
}

/// Prints a line on standard error. What cannot be printed, to a closed pipe or a full disk, is lost: it ends no measurement.
pub(crate) fn print_note(text: &dyn Display) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// Prints why a command failed: a line on standard error, or under `--json` an object with the key `error` on standard output, which is a
/// line too: some commands print a line for each of their results.
pub(crate) fn print_error(error: &dyn Display) {
    if errors_are_json() {
        print(&error_line(error));
    } else {
        print_note(&format_args!("error: {error}"));
    }
}

/// An error under `--json`.
fn error_line(error: &dyn Display) -> String {
    format!("{}\n", serde_json::json!({ "error": error.to_string() }))
}

/// Prints that a command was interrupted, and which results it has kept.
pub(crate) fn print_interruption(text: &dyn Display) {
    if errors_are_json() { print_error(text) } else { print_note(text) }
}

/// A parser for an argument that is a whole number in this range.
pub(crate) fn within<T>(range: RangeInclusive<T>) -> impl Fn(&str) -> Result<T, String> + Clone + Send + Sync + 'static
where
    T: FromStr + PartialOrd + Display + Clone + Send + Sync + 'static,
{
    move |text| {
        let number = text.parse().ok().filter(|number| range.contains(number));
        number.ok_or_else(|| format!("expected a whole number from {} to {}", range.start(), range.end()))
    }
}

/// Prints a scenario's error with its position, in colour on terminals that allow it.
#[cfg(feature = "full")]
pub(crate) fn print_scenario_error(error: &ScenarioError) {
    if errors_are_json() {
        let report = error.report(Style::Plain);
        return print_error(&report.strip_prefix("error: ").unwrap_or(&report).trim());
    }
    let colour = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let report = error.report(if colour { Style::Colour } else { Style::Plain });
    print_note(&report.strip_suffix('\n').unwrap_or(&report));
}

/// A time in UTC, as ISO 8601 has it in full, and in its short form for names of files.
pub(crate) fn utc(time: SystemTime) -> (String, String) {
    let seconds = time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let (mut day, clock) = (seconds / 86_400, seconds % 86_400);
    let leap = |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let mut year = 1970;
    while day >= 365 + u64::from(leap(year)) {
        day -= 365 + u64::from(leap(year));
        year += 1;
    }
    let lengths = [31, 28 + u64::from(leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let mut month = 1;
    for length in lengths {
        if day < length {
            break;
        }
        day -= length;
        month += 1;
    }
    let day = day + 1;
    let (hour, minute, second) = (clock / 3600, clock / 60 % 60, clock % 60);
    (
        format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z"),
        format!("{year:04}{month:02}{day:02}-{hour:02}{minute:02}{second:02}"),
    )
}

/// The columns of `COLUMNS` or of the terminal; `None` if the output is not a terminal.
pub(crate) fn terminal_width() -> Option<usize> {
    if !std::io::stdout().is_terminal() {
        return None;
    }
    let stated = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
    let has = || rustix::termios::tcgetwinsize(std::io::stdout()).ok().map(|size| usize::from(size.ws_col));
    stated.or_else(has).filter(|&columns| columns > 0)
}

/// At Ctrl-C or SIGTERM, ends all processes that this one has started on its routers, removes their directories, prints
/// `kept` and exits. Starts a thread: call after entering the last namespace.
pub(crate) fn exit_on_signals(kept: String) -> std::io::Result<()> {
    const EVERY: std::time::Duration = std::time::Duration::from_millis(50);
    let stop = stop_on_signals()?;
    std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
        while !stop.load(Ordering::Relaxed) {
            std::thread::sleep(EVERY);
        }
        dependents::end();
        remove_directories();
        let text = format!("interrupted; {kept}");
        if !errors_are_json() {
            // Below the progress bar.
            print_note(&format_args!("\n{text}"));
        } else if begin_output(Writer::Signals) {
            write_out(error_line(&text).as_bytes());
        }
        std::process::exit(INTERRUPTED.into());
    })?;
    Ok(())
}

/// A directory for daemons of this process. Not created.
pub(crate) fn scratch_directory(name: &str) -> PathBuf {
    scratch_parent().join(format!("{}{name}", scratch_prefix()))
}

/// Where scratch directories are: in memory (`/dev/shm`), as `/run` is, so that a gateway's queued packets are not delayed by disk writes;
/// without it in the system's directory for temporary files. `TMPDIR` overrides both.
fn scratch_parent() -> PathBuf {
    let memory = Path::new("/dev/shm");
    if std::env::var_os("TMPDIR").is_none() && memory.is_dir() { memory.to_path_buf() } else { std::env::temp_dir() }
}

fn scratch_prefix() -> String {
    format!("holdover-scratch-{}-", std::process::id())
}

/// Removes all such directories.
fn remove_directories() {
    let entries = std::fs::read_dir(scratch_parent()).into_iter().flatten().flatten();
    for entry in entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(&scratch_prefix())) {
        let path = entry.path();
        // One that cannot be removed is left.
        let _ = if path.is_dir() { std::fs::remove_dir_all(path) } else { std::fs::remove_file(path) };
    }
}

/// Prints JSON.
pub(crate) fn print_json(value: &impl Serialize) -> ExitCode {
    match serde_json::to_string_pretty(value) {
        Ok(text) => print(&(text + "\n")),
        Err(error) => {
            // Not by print_error, which would come back here.
            print_note(&format_args!("error: {error}"));
            ExitCode::FAILURE
        }
    }
}

/// The threads that write to standard output.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Writer {
    /// Prints results and errors.
    Main = 1,
    /// Prints under `--json` that the command was interrupted.
    Signals = 2,
}

/// The thread that wrote first; 0 if none did. Under `--json` it is the only one: the output is a single document.
static WRITER: AtomicU8 = AtomicU8::new(0);

/// Whether this thread may write. Waits for nothing.
fn begin_output(writer: Writer) -> bool {
    let before = WRITER.compare_exchange(0, writer as u8, Ordering::AcqRel, Ordering::Acquire);
    before.is_ok() || before == Err(writer as u8)
}

/// Prints to a pipe that may close early, as with `head`.
pub(crate) fn print(text: &str) -> ExitCode {
    print_from(text.as_bytes())
}

/// Prints a file's content.
pub(crate) fn print_file(path: &std::path::Path) -> ExitCode {
    match std::fs::File::open(path) {
        Ok(file) => print_from(file),
        Err(error) => {
            print_error(&format_args!("cannot read {}: {error}", path.display()));
            ExitCode::FAILURE
        }
    }
}

fn print_from(content: impl std::io::Read) -> ExitCode {
    while !begin_output(Writer::Main) {
        // The process is about to end: the interruption is being printed.
        std::thread::park();
    }
    write_out(content)
}

fn write_out(mut content: impl std::io::Read) -> ExitCode {
    let mut out = std::io::stdout();
    match std::io::copy(&mut content, &mut out).and_then(|_| out.flush()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => {
            // To standard error, under --json too: standard output cannot be written.
            print_note(&format_args!("error: {error}"));
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_number_outside_its_range_is_refused_in_plain_words() {
        assert_eq!(within(1_u16..=1024)("1024"), Ok(1024));
        for text in ["0", "1025", "-1", "many", ""] {
            assert_eq!(within(1_u16..=1024)(text), Err("expected a whole number from 1 to 1024".to_owned()));
        }
        // More than the type holds.
        assert_eq!(within(1..=u16::MAX)("70000"), Err("expected a whole number from 1 to 65535".to_owned()));
    }

    #[test]
    fn standard_output_is_of_the_thread_that_wrote_first() {
        assert!(begin_output(Writer::Main));
        assert!(begin_output(Writer::Main), "as often as it likes");
        assert!(!begin_output(Writer::Signals), "no second document");
    }

    #[test]
    fn a_time_is_written_as_iso_8601_has_it() {
        let at = |seconds| utc(UNIX_EPOCH + Duration::from_secs(seconds));
        assert_eq!(at(0).0, "1970-01-01T00:00:00Z");
        assert_eq!(at(951_782_399).0, "2000-02-28T23:59:59Z");
        assert_eq!(at(951_782_400).0, "2000-02-29T00:00:00Z");
        assert_eq!(at(1_795_305_599), ("2026-11-21T23:59:59Z".to_owned(), "20261121-235959".to_owned()));
        assert_eq!(at(4_102_444_800).0, "2100-01-01T00:00:00Z");
    }
}
