//! `holdover`: the command line of Holdover.

// This crate is the outermost floor: it reads clocks, files and arguments.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

mod bench;

use clap::{Parser, Subcommand};

#[global_allocator]
static ALLOCATOR: bench::Counting = bench::Counting;

/// Keeps TCP alive and fast on hosts whose link comes and goes.
#[derive(Parser, Debug)]
#[command(version, about, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Measure the speed and memory of Holdover's TCP on this machine.
    Bench(bench::BenchArgs),
}

fn main() {
    match Cli::parse().command {
        Command::Bench(args) => bench::run(&args),
    }
}
