//! `holdover kernel-matrix`: Holdover's TCP against the kernel's, under every pair of settings or under all combinations.

mod report;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use clap::Args;
use holdover_tcp::Profile;
use holdover_testbed::Privilege;
use holdover_testbed::matrix::{self, Combination, RunOptions};
use indicatif::{ProgressBar, ProgressStyle};

use crate::command_support::{exit_on_signals, print_error, within};
use report::{Report, Row};

/// Arguments of `holdover kernel-matrix`.
#[derive(Args, Debug)]
pub(crate) struct KernelMatrixArgs {
    /// Run every combination of settings instead of a selection that covers every pair.
    #[arg(long)]
    full: bool,
    /// The number of concurrent transfers, each in its own network namespace. They are idle most of the
    /// time.
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = within(1_u16..=256))]
    jobs: u16,
    /// Print JSON instead of Markdown.
    #[arg(long)]
    json: bool,
    /// With --full: the stack of Holdover's side. Default: combinations take the stacks in turn.
    #[arg(long, requires = "full")]
    profile: Option<Profile>,
    /// Run only combinations whose name contains this.
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// Write a capture of each transfer that fails into this directory (pcapng).
    #[arg(long, value_name = "DIR")]
    captures: Option<PathBuf>,
    /// Keep the captures of transfers that pass, too.
    #[arg(long, requires = "captures")]
    all_captures: bool,
}

/// Runs the transfers and prints the report.
pub(crate) fn run(args: &KernelMatrixArgs) -> ExitCode {
    // Before the first thread: this may have to enter a user namespace.
    if let Err(error) = Privilege::acquire() {
        print_error(&format_args!("kernel-matrix needs network namespaces: {error}"));
        return ExitCode::FAILURE;
    }
    if let Some(directory) = &args.captures
        && let Err(error) = std::fs::create_dir_all(directory)
    {
        print_error(&format_args!("{} cannot be made: {error}", directory.display()));
        return ExitCode::FAILURE;
    }
    let mut combinations = if args.full { matrix::every_combination(args.profile) } else { matrix::every_pair() };
    if let Some(text) = &args.only {
        combinations.retain(|combination| combination.to_string().contains(text));
    }
    if combinations.is_empty() {
        print_error(&"no combination has that in its name");
        return ExitCode::FAILURE;
    }
    let kept = match &args.captures {
        Some(directory) => format!("the captures in {} are kept, the table is not made", directory.display()),
        None => "nothing was kept".to_owned(),
    };
    if let Err(error) = exit_on_signals(kept) {
        print_error(&format_args!("cannot watch for Ctrl-C: {error}"));
        return ExitCode::FAILURE;
    }
    let report = Report::new(args.full, transfers(args, &combinations));
    if args.json {
        println!("{}", serde_json::to_string_pretty(&report).expect("plain values"));
    } else {
        print!("{}", report.markdown());
    }
    if report.passed == report.runs { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// All transfers, several at a time; the rows are in the order of the combinations.
fn transfers(args: &KernelMatrixArgs, combinations: &[Combination]) -> Vec<Row> {
    let bar = ProgressBar::new(combinations.len() as u64).with_style(
        ProgressStyle::with_template("{bar:40} {pos}/{len} {elapsed_precise}, {eta} left {msg}")
            .expect("a valid template"),
    );
    let next = AtomicUsize::new(0);
    let failures = AtomicUsize::new(0);
    let rows = Mutex::new(vec![None; combinations.len()]);
    std::thread::scope(|scope| {
        for _ in 0..args.jobs {
            scope.spawn(|| {
                while let Some((index, combination)) = take(&next, combinations) {
                    let row = transfer(args, combination);
                    if !row.passed() {
                        bar.set_message(format!("{} failed", failures.fetch_add(1, Ordering::Relaxed) + 1));
                    }
                    rows.lock().expect("no worker panics while it holds the rows")[index] = Some(row);
                    bar.inc(1);
                }
            });
        }
    });
    bar.finish_and_clear();
    let rows = rows.into_inner().expect("no worker panics while it holds the rows");
    rows.into_iter().map(|row| row.expect("every combination was run")).collect()
}

fn take<'a>(next: &AtomicUsize, combinations: &'a [Combination]) -> Option<(usize, &'a Combination)> {
    let index = next.fetch_add(1, Ordering::Relaxed);
    combinations.get(index).map(|combination| (index, combination))
}

fn transfer(args: &KernelMatrixArgs, combination: &Combination) -> Row {
    let capture = args.captures.as_deref().map(|directory| directory.join(format!("{combination}.pcapng")));
    let options = RunOptions { capture: capture.clone(), ..RunOptions::new(combination) };
    let row = match matrix::run(combination, &options) {
        Ok(outcome) => Row::new(combination, Some(Duration::from(outcome.took)), outcome.findings),
        Err(error) => Row::new(combination, None, vec![error.to_string()]),
    };
    if let Some(path) = capture.filter(|_| row.passed() && !args.all_captures) {
        // A capture that stays behind does no harm.
        let _ = std::fs::remove_file(path);
    }
    row
}
