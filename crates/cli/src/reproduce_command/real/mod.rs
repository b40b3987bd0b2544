//! `holdover reproduce PAPER --real`: the measurements of papers that have a counterpart on this machine's kernel, with Holdover's daemons.

mod hip_uto_rt;
mod m_tcp;

use std::process::ExitCode;

use holdover_testbed::Privilege;

use super::ReproduceArgs;
use crate::command_support::print_error;

/// The exit status if this machine cannot run it, as that of `holdover gateway`.
const CANNOT_WORK: u8 = 77;

/// Measures and prints it.
pub(super) fn run(args: &ReproduceArgs) -> ExitCode {
    let measure = match args.what.as_deref() {
        Some(m_tcp::PAPER) => m_tcp::run,
        Some(hip_uto_rt::PAPER) => hip_uto_rt::run,
        _ => {
            print_error(&format_args!("--real measures {} or {}, as a whole", m_tcp::PAPER, hip_uto_rt::PAPER));
            return ExitCode::from(2);
        }
    };
    // Before the first thread.
    if let Err(error) = Privilege::acquire() {
        print_error(&format_args!("--real needs network namespaces: {error}"));
        return ExitCode::from(CANNOT_WORK);
    }
    measure(args.json)
}
