//! `holdover kernel-matrix`: Holdover's TCP against the kernel's, under every pair of settings or under all combinations.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};

use clap::Args;
use holdover_conformance::kernel_matrix::{KernelMatrix, Report};
use holdover_tcp::Profile;
use holdover_testbed::Privilege;
use holdover_testbed::matrix::Combination;
use indicatif::{ProgressBar, ProgressStyle};

use crate::command_support::{exit_on_signals, print, print_error, print_json, within};
use crate::conformance::about;

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
    let matrix = args.matrix();
    let combinations = matrix.combinations();
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
    let report = measure(&matrix, &combinations);
    let printed = if args.json { print_json(&report) } else { print(&report.markdown()) };
    if printed != ExitCode::SUCCESS {
        return printed;
    }
    if report.all_passed() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

impl KernelMatrixArgs {
    fn matrix(&self) -> KernelMatrix {
        KernelMatrix {
            full: self.full,
            profile: self.profile,
            only: self.only.clone(),
            jobs: self.jobs,
            captures: self.captures.clone(),
            all_captures: self.all_captures,
        }
    }
}

/// Makes the transfers, with their progress on a terminal.
fn measure(matrix: &KernelMatrix, combinations: &[Combination]) -> Report {
    let bar = ProgressBar::new(combinations.len() as u64).with_style(
        ProgressStyle::with_template("{bar:40} {pos}/{len} {elapsed_precise}, {eta} left {msg}")
            .expect("a valid template"),
    );
    let failures = AtomicUsize::new(0);
    let report = matrix.measure(combinations, about(), &|passed| {
        if !passed {
            bar.set_message(format!("{} failed", failures.fetch_add(1, Ordering::Relaxed) + 1));
        }
        bar.inc(1);
    });
    bar.finish_and_clear();
    report
}
