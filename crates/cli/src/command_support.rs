//! What several commands need.

use std::fmt::Display;
use std::io::{IsTerminal, Write};
use std::ops::{Bound, RangeBounds};
use std::path::PathBuf;
use std::process::ExitCode;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use holdover_base::Duration;
use holdover_host::dependents;
pub(crate) use holdover_host::log::with_causes;
#[cfg(feature = "lab")]
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
#[cfg(feature = "lab")]
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

/// Prints why a command failed: a line on standard error, or under `--json` an object with the key `error` on standard output.
pub(crate) fn print_error(error: &dyn Display) {
    if errors_are_json() {
        print_json(&serde_json::json!({ "error": error.to_string() }));
    } else {
        eprintln!("error: {error}");
    }
}

/// Prints that a command was interrupted, and what it has kept.
pub(crate) fn print_interruption(text: &dyn Display) {
    if errors_are_json() { print_error(text) } else { eprintln!("{text}") }
}

/// A parser for an argument that is a whole number in this range.
pub(crate) fn within<T>(
    range: impl RangeBounds<T> + Clone + Send + Sync + 'static,
) -> impl Fn(&str) -> Result<T, String> + Clone + Send + Sync + 'static
where
    T: FromStr + PartialOrd + Display,
{
    move |text| {
        let number = text.parse().ok().filter(|number| range.contains(number));
        number.ok_or_else(|| match (range.start_bound(), range.end_bound()) {
            (Bound::Included(least), Bound::Included(most)) => {
                format!("expected a whole number from {least} to {most}")
            }
            (Bound::Included(least), _) => format!("expected a whole number, {least} or more"),
            _ => "expected a whole number".to_owned(),
        })
    }
}

/// Prints a scenario's error with its position, in colour on terminals that allow it.
#[cfg(feature = "lab")]
pub(crate) fn print_scenario_error(error: &ScenarioError) {
    if errors_are_json() {
        let report = error.report(Style::Plain);
        return print_error(&report.strip_prefix("error: ").unwrap_or(&report).trim());
    }
    let colour = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    eprint!("{}", error.report(if colour { Style::Colour } else { Style::Plain }));
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

/// A whole number of seconds, or of milliseconds.
pub(crate) fn spaced(time: Duration) -> String {
    let millis = time.as_millis();
    if millis.is_multiple_of(1000) { format!("{} s", millis / 1000) } else { format!("{millis} ms") }
}

/// The columns of `COLUMNS` or of the terminal; `None` if the output is no terminal.
pub(crate) fn terminal_width() -> Option<usize> {
    let said = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
    let has = || rustix::termios::tcgetwinsize(std::io::stdout()).ok().map(|size| usize::from(size.ws_col));
    said.or_else(has).filter(|&columns| columns > 0)
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
        if !errors_are_json() {
            // Below the progress bar.
            eprintln!();
        }
        print_interruption(&format_args!("interrupted; {kept}"));
        std::process::exit(INTERRUPTED.into());
    })?;
    Ok(())
}

/// A directory for daemons of this process, in the system's for temporary files. Not created.
pub(crate) fn scratch_directory(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("{}{name}", scratch_prefix()))
}

fn scratch_prefix() -> String {
    format!("holdover-scratch-{}-", std::process::id())
}

/// Removes all such directories.
fn remove_directories() {
    let entries = std::fs::read_dir(std::env::temp_dir()).into_iter().flatten().flatten();
    for entry in entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(&scratch_prefix())) {
        let path = entry.path();
        // One that cannot be removed is left.
        let _ = if path.is_dir() { std::fs::remove_dir_all(path) } else { std::fs::remove_file(path) };
    }
}

/// A table for people, as wide as the terminal at most.
pub(crate) fn columns<const N: usize>(names: [&str; N], rows: impl Iterator<Item = [String; N]>) -> String {
    let names = names.map(str::to_owned).to_vec();
    table(&std::iter::once(names).chain(rows.map(Vec::from)).collect::<Vec<_>>())
}

/// A table for people, whose first row has the names of its columns, as wide as the terminal at most.
pub(crate) fn table(rows: &[Vec<String>]) -> String {
    table_within(rows, table_width())
}

/// The greatest width of a table.
pub(crate) fn table_width() -> Option<usize> {
    // Unit tests compare whole tables, whatever terminal they run in.
    if cfg!(test) { None } else { terminal_width() }
}

/// Each column is as wide as its widest cell. If the table is wider than `limit`, each row becomes a block: its first cell, and below it
/// a line for each further one.
fn table_within(rows: &[Vec<String>], limit: Option<usize>) -> String {
    let count = rows.iter().map(Vec::len).max().unwrap_or(0);
    let len = |cell: &String| cell.chars().count();
    let width = |column: usize| rows.iter().filter_map(|row| row.get(column)).map(len).max().unwrap_or(0);
    let widths: Vec<usize> = (0..count).map(width).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned() + "\n"
    };
    let lines: Vec<String> = rows.iter().map(line).collect();
    let fits = limit.is_none_or(|limit| lines.iter().all(|line| line.trim_end().chars().count() <= limit));
    match rows {
        [names, rows @ ..] if !fits => rows.iter().map(|row| block(names, row)).collect(),
        _ => lines.concat(),
    }
}

/// A row of a table that is too wide, as a block of lines.
fn block(names: &[String], row: &[String]) -> String {
    let [title, cells @ ..] = row else { return String::new() };
    let names = names.get(1..).unwrap_or_default();
    let width = names.iter().map(|name| name.chars().count()).max().unwrap_or(0);
    let shown = names.iter().zip(cells).filter(|(_, cell)| !cell.is_empty());
    let lines = shown.map(|(name, cell)| format!("  {name:width$}  {cell}\n"));
    std::iter::once(format!("{title}\n")).chain(lines).collect()
}

/// Prints JSON.
pub(crate) fn print_json(value: &impl Serialize) -> ExitCode {
    match serde_json::to_string_pretty(value) {
        Ok(text) => print(&(text + "\n")),
        Err(error) => {
            // Not by print_error, which would come back here.
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
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

fn print_from(mut content: impl std::io::Read) -> ExitCode {
    let mut out = std::io::stdout();
    match std::io::copy(&mut content, &mut out).and_then(|_| out.flush()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => {
            // To standard error, under --json too: standard output cannot be written.
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows = [["a", "much longer", ""], ["\u{e4}\u{f6}\u{fc}", "b", "c"]].map(|row| row.map(str::to_owned));
        let text = columns(["one", "two", "three"], rows.into_iter());
        assert_eq!(text, "one  two          three\na    much longer\n\u{e4}\u{f6}\u{fc}  b            c\n");
    }

    #[test]
    fn a_table_that_is_too_wide_becomes_blocks() {
        let rows = [["link", "state", "note"], ["wlan0", "up", ""], ["eth0", "down", "no carrier"]];
        let rows = rows.map(|row| row.map(str::to_owned).to_vec());
        let side_by_side = "link   state  note\nwlan0  up\neth0   down   no carrier\n";
        assert_eq!(table_within(&rows, Some(24)), side_by_side);
        assert_eq!(table_within(&rows, None), side_by_side);
        assert_eq!(table_within(&rows, Some(23)), "wlan0\n  state  up\neth0\n  state  down\n  note   no carrier\n");
        assert_eq!(table_within(&rows[..1], Some(3)), "", "no rows, no blocks");
        assert_eq!(table_within(&[], Some(3)), "");
    }

    #[test]
    fn a_number_outside_its_range_is_refused_in_plain_words() {
        assert_eq!(within(1_u16..=1024)("1024"), Ok(1024));
        for text in ["0", "1025", "-1", "many", ""] {
            assert_eq!(within(1_u16..=1024)(text), Err("expected a whole number from 1 to 1024".to_owned()));
        }
        assert_eq!(within(10_u64..)("9"), Err("expected a whole number, 10 or more".to_owned()));
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
