//! `holdover completions` and `holdover man`: what packages install beside the program, from its own arguments.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Command, CommandFactory as _};
use clap_complete::Shell;
use clap_mangen::Man;

use crate::command_support::{print, print_error};
use crate::{CommandLine, examples};

/// Arguments of `holdover completions`.
#[derive(Args, Debug)]
pub(crate) struct CompletionsArgs {
    /// The shell.
    shell: Shell,
}

/// Arguments of `holdover man`.
#[derive(Args, Debug)]
pub(crate) struct ManArgs {
    /// The directory, created if needed; existing pages are replaced.
    directory: PathBuf,
}

/// Prints a shell's script.
pub(crate) fn completions(args: &CompletionsArgs) -> ExitCode {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut CommandLine::described(), "holdover", &mut script);
    print(&String::from_utf8_lossy(&script))
}

/// Writes a page for the program and for each command; prints nothing.
pub(crate) fn man(args: &ManArgs) -> ExitCode {
    // The pages have a section of their own for examples.
    let mut command = CommandLine::command().disable_help_subcommand(true);
    command.build();
    match fs::create_dir_all(&args.directory).and_then(|()| write_pages(&command, &args.directory)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            print_error(&format_args!("cannot write man pages into {}: {error}", args.directory.display()));
            ExitCode::FAILURE
        }
    }
}

/// A page for the command and for each below it, as `holdover-agent-status.1`. A command that has been built knows its full name.
fn write_pages(command: &Command, directory: &Path) -> io::Result<()> {
    let man = Man::new(command.clone()).manual("Holdover").source(format!("holdover {}", env!("CARGO_PKG_VERSION")));
    let mut page = Vec::new();
    man.render(&mut page)?;
    let name = command.get_bin_name().unwrap_or_default();
    page.extend(examples_section(name.strip_prefix("holdover").unwrap_or(name).trim()).bytes());
    fs::write(directory.join(man.get_filename()), page)?;
    let shown = command.get_subcommands().filter(|sub| !sub.is_hide_set() && sub.get_name() != "help");
    shown.into_iter().try_for_each(|sub| write_pages(sub, directory))
}

/// The examples of a command in the language of man pages.
fn examples_section(path: &str) -> String {
    let escape = |text: &str| text.replace('\\', "\\e").replace('-', "\\-").replace('\'', "\\(aq");
    let entries = examples::of(path)
        .into_iter()
        .map(|(line, what)| format!(".TP\n\\fB{}\\fR\n\\&{}.\n", escape(line), escape(what)));
    format!(".SH EXAMPLES\n{}", entries.collect::<String>())
}
